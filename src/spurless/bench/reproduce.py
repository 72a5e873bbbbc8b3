"""The papers' tables: where their specifications lie, what is left to do, and the page beside the paper's numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spurless.bench import table
from spurless.bench.board import span
from spurless.bench.claim import finished_row
from spurless.bench.rows import all_rows
from spurless.bench.spec import Spec
from spurless.errors import UserError, unknown
from spurless.folder import finite, read_toml
from spurless.paths import atomic

SHOWN = 6  # labels of blocks in the list of tables
PAGE, DATA = "report.html", "reproduction.json"


def papers() -> dict[str, Path]:
    """The specifications of published tables by name: in the package, or in the checkout around it."""
    package = Path(__file__).parents[1]
    for folder in (package / "papers", package.parents[1] / "papers"):
        if folder.is_dir():
            return {path.stem: path for path in sorted(folder.glob("*.toml"))}
    return {}


def paper(name: str) -> Path:
    known = papers()
    if name not in known:
        raise unknown("table", name, known) if known else UserError("No papers' tables are installed here.")
    return known[name]


def titles() -> dict[str, str]:
    """What each table is, with the labels that --only takes."""
    found = {}
    for name, path in papers().items():
        content = read_toml(path)
        labels = [str(b["label"]) for b in content.get("block", []) if b.get("label")]
        more = f"; {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
        found[name] = f"{content.get('title', '')} ({'; '.join(labels[:SHOWN])}{more})"
    return found


def write_page(spec: Spec, rows: Sequence[dict[str, Any]], out: Path, command: str = "") -> Path:
    """The HTML page on ours beside the paper's, and the JSON file that it is made from."""
    from spurless.report import write_any

    lines = table.as_json(spec, rows)
    for line in lines:
        line["data"] = ", ".join([line["data"], *line["grid"].values()])
    done = [row for row in rows if row["status"] == "done"]
    found = {
        "title": spec.title,
        "source": spec.source,
        "command": command or None,
        "date": max((str(row["date"]) for row in done if row.get("date")), default=None),
        "rows": lines,
        "notes": table.remarks(spec, rows),
        "versions": done[0].get("versions", {}) if done else {},
    }
    with atomic(out / DATA) as part:
        part.write_text(json.dumps(finite(found), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return write_any([out / DATA], out / PAGE, spec.title)


def plan(spec: Spec, out: Path, device: str | None, workers: int | None, root: str | None) -> dict[str, Any]:
    """What a run would do: each line's cells, the data that is missing, and how long it would take here."""
    from spurless.bench.estimate import guesses
    from spurless.bench.one import cores
    from spurless.engine import pick_device
    from spurless.progress import complain

    cells = spec.cells()
    left = {cell.key: cell for cell in cells if finished_row(out / cell.folder) is None}
    complain(f"Looking at {len({cell.kind() for cell in left.values()})} kinds of cells ...")
    known = guesses([c for c in cells if c.kind() in {x.kind() for x in left.values()}], all_rows(out), device, root)
    lines = []
    for line in spec.lines:
        todo = [cell for cell in line.cells if cell.key in left]
        guess = known[todo[0].kind()] if todo else None
        lines.append(
            {
                "data": line.block,
                "method": line.row,
                "grid": line.grid,
                "cells": len(line.cells),
                "done": len(line.cells) - len(todo),
                "seconds_each": guess and guess.seconds,
                "how": line.missing or (guess.how if guess else "done"),
            }
        )
    work = sum(known[cell.kind()].seconds or 0.0 for cell in left.values())
    gpu = pick_device(device).type == "cuda"
    at_once = 1 if gpu else min(workers or cores(), max(1, len(left)))
    return {
        "title": spec.title,
        "lines": lines,
        "cells": len({c.key for c in cells}),
        "done": len({c.key for c in cells}) - len(left),
        "missing_data": list(dict.fromkeys(g.how for g in known.values() if g.seconds is None)),
        "seconds": work / at_once,
        "at_once": at_once,
        "lower_bound": any(guess.how == "at least" for guess in known.values()),
        "one_at_a_time": gpu,
    }


def plan_text(found: dict[str, Any]) -> str:
    """The plan for a person."""
    lines = [found["title"]]
    for line in found["lines"]:
        where = ", ".join([line["data"], line["method"], *(f"{k} {v}" for k, v in line["grid"].items())])
        if not line["cells"]:
            lines.append(f"  {where}: cannot be run ({line['how']})")
        elif line["done"] == line["cells"]:
            lines.append(f"  {where}: {line['cells']} done")
        else:
            each = f"{span(line['seconds_each'])} each, {line['how']}" if line["seconds_each"] else "cannot be run"
            there = f"{line['done']} done, " if line["done"] else ""
            lines.append(f"  {where}: {there}{line['cells'] - line['done']} to do, {each}")
    lines += [f"Missing data: {why}" for why in found["missing_data"]]
    about = "at least" if found["lower_bound"] else "about"
    speed = "one at a time; lanes make it faster" if found["one_at_a_time"] else f"{found['at_once']} at a time"
    lines.append(
        f"{found['cells']} cells, {found['done']} done; {about} {span(found['seconds'])} here ({speed}). measured: "
        "from cells that were run on this machine; timed: a few steps of each stage were trained just now. "
        "Stages that cells share are counted for each."
    )
    return "\n".join(lines)
