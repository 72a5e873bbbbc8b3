"""Sweeps from runs to files."""

import json
from pathlib import Path

import pytest

from spurless.bench.points import Point, mark
from spurless.report import studies, write_any
from spurless.report.sources import find, walk
from spurless.sweep import run as sweep_run
from spurless.sweep import terminal
from spurless.sweep.choice import choose
from spurless.sweep.over_runs import correlation, loss_share_points
from spurless.train.fit import fit
from tests.support.sweeps import LR, NET, QUICK, SMALL, points, row, sweep


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
    assert saved["text"] == found["text"] and "Neither test samples nor bias labels" in saved["text"]
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


@pytest.mark.gpu
def test_a_sweep_in_lanes_on_a_gpu(tmp_path):
    found = sweep(tmp_path / "s", values=(0.05, 0.5, 1e20), device="cuda", workers=None)
    assert [p["diverged"] for p in found["points"]] == [False, False, True]
    assert all(p["prunability"]["n"] == 2 for p in found["points"][:2])


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


def test_a_sweep_prints_short_shows_and_draws_itself(tmp_path, capsys):
    found = sweep(tmp_path / "s")
    progress = capsys.readouterr().err.splitlines()
    assert progress[0].startswith("4 trainings take about ") and ", 1 at a time" in progress[0]
    assert progress[1] == "4 trials; 4 to do, 1 at a time."
    assert progress[2].startswith("[1/4] lr, 0.05, seed 0: unbiased ") and progress[5].startswith("[4/4] ")
    assert json.loads(json.dumps(found))["points"][0]["value"] == 0.05  # a dict as before
    assert repr(found).startswith("Sweep(lr on toy, mlp, erm; lr: 2 values, ") and len(repr(found)) < 200
    html = found._repr_html_()
    assert html.count("<tr>") >= 3 and "The rule" in html
    axes = found.plot()
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.05", "0.5"]
    from matplotlib import pyplot

    (own, other) = pyplot.subplots(2)[1]
    assert found.plot(other) is other and other.lines and not own.lines
    again = sweep(tmp_path / "s")
    assert capsys.readouterr().err == "" and again["points"] == found["points"]
    pyplot.close("all")


def test_nobody_waits_for_an_estimate_that_nobody_reads(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("spurless.bench.estimate.guesses", lambda *_: pytest.fail("timed"))
    caplog.set_level("WARNING", logger="spurless")  # for this test alone
    assert sweep(tmp_path / "s", values=(0.05,), seeds=1)["points"]
