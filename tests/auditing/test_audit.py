"""Is there a shortcut? The tests behind the verdict, one by one, and the whole audit on data whose answer is known."""

import io
import json
import re
import sys
from dataclasses import fields, replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy.stats import fisher_exact
from torch import nn
from typer.testing import CliRunner

from spurless.auditing import AuditReport, attributes, audit, marks, shift, suspects
from spurless.auditing.case import make_case
from spurless.auditing.cues import geometry, object_mask, properties, read_noise, swap_colour, swap_position, swap_size
from spurless.auditing.evidence import holm, more_errors, rows_needed
from spurless.auditing.gather import gather
from spurless.auditing.judge import judge, overall
from spurless.auditing.learner import Guess
from spurless.auditing.model import begun_with, open_data, with_held_out, within
from spurless.auditing.pool import pool_of
from spurless.auditing.terminal import screen
from spurless.cli.main import app
from spurless.core.data import Bundle, Split
from spurless.core.errors import UserError
from spurless.core.recipe import Recipe
from spurless.nets import Net
from spurless.registry import load_data
from spurless.train.fit import fit
from tests.support.audits import undocumented

CPU = torch.device("cpu")
QUIET = {"device": "cpu", "progress": False}


# The statistics


def test_one_class_is_fishers_exact_test():
    rng = np.random.default_rng(0)
    for _ in range(30):
        wrong, marked = rng.random(40) < 0.3, rng.random(40) < 0.4
        table = [[np.sum(wrong & marked), np.sum(~wrong & marked)], [np.sum(wrong & ~marked), np.sum(~wrong & ~marked)]]
        assert more_errors(wrong, marked, np.zeros(40, int)) == pytest.approx(
            fisher_exact(table, alternative="greater").pvalue
        )


def test_several_classes_by_trying_every_permutation_within_them():
    wrong, marked = np.array([1, 0, 0, 1, 1, 0, 0], bool), np.array([1, 1, 0, 0, 1, 0, 1], bool)
    y = np.array([0, 0, 0, 0, 1, 1, 1])
    seen, at_least, total = int((wrong & marked).sum()), 0, 0
    for first in permutations(range(4)):
        for second in permutations(range(4, 7)):
            moved = wrong[[*first, *second]]
            at_least += int((moved & marked).sum()) >= seen
            total += 1
    assert more_errors(wrong, marked, y) == pytest.approx(at_least / total)


def test_a_class_that_is_hard_is_not_a_shortcut():
    """Class 1 is hard and mostly marked: pooled over classes the marked rows look bad, given the class they do not."""
    rng = np.random.default_rng(1)
    y = np.repeat([0, 1], 1000)
    marked = rng.random(2000) < np.where(y == 1, 0.9, 0.1)
    wrong = rng.random(2000) < np.where(y == 1, 0.5, 0.02)
    assert more_errors(wrong, marked, np.zeros(2000, int)) < 1e-9
    assert more_errors(wrong, marked, y) > 0.05


def test_false_alarms_stay_below_the_level():
    rng = np.random.default_rng(2)
    y = rng.integers(0, 3, 300)
    alarms = sum(more_errors(rng.random(300) < 0.2, rng.random(300) < 0.3, y) < 0.05 for _ in range(400))
    assert alarms <= 32  # 5 % of 400 are 20; an exact test has fewer; 32 would be chance once in 200


def test_holm_never_lets_a_later_p_value_overtake():
    assert holm([0.01, 0.011, 0.5]) == pytest.approx([0.03, 0.03, 0.5])
    assert holm([]) == []


def test_the_rows_that_are_needed_are_enough():
    """Four times in five, so many rows show a gap of ten points."""
    from scipy.stats import binom

    n, rng = rows_needed(0.1), np.random.default_rng(3)
    critical = binom.isf(0.025, n, 0.1) + 1
    assert np.mean(rng.binomial(n, 0.2, 4000) >= critical) == pytest.approx(0.8, abs=0.06)


def test_the_learner_leaves_each_row_out():
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(24, 3, generator=g), torch.randint(0, 3, (24,), generator=g)
    guess = Guess(x, y, 3)
    design, weights = guess._design(x), None
    target = torch.nn.functional.one_hot(y, 3).double() - guess.offset
    # The strength that was chosen is the one whose fit on all rows has these weights.
    for strength in (10.0**k for k in range(-3, 3)):
        weights = torch.linalg.solve(design.T @ design + strength * torch.eye(design.shape[1]), design.T @ target)
        if torch.allclose(weights, guess.weights, atol=1e-6):
            break
    else:
        raise AssertionError("no strength gives these weights")
    for i in range(24):
        kept = torch.arange(24) != i
        own = design[kept]
        alone = torch.linalg.solve(own.T @ own + strength * torch.eye(own.shape[1]), own.T @ target[kept])
        assert torch.allclose(guess.left_out[i].double(), design[i] @ alone + guess.offset, atol=1e-5)


# The cues


def scenes(n, seed=0, side=24, colour_follows=1.0, seed_shape=None):
    """Bars, lying or upright, red or blue, somewhere: label = direction, colour = bias."""
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    a = torch.where(torch.rand(n, generator=g) < colour_follows, y, 1 - y)
    x = torch.zeros(n, 3, side, side)
    for i in range(n):
        top, left = (int(v) for v in torch.randint(4, side - 12, (2,), generator=g))
        h, w = (3, 8) if y[i] == 0 else (8, 3)
        x[i, 2 * int(a[i]), top : top + h, left : left + w] = 0.9
    x = (x + 0.02 * torch.rand(x.shape, generator=g)).clamp(0, 1)
    return (x * 255).to(torch.uint8), y, a[:, None]


def floats_of(n, seed=0):
    return scenes(n, seed)[0].float() / 255


def test_an_image_keeps_what_it_gives_to_itself():
    x = floats_of(6)
    for p in properties(3):
        assert torch.allclose(p.swap(x, x), x, atol=0.06), p.name


def test_a_swapped_colour_is_the_donors_on_the_object_of_the_image():
    x = floats_of(4)
    out = swap_colour(x[:1], x[1:2])  # red, blue
    mask = object_mask(x[:1]) > 0
    red, blue = out[0, 0][mask[0, 0]].mean(), out[0, 2][mask[0, 0]].mean()
    assert blue > 3 * red
    assert torch.equal(object_mask(x[:1]) > 0, mask)  # the shape is its own


def test_a_swapped_position_and_size_are_the_donors():
    x = floats_of(2, seed=3)
    moved = swap_position(x[:1], x[1:])
    assert torch.allclose(torch.stack(geometry(moved)[:2]), torch.stack(geometry(x[1:])[:2]), atol=0.05)
    large = torch.zeros(1, 3, 24, 24)
    large[:, 0, 4:20, 4:20] = 0.9
    grown = swap_size(x[:1], large)
    assert geometry(grown)[2] > 1.5 * geometry(x[:1])[2]


def test_noise_and_its_exchange_are_about_noise():
    g = torch.Generator().manual_seed(0)
    smooth = torch.linspace(0.2, 0.8, 32).expand(8, 1, 32, 32).clone()
    noisy = (smooth + 0.1 * torch.randn(smooth.shape, generator=g)).clamp(0, 1)
    assert bool((read_noise(noisy)[:, 0] > read_noise(smooth)[:, 0] + 1).all())
    added, removed = (p.swap for p in properties(1) if p.name == "noise"), None
    swap = next(added)
    assert torch.allclose(read_noise(swap(smooth, noisy))[:, 1], read_noise(noisy)[:, 1], atol=0.35)
    removed = swap(noisy, smooth)
    assert bool((read_noise(removed)[:, 1] < read_noise(noisy)[:, 1] - 0.5).all())


def test_a_mark_is_found_where_it_is_and_told_from_what_else_is_there():
    g = torch.Generator().manual_seed(0)
    x = 0.3 * torch.rand(300, 1, 28, 28, generator=g)
    y = torch.arange(300) % 2
    x[y == 1, :, 23:27, 1:5] = 0.95
    window = marks.search(x, y, 2, 0)[0]
    top, left, side, put = window
    assert put is not None and marks.where(top, left, side, 28, 28) == "a mark in the lower left corner"
    large = torch.nn.functional.interpolate(x, scale_factor=2.0)
    for far in (window.read(x), window.read(large, scale=2.0)):
        assert far[y == 1].max() < far[y == 0].min() - 2  # logarithms
    swapped = marks.swap_window(top, left, side)(x[:1], x[1:2])
    assert torch.equal(swapped[..., :16, :], x[:1, :, :16]) and float(swapped[..., 24, 2].max()) > 0.9


# Models whose way of deciding is known


class Reads(nn.Module):
    """Decides by the colour of the bar, or by its direction, and by nothing else."""

    def __init__(self, what):
        super().__init__()
        self.what = what
        self.head = nn.Linear(1, 2)
        with torch.no_grad():
            self.head.weight.copy_(torch.tensor([[-20.0], [20.0]]))
            self.head.bias.zero_()

    def forward(self, x):
        if self.what == "colour":
            told = x[:, 2].mean((1, 2)) - x[:, 0].mean((1, 2))
        else:
            bright = x.amax(1) > 0.4  # (n, h, w)
            told = bright.any(2).sum(1).float() - bright.any(1).sum(1).float()  # height less width
        return self.head(told[:, None])


def case_of(what, share=0.95, n=600, seed=0):
    splits = {}
    for name, rows in (("train", n), ("val", n)):
        x, y, a = scenes(rows, seed + (name == "val"), colour_follows=share)
        splits[name] = Split(x, y, a)
    data = Bundle("bars", **splits, attributes=("colour",), values=(("red", "blue"),), aligned=(torch.eye(2) > 0,))
    net = Net.wrap(Reads(what), example=data.train.x[:2].float() / 255)
    return make_case(data, net, "given", "val", CPU)


def colour_of(case):
    """What the audit of a case measures about the colour of the image."""
    pool = pool_of(case)
    cue = next(c for c in gather(case, pool) if c.name == "colour")
    found = suspects.available(case, pool, cue)
    suspects.use(case, pool, cue, found)
    suspects.harm(case, found)
    suspects.balance(case, found)
    judge(case, [found])
    return found


def test_a_model_that_reads_the_colour_is_found_out_with_and_without_the_attribute():
    case = case_of("colour")
    found = colour_of(case)
    assert found.verdict == "found" and found.strength > 0.8
    assert found.used["other_class"]["value"] > 95 and found.used["same_class"]["value"] < 5
    assert found.used["sham"]["value"] == 0
    assert found.harm["conflicting"]["value"] < 5 < 95 < found.harm["aligned"]["value"]
    assert (found.follows == (case.held.a[:, 0] == case.held.y)).float().mean() > 0.98
    assert [e["finding"] for e in attributes.examine(case)] == ["found"]


def test_a_model_that_reads_the_direction_is_not_accused_on_the_same_biased_data():
    case = case_of("direction")
    assert float(case.right.float().mean()) == 1.0
    found = colour_of(case)
    assert found.verdict == "available"  # the data lets a model cheat; this one does not
    assert found.used["effect"]["value"] == 0
    assert {e["finding"] for e in attributes.examine(case)} <= {"none", "cannot tell"}


def test_a_cue_that_says_nothing_is_no_shortcut_even_if_the_model_relies_on_it():
    """Half of the bars have either colour: a model that reads it is a bad model, not one with a shortcut."""
    case = case_of("colour", share=0.5)
    assert colour_of(case).verdict == "no evidence"
    assert attributes.examine(case)[0]["finding"] == "none"


def test_a_column_that_the_model_never_sees_is_not_accused():
    """The label is a sum of two inputs, the column a noisy sign of one: errors are more frequent where it is odd."""
    rng = np.random.default_rng(0)
    one, two = rng.standard_normal((2, 1500))
    y = torch.from_numpy((one + two + 0.5 * rng.standard_normal(1500) > 0).astype(np.int64))
    a = torch.from_numpy(np.where(rng.random(1500) < 0.1, one < 0, one > 0).astype(np.int64))
    x = torch.from_numpy(np.stack([one, two], 1)).float()
    found = audit(Bundle("sums", Split(x, y, a[:, None]), attributes=("clinic",)), **QUIET)
    entry = next(e for e in found.attributes if e["name"] == "clinic")
    assert entry["finding"] == "found"  # the errors do depend on it
    assert found.verdict == "no evidence"


def test_a_column_that_gives_the_label_away_is_found_and_named(tmp_path):
    table = students(tmp_path / "t.csv", 1500, 0.95)
    found = audit(table, **QUIET)
    assert found.verdict in ("found", "available") and found.shortcut["name"] == "branch"
    named = audit(table | {"attribute": ("branch",)}, **QUIET)
    assert named.verdict in ("found", "gap", "available") and named.findings[0]["name"] == "branch"


def test_errors_on_the_usual_rows_are_not_a_shortcut():
    """The model is wrong where the attribute agrees with the label: whatever that is, it is no shortcut."""
    case = case_of("colour", share=0.95)
    turned = replace(case, logits=-case.logits)
    assert attributes.examine(turned)[0]["finding"] != "found"
    assert attributes.examine(turned)[0]["p"] > 0.5


def test_pairs_of_attributes_are_looked_at():
    """The label is the exclusive or of two attributes, each of which says nothing alone."""
    g = torch.Generator().manual_seed(0)
    a = torch.randint(0, 2, (4000, 2), generator=g)
    y = torch.where(torch.rand(4000, generator=g) < 0.95, a[:, 0] ^ a[:, 1], torch.randint(0, 2, (4000,), generator=g))
    x = torch.nn.functional.one_hot(a[:, 0] ^ a[:, 1], 2).float()
    rows = torch.arange(4000)
    train, val = (Split(x[r], y[r], a[r]) for r in (rows[:2000], rows[2000:]))
    data = Bundle("xor", train, val, attributes=("one", "two"))
    net = Net(nn.Identity(), nn.Linear(2, 2))
    with torch.no_grad():
        net.head.weight.copy_(9 * torch.eye(2))
        net.head.bias.zero_()
    found = {e["name"]: e["finding"] for e in attributes.examine(make_case(data, net, "given", "val", CPU))}
    assert found["one & two"] == "found" and found["one"] == found["two"] == "none"


# The whole audit


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit")
    return audit("colored_digits", out=folder, **QUIET), folder


def test_the_audit_of_coloured_digits_names_the_colour(digits):
    found, folder = digits
    assert found["verdict"] == "found" and "colo" in found["headline"]
    assert found["cost"]["conflicting"]["value"] < 60 < found["cost"]["alone"]["value"]
    assert found["rows"][0]["prediction"] != found["rows"][0]["label"]
    assert all((folder / row["picture"]).stat().st_size for row in found["rows"] if row["picture"])
    assert found["advice"][0]["command"].startswith("spurless audit --fix ")
    page = (folder / "report.html").read_text()
    assert "shortcut found" in page.lower() and len(page) < 5_000_000


def test_audit_json_is_the_report_and_comes_back(digits):
    found, folder = digits
    text = (folder / "audit.json").read_text()
    assert next(iter(json.loads(text))) == "verdict"
    again = AuditReport.from_json(text)
    assert again == AuditReport.from_json(found.to_json()) and again.to_json() == text
    assert found["verdict"] == found.verdict
    with pytest.raises(KeyError):
        found["no such key"]
    with pytest.raises(UserError, match="schema 1"):
        AuditReport.from_json(json.dumps({"schema": 1, "verdict": "found"}))


def test_every_key_of_audit_json_is_documented(digits):
    page = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()
    table = page.partition("## audit.json")[2].partition("\n## ")[0]
    told = re.findall(r"^\| `(\w+)` \|", table, re.M)
    assert told == [f.name for f in fields(AuditReport)]
    saved = json.loads((digits[1] / "audit.json").read_text())
    assert undocumented(saved) == []
    assert undocumented({"data": {"no such key": 1}}) == ["data.no such key"]


def test_without_attributes_the_colour_is_found_all_the_same():
    data = load_data("colored_digits")
    bare = {name: split.blinded() for name, split in data.splits.items()}
    found = audit(replace(data, **bare, attributes=(), values=(), aligned=()), **QUIET)
    assert found.attributes == [] and found.verdict in ("found", "available")
    assert any(f["name"] == "colour" for f in found.findings)


def test_a_quick_audit_has_no_model_and_names_what_gives_the_label_away():
    x, y, _ = scenes(400)
    found = audit(Bundle("bars", Split(x, y)), quick=True, **QUIET)
    assert found.model is None and found.verdict == "available"
    assert "colour" in [f["name"] for f in found.findings] and all(f["used"] is None for f in found.findings)


def test_a_quick_audit_does_not_clear_what_it_did_not_look_at():
    g = torch.Generator().manual_seed(0)
    y = torch.arange(300) % 2
    for side, verdict in ((64, "cannot tell"), (32, "no evidence")):
        x = torch.randint(0, 256, (300, 3, side, side), generator=g, dtype=torch.uint8)
        found = audit(Bundle("noise", Split(x, y)), quick=True, source="folder:noise", **QUIET)
        assert found.verdict == verdict and found.power is None  # which was measured of the whole audit
        assert "No model was asked" in found.headline and ("background" in found.headline) == (side == 64)
        assert [a["command"] for a in found.advice] == ["spurless audit folder:noise"]
        known = Bundle("noise", Split(x, y, (y * 0)[:, None]), attributes=("place",), values=(("a", "b"),))
        assert audit(known, quick=True, **QUIET).verdict == "no evidence"


def test_a_model_that_is_right_where_the_mark_misleads_is_not_repaired():
    g = torch.Generator().manual_seed(0)
    y = torch.arange(800) % 2
    put = torch.where(torch.rand(800, generator=g) < 0.95, y, 1 - y)
    stripes = (torch.arange(24) % 4 < 2).float() * 0.12
    shape = torch.where(y[:, None, None, None] == 1, stripes[None, None, :, None], stripes[None, None, None, :])
    x = ((0.5 * torch.rand(800, 1, 24, 24, generator=g) + shape) * 255).to(torch.uint8)
    x[put == 1, :, 20:23, 20:23] = 250
    found = audit(Bundle("marked", Split(x, y), net="conv3"), fix=True, **QUIET)
    assert found.verdict in ("found", "available") and found.shortcut["name"].startswith("a mark in the lower right")
    (row,) = found.fix["rows"]
    assert row["method"] == "before" and row["conflicting"]["value"] >= 97 and found.fix["chosen"] is None
    assert "keep the model" not in " ".join(found.fix["text"]).lower()


def test_a_users_module_is_audited_and_not_changed():
    case = case_of("colour")
    module = Reads("colour")
    before = {k: v.clone() for k, v in module.state_dict().items()}
    found = audit(case.data, module, **QUIET)
    assert found["model"] == {"name": "Reads", "source": "given", "average": found["model"]["average"]}
    assert found["verdict"] == "found"
    assert all(torch.equal(before[k], v) for k, v in module.state_dict().items())


def test_too_few_rows_cannot_tell():
    case = case_of("direction", n=24)
    found = audit(case.data, Reads("direction"), **QUIET)
    assert found["verdict"] in ("cannot tell", "available", "no evidence")
    assert next(e for e in found["attributes"] if e["name"] == "colour")["finding"] == "cannot tell"


def test_groups_without_held_out_samples_are_said(tmp_path):
    lines = ["x,sex,label"]
    for label, sex, n in (("yes", "f", 300), ("no", "m", 300), ("yes", "m", 1), ("no", "f", 1)):
        lines += [f"{(1 if label == 'yes' else -1) + i / 1000},{sex},{label}" for i in range(n)]
    (tmp_path / "bias.csv").write_text("\n".join(lines))
    data = {"name": f"csv:{tmp_path / 'bias.csv'}", "attribute": "sex"}
    found = audit(data, out=tmp_path / "audit", **QUIET)
    known = found["coverage"]
    assert {(g["label"], g["value"]) for g in known["small_groups"]} == {("yes", "m"), ("no", "f")}
    note = known["notes"][0]
    assert "no, sex=f" in " ".join(known["notes"]) and "yes, sex=m" in " ".join(known["notes"])
    console = Console(file=io.StringIO(), width=400)
    console.print(screen(found))
    assert note in console.file.getvalue() and note in (tmp_path / "audit" / "report.html").read_text()


def test_rows_that_a_given_model_may_have_learnt_clear_it_of_nothing(tmp_path):
    whole = replace(load_data({"name": "toy", "n": 600, "rho": 0.5}), val=None, test=None)  # without a shortcut
    run = fit("erm", whole, net="mlp", recipe={"epochs": 60}, out=tmp_path / "run", **QUIET)
    assert run.scored_on == "train"
    with pytest.raises(UserError, match="was trained on all samples of toy"):
        audit(whole, model=tmp_path / "run", **QUIET)
    found = audit(whole, model=run.classifier, **QUIET)
    assert found["verdict"] == "cannot tell" and "known to be new to the model" in found["headline"]
    assert "the given model may have learnt them" in found["data"]["notes"][-1]
    split = load_data({"name": "toy", "n": 600, "rho": 0.5})  # rows that it has not seen
    assert audit(split, model=run.classifier, **QUIET)["verdict"] == "no evidence"
    assert audit(whole, **QUIET)["verdict"] == "no evidence"  # trained here, without the held-out rows


def students(path, rows, agree):
    """A table in which a branch goes with the label so often, and the hours only a little."""
    rng = np.random.default_rng(0)
    lines = ["hours,noise,branch,passed"]
    for _ in range(rows):
        passed = rng.random() < 0.5
        branch = passed if rng.random() < agree else not passed
        noise = rng.standard_normal()
        lines.append(f"{0.3 * passed + rng.standard_normal():.3f},{noise:.3f},{'ab'[branch]},{['no', 'yes'][passed]}")
    path.write_text("\n".join(lines))
    return {"name": f"csv:{path}", "label": "passed"}


def test_a_module_needs_one_output_for_each_class(tmp_path):
    data = load_data(students(tmp_path / "t.csv", 200, 0.95) | {"attribute": ("branch",)})
    with pytest.raises(UserError, match="Linear has 1 outputs, and .* has 2 classes"):
        audit(data, model=torch.nn.Linear(data.shape[0], 1), **QUIET)


def test_rows_are_held_out_where_the_data_has_no_other_split():
    x, y, a = scenes(100)
    data, split = with_held_out(Bundle("bars", Split(x, y, a, [str(i) for i in range(100)])), seed=0)
    assert split == "val" and len(data.val) == 30 and len(data.train) == 70
    assert set(data.val.names) & set(data.train.names) == set()
    assert data.val.y.bincount().tolist() == [15, 15]


def test_a_budget_shortens_the_training():
    data = load_data({"name": "toy", "n": 400})
    long = Recipe(iterations=10**9)
    assert within(0.05, data, "mlp", long, CPU, 0).iterations < 10**7
    assert within(1e9, data, "mlp", Recipe(epochs=2), CPU, 0) == Recipe(epochs=2)


def test_an_audit_with_a_budget_goes_on_in_its_folder(tmp_path, monkeypatch):
    """Steps are timed to fit the budget; timed again they would be others, and the run would refuse its own folder."""
    data = case_of("colour", n=120).data
    audit(data, out=tmp_path, net="conv3", budget=0.02, **QUIET)
    begun = begun_with(tmp_path / "model")
    monkeypatch.setattr("spurless.auditing.model.within", lambda *_: Recipe(iterations=begun + 7))
    again = audit(data, out=tmp_path, net="conv3", budget=0.02, **QUIET)
    assert again["verdict"] and begun_with(tmp_path / "model") == begun


@pytest.mark.parametrize(
    ("verdicts", "verdict"),
    [
        (["no evidence"], "no evidence"),
        (["no evidence", "found", "gap"], "found"),
        (["cannot tell", "no evidence"], "no evidence"),
        (["available", "cannot tell"], "available"),
        (["cannot tell"], "cannot tell"),
    ],
)
def test_the_worst_finding_is_the_verdict(verdicts, verdict):
    assert overall(verdicts) == verdict


# The command line


def run(*words):
    return CliRunner().invoke(app, ["audit", *words, "--device", "cpu"])


def test_the_command_prints_one_json_object_and_can_fail_a_build(tmp_path):
    answer = run("toy", "--set", "data.n=600", "--json", "--out", str(tmp_path / "a"), "--fail-on", "suspected")
    assert answer.exit_code == 4
    found = json.loads(answer.stdout)
    assert found["verdict"] in ("found", "gap")
    assert "--set data.n=600" in found["advice"][0]["command"]
    answer = run("toy", "--set", "data.n=600", "--out", str(tmp_path / "a"))
    assert answer.exit_code == 0 and found["verdict"].upper() in answer.stdout and "What to do" in answer.stdout


def test_the_command_takes_a_run(tmp_path):
    CliRunner().invoke(app, ["train", "erm", "toy", "--set", "data.n=600", "--out", str(tmp_path / "run")])
    answer = run("toy", "--set", "data.n=600", "--model", str(tmp_path / "run"), "--out", str(tmp_path / "a"), "--json")
    assert json.loads(answer.stdout)["model"]["source"] == "given"


def tree(folder):
    return {str(path.relative_to(folder)): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


def refused(folder, *words):
    before = tree(folder)
    answer = run(*words, "--out", str(folder))
    assert answer.exit_code == 2 and "Traceback" not in answer.output
    assert "is not empty and holds no audit of this. Name another --out folder." in " ".join(answer.output.split())
    assert tree(folder) == before


TOY = ("toy", "--set", "data.n=600", "--set", "recipe.epochs=2")


def test_a_folder_with_other_contents_is_refused_and_not_touched(tmp_path):
    for place in ("photos/cat/1.png", "pictures only/pictures/cat.png", "damaged/audit.json", "a run/settings.toml"):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text("mine")
        refused(tmp_path / place.split("/")[0], *TOY)
    fit("erm", load_data({"name": "toy", "n": 600}), recipe={"epochs": 1}, out=tmp_path / "run", **QUIET)
    refused(tmp_path / "run", *TOY)
    refused(tmp_path / "run", *TOY, "--model", str(tmp_path / "run"))
    refused(tmp_path / "pictures only", *TOY, "--model", str(tmp_path / "run"))


def test_an_audit_is_made_anew_and_another_one_is_not_overwritten(tmp_path):
    for name in ("one", "two"):
        data = load_data({"name": "toy", "n": 600})
        fit("erm", data, recipe={"epochs": 1}, out=tmp_path / name / "run", **QUIET)
    (tmp_path / "empty").mkdir()
    for folder, model in (("empty", []), ("given", ["--model", str(tmp_path / "one" / "run")])):
        assert run(*TOY, *model, "--out", str(tmp_path / folder)).exit_code == 0
        assert run(*TOY, *model, "--out", str(tmp_path / folder)).exit_code == 0
        refused(tmp_path / folder, "toy", "--set", "data.n=500", *model)
        refused(tmp_path / folder, *TOY, "--model", str(tmp_path / "two" / "run"))  # the same name elsewhere
    refused(tmp_path / "given", *TOY)
    refused(tmp_path / "empty", *TOY, "--net", "mlp")


@pytest.mark.parametrize("given", [False, True])
def test_a_killed_audit_goes_on(tmp_path, monkeypatch, given):
    data = case_of("colour", n=120).data
    fit("erm", data, net="conv3", recipe={"epochs": 1}, out=tmp_path / "run", **QUIET)
    asked = {"model": tmp_path / "run"} if given else {"net": "conv3", "recipe": {"epochs": 1}}
    with monkeypatch.context() as patch:
        patch.setattr(
            sys.modules["spurless.auditing.audit"], "save", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            audit(data, out=tmp_path / "a", **asked, **QUIET)
    left = {path.name for path in (tmp_path / "a").iterdir()}
    assert left == {"pictures", "review"} | (set() if given else {"model"})
    assert audit(data, out=tmp_path / "a", **asked, **QUIET)["verdict"]
    assert (tmp_path / "a" / "audit.json").exists()


@pytest.mark.parametrize("words", [[], ["--model", "run"], ["--fix"]])
def test_the_same_command_works_again_in_the_folder_that_it_chose(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fit("erm", load_data({"name": "toy", "n": 600}), recipe={"epochs": 1}, out="run", **QUIET)
    assert [run(*TOY, *words).exit_code for _ in range(2)] == [0, 0]
    assert len(list((tmp_path / "runs").iterdir())) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "nowhere"),
        (["toy", "--fail-on", "always"], "always"),
        (["toy", "--model", "missing.safetensors"], "missing.safetensors"),
        (["toy", "--set", "recipe.lr=fast"], "recipe.lr"),
        (["folder:no/such/place"], "no/such/place"),
    ],
)
def test_mistakes_are_said_in_a_line(words, said, tmp_path):
    answer = run(*words, "--out", str(tmp_path / "a"))
    assert answer.exit_code == 2 and said in answer.output and "Traceback" not in answer.output


def test_photographs_are_read_small_unless_a_size_is_named(tmp_path):
    from PIL import Image

    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(12):
            pixels = np.random.default_rng(i).integers(0, 255, (120, 120, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{name}{i}.png")
    place = f"folder:{tmp_path / 'photos'}"
    assert open_data(place, None).shape == (3, 80, 80)
    assert open_data({"name": place, "size": 40}, None).shape == (3, 40, 40)
    with pytest.raises(UserError):
        open_data("no_such_data", None)


def test_a_model_that_fails_on_another_split_is_suspected():
    """Training and validation agree with the colour, the test split does not, and no attribute is known."""
    case = case_of("colour", share=1.0)
    x, y, _ = scenes(400, seed=9, colour_follows=0.3)
    bare = {name: split.blinded() for name, split in case.data.splits.items()}
    data = Bundle("bars", **bare, test=Split(x, y))
    found = shift.examine(make_case(data, case.net, "given", "test", CPU))
    assert [e["finding"] for e in found] == ["suspected"] and found[0]["effect"] > 50
    same = replace(data, test=data.val)
    assert shift.examine(make_case(same, case.net, "given", "test", CPU))[0]["finding"] == "none"
    assert shift.examine(case) == []  # one split says nothing
