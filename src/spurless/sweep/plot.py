"""The study's plot: each measure, from its least value (0) to its greatest (1), against the setting."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from spurless.bench.points import PERCENT, Point
from spurless.core.files import atomic
from spurless.report.normalised import within_spread
from spurless.sweep.axes import Axis
from spurless.sweep.choice import show

# Colours that can be told apart without seeing red or green (Okabe and Ito), and a mark of its own for each line.
LOOKS = {
    "unbiased": ("unbiased accuracy", "#0072B2", "o"),
    "average": ("accuracy", "#0072B2", "o"),
    "prunability": ("prunability", "#D55E00", "s"),
    "activation_compressibility": ("activation compressibility", "#009E73", "^"),
    "csi": ("class selectivity (CSI)", "#CC79A7", "D"),
    "class_separation": ("class separation (R²)", "#B8860B", "v"),
}
DECADES = 20.0  # how many times the least value the greatest must be for a logarithmic axis
COLUMNS = 3  # panels side by side
NOTHING: Any = object()  # is chosen; None may be a value

Series = Sequence[tuple[Axis, list[Point]]]


def shown(series: Series) -> list[str]:
    """The measures that have a line: those of the study that are known somewhere in range."""
    present = {m for _, points in series for p in points if p.in_range for m in p.means}
    return [m for m in LOOKS if m in present and not (m == "average" and "unbiased" in present)]


def scales(series: Series) -> dict[str, tuple[float, float]]:
    """For each measure its least and greatest mean within the ranges of all sweeps: what 0 and 1 stand for."""
    limits = {}
    for measure in shown(series):
        means = [p.means[measure]["mean"] for _, points in series for p in points if p.in_range and measure in p.means]
        limits[measure] = (min(means), max(means))
    return limits


def normalised(value: float, scale: tuple[float, float]) -> float:
    """
    >>> normalised(0.5, (0.25, 0.75)), normalised(3.0, (3.0, 3.0))
    (0.5, 0.5)
    """
    low, high = scale
    return (value - low) / (high - low) if high > low else 0.5


def by_chance(series: Series) -> set[str]:
    """The measures that differ no more from value to value than from seed to seed: drawn thin, and without a band."""
    inside = [p for _, points in series for p in points if p.in_range]
    return {m for m in shown(series) if within_spread([p.means[m] for p in inside if m in p.means])}


def legend(measure: str, scale: tuple[float, float], chance: bool = False) -> str:
    """
    >>> legend("prunability", (0.561, 0.782))
    'prunability: 0.56 to 0.78'
    """
    name, *_ = LOOKS[measure]
    digits, unit = (1, " %") if measure in PERCENT else (2, "")
    note = "\n(seeds differ as much)" if chance else ""
    return f"{name}: {scale[0]:.{digits}f} to {scale[1]:.{digits}f}{unit}{note}"


def draw(series: Series, path: Path, title: str, chosen: Sequence[Any] = ()) -> None:
    """Write the plot as a PNG: a panel for each sweep, all of them on the same scales; `chosen`: a value of each."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=figure_size(len(series)), layout="constrained")
    FigureCanvasAgg(figure)
    compose(figure, series, title, chosen)
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=150)
    with atomic(path) as unfinished:  # in a moment: a kill while it is drawn leaves no file
        unfinished.write_bytes(drawn.getvalue())


def figure_size(panels: int) -> tuple[float, float]:
    """In inches."""
    columns = min(COLUMNS, panels)
    return (8.4, 3.9) if panels == 1 else (3.3 * columns + 0.4, 2.7 * math.ceil(panels / columns) + 1.5)


def compose(figure: Any, series: Series, title: str, chosen: Sequence[Any], given: Sequence[Any] = ()) -> list[Any]:
    """Draw the panels and the legend into a figure, or into the `given` axes of it; the axes that were drawn in."""
    scale, chance = scales(series), by_chance(series)
    columns = min(COLUMNS, len(series))
    rows = math.ceil(len(series) / columns)
    alone = len(series) == 1
    grid = list(given or figure.subplots(rows, columns, squeeze=False, sharey=True).flat)
    for axes in grid[len(series) :]:
        axes.set_axis_off()
    for index, (axes, (axis, points)) in enumerate(zip(grid, series, strict=False)):
        panel(axes, axis, points, scale, chance, chosen[index] if chosen else NOTHING)
        if index % columns == 0:
            axes.set_ylabel("from least (0) to greatest (1)", fontsize=8)
    seeds = max((len(p.runs) for _, points in series for p in points), default=1)
    band = f"bands: lowest to highest of {seeds} seeds" if seeds > 1 else "one seed"
    figure.legend(
        handles=_keys(scale, chance),
        loc="outside right upper" if alone else "outside lower center",
        ncols=1 if alone else 2,
        fontsize=8,
        frameon=False,
        title=f"means in range; {band};\ndotted: chosen, without test samples",
        title_fontsize=8,
    )
    if alone:
        grid[0].set_title(title, fontsize=9, parse_math=False)  # a name with dollars is no formula
    else:
        figure.suptitle(title, fontsize=9, parse_math=False)
    return grid[: len(series)]


def _keys(scale: Mapping[str, tuple[float, float]], chance: Set[str]) -> list[Any]:
    """The lines of the legend."""
    from matplotlib.lines import Line2D

    keys = []
    for measure, limits in scale.items():
        _, colour, mark = LOOKS[measure]
        name = legend(measure, limits, measure in chance)
        keys.append(Line2D([], [], color=colour, marker=mark, markersize=5, label=name))
        keys[-1].set_linestyle("--" if measure in chance else "-")
    return keys


def panel(
    axes: Any,
    axis: Axis,
    points: Sequence[Point],
    scale: Mapping[str, tuple[float, float]],
    chance: Set[str] = frozenset(),
    chosen: Any = NOTHING,
) -> None:
    """One sweep: lines over the values in range; what is out of range is shaded and says why."""
    at = places(axis)
    inside = [(x, p) for x, p in zip(at, points, strict=True) if p.in_range]
    bounds = [-0.15, 1.15]
    for measure in scale:
        bounds += _line(axes, axis, measure, inside, scale[measure], measure in chance)
    for x, point in zip(at, points, strict=True):
        if not point.in_range:
            why = "diverged" if point.diverged else "fell" if point.fell else "beyond"
            axes.axvspan(x - 0.4, x + 0.4, color="0.5", alpha=0.15, linewidth=0)
            axes.text(x, 0.5, why, rotation=90, ha="center", va="center", fontsize=7, color="0.35")
    if chosen in axis.values:
        axes.axvline(at[axis.values.index(chosen)], color="0.3", linestyle=":", linewidth=1.2, zorder=0)
    axes.set_xticks(at, [show(v) for v in axis.values], fontsize=7, rotation=0 if len(at) <= 7 else 45)
    axes.set_xlim(min(at) - 0.5, max(at) + 0.5)
    low, high = axes.get_ylim()  # shared with the panels before it
    axes.set_ylim(min(low, *bounds), max(high, *bounds))
    axes.set_yticks([0, 0.5, 1])
    axes.tick_params(axis="y", labelsize=7)
    axes.grid(alpha=0.25)
    axes.set_xlabel(axis.title, fontsize=8)


def _line(
    axes: Any,
    axis: Axis,
    measure: str,
    inside: Sequence[tuple[float, Point]],
    limits: tuple[float, float],
    chance: bool,
) -> list[float]:
    """The line of a measure with its band over the seeds; where the band reaches. By chance: thin, without a band."""
    measured = [(x, p.means[measure]) for x, p in inside if measure in p.means]
    _, colour, mark = LOOKS[measure]
    xs = [x for x, _ in measured]
    width = 0.8 if chance else 2.2 if measure in ("unbiased", "average") else 1.4
    dashes = "--" if chance else "-"
    means = [normalised(mean["mean"], limits) for _, mean in measured]
    joined = dashes if axis.ordered else ""  # nothing lies between two words
    axes.plot(xs, means, color=colour, marker=mark, markersize=4, linewidth=width, linestyle=joined)
    if chance:
        return []
    low = [normalised(mean.get("least", mean["mean"]), limits) for _, mean in measured]
    high = [normalised(mean.get("most", mean["mean"]), limits) for _, mean in measured]
    if axis.ordered:
        axes.fill_between(xs, low, high, color=colour, alpha=0.13, linewidth=0)
    else:
        axes.vlines(xs, low, high, color=colour, alpha=0.4)
    return [*low, *high]


def places(axis: Axis) -> list[float]:
    """Where each value stands: by its logarithm where the values span decades, else evenly.

    The unit is the mean distance of two values, so that a shaded value is as wide in every plot.

    >>> places(Axis("lr", "recipe.lr", (0.001, 0.01, 1.0)))
    [0.0, 0.666667, 2.0]
    >>> places(Axis("batch_size", "recipe.batch_size", (100, 50, 25)))
    [0.0, 1.0, 2.0]
    """
    values = axis.values
    if axis.ordered and min(values) > 0 and max(values) / min(values) >= DECADES:
        logs = [math.log(v) for v in values]
        step = (logs[-1] - logs[0]) / (len(values) - 1)
        return [round((log - logs[0]) / step, 6) for log in logs]
    return [float(i) for i in range(len(values))]
