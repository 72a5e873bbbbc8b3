"""Eight corruptions of test images, for measuring robustness: those of BiasAdv (Lim et al. 2023, supplement D.3).

The paper made them with imgaug and gives one line of settings each; where the line is silent, imgaug's defaults hold.
A batch is uint8 (n, c, h, w), of any size, and comes back alike. Each sample has random numbers of its own, drawn from
(seed, corruption, sample number), so that a sample comes out the same in whatever batch it stands.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from spurless.core.errors import UserError
from spurless.data.corruptions.digital import compressed
from spurless.data.corruptions.resample import sample
from spurless.data.corruptions.streams import Streams, in_blocks

FURTHEST_CORNER = 0.32  # of the side; below a third, four corners that move inwards always span a convex shape


class InputCorruption(Protocol):
    """uint8 images (n, c, h, w) to such images; `rows` are their row numbers where these are not 0 to n - 1."""

    def __call__(self, x: Tensor, seed: int = 0, rows: Sequence[int] | None = None) -> Tensor: ...


INPUT_CORRUPTIONS: dict[str, InputCorruption] = {}


def corruption(one_block: Callable[[np.ndarray, Streams], np.ndarray]) -> InputCorruption:
    """Makes an InputCorruption of a function that takes uint8 arrays to numbers, and lists it by its name."""
    name = one_block.__name__

    @wraps(one_block)
    def corrupted(x: Tensor, seed: int = 0, rows: Sequence[int] | None = None) -> Tensor:
        if x.dtype != torch.uint8 or x.ndim != 4:
            raise UserError(f"Input corruptions take uint8 images (n, c, h, w), not {x.dtype} {tuple(x.shape)}.")

        def uint8(block: Tensor, numbers: Sequence[int]) -> Tensor:
            done = one_block(block.cpu().contiguous().numpy(), Streams(seed, f"input {name}", numbers))
            return torch.from_numpy(np.rint(done.clip(0, 255)).astype(np.uint8))

        return in_blocks(x, rows, uint8)

    INPUT_CORRUPTIONS[name] = corrupted
    return corrupted


@corruption
def gaussian_noise(x: np.ndarray, rng: Streams) -> np.ndarray:
    """x + N(0, s²) with s from 0 to 0.01·255 for each image; the channels of a pixel move together."""
    std = rng.uniform(0, 0.01 * 255)[:, None, None, None]
    result: np.ndarray = x + std * rng.normal(1, *x.shape[2:])
    return result


@corruption
def salt_and_pepper(x: np.ndarray, rng: Streams) -> np.ndarray:
    """0.1 % of the pixels become a grey that is mostly near black or near white: Beta(½, ½)."""
    hit = rng.uniform(0, 1, 1, *x.shape[2:]) < 0.001
    grain = np.sin(rng.uniform(0, np.pi / 2, 1, *x.shape[2:])) ** 2 * 255
    return np.where(hit, grain, x)


@corruption
def cutout(x: np.ndarray, rng: Streams) -> np.ndarray:
    """Two grey squares of 20 % of the shorter side; their centres are anywhere, so part of one may be cut off.

    >>> cutout(torch.zeros(1, 3, 40, 40, dtype=torch.uint8)).unique().tolist()
    [0, 128]
    """
    h, w = x.shape[2:]
    side = max(1, round(0.2 * min(h, w)))
    rows, cols = np.indices((h, w))
    for _ in range(2):
        top, left = (rng.uniform(0, 1, 2) * (h, w) - side / 2).round().T[..., None, None]  # (n, 1, 1) each
        hidden = (rows >= top) & (rows < top + side) & (cols >= left) & (cols < left + side)  # (n, h, w)
        x = np.where(hidden[:, None], 128, x)
    return x


@corruption
def coarse_dropout(x: np.ndarray, rng: Streams) -> np.ndarray:
    """0 to 5 % of the cells of a coarse grid become black; the grid has 2 to 25 % of the image's rows and columns."""
    h, w = x.shape[2:]
    share = rng.uniform(0, 0.05)[:, None, None]
    grid = np.maximum(3, (rng.uniform(0.02, 0.25, 2) * (h, w)).astype(np.int64))  # (n, 2), at least 3 cells a side
    cells = max(3, int(0.25 * max(h, w)))  # the finest grid; each image uses the corner of it that it needs
    dropped = rng.uniform(0, 1, cells, cells) < share
    at = (np.arange(max(h, w)) + 0.5)[None, :]
    rows = (at[:, :h] * grid[:, :1] / h).astype(np.int64)[:, :, None]  # (n, h, 1): the cell of each row
    cols = (at[:, :w] * grid[:, 1:] / w).astype(np.int64)[:, None, :]
    return np.where(dropped[np.arange(len(x))[:, None, None], rows, cols][:, None], 0, x)


@corruption
def rotation(x: np.ndarray, rng: Streams) -> np.ndarray:
    """Turned about its centre by up to 30 degrees to either side; what was outside is filled by reflection."""
    h, w = x.shape[2:]
    angle = np.deg2rad(rng.uniform(-30, 30).astype(np.float64))[:, None, None]
    rows, cols = np.indices((h, w)) - np.array([h - 1, w - 1]).reshape(2, 1, 1) / 2
    sin, cos = np.sin(angle), np.cos(angle)
    there = cos * rows - sin * cols + (h - 1) / 2, sin * rows + cos * cols + (w - 1) / 2  # (n, h, w) each
    return sample(x.astype(np.float32), *there, "symmetric")


@corruption
def perspective(x: np.ndarray, rng: Streams) -> np.ndarray:
    """Four points near the corners become the corners. They lie |N(0, s²)| of a side inwards, s from 0.05 to 0.15."""
    h, w = x.shape[2:]
    inwards = np.abs(rng.normal(4, 2) * rng.uniform(0.05, 0.15)[:, None, None]).clip(0, FURTHEST_CORNER)
    corner = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], np.float64)  # column, row, as parts of the side
    matrix = homography(corner, corner + inwards * (1 - 2 * corner))  # (n, 3, 3)
    rows, cols = np.indices((h, w)) + 0.5  # the corners are those of the outermost pixels, not their centres
    a, b, c = matrix.transpose(2, 1, 0)[..., None, None]  # (3, n, 1, 1) each
    col, row, depth = a * (cols / w) + b * (rows / h) + c  # (n, h, w) each
    return sample(x.astype(np.float32), row / depth * h - 0.5, col / depth * w - 0.5, "edge")


@corruption
def jpeg(x: np.ndarray, rng: Streams) -> np.ndarray:
    """JPEG with a compression strength of 80 to 95, in imgaug's scale: a quality of 22 down to 7."""
    if x.shape[1] not in (1, 3):
        raise UserError(f"JPEG takes images with 1 or 3 channels, not {x.shape[1]}.")
    strength = 80 + rng.integers(16)
    quality = np.rint(1 + 99 * (1 - strength / 101)).astype(int)
    images = np.ascontiguousarray(x.transpose(0, 2, 3, 1))  # (n, h, w, c)
    images = images.squeeze(3) if x.shape[1] == 1 else images  # PIL wants grey images without a channel axis
    done = np.stack([compressed(image, int(q)) for image, q in zip(images, quality, strict=True)])
    return done[:, None] if x.shape[1] == 1 else done.transpose(0, 3, 1, 2)


@corruption
def gaussian_blur(x: np.ndarray, rng: Streams) -> np.ndarray:
    """Gaussian with sigma from 1 to 3 pixels for each image, cut off where imgaug cuts it: after about 1.65 sigma."""
    sigma = rng.uniform(1, 3).astype(np.float64)[:, None]  # (n, 1)
    reach = np.maximum(5, (3.3 * sigma).astype(np.int64)) // 2  # 2 to 4
    step = np.arange(-4, 5)
    taps = np.exp(-(step**2) / (2 * sigma**2)) * (np.abs(step) <= reach)
    taps = (taps / taps.sum(1, keepdims=True)).astype(np.float32)[..., None, None, None]  # (n, 9, 1, 1, 1)
    h, w = x.shape[2:]
    padded = np.pad(x.astype(np.float32), ((0, 0), (0, 0), (4, 4), (4, 4)), "reflect")
    down = sum(taps[:, i] * padded[:, :, i : i + h] for i in range(9))  # (n, c, h, w + 8)
    result: np.ndarray = sum(taps[:, i] * down[..., i : i + w] for i in range(9))
    return result


def homography(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """(n, 3, 3): the projective maps that take four points `source` (4, 2) to `target` (n, 4, 2).

    >>> square = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]])
    >>> homography(square, square[None] * 2).round(6)[0].tolist()
    [[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 1.0]]
    """
    u, v = source.T  # (4,)
    x, y = target.transpose(2, 0, 1)  # (n, 4)
    zero, one = np.zeros_like(x), np.ones_like(x)
    upper = np.stack([u * one, v * one, one, zero, zero, zero, -u * x, -v * x], 2)  # (n, 4, 8)
    lower = np.stack([zero, zero, zero, u * one, v * one, one, -u * y, -v * y], 2)
    unknowns = np.linalg.solve(np.concatenate([upper, lower], 1), np.concatenate([x, y], 1)[..., None])
    return np.concatenate([unknowns[..., 0], one[:, :1]], 1).reshape(-1, 3, 3)
