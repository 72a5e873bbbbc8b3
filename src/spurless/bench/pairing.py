"""What is compared with what: scores by name, and pairs of the same seed and data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from spurless.bench.figures import samples_of, value_of
from spurless.bench.selection import Row, missing_classes, training_of
from spurless.core.digests import in_full
from spurless.core.errors import SettingError, unknown
from spurless.report.tables import data_of

Named = tuple[str, str, Row]  # who, where, the row
Pair = tuple[str, Any, Any, Any]  # where, seed, seed of the data, its content


class Scored(NamedTuple):
    """A score, the training that it is of, and what that training knew; None where its row does not say."""

    value: float
    training: Any
    labels_used: str | None
    selection: str | None
    samples: int | None = None  # of a worst group


Scores = Mapping[Pair, Scored]


class Couple(NamedTuple):
    """Two names and their scores."""

    a: str
    b: str
    mine: Scores
    yours: Scores

    def pairs(self) -> list[Pair]:
        """What both have. The same two trainings are one pair, in however many places of a table they stand."""
        common = sorted(self.mine.keys() & self.yours.keys(), key=str, reverse=True)
        once = {(self.mine[pair].training, self.yours[pair].training): pair for pair in common}
        return sorted(once.values(), key=str)

    def without_partner(self) -> int:
        return len(self.mine.keys() ^ self.yours.keys())

    def on_other_content(self) -> int:
        """Results that have a partner of the same place and seeds, but on another content of the data."""
        sides = ((self.mine, self.yours), (self.yours, self.mine))
        alone = [{pair[:3] for pair in side.keys() - other.keys()} for side, other in sides]
        return len(alone[0] & alone[1])


def with_full_fingerprints(named: Sequence[Named]) -> list[Named]:
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


def scores_by_name(named: Sequence[Named], metric: str, notes: list[str]) -> dict[str, dict[Pair, Scored]]:
    """By name: the score of each seed in each setting. Of several trainings that nothing tells apart the first counts:
    in a benchmark's folder, that of its specification, and not one of an older version of the package."""
    scores: dict[str, dict[Pair, Scored]] = {}
    further = classless = 0
    for who, where, row in named:
        value = value_of({"status": "done", **row}, metric)
        classless += value is None and bool(missing_classes(row))
        if value is not None:
            data, samples = data_of(row), samples_of({"status": "done", **row}, metric)
            pair = where, row.get("seed"), data.get("seed"), data.get("fingerprint")
            own = Scored(value, training_of(row), row.get("labels_used"), row.get("selection"), samples)
            further += scores.setdefault(who, {}).setdefault(pair, own).training != own.training
    if classless:
        notes.append(f"{classless} results have no {metric} and are left out: a class has no samples to score.")
    if further:
        notes.append(
            f"{further} results have the name, data and seed of another one and are left out; the first counts."
        )
    return scores


def names_of(label: str, whos: Sequence[str], named: Sequence[Named], metric: str) -> list[str]:
    """The names that a label stands for: a name itself, else those of its row; a method's where no row is called so."""
    if label in whos:
        return [label]
    labelled = [who for who, _, row in named if label in (who, (row.get("labels") or {}).get("row"))]
    labelled = labelled or [who for who, _, row in named if label == row.get("method")]
    if not labelled:
        raise unknown("label", label, whos)
    names = [who for who in dict.fromkeys(labelled) if who in whos]
    if not names:
        raise SettingError(f"No result of '{label}' has the score '{metric}'; see --metric.")
    return names


def within(scores: Mapping[str, Scores], chosen: Sequence[str], base: Sequence[str] | None, path: str) -> list[Couple]:
    """The couples of one place: each with each, or each with those of `base`."""
    names = list(dict.fromkeys(chosen)) or list(scores)
    if base is not None:
        names = [*base, *(name for name in names if name not in base)]
    couples = [
        Couple(a, b, scores[a], scores[b])
        for a, b in combinations(names, 2)
        if (base is None or (a in base) != (b in base)) and _trainings(scores[a]) != _trainings(scores[b])
    ]
    if not couples:
        raise SettingError(f"{path} holds only '{names[0]}': there is nothing to compare it with.")
    return couples


def between(
    sides: Sequence[Mapping[str, Scores]], chosen: Sequence[str], paths: Sequence[str], notes: list[str]
) -> list[Couple]:
    """The couples of two places: what both have, or the one thing that each has."""
    first, second = sides
    a_has, b_has = ([name for name in side if not chosen or name in chosen] for side in sides)
    if both := [name for name in a_has if name in b_has]:
        notes += _only_in(paths[0], a_has, both) + _only_in(paths[1], b_has, both)
        return [Couple(f"{n} ({paths[0]})", f"{n} ({paths[1]})", first[n], second[n]) for n in both]
    if len(a_has) == 1 and len(b_has) == 1:
        return [Couple(a_has[0], b_has[0], first[a_has[0]], second[b_has[0]])]
    raise SettingError(
        f"{paths[0]} has {', '.join(a_has) or 'nothing'}, {paths[1]} has {', '.join(b_has) or 'nothing'}: "
        "they have no label in common. Name one label of each behind the paths."
    )


def _only_in(path: str, names: Sequence[str], both: Sequence[str]) -> list[str]:
    alone = [name for name in names if name not in both]
    return [f"Only in {path}, and left out: {'; '.join(alone)}."] if alone else []


def _trainings(scores: Scores) -> set[Any]:
    return {scored.training for scored in scores.values()}


def by_seed(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """The pairs of a seed in all settings, or on several contents of a file. They begin with the same weights and see
    rows in the same order, so that their differences are much alike: together they tell no more than one.

    >>> by_seed([("rho 0.1", 0, 0, "a"), ("rho 0.1", 1, 0, "a"), ("rho 0.2", 0, 0, "b")])
    [[('rho 0.1', 0, 0, 'a'), ('rho 0.2', 0, 0, 'b')], [('rho 0.1', 1, 0, 'a')]]
    """
    pairs_of: dict[tuple[Any, Any], list[Pair]] = {}
    for pair in pairs:
        pairs_of.setdefault(pair[1:3], []).append(pair)
    return list(pairs_of.values())
