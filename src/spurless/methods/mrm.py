"""A subnetwork found by plain training of its mask, retrained from the start."""

import copy
from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated

from spurless.core.method import PLAIN, Method, Run, Stage
from spurless.methods.parts.gates import Mask, mask_stage
from spurless.methods.parts.losses import Form
from spurless.methods.parts.pruning import hold, prunable
from spurless.nets import Net


@dataclass(frozen=True)
class MRM(Method):
    """Modular risk minimisation (Zhang et al. 2021).  min over Θ of E[CE(f_{m⊙W})] + λ Σ|Θ|,  m ~ Bernoulli(σ(Θ))

    Train a network from W₀; learn a mask over it with cross entropy; put the survivors back to W₀ and train them alone.
    """

    mask: Annotated[Mask, "how the mask is learnt"] = Mask()
    form: Annotated[Form, "as in DCWP's equation 12 (paper), or as in its code"] = "paper"

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        net = run.net()
        prunable(net, self.mask.layers)  # a wrong name is told now, not after the training
        start = copy.deepcopy(net.state_dict())
        yield Stage("dense", lambda b: run.ce(net(b.x), b.y), run.optimizer(net), model=net, shared=PLAIN)
        gates = run.keep(self.mask.gates(net, self.form))
        yield mask_stage(run, net, gates, lambda b, features, logits: run.ce(logits, b.y), self.mask, self.form)
        net.load_state_dict(start)
        optimizer = hold(run.optimizer(net), net, gates.masks())
        yield Stage("retrain", lambda b: run.ce(net(b.x), b.y), optimizer, model=net, select=True)
        return net
