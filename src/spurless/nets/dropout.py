"""Dropout that is cheap on a CPU, where drawing and comparing one float for each entry can cost more than the rest."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spurless.core.parallel import drawn


class Dropout(nn.Module):
    """Like nn.Dropout: in training, each entry is zeroed with probability p and the others are scaled up.

    On a CPU one 64-bit draw serves eight entries when p is a multiple of 1/256, and four otherwise; then the share of
    zeroed entries is p rounded to a multiple of 1/65536, and the scale is that of the rounded share, so that the
    mean is kept exactly. Elsewhere it is F.dropout.

    >>> Dropout(0.5).eval()(torch.ones(3))
    tensor([1., 1., 1.])
    """

    def __init__(self, p: float = 0.5):
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"p = {p} is no probability")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if self.p == 1 or x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.p)
        return x * drawn(lambda like: keep_mask(like, self.p), x)

    def extra_repr(self) -> str:
        return f"p={self.p}"


def keep_mask(x: Tensor, p: float) -> Tensor:
    """A mask like x, in its memory layout: 0 with probability p, else the scale that keeps the mean."""
    levels, dtype = (2**8, torch.int8) if (p * 2**8).is_integer() else (2**16, torch.int16)
    kept = min(max(round((1 - p) * levels), 1), levels - 1)
    n, share = x.numel(), 64 // torch.iinfo(dtype).bits
    # From the smallest int64 up, the draw covers all 64 bits; a plain random_() would leave the sign bit zero.
    words = torch.empty(-(-n // share), dtype=torch.int64, device=x.device).random_(-(2**63), None)
    mask = torch.empty(n, dtype=x.dtype, device=x.device)
    # Written as floats at once: a boolean mask and its conversion take ten times as long.
    torch.lt(words.view(dtype)[:n], kept - levels // 2, out=mask)
    mask.mul_(levels / kept)
    dense = x.is_contiguous() or x.is_contiguous(memory_format=torch.channels_last)
    return mask.as_strided(x.shape, x.stride()) if dense else mask.view(x.shape)
