"""Where the range of a sweep ends, and its means."""

import math

import pytest

from spurless.bench.points import mean_of, ranges
from spurless.core.errors import UserError
from spurless.sweep.axes import Axis
from spurless.sweep.choice import choose, the_rule
from spurless.sweep.measures import measures
from spurless.train.fit import fit
from tests.support.sweeps import LR, NET, QUICK, points, row
from tests.support.worlds import tiny


def test_one_seed_that_diverges_takes_the_value_out_and_is_never_averaged_in():
    found = points([row(0, 60), row(1, 62)], [row(0, 80), row(1, status="diverged")], [row(0, 90), row(1, 92)])
    assert [p.diverged for p in found] == [False, True, False]
    assert [p.in_range for p in found] == [True, False, False]  # what lies beyond does not come back
    assert found[1].means == {}  # not the mean of the seed that survived
    assert [run["status"] for run in found[1].runs] == ["done", "diverged"]
    assert found[2].means["unbiased"]["mean"] == 91
    assert ranges(found)["unbiased"] == {"min": 61, "max": 61, "at_min": 0.01, "at_max": 0.01}


def test_a_fall_counts_from_gentler_values_only():
    found = points([row(unbiased=55.0)], [row(unbiased=85.7)], [row(unbiased=60.8)])
    assert [p.fell for p in found] == ["", "", ""]  # 30 points below the best, but before it; then 24.9 below it
    found = points([row(unbiased=55.0)], [row(unbiased=85.7)], [row(unbiased=60.6)])
    assert [p.fell for p in found] == ["", "", "test accuracy"]
    assert [p.stable for p in found] == [True, True, True]  # what the test split says is not known when choosing


def test_a_fall_in_a_single_seed_is_enough_although_the_means_hold():
    up = [row(0, 70), row(1, 90)]
    found = points(up, [row(0, 96), row(1, 64.9)])
    assert found[1].fell == "test accuracy"
    assert points(up, [row(0, 96), row(1, 65.0)])[1].fell == ""  # 25 points are allowed


def test_training_accuracy_that_falls_takes_a_value_out_of_the_choice_too():
    found = points([row(train=100)], [row(train=70)], [row(train=100)])
    assert [p.fell for p in found] == ["", "training accuracy", ""]
    assert [p.stable for p in found] == [True, False, False]
    assert [p.in_range for p in found] == [True, False, False]


def test_words_have_no_order_so_nothing_falls_and_one_that_diverges_ends_nothing():
    axis = Axis("optimizer", "recipe.optimizer", ("sgd", "adam", "adamw"))
    found = points([row(unbiased=90)], [row(status="diverged")], [row(unbiased=40)], axis=axis)
    assert [(p.diverged, p.fell, p.in_range, p.stable) for p in found] == [
        (False, "", True, True),
        (True, "", False, False),
        (False, "", True, True),
    ]
    first = points([row(status="diverged")], [row()], axis=axis)
    chosen = [(axis, choose(first, axis.towards)), (LR, choose(points([row()])))]
    assert chosen[0][1].value == "adam"  # beyond one that diverged, so the rule may not say "up to the first one"
    assert the_rule(chosen[:1]).startswith("The rule: of the values at which training diverged in no seed, the one")
    assert the_rule(chosen[1:]).startswith("The rule: of the values up to the first one")
    assert "25 points or, where they are words, of the values at which" in the_rule(chosen)


def test_a_run_that_failed_is_a_mistake():
    with pytest.raises(UserError, match="disk full"):
        points([{"status": "failed", "seed": 0, "error": "disk full"}])


def test_runs_that_stopped_short_are_counted():
    asked = row(train=99.9) | {"settings": {"recipe": {"until_accuracy": 100}}}
    assert points([asked, row(1)])[0].stopped_short == 1


def test_a_run_whose_loss_was_asked_for_and_not_reached_stopped_short():
    data = tiny(n=60)
    for loss, reached in ((1e-9, False), (10.0, True)):
        result = fit("erm", data, net=NET, recipe=QUICK | {"until_loss": loss})
        asked = row(**measures(result, data)) | {"settings": {"recipe": {"until_loss": loss}}}
        assert points([asked])[0].stopped_short == int(not reached), loss
    both = row(reached=False) | {"settings": {"recipe": {"until_accuracy": 100, "until_loss": 1e-5}}}
    assert points([both])[0].stopped_short == 1  # all rows are right, but the loss is not reached


def test_mean_and_interval_by_hand():
    runs = [{"unbiased": v} for v in (60.0, 62.0, 67.0)]
    found = mean_of(runs, "unbiased")
    sd = math.sqrt((9 + 1 + 16) / 2)
    assert (found["mean"], found["n"], found["least"], found["most"]) == (63.0, 3, 60.0, 67.0)
    assert found["sd"] == pytest.approx(sd)
    assert found["high"] - 63 == pytest.approx(4.302653 * sd / math.sqrt(3), rel=1e-5)  # t of 2 degrees of freedom
    assert mean_of([{"unbiased": 99.0}, {"unbiased": 100.0}], "unbiased")["high"] == 100.0
    assert mean_of([{"csi": 0.0}, {"csi": 0.4}], "csi")["low"] == 0.0  # and no measure is below 0
    assert mean_of([{"unbiased": 1.0}], "unbiased") == {"mean": 1.0, "n": 1}
    assert mean_of([{}], "unbiased") is None
