"""studies/peers.py: that every peer is given the same work, and that the table says what was measured."""

import copy
import sys
import types
from typing import ClassVar

import pytest
import torch
from torch import nn

from spurless.core.data import Bundle, Images, Split
from spurless.core.recipe import Recipe
from spurless.nets import build
from spurless.nets.outputs import Inputs
from spurless.registry import load_data
from studies import peers
from studies.rows import RESULTS, named

MEASURED = named(RESULTS / "peers")


@pytest.fixture
def work():
    data = peers.part(load_data({"name": "toy", "n": 400}), 0)
    torch.manual_seed(0)
    return peers.Work(data, build("mlp", data.shape, len(data.classes)), epochs=3, batch=64, lr=1e-2)


def test_rows_are_what_the_engine_feeds():
    """A peer that saw other inputs would do other work."""
    x = torch.randint(0, 256, (5, 3, 4, 4), dtype=torch.uint8)
    data = Bundle("images", Split(x, torch.arange(5) % 2), inputs=Images((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)))
    fed = Inputs(data, Recipe(augment="none", channels_last=False), torch.device("cpu")).training(x, None)
    given = torch.stack([peers.Rows(data)[i][0] for i in range(5)])
    assert torch.allclose(given, fed, atol=1e-6)
    assert [peers.Rows(data)[i][1] for i in range(5)] == [0, 1, 0, 1, 0]


@pytest.mark.parametrize("peer", [peers.OURS, peers.SCRIPT])
def test_plain_training_learns_from_a_copy_of_the_network(work, peer):
    before = copy.deepcopy(work.net.state_dict())
    found = peers.timed(peers.CONTESTS["erm"][peer], work)
    assert all(torch.equal(value, before[name]) for name, value in work.net.state_dict().items())
    assert found.rows == 400 * 3
    assert found.score > 60  # guessing: 50
    assert found.cpu > 0


def test_ours_counts_the_rows_of_both_stages(work):
    done = peers.ours(work, peers.jtt(work))
    extra = done.rows - 2 * 400 * 3  # copies of errors beyond the row itself
    assert extra > 0 and extra % ((peers.COPIES - 1) * work.epochs) == 0


def test_what_is_not_installed_is_named(work, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "spuco", None)
    short = work._replace(epochs=1)
    rows, lacking = peers.run(short, ["erm", "group_dro"], rounds=2)
    assert [(row["method"], row["peer"]) for row in rows] == [
        ("erm", peers.OURS),
        ("erm", peers.SCRIPT),
        ("group_dro", peers.OURS),
    ]
    assert len(lacking) == 2 and all("'spuco" in why and "SpuCo" in why for why in lacking)
    assert all(row["rounds"] == 2 for row in rows)
    turns = [line.split(", ")[2].split(":")[0] for line in capsys.readouterr().out.splitlines() if ", erm, " in line]
    assert turns == [peers.OURS, peers.SCRIPT, peers.SCRIPT, peers.OURS]  # interleaved, and in turn


class FakeTrainer:
    """Stands in for SpuCo's: it remembers what it was given."""

    given: ClassVar[list[dict]] = []

    def __init__(self, **settings):
        self.given.append(settings)
        self.trainer = self
        self.settings = settings

    def train(self):
        held = {id(p) for group in self.settings["optimizer"].param_groups for p in group["params"]}
        assert held == {id(p) for p in self.settings["model"].parameters()}

    def get_trainset_outputs(self):
        labels = torch.tensor(self.settings["trainset"].labels)
        wrong = labels.clone()
        wrong[:10] = 1 - wrong[:10]  # the first ten rows are errors
        return nn.functional.one_hot(wrong, 2).float()


class FakeInference:
    def __init__(self, predictions, class_labels):
        self.right = [p == y for p, y in zip(predictions, class_labels, strict=True)]

    def infer_groups(self):
        return {(0, k): [i for i, r in enumerate(self.right) if r == (k == 0)] for k in (0, 1)}


def test_jtt_with_spuco_repeats_errors_as_often_as_ours(work, monkeypatch):
    FakeTrainer.given = []
    robust = types.SimpleNamespace(ERM=FakeTrainer, CustomSampleERM=FakeTrainer)
    fakes = {"spuco.robust_train": robust, "spuco.group_inference": types.SimpleNamespace(JTTInference=FakeInference)}
    monkeypatch.setattr(peers, "import_module", fakes.__getitem__)
    done = peers.spuco_jtt(work)
    first, second = FakeTrainer.given
    assert first["model"] is not second["model"]  # JTT trains a fresh network
    indices = second["indices"]
    assert [indices.count(i) for i in (0, 9, 10, 399)] == [peers.COPIES, peers.COPIES, 1, 1]
    assert done.rows == (400 + 390 + 10 * peers.COPIES) * work.epochs
    assert first["batch_size"] == second["batch_size"] == work.batch


def test_a_part_of_the_rows_holds_conflicting_ones():
    """Where they come last, the first rows would be aligned all."""
    y = torch.arange(1000) % 2
    a = torch.where(torch.arange(1000) < 900, y, 1 - y)
    data = Bundle("ordered", Split(torch.arange(1000.0)[:, None], y, a[:, None]))
    split = peers.part(data, 300).train
    assert len(split) == 300 and 10 < int((split.y != split.a[:, 0]).sum()) < 60
    rows = split.x[:, 0].long()
    assert torch.equal(split.y, y[rows]) and torch.equal(split.a[:, 0], a[rows])  # inputs and labels stay together


def test_groups_of_a_partition_share_out_the_rows(work):
    groups = peers.partition(work.data.train)
    assert sorted(i for rows in groups.values() for i in rows) == list(range(400))
    y, a = work.data.train.y, work.data.train.a
    assert all(
        bool((y[rows] == label).all() and (a[rows, 0] == value).all()) for (label, value), rows in groups.items()
    )


def test_ratios_are_taken_within_a_round():
    """The machine was ten times slower in the second round; the ratio is 2 all the same."""
    ours = [peers.Timed(1, 1, 100, 50), peers.Timed(10, 1, 100, 50), peers.Timed(1, 1, 100, 50)]
    theirs = [peers.Timed(2, 3, 100, 50), peers.Timed(20, 3, 100, 50), peers.Timed(2, 3, 100, 50)]
    rows = peers.table({("erm", peers.SCRIPT): theirs, ("erm", peers.OURS): ours}, epochs=1)
    assert [row["peer"] for row in rows] == [peers.OURS, peers.SCRIPT]
    assert (rows[1]["times_ours"], rows[1]["cpu_times_ours"]) == (2.0, 3.0)
    assert rows[1]["samples_a_second"] == 50.0
    # Twice the rows in twice the time is the same speed.
    more = peers.table({("jtt", peers.OURS): ours, ("jtt", peers.SPUCO): [peers.Timed(2, 2, 200, 50)] * 3}, epochs=1)
    assert more[1]["cpu_times_ours"] == 1.0


@pytest.mark.parametrize("name", MEASURED)
def test_measured_rows_are_whole(name):
    found = MEASURED[name]
    assert {"date", "packages", "train_rows", "epochs", "rounds", "threads"} <= set(found["about"])
    by_method: dict[str, dict] = {}
    for row in found["rows"]:
        by_method.setdefault(row["method"], {})[row["peer"]] = row
        assert row["rounds"] == found["about"]["rounds"] == len(row["unbiased"])
        assert row["method"] in peers.CONTESTS and row["peer"] in peers.CONTESTS[row["method"]]
    for rows in by_method.values():
        assert rows[peers.OURS]["times_ours"] == rows[peers.OURS]["cpu_times_ours"] == 1.0
    assert peers.markdown(found["rows"]).count("\n") == 1 + len(found["rows"])


def test_there_are_measured_rows():
    assert MEASURED
