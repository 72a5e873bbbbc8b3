"""How prunability depends on what is pruned, and on BatchNorm: the study of large learning rates says neither.

    python -m studies.pruning_forms [--rates 0.01 0.1] [--epochs 3] [--device cuda] [--out results/pruning_forms]
    python -m studies.pruning_forms --data moon_star --net '{"name": "fcn", "width": 200, "depth": 2}' --device cpu

ResNet-18 on Double MNIST (or another) at some rates, each network pruned in every form, its accuracy taken on unbiased
test samples and on training samples. "BatchNorm anew": its statistics are taken from 800 training samples after the
weights have gone. A filter is silenced if its BatchNorm says nothing in its place. Of a linear layer kernels are
columns.
"""

import spurless  # noqa: F401  # isort: skip

import argparse
import itertools
import json
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from torch import nn

from spurless.bench.one import stamp
from spurless.core.recipe import Recipe
from spurless.metrics.batchnorm import recompute_batchnorm
from spurless.metrics.compress import LAYERS
from spurless.metrics.feature_use import some_rows
from spurless.metrics.prunability import KAPPAS, Order, data_accuracy, lowest
from spurless.nets.outputs import Inputs
from spurless.registry import load_data
from spurless.train.fit import fit
from studies.rows import put

DATA = '{"name": "double_mnist", "rho": 0.025}'
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
def units_gone(net, kappa):
    """The rows of a layer's weight; the last layer stays, whose units are the classes."""
    for layer in [m for m in net.modules() if isinstance(m, LAYERS)][:-1]:
        layer.weight[least(layer.weight, 0, kappa)] = 0
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


def forms(net):
    """By name: a context in which a share κ is gone. What it leaves changed, loading the weights again puts right."""
    names = [name for name, m in net.named_modules() if isinstance(m, LAYERS)]
    convolves = any(isinstance(m, nn.Conv2d) for m in net.modules())
    found = {"inputs of a layer": partial(inputs_gone, net)}
    if convolves:
        found["filters, silenced"] = partial(filters_silenced, net)
    else:
        found["units of a layer"] = partial(units_gone, net)
    for name, settings in ORDERS.items():
        if name.startswith("filters") and not convolves:
            continue
        given = {k: v for k, v in settings.items() if k != "ends"}
        found[name] = Order(net, **given, skip=(names[0], names[-1]) if settings.get("ends") else ()).pruned
    return found


def measured(net, data, accuracies):
    """Every form, with BatchNorm as it was and, where there is any, anew."""
    place = next(net.parameters()).device
    x = Inputs(data, Recipe(channels_last=False), place)(data.train[torch.arange(800)].to(place))
    start = {k: v.clone() for k, v in net.state_dict().items()}
    whole = {split: accuracy(net) for split, accuracy in accuracies.items()}
    found = []
    for name, pruned in forms(net).items():
        for anew in (False, True) if any(isinstance(m, nn.BatchNorm2d) for m in net.modules()) else (False,):
            curves = {split: [] for split in accuracies}
            for kappa in KAPPAS:
                with pruned(kappa):
                    if anew:
                        recompute_batchnorm(net, x, batch_size=200)
                    for split, accuracy in accuracies.items():
                        curves[split].append(accuracy(net))
                net.load_state_dict(start)
            kept = {split: sum(a / whole[split] for a in curve) / len(curve) for split, curve in curves.items()}
            found.append({"form": name, "batchnorm_anew": anew, "prunability": kept, "accuracy": curves})
            print(name, "anew" if anew else "", kept, flush=True)
    return found


def named(text):
    """A name, or settings as JSON."""
    return json.loads(text) if text.startswith("{") else text


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rates", type=float, nargs="+", default=[0.01, 0.1])
    parser.add_argument("--data", type=named, default=DATA, help="a name, or settings as JSON")
    parser.add_argument("--net", type=named, default="resnet18")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=float, default=60)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--data-root")
    parser.add_argument("--runs", type=Path, default=Path("runs/pruning_forms"))
    parser.add_argument("--out", type=Path, default=Path("results/pruning_forms"))
    given = parser.parse_args()
    data = load_data(given.data, root=given.data_root)
    accuracies = {
        split: data_accuracy(data, split, some_rows(data, split, given.rows).sort().values, "average")
        for split in ("test", "train")
    }
    for rate, seed in itertools.product(given.rates, range(given.seeds)):
        recipe = Recipe(
            "sgd", rate, momentum=0.0, batch_size=100, epochs=given.epochs, until_accuracy=100, eval_every=0
        )
        name = f"{rate:g}-seed{seed}" if given.seeds > 1 else f"{rate:g}"
        out = given.runs / f"{name}-{given.epochs:g}"
        result = fit("erm", data, net=given.net, recipe=recipe, seed=seed, out=out, device=given.device)
        row = stamp(result.versions["device"]) | {"data": data.name, "net": given.net, "seed": seed, "lr": rate}
        row |= {"epochs": len(result.history), "rows": given.rows}
        row |= {"train_accuracy": result.history[-1]["train_accuracy"]}
        row |= {"forms": measured(result.classifier.eval().requires_grad_(False), data, accuracies)}
        put(given.out / name, row)
