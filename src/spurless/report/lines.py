"""The numbers of the line charts, in percent of a plot's width and height."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from spurless.core.stats import Estimate
from spurless.report.charts import number
from spurless.report.tables import Result

VALIDATION = ("conflicting", "aligned", "unbiased", "worst_group", "accuracy", "average")
KNOWN = ("conflicting", "aligned", "unbiased")  # lines that have a style of their own
TOP, BOTTOM = 19.0, 92.0  # percent of the height of a plot: stage names stand above, the axis below
POINTS = 400  # of a line; more cannot be told apart on a page
LOG = 20.0  # how many times the least x the greatest must be for a logarithmic axis


def curves(result: Result) -> dict[str, Any] | None:
    """Training loss and validation accuracy over the epochs, a line for each stage; None without a history."""
    history = list(result.get("history") or [])
    if not history:
        return None
    loss = _panel("Training loss", history, {"loss": [number(r.get("loss")) for r in history]})
    seen = {m: [number(_validation(r).get(m)) for r in history] for m in VALIDATION}
    seen = {m: values for m, values in seen.items() if any(v is not None for v in values)}
    accuracy = _panel("Validation accuracy, %", history, seen, 100.0)
    stages: list[dict[str, Any]] = []
    for first, *_ in _spans(history):
        edge = 100 * first / len(history)
        if not stages or edge - stages[-1]["edge"] >= 20:  # closer names would run into each other
            stages.append({"edge": edge, "name": history[first].get("stage")})
    return {"panels": [p for p in (loss, accuracy) if p], "stages": stages, "epochs": len(history)}


def _panel(
    title: str, history: Sequence[Mapping[str, Any]], series: Mapping[str, list[float | None]], top: float | None = None
) -> dict[str, Any] | None:
    present = [v for values in series.values() for v in values if v is not None]
    if not present:
        return None
    low, high = (0.0, top) if top else (min(0.0, min(present)), nice(max(present)))
    lines = [
        {"name": name, "look": look(name, i), "path": _path(history, values, low, high)}
        for i, (name, values) in enumerate(series.items())
    ]
    ticks = [{"y": _y(v, low, high), "text": f"{v:.4g}"} for v in (low, (low + high) / 2, high)]
    return {"title": title, "lines": lines, "ticks": ticks}


def look(name: str, index: int) -> str:
    """The CSS class of a line: one of a fixed few, as names can be anything.

    >>> look("aligned", 4), look('"><b>', 9)
    ('line-aligned', 'line-1')
    """
    return f"line-{name}" if name in KNOWN else f"line-{index % 8}"


def nice(value: float) -> float:
    """The next round number, for the end of an axis.

    >>> nice(0.83), nice(2.3), nice(41.0), nice(0.0)
    (1.0, 2.5, 50.0, 1.0)
    """
    if value <= 0:
        return 1.0
    scale = 10.0 ** math.floor(math.log10(value))
    return next(step * scale for step in (1, 2, 2.5, 5, 10) if value <= step * scale * (1 + 1e-9))


def _path(history: Sequence[Mapping[str, Any]], values: list[float | None], low: float, high: float) -> str:
    """An SVG path, broken between stages: the network or its loss is another one there."""
    thin = math.ceil(len(history) / POINTS)
    parts = []
    for span in _spans(history):
        present = [i for i in span if values[i] is not None]
        kept = [i for i in present if i % thin == 0 or i == present[-1]]
        points = [f"{_x(i, len(history)):.2f} {_y(values[i] or 0.0, low, high):.2f}" for i in kept]
        if points:  # a line to itself, so that a single point is drawn as a dot
            parts.append("M" + "L".join(points if len(points) > 1 else points * 2))
    return "".join(parts)


def _spans(history: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """The row numbers of each stage."""
    stage = [(row.get("stage_index"), row.get("stage")) for row in history]
    return [list(span) for _, span in groupby(range(len(history)), key=stage.__getitem__)]


def _x(row: int, rows: int) -> float:
    return 100 * (row + 0.5) / rows


def _y(value: float, low: float, high: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * (value - low) / (high - low)


def _validation(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return row.get("val") or {k.removeprefix("val_"): v for k, v in row.items() if k.startswith("val_")}


# Scores against something: a learning rate, a size, a share


def against(
    title: str,
    over: str,
    series: Mapping[str, Sequence[tuple[Any, Estimate]]],
    ends: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """Lines with their intervals over the values of something; the axis is logarithmic where they span decades.

    `ends` of the other axis, where several charts are to have the same.
    """
    places = _places([x for points in series.values() for x, _ in points])
    low, high = ends or _limits([s for points in series.values() for _, s in points])
    lines = []
    for i, (name, points) in enumerate(series.items()):
        ordered = sorted(((places[_key(x)], x, s) for x, s in points), key=lambda p: p[0])
        dots = [
            {"d": f"M{at:.2f} {_y(s.value, low, high):.2f}h0", "text": f"{name}: {s} at {over} {x}"}
            for at, x, s in ordered
        ]
        path = "M" + "L".join(f"{at:.2f} {_y(s.value, low, high):.2f}" for at, _, s in ordered)
        lines.append({"name": name, "look": look(name, i), "path": path, "dots": dots})
        lines[-1]["band"] = _band([(at, s) for at, _, s in ordered if s.low is not None], low, high)
    return {"title": title, "over": over, "lines": lines, "ticks": _ticks(low, high), "marks": _marks(places)}


def _limits(scores: Sequence[Estimate]) -> tuple[int, int]:
    """Ends of the axis at tens, with room for all numbers and their intervals."""
    values = [v for s in scores for v in s[:3] if v is not None]
    low = 10 * math.floor(min(values) / 10)
    return low, max(10 * math.ceil(max(values) / 10), low + 10)


def _ticks(low: int, high: int) -> list[dict[str, Any]]:
    large = int(nice((high - low) / 5))  # for what is far from a percentage
    step = next((s for s in (5, 10, 20, 25, 50, 100, 1000) if (high - low) / s <= 5), large)
    return [{"y": _y(v, low, high), "text": f"{v}"} for v in range(-(-low // step) * step, high + 1, step)]


def _places(values: Sequence[Any]) -> dict[str, float]:
    """Where on the axis each value stands, in percent; words stand in their order, evenly."""
    numbers = [number(v) for v in values]
    if all(v is not None for v in numbers):
        present = sorted({v for v in numbers if v is not None})
        scale = math.log if present[0] > 0 and present[-1] / present[0] >= LOG else float
        first, last = scale(present[0]), scale(present[-1])
        return {_key(v): 6 + 88 * (scale(v) - first) / ((last - first) or 1) for v in present}
    words = list(dict.fromkeys(map(_key, values)))
    return {word: 6 + 88 * i / max(1, len(words) - 1) for i, word in enumerate(words)}


def _key(value: Any) -> str:
    value_number = number(value)
    return str(value) if value_number is None else f"{value_number:g}"


def _marks(places: Mapping[str, float]) -> list[dict[str, Any]]:
    """The names below the axis, without those that would run into the one before."""
    marks: list[dict[str, Any]] = []
    for text, x in places.items():
        if not marks or x - marks[-1]["x"] >= 5 + 1.2 * (len(text) + len(marks[-1]["text"])) / 2:
            marks.append({"x": x, "text": text})
    return marks


def _band(points: Sequence[tuple[float, Estimate]], low: float, high: float) -> str:
    there = [f"{at:.2f} {_y(s.high or 0.0, low, high):.2f}" for at, s in points]
    back = [f"{at:.2f} {_y(s.low or 0.0, low, high):.2f}" for at, s in reversed(points)]
    return "M" + "L".join(there + back) + "Z" if len(points) > 1 else ""
