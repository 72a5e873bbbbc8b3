"""How a Result shows itself: a line, a table for a notebook, and plots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from spurless.core.display import Line, draw_lines, html
from spurless.core.errors import DataError, one_of
from spurless.core.stats import Estimate
from spurless.metrics.groups import group_name

if TYPE_CHECKING:
    from spurless.train.result import Result

Kind = Literal["groups", "curves"]
SHOWN = ("unbiased", "conflicting", "aligned", "worst_group", "average")


def known_scores(result: Result) -> dict[str, Estimate]:
    """The scores by group that are known, else the plain average."""
    scores = result.scores or {}
    intervals, n = scores.get("intervals") or {}, scores.get("n") or {}
    measured = {}
    for name in SHOWN:
        if scores.get(name) is not None:
            low, high = intervals.get(name) or (None, None)
            measured[name] = Estimate(scores[name], low, high, n.get(name) or 0)
    return measured


def text(result: Result) -> str:
    """One line."""
    told = ", ".join(f"{name} {e}" for name, e in list(known_scores(result).items())[:4])
    if result.status != "done":
        return f"Result({result.method} on {result.data}, seed {result.seed}: {result.status}; {result.error or ''})"
    return f"Result({result.method} on {result.data} with {result.net}, seed {result.seed}: {told or 'no scores'})"


def as_html(result: Result) -> str:
    """The scores with their 95 % CIs and n, and what must be said with them."""
    title = f"{result.method} on {result.data} with {result.net}, seed {result.seed}"
    lines = [[name.replace("_", " "), str(e), f"{e.n:,}"] for name, e in known_scores(result).items()]
    notes = [*([result.error] if result.error else []), *result.notes]
    below = f"{result.status}; {result.scored_on} split; bias labels used: {result.labels_used}; {result.seconds:g} s"
    return html(["score", "percent [95 % CI]", "n"], lines, title, [below, *notes])


def plot(result: Result, kind: Kind, ax: Any) -> Any:
    one_of("kind", kind, ("groups", "curves"))
    return _groups(result, ax) if kind == "groups" else _curves(result, ax)


def _groups(result: Result, ax: Any) -> Any:
    """The accuracy of each group, bias-conflicting groups in another colour."""
    groups = (result.scores or {}).get("groups") or []
    lines = [
        Line(group_name(g), Estimate(g["accuracy"], g["low"], g["high"], g["n"]), g["aligned"] is False)
        for g in groups
        if g["n"]
    ]
    if not lines:
        lines = [Line(name, e) for name, e in known_scores(result).items()]
    if not lines:
        raise DataError(f"This run has no scores to draw; its status is '{result.status}'.")
    return draw_lines(lines, "accuracy (percent, 95 % CI)", ax)


def _curves(result: Result, ax: Any) -> Any:
    """The loss of each epoch, and the validation accuracy on an axis of its own where it was measured."""
    if not result.history:
        raise DataError("This run has no history to draw.")
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.subplots(figsize=(7.0, 3.0), layout="constrained")[1]
    epochs = range(1, len(result.history) + 1)  # over all stages
    ax.plot(epochs, [row["loss"] for row in result.history], color="#0072B2", label="training loss")
    ax.set_xlabel("epoch, over all stages")
    ax.set_ylabel("training loss")
    measured = [
        (k, row["val_accuracy"]) for k, row in zip(epochs, result.history, strict=True) if "val_accuracy" in row
    ]
    if measured:
        right = ax.twinx()
        right.plot(*zip(*measured, strict=True), color="#D55E00")
        right.set_ylabel("validation accuracy (percent)")
    return ax
