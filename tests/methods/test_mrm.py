"""MRM: a mask by plain cross entropy, and the survivors from their start values."""

import pytest
import torch

from spurless.core.recipe import Recipe
from spurless.core.seeds import derive
from spurless.methods.parts.gates import Gates
from spurless.methods.parts.pruning import sparsity
from spurless.nets import build
from spurless.registry import make_method
from spurless.train.fit import fit
from tests.support.runs import CPU
from tests.support.worlds import pictures, tiny

SHARP = {"mask_iterations": 8, "start": 0.03, "lambda_l1": 1e-4, "form": "code"}


def mrm(**settings):
    """By the names that the settings had before they were groups."""
    return make_method({"name": "mrm"} | settings)


def test_survivors_start_again_where_they_started():
    data = tiny(n=64)
    # A learning rate that moves nothing: what is returned is the start, masked.
    result = fit(mrm(**SHARP), data, net="mlp", recipe=Recipe("sgd", 1e-12, batch_size=16, epochs=1), **CPU)
    torch.manual_seed(derive(0, "net", 0))
    start = build("mlp", data.shape, 2)
    for name, weight in result.classifier.named_parameters():
        there = weight != 0
        torch.testing.assert_close(weight[there], start.get_parameter(name)[there], rtol=0, atol=1e-9)
    assert 10 < sparsity(result.classifier) < 100


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_removed_weights_stay_zero_through_the_retraining(optimizer, monkeypatch):
    recipe = Recipe(optimizer, 0.02, momentum=0.9, weight_decay=0.05, batch_size=16, epochs=1)
    seen = []
    real = Gates.masks

    def note(self):
        seen.append(real(self))
        return seen[-1]

    monkeypatch.setattr(Gates, "masks", note)
    result = fit(mrm(**SHARP), pictures(), net="simconv1", recipe=recipe, **CPU)
    assert [row["stage"] for row in result.history] == ["dense", "mask", "mask", "retrain"]
    assert sparsity(result.classifier) > 5
    for name, mask in seen[0].items():  # exactly the removed ones are zero, and all others were trained
        assert torch.equal(result.classifier.get_parameter(name) != 0, mask)


def test_batchnorm_starts_again_too():
    data, recipe = pictures(), Recipe("sgd", 1e-12, batch_size=16, epochs=1, eval_every=0)
    net = fit(mrm(**SHARP), data, net="simconv1", recipe=recipe, **CPU).classifier
    assert int(net.encoder[1].num_batches_tracked) == 4  # those of the retraining alone


def test_the_forms_differ_where_they_should():
    data, nets = tiny(), {}
    for name, settings in {"paper": {}, "gate": {"gate_form": "code"}, "penalty": {"penalty_form": "code"}}.items():
        method = mrm(mask_iterations=30, start=0.1, lambda_l1=1e-4, **settings)
        nets[name] = fit(method, data, net={"name": "mlp", "widths": [16]}, **CPU).classifier.head.weight
    assert not torch.equal(nets["paper"], nets["gate"]) and not torch.equal(nets["paper"], nets["penalty"])
