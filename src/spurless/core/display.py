"""How objects show themselves in a notebook: tables in HTML, axes to draw on, and errors as one message."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

from spurless.core.errors import SpurlessError
from spurless.core.stats import Estimate

COLOUR, OTHER = "#0072B2", "#D55E00"  # can be told apart without seeing red or green (Okabe and Ito)


def html(headings: Sequence[str], lines: Sequence[Sequence[str]], title: str = "", below: Sequence[str] = ()) -> str:
    """A table for a notebook, with a title and sentences below it; everything in it is escaped.

    >>> html(["method", "n"], [["<erm>", "3"]])
    '<table><thead><tr><th>method</th><th>n</th></tr></thead><tbody><tr><td>&lt;erm&gt;</td><td>3</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(text)}</th>" for text in headings)
    body = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in line) + "</tr>" for line in lines)
    words = "".join(f"<p>{escape(text)}</p>" for text in below)
    above = f"<p><b>{escape(title)}</b></p>" if title else ""
    return f"{above}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{words}"


def axes_for(lines: int, ax: Any = None) -> Any:
    """The given axes, or new ones with room for so many lines."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(7.0, 0.8 + 0.3 * max(1, lines)), layout="constrained")[1]


class Line(NamedTuple):
    """A number to draw, with its name."""

    name: str
    estimate: Estimate
    conflicting: bool = False


def draw_lines(lines: Sequence[Line], label: str, ax: Any = None) -> Any:
    """Numbers with their 95 % CIs, from top to bottom; another colour for what conflicts."""
    ax = axes_for(len(lines), ax)
    for y, (_, e, conflicting) in enumerate(lines):
        colour = OTHER if conflicting else COLOUR
        if e.low is not None and e.high is not None:
            ax.plot([e.low, e.high], [y, y], color=colour, linewidth=1.5)
        ax.plot(e.value, y, "o", color=colour, markersize=6)
    ax.set_yticks(range(len(lines)), [f"{name} (n = {e.n})" if e.n else name for name, e, _ in lines], fontsize=8)
    for tick in ax.get_yticklabels():
        tick.set_parse_math(False)  # a name with dollars is no formula
    ax.set_ylim(len(lines) - 0.4, -0.6)  # from top to bottom
    ax.set_xlabel(label)
    return ax


def notebook() -> Any:
    """The running IPython shell, if there is one."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None


def in_notebook() -> bool:
    """Whether it is a notebook's kernel, not a terminal's IPython."""
    shell = notebook()
    return shell is not None and hasattr(shell, "kernel")


def show_errors_briefly() -> None:
    """In IPython, a mistake in what was given prints its message without a traceback. `%tb` still shows it."""
    shell = notebook()
    if shell is None:
        return

    def brief(shell: Any, kind: type, error: BaseException, traceback: Any, tb_offset: int | None = None) -> list[str]:
        text = f"{kind.__name__}: {error}"
        print(text, file=sys.stderr)
        return [text]

    shell.set_custom_exc((SpurlessError,), brief)
