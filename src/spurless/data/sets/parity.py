"""Parity of core bits against parity of fewer, spurious bits."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from spurless.core.data import Bundle, Split
from spurless.core.settings import Range
from spurless.data import regions
from spurless.data.ingest import draw as _draw


def load(
    root: Path | None = None,
    core: Annotated[int, "bits whose parity is the label (C)", Range(1)] = 5,
    spurious: Annotated[int, "bits whose parity is the bias (S); fewer are easier", Range(1)] = 2,
    noise: Annotated[int, "bits that mean nothing", Range(0)] = 18,
    coding: Annotated[Literal["0/1", "+-1"], "how a bit is written; +-1 writes a one as -1"] = "+-1",
    rho: Annotated[float, "share of conflicting training samples", Range(0, 1)] = 0.1,
    rho_test: Annotated[float, "share of conflicting test samples", Range(0, 1)] = 0.5,
    n: Annotated[int, "training samples", Range(1)] = 10_000,
    n_val: Annotated[int, "validation samples, with the training bias", Range(0)] = 1_000,
    n_test: Annotated[int, "test samples", Range(0)] = 10_000,
    seed: Annotated[int, "which random dataset"] = 0,
) -> Bundle:
    """Boolean vectors in which the parity of a few easy bits nearly always agrees with that of the right ones.

    Input    (core + spurious + noise,) float32, in that order; `columns` tells them apart.
    Label    whether the core bits hold an odd number of ones. In +-1 coding a one is -1, so that the product of the
             core entries is +1 for class 0 (even) and -1 for class 1 (odd).
    Bias     the same of the spurious bits; it differs from the label in a share rho of the samples.
    Sampling core and noise bits are fair coins; a coin of its own decides whether a sample conflicts; the spurious bits
             are uniform among the strings of the parity that this asks for.
    Splits   train 10,000 (rho 0.1), test 10,000 (rho 0.5); val 1,000 more with rho 0.1, which no paper has.
    Citation Qiu, Kuang and Goel, "Complexity matters: dynamics of feature learning in the presence of spurious
             correlations", 2024; as used by Barsbey et al., "Large learning rates simultaneously achieve robustness
             to spurious correlations and compressibility", 2025 (section 4.1, figure 3).
    Licence  generated here: that of this package.
    Choices  Qiu et al. have blocks of 10 core and 10 spurious bits of which 3 and 2 count (core=3 spurious=2 noise=15);
             with 10,000 samples those are learned in full at any learning rate. Barsbey et al. give only C > S and show
             noise bits; 5, 2 and 18 are chosen so that the test accuracy rises with the learning rate from about half,
             as in their figure 3. Their network is net=fcn net.width=200 with two hidden layers (supplement) or
             net.depth=3 (main text).

    >>> load(core=4, spurious=2, noise=3, n=6).shape
    (9,)
    """
    settings = _draw.checked(load, locals())
    return Bundle(
        "parity",
        *_draw.splits(partial(_split, settings), (n, n_val, n_test), rho, rho_test),
        classes=("even", "odd"),
        attributes=("spurious parity",),
        values=(("even", "odd"),),
        aligned=(torch.eye(2, dtype=torch.bool),),
        net="fcn",
        recipe=_draw.LARGE_LR,
        settings=settings,
        regions=_regions,
    )


def _split(settings: Mapping[str, Any], name: str, n: int, rho: float) -> Split:
    core, spurious = settings["core"], settings["spurious"]
    rng = _draw.stream(settings["seed"], "parity", name)
    bits = rng.integers(2, size=(n, core + spurious + settings["noise"]), dtype=np.int8)
    y = bits[:, :core].sum(1) % 2
    b = y ^ (rng.random(n) < rho)
    # Setting the last spurious bit to what is missing keeps the others fair: all strings of that parity are equally
    # likely.
    last = core + spurious - 1
    bits[:, last] = (b + bits[:, core:last].sum(1)) % 2
    x = torch.from_numpy(bits).float()
    return Split(1 - 2 * x if settings["coding"] == "+-1" else x, torch.from_numpy(y), torch.from_numpy(b)[:, None])


def _regions(data: Bundle, split: str, idx: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    own = columns(data)
    return regions.columns(data, idx, own["core"].tolist(), {"spurious parity": own["spurious"].tolist()})


def columns(data: Bundle) -> dict[str, Tensor]:
    """Which inputs are core, spurious and noise.

    >>> {name: found.tolist() for name, found in columns(load(core=3, spurious=1, noise=2, n=1)).items()}
    {'core': [0, 1, 2], 'spurious': [3], 'noise': [4, 5]}
    """
    names = ("core", "spurious", "noise")
    parts = torch.arange(*data.shape).split([data.settings[name] for name in names])
    return dict(zip(names, parts, strict=True))
