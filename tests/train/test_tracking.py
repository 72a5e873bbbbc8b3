"""What is sent to TensorBoard, Weights & Biases and MLflow is what its name says, and a resumed run is one run."""

import json
import struct

import pytest
import torch

from spurless.core.errors import SettingError
from spurless.registry import load_data
from spurless.train.fit import fit
from spurless.train.observe import Progress
from spurless.train.progress import Bar
from spurless.train.tracking import SENT, TensorBoard, Tracking
from tests.support.runs import StopAt

RECIPE = {"epochs": 3, "batch_size": 50, "until_accuracy": 100, "lr": 0.1, "eval_every": 1}


class Kept:
    """A tracker that keeps what it is sent."""

    def __init__(self):
        self.found, self.scores, self.finished = {}, None, None

    def open(self, step, run_id):
        return None

    def send(self, numbers, step):
        for name, value in numbers.items():
            self.found.setdefault(name, []).append((step, value))

    def close(self, scores, finished):
        self.scores, self.finished = scores, finished


@pytest.fixture
def sent(monkeypatch):
    """Train a run that evaluates its training split; what was sent by name, the result and the data."""
    data, kept = load_data({"name": "toy", "n": 200}), Kept()
    monkeypatch.setattr("spurless.train.tracking.make_tracker", lambda track, result: kept)
    result = fit("erm", data, net="linear", recipe=RECIPE, device="cpu", progress=False, track="tensorboard")
    assert kept.finished and kept.scores["test/unbiased"] == result.scores["unbiased"]
    return kept.found, result, data


def test_the_two_training_losses_are_told_apart(sent):
    found, result, data = sent
    weights = result.classifier
    with torch.no_grad():
        logits = weights.eval()(data.train.x)
        whole = float(torch.nn.functional.cross_entropy(logits, data.train.y))
        right = 100 * float((logits.argmax(1) == data.train.y).double().mean())
    assert found["erm/train_split_cross_entropy"][-1] == (12, pytest.approx(whole, rel=1e-5))
    assert found["erm/train_split_accuracy"][-1][1] == pytest.approx(right)
    assert found["erm/loss_of_batches"] == [(row["step"], row["loss"]) for row in result.history]
    assert abs(found["erm/loss_of_batches"][-1][1] - whole) > 1e-4  # its batches were seen by earlier weights
    assert not {"erm/loss", "erm/train_loss"} & set(found)  # either could be read as the other


def test_every_number_of_a_row_is_sent_under_one_name(sent):
    found, result, _ = sent
    for key, name in SENT.items():
        assert [value for _, value in found[f"erm/{name}"]] == [row[key] for row in result.history], key
    assert len(set(SENT.values())) == len(SENT)


def epochs(stages):
    """What the loop says of stages given as (index, name, last steps of their epochs)."""
    for index, name, steps in stages:
        for epoch, step in enumerate(steps, 1):
            row = {"stage": name, "stage_index": index, "epoch": epoch, "step": step, "loss": 1.0, "lr": 0.1}
            yield Progress(name, step, steps[-1], row=row)


def log(folder, *stages):
    with Tracking(TensorBoard(folder), folder, Bar("erm", shown=False)) as tracking:
        for word in epochs(stages):
            tracking(word)


def events(folder):
    """For each file: the steps that it was told to forget from on, and the steps by name."""
    from tensorboardX.proto import event_pb2

    found = []
    for file in sorted(folder.glob("events.*"), key=lambda f: f.stat().st_mtime_ns):
        data, at, purged, steps = file.read_bytes(), 0, [], {}
        while at < len(data):
            size = struct.unpack("<Q", data[at : at + 8])[0]
            event = event_pb2.Event.FromString(data[at + 12 : at + 12 + size])
            at += 16 + size
            purged += [event.step] if event.HasField("session_log") else []
            for value in event.summary.value:
                steps.setdefault(value.tag, []).append(event.step)
        found.append((purged, steps))
    return found


def test_stages_of_the_same_name_do_not_share_a_step(tmp_path):
    pytest.importorskip("tensorboardX")
    log(tmp_path, (0, "mine", [4, 8]), (1, "mine", [4, 8]), (2, "train", [3]), (3, "mine", [2]))
    ((purged, steps),) = events(tmp_path)
    assert steps["mine/lr"] == [4, 8, 12, 16, 21] and steps["train/lr"] == [19] and not purged


def test_a_run_that_goes_on_after_a_kill_repeats_no_step(tmp_path):
    pytest.importorskip("tensorboardX")
    log(tmp_path, (0, "biased", [4, 8]), (1, "debiased", [4, 8]))
    log(tmp_path, (1, "debiased", [8, 12]), (2, "last", [1]))  # its last checkpoint was after the third epoch
    last = events(tmp_path)[-1]
    assert last == ([16], {"debiased/loss_of_batches": [16, 20], "debiased/lr": [16, 20], "last/loss_of_batches": [21],
                           "last/lr": [21]})  # fmt: skip
    # What TensorBoard forgets is what is made again: all of "biased" and the first epoch of "debiased" lie before.
    for _ in range(2):  # from the beginning
        log(tmp_path / "other", (0, "biased", [4]))
    assert events(tmp_path / "other")[-1][0] == [4]


SHORT = {"net": "linear", "recipe": {"epochs": 3, "batch_size": 50}, "device": "cpu", "progress": False}
TOY = {"name": "toy", "n": 200}


def interrupted(track, out):
    """A run that was stopped inside its second epoch, and then resumed."""
    with pytest.raises(KeyboardInterrupt):
        fit("erm", TOY, **SHORT | {"progress": StopAt(6)}, out=out, track=track)
    return fit("erm", TOY, **SHORT, out=out, track=track)


def test_wandb_offline(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="needs the package wandb")
    for name, value in {"MODE": "offline", "SILENT": "true", "CONSOLE": "off", "DISABLE_CODE": "true"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    result = interrupted("wandb:ours", tmp_path / "run")
    assert wandb.run is None
    rows, summary, ids = {}, {}, set()
    for file in sorted((tmp_path / "run").glob("wandb/offline-run-*/run-*.wandb")):
        for record in records(file.read_bytes()):
            if record.HasField("run"):
                ids.add((record.run.project, record.run.run_id))
            items = {"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.history.item}
            if record.HasField("history"):
                rows[items["_step"]] = items
            summary |= {"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.summary.update}
    assert len(ids) == 1 and next(iter(ids))[0] == "ours"  # one run, though two processes wrote it
    assert {step: row["erm/loss_of_batches"] for step, row in rows.items()} == {
        row["step"]: pytest.approx(row["loss"]) for row in result.history
    }
    assert summary["test/unbiased"] == pytest.approx(result.scores["unbiased"])


def records(data):
    """What a .wandb file holds: a header of 7 bytes, then pieces of records (crc, size, kind) in blocks of 32 KiB."""
    from wandb.proto import wandb_internal_pb2

    at, whole = 7, b""
    while at < len(data):
        if 32768 - at % 32768 < 7:  # what is left of a block is padding
            at += 32768 - at % 32768
            continue
        size, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a whole record, or its last piece
            yield wandb_internal_pb2.Record.FromString(whole)
            whole = b""


def test_mlflow_in_files(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="needs the package mlflow-skinny")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    result = interrupted("mlflow", tmp_path / "run")
    client = mlflow.MlflowClient((tmp_path / "store").as_uri())
    experiment = client.get_experiment_by_name("spurless")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED" and run.data.params["recipe.batch_size"] == "50"
    losses = {m.step: m.value for m in client.get_metric_history(run.info.run_id, "erm/loss_of_batches")}
    assert losses == {row["step"]: pytest.approx(row["loss"]) for row in result.history}
    assert run.data.metrics["test/unbiased"] == pytest.approx(result.scores["unbiased"])


def test_what_cannot_be_tracked_is_told_before_the_training():
    with pytest.raises(SettingError, match="tracker 'tensorbord'; did you mean 'tensorboard'"):
        fit("erm", TOY, **SHORT, track="tensorbord")
    with pytest.raises(SettingError, match="give `out`"):
        fit("erm", TOY, **SHORT, track="tensorboard")


def test_tensorboard_lies_in_the_runs_folder(tmp_path):
    pytest.importorskip("tensorboardX")
    interrupted("tensorboard", tmp_path / "run")
    assert events(tmp_path / "run" / "tensorboard")[-1][1]["erm/lr"] == [8, 12]  # 4 was sent before the stop
