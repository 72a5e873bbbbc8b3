"""The options that commands share: single ones, and groups of them that are always offered together."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from spurless.core.errors import SettingError

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to standard output and nothing else there.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:1. Default: a GPU if there is one.")]
Root = Annotated[str | None, typer.Option(help="Where datasets lie. Default: SPURLESS_DATA, else the user's cache.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="method.q=0.9, data.rho=0.005, recipe.epochs=5 ..."),
]
Method = Annotated[str, typer.Argument(help="A method: see `spurless list methods`; or package.module:Class.")]
Data = Annotated[
    str,
    typer.Argument(
        help="A dataset: see `spurless list datasets`; the path of a folder or table; package.module:function."
    ),
]
Net = Annotated[
    str | None,
    typer.Option(help="A network: see `spurless list nets`; or package.module:Class. Default: the dataset's own."),
]
MethodName = Annotated[str, typer.Option(help="A method: see `spurless list methods`; or package.module:Class.")]
RecipeName = Annotated[str | None, typer.Option(help="A named recipe, such as pgd-cmnist. Default: the dataset's own.")]
Seed = Annotated[int, typer.Option(help="Decides everything that is random.")]
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


@dataclass(frozen=True)
class Where:
    """Where a command computes, and where its data lies."""

    device: Device = None
    data_root: Root = None


@dataclass(frozen=True)
class Machine:
    """Where trainings run side by side, and where their data lies."""

    device: Device = None
    workers: Workers = None
    data_root: Root = None

    def options(self) -> dict[str, Any]:
        return {"device": self.device, "workers": self.workers, "root": self.data_root}


@dataclass(frozen=True)
class Training:
    """What is trained, beside the data."""

    net: Net = None
    method: MethodName = "erm"
    recipe: RecipeName = None
    set_: Set = None


@dataclass(frozen=True)
class Judged:
    """The model that is judged: a given one, or how a plain one is trained."""

    model: Annotated[
        Path | None, typer.Option(help="A run's folder or a weights file. Default: a plain model is trained.")
    ] = None
    net: Annotated[str | None, typer.Option(help="The network of a weights file, or of the model to train.")] = None
    seed: Seed = 0
    set_: Set = None

    def network(self, settings: dict[str, Any]) -> dict[str, Any] | None:
        return {"name": self.net} | settings if self.net else None


def check_minutes(budget: float | None) -> None:
    if budget is not None and not math.isfinite(budget):
        raise SettingError(f"--budget {budget} is not allowed; it takes a number of minutes.")


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take dataclasses of options: each of their fields becomes an option of its own."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if is_dataclass(kind := parameter.annotation):
            groups[parameter.name] = kind
            hints = get_type_hints(kind, include_extras=True)
            for of in fields(kind):
                default = inspect.Parameter.empty if of.default is MISSING else of.default
                parameters.append(_option(of.name, default, hints[of.name]))
        else:
            parameters.append(_option(parameter.name, parameter.default, parameter.annotation))

    @functools.wraps(command)
    def with_groups(**given: Any) -> None:
        made = {name: kind(**{of.name: given.pop(of.name) for of in fields(kind)}) for name, kind in groups.items()}
        command(**given, **made)

    with_groups.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_groups.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_groups


def _option(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
