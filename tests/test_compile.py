"""A loss is compiled once for all runs that differ in their seed: else lanes and benchmarks compile for minutes."""

import functools

import pytest
import torch
from torch._dynamo.utils import counters

from spurless import fit
from tests.worlds import pictures


@pytest.fixture
def only_traced(monkeypatch):
    """Compiled by dynamo as always, but into the operations as they are, which takes no C compiler."""
    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("method", ["erm", "lff", "pgd", "jtt", "disent"])
def test_a_second_run_compiles_nothing(only_traced, method):
    made = []
    for seed in (0, 1, 2):
        recipe = {"epochs": 2, "batch_size": 16, "compile": True, "augment": "pgd_digits"}
        result = fit(method, pictures(n=70), "simconv1", recipe, seed, device="cpu", progress=False)
        assert result.status == "done"
        made.append(counters["stats"]["unique_graphs"])
    assert made[0] > 0 and made[1:] == made[:1] * 2
