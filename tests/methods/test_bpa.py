"""BPA: weights by hand for one update and more, in both forms."""

import math

import pytest
import torch

from spurless.methods.bpa import BPA, ExponentialWeights, RunningWeights
from spurless.train.fit import fit
from tests.support.mining import finish, open_run, rows_of
from tests.support.runs import CPU
from tests.support.worlds import tiny

CLUSTER = torch.tensor([0, 0, 0, 1, 2, 2])  # N = 3, 1, 2


def test_one_update_by_hand_as_in_the_paper():
    weigh = RunningWeights(CLUSTER, 3, momentum=0.25)
    weights = weigh(torch.tensor([0, 1, 3]), torch.tensor([1.0, 5.0, 3.0]))
    # Cluster 0: mean loss 3, of 3 rows: 1. Cluster 1: loss 3, of 1 row: 3. Their mean over the batch is 5/3.
    assert weights.tolist() == pytest.approx([0.6, 0.6, 1.8])
    assert weigh.loss.tolist() == pytest.approx([3, 3, 0])


def test_a_running_mean_keeps_its_share_and_absent_clusters_stay():
    weigh = RunningWeights(CLUSTER, 3, momentum=0.25)
    weigh(torch.tensor([0, 1, 3]), torch.tensor([1.0, 5.0, 3.0]))
    weights = weigh(torch.tensor([2, 4]), torch.tensor([7.0, 2.0]))
    assert weigh.loss.tolist() == pytest.approx([0.75 * 3 + 0.25 * 7, 3, 2])  # the third cluster's first visit
    raw = [4 / 3, 2 / 2]
    assert weights.tolist() == pytest.approx([r / (sum(raw) / 2) for r in raw])


def test_one_update_by_hand_as_in_the_code():
    weigh = ExponentialWeights(CLUSTER, 3, step=0.5)
    weights = weigh(torch.tensor([0, 3]), torch.tensor([9.0, 1.0]))
    # Not every sample has been visited, so that size alone asks: 1/3 and 1/1, over their mean 1/2 and 3/2.
    raw = [0.5 * math.exp(0.5 * 0.5), 1.5 * math.exp(0.5 * 1.5)]
    assert weights.tolist() == pytest.approx([r / (sum(raw) / 2) for r in raw])


def test_the_code_form_by_hand_once_every_sample_was_visited_and_nothing_accumulates():
    weigh = ExponentialWeights(CLUSTER, 3, step=0.05)
    weigh(torch.arange(6), torch.tensor([1.0, 2.0, 3.0, 4.0, 1.0, 1.0]))
    # Clusters' mean losses 2, 4 and 1, sizes 3, 1 and 2. Of samples 0, 3 and 4: 2/3, 4/1 and 1/2, over their mean:
    # u = 12/31, 72/31 and 9/31; u · exp(0.05 u) = 0.39466, 2.60859 and 0.29457, whose mean is 1.09927.
    for _ in range(3):  # the same losses again: the same weights again
        weights = weigh(torch.tensor([0, 3, 4]), torch.tensor([1.0, 4.0, 1.0]))
        assert weights.tolist() == pytest.approx([0.35902, 2.37301, 0.26797], abs=1e-5)


class SlowCode:
    """The released code's bookkeeping, in loops; clusters' losses are read after every batch."""

    def __init__(self, cluster, step):
        self.cluster, self.step = cluster.tolist(), step
        self.last = [None] * len(cluster)

    def __call__(self, idx, loss):
        number = [self.cluster.count(k) for k in range(max(self.cluster) + 1)]
        raw = [len(self.cluster) / number[self.cluster[i]] for i in idx]
        if None not in self.last:
            mean = [
                sum(x for x, own in zip(self.last, self.cluster, strict=True) if own == k) / n
                for k, n in enumerate(number)
            ]
            raw = [r * mean[self.cluster[i]] / sum(mean) for r, i in zip(raw, idx, strict=True)]
        u = [r / (sum(raw) / len(raw)) for r in raw]
        new = [x * math.exp(self.step * x) for x in u]
        for i, of_sample in zip(idx, loss, strict=True):
            self.last[i] = of_sample
        return [value / (sum(new) / len(new)) for value in new]


def test_the_code_form_equals_a_slow_loop_over_three_epochs():
    g = torch.Generator().manual_seed(0)
    cluster = torch.randint(4, (24,), generator=g)
    fast, slow = ExponentialWeights(cluster, 4, 0.3), SlowCode(cluster, 0.3)
    for _ in range(3):
        for idx in torch.randperm(24, generator=g).split(5):
            loss = torch.rand(len(idx), generator=g) * 3
            assert fast(idx, loss).tolist() == pytest.approx(slow(idx.tolist(), loss.tolist()), rel=1e-4)
    assert float(fast.left) == 0


def test_weights_of_the_code_form_do_not_overflow():
    cluster = torch.cat([torch.zeros(4095, dtype=torch.long), torch.ones(1, dtype=torch.long)])
    weigh = ExponentialWeights(cluster, 2, step=0.05)
    for _ in range(20):
        weights = weigh(torch.arange(4096), torch.ones(4096))
    assert torch.isfinite(weights).all() and float(weights.mean()) == pytest.approx(1, rel=1e-3)
    assert float(weights[-1]) > 4000  # exp(0.05 · 2048) times its share


@pytest.mark.parametrize("kind", [RunningWeights, ExponentialWeights])
def test_losses_of_nought_give_no_nan_and_state_is_saved(kind):
    weigh = kind(CLUSTER, 4, 0.3)  # the fourth cluster has no row
    for _ in range(2):
        assert torch.isfinite(weigh(torch.arange(6), torch.zeros(6))).all()
    weigh(torch.arange(6), torch.arange(6.0))
    again = kind(CLUSTER, 4, 0.3)
    again.load_state_dict(weigh.state_dict())
    batch = torch.tensor([5, 0, 3]), torch.tensor([1.0, 2.0, 3.0])
    assert torch.equal(again(*batch), weigh(*batch))


@pytest.mark.parametrize("form", ["paper", "code"])
def test_the_loss_is_the_weighted_mean_and_weights_send_no_gradient(form):
    data = tiny(n=60)
    run, stages = open_run(data), []
    finish(BPA(clusters=2, form=form).stages(run), stages.append)
    weighted = stages[-1]
    assert [s.select for s in stages] == [False, True] and weighted.model is not stages[0].model
    b = rows_of(data, range(20))
    kind = RunningWeights if form == "paper" else ExponentialWeights
    (kept,) = (m for m in run.modules if isinstance(m, kind))  # part of every checkpoint
    twin = kind(kept.cluster, len(kept.size), 0.3 if form == "paper" else 0.05)
    rows = torch.nn.functional.cross_entropy(weighted.model(b.x), b.y, reduction="none")
    expected = (twin(b.idx, rows.detach()) * rows).mean()
    value = weighted.loss(b)
    torch.testing.assert_close(value, expected)
    grads = [torch.autograd.grad(v, list(weighted.model.parameters())) for v in (value, expected)]
    torch.testing.assert_close(*grads)


def test_groups_are_eight_clusters_of_each_class_and_stay():
    data = tiny(n=400)
    run = open_run(data)
    finish(BPA().stages(run))
    groups = run.guesses["groups"]
    assert int(groups.max()) < 16
    for c in (0, 1):
        assert set(groups[data.train.y == c].tolist()) == set(range(8 * c, 8 * c + 8))


@pytest.mark.parametrize("form", ["paper", "code"])
def test_it_helps_on_the_known_answer_world(form):
    data, recipe = tiny(n=1000), {"epochs": 10}
    bpa, erm = (fit(m, data, net="linear", recipe=recipe, **CPU) for m in (BPA(form=form), "erm"))
    assert bpa.scores["conflicting"] > erm.scores["conflicting"] + 20
