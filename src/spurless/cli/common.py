"""What all commands share: settings, output, and how a mistake ends."""

from __future__ import annotations

import functools
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import typer

from spurless.cli.options import grouped
from spurless.core import output
from spurless.core.errors import UserError, first_line, unknown
from spurless.core.messages import close_displays, printable, show_messages

NAMED_BY = {"method": "the argument METHOD", "data": "the argument DATA", "net": "--net", "recipe": "--recipe"}
SECTIONS = tuple(NAMED_BY)


def mistakes_in_one_line(command: Callable[..., None]) -> Callable[..., None]:
    """A user's mistake ends in one or two sentences and exit code 2, Ctrl-C in one line and 130; never a traceback."""

    command = grouped(command)

    @functools.wraps(command)
    def guarded(*args: Any, **kwargs: Any) -> None:
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
                "recipe.eval_batch_size, fewer samples or smaller images, or another --device."
            )
        except KeyboardInterrupt as stop:
            close_displays()
            echo(f"Stopped. {stop}".rstrip(), err=True)
            raise typer.Exit(130) from None

    return guarded


def stop_with(mistake: str) -> NoReturn:
    close_displays()
    echo(f"Error: {mistake}", err=True, fg="red")
    raise typer.Exit(2) from None


def echo(text: str, err: bool = False, nl: bool = True, fg: str | None = None) -> None:
    """Print text with control characters escaped; on a terminal, lines of errors end where words do."""
    text = printable(text)
    if err and sys.stderr.isatty():
        text = wrapped(text, shutil.get_terminal_size().columns)
    typer.secho(text, err=err, nl=nl, fg=fg)


def wrapped(text: str, width: int) -> str:
    """Each line cut where words end; a continued line keeps its indentation, and a long path stays whole.

    >>> wrapped("Error: /a/long/path/to/a is no folder", 20)
    'Error:\\n/a/long/path/to/a is\\nno folder'
    """
    cut = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        how = {"subsequent_indent": indent, "break_long_words": False, "break_on_hyphens": False}
        cut += textwrap.wrap(line, max(width, 20), **how) or [""]  # type: ignore[arg-type]
    return "\n".join(cut)


def gather(
    pairs: list[str], sections: tuple[str, ...], chosen: dict[str, dict[str, Any]] | None = None
) -> dict[str, dict[str, Any]]:
    """Settings by section from KEY=VALUE pairs, on top of those that are chosen already.

    >>> gather(["data.rho=0.1"], ("data", "net"))
    {'data': {'rho': '0.1'}, 'net': {}}
    """
    settings = {section: dict((chosen or {}).get(section, {})) for section in sections}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        section, dot, name = (word.strip() for word in key.partition("."))
        if not equals or not dot or not name:
            raise UserError(f"--set {pair} is not of the form section.name=value, such as {sections[-1]}.name=value.")
        if section not in sections:
            raise unknown("section", section, sections)
        if name == "name":
            raise UserError(f"--set {pair}: the {section} is named by {NAMED_BY[section]}, not by a setting.")
        settings[section][name] = value.strip()
    return settings


def print_json(row: Any) -> None:
    from spurless.core.files import finite

    sys.stdout.write(json.dumps(finite(row), allow_nan=False) + "\n")  # ASCII: whatever the terminal's encoding


def default_folder(method: str, data: str, net: str, seed: int, chosen: dict[str, dict[str, Any]]) -> Path:
    """runs/METHOD-DATA-NET-seedN, with a short hash when settings were given, so that each has a folder of its own."""
    from spurless.registry import PLACES, data_name

    data = data_name(data)
    given = {s: {k: v for k, v in table.items() if k != "name" or s == "recipe"} for s, table in chosen.items()}
    given = {s: table for s, table in given.items() if table}
    if data.partition(":")[0] in PLACES:
        given["place"] = {"path": str(Path(data.partition(":")[2]).resolve())}
    return output.default_folder(method, data, net, f"seed{seed}", given=given)


def show_result(row: dict[str, Any]) -> None:
    from spurless.core.terminal import Console
    from spurless.report.tables import comparison

    console = Console()
    facts = [f"{row['data']}: {row.get('status')}"]
    if row.get("scores"):
        console.print(comparison([row]))  # with the notes
        facts = [f"{row['data']}, n = {row.get('n')}"]
        if row.get("split"):  # of evaluate
            facts[0] += ", all samples" if row["split"] == "all" else f", split {row['split']}"
        if row.get("scored_on", "test") != "test":
            facts.append(f"scored on the split {row['scored_on']}: there is no test split")
        if row.get("selection"):
            facts.append(f"weights picked by: {row['selection']}; bias labels used: {row['labels_used']}")
    elif row.get("error"):
        facts.append(row["error"])
    if row.get("folder"):
        facts.append(f"saved in {row['folder']}")
    for fact in facts:
        console.print(fact, markup=False, highlight=False)
