"""Colored MNIST: a digit (the target) in a colour (the bias). Four builds that share a name and little else.

family   colours                         assignment of conflicting colours       train / val / test   test
lff      ten means + noise by severity   exact: rounded shares, in file order    60,000 / - / 10,000  rho 0.9, exact
disent   as lff                          exact: the published counts, at random  55,000 / 5,000 / 10,000
pgd      ten fixed, noise of std 1e-4    each image with probability rho         54,000 / 6,000 / 10,000
rebias   background; digit white         exact: rounded down, at random          60,000 / - / 10,000

Input: uint8 (3, 28, 28); black behind the digit, except in rebias, where the digit is white before a coloured ground.
Label: the digit, 0 to 9; with target = color the colour, the digit being the bias (Ahn et al. 2023, appendix D.2).
Bias: colour i goes with digit i. rho is the share of other pairs; rho = 0.9 has no bias, and every test split has it.

Published counts (aligned, conflicting): disent 0.5 % 54,751 + 249; 1 % 54,509 + 491; 2 % 54,014 + 986; 5 % 52,551 +
2,449. These shares are 0.9 rho, which is what drawing a new colour from all ten, the right one included, gives.

Validation. pgd: the last 6,000 training images, with the bias of training, as in the released code (the text says
55,000 / 5,000, but its table 14 adds up to 54,000). disent: 5,000; which ones is not published: here the last, with
the share of conflicting images of training. lff and rebias have none (their "valid" is the test split), and here
neither, so that the counts are theirs; val = 6000 holds out the last 6,000 images and colours both parts alike.

Left open, and chosen here: pgd's noise is 1e-4 as a standard deviation in the code and as a variance in the text: the
code's is used, and most of it vanishes in 8 bits. severity is LfF's: 4 is what all papers use; DisEnt names none.

Citations: Nam et al. 2020 (LfF), Lee et al. 2021 (DisEnt), Ahn et al. 2023 (PGD), Bahng et al. 2020 (ReBias); LeCun et
al. 2010 for the digits (usually given as CC BY-SA 3.0).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from spurless.core.augment import Augment, preset
from spurless.core.data import Bundle, Images, Split
from spurless.core.errors import UserError
from spurless.core.recipe import RECIPES as NAMED
from spurless.core.recipe import Recipe
from spurless.core.settings import Range
from spurless.data import sources
from spurless.data.ingest.bundle import of_splits

Family = Literal["lff", "disent", "pgd", "rebias"]

# fmt: off
_LFF = (
    (0.9837, 0.3125, 0.1686), (0.9905, 0.9156, 0.3515), (0.6730, 0.4611, 0.5798), (0.7833, 0.8316, 0.6013),
    (0.0880, 0.7780, 0.9818), (0.3214, 0.9611, 0.4464), (0.0246, 0.2357, 0.7587), (0.5552, 0.1016, 0.7618),
    (0.2077, 0.3929, 0.0187), (0.8337, 0.2024, 0.2669),
)
_PGD = (
    (220, 20, 60), (0, 128, 128), (253, 233, 16), (0, 149, 182), (237, 145, 33),
    (145, 30, 188), (70, 240, 240), (250, 197, 187), (210, 245, 60), (128, 0, 0),
)
_REBIAS = (
    (255, 0, 0), (0, 255, 0), (0, 0, 255), (225, 225, 0), (225, 0, 225),
    (0, 255, 255), (255, 128, 0), (255, 0, 128), (128, 0, 255), (128, 128, 128),
)
# fmt: on
COLORS: dict[str, Tensor] = {  # (10, 3), from 0 to 1, in the order of the digits
    "lff": torch.tensor(_LFF),
    "disent": torch.tensor(_LFF),
    "pgd": torch.tensor(_PGD) / 255,
    "rebias": torch.tensor(_REBIAS) / 255,
}
_LFF_NAMES = ("orange-red", "yellow", "mauve", "sage", "sky", "green", "blue", "purple", "dark-green", "red")
COLOR_NAMES: dict[str, tuple[str, ...]] = {
    "lff": _LFF_NAMES,
    "disent": _LFF_NAMES,
    "pgd": ("crimson", "teal", "yellow", "blue", "orange", "purple", "cyan", "pink", "lime", "maroon"),
    "rebias": ("red", "green", "blue", "yellow", "magenta", "cyan", "orange", "rose", "violet", "grey"),
}
NOISE = (0.05, 0.02, 0.01, 0.005, 0.002)  # LfF's standard deviations by severity, 1 to 5
DISENT_CONFLICTING = {0.005: 249, 0.01: 491, 0.02: 986, 0.05: 2449}  # of 55,000
VAL = {"lff": 0, "disent": 5000, "pgd": 6000, "rebias": 0}
NETS = {"lff": "mlp", "disent": "mlp", "pgd": "simconv1", "rebias": "simconv1"}
PGD_AUGMENT = preset("pgd_digits")
RECIPES = {
    "lff": Recipe("adam", lr=1e-3, batch_size=256, epochs=100),
    "disent": NAMED["disent-cmnist"],
    "pgd": Recipe("sgd", lr=0.02, weight_decay=1e-3, schedule="step", step_every=40, batch_size=128, epochs=100),
    "rebias": Recipe("adam", lr=1e-3, weight_decay=1e-4, schedule="step", step_every=20, batch_size=256, epochs=80),
}
DIGITS = tuple("0123456789")


def load(
    family: Annotated[Family, "whose build: colours, counts, validation, recipe"] = "lff",
    rho: Annotated[float, "share of bias-conflicting training images; 0.9 has no bias", Range(0, 1)] = 0.01,
    severity: Annotated[int, "how little the colours vary, 5 the least (lff, disent)", Range(1, 5)] = 4,
    target: Annotated[Literal["digit", "color"], "what is to be predicted; the other one is the bias"] = "digit",
    val: Annotated[
        int | None, "training images held out; none: the family's own number (0, 5000, 6000, 0)", Range(0, 59_000)
    ] = None,
    seed: Annotated[int, "of the colour noise and of what is drawn at random", Range(0)] = 0,
    root: Path | None = None,
) -> Bundle:
    """Colored MNIST as LfF, DisEnt, PGD or ReBias build it."""
    if family == "disent" and (rho not in DISENT_CONFLICTING or val not in (None, VAL["disent"])):
        raise UserError(
            "data.family = disent reproduces published counts: data.rho takes one of "
            f"{', '.join(map(str, DISENT_CONFLICTING))}, and data.val stays 5000. Any other mixture: data.family = lff."
        )
    splits = {}
    for name, grey, digit, share, rng in mnist_splits(root, VAL[family] if val is None else val, rho, seed):
        color = assign(family, digit, share, rng)
        x = paint(family, grey, color, severity, rng)
        y, a = (digit, color) if target == "digit" else (color, digit)
        splits[name] = Split(x, y, a[:, None])
    names = {"digit": DIGITS, "color": COLOR_NAMES[family]}
    bias = "color" if target == "digit" else "digit"
    half = (0.5, 0.5, 0.5) if family == "rebias" else ()
    return of_splits(
        "colored_mnist",
        splits,
        classes=names[target],
        attributes=(bias,),
        values=(names[bias],),
        aligned=(torch.eye(10, dtype=torch.bool),),
        inputs=Images(half, half, augment=PGD_AUGMENT if family == "pgd" else Augment()),
        net=NETS[family],
        recipe=RECIPES[family],
        settings={"family": family, "rho": rho, "severity": severity, "target": target, "val": val, "seed": seed},
    )


# --- Which image gets which attribute (also used by the datasets beside this one) ------------------------------------


def mnist_splits(
    root: Path | None, val: int, rho: float, seed: int
) -> Iterator[tuple[str, Tensor, Tensor, float, np.random.Generator]]:
    """Each split of MNIST: its name, images, digits, share of conflicting images (0.9 in test), and random numbers."""
    images, digits = sources.mnist(root, train=True)
    cut = sources.left_for_training(len(digits), val)
    yield "train", images[:cut], digits[:cut], rho, np.random.default_rng([seed, 0])
    if val:
        yield "val", images[cut:], digits[cut:], rho, np.random.default_rng([seed, 1])
    yield "test", *sources.mnist(root, train=False), 0.9, np.random.default_rng([seed, 2])


def assign(family: Family, y: Tensor, rho: float, rng: np.random.Generator) -> Tensor:
    """(n,) a colour for each digit, in the way of a family."""
    aligned = round(1 - rho, 12)  # 1 - 0.9 is a little less than 0.1
    if family == "lff":
        return by_rounding(y, aligned)
    if family == "pgd":
        return by_chance(y, rho, rng)
    if family == "rebias":
        return by_chunks(y, aligned, rng)
    published = DISENT_CONFLICTING.get(rho)
    return by_count(y, round(len(y) * (rho if published is None else published / 55_000)), rng)


def by_rounding(y: Tensor, aligned: float) -> Tensor:
    """LfF: within each class, in file order, values 0 to 9 in turn, ending where their summed shares round to.

    >>> by_rounding(torch.zeros(20, dtype=torch.long), 0.5).tolist()
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9]
    """
    counts = torch.bincount(y, minlength=10).numpy()
    shares = aligned * np.eye(10) + (1 - aligned) / 9 * (1 - np.eye(10))
    ends = torch.from_numpy((counts[:, None] * shares.cumsum(1)).round())  # (class, value): the first rank not in it
    order = y.argsort(stable=True)
    rank = torch.empty_like(y)
    rank[order] = torch.arange(len(y)) - (torch.from_numpy(counts).cumsum(0) - torch.from_numpy(counts))[y[order]]
    return (ends[y] <= rank[:, None]).sum(1)


def by_chance(y: Tensor, rho: float, rng: np.random.Generator) -> Tensor:
    """PGD: each sample with probability rho one of the other nine values."""
    return torch.where(torch.from_numpy(rng.random(len(y)) < rho), _other(y, rng), y)


def by_count(y: Tensor, conflicting: int, rng: np.random.Generator) -> Tensor:
    """Exactly so many samples, drawn at random, with one of the other nine values."""
    rows = torch.from_numpy(rng.permutation(len(y))[:conflicting])
    a = y.clone()
    a[rows] = _other(y[rows], rng)
    return a


def by_chunks(y: Tensor, aligned: float, rng: np.random.Generator) -> Tensor:
    """ReBias: of each shuffled class the aligned share, rounded down, then the other values in equal chunks."""
    a = y.clone()
    for label in range(10):
        rows = rng.permutation((y == label).nonzero()[:, 0].numpy())
        rest = rows[int(len(rows) * aligned) :]
        others = rng.permutation([v for v in range(10) if v != label])
        chunk = max(1, -(-len(rest) // 9))
        a[torch.from_numpy(rest)] = torch.from_numpy(others[np.arange(len(rest)) // chunk])
    return a


def _other(y: Tensor, rng: np.random.Generator) -> Tensor:
    return (y + torch.from_numpy(rng.integers(1, 10, len(y)))) % 10


def pick(labels: Tensor, wanted: Tensor, rng: np.random.Generator) -> Tensor:
    """For each wanted label a random sample that has it, with replacement.

    >>> pick(torch.tensor([2, 0, 1]), torch.tensor([0, 0, 2]), np.random.default_rng(0)).tolist()
    [1, 1, 0]
    """
    rows = torch.empty_like(wanted)
    for label in wanted.unique().tolist():
        having = (labels == label).nonzero()[:, 0]
        here = wanted == label
        rows[here] = having[torch.from_numpy(rng.integers(0, len(having), int(here.sum())))]
    return rows


# --- Painting --------------------------------------------------------------------------------------------------------


def paint(family: Family, grey: Tensor, color: Tensor, severity: int, rng: np.random.Generator) -> Tensor:
    """(n, 3, 28, 28) uint8: the images (n, 28, 28) in their colours (n,), in the way of a family."""
    mean = COLORS[family][color]  # (n, 3)
    if family == "rebias":
        ground = (mean * 255).round().to(torch.uint8)[:, :, None, None]
        return torch.where(grey[:, None] > 0, torch.tensor(255, dtype=torch.uint8), ground)
    noise = 1e-4 if family == "pgd" else NOISE[severity - 1]
    drawn = mean + noise * torch.from_numpy(rng.standard_normal((len(color), 3), dtype=np.float32))
    # LfF cuts the fraction off when it stores bytes; PGD stores fractions, and the nearest byte keeps most of them.
    return tint(grey, drawn.clamp(0, 1), nearest=family == "pgd")


def tint(grey: Tensor, color: Tensor, nearest: bool = True) -> Tensor:
    """(n, 3, h, w) uint8: each image (n, h, w) times its colour (n, 3)."""
    out = torch.empty(len(grey), 3, *grey.shape[1:], dtype=torch.uint8)
    for start in range(0, len(grey), 500):  # a block that stays in the processor's cache
        rows = slice(start, start + 500)
        block = grey[rows, None].float() * color[rows, :, None, None]
        out[rows] = block.round_() if nearest else block
    return out
