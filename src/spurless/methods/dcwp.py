"""An unbiased subnetwork, found by contrastive weight pruning."""

import copy
from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from spurless.core.data import Batch
from spurless.core.errors import SettingError
from spurless.core.messages import log
from spurless.core.method import PLAIN, Loss, Method, Run, Stage
from spurless.core.settings import Range, Was
from spurless.methods.group_inference import Inference
from spurless.methods.group_inference.errors import (
    DecayEvery,
    ErmErrors,
    GceErrors,
    OwnLr,
    OwnOptimizer,
    OwnWeightDecay,
)
from spurless.methods.group_inference.scores import EpochEnsemble, SimpleEnsemble
from spurless.methods.group_inference.training import Q
from spurless.methods.parts.gates import Gates, Mask, mask_stage
from spurless.methods.parts.losses import Form
from spurless.methods.parts.pruning import Masks, hold, prunable
from spurless.nets import Net


@dataclass(frozen=True)
class Mining:
    """How conflicting samples are found. Saved under the names that the settings had before they were a group."""

    how: Annotated[
        Literal["gce", "ecs", "ecs_simple", "erm"], "the group inference that finds conflicting samples", Was("mining")
    ] = "gce"
    iterations: Annotated[
        int | None, "its steps (gce, erm); none: the published length", Range(1), Was("mining_iterations")
    ] = None
    epochs: Annotated[float | None, "its epochs, instead of steps", Range(0), Was("mining_epochs")] = None
    optimizer: Annotated[OwnOptimizer, Was("mining_optimizer")] = None
    lr: Annotated[OwnLr, Was("mining_lr")] = 0.0
    weight_decay: Annotated[OwnWeightDecay, Was("mining_decay")] = None
    decay_every: Annotated[DecayEvery, Was("mining_falls")] = 0
    q: Annotated[Q, Was("q")] = 0.7

    def inference(self, form: Form) -> Inference:
        own = {k: getattr(self, k) for k in ("optimizer", "lr", "weight_decay", "decay_every")}
        length: dict[str, Any] = {"epochs": self.epochs, "iterations": self.iterations}
        if self.how == "gce":
            return GceErrors(**length, **own, q=self.q, form=form)
        if self.how == "erm":
            return ErmErrors(**length, **own)
        if given := [f"method.mining.{k}" for k, v in own.items() if v not in (None, 0)]:
            raise SettingError(f"{' and '.join(given)}: for gce and erm; {self.how} is trained as the recipe says.")
        if self.iterations is not None:
            raise SettingError(f"method.mining.iterations is for gce and erm; {self.how} takes method.mining.epochs.")
        # A whole number of them: the samples are scored after each.
        epochs = {} if self.epochs is None else {"epochs": max(1, round(self.epochs))}
        return EpochEnsemble(**epochs) if self.how == "ecs" else SimpleEnsemble(**epochs)


@dataclass(frozen=True)
class DebiasedMask(Mask):
    up: Annotated[float, "how often a conflicting sample is drawn for the mask", Range(0), Was("lambda_up")] = 80
    align: Annotated[float, "weight of the alignment loss for the mask", Range(0), Was("lambda_align")] = 0.05


@dataclass(frozen=True)
class Finetune:
    iterations: Annotated[int, "steps of fine-tuning", Range(1), Was("finetune_iterations")] = 1000
    lr: Annotated[
        float,
        "learning rate of fine-tuning; 0: a tenth of the recipe's, or the recipe's after a reset",
        Range(0),
        Was("finetune_lr"),
    ] = 0.0
    up: Annotated[float, "mask.up of fine-tuning; 0: the same", Range(0), Was("finetune_up")] = 0.0
    align: Annotated[float, "mask.align of fine-tuning", Range(0), Was("finetune_align")] = 0.05


@dataclass(frozen=True)
class DCWP(Method):
    """Debiased contrastive weight pruning (Park et al. 2023, algorithm 1).  L = L_WCE + λ_align L_align + λ Σ|Θ|

    Find conflicting samples S_bc; train a network W; learn a logit Θ for each weight while W stands still, on batches
    in which a sample of S_bc is drawn λ_up times as often (equation 14), with same-class pairs pulled together across
    S_bc (equation 16); remove the weights with σ(Θ) ≤ 1/2; fine-tune the others with the same losses.
    """

    mining: Annotated[Mining, "how conflicting samples are found"] = Mining()
    prune: Annotated[bool, "learn a mask; off: only fine-tune"] = True
    reset: Annotated[bool, "retrain the survivors from their start values, instead of fine-tuning them"] = False
    mask: Annotated[DebiasedMask, "how the mask is learnt"] = DebiasedMask()
    finetune: Annotated[Finetune, "how the survivors are fine-tuned"] = Finetune()
    contrast: Annotated[float, "temperature of the alignment loss", Range(1e-3)] = 0.07
    form: Annotated[Form, "as in the paper or as in the released code: gates, penalty, pairs, anchors, GCE"] = "paper"
    pair_form: Annotated[Form | None, "which pairs the alignment loss takes; none: as form"] = None
    anchors: Annotated[
        Literal["sum", "mean"] | None, "alignment over a batch's samples; none: sum in the paper's form, else mean"
    ] = None

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        conflicting = yield from self.find_conflicting(run)
        if not bool(conflicting.any()):
            log.warning("Mining found no conflicting sample: nothing is drawn more often, and nothing is aligned.")
        net = run.net()
        prunable(net, self.mask.layers)  # a wrong name is told now, not after the training
        start = copy.deepcopy(net.state_dict())
        yield Stage("pretrain", lambda b: run.ce(net(b.x), b.y), run.optimizer(net), model=net, shared=PLAIN)
        masks: Masks = {}
        if self.prune:
            gates = run.keep(self.mask.gates(net, self.form))
            yield self.mask_stage(run, net, gates, conflicting)
            masks = gates.masks()
        if self.reset:
            net.load_state_dict(start)
        yield self.finetune_stage(run, net, masks, conflicting)
        return net

    def find_conflicting(self, run: Run) -> Generator[Stage, None, Tensor]:
        """(n,) bool, on the device."""
        groups = yield from self.mining.inference(self.form).infer(run)
        assert groups.conflicting is not None
        return groups.conflicting.to(run.device)

    def mask_stage(self, run: Run, net: Net, gates: Gates, conflicting: Tensor) -> Stage:
        """Stage 2 of the algorithm: only the logits learn."""

        def objective(b: Batch, features: Tensor, logits: Tensor) -> Tensor:
            return run.ce(logits, b.y) + self.aligned(features, b, conflicting, self.mask.align)

        return mask_stage(run, net, gates, objective, self.mask, self.form, oversampling(conflicting, self.mask.up))

    def finetune_stage(self, run: Run, net: Net, masks: Masks, conflicting: Tensor) -> Stage:
        lr = self.finetune.lr or run.recipe.lr * (1.0 if self.reset else 0.1)
        return Stage(
            "finetune",
            self.finetuning_loss(run, net, conflicting),
            hold(run.optimizer(net, lr=lr), net, masks),
            model=net,
            iterations=self.finetune.iterations,
            sample_weights=oversampling(conflicting, self.finetune.up or self.mask.up),
            select=True,
        )

    def finetuning_loss(self, run: Run, net: Net, conflicting: Tensor) -> Loss:
        """Equation 17, on a batch that was drawn as equation 14 says."""

        def loss(b: Batch) -> Tensor:
            features = net.features(b.x)
            return run.ce(net.head(features), b.y) + self.aligned(features, b, conflicting, self.finetune.align)

        return loss

    def aligned(self, features: Tensor, b: Batch, conflicting: Tensor, weight: float) -> Tensor | float:
        """The weighted alignment loss of a batch."""
        if not weight:
            return 0.0
        mean = self.form == "code" if self.anchors is None else self.anchors == "mean"
        form = self.pair_form or self.form
        return weight * alignment(features, b.y, conflicting[b.idx], self.contrast, form, mean)


def oversampling(conflicting: Tensor, times: float) -> Tensor | None:
    """(n,) Odds of each sample: `times` for a conflicting one, 1 for the others. None (shuffle) where all are equal.

    >>> oversampling(torch.tensor([False, True]), 80).tolist()
    [1.0, 80.0]
    """
    if times == 1 or not bool(conflicting.any()):
        return None
    return torch.where(conflicting, float(times), 1.0)


def pair_sets(y: Tensor, conflicting: Tensor, form: Form = "paper") -> tuple[Tensor, Tensor]:
    """(n, n), (n, n) For each anchor i of a batch: its positives j, and the samples a in its denominator.

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
    """Equation 16: supervised contrast between conflicting samples and the others of their class, over a batch.

    Σ over anchors i of −mean over positives j of log( exp(z_i·z_j/τ) / Σ_a exp(z_i·z_a/τ) ),  z = features / norm.
    An anchor without a positive, or with nothing in its denominator, adds nothing; `mean`: over those that add.
    """
    positive, against = pair_sets(y, conflicting, form)
    with torch.autocast(features.device.type, enabled=False):  # bf16 would lose the third digit before the division
        z = normalize(features.float(), dim=1)  # (n, d)
        similar = z @ z.T / temperature  # (n, n)
    some = against.any(1)
    # A sample with an empty denominator takes all entries, so that no gradient is NaN, and is then left out.
    below = similar.masked_fill(~(against | ~some[:, None]), -torch.inf).logsumexp(1)  # (n,)
    pull = (similar * positive).sum(1) / positive.sum(1).clamp_min(1)  # (n,)
    valid = positive.any(1) & some
    total = ((below - pull) * valid).sum()
    return total / valid.sum().clamp_min(1) if mean else total
