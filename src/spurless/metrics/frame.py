"""Group metrics of plain arrays: labels, predictions and attributes, from whatever model or library they come.

Accuracies and rates are percentages, each with its n and its Wilson interval.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spurless.core.errors import SettingError
from spurless.core.stats import Estimate, wilson
from spurless.metrics import checks
from spurless.metrics.cells import Flags, boolean
from spurless.metrics.groups import MIN_GROUP, group_name, group_notes, group_scores

if TYPE_CHECKING:
    import pandas as pd

FIGURES = ("average", "unbiased", "aligned", "conflicting", "worst_group")
GROUP = ("label", "attribute", "value", "n", "correct", "accuracy", "low", "high", "aligned", "small")
RATE = ("attribute", "value", "class", "rate", "estimate", "low", "high", "n", "small")
GAP = ("attribute", "class", "rate", "difference", "ratio", "lowest", "highest", "compared", "left_out")


@dataclass(frozen=True, eq=False, repr=False)
class GroupMetrics:
    """What `group_metrics` returns.

    `groups`: for each (class, value of an attribute) with samples its n, correct, accuracy, low, high, aligned, small.
    `rates`: for each value of an attribute, class and rate its estimate, low, high, n, small; accuracy has no class.
    `gaps`: for each attribute, class and rate the largest less the smallest estimate among the values with `min_size`
    samples (`difference`), smallest over largest (`ratio`), the two values, how many values were compared or left out.
    A figure is an `Estimate` (value, low, high, n), and unknown where no sample speaks for it.
    """

    groups: pd.DataFrame
    rates: pd.DataFrame
    gaps: pd.DataFrame
    average: Estimate
    unbiased: Estimate  # mean over the groups
    aligned: Estimate
    conflicting: Estimate
    worst_group: Estimate
    worst_group_name: str | None
    min_size: int
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        made: dict[str, Any] = {name: getattr(self, name)._asdict() for name in FIGURES}
        made["worst_group"]["group"] = self.worst_group_name
        made |= {name: getattr(self, name).to_dict("records") for name in ("groups", "rates", "gaps")}
        plain: dict[str, Any] = _without_nan(made | {"min_size": self.min_size, "notes": list(self.notes)})
        return plain

    def __str__(self) -> str:
        lines = []
        for name in FIGURES:
            estimate: Estimate = getattr(self, name)
            if estimate.known:
                which = f" ({self.worst_group_name})" if name == "worst_group" else ""
                lines.append(f"{name:<12} {estimate}  n = {estimate.n}{which}")
        return "\n".join([*lines, *self.notes])

    __repr__ = __str__


def group_metrics(
    y: ArrayLike,
    predicted: ArrayLike,
    attributes: Any,
    scores: ArrayLike | None = None,
    *,
    overlapping: Mapping[str, ArrayLike] | None = None,
    aligned: Any = None,
    positive: Hashable | None = None,
    min_size: int = MIN_GROUP,
    level: float = 0.95,
) -> GroupMetrics:
    """Accuracy by group, the worst group and the gaps between groups, from arrays.

    Args:
        y: (n,) the true classes: names or whole numbers.
        predicted: (n,) the predicted classes, named alike.
        attributes: (n,) values, a table (n, k), a mapping or a data frame of columns; None for none.
        scores: the probability of each class (n, classes), in the order of the sorted classes, or (n,) that of
            `positive`; for calibration.
        overlapping: groups that share samples, such as identities in a comment: a boolean mask for each name.
            With them the worst group is the worst of (class, overlapping group).
        aligned: which samples the shortcut predicts: a mask (n,) or (n, k), or for each class the values that go with
            it, {"waterbird": "water"}; of several attributes a mapping by attribute.
        positive: the class that selection rate, TPR, FPR and calibration are of. By default the last of two classes;
            each in turn of more.
        min_size: groups with fewer samples are listed and noted. They decide no gap, and the worst group only where
            no group is larger, which a note says.
        level: of the intervals.

    The rates of a group, all samples with one value of an attribute, are those of fairlearn's MetricFrame:
    `selection_rate` is the share predicted as the class, `tpr` that among samples of the class, `fpr` among the others.
    `calibration`: mean score less the share of the class, in points; above 0 the scores promise too much.

    >>> y         = ["dog", "dog", "dog", "cat", "cat", "cat"]
    >>> predicted = ["dog", "dog", "cat", "cat", "cat", "dog"]
    >>> place     = ["out", "out", "in", "in", "in", "out"]
    >>> m = group_metrics(y, predicted, {"place": place}, aligned={"dog": "out", "cat": "in"}, min_size=1)
    >>> m.worst_group.value, m.worst_group_name, m.worst_group.n
    (0.0, 'cat, place=out', 1)
    >>> m.aligned.value, m.conflicting.value
    (100.0, 0.0)
    >>> m.gaps.set_index("rate").loc["tpr", ["lowest", "highest"]].tolist()
    ['in', 'out']
    """
    label, predictions = _labels(y, predicted)
    columns = _columns(attributes, len(label))
    masks = {str(name): boolean(mask, f"overlapping {name}", label.shape) for name, mask in (overlapping or {}).items()}
    agrees = _aligned(aligned, columns, label)
    accuracies = _accuracies(label, predictions, columns, masks, agrees, checks.count(min_size, "min_size", 0), level)
    subsets = [(name, str(value), column == value) for name, column in columns.items() for value in np.unique(column)]
    subsets += [("group", name, mask) for name, mask in masks.items()]
    probabilities = _scores(scores, np.unique(label), positive, len(label))
    rates = _all_rates(label, predictions, subsets, probabilities, positive, level)
    strange = ", ".join(str(p) for p in np.setdiff1d(predictions, label))
    notes = [f"predicted holds what no sample of y is: {strange}."] if strange else []
    return _assemble(accuracies, rates, "group" if masks else None, notes)


def _accuracies(
    label: NDArray[Any],
    predictions: NDArray[Any],
    columns: Mapping[str, NDArray[Any]],
    masks: Mapping[str, Flags],
    agrees: Flags | None,
    min_size: int,
    level: float,
) -> dict[str, Any]:
    classes, target = np.unique(label, return_inverse=True)
    coded = [np.unique(column, return_inverse=True) for column in columns.values()]
    return group_scores(
        label == predictions,
        target,
        np.stack([codes for _, codes in coded], axis=1) if coded else None,
        agrees,
        member=np.stack(list(masks.values()), axis=1) if masks else None,
        overlap=("group", tuple(masks)) if masks else None,
        classes=[str(c) for c in classes],
        attributes=list(columns),
        values=[[str(v) for v in names] for names, _ in coded],
        min_size=min_size,
        level=level,
    )


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(v) for name, v in value.items() if name != "sd"}
    if isinstance(value, list):
        return [_without_nan(v) for v in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _assemble(
    accuracies: dict[str, Any], rates: list[dict[str, Any]], decisive: str | None, notes: list[str]
) -> GroupMetrics:
    """`decisive`: the only attribute whose groups decide the worst one, where there are overlapping groups."""
    import pandas as pd

    size = accuracies["min_size"]
    for rate in rates:
        rate["small"] = rate["n"] < size
    groups = [group | {"small": group["n"] < size} for group in accuracies["groups"]]
    of_groups = accuracies["by_attribute"][decisive] if decisive and accuracies["unbiased"] is None else accuracies
    figures = {
        name: _estimate(of_groups if name == "unbiased" else accuracies, name)
        for name in FIGURES
        if name != "worst_group"
    }
    candidates = [g for g in groups if decisive in (None, g["attribute"])]
    worst, note = _worst(candidates, size)
    notes += [
        *group_notes(accuracies | {"small_groups": [g for g in accuracies["small_groups"] if g["n"]]}, "all"),
        *note,
    ]
    return GroupMetrics(
        groups=pd.DataFrame(groups, columns=list(GROUP)),
        rates=pd.DataFrame(rates, columns=list(RATE)),
        gaps=pd.DataFrame(_gaps(rates), columns=list(GAP)),
        worst_group=Estimate(worst["accuracy"], worst["low"], worst["high"], worst["n"]) if worst else Estimate(),
        worst_group_name=group_name(worst) if worst else None,
        min_size=size,
        notes=tuple(notes),
        **figures,
    )


def _estimate(scores: dict[str, Any], name: str) -> Estimate:
    if scores[name] is None:
        return Estimate()
    low, high = scores["intervals"][name]
    return Estimate(scores[name], low, high, scores["n"][name])


def _worst(groups: Sequence[dict[str, Any]], min_size: int) -> tuple[dict[str, Any] | None, list[str]]:
    """The group with the lowest accuracy among those that are large enough, and what must be said of smaller ones."""

    def lowest(among: list[dict[str, Any]]) -> dict[str, Any] | None:
        return min(among, key=lambda g: (g["accuracy"], g["low"]), default=None)

    large, small = lowest([g for g in groups if not g["small"]]), lowest([g for g in groups if g["small"]])
    if small is None or (large is not None and small["accuracy"] >= large["accuracy"]):
        return large, []
    of_small = f"{group_name(small)} with {small['accuracy']:.1f} % (n = {small['n']})"
    if large is None:
        return small, [f"No group has {min_size} samples, so a small group decides the worst group: {of_small}."]
    return large, [
        f"The worst group is the worst of those with {min_size} samples; a smaller one is lower: {of_small}."
    ]


def _all_rates(
    label: NDArray[Any],
    predictions: NDArray[Any],
    subsets: Sequence[tuple[str, str, Flags]],
    scores: dict[int, NDArray[np.float64]],
    positive: Hashable | None,
    level: float,
) -> list[dict[str, Any]]:
    """The accuracy of each subset (attribute, value, mask), and its rates as to each class that is asked for."""
    correct, classes = label == predictions, np.unique(label)
    rates = [
        {"attribute": name, "value": value, "class": None} | _rate("accuracy", correct, mask, level)
        for name, value, mask in subsets
    ]
    for k in _of_classes(classes, positive):
        for name, value, mask in subsets:
            own = _rates(mask, label == classes[k], predictions == classes[k], scores.get(k), level)
            rates += [{"attribute": name, "value": value, "class": str(classes[k])} | rate for rate in own]
    return rates


def _rates(
    group: Flags, is_class: Flags, chosen: Flags, scores: NDArray[np.float64] | None, level: float
) -> list[dict[str, Any]]:
    """The rates of the samples of one group, as to one class."""
    rates = [
        _rate("selection_rate", chosen, group, level),
        _rate("tpr", chosen, group & is_class, level),
        _rate("fpr", chosen, group & ~is_class, level),
    ]
    n = int(group.sum())
    if scores is not None:
        above = 100 * float((scores[group] - is_class[group]).mean()) if n else math.nan
        rates.append({"rate": "calibration", "estimate": above, "low": math.nan, "high": math.nan, "n": n})
    return rates


def _rate(name: str, chosen: Flags, among: Flags, level: float) -> dict[str, Any]:
    """How many of some samples are chosen, in percent; unknown of none."""
    k, n = int((chosen & among).sum()), int(among.sum())
    low, high = (100 * limit for limit in wilson(k, n, level)) if n else (math.nan, math.nan)
    return {"rate": name, "estimate": 100 * k / n if n else math.nan, "low": low, "high": high, "n": n}


def _gaps(rates: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each attribute, class and rate, the distance from the lowest to the highest group."""
    by_kind: dict[tuple[str, str | None, str], list[dict[str, Any]]] = {}
    for rate in rates:
        by_kind.setdefault((rate["attribute"], rate["class"], rate["rate"]), []).append(rate)
    gaps = []
    for (attribute, kind, name), rows in by_kind.items():
        compared = [row for row in rows if row["n"] and not row["small"]]
        gap: dict[str, Any] = {"attribute": attribute, "class": kind, "rate": name}
        gap |= {"difference": np.nan, "ratio": np.nan, "lowest": None, "highest": None}
        if len(compared) > 1:
            low, high = (end(compared, key=lambda row: row["estimate"]) for end in (min, max))
            gap |= {"difference": high["estimate"] - low["estimate"], "lowest": low["value"], "highest": high["value"]}
            if name != "calibration" and high["estimate"]:  # a quotient of signed numbers says nothing
                gap["ratio"] = low["estimate"] / high["estimate"]
        gaps.append(gap | {"compared": len(compared), "left_out": len(rows) - len(compared)})
    return gaps


def _column(values: ArrayLike, name: str) -> NDArray[Any]:
    """(n,) names or whole numbers."""
    column = checks.array(values, name)
    if column.ndim != 1:
        raise SettingError(f"{name} must be a list with one entry for each sample; its shape is {column.shape}.")
    column = checks.labels(column, name, column.shape)
    return column.astype({"O": str, "f": int, "b": int}.get(column.dtype.kind, column.dtype))


def _labels(y: ArrayLike, predicted: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    label, predictions = _column(y, "y"), _column(predicted, "predicted")
    names = [each.dtype.kind == "U" for each in (label, predictions)]
    if not len(label) or label.shape != predictions.shape or names[0] != names[1]:
        raise SettingError(
            "y and predicted must be lists as long, not empty, with the same names or numbers of classes."
        )
    return label, predictions


def _columns(attributes: Any, n: int) -> dict[str, NDArray[Any]]:
    """The values of each attribute by its name."""
    if attributes is None:
        return {}
    if hasattr(attributes, "columns") or isinstance(attributes, Mapping):  # a frame of pandas or Polars, or a mapping
        named = {str(name): attributes[name] for name in getattr(attributes, "columns", attributes)}
    else:
        table = checks.array(attributes, "attributes")
        if table.ndim not in (1, 2):
            raise SettingError(f"attributes must hold a value for each sample, or a row; its shape is {table.shape}.")
        named = {str(getattr(attributes, "name", None) or "attribute"): table}
        if table.ndim == 2:
            named = {f"a{k}": table[:, k] for k in range(table.shape[1])}
    columns = {name: _column(values, f"attribute {name}") for name, values in named.items()}
    for name, column in columns.items():
        if len(column) != n:
            raise SettingError(f"Attribute {name} has {len(column)} values for {n} samples; give each one.")
    return columns


def _aligned(aligned: Any, columns: Mapping[str, NDArray[Any]], label: NDArray[Any]) -> Flags | None:
    """(n, k): whether each attribute goes with the label."""
    if aligned is None or not columns:
        return None
    if not isinstance(aligned, Mapping):
        mask = checks.array(aligned, "aligned")
        return boolean(mask[:, None] if mask.ndim == 1 else mask, "aligned", (len(label), len(columns)))
    if set(aligned) != set(columns):
        if len(columns) > 1:
            raise SettingError(f"aligned must name each attribute: {', '.join(columns)}.")
        aligned = {next(iter(columns)): aligned}
    agrees = []
    for name, column in columns.items():
        own = {str(c): {str(v) for v in ([vs] if np.ndim(vs) == 0 else vs)} for c, vs in aligned[name].items()}
        if missing := sorted({str(c) for c in label} - own.keys()):
            raise SettingError(f"aligned of {name} says nothing of {', '.join(missing)}; give each class its values.")
        agrees.append([str(v) in own[str(c)] for c, v in zip(label, column, strict=True)])
    return np.array(agrees, bool).T


def _of_classes(classes: NDArray[Any], positive: Hashable | None) -> list[int]:
    """The numbers of the classes whose rates are given."""
    names = [str(c) for c in classes]
    if positive is None:
        return [1] if len(names) == 2 else list(range(len(names)))
    if str(positive) not in names:
        raise SettingError(f"positive = {positive!r} is no class of y; they are {', '.join(names)}.")
    return [names.index(str(positive))]


def _scores(
    scores: ArrayLike | None, classes: NDArray[Any], positive: Hashable | None, n: int
) -> dict[int, NDArray[np.float64]]:
    """The probabilities (n,) of each class for which there are some."""
    if scores is None:
        return {}
    table = checks.array(scores, "scores")
    table = checks.numbers(table, "scores", dims=table.ndim or 1)
    if table.min() < 0 or table.max() > 1:
        raise SettingError("scores must be probabilities from 0 to 1; apply softmax or sigmoid to logits.")
    if table.shape == (n, len(classes)):
        return dict(enumerate(table.T))
    kinds = _of_classes(classes, positive)
    if table.shape != (n,) or len(kinds) > 1:
        raise SettingError(
            f"scores have shape {table.shape}; give ({n}, {len(classes)}), a probability for each of the sorted "
            f"classes, or ({n},) with `positive`, the class that they are of."
        )
    return {kinds[0]: table}
