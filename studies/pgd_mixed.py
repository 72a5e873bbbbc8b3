"""Which part of PGD's released form keeps it from harm on data without a bias (its table 12): GCE, or what is scored?

    python -m studies.pgd_mixed

GCE of one form and odds of the other, a fifth of the table's length, as studies/specs/pgd_forms.toml has the forms.
"""

import spurless  # noqa: F401  # isort: skip

import argparse
from dataclasses import dataclass
from pathlib import Path

from spurless.bench.one import stamp
from spurless.methods.pgd import PGD
from spurless.registry import load_data
from spurless.train.fit import fit
from studies.rows import put

DATA = {"name": "colored_mnist", "family": "pgd", "rho": 0.9}
RECIPE = {"name": "pgd-cmnist", "epochs": 20, "step_every": 8}


@dataclass(frozen=True)
class Mixed(PGD):
    """GCE as `form` has it; the odds are those of the other form, by the L2 norm."""

    def odds(self, run, net):
        other = "paper" if self.form == "code" else "code"
        return PGD(form=other, norm="l2").odds(run, net)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--forms", nargs="+", default=["paper", "code"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("results/pgd_forms"))
    given = parser.parse_args()
    data = load_data(DATA)
    for form in given.forms:
        result = fit(Mixed(form=form), data, net="simconv1", recipe=RECIPE, device=given.device, progress=False)
        row = stamp(result.versions["device"]) | {"data": DATA, "recipe": RECIPE, "gce": form, "seed": 0}
        row |= {"odds": "one augmented view" if form == "paper" else "as it is", "mining": result.mining}
        row |= {"average": result.scores["average"], "n": result.scores["n"]["average"]}
        put(given.out / f"mixed-gce-{form}", row)
        print(form, row["average"], flush=True)
