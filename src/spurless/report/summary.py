"""The result in a few sentences, written from the numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import hypot
from typing import Any, NamedTuple

from spurless.tables import Result, Score, finished, names, same_but_seed, same_data, score

LABELS = {
    "none": "It was not told any bias label.",
    "validation": "It was told the bias labels of the validation data.",
    "training": "It was told the bias labels of the training data.",
}


class Contender(NamedTuple):
    """A method and its settings: its runs differ in nothing but their seed."""

    name: str
    runs: list[Result]

    def mean(self, metric: str) -> Score | None:
        """Over the runs."""
        return mean_score([s for s in (score(r, metric) for r in self.runs) if s])

    def __str__(self) -> str:
        of = f" (mean of {len(self.runs)} seeds)" if len(self.runs) > 1 else ""
        return f"plain training ({self.name}){of}" if self.name == "erm" else f"{self.name}{of}"


class World(NamedTuple):
    """The contenders on one data set: the plain one, and the best of the others."""

    title: str
    baseline: Contender
    others: list[Contender]
    best: Contender | None
    first: str  # the score that decides


def worlds(results: Sequence[Result]) -> list[World]:
    """The finished runs by data set; those data sets that have a score."""
    groups = _by(same_data, [r for r in results if finished(r)])
    titles = names([{"method": g[0].get("data"), "settings": g[0].get("settings")} for g in groups])
    return [w for w in map(_world, titles, groups) if w]


def _world(title: str, results: list[Result]) -> World | None:
    groups = _by(same_but_seed, results)
    shown = names([{k: g[0].get(k) for k in ("method", "net", "settings")} for g in groups])
    everyone = [Contender(name, runs) for name, runs in zip(shown, groups, strict=True)]
    first = "conflicting" if any(c.mean("conflicting") for c in everyone) else "average"
    known = [c for c in everyone if c.mean(first)]
    if not known:
        return None
    baseline = next((c for c in known if c.runs[0].get("method") == "erm"), known[0])
    others = [c for c in known if c is not baseline]
    return World(title, baseline, others, max(others, key=lambda c: _value(c, first), default=None), first)


def mean_score(found: Sequence[Score]) -> Score | None:
    """Of several runs. They share their test rows, so that the mean of their limits is wide enough.

    >>> mean_score([Score(50.0, 40.0, 60.0), Score(60.0, 50.0, 70.0)])
    Score(value=55.0, low=45.0, high=65.0)
    """
    if not found:
        return None
    value, low, high = (_mean([s[i] for s in found]) for i in range(3))
    return None if value is None else Score(value, low, high)


def summary(results: Sequence[Result]) -> list[str]:
    """One paragraph for each data set, and one for the runs that did not finish.

    >>> erm = {"method": "erm", "data": "toy", "scores": {"conflicting": 20.0, "aligned": 99.0}}
    >>> lff = {"method": "lff", "data": "toy", "scores": {"conflicting": 65.5, "aligned": 97.0}}
    >>> print(summary([erm, lff])[0])  # doctest: +NORMALIZE_WHITESPACE
    On toy, plain training (erm) is right on 20.0 % of the samples that contradict the shortcut, and on 99.0 % of those
    that follow it. lff is right on 65.5 % of those that contradict it, a gain of 45.5 points, and on 97.0 % of those
    that follow it, a loss of 2.0 points.
    """
    told = [_paragraph(world) for world in worlds(results)]
    lost = [f"{name} ({r.get('status')})" for r, name in zip(results, names(results), strict=True) if not finished(r)]
    if lost:
        told.append(f"Without a score: {', '.join(lost)}.")
    return told or ["There is no result yet."]


def difference(new: Score, old: Score) -> Score:
    """`new` less `old` in points, with its interval (Zou and Donner's, as if each had test rows of its own).

    Here both have the same rows, on which they mostly agree, so that the true interval is narrower.

    >>> [round(v, 1) for v in difference(Score(65.0, 60.0, 70.0), Score(20.0, 17.0, 24.0))]
    [45.0, 38.6, 50.8]
    """
    change = new.value - old.value
    if new.low is None or new.high is None or old.low is None or old.high is None:
        return Score(change)
    below = hypot(new.value - new.low, old.high - old.value)
    above = hypot(new.high - new.value, old.value - old.low)
    return Score(change, change - below, change + above)


def _paragraph(world: World) -> str:
    title, baseline, others, best, first = world
    sentences = [f"On {title}, {_performance(baseline, first)}."]
    if best is not None:
        change = difference(_score(best, first), _score(baseline, first))
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
    also = f", and on {follow.value:.1f} % of those that follow it" if follow else ""
    return f"{who} is right on {_value(who, first):.1f} % of the samples that contradict the shortcut{also}"


def _comparison(who: Contender, baseline: Contender, first: str, change: Score) -> str:
    what = "those that contradict it" if first == "conflicting" else "them"
    limits = "" if change.low is None else f" (95 % interval: {change.low:+.1f} to {change.high:+.1f})"
    text = f"is right on {_value(who, first):.1f} % of {what}, {_points(change.value)}{limits}"
    follow, before = who.mean("aligned"), baseline.mean("aligned")
    if first == "conflicting" and follow and before:
        moved = _points(follow.value - before.value)
        text += f", and on {follow.value:.1f} % of those that follow it, {moved}"
    return text


def _points(change: float) -> str:
    if round(abs(change), 1) == 0:
        return "no change"
    return f"a {'gain' if change > 0 else 'loss'} of {abs(change):.1f} points"


def _score(who: Contender, metric: str) -> Score:
    found = who.mean(metric)
    assert found is not None
    return found


def _value(who: Contender, metric: str) -> float:
    return _score(who, metric).value


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def _by(key: Callable[[Result], str], results: Sequence[Result]) -> list[list[Result]]:
    groups: dict[str, list[Any]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return list(groups.values())
