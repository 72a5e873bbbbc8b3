"""The least and the greatest mean over the values of a setting: what a line of a table with a range stands for.

Values count as in a sweep (sweep/points.py): up to the first at which a seed diverged or fell by more than 25 points.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spurless.bench.spec import Line
from spurless.core.settings import from_text

Row = Mapping[str, Any]


def rows_at_end(
    line: Line, by_key: Mapping[str, Row], value_of: Callable[[Row, str], float | None]
) -> tuple[str, list[Row], list[str]]:
    """The value at which the mean is least or greatest, the rows there, and why other values do not count."""
    points = [(value, [by_key[c.key] for c in trials if c.key in by_key]) for value, trials in line.points()]
    out = outside(points)
    means: dict[str, float] = {}
    for value, rows in points:
        values = [v for row in rows if (v := value_of(row, line.metric)) is not None]
        if values and value not in out:
            means[value] = statistics.fmean(values)
    reasons = [f"{value}: {why}" for value, why in out.items()]
    if not means:
        return "", [], reasons
    at = (min if line.end == "min" else max)(means, key=lambda value: means[value])
    return at, dict(points)[at], reasons


def outside(points: Sequence[tuple[str, Sequence[Row]]]) -> dict[str, str]:
    """The values out of range, and why. Points come from the gentlest value to the most extreme.

    >>> rows = [[{"seed": 0, "status": "done", "scores": {"unbiased": u}}] for u in (60.0, 90.0, 64.9, 80.0)]
    >>> outside(list(zip(["0.1", "0.2", "0.3", "0.4"], rows)))
    {'0.3': 'test accuracy fell', '0.4': 'beyond the range'}
    """
    from spurless.bench.points import Point, mark, measured

    marked = [Point(v, [measured(row) for row in rows if row["status"] != "failed"]) for v, rows in points]
    mark(marked, all(isinstance(from_text(v), (int, float)) for v, _ in points))
    why = {p.value: "diverged" if p.diverged else f"{p.fell} fell" if p.fell else "beyond the range" for p in marked}
    return {p.value: why[p.value] for p in marked if not p.in_range}
