"""The study of sweeps: rows, plots and figures that it keeps."""

import json
import re

import pytest

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
