"""Running trials: every one once, and what became of it is a row."""

import json

import pytest

import spurless.bench.run as run_module
import spurless.bench.trials as trials_module
import spurless.train.fit as engine
from spurless.bench import Trial
from spurless.bench.claim import finished_row, read_row, write_row
from spurless.bench.rows import all_rows
from spurless.core.errors import UserError
from spurless.registry import load_data
from spurless.train.observe import Interrupted
from spurless.train.step import Steps
from tests.support.runs import StopAt
from tests.support.trials import QUICK, TOY, Quiet, run, trial

pytestmark = pytest.mark.usefixtures("one_core")


def test_rows_say_what_was_measured_and_nothing_is_done_twice(tmp_path, monkeypatch):
    trials = [trial(), trial(seed=1), trial(method="lff"), trial()]  # one of them twice
    rows = run(trials, tmp_path)
    assert [row["seed"] for row in rows] == [0, 1, 0, 0] and rows[0] == rows[3]
    result = json.loads((tmp_path / rows[0]["folder"] / "result.json").read_text())
    del result["history"], result["folder"]
    assert {k: rows[0][k] for k in result} == result
    assert rows[0]["key"] == trials[0].key and rows[0]["wall_seconds"] > 0 and rows[0]["date"] and rows[0]["machine"]
    lines = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [line["key"] for line in lines] == [c.key for c in trials]

    def never(*_, **__):
        raise AssertionError("trained again")

    monkeypatch.setattr(engine, "fit", never)
    watch = Quiet()
    assert run(trials, tmp_path, watch=watch) == rows
    assert watch.events == []


def test_the_numbers_are_those_of_fit(tmp_path):
    row = run([trial(seed=3)], tmp_path)[0]
    alone = engine.fit("erm", TOY | {"rho": 0.1}, recipe=QUICK, seed=3, device="cpu", progress=False)
    assert row["scores"]["unbiased"] == alone.scores["unbiased"]


def test_a_failure_is_a_row_and_the_rest_goes_on(tmp_path):
    wrong = Trial(TOY, {"name": "erm"}, None, QUICK | {"selection": "val_worst_group"})  # which erm may not see
    missing = Trial({"name": "celeba"}, {"name": "erm"}, None, QUICK)
    trials = [wrong, missing, trial()]
    rows = run(trials, tmp_path, root=tmp_path / "nowhere")
    assert [row["status"] for row in rows] == ["failed", "failed", "done"]
    assert "needs bias labels" in rows[0]["error"] and rows[0]["traceback"] is None
    assert rows[0]["method"] == "erm" and rows[0]["settings"]["recipe"]["selection"] == "val_worst_group"
    assert finished_row(tmp_path / wrong.folder) is None and read_row(tmp_path / wrong.folder)["status"] == "failed"
    watch = Quiet()
    again = run(trials, tmp_path, root=tmp_path / "nowhere", watch=watch)
    assert [e.trial for e in watch.events if e.kind == "start"] == [wrong, missing]  # tried again, and only they
    assert again[0]["error"] == rows[0]["error"]


def test_a_programming_mistake_leaves_its_traceback_and_a_cure_is_taken_up(tmp_path, monkeypatch):
    fit = engine.fit

    def broken(*args, **settings):
        fit(*args, **settings)
        raise ZeroDivisionError("by design")

    monkeypatch.setattr(engine, "fit", broken)
    row = run([trial()], tmp_path)[0]
    assert row["error"] == "ZeroDivisionError: by design" and "in broken" in row["traceback"]
    monkeypatch.setattr(engine, "fit", fit)
    assert run([trial()], tmp_path)[0]["status"] == "done"


def test_what_failed_for_want_of_data_is_done_when_the_data_is_there(tmp_path):
    table = tmp_path / "late.csv"
    late = Trial({"name": f"csv:{table}", "label": "y", "attribute": ["a"]}, {"name": "erm"}, None, QUICK)
    assert run([late], tmp_path / "out")[0]["status"] == "failed"
    table.write_text("x,a,y\n" + "".join(f"{i},{i % 2},{i % 3 % 2}\n" for i in range(100)))
    assert run([late], tmp_path / "out")[0]["status"] == "done"


def test_a_diverged_trial_is_done(tmp_path):
    trials = [trial(lr=1e38, optimizer="sgd")]
    row = run(trials, tmp_path)[0]
    assert row["status"] == "diverged" and "not finite" in row["error"]
    watch = Quiet()
    run(trials, tmp_path, watch=watch)
    assert watch.events == []


def test_after_is_called_with_the_result_and_may_fail(tmp_path):
    row = run([trial()], tmp_path, after="tests.support.benches:remember_classes")[0]
    assert row["extra"] == {"classes": 2, "weights": 2 * 7 + 2}
    failed = run([trial(seed=1)], tmp_path, after="tests.support.benches:complain_after")[0]
    assert (failed["status"], failed["error"]) == ("failed", "after it all")
    assert run([trial(seed=1)], tmp_path)[0]["status"] == "done"
    with pytest.raises(UserError, match="names no function"):
        run([trial(seed=2)], tmp_path, after="tests.support.benches:nothing")


def test_data_is_loaded_once_for_all_trials(tmp_path, monkeypatch):
    import spurless.registry as registry

    loaded = []

    def counted(spec, root=None):
        loaded.extend([spec] if isinstance(spec, dict) else [])
        return load_data(spec, root)

    monkeypatch.setattr(registry, "load_data", counted)
    own = [Trial(TOY | {"seed": 5}, {"name": name}, None, QUICK, seed) for name in ("erm", "lff") for seed in (0, 1)]
    run(own, tmp_path)
    assert len(loaded) == 1


def test_damaged_rows_and_lost_rows_are_made_again(tmp_path):
    row = run([trial()], tmp_path)[0]
    path = tmp_path / row["folder"] / "row.json"
    path.write_text(path.read_text()[:50])  # as after a power cut
    again = run([trial()], tmp_path)[0]
    assert again["scores"] == row["scores"] and again["seconds"] == row["seconds"]  # not trained again


def test_rows_of_another_default_are_refused(tmp_path, monkeypatch):
    """A key leaves defaults out, so that new settings change none; a changed default must not go unnoticed."""
    row = run([trial(method="lff")], tmp_path)[0]
    row["settings"]["method"]["q"] = 0.123
    write_row(tmp_path / row["folder"], row)
    run([trial(method="lff")], tmp_path)  # nothing in the package has changed, so nothing is compared
    monkeypatch.setattr(trials_module, "_remembered", {})
    monkeypatch.setattr(trials_module, "remember", lambda out: None)
    monkeypatch.setattr(run_module, "remember", lambda out: None)
    with pytest.raises(UserError, match=r"was made with method.q = 0.123, which would be 0.7 by now"):
        run([trial(method="lff")], tmp_path)


def test_rows_of_another_default_are_refused_whatever_other_folders_hold(tmp_path):
    """The same trial lies in two folders: one was made just now, one by a package with another default."""
    old, new, one = tmp_path / "old", tmp_path / "new", trial(method="lff")
    for out in (old, old, new, new):  # the second time, the keys of the folder are remembered
        row = run([one], out)[0]
    row["settings"]["method"]["q"] = 0.123
    write_row(old / row["folder"], row)
    (old / trials_module.KEYS).unlink()
    with pytest.raises(UserError, match=r"was made with method.q = 0.123, which would be 0.7 by now"):
        run([one], old)
    assert run([one], new)[0]["settings"]["method"]["q"] == 0.7


def test_rows_with_the_same_numbers_written_otherwise_are_taken(tmp_path, monkeypatch):
    """A recipe's 40 comes back as 40.0 from the settings, and a tuple as a list from a file."""
    one = Trial(TOY, {"name": "erm"}, None, {"name": "pgd-cmnist", "epochs": 0.1, "step_every": 40})
    first = run([one], tmp_path)[0]
    monkeypatch.setattr(trials_module, "_remembered", {})
    monkeypatch.setattr(trials_module, "remember", lambda out: None)
    monkeypatch.setattr(run_module, "remember", lambda out: None)
    first["settings"]["recipe"]["step_every"] = 40
    write_row(tmp_path / first["folder"], first)
    assert run([one], tmp_path)[0]["wall_seconds"] == first["wall_seconds"]


def test_compiling_is_how_a_trial_is_computed_not_another_trial(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.compile", lambda function, dynamic: function)  # what it does is torch's affair
    named = Trial(TOY, {"name": "erm"}, None, {"name": "pgd-cmnist", "epochs": 0.1})
    row, other = run([trial(), named], tmp_path, compile=True)
    assert row["settings"]["recipe"]["compile"] and other["settings"]["recipe"]["compile"]
    monkeypatch.setattr(trials_module, "_remembered", {})
    monkeypatch.setattr(trials_module, "remember", lambda out: None)
    monkeypatch.setattr(run_module, "remember", lambda out: None)
    assert [r["wall_seconds"] for r in run([trial(), named], tmp_path)] == [row["wall_seconds"], other["wall_seconds"]]


def test_a_trial_that_was_begun_goes_on_as_it_was_begun(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.compile", lambda function, dynamic: function)
    one = Trial(TOY, {"name": "erm"}, None, {"epochs": 4, "batch_size": 10})
    whole = run([one], tmp_path / "whole")[0]
    with pytest.raises(Interrupted):
        engine.fit("erm", TOY, recipe=one.recipe, device="cpu", out=tmp_path / one.folder, progress=StopAt(12))
    row = run([one], tmp_path, compile=True)[0]
    assert (row["status"], row["resumed"], row["settings"]["recipe"]["compile"]) == ("done", True, False)
    assert row["scores"] == whole["scores"]


def test_trials_that_begin_alike_train_their_first_stage_once(tmp_path, monkeypatch):
    trained, real = [], Steps.__init__

    def begin(self, stage, *rest, **more):
        trained.append(stage.name)
        real(self, stage, *rest, **more)

    monkeypatch.setattr(Steps, "__init__", begin)
    trials = [Trial(TOY, {"name": "pgd", "use": use}, None, QUICK, 0) for use in ("resample", "reweight")]
    alone = run(trials[1:], tmp_path / "alone")[0]
    assert trained == ["biased", "debiased"]
    trained.clear()
    rows = run(trials, tmp_path / "both")
    assert sorted(trained) == ["biased", "debiased", "debiased"]
    assert rows[1]["scores"] == alone["scores"] != rows[0]["scores"]


def test_rows_that_were_labelled_anew_are_printed_under_their_new_label(tmp_path):
    one = trial()
    run([one], tmp_path)
    renamed = Trial(one.data, one.method, None, one.recipe, 0, {"row": "plain"})
    assert run([renamed], tmp_path)[0]["labels"] == {"row": "plain"}
    assert all_rows(tmp_path, [renamed])[0]["labels"] == {"row": "plain"}
