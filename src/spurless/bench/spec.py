"""A specification: a published table, or one of your own, as TOML. docs/bench.md says how to write one.

Everything in it is checked before anything is trained: keys, names, settings, grids, and that every published number
belongs to a trial.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spurless.bench.given import (
    as_table,
    check_keys,
    comparable,
    list_of,
    metric_of,
    published_numbers,
    seeds_of,
    so_many,
    string_of,
    tables_of,
    value_text,
)
from spurless.bench.trials import SECTIONS, Trial
from spurless.core.errors import SettingError, UserError, unknown
from spurless.core.files import read_toml
from spurless.registry import is_installed, is_path

TOP = ("title", "source", "metric", "seeds", "choices", "after", "dynamics", "compile", "block")
BLOCK = (
    "label",
    "data",
    "net",
    "recipe",
    "over",
    "range",
    "row",
    "methods",
    "metric",
    "seeds",
    "after",
    "dynamics",
    "note",
)
ROW = ("label", "method", "data", "net", "recipe", "over", "paper", "missing", "metric", "note")
ENDS = ("min", "max")


@dataclass(frozen=True)
class Line:
    """A line of the printed table: one row of the specification at one point of its grid, or at one end of a range."""

    block: str
    row: str
    grid: dict[str, str]  # the settings of the grid at this point, as text
    metric: str
    trials: tuple[Trial, ...] = ()  # one for each seed
    paper: str | float | None = None  # as published
    missing: str = ""  # why it cannot be run, where it cannot
    note: str = ""
    end: str = ""  # min or max: of the means at all values of a setting, which is in the grid as "min" or "max"
    values: tuple[str, ...] = ()  # these values, gentlest first; trials are in their order, seed by seed

    def points(self) -> list[tuple[str, tuple[Trial, ...]]]:
        """For each value of its range the trials; without a range, all of them under no value."""
        if not self.end:
            return [("", self.trials)]
        return [(value, self.trials[index :: len(self.values)]) for index, value in enumerate(self.values)]


@dataclass(frozen=True)
class Spec:
    """A table: its lines, and what must be said beside them."""

    title: str
    source: str = ""
    metric: str = "unbiased"
    choices: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    over: tuple[str, ...] = ()  # the settings that grids run over
    compile: bool = False  # its trials are long enough for torch.compile, where a GPU does them
    lines: tuple[Line, ...] = field(default=())

    def trials(self) -> list[Trial]:
        """All trials, those of the first seed first: a benchmark that is cut short can still be compared."""
        rounds = itertools.zip_longest(*(line.trials for line in self.lines))
        present = [trial for trials in rounds for trial in trials if trial is not None]
        # Both ends of a range come from the same trials.
        return list({(trial.key, *trial.labels.values()): trial for trial in present}.values())

    cells = trials  # as older scripts call it

    def only(self, labels: Sequence[str]) -> Spec:
        """The lines of the blocks and rows that are named; block and row labels may be mixed."""
        blocks, rows = {line.block for line in self.lines}, {line.row for line in self.lines}
        for label in labels:
            if label not in blocks | rows:
                raise unknown("label", label, blocks | rows)
        want_blocks, want_rows = blocks & set(labels) or blocks, (rows - blocks) & set(labels) or rows
        lines = tuple(x for x in self.lines if x.block in want_blocks and x.row in want_rows)
        left = {line.block for line in lines}
        others = blocks - left
        strange = {b for b in others if not _begins(b, left)}  # "BAR" is of "BAR, small", too
        notes, choices = _not_about(others, self.notes), _not_about(strange, self.choices)
        return replace(self, lines=lines, notes=notes, choices=choices)


def _begins(start: str, names: Iterable[str]) -> bool:
    return any(name.startswith(start) for name in names)


def _not_about(blocks: set[str], texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(text for text in texts if not any(text.startswith(f"{block}: ") for block in blocks))


def read_spec(path: str | Path, seeds: int | None = None, allow_code: bool = True) -> Spec:
    """The specification in a TOML file; `seeds`: so many instead of those that it names.

    A specification can name code (`after`, package.module:Class). Without `allow_code`, modules that are not installed
    are refused before anything is imported.
    """
    table = read_toml(path)
    if not allow_code:
        _refuse_code(table, str(path))
    return make_spec(table, str(path), seeds)


def _refuse_code(value: Any, where: str, key: str = "") -> None:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            _refuse_code(inner, where, key if name == "name" or key == "over" else str(name))
    elif isinstance(value, list):
        for inner in value:
            _refuse_code(inner, where, key)
    elif isinstance(value, str) and key in (*SECTIONS, "methods", "after", "over") and is_path(value):
        ours = value.partition(":")[0] in ("folder", "csv", "timm", "hf")
        if not ours and not is_installed(value):
            raise SettingError(
                f"{where}: {key} = {value!r} would run a module that is not installed. Trust it with --allow-code."
            )


def make_spec(table: Mapping[str, Any], where: str = "The specification", seeds: int | None = None) -> Spec:
    """A specification from its content.

    >>> spec = make_spec({"block": [{"data": "toy", "over": {"data.rho": [0.1, 0.2]}, "methods": ["erm", "lff"]}]})
    >>> len(spec.trials()), spec.lines[1].grid
    (4, {'data.rho': '0.2'})
    """
    check_keys(table, TOP, where)
    if not isinstance(table.get("compile", False), bool):
        raise UserError(f"{where}: compile must be true or false.")
    usual = seeds_of(table.get("seeds", [0]), where)
    metric = metric_of(table.get("metric", "unbiased"), where)
    lines: list[Line] = []
    notes: list[str] = []
    blocks = tables_of(table.get("block"), "block", where)
    for number, block in enumerate(blocks, 1):
        label = string_of(block.get("label", "" if len(blocks) == 1 else f"block {number}"), "label", where)
        block_name = f"{where}, block '{label or number}'"
        check_keys(block, BLOCK, block_name)
        if "note" in block:
            notes.append(f"{label}: {string_of(block['note'], 'note', block_name)}".removeprefix(": "))
        picked = seeds_of(block["seeds"], block_name) if "seeds" in block else usual
        picked = picked if seeds is None else so_many(picked, seeds)
        measured, usual_metric = _measured(table, block, block_name), metric_of(block.get("metric", metric), block_name)
        for row in _rows(block, block_name):
            own = _lines(block, row, label, picked, row.get("metric", usual_metric), measured, block_name)
            lines += own
    _distinct(lines, where)
    return Spec(
        title=string_of(table.get("title", Path(where).stem), "title", where),
        source=string_of(table.get("source", ""), "source", where),
        metric=metric,
        choices=tuple(string_of(c, "choices", where) for c in list_of(table.get("choices", []), "choices", where)),
        notes=tuple(notes),
        over=tuple(dict.fromkeys(name for b in blocks for t in [b, *_rows(b, where)] for name in t.get("over", {}))),
        compile=table.get("compile", False),
        lines=tuple(lines),
    )


def _rows(block: Mapping[str, Any], where: str) -> list[Mapping[str, Any]]:
    short = [{"label": m, "method": m} for m in list_of(block.get("methods", []), "methods", where)]
    return short + (tables_of(block.get("row"), "row", where) if "row" in block or not short else [])


def _lines(
    block: Mapping[str, Any],
    row: Mapping[str, Any],
    label: str,
    seeds: Sequence[int],
    metric: Any,
    measured: Mapping[str, Any],
    where: str,
) -> list[Line]:
    """One line for each point of the grid; two, the least and the greatest, for all values of a range."""
    named = row.get("label", row["method"] if isinstance(row.get("method"), str) else None)
    if named is None:
        raise UserError(f"{where}: a row has no label.")
    name = string_of(named, "label", where)
    where = f"{where}, row '{name}'"
    check_keys(row, ROW, where)
    metric = metric_of(metric, where)
    missing, note = (string_of(row.get(k, ""), k, where) for k in ("missing", "note"))
    if ("method" in row) == bool(missing):
        raise UserError(f'{where}: give either a method, or why it is missing (missing = "...").')
    grid = _grid(block, where) | _grid(row, where)
    paper = published_numbers(row.get("paper", {}), where)
    lines = []
    for point in itertools.product(*grid.values()):
        texts = tuple(map(value_text, point))
        line = Line(label, name, dict(zip(grid, texts, strict=True)), metric, missing=missing, note=note)
        if not missing:
            chosen = _settings(block, row, dict(zip(grid, point, strict=True)), where)
            labels = {"block": label, "row": name, "grid": ", ".join(texts), "metric": metric}
            trials = tuple(Trial(**chosen, seed=seed, labels=labels, **measured) for seed in seeds)
            try:
                for trial in trials:
                    _ = trial.key
            except UserError as error:
                raise UserError(f"{where}: {error}") from None
            line = replace(line, trials=trials)
        lines.append(line)
    lines = _ends(lines, block.get("range"), where)
    lines = [replace(x, paper=paper.pop(tuple(map(comparable, x.grid.values())), None)) for x in lines]
    if paper and grid:
        at = ", ".join(map(str, next(iter(paper))))
        raise UserError(f"{where}: paper has a number at '{at}', which is no point of the grid over {', '.join(grid)}.")
    if paper:
        raise UserError(f'{where}: without a grid, the key of a paper\'s number is "".')
    return lines


def _ends(lines: Sequence[Line], over: Any, where: str) -> list[Line]:
    """In place of the lines for each value of a setting, one for the least mean over them and one for the greatest."""
    if over is None:
        return list(lines)
    if not isinstance(over, str) or over not in lines[0].grid:
        raise UserError(f"{where}: range = {over!r} names no setting of the grid (over).")
    groups: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        groups.setdefault(tuple(v for k, v in line.grid.items() if k != over), []).append(line)
    ends = []
    for group in groups.values():
        values = tuple(line.grid[over] for line in group)
        rounds = zip(*(line.trials for line in group), strict=True)
        trials = tuple(trial for trials in rounds for trial in trials)
        for end in ENDS:
            ends.append(replace(group[0], grid=group[0].grid | {over: end}, trials=trials, end=end, values=values))
    return ends


def _measured(table: Mapping[str, Any], block: Mapping[str, Any], where: str) -> dict[str, Any]:
    """What is measured after the trainings of a block, and whether they are watched."""
    after = block.get("after", table.get("after"))
    if after is not None and (not isinstance(after, str) or not all(after.partition(":"))):
        raise UserError(f"{where}: after = {after!r} is not of the form 'module:function'.")
    dynamics = block.get("dynamics", table.get("dynamics"))
    if dynamics is not None and not isinstance(dynamics, (bool, Mapping)):
        raise UserError(f"{where}: dynamics = {dynamics!r} is neither true nor a table of its settings.")
    return {"after": after, "dynamics": dict(dynamics) if isinstance(dynamics, Mapping) else dynamics}


def _settings(block: Mapping[str, Any], row: Mapping[str, Any], point: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The tables of a trial: the block's, over them the row's, over them the grid's values."""
    settings: dict[str, dict[str, Any] | None] = {}
    for section in SECTIONS:
        base = as_table(block.get(section) if section != "method" else None, section, where)
        own = as_table(row.get(section), section, where)
        settings[section] = _merge(base, own)
    for name, value in point.items():
        section, _, setting = name.partition(".")
        if setting:
            settings[section] = (settings[section] or {}) | {setting: value}
        else:
            settings[section] = _merge(settings[section], as_table(value, section, where))
    if not settings["data"]:
        raise UserError(f"{where}: there is no data.")
    settings["recipe"] = settings["recipe"] or {}
    return settings


def _merge(base: dict[str, Any] | None, own: dict[str, Any] | None) -> dict[str, Any] | None:
    """The settings of another thing are no settings of this one: where the name differs, `own` stands alone.

    >>> _merge({"name": "mlp", "bias": False}, {"widths": [8]}), _merge({"name": "mlp", "bias": False}, {"name": "fcn"})
    ({'name': 'mlp', 'bias': False, 'widths': [8]}, {'name': 'fcn'})
    """
    if own is None or base is None:
        return base if own is None else own
    return base | own if own.get("name", base.get("name")) == base.get("name") else own


def _grid(table: Mapping[str, Any], where: str) -> dict[str, list[Any]]:
    over = table.get("over", {})
    if not isinstance(over, Mapping):
        raise UserError(f'{where}: over is a table, such as over = {{"data.rho" = [0.01, 0.05]}}.')
    for name, values in over.items():
        if name.partition(".")[0] not in SECTIONS:
            near = f" such as 'data.{name}'" if "." not in name else ""
            raise UserError(
                f"{where}: over names '{name}'; it takes settings of {', '.join(SECTIONS)}, with a dot{near}."
            )
        if not isinstance(values, list) or not values:
            raise UserError(f"{where}: over.'{name}' = {values!r} is not a list of values.")
    return dict(over)


def _distinct(lines: Iterable[Line], where: str) -> None:
    seen = set()
    for line in lines:
        name = (line.block, line.row, *line.grid.items())
        if name in seen:
            raise UserError(f"{where}: block '{line.block}' has two rows '{line.row}'; labels must tell them apart.")
        seen.add(name)
