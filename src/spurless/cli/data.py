"""The commands `list`, `data describe` and `data download`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from spurless.cli.app import App
from spurless.cli.common import echo, gather, mistakes_in_one_line, print_json
from spurless.cli.options import Data, Json, Root, Set
from spurless.core.errors import FolderError, unknown


def add(app: App) -> None:
    """Register the commands."""
    app.command("list")(mistakes_in_one_line(list_))
    data_app = App("Look at datasets, and get them.")
    data_app.command("describe")(mistakes_in_one_line(describe_data))
    data_app.command("download")(mistakes_in_one_line(download_data))
    app.add_typer(data_app, name="data")


def list_(
    what: Annotated[str, typer.Argument(help="methods, inferences, datasets, nets or recipes.")], as_json: Json = False
) -> None:
    """List the methods, group inferences, datasets, networks or recipes, with those of installed packages."""
    from spurless.data.sets import DATASETS
    from spurless.methods import INFERENCES, METHODS
    from spurless.nets import NETS
    from spurless.registry import entry_points

    lists: dict[str, Callable[[], dict[str, str]]] = {
        "methods": lambda: {name: entry.what for name, entry in METHODS.items()} | entry_points("method"),
        "inferences": lambda: {name: entry.what for name, entry in INFERENCES.items()},
        "datasets": lambda: (
            DATASETS | {"folder:PATH": "your own images", "csv:FILE": "your own table"} | entry_points("data")
        ),
        "nets": lambda: NETS | entry_points("net"),
        "recipes": recipes_in_words,
    }
    if what not in lists:
        raise unknown("list", what, lists)
    listed = lists[what]()
    if as_json:
        rows: list[dict[str, Any]] = [{"name": name, "what": text} for name, text in listed.items()]
        if what == "methods":
            rows = [
                row | {"bias_labels": METHODS[row["name"]].labels} if row["name"] in METHODS else row for row in rows
            ]
        sys.stdout.write(json.dumps({what: rows}) + "\n")  # print_json would import torch
        return
    width = max(map(len, listed))
    for name, text in listed.items():
        echo(f"{name:{width}}  {text}")
    if what == "methods":
        echo("method.groups (group_dro, rs, gc_dro, dfr, irm) is one of `spurless list inferences`, with its settings.")


def describe_data(
    data: Data,
    set_: Set = None,
    sheet: Annotated[
        Path | None, typer.Option(help="Also draw a contact sheet of samples, into this PNG file.")
    ] = None,
    data_root: Root = None,
    as_json: Json = False,
) -> None:
    """Print splits, groups and how far each attribute predicts the label; --sheet draws samples."""
    from spurless.core.files import check_output
    from spurless.data.contact_sheet import contact_sheet, is_sheet
    from spurless.data.describe import describe
    from spurless.data.describe_tables import text
    from spurless.registry import load_data

    if sheet:
        check_output(sheet, "--sheet", (b"\x89png",))
    chosen = gather(set_ or [], ("data",))["data"]
    with redirect_stdout(sys.stderr):
        bundle = load_data(chosen | {"name": data}, root=data_root)
        description = describe(bundle)
        if sheet and not is_sheet(sheet):
            raise FolderError(f"--sheet {sheet} is a picture that was not drawn here. Name another file, or remove it.")
        written = contact_sheet(bundle, sheet) if sheet else None
    description["contact_sheet"] = str(written) if written else None
    if as_json:
        print_json(description)
        return
    from spurless.core.terminal import Console

    Console().print(text(description))
    if written:
        echo(f"Contact sheet: {written}")


def download_data(
    name: Annotated[str, typer.Argument(help="A dataset.")],
    data_root: Root = None,
) -> None:
    """Download a dataset that has a public source, checked by checksum; for the others, print what to put where."""
    from spurless.core.files import data_root as find_root
    from spurless.data.download import download

    echo(download(name, find_root(data_root)))


def recipes_in_words() -> dict[str, str]:
    """Each named recipe by what is not as in the default one."""
    from dataclasses import asdict

    from spurless.core.recipe import RECIPES

    usual = asdict(RECIPES["default"])
    words = {
        n: [f"{k} {v}" for k, v in asdict(r).items() if v != usual[k] or k in "optimizer lr".split()]
        for n, r in RECIPES.items()
    }
    return {name: ", ".join(parts) for name, parts in words.items()}
