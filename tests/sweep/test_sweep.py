"""Sweeps over a setting: what is swept, where the range ends, what is chosen, and what is never looked at to choose."""

import io
import json
import math
import random
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from spurless.bench.points import Point, mark, mean_of, points_of, ranges
from spurless.cli import sweep as cli_sweep
from spurless.core.errors import UserError
from spurless.core.recipe import Recipe
from spurless.metrics.compress import activations_compressed, data_prunability
from spurless.metrics.representation import represent
from spurless.report import normalised, studies, write_any
from spurless.report.sources import find, walk
from spurless.sweep import run as sweep_run
from spurless.sweep import run_sweep, suggest, terminal
from spurless.sweep.axes import Axis, make_axis, setting_of
from spurless.sweep.choice import choose, compare, in_words, the_rule
from spurless.sweep.measures import measures
from spurless.sweep.over_runs import correlation, loss_share_points
from spurless.sweep.plot import by_chance, draw, panel, places, scales
from spurless.sweep.plot import normalised as scaled
from spurless.sweep.suggest import NEAR, Search, nice, suggest_lr
from spurless.train.fit import fit
from spurless.train.schedule import schedule
from tests.support.worlds import pictures, tiny

LR = Axis("lr", "recipe.lr", (0.01, 0.1, 1.0))
SMALL = {"name": "toy", "n": 120}
QUICK = {"optimizer": "sgd", "momentum": 0.0, "lr": 0.05, "batch_size": 40, "epochs": 2}
NET = {"name": "mlp", "widths": [12]}


def row(seed=0, unbiased=60.0, train=100.0, val=90.0, status="done", **extra):
    """A row as run_cells returns it."""
    scores = {"unbiased": unbiased, "conflicting": unbiased - 20, "average": unbiased}
    measured = {"train_accuracy": train, "val_accuracy": val, "val_rows": 1000, "prunability": 0.5} | extra
    if status == "diverged":
        return {"status": status, "seed": seed, "error": "The loss is not finite.", "scores": None, "extra": {}}
    return {"status": status, "seed": seed, "scores": scores, "extra": measured, "settings": {"recipe": {}}}


def points(*columns, axis=LR):
    """The points of rows that are given value by value."""
    return points_of(replace(axis, values=tuple(axis.values[: len(columns)])), columns)


# What is swept


@pytest.mark.parametrize(
    ("name", "setting", "needed"),
    [
        ("lr", "recipe.lr", {}),
        ("batch_size", "recipe.batch_size", {}),
        ("l1", "recipe.l1", {}),
        ("l2", "recipe.weight_decay", {}),
        ("weight_decay", "recipe.weight_decay", {}),
        ("focal.gamma", "recipe.focal_gamma", {"recipe.loss": "focal"}),
        ("fall_after", "recipe.fall_after", {"recipe.schedule": "step"}),
        ("asam.rho", "recipe.rho", {"recipe.sharpness": "asam"}),
        ("data.rho", "data.rho", {}),
        ("net.width", "net.width", {}),
        ("method.q", "method.q", {}),
    ],
)
def test_names_stand_for_settings(name, setting, needed):
    assert setting_of(name) == (setting, needed)


def test_a_bare_name_is_the_methods_where_the_recipe_has_none():
    assert setting_of("q", "lff") == ("method.q", {})
    with pytest.raises(UserError, match="no setting 'q'"):
        setting_of("q", "erm")


def test_a_name_that_recipe_and_method_share_must_say_whose_it_is():
    for name, method in (("eps", "bias_adv"), ("rho", "jtt"), ("gamma", "ga")):
        with pytest.raises(UserError, match=f"recipe.{name} or method.{name}"):
            setting_of(name, method)
        assert setting_of(f"method.{name}", method) == (f"method.{name}", {})
        assert setting_of(name, "erm") == (f"recipe.{name}", {})
    assert setting_of("lr", "eiil") == ("recipe.lr", {}) and setting_of("momentum", "bpa") == ("recipe.momentum", {})


def test_lists_can_be_swept_and_fixed_on_the_command_line():
    assert make_axis("net.widths", "[8, 8],[16]").values == ([8, 8], [16])
    assert make_axis("lr,betas=[0.5,0.9],l1=1", "0.1,0.2").fixed == {"recipe.betas": [0.5, 0.9], "recipe.l1": 1}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"data": tiny()}, "tables of settings, .* not Bundle"),
        ({"data": {"n": 100}}, "The data has no name"),
        ({"method": {"q": 0.5}}, "The method has no name"),
        ({"recipe": Recipe()}, "not Recipe"),
    ],
)
def test_what_is_no_name_and_no_table_of_settings_is_refused(given, said):
    base = {"data": "toy", "method": "erm", "recipe": None} | given
    with pytest.raises(UserError, match=said):
        run_sweep(base["data"], "lr", [0.1], method=base["method"], recipe=base["recipe"])
    with pytest.raises(UserError, match=said):
        suggest_lr(base["data"], method=base["method"], recipe=base["recipe"])


def test_what_an_alias_switches_on_reaches_the_run_and_the_base_stays():
    base = {"recipe": {"lr": 0.5}, "data": {"name": "toy"}}
    found = make_axis("focal.gamma,lr=0.1", "1,5").settings(base, 5)
    assert found["recipe"] == {"lr": 0.1, "loss": "focal", "focal_gamma": 5}
    assert base["recipe"] == {"lr": 0.5}


def test_the_studys_annealing_is_one_fall_a_thousand_steps_on():
    """Figure 22: with 600 steps an epoch, the first smaller step is the 401st of the second one."""
    spec = tomllib.loads((Path(__file__).parents[2] / "studies/sweeps/colored_mnist_annealed.toml").read_text())
    (sweep,) = spec["sweep"]
    for lr in sweep["values"]:
        factor = schedule(Recipe(**make_axis("lr", [lr]).settings(spec, lr)["recipe"]), 600, 1800)
        assert np.unique(factor).tolist() == [0.1, 1.0] and (factor[:1000] == 1).all() and (factor[1000:] == 0.1).all()


def test_values_go_from_gentle_to_extreme():
    assert make_axis("lr", "1,0.01,1e-3").values == (1e-3, 0.01, 1)
    assert make_axis("batch_size", "25,100,50").values == (100, 50, 25)
    assert make_axis("optimizer", "sgd,adam").values == ("sgd", "adam")
    assert not make_axis("optimizer", "sgd,adam").ordered
    towards = [make_axis(name, "1,2").towards for name in ("lr", "batch_size", "momentum", "l2", "asam.rho")]
    assert towards == [True, True, True, False, False]  # larger steps are preferred, not more of anything


@pytest.mark.parametrize(
    ("over", "values", "match"),
    [
        ("lr", "", "needs values"),
        ("lr", "0.1,", "needs values"),
        ("lr", "0.1,0.10", "twice"),
        ("lr", "1,1.0", "twice"),
        ("nonsense", "1,2", "no setting 'nonsense'"),
        ("lr,lr=0.1", "1,2", "cannot be fixed as well"),
        ("lr,momentum", "1,2", "setting=value"),
    ],
)
def test_mistakes_in_what_is_swept(over, values, match):
    with pytest.raises(UserError, match=match):
        make_axis(over, values)


# Where the range ends


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


# What is chosen


def test_the_largest_value_within_one_standard_error_of_the_best_is_chosen():
    found = points([row(val=90.0)], [row(val=91.0)], [row(val=90.2)])
    assert choose(found).value == 1.0  # sqrt(0.91 · 0.09 / 1000) = 0.905 points
    assert choose(found, towards=False).value == 0.1
    assert choose(points([row(val=90.0)], [row(val=91.0)], [row(val=90.0)])).value == 0.1


def test_what_is_not_stable_is_not_chosen_however_well_it_validates():
    assert choose(points([row(val=80)], [row(status="diverged")], [row(val=99)])).value == 0.01
    assert choose(points([row(val=80)], [row(val=99, train=60)])).value == 0.01
    assert choose(points([row(status="diverged")])) is None


def test_without_a_validation_split_training_accuracy_decides():
    def blind(train):
        found = row(train=train)
        found["extra"] = {k: v for k, v in found["extra"].items() if not k.startswith("val")}
        return [found]

    chosen = choose(points(blind(100.0), blind(100.0), blind(97.0)))
    assert (chosen.value, chosen.by) == (0.1, "train_accuracy")
    assert "no validation split" in chosen.rule


def test_the_choice_does_not_look_at_test_scores():
    """Whatever the test split says, the choice stays: otherwise its scores would be selected."""
    draw = random.Random(0)
    train, val = [100.0, 99.0, 98.0], [90.0, 91.0, 90.5]
    chosen = set()
    for _ in range(50):
        columns = [
            [row(s, draw.uniform(0, 100), t, v, prunability=draw.random(), csi=draw.random()) for s in (0, 1)]
            for t, v in zip(train, val, strict=True)
        ]
        chosen.add(choose(points(*columns)).value)
    assert chosen == {1.0}


def test_the_words_say_value_rule_gain_and_where_the_range_ended():
    found = points([row(0, 55.3, prunability=0.56)], [row(0, 85.7, prunability=0.78)], [row(status="diverged")])
    text = in_words(LR, found, choose(found))
    assert text.startswith("Choose lr = 0.1: its validation accuracy is 90.00 %")
    assert "unbiased accuracy 55.3 to 85.7 %" in text and "prunability 0.56 to 0.78" in text
    assert "at 1 1 of 1 runs diverged" in text
    fallen = points([row(0, 90)], [row(0, 50)])
    assert "which the rule does not look at" in in_words(LR, fallen, choose(fallen))


def test_sweeps_are_compared_by_the_best_that_each_validates_at():
    axes = [Axis(name, f"recipe.{name}", (1, 2)) for name in ("lr", "l2", "momentum")]
    values = (90.0, 89.9), (90.5, 95.0), (94.6, 80.0)
    series = [
        (a, choose(points([row(val=v)], [row(val=w)], axis=a), towards=False))
        for a, (v, w) in zip(axes, values, strict=True)
    ]
    said = compare(series)  # the standard error is 0.69 points: sqrt(0.95 · 0.05 / 1000)
    assert said.startswith("Of all sweeps, l2 reaches the highest validation accuracy (95.00 %)")
    assert said.endswith("within one standard error of it: momentum.")
    assert compare(series[:1]) == ""
    lr = choose(points([row(val=90.0)], [row(val=89.9)]))  # takes the larger rate, which validates at 89.9 %
    other = lr._replace(best=89.95, mean=89.95)
    assert compare([(axes[1], other), (axes[0], lr)]).startswith("Of all sweeps, lr reaches")


# What is measured


def test_measures_are_those_of_the_metrics_one_by_one():
    data = tiny(n=150)
    kept = data.is_aligned(data.test)[:, 0] | (torch.arange(len(data.test)) % 8 == 0)  # so that groups differ in size
    data = replace(data, test=replace(data.test, x=data.test.x[kept], y=data.test.y[kept], a=data.test.a[kept]))
    result = fit("erm", data, net=NET, recipe=QUICK | {"epochs": 20}, seed=1)
    found = measures(result, data)
    net = result.classifier
    slow = data_prunability(net, data)
    assert slow.prunability != pytest.approx(data_prunability(net, data, score="average").prunability, abs=0.01)
    assert found["prunability"] == pytest.approx(slow.prunability)
    assert found["prunability_curve"] == pytest.approx(slow.accuracy)
    assert found["pruned_accuracy"] == pytest.approx(sum(slow.accuracy) / 10)
    assert found["magnitude_prunability"] == pytest.approx(data_prunability(net, data, how="magnitude").prunability)
    assert found["activation_compressibility"] == pytest.approx(activations_compressed(net, data).compressibility)
    seen = represent(net, data)
    assert found["csi"] == pytest.approx(seen["csi"])
    assert found["class_separation"] == pytest.approx(seen["class_separation"])
    assert found["bsi"] == pytest.approx(seen["bsi"][data.attributes[0]])
    for split, name in ((data.train, "train_accuracy"), (data.val, "val_accuracy")):
        right = net(split.x).argmax(1) == split.y
        assert found[name] == pytest.approx(100 * right.double().mean().item())
    assert found["val_rows"] == len(data.val)


def test_measures_take_the_split_that_was_scored_and_need_no_attributes():
    data = tiny(n=150)
    bare = replace(data, test=replace(data.test, a=None), val=None, aligned=())
    found = measures(fit("erm", bare, net=NET, recipe=QUICK), bare)
    assert "val_accuracy" not in found and "bsi" not in found
    assert found["prunability"] > 0 and 0 <= found["train_accuracy"] <= 100
    only_val = replace(data, test=None)
    result = fit("erm", only_val, net=NET, recipe=QUICK)
    assert result.scored_on == "val"
    found = measures(result, only_val)
    assert "val_accuracy" not in found  # the split that is scored must not decide


def test_training_accuracy_is_that_of_the_kept_weights():
    data = tiny(n=150)
    result = fit("erm", data, net=NET, recipe=QUICK | {"until_accuracy": 100, "lr": 0.5})
    right = result.classifier(data.train.x).argmax(1) == data.train.y
    assert measures(result, data)["train_accuracy"] == pytest.approx(100 * right.double().mean().item())
    result.history[-1]["train_accuracy"] = 1.0  # where others than the last weights were kept, it is not theirs
    assert measures(replace(result, selection="val_accuracy"), data)["train_accuracy"] > 1


def test_a_network_without_any_right_answer_has_no_prunability():
    data = tiny(n=60)
    wrong = fit("erm", data, net=NET, recipe=QUICK | {"lr": 0.5, "epochs": 10})
    flipped = replace(data, test=replace(data.test, y=1 - wrong.classifier(data.test.x).argmax(1)))
    assert "prunability" not in measures(wrong, flipped)


# Sweeps


@pytest.fixture
def trained(monkeypatch):
    """What fit is called with, run by run."""
    from spurless.train import fit as engine

    calls, whole = [], engine.fit

    def counted(*args, **settings):
        calls.append(settings["recipe"] | {"seed": settings["seed"]})
        return whole(*args, **settings)

    monkeypatch.setattr(engine, "fit", counted)
    return calls


def sweep(folder, over="lr", values=(0.05, 0.5), **settings):
    given = {"net": NET, "recipe": QUICK, "seeds": 2, "device": "cpu", "workers": 1} | settings
    return run_sweep(SMALL, over, values, out=folder, **given)


def test_a_sweep_from_runs_to_files(tmp_path, trained):
    found = sweep(tmp_path / "s", values=(0.5, 0.05, 1e20))
    assert [p["lr"] for p in found["points"]] == [0.05, 0.5, 1e20]
    assert len(trained) == 6 and {c["lr"] for c in trained} == {0.05, 0.5, 1e20}
    first, second, last = found["points"]
    assert first["unbiased"]["n"] == 2 and set(first["unbiased"]) >= {"mean", "low", "high", "sd"}
    by_hand = [
        fit("erm", SMALL, net=NET, recipe=QUICK | {"lr": 0.5}, seed=s, device="cpu").scores["unbiased"] for s in (0, 1)
    ]
    assert second["unbiased"]["mean"] == pytest.approx(sum(by_hand) / 2)
    assert last["diverged"] and not last["in_range"] and "unbiased" not in last
    saved = json.loads((tmp_path / "s" / "sweep.json").read_text())
    assert saved["text"] == found["text"] and "Neither test rows nor bias labels" in saved["text"]
    assert saved["settings"]["recipe"]["batch_size"] == 40 and "lr" not in saved["settings"]["recipe"]
    assert (tmp_path / "s" / "sweep.png").read_bytes()[1:4] == b"PNG"
    assert "diverged" in (tmp_path / "s" / "report.html").read_text(encoding="utf-8")


def test_a_sweep_goes_on_and_grows(tmp_path, trained):
    before = sweep(tmp_path / "s")
    assert len(trained) == 4
    again = sweep(tmp_path / "s")
    assert len(trained) == 4 and again["points"] == before["points"]
    more = sweep(tmp_path / "s", values=(0.05, 0.5, 0.2), seeds=3)
    assert len(trained) == 9
    assert [p["value"] for p in more["points"]] == [0.05, 0.2, 0.5]
    assert [len(p["runs"]) for p in more["points"]] == [3, 3, 3]


def test_sweeps_over_several_settings_share_what_is_the_same(tmp_path, trained):
    found = sweep(tmp_path / "s", ["lr", "momentum", "l2,lr=0.5"], [[0.05, 0.5], [0.0, 0.9], [0.0, 0.1]], seeds=1)
    assert len(trained) == 5  # the smallest rate, and no momentum, are the same run
    lr, momentum, l2 = found["series"]
    assert lr["points"][0]["unbiased"] == momentum["points"][0]["unbiased"]
    assert lr["points"][1]["unbiased"] == l2["points"][0]["unbiased"]
    assert (l2["name"], l2["over"]) == ("l2 (lr=0.5)", "l2")
    assert "Of all sweeps" in found["text"]
    assert found["text"].count("The rule:") == 1
    page = (tmp_path / "s" / "report.html").read_text(encoding="utf-8")
    assert page.count("All measures against") >= 3 and "From least to greatest" in page


def test_a_setting_that_is_not_in_use_is_not_chosen_and_that_is_said(tmp_path):
    found = sweep(tmp_path / "s", "momentum", (0.0, 0.9), recipe=QUICK | {"optimizer": "adam"})
    assert found["points"][0]["unbiased"] == found["points"][1]["unbiased"]
    assert found["choice"] is None and found["text"].startswith("momentum made no difference")
    assert "Choose" not in found["text"] and (tmp_path / "s" / "sweep.png").exists()
    used = sweep(tmp_path / "t", "momentum", (0.0, 0.9))
    assert used["choice"] and "made no difference" not in used["text"]


def test_where_nothing_is_chosen_a_value_of_none_is_not(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("matplotlib.axes.Axes.axvline", lambda *given, **settings: drawn.append(given))
    found = sweep(tmp_path / "s", "recipe.rho", (None, 0.5))  # without sharpness it is not in use
    assert found["choice"] is None and not drawn
    (table,) = terminal.tables(found)
    assert [str(cell) for cell in table.columns[0].cells] == ["None", "0.5"]
    chosen = found | {"choice": {"value": None}}
    assert [str(cell) for cell in terminal.tables(chosen)[0].columns[0].cells] == ["None *", "0.5"]


def test_networks_that_are_dead_at_every_value_do_not_say_that_a_setting_is_not_in_use():
    assert choose(points([row(csi=0.0)], [row(csi=0.0)])) is not None
    assert choose(points([row(csi=0.25)], [row(csi=0.25)])) is None


def test_a_watched_sweep_says_how_accuracy_goes_with_the_conflicting_loss(tmp_path):
    values = (0.01, 0.1, 0.5)
    found = sweep(tmp_path / "s", values=(*values, 1e20), dynamics={"every": 0})
    assert [p["in_range"] for p in found["points"]] == [True, True, True, False]
    folders = sorted((tmp_path / "s" / "cells").iterdir())
    by_hand = correlation([p for p in loss_share_points(folders) if p["lr"] in values])
    together = json.loads((tmp_path / "s" / "sweep.json").read_text())["watched"]
    assert together["n"] == by_hand.n == 6 and together["pearson"] == pytest.approx(by_hand.pearson)
    assert len({point["largest_share"] for point in together["points"]}) > 1
    assert together["smooth"]["n"] == 0  # no run has 100 batches
    assert (
        f"over the {by_hand.n} runs in range" in found["text"] and f"correlation {by_hand.pearson:.2f}" in found["text"]
    )
    page = (tmp_path / "s" / "report.html").read_text(encoding="utf-8")
    assert f"correlation {by_hand.pearson:.2f}" in page and "largest share" in page
    plain = sweep(tmp_path / "plain", values=values[:1], seeds=1)
    assert "watched" not in plain and "correlation" not in plain["text"]


def test_the_share_of_a_hundred_batches_is_kept_beside_that_of_one(tmp_path):
    settings = {"seeds": 1, "recipe": QUICK | {"epochs": 40}, "dynamics": {"moments": []}}
    (point,) = sweep(tmp_path / "s", values=(0.1,), **settings)["points"]
    (by_hand,) = loss_share_points((tmp_path / "s" / "cells").iterdir())
    for name in ("largest_share", "largest_share_smooth"):
        assert point[name]["mean"] == by_hand[name]
    assert point["largest_share_smooth"]["mean"] < point["largest_share"]["mean"]
    shares = ("a", 50.0, 0.2, 0.3), ("b", 70.0, 0.9, 0.2)
    names = "key", "unbiased", "largest_share", "largest_share_smooth"
    together = sweep_run.watched([dict(zip(names, values, strict=True)) for values in shares])
    assert (together["pearson"], together["smooth"]["pearson"]) == (1.0, -1.0)


def test_a_run_in_two_sweeps_counts_once_and_few_runs_are_said_to_be_few():
    runs = [{"key": k, "unbiased": u, "largest_share": s} for k, u, s in (("a", 50.0, 0.2), ("b", 70.0, 0.9))]
    together = sweep_run.watched([*runs, *runs])
    assert together["n"] == 2 and "too few for limits" in sweep_run.watched_in_words(together)
    alone = sweep_run.watched(runs[:1])
    assert alone["n"] == 1 and "cannot be said from 1 watched runs" in sweep_run.watched_in_words(alone)


def test_runs_beyond_the_range_are_not_in_the_correlation():
    facts = {"data": "toy", "net": "mlp", "method": "erm"}
    runs = [{"key": str(u), "seed": 0, "status": "done", "unbiased": u, "largest_share": s} for u, s in
            ((50.0, 0.2), (70.0, 0.9), (30.0, 1.0))]  # fmt: skip
    points = [Point(value, [run]) for value, run in zip(LR.values, runs, strict=True)]
    mark(points)
    together = sweep_run.summary([(LR, points)], [facts])["watched"]
    assert [p.in_range for p in points] == [True, True, False] and (together["n"], together["pearson"]) == (2, 1.0)


def test_a_report_on_a_sweeps_folder_shows_the_sweep_and_not_its_runs(tmp_path):
    sweep(tmp_path / "all" / "s", seeds=1)
    fit("erm", SMALL, net=NET, recipe=QUICK, out=tmp_path / "all" / "single", device="cpu")
    found = find([tmp_path / "all" / "s"])
    assert (len(found.sweeps), found.runs) == (1, [])
    page = write_any([tmp_path / "all" / "s"], tmp_path / "r.html").read_text(encoding="utf-8")
    assert "All measures against lr" in page and "<svg" in page and "prunability" in page
    both = find([tmp_path / "all"])
    assert (len(both.sweeps), len(both.runs)) == (1, 1)
    assert len(find([tmp_path / "all"], sweeps=False).runs) == 3
    assert [p.name for p in walk(tmp_path / "all")].count("sweep.json") == 0  # `serve` lists runs


def test_default_folders_differ_by_what_is_fixed_not_by_values():
    base = {"data": {"name": "csv:a/b.csv"}, "net": {"name": "mlp"}, "method": {"name": "erm"}, "recipe": {}}
    one = sweep_run.default_folder("sweep", base, ["lr"])
    assert one == sweep_run.default_folder("sweep", base, ["lr"])
    assert one != sweep_run.default_folder("sweep", base | {"recipe": {"epochs": 3}}, ["lr"])
    assert one != sweep_run.default_folder("sweep", base, ["l2"])
    assert one.parent == Path("runs") and one.name.startswith("sweep-b.csv-mlp-")


# The largest stable rate


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
        "it buys: accuracy on conflicting rows 31.0 to 39.4 %, prunability 0.50 to 0.50 (1 seed each)" in good["text"]
    )
    falls = words(
        lambda rate: row(status="diverged" if rate > 1 else "done", prunability=1 - rate / 2, pruned_accuracy=50 * rate)
    )
    assert "prunability 0.95 to 0.53, accuracy when pruned 5.0 to 47.0 % (1 seed each)" in falls["text"]
    assert falls["buys"]["pruned_accuracy"]["gain"] == pytest.approx(42)


def test_rates_are_rounded_to_two_digits():
    assert [nice(v) for v in (0.0432, 0.10001, 12.34)] == [0.043, 0.1, 12.0]


# The plot and the report


def test_what_is_out_of_range_does_not_stretch_the_scales():
    found = points([row(unbiased=60)], [row(unbiased=80)], [row(status="diverged")])
    found.append(Point(10.0, [], {"unbiased": {"mean": 5.0, "n": 1}}, in_range=False))
    assert scales([(LR, found)])["unbiased"] == (60, 80)
    assert [scaled(v, (60, 80)) for v in (60, 70, 80)] == [0, 0.5, 1]


def test_what_changes_no_more_than_seeds_do_is_said_to_be_chance():
    up = points([row(0, 60, csi=0.2), row(1, 64, csi=0.4)], [row(0, 80, csi=0.4), row(1, 82, csi=0.3)])
    assert by_chance([(LR, up)]) == {"csi", "prunability"}  # 0.3 to 0.35, and seeds are 0.2 apart; always 0.5
    assert by_chance([(LR, points([row(csi=0.2)], [row(csi=0.4)]))]) == {"unbiased", "prunability"}  # constant ones
    (chart,) = normalised.charts([{"name": "", "points": [p.row("lr") for p in up]}], "lr")
    bands = {line["name"]: line["band"] for line in chart["lines"]}
    assert bands["class selectivity (CSI), 0.30 to 0.35 (seeds differ as much)"] == ""
    assert bands["unbiased accuracy, 62.0 to 81.0 %"] != ""


def test_several_sweeps_share_their_scales():
    low, high = points([row(unbiased=60)], [row(unbiased=70)]), points([row(unbiased=65)], [row(unbiased=90)])
    assert scales([(LR, low), (LR, high)])["unbiased"] == (60, 90)


def test_values_stand_where_they_should():
    assert places(Axis("lr", "recipe.lr", (0.01, 0.1, 10.0))) == [0.0, pytest.approx(2 / 3, abs=1e-6), 2.0]
    assert places(Axis("b", "recipe.batch_size", (100, 10, 1))) == [0.0, 1.0, 2.0]  # extreme to the right
    assert places(Axis("m", "recipe.momentum", (0.0, 0.9, 0.99))) == [0.0, 1.0, 2.0]
    assert places(Axis("lr", "recipe.lr", (0.1,))) == [0.0]


def test_the_report_draws_the_points_in_range_and_says_why_others_are_not():
    found = points([row(0, 60, csi=0.2), row(1, 64, csi=0.3)], [row(0, 80, csi=0.5), row(1, 82, csi=0.5)],
                   [row(0, status="diverged"), row(1)])  # fmt: skip
    saved = [{"name": "", "points": [p.row("lr") for p in found]}]
    (chart,) = normalised.charts(saved, "lr")
    named = {line["name"]: line for line in chart["lines"]}
    line = named["class selectivity (CSI), 0.25 to 0.50"]
    assert [dot["text"] for dot in line["dots"]] == [
        "class selectivity (CSI) 0.250 at lr 0.01",
        "class selectivity (CSI) 0.500 at lr 0.1",
    ]
    assert "unbiased accuracy, 62.0 to 81.0 %" in named
    first, second = (float(dot["d"].split()[1].removesuffix("h0")) for dot in line["dots"])
    assert first > second  # the greater value is further up, where y is less
    top, bottom = (
        float(place.split()[1].rstrip("Z")) for place in line["band"].split("L")[:: len(line["dots"]) * 2 - 1]
    )
    assert top < first < bottom  # at the first value: its highest seed, its mean, its lowest
    made = studies.sweep(
        {"over": "lr", "points": saved[0]["points"], "text": "Choose lr = 0.1.\n\nBy val.", "rule": "By val."}
    )
    assert made.lead == ["Choose lr = 0.1."]
    assert made.sections[0].note == "By val."
    table = made.sections[0].data
    assert [cells[0]["text"] for cells in table["rows"]] == ["0.01", "0.1", "1.0, diverged"]
    csi = table["headings"].index("csi")
    assert table["rows"][1][csi]["text"].startswith("0.500")


def test_a_report_on_accuracies_alone_has_no_chart_of_all_measures():
    assert normalised.charts([{"points": [{"value": 1, "unbiased": {"mean": 50.0, "n": 1}}]}], "lr") == []


def test_the_plot_shows_seeds_the_choice_and_why_a_value_is_out():
    from matplotlib.figure import Figure

    found = points([row(0, 60), row(1, 64)], [row(0, 80), row(1, 84)], [row(0, status="diverged"), row(1, 90)])
    axes = Figure().subplots()
    panel(axes, LR, found, scales([(LR, found)]), {"prunability"}, chosen=0.1)
    (unbiased, thin, chosen) = axes.lines
    assert unbiased.get_ydata().tolist() == [0, 1] and thin.get_linestyle() == "--"
    assert chosen.get_xdata() == [unbiased.get_xdata()[1]] * 2
    (band,) = axes.collections  # of seeds 2 points from a mean, where 20 points are the whole scale; none for the thin
    assert sorted({round(float(y), 6) for y in band.get_paths()[0].vertices[:, 1]}) == [-0.1, 0.1, 0.9, 1.1]
    assert [text.get_text() for text in axes.texts] == ["diverged"]


@pytest.mark.parametrize("sweeps", [1, 2])
def test_a_name_with_dollars_is_no_formula(tmp_path, sweeps):
    found = points([row(0, 60)], [row(0, 80)], [row(0, 90)])
    draw([(LR, found)] * sweeps, tmp_path / "plot.png", r"erm on a$\frac$b")
    assert (tmp_path / "plot.png").stat().st_size > 1000


def test_the_tables_on_the_screen():
    from rich.console import Console

    def lines(table):
        console = Console(width=120, record=True, file=io.StringIO())
        console.print(table)
        return [line.split() for line in console.export_text().splitlines() if line.strip()]

    found = points([row(0, 60, csi=0.25)], [row(status="diverged")], [row(0, 90, csi=0.5)])
    part = {"name": "lr", "points": [p.row("lr") for p in found], "ranges": ranges(found), "choice": {"value": 0.01}}
    shown = lines(terminal.table(part))
    assert shown[0] == ["lr", "unbiased", "confl.", "prun.", "CSI", "valid.", "train"]
    assert shown[2] == ["0.01", "*", "60.0", "40.0", "0.50", "0.25", "90.0", "100.0"]
    assert shown[3] == ["0.1", "diverged", *"–––––"]
    assert shown[4][:3] == ["1", "†", "90.0"]
    up = points([row(0, 60, csi=0.25)], [row(0, 70.5, csi=0.125)])
    both = {"name": "l2", "points": [p.row("l2") for p in up], "ranges": ranges(up)}
    shown = lines(terminal.comparison([part, both]))
    assert shown[2] == ["lr", "0.01", "60.0–60.0", "40.0–40.0", "0.50–0.50", "0.25–0.25"]
    assert shown[3] == ["l2", "0.01–0.1", "60.0–70.5", "40.0–50.5", "0.50–0.50", "0.12–0.25"]


# The studies


SPEC = """
title = "Toy"
source = "Nobody"
seeds = 2
data = {name = "toy", n = 100}
net = {name = "mlp", widths = [8]}
recipe = {optimizer = "sgd", momentum = 0.0, batch_size = 40, epochs = 2}
choices = ["All of it."]
"""
OVER_LR = """
[[sweep]]
over = "lr"
values = [0.02, 0.2, 1e20]
paper = {unbiased = [50.0, 60.0]}
"""


def study(folder, text, monkeypatch, *words, kept=None):
    """What studies/sweep.py keeps of a sweep."""
    from studies import sweep as script

    folder.mkdir(exist_ok=True)
    (folder / "toy.toml").write_text(text)
    kept = kept or folder / "kept"
    given = [str(folder / "toy.toml"), "--out", str(folder / "runs"), "--results", str(kept), *words]
    monkeypatch.setattr("sys.argv", ["sweep.py", *given, "--device", "cpu", "--workers", "1"])
    script.main()
    return json.loads((kept / "sweep.json").read_text())


def test_a_study_keeps_rows_plots_and_what_figures_12_and_26_ask(tmp_path, monkeypatch, capsys):
    from studies.pages import sweep_table

    asked = "dynamics = {moments = []}\ncore_use = {rows = 40, attributed = 4, steps = 4}\n"
    found = study(tmp_path, SPEC + asked + OVER_LR, monkeypatch)
    assert found["command"] == f"python -m studies.sweep {tmp_path / 'toy.toml'} --device cpu --workers 1"
    assert sorted(p.name for p in (tmp_path / "kept").iterdir()) == [
        "core_use.png", "rows.jsonl", "sweep.json", "sweep.png", "watched.png"
    ]  # fmt: skip
    rows = [json.loads(line) for line in (tmp_path / "kept" / "rows.jsonl").read_text().splitlines()]
    assert [(r["settings"]["recipe"]["lr"], r["seed"], r["status"]) for r in rows] == [
        (0.02, 0, "done"), (0.02, 1, "done"), (0.2, 0, "done"), (0.2, 1, "done"), (1e20, 0, "diverged"),
        (1e20, 1, "diverged"),
    ]  # fmt: skip
    assert found["watched"]["n"] == 4 and found["core_use"]["order"]["values"] == [0.02, 0.2]
    assert [p["lr"] for p in found["core_use"]["points"]] == [0.02, 0.02, 0.2, 0.2]
    (row,) = found["paper"]
    assert (row["paper_min"], row["ours_min"]) == (50.0, round(found["ranges"]["unbiased"]["min"], 4))
    said = capsys.readouterr().out
    assert "Unbiased accuracy and the largest share" in said
    assert "CSI and the share of attribution on the core feature put the values in" in said
    table = sweep_table(found)
    mean = found["points"][0]["unbiased"]
    assert f"| 0.02 | {mean['mean']:.1f} ± {mean['sd']:.1f} |" in table.replace(" (chosen)", "")
    assert "| 1e+20 | 2 of 2 diverged |" in table and "| study | 50.0 to 60.0 |" in table
    assert "over the 4 runs in range" in table and "put the values in" in table


def test_an_arm_is_added_to_a_study_whose_runs_are_elsewhere(tmp_path, monkeypatch, trained):
    monkeypatch.chdir(tmp_path)
    second, kept = tmp_path / "second", tmp_path / "results" / "sweep_toy"
    before = study(tmp_path / "first", SPEC + OVER_LR, monkeypatch, kept=kept)
    rows = re.sub('"date": "[^"]*"', '"date": "2020-01-01"', (kept / "rows.jsonl").read_text())
    (kept / "rows.jsonl").write_text(rows)
    assert len(trained) == 6
    arm = '\n[[sweep]]\nover = "momentum,lr=0.02"\nvalues = [0.5]\n'
    after = study(second, SPEC + OVER_LR + arm, monkeypatch)
    assert [(c["momentum"], c["seed"]) for c in trained[6:]] == [(0.5, 0), (0.5, 1)]  # and nothing else
    old, new = after["series"]
    assert old["points"] == before["points"] and old["ranges"] == before["ranges"]
    assert new["points"][0]["unbiased"]["n"] == 2
    assert (second / "kept" / "rows.jsonl").read_text().startswith(rows)
    assert after["notes"].count("All of it.") == 1 and after["settings"]["method"] == {"name": "erm"}
    assert after["versions"] == before["versions"]
    assert after["date"] == f"2020-01-01 to {before['date']}"  # when the runs were, not when they were put together


def test_a_trial_takes_no_rows_of_the_study(tmp_path, monkeypatch, trained):
    monkeypatch.chdir(tmp_path)
    study(tmp_path / "first", SPEC + OVER_LR, monkeypatch, kept=tmp_path / "results" / "sweep_toy")
    study(tmp_path / "trial", SPEC + OVER_LR, monkeypatch, "--set", "recipe.selection=last")  # as it is, and named
    assert len(trained) == 12


def test_a_study_of_several_settings_compares_them_and_single_ones_can_be_asked_for(tmp_path, monkeypatch):
    from studies.pages import sweep_table

    more = '\n[[sweep]]\nover = "l2,lr=0.2"\nvalues = [0.0, 0.1]\npaper = {csi = [0.1, 0.2]}\n'
    alone = study(tmp_path, SPEC + OVER_LR + more, monkeypatch, "--only", "l2,lr=0.2", "--seeds", "1")
    assert alone["over"] == "l2" and not (tmp_path / "kept" / "watched.png").exists()
    found = study(tmp_path, SPEC + OVER_LR + more, monkeypatch, "--seeds", "1")
    assert [(r["sweep"], r["measure"]) for r in found["paper"]] == [("lr", "unbiased"), ("l2 (lr=0.2)", "csi")]
    ours = found["series"][1]["ranges"]["csi"]
    table = sweep_table(found)
    assert "| `lr` | 0.02 to 0.2 |" in table
    assert ours["at_min"] == 0.1 and f"| {ours['max']:.3f} down to {ours['min']:.3f} |" in table  # L2 lowers it
    assert table.count("| study |") == 2 and "| 0.100 to 0.200 |" in table
    with pytest.raises(SystemExit):
        study(tmp_path, SPEC + OVER_LR, monkeypatch, "--only", "rate")
    tried = study(tmp_path, SPEC + OVER_LR, monkeypatch, "--net", "linear", "--set", "recipe.epochs=1", "--seeds", "1")
    assert tried["title"] == "Toy; a trial with net.name=linear, recipe.epochs=1"
    assert tried["settings"]["net"]["name"] == "linear" and tried["settings"]["recipe"]["epochs"] == 1


def test_a_study_that_needs_captum_says_so_before_it_trains(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        study(tmp_path, SPEC + "core_use = {rows = 40}\n" + OVER_LR, monkeypatch)
    assert "spurless[attribution]" in capsys.readouterr().err and not (tmp_path / "runs").exists()


# The command line


def call(*words):
    app = typer.Typer()
    cli_sweep.add(app)
    return CliRunner().invoke(app, [*words], catch_exceptions=False)


FAST = ["--set", "data.n=100", "--set", "recipe.epochs=1", "--set", "recipe.optimizer=sgd", "--device", "cpu"]


def test_json_is_a_list_of_points(tmp_path):
    words = ["sweep", "toy", "--over", "lr", "--values", "0.1,0.01", "--seeds", "2", "--workers", "1", *FAST]
    said = call(*words, "--out", str(tmp_path / "s"), "--json")
    assert said.exit_code == 0, said.output
    found = json.loads(said.stdout)
    assert [p["lr"] for p in found] == [0.01, 0.1]
    assert all(p["unbiased"]["n"] == 2 and isinstance(p["unbiased"]["mean"], float) for p in found)
    assert all(p["diverged"] is False and p["fell"] is False for p in found)
    said = call(*words, "--out", str(tmp_path / "s"), "--dynamics")
    assert said.exit_code == 2 and "was trained without being watched" in said.stderr
    said = call(*words, "--out", str(tmp_path / "s"))
    assert said.exit_code == 0
    assert "Choose lr = " in " ".join(said.stdout.split())  # prose is folded at the width of the screen; paths are not
    assert all(str(tmp_path / "s" / name) in said.stdout for name in ("sweep.png", "report.html", "sweep.json"))


def test_a_sweep_in_which_everything_diverges_says_so(tmp_path):
    words = ["sweep", "toy", "--net", "mlp", "--over", "lr", "--values", "1e30,1e33", "--seeds", "1", *FAST]
    said = call(*words, "--workers", "1", "--out", str(tmp_path / "s"))
    assert said.exit_code == 0, said.output
    assert "No value of lr can be chosen" in said.stdout and said.stdout.count("diverged") >= 4
    assert (tmp_path / "s" / "sweep.png").exists() and (tmp_path / "s" / "report.html").exists()


def test_words_can_be_swept_and_rows_without_attributes(tmp_path):
    lines = ["a,b,label", *(f"{i % 2 + i / 90},{i % 7},{'yes' if i % 2 else 'no'}" for i in range(90))]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    words = ["sweep", f"csv:{tmp_path / 't.csv'}", "--net", "mlp", "--over", "optimizer", "--values", "sgd,adam"]
    said = call(*words, "--seeds", "1", "--workers", "1", "--device", "cpu", "--out", str(tmp_path / "s"), "--json")
    assert said.exit_code == 0, said.output
    found = json.loads(said.stdout)
    assert [p["optimizer"] for p in found] == ["sgd", "adam"]
    assert all("average" in p and "prunability" in p and "unbiased" not in p for p in found)
    saved = json.loads((tmp_path / "s" / "sweep.json").read_text())
    assert "the one with the best validation accuracy is chosen" in saved["rule"]


def test_suggest_lr_prints_one_object(tmp_path):
    said = call("suggest-lr", "toy", *FAST, "--budget", "1", "--out", str(tmp_path / "s"), "--workers", "1", "--json")
    assert said.exit_code == 0, said.output
    found = json.loads(said.stdout)
    assert found["tried"][0] == found["own"] and found["suggested"] in found["tried"]


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["--over", "lr", "--over", "l2", "--values", "1,2"], "each setting needs its own"),
        (["--over", "nothing", "--values", "1,2"], "no setting 'nothing'"),
        (["--over", "lr", "--values", "1,-2"], "recipe.lr = -2 is not allowed"),
        (["--over", "lr", "--values", "1,2", "--set", "net.width=3"], "needs --net"),
        (["--over", "net.width", "--values", "8,16"], "--over net.width needs --net"),
        (["--over", "lr", "--values", "1,2", "--method", "emr"], "no method 'emr'"),
        (["--over", "lr", "--over", "lr", "--values", "1,2", "--values", "3,4"], "named twice"),
    ],
)
def test_mistakes_end_in_one_sentence(words, match, tmp_path):
    said = call("sweep", "toy", *words, "--out", str(tmp_path / "s"), "--device", "cpu", "--workers", "1")
    assert said.exit_code == 2
    assert match in " ".join(said.output.split())
    assert "Traceback" not in said.output
    assert not (tmp_path / "s").exists()


def test_a_refused_search_leaves_no_folder(tmp_path):
    said = call("suggest-lr", "toy", "--set", "recipe.lr=-1", "--out", str(tmp_path / "s"), "--device", "cpu")
    assert said.exit_code == 2 and "recipe.lr = '-1' is not allowed" in said.output
    assert not (tmp_path / "s").exists()


@pytest.mark.gpu
def test_a_sweep_in_lanes_on_a_gpu(tmp_path):
    found = sweep(tmp_path / "s", values=(0.05, 0.5, 1e20), device="cuda", workers=None)
    assert [p["diverged"] for p in found["points"]] == [False, False, True]
    assert all(p["prunability"]["n"] == 2 for p in found["points"][:2])


@pytest.mark.gpu
def test_measures_on_a_gpu_are_those_on_a_cpu():
    data = tiny(n=150)
    result = fit("erm", data, net=NET, recipe=QUICK, device="cuda")
    there = measures(result, data)
    result.classifier.cpu()
    here = measures(result, data)
    assert torch.device(next(result.classifier.parameters()).device).type == "cpu"
    for name, value in here.items():
        assert there[name] == pytest.approx(value, abs=1e-4), name


def test_a_network_that_only_pruning_breaks_is_a_point_like_any_other(tmp_path):
    """At this rate its weights grow to 1e18: whole, it gives numbers, and pruned it does not."""
    found = run_sweep(
        {"name": "toy", "n": 200},
        "lr",
        [0.1, 2.5],
        "mlp",
        seeds=1,
        recipe={"optimizer": "sgd", "epochs": 2, "until_accuracy": 0},
        out=tmp_path,
        device="cpu",
        workers=1,
    )
    assert [p["in_range"] for p in found["points"]] == [True, False]
    assert found["points"][1]["fell"] or found["points"][1]["diverged"]


def test_a_worst_group_of_few_samples_says_so_in_a_sweep():
    def judged(seed, n):
        found = row(seed)
        found["scores"] |= {"worst_group": 40.0, "n": {"worst_group": n}, "min_size": 10}
        return found

    (point,) = points([judged(0, 12), judged(1, 3), judged(2, 5)])
    assert point.means["worst_group"]["samples"] == 3 and "samples" not in point.means["unbiased"]
    assert [run.get("worst_group_n") for run in point.runs] == [None, 3, 5]
    shown = studies.sweep({"over": "lr", "points": [point.row("lr")]})
    texts = [cell["text"] for s in shown.sections if s.name == "sweep" for r in s.data["rows"] for cell in r]
    assert any(text.startswith("40.0") and text.endswith("(n = 3)") for text in texts)
    (enough,) = points([judged(0, 12)])
    assert "samples" not in enough.means["worst_group"]


def test_pruning_is_held_against_the_average_where_a_class_has_no_test_sample():
    data = pictures(n=64, shape=(1, 20, 20))
    kept = data.test.y != 0
    data = replace(data, test=replace(data.test, x=data.test.x[kept], y=data.test.y[kept], a=data.test.a[kept]))
    result = fit("erm", data, net=NET, recipe=QUICK | {"epochs": 10}, seed=1)
    assert result.scores["unbiased"] is None and result.scores["worst_group"] is None
    found = measures(result, data)
    assert found["prunability_curve"] == pytest.approx(
        data_prunability(result.classifier, data, score="average").accuracy
    )
