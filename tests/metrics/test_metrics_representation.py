"""Measures of features against versions that form every pair and every mean by hand."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from spurless.core.data import Images, Split
from spurless.core.errors import UserError
from spurless.data.sets import linear_toy
from spurless.metrics import representation as rp
from spurless.nets import build
from tests.support.reference import (
    csi_by_hand,
    gap_by_hand,
    separation_by_hand,
    separation_by_matrix,
    tsne_loss_by_hand,
)
from tests.support.worlds import OwnModule, pictures, tiny


def uneven(n=60, d=5, classes=3, seed=0):
    """Features with classes of very different sizes; class 1 has no rows."""
    g = torch.Generator().manual_seed(seed)
    y = torch.tensor([0] * (n - 8) + [2] * 5 + [3] * 3)[torch.randperm(n, generator=g)]
    return torch.randn(n, d, generator=g).double() + y[:, None] * torch.rand(d, generator=g), y


# Class separation.


def test_separation_is_that_of_all_pairs():
    x, y = uneven()
    assert rp.class_separation(x, y) == pytest.approx(separation_by_hand(x, y), abs=1e-9)
    assert rp.class_separation(x, y) == pytest.approx(separation_by_matrix(x, y), abs=1e-9)
    x[::7] = 0  # cosine 0 with every row, itself included
    assert rp.class_separation(x, y) == pytest.approx(separation_by_hand(x, y), abs=1e-9)


def test_separation_counts_classes_alike():
    x, y = uneven()
    more = torch.cat([x, x[y == 3].repeat(50, 1)]), torch.cat([y, y[y == 3].repeat(50)])
    assert rp.class_separation(*more) == pytest.approx(rp.class_separation(x, y), abs=1e-9)


def test_separation_does_not_depend_on_length_order_or_rotation():
    x, y = uneven()
    expected = rp.class_separation(x, y)
    mix = torch.randperm(len(y))
    turn = torch.linalg.qr(torch.randn(5, 5).double())[0]
    assert rp.class_separation(x[mix] @ turn, y[mix]) == pytest.approx(expected, abs=1e-9)
    assert rp.class_separation(x * torch.rand(len(x), 1) * 1e-200, y) == pytest.approx(expected, abs=1e-9)
    assert rp.class_separation(x.float(), y) == pytest.approx(expected, abs=1e-6)


def test_separation_of_known_directions():
    # Two classes at right angles: within 0, total 1/2. One direction only: nothing to divide by.
    square = torch.eye(2).repeat_interleave(3, 0)
    assert rp.class_separation(square, torch.tensor([0, 0, 0, 1, 1, 1])) == 1
    assert math.isnan(rp.class_separation(torch.ones(4, 3), torch.tensor([0, 0, 1, 1])))
    # Opposite halves within each class: both means are 0, so no distance is explained.
    cross = torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]])
    assert rp.class_separation(cross, torch.tensor([0, 0, 1, 1])) == 0


def test_separation_needs_no_pairs():
    """100,000 rows: their pairs would take 80 GB."""
    x, y = torch.randn(100_000, 16), torch.arange(100_000) % 10
    x[:, 0] += 4 * (y == 3)
    few = torch.cat([(y == k).nonzero()[:100, 0] for k in range(10)])
    assert rp.class_separation(x, y) == pytest.approx(rp.class_separation(x[few], y[few]), abs=0.03)
    assert 0 < rp.class_separation(x, y) < 0.2


# Selectivity.


def test_selectivity_is_that_by_hand():
    x, y = uneven(d=12)
    z = x.relu()
    z[:, 4] = 0  # never fires
    found = rp.csi(z, y)
    assert torch.allclose(found.values, csi_by_hand(z, y), atol=1e-6)
    assert found.values[4] == 0 and found.active.tolist() == [i != 4 for i in range(12)]
    assert found.average == pytest.approx(float(csi_by_hand(z, y).mean()), abs=1e-6)
    assert found.average_of_active == pytest.approx(found.average * 12 / 11, abs=1e-6)
    assert set(found.preferred.tolist()) <= {0, 2, 3}  # names of classes, not places in a list


def test_selectivity_of_known_neurons():
    y = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2])
    z = torch.zeros(8, 5)
    z[y == 1, 0] = 0.5  # every row of class 1, no other
    z[:, 1] = 2.0  # all alike
    z[0, 2] = 8.0  # one of the four rows of class 0
    z[y == 0, 3], z[y == 2, 3] = 3.0, 1.0  # π = 3, (0 + 1)/2
    found = rp.csi(z, y)
    assert torch.allclose(found.values, torch.tensor([1, 0, 0.25, 2.5 / 3.5, 0]), atol=1e-5)
    assert found.coverage[:4].tolist() == [1, 1, 0.25, 1] and found.preferred[[0, 2, 3]].tolist() == [1, 0, 0]
    plain = rp.csi(z, y, coverage=False)
    assert torch.allclose(plain.values[2], torch.tensor(1.0), atol=1e-5)


def test_activations_below_zero_do_not_fire():
    x, y = uneven(d=40)
    found = rp.csi(x, y)
    assert torch.allclose(found.values, rp.csi(x.relu(), y).values) and torch.equal(
        found.coverage, rp.csi(x.relu(), y).coverage
    )
    assert (found.values >= 0).all() and (found.values <= 1).all()
    kept = rp.csi(x - 1, y, negative="keep").values  # the formula as it stands is no index
    assert (kept < 0).any() or (kept > 1).any()


def test_bias_selectivity_is_that_of_the_attribute():
    x, y = uneven()
    a = (torch.arange(len(y)) % 2)[:, None]
    assert torch.equal(rp.bsi(x, a[:, 0]).values, rp.csi(x, a[:, 0]).values)
    assert torch.allclose(rp.bsi(x, a[:, 0]).values, csi_by_hand(x, a[:, 0]), atol=1e-6)
    assert not torch.allclose(rp.bsi(x, a[:, 0]).values, rp.csi(x, y).values)
    with pytest.raises(UserError, match=r"a\[:, k\]"):
        rp.bsi(x, a)
    with pytest.raises(UserError, match="at least two classes"):
        rp.csi(x, torch.zeros(len(x)).long())
    with pytest.raises(UserError, match="60 samples have labels of shape"):
        rp.csi(x, y[:5])


# Alignment.


def test_gap_is_that_of_all_pairs():
    x, y = uneven()
    aligned = torch.rand(len(y)) < 0.7
    aligned[(y == 3).nonzero()[:, 0]] = True  # a class without conflicting rows is left out
    found = rp.alignment_gap(x, y, aligned)
    assert found.gap == pytest.approx(gap_by_hand(x, y, aligned), abs=1e-9) and found.classes == 2
    x[::5] = 0
    assert rp.alignment_gap(x, y, aligned).gap == pytest.approx(gap_by_hand(x, y, aligned), abs=1e-9)
    assert rp.alignment_gap(x, y, torch.ones(60, dtype=torch.bool)).classes == 0
    assert math.isnan(rp.alignment_gap(x, y, ~torch.ones(60, dtype=torch.bool)).gap)
    with pytest.raises(UserError, match="True or False"):
        rp.alignment_gap(x, y, aligned.long())


@pytest.mark.parametrize("p", [0.75, 0.9])
def test_lemma_1_of_dcwp(p):
    """Rows of the biased environment against rows in which the spurious signs are coin flips, both of class y = 1."""
    spurious, wide, n = 15, 40, 20_000
    g = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(wide, spurious + 1, generator=g).double())[0]  # (Q, D + 1), semi-orthogonal

    def rows(agreement):
        signs = (torch.rand(n, spurious, generator=g) < agreement).double() * 2 - 1
        return torch.cat([torch.ones(n, 1).double(), signs], 1) @ turn.T

    features = torch.cat([rows(p), rows(0.5)])
    biased = torch.arange(2 * n) < n
    found = rp.alignment_gap(features, torch.ones(2 * n).long(), biased)
    assert found.among == pytest.approx((1 + spurious * (2 * p - 1) ** 2) / (spurious + 1), abs=0.005)
    assert found.across == pytest.approx(1 / (spurious + 1), abs=0.005)
    assert found.gap == pytest.approx(spurious * (2 * p - 1) ** 2 / (spurious + 1), abs=0.005)


def test_lemma_1_exactly():
    """Every pattern of D = 4 signs as often as its probability says: p = 3/4 in one environment, 1/2 in the other."""
    patterns = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=4))).double()
    times = (3 ** (patterns > 0).sum(1)).long()
    biased, free = (torch.cat([torch.ones(len(r), 1), r], 1) for r in (patterns.repeat_interleave(times, 0), patterns))
    rows = torch.cat([biased, free])
    found = rp.alignment_gap(rows, torch.zeros(len(rows)).long(), torch.arange(len(rows)) < len(biased))
    n = len(biased)
    expected = (1 + 4 * 0.25) / 5  # of any two rows; without the pairs of a row with itself it is a little less
    assert found.across == pytest.approx(1 / 5, abs=1e-12)
    assert found.among == pytest.approx((n * expected - 1) / (n - 1), abs=1e-12)


def test_the_mask_of_lemma_1_closes_the_gap():
    """The paper's remark: with every column of W but the invariant one masked out, the gap is gone."""
    world = linear_toy.load(D=6, p=0.8, n=400)
    x = torch.cat([world.train.x, world.test.x[:400]])
    y = torch.cat([world.train.y, world.test.y[:400]])
    biased = torch.arange(800) < 400
    turn = torch.linalg.qr(torch.randn(20, 7))[0]
    masked = turn.clone()
    masked[:, 1:] = 0
    assert rp.alignment_gap(x @ turn.T, y, biased).gap > 0.15
    assert abs(rp.alignment_gap(x @ masked.T, y, biased).gap) < 1e-9


# Networks and data.


def test_features_of_a_run_and_of_ones_own_module():
    data = replace(pictures(n=16), inputs=Images((0.1, 0.2, 0.3), (0.5, 0.6, 0.7)))
    net = build("simconv1", (3, 28, 28), 4).train()
    found = rp.features_of(net, data, "test", [3, 1])
    assert net.training and net.encoder[1].training
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (data.inputs.mean, data.inputs.std))
    x = (data.test.x[[3, 1]].float() / 255 - mean) / std
    net.eval()
    assert torch.allclose(found, net.features(x), atol=1e-5)
    assert torch.allclose(rp.features_of(net, data, "test", batch_size=5)[[3, 1]], found, atol=1e-5)
    own = OwnModule(3 * 28 * 28, 4).train()
    weights = {k: v.clone() for k, v in own.state_dict().items()}
    assert torch.allclose(rp.features_of(own, data, "test", [3, 1]), own.body(x), atol=1e-5)
    assert own.training and all(torch.equal(v, weights[k]) for k, v in own.state_dict().items())
    with pytest.raises(UserError, match="no split 'dev'"):
        rp.features_of(net, data, "dev")


def test_everything_at_once():
    data = tiny()
    own = OwnModule()
    found = rp.represent(own, data)
    z = rp.features_of(own, data)
    assert found["n"] == 4000 and found["features"] == 8
    assert found["class_separation"] == rp.class_separation(z, data.test.y)
    assert found["csi"] == rp.csi(z, data.test.y).average
    assert found["bsi"] == {"spurious": rp.bsi(z, data.test.a[:, 0]).average}
    aligned = data.test.y == data.test.a[:, 0]
    assert found["alignment_gap"] == {"spurious": rp.alignment_gap(z, data.test.y, aligned).gap}
    some = rp.represent(own, data, "val", [0, 3, 4, 9, 11])
    assert some["n"] == 5
    blind = replace(data, test=Split(data.test.x, data.test.y))
    assert rp.represent(own, blind)["bsi"] == {}


def test_a_shortcut_shows_in_selectivity():
    """A layer that holds only the spurious number of the toy answers to the bias; one that holds the core, to y."""
    data = tiny()
    net = nn.Sequential(nn.Linear(7, 2, bias=False), nn.ReLU(), nn.Linear(2, 2))
    for column, more, less in ((2, "bsi", "csi"), (0, "csi", "bsi")):
        net[0].weight.data = torch.zeros(2, 7)
        net[0].weight.data[:, column] = torch.tensor([1.0, -1.0])
        found = rp.represent(net, data)
        values = {"csi": found["csi"], "bsi": found["bsi"]["spurious"]}
        assert values[more] > values[less] + 0.2, column


# Coordinates for plots.


def test_projection_is_deterministic_capped_and_in_order():
    g = torch.Generator().manual_seed(1)
    x = torch.cat([torch.randn(40, 60, generator=g) + 30 * k for k in range(2)])
    first, again = rp.project(x, most=60), rp.project(x, most=60)
    assert torch.equal(first.xy, again.xy) and torch.equal(first.rows, again.rows)
    assert first.xy.shape == (60, 2) and first.rows.tolist() == sorted(set(first.rows.tolist()))
    assert rp.project(x, most=60, seed=1).rows.tolist() != first.rows.tolist()
    everything = rp.project(x)
    assert everything.rows.tolist() == list(range(80))
    one, other = everything.xy[:40], everything.xy[40:]
    spread = max((part - part.mean(0)).norm(dim=1).max() for part in (one, other))
    assert (one.mean(0) - other.mean(0)).norm() > spread  # the two clouds stay apart


def test_projection_makes_the_loss_of_t_sne_small():
    g = torch.Generator().manual_seed(2)
    x = torch.randn(40, 5, generator=g) + 4 * torch.arange(40)[:, None] // 20
    found = rp.project(x, perplexity=8)
    scaled = (x - x.mean(0)) / (x - x.mean(0)).abs().max()  # which changes no row's neighbours

    def loss(xy):
        return tsne_loss_by_hand(scaled.double(), xy.double(), 8)

    components = torch.pca_lowrank(scaled, 2)[0] * 10
    shuffled = found.xy[torch.randperm(40, generator=g)]
    assert loss(found.xy) < 0.7 * loss(components) and loss(found.xy) < 0.3 * loss(shuffled)
    grown = [loss(found.xy * s) for s in (0.5, 2.0)]  # neither smaller nor larger would do
    assert loss(found.xy) < min(grown)


def test_separation_of_one_class_is_refused():
    with pytest.raises(UserError, match="two classes"):
        rp.class_separation(torch.rand(5, 3), torch.zeros(5, dtype=torch.long))


def test_projection_of_odd_features():
    assert rp.project(torch.ones(10, 4)).xy.abs().max() == 0
    assert rp.project(torch.arange(10.0)[:, None]).xy.isfinite().all()
    assert rp.project(torch.rand(12, 3) * 1e30).xy.isfinite().all()
    with pytest.raises(UserError, match="at least 4 samples"):
        rp.project(torch.rand(3, 2))
    with pytest.raises(UserError, match="not finite"):
        rp.project(torch.full((5, 2), torch.nan))


# What is asked for wrongly.


def test_rows_may_be_a_mask_and_must_be_there():
    data, net = tiny(), OwnModule()
    mask = torch.arange(4000) % 7 == 0
    assert torch.equal(rp.features_of(net, data, "test", mask), rp.features_of(net, data, "test", mask.nonzero()[:, 0]))
    for rows, said in (
        (mask[:5], "one entry for each"),
        ([-1], "from 0 to 3999"),
        ([4000], "from 0"),
        ([0.5], "whole"),
    ):
        with pytest.raises(UserError, match=said):
            rp.features_of(net, data, "test", rows)
    with pytest.raises(UserError, match="two classes"):
        rp.represent(net, data, rows=data.test.y == 0)


def test_odd_features_labels_and_words_are_refused():
    x, y = torch.rand(6, 3), torch.tensor([0, 1, 0, 1, 0, 1])
    for bad in (torch.tensor([0.2, 0.7, 0, 1, 0, 1]), torch.tensor([math.nan, 1, 0, 1, 0, 1])):
        with pytest.raises(UserError, match="whole numbers"):
            rp.class_separation(x, bad)
    for odd in (torch.rand(6), torch.rand(6, 0)):
        for measure in (rp.class_separation, rp.csi):
            with pytest.raises(UserError, match="table"):
                measure(odd, y)
        with pytest.raises(UserError, match="table"):
            rp.project(odd)
    with pytest.raises(UserError, match="negative"):
        rp.csi(x, y, negative="bogus")
    with pytest.raises(UserError, match="projection"):
        rp.project(x, how="bogus")
    with pytest.raises(UserError, match="perplexity"):
        rp.project(x, perplexity=0)
    with pytest.raises(UserError, match="float64"):
        rp.represent(OwnModule().double(), tiny())
