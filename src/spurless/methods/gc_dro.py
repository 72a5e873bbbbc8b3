"""Training for the worst samples of the worst groups."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn

from spurless.core.data import Batch, Labels
from spurless.core.method import Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.group_dro import GroupDRO, WorstGroup
from spurless.methods.group_inference import GroupsFrom, infer, labels_for
from spurless.nets import Net
from spurless.train.schedule import batch_sizes


@dataclass(frozen=True)
class GCDRO(Method):
    """Group-conditional DRO (Zhou et al. 2021, the released code for images).  L = mean h_g · w_i · CE_i

    h: 1/α for the groups of the highest loss that make up a share α of the samples (GroupDRO's greedy variant).
    w: 1/β for the samples of the highest loss of each group, the least weight for its others, so that their mean is 1.

    Each epoch takes w from the losses that the samples had in the epochs before it, and finds h anew.
    """

    bias_labels: ClassVar[Labels] = "training"

    alpha: Annotated[float, "the share of the samples that the worst groups make up", Range(0.001, 1)] = 0.2
    beta: Annotated[float, "the share of a group that its worst samples make up", Range(0.001, 1)] = 0.1
    least: Annotated[float, "the least weight of a sample in its group", Range(0, 1)] = 0.1
    least_group: Annotated[float, "the least weight of a group", Range(0, 1)] = 0.1
    memory: Annotated[
        float, "how much of a remembered loss, of a sample or a group, is new at each visit", Range(0, 1)
    ] = 0.1
    groups: GroupsFrom = "known"

    @property
    def labels(self) -> Labels:
        return labels_for(self.groups)

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        groups = yield from infer(run, self.groups)
        net, size = run.net(), torch.bincount(groups.train, minlength=groups.number)
        outer = GroupDRO("greedy", alpha=self.alpha, least=self.least_group, memory=self.memory)
        worst = run.keep(WorstGroup(size, outer))
        in_group = run.keep(WorstSamples(groups.train, size, sum(batch_sizes(len(groups.train), run.recipe)), self))

        def loss(b: Batch) -> Tensor:
            worst.forget(in_group.epoch_begins())
            plain = run.ce_rows(net(b.x), b.y)  # (n,)
            robust: Tensor = worst(in_group(b.idx, plain.detach()) * plain, in_group.group[b.idx])
            return robust

        yield Stage("gc_dro", loss, run.optimizer(net), model=net, select=True)
        return net


class WorstSamples(nn.Module):
    """The weight of each training sample in its group. It changes when an epoch begins, and is 1 in the first."""

    def __init__(self, group: Tensor, size: Tensor, epoch: int, settings: GCDRO):
        super().__init__()
        self.epoch, self.settings = epoch, settings
        self.register_buffer("group", group.clone())
        self.register_buffer("size", size.clone())
        self.register_buffer("weight", torch.ones(len(group)))
        self.register_buffer("value", torch.zeros(len(group)))
        self.register_buffer("visited", torch.zeros(len(group)))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    group: Tensor  # (n,)
    size: Tensor  # (groups,)
    weight: Tensor  # (n,)
    value: Tensor  # (n,) the remembered loss of each sample
    visited: Tensor  # (n,)
    seen: Tensor  # () samples so far: inside a CUDA graph only the device knows where an epoch begins

    def epoch_begins(self) -> Tensor:
        """() Whether the next batch is the first of an epoch."""
        return self.seen % self.epoch == 0

    @torch.no_grad()
    def forward(self, idx: Tensor, loss: Tensor) -> Tensor:
        """(len(idx),) The weights of these samples; their losses are kept for the epochs to come."""
        begins = self.epoch_begins() & (self.seen > 0)
        if begins.is_cuda or begins:  # a graph cannot branch; elsewhere the sorting is done only when it counts
            new = sample_weights(self.value, self.group, self.size, self.settings.beta, self.settings.least)
            self.weight.copy_(torch.where(begins, new, self.weight))
        kept = (1 - self.settings.memory) * self.visited[idx]  # the first visit keeps nothing
        self.value.index_copy_(0, idx, kept * self.value[idx] + (1 - kept) * loss.float())
        self.visited.index_fill_(0, idx, 1.0)
        self.seen.add_(len(idx))
        return self.weight[idx]


@torch.no_grad()
def sample_weights(loss: Tensor, group: Tensor, size: Tensor, beta: float, least: float) -> Tensor:
    """(n,) 1/β for the samples of the highest loss in each group and `least` for its others, with mean 1 in each.

    The sample in between gets what is left over. The released code drops that: there, all samples of a group of fewer
    than 11 have the least weight.

    >>> loss, group = torch.tensor([1.0, 4.0, 2.0, 3.0, 7.0]), torch.tensor([0, 0, 0, 0, 1])
    >>> sample_weights(loss, group, torch.tensor([4, 1]), beta=0.5, least=0.5).tolist()  # 2 + 1 + 1/2 + 1/2 = 4
    [0.5, 2.0, 0.5, 1.0, 1.0]
    """
    order = loss.argsort(descending=True, stable=True)
    order = order[group[order].argsort(stable=True)]  # group by group, in each from the highest loss on
    of = group[order]
    rank = torch.arange(len(loss), device=loss.device) - (size.cumsum(0) - size)[of]
    full = 1 / beta - least  # what a worst sample has above the least weight
    extra = (size[of].double() * (1 - least) - rank * full).clamp(0, full)
    return torch.empty_like(loss).index_copy(0, order, (least + extra).to(loss.dtype))
