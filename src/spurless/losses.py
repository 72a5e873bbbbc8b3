"""Losses that methods share: pure functions of logits and labels, one value for each row unless they say otherwise."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

Form = Literal["paper", "code"]


def ce(logits: Tensor, y: Tensor) -> Tensor:
    """Mean cross entropy.

    >>> round(float(ce(torch.zeros(1, 4), torch.tensor([2]))), 4)  # log 4
    1.3863
    """
    return cross_entropy(logits, y)


def ce_rows(logits: Tensor, y: Tensor) -> Tensor:
    """Cross entropy of each row.

    >>> ce_rows(torch.zeros(2, 4), torch.tensor([2, 0])).shape
    torch.Size([2])
    """
    return cross_entropy(logits, y, reduction="none")


def gce(logits: Tensor, y: Tensor, q: float = 0.7, form: Form = "paper") -> Tensor:
    """Mean generalised cross entropy (Zhang and Sabuncu 2018), which prefers what is easy.

    paper:  (1 − p_y^q) / q,       gradient  p_y^q · ∇CE
    code:   q · sg(p_y)^q · CE,    gradient  q · p_y^q · ∇CE   (LfF, DisEnt, DCWP and PGD as released)

    The code's form has q times the paper's gradient: with SGD, a smaller learning rate; with Adam, nearly the same.

    >>> logits = torch.zeros(1, 2)  # p_y = 1/2
    >>> round(float(gce(logits, torch.tensor([0]), q=1.0)), 4), round(float(gce(logits, torch.tensor([0]), q=0.5)), 4)
    (0.5, 0.5858)
    """
    log_p = -ce_rows(logits, y)  # (n,) through the logarithm: p^q from p would give NaN gradients where p underflows
    if q == 0:  # the limit of the paper's form is cross entropy
        return -log_p.mean()
    if form == "code":
        return (q * (q * log_p.detach()).exp() * -log_p).mean()
    return -(torch.expm1(q * log_p) / q).mean()


class LossMemory(nn.Module):
    """A running mean of each training row's loss (LfF), as tensors on the device.

    First visit: e_i ← l_i; later: e_i ← α e_i + (1 − α) l_i. It is updated before it is read, and read as a share of
    the largest value that its class has anywhere in the training set.
    """

    def __init__(self, y: Tensor, classes: int, alpha: float = 0.7):
        super().__init__()
        self.alpha = alpha
        self.register_buffer("y", y.clone())
        self.register_buffer("value", torch.zeros(len(y)))
        self.register_buffer("visited", torch.zeros(len(y)))
        self.register_buffer("class_max", torch.zeros(classes))

    value: Tensor
    visited: Tensor
    y: Tensor
    class_max: Tensor

    @torch.no_grad()
    def update(self, idx: Tensor, loss: Tensor) -> None:
        """Fold the current losses of these rows in."""
        old = self.alpha * self.visited[idx]
        self.value[idx] = old * self.value[idx] + (1 - old) * loss.detach().float()
        self.visited.index_fill_(0, idx, 1.0)  # an assignment would copy the 1 from the host: not in a CUDA graph

    @torch.no_grad()
    def relative(self, idx: Tensor) -> Tensor:
        """The remembered losses of these rows, each divided by the maximum over its class."""
        self.class_max.zero_().scatter_reduce_(0, self.y, self.value, "amax")
        return self.value[idx] / self.class_max[self.y[idx]].clamp_min(1e-12)
