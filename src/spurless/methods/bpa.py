"""Weights for clusters."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from spurless.core.data import Batch
from spurless.core.method import Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.group_dro import group_means
from spurless.methods.group_inference import infer
from spurless.methods.group_inference.clusters import Directions
from spurless.methods.parts.losses import Form
from spurless.nets import Net


@dataclass(frozen=True)
class BPA(Directions, Method):
    """Bias pseudo-attributes (Seo et al. 2022).  L = mean w_k(i) · CE_i

    paper:  w_k = h_k / N_k,        h_k ← (1 − m) h_k + m · (mean CE of cluster k in the batch)
    code:   w_k = u_k · exp(η u_k), u_k = N/N_k · l_k / Σ l,   l_k the mean of the last CE of each sample of cluster k

    Features of a plainly trained network are clustered by their direction within each class; clusters do not change.
    Weights, and u, are divided by their mean over the batch.
    """

    form: Annotated[Form, "running means of the clusters' losses, or the released code's exponential weights"] = "paper"
    momentum: Annotated[float, "how much of a running mean is new (m, paper)", Range(0, 1)] = 0.3
    step: Annotated[float, "step of the exponential weights (η, code)", Range(0)] = 0.05

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        groups = yield from infer(run, self)
        net = run.net()
        if self.form == "paper":
            weigher: nn.Module = run.keep(RunningWeights(groups.train, groups.number, self.momentum))
        else:
            weigher = run.keep(ExponentialWeights(groups.train, groups.number, self.step))

        def loss(b: Batch) -> Tensor:
            losses = run.ce_rows(net(b.x), b.y)  # (n,)
            weights: Tensor = weigher(b.idx, losses.detach().float())
            return (weights * losses).mean()

        yield Stage("weighted", loss, run.optimizer(net), model=net, select=True)
        return net


class RunningWeights(nn.Module):
    """The weight of each sample of a batch by its cluster's running loss and size; the batch is folded in before."""

    def __init__(self, cluster: Tensor, number: int, momentum: float):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("cluster", cluster.clone())
        self.register_buffer("size", torch.bincount(cluster, minlength=number).float())
        self.register_buffer("loss", torch.zeros(number))
        self.register_buffer("visited", torch.zeros(number))

    cluster: Tensor  # (n,)
    size: Tensor  # (clusters,)
    loss: Tensor  # (clusters,) running mean
    visited: Tensor  # (clusters,)

    @torch.no_grad()
    def forward(self, idx: Tensor, loss: Tensor) -> Tensor:
        here = self.cluster[idx]
        mean, count = group_means(loss, here, len(self.size))
        kept = (1 - self.momentum) * self.visited  # at the first visit nothing
        new = kept * self.loss + (1 - kept) * mean
        self.loss.copy_(torch.where(count > 0, new, self.loss))
        self.visited.copy_(torch.maximum(self.visited, (count > 0).float()))
        return relative(self.loss[here] / self.size[here])


class ExponentialWeights(nn.Module):
    """The weight u · exp(η u) of each sample of a batch, where u is what its cluster's loss and size ask for.

    Until every sample has been visited, size alone asks. The losses of the batch count from the next batch on. The
    release means to multiply a stored weight by exp(η u), but its parent class stores u there first: nothing adds up.
    """

    def __init__(self, cluster: Tensor, number: int, step: float):
        super().__init__()
        self.step = step
        self.register_buffer("cluster", cluster.clone())
        self.register_buffer("size", torch.bincount(cluster, minlength=number).float())
        self.register_buffer("last", torch.zeros(len(cluster)))
        self.register_buffer("visited", torch.zeros(len(cluster)))
        self.register_buffer("loss", torch.zeros(number, dtype=torch.float64))
        self.register_buffer("left", torch.tensor(float(len(cluster)), dtype=torch.float64))

    cluster: Tensor  # (n,)
    size: Tensor  # (clusters,)
    last: Tensor  # (n,) the loss of each sample when it was last visited, 0 before
    visited: Tensor  # (n,)
    loss: Tensor  # (clusters,) the sum of `last`, kept up by what changes in it, so in double precision
    left: Tensor  # how many samples have not been visited

    @torch.no_grad()
    def forward(self, idx: Tensor, loss: Tensor) -> Tensor:
        here = self.cluster[idx]
        size = self.size[here]
        mean = torch.where(self.left > 0, torch.ones_like(loss), self.loss[here].float() / size)
        u = relative(mean / size)
        self._remember(idx, here, loss)
        return relative(u * (self.step * (u - u.max())).exp())  # exp(η u) of a rare cluster is beyond any float

    def _remember(self, idx: Tensor, here: Tensor, loss: Tensor) -> None:
        self.loss.index_add_(0, here, (loss - self.last[idx]).double())
        self.left -= (1 - self.visited[idx]).sum()
        self.last[idx] = loss
        self.visited.index_fill_(0, idx, 1.0)


def relative(values: Tensor) -> Tensor:
    """(n,) Each value divided by their mean.

    >>> relative(torch.tensor([1.0, 3.0])).tolist()
    [0.5, 1.5]
    """
    return values / values.mean().clamp_min(1e-30)
