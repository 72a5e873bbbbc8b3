"""Training for the worst group."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor, nn

from spurless.core.data import Batch, Labels
from spurless.core.method import Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.group_inference import Groups, GroupsFrom, infer, labels_for
from spurless.nets import Net


@dataclass(frozen=True)
class GroupDRO(Method):
    """Group distributionally robust optimisation (Sagawa et al. 2020, algorithm 1).

    eg:      q_g ← q_g · exp(η (l_g + C/√n_g)), normalised;   L = Σ_g q_g l_g
    greedy:  q maximises Σ_g q_g l̄_g under q_g ≤ p_g / α;     L = mean over samples of q_g/p_g · CE   (Oren et al. 2019)

    l_g is the mean loss of a group in the batch, l̄_g its running mean, p_g the share of the samples drawn.
    """

    bias_labels: ClassVar[Labels] = "training"

    variant: Annotated[Literal["eg", "greedy"], "exponentiated gradient, or all weight on the worst groups (CVaR)"] = (
        "eg"
    )
    eta: Annotated[float, "step size of the weights of the groups (eg)", Range(0)] = 0.01
    adjustment: Annotated[
        float, "C of C/√n_g, which is added to a group's loss when weights are found: small groups overfit", Range(0)
    ] = 0.0
    alpha: Annotated[float, "the share of the samples that the worst groups make up (greedy)", Range(0.001, 1)] = 0.2
    least: Annotated[float, "the least weight of any sample, 1 being the average one (greedy)", Range(0, 1)] = 0.0
    memory: Annotated[float, "how much of a group's running loss is new at each visit (greedy)", Range(0, 1)] = 0.1
    sampling: Annotated[
        Literal["groups", "rows"] | None,
        "draw groups equally often, or shuffle all samples (rows); none: groups for eg, rows for greedy",
    ] = None
    groups: GroupsFrom = "known"

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        groups = yield from infer(run, self.groups)
        return (yield from train_for_worst_group(run, groups, self))

    @property
    def labels(self) -> Labels:
        return labels_for(self.groups)

    @property
    def draws_groups(self) -> bool:
        """Whether groups are drawn equally often.

        >>> GroupDRO().draws_groups, GroupDRO("greedy").draws_groups, GroupDRO("greedy", sampling="groups").draws_groups
        (True, False, True)
        """
        return (self.sampling or ("groups" if self.variant == "eg" else "rows")) == "groups"


def train_for_worst_group(run: Run, groups: Groups, dro: GroupDRO) -> Generator[Stage, None, Net]:
    """Train a fresh network for the worst of these groups, with the settings of `dro`; its own `groups` is not used."""
    net, group = run.net(), groups.train.to(run.device)
    size = torch.bincount(groups.train, minlength=groups.number)  # (groups,)
    worst = run.keep(WorstGroup(size, dro))

    def loss(b: Batch) -> Tensor:
        robust: Tensor = worst(run.ce_rows(net(b.x), b.y), group[b.idx])
        return robust

    odds = group_odds(groups.train) if dro.draws_groups else None
    yield Stage("group_dro", loss, run.optimizer(net), model=net, sample_weights=odds, select=True)
    return net


class WorstGroup(nn.Module):
    """The loss of a batch, with the weights of the groups as state."""

    def __init__(self, size: Tensor, dro: GroupDRO):
        super().__init__()
        self.dro = dro
        has_samples = size > 0  # a group without a sample gets no weight: nothing could ever take it away again
        share = has_samples / has_samples.sum() if dro.draws_groups else size / size.sum()
        self.register_buffer("share", share.float())
        self.register_buffer("bonus", dro.adjustment / size.clamp_min(1).float().sqrt())
        # As logarithms: a weight that once was rounded to zero would stay there, whatever the group's loss.
        self.register_buffer("log_q", torch.where(has_samples, -has_samples.sum().float().log(), -torch.inf))
        self.register_buffer("running", torch.zeros(len(size)))
        self.register_buffer("visited", torch.zeros(len(size)))

    share: Tensor  # (groups,) of the samples that are drawn
    bonus: Tensor  # (groups,)
    log_q: Tensor  # (groups,)
    running: Tensor  # (groups,) the running mean of each group's loss (greedy)
    visited: Tensor  # (groups,)

    @property
    def q(self) -> Tensor:
        """(groups,) The weights of the groups, which sum to 1 (greedy with a least weight: to more)."""
        return self.log_q.exp() if self.dro.variant == "eg" else self.sample_weights * self.share

    @property
    def sample_weights(self) -> Tensor:
        """(groups,) The weight of a sample of each group (greedy)."""
        loss = self.running + self.bonus * self.visited
        return cvar_weights(loss, self.share, self.dro.alpha).clamp_min(self.dro.least)

    def forward(self, loss: Tensor, group: Tensor) -> Tensor:
        """The robust loss of a batch, from its losses (n,) and groups (n,). First the weights are updated."""
        mean, count = group_means(loss, group, len(self.share))
        self._update(mean.detach(), (count > 0).float())
        if self.dro.variant == "eg":
            return (self.log_q.exp() * mean).sum()
        return (self.sample_weights[group] * loss).mean()

    @torch.no_grad()
    def forget(self, when: Tensor) -> None:
        """Where `when` () is true, begin the running losses anew."""
        self.running.mul_(~when)
        self.visited.mul_(~when)

    @torch.no_grad()
    def _update(self, mean: Tensor, present: Tensor) -> None:
        if self.dro.variant == "eg":
            step = self.dro.eta * (mean + self.bonus) * present  # an absent group: 0, so that its factor is 1
            self.log_q.copy_(torch.log_softmax(self.log_q + step, 0))
        else:
            kept = (1 - self.dro.memory) * self.visited  # the first visit keeps nothing
            new = kept * self.running + (1 - kept) * mean
            self.running.copy_(torch.where(present > 0, new, self.running))
            self.visited.copy_(torch.maximum(self.visited, present))


def group_means(values: Tensor, group: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """(groups,), (groups,) The mean of the values (n,) in each group, 0 where there are none, and how many there are.

    >>> mean, count = group_means(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([2, 2, 0]), 3)
    >>> mean.tolist(), count.tolist()
    ([5.0, 0.0, 2.0], [1.0, 0.0, 2.0])
    """
    # Not a product with a one-hot matrix, which autocast would do in half precision.
    total = values.new_zeros(number).index_add(0, group, values)
    count = values.new_zeros(number).index_add(0, group, torch.ones_like(values))
    return total / count.clamp_min(1), count


@torch.no_grad()
def cvar_weights(loss: Tensor, share: Tensor, alpha: float) -> Tensor:
    """(groups,) The weight of a sample of each group; only the worst groups, of a share α of the samples, count.

    From the group with the highest loss on, each weighs 1/α, until a share α is used up; the last of them weighs less.
    Weights times shares sum to 1.

    >>> cvar_weights(torch.tensor([1.0, 3.0, 2.0]), torch.tensor([0.5, 0.25, 0.25]), alpha=0.5).tolist()
    [0.0, 2.0, 2.0]
    >>> cvar_weights(torch.tensor([1.0, 3.0, 2.0]), torch.tensor([0.25, 0.25, 0.5]), alpha=0.5).tolist()
    [0.0, 2.0, 1.0]
    """
    # By pairs of groups, not by sorting and adding up: on a GPU a running sum of floats is not deterministic.
    here, there = loss[:, None], loss[None, :]
    number = torch.arange(len(loss), device=loss.device)
    ahead = (there > here) | ((there == here) & (number[None, :] < number[:, None]))  # (groups, groups)
    used = (alpha - (ahead * share).sum(1)).clamp_min(0).minimum(share)  # (groups,) of each group's share
    return used / (alpha * share.clamp_min(1e-12))


def group_odds(group: Tensor) -> Tensor:
    """(n,) Odds by which every group that has a sample is drawn equally often.

    >>> group_odds(torch.tensor([4, 4, 0])).tolist()
    [0.5, 0.5, 1.0]
    """
    return 1 / torch.bincount(group)[group].double()
