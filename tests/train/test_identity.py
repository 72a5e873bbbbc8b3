"""What a run is known by: all that decides its outcome, or another run's numbers would be taken for its own."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from spurless.core.augment import Augment
from spurless.core.data import Bundle, Images
from spurless.core.errors import UserError
from spurless.core.files import to_toml
from spurless.core.recipe import Recipe
from spurless.data.ingest.images import IMAGENET_MEAN
from spurless.registry import load_data, make_method, make_recipe
from spurless.train.fit import fit
from spurless.train.identity import contents, describe_bundle, describe_run
from spurless.train.observe import Interrupted
from tests.support.runs import CPU, StopAt, same_weights
from tests.support.worlds import pictures, tiny

RECIPE = Recipe("adam", 1e-2, batch_size=16, epochs=2)

CHANGES = {  # of a Bundle: what is named where it is refused
    "mean": {"inputs": Images((0.2,) * 3, (0.1,) * 3)},
    "augment": {"inputs": Images(augment=Augment(flip=True))},
    "groups_ignore_class": {"groups_ignore_class": True},
    "aligned": {"aligned": (torch.eye(4).flip(0).bool(),)},
    "classes": {"classes": tuple("pqrst"), "aligned": ()},
    "values": {"values": (tuple("pqrst"),), "aligned": ()},
}


def refused(named, folder, *args, **settings):
    with pytest.raises(UserError, match=rf"{named}.* there, .* now"):
        fit(*args, out=folder, **settings, **CPU)


# Data of one's own


@pytest.mark.parametrize("field", CHANGES)
def test_a_folder_is_not_taken_for_one_of_other_data(field, tmp_path):
    first, changed = pictures(), replace(pictures(), **CHANGES[field])
    fit("erm", first, net="simconv1", recipe=RECIPE, out=tmp_path, **CPU)
    refused(f"bundle.{field}", tmp_path, "erm", changed, net="simconv1", recipe=RECIPE)
    assert fit("erm", pictures(), net="simconv1", recipe=RECIPE, out=tmp_path, **CPU).status == "done"


@pytest.mark.parametrize("field", ["mean", "augment"])
def test_a_stage_that_was_trained_on_other_inputs_is_not_shared(field, tmp_path):
    changed = replace(pictures(), **CHANGES[field])
    fit("erm", pictures(), net="simconv1", recipe=RECIPE, stages=tmp_path, **CPU)
    shared = fit("erm", changed, net="simconv1", recipe=RECIPE, stages=tmp_path, **CPU)
    assert same_weights(shared.classifier, fit("erm", changed, net="simconv1", recipe=RECIPE, **CPU).classifier)
    assert not any(row.get("shared") for row in shared.history)


def test_arrays_are_told_by_how_they_are_standardised(tmp_path):
    x, y = np.random.default_rng(0).integers(0, 255, (60, 8, 8, 3), dtype=np.uint8), np.arange(60) % 2

    def arrays(**fields):
        return Bundle.from_arrays(x, y, y, net="mlp", **fields)

    fit("erm", arrays(), recipe=RECIPE, out=tmp_path, **CPU)
    refused("bundle.std", tmp_path, "erm", arrays(inputs=Images(IMAGENET_MEAN, (0.1, 0.1, 0.1))), recipe=RECIPE)


def test_what_was_loaded_by_name_is_described_as_ever():
    """By name, settings and content: else the folders of all earlier runs would be refused."""
    data = load_data({"name": "gaussians", "seed": 3})
    assert describe_bundle(replace(data, settings={}))  # it is not what a Bundle has by itself
    said = describe_run(make_method("erm"), data, "simconv1", make_recipe(None, data), 0)
    assert list(said) == ["seed", "spurless", "method", "data", "net", "recipe"]
    assert set(said["data"]) == {"name", "fingerprint", *data.settings} and said["net"] == {"name": "simconv1"}


def test_data_of_ones_own_with_nothing_unusual_is_described_as_ever():
    data = pictures()
    assert "bundle" not in to_toml(describe_run(make_method("erm"), data, "mlp", RECIPE, 0))


# Networks of one's own


def module(activation=None, dropout=0.1):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(7, 8), activation or nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 2))


OTHERS = {"activation": {"activation": nn.Tanh()}, "dropout": {"dropout": 0.9}}


@pytest.mark.parametrize("change", OTHERS)
@pytest.mark.parametrize("made", [False, True], ids=["module", "factory"])
def test_another_architecture_with_the_same_weights_is_another_network(change, made, tmp_path):
    def net(**changes):
        return (lambda: module(**changes)) if made else module(**changes)

    fit("erm", tiny(), net=net(), out=tmp_path / "run", stages=tmp_path / "stages", **CPU)
    refused("net.architecture", tmp_path / "run", "erm", tiny(), net=net(**OTHERS[change]))
    shared = fit("erm", tiny(), net=net(**OTHERS[change]), stages=tmp_path / "stages", **CPU)
    alone = fit("erm", tiny(), net=net(**OTHERS[change]), **CPU)
    assert same_weights(shared.classifier, alone.classifier)
    assert fit("erm", tiny(), net=net(), out=tmp_path / "run", **CPU).status == "done"


def test_two_factories_of_one_kind_of_network_are_told_by_their_weights(tmp_path):
    def made(scale):
        def make():
            net = nn.Sequential(nn.Linear(7, 8), nn.ReLU(), nn.Linear(8, 2))
            nn.init.constant_(net[0].bias, scale)
            return net

        return make

    fit("erm", tiny(), net=made(0.0), out=tmp_path, **CPU)
    refused("net.weights", tmp_path, "erm", tiny(), net=made(0.5))


class Holds(nn.Module):
    """Prints a function that it holds, with its place in memory, and a list of parameters, with their device."""

    def __init__(self, function):
        super().__init__()
        self.function, self.scales = function, nn.ParameterList([torch.ones(8)])
        self.body, self.classify = nn.Linear(7, 8), nn.Linear(8, 2)

    def extra_repr(self):
        return f"{self.function}, {object()}"

    def forward(self, x):
        return self.classify(self.function(self.body(x)) * self.scales[0])


def test_where_something_lies_in_memory_is_no_part_of_a_network(tmp_path):
    def holding():
        def squash(x):
            return torch.tanh(x)

        torch.manual_seed(0)
        return Holds(squash)

    kept = [holding(), holding()]  # both alive: no address is given twice
    assert repr(kept[0]) != repr(kept[1]) and contents(kept[0]) == contents(kept[1])
    whole = fit("erm", tiny(), net=holding(), **CPU)
    with pytest.raises(Interrupted):
        fit("erm", tiny(), net=kept[0], out=tmp_path, device="cpu", progress=StopAt(9))
    assert same_weights(fit("erm", tiny(), net=kept[1], out=tmp_path, **CPU).classifier, whole.classifier)


def test_the_gpu_of_a_list_of_parameters_is_no_part_of_a_network(monkeypatch):
    net = Holds(torch.tanh)
    here, kept = contents(net), nn.ParameterList.extra_repr
    monkeypatch.setattr(nn.ParameterList, "extra_repr", lambda self: kept(self).replace("]", " (cuda:1)]"))
    assert "(cuda:1)" in repr(net) and contents(net) == here


def test_a_factory_is_described_without_a_random_number_of_the_run_or_the_caller():
    drawn = []

    def make():
        drawn.append((random.random(), float(np.random.rand()), float(torch.rand(()))))
        return module()

    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(5)
    described = [describe_run(make_method("erm"), tiny(), make, RECIPE, seed)["net"] for seed in (0, 1)]
    assert described[0] == described[1]  # or a table over seeds would take them for two networks
    make()
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(5)
    assert drawn[0] == drawn[1] != drawn[2] == (random.random(), float(np.random.rand()), float(torch.rand(())))


def test_a_factory_whose_weights_numpy_draws_is_the_same_when_the_run_goes_on(tmp_path):
    def make():
        net = nn.Sequential(nn.Linear(7, 8), nn.ReLU(), nn.Linear(8, 2))
        nn.init.constant_(net[0].bias, float(np.random.rand()))
        return net

    fit("erm", tiny(), net=make, out=tmp_path, **CPU)
    np.random.seed(77)  # another start
    assert fit("erm", tiny(), net=make, out=tmp_path, **CPU).status == "done"


def lazy():
    return nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.Linear(8, 2))


class Half(nn.Module):
    """Holds what numpy has no word for, and a state that is no tensor."""

    def __init__(self):
        super().__init__()
        self.classify = nn.Linear(7, 2)
        self.register_buffer("short", torch.ones(3, dtype=torch.bfloat16))

    def get_extra_state(self):
        return {"version": 2}

    def set_extra_state(self, state):
        pass

    def forward(self, x):
        return self.classify(x)


@pytest.mark.parametrize("make", [lazy, Half])
@pytest.mark.parametrize("made", [False, True], ids=["module", "factory"])
def test_weights_of_every_kind_are_described(make, made):
    net = make if made else make()
    said = [describe_run(make_method("erm"), tiny(), net, RECIPE, 0)["net"] for _ in range(2)]
    assert said[0] == said[1] and said[0]["weights"]


def test_a_function_that_makes_no_network_is_told():
    with pytest.raises(UserError, match=r"must make a network, a torch\.nn\.Module; it makes 3"):
        fit("erm", tiny(), net=lambda: 3, **CPU)


def test_what_a_class_of_ones_own_prints_is_not_compared():
    """A set of words is printed in another order at the next start."""

    class Prints(nn.Module):
        def __init__(self, words):
            super().__init__()
            self.words, self.head = words, nn.Linear(2, 2)

        def extra_repr(self):
            return str(self.words)

        def forward(self, x):
            return self.head(x)

    torch.manual_seed(0)
    one, other = Prints("{a, b}"), Prints("{b, a}")
    other.load_state_dict(one.state_dict())
    assert repr(one) != repr(other) and contents(one) == contents(other)
    assert contents(nn.Dropout(0.1)) != contents(nn.Dropout(0.2))
