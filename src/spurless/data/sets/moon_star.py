"""Moons and stars whose quadrant gives them away."""

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from spurless.core.data import Bundle, Split
from spurless.core.settings import Range
from spurless.data.ingest import draw as _draw

RADIUS = 0.18  # of the circle around the object, in widths of the image: 36 of 200 pixels, much like the original's
CLEAR = 0.02  # room left between that circle and the edges of its quadrant
SHAPES = {"star": _draw.star, "moon": _draw.moon}
# (to the right, downwards) of the two quadrants of each diagonal; the star's own is the first, the moon's the second.
# Rising: bottom left or top right. Falling: top left or bottom right.
DIAGONALS = {"rising": ((-1, 1), (1, -1)), "falling": ((1, 1), (-1, -1))}


def load(
    root: Path | None = None,
    size: Annotated[int, "width and height in pixels", Range(16)] = 64,
    rotation: Annotated[float, "largest turn of an object to either side, in degrees", Range(0, 180)] = 30.0,
    smallest: Annotated[float, "size of the smallest object, the largest being 1", Range(0.2, 1)] = 0.5,
    rho: Annotated[float, "share of conflicting training samples", Range(0, 1)] = 0.1,
    rho_test: Annotated[float, "share of conflicting test samples", Range(0, 1)] = 0.5,
    n: Annotated[int, "training samples", Range(1)] = 4_000,
    n_val: Annotated[int, "validation samples, with the training bias", Range(0)] = 1_000,
    n_test: Annotated[int, "test samples", Range(0)] = 4_000,
    seed: Annotated[int, "which random dataset"] = 0,
) -> Bundle:
    """A white star or moon on black, in one quadrant of the image.

    Input    (1, size, size) uint8; one object, turned and scaled at random, wholly within its quadrant.
    Label    star (0) or moon (1), equally often.
    Bias     the pair of quadrants: stars are at the bottom left or top right, moons at the bottom right or top left,
             save for an exact share rho of the samples of each class. The two quadrants of a pair are equally likely.
    Splits   train 4,000 (rho 0.1), test 4,000 (rho 0.5); val 1,000 more with rho 0.1, which no paper has.
    Citation Geirhos et al., "Shortcut learning in deep neural networks", Nature Machine Intelligence 2020 (figure 2);
             as used by Barsbey et al., "Large learning rates simultaneously achieve robustness to spurious
             correlations and compressibility", 2025 (section 4.1, figure 15).
    Licence  drawn here, with no file of the original: that of this package.
    Choices  Geirhos et al. have 200 px (size=200) and 2,000 images of each class, shift one template by whole pixels
             and train with rho = 0; their test places an object anywhere, here it stays within a quadrant so that
             each image has a bias. Barsbey et al. give rho and leave size, counts and drawing open. With one template
             a network of theirs sees through the bias at once, whatever its learning rate; so objects here also turn
             and differ in size (rotation=0 smallest=1: they do not), which brings its accuracy near the one printed.

    >>> load(n=4, n_val=0, n_test=0, size=32).train.x.shape
    torch.Size([4, 1, 32, 32])
    """
    settings = _draw.checked(load, locals())
    return Bundle(
        "moon_star",
        *_draw.splits(partial(_split, settings), (n, n_val, n_test), rho, rho_test),
        classes=tuple(SHAPES),
        attributes=("quadrants",),
        values=(tuple(DIAGONALS),),
        aligned=(torch.eye(2, dtype=torch.bool),),
        net="fcn",
        recipe=_draw.LARGE_LR,
        settings=settings,
        regions=_regions,
    )


@_draw.one_thread()
def _split(settings: Mapping[str, Any], name: str, n: int, rho: float) -> Split:
    size = settings["size"]
    rng = _draw.stream(settings["seed"], "moon_star", name)
    y = _draw.balanced(rng, n, 2)
    a = y ^ _draw.exact_share(rng, y, rho)
    quadrant = np.array(list(DIAGONALS.values()))[a, rng.integers(2, size=n)]  # (n, 2)
    reach = rng.uniform(settings["smallest"], 1, n) * RADIUS
    room = 0.25 - reach - CLEAR  # to either side of the quadrant's centre
    offset = 0.25 + rng.uniform(-1, 1, size=(n, 2)) * room[:, None]  # from the centre of the image
    angle = rng.uniform(-1, 1, n) * math.radians(settings["rotation"])
    centre = torch.from_numpy(0.5 + quadrant * offset).float()  # (n, 2)
    radius, turn = torch.from_numpy(reach).float(), torch.from_numpy(angle).float()
    images = torch.empty(n, 1, size, size, dtype=torch.uint8)
    for k, shape in enumerate(SHAPES.values()):
        for chunk in _draw.chunks(torch.from_numpy(y == k).nonzero()[:, 0], size**2):
            cover = _draw.coverage(shape, centre[chunk, 0], centre[chunk, 1], radius[chunk], turn[chunk], size)
            images[chunk, 0] = (cover * 255 + 0.5).to(torch.uint8)
    return Split(images, torch.from_numpy(y), torch.from_numpy(a)[:, None])


def _regions(data: Bundle, split: str, idx: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The object itself; where it stands has no pixels of its own."""
    return data.splits[split][idx][:, 0] >= 128, {}
