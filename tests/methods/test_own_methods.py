"""Methods of the user's own: what tells one from another, what survives a kill, and what their results say."""

import importlib.util
import sys
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from spurless import Recipe, fit
from spurless.core.errors import UserError
from spurless.core.method import Method, Stage
from spurless.methods.parts.losses import ce
from spurless.nets import Net, build
from spurless.registry import load_data, make_method, name_of
from spurless.train.identity import settings_of_method
from spurless.train.saved import load_run
from spurless.train.session import RunArguments, Session

QUIET = {"device": "cpu"}
RECIPE = Recipe("sgd", 0.05, batch_size=50, epochs=3)


@pytest.fixture
def data():
    return load_data({"name": "toy", "n": 300})


@dataclass(frozen=True)
class Noisy(Method):
    """Draws noise for its inputs from a generator of its own, inside the loss."""

    scale: float = 0.5

    def stages(self, run):
        net, dice = run.net(), run.generator("noise")
        for name in ("one", "two"):

            def loss(b):
                return ce(net(b.x + self.scale * torch.randn(b.x.shape, generator=dice)), b.y)

            yield Stage(name, loss, run.optimizer(net), model=net, select=name == "two")
        return net


@pytest.mark.parametrize("steps", [1, 7, 12, 18, 25, 35])
def test_a_generator_in_a_loss_goes_on_after_a_kill(tmp_path, data, steps):
    whole = fit(Noisy(), data, net="mlp", recipe=RECIPE, progress=False, **QUIET)
    session = Session(
        RunArguments(Noisy(), data, net="mlp", recipe=RECIPE, out=tmp_path / "run", checkpoint_seconds=0, **QUIET)
    )
    for _, _ in zip(range(steps), session, strict=False):
        pass
    del session  # its lock is given up with it
    again = fit(Noisy(), data, net="mlp", recipe=RECIPE, out=tmp_path / "run", progress=False, **QUIET)
    for name, weight in whole.classifier.state_dict().items():
        assert torch.equal(weight, again.classifier.state_dict()[name])


def written(folder, sign):
    """The same class twice, with one word changed, as it would be in an editor."""
    code = f"""
from dataclasses import dataclass
from spurless.core.method import Method, Stage
from spurless.methods.parts.losses import ce

@dataclass(frozen=True)
class Edited(Method):
    def stages(self, run):
        net = run.net()
        yield Stage("only", lambda b: {sign}ce(net(b.x), b.y), run.optimizer(net), model=net, select=True)
        return net
"""
    path = folder / f"edited{'_not' if sign else ''}.py"
    path.write_text(code)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module.Edited()


def test_an_edited_method_is_another_run(tmp_path, data):
    fit(written(tmp_path, ""), data, net="mlp", recipe=RECIPE, out=tmp_path / "run", progress=False, **QUIET)
    with pytest.raises(UserError, match=r"method\.code"):
        fit(written(tmp_path, "-"), data, net="mlp", recipe=RECIPE, out=tmp_path / "run", progress=False, **QUIET)
    fit(written(tmp_path, ""), data, net="mlp", recipe=RECIPE, out=tmp_path / "run", progress=False, **QUIET)


def test_a_method_that_is_no_dataclass_shows_its_arguments():
    class Plain(Method):
        def __init__(self, strength):
            object.__setattr__(self, "strength", strength)

        def stages(self, run):
            yield

    assert settings_of_method(Plain(2.0))["strength"] == 2.0
    assert "code" not in settings_of_method(make_method("pgd"))


@dataclass(frozen=True)
class JTT(Method):
    """Named like one of the package's."""

    selects: int = 1

    def stages(self, run):
        net = run.net()
        for k in range(2):
            select = k >= 2 - self.selects
            yield Stage(f"stage{k}", lambda b: ce(net(b.x), b.y), run.optimizer(net), model=net, select=select)
        return net


def test_a_name_that_is_taken_is_marked_as_ones_own():
    assert name_of(JTT()) == "own-jtt" and name_of(make_method("jtt")) == "jtt" and name_of(Noisy()) == "noisy"


@pytest.mark.parametrize(("selects", "said"), [(0, "last"), (1, "val_accuracy")])
def test_the_rule_that_is_reported_is_the_one_that_picked(data, selects, said):
    how = Recipe("sgd", 0.05, batch_size=50, epochs=2, selection="val_accuracy")
    result = fit(JTT(selects), data, net="mlp", recipe=how, progress=False, **QUIET)
    assert result.selection == said
    assert any("they are the last ones" in note for note in result.notes) == (selects == 0)


def test_only_one_stage_can_be_picked_from(data):
    how = Recipe("sgd", 0.05, batch_size=50, epochs=1, selection="val_accuracy")
    with pytest.raises(UserError, match="of two stages, 'stage0' and 'stage1'"):
        fit(JTT(2), data, net="mlp", recipe=how, progress=False, **QUIET)


@dataclass(frozen=True)
class Joined(Method):
    """Its classifier has another shape than the run's network: two of its encoders side by side."""

    def classifier(self, make):
        first, second = make(), make()
        encoder = nn.ModuleList([first.encoder, second.encoder])

        class Both(nn.Module):
            def __init__(self):
                super().__init__()
                self.parts = encoder

            def forward(self, x):
                return torch.cat([part(x) for part in self.parts], dim=1)

        return Net(Both(), nn.Linear(2 * first.head.in_features, first.head.out_features))

    def stages(self, run):
        net = run.keep(self.classifier(run.net))
        yield Stage("only", lambda b: ce(net(b.x), b.y), run.optimizer(net), model=net, select=True)
        return net


def test_a_classifier_of_another_shape_is_loaded_again(tmp_path, data):
    first = fit(Joined(), data, net="mlp", recipe=RECIPE, out=tmp_path / "run", progress=False, **QUIET)
    again = fit(Joined(), data, net="mlp", recipe=RECIPE, out=tmp_path / "run", progress=False, **QUIET)
    loaded = load_run(tmp_path / "run", device="cpu", method=Joined())
    for name, weight in first.classifier.state_dict().items():
        assert torch.equal(weight, again.classifier.state_dict()[name])
        assert torch.equal(weight, loaded.classifier.state_dict()[name])


def test_too_few_outputs_are_refused(data):
    with pytest.raises(UserError, match="1 outputs, and there are 2 classes"):
        fit("erm", data, net=nn.Sequential(nn.Linear(data.shape[0], 1)), recipe=RECIPE, progress=False, **QUIET)


def test_another_weights_file_of_the_same_name_is_another_run(tmp_path):
    net = {"name": "resnet18", "weights": str(tmp_path / "w.pth")}
    images = load_data({"name": "shapes", "n": 60})
    for seed in (0, 1):
        torch.manual_seed(seed)
        made = build("resnet18", images.shape, len(images.classes))
        torch.save(made.encoder.state_dict(), tmp_path / "w.pth")
        how = Recipe("sgd", 0.01, batch_size=30, iterations=1)
        if seed == 0:
            fit("erm", images, net=net, recipe=how, out=tmp_path / "run", progress=False, **QUIET)
        else:
            with pytest.raises(UserError, match="weights"):
                fit("erm", images, net=net, recipe=how, out=tmp_path / "run", progress=False, **QUIET)
