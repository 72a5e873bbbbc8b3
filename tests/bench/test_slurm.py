"""Trials through submitit, whose local executor runs each task as a process of its own. There is no Slurm here."""

import gc
import json
import os
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from spurless.bench import Trial
from spurless.bench.claim import ROW
from spurless.bench.executors.slurm import Share, _from, run_on_slurm
from spurless.bench.run import run_trials
from spurless.core.errors import UserError
from spurless.train.fit import fit
from spurless.train.saved import load_run
from tests.support.runs import same_weights

submitit = pytest.importorskip("submitit", reason="needs submitit (spurless[slurm])")
HERE = str(Path(__file__).parents[2])


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", HERE)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr("spurless.bench.executors.slurm.LOOK", 0.1)
    yield
    with warnings.catch_warnings():  # submitit does not wait for its process that looks after a task
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def trial(seed, **data):
    return Trial({"name": "toy", "n": 200} | data, {"name": "lff"}, None, {"epochs": 2, "batch_size": 50}, seed)


def die(result, bundle, folder):
    """Called in the tasks after each trial."""
    if result.seed == 1:
        os._exit(7)
    return {"process": os.getpid()}


def test_trials_in_tasks_and_one_that_cannot_be_done(tmp_path):
    trials = [trial(0), trial(1), trial(2), Trial({"name": "csv:nowhere.csv"}, {"name": "erm"})]
    found = {
        c.key: row
        for c, row in run_on_slurm(
            trials, tmp_path, run_trials, device="cpu", workers=2, cpus_per_task=1, cluster="local"
        )
    }
    assert [found[c.key]["status"] for c in trials] == ["done", "done", "done", "failed"]
    assert "nowhere.csv" in found[trials[3].key]["error"]
    alone = fit("lff", trials[1].data, recipe=trials[1].recipe, seed=1, device="cpu", progress=False)
    assert same_weights(load_run(tmp_path / trials[1].folder).classifier, alone.classifier)
    assert list((tmp_path / "slurm").glob("*.out"))  # what the tasks said lies there


def test_a_task_that_dies_loses_no_finished_trial(tmp_path, monkeypatch):
    monkeypatch.setattr("spurless.bench.executors.slurm.LATE", 0.5)
    trials = [replace(trial(seed), after="tests.bench.test_slurm:die") for seed in (0, 1)]
    how = {"device": "cpu", "workers": 1, "cpus_per_task": 1, "cluster": "local"}
    found = {c.seed: row for c, row in run_on_slurm(trials, tmp_path, run_trials, **how)}
    assert found[0]["status"] == "done" and found[0]["extra"]["process"] != os.getpid()
    assert found[1]["status"] == "failed" and found[1]["error"].startswith("All Slurm tasks ended without it.")
    assert json.loads((tmp_path / trials[1].folder / ROW).read_text())["status"] == "failed"


def test_a_task_that_slurm_takes_away_goes_on_in_a_new_one(tmp_path):
    share = Share(run_trials, (trial(0), trial(1)), str(tmp_path), {"device": "cpu"})
    again = share.checkpoint()
    assert isinstance(again, submitit.helpers.DelayedSubmission) and again.function is share


def test_tasks_begin_at_different_places():
    trials = [trial(seed) for seed in range(4)]
    orders = [[c.seed for c in _from(trials, k / 3)] for k in range(3)]
    assert orders == [[0, 1, 2, 3], [1, 2, 3, 0], [3, 0, 1, 2]]


def test_without_slurm_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="There is no Slurm here"):
        list(run_on_slurm([trial(0)], tmp_path, run_trials))
