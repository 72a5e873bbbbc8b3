"""Trials in several processes of this machine, one thread of this process looking after each.

The processes are started as commands, not by multiprocessing: a user's script or notebook need not be importable.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from spurless.bench.executors.base import Event
from spurless.bench.executors.mps import changed
from spurless.bench.one import PATIENCE, bury
from spurless.bench.trials import Trial
from spurless.core.errors import UserError

# -P: a file of the folder one happens to be in must not pass for a module.
COMMAND = [sys.executable, "-P", "-m", "spurless.bench.executors.worker"]
GRACE = 60  # seconds in which a worker may end its step and save it
STARTS = 3  # of a process that is killed before it is ready, in a row

# What happened in a worker: ("start" | "row" | "busy", trial, row), or ("broken", None, reason).
Told = tuple[str, Trial | None, Any]


def in_processes(
    trials: Sequence[Trial],
    out: Path,
    device: str,
    workers: int,
    threads: int,
    root: str | Path | None,
    environment: Mapping[str, str] = {},
) -> Iterator[Event]:
    """Do the trials in so many processes, each with so many threads and these changes of the environment."""
    settings = {"out": str(out), "device": device, "root": str(root) if root else None}
    for kind, trial, what in Pool(trials, workers, threads, settings, environment):
        if kind == "broken":
            raise what
        yield Event(kind, trial, what)


class WorkerDied(UserError):
    """A process ended in the middle of a trial, or before its first; `code` as in Popen.returncode."""

    def __init__(self, code: int, last_words: str):
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        hint = ", perhaps for want of memory" if code == -9 else ""
        self.code, self.how = code, f"{how}{hint}. {last_words}".strip()
        super().__init__(f"The process that did it {self.how}")


class Worker:
    """One process, and the pipe to it."""

    def __init__(self, settings: dict[str, Any], environment: Mapping[str, str]):
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (open while the process lives)
        path = os.pathsep.join(os.path.abspath(p) for p in sys.path)
        threads = str(settings["threads"])
        # torch.compile would start as many processes of its own as there are cores, for each of these.
        compiling = {"TORCHINDUCTOR_COMPILE_THREADS": threads}
        own = compiling | changed(environment) | {"PYTHONPATH": path, "OMP_NUM_THREADS": threads}
        self.process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, env=own, text=True,
        )  # fmt: skip

    def ask(self, what: Any) -> dict[str, Any]:
        assert self.process.stdin and self.process.stdout
        with suppress(OSError, ValueError):  # it is gone; the empty answer says so
            self.process.stdin.write(json.dumps(what) + "\n")
            self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if answer:
            event: dict[str, Any] = json.loads(answer)
            return event
        raise WorkerDied(self.process.wait(), self.last_words())

    def last_words(self) -> str:
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def hang_up(self) -> None:
        """It ends after the step that is running."""
        assert self.process.stdin
        with suppress(OSError):
            self.process.stdin.close()


class Pool:
    """Workers, and the trials that are left for them."""

    def __init__(
        self,
        trials: Sequence[Trial],
        workers: int,
        threads: int,
        settings: dict[str, Any],
        environment: Mapping[str, str] = {},
    ):
        self.todo, self.environment = deque(trials), environment
        self.events: queue.SimpleQueue[Told] = queue.SimpleQueue()
        self.stopping = threading.Event()
        self.workers: list[Worker] = []
        count = max(1, min(workers, len(trials)))
        self.settings = settings | {"threads": threads, "processes": count}
        self.threads = [threading.Thread(target=self._look_after, daemon=True) for _ in range(count)]

    def __iter__(self) -> Iterator[Told]:
        for thread in self.threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in self.threads) or not self.events.empty():
                try:
                    yield self.events.get(timeout=0.1)
                except queue.Empty:
                    continue
        finally:
            self._stop()

    def _look_after(self) -> None:
        """Start a worker, give it trials until there are none, and start another should it die."""
        worker: Worker | None = None
        later: deque[Trial] = deque()  # someone else is doing these
        try:
            while not self.stopping.is_set():
                trial = self._next(later)
                if trial is None:
                    break
                worker = worker or self._start()
                self.events.put(("start", trial, None))
                try:
                    answer = worker.ask(trial.whole())
                except WorkerDied as death:
                    worker = None  # and its lock is gone
                    if self.stopping.is_set():
                        break
                    answer = {"row": bury(trial, Path(self.settings["out"]), str(death), wait=False)}
                if "stopped" in answer:
                    break
                if answer["row"] is None:
                    later.append(trial)
                    self.events.put(("busy", trial, None))
                else:
                    self.events.put(("row", trial, answer["row"]))
                if worker is not None and answer.get("last"):
                    worker.hang_up()
                    worker = None
        except Exception as error:
            self.events.put(("broken", None, error))
        finally:
            if worker is not None:
                worker.hang_up()

    def _start(self) -> Worker:
        """A process that is ready. One that was killed on the way says nothing about the next; a mistake does."""
        for tries in range(1, STARTS + 1):
            worker = Worker(self.settings, self.environment)
            self.workers.append(worker)
            try:
                worker.ask(self.settings)
                break
            except WorkerDied as death:
                if death.code >= 0 or tries == STARTS or self.stopping.is_set():
                    raise UserError(f"A process for the trials, before its first one, {death.how}") from None
        return worker

    def _next(self, later: deque[Trial]) -> Trial | None:
        try:
            return self.todo.popleft()
        except IndexError:
            pass
        if later:
            time.sleep(PATIENCE)
            return later.popleft()
        return None

    def _stop(self) -> None:
        """Let every process save its place and end; kill what does not, or all at once when Ctrl-C comes again."""
        self.stopping.set()
        self.todo.clear()
        end = time.monotonic() + GRACE
        try:
            for worker in self.workers:
                worker.hang_up()
            for thread in self.threads:
                if thread.ident is not None:
                    thread.join(max(0.1, end - time.monotonic()))
            for worker in self.workers:
                worker.process.wait(max(0.1, end - time.monotonic()))
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            pass
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.process.kill()
                worker.process.wait()
            worker.hang_up()  # of one that was started meanwhile, or after Ctrl-C
            assert worker.process.stdout
            worker.process.stdout.close()
            worker.log.close()
