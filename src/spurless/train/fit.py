"""fit(): train a classifier by a method on a data set, and say how good it is."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from spurless.core.data import Bundle
from spurless.core.errors import UserError
from spurless.core.method import Method
from spurless.core.parallel import first
from spurless.core.recipe import Recipe
from spurless.core.result import Result
from spurless.metrics.scores import full_score
from spurless.nets.outputs import Inputs, outputs
from spurless.registry import load_data
from spurless.train.device import arithmetic, interruptible, pick_device
from spurless.train.dynamics import Dynamics
from spurless.train.networks import NetSpec
from spurless.train.progress import Bar, Watcher
from spurless.train.saved import load_run
from spurless.train.session import PARTLY_COMPARED, Session

Precision = Literal["fp32", "tf32", "bf16"]
PATIENCE = 0.2  # seconds between two looks at whether another process has finished a stage that is shared


def fit(
    method: Method | str | Mapping[str, Any],
    data: Bundle | str | Mapping[str, Any],
    net: NetSpec | None = None,
    recipe: Recipe | str | Mapping[str, Any] | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    device: str | torch.device | None = None,
    root: str | Path | None = None,
    progress: bool | Watcher | None = None,
    checkpoint_seconds: float = 60,
    stages: str | Path | None = None,
    dynamics: Dynamics | Mapping[str, Any] | bool | None = None,
) -> Result:
    """Train, select, score, and save where `out` is given.

    Names, {"name": ..., setting: value} tables and objects are all accepted. In a folder with an unfinished run the
    run goes on; in a finished one its result is returned; in one made with other settings, it refuses.
    A run that diverges comes back with the status "diverged", no scores, and the reason in `error`.
    First stages that several runs have in common are trained once where they share a folder `stages`.
    `dynamics` watches the steps, with bias labels that no method sees (metrics.dynamics).
    """
    session = Session(method, data, net, recipe, seed, out, device, root, checkpoint_seconds, stages, dynamics)
    if session.folder and session.folder.result():
        if session.dynamics:
            session.dynamics.start(session.folder.path)  # what was seen is read
        found = load_run(session.folder.path, session.spec, session.device, session.method)
        found.notes += [note for note in session.result.notes if note == PARTLY_COMPARED and note not in found.notes]
        return found
    name = session.result.method
    if not first():
        progress = False
    watch: Watcher = progress if callable(progress) else Bar(name, shown=progress)
    with arithmetic(session.recipe, session.device), interruptible(session.stop), watch:
        for place_reached in session:
            if place_reached.waiting:
                time.sleep(PATIENCE)
            watch(place_reached)
    return session.result


def evaluate(
    net: nn.Module,
    data: Bundle | str | Mapping[str, Any],
    split: str = "test",
    device: str | torch.device | None = None,
    root: str | Path | None = None,
    precision: Precision = "fp32",
) -> dict[str, Any]:
    """The scores of any network that takes the data's inputs, by group, in percent."""
    data = load_data(data, root=root)
    if split not in data.splits:
        raise UserError(f"{data.name} has no split '{split}'; it has {', '.join(data.splits)}.")
    place = pick_device(device)
    recipe = Recipe(channels_last=False, precision=precision)
    net = net.to(place)
    rows = data.splits[split]
    return full_score(data, rows, outputs(net, rows, Inputs(data, recipe, place), recipe, place))
