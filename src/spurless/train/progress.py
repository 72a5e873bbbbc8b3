"""What a person sees while a run trains: a bar on a terminal, a line in a notebook, lines of the log elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spurless.core.display import in_notebook
from spurless.core.messages import Pace, log
from spurless.train.observe import Progress
from spurless.train.observe import Watcher as Watcher

if TYPE_CHECKING:
    from rich.progress import TaskID


def bar(label: str, shown: bool | None = None) -> Watcher:
    """What shows a training: a bar on a terminal, a line in a notebook, lines of the log elsewhere."""
    from spurless.core.terminal import Console

    if shown is not False and in_notebook():
        return NotebookLine(label)
    if shown is None and not Console(stderr=True).is_terminal:
        return LogLines(label)
    return Bar(label, shown is not False)


class LogLines:
    """A line of the log at most every half minute."""

    def __init__(self, label: str):
        self.label, self.note, self.pace = label, "", Pace()

    def __enter__(self) -> LogLines:
        return self

    def __exit__(self, *error: object) -> None: ...

    def __call__(self, where: Progress) -> None:
        if where.row is not None:
            self.note = f" ({epoch_text(where.row)})"
        if self.pace.due():
            log.info(f"{self.label}: stage '{where.stage}', step {where.step:,} of {where.total:,}{self.note}")


class NotebookLine:
    """One line below the cell, which is written anew and goes away at the end."""

    EVERY = 0.5  # seconds between two updates

    def __init__(self, label: str):
        self.label, self.drawn, self.note = label, 0.0, ""
        self.handle: Any = None

    def __enter__(self) -> NotebookLine:
        from IPython.display import display

        self.handle = display(_plain(f"{self.label}: preparing"), display_id=True)
        return self

    def __exit__(self, *error: object) -> None:
        self.handle.update(_plain(""))

    def __call__(self, where: Progress) -> None:
        if where.row is not None:
            self.note = epoch_text(where.row)
        if time.monotonic() - self.drawn < self.EVERY:
            return
        self.drawn = time.monotonic()
        self.handle.update(_plain(f"{self.label}: {where.stage}, step {where.step:,} of {where.total:,} {self.note}"))


def _plain(text: str) -> Any:
    from IPython.display import Pretty

    return Pretty(text)


def epoch_text(row: Mapping[str, Any]) -> str:
    """
    >>> epoch_text({"loss": 0.25, "val_accuracy": 91.0})
    'loss 0.250, validation 91.0 %'
    """
    validation = f", validation {row['val_accuracy']:.1f} %" if "val_accuracy" in row else ""
    return f"loss {row['loss']:.3f}{validation}"


class Bar:
    """A bar a stage, with the loss and the validation accuracy of the last epoch."""

    EVERY = 0.1  # seconds between two redraws: a step may take a fraction of a millisecond

    def __init__(self, label: str, shown: bool):
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        from spurless.core.terminal import Console

        console = Console(stderr=True)
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
            self.note = epoch_text(where.row)
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
