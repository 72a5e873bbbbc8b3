"""Attributes that nobody named: structure in the features that all classes share, once the class is taken out.

The mean of each class is subtracted, and the directions in which most of the rest varies are sought in two halves of
the samples apart. What both halves find is an attribute; each sample's value of it is read along the direction that the
other half found.
"""

from __future__ import annotations

import torch
from torch import Tensor

MOST = 12  # directions of each half
SAME = 0.8  # cosine from which the directions of both halves are one
LEAST = 100  # samples of each half


def shared_directions(features: Tensor, y: Tensor, seed: int) -> Tensor:
    """(d, k) The directions of most variance of features (n, d), the classes' means taken out."""
    classes = y.unique()
    rest = features.clone()
    for c in classes:
        rest[y == c] -= rest[y == c].mean(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        directions: Tensor = torch.svd_lowrank(rest, q=min(MOST + 8, *rest.shape), niter=3)[2][:, :MOST]
    return directions


def discovered(features: Tensor, y: Tensor, learn: Tensor, seed: int) -> Tensor | None:
    """(n,) The values of the attribute that tells most about the classes (n,), of those that are found twice.

    Directions are sought among the samples `learn` only.
    """
    if len(learn) < 2 * LEAST:
        return None
    scale = features[learn].std(0)
    z = (features - features[learn].mean(0)) / scale.clamp_min(max(1e-6, 0.1 * float(scale.median())))
    first = torch.zeros(len(y), dtype=torch.bool)
    first[learn[torch.randperm(len(learn), generator=torch.Generator().manual_seed(seed))][::2]] = True
    second = torch.zeros_like(first)
    second[learn] = True
    second &= ~first
    one, other = (shared_directions(z[half], y[half], seed) for half in (first, second))
    alike = one.T @ other  # (k, k) cosines
    best: tuple[float, Tensor] | None = None
    for k in range(alike.shape[0]):
        m = int(alike[k].abs().argmax())
        if float(alike[k, m].abs()) < SAME:
            continue
        both = one[:, k], other[:, m] * alike[k, m].sign()
        values = z @ (both[0] + both[1]) / 2
        values[first], values[second] = z[first] @ both[1], z[second] @ both[0]
        told = _told(values[learn], y[learn])
        if best is None or told > best[0]:
            best = told, values
    return None if best is None else best[1]


def _told(values: Tensor, y: Tensor) -> float:
    """The share of the variance that lies between the classes."""
    total = float((values - values.mean()).square().sum())
    means = [(values[y == c].mean() - values.mean(), int((y == c).sum())) for c in y.unique()]
    return sum(n * float(mean) ** 2 for mean, n in means) / max(1e-9, total)
