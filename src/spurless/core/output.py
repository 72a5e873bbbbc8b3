"""Output folders: what a command calls its own if none is named, and whether a folder may be written into."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from spurless.core.errors import FolderError


def claim_folder(folder: Path, kind: str, markers: Iterable[str], leftovers: Iterable[str] = ()) -> bool:
    """Return whether the folder holds a `kind` already, which one of the files `markers` shows; refuse it if it holds
    anything else.

    `leftovers` are patterns of what a killed command leaves before there is a marker. A name with a dot is what a kill
    left of a file that was being written.

    >>> claim_folder(Path("/nowhere/yet"), "run", ["settings.toml"])
    False
    """
    names = names_in(folder)
    if names & set(markers):
        return True
    patterns = list(leftovers)
    if any(not any(fnmatch(name, pattern) for pattern in patterns) for name in names):
        raise FolderError(f"{folder} is not empty and holds no {kind}. Name another --out folder.")
    return False


def names_in(folder: Path) -> set[str]:
    """Return the names of what lies in a folder, but for those that begin with a dot; none if there is no folder."""
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")} if folder.exists() else set()


def default_folder(*words: str, given: Any = None) -> Path:
    """Return runs/WORD-WORD-HASH: the hash is of what was `given`, so that each setting has a folder of its own.

    >>> default_folder("erm", "folder:my/pictures", "conv3", "seed0")
    PosixPath('runs/erm-pictures-conv3-seed0')
    >>> default_folder("erm", "toy", given={"recipe": {"lr": 0.1}}).name
    'erm-toy-128bed9a'
    """
    safe = ["".join(c if c.isalnum() or c in "_." else "-" for c in Path(word).name) for word in words if word]
    tail = [hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:8]] if given else []
    return Path("runs") / "-".join([*safe, *tail])
