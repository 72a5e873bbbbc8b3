"""Measures that are counts and sums, each against a version that counts one by one."""

import numpy as np
import pytest
import torch
from torch import nn

from spurless.core.stats import wilson
from spurless.metrics.batchnorm import recompute_batchnorm
from spurless.metrics.compress import activations_compressed, compressibility, weights_compressed
from spurless.metrics.groups import group_scores
from spurless.metrics.inference import inference_scores, lost_classes, mining_scores
from spurless.metrics.records import Record
from spurless.metrics.representation import features_of, represent
from spurless.sweep.over_runs import same_order
from studies.theory.large_lr import growth_rate, margins
from tests.support import reference
from tests.support.worlds import OwnModule, tiny


@pytest.fixture
def rows():
    g = np.random.default_rng(0)
    y, a = g.integers(0, 3, 200), g.integers(0, 3, 200)
    return g.random(200) < 0.6, y, a


def test_group_scores(rows):
    correct, y, a = rows
    found = group_scores(correct, y, a[:, None], a[:, None] == y[:, None], attributes=["colour"])
    expected = reference.group_scores_by_hand(correct.tolist(), y.tolist(), a.tolist())
    assert {k: found[k] for k in expected} == pytest.approx(expected)


@pytest.mark.parametrize(("correct", "n"), [(8, 10), (0, 7), (7, 7), (1, 3), (312, 654)])
def test_wilson(correct, n):
    assert wilson(correct, n) == pytest.approx(reference.wilson_by_hand(correct, n), abs=1e-9)


def test_mining_and_inferred_groups(rows):
    mined, groups, truth = rows
    conflicting = np.random.default_rng(1).random(200) < 0.3 + 0.3 * (groups == 1)
    found = mining_scores(mined, conflicting)
    assert (found["precision"], found["recall"]) == pytest.approx(reference.mining_by_hand(mined, conflicting))
    given = reference.given_away_by_hand(groups.tolist(), conflicting.tolist())
    assert 0 < sum(given) < 200
    found = inference_scores(groups, truth, groups * 0, conflicting)
    assert (found["precision"], found["recall"]) == pytest.approx(reference.mining_by_hand(given, conflicting))


@pytest.mark.parametrize("kept", [0, 1, 3, 4])
def test_classes_that_the_network_which_mines_has_not_learnt(rows, kept):
    mined, y, _ = rows
    mined = mined | (y == 1)
    mined[np.flatnonzero(y == 1)[:kept]] = False
    found = lost_classes(mined, y)
    assert found == reference.lost_classes_by_hand(mined.tolist(), y.tolist())
    assert found == ([1] if kept <= 3 else [])  # the class has 64 rows, of which 5 % are 3.2


def test_no_class_is_lost_where_all_rows_or_few_are_mined():
    y = np.repeat([0, 1], 30)
    assert lost_classes(np.ones(60, bool), y) == [] == lost_classes(np.zeros(60, bool), y)
    assert lost_classes(y[:49] == 1, y[:49]) == []  # 19 rows of a class may be mined by chance
    assert lost_classes(y[:50] == 1, y[:50]) == [1]
    with pytest.raises(ValueError, match="shape"):
        lost_classes([True], y)


@pytest.mark.parametrize("window", [1, 4])
def test_largest_share(window):
    shares = np.random.default_rng(2).random(30)
    shares[[3, 17]] = np.nan
    found = Record("erm", 0, {"loss_share": shares}).largest_share(window)
    assert found == pytest.approx(reference.largest_share_by_hand(shares.tolist(), window))


@pytest.mark.parametrize("core", [(0.5, 0.6, 0.9), (0.5, 0.9, 0.6)])
def test_same_order(core):
    selective = (0.1, 0.2, 0.3)
    points = [{"lr": i, "csi": c, "core_share": s} for i, (c, s) in enumerate(zip(selective, core, strict=True))]
    assert same_order(points).same == reference.same_order_by_hand(selective, core)


def test_margins_and_growth():
    g = torch.Generator().manual_seed(3)
    logits, y, aligned = torch.randn(20, 4, generator=g), torch.arange(20) % 4, torch.arange(20) < 15
    found = margins(logits, y, aligned)
    assert (found.aligned, found.conflicting) == pytest.approx(reference.margins_by_hand(logits, y, aligned), rel=1e-6)
    scales, ratios = [2.0, 3.0, 5.0, 9.0], [1.5, 4.0, 60.0, 9000.0]
    for power in (0, 1):
        assert growth_rate(scales, ratios, power) == pytest.approx(reference.growth_by_hand(scales, ratios, power))


def test_batchnorm_statistics():
    net, x = nn.Sequential(nn.BatchNorm1d(1)), torch.randn(25, 1, generator=torch.Generator().manual_seed(4))
    recompute_batchnorm(net, x, batch_size=10)
    batches = range(9), range(9, 17), range(17, 25)  # as equal as 25 rows in batches of at most 10 can be
    expected = reference.statistics_by_hand(x[:, 0], batches)
    assert (net[0].running_mean.item(), net[0].running_var.item()) == pytest.approx(expected, rel=1e-5)


def test_a_network_on_a_data_set():
    data, net = tiny(), OwnModule()
    z, y = features_of(net, data, "test", range(60)), data.test.y[:60]
    found = represent(net, data, rows=range(60))
    assert found["csi"] == pytest.approx(float(reference.csi_by_hand(z, y).mean()), rel=1e-5)
    assert found["class_separation"] == pytest.approx(reference.separation_by_hand(z, y), abs=1e-5)
    whole = activations_compressed(net, data, most=4000, kappa=0.25)
    z = features_of(net, data)
    some = [i for i in range(0, 4000, 400) if z[i].any()]
    assert whole.n == 4000 and len(some) > 3
    by_hand = [reference.compressibility_by_hand(z[i].tolist(), 2, 2) for i in some]
    assert compressibility(z[some], kappa=0.25).tolist() == pytest.approx(by_hand, abs=1e-5)
    assert whole.compressibility == pytest.approx(float(compressibility(z, kappa=0.25).double().mean()))
    kernel = net.classify.weight.detach().flatten().tolist()
    assert weights_compressed(net)["classify"].pq_index == pytest.approx(reference.pq_by_hand(kernel, 1, 2), abs=1e-5)
