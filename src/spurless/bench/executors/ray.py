"""The trials of a benchmark on a Ray cluster that is running already.

A trial is a task. Where a worker sees the benchmark's folder, by the same path, it works there, as any other process
would. Else it works in a temporary folder of its own and sends row and files back; only what is too large to be sent
stays there. When a worker or its machine is lost, Ray gives the trial to another one, which on a shared disk resumes
from the last checkpoint. What is done is not touched: rows lie in the folder as soon as they are there.
"""

from __future__ import annotations

import getpass
import json
import logging
import os
import secrets
import shutil
import signal
import socket
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from spurless.bench.claim import FINISHED, LOCK, ROW, finished_row, write_row
from spurless.bench.one import bury, compiled, run_claimed, run_one, take
from spurless.bench.trials import Trial, digest
from spurless.core.errors import UserError, first_line
from spurless.core.extras import missing
from spurless.core.files import atomic, lock
from spurless.train.run_folder import RESULT

RETRIES = 3  # after the loss of a worker, not after a mistake: that is a row with the status "failed"
GPU_SHARE = 0.25  # of a GPU for each trial, where the cluster has GPUs: a small network leaves most of one idle
GRACE = 60  # seconds in which a trial may end its step and save it
LARGEST = 64 * 2**20  # bytes of a file that is sent back
TOKEN = ".token"  # a file that is made once in a benchmark's folder
LEFT_OUT = "left_out"  # in a worker's own place: what was too large to be sent


def run_on_ray(
    trials: Sequence[Trial],
    out: str | Path,
    *,
    device: str | None = None,
    workers: int | None = None,
    root: str | Path | None = None,
    address: str | None = None,
    gpus_per_trial: float | None = None,
    compile: bool = False,
    send_back: bool = False,
) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """Do the trials on the cluster, and yield each with its row when it is done, in no order.

    `workers` limits how many run at a time; without it, as many as the cluster has room for. `gpus_per_trial` may be a
    fraction; 0 keeps them on CPUs. `compile`: where a worker has a GPU and can. `send_back`: even where workers see
    the folder, only this process writes there.
    """
    ray = _ray()
    out = Path(out).resolve()
    with _connected(ray, address), _marked(out) as mark:
        gpus = 0.0 if device == "cpu" else _gpu_share(ray) if gpus_per_trial is None else gpus_per_trial
        how = {"device": device, "root": str(root or os.environ.get("SPURLESS_DATA") or "") or None}
        job = how | {"out": str(out), "token": token_of(out), "mark": None if send_back else mark, "compile": compile}
        task = ray.remote(do)
        todo = deque(trials)
        running: dict[Any, Trial] = {}
        try:
            while todo or running:
                while todo and len(running) < (workers or len(trials)):
                    trial = todo.popleft()
                    # Named by its key, so that it can be found in Ray's own lists.
                    named = f"spurless {trial.key}"
                    chosen = task.options(name=named, num_cpus=1, num_gpus=gpus, max_retries=RETRIES)
                    running[chosen.remote(job | {"trial": trial.whole(), "key": trial.key})] = trial
                ready, _ = ray.wait(list(running), timeout=1)
                for reference in ready:
                    trial = running.pop(reference)
                    yield trial, _row_of(ray, reference, trial, out)
        finally:
            for reference in running:  # Ctrl-C: each trial stops after its step, with a checkpoint
                ray.cancel(reference)
            if running:
                ray.wait(list(running), num_returns=len(running), timeout=GRACE)


def _gpu_share(ray: Any) -> float:
    """What a trial asks for if nobody says: a share of a GPU where the cluster has one."""
    return GPU_SHARE if ray.cluster_resources().get("GPU") else 0.0


def _row_of(ray: Any, reference: Any, trial: Trial, out: Path) -> dict[str, Any]:
    """The row of a task that has ended; of one whose worker was lost, the row that says so."""
    try:
        row, files = ray.get(reference)
        return dict(row) if files is None else _put_down(trial, out, row, files)
    except ray.exceptions.RayError as error:
        lost = bury(trial, out, _reason(error))
        assert lost is not None  # whoever is at it is waited for
        return lost


def do(job: dict[str, Any]) -> tuple[dict[str, Any], dict[str, bytes] | None]:
    """On a worker: one trial. Its row, and its files where the benchmark's folder is not seen from here."""
    trial = Trial(**job["trial"])
    if trial.key != job["key"]:
        raise UserError("The worker has another version of spurless: install the same one on all machines.")
    shared = job["mark"] is not None and (Path(job["out"]) / job["mark"]).exists()
    if job["compile"]:
        from spurless.train.device import pick_device

        [trial] = compiled([trial], pick_device(job["device"]))
    if not shared:
        return _do_apart(trial, own_place(job["out"], job["token"]), job["device"], job["root"])
    row = run_one(trial, job["out"], job["device"], job["root"])
    assert row is not None
    return row, None


def own_place(out: str, token: str) -> Path:
    """A folder on this machine for a benchmark whose own is not seen from here: the same when a trial comes again."""
    return Path(tempfile.gettempdir()) / f"spurless-bench-{getpass.getuser()}" / digest([out, token])


def _do_apart(
    trial: Trial, folder_path: Path, device: str | None, root: str | None
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """A trial in a worker's own place: its row and its files. What is not finished stays, to be resumed."""
    folder = folder_path / trial.folder
    lock = take(folder)
    assert lock is not None
    with lock:  # to the end: another worker of this machine may wait for the same trial
        row = run_claimed(trial, folder_path, device, root)
        files = small_files(folder, row)
        if row["status"] in FINISHED:
            # Who asks for it again has not got it any more, and wants it trained: nothing here may answer instead.
            _keep_large(folder, folder_path / LEFT_OUT / trial.key, row)
            shutil.rmtree(folder, ignore_errors=True)
    return row, files


def _keep_large(folder: Path, kept: Path, row: dict[str, Any]) -> None:
    """Put what was too large to be sent where no run looks for it: there is no other copy."""
    for name in row.get("left_out", []):
        kept.mkdir(parents=True, exist_ok=True)
        os.replace(folder / name, kept / name)


def small_files(folder: Path, row: dict[str, Any]) -> dict[str, bytes]:
    """A run's files but for its checkpoints; of those too large to be sent, the row says so."""
    contents = {}
    for path in sorted(folder.iterdir()):
        if path.name in (LOCK, ROW) or path.name.startswith((".", "stage-")) or not path.is_file():
            continue
        if path.stat().st_size > LARGEST:
            row["left_out"] = [*row.get("left_out", []), path.name]
            continue
        contents[path.name] = path.read_bytes()
    return contents


# In the process that asked


def token_of(out: Path) -> str:
    """What tells this folder from one that had its name before: workers begin anew for a new one."""
    path = out / TOKEN
    if not path.exists():
        with atomic(path) as unfinished:
            unfinished.write_text(secrets.token_hex(8), encoding="utf-8")
    return path.read_text(encoding="utf-8")


def _put_down(trial: Trial, out: Path, row: dict[str, Any], files: dict[str, bytes]) -> dict[str, Any]:
    """Write what was sent back; the row last, because it says that the rest is there."""
    folder = out / trial.folder
    lock = take(folder)
    assert lock is not None
    with lock:
        if finished := finished_row(folder, trial.after):  # by someone who works here
            return finished
        for name, content in files.items():
            if name == RESULT:  # it names the folder that it was made in
                content = (json.dumps(json.loads(content) | {"folder": str(folder)}, indent=1) + "\n").encode()
            with atomic(folder / name) as unfinished:
                unfinished.write_bytes(content)
        write_row(folder, row)
    return row


def _reason(error: Exception) -> str:
    cause = getattr(error, "cause", None)
    if isinstance(cause, UserError):
        return str(cause)
    return f"No worker could do it ({RETRIES + 1} tries): {first_line(cause or error)}"


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise missing("--on ray", "ray") from None
    return ray


@contextmanager
def _connected(ray: Any, address: str | None) -> Iterator[None]:
    """A connection of our own, or the one that this process has."""
    if ray.is_initialized():
        yield
        return
    handlers = {sign: signal.getsignal(sign) for sign in (signal.SIGINT, signal.SIGTERM)}
    try:
        if address and address != "auto":
            _knock(address)
        ray.init(address=address or "auto", log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        where = f"at {address} " if address else ""
        raise UserError(
            f"No Ray cluster was found {where}({first_line(error)}). Start one with `ray start --head`, or "
            "name it with --address."
        ) from None
    if threading.current_thread() is threading.main_thread():
        for sign, handler in handlers.items():  # Ray's own would end without letting the trials save anything
            signal.signal(sign, handler)
    try:
        yield
    finally:
        ray.shutdown()  # the connection alone: the cluster keeps running


def _knock(address: str) -> None:
    """Whether anyone answers there: Ray itself would try for ten minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise UserError(f"--address {address!r} should be HOST:PORT, ray://HOST:PORT or auto.")
    socket.create_connection((host, int(port)), timeout=10).close()


@contextmanager
def _marked(out: Path) -> Iterator[str]:
    """The name of a file by which a worker can tell that it sees this very folder."""
    out.mkdir(parents=True, exist_ok=True)
    _remove_unused(out)
    mark = out / f".seen-{secrets.token_hex(8)}"
    mark.touch()
    marker = None
    with suppress(OSError):
        marker = lock(mark)
    try:
        yield mark.name
    finally:
        mark.unlink(missing_ok=True)
        if marker:
            marker.close()
        _remove_unused(out)  # of a killed process that was still ending when this one began


def _remove_unused(out: Path) -> None:
    with suppress(OSError):  # a file system without locks: what a killed process left stays
        for left in out.glob(".seen-*"):
            if unused := lock(left):
                left.unlink()
                unused.close()
