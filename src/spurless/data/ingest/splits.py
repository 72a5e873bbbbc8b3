"""Which samples are for training, validation and test: how splits are written, and how missing ones are drawn.

There are two ways to draw, because what was measured with each must stay as it is: `share_out` by a hash of each
sample's name, so that one sample more changes hardly anything, for images and for data from Python; `stratified` by a
seeded order of the samples, for tables.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from spurless.core.digests import digest
from spurless.core.errors import SettingError

SPLITS = ("train", "val", "test")
SPLIT_NAMES = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val"}
SPLIT_NAMES |= {"test": "test", "testing": "test"}
SPLIT_CODES = SPLIT_NAMES | {"0": "train", "1": "val", "2": "test"}  # in a table; folders 0, 1, 2 are classes


def share_out(
    names: Sequence[str], strata: Sequence[tuple[Hashable, ...]], val: float, test: float, seed: int
) -> list[str]:
    """train, val or test for each name: its share of every stratum to within a sample.

    A stratum begins with a class, and each class keeps something in train. Samples that are alone in theirs are drawn
    from together, class by class.

    >>> names = [f"{i}.png" for i in range(20)]
    >>> drawn = share_out(names, [("cat",)] * 15 + [("dog",)] * 5, val=0.2, test=0.2, seed=0)
    >>> [drawn[:15].count(part) for part in SPLITS], [drawn[15:].count(part) for part in SPLITS]
    ([9, 3, 3], [3, 1, 1])
    """
    rows_of: dict[tuple[Hashable, ...], list[int]] = defaultdict(list)
    sizes, left = Counter(strata), Counter(stratum[0] for stratum in strata)  # left in train, of each class
    for row, stratum in enumerate(strata):
        rows_of[stratum if sizes[stratum] > 1 else stratum[:1]].append(row)
    out = ["train"] * len(names)
    seen = tested = validated = 0
    for (of_class, *_), rows in sorted(rows_of.items(), key=lambda item: repr(item[0])):
        # Rounded over all strata so far, so that many small ones, each too small for a share, still give theirs.
        seen += len(rows)
        n_test = min(max(int(test * seen + 0.5) - tested, 0), len(rows), left[of_class] - 1)
        n_val = min(max(int(val * seen + 0.5) - validated, 0), len(rows) - n_test, left[of_class] - 1 - n_test)
        tested, validated = tested + n_test, validated + n_val
        left[of_class] -= n_test + n_val
        order = [rows[at] for at in shuffled([names[row] for row in rows], seed)]
        for row in order[:n_test]:
            out[row] = "test"
        for row in order[n_test : n_test + n_val]:
            out[row] = "val"
    return out


def shuffled(names: Sequence[str], seed: int) -> list[int]:
    """The samples in an order that only each one's name and the seed decide: the same everywhere.

    >>> shuffled(["a", "b", "c"], seed=0), shuffled(["c", "b"], seed=0)
    ([2, 0, 1], [0, 1])
    """
    rank = [digest(f"{seed} {name}".encode("utf-8", "surrogateescape")) for name in names]
    return sorted(range(len(names)), key=rank.__getitem__)


def stratified(groups: NDArray[np.int64], fractions: Sequence[float], seed: int) -> NDArray[np.object_]:
    """(n,) of train, val, test: a seeded split in which every group has its share to within a sample or two.

    `groups` is (n, k) of codes, the class first. A class too rare to be shared out is for training.

    >>> groups = np.repeat([[0, 0], [0, 1], [1, 0]], [60, 20, 20], axis=0)
    >>> split = stratified(groups, (0.6, 0.2, 0.2), seed=0)
    >>> [int((split[:60] == s).sum()) for s in SPLITS], [int((split == s).sum()) for s in SPLITS]
    ([36, 12, 12], [60, 20, 20])
    """
    _, val, test = check_fractions(fractions)
    n = len(groups)
    order = np.lexsort((np.random.default_rng(seed).random(n), *groups.T[::-1]))  # by group, at random within it
    split = np.full(n, "train", dtype=object)
    picked = _every(n, test)
    split[order[picked]] = "test"
    rest = order[~picked]
    split[rest[_every(len(rest), val / (1 - test))]] = "val"
    for c in np.unique(groups[:, 0]):
        of_class = np.flatnonzero(groups[:, 0] == c)
        if not (split[of_class] == "train").any():
            split[of_class] = "train"
    return split


def _every(n: int, share: float) -> NDArray[np.bool_]:
    """(n,) bool: evenly spaced, round(n * share) of them, so that any stretch holds its share."""
    steps = np.floor(np.arange(n + 1) * share + 0.5 + 1e-9)
    return np.asarray(np.diff(steps) > 0)


def check_fractions(fractions: Sequence[float]) -> tuple[float, float, float]:
    """The shares of train, val and test, or a SettingError."""
    if len(fractions) != 3 or fractions[0] <= 0 or min(fractions) < 0 or abs(sum(fractions) - 1) > 1e-6:
        raise SettingError(
            f"data.fractions = {list(fractions)} is not allowed; it takes the shares of train, val and test, "
            "which add up to 1, such as [0.6, 0.2, 0.2]."
        )
    return fractions[0], fractions[1], fractions[2]


def thinned(conflicting: NDArray[np.bool_], split: NDArray[np.object_], rho: float, seed: int) -> NDArray[np.bool_]:
    """(n,) bool: the samples to keep so that a share `rho` of the train and of the val samples conflicts.

    The larger of the two kinds loses samples at random; the test samples stay as they are.

    >>> conflicting, split = np.repeat([True, False], [50, 90]), np.repeat(["train"], 140)
    >>> keep = thinned(conflicting, split, rho=0.1, seed=0)
    >>> int(keep[:50].sum()), int(keep[50:].sum())
    (10, 90)
    """
    rng = np.random.default_rng(seed)
    keep = np.ones(len(split), bool)
    for split_name in ("train", "val"):
        against = rng.permutation(np.flatnonzero((split == split_name) & conflicting))
        along = rng.permutation(np.flatnonzero((split == split_name) & ~conflicting))
        if len(against) * (1 - rho) > len(along) * rho:
            keep[against[round(len(along) * rho / (1 - rho)) :]] = False
        elif rho > 0:
            keep[along[round(len(against) * (1 - rho) / rho) :]] = False
    return keep
