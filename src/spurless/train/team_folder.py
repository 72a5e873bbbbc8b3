"""A run's folder where several processes train together: the first one reads and writes it for all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spurless.core.parallel import first, from_first, world
from spurless.train.run_folder import RunFolder

if TYPE_CHECKING:
    from torch import Tensor


class TeamFolder(RunFolder):
    """A run's folder that the first process alone reads and writes, for all."""

    def claim(self, settings: Mapping[str, Any]) -> None:
        from_first(lambda: RunFolder.claim(self, settings))

    def fingerprint(self) -> str | None:
        return from_first(lambda: RunFolder.fingerprint(self))

    @contextmanager
    def alone(self) -> Iterator[None]:
        with ExitStack() as locks:
            from_first(lambda: locks.enter_context(RunFolder.alone(self)))
            yield

    def result(self) -> dict[str, Any] | None:
        return from_first(lambda: RunFolder.result(self))

    def history(self) -> list[dict[str, Any]]:
        return from_first(lambda: RunFolder.history(self))

    def load(self, index: int) -> tuple[dict[str, Tensor], dict[str, Any], bool] | None:
        return from_first(lambda: RunFolder.load(self, index))

    def release(self) -> None:
        if first():
            RunFolder(self.path).release()

    def save_model(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        if first():
            super().save_model(tensors, facts)

    def write_result(self, result: Mapping[str, Any]) -> None:
        if first():
            super().write_result(result)

    def rewrite_history(self, rows: list[dict[str, Any]]) -> None:
        if first():
            super().rewrite_history(rows)

    def append_history(self, row: dict[str, Any]) -> None:
        if first():
            super().append_history(row)

    def save(self, index: int, done: bool, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        if first():
            super().save(index, done, tensors, facts)

    def drop_parts(self, history: list[dict[str, Any]]) -> None:
        if first():
            super().drop_parts(history)


def run_folder(path: str | Path) -> RunFolder:
    return RunFolder(path) if world() == 1 else TeamFolder(path)
