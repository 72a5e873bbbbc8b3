"""The values that a specification gives, each checked, with its place in what is said of a mistake."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from spurless.core.errors import UserError, unknown
from spurless.core.settings import from_text
from spurless.report.studies import published
from spurless.report.tables import METRICS

SCORES = (*METRICS, "average", "average_train_weighted")
NO_NUMBER = re.compile(r"[-–—]?|(\d+h )?(\d+m )?\d+s")  # that a paper may print in its place: a dash, a time
NUMBERS = ("seconds", "wall_seconds", "sparsity", "n", "empty_cells")  # of a row, beside its scores


def value_text(value: Any) -> str:
    """A value of a grid as it stands in the table, and in the keys of `paper`.

    >>> value_text(0.005), value_text(True), value_text("water"), value_text([1, 2])
    ('0.005', 'true', 'water', '1 2')
    >>> value_text({"name": "mlp"}), value_text({"name": "mlp", "widths": [8, 4]})
    ('mlp', 'mlp widths 8 4')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return " ".join(value_text(v) if k == "name" else f"{k} {value_text(v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return " ".join(map(value_text, value))
    return f"{value:g}" if isinstance(value, float) and f"{value:g}" and float(f"{value:g}") == value else str(value)


def published_numbers(given: Any, where: str) -> dict[tuple[Any, ...], str | float]:
    """Published numbers by the point of the grid that they belong to: 0.01 and 0.010 are the same."""
    table = given if isinstance(given, Mapping) else {"": given}
    for key, value in table.items():
        kind = isinstance(value, (str, int, float)) and not isinstance(value, bool)
        if not kind or not (published(value) or (isinstance(value, str) and NO_NUMBER.fullmatch(value))):
            raise UserError(f"{where}: paper.'{key}' = {value!r} is neither a number nor a text such as '60.9 ± 1.0'.")
    return {tuple(comparable(piece) for piece in key.split(", ") if key): value for key, value in table.items()}


def comparable(text: str) -> Any:
    read = from_text(text)
    return read if isinstance(read, (int, float)) and not isinstance(read, bool) else text


def as_table(given: Any, section: str, where: str) -> dict[str, Any] | None:
    if given is None:
        return None
    if isinstance(given, str):
        return {"name": given}
    if not isinstance(given, Mapping):
        raise UserError(
            f"{where}: {section} = {given!r} is neither a name nor a table {{name = ..., setting = value}}."
        )
    return dict(given)


def seeds_of(given: Any, where: str) -> list[int]:
    seeds = list_of(given, "seeds", where)
    if not seeds or any(isinstance(s, bool) or not isinstance(s, int) or s < 0 for s in seeds):
        raise UserError(f"{where}: seeds = {given!r} is not a list of whole numbers, 0 or more.")
    if len(set(seeds)) < len(seeds):
        raise UserError(f"{where}: seeds = {given!r} names a seed twice; it would count twice.")
    return seeds


def metric_of(given: Any, where: str) -> str:
    """A score, or the dotted place of any number in a row, which only trained rows can show to be there."""
    metric = string_of(given, "metric", where)
    if "." not in metric and metric not in (*SCORES, *NUMBERS):
        raise UserError(f"{where}: {unknown('score', metric, (*SCORES, *NUMBERS))}")
    return metric


def so_many(seeds: list[int], count: int) -> list[int]:
    """
    >>> so_many([3, 5, 7], 2), so_many([3, 5], 4)
    ([3, 5], [3, 5, 0, 1])
    """
    if count < 1:
        raise UserError(f"--seeds {count}: there must be at least one.")
    more = (s for s in itertools.count() if s not in seeds)
    return (seeds + list(itertools.islice(more, max(0, count - len(seeds)))))[:count]


def check_keys(table: Mapping[str, Any], allowed: Sequence[str], where: str) -> None:
    for key in table:
        if key not in allowed:
            near = difflib.get_close_matches(key, allowed, n=1, cutoff=0.5)
            hint = f"; did you mean '{near[0]}'?" if near else "."
            raise UserError(f"{where}: there is no key '{key}'{hint} The keys are: {', '.join(allowed)}.")


def tables_of(given: Any, name: str, where: str) -> list[Mapping[str, Any]]:
    if not isinstance(given, list) or not given or not all(isinstance(t, Mapping) for t in given):
        raise UserError(f"{where}: there is no [[{name if name == 'block' else 'block.row'}]].")
    return given


def list_of(given: Any, name: str, where: str) -> list[Any]:
    if not isinstance(given, list):
        raise UserError(f"{where}: {name} = {given!r} is not a list.")
    return given


def string_of(given: Any, name: str, where: str) -> str:
    if not isinstance(given, str):
        raise UserError(f"{where}: {name} = {given!r} is not a text.")
    return given
