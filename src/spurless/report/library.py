"""What lies below a folder: its audits, and its runs, those that differ only in their seed as one line of a table."""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from spurless.core.errors import first_line
from spurless.core.stats import Estimate, estimate
from spurless.report import tables
from spurless.report.sources import AUDIT, Material, read_json, run_row, walk
from spurless.report.whole import build
from spurless.train.run_folder import HISTORY, RESULT, RunFolder

ALIVE = 120.0  # seconds since a run's last sign of life after which it is called stopped
NEEDED = ("method", "data", "net", "seed", "status", "scores", "settings")  # of a result: what the list is made from
ORDER = ("training", "done", "stopped", "diverged")  # of statuses in a line
Row = dict[str, Any]


class Line(NamedTuple):
    """Runs that differ only in their seed."""

    name: str
    link: str
    method: str
    runs: list[Row]  # by seed
    statuses: list[tuple[str, str]]  # status, and the text such as "2 done"
    cells: list[tables.Cell]  # as the columns of its table
    last: str  # where its latest unfinished run is


class Group(NamedTuple):
    """The lines on one dataset with its settings."""

    name: str
    link: str  # to the report on its finished runs, where there are any
    columns: list[str]
    lines: list[Line]


class View(NamedTuple):
    """All that the page shows."""

    groups: list[Group]
    audits: list[Row]
    damaged: list[Row]
    training: list[Row]
    counts: Counter[str]


class Library:
    """The runs and audits below a folder. What was read is kept until its files change."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder).resolve()
        self.read: dict[Path, tuple[Any, Row]] = {}

    def places(self) -> dict[str, Path]:
        """By name, which is the path below the folder: each run's folder, and each audit.json."""
        places = {}
        for folder in walk(self.folder):
            own = folder.parent if folder.name == AUDIT else folder
            name = own.relative_to(self.folder).as_posix()
            name = self.folder.name if name == "." else name
            places[f"audit/{name}" if folder.name == AUDIT else f"run/{name}"] = folder
        return places

    def rows(self) -> list[Row]:
        """One row for each, the latest first."""
        rows = [self._row(name, folder) for name, folder in self.places().items()]
        return sorted(rows, key=lambda r: (r["status"] != "training", -r["changed"]))

    def for_machines(self) -> list[Row]:
        """The rows without their settings, and of the scores the first few as text."""
        rows = self.rows()
        short = ("status", "method", "data", "seed", "epoch", "name", "link", "changed")
        return [{k: row.get(k) for k in short} | {"scores": _texts(row)} for row in rows]

    def view(self) -> View:
        """The rows in groups: by dataset, then by what differs in nothing but the seed."""
        rows = self.rows()
        audits = [r for r in rows if r["kind"] == "audit" and r["status"] != "damaged"]
        runs = [r for r in rows if r["kind"] == "run" and r["status"] != "damaged"]
        damaged = [r for r in rows if r["status"] == "damaged"]
        groups = _groups(runs)
        training = [
            run | {"data": group.name, "line": line.name}
            for group in groups
            for line in group.lines
            for run in line.runs
            if run["status"] == "training"
        ]
        return View(groups, audits, damaged, training, Counter(r["status"] for r in runs))

    def page(self, name: str) -> str | None:
        """The report on one of them, on those of a line or of a dataset, or on all finished runs; None where there is
        no such thing."""
        places = self.places()
        kind, _, key = name.partition("/")
        if name == "all" or kind in ("data", "line"):
            return self._pages_of_several(kind, key, places)
        folder = places.get(name)
        if folder is None:
            return None
        if folder.name == AUDIT:
            return build(Material(audits=[(read_json(folder), folder.parent)]))
        return build(Material(runs=[run_row(folder)]))

    def _pages_of_several(self, kind: str, key: str, places: Mapping[str, Path]) -> str | None:
        lines = [(group, line) for group in self.view().groups for line in group.lines]
        chosen = [
            (group, line)
            for group, line in lines
            if kind == "all" or (group.link if kind == "data" else line.link) == f"/{kind}/{key}"
        ]
        names = [run["place"] for _, line in chosen for run in line.runs if run["status"] == "done"]
        rows = [run_row(places[name]) for name in sorted(names) if name in places]
        if kind == "all":
            return build(Material(runs=rows), f"All runs in {self.folder.name}")
        if not rows:
            return None
        group, line = chosen[0]
        return build(Material(runs=rows), group.name if kind == "data" else f"{line.name} on {group.name}")

    def _row(self, name: str, folder: Path) -> Row:
        kind = "audit" if folder.name == AUDIT else "run"
        files = [folder] if kind == "audit" else [folder / n for n in (RESULT, HISTORY, "settings.toml")]
        stamps = [_stamp(file) for file in files]
        if self.read.get(folder, (None, {}))[0] != stamps:
            try:
                facts = _audit_facts(read_json(folder)) if kind == "audit" else _run_facts(folder)
            except Exception as error:
                # Whatever a file holds, or another program wrote under this name: it costs one row, not the list.
                facts = {"status": "damaged", "method": "", "data": "", "epoch": first_line(error)}
            self.read[folder] = stamps, facts
        row = dict(self.read[folder][1])
        changed = max((s[0] for s in stamps if s), default=0) / 1e9
        if row["status"] == "unfinished":
            row["status"] = "training" if time.time() - changed < ALIVE else "stopped"
        row |= {"kind": kind, "name": name.partition("/")[2], "place": name, "changed": changed}
        return row | {"link": "/" + quote(os.fsencode(name))}


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except OSError:  # not there, or gone in this moment
        return None
    return status.st_mtime_ns, status.st_size


def _run_facts(folder: Path) -> Row:
    row = run_row(folder)
    history = row.get("history") or RunFolder(folder).history()
    last = history[-1] if history else {}
    epoch = f"{last.get('stage')}, epoch {last.get('epoch')}" if last else ""
    if last and not tables.finished(row) and isinstance(last.get("loss"), float):
        epoch += f", loss {last['loss']:.3g}"
    facts = {name: row.get(name) for name in NEEDED} | {"status": str(row.get("status")), "epoch": epoch}
    facts["settings"] = _given(row.get("settings") or {})
    tables.rows([facts])  # what cannot be drawn is damaged
    hash(facts["seed"])
    return facts


def _texts(row: Row) -> list[tuple[str, str]]:
    present = [(m, str(score)) for m in tables.METRICS[:3] if (score := tables.score(row, m))]
    return present or [("average", str(score)) for score in [tables.score(row, "average")] if score]


def _given(settings: Mapping[str, Any]) -> Row:
    """Without settings that are None, which the file of an unfinished run does not hold."""
    return {
        key: _given(value) if isinstance(value, Mapping) else value
        for key, value in settings.items()
        if value is not None
    }


def _audit_facts(audit: Any) -> Row:
    data = audit.get("data") or {}
    return {"status": str(audit["verdict"]), "method": "audit", "data": data.get("name"), "epoch": ""}


def _groups(runs: Sequence[Row]) -> list[Group]:
    """By dataset, the one that changed last first."""
    by_data = _by(tables.same_data(runs), runs)
    first = [own[0] for own in by_data.values()]
    names = tables.names([{"method": row["data"], "settings": {"data": tables.data_of(row)}} for row in first])
    return [_group(name, key, own) for name, (key, own) in zip(names, by_data.items(), strict=True)]


def _group(name: str, key: str, runs: Sequence[Row]) -> Group:
    by_line = _by([tables.same_but_seed(row) for row in runs], runs)
    named = zip(tables.names([own[0] | {"seed": None} for own in by_line.values()]), by_line.values(), strict=True)
    pairs = sorted(named, key=lambda pair: pair[0])
    columns = tables.metrics(runs)
    means = [[_mean(own, metric) for metric in columns] for _, own in pairs]
    peers = [[own[c] for own in means] for c in range(len(columns))]
    lines = [
        _line(who, own, [_cell(mean, peers[c]) for c, mean in enumerate(row)])
        for (who, own), row in zip(pairs, means, strict=True)
    ]
    several = sum(any(run["status"] == "done" for run in line.runs) for line in lines) > 1
    return Group(name, f"/data/{_short(key)}" if several else "", columns, lines)


def _line(name: str, runs: Sequence[Row], cells: list[tables.Cell]) -> Line:
    counts = Counter(run["status"] for run in runs)
    statuses = [(s, f"{counts[s]} {s}") for s in sorted(counts, key=lambda s: (*ORDER, s).index(s))]
    ordered = sorted(runs, key=lambda run: (str(type(run["seed"])), run["seed"], run["name"]))
    done = counts["done"]
    link = f"/line/{_short(tables.same_but_seed(runs[0]))}" if done > 1 else ordered[0]["link"]
    if done == 1:
        link = next(run["link"] for run in ordered if run["status"] == "done")
    unfinished = [run["epoch"] for run in runs if run["status"] in ("training", "stopped") and run["epoch"]]
    return Line(name, link, str(runs[0]["method"]), ordered, statuses, cells, unfinished[0] if unfinished else "")


class _Mean(NamedTuple):
    """A score over seeds, each once (its latest run); the fewest samples where its group is too small to decide."""

    score: Estimate | None
    few: int | None


def _mean(runs: Sequence[Row], metric: str) -> _Mean:
    latest = {row["seed"]: row for row in sorted(runs, key=lambda row: row["changed"]) if tables.finished(row)}
    scores = [score for row in latest.values() if (score := tables.score(row, metric))]
    few = [n for row in latest.values() if (n := tables.small_n(row, metric)) is not None]
    mean = scores[0] if len(scores) == 1 else estimate([score.value for score in scores]) if scores else None
    return _Mean(mean, min(few, default=None))


def _cell(own: _Mean, peers: Sequence[_Mean]) -> tables.Cell:
    """The best of its column is marked, unless a group that is too small would decide it."""
    if own.score is None:
        return tables.Cell("")
    text = str(own.score) if own.score.sd is None else own.score.text(1)
    values = {round(peer.score.value, 1) for peer in peers if peer.score}
    decides = len(values) > 1 and all(peer.few is None for peer in peers)
    best = decides and round(own.score.value, 1) == max(values)
    return tables.Cell(text if own.few is None else f"{text} (n = {own.few})", best)


def _by(keys: Iterable[str], runs: Sequence[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for key, run in zip(keys, runs, strict=True):
        groups.setdefault(key, []).append(run)
    return groups


def _short(key: str) -> str:
    return hashlib.sha256(key.encode(errors="backslashreplace")).hexdigest()[:16]
