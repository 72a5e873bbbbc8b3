"""Losses that methods share: functions of logits and labels, one value for each sample unless they say otherwise.

A method trains with `run.ce` and `run.ce_rows`: cross entropy, or, where the recipe asks for it (recipe.loss), with the
gradient of focal loss. Their values stay cross entropy: what a method makes of them (the weights of LfF and GA, the
group losses of GroupDRO, the confidences of a miner) is what its paper defines.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from spurless.core.method import Run

Form = Literal["paper", "code"]
RowLoss = Callable[[Tensor, Tensor], Tensor]  # of logits (n, classes) and labels (n,), a loss of each sample (n,)


class _Second(threading.local):
    """The labels of a mixed batch, the second ones, the shares of the first ones, and the second samples' numbers."""

    labels: tuple[Tensor, Tensor, Tensor, Tensor] | None = None


_second = _Second()


@contextmanager
def two_labels(y: Tensor, second: tuple[Tensor, Tensor, Tensor] | None) -> Iterator[None]:
    """Inside, losses of these very labels `y` are s · loss(y) + (1 − s) · loss(z), where (z, s, numbers of the samples
    that have the labels z) are given.

    >>> y, logits = torch.tensor([0]), torch.tensor([[2.0, 0.0]])
    >>> with two_labels(y, (torch.tensor([1]), torch.tensor([0.75]), torch.tensor([5]))):
    ...     round(float(ce(logits, y)), 4)  # 0.1269 and 2.1269
    0.6269
    """
    before, _second.labels = _second.labels, None if second is None else (y, *second)
    try:
        yield
    finally:
        _second.labels = before


def _by_labels(loss: Callable[[Tensor], Tensor], y: Tensor) -> Tensor:
    """(n,) A loss of the labels, or of both labels of mixed inputs."""
    mixed = _second.labels
    if mixed is None or mixed[0] is not y:
        return loss(y)
    return mixed[2] * loss(y) + (1 - mixed[2]) * loss(mixed[1])


def ce(logits: Tensor, y: Tensor, focal_gamma: float = 0.0) -> Tensor:
    """Mean cross entropy; with a γ above 0, its gradient is that of focal loss.

    >>> logits, y = torch.zeros(1, 2, requires_grad=True), torch.tensor([0])
    >>> loss = ce(logits, y, focal_gamma=2.0)
    >>> round(loss.item(), 4), [round(v, 4) for v in torch.autograd.grad(loss, logits)[0][0].tolist()]
    (0.6931, [-0.2983, 0.2983])
    """
    if focal_gamma or _second.labels:
        return ce_rows(logits, y, focal_gamma).mean()
    return cross_entropy(logits, y)


def ce_rows(logits: Tensor, y: Tensor, focal_gamma: float = 0.0) -> Tensor:
    """Cross entropy of each sample; with a γ above 0, its gradient is that of focal loss.

    >>> ce_rows(torch.zeros(2, 4), torch.tensor([2, 0])).shape
    torch.Size([2])
    """
    losses = _by_labels(lambda t: cross_entropy(logits, t, reduction="none"), y)
    if not focal_gamma:
        return losses
    steered = focal(losses, focal_gamma)
    return losses.detach() + (steered - steered.detach())  # in this order the value is exactly that of cross entropy


def adjusted_ce(run: Run, logits: Tensor, shift: Tensor, y: Tensor, table: Tensor | None = None) -> Tensor:
    """The run's mean cross entropy of logits to which (n, classes) `shift` is added.

    Of mixed inputs each label has the shift of its own sample, from the `table` of all training samples: with the first
    sample's for both, the second label would be over-corrected.
    """
    mixed = _second.labels
    if mixed is None or mixed[0] is not y or table is None:
        return run.ce(logits + shift, y)
    _, z, share, numbers = mixed
    first, second = run.ce_rows(logits + shift, y.clone()), run.ce_rows(logits + table[numbers], z)  # one label each
    return (share * first + (1 - share) * second).mean()


def focal(losses: Tensor, gamma: float) -> Tensor:
    """Focal loss of each sample (Lin et al. 2017) from its cross entropy (n,).  (1 − p_y)^γ · CE

    Gradient:  ((1 − p_y)^γ + γ p_y (1 − p_y)^(γ−1) CE) · ∇CE

    >>> focal(torch.tensor([2.0]).log(), gamma=2.0)  # log 2 / 4
    tensor([0.1733])
    """
    # 1 − p without rounding to 0; where it is 0, a power of it below 1 would have an infinite gradient.
    missing = (-torch.expm1(-losses)).clamp_min(torch.finfo(losses.dtype).tiny)
    return missing**gamma * losses


def gce(logits: Tensor, y: Tensor, q: float = 0.7, form: Form = "paper") -> Tensor:
    """Mean generalised cross entropy (Zhang and Sabuncu 2018), which prefers what is easy.

    paper:  (1 − p_y^q) / q,       gradient  p_y^q · ∇CE
    code:   q · sg(p_y)^q · CE,    gradient  q · p_y^q · ∇CE   (LfF, DisEnt, DCWP and PGD as released)

    The code's form has q times the paper's gradient: with SGD, a smaller learning rate; with Adam, nearly the same.

    >>> logits = torch.zeros(1, 2)  # p_y = 1/2
    >>> round(float(gce(logits, torch.tensor([0]), q=1.0)), 4), round(float(gce(logits, torch.tensor([0]), q=0.5)), 4)
    (0.5, 0.5858)
    """
    return _by_labels(lambda t: _gce_rows(-cross_entropy(logits, t, reduction="none"), q, form), y).mean()


def _gce_rows(log_p: Tensor, q: float, form: Form) -> Tensor:
    """(n,) From the logarithm of p_y: p^q from p would give NaN where p underflows."""
    if q == 0:  # the limit of the paper's form is cross entropy
        return -log_p
    if form == "code":
        return q * (q * log_p.detach()).exp() * -log_p
    return -torch.expm1(q * log_p) / q


class LossMemory(nn.Module):
    """A running mean of each training sample's loss (LfF), as tensors on the device.

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
        self.register_buffer("members", members(y, classes), persistent=False)

    members: Tensor | None
    value: Tensor
    visited: Tensor
    y: Tensor
    class_max: Tensor

    @torch.no_grad()
    def update(self, idx: Tensor, loss: Tensor) -> None:
        """Fold the current losses of these samples in."""
        old = self.alpha * self.visited[idx]
        self.value[idx] = old * self.value[idx] + (1 - old) * loss.detach().float()
        self.visited.index_fill_(0, idx, 1.0)  # an assignment would copy the 1 from the host: not in a CUDA graph

    @torch.no_grad()
    def relative(self, idx: Tensor) -> Tensor:
        """The remembered losses of these samples, each divided by the maximum over its class."""
        if self.members is None:
            self.class_max.zero_().scatter_reduce_(0, self.y, self.value, "amax")
        else:  # eight times as fast on a GPU, where all samples of a class would have to take turns
            torch.amax(self.value[self.members], dim=1, out=self.class_max)
        return self.value[idx] / self.class_max[self.y[idx]].clamp_min(1e-12)


def members(y: Tensor, classes: int) -> Tensor | None:
    """(classes, size of the largest) The samples of each class, one of them repeated to fill the line.

    None where that takes much more room than the samples themselves, or a class has no sample.

    >>> members(torch.tensor([1, 0, 1]), 2).tolist()
    [[1, 1], [0, 2]]
    """
    size = torch.bincount(y, minlength=classes)
    longest = int(size.max())
    if int(size.min()) == 0 or classes * longest > 4 * len(y):
        return None
    order = y.argsort(stable=True)
    start = (size.cumsum(0) - size)[:, None]
    rank = torch.arange(longest, device=y.device).clamp(max=size[:, None] - 1)  # (classes, longest)
    return order[start + rank]
