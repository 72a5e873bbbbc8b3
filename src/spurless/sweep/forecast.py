"""How long a sweep or a search will take, said before it starts."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from spurless.bench import Trial
from spurless.bench.claim import finished_row
from spurless.bench.executors.base import Options
from spurless.bench.rows import all_rows
from spurless.core.messages import log
from spurless.core.threads import cores
from spurless.train.forecast import span


def log_forecast(trials: Sequence[Trial], folder: Path, options: Options) -> None:
    """Log how long the trainings that are left will take, from one of each sweep, where somebody reads it."""
    left = [trial for trial in trials if finished_row(folder / trial.folder, trial.after) is None]
    by_sweep: dict[str, list[Trial]] = {}
    for trial in left:
        by_sweep.setdefault(trial.labels["over"], []).append(trial)
    each = [seconds_of(own[0], folder, options) for own in by_sweep.values()]
    timed = [(seconds, len(own)) for seconds, own in zip(each, by_sweep.values(), strict=True) if seconds is not None]
    if timed and len(timed) == len(each):
        at_once = side_by_side(len(left), options)
        total = span(sum(seconds * count for seconds, count in timed) / at_once)
        what = "1 training takes" if len(left) == 1 else f"{len(left)} trainings take"
        log.info(f"{what} about {total}, {at_once} at a time; measuring each comes on top.")


def log_search(trials: Sequence[Trial], folder: Path, options: Options, budget: float, least: int) -> None:
    """Log how long a search will take that trains these at each rate, and at least so many rates."""
    left = [trial for trial in trials if finished_row(folder / trial.folder) is None]
    seconds = seconds_of(left[0], folder, options) if left else None
    if seconds is None:
        log.info(f"No further rate is tried after {span(budget)}.")
        return
    one = seconds * len(trials) / side_by_side(len(trials), options)
    if one > budget:
        log.warning(f"The recipe's own rate alone takes about {span(one)}, longer than the budget of {span(budget)}.")
        return
    log.info(
        f"A rate takes about {span(one)}, and a search tries {least} or more ({span(least * one)}). No further rate is "
        f"tried after {span(budget)}."
    )


def side_by_side(trials: int, options: Options) -> int:
    """Processes on CPUs; on a GPU one is counted, whatever shares it."""
    from spurless.train.device import pick_device

    if pick_device(options.get("device")).type == "cuda":
        return 1
    return max(1, min(options.get("workers") or cores(), trials))


def seconds_of(trial: Trial, folder: Path, options: Options) -> float | None:
    """Of one training alone on this machine: measured before, or by timing a few of its steps. None where it is not
    known, and where nobody would read it."""
    if not log.isEnabledFor(logging.INFO) or options.get("on", "here") != "here":
        return None
    from spurless.bench.estimate import guesses

    rows = all_rows(folder) if folder.exists() else []
    try:
        guess = guesses([trial], rows, options.get("device"), options.get("root"))[trial.kind()]
    except Exception as error:  # whatever it is, the training will say it
        log.debug("no estimate: %s", error)
        return None
    return guess.seconds
