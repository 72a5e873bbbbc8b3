"""GroupDRO, RS and GC-DRO: the weights of groups and rows by hand, and that no group is forgotten."""

import math
import sys
from dataclasses import dataclass, replace
from types import ModuleType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spurless.core.data import Bundle, Split
from spurless.core.errors import UserError
from spurless.core.recipe import Recipe
from spurless.core.seeds import derive
from spurless.methods.gc_dro import GCDRO, WorstSamples, sample_weights
from spurless.methods.group_dro import GroupDRO, WorstGroup, cvar_weights, group_means, train_for_worst_group
from spurless.methods.group_inference import CLASSES, Groups, Inference
from spurless.methods.parts.losses import ce_rows
from spurless.methods.rs import RS, subsample
from spurless.nets import build
from spurless.registry import make_method
from spurless.train.engine_run import EngineRun
from spurless.train.feed import epoch_order
from spurless.train.fit import fit
from spurless.train.networks import network_maker
from spurless.train.observe import Interrupted
from spurless.train.optim import make_optimizer
from tests.support.runs import CPU, StopAt, same_weights
from tests.support.worlds import tiny


def batch(*pairs):
    """Losses, which take gradients, and groups."""
    loss, group = zip(*pairs, strict=True)
    return torch.tensor(loss, requires_grad=True), torch.tensor(group)


def engine_run(data, recipe=None):
    make = network_maker("linear", data.shape, len(data.classes), seed=0)
    return EngineRun(data, recipe or Recipe(), 0, torch.device("cpu"), make)


def hundred_groups(rows=3):
    """Ten classes, ten values, each pair the same number of times."""
    y = torch.arange(100).repeat(rows) // 10
    a = torch.arange(100).repeat(rows) % 10
    x = torch.randn(len(y), 4, generator=torch.Generator().manual_seed(0))
    return Bundle("hundred", Split(x, y, a[:, None]))


def bare(data):
    """The same data without any bias attribute."""
    splits = {name: split.blinded() for name, split in data.splits.items()}
    return replace(data, **splits, attributes=(), values=(), aligned=())


@pytest.fixture
def guess(monkeypatch):
    """Put an inference in the place of `eiil`, which splits each class by the sign of an input."""
    fake = ModuleType("spurless.methods.group_inference.fake")

    class Fake(Inference):
        def infer(self, run):
            part = (run.data.train.x[:, 0] > 0).long()
            fake.saw_labels = run.data.train.a is not None
            return Groups(run.data.train.y * 2 + part, None, 2 * len(run.data.classes))
            yield

    Fake.__module__, fake.Fake = fake.__name__, Fake
    monkeypatch.setitem(sys.modules, "spurless.methods.group_inference.fake", fake)
    monkeypatch.setitem(CLASSES, "eiil", f"{fake.__name__}:Fake")
    return fake


# GroupDRO, exponentiated gradient


def test_q_by_hand_over_three_batches_one_of_which_lacks_a_group():
    worst = WorstGroup(torch.tensor([8, 4, 2]), GroupDRO(eta=0.5))
    q = [1 / 3, 1 / 3, 1 / 3]
    batches = [
        ([(1.0, 0), (3.0, 0), (4.0, 1), (0.5, 2)], [2.0, 4.0, 0.5]),
        ([(1.0, 0), (2.0, 2), (4.0, 2)], [1.0, None, 3.0]),  # group 1 is absent: its factor is 1
        ([(0.5, 1), (1.5, 2), (0.1, 0)], [0.1, 0.5, 1.5]),
    ]
    for pairs, means in batches:
        raised = [w if m is None else w * math.exp(0.5 * m) for w, m in zip(q, means, strict=True)]
        q = [w / sum(raised) for w in raised]
        loss, group = batch(*pairs)
        value = worst(loss, group)
        assert worst.q.tolist() == pytest.approx(q, rel=1e-5)
        assert float(value.detach()) == pytest.approx(
            sum(w * (m or 0) for w, m in zip(q, means, strict=True)), rel=1e-5
        )
        value.backward()  # through the losses alone: q is a constant
        count = [group.tolist().count(g) for g in range(3)]
        assert loss.grad.tolist() == pytest.approx([q[g] / count[g] for g in group.tolist()], rel=1e-5)


def test_the_size_adjustment_raises_small_groups_but_not_absent_ones():
    worst = WorstGroup(torch.tensor([4, 16, 1]), GroupDRO(eta=1.0, adjustment=2.0))
    value = worst(*batch((1.0, 0), (1.0, 1)))
    raised = [math.exp(1 + 2 / 2), math.exp(1 + 2 / 4), 1.0]
    q = [v / sum(raised) for v in raised]
    assert worst.q.tolist() == pytest.approx(q, rel=1e-5)
    assert float(value.detach()) == pytest.approx(q[0] + q[1], rel=1e-5)  # the value is that of the losses alone


def test_a_group_without_rows_takes_no_weight():
    worst = WorstGroup(torch.tensor([3, 0, 5]), GroupDRO(adjustment=1.0))
    assert worst.q.tolist() == pytest.approx([0.5, 0, 0.5])
    value = worst(*batch((1.0, 0), (1.0, 2)))
    assert float(value.detach()) == pytest.approx(1.0)  # all weight lies on losses that there are
    assert worst.q[1] == 0 and torch.isfinite(worst.q).all()


def test_a_weight_that_fell_out_of_range_comes_back():
    worst = WorstGroup(torch.tensor([1, 1]), GroupDRO(eta=1.0))
    for _ in range(3):
        worst(*batch((60.0, 0), (0.0, 1)))
    assert worst.q.tolist() == [1.0, 0.0]  # e^-180 is no float
    for _ in range(4):
        worst(*batch((0.0, 0), (60.0, 1)))
    assert worst.q.tolist() == pytest.approx([0, 1])


def test_huge_losses_leave_finite_weights():
    worst = WorstGroup(torch.tensor([1, 1]), GroupDRO(eta=1.0))
    value = worst(*batch((1e4, 0), (1.0, 1)))
    assert worst.q.tolist() == [1.0, 0.0] and float(value.detach()) == 1e4


def test_every_one_of_a_hundred_groups_gets_its_loss():
    g = torch.Generator().manual_seed(1)
    group = torch.arange(100).repeat(3)[torch.randperm(300, generator=g)]
    loss = torch.rand(300, generator=g)
    mean, count = group_means(loss, group, 100)
    for k in range(100):
        assert float(mean[k]) == pytest.approx(float(loss[group == k].mean())) and count[k] == 3
    for dro in (GroupDRO(), GroupDRO("greedy", alpha=1.0)):
        worst, rows = WorstGroup(torch.full((100,), 3), dro), loss.clone().requires_grad_()
        worst(rows, group).backward()
        assert torch.allclose(rows.grad, worst.q[group] / 3) and bool((rows.grad > 0).all())
        assert len(worst.q) == 100 and float(worst.q.sum()) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("variant", ["eg", "greedy"])
def test_a_run_visits_every_one_of_a_hundred_groups(variant):
    @dataclass(frozen=True)
    class Watch(GroupDRO):
        def stages(self, run):
            Watch.run = run
            return (yield from super().stages(run))

    recipe = Recipe("sgd", 1e-3, batch_size=64, epochs=3)
    fit(Watch(variant), hundred_groups(), net="linear", recipe=recipe, **CPU)
    worst = next(m for m in Watch.run.modules if isinstance(m, WorstGroup))
    if variant == "eg":
        assert len(worst.q.unique()) > 90 and float(worst.q.min()) > 0
    else:
        assert worst.visited.tolist() == [1.0] * 100 and bool((worst.running > 0).all())


# GroupDRO, greedy


def slow_cvar(loss, share, alpha):
    """Fill the budget from the worst group on."""
    weights, left = [0.0] * len(loss), alpha
    for g in sorted(range(len(loss)), key=lambda g: -loss[g]):
        taken = min(left, share[g])
        weights[g] = taken / share[g] / alpha if share[g] else 0.0
        left -= taken
    return weights


sizes = st.lists(st.integers(0, 50), min_size=1, max_size=12).filter(any)


@settings(max_examples=80, deadline=None)
@given(sizes, st.floats(0.01, 1), st.randoms(use_true_random=False))
def test_greedy_weights_sum_to_one_and_respect_alpha(size, alpha, random):
    share = torch.tensor(size, dtype=torch.float) / sum(size)
    loss = torch.tensor([random.uniform(0, 5) for _ in size])
    h = cvar_weights(loss, share, alpha)
    assert float((h * share).sum()) == pytest.approx(1, abs=1e-4)
    assert float(h.min()) >= 0 and float(h.max()) <= (1 / alpha) * (1 + 1e-5)
    assert h.tolist() == pytest.approx(slow_cvar(loss.tolist(), share.tolist(), alpha), abs=2e-4 / alpha)


def test_greedy_by_hand_over_two_batches():
    worst = WorstGroup(torch.tensor([5, 3, 2]), GroupDRO("greedy", alpha=0.4, memory=0.5))
    loss, group = batch((1.0, 0), (3.0, 0), (4.0, 1))  # running 2, 4 and none: group 1 first, then group 0
    h = [0.1 / 0.5 / 0.4, 1 / 0.4, 0.0]
    value = worst(loss, group)
    assert worst.sample_weights.tolist() == pytest.approx(h, rel=1e-4)
    assert float(value.detach()) == pytest.approx((h[0] * 4 + h[1] * 4) / 3, rel=1e-4)
    worst(*batch((6.0, 2), (0.0, 1)))  # running 2, (4 + 0)/2 = 2, 6; of equals the first comes first
    assert worst.running.tolist() == pytest.approx([2.0, 2.0, 6.0])
    assert worst.sample_weights.tolist() == pytest.approx([0.2 / 0.5 / 0.4, 0.0, 2.5], rel=1e-4)
    assert float(worst.q.sum()) == pytest.approx(1, rel=1e-5)


def test_the_least_weight_of_a_row():
    worst = WorstGroup(torch.tensor([9, 1]), GroupDRO("greedy", alpha=0.1, least=0.25))
    worst(*batch((1.0, 0), (2.0, 1)))
    assert worst.sample_weights.tolist() == pytest.approx([0.25, 10.0], rel=1e-4)


def test_the_adjustment_is_for_groups_that_were_visited():
    worst = WorstGroup(torch.tensor([4, 4, 1]), GroupDRO("greedy", alpha=0.2, adjustment=100.0))
    worst(*batch((1.0, 0), (2.0, 1)))
    assert worst.sample_weights.argmax() == 1


# GroupDRO, the stage


@pytest.mark.parametrize(
    ("dro", "balanced"),
    [
        (GroupDRO(), True),
        (GroupDRO(sampling="rows"), False),
        (GroupDRO("greedy"), False),
        (GroupDRO("greedy", sampling="groups"), True),
    ],
)
def test_how_rows_are_drawn(dro, balanced):
    data = tiny(n=400)
    group = data.train.y * 2 + data.train.a[:, 0]
    run = engine_run(data)
    stage = next(train_for_worst_group(run, Groups(group, None, 4), dro))
    share = next(m for m in run.modules if isinstance(m, WorstGroup)).share
    if not balanced:
        assert stage.sample_weights is None
        assert share.tolist() == pytest.approx((torch.bincount(group, minlength=4) / 400).tolist())
        return
    assert share.tolist() == [0.25] * 4
    orders = [epoch_order(400, stage.sample_weights, None, torch.Generator().manual_seed(k)) for k in range(50)]
    drawn = torch.bincount(group[torch.cat(orders)], minlength=4) / 20_000
    assert (drawn - 0.25).abs().max() < 4 * math.sqrt(0.25 * 0.75 / 20_000)


@pytest.mark.parametrize("variant", ["eg", "greedy"])
def test_a_run_equals_a_loop_written_by_hand(variant):
    data, recipe = tiny(n=70, rho=0.2), Recipe("sgd", 0.05, batch_size=16, epochs=3)
    dro = GroupDRO(variant, eta=0.2, alpha=0.3, adjustment=0.5)
    result = fit(dro, data, net="linear", recipe=recipe, seed=3, **CPU)
    torch.manual_seed(derive(3, "net", 0))
    net = build("linear", data.shape, 2)
    optimizer = make_optimizer(list(net.parameters()), recipe, torch.device("cpu"))
    group = (data.train.y * 2 + data.train.a[:, 0]).tolist()
    size = [group.count(g) for g in range(4)]
    odds = torch.tensor([1 / size[g] for g in group]) if variant == "eg" else None
    q, running = dict.fromkeys(range(4), 0.25), {}
    for epoch in range(3):
        order = epoch_order(70, odds, None, torch.Generator().manual_seed(derive(3, "order", 0, epoch)))
        for rows in order.split(16):
            losses = ce_rows(net(data.train.x[rows]), data.train.y[rows])
            members = {g: [i for i, r in enumerate(rows.tolist()) if group[r] == g] for g in range(4)}
            means = {g: losses[i].mean() for g, i in members.items() if i}
            for g, m in means.items():
                q[g] *= math.exp(0.2 * (m.item() + 0.5 / math.sqrt(size[g])))
                running[g] = 0.9 * running[g] + 0.1 * m.item() if g in running else m.item()
            q = {g: w / sum(q.values()) for g, w in q.items()}
            if variant == "eg":
                loss = sum(q[g] * m for g, m in means.items())
            else:
                known = [running[g] + 0.5 / math.sqrt(size[g]) if g in running else 0 for g in range(4)]
                h = slow_cvar(known, [n / 70 for n in size], 0.3)
                loss = sum(h[group[r]] * losses[i] for i, r in enumerate(rows.tolist())) / len(rows)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    for mine, theirs in zip(net.parameters(), result.classifier.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5)


# Groups that are guessed, and labels


@pytest.mark.parametrize("name", ["group_dro", "gc_dro", "rs"])
def test_known_groups_need_labels_and_guessed_ones_do_not(name, guess):
    data = bare(tiny(n=96))
    with pytest.raises(UserError, match=f"{name} needs bias labels and toy has none"):
        fit(name, data, **CPU)
    result = fit({"name": name, "groups": "eiil"}, data, **CPU)
    assert result.status == "done" and result.labels_used == "none"
    fit({"name": name, "groups": "eiil"}, tiny(n=96), **CPU)  # where there are labels they are hidden all the same
    assert not guess.saw_labels
    recipe = replace(data.recipe, selection="val_worst_group")
    assert fit({"name": name, "groups": "eiil"}, tiny(n=96), recipe=recipe, **CPU).labels_used == "validation"
    assert fit(name, tiny(n=96), recipe=recipe, **CPU).labels_used == "training"


def test_the_groups_that_are_trained_on_are_those_that_were_found(guess):
    data = tiny(n=200)
    found = next(RS(groups="eiil").stages(engine_run(data.blinded("selection"))))
    group = data.train.y * 2 + (data.train.x[:, 0] > 0)
    assert torch.equal(found.sample_weights, 1 / torch.bincount(group)[group].double())


@pytest.mark.parametrize("method", [GroupDRO(), GroupDRO("greedy"), GCDRO(), RS(), RS(how="subsample"), RS(by="class")])
def test_no_group_but_the_aligned_ones_is_survived(method):
    assert fit(method, tiny(n=64, rho=0.0), **CPU).status == "done"


# RS


def test_groups_are_drawn_equally_often():
    data = tiny(n=500, rho=0.1)
    stage = next(RS().stages(engine_run(data)))
    group = data.train.y * 2 + data.train.a[:, 0]
    assert len(torch.bincount(group).unique()) > 1
    orders = [epoch_order(500, stage.sample_weights, None, torch.Generator().manual_seed(k)) for k in range(40)]
    drawn = torch.bincount(group[torch.cat(orders)], minlength=4) / 20_000
    assert (drawn - 0.25).abs().max() < 4 * math.sqrt(0.25 * 0.75 / 20_000)


def test_classes_are_drawn_equally_often_without_labels():
    data = bare(tiny(n=100))
    y = (torch.arange(100) < 20).long()
    data = replace(data, train=replace(data.train, y=y))
    method = make_method({"name": "rs", "by": "class"})
    assert method.labels == "none"
    stage = next(method.stages(engine_run(data)))
    assert stage.sample_weights.tolist() == pytest.approx([1 / 20] * 20 + [1 / 80] * 80)
    assert fit(method, data, **CPU).labels_used == "none"


def test_subsampling_cuts_every_group_down_to_the_smallest():
    group = torch.tensor([0] * 50 + [2] * 7 + [5] * 20)
    rows = subsample(group, torch.Generator().manual_seed(0))
    assert torch.bincount(group[rows]).tolist() == [7, 0, 7, 0, 0, 7]
    assert len(rows.unique()) == 21 and {50, 51, 52, 53, 54, 55, 56} < set(rows.tolist())
    assert not torch.equal(rows, subsample(group, torch.Generator().manual_seed(1)))
    often = torch.zeros(77)
    for k in range(400):
        often[subsample(group, torch.Generator().manual_seed(k))] += 1
    assert bool((often[:50] > 0).all())  # any row may be kept, not always the first ones


def test_subsampled_rows_are_drawn_once():
    data = tiny(n=200, rho=0.2)
    stages = [next(RS(how="subsample").stages(engine_run(data))) for _ in range(2)]
    assert torch.equal(stages[0].rows, stages[1].rows) and stages[0].sample_weights is None
    group = (data.train.y * 2 + data.train.a[:, 0])[stages[0].rows]
    assert len(torch.bincount(group, minlength=4).unique()) == 1


# GC-DRO


def slow_sample_weights(loss, group, beta, least):
    """The mass of each group, handed out from its worst row on."""
    weights = [least] * len(loss)
    for g in set(group):
        rows = [i for i in range(len(loss)) if group[i] == g]
        left = len(rows) * (1 - least)
        for i in sorted(rows, key=lambda i: -loss[i]):
            given = min(left, 1 / beta - least)
            weights[i], left = least + given, left - given
    return weights


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=60),
    st.floats(0.05, 1),
    st.floats(0, 1),
    st.randoms(use_true_random=False),
)
def test_sample_weights_against_a_loop(group, beta, least, random):
    loss = torch.tensor([random.uniform(0, 5) for _ in group])
    of, size = torch.tensor(group), torch.bincount(torch.tensor(group), minlength=5)
    w = sample_weights(loss, of, size, beta, least)
    assert w.tolist() == pytest.approx(slow_sample_weights(loss.tolist(), group, beta, least), abs=1e-4)
    means, count = group_means(w, of, 5)
    assert bool(torch.isclose(means[count > 0], torch.tensor(1.0), atol=1e-4).all())


def test_row_weights_of_the_released_settings_by_hand():
    """beta and the least weight are 0.1: of 110 rows, 10 weigh 10 and 100 weigh 0.1, which adds up to 110."""
    loss = torch.linspace(0, 1, 110)
    w = sample_weights(loss, torch.zeros(110, dtype=torch.long), torch.tensor([110]), 0.1, 0.1)
    assert w[100:].tolist() == pytest.approx([10.0] * 10) and w[:100].tolist() == pytest.approx([0.1] * 100)
    few = sample_weights(loss[:4], torch.zeros(4, dtype=torch.long), torch.tensor([4]), 0.1, 0.1)
    assert few.tolist() == pytest.approx([0.1, 0.1, 0.1, 3.7])  # not 0.1 for all: a small group counts as others do


def test_row_weights_change_when_an_epoch_begins_and_not_before():
    group, size = torch.zeros(4, dtype=torch.long), torch.tensor([4])
    rows = WorstSamples(group, size, 4, GCDRO(beta=0.25, least=0.0, memory=0.5))
    first, second = torch.tensor([0, 1, 2]), torch.tensor([3])
    assert rows.epoch_begins()
    assert rows(first, torch.tensor([1.0, 2.0, 8.0])).tolist() == [1, 1, 1]
    assert not rows.epoch_begins()
    assert rows(second, torch.tensor([6.0])).tolist() == [1]
    assert rows.epoch_begins()
    assert rows(first, torch.tensor([9.0, 0.0, 0.0])).tolist() == [0, 0, 4]  # row 2 was the worst; now (1 + 9)/2 = 5
    assert rows(second, torch.tensor([6.0])).tolist() == [0]
    assert rows.value.tolist() == [5.0, 1.0, 4.0, 6.0]
    assert rows(torch.tensor([3]), torch.tensor([0.0])).tolist() == [4]


def test_a_gc_dro_run_equals_a_loop_written_by_hand():
    data, recipe = tiny(n=70, rho=0.2), Recipe("sgd", 0.05, batch_size=16, epochs=4)
    method = GCDRO(alpha=0.3, beta=0.2, memory=0.3)
    result = fit(method, data, net="linear", recipe=recipe, seed=3, **CPU)
    torch.manual_seed(derive(3, "net", 0))
    net = build("linear", data.shape, 2)
    optimizer = make_optimizer(list(net.parameters()), recipe, torch.device("cpu"))
    group = (data.train.y * 2 + data.train.a[:, 0]).tolist()
    share = [group.count(g) / 70 for g in range(4)]
    remembered, w = {}, [1.0] * 70
    for epoch in range(4):
        if epoch:
            w = slow_sample_weights([remembered[i] for i in range(70)], group, 0.2, 0.1)
        running = {}
        order = epoch_order(70, None, None, torch.Generator().manual_seed(derive(3, "order", 0, epoch)))
        for rows in order.split(16):
            plain = ce_rows(net(data.train.x[rows]), data.train.y[rows])
            losses = plain * torch.tensor([w[r] for r in rows.tolist()])
            for i, r in enumerate(rows.tolist()):
                new = plain[i].item()
                remembered[r] = 0.7 * remembered[r] + 0.3 * new if r in remembered else new
            for g in range(4):
                members = [i for i, r in enumerate(rows.tolist()) if group[r] == g]
                if members:
                    m = losses[members].mean().item()
                    running[g] = 0.7 * running[g] + 0.3 * m if g in running else m
            h = [max(0.1, v) for v in slow_cvar([running.get(g, 0) for g in range(4)], share, 0.3)]
            loss = sum(h[group[r]] * losses[i] for i, r in enumerate(rows.tolist())) / len(rows)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    for mine, theirs in zip(net.parameters(), result.classifier.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5)


def test_selection_picks_among_the_epochs_of_gc_dro():
    data = tiny(n=200)
    recipe = replace(data.recipe, selection="val_worst_group", epochs=5)
    result = fit(GCDRO(), data, recipe=recipe, **CPU)
    assert [row["stage_index"] for row in result.history] == [0] * 5
    assert all("val_worst_group" in row for row in result.history)


# As a run


@pytest.mark.parametrize("method", [GroupDRO(eta=0.5), GroupDRO("greedy"), GCDRO()])
def test_the_weights_of_groups_and_rows_survive_an_interruption(method, tmp_path):
    data, recipe = tiny(n=200, rho=0.2), Recipe("sgd", 0.1, batch_size=32, epochs=4)
    whole = fit(method, data, net="linear", recipe=recipe, **CPU)
    for steps in (3, 9):  # inside the first and the second epoch, far from the end
        with pytest.raises(Interrupted):
            fit(method, data, net="linear", recipe=recipe, out=tmp_path / "torn", device="cpu", progress=StopAt(steps))
    torn = fit(method, data, net="linear", recipe=recipe, out=tmp_path / "torn", **CPU)
    assert same_weights(whole.classifier, torn.classifier)


# The known-answer world


@pytest.mark.parametrize("method", [GroupDRO(), GroupDRO("greedy"), RS(), RS(how="subsample"), GCDRO()])
def test_it_helps_on_the_known_answer_world(method):
    data, recipe = tiny(n=1000, rho=0.05), Recipe("adam", 1e-2, batch_size=64, epochs=10)
    erm = fit("erm", data, net="linear", recipe=recipe, **CPU)
    result = fit(method, data, net="linear", recipe=replace(recipe, iterations=160), **CPU)
    assert result.scores["worst_group"] > erm.scores["worst_group"] + 15
