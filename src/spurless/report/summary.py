"""The result in a few sentences, written from the numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import hypot, sqrt
from statistics import fmean, variance
from typing import Any, NamedTuple

from spurless.core.digests import in_full
from spurless.core.stats import Estimate, estimate
from spurless.report.tables import Result, data_of, finished, names, same_but_seed, same_data, score

LABELS = {
    "none": "It was not told any bias label.",
    "validation": "It was told the bias labels of the validation data.",
    "training": "It was told the bias labels of the training data.",
}


class Contender(NamedTuple):
    """A method and its settings: its runs differ in nothing but their seed."""

    name: str
    runs: list[Result]

    def mean(self, metric: str) -> Estimate | None:
        """Over the runs."""
        return mean_score([s for _, s in self.scores(metric)])

    def scores(self, metric: str) -> list[tuple[Any, Estimate]]:
        """Of each run, with what a run of another method shares that is its partner: seed and data."""
        return [(_partner(r), s) for r in self.runs if (s := score(r, metric))]

    def __str__(self) -> str:
        of = f" (mean of {len(self.runs)} seeds)" if len(self.runs) > 1 else ""
        return f"plain training ({self.name}){of}" if self.name == "erm" else f"{self.name}{of}"


class World(NamedTuple):
    """The contenders on one dataset: the plain one, and the best of the others."""

    title: str
    baseline: Contender
    others: list[Contender]
    best: Contender | None
    first: str  # the score that decides


def worlds(results: Sequence[Result]) -> list[World]:
    """The finished runs by dataset; those datasets that have a score."""
    ended = [r for r in results if finished(r)]
    groups = _by(same_data(ended), ended)
    titles = names([{"method": g[0].get("data"), "settings": {"data": data_of(g[0])}} for g in groups])
    return [w for w in map(_world, titles, groups) if w]


def _world(title: str, results: list[Result]) -> World | None:
    groups = _by(map(same_but_seed, results), results)
    shown = names([{k: g[0].get(k) for k in ("method", "net", "settings")} for g in groups])
    everyone = [Contender(name, runs) for name, runs in zip(shown, groups, strict=True)]
    first = "conflicting" if any(c.mean("conflicting") for c in everyone) else "average"
    present = [c for c in everyone if c.mean(first)]
    if not present:
        return None
    baseline = next((c for c in present if c.runs[0].get("method") == "erm"), present[0])
    others = [c for c in present if c is not baseline]
    return World(title, baseline, others, max(others, key=lambda c: _value(c, first), default=None), first)


def mean_score(scores: Sequence[Estimate]) -> Estimate | None:
    """Of several runs, with Student's interval over their seeds; of a single one, its own, over the test samples.

    >>> str(mean_score([Estimate(50.0, 49.0, 51.0), Estimate(52.0, 51.0, 53.0), Estimate(54.0, 53.0, 55.0)]))
    '52.0 [47.0–57.0]'
    """
    if len(scores) < 2:
        return scores[0] if scores else None
    return estimate([s.value for s in scores]).in_percent()


def summary(results: Sequence[Result]) -> list[str]:
    """One paragraph for each dataset, and one for the runs that did not finish.

    >>> erm = {"method": "erm", "data": "toy", "scores": {"conflicting": 20.0, "aligned": 99.0}}
    >>> lff = {"method": "lff", "data": "toy", "scores": {"conflicting": 65.5, "aligned": 97.0}}
    >>> print(summary([erm, lff])[0])  # doctest: +NORMALIZE_WHITESPACE
    On toy, plain training (erm) is right on 20.0 % of the samples that conflict with the shortcut, and on 99.0 % of
    those that align with it. lff is right on 65.5 % of those that conflict with it, a gain of 45.5 points, and on 97.0
    % of those that align with it, a loss of 2.0 points.
    """
    told = [_paragraph(world) for world in worlds(results)]
    lost = [f"{name} ({r.get('status')})" for r, name in zip(results, names(results), strict=True) if not finished(r)]
    if lost:
        told.append(f"Without a score: {', '.join(lost)}.")
    return told or ["There is no result yet."]


def difference(new: Contender, old: Contender, metric: str) -> Estimate | None:
    """`new` less `old` in points. Its interval is over seeds, paired where both have the same ones; where each has one
    only, over the test samples."""
    ours, theirs = new.scores(metric), old.scores(metric)
    if not ours or not theirs:
        return None
    if len(ours) == len(theirs) == 1:
        return _over_rows(ours[0][1], theirs[0][1])
    as_full = in_full(partner[-1] for partner, _ in (*ours, *theirs))  # of runs of older and newer versions
    a, b = ({(*partner[:-1], as_full(partner[-1])): s.value for partner, s in side} for side in (ours, theirs))
    if a.keys() == b.keys() and len(a) == len(ours) == len(theirs):
        change = estimate([a[partner] - b[partner] for partner in a])
        return Estimate(fmean(a.values()) - fmean(b.values()), change.low, change.high)
    return _unpaired([s.value for _, s in ours], [s.value for _, s in theirs])


def _over_rows(new: Estimate, old: Estimate) -> Estimate:
    """Zou and Donner's interval, as if each had test samples of its own.

    Here both have the same rows, on which they mostly agree, so that the true interval is narrower.

    >>> str(_over_rows(Estimate(65.0, 60.0, 70.0), Estimate(20.0, 17.0, 24.0)))
    '45.0 [38.6–50.8]'
    """
    change = new.value - old.value
    if new.low is None or new.high is None or old.low is None or old.high is None:
        return Estimate(change)
    below = hypot(new.value - new.low, old.high - old.value)
    above = hypot(new.high - new.value, old.value - old.low)
    return Estimate(change, change - below, change + above)


def _unpaired(new: Sequence[float], old: Sequence[float]) -> Estimate:
    """Welch's interval. A side with one seed is taken to vary as the other one does.

    >>> str(_unpaired([60.0, 62.0, 64.0, 66.0], [50.0, 51.0, 52.0]))
    '12.0 [8.1–15.9]'
    """
    from scipy.special import stdtrit  # scipy.stats takes a second to import

    sides = [(variance(v) if len(v) > 1 else None, len(v)) for v in (new, old)]
    present = [(v / n, n) for v, n in sides if v is not None]
    spread = next(v for v, _ in sides if v is not None)
    square = sum((spread if v is None else v) / n for v, n in sides)
    free = square**2 / sum(v**2 / (n - 1) for v, n in present) if len(present) == 2 and square else present[0][1] - 1
    change = fmean(new) - fmean(old)
    half = float(stdtrit(free, 0.975)) * sqrt(square)
    return Estimate(change, change - half, change + half)


def _paragraph(world: World) -> str:
    title, baseline, others, best, first = world
    sentences = [f"On {title}, {_performance(baseline, first)}."]
    if best is not None:
        change = difference(best, baseline, first)
        assert change is not None
        among = f"{best}, the best of {len(others)} other methods," if len(others) > 1 else str(best)
        sentences.append(f"{among} {_comparison(best, baseline, first, change)}.")
        if change.low is not None and change.high is not None and change.low <= 0 <= change.high:
            sentences.append("So small a difference may be chance.")
        if first == "conflicting":
            sentences.append(LABELS.get(str(best.runs[0].get("labels_used")), ""))
    return " ".join(s for s in sentences if s)


def _performance(who: Contender, first: str) -> str:
    if first == "average":
        return f"{who} is right on {_value(who, first):.1f} % of the samples; no bias attribute is known there"
    follow = who.mean("aligned")
    also = f", and on {follow.value:.1f} % of those that align with it" if follow else ""
    return f"{who} is right on {_value(who, first):.1f} % of the samples that conflict with the shortcut{also}"


def _comparison(who: Contender, baseline: Contender, first: str, change: Estimate) -> str:
    what = "those that conflict with it" if first == "conflicting" else "them"
    seeds = max(len(side.scores(first)) for side in (who, baseline)) > 1
    counted = "over seeds" if seeds else "over test samples alone, with one seed"
    limits = "" if change.low is None else f" (95 % CI {counted}: {change.low:+.1f} to {change.high:+.1f})"
    text = f"is right on {_value(who, first):.1f} % of {what}, {_points(change.value)}{limits}"
    follow, before = who.mean("aligned"), baseline.mean("aligned")
    if first == "conflicting" and follow and before:
        moved = _points(follow.value - before.value)
        text += f", and on {follow.value:.1f} % of those that align with it, {moved}"
    return text


def _points(change: float) -> str:
    if round(abs(change), 1) == 0:
        return "no change"
    return f"a {'gain' if change > 0 else 'loss'} of {abs(change):.1f} points"


def _score(who: Contender, metric: str) -> Estimate:
    value = who.mean(metric)
    assert value is not None
    return value


def _value(who: Contender, metric: str) -> float:
    return _score(who, metric).value


def _partner(run: Result) -> tuple[Any, ...]:
    data = data_of(run)
    return run.get("seed"), data.get("seed"), data.get("fingerprint")


def _by(keys: Iterable[str], results: Sequence[Result]) -> list[list[Result]]:
    groups: dict[str, list[Any]] = {}
    for key, result in zip(keys, results, strict=True):
        groups.setdefault(key, []).append(result)
    return list(groups.values())
