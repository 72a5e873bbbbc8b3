"""Which step of PGD's augmentation moves plain training on Colored MNIST, where it is below the paper's figure.

    python -m studies.augmentation [--rho 0.005] [--seeds 2] [--device cuda] [--out results/augmentation]

Plain training with PGD's network and recipe, and with one step of its augmentation, all of them, or none.
"""

import spurless  # noqa: F401  # isort: skip

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from spurless.bench.one import stamp
from spurless.core.augment import Augment, preset
from spurless.registry import load_data
from spurless.train.lanes import Job, run_lanes
from studies.rows import put

WHOLE = preset("pgd_digits")
VARIANTS = {
    "all": WHOLE,
    "none": Augment(),
    "crop": Augment(scale=WHOLE.scale, ratio=WHOLE.ratio),
    "rotation": Augment(rotate=WHOLE.rotate, rotate_mode=WHOLE.rotate_mode),
    "rotation, bilinear": Augment(rotate=WHOLE.rotate),
    "colour": Augment(saturation=WHOLE.saturation, hue=WHOLE.hue),
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rho", type=float, nargs="+", default=[0.005, 0.01])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=float, default=100)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path("results/augmentation"))
    given = parser.parse_args()
    recipe = {"name": "pgd-cmnist", "channels_last": False, "epochs": given.epochs, "compile": given.compile}
    jobs, about = [], {}
    for rho in given.rho:
        data = load_data({"name": "colored_mnist", "family": "pgd", "rho": rho})
        for name, how in VARIANTS.items():
            for seed in range(given.seeds):
                key = f"{name.replace(', ', '-')}-{rho}-seed{seed}"
                about[key] = {"augmentation": name, "rho": rho, "seed": seed}
                settings = {"method": "erm", "net": "simconv1", "recipe": recipe, "seed": seed}
                jobs.append(Job(key, settings | {"data": replace(data, inputs=replace(data.inputs, augment=how))}))
    device = f"cuda ({torch.cuda.get_device_name()})" if given.device == "cuda" else "cpu"
    for job, found in run_lanes(iter(jobs), None, given.device):
        if isinstance(found, Exception):
            raise found
        scores = {k: found.scores[k] for k in ("average", "unbiased", "aligned", "conflicting")}
        row = about[job.key] | stamp(device) | {"epochs": given.epochs, "compile": given.compile}
        row |= {"n": found.scores["n"]["average"], "scores": scores}
        put(given.out / job.key, row)
        print(about[job.key], round(scores["average"], 2), flush=True)
