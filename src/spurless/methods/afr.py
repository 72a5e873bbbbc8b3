"""Retraining the last layer on weighted held-out samples."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from spurless.core.data import Labels
from spurless.core.method import Method, Run, Stage
from spurless.core.settings import Range
from spurless.nets import Net


@dataclass(frozen=True)
class AFR(Method):
    """Automatic feature reweighting (Qiu et al. 2023).  min Σ μ_i CE_i + λ ‖w − w₀‖²,  μ_i ∝ exp(−γ p_y) / n_y

    A network is trained plainly on most samples; on the others its head alone is trained further, each sample weighted
    by how little the network believes its label, every class counting alike.
    """

    bias_labels: ClassVar[Labels] = "selection"

    held_out: Annotated[float, "share of the training samples that only the head is trained on", Range(0.01, 0.9)] = 0.2
    gamma: Annotated[float, "γ, how much more a sample counts that the network does not believe", Range(0)] = 4.0
    penalty: Annotated[float, "λ, how strongly the head is kept near the old one", Range(0)] = 0.0
    steps: Annotated[int, "steps of gradient descent on all held-out samples", Range(1)] = 500
    lr: Annotated[float, "learning rate of these steps", Range(0)] = 0.01

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        order = torch.randperm(len(run.data.train), generator=run.generator("afr"))
        cut = max(1, round(self.held_out * len(order)))
        rest, rows = order[:cut].sort().values, order[cut:].sort().values
        net = run.net()
        yield Stage("erm", lambda b: run.ce(net(b.x), b.y), run.optimizer(net), model=net, rows=rows, select=True)
        features = run.outputs(net, features=True)[rest.to(run.device)].double()
        y = run.data.train.y[rest].to(run.device)
        weights = sample_weights(net.head(features.float()), y, net.classes, self.gamma)
        self.retrain(net, features, y, weights)
        return net

    def retrain(self, net: Net, features: Tensor, y: Tensor, weights: Tensor) -> None:
        """Gradient descent on the head, in double precision, with all samples in every step."""
        start = [p.detach().double() for p in net.head.parameters()]
        now = [p.clone().requires_grad_() for p in start]
        for _ in range(self.steps):
            loss = (weights * cross_entropy(features @ now[0].T + sum(now[1:]), y, reduction="none")).sum()
            loss = loss + self.penalty * sum((p - q).square().sum() for p, q in zip(now, start, strict=True))
            with torch.no_grad():
                for p, slope in zip(now, torch.autograd.grad(loss, now), strict=True):
                    p -= self.lr * slope
        with torch.no_grad():
            for p, q in zip(net.head.parameters(), now, strict=True):
                p.copy_(q)


@torch.no_grad()
def sample_weights(logits: Tensor, y: Tensor, classes: int, gamma: float) -> Tensor:
    """(n,) exp(−γ p_y) divided by the size of the class, summing to 1.

    >>> w = sample_weights(torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]), torch.tensor([0, 0, 1]), 2, 10.0)
    >>> [round(v, 2) for v in w.tolist()]
    [0.25, 0.25, 0.5]
    """
    p = logits.double().softmax(1)[torch.arange(len(y), device=y.device), y]
    weight = (-gamma * p).exp() / torch.bincount(y, minlength=classes).double()[y]
    return weight / weight.sum()
