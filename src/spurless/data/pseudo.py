"""Pseudo-attributes: group labels from a CSV file, such as the one that `spurless review` writes, for any dataset.

`data.attribute=FILE.csv` replaces the attributes of a dataset by the columns of the file. Its first columns are
`split`, `row` (the index in that split), `name` (of the sample, where samples have one) and `label`; every other column
is an attribute.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import torch

from spurless.core.data import Bundle, Split
from spurless.core.errors import DataError
from spurless.core.files import read_text
from spurless.core.messages import inert

KEYS = ("split", "row", "name", "label")  # how a sample is told; the columns after them are attributes
UNKNOWN = "unknown"  # the value of samples that the file does not hold


class Line(NamedTuple):
    label: str
    values: tuple[str, ...]


class Table(NamedTuple):
    """The file: its attributes, and a line for each sample, found by its place or by its name."""

    attributes: tuple[str, ...]
    by_place: dict[tuple[str, int], Line]
    by_name: dict[str, Line]  # only names that the file holds once


def split_settings(given: Mapping[str, Any]) -> tuple[dict[str, Any], Path | None]:
    """The settings without a file of pseudo-attributes, and that file.

    >>> split_settings({"size": 64, "attribute": "place"})
    ({'size': 64, 'attribute': 'place'}, None)
    """
    value = given.get("attribute")
    if not isinstance(value, (str, Path)) or not str(value).endswith(".csv"):
        return dict(given), None
    return {k: v for k, v in given.items() if k != "attribute"}, Path(value).expanduser().resolve()


def with_attributes(data: Bundle, file: str | Path, keep: bool = False) -> Bundle:
    """The dataset with the attributes of the file in place of its own; `keep`: beside those of other names.

    Samples that the file does not hold have the value "unknown". Samples are told by their names and, where they have
    none, by their place; a label that differs from the file's is refused, because it is then a file of other data.
    """
    table = read_table(Path(file))
    lines = {
        split_name: [_line(table, split_name, split, i) for i in range(len(split))]
        for split_name, split in data.splits.items()
    }
    _check_labels(data, lines, Path(file))
    total, missing = (sum(many) for many in zip(*((len(of), of.count(None)) for of in lines.values()), strict=True))
    if all(line is None for line in lines["train"]):
        raise DataError(f"{file} holds no training sample of {data.name}: it was made from other data.")
    seen = [line.values for of in lines.values() for line in of if line is not None]
    values = []
    for k in range(len(table.attributes)):
        names = sorted({v[k] for v in seen if v[k]})
        values.append((*names, UNKNOWN) if missing or any(not v[k] for v in seen) else tuple(names))
    places = [{value: n for n, value in enumerate(of)} for of in values]
    codes = {
        split_name: torch.tensor(
            [[at[(line.values[k] if line else "") or UNKNOWN] for k, at in enumerate(places)] for line in of]
        )
        for split_name, of in lines.items()
    }
    note = f"{missing:,} of {total:,} samples are not in {Path(file).name}: '{UNKNOWN}'" if missing else ""
    return _attached(data, codes, table.attributes, tuple(values), note, keep)


def read_table(file: Path) -> Table:
    """The lines of the file."""
    try:
        lines = list(csv.reader(StringIO(read_text(file).lstrip("\ufeff"), newline=""), strict=True))
    except OSError as error:
        raise DataError(f"{file} cannot be read ({error.strerror}).") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{file} is not a CSV file in UTF-8 ({error}).") from None
    head, rows = (lines[0], [line for line in lines[1:] if line]) if lines else ([], [])
    if tuple(head[:4]) != KEYS:
        raise DataError(
            f"{file} does not begin with the columns {', '.join(KEYS)}; `spurless review` writes such files."
        )
    names = tuple(head[4:])
    if not names or len(set(names)) < len(names) or not all(names):
        raise DataError(
            f"{file} holds no attribute, or two of one name. Call at least one finding a shortcut in `spurless review`."
        )
    by_place, by_name, twice = dict[tuple[str, int], Line](), dict[str, Line](), set[str]()
    for number, row in enumerate(rows, start=2):
        if len(row) != len(head) or not row[1].isdecimal():
            raise DataError(f"{file}: row {number} has {len(row)} cells, or no number in the column row; mend it.")
        line = Line(row[3], tuple(row[4:]))
        by_place[row[0], int(row[1])] = line
        twice |= {row[2]} & by_name.keys()
        by_name[row[2]] = line
    return Table(names, by_place, {name: line for name, line in by_name.items() if name and name not in twice})


def _line(table: Table, split_name: str, split: Split, i: int) -> Line | None:
    """The file's line on a sample: of its name, or of its place where samples have no names of their own."""
    if split.names is None:
        return table.by_place.get((split_name, i))
    name = spelt(split.names[i])
    line = table.by_name.get(name)
    return line if line is not None or table.by_name else table.by_place.get((split_name, i))


def spelt(name: object) -> str:
    """A name as the file holds it: names need not be valid Unicode, and no spreadsheet may run one."""
    return str(inert(str(name).encode("utf-8", "backslashreplace").decode()))


def _check_labels(data: Bundle, lines: Mapping[str, list[Line | None]], file: Path) -> None:
    for split_name, split in data.splits.items():
        for i, line in enumerate(lines[split_name]):
            label = data.classes[int(split.y[i])]
            if line is not None and line.label != spelt(label):
                raise DataError(
                    f"{file} calls sample {i} of the {split_name} split '{line.label}', but its label is '{label}': "
                    "the file was made from other data or other settings. Run the audit and the review again."
                )


def _attached(
    data: Bundle,
    codes: Mapping[str, torch.Tensor],
    names: tuple[str, ...],
    values: tuple[tuple[str, ...], ...],
    note: str,
    keep: bool,
) -> Bundle:
    """`aligned` is left to be counted anew: which values go with which classes is what the training samples say."""
    keep = keep and bool(data.attributes) and all(split.a is not None for split in data.splits.values())
    own = [k for k, name in enumerate(data.attributes) if keep and name not in names]
    splits: dict[str, Any] = {}
    for split_name, split in data.splits.items():
        both = (
            torch.cat([split.a[:, own], codes[split_name]], dim=1) if own and split.a is not None else codes[split_name]
        )
        splits[split_name] = replace(split, a=both)
    return replace(
        data,
        **splits,
        attributes=(*(data.attributes[k] for k in own), *names),
        values=(*(data.values[k] for k in own), *values),
        aligned=(),
        notes=(*data.notes, note) if note else data.notes,
    )
