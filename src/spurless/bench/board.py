"""How far a benchmark is: a live table on standard error where someone watches, plain lines otherwise."""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spurless.bench.figures import value_of
from spurless.bench.trials import Trial
from spurless.core.messages import log
from spurless.report.tables import METRICS
from spurless.train.forecast import span

if TYPE_CHECKING:
    from rich.console import RenderableType

    from spurless.bench.executors.base import Event

SHOWN = 8  # running trials, and finished ones, that have a line


class Clock:
    """The time left, from the times of trials that were measured: here now, or in rows that were there before."""

    def __init__(self, left: Sequence[Trial], rows: Sequence[dict[str, Any]], at_once: int):
        self.left = {trial.key: trial for trial in left}
        self.waiting = Counter(place_of(trial.labels) for trial in self.left.values())  # trials that have not begun
        self.known: dict[str, list[float]] = defaultdict(list)
        self.at_once = max(1, at_once)
        self.began: dict[str, float] = {}
        self.started = time.monotonic()
        self.work = 0.0  # seconds of trials that ended since the start
        for row in rows:
            self._learn(place_of(row.get("labels") or {}), row)

    def _learn(self, machine: str, row: dict[str, Any]) -> None:
        if row["status"] == "done":
            self.known[machine].append(max(row.get("wall_seconds") or 0, row.get("seconds") or 0))

    def start(self, trial: Trial) -> None:
        if trial.key in self.left and trial.key not in self.began:
            self.waiting[place_of(self.left[trial.key].labels)] -= 1
        if not self.began and not self.work:
            self.started = time.monotonic()  # what processes take to start is no trial's time
        self.began.setdefault(trial.key, time.monotonic())  # what someone else is doing is asked for again and again

    def end(self, trial: Trial, row: dict[str, Any]) -> None:
        started = self.left.pop(trial.key, None)
        began = self.began.pop(trial.key, None)  # on a cluster nobody says when a trial starts
        if started is not None and began is None:
            self.waiting[place_of(started.labels)] -= 1
        self.work += (row.get("wall_seconds") or 0) if began is None else time.monotonic() - began
        self._learn(place_of(trial.labels), row)

    def seconds_left(self) -> float | None:
        """None before anything is known. How many trials go side by side is taken from what happened so far: from the
        time that was spent on those that ended and on those that are on their way."""
        if not self.known:
            return None
        # A median for each place and not for each trial: this is asked for at the end of every trial.
        middles = {machine: statistics.median(times) for machine, times in self.known.items()}
        usual = statistics.mean(middles.values())
        now = time.monotonic()
        work = sum(count * middles.get(machine, usual) for machine, count in self.waiting.items())
        for key, began in self.began.items():
            if key in self.left:
                work += max(0.0, middles.get(place_of(self.left[key].labels), usual) - (now - began))
        spent = self.work + sum(now - began for began in self.began.values())
        speed = spent / (now - self.started) if self.work else self.at_once
        return work / max(speed, 0.1)


def place_of(labels: dict[str, str]) -> str:
    """Trials that differ in nothing but their seed stand in the same place of the table."""
    return ", ".join(v for k, v in labels.items() if k != "metric" and v)


class Board:
    """Watches a benchmark. `plain`: lines where nobody watches a terminal; else nothing is said there."""

    def __init__(self, plain: bool = True):
        from spurless.core.terminal import Console

        self.console = Console(stderr=True)
        self.plain = plain and not self.console.is_terminal
        self.live: Any = None
        self.clock = Clock([], [], 1)
        self.total = self.before = 0
        self.counts = {"done": 0, "diverged": 0, "failed": 0}
        self.running: dict[str, tuple[Trial, float]] = {}
        self.waiting: set[str] = set()
        self.last: list[str] = []

    def __enter__(self) -> Board:
        if self.console.is_terminal:
            from rich.live import Live

            self.live = Live(get_renderable=self.render, console=self.console, refresh_per_second=2, transient=True)
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.live:
            self.live.stop()

    def __call__(self, event: Event) -> None:
        if event.kind == "plan":
            left, rows, at_once = event.plan
            self.clock = Clock(left, rows, at_once)
            self.before, self.total = len({row["key"] for row in rows}), len(left) + len({row["key"] for row in rows})
            if self.plain:
                there = f", {self.before} are done" if self.before else ""
                speed = f"{at_once} at a time" if at_once else "as many at a time as help"
                log.info(f"{self.total} trials{there}; {len(left)} to do, {speed}.")
            return
        trial = event.trial
        assert trial is not None
        if event.kind == "start":
            self.running[trial.key] = (trial, time.monotonic())
            self.clock.start(trial)
        elif event.kind == "busy":
            self.running.pop(trial.key, None)
            if self.plain and trial.key not in self.waiting:
                log.info(f"{name(trial)}: another process is at it")
            self.waiting.add(trial.key)
        elif event.row is not None:
            self._end(trial, event.row)

    def _end(self, trial: Trial, row: dict[str, Any]) -> None:
        self.running.pop(trial.key, None)
        self.waiting.discard(trial.key)
        self.counts[row["status"]] += 1
        self.clock.end(trial, row)
        line = f"{name(trial)}: {outcome(row)}"
        self.last = [*self.last, line][-SHOWN:]
        if self.plain:
            log.info(f"[{self.before + sum(self.counts.values())}/{self.total}] {line}{self._left('; ', ' left')}")

    def _left(self, before: str, behind: str) -> str:
        seconds = self.clock.seconds_left()
        return "" if seconds is None or not self.clock.left else f"{before}{span(seconds)}{behind}"

    def render(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        ended = self.before + sum(self.counts.values())
        parts = [f"done {self.before + self.counts['done']} of {self.total}"]
        parts += [f"running {len(self.running)}"] if self.running else []  # a cluster does not say which
        parts += [f"{k} {n}" for k, n in self.counts.items() if n and k != "done"]
        parts += [f"elsewhere {len(self.waiting)}"] if self.waiting else []
        table = Table.grid(padding=(0, 2))
        now = time.monotonic()
        for trial, began in list(self.running.values())[:SHOWN]:
            table.add_row(Text("running", "cyan"), Text(name(trial)), Text(span(now - began)))
        for line in self.last:
            what, _, how = line.rpartition(": ") if ": " in line else (line, "", "")
            bad = how.startswith(("failed", "diverged"))
            table.add_row(Text("ended", "red" if bad else "green"), Text(what), Text(how))
        head = Text("  ".join(parts) + self._left("  left: ", ""))
        bar = ProgressBar(total=max(1, self.total), completed=ended, width=60)
        return Group(head, bar, Text(), table)  # the empty text ends the bar's line


def name(trial: Trial) -> str:
    """Where a trial stands in its table, or what it is.

    >>> name(Trial({"name": "toy"}, {"name": "erm"}, seed=2))
    'erm, toy, seed 2'
    """
    return f"{place_of(trial.labels) or trial.method['name'] + ', ' + trial.data['name']}, seed {trial.seed}"


def outcome(row: dict[str, Any]) -> str:
    """A row in a few words.

    >>> outcome({"status": "done", "scores": {"unbiased": 71.25}, "wall_seconds": 4.2})
    'unbiased 71.25 (4 s)'
    """
    if row["status"] != "done":
        return f"{row['status']} ({str(row.get('error')).splitlines()[0]})"
    metric = (row.get("labels") or {}).get("metric", "")
    for one in (metric, *METRICS, "average"):
        value = value_of(row, one) if one else None
        if value is not None:
            return f"{one.replace('_', ' ')} {value:.2f} ({span(row.get('wall_seconds') or 0)})"
    return f"done ({span(row.get('wall_seconds') or 0)})"
