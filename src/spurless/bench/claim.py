"""Who does a trial, and what came of it: a lock while it runs, and a row when it is done.

The lock is the operating system's and lies on a file in the trial's folder. It ends with the process that holds it,
however that ends, so a trial whose process was killed can be taken up at once. Between machines that share a disk it
holds as far as the file system passes locks on: NFS 4, Lustre mounted with `flock`, and most others do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from spurless.core.errors import UserError
from spurless.core.files import atomic, finite, lock

LOCK, ROW = ".lock", "row.json"
DYNAMICS = "dynamics.json"  # metrics.records.FILE, which comes with torch
FINISHED = ("done", "diverged")  # a trial that failed is tried again


class Claim:
    """The right to do a trial, until it is released or the process ends."""

    def __init__(self, file: IO[bytes]):
        self.file = file

    def release(self) -> None:
        self.file.close()

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def claim(folder: Path) -> Claim | None:
    """Take the trial in this folder; None if someone else has it."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        file = lock(folder / LOCK)
    except OSError as error:
        if error.filename:  # it cannot even be opened: a full disk, or a folder that may not be written
            raise
        raise UserError(
            f"{folder} lies on a file system without locks ({error.strerror}); name an --out folder on another one."
        ) from None
    return Claim(file) if file else None


def read_row(folder: Path) -> dict[str, Any] | None:
    """The row of a trial, or None. A damaged one does not count: the run folder beside it can make it again."""
    try:
        row = json.loads((folder / ROW).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return row if isinstance(row, dict) and "status" in row else None


def finished_row(folder: Path, after: str | None = None) -> dict[str, Any] | None:
    """The row of a trial with which there is nothing left to do: it is trained, and measured by `after`."""
    row = read_row(folder)
    if row is None or row["status"] not in FINISHED:
        return None
    if after is None or row["status"] != "done":
        return row
    after_name = row["after"] if "after" in row else after if row.get("extra") else None  # older rows do not name it
    return row if after_name == after else None


def write_row(folder: Path, row: Mapping[str, Any]) -> str:
    """Whole or not at all, and what was written. Not forced to the disk: after a power cut the run folder, which is,
    makes it again."""
    text = json.dumps(finite(row), ensure_ascii=False, allow_nan=False) + "\n"
    with atomic(folder / ROW, forced=False) as unfinished:
        unfinished.write_text(text, encoding="utf-8", errors="backslashreplace")
    return text


def restore(out: Path, row: Mapping[str, Any]) -> None:
    """A row that was kept elsewhere, as that of a trial below `out`; one that is there stays as it is."""
    folder = out / "cells" / row["key"]
    if read_row(folder) is None:
        folder.mkdir(parents=True, exist_ok=True)
        write_row(folder, {"error": None, "folder": f"cells/{row['key']}"} | dict(row))
