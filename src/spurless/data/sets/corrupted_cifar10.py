"""CIFAR-10 in which each class has its own kind of corruption: noise, blur, weather or digital faults as the bias."""

import hashlib
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from spurless.core.augment import Augment
from spurless.core.data import Bundle, Images, Split
from spurless.core.files import atomic, cache_dir
from spurless.core.recipe import Recipe
from spurless.core.seeds import derive
from spurless.core.settings import Range
from spurless.core.terminal import track
from spurless.data.corruptions import VERSION, corrupt
from spurless.data.sources import CIFAR10_CLASSES, cifar10

ORIGINAL = "original"  # no corruption

# For each class, in CIFAR-10's order, the corruption it is aligned with.
# fmt: off
MAPPINGS: dict[str, tuple[str, ...]] = {
    "lff0": (
        "snow", "frost", "fog", "brightness", "contrast", "spatter", "elastic", "jpeg", "pixelate", "saturate"
    ),
    "lff1": (
        "gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "gaussian_blur", "defocus_blur",
        "glass_blur", "motion_blur", "zoom_blur", ORIGINAL
    ),
    "disent": (
        "brightness", "contrast", "gaussian_noise", "frost", "elastic", "gaussian_blur", "defocus_blur",
        "impulse_noise", "saturate", "pixelate"
    ),
}
# fmt: on

# DisEnt's training counts (aligned, conflicting) by nominal rho. They do not add up to 45,000 each time.
DISENT_COUNTS = {0.005: (44_832, 228), 0.01: (44_527, 442), 0.02: (44_145, 887), 0.05: (42_820, 2_242)}
DISENT_TRAIN, DISENT_VAL = 45_000, 5_000  # with any other rho
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)  # of CIFAR-10, by channel
TEST_RHO = 0.9  # every corruption equally often in every class

FROST_NOTE = "frost is a procedural texture, not the photographs of the original corruption"


def load(
    root: Path | None = None,
    mapping: Annotated[
        Literal["disent", "lff0", "lff1"], "which corruption each class has: DisEnt's files, LfF's type 0 or type 1"
    ] = "disent",
    rho: Annotated[float, "share of training images with another class's corruption", Range(0, 1)] = 0.01,
    severity: Annotated[int, "strength of the corruptions; the papers use 5", Range(1, 5)] = 5,
    seed: Annotated[int, "which images train, which conflict, and all noise", Range(0)] = 0,
    train_size: Annotated[int, "training images; 0: all", Range(0, 50_000)] = 0,
    test_size: Annotated[int, "test images; 0: all 10,000", Range(0, 10_000)] = 0,
) -> Bundle:
    """Corrupted CIFAR-10 (Nam et al. 2020, "LfF"; Lee et al. 2021, "DisEnt"; corruptions of Hendrycks et al. 2019).

    - Input: 3 x 32 x 32. Label: one of CIFAR-10's ten classes. Bias: one of ten corruptions.
    - `disent` (also PGD, DCWP, BiasAdv): (train aligned, train conflicting) are 44,832, 228 for rho 0.5 %;
      44,527, 442 for 1 %; 44,145, 887 for 2 %; 42,820, 2,242 for 5 %; 45,000 in all for any other rho; val 5,000;
      test 10,000 with rho 0.9.
    - `lff0`, `lff1`: train 50,000, test 10,000 with rho 0.9, no validation split. Exact counts: within a class the
      images take the corruptions in file order, in stretches that end at rounded cumulative shares.
    - `severity` is the level of the corruption. LfF's "Severity 4" means level 5, since its builder adds one.
    - Source: CIFAR-10 (Krizhevsky 2009; no licence stated).
    - Open in the papers, and chosen here: val has the training rho. DisEnt's training counts plus 5,000 can exceed
      50,000; val then holds a few images twice (up to 62), and still none of the training ones. Which images conflict
      is drawn from `seed`: the same share of every class, and of every other corruption.
    - With `train_size` n, disent keeps the share rho and takes n / 9 validation images.
    - Frost is a procedural texture: the original's photographs are not distributed with CIFAR-10.

    The images are kept in the cache folder, under a hash of all that they are made from.
    """
    names = MAPPINGS[mapping]
    files = {"train": cifar10(root, train=True), "test": cifar10(root, train=False)}
    chosen = _trained_on(mapping, files["train"][1], rho, seed, train_size)
    rows = torch.arange(test_size or len(files["test"][1]))
    chosen["test"] = rows, _stretches(files["test"][1][rows], TEST_RHO)
    splits: dict[str, Any] = {}
    for name, (rows, a) in chosen.items():
        file = "test" if name == "test" else "train"
        x, y = files[file]
        # A seed for each split: the same noise must not lie over sample i of one and sample i of another.
        images = _built(x[rows], a, names, severity, derive(seed, "corrupted_cifar10", name), name)
        splits[name] = Split(images, y[rows], a[:, None], [f"{file}/{i}" for i in rows.tolist()])
    return Bundle(
        "corrupted_cifar10",
        **splits,
        classes=CIFAR10_CLASSES,
        attributes=("corruption",),
        values=(names,),
        aligned=(torch.eye(10, dtype=torch.bool),),
        inputs=Images(MEAN, STD, augment=Augment(pad=4, flip=True)),
        net="resnet18",
        recipe=Recipe(  # PGD, table 6
            "adam", 1e-3, weight_decay=1e-3, batch_size=256, schedule="step", step_every=40, gamma=0.5, epochs=200
        ),
        notes=(FROST_NOTE,) if "frost" in names else (),
    )


def _trained_on(mapping: str, y: Tensor, rho: float, seed: int, train_size: int) -> dict[str, tuple[Tensor, Tensor]]:
    """For train and val: the samples of CIFAR-10's training files, and the corruption of each."""
    if mapping == "disent":
        parts = _disent_rows(len(y), rho, seed, train_size)
        return {name: (rows, _spread(y[rows], conflicting)) for name, (rows, conflicting) in parts.items()}
    rows = torch.arange(train_size or len(y))
    return {"train": (rows, _stretches(y[rows], rho))}


def _stretches(y: Tensor, rho: float, values: int = 10) -> Tensor:
    """(n,) biases as LfF assigns them: within a class, in file order, up to rounded cumulative shares.

    >>> _stretches(torch.tensor([1] * 10), rho=0.2, values=3).tolist()
    [0, 1, 1, 1, 1, 1, 1, 1, 1, 2]
    """
    a = torch.empty_like(y)
    for label in y.unique().tolist():
        mine = (y == label).nonzero()[:, 0]
        share = np.full(values, rho / (values - 1))
        share[label] = 1 - rho
        ends = np.rint(share.cumsum() * len(mine))
        a[mine] = torch.from_numpy(np.searchsorted(ends[:-1], np.arange(len(mine)), side="right"))
    return a


def _disent_rows(n: int, rho: float, seed: int, train_size: int) -> dict[str, tuple[Tensor, int]]:
    """For train and val: the samples of CIFAR-10's training files, and how many of them conflict."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(derive(seed, "corrupted_cifar10", "rows")))
    train, val = train_size or DISENT_TRAIN, DISENT_VAL
    conflicting = round(rho * train)
    if train_size:
        val = min(max(1, train // 9), n - train)
    elif rho in DISENT_COUNTS:
        conflicting = DISENT_COUNTS[rho][1]
        train = sum(DISENT_COUNTS[rho])
    rows = {"train": (order[:train], conflicting)}
    if train < n:
        held_out = order[train:]
        rows["val"] = (held_out[torch.arange(val) % len(held_out)], round(rho * val))
    return rows


def _spread(y: Tensor, conflicting: int, values: int = 10) -> Tensor:
    """(n,) biases of which exactly so many conflict, spread evenly over classes and over the other values.

    >>> _spread(torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]), conflicting=4, values=3).tolist()
    [0, 1, 0, 2, 1, 2, 1, 0]
    """
    order = y.argsort(stable=True)
    i = torch.arange(len(y))
    steps = (i + 1) * conflicting // max(1, len(y))
    chosen = steps > i * conflicting // max(1, len(y))  # exactly `conflicting` times
    shift = torch.where(chosen, 1 + (steps - 1) % (values - 1), 0)
    a = torch.empty_like(y)
    a[order] = (y[order] + shift) % values
    return a


def _built(x: Tensor, a: Tensor, names: tuple[str, ...], severity: int, seed: int, label: str) -> Tensor:
    """The images x (n, 3, h, w), sample i with corruption names[a[i]]: from the cache, or made and put there."""
    key = hashlib.sha256(repr((VERSION, names, severity, seed, tuple(x.shape))).encode())
    key.update(a.numpy().tobytes())
    key.update(x.numpy().data)
    path = cache_dir() / "corrupted_cifar10" / f"{key.hexdigest()[:32]}.npy"
    images = _cached(path, x)
    if images is None:
        _build(path, x, a, names, severity, seed, label)
        images = _cached(path, x)
    assert images is not None
    return images


def _cached(path: Path, like: Tensor) -> Tensor | None:
    """The images in a file, mapped into memory; None where it is missing or not whole."""
    try:
        # Copy on write: torch wants memory that it may write to, and the file must not change.
        images = np.load(path, mmap_mode="c")
    except (OSError, ValueError, EOFError):
        return None
    return torch.from_numpy(images) if images.shape == like.shape and images.dtype == np.uint8 else None


def _build(path: Path, x: Tensor, a: Tensor, names: tuple[str, ...], severity: int, seed: int, label: str) -> None:
    """Writes the corrupted images beside their place; the file takes its name when it is whole."""
    with atomic(path) as unfinished:
        out = np.lib.format.open_memmap(unfinished, mode="w+", dtype=np.uint8, shape=tuple(x.shape))
        jobs = [(name, rows) for k, name in enumerate(names) for rows in (a == k).nonzero()[:, 0].split(500)]
        for name, rows in track(jobs, f"Corrupting the {label} images"):
            done = x[rows] if name == ORIGINAL else corrupt(x[rows], name, severity, seed, rows.tolist())
            out[rows.numpy()] = done.numpy()
        out.flush()
