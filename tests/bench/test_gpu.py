"""Trials that share a GPU: lanes, processes under MPS, and what is compiled."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import spurless.bench.one as one_module
import spurless.bench.run as run_module
from spurless.bench import Trial
from spurless.bench.claim import claim, finished_row
from spurless.bench.executors import here
from spurless.bench.executors import lanes as lanes_module
from spurless.bench.executors.base import Event
from spurless.bench.executors.lanes import in_lanes
from spurless.bench.one import Attempt, data_of
from spurless.bench.spec import make_spec
from spurless.core.errors import UserError
from spurless.train.lanes import Job
from tests.support.benches import free
from tests.support.trials import QUICK, TOY, run, trial

pytestmark = pytest.mark.usefixtures("one_core")


def test_lanes_do_the_same_trials(tmp_path):
    trials = [trial(), trial(seed=1), trial(precision="bf16"), Trial(TOY, {"name": "group_dro"}, None, QUICK)]
    missing = Trial({"name": "celeba"}, {"name": "erm"}, None, QUICK)
    held = claim(tmp_path / "lanes" / trials[1].folder)
    rows, told = {}, []

    def tell(event):
        told.append((event.kind, event.trial.key, len(rows)))
        if event.kind == "busy":
            held.release()

    for event in in_lanes([*trials, missing], tmp_path / "lanes", "cpu", tmp_path, tell):
        assert event.kind == "row"
        rows[event.trial.key] = event.row
    assert told[:2] == [
        ("start", trials[0].key, 0),
        ("busy", trials[1].key, 1),
    ]  # told at once, not when something ends
    assert rows[missing.key]["status"] == "failed"
    for one, row in zip(trials, run(trials, tmp_path / "alone"), strict=True):
        assert rows[one.key]["scores"] == row["scores"], one
        assert finished_row(tmp_path / "lanes" / one.folder) == rows[one.key]
    assert all(free(tmp_path / "lanes" / one.folder) for one in trials)  # nothing is held any more
    again = list(in_lanes(trials, tmp_path / "lanes", "cpu", tmp_path))  # as if someone had done them since
    assert [e.kind for e in again] == ["row"] * 4 and all(e.row == rows[e.trial.key] for e in again)


def test_trials_that_are_left_when_lanes_lose_their_gpu_are_done_by_new_processes(tmp_path, monkeypatch):
    broken = Trial(TOY, {"name": "erm"}, {"name": "resnet18"}, QUICK)  # pictures only
    others = [trial(), trial(seed=1), trial(precision="bf16")]
    usual, processes = lanes_module.in_processes, []

    def in_processes(trials, *how):
        processes.append([one.key for one in trials])
        return usual(trials, *how)

    monkeypatch.setattr(lanes_module, "lost_its_gpu", lambda: True)
    monkeypatch.setattr(lanes_module, "in_processes", in_processes)
    rows = {e.trial.key: e.row for e in in_lanes([broken, *others], tmp_path, "cpu", None) if e.kind == "row"}
    assert processes == [[one.key for one in (broken, *others)]]  # it alone fails, wherever the error was noticed
    assert rows[broken.key]["status"] == "failed"
    assert [rows[one.key]["status"] for one in others] == ["done"] * 3
    assert all(free(tmp_path / one.folder) for one in (broken, *others))


def test_lanes_do_not_wait_for_what_someone_else_is_doing(tmp_path, monkeypatch):
    """Held trials come first and in two arithmetics: the last one must be done all the same, and not in a hot loop."""
    first, second, free_one = trial(), trial(precision="tf32"), trial(precision="bf16")
    held = [claim(tmp_path / one.folder) for one in (first, second)]
    naps = []
    monkeypatch.setattr(time, "sleep", naps.append)
    told, done = [], []

    def tell(event):
        told.append((event.kind, event.trial))
        assert len(told) < 50, "the free trial is never begun"

    for event in in_lanes([first, second, free_one], tmp_path, "cpu", None, tell):
        done.append(event.trial)
        if held:
            assert event.trial is free_one
            while held:
                held.pop().release()
    assert {one.key for one in done} == {one.key for one in (first, second, free_one)}
    assert len([nap for nap in naps if nap == lanes_module.PATIENCE]) == len([1 for kind, _ in told if kind == "busy"])


def test_a_gpu_has_processes_for_many_trials_if_they_can_share_it_and_lanes_otherwise(tmp_path, monkeypatch):
    used = []

    def pool(trials, workers, threads, settings, environment):
        used.append((workers, settings["device"], environment))
        return iter([("row", one, {"status": "done"}) for one in trials])

    def lanes(trials, out, device, *_):
        used.append(("lanes", device))
        return iter([Event("row", one, {"status": "done"}) for one in trials])

    @contextmanager
    def shared_gpu(index):
        yield mps

    monkeypatch.setattr("spurless.train.device.pick_device", lambda device: torch.device("cuda", 0))
    monkeypatch.setattr("spurless.bench.executors.processes.Pool", pool)
    monkeypatch.setattr("spurless.bench.executors.mps.shared_gpu", shared_gpu)
    monkeypatch.setattr("spurless.bench.executors.mps.processes_on", lambda gpu, trials: 8 if trials >= 8 else 1)
    monkeypatch.setattr(here, "in_lanes", lanes)
    for mps in ({"A": "b"}, None):
        for workers in (None, 1, 3):
            for count in (2, 9):
                out = tmp_path / f"{mps is None}-{workers}-{count}"
                run_module.run_trials([trial(seed=s) for s in range(count)], out, workers=workers)
    in_lanes = ("lanes", "cuda:0")
    asked = [in_lanes, in_lanes, (2, "cuda:0", {"A": "b"}), (3, "cuda:0", {"A": "b"})]
    without = [in_lanes, in_lanes, (2, "cuda:0", {}), (3, "cuda:0", {})]  # as the user wants it, if it helps or not
    assert used == [in_lanes, (8, "cuda:0", {"A": "b"}), *asked, in_lanes, in_lanes, *without]


@pytest.mark.parametrize(("able", "asked"), [(True, "gpu"), (False, "gpu"), (True, True), (False, True), (True, False)])
def test_a_gpu_compiles_what_is_long_if_it_can_and_a_cpu_does_not(tmp_path, monkeypatch, able, asked):
    seen = {}

    def lanes(trials, *_):
        seen.update({one.seed: one.recipe.get("compile") for one in trials})
        return iter([Event("row", one, {"status": "done"}) for one in trials])

    trials = [trial(seed=0), replace(trial(seed=1), dynamics=True), trial(seed=2, compile=False)]
    monkeypatch.setattr(one_module, "can_compile", lambda: able)
    monkeypatch.setattr(here, "in_lanes", lanes)
    with monkeypatch.context() as patched:
        patched.setattr("spurless.train.device.pick_device", lambda device: torch.device("cuda", 0))
        rows = run_module.run_trials(trials, tmp_path / "gpu", workers=1, compile=asked)
    assert len(rows) == 3
    hint = {0: True, 1: None, 2: False} if able else {0: None, 1: None, 2: False}  # what is watched cannot be compiled
    assert seen == (hint if asked == "gpu" else {0: True, 1: True, 2: True} if asked else {0: None, 1: None, 2: False})
    if asked == "gpu":
        (row,) = run(trials[:1], tmp_path / "cpu", compile=asked)
        assert row["settings"]["recipe"]["compile"] is False


@pytest.mark.parametrize("place", ["cuda", "cpu"])
def test_workers_elsewhere_compile_what_is_long_where_they_have_a_gpu(tmp_path, monkeypatch, place):
    from spurless.bench.executors import ray as on_ray
    from spurless.bench.executors import slurm as on_slurm

    seen, told = [], {}
    monkeypatch.setattr(one_module, "can_compile", lambda: True)
    monkeypatch.setattr("spurless.train.device.pick_device", lambda device: torch.device(place))
    monkeypatch.setattr(on_ray, "run_one", lambda one, *_: seen.append(one) or {"status": "failed"})
    (tmp_path / "mark").touch()
    for asked in (True, False):
        job = {"trial": trial().whole(), "key": trial().key, "out": str(tmp_path), "mark": "mark", "compile": asked}
        on_ray.do(job | {"device": None, "root": None})
    assert [one.recipe.get("compile") for one in seen] == [True if place == "cuda" else None, None]
    assert {one.key for one in seen} == {trial().key}  # how it is computed makes no other trial

    class Executor:
        def __init__(self, **_): ...
        def update_parameters(self, **_): ...
        def submit_array(self, shares):
            told.update(shares[0].settings)
            raise KeyboardInterrupt

    class Submitit:
        AutoExecutor = Executor

    monkeypatch.setattr(on_slurm, "_submitit", lambda cluster: Submitit)
    with pytest.raises(KeyboardInterrupt):
        run_module.run_trials([trial()], tmp_path, on="slurm", compile="gpu")
    assert told["compile"] == "gpu"


def test_compiling_takes_triton_and_a_compiler(monkeypatch, tmp_path):
    monkeypatch.setattr(one_module, "find_spec", lambda name: name == "triton" or None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert not one_module.can_compile()
    (tmp_path / "my-cc").touch(0o755)
    monkeypatch.setenv("CC", "my-cc")
    assert one_module.can_compile()
    monkeypatch.setattr(one_module, "find_spec", lambda name: None)
    assert not one_module.can_compile()


@pytest.mark.parametrize(("words", "expected"), [([], "gpu"), (["--compile"], True), (["--no-compile"], False)])
def test_a_specification_says_that_its_trials_are_long(tmp_path, monkeypatch, app, words, expected):
    asked = []
    monkeypatch.setattr("spurless.bench.run_trials", lambda trials, out, **how: asked.append(how["compile"]) or [])
    for top in ("compile = true\n", ""):
        (tmp_path / "s.toml").write_text(top + '[[block]]\ndata = "toy"\nmethods = ["erm"]\n')
        CliRunner().invoke(app, ["bench", str(tmp_path / "s.toml"), "--out", str(tmp_path / "out"), *words])
    assert asked == [expected, expected if words else False]
    with pytest.raises(UserError, match="compile must be true or false"):
        make_spec({"compile": "yes", "block": [{"data": "toy", "methods": ["erm"]}]})


CONTROLS = """#!/bin/sh
read -r words
echo "$1 $words $CUDA_MPS_PIPE_DIRECTORY" >> {log}
case "$words" in get_server_list) {running};; esac
"""


@pytest.fixture
def controls(tmp_path, monkeypatch):
    """The program that controls MPS, played by a script that notes what it is told, and says if one is running."""
    from spurless.bench.executors import mps

    def make(running: bool, reached: bool = True):
        path = tmp_path / mps.CONTROL
        path.write_text(CONTROLS.format(log=tmp_path / "log", running="exit 0" if running else "exit 1"))
        path.chmod(0o755)
        monkeypatch.setattr(mps, "PROBE", "print(1)" if reached else "import sys; sys.exit(1)")
        return lambda: (tmp_path / "log").read_text().splitlines()

    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    return make


@pytest.mark.parametrize("reached", [True, False])
def test_processes_on_a_gpu_get_an_mps_of_their_own(controls, monkeypatch, reached):
    from spurless.bench.executors import mps

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    told = controls(running=False, reached=reached)
    with mps.shared_gpu() as found:
        first = told()
    place = first[1].split()[-1]
    assert first == [" get_server_list ", f"-d  {place}"]
    assert told()[2:] == [f" quit {place}"] and not Path(place).exists()
    if not reached:
        assert found is None  # a process could not reach the GPU behind it: nobody is sent there
    else:
        assert found["CUDA_MPS_PIPE_DIRECTORY"] == place
        behind = mps.changed(found)
        assert "CUDA_VISIBLE_DEVICES" not in behind and behind["PATH"] == os.environ["PATH"]
    with pytest.raises(KeyboardInterrupt), mps.shared_gpu():
        raise KeyboardInterrupt
    assert told()[-1].startswith(" quit ")


def test_an_mps_that_is_running_is_used_and_left_running(controls, tmp_path, monkeypatch):
    from spurless.bench.executors import mps

    told = controls(running=True)
    with mps.shared_gpu() as found:
        assert found == {}
    controls(running=True, reached=False)  # it is at fault, or someone else's
    with mps.shared_gpu() as found:
        assert found is None
    assert [line.split() for line in told()] == [["get_server_list"]] * 2
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with mps.shared_gpu() as found:
        assert found is None


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "SIGHUP"])
def test_an_mps_of_ones_own_ends_with_the_process_however_that_is(controls, how):
    from spurless.bench.executors import mps

    told = controls(running=False)
    command = f"""
import os, signal
from spurless.bench.executors import mps
mps.PROBE = {mps.PROBE!r}
if "{how}" != "SIGKILL":
    signal.signal(signal.{how}, signal.SIG_DFL)  # tests under nohup hand on that SIGHUP is ignored
with mps.shared_gpu() as found:
    assert found
    os.kill(os.getpid(), signal.{how})
    signal.pause()
"""
    done = subprocess.run([sys.executable, "-c", command], timeout=60)
    assert done.returncode == -getattr(signal, how)
    place = told()[1].split()[-1]
    for _ in range(200):
        if len(told()) == 3 and not Path(place).exists():
            break
        time.sleep(0.05)
    assert told()[2:] == [f" quit {place}"] and not Path(place).exists()


def test_a_process_has_the_environment_that_its_pool_was_given(monkeypatch):
    import spurless.bench.executors.processes as pool_module

    monkeypatch.setenv("GONE", "1")
    monkeypatch.setenv("EMPTY", "")  # CUDA_VISIBLE_DEVICES= hides all GPUs, from processes as well
    tells = "import json, os; input(); print(json.dumps([os.environ.get(n) for n in ('NEW', 'GONE', 'EMPTY')]))"
    monkeypatch.setattr(pool_module, "COMMAND", [sys.executable, "-c", tells])
    worker = pool_module.Worker({"threads": 1}, {"NEW": "x", "GONE": ""})
    assert worker.ask({}) == ["x", None, ""]
    worker.hang_up()
    worker.process.wait()
    worker.process.stdout.close()
    worker.log.close()


@pytest.mark.parametrize(
    ("trials", "free", "cores", "expected"),
    [
        *[(45, 139, 16, 8), (16, 139, 16, 8), (15, 139, 16, 8), (9, 139, 16, 5), (8, 139, 16, 4), (7, 139, 16, 1)],
        *[(45, 80, 16, 5), (45, 60, 16, 1), (45, 139, 8, 4), (45, 139, 4, 1)],
    ],
)
def test_how_many_processes_share_a_gpu_if_nobody_says(tmp_path, monkeypatch, trials, free, cores, expected):
    from spurless.bench.executors import mps

    gpu = torch.device("cuda", 1)
    monkeypatch.setattr(mps, "cores", lambda: cores)
    monkeypatch.setattr(mps, "PROBE", f"import sys; assert sys.argv[1] == '1'; print({free} * 2**30)")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert mps.processes_on(gpu, trials) == 1  # without MPS the GPU would serve one after the other
    (tmp_path / mps.CONTROL).touch(0o755)
    assert mps.processes_on(gpu, trials) == expected
    monkeypatch.setattr(mps, "PROBE", "import sys; sys.exit(1)")
    assert mps.processes_on(gpu, trials) == 1


@pytest.mark.parametrize("workers", [None, 8])
def test_a_trial_without_room_beside_the_others_is_done_in_lanes(tmp_path, monkeypatch, workers):
    full, broken, fine = (trial(seed=s) for s in range(3))
    errors = {full.key: "OutOfMemoryError: CUDA out of memory.", broken.key: "ValueError: 3"}

    def pool(trials, *_):
        said = [(c, errors.get(c.key)) for c in trials]
        return iter([("row", c, {"status": "failed" if error else "done", "error": error}) for c, error in said])

    @contextmanager
    def shared_gpu(index):
        yield {}

    monkeypatch.setattr("spurless.train.device.pick_device", lambda device: torch.device("cuda", 0))
    monkeypatch.setattr("spurless.bench.executors.processes.Pool", pool)
    monkeypatch.setattr("spurless.bench.executors.mps.shared_gpu", shared_gpu)
    monkeypatch.setattr("spurless.bench.executors.mps.processes_on", lambda gpu, trials: 8)
    lanes = lambda trials, *_: iter([Event("row", c, {"status": "done", "error": None}) for c in trials])  # noqa: E731
    monkeypatch.setattr(here, "in_lanes", lanes)
    rows = run_module.run_trials([full, broken, fine], tmp_path, workers=workers)
    assert [row["status"] for row in rows] == ["done" if workers is None else "failed", "failed", "done"]


def test_a_job_of_a_lane_is_what_fit_takes(tmp_path):
    attempt = Attempt(trial(), tmp_path)
    assert Job("k", attempt.arguments()).arguments["out"] == tmp_path / trial().folder
    assert data_of(trial(), None) is data_of(trial(seed=9), None)
