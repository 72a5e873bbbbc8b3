"""Reading an image between its pixels and beyond its edges; shared by blurs, weather and warps."""

from typing import Literal

import numpy as np
import torch

Border = Literal["edge", "symmetric", "mirror"]  # dcba|abcd is symmetric, dcb|abcd mirror, aaaa|abcd edge


def fold(i: np.ndarray, size: int, border: Border) -> np.ndarray:
    """Indices from anywhere brought into 0..size-1.

    >>> [fold(np.arange(-2, 5), 3, b).tolist() for b in ("edge", "symmetric", "mirror")]
    [[0, 0, 0, 1, 2, 2, 2], [1, 0, 0, 1, 2, 2, 1], [2, 1, 0, 1, 2, 1, 0]]
    """
    if border == "edge" or size == 1:
        return i.clip(0, size - 1)
    period, last = (2 * size, 2 * size - 1) if border == "symmetric" else (2 * size - 2, 2 * size - 2)
    i = i % period
    result: np.ndarray = np.minimum(i, last - i)
    return result


def pick(x: np.ndarray, rows: np.ndarray, cols: np.ndarray, border: Border) -> np.ndarray:
    """The pixels of x (n, c, h, w) at whole positions rows, cols, both (n, p, q): (n, c, p, q)."""
    n, c, h, w = x.shape
    flat = fold(rows, h, border) * w + fold(cols, w, border)  # (n, p, q)
    index = torch.from_numpy(flat.reshape(n, 1, -1)).expand(n, c, -1)
    # torch.gather is several times faster than numpy's take_along_axis
    return torch.from_numpy(x).reshape(n, c, h * w).gather(2, index).numpy().reshape(n, c, *rows.shape[1:])


def sample(x: np.ndarray, rows: np.ndarray, cols: np.ndarray, border: Border) -> np.ndarray:
    """x (n, c, h, w) read bilinearly at rows, cols, both (n, p, q): (n, c, p, q).

    >>> x = np.array([[[[0.0, 1.0], [2.0, 3.0]]]], dtype=np.float32)
    >>> float(sample(x, np.array([[[0.5]]]), np.array([[[0.5]]]), "edge")[0, 0, 0, 0])
    1.5
    """
    top, left = np.floor(rows), np.floor(cols)
    down, right = (rows - top)[:, None].astype(np.float32), (cols - left)[:, None].astype(np.float32)
    r, c = top.astype(np.int64), left.astype(np.int64)
    upper = pick(x, r, c, border) * (1 - right) + pick(x, r, c + 1, border) * right
    lower = pick(x, r + 1, c, border) * (1 - right) + pick(x, r + 1, c + 1, border) * right
    result: np.ndarray = upper * (1 - down) + lower * down
    return result


def clipped_zoom(x: np.ndarray, factor: float) -> np.ndarray:
    """The middle of x (n, c, h, w), enlarged by `factor` to the old size, linearly, corner pixels on corner pixels."""
    return _zoom_axis(_zoom_axis(x, factor, 2), factor, 3)


def _zoom_axis(x: np.ndarray, factor: float, axis: int) -> np.ndarray:
    size = x.shape[axis]
    kept = int(np.ceil(size / factor))
    enlarged = round(kept * factor)
    first_out, first_in = (enlarged - size) // 2, (size - kept) // 2
    at = first_in + (first_out + np.arange(size)) * (kept - 1) / max(1, enlarged - 1)
    low = np.floor(at).astype(np.int64)
    high = np.minimum(low + 1, size - 1)
    shape = [1] * x.ndim
    shape[axis] = size
    fraction = (at - low).astype(np.float32).reshape(shape)
    result: np.ndarray = x.take(low, axis) * (1 - fraction) + x.take(high, axis) * fraction
    return result
