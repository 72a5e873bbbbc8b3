"""What a person is told while something runs: through the logger `spurless`, and by bars on standard error."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

log = logging.getLogger("spurless")


class _ToStderr(logging.Handler):
    """Prints each message as it is, to whatever standard error is at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr, flush=True)


def show_messages() -> None:
    """Print what Spurless logs, as the command line does. Does nothing where it is done already.

    >>> show_messages(); show_messages()
    >>> len([h for h in log.handlers if isinstance(h, _ToStderr)])
    1
    """
    if not any(isinstance(handler, _ToStderr) for handler in log.handlers):
        log.addHandler(_ToStderr())
        log.setLevel(logging.INFO)


@contextmanager
def withheld() -> Iterator[list[logging.LogRecord]]:
    """Inside, messages are collected instead of shown; pass on with `log.handle` those that a person should see.

    >>> with withheld() as records:
    ...     log.warning("not shown")
    >>> [record.getMessage() for record in records]
    ['not shown']
    """
    records: list[logging.LogRecord] = []

    def keep(record: logging.LogRecord) -> bool:
        records.append(record)
        return False

    log.addFilter(keep)
    try:
        yield records
    finally:
        log.removeFilter(keep)


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
