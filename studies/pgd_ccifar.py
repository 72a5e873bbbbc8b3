"""PGD on Corrupted CIFAR-10 with another augmentation for the network that mines than for the one that is kept.

    python -m studies.pgd_ccifar [--epochs 12] [--pairs none:none none:pgd_photos] [--device cpu]

studies/specs/pgd_ccifar.toml shows that the augmented network mines badly, and that the one which mines well then
trains on some 470 rows as they are. Here each stage has its own: 1 % conflicting, no weight decay, much shorter than
the table's 200 epochs a stage.
"""

import spurless  # noqa: F401  # isort: skip

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from spurless.bench.one import stamp
from spurless.bench.spec import read_spec
from spurless.methods.pgd import PGD
from spurless.registry import load_data
from spurless.train.fit import fit
from studies.rows import ROOT, put, rows

DATA = {"name": "corrupted_cifar10", "mapping": "disent", "rho": 0.01}
PAIRS = ("none:none", "none:crop_flip", "none:pgd_photos", "crop_flip:crop_flip", "pgd_photos:pgd_photos")


@dataclass(frozen=True)
class Mines(PGD):
    """PGD's first stage, and the odds by it."""

    found: ClassVar = {}

    def stages(self, run):
        net = run.net()
        yield self.biased(run, net)
        Mines.found = {"odds": self.odds(run, net), "weights": {k: v.clone() for k, v in net.state_dict().items()}}
        return net


@dataclass(frozen=True)
class Trains(PGD):
    """PGD's second stage, from what was found by the first."""

    def stages(self, run):
        net = run.net()
        net.load_state_dict(Mines.found["weights"])
        yield self.debiased(run, net, Mines.found["odds"].to(run.device))
        return net


def table():
    """Accuracy and mining of each row of studies/specs/pgd_ccifar.toml, in its order."""
    kept = {row["key"]: row for row in rows("pgd_ccifar")}
    lines = ["| | average | aligned | conflicting | rows above the mean | of them conflicting, % | recall, % |"]
    lines += ["| :-- |" + " --: |" * 6]
    for trial in read_spec(ROOT / "studies" / "specs" / "pgd_ccifar.toml").trials():
        row = kept[trial.key]
        scores = [f"{row['scores'][k]:.1f}" for k in ("average", "aligned", "conflicting")]
        if mined := row["mining"].get("mined"):
            scores += [f"{mined['n_mined']:,}", f"{mined['precision']:.0f}", f"{mined['recall']:.0f}"]
        lines.append(f"| {trial.labels['row']} | {' | '.join(scores + ['–'] * (6 - len(scores)))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=float, default=12)
    parser.add_argument("--pairs", nargs="+", default=PAIRS, help="mined with : trained with")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("results/pgd_forms/augmented-apart-ccifar"))
    given = parser.parse_args()
    data = load_data(DATA)
    recipe = {"name": "pgd-ccifar", "epochs": given.epochs, "step_every": given.epochs / 5, "weight_decay": 0.0}
    how = {"device": given.device, "progress": False}
    found_rows, last = [], None
    for pair in given.pairs:
        mined_with, trained_with = pair.split(":")
        if mined_with != last:
            first = fit(Mines(), data, net="resnet18", recipe=recipe | {"augment": mined_with}, **how)
            last = mined_with
        kept = fit(Trains(), data, net="resnet18", recipe=recipe | {"augment": trained_with}, **how)
        scores = {k: round(kept.scores[k], 2) for k in ("average", "aligned", "conflicting")}
        found_rows.append({"mined_with": mined_with, "trained_with": trained_with, "seed": 0} | scores)
        found_rows[-1] |= {"n": kept.scores["n"]["average"], "mining": first.mining["mined"]}
        print(found_rows[-1], flush=True)
        found = stamp(kept.versions["device"]) | {"data": DATA, "recipe": recipe, "rows": found_rows}
        put(given.out, found)
