"""Decoded images in a memory-mapped cache.

The cache is one file of pixels for each list of files, and beside it for each image a key (of path, size and time of
change), a stamp (of ctime and inode), a hash of the file's bytes and a checksum of the pixels. An image counts once its
key is written, after its pixels: so a decode that was killed is resumed, and images that another list has already are
copied, not decoded again. A file whose stamp has changed is read again, and decoded again if its bytes have changed.
All pixels of an earlier start are compared with their checksums whenever the cache is opened, at about 1 GB a second on
each core; damaged ones are decoded again.
"""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from spurless.core.digests import checksum, content_digests, digest, keys_and_stamps, vouch
from spurless.core.errors import DataError
from spurless.core.files import cache_dir
from spurless.core.messages import log
from spurless.core.terminal import track
from spurless.core.threads import cores, pool
from spurless.data.ingest.images import VERSION, Frame, attempt, content

T = TypeVar("T")
CHUNK = 2**24  # bytes of pixels that are written together: what is lost if the machine goes down
TOGETHER = 8  # images that a thread decodes in turn: to hand over each by itself costs a tenth of its time
Image = tuple[np.ndarray, bytes, int]  # pixels, the hash of the file's bytes, the checksum of the pixels
# What is kept for each image; no key: not decoded yet.
ROW = np.dtype([("key", "S16"), ("digest", "S16"), ("stamp", "u8"), ("pixels", "u8")])


class Decoded(NamedTuple):
    """What became of a list of files."""

    x: Tensor  # (n, 3, size, size) uint8, over the cache file; rows of broken files are black
    digests: np.ndarray  # (n,) a hash of each file's bytes; empty for a broken one
    broken: dict[int, str]  # why, for each row that could not be read

    def parts(self, sizes: Sequence[int], frame: Frame) -> tuple[Tensor, ...]:
        """The rows of one split after the other, as views of the cache file, known by the content of their files."""
        ends = list(itertools.accumulate(sizes))
        parts: tuple[Tensor, ...] = self.x.split(list(sizes))
        for x, size, end in zip(parts, sizes, ends, strict=True):
            vouch(x, content(self.digests[end - size : end], frame))
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
        raise DataError(
            f"The decoded images ({len(files) * frame.nbytes / 2**30:.1f} GiB) cannot be kept in {kept.folder}: "
            f"{error.strerror}. Make room, name another folder with SPURLESS_CACHE, take a smaller data.size, or "
            "decode on demand with data.cache=false."
        ) from None
    return Decoded(torch.from_numpy(_open_pixels(kept.index, frame, "c")), kept.rows["digest"], broken)


class _Cache:
    """The two files of a list of images: NAME.rows, and NAME.pixels with the rows that it vouches for."""

    def __init__(self, files: Sequence[str], frame: Frame):
        self.files, self.frame = files, frame
        self.keys, self.stamps = keys_and_stamps(files)  # what each row should hold
        self.folder = cache_dir() / "images" / f"v{VERSION}-{frame.resize}-{frame.size}-{frame.zoom:.6g}"
        self.index = self.folder / f"{digest(self.keys.tobytes()).hex()}.rows"
        self.rows = _open_rows(self.index, frame)  # what each row holds
        if len(self.rows) != len(files):
            self.rows = np.zeros(len(files), ROW)
        here = np.flatnonzero(self.rows["key"] == self.keys)
        self.renew_stamps(here, self.unchanged(here, self.rows[here]))
        self.found = self.rows["key"] == self.keys  # rows that an earlier start has written

    def unchanged(self, mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        """(n,) bool: whether my files `mine` are still what these rows of a cache were made from. By the stamp, and
        where that is another one, by the content of the file."""
        same = (theirs["stamp"] == self.stamps[mine]) & (theirs["stamp"] != 0)
        unsure = np.flatnonzero(~same)
        digests = content_digests([self.files[row] for row in mine[unsure]])
        same[unsure] = np.array(digests, "S16") == theirs["digest"][unsure]
        return np.asarray(same)

    def renew_stamps(self, rows: np.ndarray, unchanged: np.ndarray) -> None:
        """Forget rows whose file has changed, and keep the stamps of the others, so that these are not read again."""
        self.rows[rows[~unchanged]] = np.zeros(1, ROW)
        renewed = rows[unchanged & (self.rows["stamp"][rows] != self.stamps[rows])]
        self.rows["stamp"][renewed] = self.stamps[renewed]
        if len(renewed):
            with suppress(OSError), open(self.index, "r+b") as at_rows:  # a cache that can only be read
                self.write_rows(renewed.tolist(), at_rows)

    def drop_damaged(self) -> int:
        """Forget rows whose pixels are not those that an earlier start has written; how many there are."""
        pixels = _open_pixels(self.index, self.frame, "r")
        here = np.flatnonzero(self.found)
        parts = np.array_split(here, max(1, len(here) * self.frame.nbytes // CHUNK))
        checksums = pool().map(lambda rows: [checksum(pixels[row]) for row in rows], parts)
        sums = np.fromiter(itertools.chain.from_iterable(checksums), "u8", len(here))
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
                images[row], content, check = got
                self.rows[row] = self.keys[row], content, self.stamps[row], check
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
            at_pixels.write(image.data)
        at_pixels.flush()
        os.fsync(at_pixels.fileno())
        self.write_rows(images, at_rows)

    def write_rows(self, rows: Iterable[int], at_rows: BinaryIO) -> None:
        for row in rows:
            at_rows.seek(row * ROW.itemsize)
            at_rows.write(self.rows[row].tobytes())
        at_rows.flush()

    def known_elsewhere(self) -> Iterator[tuple[int, Image]]:
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
                        yield row, (pixels[source], there["digest"][source], there["pixels"][source])

    def decoded(self, label: str, ahead: int) -> Iterator[tuple[int, Image | str]]:
        """Missing rows, decoded by all cores."""
        missing = self.missing.tolist()
        yield from track(_in_threads(missing, self.image, ahead), label, len(missing))

    def image(self, row: int) -> Image | str:
        got = attempt(self.files[row], self.frame)
        return got if isinstance(got, str) else (*got, checksum(got[0]))


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


def _in_threads(rows: Sequence[int], work: Callable[[int], T], ahead: int) -> Iterator[tuple[int, T]]:
    """Each row with its result, in order. So many are under way or wait at most: results must not pile up."""
    waiting: deque[tuple[Sequence[int], Future[list[T]]]] = deque()
    together = max(1, min(TOGETHER, ahead // (4 * cores())))

    def in_turn(some: Sequence[int]) -> list[T]:
        return [work(row) for row in some]

    with ThreadPoolExecutor(cores()) as pool:
        try:
            for start in range(0, len(rows), together):
                some = rows[start : start + together]
                waiting.append((some, pool.submit(in_turn, some)))
                if len(waiting) * together > ahead:
                    done, results = waiting.popleft()
                    yield from zip(done, results.result(), strict=True)
            for done, results in waiting:
                yield from zip(done, results.result(), strict=True)
        finally:
            pool.shutdown(cancel_futures=True)
