"""What several runs say together: does accuracy go with the loss that conflicting samples made up, do two ways to
measure the use of the core feature agree."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spurless.core.data import Bundle
from spurless.core.errors import UserError
from spurless.metrics.feature_use import feature_use
from spurless.metrics.records import read, summary
from spurless.train.result import Result

Point = Mapping[str, Any]


class Correlation(NamedTuple):
    """Of two numbers over runs."""

    pearson: float
    low: float  # 95 % limits of Pearson's, by Fisher's z; the whole range for two or three runs
    high: float
    spearman: float
    n: int


def correlation(points: Sequence[Point], x: str = "largest_share", y: str = "unbiased") -> Correlation:
    """How two numbers go together over runs (figure 12: unbiased accuracy and the largest conflicting loss share).

    Runs in which one of them is missing or not finite are left out; NaN where fewer than two differ.

    >>> points = [{"largest_share": s, "unbiased": 50 + 40 * s} for s in (0.2, 0.5, 0.9)] + [{"unbiased": None}]
    >>> correlation(points)
    Correlation(pearson=1.0, low=-1.0, high=1.0, spearman=1.0, n=3)
    """
    from scipy.stats import rankdata

    measured = [(p[x], p[y]) for p in _with(points, x, y)]
    pairs = np.array(measured, float).reshape(-1, 2)
    r = _pearson(pairs)
    rank = _pearson(np.stack([rankdata(c) for c in pairs.T], 1)) if len(pairs) else math.nan
    low, high = (r, r) if len(pairs) > 3 or math.isnan(r) else (-1.0, 1.0)  # of a perfect one no doubt is left
    if len(pairs) > 3 and abs(r) < 1:
        half = 1.959964 / math.sqrt(len(pairs) - 3)
        low, high = (math.tanh(math.atanh(r) + s * half) for s in (-1, 1))
    return Correlation(r, low, high, rank, len(pairs))


def loss_share_points(folders: Iterable[str | Path], over: str = "recipe.lr") -> list[dict[str, Any]]:
    """For each watched run its unbiased accuracy and the largest share of a batch's loss of conflicting samples.

    `over` is the setting that the runs differ in; it is in the point under its last word, such as `lr`.
    """
    from spurless.train.saved import load_run

    points_found = []
    for folder in folders:
        result = load_run(folder)
        points_found.append(_point(result, over) | summary(read(folder)))
    return points_found


def core_use_points(
    runs: Iterable[Result | str | Path], data: Bundle, over: str = "recipe.lr", **settings: Any
) -> list[dict[str, Any]]:
    """For each run, CSI and the shares of attribution on the core and the spurious feature (figure 26: Double MNIST).

    Settings are those of `feature_use`. Runs that diverged are left out.

    >>> from spurless import fit, load_data
    >>> toy = load_data({"name": "toy", "n": 40})
    >>> run = fit("erm", toy, recipe={"epochs": 1, "lr": 0.01}, progress=False)
    >>> (point,) = core_use_points([run], toy, rows=20, attributed=2, steps=2)
    >>> point["lr"], 0 <= point["core_share"] <= 1
    (0.01, True)
    """
    from spurless.train.saved import load_run

    points_found = []
    for run in runs:
        result = run if isinstance(run, Result) else load_run(run)
        if result.classifier is not None:
            points_found.append(_point(result, over) | feature_use(result.classifier, data, **settings))
    return points_found


class Agreement(NamedTuple):
    """Whether two measures put the values of a setting in the same order, each by its mean over seeds."""

    values: list[Any]  # of the setting, in order
    first: list[float]  # means of the first measure
    second: list[float]
    same: bool  # the two orders are one
    spearman: float


def same_order(points: Sequence[Point], over: str = "lr", first: str = "csi", second: str = "core_share") -> Agreement:
    """Do two measures order the values of a setting alike? (Figure 26: CSI and the share of attribution on the core.)

    >>> rows = (0.1, 0.5, 0.8), (0.01, 0.3, 0.6), (0.1, 0.6, 0.7)
    >>> same_order([{"lr": r, "csi": c, "core_share": s} for r, c, s in rows])
    Agreement(values=[0.01, 0.1], first=[0.3, 0.55], second=[0.6, 0.75], same=True, spearman=1.0)
    """
    from scipy.stats import rankdata

    measured = _with(points, first, second)
    if not measured:
        raise UserError(f"No run has both {first} and {second}.")
    try:
        values = sorted({p[over] for p in measured})
    except (KeyError, TypeError):
        raise UserError(f"The runs must all have {over}, and of one kind, to be put in its order.") from None

    def means(name: str) -> list[float]:
        return [float(np.mean([p[name] for p in measured if p[over] == v])) for v in values]

    a, b = means(first), means(second)
    same = rankdata(a).tolist() == rankdata(b).tolist()  # a tie of one alone is no order of both
    pairs = [{"a": one, "b": other} for one, other in zip(a, b, strict=True)]
    return Agreement(values, a, b, same, correlation(pairs, "a", "b").spearman)


def _with(points: Sequence[Point], *names: str) -> list[Point]:
    """Those that have a finite number under each of these names."""
    return [p for p in points if all(isinstance(p.get(n), Real) and math.isfinite(p[n]) for n in names)]


def _point(result: Result, over: str) -> dict[str, Any]:
    table, _, name = over.rpartition(".")
    settings = result.settings.get(table, {}) if table else result.settings
    scores = result.scores or {}
    # None without attributes, where the average stands for it; where a class has no test sample, nothing does.
    grouped = scores.get("unbiased") is not None or bool(scores.get("missing_classes"))
    unbiased = scores.get("unbiased" if grouped else "average")
    return {name: settings.get(name), "seed": result.seed, "status": result.status, "unbiased": unbiased}


def _pearson(pairs: np.ndarray) -> float:
    if len(pairs) < 2 or (np.ptp(pairs, 0) == 0).any():  # the deviation of equal numbers may be 1e-17
        return math.nan
    centred = pairs - pairs.mean(0)
    centred = np.ldexp(centred, -np.frexp(np.abs(centred).max(0))[1])  # squares of 1e200 are infinite
    r = float((centred[:, 0] @ centred[:, 1]) / np.sqrt((centred**2).sum(0)).prod())
    return max(-1.0, min(1.0, round(r, 12)))
