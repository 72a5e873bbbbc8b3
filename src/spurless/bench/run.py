"""run_trials(): do the trials that are not done, and return the rows of all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from spurless.bench.claim import DYNAMICS, FINISHED, finished_row
from spurless.bench.executors.base import Event, How, Options, Watch
from spurless.bench.one import compiles, named
from spurless.bench.rows import JSONL, write_jsonl
from spurless.bench.trials import KEYS, Trial, remember, save_keys, stale
from spurless.core.errors import FolderError, SettingError
from spurless.core.messages import log
from spurless.train.compiled import announcement
from spurless.train.run_folder import RESULT

WRITTEN = (JSONL, "report.html", "reproduction.json", "sweep.json", "sweep.png")  # into a folder of trials, beside them
Rows = dict[str, dict[str, Any] | None]  # by key; None: to do


def run_trials(
    trials: Sequence[Trial],
    out: str | Path,
    *,
    after: str | None = None,
    watch: Watch | None = None,
    dynamics: Mapping[str, Any] | bool | None = None,
    **options: Unpack[Options],
) -> list[dict[str, Any]]:
    """Train the trials that are not done, and return the rows of all of them, in their order.

    Each trial is a run folder below `out`, named by its key. What is done (or diverged) is not done again, what was
    killed is resumed, what failed is tried again. Several processes may work on one folder: each trial is done by one.
    On a CPU there are `workers` processes (default: as many as cores). On a GPU there are as many as share it well, or
    one with several lanes, unless `workers` says otherwise.
    `after` = "module:function" is called in the worker with (result, bundle, folder); its dict is row["extra"]. With
    `dynamics` the steps of every run are watched (see fit). Both are for trials that have none of their own; what is
    trained, but not measured by `after`, is only measured. `gpus_per_trial`: a share of a GPU, on a Ray cluster.
    `compile` sets recipe.compile everywhere; like the device, it makes no other trial. "gpu": only where a GPU does the
    trials and it can be done, for trials that neither name it nor are watched. All options: executors/base.py, How.
    """
    how, out = How(**options), Path(out)
    if how.compile is True:
        trials = [replace(trial, recipe=trial.recipe | {"compile": True}) for trial in trials]
    trials, rows = _resumed(trials, out, after, dynamics)
    if left := list({trial.key: trial for trial in trials if rows[trial.key] is None}.values()):
        _check(left)
        there = [row | {"labels": trial.labels} for trial in trials if (row := rows[trial.key])]
        _do(left, there, out, how, watch or _usual_watch(), rows, trials)
    write_jsonl(out, trials)
    return [_row(rows[trial.key], trial) for trial in trials]


def _resumed(
    trials: Sequence[Trial], out: Path, after: str | None, dynamics: Mapping[str, Any] | bool | None
) -> tuple[list[Trial], Rows]:
    """The trials as they will be done, and the rows that the folder has of them."""
    check_place(out)
    out.mkdir(parents=True, exist_ok=True)
    remember(out)
    trials = agreed(trials, after, dynamics)
    rows = {trial.key: finished_row(out / trial.folder, trial.after) for trial in trials}
    _watched(trials, out)
    stale(out, [(trial, row) for trial in trials if (row := rows[trial.key])])
    save_keys(out, trials)
    return trials, rows


def _do(
    left: list[Trial],
    there: list[dict[str, Any]],
    out: Path,
    how: How,
    watch: Watch,
    rows: Rows,
    trials: Sequence[Trial],
) -> None:
    """Fill in the rows of the trials that are left, as an executor brings them."""
    if how.on == "here" and compiles(how):
        log.info(announcement("Trials are compiled"))
    try:
        with watch:
            for event in _events(left, there, out, how, watch):
                watch(event)
                if event.kind == "row" and event.trial and event.row:
                    rows[event.trial.key] = event.row
    except KeyboardInterrupt:
        write_jsonl(out, trials)
        done = sum(row is not None and row["status"] in FINISHED for row in rows.values())
        raise KeyboardInterrupt(
            f"{done} of {len(rows)} trials are done, and checkpoints of the others are saved: re-run the command to "
            "resume."
        ) from None


def _events(left: list[Trial], there: list[dict[str, Any]], out: Path, how: How, watch: Watch) -> Iterator[Event]:
    if how.on == "here":
        from spurless.bench.executors.here import run_here

        yield from run_here(left, there, out, how, watch)
        return
    yield Event("plan", plan=(left, there, how.workers or len(left)))
    common: dict[str, Any] = {"device": how.device, "workers": how.workers, "root": how.root}
    common["compile"] = how.compile == "gpu"
    if how.on == "ray":
        from spurless.bench.executors.ray import run_on_ray

        done = run_on_ray(left, out, address=how.address, gpus_per_trial=how.gpus_per_trial, **common)
    else:
        from spurless.bench.executors.slurm import run_on_slurm

        done = run_on_slurm(left, out, run_trials, **common)
    for trial, row in done:
        yield Event("row", trial, row)


def check_place(out: Path) -> None:
    """Refuse a folder of something else where a file of that would be replaced."""
    taken = [name for name in WRITTEN if (out / name).exists()]
    if taken and not (out / KEYS).exists() and not (out / "cells").exists():
        raise FolderError(f"{out} holds a {taken[0]} and no benchmark or sweep. Name another --out folder.")


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
                raise SettingError(
                    f"{trial.folder} is there twice, with {name} = {a!r} and {b!r}; it can have only one."
                )
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
            raise FolderError(
                f"{folder} was trained without being watched (dynamics). Remove that folder to train it again, or name "
                "another --out."
            )


def _row(row: dict[str, Any] | None, trial: Trial) -> dict[str, Any]:
    if row is None:
        raise RuntimeError(f"{trial.folder}: no row came back.")
    return row | {"labels": trial.labels}


def _usual_watch() -> Watch:
    from spurless.bench.board import Board

    return Board(plain=False)
