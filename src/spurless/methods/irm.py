"""One classifier that is best in every environment at once."""

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from spurless.core.data import Batch, Labels
from spurless.core.messages import log
from spurless.core.method import Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.group_dro import group_means, group_odds
from spurless.methods.group_inference import Groups, GroupsFrom, are_known, groups_of, infer, labels_for, within_classes
from spurless.methods.parts.losses import RowLoss, ce_rows
from spurless.nets import Net


@dataclass(frozen=True)
class IRM(Method):
    """Invariant risk minimisation, IRMv1 (Arjovsky et al. 2019).  L = mean_e R_e + λ·mean_e (d/ds R_e(s·logits) at 1)²

    R_e is the mean cross entropy of environment e. Environments are drawn equally often. Until a share `anneal_at` of
    the training λ is 1; after it, the whole loss is divided by λ where that is above 1.
    """

    bias_labels: ClassVar[Labels] = "training"

    penalty_weight: Annotated[float, "weight of the penalty after annealing (λ)", Range(0)] = 91257.0
    anneal_at: Annotated[float, "share of the training after which the penalty has its weight", Range(0, 1)] = 0.38
    groups: GroupsFrom = "known"
    environments: Annotated[
        Literal["alignment", "value"], "of known groups: aligned and conflicting samples, or one for each bias value"
    ] = "alignment"

    @property
    def labels(self) -> Labels:
        return labels_for(self.groups)

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        if are_known(self.groups):
            groups = groups_by_alignment(run) if self.environments == "alignment" else groups_by_value(run)
        else:
            groups = yield from infer(run, self.groups)
        _warn_if_one(*environments(groups, run.data.train.y, len(run.data.classes)))
        return (yield from train_invariantly(run, groups, self))


def train_invariantly(run: Run, groups: Groups, irm: IRM) -> Generator[Stage, None, Net]:
    """Train a fresh network for these environments, with the settings of `irm`, but for where groups are from."""
    net = run.net()
    environment, number = environments(groups, run.data.train.y, len(run.data.classes))
    on_device = environment.to(run.device)

    def loss(b: Batch) -> Tensor:
        risk, penalty = invariance(net(b.x), b.y, on_device[b.idx], number, run.ce_rows)
        weight = 1 + (b.t >= irm.anneal_at) * (irm.penalty_weight - 1)
        return (risk + weight * penalty) / weight.clamp_min(1)

    # Equally often: the released code takes the mean of the risks of whole environments, of which batches hold a part.
    yield Stage("irm", loss, run.optimizer(net), model=net, sample_weights=group_odds(environment), select=True)
    return net


def environments(groups: Groups, y: Tensor, classes: int) -> tuple[Tensor, int]:
    """(n,) The environment of each sample, and their number: groups of the same place in their classes are one.

    >>> y = torch.tensor([0, 0, 0, 1, 1])
    >>> environments(Groups(torch.tensor([0, 1, 2, 3, 5]), None, 6), y, classes=2)
    (tensor([0, 1, 2, 0, 2]), 3)
    >>> environments(Groups(torch.tensor([0, 1, 2, 3, 4]), None, 5), y, classes=2)  # three groups and two
    (tensor([0, 1, 2, 0, 1]), 3)
    """
    number, group = groups.number // classes, groups.train
    if number * classes == groups.number and torch.equal(group // number, y.cpu()):
        return group % number, number  # as many in each class, of which the first may hold no sample
    first = torch.full((classes,), groups.number).scatter_reduce(0, y.cpu(), group, "amin")  # (classes,)
    place_in_class = group - first[y.cpu()]
    return place_in_class, int(place_in_class.max()) + 1


def groups_by_alignment(run: Run) -> Groups:
    """Of each class the samples that are aligned in every attribute, and those that conflict in at least one."""
    train, aligned = run.data.train, run.data.is_aligned(run.data.train)
    assert aligned is not None
    conflicting = (~aligned.all(1)).long()  # (n,)
    return Groups(within_classes(train.y, conflicting, 2), None, 2 * len(run.data.classes))


def groups_by_value(run: Run) -> Groups:
    """Of each class the samples of each bias value (of several attributes: of each combination).

    Also where the data's groups ignore the class: an environment is a value in all classes in any case.
    """
    values = tuple(len(names) for names in run.data.values)
    return Groups(groups_of(run.data.train, values), None, math.prod(values) * len(run.data.classes))


def invariance(
    logits: Tensor, y: Tensor, environment: Tensor, number: int, loss: RowLoss = ce_rows
) -> tuple[Tensor, Tensor]:
    """The mean over environments of their risk, and of their squared slope; those without a sample are left out.

    >>> import torch
    >>> logits, y = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1])
    >>> [round(float(v), 4) for v in invariance(logits, y, torch.tensor([0, 2]), 3)]  # slopes −0.2689 and 0.7311
    [0.8133, 0.3034]
    """
    logits = logits.float()
    risk, count = group_means(loss(logits, y), environment, number)  # (number,), (number,)
    slope, _ = group_means(slopes(logits, y), environment, number)  # (number,)
    present = (count > 0).sum()
    return risk.sum() / present, slope.square().sum() / present


def slopes(logits: Tensor, y: Tensor) -> Tensor:
    """(n,) How a sample's cross entropy grows with the scale of its logits.  d/ds CE(s·z, y) at 1 = Σ_k p_k (z_k − z_y)

    With two classes it is negative where the sample is classified right, and positive where wrong.

    >>> import torch
    >>> slopes(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))
    tensor([-0.2689,  0.7311])
    """
    return (logits.softmax(1) * (logits - logits.gather(1, y[:, None]))).sum(1)


def _warn_if_one(environment: Tensor, number: int) -> None:
    if len(environment.unique()) < 2:
        log.warning(
            f"All training samples are in one of {number} environments, so IRM has nothing to compare and is plain "
            "training with a penalty; set method.environments or method.groups to something that divides them."
        )
