"""Intervals and corrections: Wilson's, of a mean of groups, Student's over seeds, and Holm's."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from spurless.core.errors import SettingError

NOTHING = "–"  # where a table has no number
CI = "95 % CI"  # the level of every interval that is printed


class Estimate(NamedTuple):
    """A number with its 95 % CI, where it has one, and its n: samples of a share, seeds of a mean.

    >>> str(Estimate(71.25, 68.0, 74.31)), str(Estimate(71.25)), Estimate().known
    ('71.2 [68.0–74.3]', '71.2', False)
    """

    value: float = math.nan  # nothing was measured
    low: float | None = None
    high: float | None = None
    n: int = 0
    sd: float | None = None  # over seeds

    @property
    def known(self) -> bool:
        return not math.isnan(self.value)

    def in_percent(self) -> Estimate:
        """Ends the interval where percentages end."""
        if self.low is None or self.high is None:
            return self
        return self._replace(low=max(0.0, self.low), high=min(100.0, self.high))

    def text(self, digits: int = 2) -> str:
        """Value ± standard deviation, as tables of papers print it."""
        if not self.known:
            return NOTHING
        return f"{self.value:.{digits}f}" + ("" if self.sd is None else f" ± {self.sd:.{digits}f}")

    def limits(self, digits: int = 2, missing: str = NOTHING) -> str:
        return missing if self.low is None else f"[{self.low:.{digits}f}–{self.high:.{digits}f}]"

    def __str__(self) -> str:
        limits = self.limits(1, missing="").replace("100.0", "100")  # 11 characters at most
        return f"{self.value:.1f} {limits}".rstrip()


def wilson(correct: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """The Wilson score interval of a proportion; the whole range (0, 1) for n = 0, where nothing is known.

    >>> [round(limit, 4) for limit in wilson(8, 10)]
    [0.4902, 0.9433]
    >>> wilson(0, 0)
    (0.0, 1.0)
    """
    if not (0 <= correct <= n and 0 <= level < 1):
        raise SettingError(
            f"An interval needs 0 ≤ correct ≤ n and a level from 0 to below 1, not {correct} of {n} at level {level}."
        )
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + level / 2)
    p = correct / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    # Near the ends the limits are so close to p that rounding can put them on the wrong side.
    return max(0.0, min(p, centre - half)), min(1.0, max(p, centre + half))


def mean_of_cells(
    correct: Sequence[int], n: Sequence[int], weights: Sequence[float], level: float = 0.95
) -> tuple[float, float, float]:
    """A weighted mean of independent proportions, and its interval; of one proportion, that is Wilson's.

    The interval is Wilson's for as many samples as would give one proportion the variance that the mean has (the
    effective sample size of survey statistics; Franco et al. 2019):

        n_eff = θ (1 − θ) / Σ w² p (1 − p) / n,    θ = Σ w p,    p = (correct + 1) / (n + 2),    Σ w = 1

    where one success and one failure more keep a cell that is all right from counting as known for sure. Simulated
    coverage is 92 to 97 % from 4 large cells to 100 cells of 10 samples. Combining the cells' own Wilson limits (MOVER)
    falls to 85 % there, as each is drawn towards one half and the pulls add up.

    >>> [round(v, 4) for v in mean_of_cells([8], [10], [1])]
    [0.8, 0.4902, 0.9433]
    >>> [round(v, 4) for v in mean_of_cells([8, 5], [10, 10], [1, 1])]
    [0.65, 0.4398, 0.8146]
    """
    c, m, w = (np.asarray(each, float) for each in (correct, n, weights))  # (cells,) each
    if not (c.shape == m.shape == w.shape and (m > 0).all() and (c >= 0).all() and (c <= m).all()):
        raise SettingError("A mean of cells needs samples in each, how many are right, and a weight: lists as long.")
    if not ((w >= 0).all() and 0 < w.sum() < np.inf):
        raise SettingError("The weights of cells are at least 0, and not all 0.")
    w = w / w.sum()
    p = (c + 1) / (m + 2)  # (cells,)
    effective = (w @ p) * (1 - w @ p) / np.sum(w**2 * p * (1 - p) / m)
    mean = float(min(w @ (c / m), 1.0))  # a sum of weights can round to more than 1
    low, high = wilson(mean * effective, effective, level)
    return mean, float(low), float(high)


def estimate(values: Sequence[float]) -> Estimate:
    """The mean over seeds with its sample standard deviation and Student's 95 % CI.

    >>> mean = estimate([60.0, 62.0, 64.0])
    >>> mean.text(), mean.limits(), estimate([60.0]).limits(), estimate([]).text()
    ('62.00 ± 2.00', '[57.03–66.97]', '–', '–')
    """
    n = len(values)
    if n < 2:
        return Estimate(values[0], n=1) if values else Estimate()
    from scipy.special import stdtrit  # Student's quantile; scipy.stats takes a second to import

    mean, sd = statistics.fmean(values), statistics.stdev(values)
    half = float(stdtrit(n - 1, 0.975)) * sd / math.sqrt(n)
    return Estimate(mean, mean - half, mean + half, n, sd)


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's corrected p values.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    corrected, highest = [1.0] * len(ps), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[i]))
        corrected[i] = highest
    return corrected
