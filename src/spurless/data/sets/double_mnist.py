"""Double MNIST: a dim digit (the target) beside a bright one (the bias).

Input: uint8 (1, 28, 56): two MNIST digits side by side. Label: the dim digit, 0 to 9. Bias: the bright digit, equal to
the dim one except in a share rho of the training images, where it is one of the other nine. Splits: 60,000 / - / 10,000
from the canonical ones; in the test split 90 % conflict, which is no bias.

From the paper on large learning rates that proposes the dataset come: core left and dim, spurious right and bright,
rho 0.025, the sizes, SGD with batches of 100 and a constant rate up to 100 % training accuracy. Left open there, and
chosen here: dim is half the brightness, bright the full one; one channel; exactly round(rho n) conflicting images,
drawn at random; the partner drawn with replacement from the same split; no standardisation; learning rate 0.1 and at
most 100 epochs. There is no validation split unless val asks for one: the last images of the training file, biased
alike.

Citation: LeCun et al. 2010 for the digits (usually given as CC BY-SA 3.0).
"""

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from spurless.core.data import Bundle, Split
from spurless.core.recipe import Recipe
from spurless.core.settings import Range
from spurless.data import regions
from spurless.data.ingest.bundle import of_splits
from spurless.data.sets.colored_mnist import DIGITS, by_count, mnist_splits, pick

Side = Literal["left", "right"]


def load(
    rho: Annotated[float, "share of bias-conflicting training images; 0.9 has no bias", Range(0, 1)] = 0.025,
    core: Annotated[Side, "where the digit to be predicted stands"] = "left",
    dim: Annotated[float, "brightness of the digit to be predicted", Range(0, 1)] = 0.5,
    bright: Annotated[float, "brightness of the other one", Range(0, 1)] = 1.0,
    val: Annotated[int, "training images held out for validation", Range(0, 59_000)] = 0,
    seed: Annotated[int, "of the pairs that are drawn", Range(0)] = 0,
    root: Path | None = None,
) -> Bundle:
    """Two digits side by side: the dim one is the target, the bright one gives it away."""
    splits = {}
    for name, grey, y, share, rng in mnist_splits(root, val, rho, seed):
        a = by_count(y, round(share * len(y)), rng)
        pair = (dimmed(grey, dim), dimmed(grey[pick(y, a, rng)], bright))
        x = torch.cat(pair if core == "left" else pair[::-1], dim=2)[:, None]  # (n, 1, 28, 56)
        splits[name] = Split(x, y, a[:, None])
    return of_splits(
        "double_mnist",
        splits,
        classes=DIGITS,
        attributes=("bright_digit",),
        values=(DIGITS,),
        aligned=(torch.eye(10, dtype=torch.bool),),
        net="fcn",
        recipe=Recipe("sgd", lr=0.1, momentum=0.0, batch_size=100, epochs=100, until_accuracy=100),
        settings={"rho": rho, "core": core, "dim": dim, "bright": bright, "val": val, "seed": seed},
        regions=_regions,
    )


def dimmed(images: Tensor, brightness: float) -> Tensor:
    """Images with their brightness multiplied, to the nearest byte.

    >>> dimmed(torch.tensor([0, 100, 255], dtype=torch.uint8), 0.5).tolist()
    [0, 50, 128]
    """
    table = (np.arange(256) * brightness).round().astype(np.uint8)
    return torch.from_numpy(table[images.numpy()])


def _regions(data: Bundle, split: str, idx: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    return regions.halves(data, idx, data.settings["core"])
