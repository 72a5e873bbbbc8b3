"""Trials on this machine: in this process, in several, or in lanes of one GPU."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spurless.bench.executors.base import Event, How
from spurless.bench.executors.processes import in_processes
from spurless.bench.one import PATIENCE, compiled, run_one
from spurless.bench.trials import Trial
from spurless.core.threads import cores

if TYPE_CHECKING:
    import torch

Rows = Sequence[dict[str, Any]]


def run_here(left: list[Trial], there: Rows, out: Path, how: How, tell: Callable[[Event], None]) -> Iterator[Event]:
    """Do the trials that are left; `there` are the rows of the others, for the plan."""
    from spurless.train.device import pick_device

    device = pick_device(how.device)
    if device.type == "cuda":
        left = compiled(left, device) if how.compile == "gpu" else left
        yield from _on_gpu(left, there, out, device, how, tell)
        return
    asked = how.workers or cores()
    threads = max(1, cores() // asked)  # of torch, for each process: decided by what was asked, not by what is left
    count = min(asked, len(left))
    yield Event("plan", plan=(left, there, count))
    if count == 1:
        yield from _in_this_process(left, out, str(device), threads, how.root)
    else:
        yield from in_processes(left, out, str(device), count, threads, how.root)


def _on_gpu(
    left: list[Trial], there: Rows, out: Path, gpu: torch.device, how: How, tell: Callable[[Event], None]
) -> Iterator[Event]:
    """In processes if asked to, or where there are many trials and processes can share the GPU; else in lanes."""
    from spurless.bench.executors.mps import processes_on, shared_gpu

    asked = how.workers or processes_on(gpu, len(left))
    count = min(asked, len(left))
    with shared_gpu(gpu.index or 0) if count > 1 else nullcontext() as shared:
        if asked == 1 or (how.workers is None and shared is None):
            yield Event("plan", plan=(left, there, 0))
            yield from in_lanes(left, out, str(gpu), how.root, tell)
            return
        yield Event("plan", plan=(left, there, count))
        crowded = []  # trials that had no room beside the others
        threads = max(1, cores() // asked)
        for event in in_processes(left, out, str(gpu), count, threads, how.root, shared or {}):
            if how.workers is None and event.trial and event.row and "out of memory" in str(event.row.get("error")):
                crowded.append(event.trial)
                event = Event("busy", event.trial)
            yield event
        if crowded:
            yield from in_lanes(crowded, out, str(gpu), how.root, tell)


def in_lanes(
    trials: Sequence[Trial], out: Path, device: str, root: str | Path | None, tell: Callable[[Event], None]
) -> Iterator[Event]:
    from spurless.bench.executors import lanes  # which imports torch

    return lanes.in_lanes(trials, out, device, root, tell)


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
