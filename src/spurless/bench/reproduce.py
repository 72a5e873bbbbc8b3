"""The papers' tables: where their specifications lie, what is left to do, and the page beside the paper's numbers."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spurless.bench import table
from spurless.bench.claim import finished_row
from spurless.bench.remarks import remarks
from spurless.bench.rows import all_rows
from spurless.bench.run import agreed
from spurless.bench.spec import Line, Spec
from spurless.core.errors import UserError, unknown
from spurless.core.files import atomic, finite, read_toml
from spurless.train.forecast import span

if TYPE_CHECKING:
    from spurless.bench.estimate import Guess
    from spurless.bench.trials import Trial

SHOWN = 6  # labels of blocks in the list of tables
HOW = {
    "measured": "from trials that were run on this machine",
    "timed": "a few steps of each stage were trained just now",
    "at least": "a few steps were trained just now, but not all stages could be seen in so short a time",
    "at most": "a few steps were trained just now, and training may end by its criterion before its last epoch",
    "roughly": "a few steps were trained just now; not all stages were seen, and training may end early",
}
SHARED = "Stages that trials share are counted for each."
PAGE, DATA = "report.html", "reproduction.json"


def papers() -> dict[str, Path]:
    """The specifications of published tables by name: in the package, or in the checkout around it."""
    package = Path(__file__).parents[1]
    for folder in (package / "papers", package.parents[1] / "papers"):
        if folder.is_dir():
            return {path.stem: path for path in sorted(folder.glob("*.toml"))}
    return {}


def paper(name: str) -> Path:
    specs = papers()
    if name not in specs:
        raise unknown("table", name, specs) if specs else UserError("No papers' tables are installed here.")
    return specs[name]


def titles() -> dict[str, str]:
    """What each table is, with the labels that --only takes."""
    titles_of = {}
    for name, path in papers().items():
        content = read_toml(path)
        labels = [str(b["label"]) for b in content.get("block", []) if b.get("label")]
        more = f"; {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
        titles_of[name] = f"{content.get('title', '')} ({'; '.join(labels[:SHOWN])}{more})"
    return titles_of


def write_page(spec: Spec, rows: Sequence[dict[str, Any]], out: Path, command: str = "") -> Path:
    """The HTML page on ours beside the paper's, and the JSON file that it is made from."""
    from spurless.report import write_any

    lines = table.as_json(spec, rows)
    for line in lines:
        line["data"] = ", ".join(filter(None, [line["data"], *line["grid"].values()]))
    done = [row for row in rows if row["status"] == "done"]
    content = {
        "title": spec.title,
        "source": spec.source,
        "command": command or None,
        "date": max((str(row["date"]) for row in done if row.get("date")), default=None),
        "rows": lines,
        "notes": remarks(spec, rows),
        "versions": done[0].get("versions", {}) if done else {},
    }
    with atomic(out / DATA) as unfinished:
        unfinished.write_text(json.dumps(finite(content), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return write_any([out / DATA], out / PAGE, spec.title)


def plan(spec: Spec, out: Path, device: str | None, workers: int | None, root: str | None) -> dict[str, Any]:
    """What a run would do: each line's trials, the data that is missing, and how long it would take here."""
    from spurless.bench.estimate import guesses
    from spurless.core.messages import log

    trials = agreed(spec.trials())
    left = {trial.key: trial for trial in trials if finished_row(out / trial.folder, trial.after) is None}
    kinds = {trial.kind() for trial in left.values()}
    log.info(f"Looking at {len(kinds)} kinds of trials ...")
    estimates = guesses([trial for trial in trials if trial.kind() in kinds], all_rows(out), device, root, log.info)
    lines = []
    listed: set[str] = set()  # trials that an earlier line has, too
    for group in _same_trials(spec.lines):
        lines.append(_planned(group, left, estimates, listed))
        listed |= {trial.key for trial in group[0].trials if trial.key in left}
    total = len({trial.key for trial in trials})
    return {
        "title": spec.title,
        "lines": lines,
        "cells": total,
        "done": total - len(left),
        "missing_data": list(dict.fromkeys(g.how for g in estimates.values() if g.seconds is None)),
        **_work([estimates[trial.kind()] for trial in left.values()], device, workers),
    }


def _work(guesses: Sequence[Guess], device: str | None, workers: int | None) -> dict[str, Any]:
    """How long the trials that are left take together here, those whose data is missing left out."""
    from spurless.bench.executors.mps import processes_on
    from spurless.core.threads import cores
    from spurless.train.device import pick_device

    timed = [guess for guess in guesses if guess.seconds is not None]
    chosen_device = pick_device(device)
    gpu = chosen_device.type == "cuda"
    at_once = 1 if gpu else min(workers or cores(), max(1, len(guesses)))
    together = workers or (processes_on(chosen_device, len(guesses)) if gpu else 1)
    return {
        "can_run": len(timed),
        "seconds": sum(guess.seconds or 0.0 for guess in timed) / at_once,
        "at_once": at_once,
        "bound": _bound({guess.how for guess in timed}),
        "one_at_a_time": gpu,
        "faster": f"{together} processes" if together > 1 else "lanes",
    }


def _planned(
    group: Sequence[Line], left: Mapping[str, Trial], estimates: Mapping[str, Guess], listed: Set[str]
) -> dict[str, Any]:
    """What is to do of lines with the same trainings, of which those `listed` are another line's too."""
    line = group[0]
    todo = [trial for trial in line.trials if trial.key in left]
    each = [estimates[trial.kind()] for trial in todo]
    ready = [guess.seconds for guess in each if guess.seconds is not None]
    ends = {line.end: f"{line.values[0]} to {line.values[-1]}"} if line.end else {}
    return {
        "data": line.block,
        "method": "; ".join(dict.fromkeys(x.row for x in group)),
        "grid": {k: ends.get(v, v) for k, v in line.grid.items()},
        "cells": len(line.trials),
        "done": len(line.trials) - len(todo),
        "new": len({trial.key for trial in todo} - listed),
        "seconds_each": statistics.fmean(ready) if ready else None,
        "how": line.missing or ", ".join(dict.fromkeys(guess.how for guess in each)) or "done",
    }


def _same_trials(lines: Sequence[Line]) -> list[list[Line]]:
    """Lines that come from the same trainings, together: several measures of them, or both ends of a range."""
    groups: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        own = (line.row, *line.grid.values()) if line.missing else tuple(trial.key for trial in line.trials)
        groups.setdefault((line.block, line.missing, *own), []).append(line)
    return list(groups.values())


def plan_text(planned: dict[str, Any]) -> str:
    """The plan for a person."""
    lines = [planned["title"]]
    reasons = {why: number for number, why in enumerate(planned["missing_data"], 1)}
    for (data, why), group in itertools.groupby(planned["lines"], lambda x: (x["data"], _stuck(x))):
        own = list(group)
        names = "; ".join(dict.fromkeys(line["method"] for line in own))
        if why in reasons:  # for all of them the same: one line, and the reason below
            count = sum(line["new"] for line in own)
            todo = f"{count} to do" if count else "the same trials"
            lines.append(f"  {f'{data}: ' if data else ''}{todo}, cannot be run here, see ({reasons[why]}): {names}")
        elif why:
            lines.append(f"  {', '.join(filter(None, [data, names]))}: cannot be run ({why})")
        else:
            lines += [f"  {_line_text(line)}" for line in own]
    lines += [f"({number}) {why}" for why, number in reasons.items()]
    return "\n".join([*lines, _sum_text(planned)])


def _bound(hows: set[str]) -> str:
    """What a sum of such times is.

    >>> _bound({"timed", "at least"}), _bound({"at most", "measured"}), _bound({"at most", "at least"})
    ('at least', 'at most', 'about')
    """
    odd = hows & {"at least", "at most", "roughly"}
    return odd.pop() if odd in ({"at least"}, {"at most"}) else "about"


def _stuck(line: dict[str, Any]) -> str:
    """Why no trial of a line can be run, where that is so."""
    return line["how"] if line["seconds_each"] is None and line["how"] != "done" else ""


def _line_text(line: dict[str, Any]) -> str:
    where = ", ".join([*filter(None, [line["data"]]), line["method"], *(f"{k} {v}" for k, v in line["grid"].items())])
    if line["done"] == line["cells"]:
        return f"{where}: {line['cells']} done"
    there = f"{line['done']} done, " if line["done"] else ""
    return f"{where}: {there}{line['cells'] - line['done']} to do, {span(line['seconds_each'])} each, {line['how']}"


def _sum_text(planned: dict[str, Any]) -> str:
    """How much there is to do, and how long it takes."""
    sentence = f"{planned['cells']} trials, {planned['done']} done"
    left = planned["cells"] - planned["done"]
    if not left:
        return f"{sentence}."
    if not planned["can_run"]:
        return f"{sentence}; none of the {left} that are left can be run here."
    some = f", for the {planned['can_run']} that can be run" if planned["can_run"] < left else ""
    speed = f"one at a time; {planned['faster']} make it faster"
    speed = speed if planned["one_at_a_time"] else f"{planned['at_once']} at a time"
    text = f"{sentence}; {planned['bound']} {span(planned['seconds'])} here ({speed}){some}."
    hows = {word for line in planned["lines"] for word in line["how"].split(", ")}
    return " ".join([text, *(f"{how}: {what}." for how, what in HOW.items() if how in hows), SHARED])
