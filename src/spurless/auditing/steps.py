"""One line that says what the audit is at, where someone watches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spurless.core.messages import displays

if TYPE_CHECKING:
    from spurless.train.progress import Watcher

STEPS = ("data", "model", "attributes", "cues", "slices", "pictures", "fix", "report")


class Step:
    """Says what the audit is at, in one line that is drawn over, where someone watches."""

    def __init__(self, progress: bool | Watcher | None):
        from rich.console import Console

        console = Console(stderr=True)
        shown = console.is_terminal if progress is None else progress is True
        self.status = console.status("") if shown else None
        if self.status is not None:
            displays.append(self.status.stop)

    def __call__(self, name: str, detail: str = "") -> None:
        if self.status is None:
            return
        if name == "model" and not detail:  # a training has a bar of its own
            self.status.stop()
            return
        self.status.update(f"audit {STEPS.index(name) + 1}/{len(STEPS)}: {name} {detail}")
        self.status.start()

    def done(self) -> None:
        if self.status is not None:
            self.status.stop()
