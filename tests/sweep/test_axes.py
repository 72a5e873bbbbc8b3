"""What is swept: names, values, and the mistakes in them."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

from spurless.core.errors import UserError
from spurless.core.recipe import Recipe
from spurless.sweep import run_sweep
from spurless.sweep.axes import make_axis, setting_of
from spurless.sweep.suggest import suggest_lr
from spurless.train.schedule import schedule
from tests.support.worlds import tiny


@pytest.mark.parametrize(
    ("name", "setting", "needed"),
    [
        ("lr", "recipe.lr", {}),
        ("batch_size", "recipe.batch_size", {}),
        ("l1", "recipe.l1", {}),
        ("l2", "recipe.weight_decay", {}),
        ("weight_decay", "recipe.weight_decay", {}),
        ("focal.gamma", "recipe.focal_gamma", {"recipe.loss": "focal"}),
        ("fall_after", "recipe.fall_after", {"recipe.schedule": "step"}),
        ("asam.rho", "recipe.rho", {"recipe.sharpness": "asam"}),
        ("data.rho", "data.rho", {}),
        ("net.width", "net.width", {}),
        ("method.q", "method.q", {}),
    ],
)
def test_names_stand_for_settings(name, setting, needed):
    assert setting_of(name) == (setting, needed)


def test_a_bare_name_is_the_methods_where_the_recipe_has_none():
    assert setting_of("q", "lff") == ("method.q", {})
    with pytest.raises(UserError, match="no setting 'q'"):
        setting_of("q", "erm")


def test_a_name_that_recipe_and_method_share_must_say_whose_it_is():
    for name, method in (("eps", "bias_adv"), ("rho", "jtt"), ("gamma", "ga")):
        with pytest.raises(UserError, match=f"recipe.{name} or method.{name}"):
            setting_of(name, method)
        assert setting_of(f"method.{name}", method) == (f"method.{name}", {})
        assert setting_of(name, "erm") == (f"recipe.{name}", {})
    assert setting_of("lr", "eiil") == ("recipe.lr", {}) and setting_of("momentum", "bpa") == ("recipe.momentum", {})


def test_lists_can_be_swept_and_fixed_on_the_command_line():
    assert make_axis("net.widths", "[8, 8],[16]").values == ([8, 8], [16])
    assert make_axis("lr,betas=[0.5,0.9],l1=1", "0.1,0.2").fixed == {"recipe.betas": [0.5, 0.9], "recipe.l1": 1}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"data": tiny()}, "tables of settings, .* not Bundle"),
        ({"data": {"n": 100}}, "The data has no name"),
        ({"method": {"q": 0.5}}, "The method has no name"),
        ({"recipe": Recipe()}, "not Recipe"),
    ],
)
def test_what_is_no_name_and_no_table_of_settings_is_refused(given, said):
    base = {"data": "toy", "method": "erm", "recipe": None} | given
    with pytest.raises(UserError, match=said):
        run_sweep(base["data"], "lr", [0.1], method=base["method"], recipe=base["recipe"])
    with pytest.raises(UserError, match=said):
        suggest_lr(base["data"], method=base["method"], recipe=base["recipe"])


def test_what_an_alias_switches_on_reaches_the_run_and_the_base_stays():
    base = {"recipe": {"lr": 0.5}, "data": {"name": "toy"}}
    found = make_axis("focal.gamma,lr=0.1", "1,5").settings(base, 5)
    assert found["recipe"] == {"lr": 0.1, "loss": "focal", "focal_gamma": 5}
    assert base["recipe"] == {"lr": 0.5}


def test_the_studys_annealing_is_one_fall_a_thousand_steps_on():
    """Figure 22: with 600 steps an epoch, the first smaller step is the 401st of the second one."""
    spec = tomllib.loads((Path(__file__).parents[2] / "studies/sweeps/colored_mnist_annealed.toml").read_text())
    (sweep,) = spec["sweep"]
    for lr in sweep["values"]:
        factor = schedule(Recipe(**make_axis("lr", [lr]).settings(spec, lr)["recipe"]), 600, 1800)
        assert np.unique(factor).tolist() == [0.1, 1.0] and (factor[:1000] == 1).all() and (factor[1000:] == 0.1).all()


def test_values_go_from_gentle_to_extreme():
    assert make_axis("lr", "1,0.01,1e-3").values == (1e-3, 0.01, 1)
    assert make_axis("batch_size", "25,100,50").values == (100, 50, 25)
    assert make_axis("optimizer", "sgd,adam").values == ("sgd", "adam")
    assert not make_axis("optimizer", "sgd,adam").ordered
    towards = [make_axis(name, "1,2").towards for name in ("lr", "batch_size", "momentum", "l2", "asam.rho")]
    assert towards == [True, True, True, False, False]  # larger steps are preferred, not more of anything


@pytest.mark.parametrize(
    ("over", "values", "match"),
    [
        ("lr", "", "needs values"),
        ("lr", "0.1,", "needs values"),
        ("lr", "0.1,0.10", "twice"),
        ("lr", "1,1.0", "twice"),
        ("nonsense", "1,2", "no setting 'nonsense'"),
        ("lr,lr=0.1", "1,2", "cannot be fixed as well"),
        ("lr,momentum", "1,2", "setting=value"),
    ],
)
def test_mistakes_in_what_is_swept(over, values, match):
    with pytest.raises(UserError, match=match):
        make_axis(over, values)
