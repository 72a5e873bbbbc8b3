"""The commands `export` and `prune`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from spurless.cli.common import echo, gather, mistakes_in_one_line, print_json
from spurless.cli.options import Json, Set, Where


def add(app: typer.Typer) -> None:
    """Register the commands."""
    for command in (export, prune):
        app.command()(mistakes_in_one_line(command))


def export(
    model: Annotated[Path, typer.Argument(help="A run's folder, or a weights file.")],
    out: Annotated[Path | None, typer.Option(help="The folder. Default: runs/export-NAME.")] = None,
    formats: Annotated[
        list[str] | None, typer.Option("--format", help="plain, torch or onnx; may be repeated. Default: all.")
    ] = None,
    cut: Annotated[bool, typer.Option("--cut/--no-cut", help="Remove dead channels for good.")] = True,
    with_preprocessing: Annotated[
        bool, typer.Option("--with-preprocessing", help="The files take images as raw bytes (uint8).")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a network as files that need nothing of Spurless, without its dead channels, and measure it."""
    from spurless.compress.export import export
    from spurless.compress.figures import lines

    with redirect_stdout(sys.stderr):
        exported = export(model, out, formats, cut, with_preprocessing=with_preprocessing)
    if as_json:
        print_json(exported)
        return
    echo("\n".join([*lines(exported), f"Saved in {exported['folder']}"]))


@dataclass(frozen=True)
class PruningOptions:
    """How a network is pruned and trained on."""

    keep: Annotated[list[float] | None, typer.Option(help="Share that stays; may be repeated. Default: 0.3.")] = None
    how: Annotated[str, typer.Option(help="magnitude, avp, random or dcwp.")] = "magnitude"
    structured: Annotated[bool, typer.Option("--structured", help="Remove whole channels, not single weights.")] = False
    finetune: Annotated[float, typer.Option(help="Train on: a share of the recipe's length.", min=0)] = 0.0
    objective: Annotated[str, typer.Option(help="own: train on as the run was trained; plain: cross entropy.")] = "own"
    batchnorm: Annotated[str, typer.Option(help="Its statistics: kept, or recomputed from training samples.")] = "kept"


def prune(
    run: Annotated[Path, typer.Argument(help="A finished run's folder. It is not changed.")],
    pruning: PruningOptions,
    where: Where,
    seed: Annotated[int | None, typer.Option(help="Decides everything that is random. Default: the run's.")] = None,
    out: Annotated[Path | None, typer.Option(help="The folder. Default: runs/prune-NAME-HOW-...")] = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Prune a trained run to one or more sizes, score each, and draw accuracy against size."""
    from spurless.compress.prune import prune
    from spurless.compress.prune_curve import table
    from spurless.compress.prune_trained import Pruning

    settings = gather(set_ or [], ("method", "recipe"))
    how = Pruning(**{name: value for name, value in vars(pruning).items() if name != "keep"}, settings=settings)
    with redirect_stdout(sys.stderr):
        pruned = prune(
            run, pruning.keep or [0.3], how, out=out, seed=seed, device=where.device, root=where.data_root
        )  # fmt: skip
    if as_json:
        print_json(pruned)
        return
    from spurless.core.terminal import Console

    Console().print(table(pruned))
    echo(f"Saved in {pruned['folder']}; the curve: curve.png")
