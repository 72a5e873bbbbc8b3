"""The audit on one screen."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from spurless.auditing.record import AuditReport
from spurless.core.terminal import Console

COLOURS = {"found": "red", "gap": "yellow", "available": "yellow", "cannot tell": "cyan", "no evidence": "green"}
SAMPLES, ADVICE, FINDINGS = 5, 3, 4  # of each that are shown; the report has them all


def screen(report: AuditReport) -> Group:
    """Verdict, what it costs, what next, evidence, where."""
    verdict = Text(f" {report.verdict.upper()} ", style=f"bold white on {COLOURS[report.verdict]}")
    parts: list[RenderableType] = [verdict.append(f" {report.headline}", style="not bold default on default")]
    if report.cost:
        parts += [Text("What it costs", "bold"), *(_under(text) for text in report.cost["text"])]
    if report.advice:
        parts.append(Text("What to do", "bold"))
    for advice in report.advice[:ADVICE]:
        parts += _advised(advice)
    if report.fix:
        parts += [Text("After --fix", "bold"), *(_under(text) for text in report.fix["text"])]
    parts += [Text("Evidence", "bold"), *_evidence(report)]
    if few := (report.coverage or {}).get("notes"):
        parts += [Text("Not known, or hardly", "bold"), *(_under(text) for text in few)]
    if report.rows:
        parts += [Text("Where", "bold"), *(_under(_told(row)) for row in report.rows[:SAMPLES])]
    return Group(*parts)


def _evidence(report: AuditReport) -> list[RenderableType]:
    parts: list[RenderableType] = [
        _under(f"{f['verdict']}: {f['name']}. {f['text']}") for f in report.findings[:FINDINGS]
    ]
    parts += [_under(m["text"]) for m in report.shift if m["finding"] != "none"]
    if report.tested:
        parts.append(_under(f"no evidence: {', '.join(report.tested)}.", "dim"))
    return parts


def _told(row: dict[str, Any]) -> str:
    says = f", the shortcut says {row['says']}" if row["says"] else ""
    return f"{row['name']}: labelled {row['label']}, predicted {row['prediction']}{says}"


def _advised(advice: dict[str, Any]) -> list[RenderableType]:
    parts: list[RenderableType] = [_under(f"{advice['title']}. {advice['why']}")]
    if advice["command"]:
        # On one line, however long: what is folded cannot be pasted into a shell.
        parts.append(Text(f"    $ {advice['command']}", "cyan", no_wrap=True, overflow="ignore"))
    return parts


def show(report: AuditReport) -> None:
    Console(highlight=False, soft_wrap=False).print(screen(report), crop=False)


def _under(text: str, style: str = "", left: int = 2) -> Padding:
    return Padding(Text(text, style), (0, 0, 0, left))
