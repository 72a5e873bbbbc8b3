"""Data that a trained model is only scored on: it need not have rows to train on, nor more than one class."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_only = ContextVar("only_scored", default=False)


@contextmanager
def only_scored(yes: bool = True) -> Iterator[None]:
    """Folders and tables that are loaded inside are one split, `train`, unless they have rows to train on by their own
    account: nothing is drawn from them."""
    before = _only.set(yes)
    try:
        yield
    finally:
        _only.reset(before)


def is_only_scored() -> bool:
    return _only.get()
