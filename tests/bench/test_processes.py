"""Several processes on one folder: each trial once, however many are killed."""

import errno
import json
import os
import signal
import sys
import time
from dataclasses import replace

import pytest
import torch

from spurless.bench import Trial, run_one, run_trials
from spurless.bench.claim import claim, finished_row, read_row, write_row
from spurless.bench.estimate import Guess, guesses
from spurless.bench.executors import here
from spurless.bench.executors.processes import Pool
from spurless.bench.one import bury, lost_its_gpu
from spurless.core.errors import UserError
from tests.support.benches import do_trials, fork_is_fine, forked, free
from tests.support.trials import QUICK, TOY, Quiet, run, trial

pytestmark = pytest.mark.usefixtures("one_core")


def test_the_row_of_a_lost_process_never_takes_the_place_of_a_finished_one(tmp_path, monkeypatch):
    done = run([trial()], tmp_path)[0]
    assert bury(trial(), tmp_path, "lost") == done and read_row(tmp_path / trial().folder) == done
    held = claim(tmp_path / trial(seed=1).folder)
    assert bury(trial(seed=1), tmp_path, "lost", wait=False) is None and not read_row(tmp_path / trial(seed=1).folder)

    def finish_elsewhere(_):
        write_row(tmp_path / trial(seed=1).folder, done | {"seed": 1})
        held.release()

    monkeypatch.setattr(time, "sleep", finish_elsewhere)
    assert bury(trial(seed=1), tmp_path, "lost")["status"] == "done"  # waited for whoever was at it
    lost = bury(trial(seed=2), tmp_path, "lost")
    assert (lost["status"], lost["error"]) == ("failed", "lost") and read_row(tmp_path / trial(seed=2).folder) == lost
    assert free(tmp_path / trial(seed=2).folder)


@fork_is_fine
def test_two_processes_on_one_folder_do_each_trial_once(tmp_path):
    trials = [trial(seed=seed, method=method) for seed in range(10) for method in ("erm", "lff")]
    children = [forked(do_trials, trials, tmp_path / "out", tmp_path / "log") for _ in range(2)]
    reads = 0
    while any(child.is_alive() for child in children):
        for path in (tmp_path / "out").glob("cells/*/row.json"):
            assert json.loads(path.read_text())["status"] == "done"  # never half a row
            reads += 1
        time.sleep(0.01)
    assert [child.exitcode for child in children] == [0, 0] and reads
    trained = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert sorted(key for key, _ in trained) == sorted(c.key for c in trials)  # each exactly once
    assert len({process for _, process in trained}) == 2  # and both took part
    alone = run(trials, tmp_path / "alone")
    assert [row["scores"] for row in run(trials, tmp_path / "out")] == [row["scores"] for row in alone]
    assert len((tmp_path / "out" / "rows.jsonl").read_text().splitlines()) == len(trials)


@fork_is_fine
def test_a_killed_process_is_taken_up_at_once_and_ends_with_the_same_numbers(tmp_path):
    trials = [Trial(TOY, {"name": "pgd"}, None, {"epochs": 15, "batch_size": 10}, seed) for seed in (0, 1)]
    out = tmp_path / "out"
    child = forked(do_trials, trials, out, tmp_path / "log")
    half = out / trials[1].folder / "stage-000.safetensors"  # the first stage of two
    while not half.exists() and child.is_alive():
        time.sleep(0.001)
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    assert finished_row(out / trials[0].folder) and not finished_row(out / trials[1].folder)
    before = (out / trials[0].folder / "row.json").stat().st_mtime_ns
    assert free(out / trials[1].folder)  # a dead process holds nothing
    stage = half.stat().st_mtime_ns
    rows = run(trials, out)
    assert half.stat().st_mtime_ns == stage  # gone on with, not begun again
    assert rows[1]["resumed"] and not rows[0]["resumed"]
    assert (out / trials[0].folder / "row.json").stat().st_mtime_ns == before
    assert [row["scores"] for row in rows] == [row["scores"] for row in run(trials, tmp_path / "alone")]


@fork_is_fine
def test_ctrl_c_saves_the_place_and_says_how_to_go_on(tmp_path):
    trials = [trial(), Trial(TOY, {"name": "erm"}, None, {"epochs": 4000, "batch_size": 10}, 1)]
    wrong = Trial(TOY, {"name": "erm"}, None, QUICK | {"selection": "val_worst_group"})  # which erm may not see
    out = tmp_path / "out"
    twice = replace(trials[0], labels={"row": "again"})  # in two places of a table: one trial
    child = forked(do_trials, [twice, trials[0], wrong, trials[1]], out, tmp_path / "log")
    while not (out / trials[1].folder / "history.jsonl").exists() and child.is_alive():
        time.sleep(0.01)
    time.sleep(0.2)
    os.kill(child.pid, signal.SIGINT)
    child.join()
    assert child.exitcode == 130
    said = (tmp_path / "log.stopped").read_text()
    assert said == "1 of 3 trials are done, and checkpoints of the others are saved: re-run the command to resume."
    assert (out / trials[1].folder / "stage-000-part.safetensors").exists()
    assert len((out / "rows.jsonl").read_text().splitlines()) == 3


def test_a_claim_is_one_at_a_time_and_ends_with_its_holder(tmp_path):
    first = claim(tmp_path)
    assert first is not None and claim(tmp_path) is None
    assert run_one(trial(), tmp_path / "out", "cpu") is not None
    with claim(tmp_path / "out" / trial().folder):
        assert run_one(trial(), tmp_path / "out", "cpu", wait=False) is None  # busy, even where it is done
    first.release()
    assert free(tmp_path)


def test_a_trial_that_cannot_be_claimed_says_why(tmp_path, monkeypatch):
    def fails(number, *where):
        def lock(path):
            raise OSError(number, os.strerror(number), *where)

        return lock

    monkeypatch.setattr("spurless.bench.claim.lock", fails(errno.ENOSPC, str(tmp_path / ".lock")))
    with pytest.raises(OSError, match="No space left on device"):
        claim(tmp_path)
    monkeypatch.setattr("spurless.bench.claim.lock", fails(errno.ENOLCK))
    with pytest.raises(UserError, match="a file system without locks"):
        claim(tmp_path)


# In place of a worker: it is ready, answers nothing, and dies in the middle of its first trial.
DIES = """
import json, os, signal, sys
sys.stdin.readline()
print(json.dumps({"ready": True}), flush=True)
sys.stdin.readline()
sys.stderr.write("some words\\n")
sys.stderr.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_that_dies_is_a_row_and_the_next_trial_gets_another_one(tmp_path, monkeypatch):
    import spurless.bench.executors.processes as pool_module

    monkeypatch.setattr(pool_module, "COMMAND", [sys.executable, "-c", DIES])
    trials = [trial(seed=0), trial(seed=1)]
    settings = {"out": str(tmp_path), "device": "cpu", "root": None}
    pool = Pool(trials, workers=1, threads=1, settings=settings)
    rows = [row for kind, _, row in pool if kind == "row"]
    assert [row["status"] for row in rows] == ["failed", "failed"] and len(pool.workers) == 2
    expected = "The process that did it was killed by signal 9, perhaps for want of memory. some words"
    assert rows[0]["error"] == expected and read_row(tmp_path / trials[0].folder)["error"] == expected
    assert [row["status"] for row in run(trials, tmp_path)] == ["done", "done"]  # tried again


def test_a_worker_that_cannot_start_is_an_error_and_not_a_row(tmp_path, monkeypatch):
    import spurless.bench.executors.processes as pool_module

    monkeypatch.setattr(pool_module, "COMMAND", [sys.executable, "-c", "raise SystemExit('no torch here')"])
    monkeypatch.setattr(here, "cores", lambda: 2)
    with pytest.raises(UserError, match="ended with code 1. no torch here"):
        run_trials([trial(), trial(seed=1)], tmp_path, device="cpu", workers=2, watch=Quiet())
    assert not list(tmp_path.glob("cells/*/row.json"))


def test_a_row_says_how_many_processes_shared_the_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(here, "cores", lambda: 2)
    rows = run_trials([trial(), trial(seed=1)], tmp_path, device="cpu", workers=2, watch=Quiet())
    assert [row["processes"] for row in [*rows, *run([trial(seed=2)], tmp_path)]] == [2, 2, 1]


def test_a_run_that_shared_its_gpu_says_nothing_of_one_alone(tmp_path, monkeypatch):
    rows = [row | {"processes": 4} for row in run([trial()], tmp_path)]
    assert guesses([trial()], rows, "cpu", None)[trial().kind()].how == "measured"  # as it will be run again
    monkeypatch.setattr("spurless.bench.estimate.pick_device", lambda device: torch.device("cuda", 0))
    monkeypatch.setattr("spurless.bench.estimate.versions", lambda place: {"device": "cpu"})
    monkeypatch.setattr("spurless.bench.estimate.timed", lambda *_: Guess(1.0, "timed"))
    assert guesses([trial()], rows, "cuda", None)[trial().kind()].how == "timed"


FAILS = """
import json, sys
sys.stdin.readline()
print(json.dumps({"ready": True}), flush=True)
sys.stdin.readline()
print(json.dumps({"row": {"status": "failed"}, "last": True}), flush=True)
"""


def test_a_process_that_lost_its_gpu_is_given_no_other_trial(tmp_path, monkeypatch):
    import spurless.bench.executors.processes as pool_module

    monkeypatch.setattr(pool_module, "COMMAND", [sys.executable, "-c", FAILS])
    settings = {"out": str(tmp_path), "device": "cuda", "root": None}
    pool = Pool([trial(seed=0), trial(seed=1)], workers=1, threads=1, settings=settings)
    rows = [row for kind, _, row in pool if kind == "row"]
    assert (
        rows == [{"status": "failed"}] * 2 and len(pool.workers) == 2
    )  # the second trial was not blamed for the first


@pytest.mark.parametrize(("own", "expected"), [(None, "3"), ("5", "5")])
def test_a_process_compiles_with_its_share_of_the_cores(monkeypatch, own, expected):
    import spurless.bench.executors.processes as pool_module

    name = "TORCHINDUCTOR_COMPILE_THREADS"
    monkeypatch.delenv(name, raising=False) if own is None else monkeypatch.setenv(name, own)
    tells = f"import json, os; input(); print(json.dumps([os.environ[{name!r}], os.environ['OMP_NUM_THREADS']]))"
    monkeypatch.setattr(pool_module, "COMMAND", [sys.executable, "-c", tells])
    worker = pool_module.Worker({"threads": 3}, {})
    assert worker.ask({}) == [expected, "3"]
    worker.hang_up()
    assert worker.process.wait() == 0
    worker.process.stdout.close()
    worker.log.close()


def test_a_gpu_is_lost_when_cuda_answers_with_an_error(monkeypatch):
    def broken():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    assert not lost_its_gpu()  # it was never used
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    assert not lost_its_gpu()
    monkeypatch.setattr(torch.cuda, "synchronize", broken)
    assert lost_its_gpu()


def test_a_worker_that_is_killed_before_its_first_trial_is_started_again(tmp_path, monkeypatch):
    import spurless.bench.executors.processes as pool_module

    once = f"""
import os, pathlib, signal, sys
mark = pathlib.Path({str(tmp_path / "mark")!r})
if not mark.exists():
    mark.touch()
    os.kill(os.getpid(), signal.SIGKILL)
os.execv(sys.executable, {pool_module.COMMAND!r})
"""
    monkeypatch.setattr(pool_module, "COMMAND", [sys.executable, "-c", once])
    settings = {"out": str(tmp_path / "out"), "device": "cpu", "root": None}
    pool = Pool([trial()], workers=1, threads=1, settings=settings)
    assert [row["status"] for kind, _, row in pool if kind == "row"] == ["done"] and len(pool.workers) == 2
    always = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    monkeypatch.setattr(pool_module, "COMMAND", [sys.executable, "-c", always])
    pool = Pool([trial(seed=1)], workers=1, threads=1, settings=settings)
    ((kind, _, why),) = pool
    assert kind == "broken" and "before its first one, was killed by signal 9" in str(why)
    assert len(pool.workers) == pool_module.STARTS


def test_a_process_does_the_same_numbers_ends_with_its_parent_and_saves_its_place(tmp_path):
    quick = replace(trial(seed=4), after="tests.support.benches:remember_classes")
    long = Trial(TOY, {"name": "erm"}, None, {"epochs": 4000, "batch_size": 10})
    settings = {"out": str(tmp_path / "out"), "device": "cpu", "root": None}
    pool = Pool([quick, long], workers=1, threads=1, settings=settings)
    events = iter(pool)
    (_, _, row) = next(event for event in events if event[0] == "row")
    alone = run([quick], tmp_path / "alone")[0]
    assert row["extra"]["classes"] == 2 and (row["scores"], row["extra"]) == (alone["scores"], alone["extra"])
    assert row["versions"]["threads"] == "1"
    while not (tmp_path / "out" / long.folder / "history.jsonl").exists():
        time.sleep(0.05)
    time.sleep(0.2)
    events.close()  # as Ctrl-C does
    assert [worker.process.returncode for worker in pool.workers] == [0]  # it left by itself, and was not killed
    assert (tmp_path / "out" / long.folder / "stage-000-part.safetensors").exists()
    assert free(tmp_path / "out" / long.folder)
