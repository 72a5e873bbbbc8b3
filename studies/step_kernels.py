"""The kernels of one training step on a GPU: how many, how long each, and how long the GPU waits between them; and
eight seeds at once, as lanes and as one batch.

    python -m studies.step_kernels [--cases NAME ...] [--out FOLDER]     # all cases, side by side in one run

Each case is a process that trains plainly on random images. They compile at the same time, and are then measured one
after the other, while the others wait, so that cuDNN picks its kernels on a GPU that is idle: first without the
profiler, then a few more steps with it. `busy` is the sum of the kernels' own time; the rest of a step is between them.
A folder keeps every kernel of a step in order.
"""

import spurless  # noqa: F401  # isort: skip

import argparse
import json
import multiprocessing
import tempfile
import threading
import time
import traceback
from collections import defaultdict
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from spurless.core.recipe import Recipe
from spurless.train import device as switches_of
from spurless.train.fit import fit
from studies import seed_batch
from studies.engine import random_images

DIGITS = {"batch_size": 128, "augment": "pgd_digits", "compile": True}
PHOTOS = {"batch_size": 256, "augment": "crop_flip", "precision": "bf16", "compile": True}
SMALL = {"name": "resnet18", "stem": "small"}
COMBO = {"combo_kernels": True}
CASES = {  # network, recipe, options of the compiler
    "simconv1": ("simconv1", DIGITS, {}),
    "resnet18 32-px stem": (SMALL, PHOTOS, {}),
    "resnet18 32-px stem combo all": (SMALL, PHOTOS, COMBO),  # all: cuDNN tries all kernels that it has, not ten
    "resnet18 ImageNet stem": ("resnet18", PHOTOS, {}),
    "resnet18 ImageNet stem combo all": ("resnet18", PHOTOS, COMBO),
}
SEEDS = "seeds"  # the case of seed_batch.py
WARM, TIMED, TRACED = 300, 300, 12  # steps


class Watch:
    """Times some steps of a run and traces some more."""

    def __init__(self, device, trace):
        self.device, self.trace = device, trace
        self.phase, self.began, self.row = 0, (0, 0.0), {}

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def clock(self):
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def __call__(self, where):
        if (
            where.row is not None
            or where.pending is not None
            or where.step < (WARM, WARM + TIMED, where.total)[self.phase]
        ):
            return
        if self.phase == 1:
            self.row["ms"] = round(1000 * (self.clock() - self.began[1]) / (where.step - self.began[0]), 4)
            on = torch.profiler.ProfilerActivity
            self.profiler = torch.profiler.profile(activities=[on.CUDA if self.device == "cuda" else on.CPU])
            self.profiler.start()
        elif self.phase == 2:
            self.clock()
            self.profiler.stop()
            self.row["traced"] = where.step - self.began[0]
            self.profiler.export_chrome_trace(self.trace)
        self.phase, self.began = self.phase + 1, (where.step, self.clock())


@contextmanager
def alone(barrier, turn):
    """When all cases have compiled: with the GPU for oneself."""
    with suppress(threading.BrokenBarrierError):  # another case is late or has failed
        barrier.wait(240)
    with turn:
        yield


def one(name, device, barrier, turn, folder):
    try:
        if "all" in name:
            torch.backends.cudnn.benchmark_limit = 0
        ready = alone(barrier, turn)
        row = seed_batch.measure(device, ready) if name == SEEDS else steps(name, device, ready, folder)
    except Exception:
        row = {"error": traceback.format_exc()}
        barrier.abort()
    (folder / f"{name.replace(' ', '_')}.row.json").write_text(json.dumps({"name": name} | row, indent=1))


def steps(name, device, ready, folder):
    import torch._inductor.config as inductor

    net, recipe, options = CASES[name]
    shape = (3, 28, 28) if recipe["batch_size"] == 128 else (3, 32, 32)
    total = WARM + TIMED + TRACED
    data = random_images((total + 4) * recipe["batch_size"], shape)
    settings = {"eval_every": 0, "lr": 1e-3} | recipe
    watch = Watch(device, str(folder / f"{name.replace(' ', '_')}.json"))
    with inductor.patch(options):
        with kernels_not_chosen():
            fit("erm", data, net=net, recipe=Recipe(iterations=3, **settings), device=device, progress=False)
        with ready:
            fit("erm", data, net=net, recipe=Recipe(iterations=total, **settings), device=device, progress=watch)
    return watch.row | kernels_of(watch.trace, watch.row["traced"])


@contextmanager
def kernels_not_chosen():
    """cuDNN does not try its kernels: it would while other cases keep the GPU busy."""
    usual = switches_of.switches

    @contextmanager
    def quiet(recipe, device):
        with usual(recipe, device):
            torch.backends.cudnn.benchmark = False
            yield

    switches_of.switches = quiet
    try:
        yield
    finally:
        switches_of.switches = usual


def kernels_of(trace, steps):
    """From the profiler's trace: kernels and microseconds a step, by name, and those of one step in order."""
    events = json.loads(Path(trace).read_text())["traceEvents"]
    ours = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    ours.sort(key=lambda e: e["ts"])
    by_name = defaultdict(lambda: [0, 0.0])
    for e in ours:
        by_name[e["name"]][0] += 1
        by_name[e["name"]][1] += e["dur"]
    top = sorted(by_name.items(), key=lambda item: -item[1][1])
    start = 2 * len(ours) // steps  # the third traced step: the first ones may prepare inputs
    sequence = [
        [
            round(e["ts"] - ours[0]["ts"], 1),
            round(e["dur"], 2),
            e["args"].get("grid"),
            e["args"].get("block"),
            e["name"][:160],
        ]
        for e in ours[start : start + 2 * len(ours) // steps]
    ]
    Path(trace).unlink()
    return {
        "kernels": round(len(ours) / steps, 1),
        "busy_ms": round(sum(e["dur"] for e in ours) / steps / 1000, 4),
        "top": [[round(n / steps, 2), round(us / steps, 2), name[:160]] for name, (n, us) in top[:60]],
        "sequence": sequence,
    }


def side_by_side(names, device, folder):
    spawn = multiprocessing.get_context("spawn")
    barrier, turn = spawn.Barrier(len(names)), spawn.Lock()
    processes = [spawn.Process(target=one, args=(name, device, barrier, turn, folder)) for name in names]
    for process in processes:
        process.start()
    for process in processes:
        process.join(400)
    return [json.loads(p.read_text()) for p in sorted(folder.glob("*.row.json"))]


def show(row):
    if "error" in row:
        print(f"{row['name']}: {row['error'][-800:]}")
    elif row["name"] == SEEDS:
        print(f"| {row}")
    else:
        print(f"| {row['name']} | {row['ms']} ms | busy {row['busy_ms']} ms | {row['kernels']} kernels")
        for count, microseconds, kernel in row["top"][:14]:
            print(f"    {count:6.2f} x {microseconds:8.2f} us  {kernel[:90]}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", nargs="+", default=[*CASES, SEEDS])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        rows = side_by_side(given.cases, given.device, folder)
    for row in rows:
        show(row)
