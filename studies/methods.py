"""Step time of each method relative to ERM, and peak memory, in one interleaved run.

    python -m studies.methods                 # on the CPU
    python -m studies.methods --device cuda

Each method trains the same number of steps in turn, again and again; the ratio is that of the medians. A method with
two stages of equal length does twice ERM's steps: "of ERM" compares a whole run with a whole run of ERM, and "a step"
the step of its slowest stage with ERM's step. Mining and scoring between stages count in the whole run.
"""

import spurless  # noqa: F401  # isort: skip  (first: it sets how OpenMP waits before torch is imported)

import argparse
import json
import statistics
import subprocess
import sys
import time

import torch

from spurless.core.recipe import Recipe
from spurless.registry import make_method
from spurless.train.fit import fit
from studies.engine import now, own_peak, random_images

METHODS = {
    "erm": {},
    "lff": {},
    "pgd": {},
    "jtt": {"lambda_up": 1},  # the labels are random here: there is no error set to repeat
    "disent": {},
    "ga": {"mining_epochs": 1},
    "bias_adv (erm, S = 1)": {"base": "erm", "steps": 1},
    "bias_adv (erm, S = 5)": {"base": "erm", "steps": 5},
    "bias_adv (lff, S = 5)": {"base": "lff", "steps": 5},
    "bias_adv (jtt, S = 5)": {"base": "jtt", "steps": 5, "lambda_up": 1},
}


class StageTimes:
    """Seconds a step of every stage, without its first steps."""

    SKIP = 6

    def __init__(self, device):
        self.device, self.seen = device, {}

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def __call__(self, where):
        if where.row is None and where.step in (self.SKIP, where.total):
            self.seen.setdefault(where.stage, []).append((now(self.device), where.step))

    def slowest(self):
        spans = [(t[-1][0] - t[0][0]) / (t[-1][1] - t[0][1]) for t in self.seen.values() if len(t) > 1]
        return max(spans)


def run(name, steps, device, batch, net):
    method = make_method({"name": name.split()[0]} | METHODS[name])
    data = random_images(steps * batch)
    recipe = Recipe("sgd", 0.01, batch_size=batch, epochs=1, eval_every=0, augment="none")
    watch = StageTimes(device)
    started = now(device)
    fit(method, data, net=net, recipe=recipe, device=device, progress=watch)
    return now(device) - started, watch.slowest()


def memory(name, steps, device, batch, net):
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        run(name, steps, device, batch, net)
        return torch.cuda.max_memory_allocated() / 2**20
    command = [sys.executable, __file__, "--one", json.dumps([name, 12, device, batch, net])]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--net", default="simconv1")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.one:
        run(*json.loads(given.one))
        print(own_peak())
        raise SystemExit
    steps = given.steps or (30 if given.device == "cpu" else 300)
    run("erm", 12, given.device, 128, given.net)  # what only the first run of a process pays for
    times = {name: [] for name in METHODS}
    for _ in range(given.rounds):
        for name in METHODS:
            times[name].append(run(name, steps, given.device, 128, given.net))
    erm = [statistics.median(t) for t in zip(*times["erm"], strict=True)]
    print(
        f"torch {torch.__version__}, {given.device}, {given.net}, batch 128, {given.rounds} rounds of {steps} steps, "
        f"{time.strftime('%Y-%m-%d')}\n"
    )
    print("| method | ms a step (slowest stage) | of ERM's step | whole run, of ERM's | peak memory MiB |")
    print("| :-- | --: | --: | --: | --: |")
    for name, measured in times.items():
        whole, step = (statistics.median(t) for t in zip(*measured, strict=True))
        used = memory(name, steps, given.device, 128, given.net)
        print(f"| {name} | {1000 * step:.2f} | {step / erm[1]:.2f} | {whole / erm[0]:.2f} | {used:,.0f} |", flush=True)
