"""What an audit of audit.json tested: each finding in a line, and in full; what gave nothing; how often such tests see
what is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spurless.core.stats import NOTHING
from spurless.report.charts import as_score, number
from spurless.report.tables import Score

LOOKS = {  # of a verdict or finding: its CSS class, and a sign for those who do not see its colour
    "found": ("found", "!"),
    "gap": ("suspected", "?"),
    "suspected": ("suspected", "?"),
    "available": ("suspected", "○"),
    "no evidence": ("none", "✓"),
    "none": ("none", "✓"),
}
UNKNOWN = ("unknown", "…")
HEADLINES = {  # of a verdict, as the badge says it
    "found": "Shortcut found",
    "gap": "Gap",
    "available": "Shortcut available",
    "no evidence": "No evidence",
    "cannot tell": "Cannot tell",
}
ROWS = 3  # findings that are listed; more are folded


def look(verdict: str) -> tuple[str, str]:
    """The CSS class and the sign of a verdict.

    >>> look("no evidence"), look("something new")
    (('none', '✓'), ('unknown', '…'))
    """
    return LOOKS.get(verdict, UNKNOWN)


def evidence(audit: Mapping[str, Any]) -> dict[str, Any]:
    """Findings first, each in one line; what was tested and gave nothing in one, with how often such tests see it."""
    rows = [_measured(finding) for finding in audit.get("findings") or []]
    for moved in audit.get("shift") or []:
        finding = str(moved.get("finding"))
        rows.append({"name": moved.get("test"), "finding": finding, "look": look(finding), "text": moved.get("text")})
    tested = [str(name) for name in audit.get("tested") or []]
    legitimate = [str(name) for name in (audit.get("decisions") or {}).get("legitimate") or []]
    if not rows and not tested and not legitimate:
        return {}
    names = ("; " if any("," in name for name in tested) else ", ").join(tested)
    return {"rows": rows[:ROWS], "more": rows[ROWS:], "tested": tested, "names": names, "power": _power(audit),
            "seen": _seen(audit.get("power") or {}), "legitimate": legitimate, "model": _model(audit)}  # fmt: skip


def _measured(measured: Mapping[str, Any]) -> dict[str, Any]:
    """A finding in whole per cent: where it helps, where it misleads, and what its exchange changes."""
    harm, used = measured.get("harm") or {}, measured.get("used") or {}
    scores = (harm.get("aligned"), harm.get("conflicting"), used.get("other_class"), used.get("same_class"))
    helps, misleads, other, same = map(as_score, scores)
    changes = f"{whole(other)} (placebo\u00a0{whole(same)})" if other else "cannot be exchanged"
    verdict = str(measured.get("verdict"))
    return {
        "name": measured.get("name"),
        "finding": HEADLINES.get(verdict, verdict),
        "look": look(verdict),
        "text": None,
        "cells": [
            ("right where it helps", whole(helps)),
            ("right where it misleads", whole(misleads)),
            ("answers that its exchange changes", changes),
        ],
    }


def _model(audit: Mapping[str, Any]) -> str:
    """How good the model is that was asked: one that is hardly better than a guess relies on little."""
    right = _count((audit.get("model") or {}).get("average"), " samples")
    return f"The model is right on {right}. " if right else ""


def whole(score: Score | None) -> str:
    return NOTHING if score is None else f"{score.value:.0f} %"


def findings(audit: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The same for a statistician: every number that was measured, and the p-values."""
    rows = []
    for measured in audit.get("findings") or []:
        numbers = []
        for key, name in (("used", "exchange"), ("harm", "errors by class, exact")):
            p = number((measured.get(key) or {}).get("p"))
            numbers += [] if p is None else [f"{name}: {chance(p)}"]
        verdict = str(measured.get("verdict"))
        shown = {"finding": HEADLINES.get(verdict, verdict), "look": look(verdict), "numbers": ", ".join(numbers)}
        rows.append({"test": measured.get("name"), "text": measured.get("text") or ""} | shown)
    for moved in audit.get("shift") or []:
        finding = str(moved.get("finding"))
        rows.append(
            {"test": moved.get("test"), "text": moved.get("text") or "", "numbers": chance(float(moved.get("p") or 1))}
            | {"finding": finding, "look": look(finding)}
        )
    return rows


def _seen(power: Mapping[str, Any]) -> str:
    """How many planted shortcuts such audits saw, for one line."""
    seen = _count(power.get("without_attributes"))
    return f"such audits saw {seen.partition(' (')[0]} planted shortcuts" if seen else ""


def _power(audit: Mapping[str, Any]) -> str:
    """How often such verdicts were right where the truth was known, and whether with as many samples as here."""
    power = audit.get("power") or {}
    without, known, places, false = (
        _count(power.get(key)) for key in ("without_attributes", "found", "backgrounds", "false_alarms")
    )
    if not without:
        return ""
    data, inputs = audit.get("data") or {}, power.get("inputs") or "such inputs"
    told = f"Of the shortcuts that were planted into {inputs}, such audits saw {without}"
    told += f" and, where it was a known attribute, {known}" if known and data.get("attributes") else ""
    looked = [*(audit.get("tested") or []), *(finding.get("name") for finding in audit.get("findings") or [])]
    if places:
        told += f"; of backgrounds, {places}" if "background" in looked else "; the background was not looked at here"
    told += f". Of sets without a shortcut they accused {false}" if false else ""
    return f"{told}.{_sizes(power.get('samples') or [], data.get('answered'))}"


def _sizes(measured: Sequence[int], answered: Any) -> str:
    """How many samples those sets had, against this audit's."""
    if not measured:
        return ""
    few, many = min(measured), max(measured)
    told = f" Those sets had {few:,} to {many:,} samples"
    if isinstance(answered, int) and answered < few:
        return f"{told}; with {answered:,}, as here, less is seen."
    return f"{told}{f', this audit {answered:,}' if isinstance(answered, int) else ''}."


def _count(score: Any, of: str = "") -> str:
    """A share as a count, with its interval.

    >>> _count({"value": 96.7, "low": 83.3, "high": 99.4, "n": 30})
    '29 of 30 (95 % CI 83–99 %)'
    """
    share = as_score(score)
    if not share or not score.get("n"):
        return ""
    limits = "" if share.low is None else f" (95 % CI {share.low:.0f}–{share.high:.0f} %)"
    return f"{round(share.value * score['n'] / 100):,} of {score['n']:,}{of}{limits}"


def chance(p: float) -> str:
    """A p-value for everybody.

    >>> chance(0.03), chance(1e-9)
    ('p = 0.03', 'p < 0.001')
    """
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"
