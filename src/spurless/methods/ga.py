"""Gradient alignment of easy and hard samples."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from spurless.core.data import Batch
from spurless.core.method import Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.group_inference.scores import EnsembleEpochs, EpochEnsemble, Eta, Tau, Unlearn
from spurless.nets import Net


@dataclass(frozen=True)
class GA(Method):
    """Gradient alignment (Zhao et al. 2021).  w_easy = Σ_hard (1 − p) / (γ Σ_easy (1 − p)),  w_hard = 1

    The group inference `ecs` says which samples are hard. Then a fresh network is trained, and in each batch the
    hard samples together pull γ times as strongly as the easy ones: 1 − p_y is how a sample's loss pulls at its logit.
    """

    gamma: Annotated[float, "how much more strongly the hard samples pull than the easy ones", Range(0.01)] = 1.6
    eta: Eta = 0.5
    tau: Tau = 0.8
    mining_epochs: EnsembleEpochs = 50
    unlearn: Unlearn = 1e-4

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        ecs = EpochEnsemble(self.eta, self.tau, self.mining_epochs, self.unlearn)
        hard = (yield from ecs.infer(run)).conflicting
        assert hard is not None
        hard = hard if hard.any() else ~hard  # nothing found: all samples alike, which is plain training
        net = run.net()

        def loss(b: Batch) -> Tensor:
            losses = run.ce_rows(net(b.x), b.y)  # (n,)
            return (aligned_weights(losses, hard[b.idx], self.gamma) * losses).mean()

        odds = sampling_odds(hard, min(run.recipe.batch_size, len(hard)))  # a batch has no more samples than there are
        yield Stage("ga", loss, run.optimizer(net), model=net, sample_weights=odds, select=True)
        return net


@torch.no_grad()
def aligned_weights(loss: Tensor, hard: Tensor, gamma: float) -> Tensor:
    """(n,) The weight of each sample of a batch from its cross entropy (n,), with mean 1.

    Without an easy sample all weights are 1; without a hard one there is nothing to align with, and all are 0.

    >>> loss, hard = -torch.tensor([0.1, 0.9, 0.9, 0.9]).log(), torch.tensor([True, False, False, False])
    >>> w = aligned_weights(loss, hard, gamma=1.0)  # easy 0.9 / 0.3 = 3 and hard 1, divided by their mean 2.5
    >>> [round(v, 4) for v in w.tolist()]
    [0.4, 1.2, 1.2, 1.2]
    """
    pull = 1 - (-loss).exp()
    easy = (pull * hard).sum() / (gamma * (pull * ~hard).sum() + 1e-10)
    w = hard + ~hard * easy
    return w * len(w) / (w.sum() + 1e-10)


def sampling_odds(hard: Tensor, batch_size: int) -> Tensor | None:
    """(n,) Odds by which a batch holds ⌊share of hard samples · size⌋ + 1 hard ones on average; None: of one kind.

    The released code puts exactly as many into each batch, every sample of a kind in turn.

    >>> sampling_odds(torch.tensor([True, False, False]), 4).tolist()  # 2 of 4
    [0.5, 0.25, 0.25]
    """
    n, n_hard = len(hard), int(hard.sum())
    if n_hard in (0, n):
        return None
    share = min((n_hard * batch_size // n + 1) / batch_size, 1.0)
    return torch.where(hard, share / n_hard, (1 - share) / (n - n_hard))
