"""crossfit scores samples by networks that have not seen them, and is plain training if nothing speaks against it."""

from dataclasses import replace

import pytest
import torch
from scipy.stats import binomtest

from spurless.core.method import Stage
from spurless.methods.crossfit import CrossFit
from spurless.methods.dfr import Samples, fit_head
from spurless.methods.parts.evidence import (
    FIXED,
    Evidence,
    chance,
    odds,
    sharpness,
    shortcut_evidence,
    shows_shortcut,
)
from spurless.registry import load_data
from spurless.train.fit import fit
from tests.support.runs import CPU, same_weights
from tests.support.worlds import tiny


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


def confusions(classes, n, tell):
    """Wrong answers to n samples: any class but the right one alike, or its neighbour with probability `tell`."""
    g = torch.Generator().manual_seed(2)
    y = torch.randint(classes, (n,), generator=g)
    any_other = (y + torch.randint(1, classes, (n,), generator=g)) % classes
    return y, torch.where(torch.rand(n, generator=g) < tell, (y + 1) % classes, any_other)


def test_a_shortcut_misleads_to_any_class_and_hard_classes_to_their_like():
    assert shows_shortcut(*confusions(10, 1000, tell=0.0)) is True
    assert shows_shortcut(*confusions(10, 1000, tell=0.8)) is False
    assert shows_shortcut(*confusions(10, 30, tell=0.5)) is None  # too few to tell
    assert shows_shortcut(*confusions(2, 1000, tell=0.0)) is None
    y = torch.arange(10)
    assert shows_shortcut(y, y) is None  # no error at all


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
    expert = torch.nn.functional.one_hot(torch.where(right, y, 1 - y), 2).double() * 4  # p = 0.982 of what it says
    scores = {shown: Evidence(expert.softmax(1), y, shown).score(right) for shown in (True, None, False)}
    assert scores[False] == pytest.approx(0.9) and scores[None] == pytest.approx((scores[True] + 0.9) / 2)
    assert scores[True] == pytest.approx(0.5, abs=0.02)  # as good as a guess


def test_with_the_gate_shut_it_is_plain_training_to_the_bit():
    data = tiny(n=200, rho=0.5)
    found, plain = (fit(m, data, seed=1, **CPU) for m in (CrossFit(level=0), "erm"))
    assert same_weights(found.classifier, plain.classifier)
    assert found.mining["mined"]["n_mined"] == 0


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
    monkeypatch.setattr("spurless.methods.crossfit.FEWEST", 10**6)  # no class has so many samples: no head is fitted
    without = fit("crossfit", replace(data, val=balanced.val), net="mlp", seed=0, **CPU)
    assert without.scores["conflicting"] < found.scores["conflicting"]
