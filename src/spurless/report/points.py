"""The numbers of histograms and of maps of points."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from spurless.report.charts import number

MANY = 2000  # points of a map; more would only hide one another
COLOURS = 8  # of the palette; after those, they come again as squares


def histogram(
    edges: Sequence[float], usual: Sequence[int], unusual: Sequence[int], title: str, names: tuple[str, str]
) -> dict[str, Any]:
    """Bars upwards for the aligned samples and downwards for the others, each as a share of its own kind: there are
    far fewer of the others, and counts would hide them."""
    totals = [sum(usual), sum(unusual)]
    shares = [[c / max(1, total) for c in counts] for counts, total in zip((usual, unusual), totals, strict=True)]
    peaks = [max(s, default=0.0) for s in shares]
    unit = 96 / (sum(peaks) or 1.0)  # one scale for both
    axis = 2 + peaks[0] * unit
    low, span = edges[0], (edges[-1] - edges[0]) or 1
    bars = []
    for kind, fractions, counts in (("aligned", shares[0], usual), ("conflicting", shares[1], unusual)):
        for left, right, part_of, count in zip(edges, edges[1:], fractions, counts, strict=False):
            height = part_of * unit
            bars.append(
                {
                    "kind": kind,
                    "x": 100 * (left - low) / span,
                    "width": max(0.2, 100 * (right - left) / span - 0.4),
                    "y": axis - height if kind == "aligned" else axis,
                    "height": height,
                    "text": f"{left:.3g} to {right:.3g}: {count:,} samples, {100 * part_of:.1f} %",
                }
            )
    ends = [f"{v:.3g}" for v in (low, low + span / 2, low + span)]
    legend = [{"kind": k, "name": n, "n": t} for k, n, t in zip(("aligned", "conflicting"), names, totals, strict=True)]
    return {"title": title, "bars": bars, "axis": axis, "ends": ends, "legend": legend}


def scatter(projection: Mapping[str, Any]) -> dict[str, Any] | None:
    """The same points twice, coloured by label and by group: {"points": [[x, y, label, group]], "labels", "groups"}."""
    points = [p for p in projection.get("points") or [] if number(p[0]) is not None and number(p[1]) is not None]
    if not points:
        return None
    points = points[:: math.ceil(len(points) / MANY)]
    places = _on_the_map([(p[0], p[1]) for p in points])
    panels = [
        _panel("By label", [p[2] for p in points], list(projection["labels"]), places),
        _panel("By attribute or group", [p[3] for p in points], list(projection["groups"]), places),
    ]
    return {"how": projection.get("how") or "", "panels": panels, "n": len(points)}


def _on_the_map(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Places between 3 and 97, the wider side filling that."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    size = max(max(xs) - min(xs), max(ys) - min(ys)) or 1.0
    middle = (max(xs) + min(xs)) / 2, (max(ys) + min(ys)) / 2
    return [(50 + 94 * (x - middle[0]) / size, 50 - 94 * (y - middle[1]) / size) for x, y in points]


def _panel(
    title: str, column: Sequence[int], names: Sequence[str], places: Sequence[tuple[float, float]]
) -> dict[str, Any]:
    clouds: list[dict[str, Any]] = []
    for index, name in enumerate(names):
        own = [point for point, value in zip(places, column, strict=True) if value == index]
        # A line of no length with round ends is a dot: a third of the size of a circle element.
        path = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in own)
        square = " square" if index >= COLOURS else ""
        clouds.append({"name": name, "n": len(own), "path": path, "look": f"c{index % COLOURS}{square}"})
    # The most points first: the rare ones are what one looks for, and must lie on top.
    return {"title": title, "clouds": sorted(clouds, key=lambda c: -c["n"]), "legend": clouds}
