"""Where features are in the inputs: what datasets that know it use to fill `Bundle.regions`."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from spurless.core.data import Bundle


def columns(
    data: Bundle, idx: Tensor, core: Iterable[int], spurious: Mapping[str, Iterable[int]]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Regions (m, d) of vectors whose features have columns of their own."""

    def mask(own: Iterable[int]) -> Tensor:
        chosen = torch.zeros(data.shape, dtype=torch.bool)
        chosen[list(own)] = True
        return chosen.expand(len(idx), -1)

    return mask(core), {name: mask(own) for name, own in spurious.items()}


def halves(data: Bundle, idx: Tensor, core: str) -> tuple[Tensor, dict[str, Tensor]]:
    """Regions (m, h, w) of images whose core feature fills one half: left, right, top or bottom."""
    mask = half(data.shape, core).expand(len(idx), -1, -1)
    return mask, {data.attributes[0]: ~mask}


def half(shape: tuple[int, ...], side: str) -> Tensor:
    """(h, w): one half of inputs of this shape.

    >>> half((1, 2, 4), "left").int().tolist()
    [[1, 1, 0, 0], [1, 1, 0, 0]]
    """
    height, width = shape[-2:]
    mask = torch.zeros(height, width, dtype=torch.bool)
    where = mask if side in ("left", "right") else mask.T
    middle = where.shape[1] // 2
    where[:, slice(None, middle) if side in ("left", "top") else slice(middle, None)] = True
    return mask
