"""What an audit of audit.json tested: each finding in a line, and in full; what gave nothing; how often such tests see
what is there."""

from __future__ import annotations

from collections.abc import Mapping
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
ROWS = 4  # findings that are listed; more are folded


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
    power = audit.get("power") or {}
    return {"rows": rows[:ROWS], "more": rows[ROWS:], "tested": tested, "power": _power(power), "seen": _seen(power),
            "legitimate": legitimate}  # fmt: skip


def _measured(measured: Mapping[str, Any]) -> dict[str, Any]:
    """A finding in whole per cent: where it helps, where it misleads, and what its exchange changes."""
    harm, used = measured.get("harm") or {}, measured.get("used") or {}
    scores = (harm.get("aligned"), harm.get("conflicting"), used.get("other_class"), used.get("same_class"))
    helps, misleads, other, same = map(as_score, scores)
    changes = f"{whole(other)} (placebo {whole(same)})" if other else "cannot be exchanged"
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
    """The share of planted shortcuts that such tests saw, for one line."""
    seen = as_score(power.get("without_attributes"))
    n = (power.get("without_attributes") or {}).get("n")
    return f"such tests saw {seen.value:.0f} % of {n} planted shortcuts" if seen and n else ""


def _power(power: Mapping[str, Any]) -> str:
    """How often such verdicts were right where the truth was known."""
    seen, without, false = (as_score(power.get(k)) for k in ("found", "without_attributes", "false_alarms"))
    told = []
    if seen and without:
        told.append(
            f"On such inputs with a planted shortcut, {seen.value:.0f} % were seen where it was a known attribute and "
            f"{without.value:.0f} % where it was not"
        )
    if false:
        told.append(f"{false.value:.0f} % of sets without one were called found or gap")
    sizes = power.get("samples") or []
    many = f" ({min(sizes):,} to {max(sizes):,} samples)" if sizes else ""
    return "; ".join(told) + f"{many}." if told else ""


def chance(p: float) -> str:
    """A p-value for everybody.

    >>> chance(0.03), chance(1e-9)
    ('p = 0.03', 'p < 0.001')
    """
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"
