"""One self-contained HTML file, made from saved rows only: no network, no script, no torch."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from spurless import tables
from spurless.paths import atomic
from spurless.report import charts
from spurless.report.summary import summary

SELECTION = {
    "last": "the weights after the last step",
    "val_accuracy": "the epoch with the highest validation accuracy",
    "val_loss": "the epoch with the lowest validation loss",
    "val_worst_group": "the epoch with the highest worst-group accuracy on the validation split",
}
LABELS = {
    "none": "none",
    "selection": "those of the validation split, to pick the weights",
    "validation": "those of the validation split",
    "training": "those of the training split",
}


def write(
    results: Sequence[tables.Result],
    path: str | Path,
    title: str = "Spurless report",
    pictures: Sequence[tuple[str, bytes]] = (),
) -> Path:
    """Write the report on these results (contents of `result.json`), with pictures as (caption, PNG bytes)."""
    page = render(results, title, pictures)
    with atomic(path) as part:
        part.write_text(page, encoding="utf-8")
    return Path(path)


def render(results: Sequence[tables.Result], title: str, pictures: Sequence[tuple[str, bytes]] = ()) -> str:
    """The page as text. Every name in it is data, and is escaped by the template engine."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(files(__package__).joinpath("template.html.j2").read_text(encoding="utf-8"))
    return template.render(
        title=title,
        summary=[text.replace(" %", "\N{NO-BREAK SPACE}%") for text in summary(results)],
        notes=tables.notes(results),
        headings=tables.headings(results),
        rows=tables.rows(results),
        bars=charts.bars(results),
        runs=[_run(r, name) for r, name in zip(results, tables.names(results), strict=True)],
        pictures=[(caption, _data_uri(picture, caption)) for caption, picture in pictures],
    )


def _run(result: tables.Result, name: str) -> dict[str, Any]:
    selection, labels = str(result.get("selection") or "unknown"), str(result.get("labels_used") or "unknown")
    n, folder = result.get("n"), result.get("folder")
    facts = {
        "data": result.get("data"),
        "network": result.get("net"),
        "seed": result.get("seed"),
        "weights": SELECTION.get(selection, selection),
        "bias labels seen": LABELS.get(labels, labels),
        "scored on": f"{n:,} rows of the {result.get('scored_on') or 'test'} split" if isinstance(n, int) else None,
        "folder": Path(folder).name if folder else None,  # the rest of the path is nobody else's business
        "ended": result.get("error"),
    }
    return {
        "name": name,
        "status": None if tables.finished(result) else str(result.get("status")),
        "facts": {k: v for k, v in facts.items() if v is not None},
        "settings": tables.flatten(result.get("settings") or {}),
        "versions": result.get("versions") or {},
        "mining": result.get("mining") or {},
        "curves": charts.curves(result),
        "maps": charts.heat_maps(result),
    }


def _data_uri(picture: bytes, caption: str) -> str:
    if not picture.startswith(b"\x89PNG\r\n\x1a\n"):
        raise ValueError(f"the picture '{caption}' is not a PNG file")
    return "data:image/png;base64," + base64.b64encode(picture).decode()
