"""What must be said beside a benchmark's table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from spurless.bench.spec import Line, Spec
from spurless.core.digests import in_full
from spurless.core.stats import NOTHING
from spurless.report.tables import content_of, notes

MEANING = (
    "± is the standard deviation over seeds (n - 1), [ ] the 95 % CI of their mean (Student's t over seeds; of "
    "percentages, as far as it lies between 0 and 100), n the seeds that ended well; labels: the bias labels that the "
    "method was told."
)
RANGE = (
    "min and max: the least and the greatest mean over the values of a setting, and at which one. Values count up to "
    "the first at which, in any seed, training diverged or an accuracy fell by more than 25 points."
)


def remarks(spec: Spec, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What must be said beside the table."""
    metrics = dict.fromkeys(line.metric for line in spec.lines)
    lines = [f"Published: {spec.source}."] if spec.source else []
    lines += [f"Ours: {' and '.join(metrics)}. {MEANING}"]
    if any(line.end for line in spec.lines):
        lines.append(RANGE)
    lines += [f"{row} was not run: {why}" for row, why in _texts(spec.lines, lambda line: line.missing)]
    lines += [f"{row}: {note}" for row, note in _texts(spec.lines, lambda line: line.note)]
    errors = dict.fromkeys(
        f"{row['method']} on {row['data']} {row['status']}: {str(row.get('error')).splitlines()[0]}"
        for row in rows
        if row["status"] != "done"
    )
    machines = dict.fromkeys(str(row["machine"]) for row in rows if row.get("machine") and row["status"] == "done")
    if machines:
        lines.append(f"Measured {days(rows)} on {'; '.join(machines)}.")
    return [*lines, *_mixed(spec, rows), *spec.choices, *spec.notes, *notes(rows), *errors]


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
                lines.setdefault(source, {})[line_name(line)] = None
    return [
        f"{'; '.join(lines[source])}: trained on {len(versions)} different contents of the same data. Their scores "
        "cannot be compared; train them again in another folder."
        for source, versions in contents.items()
        if len(versions) > 1
    ]


def _texts(lines: Sequence[Line], of: Callable[[Line], str]) -> Iterator[tuple[str, str]]:
    """Rows, each with its text; with the blocks too, where those say different things of a row by the same name."""
    texts_of: dict[str, dict[str, dict[str, None]]] = {}  # by row, then by text: the blocks, each once
    for line in lines:
        if text := of(line):
            texts_of.setdefault(line.row, {}).setdefault(text, {})[line.block] = None
    for row, texts in texts_of.items():
        for text, blocks in texts.items():
            yield (f"{row} ({'; '.join(blocks)})" if len(texts) > 1 else row), text


def days(rows: Sequence[Mapping[str, Any]]) -> str:
    """When they were measured: a day, or the first and the last one.

    >>> days([{"date": "2026-11-17"}, {"date": "2026-11-16"}, {}]), days([{"date": "2026-11-17"}] * 2)
    ('2026-11-16 to 2026-11-17', '2026-11-17')
    """
    dates = sorted({str(row["date"]) for row in rows if row.get("date")})
    return " to ".join(dict.fromkeys([dates[0], dates[-1]])) if dates else NOTHING


def line_name(line: Line) -> str:
    return ", ".join([line.block, line.row, *line.grid.values()]).removeprefix(", ")
