"""The command `predict`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from spurless.cli.common import echo, mistakes_in_one_line, print_json
from spurless.cli.options import Device, Json

SHOWN = 50  # rows of the table on a terminal


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(mistakes_in_one_line(predict))


def predict(
    model: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, or a weights file.")],
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Images or folders of them, tables, or .txt files of texts.")
    ],
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write all predictions there.")] = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Predict the class of new files with a trained model. No labels are needed."""
    from spurless.core.files import atomic, check_output
    from spurless.core.messages import inert
    from spurless.train.saved import load_predictor

    if csv:
        check_output(csv, "--csv", (b"name,",))
    with redirect_stdout(sys.stderr):
        rows = load_predictor(model, device).frame_of_paths(paths)
    if csv:
        with atomic(csv) as file:
            rows.map(inert).to_csv(file, index=False)
    if as_json:
        print_json({"model": str(model), "predictions": rows.to_dict("records")})
        return
    from rich.table import Table
    from rich.text import Text

    from spurless.core.terminal import Console

    table = Table("name", "prediction", "probability")
    for name, prediction, probability in rows.head(SHOWN).itertuples(index=False):
        table.add_row(Text(name, overflow="fold"), Text(prediction), f"{probability:.3f}")
    Console().print(table)
    if len(rows) > SHOWN:
        echo(f"{len(rows) - SHOWN:,} more predictions; {'all are in the file' if csv else '--csv FILE writes all'}.")
    if csv:
        echo(f"Predictions: {csv}")
