"""The parts of the page on a sweep (scores over a setting) and on a reproduction (ours beside the paper's)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from spurless.core.stats import NOTHING, Estimate
from spurless.metrics.groups import MIN_GROUP
from spurless.report import lines, normalised
from spurless.report.charts import as_score, number
from spurless.report.page import Part, Section
from spurless.report.runs import discreet
from spurless.report.tables import METRICS, flatten

CHARTED = (*METRICS, "average")
# Measures of a sweep that stand in its table and, some of them, in the chart of all measures; and those that are only
# in the file.
TABLED = (*normalised.SHARES, "pruned_accuracy", "train_accuracy", "val_accuracy", "largest_share")
ASIDE = ("magnitude_prunability", "bsi", "activation_sparsity", "activation_pq_index", "largest_share_smooth")


def sweep(content: Mapping[str, Any]) -> Part:
    """{"over": setting, "points": [{"value", "unbiased": {"mean", "low", "high", "n"}, ...}]}, or several such lists:
    "series": [{"name", "points"}], each with an "over" of its own where they are over different settings. "title",
    "text", "settings" and "versions" are shown where they are given."""
    over = str(content["over"])
    series = content.get("series") or [{"name": "", "points": content.get("points") or []}]
    present = _measures(series)
    charted = [m for m in present if m not in (*TABLED, *ASIDE)]
    if "unbiased" in charted and "average" in charted:
        charted.remove("average")
    title = str(content.get("title") or f"Sweep over {over}")
    charts = normalised.charts(series, over) + _charts(series, over, charted)
    table = _table(series, over, [m for m in present if m not in ASIDE and (m in charted or m in TABLED)])
    rule = str(content.get("rule") or "")
    sections = [Section("sweep", title, {"charts": charts} | table, rule)]
    if any(s.get("ranges") for s in series[1:]):
        sections.append(Section("sweep", "From least to greatest", _ranges(series)))
    sections += _notes(content)
    sections.append(Section("facts", "How this was measured", [facts(content, "The sweep")], _seeds(series, present)))
    return Part(_told(content, rule) or _best(over, series, present), sections, title)


def _told(content: Mapping[str, Any], rule: str) -> list[str]:
    """The paragraphs that the sweep came with, but for the rule, which stands elsewhere."""
    return [text for text in str(content.get("text") or "").split("\n\n") if text and text != rule]


def _charts(series: Sequence[Mapping[str, Any]], over: str, measures: Sequence[str]) -> list[dict[str, Any]]:
    """Of one sweep all measures in a chart; of several over one setting a chart for each measure."""
    if len(series) == 1:
        named = {m.replace("_", " "): _line(series[0]["points"], m) for m in measures}
        return [lines.against(f"Accuracy against {over}, %", over, named)] if named else []
    if any(s.get("over") for s in series):
        return []
    charts = []
    for m in measures:
        if chosen := {str(s["name"]): line for s in series if (line := _line(s["points"], m))}:
            title = f"{m.replace('_', ' ').capitalize()} accuracy against {over}, %"
            charts.append(lines.against(title, over, chosen))
    return charts


def _table(series: Sequence[Mapping[str, Any]], over: str, shown: Sequence[str]) -> dict[str, Any]:
    several = len(series) > 1
    rows = [_row(str(s["name"]) if several else None, p, shown) for s in series for p in s["points"]]
    return {
        "headings": [*(["series"] if several else []), over, *(m.replace("_", " ") for m in shown), "runs"],
        "rows": rows,
    }


def _notes(content: Mapping[str, Any]) -> list[Section]:
    """Choices and remarks: a dozen of them at the top would hide what was measured."""
    notes = [str(n) for n in content.get("notes") or []]
    return [Section("notes", "What was chosen, and what to know", notes)] if notes else []


def _measures(series: Sequence[Mapping[str, Any]]) -> list[str]:
    """What any point has, accuracies first."""
    points = [p for s in series for p in s["points"]]
    keys = dict.fromkeys(k for p in points for k, v in p.items() if isinstance(v, Mapping))
    return [k for k in {**dict.fromkeys(CHARTED), **keys} if any(as_score(p.get(k)) for p in points)]


def _line(points: Sequence[Mapping[str, Any]], metric: str) -> list[tuple[Any, Estimate]]:
    return [(p["value"], s) for p in points if (s := as_score(p.get(metric)))]


def _row(name: str | None, point: Mapping[str, Any], present: Sequence[str]) -> list[dict[str, Any]]:
    scores = [as_score(point.get(m)) for m in present]
    cells: list[dict[str, Any]] = [] if name is None else [{"text": name, "key": None}]
    cells += [{"text": ", ".join(filter(None, [str(point["value"]), _note(point)])), "key": number(point["value"])}]
    texts = [_text(s, m) + _few(point.get(m)) for s, m in zip(scores, present, strict=True)]
    cells += [{"text": text, "key": s and s.value} for text, s in zip(texts, scores, strict=True)]
    runs = _runs(point, present)
    return [*cells, {"text": NOTHING if runs is None else str(runs), "key": number(runs)}]


def _ranges(series: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One row for each sweep: the least and the greatest mean of each measure, within the range."""
    ranges = [s.get("ranges") or {} for s in series]
    present = [m for m in ("unbiased", "conflicting", *normalised.SHARES) if any(m in own for own in ranges)]
    rows = []
    for one, own in zip(series, ranges, strict=True):
        spans = [own.get(m) for m in present]
        texts = [
            s and f"{_text(Estimate(s['min']), m)} – {_text(Estimate(s['max']), m)}"
            for s, m in zip(spans, present, strict=True)
        ]
        cells = [{"text": t or NOTHING, "key": s and s["max"]} for t, s in zip(texts, spans, strict=True)]
        rows.append([{"text": str(one["name"]), "key": None}, *cells])
    return {"charts": [], "headings": ["sweep", *(m.replace("_", " ") for m in present)], "rows": rows}


def _text(score: Estimate | None, measure: str) -> str:
    if score is None or measure in CHARTED or measure.endswith("accuracy"):
        return str(score or NOTHING)
    limits = "" if score.low is None else f" [{score.low:.2f}–{score.high:.2f}]"
    return f"{score.value:.3f}{limits}"


def _few(mean: Any) -> str:
    """The n of a worst group that few samples decided."""
    return f" (n = {mean['samples']})" if isinstance(mean, Mapping) and "samples" in mean else ""


def _runs(point: Mapping[str, Any], present: Sequence[str]) -> int | None:
    return next((point[m].get("n") for m in present if isinstance(point.get(m), Mapping)), None)


def _note(point: Mapping[str, Any]) -> str:
    """Why a value has no means, or lies outside the range."""
    if point.get("diverged"):
        return "diverged"
    if point.get("fell"):
        return f"{point['fell']} fell" if isinstance(point["fell"], str) else "fell"
    return "" if point.get("in_range", True) else "beyond the range"


def _seeds(series: Sequence[Mapping[str, Any]], present: Sequence[str]) -> str:
    counts = {str(n) for s in series for p in s["points"] if (n := _runs(p, present)) is not None}
    return f"Each point is the mean of {' or '.join(sorted(counts))} runs, with its 95 % CI." if counts else ""


def _best(over: str, series: Sequence[Mapping[str, Any]], present: Sequence[str]) -> list[str]:
    if not present:
        return ["There is no result yet."]
    metric = present[0]
    candidates = [(s, p["name"], x) for p in (dict(s) | {"name": s["name"]} for s in series)
             for x, s in _line(p["points"], metric)]  # fmt: skip
    best, worst = max(candidates, key=lambda k: k[0].value), min(candidates, key=lambda k: k[0].value)
    of = f" ({best[1]})" if best[1] else ""
    text = (
        f"The {metric.replace('_', ' ')} accuracy is highest at {over} = {best[2]}{of}: {best[0].value:.1f} %. "
        f"It is lowest at {worst[2]}: {worst[0].value:.1f} %."
    )
    if best[0].low is not None and worst[0].high is not None and best[0].low <= worst[0].high:
        text += " Their intervals overlap: the difference may be chance."
    return [text]


NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")  # as papers print it
NAMES = ("name", "method", "data", "metric")  # of a row that is held against a published number


def reproduction(content: Mapping[str, Any]) -> Part:
    """{"source", "rows": [{"method", "data", "ours": {"mean", "low", "high", "n"}, "paper": 60.94 or "60.94 ± 0.97",
    "difference"}]}; "title", "notes", "settings" and "versions" are shown where they are given."""
    told = [_named(row, *NAMES[:-1]) for row in content["rows"]]
    names = NAMES if len(set(told)) < len(told) else NAMES[:-1]  # the measure, where the rest does not tell rows apart
    rows = [_compared(row, _named(row, *names)) for row in content["rows"]]
    source = str(content.get("source") or "the paper")
    title = str(content.get("title") or "Reproduction")
    sections = []
    for small, name in ((False, "Ours and the paper's"), (True, "Ours and the paper's: measures of about 0 to 1")):
        own = [row for row in rows if row["small"] == small]
        if own or not (small or rows):
            data = {"rows": own, "ends": _placed(own, 0.05 if small else 5.0), "source": source}
            sections.append(Section("reproduction", name, data, f"Published: {source}."))
    sections += _notes(content)
    sections.append(Section("facts", "How this was measured", [facts(content, title)]))
    return Part([_agreement(rows)], sections, title)


def _placed(rows: Sequence[dict[str, Any]], room: float) -> list[str]:
    """Put every row's place on the axis into it, with this much room at the ends; the numbers below the axis."""
    scale = [v for r in rows for s in (r["ours"], r["paper"]) if s for v in s if v is not None]
    least, most = min(scale, default=0.0), max(scale, default=100.0)
    # The room does not reach beyond where percentages end, unless a number does.
    low = max(0.0, least - room) if least >= 0 else least - room
    high = min(100.0, most + room) if most <= 100 else most + room
    for row in rows:
        row["at"] = {name: _at(row[name], low, (high - low) or 1) for name in ("ours", "paper")}
    return [f"{v:.{0 if room > 1 else 2}f}" for v in (low, (low + high) / 2, high)]


def _at(score: Estimate | None, low: float, span: float) -> dict[str, float | None] | None:
    """Where a number and its limits stand, in percent of the axis."""
    if not score:
        return None
    return {k: None if v is None else 100 * (v - low) / span for k, v in score._asdict().items()}


def _named(row: Mapping[str, Any], *by: str) -> str:
    return ", ".join(str(row[k]) for k in by if row.get(k))


def _compared(row: Mapping[str, Any], name: str) -> dict[str, Any]:
    ours, paper = as_score(row.get("ours")), published(row.get("paper"))
    difference = number(row.get("difference"))
    if difference is None and ours and paper:
        difference = ours.value - paper.value
    n = row["ours"].get("n") if isinstance(row.get("ours"), Mapping) else row.get("n")
    small = str(row.get("metric")).startswith("extra.") and all(abs(s.value) < 2 for s in (ours, paper) if s)
    digits = 3 if small else 2  # as many as papers print
    samples = row.get("worst_group_n")
    few = samples is not None and samples < MIN_GROUP
    limits = ours.limits(digits, missing="") if ours else ""
    printed = row.get("paper")  # shown as it is: rounded anew, 91.35 would be 91.3
    texts = {
        "ours_text": f"{ours.value:.{digits}f} {limits}".rstrip() + (f" (n = {samples})" if few else "")
        if ours
        else NOTHING,
        "paper_text": (str(printed) if isinstance(printed, str | float | int) else str(paper)) if paper else NOTHING,
        "difference_text": NOTHING if difference is None else signed(difference, digits),
    }
    return {
        "name": name,
        "ours": ours,
        "paper": paper,
        "difference": difference,
        "n": n,
        "small": small,
        "few": few,
    } | texts


def signed(value: float, digits: int) -> str:
    """
    >>> signed(6.58, 1), signed(-0.004, 2)
    ('+6.6', '0.00')
    """
    text = f"{value:+.{digits}f}"
    return text[1:] if float(text) == 0 else text


def published(value: Any) -> Estimate | None:
    """A number as papers print it, with its standard deviation as limits.

    >>> str(published("60.94 ± 0.97"))
    '60.9 [60.0–61.9]'
    >>> [found and found.value for found in map(published, (88.5, "-0.25", "−.25", "1.5e-3", "–", "33m 39s"))]
    [88.5, -0.25, -0.25, 0.0015, None, None]
    """
    if not isinstance(value, str):
        return as_score(value)
    text = value.replace("\N{MINUS SIGN}", "-")
    if re.search(r"\w", NUMBER.sub("", text)):  # a number with a word beside it is some other thing
        return None
    numbers = [v for v in map(float, NUMBER.findall(text)) if math.isfinite(v)]
    if len(numbers) == 2 and "±" in text:
        return Estimate(numbers[0], round(numbers[0] - numbers[1], 6), round(numbers[0] + numbers[1], 6))
    return Estimate(numbers[0]) if len(numbers) == 1 and "±" not in text else None


def _agreement(rows: Sequence[Mapping[str, Any]]) -> str:
    compared = [r for r in rows if r["difference"] is not None and not r["few"]]
    if not compared:
        few = any(r["few"] for r in rows)
        return f"Worst groups of fewer than {MIN_GROUP} samples decide nothing." if few else "There is no result yet."
    text = _overlap(compared)
    for small, what in ((False, " points"), (True, " of a measure of about 0 to 1")):
        own = [r for r in compared if r["small"] == small]
        if own:
            far = max(own, key=lambda r: abs(r["difference"]))
            text += f" The largest difference is {far['difference_text']}{what} ({far['name']})."
    return text


def _overlap(compared: Sequence[Mapping[str, Any]]) -> str:
    """For how many published numbers the intervals meet; for how many there is one run only."""
    judged = [r for r in compared if r["ours"] and r["ours"].low is not None]
    near, once = [r for r in judged if _meets(r["ours"], r["paper"])], len(compared) - len(judged)
    sentences = []
    if judged:
        sentences.append(
            f"For {len(near)} of {len(judged)} published numbers, the paper's spread and our interval overlap."
        )
    if once:
        of = f"{once} more" if judged else "the published number" if once == 1 else f"each of {once} published numbers"
        sentences.append(f"For {of} there is one run only, which gives no interval.")
    return " ".join(sentences)


def _meets(ours: Estimate | None, paper: Estimate | None) -> bool:
    if not ours or not paper:
        return False
    a = (ours.low if ours.low is not None else ours.value, ours.high if ours.high is not None else ours.value)
    b = (paper.low if paper.low is not None else paper.value, paper.high if paper.high is not None else paper.value)
    return a[0] <= b[1] and b[0] <= a[1]


def facts(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What a saved result says about how it came about."""
    values = {k: content.get(k) for k in ("source", "command", "date", "selection", "labels_used", "seeds")}
    return {
        "name": name,
        "facts": {k.replace("_", " "): v for k, v in values.items() if v is not None},
        "settings": {k: discreet(v) for k, v in flatten(content.get("settings") or {}).items()},
        "versions": content.get("versions") or {},
    }
