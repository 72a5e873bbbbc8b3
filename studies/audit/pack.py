"""A small data root for the part of the second final set that needs no birds, texts or tables.

    python -m studies.audit.pack make FOLDER       # on a machine that has the data: about 25 MB
    python -m studies.audit.pack open FOLDER ROOT   # elsewhere: then SPURLESS_DATA=ROOT

It holds, in the order of the files, the last images of each class that `late_` bases draw from, and all of KMNIST's
test file: opened, it is read by the same code as the whole data, and every draw is the same (a test holds this).
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from spurless.data import sources
from studies.audit.bases import LATE, late

ACROSS = 50  # images in a row of a mosaic
IDX = {"mnist": "MNIST", "fashion": "FashionMNIST", "kmnist": "KMNIST"}
READ = {
    "mnist": sources.mnist, "fashion": sources.fashion_mnist, "kmnist": sources.kmnist, "cifar": sources.cifar10,
}  # fmt: skip
PARTS = (("mnist", True), ("fashion", True), ("fashion", False), ("kmnist", False), ("cifar", True), ("cifar", False))


def make(folder: Path) -> None:
    """Mosaics of the images, lossless, and their labels."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, train in PARTS:
        x, y = READ[name](train=train)
        if name != "kmnist":
            rows = late(y, LATE[not train])
            x, y = x[rows], y[rows]
        for k, part in enumerate(x.split(ACROSS * 100)):  # WebP has at most 16,383 pixels a side
            stem = f"{name}-{'train' if train else 'test'}-{k}"
            _mosaic(part).save(folder / f"{stem}.webp", lossless=True, quality=100, method=6)
            np.save(folder / f"{stem}.npy", y[ACROSS * 100 * k :][: len(part)].numpy().astype(np.uint8))


def _mosaic(x: Tensor) -> Image.Image:
    pixels = (x[:, None] if x.dim() == 3 else x).permute(0, 2, 3, 1).numpy()  # (n, h, w, c)
    n, h, w, c = pixels.shape
    rows = -(-n // ACROSS)
    pixels = np.concatenate([pixels, np.zeros((rows * ACROSS - n, h, w, c), np.uint8)])
    grid = pixels.reshape(rows, ACROSS, h, w, c).swapaxes(1, 2).reshape(rows * h, ACROSS * w, c)
    return Image.fromarray(grid if c == 3 else np.repeat(grid, 3, 2))


def opened(folder: Path, root: Path) -> None:
    """The files as their readers want them."""
    for name, train in PARTS:
        stems = sorted(folder.glob(f"{name}-{'train' if train else 'test'}-*.npy"))
        y = np.concatenate([np.load(file) for file in stems])
        x = np.concatenate([_images(file.with_suffix(".webp"), len(np.load(file)), name) for file in stems])
        if name == "cifar":
            _batches(root / "cifar-10-batches-py", x, y, train)
            continue
        base = root / IDX[name] / "raw"
        base.mkdir(parents=True, exist_ok=True)
        for array, kind in ((x[..., 0], "images-idx3"), (y, "labels-idx1")):
            shape = b"".join(side.to_bytes(4, "big") for side in array.shape)
            head = b"\0\0\x08" + bytes([array.ndim]) + shape
            (base / f"{'train' if train else 't10k'}-{kind}-ubyte").write_bytes(head + array.tobytes())


def _images(file: Path, n: int, name: str) -> np.ndarray:
    side = 32 if name == "cifar" else 28
    with Image.open(file) as mosaic:
        grid = np.asarray(mosaic.convert("RGB"))
    rows = grid.shape[0] // side
    return grid.reshape(rows, side, ACROSS, side, 3).swapaxes(1, 2).reshape(-1, side, side, 3)[:n].copy()


def _batches(folder: Path, x: np.ndarray, y: np.ndarray, train: bool) -> None:
    """CIFAR-10's own files: five of the training split, or one."""
    folder.mkdir(parents=True, exist_ok=True)
    flat = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
    names = [f"data_batch_{k}" for k in range(1, 6)] if train else ["test_batch"]
    for name, rows in zip(names, np.array_split(np.arange(len(y)), len(names)), strict=True):
        with (folder / name).open("wb") as file:
            pickle.dump({"data": np.ascontiguousarray(flat[rows]), "labels": y[rows].tolist()}, file, protocol=2)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "make":
        make(Path(sys.argv[2]))
    else:
        opened(Path(sys.argv[2]), Path(sys.argv[3]))
