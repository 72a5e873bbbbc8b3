"""Resampling by per-sample gradient norm."""

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from spurless.core.data import Batch
from spurless.core.errors import UserError
from spurless.core.method import Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.parts.grads import GradNorms, Norm, head_grad_norms
from spurless.methods.parts.losses import Form, ce_rows, gce
from spurless.nets import Net
from spurless.train.schedule import batch_sizes

AT_ONCE = 2**14  # scored at a time: features in double precision are large


@dataclass(frozen=True)
class PGD(Method):
    """Per-sample gradient-norm debiasing (Ahn, Kim and Yun 2023, algorithm 1).  h_i ∝ ‖∇_fc CE(x_i, y_i)‖₂

    The settings after `norm` are the paper's variants: equation 1 (exponent, scope), tables 10, 9 and 8.
    """

    q: Annotated[float, "how strongly the biased network prefers easy samples (GCE)", Range(0, 1)] = 0.7
    norm: Annotated[Norm | None, "which norm of a sample's gradient; none: l2, or l0.7 in the code's form"] = None
    exponent: Annotated[float, "the power r of the norm that a sample's odds are proportional to", Range(0)] = 1.0
    scope: Annotated[Literal["head", "full"], "gradient of the head's weight, or of the whole network"] = "head"
    head_bias: Annotated[bool, "whether the head's gradient includes its bias"] = False
    score: Annotated[Literal["gradient", "loss"], "odds by the gradient's norm, or by the loss"] = "gradient"
    use: Annotated[Literal["resample", "reweight"], "draw samples by their odds, or weight their losses by them"] = (
        "resample"
    )
    single_stage: Annotated[bool, "train two networks in turn, and score after each epoch"] = False
    form: Annotated[Form, "as in the paper; code: GCE as released, one augmented view is scored, norm l0.7"] = "paper"

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        if self.single_stage:
            return (yield from self._epoch_by_epoch(run))
        net = run.net()
        yield self.biased(run, net)
        h = self.odds(run, net)  # (n,)
        yield self.debiased(run, net, h)  # from the biased weights, with a fresh optimiser
        return net

    def biased(self, run: Run, net: Net) -> Stage:
        """Step 1: make the network lean on what is easy."""
        loss = {"loss": "gce", "q": self.q, "form": self.form}
        return Stage(
            "biased", lambda b: gce(net(b.x), b.y, self.q, self.form), run.optimizer(net), model=net, shared=loss
        )

    @torch.no_grad()
    def odds(self, run: Run, net: Net) -> Tensor:
        """(n,) Step 2: the sampling probability of each training sample, which sums to 1."""
        y, view = run.data.train.y.to(run.device), self.form == "code"
        norm: Norm = self.norm or ("l0.7" if self.form == "code" else "l2")
        if self.score == "loss":
            score = ce_rows(run.outputs(net, augment=view), y)
        elif self.scope == "full":
            score = run.outputs(GradNorms(net, y, norm), augment=view)
        else:
            features = run.outputs(net, features=True, augment=view)  # (n, d)
            parts = zip(features.split(AT_ONCE), y.split(AT_ONCE), strict=True)
            score = torch.cat([head_grad_norms(net.head(f), f, t, norm, self.head_bias) for f, t in parts])
        if self.form == "code":
            score = score.clamp_min(1e-8)
        h = score.double().pow(self.exponent)
        run.report_conflicting(h > h.mean())  # drawn more often than by chance
        return h / h.sum()

    def debiased(self, run: Run, net: Net, h: Tensor) -> Stage:
        """Step 3: train on samples drawn by their odds, or weighted by n · h, whose mean is 1."""
        draw, weight = (h, None) if self.use == "resample" else (None, (len(h) * h).float())

        def loss(b: Batch) -> Tensor:
            logits = net(b.x)
            return run.ce(logits, b.y) if weight is None else (weight[b.idx] * run.ce_rows(logits, b.y)).mean()

        return Stage("debiased", loss, run.optimizer(net), model=net, sample_weights=draw, select=True, until=False)

    def _epoch_by_epoch(self, run: Run) -> Generator[Stage, None, Net]:
        """Appendix C.2: for each epoch, update the biased network, the odds, and the debiased network."""
        if run.recipe.selection != "last":
            raise UserError(
                "method.single_stage makes a stage of each epoch, and no rule can pick among them: "
                "use recipe.selection = last."
            )
        biased, debiased = run.net(), run.net()
        optimizers = run.optimizer(biased), run.optimizer(debiased)
        epochs = length(run)
        for k in range(math.ceil(epochs)):
            end = min(k + 1, epochs)
            span = k / epochs, end / epochs
            yield replace(self.biased(run, biased), optimizer=optimizers[0], epochs=end - k, span=span)
            stage = self.debiased(run, debiased, self.odds(run, biased))
            yield replace(stage, optimizer=optimizers[1], epochs=end - k, span=span, select=end == epochs)
        return debiased


def length(run: Run) -> float:
    """The recipe's length in epochs, even where it is given in steps."""
    steps = len(batch_sizes(len(run.data.train), run.recipe))
    return run.recipe.iterations / steps if run.recipe.iterations else run.recipe.epochs
