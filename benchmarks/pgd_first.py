"""How soon PGD's first network learns more than the colour (its table 7, lower half): accuracy after each epoch.

    python -m benchmarks.pgd_first [--epochs 5]

Table 6's recipe, whose learning rate is constant for its first 40 epochs. Only to be looked at: nothing is picked.
"""

import spurless  # noqa: F401  # isort: skip

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from spurless.bench.one import stamp
from spurless.engine import fit
from spurless.methods.pgd import PGD
from spurless.registry import load_data

RECIPE = {"name": "pgd-cmnist", "schedule": "constant"}
SHARES = (0.005, 0.01, 0.05)


@dataclass(frozen=True)
class First(PGD):
    """PGD's first stage alone, an epoch at a time. `test` does not come from the run, which shows it to no method."""

    epochs: int = 5
    test: ClassVar = None
    seen: ClassVar = ()

    def stages(self, run):
        net, seen = run.net(), []
        optimizer = run.optimizer(net)
        for k in range(self.epochs):
            span = k / self.epochs, (k + 1) / self.epochs
            last = k + 1 == self.epochs
            yield replace(self.biased(run, net), optimizer=optimizer, epochs=1, span=span, select=last, shared=None)
            right = run.outputs(net, self.test).argmax(1).cpu() == self.test.y
            seen.append(round(100 * right.double().mean().item(), 2))
        First.seen = seen
        return net


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("results/pgd_forms/first-epochs.json"))
    given = parser.parse_args()
    rows = []
    for rho in SHARES:
        data = load_data({"name": "colored_mnist", "family": "pgd", "rho": rho})
        First.test = data.test
        result = fit(First(epochs=given.epochs), data, "simconv1", RECIPE, device=given.device, progress=False)
        rows.append({"rho": rho, "average": First.seen, "n": len(data.test), "seed": 0})
        print(rows[-1], flush=True)
    row = stamp(result.versions["device"]) | {"recipe": RECIPE, "q": First.q, "rows": rows}
    given.out.write_text(json.dumps(row, indent=1) + "\n")
