"""run_cells(): do the cells that are not done, and return the rows of all."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from spurless.bench.cells import KEYS, Cell, remember, save_keys, stale
from spurless.bench.claim import DYNAMICS, FINISHED, Claim, claim, finished_row
from spurless.bench.one import PATIENCE, Attempt, compiled, lost_its_gpu, named, run_one
from spurless.bench.rows import JSONL, write_jsonl
from spurless.core.errors import UserError, unknown
from spurless.core.threads import cores
from spurless.train.run_folder import RESULT

if TYPE_CHECKING:
    import torch

WHERE = ("here", "ray", "slurm")
WRITTEN = (JSONL, "report.html", "reproduction.json", "sweep.json", "sweep.png")  # into a folder of cells, beside them


@dataclass(frozen=True)
class Event:
    """What a watcher is told: the plan at first, then every cell that starts, waits for another process, or ends."""

    kind: str  # plan, start, busy, row
    cell: Cell | None = None
    row: dict[str, Any] | None = None
    # cells to do, rows there, how many at a time (0: found out)
    plan: tuple[Sequence[Cell], Sequence[dict[str, Any]], int] = ((), (), 1)


class Watch(AbstractContextManager, Protocol):
    """Anything that shows how far a benchmark is: used as a context, called with every event."""

    def __call__(self, event: Event) -> None: ...


def run_cells(
    cells: Sequence[Cell],
    out: str | Path,
    *,
    device: str | None = None,
    workers: int | None = None,
    root: str | Path | None = None,
    on: str = "here",
    after: str | None = None,
    watch: Watch | None = None,
    address: str | None = None,
    gpus_per_cell: float | None = None,
    dynamics: Mapping[str, Any] | bool | None = None,
    compile: bool | Literal["gpu"] = False,
) -> list[dict[str, Any]]:
    """Train the cells that are not done, and return the rows of all of them, in their order.

    Each cell is a run folder below `out`, named by its key. What is done (or diverged) is not done again, what was
    killed goes on, what failed is tried again. Several processes may work on one folder: each cell is done by one.
    On a CPU there are `workers` processes (default: as many as cores). On a GPU there are as many as share it well, or
    one with several lanes, unless `workers` says otherwise.
    `after` = "module:function" is called in the worker with (result, bundle, folder); its dict is row["extra"]. With
    `dynamics` the steps of every run are watched (see fit). Both are for cells that have none of their own; what is
    trained, but not measured by `after`, is only measured. `gpus_per_cell`: a share of a GPU, on a Ray cluster.
    `compile` sets recipe.compile everywhere; like the device, it makes no other cell. "gpu": only where a GPU does the
    cells and it can be done, for cells that neither name it nor are watched.
    """
    out = Path(out)
    if compile is True:
        cells = [replace(cell, recipe=cell.recipe | {"compile": True}) for cell in cells]
    if on not in WHERE:
        raise unknown("executor", on, WHERE)
    if workers is not None and workers < 1:
        raise UserError(f"workers = {workers} is not allowed; there must be at least one.")
    if gpus_per_cell is not None and not gpus_per_cell >= 0:
        raise UserError(f"--gpus-per-cell {gpus_per_cell} is not allowed; it takes a share such as 0.25, or 0.")
    if gpus_per_cell is not None and on != "ray":
        raise UserError("--gpus-per-cell is for --on ray; on one GPU, lanes share it by themselves.")
    if address is not None and on != "ray":
        raise UserError("--address is that of a Ray cluster: add --on ray, or leave it out.")
    _check_place(out)
    out.mkdir(parents=True, exist_ok=True)
    remember(out)
    cells = agreed(cells, after, dynamics)
    found = {cell.key: finished_row(out / cell.folder, cell.after) for cell in cells}
    _watched(cells, out)
    stale(out, [(cell, row) for cell in cells if (row := found[cell.key])])
    save_keys(out, list(cells))
    left = list({cell.key: cell for cell in cells if found[cell.key] is None}.values())
    _check(left)
    watch = watch or _usual_watch()
    there = [row | {"labels": cell.labels} for cell in cells if (row := found[cell.key])]
    if left:
        how: dict[str, Any] = {"device": device, "workers": workers, "root": root}
        if on == "here":
            events = _here(left, there, out, tell=watch, compile=compile == "gpu", **how)
        else:
            of_ray = {"address": address, "gpus_per_cell": gpus_per_cell} if on == "ray" else {}
            events = _elsewhere(left, there, out, on, how | of_ray | {"compile": compile == "gpu"})
        try:
            with watch:
                for event in events:
                    watch(event)
                    if event.kind == "row" and event.cell and event.row:
                        found[event.cell.key] = event.row
        except KeyboardInterrupt:
            write_jsonl(out, cells)
            done = sum(row is not None and row["status"] in FINISHED for row in found.values())
            raise KeyboardInterrupt(
                f"{done} of {len(found)} cells are done, the place of the others is saved: the same command goes on."
            ) from None
    write_jsonl(out, cells)
    return [_row(found[cell.key], cell) for cell in cells]


def _check_place(out: Path) -> None:
    """Refuse a folder of something else where a file of that would be replaced."""
    taken = [name for name in WRITTEN if (out / name).exists()]
    if taken and not (out / KEYS).exists() and not (out / "cells").exists():
        raise UserError(f"{out} holds a {taken[0]} and no benchmark or sweep. Name another --out folder.")


def agreed(
    cells: Sequence[Cell], after: str | None = None, dynamics: Mapping[str, Any] | bool | None = None
) -> list[Cell]:
    """The cells, each with what is measured after it and whether it is watched; a UserError if a setting is wrong.

    A cell that is there several times is one training: what one of them asks for holds for all.
    """
    wanted: dict[str, tuple[str | None, Any]] = {}
    usual = dict(dynamics) if isinstance(dynamics, Mapping) else dynamics
    for cell in cells:
        new = cell.after or after, usual if cell.dynamics is None else cell.dynamics
        old = wanted.setdefault(cell.key, new)
        for name, a, b in zip(("after", "dynamics"), old, new, strict=True):
            if a and b and a != b:
                raise UserError(f"{cell.folder} is there twice, with {name} = {a!r} and {b!r}; it can have only one.")
        wanted[cell.key] = old[0] or new[0], old[1] or new[1]
    return [replace(c, after=wanted[c.key][0], dynamics=wanted[c.key][1] or None) for c in cells]


def _check(cells: Sequence[Cell]) -> None:
    """A UserError if what is to be measured or watched cannot be; only of what is left, as it imports torch."""
    for name in dict.fromkeys(cell.after for cell in cells if cell.after):
        named(name)
    if any(cell.dynamics for cell in cells):
        from spurless.train.dynamics import as_dynamics

        for cell in cells:
            as_dynamics(cell.dynamics)


def _watched(cells: Sequence[Cell], out: Path) -> None:
    """Refuse runs that are finished and were not watched although they should have been: it cannot be made up for."""
    for cell in cells:
        folder = out / cell.folder
        if cell.dynamics and (folder / RESULT).exists() and not (folder / DYNAMICS).exists():
            raise UserError(
                f"{folder} was trained without being watched (dynamics). Remove that folder to train it again, or name "
                "another --out."
            )


def _row(row: dict[str, Any] | None, cell: Cell) -> dict[str, Any]:
    if row is None:
        raise RuntimeError(f"{cell.folder}: no row came back.")
    return row | {"labels": cell.labels}


def _elsewhere(
    left: list[Cell], there: list[dict[str, Any]], out: Path, on: str, how: dict[str, Any]
) -> Iterator[Event]:
    """On a cluster: the executors call run_one there, and yield (cell, row) as rows come back."""
    yield Event("plan", plan=(left, there, how["workers"] or len(left)))
    execute: Callable[..., Iterator[tuple[Cell, dict[str, Any]]]]
    if on == "ray":
        from spurless.bench.executors.ray import run_on_ray as execute
    else:
        from spurless.bench.executors.slurm import run_on_slurm as execute
    for cell, row in execute(left, out, **how):
        yield Event("row", cell, row)


def _here(
    left: list[Cell],
    there: list[dict[str, Any]],
    out: Path,
    device: str | None,
    workers: int | None,
    root: str | Path | None,
    tell: Callable[[Event], None],
    compile: bool,
) -> Iterator[Event]:
    from spurless.train.device import pick_device

    place = pick_device(device)
    if place.type == "cuda":
        left = compiled(left, place) if compile else left
        yield from _on_gpu(left, there, out, place, workers, root, tell)
        return
    asked = workers or cores()
    threads = max(1, cores() // asked)  # of torch, for each process: decided by what was asked, not by what is left
    count = min(asked, len(left))
    yield Event("plan", plan=(left, there, count))
    if count == 1:
        yield from _in_this_process(left, out, str(place), threads, root)
    else:
        yield from _in_processes(left, out, str(place), count, threads, root)


def _on_gpu(
    left: list[Cell],
    there: list[dict[str, Any]],
    out: Path,
    place: torch.device,
    workers: int | None,
    root: str | Path | None,
    tell: Callable[[Event], None],
) -> Iterator[Event]:
    """In processes if asked to, or where there are many cells and processes can share the GPU; else in lanes."""
    from spurless.bench.executors.mps import processes_on, shared_gpu

    asked = workers or processes_on(place, len(left))
    count = min(asked, len(left))
    with shared_gpu(place.index or 0) if count > 1 else nullcontext() as shared:
        if asked > 1 and (workers or shared is not None):
            yield Event("plan", plan=(left, there, count))
            crowded = []  # cells that had no room beside the others
            for event in _in_processes(left, out, str(place), count, max(1, cores() // asked), root, shared or {}):
                if workers is None and event.cell and event.row and "out of memory" in str(event.row.get("error")):
                    crowded.append(event.cell)
                    event = Event("busy", event.cell)
                yield event
            if crowded:
                yield from in_lanes(crowded, out, str(place), root, tell)
        else:
            yield Event("plan", plan=(left, there, 0))
            yield from in_lanes(left, out, str(place), root, tell)


def _in_this_process(
    cells: Sequence[Cell], out: Path, device: str, threads: int, root: str | Path | None
) -> Iterator[Event]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    todo, busy = deque(cells), 0
    try:
        while todo:
            if busy == len(todo):  # someone else is doing all that is left
                time.sleep(PATIENCE)
                busy = 0
            cell = todo.popleft()
            yield Event("start", cell)
            row = run_one(cell, out, device, root, wait=False)
            busy = busy + 1 if row is None else 0
            if row is None:
                todo.append(cell)
            yield Event("busy" if row is None else "row", cell, row)
    finally:
        torch.set_num_threads(before)


def _in_processes(
    cells: Sequence[Cell],
    out: Path,
    device: str,
    workers: int,
    threads: int,
    root: str | Path | None,
    environment: Mapping[str, str] = {},
) -> Iterator[Event]:
    from spurless.bench.executors.processes import Pool

    settings = {"out": str(out), "device": device, "root": str(root) if root else None}
    for kind, cell, what in Pool(cells, workers, threads, settings, environment):
        if kind == "broken":
            raise what
        yield Event(kind, cell, what)


def in_lanes(
    cells: Sequence[Cell],
    out: Path,
    device: str,
    root: str | Path | None,
    tell: Callable[[Event], None] = lambda event: None,
) -> Iterator[Event]:
    """Several cells at once on one GPU. A cell is claimed when a lane is free for it, not before.

    Rows are yielded; that a cell starts is told at once, since nothing can be yielded while the lanes work. After an
    error that costs this process its GPU, all cells that are left are done by new ones, one after the other.
    """
    from spurless.train.lanes import Job, run_lanes

    todo = list(cells)
    while todo:
        switches = _arithmetic(todo[0])  # torch has one set of them for all lanes
        group = [cell for cell in todo if _arithmetic(cell) == switches]
        rest = [cell for cell in todo if _arithmetic(cell) != switches]
        held: dict[str, tuple[Claim, Attempt]] = {}
        told: list[Event] = []
        busy: list[Cell] = []

        def jobs(
            group: list[Cell] = group, held: dict = held, told: list[Event] = told, busy: list[Cell] = busy
        ) -> Iterator[Job]:
            for cell in group:
                taken = claim(out / cell.folder)
                if taken is None:
                    busy.append(cell)
                    tell(Event("busy", cell))
                    continue
                if row := finished_row(out / cell.folder, cell.after):
                    taken.release()
                    told.append(Event("row", cell, row))
                    continue
                tell(Event("start", cell))
                attempt = Attempt(cell, out, root)
                try:
                    job = Job(cell.key, attempt.arguments())
                except Exception as error:  # its data could not be loaded
                    told.append(Event("row", cell, attempt.finish(error)))
                    taken.release()
                    continue
                held[cell.key] = (taken, attempt)
                yield job

        done: set[str] = set()
        lost = False
        try:
            for job, outcome in run_lanes(jobs(), None, device):
                lost = isinstance(outcome, Exception) and lost_its_gpu()
                if lost:
                    break  # whichever cell noticed it first need not have caused it
                taken, attempt = held.pop(job.key)
                with taken:
                    row = attempt.finish(outcome)
                yield from _empty(told, done)
                done.add(job.key)
                yield Event("row", attempt.cell, row)
        finally:
            for taken, _ in held.values():
                taken.release()
        yield from _empty(told, done)
        if lost:
            left = [cell for cell in todo if cell.key not in done]
            yield from _in_processes(left, out, device, 1, cores(), root)
            return
        todo = rest + busy  # in this order: what someone else is doing must not keep the rest waiting
        if len(busy) == len(group):
            time.sleep(PATIENCE)


def _empty(told: list[Event], done: set[str]) -> Iterator[Event]:
    while told:
        event = told.pop(0)
        if event.cell:
            done.add(event.cell.key)
        yield event


def _arithmetic(cell: Cell) -> str:
    """The switches that torch holds for the whole process."""
    from spurless.registry import find

    named = find("recipe", cell.recipe["name"]) if "name" in cell.recipe else None
    wanted = {k: cell.recipe.get(k, getattr(named, k, None)) for k in ("precision", "deterministic")}
    return json.dumps(wanted)


def _usual_watch() -> Watch:
    from spurless.bench.board import Board

    return Board(plain=False)
