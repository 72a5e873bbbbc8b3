"""A sweep on one screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spurless.bench.points import PERCENT
from spurless.sweep.choice import show

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS = {
    "unbiased": "unbiased",
    "average": "accuracy",
    "conflicting": "confl.",
    "prunability": "prun.",
    "pruned_accuracy": "pruned",
    "activation_compressibility": "act.c.",
    "csi": "CSI",
    "class_separation": "R²",
    "val_accuracy": "valid.",
    "train_accuracy": "train",
}
COMPARED = {
    "unbiased": "unbiased",
    "average": "accuracy",
    "conflicting": "conflicting",
    "prunability": "prunability",
    "csi": "CSI",
}
FIRST = ("unbiased", "average")  # shown with its standard deviation
MEANING = (
    "{runs}. confl.: conflicting samples; prun.: prunability; pruned: mean unbiased "
    "accuracy of the pruned networks; act.c.: activation compressibility; R²: class separation; valid. and train: "
    "accuracy on those splits, which decides; *: chosen; †: beyond the range."
)


def tables(content: Mapping[str, Any]) -> list[Table]:
    """One table for each sweep and, of several, one that compares them."""
    series = content.get("series")
    return [*map(table, series), comparison(series)] if series else [table(dict(content) | {"name": content["over"]})]


def table(axis_part: Mapping[str, Any]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    headings, lines = texts(axis_part)
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    name, _, fixed = str(axis_part["name"]).partition(" ")
    made.title, made.title_justify, made.title_style = fixed.strip("()"), "left", ""
    made.add_column(name, no_wrap=True)
    for heading in headings[1:]:
        made.add_column(heading, justify="right", no_wrap=True)
    for point, line in zip(axis_part["points"], lines, strict=True):
        style = "bold" if is_chosen(point, axis_part.get("choice")) else "" if point["in_range"] else "red"
        made.add_row(*(Text(text, style) for text in line))
    return made


def texts(axis_part: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Headings and lines of a sweep's table."""
    points = axis_part["points"]
    measured = [m for m in COLUMNS if any(p.get(m) for p in points)]
    measured = measured or ["average"]  # nothing was measured: room to say why
    if "unbiased" in measured and "average" in measured:
        measured.remove("average")
    lines = []
    for point in points:
        cells = [_cell(point.get(m), m) for m in measured]
        if why := out(point):
            cells[0] = why
        lines.append([show(point["value"]) + sign(point, axis_part.get("choice")), *cells])
    return [str(axis_part["name"]).partition(" ")[0], *(COLUMNS[m] for m in measured)], lines


def out(point: Mapping[str, Any]) -> str:
    """Why a point has no means.

    >>> out({"diverged": False, "fell": "training accuracy"})
    'fell'
    """
    return "diverged" if point["diverged"] else "fell" if point["fell"] else ""


def is_chosen(point: Mapping[str, Any], choice: Mapping[str, Any] | None) -> bool:
    """A value may be None, and so may a choice be, where there is none.

    >>> is_chosen({"value": None}, None), is_chosen({"value": None}, {"value": None})
    (False, True)
    """
    return choice is not None and point["value"] == choice["value"]


def sign(point: Mapping[str, Any], choice: Mapping[str, Any] | None) -> str:
    if is_chosen(point, choice):
        return " *"
    return "" if point["in_range"] or out(point) else " †"


def _cell(mean: Mapping[str, Any] | None, measure: str) -> str:
    if not mean:
        return "–"
    text = f"{mean['mean']:.{_digits(measure)}f}"
    return f"{text} ±{mean['sd']:.1f}" if measure in FIRST and "sd" in mean else text


def comparison(series: Sequence[Mapping[str, Any]]) -> Table:
    """From the least mean in range to the greatest, for each sweep: the study's table 2."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    compared = [m for m in COMPARED if any(m in axis_part["ranges"] for axis_part in series)]
    if "unbiased" in compared and "average" in compared:
        compared.remove("average")
    for heading in ("from least to greatest", "in range", *(COMPARED[m] for m in compared)):
        made.add_column(heading)
    for axis_part in series:
        values = [show(p["value"]) for p in axis_part["points"] if p["in_range"]]
        span = f"{values[0]}–{values[-1]}" if len(values) > 1 else " ".join(values)
        made.add_row(Text(axis_part["name"]), span, *(_span(axis_part["ranges"].get(m), m) for m in compared))
    return made


def _span(mean: Mapping[str, Any] | None, measure: str) -> str:
    if not mean:
        return "–"
    digits = _digits(measure)
    return f"{mean['min']:.{digits}f}–{mean['max']:.{digits}f}"


def _digits(measure: str) -> int:
    return 1 if measure in PERCENT else 2
