"""The 19 corruptions of CIFAR-10-C (Hendrycks & Dietterich, ICLR 2019) over whole batches, severities 1 to 5.

A batch is uint8 (n, 3, h, w). Each sample has random numbers of its own, drawn from (seed, corruption, sample number),
so that a sample comes out the same in whatever batch it stands. The constants are those for 32 pixels; other sizes run
too, but lengths such as a blur radius stay in pixels.

Where the released generator is odd, so are we, because its images are what the papers train on: glass blur copies a
neighbour instead of swapping with it; salt and pepper hits single colour values, not pixels; a saturation that is
raised by a constant turns grey pixels red. Where we differ: values are rounded, not cut, to 8 bits; frost is a
procedural texture (see weather.py), since the original needs photographs; distances in spatter are exact.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from spurless.core.errors import UserError, unknown
from spurless.data.corruptions import blur, digital, noise, weather
from spurless.data.corruptions.streams import Streams, in_blocks

VERSION = 1  # goes into the key of cached images: raise it whenever an output changes

Corruption = Callable[[np.ndarray, int, Streams], np.ndarray]  # float32 0..1 (n, 3, h, w), level, random numbers

CORRUPTIONS: dict[str, Corruption] = {
    "gaussian_noise": noise.gaussian_noise,
    "shot_noise": noise.shot_noise,
    "impulse_noise": noise.impulse_noise,
    "speckle_noise": noise.speckle_noise,
    "gaussian_blur": blur.gaussian_blur,
    "defocus_blur": blur.defocus_blur,
    "glass_blur": blur.glass_blur,
    "motion_blur": blur.motion_blur,
    "zoom_blur": blur.zoom_blur,
    "snow": weather.snow,
    "frost": weather.frost,
    "fog": weather.fog,
    "spatter": weather.spatter,
    "brightness": digital.brightness,
    "contrast": digital.contrast,
    "saturate": digital.saturate,
    "jpeg": digital.jpeg,
    "pixelate": digital.pixelate,
    "elastic": digital.elastic,
}


def corrupt(x: Tensor, name: str, severity: int, seed: int = 0, rows: Sequence[int] | None = None) -> Tensor:
    """The images `x`, uint8 (n, 3, h, w), each corrupted; `rows` are their row numbers where these are not 0 to n - 1.

    >>> grey = torch.full((2, 3, 32, 32), 100, dtype=torch.uint8)
    >>> int(corrupt(grey, "brightness", severity=2)[0, 0, 0, 0])  # 100 + 0.1 * 255
    126
    """
    if name not in CORRUPTIONS:
        raise unknown("corruption", name, CORRUPTIONS)
    if severity not in range(1, 6):
        raise UserError(f"severity = {severity!r} is not allowed; it takes a whole number from 1 to 5.")
    if x.dtype != torch.uint8 or x.ndim != 4 or x.shape[1] != 3:
        raise UserError(f"Corruptions take uint8 images (n, 3, h, w), not {x.dtype} {tuple(x.shape)}.")
    one = CORRUPTIONS[name]
    return in_blocks(x, rows, lambda of, numbers: to_uint8(one(to_unit(of), severity, Streams(seed, name, numbers))))


def to_unit(x: Tensor) -> np.ndarray:
    """uint8 0..255 as float32 0..1."""
    return x.cpu().numpy().astype(np.float32, order="C") / np.float32(255)


def to_uint8(x: np.ndarray) -> Tensor:
    """Numbers from 0 to 1, cut to that range, as the nearest of 0..255."""
    return torch.from_numpy(np.rint(x.clip(0, 1) * 255).astype(np.uint8))
