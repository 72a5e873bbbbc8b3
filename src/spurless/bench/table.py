"""The table of a benchmark: mean ± standard deviation over seeds, their interval, and the paper's number beside it."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spurless.bench.figures import Entry, entries
from spurless.bench.remarks import line_name, remarks
from spurless.bench.spec import Spec
from spurless.core.messages import inert
from spurless.core.stats import CI, NOTHING, Estimate
from spurless.report.studies import published
from spurless.report.tables import duration, html, plain, with_words

if TYPE_CHECKING:
    from rich.console import Group

FORMATS = ("table", "markdown", "latex", "csv", "jsonl", "parquet")


@dataclass(frozen=True, repr=False)
class BenchTable:
    """A specification with the rows of its trials, as `run_trials` returns them.

    >>> from spurless.bench.spec import make_spec
    >>> spec = make_spec({"title": "Mine", "block": [{"data": "toy", "methods": ["erm", "lff"]}]})
    >>> BenchTable(spec, [])
    BenchTable('Mine': 2 lines, 0 of 2 trials done)
    """

    spec: Spec
    rows: Sequence[Mapping[str, Any]]

    def __repr__(self) -> str:
        keys = {trial.key for line in self.spec.lines for trial in line.trials}
        done = len({row["key"] for row in self.rows if row["status"] == "done"} & keys)
        return f"BenchTable({self.spec.title!r}: {len(self.spec.lines)} lines, {done} of {len(keys)} trials done)"

    def _repr_html_(self) -> str:
        titles, body = cells_of(self.spec, entries(self.spec, self.rows))
        return html(titles, body, self.spec.title, remarks(self.spec, self.rows))

    def plot(self, ax: Any = None) -> Any:
        """Each line's mean with its 95 % CI, and the published number beside it. Returns the matplotlib axes."""
        from spurless.bench.drawing import draw_entries

        return draw_entries(entries(self.spec, self.rows), ax)


def cells_of(spec: Spec, listed: Sequence[Entry]) -> tuple[list[str], list[list[str]]]:
    """Headings and text of the printed table. Columns in which nothing would stand are left out."""
    several = len({e.line.metric for e in listed}) > 1
    lines = [_texts_of(e, spec.over, several) for e in listed]
    titles = [title for title in lines[0] if any(line[title] for line in lines)] if lines else []
    return titles, [[line[title] or NOTHING for title in titles] for line in lines]


def _texts_of(e: Entry, over: Sequence[str], several_metrics: bool) -> dict[str, str]:
    """What stands in the columns of a line, by their titles."""
    return {
        "data": e.line.block,
        "method": e.line.row,
        **{name: e.line.grid.get(name, "") for name in over},
        "metric": e.line.metric if several_metrics else "",
        "at": e.at,
        "ours": e.text,
        CI: e.ours.limits(e.digits),
        "n": str(e.ours.n) if e.line.trials else NOTHING,
        "paper": e.paper if e.line.paper is not None else "",
        "difference": "" if e.difference is None else f"{e.difference:+.{e.digits}f}",
        **{name: e.beside.get(name, "") for name in BESIDE},
        "selection": e.selection,
        "labels": e.labels,
        "seconds": duration(e.seconds),
        "remark": e.remark,
    }


BESIDE = ("test-selected", "zeros, %", "mined, precision", "recall")
SHORT = {"difference": "diff", "seconds": "s"}
WORDS = ("data", "method", "selection", "labels", "metric", "remark")


def terminal(spec: Spec, rows: Sequence[Mapping[str, Any]]) -> Group:
    """For the terminal: `console.print(terminal(spec, rows))`."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    listed = entries(spec, rows)
    columns = _narrow_columns(spec, listed)
    same = _same_everywhere(spec, columns)
    head = "; ".join(f"{title}: {text}" for title, text in same.items())
    columns = {title: texts for title, texts in columns.items() if title not in same}
    odd = [f"{line_name(e.line)}: {e.remark}." for e in listed if e.remark and e.ours.known]
    notes = [*([head] if head else []), *odd, *remarks(spec, rows)]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    for title in columns:
        words = title in WORDS
        side: Any = "left" if words else "right"
        short = SHORT.get(title, title.rpartition(".")[2])
        table.add_column(short, justify=side, overflow="fold", no_wrap=not words, min_width=8 if words else None)
    lines = list(zip(*columns.values(), strict=True))
    named = sum(title in columns for title in ("data", "method"))  # the columns in front
    for above, line in zip([(), *lines], lines, strict=False):
        if above and above[: named - 1] != line[: named - 1]:
            table.add_section()
        table.add_row(*map(Text, (*_new(above[:named], line[:named]), *line[named:])))
    return with_words(table, notes, spec.title)


def _narrow_columns(spec: Spec, listed: Sequence[Entry]) -> dict[str, list[str]]:
    """The columns that a terminal has room for; the others are in every other format."""
    titles, body = cells_of(spec, listed)
    columns = {title: [row[i] for row in body] for i, title in enumerate(titles)}
    named_by_row = len({e.line.row for e in listed}) == len({(e.line.row, e.line.metric) for e in listed})
    for wide in ("remark", *BESIDE, *(["metric"] if named_by_row else [])):
        columns.pop(wide, None)
    columns["ours"] = [e.text if e.ours.known else e.remark or NOTHING for e in listed]
    return columns


def _same_everywhere(spec: Spec, columns: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """What is the same in every line is said once: a terminal has 80 columns."""
    same = {}
    for title in ("data", *spec.over, "n", "selection", "labels"):
        texts = set(columns.get(title, ()))
        if len(texts - {NOTHING}) == 1 and (title not in spec.over or NOTHING not in texts):  # a line may lack it
            same[title] = (texts - {NOTHING}).pop()
    return same


def _new(above: Sequence[str], own: Sequence[str]) -> list[str]:
    """The names of a line, without those that stand above it: long ones would fill several lines each time.

    >>> _new(("CMNIST", "ERM"), ("CMNIST", "ERM")), _new(("CMNIST", "ERM"), ("BAR", "ERM"))
    (['', ''], ['BAR', 'ERM'])
    """
    return ["" if above[: i + 1] == own[: i + 1] else name for i, name in enumerate(own)]


def markdown(spec: Spec, rows: Sequence[Mapping[str, Any]]) -> str:
    titles, body = cells_of(spec, entries(spec, rows))
    rule = [":--" if title in WORDS else "--:" for title in titles]
    lines = ["| " + " | ".join(row) + " |" for row in [list(map(plain, titles)), rule, *(map(plain, r) for r in body)]]
    return "\n".join([f"**{plain(spec.title)}**\n", *lines, *(f"\n{plain(remark)}" for remark in remarks(spec, rows))])


def latex(spec: Spec, rows: Sequence[Mapping[str, Any]]) -> str:
    """For booktabs."""
    titles, body = cells_of(spec, entries(spec, rows))
    columns = "".join("l" if title in WORDS else "r" for title in titles)
    lines = [" & ".join(map(tex, row)) + r" \\" for row in body]
    comments = ["% " + remark.replace("\n", " ") for remark in [spec.title, *remarks(spec, rows)]]
    head = [r"\begin{tabular}{" + columns + "}", r"\toprule", " & ".join(map(tex, titles)) + r" \\", r"\midrule"]
    return "\n".join([*comments, *head, *lines, r"\bottomrule", r"\end{tabular}"])


def tex(text: str) -> str:
    """A text that LaTeX prints as it is.

    >>> print(tex("60.94 ± 0.97 [58.1–63.0] a_b 50 %"))
    $60.94 \\pm 0.97$ [58.1--63.0] a\\_b 50 \\%
    """
    safe = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "±": r"$\pm$"}
    safe |= {c: "\\" + c for c in "&%$#_{}"}
    whole = re.sub(r"(-?\d+(?:\.\d+)?) ± (\d+(?:\.\d+)?)", "\0\\1\1\\2\2", text.replace("\N{MINUS SIGN}", "-"))
    whole = "".join(safe.get(c, c) for c in whole)
    return whole.replace("\0", "$").replace("\1", r" \pm ").replace("\2", "$")


def as_csv(spec: Spec, rows: Sequence[Mapping[str, Any]]) -> str:
    """Numbers in full, each in a column of its own."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    titles = ["data", "method", *spec.over, "metric", "mean", "std", "n", "low95", "high95", "paper", "paper_mean"]
    writer.writerow([*titles, "difference", "selection", "labels_used", "seconds", "remark", "at", "worst_group_n"])
    for e in entries(spec, rows):
        paper = published(e.line.paper) if e.line.paper is not None else None
        point = [e.line.grid.get(name, "") for name in spec.over]
        ours = _as_row(e.ours)
        own = [ours[k] for k in ("mean", "std", "n", "low", "high")] + [e.line.paper, paper and paper.value]
        rest = [e.difference, e.selection, e.labels, e.seconds, e.remark, e.at, e.samples]
        writer.writerow(map(inert, [e.line.block, e.line.row, *point, e.line.metric, *own, *rest]))
    return file.getvalue()


def as_json(spec: Spec, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The lines of the table for machines, and for the report."""
    return [
        {
            "data": e.line.block,
            "method": e.line.row,
            "grid": e.line.grid,
            "metric": e.line.metric,
            "ours": _as_row(e.ours) if e.ours.known else None,
            "paper": e.line.paper,
            "difference": e.difference,
            "selection": e.selection,
            "labels_used": e.labels,
            "seconds": e.seconds,
            "remark": e.remark,
            "at": e.at or None,
            "worst_group_n": e.samples,
            "missing": e.line.missing or None,
        }
        for e in entries(spec, rows)
    ]


def _as_row(ours: Estimate) -> dict[str, Any]:
    return {"n": ours.n, "mean": ours.value if ours.known else None, "std": ours.sd, "low": ours.low, "high": ours.high}
