"""The page: a title, a summary, sections. The templates draw it; every value in them is escaped."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

    from spurless.core.stats import Estimate

TIGHT = r" (?=%)|(?<=\b[np]) (?=[=<])|(?<=\b[np][ \xa0][=<]) (?=\d)"  # no line begins with %, nor ends with n =


@dataclass
class Section:
    """One part of the page: a template of the same folder, and what it draws."""

    name: str  # of the template
    title: str
    data: Any
    note: str = ""
    short: str = ""  # its name in the list of sections, where the title is long
    half: bool = False  # beside its neighbour on a wide screen
    detail: bool = False  # below the heading "Details", for whoever wants to check
    id: str = ""


@dataclass
class Part:
    """What one audit, sweep, reproduction or set of runs has to say: sentences for the top, and sections."""

    lead: list[str]
    sections: list[Section]
    title: str
    notes: list[str] = field(default_factory=list)
    verdict: str | None = None  # of an audit
    look: tuple[str, str] = ("", "")  # of the verdict: its CSS class and its sign
    tiles: list[dict[str, str]] = field(default_factory=list)  # the few numbers to remember: name, text, meaning


def tile(name: str, score: Estimate | None) -> dict[str, str]:
    """A number to remember, without decimals."""
    if not score:
        return {}
    limits = "" if score.low is None else f"95 % CI {score.low:.0f}–{score.high:.0f}"
    return {"name": name, "text": f"{score.value:.0f} %", "meaning": limits}


def draw(title: str, parts: list[Part]) -> str:
    """Put the parts on one page."""
    sections = [section for piece in parts for section in piece.sections]
    titles, names = Counter(s.title for s in sections), Counter[str]()
    for piece in parts:
        for section in piece.sections:  # two audits have sections of the same name
            names[section.name] += 1
            section.id = f"{section.name}-{names[section.name]}" if names[section.name] > 1 else section.name
            if titles[section.title] > 1:
                section.title, section.short = f"{section.title}: {piece.title}", ""
    script = source("script.js")
    return environment().get_template("page.html.j2").render(
        title=title,
        parts=parts,
        sections=sections,
        style=source("style.css"),
        script=script,
        # The one script that may run: whatever else gets into the page stays text.
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )  # fmt: skip


@functools.cache
def environment() -> Environment:
    """Jinja with every value escaped, and a mistake in a name an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("spurless.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["percent"] = lambda x: f"{x:.2f}%"
    made.filters["words"] = lambda name: str(name).replace("_", " ")
    made.filters["tight"] = lambda text: re.sub(TIGHT, "\N{NO-BREAK SPACE}", str(text))
    return made


def source(name: str) -> str:
    """A file of the templates' folder as it is, for the style and the script."""
    loader = environment().loader
    assert loader is not None
    return loader.get_source(environment(), name)[0]
