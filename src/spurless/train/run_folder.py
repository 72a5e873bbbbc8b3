"""A run as a folder: settings.toml, history.jsonl, checkpoints, model.safetensors, result.json.

Every file is written beside its name and renamed; a line of the history that a kill tore apart is dropped when the
run is resumed. Nothing here is pickled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spurless.core.digests import changed_parts, same_content
from spurless.core.errors import FolderError, UserError, first_line
from spurless.core.files import (
    atomic,
    finite,
    from_json,
    from_toml,
    lock,
    read_bytes,
    read_toml,
    remove_leftovers,
    to_toml,
)
from spurless.core.output import claim_folder
from spurless.core.settings import from_text
from spurless.core.tensor_files import header, load_tensors, save_tensors

if TYPE_CHECKING:
    from torch import Tensor

SETTINGS, HISTORY, MODEL, RESULT = "settings.toml", "history.jsonl", "model.safetensors", "result.json"
TRAINING = ".training"  # locked while a process trains the run


class RunFolder:
    """The files of one run."""

    def __init__(self, path: str | Path):
        self.path = Path(path)

    def claim(self, settings: Mapping[str, Any]) -> None:
        """Take the folder for a run with these settings; raise a FolderError if it holds something else."""
        if claim_folder(self.path, "run", [SETTINGS]):
            saved = read_toml(self.path / SETTINGS)
            differences = difference(saved, from_toml(to_toml(settings)))
            if differences:
                shown = "; ".join(differences[:4]) + ("; ..." if len(differences) > 4 else "")
                raise FolderError(
                    f"{self.path} holds a run with other settings ({shown}). "
                    "Name another --out folder, or remove this one."
                )
            if not (self.path / RESULT).exists():
                self._drop_behind_gap()
                remove_leftovers(self.path)
            return
        with atomic(self.path / SETTINGS) as file:
            file.write_text(to_toml(settings), encoding="utf-8")

    def fingerprint(self) -> str | None:
        """Return the fingerprint of the data that the folder's run was begun on."""
        fingerprint: str | None = read_toml(self.path / SETTINGS).get("data", {}).get("fingerprint")
        return fingerprint

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While the run is trained: refuse a second process, whose epochs and checkpoints would lie among these."""
        try:
            training_lock = lock(self.path / TRAINING)
        except OSError:  # a file system without locks
            yield
            return
        if training_lock is None:
            raise FolderError(
                f"{self.path} is being trained by another process. Wait for it, or name another --out folder."
            )
        try:
            yield
        finally:
            with suppress(OSError):  # it is no part of a run; a kill leaves it, and nobody minds
                (self.path / TRAINING).unlink()
            training_lock.close()

    def check_is_there(self) -> None:
        """Refuse to write where the folder was removed during the run: what follows would have no settings."""
        if not (self.path / SETTINGS).exists():
            raise FolderError(
                f"{self.path / SETTINGS} was removed while the run was training, so nothing more can be saved there. "
                f"Re-run the command to train again{'' if not self.path.exists() else f', after removing {self.path}'}."
            )

    def release(self) -> None:
        """Give the folder back when a mistake showed before anything was trained."""
        if self.path.exists() and not any(self.path.glob("*.safetensors")) and not self.history():
            for name in (SETTINGS, HISTORY, TRAINING):
                (self.path / name).unlink(missing_ok=True)
            if not any(self.path.iterdir()):
                self.path.rmdir()

    def result(self) -> dict[str, Any] | None:
        """Return the result of a finished run, or None."""
        path = self.path / RESULT
        if not path.exists():
            return None
        try:
            result = from_json(read_bytes(path))
        except ValueError:
            result = None
        if not isinstance(result, dict) or not {"status", "method", "data"} <= result.keys():
            raise FolderError(f"{path} is damaged: remove it, and re-run the command to make it again.")
        return result

    def save_model(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        self.check_is_there()
        save_tensors(self.path / MODEL, tensors, facts)

    def write_result(self, result: Mapping[str, Any]) -> None:
        self.check_is_there()
        with atomic(self.path / RESULT) as file:
            text = json.dumps(finite(result), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
            file.write_text(text, encoding="utf-8", errors="backslashreplace")

    # History

    def history(self) -> list[dict[str, Any]]:
        """Return the epochs recorded so far; a torn last line is left out."""
        path = self.path / HISTORY
        rows = []
        for line in read_bytes(path).splitlines() if path.exists() else []:
            try:
                row = from_json(line)
            except ValueError:
                break
            if not is_epoch(row):
                raise FolderError(f"{path} is damaged: its rows are not epochs. Remove {self.path} to train again.")
            rows.append(row)
        return rows

    def rewrite_history(self, rows: list[dict[str, Any]]) -> None:
        with atomic(self.path / HISTORY) as file:
            file.write_text("".join(_line(row) for row in rows), encoding="utf-8")

    def append_history(self, row: dict[str, Any]) -> None:
        self.check_is_there()
        with open(self.path / HISTORY, "a", encoding="utf-8") as file:
            file.write(_line(row))

    # Checkpoints: of a finished stage, or inside one.

    def stage_file(self, index: int, done: bool) -> Path:
        return self.path / f"stage-{index:03d}{'' if done else '-part'}.safetensors"

    def save(self, index: int, done: bool, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        self.check_is_there()
        save_tensors(self.stage_file(index, done), tensors, facts)
        if done:
            self.stage_file(index, done=False).unlink(missing_ok=True)

    def load(self, index: int) -> tuple[dict[str, Tensor], dict[str, Any], bool] | None:
        """Load the checkpoint of a stage: its tensors, its facts, and whether the stage was finished."""
        for done in (True, False):
            path = self.stage_file(index, done)
            if path.exists():
                try:
                    tensors, facts = load_tensors(path)
                except UserError as error:
                    raise FolderError(
                        f"{str(error).removesuffix('.')}: the checkpoint is damaged. Remove {path} to resume from the "
                        "stage before it."
                    ) from None
                return tensors, facts, done
        return None

    @contextmanager
    def sound(self, index: int, done: bool) -> Iterator[None]:
        """While a checkpoint is restored: one that lacks something, or holds something else, raises a FolderError."""
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
            if "out of memory" in str(error):
                raise
            path = self.stage_file(index, done)
            raise FolderError(
                f"{path} does not fit this run ({type(error).__name__}: {first_line(error)}). Remove it to resume from "
                "the stage before it."
            ) from error

    def checkpoint(self) -> tuple[int, dict[str, Any], bool] | None:
        """Say from where the run is resumed: the number of the last stage that was saved, the facts of its checkpoint,
        and whether it was finished. None: from the start."""
        index = self._stages_done()
        if (unfinished := self.stage_file(index, done=False)).exists():
            return index, header(unfinished), False
        return (index - 1, header(self.stage_file(index - 1, done=True)), True) if index else None

    def _stages_done(self) -> int:
        """Count the stages that are finished, from the first one on."""
        index = 0
        while self.stage_file(index, done=True).exists():
            index += 1
        return index

    def _drop_behind_gap(self) -> None:
        """Where the result was removed after `drop_parts`: the run trains the stages that are missing again, and would
        load those behind them, whose epochs are gone from the history by then."""
        reached = self._stages_done()
        for file in self.path.glob("stage-*.safetensors"):
            if (number := re.match(r"stage-(\d+)", file.name)) and int(number[1]) > reached:
                file.unlink()

    def drop_parts(self, history: list[dict[str, Any]]) -> None:
        """Once the result is written: of a stage that a method cut into many (one an epoch), keep the last one only."""
        last = {row["stage"]: row["stage_index"] for row in history}
        for index in {row["stage_index"] for row in history} - set(last.values()):
            self.stage_file(index, done=True).unlink(missing_ok=True)


def difference(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """List what differs between two settings, as 'name: old there, new now'.

    >>> difference({"recipe": {"lr": 0.1}}, {"recipe": {"lr": 0.2}})
    ['recipe.lr: 0.1 there, 0.2 now']
    """
    differences = []
    for key in dict.fromkeys([*old, *new]):
        a, b = old.get(key), new.get(key)
        if isinstance(a, Mapping) or isinstance(b, Mapping):
            there, now = (x if isinstance(x, Mapping) else {} for x in (a, b))  # another program's file holds anything
            differences += difference(there, now, f"{prefix}{key}.")
        elif not _same_setting(f"{prefix}{key}", a, b):
            changed = key == "fingerprint" and a and b
            differences.append(f"{prefix}{key}: " + (changed_parts(a, b) if changed else f"{a!r} there, {b!r} now"))
    return differences


def _same_setting(name: str, a: Any, b: Any) -> bool:
    if name == "method.class":  # where it is found, not what it is: its code is compared
        return True
    if name.endswith("fingerprint") and same_content(a, b):
        return True
    return bool(a == b) or (isinstance(a, str) and from_text(a) == b)  # older folders hold the text of a shell


def is_epoch(row: Any) -> bool:
    """Whether a line of the history is one of ours, with what a resumed run reads of it.

    >>> is_epoch({"stage": "erm", "stage_index": 0, "epoch": 1, "step": 9, "loss": 0.5, "seconds": 1}), is_epoch({})
    (True, False)
    """
    if not isinstance(row, dict) or not isinstance(row.get("stage"), str):
        return False
    whole, numbers = ("stage_index", "epoch", "step"), ("loss", "seconds")
    return all(isinstance(row.get(k), int) for k in whole) and all(isinstance(row.get(k), int | float) for k in numbers)


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(finite(row), ensure_ascii=False, allow_nan=False) + "\n"
