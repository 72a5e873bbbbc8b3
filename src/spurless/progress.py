"""A progress bar on standard error, where a person is watching; silent otherwise."""

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
