"""XRM's twins relabel each other's half, and its groups are found on both splits."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from spurless.methods.group_inference.xrm import Relabelled, flip_probability
from spurless.methods.parts.losses import ce_rows
from spurless.registry import load_data
from spurless.train.infer import infer_groups


def test_a_sure_twin_relabels_and_a_guessing_one_does_not():
    y, half = torch.tensor([0, 1, 2, 0]), torch.tensor([True, True, False, False])
    labels = Relabelled(y, half, 3)
    labels.flip(torch.tensor([0, 2]), torch.tensor([[0.0, 99.0, 0.0], [0.0, 0.0, 0.0]]))
    assert labels.y.tolist() == [1, 1, 2, 0]


def test_how_often_it_flips_is_the_formula():
    torch.manual_seed(0)
    n, logits = 20_000, torch.tensor([1.0, 0.0, 0.0])
    labels = Relabelled(torch.full((n,), 2), torch.zeros(n, dtype=torch.bool), 3)
    labels.flip(torch.arange(n), logits.expand(n, 3))
    p = float(logits.softmax(0).max())
    share = float((labels.y == 0).float().mean())
    assert share == pytest.approx((p - 1 / 3) * 3 / 2, abs=0.01)
    assert float(flip_probability(torch.tensor(p), 3)) == pytest.approx((p - 1 / 3) * 1.5)


def test_a_sample_trains_its_own_twin_and_classes_count_alike():
    g = torch.Generator().manual_seed(0)
    y, half = torch.tensor([0, 0, 0, 1]), torch.tensor([True, False, True, False])
    first, second = torch.randn(4, 2, generator=g), torch.randn(4, 2, generator=g)
    own = [second[0], first[1], second[2], first[3]]
    loss = sum((1 / 3 if y[i] == 0 else 1.0) * cross_entropy(own[i], y[i]) for i in range(4)) / 2
    found = Relabelled(y, half, 2).loss(ce_rows, torch.arange(4), first, second)
    torch.testing.assert_close(found, loss)


def test_it_groups_training_and_validation_samples_and_finds_what_conflicts():
    data = load_data("toy")
    found = infer_groups(data, "xrm", progress=False, device="cpu")
    assert found.val is not None and len(found.val) == len(data.val) and found.number == 4
    assert torch.equal(found.train // 2, data.train.y) and torch.equal(found.val // 2, data.val.y)
    flagged, conflicting = found.train % 2 == 1, ~data.is_aligned(data.train).all(1)
    assert (flagged & conflicting).sum() > 0.5 * conflicting.sum()
    assert conflicting[flagged].float().mean() > 4 * conflicting.float().mean()
