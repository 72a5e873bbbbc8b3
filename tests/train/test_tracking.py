"""What is sent to TensorBoard is what its name says."""

import struct
from types import SimpleNamespace

import pytest
import torch

from spurless.registry import load_data, make_method
from spurless.train.fit import fit
from spurless.train.observe import Progress
from spurless.train.tracking import SENT, TensorBoard

RECIPE = {"epochs": 3, "batch_size": 50, "until_accuracy": 100, "lr": 0.1, "eval_every": 1}


@pytest.fixture
def sent(tmp_path):
    """Train a run that looks at its training split; what was sent by name, the result and the data."""
    pytest.importorskip("tensorboardX")
    data = load_data({"name": "toy", "n": 200})
    board, found = TensorBoard(make_method("erm"), tmp_path), {}
    add = lambda name, value, step: found.setdefault(name, []).append((step, value))  # noqa: E731
    board.open = lambda folder, purge_step: SimpleNamespace(add_scalar=add, close=lambda: None)
    result = fit("erm", data, net="linear", recipe=RECIPE, device="cpu", progress=board)
    return found, result, data


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
    with TensorBoard(make_method("erm"), folder) as board:
        for word in epochs(stages):
            board(word)


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
