"""Separated text (CSV and its like) as a header and rows of cells, each row with its line, and what cannot be read."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # how a text in it begins


class Lines(NamedTuple):
    """A table as it stands in a file."""

    header: list[str]
    rows: list[list[str]]
    lines: list[int]  # on which each row starts; the first line is 1
    uneven: dict[int, list[int]]  # lines of rows with another number of fields than the header, by that number
    unreadable: list[int]  # lines with a quotation mark that does not close


def read_lines(text: str, delimiter: str = "auto") -> Lines:
    """All rows that have as many fields as the header.

    >>> read_lines("a;b\\n1;2\\n3\\n")
    Lines(header=['a', 'b'], rows=[['1', '2']], lines=[2], uneven={1: [3]}, unreadable=[])
    """
    if not text.strip():
        return Lines([], [], [], {}, [])
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # else a long cell reads like an open quotation mark
    mark = guessed_delimiter(text) if delimiter == "auto" else DELIMITERS[delimiter]
    first = next(line for line in text.splitlines() if line.strip())
    # "a, b, c": the space belongs to the separator. Elsewhere a leading space is part of the cell, and may be a slip.
    spaced = mark in first and first.count(mark) == first.count(f"{mark} ")
    table = Lines([], [], [], defaultdict(list), [])
    for line, cells in _records(list(io.StringIO(text, newline="")), mark, spaced):
        if cells is None:
            table.unreadable.append(line)
        elif not table.header:
            table.header.extend(cell.strip() for cell in cells)
        elif len(cells) != len(table.header):
            table.uneven[len(cells)].append(line)
        else:
            table.rows.append(cells)
            table.lines.append(line)
    return table._replace(uneven=dict(table.uneven))


def _records(physical: list[str], mark: str, spaced: bool) -> Iterator[tuple[int, list[str] | None]]:
    """Line number and cells of each record that is not blank; None for cells that cannot be read.

    A quotation mark that does not close swallows the lines below it, so after a bad record reading resumes with the
    very next line: one slip is then one report, and the rows below it are not lost.
    """

    def reader_from(line: int) -> Any:
        return csv.reader(islice(physical, line, None), delimiter=mark, skipinitialspace=spaced, strict=True)

    start, width, reader = 0, 0, reader_from(0)
    while True:
        line = start + reader.line_num
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error:
            cells = None
        if cells is not None and not any(cells):
            continue
        width = width or len(cells or [])
        if cells is not None and start + reader.line_num > line + 1 and len(cells) != width:
            cells = None
        yield line + 1, cells
        if cells is None:
            start, reader = line + 1, reader_from(line + 1)


def guessed_delimiter(text: str) -> str:
    """The separator for which most of the first lines have as many fields as the header.

    >>> guessed_delimiter("a;b\\n1,5;2\\n3,1;4\\n"), guessed_delimiter("a,b\\n1,2\\n")
    (';', ',')
    """
    sample = [line for line in text[:100_000].splitlines() if line.strip()][:50]

    def agreement(mark: str) -> tuple[int, int]:
        widths = [len(row) for row in csv.reader(sample, delimiter=mark) if row]
        return (sum(w == widths[0] for w in widths), widths[0]) if widths[0] > 1 else (0, 0)

    return max(DELIMITERS.values(), key=agreement)
