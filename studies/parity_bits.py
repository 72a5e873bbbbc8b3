"""Which numbers of bits have the study's accuracies on parity, 55.3 at the lowest rate and 85.7 at the highest?

    python -m studies.parity_bits          # rows: results/parity_bits

Chosen by accuracy alone: what else the study measures is not looked at. One seed, up to 100 % training accuracy.
"""

import spurless  # noqa: F401  # isort: skip

import itertools
from pathlib import Path

from spurless.bench.one import stamp
from spurless.registry import load_data
from spurless.train.fit import fit
from studies.rows import RESULTS, holds, put

CHOICES = (  # core, spurious and noise bits; hidden layers
    (5, 2, 13, 3),
    (6, 2, 14, 3),
    (5, 2, 15, 3),
    (6, 3, 14, 3),  # diverges at 0.75
    (5, 3, 14, 3),
    (6, 3, 12, 3),
    (5, 2, 14, 2),
    (6, 2, 12, 2),
    (5, 2, 12, 2),
)


def measure(choice: tuple[int, int, int, int], lr: float, path: Path) -> None:
    core, spurious, noise, depth = choice
    data = {"name": "parity", "core": core, "spurious": spurious, "noise": noise}
    net, recipe = {"name": "fcn", "width": 200, "depth": depth}, {"lr": lr}
    result = fit("erm", load_data(data), net=net, recipe=recipe, seed=0, device="cpu", progress=False)
    row = stamp(result.versions["device"]) | {"data": data, "net": net, "recipe": recipe, "seed": 0}
    row |= {"epochs": len(result.history), "n": 10_000}
    put(path, row | {"unbiased": None if result.scores is None else result.scores["unbiased"]})


if __name__ == "__main__":
    for (core, spurious, noise, depth), lr in itertools.product(CHOICES, (0.01, 0.75)):
        path = RESULTS / "parity_bits" / f"core{core}-spurious{spurious}-noise{noise}-depth{depth}-lr{lr:g}"
        if not holds(path):
            measure((core, spurious, noise, depth), lr, path)
