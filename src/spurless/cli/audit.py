"""The command `audit`."""

from __future__ import annotations

import json
import shlex
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from spurless.cli.common import default_folder, echo, gather, mistakes_in_one_line, print_json
from spurless.cli.options import Data, Json, Judged, Where, check_minutes
from spurless.core.errors import unknown

WORST = ("found", "gap", "available")  # verdicts, the worst first


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(mistakes_in_one_line(audit))


@dataclass(frozen=True)
class Verdict:
    """What counts as bad, and what a person has decided."""

    fail_on: Annotated[
        str | None, typer.Option(help="found, gap or available: exit with code 4 when the verdict is that bad.")
    ] = None
    decisions: Annotated[
        Path | None, typer.Option(help="The decisions.json of `spurless review`: what is legitimate, what a shortcut.")
    ] = None

    def bad(self) -> tuple[str, ...]:
        """The verdicts that end with exit code 4."""
        if self.fail_on is None:
            return ()
        levels = {level: WORST[: k + 1] for k, level in enumerate(WORST)} | {"suspected": WORST[:2]}  # an older name
        if self.fail_on not in levels:
            raise unknown("level", self.fail_on, levels)
        return levels[self.fail_on]


def audit(
    data: Data,
    judged: Judged,
    verdict: Verdict,
    where: Where,
    budget: Annotated[float | None, typer.Option(help="Minutes for everything.", min=0.1)] = None,
    fix: Annotated[bool, typer.Option("--fix", help="Try repairs, and show before and after.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only what the data gives away: no model, seconds instead of a minute.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="The audit's folder. Default: runs/audit-DATA-NET-seedN, and a hash of settings."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Test whether a model relies on a shortcut, where, and what helps: on one screen and in a report."""
    bad = verdict.bad()
    check_minutes(budget)
    given = judged.set_ or []
    chosen = gather(given, ("data", "net", "recipe"))
    from spurless.auditing import FILE, REPORT, Decisions, audit
    from spurless.auditing.terminal import show
    from spurless.registry import check_recipe

    check_recipe(chosen["recipe"])
    model = judged.model
    asked = chosen | {"model": {"path": str(model.resolve())}} if model else chosen
    folder = out or default_folder("audit", data, judged.net or "plain", judged.seed, asked)
    with redirect_stdout(sys.stderr):
        report = audit(
            {"name": data} | chosen["data"], model, folder, budget=budget, fix=fix, quick=quick,
            net=judged.network(chosen["net"]), recipe=chosen["recipe"] or None, seed=judged.seed,
            device=where.device, root=where.data_root, command=shlex.join(["spurless", *sys.argv[1:]]),
            settings=tuple(pair for pair in given if pair.startswith("data.")),
            decisions=None if verdict.decisions is None else Decisions.read(verdict.decisions),
        )  # fmt: skip
    if as_json:
        print_json(json.loads(report.to_json()))
    else:
        show(report)
        echo(f"Report: {folder / REPORT}    for machines: {folder / FILE}")
    if report.verdict in bad:
        raise typer.Exit(4)
