"""Advice that can be followed as it is printed, and a repair that is picked and judged on different rows."""

import json
import shlex
from dataclasses import replace

import pytest
import torch
from typer.main import get_command
from typer.testing import CliRunner

from spurless.auditing import AuditReport, audit, situation, terminal
from spurless.auditing.advice import COST, TRY, Facts, about, advise, fitting, rows_for
from spurless.auditing.evidence import share
from spurless.auditing.exchanges import World
from spurless.auditing.fix import Judge, _text, choose, repair
from spurless.auditing.model import SIDE, Audited, plain_case
from spurless.auditing.repairs import Repair
from spurless.auditing.request import Request
from spurless.auditing.retry import repairs
from spurless.auditing.situation import seconds_of_training, train_options, trains_alike
from spurless.auditing.suspects import Suspect, group_weights
from spurless.bench.estimate import Guess
from spurless.cli.common import gather
from spurless.cli.main import app
from spurless.core.data import Bundle, Images, Split
from spurless.core.errors import UserError
from spurless.core.stats import wilson
from spurless.methods import METHODS
from spurless.registry import load_data, make_method
from spurless.train.first_look import quick_training
from tests.support.worlds import tiny

CPU = torch.device("cpu")
VERDICTS = ("found", "gap", "available", "no evidence", "cannot tell")
FOUND = Facts(
    "found",
    "toy",
    train_labels=False,
    val_labels=False,
    held_out=500,
    classes=2,
    n_conflicting=25,
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
    assert trained(facts) == ["dfr", "pgd", "lff"] and "more than the 2 min" in advise(facts)[1]["why"]  # 150 s
    facts = replace(FOUND, train_labels=True, seconds=100.0, budget=1.75)  # 105 s: one plain training, not 1.1
    assert trained(facts) == ["rs", "group_dro", "pgd"]
    assert "more than" not in advise(facts)[1]["why"]


def test_the_time_is_that_of_the_command_that_is_printed():
    data = load_data({"name": "toy", "n": 400})
    run = Audited(data, None, "r", "plain", "all", data.net, data.recipe, 0.0)
    asked = Request("toy", device="cpu", source="toy")
    short, long = (
        seconds_of_training(run, replace(asked, recipe={"epochs": epochs}), CPU, first_look=False)
        for epochs in (10, 10_000)
    )
    assert 0 < short < long / 10  # no audit trained for so long
    assert "takes about 2 min on this machine" in advise(replace(FOUND, seconds=60.0))[1]["why"]
    assert seconds_of_training(replace(run, spec="resnet18"), asked, CPU, first_look=False) is None  # takes no table


def test_a_folder_of_photographs_is_timed_as_the_first_look_that_train_takes(monkeypatch):
    looked = []

    def look(method, data, net, recipe, *rest):
        looked.append((net["name"], recipe["epochs"]))
        return Guess(7.0, "timed"), True

    monkeypatch.setattr(situation, "look", look)
    data = replace(tiny(), settings={"size": SIDE, "source": "folder:photos"})
    run, asked = Audited(data, None, "r", "plain", "all", data.net, data.recipe, 0.0), Request(data, source="photos")
    words = train_options(run, ())
    assert words == ("--set", f"data.size={SIDE}") and trains_alike(run, asked, words, CPU)
    assert seconds_of_training(run, asked, CPU, first_look=True) == 7.0
    assert looked == [(quick["name"], how["epochs"]) for quick, how in [quick_training(len(data.train))]]
    for other in (replace(asked, settings=("data.seed=1",)), replace(asked, recipe={"epochs": 2})):
        assert not trains_alike(run, other, words, CPU)


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
    assert not any("Collect" in t for t in titles(replace(FOUND, n_conflicting=370)))
    none = replace(FOUND, n_conflicting=0, conflicting=None)
    assert titles(none)[0].startswith("Collect about 390")  # no method can learn from rows that are not there


def test_labels_that_look_wrong_come_before_methods_that_would_dwell_on_them():
    assert not any("labels" in t for t in titles(replace(FOUND, wrong_labels=0.01)))
    few, many = replace(FOUND, wrong_labels=0.03), replace(FOUND, wrong_labels=0.06)  # 5 % contradict
    assert titles(few)[-1] == "Check the labels" and "Check the labels" in titles(many)[:-1]
    assert any("30 of the 500 samples (6 %)" in item["why"] for item in advise(many))
    assert titles(replace(many, verdict="no evidence"))[0] == "Check the labels"


def test_without_a_finding_it_says_how_many_rows_or_what_was_not_covered():
    unsure = replace(FOUND, verdict="cannot tell", n_conflicting=None, conflicting=None)
    assert titles(unsure)[0] == "Hold out about 1,000 samples, then audit again"  # twice as many as there are
    assert titles(replace(unsure, held_out=30))[0] == "Hold out about 190 samples, then audit again"  # 93 a class
    assert "about 1,300" in titles(replace(unsure, needed=1234))[0]
    assert "about 1,900" in titles(replace(unsure, n_conflicting=25))[0]  # 5 % of 1,860 are 93
    never = replace(unsure, n_conflicting=0, source="csv:t.csv", train_labels=True, is_input=True)
    assert [t.split()[0] for t in titles(never)] == ["Collect", "Take"]  # more of the same rows would not help
    away = replace(FOUND, root=("--data-root", "my data"))
    assert all(words[-2:] == ["--data-root", "my data"] for words in commands(away))
    clean = replace(FOUND, verdict="no evidence", source="folder:photos")
    assert titles(clean)[0] == "Write down what you suspect" and "not covered" in titles(clean)[-1]
    assert commands(clean)[-1][2:4] == ["--fail-on", "gap"]
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
    assert train_options(run, ()) == ("--net", "conv3", "--set", "data.size=64")
    assert train_options(run, ("data.size=64",)) == ("--net", "conv3")
    own = replace(run, spec={"name": "Mine", "own": True}, data=bundle)  # has no name on a command line
    assert train_options(own, ()) == () == train_options(replace(own, spec=bundle.net), ())
    weights = replace(own, spec={"name": "resnet18", "weights": "Start/W.pt", "pretrained": False})
    assert {"resnet18", "net.weights=Start/W.pt", "net.pretrained=false"} <= set(train_options(weights, ()))


def test_a_long_command_is_printed_on_one_line(tmp_path, monkeypatch, capsys):
    place = "my photos/" + "of birds/" * 12
    facts = replace(FOUND, source=f"folder:{place}", model=("--model", "runs/a b"))
    words = "It reads the ground. " * 6
    found = AuditReport("found", words, "0", "", None, {}, None, {}, {}, advice=advise(facts))
    monkeypatch.setenv("COLUMNS", "80")
    terminal.show(found)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    shown = [line.removeprefix("    $ ") for line in lines if line.startswith("    $ ")]
    assert shown == [item["command"] for item in found["advice"][: terminal.ADVICE]]
    assert all(f"folder:{place}" in shlex.split(line) for line in shown)
    assert all(len(line) <= 80 for line in lines if "$" not in line)  # the rest is folded as before


def test_what_is_only_available_asks_whether_it_may_decide():
    found = titles(replace(FOUND, verdict="available"))
    assert found[:2] == ["Let the audit repair it", "Say whether it may decide"]
    for verdict in ("found", "gap", "available"):
        assert not any("keep the model" in title.lower() for title in titles(replace(FOUND, verdict=verdict)))


def test_a_command_for_a_table_runs_as_it_is_printed(tmp_path):
    file = tmp_path / "my table.csv"
    rows = [f"{i % 7},{'xy'[i % 2]},{'ab'[i % 2]}" for i in range(80)]
    file.write_text("size,ward,ill\n" + "\n".join(rows) + "\n")
    settings = ("data.label=ill", "data.attribute=ward")
    facts = replace(FOUND, source=f"csv:{file}", train_labels=True, settings=settings, is_input=True)
    assert not any("out of the inputs" in t for t in titles(replace(facts, is_input=False)))  # of texts it never was
    first = advise(facts)[1]
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


def fixer_case(rho=0.05, n=600):
    """The plain model on the toy data, whose attribute is known, and that attribute as the leading finding."""
    data = load_data({"name": "toy", "rho": rho, "n": n})
    return plain_case(data, 0, CPU)[0]


def leading_of(case, follows):
    says = torch.where(follows, case.held.y, 1 - case.held.y)
    alone = share(follows.numpy())
    return Suspect("spurious", "'spurious'", "attribute", alone, 50.0, 0.9, None, says, follows,
                   torch.arange(len(follows)), harm={}, verdict="gap", extra={"best": None})  # fmt: skip


def test_a_balanced_head_mends_the_toy_out_of_fold_and_says_what_it_costs(tmp_path):
    case = fixer_case()
    follows = case.data.aligned[0][case.held.y, case.held.a[:, 0]]
    found = repair(case, [leading_of(case, follows)], tmp_path).to_dict()
    rows = {row["method"]: row for row in found["rows"]}
    assert found["finding"] == "spurious" and [judge["name"] for judge in found["judges"]] == ["spurious"]
    lost = found["rows"][0]["aligned"]["value"] - found["rows"][0]["conflicting"]["value"]
    assert found["judges"][0]["lost"] == pytest.approx(lost) and found["judges"][0]["exchanged"] == 0
    assert set(rows) == {"before", "balanced head", "dfr", "afr"}
    assert rows["before"]["conflicting"]["n"] == int((~follows).sum()) == rows["dfr"]["conflicting"]["n"]
    if found["chosen"]:
        assert rows[found["chosen"]]["conflicting"]["value"] > rows["before"]["conflicting"]["value"]
    lines = (tmp_path / found["groups"]).read_text().splitlines()
    assert lines[0] == "filename,label,points_to,conflicting" and len(lines) == len(case.held) + 1
    assert sum(line.endswith(",1") for line in lines) == int((~follows).sum())


def test_nothing_is_repaired_where_nothing_was_found():
    found = repair(fixer_case(n=200), [], None)
    assert found.chosen is None and found.to_dict()["rows"] == []
    with pytest.raises(UserError):
        found.answers(torch.zeros(1, 4))


def test_where_no_repair_is_better_none_is_chosen_and_nobody_is_told_to_keep_the_model():
    case = fixer_case(rho=0.5)
    chance = torch.rand(len(case.held), generator=torch.Generator().manual_seed(0)) < 0.9
    found = repair(case, [leading_of(case, chance)], None)
    assert found.chosen is None and "keep the model" not in " ".join(found.text).lower()
    assert "More samples in which" in found.text[0]


def stamped(n, agree, seed):
    """Noisy images whose upper left corner is white where the label is 1, in a share; a faint bar is the class."""
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    x = torch.randint(0, 120, (n, 1, 16, 16), generator=g)
    x[:, 0, 8:14, 4] += 40 * y[:, None]
    marked = torch.where(torch.rand(n, generator=g) < agree, y, 1 - y)
    x[marked == 1, 0, :3, :3] = 250
    return x.to(torch.uint8), y, marked


def test_a_mark_that_is_painted_over_no_longer_decides_on_fresh_samples():
    x, y, _ = stamped(600, 0.95, 0)
    data = Bundle("stamped", Split(x, y), inputs=Images((0.3,), (0.25,)))
    report = audit(data, progress=False, device="cpu")
    assert report.findings and "upper left" in report.shortcut["name"]
    fixed = repairs(data, report, device="cpu")
    rows = {row["method"]: row for row in fixed.rows()}
    assert fixed.chosen is not None
    assert {"before", "balanced head", "dfr", "afr", "mixed", "without the cue"} <= set(rows)
    fresh, label, marked = stamped(600, 0.5, 1)
    against = marked != label
    right = {
        row["method"]: repair.answers(fixed.case, fresh) == label
        for row, repair in zip(fixed.rows(), fixed.tried, strict=True)
    }
    assert right["before"][against].float().mean() < 0.5
    assert (fixed.answers(fresh) == label)[against].float().mean() >= right["before"][against].float().mean() + 0.2
    # Painted over, the mark says nothing: both kinds of samples are answered equally well, but for chance.
    clean = right["without the cue"]
    assert abs(float(clean[against].float().mean() - clean[~against].float().mean())) < 0.12
    assert fixed.to_dict()["rows"][0]["method"] == "before"
    with pytest.raises(UserError):
        repairs(data, report, name="no such finding", device="cpu")


def test_a_mark_is_found_in_samples_that_lie_class_by_class():
    x, y, _ = stamped(1600, 0.95, 0)
    order = y.argsort(stable=True)  # as in a folder
    report = audit(
        Bundle("stamped", Split(x[order], y[order]), inputs=Images((0.3,), (0.25,))), progress=False, device="cpu"
    )
    assert "upper left" in report.shortcut["name"]


def judge_of(follows):
    """One finding, whose cue was exchanged in every sample."""
    everything = torch.arange(len(follows))
    mark = Suspect("mark", "the mark", "mark", {"value": 90.0}, 50.0, 0.9, None, follows.long(), follows, everything)
    return Judge([World(mark, of=everything)], [1.0], 1)


def test_a_repair_of_the_input_goes_before_one_of_the_last_layer_that_scores_no_better():
    follows = torch.arange(1000) >= 100
    shares = lambda low, high: torch.where(follows, torch.arange(1000) % 100 < high, torch.arange(1000) % 100 < low)  # noqa: E731
    judge, none = judge_of(follows), (None,)
    before, head = Repair("before", "", shares(20, 95), none), Repair("dfr", "", shares(80, 85), none)
    input_ = Repair("without the cue", "", shares(80, 81), none, edit=lambda x: x)
    assert choose([before, head, input_], judge) is input_
    worse = replace(input_, right=shares(60, 80))
    assert choose([before, head, worse], judge) is head
    assert choose([before], judge) is None


def test_samples_with_the_cue_of_another_class_speak_where_few_conflict():
    follows = torch.arange(600) >= 6
    first = lambda share: torch.arange(600) < round(600 * share)  # noqa: E731
    made = lambda method, share, other: Repair(method, "", first(share), ((first(other), first(share)),))  # noqa: E731
    judge = judge_of(follows)
    world = judge.worlds[0]
    before = Repair("before", "", first(0.95) & follows, ((first(0.3), first(0.95)),))
    better, costly = made("mixed", 0.85, 0.7), made("dfr", 0.5, 0.72)
    assert choose([before, better, costly], judge) is better
    assert better.where_misled(world, 0).shape == (606,)
    assert better.two(world, 0) == pytest.approx([504 / 594, 426 / 606])
    assert better.score(world, 0) == pytest.approx(0.25 * 504 / 594 + 0.75 * 426 / 606)
    assert better.lost(world, 0) == pytest.approx(0.15)
    assert choose([before, made("mixed", 0.85, 0.36)], judge) is None  # hardly brings anything
    assert choose([before, replace(better, right=first(0.4) | ~follows)], judge) is None  # costs more than that
    lost = replace(better, right=better.right & follows)
    assert choose([replace(before, right=first(0.95)), lost], judge) is None  # real ones speak against it
    many = replace(judge, asked=10**90)  # of so many findings one is better by luck
    assert choose([before, better, costly], many) is None
    assert "No repair" in _text(judge, before, None, world.finding)[0]


def test_what_the_placebo_costs_is_half_the_exchanges_own():
    """Of 600 samples that are all right, 420 stay so with another sample's cue of the same class, 300 of another's."""
    judge = judge_of(torch.ones(600, dtype=torch.bool))
    right = lambda n: torch.arange(600) < n  # noqa: E731
    spoilt = Repair("before", "", right(600), ((right(300), right(420)),))
    assert spoilt.lost(judge.worlds[0], 0) == pytest.approx(0.2)
    assert spoilt.two(judge.worlds[0], 0) == pytest.approx([1.0, 0.5 + 0.5 * 0.3])


def test_weights_give_each_group_of_a_class_the_same():
    y, follows = torch.tensor([0] * 8 + [1] * 2), torch.tensor([True] * 6 + [False] * 2 + [True, False])
    weights = group_weights(y, follows)
    assert weights[:6].sum() == weights[6:8].sum() and float(weights[8]) == float(weights[9])


def test_an_audit_that_repaired_does_not_advise_to_repair():
    x, y, _ = stamped(600, 0.95, 0)
    data = Bundle("stamped", Split(x, y), inputs=Images((0.3,), (0.25,)))
    asked, repaired = (audit(data, progress=False, device="cpu", fix=fix) for fix in (False, True))
    titles = [[each["title"] for each in report.advice] for report in (asked, repaired)]
    assert TRY in titles[0] and TRY not in titles[1]
    assert repaired.fix["chosen"] and repaired.advice[0]["why"] == repaired.fix["text"][0]
