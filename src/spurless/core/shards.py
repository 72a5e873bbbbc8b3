"""Files inside shards, read as other files are: SHARD.tar/NAME is a member of an archive, SHARD.parquet/NUMBER the
image in a row of a table. Nothing is unpacked.

What is known of a shard is kept while the shard is unchanged: of an archive where each member lies, of a table the
images of one row group, since samples are read in order.
"""

from __future__ import annotations

import os
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from spurless.core.errors import DataError, first_line
from spurless.core.extras import missing

TAR, PARQUET = ".tar", ".parquet"
IMAGES = ("image", "img", "picture", "photo", "jpg", "png", "file", "bytes", "content")  # columns, most telling first


class Member(NamedTuple):
    """Where a file lies in an archive."""

    offset: int
    size: int


def split_path(path: str | Path) -> tuple[str, str] | None:
    """The shard and what is read of it; None of a path that leads into none.

    >>> split_path("photos/cat/1.jpg")
    """
    text = os.fspath(path)
    for suffix in (TAR, PARQUET):
        shard, found, member = text.partition(suffix + os.sep)
        if found and os.path.isfile(shard + suffix):
            return shard + suffix, member
    return None


def read_member(shard: str, member: str) -> bytes:
    """The bytes of a file in a shard, or an OSError as of a file that is not there."""
    if shard.endswith(PARQUET):
        return rows_of(shard).image(int(member))
    place = members_of(shard).get(member)
    if place is None:
        raise FileNotFoundError(2, f"{os.path.basename(shard)} holds no such file", member)
    with open(shard, "rb") as opened:
        opened.seek(place.offset)
        data = opened.read(place.size)
    if len(data) < place.size:
        raise OSError(5, f"{os.path.basename(shard)} ends within it", member)
    return data


def members_of(shard: str) -> Mapping[str, Member]:
    """The regular files in an archive by name, in its order; a DataError where it is damaged."""
    known: Mapping[str, Member] = _members(shard, _state(shard))
    return known


def rows_of(shard: str) -> Rows:
    known: Rows = _rows(shard, _state(shard))
    return known


def _state(shard: str) -> tuple[int, ...]:
    stat = os.stat(shard)
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


def _kept(read: Callable[..., Any], most: int) -> Callable[..., Any]:
    """Of each shard what was read last; several threads that ask at once read it once."""
    kept, lock = lru_cache(most)(read), threading.Lock()

    def ask(*args: Any) -> Any:
        with lock:
            return kept(*args)

    return ask


def _read_members(shard: str, _: tuple[int, ...]) -> dict[str, Member]:
    found: dict[str, Member] = {}
    try:
        with tarfile.open(shard, "r:") as archive:
            for of in archive:
                archive.members = []  # type: ignore[attr-defined]  # it keeps all headers otherwise
                if of.isreg():
                    found[of.name.removeprefix("./")] = Member(of.offset_data, of.size)
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        raise DataError(
            f"{shard} is not a whole tar archive ({first_line(error)}); copy it again; unpack it if it is compressed."
        ) from None
    if found and (last := max(found.values())).offset + last.size > os.path.getsize(shard):
        raise DataError(f"{shard} is cut off within its last file; copy it again.")
    return found


class Rows:
    """A Parquet file: its columns but the images, and one image at a time."""

    def __init__(self, shard: str):
        try:
            from pyarrow.parquet import ParquetFile
        except ImportError:
            raise missing(f"{shard} is a Parquet file, which", "parquet") from None
        try:
            self.file = ParquetFile(shard)
        except Exception as error:  # it has exceptions of its own
            raise DataError(f"{shard} is not a whole Parquet file ({first_line(error)}); copy it again.") from None
        self.shard, self.lock = shard, threading.Lock()
        of = self.file.metadata
        self.ends = [0]
        for group in range(of.num_row_groups):
            self.ends.append(self.ends[-1] + of.row_group(group).num_rows)
        self.group, self.images = -1, list[Any]()  # the group that was read last
        self.column = self._image_column()

    def __len__(self) -> int:
        return self.ends[-1]

    def _image_column(self) -> str:
        """The column of bytes, or of bytes with a path, as Hugging Face writes images."""
        import pyarrow as pa

        able = [
            field.name
            for field in self.file.schema_arrow
            if pa.types.is_binary(field.type)
            or pa.types.is_large_binary(field.type)
            or (pa.types.is_struct(field.type) and field.type.get_field_index("bytes") >= 0)
        ]
        if not able:
            names = ", ".join(self.file.schema_arrow.names)
            raise DataError(f"{self.shard} has no column of images, as bytes; it has {names}.")
        return next((name for name in IMAGES if name in able), able[0])

    def columns(self) -> dict[str, list[Any]]:
        """The other columns, those of numbers and words."""
        import pyarrow as pa

        plain = [
            field.name
            for field in self.file.schema_arrow
            if field.name != self.column and not (pa.types.is_nested(field.type) or pa.types.is_binary(field.type))
        ]
        return dict(self._read(lambda: self.file.read(columns=plain).to_pydict()))

    def class_names(self, column: str) -> list[str] | None:
        """The names of a column's numbers, where Hugging Face has written them beside it."""
        import json

        told = (self.file.schema_arrow.metadata or {}).get(b"huggingface", b"{}")
        try:
            names = json.loads(told)["info"]["features"][column]["names"]
        except (ValueError, KeyError, TypeError):
            return None
        return list(map(str, names))

    def image(self, row: int) -> bytes:
        with self.lock:
            group = next(k for k, end in enumerate(self.ends[1:]) if row < end)
            if group != self.group:
                self.images = self._read(lambda: self.file.read_row_group(group, columns=[self.column])[0].to_pylist())
                self.group = group
            cell = self.images[row - self.ends[group]]
        data = cell.get("bytes") if isinstance(cell, dict) else cell
        if not data:
            raise OSError(2, f"row {row} of {os.path.basename(self.shard)} holds no image")
        return bytes(data)

    def _read(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except Exception as error:
            raise OSError(5, f"{os.path.basename(self.shard)} is damaged ({first_line(error)})") from None


_members = _kept(_read_members, 4096)
_rows = _kept(lambda shard, _: Rows(shard), 8)


def texts_of(shard: str, wanted: Mapping[str, Member]) -> Iterator[tuple[str, bytes]]:
    """Small files of an archive, such as labels, in one pass."""
    with open(shard, "rb") as opened:
        for name, place in wanted.items():
            opened.seek(place.offset)
            yield name, opened.read(place.size)
