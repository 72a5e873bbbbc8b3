"""The benchmark: every trial once, however many processes and kills; tables as computed by hand."""

import csv
import errno
import json
import multiprocessing
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time
import tomllib
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
import torch
import typer
from rich.console import Console
from typer.testing import CliRunner

import spurless.bench.one as one_module
import spurless.bench.run as run_module
import spurless.bench.trials as trials_module
import spurless.train.fit as engine
from spurless.bench import Trial, read_spec, run_one, run_trials
from spurless.bench import table as tables
from spurless.bench.board import Board, Clock
from spurless.bench.claim import claim, finished_row, read_row, write_row
from spurless.bench.estimate import Guess, Short, guesses
from spurless.bench.executors import here
from spurless.bench.executors import lanes as lanes_module
from spurless.bench.executors.base import Event
from spurless.bench.executors.lanes import in_lanes
from spurless.bench.executors.processes import Pool
from spurless.bench.one import Attempt, bury, data_of, lost_its_gpu
from spurless.bench.reproduce import papers, plan, plan_text, write_page
from spurless.bench.rows import all_rows, flat_row, write_parquet
from spurless.bench.selection import read_rows
from spurless.bench.spec import make_spec
from spurless.cli import bench as cli_bench
from spurless.core.errors import UserError
from spurless.registry import load_data, make_method
from spurless.train.lanes import Job
from spurless.train.observe import Interrupted
from spurless.train.step import Steps
from tests.support.runs import StopAt
from tests.support.trials import QUICK, TOY, Quiet, run, trial

SPEC = """
title = "A small table"
source = "Nobody 2024, table 0"
metric = "unbiased"
seeds = [0, 1, 2]
choices = ["the toy stands in for everything"]
[[block]]
label = "Toy"
data = {name = "toy", n = 100}
recipe = {epochs = 1, batch_size = 50}
over = {"data.rho" = [0.05, 0.2]}
[[block.row]]
label = "Vanilla"
method = "erm"
paper = {"0.05" = "60.94 ± 0.97", "0.20" = 70}
[[block.row]]
label = "LfF"
method = {name = "lff", q = 0.5}
recipe = {lr = 0.01}
[[block.row]]
label = "EnD"
missing = "it needs what is not here"
paper = {"0.05" = "50.0"}
"""


def free(folder):
    """Whether nobody holds the trial in this folder."""
    held = claim(folder)
    if held:
        held.release()
    return held is not None


@pytest.fixture(autouse=True)
def _one_core(monkeypatch):
    """In this process, with one thread: children that are forked must not find a thread pool."""
    monkeypatch.setattr(here, "cores", lambda: 1)


@pytest.fixture
def spec_file(tmp_path):
    (tmp_path / "small.toml").write_text(SPEC, encoding="utf-8")
    return tmp_path / "small.toml"


# Trials and their keys


def test_key_is_the_same_in_every_process_and_on_every_machine():
    assert trials_module.__version__.startswith("0.1."), "a new version makes new keys: change the literals too"
    assert Trial({"name": "toy"}, {"name": "erm"}).key == "59df2660cfce66aa"
    table = Trial(
        {"name": "colored_mnist", "family": "pgd", "rho": 0.005},
        {"name": "pgd", "q": 0.5},
        {"name": "simconv1"},
        {"name": "pgd-cmnist", "epochs": 3},
        7,
    )
    assert table.key == "aa4ee38113863a96"


def test_key_looks_at_what_decides_the_outcome_and_at_nothing_else():
    plain = trial()
    assert Trial(plain.data, plain.method, None, plain.recipe, 0, {"row": "x"}).key == plain.key
    assert Trial(plain.data | {"noise": 4, "n": 100.0}, plain.method, None, plain.recipe).key == plain.key  # defaults
    others = [trial(seed=1), trial(rho=0.2), trial(method="lff"), trial(lr=0.5), trial(epochs=2)]
    others.append(Trial(plain.data, plain.method, {"name": "mlp"}, plain.recipe))
    assert len({plain.key, *(other.key for other in others)}) == 7


def test_a_named_recipe_is_what_it_stands_for():
    from dataclasses import asdict

    from spurless.core.recipe import RECIPES

    whole = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(RECIPES["pgd-bar"]).items()}
    named = Trial(TOY, {"name": "erm"}, None, {"name": "pgd-bar"})
    assert named.key == Trial(TOY, {"name": "erm"}, None, {"name": "default"} | whole).key
    # Without a name, fields lie over the data set's own recipe, which is another thing.
    assert named.key != Trial(TOY, {"name": "erm"}, None, whole).key


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": {"name": "toys"}}, "no data set 'toys'; did you mean 'toy'"),
        ({"data": {"name": "toy", "ratio": 1}}, "no setting 'data.ratio'"),
        ({"data": {"n": 4}}, "The data has no name"),
        ({"method": {"name": "erm", "q": 1}}, "no setting 'method.q'"),
        ({"method": {"name": "lff", "q": 7}}, "method.q = 7 is not allowed; it takes a number from 0 to 1"),
        ({"net": {"name": "mlpp"}}, "no net 'mlpp'"),
        ({"recipe": {"name": "pgd"}}, "no recipe 'pgd'"),
        ({"recipe": {"lrr": 1}}, "no setting 'recipe.lrr'"),
        ({"seed": -1}, "seed = -1"),
    ],
)  # fmt: skip
def test_wrong_trials_are_refused_before_anything_is_trained(tmp_path, change, message):
    whole = {"data": TOY, "method": {"name": "erm"}, "net": None, "recipe": QUICK, "seed": 0} | change
    with pytest.raises(UserError, match=re.escape(message)):
        run([trial(), Trial(**whole)], tmp_path / "out")
    assert not list((tmp_path / "out").glob("cells/*"))


# Specifications


def test_a_specification_becomes_trials(spec_file):
    spec = read_spec(spec_file)
    trials = spec.trials()
    assert len(trials) == 2 * 2 * 3  # methods, ratios, seeds
    assert [c.seed for c in trials] == [0] * 4 + [1] * 4 + [2] * 4  # cut short, it still compares
    first = next(c for c in trials if c.labels["row"] == "LfF" and c.labels["grid"] == "0.2")
    assert first.data == {"name": "toy", "n": 100, "rho": 0.2} and first.method == {"name": "lff", "q": 0.5}
    assert first.recipe == {"epochs": 1, "batch_size": 50, "lr": 0.01}  # the row's over the block's
    assert first.labels == {"block": "Toy", "row": "LfF", "grid": "0.2", "metric": "unbiased"}
    found = {(line.row, *line.grid.values()): line for line in spec.lines}
    assert found["Vanilla", "0.05"].paper == "60.94 ± 0.97"
    assert found["Vanilla", "0.2"].paper == 70  # "0.20" in the file: the same number
    assert found["EnD", "0.05"].paper == "50.0" and not found["EnD", "0.05"].trials
    assert [c.seed for c in read_spec(spec_file, seeds=5).lines[0].trials] == [0, 1, 2, 3, 4]
    assert {line.row for line in spec.only(["LfF"]).lines} == {"LfF"}
    assert len(spec.only(["Toy"]).lines) == 6
    with pytest.raises(UserError, match="no label 'Tpy'; did you mean 'Toy'"):
        spec.only(["Tpy"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title =", "titel =", "no key 'titel'; did you mean 'title'"),
        ("recipe = {epochs", "recipes = {epochs", "no key 'recipes'; did you mean 'recipe'"),
        ("missing =", "mising =", "no key 'mising'; did you mean 'missing'"),
        ("epochs = 1", "epoch = 1", "block 'Toy', row 'Vanilla': There is no setting 'recipe.epoch'"),
        ('"data.rho" =', '"data.ro" =', "no setting 'data.ro'; did you mean 'data.rho'"),
        ('"data.rho" =', '"rho" =', "over names 'rho'"),
        ("[0.05, 0.2]", "0.05", "over.'data.rho' = 0.05 is not a list"),
        ('"0.20" = 70', '"0.3" = 70', "paper has a number at '0.3', which is no point of the grid"),
        ("seeds = [0, 1, 2]", "seeds = [0, 0]", "names a seed twice"),
        ("seeds = [0, 1, 2]", "seeds = 3", "seeds = 3 is not a list"),
        ('method = "erm"', 'method = "erm"\nmissing = "x"', "give either a method, or why it is missing"),
        ('label = "LfF"', 'label = "Vanilla"', "two rows 'Vanilla'"),
        ('data = {name = "toy", n = 100}', "", "The data has no name"),
        ("[[block]]", "[[blocks]]", "no key 'blocks'"),
        ("[[block]]", '[[block]]\ndata = "toy"\n[[block]]', "block 'block 1': there is no [[block.row]]"),
        ('metric = "unbiased"', 'metric = "unbaised"', "small.toml: There is no score 'unbaised'; did you mean 'unbi"),
        ('label = "Toy"', 'label = "Toy"\nmetric = "worst"', "block 'Toy': There is no score 'worst'; did you mean"),
        ('label = "LfF"', 'label = "LfF"\nmetric = "secs"', "row 'LfF': There is no score 'secs'"),
    ],
)
def test_mistakes_in_a_specification_are_named(old, new, message):
    assert old in SPEC
    with pytest.raises(UserError, match=re.escape(message)):
        make_spec(tomllib.loads(SPEC.replace(old, new)), "small.toml")


def test_a_score_may_be_any_number_that_a_row_has():
    for metric in ("worst_group", "average_train_weighted", "seconds", "sparsity", "extra.own", "mining.mined.recall"):
        spec = make_spec({"metric": metric, "block": [{"data": TOY, "methods": ["erm"]}]})
        assert spec.lines[0].metric == metric


def test_only_some_blocks_have_only_their_notes():
    blocks = [
        {"label": name, "note": f"of {name}", "data": TOY, "methods": [m]}
        for name, m in (("A", "erm"), ("A, B", "lff"))
    ]
    spec = make_spec({"block": blocks})
    assert spec.notes == ("A: of A", "A, B: of A, B")
    assert spec.only(["A"]).notes == ("A: of A",) and spec.only(["lff"]).notes == ("A, B: of A, B",)


def test_only_some_blocks_have_only_their_choices():
    names = ("BAR", "BAR, small", "MNIST")
    blocks = [{"label": name, "data": "toy", "methods": ["erm"], "over": {"data.rho": [i / 10]}} for i, name in
              enumerate(names)]  # fmt: skip
    spec = make_spec({"block": blocks, "choices": ["Of all.", "BAR: of both.", "MNIST: of this."]})
    assert spec.only(["BAR, small"]).choices == ("Of all.", "BAR: of both.")
    assert spec.only(["MNIST"]).choices == ("Of all.", "MNIST: of this.") and len(spec.choices) == 3


def test_rows_replace_other_things_and_merge_into_the_same_ones():
    block = {"data": TOY, "net": {"name": "mlp", "widths": [8]}, "recipe": {"name": "pgd-bar", "epochs": 1}}
    rows = [
        {"label": "same", "method": "erm", "net": {"bias": False}, "recipe": {"lr": 0.1}},
        {"label": "other", "method": "erm", "net": "linear", "recipe": {"epochs": 2, "name": "default"}},
        {"label": "grid", "method": "lff", "over": {"method.q": [0.3, 0.6], "net": ["linear", {"name": "mlp"}]}},
        {"label": "sizes", "method": "erm", "over": {"net": ["mlp", {"name": "mlp", "widths": [4, 2]}]}},
    ]
    spec = make_spec({"block": [block | {"row": rows}]})
    same, other, *grid, small, smaller = (line.trials[0] for line in spec.lines)
    assert same.net == {"name": "mlp", "widths": [8], "bias": False}
    assert same.recipe == {"name": "pgd-bar", "epochs": 1, "lr": 0.1}
    assert other.net == {"name": "linear"} and other.recipe == {"name": "default", "epochs": 2}
    assert [c.labels["grid"] for c in grid] == ["0.3, linear", "0.3, mlp", "0.6, linear", "0.6, mlp"]
    assert [c.net for c in grid[:2]] == [{"name": "linear"}, {"name": "mlp", "widths": [8]}]
    assert (small.labels["grid"], smaller.labels["grid"]) == ("mlp", "mlp widths 4 2")
    assert (small.net["widths"], smaller.net["widths"]) == ([8], [4, 2])
    assert spec.over == ("method.q", "net")


def test_the_example_in_the_documentation_is_a_specification():
    page = (Path(__file__).parents[2] / "docs" / "bench.md").read_text(encoding="utf-8")
    spec = make_spec(tomllib.loads(re.search(r"```toml\n(.*?)```", page, re.S)[1]))
    assert len(spec.trials()) == 3 * 2 * 3 and {line.row for line in spec.lines} == {"erm", "lff", "LfF, q = 0.3"}


def test_the_papers_specifications_are_sound():
    assert papers(), "the papers' tables are gone"
    for name, path in papers().items():
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        assert content["title"] and content["source"], name


# Running


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


def remember_classes(result, bundle, folder):
    return {"classes": len(bundle.classes), "weights": sum(p.numel() for p in result.classifier.parameters())}


def complain_after(result, bundle, folder):
    raise UserError("after it all")


def test_after_is_called_with_the_result_and_may_fail(tmp_path):
    row = run([trial()], tmp_path, after="tests.bench.test_bench:remember_classes")[0]
    assert row["extra"] == {"classes": 2, "weights": 2 * 7 + 2}
    failed = run([trial(seed=1)], tmp_path, after="tests.bench.test_bench:complain_after")[0]
    assert (failed["status"], failed["error"]) == ("failed", "after it all")
    assert run([trial(seed=1)], tmp_path)[0]["status"] == "done"
    with pytest.raises(UserError, match="names no function"):
        run([trial(seed=2)], tmp_path, after="tests.bench.test_bench:nothing")


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


def test_lanes_do_the_same_trials(tmp_path):
    trials = [trial(), trial(seed=1), trial(precision="bf16"), Trial(TOY, {"name": "group_dro"}, None, QUICK)]
    missing = Trial({"name": "celeba"}, {"name": "erm"}, None, QUICK)
    held = claim(tmp_path / "lanes" / trials[1].folder)
    rows, told = {}, []

    def tell(event):
        told.append((event.kind, event.trial.key, len(rows)))
        if event.kind == "busy":
            held.release()

    for event in in_lanes([*trials, missing], tmp_path / "lanes", "cpu", tmp_path, tell):
        assert event.kind == "row"
        rows[event.trial.key] = event.row
    assert told[:2] == [
        ("start", trials[0].key, 0),
        ("busy", trials[1].key, 1),
    ]  # told at once, not when something ends
    assert rows[missing.key]["status"] == "failed"
    for one, row in zip(trials, run(trials, tmp_path / "alone"), strict=True):
        assert rows[one.key]["scores"] == row["scores"], one
        assert finished_row(tmp_path / "lanes" / one.folder) == rows[one.key]
    assert all(free(tmp_path / "lanes" / one.folder) for one in trials)  # nothing is held any more
    again = list(in_lanes(trials, tmp_path / "lanes", "cpu", tmp_path))  # as if someone had done them since
    assert [e.kind for e in again] == ["row"] * 4 and all(e.row == rows[e.trial.key] for e in again)


def test_trials_that_are_left_when_lanes_lose_their_gpu_are_done_by_new_processes(tmp_path, monkeypatch):
    broken = Trial(TOY, {"name": "erm"}, {"name": "resnet18"}, QUICK)  # pictures only
    others = [trial(), trial(seed=1), trial(precision="bf16")]
    usual, processes = lanes_module.in_processes, []

    def in_processes(trials, *how):
        processes.append([one.key for one in trials])
        return usual(trials, *how)

    monkeypatch.setattr(lanes_module, "lost_its_gpu", lambda: True)
    monkeypatch.setattr(lanes_module, "in_processes", in_processes)
    rows = {e.trial.key: e.row for e in in_lanes([broken, *others], tmp_path, "cpu", None) if e.kind == "row"}
    assert processes == [[one.key for one in (broken, *others)]]  # it alone fails, wherever the error was noticed
    assert rows[broken.key]["status"] == "failed"
    assert [rows[one.key]["status"] for one in others] == ["done"] * 3
    assert all(free(tmp_path / one.folder) for one in (broken, *others))


def test_lanes_do_not_wait_for_what_someone_else_is_doing(tmp_path, monkeypatch):
    """Held trials come first and in two arithmetics: the last one must be done all the same, and not in a hot loop."""
    first, second, free_one = trial(), trial(precision="tf32"), trial(precision="bf16")
    held = [claim(tmp_path / one.folder) for one in (first, second)]
    naps = []
    monkeypatch.setattr(time, "sleep", naps.append)
    told, done = [], []

    def tell(event):
        told.append((event.kind, event.trial))
        assert len(told) < 50, "the free trial is never begun"

    for event in in_lanes([first, second, free_one], tmp_path, "cpu", None, tell):
        done.append(event.trial)
        if held:
            assert event.trial is free_one
            while held:
                held.pop().release()
    assert {one.key for one in done} == {one.key for one in (first, second, free_one)}
    assert len([nap for nap in naps if nap == lanes_module.PATIENCE]) == len([1 for kind, _ in told if kind == "busy"])


def test_a_gpu_has_processes_for_many_trials_if_they_can_share_it_and_lanes_otherwise(tmp_path, monkeypatch):
    used = []

    def pool(trials, workers, threads, settings, environment):
        used.append((workers, settings["device"], environment))
        return iter([("row", one, {"status": "done"}) for one in trials])

    def lanes(trials, out, device, *_):
        used.append(("lanes", device))
        return iter([Event("row", one, {"status": "done"}) for one in trials])

    @contextmanager
    def shared_gpu(index):
        yield mps

    monkeypatch.setattr("spurless.train.device.pick_device", lambda device: torch.device("cuda", 0))
    monkeypatch.setattr("spurless.bench.executors.processes.Pool", pool)
    monkeypatch.setattr("spurless.bench.executors.mps.shared_gpu", shared_gpu)
    monkeypatch.setattr("spurless.bench.executors.mps.processes_on", lambda gpu, trials: 8 if trials >= 8 else 1)
    monkeypatch.setattr(here, "in_lanes", lanes)
    for mps in ({"A": "b"}, None):
        for workers in (None, 1, 3):
            for count in (2, 9):
                out = tmp_path / f"{mps is None}-{workers}-{count}"
                run_module.run_trials([trial(seed=s) for s in range(count)], out, workers=workers)
    in_lanes = ("lanes", "cuda:0")
    asked = [in_lanes, in_lanes, (2, "cuda:0", {"A": "b"}), (3, "cuda:0", {"A": "b"})]
    without = [in_lanes, in_lanes, (2, "cuda:0", {}), (3, "cuda:0", {})]  # as the user wants it, if it helps or not
    assert used == [in_lanes, (8, "cuda:0", {"A": "b"}), *asked, in_lanes, in_lanes, *without]


@pytest.mark.parametrize(("able", "asked"), [(True, "gpu"), (False, "gpu"), (True, True), (False, True), (True, False)])
def test_a_gpu_compiles_what_is_long_if_it_can_and_a_cpu_does_not(tmp_path, monkeypatch, able, asked):
    seen = {}

    def lanes(trials, *_):
        seen.update({one.seed: one.recipe.get("compile") for one in trials})
        return iter([Event("row", one, {"status": "done"}) for one in trials])

    trials = [trial(seed=0), replace(trial(seed=1), dynamics=True), trial(seed=2, compile=False)]
    monkeypatch.setattr(one_module, "can_compile", lambda: able)
    monkeypatch.setattr(here, "in_lanes", lanes)
    with monkeypatch.context() as patched:
        patched.setattr("spurless.train.device.pick_device", lambda device: torch.device("cuda", 0))
        rows = run_module.run_trials(trials, tmp_path / "gpu", workers=1, compile=asked)
    assert len(rows) == 3
    hint = {0: True, 1: None, 2: False} if able else {0: None, 1: None, 2: False}  # what is watched cannot be compiled
    assert seen == (hint if asked == "gpu" else {0: True, 1: True, 2: True} if asked else {0: None, 1: None, 2: False})
    if asked == "gpu":
        (row,) = run(trials[:1], tmp_path / "cpu", compile=asked)
        assert row["settings"]["recipe"]["compile"] is False


@pytest.mark.parametrize("place", ["cuda", "cpu"])
def test_workers_elsewhere_compile_what_is_long_where_they_have_a_gpu(tmp_path, monkeypatch, place):
    from spurless.bench.executors import ray as on_ray
    from spurless.bench.executors import slurm as on_slurm

    seen, told = [], {}
    monkeypatch.setattr(one_module, "can_compile", lambda: True)
    monkeypatch.setattr("spurless.train.device.pick_device", lambda device: torch.device(place))
    monkeypatch.setattr(on_ray, "run_one", lambda one, *_: seen.append(one) or {"status": "failed"})
    (tmp_path / "mark").touch()
    for asked in (True, False):
        job = {"trial": trial().whole(), "key": trial().key, "out": str(tmp_path), "mark": "mark", "compile": asked}
        on_ray.do(job | {"device": None, "root": None})
    assert [one.recipe.get("compile") for one in seen] == [True if place == "cuda" else None, None]
    assert {one.key for one in seen} == {trial().key}  # how it is computed makes no other trial

    class Executor:
        def __init__(self, **_): ...
        def update_parameters(self, **_): ...
        def submit_array(self, shares):
            told.update(shares[0].settings)
            raise KeyboardInterrupt

    class Submitit:
        AutoExecutor = Executor

    monkeypatch.setattr(on_slurm, "_submitit", lambda cluster: Submitit)
    with pytest.raises(KeyboardInterrupt):
        run_module.run_trials([trial()], tmp_path, on="slurm", compile="gpu")
    assert told["compile"] == "gpu"


def test_compiling_takes_triton_and_a_compiler(monkeypatch, tmp_path):
    monkeypatch.setattr(one_module, "find_spec", lambda name: name == "triton" or None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert not one_module.can_compile()
    (tmp_path / "my-cc").touch(0o755)
    monkeypatch.setenv("CC", "my-cc")
    assert one_module.can_compile()
    monkeypatch.setattr(one_module, "find_spec", lambda name: None)
    assert not one_module.can_compile()


@pytest.mark.parametrize(("words", "expected"), [([], "gpu"), (["--compile"], True), (["--no-compile"], False)])
def test_a_specification_says_that_its_trials_are_long(tmp_path, monkeypatch, app, words, expected):
    asked = []
    monkeypatch.setattr("spurless.bench.run_trials", lambda trials, out, **how: asked.append(how["compile"]) or [])
    for top in ("compile = true\n", ""):
        (tmp_path / "s.toml").write_text(top + '[[block]]\ndata = "toy"\nmethods = ["erm"]\n')
        CliRunner().invoke(app, ["bench", str(tmp_path / "s.toml"), "--out", str(tmp_path / "out"), *words])
    assert asked == [expected, expected if words else False]
    with pytest.raises(UserError, match="compile must be true or false"):
        make_spec({"compile": "yes", "block": [{"data": "toy", "methods": ["erm"]}]})


CONTROLS = """#!/bin/sh
read -r words
echo "$1 $words $CUDA_MPS_PIPE_DIRECTORY" >> {log}
case "$words" in get_server_list) {running};; esac
"""


@pytest.fixture
def controls(tmp_path, monkeypatch):
    """The program that controls MPS, played by a script that notes what it is told, and says if one is running."""
    from spurless.bench.executors import mps

    def make(running: bool, reached: bool = True):
        path = tmp_path / mps.CONTROL
        path.write_text(CONTROLS.format(log=tmp_path / "log", running="exit 0" if running else "exit 1"))
        path.chmod(0o755)
        monkeypatch.setattr(mps, "PROBE", "print(1)" if reached else "import sys; sys.exit(1)")
        return lambda: (tmp_path / "log").read_text().splitlines()

    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    return make


@pytest.mark.parametrize("reached", [True, False])
def test_processes_on_a_gpu_get_an_mps_of_their_own(controls, monkeypatch, reached):
    from spurless.bench.executors import mps

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    told = controls(running=False, reached=reached)
    with mps.shared_gpu() as found:
        first = told()
    place = first[1].split()[-1]
    assert first == [" get_server_list ", f"-d  {place}"]
    assert told()[2:] == [f" quit {place}"] and not Path(place).exists()
    if not reached:
        assert found is None  # a process could not reach the GPU behind it: nobody is sent there
    else:
        assert found["CUDA_MPS_PIPE_DIRECTORY"] == place
        behind = mps.changed(found)
        assert "CUDA_VISIBLE_DEVICES" not in behind and behind["PATH"] == os.environ["PATH"]
    with pytest.raises(KeyboardInterrupt), mps.shared_gpu():
        raise KeyboardInterrupt
    assert told()[-1].startswith(" quit ")


def test_an_mps_that_is_running_is_used_and_left_running(controls, tmp_path, monkeypatch):
    from spurless.bench.executors import mps

    told = controls(running=True)
    with mps.shared_gpu() as found:
        assert found == {}
    controls(running=True, reached=False)  # it is at fault, or someone else's
    with mps.shared_gpu() as found:
        assert found is None
    assert [line.split() for line in told()] == [["get_server_list"]] * 2
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with mps.shared_gpu() as found:
        assert found is None


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "SIGHUP"])
def test_an_mps_of_ones_own_ends_with_the_process_however_that_is(controls, how):
    from spurless.bench.executors import mps

    told = controls(running=False)
    command = f"""
import os, signal
from spurless.bench.executors import mps
mps.PROBE = {mps.PROBE!r}
if "{how}" != "SIGKILL":
    signal.signal(signal.{how}, signal.SIG_DFL)  # tests under nohup hand on that SIGHUP is ignored
with mps.shared_gpu() as found:
    assert found
    os.kill(os.getpid(), signal.{how})
    signal.pause()
"""
    done = subprocess.run([sys.executable, "-c", command], timeout=60)
    assert done.returncode == -getattr(signal, how)
    place = told()[1].split()[-1]
    for _ in range(200):
        if len(told()) == 3 and not Path(place).exists():
            break
        time.sleep(0.05)
    assert told()[2:] == [f" quit {place}"] and not Path(place).exists()


def test_a_process_has_the_environment_that_its_pool_was_given(monkeypatch):
    import spurless.bench.executors.processes as pool_module

    monkeypatch.setenv("GONE", "1")
    monkeypatch.setenv("EMPTY", "")  # CUDA_VISIBLE_DEVICES= hides all GPUs, from processes as well
    tells = "import json, os; input(); print(json.dumps([os.environ.get(n) for n in ('NEW', 'GONE', 'EMPTY')]))"
    monkeypatch.setattr(pool_module, "COMMAND", [sys.executable, "-c", tells])
    worker = pool_module.Worker({"threads": 1}, {"NEW": "x", "GONE": ""})
    assert worker.ask({}) == ["x", None, ""]
    worker.hang_up()
    worker.process.wait()
    worker.process.stdout.close()
    worker.log.close()


@pytest.mark.parametrize(
    ("trials", "free", "cores", "expected"),
    [
        *[(45, 139, 16, 8), (16, 139, 16, 8), (15, 139, 16, 8), (9, 139, 16, 5), (8, 139, 16, 4), (7, 139, 16, 1)],
        *[(45, 80, 16, 5), (45, 60, 16, 1), (45, 139, 8, 4), (45, 139, 4, 1)],
    ],
)
def test_how_many_processes_share_a_gpu_if_nobody_says(tmp_path, monkeypatch, trials, free, cores, expected):
    from spurless.bench.executors import mps

    gpu = torch.device("cuda", 1)
    monkeypatch.setattr(mps, "cores", lambda: cores)
    monkeypatch.setattr(mps, "PROBE", f"import sys; assert sys.argv[1] == '1'; print({free} * 2**30)")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert mps.processes_on(gpu, trials) == 1  # without MPS the GPU would serve one after the other
    (tmp_path / mps.CONTROL).touch(0o755)
    assert mps.processes_on(gpu, trials) == expected
    monkeypatch.setattr(mps, "PROBE", "import sys; sys.exit(1)")
    assert mps.processes_on(gpu, trials) == 1


@pytest.mark.parametrize("workers", [None, 8])
def test_a_trial_without_room_beside_the_others_is_done_in_lanes(tmp_path, monkeypatch, workers):
    full, broken, fine = (trial(seed=s) for s in range(3))
    errors = {full.key: "OutOfMemoryError: CUDA out of memory.", broken.key: "ValueError: 3"}

    def pool(trials, *_):
        said = [(c, errors.get(c.key)) for c in trials]
        return iter([("row", c, {"status": "failed" if error else "done", "error": error}) for c, error in said])

    @contextmanager
    def shared_gpu(index):
        yield {}

    monkeypatch.setattr("spurless.train.device.pick_device", lambda device: torch.device("cuda", 0))
    monkeypatch.setattr("spurless.bench.executors.processes.Pool", pool)
    monkeypatch.setattr("spurless.bench.executors.mps.shared_gpu", shared_gpu)
    monkeypatch.setattr("spurless.bench.executors.mps.processes_on", lambda gpu, trials: 8)
    lanes = lambda trials, *_: iter([Event("row", c, {"status": "done", "error": None}) for c in trials])  # noqa: E731
    monkeypatch.setattr(here, "in_lanes", lanes)
    rows = run_module.run_trials([full, broken, fine], tmp_path, workers=workers)
    assert [row["status"] for row in rows] == ["done" if workers is None else "failed", "failed", "done"]


def test_the_row_of_a_lost_process_never_takes_the_place_of_a_finished_one(tmp_path, monkeypatch):
    done = run([trial()], tmp_path)[0]
    assert bury(trial(), tmp_path, "lost") == done and read_row(tmp_path / trial().folder) == done
    held = claim(tmp_path / trial(seed=1).folder)
    assert bury(trial(seed=1), tmp_path, "lost", wait=False) is None and not read_row(tmp_path / trial(seed=1).folder)

    def finish_elsewhere(_):
        write_row(tmp_path / trial(seed=1).folder, done | {"seed": 1})
        held.release()

    monkeypatch.setattr(time, "sleep", finish_elsewhere)
    assert bury(trial(seed=1), tmp_path, "lost")["status"] == "done"  # waited for whoever was at it
    lost = bury(trial(seed=2), tmp_path, "lost")
    assert (lost["status"], lost["error"]) == ("failed", "lost") and read_row(tmp_path / trial(seed=2).folder) == lost
    assert free(tmp_path / trial(seed=2).folder)


# Several processes


def forked(target, *args):
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])  # imports for seconds: here, not in every child
    child = multiprocessing.get_context("fork").Process(target=target, args=args)
    child.start()
    return child


def do_trials(trials, out, log):
    """In a child: every training leaves a line."""
    torch.set_num_threads(1)
    fit = engine.fit

    def counted(**settings):
        with open(log, "a") as file:
            file.write(f"{settings['out'].name} {os.getpid()}\n")
        return fit(**settings)

    engine.fit = counted
    try:
        run(trials, out)
    except KeyboardInterrupt as stop:
        Path(log).with_suffix(".stopped").write_text(str(stop))
        os._exit(130)
    os._exit(0)


fork_is_fine = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@fork_is_fine
def test_two_processes_on_one_folder_do_each_trial_once(tmp_path):
    trials = [trial(seed=seed, method=method) for seed in range(10) for method in ("erm", "lff")]
    children = [forked(do_trials, trials, tmp_path / "out", tmp_path / "log") for _ in range(2)]
    reads = 0
    while any(child.is_alive() for child in children):
        for path in (tmp_path / "out").glob("cells/*/row.json"):
            assert json.loads(path.read_text())["status"] == "done"  # never half a row
            reads += 1
        time.sleep(0.01)
    assert [child.exitcode for child in children] == [0, 0] and reads
    trained = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert sorted(key for key, _ in trained) == sorted(c.key for c in trials)  # each exactly once
    assert len({process for _, process in trained}) == 2  # and both took part
    alone = run(trials, tmp_path / "alone")
    assert [row["scores"] for row in run(trials, tmp_path / "out")] == [row["scores"] for row in alone]
    assert len((tmp_path / "out" / "rows.jsonl").read_text().splitlines()) == len(trials)


@fork_is_fine
def test_a_killed_process_is_taken_up_at_once_and_ends_with_the_same_numbers(tmp_path):
    trials = [Trial(TOY, {"name": "pgd"}, None, {"epochs": 15, "batch_size": 10}, seed) for seed in (0, 1)]
    out = tmp_path / "out"
    child = forked(do_trials, trials, out, tmp_path / "log")
    half = out / trials[1].folder / "stage-000.safetensors"  # the first stage of two
    while not half.exists() and child.is_alive():
        time.sleep(0.001)
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    assert finished_row(out / trials[0].folder) and not finished_row(out / trials[1].folder)
    before = (out / trials[0].folder / "row.json").stat().st_mtime_ns
    assert free(out / trials[1].folder)  # a dead process holds nothing
    stage = half.stat().st_mtime_ns
    rows = run(trials, out)
    assert half.stat().st_mtime_ns == stage  # gone on with, not begun again
    assert rows[1]["resumed"] and not rows[0]["resumed"]
    assert (out / trials[0].folder / "row.json").stat().st_mtime_ns == before
    assert [row["scores"] for row in rows] == [row["scores"] for row in run(trials, tmp_path / "alone")]


@fork_is_fine
def test_ctrl_c_saves_the_place_and_says_how_to_go_on(tmp_path):
    trials = [trial(), Trial(TOY, {"name": "erm"}, None, {"epochs": 4000, "batch_size": 10}, 1)]
    wrong = Trial(TOY, {"name": "erm"}, None, QUICK | {"selection": "val_worst_group"})  # which erm may not see
    out = tmp_path / "out"
    twice = replace(trials[0], labels={"row": "again"})  # in two places of a table: one trial
    child = forked(do_trials, [twice, trials[0], wrong, trials[1]], out, tmp_path / "log")
    while not (out / trials[1].folder / "history.jsonl").exists() and child.is_alive():
        time.sleep(0.01)
    time.sleep(0.2)
    os.kill(child.pid, signal.SIGINT)
    child.join()
    assert child.exitcode == 130
    said = (tmp_path / "log.stopped").read_text()
    assert said == "1 of 3 trials are done, and checkpoints of the others are saved: re-run the command to resume."
    assert (out / trials[1].folder / "stage-000-part.safetensors").exists()
    assert len((out / "rows.jsonl").read_text().splitlines()) == 3


def test_a_claim_is_one_at_a_time_and_ends_with_its_holder(tmp_path):
    first = claim(tmp_path)
    assert first is not None and claim(tmp_path) is None
    assert run_one(trial(), tmp_path / "out", "cpu") is not None
    with claim(tmp_path / "out" / trial().folder):
        assert run_one(trial(), tmp_path / "out", "cpu", wait=False) is None  # busy, even where it is done
    first.release()
    assert free(tmp_path)


def test_a_trial_that_cannot_be_claimed_says_why(tmp_path, monkeypatch):
    def fails(number, *where):
        def lock(path):
            raise OSError(number, os.strerror(number), *where)

        return lock

    monkeypatch.setattr("spurless.bench.claim.lock", fails(errno.ENOSPC, str(tmp_path / ".lock")))
    with pytest.raises(OSError, match="No space left on device"):
        claim(tmp_path)
    monkeypatch.setattr("spurless.bench.claim.lock", fails(errno.ENOLCK))
    with pytest.raises(UserError, match="a file system without locks"):
        claim(tmp_path)


# In place of a worker: it is ready, answers nothing, and dies in the middle of its first trial.
DIES = """
import json, os, signal, sys
sys.stdin.readline()
print(json.dumps({"ready": True}), flush=True)
sys.stdin.readline()
sys.stderr.write("some words\\n")
sys.stderr.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_that_dies_is_a_row_and_the_next_trial_gets_another_one(tmp_path, monkeypatch):
    import spurless.bench.executors.processes as pool_module

    monkeypatch.setattr(pool_module, "COMMAND", [sys.executable, "-c", DIES])
    trials = [trial(seed=0), trial(seed=1)]
    settings = {"out": str(tmp_path), "device": "cpu", "root": None}
    pool = Pool(trials, workers=1, threads=1, settings=settings)
    rows = [row for kind, _, row in pool if kind == "row"]
    assert [row["status"] for row in rows] == ["failed", "failed"] and len(pool.workers) == 2
    expected = "The process that did it was killed by signal 9, perhaps for want of memory. some words"
    assert rows[0]["error"] == expected and read_row(tmp_path / trials[0].folder)["error"] == expected
    assert [row["status"] for row in run(trials, tmp_path)] == ["done", "done"]  # tried again


def test_a_worker_that_cannot_start_is_an_error_and_not_a_row(tmp_path, monkeypatch):
    import spurless.bench.executors.processes as pool_module

    monkeypatch.setattr(pool_module, "COMMAND", [sys.executable, "-c", "raise SystemExit('no torch here')"])
    monkeypatch.setattr(here, "cores", lambda: 2)
    with pytest.raises(UserError, match="ended with code 1. no torch here"):
        run_trials([trial(), trial(seed=1)], tmp_path, device="cpu", workers=2, watch=Quiet())
    assert not list(tmp_path.glob("cells/*/row.json"))


def test_a_row_says_how_many_processes_shared_the_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(here, "cores", lambda: 2)
    rows = run_trials([trial(), trial(seed=1)], tmp_path, device="cpu", workers=2, watch=Quiet())
    assert [row["processes"] for row in [*rows, *run([trial(seed=2)], tmp_path)]] == [2, 2, 1]


def test_a_run_that_shared_its_gpu_says_nothing_of_one_alone(tmp_path, monkeypatch):
    rows = [row | {"processes": 4} for row in run([trial()], tmp_path)]
    assert guesses([trial()], rows, "cpu", None)[trial().kind()].how == "measured"  # as it will be run again
    monkeypatch.setattr("spurless.bench.estimate.pick_device", lambda device: torch.device("cuda", 0))
    monkeypatch.setattr("spurless.bench.estimate.versions", lambda place: {"device": "cpu"})
    monkeypatch.setattr("spurless.bench.estimate.timed", lambda *_: Guess(1.0, "timed"))
    assert guesses([trial()], rows, "cuda", None)[trial().kind()].how == "timed"


FAILS = """
import json, sys
sys.stdin.readline()
print(json.dumps({"ready": True}), flush=True)
sys.stdin.readline()
print(json.dumps({"row": {"status": "failed"}, "last": True}), flush=True)
"""


def test_a_process_that_lost_its_gpu_is_given_no_other_trial(tmp_path, monkeypatch):
    import spurless.bench.executors.processes as pool_module

    monkeypatch.setattr(pool_module, "COMMAND", [sys.executable, "-c", FAILS])
    settings = {"out": str(tmp_path), "device": "cuda", "root": None}
    pool = Pool([trial(seed=0), trial(seed=1)], workers=1, threads=1, settings=settings)
    rows = [row for kind, _, row in pool if kind == "row"]
    assert (
        rows == [{"status": "failed"}] * 2 and len(pool.workers) == 2
    )  # the second trial was not blamed for the first


@pytest.mark.parametrize(("own", "expected"), [(None, "3"), ("5", "5")])
def test_a_process_compiles_with_its_share_of_the_cores(monkeypatch, own, expected):
    import spurless.bench.executors.processes as pool_module

    name = "TORCHINDUCTOR_COMPILE_THREADS"
    monkeypatch.delenv(name, raising=False) if own is None else monkeypatch.setenv(name, own)
    tells = f"import json, os; input(); print(json.dumps([os.environ[{name!r}], os.environ['OMP_NUM_THREADS']]))"
    monkeypatch.setattr(pool_module, "COMMAND", [sys.executable, "-c", tells])
    worker = pool_module.Worker({"threads": 3}, {})
    assert worker.ask({}) == [expected, "3"]
    worker.hang_up()
    assert worker.process.wait() == 0
    worker.process.stdout.close()
    worker.log.close()


def test_a_gpu_is_lost_when_cuda_answers_with_an_error(monkeypatch):
    def broken():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    assert not lost_its_gpu()  # it was never used
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    assert not lost_its_gpu()
    monkeypatch.setattr(torch.cuda, "synchronize", broken)
    assert lost_its_gpu()


def test_a_worker_that_is_killed_before_its_first_trial_is_started_again(tmp_path, monkeypatch):
    import spurless.bench.executors.processes as pool_module

    once = f"""
import os, pathlib, signal, sys
mark = pathlib.Path({str(tmp_path / "mark")!r})
if not mark.exists():
    mark.touch()
    os.kill(os.getpid(), signal.SIGKILL)
os.execv(sys.executable, {pool_module.COMMAND!r})
"""
    monkeypatch.setattr(pool_module, "COMMAND", [sys.executable, "-c", once])
    settings = {"out": str(tmp_path / "out"), "device": "cpu", "root": None}
    pool = Pool([trial()], workers=1, threads=1, settings=settings)
    assert [row["status"] for kind, _, row in pool if kind == "row"] == ["done"] and len(pool.workers) == 2
    always = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    monkeypatch.setattr(pool_module, "COMMAND", [sys.executable, "-c", always])
    pool = Pool([trial(seed=1)], workers=1, threads=1, settings=settings)
    ((kind, _, why),) = pool
    assert kind == "broken" and "before its first one, was killed by signal 9" in str(why)
    assert len(pool.workers) == pool_module.STARTS


def test_a_process_does_the_same_numbers_ends_with_its_parent_and_saves_its_place(tmp_path):
    quick = replace(trial(seed=4), after="tests.bench.test_bench:remember_classes")
    long = Trial(TOY, {"name": "erm"}, None, {"epochs": 4000, "batch_size": 10})
    settings = {"out": str(tmp_path / "out"), "device": "cpu", "root": None}
    pool = Pool([quick, long], workers=1, threads=1, settings=settings)
    events = iter(pool)
    (_, _, row) = next(event for event in events if event[0] == "row")
    alone = run([quick], tmp_path / "alone")[0]
    assert row["extra"]["classes"] == 2 and (row["scores"], row["extra"]) == (alone["scores"], alone["extra"])
    assert row["versions"]["threads"] == "1"
    while not (tmp_path / "out" / long.folder / "history.jsonl").exists():
        time.sleep(0.05)
    time.sleep(0.2)
    events.close()  # as Ctrl-C does
    assert [worker.process.returncode for worker in pool.workers] == [0]  # it left by itself, and was not killed
    assert (tmp_path / "out" / long.folder / "stage-000-part.safetensors").exists()
    assert free(tmp_path / "out" / long.folder)


# Tables


def made_rows(spec, **values):
    """Rows as they would come back, with these scores for the seeds of each row at each ratio."""
    rows = []
    for line in spec.lines:
        for one, value in zip(line.trials, values.get(line.row, {}).get(line.grid["data.rho"], ()), strict=False):
            status = value if isinstance(value, str) else "done"
            row = {"key": one.key, "status": status, "method": one.method["name"], "data": "toy", "seed": one.seed}
            row |= {"labels": one.labels, "seconds": 2.0 + one.seed, "selection": "last", "labels_used": "none"}
            row |= {"machine": "a box", "date": "2024-01-01", "error": "why" if status != "done" else None}
            rows.append(row | {"scores": {"unbiased": value} if status == "done" else None})
    return rows


@pytest.fixture
def measured(spec_file):
    spec = read_spec(spec_file)
    rows = made_rows(
        spec, Vanilla={"0.05": [60, 62, 64], "0.2": [70]}, LfF={"0.05": [1, 3, "diverged"], "0.2": ["failed"]}
    )
    return spec, rows


def test_the_figures_of_the_table_by_hand(measured):
    found = {(e.line.row, e.line.grid["data.rho"]): e for e in tables.entries(*measured)}
    one = found["Vanilla", "0.05"]
    # mean 62, deviations -2, 0, 2: variance 8 / 2, std 2; t(0.975, 2) = 4.30265, half = 4.30265 · 2 / √3 = 4.96827
    assert (one.ours.n, one.ours.value, one.ours.sd) == (3, 62.0, 2.0)
    assert one.ours.low == pytest.approx(57.03173, abs=1e-5) and one.ours.high == pytest.approx(66.96827, abs=1e-5)
    assert one.difference == pytest.approx(62 - 60.94) and one.paper == "60.94 ± 0.97"
    assert (one.selection, one.labels, one.seconds, one.remark) == ("last", "none", 3.0, "")
    single = found["Vanilla", "0.2"]
    assert (single.ours.n, single.ours.sd, single.ours.low, single.remark) == (1, None, None, "2 to do")
    assert single.difference == 0.0
    two = found["LfF", "0.05"]
    assert (two.ours.n, two.ours.value, two.remark) == (2, 2.0, "1 diverged")
    assert two.seconds == 2.5  # of seeds 0 and 1: the one that diverged counts nowhere
    assert found["LfF", "0.2"].ours.known is False and found["LfF", "0.2"].remark == "1 failed, 2 to do"
    assert found["EnD", "0.05"].remark == "not run" and found["EnD", "0.05"].paper == "50.0"


def test_small_worst_groups_and_missing_classes_are_remarked(measured):
    spec, rows = measured
    spec = replace(spec, lines=[replace(line, metric="worst_group") for line in spec.lines])
    sizes = {"min_size": 10, "missing_classes": []}
    for row in rows:
        if row["status"] == "done":
            row["scores"] |= {"worst_group": row["scores"]["unbiased"], "n": {"worst_group": 2 + row["seed"]}} | sizes

    def remark(row, rho):
        return next(e.remark for e in tables.entries(spec, rows) if (e.line.row, e.line.grid["data.rho"]) == (row, rho))

    assert remark("Vanilla", "0.05") == "worst group with n = 2 to 4 samples"
    assert remark("LfF", "0.05") == "1 diverged, worst group with n = 2 to 3 samples"
    for form in (tables.markdown, tables.latex, tables.as_csv):
        assert "worst group with n = 2 to 4 samples" in form(spec, rows)
    assert tables.as_json(spec, rows)[0]["remark"] == "worst group with n = 2 to 4 samples"
    console = Console(file=StringIO(), width=100)
    console.print(tables.terminal(spec, rows))
    assert "n = 2 to 4 samples." in console.file.getvalue()
    for row in rows:
        if row["status"] == "done" and row["method"] == "erm":
            row["scores"] |= {"worst_group": None, "n": {"worst_group": 0}, "missing_classes": ["cat"]}
    assert remark("Vanilla", "0.05") == "3 without worst_group (a class has no samples)"
    for row in rows:  # as rows were before sizes were recorded
        if row["status"] == "done":
            row["scores"] = {"worst_group": 1.0, "n": {"worst_group": 2}}
    assert remark("Vanilla", "0.05") == ""


def test_what_did_not_end_well_counts_nowhere_even_with_scores(measured):
    spec, rows = measured
    for row in rows:
        if row["status"] != "done":
            row |= {"scores": {"unbiased": 99.0}, "selection": "best", "sparsity": 50.0}
        row["date"] = f"2024-01-0{1 + row['seed']}"
    found = {(e.line.row, e.line.grid["data.rho"]): e for e in tables.entries(spec, rows)}
    two, none = found["LfF", "0.05"], found["LfF", "0.2"]
    assert (two.ours.n, two.ours.value, two.selection, two.beside) == (2, 2.0, "last", {})
    assert (none.ours.n, none.ours.known, none.seconds) == (0, False, None)
    assert "Measured 2024-01-01 to 2024-01-03 on a box." in tables.remarks(spec, rows)
    assert tables.beside([{"sparsity": 0.0}]) == {}  # a column of zeros would say nothing


def test_an_interval_of_percentages_ends_where_they_do(measured):
    spec, rows = measured
    for row in rows:
        if row["status"] == "done":
            row["scores"]["unbiased"] = 100.0 - row["seed"]
    found = next(e for e in tables.entries(spec, rows) if e.ours.n == 3)
    assert (found.ours.value, found.ours.limits()) == (99.0, "[96.52–100.00]")
    assert tables.estimate([100.0, 99.0, 98.0]).limits() == "[96.52–101.48]"  # of differences, say


def test_the_printed_forms_say_the_same(measured):
    spec, rows = measured
    text = tables.markdown(spec, rows)
    line = next(line for line in text.splitlines() if "Vanilla" in line and "0.05" in line)
    assert line == (
        "| Toy | Vanilla | 0.05 | 62.00 ± 2.00 | [57.03–66.97] | 3 | 60.94 ± 0.97 | +1.06 | last | none | 3.0 | – |"
    )
    for said in (
        "Published: Nobody 2024, table 0.",
        "Student's t over seeds",
        "the toy stands in for everything",
        "EnD was not run: it needs what is not here",
        "lff on toy failed: why",
        "Measured 2024-01-01 on a box.",
    ):
        assert said in text and said.replace("'", "'") in tables.latex(spec, rows), said
    assert r"$62.00 \pm 2.00$ & [57.03--66.97] & 3 & $60.94 \pm 0.97$ & +1.06" in tables.latex(spec, rows)
    body = list(csv.DictReader(tables.as_csv(spec, rows).splitlines()))
    assert len(body) == 6 and float(body[0]["mean"]) == 62 and float(body[0]["paper_mean"]) == 60.94
    assert (float(body[0]["low95"]), float(body[0]["high95"])) == pytest.approx((57.03173, 66.96827), abs=1e-5)
    assert body[0]["data.rho"] == "0.05" and body[4]["mean"] == "" and body[4]["paper"] == "50.0"
    whole = tables.as_json(spec, rows)
    assert whole[0]["ours"]["n"] == 3 and whole[4]["missing"] == "it needs what is not here"


def test_scores_on_different_contents_of_the_same_data_are_said(measured):
    spec, rows = measured

    def said(contents, **data):
        made = [
            row | {"settings": {"data": {"name": "toy", "rho": row["labels"]["grid"], **data, "fingerprint": content}}}
            for row, content in zip(rows, contents, strict=True)
        ]
        return [text for text in tables.remarks(spec, made) if "different contents" in text]

    same = [row["labels"]["grid"] for row in rows]  # each ratio is data of its own
    assert said(same) == []
    changed = ["new" if row["labels"]["row"] == "Vanilla" and row["seed"] == 1 else old
               for row, old in zip(rows, same, strict=True)]  # fmt: skip
    (text,) = said(changed)
    assert "Vanilla, 0.05; " in text and "LfF, 0.05: trained on 2 different contents of the same data." in text
    assert "0.2" not in text
    changed = ["new" if row["status"] != "done" else old for row, old in zip(rows, same, strict=True)]
    assert said(changed) == []  # what did not end well counts nowhere


def test_the_heading_says_a_setting_only_if_every_line_has_it():
    from rich.console import Console

    rows = [{"label": "ERM", "method": "erm"}, {"label": "LfF", "method": "lff", "over": {"data.rho": [0.05]}}]

    def printed(rows):
        console = Console(width=80, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
        console.print(tables.terminal(make_spec({"block": [{"data": TOY, "row": rows}]}), []))
        console.file.close()
        return console.export_text()

    text = printed(rows)
    assert "data.rho: 0.05" not in text
    assert [line.split()[:2] for line in text.splitlines() if line.startswith(("ERM", "LfF"))] == [
        ["ERM", "–"],
        ["LfF", "0.05"],
    ]
    assert "data.rho: 0.05" in printed([row | {"over": {"data.rho": [0.05]}} for row in rows])


def test_zeros_are_the_mean_of_all_runs_that_know_them():
    assert tables.beside([{"sparsity": 60.0}, {"sparsity": 0.0}, {}]) == {"zeros, %": "30.0"}


def test_a_published_number_that_is_none_is_refused_before_training():
    def spec(paper):
        return make_spec({"block": [{"data": TOY, "row": [{"method": "erm", "paper": paper}]}]})

    for paper in ("60.9 ± 1.0", ".87", "−0.25", "1e-3", 61, "-", "–", "33m 39s"):
        assert spec(paper).lines[0].paper == paper
    for paper in ("60,9", "about 60", "60.9 +- 1.0", "60 to 62", float("nan"), True, "n/a"):
        with pytest.raises(UserError, match="is neither a number nor a text such as '60.9 ± 1.0'"):
            spec(paper)


def test_rows_of_an_older_specification_are_marked_in_the_list(tmp_path):
    run([trial(), trial(method="pgd")], tmp_path)
    run([trial()], tmp_path)
    listed = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [(row["method"], row.get("listed")) for row in listed] == [("erm", None), ("pgd", False)]
    assert [row.get("listed") for row in read_rows(tmp_path)] == [None, False]


def test_rows_by_one_name_in_several_blocks_all_have_their_texts():
    """Where the texts differ, each is said with its blocks; where they are the same, once and without."""
    said = {"A": ("slow", "no data"), "B": ("slow", "no code"), "C": ("fast", "no data")}
    blocks = [
        {
            "label": label,
            "data": TOY,
            "over": {"data.rho": [0.1, 0.2]},
            "row": [
                {"label": "ERM", "method": "erm", "note": note},
                {"label": "LfF", "method": "lff", "note": "as published"},
                {"label": "EnD", "missing": why},
                {"label": "PGD", "missing": "no time"},
            ],
        }
        for label, (note, why) in said.items()
    ]
    texts = tables.remarks(make_spec({"block": blocks}), [])[1:]  # after what the figures are
    assert texts == [
        "EnD (A; C) was not run: no data",
        "EnD (B) was not run: no code",
        "PGD was not run: no time",
        "ERM (A; B): slow",
        "ERM (C): fast",
        "LfF: as published",
    ]


def test_the_terminal_table_fits_and_loses_nothing(measured):
    from rich.console import Console

    console = Console(width=80, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(tables.terminal(*measured))
    text = console.export_text()
    console.file.close()
    for part in ("62.00 ± 2.00", "[57.03–66.97]", "60.94 ± 0.97", "+1.06", "not run", "selection: last"):
        assert part in text
    assert "LfF, 0.05: 1 diverged." in re.sub(r"\s+", " ", text)


def test_the_terminal_table_says_a_name_where_it_is_new():
    from rich.console import Console

    over = {"data": "toy", "over": {"data.rho": [0.1, 0.2]}, "methods": ["lff", "erm"]}
    spec = make_spec({"block": [over | {"label": "One thing"}, over | {"label": "Another", "methods": ["erm", "pgd"]}]})
    console = Console(width=80, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(tables.terminal(spec, []))
    text = console.export_text()
    console.file.close()
    table = [line.split() for line in text.splitlines()[2:] if " 0.1 " in line or " 0.2 " in line]
    names = [" ".join(line[: next(i for i, word in enumerate(line) if word in ("0.1", "0.2"))]) for line in table]
    assert names == [
        "One thing lff",
        "",
        "erm",
        "",
        "Another erm",
        "",
        "pgd",
        "",
    ]
    assert (text.count("thing"), text.count("Another")) == (1, 1)


def test_parquet_holds_the_rows(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = run([trial(), trial(method="pgd"), trial(lr=1e38, optimizer="sgd")], tmp_path)
    table = parquet.read_table(write_parquet(rows, tmp_path / "rows.parquet")).to_pylist()
    assert [row["method"] for row in table] == ["erm", "pgd", "erm"]
    assert table[0]["scores.unbiased"] == rows[0]["scores"]["unbiased"] and table[2]["scores.unbiased"] is None
    assert json.loads(table[1]["settings"])["method"]["name"] == "pgd"
    assert flat_row(rows[1])["mining.mined.precision"] == rows[1]["mining"]["mined"]["precision"]


def test_rows_that_were_labelled_anew_are_printed_under_their_new_label(tmp_path):
    one = trial()
    run([one], tmp_path)
    renamed = Trial(one.data, one.method, None, one.recipe, 0, {"row": "plain"})
    assert run([renamed], tmp_path)[0]["labels"] == {"row": "plain"}
    assert all_rows(tmp_path, [renamed])[0]["labels"] == {"row": "plain"}


# What a person sees


def test_time_left_is_the_work_left_at_the_speed_so_far(monkeypatch):
    now = [-30.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    trials = [Trial(TOY, {"name": "erm"}, None, QUICK, seed, {"row": "a"}) for seed in range(4)]
    clock = Clock(trials, [], 2)
    assert clock.seconds_left() is None
    now[0] = 0.0  # until then processes were being started
    clock.start(trials[0])
    clock.start(trials[1])
    now[0] = 10.0
    for one in trials[:2]:
        clock.end(one, {"status": "done", "wall_seconds": 10.0})
    # 20 seconds of work were done in 10: at that speed the 20 seconds that are left take 10.
    assert clock.seconds_left() == pytest.approx(10.0)
    clock.start(trials[2])
    now[0] = 14.0
    assert clock.seconds_left() == pytest.approx((6 + 10) / ((20 + 4) / 14))  # the one on its way counts, too
    clock.start(trials[2])  # someone else is at it: it is asked for again, and does not begin anew
    assert clock.seconds_left() == pytest.approx((6 + 10) / ((20 + 4) / 14))
    known = {"status": "done", "wall_seconds": 8.0, "labels": {"row": "a"}, "key": "k"}
    assert Clock(trials, [known], 2).seconds_left() == pytest.approx(4 * 8 / 2)


def test_time_left_costs_a_median_for_each_place_and_is_that_of_each_trial(monkeypatch):
    now, asked, median = [0.0], [], statistics.median
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    trials = [Trial(TOY, {"name": "erm"}, None, QUICK, seed, {"row": "abc"[seed % 3]}) for seed in range(30)]
    clock, left, began, known = Clock(trials, [], 2), list(trials), {}, {"a": [], "b": [], "c": []}
    numbers, work = random.Random(0), 0.0
    for one in trials[:20]:
        if one.seed % 5:  # on a cluster nobody says when a trial starts
            clock.start(one)
            began.setdefault(one.key, now[0])
        running = next(c for c in left if c is not one)
        clock.start(running)
        began.setdefault(running.key, now[0])  # told again, it goes on
        now[0] += numbers.uniform(1, 3)
        took = numbers.uniform(1, 3)
        clock.end(one, {"status": "done", "wall_seconds": took})
        left.remove(one)
        work += took if one.key not in began else now[0] - began.pop(one.key)
        known[one.labels["row"]].append(took)
        middles = {k: median(times) for k, times in known.items() if times}
        each = [middles.get(c.labels["row"], sum(middles.values()) / len(middles)) for c in left]
        spent = [now[0] - began.get(c.key, now[0]) for c in left]
        monkeypatch.setattr(statistics, "median", lambda times: asked.append(0) or median(times))
        speed = (work + sum(spent)) / now[0]
        expected = sum(max(0.0, whole - gone) for whole, gone in zip(each, spent, strict=True)) / speed
        assert clock.seconds_left() == pytest.approx(expected)
        assert len(asked) == len(middles)
        asked.clear()


def test_the_board_says_what_happens(capsys):
    board = Board()
    trials = [Trial(TOY, {"name": "erm"}, None, QUICK, seed, {"block": "Toy", "row": "Vanilla"}) for seed in (0, 1)]
    with board:
        board(Event("plan", plan=(trials, [{"key": "k", "status": "done", "wall_seconds": 1}], 2)))
        board(Event("start", trials[0]))
        board(Event("row", trials[0], {"status": "done", "scores": {"unbiased": 71.5}, "wall_seconds": 3.0}))
        board(Event("start", trials[1]))
        board(Event("busy", trials[1]))
        board(Event("row", trials[1], {"status": "failed", "error": "no data\nmore"}))
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == "" and lines[0] == "3 trials, 1 are done; 2 to do, 2 at a time."
    assert lines[1].startswith("[2/3] Toy, Vanilla, seed 0: unbiased 71.50 (3 s); ") and lines[1].endswith(" left")
    assert lines[2:] == [
        "Toy, Vanilla, seed 1: another process is at it",
        "[3/3] Toy, Vanilla, seed 1: failed (no data)",
    ]
    from rich.console import Console

    console = Console(width=100, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(board.render())
    console.file.close()
    text = console.export_text()
    assert "done 2 of 3" in text and "failed 1" in text and "unbiased 71.50 (3 s)" in text


# Estimates


def test_an_estimate_counts_every_stage(monkeypatch):
    data = load_data(TOY)
    short = Short(make_method("pgd"))
    engine.fit(short, data, recipe={"epochs": 7, "batch_size": 40}, device="cpu", progress=False)
    # 100 rows in batches of 40, 40, 20: three steps a pass, seven passes, two stages.
    assert [(steps, epochs) for steps, epochs, _ in short.lengths] == [(21, 7), (21, 7)]


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


# The command line


@pytest.fixture
def app():
    made = typer.Typer()
    cli_bench.add(made)
    return made


def test_bench_prints_json_alone_and_goes_on(app, spec_file, tmp_path):
    words = ["bench", str(spec_file), "--out", str(tmp_path / "out"), "--device", "cpu", "--workers", "1"]
    first = CliRunner().invoke(app, [*words, "--only", "Vanilla", "--seeds", "1", "--json"])
    assert first.exit_code == 0, first.output
    found = json.loads(first.stdout)
    assert (found["cells"], found["done"], found["failed"]) == (2, 2, 0) and found["table"][0]["ours"]["n"] == 1
    again = CliRunner().invoke(app, [*words, "--format", "csv", "--seeds", "1"])
    assert again.exit_code == 0 and "[3/4]" in again.stderr and "[1/4]" not in again.stderr
    assert len(list(csv.DictReader(again.stdout.splitlines()))) == 6
    wrong = CliRunner().invoke(app, [*words, "--format", "pdf"])
    assert wrong.exit_code == 2 and "There is no format 'pdf'" in wrong.stderr


def test_reproduce_lists_the_tables_and_finds_them_by_name(app):
    listed = CliRunner().invoke(app, ["reproduce", "--json"])
    assert {row["name"] for row in json.loads(listed.stdout)["tables"]} == set(papers())
    wrong = CliRunner().invoke(app, ["reproduce", "pgd-table11x"])
    assert wrong.exit_code == 2 and "There is no table 'pgd-table11x'; did you mean" in wrong.stderr


def test_reproduce_prints_the_table_and_writes_the_page(app, spec_file, tmp_path, monkeypatch):
    monkeypatch.setattr("spurless.bench.reproduce.papers", lambda: {"small": spec_file})
    words = ["reproduce", "small", "--out", str(tmp_path / "out"), "--device", "cpu", "--workers", "1"]
    done = CliRunner().invoke(app, [*words, "--seeds", "2", "--format", "markdown"])
    assert done.exit_code == 0, done.output
    assert "60.94 ± 0.97" in done.stdout and "Page:" in done.stderr
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Nobody 2024, table 0" in page and "60.9" in page and "it needs what is not here" in page
    rows = json.loads((tmp_path / "out" / "reproduction.json").read_text())["rows"]
    assert rows[0]["data"] == "Toy, 0.05" and rows[0]["ours"]["n"] == 2 and rows[4]["ours"] is None


def test_failed_trials_are_told_by_the_exit_code(app, tmp_path):
    (tmp_path / "s.toml").write_text('[[block]]\ndata = "celeba"\nmethods = ["erm"]\n')
    words = ["bench", str(tmp_path / "s.toml"), "--out", str(tmp_path / "o"), "--device", "cpu", "--workers", "1"]
    ended = CliRunner().invoke(app, [*words, "--data-root", str(tmp_path)])
    assert ended.exit_code == 3 and "1 failed" in ended.stdout


def test_a_page_of_rows_without_a_result_can_be_written(measured, tmp_path):
    spec, _ = measured
    assert "There is no result yet" in write_page(spec, [], tmp_path).read_text()


def test_a_job_of_a_lane_is_what_fit_takes(tmp_path):
    attempt = Attempt(trial(), tmp_path)
    assert Job("k", attempt.arguments()).arguments["out"] == tmp_path / trial().folder
    assert data_of(trial(), None) is data_of(trial(seed=9), None)


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


def test_in_a_terminal_the_table_lives_while_trials_run(monkeypatch):
    from spurless.core.terminal import Console

    monkeypatch.setattr("spurless.core.terminal.Console", partial(Console, force_terminal=True, width=100))
    board, seen = Board(), StringIO()
    board.console.file = seen

    def shown():
        lines = board.console.render_lines(board.render())
        return "\n".join("".join(part.text for part in line) for line in lines)

    first, second, third = trial(), trial(seed=1), trial(seed=2)
    done = {"key": first.key, "status": "done", "scores": {"average": 50.0}, "wall_seconds": 4.0}
    with board:
        assert board.live is not None and board.live.is_started
        board(Event("plan", plan=([first, second, third], [], 2)))
        board(Event("start", first))
        board(Event("start", second))
        assert "done 0 of 3  running 2" in shown() and "left:" not in shown()
        board(Event("row", first, done))
        assert "done 1 of 3  running 1  left: " in shown() and "average 50.00 (4 s)" in shown()
        board(Event("row", second, {"key": second.key, "status": "failed", "error": "no memory"}))
        assert "failed 1" in shown() and "failed (no memory)" in shown() and "running" not in shown()
        board.live.refresh()
    assert not board.live.is_started and "done 1 of 3" in seen.getvalue()
