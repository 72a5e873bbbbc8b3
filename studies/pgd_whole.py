"""The whole PGD run of its table 1 (Colored MNIST, 2 x 100 epochs of 54,000 images), timed, and its scoring step.

    python -m studies.pgd_whole [--seeds 2] [--compile] [--device cuda] [--out results/speed/NAME]

A short run goes before, so that no start-up is timed; with --compile it compiles both losses.
"""

import spurless  # noqa: F401  # isort: skip

import argparse
import time
from pathlib import Path

import torch

from spurless.bench.one import stamp
from spurless.methods.pgd import PGD
from spurless.registry import load_data
from spurless.train.fit import fit
from studies.rows import put


def timed(function, into, device):
    """The function, noting the seconds of each call."""

    def call(*given, **more):
        started = seconds(device)
        found = function(*given, **more)
        into.append(seconds(device) - started)
        return found

    return call


def seconds(device):
    if device == "cuda":
        torch.cuda.synchronize()
    return time.monotonic()


def measure(data, recipe, seed, device):
    scoring = []
    whole, PGD.odds = PGD.odds, timed(PGD.odds, scoring, device)
    try:
        started = seconds(device)
        result = fit("pgd", data, net="simconv1", recipe=recipe, seed=seed, device=device, progress=False)
        wall = seconds(device) - started
    finally:
        PGD.odds = whole
    row = {"seed": seed, "seconds": round(wall, 2), "scoring": round(sum(scoring), 3)}
    return row | {"epochs": len(result.history), "unbiased": result.scores["unbiased"]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=float, default=100)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    data = load_data({"name": "colored_mnist", "family": "pgd", "rho": 0.005})
    recipe = {"name": "pgd-cmnist", "compile": given.compile}
    measure(data, recipe | {"iterations": 20}, 0, given.device)
    rows = []
    for seed in range(given.seeds):
        rows.append(measure(data, recipe | {"epochs": given.epochs}, seed, given.device))
        print(rows[-1], flush=True)
    if given.out:
        name = f"cuda ({torch.cuda.get_device_name()})" if given.device == "cuda" else "cpu"
        found = stamp(name) | {"torch": torch.__version__, "compile": given.compile, "rows": rows}
        put(given.out, found)
