"""Accuracy by group: how right a classifier is where the shortcut helps, and where it misleads.

Accuracies and their limits are percentages; everything that is returned can be written as JSON as it stands. The scores
of `group_scores`:

- `average`: over all samples.
- `unbiased`: the mean over the cells, each counting the same; of several attributes, the mean of theirs.
- `aligned`, `conflicting`: over the samples with which every attribute agrees, and over those which at least one
  contradicts. The two share out the samples.
- `worst_group`: the worst cell of all attributes; its interval is that cell's own. The lowest of many noisy
  accuracies lies below the accuracy of the truly worst cell on average, the more so the smaller the cells.
  With `member`, the worst of the overlapping cells instead. Of equal cells the one whose lower limit is lowest:
  a single sample that is right does not make its group as good as one of a hundred.
- `average_train_weighted`: the cells weighted by their share of the training samples, as in GroupDRO and its
  successors. `train_counts` holds one (classes, values) table for each attribute.
- `by_attribute`: the same for each attribute by itself, where `conflicting` means that this one contradicts.
  The overlapping groups are an attribute as well; its average is over the samples that are in any of them.
- `groups`: every cell with samples. Cells without are left out everywhere and counted in `empty_cells`.
- `missing_classes`: classes that are named, or counted in `all_counts`, and have no sample. What such a class scores
  is unknown, so that `unbiased`, `worst_group` and `average_train_weighted` are None.
- `small_groups`: every cell that exists and has fewer than `min_size` samples, and how many (0 where it has none);
  `groups_total`: how many cells exist. `all_counts` says which do: a (classes, values) table for each attribute,
  and a last one (classes, m) of `member`, with the samples of all splits. Without it `train_counts` does; without
  both, every pair of a class and a value.
- `intervals` and `n`: for each score its limits and its samples. A single proportion has Wilson's interval, a mean
  of cells that of `mean_of_cells`. Of several attributes the limits are averaged, because they share their samples:
  wide enough for any dependence, as a mean's standard deviation is at most the mean of the standard deviations.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from spurless.core.errors import SettingError
from spurless.core.stats import Estimate
from spurless.metrics import checks
from spurless.metrics.cells import (
    Cell,
    Codes,
    Flags,
    How,
    as_dict,
    boolean,
    cells_of,
    codes,
    counts_of,
    extent,
    figure,
    mean,
    name_of,
    over_cells,
    share,
    shares,
    small_groups,
    worst,
)

MOST_CONFUSED = 20  # classes; a larger table of confusions nobody reads
MIN_GROUP = 10  # samples: the accuracy of a smaller group says little, and is shown with its n
NAMED = 20  # groups that a note names; the others are in `small_groups`
METRICS = ("average", "unbiased", "aligned", "conflicting", "worst_group", "average_train_weighted")


class About(TypedDict, total=False):
    """What is known of the classes, the attributes, and how many samples each cell has elsewhere."""

    classes: Sequence[str]
    attributes: Sequence[str]
    values: Sequence[Sequence[str]]
    train_counts: Sequence[ArrayLike] | None
    all_counts: Sequence[ArrayLike] | None


def group_scores(
    correct: ArrayLike,
    y: ArrayLike,
    a: ArrayLike | None = None,
    aligned: ArrayLike | None = None,
    *,
    member: ArrayLike | None = None,
    overlap: tuple[str, Sequence[str]] | None = None,
    level: float = 0.95,
    min_size: int = MIN_GROUP,
    **about: Unpack[About],
) -> dict[str, Any]:
    """The accuracies of a classifier, from whether each sample was predicted right.

    `correct` (n,) is boolean, `y` (n,) and `a` (n, k) count from 0, and `aligned` (n, k) tells whether each attribute
    of a sample agrees with its label (`Bundle.is_aligned`). A cell is a pair (label, value of one attribute).
    `member` (n, m) is boolean and tells which of m groups a sample is in: none, one or several (the identities that a
    comment mentions); `overlap` is what these are groups of, and their names. Then (label, group) is a cell, too.

    The scores are described at the top of this module. Every key is always there; a score is None where no sample, no
    attribute or no table speaks for it.

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
    target = codes(y, hit.shape, "y")  # (n,)
    missing = _missing_classes(target, about)
    how = How(about.get("classes", ()), level, min_size, bool(missing))
    parts = []
    a = None if a is None else checks.array(a, "a")
    if a is not None and a.shape[1:] != (0,):
        parts.append(_of_attributes(hit, target, a, aligned, about, how))
    if member is not None:
        table = None if about.get("all_counts") is None else next(reversed(_existing(about)), None)
        parts.append(_of_overlap(hit, target, member, overlap or ("group", ()), table, how))
    figures = dict.fromkeys(METRICS, Estimate()) | {"average": share(hit, level)}
    for scores in parts:
        figures |= scores.figures
    by_attribute = _by_attribute(parts)
    return as_dict(figures) | {
        "groups": [group for scores in parts for group in scores.groups],
        "by_attribute": by_attribute,
        "empty_cells": sum(scores["empty_cells"] for scores in by_attribute.values()),
        "min_size": min_size,
        "small_groups": [group for scores in parts for group in scores.small],
        "groups_total": sum(scores.total for scores in parts),
        "missing_classes": missing,
    }


def _by_attribute(parts: Sequence["_Part"]) -> dict[str, Any]:
    """The scores of each attribute and of the overlapping groups, whose names must differ."""
    named: dict[str, Any] = {}
    for scores in parts:
        if scores.by_attribute.keys() & named.keys():
            raise SettingError(
                f"An attribute and the overlapping groups have the same name, {next(iter(scores.by_attribute))}; "
                "give one of them another."
            )
        named |= scores.by_attribute
    return named


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
        counted, total = scores["groups_total"] - len(none), scores["groups_total"]
        of = f"{counted} of {total} groups have {samples}"
        if scores["worst_group"] is not None:
            of = f"Unbiased and worst-group accuracy are of the {counted} of {total} groups that have {samples}"
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
    small: list[dict[str, Any]]  # groups that exist and have fewer than min_size samples
    total: int  # groups that exist


def _of_attributes(hit: Flags, target: Codes, a: Any, aligned: ArrayLike | None, about: About, how: How) -> _Part:
    k = a.shape[1] if a.ndim == 2 else 1  # the next line refuses any other shape
    attribute = codes(a, (len(hit), k), "a")  # (n, k)
    agrees = None if aligned is None else boolean(aligned, "aligned", attribute.shape)  # (n, k)
    names, values, train, anywhere = _tables(about, k)

    parts, groups, by_attribute, small, total = [], [], {}, [], 0
    for j, name in enumerate(names):
        column = None if agrees is None else agrees[:, j]  # (n,)
        cells, empty = cells_of(hit, target, attribute[:, j], column, how, values[j])
        counts = None if train is None else counts_of(train[j], cells, f"train_counts of {name}")  # (classes, values)
        scores = over_cells(cells, counts, how) | shares(hit, column, how.level) | {"average": share(hit, how.level)}
        parts.append(scores)
        groups += [c.row(name) for c in cells]
        by_attribute[name] = as_dict(scores) | {"empty_cells": empty}
        exist = None if anywhere is None else counts_of(anywhere[j], cells, f"all_counts of {name}")
        shape = extent(how.classes, target), extent(values[j], attribute[:, j])
        few, existing = small_groups(cells, np.ones(shape, bool) if exist is None else exist > 0, name, values[j], how)
        small += few
        total += existing

    figures = {m: mean([p[m] for p in parts]) for m in ("unbiased", "average_train_weighted")}
    figures |= shares(hit, None if agrees is None else np.logical_and.reduce(agrees, axis=1), how.level)
    figures["worst_group"] = worst([p["worst_group"] for p in parts if p["worst_group"].known])
    return _Part(figures, groups, by_attribute, small, total)


Tables = Sequence[ArrayLike] | None


def _tables(about: About, k: int) -> tuple[Sequence[str], Sequence[Sequence[str]], Tables, Tables]:
    """The names of k attributes and of their values, and their counts in training and in all splits."""
    names = list(about.get("attributes", ())) or [f"a{j}" for j in range(k)]
    if len(names) != k or len(set(names)) != k:
        raise SettingError(f"a has {k} columns, which need as many different names, not {names}.")
    values, train, anywhere = about.get("values", ()), about.get("train_counts"), _existing(about)
    # The last table of all_counts may be that of overlapping groups.
    for name, each, lengths in (
        ("values", values, (0, k)),
        ("train_counts", () if train is None else train, (0, k)),
        ("all_counts", anywhere, (0, k, k + 1)),
    ):
        if len(each) not in lengths:
            raise SettingError(f"{name} must have an entry for each of {k} attributes, not {len(each)}.")
    return names, values or [()] * k, train if train is not None and len(train) else None, anywhere or None


def _existing(about: About) -> list[ArrayLike]:
    """The tables that say which groups exist."""
    anywhere, train = about.get("all_counts"), about.get("train_counts")
    return list(next((tables for tables in (anywhere, train) if tables is not None), ()))


def _missing_classes(target: Codes, about: About) -> list[str]:
    """The classes that are named, or that have samples in any table, and none here."""
    classes = about.get("classes", ())
    exists = set(range(len(classes)))
    for table in _existing(about):
        counts = checks.array(table, "counts")
        if counts.ndim == 2:  # another shape is refused where it is read
            exists |= set(np.flatnonzero(counts.any(1)).tolist())
    return [name_of(classes, c) for c in sorted(exists - set(np.unique(target).tolist()))]


def _of_overlap(
    hit: Flags,
    target: Codes,
    member: ArrayLike,
    overlap: tuple[str, Sequence[str]],
    table: ArrayLike | None,
    how: How,
) -> _Part:
    name, names = overlap
    inside = checks.array(member, "member")
    inside = boolean(inside, "member", (len(hit), inside.shape[-1] if inside.ndim else 0))  # (n, m)
    cells: list[Cell] = []
    empty = 0
    labels = [name_of(how.classes, c) for c in range(extent(how.classes, target))]  # also of no group
    for j in range(inside.shape[1]):
        here = inside[:, j]
        # One group at a time, as an attribute with a single value: a sample counts in each group that it is in.
        own, none = cells_of(
            hit[here], target[here], np.zeros(int(here.sum()), int), None, how._replace(classes=labels), ("",)
        )
        cells += [c._replace(code=(c.code[0], j), value=name_of(names, j)) for c in own]
        empty += none
    cells.sort(key=lambda c: c.code)
    alone = [figure([c.scores["correct"]], [c.scores["n"]], [1.0], how.level) for c in cells]
    anywhere = share(hit[inside.any(1)], how.level)
    # Cells share samples, so that their limits are averaged, as those of several attributes are.
    complete = alone and not how.class_missing
    unbiased, lowest = (mean(alone)._replace(n=anywhere.n), worst(alone)) if complete else (Estimate(), Estimate())
    scores = dict.fromkeys(METRICS, Estimate()) | {"average": anywhere, "unbiased": unbiased, "worst_group": lowest}
    shape = len(labels), inside.shape[1]
    exists = np.ones(shape, bool) if table is None else counts_of(table, cells, f"all_counts of {name}") > 0
    small, total = small_groups(cells, exists, name, names, how)
    by_attribute = {name: as_dict(scores) | {"empty_cells": empty}}
    return _Part({"worst_group": lowest}, [c.row(name) for c in cells], by_attribute, small, total)


def confusion(
    y: ArrayLike, predicted: ArrayLike, classes: Sequence[str], kinds: Mapping[str, ArrayLike]
) -> dict[str, Any] | None:
    """For each kind of samples, (n,) masks by name, how often each label got each prediction; None for many classes.

    Predictions beyond the classes, of a network with more outputs, are in no column.

    >>> found = confusion([0, 1, 1], [0, 1, 0], ["cat", "dog"], {"all": [True, True, True]})
    >>> found["groups"]
    [{'name': 'all', 'counts': [[1, 0], [1, 1]]}]
    """
    number = len(classes)
    if number > MOST_CONFUSED:
        return None
    label = codes(y, checks.array(y, "y").shape[:1], "y")  # (n,)
    answers = codes(predicted, label.shape, "predicted")  # (n,)
    if label.max(initial=-1) >= number:
        raise SettingError(f"y holds {label.max()}, and there are {number} classes, counted from 0.")
    cell, valid = label * number + answers, answers < number  # (n,) each
    groups = []
    for name, mask in kinds.items():
        chosen = boolean(mask, name, label.shape) & valid
        counts = np.bincount(cell[chosen], minlength=number**2).reshape(number, number)
        groups.append({"name": name, "counts": counts.tolist()})
    return {"classes": [str(c) for c in classes], "groups": groups}
