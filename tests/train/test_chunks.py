"""Several steps in one graph: what is done between steps is still done at its step.

On a CPU nothing is captured, so here a stand-in "graph" makes its steps one by one, reading the counter on the device
as a captured one does; the books that are kept around it are the real ones. test_gpu.py has the real graphs.
"""

from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest
import torch

from spurless.core.recipe import Recipe
from spurless.train import step
from spurless.train.dynamics import Dynamics
from spurless.train.fit import fit
from spurless.train.observe import Interrupted
from tests.support.runs import StopAt, same_weights
from tests.support.worlds import pictures

RECIPE = Recipe("sgd", 0.05, batch_size=8, epochs=3, schedule="cosine", eval_every=1, selection="val_loss")


class StandIn:
    """A graph of some steps of one shape."""

    def __init__(self, steps, shape, count):
        self.steps, self.shape, self.count = steps, shape, count

    def replay(self):
        for _ in range(self.count):
            self.steps._step(*self.shape)


@pytest.fixture
def graphs(monkeypatch):
    """Stand-in graphs of 4 steps instead of captured ones; says how many steps each replay made."""
    made = []

    def capture(self, shape, count):
        self.graphs[shape, count] = StandIn(self, shape, count)
        return True

    def planned(self, *tables):
        self.may_capture = True  # so that the rates are read from the device's table
        plan(self, *tables)

    def run(self, most=1):
        made.append(run_steps(self, most))
        return made[-1]

    plan, run_steps = step.Steps.plan, step.Steps.run
    monkeypatch.setattr(step.Steps, "_capture", capture)
    monkeypatch.setattr(step.Steps, "plan", planned)
    monkeypatch.setattr(step.Steps, "run", run)
    monkeypatch.setattr(step, "CHUNK", 4)
    monkeypatch.setattr(step, "WORTH", 0)
    return made


def train(recipe=RECIPE, method="erm", **more):
    return fit(method, pictures(n=150), net="simconv1", recipe=recipe, device="cpu", **{"progress": False} | more)


@pytest.mark.parametrize("method", ["erm", "lff", "pgd", "disent"])
@pytest.mark.parametrize("test_every", [0, 7])
def test_chunks_end_with_the_weights_of_single_steps(graphs, monkeypatch, method, test_every):
    recipe = replace(RECIPE, test_every=test_every)
    chunked = train(recipe, method)
    assert {1, 4} == set(graphs) and graphs.count(4) > 5
    monkeypatch.setattr(step, "CHUNK", 10**9)
    graphs.clear()
    single = train(recipe, method)
    assert set(graphs) == {1}
    assert same_weights(chunked.classifier, single.classifier)
    assert [r | {"seconds": 0} for r in chunked.history] == [r | {"seconds": 0} for r in single.history]
    assert chunked.test_selected == single.test_selected and bool(test_every) == bool(chunked.test_selected)


@pytest.mark.parametrize("word", [1, 3, 6, 11])
def test_a_run_stopped_between_chunks_goes_on_to_the_same_bits(graphs, tmp_path, word):
    whole = train()
    with pytest.raises(Interrupted):
        train(out=tmp_path, progress=StopAt(word))
    resumed = train(out=tmp_path)
    assert same_weights(whole.classifier, resumed.classifier)
    assert [r | {"seconds": 0} for r in whole.history] == [r | {"seconds": 0} for r in resumed.history]


def test_a_loss_that_is_not_finite_is_seen_although_no_chunk_ends_at_the_look(graphs):
    result = train(replace(RECIPE, lr=1e20, epochs=40))
    assert result.status == "diverged" and "not finite" in result.error


def test_one_who_watches_is_asked_at_its_steps(graphs, monkeypatch):
    def watched():
        watch = Dynamics(every=5, moments=(3, 17, 40), rows=20, attributed=0)
        train(dynamics=watch)
        return watch.records[0]

    chunked = watched()
    assert 4 in graphs
    monkeypatch.setattr(step, "CHUNK", 10**9)
    single = watched()
    assert [m["step"] for m in chunked.moments] == [m["step"] for m in single.moments] and len(chunked.moments) >= 3
    assert chunked.norm_steps.tolist() == single.norm_steps.tolist() and len(chunked) == len(single) > 40
    for name, values in single.series.items():
        np.testing.assert_array_equal(chunked.series[name], values)
    for part, norms in single.gradient_norms.items():
        np.testing.assert_array_equal(chunked.gradient_norms[part], norms)


@pytest.mark.parametrize("n", [1, 6, 7])  # less than a part, whole parts, and a rest
def test_rows_are_turned_around_part_by_part(monkeypatch, n):
    from spurless.train import feed

    monkeypatch.setattr(feed, "PART", 3)
    x = torch.arange(n * 2 * 4 * 5, dtype=torch.uint8).view(n, 2, 4, 5)
    found = feed.with_channels_last(x, torch.device("cpu"))
    assert found.is_contiguous() and found.dtype == x.dtype and torch.equal(found, x.permute(0, 2, 3, 1))


def test_first_steps_and_captures_are_known_to_take_long(graphs, monkeypatch):
    slow, run = [], step.Steps.run

    def noted(self, most=1):
        done = run(self, most)
        slow.append(self.slow)
        return done

    monkeypatch.setattr(step.Steps, "run", noted)
    train(replace(RECIPE, epochs=2))
    assert graphs[:7] == [1, 1, 1, 1, 4, 4, 4]
    eager, single, several = [True] * step.WARMUP, [True], [True]
    assert slow[:7] == eager + single + several + [False, False]
    ends = [i for i, done in enumerate(accumulate(graphs)) if done % 19 == 0]
    assert len(ends) == 2 and slow[7:].count(True) == 2
    assert all(slow[i] for i in ends)  # the smaller batch that ends an epoch has no graph yet
