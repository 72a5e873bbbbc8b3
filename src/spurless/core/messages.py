"""What a person is told while something runs, on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def track(items: Iterable[T], label: str, total: int | None = None) -> Iterator[T]:
    """The items, with a bar that says `label` while they pass.

    >>> list(track([1, 2], "counting"))
    [1, 2]
    """
    from rich.console import Console
    from rich.progress import track as rich_track

    console = Console(stderr=True)
    yield from rich_track(
        items, description=label, total=total, console=console, transient=True, disable=not console.is_terminal
    )


def complain(text: str) -> None:
    """One line for the person, not for the output."""
    print(text, file=sys.stderr, flush=True)
