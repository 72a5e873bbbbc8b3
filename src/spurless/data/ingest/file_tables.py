"""Tables of image files, such as metadata.csv: which columns hold what, and one sample for each row."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Annotated, NamedTuple

from spurless.core.errors import DataError, SettingError, unknown
from spurless.core.files import read_bytes
from spurless.data.ingest.delimited import UTF_16, read_lines
from spurless.data.ingest.files import files_below, inside, is_image
from spurless.data.ingest.labels import MISSING_MARKS
from spurless.data.ingest.listing import STRAY, Listing, Spellings
from spurless.data.ingest.problems import Kind, Problems
from spurless.data.ingest.splits import SPLIT_CODES, SPLIT_NAMES, SPLITS

# The columns of a table that are known by their names, most telling first.
FILE = ("img_filename", "file_name", "filename", "file", "path", "image_path", "image", "img")
LABEL = ("y", "label", "target", "class", "category")
SPLIT = ("split", "partition", "set")
ATTRIBUTE = ("place", "a", "bias", "attribute", "spurious", "confounder", "background")

UNDECODED = re.compile("[\udc80-\udcff]")  # what is left of bytes that are not UTF-8
NOT_UTF_8 = Kind("A table that is not UTF-8", "Save it as UTF-8 (spreadsheets offer 'CSV UTF-8'):")
UNREADABLE = Kind("A row that cannot be read", "Mend it or delete it:")
OUTSIDE = Kind("A file outside the folder", "List only files below the folder, without '..':")
MISSING = Kind("A file in the table that is not there", "Put it there, or delete its row:")
TWICE = Kind("A file that is listed twice", "Delete one of the rows:")
NO_SPLIT = Kind(
    "A split that is not known",
    "Write train, val or test (or 0, 1, 2), or say how yours are written with data.splits=[train's, val's, test's]:",
)
EMPTY = Kind(
    "A row without a label, attribute or file",
    "Fill it in, delete the row, write it in another way if NA or the like is a name, or name other columns with "
    "data.label, data.attribute and data.file:",
)


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The table of files, and which of its columns mean what; none: known by their names."""

    metadata: Annotated[str, "name of the table of files in the folder"] = "metadata.csv"
    file: Annotated[str | None, "the table's column of file names; none: found by itself"] = None
    label: Annotated[str | None, "the table's column of labels; none: found by itself, else the class folder"] = None
    attribute: Annotated[
        tuple[str, ...] | None, "the table's columns of bias attributes; none: found by itself; []: no attribute"
    ] = None
    split: Annotated[str | None, "the table's column of splits; none: found by itself"] = None
    splits: Annotated[tuple[str, ...], "how the table writes train, val and test, where not in a usual way"] = ()


class Row(NamedTuple):
    """A row of a table of files."""

    line: int
    file: str  # below the folder
    named: str  # as the table names it
    is_inside: bool
    is_there: bool
    label: str
    values: tuple[str, ...]
    split: str | None  # "": not given, None: not known
    split_text: str  # as the table writes it
    gap: str  # the first cell that is to be filled in; "": there is none


def from_tables(folder: Path, tables: dict[str, str], columns: Columns, problems: Problems) -> Listing:
    """Samples listed in a table in the folder, or in one in each of its split folders."""
    listing, lines, spellings = Listing(""), dict[str, int](), Spellings()
    total = absent = 0
    for below, split in tables.items():
        table = Table(folder, below, columns, split, problems)
        if listing.names and table.attributes != listing.attributes:
            raise DataError(
                f"{table.name} has other attribute columns than the tables beside it; give all of them the same."
            )
        listing.attributes, listing.layout = table.attributes, table.in_words
        listing.unused = [f"columns {', '.join(table.spare)}"] if table.spare else []
        for row in table.rows():
            where = f"{table.name}, line {row.line}"
            faults = list(_faults(row, lines))
            for kind, what in faults:
                problems.add(kind, f"{where}: {what}")
            if not faults:
                listing.add(row.file, row.label, row.values, row.split or "")
                spellings.add((row.label, *row.values), where)
            lines.setdefault(row.file, row.line)
            absent, total = absent + (not row.is_there), total + 1
    if absent and absent == total:
        raise DataError(
            f"Not one of the {total:,} files in {listing.layout} is below {folder}, beginning with "
            f"{next(iter(lines))}. Is it the right folder, and data.file the right column?"
        )
    spellings.report(problems)
    others = [name for name in files_below(folder) if is_image(name) and name not in lines]
    listing.not_used(others, "images that the table does not list")
    return listing


def _faults(row: Row, lines: dict[str, int]) -> Iterator[tuple[Kind, str]]:
    """What is wrong with a row; `lines` are those of the files listed so far."""
    if not row.is_inside and row.named.strip():
        yield OUTSIDE, row.file
    if not row.is_there:
        yield MISSING, row.file
    if row.is_inside and row.file in lines:
        yield TWICE, f"{row.file}, first in line {lines[row.file]}"
    if row.split is None:
        yield NO_SPLIT, repr(row.split_text)
    if row.gap:
        yield EMPTY, f"{row.file}, {row.gap}" if row.named.strip() else row.gap
    stray = [text for text in (row.label, *row.values) if text != text.strip()]
    if stray:
        yield STRAY, f"{stray[0]!r} of {row.file}"


class Table:
    """A table of files: which columns hold what, and its rows."""

    def __init__(self, folder: Path, below: str, ask: Columns, split: str, problems: Problems):
        self.folder, self.below, self.part = folder, below, split
        self.name = os.path.join(below, ask.metadata)
        self.header, self.cells, self.lines = read_table(folder / self.name, self.name, problems)
        if len(ask.splits) > len(SPLITS):
            raise SettingError(
                f"data.splits = {list(ask.splits)} is too long; it takes the words for train, val and test."
            )
        self.codes = SPLIT_CODES | {text.strip(): of for text, of in zip(ask.splits, SPLITS, strict=False)}
        # What is asked for by name is not found a second time, for something else.
        others = ["" if name in (ask.file, ask.label, ask.split) else name for name in self.header]

        def at(asked: str | None, usual: tuple[str, ...] = ()) -> int | None:
            return column(self.name, others if asked is None else self.header, asked, usual)

        file = at(ask.file, FILE)
        if file is None:
            names = ", ".join(self.header)
            raise DataError(f"Which column of {self.name} holds file names? Name it with data.file, one of: {names}.")
        self.file, self.label, self.split = file, at(ask.label, LABEL), at(ask.split, SPLIT)
        chosen = [at(None, ATTRIBUTE)] if ask.attribute is None else [at(name) for name in ask.attribute]
        self.values = [v for v in chosen if v is not None]
        self.attributes = tuple(self.header[v] for v in self.values)
        self._check_roles()

    def _check_roles(self) -> None:
        used = [k for k in (self.file, self.label, self.split, *self.values) if k is not None]
        if len(set(used)) < len(used):
            twice = self.header[Counter(used).most_common(1)[0][0]]
            raise SettingError(
                f"{self.name}: column '{twice}' has two roles; name different ones with data.file, data.label, "
                "data.split and data.attribute."
            )
        self.spare = [name for k, name in enumerate(self.header) if k not in used]

    @property
    def in_words(self) -> str:
        label = "the class folder" if self.label is None else self.header[self.label]
        split = self.part or "the folders, or drawn" if self.split is None else self.header[self.split]
        bias = " and ".join(self.attributes) or "none"
        return f"{self.name}: file = {self.header[self.file]}, label = {label}, attribute = {bias}, split = {split}"

    def rows(self) -> Iterator[Row]:
        for line, cells in zip(self.lines, self.cells, strict=True):
            named = cells[self.file]
            name = inside(self.folder / self.below, named)
            file = os.path.join(self.below, name or named)
            parents = PurePath(file).parts[:-1]
            split = SPLIT_NAMES.get(parents[0].lower(), "") if parents else ""
            label = parents[-1] if len(parents) > bool(split) else ""
            if self.label is not None:
                label = cells[self.label]
            yield Row(
                line=line,
                file=file,
                named=named,
                is_inside=name is not None,
                is_there=name is None or (self.folder / file).is_file(),
                label=label,
                values=tuple(cells[v] for v in self.values),
                split=self._split(cells, self.part or split),
                split_text="" if self.split is None else cells[self.split],
                gap=self._gap(cells, label),
            )

    def _split(self, cells: list[str], by_folder: str) -> str | None:
        if self.split is None:
            return by_folder
        text = cells[self.split].strip()
        return self.codes.get(text, SPLIT_CODES.get(text.lower()))

    def _gap(self, cells: list[str], label: str) -> str:
        """The first cell that is to be filled in, and its column. A class folder may be named NA."""
        needed = [at for at in (self.file, self.label, *self.values) if at is not None]
        gaps = [f"{cells[at]!r} as {self.header[at]}" for at in needed if cells[at].strip() in MISSING_MARKS]
        return next(iter(gaps), "" if label.strip() else "in no class folder")


def read_table(file: Path, name: str, problems: Problems) -> tuple[list[str], list[list[str]], list[int]]:
    """The column names, the rows and their lines; what cannot be read becomes problems."""
    text, odd = _decoded(read_bytes(file), name, problems)
    table = read_lines(text)
    if len(set(table.header)) < len(table.header) or not any(table.header):
        names = ", ".join(table.header)
        raise DataError(f"{name} needs one row of column names, each once, at its top; it has: {names}.")
    faults = [(line, "a quotation mark does not close") for line in table.unreadable]
    for count, lines in table.uneven.items():
        faults += [(line, f"it has {count} fields, and the table {len(table.header)} columns") for line in lines]
    for line, why in sorted(faults):
        if line not in odd:  # said once, of the whole table
            problems.add(UNREADABLE, f"{name}, line {line}: {why}")
    sound = [row for row, cells in enumerate(table.rows) if not UNDECODED.search("".join(cells))]
    return table.header, [table.rows[row] for row in sound], [table.lines[row] for row in sound]


def _decoded(data: bytes, name: str, problems: Problems) -> tuple[str, list[int]]:
    """The text, and the lines that hold bytes that are not UTF-8."""
    if data.startswith(UTF_16) or b"\0" in data[:4096]:
        raise DataError(f"{name} is not text in UTF-8; save it as CSV in UTF-8.")
    text = data.decode("utf-8-sig", "surrogateescape")
    odd = [line for line, content in enumerate(text.split("\n"), 1) if UNDECODED.search(content)]
    if odd:
        problems.add(NOT_UTF_8, f"{name}, line {odd[0]}" + f" and {len(odd) - 1:,} more" * (len(odd) > 1))
    if odd[:1] == [1]:
        problems.stop(name)  # nothing can be found under names that cannot be read
    return text, odd


def column(table: str, header: Sequence[str], asked: str | None, usual: Iterable[str] = ()) -> int | None:
    """Where a column is: the one asked for, else the first usual one.

    >>> column("metadata.csv", ["ID", "Label"], None, LABEL)
    1
    """
    if asked is not None:
        if asked not in header:
            raise SettingError(f"{table}: {unknown('column', asked, header)}")
        return header.index(asked)
    lower = [name.lower() for name in header]
    return next((lower.index(name) for name in usual if name in lower), None)
