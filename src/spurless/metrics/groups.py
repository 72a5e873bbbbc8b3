"""Accuracy by group: how right a classifier is where the shortcut helps, and where it misleads.

Accuracies and their limits are percentages; everything that is returned can be written as JSON as it stands.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spurless.core.errors import SettingError
from spurless.core.stats import Estimate, mean_of_cells, wilson
from spurless.metrics import checks

MOST_CONFUSED = 20  # classes; a larger table of confusions nobody reads
MIN_GROUP = 10  # samples: the accuracy of a smaller group says little, and is shown with its n
NAMED = 20  # groups that a note names; the others are in `small_groups`
METRICS = ("average", "unbiased", "aligned", "conflicting", "worst_group", "average_train_weighted")


def group_scores(
    correct: ArrayLike,
    y: ArrayLike,
    a: ArrayLike | None = None,
    aligned: ArrayLike | None = None,
    *,
    classes: Sequence[str] = (),
    attributes: Sequence[str] = (),
    values: Sequence[Sequence[str]] = (),
    train_counts: Sequence[ArrayLike] | None = None,
    all_counts: Sequence[ArrayLike] | None = None,
    member: ArrayLike | None = None,
    overlap: tuple[str, Sequence[str]] | None = None,
    level: float = 0.95,
    min_size: int = MIN_GROUP,
) -> dict[str, Any]:
    """The accuracies of a classifier, from whether each row was predicted right.

    `correct` (n,) is boolean, `y` (n,) and `a` (n, k) count from 0, and `aligned` (n, k) tells whether each attribute
    of a row agrees with its label (`Bundle.is_aligned`). A cell is a pair (label, value of one attribute).
    `member` (n, m) is boolean and tells which of m groups a row is in: none, one or several (the identities that a
    comment mentions); `overlap` is what these are groups of, and their names. Then (label, group) is a cell, too.

    - `average`: over all rows.
    - `unbiased`: the mean over the cells, each counting the same; of several attributes, the mean of theirs.
    - `aligned`, `conflicting`: over the rows with which every attribute agrees, and over those which at least one
      contradicts. The two share out the rows.
    - `worst_group`: the worst cell of all attributes; its interval is that cell's own. The lowest of many noisy
      accuracies lies below the accuracy of the truly worst cell on average, the more so the smaller the cells.
      With `member`, the worst of the overlapping cells instead. Of equal cells the one whose lower limit is lowest:
      a single sample that is right does not make its group as good as one of a hundred.
    - `average_train_weighted`: the cells weighted by their share of the training rows, as in GroupDRO and its
      successors. `train_counts` holds one (classes, values) table for each attribute.
    - `by_attribute`: the same for each attribute by itself, where `conflicting` means that this one contradicts.
      The overlapping groups are an attribute as well; its average is over the rows that are in any of them.
    - `groups`: every cell with rows. Cells without are left out everywhere and counted in `empty_cells`.
    - `missing_classes`: classes that are named, or counted in `all_counts`, and have no row. What such a class scores
      is unknown, so that `unbiased`, `worst_group` and `average_train_weighted` are None.
    - `small_groups`: every cell that exists and has fewer than `min_size` rows, and how many (0 where it has none);
      `groups_total`: how many cells exist. `all_counts` says which do: a (classes, values) table for each attribute,
      and a last one (classes, m) of `member`, with the rows of all splits. Without it `train_counts` does; without
      both, every pair of a class and a value.
    - `intervals` and `n`: for each score its limits and its rows. A single proportion has Wilson's interval, a mean
      of cells that of `mean_of_cells`. Of several attributes the limits are averaged, because they share their rows:
      wide enough for any dependence, as a mean's standard deviation is at most the mean of the standard deviations.

    Every key is always there. A score is None where no row, no attribute or no table speaks for it.

    >>> y, a = np.array([0, 0, 0, 0, 1, 1]), np.array([[0], [0], [0], [1], [1], [0]])
    >>> s = group_scores([True, True, True, False, True, False], y, a, aligned=a == y[:, None], attributes=["colour"])
    >>> [round(s[m], 1) for m in ("average", "unbiased", "aligned", "conflicting", "worst_group")]
    [66.7, 50.0, 100.0, 0.0, 0.0]
    >>> s["groups"][0]["label"], s["groups"][0]["attribute"], s["groups"][0]["value"], s["groups"][0]["n"]
    ('0', 'colour', '0', 3)
    >>> group_scores([True, False], [0, 1])["unbiased"] is None
    True
    >>> inside = np.array([[1, 0], [1, 1], [0, 1], [0, 0]], bool)  # row 1 is in both groups, row 3 in none
    >>> s = group_scores([True, False, True, False], [0, 0, 0, 1], member=inside, overlap=("identity", ["a", "b"]))
    >>> s["worst_group"], [(g["value"], g["correct"], g["n"]) for g in s["groups"]]
    (50.0, [('a', 1, 2), ('b', 1, 2)])
    """
    hit = boolean(correct, "correct")  # (n,)
    target = _codes(y, hit.shape, "y")  # (n,)
    tables = list(next((t for t in (all_counts, train_counts) if t is not None), ()))
    missing = _missing_classes(target, classes, tables)
    how = _How(classes, level, min_size, bool(missing))
    parts = [_Part(dict.fromkeys(METRICS, Estimate()) | {"average": _share(hit, level)}, [], {}, [], 0)]
    a = None if a is None else checks.array(a, "a")
    if a is not None and a.shape[1:] != (0,):
        parts.append(_of_attributes(hit, target, a, aligned, attributes, values, train_counts, tables, how))
    if member is not None:
        table = tables[-1] if all_counts is not None and len(tables) else None
        parts.append(_of_overlap(hit, target, member, overlap or ("group", ()), table, how))
    figures, groups, by_attribute = parts[0][:3]
    for part in parts[1:]:
        if part.by_attribute.keys() & by_attribute.keys():
            raise SettingError(
                f"An attribute and the overlapping groups have the same name, {next(iter(part.by_attribute))}; "
                "give one of them another."
            )
        figures |= part.figures
        groups += part.groups
        by_attribute |= part.by_attribute
    empty = sum(part["empty_cells"] for part in by_attribute.values())
    sizes = {
        "min_size": min_size,
        "small_groups": [group for part in parts for group in part.small],
        "groups_total": sum(part.total for part in parts),
        "missing_classes": missing,
    }
    return _as_dict(figures) | {"groups": groups, "by_attribute": by_attribute, "empty_cells": empty} | sizes


def group_notes(scores: Mapping[str, Any], split: str = "test") -> list[str]:
    """What must be said beside scores of groups without samples, or with few; nothing of scores that do not say.

    >>> few = {"label": "yes", "attribute": "sex", "value": "m", "n": 1}
    >>> sizes = {"min_size": 10, "groups_total": 4, "missing_classes": [], "small_groups": [few | {"n": 0}, few]}
    >>> for note in group_notes(sizes | {"worst_group": 0.0}):
    ...     print(note)
    Unbiased and worst-group accuracy are of the 3 of 4 groups that have test samples (of those with a sample in any \
split). Without test samples: yes, sex=m.
    Groups with fewer than 10 test samples: yes, sex=m (n = 1).
    """
    if "small_groups" not in scores:
        return []
    word = {"val": "validation", "train": "training", "all": ""}.get(split, split)
    samples = f"{word} samples".strip()
    notes = []
    if missing := scores["missing_classes"]:
        notes.append(
            f"No {samples} of the class{'es' if len(missing) > 1 else ''} {_listed(map(str, missing))}: no score says "
            "anything of it, and there is no unbiased or worst-group accuracy."
        )
    none = [g for g in scores["small_groups"] if not g["n"]]
    if none:
        held, total = scores["groups_total"] - len(none), scores["groups_total"]
        of = f"{held} of {total} groups have {samples}"
        if scores["worst_group"] is not None:
            of = f"Unbiased and worst-group accuracy are of the {held} of {total} groups that have {samples}"
        notes.append(
            f"{of} (of those with a sample in any split). Without {samples}: {_listed(map(group_name, none))}."
        )
    if few := [f"{group_name(g)} (n = {g['n']})" for g in scores["small_groups"] if g["n"]]:
        notes.append(f"Groups with fewer than {scores['min_size']} {samples}: {_listed(few)}.")
    return notes


def group_name(group: Mapping[str, Any]) -> str:
    """
    >>> group_name({"label": "yes", "attribute": "sex", "value": "m"})
    'yes, sex=m'
    """
    return f"{group['label']}, {group['attribute']}={group['value']}"


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    more = f"; and {len(every) - NAMED} more" if len(every) > NAMED else ""
    return "; ".join(every[:NAMED]) + more


class _Part(NamedTuple):
    """What the attributes say, or the overlapping groups."""

    figures: dict[str, Estimate]
    groups: list[dict[str, Any]]
    by_attribute: dict[str, Any]
    small: list[dict[str, Any]]  # groups that exist and have fewer than min_size rows
    total: int  # groups that exist


class _How(NamedTuple):
    """How cells are scored."""

    classes: Sequence[str]
    level: float
    min_size: int
    class_missing: bool  # then there is no score over all cells


def _of_attributes(
    hit: NDArray,
    target: NDArray,
    a: NDArray,
    aligned: ArrayLike | None,
    attributes: Sequence[str],
    values: Sequence[Sequence[str]],
    train_counts: Sequence[ArrayLike] | None,
    all_counts: Sequence[ArrayLike],
    how: _How,
) -> _Part:
    k = a.shape[1] if a.ndim == 2 else 1  # the next line refuses any other shape
    attribute = _codes(a, (len(hit), k), "a")  # (n, k)
    agrees = None if aligned is None else boolean(aligned, "aligned", attribute.shape)  # (n, k)
    names = list(attributes) or [f"a{j}" for j in range(k)]
    if len(names) != k or len(set(names)) != k:
        raise SettingError(f"a has {k} columns, which need as many different names, not {names}.")
    tables = () if train_counts is None else train_counts
    # The last table of all_counts may be that of overlapping groups.
    for name, each, lengths in (
        ("values", values, (0, k)),
        ("train_counts", tables, (0, k)),
        ("all_counts", all_counts, (0, k, k + 1)),
    ):
        if len(each) not in lengths:
            raise SettingError(f"{name} must have an entry for each of {k} attributes, not {len(each)}.")

    parts, groups, by_attribute, small, total = [], [], {}, [], 0
    for j, name in enumerate(names):
        column = None if agrees is None else agrees[:, j]  # (n,)
        own_values = values[j] if values else ()
        shape = _extent(how.classes, target), _extent(own_values, attribute[:, j])
        cells, empty = _cells(hit, target, attribute[:, j], column, how.classes, own_values, how.level)
        counts = _counts(tables[j], cells, name) if len(tables) else None  # (classes, values)
        part = _over_cells(cells, counts, how) | _shares(hit, column, how.level) | {"average": _share(hit, how.level)}
        parts.append(part)
        groups += [c.row(name) for c in cells]
        by_attribute[name] = _as_dict(part) | {"empty_cells": empty}
        table = _counts(all_counts[j], cells, name, "all_counts") if len(all_counts) else None
        few, existing = _small_groups(cells, shape, table, name, own_values, how)
        small += few
        total += existing

    figures = {m: _mean([p[m] for p in parts]) for m in ("unbiased", "average_train_weighted")}
    figures |= _shares(hit, None if agrees is None else np.logical_and.reduce(agrees, axis=1), how.level)
    figures["worst_group"] = _worst([p["worst_group"] for p in parts if p["worst_group"].known])
    return _Part(figures, groups, by_attribute, small, total)


def _worst(figures: Sequence[Estimate]) -> Estimate:
    """The lowest; of equal ones that of which least is known."""
    return min(figures, key=lambda f: (f.value, f.low or 0.0), default=Estimate())


def _missing_classes(target: NDArray, classes: Sequence[str], tables: Sequence[ArrayLike]) -> list[str]:
    """The classes that are named, or that have rows in any table, and none here."""
    exists = set(range(len(classes)))
    for table in tables:
        counts = checks.array(table, "counts")
        if counts.ndim == 2:  # another shape is refused where it is read
            exists |= set(np.flatnonzero(counts.any(1)).tolist())
    return [_name(classes, c) for c in sorted(exists - set(np.unique(target).tolist()))]


def _of_overlap(
    hit: NDArray,
    target: NDArray,
    member: ArrayLike,
    overlap: tuple[str, Sequence[str]],
    counts: ArrayLike | None,
    how: _How,
) -> _Part:
    level = how.level
    name, names = overlap
    inside = checks.array(member, "member")
    inside = boolean(inside, "member", (len(hit), inside.shape[-1] if inside.ndim else 0))  # (n, m)
    cells: list[_Cell] = []
    empty = 0
    labels = [_name(how.classes, c) for c in range(_extent(how.classes, target))]  # also of no group
    for j in range(inside.shape[1]):
        here = inside[:, j]
        # One group at a time, as an attribute with a single value: a row counts in each group that it is in.
        found, none = _cells(hit[here], target[here], np.zeros(int(here.sum()), int), None, labels, ("",), level)
        cells += [c._replace(code=(c.code[0], j), value=_name(names, j)) for c in found]
        empty += none
    cells.sort(key=lambda c: c.code)
    alone = [_figure([c.scores["correct"]], [c.scores["n"]], [1.0], level) for c in cells]
    anywhere = _share(hit[inside.any(1)], level)
    # Cells share rows, so that their limits are averaged, as those of several attributes are.
    known = alone and not how.class_missing
    mean, worst = (_mean(alone)._replace(n=anywhere.n), _worst(alone)) if known else (Estimate(), Estimate())
    part = dict.fromkeys(METRICS, Estimate()) | {"average": anywhere, "unbiased": mean, "worst_group": worst}
    table = None if counts is None else _counts(counts, cells, name, "all_counts")
    small, total = _small_groups(cells, (len(labels), inside.shape[1]), table, name, names, how)
    own = {name: _as_dict(part) | {"empty_cells": empty}}
    return _Part({"worst_group": worst}, [c.row(name) for c in cells], own, small, total)


def confusion(
    y: ArrayLike, predicted: ArrayLike, classes: Sequence[str], kinds: Mapping[str, ArrayLike]
) -> dict[str, Any] | None:
    """For each kind of rows, (n,) masks by name, how often each label got each prediction; None for many classes.

    Predictions beyond the classes, of a network with more outputs, are in no column.

    >>> found = confusion([0, 1, 1], [0, 1, 0], ["cat", "dog"], {"all": [True, True, True]})
    >>> found["groups"]
    [{'name': 'all', 'counts': [[1, 0], [1, 1]]}]
    """
    number = len(classes)
    if number > MOST_CONFUSED:
        return None
    label = _codes(y, checks.array(y, "y").shape[:1], "y")  # (n,)
    said = _codes(predicted, label.shape, "predicted")  # (n,)
    if label.max(initial=-1) >= number:
        raise SettingError(f"y holds {label.max()}, and there are {number} classes, counted from 0.")
    cell, known = label * number + said, said < number  # (n,) each
    groups = []
    for name, mask in kinds.items():
        chosen = boolean(mask, name, label.shape) & known
        counts = np.bincount(cell[chosen], minlength=number**2).reshape(number, number)
        groups.append({"name": name, "counts": counts.tolist()})
    return {"classes": [str(c) for c in classes], "groups": groups}


def boolean(mask: ArrayLike, name: str, shape: tuple[int, ...] | None = None) -> NDArray[np.bool_]:
    """The mask as an array. Scores or row numbers in its place would be taken for True without a word: refuse them.

    >>> boolean([0.2, 0.5], "mined")
    Traceback (most recent call last):
    spurless.core.errors.SettingError: mined must hold True and False for each row, not float64.
    """
    array = checks.array(mask, name)
    if array.dtype != bool and array.size:
        raise SettingError(f"{name} must hold True and False for each row, not {array.dtype}.")
    if array.shape != (shape or (array.size,)):
        raise SettingError(f"{name} has shape {array.shape}, not {shape or (array.size,)}.")
    return array.astype(bool)


class _Cell(NamedTuple):
    code: tuple[int, int]  # label, value of the attribute
    label: str
    value: str
    scores: dict[str, Any]

    def row(self, attribute: str) -> dict[str, Any]:
        return {"label": self.label, "attribute": attribute, "value": self.value, **self.scores}


def _cells(
    hit: NDArray,
    y: NDArray,
    a: NDArray,
    agrees: NDArray | None,
    classes: Sequence[str],
    values: Sequence[str],
    level: float,
) -> tuple[list[_Cell], int]:
    """The cells of one attribute that hold rows, and the number of those that hold none."""
    rows, columns = _extent(classes, y), _extent(values, a)
    cell = y * columns + a  # (n,)
    count, right, agreeing = (
        np.bincount(cell, weights, rows * columns).astype(int)
        for weights in (None, hit, np.zeros(len(hit)) if agrees is None else agrees)
    )  # (cells,) each
    found = []
    for at in np.flatnonzero(count).tolist():
        n, correct, label, value = int(count[at]), int(right[at]), at // columns, at % columns
        one_kind = agrees is not None and agreeing[at] in (0, n)  # a user's own rule may look beyond the cell
        scores = {
            "n": n,
            "correct": correct,
            "accuracy": 100 * correct / n,
            **dict(zip(("low", "high"), (100 * limit for limit in wilson(correct, n, level)), strict=True)),
            "aligned": bool(agreeing[at]) if one_kind else None,
        }
        found.append(_Cell((label, value), _name(classes, label), _name(values, value), scores))
    return found, int(np.sum(count == 0))


def _over_cells(cells: list[_Cell], train_counts: NDArray | None, how: _How) -> dict[str, Estimate]:
    if how.class_missing:
        return dict.fromkeys(("unbiased", "average_train_weighted", "worst_group"), Estimate())
    correct, n = [c.scores["correct"] for c in cells], [c.scores["n"] for c in cells]
    weights = [0.0 if train_counts is None else float(train_counts[c.code]) for c in cells]
    return {
        "unbiased": _figure(correct, n, [1.0] * len(n), how.level),
        "average_train_weighted": _figure(correct, n, weights, how.level),
        "worst_group": _worst([_figure([c], [m], [1.0], how.level) for c, m in zip(correct, n, strict=True)]),
    }


def _small_groups(
    cells: list[_Cell],
    shape: tuple[int, int],
    counts: NDArray | None,
    attribute: str,
    values: Sequence[str],
    how: _How,
) -> tuple[list[dict[str, Any]], int]:
    """The groups that exist and have fewer than `min_size` rows here, and how many exist.

    `shape`: classes and values that are named or seen; `counts` covers every cell with rows.
    """
    exists = np.ones(shape, bool) if counts is None else counts > 0  # (classes, values)
    n = np.zeros(exists.shape, int)  # (classes, values)
    for cell in cells:
        n[cell.code] = cell.scores["n"]
    exists |= n > 0
    small = [
        {"label": _name(how.classes, c), "attribute": attribute, "value": _name(values, v), "n": int(n[c, v])}
        for c, v in np.argwhere(exists & (n < how.min_size)).tolist()
    ]
    return small, int(exists.sum())


def _shares(hit: NDArray, agrees: NDArray | None, level: float) -> dict[str, Estimate]:
    if agrees is None:
        return {"aligned": Estimate(), "conflicting": Estimate()}
    return {"aligned": _share(hit[agrees], level), "conflicting": _share(hit[~agrees], level)}


def _share(hit: NDArray, level: float) -> Estimate:
    return _figure([int(hit.sum())], [len(hit)], [float(len(hit) > 0)], level)


def _figure(correct: list[int], n: list[int], weights: list[float], level: float) -> Estimate:
    if sum(weights) == 0:  # no rows, no cells, or not one cell that was trained on
        return Estimate()
    value, low, high = (100 * v for v in mean_of_cells(correct, n, weights, level))
    return Estimate(value, low, high, sum(m for m, w in zip(n, weights, strict=True) if w > 0))


def _mean(figures: list[Estimate]) -> Estimate:
    if not all(f.known for f in figures):
        return Estimate()
    value, low, high = np.array([f[:3] for f in figures], float).mean(0).tolist()
    return Estimate(value, low, high, figures[0].n)


def _as_dict(figures: dict[str, Estimate]) -> dict[str, Any]:
    intervals = {m: [f.low, f.high] if f.known else None for m, f in figures.items()}
    return {
        **{m: f.value if f.known else None for m, f in figures.items()},
        "intervals": intervals,
        "n": {m: f.n for m, f in figures.items()},
    }


def _codes(values: ArrayLike, shape: tuple[int, ...], name: str) -> NDArray[np.int64]:
    array = checks.array(values, name)
    if array.shape != shape:
        raise SettingError(f"{name} has shape {array.shape}, not {shape}.")
    if array.size and (not np.issubdtype(array.dtype, np.integer) or array.min() < 0):
        raise SettingError(f"{name} must hold whole numbers from 0 on.")
    return array.astype(np.int64)


def _counts(table: ArrayLike, cells: list[_Cell], name: str, what: str = "train_counts") -> NDArray:
    """How many rows each cell has, of training or of all splits."""
    counts = checks.numbers(table, f"{what} of {name}", dims=2)
    needed = [max((c.code[i] for c in cells), default=-1) for i in (0, 1)]
    if counts.min() < 0 or needed[0] >= counts.shape[0] or needed[1] >= counts.shape[1]:
        raise SettingError(
            f"{what} of {name} must hold a number from 0 on for each class and value, not shape {counts.shape}."
        )
    return counts


def _extent(names: Sequence[str], codes: NDArray) -> int:
    """How many are named, or seen."""
    return max(len(names), int(codes.max(initial=-1)) + 1)


def _name(names: Sequence[str], code: int) -> str:
    return str(names[code]) if code < len(names) else str(code)
