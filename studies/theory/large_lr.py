"""Confident mistakes: propositions 1 and 2 of the large-learning-rate study (Barsbey et al. 2025), as numbers.

Logits f(x) of a network that follows the bias are multiplied by k, as large learning rates make them grow. Proposition
1 says what the loss of conflicting samples is then beside that of aligned ones, proposition 2 what that means for the
gradients of two parts of the network. docs/theory.md says what holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from spurless.core.errors import UserError, unknown
from spurless.metrics import checks

Array = np.ndarray


class Margins(NamedTuple):
    """By how much a network that follows the bias prefers its class, in logits."""

    aligned: float  # α: the smallest lead of the label over all other classes, of aligned samples
    conflicting: float  # β: the mean lead of another class over the label, of conflicting samples
    follows: bool  # every aligned sample is right and every conflicting one wrong: what the propositions assume


def margins(logits: Tensor, y: Tensor, aligned: Tensor) -> Margins:
    """The margins that decide how fast the ratios grow, from logits (n, classes).

    >>> margins(torch.tensor([[2.0, 0], [3, 0], [1, 0]]), torch.tensor([0, 0, 1]), torch.tensor([True, True, False]))
    Margins(aligned=2.0, conflicting=1.0, follows=True)
    """
    logits, y = _judged(logits, y)
    lead = -_behind(logits, y).amax(1)  # (n,) of the label
    ours, theirs = _parts(lead, aligned)
    return Margins(float(ours.min()), float(-theirs.mean()), bool((ours > 0).all() and (theirs < 0).all()))


def loss_ratio(logits: Tensor, y: Tensor, aligned: Tensor, scales: Sequence[float] | Array) -> Array:
    """(scales,) Proposition 1: cross entropy of the conflicting samples over that of the aligned, of k·logits.

    In a form that loses nothing to rounding: the loss of a confident sample is 10⁻¹⁰⁰ where softmax gives 0.

    >>> logits, y = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1])  # log(1 + e^k) / log(1 + e^-k)
    >>> loss_ratio(logits, y, torch.tensor([True, False]), [0, 50]).round(3) / [1, 50 * np.exp(50)]
    array([1., 1.])
    """
    logits, y = _judged(logits, y)
    found = []
    for k in _scales(scales):
        ours, theirs = _parts(_losses(k * logits, y), aligned)
        found.append(float(theirs.sum() / ours.sum()))
    return np.array(found)


def growth_rate(scales: Sequence[float] | Array, ratios: Array, power: int) -> float:
    """The α with which ratios grow like k^power · e^(αk): the slope of log(ratio / k^power) over k, by least squares.

    >>> k = np.array([5.0, 10.0, 20.0])
    >>> round(growth_rate(k, 3 * k * np.exp(0.5 * k), power=1), 6)
    0.5
    """
    k, found = checks.numbers(scales, "scales"), checks.array(ratios, "ratios")
    if k.shape != found.shape or len(np.unique(k)) < 2 or not np.isfinite(found).all() or (found <= 0).any():
        raise UserError("A rate of growth needs a finite ratio above 0 for each of at least two scales.")
    if not np.isfinite(power) or k.min() < 0 or (power and k.min() == 0):
        raise UserError("A rate of growth needs scales above 0, and a finite power.")
    return float(np.polyfit(k, np.log(found) - (power * np.log(k) if power else 0.0), 1)[0])


def gradient_ratio(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    spurious: Iterable[str],
    core: Iterable[str],
    scales: Sequence[float] | Array,
) -> Array:
    """(scales,) Proposition 2: Σ_i ‖∇_s ℓ(y_i, k f(x_i))‖ / Σ_i ‖∇_c ℓ(y_i, k f(x_i))‖, row by row.

    `spurious` and `core` name the parameters of the two parts, which may be any two sets of a network's. The Jacobian
    of each row's logits is held once, n · classes · parameters numbers: for small networks.

    >>> net = Decomposed().double()
    >>> x, y = net.rows(aligned=9, conflicting=1)
    >>> ratios = gradient_ratio(net, x, y, ["s"], ["c"], [10, 12])
    >>> round(float(np.log(ratios[1] / ratios[0])) / 2, 3)  # the smallest margin of an aligned sample
    3.5
    """
    from spurless.nets.heads import evaluating

    rows, held = checks.tensor(x, "x"), next(net.parameters(), None)
    x = rows if rows is x or held is None else rows.to(held)  # an array: as the weights are
    with evaluating(net), checks.asking(net, x):
        with torch.no_grad():
            logits, y = _judged(net(x), y)
        slopes = [_jacobian(net, x, _names(part)) for part in (spurious, core)]  # (n, classes, size) each
    found = []
    for k in _scales(scales, least=1e-300):
        error = _errors(k * logits, y)  # (n, classes): π − onehot(y)
        norms = [k * torch.einsum("nc,ncp->np", error, slope).norm(dim=1).sum() for slope in slopes]
        found.append(float(norms[0] / norms[1]))
    return np.array(found)


class Decomposed(nn.Module):
    """The smallest bias-decomposable network (definition 1), with logits ∓(core + spurious)/2 of two signs (u, v).

    u says the label, v the bias. The spurious part is s·v. The core part is u·min(1, c·h), where h is 1 in aligned and
    4 in conflicting samples: there it has converged, and its gradient is 0, as the definition asks. `leak` adds
    leak·c·u·h: with it the gradient is only nearly 0, as in any network that really trains.

    >>> Decomposed()(torch.tensor([[1.0, 1.0], [1.0, -1.0]])).diff(dim=1).flatten().tolist()  # β = 2 where wrong
    [3.5, -2.0]
    """

    def __init__(self, core: float = 0.5, spurious: float = 3.0, leak: float = 0.0):
        super().__init__()
        self.c, self.s = nn.Parameter(torch.tensor(core)), nn.Parameter(torch.tensor(spurious))
        self.leak = leak

    def forward(self, x: Tensor) -> Tensor:
        u, v = x.unbind(1)
        push = self.c * (2.5 - 1.5 * u * v)
        lead = u * (push.clamp(max=1) + self.leak * push) + self.s * v
        return torch.stack([-lead, lead], 1) / 2

    @staticmethod
    def rows(aligned: int, conflicting: int) -> tuple[Tensor, Tensor]:
        """(n, 2), (n,): rows and labels, the aligned ones first."""
        y = torch.arange(checks.count(aligned, "aligned", 0) + checks.count(conflicting, "conflicting", 0)) % 2
        u = 2.0 * y - 1
        v = torch.where(torch.arange(len(y)) < aligned, u, -u)
        return torch.stack([u, v], 1).double(), y


def _judged(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """(n, classes), (n,): logits in double precision, and labels."""
    found = checks.tensor(logits, "logits").double()
    if found.dim() != 2 or found.shape[1] < 2 or not bool(found.isfinite().all()):
        raise UserError(f"Logits are finite numbers (n, classes), of two classes or more; not {tuple(found.shape)}.")
    return found, checks.codes(y, len(found), found.shape[1])


def _scales(scales: Sequence[float] | Array, least: float = 0.0) -> list[float]:
    found = checks.numbers(scales, "scales", least=0)
    if (found < least).any():
        raise UserError(f"scales are {'above' if least else 'from'} 0{'' if least else ' on'}; some of these are not.")
    return found.tolist()


def _names(part: Iterable[str]) -> list[str]:
    return [part] if isinstance(part, str) else list(part)


def _behind(logits: Tensor, y: Tensor) -> Tensor:
    """(n, classes): how much each class is ahead of the label; −∞ for the label itself."""
    own = y[:, None].to(logits.device)
    return (logits - logits.gather(1, own)).scatter(1, own, -torch.inf)


def _losses(logits: Tensor, y: Tensor) -> Tensor:
    """(n,) Cross entropy as log(1 + Σ_{j≠y} e^(z_j − z_y))."""
    return nn.functional.softplus(_behind(logits, y).logsumexp(1), threshold=700)


def _errors(logits: Tensor, y: Tensor) -> Tensor:
    """(n, classes): softmax − onehot(y), where the entry of the label is minus the sum of the others."""
    own = y[:, None].to(logits.device)
    others = logits.log_softmax(1).exp().scatter(1, own, 0.0)
    return others.scatter(1, own, -others.sum(1, keepdim=True))


def _jacobian(net: nn.Module, x: Tensor, names: list[str]) -> Tensor:
    """(n, classes, size): of each row's logits by the parameters of these names."""
    from torch.func import functional_call, jacrev, vmap

    own = {name: p.detach() for name, p in net.named_parameters()}
    every = own | dict(net.named_buffers())
    for name in names:
        if name not in own:
            raise unknown("parameter", name, own)
    if not names:
        raise UserError("A part of a network needs at least one parameter.")

    def outputs(part: dict[str, Tensor], row: Tensor) -> Tensor:
        return functional_call(net, every | part, (row[None],))[0]

    found = vmap(jacrev(outputs), in_dims=(None, 0), chunk_size=64)({name: every[name] for name in names}, x)
    return torch.cat([found[name].reshape(*found[name].shape[:2], -1) for name in names], 2).double()


def _parts(values: Tensor, aligned: Tensor) -> tuple[Tensor, Tensor]:
    aligned = checks.flags(aligned, "aligned", tuple(values.shape))
    if aligned.all() or not aligned.any():
        raise UserError(
            f"There must be aligned and conflicting samples, told apart by {len(values)} times True or False."
        )
    return values[aligned], values[~aligned]
