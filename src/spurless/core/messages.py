"""What a person is told while something runs: through the logger `spurless`, and by bars on standard error."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

T = TypeVar("T")
Event = TypeVar("Event", contravariant=True)

log = logging.getLogger("spurless")


class Watcher(Protocol[Event]):
    """Anything that shows or records how far something is: used as a context, called with every event."""

    def __enter__(self) -> object: ...
    def __exit__(self, *error: object) -> None: ...
    def __call__(self, event: Event, /) -> None: ...


# Control characters but newline and tab, and those that reverse the direction of text: what a name, a value or a file
# holds must not steer a terminal.
_STEERING = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
_STEERING |= {code: f"\\u{code:04x}" for code in (0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def printable(text: str) -> str:
    """The text with everything that would steer a terminal shown instead of done.

    >>> printable("red\\x1b[31m\\tand\\nplain")
    'red\\\\x1b[31m\\tand\\nplain'
    """
    return text.translate(_STEERING)


def inert(cell: object) -> object:
    """A cell that no spreadsheet runs: a text that would be a formula there has an apostrophe before it.

    >>> inert("=1+1"), inert("-x"), inert("-0.5"), inert(-0.5), inert("erm")
    ("'=1+1", "'-x", '-0.5', -0.5, 'erm')
    """
    if not isinstance(cell, str) or not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


displays: list[Callable[[], None]] = []  # what stops the spinners that are shown: an error is printed after them


def close_displays() -> None:
    """Stop the spinners, so that what is printed next begins a line of its own."""
    while displays:
        displays.pop()()


class _ToStderr(logging.Handler):
    """Prints each message as it is, to whatever standard error is at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        print(printable(self.format(record)), file=sys.stderr, flush=True)


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


class Pace:
    """Says when the next line of progress is due, where no bar can be shown."""

    EVERY = 30.0  # seconds

    def __init__(self) -> None:
        self.last = time.monotonic()

    def due(self) -> bool:
        now = time.monotonic()
        if now - self.last < self.EVERY:
            return False
        self.last = now
        return True
