"""One page on audits, reproductions, sweeps and runs together."""

from __future__ import annotations

from spurless.core.errors import UserError
from spurless.report import audit, runs, studies
from spurless.report.page import draw
from spurless.report.sources import Material


def build(material: Material, title: str | None = None) -> str:
    """The page on all of this, as text."""
    from jinja2 import TemplateError

    try:
        parts = [audit.part(*source) for source in material.audits]
        parts += [studies.reproduction(source) for source in material.reproductions]
        parts += [studies.sweep(source) for source in material.sweeps]
        if material.runs or not parts:
            parts.append(runs.part(material.runs, material.pictures))
        return draw(title or " and ".join(dict.fromkeys(piece.title for piece in parts)), parts)
    except (TypeError, KeyError, AttributeError, IndexError, TemplateError) as error:  # files that somebody else wrote
        what = f"{type(error).__name__}: {error}"
        raise UserError(f"These results cannot be drawn: something in them has an unknown form ({what}).") from error
