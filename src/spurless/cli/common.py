"""What all commands share: options, and how a mistake ends."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer

from spurless.core.errors import UserError, first_line, unknown
from spurless.core.messages import show_messages

NAMED_BY = {"method": "the argument METHOD", "data": "the argument DATA", "net": "--net", "recipe": "--recipe"}
SECTIONS = tuple(NAMED_BY)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to standard output and nothing else there.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:1. Default: a GPU if there is one.")]
Root = Annotated[str | None, typer.Option(help="Where data sets lie. Default: SPURLESS_DATA, else the user's cache.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="method.q=0.9, data.rho=0.005, recipe.epochs=5 ..."),
]


def mistakes_in_one_line(command: Callable) -> Callable:
    """A user's mistake ends in one or two sentences and exit code 2, Ctrl-C in one line and 130; never a traceback."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        show_messages()
        try:
            command(*args, **kwargs)
        except UserError as error:
            stop_with(str(error))
        except BrokenPipeError:
            raise  # `spurless list methods | head -1`: typer ends quietly
        except OSError as error:
            if error.strerror is None:
                raise
            stop_with(f"{error.filename2 or error.filename or 'A file'} cannot be used ({error.strerror}).")
        except UnicodeEncodeError as error:
            name = ascii(error.object[max(0, error.start - 20) : error.end + 20])
            stop_with(f"{name} cannot be written as {error.encoding}: a file or folder has such a name. Rename it.")
        except (MemoryError, RuntimeError) as error:
            if not re.search("out of memory|unable to allocate|can't allocate", f"{error}", re.IGNORECASE):
                raise
            stop_with(
                f"There is not enough memory ({first_line(error)}). Try a smaller recipe.batch_size or "
                "recipe.eval_batch_size, fewer rows or smaller images, or another --device."
            )
        except KeyboardInterrupt as stop:
            typer.echo(f"Stopped. {stop}".rstrip(), err=True)
            raise typer.Exit(130) from None

    return wrapped


def stop_with(mistake: str) -> NoReturn:
    typer.secho(f"Error: {mistake}", fg="red", err=True)
    raise typer.Exit(2) from None


def gather(
    pairs: list[str], sections: tuple[str, ...], chosen: dict[str, dict[str, Any]] | None = None
) -> dict[str, dict[str, Any]]:
    """Settings by section from KEY=VALUE pairs, on top of those that are chosen already.

    >>> gather(["data.rho=0.1"], ("data", "net"))
    {'data': {'rho': '0.1'}, 'net': {}}
    """
    found = {section: dict((chosen or {}).get(section, {})) for section in sections}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        section, dot, name = (part.strip() for part in key.partition("."))
        if not equals or not dot or not name:
            raise UserError(f"--set {pair} is not of the form section.name=value, such as {sections[-1]}.name=value.")
        if section not in sections:
            raise unknown("section", section, sections)
        if name == "name":
            raise UserError(f"--set {pair}: the {section} is named by {NAMED_BY[section]}, not by a setting.")
        found[section][name] = value.strip()
    return found


def print_json(row: Any) -> None:
    from spurless.core.files import finite

    sys.stdout.write(json.dumps(finite(row), allow_nan=False) + "\n")  # ASCII: whatever the terminal's encoding
