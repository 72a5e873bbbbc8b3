"""What tests of sweeps share: rows and points made up, and a sweep that takes seconds."""

from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

from spurless.bench.points import points_of
from spurless.cli import sweep as cli_sweep
from spurless.sweep import run_sweep
from spurless.sweep.axes import Axis

LR = Axis("lr", "recipe.lr", (0.01, 0.1, 1.0))
SMALL = {"name": "toy", "n": 120}
QUICK = {"optimizer": "sgd", "momentum": 0.0, "lr": 0.05, "batch_size": 40, "epochs": 2}
NET = {"name": "mlp", "widths": [12]}


@pytest.fixture
def trained(monkeypatch):
    """What fit is called with, run by run."""
    from spurless.train import fit as engine

    calls, whole = [], engine.fit

    def counted(*args, **settings):
        calls.append(settings["recipe"] | {"seed": settings["seed"]})
        return whole(*args, **settings)

    monkeypatch.setattr(engine, "fit", counted)
    return calls


def row(seed=0, unbiased=60.0, train=100.0, val=90.0, status="done", **extra):
    """A row as run_trials returns it."""
    scores = {"unbiased": unbiased, "conflicting": unbiased - 20, "average": unbiased}
    measured = {"train_accuracy": train, "val_accuracy": val, "val_rows": 1000, "prunability": 0.5} | extra
    if status == "diverged":
        return {"status": status, "seed": seed, "error": "The loss is not finite.", "scores": None, "extra": {}}
    return {"status": status, "seed": seed, "scores": scores, "extra": measured, "settings": {"recipe": {}}}


def points(*columns, axis=LR):
    """The points of rows that are given value by value."""
    return points_of(replace(axis, values=tuple(axis.values[: len(columns)])), columns)


def sweep(folder, over="lr", values=(0.05, 0.5), **settings):
    given = {"net": NET, "recipe": QUICK, "seeds": 2, "device": "cpu", "workers": 1} | settings
    return run_sweep(SMALL, over, values, out=folder, **given)


def call(*words):
    app = typer.Typer()
    cli_sweep.add(app)
    return CliRunner().invoke(app, [*words], catch_exceptions=False)


FAST = ["--set", "data.n=100", "--set", "recipe.epochs=1", "--set", "recipe.optimizer=sgd", "--device", "cpu"]
