"""Name rows of any origin so that what differs between them tells them apart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from spurless.bench.trials import default_settings
from spurless.report.tables import flatten

Row = Mapping[str, Any]


def name_rows(rows: Sequence[Row], sides: Sequence[int] | None = None) -> list[tuple[str, str, Row]]:
    """(who, where, row) for each row: its label or method, and its data, with the settings that tell them apart.

    What differs between two sides is what is compared, and no part of a name.

    >>> row = {"method": "lff", "data": "toy"}
    >>> rows = [row | {"settings": {"method": {"q": q}, "data": {"rho": 0.1}}} for q in (0.5, 0.7)]
    >>> [(who, where) for who, where, _ in name_rows(rows)]
    [('lff, q 0.5', 'toy'), ('lff, q 0.7', 'toy')]
    """
    flat = completed([flatten(row.get("settings") or {}) for row in rows])
    data = [{k: v for k, v in own.items() if k.startswith("data.") and not depends_on_seed(k)} for own in flat]
    where = _told_apart([_label(row, "block", "data") for row in rows], data, [""] * len(rows), [""] * len(rows))
    rest = [{k: v for k, v in own.items() if k.partition(".")[0] in ("method", "net", "recipe")} for own in flat]
    rest = _without_drawn_weights(rest, [row.get("seed") for row in rows])
    # Only what differs on the same data: a recipe that belongs to the dataset is no part of a method's name.
    own_sides = [str(side) for side in sides or [0] * len(rows)]
    who = _told_apart([_label(row, "row", "method") for row in rows], rest, where, own_sides)
    return list(zip(who, where, rows, strict=True))


def _label(row: Row, label: str, otherwise: str) -> str:
    return str((row.get("labels") or {}).get(label) or row.get(otherwise))


def completed(settings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Fills in the settings that are newer than a row: it was made with their defaults, and differs in nothing."""
    filled = [dict(own) for own in settings]
    for section in ("data", "method", "recipe"):
        by_name: dict[str, list[dict[str, Any]]] = {}
        for own in filled:
            if any(key.startswith(f"{section}.") for key in own):
                by_name.setdefault(str(own.get(f"{section}.name") or ""), []).append(own)
        for name, same in by_name.items():
            _fill(same, section, name)
    return filled


def _fill(same: Sequence[dict[str, Any]], section: str, name: str) -> None:
    keys = {key for own in same for key in own if key.startswith(f"{section}.")}
    for own in same:
        for key in keys - own.keys():
            if (short := key.partition(".")[2]) in (defaults := default_settings(section, name)):
                own[key] = defaults[short]


def _without_drawn_weights(settings: Sequence[Mapping[str, Any]], seeds: Sequence[Any]) -> list[dict[str, Any]]:
    """Without the weights that a user's module began with, where it was made anew for each seed: these are as much
    drawn as the seed. Those that several seeds began with were chosen, as the file of a named network is."""
    seeds_of: dict[Any, set[Any]] = {}
    for own, seed in zip(settings, seeds, strict=True):
        seeds_of.setdefault(own.get("net.weights"), set()).add(seed)
    drawn = [own.get("net.own") and len(seeds_of[own.get("net.weights")]) == 1 for own in settings]
    return [
        {k: v for k, v in own.items() if not (is_drawn and k == "net.weights")}
        for own, is_drawn in zip(settings, drawn, strict=True)
    ]


def depends_on_seed(key: str) -> bool:
    return key.rpartition(".")[2] in ("seed", "fingerprint")


def _told_apart(
    names: Sequence[str], settings: Sequence[Mapping[str, Any]], places: Sequence[str], sides: Sequence[str]
) -> list[str]:
    """The names with those settings that differ between rows of the same name, place and side."""
    same: dict[tuple[str, str], dict[str, list[Mapping[str, Any]]]] = {}
    for name, own, group, side in zip(names, settings, places, sides, strict=True):
        same.setdefault((name, side), {}).setdefault(group, []).append(own)
    differing = {
        who: [k for k in _keys(by_place) if any(_several(k, rows) for rows in by_place.values())]
        for who, by_place in same.items()
    }
    return [
        ", ".join([name, *(f"{k.rpartition('.')[2]} {_short(own[k])}" for k in differing[name, side] if k in own)])
        for name, own, side in zip(names, settings, sides, strict=True)
    ]


def _keys(by_place: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    return list(dict.fromkeys(k for rows in by_place.values() for row in rows for k in row))


def _several(key: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    return len({json.dumps(row.get(key), default=str) for row in rows}) > 1


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
