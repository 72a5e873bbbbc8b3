"""Groups of samples that a person names, splits, merges and moves samples between. Every edit can be replayed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spurless.core.errors import DataError

LONGEST = 60  # characters of a group's name
MOST_GROUPS, MOST_MOVED = 200, 5000
ROUNDS = 50  # of two-means


class Grouping:
    """Which group each sample is in: `codes` (n,), numbers of `names`; -1: none, because it was not looked at.

    >>> made = Grouping(np.array([0, 0, 1, -1]), ["dark", "light"], np.zeros((4, 1)))
    >>> made.apply({"op": "name", "group": 1, "name": "white"})
    >>> made.apply({"op": "move", "samples": [0], "group": 1})
    >>> made.names, made.codes.tolist(), made.counts()
    (['dark', 'white'], [1, 0, 1, -1], [1, 2])
    """

    def __init__(self, codes: np.ndarray, names: Iterable[str], features: np.ndarray):
        self.codes, self.names, self.features = codes.copy(), list(names), features

    def counts(self) -> list[int]:
        return [int(n) for n in np.bincount(self.codes[self.codes >= 0], minlength=len(self.names))]

    def apply(self, edit: Mapping[str, Any]) -> None:
        """Carry out an edit; a DataError where it does not fit, and then nothing has changed."""
        match edit.get("op"):
            case "name":
                group = self._group(edit.get("group"))
                self.names[group] = self._free(_name(edit.get("name")), but=group)
            case "merge":
                self._merge(edit.get("groups"))
            case "split":
                self._split(self._group(edit.get("group")))
            case "move":
                self._move(edit)
            case other:
                raise DataError(f"There is no edit '{other}'; the edits are name, merge, split and move.")

    def replayed(self, edits: Iterable[Mapping[str, Any]]) -> Grouping:
        """A copy after all of these edits."""
        made = Grouping(self.codes, self.names, self.features)
        for edit in edits:
            made.apply(edit)
        return made

    def _merge(self, groups: Any) -> None:
        if not isinstance(groups, list) or len(groups) != 2 or groups[0] == groups[1]:
            raise DataError("Two different groups are merged at a time.")
        kept, gone = (self._group(g) for g in groups)
        self.codes[self.codes == gone] = kept
        self._drop(gone)

    def _split(self, group: int) -> None:
        rows = np.nonzero(self.codes == group)[0]
        second = two_means(self.features[rows])
        if not second.any():
            raise DataError(f"'{self.names[group]}' cannot be split: its samples are all alike to the model.")
        self.codes[rows[second]] = self._new(f"{self.names[group]} 2")

    def _move(self, edit: Mapping[str, Any]) -> None:
        rows, goal = edit.get("samples"), edit.get("group")
        if not isinstance(rows, list) or not rows or len(rows) > MOST_MOVED:
            raise DataError(f"1 to {MOST_MOVED} samples are moved at a time.")
        if not all(type(r) is int and 0 <= r < len(self.codes) and self.codes[r] >= 0 for r in rows):
            raise DataError("One of these samples is in no group.")
        if goal is None:
            goal = self._new(_name(edit.get("name") or "new group"))
        self.codes[rows] = self._group(goal)
        for empty in sorted((g for g, n in enumerate(self.counts()) if not n), reverse=True):
            self._drop(empty)

    def _new(self, name: str) -> int:
        if len(self.names) >= MOST_GROUPS:
            raise DataError(f"There are {MOST_GROUPS} groups already; merge some.")
        self.names.append(self._free(name[:LONGEST]))
        return len(self.names) - 1

    def _free(self, name: str, but: int | None = None) -> str:
        """The name, with a number where another group has it."""
        others = {n for g, n in enumerate(self.names) if g != but}
        return next(n for n in (name, *(f"{name} ({k})" for k in range(2, MOST_GROUPS + 3))) if n not in others)

    def _drop(self, group: int) -> None:
        self.codes[self.codes > group] -= 1
        del self.names[group]

    def _group(self, number: Any) -> int:
        if type(number) is not int or not 0 <= number < len(self.names):
            raise DataError(f"There is no group {number!r}.")
        return number


def _name(given: Any) -> str:
    name = " ".join(str(given).split()) if isinstance(given, str) else ""
    if not name or len(name) > LONGEST or not name.isprintable():
        raise DataError(f"A group's name has 1 to {LONGEST} characters.")
    return name


def two_means(x: np.ndarray) -> np.ndarray:
    """(n,) bool: the second of two clusters, the smaller one; none where all samples are the same. Nothing is random:
    it begins with the two sides of the first principal direction.

    >>> two_means(np.array([[0.0], [0.1], [0.2], [5.0]])).tolist()
    [False, False, False, True]
    """
    z = np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    z = z - z.mean(0) if len(z) else z
    if len(z) < 2 or not np.abs(z).max() > 1e-9:
        return np.zeros(len(z), dtype=bool)
    second: NDArray[np.bool_] = z @ np.linalg.svd(z, full_matrices=False)[2][0] > 0
    for _ in range(ROUNDS):
        if not second.any() or second.all():
            break
        a, b = z[~second].mean(0), z[second].mean(0)
        new = ((z - b) ** 2).sum(1) < ((z - a) ** 2).sum(1)
        if (new == second).all():
            break
        second = new
    return second if second.sum() * 2 <= len(z) else ~second
