"""Which value to choose, by a rule that uses no test sample and no bias label; and what it comes to, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from spurless.bench.points import MEASURES, Point
from spurless.sweep.axes import Axis

STABLE = (
    "of the values up to the first one at which, in any seed, training diverged or its accuracy fell by more than 25 "
    "points"
)
WORDS = "of the values at which training diverged in no seed"  # they have no order
EXTREME = "the one with the largest steps whose {accuracy} is at most one standard error below the best"
BEST = "the one with the best {accuracy}"
BLIND = "Neither test samples nor bias labels decide."
TOLD = {
    "unbiased": ("unbiased accuracy", 1, " %"),
    "conflicting": ("accuracy on conflicting samples", 1, " %"),
    "average": ("accuracy", 1, " %"),
    "prunability": ("prunability", 2, ""),
    "pruned_accuracy": ("accuracy when pruned", 1, " %"),
    "activation_compressibility": ("activation compressibility", 2, ""),
    "csi": ("class selectivity", 2, ""),
    "class_separation": ("class separation", 2, ""),
}


class Choice(NamedTuple):
    """The value to take, and why."""

    value: Any
    by: str  # the measure that decided: val_accuracy or train_accuracy
    mean: float  # of that measure, at the value
    best: float  # of that measure, over the stable values
    tolerance: float  # one standard error of the best, in points
    rule: str  # in words


def choose(points: Sequence[Point], towards: bool = True) -> Choice | None:
    """The choice among points that come from gentle to extreme; None where none is stable, or nothing differs.

    `towards` the extreme: of values that validate alike, the last is taken, else the first of the best.

    >>> def point(value, accuracy):
    ...     runs = [{"seed": s, "status": "done", "val_accuracy": accuracy + s, "val_rows": 1000} for s in (0, 1)]
    ...     return Point(value, runs)
    >>> points = [point(0.01, 90.0), point(0.1, 89.7), point(1.0, 60.0)]
    >>> choose(points).value, choose(points, towards=False).value
    (0.1, 0.01)
    """
    if made_no_difference(points):
        return None
    by, scored = _deciding([p for p in points if p.stable])
    if not scored:
        return None
    means = [fmean(scores) for _, scores in scored]
    top = max(range(len(means)), key=lambda i: means[i])
    tolerance = standard_error(scored[top][1], _rows(scored[top][0], by))
    taken = max(i for i, mean in enumerate(means) if mean >= means[top] - tolerance) if towards else top
    accuracy = "validation accuracy" if by == "val_accuracy" else "training accuracy (there is no validation split)"
    rule = (EXTREME if towards else BEST).format(accuracy=accuracy)
    return Choice(scored[taken][0].value, by, means[taken], means[top], tolerance, rule)


def _deciding(usable: Sequence[Point]) -> tuple[str, list[tuple[Point, list[float]]]]:
    """The measure that decides, validation accuracy where it is known, and what each value has of it."""
    by = "val_accuracy" if any("val_accuracy" in run for p in usable for run in p.runs) else "train_accuracy"
    return by, [(p, scores) for p in usable if (scores := [run[by] for run in p.runs if by in run])]


def made_no_difference(points: Sequence[Point]) -> bool:
    """Whether each seed came out alike at all values, to the last digit: the setting is not in use.

    Accuracies may be alike by chance; selectivities are not, unless nothing fires at all, so these must be known.

    >>> runs = [[{"seed": 0, "status": "done", "unbiased": 60.0, "csi": csi}] for csi in (0.25, 0.25, 0.3)]
    >>> points = [Point(value, own) for value, own in zip((0.0, 0.5, 0.9), runs)]
    >>> made_no_difference(points[:2]), made_no_difference(points), made_no_difference(points[:1])
    (True, False, False)
    """
    seen = [[[run.get(m) for m in ("seed", *MEASURES)] for run in p.runs] for p in points]
    all_known = all(run.get("csi") for p in points for run in p.runs)
    return all_known and len(seen) > 1 and all(own == seen[0] for own in seen)


def standard_error(values: Sequence[float], rows: int | None) -> float:
    """Of a mean accuracy in percent: by chance in the seeds, and in the rows, which all seeds share.

    >>> round(standard_error([90.0, 90.0], 900), 3)
    1.0
    >>> round(standard_error([89.0, 91.0], None), 3)
    1.0
    """
    mean = fmean(values)
    share = min(1.0, max(0.0, mean / 100))
    of_rows = 1e4 * share * (1 - share) / rows if rows else 0.0
    n = len(values)
    of_seeds = math.fsum((v - mean) ** 2 for v in values) / (n - 1) / n if n > 1 else 0.0
    return math.sqrt(of_rows + of_seeds)


def in_words(axis: Axis, points: Sequence[Point], chosen: Choice | None) -> str:
    """The outcome of a sweep in one paragraph: the value, the rule, what it buys, and what it does not say."""
    if made_no_difference(points):
        return (
            f"{axis.title} made no difference: at every value each seed gave the same numbers to the last digit. With "
            "the other settings (optimiser, loss, schedule) as they are it is not in use, so no value is chosen."
        )
    if chosen is None:
        return f"No value of {axis.title} can be chosen. {_ends(points)}".strip()
    at = next(p for p in points if p.value == chosen.value)
    word = "validation" if chosen.by == "val_accuracy" else "training"
    sentences = [
        f"Choose {axis.name} = {show(chosen.value)}{f' (with {axis.also})' if axis.also else ''}: its {word} accuracy "
        f"is {chosen.mean:.2f} %; the best is {chosen.best:.2f} %, with a standard error of {chosen.tolerance:.2f} "
        "points."
    ]
    first = points[0]
    if first is not at and not first.out and not at.out:
        sentences.append(_compared(axis, first, at))
    if at.out:
        sentences.append("But on the test split it fell by more than 25 points, which the rule does not look at.")
    return " ".join(filter(None, [*sentences, _ends(points), _stopped_short(points)]))


def _stopped_short(points: Sequence[Point]) -> str:
    short = [p for p in points if p.stopped_short]
    names = ", ".join(f"{show(p.value)} ({p.stopped_short} of {len(p.runs)})" for p in short)
    return f"Runs that ended before they had learnt their training samples as well as asked: {names}." if short else ""


def the_rule(chosen: Sequence[tuple[Axis, Choice | None]]) -> str:
    """How the values of one sweep or several were chosen."""
    rules: dict[str, list[str]] = {}
    for axis, choice in chosen:
        if choice:
            rules.setdefault(choice.rule, []).append(axis.title)
    parts = [f"{rule} (for {', '.join(names)})" if len(rules) > 1 else rule for rule, names in rules.items()]
    kinds = {STABLE if axis.ordered else WORDS for axis, choice in chosen if choice}
    among = " or, where they are words, ".join(kind for kind in (STABLE, WORDS) if kind in kinds)
    return f"The rule: {among}, {'; '.join(parts)} is chosen. {BLIND}" if parts else ""


def compare(series: Sequence[tuple[Axis, Choice | None]]) -> str:
    """The choices of several sweeps against each other, by the same measure."""
    chosen = [(axis, choice) for axis, choice in series if choice is not None]
    if len(chosen) < 2:
        return ""
    by = chosen[0][1].by
    if any(choice.by != by for _, choice in chosen):
        return ""
    best_axis, best = max(chosen, key=lambda k: k[1].best)
    near = [axis.title for axis, c in chosen if axis is not best_axis and c.best >= best.best - best.tolerance]
    word = "validation" if by == "val_accuracy" else "training"
    text = f"Of all sweeps, {best_axis.title} reaches the highest {word} accuracy ({best.best:.2f} %)"
    return text + (f"; within one standard error of it: {', '.join(near)}." if near else ".")


def show(value: Any) -> str:
    """A value as a person would write it.

    >>> show(0.1), show(1e-05), show(100), show("focal")
    ('0.1', '1e-05', '100', 'focal')
    """
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _compared(axis: Axis, first: Point, at: Point) -> str:
    """What the chosen value gives, and what the gentlest one gave."""
    parts = []
    for measure, (name, digits, unit) in TOLD.items():
        if measure in first.means and measure in at.means and not (measure == "average" and "unbiased" in at.means):
            a, b = first.means[measure]["mean"], at.means[measure]["mean"]
            parts.append(f"{name} {a:.{digits}f} to {b:.{digits}f}{unit}")
    of = len(at.runs)
    runs = f"means of {of} runs" if of > 1 else "one run each"
    return f"From {axis.name} = {show(first.value)} to it, on the test split: {', '.join(parts)} ({runs})."


def _ends(points: Sequence[Point]) -> str:
    """Where the range ended, and by what."""
    told = []
    for point in points:
        if point.diverged:
            count = sum(run["status"] == "diverged" for run in point.runs)
            told.append(f"at {show(point.value)} {count} of {len(point.runs)} runs diverged")
        elif point.fell:
            told.append(f"at {show(point.value)} {point.fell} fell by more than 25 points in at least one run")
    return f"Out of range: {'; '.join(told)}." if told else ""


def _rows(point: Point, by: str) -> int | None:
    name = by.replace("accuracy", "rows")
    return next((run[name] for run in point.runs if run.get(name)), None)


def buys(own: Mapping[str, Any], other: Mapping[str, Any], measures: Sequence[str]) -> dict[str, dict[str, float]]:
    """For each measure what one point's means give over another's.

    >>> buys({"csi": {"mean": 0.25}}, {"csi": {"mean": 0.5}}, ["csi", "bsi"])
    {'csi': {'from': 0.25, 'to': 0.5, 'gain': 0.25}}
    """
    shared = [m for m in measures if m in own and m in other]
    means = {m: (own[m]["mean"], other[m]["mean"]) for m in shared}
    return {m: {"from": a, "to": b, "gain": b - a} for m, (a, b) in means.items()}
