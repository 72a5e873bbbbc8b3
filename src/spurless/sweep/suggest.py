"""suggest_lr(): the largest learning rate at which training stays stable, and what it buys."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

from spurless.bench import Trial, run_trials
from spurless.bench.claim import finished_row
from spurless.bench.executors.base import Options
from spurless.bench.points import DROP, Point, measured, points_of
from spurless.core.errors import UserError
from spurless.core.messages import log
from spurless.sweep.axes import Axis
from spurless.sweep.choice import TOLD, Choice, buys, choose, show, the_rule
from spurless.sweep.forecast import log_search
from spurless.sweep.result import Sweep
from spurless.sweep.run import AFTER, Spec, base_of, check, default_folder, save, seed_list, summary
from spurless.train.forecast import span

GROW = 4.0  # from one rate to the next, until one is not stable
NEAR = 1.25  # the largest stable rate and the smallest unstable one are this near when the search ends
RATES = (
    5  # of a search whose first step reaches the edge: the own one, the edge, and three halvings of what lies between
)
DOWN = 4  # steps down at most, where the recipe's own rate learns little
LEAST, MOST = 1e-8, 1e4  # rates that are tried
BUYS = (
    "conflicting", "unbiased", "average", "prunability", "pruned_accuracy", "activation_compressibility", "csi",
    "class_separation",
)  # fmt: skip

Train = Callable[[float | None], tuple[float, list[dict[str, Any]]]]  # a rate, or the recipe's own → it, and its rows


@dataclass
class Search:
    """The rates that were tried, and the search for the largest stable one."""

    trial: Train
    budget: float  # seconds
    there: Callable[[float], bool] = lambda rate: False  # whether a rate was tried before: it costs no time
    say: Callable[[str], None] = lambda text: None  # told how each rate went
    near: float = NEAR
    own: float = 0.0
    rows: dict[float, list[dict[str, Any]]] = field(default_factory=dict)  # by rate, in the order of the trials
    started: float = field(default_factory=time.monotonic)
    longest: float = 0.0  # seconds of a trial
    whole: bool = True  # False: the budget ended it

    def run(self) -> None:
        """Train at the recipe's own rate, then by steps of 4 until the edge is between two rates, then halve that
        stretch (on the logarithmic scale) until both are near."""
        self.own = self._try(None)
        self._down()
        while self.whole and self.stable is None and self._next(min(self.rows) / GROW):
            pass
        self._down()
        while self.whole and self.stable is not None and self.unstable is None and self._next(self.stable * GROW):
            pass
        while self.whole and self.stable is not None and self.unstable is not None:
            middle = nice(math.sqrt(self.stable * self.unstable))
            if self.unstable / self.stable <= self.near or middle in self.rows or not self._next(middle):
                break

    def _down(self) -> None:
        for _ in range(DOWN):
            if not self._unsure() or not self._next(min(self.rows) / GROW):
                break

    def points(self) -> list[Point]:
        """The rates as the points of a sweep, from small to large."""
        rates = sorted(self.rows)
        return points_of(Axis("lr", "recipe.lr", tuple(rates)), [self.rows[rate] for rate in rates])

    @property
    def stable(self) -> float | None:
        """The largest rate up to which all that were tried are stable."""
        return max((p.value for p in self.points() if p.stable), default=None)

    @property
    def unstable(self) -> float | None:
        """The smallest that is not."""
        return min((p.value for p in self.points() if not p.stable), default=None)

    def _unsure(self) -> bool:
        """Whether the smallest rate may itself be too large without having diverged: it learnt little, and the one
        below it, which would learn less if steps were merely too small, was not tried."""
        accuracies = [min(run.get("train_accuracy", 0.0) for run in p.runs) for p in self.points()]
        return accuracies[0] < 100 - DROP and (len(accuracies) < 2 or accuracies[0] > accuracies[1] - 1)

    def _next(self, rate: float) -> bool:
        rate = nice(rate)
        if not LEAST <= rate <= max(MOST, *self.rows) or rate in self.rows:
            return False
        if not self.there(rate) and not self._may():
            return False
        self._try(rate)
        return True

    def _may(self) -> bool:
        """Whether there is time for another trial as long as the longest so far."""
        self.whole = time.monotonic() - self.started + self.longest <= self.budget
        return self.whole

    def _try(self, rate: float | None) -> float:
        before = time.monotonic()
        is_known, rows = self.trial(rate)
        self.rows[is_known] = rows
        took = max(time.monotonic() - before, *(row.get("wall_seconds") or 0.0 for row in rows))
        self.longest = max(self.longest, took)
        self._tell(is_known)
        return is_known

    def _tell(self, rate: float) -> None:
        point = next(p for p in self.points() if p.value == rate)
        how = "diverged" if point.diverged else "stable" if point.stable else "not stable"
        accuracy = [run["train_accuracy"] for run in point.runs if "train_accuracy" in run]
        learnt = f", training accuracy {min(accuracy):.1f} %" if accuracy else ""
        spent = f"{span(time.monotonic() - self.started)} of {span(self.budget)}"
        self.say(f"lr {show(rate)}: {how}{learnt}; {len(self.rows)} rates tried, {spent}")


def nice(rate: float) -> float:
    """To two digits.

    >>> nice(0.04326), nice(1.25), nice(0.003)
    (0.043, 1.2, 0.003)
    """
    return float(f"{rate:.1e}")


def suggest_lr(
    data: str | Mapping[str, Any],
    net: Spec = None,
    method: str | Mapping[str, Any] = "erm",
    recipe: Spec = None,
    seeds: int | Sequence[int] = 1,
    budget: float = 600.0,
    out: str | Path | None = None,
    command: str | None = None,
    **options: Unpack[Options],
) -> Sweep:
    """Find the largest stable learning rate within `budget` seconds, and say what it buys over the recipe's own.

    A rate is stable if no seed diverges at it and no seed's training accuracy is more than 25 points below the best at
    a smaller rate. No test sample and no bias label decides. The same call again resumes where the budget ended it.
    """
    if budget <= 0:
        raise UserError(f"budget = {budget:g} is not allowed; it takes seconds, more than 0.")
    base = base_of(data, method, net, recipe)
    seeds_used = seed_list(seeds)
    folder = default_folder("suggest-lr", base, ()) if out is None else Path(out)
    axis = Axis("lr", "recipe.lr", ())

    def trials_at(rate: float | None) -> list[Trial]:
        settings = base if rate is None else axis.settings(base, rate)
        labels = {"over": "lr", "value": "own" if rate is None else str(rate)}
        parts = settings["data"], settings["method"], settings["net"] or None, settings["recipe"]
        return [Trial(*parts, seed, labels) for seed in seeds_used]

    def trial(rate: float | None) -> tuple[float, list[dict[str, Any]]]:
        trials = trials_at(rate)
        check(trials, folder)
        rows = run_trials(trials, folder, after=AFTER, **options)
        for row in rows:
            measured(row)  # a run that failed ends the search with its mistake
        return float(rows[0]["settings"]["recipe"]["lr"]), rows

    def there(rate: float) -> bool:
        return all(finished_row(folder / trial.folder) for trial in trials_at(rate))

    own = trials_at(None)
    check(own, folder)
    log_search(own, folder, options, budget, RATES)
    search = Search(trial, budget, there, log.info)
    search.run()
    return report(search, axis, folder, seeds_used, command)


def report(search: Search, axis: Axis, folder: Path, seeds: list[int], command: str | None) -> Sweep:
    """What was found, saved in the form of a sweep."""
    points = search.points()
    axis = replace(axis, values=tuple(p.value for p in points))
    choice = choose(points)
    at = {p.value: p for p in points}
    own, taken = at[search.own], at[choice.value] if choice else None
    gains = buys(own.means, taken.means, BUYS) if taken else {}
    rows = [row for rate in sorted(search.rows) for row in search.rows[rate]]
    content = summary([(axis, points)], rows) | {
        "title": f"Learning rate for {rows[0]['method']} on {rows[0]['data']}, {rows[0]['net']}",
        "text": in_words(search, axis, choice, own, taken, gains),
        "own": search.own,
        "suggested": choice.value if choice else None,
        "largest_stable": search.stable,
        "smallest_unstable": search.unstable,
        "buys": gains,
        "tried": list(search.rows),
        "whole": search.whole,
        "budget": search.budget,
        "seconds": round(time.monotonic() - search.started, 1),
        "seeds": seeds,
        "command": command,
    }
    save(content, [(axis, points)], folder)
    return Sweep(content | {"folder": str(folder)}, [(axis, points)])


def in_words(
    search: Search, axis: Axis, choice: Choice | None, own: Point, taken: Point | None, gains: Mapping[str, Any]
) -> str:
    """The answer in one paragraph."""
    tried = ", ".join(show(rate) for rate in search.rows)
    if choice is None or taken is None:
        return f"No rate that was tried is stable ({tried}); the recipe's own is {show(search.own)}."
    sentences = [f"Take lr = {show(choice.value)}; the recipe's own is {show(search.own)}."]
    edge = f"The largest stable rate found is {show(search.stable)}"
    sentences.append(edge + (f"; {show(search.unstable)} is not stable." if search.unstable else ", and none failed."))
    if choice.value != search.stable:
        word = "validation" if choice.by == "val_accuracy" else "training"
        sentences.append(
            f"It is not taken because its {word} accuracy is more than one standard error ({choice.tolerance:.2f} "
            f"points) below the best ({choice.best:.2f} %)."
        )
    sentences.append(_what_it_buys(own, taken, gains))
    sentences.append(f"Tried, in this order: {tried}.")
    if not search.whole:
        sentences.append("The budget ended the search before its end: re-running the command resumes it.")
    return " ".join(sentences) + "\n\n" + the_rule([(axis, choice)])


def _what_it_buys(own: Point, taken: Point, gains: Mapping[str, Any]) -> str:
    if taken is own:
        return "So the recipe's own rate is as large as it should be."
    if taken.out:
        return "But on the test split it fell by more than 25 points, which the rule does not look at."
    if own.out:
        return "The recipe's own rate is out of range, so there is nothing to compare with."
    metric = "conflicting" if "conflicting" in gains else "average"
    # Prunability can fall where the accuracy of the pruned network rises.
    told = {m: TOLD[m] for m in (metric, "prunability", "pruned_accuracy") if m in gains}
    parts = [
        f"{name} {gains[m]['from']:.{digits}f} to {gains[m]['to']:.{digits}f}{unit}"
        for m, (name, digits, unit) in told.items()
    ]
    runs = len(taken.runs)
    return f"On the test split it buys: {', '.join(parts)} ({runs} {'seed' if runs == 1 else 'seeds'} each)."
