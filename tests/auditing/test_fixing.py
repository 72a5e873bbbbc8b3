"""`fix`: from data to a better model, or the word that the model is to be kept."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

import spurless
from spurless.auditing import fixing
from spurless.auditing.decisions import Decided, Decisions
from spurless.auditing.fixing import CANDIDATES, fix, held_out
from spurless.bench.estimate import Guess
from spurless.core.errors import FolderError
from spurless.registry import load_data
from spurless.train.first_look import SIDE, quick_training
from tests.support.commands import class_folders, invoke
from tests.support.runs import CPU

TOY = {"name": "toy", "rho": 0.05, "n": 4000}
FAST = {"device": "cpu", "progress": False}


def blind(data):
    """The same data without a word on its bias."""
    splits = {name: replace(split, a=None) for name, split in data.splits.items()}
    return replace(data, **splits, attributes=(), values=(), aligned=())


@pytest.fixture(scope="module")
def without_labels():
    return fix(blind(load_data(TOY)), **FAST)


def test_without_labels_it_is_better_where_the_true_shortcut_misleads(without_labels):
    """What it was told nothing of: the toy's bias attribute, on the test split."""
    fixed, data = without_labels, load_data(TOY)
    assert fixed.verdict == "better" and fixed.chosen in ("crossfit", "evals")
    conflicting = ~data.is_aligned(data.test)[:, 0]
    plain = spurless.fit("erm", data, seed=0, **CPU).classifier
    right = [
        (net(data.test.x).argmax(1) == data.test.y)[conflicting].float().mean()
        for net in (plain, fixed.result.classifier)
    ]
    assert right[1] > right[0] + 0.2
    assert {t.labels_used for t in fixed.tried} == {"none"}


def test_what_is_reported_is_of_the_test_split(without_labels):
    before, after = (next(t for t in without_labels.tried if t.method == m) for m in ("before", without_labels.chosen))
    n = len(load_data(TOY).test)
    for tried in (before, after):
        assert tried.average["n"] == n == tried.misleads["n"] + tried.helps["n"]
    assert f"{after.misleads['value']:.1f} % now" in without_labels.text


def test_the_samples_that_choose_are_in_no_training():
    data, judging, notes = held_out(load_data(TOY), seed=0)
    rows = [{tuple(x.tolist()) for x in split.x} for split in (data.train, data.val, judging, data.test)]
    for k, mine in enumerate(rows):
        assert all(mine.isdisjoint(other) for other in rows[k + 1 :])
    assert not notes
    bare = replace(load_data(TOY), val=None, test=None)
    data, judging, notes = held_out(bare, seed=0)
    assert len(notes) == 2 and len(data.train) + len(data.val) + len(judging) + len(data.test) == len(bare.train)


def test_without_a_shortcut_the_model_is_kept_or_what_replaces_it_costs_little():
    """Of two classes nobody can tell hard samples from misled ones: what is right on more of those may be chosen."""
    kept = 0
    for seed in range(3):
        data = blind(load_data({"name": "toy", "rho": 0.5, "n": 1500, "seed": seed}))
        fixed = fix(data, seed=seed, **FAST)
        average = {t.method: t.average["value"] for t in fixed.tried}
        kept += fixed.verdict == "keep"
        assert fixed.verdict == "keep" or average[fixed.chosen] > average["before"] - 2
    assert kept >= 2


def test_labels_bring_the_methods_that_need_them():
    known = fix({**TOY, "n": 1000}, recipe={"epochs": 3}, **FAST)
    assert {t.method for t in known.tried} == {"before", *CANDIDATES} - {"erm"}
    assert "attribute" in known.known_by
    only_val = load_data({**TOY, "n": 1000})
    only_val = replace(only_val, train=replace(only_val.train, a=None))
    methods = {t.method for t in fix(only_val, recipe={"epochs": 3}, **FAST).tried}
    assert "dfr" in methods and not methods & {"group_dro", "rs"}


def test_a_given_model_is_what_is_compared_with():
    """A network that always answers the first class: everything is better, and it is said to be `before`."""
    data = load_data(TOY)
    module = nn.Sequential(nn.Linear(data.shape[0], 8), nn.ReLU(), nn.Linear(8, 2))
    nn.init.zeros_(module[2].weight)
    module[2].bias.data = torch.tensor([1.0, 0.0])
    fixed = fix(data, module, recipe={"epochs": 3}, **FAST)
    share = 100 * float((data.test.y == 0).float().mean())
    assert fixed.tried[0].average["value"] == pytest.approx(share)
    assert "erm" in {t.method for t in fixed.tried} and fixed.verdict == "better"


def test_what_the_budget_does_not_hold_is_left_out_by_name(monkeypatch):
    monkeypatch.setitem(CANDIDATES, "crossfit", ("none", 1e9))
    fixed = fix({**TOY, "n": 400}, recipe={"epochs": 2}, **FAST)
    assert any(text.startswith("crossfit: ") for text in fixed.skipped)
    assert "crossfit" not in {t.method for t in fixed.tried}


def test_the_command_writes_the_model_its_card_and_the_figures(tmp_path):
    out = tmp_path / "fixed"
    words = ["fix", "toy", "--set", "data.n=1000", "--set", "recipe.epochs=3", "--device", "cpu", "--out", str(out)]
    printed = invoke(*words).output
    saved = json.loads((out / "fix.json").read_text())
    assert saved["text"] in printed.replace("\n", " ") and (out / "README.md").exists()
    loaded = spurless.load_run(out / (saved["chosen"] or "erm"))
    assert loaded.classifier is not None
    again = invoke(*words, "--json")  # resumed: nothing is trained again
    told = json.loads(again.stdout)
    assert told["tried"] == saved["tried"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    with pytest.raises(FolderError, match="thesis|not empty"):
        fix(TOY, out=tmp_path / "mine", **FAST)


def test_what_a_review_confirmed_is_the_attribute_that_chooses(tmp_path, monkeypatch):
    monkeypatch.setattr("spurless.auditing.fixing.CANDIDATES", {"group_dro": CANDIDATES["group_dro"]})
    data = spurless.load_data({"name": "toy", "n": 400})
    lines = ["split,row,name,label,which way"]
    for name, split in data.splits.items():
        for i, (label, value) in enumerate(zip(split.y.tolist(), split.a[:, 0].tolist(), strict=True)):
            lines.append(f"{name},{i},,{data.classes[label]},{'like this' if value else 'like that'}")
    (tmp_path / "decisions.csv").write_text("\n".join(lines) + "\n")
    decided = Decided("which way", "column", "shortcut"), Decided("x1", "column", "legitimate")
    Decisions("toy", "0f", decided).write(tmp_path / "decisions.json")
    words = ["fix", "toy", "--set", "data.n=400", "--set", "recipe.epochs=2", "--device", "cpu", "--json"]
    told = json.loads(invoke(*words, "--decisions", tmp_path / "decisions.json", "--out", tmp_path / "out").stdout)
    assert told["known_by"] == "the attribute which way"
    assert "group_dro" in {t["method"] for t in told["tried"]}  # which needs the labels of groups
    audited = json.loads((tmp_path / "out" / "audit" / "audit.json").read_text())
    assert audited["data"]["attributes"] == ["which way"] and audited["decisions"]["legitimate"] == ["x1"]


def test_the_budget_shortens_all_trainings_and_a_resumed_repair_trains_as_it_began(tmp_path, monkeypatch):
    """Plain training would take 100 s; 0.15 of a minute are for it: 9 % of ten epochs."""
    data, told = load_data(TOY | {"n": 400}), {"recipe": {"epochs": 10}, "budget": 1.0, "out": tmp_path / "fix", **FAST}
    monkeypatch.setattr(fixing, "look", lambda *args: (Guess(100.0, "timed"), True))
    fixed = fix(data, **told)
    assert any("9.0% of the recipe's length" in note for note in fixed.notes)
    assert json.loads((tmp_path / "fix" / "erm" / "result.json").read_text())["settings"]["recipe"][
        "epochs"
    ] == pytest.approx(0.9)
    monkeypatch.setattr(fixing, "look", lambda *args: (Guess(1000.0, "timed"), True))  # a slower hour
    assert fix(data, **told).notes == fixed.notes


def test_a_budget_that_suffices_changes_nothing():
    assert not any(
        "recipe's length" in note for note in fix(load_data(TOY | {"n": 400}), recipe={"epochs": 2}, **FAST).notes
    )


def test_the_path_of_a_folder_of_images_is_a_first_look_as_it_is_in_training(tmp_path, monkeypatch):
    class_folders(tmp_path / "photos", ("cat", "dog"), n=20)
    monkeypatch.chdir(tmp_path)
    for path in ("photos", "./photos", "folder:photos"):
        repair = fixing._Fix(fixing.FixArguments(path, device="cpu"))
        assert (repair.net, repair.recipe) == quick_training(len(repair.data.train))
        assert repair.data.shape == (3, SIDE, SIDE)
