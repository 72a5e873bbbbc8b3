"""Image files as rows of uint8 pixels (3, size, size): decoded once into a memory-mapped cache, or on demand.

What comes out is what a person sees on a white page: turned as EXIF says, transparent parts white, palette, grey and
CMYK as RGB, 16 bits scaled to 8. Of an animation it is the first frame. Floating-point and 32-bit files are refused,
because nothing says which value is white.

The cache is one file of pixels for each list of files, and beside it for each row a key (of path, size and time of
change), a stamp (of ctime and inode), a hash of the file's bytes and a checksum of the pixels. A row counts once its
key is written, after its pixels: so a decode that was killed goes on where it was, and rows that another list has
already are copied, not decoded again. A file whose stamp has changed is read again, and decoded again if its bytes have
changed. All pixels are compared with their checksums whenever the cache is opened, at about 1 GB a second on each core;
damaged ones are decoded again.
"""

from __future__ import annotations

import errno
import io
import itertools
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal, NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from spurless.core.data import Split
from spurless.core.digests import (
    checksum,
    content_digests,
    digest,
    file_digests,
    file_key,
    file_stamp,
    stat_of,
    vouch,
)
from spurless.core.errors import UserError
from spurless.core.files import cache_dir, data_root, open_regular, read_bytes
from spurless.core.messages import log, track
from spurless.core.settings import Range
from spurless.core.threads import cores, pool

if TYPE_CHECKING:
    from PIL.Image import Image

T = TypeVar("T")
Resize = Literal["crop", "squash"]
# The settings that collections of images share.
Size = Annotated[int, "side of the square that every image becomes, in pixels", Range(8, 2048)]
HowResized = Annotated[Resize, "crop: shorter side to size, then the centre; squash: the whole image, stretched"]
Zoom = Annotated[float, "how much larger than size an image is made before its centre is cut out", Range(1, 4)]
UseCache = Annotated[bool, "decode once into a cache on disk; false: again whenever an image is needed"]
SkipBroken = Annotated[bool, "leave out image files that cannot be read, instead of stopping"]

SUFFIXES = {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".avif"}
SUFFIXES |= {".ppm", ".pgm", ".pbm"}
ORIENTATION = 0x0112  # EXIF's tag
VERSION = 2  # of what decoding means: a change of it leaves old caches unused
CHUNK = 2**24  # bytes of pixels that are written together: what is lost if the machine goes down
# What is kept for each row; no key: not decoded yet.
ROW = np.dtype([("key", "S16"), ("digest", "S16"), ("stamp", "u8"), ("pixels", "u8")])
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


@dataclass(frozen=True)
class Frame:
    """Which part of a picture is kept, and how large it becomes."""

    size: int = 224
    resize: Resize = "crop"
    zoom: float = 1.0

    @property
    def shape(self) -> tuple[int, int, int]:
        return 3, self.size, self.size

    @property
    def nbytes(self) -> int:
        return 3 * self.size * self.size

    def scaled(self, width: int, height: int) -> tuple[int, int]:
        """The width and height to which a picture is resized before the centre is cut out, as torchvision rounds them.

        >>> Frame(64).scaled(300, 100), Frame(64, "squash").scaled(300, 100), Frame(64, zoom=1.5).scaled(300, 100)
        ((192, 64), (64, 64), (288, 96))
        """
        shorter, side = min(width, height), max(self.size, round(self.size * self.zoom))
        if self.resize == "squash":
            return side, side
        return side * width // shorter, side * height // shorter

    def cut(self, picture: Image) -> np.ndarray:
        """(3, size, size) uint8 pixels of an open picture."""
        pixels = torch.from_numpy(np.array(to_rgb(picture)))  # (h, w, 3)
        height, width, _ = pixels.shape
        w, h = self.scaled(width, height)
        # Pillow's own resize gives the same to within a level, in twice the time.
        large = F.interpolate(pixels.permute(2, 0, 1)[None], (h, w), mode="bilinear", antialias=True)[0]
        top, left = round((h - self.size) / 2), round((w - self.size) / 2)
        return large[:, top : top + self.size, left : left + self.size].contiguous().numpy()


def to_rgb(picture: Image) -> Image:
    """The picture as it looks on a white page, upright, in RGB.

    >>> from PIL import Image
    >>> to_rgb(Image.new("RGBA", (1, 1), (0, 0, 0, 0))).getpixel((0, 0))
    (255, 255, 255)
    """
    from PIL import Image, ImageOps

    picture.load()
    wide = picture.mode.startswith("I;16") or (picture.mode == "I" and picture.format in ("PNG", "PPM"))
    if picture.mode in ("I", "F") and not wide:
        raise ValueError(f"nothing in its pixels ({picture.mode}) says which value is white; save it with 8 or 16 bits")
    # Damaged EXIF says nothing about which way is up; the pixels are sound.
    with suppress(Exception):
        if picture.getexif().get(ORIENTATION, 1) != 1:
            picture = ImageOps.exif_transpose(picture)
    if wide:
        values = np.asarray(picture).astype(np.uint32)
        picture = Image.fromarray(((values + 128) // 257).clip(0, 255).astype(np.uint8))
    if picture.has_transparency_data:
        page = Image.new("RGBA", picture.size, "white")
        page.alpha_composite(picture.convert("RGBA"))
        picture = page
    return picture if picture.mode == "RGB" else picture.convert("RGB")


def decode(data: bytes, frame: Frame) -> np.ndarray:
    """(3, size, size) uint8 pixels of an image file's bytes."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as picture:
        # A JPEG can be decoded at a half, a quarter or an eighth of its size: much less work, and as long as twice the
        # pixels that are needed are left, hardly a difference.
        enough = int(2 * frame.size * frame.zoom) + 1
        picture.draft(None, (enough, enough))
        return frame.cut(picture)


class Decoded(NamedTuple):
    """What became of a list of files."""

    x: Tensor  # (n, 3, size, size) uint8, over the cache file; rows of broken files are black
    digests: np.ndarray  # (n,) a hash of each file's bytes; empty for a broken one
    broken: dict[int, str]  # why, for each row that could not be read

    def parts(self, sizes: Sequence[int], frame: Frame) -> tuple[Tensor, ...]:
        """The rows of one split after the other, as views of the cache file, known by the content of their files."""
        ends = list(itertools.accumulate(sizes))
        parts = self.x.split(list(sizes))
        for x, size, end in zip(parts, sizes, ends, strict=True):
            vouch(x, _content(self.digests[end - size : end], frame))
        return parts


def decode_cached(files: Sequence[str], frame: Frame, label: str = "decoding images") -> Decoded:
    """The files as one tensor over a memory-mapped file: it takes no memory but what the system can take back.

    Writing to the tensor changes a private copy of the page, never the cache.
    """
    if not files:
        return Decoded(torch.empty((0, *frame.shape), dtype=torch.uint8), np.empty(0, "S16"), {})
    kept = _Cache(files, frame)
    try:
        broken = kept.fill(label) if len(kept.missing) else {}
        if damaged := kept.drop_damaged():
            log.warning(f"{damaged:,} images in {kept.folder} do not match their checksum and are decoded again.")
            broken = kept.fill(label)
    except OSError as error:
        raise UserError(
            f"The decoded images ({len(files) * frame.nbytes / 2**30:.1f} GiB) cannot be kept in {kept.folder}: "
            f"{error.strerror}. Make room, name another folder with SPURLESS_CACHE, take a smaller data.size, or "
            "decode on demand with data.cache=false."
        ) from None
    return Decoded(torch.from_numpy(_open_pixels(kept.index, frame, "c")), kept.rows["digest"], broken)


class LazyRows:
    """Image files as rows that are decoded when asked for, by all cores: nothing is kept."""

    dtype = torch.uint8

    def __init__(self, folder: str | Path, names: Sequence[str], frame: Frame):
        self.folder, self.names, self.frame = str(folder), names, frame
        self.shape: tuple[int, ...] = (len(names), *frame.shape)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def files(self) -> list[str]:
        return [os.path.join(self.folder, name) for name in self.names]

    def keep(self, rows: Sequence[int]) -> LazyRows:
        """Some of the rows, still not decoded."""
        return LazyRows(self.folder, [self.names[row] for row in rows], self.frame)

    def content_digest(self) -> bytes:
        """A hash of the content of all files, the same as that of the rows in the cache."""
        return _content(file_digests(self.files), self.frame)

    def __getitem__(self, idx: Tensor) -> Tensor:
        """The rows `idx`, which may be all that a tensor can be indexed with."""
        wanted = torch.arange(len(self))[idx]
        files = self.keep(wanted.flatten().tolist()).files
        out = np.empty((len(files), *self.frame.shape), np.uint8)
        for row, got in enumerate(pool().map(lambda file: _attempt(file, self.frame), files)):
            if isinstance(got, str):
                raise UserError(f"{files[row]} cannot be read: {got}. Mend or remove it.")
            out[row] = got[0]
        return torch.from_numpy(out).view(*wanted.shape, *self.frame.shape)


class Kind(NamedTuple):
    """A kind of mistake in a user's data."""

    what: str
    remedy: str


BROKEN = Kind(
    "An image file that cannot be read", "Mend or remove it, or leave such files out with data.skip_broken=true:"
)


LISTED = 100  # places under each kind of problem: more would push what they mean off the screen


@dataclass
class Problems:
    """All that is wrong with a user's data, told in one go: under each kind and its remedy, the places."""

    found: dict[Kind, list[str]] = field(default_factory=dict)

    def add(self, kind: Kind, place: str) -> None:
        self.found.setdefault(kind, []).append(place)

    def add_broken(self, broken: dict[str, str]) -> None:
        for name, why in broken.items():
            self.add(BROKEN, f"{name}: {why}")

    def __len__(self) -> int:
        return sum(map(len, self.found.values()))

    def __str__(self) -> str:
        lines = []
        for kind, places in self.found.items():
            lines += [f"{kind.what} ({len(places):,}). {kind.remedy}"]
            lines += [f"  {printable(place)}" for place in places[:LISTED]]
            lines += [f"  and {len(places) - LISTED:,} more"] * (len(places) > LISTED)
        return "\n".join(lines)

    def stop(self, where: str) -> None:
        """Raise them as one error, if there are any."""
        if len(self):
            raise UserError(f"{where}: {len(self):,} problem{'s' * (len(self) > 1)}.\n{self}")


def read_splits(
    splits: dict[str, Split], name: str, use_cache: bool = True, skip_broken: bool = False
) -> tuple[dict[str, Split], tuple[str, ...]]:
    """Splits over LazyRows as splits over the cache, and a note on what was left out. Broken files stop it together."""
    notes = note_if_enlarged(splits["train"])
    if not use_cache:
        return splits, notes
    decoded, broken = decode_splits(splits)
    if not broken:
        return decoded, notes
    if not skip_broken:
        problems = Problems()
        problems.add_broken(broken)
        problems.stop(name)
    return decode_splits(without(splits, broken))[0], (left_out(broken), *notes)


def decode_splits(splits: dict[str, Split]) -> tuple[dict[str, Split], dict[str, str]]:
    """The splits with their images decoded, and why which names are broken."""
    rows = {name: lazy_rows(split) for name, split in splits.items()}
    frame = next(iter(rows.values())).frame
    done = decode_cached([file for lazy in rows.values() for file in lazy.files], frame)
    broken = {name: done.broken[row] for row, name in enumerate(_all_names(rows.values())) if row in done.broken}
    parts = done.parts([len(lazy) for lazy in rows.values()], frame)
    return {name: replace(splits[name], x=x) for name, x in zip(rows, parts, strict=True)}, broken


def note_if_enlarged(split: Split, sample: int = 15) -> tuple[str, ...]:
    """A note where most images are smaller than what is made of them: results then compare with no published ones."""
    from PIL import Image

    lazy, shorter = lazy_rows(split), []
    for file in lazy.files[:: max(1, len(lazy) // sample)]:
        with suppress(Exception), Image.open(file) as picture:
            shorter.append(min(picture.size))
    typical = int(np.median(shorter)) if shorter else lazy.frame.size
    if typical * 1.2 >= lazy.frame.size:
        return ()
    return (f"the images here are {typical} px and were enlarged to {lazy.frame.size} px",)


def to_split(folder: Path, rows: Sequence[tuple[str, int, int]], frame: Frame) -> Split:
    """Image files below a folder as (name, label, bias attribute), not decoded yet."""
    names = [name for name, _, _ in rows]
    y, a = torch.tensor([y for _, y, _ in rows]), torch.tensor([a for _, _, a in rows])
    return Split(LazyRows(folder, names, frame), y, a[:, None], names)


def find_collection(root: Path | None, places: Sequence[str], needed: Sequence[str], source: str) -> Path:
    """Where a collection lies below the data root, or a UserError that says what to put where."""
    base = data_root(root)
    for place in places:
        if all((base / place / name).exists() for name in needed):
            return base / place
    raise UserError(
        f"There is no {places[0]} with {' and '.join(needed)} in {base}. Get it from {source} (spurless data download "
        "NAME says how) and put it there, or name another data root with --data-root or SPURLESS_DATA."
    )


def shuffled(names: Sequence[str], seed: int) -> list[int]:
    """The rows in an order that only a row's own name and the seed decide: the same everywhere, one row more or less.

    >>> shuffled(["a", "b", "c"], seed=0), shuffled(["c", "b"], seed=0)
    ([2, 0, 1], [0, 1])
    """
    rank = [digest(f"{seed} {name}".encode("utf-8", "surrogateescape")) for name in names]
    return sorted(range(len(names)), key=rank.__getitem__)


def lazy_rows(split: Split) -> LazyRows:
    """The image files of a split that is not decoded yet."""
    assert isinstance(split.x, LazyRows)
    return split.x


def without(splits: dict[str, Split], broken: Iterable[str]) -> dict[str, Split]:
    """The splits over LazyRows, less the rows of these names."""
    bad, kept = set(broken), {}
    for name, split in splits.items():
        rows = [row for row, file in enumerate(lazy_rows(split).names) if file not in bad]
        idx, x = torch.tensor(rows, dtype=torch.long), lazy_rows(split).keep(rows)
        kept[name] = Split(x, split.y[idx], None if split.a is None else split.a[idx], x.names)
    return kept


def left_out(broken: dict[str, str]) -> str:
    """Says on standard error which files were left out and why, and gives the short form for every result."""
    head = f"{len(broken):,} broken image file{'s' * (len(broken) > 1)} left out: "
    log.warning("\n".join([head, *(printable(f"  {file}: {why}") for file, why in broken.items())]))
    return head + printable(", ".join(list(broken)[:5])) + (f" and {len(broken) - 5:,} more" if len(broken) > 5 else "")


def printable(text: str) -> str:
    """The text with line breaks, control codes and undecodable bytes spelt out: names of files may hold any.

    >>> print(printable("a\\x1b[2J\\n.png"))
    a\\x1b[2J\\n.png
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def inspect(files: Sequence[str], whole: bool = False) -> tuple[np.ndarray, dict[int, str]]:
    """What can be known without decoding: (n,) hashes of files that share their size with another, and broken headers;
    if the `whole` files are read, all broken ones.

    >>> inspect(["no-such-file.png"])[1]
    {0: 'No such file or directory'}
    """
    sizes = np.array([os.stat(file).st_size if os.path.isfile(file) else -1 for file in files])
    _, place, count = np.unique(sizes, return_inverse=True, return_counts=True)
    digests, broken = np.zeros(len(files), "S16"), {}
    found = pool().map(partial(_peek, whole=whole), files, (count[place] > 1).tolist())
    for row, got in enumerate(track(found, "looking at images", len(files))):
        if isinstance(got, str):
            broken[row] = got
        else:
            digests[row] = got
    return digests, broken


class _Cache:
    """The two files of a list of images: NAME.rows, and NAME.pixels with the rows that it vouches for."""

    def __init__(self, files: Sequence[str], frame: Frame):
        self.files, self.frame = files, frame
        stats = [stat_of(file) for file in files]
        # What each row should hold.
        self.keys = np.array([file_key(file, stat) for file, stat in zip(files, stats, strict=True)], "S16")
        self.stamps = np.array([file_stamp(stat) for stat in stats], "u8")
        self.folder = cache_dir() / "images" / f"v{VERSION}-{frame.resize}-{frame.size}-{frame.zoom:.6g}"
        self.index = self.folder / f"{digest(self.keys.tobytes()).hex()}.rows"
        self.rows = _open_rows(self.index, frame)  # what each row holds
        if len(self.rows) != len(files):
            self.rows = np.zeros(len(files), ROW)
        here = np.flatnonzero(self.rows["key"] == self.keys)
        self.renew_stamps(here, self.unchanged(here, self.rows[here]))

    def unchanged(self, mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        """(n,) bool: whether my files `mine` are still what these rows of a cache were made from. By the stamp, and
        where that is another one, by the content of the file."""
        same = (theirs["stamp"] == self.stamps[mine]) & (theirs["stamp"] != 0)
        unsure = np.flatnonzero(~same)
        digests = content_digests([self.files[row] for row in mine[unsure]])
        same[unsure] = np.array(digests, "S16") == theirs["digest"][unsure]
        return same

    def renew_stamps(self, rows: np.ndarray, unchanged: np.ndarray) -> None:
        """Forget rows whose file has changed, and keep the stamps of the others, so that these are not read again."""
        self.rows[rows[~unchanged]] = np.zeros(1, ROW)
        renewed = rows[unchanged & (self.rows["stamp"][rows] != self.stamps[rows])]
        self.rows["stamp"][renewed] = self.stamps[renewed]
        if len(renewed):
            with suppress(OSError), open(self.index, "r+b") as at_rows:  # a cache that can only be read
                self.write_rows(renewed.tolist(), at_rows)

    def drop_damaged(self) -> int:
        """Forget rows whose pixels are not those that were written; how many there are."""
        pixels = _open_pixels(self.index, self.frame, "r")
        here = np.flatnonzero(self.rows["key"] == self.keys)
        parts = np.array_split(here, max(1, len(here) * self.frame.nbytes // CHUNK))
        found = pool().map(lambda rows: [checksum(pixels[row]) for row in rows], parts)
        sums = np.fromiter(itertools.chain.from_iterable(found), "u8", len(here))
        damaged = here[sums != self.rows["pixels"][here]]
        self.rows[damaged] = np.zeros(1, ROW)
        return len(damaged)

    @property
    def missing(self) -> np.ndarray:
        return np.flatnonzero(self.rows["key"] != self.keys)

    def fill(self, label: str) -> dict[int, str]:
        """Copy what other lists have, decode the rest; why, for each row that could not be decoded."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(self.folder).free < len(self.missing) * self.frame.nbytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # now, not after an hour
        pixels = self.index.with_suffix(".pixels")
        for file, nbytes in ((pixels, self.frame.nbytes), (self.index, ROW.itemsize)):
            with open(file, "ab") as grown:
                grown.truncate(len(self.files) * nbytes)
        chunk = min(max(CHUNK // self.frame.nbytes, 1), 4096)
        broken: dict[int, str] = {}
        images: dict[int, np.ndarray] = {}
        with open(pixels, "r+b") as at_pixels, open(self.index, "r+b") as at_rows:
            for row, got in itertools.chain(self.known_elsewhere(), self.decoded(label, 2 * chunk)):
                if isinstance(got, str):
                    broken[row] = got
                    continue
                images[row], content = got
                self.rows[row] = self.keys[row], content, self.stamps[row], checksum(np.ascontiguousarray(images[row]))
                if len(images) == chunk:
                    self.write(images, at_pixels, at_rows)
                    images = {}
            self.write(images, at_pixels, at_rows)
        return broken

    def write(self, images: dict[int, np.ndarray], at_pixels: BinaryIO, at_rows: BinaryIO) -> None:
        """First the pixels, down to the disk, then the keys that vouch for them. Plain writes: a full disk is an error
        that can be told, where a memory-mapped page would kill the process."""
        for row, image in images.items():
            at_pixels.seek(row * self.frame.nbytes)
            at_pixels.write(image.tobytes())
        at_pixels.flush()
        os.fsync(at_pixels.fileno())
        self.write_rows(images, at_rows)

    def write_rows(self, rows: Iterable[int], at_rows: BinaryIO) -> None:
        for row in rows:
            at_rows.seek(row * ROW.itemsize)
            at_rows.write(self.rows[row].tobytes())
        at_rows.flush()

    def known_elsewhere(self) -> Iterator[tuple[int, tuple[np.ndarray, bytes]]]:
        """Missing rows that another list has, from its cache."""
        for index in sorted(self.folder.glob("*.rows")):
            missing, there = self.missing, _open_rows(index, self.frame)
            if index == self.index or not len(missing) or not len(there):
                continue
            _, mine, theirs = np.intersect1d(self.keys[missing], there["key"], return_indices=True)
            same = self.unchanged(missing[mine], there[theirs])
            if same.any():
                pixels = _open_pixels(index, self.frame, "r")
                for row, source in sorted(zip(missing[mine][same].tolist(), theirs[same].tolist(), strict=True)):
                    if checksum(pixels[source]) == there["pixels"][source]:
                        yield row, (pixels[source], there["digest"][source])

    def decoded(self, label: str, ahead: int) -> Iterator[tuple[int, tuple[np.ndarray, bytes] | str]]:
        """Missing rows, decoded by all cores."""
        missing = self.missing.tolist()
        work = _in_threads(missing, lambda row: _attempt(self.files[row], self.frame), ahead)
        yield from track(work, label, len(missing))


def _open_rows(index: Path, frame: Frame) -> np.ndarray:
    """(n,) what the rows of a cache hold; none where its two files do not fit together."""
    pixels = index.with_suffix(".pixels")
    if index.is_file() and pixels.is_file():
        rows = np.fromfile(index, ROW)
        if pixels.stat().st_size == len(rows) * frame.nbytes:
            return rows
    return np.zeros(0, ROW)


def _open_pixels(index: Path, frame: Frame, mode: Literal["r", "c"]) -> np.ndarray:
    # A plain array over the file: slices of np.memmap itself are ten times as slow.
    return np.asarray(np.memmap(index.with_suffix(".pixels"), np.uint8, mode)).reshape(-1, *frame.shape)


def _content(digests: np.ndarray, frame: Frame) -> bytes:
    """What tells rows of pixels from others: the content of their files, and what is made of it."""
    return digest(f"{VERSION} {frame}".encode() + digests.tobytes())


def _attempt(file: str, frame: Frame) -> tuple[np.ndarray, bytes] | str:
    """The pixels and the hash of a file, or why there are none."""

    def read() -> tuple[np.ndarray, bytes]:
        data = read_bytes(file)
        return decode(data, frame), digest(data)

    return or_why(read)


def _peek(file: str, hashed: bool, whole: bool = False) -> bytes | str:
    """The hash of a file, if it is wanted, or why it is no image as far as its header tells, or all of it."""
    from PIL import Image

    def read() -> bytes:
        with open_regular(file) as opened, Image.open(opened) as picture:
            if whole:
                picture.load()
        return digest(read_bytes(file)) if hashed else b""

    return or_why(read)


def or_why(read: Callable[[], T]) -> T | str:
    """What was read from an image file, or why it cannot be."""
    from PIL import UnidentifiedImageError

    try:
        return read()
    except UnidentifiedImageError:
        return "not an image of a known kind"
    except OSError as error:
        return error.strerror or str(error)
    except MemoryError:
        raise
    except Exception as error:  # a damaged file can make a decoder fail in any way
        return str(error) or type(error).__name__


def _in_threads(rows: Sequence[int], work: Callable[[int], T], ahead: int) -> Iterator[tuple[int, T]]:
    """Each row with its result, in order. So many are under way or wait at most: results must not pile up."""
    waiting: deque[tuple[int, Future[T]]] = deque()
    with ThreadPoolExecutor(cores()) as pool:
        try:
            for row in rows:
                waiting.append((row, pool.submit(work, row)))
                if len(waiting) > ahead:
                    done, result = waiting.popleft()
                    yield done, result.result()
            for done, result in waiting:
                yield done, result.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _all_names(rows: Iterable[LazyRows]) -> Iterator[str]:
    return itertools.chain.from_iterable(lazy.names for lazy in rows)
