"""The command `review`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spurless.cli.common import echo, mistakes_in_one_line


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(mistakes_in_one_line(review))


def review(
    audit: Annotated[Path, typer.Argument(help="An audit's folder.")],
    port: Annotated[int, typer.Option(help="0: any free one.", min=0, max=65535)] = 0,
    browser: Annotated[bool, typer.Option("--browser", help="Open the page in this machine's browser.")] = False,
) -> None:
    """Decide on a local web page which findings of an audit are shortcuts, and mend their groups."""
    from spurless.auditing.decisions import CHOICES
    from spurless.auditing.review import review

    made = review(audit, port, browser, echo)
    for choice in CHOICES:
        names = [f.name for f in made.findings if f.decision == choice]
        if names:
            echo(f"{choice}: {', '.join(names)}")
    echo(f"Decisions: {made.path}    spurless audit ... --decisions {made.path}")
    if made.table is not None:
        echo(f"Group labels: {made.table}    spurless train group_dro ... --set data.attribute={made.table}")
