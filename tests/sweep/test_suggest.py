"""The search for the largest stable learning rate."""

import json
import math

import pytest

from spurless.sweep import suggest
from spurless.sweep.axes import Axis
from spurless.sweep.suggest import NEAR, Search, nice, suggest_lr
from tests.support.sweeps import NET, QUICK, SMALL, row


def search_for(edge, own=0.1, budget=1e9, collapse=None, seconds=0.0, diverges=True, before=()):
    """A search among made-up runs that are stable below `edge`; from `collapse` on they learn nothing."""
    clock = [0.0]

    def trial(rate):
        rate = own if rate is None else rate
        clock[0] += 0 if rate in before else seconds
        bad = rate >= edge
        status = "diverged" if bad and diverges else "done"
        learnt = 10.0 if (bad and not diverges) or (collapse is not None and rate >= collapse) else 100.0
        return rate, [row(0, 70, learnt, 90.0, status) | {"wall_seconds": seconds}]

    return Search(trial, budget, lambda rate: rate in before), clock


@pytest.mark.parametrize("edge", [0.11, 0.3, 1.7, 29.0, 0.1, 0.004])
@pytest.mark.parametrize("diverges", [True, False])
def test_the_search_ends_near_the_edge(edge, diverges):
    search, _ = search_for(edge, diverges=diverges)
    search.run()
    assert search.stable < edge <= search.unstable
    assert search.unstable / search.stable <= NEAR * 1.001
    assert len(search.rows) <= 14
    assert next(iter(search.rows)) == 0.1  # the recipe's own, always


def test_the_search_goes_down_from_any_rate_and_on_where_nothing_was_learnt():
    """Far above the edge all diverge; just below it a network gives numbers and has learnt nothing."""
    search, _ = search_for(edge=3.0, own=1e8, collapse=0.5)
    search.run()
    assert search.stable < 0.5 and search.rows[search.stable][0]["extra"]["train_accuracy"] == 100


def test_the_search_halves_on_the_logarithmic_scale():
    search, _ = search_for(1.0)
    search.run()
    assert list(search.rows) == [0.1, 0.4, 1.6, 0.8, 1.1, 0.94]


def test_the_search_without_an_edge_ends():
    search, _ = search_for(math.inf)
    search.run()
    assert search.unstable is None and search.stable > 1e3
    never, _ = search_for(0.0)
    never.run()
    assert never.stable is None and min(never.rows) < 1e-7


def test_an_own_rate_that_learns_nothing_is_not_taken_for_stable():
    """It did not diverge, and nothing smaller was tried: a reference is needed."""
    search, _ = search_for(math.inf, own=0.1, collapse=0.05)
    search.run()
    assert search.stable < 0.05 <= search.unstable


def test_the_budget_ends_the_search_and_the_next_one_goes_on(monkeypatch):
    search, clock = search_for(1.7, budget=35.0, seconds=10.0)
    monkeypatch.setattr(suggest.time, "monotonic", lambda: clock[0])
    search.started = 0.0
    search.run()
    assert len(search.rows) == 3 and not search.whole  # a fourth would end after 40 seconds
    again, clock = search_for(1.7, budget=35.0, seconds=10.0, before=list(search.rows))
    monkeypatch.setattr(suggest.time, "monotonic", lambda: clock[0])
    again.started = 0.0
    again.run()
    assert list(again.rows)[:3] == list(search.rows)  # found again, although a new one would take 10 seconds
    assert len(again.rows) == 6 and clock[0] == 30.0
    poor, _ = search_for(1.7, budget=5.0, seconds=10.0, before=list(search.rows))
    poor.started = clock[0]
    poor.run()
    assert list(poor.rows) == list(search.rows) and not poor.whole  # what is there costs nothing


def test_suggested_rate_and_what_it_buys(tmp_path, trained):
    settings = {"net": NET, "recipe": QUICK | {"epochs": 3}, "out": tmp_path / "s", "device": "cpu", "workers": 1}
    found = suggest_lr(SMALL, budget=1000, **settings)
    assert found["own"] == 0.05 and found["tried"][0] == 0.05
    assert found["largest_stable"] < found["smallest_unstable"] <= NEAR * 1.001 * found["largest_stable"]
    assert found["suggested"] in found["tried"] and found["suggested"] <= found["largest_stable"]
    at = {p["value"]: p for p in found["points"]}
    for measure in ("conflicting", "prunability"):
        own, taken = at[0.05][measure]["mean"], at[found["suggested"]][measure]["mean"]
        assert found["buys"][measure] == {"from": own, "to": taken, "gain": taken - own}
    assert "Tried, in this order: 0.05, 0.2, " in found["text"]
    runs = len(trained)
    again = suggest_lr(SMALL, budget=1, **settings)  # all is there: no time is needed
    assert len(trained) == runs and again["suggested"] == found["suggested"]
    assert json.loads((tmp_path / "s" / "sweep.json").read_text())["suggested"] == found["suggested"]


def test_a_suggested_rate_that_fell_on_the_test_split_buys_nothing_and_that_is_said(tmp_path):
    def words(trial):
        search = Search(lambda rate: (rate or 0.1, [trial(rate or 0.1) | facts]), budget=1e9)
        search.run()
        return suggest.report(search, Axis("lr", "recipe.lr", ()), tmp_path, [0], None)

    facts = {"data": "toy", "net": "mlp", "method": "erm"}
    fell = words(lambda rate: row(unbiased=80 if rate < 0.3 else 40, status="diverged" if rate > 1 else "done"))
    assert fell["suggested"] == fell["largest_stable"] > 0.3 and fell["buys"] == {}
    assert "which the rule does not look at" in fell["text"] and "it buys" not in fell["text"]
    good = words(lambda rate: row(unbiased=50 + 10 * rate, status="diverged" if rate > 1 else "done"))
    assert (
        "it buys: accuracy on conflicting samples 31.0 to 39.4 %, prunability 0.50 to 0.50 (1 seed each)"
        in good["text"]
    )
    falls = words(
        lambda rate: row(status="diverged" if rate > 1 else "done", prunability=1 - rate / 2, pruned_accuracy=50 * rate)
    )
    assert "prunability 0.95 to 0.53, accuracy when pruned 5.0 to 47.0 % (1 seed each)" in falls["text"]
    assert falls["buys"]["pruned_accuracy"]["gain"] == pytest.approx(42)


def test_rates_are_rounded_to_two_digits():
    assert [nice(v) for v in (0.0432, 0.10001, 12.34)] == [0.043, 0.1, 12.0]


def test_a_search_says_how_long_it_takes_and_how_each_rate_went(tmp_path, capsys):
    suggest_lr(SMALL, NET, recipe=QUICK, out=tmp_path, device="cpu", workers=1)
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first.startswith("A rate takes about ") and "No further rate is tried after 10 min." in first
    assert second.startswith("lr 0.05: ") and "1 rates tried, " in second and second.endswith(" of 10 min")


def test_a_budget_that_one_rate_exceeds_is_warned_of(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("spurless.sweep.forecast.seconds_of", lambda *_: 100.0)
    suggest_lr(SMALL, NET, recipe=QUICK, out=tmp_path, device="cpu", workers=1, budget=50)
    assert "takes about 100 s, longer than the budget of 50 s" in capsys.readouterr().err.replace("2 min", "100 s")
