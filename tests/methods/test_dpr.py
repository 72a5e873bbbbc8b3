"""DPR is PGD with the probability of disagreement as its score."""

import math

import torch

from spurless.core.recipe import Recipe
from spurless.core.seeds import derive
from spurless.methods.dpr import DPR, disagreement
from spurless.nets import build
from spurless.train.feed import epoch_order
from spurless.train.fit import fit
from spurless.train.optim import make_optimizer
from tests.support.reference import gce_paper, train_by_hand
from tests.support.runs import CPU
from tests.support.worlds import tiny


def by_hand(logits, y, temperature):
    found = []
    for row, label in zip(logits.tolist(), y.tolist(), strict=True):
        e = [math.exp(v / temperature) for v in row]
        found.append(max(1 - e[label] / sum(e), 1e-8))
    return torch.tensor(found, dtype=torch.float64)


def test_the_score_is_the_probability_of_the_other_classes():
    g = torch.Generator().manual_seed(0)
    logits, y = 5 * torch.randn(30, 4, generator=g), torch.randint(4, (30,), generator=g)
    for temperature in (0.5, 1.0, 3.0):
        torch.testing.assert_close(disagreement(logits, y, temperature), by_hand(logits, y, temperature))


def test_it_is_the_algorithm_box():
    """GCE, scores, and cross entropy on draws by them, as loops."""
    data, recipe = tiny(n=80), Recipe("sgd", 0.05, batch_size=16, epochs=2)
    result = fit(DPR(), data, net="linear", recipe=recipe, seed=3, **CPU)
    x, y = data.train.x, data.train.y
    torch.manual_seed(derive(3, "net", 0))
    net = build("linear", data.shape, 2)
    optimizer = make_optimizer(list(net.parameters()), recipe, torch.device("cpu"))

    def orders(stage, weights=None):
        seeds = (derive(3, "order", stage, epoch) for epoch in range(2))
        return [epoch_order(80, weights, None, torch.Generator().manual_seed(s)) for s in seeds]

    for order in orders(0):
        for rows in order.split(16):
            optimizer.zero_grad()
            gce_paper(net(x[rows]), y[rows], 0.7).backward()
            optimizer.step()
    h = by_hand(net(x).detach(), y, 1.0)
    train_by_hand(net, x, y, orders(1, h), 16, lambda p: make_optimizer(list(p), recipe, torch.device("cpu")))
    for mine, theirs in zip(net.parameters(), result.classifier.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5)
