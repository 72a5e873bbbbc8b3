"""How long cells will take on this machine: from rows that were measured on it, else by timing a few steps of each."""

from __future__ import annotations

import statistics
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from spurless.bench.cells import Cell, digest
from spurless.bench.one import data_of, machine
from spurless.core import Labels, Method, Run, Stage
from spurless.engine import fit, pick_device
from spurless.errors import UserError
from spurless.loop import Progress, batch_sizes, stage_length
from spurless.nets import Net
from spurless.registry import make_method
from spurless.result import versions

STEPS = 30  # of each stage that are timed
WARM = 10  # of them that are not counted: on a GPU the first ones are captured as a graph
BUDGET = 60.0  # seconds for one kind of cell
FEW = 5  # stages after which a method that cuts its training into many is not followed further


@dataclass(frozen=True)
class Guess:
    """Seconds that a cell takes, and how that is known; None where its data is missing."""

    seconds: float | None
    how: str  # measured, timed, at least, or why it is not known


class Enough(Exception):
    """The time for a look is over."""


@dataclass(frozen=True)
class Short(Method):
    """A method with each stage cut to a few steps; it remembers how long they would be."""

    inner: Method
    lengths: list[tuple[int, float, float]] = field(default_factory=list)  # steps, epochs, end of the span

    @property
    def labels(self) -> Labels:
        return self.inner.labels

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        generator = self.inner.stages(run)
        try:
            stage = next(generator)
            while True:
                rows = len(run.data.train) if stage.rows is None else len(stage.rows)
                a_pass = len(batch_sizes(rows, run.recipe))
                length = stage_length(stage, run.recipe, a_pass)
                self.lengths.append((length, length / a_pass, stage.span[1]))
                yield replace(stage, epochs=None, iterations=min(length, a_pass, STEPS), shared=None)
                if len(self.lengths) >= FEW and stage.span[1] < 1:
                    raise Enough
                stage = next(generator)
        except StopIteration as end:
            return end.value


class Stopwatch:
    """Times steps, and the look at the validation split that ends an epoch."""

    def __init__(self, device: torch.device, until: float):
        self.device, self.until = device, until
        self.steps: list[tuple[float, float]] = []  # for each stage: seconds a step, seconds of the look
        self.marks: list[float] = []
        self.timed = 0.0

    def __enter__(self) -> Stopwatch:
        return self

    def __exit__(self, *error: object) -> None: ...

    def __call__(self, where: Progress) -> None:
        if where.row is not None:
            return
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.marks.append(time.monotonic())
        if where.step == where.total:
            first = min(WARM, (len(self.marks) - 1) // 2)
            span = self.marks[first:-1]
            step = (span[-1] - span[0]) / (len(span) - 1) if len(span) > 1 else 0.0
            look = max(0.0, self.marks[-1] - self.marks[-2] - step) if len(self.marks) > 1 else 0.0
            self.steps.append((step, look))
            self.timed += self.marks[-1] - self.marks[0]
            self.marks = []
        if time.monotonic() > self.until:
            raise Enough


def timed(cell: Cell, device: torch.device, root: str | Path | None) -> Guess:
    """Train a few steps of each stage, and multiply."""
    data = data_of(cell, root)
    method = Short(make_method(cell.method))
    watch = Stopwatch(device, time.monotonic() + BUDGET)
    started = time.monotonic()
    whole = True
    try:
        fit(method, data, cell.net, cell.recipe or None, cell.seed, device=device, progress=watch)
    except Enough:
        whole = False
    except UserError:
        if not watch.steps:
            raise
        whole = False  # a network of a few steps can leave the next stage without rows
    between = max(0.0, time.monotonic() - started - watch.timed)
    seconds = sum(
        length * step + epochs * look
        for (length, epochs, _), (step, look) in zip(method.lengths, watch.steps, strict=False)
    )
    followed = method.lengths[max(0, len(watch.steps) - 1)][2] if method.lengths else 1.0
    if not whole and 0 < followed < 1:
        return Guess((seconds + between) / followed, "timed")  # its schedule says how far it got
    return Guess(seconds + between, "timed" if whole else "at least")


def guesses(
    cells: Sequence[Cell], rows: Sequence[Mapping[str, Any]], device: str | None, root: str | Path | None
) -> dict[str, Guess]:
    """For each kind of cell (Cell.kind) the seconds that one takes, one at a time."""
    place = pick_device(device)
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])  # its first use imports for seconds, which no cell should pay
    here = machine(versions(place)["device"])
    found: dict[str, Guess] = {}
    like: dict[str, Guess] = {}
    by_key = {row["key"]: row for row in rows if row["status"] == "done" and row.get("machine") == here}
    for kind in dict.fromkeys(cell.kind() for cell in cells):
        own = [cell for cell in cells if cell.kind() == kind]
        times = [by_key[c.key]["wall_seconds"] for c in own if c.key in by_key and not by_key[c.key].get("resumed")]
        if times:
            found[kind] = Guess(statistics.median(times), "measured")
            continue
        try:
            size = _size(own[0], root)
            if size not in like:
                like[size] = timed(own[0], place, root)
            found[kind] = like[size]
        except UserError as error:
            found[kind] = Guess(None, str(error))
    return found


def _size(cell: Cell, root: str | Path | None) -> str:
    """What decides how long a cell takes: how many rows it has and of what shape, not what is in them."""
    data = data_of(cell, root)
    rows = {name: len(split) for name, split in data.splits.items()}
    return digest([cell.data["name"], rows, data.shape, cell.method, cell.net, cell.recipe])
