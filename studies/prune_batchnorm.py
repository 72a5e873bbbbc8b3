"""What it is worth to take BatchNorm's statistics anew after pruning, without training.

    python -m studies.prune_batchnorm [--out results/prune_batchnorm]

A `conv3`, trained by PGD on colored_digits with all defaults, one thread; pruned to several sizes both ways.
"""

import spurless  # noqa: F401  # isort: skip

import argparse
import tempfile
from pathlib import Path

import torch

from spurless.bench.one import stamp
from spurless.compress.prune import prune
from spurless.compress.prune_trained import Pruning
from spurless.train.fit import fit
from studies.rows import put

KEEP = (0.7, 0.5, 0.3, 0.1)


def measured(seed):
    """A row for each size: the unbiased accuracy with the statistics of the whole network, and with new ones."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        fit("pgd", "colored_digits", net="conv3", seed=seed, out=run, device="cpu", progress=False)
        for structured in (False, True):
            for how in ("kept", "recomputed"):
                out = Path(folder) / f"{structured}-{how}"
                curve = prune(run, KEEP, Pruning(structured=structured, batchnorm=how), out=out, seed=0, device="cpu")
                for row in curve["rows"]:
                    cell = found.setdefault((structured, row["keep"]), {"weights_percent": row["weights_percent"]})
                    cell[how] = row["scores"]["unbiased"]
    return [{"seed": seed, "structured": s, "keep": keep, **cell} for (s, keep), cell in found.items()]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("results/prune_batchnorm"))
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = [row for seed in range(given.seeds) for row in measured(seed)]
    whole = stamp() | {"data": "colored_digits", "method": "pgd", "net": "conv3", "n": 1000, "threads": 1, "rows": rows}
    put(given.out / "rows", whole)
    for row in rows:
        print(row)
