"""The commands `bench`, `reproduce` and `compare`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spurless.cli.common import echo, mistakes_in_one_line, print_json
from spurless.cli.options import AllowCode, Json, Machine
from spurless.core.errors import UserError, unknown
from spurless.core.extras import check_extra

if TYPE_CHECKING:
    from spurless.bench import Spec


@dataclass(frozen=True)
class Chosen:
    """Which trials, and where they are kept."""

    out: Annotated[Path | None, typer.Option(help="The folder of trials and rows; several processes may share it.")] = (
        None
    )
    only: Annotated[list[str] | None, typer.Option(help="A block or row by its label; may be repeated.")] = None
    seeds: Annotated[int | None, typer.Option(help="So many seeds, instead of those in the specification.", min=1)] = (
        None
    )


@dataclass(frozen=True)
class Executor(Machine):
    """Where the trials run."""

    on: Annotated[str, typer.Option(help="here, ray or slurm.")] = "here"
    address: Annotated[str | None, typer.Option(help="The Ray cluster's address. Default: the one that is found.")] = (
        None
    )
    gpus_per_trial: Annotated[
        float | None,
        typer.Option(
            "--gpus-per-trial",
            "--gpus-per-cell",
            help="On Ray: GPUs for each trial, such as 0.25; 0 keeps to CPUs. Default: 0.25 where there are GPUs.",
        ),
    ] = None
    compile: Annotated[
        bool | None,
        typer.Option(help="Compile the losses with torch.compile. Default: on a GPU, if the specification says so."),
    ] = None

    def options(self) -> dict[str, Any]:
        return super().options() | {
            name: getattr(self, name) for name in ("on", "address", "gpus_per_trial", "compile")
        }


@dataclass(frozen=True)
class Output:
    """What is printed."""

    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what is to do or missing, and how long it takes.")
    ] = False
    form: Annotated[str, typer.Option("--format", help="table, markdown, latex, csv, jsonl or parquet.")] = "table"
    as_json: Json = False


def add(app: typer.Typer) -> None:
    """Register the commands."""
    for command in (bench, reproduce, compare):
        app.command()(mistakes_in_one_line(command))


def bench(
    specification: Annotated[Path, typer.Argument(metavar="SPEC.toml", help="What to run: see docs/bench.md.")],
    chosen: Chosen,
    executor: Executor,
    output: Output,
    allow_code: AllowCode = False,
) -> None:
    """Run a specification: data x method x network x recipe x seeds. Re-running the command resumes it."""
    folder = chosen.out or Path("runs/bench") / specification.stem
    _run(lambda: read(specification, chosen, allow_code), folder, executor, output, page=False)


def reproduce(
    chosen: Chosen,
    executor: Executor,
    output: Output,
    name: Annotated[str | None, typer.Argument(help="A published table. Without it, they are listed.")] = None,
) -> None:
    """Reproduce a published table: run or resume its trials, print ours beside the paper's, write the page."""
    from spurless.bench.reproduce import paper, titles

    if name is None:
        tables = titles()
        if output.as_json:
            print_json({"tables": [{"name": k, "what": v} for k, v in tables.items()]})
            return
        width = max(map(len, tables), default=0)
        echo("\n".join(f"{k:{width}}  {v}" for k, v in tables.items()) or "No papers' tables are installed here.")
        return
    path = paper(name)
    _run(lambda: read(path, chosen), chosen.out or Path("runs/reproduce") / name, executor, output, page=True)


def read(path: Path, chosen: Chosen, allow_code: bool = True) -> Spec:
    """A specification, or the part of it with the chosen labels."""
    from spurless.bench import read_spec

    spec = read_spec(path, chosen.seeds, allow_code)
    return spec.only(chosen.only) if chosen.only else spec


def _run(read_it: Callable[[], Spec], out: Path, executor: Executor, output: Output, page: bool) -> None:
    from spurless.bench import run_trials, table
    from spurless.bench.board import Board
    from spurless.bench.remarks import remarks
    from spurless.bench.trials import remember

    if output.form not in table.FORMATS:
        raise unknown("format", output.form, table.FORMATS)
    if output.form == "parquet":
        check_extra("--format parquet", "parquet", instead="use jsonl")
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is a file; name a folder.")
    remember(out)
    if output.dry_run:
        _plan(read_it, out, executor, output.as_json)
        return
    with redirect_stdout(sys.stderr):  # libraries print where they please
        spec = read_it()
        options = executor.options()
        if options["compile"] is None:
            options["compile"] = "gpu" if spec.compile else False
        rows = run_trials(spec.trials(), out, watch=Board(), **options)
    written = None
    if page:
        from spurless.bench.reproduce import write_page

        written = write_page(spec, rows, out, shlex.join(["spurless", *sys.argv[1:]]))
    if output.as_json:
        print_json(
            {"title": spec.title, "source": spec.source, "folder": str(out), "page": written and str(written)}
            | {"table": table.as_json(spec, rows), "notes": remarks(spec, rows)}
            | _counts({row["key"]: row["status"] for row in rows})
        )
    else:
        _show(spec, rows, out, output.form)
        if written:
            echo(f"Page: {written}", err=output.form != "table")
    if any(row["status"] == "failed" for row in rows):
        raise typer.Exit(3)


def _plan(read_it: Callable[[], Spec], out: Path, executor: Executor, as_json: bool) -> None:
    from spurless.bench.reproduce import plan, plan_text

    with redirect_stdout(sys.stderr):
        planned = plan(read_it(), out, executor.device, executor.workers, executor.data_root)
    if as_json:
        print_json(planned)
    else:
        echo(plan_text(planned))


def _counts(statuses: dict[str, str]) -> dict[str, int]:
    """How many trials there are and how they ended, each once, in however many lines of the table it is.

    >>> _counts({"a": "done", "b": "done", "c": "failed"})
    {'cells': 3, 'done': 2, 'diverged': 0, 'failed': 1}
    """
    ended = list(statuses.values())
    return {"cells": len(ended)} | {status: ended.count(status) for status in ("done", "diverged", "failed")}


def _show(spec: Spec, rows: list[dict[str, Any]], out: Path, form: str) -> None:
    from spurless.bench import table
    from spurless.bench.rows import JSONL, PARQUET, write_parquet

    if form == "parquet":
        echo(f"Rows: {write_parquet(rows, out / PARQUET)}")
    elif form == "jsonl":
        echo(f"Rows: {out / JSONL}")
    elif form == "table":
        from spurless.core.terminal import Console

        Console().print(table.terminal(spec, rows))
        echo(f"Rows: {out / JSONL}")
    else:
        text = {"markdown": table.markdown, "latex": table.latex, "csv": table.as_csv}[form](spec, rows)
        echo(text.rstrip("\n"))


def compare(
    what: Annotated[
        list[str],
        typer.Argument(metavar="A [B] [LABEL]...", help="One or two folders or files of results; labels or methods."),
    ],
    metric: Annotated[str | None, typer.Option(help="The score. Default: the specification's, else unbiased.")] = None,
    against: Annotated[str | None, typer.Option(help="Compare everything with this label only.")] = None,
    as_json: Json = False,
) -> None:
    """Test which differences are real: paired over seeds and settings, corrected for the number of comparisons."""
    from spurless.bench import compare

    lines, notes = compare.compare(what, metric, against)
    if as_json:
        print_json(compare.as_json(lines, notes))
        return
    from spurless.core.terminal import Console

    Console().print(compare.terminal(lines, notes))
