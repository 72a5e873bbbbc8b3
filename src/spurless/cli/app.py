"""How the command line and its groups are made."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from spurless.core.messages import printable


@contextmanager
def _escaped() -> Iterator[None]:
    """Control characters in a message about wrong arguments are escaped."""
    try:
        yield
    except Exception as error:
        if isinstance(message := getattr(error, "message", None), str):
            error.message = printable(message)  # type: ignore[attr-defined]
        raise


class _Unused:
    """Stands in for a class of rich that help never makes; whoever does make one gets the real one."""

    module = name = ""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return getattr(importlib.import_module(cls.module), cls.name)(*args, **kwargs)


def quick_help() -> None:
    """Load what typer prints help with, less Markdown and tracebacks, which would take a third of the time."""
    if "typer.rich_utils" in sys.modules:
        return
    placed = []
    for module, name in (("rich.markdown", "Markdown"), ("rich.traceback", "Traceback")):
        if module not in sys.modules:
            placed.append(module)
            sys.modules[module] = ModuleType(module)
            setattr(sys.modules[module], name, type(name, (_Unused,), {"module": module, "name": name}))
    try:
        importlib.import_module("typer.rich_utils")
    finally:
        for module in placed:
            del sys.modules[module]


def _without_types(params: list[Any]) -> list[Any]:
    """Flags are shown without a type in --help, as they take no value."""
    for param in params:
        if isinstance(param, TyperOption) and param.is_flag:
            param.metavar = ""
    return params


class Command(TyperCommand):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        quick_help()
        super().format_help(ctx, formatter)

    def get_params(self, ctx: Any) -> Any:
        return _without_types(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        with _escaped():
            return super().parse_args(ctx, args)


class Group(TyperGroup):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        quick_help()
        super().format_help(ctx, formatter)

    def get_params(self, ctx: Any) -> Any:
        return _without_types(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        with _escaped():
            return super().resolve_command(ctx, args)


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
