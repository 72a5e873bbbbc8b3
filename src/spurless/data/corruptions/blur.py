"""Blur: Gaussian, defocus, glass, motion and zoom. Arrays are float32 0..1 (n, 3, h, w)."""

import numpy as np

from spurless.data.corruptions.resample import clipped_zoom, pick
from spurless.data.corruptions.streams import Streams

GAUSSIAN_SIGMA = (0.4, 0.6, 0.7, 0.8, 1.0)
DEFOCUS = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))  # radius, softening of the disk's rim
GLASS = ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))  # sigma, passes; pixels move by at most one
MOTION = ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5))  # radius, sigma
ZOOM_END = (1.06, 1.11, 1.16, 1.21, 1.26)


def gaussian_blur(x: np.ndarray, level: int, rng: Streams) -> np.ndarray:
    return _gaussian(x, GAUSSIAN_SIGMA[level - 1])


def defocus_blur(x: np.ndarray, level: int, rng: Streams) -> np.ndarray:
    """Convolution with a soft-rimmed disk."""
    from scipy import ndimage

    result: np.ndarray = ndimage.correlate(x, disk(*DEFOCUS[level - 1])[None, None], mode="mirror")
    return result


def glass_blur(x: np.ndarray, level: int, rng: Streams) -> np.ndarray:
    """Blur, let each pixel take the value of a random neighbour above or left of it, blur again.

    The original means to swap the two, from the lower right to the upper left; but numpy's views make it a copy, and
    so a pixel always reads neighbours that have not changed yet: all pixels can be done at once.
    """
    sigma, passes = GLASS[level - 1]
    h, w = x.shape[2:]
    moves = np.zeros((h, w), np.int64)
    moves[2:, 2:] = 1  # the first two rows and columns stay
    rows, cols = np.indices((h, w))
    x = _gaussian(x, sigma)
    for _ in range(passes):
        up, left = rng.integers(2, 2, h, w).transpose(1, 0, 2, 3) * moves  # (n, h, w) each
        x = pick(x, rows - up, cols - left, "edge")
    return _gaussian(x, sigma)


def motion_blur(x: np.ndarray, level: int, rng: Streams) -> np.ndarray:
    return move(x, rng.uniform(-45, 45), *MOTION[level - 1])


def zoom_blur(x: np.ndarray, level: int, rng: Streams) -> np.ndarray:
    """The mean of the image and of its enlargements."""
    # arange as in the original: its rounding errors decide whether the end is included (first two levels) and to which
    # side a size such as 32.5 is rounded.
    factors = np.arange(1, ZOOM_END[level - 1], 0.01)
    return sum((clipped_zoom(x, factor) for factor in factors), x) / np.float32(len(factors) + 1)


def disk(radius: float, soften: float) -> np.ndarray:
    """A disk of the given radius, summing to one, its rim softened by a 3x3 Gaussian.

    >>> (disk(1.0, soften=0.01) * 5).astype(int).tolist()
    [[0, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 1, 1, 1, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]]
    """
    from scipy import ndimage

    reach = int(np.ceil(radius)) + 1
    r, c = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    inside = (r**2 + c**2 <= radius**2).astype(float)
    rim = np.exp(-(np.arange(-1, 2) ** 2) / (2 * soften**2))
    rim /= rim.sum()
    result: np.ndarray = ndimage.correlate(inside / inside.sum(), np.outer(rim, rim), mode="constant").astype(
        np.float32
    )
    return result


def move(x: np.ndarray, degrees: np.ndarray, radius: int, sigma: float) -> np.ndarray:
    """Motion blur as ImageMagick does it: a one-sided Gaussian of 2·radius + 1 whole-pixel steps along the angle."""
    taps = motion_kernel(radius, sigma)
    angle = np.deg2rad(degrees.astype(np.float64))
    rows, cols = np.indices(x.shape[2:])
    out = np.zeros_like(x)
    for i, weight in enumerate(taps):
        down = np.ceil(i * np.sin(angle) - 0.5).astype(np.int64)[:, None, None]  # (n, 1, 1)
        right = np.ceil(i * np.cos(angle) - 0.5).astype(np.int64)[:, None, None]
        out += weight * pick(x, rows + down, cols + right, "edge")
    return out


def motion_kernel(radius: int, sigma: float) -> np.ndarray:
    """(2·radius + 1,) weights that sum to one."""
    taps = np.exp(-(np.arange(2 * radius + 1) ** 2) / (2 * sigma**2))
    result: np.ndarray = (taps / taps.sum()).astype(np.float32)
    return result


def _gaussian(x: np.ndarray, sigma: float) -> np.ndarray:
    from scipy import ndimage

    result: np.ndarray = ndimage.gaussian_filter(x, (0, 0, sigma, sigma), mode="nearest", truncate=4)
    return result
