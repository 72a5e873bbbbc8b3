"""What a benchmark measures beside its scores: after the training, while it runs, and over the values of a setting."""

import signal
import time
import tomllib
from dataclasses import replace

import pytest
import torch
import typer
from typer.testing import CliRunner

import spurless.train.fit as engine
from spurless.bench import Trial, estimate
from spurless.bench import table as tables
from spurless.bench.claim import finished_row, read_row, write_row
from spurless.bench.estimate import Enough, Stopwatch
from spurless.bench.executors import here
from spurless.bench.executors.lanes import in_lanes
from spurless.bench.figures import entries
from spurless.bench.reproduce import papers, plan, plan_text, write_page
from spurless.bench.spec import make_spec
from spurless.cli import bench as cli_bench
from spurless.core.errors import UserError
from spurless.sweep.over_runs import correlation, loss_share_points
from spurless.train.observe import Progress
from spurless.train.step import Steps
from tests.support.trials import QUICK, TOY, Quiet, run, trial

AFTER = "tests.bench.test_bench_measures:rate_and_size"
RATES = [0.01, 0.1, 1.0]


def rate_and_size(result, bundle, folder):
    """What can be told beforehand: the rate, and a number that seeds differ in."""
    return {"rate": result.settings["recipe"]["lr"], "seeded": 10 * result.settings["recipe"]["lr"] + result.seed}


def not_json(result, bundle, folder):
    return {"set": {1, 2}}


def other(result, bundle, folder):
    return {"other": True}


@pytest.fixture(autouse=True)
def _one_core(monkeypatch):
    monkeypatch.setattr(here, "cores", lambda: 1)


def table(**block):
    rows = [{"label": "Seeded", "method": "erm", "metric": "extra.seeded", "paper": {"min": 0.5, "max": 10.0}}]
    rows += [{"label": "Test Acc.", "method": "erm", "metric": "unbiased"}]
    usual = {"label": "Toy", "data": TOY, "recipe": QUICK, "over": {"recipe.lr": RATES}, "range": "recipe.lr"}
    return {"title": "t", "seeds": [0, 1], "after": AFTER, "block": [usual | {"row": rows} | block]}


# After the training


def test_a_specification_names_what_is_measured_after_the_training(tmp_path):
    spec = make_spec(table())
    assert {c.after for c in spec.trials()} == {AFTER}
    rows = run(spec.trials(), tmp_path)
    assert all(row["extra"]["rate"] == row["settings"]["recipe"]["lr"] and row["after"] == AFTER for row in rows)
    own = make_spec(table(after="tests.bench.test_bench_measures:other"))
    assert {c.after for c in own.trials()} == {"tests.bench.test_bench_measures:other"}  # a block's comes first
    assert [c.key for c in own.trials()] == [c.key for c in spec.trials()]  # it decides nothing


def test_the_network_of_a_first_stage_is_scored_as_it_was_left(tmp_path):
    """PGD, table 7, lower half. With q = 0 the first stage is plain training; the third run finds it on the shelf."""
    methods = [{"name": "erm"}, {"name": "pgd", "q": 0.0}, {"name": "pgd", "q": 0.0, "use": "reweight"}]
    methods += [{"name": "pgd"}]
    first = "spurless.bench.after:first_stage"
    recipe = {"epochs": 4, "batch_size": 20, "lr": 0.05}
    trials = [Trial({"name": "toy", "n": 200}, m, None, recipe, after=first) for m in methods]
    plain, same, shared, other = run(trials, tmp_path)
    for row in (plain, same, shared):
        found = row["extra"]["first_stage"]
        assert found.pop("n") == plain["scores"]["n"]
        assert found == pytest.approx({k: plain["scores"][k] for k in found}) and "average" in found
    assert same["scores"]["average"] != plain["scores"]["average"]  # it went on
    assert other["extra"] != plain["extra"]
    (tmp_path / same["folder"] / "stage-000.safetensors").unlink()
    write_row(tmp_path / same["folder"], same | {"after": None, "extra": {}})
    (row,) = run([trials[1]], tmp_path)
    assert row["status"] == "failed" and "no checkpoint of its first stage" in row["error"]


def test_what_was_trained_is_only_measured(tmp_path, monkeypatch):
    before = run([trial()], tmp_path)[0]
    monkeypatch.setattr("spurless.train.loop.Loop.__iter__", lambda self: pytest.fail("trained again"))
    watch = Quiet()
    row = run([trial()], tmp_path, after=AFTER, watch=watch)[0]
    lr = before["settings"]["recipe"]["lr"]
    assert before["extra"] == {} and row["extra"] == {"rate": lr, "seeded": 10 * lr}
    assert row["scores"] == before["scores"] and [e.kind for e in watch.events] == ["plan", "start", "row"]
    again = Quiet()
    run([trial()], tmp_path, after=AFTER, watch=again)
    run([trial()], tmp_path, watch=again)  # measured is more than was asked for
    assert again.events == []
    assert run([trial()], tmp_path, after="tests.bench.test_bench_measures:other")[0]["extra"] == {"other": True}


def test_what_cannot_be_written_fails_its_trial_and_no_other(tmp_path):
    trials = [replace(trial(), after="tests.bench.test_bench_measures:not_json"), trial(seed=1)]
    rows = {e.trial.seed: e.row for e in in_lanes(trials, tmp_path, "cpu", None) if e.kind == "row"}
    assert [rows[seed]["status"] for seed in (0, 1)] == ["failed", "done"] and "JSON" in rows[0]["error"]


def test_rows_from_before_they_named_what_measured_them_are_taken(tmp_path):
    row = run([trial()], tmp_path, after=AFTER)[0]
    folder = tmp_path / trial().folder
    write_row(folder, {k: v for k, v in row.items() if k != "after"})
    assert finished_row(folder, AFTER) == read_row(folder)
    write_row(folder, {k: v for k, v in row.items() if k != "after"} | {"extra": {}})
    assert finished_row(folder, AFTER) is None and finished_row(folder) is not None


def test_a_trial_that_is_there_twice_is_measured_once_or_refused(tmp_path):
    one, two = replace(trial(), after=AFTER), replace(trial(), labels={"row": "again"})
    rows = run([one, two], tmp_path)
    assert rows[0]["extra"] == rows[1]["extra"] and rows[0]["extra"]
    with pytest.raises(UserError, match="there twice, with after = '.*rate_and_size' and '.*other'"):
        run([one, replace(two, after="tests.bench.test_bench_measures:other")], tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"after": "measures"}, "is not of the form 'module:function'"),
        ({"dynamics": 3}, "neither true nor a table"),
        ({"range": "recipe.epochs"}, "names no setting of the grid"),
        ({"range": ["recipe.lr"]}, "names no setting of the grid"),
    ],
)
def test_mistakes_in_what_is_measured(change, message):
    with pytest.raises(UserError, match=message):
        make_spec(table(**change))


# The least and the greatest over a range


def by_hand(spec, found):
    """Rows as they would come back: for each rate and seed an accuracy, or how it ended."""
    rows = []
    for one in {c.key: c for c in spec.trials()}.values():
        value = found[one.recipe["lr"]][one.seed]
        status = value if isinstance(value, str) else "done"
        row = {"key": one.key, "status": status, "seed": one.seed, "method": "erm", "data": "toy", "error": "why"}
        row |= {"scores": {"unbiased": value} if status == "done" else None, "seconds": 1.0}
        rows.append(row | {"extra": {"seeded": one.recipe["lr"] + one.seed} if status == "done" else {}})
    return rows


def test_the_ends_of_a_range_by_hand():
    spec = make_spec(table())
    rows = by_hand(spec, {0.01: (60.0, 62.0), 0.1: (80.0, 70.0), 1.0: (50.0, 72.0)})
    least, greatest, low, high = entries(spec, rows)
    assert (low.line.grid, low.at, low.ours.value, low.ours.n) == ({"recipe.lr": "min"}, "0.01", 61.0, 2)
    # At 1.0 seed 0 is 30 points below its best: the mean of 61 there does not count, nor does its `seeded` of 1.5.
    assert (high.at, high.ours.value, high.remark) == ("0.1", 75.0, "1: test accuracy fell")
    assert (greatest.at, greatest.ours.value, least.ours.value) == ("0.1", pytest.approx(0.6), 0.51)
    assert least.difference == pytest.approx(0.01) and greatest.difference == pytest.approx(-9.4)
    assert len(spec.trials()) == 2 * 3 * 2 and len({c.key for c in spec.trials()}) == 6  # two rows of the same runs


def test_a_value_that_diverges_ends_the_range_and_what_is_to_do_is_said():
    spec = make_spec(table())
    rows = by_hand(spec, {0.01: (60.0, 62.0), 0.1: ("diverged", 99.0), 1.0: (80.0, 80.0)})
    entry = entries(spec, rows)[3]
    assert (entry.at, entry.ours.value) == ("0.01", 61.0)
    assert entry.remark == "0.1: diverged, 1: beyond the range"
    assert entries(spec, rows[:1])[3].remark == "5 to do"
    lost = by_hand(spec, {0.01: (60.0, 62.0), 0.1: (70.0, "failed"), 1.0: (65.0, 65.0)})
    entry = entries(spec, lost)[3]  # a mistake says nothing about the value, and does not end the range
    assert (entry.at, entry.ours.value, entry.ours.n, entry.remark) == ("0.1", 70.0, 1, "1 failed")
    nothing = entries(spec, [])[3]
    assert not nothing.ours.known and nothing.at == ""


def test_the_table_of_a_range_says_where_and_with_enough_digits():
    spec = make_spec(table())
    rows = by_hand(spec, {0.01: (60.0, 62.0), 0.1: (80.0, 70.0), 1.0: (81.0, 71.0)})
    text = tables.markdown(spec, rows)
    assert "| Toy | Seeded | min | extra.seeded | 0.01 | 0.510 ± 0.707 |" in text
    assert "| Toy | Test Acc. | max | unbiased | 1 | 76.00 ± 7.07 |" in text
    assert "first at which, in any seed, training diverged" in text
    found = tables.as_json(spec, rows)
    assert [line["at"] for line in found] == ["0.01", "1", "0.01", "1"]


def test_a_range_inside_a_grid_keeps_the_other_settings_apart():
    grid = {"data.rho": [0.1, 0.4], "recipe.lr": RATES}
    spec = make_spec(table(over=grid, row=[{"label": "a", "method": "erm", "paper": {"0.4, max": 70}}]))
    assert [(x.grid["data.rho"], x.end, x.paper) for x in spec.lines] == [
        ("0.1", "min", None), ("0.1", "max", None), ("0.4", "min", None), ("0.4", "max", 70),
    ]  # fmt: skip
    for line in spec.lines:
        for value, trials in line.points():
            assert {str(c.recipe["lr"]) for c in trials} == {str(float(value))}
            assert {str(c.data["rho"]) for c in trials} == {line.grid["data.rho"]} and len(trials) == 2


def test_the_study_tables_are_about_what_is_measured_after_training():
    for name in ("large-lr-s1", "large-lr-s2"):
        content = tomllib.loads(papers()[name].read_text(encoding="utf-8"))
        assert content["after"] == "spurless.sweep.measures:measures"
        one = dict(content, block=[b for b in content["block"] if b["label"].startswith("Colored MNIST, Learn")][:1]
                   or [b for b in content["block"] if b["label"] == "Moon-Star, FCN"])  # fmt: skip
        spec = make_spec(one)
        ends = {(x.row, x.end): x.paper for x in spec.lines}
        published = {"large-lr-s1": (74.315, 0.971), "large-lr-s2": (72.297, 0.8)}[name]
        assert (ends["Test Acc.", "min"], ends["Prunability", "max"]) == published
        for block in content["block"]:
            assert block["range"] in block["over"]
            for row in block["row"]:
                assert row["paper"]["min"] <= row["paper"]["max"], (block["label"], row["label"])


# While it trains


def test_trials_are_watched_where_they_should_be(tmp_path):
    trials = [trial(seed=s, lr=lr, epochs=2) for s in (0, 1) for lr in (0.01, 0.5)]
    rows = run(trials, tmp_path, dynamics={"every": 0})
    folders = [tmp_path / c.folder for c in trials]
    points = loss_share_points(folders)
    assert [p["unbiased"] for p in points] == [row["scores"]["unbiased"] for row in rows]
    assert all(0 < p["largest_share"] <= 1 and p["steps"] == 4 for p in points) and correlation(points).n == 4
    alone = engine.fit("erm", TOY | {"rho": 0.1}, recipe=trials[0].recipe, device="cpu", progress=False)
    assert alone.scores["unbiased"] == rows[0]["scores"]["unbiased"]  # watching changes nothing
    assert trials[0].key == replace(trials[0], dynamics=True).key


def test_a_run_that_was_not_watched_is_refused_when_it_should_have_been(tmp_path):
    run([trial()], tmp_path)
    with pytest.raises(UserError, match="was trained without being watched"):
        run([trial()], tmp_path, dynamics=True)
    with pytest.raises(UserError, match="setting of dynamics 'evry'"):
        run([trial(seed=1)], tmp_path, dynamics={"evry": 1})


def test_a_specification_can_ask_for_it(tmp_path):
    spec = make_spec(table(dynamics={"every": 0}))
    assert [c.dynamics for c in spec.trials()] == [{"every": 0}] * 12
    assert {c.dynamics for c in make_spec(table() | {"dynamics": True}).trials()} == {True}
    run(spec.trials()[:1], tmp_path)
    assert (tmp_path / spec.trials()[0].folder / "dynamics.json").exists()


# On the command line


def test_a_share_of_a_gpu_reaches_ray(tmp_path, monkeypatch):
    told = {}

    def on_ray(trials, out, **settings):
        told.update(settings)
        return iter(())

    monkeypatch.setattr("spurless.bench.executors.ray.run_on_ray", on_ray)
    (tmp_path / "s.toml").write_text('[[block]]\ndata = {name = "toy", n = 100}\nmethods = ["erm"]\n')
    app = typer.Typer()
    cli_bench.add(app)
    words = ["bench", str(tmp_path / "s.toml"), "--out", str(tmp_path / "o"), "--gpus-per-trial", "0.5"]
    CliRunner().invoke(app, [*words, "--on", "ray"])
    assert told["gpus_per_trial"] == 0.5
    wrong = CliRunner().invoke(app, [*words, "--device", "cpu"])
    assert wrong.exit_code == 2 and "is for --on ray" in wrong.stderr
    wrong = CliRunner().invoke(app, [*words[:-2], "--address", "HOST:1"])
    assert wrong.exit_code == 2 and "add --on ray" in wrong.stderr
    wrong = CliRunner().invoke(app, [*words[:-1], "-1", "--on", "ray"])
    assert wrong.exit_code == 2 and "it takes a share" in wrong.stderr


# Estimates


def word(step, total, done=1, **more):
    return Progress("erm", step, total, done, **more)


def test_a_stopwatch_counts_steps_not_words(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    watch = Stopwatch(torch.device("cpu"), until=1000.0)
    for step in range(1, 17):  # single steps of 2 s while a graph is captured
        now[0] += 2.0
        watch(word(step, 64))
    for step in (32, 48):  # then 16 steps at a time, 1 s each
        now[0] += 16.0
        watch(word(step, 64, 16))
    watch(word(64, 64, 0))  # a pause before the end of the epoch, as on a GPU: no step
    now[0] += 16.0 + 5.0
    watch(word(64, 64, 16))  # its last steps, and 5 s of validation
    watch(word(64, 64, 0, row={"epoch": 1}))
    assert len(watch.steps) == 1
    step, look = watch.steps[0]
    seconds = (6 * 2.0 - 2.0 + 32 * 1.0) / (48 - 11)  # from the 11th step on, the first ones being warm-up
    assert (step, look) == (pytest.approx(seconds), pytest.approx(21.0 - 16 * seconds))


def test_a_stage_too_long_for_a_look_is_timed_by_the_steps_that_were_made(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    watch = Stopwatch(torch.device("cpu"), until=20.0)
    for step in (1, 2):
        now[0] += 8.0
        watch(word(step, 30))
    now[0] += 8.0
    with pytest.raises(Enough):
        watch(word(3, 30))
    assert watch.steps == [(8.0, 0.0)]
    alone = Stopwatch(torch.device("cpu"), until=30.0)
    now[0] += 50.0
    with pytest.raises(Enough):
        alone(word(1, 30))  # not even two steps
    assert alone.steps == [(50.0, 0.0)]


def test_amounts_do_not_change_how_long_a_trial_takes(monkeypatch):
    looked = []
    monkeypatch.setattr(estimate, "timed", lambda trial, *_: looked.append(trial) or estimate.Guess(1.0, "timed"))
    trials = [trial(lr=lr, weight_decay=w) for lr in (0.1, 0.2) for w in (0.0, 0.1, 0.2)] + [
        trial(lr=0.1, batch_size=25)
    ]
    found = estimate.guesses(trials, [], "cpu", None)
    assert len(found) == 7 and len(looked) == 3  # with and without decay; another batch size


def test_a_plan_lists_trainings_once_and_reasons_once(tmp_path):
    content = table()
    content["block"].append(content["block"][0] | {"label": "Faces", "data": "celeba"})
    twice = content | {"block": [*content["block"], content["block"][1] | {"label": "Faces again"}]}
    text = plan_text(plan(make_spec(twice), tmp_path / "twice", "cpu", 1, str(tmp_path)))
    assert "  Faces: 6 to do, cannot" in text and "  Faces again: the same trials, cannot" in text
    spec = make_spec(content)
    found = plan(spec, tmp_path / "out", "cpu", 1, str(tmp_path))
    toy, faces = found["lines"]
    assert (toy["method"], toy["cells"], toy["grid"]) == ("Seeded; Test Acc.", 6, {"recipe.lr": "0.01 to 1"})
    assert (found["cells"], found["can_run"], faces["seconds_each"]) == (12, 6, None)
    assert found["seconds"] == pytest.approx(6 * toy["seconds_each"])
    _, *lines = plan_text(found).splitlines()
    assert lines[0].startswith("  Toy, Seeded; Test Acc., recipe.lr 0.01 to 1: 6 to do, ")
    assert lines[1] == "  Faces: 6 to do, cannot be run here, see (1): Seeded; Test Acc."
    assert lines[2].startswith("(1) There is no celeba") and "for the 6 that can be run" in lines[3]
    run(spec.only(["Toy"]).trials(), tmp_path / "out")
    text = plan_text(plan(spec, tmp_path / "out", "cpu", 1, str(tmp_path)))
    assert "recipe.lr 0.01 to 1: 6 done" in text
    assert text.endswith("12 trials, 6 done; none of the 6 that are left can be run here.")


def test_the_page_keeps_measures_between_0_and_1_apart(tmp_path):
    spec = make_spec(table())
    rows = by_hand(spec, {0.01: (60.0, 62.0), 0.1: (80.0, 70.0), 1.0: (81.0, 71.0)})
    for row in rows:
        row["date"] = "2024-01-01"
    page = write_page(spec, rows, tmp_path).read_text(encoding="utf-8")
    assert "measures of about 0 to 1" in page and "0.510 [" in page and "+0.010" in page
    assert "76.00 [" in page and "61.000" not in page
    assert "The largest difference is -8.500 of a measure" not in page  # 1.5 against 10: no share, so in points
    assert "-8.50" in page


def test_an_estimate_says_which_bound_it_is(monkeypatch):
    assert estimate.timed(trial(), torch.device("cpu"), None).how == "timed"
    until = trial(until_accuracy=100)
    assert estimate.timed(until, torch.device("cpu"), None).how == "at most"
    assert estimate.timed(trial(), torch.device("cpu"), None, 0.0).how == "roughly"  # a first step, at best
    real = Steps.run
    monkeypatch.setattr(Steps, "run", lambda self, most: (time.sleep(0.3), real(self, most))[1])
    many = trial(batch_size=2)  # more steps than the look has time for
    assert estimate.timed(many, torch.device("cpu"), None, 0.4).how == "at least"
    many = trial(batch_size=2, until_accuracy=100)
    assert estimate.timed(many, torch.device("cpu"), None, 0.4).how == "roughly"


def test_a_look_ends_in_the_middle_of_a_pass(monkeypatch):
    began = time.monotonic()
    with pytest.raises(estimate.Enough), estimate.at_most(0.05):
        time.sleep(20)
    assert time.monotonic() - began < 10
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
    monkeypatch.setattr("spurless.train.step.Steps.run", lambda self, most: time.sleep(20))
    guess = estimate.timed(trial(), torch.device("cpu"), None, 0.1)  # not one step ended: each takes longer than that
    assert guess.how == "roughly" and guess.seconds > 2 * 0.1 and time.monotonic() - began < 10


def test_a_first_step_that_takes_long_is_no_measure_of_the_others(monkeypatch):
    many, slow, real = trial(batch_size=2, epochs=5), [], Steps.run  # 250 steps, each of some milliseconds

    def run(self, most):
        if not slow:
            slow.append(time.sleep(1.0))
        return real(self, most)

    monkeypatch.setattr(Steps, "run", run)
    guess = estimate.timed(many, torch.device("cpu"), None, 0.3)  # over after the first step; the second look is not
    assert guess.how in ("timed", "at least") and guess.seconds < 10
