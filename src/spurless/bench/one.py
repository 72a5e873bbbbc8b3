"""One trial, from claim to row: what every executor calls, wherever it runs."""

from __future__ import annotations

import functools
import json
import os
import platform
import shutil
import subprocess
import sys
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spurless.bench.claim import ROW, Claim, claim, finished_row, write_row
from spurless.bench.trials import HOW, Trial
from spurless.core.errors import UserError
from spurless.core.files import finite, read_toml, remove_leftovers
from spurless.core.threads import cores
from spurless.train.run_folder import SETTINGS

if TYPE_CHECKING:
    import torch

    from spurless.bench.executors.base import How
    from spurless.core.data import Bundle
    from spurless.train.result import Result

HELD = 2**30  # bytes of datasets that a process keeps for the trials to come
PATIENCE = 0.5  # seconds between two checks of a trial that someone else is doing

_bundles: OrderedDict[str, Bundle] = OrderedDict()


def run_one(
    trial: Trial,
    out: str | Path,
    device: str | None = None,
    root: str | Path | None = None,
    wait: bool = True,
    processes: int = 1,
) -> dict[str, Any] | None:
    """Do a trial, unless it is done, and return its row. What another process is doing is waited for; with
    wait=False the answer is then None. A mistake becomes a row with the status "failed"; only Ctrl-C is raised.
    `processes` do trials side by side, this one among them: the row says so."""
    out = Path(out)
    lock = take(out / trial.folder, wait)
    if lock is None:
        return None
    with lock:
        return run_claimed(trial, out, device, root, processes)


def run_claimed(
    trial: Trial, out: Path, device: str | None = None, root: str | Path | None = None, processes: int = 1
) -> dict[str, Any]:
    """`run_one`, for whoever holds the trial."""
    if row := finished_row(out / trial.folder, trial.after):
        return row | {"labels": trial.labels}
    from spurless.train.fit import fit

    job = Attempt(trial, out, root, processes)
    try:
        return job.finish(fit(**job.arguments(), device=device, progress=False))
    except Exception as error:
        return job.finish(error)


def compiled(trials: Iterable[Trial], device: torch.device) -> list[Trial]:
    """The trials, compiled where this device is a GPU for which it can be done; not those that are watched."""
    able = device.type == "cuda" and can_compile()
    return [replace(c, recipe={"compile": True} | c.recipe) if able and not c.dynamics else c for c in trials]


def compiles(how: How) -> bool:
    """Whether trials that are done with these options are compiled."""
    if how.compile != "gpu":
        return how.compile
    from spurless.train.device import pick_device

    return pick_device(how.device).type == "cuda" and can_compile()


def can_compile() -> bool:
    """Whether torch.compile has what it needs for a GPU: Triton, and a C compiler."""
    names = (os.environ.get("CC"), "gcc", "cc", "clang")
    return find_spec("triton") is not None and any(shutil.which(name) for name in names if name)


def take(folder: Path, wait: bool = True) -> Claim | None:
    """Claim the trial in this folder, when it is free; with wait=False, None if someone else has it."""
    while (lock := claim(folder)) is None and wait:
        time.sleep(PATIENCE)
    return lock


def bury(trial: Trial, out: Path, reason: str, wait: bool = True) -> dict[str, Any] | None:
    """The row of a trial whose process was lost. Should someone else be at it, that is waited for; with wait=False the
    answer is then None."""
    lock = take(out / trial.folder, wait)
    if lock is None:
        return None
    with lock:
        return finished_row(out / trial.folder, trial.after) or Attempt(trial, out).finish(UserError(reason))


class Attempt:
    """A claimed trial that is being done."""

    def __init__(self, trial: Trial, out: Path, root: str | Path | None = None, processes: int = 1):
        self.trial, self.out, self.root, self.processes = trial, out, root, processes
        self.folder = out / trial.folder
        self.resumed = (self.folder / SETTINGS).exists()
        self.started = time.monotonic()
        (self.folder / ROW).unlink(missing_ok=True)  # of a failure before; a run refuses a folder that is not its own
        remove_leftovers(self.folder)

    def arguments(self) -> dict[str, Any]:
        """Those of `fit`, but for the device and what is shown."""
        trial = self.trial
        recipe = dict(trial.recipe)
        if self.resumed:  # it is resumed with the settings it began with
            begun = read_toml(self.folder / SETTINGS).get("recipe", {})
            recipe |= {k: begun[k] for k in HOW if k in begun}
        return {
            "method": trial.method,
            "data": data_of(trial, self.root),
            "net": trial.net,
            "recipe": recipe or None,
            "seed": trial.seed,
            "out": self.folder,
            "stages": self.out / "stages",
            "dynamics": trial.dynamics,
        }

    def finish(self, outcome: Result | Exception) -> dict[str, Any]:
        """Write the row and return it."""
        extra: dict[str, Any] = {}
        after = self.trial.after
        if not isinstance(outcome, Exception) and after and outcome.status == "done":
            try:
                measured = named(after)(outcome, data_of(self.trial, self.root), self.folder)
                extra = as_written(measured, after)  # what cannot be written is a mistake of this trial
            except Exception as error:
                outcome = error
        facts = self._failed(outcome) if isinstance(outcome, Exception) else self._done(outcome)
        row = facts | {
            "key": self.trial.key,
            "labels": self.trial.labels,
            "folder": self.trial.folder,
            **stamp(facts.get("versions", {}).get("device", "")),
            "wall_seconds": round(time.monotonic() - self.started, 3),
            "resumed": self.resumed,
            "processes": self.processes,  # its seconds are not those of a run alone
            "after": after,
            "extra": extra,
        }
        read: dict[str, Any] = json.loads(write_row(self.folder, row))  # so that nobody notices whether it was read
        return read

    def _done(self, result: Result) -> dict[str, Any]:
        return {k: v for k, v in result.row().items() if k != "history"}

    def _failed(self, error: Exception) -> dict[str, Any]:
        trial = self.trial
        told = isinstance(error, UserError)
        net = trial.net["name"] if trial.net else None
        return {
            "method": trial.method["name"],
            "data": trial.data["name"],
            "net": net,
            "seed": trial.seed,
            "status": "failed",
            "error": str(error) if told else f"{type(error).__name__}: {error}",
            "traceback": None if told else "".join(traceback.format_exception(error)),
            "settings": {k: v for k, v in trial.given().items() if k != "seed"},
        }


def data_of(trial: Trial, root: str | Path | None) -> Bundle:
    """Its dataset; one that was loaded for a trial before is kept while there is room."""
    from spurless.registry import load_data

    name = json.dumps([trial.data, str(root or "")], sort_keys=True)
    if name not in _bundles:
        _bundles[name] = load_data(trial.data, root=root)
    _bundles.move_to_end(name)
    while len(_bundles) > 1 and sum(map(_bytes, _bundles.values())) > HELD:
        _bundles.popitem(last=False)
    return _bundles[name]


def _bytes(data: Bundle) -> int:
    return sum(getattr(split.x, "nbytes", 0) for split in data.splits.values())


def named(where: str) -> Callable[..., dict[str, Any]]:
    """The function that "module:function" names: of an installed module, or of a file in the current folder."""
    module, _, name = where.partition(":")
    if not module or not name or module.startswith("."):
        raise UserError(f"after = {where!r} names no function: give 'module:function'.")
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)  # at the end: no file there hides an installed module
    try:
        imported = import_module(module)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            told = f"there is no module '{error.name}', neither installed nor in {here}"
            raise UserError(f"after = {where!r} names no function: {told}. Give 'module:function'.") from None
        raise UserError(f"after = {where!r}: importing {module} fails ({type(error).__name__}: {error}).") from error
    function: Callable[..., dict[str, Any]] | None = getattr(imported, name, None)
    if not callable(function):
        source = getattr(imported, "__file__", None) or module
        raise UserError(f"after = {where!r} names no function: {source} has no '{name}'. Give 'module:function'.")
    return function


def as_written(measured: Any, after: str) -> Any:
    """What `after` returned, as it will be read from the row."""
    written = finite(measured)
    for key, value in written.items() if isinstance(written, dict) else [("all of it", written)]:
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            raise UserError(
                f"after = {after!r} returned what cannot be written as JSON, in {key!r}: {error}. "
                "Return numbers, texts, lists and dicts; of an array or a tensor, its .tolist()."
            ) from None
    return json.loads(json.dumps(written))


def stamp(device: str = "cpu") -> dict[str, Any]:
    """Of every measured row: on what, when, and with which state of the source. `device` as in Result.versions."""
    return {"machine": machine(device), "date": time.strftime("%Y-%m-%d"), "commit": commit()}


@functools.cache
def machine(device: str) -> str:
    """What it ran on, in words, without a host's name: the GPU where one did the work, and the processor."""
    name = platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    except OSError:
        pass
    gpu = device.removeprefix("cuda (").removesuffix(")") + ", " if device.startswith("cuda") else ""
    return f"{gpu}{cores()} cores of {name}"


@functools.cache
def commit() -> str | None:
    """The state of the source, where it is a checkout: the commit, with a + if files differ from it."""
    here = Path(__file__).parent

    def git(*words: str) -> str:
        asked = subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, timeout=20, check=True)
        return asked.stdout.strip()

    try:
        if not (Path(git("rev-parse", "--show-toplevel")) / "src" / "spurless").exists():
            return None  # installed inside another project's checkout
        # A copy of the source in a folder that git ignores looks unchanged: it is not the commit's either.
        differs = git("status", "--porcelain", "--", "..") or not git("ls-files", "--", Path(__file__).name)
        return git("rev-parse", "--short=12", "HEAD") + ("+" if differs else "")
    except (OSError, subprocess.SubprocessError):
        return None


def lost_its_gpu() -> bool:
    """After some errors of CUDA every call of this process fails, and with it every trial that it would be given."""
    import torch

    if not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False
