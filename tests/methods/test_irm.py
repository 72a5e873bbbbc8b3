"""IRM: its penalty against automatic differentiation, its annealing, and what an environment is."""

import math
from dataclasses import replace

import pytest
import torch

from spurless.core.data import Batch, Bundle
from spurless.core.recipe import Recipe
from spurless.methods.group_inference import Groups
from spurless.methods.irm import (
    IRM,
    environments,
    groups_by_alignment,
    groups_by_value,
    invariance,
    slopes,
    train_invariantly,
)
from spurless.methods.parts.losses import ce
from spurless.registry import load_data
from spurless.train.engine_run import EngineRun
from spurless.train.fit import fit
from spurless.train.networks import network_maker
from tests.support.runs import CPU
from tests.support.worlds import tiny


def drawn(n=20, classes=4, number=3, seed=0):
    g = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, classes, generator=g)
    return logits, torch.randint(classes, (n,), generator=g), torch.randint(number, (n,), generator=g)


def by_autograd(logits, y):
    """d/ds of the mean cross entropy of s · logits at s = 1."""
    scale = torch.ones((), requires_grad=True)
    return torch.autograd.grad(ce(scale * logits, y), scale, create_graph=True)[0]


def test_slopes_equal_automatic_differentiation_row_by_row():
    logits, y, _ = drawn()
    slow = torch.stack([by_autograd(logits[i : i + 1], y[i : i + 1]).detach() for i in range(len(y))])
    torch.testing.assert_close(slopes(logits, y), slow, atol=1e-6, rtol=1e-5)


def test_risk_penalty_and_their_gradients_equal_automatic_differentiation():
    logits, y, e = drawn()
    logits.requires_grad_()
    risks = [ce(logits[e == k], y[e == k]) for k in range(3)]
    squares = [by_autograd(logits[e == k], y[e == k]).square() for k in range(3)]
    slow = torch.stack(risks).mean() + 7 * torch.stack(squares).mean()
    risk, penalty = invariance(logits, y, e, 3)
    fast = risk + 7 * penalty
    torch.testing.assert_close(fast, slow)
    (mine,), (theirs,) = torch.autograd.grad(fast, logits), torch.autograd.grad(slow, logits)
    torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=1e-4)
    assert float(penalty.detach()) > 0.01


def test_an_environment_without_a_row_is_left_out():
    logits, y, e = drawn()
    torch.testing.assert_close(invariance(logits, y, e, 3), invariance(logits, y, 2 * e, 9))


def test_confident_rows_keep_a_slope_of_the_right_sign():
    """Σ p z − z_y as it stands would be the difference of two equal numbers."""
    logits = torch.tensor([[60.0, 20.0], [60.0, 20.0]], dtype=torch.float64)
    found = slopes(logits, torch.tensor([0, 1]))
    assert float(found[0]) == pytest.approx(-40 * math.exp(-40), rel=1e-6) and float(found[1]) == pytest.approx(40)


def test_a_network_that_is_calibrated_has_no_slope():
    """Three of four rows right at odds of three to one: no scale is better than 1."""
    logits = torch.tensor([[math.log(3.0), 0.0]]).repeat(4, 1)
    y = torch.tensor([0, 0, 0, 1])
    assert float(slopes(logits, y).mean()) == pytest.approx(0, abs=1e-7)
    assert float(slopes(2 * logits, y).mean()) > 0.1  # too sure


def open_run(data, recipe=None, net="linear"):
    make = network_maker(net, data.shape, len(data.classes), seed=0)
    return EngineRun(data.blinded("training"), recipe or data.recipe, 0, torch.device("cpu"), make)


def test_the_penalty_is_annealed_and_then_the_whole_loss_divided():
    data = tiny(n=40)
    run = open_run(data)
    stage = next(IRM(penalty_weight=50.0, anneal_at=0.25).stages(run))
    rows = torch.arange(40)
    e = (~data.is_aligned(data.train)).long()[:, 0]
    with torch.no_grad():
        risk, penalty = invariance(stage.model(data.train.x), data.train.y, e, 2)
        for t, expected in [(0.0, risk + penalty), (0.24, risk + penalty), (0.25, risk / 50 + penalty)]:
            batch = Batch(data.train.x, data.train.y, data.train.a, rows, torch.tensor(t))
            torch.testing.assert_close(stage.loss(batch), expected)
    light = next(IRM(penalty_weight=0.5, anneal_at=0.0).stages(open_run(data)))
    with torch.no_grad():  # a weight below 1 divides nothing
        batch = Batch(data.train.x, data.train.y, data.train.a, rows, torch.tensor(0.9))
        torch.testing.assert_close(light.loss(batch), risk + 0.5 * penalty)


def test_environments_hold_several_classes_and_are_drawn_equally_often():
    data = tiny(n=200, rho=0.1)
    run = open_run(data)
    stage = next(IRM().stages(run))
    conflicting = ~data.is_aligned(data.train)[:, 0]
    odds = stage.sample_weights / stage.sample_weights.sum()
    assert float(odds[conflicting].sum()) == pytest.approx(0.5) and int(conflicting.sum()) == 20
    of_conflicting, number = environments(groups_by_alignment(run), data.train.y, 2)
    assert number == 2 and torch.equal(of_conflicting.bool(), conflicting)
    for k in range(2):
        assert set(data.train.y[of_conflicting == k].tolist()) == {0, 1}


def test_with_environments_by_value_every_bias_value_is_one():
    data = tiny(n=100, rho=0.1)
    stage = next(IRM(environments="value").stages(open_run(data)))
    counts = torch.bincount(data.train.a[:, 0])
    torch.testing.assert_close(stage.sample_weights, 1 / counts[data.train.a[:, 0]].double())


@pytest.mark.parametrize(("classes", "values"), [(2, 2), (3, 2), (2, 5)])
def test_groups_that_ignore_the_class_are_environments_as_they_are(classes, values, capsys):
    rows = torch.arange(120)
    y, a = rows % classes, rows // classes % values
    data = replace(Bundle.from_arrays(torch.randn(120, 4), y, a), groups_ignore_class=True)
    run = open_run(data)
    found, number = environments(groups_by_value(run), data.train.y, classes)
    assert torch.equal(found, data.train.a[:, 0]) and number == values
    next(IRM(environments="value").stages(run))
    assert not capsys.readouterr().err


@pytest.mark.parametrize("by", ["value", "alignment"])
def test_a_single_environment_is_said(by, capsys):
    data = tiny(n=40)
    data = replace(data, train=replace(data.train, a=torch.zeros_like(data.train.a)), aligned=())
    next(IRM(environments=by).stages(open_run(data)))
    assert "All training samples are in one of 2 environments" in capsys.readouterr().err


def test_it_trains_on_any_groups():
    data = tiny(n=60)
    found = Groups(data.train.y * 3 + torch.arange(60) % 3, None, 6)
    run = open_run(data, net="mlp")
    stage = next(train_invariantly(run, found, IRM(penalty_weight=1)))
    rows = torch.arange(60)
    with torch.no_grad():
        expected = sum(invariance(stage.model(data.train.x), data.train.y, rows % 3, 3))
        loss = stage.loss(Batch(data.train.x, data.train.y, None, rows, torch.tensor(0.0)))
    torch.testing.assert_close(loss, expected)
    assert stage.select


def test_aligned_against_conflicting_helps_and_values_do_not():
    """Within one bias value the bias says nothing, so that a classifier that follows it is invariant already."""
    toy = load_data({"name": "toy", "n": 1000})
    scores = {
        name: fit(method, toy, **CPU).scores["conflicting"]
        for name, method in {"erm": "erm", "alignment": IRM(), "value": IRM(environments="value")}.items()
    }
    assert scores["alignment"] > scores["erm"] + 20
    assert scores["value"] < scores["erm"] + 10


@pytest.mark.parametrize("groups", ["known", "eiil"])
def test_labels_follow_from_where_groups_come_from(groups):
    method = IRM(groups=groups)
    assert method.labels == {"known": "training", "eiil": "selection"}[groups]
    result = fit(method, tiny(n=64), recipe=Recipe("adam", 1e-2, batch_size=32, epochs=2), **CPU)
    assert result.labels_used == {"known": "training", "eiil": "none"}[groups]
    assert result.status == "done"


def test_a_row_of_several_attributes_conflicts_when_one_does():
    data = tiny(n=40)
    other = torch.stack([data.train.y, data.train.y.clone()], dim=1)
    other[:5, 1] = 1 - other[:5, 1]
    aligned = (torch.eye(2, dtype=torch.bool),) * 2
    data = replace(
        data,
        train=replace(data.train, a=other),
        val=None,
        test=None,
        attributes=("p", "q"),
        values=(("0", "1"),) * 2,
        aligned=aligned,
    )
    environment, _ = environments(groups_by_alignment(open_run(data)), data.train.y, 2)
    assert environment.nonzero().flatten().tolist() == [0, 1, 2, 3, 4]


def test_an_environment_is_a_place_in_each_class_however_many_groups_it_has():
    """Clusters found class by class: 4 of the first, 1 of the second, 3 of the third."""
    counts, y = (4, 1, 3), torch.arange(90) % 3
    place = torch.stack([torch.arange(90) // 3 % k for k in counts])[y, torch.arange(90)]
    groups = torch.tensor([0, 4, 5])[y] + place
    found, number = environments(Groups(groups, None, 8), y, 3)
    assert torch.equal(found, place) and number == 4
    groups = torch.tensor([0, 5, 6])[y] + place  # 5, 1 and 3 groups, which is 3 times 3
    found, number = environments(Groups(groups, None, 9), y, 3)
    assert torch.equal(found, place) and number == 4


def test_a_group_that_holds_no_row_keeps_its_place():
    """No row of the first class is aligned: its conflicting ones are still with those of the other class."""
    y = torch.arange(40) % 2
    conflicting = ((y == 0) | (torch.arange(40) < 8)).long()
    found, number = environments(Groups(2 * y + conflicting, None, 4), y, 2)
    assert torch.equal(found, conflicting) and number == 2
