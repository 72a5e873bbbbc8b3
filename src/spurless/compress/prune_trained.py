"""Pruning as a method of training: a trained network loses weights or channels, and trains on if asked."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, get_args

import torch
from torch import Tensor

from spurless.compress.channels import Channels, columns_of
from spurless.core.data import Labels
from spurless.core.errors import UserError, one_of, unknown
from spurless.core.method import Loss, Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.dcwp import DCWP, oversampling
from spurless.methods.parts.pruning import (
    Masks,
    Scores,
    chances,
    hold,
    keep_highest,
    prunable,
    squares,
    variability,
    watching,
    weight_of,
    zero,
)
from spurless.methods.pgd import length
from spurless.metrics.batchnorm import ROWS, BatchNorm, refresher
from spurless.nets import Net
from spurless.nets.outputs import Inputs

How = Literal["magnitude", "avp", "random", "dcwp"]
Objective = Literal["own", "plain"]
END = 1 - 1e-6  # how far a training is at its last step; not 1, at which what is never to be switched on would be


@dataclass(frozen=True)
class Pruning:
    """How a network is pruned and trained on."""

    how: Annotated[How, "what decides: size, activation variability, chance, or DCWP's learnt mask"] = "magnitude"
    structured: Annotated[bool, "remove whole channels, through all layers that share them"] = False
    finetune: Annotated[float, "training afterwards, as a share of the recipe's length; 0: none", Range(0)] = 0.0
    objective: Annotated[
        Objective, "fine-tune as the run was trained, or by plain cross entropy; with dcwp, always DCWP's loss"
    ] = "own"
    batchnorm: Annotated[
        BatchNorm, "its statistics after pruning: those of training, or anew from 1000 training samples"
    ] = "kept"
    # {"recipe": ...} changes the run's recipe for fine-tuning, {"method": ...} is DCWP's.
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for kind, given, allowed in (("pruning rule", self.how, How), ("objective", self.objective, Objective)):
            if given not in get_args(allowed):
                raise unknown(kind, given, get_args(allowed))
        one_of("way to treat BatchNorm", self.batchnorm, get_args(BatchNorm))

    @property
    def repeats(self) -> bool:
        """Whether fine-tuning is the run's own training again."""
        return self.finetune > 0 and self.objective == "own" and self.how != "dcwp"


@dataclass(frozen=True)
class PruneTrained(Method):
    """Remove weights or channels of a trained network, and train the others on if asked.

    The scores are found once, for every share that is asked for: they are in `evidence`, as is which samples conflict.
    """

    bias_labels = "selection"

    pruning: Pruning = Pruning()
    keep: Annotated[
        float, "share of the weights that stays; structured: of the channels of each layer", Range(0, 1)
    ] = 0.3
    dcwp: DCWP = DCWP()
    trained: Mapping[str, Tensor] = field(default_factory=dict, repr=False)
    by: Method | None = None  # that trained it
    groups: Sequence[Channels] = ()
    evidence: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def labels(self) -> Labels:
        return self.by.labels if self.by and self.pruning.repeats else self.bias_labels

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        if self.pruning.repeats:
            return (yield from self._as_trained(run))
        net = self.classifier(run.net)
        masks = yield from self._prune(run, net)
        if self.pruning.finetune:
            changes = {"lr": self.dcwp.finetune.lr} if self.dcwp.finetune.lr else {}
            optimizer = hold(run.optimizer(net, **changes), net, masks)
            conflicting, up = self.evidence.get("conflicting"), self.dcwp.finetune.up or self.dcwp.mask.up
            yield Stage(
                "finetune",
                self._loss(run, net, conflicting),
                optimizer,
                model=net,
                epochs=self.pruning.finetune * length(run),
                sample_weights=None if conflicting is None else oversampling(conflicting, up),
                select=True,
            )
        return net

    def _as_trained(self, run: Run) -> Generator[Stage, None, Net]:
        """The run's method once more; but its last stage continues from the pruned weights, and is shorter.

        What comes before that stage is trained again, because its outcome (which rows are drawn how often, a second
        network) is not kept with a run. With the run's seed it is the same as then.
        """
        assert self.by is not None
        training = self.by.stages(run)
        stage = next(training)
        while not stage.select:
            yield stage
            stage = next(training)
        net = stage.model
        if not isinstance(net, Net) or net.state_dict().keys() != self.trained.keys():
            raise UserError(
                f"{type(self.by).__name__} trains something else than its classifier, so that its training cannot go "
                "on from the classifier alone: use --objective plain."
            )
        masks = yield from self._prune(run, net)
        optimizers = [optimizer for _, optimizer in stage.updates]
        for optimizer in optimizers:
            # The mask that the method has found this time need not be the run's, whose zeros are in the weights.
            optimizer._optimizer_step_post_hooks.clear()
            hold(optimizer, net, masks)
        yield replace(
            stage,
            loss=[at_the_end(loss) for loss, _ in stage.updates],
            optimizer=optimizers,
            epochs=self.pruning.finetune * length(run),
            iterations=None,
            until=False,
            span=(0.0, 1.0),
            shared=None,
        )
        before = {name: net.get_parameter(name).detach().clone() for name in masks}
        net = yield from training  # what is left to do: DFR fits the head anew
        bring_back(net, before)
        zero(net, masks)
        return net

    def _prune(self, run: Run, net: Net) -> Generator[Stage, None, Masks]:
        """Give a network the trained weights, without those that are to go."""
        net.load_state_dict(self.trained)
        if "scores" not in self.evidence:
            self.evidence["scores"] = yield from self._scores(run, net)
            net.load_state_dict(self.trained)  # learning a mask moves BatchNorm's statistics
        masks = self.masks(net, self.evidence["scores"])
        zero(net, masks)
        refresh = refresher(self.pruning.batchnorm, lambda: self._rows(run), run.recipe.eval_batch_size)
        if refresh is not None:
            refresh(net)
        return masks

    def _rows(self, run: Run) -> Tensor:
        """Some of the training samples, as a network sees them."""
        train = run.data.train
        idx = torch.randperm(len(train), generator=run.generator("batchnorm"))[:ROWS]
        return Inputs(run.data, run.recipe, run.device)(train[idx].to(run.device))

    def classifier(self, make: Any) -> Net:
        return self.by.classifier(make) if self.by else make()

    def masks(self, net: Net, scores: Scores) -> Masks:
        """What stays. What was zero before stays zero, and is the first to be counted as removed."""
        there = not_zero(net)
        if self.pruning.structured:
            masks = channel_masks(net, self.groups, scores, self.keep, by_reader=self.pruning.how == "avp")
        else:
            masks = keep_highest({k: s.masked_fill(~there[k], -math.inf) for k, s in scores.items()}, self.keep)
        return there | {name: mask & there[name] if name in there else mask for name, mask in masks.items()}

    def _scores(self, run: Run, net: Net) -> Generator[Stage, None, Scores]:
        if self.pruning.how == "magnitude":
            return squares(net)
        if self.pruning.how == "random":
            return chances(net, run.generator("prune"), structure="row" if self.pruning.structured else "weight")
        if self.pruning.how == "avp":
            with watching(net) as moments:
                run.outputs(net)
            return variability(net, moments, units=self.pruning.structured)
        return (yield from self._learnt(run, net))

    def _learnt(self, run: Run, net: Net) -> Generator[Stage, None, Scores]:
        """DCWP's logits over the trained weights: the longer a weight stays, the higher."""
        d = self.dcwp
        conflicting = self.evidence["conflicting"] = yield from d.find_conflicting(run)
        mask = replace(d.mask, over="channel" if self.pruning.structured else "weight")
        gates = run.keep(mask.gates(net, d.form))
        yield d.mask_stage(run, net, gates, conflicting)
        logits = zip(gates.names, gates.logits, strict=True)
        return {name: values.detach().expand(net.get_parameter(name).shape) for name, values in logits}

    def _loss(self, run: Run, net: Net, conflicting: Tensor | None) -> Loss:
        if conflicting is None:
            return lambda b: run.ce(net(b.x), b.y)
        return self.dcwp.finetuning_loss(run, net, conflicting)


def at_the_end(loss: Loss) -> Loss:
    """The loss as it is at the end of a training: what is annealed has long been so when pruned weights train on."""
    return lambda b: loss(b._replace(t=torch.full_like(b.t, END)))


@torch.no_grad()
def bring_back(net: Net, before: Mapping[str, Tensor]) -> None:
    """Undo the changes of parameters that only became zero: a method that prunes after its last stage did it again."""
    for name, was in before.items():
        now = net.get_parameter(name)
        if not bool(now[now != was].any()):
            now.copy_(was)


def not_zero(net: Net) -> Masks:
    """Which weights there are in all layers that could be pruned, and which biases: a mask over channels has both."""
    names = [name for weight in prunable(net) for name in (weight, f"{weight.removesuffix('weight')}bias")]
    return {name: p.detach() != 0 for name, p in net.named_parameters() if name in names}


def channel_masks(net: Net, groups: Sequence[Channels], scores: Scores, keep: float, by_reader: bool = False) -> Masks:
    """Masks that keep this share of the channels of each group, at least one: those of the highest mean score.

    A removed channel loses the weights into it, its biases, and the weights that read it: BatchNorm cannot bring it
    back. `by_reader`: its score is that of the weights that read it, not of those into it.
    """
    masks: Masks = {}

    def mask(name: str) -> Tensor:
        return masks.setdefault(name, torch.ones_like(net.get_parameter(name), dtype=torch.bool))

    for group in groups:
        scored = [f"{name}.weight" for name in (group.takers if by_reader else group.makers)]
        scored = [name for name in scored if name in scores]
        if not scored:
            continue
        sides = [scores[name].transpose(0, 1) if by_reader else scores[name] for name in scored]
        each = torch.stack([side.reshape(group.size, -1).float().mean(1) for side in sides]).mean(0)  # (size,)
        rows = [weight_of(net.get_submodule(name)).reshape(group.size, -1) for name in group.makers]
        dead = torch.stack([(row == 0).all(1) for row in rows]).all(0)
        each = each.masked_fill(dead, -math.inf)  # or one that is gone already would stay instead of another
        count = max(1, round(keep * group.size))
        gone = each.argsort(stable=True)[: group.size - count].cpu()
        for name in group.makers:
            mask(f"{name}.weight")[gone] = False
            if getattr(net.get_submodule(name), "bias", None) is not None:
                mask(f"{name}.bias")[gone] = False
        for name in group.takers:
            mask(f"{name}.weight")[:, columns_of(net.get_submodule(name), gone, group.size)] = False
    return masks
