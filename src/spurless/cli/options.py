"""The options that commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to standard output and nothing else there.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:1. Default: a GPU if there is one.")]
Root = Annotated[str | None, typer.Option(help="Where datasets lie. Default: SPURLESS_DATA, else the user's cache.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="method.q=0.9, data.rho=0.005, recipe.epochs=5 ..."),
]
Data = Annotated[
    str,
    typer.Argument(help="A dataset: see `spurless list datasets`; or folder:PATH, csv:FILE, package.module:function."),
]
Net = Annotated[
    str | None,
    typer.Option(help="A network: see `spurless list nets`; or package.module:Class. Default: the dataset's own."),
]
MethodName = Annotated[str, typer.Option(help="A method: see `spurless list methods`; or package.module:Class.")]
RecipeName = Annotated[str | None, typer.Option(help="A named recipe, such as pgd-cmnist. Default: the dataset's own.")]
Workers = Annotated[
    int | None,
    typer.Option(
        help="Processes, one training each; 1 on a GPU: lanes. Default: as many as the machine can share.", min=1
    ),
]
AllowCode = Annotated[
    bool,
    typer.Option("--allow-code", help="Import modules that the specification names and that are not installed."),
]
