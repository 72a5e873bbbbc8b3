"""What tests of the benchmark share: a specification, rows made up for it, children that work on it."""

import multiprocessing
import os
from pathlib import Path

import pytest
import torch

import spurless.train.fit as engine
from spurless.bench.claim import claim
from spurless.core.errors import UserError
from tests.support.trials import run

SPEC = """
title = "A small table"
source = "Nobody 2024, table 0"
metric = "unbiased"
seeds = [0, 1, 2]
choices = ["the toy stands in for everything"]
[[block]]
label = "Toy"
data = {name = "toy", n = 100}
recipe = {epochs = 1, batch_size = 50}
over = {"data.rho" = [0.05, 0.2]}
[[block.row]]
label = "Vanilla"
method = "erm"
paper = {"0.05" = "60.94 ± 0.97", "0.20" = 70}
[[block.row]]
label = "LfF"
method = {name = "lff", q = 0.5}
recipe = {lr = 0.01}
[[block.row]]
label = "EnD"
missing = "it needs what is not here"
paper = {"0.05" = "50.0"}
"""


def free(folder):
    """Whether nobody holds the trial in this folder."""
    held = claim(folder)
    if held:
        held.release()
    return held is not None


def remember_classes(result, bundle, folder):
    return {"classes": len(bundle.classes), "weights": sum(p.numel() for p in result.classifier.parameters())}


def complain_after(result, bundle, folder):
    raise UserError("after it all")


def forked(target, *args):
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])  # imports for seconds: here, not in every child
    child = multiprocessing.get_context("fork").Process(target=target, args=args)
    child.start()
    return child


def do_trials(trials, out, log):
    """In a child: every training leaves a line."""
    torch.set_num_threads(1)
    fit = engine.fit

    def counted(**settings):
        with open(log, "a") as file:
            file.write(f"{settings['out'].name} {os.getpid()}\n")
        return fit(**settings)

    engine.fit = counted
    try:
        run(trials, out)
    except KeyboardInterrupt as stop:
        Path(log).with_suffix(".stopped").write_text(str(stop))
        os._exit(130)
    os._exit(0)


fork_is_fine = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def made_rows(spec, **values):
    """Rows as they would come back, with these scores for the seeds of each row at each ratio."""
    rows = []
    for line in spec.lines:
        for one, value in zip(line.trials, values.get(line.row, {}).get(line.grid["data.rho"], ()), strict=False):
            status = value if isinstance(value, str) else "done"
            row = {"key": one.key, "status": status, "method": one.method["name"], "data": "toy", "seed": one.seed}
            row |= {"labels": one.labels, "seconds": 2.0 + one.seed, "selection": "last", "labels_used": "none"}
            row |= {"machine": "a box", "date": "2024-01-01", "error": "why" if status != "done" else None}
            rows.append(row | {"scores": {"unbiased": value} if status == "done" else None})
    return rows
