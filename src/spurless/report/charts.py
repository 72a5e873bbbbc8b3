"""The numbers of the bars and shaded tables: where each goes. The templates draw them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from spurless.core.stats import NOTHING, Estimate, wilson
from spurless.report.summary import Contender, World, mean_score
from spurless.report.tables import Result, finished, metrics, names, score

BARS = {
    "conflicting": "samples that conflict with the shortcut",
    "aligned": "samples that align with the shortcut",
    "unbiased": "every group counts the same",
    "average": "all samples",
}
FEW = 16  # groups that get a bar of their own; of more, those of a label are taken together
KINDS = {True: "aligned", False: "conflicting", None: "average"}


def bars(results: Sequence[Result]) -> list[dict[str, Any]]:
    """For each score one panel, with one bar for each result."""
    shown = [m for m in BARS if m in metrics(results)]
    panels = []
    for metric in shown:
        scored = [(name, score(r, metric), r) for r, name in zip(results, names(results), strict=True)]
        rows = [
            {"name": name, "score": s, "text": str(s or (NOTHING if finished(r) else r.get("status")))}
            for name, s, r in scored
        ]
        panels.append({"metric": metric, "meaning": BARS[metric], "rows": rows})
    return panels


def as_score(saved: Any) -> Estimate | None:
    """A score of an audit ({"value", "low", "high"}), of a sweep ({"mean", ...}) or a bare number.

    >>> str(as_score({"mean": 61.5, "low": 60, "high": 63, "n": 3}))
    '61.5 [60.0–63.0]'
    >>> str(as_score(7)), as_score(None), as_score({"value": None})
    ('7.0', None, None)
    """
    if not isinstance(saved, Mapping):
        value = number(saved)
        return None if value is None else Estimate(value)
    value = number(saved.get("value", saved.get("mean")))
    low, high = number(saved.get("low")), number(saved.get("high"))
    return None if value is None else Estimate(value, low, high) if None not in (low, high) else Estimate(value)


def number(value: Any) -> float | None:
    """A finite number, or None."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None


# By group


def heat_maps(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each attribute its values and, for each label, the group of each value (None where it is empty)."""
    maps = []
    for attribute, members in groupby(groups, key=lambda g: g["attribute"]):
        cells: dict[str, dict[str, Any]] = {}
        for group in members:
            cells.setdefault(group["label"], {})[group["value"]] = group
        # Groups come in the order of their values; the label with the fewest empty groups shows the most of it.
        values = list(dict.fromkeys(v for row in sorted(cells.values(), key=len, reverse=True) for v in row))
        rows = [(label, [row.get(value) for value in values]) for label, row in cells.items()]
        maps.append({"attribute": attribute, "values": values, "rows": rows})
    return maps


def before_after(world: World) -> list[dict[str, Any]]:
    """For each attribute the groups that align with the shortcut and those that do not, with a bar for the plain method
    and one for the best other; where there are many groups, those of one label are taken together."""
    before = grouped(world.baseline)
    after = grouped(world.best) if world.best else {}
    pairs = []
    for attribute, groups in before.items():
        other = after.get(attribute, {})
        columns: dict[str, list[dict[str, Any]]] = {}
        for (kind, name), own in groups.items():
            columns.setdefault(kind, []).append({"name": name, "before": own, "after": other.get((kind, name))})
        order = [k for k in ("conflicting", "aligned", "average") if k in columns]
        names = [str(world.baseline), str(world.best) if world.best else None]
        panels = [{"kind": k, "meaning": BARS[k], "rows": columns[k]} for k in order]
        pairs.append({"data": world.title, "attribute": attribute, "names": names, "columns": panels})
    return pairs


def grouped(who: Contender) -> dict[str, dict[tuple[str, str], Estimate]]:
    """By attribute: accuracy of each (kind, name) of group, the mean over the contender's runs."""
    by_group: dict[str, dict[tuple[str, str], list[Estimate]]] = {}
    for run in who.runs:
        groups = (run.get("scores") or {}).get("groups") or []
        for attribute in dict.fromkeys(g["attribute"] for g in groups):
            for key, own in _cells([g for g in groups if g["attribute"] == attribute]).items():
                by_group.setdefault(attribute, {}).setdefault(key, []).append(own)
    return {
        attribute: {key: mean for key, scores in cells.items() if (mean := mean_score(scores))}
        for attribute, cells in by_group.items()
    }


def _cells(groups: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], Estimate]:
    few = len(groups) <= FEW
    sums: dict[tuple[str, str], list[int]] = {}
    for group in groups:
        name = f"{group['label']}, {group['value']}" if few else str(group["label"])
        total = sums.setdefault((KINDS[group.get("aligned")], name), [0, 0])
        total[0] += group["correct"]
        total[1] += group["n"]
    return {key: share(correct, n) for key, (correct, n) in sums.items() if n}


def share(correct: int, n: int) -> Estimate:
    """Correct of n in percent, with its interval.

    >>> str(share(8, 10))
    '80.0 [49.0–94.3]'
    """
    low, high = wilson(correct, n)
    return Estimate(100 * correct / n, 100 * low, 100 * high, n)


def confusion(matrix: Any) -> list[dict[str, Any]]:
    """One table for each kind of sample: counts of label (rows) by prediction, and their share of the row.

    It is drawn from {"classes": names, "groups": [{"name", "counts": one list for each label}]}.
    """
    tables = []
    for group in (matrix or {}).get("groups") or []:
        rows = []
        for i, (label, counts) in enumerate(zip(matrix["classes"], group["counts"], strict=True)):
            total = max(1, sum(counts))
            rows.append((label, [{"n": n, "share": n / total, "right": i == j} for j, n in enumerate(counts)]))
        tables.append({"name": group["name"], "classes": matrix["classes"], "rows": rows})
    return tables
