"""Settings: what is declared, what is allowed, and how text becomes a value."""

from importlib import import_module
from typing import Annotated, Literal

import numpy as np
import pytest

from spurless.core.errors import UserError
from spurless.core.files import from_toml, to_toml
from spurless.core.recipe import Recipe
from spurless.core.settings import Range, Setting, from_text, resolve, settings_of
from spurless.data.sets import DATASETS
from spurless.methods import METHODS
from spurless.methods.lff import LfF
from spurless.nets import NETS, builder
from spurless.registry import PLACES, check_recipe, find, load_data, make_method, make_recipe, method_class
from tests.support.worlds import Peek, tiny

TARGETS = {f"method {name}": method_class(name) for name in METHODS}
TARGETS |= {f"net {name}": builder(name) for name in NETS if ":" not in name}
TARGETS |= {f"data {name}": import_module(f"spurless.data.sets.{name}").load for name in DATASETS}
TARGETS |= {f"data {name}:": find("data", f"{name}:PLACE") for name in PLACES}
TARGETS["recipe"] = Recipe


def declared():
    return [pytest.param(target, id=name) for name, target in TARGETS.items()]


@pytest.mark.parametrize("target", declared())
def test_every_setting_has_a_meaning_and_a_default_that_it_allows_itself(target):
    for setting in settings_of(target).values():
        assert setting.meaning, f"{setting.name} has no meaning"
        assert setting.check(setting.default, "here") == setting.default


@pytest.mark.parametrize("target", declared())
def test_settings_come_back_from_a_runs_toml_as_they_were(target):
    defaults = resolve(target, {}, "here")
    assert resolve(target, from_toml(to_toml({"here": defaults}))["here"], "here") == defaults


@pytest.mark.parametrize("target", declared())
def test_an_unknown_setting_lists_all_others_with_their_meaning(target):
    with pytest.raises(UserError) as caught:
        resolve(target, {"no_such_thing": 1}, "here")
    for setting in settings_of(target).values():
        assert f"here.{setting.path} ({setting.allowed}; now {setting.default!r}): {setting.meaning}" in str(
            caught.value
        )


# (kind, range, as it is typed, what comes out)
FITTING = [
    (float, Range(0, 1), "0.9", 0.9),
    (float, Range(0, 1), "1", 1.0),
    (float, Range(0, 1), 0, 0.0),
    (float, Range(), "1e-3", 1e-3),
    (int, Range(0), "5", 5),
    (int, Range(0), 5.0, 5),
    (int, Range(), " 7 ", 7),
    (int, Range(1), np.int64(7), 7),  # as loops over arrays give them
    (float, Range(0, 1), np.float32(0.5), 0.5),
    (float, Range(), np.int32(2), 2.0),
    (tuple[int, ...], Range(1), [np.int64(16), 8], (16, 8)),
    (bool, Range(), "true", True),
    (bool, Range(), "False", False),  # as Python writes it
    (str, Range(), "5", "5"),
    (str, Range(), "none", "none"),
    (str | None, Range(), "none", None),
    (str | None, Range(), "2024", "2024"),  # a column may be called so
    (str | None, Range(), "true", "true"),
    (float | None, Range(0), "none", None),
    (float | None, Range(0), "0.5", 0.5),
    (int | str, Range(), "5", 5),
    (int | str, Range(), "five", "five"),
    (Literal["a", "b"], Range(), "b", "b"),
    (Literal[1, 2], Range(), "2", 2),
    (tuple[int, ...], Range(1), "[16, 8]", (16, 8)),
    (tuple[int, ...], Range(1), "16", (16,)),
    (tuple[int, ...], Range(1), [16, 8], (16, 8)),
    (tuple[float, float], Range(0, 1), "[0.9, 0.99]", (0.9, 0.99)),
    (tuple[str, ...], Range(), "place", ("place",)),
    (tuple[str, ...], Range(), "1", ("1",)),
    (tuple[str, ...], Range(), '["place", "sex"]', ("place", "sex")),
    (tuple[str, ...], Range(), "[place, sex]", ("place", "sex")),  # what is left of the line above in a shell
    (tuple[str, ...], Range(), "[]", ()),
    (tuple[str, ...] | None, Range(), "none", None),
    (tuple[str, ...] | None, Range(), "2024", ("2024",)),
]


@pytest.mark.parametrize(("kind", "span", "given", "want"), FITTING)
def test_values_that_fit(kind, span, given, want):
    got = Setting("x", kind, None, range=span).check(given, "here")
    assert got == want and type(got) is type(want)


# (kind, range, as it is typed, how the message says what is allowed)
WRONG = [
    (float, Range(0, 1), "2", "a number from 0 to 1"),
    (float, Range(0, 1), "-0.1", "a number from 0 to 1"),
    (float, Range(0), "nan", "a number at least 0"),
    (float, Range(0), "inf", "a number at least 0"),
    (float, Range(None, 3), "4", "a number at most 3"),
    (float, Range(), "many", "a number"),
    (float, Range(), "", "a number"),
    (float, Range(), "true", "a number"),
    (float, Range(), [1.0], "a number"),
    (int, Range(1), "1.5", "a whole number at least 1"),
    (bool, Range(), "yes", "true or false"),
    (bool, Range(), 1, "true or false"),
    (str, Range(), 5, "text"),
    (float | None, Range(0), "-1", "a number at least 0 or none"),
    (Literal["sgd", "adam"], Range(), "sdg", "one of sgd, adam"),
    (Literal[0, 1], Range(), True, "one of 0, 1"),
    (tuple[int, ...], Range(1), "[16, 0]", "a list, each a whole number at least 1"),
    (tuple[int, ...], Range(1), "[16, a]", "a list, each a whole number at least 1"),
    (tuple[float, float], Range(), "0.9", "a list of 2, each a number"),
    (tuple[float, float], Range(), "[1, 2, 3]", "a list of 2, each a number"),
]


@pytest.mark.parametrize(("kind", "span", "given", "allowed"), WRONG)
def test_values_that_do_not_fit_name_the_field_and_what_is_allowed(kind, span, given, allowed):
    with pytest.raises(UserError) as caught:
        Setting("x", kind, None, range=span).check(given, "here")
    assert str(caught.value) == f"here.x = {given!r} is not allowed; it takes {allowed}."


def test_text_that_is_not_toml_stays_text():
    assert from_text('" injected = 1') == '" injected = 1'
    assert from_text("1\nw = 2") == "1\nw = 2"


def test_only_annotated_parameters_are_settings():
    def load(root=None, plain: int = 3, rho: Annotated[float, "a share", Range(0, 1)] = 0.5): ...

    assert list(settings_of(load)) == ["rho"]
    with pytest.raises(UserError, match=r"no setting 'data\.root'"):
        resolve(load, {"root": "/"}, "data")


def test_a_setting_without_a_default_must_be_given():
    def load(path: Annotated[str, "where it is"]): ...

    with pytest.raises(UserError, match=r"data\.path has no default \(where it is\)"):
        resolve(load, {}, "data")
    assert resolve(load, {"path": "x"}, "data") == {"path": "x"}


def test_the_suggestion_looks_at_the_name_alone():
    """Not at the section before it, which every name shares."""

    def net(bias: Annotated[bool, "add one"] = True): ...

    with pytest.raises(UserError) as caught:
        resolve(net, {"widths": 3}, "net")
    assert "did you mean" not in str(caught.value)
    with pytest.raises(UserError, match=r"did you mean 'net\.bias'"):
        resolve(net, {"bais": 3}, "net")


# Recipes


def test_a_recipe_without_a_name_is_the_data_sets_own():
    data = tiny()  # lr 0.01, 3 epochs
    assert make_recipe(None, data) == data.recipe
    changed = make_recipe({"epochs": "4"}, data)
    assert (changed.lr, changed.epochs, changed.batch_size) == (0.01, 4.0, 32)
    named = make_recipe({"name": "pgd-cmnist", "epochs": 4}, data)
    assert (named.optimizer, named.lr, named.epochs) == ("sgd", 0.02, 4.0)


def test_the_list_of_recipe_settings_shows_the_values_of_this_run():
    with pytest.raises(UserError, match=r"recipe\.lr \(a number at least 0; now 0\.01\)"):
        make_recipe({"epoch": 4}, tiny())
    with pytest.raises(UserError, match=r"recipe\.lr \(a number at least 0; now 0\.02\)"):
        check_recipe({"name": "pgd-cmnist", "epoch": 4})
    with pytest.raises(UserError, match=r"recipe\.lr \(a number at least 0\):"):  # the dataset decides; it is not here
        check_recipe({"epoch": 4})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "pgd-mnist"}, "did you mean 'pgd-cmnist'"),
        ({"name": ["erm"]}, "There is no recipe"),
        ({"betas": 0.9}, "two numbers below 1"),
        ({"betas": [0.9, 1.0]}, "two numbers below 1"),
        ({"augment": "pgd_digit"}, "did you mean 'pgd_digits'"),
        ({"epochs": -1}, "recipe.epochs = -1 is not allowed; it takes a number at least 0"),
    ],
)
def test_a_wrong_recipe_is_found_with_and_without_the_data(given, said):
    with pytest.raises(UserError, match=said):
        check_recipe(given)
    with pytest.raises(UserError, match=said):
        make_recipe(given, tiny())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("optimizer", "SGD"), ("loss", "Focal"), ("precision", "fp16"), ("selection", "val_acc"), ("schedule", "cosin"),
        ("batch_size", 0), ("batch_size", 32.5), ("lr", -1.0), ("betas", (0.9,)), ("augment", "fli"),
    ],
)  # fmt: skip
def test_a_recipe_that_was_made_in_python_is_checked_as_any_other(field, value):
    """The class takes anything, and what nobody knows would be trained as something else."""
    with pytest.raises(UserError, match=f"recipe.{field} = |preset 'fli'"):
        make_recipe(Recipe(**{field: value}), tiny())
    made = make_recipe(Recipe("sgd", lr=np.float32(0.5), epochs=3), tiny())
    assert made == Recipe("sgd", lr=0.5, epochs=3) and type(made.lr) is float


def test_a_method_that_was_made_in_python_is_checked_as_any_other():
    with pytest.raises(UserError, match=r"method\.q = 5 is not allowed; it takes a number from 0 to 1"):
        make_method(LfF(q=5))
    assert make_method(LfF(q=np.float32(0.5))) == LfF(q=0.5)
    own = Peek()
    assert make_method(own) is own  # of whose settings nothing is known


@pytest.mark.parametrize(("make", "given"), [(make_method, LfF), (load_data, None), (check_recipe, 3)])
def test_what_is_no_method_data_set_or_recipe_is_said_to_be_none(make, given):
    with pytest.raises(UserError, match="is no (method: give a name|dataset; give a|recipe: give a name)"):
        make(given)
