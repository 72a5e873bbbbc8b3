"""Runs side by side on one GPU against one at a time, in the same process, with the same runs.

    python -m studies.lanes [--epochs 6] [--rho 0.005 0.01 0.05] [--compile] [--lanes 1 8] [--out results/speed/NAME]
                               [--workers 0 4] [--together 4]

The runs are those of a column of PGD's table 1 (Colored MNIST, simconv1), or of all of it, cut short; the first round
warms up. With
--workers the same runs are done by `spurless bench --workers` too (0: without that option, as it comes), and the time
that its processes take to start is theirs, as is that of the MPS that they share, unless one is running. With
--together so many processes of `--workers 1`, which means lanes, work on one folder, as several terminals would.
"""

import spurless  # noqa: F401  # isort: skip

import argparse
import itertools
import multiprocessing
import os
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import torch

from spurless.bench.claim import finished_row
from spurless.bench.executors.mps import changed, shared_gpu
from spurless.bench.one import stamp
from spurless.bench.run import run_trials
from spurless.bench.trials import Trial
from spurless.registry import load_data
from spurless.train.lanes import Job, run_lanes
from studies.rows import put

METHODS = ("erm", "lff", "jtt", "disent", "pgd")


def jobs(columns, epochs, seeds, compile):
    """In the order of the table's own specification."""
    recipe = {"name": "pgd-cmnist", "epochs": epochs, "compile": compile}
    for seed, method, (number, data) in itertools.product(range(seeds), METHODS, enumerate(columns)):
        arguments = {"method": method, "data": data, "net": "simconv1", "recipe": recipe, "seed": seed}
        yield Job(f"{method}-{number}-{seed}", arguments)


def measure(columns, epochs, seeds, lanes, device, compile):
    started = time.monotonic()
    done = list(run_lanes(jobs(columns, epochs, seeds, compile), lanes, device))
    broken = [f"{job.key}: {found}" for job, found in done if isinstance(found, Exception)]
    assert not broken, broken
    if device == "cuda":
        torch.cuda.synchronize()
    return time.monotonic() - started


def trials_of(settings, epochs, seeds):
    recipe, net = {"name": "pgd-cmnist", "epochs": epochs}, {"name": "simconv1"}
    return [Trial(of, {"name": m}, net, recipe, s) for s in range(seeds) for m in METHODS for of in settings]


def measure_together(settings, epochs, seeds, count, device, compile, root):
    how = {"device": device, "workers": 1, "root": root, "compile": compile}
    with tempfile.TemporaryDirectory() as out, shared_gpu() if device == "cuda" else nullcontext() as behind:
        own = changed(behind or {})
        os.environ.clear()
        os.environ.update(own)  # for those that are started from here
        trials = trials_of(settings, epochs, seeds)
        started = time.monotonic()
        start = multiprocessing.get_context("spawn").Process
        processes = [start(target=run_trials, args=(trials, out), kwargs=how) for _ in range(count)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        seconds = time.monotonic() - started
        rows = [finished_row(Path(out) / trial.folder) for trial in trials]
    assert all(row and row["status"] == "done" for row in rows), rows
    return seconds


def measure_processes(settings, epochs, seeds, workers, device, compile, root):
    trials = trials_of(settings, epochs, seeds)
    with tempfile.TemporaryDirectory() as out:
        started = time.monotonic()
        rows = run_trials(trials, out, device=device, workers=workers or None, root=root, compile=compile)
        seconds = time.monotonic() - started
    broken = [row["error"] for row in rows if row["status"] != "done"]
    assert not broken, broken
    return seconds, rows[0]["processes"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=float, default=6)
    parser.add_argument("--rho", type=float, nargs="+", default=[0.005])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 4, 8, 0])
    parser.add_argument("--workers", type=int, nargs="*", default=[])
    parser.add_argument("--together", type=int, nargs="*", default=[])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--data-root")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    settings = [{"name": "colored_mnist", "family": "pgd", "rho": rho} for rho in given.rho]
    columns = [load_data(of, root=given.data_root) for of in settings]
    measure(columns[:1], min(1, given.epochs), 1, 1, given.device, given.compile)
    rows = []
    for lanes in given.lanes:
        seconds = measure(columns, given.epochs, given.seeds, lanes or None, given.device, given.compile)
        rows.append({"lanes": lanes or "measured", "seconds": round(seconds, 2)})
        rows[-1]["speed_up"] = round(rows[0]["seconds"] / seconds, 2)
        print(rows[-1], flush=True)
    for workers in given.workers:
        seconds, processes = measure_processes(
            settings, given.epochs, given.seeds, workers, given.device, given.compile, given.data_root
        )
        rows.append({"processes": processes, "asked": bool(workers), "seconds": round(seconds, 2)})
        rows[-1]["speed_up"] = round(rows[0]["seconds"] / seconds, 2)
        print(rows[-1], flush=True)
    for count in given.together:
        seconds = measure_together(
            settings, given.epochs, given.seeds, count, given.device, given.compile, given.data_root
        )
        rows.append({"processes": count, "lanes": "measured", "seconds": round(seconds, 2)})
        rows[-1]["speed_up"] = round(rows[0]["seconds"] / seconds, 2)
        print(rows[-1], flush=True)
    if given.out:
        name = f"cuda ({torch.cuda.get_device_name()})" if given.device == "cuda" else "cpu"
        found = stamp(name) | {"device": name, "torch": torch.__version__, "rows": rows, "compile": given.compile}
        put(given.out, found | {"runs": len(columns) * given.seeds * len(METHODS), "epochs": given.epochs})
