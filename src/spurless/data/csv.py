"""`csv:FILE`: a table of the user's own.

Input     every column that is not the label, the split or ignored: numbers standardised, all else one-hot. With
          data.text, the text in that column (or the pair in two) and nothing else.
Label     the column named by data.label.
Bias      the columns named by data.attribute, any number of them; a numeric one with more than ten different values is
          cut into bands of equal count.
Splits    a column that says train, val or test (or 0, 1, 2), else a seeded split, stratified by class and attribute.
Files     comma, semicolon, tab or pipe separated text with a header, plain or gzipped, or Parquet (needs pyarrow).
Left out  a column that only counts the rows, or holds a different text in every row; data.keep keeps it.
Choices   What cannot be read without guessing is reported with its line and its remedy, all of it in one go. What is
          left out or filled in is in the notes of the data set. The bias attribute stays among the inputs unless
          data.drop_attribute=true.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import io
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from spurless.core.data import Bundle
from spurless.core.errors import DataError, UserError, first_line
from spurless.core.files import data_root, read_bytes
from spurless.core.settings import Range
from spurless.data import coding
from spurless.data.ingest import table as tables
from spurless.data.ingest.scored import is_only_scored
from spurless.data.ingest.texts import Length, Tokenizer, from_fields

if TYPE_CHECKING:
    from pandas import DataFrame, Series

DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
LABEL_NAMES = ("y", "label", "target", "class")
SPLIT_NAMES = {
    **dict.fromkeys(("train", "training", "0"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev", "1"), "val"),
    **dict.fromkeys(("test", "testing", "2"), "test"),
}
MISSING_MARKS = ("", "?", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
BANDED_ABOVE = 10  # different values of a numeric attribute
# How files begin that are no text: zip and Excel, Feather, HDF5, old Excel, bzip2, xz, Zstandard.
NOT_TEXT = re.compile(rb"PK\x03\x04|ARROW1|FEA1|\x89HDF|\xd0\xcf\x11\xe0|BZh\d1AY&SY|\xfd7zXZ|\x28\xb5\x2f\xfd")
UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # how a text in it begins
PLAIN_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)", re.ASCII)
THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")
SENTENCE = 4  # words that a column of text has on average, or more


def load(
    path: str | Path,
    root: Path | None = None,
    *,
    label: Annotated[str | None, "the column to predict; none: the one called y, label, target or class"] = None,
    attribute: Annotated[tuple[str, ...], "the column or columns that hold a bias attribute"] = (),
    split: Annotated[str | None, "the column that says train, val or test; none: `split`, else it is drawn"] = None,
    fractions: Annotated[tuple[float, ...], "shares of train, val, test, where drawn", Range(0, 1)] = (0.6, 0.2, 0.2),
    ignore: Annotated[tuple[str, ...], "columns that are not given to the model"] = (),
    categorical: Annotated[tuple[str, ...], "columns of numbers that are codes, not quantities"] = (),
    keep: Annotated[tuple[str, ...], "columns that stay inputs though they count the rows or differ in each"] = (),
    drop_attribute: Annotated[bool, "take the bias attributes out of the inputs"] = False,
    bands: Annotated[int, "bands that a numeric attribute of many values is cut into", Range(2, 100)] = 4,
    max_categories: Annotated[int, "values of a column that get an input of their own", Range(1)] = 100,
    missing: Annotated[tuple[str, ...], "texts that stand for a missing value"] = MISSING_MARKS,
    delimiter: Annotated[Literal["auto", "comma", "semicolon", "tab", "pipe"], "what separates columns"] = "auto",
    decimal: Annotated[Literal["point", "comma"], "how numbers are written"] = "point",
    encoding: Annotated[str, "character encoding of the file"] = "utf-8",
    spellings: Annotated[
        Literal["error", "merge", "keep"],
        "labels or attribute values that differ only by spaces or letter case, or as 1 and 1.0 do",
    ] = "error",
    duplicates: Annotated[
        Literal["error", "keep", "drop"], "equal rows in two splits; drop: keep only the one in test, or in val"
    ] = "error",
    skip_broken: Annotated[bool, "leave out rows that cannot be read or have no label"] = False,
    text: Annotated[tuple[str, ...], "the column of texts, or the two of pairs, that the model reads"] = (),
    tokenizer: Tokenizer = "minilm",
    length: Length = 128,
    seed: Annotated[int, "of the split, where it is drawn", Range(0)] = 0,
) -> Bundle:
    """The table in the file, or one error that lists everything that is wrong with it."""
    settings = {k: v for k, v in locals().items() if k not in ("path", "root")}
    import pandas as pd

    tables.check_fractions(fractions)
    if text and drop_attribute:
        raise UserError("data.drop_attribute=true changes nothing beside data.text: the texts are the only input.")
    file = locate(path, root)
    found = Findings(file.name, skip_broken)
    raw, lines = read(file, delimiter, encoding, found)
    columns = list(raw.columns)
    label = label or _usual("label", LABEL_NAMES, columns, found) or ""
    split = split or _usual("split", ("split",), columns, found)
    roles = {"label": [label], "attribute": attribute, "split": [split] if split else [], "ignore": ignore}
    roles["text"] = text
    _check_names(columns, {**roles, "categorical": categorical, "keep": keep}, found)
    raw, lines = _labelled(raw, lines, label, missing, found)
    raw, lines = _with_texts(raw, lines, text, found)

    cells = {c: raw[c].str.strip() for c in columns}
    gaps = {c: cells[c].isin(missing).to_numpy() for c in columns}
    typed = {
        c: _typed(cells[c], gaps[c], lines, c in categorical or c in coding.of_words(), decimal, found)
        for c in columns
        if c not in (label, split, *text) and (c not in ignore or c in attribute) and (not text or c in attribute)
    }
    # Codes may differ by a zero, and of a quantity only its band is named.
    as_texts = {*categorical, *(a for a in attribute if _is_banded(typed[a]))}
    named = {c: _named(raw[c], gaps[c], lines, spellings, c in as_texts, found) for c in [label, *attribute]}
    _check_classes(named[label], label, found)
    typed |= {c: raw[c] for c in text}
    asked = {*keep, *coding.columns_read()}
    inputs = list(text) or _inputs([c for c in typed if c not in ignore], typed, columns, lines, asked, found)
    for c in inputs if not text else ():
        _say_if_text(raw[c], found)
        if len(set(named[label])) > 1 and _gives_away(typed[c], named[label]):
            found.say(f"column '{c}' alone gives the label of every row; if it is the label itself, data.ignore it")

    fields = [tables.Field(label, named[label], (label,))]
    fields += [_attribute(a, named[a], typed[a], bands, found) for a in attribute]
    if split:
        part = _given_split(raw[split], lines, named[label], found)
    elif is_only_scored():
        part = np.full(len(raw), "train", dtype=object)
    else:
        part = tables.stratified(np.stack([tables.codes(f.values)[0] for f in fields], axis=1), fractions, seed)
        found.say(f"split drawn with seed {seed}, stratified by class" + (" and attribute" if attribute else ""))
    rows = pd.DataFrame({c: typed[c] for c in inputs}).assign(**{f"named {c}": v for c, v in named.items()})
    kept = _apart(rows, part, lines, duplicates if split or duplicates == "drop" else "note", found)
    found.report()

    if text:
        at = np.flatnonzero(kept)
        return from_fields(
            f"csv:{file.name}",
            [raw[c].iloc[at].tolist() for c in text],
            fields[0].rows(kept),
            [f.rows(kept) for f in fields[1:]],
            part[kept],
            tokenizer=tokenizer,
            length=length,
            rows=[f"line {n}" for n in lines[kept].tolist()],
            notes=tuple(found.notes),
            settings=settings,
        )
    return tables.to_bundle(
        pd.DataFrame({c: typed[c] for c in inputs})[kept],
        fields[0].rows(kept),
        [f.rows(kept) for f in fields[1:]],
        part[kept],
        name=f"csv:{file.name}",
        drop_attribute=drop_attribute,
        categorical=categorical,
        max_categories=max_categories,
        keep_columns=keep,
        rows=[f"line {n}" for n in lines[kept].tolist()],
        notes=found.notes,
        settings=settings,
    )


class Findings:
    """What is wrong with a file, gathered so that it is reported in one go, and what a result on it must say."""

    def __init__(self, name: str, skip_broken: bool = False):
        self.name, self.skip_broken = name, skip_broken
        self.problems: list[tuple[int, str]] = []  # line, message
        self.notes: list[str] = []

    def say(self, note: str) -> None:
        self.notes.append(note)

    def wrong(self, what: str, remedy: str, lines: Iterable[int] = ()) -> None:
        at = sorted(int(n) for n in lines)
        self.problems.append((at[0] if at else 0, f"{in_words(at)}: {what}; {remedy}." if at else f"{what}; {remedy}."))

    def broken(self, what: str, remedy: str, lines: Iterable[int]) -> None:
        """Rows that cannot be used: left out when that was asked for, else a problem."""
        lines = list(lines)
        if not lines:
            return
        if self.skip_broken:
            self.say(f"left out {len(lines):,} row{'s' * (len(lines) > 1)}, {what}: {in_words(lines)}")
        else:
            self.wrong(what, f"{remedy}, or leave such rows out with data.skip_broken=true", lines)

    def report(self) -> None:
        """Raise what was found, if anything was."""
        if self.problems:
            count = "1 thing" if len(self.problems) == 1 else f"{len(self.problems)} things"
            listed = [f"  {message}" for _, message in sorted(self.problems, key=lambda p: p[0])]
            raise UserError("\n".join([f"{self.name}: {count} to mend.", *listed]))


def in_words(lines: Sequence[int], most: int = 10) -> str:
    """Line numbers for a message.

    >>> in_words([7]), in_words([3, 9]), in_words(list(range(2, 30)), most=3)
    ('line 7', 'lines 3, 9', 'lines 2, 3, 4 and 25 more')
    """
    shown = ", ".join(str(int(n)) for n in lines[:most])
    more = f" and {len(lines) - most} more" if len(lines) > most else ""
    return f"line{'s' * (len(lines) > 1)} {shown}{more}"


# Reading


def locate(path: str | Path, root: Path | None) -> Path:
    """The file as named, or under the data root."""
    named = Path(path).expanduser()
    for file in (named, data_root(root) / named):
        if file.is_file():
            return file
    raise UserError(f"There is no file '{named}', neither here nor in the data root {data_root(root)}.")


def read(file: Path, delimiter: str, encoding: str, found: Findings) -> tuple[DataFrame, np.ndarray]:
    """All cells as text, and the line that each row starts on (1 is the header)."""
    import pandas as pd

    try:
        data = read_bytes(file)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}.") from None
    if data[:4] == b"PAR1":
        table, lines = _from_parquet(data, found)
    else:
        header, rows, starts = _from_text(_decoded(data, encoding, found), delimiter, found)
        table, lines = pd.DataFrame(rows, columns=header, dtype=object), np.array(starts, dtype=np.int64)
    if not len(table):
        found.wrong("there are no rows below the header", "add some")
        found.report()
    return table, lines


def _from_parquet(data: bytes, found: Findings) -> tuple[DataFrame, np.ndarray]:
    import pandas as pd

    try:
        frame = pd.read_parquet(io.BytesIO(data))
    except ImportError:
        raise UserError(
            f"{found.name} is a Parquet file, which needs pyarrow: pip install pyarrow, or save it as CSV."
        ) from None
    except Exception as error:  # each engine has exceptions of its own
        raise UserError(f"{found.name} is not a whole Parquet file ({error}); write it again.") from None
    # pandas keeps an index apart from the columns; one with a name is a column to whoever wrote it.
    index = [frame.index.get_level_values(k) for k, name in enumerate(frame.index.names) if name is not None]
    header = [str(name) for name in (*(level.name for level in index), *frame.columns)]
    _check_header(header, found)
    frame = pd.concat([*(level.to_series(range(len(frame))) for level in index), frame.reset_index(drop=True)], axis=1)
    try:
        texts = frame.astype(object).where(frame.notna(), "").astype(str).astype(object)
    except (UnicodeDecodeError, ValueError) as error:  # bytes, or lists in a cell
        raise DataError(f"{found.name} has a column that is neither text nor numbers ({first_line(error)}).") from None
    return texts.set_axis(header, axis=1), np.arange(len(frame)) + 2


def _check_header(header: Sequence[str], found: Findings, lines: Sequence[int] = ()) -> None:
    """Two columns of one name end the reading: which is meant cannot be said."""
    for name, times in Counter(header).items():
        if times > 1:
            found.wrong(f"{times} columns are called '{name}'", "give each a name of its own", lines)
    if len(set(header)) < len(header):
        found.report()


def _decoded(data: bytes, encoding: str, found: Findings) -> str:
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(f"{found.name} is not a whole gzip file ({error}); copy it again.") from None
    no_text = UserError(
        f"{found.name} is no text. csv: reads comma, semicolon, tab or pipe separated text, plain or gzipped, and "
        "Parquet: save the table as one of these, or say data.encoding=utf-16 if it is text in that."
    )
    if NOT_TEXT.match(data):
        raise no_text
    try:
        text = data.decode("utf-8-sig" if encoding.lower() in ("utf-8", "utf8") else encoding)
    except LookupError:
        raise UserError(f"data.encoding = '{encoding}' is no known encoding; try utf-8, latin-1 or utf-16.") from None
    except UnicodeDecodeError as error:
        line, in_utf_16 = data.count(b"\n", 0, error.start) + 1, data.startswith(UTF_16)
        if b"\0" in data[:4096] and not in_utf_16:
            raise no_text from None
        raise UserError(
            f"{found.name}, line {line}: the text is not {encoding}. Save the file as UTF-8, or name its encoding, "
            f"such as data.encoding={'utf-16' if in_utf_16 else 'latin-1'}."
        ) from None
    if "\0" in text[:4096]:
        raise no_text
    return text


def _from_text(text: str, delimiter: str, found: Findings) -> tuple[list[str], list[list[str]], list[int]]:
    if not text.strip():
        raise UserError(f"{found.name} is empty; it needs a header with column names, and rows.")
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # else a long cell reads like an open quotation mark
    mark = _delimiter(text) if delimiter == "auto" else DELIMITERS[delimiter]
    first = next(line for line in text.splitlines() if line.strip())
    # "a, b, c": the space belongs to the separator. Elsewhere a leading space is part of the cell, and may be a slip.
    spaced = mark in first and first.count(mark) == first.count(f"{mark} ")
    header: list[str] = []
    rows: list[list[str]] = []
    lines: list[int] = []
    uneven: dict[int, list[int]] = defaultdict(list)  # by number of fields
    unreadable: list[int] = []
    for line, row in _records(list(io.StringIO(text, newline="")), mark, spaced):
        if row is None:
            unreadable.append(line)
        elif not header:
            header = [cell.strip() for cell in row]
        elif len(row) != len(header):
            uneven[len(row)].append(line)
        else:
            rows.append(row)
            lines.append(line)

    for count, at in uneven.items():
        fields = f"{count} field{'s' * (count > 1)} where the header has {len(header)}"
        found.broken(fields, "mend the row, and put quotes round a cell that holds the separator", at)
    found.broken("a quotation mark that does not close", "close it, or double it inside a cell", unreadable)
    if all(_number(cell) is not None for cell in header):
        found.wrong("the first line holds numbers, not column names", "put a line with names above it", [1])
    _check_header(header, found, [1])
    return header, rows, lines


def _records(physical: list[str], mark: str, spaced: bool) -> Iterator[tuple[int, list[str] | None]]:
    """Line number and cells of each record that is not blank; None for cells that cannot be read.

    A quotation mark that does not close swallows the lines below it, so after a bad record reading goes on with the
    very next line: one slip is then one report, and the rows below it are not lost.
    """
    at, width = 0, 0
    while at < len(physical):
        reader = csv.reader(
            (physical[i] for i in range(at, len(physical))), delimiter=mark, skipinitialspace=spaced, strict=True
        )
        start = at
        while True:
            line = start + reader.line_num
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error:
                row = None
            if row is not None and not any(row):
                continue
            width = width or len(row or [])
            swallowed = start + reader.line_num > line + 1
            if row is not None and swallowed and len(row) != width:
                row = None
            yield line + 1, row
            if row is None:
                at = line + 1
                break


def _delimiter(text: str) -> str:
    """The separator for which most of the first lines have as many fields as the header.

    >>> _delimiter("a;b\\n1,5;2\\n3,1;4\\n"), _delimiter("a,b\\n1,2\\n")
    (';', ',')
    """
    sample = [line for line in text[:100_000].splitlines() if line.strip()][:50]

    def agreement(mark: str) -> tuple[int, int]:
        widths = [len(row) for row in csv.reader(sample, delimiter=mark) if row]
        return (sum(w == widths[0] for w in widths), widths[0]) if widths[0] > 1 else (0, 0)

    return max(DELIMITERS.values(), key=agreement)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


# What each column is


def _usual(role: str, usual: Sequence[str], columns: Sequence[str], found: Findings) -> str | None:
    """The column that has a usual name for this role; said in a note, because nobody asked for it."""
    here = [c for c in columns if c.lower() in usual]
    if len(here) == 1:
        found.say(f"column '{here[0]}' taken as the {role}")
        return here[0]
    if role == "label":
        remedy = f"say data.label=NAME with one of: {', '.join(columns)}"
        found.wrong(f"the label is not known: no single column is called {', '.join(usual)}", remedy)
    return None


def _check_names(columns: list[str], roles: dict[str, Sequence[str]], found: Findings) -> None:
    """Unknown and clashing names end the reading here: nothing beyond can be checked without them."""
    for role, names in roles.items():
        for name in names:
            if name and name not in columns:
                folded = {c.casefold(): c for c in columns}
                near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.5)
                hint = f"did you mean '{folded[near[0]]}'? " if near else ""
                found.wrong(
                    f"there is no column '{name}' (data.{role})", f"{hint}the columns are: {', '.join(columns)}"
                )
    special = [n for role in ("label", "split", "attribute", "text") for n in roles[role] if n]
    for name, times in Counter(special).items():
        if times > 1:
            found.wrong(f"column '{name}' has two roles", "name different ones for label, attribute, split and text")
    if not roles["label"][0] or any(n not in columns for names in roles.values() for n in names if n):
        found.report()
    if len(set(special)) < len(special):
        found.report()


def _labelled(
    raw: DataFrame, lines: np.ndarray, label: str, missing: Sequence[str], found: Findings
) -> tuple[DataFrame, np.ndarray]:
    cells = raw[label].str.strip()
    without = cells.isin(missing).to_numpy()
    for mark in sorted(set(cells[without])):
        shown = f" ('{mark}')" if mark else ""
        remedy = "fill it in, or take it out of data.missing if it is a class" if mark else "fill it in"
        found.broken(f"no label{shown} in column '{label}'", remedy, lines[(cells == mark).to_numpy()])
    if without.all():
        found.wrong(f"column '{label}' is empty", "name another one with data.label")
        found.report()
    return raw[~without].reset_index(drop=True), lines[~without]


def _with_texts(
    raw: DataFrame, lines: np.ndarray, text: Sequence[str], found: Findings
) -> tuple[DataFrame, np.ndarray]:
    """The rows that hold a text, or both of a pair. A word for a missing value may well be a text."""
    if len(text) > 2 or len(set(text)) < len(text):
        found.wrong(f"data.text names {len(text)} columns", "name one, or the two of a pair of sentences")
        found.report()
    keep = np.ones(len(raw), bool)
    for column in text:
        empty = (raw[column].str.strip() == "").to_numpy()
        found.broken(f"no text in column '{column}'", "fill it in", lines[empty & keep])
        keep &= ~empty
    return raw[keep].reset_index(drop=True), lines[keep]


def _say_if_text(column: Series, found: Findings) -> None:
    """A column of sentences would be left out, as one in which every row differs: say how it can be read."""
    words = column.iloc[:200].str.split().str.len()
    if words.mean() >= SENTENCE and column.iloc[:200].nunique() > 0.5 * len(words):
        found.say(f"column '{column.name}' holds text, which a model reads with data.text={column.name}")


def spelling(text: str) -> Hashable:
    """What texts have in common that differ only by spaces or letter case, or as numbers are written.

    >>> spelling("Old  car ") == spelling("old car"), spelling("1.0") == spelling("1"), spelling("1.5") == spelling("1")
    (True, True, False)
    """
    text = " ".join(text.split()).casefold()
    # A float would make one of two long numbers that differ in the last digit.
    return Decimal(text) if PLAIN_NUMBER.fullmatch(text) else text


def _named(
    column: Series, gap: np.ndarray, lines: np.ndarray, spellings: str, as_texts: bool, found: Findings
) -> np.ndarray:
    """(n,) of names, None where missing. Names that differ only by spaces, case or, unless they are compared
    `as_texts`, as numbers are written, are one mistake or one wish."""
    texts = column.to_numpy(dtype=object, copy=True)
    texts[gap] = None
    if spellings == "keep":
        return texts
    counts = Counter(t for t in texts if t is not None)
    alike: dict[Hashable, list[str]] = defaultdict(list)
    for text, _ in counts.most_common():
        alike[" ".join(text.split()).casefold() if as_texts else spelling(text)].append(text)
    mended: dict[str | None, str] = {}
    for group in alike.values():
        main = " ".join(group[0].split())
        for text in group:
            if text == main:
                continue
            mended[text] = main
            if spellings == "error":
                spaces = " ".join(text.split()) == main
                how = f"has stray spaces, for '{main}'" if spaces else f"is '{main}' in another spelling"
                found.wrong(
                    f"'{text}' in column '{column.name}' {how}",
                    "write it alike everywhere, or say data.spellings=merge (keep: they are different)",
                    lines[texts == text],
                )
    if mended and spellings == "merge":
        changed = sum(counts[t] for t in mended if t is not None)
        found.say(f"{changed:,} values of '{column.name}' respelt: " + ", ".join(f"'{t}'" for t in mended))
    return np.array([mended.get(t, t) for t in texts], dtype=object)


def _check_classes(names: np.ndarray, label: str, found: Findings) -> None:
    kinds = set(names)
    if len(kinds) < 2 and not is_only_scored():
        found.wrong(f"column '{label}' holds only '{next(iter(kinds), '')}'", "a label needs two classes or more")
    numbers = [_number(k) for k in kinds]
    quantity = None not in numbers and any(v is not None and v != int(v) for v in numbers)
    if len(kinds) > 20 and (quantity or len(kinds) > len(names) / 2):
        found.wrong(
            f"column '{label}' holds {len(kinds):,} different values in {len(names):,} rows: not a class",
            "name another column with data.label, or put its values into bands first",
        )


def _typed(texts: Series, gap: np.ndarray, lines: np.ndarray, as_codes: bool, decimal: str, found: Findings) -> Series:
    """Numbers as float64, all else as text, missing cells as NaN or None."""
    import pandas as pd

    known = texts.where(~gap, None)
    if as_codes:
        return known
    pointed = known.str.replace(",", ".", regex=False)
    numbers = pd.to_numeric(pointed if decimal == "comma" else known, errors="coerce").astype(np.float64)
    fits = np.isfinite(numbers.to_numpy())
    if fits.sum() == (~gap).sum():
        return numbers
    if fits.sum() < 0.9 * (~gap).sum():
        example = _in_thousands(known[~gap]) if decimal == "point" else None
        if example:
            found.wrong(
                f"column '{texts.name}' holds numbers with commas, such as '{example}', that may separate thousands",
                "if they do, take them out of the file; if they are decimal commas, say data.decimal=comma; "
                f"if the numbers are codes, data.categorical=['{texts.name}']",
            )
        elif decimal == "point" and np.isfinite(pd.to_numeric(pointed[~gap], errors="coerce")).all():
            found.wrong(
                f"column '{texts.name}' holds numbers with a decimal comma",
                f"say data.decimal=comma, or data.categorical=['{texts.name}'] if they are codes",
            )
        return known
    odd = ~fits & ~gap
    shown = ", ".join(f"'{t}'" for t in dict.fromkeys(texts[odd][:3]))
    found.wrong(
        f"{shown} in column '{texts.name}', whose other values are numbers",
        f"mend it, add it to data.missing, or say data.categorical=['{texts.name}']",
        lines[odd],
    )
    return known


def _in_thousands(texts: Series) -> str | None:
    """The first of the texts with a comma, where all are numbers once the commas, each before three digits, are out."""
    with_comma = [text for text in texts if "," in text]
    others = (text for text in texts if "," not in text)
    fits = all(map(THOUSANDS.fullmatch, with_comma)) and all(_number(text) is not None for text in others)
    return with_comma[0] if with_comma and fits else None


def _inputs(
    names: list[str], typed: dict[str, Series], columns: list[str], lines: np.ndarray, keep: set[str], found: Findings
) -> list[str]:
    """The columns that the model sees. A row number is not one: in a sorted file it gives the label away."""
    kept, counting = [], []
    for name in names:
        if name not in keep and _counts_rows(typed[name], lines, sure=name == ""):
            said = f"{name} (data.keep={name} keeps it)" if name else "the column without a name"
            found.say(f"left out, it only counts the rows: {said}")
            counting += [name] * bool(name)
        elif name == "":
            found.wrong(f"column {columns.index('') + 1} has no name", "give it one in the header")
        else:
            kept.append(name)
    if not kept:
        hint = f", or keep '{counting[0]}', which only counts the rows, with data.keep" if counting else ""
        found.wrong("no column is left to learn from", f"check data.ignore{hint}")
    return kept


def _counts_rows(column: Series, lines: np.ndarray, sure: bool) -> bool:
    """Up or down from any number: an id may begin at 10001. A table with a row for every year looks the same."""
    if column.dtype.kind != "f" or len(column) < 2 or not (sure or len(column) >= coding.TELLING):
        return False
    steps = np.diff(column.to_numpy())
    return any((steps == each).all() for each in (1, -1, np.diff(lines), -np.diff(lines)))


def _gives_away(column: Series, labels: np.ndarray) -> bool:
    """Whether each value of a column goes with one label only, and has rows enough for that to mean something."""
    import pandas as pd

    values = pd.Series(labels).groupby(column.to_numpy(), dropna=False)
    return values.ngroups <= len(labels) / 5 and values.nunique().max() == 1


def _is_banded(column: Series) -> bool:
    return column.dtype.kind == "f" and column.nunique() > BANDED_ABOVE


def _attribute(name: str, names: np.ndarray, column: Series, bands: int, found: Findings) -> tables.Field:
    if not _is_banded(column):
        return tables.Field(name, names, (name,))
    least, next_to_it = np.sort(column.dropna().unique())[:2]
    edges = np.unique(np.nanquantile(column, np.linspace(0, 1, bands + 1)[1:-1]))
    alone = edges[0] == least  # it fills a band or more, and a band that begins with it would swallow the others
    values, order = tables.bands(column, [float(e) for e in np.maximum(edges, next_to_it if alone else least)])
    if alone:
        text = tables.written([least, next_to_it])[0]
        values[(column == least).to_numpy()] = text
        order = (text, *order[1:])
    order = tuple(band for band in order if band in set(values))
    found.say(f"bias attribute '{name}' in bands: {', '.join(order)}")
    return tables.Field(name, values, (name,), order)


# Splits


def _given_split(column: Series, lines: np.ndarray, labels: np.ndarray, found: Findings) -> np.ndarray:
    """(n,) of train, val, test. A class that is never trained on cannot be scored."""
    part = np.array([SPLIT_NAMES.get(t.strip().lower()) for t in column], dtype=object)
    unknown = np.array([p is None for p in part])
    if unknown.any():
        shown = ", ".join(f"'{t}'" for t in dict.fromkeys(column[unknown][:5]))
        found.wrong(f"{shown} in column '{column.name}' is no split", "write train, val or test", lines[unknown])
    if not (part == "train").any():
        if is_only_scored() and not unknown.any():
            found.say(f"column '{column.name}' gives no row to train: all rows are scored together")
            return np.full(len(part), "train", dtype=object)
        found.wrong(f"column '{column.name}' gives no row to train", "mark rows with train")
        return part
    trained = set(labels[part == "train"])
    for name in tables.codes(labels)[1]:
        if name not in trained:
            where = sorted({str(p) for p in part[labels == name] if p})
            found.wrong(
                f"class '{name}' stands in {' and '.join(where)} but not in train",
                "move some of its rows to train, or take it out",
                lines[labels == name],
            )
    return part


def _apart(rows: DataFrame, part: np.ndarray, lines: np.ndarray, rule: str, found: Findings) -> np.ndarray:
    """(n,) bool: the rows to keep. Rows alike in every column that is used must not stand in two splits unnoticed."""
    import pandas as pd

    keep = np.ones(len(rows), bool)
    filled = pd.DataFrame({c: v if v.dtype.kind == "f" else v.fillna(tables.MISSING) for c, v in rows.items()})
    same = pd.util.hash_pandas_object(filled, index=False).to_numpy()
    rank = np.array([tables.SPLITS.index(p) if p else 0 for p in part])
    places = pd.Series(rank).groupby(same)
    last = places.transform("max").to_numpy()
    repeated = rank < last  # a later split holds the same row
    if not repeated.any() or rule == "keep":
        return keep
    if rule == "drop":
        found.say(f"{repeated.sum():,} rows left out because a later split holds the same one")
        return ~repeated
    if rule == "note":
        held = (rank > places.transform("min")).sum()
        found.say(f"{held:,} val or test rows are equal to a row of an earlier split in all columns")
        return keep
    pairs = []
    for i in np.flatnonzero(repeated)[:5]:
        j = np.flatnonzero((same == same[i]) & (rank == last[i]))[0]
        pairs.append(f"line {lines[i]} ({part[i]}) = line {lines[j]} ({part[j]})")
    more = f" and {repeated.sum() - 5:,} more" if repeated.sum() > 5 else ""
    found.wrong(
        f"equal rows in two splits: {', '.join(pairs)}{more}",
        "take them out of one, or say data.duplicates=drop, or keep if they are different cases",
    )
    return keep
