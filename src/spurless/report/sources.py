"""What lies at a path: a run, an audit, a sweep, a reproduction, or a folder of those."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spurless.core.errors import UserError
from spurless.core.files import from_json, read_bytes, read_toml
from spurless.train.run_folder import RESULT, SETTINGS, RunFolder

AUDIT = "audit.json"
SWEEP, CELLS = "sweep.json", "cells"  # of a sweep's folder; its runs are below the second
LIST = "rows.jsonl"  # of a benchmark's folder
SCHEMA = 2  # of audit.json
DEPTH = 6  # folders below the given one that are looked into


@dataclass
class Material:
    """Everything one page is made from."""

    runs: list[Any] = field(default_factory=list)  # contents of result.json
    audits: list[tuple[dict[str, Any], Path]] = field(default_factory=list)  # audit.json, and where its pictures lie
    sweeps: list[dict[str, Any]] = field(default_factory=list)
    reproductions: list[dict[str, Any]] = field(default_factory=list)
    pictures: list[tuple[str, bytes]] = field(default_factory=list)  # caption, PNG

    def add(self, found: Any, file: Path) -> None:
        """Take what a JSON file holds, by its shape."""
        if isinstance(found, list) and found and all(isinstance(row, dict) for row in found):
            if all("paper" in row for row in found):
                self.reproductions.append({"rows": found})
            else:
                for row in found:
                    self.add(row, file)
        elif not isinstance(found, dict) or not self._add_table(found, file):
            raise UserError(
                f"{file} is not a result that can be drawn: not a run's {RESULT}, not an {AUDIT}, not a sweep "
                "(over, points), not a reproduction (rows with ours and paper)."
            )

    def _add_table(self, found: dict[str, Any], file: Path) -> bool:
        if "verdict" in found:
            self.audits.append((found, file.parent))
        elif "over" in found and ("points" in found or "series" in found):
            self.sweeps.append(found)
        elif _rows_of(found, "paper"):
            self.reproductions.append(found)
        elif _rows_of(found, "method"):
            self.runs += found["rows"]
        elif "method" in found and "rows" not in found:  # a pruning has both
            self.runs.append(found)
        else:
            return False
        return True


def find(paths: Sequence[str | Path], sweeps: bool = True) -> Material:
    """Read all that is at these paths, each thing once. Of a sweep's folder the sweep; without `sweeps`, its runs."""
    material, seen = Material(), set()
    for path in map(Path, paths):
        if not path.exists():
            raise UserError(f"{path} does not exist.")
        places = [path] if path.is_file() else list(_places(path, sweeps))
        if not places:
            raise UserError(f"{path} holds no run, no audit and no JSON file with results.")
        for place in places:
            if place.resolve() in seen:
                continue
            seen.add(place.resolve())
            if place.is_dir():
                material.runs.append(run_row(place))
            else:
                material.add(read_json(place), place)
    return material


def _places(folder: Path, sweeps: bool) -> Iterator[Path]:
    """Run folders, sweeps and audit.json files below a folder; where there are none, the JSON files in it."""
    found = in_table_order(folder, list(walk(folder, sweeps)))
    yield from found or sorted(p for p in folder.glob("*.json") if p.is_file())


def in_table_order(folder: Path, places: list[Path]) -> list[Path]:
    """Of a benchmark, whose cells have names that mean nothing: row by row of its table, each with its seeds."""
    lines: list[str] = []
    first: dict[str, int] = {}
    order: dict[Path, tuple[int, int]] = {}
    with suppress(OSError, ValueError, KeyError, TypeError):  # a list that cannot be read only costs the order
        lines = (folder / LIST).read_text(encoding="utf-8").splitlines()
        for number, row in enumerate(map(json.loads, lines)):
            row_of_table = json.dumps({k: v for k, v in (row["labels"] or {}).items() if k != "metric"}, sort_keys=True)
            order.setdefault(folder / row["folder"], (first.setdefault(row_of_table, number), row["seed"]))
    return sorted(places, key=lambda place: order.get(place, (len(lines), 0)))


def walk(folder: Path, sweeps: bool = False) -> Iterator[Path]:
    """Run folders, and audit.json files, in the order of their names. Links are not followed, runs not entered.

    With `sweeps` also the sweep.json of each sweep's folder, in place of its runs.
    """
    for where, below, files in os.walk(folder):
        place = Path(where)
        below.sort()
        if AUDIT in files:
            yield place / AUDIT
        if sweeps and SWEEP in files and CELLS in below:
            yield place / SWEEP
            below.remove(CELLS)
        if RESULT in files or SETTINGS in files:
            yield place
            below.clear()
        if len(place.relative_to(folder).parts) >= DEPTH:
            below.clear()
        below[:] = [name for name in below if not name.startswith(".")]


def run_row(place: str | Path) -> dict[str, Any]:
    """What a run's folder says: its result, or how far it has come."""
    folder = RunFolder(place)
    row = folder.result()
    if row is None:
        settings = read_toml(folder.path / SETTINGS)
        row = {part: _name(settings.get(part)) for part in ("method", "data", "net")}
        row |= {"seed": settings.get("seed"), "status": "unfinished", "settings": settings}
        row |= {"history": folder.history()}
    return row | {"folder": str(place)}  # it may have been moved


def read_json(file: str | Path) -> Any:
    """The content of a JSON file, or a UserError."""
    try:
        found = from_json(read_bytes(file))
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise UserError(f"{file} is not valid JSON ({error}).") from None
    if isinstance(found, dict) and "verdict" in found and found.get("schema") != SCHEMA:
        raise UserError(
            f"{file} has schema {found.get('schema')}, and this version of Spurless draws {SCHEMA}. "
            "Run the audit again, or use the version that wrote it."
        )
    return found


def _rows_of(found: dict[str, Any], key: str) -> bool:
    rows = found.get("rows")
    return isinstance(rows, list) and bool(rows) and all(isinstance(row, dict) and key in row for row in rows)


def _name(section: Any) -> Any:
    return section.get("name") if isinstance(section, dict) else None
