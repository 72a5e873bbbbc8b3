"""Reading the pictures that datasets are made of, from the files as distributed, under the data root."""

import gzip
import math
import pickle
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spurless.core.errors import UserError
from spurless.core.files import data_root
from spurless.data.hosts import how_to_get

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FASHION_CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
KMNIST_CLASSES = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")


def mnist(root: Path | None = None, train: bool = True) -> tuple[Tensor, Tensor]:
    """MNIST: uint8 images (n, 28, 28) and labels (n,), 60,000 for training or 10,000 for testing."""
    return _idx_pair("mnist", f"MNIST/raw/{'train' if train else 't10k'}", root)


def fashion_mnist(root: Path | None = None, train: bool = True) -> tuple[Tensor, Tensor]:
    """Fashion-MNIST: uint8 images (n, 28, 28) and labels (n,) into FASHION_CLASSES."""
    return _idx_pair("fashion_mnist", f"FashionMNIST/raw/{'train' if train else 't10k'}", root)


def kmnist(root: Path | None = None, train: bool = True) -> tuple[Tensor, Tensor]:
    """Kuzushiji-MNIST: uint8 images (n, 28, 28) of cursive hiragana and labels (n,) into KMNIST_CLASSES."""
    return _idx_pair("kmnist", f"KMNIST/raw/{'train' if train else 't10k'}", root)


def emnist_letters(root: Path | None = None, train: bool = True) -> tuple[Tensor, Tensor]:
    """EMNIST letters: uint8 images (n, 28, 28), upright, and labels 0 to 25 for A to Z, upper and lower case merged."""
    images, labels = _idx_pair("emnist", f"EMNIST/raw/emnist-letters-{'train' if train else 'test'}", root)
    return images.transpose(1, 2).contiguous(), labels - 1  # the files hold them mirrored at the diagonal, from 1 on


def cifar10(root: Path | None = None, train: bool = True) -> tuple[Tensor, Tensor]:
    """CIFAR-10: uint8 images (n, 3, 32, 32) and labels (n,) into CIFAR10_CLASSES, in the files' order."""
    names = [f"data_batch_{i}" for i in range(1, 6)] if train else ["test_batch"]
    batches = [read_batch(find("cifar10", f"cifar-10-batches-py/{name}", root)) for name in names]
    images = torch.from_numpy(np.concatenate([b["data"] for b in batches])).view(-1, 3, 32, 32)
    return images, torch.tensor([label for b in batches for label in b["labels"]])


def left_for_training(n: int, val: int) -> int:
    """How many of n training images are left when the last `val` are held out."""
    if val >= n:
        raise UserError(f"data.val = {val} leaves none of the {n} training images.")
    return n - val


def find(name: str, path: str, root: Path | None = None) -> Path:
    """Where a file of the source `name` lies, plain or with .gz; a UserError that says how to get it otherwise."""
    base = data_root(root)
    for candidate in (base / path, base / f"{path}.gz"):
        if candidate.exists():
            return candidate
    raise UserError(f"{path} (or {Path(path).name}.gz) is not in {base}. {how_to_get(name)}")


def read_idx(path: Path) -> Tensor:
    """The array of an idx file: two zeros, 8 for the type (bytes), the number of axes, their lengths, the data."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            data = bytearray(file.read())
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read ({error}); remove it and get it again.") from None
    axes = data[3] if len(data) > 3 else 0
    shape = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(axes)]
    start = 4 + 4 * axes
    if data[:3] != b"\0\0\x08" or axes == 0 or len(data) != start + math.prod(shape):
        raise UserError(f"{path} is not a whole idx file of bytes; remove it and get it again.")
    return torch.frombuffer(data, dtype=torch.uint8, offset=start).view(shape)


def read_batch(path: Path) -> dict[str, Any]:
    """A CIFAR batch: a pickled dict. Nothing but numbers, texts and numpy arrays is ever built from the file."""
    try:
        with open(path, "rb") as file:
            batch: dict[str, Any] = _ArrayUnpickler(file, encoding="latin1").load()
        if batch["data"].dtype != np.uint8 or batch["data"].shape != (len(batch["labels"]), 3 * 32 * 32):
            raise ValueError("unexpected shape")
    except (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, pickle.UnpicklingError) as error:
        raise UserError(f"{path} is not a CIFAR batch ({error}); remove it and get it again.") from None
    return batch


class _ArrayUnpickler(pickle.Unpickler):
    """Unpickles plain values and numpy arrays; any other class or function in the file is an error."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.empty(0).__reduce__()[0]  # numpy has moved this function; an array knows where it is
        if (module, name) == ("numpy", "ndarray"):
            return np.ndarray
        if (module, name) == ("numpy", "dtype"):
            return lambda code, *_: np.dtype(code, copy=True)  # the files' further arguments make numpy 2.4 warn
        if (module, name) == ("_codecs", "encode"):
            return lambda text, encoding: text.encode(encoding)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _idx_pair(name: str, prefix: str, root: Path | None) -> tuple[Tensor, Tensor]:
    images = read_idx(find(name, f"{prefix}-images-idx3-ubyte", root))
    labels = read_idx(find(name, f"{prefix}-labels-idx1-ubyte", root))
    if len(images) != len(labels):
        raise UserError(f"{prefix}-* under {data_root(root)}: {len(images)} images but {len(labels)} labels.")
    return images, labels.long()
