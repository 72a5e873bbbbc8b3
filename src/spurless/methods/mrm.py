"""A subnetwork found by plain training of its mask, retrained from the start."""

import copy
from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated

from spurless.core.method import PLAIN, Method, Run, Stage
from spurless.methods.parts.gates import (
    GateForm,
    Gates,
    HoldStats,
    LambdaL1,
    MaskIterations,
    MaskLr,
    OverWhat,
    PenaltyForm,
    Start,
    Temperature,
    mask_stage,
)
from spurless.methods.parts.losses import Form
from spurless.methods.parts.pruning import EVERY, Layers, hold, prunable
from spurless.nets import Net


@dataclass(frozen=True)
class MRM(Method):
    """Modular risk minimisation (Zhang et al. 2021).  min over Θ of E[CE(f_{m⊙W})] + λ Σ|Θ|,  m ~ Bernoulli(σ(Θ))

    Train a network from W₀; learn a mask over it with cross entropy; put the survivors back to W₀ and train them alone.
    """

    lambda_l1: LambdaL1 = 1e-8
    mask_iterations: MaskIterations = 2000
    mask_lr: MaskLr = 0.01
    start: Start = 1.5
    temperature: Temperature = 1.0
    over: OverWhat = "weight"
    layers: Layers = EVERY
    hold_stats: HoldStats = False
    form: Annotated[Form, "as in DCWP's equation 12 (paper), or as in its code"] = "paper"
    gate_form: GateForm = None
    penalty_form: PenaltyForm = None

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        net = run.net()
        prunable(net, self.layers)  # a wrong name is told now, not after the training
        start = copy.deepcopy(net.state_dict())
        yield Stage("dense", lambda b: run.ce(net(b.x), b.y), run.optimizer(net), model=net, shared=PLAIN)
        form = self.gate_form or self.form
        gates = run.keep(Gates(net, self.start, self.temperature, form, self.over, self.layers))
        yield mask_stage(
            run,
            net,
            gates,
            lambda b, features, logits: run.ce(logits, b.y),
            self.lambda_l1,
            self.penalty_form or self.form,
            self.mask_lr,
            self.mask_iterations,
            hold_stats=self.hold_stats,
        )
        net.load_state_dict(start)
        optimizer = hold(run.optimizer(net), net, gates.masks())
        yield Stage("retrain", lambda b: run.ce(net(b.x), b.y), optimizer, model=net, select=True)
        return net
