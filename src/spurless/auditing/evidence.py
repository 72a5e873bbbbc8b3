"""The tests behind a verdict: exact where that is possible, and corrected for how many there are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spurless.core.stats import holm as holm
from spurless.core.stats import wilson

Score = dict[str, float | int]
Floats = NDArray[np.floating[Any]]


def more_errors(wrong: ArrayLike, marked: ArrayLike, label: ArrayLike) -> float:
    """The p-value of "errors are no more frequent among the marked samples, class by class": exact, one-sided.

    Given how many samples, errors and marked samples each class has, the errors among its marked samples are
    hypergeometric; the test is on their sum over the classes (the exact form of the Cochran-Mantel-Haenszel test).

    >>> wrong, marked = [True] * 3 + [False] * 5, [True] * 3 + [False] * 5
    >>> round(more_errors(wrong, marked, [0] * 8), 6) == round(1 / 56, 6)  # one of the 8 over 3 draws
    True
    >>> more_errors([True, False], [True, False], [0, 1])  # in each class all rows are alike: nothing to compare
    1.0
    """
    bad, picked, y = (np.asarray(each) for each in (wrong, marked, label))  # (n,) each
    chances, least = np.ones(1), 0
    for c in np.unique(y):
        own = y == c
        chance, start = _hypergeometric(int(own.sum()), int(bad[own].sum()), int(picked[own].sum()))
        chances, least = np.convolve(chances, chance), least + start
    seen = int((bad & picked).sum())
    return float(min(1.0, chances[seen - least :].sum()))


def more_errors_in_two(wrong: ArrayLike, marked: ArrayLike, label: ArrayLike) -> float:
    """The p-value of "errors are more frequent among the marked samples in one class at most".

    The second smallest p-value of the classes, times how many could have been it (a partial conjunction). With other
    strata than classes, such as the values of an attribute, the same for those.

    >>> wrong, marked = [True] * 3 + [False] * 5, [True] * 3 + [False] * 5
    >>> more_errors_in_two(wrong, marked, [0] * 8)
    1.0
    >>> round(more_errors_in_two(wrong * 2, marked * 2, [0] * 8 + [1] * 8), 6) == round(1 / 56, 6)
    True
    """
    bad, picked, y = (np.asarray(each) for each in (wrong, marked, label))  # (n,) each
    classes = [y == c for c in np.unique(y) if 0 < picked[y == c].sum() < (y == c).sum()]
    each = sorted(more_errors(bad[own], picked[own], y[own]) for own in classes)
    return min(1.0, (len(each) - 1) * each[1]) if len(each) > 1 else 1.0


def leaning(answers: ArrayLike, values: ArrayLike, label: ArrayLike, shape: tuple[int, int]) -> Floats:
    """(classes, values): how many samples more than expected get an answer at a value of an attribute, given their
    label.

    >>> answers, values, label = [0, 1, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1]  # it answers by the value alone
    >>> leaning(answers, values, label, (2, 2)).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    predicted, at, y = (np.asarray(each) for each in (answers, values, label))  # (n,) each
    excess = np.zeros(shape)
    for c in np.unique(y):
        own = y == c
        table = np.zeros(shape)
        np.add.at(table, (predicted[own], at[own]), 1)
        excess += table - np.outer(table.sum(1), table.sum(0)) / own.sum()
    return excess


def _hypergeometric(rows: int, bad: int, picked: int) -> tuple[Floats, int]:
    """The chances of each possible number of bad samples among the picked ones, and the least such number."""
    least, most = max(0, picked + bad - rows), min(bad, picked)
    k = np.arange(least, most + 1)
    log = _log_choose(bad, k) + _log_choose(rows - bad, picked - k) - _log_choose(rows, np.array([picked]))
    return np.exp(log), least


def _log_choose(n: int, k: NDArray[np.integer[Any]]) -> Floats:
    from scipy.special import gammaln

    return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1), float)


def association(table: NDArray[Any]) -> float:
    """The p-value of "rows and columns of this table of counts have nothing to do with each other" (Pearson's χ²).

    >>> association(np.array([[50, 50], [50, 50]])), association(np.array([[99, 1], [1, 99]])) < 1e-9
    (1.0, True)
    """
    from scipy.stats import chi2_contingency

    table = table[table.sum(1) > 0][:, table.sum(0) > 0]
    return float(chi2_contingency(table, correction=False).pvalue) if min(table.shape) > 1 else 1.0


def more_than_half(yes: int, no: int) -> float:
    """The p-value of "yes is no more likely than no": the sign test, one-sided.

    >>> more_than_half(5, 0) == 0.5**5, more_than_half(0, 0)
    (True, 1.0)
    """
    from scipy.stats import binom

    return float(binom.sf(yes - 1, yes + no, 0.5))


def share(right: ArrayLike) -> Score | None:
    """The share of True, in percent, with its 95 % interval.

    >>> {k: round(v, 1) for k, v in share([True, True, True, False]).items()}
    {'value': 75.0, 'low': 30.1, 'high': 95.4, 'n': 4}
    """
    hit = np.asarray(right, dtype=bool)
    if not len(hit):
        return None
    low, high = wilson(int(hit.sum()), len(hit))
    return {"value": 100 * float(hit.mean()), "low": 100 * low, "high": 100 * high, "n": len(hit)}


def apart(better: Score | None, worse: Score | None) -> Score | None:
    """The difference of two shares of different samples, in points, with its 95 % interval (Newcombe).

    >>> gap = apart(share([True] * 9 + [False]), share([True] * 4 + [False] * 6))
    >>> {k: round(v, 1) for k, v in gap.items()}
    {'value': 50.0, 'low': 8.2, 'high': 74.6, 'n': 20}
    """
    if better is None or worse is None:
        return None
    gap = better["value"] - worse["value"]
    low = gap - math.hypot(better["value"] - better["low"], worse["high"] - worse["value"])
    high = gap + math.hypot(better["high"] - better["value"], worse["value"] - worse["low"])
    return {"value": gap, "low": low, "high": high, "n": int(better["n"] + worse["n"])}


def rows_needed(error: float, gap: float = 0.10) -> int:
    """How many conflicting samples it takes to see that they err more often than `error` by `gap`, four times in
    five.

    The usual formula for a share against a known one, one-sided at 2.5 %.

    >>> rows_needed(0.05), rows_needed(0.30)
    (53, 172)
    """
    other = min(error + gap, 0.99)
    spread = 1.959964 * math.sqrt(error * (1 - error)) + 0.841621 * math.sqrt(other * (1 - other))
    return math.ceil((spread / gap) ** 2)
