"""The numbers of the pictures: where each bar, line and shade goes. The template draws them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from spurless.tables import NOTHING, Result, finished, metrics, names, score

BARS = {
    "conflicting": "samples that contradict the shortcut",
    "aligned": "samples that follow the shortcut",
    "unbiased": "every group counts the same",
    "average": "all samples",
}
VALIDATION = ("conflicting", "aligned", "unbiased", "worst_group", "accuracy", "average")
TOP, BOTTOM = 19.0, 92.0  # percent of the height of a plot: stage names stand above, the axis below
POINTS = 400  # of a line; more cannot be told apart on a page


def bars(results: Sequence[Result]) -> list[dict[str, Any]]:
    """For each score one panel, with one bar for each result."""
    shown = [m for m in BARS if m in metrics(results)]
    panels = []
    for metric in shown:
        found = [(name, score(r, metric), r) for r, name in zip(results, names(results), strict=True)]
        rows = [
            {"name": name, "score": s, "text": str(s or (NOTHING if finished(r) else r.get("status")))}
            for name, s, r in found
        ]
        panels.append({"metric": metric, "meaning": BARS[metric], "rows": rows})
    return panels


def heat_maps(result: Result) -> list[dict[str, Any]]:
    """For each attribute its values and, for each label, the group of each value (None where it is empty)."""
    groups = (result.get("scores") or {}).get("groups") if finished(result) else None
    maps = []
    for attribute, members in groupby(groups or [], key=lambda g: g["attribute"]):
        cells: dict[str, dict[str, Any]] = {}
        for group in members:
            cells.setdefault(group["label"], {})[group["value"]] = group
        # Groups come in the order of their values; the label with the fewest empty groups shows the most of it.
        values = list(dict.fromkeys(v for row in sorted(cells.values(), key=len, reverse=True) for v in row))
        rows = [(label, [row.get(value) for value in values]) for label, row in cells.items()]
        maps.append({"attribute": attribute, "values": values, "rows": rows})
    return maps


def curves(result: Result) -> dict[str, Any] | None:
    """Training loss and validation accuracy over the epochs, a line for each stage; None without a history."""
    history = list(result.get("history") or [])
    if not history:
        return None
    loss = _panel("Training loss", history, {"loss": [_number(r.get("loss")) for r in history]})
    seen = {m: [_number(_validation(r).get(m)) for r in history] for m in VALIDATION}
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
    known = [v for values in series.values() for v in values if v is not None]
    if not known:
        return None
    low, high = (0.0, top) if top else (min(0.0, min(known)), nice(max(known)))
    lines = [{"name": name, "path": _path(history, values, low, high)} for name, values in series.items()]
    ticks = [{"y": _y(v, low, high), "text": f"{v:.4g}"} for v in (low, (low + high) / 2, high)]
    return {"title": title, "lines": lines, "ticks": ticks}


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
        known = [i for i in span if values[i] is not None]
        kept = [i for i in known if i % thin == 0 or i == known[-1]]
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


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None
