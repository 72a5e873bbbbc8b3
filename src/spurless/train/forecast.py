"""Announces once how long a long training will take, from its first real steps, and what would be cheaper."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spurless.core.data import Images
from spurless.core.messages import log
from spurless.train.observe import Progress, Through, Watcher

if TYPE_CHECKING:
    from spurless.train.session import Session

LONG = 300.0  # seconds from which on a training is announced
GOAL = 120.0  # seconds that the cheaper training should take
SMALL = 64  # pixels of the cheaper training's images
ENOUGH = 2.0  # seconds of steps that are timed


class Forecast(Through):
    """Shows a run with another observer, and announces each stage that will take long.

    The steps that are timed are those of the run itself, so the forecast costs nothing. The first step is left out: it
    holds whatever is done once.
    """

    def __init__(self, session: Session, shown: Watcher):
        super().__init__(shown)
        self.session = session
        self.stage: str | None = None
        self.step = 0
        self.first: tuple[float, int] | None = None  # when the first step was over, and which it was
        self.announced = False

    def __call__(self, progress: Progress) -> None:
        super().__call__(progress)
        if self.announced or not progress.done:
            return
        now = time.monotonic()
        begins = self.first is None or progress.stage != self.stage or progress.step <= self.step
        self.step = progress.step  # a method may yield stages of one name, each of which counts from 1
        if begins or self.first is None:
            self.stage, self.first = progress.stage, (now, progress.step)
            return
        began, step = self.first
        if now - began < ENOUGH or progress.step <= step:  # a stage of one step may come again
            return
        a_step = (now - began) / (progress.step - step)
        left = a_step * (progress.total - progress.step) / progress.share
        if left > LONG:
            self.announced = True
            settings, cheap = cheaper(self.session, a_step)
            log.warning(announcement(left, progress.stage, a_step, settings, cheap, self.session.asked.command))


def cheaper(session: Session, a_step: float) -> tuple[dict[str, Any], float]:
    """Settings with which a stage is done in about GOAL seconds, and what it takes then."""
    settings: dict[str, Any] = {}
    size = session.data.settings.get("size")
    if isinstance(session.data.inputs, Images) and isinstance(size, int) and size > SMALL:
        settings["data.size"] = SMALL
        a_step *= (SMALL / size) ** 2
    recipe = session.recipe
    if recipe.iterations:
        steps = min(recipe.iterations, max(1, int(GOAL / a_step)))
        if steps < recipe.iterations:
            settings["recipe.iterations"] = steps
        return settings, steps * a_step
    an_epoch = a_step * -(-len(session.data.train) // recipe.batch_size)
    epochs = min(recipe.epochs, max(1, int(GOAL / an_epoch)))
    if epochs < recipe.epochs:
        settings["recipe.epochs"] = epochs
    return settings, epochs * an_epoch


def announcement(
    left: float, stage: str, a_step: float, settings: dict[str, Any], cheap: float, command: str | None
) -> str:
    """
    >>> print(announcement(7200, "erm", 2.5, {"recipe.epochs": 3}, 118, "spurless train erm toy --out a --seed 1"))
    Stage 'erm' will take about 2.0 h on this machine (2.5 s a step).
    Cheaper, about 2 min a stage: spurless train erm toy --seed 1 --set recipe.epochs=3
    """
    text = f"Stage '{stage}' will take about {span(left)} on this machine ({a_step:.2g} s a step)."
    if not settings:
        return text
    given = [f"{name}={value}" for name, value in settings.items()]
    if command is None:
        return f"{text}\nCheaper, about {span(cheap)} a stage: {', '.join(given)}"
    words = [*without(shlex.split(command), settings), *(word for pair in given for word in ("--set", pair))]
    return f"{text}\nCheaper, about {span(cheap)} a stage: {shlex.join(words)}"


def without(words: Sequence[str], settings: dict[str, Any]) -> list[str]:
    """A command without its output folder, which holds this run, and without what is set anew.

    >>> without(["train", "--out", "a", "--set", "data.size=9", "--set=data.val=0", "--out=b"], {"data.size": 1})
    ['train', '--set=data.val=0']
    """
    text = "\0".join(words)
    names = "|".join(map(re.escape, settings)) or "(?!)"
    text = re.sub(rf"\0--out(=|\0)[^\0]*|\0--set(=|\0)\s*({names})\s*=[^\0]*", "", text)
    return text.split("\0")


def span(seconds: float) -> str:
    """A time in the unit that fits.

    >>> span(4.2), span(75), span(600), span(9000), span(400_000)
    ('4 s', '75 s', '10 min', '2.5 h', '4.6 days')
    """
    for size, unit, limit in ((1, "s", 100), (60, "min", 6000), (3600, "h", 172_800)):
        if seconds < limit:
            return f"{seconds / size:.{1 if unit == 'h' else 0}f} {unit}"
    return f"{seconds / 86400:.1f} days"
