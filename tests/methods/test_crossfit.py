"""crossfit scores samples by networks that have not seen them, and is plain training if nothing speaks against it."""

import json
import math
from dataclasses import replace

import pytest
import torch
from scipy.stats import binomtest

from spurless.core.data import Bundle, Split, Texts
from spurless.core.method import Stage
from spurless.core.recipe import Recipe
from spurless.methods.crossfit import CrossFit
from spurless.methods.dfr import Samples, fit_head
from spurless.methods.group_inference.experts import train_experts
from spurless.methods.parts.evidence import (
    FIXED,
    SHARES,
    TEMPERATURES,
    Evidence,
    Sure,
    chance,
    harmless,
    odds,
    sharpness,
    shortcut_evidence,
    shows_shortcut,
)
from spurless.registry import load_data
from spurless.train.fit import fit
from tests.support.attacks import engine_run
from tests.support.runs import CPU, same_weights, stages_of
from tests.support.worlds import pictures, tiny


def odds_by_hand(missed, y, floor, power):
    """Sums written out."""
    classes = set(y)
    by_hand = []
    for m, label in zip(missed, y, strict=True):
        total = sum(q**power for q, other in zip(missed, y, strict=True) if other == label)
        by_hand.append((1 - floor) * m**power / total / len(classes) + floor / len(y))
    return by_hand


@pytest.mark.parametrize("power", [1.0, 2.5])
@pytest.mark.parametrize("floor", [0.0, 0.3, 1.0])
def test_odds_are_the_formula_and_sum_to_one(floor, power):
    g = torch.Generator().manual_seed(0)
    missed, y = torch.rand(40, generator=g, dtype=torch.float64), torch.randint(3, (40,), generator=g)
    drawn = odds(missed, y, floor, power)
    assert drawn.tolist() == pytest.approx(odds_by_hand(missed.tolist(), y.tolist(), floor, power))
    assert float(drawn.sum()) == pytest.approx(1)
    assert float(drawn.min()) >= floor / 40 - 1e-12


def test_a_class_that_the_experts_know_by_heart_is_still_drawn():
    drawn = odds(torch.tensor([0.0, 0.0, 0.5]).double(), torch.tensor([0, 0, 1]), 0.0)
    assert drawn.tolist() == pytest.approx([0.25, 0.25, 0.5])


@pytest.mark.parametrize("classes", [2, 10])
def test_drawn_by_sharp_odds_the_experts_are_right_by_chance_only(classes):
    g = torch.Generator().manual_seed(1)
    y = torch.randint(classes, (5000,), generator=g)
    missed = torch.where(torch.rand(5000, generator=g) < 0.05, 0.98, 0.02).double()
    drawn = odds(missed, y, 0.0, sharpness(missed, y))
    assert float((drawn * (1 - missed)).sum()) == pytest.approx(1 / classes, abs=1e-3)


def answers(n, classes, wrong, sure_where_wrong, seed=2):
    """An expert's answers: wrong on a share of the samples, where it is as sure as elsewhere, or unsure and honest."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (n,), generator=g)
    if sure_where_wrong:
        says = torch.where(torch.rand(n, generator=g) < wrong, (y + 1) % classes, y)
        sure = 3 + 9 * torch.rand(n, 1, generator=g, dtype=torch.double)  # some more than others, right or wrong
        logits = sure * torch.nn.functional.one_hot(says, classes).double()
    else:
        logits = torch.randn(n, classes, generator=g, dtype=torch.double) * 2
        logits = torch.where(torch.rand(n, 1, generator=g) < 2 * wrong, logits, 8.0 * torch.eye(classes).double()[y])
        y = torch.where(logits.max(1).values < 8, torch.multinomial(logits.softmax(1), 1, generator=g)[:, 0], y)
    return logits.softmax(1), y


@pytest.mark.parametrize("classes", [2, 10])
def test_a_shortcut_shows_where_the_experts_are_sure_and_wrong(classes):
    assert shows_shortcut(*answers(5000, classes, 0.02, sure_where_wrong=True))
    assert not shows_shortcut(*answers(5000, classes, 0.2, sure_where_wrong=False))  # calibrated: hard, not misled
    assert not shows_shortcut(*answers(200, classes, 0.02, sure_where_wrong=True))  # too few errors
    p, y = answers(500, classes, 0.0, sure_where_wrong=True)
    assert (p.argmax(1) == y).all() and not shows_shortcut(p, y)  # none at all


def test_the_share_that_confidence_leaves_unexplained_is_that_of_a_slow_search():
    """ε = 5 % of drawn labels: the maximum of the likelihood lies there, whatever the temperature was."""
    p, y = answers(4000, 10, 0.05, sure_where_wrong=True)
    log_p = p.log()

    def likelihood(t, share):
        of_label = (log_p / t).softmax(1)[torch.arange(len(y)), y]
        return float(((1 - share) * of_label + share / 10).log().sum())

    best = max((likelihood(t, s), s) for t in TEMPERATURES for s in SHARES)[1]
    assert best * 0.9 * len(y) == pytest.approx(int((p.argmax(1) != y).sum()), rel=0.25)
    assert shows_shortcut(p, y) and shows_shortcut((log_p * 3).softmax(1), y)


def test_what_is_right_where_the_shortcut_misleads_opens_the_gate():
    g = torch.Generator().manual_seed(0)
    p, y = answers(5000, 10, 0.05, sure_where_wrong=True)
    evidence, before = Evidence(p, y, shows_shortcut(p, y)), p.argmax(1) == y
    assert evidence.score(before) == pytest.approx(0.1, abs=0.05)
    repaired = torch.rand(5000, generator=g) < 0.4  # fewer of all are right, four times as many as guesses would be
    assert evidence.prefers(repaired, before, 0.05) and not evidence.prefers(before, repaired, 0.05)


@pytest.mark.parametrize("classes", [2, 10])
def test_drawn_labels_open_the_gate_no_more_often_than_its_level(classes):
    """Of 400 networks that know nothing of drawn labels, as many look repaired as the level says (and 2.3 sd more)."""
    g = torch.Generator().manual_seed(0)
    p, y = answers(4000, classes, 0.05, sure_where_wrong=True)
    evidence = Evidence(p, y, Sure(1.0, 0.06))
    before, opened = p.argmax(1) == y, 0
    for _ in range(400):
        guesses = torch.randint(classes, (4000,), generator=g) == y
        opened += evidence.prefers(guesses, before, 0.05)
    assert opened <= 0.075 * 400


def test_the_chance_is_the_binomial_tests():
    for more in range(8):
        for less in range(8):
            if more + less:
                expected = binomtest(more, more + less, alternative="greater").pvalue
                assert chance(more, less) == pytest.approx(expected)


def test_where_a_shortcut_may_be_at_work_more_must_be_right_beyond_chance():
    misled = torch.arange(1000) < 40
    before = ~misled  # plain training relies on what is easy
    before[:10] = True
    repaired = before.clone()
    repaired[:35] = True
    assert shortcut_evidence(misled, before, repaired)
    hard = before.clone()
    hard[10:15] = True  # 5 of 30 errors: beyond chance, yet most stay
    assert chance(5, 0) <= 0.05 and FIXED * 30 > 5
    assert not shortcut_evidence(misled, before, hard)


def test_the_error_rate_of_the_gate_is_its_level():
    """Two networks that are equally good on every sample: how often is the second one preferred?"""
    g = torch.Generator().manual_seed(0)
    opened = 0
    for _ in range(2000):
        misled = torch.rand(500, generator=g) >= 0.92
        p = torch.where(misled, 0.5, 0.97)
        before, after = (torch.rand(500, generator=g) < p for _ in range(2))
        opened += shortcut_evidence(misled, before, after)
    assert opened / 2000 <= 0.05


def test_held_out_samples_weigh_as_in_the_world_that_the_errors_speak_for():
    """An expert that is right on 90 of 100 samples: what is it worth where that is a shortcut, and where not?"""
    y = torch.tensor([0, 1] * 50)
    right = torch.arange(100) >= 10
    expert = torch.nn.functional.one_hot(torch.where(right, y, 1 - y), 2).double() * 8  # p = 0.9997 of what it says
    shown = Evidence(expert.softmax(1), y, Sure(1.0, 0.2))
    assert torch.equal(shown.misled, ~right)
    assert shown.score(right) == pytest.approx(0.5, abs=0.02)  # as good as a guess
    not_shown = Evidence(expert.softmax(1), y, None)
    assert not_shown.score(right) == pytest.approx((0.5 + 0.9) / 2, abs=0.02)


def test_a_class_that_the_experts_never_give_is_rare_and_not_misled():
    """They always say 0: of 70 samples of class 0 all are right, of 30 of class 1 none; then three of these are."""
    y = (torch.arange(100) >= 70).long()
    says = torch.zeros(100, dtype=torch.long)
    p = torch.nn.functional.one_hot(says, 2).double() * 0.6 + 0.2
    assert not Evidence(p, y, None).misled.any()
    says[-3:] = 1  # a tenth
    p = torch.nn.functional.one_hot(says, 2).double() * 0.6 + 0.2
    assert Evidence(p, y, None).misled.nonzero()[:, 0].tolist() == list(range(70, 97))


def test_a_hard_sample_does_not_count_as_misled_where_the_expert_was_unsure():
    """Ten confident errors, forty unsure ones: the world in which the shortcut tells nothing is made of the ten."""
    y = torch.zeros(1000, dtype=torch.long)
    logits = torch.tensor([[8.0, 0.0, 0.0]]).double().repeat(1000, 1)
    logits[:10], logits[10:50] = torch.tensor([0.0, 8.0, 0.0]), torch.tensor([0.0, 0.5, 0.0])
    evidence = Evidence(logits.softmax(1), y, Sure(1.0, 0.015))
    assert evidence.misled.nonzero()[:, 0].tolist() == list(range(10))
    assert float(evidence.weights[:10].sum()) > 0.5
    assert float(evidence.weights.sum()) == pytest.approx(1)


def test_with_the_gate_shut_it_is_plain_training_to_the_bit():
    data = tiny(n=200, rho=0.5)
    found, plain = (fit(m, data, seed=1, **CPU) for m in (CrossFit(level=0), "erm"))
    assert same_weights(found.classifier, plain.classifier)
    assert found.mining["mined"]["n_mined"] == 0


def test_harmless_is_what_surely_costs_less_than_half_a_point():
    right = torch.ones(6000, dtype=torch.bool)
    for lost, is_harmless in ((0, True), (15, True), (21, True), (22, False), (40, False)):
        after = torch.arange(6000) >= lost  # 21 + 1.645 √(21 + 2.71) = 29.01, 22 + 1.645 √24.71 = 30.2, of 30
        assert harmless(after, right) is (lost + 1.6449 * math.sqrt(lost + 2.7055) <= 30) is is_harmless
    assert not harmless(right[:541], right[:541]) and harmless(right[:542], right[:542])  # 2.7055 of 541.1
    assert harmless(right, torch.arange(6000) >= 500)  # better by far
    assert not harmless(right, right, level=0.0) and harmless(~right, right, level=1.0)


@pytest.mark.parametrize("changed", [0.006, 0.05])
def test_what_costs_half_a_point_is_called_harmless_no_more_often_than_the_level_says(changed):
    g = torch.Generator().manual_seed(0)
    before, called = torch.rand(4000, generator=g) < 0.9, 0
    lost, won = (changed + 0.005) / 2 / 0.9, (changed - 0.005) / 2 / 0.1
    for _ in range(1000):
        u = torch.rand(4000, generator=g)
        called += harmless(torch.where(before, u >= lost, u < won), before)
    assert called / 1000 <= 0.065


def test_no_shortcut_no_harm():
    for seed in range(3):
        data = load_data({"name": "toy", "rho": 0.5, "seed": seed})
        found, plain = (fit(m, data, net="mlp", seed=seed, **CPU).scores for m in ("crossfit", "erm"))
        assert found["average"] > plain["average"] - 1


def test_a_shortcut_is_found_where_the_held_out_samples_can_show_it():
    data = load_data({"name": "toy", "n": 20_000})
    found, plain = (fit(m, data, net="linear", seed=0, **CPU).scores for m in ("crossfit", "erm"))
    assert found["conflicting"] > plain["conflicting"] + 10


def test_no_expert_scores_a_sample_that_it_has_seen_and_the_cost_is_at_most_three_trainings(monkeypatch):
    stages = []
    init = Stage.__init__

    def watched(self, *args, **kwargs):
        init(self, *args, **kwargs)
        stages.append(self)

    monkeypatch.setattr(Stage, "__init__", watched)
    data = tiny(n=200)
    data = replace(data, recipe=replace(data.recipe, epochs=10))
    result = fit("crossfit", data, **CPU)
    halves = [set(s.rows.tolist()) for s in stages if s.name.startswith("expert")]
    assert halves[0].isdisjoint(halves[1]) and len(halves[0] | halves[1]) == 200
    steps = {row["stage"]: row["step"] for row in result.history}
    assert sum(steps.values()) <= 3.1 * steps["plain"]  # pilots and experts end with an epoch


def test_without_a_validation_split_a_tenth_is_held_out_of_all_trainings(monkeypatch):
    stages = []
    init = Stage.__init__

    def watched(self, *args, **kwargs):
        init(self, *args, **kwargs)
        stages.append(self)

    monkeypatch.setattr(Stage, "__init__", watched)
    result = fit("crossfit", replace(tiny(n=200), val=None), **CPU)
    seen = [set(s.rows.tolist()) for s in stages]
    assert result.status == "done" and len(set.union(*seen)) == 179
    assert len(seen[0]) == len(seen[-1]) == 179 and len(seen[1]) == 90


def test_the_gate_stays_shut_where_more_is_lost_than_won():
    """Of 100 misled samples 40, 60 or 40 are mended; of the other 400 are lost 80 (beyond chance more), or 30."""
    y, misled = torch.tensor([0, 1] * 250), torch.arange(500) < 100
    p = torch.nn.functional.one_hot(torch.where(misled, 1 - y, y), 2).double() * 0.8 + 0.1
    evidence = Evidence(p, y, None)
    before = torch.arange(500) >= 100
    for mended, lost, opens in ((40, 80, False), (60, 80, True), (40, 30, True)):
        after = before.clone()
        after[:mended], after[100 : 100 + lost] = True, False
        assert evidence.score(after) > evidence.score(before)
        assert evidence.prefers(after, before, level=0.05) is opens


def test_a_weight_counts_as_so_many_copies():
    g = torch.Generator().manual_seed(0)
    x, copies = torch.randn(60, 3, generator=g), torch.randint(1, 4, (60,), generator=g)
    y = (x[:, 0] + torch.randn(60, generator=g) > 0).long()
    net = Linear(3)
    once = Samples.of(x, y, y, net)
    repeated = once.pick(torch.arange(60).repeat_interleave(copies))
    # The penalty is beside a mean of weights of one: the same as C times the mean number of copies.
    mean = float(copies.double().mean())
    heads = fit_head(once, "l2", 0.1, copies.double()), fit_head(repeated, "l2", 0.1 / mean)
    assert heads[0].weight == pytest.approx(heads[1].weight, rel=1e-2)
    assert heads[0].weight != pytest.approx(fit_head(once, "l2", 0.1).weight, rel=1e-2)


class Linear:
    """What Samples asks of a network."""

    classes = 2

    def __init__(self, width):
        self.head = torch.nn.Linear(width, 2)


def test_of_two_classes_a_new_head_takes_over_what_the_features_hold(monkeypatch):
    """Held-out samples in which the cue tells nothing: plain training relies on it, its features hold the rest."""
    data = load_data({"name": "toy", "rho": 0.05, "n": 2000})
    balanced = load_data({"name": "toy", "rho": 0.5, "seed": 1})
    found, plain = (fit(m, replace(data, val=balanced.val), net="mlp", seed=0, **CPU) for m in ("crossfit", "erm"))
    assert found.scores["conflicting"] > plain.scores["conflicting"] + 5
    assert found.scores["average"] > plain.scores["average"]
    monkeypatch.setattr("spurless.methods.parts.refit.FEWEST", 10**6)  # no class has so many samples: no head is fitted
    without = fit("crossfit", replace(data, val=balanced.val), net="mlp", seed=0, **CPU)
    assert without.scores["conflicting"] < found.scores["conflicting"]


def test_small_experts_are_trained_alike_whatever_the_recipe_is(monkeypatch):
    """Three halvings: what says p of a sample has not trained on it, and neither batch size nor augmentation decide."""
    recipe = Recipe("sgd", 0.5, batch_size=256, epochs=1, schedule="step", augment="pgd_digits", weight_decay=0.1)
    stages, result = stages_of(monkeypatch, "crossfit", pictures(), "simconv1", recipe)
    experts = [s for s in stages if s.name.startswith("expert")]
    assert len(experts) == 6 and result.status == "done"
    for one, other in zip(experts[::2], experts[1::2], strict=True):
        assert set(one.rows.tolist()).isdisjoint(other.rows.tolist()) and len(one.rows) + len(other.rows) == 64
    assert len({tuple(s.rows.tolist()) for s in experts}) == 6
    for stage in experts:
        assert isinstance(stage.optimizer, torch.optim.Adam) and stage.optimizer.param_groups[0]["weight_decay"] == 0
        own = stage.recipe
        assert (own.lr, own.schedule, own.augment, own.epochs) == (3e-3, "cosine", "none", 16)


def test_a_sample_is_scored_by_the_experts_that_have_not_seen_it(monkeypatch):
    """An expert that answers 0 of what it has seen and 1 of the rest: the mean of those asked is all 1."""
    run, seen = engine_run(pictures(), "simconv1"), []

    def outputs(net, split=None, **_):
        knows = torch.isin(torch.arange(64), seen[nets.index(net)])
        return torch.where(knows[:, None], 50.0, -50.0) * torch.tensor([1.0, -1.0, -1.0, -1.0])

    nets, ended = [], []

    def walk():
        ended.append((yield from train_experts(run, torch.arange(60), 0.7, 0.2)))  # the last four are held out of all

    for stage in walk():
        nets.append(stage.model)
        seen.append(stage.rows)
    experts = ended[0]
    monkeypatch.setattr(run, "outputs", outputs)
    assert experts.small and len(experts.nets) == 6 and experts.nets == tuple(nets)
    assert experts.on_training(run)[:, 0].max() < 1e-6
    by_number = {id(net): torch.full((2, 4), float(k)) for k, net in enumerate(nets)}
    assert torch.equal(experts.on(lambda net: by_number[id(net)]), torch.full((2, 4), 2.5))  # all six speak


def test_what_the_experts_depend_on_is_in_the_key_of_what_follows(monkeypatch):
    """What is added to the logits is in no digest: runs of other experts must not share that stage."""
    keys = []
    for changes in ({}, {"level": 1.0}, {"q": 0.5}, {"share": 0.4}):
        stages, _ = stages_of(monkeypatch, CrossFit(**changes), tiny())
        keys.append([json.dumps(stage.shared) for stage in stages if stage.name == "debiased"])
    assert keys[0] == keys[1] and len(keys[0]) == 1 and keys[2] != keys[0] != keys[3]


def test_what_the_gate_says_changes_no_training(tmp_path):
    """With level 1 and 0 the same stages are shared: the second run trains none of them."""
    settings = {"net": "mlp", "stages": tmp_path, **CPU}
    always, never = (fit(CrossFit(level=level), tiny(n=400), **settings) for level in (1, 0))
    assert not any(row.get("shared") for row in always.history) and all(row["shared"] for row in never.history)
    assert not same_weights(always.classifier, never.classifier)


def test_the_experts_of_images_are_small_whatever_the_network_is():
    run = engine_run(pictures(), "simconv1")
    easy, again = run.easy_net(), run.easy_net()
    assert [m.out_channels for m in easy.modules() if isinstance(m, torch.nn.Conv2d)] == [16, 32, 64]
    assert not same_weights(easy, again) and same_weights(easy, engine_run(pictures(), "linear").easy_net())
    assert easy(torch.zeros(2, 3, 28, 28)).shape == (2, 4)
    assert engine_run(tiny(), "mlp").easy_net() is None  # of a table there is nothing smaller than its own


def test_the_experts_of_texts_are_bags_of_words_that_know_every_id():
    ids = torch.stack([torch.tensor([[5, 70_000], [1, 1]]), torch.tensor([[5, 6], [1, 1]])]).int()
    data = Bundle("words", Split(ids, torch.tensor([0, 1])), inputs=Texts(None))
    easy = engine_run(data, "embedding_bag").easy_net()
    assert easy.encoder.embedding.num_embeddings == 70_001 and easy(ids).shape == (2, 2)
