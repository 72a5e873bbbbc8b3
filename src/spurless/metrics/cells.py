"""The cells of a table of groups, (class, value of one attribute), and the figures made of them, in percent."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spurless.core.errors import SettingError
from spurless.core.stats import Estimate, mean_of_cells, wilson
from spurless.metrics import checks

Flags = NDArray[np.bool_]
Codes = NDArray[np.int64]


def boolean(mask: ArrayLike, name: str, shape: tuple[int, ...] | None = None) -> Flags:
    """The mask as an array. Scores or sample numbers would silently count as True: refuse them.

    >>> boolean([0.2, 0.5], "conflicting")
    Traceback (most recent call last):
    spurless.core.errors.SettingError: conflicting must hold True and False for each sample, not float64.
    """
    array = checks.array(mask, name)
    if array.dtype != bool and array.size:
        raise SettingError(f"{name} must hold True and False for each sample, not {array.dtype}.")
    if array.shape != (shape or (array.size,)):
        raise SettingError(f"{name} has shape {array.shape}, not {shape or (array.size,)}.")
    return array.astype(bool)


class How(NamedTuple):
    """How cells are scored."""

    classes: Sequence[str]
    level: float
    min_size: int
    class_missing: bool  # then there is no score over all cells


class Cell(NamedTuple):
    code: tuple[int, int]  # label, value of the attribute
    label: str
    value: str
    scores: dict[str, Any]

    def row(self, attribute: str) -> dict[str, Any]:
        return {"label": self.label, "attribute": attribute, "value": self.value, **self.scores}


def cells_of(
    hit: Flags, y: Codes, a: Codes, agrees: Flags | None, how: How, values: Sequence[str]
) -> tuple[list[Cell], int]:
    """The cells of one attribute that hold samples, and the number of those that hold none."""
    rows, columns = extent(how.classes, y), extent(values, a)
    cell = y * columns + a  # (n,)
    count, right, agreeing = (
        np.bincount(cell, weights, rows * columns).astype(int)
        for weights in (None, hit, np.zeros(len(hit)) if agrees is None else agrees)
    )  # (cells,) each
    cells = []
    for at in np.flatnonzero(count).tolist():
        n, correct, label, value = int(count[at]), int(right[at]), at // columns, at % columns
        one_kind = agrees is not None and agreeing[at] in (0, n)  # a user's own rule may look beyond the cell
        scores = {
            "n": n,
            "correct": correct,
            "accuracy": 100 * correct / n,
            **dict(zip(("low", "high"), (100 * limit for limit in wilson(correct, n, how.level)), strict=True)),
            "aligned": bool(agreeing[at]) if one_kind else None,
        }
        cells.append(Cell((label, value), name_of(how.classes, label), name_of(values, value), scores))
    return cells, int(np.sum(count == 0))


def over_cells(cells: list[Cell], train_counts: NDArray[np.float64] | None, how: How) -> dict[str, Estimate]:
    if how.class_missing:
        return dict.fromkeys(("unbiased", "average_train_weighted", "worst_group"), Estimate())
    correct, n = [c.scores["correct"] for c in cells], [c.scores["n"] for c in cells]
    weights = [0.0 if train_counts is None else float(train_counts[c.code]) for c in cells]
    return {
        "unbiased": figure(correct, n, [1.0] * len(n), how.level),
        "average_train_weighted": figure(correct, n, weights, how.level),
        "worst_group": worst([figure([c], [m], [1.0], how.level) for c, m in zip(correct, n, strict=True)]),
    }


def small_groups(
    cells: list[Cell], exists: Flags, attribute: str, values: Sequence[str], how: How
) -> tuple[list[dict[str, Any]], int]:
    """The groups that exist, (classes, values), and have fewer than `min_size` samples here; how many exist."""
    n = np.zeros(exists.shape, int)  # (classes, values)
    for cell in cells:
        n[cell.code] = cell.scores["n"]
    exists = exists | (n > 0)
    small = [
        {"label": name_of(how.classes, c), "attribute": attribute, "value": name_of(values, v), "n": int(n[c, v])}
        for c, v in np.argwhere(exists & (n < how.min_size)).tolist()
    ]
    return small, int(exists.sum())


def shares(hit: Flags, agrees: Flags | None, level: float) -> dict[str, Estimate]:
    if agrees is None:
        return {"aligned": Estimate(), "conflicting": Estimate()}
    return {"aligned": share(hit[agrees], level), "conflicting": share(hit[~agrees], level)}


def share(hit: Flags, level: float) -> Estimate:
    return figure([int(hit.sum())], [len(hit)], [float(len(hit) > 0)], level)


def figure(correct: list[int], n: list[int], weights: list[float], level: float) -> Estimate:
    if sum(weights) == 0:  # no samples, no cells, or not one cell that was trained on
        return Estimate()
    value, low, high = (100 * v for v in mean_of_cells(correct, n, weights, level))
    return Estimate(value, low, high, sum(m for m, w in zip(n, weights, strict=True) if w > 0))


def mean(figures: list[Estimate]) -> Estimate:
    if not all(f.known for f in figures):
        return Estimate()
    value, low, high = np.array([f[:3] for f in figures], float).mean(0).tolist()
    return Estimate(value, low, high, figures[0].n)


def as_dict(figures: dict[str, Estimate]) -> dict[str, Any]:
    intervals = {m: [f.low, f.high] if f.known else None for m, f in figures.items()}
    return {
        **{m: f.value if f.known else None for m, f in figures.items()},
        "intervals": intervals,
        "n": {m: f.n for m, f in figures.items()},
    }


def codes(values: ArrayLike, shape: tuple[int, ...], name: str) -> Codes:
    array = checks.array(values, name)
    if array.shape != shape:
        raise SettingError(f"{name} has shape {array.shape}, not {shape}.")
    if array.size and (not np.issubdtype(array.dtype, np.integer) or array.min() < 0):
        raise SettingError(f"{name} must hold whole numbers from 0 on.")
    return array.astype(np.int64)


def counts_of(table: ArrayLike, cells: list[Cell], name: str) -> NDArray[np.float64]:
    """How many samples each cell has, of training or of all splits."""
    counts: NDArray[np.float64] = checks.numbers(table, name, dims=2)
    needed = [max((c.code[i] for c in cells), default=-1) for i in (0, 1)]
    if counts.min() < 0 or needed[0] >= counts.shape[0] or needed[1] >= counts.shape[1]:
        raise SettingError(f"{name} must hold a number from 0 on for each class and value, not shape {counts.shape}.")
    return counts


def extent(names: Sequence[str], codes: Codes) -> int:
    """How many are named, or seen."""
    return max(len(names), int(codes.max(initial=-1)) + 1)


def name_of(names: Sequence[str], code: int) -> str:
    return str(names[code]) if code < len(names) else str(code)


def worst(figures: Sequence[Estimate]) -> Estimate:
    """The lowest; of equal ones that of which least is known."""
    return min(figures, key=lambda f: (f.value, f.low or 0.0), default=Estimate())
