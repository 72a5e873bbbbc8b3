"""Read and write the measured rows in results/: one JSON Lines file per table or study, one line per row.

    python -m studies.rows pack     # results/TABLE/NAME.json, the form of older versions -> results/TABLE.jsonl

A line is the row with its name in front. Lines are sorted as the files of that name were.
"""

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spurless.core.files import atomic, finite, lock

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
Row = dict[str, Any]


def rows(table: str) -> list[Row]:
    """The rows of a table of results/, in the order of their names; none if it was not measured."""
    return list(named(RESULTS / table).values())


def named(table: Path) -> dict[str, Row]:
    """The rows of results/TABLE by name."""
    file = _file(table)
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    table_rows = {}
    for line in lines:
        row = json.loads(line)
        table_rows[row.pop("name")] = row
    return table_rows


def holds(path: Path) -> bool:
    """Whether results/TABLE/NAME was measured."""
    return _name(path) in named(path.parent)


def put(path: Path, row: Mapping[str, Any]) -> None:
    """Write the row results/TABLE/NAME; processes that share a table wait for one another.

    >>> put(Path("/tmp/spurless-doctest-results/speed/one"), {"seconds": 2.5})
    >>> named(Path("/tmp/spurless-doctest-results/speed"))
    {'one': {'seconds': 2.5}}
    """
    put_all(path.parent, {_name(path): row})


def put_all(table: Path, new: Mapping[str, Mapping[str, Any]]) -> None:
    """Write several rows of results/TABLE at once."""
    file = _file(table)
    file.parent.mkdir(parents=True, exist_ok=True)
    with _locked(file):
        merged = named(table) | {name: finite(row) for name, row in new.items()}
        lines = [json.dumps({"name": name, **merged[name]}, ensure_ascii=False) for name in sorted(merged, key=_order)]
        with atomic(file) as part:
            part.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def pack(results: Path = RESULTS) -> int:
    """Move single files of rows into their table's file and return their number. A sweep keeps its folder."""
    packed = 0
    for folder in sorted(path for path in results.iterdir() if path.is_dir() and not path.name.startswith("sweep_")):
        files = sorted(folder.glob("*.json"))
        put_all(folder, {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files})
        for file in files:
            file.unlink()
        packed += len(files)
        if not any(folder.iterdir()):
            folder.rmdir()
    return packed


def _file(table: Path) -> Path:
    return table.with_name(f"{table.name}.jsonl")


def _name(path: Path) -> str:
    return path.name.removesuffix(".json")


def _order(name: str) -> str:
    return f"{name}.json"  # "a-1" comes after "a-1-b", as files do


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    path = file.with_name(f".{file.name}.lock")
    while not (held := lock(path)):
        time.sleep(0.05)
    try:
        yield
    finally:
        path.unlink()
        held.close()


if __name__ == "__main__":
    if sys.argv[1:] != ["pack"]:
        sys.exit(__doc__)
    print(f"{pack()} rows packed")
