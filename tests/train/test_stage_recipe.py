"""A stage with a recipe of its own is trained as a run with that recipe would be, to the bit."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from spurless.core.augment import Augment
from spurless.core.data import Images
from spurless.core.method import Method, Stage
from spurless.core.recipe import Recipe
from spurless.train.fit import fit
from spurless.train.observe import Interrupted
from tests.support.runs import CPU, StopAt, same_weights, timeless
from tests.support.worlds import pictures

OURS = Recipe("sgd", 0.05, batch_size=16, epochs=3, schedule="step", step_every=1, gamma=0.5)
OTHER = Recipe("adam", 0.01, batch_size=24, epochs=2, schedule="cosine", augment="none", selection="val_loss")


@dataclass(frozen=True)
class Alone(Method):
    """Plain training, by OURS where `own` is set, whatever the run's recipe is."""

    own: ClassVar[Any] = None

    def stages(self, run):
        net = run.net()
        optimizer = run.optimizer(net, optimizer="sgd", lr=0.05)
        yield Stage("alone", lambda b: run.ce(net(b.x), b.y), optimizer, net, recipe=self.own)
        return net


class Owned(Alone):
    own = OURS


@pytest.fixture
def data():
    return replace(pictures(), inputs=Images((0.5,) * 3, (0.25,) * 3, augment=Augment(pad=4, flip=True)))


def test_batches_schedule_length_and_augmentation_are_the_stages_own(data):
    whole, other = fit(Alone(), data, net="mlp", recipe=OURS, **CPU), fit(Owned(), data, net="mlp", recipe=OTHER, **CPU)
    assert same_weights(whole.classifier, other.classifier)
    assert [row["lr"] for row in other.history] == [0.05, 0.025, 0.0125]
    assert timeless(other.history) == timeless(whole.history)
    assert not same_weights(fit(Alone(), data, net="mlp", recipe=OTHER, **CPU).classifier, other.classifier)


def test_killed_inside_it_a_run_ends_with_the_same_bits(data, tmp_path):
    settings = {"net": "mlp", "recipe": OTHER, "device": "cpu"}
    with pytest.raises(Interrupted):
        fit(Owned(), data, out=tmp_path / "run", progress=StopAt(5), **settings)
    resumed = fit(Owned(), data, out=tmp_path / "run", progress=False, **settings)
    assert same_weights(resumed.classifier, fit(Owned(), data, progress=False, **settings).classifier)
