"""Trials: their keys, and what is refused before anything is trained."""

import re

import pytest

import spurless.bench.trials as trials_module
from spurless.bench import Trial
from spurless.core.errors import UserError
from tests.support.trials import QUICK, TOY, run, trial

pytestmark = pytest.mark.usefixtures("one_core")


def test_key_is_the_same_in_every_process_and_on_every_machine():
    assert trials_module.__version__.startswith("0.1."), "a new version makes new keys: change the literals too"
    assert Trial({"name": "toy"}, {"name": "erm"}).key == "59df2660cfce66aa"
    table = Trial(
        {"name": "colored_mnist", "family": "pgd", "rho": 0.005},
        {"name": "pgd", "q": 0.5},
        {"name": "simconv1"},
        {"name": "pgd-cmnist", "epochs": 3},
        7,
    )
    assert table.key == "aa4ee38113863a96"


def test_key_looks_at_what_decides_the_outcome_and_at_nothing_else():
    plain = trial()
    assert Trial(plain.data, plain.method, None, plain.recipe, 0, {"row": "x"}).key == plain.key
    assert Trial(plain.data | {"noise": 4, "n": 100.0}, plain.method, None, plain.recipe).key == plain.key  # defaults
    others = [trial(seed=1), trial(rho=0.2), trial(method="lff"), trial(lr=0.5), trial(epochs=2)]
    others.append(Trial(plain.data, plain.method, {"name": "mlp"}, plain.recipe))
    assert len({plain.key, *(other.key for other in others)}) == 7


def test_a_named_recipe_is_what_it_stands_for():
    from dataclasses import asdict

    from spurless.core.recipe import RECIPES

    whole = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(RECIPES["pgd-bar"]).items()}
    named = Trial(TOY, {"name": "erm"}, None, {"name": "pgd-bar"})
    assert named.key == Trial(TOY, {"name": "erm"}, None, {"name": "default"} | whole).key
    # Without a name, fields lie over the dataset's own recipe, which is another thing.
    assert named.key != Trial(TOY, {"name": "erm"}, None, whole).key


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": {"name": "toys"}}, "no dataset 'toys'; did you mean 'toy'"),
        ({"data": {"name": "toy", "ratio": 1}}, "no setting 'data.ratio'"),
        ({"data": {"n": 4}}, "The data has no name"),
        ({"method": {"name": "erm", "q": 1}}, "no setting 'method.q'"),
        ({"method": {"name": "lff", "q": 7}}, "method.q = 7 is not allowed; it takes a number from 0 to 1"),
        ({"net": {"name": "mlpp"}}, "no net 'mlpp'"),
        ({"recipe": {"name": "pgd"}}, "no recipe 'pgd'"),
        ({"recipe": {"lrr": 1}}, "no setting 'recipe.lrr'"),
        ({"seed": -1}, "seed = -1"),
    ],
)  # fmt: skip
def test_wrong_trials_are_refused_before_anything_is_trained(tmp_path, change, message):
    whole = {"data": TOY, "method": {"name": "erm"}, "net": None, "recipe": QUICK, "seed": 0} | change
    with pytest.raises(UserError, match=re.escape(message)):
        run([trial(), Trial(**whole)], tmp_path / "out")
    assert not list((tmp_path / "out").glob("cells/*"))
