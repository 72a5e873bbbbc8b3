"""AFR weights held-out samples by how little they are believed, and retrains the head by gradient descent."""

import copy
import math

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from spurless.methods.afr import AFR, sample_weights
from spurless.nets import Net
from spurless.train.fit import fit
from tests.support.runs import CPU
from tests.support.worlds import tiny


def test_weights_by_hand():
    g = torch.Generator().manual_seed(0)
    logits, y = torch.randn(12, 3, generator=g), torch.arange(12) % 3 % 2
    raw = []
    for row, label in zip(logits.tolist(), y.tolist(), strict=True):
        p = math.exp(row[label]) / sum(math.exp(v) for v in row)
        raw.append(math.exp(-7 * p) / y.tolist().count(label))
    expected = torch.tensor([w / sum(raw) for w in raw], dtype=torch.float64)
    torch.testing.assert_close(sample_weights(logits, y, 3, 7.0), expected, rtol=1e-5, atol=1e-8)


def test_the_head_is_that_of_torchs_own_sgd():
    g = torch.Generator().manual_seed(1)
    features, y = torch.randn(40, 5, generator=g, dtype=torch.float64), torch.randint(3, (40,), generator=g)
    weights = torch.rand(40, generator=g, dtype=torch.float64)
    for bias in (True, False):
        net = Net(nn.Identity(), nn.Linear(5, 3, bias=bias))
        slow = copy.deepcopy(net.head).double()
        start = [p.detach().clone() for p in slow.parameters()]
        AFR(penalty=0.3, steps=25, lr=0.05).retrain(net, features, y, weights)
        optimizer = torch.optim.SGD(slow.parameters(), 0.05)
        for _ in range(25):
            optimizer.zero_grad()
            loss = (weights * cross_entropy(slow(features), y, reduction="none")).sum()
            (loss + 0.3 * sum((p - q).square().sum() for p, q in zip(slow.parameters(), start, strict=True))).backward()
            optimizer.step()
        for fast, by_hand in zip(net.head.parameters(), slow.parameters(), strict=True):
            torch.testing.assert_close(fast, by_hand.float(), rtol=1e-5, atol=1e-6)


def test_only_the_head_sees_the_held_out_samples():
    data = tiny(n=100)
    result = fit(AFR(held_out=0.3), data, **CPU)
    assert [row["stage"] for row in result.history] == ["erm"] * 3
    assert result.history[-1]["step"] == 3 * math.ceil(70 / 32)
