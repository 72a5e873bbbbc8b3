"""What is sent to TensorBoard is what its name says."""

import pytest
import torch

from spurless.engine import fit
from spurless.registry import load_data, make_method
from spurless.tracking import SENT, TensorBoard

RECIPE = {"epochs": 3, "batch_size": 50, "until_accuracy": 100, "lr": 0.1, "eval_every": 1}


@pytest.fixture
def sent(tmp_path):
    """Train a run that looks at its training split; what was sent by name, the result and the data."""
    pytest.importorskip("tensorboardX")
    data = load_data({"name": "toy", "n": 200})
    board, found = TensorBoard(make_method("erm"), tmp_path), {}
    board.writer.add_scalar = lambda name, value, step: found.setdefault(name, []).append((step, value))
    result = fit("erm", data, "linear", RECIPE, device="cpu", progress=board)
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
