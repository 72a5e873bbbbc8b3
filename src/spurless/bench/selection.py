"""Which rows are compared: those of one or two paths that ended well, of the specification as it is, for one score."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spurless.bench.figures import value_of
from spurless.bench.given import SCORES
from spurless.bench.naming import completed, depends_on_seed
from spurless.bench.rows import JSONL, LISTED, all_rows
from spurless.bench.trials import HOW
from spurless.core.errors import FolderError, SettingError
from spurless.core.files import from_json, read_text
from spurless.report.tables import METRICS, finished, flatten

Row = Mapping[str, Any]


def paths_and_labels(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """What is named: one or two paths of results, and labels (or methods) to which they are restricted."""
    paths = [word for word in words if Path(word).exists()]
    if not paths:
        raise FolderError(f"{words[0]} does not exist: name a folder or file of results first, then labels.")
    if len(paths) > 2:
        raise SettingError(f"{len(paths)} places are named; compare takes one or two.")
    return paths, [word for word in words if word not in paths]


def read_rows(path: str | Path) -> list[dict[str, Any]]:
    """The rows at a path: a benchmark's folder, a run's, a folder of runs or of JSON files, a file of rows."""
    from spurless.report.sources import find

    path = Path(path)
    if (path / "cells").is_dir():
        # In rows.jsonl a trial may stand in two places of the table; what ended since it was written is in the trials.
        listed = _lines(path / JSONL) if (path / JSONL).exists() else []
        newest = {row["key"]: row for row in all_rows(path)}
        keys = {row["key"] for row in listed}
        rows = [newest.get(row["key"], row) | {k: row[k] for k in ("labels", LISTED) if k in row} for row in listed]
        rows += [row for key, row in newest.items() if key not in keys]
    elif path.suffix == ".jsonl":
        rows = _lines(path)
    else:
        rows = find([path], sweeps=False).runs
    rows = [row for row in rows if isinstance(row, dict)]
    if not rows:
        raise FolderError(f"{path} holds no results that can be compared.")
    return rows


def usable_rows(sides: Sequence[Sequence[dict[str, Any]]]) -> tuple[list[list[dict[str, Any]]], list[str]]:
    """The rows of each side that ended well and are of the specification as it is; and notes on the others."""
    current = [of_today(rows) for rows in sides]
    old = sum(len(rows) - len(kept) for rows, kept in zip(sides, current, strict=True))
    lost = sum(len({training_of(row) for row in rows if not finished(row)}) for rows in current)
    notes = [f"{lost} results did not end well and are left out."] if lost else []
    if old:
        notes.append(f"{old} results of an older specification are left out: their rows have other settings by now.")
    return [[row for row in rows if finished(row)] for rows in current], notes


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        return [from_json(line) for line in read_text(path).split("\n") if line.strip()]
    except OSError as error:
        raise FolderError(f"{path} cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise FolderError(f"{path} is not valid JSON lines ({error}).") from None


def usual_metric(rows: Sequence[Row]) -> str:
    """The specification's, or the first that the results have."""
    asked = {(row.get("labels") or {}).get("metric") for row in rows} - {None, ""}
    if len(asked) == 1:
        return str(asked.pop())
    present = [m for m in (*METRICS, "average") if any(value_of({"status": "done", **r}, m) is not None for r in rows)]
    return present[0] if present else "unbiased"


def asked_for(rows: Sequence[dict[str, Any]], metric: str, labels: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Without the places in which a training stands for another score, if it also stands somewhere for this one.

    One that does not is kept once in each block: its rows for several scores would be compared with each other. Of
    these the first is kept, or one of a row that is named.
    """
    own = [(row.get("labels") or {}).get("metric") == metric for row in rows]
    there = {training_of(row) for row, asked in zip(rows, own, strict=True) if asked}
    kept: dict[Any, int] = {}
    for i, row in sorted(enumerate(rows), key=lambda at: (at[1].get("labels") or {}).get("row") not in labels):
        if training_of(row) not in there:
            own_labels = row.get("labels") or {}
            kept.setdefault((training_of(row), own_labels.get("block"), own_labels.get("grid")), i)
    chosen = set(kept.values())
    return [row for i, (row, asked) in enumerate(zip(rows, own, strict=True)) if asked or i in chosen]


def of_today(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leaves out what a folder keeps of an older specification: rows that the last run did not name, and whose place
    in the table it filled with other settings. A row that only was not asked for (--only, fewer seeds) stays."""
    made = _settings_texts(rows)
    places = [_place(row) for row in rows]
    now: dict[tuple[Any, ...], set[str]] = {}
    for row, labels, settings in zip(rows, places, made, strict=True):
        if labels and row.get(LISTED, True) and finished(row):
            now.setdefault(labels, set()).add(settings)
    return [
        row
        for row, labels, settings in zip(rows, places, made, strict=True)
        if row.get(LISTED, True) or labels not in now or settings in now[labels]
    ]


def _settings_texts(rows: Sequence[Row]) -> list[str]:
    """What decided each row, but for its seed, as text."""
    how = {f"recipe.{name}" for name in HOW} | {"spurless"}
    return [
        json.dumps({k: v for k, v in own.items() if not depends_on_seed(k) and k not in how}, default=str)
        for own in completed([flatten(row.get("settings") or {}) for row in rows])
    ]


def _place(row: Row) -> tuple[Any, ...]:
    """Where a row stands in a table; empty for one that stands in none."""
    labels = row.get("labels") or {}
    return tuple(labels.get(name) for name in ("block", "row", "grid")) if labels.get("row") else ()


def training_of(row: Row) -> Any:
    """What a row is of: one training may stand in several places of a table."""
    return row.get("key") or id(row)


def missing_classes(row: Row) -> list[str]:
    return list((row.get("scores") or {}).get("missing_classes") or ())


def missing_score(metric: str, rows: Sequence[Row]) -> SettingError:
    """The error for a score that no row has, with the nearest that one has, and the usual ones among those."""
    done = [{"status": "done", **row} for row in rows]
    plain = [m for m in SCORES if any(value_of(row, m) is not None for row in done)]
    near = difflib.get_close_matches(metric, [*plain, *_dotted_scores(rows)], n=1, cutoff=0.5)
    hint = f"; did you mean '{near[0]}'?" if near else "."
    if lost := list(dict.fromkeys(name for row in rows for name in missing_classes(row))):
        hint = f": there are no samples of the class {', '.join(lost)} to score."
    return SettingError(f"No result has the score '{metric}'{hint} The scores there are: {', '.join(plain) or 'none'}.")


def _dotted_scores(rows: Sequence[Row]) -> list[str]:
    sections = ({name: row.get(name) or {} for name in ("mining", "extra")} for row in rows)
    return sorted({k for section in sections for k, v in flatten(section).items() if isinstance(v, (int, float))})
