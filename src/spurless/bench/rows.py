"""Rows as files: JSON lines, rebuilt from the trials' own rows, and Parquet."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spurless.bench.claim import read_row
from spurless.bench.trials import Trial
from spurless.core.extras import missing
from spurless.core.files import atomic

JSONL, PARQUET = "rows.jsonl", "rows.parquet"
LISTED = "listed"  # false in a row of the list that its last run did not name


def all_rows(out: Path, trials: Sequence[Trial] = ()) -> list[dict[str, Any]]:
    """The rows in a benchmark's folder: those of these trials first, in their order, then any others."""
    rows = [row | {"labels": c.labels} for c in trials if (row := read_row(out / c.folder))]
    seen = {trial.key for trial in trials}
    others = [p.parent for p in sorted(out.glob("cells/*/row.json")) if p.parent.name not in seen]
    return rows + [row for folder in others if (row := read_row(folder))]


def write_jsonl(out: Path, trials: Sequence[Trial] = ()) -> Path:
    """Write rows.jsonl anew, whole; what is in the folder and not of these trials is marked."""
    named = {trial.key for trial in trials}
    with atomic(out / JSONL) as unfinished:
        rows = [row if row["key"] in named else row | {LISTED: False} for row in all_rows(out, trials)]
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        unfinished.write_text("".join(lines), encoding="utf-8", errors="backslashreplace")
    return out / JSONL


def write_parquet(rows: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """One flat table: numbers under dotted names (scores.unbiased), settings and traces as JSON text."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise missing("Parquet", "parquet", "use the same rows in rows.jsonl") from None
    flat = [flat_row(row) for row in rows]
    columns = dict.fromkeys(name for row in flat for name in row)
    table = pyarrow.table({name: [row.get(name) for row in flat] for name in columns})
    with atomic(path) as unfinished:
        pyarrow.parquet.write_table(table, unfinished)
    return path


def flat_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as it stands in a flat table.

    >>> flat_row({"method": "erm", "seed": 1, "scores": {"unbiased": 71.5, "n": 4}, "settings": {"seed": 1}})
    {'method': 'erm', 'seed': 1, 'scores.unbiased': 71.5, 'scores.n': 4.0, 'settings': '{"seed": 1}'}
    """
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if name in ("scores", "mining", "extra"):
            flat |= {f"{name}.{k}": v for k, v in _numbers(value or {}).items()}
        elif name == "labels":
            flat |= {f"{name}.{k}": str(v) for k, v in (value or {}).items()}
        elif isinstance(value, (dict, list)):
            flat[name] = json.dumps(value, ensure_ascii=False)
        else:
            flat[name] = value
    return flat


def _numbers(table: Mapping[str, Any], prefix: str = "") -> dict[str, float | str]:
    numbers: dict[str, float | str] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            numbers |= _numbers(value, f"{prefix}{name}.")
        elif isinstance(value, (int, float)):
            numbers[f"{prefix}{name}"] = float(value)  # one type for a column, whatever a run happened to have
    return numbers
