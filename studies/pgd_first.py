"""What PGD's first network learns, epoch by epoch, and what would be drawn by it if it ended there.

    python -m studies.pgd_first cmnist [--epochs 5] [--q 0.3 0.5 0.7 0.9]
    python -m studies.pgd_first ccifar --epochs 8 --seeds 3

On Colored MNIST: how soon it learns more than the colour (table 7, lower half). On Corrupted CIFAR-10: whether it
leaves out a class. Table 6's recipes, whose learning rate is constant for the first 40 epochs. Only to be looked at:
nothing is picked.
"""

import spurless  # noqa: F401  # isort: skip

import argparse
import itertools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from spurless.bench.one import stamp
from spurless.methods.pgd import PGD
from spurless.metrics.inference import lost_classes
from spurless.registry import load_data
from spurless.train.fit import fit
from studies.rows import put

CONSTANT = {"schedule": "constant"}
KINDS = {  # data, network, recipe, shares of conflicting samples
    "cmnist": (
        {"name": "colored_mnist", "family": "pgd"},
        "simconv1",
        {"name": "pgd-cmnist"} | CONSTANT,
        (0.005, 0.01, 0.05),
    ),
    "ccifar": (
        {"name": "corrupted_cifar10", "mapping": "disent"},
        "resnet18",
        {"name": "pgd-ccifar", "augment": "pgd_photos", "precision": "bf16"} | CONSTANT,
        (0.01,),
    ),
}


@dataclass(frozen=True)
class First(PGD):
    """PGD's first stage alone, an epoch at a time. `test` does not come from the run, which shows it to no method."""

    epochs: int = 5
    test: ClassVar = None
    seen: ClassVar = ()

    def stages(self, run):
        net, seen, train = run.net(), [], run.data.train
        optimizer = run.optimizer(net)
        for k in range(self.epochs):
            span = k / self.epochs, (k + 1) / self.epochs
            last = k + 1 == self.epochs
            yield replace(self.biased(run, net), optimizer=optimizer, epochs=1, span=span, select=last, shared=None)
            learnt = run.outputs(net).argmax(1).cpu() == train.y
            odds = self.odds(run, net).cpu()
            seen.append(
                {
                    "average": percent(run.outputs(net, self.test).argmax(1).cpu() == self.test.y),
                    "learnt": [percent(learnt[train.y == c]) for c in range(len(run.data.classes))],
                    "drawn_above_mean": int((odds > odds.mean()).sum()),
                    "classes_drawn_whole": lost_classes(odds > odds.mean(), train.y),
                }
            )
            print(seen[-1], flush=True)
        First.seen = seen
        return net


def percent(right):
    return round(100 * right.double().mean().item(), 2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("data", choices=KINDS)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--q", type=float, nargs="+", default=[First.q])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    settings, network, recipe, shares = KINDS[given.data]
    rows = []
    for rho in shares:
        data = load_data(settings | {"rho": rho})
        First.test = data.test
        for q, seed in itertools.product(given.q, range(given.seeds)):
            first = First(epochs=given.epochs, q=q)
            result = fit(first, data, net=network, recipe=recipe, seed=seed, device=given.device, progress=False)
            rows.append({"rho": rho, "q": q, "seed": seed, "n": len(data.test), "epochs": First.seen})
            found = stamp(result.versions["device"]) | {"recipe": recipe, "rows": rows}
            put(given.out or Path(f"results/pgd_forms/first-epochs-{given.data}"), found)
