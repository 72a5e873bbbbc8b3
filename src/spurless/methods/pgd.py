"""Resampling by per-sample gradient norm."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated

from spurless.core import Method, Run, Stage
from spurless.grads import Norm, head_grad_norms
from spurless.losses import Form, ce, gce
from spurless.nets import Net
from spurless.settings import Range


@dataclass(frozen=True)
class PGD(Method):
    """Per-sample gradient-norm debiasing (Ahn, Kim and Yun 2023, algorithm 1).  h_i ∝ ‖∇_fc CE(x_i, y_i)‖₂"""

    q: Annotated[float, "how strongly the biased network prefers easy samples (GCE)", Range(0, 1)] = 0.7
    norm: Annotated[Norm, "which norm of a sample's gradient"] = "l2"
    form: Annotated[Form, "GCE as in the paper or as in the released code"] = "paper"

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        net, y = run.net(), run.data.train.y.to(run.device)
        yield Stage("biased", lambda b: gce(net(b.x), b.y, self.q, self.form), run.optimizer(net), model=net)
        features = run.outputs(net, features=True)
        h = head_grad_norms(net.head(features), features, y, self.norm)  # (n,)
        yield Stage("debiased", lambda b: ce(net(b.x), b.y), run.optimizer(net), model=net, weights=h, select=True)
        return net
