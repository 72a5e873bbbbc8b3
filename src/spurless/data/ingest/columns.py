"""The columns of a user's table: their roles, types and names. What cannot be read without guessing is a problem."""

from __future__ import annotations

import difflib
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spurless.data import coding
from spurless.data.ingest.labels import MISSING, Field, codes, spelling
from spurless.data.ingest.problems import Problems
from spurless.data.ingest.splits import SPLIT_CODES, SPLITS
from spurless.data.ingest.table import bands as bands_of
from spurless.data.ingest.table import written

if TYPE_CHECKING:
    from pandas import DataFrame, Series

Column = NDArray[Any]  # (n,) one entry for each sample
BANDED_ABOVE = 10  # different values of a numeric attribute
THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")
SENTENCE = 4  # words that a column of text has on average, or more


def number(text: str) -> float | None:
    """The number that a text holds, if it holds one that is finite."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def usual(role: str, usual: Sequence[str], columns: Sequence[str], problems: Problems) -> str | None:
    """The column that has a common name for this role; said in a note, because nobody asked for it."""
    here = [c for c in columns if c.lower() in usual]
    if len(here) == 1:
        problems.note(f"column '{here[0]}' taken as the {role}")
        return here[0]
    if role == "label":
        remedy = f"say data.label=NAME with one of: {', '.join(columns)}"
        problems.wrong(f"the label is not known: no single column is called {', '.join(usual)}", remedy)
    return None


def check_names(columns: list[str], roles: dict[str, Sequence[str]], problems: Problems) -> None:
    """Unknown and clashing names end the reading here: nothing beyond can be checked without them."""
    unknown = [(role, name) for role, names in roles.items() for name in names if name and name not in columns]
    for role, name in unknown:
        folded = {c.casefold(): c for c in columns}
        near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.5)
        hint = f"did you mean '{folded[near[0]]}'? " if near else ""
        problems.wrong(f"there is no column '{name}' (data.{role})", f"{hint}the columns are: {', '.join(columns)}")
    special = [n for role in ("label", "split", "attribute", "text") for n in roles[role] if n]
    for name, times in Counter(special).items():
        if times > 1:
            problems.wrong(f"column '{name}' has two roles", "name different ones for label, attribute, split and text")
    if unknown or not roles["label"][0] or len(set(special)) < len(special):
        problems.stop()


def labelled(
    raw: DataFrame, lines: Column, label: str, missing: Sequence[str], problems: Problems
) -> tuple[DataFrame, Column]:
    cells = raw[label].str.strip()
    without = cells.isin(missing).to_numpy()
    for mark in sorted(set(cells[without])):
        shown = f" ('{mark}')" if mark else ""
        remedy = "fill it in, or take it out of data.missing if it is a class" if mark else "fill it in"
        problems.broken(f"no label{shown} in column '{label}'", remedy, lines[(cells == mark).to_numpy()])
    if without.all():
        problems.wrong(f"column '{label}' is empty", "name another one with data.label")
        problems.stop()
    return raw[~without].reset_index(drop=True), lines[~without]


def with_texts(raw: DataFrame, lines: Column, text: Sequence[str], problems: Problems) -> tuple[DataFrame, Column]:
    """The samples that hold a text, or both of a pair. A word for a missing value may well be a text."""
    if len(text) > 2 or len(set(text)) < len(text):
        problems.wrong(f"data.text names {len(text)} columns", "name one, or the two of a pair of sentences")
        problems.stop()
    keep = np.ones(len(raw), bool)
    for column in text:
        empty = (raw[column].str.strip() == "").to_numpy()
        problems.broken(f"no text in column '{column}'", "fill it in", lines[empty & keep])
        keep &= ~empty
    return raw[keep].reset_index(drop=True), lines[keep]


def note_if_text(column: Series, problems: Problems) -> None:
    """A column of sentences would be left out, as one in which every sample differs: say how it can be read."""
    words = column.iloc[:200].str.split().str.len()
    if words.mean() >= SENTENCE and column.iloc[:200].nunique() > 0.5 * len(words):
        problems.note(f"column '{column.name}' holds text, which a model reads with data.text={column.name}")


def named(column: Series, gap: Column, lines: Column, spellings: str, as_texts: bool, problems: Problems) -> Column:
    """(n,) of names, None where missing. Names that differ only by spaces, case or, unless they are compared
    `as_texts`, as numbers are written, are one mistake or one wish."""
    texts = column.to_numpy(dtype=object, copy=True)
    texts[gap] = None
    if spellings == "keep":
        return np.asarray(texts)
    counts = Counter(t for t in texts if t is not None)
    mended = _respelt(counts, as_texts)
    for text, main in mended.items() if spellings == "error" else ():
        spaces = " ".join(text.split()) == main
        how = f"has stray spaces, for '{main}'" if spaces else f"is '{main}' in another spelling"
        problems.wrong(
            f"'{text}' in column '{column.name}' {how}",
            "write it alike everywhere, or say data.spellings=merge (keep: they are different)",
            lines[texts == text],
        )
    if mended and spellings == "merge":
        changed = sum(counts[text] for text in mended)
        problems.note(f"{changed:,} values of '{column.name}' respelt: " + ", ".join(f"'{t}'" for t in mended))
    return np.array([mended.get(t, t) for t in texts], dtype=object)


def _respelt(counts: Counter[str], as_texts: bool) -> dict[str, str]:
    """The commonest spelling, without stray spaces, of each name that is written in another way."""
    alike: dict[Hashable, list[str]] = defaultdict(list)
    for text, _ in counts.most_common():
        alike[" ".join(text.split()).casefold() if as_texts else spelling(text)].append(text)
    main = {text: " ".join(texts[0].split()) for texts in alike.values() for text in texts}
    return {text: first for text, first in main.items() if text != first}


def check_classes(names: Column, label: str, problems: Problems, only_scored: bool) -> None:
    kinds = set(names)
    if len(kinds) < 2 and not only_scored:
        problems.wrong(f"column '{label}' holds only '{next(iter(kinds), '')}'", "a label needs two classes or more")
    numbers = [number(k) for k in kinds]
    quantity = None not in numbers and any(v is not None and v != int(v) for v in numbers)
    if len(kinds) > 20 and (quantity or len(kinds) > len(names) / 2):
        problems.wrong(
            f"column '{label}' holds {len(kinds):,} different values in {len(names):,} samples: not a class",
            "name another column with data.label, or put its values into bands first",
        )


def typed(texts: Series, gap: Column, lines: Column, as_codes: bool, decimal: str, problems: Problems) -> Series:
    """Numbers as float64, all else as text, missing cells as NaN or None."""
    import pandas as pd

    present = texts.where(~gap, None)
    if as_codes:
        return present
    pointed = present.str.replace(",", ".", regex=False)
    numbers = pd.to_numeric(pointed if decimal == "comma" else present, errors="coerce").astype(np.float64)
    fits = np.isfinite(numbers.to_numpy())
    if fits.sum() == (~gap).sum():
        return numbers
    if fits.sum() < 0.9 * (~gap).sum():
        example = _in_thousands(present[~gap]) if decimal == "point" else None
        if example:
            problems.wrong(
                f"column '{texts.name}' holds numbers with commas, such as '{example}', that may separate thousands",
                "if they do, take them out of the file; if they are decimal commas, say data.decimal=comma; "
                f"if the numbers are codes, data.categorical=['{texts.name}']",
            )
        elif decimal == "point" and np.isfinite(pd.to_numeric(pointed[~gap], errors="coerce")).all():
            problems.wrong(
                f"column '{texts.name}' holds numbers with a decimal comma",
                f"say data.decimal=comma, or data.categorical=['{texts.name}'] if they are codes",
            )
        return present
    odd = ~fits & ~gap
    shown = ", ".join(f"'{t}'" for t in dict.fromkeys(texts[odd][:3]))
    problems.wrong(
        f"{shown} in column '{texts.name}', whose other values are numbers",
        f"mend it, add it to data.missing, or say data.categorical=['{texts.name}']",
        lines[odd],
    )
    return present


def _in_thousands(texts: Series) -> str | None:
    """The first of the texts with a comma, where all are numbers once the commas, each before three digits, are out."""
    with_comma = [text for text in texts if "," in text]
    others = (text for text in texts if "," not in text)
    fits = all(map(THOUSANDS.fullmatch, with_comma)) and all(number(text) is not None for text in others)
    return with_comma[0] if with_comma and fits else None


def inputs(
    names: list[str], typed: dict[str, Series], columns: list[str], lines: Column, keep: set[str], problems: Problems
) -> list[str]:
    """The columns that the model sees. A row number is not one: in a sorted file it gives the label away."""
    kept, counting = [], []
    for name in names:
        if name not in keep and _counts_rows(typed[name], lines, sure=name == ""):
            text = f"{name} (data.keep={name} keeps it)" if name else "the column without a name"
            problems.note(f"left out, it only counts the samples: {text}")
            counting += [name] * bool(name)
        elif name == "":
            problems.wrong(f"column {columns.index('') + 1} has no name", "give it one in the header")
        else:
            kept.append(name)
    if not kept:
        hint = f", or keep '{counting[0]}', which only counts the samples, with data.keep" if counting else ""
        problems.wrong("no column is left to learn from", f"check data.ignore{hint}")
    return kept


def _counts_rows(column: Series, lines: Column, sure: bool) -> bool:
    """Up or down from any number: an id may begin at 10001. A table with a row for every year looks the same."""
    if column.dtype.kind != "f" or len(column) < 2 or not (sure or len(column) >= coding.TELLING):
        return False
    steps = np.diff(column.to_numpy())
    return any(bool((steps == each).all()) for each in (1, -1, np.diff(lines), -np.diff(lines)))


def gives_away(column: Series, labels: Column) -> bool:
    """Whether each value of a column goes with one label only, and has rows enough for that to mean something."""
    import pandas as pd

    values = pd.Series(labels).groupby(column.to_numpy(), dropna=False)
    return bool(values.ngroups <= len(labels) / 5 and values.nunique().max() == 1)


def is_banded(column: Series) -> bool:
    return bool(column.dtype.kind == "f" and column.nunique() > BANDED_ABOVE)


def attribute(name: str, names: Column, column: Series, bands: int, problems: Problems) -> Field:
    if not is_banded(column):
        return Field(name, names, (name,))
    least, next_to_it = np.sort(column.dropna().unique())[:2]
    edges = np.unique(np.nanquantile(column, np.linspace(0, 1, bands + 1)[1:-1]))
    alone = edges[0] == least  # it fills a band or more, and a band that begins with it would swallow the others
    values, order = bands_of(column, [float(e) for e in np.maximum(edges, next_to_it if alone else least)])
    if alone:
        text = written([least, next_to_it])[0]
        values[(column == least).to_numpy()] = text
        order = (text, *order[1:])
    order = tuple(band for band in order if band in set(values))
    problems.note(f"bias attribute '{name}' in bands: {', '.join(order)}")
    return Field(name, values, (name,), order)


def given_split(column: Series, lines: Column, labels: Column, problems: Problems, only_scored: bool) -> Column:
    """(n,) of train, val, test. A class that is never trained on cannot be scored."""
    splits = np.array([SPLIT_CODES.get(t.strip().lower()) for t in column], dtype=object)
    unknown = np.array([p is None for p in splits])
    if unknown.any():
        shown = ", ".join(f"'{t}'" for t in dict.fromkeys(column[unknown][:5]))
        problems.wrong(f"{shown} in column '{column.name}' is no split", "write train, val or test", lines[unknown])
    if not (splits == "train").any():
        if only_scored and not unknown.any():
            problems.note(f"column '{column.name}' gives no sample to train: all samples are scored together")
            return np.full(len(splits), "train", dtype=object)
        problems.wrong(f"column '{column.name}' gives no sample to train", "mark samples with train")
        return splits
    trained = set(labels[splits == "train"])
    for name in codes(labels)[1]:
        if name not in trained:
            where = sorted({str(p) for p in splits[labels == name] if p})
            problems.wrong(
                f"class '{name}' stands in {' and '.join(where)} but not in train",
                "move some of its samples to train, or take it out",
                lines[labels == name],
            )
    return splits


def apart(rows: DataFrame, splits: Column, lines: Column, rule: str, problems: Problems) -> Column:
    """(n,) bool: the samples to keep. Samples alike in every column that is used must not stand in two splits
    unnoticed."""
    import pandas as pd

    keep = np.ones(len(rows), bool)
    filled = pd.DataFrame({c: v if v.dtype.kind == "f" else v.fillna(MISSING) for c, v in rows.items()})
    same = pd.util.hash_pandas_object(filled, index=False).to_numpy()
    rank = np.array([SPLITS.index(p) if p else 0 for p in splits])
    places = pd.Series(rank).groupby(same)
    last = places.transform("max").to_numpy()
    repeated = rank < last  # a later split holds the same sample
    if not repeated.any() or rule == "keep":
        return keep
    if rule == "drop":
        problems.note(f"{repeated.sum():,} samples left out because a later split holds the same one")
        return np.asarray(~repeated)
    if rule == "note":
        copies = (rank > places.transform("min")).sum()
        problems.note(f"{copies:,} val or test samples are equal to a sample of an earlier split in all columns")
        return keep
    pairs = []
    for i in np.flatnonzero(repeated)[:5]:
        j = np.flatnonzero((same == same[i]) & (rank == last[i]))[0]
        pairs.append(f"line {lines[i]} ({splits[i]}) = line {lines[j]} ({splits[j]})")
    more = f" and {repeated.sum() - 5:,} more" if repeated.sum() > 5 else ""
    problems.wrong(
        f"equal samples in two splits: {', '.join(pairs)}{more}",
        "take them out of one, or say data.duplicates=drop, or keep if they are different cases",
    )
    return keep
