"""JTT: the error set, its copies, and the second network."""

from dataclasses import replace

import pytest
import torch

from spurless.core.data import Batch, Bundle, Split
from spurless.core.recipe import Recipe
from spurless.core.seeds import derive
from spurless.methods.jtt import JTT
from spurless.nets import build
from spurless.train.engine_run import EngineRun
from spurless.train.feed import epoch_order
from spurless.train.fit import fit
from spurless.train.networks import network_maker
from spurless.train.optim import make_optimizer
from tests.support.reference import train_by_hand
from tests.support.runs import CPU, same_weights
from tests.support.worlds import tiny

# Rows that a network with the identity as its weight takes for classes 0, 1, 0, 1: it is wrong in row 2 alone.
X = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
Y = torch.tensor([0, 1, 1, 1])


def drive(method, recipe=None, weight=None, seen=None, y=Y):
    """Walk through the stages without training: the first network gets `weight` (default: the identity).

    `seen` is called with the first stage in between, as if it were trained.
    """
    data = Bundle("four", Split(X, y))
    make = network_maker("linear", data.shape, len(data.classes), seed=0)
    run = EngineRun(data, recipe or Recipe(), 0, torch.device("cpu"), make)
    generator = method.stages(run)
    first = next(generator)
    if seen is not None:
        seen(first)
    first.model.head.weight.data = torch.eye(2) if weight is None else weight
    first.model.head.bias.data.zero_()
    second = next(generator)
    return first, second, run


@pytest.mark.parametrize(
    ("method", "copies"),
    [
        (JTT(lambda_up=3), 3),
        (JTT(lambda_up=3, copies="code"), 4),
        (JTT(lambda_up=1), 1),
        (JTT(rho=0.25, lambda_up=99), 4),
        (JTT(rho=0.25, copies="code"), 5),
    ],
)
def test_the_error_set_and_its_copies_by_hand(method, copies):
    _, second, run = drive(method)
    assert second.rows.tolist() == [0, 1, *[2] * copies, 3]
    assert second.sample_weights is None  # a plain shuffle of the concatenation, not weighted draws
    assert run.findings["mined"].tolist() == [False, False, True, False]


def test_errors_logged_while_training_are_those_of_the_last_visit():
    def train(stage):
        net = stage.model
        net.head.bias.data.zero_()
        idx = torch.tensor([3, 2, 1, 0])
        for weight in (torch.zeros(2, 2), -torch.eye(2)):  # two epochs; in the second all but row 2 are wrong
            net.head.weight.data = weight
            stage.loss(Batch(X[idx], Y[idx], None, idx, torch.tensor(0.0)))

    method = JTT(lambda_up=2)
    _, second, _ = drive(replace(method, errors_by="training"), seen=train)
    assert second.rows.tolist() == [0, 0, 1, 1, 2, 3, 3]
    _, second, _ = drive(method, seen=train)
    assert second.rows.tolist() == [0, 1, 2, 2, 3]  # a pass afterwards, with the weights as they are then


def test_the_second_network_is_a_fresh_one():
    first, second, _ = drive(JTT())
    held = {id(p) for group in second.optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for p in second.model.parameters()}
    make = network_maker("linear", (2,), 2, seed=0)
    assert same_weights(second.model, make(1)) and not same_weights(second.model, first.model)
    assert second.select and not first.select


@pytest.mark.parametrize(
    ("method", "recipe", "epochs", "iterations"),
    [
        (JTT(), Recipe(epochs=300), 60, None),  # Waterbirds' own share
        (JTT(), Recipe(epochs=2), 1, None),
        (JTT(identify_epochs=9), Recipe(epochs=50), 9, None),
        (JTT(identify_epochs=9), Recipe(iterations=1000), 9, None),
        (JTT(), Recipe(iterations=1000), None, 200),
    ],
)
def test_how_long_the_first_network_is_trained(method, recipe, epochs, iterations):
    first, second, _ = drive(method, recipe)
    assert (first.epochs, first.iterations) == (epochs, iterations)
    assert (second.epochs, second.iterations) == (None, None)  # the recipe's length


def test_an_empty_error_set_is_said_and_trained_plainly(capsys):
    _, second, run = drive(JTT(), y=torch.tensor([0, 1, 0, 1]))
    assert second.rows.tolist() == [0, 1, 2, 3] and not run.findings["mined"].any()
    assert "no sample wrong" in capsys.readouterr().err


def test_a_first_network_that_has_learnt_nothing_is_said(capsys):
    _, second, _ = drive(JTT(lambda_up=2), weight=-torch.eye(2))
    assert second.rows.tolist() == [0, 0, 1, 1, 2, 3, 3]
    said = capsys.readouterr().err
    assert "75% of the samples wrong" in said and "takes 1.8 times as long" in said  # 7 rows instead of 4
    drive(JTT())
    drive(JTT(lambda_up=1), weight=-torch.eye(2))  # nothing is repeated
    assert capsys.readouterr().err == ""


def test_a_run_equals_two_loops_written_by_hand():
    data, recipe = tiny(n=70), Recipe("sgd", 0.05, batch_size=16, epochs=3)
    result = fit(JTT(identify_epochs=2, lambda_up=3), data, net="mlp", recipe=recipe, seed=3, **CPU)
    x, y = data.train.x, data.train.y

    def train(count, stage, epochs, rows):
        torch.manual_seed(derive(3, "net", count))
        net = build("mlp", data.shape, 2)
        seeds = [derive(3, "order", stage, epoch) for epoch in range(epochs)]
        orders = [epoch_order(70, None, rows, torch.Generator().manual_seed(seed)) for seed in seeds]
        maker = lambda params: make_optimizer(params, recipe, torch.device("cpu"))  # noqa: E731
        return train_by_hand(net, x, y, orders, 16, maker)

    first = train(0, 0, 2, None).eval()
    rows = []
    for i in range(70):
        wrong = int(first(x[i : i + 1]).argmax()) != int(y[i])
        rows += [i] * (3 if wrong else 1)
    assert 70 < len(rows) < 140  # some are wrong, not all
    second = train(1, 1, 3, torch.tensor(rows))
    for mine, theirs in zip(second.parameters(), result.classifier.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-6)
    assert result.mining["mined"]["n_mined"] == (len(rows) - 70) / 2


def test_it_helps_on_the_known_answer_world():
    data = tiny(n=1000, rho=0.05)
    recipe = Recipe("adam", 1e-2, batch_size=64, epochs=10)
    jtt, erm = (fit(m, data, net="linear", recipe=recipe, **CPU) for m in (JTT(), "erm"))
    assert jtt.scores["conflicting"] > erm.scores["conflicting"] + 20
    assert jtt.mining["mined"]["recall"] > 40
