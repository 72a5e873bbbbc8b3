"""The command line. Each command is a thin wrapper around a Python function; one file per group of commands."""

from __future__ import annotations

import io
import signal
import sys
from typing import Annotated

import typer

from spurless import __version__
from spurless.cli import audit, bench, compress, data, fix, pages, predict, review, runs, sweep
from spurless.cli.app import App

app = App("Find, measure and remove spurious correlations from classifiers.")


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"spurless {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Find, measure and remove spurious correlations from classifiers."""


for group in (runs, predict, audit, fix, review, pages, compress, data, bench, sweep):
    group.add(app)


def main() -> None:
    for name in ("SIGTERM", "SIGHUP"):  # end as Ctrl-C does, unless they are to be ignored, as under nohup
        sign = getattr(signal, name, None)
        if sign is not None and signal.getsignal(sign) == signal.SIG_DFL:
            signal.signal(sign, signal.default_int_handler)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names that the terminal's encoding lacks
    try:
        app()
    except KeyboardInterrupt:  # before the command began: there is nothing to say
        sys.exit(130)


if __name__ == "__main__":
    main()
