"""How small a network could be: how few of its activations and weights hold most of what there is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from spurless.core.data import Bundle
from spurless.core.errors import UserError, unknown
from spurless.metrics import checks
from spurless.metrics.feature_use import some_rows

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def sparsity(z: Tensor, tolerance: float = 0.0) -> Tensor:
    """1 − ‖z‖₀ / d of vectors (..., d): the share of entries that are 0, or at most `tolerance` in size. NaN with NaN.

    >>> sparsity(torch.tensor([[0.0, 0.0, 3.0, -1.0], [1.0, 1.0, 1.0, 1.0]])).tolist()
    [0.5, 0.0]
    """
    z = _entries(z)
    if not tolerance >= 0:
        raise UserError(f"tolerance = {tolerance} is not allowed; it is a size, at least 0.")
    return (z.abs() <= tolerance).double().masked_fill(z.isnan(), math.nan).mean(-1).float()


def compressibility(z: Tensor, q: float = 2.0, kappa: float = 0.1) -> Tensor:
    """(q, κ)-compressibility, 1 − ‖z − top(z)‖_q / ‖z‖_q, of vectors (..., d): how much a few entries hold.

    top(z) keeps the ⌈κ d⌉ entries of largest size. From 0, all entries equal and few kept, to 1, nothing lost; 1 for
    a vector of zeros, too; NaN where an entry is not finite.

    >>> compressibility(torch.tensor([3.0, 4.0, 0.0, 0.0]), kappa=0.25).item()
    0.4000000059604645
    """
    if not (q > 0 and 0 <= kappa <= 1):
        raise UserError(f"(q, κ)-compressibility needs q > 0 and κ from 0 to 1, not q = {q} and κ = {kappa}.")
    size = _scaled(z)
    kept = math.ceil(kappa * size.shape[-1] - 1e-9)  # a product meant to be exact: 0.07 · 100 is a little over 7
    rest = size.sort(-1, descending=True).values[..., kept:] if kept < size.shape[-1] else 0 * size[..., :1]
    whole = torch.linalg.vector_norm(size, q, -1)
    lost = torch.linalg.vector_norm(rest, q, -1) / torch.where(whole == 0, 1.0, whole)
    result: Tensor = (1 - lost).float()
    return result


def pq_index(z: Tensor, p: float = 1.0, q: float = 2.0) -> Tensor:
    """PQ-index, 1 − d^(1/q − 1/p) ‖z‖_p / ‖z‖_q, of vectors (..., d): 0 where all entries are equal in size.

    It is an index, from 0 to 1, only for p < q; for p = 1 and q = 2 one entry alone gives 1 − 1/√d. NaN for zeros.

    >>> pq_index(torch.tensor([[1.0, -1.0, 1.0, 1.0], [0.0, 7.0, 0.0, 0.0]])).tolist()
    [0.0, 0.5]
    """
    if not 0 < p < q:
        raise UserError(f"The PQ-index needs 0 < p < q, not p = {p} and q = {q}; with them swapped it is no index.")
    size = _scaled(z)
    whole = torch.linalg.vector_norm(size, q, -1)
    ratio = torch.linalg.vector_norm(size, p, -1) / torch.where(whole == 0, math.nan, whole)
    result: Tensor = (1 - size.shape[-1] ** (1 / q - 1 / p) * ratio).float()
    return result


class Compressed(NamedTuple):
    """Mean values of vectors: activations of samples, or the weights of layers."""

    sparsity: float
    compressibility: float  # q = 2, κ = 0.1 unless said otherwise
    pq_index: float  # of the vectors that are not all zeros
    n: int  # vectors
    zeros: int  # of them, all zeros


def compressed(z: Tensor, q: float = 2.0, kappa: float = 0.1) -> Compressed:
    """The three measures of vectors (n, d), averaged.

    >>> compressed(torch.tensor([[0.0, 2.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]), kappa=0.25)
    Compressed(sparsity=0.875, compressibility=1.0, pq_index=0.5, n=2, zeros=1)
    """
    z = _entries(z)
    empty = (z == 0).all(-1)
    zeros, score = (float(f.double().mean()) for f in (sparsity(z), compressibility(z, q, kappa)))
    return Compressed(zeros, score, float(pq_index(z[~empty]).double().mean()), empty.numel(), int(empty.sum()))


def activations_compressed(
    net: nn.Module, data: Bundle, split: str = "test", most: int = 1000, seed: int = 0, **settings: Any
) -> Compressed:
    """The measures of the penultimate activations, averaged over `most` samples drawn at random (the paper: 1000).

    >>> from spurless.registry import load_data
    >>> net = nn.Sequential(nn.Linear(7, 50), nn.ReLU(), nn.Linear(50, 2))
    >>> activations_compressed(net, load_data({"name": "toy", "n": 20}), most=10).n
    10
    """
    from spurless.metrics.representation import features_of

    return compressed(features_of(net, data, split, some_rows(data, split, most, seed).sort().values), **settings)


def weights_compressed(net: nn.Module, q: float = 2.0, kappa: float = 0.1) -> dict[str, Compressed]:
    """The measures of the weights of each linear and convolutional layer, and under "all" of all of them as one.

    >>> found = weights_compressed(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    >>> list(found), found["all"].n
    (['0', '2', 'all'], 1)
    """
    flat = {name: layer.weight.detach().flatten() for name, layer in layers(net).items()}
    flat["all"] = torch.cat([w.cpu() for w in flat.values()])
    return {name: compressed(w[None], q, kappa) for name, w in flat.items()}


def layers(net: nn.Module, skip: Iterable[str] = ()) -> dict[str, Any]:
    """The linear and convolutional layers by name, each weight once.

    >>> list(layers(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2, 2))))
    ['0', '3']
    """
    named = {name: child for name, child in net.named_modules() if isinstance(child, LAYERS)}
    left_out = set(skip)
    for name in left_out:
        if name not in named:
            raise unknown("layer", name, named)
    by_name, seen = {}, set()
    for name, child in named.items():
        if not isinstance(child._parameters.get("weight"), nn.Parameter):
            raise UserError(
                f"The weight of layer '{name}' is computed from others (a parametrization or a pruning mask); make it "
                "permanent first, with torch.nn.utils.parametrize.remove_parametrizations or prune.remove."
            )
        if name not in left_out and id(child.weight) not in seen:
            seen.add(id(child.weight))
            by_name[name] = child
    if not by_name:
        raise UserError(f"{type(net).__name__} has no linear or convolutional layer to look at.")
    return by_name


def _entries(z: Tensor) -> Tensor:
    z = checks.tensor(z, "z")
    if z.dim() == 0 or z.shape[-1] == 0:
        raise UserError(f"Vectors without entries cannot be measured; these are of shape {tuple(z.shape)}.")
    return z.double() if z.dtype == torch.bool else z


def _scaled(z: Tensor) -> Tensor:
    """Absolute values in double precision, divided by the largest of each vector: their powers neither under- nor
    overflow, and these measures do not depend on scale."""
    size = _entries(z).detach().abs().double()
    largest = size.amax(-1, keepdim=True)
    return size / torch.where(largest == 0, 1.0, largest)
