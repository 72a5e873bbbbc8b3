"""Groups, or classes, equally often."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from spurless.core.data import Labels
from spurless.core.method import Method, Run, Stage
from spurless.methods.group_dro import group_odds
from spurless.methods.group_inference import GroupsFrom, infer, labels_for
from spurless.nets import Net


@dataclass(frozen=True)
class RS(Method):
    """Resampling (Zhou et al. 2021; Idrissi et al. 2022: RWG, RWY, SUBG, SUBY).  P(i) ∝ 1 / n_g(i),  L = mean CE"""

    bias_labels: ClassVar[Labels] = "training"

    by: Annotated[Literal["group", "class"], "what occurs equally often: groups, or classes, which needs no labels"] = (
        "group"
    )
    how: Annotated[
        Literal["resample", "subsample"], "draw samples with replacement, or cut every group down to the smallest one"
    ] = "resample"
    groups: GroupsFrom = "known"

    @property
    def labels(self) -> Labels:
        return "none" if self.by == "class" else labels_for(self.groups)

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        group = run.data.train.y if self.by == "class" else (yield from infer(run, self.groups)).train
        net = run.net()
        odds = rows = None
        if self.how == "resample":
            odds = group_odds(group)
        else:
            rows = subsample(group, run.generator("subsample"))
        loss, optimizer = lambda b: run.ce(net(b.x), b.y), run.optimizer(net)
        yield Stage("balanced", loss, optimizer, model=net, sample_weights=odds, rows=rows, select=True)
        return net


def subsample(group: Tensor, generator: torch.Generator) -> Tensor:
    """(m,) Numbers of samples, in order, so that every group that has a sample has as many as the smallest of them.

    >>> rows = subsample(torch.tensor([3, 3, 0, 0, 0]), torch.Generator())
    >>> len(rows), rows[:2].tolist()
    (4, [0, 1])
    """
    size = torch.bincount(group)
    least = int(size[size > 0].min())
    shuffled = torch.randperm(len(group), generator=generator)
    kept = [shuffled[group[shuffled] == g][:least] for g in range(len(size))]
    return torch.cat(kept).sort().values
