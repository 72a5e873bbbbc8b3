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

    def add(self, content: Any, file: Path) -> None:
        """Take what a JSON file holds, by its shape."""
        if isinstance(content, list) and content and all(isinstance(row, dict) for row in content):
            if all("paper" in row for row in content):
                self.reproductions.append({"rows": content})
            else:
                for row in content:
                    self.add(row, file)
        elif not isinstance(content, dict) or not self._add_table(content, file):
            raise UserError(
                f"{file} is not a result that can be drawn: not a run's {RESULT}, not an {AUDIT}, not a sweep "
                "(over, points), not a reproduction (rows with ours and paper)."
            )

    def _add_table(self, content: dict[str, Any], file: Path) -> bool:
        if "verdict" in content:
            self.audits.append((content, file.parent))
        elif "over" in content and ("points" in content or "series" in content):
            self.sweeps.append(content)
        elif _rows_of(content, "paper"):
            self.reproductions.append(content)
        elif _rows_of(content, "method"):
            self.runs += content["rows"]
        elif "method" in content and "rows" not in content:  # a pruning has both
            self.runs.append(content)
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
        for folder in places:
            if folder.resolve() in seen:
                continue
            seen.add(folder.resolve())
            if folder.is_dir():
                material.runs.append(run_row(folder))
            else:
                material.add(read_json(folder), folder)
    return material


def _places(folder: Path, sweeps: bool) -> Iterator[Path]:
    """Run folders, sweeps and audit.json files below a folder; where there are none, the JSON files in it."""
    folders = in_table_order(folder, list(walk(folder, sweeps)))
    yield from folders or sorted(p for p in folder.glob("*.json") if p.is_file())


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
    return sorted(places, key=lambda path: order.get(path, (len(lines), 0)))


def walk(folder: Path, sweeps: bool = False) -> Iterator[Path]:
    """Run folders, and audit.json files, in the order of their names. Links are not followed, runs not entered.

    With `sweeps` also the sweep.json of each sweep's folder, in place of its runs.
    """
    for where, below, files in os.walk(folder):
        path = Path(where)
        below.sort()
        if AUDIT in files:
            yield path / AUDIT
        if sweeps and SWEEP in files and CELLS in below:
            yield path / SWEEP
            below.remove(CELLS)
        if RESULT in files or SETTINGS in files:
            yield path
            below.clear()
        if len(path.relative_to(folder).parts) >= DEPTH:
            below.clear()
        below[:] = [name for name in below if not name.startswith(".")]


def run_row(run_dir: str | Path) -> dict[str, Any]:
    """What a run's folder says: its result, or how far it has come."""
    folder = RunFolder(run_dir)
    row = folder.result()
    if row is None:
        settings = read_toml(folder.path / SETTINGS)
        row = {section: _name(settings.get(section)) for section in ("method", "data", "net")}
        row |= {"seed": settings.get("seed"), "status": "unfinished", "settings": settings}
        row |= {"history": folder.history()}
    return row | {"folder": str(run_dir)}  # it may have been moved


def read_json(file: str | Path) -> Any:
    """The content of a JSON file, or a UserError."""
    try:
        content = from_json(read_bytes(file))
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise UserError(f"{file} is not valid JSON ({error}).") from None
    if isinstance(content, dict) and "verdict" in content and content.get("schema") != SCHEMA:
        raise UserError(
            f"{file} has schema {content.get('schema')}, and this version of Spurless draws {SCHEMA}. "
            "Run the audit again, or use the version that wrote it."
        )
    return content


def _rows_of(content: dict[str, Any], key: str) -> bool:
    rows = content.get("rows")
    return isinstance(rows, list) and bool(rows) and all(isinstance(row, dict) and key in row for row in rows)


def _name(section: Any) -> Any:
    return section.get("name") if isinstance(section, dict) else None
