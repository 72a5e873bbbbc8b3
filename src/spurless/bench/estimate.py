"""How long trials will take on this machine: from rows that were measured on it, else by timing a few steps of each."""

from __future__ import annotations

import signal
import statistics
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch

from spurless.bench.board import place_of
from spurless.bench.one import data_of, machine
from spurless.bench.trials import Trial, digest
from spurless.core.data import Bundle, Labels
from spurless.core.errors import UserError
from spurless.core.method import Method, Run, Stage
from spurless.core.recipe import Recipe
from spurless.nets import Net
from spurless.registry import make_method, make_recipe
from spurless.train.device import pick_device
from spurless.train.fit import fit
from spurless.train.networks import NetSpec
from spurless.train.observe import Progress
from spurless.train.result import versions
from spurless.train.schedule import batch_sizes, stage_length

STEPS = 30  # of each stage that are timed
WARM = 10  # of them that are not counted: on a GPU the first ones are captured as a graph
BUDGET = 20.0  # seconds for one kind of trial, at most
LEAST = 4.0  # and at least
LONGER = 4  # times that, where hardly a step was done
ALL = 120.0  # seconds for all kinds, where the least is not more
AMOUNTS = ("lr", "weight_decay", "momentum", "l1", "focal_gamma", "rho")  # a step takes as long with more of them
FEW = 5  # stages after which a method that cuts its training into many is not followed further


@dataclass(frozen=True)
class Guess:
    """Seconds that a trial takes, and how that is known; None where its data is missing."""

    seconds: float | None
    how: str  # measured, timed, at least, at most, roughly, or why it is not known


class Enough(Exception):
    """The time for the estimate is over."""


@dataclass(frozen=True)
class Short(Method):
    """A method with each stage cut to a few steps; it remembers how long they would be."""

    inner: Method
    lengths: list[tuple[int, float, float]] = field(default_factory=list)  # steps, epochs, end of the span
    began: list[float] = field(default_factory=list)  # when each stage was asked for

    @property
    def labels(self) -> Labels:
        return self.inner.labels

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        generator = self.inner.stages(run)
        try:
            stage = next(generator)
            while True:
                rows = len(run.data.train) if stage.rows is None else len(stage.rows)
                recipe = stage.recipe or run.recipe
                a_pass = len(batch_sizes(rows, recipe))
                length = stage_length(stage, recipe, a_pass)
                self.lengths.append((length, length / a_pass, stage.span[1]))
                self.began.append(time.monotonic())
                yield replace(stage, epochs=None, iterations=min(length, a_pass, STEPS), shared=None)
                if len(self.lengths) >= FEW and stage.span[1] < 1:
                    raise Enough
                stage = next(generator)
        except StopIteration as end:
            net: Net = end.value
            return net


class Mark(NamedTuple):
    """A word from the loop: when, and how many steps of the stage were done."""

    time: float
    step: int


class Stopwatch:
    """Times steps, and the look at the validation split that ends an epoch."""

    def __init__(self, device: torch.device, until: float):
        self.device, self.until = device, until
        self.steps: list[tuple[float, float]] = []  # for each stage: seconds a step, seconds of the look
        self.marks: list[Mark] = []
        self.before = time.monotonic()  # the last word about the stage before
        self.timed = 0.0
        self.steady = True  # every time of a step is one between two steps

    def __enter__(self) -> Stopwatch:
        return self

    def __exit__(self, *error: object) -> None: ...

    def __call__(self, where: Progress) -> None:
        if not where.done:  # an epoch's row, or a pause before its end
            return
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.marks.append(Mark(time.monotonic(), where.step))
        late = self.marks[-1].time > self.until
        if where.step == where.total or late:
            self._end(whole=where.step == where.total)
        if late:
            raise Enough

    def _end(self, whole: bool) -> None:
        """The end of a stage: its last step came with the look. Or, not whole, of the time for it: without."""
        *body, last = self.marks
        body = body if whole else self.marks
        warm = [mark for mark in body if mark.step > WARM]
        span = warm if len(warm) > 1 else body
        step = look = 0.0
        if len(span) > 1:  # a graph may do several steps at a time
            step = (span[-1].time - span[0].time) / (span[-1].step - span[0].step)
        elif not whole:
            step = (last.time - self.before) / last.step  # with what came before the first step: there is no other
            self.steady = False
        if whole and body:
            look = max(0.0, last.time - body[-1].time - step * (last.step - body[-1].step))
        self.steps.append((step, look))
        self.timed += last.time - self.marks[0].time
        self.before, self.marks = last.time, []


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """End what is done inside by Enough: passes over all rows between two stages ask no stopwatch."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(_: int, frame: FrameType | None) -> None:
        while frame is not None:
            if "importlib._bootstrap" in frame.f_code.co_filename:  # half a module would be left: ring again later
                signal.setitimer(signal.ITIMER_REAL, 0.2)
                return
            frame = frame.f_back
        raise Enough

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def timed(trial: Trial, device: torch.device, root: str | Path | None, budget: float = BUDGET) -> Guess:
    """Train a few steps of each stage, and multiply. Where the time was over before two steps were, look longer once:
    the first step holds whatever is done once, and says nothing about the others."""
    guess, steady = _look(trial, device, root, budget)
    return guess if steady else _look(trial, device, root, LONGER * budget)[0]


def _look(trial: Trial, device: torch.device, root: str | Path | None, budget: float) -> tuple[Guess, bool]:
    return look(trial.method, data_of(trial, root), trial.net, trial.recipe, trial.seed, device, budget)


def look(
    method_spec: str | Mapping[str, Any],
    data: Bundle,
    net: NetSpec | None,
    recipe_spec: Recipe | Mapping[str, Any] | None,
    seed: int,
    device: torch.device,
    budget: float,
) -> tuple[Guess, bool]:
    """The guess from a few steps of each stage, in so many seconds, and whether it rests on more than a first step."""
    method = Short(make_method(method_spec))
    torch.optim.SGD(
        [torch.nn.Parameter(torch.zeros(1))]
    )  # its first use imports for seconds, which no trial should pay
    started = time.monotonic()
    watch = Stopwatch(device, started + budget)
    whole = True
    try:
        with at_most(1.5 * budget):
            fit(method, data, net=net, recipe=recipe_spec or None, seed=seed, device=device, progress=watch)
    except Enough:
        whole = False
    except UserError:
        if not watch.steps:
            raise
        whole = False  # a network of a few steps can leave the next stage without rows
    if method.began and not watch.steps:
        return Guess(method.lengths[0][0] * (time.monotonic() - method.began[0]), "roughly"), False
    between = max(0.0, time.monotonic() - started - watch.timed)
    seconds = sum(
        length * step + epochs * look
        for (length, epochs, _), (step, look) in zip(method.lengths, watch.steps, strict=False)
    )
    followed = method.lengths[max(0, len(watch.steps) - 1)][2] if method.lengths else 1.0
    if not whole and 0 < followed < 1:
        seconds, between, whole = seconds / followed, between / followed, True  # its schedule says how far it got
    recipe = make_recipe(recipe_spec or None, data)
    until = bool(recipe.until_accuracy or recipe.until_loss)  # its epochs are the most that it may take
    how = ("at most" if until else "timed") if whole else "roughly" if until else "at least"
    return Guess(seconds + between, how if watch.steady else "roughly"), watch.steady


def guesses(
    trials: Sequence[Trial],
    rows: Sequence[Mapping[str, Any]],
    device: str | None,
    root: str | Path | None,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Guess]:
    """For each kind of trial (Trial.kind) the seconds that one takes, one at a time. `say` is told what is timed."""
    chosen_device = pick_device(device)
    here = machine(versions(chosen_device)["device"])
    estimates: dict[str, Guess] = {}
    like: dict[str, Guess] = {}
    by_key = {row["key"]: row for row in rows if _counts(row, here, chosen_device)}
    by_kind: dict[str, list[Trial]] = {}
    for trial in trials:
        by_kind.setdefault(trial.kind(), []).append(trial)
    left = ALL
    for number, (kind, own) in enumerate(by_kind.items(), 1):
        times = [by_key[c.key]["wall_seconds"] for c in own if c.key in by_key]
        if times:
            estimates[kind] = Guess(statistics.median(times), "measured")
            continue
        try:
            size = _size(own[0], root)
            if size not in like:
                who = place_of(own[0].labels) or own[0].method["name"]
                say(f"Timing a few steps, {number} of {len(by_kind)}: {who}")
                began, share = time.monotonic(), left / (len(by_kind) - number + 1)
                like[size] = timed(own[0], chosen_device, root, min(BUDGET, max(LEAST, share)))
                left -= time.monotonic() - began
            estimates[kind] = like[size]
        except UserError as error:
            estimates[kind] = Guess(None, str(error))
    return estimates


def _counts(row: Mapping[str, Any], here: str, machine: torch.device) -> bool:
    """Whether the time of a row is that of a whole trial on this machine; on a GPU, of one that had it for itself."""
    if row["status"] != "done" or row.get("machine") != here or row.get("resumed"):
        return False
    return machine.type != "cuda" or _alone(row)


def _alone(row: Mapping[str, Any]) -> bool:
    """Whether a run had its device for itself.

    >>> _alone({"versions": {"lanes": "1"}}), _alone({"versions": {"lanes": "8"}}), _alone({"processes": 4})
    (True, False, False)
    """
    return int((row.get("versions") or {}).get("lanes", 1)) == 1 and row.get("processes", 1) == 1


def _size(trial: Trial, root: str | Path | None) -> str:
    """What decides how long a trial takes: how many rows it has and of what shape, not what is in them; and of some
    settings only whether they are there."""
    data = data_of(trial, root)
    rows = {name: len(split) for name, split in data.splits.items()}
    recipe = {k: bool(v) if k in AMOUNTS else v for k, v in trial.recipe.items()}
    return digest([trial.data["name"], rows, data.shape, trial.method, trial.net, recipe])
