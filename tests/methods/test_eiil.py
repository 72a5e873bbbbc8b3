"""EIIL: environments that maximise the penalty, what they find on the toy, and when they are noise."""

import itertools
from dataclasses import replace

import pytest
import torch

from spurless.core.data import Bundle, Split
from spurless.core.method import Method
from spurless.core.recipe import Recipe
from spurless.methods.eiil import EIIL
from spurless.methods.group_inference import infer
from spurless.methods.group_inference.eiil import Environments, ascend, best_environments, penalty, penalty_gradient
from spurless.methods.group_inference.errors import wrong
from spurless.methods.irm import slopes
from spurless.metrics.inference import mining_scores
from spurless.registry import load_data
from spurless.train.engine_run import EngineRun
from spurless.train.fit import fit
from spurless.train.networks import network_maker
from tests.support.runs import CPU
from tests.support.worlds import tiny

QUICK = {"steps": 1000, "lr": 1e-2}  # as far as the released 10,000 steps of 1e-3


def drawn(n=12, seed=0, classes=3):
    g = torch.Generator().manual_seed(seed)
    logits, y = 2 * torch.randn(n, classes, generator=g).double(), torch.randint(classes, (n,), generator=g)
    return logits, y, torch.randn(n, generator=g).double()


def slow_penalty(w, logits, y):
    """As released: the derivative of two weighted risks with respect to a scale of 1, squared, and their mean."""
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    loss = torch.nn.functional.cross_entropy(scale * logits, y, reduction="none")
    squares = []
    for q in (w.sigmoid(), 1 - w.sigmoid()):
        squares.append(torch.autograd.grad((loss * q).mean(), scale, create_graph=True)[0].square())
    return torch.stack(squares).mean()


# The environments


@pytest.mark.parametrize("seed", range(3))
def test_the_penalty_and_its_gradient_equal_automatic_differentiation(seed):
    logits, y, w = drawn(seed=seed)
    d = slopes(logits, y)
    w.requires_grad_()
    slow = slow_penalty(w, logits, y)
    torch.testing.assert_close(penalty(w, d), slow)
    (gradient,) = torch.autograd.grad(slow, w)
    torch.testing.assert_close(penalty_gradient(w.detach(), d), gradient, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("seed", range(5))
def test_no_other_split_has_a_higher_penalty(seed):
    logits, y, _ = drawn(n=9, seed=seed)
    d = slopes(logits, y)
    hard = lambda split: float(penalty(1e3 * (2 * split.double() - 1), d))  # noqa: E731
    every = max(hard(torch.tensor(bits)) for bits in itertools.product((False, True), repeat=9))
    assert hard(best_environments(d)) == pytest.approx(every, rel=1e-12)


@pytest.mark.parametrize("seed", range(2))
def test_the_released_ascent_ends_there_too(seed):
    logits, y, _ = drawn(n=60, seed=seed)
    d = slopes(logits, y)
    found, undecided = ascend(d, torch.randn(60, generator=torch.Generator().manual_seed(seed)).double(), 10_000, 1e-3)
    clear = d.abs() > 1e-2
    assert torch.equal(found[clear], best_environments(d)[clear]) and int(clear.sum()) > 45
    assert not undecided[clear].any()


def test_the_environment_of_conflicting_samples_is_the_second_wherever_the_ascent_starts():
    logits, y, _ = drawn(n=40)
    d = slopes(logits, y)
    start = torch.randn(40, generator=torch.Generator().manual_seed(0)).double()
    one, _ = ascend(d, start, 1000, 1e-2)
    other, _ = ascend(d, -start, 1000, 1e-2)
    clear = d.abs() > 0.05
    assert torch.equal(one[clear], other[clear])
    assert d[one].mean() > 0 > d[~one].mean()


def test_with_two_classes_the_environments_are_the_references_right_and_wrong():
    logits, y, _ = drawn(n=50, classes=2)
    assert torch.equal(best_environments(slopes(logits, y)), wrong(logits, y))


# The inference


class Infer(Method):
    """Keeps what was found."""

    def __init__(self, **settings):
        object.__setattr__(self, "settings", settings)

    def stages(self, run):
        found = yield from infer(run, {"name": "eiil"} | self.settings)
        Infer.found, Infer.run = found, run
        return found.net


@pytest.mark.parametrize("form", ["paper", "code"])
def test_aligned_and_conflicting_rows_of_the_toy_are_separated(form):
    toy = load_data("toy")
    fit(Infer(form=form, **QUICK), toy, **CPU)
    found = Infer.found
    assert found.number == 4
    assert torch.equal(found.train // 2, toy.train.y) and torch.equal(found.val // 2, toy.val.y)
    for split, groups in ((toy.train, found.train), (toy.val, found.val)):
        conflicting = ~toy.is_aligned(split)[:, 0]
        scores = mining_scores((groups % 2 == 1).numpy(), conflicting.numpy())
        assert scores["precision"] > 50 and scores["recall"] > 50, scores
    assert torch.equal(Infer.run.guesses["groups"], found.train)


def drive(logits_weight, form="paper", rows=64, **settings):
    """The inference with a reference of our own: a linear network with this weight."""
    g = torch.Generator().manual_seed(0)
    y = torch.arange(rows) % 2
    x = torch.nn.functional.one_hot(y, 2).float() + 0.01 * torch.randn(rows, 2, generator=g)
    x[: rows // 8] = x[: rows // 8].flip(1)  # these contradict the identity
    data = Bundle("two", Split(x, y), Split(x[:10], y[:10]))
    run = EngineRun(data, Recipe(), 0, torch.device("cpu"), network_maker("linear", (2,), 2, seed=0))
    inference = Environments(form=form, **(QUICK | settings)).infer(run)
    stage = next(inference)
    stage.model.head.weight.data, stage.model.head.bias.data = logits_weight, torch.zeros(2)
    try:
        next(inference)
    except StopIteration as end:
        return stage, end.value


@pytest.mark.parametrize("form", ["paper", "code"])
def test_groups_by_hand(form, capsys):
    stage, found = drive(2 * torch.eye(2), form)
    y = torch.arange(64) % 2
    assert torch.equal(found.train, 2 * y + (torch.arange(64) < 8))
    assert torch.equal(found.val, found.train[:10])
    assert found.net is stage.model and not stage.select
    assert capsys.readouterr().err == ""


def test_a_reference_that_fits_every_row_is_said(capsys):
    """All slopes vanish: as released the environments are the random start, and in closed form there is but one."""
    toward = torch.tensor([[40.0, -40.0], [-40.0, 40.0]])
    drive(toward, "code", rows=4)  # so few that none is flipped
    assert "random number" in capsys.readouterr().err
    _, found = drive(toward, "paper", rows=4)
    assert "only one environment" in capsys.readouterr().err
    assert (found.train % 2 == 0).all()


@pytest.mark.parametrize(
    ("recipe", "given", "epochs", "iterations"),
    [
        (Recipe(epochs=50), 0, 10, None),
        (Recipe(epochs=2), 0, 1, None),
        (Recipe(iterations=1000), 0, None, 200),
        (Recipe(iterations=1000), 3, 3, None),
    ],
)
def test_how_long_the_reference_is_trained(recipe, given, epochs, iterations):
    data = tiny(n=20)
    run = EngineRun(data.blinded("none"), recipe, 0, torch.device("cpu"), network_maker("linear", (7,), 2, seed=0))
    stage = next(Environments(identify_epochs=given).infer(run))
    assert (stage.epochs, stage.iterations) == (epochs, iterations)


def test_the_ascent_starts_from_the_runs_seed():
    assert torch.equal(drive(torch.eye(2), "code", steps=5)[1].train, drive(torch.eye(2), "code", steps=5)[1].train)


# The method


@pytest.mark.parametrize("then", ["group_dro", "irm"])
def test_the_second_stage_is_trained_on_the_environments(then):
    toy = load_data("toy")
    erm, eiil = (fit(m, toy, **CPU) for m in ("erm", EIIL(then=then)))
    assert [row["stage"] for row in eiil.history if row["epoch"] == 1] == ["reference", then]
    assert eiil.scores["conflicting"] > erm.scores["conflicting"] + 30
    assert eiil.labels_used == "none"


def test_without_a_validation_split_there_are_no_validation_groups():
    fit(Infer(), replace(tiny(n=64), val=None), **CPU)
    assert Infer.found.val is None
