"""What lies in a folder: names of files and folders, without what systems and Spurless itself have left there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePath

from spurless.data.ingest.images import SUFFIXES

# The files by which a folder is known that Spurless has written: runs, exports, audits, prunings, sweeps, benchmarks.
WRITTEN = ("settings.toml", "model.safetensors", "audit.json", "prune.json", "sweep.json", "row.json")


def inside(folder: Path, name: str) -> str | None:
    """A file name relative to the folder, or None where it leads out of it.

    >>> inside(Path("data"), "./a/b.png"), inside(Path("data"), "../b.png"), inside(Path("data"), "/etc/passwd")
    ('a/b.png', None, None)
    """
    path = PurePath(name)
    if path.is_absolute() and path.is_relative_to(folder.absolute()):
        path = path.relative_to(folder.absolute())
    if path.is_absolute() or path.drive or ".." in path.parts or not path.parts or "\0" in name:
        return None
    return str(path)


def is_image(name: str) -> bool:
    """By its suffix; what systems leave behind (.DS_Store, ._cat.jpg, __MACOSX) is none.

    >>> is_image("cat/1.JPG"), is_image("cat/._1.jpg"), is_image("notes.txt")
    (True, False, False)
    """
    if os.path.splitext(name)[1].lower() not in SUFFIXES:  # without PurePath, which takes seconds of a million names
        return False
    return not any(p.startswith((".", "__MACOSX")) and p != "." for p in name.split(os.sep))


def folders_in(folder: Path) -> list[str]:
    """The folders in a folder, in order, less hidden ones."""
    with os.scandir(folder) as entries:
        return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith((".", "__MACOSX")))


def files_in(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if not entry.is_dir())


def and_above(folder: Path, below: str = "") -> frozenset[str]:
    """The real paths of a folder and of one below it, and of all that they lie in."""
    real = [Path(os.path.realpath(path)) for path in (folder, folder / below)]
    return frozenset(str(above) for path in real for above in (path, *path.parents))


def files_below(folder: str | Path, above: frozenset[str] = frozenset()) -> Iterator[str]:
    """The names of all files below a folder, in order. Links to folders are followed, unless they lead to one `above`,
    where this one lies: that would be a circle."""
    if os.path.realpath(folder) in above:
        return
    above |= and_above(Path(folder))
    with os.scandir(folder) as listing:
        entries = sorted(listing, key=lambda entry: entry.name)
    for entry in entries:
        if entry.is_dir():
            yield from (os.path.join(entry.name, name) for name in files_below(entry.path, above))
        else:
            yield entry.name


def without_outputs(files: list[str]) -> list[str]:
    """The files less those in folders where Spurless has written.

    >>> without_outputs(["runs/1/audit.json", "runs/1/pictures/7.png", "cat/1.png"])
    ['cat/1.png']
    """
    written = {os.path.dirname(name) for name in files if os.path.basename(name) in WRITTEN}
    # An audit that was stopped has a model and pictures, but no audit.json yet.
    written |= {os.path.join(os.path.dirname(folder), "pictures") for folder in written}
    return [name for name in files if written.isdisjoint(map(str, PurePath(name).parents))] if written else files
