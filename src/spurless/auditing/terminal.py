"""The audit on one screen."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from spurless.core.terminal import Console
from spurless.report.audit import chance

COLOURS = {"shortcut found": "red", "suspected": "yellow", "cannot tell": "cyan", "no evidence": "green"}
ROWS, ADVICE, TESTS = 5, 3, 4  # of each that are shown; the report has them all


def screen(found: dict[str, Any]) -> Group:
    """Verdict, where, how much, what next."""
    verdict = Text(f" {found['verdict'].upper()} ", style=f"bold white on {COLOURS[found['verdict']]}")
    parts: list[RenderableType] = [verdict.append(f" {found['headline']}", style="not bold default on default")]
    if found["reliability"]:
        parts.append(_under(found["reliability"]["text"], "dim"))
    told = [e for e in found["evidence"] if e["finding"] != "none"] or found["evidence"]
    parts += [
        Text("Evidence", "bold"),
        *(_under(f"{e['finding']}: {e['text']} ({chance(e['p'])})") for e in told[:TESTS]),
    ]
    if few := (found.get("coverage") or {}).get("notes"):
        parts += [Text("Not known, or hardly", "bold"), *(_under(text) for text in few)]
    if found["rows"]:
        parts.append(Text("Where", "bold"))
        for row in found["rows"][:ROWS]:
            says = f", the shortcut says {row['says']}" if row["says"] else ""
            parts.append(_under(f"{row['name']}: labelled {row['label']}, predicted {row['prediction']}{says}"))
        if found["slices"]:
            worst = found["slices"][0]
            words = f" ({'; '.join(worst['words'][:2])})" if worst["words"] else ""
            parts.append(
                _under(
                    f"{len(found['slices'])} weak slices; the worst: {worst['size']} of class {worst['class']}, "
                    f"{worst['accuracy']['value']:.0f} % right{words}"
                )
            )
    if found["cost"]:
        parts += [Text("How much", "bold"), *(_under(text) for text in found["cost"]["text"])]
    parts.append(Text("What next", "bold"))
    for advice in found["advice"][:ADVICE]:
        parts.append(_under(f"{advice['title']}. {advice['why']}"))
        if advice["command"]:
            # On one line, however long: what is folded cannot be pasted into a shell.
            parts.append(Text(f"    $ {advice['command']}", "cyan", no_wrap=True, overflow="ignore"))
    if found["fix"]:
        parts += [Text("After --fix", "bold"), *(_under(text) for text in found["fix"]["text"])]
    return Group(*parts)


def show(found: dict[str, Any]) -> None:
    Console(highlight=False, soft_wrap=False).print(screen(found), crop=False)


def _under(text: str, style: str = "", left: int = 2) -> Padding:
    return Padding(Text(text, style), (0, 0, 0, left))
