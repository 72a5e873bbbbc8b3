"""One self-contained HTML file, made from saved rows only: no network, no torch, and names are text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spurless.core.files import atomic
from spurless.report.sources import Material, find, read_json
from spurless.report.tables import Result
from spurless.report.whole import build


def write(
    results: Sequence[Result],
    path: str | Path,
    title: str = "Spurless report",
    pictures: Sequence[tuple[str, bytes]] = (),
) -> Path:
    """Write the report on these results (contents of `result.json`), with pictures as (caption, PNG bytes)."""
    return _save(render(results, title, pictures), path)


def write_audit(folder_or_json: str | Path, path: str | Path, title: str | None = None) -> Path:
    """Write the report on one audit: a folder that holds `audit.json`, or that file."""
    source = Path(folder_or_json)
    file = source / "audit.json" if source.is_dir() else source
    return _save(build(Material(audits=[(read_json(file), file.parent)]), title), path)


def write_any(paths: Sequence[str | Path], out: str | Path, title: str | None = None) -> Path:
    """Write one report on everything at these paths: run folders, audit folders, JSON files, folders of those."""
    return _save(build(find(paths), title), out)


def render(results: Sequence[Result], title: str, pictures: Sequence[tuple[str, bytes]] = ()) -> str:
    """The page on these results as text."""
    return build(Material(runs=list(results), pictures=list(pictures)), title)


def _save(page: str, path: str | Path) -> Path:
    with atomic(path) as unfinished:
        unfinished.write_text(page, encoding="utf-8", errors="replace")  # a file name can be any bytes
    return Path(path)
