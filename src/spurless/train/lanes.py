"""Several runs on one device: each in its own lane, driven in turn from one thread.

A small network leaves most of a GPU idle. Each lane has its own stream, on which its CUDA graphs are replayed; the
thread only starts one lane's steps after the other's, so the lanes' work lies side by side on the device. (Capturing a
graph in one thread while another works fails; so it is one thread.) A lane also has its own random numbers: a run ends
with the same numbers as it would alone.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from spurless.train.device import arithmetic, interruptible, pick_device, switches
from spurless.train.fit import PATIENCE
from spurless.train.observe import Interrupted, Progress
from spurless.train.result import Result
from spurless.train.saved import load_run
from spurless.train.session import RunArguments, Session

TURN = 8  # steps of a lane before the next one's turn: enough to hide what changing lanes costs
AHEAD = 2  # turns of a lane that may lie before the device: more, and a lane would fill the queue that all share
MOST = 16  # lanes that are tried
BREATH = 5e-5  # seconds, when all lanes have enough to do
GAIN = 1.05  # twice as many lanes must bring at least this
TRIAL = 0.4  # seconds for each number of lanes that is tried


@dataclass(frozen=True)
class Job:
    """A run to be done: a name of its own, and the arguments of `fit`."""

    key: str
    arguments: dict[str, Any]


@dataclass
class Lane:
    """A run on its way, with what belongs to it alone."""

    job: Job
    session: Session
    steps: Iterator[Progress]
    stream: torch.cuda.Stream | None
    cpu_numbers: torch.Tensor
    gpu_numbers: torch.Generator | None
    done: int = 0  # steps so far
    waiting: bool = False  # for a stage that another lane or process trains
    pending: torch.cuda.Event | None = None  # what its next step would wait for
    turns: deque[torch.cuda.Event] = field(default_factory=deque)  # ends of turns that the device may not have reached
    pace: float = 0.0  # seconds a step takes when the lane has the device for itself

    @property
    def ready(self) -> bool:
        """Whether it is its turn: its next step need not wait for the device, nor is it far ahead of it."""
        while self.turns and self.turns[0].query():
            self.turns.popleft()
        return len(self.turns) < AHEAD and (self.pending is None or self.pending.query())


Ended = tuple[Job, Result | Exception]


class Lanes:
    """The lanes of one device, and the jobs that wait for one."""

    def __init__(self, device: torch.device, jobs: Iterator[Job]):
        self.device, self.jobs = device, jobs
        self.streams: list[torch.cuda.Stream] = []  # free ones; libraries keep workspace for each stream they have seen
        self.lanes: list[Lane] = []
        self.count = 1  # that work at a time
        self.ended: list[Ended] = []  # jobs that are done, with their result or what went wrong

    def fill(self, count: int) -> None:
        """Open lanes until so many of them work; those that wait for another one's stage are not counted."""

        def short() -> bool:
            return sum(not lane.waiting for lane in self.lanes) < count and len(self.lanes) < count + MOST

        while short() and (job := next(self.jobs, None)) is not None:
            try:
                opened = self.open(job)
            except Exception as error:  # a mistake in one job must not stop the others
                self.ended.append((job, error))
                continue
            if isinstance(opened, Result):
                self.ended.append((job, opened))

    def open(self, job: Job) -> Lane | Result:
        """Start a job, or return its result where it was finished before."""
        session = Session(RunArguments(**job.arguments | {"device": self.device}))
        if session.folder and session.folder.result():
            return load_run(session.folder.path, session.spec, self.device, session.method)
        stream = numbers = None
        if self.device.type == "cuda":
            stream = self.streams.pop() if self.streams else torch.cuda.Stream(self.device)
            numbers = torch.Generator(self.device)
        session.result.versions["lanes"] = str(self.count)
        lane = Lane(job, session, iter(session), stream, torch.get_rng_state(), numbers)
        self.lanes.append(lane)
        return lane

    def step(self, lane: Lane, steps: int | None = None) -> None:
        """Some steps of a lane; where its run ends with them, the lane is closed."""
        try:
            if self.advance(lane, steps):
                return
            outcome: Result | Exception = lane.session.result
        except Interrupted:
            raise
        except Exception as error:
            outcome = error
        self.close(lane)
        self.ended.append((lane.job, outcome))

    def stop(self) -> None:
        for lane in self.lanes:
            lane.session.stop()

    def share(self, count: int) -> None:
        """Note in every result how many runs shared the device: its seconds are not those of a run alone."""
        self.count = count
        for lane in self.lanes:
            lane.session.result.versions["lanes"] = str(count)

    def close(self, lane: Lane) -> None:
        self.lanes.remove(lane)
        if lane.stream is not None:
            with suppress(RuntimeError):  # of a device that is lost; how its run ended is told all the same
                lane.stream.synchronize()
                torch.cuda.empty_cache()  # what its graphs had: it stays with this process otherwise
            self.streams.append(lane.stream)

    @property
    def may_gain(self) -> bool:
        """Whether several may be faster than one: on a CPU they only take turns."""
        return self.device.type == "cuda"

    def has_room_for_as_many_again(self) -> bool:
        """Whether the device's memory holds twice the lanes that there are."""
        if self.device.type != "cuda":
            return True
        free, _ = torch.cuda.mem_get_info(self.device)
        return free > torch.cuda.memory_reserved(self.device)

    @contextmanager
    def turn(self, lane: Lane) -> Iterator[None]:
        """The lane's stream, random numbers and arithmetic, for as long as it is its turn."""
        with ExitStack() as stack:
            stack.enter_context(switches(lane.session.recipe, self.device))
            outside = torch.get_rng_state()
            torch.set_rng_state(lane.cpu_numbers)
            if lane.stream is not None and lane.gpu_numbers is not None:
                stack.enter_context(torch.cuda.stream(lane.stream))
                default = torch.cuda.default_generators[self.device.index]
                default_state = default.graphsafe_get_state()
                default.graphsafe_set_state(lane.gpu_numbers)
            try:
                yield
            finally:
                lane.cpu_numbers = torch.get_rng_state()
                torch.set_rng_state(outside)
                if lane.stream is not None:
                    lane.gpu_numbers = default.graphsafe_get_state()  # a failed capture puts another one in its place
                    default.graphsafe_set_state(default_state)

    def advance(self, lane: Lane, steps: int | None = None) -> bool:
        """Some steps of a lane; False when its run is done."""
        with self.turn(lane):
            until = lane.done + (steps or TURN)
            while lane.done < until:
                where = next(lane.steps, None)
                if where is None:
                    return False
                lane.waiting, lane.pending = where.waiting, where.pending
                if where.waiting or where.pending:
                    break
                lane.done += where.done
            if lane.stream is not None:
                lane.turns.append(lane.stream.record_event())
        return True


def run_lanes(
    jobs: Iterator[Job], lanes: int | None = None, device: str | torch.device | None = None
) -> Iterator[Ended]:
    """Do the jobs, several at a time, and yield each with its result when it is done, or with what went wrong.

    A job is pulled when a lane is free for it. Without a number of lanes, as many are used as help, by measurement.
    """
    pool = Lanes(pick_device(device), jobs)
    pool.fill(1)
    if not pool.lanes:
        yield from pool.ended
        return
    with arithmetic(pool.lanes[0].session.recipe, pool.device), interruptible(pool.stop):
        try:
            pool.share(lanes or (best_lanes(pool) if pool.may_gain else 1))  # lanes that are tried are trained, too
            asked = 0.0  # when those that wait were last asked
            while True:
                yield from pool.ended
                pool.ended.clear()
                pool.fill(pool.count)
                if not pool.lanes and not pool.ended:
                    return
                asked = _round(pool, asked)
        except Interrupted:
            _save_the_others(pool)
            raise


def _round(pool: Lanes, asked: float) -> float:
    """One turn for each lane that is ready. Those that wait for another one's stage, which were `asked` at that time,
    are asked again now and then; returns when they last were."""
    working = [lane for lane in pool.lanes if not lane.waiting]
    ready = [lane for lane in working[: pool.count] if lane.ready]
    for lane in ready:
        pool.step(lane)
    if working and not ready:
        time.sleep(BREATH)
    if not working or time.monotonic() - asked > PATIENCE:
        for lane in [lane for lane in pool.lanes if lane.waiting]:
            pool.step(lane, 1)
        asked = time.monotonic()
    if not working:
        time.sleep(PATIENCE / 10)
    return asked


def best_lanes(pool: Lanes) -> int:
    """How many lanes to use: real steps are timed with 1, 2, 4 ... lanes, and they are doubled while that helps.

    Lanes are opened as they are tried: a large network's take memory, and doubling ends where it would run out.
    """
    best, best_rate, count = 1, 0.0, 1
    while count <= MOST and pool.has_room_for_as_many_again():
        pool.fill(count)
        if len(pool.lanes) < count:
            break
        for lane in pool.lanes[:]:  # past the capture of its graph, and the first past all that is done once a process
            enough = 4 * TURN if lane.pace or lane is not pool.lanes[0] else 40 * TURN
            while not lane.waiting and lane in pool.lanes and lane.done < enough:
                pool.step(lane)
        rate = _rate(pool, count)
        if rate < best_rate * GAIN:
            break
        best, best_rate, count = count, rate, 2 * count
    return best


def _rate(pool: Lanes, count: int) -> float:
    """Work done a second by so many lanes, in units of what each of them does when it is alone."""
    chosen = [lane for lane in pool.lanes if not lane.waiting][:count]
    for lane in chosen:
        if not lane.pace:  # the better of two: in one of them an epoch may end, and its first evaluation is slow
            lane.pace = min(_seconds(pool, [lane], TRIAL / 4)[0] for _ in range(2))
    seconds = _seconds(pool, chosen, TRIAL)
    return sum(lane.pace / s for lane, s in zip(chosen, seconds, strict=True) if s)


def _seconds(pool: Lanes, chosen: list[Lane], at_least: float) -> list[float]:
    """For each lane, the seconds that a step of it takes while all of them run."""

    def settle() -> None:
        if pool.device.type == "cuda":
            torch.cuda.synchronize(pool.device)

    settle()
    before, started = [lane.done for lane in chosen], time.monotonic()
    while time.monotonic() - started < at_least:
        for lane in chosen:
            if lane in pool.lanes and lane.ready:
                pool.step(lane)
    settle()
    spent = time.monotonic() - started
    return [spent / max(1, lane.done - b) for lane, b in zip(chosen, before, strict=True)]


def _save_the_others(pool: Lanes) -> None:
    """One lane has stopped at its checkpoint; let each of the others reach its own."""
    for lane in pool.lanes:
        lane.session.stop()  # also one that was opened after the others had been told
        with suppress(Interrupted, Exception):  # a mistake in one must not cost the others their checkpoint
            while (lane.done or lane.pending) and pool.advance(lane):
                pass  # where an epoch ends, it lets others work before it saves
