"""What observes a run without taking part in it: where the run is, and what happens inside its steps."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from spurless.core import messages

if TYPE_CHECKING:
    from spurless.train.step import Steps


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with one line that says how to resume."""


@dataclass(frozen=True)
class Progress:
    """Where a run is: what the loop yields after every step or few steps, and with a row after every epoch."""

    stage: str
    step: int
    total: int
    done: int = 0  # steps since the last event
    share: float = 1.0  # of a training that a method cuts into many stages
    row: dict[str, Any] | None = None  # the finished epoch, as it stands in the history
    waiting: bool = False  # for another run that trains a stage both share
    pending: torch.cuda.Event | None = None  # a time to let other lanes work, until the device has come here


Watcher = messages.Watcher[Progress]


class Through:
    """Shows a run with another observer; what builds on it does more."""

    def __init__(self, shown: Watcher):
        self.shown = shown

    def __enter__(self) -> Self:
        self.shown.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.shown.__exit__(*error)

    def __call__(self, progress: Progress) -> None:
        self.shown(progress)


class StepWatch:
    """Sees the steps of one stage from inside. This one does nothing; `dynamics` has one that does.

    `begin` and `gradients` are part of the step and so of its CUDA graph: they may only write to tables on the device.
    The others are called between two steps.
    """

    def __enter__(self) -> StepWatch:
        return self

    def __exit__(self, *error: object) -> None:
        """The stage is over, or was ended."""

    def wants_gradients(self, at: int) -> bool:
        """Whether `gradients` is wanted in this step of an epoch."""
        return False

    def begin(self, x: Tensor, at: Tensor) -> None:
        """A step begins: the inputs that its losses will see, and (1,) which step of the epoch it is."""

    def gradients(self, parameters: Sequence[Tensor]) -> None:
        """Before an optimiser's update: what it holds has its gradients, which are not clipped yet."""

    def free_steps(self, at: int, step: int) -> int:
        """How many steps may be made before `after` is called: it is step `at` of an epoch, after `step` of the stage.

        In all of them `wants_gradients` must be the same."""
        return sys.maxsize

    def after(self, steps: Steps, step: int) -> None:
        """A step or several are done, with the `step`-th of the stage."""

    def resume(self, step: int) -> None:
        """The stage is resumed after this step."""

    def save(self) -> None:
        """A checkpoint is being saved."""
