"""Steps a second of runs under way, alone and in lanes, without what comes before the first epoch's end.

    python -m studies.lane_rates [--lanes 8 15] [--methods disent lff erm jtt pgd] [--net simconv1] [--compile]
                                    [--precision fp32] [--plain-layout] [--out rows.json]

The gain is what a window's steps would have taken their runs alone, one after the other, over what it took. Whole
runs, with their beginning and the last of them, which has the GPU to itself: studies/lanes.py.
"""

import spurless  # noqa: F401  # isort: skip

import argparse
import itertools
import time
from pathlib import Path

import torch

from spurless.bench.one import stamp
from spurless.core.recipe import Recipe
from spurless.registry import load_data
from spurless.train.device import arithmetic, pick_device
from spurless.train.lanes import BREATH, Job, Lanes
from studies.rows import put

METHODS = ("disent", "lff", "erm", "jtt", "pgd")
WINDOWS = 3  # of each; their median counts


def window(held, seconds):
    """Steps of each lane in about so many seconds."""

    def settle():
        if held.device.type == "cuda":
            torch.cuda.synchronize(held.device)

    settle()
    before, started = [lane.done for lane in held.lanes], time.monotonic()
    while time.monotonic() - started < seconds:
        ready = [lane for lane in held.lanes if lane.ready]
        for lane in ready:
            held.advance(lane)
        if not ready:
            time.sleep(BREATH)
    settle()
    spent = time.monotonic() - started
    return [(lane.done - was) / spent for lane, was in zip(held.lanes, before, strict=True)]


def rates(methods, data, net, recipe, device, seconds, past):
    """For each window, steps a second of each of the runs, which share the device."""
    place = pick_device(device)
    with arithmetic(Recipe(), place):
        held = Lanes(place, iter(()))
        for seed, method in enumerate(methods):
            arguments = {"method": method, "data": data, "net": net, "recipe": recipe, "seed": seed}
            held.open(Job(f"{method}-{seed}", arguments))
        for lane in held.lanes:
            while lane.done < past:
                held.advance(lane)
        found = [window(held, seconds) for _ in range(WINDOWS)]
        for lane in held.lanes[:]:
            held.close(lane)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lanes", type=int, nargs="+", default=[8, 15])
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--net", default="simconv1")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--plain-layout", action="store_true", help="channels_last off")
    parser.add_argument("--seconds", type=float, default=1.2)
    parser.add_argument("--past", type=int, default=450, help="steps of each run before the first window: an epoch")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--data-root")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    data = load_data({"name": "colored_mnist", "family": "pgd", "rho": 0.005}, root=given.data_root)
    how = {"precision": given.precision, "compile": given.compile, "channels_last": not given.plain_layout}
    recipe = {"name": "pgd-cmnist", "epochs": 100} | how
    rows, alone = [], {}
    for lanes in (1, *given.lanes):
        runs = list(itertools.islice(itertools.cycle(given.methods), lanes))
        for methods in [[method] for method in given.methods] if lanes == 1 else [runs]:
            found = rates(methods, data, given.net, recipe, given.device, given.seconds, given.past)
            if lanes == 1:
                alone[methods[0]] = sorted(r for (r,) in found)[WINDOWS // 2]
            gains = sorted(sum(r / alone[m] for m, r in zip(methods, each, strict=True)) for each in found)
            row = {"lanes": lanes, "methods": methods, "gain": round(gains[WINDOWS // 2], 2)}
            rows.append(row | {"steps_per_second": [[round(r) for r in each] for each in found]})
            print(rows[-1], flush=True)
    if given.out:
        name = f"cuda ({torch.cuda.get_device_name()})" if given.device == "cuda" else "cpu"
        facts = stamp(name) | {"device": name, "torch": torch.__version__, "net": given.net} | how
        put(given.out, facts | {"rows": rows})
