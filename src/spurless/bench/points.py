"""From the rows of single runs to the points of a sweep: means over seeds, and where the usable range ends.

The study's rule: values are used "up to the point of divergence or drastic performance loss (> 25 % in test accuracy)
among any one of the seeds". Here, going from the gentlest value to the most extreme one, a value is out where any seed

- diverged (a loss or a weight was not finite), or
- fell: its training accuracy, or its test accuracy, is more than 25 points below the best that the same seed had at
  any gentler value.

A value that is out has no means: what is left of it would be the seeds that happened to survive. The range ends before
the first value that is out, and nothing beyond it belongs to it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spurless.core.errors import UserError
from spurless.core.stats import estimate
from spurless.report.tables import small_n

if TYPE_CHECKING:
    from spurless.sweep.axes import Axis

DROP = 25.0  # points
SCORES = ("unbiased", "conflicting", "aligned", "worst_group", "average")  # of a run, in percent
SHARES = ("prunability", "magnitude_prunability", "activation_compressibility", "csi", "class_separation", "bsi")
# largest_share: of a training batch's loss, what conflicting samples made up at most, and smooth that of the mean of
# 100 batches in a row; known where the run was watched.
OTHERS = ("activation_sparsity", "activation_pq_index", "largest_share", "largest_share_smooth")
PRUNED = ("pruned_accuracy",)  # in percent: unbiased, the mean over the shares that were pruned
WATCHED = ("train_accuracy", "val_accuracy")  # in percent; known without a test sample or a bias label
MEASURES = (*SCORES, *SHARES, *OTHERS, *PRUNED, *WATCHED)
PERCENT = frozenset((*SCORES, *PRUNED, *WATCHED))


@dataclass
class Point:
    """One value of a sweep."""

    value: Any
    runs: list[dict[str, Any]]  # of each seed: seed, status, the measures, key
    means: dict[str, dict[str, Any]] = field(default_factory=dict)  # by measure: mean, sd, low, high, n
    diverged: bool = False  # in any seed
    fell: str = ""  # what fell in any seed: "training accuracy", "test accuracy", or both; empty: nothing
    in_range: bool = True  # this value and all gentler ones are usable
    stable: bool = True  # the same, by what is known without test samples and bias labels: for choosing
    stopped_short: int = 0  # runs that ended before they reached the training accuracy or loss they were asked for

    @property
    def out(self) -> bool:
        return self.diverged or bool(self.fell)

    def row(self, name: str) -> dict[str, Any]:
        """As it is saved and printed; the value also stands under the name of the setting."""
        flags: dict[str, Any] = {"diverged": self.diverged, "fell": self.fell or False, "in_range": self.in_range}
        flags |= {"stable": self.stable, "stopped_short": self.stopped_short}
        return {"value": self.value, name: self.value} | self.means | flags | {"runs": self.runs}


def points_of(axis: Axis, rows: Sequence[Sequence[Mapping[str, Any]]]) -> list[Point]:
    """The points of an axis from the rows of its trials: for each value, one row for each seed."""
    points = [Point(value, [measured(row) for row in own]) for value, own in zip(axis.values, rows, strict=True)]
    mark(points, axis.ordered)
    for point in points:
        point.stopped_short = sum(bool(run.get("stopped_short")) for run in point.runs)
        if not point.out:
            point.means = {m: mean for m in MEASURES if (mean := mean_of(point.runs, m))}
    return points


def measured(row: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of one run. A run that failed is a mistake, not a measurement."""
    if row["status"] not in ("done", "diverged"):
        raise UserError(f"A run failed, so the sweep is not whole: {row.get('error')}")
    scores, extra = row.get("scores") or {}, row.get("extra") or {}
    run: dict[str, Any] = {"seed": row["seed"], "status": row["status"]}
    if row["status"] == "done":
        run |= {m: scores[m] for m in SCORES if number(scores.get(m)) is not None}
        if (few := small_n(row, "worst_group")) is not None:
            run["worst_group_n"] = few
        run |= {m: extra[m] for m in (*SHARES, *OTHERS, *PRUNED, *WATCHED) if number(extra.get(m)) is not None}
        asked = (row.get("settings") or {}).get("recipe", {}).get("until_accuracy")
        short = bool(asked) and run.get("train_accuracy", 100.0) < asked  # of rows that do not say what was reached
        run["stopped_short"] = not extra.get("reached", not short)
        run |= {rows: extra.get(rows) for rows in ("train_rows", "val_rows")}
    else:
        run["error"] = row.get("error")
    return run | {"seconds": row.get("seconds"), "key": row.get("key")}


def mark(points: Sequence[Point], ordered: bool = True) -> None:
    """Say which points diverged or fell, and where the range ends. Points come from gentle to extreme.

    >>> points = [Point(v, [{"seed": 0, "status": "done", "unbiased": u}]) for v, u in ((1, 60), (2, 90), (3, 64.9))]
    >>> mark(points)
    >>> [(p.fell, p.in_range) for p in points]
    [('', True), ('', True), ('test accuracy', False)]
    """
    best: dict[tuple[Any, str], float] = {}  # by seed and score, over the gentler values
    usable = stable = True
    for point in points:
        point.diverged = any(run["status"] == "diverged" for run in point.runs)
        fallen = {}
        for run in point.runs:
            for what, value in watched(run).items():
                identity = (run["seed"], what)
                if ordered and value < best.get(identity, -math.inf) - DROP:
                    fallen[what] = True
                best[identity] = max(value, best.get(identity, -math.inf))
        point.fell = " and ".join(sorted(fallen, reverse=True))
        usable = usable and not point.out if ordered else not point.out
        stable_here = not point.diverged and "training accuracy" not in fallen
        stable = stable and stable_here if ordered else stable_here
        point.in_range, point.stable = usable, stable


def watched(run: Mapping[str, Any]) -> dict[str, float]:
    """The accuracies that must not fall."""
    test = run.get("unbiased", run.get("average"))
    both = {"training accuracy": run.get("train_accuracy"), "test accuracy": test}
    return {what: value for what, value in both.items() if value is not None}


def mean_of(runs: Sequence[Mapping[str, Any]], measure: str) -> dict[str, Any] | None:
    """Mean, standard deviation and 95 % CI of the mean over seeds (Student's t); None where no run has it.

    >>> found = mean_of([{"csi": 0.2}, {"csi": 0.3}, {"csi": 0.4}], "csi")
    >>> {k: round(v, 4) for k, v in found.items()}
    {'mean': 0.3, 'n': 3, 'sd': 0.1, 'least': 0.2, 'most': 0.4, 'low': 0.0516, 'high': 0.5484}
    """
    values = [run[measure] for run in runs if run.get(measure) is not None]
    if not values:
        return None
    estimated = estimate(values)
    summary: dict[str, Any] = {"mean": estimated.value, "n": estimated.n}
    if measure == "worst_group" and (few := [run["worst_group_n"] for run in runs if "worst_group_n" in run]):
        summary["samples"] = min(few)  # fewer than a group should have: its accuracy says little
    if estimated.low is not None and estimated.high is not None:
        top = 100.0 if measure in PERCENT else math.inf
        summary |= {"sd": estimated.sd, "least": min(values), "most": max(values)}
        summary |= {"low": max(0.0, estimated.low), "high": min(top, estimated.high)}
    return summary


def number(value: Any) -> float | None:
    """A finite number, or None."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None


def ranges(points: Sequence[Point]) -> dict[str, dict[str, Any]]:
    """For each measure its least and greatest mean within the range, and at which values: the study's tables."""
    inside = [p for p in points if p.in_range]
    spans = {}
    for measure in MEASURES:
        means = [(p.means[measure]["mean"], p.value) for p in inside if measure in p.means]
        if means:
            (low, at_low), (high, at_high) = min(means, key=lambda k: k[0]), max(means, key=lambda k: k[0])
            spans[measure] = {"min": low, "max": high, "at_min": at_low, "at_max": at_high}
    return spans
