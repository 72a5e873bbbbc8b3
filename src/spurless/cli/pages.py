"""The commands `report`, `serve` and `card`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spurless.cli.common import echo, mistakes_in_one_line


def add(app: typer.Typer) -> None:
    """Register the commands."""
    for command in (report, serve, card):
        app.command()(mistakes_in_one_line(command))


def report(
    paths: Annotated[list[Path], typer.Argument(help="Runs, audits, JSON files with results, or folders of them.")],
    out: Annotated[Path, typer.Option(help="The HTML file.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="What the page is called.")] = None,
) -> None:
    """Write one self-contained HTML page on runs, audits, sweeps or reproductions."""
    from spurless.core.files import check_output
    from spurless.report import write_any

    check_output(out, "--out", (b"<!doctype html", b"<html"))
    echo(f"Report: {write_any(paths, out, title)}")


def serve(
    folder: Annotated[Path, typer.Argument(help="A folder of runs.")] = Path("runs"),
    port: Annotated[int, typer.Option(help="0: any free one.")] = 8000,
    host: Annotated[str, typer.Option(help="Only this machine, unless another address is named.")] = "127.0.0.1",
) -> None:
    """List the runs of a folder on a local web page that refreshes while they train. It only reads."""
    from spurless.report.serve import serve

    with serve(folder, host, port) as server:
        name = f"[{host}]" if ":" in host else host
        echo(f"Serving {folder} at http://{name}:{server.server_address[1]}/ (Ctrl-C ends it)")
        server.serve_forever()


def card(
    run: Annotated[Path, typer.Argument(help="A finished run's folder.")],
    out: Annotated[Path | None, typer.Option(help="Write it there instead of printing it.")] = None,
) -> None:
    """Write a model card in Markdown, as the Hugging Face Hub reads it, with the results by group."""
    from spurless.core.files import atomic, check_output
    from spurless.report.card import card

    if out is not None:
        check_output(out, "--out", (b"---\nlibrary_name:",))
    text = card(run)
    if out is None:
        echo(text, nl=False)
        return
    with atomic(out) as file:
        file.write_text(text, encoding="utf-8", errors="replace")
    echo(f"Model card: {out}")
