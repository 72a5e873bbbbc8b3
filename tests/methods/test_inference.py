"""Groups that are guessed: what each inference says can be recomputed by hand, and agreement is what it claims."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from spurless.core.data import Bundle, Split
from spurless.core.errors import UserError
from spurless.core.recipe import Recipe
from spurless.core.settings import settings_of
from spurless.methods.group_inference import (
    CLASSES,
    Groups,
    agreement,
    infer,
    labels_for,
)
from spurless.methods.group_inference import clusters as within
from spurless.methods.group_inference.clusters import margin_along, merged, overclustered
from spurless.methods.group_inference.predictions import nearest_classes
from spurless.methods.parts.clusters import Clusters, cluster
from spurless.metrics.inference import inference_scores
from spurless.train.engine_run import EngineRun
from spurless.train.networks import network_maker
from tests.support.mining import finish, inference, inferred, open_run
from tests.support.worlds import pictures, tiny

QUICK = {
    "gce": {"iterations": 60},
    "ecs": {"epochs": 4},
    "ecs_simple": {"epochs": 4},
    "gradient": {"iterations": 60},
    "loss": {"iterations": 60},
}
GUESSED = [how for how in CLASSES if how != "known"]

# Agreement


def test_precision_and_recall_by_hand():
    groups = [0, 0, 0, 1, 1, 1, 2, 2, 3]
    bad = np.array([0, 1, 0, 1, 1, 0, 1, 0, 0], bool)
    scores = inference_scores(groups, bad.astype(int), np.zeros(9, int), bad)
    # Group 1 conflicts by two of three. Group 2 by half, which is not most.
    assert (scores["n_mined"], scores["n_conflicting"], scores["n_groups"]) == (3, 4, 4)
    assert scores["precision"] == pytest.approx(200 / 3) and scores["recall"] == 50


def test_names_of_groups_do_not_matter_and_empty_ones_do_not_count():
    g = np.random.default_rng(0)
    guess, truth, y = g.integers(4, size=200), g.integers(3, size=200), g.integers(2, size=200)
    bad = g.random(200) < 0.4
    other = np.array([900, 7, 31, 5])[guess]
    assert inference_scores(other, truth, y, bad) == pytest.approx(inference_scores(guess, truth, y, bad))


def slow_mutual_information(a, b):
    n = len(a)
    total = 0.0
    for u, v in itertools.product(set(a), set(b)):
        both = sum(p == u and q == v for p, q in zip(a, b, strict=True))
        if both:
            total += both / n * np.log(n * both / (list(a).count(u) * list(b).count(v)))
    return total


def test_adjusted_mutual_information_equals_its_definition():
    """(MI − its mean over all ways to mix the rows) / (mean entropy − the same), within a class of six rows."""
    truth, guess = [0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2]
    mixed = np.mean([slow_mutual_information(truth, p) for p in itertools.permutations(guess)])
    most = (slow_mutual_information(truth, truth) + slow_mutual_information(guess, guess)) / 2
    expected = (slow_mutual_information(truth, guess) - mixed) / (most - mixed)
    scores = inference_scores(guess, truth, np.zeros(6, int), np.array(truth, bool))
    assert scores["ami"] == pytest.approx(expected)


def test_the_class_alone_is_no_agreement():
    g = np.random.default_rng(0)
    y = np.arange(600) % 3
    truth = y * 2 + (g.random(600) < 0.3)
    bad = truth % 2 == 1
    assert inference_scores(y, truth, y, bad)["ami"] == pytest.approx(0, abs=1e-9)
    at_random = y * 2 + g.integers(2, size=600)
    assert abs(inference_scores(at_random, truth, y, bad)["ami"]) < 0.02  # over all rows it would be 0.6
    assert inference_scores(truth, truth, y, bad)["ami"] == pytest.approx(1)


def test_classes_count_by_their_size_and_those_with_nothing_to_find_do_not():
    y = np.array([0] * 4 + [1] * 12 + [2] * 40)
    truth = np.concatenate([[0, 1, 0, 1], np.arange(12) % 2 + 2, np.full(40, 9)])
    guess = np.concatenate([[0, 1, 0, 1], np.full(12, 2), np.arange(40) % 5 + 3])  # all of class 0, nothing of class 1
    assert inference_scores(guess, truth, y, np.zeros(56, bool))["ami"] == pytest.approx(4 / 16)


def test_nothing_to_find_is_none():
    scores = inference_scores([0, 1], [0, 1], [0, 1], np.zeros(2, bool))
    assert scores["ami"] is scores["precision"] is scores["recall"] is None


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="as long"):
        inference_scores([0, 1], [0], [0, 1], np.zeros(2, bool))


# What all inferences promise


@pytest.mark.parametrize("how", CLASSES)
def test_groups_lie_within_classes_and_repeat(how):
    data = tiny(n=300, rho=0.1)
    first, second = (inferred(data, how, seed=3, **QUICK.get(how, {})) for _ in range(2))
    assert torch.equal(first.train, second.train)
    for groups, split in ((first.train, data.train), (first.val, data.val)):
        if groups is None:
            assert how in ("ecs", "ecs_simple", "gradient", "loss")
            continue
        assert groups.shape == (len(split),) and groups.dtype == torch.int64 and groups.device.type == "cpu"
        assert int(groups.min()) >= 0 and int(groups.max()) < first.number
    classes = [set(first.train[data.train.y == c].tolist()) for c in (0, 1)]
    assert not classes[0] & classes[1] and max(classes[0]) < min(classes[1])
    if first.val is not None:  # a validation row is in a group of its own class, too
        assert not set(first.val[data.val.y == 0].tolist()) & classes[1]
    assert first.quality == agreement(first.train, data, first.conflicting)


@pytest.mark.parametrize("how", GUESSED)
def test_no_bias_label_is_needed_or_seen(how):
    data = tiny(n=200)
    bare = {name: split.blinded() for name, split in data.splits.items()}
    blind = replace(data, **bare, attributes=(), values=(), aligned=())
    found = inferred(blind, how, **QUICK.get(how, {}))
    assert found.quality is None
    assert torch.equal(found.train, inferred(data, how, **QUICK.get(how, {})).train)
    assert labels_for(how) == "selection"


@pytest.mark.parametrize("how", GUESSED)
def test_there_need_be_no_validation_split(how):
    found = inferred(replace(tiny(n=100), val=None), how, **QUICK.get(how, {}))
    assert found.val is None and len(found.train) == 100


def test_the_known_groups_agree_with_themselves_and_need_labels():
    data = tiny(n=100)
    found = inferred(data, "known")
    assert found.quality["ami"] == pytest.approx(1) and found.quality["recall"] == 100
    bare = {name: split.blinded() for name, split in data.splits.items()}
    with pytest.raises(UserError, match="needs bias labels"):
        inferred(replace(data, **bare, attributes=(), values=(), aligned=()), "known")


def test_wrong_names_are_said_before_anything_is_trained():
    with pytest.raises(UserError, match="did you mean 'george'"):
        inferred("toy", "goerge")
    with pytest.raises(UserError, match="clusters"):
        inferred("toy", "bpa", cluster=3)


def test_a_run_that_diverges_says_why():
    with pytest.raises(UserError, match="not finite"):
        inferred(tiny(n=100), "cnc", recipe={"optimizer": "sgd", "lr": 1e38})


@pytest.mark.parametrize("how", CLASSES)
def test_guesses_are_reported_and_known_groups_are_not(how):
    data = tiny(n=60)
    make = network_maker("linear", data.shape, 2, 0)
    run = EngineRun(data.blinded(labels_for(how)), data.recipe, 0, torch.device("cpu"), make)
    found = finish(infer(run, {"name": how} | QUICK.get(how, {})))
    assert ("groups" in run.guesses) == (how != "known")
    if how != "known":
        assert torch.equal(run.guesses["groups"], found.train)


@pytest.mark.parametrize("how", CLASSES)
def test_every_setting_has_a_meaning_and_a_default(how):
    assert type(inference(how)).__doc__
    for setting in settings_of(type(inference(how))).values():
        assert setting.meaning and setting.check(setting.default, "inference") == setting.default


# Errors and predictions

X = torch.tensor([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 1.0, 2.0], [0.0, 2.0, 1.0], [3.0, 0.0, 1.0]])
Y = torch.tensor([0, 0, 2, 2, 1])  # taken for 0, 1, 2, 1, 0 by a head that is the identity


def by_hand(how, **settings):
    data = Bundle("five", Split(X, Y), Split(X.flip(0), Y), classes=("a", "b", "c"))
    run = EngineRun(data, Recipe(), 0, torch.device("cpu"), network_maker("linear", (3,), 3, seed=0))

    def train(stage):
        stage.model.head.weight.data = torch.eye(3)
        stage.model.head.bias.data.zero_()

    return finish(infer(run, {"name": how} | settings), train), run


@pytest.mark.parametrize("how", ["gce", "jtt"])
def test_groups_are_class_and_error(how):
    found, run = by_hand(how)
    assert found.train.tolist() == [0, 1, 4, 5, 3] and found.number == 6
    assert found.val.tolist() == [0, 1, 4, 5, 3]  # taken for 0, 1, 2, 1, 0 as well: the rows are turned round
    assert run.findings["mined"].tolist() == [False, True, False, True, True]


def test_groups_are_class_and_score():
    found, run = by_hand("ecs", epochs=1, tau=0.6)  # p of the label: 0.66, 0.24, 0.66, 0.24, 0.04
    assert found.train.tolist() == [0, 1, 4, 5, 3] and found.val is None
    assert run.findings["mined"].tolist() == [False, True, False, True, True]


def test_groups_are_class_and_prediction():
    found, _ = by_hand("cnc")
    assert found.train.tolist() == [0, 1, 8, 7, 3] and found.number == 9
    assert found.val.tolist() == [0, 1, 8, 7, 3]


def test_a_first_network_is_stopped_early_where_errors_count():
    def first(how, **settings):
        stage = next(infer(open_run(replace(tiny(n=40), recipe=Recipe(epochs=50))), {"name": how} | settings))
        return stage.epochs

    assert first("jtt") == first("cnc") == 10
    assert first("george") is first("bpa") is None  # the recipe's length: features are wanted, not errors
    assert [first(how, identify_epochs=3) for how in ("jtt", "cnc", "george", "bpa")] == [3] * 4


def test_clusters_are_named_as_the_best_of_all_ways():
    g = torch.Generator().manual_seed(0)
    clusters, y = torch.randint(4, (2, 60), generator=g)

    def right(name):
        return int((torch.tensor(name)[clusters] == y).sum())

    best = max(right(name) for name in itertools.permutations(range(4)))
    name = nearest_classes(clusters, y, 4).tolist()
    assert sorted(name) == [0, 1, 2, 3] and right(name) == best
    assert nearest_classes(torch.tensor([0, 0]), torch.tensor([1, 1]), 2).tolist() == [1, 0]  # one cluster is empty


@pytest.mark.parametrize("reduction", ["none", "pca"])
def test_cnc_by_clustering_finds_the_bias(reduction):
    found = inferred(tiny(n=600), "cnc", by="clustering", reduction=reduction)
    assert found.quality["ami"] > 0.9 and found.number == 4


# Clusters


@pytest.mark.parametrize(
    ("settings", "least"),
    [
        ({}, 0.9),
        ({"clusters": 2, "overcluster": 1}, 0.9),
        ({"clustering": "gmm", "reduction": "pca", "dims": 3}, 0.9),
        ({"clustering": "cosine", "most": 3}, 0.9),
        ({"clustering": "gmm", "reduction": "head", "normalise": False}, 0.1),  # many clusters along the one number
    ],
)
def test_george_finds_the_toys_groups(settings, least):
    found = inferred(tiny(n=1000), "george", **settings)
    assert found.quality["ami"] > least and found.quality["recall"] > 60


def test_bpa_has_as_many_clusters_of_each_class_as_asked():
    found = inferred(tiny(n=300), "bpa", clusters=5)
    assert found.number == 10 and len(found.train.unique()) == 10
    assert inferred(pictures(), "bpa", "simconv1").number == 4 * 8


def test_classes_are_clustered_apart_and_numbered_one_after_the_other(monkeypatch):
    """Each class is given its own rows, losses and validation rows."""
    data = tiny(n=50)
    run, seen = open_run(data), []

    def fit(c, features, losses, held_out):
        seen.append((features, losses, held_out))
        return Clusters(torch.arange(len(features)) % (c + 2), c + 2, lambda rows: torch.full((len(rows),), c))

    net = run.net()
    found: Groups = within._in_each_class(run, net, fit)
    y = data.train.y
    for c, (features, losses, held_out) in enumerate(seen):
        assert torch.equal(features, data.train.x[y == c]) and torch.equal(held_out, data.val.x[data.val.y == c])
        slow = torch.nn.functional.cross_entropy(net(features), y[y == c], reduction="none")
        torch.testing.assert_close(losses, slow.detach())
    assert found.number == 5
    assert found.train[y == 1].tolist() == [2 + i % 3 for i in range(int((y == 1).sum()))]
    assert found.val.tolist() == [3 if c else 0 for c in data.val.y.tolist()]


def test_a_class_without_rows_is_one_empty_group():
    data = replace(tiny(n=60), classes=("left", "right", "nowhere"), aligned=(), attributes=(), values=())
    bare = {name: split.blinded() for name, split in data.splits.items()}
    for how in ("george", "bpa"):
        found = inferred(replace(data, **bare), how)
        assert int(found.train.max()) == found.number - 2


def test_the_margin_is_the_logits_difference_of_two_classes():
    net = network_maker("linear", (4,), 2, seed=0)(0)
    x = torch.randn(20, 4)
    w = net.head.weight.detach()
    expected = x @ (w[1] - w[0]) / (w[1] - w[0]).norm()
    torch.testing.assert_close(margin_along(w, 1)(x)[:, 0], expected)
    torch.testing.assert_close(margin_along(w, 0)(x)[:, 0], -expected)


# Cutting clusters finer


def heaps(*centres_and_sizes):
    g = torch.Generator().manual_seed(0)
    return torch.cat([c + 0.1 * torch.randn(n, 1, generator=g) for c, n in centres_and_sizes])


def cut(losses, small=60, val_rows=30, base_k=2):
    """Two clusters, at 0..4 and at 20, the first of which is two heaps; the second heap has these losses."""
    x = heaps((0.0, 100), (4.0, small), (20.0, 100))
    base = cluster(x, base_k)
    all_losses = torch.cat([torch.ones(100), torch.full((small,), losses), torch.ones(100)])
    held_out = None if val_rows is None else heaps((0.0, 30), (4.0, val_rows), (20.0, 30))
    return overclustered(base, x, all_losses, held_out, 2, "kmeans", seed=0)


def test_a_part_with_a_higher_loss_becomes_a_cluster():
    found = cut(losses=5.0)
    assert found.number == 3
    assert [found.labels[rows].unique().numel() for rows in (slice(100), slice(100, 160), slice(160, None))] == [1] * 3
    assert len({int(found.labels[i]) for i in (0, 100, 160)}) == 3
    assert found.assign(torch.tensor([[0.1], [4.1], [20.1]])).tolist() == [int(found.labels[i]) for i in (0, 100, 160)]


@pytest.mark.parametrize("why", [{"losses": 5.0, "small": 24}, {"losses": 5.0, "val_rows": 24}])
def test_a_part_that_is_too_small_stays(why):
    found = cut(**why)
    assert found.number == 2 and int(found.labels[0]) == int(found.labels[100])


def test_without_validation_rows_only_training_rows_are_counted():
    assert cut(losses=5.0, val_rows=None).number == 3


@pytest.mark.parametrize(("losses", "cut_off"), [(5.0, 100), (0.1, 0)])
def test_of_two_parts_the_harder_one_is_cut_off_and_the_other_stays_in_place(losses, cut_off):
    found = cut(losses=losses)
    rest = 100 - cut_off
    assert found.number == 3 and int(found.labels[cut_off]) == int(found.labels[rest]) + 1  # the rest comes first


def test_numbers_of_parts_that_are_kept():
    assert merged(torch.tensor([True, False, False, False]), 2)[0].tolist() == [1, 0, 2, 2]
    assert merged(torch.zeros(6, dtype=torch.bool), 3) == (pytest.approx([0, 0, 0, 1, 1, 1]), 2)


def test_a_round_cluster_is_not_cut():
    x = torch.randn(300, 8, generator=torch.Generator().manual_seed(0))
    x[:150, 0] += 20
    base = cluster(x, 2)
    found = overclustered(base, x, torch.rand(300), None, 3, "kmeans", seed=0)
    assert found.number == 2 and torch.equal(found.labels, base.labels)  # silhouettes would fall
