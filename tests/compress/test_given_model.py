"""A model on data that it was not trained on: read as it was shown its own, and judged by what it has learnt."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from spurless import Bundle, Recipe, audit, fit
from spurless.auditing import attributes
from spurless.auditing.case import Case
from spurless.auditing.evidence import leaning, more_errors, more_errors_in_two
from spurless.compress.loading import data_for, is_its_own, trained
from spurless.core.data import Split
from spurless.core.errors import UserError
from spurless.registry import load_data
from tests.support.commands import class_folders, invoke, mistake

QUIET = {"progress": False, "device": "cpu"}
CPU = torch.device("cpu")


def train_on(folder, *options):
    invoke("train", "erm", folder, "--set", "data.size=8", "--set", "recipe.epochs=1", *options, "--out", "run")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def patients(name, agree, n=1500, seed=0, columns=("no", "yes")):
    """A table in which the hospital goes with the illness so often; the blood tells a little of it."""
    rng = np.random.default_rng(seed)
    ill = rng.random(n) < 0.5
    there = np.where(rng.random(n) < agree, ill, ~ill)
    lines = ["blood,hospital,ill"]
    for y, a in zip(ill, there, strict=True):
        lines.append(f"{0.8 * y + rng.standard_normal():.6f},{('north', 'south')[int(a)]},{columns[int(y)]}")
    Path(name).write_text("\n".join(lines))
    return f"csv:{name}"


AS_TYPED = ("--set", "data.attribute=hospital")


@pytest.fixture
def shortcut():
    """A run that goes by the hospital."""
    invoke("train", "erm", patients("a.csv", 0.97), *AS_TYPED, "--set", "data.label=ill", "--out", "run")
    return Path("run")


# Scores on other data


@pytest.mark.parametrize("agree", [0.97, 0.5, 0.03])
def test_aligned_means_what_the_model_has_learnt(shortcut, agree):
    data = patients("b.csv", agree, seed=1)
    found = json.loads(invoke("evaluate", shortcut, data, *AS_TYPED, "--json").stdout)["scores"]
    assert found["aligned"] > 90 and found["conflicting"] < 30


def test_a_run_without_the_attribute_says_whose_rows_decide_what_is_aligned():
    invoke("train", "erm", patients("a.csv", 0.97), "--set", "data.label=ill", "--out", "run")
    row = json.loads(invoke("evaluate", "run", patients("b.csv", 0.03, seed=1), *AS_TYPED, "--json").stdout)
    assert any("is by the training samples of csv:b.csv" in note for note in row["notes"])


def test_a_value_that_was_not_seen_goes_with_no_class(shortcut):
    text = Path(patients("b.csv", 0.97, seed=1)[4:]).read_text()
    Path("c.csv").write_text(text.replace("south", "east", 40))
    _, bundle, _ = trained(shortcut, data_for(shortcut, {"name": "csv:c.csv", "attribute": ("hospital",)}))
    table = dict(zip(bundle.values[0], bundle.aligned[0].T.tolist(), strict=True))
    assert table == {"east": [False, False], "north": [True, False], "south": [False, True]}


def test_the_label_and_the_way_of_reading_are_the_runs(shortcut):
    assert data_for(shortcut, {"name": patients("b.csv", 0.5, seed=1)}).classes == ("no", "yes")


def test_classes_are_matched_by_name(shortcut):
    saved = json.loads(invoke("evaluate", shortcut, patients("b.csv", 0.97, seed=1), *AS_TYPED, "--json").stdout)
    data = data_for(shortcut, {"name": "csv:b.csv", "attribute": ("hospital",)})
    swapped = replace(
        data,
        classes=("yes", "no"),
        aligned=tuple(table.flip(0) for table in data.aligned),
        **{name: replace(split, y=1 - split.y) for name, split in data.splits.items()},
    )
    classifier, seen, _ = trained(shortcut, swapped)
    assert seen.classes == ("no", "yes") and torch.equal(seen.train.y, data.train.y)
    assert torch.equal(seen.aligned[0], data.aligned[0])
    right = (classifier(seen.train.x).argmax(1) == seen.train.y).float().mean()
    assert 100 * right == pytest.approx(saved["scores"]["average"], abs=3)


def test_some_of_the_classes_are_enough():
    train_on(class_folders("a", ["cat", "cow", "dog"]))
    row = json.loads(invoke("evaluate", "run", class_folders("b", ["cow", "dog"]), "--json").stdout)
    assert row["notes"] is not None and row["scores"]["n"]["average"] == row["n"]
    _, bundle, _ = trained(Path("run"), data_for(Path("run"), {"name": "folder:b"}))
    assert bundle.classes == ("cat", "cow", "dog") and set(bundle.train.y.tolist()) == {1, 2}
    unknown = invoke("evaluate", "run", class_folders("c", ["cow", "pig"]), code=2)
    assert "there is nothing to compare" in unknown.stderr


def test_other_names_are_compared_by_their_place_and_that_is_in_the_result(shortcut):
    other = patients("b.csv", 0.97, seed=1, columns=("healthy", "sick"))
    done = invoke("evaluate", shortcut, other, "--json")
    assert "Classes are compared by their place" in done.stderr
    assert "Classes are compared by their place" in json.loads(done.stdout)["notes"][-1]


@pytest.mark.parametrize(
    ("settings", "found"), [({"resize": "squash", "zoom": 1.2}, {"resize": "squash", "zoom": 1.2}), ({}, {})]
)
def test_images_are_made_as_for_the_training(settings, found):
    pairs = [word for k, v in settings.items() for word in ("--set", f"data.{k}={v}")]
    train_on(class_folders("a", ["cat", "dog"]), *pairs)
    class_folders("b", ["cat", "dog"], n=20)
    bundle = data_for(Path("run"), {"name": "folder:b"})
    assert {k: bundle.settings[k] for k in found} == found and bundle.shape == (3, 8, 8)
    assert data_for(Path("run"), {"name": "folder:b", "resize": "crop"}).settings["resize"] == "crop"


def test_missing_values_are_those_of_the_run():
    marks = 'data.missing=["-999.0", ""]'
    text = Path(patients("a.csv", 0.97)[4:]).read_text().splitlines()
    text[3::7] = ["-999.0," + line.split(",", 1)[1] for line in text[3::7]]
    Path("a.csv").write_text("\n".join(text))
    invoke("train", "erm", "csv:a.csv", "--set", "data.label=ill", "--set", marks, "--out", "run")
    Path("b.csv").write_text(Path("a.csv").read_text().replace("north", "south", 3))
    there = data_for(Path("run"), {"name": "csv:b.csv"})
    assert there.settings["missing"] == ("-999.0", "") and float(there.train.x.abs().max()) < 10


def test_other_data_is_scored_whole(shortcut):
    data = patients("b.csv", 0.5, seed=1)
    row = json.loads(invoke("evaluate", shortcut, data, *AS_TYPED, "--json").stdout)
    assert (row["n"], row["split"]) == (1500, "all") and "1500, all samples" in invoke(
        "evaluate", shortcut, data
    ).stdout
    assert json.loads(invoke("evaluate", shortcut, data, "--split", "test", "--json").stdout)["n"] == 300
    drawn = invoke("evaluate", shortcut, data, "--set", "data.fractions=[0.5, 0, 0.5]", "--json")
    assert json.loads(drawn.stdout)["n"] == 750
    own = json.loads(invoke("evaluate", shortcut, "csv:a.csv", "--json").stdout)
    assert (own["n"], own["split"]) == (300, "test")
    assert any("split drawn with seed 0" in note for note in own["notes"])


def test_rows_that_the_model_has_learnt_are_not_scored_as_new(shortcut):
    """Its file alone, a copy under another name, and a run that held nothing out."""
    own = json.loads(invoke("evaluate", shortcut, "csv:a.csv", "--json").stdout)
    file = json.loads(invoke("evaluate", shortcut / "model.safetensors", "csv:a.csv", "--json").stdout)
    assert (file["n"], file["scores"]) == (own["n"], own["scores"]) and own["split"] == "test"
    Path("elsewhere").mkdir()
    Path("elsewhere/copy.csv").write_text(Path("a.csv").read_text())
    copy = json.loads(invoke("evaluate", shortcut, "csv:elsewhere/copy.csv", "--json").stdout)
    assert (copy["n"], copy["scores"]) == (own["n"], own["scores"])
    whole = ("--set", "data.label=ill", "--set", "data.fractions=[1, 0, 0]")
    invoke("train", "erm", "csv:a.csv", *whole, "--out", "whole")
    assert "test" in invoke("evaluate", "whole", "csv:a.csv", code=2).stderr


def test_an_attribute_that_is_named_later_leaves_the_rows_the_runs_own():
    text = Path(patients("a.csv", 0.97)[4:]).read_text().splitlines()
    parts = ("split", *(("train", "train", "val", "test")[i % 4] for i in range(len(text))))
    Path("a.csv").write_text("\n".join(f"{line},{part}" for line, part in zip(text, parts, strict=False)))
    invoke("train", "erm", "csv:a.csv", "--set", "data.label=ill", "--out", "run")
    bundle = data_for(Path("run"), {"name": "csv:a.csv", "attribute": ("hospital",)})
    assert bundle.attributes == ("hospital",) and is_its_own(Path("run"), bundle) is True
    assert is_its_own(Path("run"), data_for(Path("run"), {"name": patients("b.csv", 0.5, seed=1)})) is False


def test_bands_of_another_table_are_said_to_be_new():
    def aged(name, low):
        text = Path(patients(name, 0.9)[4:]).read_text().splitlines()
        rows = [f"{line},{low + i % 40}.5" for i, line in enumerate(text[1:])]
        Path(name).write_text("\n".join([text[0] + ",age", *rows]))

    aged("a.csv", 20)
    aged("b.csv", 300)
    options = ("--set", "data.attribute=age", "--set", "data.label=ill")
    invoke("train", "erm", "csv:a.csv", *options, "--out", "run")
    row = json.loads(invoke("evaluate", "run", "csv:b.csv", *options, "--json").stdout)
    assert any("of 'age' are new to the model" in note for note in row["notes"])
    assert row["scores"]["aligned"] is not None


def test_a_table_of_nothing_but_test_rows(shortcut):
    header, *lines = Path(patients("b.csv", 0.5, seed=1)[4:]).read_text().splitlines()
    Path("b.csv").write_text("\n".join([header + ",split", *(line + ",test" for line in lines)]))
    row = json.loads(invoke("evaluate", shortcut, "csv:b.csv", "--json").stdout)
    assert row["n"] == 1500 and any("all samples are scored together" in note for note in row["notes"])
    assert "gives no sample to train" in mistake("data", "describe", "csv:b.csv", "--set", "data.label=ill")


def test_a_folder_of_nothing_but_test_images_and_of_one_class():
    train_on(class_folders("a", ["cat", "dog"]))
    class_folders("only/test", ["cat", "dog"], n=20)
    row = json.loads(invoke("evaluate", "run", "folder:only", "--json").stdout)
    assert (row["n"], row["split"]) == (40, "all")
    class_folders("dogs", ["dog"], n=20)
    row = json.loads(invoke("evaluate", "run", "folder:dogs", "--json").stdout)
    assert row["n"] == 20 and row["data"] == "folder:dogs"
    seen = trained(Path("run"), data_for(Path("run"), {"name": "folder:dogs"}, only_to_score=True))[1]
    assert seen.classes == ("cat", "dog") and seen.train.y.tolist() == [1] * 20
    assert "no train folder" in mistake("data", "describe", "folder:only")
    assert "no more than one class" in mistake("data", "describe", "folder:dogs")


# The audit: does a model answer by an attribute that says nothing here?


def people(n, agree, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 2, (n,), generator=g)
    a = torch.where(torch.rand(n, generator=g) < agree, y, 1 - y)
    x = torch.randn(n, 4, generator=g)
    x[:, 0] += y
    x[:, 3] += 4 * a
    return x, y, a


@pytest.fixture(scope="module")
def module():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    x, y, _ = people(4000, 0.97, 0)
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for _ in range(200):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    return net


@pytest.mark.parametrize("agree", [0.5, 0.97, 0.03])
def test_a_shortcut_is_found_whatever_the_data_that_shows_it(module, agree):
    found = audit(Bundle.from_arrays(*people(4000, agree, 2), attributes=["site"]), model=module, **QUIET)
    assert found["verdict"] in ("found", "gap") and found["attributes"][0]["name"] == "site"
    (entry,) = found["attributes"]
    assert entry["contradicting"]["value"] < 20 < 90 < entry["following"]["value"]
    assert entry["by"] == ("rows" if agree == 0.97 else "answers")


def test_a_run_on_reversed_data_is_told_by_its_answers(shortcut):
    found = audit({"name": patients("b.csv", 0.03, seed=1), "attribute": ("hospital",)}, model=shortcut, **QUIET)
    assert found["verdict"] in ("found", "gap", "available")
    assert "if these are all new to it" in found["shift"][-1]["text"]
    wrong = [row for row in found["rows"] if row["label"] != row["prediction"]]
    assert wrong and all(row["says"] == row["prediction"] for row in wrong if row["says"])


def case_of(y, a, predicted, seed, own, classes=2):
    rows = torch.arange(2000)
    train = Split(
        torch.zeros(2000, 1), rows % classes, (rows // classes % 2)[:, None]
    )  # the attribute says nothing here
    held = Split(torch.zeros(len(y), 1), y, a[:, None])
    data = Bundle("people", train, test=held, attributes=("site",))
    logits = nn.functional.one_hot(predicted, classes).float()
    return Case(data, None, "given", held, "test", CPU, logits, logits, seed, own)


def answers(kind, seed, n=1000):
    """(n,) labels, attribute and answers: wrong by chance, more often at one value, or towards the value."""
    g = torch.Generator().manual_seed(seed)
    y, a = torch.randint(0, 2, (n,), generator=g), torch.randint(0, 2, (n,), generator=g)
    often = {"chance": torch.full((n,), 0.15), "harder": torch.where(a == 1, 0.3, 0.1)}
    often |= {"harder in one class": torch.where((a == 1) & (y == 0), 0.4, 0.1)}
    often |= {"shortcut": torch.where(a != y, 0.35, 0.1)}
    return y, a, torch.where(torch.rand(n, generator=g) < often[kind], 1 - y, y)


@pytest.mark.parametrize("classes", [3, 10])
def test_a_value_that_is_harder_where_most_errors_are_one_class_is_no_shortcut(classes):
    """Errors that fall on one class mark many classes at the hard value: two classes alone would not do."""
    told = []
    for seed in range(20):
        g = torch.Generator().manual_seed(seed)
        y, a = torch.randint(0, classes, (4000,), generator=g), torch.randint(0, 2, (4000,), generator=g)
        wrong = torch.rand(4000, generator=g) < torch.where(a == 1, 0.3, 0.1)
        other = (y + torch.randint(1, classes, (4000,), generator=g)) % classes
        other = torch.where((torch.rand(4000, generator=g) < 0.6) & (y > 0), 0, other)
        told.append(attributes.examine(case_of(y, a, torch.where(wrong, other, y), seed, None, classes))[0]["finding"])
    assert sum(finding in ("found", "suspected") for finding in told) <= 1


@pytest.mark.parametrize("own", [None, False])
@pytest.mark.parametrize(("kind", "most"), [("chance", 2), ("harder", 2), ("harder in one class", 4)])
def test_rows_that_are_simply_harder_are_no_shortcut(kind, most, own):
    told = [attributes.examine(case_of(*answers(kind, seed), seed, own))[0]["finding"] for seed in range(40)]
    assert sum(finding in ("found", "suspected") for finding in told) <= most  # 2.5 % of 40 is one
    if kind == "harder in one class":
        assert told.count("cannot tell") > 20  # a shortcut could look so


@pytest.mark.parametrize("own", [None, False])
def test_answers_that_go_with_the_attribute_are_found(own):
    told = [attributes.examine(case_of(*answers("shortcut", seed), seed, own))[0]["finding"] for seed in range(20)]
    assert told.count("found") >= 18


def test_of_its_own_data_only_the_rows_tell():
    (entry,) = attributes.examine(case_of(*answers("shortcut", 0), 0, True))
    assert entry["by"] == "rows" and entry["finding"] == "none"


def test_two_classes_are_needed():
    g = np.random.default_rng(0)
    y, marked = np.repeat([0, 1, 2], 200), g.random(600) < 0.5
    wrong = g.random(600) < np.where(marked & (y == 0), 0.6, 0.1)
    assert more_errors(wrong, marked, y) < 0.001 and more_errors_in_two(wrong, marked, y) > 0.05
    both = wrong | (g.random(600) < np.where(marked & (y == 1), 0.6, 0))
    by_hand = sorted(more_errors(both[y == c], marked[y == c], y[y == c]) for c in range(3))
    assert more_errors_in_two(both, marked, y) == pytest.approx(2 * by_hand[1]) and by_hand[1] < 1e-4


def test_leaning_by_a_loop():
    g = np.random.default_rng(1)
    said, at, y = (g.integers(0, k, 50) for k in (3, 2, 3))
    by_hand = np.zeros((3, 2))
    for label in range(3):
        for i in range(50):
            if y[i] == label:
                by_hand[said[i], at[i]] += 1
                for j in range(50):
                    if y[j] == label:
                        by_hand[said[j], at[i]] -= 1 / (y == label).sum()
    np.testing.assert_allclose(leaning(said, at, y, (3, 2)), by_hand, atol=1e-12)


# The audit: when finding nothing means nothing


def test_a_model_that_has_learnt_nothing_is_not_cleared():
    x, y, a = people(3000, 0.5, 0)
    torch.manual_seed(1)
    blind = nn.Linear(4, 2)
    blind.weight.data[:, [0, 3]] = 0  # it sees neither what tells the class nor the site
    found = audit(Bundle.from_arrays(x, y, a, attributes=["site"]), model=nn.Sequential(blind), **QUIET)
    assert found["verdict"] in (
        "cannot tell",
        "available",
    )  # never green; what the data gives away is said all the same
    if found["verdict"] == "cannot tell":
        assert found["advice"][0]["title"] == "Train the model until it is better than a guess"


def test_a_rare_class_that_is_always_missed_is_not_cleared():
    _, _, a = people(3000, 0.5, 0)
    y = torch.where(torch.arange(3000) % 100 == 0, 1, 0)
    found = audit(Bundle.from_arrays(torch.randn(3000, 4), y, a, attributes=["site"]), recipe={"epochs": 2}, **QUIET)
    assert found["model"]["average"]["value"] > 98 and found["verdict"] == "cannot tell"


def test_a_model_that_knows_a_rare_class_has_learnt_something():
    """It is right less often than one that never names the rare class."""
    g = torch.Generator().manual_seed(0)
    y = (torch.rand(4000, generator=g) < 0.05).long()
    x = torch.randn(4000, 4, generator=g)
    x[:, 0] = torch.where(torch.rand(4000, generator=g) < 0.92, 2.0 * y - 1, 1 - 2.0 * y)
    net = nn.Linear(4, 2)
    net.weight.data = torch.tensor([[-1.0, 0, 0, 0], [1.0, 0, 0, 0]])
    net.bias.data.zero_()
    a = torch.randint(0, 2, (4000,), generator=g)
    found = audit(Bundle.from_arrays(x, y, a, attributes=["site"]), model=nn.Sequential(net), **QUIET)
    assert found["model"]["average"]["value"] < 94
    # One input is as good as the model, which is nothing but that input: never green, and no accusation.
    assert found["verdict"] == "available" and found["shortcut"]["name"] != "site"


def test_answers_that_depend_on_nothing():
    _, y, a = people(1000, 0.5, 0)
    (entry,) = attributes.examine(case_of(y, a, y, 0, False))
    assert entry["finding"] == "none"


def test_images_on_which_the_model_was_not_trained_are_no_evidence():
    data = load_data({"name": "colored_digits", "rho": 0.5})
    fit("erm", data, net="conv3", recipe=Recipe("adam", 1e-3, epochs=3), out="run", **QUIET)
    other = replace(load_data({"name": "colored_digits", "rho": 0.5, "seed": 7}), attributes=(), values=(), aligned=())
    blind = {k: s.blinded() for k, s in other.splits.items()}
    found = audit(replace(other, **blind), model="run", **QUIET)
    assert found["verdict"] in ("cannot tell", "available")
    if found["verdict"] == "cannot tell":
        assert found["advice"][0]["title"] == "Audit it on the data that it was trained on"


def test_too_few_rows_to_hold_any_out():
    Path("two.csv").write_text("a,label\n1,x\n2,y\n")
    with pytest.raises(UserError, match="too few samples"):
        audit("csv:two.csv", **QUIET)


def test_mended_rows_are_audited_again():
    data = {"name": patients("a.csv", 0.97), "label": "ill", "attribute": ("hospital",)}
    first = audit(data, out="audit", recipe={"epochs": 20}, **QUIET)
    patients("a.csv", 0.5, seed=3)
    second = audit(data, out="audit", recipe={"epochs": 20}, **QUIET)
    assert first["verdict"] in ("found", "gap") and second["verdict"] == "no evidence"
    assert json.loads(Path("audit/audit.json").read_text())["verdict"] == "no evidence"
    assert Path("audit/model-before/result.json").exists()


def test_another_seed_is_another_audit():
    x, y, a = people(900, 0.97, 0)
    data = Bundle("people", Split(x, y, a[:, None]))  # rows are held out by the audit's own seed
    audit(data, out="audit", recipe={"epochs": 2}, **QUIET)
    with pytest.raises(UserError, match="seed"):
        audit(data, out="audit", seed=3, recipe={"epochs": 2}, **QUIET)
    assert Path("audit/model/result.json").exists()


def test_commands_advised_from_python_can_be_run():
    data = {"name": patients("a.csv", 0.97), "label": "ill", "attribute": ["hospital"]}
    commands = [advice["command"] for advice in audit(data, **QUIET)["advice"] if advice["command"]]
    assert commands and all("data.label=ill" in line and "data.attribute=" in line for line in commands)
    loaded = [advice["command"] for advice in audit(load_data(data), **QUIET)["advice"] if advice["command"]]
    assert loaded and all("csv:a.csv" in line and "data.label=ill" in line for line in loaded)
    arrays = audit(Bundle.from_arrays(*people(1500, 0.97, 0), attributes=["site"]), **QUIET)
    assert arrays["advice"] and all(advice["command"] is None for advice in arrays["advice"])
