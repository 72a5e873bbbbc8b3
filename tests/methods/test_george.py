"""GEORGE: clusters within classes become the groups of GroupDRO."""

import pytest
import torch

from spurless.core.settings import settings_of
from spurless.methods.george import GEORGE
from spurless.methods.group_dro import WorstGroup
from spurless.methods.group_inference.clusters import George
from spurless.train.fit import fit
from spurless.train.infer import infer_groups
from tests.support.mining import finish, open_run
from tests.support.runs import CPU
from tests.support.worlds import tiny


def drive(method, data):
    run, stages = open_run(data), []
    finish(method.stages(run), stages.append)
    return run, stages


def test_the_second_stage_is_group_dro_over_the_clusters():
    data = tiny(n=400, rho=0.1)
    run, (plain, dro) = drive(GEORGE(eta=0.3, adjustment=2.0, identify_epochs=4), data)
    assert (plain.epochs, dro.epochs, plain.select, dro.select) == (4, None, False, True)
    assert dro.model is not plain.model
    groups = run.guesses["groups"]
    shares = torch.stack([dro.sample_weights[groups == g].sum() for g in groups.unique()]) / dro.sample_weights.sum()
    assert shares.tolist() == pytest.approx([1 / len(shares)] * len(shares))  # every cluster equally often
    (worst,) = (m for m in run.modules if isinstance(m, WorstGroup))
    assert len(worst.share) >= len(shares) == 4
    assert (worst.dro.eta, worst.dro.adjustment) == (0.3, 2.0)


def test_the_method_has_the_inferences_settings_and_infers_by_them():
    inherited, own = settings_of(George), settings_of(GEORGE)
    assert {name: s.default for name, s in inherited.items()} == {name: own[name].default for name in inherited}
    data, settings = tiny(n=60), {"clusters": 3, "overcluster": 1, "identify_epochs": 1}
    groups = infer_groups(data, {"name": "george"} | settings, progress=False, device="cpu")
    seen = []

    class Spy(GEORGE):
        def infer(self, run):
            seen.append((yield from super().infer(run)))
            return seen[0]

    fit(Spy(**settings), data, device="cpu", progress=False)
    assert torch.equal(seen[0].train, groups.train) and seen[0].number == groups.number == 6


def test_it_finds_the_toys_groups_and_trains_for_the_worst():
    data = tiny(n=1000)
    george, erm = (fit(m, data, net="linear", recipe={"epochs": 10}, **CPU) for m in (GEORGE(), "erm"))
    assert george.scores["worst_group"] > erm.scores["worst_group"] + 30
    assert george.labels_used == "none"
