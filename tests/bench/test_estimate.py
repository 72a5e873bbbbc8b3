"""How long trials will take, and the plan."""

import pytest

import spurless.train.fit as engine
from spurless.bench import Trial, read_spec
from spurless.bench.estimate import Short, guesses
from spurless.bench.reproduce import plan, plan_text
from spurless.registry import load_data, make_method
from tests.support.trials import QUICK, TOY, run, trial
from tests.support.worlds import pictures

pytestmark = pytest.mark.usefixtures("one_core")


def test_an_estimate_counts_every_stage(monkeypatch):
    data = load_data(TOY)
    short = Short(make_method("pgd"))
    engine.fit(short, data, recipe={"epochs": 7, "batch_size": 40}, device="cpu", progress=False)
    # 100 rows in batches of 40, 40, 20: three steps a pass, seven passes, two stages.
    assert [(steps, epochs) for steps, epochs, _ in short.lengths] == [(21, 7), (21, 7)]


def test_a_stage_with_a_recipe_of_its_own_is_as_long_as_that_says():
    """Small experts train for eight epochs, 16 with batches of 256, however long the run's recipe is."""
    method = Short(make_method("crossfit"))
    recipe = {"epochs": 300, "batch_size": 16}
    engine.fit(method, pictures(), net="linear", recipe=recipe, device="cpu", progress=False)
    (plain, *_), experts = method.lengths, method.lengths[1:7]
    assert plain[:2] == (300 * 4, 300) and {each[:2] for each in experts} == {(8 * 2, 8)}  # halves of 64 samples


def test_estimates_are_measured_where_they_can_be_and_timed_otherwise(tmp_path):
    trials = [trial(), trial(seed=1), trial(method="lff"), Trial({"name": "celeba"}, {"name": "erm"}, None, QUICK)]
    rows = run(trials[:1], tmp_path)
    said = []
    found = guesses(trials, rows, "cpu", tmp_path, said.append)
    assert said == ["Timing a few steps, 2 of 3: lff"]  # what is measured, or missing, takes no time
    measured, timed, missing = (found[c.kind()] for c in (trials[1], trials[2], trials[3]))
    assert (measured.seconds, measured.how) == (rows[0]["wall_seconds"], "measured")
    assert timed.how == "timed" and 0 < timed.seconds < 60
    assert missing.seconds is None and "celeba" in missing.how


def test_the_plan_says_what_is_to_do_and_trains_nothing(tmp_path, spec_file):
    spec = read_spec(spec_file)
    run(spec.trials()[:2], tmp_path)
    found = plan(spec, tmp_path, "cpu", 1, None)
    assert (found["cells"], found["done"], found["at_once"], found["missing_data"]) == (12, 2, 1, [])
    by = {(line["method"], line["grid"]["data.rho"]): line for line in found["lines"]}
    assert by["Vanilla", "0.05"]["done"] == 1 and by["Vanilla", "0.05"]["how"] == "measured"
    assert by["LfF", "0.2"]["how"] == "timed"
    total = sum((line["cells"] - line["done"]) * (line["seconds_each"] or 0) for line in found["lines"])
    assert found["seconds"] == pytest.approx(total)
    text = plan_text(found)
    assert text.count("Toy, EnD: cannot be run (it needs what is not here)") == 1  # once for the grid
    assert "12 trials, 2 done; about" in text
    assert len(list(tmp_path.glob("cells/*/row.json"))) == 2
    nameless = found | {"lines": [line | {"data": ""} for line in found["lines"]]}
    assert "\n  Vanilla, data.rho 0.05: " in plan_text(nameless) and "\n  EnD: cannot be run" in plan_text(nameless)
    on_gpu = found | {"one_at_a_time": True}
    assert "one at a time; lanes make it faster" in plan_text(on_gpu)
    assert "one at a time; 8 processes make it faster" in plan_text(on_gpu | {"faster": "8 processes"})
