"""The commands `sweep` and `suggest-lr`."""

from __future__ import annotations

import math
import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from spurless.cli.common import SECTIONS, echo, gather, mistakes_in_one_line, print_json
from spurless.cli.options import Data, Machine, Training
from spurless.core.errors import SettingError, UserError


def add(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(mistakes_in_one_line(sweep))
    app.command("suggest-lr")(mistakes_in_one_line(suggest_lr))


def sweep(
    data: Data,
    over: Annotated[
        list[str],
        typer.Option(
            help="lr, batch_size, momentum, l1, l2, focal.gamma, asam.rho, or any setting such as method.q. After a "
            "comma, what is fixed for this sweep: l2,lr=0.1. May be repeated, each with its --values."
        ),
    ],
    values: Annotated[list[str], typer.Option(help="0.001,0.01,0.1: the values of the --over at the same place.")],
    training: Training,
    machine: Machine,
    seeds: Annotated[int, typer.Option(help="Runs at each value.", min=1)] = 3,
    out: Annotated[Path | None, typer.Option(help="The folder. Default: runs/sweep-DATA-NET-...")] = None,
    dynamics: Annotated[
        bool,
        typer.Option("--dynamics", help="Watch the steps: whose loss it is, and whether accuracy goes with that."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the points as a JSON list, and nothing else.")] = False,
) -> None:
    """Train over a setting and measure accuracy by group, prunability and representation; say which value to choose.
    Re-running the command resumes the sweep; more values or seeds are added to it."""
    from spurless.sweep import run_sweep
    from spurless.sweep.terminal import MEANING, tables

    chosen = settings(data, training)
    with redirect_stdout(sys.stderr):
        result = run_sweep(
            chosen["data"], over, values, chosen["net"] or None, chosen["method"], chosen["recipe"] or None, seeds, out,
            command=shlex.join(["spurless", *sys.argv[1:]]), dynamics=dynamics or None,
            **machine.options(),
        )  # fmt: skip
    if as_json:
        series = result.get("series") or [result]
        print_json([{"over": one["over"]} | point for one in series for point in one["points"]])
        return
    show(result, tables(result), MEANING)


def suggest_lr(
    data: Data,
    training: Training,
    machine: Machine,
    budget: Annotated[float, typer.Option(help="Seconds after which no further rate is tried.", min=1)] = 600.0,
    seeds: Annotated[int, typer.Option(help="Runs at each rate; one that fails is enough.", min=1)] = 1,
    out: Annotated[Path | None, typer.Option(help="The folder. Default: runs/suggest-lr-DATA-NET-...")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else.")] = False,
) -> None:
    """Find the largest stable learning rate, and what it buys over the recipe's own. Re-running resumes."""
    if not math.isfinite(budget):
        raise SettingError(f"--budget {budget} is not allowed; it takes a number of seconds.")
    from spurless.sweep import suggest_lr as suggest
    from spurless.sweep.terminal import MEANING, tables

    chosen = settings(data, training)
    with redirect_stdout(sys.stderr):
        result = suggest(
            chosen["data"], chosen["net"] or None, chosen["method"], chosen["recipe"] or None, seeds, budget, out,
            command=shlex.join(["spurless", *sys.argv[1:]]), **machine.options(),
        )  # fmt: skip
    if as_json:
        print_json(result)
        return
    show(result, tables(result), MEANING)


def settings(data: str, training: Training) -> dict[str, dict[str, Any]]:
    """What was given on the command line, by section."""
    chosen = gather(training.set_ or [], SECTIONS)
    names = {"data": data, "net": training.net, "method": training.method, "recipe": training.recipe}
    chosen |= {section: {"name": name} | chosen[section] for section, name in names.items() if name is not None}
    if training.net is None and chosen["net"]:
        raise UserError("--set net... needs --net, which says whose setting it is.")
    return chosen


def show(result: dict[str, Any], tables: list[Any], meaning: str) -> None:
    """The tables, the words and the files."""
    from spurless.core.terminal import Console
    from spurless.sweep.run import FILE, PLOT, REPORT

    console = Console()
    for table in tables:
        console.print(table)
        console.print()
    runs = len(result["seeds"])
    console.print(
        meaning.format(runs=f"Means over {runs} seeds (± standard deviation)" if runs > 1 else "One seed"),
        highlight=False,
    )
    console.print()
    console.print(result["text"], markup=False, highlight=False)
    if result["notes"]:
        console.print("\n" + "\n".join(result["notes"]), markup=False, highlight=False)
    folder = Path(result["folder"])
    echo(f"\nPlot: {folder / PLOT}    report: {folder / REPORT}    for machines: {folder / FILE}")
