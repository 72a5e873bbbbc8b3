"""A run's folder where several processes train together: the first one reads and writes it for all."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from spurless.core.parallel import first, from_first, world
from spurless.train.run_folder import RunFolder

P = ParamSpec("P")
T = TypeVar("T")


def _read(method: Callable[Concatenate[RunFolder, P], T]) -> Callable[Concatenate[RunFolder, P], T]:
    """The first process calls the method, and all get what it returns or raises."""

    @functools.wraps(method)
    def for_all(self: RunFolder, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return from_first(lambda: method(self, *args, **kwargs))

    return for_all


def _written(method: Callable[Concatenate[RunFolder, P], None]) -> Callable[Concatenate[RunFolder, P], None]:
    """The first process alone calls the method."""

    @functools.wraps(method)
    def by_first(self: RunFolder, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if first():
            method(RunFolder(self.path), *args, **kwargs)

    return by_first


class TeamFolder(RunFolder):
    """A run's folder that the first process alone reads and writes, for all."""

    claim = _read(RunFolder.claim)
    fingerprint = _read(RunFolder.fingerprint)
    result = _read(RunFolder.result)
    history = _read(RunFolder.history)
    load = _read(RunFolder.load)
    release = _written(RunFolder.release)
    save = _written(RunFolder.save)
    save_model = _written(RunFolder.save_model)
    write_result = _written(RunFolder.write_result)
    rewrite_history = _written(RunFolder.rewrite_history)
    append_history = _written(RunFolder.append_history)
    drop_parts = _written(RunFolder.drop_parts)

    @contextmanager
    def alone(self) -> Iterator[None]:
        with ExitStack() as locks:
            from_first(lambda: locks.enter_context(RunFolder.alone(self)))
            yield


def run_folder(path: str | Path) -> RunFolder:
    return RunFolder(path) if world() == 1 else TeamFolder(path)
