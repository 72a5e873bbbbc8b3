"""The figures of a benchmark's table: for each line of its specification the score over seeds, and what kept it from
counting."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spurless.bench.spec import Line, Spec
from spurless.core.stats import NOTHING, Estimate, estimate
from spurless.report.studies import published
from spurless.report.tables import METRICS


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
    samples: int | None = None  # the fewest that decided a worst group
    few: bool = False  # fewer than a group should have, in any run

    @property
    def text(self) -> str:
        """The mean over seeds; of a worst group that is too small, with its n."""
        return self.ours.text(self.digits) + (f" (n = {self.samples})" if self.few else "")

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
        value: Any = start
        for key in metric.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
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
    good = [row for row in rows if value_of(row, line.metric) is not None]
    ours = _over_seeds(good, line.metric)
    paper = published(line.paper) if line.paper is not None else None
    few = _small_groups(good, line.metric)
    return Entry(
        line,
        ours,
        str(line.paper) if line.paper is not None else NOTHING,
        ours.value - paper.value if paper and ours.known else None,
        _said(row.get("selection") for row in good),
        _said(row.get("labels_used") for row in good),
        _mean(row.get("seconds") for row in good),
        ", ".join(filter(None, [*remarks, few])),
        beside(good),
        at,
        _fewest(good, line.metric),
        bool(few),
    )


def _over_seeds(rows: Sequence[Mapping[str, Any]], metric: str) -> Estimate:
    mean = estimate([value for row in rows if (value := value_of(row, metric)) is not None])
    return mean.in_percent() if metric in (*METRICS, "average", "average_train_weighted") else mean


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
    """How well runs identified conflicting samples, where any is known to conflict."""
    mined = [own for row in rows for own in (row.get("mining") or {}).values()]
    return [own for own in mined if "recall" in own and own.get("n_conflicting") != 0]


def _mean(values: Iterable[float | None]) -> float | None:
    """The mean of those that are there.

    >>> _mean([1.0, None, 3.0]), _mean([None])
    (2.0, None)
    """
    present = [value for value in values if value is not None]
    return statistics.fmean(present) if present else None


def _fewest(rows: Sequence[Mapping[str, Any]], metric: str) -> int | None:
    """The fewest samples that decided a worst group in any of these runs."""
    return min((n for row in rows if (n := samples_of(row, metric)) is not None), default=None)


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


def _remark(line: Line, rows: Sequence[Mapping[str, Any]], values: Sequence[float | None]) -> str:
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
    lacking = sum(row["status"] == "done" and v is None for row, v in zip(rows, values, strict=False))
    # A score may be there and say nothing: see group_notes, which are among the rows' notes.
    classless = sum(bool((row.get("scores") or {}).get("missing_classes")) for row in rows)
    why = " (a class has no samples)" if classless else ""
    parts += [f"{lacking} without {line.metric}{why}"] if lacking else []
    left = len(line.trials) - len(rows)
    parts += [f"{left} to do"] if left > 0 else []
    return ", ".join(parts)
