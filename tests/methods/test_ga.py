"""GA: the weights of a batch, how often hard rows come, and that mining survives a stop."""

import math

import pytest
import torch

from spurless.core.data import Batch
from spurless.methods.ga import GA, aligned_weights, sampling_odds
from spurless.methods.group_inference.scores import EpochEnsemble
from spurless.train.feed import epoch_order
from spurless.train.fit import fit
from spurless.train.observe import Interrupted
from tests.support.mining import finish, open_run
from tests.support.runs import StopAt, same_weights
from tests.support.worlds import tiny

CPU = {"device": "cpu", "progress": False}


def test_weights_of_a_batch_by_hand():
    p = torch.tensor([0.1, 0.5, 0.8, 0.9, 0.6])
    hard = torch.tensor([True, True, False, False, False])
    w = aligned_weights(-p.log(), hard, gamma=1.6)
    easy = (0.9 + 0.5) / (1.6 * (0.2 + 0.1 + 0.4))  # 1.25
    total = 2 + 3 * easy
    assert w.tolist() == pytest.approx([5 / total] * 2 + [5 * easy / total] * 3, rel=1e-5)
    assert float(w.mean()) == pytest.approx(1)


@pytest.mark.parametrize("gamma", [0.5, 1.0, 1.6])
def test_hard_rows_pull_gamma_times_as_strongly_as_easy_ones(gamma):
    """Measured on the gradient itself: at its own logit a row's loss pulls with w (1 − p) / n."""
    logits = torch.randn(40, 5, requires_grad=True)
    y, hard = torch.randint(5, (40,)), torch.rand(40) < 0.1
    assert 0 < hard.sum() < 40
    loss = torch.nn.functional.cross_entropy(logits, y, reduction="none")
    (aligned_weights(loss, hard, gamma) * loss).mean().backward()
    pull = -logits.grad[torch.arange(40), y]
    assert float(pull[hard].sum() / pull[~hard].sum()) == pytest.approx(gamma, rel=1e-4)


def test_no_gradient_flows_through_the_weights():
    loss = torch.rand(6, requires_grad=True)
    w = aligned_weights(loss, torch.tensor([True, False] * 3), 1.6)
    assert not w.requires_grad


def test_a_batch_of_one_kind_survives():
    loss = torch.tensor([0.3, 2.0, 0.0], requires_grad=True)
    for hard, want in ((torch.zeros(3).bool(), [0, 0, 0]), (torch.ones(3).bool(), [1, 1, 1])):
        w = aligned_weights(loss, hard, 1.6)
        (w * loss).mean().backward()
        assert w.tolist() == pytest.approx(want) and bool(torch.isfinite(loss.grad).all())
    perfect = aligned_weights(torch.zeros(3), torch.tensor([True, False, False]), 1.6)  # p = 1 everywhere
    assert bool(torch.isfinite(perfect).all())


@pytest.mark.parametrize(("n", "n_hard", "size", "want"), [(1000, 25, 64, 2), (1000, 3, 64, 1), (640, 20, 64, 3)])
def test_a_batch_holds_the_published_number_of_hard_rows_on_average(n, n_hard, size, want):
    hard = torch.zeros(n).bool()
    hard[torch.randperm(n)[:n_hard]] = True
    odds = sampling_odds(hard, size)
    assert want == math.floor(n_hard / n * size) + 1
    assert float(odds.sum()) == pytest.approx(1)
    assert float(odds[hard].sum()) * size == pytest.approx(want)
    assert len(odds[hard].unique()) == len(odds[~hard].unique()) == 1
    drawn = torch.cat([epoch_order(n, odds, None, torch.Generator().manual_seed(s)) for s in range(60)])
    share = want / size
    assert abs(float(hard[drawn].float().mean()) - share) < 5 * math.sqrt(share / len(drawn))


def test_one_kind_alone_is_shuffled():
    assert sampling_odds(torch.zeros(9).bool(), 4) is None
    assert sampling_odds(torch.ones(9).bool(), 4) is None


def walk(data, spurious_weight, **settings):
    """The last stage of a run whose mining networks look at the spurious number alone, this strongly."""
    run, stages = open_run(data), []

    def look(stage):
        stages.append(stage)
        if len(stages) == 1:
            for net in run.modules[:2]:
                with torch.no_grad():
                    net.head.bias.zero_()
                    net.head.weight.zero_()[:, 2] = torch.tensor([-1.0, 1.0]) * spurious_weight

    finish(GA(mining_epochs=1, **settings).stages(run), look)
    return run, stages


def test_the_last_stage_uses_what_was_mined():
    data = tiny(n=200, rho=0.1)
    run, stages = walk(data, 3.0)
    mined, y = run.findings["mined"], data.train.y
    conflicting = data.train.a[:, 0] != y
    assert (mined == conflicting).float().mean() > 0.97 and 0 < mined.sum() < 200
    mining, ga = stages
    assert (mining.select, ga.select) == (False, True)
    assert ga.model is run.modules[2] and ga.model is not mining.model  # a fresh network
    assert torch.equal(ga.sample_weights, sampling_odds(mined, 32))
    idx = torch.cat([torch.nonzero(mined)[:3, 0], torch.nonzero(~mined)[:9, 0]])
    loss = ga.loss(Batch(data.train.x[idx], y[idx], None, idx, torch.tensor(0.0)))
    rows = -torch.log_softmax(ga.model(data.train.x[idx]), 1)[torch.arange(12), y[idx]]
    pull = 1 - torch.exp(-rows)
    easy = pull[:3].sum() / (1.6 * pull[3:].sum())
    want = (rows[:3].sum() + easy * rows[3:].sum()) / (3 + 9 * easy)
    assert loss.item() == pytest.approx(want.item(), rel=1e-5)


def test_a_batch_of_all_rows_is_no_larger_than_they_are():
    data = tiny(n=20, rho=0.15)
    run, stages = walk(data, 3.0)
    mined = run.findings["mined"]
    assert 0 < mined.sum() < 20 < data.recipe.batch_size
    expected = (int(mined.sum()) + 1) / 20  # of a batch of 20: those that are there, and one more
    assert float(stages[-1].sample_weights[mined].sum()) == pytest.approx(expected)


def test_the_settings_of_mining_reach_the_miner(monkeypatch):
    given, real = [], EpochEnsemble.infer

    def note(self, run):
        given.append(self)
        return real(self, run)

    monkeypatch.setattr(EpochEnsemble, "infer", note)
    walk(tiny(n=40), 3.0, eta=0.1, tau=0.6, unlearn=0.5)
    assert given == [EpochEnsemble(eta=0.1, tau=0.6, epochs=1, unlearn=0.5)]


def test_nothing_mined_is_plain_training():
    data = tiny()
    run, stages = walk(data, 0.0)  # p = 1/2 everywhere: no row reaches τ
    assert run.findings["mined"].sum() == 0
    ga, idx = stages[-1], torch.arange(10)
    assert ga.sample_weights is None
    loss = ga.loss(Batch(data.train.x[idx], data.train.y[idx], None, idx, torch.tensor(0.0)))
    want = torch.nn.functional.cross_entropy(ga.model(data.train.x[idx]), data.train.y[idx])
    assert loss.item() == pytest.approx(want.item(), rel=1e-6)


@pytest.mark.parametrize("step", [3, 10, 20, 31])  # in the first and a later mining epoch, and in the last stage
def test_scores_of_finished_epochs_survive_a_stop(tmp_path, step):
    method = {"name": "ga", "mining_epochs": 3, "tau": 0.6}
    whole = fit(method, tiny(), net="mlp", **CPU)
    with pytest.raises(Interrupted):
        fit(method, tiny(), net="mlp", out=tmp_path / "run", device="cpu", progress=StopAt(step))
    resumed = fit(method, tiny(), net="mlp", out=tmp_path / "run", **CPU)
    assert whole.mining == resumed.mining and whole.mining["mined"]["n_mined"] > 0
    assert same_weights(whole.classifier, resumed.classifier)


def test_it_helps_the_conflicting_rows_of_the_toy():
    plain, ga = (fit(m, "toy", net="linear", **CPU) for m in ("erm", {"name": "ga", "gamma": 1.0}))
    assert ga.mining["mined"]["precision"] > 90
    assert ga.scores["worst_group"] > plain.scores["worst_group"] + 40
    assert ga.scores["unbiased"] > 85
