"""Every registered method keeps the same promises, on a world whose answers are known."""

import functools
from dataclasses import fields, replace

import pytest
import torch

from spurless.core.method import Stage
from spurless.core.recipe import Recipe
from spurless.core.settings import settings_of
from spurless.methods import METHODS
from spurless.registry import load_data, make_method, method_class, name_of
from spurless.train.fit import fit
from spurless.train.observe import Interrupted
from spurless.train.saved import load_run
from tests.support.quick import quick
from tests.support.runs import CPU, StopAt, same_weights
from tests.support.worlds import OwnModule, pictures, tiny

# What each class of method promises on the toy (linear network): the least conflicting accuracy, in percent.
# The baseline must fail, or the toy shows nothing; the best that the core feature allows is 89.4.
# A pruning baseline only promises to train: which weights it removes has nothing to do with the bias.
PROMISED = {"erm": 0}
PRUNERS = ("mrm", "avp", "random_prune", "magnitude_prune")
# ReBias needs a bias that small patches of an image show: test_rebias.py has one. The toy has two numbers.
UNPROMISED = (*PRUNERS, "rebias")
ERM_AT_MOST = 30
OTHERS = 40  # a debiasing method must at least leave the baseline clearly behind

# Of the toy's 500 validation samples 25 conflict: too few for crossfit's gate to leave plain training. The promise is
# kept by what it would train; test_crossfit.py has the gate.
OPEN = {"crossfit": {"level": 1}}


@functools.cache
def on_toy(name):
    return fit(make_method({"name": name} | OPEN.get(name, {})), load_data("toy"), seed=0, **CPU)


@pytest.mark.parametrize("name", METHODS)
def test_it_trains_predicts_and_keeps_its_promise(name):
    result = on_toy(name)
    assert result.status == "done" and result.method == name
    conflicting = result.scores["conflicting"]
    if name == "erm":
        assert conflicting < ERM_AT_MOST
    elif name not in UNPROMISED:
        assert conflicting > PROMISED.get(name, OTHERS), f"{name}: {conflicting:.1f} % on conflicting samples"
        # Not by turning the shortcut round: right on conflicting rows and wrong on aligned ones is no repair.
        assert result.scores["unbiased"] > on_toy("erm").scores["unbiased"]
    x = load_data("toy").test.x[:5]
    assert result.classifier(x).shape == (5, 2)


@pytest.mark.parametrize("name", METHODS)
def test_it_repeats_bit_for_bit(name):
    a, b = (fit(quick(name), pictures(), net="simconv1", seed=4, **CPU) for _ in range(2))
    assert same_weights(a.classifier, b.classifier)
    assert a.scores == b.scores


@pytest.mark.parametrize("name", METHODS)
def test_it_resumes_from_any_stage_and_its_weights_load_again(name, tmp_path):
    data, recipe = pictures(), replace(pictures().recipe, schedule="cosine")
    whole = fit(quick(name), data, net="simconv1", recipe=recipe, out=tmp_path / "whole", **CPU)
    for _ in range(6 * len(whole.history) + 6):  # stop again and again, every few steps, until it is through
        try:
            resumed = fit(
                quick(name),
                data,
                net="simconv1",
                recipe=recipe,
                out=tmp_path / "torn",
                device="cpu",
                progress=StopAt(3),
            )
            break
        except Interrupted:
            continue
    assert same_weights(whole.classifier, resumed.classifier)
    assert resumed.scores == whole.scores
    assert same_weights(load_run(tmp_path / "torn", device="cpu").classifier, whole.classifier)


@pytest.mark.parametrize("name", METHODS)
def test_it_never_sees_bias_labels_unless_it_says_so(name, monkeypatch):
    seen = []
    init = Stage.__init__

    def watched(self, *args, **kwargs):
        init(self, *args, **kwargs)
        losses = [self.loss] if callable(self.loss) else list(self.loss)

        def wrap(loss):
            def watch(b):
                seen.append(b.a is not None)
                return loss(b)

            return watch

        self.loss = [wrap(loss) for loss in losses]
        self.optimizer = [self.optimizer] if len(losses) == 1 else self.optimizer

    monkeypatch.setattr(Stage, "__init__", watched)
    fit(quick(name), tiny(n=64), **CPU)
    assert set(seen) == {METHODS[name].labels == "training"}
    if METHODS[name].labels not in ("training", "validation"):
        data = tiny(n=64)
        bare = {key: split.blinded() for key, split in data.splits.items()}
        result = fit(quick(name), replace(data, **bare, attributes=(), values=(), aligned=()), **CPU)
        assert result.status == "done" and result.labels_used == "none"


@pytest.mark.parametrize("name", METHODS)
def test_it_survives_batches_without_a_conflicting_sample(name):
    data = tiny(n=64, rho=0.0)
    result = fit(quick(name), data, recipe=Recipe("adam", 1e-2, batch_size=16, epochs=3), **CPU)
    assert result.status == "done"
    assert all(torch.isfinite(p).all() for p in result.classifier.parameters())


@pytest.mark.parametrize("name", METHODS)
def test_it_works_with_a_users_own_module(name, tmp_path):
    module = OwnModule()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    result = fit(quick(name), tiny(n=96), net=module, out=tmp_path / "run", **CPU)
    assert result.status == "done"
    assert all(torch.equal(before[k], v) for k, v in module.state_dict().items()), "the user's module was changed"
    loaded = load_run(tmp_path / "run", net=OwnModule(), device="cpu")
    assert same_weights(loaded.classifier, result.classifier)


@pytest.mark.parametrize("name", METHODS)
def test_the_registry_tells_the_truth(name):
    kind = method_class(name)
    assert kind.bias_labels == METHODS[name].labels
    assert name_of(kind()) == name
    declared = {s.path.split(".")[0] for s in settings_of(kind).values()}
    assert declared == {f.name for f in fields(kind)}, "a field that is not Annotated cannot be loaded"
    assert kind.__doc__ and "(" in kind.__doc__.splitlines()[0]  # opens with its paper


@pytest.mark.parametrize("name", METHODS)
def test_the_best_look_at_the_test_split_is_no_worse_than_the_final_network(name):
    data = tiny(n=64)
    result = fit(quick(name), data, recipe=replace(data.recipe, test_every=2), **CPU)
    assert result.test_selected["unbiased"] >= result.scores["unbiased"]


@pytest.mark.parametrize("name", METHODS)
def test_exactly_one_stage_is_selected(name):
    stages = []
    data = tiny(n=64)

    class Watch(type(quick(name))):
        def stages(self, run):
            net = yield from note(super().stages(run))
            return net

    def note(generator):
        try:
            stage = next(generator)
            while True:
                stages.append(stage)
                yield stage
                stage = next(generator)
        except StopIteration as end:
            return end.value

    method = quick(name)
    watch = Watch(**{f.name: getattr(method, f.name) for f in fields(method)})
    fit(watch, data, **CPU)
    assert sum(stage.select for stage in stages) == 1
