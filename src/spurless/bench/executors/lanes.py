"""Several trials at once on one GPU, in lanes of one process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from spurless.bench.claim import Claim, claim, finished_row
from spurless.bench.executors.base import Event
from spurless.bench.executors.processes import in_processes
from spurless.bench.one import PATIENCE, Attempt, lost_its_gpu
from spurless.bench.trials import Trial
from spurless.core.threads import cores
from spurless.train.lanes import Job, run_lanes


def in_lanes(
    trials: Sequence[Trial],
    out: Path,
    device: str,
    root: str | Path | None,
    tell: Callable[[Event], None] = lambda event: None,
) -> Iterator[Event]:
    """Yield a row for each trial. That a trial starts is told at once, since nothing can be yielded while lanes work.

    After an error that costs this process its GPU, all trials that are left are done by new ones, one after the other.
    """
    todo = list(trials)
    while todo:
        switches = _arithmetic(todo[0])  # torch has one set of them for all lanes
        group = _Group([trial for trial in todo if _arithmetic(trial) == switches], out, root, tell)
        yield from group.run(device)
        if group.lost_gpu:
            left = [trial for trial in todo if trial.key not in group.done]
            yield from in_processes(left, out, device, 1, cores(), root)
            return
        # In this order: what another process is doing must not keep the rest waiting.
        todo = [trial for trial in todo if _arithmetic(trial) != switches] + group.busy
        if len(group.busy) == len(group.trials):
            time.sleep(PATIENCE)


class _Group:
    """Trials that can be trained side by side. One is claimed when a lane is free for it, not before."""

    def __init__(self, trials: list[Trial], out: Path, root: str | Path | None, tell: Callable[[Event], None]):
        self.trials, self.out, self.root, self.tell = trials, out, root, tell
        self.claimed: dict[str, tuple[Claim, Attempt]] = {}
        self.pending: list[Event] = []  # rows of trials that took no lane
        self.busy: list[Trial] = []  # another process is doing these
        self.done: set[str] = set()
        self.lost_gpu = False

    def run(self, device: str) -> Iterator[Event]:
        try:
            for job, outcome in run_lanes(self._jobs(), None, device):
                self.lost_gpu = isinstance(outcome, Exception) and lost_its_gpu()
                if self.lost_gpu:
                    break  # whichever trial noticed it first need not have caused it
                taken, attempt = self.claimed.pop(job.key)
                with taken:
                    row = attempt.finish(outcome)
                yield from self._pending()
                self.done.add(job.key)
                yield Event("row", attempt.trial, row)
        finally:
            for taken, _ in self.claimed.values():
                taken.release()
        yield from self._pending()

    def _jobs(self) -> Iterator[Job]:
        for trial in self.trials:
            taken = claim(self.out / trial.folder)
            if taken is None:
                self.busy.append(trial)
                self.tell(Event("busy", trial))
            elif row := finished_row(self.out / trial.folder, trial.after):
                taken.release()
                self.pending.append(Event("row", trial, row))
            elif job := self._job(trial, taken):
                yield job

    def _job(self, trial: Trial, taken: Claim) -> Job | None:
        self.tell(Event("start", trial))
        attempt = Attempt(trial, self.out, self.root)
        try:
            job = Job(trial.key, attempt.arguments())
        except Exception as error:  # its data could not be loaded
            self.pending.append(Event("row", trial, attempt.finish(error)))
            taken.release()
            return None
        self.claimed[trial.key] = (taken, attempt)
        return job

    def _pending(self) -> Iterator[Event]:
        while self.pending:
            event = self.pending.pop(0)
            if event.trial:
                self.done.add(event.trial.key)
            yield event


def _arithmetic(trial: Trial) -> str:
    """The switches that torch holds for the whole process."""
    from spurless.registry import find

    named = find("recipe", trial.recipe["name"]) if "name" in trial.recipe else None
    wanted = {k: trial.recipe.get(k, getattr(named, k, None)) for k in ("precision", "deterministic")}
    return json.dumps(wanted)
