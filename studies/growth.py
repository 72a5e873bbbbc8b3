"""How time and memory grow with what there is: samples, files, groups, classes, trials, and workers on Ray.

    python -m studies.growth [--only samples groups] [--folder MANY_FILES] [--out results/speed/growth]

Each point is a process of its own. Seconds are of the wall clock, and beside them those of the processor; "own" is the
peak of what only this process holds (RssAnon), less what it held after its imports. "Slope" is the power of the size
by which the processor's seconds grow between the last two points, less those of the smallest size, which are what a
start costs: 1 is linear, 2 quadratic.

    files      tiny JPEG files in ten class folders: listed, split, and all hashed (first start); decoding is not in it
    samples    vectors of 20 numbers: an epoch of `erm` with a small network, and the scores
    groups     100,000 such vectors, two classes: an epoch of `group_dro`, and the scores of all groups
    classes    100,000 such vectors: an epoch of `erm`, and the scores
    trials     a benchmark of trials that do next to nothing: methods times seeds, one process
    ray        trials that wait for 2 s, so that workers are not limited by the processors here; one machine. Beyond
               the measured points: by simulation, which hands trials to workers that take 2 s and what a trial costs
               beside it. That is taken from one worker, of it the driver's own part, which it does for one trial
               after the other, from the processor's seconds with most workers; checked against two and four
"""

import argparse
import heapq
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import spurless  # noqa: F401  before torch: it lets waiting threads sleep instead of spin
from studies.data import memory, watched, write_images
from studies.metrics import machine
from studies.rows import named, put

SIZES = {
    "files": (1_000, 10_000, 100_000, 1_000_000),
    "samples": (1_000, 10_000, 100_000, 1_000_000),
    "groups": (10, 100, 1_000, 10_000),
    "classes": (2, 10, 100, 1_000, 10_000),
    "trials": (1, 4, 16, 64),
    "ray": (1, 2, 4),
}
SIMULATED = (1, 2, 4, 16, 64, 256)  # workers
WAIT, WAITING = 2.0, 16  # seconds of a trial that waits, and how many
Work = Callable[[int, Path], dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", nargs="*", choices=SIZES, default=list(SIZES))
    parser.add_argument("--most", type=int, default=10**6, help="no larger size than this")
    parser.add_argument("--folder", type=Path, help="as many files as the largest size, made before")
    parser.add_argument("--out", type=Path, help="the table and the row: results/TABLE/NAME; points in it are kept")
    parser.add_argument("--measure", nargs=3, metavar=("WHAT", "SIZE", "SCRATCH"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        what, size, scratch = args.measure
        print(json.dumps(measure(WORK[what], int(size), Path(scratch))))
        return
    kept = named(args.out.parent).get(args.out.name, {}) if args.out else {}
    rows: dict[str, list[dict[str, Any]]] = kept.get("rows", {})
    for what in args.only:
        there = {of["size"]: of for of in rows.get(what, [])}
        todo = [size for size in SIZES[what] if size <= args.most and size not in there]
        there |= {size: point(what, size, args.folder) for size in todo}
        rows[what] = [there[size] for size in sorted(there)]
        show(what, rows[what])
    if "ray" in args.only:
        rows["simulated"] = simulation(rows["ray"])
        show("simulated", rows["simulated"])
    if args.out:
        put(args.out, machine() | {"how": __doc__.split("\n\n", 2)[2], "rows": rows})


def point(what: str, size: int, many: Path | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="spurless-growth-") as scratch:
        place = Path(scratch)
        if what == "files":
            if size == SIZES["files"][-1] and many:
                place = many
            else:
                write_images(place / "files", size)
                place /= "files"
        environment = os.environ | {"SPURLESS_CACHE": f"{scratch}/cache"}
        command = [sys.executable, "-m", "studies.growth", "--measure", what, str(size), str(place)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        return {"size": size} | json.loads(done.stdout.splitlines()[-1])


def measure(work: Work, size: int, scratch: Path) -> dict[str, Any]:
    import pandas  # noqa: F401  imports are no part of what is measured
    import sklearn  # noqa: F401

    import spurless.data.folder
    import spurless.train.fit  # noqa: F401

    before = memory()["RssAnon"]
    with watched(memory) as peak:
        start, used = time.perf_counter(), time.process_time()
        told = work(size, scratch)
        told |= {"seconds": time.perf_counter() - start, "processor": time.process_time() - used} | told
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in told.items()} | {
        "own": round(peak["RssAnon"] - before)
    }


def files(size: int, folder: Path) -> dict[str, Any]:
    from spurless.core.digests import file_digests
    from spurless.data.folder import Folder, draw_splits, settle_copies
    from spurless.data.ingest.layouts import list_files
    from spurless.data.ingest.problems import Problems

    problems, how = Problems(), Folder(size=32)
    start = time.perf_counter()
    listing = list_files(folder, how, "", problems)
    draw_splits(listing, how, only_scored=False)
    listed = time.perf_counter() - start
    digests = file_digests([os.path.join(folder, name) for name in listing.names])
    settle_copies(listing, list(listing.splits), digests, problems, allowed=False)
    assert len(listing.names) == size and not len(problems)
    return {"listed": listed}


def vectors(n: int, classes: int = 2, values: int = 2) -> Any:
    import numpy as np

    from spurless import Bundle

    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(n) % classes)
    x = rng.standard_normal((n, 20), dtype=np.float32)
    x[:, 0] += y
    return Bundle.from_arrays(x, y, rng.permutation(np.arange(n) % values), attributes=["a"])


def trained(data: Any, method: str) -> dict[str, Any]:
    from spurless import fit

    start, used = time.perf_counter(), time.process_time()
    recipe = {"epochs": 1, "batch_size": 256}
    result = fit(method, data, net="mlp", recipe=recipe, device="cpu", progress=False)
    assert result.status == "done"
    return {"seconds": time.perf_counter() - start, "processor": time.process_time() - used}


def samples(size: int, _: Path) -> dict[str, Any]:
    return trained(vectors(size), "erm")


def groups(size: int, _: Path) -> dict[str, Any]:
    return trained(vectors(100_000, values=size // 2), "group_dro")


def classes(size: int, _: Path) -> dict[str, Any]:
    return trained(vectors(100_000, classes=size), "erm")


def trials(size: int, scratch: Path) -> dict[str, Any]:
    from spurless.bench.run import run_trials

    methods = ("erm", "lff", "jtt", "group_dro")
    todo = [toy(methods[k % 4], seed=k // 4) for k in range(size)]
    rows = run_trials(todo, scratch / "out", device="cpu", workers=1)
    assert all(row["status"] == "done" for row in rows)
    return {}


def toy(method: str, seed: int) -> Any:
    from spurless.bench.trials import Trial

    data = {"name": "toy", "n": 100}
    return Trial(data, {"name": method}, {"name": "mlp"}, {"epochs": 1, "batch_size": 50}, seed)


def ray(size: int, scratch: Path) -> dict[str, Any]:
    """Trials that wait, by so many workers: seconds from the first trial's start to the last row."""
    import ray as cluster

    from spurless.bench.run import run_trials

    cluster.init(num_cpus=size, include_dashboard=False, log_to_driver=False)
    # Each worker imports once; that is not what grows.
    warm = [toy("erm", seed=100 + k) for k in range(size)]
    run_trials(warm, scratch / "warm", on="ray", workers=size, after="studies.growth:wait")
    todo = [toy("erm", seed=k) for k in range(WAITING)]
    start, used = time.perf_counter(), time.process_time()
    rows = run_trials(todo, scratch / "out", on="ray", workers=size, after="studies.growth:wait")
    told = {"seconds": time.perf_counter() - start, "processor": time.process_time() - used}
    assert all(row["status"] == "done" for row in rows)
    cluster.shutdown()
    return told


def wait(result: Any, bundle: Any, folder: Path) -> dict[str, float]:
    time.sleep(WAIT)
    return {"waited": WAIT}


def simulation(measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Trials in turn to whoever is free."""
    alone = next(of for of in measured if of["size"] == 1)
    beside = alone["seconds"] / WAITING - WAIT
    driver = measured[-1]["processor"] / WAITING
    told = {of["size"]: of["seconds"] for of in measured}
    rows = []
    for workers in SIMULATED:
        n = max(WAITING, 4 * workers)
        seconds = in_turn(n, workers, WAIT + beside - driver, driver)
        row = {"size": workers, "trials": n, "seconds": seconds, "ideal": n / workers * (WAIT + beside)}
        rows.append(row | ({"measured": told[workers]} if workers in told and n == WAITING else {}))
    return rows


def in_turn(n: int, workers: int, work: float, driver: float) -> float:
    """Seconds until the last of n trials is done.

    >>> in_turn(4, 2, work=1.0, driver=0.0), in_turn(3, 3, work=1.0, driver=0.5)
    (2.0, 2.5)
    """
    free, handed = [0.0] * workers, 0.0
    for _ in range(n):
        handed = max(handed, heapq.heappop(free)) + driver
        heapq.heappush(free, handed + work)
    return max(free)


def show(what: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{what}", flush=True)
    for k, row in enumerate(rows):
        print("  ", row, flush=True)
        if k > 1 and k == len(rows) - 1 and what != "ray" and "processor" in row:
            print(f"   slope {slope(rows):.2f}", flush=True)


def slope(rows: list[dict[str, Any]]) -> float:
    """Of the last two points.

    >>> round(slope([{"size": n, "processor": 3 + 2 * n} for n in (1, 10, 100)]), 2)
    1.04
    """
    start, one, other = rows[0], rows[-2], rows[-1]
    work = [max(of["processor"] - start["processor"], 1e-9) for of in (one, other)]
    return math.log(work[1] / work[0]) / math.log(other["size"] / one["size"]) if len(rows) > 2 else math.nan


WORK: dict[str, Work] = {
    "files": files, "samples": samples, "groups": groups, "classes": classes, "trials": trials, "ray": ray
}  # fmt: skip

if __name__ == "__main__":
    main()
