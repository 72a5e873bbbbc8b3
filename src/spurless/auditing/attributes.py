"""Known attributes: do the model's errors depend on one, given the label, and in the direction of a shortcut?"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spurless.auditing.case import Case
from spurless.auditing.evidence import (
    apart,
    association,
    holm,
    leaning,
    more_errors,
    more_errors_in_two,
    rows_needed,
    share,
)
from spurless.core.data import overrepresented
from spurless.data.describe import counts, cramers_v

FOUND, SUSPECTED = 0.005, 0.025  # levels of the corrected p-values
LEAST_GAP = 5.0  # points of accuracy; a smaller difference is real but nobody's shortcut
FEWEST_ROWS = 100  # of training: with fewer, an association of 0.3 would go unseen more often than one time in five
PAIRS = 10  # pairs of attributes are looked at while there are no more than so many


def examine(case: Case) -> list[dict[str, Any]]:
    """One entry for each attribute and pair of attributes, the most telling first. Empty where none is known."""
    if case.held.a is None or case.data.train.a is None:
        return []
    entries = [_entry(case, *column) for column in columns(case)]
    leans = [] if case.own else [_leaning(case, *column) for column in columns(case)]
    corrected = holm([e["p"] for e in entries + leans])
    for entry, p in zip(entries + leans, corrected, strict=True):
        entry["p"] = p
    for entry, p in zip(entries, holm([e["association_p"] for e in entries]), strict=True):
        entry["association_p"] = p
        entry["finding"] = _finding(entry)
    if leans:
        entries = [_told_by_answers(e, lean, case.own) for e, lean in zip(entries, leans, strict=True)]
    return sorted(entries, key=lambda e: (e["p"], -(e["gap"] or {"value": 0})["value"]))


Column = tuple[
    str, Tensor, Tensor, Tensor, tuple[str, ...]
]  # name, train values, held-out values, aligned, value names


def columns(case: Case) -> Iterator[Column]:
    """Every attribute, and every pair of them as one attribute whose values are the combinations."""
    data, train, test = case.data, case.data.train.a, case.held.a
    assert train is not None and test is not None
    for k, name in enumerate(data.attributes):
        yield name, train[:, k], test[:, k], data.aligned[k], data.values[k]
    pairs = list(combinations(range(len(data.attributes)), 2))
    for i, j in pairs if len(pairs) <= PAIRS else []:
        width = len(data.values[j])
        names = tuple(f"{a} & {b}" for a in data.values[i] for b in data.values[j])
        of_train, of_held = train[:, i] * width + train[:, j], test[:, i] * width + test[:, j]
        table = overrepresented(data.train.y, of_train, len(data.classes), len(names))
        yield f"{data.attributes[i]} & {data.attributes[j]}", of_train, of_held, table, names


def _entry(
    case: Case, name: str, train: Tensor, test: Tensor, aligned: Tensor, values: tuple[str, ...]
) -> dict[str, Any]:
    y, right = case.held.y, case.right.numpy()
    follows = aligned[y, test].numpy()  # (n,)
    table = counts(case.data.train.y.numpy(), train.numpy(), len(case.data.classes), len(values))
    following, contradicting = share(right[follows]), share(right[~follows])
    error = 1 - (following["value"] / 100 if following else 1.0)
    return {
        "name": name,
        "association": cramers_v(table)[1],
        "association_p": association(table),
        "rows": int(table.sum()),
        "varies": bool((table.sum(0) > 0).sum() > 1),
        "p": more_errors(~right, ~follows, y.numpy()),
        "gap": apart(following, contradicting),
        "following": following,
        "contradicting": contradicting,
        "needed": rows_needed(error),
        "groups": list(_groups(case, name, test, aligned, values)),
        "follows": torch.from_numpy(follows),
        "by": "rows",  # what says which values go with which classes: training samples, or the model's answers
    }


def _leaning(
    case: Case, name: str, train: Tensor, test: Tensor, aligned: Tensor, values: tuple[str, ...]
) -> dict[str, Any]:
    """Of a model that may have learnt from other samples than these: does it answer by the attribute, given the label?

    Where it leans to is read off one half of the samples, and tested on the other.
    """
    y, right = case.held.y, case.right.numpy()
    half = torch.zeros(len(y), dtype=torch.bool)
    half[torch.randperm(len(y), generator=torch.Generator().manual_seed(case.seed))[: len(y) // 2]] = True
    excess = torch.from_numpy(leaning(case.predicted[half], test[half], y[half], (len(case.data.classes), len(values))))
    table = excess > 1e-9  # more than rounding
    follows = table[y, test]  # (n,)
    rows, marked = (~half).numpy(), (~follows).numpy()
    tested = ~right[rows], marked[rows], y[~half].numpy()
    once = more_errors(*tested)
    following, contradicting = share(right[~marked]), share(right[marked])
    return {
        # In two classes, or a class that is hard at some value would do, and at two values, or a hard value would.
        "p": max(once, more_errors_in_two(*tested), more_errors_in_two(*tested[:2], test[~half].numpy())),
        "p_once": once,  # in one class at least
        "gap": apart(following, contradicting),
        "following": following,
        "contradicting": contradicting,
        "needed": 2 * rows_needed(1 - (following["value"] / 100 if following else 1.0)),  # half of them are tested
        "groups": list(_groups(case, name, test, table, values)),
        "follows": follows,
        "says": torch.where(table.any(0), excess.argmax(0), -1)[test],
        "by": "answers",
    }


def _told_by_answers(entry: dict[str, Any], lean: dict[str, Any], own: bool | None) -> dict[str, Any]:
    """The entry, or what the model's answers say where that is worse, or where these training samples were not its
    own."""
    large = lean["gap"] is not None and lean["gap"]["value"] >= LEAST_GAP
    level = "none" if not large else "found" if lean["p"] < FOUND else "suspected" if lean["p"] < SUSPECTED else "none"
    rank = ("none", "cannot tell", "suspected", "found").index
    # Where both find it, the answers of a model that learnt from other samples tell more than these samples.
    if level != "none" and rank(level) >= rank(entry["finding"]) + (own is None):
        return entry | lean | {"finding": level}
    if rank(entry["finding"]) >= rank("suspected"):
        return entry
    few = lean["contradicting"] is None or lean["contradicting"]["n"] < lean["needed"]
    unclear = large and lean["p_once"] < FOUND
    if own is None and not unclear:  # it is taken to have learnt from these training samples
        return entry
    unclear |= few
    return entry | lean | {"finding": "cannot tell" if unclear else "none"}


def _groups(case: Case, name: str, test: Tensor, aligned: Tensor, values: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    y, right = case.held.y, case.right
    for c, label in enumerate(case.data.classes):
        for v, value in enumerate(values):
            score = share(right[(y == c) & (test == v)].numpy())
            if score:
                yield {
                    "label": label,
                    "attribute": name,
                    "value": value,
                    "n": score["n"],
                    "correct": round(score["value"] * score["n"] / 100),
                    "accuracy": score["value"],
                    "low": score["low"],
                    "high": score["high"],
                    "aligned": bool(aligned[c, v]),
                }


def _finding(entry: dict[str, Any]) -> str:
    """A shortcut goes with the label in training, and the model fails where it points elsewhere: both, or nothing."""
    gap = entry["gap"]
    if gap is not None and gap["value"] >= LEAST_GAP:
        if entry["p"] < FOUND and entry["association_p"] < FOUND:
            return "found"
        if entry["p"] < SUSPECTED and entry["association_p"] < SUSPECTED:
            return "suspected"
    if entry["association_p"] >= SUSPECTED or np.isclose(entry["association"], 0):
        # What says nothing about the label cannot stand in for it; but in a few samples it may say nothing by chance.
        return "cannot tell" if entry["varies"] and entry["rows"] < FEWEST_ROWS else "none"
    few = entry["contradicting"] is None or entry["contradicting"]["n"] < entry["needed"]
    return "cannot tell" if few else "none"
