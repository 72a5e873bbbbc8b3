"""Miners: each finds what it says it finds, and what it says of the rows can be recomputed by hand."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import nn

from spurless.core.errors import UserError
from spurless.core.recipe import Recipe
from spurless.methods.group_inference.errors import ErmErrors, ErrorLog, stretches, wrong
from spurless.methods.group_inference.scores import high, peer_weights, relative_confidence
from spurless.methods.group_inference.training import Length
from spurless.metrics.inference import mining_scores
from spurless.registry import load_data
from tests.support.mining import finish, inference, inferred, open_run, rows_of
from tests.support.reference import per_sample_head_gradients
from tests.support.worlds import OwnModule, tiny


@torch.no_grad()
def probability(net, x, y):
    """p_y of one row, by the definition."""
    logits = net(x[None])[0].double()
    return float(torch.exp(logits[y]) / torch.exp(logits).sum())


# Error sets


def test_the_log_equals_a_slow_loop_when_rows_come_again():
    classes, log = 3, ErrorLog(6)
    slow = dict.fromkeys(range(6), False)
    batches = [[0, 1, 2, 1], [2, 3, 0, 0], [3, 3, 1, 3]]  # rows come again within batches and across them
    conflicts = 0
    for step, idx in enumerate(batches):
        g = torch.Generator().manual_seed(step)
        logits, y = torch.randn(4, classes, generator=g), torch.randint(classes, (4,), generator=g)
        log.update(torch.tensor(idx), logits, y)
        said = {}
        for place, row in enumerate(idx):
            slow[row] = bool(max(range(classes), key=lambda c: logits[place, c]) != y[place])
            conflicts += said.setdefault(row, slow[row]) != slow[row]
    assert log.wrong.tolist() == list(slow.values())
    assert conflicts, "no row was right and wrong within one batch: the test shows nothing"
    assert True in slow.values() and not slow[4] and not slow[5]  # rows 4 and 5 were never seen


def test_the_log_is_part_of_a_checkpoint():
    log = ErrorLog(3)
    log.update(torch.tensor([1]), torch.tensor([[1.0, 0.0]]), torch.tensor([1]))
    again = ErrorLog(3)
    again.load_state_dict(log.state_dict())
    assert again.wrong.tolist() == [False, True, False]


@pytest.mark.parametrize("how", ["erm", "gce"])
def test_errors_while_training_are_those_of_the_weights_at_that_time(how):
    """Two batches are trained on with opposite weights; a pass afterwards only sees the second ones."""
    data = tiny(n=40)
    found = {}
    for errors_by in ("training", "evaluation"):
        run = open_run(data)
        first, second = list(range(20)), list(range(20, 40))

        def train_by_hand(stage, first=first, second=second):
            net = stage.model
            with torch.no_grad():
                net.head.bias.zero_()
                net.head.weight.zero_()[:, 2] = torch.tensor([-1.0, 1.0])  # follows the spurious number
                stage.loss(rows_of(data, first))
                net.head.weight.neg_()
                stage.loss(rows_of(data, second))

        found[errors_by] = finish(inference(how, errors_by=errors_by).infer(run), train_by_hand).conflicting
        assert torch.equal(run.findings["mined"], found[errors_by])
    follows = data.train.x[:, 2] > 0
    right = follows == data.train.y.bool()
    assert found["training"].tolist() == torch.cat([~right[:20], right[20:]]).tolist()
    assert found["evaluation"].tolist() == right.tolist()


def test_lengths_are_the_published_ones_unless_given():
    data = tiny(n=40)

    def length(how, **settings):
        stage = next(inference(how, **settings).infer(open_run(data)))
        return stage.epochs, stage.iterations

    assert length("gce") == length("gradient") == length("loss") == (None, 2000)
    assert length("erm") == (1, None)
    assert length("erm", iterations=7)[1] == 7  # the engine takes steps where both are given
    assert length("gce", epochs=3) == (3, None)


# How the network that mines is trained


@pytest.mark.parametrize(("how", "q"), [("erm", 0.0), ("gce", 0.7)])
def test_a_miners_own_sgd_with_falls_equals_torchs_written_out(how, q):
    """Whole batches, so that the order of rows says nothing. Momentum must live through the falls of the rate."""
    data, steps = tiny(n=40), 8
    recipe = Recipe("adam", 0.02, batch_size=40, epochs=1)
    own = {"optimizer": "sgd", "lr": 0.5, "weight_decay": 0.05, "decay_every": 3}
    found = inferred(data, how, "linear", recipe, iterations=steps, **own)
    net = open_run(data).net()
    sgd = torch.optim.SGD(net.parameters(), 0.5, momentum=0.9, weight_decay=0.05)
    falls = torch.optim.lr_scheduler.StepLR(sgd, 3, 0.1)  # as DCWP's script has it, with 600
    for _ in range(steps):
        ce = nn.functional.cross_entropy(net(data.train.x), data.train.y, reduction="none")
        sgd.zero_grad()
        ((-ce.detach()).exp() ** q * ce).mean().backward()
        sgd.step()
        falls.step()
    assert sgd.param_groups[0]["lr"] == pytest.approx(0.005)
    torch.testing.assert_close(found.net.head.weight, net.head.weight, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(found.net.head.bias, net.head.bias, rtol=1e-4, atol=1e-6)


def test_stretches_cover_the_whole_and_none_is_empty():
    for total, falls in ((2000, 600), (1200, 600), (1201, 600), (500, 600), (3, 1)):
        parts = stretches(Length(iterations=total), falls)
        assert sum(length.iterations for length, _ in parts) == total
        assert all(0 < length.iterations <= falls and length.epochs is None for length, _ in parts)
        assert parts[0][1][0] == 0 and parts[-1][1][1] == 1
        assert all(before[1][1] == after[1][0] for before, after in pairwise(parts))
    assert stretches(Length(epochs=3), 0) == [(Length(epochs=3), (0.0, 1.0))]


def test_without_settings_of_its_own_a_miner_is_trained_as_the_recipe_says():
    recipe = Recipe("adamw", 0.3, weight_decay=0.2)
    assert ErmErrors().changes(recipe) == {}
    assert ErmErrors(lr=0.1, weight_decay=0.0).changes(recipe) == {
        "lr": 0.1,
        "weight_decay": 0.0,
    }  # 0 is a weight decay
    assert ErmErrors(optimizer="adamw").changes(recipe) == {"optimizer": "adamw"}  # the recipe's rate suits it
    with pytest.raises(UserError, match="needs a learning rate of its own"):
        ErmErrors(optimizer="sgd").changes(recipe)


# Epoch ensembles


def test_peer_weights_of_a_batch_of_four_by_hand():
    y = torch.tensor([0, 0, 1, 1])
    p_one = torch.tensor([0.80, 0.20, 0.10, 0.06])  # relative to the class's highest: 1, 0.25, 1, 0.6
    p_two = torch.tensor([0.30, 0.24, 0.04, 0.50])  # 1, 0.8, 0.08, 1
    one, two = peer_weights(-p_one.log(), -p_two.log(), y, classes=3, eta=0.5, unlearn=1e-4)
    # Row 0: both sure. Row 1: only the second. Row 2: only the first. Row 3: both, though the first has p = 0.06.
    assert one.tolist() == pytest.approx([1, 0, -1e-4, 1])
    assert two.tolist() == pytest.approx([1, -1e-4, 0, 1])
    one, two = peer_weights(-p_one.log(), -p_two.log(), y, classes=3, eta=0.5, unlearn=0.0)
    assert one.tolist() == two.tolist() == [1, 0, 0, 1]


def test_relative_confidence_does_not_underflow():
    loss = torch.tensor([200.0, 201.0])  # both probabilities are 0 in single precision
    assert relative_confidence(loss, torch.tensor([0, 0]), 2).tolist() == pytest.approx([1, math.exp(-1)])


def test_ecs_loss_equals_a_slow_loop_and_unlearns_only_after_the_first_epoch():
    data, epochs, eta, unlearn = tiny(n=60), 4, 0.6, 0.3
    run = open_run(data, "mlp")
    stage = next(inference("ecs", eta=eta, epochs=epochs, unlearn=unlearn).infer(run))
    first, second = run.modules[:2]
    with torch.no_grad():  # make them sure of different rows
        first.head.weight.mul_(12)
        second.head.weight.mul_(12)
    idx = torch.arange(20)
    signs = set()
    for t in (0.0, 0.2499, 0.25, 0.9):
        want = 0.0
        ps = [[probability(net, data.train.x[i], data.train.y[i]) for i in idx] for net in (first, second)]
        for own, peer in (ps, ps[::-1]):
            for i in idx.tolist():
                mates = [j for j in idx.tolist() if data.train.y[j] == data.train.y[i]]
                sure = [p[i] / max(p[j] for j in mates) > eta for p in (own, peer)]
                weight = 1.0 if all(sure) else -unlearn if sure[0] and t >= 1 / epochs else 0.0
                signs.add(weight)
                want += weight * -math.log(own[i]) / len(idx)
        assert stage.loss(rows_of(data, idx, t)).item() == pytest.approx(want, rel=1e-4)
    assert signs == {1.0, 0.0, -unlearn}


@pytest.mark.parametrize(("how", "nets"), [("ecs", 2), ("ecs_simple", 1)])
def test_scores_are_one_minus_the_mean_over_epochs_and_networks(how, nets):
    data, epochs = tiny(n=40), 3
    run = open_run(data, "mlp")
    g = torch.Generator().manual_seed(1)
    seen, spans = [], []

    def redraw_all(stage):
        for net in run.modules[:nets]:
            for p in net.parameters():
                p.data.normal_(std=0.2, generator=g)
            seen.append([probability(net, x, y) for x, y in zip(data.train.x, data.train.y, strict=True)])
        spans.append((stage.epochs, *stage.span))

    found = finish(inference(how, epochs=epochs, tau=0.6).infer(run), redraw_all)
    want = 1 - torch.tensor(seen, dtype=torch.float64).mean(0)
    assert len(seen) == epochs * nets
    torch.testing.assert_close(found.scores.double(), want, rtol=1e-4, atol=1e-5)
    assert found.conflicting.tolist() == (want >= 0.6).tolist() and 0 < found.conflicting.sum() < 40
    assert spans == [(1, 0, 1 / 3), (1, 1 / 3, 2 / 3), (1, 2 / 3, 1)]
    assert found.net is run.modules[0]


def test_simple_ecs_averages_over_the_sure_rows_and_survives_a_batch_without_any():
    data = tiny(n=40)
    run = open_run(data, "mlp")
    stage = next(inference("ecs_simple", eta=0.5).infer(run))
    net, idx = run.modules[0], list(range(12))
    p = [probability(net, data.train.x[i], data.train.y[i]) for i in idx]
    sure = [-math.log(v) for v in p if v > 0.5]
    assert 0 < len(sure) < 12
    assert stage.loss(rows_of(data, idx)).item() == pytest.approx(sum(sure) / len(sure), rel=1e-5)
    nobody = next(inference("ecs_simple", eta=1.0).infer(open_run(data, "mlp"))).loss(rows_of(data, idx))
    nobody.backward()
    assert nobody.item() == 0


def test_peers_differ_even_when_they_are_copies_of_one_module():
    run = open_run(tiny(n=40), OwnModule())
    next(inference("ecs").infer(run))
    first, second = run.modules[:2]
    assert torch.equal(first.encoder.body[1].weight, second.encoder.body[1].weight)
    assert not torch.equal(first.head.weight, second.head.weight)
    again = open_run(tiny(n=40), OwnModule())
    next(inference("ecs").infer(again))
    assert torch.equal(again.modules[1].head.weight, second.head.weight)  # the same seed, the same start
    assert float(second.head.weight.detach().abs().max()) <= 8**-0.5


# Scores


def test_the_gradient_miner_scores_by_the_gradient_of_each_row_and_the_loss_miner_by_its_loss():
    data = tiny(n=30)
    gradient = inferred(data, "gradient", "mlp", epochs=2, share=0.2)
    weight, _ = per_sample_head_gradients(gradient.net.eval(), data.train.x, data.train.y)
    want = weight.flatten(1).norm(dim=1)
    torch.testing.assert_close(gradient.scores, want, rtol=1e-4, atol=1e-6)
    assert set(torch.nonzero(gradient.conflicting)[:, 0].tolist()) == set(want.argsort()[-6:].tolist())
    loss = inferred(data, "loss", "mlp", epochs=2, threshold=0.5)
    want = nn.functional.cross_entropy(loss.net(data.train.x), data.train.y, reduction="none")
    torch.testing.assert_close(loss.scores, want)
    assert loss.conflicting.tolist() == (want >= 0.5).tolist() and 0 < loss.conflicting.sum() < 30


def test_high_takes_exactly_the_share_even_among_equals():
    assert high(torch.zeros(10), share=0.3).sum() == 3
    assert high(torch.zeros(10), share=0.0).sum() == 0
    assert high(torch.tensor([1.0, 2.0, 3.0]), share=1.0, threshold=2.0).tolist() == [False, True, True]


# On the toy, where the truth is known


@pytest.mark.parametrize(
    ("how", "net", "settings", "precision", "recall"),
    [
        ("gce", "linear", {"epochs": 5}, 90, 80),
        ("erm", "linear", {"epochs": 5}, 90, 80),
        ("erm", "linear", {"epochs": 5, "errors_by": "training"}, 90, 80),
        ("gradient", "linear", {"epochs": 5}, 85, 85),
        ("loss", "linear", {"epochs": 5}, 85, 85),
        ("ecs", "mlp", {"epochs": 15}, 90, 70),
        ("ecs_simple", "linear", {"epochs": 15, "tau": 0.6}, 90, 60),
    ],
)
def test_miners_find_the_conflicting_rows(how, net, settings, precision, recall):
    data = load_data("toy")
    found = inferred(data, how, net, **settings)
    truth = data.train.a[:, 0] != data.train.y
    assert found.quality.items() >= mining_scores(found.conflicting.numpy(), truth.numpy()).items()
    assert found.quality["precision"] >= precision, found.quality
    assert found.quality["recall"] >= recall, found.quality
    # A random order of the rows has its mean difference at 0.
    assert found.scores[truth].mean() > found.scores[~truth].mean() + 2 * found.scores[~truth].std()


def test_mining_sees_no_bias_label():
    data = tiny()
    scrambled = replace(data, train=replace(data.train, a=1 - data.train.a))
    a, b = (inferred(d, "ecs", "mlp", epochs=2) for d in (data, scrambled))
    assert torch.equal(a.conflicting, b.conflicting) and torch.equal(a.scores, b.scores)
    blind = replace(data, train=data.train.blinded(), val=None, test=None)
    c = inferred(blind, "ecs", "mlp", epochs=2)
    assert torch.equal(a.conflicting, c.conflicting) and c.quality is None


def test_mistakes_are_named():
    with pytest.raises(UserError, match="did you mean 'ecs'"):
        inferred("toy", "esc")
    with pytest.raises(UserError, match="eta"):
        inferred("toy", "gce", eta=0.5)
    with pytest.raises(UserError, match="tau = 2"):
        inferred("toy", "ecs", tau=2)
    with pytest.raises(UserError, match="decay_every"):
        inferred("toy", "erm", decay_every=10)
    with pytest.raises(UserError, match="not finite"):
        inferred(tiny(), "erm", "mlp", {"optimizer": "sgd", "lr": 1e30}, epochs=3)


def test_wrong_rows_breaks_ties_as_argmax_does():
    assert wrong(torch.zeros(2, 3), torch.tensor([0, 2])).tolist() == [False, True]
