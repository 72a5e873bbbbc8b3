"""Advice that can be followed as it is printed, and a repair that is picked and judged on different rows."""

import functools
import itertools
import json
import shlex
from dataclasses import replace

import pytest
import torch
from typer.main import get_command
from typer.testing import CliRunner

from spurless.auditing import _train_options, fix, terminal
from spurless.auditing.advice import COST, Facts, about, advise, fitting, rows_for
from spurless.auditing.case import make_case
from spurless.auditing.fix import Tried, halves, lesson, make_rule, repair
from spurless.auditing.model import Audited
from spurless.cli.common import gather
from spurless.cli.main import app
from spurless.core.recipe import Recipe
from spurless.core.stats import wilson
from spurless.methods import METHODS
from spurless.registry import load_data, make_method
from spurless.train.fit import fit
from tests.support.worlds import tiny

CPU = torch.device("cpu")
VERDICTS = ("shortcut found", "suspected", "no evidence", "cannot tell")
FOUND = Facts(
    "shortcut found",
    "toy",
    train_labels=False,
    val_labels=False,
    rows=2000,
    held_out=500,
    classes=2,
    contradicting=25,
    conflicting=40.0,
    aligned=99.0,
    seconds=60.0,
    name="colour",
)


def titles(facts):
    return [item["title"] for item in advise(facts)]


def commands(facts):
    return [shlex.split(item["command"]) for item in advise(facts) if item["command"]]


def trained(facts):
    return [words[2] for words in commands(facts) if words[1] == "train"]


# Advice


@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("val", [False, True])
@pytest.mark.parametrize("source", ["toy", "folder:my photos", "csv:a'b.csv"])
def test_every_command_is_one_that_the_command_line_takes(verdict, train, val, source):
    facts = replace(FOUND, verdict=verdict, train_labels=train, val_labels=val, source=source, wrong_labels=0.1)
    known = get_command(app).commands
    found = advise(replace(facts, settings=("data.seed=3",)))
    assert found and all(item.keys() == {"title", "why", "command"} for item in found)
    assert all(any(c.isdigit() for c in item["why"]) for item in found), "a reason without a number"
    lines = [shlex.split(item["command"]) for item in found if item["command"]]
    assert lines
    for spurless, name, *words in lines:
        assert spurless == "spurless" and name in ("train", "audit", "data")
        command = known[name]
        if name == "data":
            command, words = command.commands[words[0]], words[1:]
        asked = command.make_context(name, words).params  # refuses what it does not know
        assert asked["data"] == source and "data.seed=3" in asked["set_"]
        if name == "train":
            method = make_method(asked["method"])
            assert method.labels != "training" or train
            assert method.labels != "validation" or val


def test_the_methods_follow_from_the_labels():
    assert trained(FOUND) == ["pgd", "lff", "jtt"]
    assert trained(replace(FOUND, val_labels=True)) == ["dfr", "pgd", "lff"]
    assert trained(replace(FOUND, train_labels=True)) == ["group_dro", "rs", "pgd"]
    assert trained(replace(FOUND, train_labels=True, val_labels=True)) == ["group_dro", "rs", "dfr"]
    assert set(COST) <= set(METHODS)
    for verdict in ("no evidence", "cannot tell"):
        assert trained(replace(FOUND, verdict=verdict)) == []


def test_a_method_that_is_not_registered_is_never_named(monkeypatch):
    monkeypatch.delitem(METHODS, "pgd")
    assert fitting(False, False) == ["lff", "jtt"]


def test_what_fits_the_budget_comes_first_and_the_rest_says_so():
    facts = replace(FOUND, val_labels=True, seconds=100.0, budget=2.0)
    assert trained(facts) == ["dfr", "pgd", "lff"] and "more than the 2 min" in advise(facts)[0]["why"]  # 150 s
    facts = replace(FOUND, train_labels=True, seconds=100.0, budget=1.75)  # 105 s: one plain training, not 1.1
    assert trained(facts) == ["rs", "group_dro", "pgd"]
    assert "more than" not in advise(facts)[0]["why"]


@pytest.mark.parametrize(("points", "accuracy"), [(5, None), (5, 90.0), (5, 40.0), (10, 50.0), (5, 100.0)])
def test_the_number_of_rows_is_the_smallest_that_is_enough(points, accuracy):
    p = 0.5 if accuracy is None else accuracy / 100

    def width(n):
        low, high = wilson(p * n, n)
        return 100 * (high - low) / 2

    if accuracy == 100.0:  # the interval is one-sided there: at most as wide as its formula says
        assert width(rows_for(points, accuracy)) <= points
    else:
        n = rows_for(points, accuracy)
        assert width(n) <= points + 1e-9 < width(n - 1)


def test_it_says_how_many_samples_to_collect():
    assert rows_for(5, 40.0) == 366 and about(366) == 370
    item = next(i for i in advise(FOUND) if i["title"].startswith("Collect"))
    assert item["title"] == "Collect about 350 more samples that contradict 'colour'"  # 370 - 25 = 345
    low, high = wilson(10, 25)
    assert f"between {100 * low:.0f} and {100 * high:.0f} %" in item["why"] and "About 370" in item["why"]
    assert any("Collect about 380 more" in t for t in titles(replace(FOUND, classes=20)))  # 20 of each of 20 classes
    assert not any("Collect" in t for t in titles(replace(FOUND, contradicting=370)))
    none = replace(FOUND, contradicting=0, conflicting=None)
    assert titles(none)[0].startswith("Collect about 390")  # no method can learn from rows that are not there


def test_labels_that_look_wrong_come_before_methods_that_would_dwell_on_them():
    assert not any("labels" in t for t in titles(replace(FOUND, wrong_labels=0.01)))
    few, many = replace(FOUND, wrong_labels=0.03), replace(FOUND, wrong_labels=0.06)  # 5 % contradict
    assert titles(few)[-1] == "Check the labels" and titles(many)[0] == "Check the labels"
    assert "30 of the 500 held-out rows (6 %)" in advise(many)[0]["why"]
    assert titles(replace(many, verdict="no evidence"))[0] == "Check the labels"


def test_without_a_finding_it_says_how_many_rows_or_what_was_not_covered():
    unsure = replace(FOUND, verdict="cannot tell", contradicting=None, conflicting=None)
    assert titles(unsure)[0] == "Hold out about 1,000 samples, then audit again"  # twice as many as there are
    assert titles(replace(unsure, held_out=30))[0] == "Hold out about 190 samples, then audit again"  # 93 a class
    assert "about 1,300" in titles(replace(unsure, needed=1234))[0]
    assert "about 1,900" in titles(replace(unsure, contradicting=25))[0]  # 5 % of 1,860 are 93
    never = replace(unsure, contradicting=0, source="csv:t.csv", train_labels=True, is_input=True)
    assert [t.split()[0] for t in titles(never)] == ["Collect", "Take"]  # more of the same rows would not help
    away = replace(FOUND, root=("--data-root", "my data"))
    assert all(words[-2:] == ["--data-root", "my data"] for words in commands(away))
    clean = replace(FOUND, verdict="no evidence", source="folder:photos")
    assert "not covered" in titles(clean)[0] and titles(clean)[1] == "Write down what you suspect"
    assert commands(clean)[-1][2:4] == ["--fail-on", "suspected"]
    assert len(titles(replace(clean, train_labels=True))) == len(titles(clean)) - 1


def test_an_attribute_that_is_known_is_not_denied_and_stays_in_the_command(tmp_path):
    settings = ("data.label=ill", "data.attribute=ward")
    facts = replace(FOUND, verdict="no evidence", source="csv:t.csv", settings=settings, attributes=("ward, old",))
    item = next(i for i in advise(facts) if i["title"] == "Write down what else you suspect")
    assert "only 'ward, old' is written down" in item["why"] and "None of" not in item["why"]
    words = shlex.split(item["command"])
    sets = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
    assert sets == ["data.label=ill", 'data.attribute=["ward, old", "ATTRIBUTE"]']
    file = tmp_path / "t.csv"
    rows = [f"{i % 7},{'xy'[i % 3 % 2]},{'pq'[i % 5 % 2]},{'ab'[i % 2]}" for i in range(80)]
    file.write_text('size,"ward, old",ATTRIBUTE,ill\n' + "\n".join(rows) + "\n")
    chosen = gather([*sets, "data.duplicates=keep"], ("data",))["data"]
    assert load_data({"name": f"csv:{file}"} | chosen).attributes == ("ward, old", "ATTRIBUTE")


def test_commands_repeat_what_was_given_for_the_model_and_its_training():
    facts = replace(
        FOUND,
        wrong_labels=0.1,
        verdict="suspected",
        network=("--net", "linear"),
        model=("--model", "my runs/a", "--net", "conv3"),
        recipe=("recipe.epochs=3",),
    )
    for verdict in VERDICTS:
        for words in commands(replace(facts, verdict=verdict)):
            assert ("--set recipe.epochs=3" in " ".join(words)) == (words[1] in ("train", "audit"))
            assert ("my runs/a" in words and "conv3" in words) == (words[1] == "audit")
            assert ("linear" in words) == (words[1] == "train")


def invoke(*words):
    answer = CliRunner().invoke(app, [*words, "--device", "cpu"])
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def test_what_is_advised_after_a_given_model_is_about_that_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    toy, quick = ["toy", "--set", "data.n=600"], ["--set", "recipe.epochs=3"]
    net = ["--net", "mlp", "--set", "net.widths=[6, 5]"]
    invoke("train", "erm", *toy, *quick, *net, "--out", "my run")
    found = json.loads(invoke("audit", *toy, *quick, "--model", "my run", "--out", "a", "--json"))
    lines = [shlex.split(item["command"])[1:] for item in found["advice"] if item["command"]]
    audits, trains = ([words for words in lines if words[0] == name] for name in ("audit", "train"))
    assert audits and trains and all(words[words.index("--model") + 1] == "my run" for words in audits)
    again = json.loads(invoke(*(w for w in audits[-1] if w != "--fix"), "--json"))
    assert again["model"] == found["model"] and again["model"]["name"] == "my run"
    invoke(*trains[0], "--out", "mended")
    made = json.loads((tmp_path / "mended" / "result.json").read_text())["settings"]
    assert made["net"] == {"name": "mlp", "widths": [6, 5]} and made["recipe"]["epochs"] == 3


def test_what_is_advised_after_a_named_network_names_it(tmp_path):
    words = ["audit", "toy", "--set", "data.n=600", "--net", "mlp", "--set", "recipe.epochs=3"]
    found = json.loads(invoke(*words, "--out", str(tmp_path / "a"), "--json"))
    lines = [shlex.split(item["command"]) for item in found["advice"] if item["command"]]
    asked = [" ".join(words) for words in lines if words[1] in ("audit", "train")]
    assert asked and all("--net mlp" in line and "--set recipe.epochs=3" in line for line in asked)


def test_the_size_of_a_given_runs_images_goes_with_its_network():
    bundle = tiny()
    run = Audited(replace(bundle, settings={"size": 64}), None, "r", "given", "val", "conv3", bundle.recipe, 0.0)
    assert _train_options(run, ()) == ("--net", "conv3", "--set", "data.size=64")
    assert _train_options(run, ("data.size=64",)) == ("--net", "conv3")
    own = replace(run, spec={"name": "Mine", "own": True}, data=bundle)  # has no name on a command line
    assert _train_options(own, ()) == () == _train_options(replace(own, spec=bundle.net), ())
    weights = replace(own, spec={"name": "resnet18", "weights": "Start/W.pt", "pretrained": False})
    assert {"resnet18", "net.weights=Start/W.pt", "net.pretrained=false"} <= set(_train_options(weights, ()))


def test_a_long_command_is_printed_on_one_line(tmp_path, monkeypatch, capsys):
    place = "my photos/" + "of birds/" * 12
    facts = replace(FOUND, source=f"folder:{place}", model=("--model", "runs/a b"))
    found = {"verdict": "shortcut found", "headline": "It reads the ground. " * 6, "advice": advise(facts)}
    empty = {"reliability": None, "evidence": [], "rows": [], "slices": [], "cost": None, "fix": None}
    monkeypatch.setenv("COLUMNS", "80")
    terminal.show(found | empty)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    shown = [line.removeprefix("    $ ") for line in lines if line.startswith("    $ ")]
    assert shown == [item["command"] for item in found["advice"][: terminal.ADVICE]]
    assert all(f"folder:{place}" in shlex.split(line) for line in shown)
    assert all(len(line) <= 80 for line in lines if "$" not in line)  # the rest is folded as before


def test_a_suspicion_asks_to_look_first():
    found = titles(replace(FOUND, verdict="suspected"))
    assert found[0] == "Look at the suspicious rows first" and found[1:] == titles(FOUND)


def test_the_budget_that_is_proposed_is_enough_for_all_it_names():
    proposed = next(words for words in commands(FOUND) if "--fix" in words)
    minutes = float(proposed[proposed.index("--budget") + 1])
    assert 60 * minutes >= (1 + sum(COST[name] for name in trained(FOUND))) * FOUND.seconds
    assert not any("--budget" in words for words in commands(replace(FOUND, seconds=None)))


def test_a_command_for_a_table_runs_as_it_is_printed(tmp_path):
    file = tmp_path / "my table.csv"
    rows = [f"{i % 7},{'xy'[i % 2]},{'ab'[i % 2]}" for i in range(80)]
    file.write_text("size,ward,ill\n" + "\n".join(rows) + "\n")
    settings = ("data.label=ill", "data.attribute=ward")
    facts = replace(FOUND, source=f"csv:{file}", train_labels=True, settings=settings, is_input=True)
    assert not any("out of the inputs" in t for t in titles(replace(facts, is_input=False)))  # of texts it never was
    first = advise(facts)[0]
    assert first["title"] == "Take 'colour' out of the inputs"
    out = tmp_path / "run"
    words = [*shlex.split(first["command"])[1:], "--set", "recipe.epochs=1", "--out", str(out), "--device", "cpu"]
    words += ["--set", "data.duplicates=keep"]
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 0, ran.output
    assert json.loads((out / "result.json").read_text())["settings"]["data"]["drop_attribute"] is True
    again = replace(facts, settings=(*facts.settings, "data.drop_attribute=true"))
    assert not any("out of the inputs" in t for t in titles(again))


# The repair


@functools.cache
def toy_case(split="test", rho=0.05):
    data = load_data({"name": "toy", "rho": rho})
    net = fit("erm", data, device="cpu", progress=False).classifier
    return make_case(data, net, "trained for this audit", split, CPU)


def against(case):
    return ~case.data.is_aligned(case.held).all(1)


def mend(case, contradicting=None, budget=100.0, out=None, recipe=None, seconds=0.1, progress=False, labels=None):
    marked = against(case) if contradicting is None else contradicting
    return repair(
        case, marked, budget, out, None, recipe, CPU, seconds_of_one=seconds, progress=progress, labels=labels
    )


def test_known_labels_mend_the_toy_and_before_and_after_are_of_the_same_rows(tmp_path):
    case = toy_case()
    found = mend(case, out=tmp_path)
    json.dumps(found, allow_nan=False)
    methods = [row["method"] for row in found["rows"]]
    assert methods == ["before", "group_dro", "rs", "dfr"] and found["chosen"] in methods[1:]
    assert all({k: row[k]["n"] for k in ("following", "contradicting", "average")} ==
               {"following": 1000, "contradicting": 1000, "average": 2000} for row in found["rows"])  # fmt: skip
    before, after = found["rows"][0], next(r for r in found["rows"] if r["method"] == found["chosen"])
    assert before["contradicting"]["high"] < 30 and after["contradicting"]["low"] > 80
    _, reporting = halves(case.held.y, against(case), case.seed)
    assert before["average"]["value"] == pytest.approx(100 * float(case.right[reporting].double().mean()))
    saved = json.loads((tmp_path / "fix" / "rs" / "result.json").read_text())
    assert saved["method"] == "rs" and saved["seed"] == case.seed
    assert mend(case, out=tmp_path) == found  # finished runs are read, not trained again


def test_without_labels_of_the_shortcut_the_methods_see_none():
    case = toy_case("val")
    found = mend(case, labels=())
    assert [row["method"] for row in found["rows"]] == ["before", "pgd", "lff", "jtt"] and found["chosen"]
    data = lesson(case, ())
    assert data.attributes == () and all(split.a is None for split in data.splits.values())


def test_only_the_named_attributes_are_used():
    case = toy_case()
    two = {
        name: replace(s, a=torch.cat([s.a, 1 - s.a, s.a], 1)) for name, s in case.data.splits.items()
    }  # three attributes
    names = {"attributes": ("a", "b", "c"), "values": (("0", "1"),) * 3, "aligned": (torch.eye(2).bool(),) * 3}
    data = lesson(replace(case, data=replace(case.data, **two, **names)), ["b"])
    assert data.attributes == ("b",) and len(data.values) == len(data.aligned) == 1
    assert torch.equal(data.train.a, 1 - case.data.train.a)


def test_no_method_learns_from_the_rows_that_judge_it(monkeypatch):
    seen = []

    def watched(method, data, **options):
        seen.append((method, data, options["recipe"]))
        return fit(method, data, **options)

    monkeypatch.setattr(fix, "fit", watched)
    case = toy_case("val")
    mend(case, recipe=replace(case.data.recipe, epochs=1, selection="val_loss"))
    assert [method for method, _, _ in seen] == ["group_dro", "rs", "pgd"]  # not dfr, which trains on validation rows
    assert all(data.val is None and recipe.selection == "last" for _, data, recipe in seen)
    seen.clear()
    mend(toy_case("test"), recipe=Recipe(epochs=1, selection="val_loss"))
    assert all(data.val is not None and recipe.selection == "val_loss" for _, data, recipe in seen)
    with pytest.raises(ValueError, match="train on these rows"):
        mend(replace(case, split="train"))


def test_halves_share_out_every_cell_and_small_cells_too():
    y = torch.arange(500) % 10
    marked = torch.zeros(500, dtype=torch.bool)
    marked[:10] = True  # one of each class
    first, second = halves(y, marked, seed=0)
    assert sorted(first.tolist() + second.tolist()) == list(range(500))
    assert marked[first].sum() == marked[second].sum() == 5
    for c in range(10):
        assert abs(int((y[first] == c).sum()) - int((y[second] == c).sum())) <= 2
    assert torch.equal(first, halves(y, marked, seed=0)[0]) and not torch.equal(first, halves(y, marked, seed=1)[0])


def faked(monkeypatch, answers):
    """Every method 'trains' to these answers (n,) bool."""
    monkeypatch.setattr(fix, "attempt", lambda case, method, train: Tried(method, answers[method], 1.0))


def test_the_reporting_half_never_picks(monkeypatch):
    case = toy_case()
    picking, reporting = halves(case.held.y, against(case), case.seed)
    n = len(case.held)
    good, bad = torch.ones(n, dtype=torch.bool), torch.zeros(n, dtype=torch.bool)
    sly = bad.clone()
    sly[reporting] = True  # perfect exactly where the table is made
    honest = bad.clone()
    honest[picking] = True
    faked(monkeypatch, {"pgd": sly, "lff": honest, "jtt": bad})
    found = mend(case, labels=())
    assert found["chosen"] == "lff"
    shown = {row["method"]: row["average"]["value"] for row in found["rows"]}
    assert shown["pgd"] == 100 and shown["lff"] == 0  # and the table is of the other half only
    faked(monkeypatch, {"pgd": sly, "lff": bad, "jtt": bad})
    assert mend(case, labels=())["chosen"] is None
    generator = torch.Generator().manual_seed(0)
    answers = {m: torch.rand(n, generator=generator) < p for m, p in (("pgd", 0.7), ("lff", 0.8), ("jtt", 0.75))}
    outcomes = []
    for flipped in (good & False, ~honest, honest):  # nothing, then the reporting half, then the picking half
        faked(monkeypatch, {m: right ^ flipped for m, right in answers.items()})
        outcomes.append(mend(case, labels=())["chosen"])
    assert outcomes[0] == outcomes[1] == "lff" and outcomes[2] != "lff"


def test_the_rule_counts_both_kinds_of_rows_alike():
    contradicting = torch.tensor([True] * 10 + [False] * 90)
    rule = make_rule(torch.arange(100), contradicting, torch.arange(100) % 2)
    right = ~contradicting
    assert not rule.worst and rule.score(right) == 0.5  # not 0.9: the shortcut is not rewarded
    assert "contradict" in rule.words


def test_the_rule_says_which_classes_it_cannot_see_or_hardly():
    contradicting, y = torch.zeros(103, dtype=torch.bool), torch.tensor([0] * 60 + [1] * 40 + [2] * 3)
    assert "smallest" not in make_rule(torch.arange(100), contradicting[:100], y[:100]).words
    assert "of the 2 of 3 classes that have rows here" in make_rule(torch.arange(100), contradicting, y).words
    assert "the smallest has n = 3" in make_rule(torch.arange(103), contradicting, y).words


def test_with_too_few_contradicting_rows_the_worst_class_decides():
    contradicting = torch.tensor([True] * 4 + [False] * 96)
    y = torch.tensor([0] * 60 + [1] * 40)
    rule = make_rule(torch.arange(100), contradicting, y)
    right = torch.ones(100, dtype=torch.bool)
    right[60:70] = False
    assert rule.worst and rule.score(right) == 0.75 and "worst class" in rule.words
    level = right.clone()
    level[:10], level[60:70] = False, True  # 50 of 60, 40 of 40
    assert rule.choose([Tried("before", right), Tried("a", level)]) is None  # 75 to 83 %: can be chance
    assert rule.choose([Tried("before", right), Tried("a", right | True)]).method == "a"


def test_where_no_method_is_better_one_is_rarely_picked():
    generator = torch.Generator().manual_seed(0)
    y, contradicting = torch.arange(500) % 10, torch.arange(500) < 50
    chance = torch.where(contradicting, 0.4, 0.97)
    picked = 0
    for seed in range(200):
        rule = make_rule(halves(y, contradicting, seed)[0], contradicting, y)
        tried = [Tried(str(k), torch.rand(500, generator=generator) < chance) for k in range(4)]
        picked += rule.choose(tried) is not None
    assert picked <= 20  # 5 % of 200 are 10


def test_data_without_a_shortcut_keeps_its_model():
    case = toy_case(rho=0.5)
    found = mend(case, labels=())
    assert found["chosen"] is None and "keep the model" in found["text"][0]
    assert len(found["rows"]) == 4 and found["rows"][0]["average"]["value"] > 85


# What goes wrong


def test_no_budget_no_method(monkeypatch):
    monkeypatch.setattr(fix.time, "monotonic", lambda: 7.0)  # a clock too coarse to see time pass
    for seconds in (0.0, 5.0):
        found = mend(toy_case(), budget=0.0, seconds=seconds)
        assert [row["method"] for row in found["rows"]] == ["before"] and found["chosen"] is None
        assert "No method was run" in found["text"][0] and len(found["text"]) == 4
        # Of a model that was trained elsewhere nobody knows how long a training takes.
        assert all(("is not known" in text) == (not seconds) for text in found["text"][1:])
        assert not any("about 0 s" in text for text in found["text"])


def test_only_what_fits_the_budget_is_run(monkeypatch):
    n = len(toy_case().held)
    monkeypatch.setattr(fix.time, "monotonic", lambda: 7.0)
    faked(monkeypatch, dict.fromkeys(COST, torch.ones(n, dtype=torch.bool)))
    found = mend(toy_case(), budget=10.5, seconds=10.0)
    assert [row["method"] for row in found["rows"]] == ["before", "rs"] and found["chosen"] == "rs"
    assert sum("left out" in text for text in found["text"]) == 2


def test_a_method_that_takes_too_long_is_stopped(monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr(fix.time, "monotonic", lambda: next(clock))  # a second each time someone looks
    found = mend(toy_case(), budget=50, seconds=1.0)
    first = found["rows"][1]
    assert first["method"] == "group_dro" and first["average"] is None and "time was used up" in first["note"]
    assert len(found["rows"]) == 2 and found["chosen"] is None and next(clock) < 80


def test_a_method_that_fails_is_a_row_and_the_rest_goes_on(tmp_path):
    case = toy_case()
    (tmp_path / "fix" / "rs").mkdir(parents=True)
    (tmp_path / "fix" / "rs" / "notes.txt").write_text("mine")
    found = mend(case, out=tmp_path)
    rows = {row["method"]: row for row in found["rows"]}
    assert "not empty" in rows["rs"]["note"] and rows["rs"]["contradicting"] is None
    assert found["chosen"] in ("group_dro", "dfr") and any(text.startswith("rs: ") for text in found["text"])
    wild = mend(case, recipe=Recipe("sgd", lr=1e38, epochs=5), labels=())
    assert wild["chosen"] is None and all("diverged" in row["note"] for row in wild["rows"][1:])
    assert "nothing to compare" in wild["text"][0]


def test_ctrl_c_passes_through():
    class Stop:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def __call__(self, where):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mend(toy_case(), progress=Stop())


def test_coloured_digits_are_mended_without_labels():
    data = load_data({"name": "colored_digits", "rho": 0.05})
    some = torch.arange(0, 3500, 2)
    train = replace(data.train, x=data.train.x[some], y=data.train.y[some], a=data.train.a[some])
    data = replace(data, train=train, recipe=replace(data.recipe, epochs=4))
    net = fit("erm", data, device="cpu", progress=False).classifier
    case = make_case(data, net, "trained for this audit", "test", CPU)
    found = mend(case, labels=(), budget=1000.0, seconds=470.0)  # time for the first one only
    before, pgd = found["rows"][0], found["rows"][1]
    assert found["chosen"] == "pgd" and pgd["contradicting"]["low"] > before["contradicting"]["high"]


def test_a_small_world_is_enough():
    data = tiny(n=64)
    net = fit("erm", data, device="cpu", progress=False).classifier
    case = make_case(data, net, "given", "val", CPU)
    found = mend(case, torch.zeros(len(case.held), dtype=torch.bool))
    assert found["rows"][0]["contradicting"] is None and "worst class" in found["rule"]
