"""Do other readings of the large-learning-rate study's measures explain the ends that do not come back?

    python -m studies.rate_measures moon_star parity --rates 0.03 0.75 --seeds 3     # rows: results/rate_measures
    python -m studies.rate_measures double_mnist --rates 0.01 0.1 --device cuda

Networks of studies/sweeps/NAME.toml at two rates, each measured in every reading: prunability in every form of
`pruning_forms`, on test samples, on training samples and on the test samples that the whole network gets right; class
selectivity and separation of all samples, of a thousand, of training samples, of active neurons only.
"""

import spurless  # noqa: F401  # isort: skip

import argparse
import tomllib
from pathlib import Path

from spurless.bench.one import stamp
from spurless.core.data import Split
from spurless.core.recipe import Recipe
from spurless.metrics.feature_use import some_rows
from spurless.metrics.prunability import data_accuracy
from spurless.metrics.regions import device_of
from spurless.metrics.representation import class_separation, csi, features_of
from spurless.nets.outputs import Inputs, outputs
from spurless.registry import load_data
from spurless.train.fit import fit
from studies.pruning_forms import measured
from studies.rows import ROOT, put

ROWS = 1000  # samples on which a network is pruned


def still_right(net, data, rows):
    """The share of the test samples that `net` gets right now which it, pruned, gets right too."""
    samples = Split(data.test[rows], data.test.y[rows])
    recipe, device = Recipe(channels_last=False), device_of(net)

    def answers(asked):
        return outputs(asked, samples, Inputs(data, recipe, device), recipe, device).argmax(1).cpu() == samples.y

    right = answers(net)
    return lambda pruned: 100 * float(answers(pruned)[right].double().mean())


def readings(net, data):
    """Class selectivity and separation, by which samples and neurons count."""
    found = {}
    thousand = some_rows(data, "test", 1000).sort().values
    for name, split, rows in (
        ("test", "test", None),
        ("1,000 of test", "test", thousand),
        ("100 of test", "test", thousand[:100]),
        ("train", "train", some_rows(data, "train", 10_000).sort().values),
    ):
        y = data.splits[split].y if rows is None else data.splits[split].y[rows]
        z = features_of(net, data, split, rows)
        chosen = csi(z, y)
        found[name] = {
            "csi": chosen.average,
            "csi_active": chosen.average_of_active,
            "csi_no_coverage": csi(z, y, coverage=False).average,
            "class_separation": class_separation(z, y),
            "class_separation_centred": class_separation(z - z.mean(0), y),
        }
    return found


def study(name, rates, seeds, device, root):
    spec = tomllib.loads((ROOT / "studies" / "sweeps" / f"{name}.toml").read_text(encoding="utf-8"))
    data = load_data(spec["data"], root=root)
    some = {split: some_rows(data, split, ROWS).sort().values for split in ("test", "train")}
    for rate in rates:
        for seed in range(seeds):
            recipe = spec.get("recipe", {}) | {"lr": rate}
            result = fit("erm", data, net=spec["net"], recipe=recipe, seed=seed, device=device, progress=False)
            net = result.classifier.eval().requires_grad_(False)
            accuracies = {s: data_accuracy(data, s, rows, "average") for s, rows in some.items()}
            accuracies["right"] = still_right(net, data, some["test"])
            row = stamp(result.versions["device"]) | {"data": name, "seed": seed, "lr": rate}
            row |= {"unbiased": result.scores["unbiased"], "train_accuracy": result.history[-1]["train_accuracy"]}
            row |= {"readings": readings(net, data), "forms": measured(net, data, accuracies)}
            yield f"{name}-{rate:g}-seed{seed}", row


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("data", nargs="+")
    parser.add_argument("--rates", type=float, nargs="+", required=True)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-root")
    parser.add_argument("--out", type=Path, default=Path("results/rate_measures"))
    given = parser.parse_args()
    for name in given.data:
        for label, row in study(name, given.rates, given.seeds, given.device, given.data_root):
            put(given.out / label, row)
            print(label, {k: row[k] for k in ("unbiased", "train_accuracy", "readings")}, flush=True)
