"""The command `fix`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spurless.cli.common import echo, gather, mistakes_in_one_line, print_json
from spurless.cli.options import Data, Json, Judged, RecipeName, Where, check_minutes
from spurless.core.output import default_folder

if TYPE_CHECKING:
    from spurless.auditing.fixing import Fixed, Tried


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(mistakes_in_one_line(fix))


def fix(
    data: Data,
    judged: Judged,
    where: Where,
    recipe: RecipeName = None,
    decisions: Annotated[
        Path | None, typer.Option(help="The decisions.json of `spurless review`: what is a shortcut.")
    ] = None,
    budget: Annotated[float, typer.Option(help="Minutes for everything.", min=0.1)] = 20.0,
    out: Annotated[Path | None, typer.Option(help="The repair's folder. Default: runs/fix-DATA-seedN.")] = None,
    as_json: Json = False,
) -> None:
    """From data to a better model: audit, train what may repair it, and keep what is better on held-out samples."""
    check_minutes(budget)
    chosen = gather(judged.set_ or [], ("data", "net", "recipe"))
    asked: dict[str, object] = {k: v for k, v in chosen.items() if v}
    if judged.model is not None:
        asked["model"] = str(judged.model.resolve())
    if decisions is not None:
        asked["decisions"] = str(decisions.resolve())
    folder = out or default_folder("fix", data, judged.net or "", f"seed{judged.seed}", given=asked)
    from spurless.auditing.fixing import FILE
    from spurless.auditing.fixing import fix as repair

    named = {"name": recipe} if recipe else {}
    with redirect_stdout(sys.stderr):
        fixed = repair(
            {"name": data} | chosen["data"] if chosen["data"] else data, judged.model, budget=budget,
            net=judged.network(chosen["net"]), recipe=named | chosen["recipe"] or None, seed=judged.seed,
            out=folder, device=where.device, root=where.data_root, decisions=decisions,
        )  # fmt: skip
    if as_json:
        print_json(fixed.to_dict())
        return
    for line in screen(fixed):
        echo(line)
    echo(f"The model: {folder / (fixed.chosen or 'erm')}    its card: {folder / 'README.md'}    all: {folder / FILE}")


def screen(fixed: Fixed) -> list[str]:
    """What the command prints: the answer, and each model before and after on the test split."""
    lines = [f"Audit: {fixed.report.headline}", "", f"{'model':<12}{'misleads':>24}{'elsewhere':>24}{'average':>24}"]
    for tried in fixed.tried:
        mark = "*" if tried.method == fixed.chosen else " "
        lines.append(f"{tried.method + mark:<12}" + "".join(f"{shown(s):>24}" for s in columns(tried)))
    lines += ["accuracy in percent [95 % CI] on the test split; * chosen on other held-out samples", ""]
    lines += [f"Left out: {skipped}." for skipped in fixed.skipped]
    return [*lines, *fixed.notes, fixed.text]


def columns(tried: Tried) -> tuple[dict[str, float | int] | None, ...]:
    return tried.misleads, tried.helps, tried.average


def shown(score: dict[str, float | int] | None) -> str:
    """
    >>> shown({"value": 75.0, "low": 30.06, "high": 95.44, "n": 4}), shown(None)
    ('75.0 [30.1–95.4] n=4', '–')
    """
    return "–" if score is None else f"{score['value']:.1f} [{score['low']:.1f}–{score['high']:.1f}] n={score['n']}"
