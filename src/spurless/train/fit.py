"""fit() trains a classifier by a method on a dataset; evaluate() scores any network."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from spurless.core.arguments import takes
from spurless.core.data import Bundle
from spurless.core.errors import UserError
from spurless.core.parallel import first
from spurless.core.recipe import Recipe
from spurless.metrics.scores import full_score
from spurless.nets.outputs import Inputs, outputs
from spurless.registry import load_data
from spurless.train.device import arithmetic, interruptible, pick_device
from spurless.train.forecast import Forecast
from spurless.train.observe import Watcher
from spurless.train.progress import bar
from spurless.train.result import Result
from spurless.train.saved import load_run
from spurless.train.session import PARTLY_COMPARED, RunArguments, Session
from spurless.train.tracking import Tracking, track_run

Precision = Literal["fp32", "tf32", "bf16"]
PATIENCE = 0.2  # seconds between two checks of whether another process has finished a shared stage


@takes(RunArguments)
def fit(asked: RunArguments) -> Result:
    """Train a classifier by a method on a dataset, select its weights, score it, and save it where `out` is given.

    The parameters after the first two are passed by name. Names, {"name": ..., setting: value} tables and objects are
    all accepted for the first four. A run that diverges comes back with the status "diverged", no scores, and the
    reason in `error`.

    Args:
        method: how to train: `"pgd"`, `{"name": "jtt", "lambda_up": 20}`, or a Method.
        data: what to train on: `"toy"`, `"folder:PATH"`, `{"name": "toy", "rho": 0.02}`, or a Bundle.
        net: the network, else the dataset's: a name, a table, a module, or a function that makes one.
        recipe: how to optimise, else the dataset's: a name, a table of settings, or a Recipe.
        seed: what all random numbers derive from.
        out: the run's folder. An unfinished run there is resumed, the result of a finished one is returned, and one
            with other settings is refused.
        device: `"cpu"`, `"cuda"` or `"cuda:1"`; else a GPU if there is one.
        root: where datasets are looked for, else SPURLESS_DATA.
        progress: False shows nothing, True a bar, None a bar on a terminal and log lines elsewhere; or an observer.
        track: `"tensorboard"`, `"wandb"` or `"mlflow"`: also send each epoch's numbers there. With a folder, project or
            experiment of your own behind a colon: `"wandb:my-project"`.
        checkpoint_seconds: the time between two checkpoints inside a stage.
        stages: a folder in which runs share the first stages that they have in common, so that one of them trains them.
        dynamics: what observes the steps, with bias labels that no method sees (spurless.train.dynamics).
        command: what the user typed, for the cheaper command that a long training is announced with.

    Of `"folder:PATH"`, on a CPU and with nothing else given, a small first look is trained (spurless.train.first_look).

    >>> fit("erm", {"name": "toy", "n": 200}, recipe={"epochs": 1}, device="cpu", progress=False).status
    'done'
    """
    session = Session(asked)
    watch = observer(session)
    if session.folder and session.folder.result():
        return finished_before(session)
    with arithmetic(session.recipe, session.device), interruptible(session.stop), watch:
        for progress in session:
            if progress.waiting:
                time.sleep(PATIENCE)
            watch(progress)
        if isinstance(watch, Tracking):
            watch.finish(session.result)
    return session.result


def finished_before(session: Session) -> Result:
    """The result that lies in the session's folder."""
    assert session.folder
    if session.dynamics:
        session.dynamics.start(session.folder.path)  # what was seen is read
    result = load_run(session.folder.path, session.spec, session.device, session.method)
    result.notes += [note for note in session.result.notes if note == PARTLY_COMPARED and note not in result.notes]
    result.bundle = session.data
    return result


def observer(session: Session) -> Watcher:
    """What shows and records the progress of a session."""
    progress = session.asked.progress if first() else False
    shown: Watcher = progress if callable(progress) else Forecast(session, bar(session.result.method, progress))
    track = session.asked.track
    return track_run(track, session.result, shown) if track and first() else shown


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
    torch_device = pick_device(device)
    recipe = Recipe(channels_last=False, precision=precision)
    net = net.to(torch_device)
    samples = data.splits[split]
    return full_score(data, samples, outputs(net, samples, Inputs(data, recipe, torch_device), recipe, torch_device))
