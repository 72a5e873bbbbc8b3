"""The table of a benchmark: mean ± standard deviation over seeds, their interval, and the paper's number beside it."""

from __future__ import annotations

import csv
import io
import math
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spurless.bench.spec import Line, Spec
from spurless.core.digests import in_full
from spurless.core.stats import CI, Estimate, estimate
from spurless.report.studies import published
from spurless.report.tables import METRICS, NOTHING, _plain, content_of, duration, notes, with_words

if TYPE_CHECKING:
    from rich.console import Group

FORMATS = ("table", "markdown", "latex", "csv", "jsonl", "parquet")
MEANING = (
    "± is the standard deviation over seeds (n - 1), [ ] the 95 % CI of their mean (Student's t over seeds; of "
    "percentages, as far as it lies between 0 and 100), n the seeds that ended well; labels: the bias labels that the "
    "method was told."
)
RANGE = (
    "min and max: the least and the greatest mean over the values of a setting, and at which one. Values count up to "
    "the first at which, in any seed, training diverged or an accuracy fell by more than 25 points."
)


@dataclass(frozen=True)
class Entry:
    """A line of the table with its figures."""

    line: Line
    ours: Estimate
    paper: str
    difference: float | None
    selection: str
    labels: str
    seconds: float | None
    remark: str  # what kept a trial from counting
    beside: dict[str, str]  # more means of the same rows, where they have them
    at: str = ""  # the value of the range at which it is least or greatest

    @property
    def digits(self) -> int:
        """After the point."""
        paper = published(self.line.paper) if self.line.paper is not None else None
        return decimals(self.line.metric, [number.value for number in (self.ours, paper) if number and number.known])


def decimals(metric: str, values: Sequence[float]) -> int:
    """After the point: what lies between 0 and 1 needs more than what is in percent.

    >>> decimals("extra.csi", [0.25, -0.5]), decimals("extra.first_stage.average", [61.0]), decimals("unbiased", [0.5])
    (3, 2, 2)
    """
    return 3 if metric.startswith("extra.") and max(map(abs, values), default=0.0) < 2 else 2


def value_of(row: Mapping[str, Any], metric: str) -> float | None:
    """A score of a finished row by its name, or any number in it by its dotted path.

    >>> row = {"status": "done", "scores": {"unbiased": 71.5}, "mining": {"mined": {"precision": 40.0}}, "seconds": 3}
    >>> value_of(row, "unbiased"), value_of(row, "mining.mined.precision"), value_of(row, "seconds")
    (71.5, 40.0, 3.0)
    """
    if row.get("status") != "done":
        return None
    for start in (row.get("scores") or {}, row):
        found: Any = start
        for part in metric.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        if isinstance(found, (int, float)) and not isinstance(found, bool) and math.isfinite(found):
            return float(found)
    return None


def samples_of(row: Mapping[str, Any], metric: str) -> int | None:
    """How many samples decided a worst group (of the run, of an attribute, of a first stage); None of other scores.

    >>> row = {"status": "done", "scores": {"n": {"worst_group": 2, "unbiased": 40}}}
    >>> samples_of(row, "worst_group"), samples_of(row, "unbiased")
    (2, None)
    """
    before, _, last = metric.rpartition(".")
    n = value_of(row, f"{before}.n.{last}".removeprefix(".")) if last == "worst_group" else None
    return None if n is None else int(n)


def entries(spec: Spec, rows: Sequence[Mapping[str, Any]]) -> list[Entry]:
    """The lines of a specification with the figures of these rows, which carry its trials' keys."""
    by_key = {row["key"]: row for row in rows}
    return [_entry(line, by_key) for line in spec.lines]


def _entry(line: Line, by_key: Mapping[str, Mapping[str, Any]]) -> Entry:
    rows = [by_key[c.key] for c in line.trials if c.key in by_key]
    remarks, at = [_remark(line, rows, [value_of(row, line.metric) for row in rows])], ""
    if line.end:
        from spurless.bench.ends import rows_at_end

        at, rows, beyond = rows_at_end(line, by_key, value_of)
        remarks += beyond
    found = [value_of(row, line.metric) for row in rows]
    ours = estimate([v for v in found if v is not None])
    if line.metric in (*METRICS, "average", "average_train_weighted"):
        ours = ours.in_percent()
    paper = published(line.paper) if line.paper is not None else None
    good = [row for row, v in zip(rows, found, strict=True) if v is not None]
    remarks.append(_small_groups(good, line.metric))
    return Entry(
        line,
        ours,
        str(line.paper) if line.paper is not None else NOTHING,
        ours.value - paper.value if paper and ours.known else None,
        _said(row.get("selection") for row in good),
        _said(row.get("labels_used") for row in good),
        _mean(row.get("seconds") for row in good),
        ", ".join(filter(None, remarks)),
        beside(good),
        at,
    )


def beside(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What stands beside the score where rows have it: never used to pick anything.

    >>> beside([{"test_selected": {"unbiased": 93.25}, "sparsity": 68.0}, {"sparsity": 66.0}])
    {'test-selected': '93.25', 'zeros, %': '67.0'}
    """
    mined = _mined(rows)
    zeros = _mean(row.get("sparsity") for row in rows)
    means = {
        "test-selected": (_mean((row.get("test_selected") or {}).get("unbiased") for row in rows), ".2f"),
        "zeros, %": (zeros or None, ".1f"),  # a column of zeros would say nothing
        "mined, precision": (_mean(own.get("precision") for own in mined), ".1f"),
        "recall": (_mean(own.get("recall") for own in mined), ".1f"),
    }
    return {name: f"{mean:{form}}" for name, (mean, form) in means.items() if mean is not None}


def _mined(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What runs say of the samples that they mined, where any is known to conflict."""
    mined = [own for row in rows for own in (row.get("mining") or {}).values()]
    return [own for own in mined if "recall" in own and own.get("n_conflicting") != 0]


def _mean(values: Iterable[float | None]) -> float | None:
    """The mean of those that are there.

    >>> _mean([1.0, None, 3.0]), _mean([None])
    (2.0, None)
    """
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _small_groups(rows: Sequence[Mapping[str, Any]], metric: str) -> str:
    """Over how few samples worst groups were taken, where a group should have more; nothing of rows made before that
    was kept.

    >>> row = {"status": "done", "scores": {"min_size": 10, "n": {"worst_group": 2}}}
    >>> _small_groups([row], "worst_group"), _small_groups([row], "unbiased")
    ('worst group with n = 2 samples', '')
    """
    sizes = [(samples_of(row, metric), (row.get("scores") or {}).get("min_size")) for row in rows]
    few = sorted({n for n, least in sizes if n and least and n < least})
    if not few:
        return ""
    return f"worst group with n = {few[0]}{f' to {few[-1]}' if few[-1] > few[0] else ''} samples"


def _said(values: Any) -> str:
    return ", ".join(dict.fromkeys(str(v) for v in values if v)) or NOTHING


def _remark(line: Line, rows: Sequence[Mapping[str, Any]], found: Sequence[float | None]) -> str:
    """
    >>> _remark(Line("", "a", {}, "unbiased"), [{"status": "failed"}, {"status": "failed"}, {"status": "done"}], [1.0])
    '2 failed'
    """
    if line.missing:
        return "not run"
    parts = []
    for status in ("failed",) if line.end else ("diverged", "failed"):  # a range says at which value it diverged
        count = sum(row["status"] == status for row in rows)
        parts += [f"{count} {status}"] if count else []
    lacking = sum(row["status"] == "done" and v is None for row, v in zip(rows, found, strict=False))
    # A score may be there and say nothing: see group_notes, which are among the rows' notes.
    classless = sum(bool((row.get("scores") or {}).get("missing_classes")) for row in rows)
    why = " (a class has no samples)" if classless else ""
    parts += [f"{lacking} without {line.metric}{why}"] if lacking else []
    left = len(line.trials) - len(rows)
    parts += [f"{left} to do"] if left > 0 else []
    return ", ".join(parts)


def cells_of(spec: Spec, found: Sequence[Entry]) -> tuple[list[str], list[list[str]]]:
    """Headings and text of the printed table. Columns in which nothing would stand are left out."""
    several = len({e.line.metric for e in found}) > 1
    lines = [_texts_of(e, spec.over, several) for e in found]
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
        "ours": e.ours.text(e.digits),
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


def remarks(spec: Spec, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What must be said beside the table."""
    metrics = dict.fromkeys(line.metric for line in spec.lines)
    said = [f"Published: {spec.source}."] if spec.source else []
    said += [f"Ours: {' and '.join(metrics)}. {MEANING}"]
    if any(line.end for line in spec.lines):
        said.append(RANGE)
    said += [f"{row} was not run: {why}" for row, why in _texts(spec.lines, lambda line: line.missing)]
    said += [f"{row}: {note}" for row, note in _texts(spec.lines, lambda line: line.note)]
    errors = dict.fromkeys(
        f"{row['method']} on {row['data']} {row['status']}: {str(row.get('error')).splitlines()[0]}"
        for row in rows
        if row["status"] != "done"
    )
    machines = dict.fromkeys(str(row["machine"]) for row in rows if row.get("machine") and row["status"] == "done")
    if machines:
        said.append(f"Measured {days(rows)} on {'; '.join(machines)}.")
    return [*said, *_mixed(spec, rows), *spec.choices, *spec.notes, *notes(rows), *errors]


def _mixed(spec: Spec, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Which lines hold scores on different contents of the same data: a file that was changed in between."""
    by_key = {row["key"]: row for row in rows if row["status"] == "done"}
    contents: dict[str, set[str]] = {}
    lines: dict[str, dict[str, None]] = {}
    as_full = in_full(content_of(row)[1] for row in by_key.values())
    for line in spec.lines:
        for row in (by_key[c.key] for c in line.trials if c.key in by_key):
            source, content = content_of({**row, "seed": None})  # a trial's data does not depend on its seed
            if content:
                contents.setdefault(source, set()).add(as_full(content))
                lines.setdefault(source, {})[_name(line)] = None
    return [
        f"{'; '.join(lines[source])}: trained on {len(found)} different contents of the same data. Their scores cannot "
        "be compared; train them again in another folder."
        for source, found in contents.items()
        if len(found) > 1
    ]


def _texts(lines: Sequence[Line], of: Callable[[Line], str]) -> Iterator[tuple[str, str]]:
    """Rows, each with its text; with the blocks too, where those say different things of a row by the same name."""
    found: dict[str, dict[str, dict[str, None]]] = {}  # by row, then by text: the blocks, each once
    for line in lines:
        if text := of(line):
            found.setdefault(line.row, {}).setdefault(text, {})[line.block] = None
    for row, texts in found.items():
        for text, blocks in texts.items():
            yield (f"{row} ({'; '.join(blocks)})" if len(texts) > 1 else row), text


def days(rows: Sequence[Mapping[str, Any]]) -> str:
    """When they were measured: a day, or the first and the last one.

    >>> days([{"date": "2026-11-17"}, {"date": "2026-11-16"}, {}]), days([{"date": "2026-11-17"}] * 2)
    ('2026-11-16 to 2026-11-17', '2026-11-17')
    """
    known = sorted({str(row["date"]) for row in rows if row.get("date")})
    return " to ".join(dict.fromkeys([known[0], known[-1]])) if known else NOTHING


def terminal(spec: Spec, rows: Sequence[Mapping[str, Any]]) -> Group:
    """For the terminal: `console.print(terminal(spec, rows))`."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    found = entries(spec, rows)
    columns = _narrow_columns(spec, found)
    same = _same_everywhere(spec, columns)
    head = "; ".join(f"{title}: {text}" for title, text in same.items())
    columns = {title: texts for title, texts in columns.items() if title not in same}
    odd = [f"{_name(e.line)}: {e.remark}." for e in found if e.remark and e.ours.known]
    said = [*([head] if head else []), *odd, *remarks(spec, rows)]
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
    return with_words(table, said, spec.title)


def _narrow_columns(spec: Spec, found: Sequence[Entry]) -> dict[str, list[str]]:
    """The columns that a terminal has room for; the others are in every other format."""
    titles, body = cells_of(spec, found)
    columns = {title: [row[i] for row in body] for i, title in enumerate(titles)}
    named_by_row = len({e.line.row for e in found}) == len({(e.line.row, e.line.metric) for e in found})
    for wide in ("remark", *BESIDE, *(["metric"] if named_by_row else [])):
        columns.pop(wide, None)
    columns["ours"] = [e.ours.text(e.digits) if e.ours.known else e.remark or NOTHING for e in found]
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


def _name(line: Line) -> str:
    return ", ".join([line.block, line.row, *line.grid.values()]).removeprefix(", ")


def markdown(spec: Spec, rows: Sequence[Mapping[str, Any]]) -> str:
    titles, body = cells_of(spec, entries(spec, rows))
    rule = [":--" if title in WORDS else "--:" for title in titles]
    lines = [
        "| " + " | ".join(row) + " |" for row in [list(map(_plain, titles)), rule, *(map(_plain, r) for r in body)]
    ]
    return "\n".join([f"**{_plain(spec.title)}**\n", *lines, *(f"\n{_plain(said)}" for said in remarks(spec, rows))])


def latex(spec: Spec, rows: Sequence[Mapping[str, Any]]) -> str:
    """For booktabs."""
    titles, body = cells_of(spec, entries(spec, rows))
    columns = "".join("l" if title in WORDS else "r" for title in titles)
    lines = [" & ".join(map(tex, row)) + r" \\" for row in body]
    comments = ["% " + said.replace("\n", " ") for said in [spec.title, *remarks(spec, rows)]]
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
    writer.writerow([*titles, "difference", "selection", "labels_used", "seconds", "remark", "at"])
    for e in entries(spec, rows):
        paper = published(e.line.paper) if e.line.paper is not None else None
        point = [e.line.grid.get(name, "") for name in spec.over]
        ours = _as_row(e.ours)
        own = [ours[k] for k in ("mean", "std", "n", "low", "high")] + [e.line.paper, paper and paper.value]
        rest = [e.difference, e.selection, e.labels, e.seconds, e.remark, e.at]
        writer.writerow([e.line.block, e.line.row, *point, e.line.metric, *own, *rest])
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
            "missing": e.line.missing or None,
        }
        for e in entries(spec, rows)
    ]


def _as_row(ours: Estimate) -> dict[str, Any]:
    return {"n": ours.n, "mean": ours.value if ours.known else None, "std": ours.sd, "low": ours.low, "high": ours.high}
