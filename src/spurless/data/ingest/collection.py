"""Collections of image files with labels, as benchmark datasets are distributed: found, decoded, less broken files."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from spurless.core.data import Split
from spurless.core.errors import DataError
from spurless.core.files import data_root
from spurless.core.messages import log
from spurless.data.ingest.image_cache import decode_cached
from spurless.data.ingest.images import Frame, LazyRows, inspect
from spurless.data.ingest.problems import Problems, printable


def read_splits(
    splits: dict[str, Split], name: str, use_cache: bool = True, skip_broken: bool = False
) -> tuple[dict[str, Split], tuple[str, ...]]:
    """Splits over LazyRows as splits over the cache, and a note on what was left out. Broken files stop it together."""
    notes = note_if_enlarged(splits["train"])
    decoded, broken = decode_splits(splits) if use_cache else (splits, _broken(splits) if skip_broken else {})
    if not broken:
        return decoded, notes
    if not skip_broken:
        problems = Problems()
        problems.add_broken(broken)
        problems.stop(name)
    sound = without(splits, broken)
    return decode_splits(sound)[0] if use_cache else sound, (left_out(broken), *notes)


def _broken(splits: dict[str, Split]) -> dict[str, str]:
    """Which images cannot be read, and why: all are decoded for it, and none is kept."""
    rows = [lazy_rows(split) for split in splits.values()]
    why = inspect([file for lazy in rows for file in lazy.files], rows[0].frame, whole=True)[1]
    return {name: why[row] for row, name in enumerate(_all_names(rows)) if row in why}


def decode_splits(splits: dict[str, Split]) -> tuple[dict[str, Split], dict[str, str]]:
    """The splits with their images decoded, and why which names are broken."""
    rows = {name: lazy_rows(split) for name, split in splits.items()}
    frame = next(iter(rows.values())).frame
    done = decode_cached([file for lazy in rows.values() for file in lazy.files], frame)
    broken = {name: done.broken[row] for row, name in enumerate(_all_names(rows.values())) if row in done.broken}
    parts = done.parts([len(lazy) for lazy in rows.values()], frame)
    return {name: replace(splits[name], x=x) for name, x in zip(rows, parts, strict=True)}, broken


def note_if_enlarged(split: Split, sample: int = 15) -> tuple[str, ...]:
    """A note where most images are smaller than what is made of them: results then compare with no published ones."""
    from PIL import Image

    lazy, shorter = lazy_rows(split), []
    for file in lazy.files[:: max(1, len(lazy) // sample)]:
        with suppress(Exception), Image.open(file) as picture:
            shorter.append(min(picture.size))
    typical = int(np.median(shorter)) if shorter else lazy.frame.size
    if typical * 1.2 >= lazy.frame.size:
        return ()
    return (f"the images here are {typical} px and were enlarged to {lazy.frame.size} px",)


def to_split(folder: Path, rows: Sequence[tuple[str, int, int]], frame: Frame) -> Split:
    """Image files below a folder as (name, label, bias attribute), not decoded yet."""
    names = [name for name, _, _ in rows]
    y, a = torch.tensor([y for _, y, _ in rows]), torch.tensor([a for _, _, a in rows])
    return Split(LazyRows(folder, names, frame), y, a[:, None], names)


def find_collection(root: Path | None, places: Sequence[str], needed: Sequence[str], source: str) -> Path:
    """Where a collection lies below the data root, or a DataError that says what to put where."""
    base = data_root(root)
    for folder in places:
        if all((base / folder / name).exists() for name in needed):
            return base / folder
    raise DataError(
        f"There is no {places[0]} with {' and '.join(needed)} in {base}. Get it from {source} (spurless data download "
        "NAME says how) and put it there, or name another data root with --data-root or SPURLESS_DATA."
    )


def lazy_rows(split: Split) -> LazyRows:
    """The image files of a split that is not decoded yet."""
    assert isinstance(split.x, LazyRows)
    return split.x


def without(splits: dict[str, Split], broken: Iterable[str]) -> dict[str, Split]:
    """The splits over LazyRows, less the samples of these names."""
    bad, kept = set(broken), {}
    for name, split in splits.items():
        rows = [row for row, file in enumerate(lazy_rows(split).names) if file not in bad]
        idx, x = torch.tensor(rows, dtype=torch.long), lazy_rows(split).keep(rows)
        kept[name] = Split(x, split.y[idx], None if split.a is None else split.a[idx], x.names)
    return kept


def left_out(broken: dict[str, str]) -> str:
    """Says on standard error which files were left out and why, and gives the short form for every result."""
    head = f"{len(broken):,} broken image file{'s' * (len(broken) > 1)} left out: "
    log.warning("\n".join([head, *(printable(f"  {file}: {why}") for file, why in broken.items())]))
    return head + printable(", ".join(list(broken)[:5])) + (f" and {len(broken) - 5:,} more" if len(broken) > 5 else "")


def _all_names(rows: Iterable[LazyRows]) -> Iterator[str]:
    return itertools.chain.from_iterable(lazy.names for lazy in rows)
