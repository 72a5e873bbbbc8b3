"""How the command line and its groups are made: flags are shown without a type in --help, as they take no value."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption


class Command(TyperCommand):
    def get_params(self, ctx: Any) -> Any:
        return _without_types(super().get_params(ctx))


class Group(TyperGroup):
    def get_params(self, ctx: Any) -> Any:
        return _without_types(super().get_params(ctx))


def _without_types(params: list[Any]) -> list[Any]:
    for param in params:
        if isinstance(param, TyperOption) and param.is_flag:
            param.metavar = ""
    return params


class App(typer.Typer):
    """Registers its commands as those above."""

    def __init__(self, help: str):
        super().__init__(
            help=help,
            cls=Group,
            no_args_is_help=True,
            pretty_exceptions_enable=False,
            context_settings={"help_option_names": ["-h", "--help"]},
        )

    def command(self, name: str | None = None, **kwargs: Any) -> Any:
        return super().command(name, **{"cls": Command} | kwargs)
