"""Tables of the benchmark as pictures, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spurless.bench.figures import Entry
from spurless.bench.judging import REAL, Difference
from spurless.bench.remarks import line_name
from spurless.core.display import axes_for
from spurless.report.studies import published

OURS, PAPER = "#0072B2", "#D55E00"


def draw_entries(entries: Sequence[Entry], ax: Any = None) -> Any:
    """Means over seeds with their 95 % CIs, from top to bottom; squares: as published."""
    ax = axes_for(len(entries), ax)
    for y, entry in enumerate(entries):
        paper = published(entry.line.paper) if entry.line.paper is not None else None
        if paper:
            ax.plot(paper.value, y, "s", color=PAPER, markersize=5, label="published")
        if entry.ours.known:
            _point(ax, y, entry.ours.value, entry.ours.low, entry.ours.high, filled=True)
    metrics = dict.fromkeys(entry.line.metric for entry in entries)
    _label(ax, [line_name(entry.line) for entry in entries], " and ".join(metrics))
    return ax


def draw_differences(lines: Sequence[Difference], ax: Any = None) -> Any:
    """Differences with their 95 % CIs; filled: real."""
    ax = axes_for(len(lines), ax)
    ax.axvline(0, color="0.6", linewidth=1)
    for y, line in enumerate(lines):
        _point(ax, y, line.difference, line.low, line.high, filled=line.verdict == REAL)
    names = [f"{line.b} - {line.a}, {line.where} (n = {line.n})" for line in lines]
    _label(ax, names, f"difference in {lines[0].metric}" if lines else "")
    return ax


def _point(ax: Any, y: int, value: float, low: float | None, high: float | None, filled: bool) -> None:
    if low is not None and high is not None:
        ax.plot([low, high], [y, y], color=OURS, linewidth=1.5)
    ax.plot(value, y, "o", color=OURS, markerfacecolor=OURS if filled else "white", markersize=6)


def _label(ax: Any, names: Sequence[str], metric: str) -> None:
    ax.set_yticks(range(len(names)), names, fontsize=8)
    for label in ax.get_yticklabels():
        label.set_parse_math(False)  # a name with dollars is no formula
    ax.set_ylim(len(names) - 0.4, -0.6)  # from top to bottom
    ax.set_xlabel(metric.replace("_", " "))
    ax.grid(axis="x", alpha=0.25)
