"""An unbiased subnetwork, found by contrastive weight pruning."""

import copy
from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from spurless.core.data import Batch
from spurless.core.errors import UserError
from spurless.core.messages import log
from spurless.core.method import PLAIN, Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.group_inference.mining import MINERS, Falls, Mined, MinerDecay, MinerLr, MinerOptimizer
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
from spurless.methods.parts.pruning import EVERY, Layers, Masks, hold, prunable
from spurless.nets import Net


@dataclass(frozen=True)
class DCWP(Method):
    """Debiased contrastive weight pruning (Park et al. 2023, algorithm 1).  L = L_WCE + λ_align L_align + λ Σ|Θ|

    Mine conflicting rows S_bc; train a network W; learn a logit Θ for each weight while W stands still, on batches in
    which a row of S_bc is drawn λ_up times as often (equation 14), with same-class pairs pulled together across S_bc
    (equation 16); remove the weights with σ(Θ) ≤ 1/2; fine-tune the others with the same losses.
    """

    mining: Annotated[Literal["gce", "ecs", "ecs_simple", "erm"], "how conflicting rows are found"] = "gce"
    mining_iterations: Annotated[int | None, "steps of mining (gce, erm); none: the miner's own length", Range(1)] = (
        None
    )
    mining_epochs: Annotated[float | None, "epochs of mining, instead of steps", Range(0)] = None
    mining_optimizer: MinerOptimizer = None
    mining_lr: MinerLr = 0.0
    mining_decay: MinerDecay = None
    mining_falls: Falls = 0
    q: Annotated[float, "how strongly the biased network prefers easy samples (GCE)", Range(0, 1)] = 0.7
    prune: Annotated[bool, "learn a mask; off: only fine-tune"] = True
    reset: Annotated[bool, "retrain the survivors from their start values, instead of fine-tuning them"] = False
    lambda_l1: LambdaL1 = 1e-8
    mask_iterations: MaskIterations = 2000
    mask_lr: MaskLr = 0.01
    start: Start = 1.5
    temperature: Temperature = 1.0
    over: OverWhat = "weight"
    layers: Layers = EVERY
    hold_stats: HoldStats = False
    lambda_up: Annotated[float, "how often a mined row is drawn for the mask, where another is once", Range(0)] = 80
    lambda_align: Annotated[float, "weight of the alignment loss for the mask", Range(0)] = 0.05
    finetune_iterations: Annotated[int, "steps of fine-tuning", Range(1)] = 1000
    finetune_lr: Annotated[
        float, "learning rate of fine-tuning; 0: a tenth of the recipe's, or the recipe's after a reset", Range(0)
    ] = 0.0
    finetune_up: Annotated[float, "lambda_up of fine-tuning; 0: the same", Range(0)] = 0.0
    finetune_align: Annotated[float, "lambda_align of fine-tuning", Range(0)] = 0.05
    contrast: Annotated[float, "temperature of the alignment loss", Range(1e-3)] = 0.07
    form: Annotated[Form, "as in the paper or as in the released code: gates, penalty, pairs, anchors, GCE"] = "paper"
    gate_form: GateForm = None
    penalty_form: PenaltyForm = None
    pair_form: Annotated[Form | None, "which pairs the alignment loss takes; none: as form"] = None
    anchors: Annotated[
        Literal["sum", "mean"] | None, "alignment over the rows of a batch; none: sum in the paper's form, else mean"
    ] = None

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        mined = yield from self._mine(run)
        conflicting = mined.rows.to(run.device)
        if not bool(conflicting.any()):
            log.warning("Mining found no conflicting row: nothing is drawn more often, and nothing is aligned.")
        net = run.net()
        prunable(net, self.layers)  # a wrong name is told now, not after the training
        start = copy.deepcopy(net.state_dict())
        yield Stage("pretrain", lambda b: run.ce(net(b.x), b.y), run.optimizer(net), model=net, shared=PLAIN)
        masks: Masks = {}
        if self.prune:
            masks = yield from self._learn(run, net, conflicting)
        if self.reset:
            net.load_state_dict(start)
        yield self._finetune(run, net, masks, conflicting)
        return net

    def _mine(self, run: Run) -> Generator[Stage, None, Mined]:
        settings: dict[str, Any] = {}
        if self.mining_epochs is not None:
            settings["epochs"] = self.mining_epochs
        training = {k: getattr(self, f"mining_{k}") for k in ("optimizer", "lr", "decay", "falls")}
        if self.mining in ("gce", "erm"):
            settings |= {"iterations": self.mining_iterations} | training
        elif given := [f"method.mining_{k}" for k, v in training.items() if v not in (None, 0)]:
            raise UserError(f"{' and '.join(given)}: for gce and erm; {self.mining} is trained as the recipe says.")
        elif self.mining_iterations is not None:
            raise UserError(f"method.mining_iterations is for gce and erm; {self.mining} takes method.mining_epochs.")
        elif self.mining_epochs is not None:
            settings["epochs"] = max(1, round(self.mining_epochs))  # it looks at the rows after each
        if self.mining == "gce":
            settings |= {"q": self.q, "form": self.form}
        return (yield from MINERS[self.mining](run, **settings))

    def _learn(self, run: Run, net: Net, conflicting: Tensor) -> Generator[Stage, None, Masks]:
        """Stage 2 of the algorithm: only the logits learn."""
        form = self.gate_form or self.form
        gates = run.keep(Gates(net, self.start, self.temperature, form, self.over, self.layers))

        def objective(b: Batch, features: Tensor, logits: Tensor) -> Tensor:
            return self._debiased(run, b, features, logits, conflicting, self.lambda_align)

        yield mask_stage(
            run,
            net,
            gates,
            objective,
            self.lambda_l1,
            self.penalty_form or self.form,
            self.mask_lr,
            self.mask_iterations,
            oversampling(conflicting, self.lambda_up),
            self.hold_stats,
        )
        return gates.masks()

    def _finetune(self, run: Run, net: Net, masks: Masks, conflicting: Tensor) -> Stage:
        lr = self.finetune_lr or run.recipe.lr * (1.0 if self.reset else 0.1)

        def loss(b: Batch) -> Tensor:
            features = net.features(b.x)
            return self._debiased(run, b, features, net.head(features), conflicting, self.finetune_align)

        optimizer = hold(run.optimizer(net, lr=lr), net, masks)
        odds = oversampling(conflicting, self.finetune_up or self.lambda_up)
        return Stage(
            "finetune",
            loss,
            optimizer,
            model=net,
            iterations=self.finetune_iterations,
            sample_weights=odds,
            select=True,
        )

    def _debiased(
        self, run: Run, b: Batch, features: Tensor, logits: Tensor, conflicting: Tensor, weight: float
    ) -> Tensor:
        """Equation 17, on a batch that was drawn as equation 14 says."""
        loss = run.ce(logits, b.y)
        if not weight:
            return loss
        form = self.pair_form or self.form
        mean = self.form == "code" if self.anchors is None else self.anchors == "mean"
        return loss + weight * alignment(features, b.y, conflicting[b.idx], self.contrast, form, mean)


def oversampling(conflicting: Tensor, times: float) -> Tensor | None:
    """(n,) Odds of each row: `times` for a conflicting one, 1 for the others. None (shuffle) where all are equal.

    >>> oversampling(torch.tensor([False, True]), 80).tolist()
    [1.0, 80.0]
    """
    if times == 1 or not bool(conflicting.any()):
        return None
    return torch.where(conflicting, float(times), 1.0)


def pair_sets(y: Tensor, conflicting: Tensor, form: Form = "paper") -> tuple[Tensor, Tensor]:
    """(n, n), (n, n) For each anchor i of a batch: its positives j, and the rows a in its denominator.

    paper:  l_con(S_bc, S) + l_con(S_ba, S_bc): positive if of one class and at least one of the two conflicts; the
            denominator runs over the anchor's own set, S_bc or S_ba.
    code:   l_con(S, S_bc): positive if of one class and j conflicts, whatever i is; the denominator is everything else.
            (Meant as the paper's rule: a vector that was to be transposed has one dimension.)

    >>> positive, against = pair_sets(torch.tensor([0, 0, 0]), torch.tensor([True, False, False]))
    >>> positive.int().tolist(), against.int().tolist()
    ([[0, 1, 1], [1, 0, 0], [1, 0, 0]], [[0, 0, 0], [0, 0, 1], [0, 1, 0]])
    """
    other = ~torch.eye(len(y), dtype=torch.bool, device=y.device)
    same = (y[:, None] == y) & other
    if form == "paper":
        return same & (conflicting[:, None] | conflicting), (conflicting[:, None] == conflicting) & other
    return same & conflicting, other


def alignment(
    features: Tensor,
    y: Tensor,
    conflicting: Tensor,
    temperature: float = 0.07,
    form: Form = "paper",
    mean: bool = False,
) -> Tensor:
    """Equation 16: supervised contrast between conflicting rows and the others of their class, over a batch.

    Σ over anchors i of −mean over positives j of log( exp(z_i·z_j/τ) / Σ_a exp(z_i·z_a/τ) ),  z = features / norm.
    An anchor without a positive, or with nothing in its denominator, adds nothing; `mean`: over those that add.
    """
    positive, against = pair_sets(y, conflicting, form)
    with torch.autocast(features.device.type, enabled=False):  # bf16 would lose the third digit before the division
        z = normalize(features.float(), dim=1)  # (n, d)
        similar = z @ z.T / temperature  # (n, n)
    some = against.any(1)
    # A row with an empty denominator takes all entries, so that no gradient is NaN, and is then left out.
    below = similar.masked_fill(~(against | ~some[:, None]), -torch.inf).logsumexp(1)  # (n,)
    pull = (similar * positive).sum(1) / positive.sum(1).clamp_min(1)  # (n,)
    valid = positive.any(1) & some
    total = ((below - pull) * valid).sum()
    return total / valid.sum().clamp_min(1) if mean else total
