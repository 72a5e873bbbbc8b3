"""The part of the page on runs: one, or several side by side."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

from spurless.report import charts, lines, points, tables
from spurless.report.page import Part, Section, tile
from spurless.report.pictures import png_uri
from spurless.report.summary import summary, worlds

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


def part(results: Sequence[tables.Result], pictures: Sequence[tuple[str, bytes]] = ()) -> Part:
    """Sentences and sections, each section only where there is something to draw."""
    shown = tables.names(results)
    runs = [_run(r, name) for r, name in zip(results, shown, strict=True)]
    changes = [panel for world in worlds(results) for panel in charts.before_after(world)]
    sheet = {"headings": tables.headings(results), "rows": table(results)}
    sections = [
        Section("accuracy", "Accuracy", charts.bars(results), "In percent, with 95 % CIs."),
        Section("change", "Group by group", changes),
        Section("results", "All results", sheet),
        Section("groups", "Every group", _having("maps", runs)),
        Section("pictures", "Pictures", [{"caption": c, "uri": png_uri(p, c)} for c, p in pictures]),
        Section("mined", "Scores of the training samples", _having("histograms", runs)),
        Section("confusion", "What is predicted for what", _having("confusion", runs)),
        Section(
            "points", "What the network sees", [r["points"] | {"name": r["name"]} for r in _having("points", runs)]
        ),
        Section("training", "Training", _having("curves", runs)),
    ]
    kept = [s for s in sections if (s.data["rows"] if s.name == "results" else s.data)]
    kept.append(Section("measured", "How this was measured", runs))
    return Part(summary(results), kept, _title(results), tables.notes(results), tiles=_tiles(results))


def _having(key: str, runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [run for run in runs if run[key]]


def _tiles(results: Sequence[tables.Result]) -> list[dict[str, str]]:
    """Of one dataset: what the plain method and the best other come to where the shortcut misleads."""
    groups = worlds(results)
    if len(groups) != 1 or groups[0].first != "conflicting":
        return []
    _, baseline, _, best, _ = groups[0]
    named = [(f"{baseline.name}: right where the shortcut misleads", baseline.mean("conflicting"))]
    if best:
        named.append((f"{best.name}: right where the shortcut misleads", best.mean("conflicting")))
    last = best or baseline
    named.append((f"{last.name}: right where it helps", last.mean("aligned")))
    return [made for name, score in named if (made := tile(name, score))]


def _title(results: Sequence[tables.Result]) -> str:
    if len(results) == 1:
        return f"{results[0].get('method')} on {results[0].get('data')}"
    data = list(dict.fromkeys(str(r.get("data")) for r in results))
    return f"{len(results)} runs on {data[0] if len(data) == 1 else f'{len(data)} datasets'}"


def table(results: Sequence[tables.Result]) -> list[list[dict[str, Any]]]:
    """The cells of the result table, each with what it is sorted by."""
    columns = tables.metrics(results)
    rows = []
    for result, cells in zip(results, tables.rows(results), strict=True):
        scores = [tables.score(result, m) for m in columns]
        keys = [None, *(s and s.value for s in scores), charts.number(result.get("seconds")), None]
        rows.append([{"text": c.text, "best": c.best, "key": k} for c, k in zip(cells, keys, strict=True)])
    return rows


def _run(result: tables.Result, name: str) -> dict[str, Any]:
    done = tables.finished(result)
    scores = (result.get("scores") or {}) if done else {}
    mining = result.get("mining") or {}
    return {
        "name": name,
        "status": None if done else str(result.get("status")),
        "facts": {k: v for k, v in _facts(result, done).items() if v is not None},
        "settings": {k: discreet(v) for k, v in tables.flatten(result.get("settings") or {}).items()},
        "versions": result.get("versions") or {},
        "mining": {k: v for k, v in mining.items() if "n_mined" in v},
        "histograms": _histograms(mining),
        "confusion": charts.confusion(scores.get("confusion")),
        "points": points.scatter(result.get("map2d") or {}),
        "curves": lines.curves(result),
        "maps": charts.heat_maps(scores.get("groups") or []),
    }


def _facts(result: tables.Result, done: bool) -> dict[str, Any]:
    """How a run was made; None where it does not say."""
    selection, labels = str(result.get("selection") or "unknown"), str(result.get("labels_used") or "unknown")
    n, folder = result.get("n"), result.get("folder")
    return {
        "data": result.get("data"),
        "network": result.get("net"),
        "seed": result.get("seed"),
        "weights": SELECTION.get(selection, selection) if done else None,
        "bias labels seen": LABELS.get(labels, labels) if done else None,
        "scored on": f"{n:,} samples of the {result.get('scored_on') or 'test'} split" if isinstance(n, int) else None,
        "folder": Path(folder).name if folder else None,  # the rest of the path is nobody else's business
        "command": command(result),
        "ended": result.get("error"),
    }


def _histograms(mining: dict[str, Any]) -> list[dict[str, Any]]:
    return [_histogram(name, scores["histogram"]) for name, scores in mining.items() if scores.get("histogram")]


def _histogram(name: str, scores: dict[str, Any]) -> dict[str, Any]:
    kinds = ("align with the shortcut", "conflict with the shortcut")
    return points.histogram(
        scores["edges"], scores["aligned"], scores["conflicting"], scores.get("title") or name, kinds
    )


def command(result: tables.Result) -> str | None:
    """What trains this run again: the saved command, or the one that its settings file answers to."""
    settings = result.get("settings") or {}
    data = settings.get("data") or {}
    if result.get("command") or not data or not isinstance(data, dict):
        return result.get("command")
    source = discreet(data.get("source") or data.get("name") or result.get("data"))
    return f"spurless train {result.get('method')} {source} --config settings.toml"


def discreet(value: Any) -> Any:
    """A setting for others to read: of a path, the last part.

    >>> discreet("folder:/home/ada/birds"), discreet("/home/ada/w.safetensors"), discreet("adam"), discreet(0.1)
    ('folder:…/birds', '…/w.safetensors', 'adam', 0.1)
    >>> discreet("https://pytorch.org/get/it")
    'https://pytorch.org/get/it'
    """
    if not isinstance(value, str):
        return value
    kind, colon, path = value.rpartition(":")
    return f"{kind}{colon}…/{PurePath(path).name}" if re.match("~|/(?!/)", path) else value
