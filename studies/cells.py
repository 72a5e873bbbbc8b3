"""Measure cells (method x data x seeds) and write one small JSON file for each: the rows behind the documentation.

    python -m studies.cells FILE.json --out results/NAME --device cuda --workers 4

FILE.json holds a list of {"name": ..., "method": {...}, "data": {...}, "net": ..., "recipe": {...}, "seeds": [0, 1]}.
With "backbone": {...} the inputs are the features of that network, which stays as it is.
Cells that are there already are left alone. Workers are processes; on one GPU they share it.
"""

import spurless  # noqa: F401  # isort: skip  (first: it sets how OpenMP waits before torch is imported)

import argparse
import functools
import json
import multiprocessing
import time
from pathlib import Path

KEPT = ("average", "unbiased", "aligned", "conflicting", "worst_group", "average_train_weighted", "intervals", "n")
SIZES = ("min_size", "small_groups", "groups_total", "missing_classes")  # of rows that have them


@functools.cache  # by text, because a worker meets the same data again and again
def embedded(data, backbone, root):
    from spurless.compress.embedding import embed

    return embed(json.loads(data), json.loads(backbone), device="cpu", root=root)


def measure(job):
    cell, seed, out, device, root = job
    import torch

    from spurless.bench.one import stamp
    from spurless.train.fit import fit
    from studies.rows import holds, put

    path = Path(out) / f"{cell['name']}-seed{seed}"
    if holds(path):
        return f"{path.name}: there already"
    if device == "cpu":
        torch.set_num_threads(1)
    data = cell["data"]
    if "backbone" in cell:
        data = embedded(json.dumps(data), json.dumps(cell["backbone"]), root)
    started = time.time()
    result = fit(
        cell["method"],
        data,
        net=cell.get("net"),
        recipe=cell.get("recipe"),
        seed=seed,
        device=device,
        root=root,
        progress=False,
    )
    row = result.row()
    row["scores"] = {k: row["scores"].get(k) for k in (*KEPT, *SIZES)} if row["scores"] else None
    row["history"] = row["history"][-1:]
    row |= stamp(row["versions"]["device"])
    row |= {"cell": cell["name"], "wall_seconds": round(time.time() - started, 1)}
    put(path, row)
    shown = {k: round(row["scores"][k], 2) for k in ("unbiased", "worst_group") if row["scores"] and row["scores"][k]}
    return (
        f"{path.name}: {result.status} {shown} mining {row['mining']} {row['seconds']} s, wall {row['wall_seconds']} s"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("cells", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--data-root")
    given = parser.parse_args()
    cells = json.loads(given.cells.read_text())
    jobs = [(c, s, str(given.out), given.device, given.data_root) for c in cells for s in c["seeds"]]
    jobs.sort(key=lambda job: job[1])  # all cells of the first seed first: a run cut short still compares
    context = multiprocessing.get_context("spawn")
    with context.Pool(given.workers, maxtasksperchild=None) as pool:
        for line in pool.imap_unordered(measure, jobs):
            print(line, flush=True)
