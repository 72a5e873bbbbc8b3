"""Random numbers for the samples of a batch: each sample has a stream of its own."""

from collections.abc import Sequence

import numpy as np

from spurless.core.seeds import derive


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
