"""Random numbers for the samples of a batch: each sample has a stream of its own."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from spurless.core.seeds import derive

BLOCK = 2**21  # values corrupted at a time; the temporary arrays are a few times this


class Streams:
    """One random stream for each sample, fixed by seed, name and sample number, whatever other samples are in the
    batch.

    >>> one, many = Streams(0, "snow", [7]), Streams(0, "snow", [3, 7])
    >>> bool((one.normal(2, 2)[0] == many.normal(2, 2)[1]).all())
    True
    """

    def __init__(self, seed: int, name: str, rows: Sequence[int]):
        key = derive(seed, name) << 64  # the sample number fills the lower half
        self._rows = [np.random.Generator(np.random.Philox(key=key | int(row))) for row in rows]

    def __len__(self) -> int:
        return len(self._rows)

    def normal(self, *shape: int) -> np.ndarray:
        """(n, *shape) float32 from N(0, 1)."""
        out = np.empty((len(self), *shape), np.float32)
        for generator, row in zip(self._rows, out.reshape(len(self), -1), strict=True):
            generator.standard_normal(out=row, dtype=np.float32)
        return out

    def uniform(self, low: float, high: float, *shape: int) -> np.ndarray:
        """(n, *shape) float32 from low to high."""
        out = np.empty((len(self), *shape), np.float32)
        for generator, row in zip(self._rows, out.reshape(len(self), -1), strict=True):
            generator.random(out=row, dtype=np.float32)
        return out * np.float32(high - low) + np.float32(low)

    def integers(self, high: int, *shape: int) -> np.ndarray:
        """(n, *shape) int64 from 0 to high - 1."""
        return np.stack([generator.integers(high, size=shape) for generator in self._rows])

    def poisson(self, mean: np.ndarray) -> np.ndarray:
        """Poisson counts with these means; the first axis is the samples."""
        return np.stack([generator.poisson(m) for generator, m in zip(self._rows, mean, strict=True)])


def in_blocks(x: Tensor, rows: Sequence[int] | None, one_block: Callable[[Tensor, Sequence[int]], Tensor]) -> Tensor:
    """What comes of images (n, c, h, w), some at a time; `rows` are their sample numbers, by default 0 to n - 1."""
    numbers = range(len(x)) if rows is None else rows
    out = torch.empty_like(x)
    block = max(1, BLOCK // max(1, x[:1].numel()))
    for start in range(0, len(x), block):
        chunk = slice(start, start + block)
        out[chunk] = one_block(x[chunk], numbers[chunk])
    return out
