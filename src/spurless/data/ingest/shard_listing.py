"""Folders that hold shards instead of image files: archives as WebDataset writes them, and Parquet with image bytes.

    train-000.tar       KEY.jpg beside KEY.cls (the label) or KEY.json (label, attributes, split); with neither, a
                        folder for every class inside
    train-0.parquet     a column of image bytes, as Hugging Face writes them, and columns of labels and attributes

The split is that of the folder or of the first word in the shard's name, unless a field tells it of each sample.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from spurless.core.errors import DataError
from spurless.core.files import from_json
from spurless.core.shards import PARQUET, TAR, members_of, rows_of, texts_of
from spurless.data.ingest.file_tables import ATTRIBUTE, EMPTY, LABEL, NO_SPLIT, SPLIT, Columns, column
from spurless.data.ingest.files import files_in, is_image
from spurless.data.ingest.labels import MISSING_MARKS
from spurless.data.ingest.listing import STRAY, Listing, Spellings
from spurless.data.ingest.problems import Kind, Problems
from spurless.data.ingest.splits import SPLIT_CODES, SPLIT_NAMES, SPLITS

DAMAGED = Kind("A shard that cannot be read", "Copy it again, or remove it:")
Fields = Mapping[str, str]
LABEL_FILE, FIELDS_FILE = ".cls", ".json"


def shards_in(folder: Path, parts: Mapping[str, str]) -> dict[str, str]:
    """The shards in a folder and in its split folders, and the split of each ("": not given)."""
    found = {}
    for below, split in {"": "", **parts}.items():
        for name in files_in(folder / below):
            if name.endswith((TAR, PARQUET)) and not name.startswith("."):
                word = re.match(r"[a-zA-Z]*", name)
                by_name = SPLIT_NAMES.get(word.group().lower(), "") if word else ""
                found[os.path.join(below, name)] = split or by_name
    return found


def from_shards(folder: Path, shards: Mapping[str, str], columns: Columns, problems: Problems) -> Listing:
    """The samples in shards, by name SHARD/MEMBER."""
    listing, spellings, reader = Listing(""), Spellings(), _Fields(columns)
    others = [name for name in files_in(folder) if name not in shards]
    for shard, split in shards.items():
        try:
            for name, fields in _samples(str(folder / shard), others):
                reader.add(os.path.join(shard, name), fields, split, listing, spellings, problems)
        except (DataError, OSError) as error:
            problems.add(DAMAGED, str(error))
    spellings.report(problems)
    listing.not_used(others, "files that are no images of the shards")
    listing.attributes = reader.attributes
    listing.layout = f"{len(shards):,} shard{'s' * (len(shards) > 1)}: {reader.in_words}"
    return listing


class _Fields:
    """Which fields of a sample hold what: as the settings name them, else by their usual names in the first sample."""

    def __init__(self, asked: Columns):
        self.asked, self.known = asked, False
        self.label = self.split = ""
        self.attributes: tuple[str, ...] = ()
        self.codes = SPLIT_CODES | {text.strip(): of for text, of in zip(asked.splits, SPLITS, strict=False)}

    @property
    def in_words(self) -> str:
        label, split = self.label or "the folder in the shard", self.split or "the shard's name, or drawn"
        return f"label = {label}, attribute = {' and '.join(self.attributes) or 'none'}, split = {split}"

    def _find(self, shard: str, header: Sequence[str]) -> None:
        def at(asked: str | None, usual: tuple[str, ...] = ()) -> str:
            place = column(shard, header, asked, usual)
            return "" if place is None else header[place]

        self.label, self.split = at(self.asked.label, LABEL), at(self.asked.split, SPLIT)
        named = [at(None, ATTRIBUTE)] if self.asked.attribute is None else [at(name) for name in self.asked.attribute]
        self.attributes = tuple(name for name in named if name)
        self.known = True

    def add(
        self, name: str, fields: Fields, split: str, listing: Listing, spellings: Spellings, problems: Problems
    ) -> None:
        if not self.known:
            self._find(name, list(fields))
        *_, within = PurePath(name).parent.parts
        label = fields.get(self.label, "") if self.label else ("" if within.endswith((TAR, PARQUET)) else within)
        values = tuple(fields.get(attribute, "") for attribute in self.attributes)
        if any(text.strip() in MISSING_MARKS for text in (label, *values)):
            problems.add(EMPTY, f"{name}: {dict(fields) or 'no folder, .cls or .json tells its label'}")
            return
        if stray := [text for text in (label, *values) if text != text.strip()]:
            problems.add(STRAY, f"{stray[0]!r} of {name}")
            return
        if self.split and fields.get(self.split, ""):
            written = fields[self.split].strip()
            split = self.codes.get(written, SPLIT_CODES.get(written.lower(), ""))
            if not split:
                problems.add(NO_SPLIT, f"{name}: {written!r}")
                return
        listing.add(name, label, values, split)
        spellings.add((label, *values), name)


def _samples(shard: str, others: list[str]) -> Iterator[tuple[str, Fields]]:
    return _of_table(shard) if shard.endswith(PARQUET) else _of_archive(shard, others)


def _of_table(shard: str) -> Iterator[tuple[str, Fields]]:
    table = rows_of(shard)
    columns = table.columns()
    for name, cells in columns.items():
        if classes := table.class_names(name):
            columns[name] = [classes[cell] if isinstance(cell, int) and cell >= 0 else None for cell in cells]
    for row in range(len(table)):
        yield f"{row:06d}", {name: _text(cells[row]) for name, cells in columns.items()}


def _of_archive(shard: str, others: list[str]) -> Iterator[tuple[str, Fields]]:
    members = members_of(shard)
    told: dict[str, dict[str, str]] = {}
    small = {name: place for name, place in members.items() if name.endswith((LABEL_FILE, FIELDS_FILE))}
    for name, content in texts_of(shard, small):
        told.setdefault(_key(name), {}).update(_fields(shard, name, content))
    pictures = [name for name in members if is_image(name)]
    in_shard = os.path.basename(shard)
    others += [f"{in_shard}/{name}" for name in members if name not in small and not is_image(name)]
    for name in pictures:
        yield name, told.get(_key(name), {})


def _key(name: str) -> str:
    """What the files of a sample have in common: the name up to the first dot, as in WebDataset."""
    folder, _, file = name.rpartition("/")
    return f"{folder}/{file.partition('.')[0]}"


def _fields(shard: str, name: str, content: bytes) -> dict[str, str]:
    try:
        if name.endswith(LABEL_FILE):
            return {"label": content.decode("utf-8").strip()}
        fields: Any = from_json(content)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise DataError(
            f"{name} in {shard} holds no {'text' if name.endswith(LABEL_FILE) else 'JSON object'}; mend it."
        )
    return {str(key): _text(value) for key, value in fields.items() if not isinstance(value, (dict, list))}


def _text(cell: Any) -> str:
    """A label or value as it is written in names: whole numbers without a point."""
    if cell is None or cell != cell:
        return ""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)
