"""crossfit scores samples by networks that have not seen them, and is plain training if nothing speaks against it."""

from dataclasses import replace

import pytest
import torch
from scipy.stats import binomtest

from spurless.core.method import Stage
from spurless.methods.crossfit import FIXED, CrossFit, chance, odds, shortcut_evidence
from spurless.registry import load_data
from spurless.train.fit import fit
from tests.support.runs import CPU, same_weights
from tests.support.worlds import tiny


def odds_by_hand(p_y, y, floor):
    """Sums written out."""
    classes = set(y)
    found = []
    for p, label in zip(p_y, y, strict=True):
        total = sum(1 - q for q, other in zip(p_y, y, strict=True) if other == label)
        found.append((1 - floor) * (1 - p) / total / len(classes) + floor / len(y))
    return found


@pytest.mark.parametrize("floor", [0.0, 0.3, 1.0])
def test_odds_are_the_formula_and_sum_to_one(floor):
    g = torch.Generator().manual_seed(0)
    p_y, y = torch.rand(40, generator=g, dtype=torch.float64), torch.randint(3, (40,), generator=g)
    found = odds(p_y, y, floor)
    assert found.tolist() == pytest.approx(odds_by_hand(p_y.tolist(), y.tolist(), floor))
    assert float(found.sum()) == pytest.approx(1)
    assert float(found.min()) >= floor / 40 - 1e-12


def test_a_class_that_the_experts_know_by_heart_is_still_drawn():
    found = odds(torch.tensor([1.0, 1.0, 0.5]).double(), torch.tensor([0, 0, 1]), 0.0)
    assert found.tolist() == pytest.approx([0.25, 0.25, 0.5])


def test_the_chance_is_the_binomial_tests():
    for more in range(8):
        for less in range(8):
            if more + less:
                expected = binomtest(more, more + less, alternative="greater").pvalue
                assert chance(more, less) == pytest.approx(expected)


def test_the_gate_opens_for_a_shortcut_and_for_nothing_else():
    n, contradicting = 1000, 40
    easy = torch.arange(n) >= contradicting
    before = easy.clone()  # plain training relies on what is easy
    before[:10] = True
    repaired = before.clone()
    repaired[:35] = True
    assert shortcut_evidence(easy, before, repaired)
    slightly_worse_elsewhere = repaired.clone()
    slightly_worse_elsewhere[800:900] = False  # 62 % gained, 10 % lost
    assert shortcut_evidence(easy, before, slightly_worse_elsewhere)
    noise_learnt = repaired.clone()
    noise_learnt[600:900] = False  # 62 % gained at the expense of 31 %
    assert not shortcut_evidence(easy, before, noise_learnt)
    hard = before.clone()
    hard[10:15] = True  # 5 of 30 errors: beyond chance, yet most stay
    assert chance(5, 0) <= 0.05 and FIXED * 30 > 5
    assert not shortcut_evidence(easy, before, hard)


def test_the_error_rate_of_the_gate_is_its_level():
    """Two networks that are equally good on every sample: how often is the second one preferred?"""
    g = torch.Generator().manual_seed(0)
    opened = 0
    for _ in range(2000):
        easy = torch.rand(500, generator=g) < 0.92
        p = torch.where(easy, 0.97, 0.5)
        before, after = (torch.rand(500, generator=g) < p for _ in range(2))
        opened += shortcut_evidence(easy, before, after)
    assert opened / 2000 <= 0.05


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


def test_no_expert_scores_a_sample_that_it_has_seen_and_the_cost_is_that_of_two_trainings_and_a_bit(monkeypatch):
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
    assert sum(steps.values()) <= 2.5 * steps["plain"]


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
