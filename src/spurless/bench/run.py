"""run_trials(): do the trials that are not done, and return the rows of all."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from spurless.bench.claim import DYNAMICS, FINISHED, Claim, claim, finished_row
from spurless.bench.one import PATIENCE, Attempt, compiled, lost_its_gpu, named, run_one
from spurless.bench.rows import JSONL, write_jsonl
from spurless.bench.trials import KEYS, Trial, remember, save_keys, stale
from spurless.core.errors import UserError, unknown
from spurless.core.threads import cores
from spurless.train.run_folder import RESULT

if TYPE_CHECKING:
    import torch

WHERE = ("here", "ray", "slurm")
WRITTEN = (JSONL, "report.html", "reproduction.json", "sweep.json", "sweep.png")  # into a folder of trials, beside them


@dataclass(frozen=True)
class Event:
    """What a watcher is told: the plan at first, then every trial that starts, waits for another process, or ends."""

    kind: str  # plan, start, busy, row
    trial: Trial | None = None
    row: dict[str, Any] | None = None
    # trials to do, rows there, how many at a time (0: found out)
    plan: tuple[Sequence[Trial], Sequence[dict[str, Any]], int] = ((), (), 1)


class Watch(AbstractContextManager, Protocol):
    """Anything that shows how far a benchmark is: used as a context, called with every event."""

    def __call__(self, event: Event) -> None: ...


def run_trials(
    trials: Sequence[Trial],
    out: str | Path,
    *,
    device: str | None = None,
    workers: int | None = None,
    root: str | Path | None = None,
    on: str = "here",
    after: str | None = None,
    watch: Watch | None = None,
    address: str | None = None,
    gpus_per_trial: float | None = None,
    dynamics: Mapping[str, Any] | bool | None = None,
    compile: bool | Literal["gpu"] = False,
) -> list[dict[str, Any]]:
    """Train the trials that are not done, and return the rows of all of them, in their order.

    Each trial is a run folder below `out`, named by its key. What is done (or diverged) is not done again, what was
    killed goes on, what failed is tried again. Several processes may work on one folder: each trial is done by one.
    On a CPU there are `workers` processes (default: as many as cores). On a GPU there are as many as share it well, or
    one with several lanes, unless `workers` says otherwise.
    `after` = "module:function" is called in the worker with (result, bundle, folder); its dict is row["extra"]. With
    `dynamics` the steps of every run are watched (see fit). Both are for trials that have none of their own; what is
    trained, but not measured by `after`, is only measured. `gpus_per_trial`: a share of a GPU, on a Ray cluster.
    `compile` sets recipe.compile everywhere; like the device, it makes no other trial. "gpu": only where a GPU does the
    trials and it can be done, for trials that neither name it nor are watched.
    """
    out = Path(out)
    if compile is True:
        trials = [replace(trial, recipe=trial.recipe | {"compile": True}) for trial in trials]
    if on not in WHERE:
        raise unknown("executor", on, WHERE)
    if workers is not None and workers < 1:
        raise UserError(f"workers = {workers} is not allowed; there must be at least one.")
    if gpus_per_trial is not None and not gpus_per_trial >= 0:
        raise UserError(f"--gpus-per-trial {gpus_per_trial} is not allowed; it takes a share such as 0.25, or 0.")
    if gpus_per_trial is not None and on != "ray":
        raise UserError("--gpus-per-trial is for --on ray; on one GPU, lanes share it by themselves.")
    if address is not None and on != "ray":
        raise UserError("--address is that of a Ray cluster: add --on ray, or leave it out.")
    _check_place(out)
    out.mkdir(parents=True, exist_ok=True)
    remember(out)
    trials = agreed(trials, after, dynamics)
    found = {trial.key: finished_row(out / trial.folder, trial.after) for trial in trials}
    _watched(trials, out)
    stale(out, [(trial, row) for trial in trials if (row := found[trial.key])])
    save_keys(out, list(trials))
    left = list({trial.key: trial for trial in trials if found[trial.key] is None}.values())
    _check(left)
    watch = watch or _usual_watch()
    there = [row | {"labels": trial.labels} for trial in trials if (row := found[trial.key])]
    if left:
        how: dict[str, Any] = {"device": device, "workers": workers, "root": root}
        if on == "here":
            events = _here(left, there, out, tell=watch, compile=compile == "gpu", **how)
        else:
            of_ray = {"address": address, "gpus_per_trial": gpus_per_trial} if on == "ray" else {}
            events = _elsewhere(left, there, out, on, how | of_ray | {"compile": compile == "gpu"})
        try:
            with watch:
                for event in events:
                    watch(event)
                    if event.kind == "row" and event.trial and event.row:
                        found[event.trial.key] = event.row
        except KeyboardInterrupt:
            write_jsonl(out, trials)
            done = sum(row is not None and row["status"] in FINISHED for row in found.values())
            raise KeyboardInterrupt(
                f"{done} of {len(found)} trials are done, the place of the others is saved: the same command goes on."
            ) from None
    write_jsonl(out, trials)
    return [_row(found[trial.key], trial) for trial in trials]


def _check_place(out: Path) -> None:
    """Refuse a folder of something else where a file of that would be replaced."""
    taken = [name for name in WRITTEN if (out / name).exists()]
    if taken and not (out / KEYS).exists() and not (out / "cells").exists():
        raise UserError(f"{out} holds a {taken[0]} and no benchmark or sweep. Name another --out folder.")


def agreed(
    trials: Sequence[Trial], after: str | None = None, dynamics: Mapping[str, Any] | bool | None = None
) -> list[Trial]:
    """The trials, each with what is measured after it and whether it is watched; a UserError if a setting is wrong.

    A trial that is there several times is one training: what one of them asks for holds for all.
    """
    wanted: dict[str, tuple[str | None, Any]] = {}
    usual = dict(dynamics) if isinstance(dynamics, Mapping) else dynamics
    for trial in trials:
        new = trial.after or after, usual if trial.dynamics is None else trial.dynamics
        old = wanted.setdefault(trial.key, new)
        for name, a, b in zip(("after", "dynamics"), old, new, strict=True):
            if a and b and a != b:
                raise UserError(f"{trial.folder} is there twice, with {name} = {a!r} and {b!r}; it can have only one.")
        wanted[trial.key] = old[0] or new[0], old[1] or new[1]
    return [replace(c, after=wanted[c.key][0], dynamics=wanted[c.key][1] or None) for c in trials]


def _check(trials: Sequence[Trial]) -> None:
    """A UserError if what is to be measured or watched cannot be; only of what is left, as it imports torch."""
    for name in dict.fromkeys(trial.after for trial in trials if trial.after):
        named(name)
    if any(trial.dynamics for trial in trials):
        from spurless.train.dynamics import as_dynamics

        for trial in trials:
            as_dynamics(trial.dynamics)


def _watched(trials: Sequence[Trial], out: Path) -> None:
    """Refuse runs that are finished and were not watched although they should have been: it cannot be made up for."""
    for trial in trials:
        folder = out / trial.folder
        if trial.dynamics and (folder / RESULT).exists() and not (folder / DYNAMICS).exists():
            raise UserError(
                f"{folder} was trained without being watched (dynamics). Remove that folder to train it again, or name "
                "another --out."
            )


def _row(row: dict[str, Any] | None, trial: Trial) -> dict[str, Any]:
    if row is None:
        raise RuntimeError(f"{trial.folder}: no row came back.")
    return row | {"labels": trial.labels}


def _elsewhere(
    left: list[Trial], there: list[dict[str, Any]], out: Path, on: str, how: dict[str, Any]
) -> Iterator[Event]:
    """On a cluster: the executors call run_one there, and yield (trial, row) as rows come back."""
    yield Event("plan", plan=(left, there, how["workers"] or len(left)))
    execute: Callable[..., Iterator[tuple[Trial, dict[str, Any]]]]
    if on == "ray":
        from spurless.bench.executors.ray import run_on_ray as execute
    else:
        from spurless.bench.executors.slurm import run_on_slurm as execute
    for trial, row in execute(left, out, **how):
        yield Event("row", trial, row)


def _here(
    left: list[Trial],
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
    left: list[Trial],
    there: list[dict[str, Any]],
    out: Path,
    place: torch.device,
    workers: int | None,
    root: str | Path | None,
    tell: Callable[[Event], None],
) -> Iterator[Event]:
    """In processes if asked to, or where there are many trials and processes can share the GPU; else in lanes."""
    from spurless.bench.executors.mps import processes_on, shared_gpu

    asked = workers or processes_on(place, len(left))
    count = min(asked, len(left))
    with shared_gpu(place.index or 0) if count > 1 else nullcontext() as shared:
        if asked > 1 and (workers or shared is not None):
            yield Event("plan", plan=(left, there, count))
            crowded = []  # trials that had no room beside the others
            for event in _in_processes(left, out, str(place), count, max(1, cores() // asked), root, shared or {}):
                if workers is None and event.trial and event.row and "out of memory" in str(event.row.get("error")):
                    crowded.append(event.trial)
                    event = Event("busy", event.trial)
                yield event
            if crowded:
                yield from in_lanes(crowded, out, str(place), root, tell)
        else:
            yield Event("plan", plan=(left, there, 0))
            yield from in_lanes(left, out, str(place), root, tell)


def _in_this_process(
    trials: Sequence[Trial], out: Path, device: str, threads: int, root: str | Path | None
) -> Iterator[Event]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    todo, busy = deque(trials), 0
    try:
        while todo:
            if busy == len(todo):  # someone else is doing all that is left
                time.sleep(PATIENCE)
                busy = 0
            trial = todo.popleft()
            yield Event("start", trial)
            row = run_one(trial, out, device, root, wait=False)
            busy = busy + 1 if row is None else 0
            if row is None:
                todo.append(trial)
            yield Event("busy" if row is None else "row", trial, row)
    finally:
        torch.set_num_threads(before)


def _in_processes(
    trials: Sequence[Trial],
    out: Path,
    device: str,
    workers: int,
    threads: int,
    root: str | Path | None,
    environment: Mapping[str, str] = {},
) -> Iterator[Event]:
    from spurless.bench.executors.processes import Pool

    settings = {"out": str(out), "device": device, "root": str(root) if root else None}
    for kind, trial, what in Pool(trials, workers, threads, settings, environment):
        if kind == "broken":
            raise what
        yield Event(kind, trial, what)


def in_lanes(
    trials: Sequence[Trial],
    out: Path,
    device: str,
    root: str | Path | None,
    tell: Callable[[Event], None] = lambda event: None,
) -> Iterator[Event]:
    """Several trials at once on one GPU. A trial is claimed when a lane is free for it, not before.

    Rows are yielded; that a trial starts is told at once, since nothing can be yielded while the lanes work. After an
    error that costs this process its GPU, all trials that are left are done by new ones, one after the other.
    """
    from spurless.train.lanes import Job, run_lanes

    todo = list(trials)
    while todo:
        switches = _arithmetic(todo[0])  # torch has one set of them for all lanes
        group = [trial for trial in todo if _arithmetic(trial) == switches]
        rest = [trial for trial in todo if _arithmetic(trial) != switches]
        held: dict[str, tuple[Claim, Attempt]] = {}
        told: list[Event] = []
        busy: list[Trial] = []

        def jobs(
            group: list[Trial] = group, held: dict = held, told: list[Event] = told, busy: list[Trial] = busy
        ) -> Iterator[Job]:
            for trial in group:
                taken = claim(out / trial.folder)
                if taken is None:
                    busy.append(trial)
                    tell(Event("busy", trial))
                    continue
                if row := finished_row(out / trial.folder, trial.after):
                    taken.release()
                    told.append(Event("row", trial, row))
                    continue
                tell(Event("start", trial))
                attempt = Attempt(trial, out, root)
                try:
                    job = Job(trial.key, attempt.arguments())
                except Exception as error:  # its data could not be loaded
                    told.append(Event("row", trial, attempt.finish(error)))
                    taken.release()
                    continue
                held[trial.key] = (taken, attempt)
                yield job

        done: set[str] = set()
        lost = False
        try:
            for job, outcome in run_lanes(jobs(), None, device):
                lost = isinstance(outcome, Exception) and lost_its_gpu()
                if lost:
                    break  # whichever trial noticed it first need not have caused it
                taken, attempt = held.pop(job.key)
                with taken:
                    row = attempt.finish(outcome)
                yield from _empty(told, done)
                done.add(job.key)
                yield Event("row", attempt.trial, row)
        finally:
            for taken, _ in held.values():
                taken.release()
        yield from _empty(told, done)
        if lost:
            left = [trial for trial in todo if trial.key not in done]
            yield from _in_processes(left, out, device, 1, cores(), root)
            return
        todo = rest + busy  # in this order: what someone else is doing must not keep the rest waiting
        if len(busy) == len(group):
            time.sleep(PATIENCE)


def _empty(told: list[Event], done: set[str]) -> Iterator[Event]:
    while told:
        event = told.pop(0)
        if event.trial:
            done.add(event.trial.key)
        yield event


def _arithmetic(trial: Trial) -> str:
    """The switches that torch holds for the whole process."""
    from spurless.core.recipe import RECIPES

    named = RECIPES.get(trial.recipe.get("name", ""))
    wanted = {k: trial.recipe.get(k, getattr(named, k, None)) for k in ("precision", "deterministic")}
    return json.dumps(wanted)


def _usual_watch() -> Watch:
    from spurless.bench.board import Board

    return Board(plain=False)
