"""The trials of a benchmark on a Slurm cluster, through submitit.

Every Slurm task is an ordinary `run_trials` on the shared folder: it takes whatever trial nobody has taken yet, several
at a time where it has a GPU. So no task waits for another, a task that is cut short loses at most a minute of its
running trials, and Slurm may start or end tasks as it likes. Partition, account and time are sbatch's own environment
variables (SBATCH_PARTITION, SBATCH_ACCOUNT, SBATCH_TIMELIMIT).
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spurless.bench.claim import ROW, read_row
from spurless.bench.one import bury
from spurless.bench.trials import Trial
from spurless.core.errors import UserError
from spurless.core.extras import missing

TASKS = 16  # at most, unless a number is given
MINUTES = 24 * 60  # for a task; SBATCH_TIMELIMIT goes before it
LOOK = 2.0  # seconds between two checks of which rows are there
LATE = 30.0  # seconds that a shared disk may take to show what a task has written


@dataclass(frozen=True)
class Share:
    """What a task does. The order of its trials is its own, so that not all tasks want the same one first."""

    run: Callable[..., Any]  # `run_trials`
    trials: tuple[Trial, ...]
    out: str
    settings: dict[str, Any]

    def __call__(self) -> None:
        self.run(self.trials, self.out, watch=Silent(), **self.settings)

    def checkpoint(self) -> Any:
        """Slurm takes the machine away, or the time is up: resume in a new task."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


class Silent(nullcontext[None]):
    def __call__(self, event: Any) -> None:
        pass


def run_on_slurm(
    trials: Sequence[Trial],
    out: str | Path,
    run: Callable[..., Any],
    *,
    device: str | None = None,
    workers: int | None = None,
    root: str | Path | None = None,
    compile: bool = False,
    cluster: str | None = None,
    cpus_per_task: int = 4,
) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """Do the trials in `workers` tasks, and yield each with its row when it is done, in no order. `run` is what a
    task calls: `run_trials`.

    A task asks for a GPU unless device = "cpu"; then it does as many trials at a time as it has processors. `compile`:
    where a task's GPU can.
    `cluster="local"` runs the tasks on this machine, to try it out.
    """
    submitit = _submitit(cluster)
    out = Path(out).resolve()
    for trial in trials:  # rows of failures before: from now on a row is one of these tasks'
        (out / trial.folder / ROW).unlink(missing_ok=True)
    executor = submitit.AutoExecutor(folder=out / "slurm", cluster=cluster or "slurm")
    gpu = {} if device == "cpu" else {"gpus_per_node": 1}
    executor.update_parameters(name="spurless", timeout_min=MINUTES, cpus_per_task=cpus_per_task, **gpu)
    settings: dict[str, Any] = {
        "device": device,
        "root": str(root or os.environ.get("SPURLESS_DATA") or "") or None,
        "compile": "gpu" if compile else False,
    }
    settings["workers"] = cpus_per_task if device == "cpu" else None
    tasks = min(len(trials), workers or TASKS)
    share = Share(run, tuple(trials), str(out), settings)
    jobs = executor.submit_array([replace(share, trials=_from(trials, k / tasks)) for k in range(tasks)])
    try:
        yield from _rows_as_they_come(list(trials), out, jobs)
        until = time.monotonic() + LATE
        while not all(job.done() for job in jobs) and time.monotonic() < until:  # they have nothing left to do
            time.sleep(LOOK)
    except BaseException:  # Ctrl-C
        for job in jobs:
            job.cancel()
        raise


def _rows_as_they_come(left: list[Trial], out: Path, jobs: Sequence[Any]) -> Iterator[tuple[Trial, dict[str, Any]]]:
    ended: float | None = None  # when all tasks were seen to be over
    while left:
        arrived = [(trial, row) for trial in left if (row := read_row(out / trial.folder))]
        yield from arrived
        left = [trial for trial in left if not any(trial is done for done, _ in arrived)]
        if left and all(job.done() for job in jobs):
            ended = ended or time.monotonic()
            if time.monotonic() - ended > LATE:
                break
        if left:
            time.sleep(LOOK)
    for trial in left:
        row = bury(trial, out, _reason(jobs))
        assert row is not None
        yield trial, row


def _from(trials: Sequence[Trial], first: float) -> tuple[Trial, ...]:
    """The same trials, beginning at another place.

    >>> _from("abcd", 0.5)
    ('c', 'd', 'a', 'b')
    """
    start = round(first * len(trials))
    return (*trials[start:], *trials[:start])


def _reason(jobs: Sequence[Any]) -> str:
    errors = [str(error).strip().splitlines()[-1] for job in jobs if (error := job.exception()) is not None]
    return f"All Slurm tasks ended without it. {errors[0] if errors else ''}".strip()


def _submitit(cluster: str | None) -> Any:
    try:
        import submitit
    except ImportError:
        raise missing("--on slurm", "slurm") from None
    if cluster is None and not shutil.which("sbatch"):
        raise UserError("There is no Slurm here (no sbatch command): run this on a machine that submits jobs.")
    return submitit
