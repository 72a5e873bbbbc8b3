"""A console of rich's that prints names and values, and never obeys them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import rich.console
from rich.segment import Segment
from rich.text import Text

from spurless.core.messages import Pace, log, printable

T = TypeVar("T")


class Console(rich.console.Console):
    """Escapes control characters in whatever is printed, and makes no links of it.

    Text is escaped before it is measured, so that tables keep their columns; what comes as another renderable is
    escaped when it is rendered. The sequences of rich itself (colours, progress bars) are added after that.
    """

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(printable(text), **how)

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            if control:
                yield Segment(text, style, control)
            else:
                yield Segment(printable(text), style.update_link(None) if style and style.link else style)


def track(items: Iterable[T], label: str, total: int | None = None) -> Iterator[T]:
    """The items, with a bar that says `label` while they pass; off a terminal, with a log line now and then.

    >>> list(track([1, 2], "counting"))
    [1, 2]
    """
    from rich.progress import track as rich_track

    console = Console(stderr=True)
    if console.is_terminal:
        yield from rich_track(items, description=label, total=total, console=console, transient=True)
        return
    pace = Pace()
    for done, item in enumerate(items):
        if pace.due():
            log.info(f"{label}: {done:,}{f' of {total:,}' if total else ''}")
        yield item
