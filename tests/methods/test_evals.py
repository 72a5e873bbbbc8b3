"""EVaLS fits the head on samples of extreme loss and picks by inferred environments."""

import dataclasses

import pytest
import torch

from spurless.core.errors import UserError
from spurless.methods.evals import EVaLS, extremes
from spurless.registry import load_data
from spurless.train.fit import fit
from tests.support.runs import CPU
from tests.support.worlds import tiny


def extremes_by_hand(loss, y, k):
    kept = set()
    for c in set(y):
        ranked = sorted((i for i in range(len(y)) if y[i] == c), key=lambda i: (loss[i], i))
        kept |= set(ranked[:k]) | set(ranked[-k:])
    return sorted(kept)


def test_the_extremes_of_each_class_by_hand():
    g = torch.Generator().manual_seed(0)
    loss, y = torch.rand(50, generator=g), torch.randint(3, (50,), generator=g)
    for k in (1, 4, 30):
        assert extremes(loss, y, k).tolist() == extremes_by_hand(loss.tolist(), y.tolist(), k)


def test_it_needs_no_bias_label_and_leaves_plain_training_behind():
    data = load_data("toy")
    found, plain = fit("evals", data, **CPU), fit("erm", data, **CPU)
    assert found.labels_used == "none"
    assert found.scores["worst_group"] > plain.scores["worst_group"] + 20


def test_without_validation_samples_it_says_what_else_to_use():
    with pytest.raises(UserError, match="afr"):
        fit(EVaLS(), dataclasses.replace(tiny(n=64), val=None), **CPU)
