"""Several measures of a sweep in one chart: each from its least mean (0) to its greatest (100)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from spurless.core.stats import Estimate
from spurless.report import lines
from spurless.report.charts import as_score, number

# The measures of the large-learning-rate study that are not percentages: with their names here.
SHARES = {
    "prunability": "prunability",
    "activation_compressibility": "activation compressibility",
    "csi": "class selectivity (CSI)",
    "class_separation": "class separation (R²)",
}
FIRST = ("unbiased", "average")
BEYOND = 10  # points that a band may reach out of the scale

Point = Mapping[str, Any]


def charts(series: Sequence[Mapping[str, Any]], over: str) -> list[dict[str, Any]]:
    """A chart for each series, all of them on the same scales; none where no such measure is known."""
    inside = [p for s in series for p in s["points"] if p.get("in_range", True)]
    scales = {m: scale for m in (*FIRST, *SHARES) if (scale := _scale(inside, m))}
    if not scales.keys() & SHARES.keys():
        return []
    if FIRST[0] in scales:
        scales.pop(FIRST[1], None)
    chance = {m for m in scales if within_spread([p[m] for p in inside if as_score(p.get(m))])}
    return [chart for one in series if (chart := _chart(one, over, scales, chance))]


def _chart(
    one: Mapping[str, Any], over: str, scales: Mapping[str, tuple[float, float]], chance: Set[str]
) -> dict[str, Any] | None:
    setting = str(one.get("over") or over)
    inside = [p for p in one["points"] if p.get("in_range", True)]
    if all(number(p["value"]) is not None for p in inside):
        inside.sort(key=lambda p: p["value"])  # as the dots of a chart are
    lines_of = {m: points for m in scales if (points := [p for p in inside if as_score(p.get(m))])}
    if not lines_of:
        return None
    title = f"All measures against {one.get('name') or setting}, each from its least (0) to its greatest (100)"
    named = {
        legend(m, scales[m], m in chance): [(p["value"], _scaled(p[m], scales[m], m in chance)) for p in own]
        for m, own in lines_of.items()
    }
    chart = lines.against(title, setting, named, ends=(-BEYOND, 100 + BEYOND))
    for line, (measure, points) in zip(chart["lines"], lines_of.items(), strict=True):
        for dot, point in zip(line["dots"], points, strict=True):
            dot["text"] = f"{_raw(point[measure], measure)} at {setting} {point['value']}"
    return chart | {"bands": "lowest to highest seed"}


def within_spread(points: Sequence[Mapping[str, Any]]) -> bool:
    """Whether means differ no more from value to value than seeds do at one value: then a line shows chance.

    >>> within_spread([{"mean": 0.96, "least": 0.94, "most": 0.98}, {"mean": 0.95, "least": 0.94, "most": 0.96}])
    True
    """
    means = [number(f.get("mean")) or 0.0 for f in points]
    spreads = [(number(f.get("most")) or 0.0) - (number(f.get("least")) or 0.0) for f in points]
    return len(means) > 1 and max(means) - min(means) <= max(spreads)


def legend(measure: str, scale: tuple[float, float], chance: bool = False) -> str:
    """
    >>> legend("csi", (0.031, 0.152)), legend("unbiased", (55.31, 85.7))
    ('class selectivity (CSI), 0.03 to 0.15', 'unbiased accuracy, 55.3 to 85.7 %')
    >>> legend("prunability", (0.95, 0.96), chance=True)
    'prunability, 0.95 to 0.96 (seeds differ as much)'
    """
    note = " (seeds differ as much)" if chance else ""
    if measure in SHARES:
        return f"{SHARES[measure]}, {scale[0]:.2f} to {scale[1]:.2f}{note}"
    return f"{measure} accuracy, {scale[0]:.1f} to {scale[1]:.1f} %{note}".replace("average accuracy", "accuracy")


def _scale(points: Sequence[Point], measure: str) -> tuple[float, float] | None:
    means = [s.value for p in points if (s := as_score(p.get(measure)))]
    return (min(means), max(means)) if means else None


def _scaled(point: Mapping[str, Any], scale: tuple[float, float], bare: bool = False) -> Estimate:
    low, high = scale

    def at(value: float) -> float:
        return 100 * (value - low) / (high - low) if high > low else 50.0

    mean = number(point.get("mean")) or 0.0
    ends = [number(point.get(k)) for k in ("least", "most")]
    if bare or ends[0] is None or ends[1] is None:
        return Estimate(at(mean))
    return Estimate(at(mean), max(-BEYOND, at(ends[0])), min(100 + BEYOND, at(ends[1])))


def _raw(point: Mapping[str, Any], measure: str) -> str:
    mean = number(point.get("mean")) or 0.0
    return f"{SHARES[measure]} {mean:.3f}" if measure in SHARES else f"{measure} accuracy {mean:.1f} %"
