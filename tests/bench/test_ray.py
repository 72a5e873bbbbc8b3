"""Trials on a real Ray cluster: two nodes, of one processor each, on this machine."""

import json
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from spurless.bench import Trial, run_trials
from spurless.bench.claim import ROW
from spurless.bench.executors.ray import LEFT_OUT, _connected, do, own_place, run_on_ray, small_files, token_of
from spurless.core.errors import UserError
from spurless.train.fit import fit
from spurless.train.saved import load_run
from tests.support.runs import same_weights

ray = pytest.importorskip("ray", reason="needs ray (spurless[ray])")
pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for processes in /proc"),
]
HERE = str(Path(__file__).parents[2])
LATE = 200  # seconds after which something that should have happened has not, on a busy machine


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    place = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # short: the names of Ray's sockets lie below it
    changed = {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1", "PYTHONPATH": HERE}
    changed |= {"RAY_TMPDIR": place, "TMPDIR": place}  # so that nothing is left behind
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    small = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    nodes = None
    try:
        nodes = Cluster(initialize_head=True, head_node_args=small | {"include_dashboard": False})
        nodes.add_node(**small)
        yield nodes
    finally:
        if nodes:
            nodes.shutdown()
        shutil.rmtree(place, ignore_errors=True)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def trial(seed, epochs=2, **labels):
    recipe = {"epochs": epochs, "batch_size": 50}
    return Trial({"name": "toy", "n": 200}, {"name": "lff"}, None, recipe, seed, {k: str(v) for k, v in labels.items()})


def alone(trial):
    return fit(trial.method, trial.data, recipe=trial.recipe, seed=trial.seed, device="cpu", progress=False)


def meet(result, bundle, folder):
    """Called on the workers after each trial: wait until two are there at the same time, and say where."""
    (folder.parent / f"{result.seed} is here").touch()
    until = time.monotonic() + LATE
    while len(list(folder.parent.glob("* is here"))) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    return {"node": ray.get_runtime_context().get_node_id(), "rows": len(bundle.train)}


def processes(title):
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if title in path.read_bytes().decode(errors="replace"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def kill_once(folder, key, killed):
    """Kill the worker that trains this trial, once it is some epochs into it."""
    history, until = folder / "cells" / key / "history.jsonl", time.monotonic() + LATE
    while time.monotonic() < until:
        if history.exists() and len(history.read_text().splitlines()) > 3:
            for process in processes(f"spurless {key}"):
                os.kill(process, signal.SIGKILL)
                killed.append(process)
            if killed:
                return
        time.sleep(0.02)


def test_a_worker_is_killed_and_nothing_is_lost(cluster, tmp_path):
    """Through run_trials, as the command line does it: on a folder that the workers see."""
    long, short = trial(7, epochs=1500), [trial(seed, label=seed) for seed in range(4)]
    killed = []
    killer = threading.Thread(target=kill_once, args=(tmp_path, long.key, killed))
    killer.start()
    rows = run_trials([long, *short], tmp_path, device="cpu", on="ray", address=cluster.address)
    killer.join()
    assert killed, "no worker was killed: the test shows nothing"
    assert [row["status"] for row in rows] == ["done"] * 5
    assert [row["seed"] for row in rows] == [7, 0, 1, 2, 3] and rows[2]["labels"] == {"label": "1"}
    assert rows[0]["resumed"] and not rows[1]["resumed"]  # it was given to a worker again, which went on
    assert same_weights(load_run(tmp_path / long.folder).classifier, alone(long).classifier)
    assert not list(tmp_path.glob(".seen-*")) and not ray.is_initialized()
    # What is done is not done again: nobody is even asked.
    assert run_trials([long, *short], tmp_path, device="cpu", on="ray", address="127.0.0.1:1") == rows


# Before this process has a connection


def test_a_connection_leaves_the_signals_to_the_command_line():
    """Ray takes SIGTERM for itself, and would end without letting the trials save anything."""

    class Fake:
        exceptions = ray.exceptions
        is_initialized = staticmethod(lambda: False)
        shutdown = staticmethod(lambda: None)

        @staticmethod
        def init(**_):
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(15))

    before = signal.getsignal(signal.SIGTERM)
    with _connected(Fake, None):
        assert signal.getsignal(signal.SIGTERM) == before


def test_an_address_where_nobody_answers_is_said_at_once(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UserError, match=rf"No Ray cluster was found at {address} \("):
            list(run_on_ray([trial(0)], tmp_path, address=address))
    with pytest.raises(UserError, match="--address 'nonsense' should be HOST:PORT"):
        list(run_on_ray([trial(0)], tmp_path, address="nonsense"))


def test_without_a_cluster_it_says_how_to_start_one(tmp_path, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("ray.init", lambda **_: (_ for _ in ()).throw(ConnectionError("nothing there")))
    with pytest.raises(UserError, match=r"No Ray cluster was found \(nothing there\)\. Start one with"):
        list(run_on_ray([trial(0)], tmp_path))


@pytest.fixture(scope="module")
def connected(cluster):
    """A connection of this process, which is then used and not closed: the workers stay, with torch imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    yield
    ray.shutdown()


def test_two_nodes_work_at_the_same_time(connected, tmp_path):
    rows = run_trials([trial(0), trial(1)], tmp_path, device="cpu", on="ray", after="tests.bench.test_ray:meet")
    assert len({row["extra"]["node"] for row in rows}) == 2 and rows[0]["extra"]["rows"] == 200


def test_files_are_sent_back_where_the_folder_is_not_seen(connected, tmp_path):
    bad = Trial({"name": "csv:nowhere.csv"}, {"name": "erm"})
    trials = [trial(0), bad]
    found = {c.key: row for c, row in run_on_ray(trials, tmp_path, device="cpu", send_back=True, workers=1)}
    row, failed = found[trials[0].key], found[bad.key]
    folder = tmp_path / trials[0].folder
    assert row["status"] == "done" and json.loads((folder / ROW).read_text()) == row
    run = load_run(folder)
    assert same_weights(run.classifier, alone(trials[0]).classifier) and len(run.history) == 2
    assert json.loads((folder / "result.json").read_text())["folder"] == str(folder)
    assert failed["status"] == "failed" and "nowhere.csv" in failed["error"]
    assert json.loads((tmp_path / bad.folder / ROW).read_text()) == failed  # it has no other file
    assert not (tmp_path / "stages").exists()  # nothing was written here by a worker
    assert ray.is_initialized()


def test_ctrl_c_saves_the_place_of_what_is_running(connected, tmp_path):
    long = trial(7, epochs=30_000)
    rows = run_on_ray([long, trial(0)], tmp_path, device="cpu")
    assert next(rows)[0].seed == 0
    folder, until = tmp_path / long.folder, time.monotonic() + LATE
    while not (folder / "history.jsonl").exists() and time.monotonic() < until:
        time.sleep(0.02)
    rows.close()  # as an exception in the loop over it would
    assert (folder / "stage-000-part.safetensors").exists() and not (folder / ROW).exists()


def test_a_worker_that_always_dies_is_a_row_that_says_so(connected, tmp_path, monkeypatch):
    monkeypatch.setattr("spurless.bench.executors.ray.RETRIES", 1)
    trials = [replace(trial(seed), after="tests.bench.test_ray:die") for seed in (0, 1)]
    found = {c.seed: row for c, row in run_on_ray(trials, tmp_path, device="cpu")}
    assert found[1]["status"] == "done"
    assert found[0]["status"] == "failed" and found[0]["error"].startswith("No worker could do it (2 tries)")
    assert json.loads((tmp_path / trial(0).folder / ROW).read_text())["status"] == "failed"


def die(result, bundle, folder):
    if result.seed == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return {}


def test_files_too_large_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr("spurless.bench.executors.ray.LARGEST", 10)
    (tmp_path / "model.safetensors").write_bytes(b"x" * 11)
    (tmp_path / "settings.toml").write_bytes(b"seed = 1")
    (tmp_path / "stage-000.safetensors").write_bytes(b"x")
    row = {"status": "done"}
    assert small_files(tmp_path, row) == {"settings.toml": b"seed = 1"}
    assert row["left_out"] == ["model.safetensors"]


# What a worker keeps that does not see the folder


@pytest.fixture
def trained(monkeypatch):
    """The seeds that are really asked to be trained, as they come."""
    seeds = []

    def noted(**arguments):
        seeds.append(arguments["seed"])
        return fit(**arguments)

    monkeypatch.setattr("spurless.train.fit.fit", noted)
    return seeds


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """A worker of this process, with a place of its own: called with a trial and the benchmark's folder."""
    (tmp_path / "worker").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "worker"))

    def work(one, out, mark=None):
        where = {"out": str(out), "token": token_of(out), "mark": mark, "device": "cpu", "root": None}
        return do(where | {"trial": one.whole(), "key": one.key, "compile": False})

    return work


@pytest.mark.parametrize(("recipe", "status"), [({}, "done"), ({"optimizer": "sgd", "lr": 1e38}, "diverged")])
def test_a_finished_trial_that_comes_again_is_trained_again(worker, trained, tmp_path, recipe, status):
    """Its folder was removed where the benchmark is; a copy on the worker must not take its place."""
    one = replace(trial(3), recipe=trial(3).recipe | recipe)
    for times in (1, 2):
        row, files = worker(one, tmp_path / "out")
        assert row["status"] == status and "result.json" in files and not row["resumed"]
        assert trained == [3] * times
        assert not (own_place(str(tmp_path / "out"), token_of(tmp_path / "out")) / one.folder).exists()


def test_a_folder_that_the_worker_sees_is_left_as_it_is(worker, trained, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mark").touch()
    row, files = worker(trial(0), tmp_path / "out", "mark")
    assert files is None and worker(trial(0), tmp_path / "out", "mark") == (row, None)
    assert trained == [0] and (tmp_path / "out" / trial(0).folder / "model.safetensors").exists()


def test_what_is_not_finished_stays_with_the_worker_for_the_same_folder_only(worker, tmp_path):
    one, out = replace(trial(0), after="tests.bench.test_ray:stumble"), tmp_path / "out"
    assert [worker(one, out)[0]["resumed"] for _ in range(2)] == [False, True]
    shutil.rmtree(out)
    row, _ = worker(one, out)
    assert row["status"] == "failed" and not row["resumed"]  # a new folder, if by the same name


def stumble(result, bundle, folder):
    raise RuntimeError("not this time")


def test_files_too_large_to_be_sent_stay_where_no_run_looks(worker, tmp_path, monkeypatch):
    monkeypatch.setattr("spurless.bench.executors.ray.LARGEST", 10)
    out = tmp_path / "out"
    for _ in range(2):
        row, files = worker(trial(0), out)
        assert row["status"] == "done" and not row["resumed"] and not files
    kept = own_place(str(out), token_of(out)) / LEFT_OUT / trial(0).key
    assert sorted(path.name for path in kept.iterdir()) == row["left_out"] and "model.safetensors" in row["left_out"]
