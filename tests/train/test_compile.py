"""A loss is compiled once for all runs that differ in their seed: else lanes and benchmarks compile for minutes."""

import functools
from dataclasses import dataclass

import pytest
import torch
from torch._dynamo.utils import counters

from spurless import fit
from spurless.core.method import Method, Stage
from tests.support.runs import same_weights
from tests.support.worlds import pictures, tiny


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
        result = fit(method, pictures(n=70), net="simconv1", recipe=recipe, seed=seed, device="cpu", progress=False)
        assert result.status == "done"
        made.append(counters["stats"]["unique_graphs"])
    assert made[0] > 0 and made[1:] == made[:1] * 2


@pytest.mark.parametrize(("mix", "compiles"), [("light_detail", True), ("within_class", True), ("mixup", False)])
def test_a_mixed_loss_is_compiled_where_it_has_one_label_and_is_the_same(only_traced, mix, compiles):
    recipe = {"epochs": 2, "batch_size": 16, "mix": mix}
    plain, compiled = (
        fit("erm", pictures(), net="mlp", recipe=recipe | {"compile": c}, device="cpu", progress=False)
        for c in (False, True)
    )
    assert same_weights(plain.classifier, compiled.classifier)
    counters.clear()
    torch._dynamo.reset()
    fit("erm", pictures(), net="mlp", recipe=recipe | {"compile": True}, device="cpu", progress=False)
    within_easy = mix == "within_class"  # the easy network's own stage is compiled as well
    assert counters["stats"]["unique_graphs"] == (2 + within_easy if compiles else 0)


@pytest.mark.skipif(
    not hasattr(torch._functorch.config, "backward_pass_autocast"), reason="this torch does not offer the choice"
)
def test_in_bf16_the_gradients_of_a_compiled_loss_are_those_of_the_loss(monkeypatch):
    """Also where a part of it has switched bf16 off: its backward pass would be in bf16 all the same."""
    torch._dynamo.reset()
    before = torch._functorch.config.backward_pass_autocast
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    try:
        found = []
        for compiles in (False, True):
            recipe = {"optimizer": "sgd", "lr": 0.1, "iterations": 3, "batch_size": 64, "precision": "bf16"}
            result = fit(
                InFull(), tiny(n=64), net="mlp", recipe=recipe | {"compile": compiles}, device="cpu", progress=False
            )
            found.append(torch.cat([p.detach().flatten() for p in result.classifier.parameters()]))
    finally:
        torch._functorch.config.backward_pass_autocast = before
        torch._dynamo.reset()
    torch.testing.assert_close(found[1], found[0], rtol=1e-6, atol=1e-7)


@dataclass(frozen=True)
class InFull(Method):
    """Pulls products of features together that are taken in float32."""

    def stages(self, run):
        net = run.net()

        def loss(b):
            with torch.autocast(b.x.device.type, enabled=False):
                z = net.features(b.x).float()
                return (z @ z.T - torch.eye(len(z))).square().mean()

        yield Stage("full", loss, run.optimizer(net), model=net, select=True)
        return net
