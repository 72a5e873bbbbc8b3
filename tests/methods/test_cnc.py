"""CnC: pair sets by hand, the loss against a slow loop, and what happens when there is nothing to contrast."""

import math

import pytest
import torch
from torch import Tensor

from spurless.core.data import Batch, Bundle, Split
from spurless.core.recipe import Recipe
from spurless.methods.cnc import CnC, contrast, pair_odds, pair_sets
from spurless.methods.parts.losses import ce
from spurless.train.engine_run import EngineRun
from spurless.train.feed import epoch_order
from spurless.train.fit import fit
from spurless.train.networks import network_maker
from tests.support.mining import finish
from tests.support.runs import CPU, same_weights
from tests.support.worlds import tiny


def sets(masks: tuple[Tensor, Tensor]) -> tuple[list[list[int]], list[list[int]]]:
    return tuple([row.nonzero()[:, 0].tolist() for row in mask] for mask in masks)


#                  row  0  1  2  3  4  5
Y, GUESS = torch.tensor([[0, 0, 0, 1, 1, 2], [0, 1, 2, 1, 0, 0]])


def test_pair_sets_of_six_rows_by_hand():
    positive, negative = sets(pair_sets(Y, GUESS, torch.ones(6, dtype=torch.bool)))
    # Positives: the same class, taken for something else. Row 5 is alone in its class.
    assert positive == [[1, 2], [0, 2], [0, 1], [4], [3], []]
    # Negatives: another class, taken for the same. Nothing else is taken for 2.
    assert negative == [[4, 5], [3], [], [1], [0, 5], [0, 4]]


def test_one_sided_only_rows_that_are_taken_for_their_class_are_anchors():
    positive, negative = sets(pair_sets(Y, GUESS, GUESS == Y))
    assert positive == [[1, 2], [], [], [4], [], []]
    assert negative == [[4, 5], [], [], [1], [], []]


def slow_contrast(features, y, guess, tau, anchors):
    """The definition, pair by pair; the mean over the anchors that have a positive and a negative."""

    def s(i, j):
        a, b = features[i].double(), features[j].double()
        return float(a @ b / (a.norm() * b.norm())) / tau

    losses = []
    for i in anchors:
        positive = [j for j in range(len(y)) if y[j] == y[i] and guess[j] != guess[i]]
        negative = [j for j in range(len(y)) if y[j] != y[i] and guess[j] == guess[i]]
        if positive and negative:
            below = sum(math.exp(s(i, j)) for j in positive) + sum(math.exp(s(i, j)) for j in negative)
            losses.append(-sum(math.log(math.exp(s(i, r)) / below) for r in positive) / len(positive))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("two_sided", [True, False])
def test_the_contrast_equals_a_slow_loop(seed, two_sided):
    g = torch.Generator().manual_seed(seed)
    y, guess = torch.randint(3, (2, 20), generator=g)
    features = torch.randn(20, 4, generator=g) * 3
    anchors = torch.ones(20, dtype=torch.bool) if two_sided else guess == y
    slow = slow_contrast(features, y, guess, 0.2, anchors.nonzero()[:, 0].tolist())
    assert float(contrast(features, *pair_sets(y, guess, anchors), 0.2)) == pytest.approx(slow, rel=1e-4)


@pytest.mark.parametrize(
    ("y", "guess"),
    [
        ([0, 0, 1, 1], [0, 0, 1, 1]),  # all taken for what they are: no positive, no negative
        ([0, 0, 0, 0], [0, 1, 0, 1]),  # positives alone
        ([0, 1, 0, 1], [0, 0, 0, 0]),  # negatives alone
        ([0], [0]),
    ],
)
def test_a_batch_without_pairs_adds_nothing_and_no_nan(y, guess):
    y, guess = torch.tensor(y), torch.tensor(guess)
    features = torch.randn(len(y), 3, requires_grad=True)
    value = contrast(features, *pair_sets(y, guess, torch.ones_like(y, dtype=torch.bool)), 0.1)
    value.backward()
    assert float(value.detach()) == 0 and features.grad.tolist() == [[0.0] * 3] * len(y)


def test_gradients_pull_positives_and_push_negatives_and_are_finite():
    features = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0], [0.0, 0.0]], requires_grad=True)
    y, guess = torch.tensor([0, 0, 1, 0]), torch.tensor([0, 1, 0, 1])  # row 3 has no direction
    contrast(features, *pair_sets(y, guess, torch.tensor([True, False, False, False])), 0.5).backward()
    assert torch.isfinite(features.grad).all()
    step = -features.grad[0]
    assert step[1] > 0  # the anchor turns to the positive at the top, away from the negative at the bottom


def test_half_precision_leaves_the_similarities_alone():
    features = torch.randn(30, 8)
    y, guess = torch.randint(2, (2, 30))
    masks = pair_sets(y, guess, torch.ones(30, dtype=torch.bool))
    plain = contrast(features, *masks, 0.05)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(contrast(features, *masks, 0.05), plain)


def test_every_pair_of_class_and_guess_is_drawn_equally_often():
    y, guess = torch.tensor([0] * 90 + [0] * 10 + [1] * 60 + [1] * 2), torch.tensor([0] * 90 + [1] * 70 + [0] * 2)
    odds = pair_odds(y, guess)
    shares = [float(odds[(y == a) & (guess == b)].sum() / odds.sum()) for a in (0, 1) for b in (0, 1)]
    assert shares == pytest.approx([0.25] * 4)
    order = epoch_order(162, odds, None, torch.Generator().manual_seed(0))
    batch = order[:64]
    assert len({(int(y[i]), int(guess[i])) for i in batch}) == 4  # so that each batch has positives and negatives


# The stages

X = torch.tensor([[2.0, 1.0], [1.0, 2.0], [2.0, 0.0], [1.5, 2.0]])


def drive(method, y, weight=None):
    """The stages, with the head of the plain network set by hand instead of trained."""
    data = Bundle("four", Split(X, torch.tensor(y)), Split(X[:2], torch.tensor(y[:2])), classes=("a", "b"))
    run = EngineRun(data, Recipe(), 0, torch.device("cpu"), network_maker("linear", (2,), 2, seed=0))
    stages = []

    def train(stage):
        stages.append(stage)
        if len(stages) == 1:
            stage.model.head.weight.data = torch.eye(2) if weight is None else weight
            stage.model.head.bias.data.zero_()

    finish(method.stages(run), train)
    return stages, run


def test_the_loss_of_a_batch_by_hand():
    # The plain network takes rows 0 and 2 for class 0, rows 1 and 3 for class 1; rows 1 and 2 are wrong.
    (_, second), run = drive(CnC(lambda_=0.6, tau=0.5), y=[0, 0, 1, 1])
    assert run.guesses["groups"].tolist() == [0, 1, 2, 3]
    idx = torch.tensor([3, 0, 1, 2])
    y = torch.tensor([1, 0, 0, 1])
    batch = Batch(X[idx], y, None, idx, torch.tensor(0.0))
    slow = slow_contrast(X[idx], y, torch.tensor([1, 0, 1, 0]), 0.5, range(4))  # a linear net's features are its inputs
    expected = 0.6 * slow + 0.4 * float(ce(second.model(X[idx]), y).detach())
    assert float(second.loss(batch).detach()) == pytest.approx(expected, rel=1e-5)
    one_sided = drive(CnC(lambda_=0.6, tau=0.5, two_sided=False), y=[0, 0, 1, 1])[0][1]
    slow = slow_contrast(X[idx], y, torch.tensor([1, 0, 1, 0]), 0.5, [0, 1])  # rows 3 and 0 are right
    expected = 0.6 * slow + 0.4 * float(ce(one_sided.model(X[idx]), y).detach())
    assert float(one_sided.loss(batch).detach()) == pytest.approx(expected, rel=1e-5)


def test_the_second_network_is_fresh_and_alone_selected():
    (plain, second), _ = drive(CnC(identify_epochs=3, identify_weight_decay=0.5), y=[0, 0, 1, 1])
    assert (plain.epochs, second.epochs) == (3, None)
    assert drive(CnC(), y=[0, 0, 0, 1])[0][1].sample_weights.tolist() == [
        0.5,
        1,
        0.5,
        1,
    ]  # rows 0 and 2 are taken for 0
    assert plain.optimizer.param_groups[0]["weight_decay"] == 0.5
    assert second.optimizer.param_groups[0]["weight_decay"] == 0.0
    assert second.select and not plain.select
    make = network_maker("linear", (2,), 2, seed=0)
    assert same_weights(second.model, make(1)) and second.model is not plain.model


def test_nothing_to_contrast_is_said(capsys):
    drive(CnC(), y=[0, 1, 0, 1])
    assert "nothing to contrast" in capsys.readouterr().err
    drive(CnC(), y=[0, 0, 0, 1])
    assert capsys.readouterr().err == ""


def test_the_contrast_teaches_the_encoder():
    """With λ = 1 there is no cross entropy: only the contrast can change the encoder, and the head stays."""
    data = tiny(n=300)
    first, last = (fit(CnC(lambda_=1.0), data, net="mlp", recipe={"epochs": e}, **CPU) for e in (0.2, 6))
    assert last.history[-1]["loss"] < first.history[-1]["loss"] - 0.1
    assert torch.equal(first.classifier.head.weight, last.classifier.head.weight)


def test_the_contrast_makes_features_follow_the_class():
    """If the guess is the bias itself, rows of a class come together across the bias, and apart from the others."""
    data = tiny(n=400, rho=0.3)
    x, y, a = data.train.x, data.train.y, data.train.a[:, 0]
    torch.manual_seed(0)
    encoder = torch.nn.Sequential(torch.nn.Linear(7, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    optimizer = torch.optim.Adam(encoder.parameters(), 1e-2)
    positive, negative = pair_sets(y, a, torch.ones_like(y, dtype=torch.bool))

    def gap():
        z = torch.nn.functional.normalize(encoder(x), dim=1).detach()
        return float((z @ z.T)[positive].mean() - (z @ z.T)[negative].mean())

    before = gap()
    for _ in range(60):
        optimizer.zero_grad()
        contrast(encoder(x), positive, negative, 0.5).backward()
        optimizer.step()
    assert before < 0.1 and gap() > 0.5


@pytest.mark.parametrize("by", ["prediction", "clustering"])
def test_it_helps_on_the_known_answer_world(by):
    data, recipe = tiny(n=1000), Recipe("adam", 1e-2, batch_size=64, epochs=8)
    cnc, erm = (fit(m, data, net="linear", recipe=recipe, **CPU) for m in (CnC(by=by), "erm"))
    assert cnc.scores["conflicting"] > erm.scores["conflicting"] + 20
