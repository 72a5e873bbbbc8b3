"""What a person sees while something runs: a bar on standard error where someone watches, nothing otherwise."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from spurless.train.observe import Progress
from spurless.train.observe import Watcher as Watcher

if TYPE_CHECKING:
    from rich.progress import TaskID


class Bar:
    """A bar a stage, with the loss and the validation accuracy of the last epoch."""

    EVERY = 0.1  # seconds between two redraws: a step may take a fraction of a millisecond

    def __init__(self, label: str, shown: bool | None = None):
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        from spurless.core.terminal import Console

        console = Console(stderr=True)
        shown = console.is_terminal if shown is None else shown
        columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
        self.bar = Progress(
            *columns, TextColumn("{task.fields[note]}"), console=console, disable=not shown, transient=True
        )
        self.label, self.stage, self.drawn, self.note = label, "", 0.0, ""
        self.task: TaskID | None = None

    def __enter__(self) -> Bar:
        self.task = self.bar.add_task(f"{self.label}: preparing", total=None, note="")  # the first step may take long
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def __call__(self, where: Progress) -> None:
        if where.row is not None:
            parts = [f"loss {where.row['loss']:.3f}"]
            if "val_accuracy" in where.row:
                parts.append(f"validation {where.row['val_accuracy']:.1f} %")
            self.note = ", ".join(parts)
        elif time.monotonic() - self.drawn < self.EVERY:
            return
        if where.stage != self.stage:
            if self.task is not None:
                self.bar.remove_task(self.task)
            self.stage, self.note = where.stage, ""
            self.task = self.bar.add_task(f"{self.label}: {where.stage}", total=where.total, note="")
        self.drawn = time.monotonic()
        assert self.task is not None
        self.bar.update(self.task, completed=where.step, total=where.total, note=self.note)
