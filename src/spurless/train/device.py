"""The device of a run, and the switches of torch that hold for the whole process."""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch

import spurless
from spurless.core.errors import SettingError
from spurless.core.parallel import local_gpu, world
from spurless.core.recipe import Recipe
from spurless.train.compiled import keep_compiled

GRAIN = 2**15  # elements of a tensor below which torch takes no further thread


@contextmanager
def interruptible(stop: Callable[[], None]) -> Generator[None, None, None]:
    """The first Ctrl-C, SIGTERM or SIGHUP ends the loop after its step, with a checkpoint; a second one, at once.

    Slurm, Kubernetes and machines that may be taken away send SIGTERM; a terminal that is closed sends SIGHUP.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {sign: signal.getsignal(sign) for sign in _stopping()}

    def on_signal(*_: Any) -> None:
        stop()
        if world() == 1:  # torchrun passes a Ctrl-C on that the process has had already
            put_back()

    def put_back() -> None:
        for sign, handler in before.items():
            signal.signal(sign, handler)

    for sign in before:
        signal.signal(sign, on_signal)
    try:
        yield
    finally:
        put_back()


def _stopping() -> list[signal.Signals]:
    """The signals that ask a run to stop; not those that the process was started to ignore, as by nohup."""
    names = ("SIGINT", "SIGTERM", "SIGHUP")
    signs = [signal.Signals[name] for name in names if name in signal.Signals.__members__]
    return [sign for sign in signs if sign == signal.SIGINT or signal.getsignal(sign) not in (signal.SIG_IGN, None)]


@contextmanager
def arithmetic(recipe: Recipe, device: torch.device) -> Generator[None, None, None]:
    """The recipe's switches that torch holds globally, put back afterwards; and random numbers of the run's own."""
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_gpu else []), switches(recipe, device):
        if on_gpu:
            with torch.cuda.stream(side_stream(device)):  # a graph cannot be captured on the default one
                yield
            torch.cuda.synchronize(device)
        else:
            yield


@contextmanager
def switches(recipe: Recipe, device: torch.device) -> Generator[None, None, None]:
    """What torch holds for the whole process: how convolutions are chosen, determinism, the precision of products."""
    was = torch.backends.cudnn.benchmark, torch.are_deterministic_algorithms_enabled()
    precision = torch.get_float32_matmul_precision()
    on_gpu = device.type == "cuda"
    if recipe.compile:
        keep_compiled()
    try:
        torch.backends.cudnn.benchmark = on_gpu and not recipe.deterministic
        if on_gpu and recipe.deterministic:
            torch.use_deterministic_algorithms(True)
        if recipe.precision == "tf32":
            torch.set_float32_matmul_precision("high")
        yield
    finally:
        torch.backends.cudnn.benchmark = was[0]
        torch.use_deterministic_algorithms(was[1])
        if recipe.precision == "tf32":  # not always: where it was never set, setting it has everything compiled again
            torch.set_float32_matmul_precision(precision)


@functools.cache
def let_threads_sleep() -> None:
    """Keep OpenMP threads from spinning while they wait, where torch was imported before spurless could say so.

    GNU's OpenMP, which torch's wheels for Linux use, reads how threads wait when it is loaded; but it hardly spins once
    a process has more threads than processors. So one thread per processor is made, and sleeps until the process ends.
    """
    if not spurless.THREADS_MAY_SPIN or not hasattr(os, "sched_getaffinity"):
        return
    processors, ready = len(os.sched_getaffinity(0)), threading.Event()

    def occupy() -> None:
        before = torch.get_num_threads()
        torch.set_num_threads(processors)
        torch.zeros(GRAIN * processors, dtype=torch.uint8).add_(1)
        torch.set_num_threads(before)
        ready.set()
        threading.Event().wait()

    threading.Thread(target=occupy, name="spurless-idle", daemon=True).start()
    ready.wait()


@functools.cache
def side_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all runs: libraries keep tens of megabytes of workspace for every stream that they have seen."""
    return torch.cuda.Stream(device)


def pick_device(given: str | torch.device | None) -> torch.device:
    """The given device, else a GPU if there is one."""
    if given is None:
        given = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(given)
    except RuntimeError:
        raise SettingError(f"There is no device '{given}'; use cpu, cuda or cuda:1.") from None
    if device.type not in ("cpu", "cuda"):
        raise SettingError(f"--device {given}: only cpu and cuda are supported.")
    if device.type == "cpu":
        return device
    index = local_gpu() if device.index is None else device.index
    if index >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        have = f"CUDA devices here go up to cuda:{count - 1}" if count else "no CUDA device is available here"
        raise SettingError(f"--device {given}: {have}; use {'one of those' if count else '--device cpu'}.")
    return torch.device("cuda", index)
