"""What is compared with what: rows from anywhere, by name and place, paired over seeds. What is real: judging.py."""

from __future__ import annotations

import difflib
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from spurless.bench.cells import HOW, default_settings
from spurless.bench.judging import ALPHA, FEW, REAL, SMALL, UNSHOWN, Comparison, judge, p_value, pairs_needed
from spurless.bench.rows import JSONL, LISTED, all_rows
from spurless.bench.spec import SCORES
from spurless.bench.table import decimals, samples_of, value_of
from spurless.core.digests import in_full
from spurless.core.errors import UserError, unknown
from spurless.core.files import from_json, read_text
from spurless.core.stats import figures
from spurless.metrics.groups import MIN_GROUP, group_notes
from spurless.report.tables import METRICS, NOTHING, data_of, finished, flatten, with_words

if TYPE_CHECKING:
    from rich.console import Group

EVERYWHERE = "all together"

Row = Mapping[str, Any]
Pair = tuple[str, Any, Any, Any]  # where, seed, seed of the data, its content


class Scored(NamedTuple):
    """A score, the training that it is of, and what that training knew; None where its row does not say."""

    value: float
    training: Any
    labels_used: str | None
    selection: str | None
    samples: int | None = None  # of a worst group


Scores = Mapping[Pair, Scored]


def read_rows(path: str | Path) -> list[dict[str, Any]]:
    """The rows at a path: a benchmark's folder, a run's, a folder of runs or of JSON files, a file of rows."""
    from spurless.report.sources import find

    path = Path(path)
    if (path / "cells").is_dir():
        # In rows.jsonl a cell may stand in two places of the table; what ended since it was written is in the cells.
        listed = _lines(path / JSONL) if (path / JSONL).exists() else []
        newest = {row["key"]: row for row in all_rows(path)}
        known = {row["key"] for row in listed}
        rows = [newest.get(row["key"], row) | {k: row[k] for k in ("labels", LISTED) if k in row} for row in listed]
        rows += [row for key, row in newest.items() if key not in known]
    elif path.suffix == ".jsonl":
        rows = _lines(path)
    else:
        rows = find([path], sweeps=False).runs
    rows = [row for row in rows if isinstance(row, dict)]
    if not rows:
        raise UserError(f"{path} holds no results that can be compared.")
    return rows


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        return [from_json(line) for line in read_text(path).split("\n") if line.strip()]
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON lines ({error}).") from None


def compare(
    words: Sequence[str], metric: str | None = None, against: str | None = None
) -> tuple[list[Comparison], list[str]]:
    """Compare what is named: one or two paths, and labels (or methods) to which it is restricted.

    Returns the lines, and what must be said beside them.
    """
    paths = [word for word in words if Path(word).exists()]
    labels = [word for word in words if word not in paths]
    if not paths:
        raise UserError(f"{words[0]} does not exist: name a folder or file of results first, then labels.")
    if len(paths) > 2:
        raise UserError(f"{len(paths)} places are named; compare takes one or two.")
    whole = [read_rows(path) for path in paths]
    sides = [_of_today(rows) for rows in whole]
    old = sum(len(rows) - len(kept) for rows, kept in zip(whole, sides, strict=True))
    ended = [[row for row in rows if finished(row)] for rows in sides]
    lost = sum(len({_training(row) for row in rows if not finished(row)}) for rows in sides)
    metric = metric or usual_metric([row for side in ended for row in side])
    ended = [_asked_for(side, metric, labels) for side in ended]
    rows = [row for side in ended for row in side]
    named = name_rows(rows, [i for i, side in enumerate(ended) for _ in side])
    notes = [f"{lost} results did not end well and are left out."] if lost else []
    if old:
        notes.append(f"{old} results of an older specification are left out: their rows have other settings by now.")
    named = _with_full_fingerprints(named)
    first, second = (_scores(part, metric, notes) for part in (named[: len(ended[0])], named[len(ended[0]) :]))
    whos = list(dict.fromkeys([*first, *second]))
    if not whos:
        raise _without(metric, rows)
    chosen = [_who(label, whos, named, metric) for label in labels]
    base = _who(against, whos, named, metric) if against else None
    if len(paths) == 2:
        if base is not None:
            raise UserError("--against is for one place: of two, each result is compared with its own in the other.")
        couples = _between(first, second, chosen, paths, notes)
    else:
        picked = list(dict.fromkeys(w for part in chosen for w in part)) or whos
        if base is not None:
            picked = [*base, *(w for w in picked if w not in base)]
        couples = [
            (a, b, first[a], first[b])
            for a, b in combinations(picked, 2)
            if (base is None or (a in base) != (b in base)) and _trainings(first[a]) != _trainings(first[b])
        ]
        if not couples:
            raise UserError(f"{paths[0]} holds only '{picked[0]}': there is nothing to compare it with.")
    lines: list[Comparison] = []
    compared: list[tuple[str, str, list[tuple[Scored, Scored]]]] = []
    changed = 0
    for a, b, mine, yours in couples:
        # The same two trainings are one pair, in however many places of a table they stand.
        once = {
            (mine[p].training, yours[p].training): p for p in sorted(mine.keys() & yours.keys(), key=str, reverse=True)
        }
        pairs = sorted(once.values(), key=str)
        compared.append((a, b, [(mine[p], yours[p]) for p in pairs]))
        single = len(mine.keys() ^ yours.keys())
        if single:
            notes.append(f"{a} and {b}: {single} results have no partner of the same seed and data, and are left out.")
        if other := _changed(mine, yours):
            changed += other
            notes.append(f"{a} and {b}: of {other} of these the partner was trained on another content of the data.")
        wheres = list(dict.fromkeys(p[0] for p in pairs))
        groups = {where: _by_seed([p for p in pairs if p[0] == where]) for where in wheres}
        if len(wheres) > 1:
            groups = {EVERYWHERE: _by_seed(pairs)} | groups
        lines += [_line(where, a, b, g, mine, yours, metric) for where, g in groups.items()]
    if not lines:
        why = " Results of the same seed were trained on different contents of the data." if changed else ""
        raise UserError(f"No two results have the same seed, data and block label: there is nothing to pair.{why}")
    # The question 'overall?' and the questions 'where?' are two families of their own.
    overall = [line for line in lines if line.where == EVERYWHERE]
    single_lines = [line for line in lines if line.where != EVERYWHERE]
    judged = iter(judge(overall)), iter(judge(single_lines))
    found = [next(judged[line.where != EVERYWHERE]) for line in lines]
    return found, [*_explain(found, metric), *_knew_more(compared), *_groups_without(rows, metric), *notes]


def _between(
    first: Mapping, second: Mapping, chosen: Sequence[Sequence[str]], paths: Sequence[str], notes: list[str]
) -> list[tuple]:
    """Of two places: what both have, or the one thing that each has."""
    wanted = [w for part in chosen for w in part]
    a_has, b_has = ([w for w in side if not wanted or w in wanted] for side in (first, second))
    both = [w for w in a_has if w in b_has]
    if both:
        alone = [(path, [w for w in side if w not in both]) for path, side in zip(paths, (a_has, b_has), strict=True)]
        notes += [f"Only in {path}, and left out: {'; '.join(names)}." for path, names in alone if names]
        return [(f"{w} ({paths[0]})", f"{w} ({paths[1]})", first[w], second[w]) for w in both]
    if len(a_has) == 1 and len(b_has) == 1:
        return [(a_has[0], b_has[0], first[a_has[0]], second[b_has[0]])]
    raise UserError(
        f"{paths[0]} has {', '.join(a_has) or 'nothing'}, {paths[1]} has {', '.join(b_has) or 'nothing'}: "
        "they have no label in common. Name one label of each behind the paths."
    )


def _who(label: str, whos: Sequence[str], named: Sequence[tuple[str, str, Row]], metric: str) -> list[str]:
    """The names that a label stands for: a name itself, else those of its row; a method's where no row is called so."""
    if label in whos:
        return [label]
    known = [who for who, _, row in named if label in (who, (row.get("labels") or {}).get("row"))]
    known = known or [who for who, _, row in named if label == row.get("method")]
    if not known:
        raise unknown("label", label, whos)
    found = [who for who in dict.fromkeys(known) if who in whos]
    if not found:
        raise UserError(f"No result of '{label}' has the score '{metric}'; see --metric.")
    return found


def _without(metric: str, rows: Sequence[Row]) -> UserError:
    """The error for a score that no row has, with the nearest that one has, and the usual ones among those."""
    done = [{"status": "done", **row} for row in rows]
    plain = [m for m in SCORES if any(value_of(row, m) is not None for row in done)]
    parts = ({name: row.get(name) or {} for name in ("mining", "extra")} for row in rows)
    dotted = {name for part in parts for name, value in flatten(part).items() if isinstance(value, (int, float))}
    near = difflib.get_close_matches(metric, [*plain, *sorted(dotted)], n=1, cutoff=0.5)
    hint = f"; did you mean '{near[0]}'?" if near else "."
    if lost := list(dict.fromkeys(name for row in rows for name in _missing_classes(row))):
        hint = f": there are no samples of the class {', '.join(lost)} to score."
    return UserError(f"No result has the score '{metric}'{hint} The scores there are: {', '.join(plain) or 'none'}.")


def _training(row: Row) -> Any:
    """What a row is of: one training may stand in several places of a table."""
    return row.get("key") or id(row)


def _trainings(scores: Scores) -> set[Any]:
    return {scored.training for scored in scores.values()}


def _asked_for(rows: Sequence[dict[str, Any]], metric: str, labels: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Without the places in which a training stands for another score, if it also stands somewhere for this one.

    One that does not is kept once in each block: its rows for several scores would be compared with each other. Of
    these the first is kept, or one of a row that is named.
    """
    own = [(row.get("labels") or {}).get("metric") == metric for row in rows]
    there = {_training(row) for row, asked in zip(rows, own, strict=True) if asked}
    kept: dict[Any, int] = {}
    for i, row in sorted(enumerate(rows), key=lambda at: (at[1].get("labels") or {}).get("row") not in labels):
        if _training(row) not in there:
            place = row.get("labels") or {}
            kept.setdefault((_training(row), place.get("block"), place.get("grid")), i)
    chosen = set(kept.values())
    return [row for i, (row, asked) in enumerate(zip(rows, own, strict=True)) if asked or i in chosen]


def _of_today(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what a folder keeps of an older specification: rows that the last run did not name, and whose place in
    the table it filled with other settings. A row that only was not asked for (--only, fewer seeds) stays."""
    flat = _completed([flatten(row.get("settings") or {}) for row in rows])
    how = {f"recipe.{name}" for name in HOW} | {"spurless"}
    made = [json.dumps({k: v for k, v in f.items() if not _of_seed(k) and k not in how}, default=str) for f in flat]
    places = [_place(row) for row in rows]
    now: dict[tuple, set[str]] = {}
    for row, place, settings in zip(rows, places, made, strict=True):
        if place and row.get(LISTED, True) and finished(row):
            now.setdefault(place, set()).add(settings)
    return [
        row
        for row, place, settings in zip(rows, places, made, strict=True)
        if row.get(LISTED, True) or place not in now or settings in now[place]
    ]


def _place(row: Row) -> tuple:
    """Where a row stands in a table; empty for one that stands in none."""
    labels = row.get("labels") or {}
    return tuple(labels.get(name) for name in ("block", "row", "grid")) if labels.get("row") else ()


def _changed(mine: Scores, yours: Scores) -> int:
    """Results that have a partner of the same place and seeds, but on another content of the data."""
    alone = [{pair[:3] for pair in side.keys() - other.keys()} for side, other in ((mine, yours), (yours, mine))]
    return len(alone[0] & alone[1])


def _with_full_fingerprints(named: Sequence[tuple[str, str, Row]]) -> list[tuple[str, str, Row]]:
    """The rows, where those of an older version have the fingerprint that newer ones have for the same data."""
    as_full = in_full(data_of(row).get("fingerprint") for _, _, row in named)
    filled = []
    for who, where, row in named:
        data = data_of(row)
        full = as_full(data.get("fingerprint"))
        if full != data.get("fingerprint"):
            row = {**row, "settings": {**row["settings"], "data": {**data, "fingerprint": full}}}
        filled.append((who, where, row))
    return filled


def _scores(named: Sequence[tuple[str, str, Row]], metric: str, notes: list[str]) -> dict[str, dict[Pair, Scored]]:
    """By name: the score of each seed in each setting. Of several trainings that nothing tells apart the first counts:
    in a benchmark's folder, that of its specification, and not one of an older version of the package."""
    found: dict[str, dict[Pair, Scored]] = {}
    further = classless = 0
    for who, where, row in named:
        value = value_of({"status": "done", **row}, metric)
        classless += value is None and bool(_missing_classes(row))
        if value is not None:
            data, samples = data_of(row), samples_of({"status": "done", **row}, metric)
            pair = where, row.get("seed"), data.get("seed"), data.get("fingerprint")
            own = Scored(value, _training(row), row.get("labels_used"), row.get("selection"), samples)
            further += found.setdefault(who, {}).setdefault(pair, own).training != own.training
    if classless:
        notes.append(f"{classless} results have no {metric} and are left out: a class has no samples to score.")
    if further:
        notes.append(
            f"{further} results have the name, data and seed of another one and are left out; the first counts."
        )
    return found


def _missing_classes(row: Row) -> list[str]:
    return list((row.get("scores") or {}).get("missing_classes") or ())


def name_rows(rows: Sequence[Row], sides: Sequence[int] | None = None) -> list[tuple[str, str, Row]]:
    """(who, where, row) for each row: its label or method, and its data, with the settings that tell them apart.

    What differs between two sides is what is compared, and no part of a name.

    >>> row = {"method": "lff", "data": "toy"}
    >>> rows = [row | {"settings": {"method": {"q": q}, "data": {"rho": 0.1}}} for q in (0.5, 0.7)]
    >>> [(who, where) for who, where, _ in name_rows(rows)]
    [('lff, q 0.5', 'toy'), ('lff, q 0.7', 'toy')]
    """
    labels = [row.get("labels") or {} for row in rows]
    flat = _completed([flatten(row.get("settings") or {}) for row in rows])
    data = [{k: v for k, v in f.items() if k.startswith("data.") and not _of_seed(k)} for f in flat]
    rest = [{k: v for k, v in f.items() if k.partition(".")[0] in ("method", "net", "recipe")} for f in flat]
    rest = _without_drawn_weights(rest, [row.get("seed") for row in rows])
    block = [str(known.get("block") or row.get("data")) for known, row in zip(labels, rows, strict=True)]
    where = _told_apart(block, data, [""] * len(rows), [""] * len(rows))
    who = [str(known.get("row") or row.get("method")) for known, row in zip(labels, rows, strict=True)]
    # Only what differs on the same data: a recipe that belongs to the data set is no part of a method's name.
    who = _told_apart(who, rest, where, [str(side) for side in sides or [0] * len(rows)])
    return list(zip(who, where, rows, strict=True))


def _completed(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """With the settings that are newer than a row: it was made with their defaults, and differs in nothing."""
    found = [dict(row) for row in rows]
    for section in ("data", "method", "recipe"):
        alike: dict[str, list[dict[str, Any]]] = {}
        for row in found:
            if any(k.startswith(f"{section}.") for k in row):
                alike.setdefault(str(row.get(f"{section}.name") or ""), []).append(row)
        for name, same in alike.items():
            keys = {k for row in same for k in row if k.startswith(f"{section}.")}
            for row in same:
                for key in keys - row.keys():
                    usual = default_settings(section, name)
                    if (short := key.partition(".")[2]) in usual:
                        row[key] = usual[short]
    return found


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


def _of_seed(key: str) -> bool:
    return key.rpartition(".")[2] in ("seed", "fingerprint")


def _told_apart(
    names: Sequence[str], settings: Sequence[Mapping[str, Any]], places: Sequence[str], sides: Sequence[str]
) -> list[str]:
    """The names with those settings that differ between rows of the same name, place and side."""
    same: dict[tuple[str, str], dict[str, list[Mapping[str, Any]]]] = {}
    for name, own, place, side in zip(names, settings, places, sides, strict=True):
        same.setdefault((name, side), {}).setdefault(place, []).append(own)
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


def usual_metric(rows: Sequence[Row]) -> str:
    """The specification's, or the first that the results have."""
    asked = {(row.get("labels") or {}).get("metric") for row in rows} - {None, ""}
    if len(asked) == 1:
        return str(asked.pop())
    known = [m for m in (*METRICS, "average") if any(value_of({"status": "done", **r}, m) is not None for r in rows)]
    return known[0] if known else "unbiased"


def _by_seed(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """The pairs of a seed in all settings, or on several contents of a file. They begin with the same weights and see
    rows in the same order, so that their differences are much alike: together they tell no more than one.

    >>> _by_seed([("rho 0.1", 0, 0, "a"), ("rho 0.1", 1, 0, "a"), ("rho 0.2", 0, 0, "b")])
    [[('rho 0.1', 0, 0, 'a'), ('rho 0.2', 0, 0, 'b')], [('rho 0.1', 1, 0, 'a')]]
    """
    found: dict[tuple[Any, Any], list[Pair]] = {}
    for pair in pairs:
        found.setdefault(pair[1:3], []).append(pair)
    return list(found.values())


def _line(
    where: str, a: str, b: str, groups: Sequence[Sequence[Pair]], mine: Scores, yours: Scores, metric: str
) -> Comparison:
    """One comparison; each group of pairs counts as one, by its mean."""
    of_a, of_b = ([statistics.fmean(side[pair].value for pair in group) for group in groups] for side in (mine, yours))
    differences = [y - x for x, y in zip(of_a, of_b, strict=True)]
    found = figures(differences)
    p, test = p_value(differences)
    sizes = [s.samples for side in (mine, yours) for group in groups for s in map(side.__getitem__, group)]
    fewest = min((n for n in sizes if n is not None), default=None)
    return Comparison(
        where, a, b, len(differences), statistics.fmean(of_a), statistics.fmean(of_b),
        statistics.fmean(differences), found.low, found.high, p, test, metric=metric, worst_group_n=fewest,
    )  # fmt: skip


def _explain(lines: Sequence[Comparison], metric: str) -> list[str]:
    overall = [line for line in lines if line.where == EVERYWHERE]
    single = [line for line in lines if line.where != EVERYWHERE]
    tests = " and ".join(dict.fromkeys(line.test for line in lines))
    counts = [f"{len(part)}{words}" for part, words in ((overall, " overall"), (single, "")) if part]
    together = f", {EVERYWHERE} over n seeds" if overall else ""
    said = [
        f"{metric}: mean over n pairs of the same seed and data{together}; [ ]: 95 % interval of the difference "
        f"(Student's t, not corrected); p: {tests}, corrected (Holm) for {' and, apart from these, '.join(counts)} "
        f"comparison{'s' if len(lines) > 1 else ''}. Real: p below {ALPHA:g}."
    ]
    if small := sorted({line.worst_group_n for line in lines if line.verdict == SMALL and line.worst_group_n}):
        several = f"{small[0]} to {small[-1]}" if len(small) > 1 else f"{small[0]}"
        said.append(
            f"{SMALL}: nothing is decided where in a run the worst group has fewer than {MIN_GROUP} samples "
            f"(here n = {several}); compare by unbiased or conflicting, or score more samples."
        )
    for part in (overall, single):
        few = [line for line in part if line.verdict == FEW]
        if few:
            n = sorted({line.n for line in few})
            how_many = str(n[0]) if len(n) == 1 else f"{n[0]} to {n[-1]}"
            overall_, of_what = ("overall ", "seeds") if part is overall else ("", "pairs")
            said.append(
                f"{len(few)} of {len(part)} {overall_}comparisons cannot tell anything: "
                f"with {how_many} {of_what} no p value is low enough, however large the difference. "
                f"{pairs_needed(len(part))} {of_what} each would do; or compare fewer things (labels, --against)."
            )
    return said


def _knew_more(compared: Sequence[tuple[str, str, Sequence[tuple[Scored, Scored]]]]) -> list[str]:
    """What must be said where one side was told other bias labels, or had its weights picked by another rule."""
    said = []
    for field, words in (("labels_used", "Bias labels used"), ("selection", "Weights picked by")):
        names: dict[str, dict[str, None]] = {}  # what was known, and by whom, in their order
        for a, b, pairs in compared:
            known = [(getattr(x, field), getattr(y, field)) for x, y in pairs]
            if any(None not in two and two[0] != two[1] for two in known):
                for two in known:
                    for who, what in zip((a, b), two, strict=True):
                        names.setdefault(str(what or "unknown"), {})[who] = None
        if names:
            each = "; ".join(f"{what} ({', '.join(whos)})" for what, whos in names.items())
            said.append(f"{words}: {each}.")
    return [" ".join(["What is compared did not go by the same labels or rule.", *said])] if said else []


def _groups_without(rows: Sequence[Row], metric: str) -> list[str]:
    """Of how many groups a score over groups is, where some have no samples."""
    said: dict[str, None] = {}
    for row in rows if metric in ("unbiased", "worst_group") else ():
        scores = row.get("scores") or {}
        empty = [g for g in scores.get("small_groups") or () if not g["n"]]
        if empty and scores.get(metric) is not None:
            notes = group_notes({**scores, "small_groups": empty}, str(row.get("scored_on") or "test"))
            said |= dict.fromkeys(f"{row.get('data')}: {note}" for note in notes)
    return list(said)


def _without_common(places: Sequence[str]) -> tuple[list[str], list[str]]:
    """What all places have in common, and each without it.

    >>> _without_common(["all together", "CMNIST, rho 0.01", "CMNIST, rho 0.05"])
    (['CMNIST'], ['all together', 'rho 0.01', 'rho 0.05'])
    """
    parts = [place.split(", ") for place in places]
    single = [own for own, place in zip(parts, places, strict=True) if place != EVERYWHERE]
    if len({tuple(own) for own in single}) < 2:
        return [], list(places)
    common = [part for part in single[0] if all(part in own for own in single)]
    return common, [", ".join(part for part in own if part not in common) or ", ".join(own) for own in parts]


def terminal(lines: Sequence[Comparison], notes: Sequence[str]) -> Group:
    """For the terminal: `console.print(terminal(*compare(...)))`."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    style = {REAL: "bold green", FEW: "yellow", SMALL: "yellow", UNSHOWN: ""}
    common, places = _without_common([line.where for line in lines])
    digits = [decimals(line.metric, (line.mean_a, line.mean_b)) for line in lines]
    columns: dict[str, list[str]] = {
        "where": places,
        "A": [line.a for line in lines],
        "B": [line.b for line in lines],
        "n": [str(line.n) for line in lines],
        "A and B": [f"{line.mean_a:.{d}f}, {line.mean_b:.{d}f}" for line, d in zip(lines, digits, strict=True)],
        "B - A": [f"{line.difference:+.{d}f}" for line, d in zip(lines, digits, strict=True)],
        "95 % interval": [
            NOTHING if line.low is None else f"[{line.low:+.{d}f}, {line.high:+.{d}f}]"
            for line, d in zip(lines, digits, strict=True)
        ],
        "p": [f"{line.p_corrected:.2g}" for line in lines],
        "verdict": [line.verdict for line in lines],
    }
    # What is the same in every line is said once: a terminal has 80 columns.
    same = [title for title in ("A", "B", "where") if len(lines) > 1 and len(set(columns[title])) == 1]
    head = ", ".join([*common, *(f"{title}: {columns.pop(title)[0]}" for title in same)])
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0, pad_edge=False)
    for title in columns:
        words = title in ("where", "A", "B", "verdict")
        table.add_column(title, justify="left" if words else "right", overflow="fold", no_wrap=not words)
    for row in zip(*columns.values(), strict=True):
        table.add_row(*map(Text, row[:-1]), Text(row[-1], style[row[-1]]))
    return with_words(table, notes, head)


def as_json(lines: Sequence[Comparison], notes: Sequence[str]) -> dict[str, Any]:
    return {"comparisons": [{k: _finite(v) for k, v in asdict(line).items()} for line in lines], "notes": list(notes)}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
