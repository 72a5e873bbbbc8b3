"""What executors share: how trials are done, and what is told while they are.

An executor takes the trials that are left and yields an Event for every one that starts, waits or ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

from spurless.bench.trials import Trial
from spurless.core.errors import SettingError, unknown
from spurless.core.messages import Watcher

WHERE = ("here", "ray", "slurm")


@dataclass(frozen=True)
class Event:
    """What a watcher is told: the plan at first, then every trial that starts, waits for another process, or ends."""

    kind: str  # plan, start, busy, row
    trial: Trial | None = None
    row: dict[str, Any] | None = None
    # trials to do, rows there, how many at a time (0: found out)
    plan: tuple[Sequence[Trial], Sequence[dict[str, Any]], int] = ((), (), 1)


Watch = Watcher[Event]


class Options(TypedDict, total=False):
    """The fields of How, as keywords."""

    device: str | None
    workers: int | None
    root: str | Path | None
    on: str
    address: str | None
    gpus_per_trial: float | None
    compile: bool | Literal["gpu"]


@dataclass(frozen=True)
class How:
    """Where trials are done, and by how many; none of it decides their outcome."""

    device: str | None = None
    workers: int | None = None  # processes; None: as many as the machine can share
    root: str | Path | None = None  # of the data
    on: str = "here"
    address: str | None = None  # of a Ray cluster
    gpus_per_trial: float | None = None  # on a Ray cluster
    compile: bool | Literal["gpu"] = False  # "gpu": only where a GPU does the trials and can

    def __post_init__(self) -> None:
        if self.on not in WHERE:
            raise unknown("executor", self.on, WHERE)
        if self.workers is not None and self.workers < 1:
            raise SettingError(f"workers = {self.workers} is not allowed; there must be at least one.")
        share = self.gpus_per_trial
        if share is not None and not share >= 0:
            raise SettingError(f"--gpus-per-trial {share} is not allowed; it takes a share such as 0.25, or 0.")
        if share is not None and self.on != "ray":
            raise SettingError("--gpus-per-trial is for --on ray; on one GPU, lanes share it by themselves.")
        if self.address is not None and self.on != "ray":
            raise SettingError("--address is that of a Ray cluster: add --on ray, or leave it out.")
