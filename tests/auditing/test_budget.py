"""A time budget limits what is read and asked; counts and pictures of a finding say what they are of."""

import torch

from spurless.auditing import audit, exhibits, model
from spurless.auditing.case import Case
from spurless.auditing.model import everything, plain_case
from spurless.auditing.verdict import Shortcut, cost
from spurless.core.data import Bundle, Images, Split
from spurless.nets import Net
from spurless.registry import load_data

CPU = torch.device("cpu")


def images(n=400, seed=0):
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    x = torch.randint(0, 120, (n, 1, 12, 12), generator=g)
    x[(y == 1) ^ (torch.rand(n, generator=g) < 0.05), 0, :3, :3] = 250
    return Bundle("stamped", Split(x.to(torch.uint8), y), inputs=Images((0.3,), (0.25,)))


def test_as_many_samples_are_read_as_the_budget_allows(monkeypatch):
    data = load_data({"name": "toy", "n": 1200})
    whole, _ = plain_case(data, 0, CPU)
    roomy, _ = plain_case(data, 0, CPU, budget=1e6)
    assert len(roomy.held) == len(whole.held) and torch.equal(roomy.logits, whole.logits)
    monkeypatch.setattr(model, "FOR_FEATURES", 0.0)
    few, _ = plain_case(data, 0, CPU, budget=1e6)
    assert model.FEWEST - 3 <= len(few.held) <= model.FEWEST + 3 < len(whole.held)


def test_a_draw_keeps_the_share_of_every_split():
    data = load_data({"name": "toy", "n": 1200})
    held, fold = everything(data, 0, 300)
    total = sum(len(split) for split in data.splits.values())
    assert abs(int((fold >= 0).sum()) / len(held) - len(data.train) / total) < 0.02


def test_after_the_budget_no_cue_is_tested_and_the_report_names_those_that_were_not():
    report = audit(images(), budget=1e-6, progress=False, device="cpu")
    note = next(note for note in report.data["notes"] if "time budget" in note)
    assert "a mark" in note and all(f["used"] is None for f in report.findings)
    assert not [n for n in audit(images(), progress=False, device="cpu").data["notes"] if "time budget" in n]


def test_conflicting_samples_are_counted_apart_where_another_split_has_more_of_them():
    fold = torch.tensor([0] * 100 + [-1] * 50)
    follows = torch.tensor([True] * 95 + [False] * 5 + [True] * 5 + [False] * 45)
    held = Split(torch.zeros(150, 2), torch.arange(150) % 2)
    net = Net(torch.nn.Flatten(), torch.nn.Linear(2, 2))
    case = Case(Bundle("made", held), net, "given", held, "all", CPU, torch.zeros(150, 2), held.x, fold=fold)
    shortcut = Shortcut("colour", "light", "found", follows, None, None, None, None)
    assert "100 training samples 5 conflict (5.0 %), of the 50 samples of other splits 45 (90.0 %)" in " ".join(
        cost(case, shortcut)["text"]
    )
    even = shortcut._replace(follows=torch.tensor([True] * 95 + [False] * 5 + [True] * 48 + [False] * 2))
    assert cost(case, even)["text"] == []


def test_no_map_hides_the_colours_that_a_finding_is_about(tmp_path, monkeypatch):
    data = images(60)
    case, _ = plain_case(data, 0, CPU)
    follows = torch.arange(60) % 10 > 0
    asked = []
    monkeypatch.setattr(exhibits, "draw", lambda *given, maps: asked.append(maps) or {})
    for kind in ("light", "mark"):
        exhibits.exhibits(case, Shortcut(kind, kind, "found", follows, None, None, None, None), [], tmp_path)
    assert asked == [False, True]
