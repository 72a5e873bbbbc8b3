"""Logit adjustment adds what the bias tells, and its three posteriors are those of their papers."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from spurless.core.data import Split
from spurless.core.recipe import Recipe
from spurless.core.seeds import derive
from spurless.methods.la import LA, BiasMemory, hard_posterior, known_posterior, soft_posterior
from spurless.methods.parts import losses
from spurless.methods.parts.losses import adjusted_ce, two_labels
from spurless.nets import build
from spurless.registry import load_data
from spurless.train.feed import epoch_order
from spurless.train.fit import fit
from tests.support.runs import CPU
from tests.support.worlds import tiny

RECIPE = Recipe("sgd", 0.1, batch_size=32, epochs=3)


def posterior_by_hand(rows, labels, classes):
    """For each sample log Σ_s p(y | s) P(s | x), sums written out."""
    p = [[math.exp(v) / sum(math.exp(u) for u in row) for v in row] for row in rows]
    found = []
    for of_sample in p:
        line = []
        for label in range(classes):
            total = 0.0
            for s in range(classes):
                met = sum(q[s] for q, y in zip(p, labels, strict=True) if y == label)
                total += of_sample[s] * met / sum(q[s] for q in p)
            line.append(math.log(total + 1e-6))
        found.append(line)
    return found


def test_the_soft_posterior_is_that_of_the_sums_written_out():
    g = torch.Generator().manual_seed(0)
    logits, y = torch.randn(20, 3, generator=g, dtype=torch.float64), torch.randint(3, (20,), generator=g)
    by_hand = torch.tensor(posterior_by_hand(logits.tolist(), y.tolist(), 3), dtype=torch.float64)
    torch.testing.assert_close(soft_posterior(logits, y), by_hand)


def test_the_hard_posterior_counts():
    s, y = torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 1, 1])
    found = hard_posterior(s, y, 2).exp()
    assert found[0].tolist() == pytest.approx([3 / 5, 2 / 5]) and found[3].tolist() == pytest.approx([1 / 3, 2 / 3])


def test_known_attributes_count_as_if_independent_within_a_class():
    y = torch.tensor([0] * 8 + [1] * 8)
    a = torch.stack([torch.tensor([0] * 7 + [1] + [1] * 7 + [0]), torch.tensor([0, 1] * 8)], 1)
    found = known_posterior(Split(torch.zeros(16, 1), y, a), 2, (2, 2)).exp()
    assert found[0].tolist() == pytest.approx([0.8, 0.2])  # (7 + 1) / 10 against (1 + 1) / 10; the second tells nothing
    torch.testing.assert_close(found.sum(1), torch.ones(16, dtype=torch.float64))


def test_training_with_known_labels_is_a_loop_of_shifted_cross_entropy():
    data = tiny(n=96)
    result = fit(LA("known", strength=0.7), data, net="linear", recipe=RECIPE, seed=5, **CPU)
    assert result.labels_used == "training"
    shift = 0.7 * known_posterior(data.train, 2, tuple(len(v) for v in data.values)).float()
    torch.manual_seed(derive(5, "net", 0))
    net = build("linear", data.shape, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for epoch in range(3):
        order = epoch_order(96, None, None, torch.Generator().manual_seed(derive(5, "order", 0, epoch)))
        for rows in order.split(32):
            optimizer.zero_grad()
            cross_entropy(net(data.train.x[rows]) + shift[rows], data.train.y[rows]).backward()
            optimizer.step()
    for mine, theirs in zip(net.parameters(), result.classifier.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-6)


def test_each_label_of_a_mixed_input_has_its_own_shift():
    g = torch.Generator().manual_seed(1)
    logits, table = torch.randn(4, 3, generator=g), torch.randn(9, 3, generator=g)
    y, z, s = torch.tensor([0, 1, 2, 0]), torch.tensor([1, 1, 0, 2]), torch.rand(4, generator=g)
    mine, other = torch.tensor([0, 1, 2, 3]), torch.tensor([5, 6, 7, 8])
    rows = [
        s[i] * cross_entropy(logits[i] + table[mine[i]], y[i])
        + (1 - s[i]) * cross_entropy(logits[i] + table[other[i]], z[i])
        for i in range(4)
    ]
    with two_labels(y, (z, s, other)):
        torch.testing.assert_close(adjusted_ce(losses, logits, table[mine], y, table), torch.stack(rows).mean())


def test_lcs_memory_by_hand():
    y = torch.tensor([0, 1, 1])
    memory = BiasMemory(y, 2, kept=0.5)
    sure = torch.tensor([[20.0, -20.0]])
    prior = memory.update(torch.tensor([1]), y[1:2], sure)  # half its label, half the other class: a tie, the first
    assert memory.p[1].tolist() == pytest.approx([0.5, 0.5]) and memory.minority.tolist() == [False, True, False]
    assert memory.joint.tolist() == [[0.125, 0.125], [0.625, 0.125]]
    assert prior[0].exp().tolist() == pytest.approx([0.125, 0.625], rel=1e-4)


@pytest.mark.parametrize("posterior", ["mat", "ula", "lc", "known"])
def test_every_posterior_leaves_plain_training_behind(posterior):
    data = load_data("toy")
    net = {"name": "mlp", "widths": [16]}
    plain, found = (fit(m, data, net=net, seed=0, **CPU).scores for m in ("erm", LA(posterior)))
    assert found["conflicting"] > plain["conflicting"] + 5
