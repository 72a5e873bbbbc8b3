"""The samples that an audit uses: those that show what gives the label away, and those the model is asked about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from spurless.auditing.case import Case
from spurless.core.data import Bundle, Split

LEARN, ASK = 3000, 4000  # samples at most
BYTES = 600_000_000  # of all inputs together


@dataclass(frozen=True)
class Pool:
    """All samples, in memory. `held` (m,) are the places of those that the model is asked about, in the order of
    `case.held[asked]`; `learn` (k,) the places of training samples."""

    x: Tensor
    y: Tensor
    learn: Tensor
    held: Tensor
    asked: Tensor
    files: list[str] | None

    def __len__(self) -> int:
        return len(self.y)


def pool_of(case: Case) -> Pool:
    most = max(500, BYTES // max(1, 4 * _size(case)))
    if case.fold is not None:  # all samples have an answer, training samples among them
        asked = drawn(len(case.held), min(LEARN + ASK, most), case.seed)
        learn = (case.fold[asked] >= 0).nonzero()[:, 0]
        x, y = case.held[asked], case.held.y[asked]
        return Pool(x, y, learn, torch.arange(len(y)), asked, files_of(case.data, case.held, asked))
    rows, asked = (
        drawn(len(case.data.train), min(LEARN, most // 2), case.seed),
        drawn(len(case.held), min(ASK, most // 2), case.seed),
    )
    x = torch.cat([case.data.train[rows], case.held[asked]])
    y = torch.cat([case.data.train.y[rows], case.held.y[asked]])
    n, both = (
        len(rows),
        (
            files_of(case.data, case.data.train, rows),
            files_of(case.data, case.held, asked),
        ),
    )
    files = None if both[0] is None or both[1] is None else both[0] + both[1]
    return Pool(x, y, torch.arange(n), torch.arange(n, len(y)), asked, files)


def files_of(data: Bundle, split: Split, rows: Tensor) -> list[str] | None:
    """The image files of these samples, where they came from files that are still there."""
    if split.names is None or not len(rows):
        return None
    source = data.source
    base = Path(source.partition(":")[2]) if source.startswith("folder:") else Path()
    paths = [str(base / str(split.names[i])) for i in rows.tolist()]
    return paths if all(Path(name).is_file() for name in paths[:3]) else None


def _size(case: Case) -> int:
    size = 1
    for side in case.data.shape:
        size *= side
    return size


def drawn(n: int, most: int, seed: int) -> Tensor:
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:most].sort().values


def mixed(rows: Tensor, seed: int) -> Tensor:
    """In random order: the first few of a folder's samples are of one class."""
    return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))]
