"""Which differences are real: paired over seeds and settings, corrected for the number of comparisons.

Two runs are a pair when they have the same data and the same seed; over several settings, a seed's pairs count as one.
The p value is that of the sign-flip test: if there were no difference, each pair's difference could as well have had
the other sign. With up to EXACT pairs all ways to flip are counted, and nothing is assumed about how differences are
distributed; with more, Student's t is used. The interval is Student's throughout. Holm's correction keeps the chance of
any false alarm in a family of lines below 5 %.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from spurless.core.stats import holm
from spurless.metrics.groups import MIN_GROUP

ALPHA = 0.05
EXACT = 16  # pairs: 65,536 ways to flip
REAL, UNSHOWN, FEW = "real", "not shown", "too few"
SMALL = "small group"  # a worst group of so few samples decides nothing, whatever the p value


@dataclass(frozen=True)
class Difference:
    """One line: what B scores beyond A."""

    where: str
    a: str
    b: str
    n: int
    mean_a: float
    mean_b: float
    difference: float
    low: float | None
    high: float | None
    p: float
    test: str
    p_corrected: float = 1.0
    verdict: str = FEW
    metric: str = ""
    worst_group_n: int | None = None  # of a worst group: the fewest samples that decided it in any of the runs


def p_value(differences: Sequence[float]) -> tuple[float, str]:
    """Of no difference, two-sided, and the test that gave it.

    >>> p_value([1.0, 2.0, 3.0])
    (0.25, 'sign flips, exact')
    """
    if len(differences) <= EXACT:
        return flip_p(differences), "sign flips, exact"
    from scipy.special import stdtr  # scipy.stats takes a second to import

    n, spread = len(differences), statistics.stdev(differences)
    mean = statistics.fmean(differences)
    if spread == 0:
        return (1.0 if mean == 0 else 0.0), "paired t"
    return 2 * float(stdtr(n - 1, -abs(mean) / (spread / math.sqrt(n)))), "paired t"


def flip_p(differences: Sequence[float]) -> float:
    """The share of all ways to flip signs whose sum is at least as far from 0."""
    import numpy as np

    d = np.asarray(differences, dtype=float)
    ways = (np.arange(2 ** len(d))[:, None] >> np.arange(len(d))) & 1  # (2^n, n)
    sums = np.abs((1 - 2 * ways) @ d)
    # A little less than the observed one: the same sum in another order of adding must count as reached.
    return float(np.mean(sums >= abs(d.sum()) - 1e-9 * np.abs(d).sum()))


def judge(lines: Sequence[Difference]) -> list[Difference]:
    """The lines of one family with corrected p values and verdicts."""
    ps = [line.p for line in lines]
    corrected = holm(ps)
    judged = []
    for i, (line, p) in enumerate(zip(lines, corrected, strict=True)):
        best = holm([*ps[:i], least_p(line.n), *ps[i + 1 :]])[i]  # had all its pairs agreed
        verdict = REAL if p < ALPHA else FEW if best >= ALPHA else UNSHOWN
        if line.worst_group_n is not None and line.worst_group_n < MIN_GROUP:
            verdict = SMALL
        judged.append(replace(line, p_corrected=p, verdict=verdict))
    return judged


def least_p(n: int) -> float:
    """The smallest p value that so many pairs can give.

    >>> least_p(3), least_p(6)
    (0.25, 0.03125)
    """
    return 2.0 ** (1 - n) if n <= EXACT else 0.0


def pairs_needed(comparisons: int) -> int:
    """Pairs with which each of so many comparisons can be shown to be real.

    >>> pairs_needed(1), pairs_needed(10)
    (6, 9)
    """
    return next(n for n in range(1, 100) if comparisons * 2.0 ** (1 - n) < ALPHA)
