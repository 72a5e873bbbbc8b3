"""How prunability depends on what is pruned, and on BatchNorm: the study of large learning rates says neither.

    python benchmarks/pruning_forms.py [--rates 0.01 0.1] [--epochs 3] [--device cuda] [--out results/pruning_forms]

ResNet-18 on Double MNIST at some rates, each network pruned in every form, its accuracy taken on unbiased test rows and
on training rows. "BatchNorm anew": its statistics are taken from 800 training rows after the weights have gone. A
filter is silenced if its BatchNorm says nothing in its place.
"""

import spurless  # noqa: F401  # isort: skip

import argparse
import json
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from torch import nn

from spurless.bench.one import stamp
from spurless.core import Recipe
from spurless.engine import fit
from spurless.feed import Inputs
from spurless.metrics.compress import KAPPAS, LAYERS, Order, data_accuracy, lowest
from spurless.metrics.feature_use import some_rows
from spurless.registry import load_data

DATA = {"name": "double_mnist", "rho": 0.025}
ORDERS = {
    "kernels": {},
    "kernels, relative to the median": {"centred": True},
    "kernels, of all layers together": {"scope": "global"},
    "kernels, first and last layer whole": {"ends": True},
    "filters": {"conv": "filter"},
    "filters, of all layers together": {"conv": "filter", "scope": "global"},
    "filters, first and last layer whole": {"conv": "filter", "ends": True},
    "weights": {"how": "magnitude"},
    "weights, of all layers together": {"how": "magnitude", "scope": "global"},
}


def least(weight, dim, kappa):
    """Which units of a layer, along a dimension, have the smallest weights: a share κ of them."""
    norms = weight.detach().transpose(0, dim).flatten(1).norm(dim=1)
    return lowest(norms, torch.ones_like(norms), kappa)


@contextmanager
def inputs_gone(net, kappa):
    """All that a layer reads from its least inputs; the first layer stays."""
    for layer in [m for m in net.modules() if isinstance(m, LAYERS)][1:]:
        layer.weight[:, least(layer.weight, 1, kappa)] = 0
    yield


@contextmanager
def filters_silenced(net, kappa):
    layer = None
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            layer = module
        elif isinstance(module, nn.BatchNorm2d):
            gone = least(layer.weight, 0, kappa)
            for held in (layer.weight, module.weight, module.bias):
                held[gone] = 0
        elif isinstance(module, nn.Linear):
            module.weight[:, least(module.weight, 1, kappa)] = 0
    yield


def statistics_anew(net, x):
    layers = [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # a plain mean over the batches
    net.train()
    with torch.no_grad():
        for batch in x.split(200):
            net(batch)
    net.eval()
    for layer in layers:
        layer.momentum = 0.1


def forms(net):
    """By name: a context in which a share κ is gone. What it leaves changed, loading the weights again puts right."""
    names = [name for name, m in net.named_modules() if isinstance(m, LAYERS)]
    found = {"inputs of a layer": partial(inputs_gone, net), "filters, silenced": partial(filters_silenced, net)}
    for name, settings in ORDERS.items():
        given = {k: v for k, v in settings.items() if k != "ends"}
        found[name] = Order(net, **given, skip=(names[0], names[-1]) if settings.get("ends") else ()).pruned
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rates", type=float, nargs="+", default=[0.01, 0.1])
    parser.add_argument("--epochs", type=float, default=60)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--data-root")
    parser.add_argument("--runs", type=Path, default=Path("runs/pruning_forms"))
    parser.add_argument("--out", type=Path, default=Path("results/pruning_forms"))
    given = parser.parse_args()
    data = load_data(DATA, root=given.data_root)
    accuracies = {
        split: data_accuracy(data, split, some_rows(data, split, given.rows).sort().values, "average")
        for split in ("test", "train")
    }
    given.out.mkdir(parents=True, exist_ok=True)
    for rate in given.rates:
        recipe = Recipe(
            "sgd", rate, momentum=0.0, batch_size=100, epochs=given.epochs, until_accuracy=100, eval_every=0
        )
        result = fit("erm", data, "resnet18", recipe, out=given.runs / f"{rate}-{given.epochs:g}", device=given.device)
        net = result.classifier.eval().requires_grad_(False)
        place = next(net.parameters()).device
        x = Inputs(data, Recipe(channels_last=False), place)(data.train[torch.arange(800)].to(place))
        start = {k: v.clone() for k, v in net.state_dict().items()}
        row = stamp(result.versions["device"]) | {"lr": rate, "epochs": len(result.history), "rows": given.rows}
        row |= {"train_accuracy": result.history[-1]["train_accuracy"], "forms": []}
        whole = {split: accuracy(net) for split, accuracy in accuracies.items()}
        for name, pruned in forms(net).items():
            for anew in (False, True):
                curves = {split: [] for split in accuracies}
                for kappa in KAPPAS:
                    with pruned(kappa):
                        if anew:
                            statistics_anew(net, x)
                        for split, accuracy in accuracies.items():
                            curves[split].append(accuracy(net))
                    net.load_state_dict(start)
                kept = {split: sum(a / whole[split] for a in curve) / len(curve) for split, curve in curves.items()}
                row["forms"].append({"form": name, "batchnorm_anew": anew, "prunability": kept, "accuracy": curves})
                print(rate, name, "anew" if anew else "", kept, flush=True)
        (given.out / f"{rate:g}.json").write_text(json.dumps(row, indent=1) + "\n")
