"""What makes a test look better than it is: texts and rows of tables that stand, nearly the same, in two splits, and
tables whose label can be told from the order of the rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from torch import Tensor

from spurless.auditing.columns import columns_of
from spurless.auditing.learner import Guess
from spurless.auditing.pool import drawn
from spurless.auditing.suspects import told
from spurless.core.data import Bundle, Split, Table, Texts

MOST = 5000  # samples of each split
ALIKE = 0.8  # share of the different tokens of two texts that both hold
FEWEST = 8  # different tokens of a text: short ones are alike by chance
HASHES, BAND = 48, 4  # of a text, and so many of them together
CHANCE = 0.05  # rows that would equal a row by chance, up to which an equal one is no chance
SHOWN = 5  # pairs that are named
DRIFT = 0.2  # how much more often the order says a class of that class than of others, to be worth a note

Pair = tuple[int, int]


def near_duplicates(data: Bundle, seed: int = 0) -> list[dict[str, Any]]:
    """Of each two splits: how many samples of the second are nearly the same as one of the first, with examples."""
    shared = []
    for (first, one), (second, other) in combinations(data.splits.items(), 2):
        rows, others = (drawn(len(split), MOST, seed) for split in (one, other))
        if isinstance(data.inputs, Texts):
            pairs = alike_texts(_tokens(one, rows), _tokens(other, others))
        elif isinstance(data.inputs, Table):
            pairs = alike_rows(_codes(data, one[rows], other[others]), len(rows))
        else:
            continue
        if pairs:
            named = [[int(rows[i]), int(others[j])] for i, j in pairs[:SHOWN]]
            shared.append({"splits": [first, second], "n": len(pairs), "of": len(others), "rows": named})
    return shared


def notes_of(data: Bundle, duplicates: Sequence[dict[str, Any]], seed: int = 0) -> list[str]:
    """What a reader should know about the splits and the order of the samples."""
    notes = [
        f"{each['n']:,} of {each['of']:,} samples of '{each['splits'][1]}' are nearly the same as one of "
        f"'{each['splits'][0]}': take them out of one, for what is learnt by heart looks learnt there."
        for each in duplicates
    ]
    strength = told_by_order(data.train.y, len(data.classes), seed) if isinstance(data.inputs, Table) else 0.0
    if strength >= DRIFT:
        notes.append(
            f"The order of the rows gives the label away ({100 * strength:.0f} points more often than chance, at "
            "least): the table is sorted, or drifts in time. If it is in time order, test on its last rows."
        )
    return notes


def told_by_order(y: Tensor, classes: int, seed: int = 0) -> float:
    """How much more often the places of samples say a class of that class than of others (lower end, mean of the
    classes).

    >>> import torch
    >>> told_by_order(torch.arange(400) // 200, 2) > 0.9, told_by_order(torch.arange(400) % 2, 2) < 0.1
    (True, True)
    """
    rows = drawn(len(y), MOST, seed)
    scores = Guess(rows[:, None].float(), y[rows], classes, seed, waves=48).left_out
    says = (scores / y[rows].bincount(minlength=classes).clamp_min(1)).argmax(1)
    return sum(told(says, y[rows], c) for c in range(classes)) / classes


def _tokens(split: Split, rows: Tensor) -> list[frozenset[int]]:
    return [frozenset(row[0][row[1] > 0].tolist()) for row in split[rows].numpy()]


def alike_texts(one: Sequence[frozenset[int]], other: Sequence[frozenset[int]]) -> list[Pair]:
    """For texts of `other` the text of `one` that shares most tokens with it, where that is at least ALIKE.

    Only texts that have some smallest hashes in common are compared (MinHash; Broder 1997).

    >>> text = frozenset(range(20))
    >>> alike_texts([frozenset(range(30, 50)), text], [text - {3}, frozenset(range(60, 80))])
    [(1, 0)]
    """
    generator = np.random.default_rng(0)
    turns = generator.integers(1, 2**31, (2, HASHES), dtype=np.uint64)
    places: dict[tuple[int, bytes], list[int]] = defaultdict(list)
    for i, text in enumerate(one):
        for key in _bands(text, turns):
            places[key].append(i)
    pairs = []
    for j, text in enumerate(other):
        near = {i for key in _bands(text, turns) for i in places.get(key, ())}
        best = max(near, key=lambda i: (_overlap(one[i], text), -i), default=None)
        if best is not None and _overlap(one[best], text) >= ALIKE:
            pairs.append((best, j))
    return pairs


def _bands(text: frozenset[int], turns: np.ndarray) -> list[tuple[int, bytes]]:
    if len(text) < FEWEST:
        return []
    ids = np.fromiter(text, np.uint64, len(text))
    least = ((ids[:, None] * turns[0] + turns[1]) % np.uint64(2**31 - 1)).min(0)
    return [(k, least[k : k + BAND].tobytes()) for k in range(0, HASHES, BAND)]


def _overlap(one: frozenset[int], other: frozenset[int]) -> float:
    return len(one & other) / max(1, len(one | other))


def _codes(data: Bundle, one: Tensor, other: Tensor) -> np.ndarray:
    """(n + m, columns) Each column's values as numbers of their own."""
    both = np.concatenate([one.numpy(), other.numpy()]).round(4)
    columns = [column for column in columns_of(data) if not column.name.startswith("missing '")]
    return np.stack([np.unique(both[:, c.inputs], axis=0, return_inverse=True)[1].ravel() for c in columns], 1)


def alike_rows(codes: np.ndarray, first: int) -> list[Pair]:
    """Rows after the `first` ones that equal one of these in all columns but one, and would hardly do so by chance.

    By chance: if the columns were independent of each other, so that rows of a few coarse columns do not count.

    >>> table = np.arange(400).reshape(40, 10)
    >>> copy = table[7].copy()
    >>> copy[2] = 999
    >>> alike_rows(np.concatenate([table, copy[None], 1000 + table[:1]]), 40)
    [(7, 0)]
    """
    many = codes.shape[1]
    hashed = np.empty(codes.shape, np.uint64)
    rare = np.empty(codes.shape)
    generator = np.random.default_rng(0)
    for k in range(many):
        values, at, count = np.unique(codes[:, k], return_inverse=True, return_counts=True)
        hashed[:, k] = generator.integers(0, 2**63, len(values), dtype=np.uint64)[at.ravel()]
        rare[:, k] = np.log(count / len(codes))[at.ravel()]
    total, chance = hashed.sum(1, dtype=np.uint64), rare.sum(1)
    found: dict[int, int] = {}
    for k in range(many):
        keys, places = np.unique((total - hashed[:, k])[:first], return_index=True)
        at = np.searchsorted(keys, (total - hashed[:, k])[first:]).clip(max=len(keys) - 1)
        same = keys[at] == (total - hashed[:, k])[first:]
        same &= first * np.exp((chance - rare[:, k])[first:]) < CHANCE
        for j in np.flatnonzero(same).tolist():
            found.setdefault(j, int(places[at[j]]))
    return [(i, j) for j, i in sorted(found.items())]
