"""The command `audit`."""

from __future__ import annotations

import json
import math
import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from spurless.cli.common import default_folder, echo, gather, mistakes_in_one_line, print_json
from spurless.cli.options import Data, Device, Json, Root, Set
from spurless.core.errors import SettingError, unknown


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(mistakes_in_one_line(audit))


def audit(
    data: Data,
    model: Annotated[
        Path | None, typer.Option(help="A run's folder or a weights file. Default: a plain model is trained.")
    ] = None,
    net: Annotated[str | None, typer.Option(help="The network of a weights file, or of the model to train.")] = None,
    budget: Annotated[float | None, typer.Option(help="Minutes for everything.", min=0.1)] = None,
    fix: Annotated[bool, typer.Option("--fix", help="Try repairs, and show before and after.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only what the data gives away: no model, seconds instead of a minute.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="The audit's folder. Default: runs/audit-DATA-NET-seedN, and a hash of settings."),
    ] = None,
    fail_on: Annotated[
        str | None, typer.Option(help="found, gap or available: exit with code 4 when the verdict is that bad.")
    ] = None,
    decisions: Annotated[
        Path | None, typer.Option(help="The decisions.json of `spurless review`: what is legitimate, what a shortcut.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides everything that is random.")] = 0,
    set_: Set = None,
    device: Device = None,
    data_root: Root = None,
    as_json: Json = False,
) -> None:
    """Test whether a model relies on a shortcut, where, and what helps: on one screen and in a report."""
    worst = ("found", "gap", "available")
    bad = {level: worst[: k + 1] for k, level in enumerate(worst)} | {"suspected": worst[:2]}  # the last: an older name
    if fail_on is not None and fail_on not in bad:
        raise unknown("level", fail_on, bad)
    if budget is not None and not math.isfinite(budget):
        raise SettingError(f"--budget {budget} is not allowed; it takes a number of minutes.")
    chosen = gather(set_ or [], ("data", "net", "recipe"))
    from spurless.auditing import FILE, REPORT, Decisions, audit
    from spurless.auditing.terminal import show
    from spurless.registry import check_recipe

    check_recipe(chosen["recipe"])
    reviewed = None if decisions is None else Decisions.read(decisions)
    asked = chosen | {"model": {"path": str(model.resolve())}} if model else chosen
    folder = out or default_folder("audit", data, net or "plain", seed, asked)
    network = {"name": net} | chosen["net"] if net else None
    with redirect_stdout(sys.stderr):
        report = audit(
            {"name": data} | chosen["data"], model, folder, budget=budget, fix=fix, quick=quick, net=network,
            recipe=chosen["recipe"] or None, seed=seed, device=device, root=data_root,
            command=shlex.join(["spurless", *sys.argv[1:]]),
            settings=tuple(pair for pair in set_ or [] if pair.startswith("data.")), decisions=reviewed,
        )  # fmt: skip
    if as_json:
        print_json(json.loads(report.to_json()))
    else:
        show(report)
        echo(f"Report: {folder / REPORT}    for machines: {folder / FILE}")
    if fail_on is not None and report.verdict in bad[fail_on]:
        raise typer.Exit(4)
