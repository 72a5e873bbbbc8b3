"""From names and tables of settings to methods, data sets and recipes. Imports what a name needs, when it needs it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar

from spurless.core.errors import UserError, unknown
from spurless.core.settings import check, resolve, settings_of
from spurless.data.sets import DATASETS
from spurless.methods import METHODS

if TYPE_CHECKING:
    from spurless.core.data import Bundle
    from spurless.core.method import Method
    from spurless.core.recipe import Recipe

T = TypeVar("T", "Method", "Recipe")

# Data sets that take a place instead of a name: folder:PATH, csv:FILE.
PLACES = {"folder": "spurless.data.folder", "csv": "spurless.data.csv"}


def method_class(name: str) -> type[Method]:
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    module, kind = METHODS[name].where.split(":")
    return getattr(import_module(f"spurless.methods.{module}"), kind)


def make_method(spec: Method | str | Mapping[str, Any]) -> Method:
    """A method from its name, from {"name": ..., setting: value}, or as it is, if its settings are allowed."""
    from spurless.core.method import Method

    if isinstance(spec, Method):
        return _checked(spec, "method") if type(spec).__module__.startswith("spurless.methods.") else spec
    if not isinstance(spec, (str, Mapping)):
        raise UserError(
            f"{spec!r} is no method: give a name, {{'name': ..., setting: value}}, or an object like PGD()."
        )
    name, given = name_and_settings(spec, "method")
    kind = method_class(name)
    return kind(**resolve(kind, given, "method"))


def name_of(method: Method) -> str:
    """The registered name of a method, or its class's name; a name that is taken is marked as one's own."""
    kind, name = type(method), type(method).__name__.lower()
    own = f"{kind.__module__.removeprefix('spurless.methods.')}:{kind.__name__}"
    registered = next((known for known, entry in METHODS.items() if entry.where == own), None)
    return registered or (f"own-{name}" if name in METHODS else name)


def load_data(spec: Bundle | str | Mapping[str, Any], root: str | Path | None = None) -> Bundle:
    """A data set from its name, from {"name": ..., setting: value}, from folder:PATH or csv:FILE, or as it is."""
    from spurless.core.files import data_root

    if not isinstance(spec, (str, Mapping)):
        from spurless.core.data import Bundle

        if not isinstance(spec, Bundle):
            raise UserError(f"{type(spec).__name__} is no data set: give a name, or a Bundle (see Bundle.from_arrays).")
        return spec
    name, given = name_and_settings(spec, "data")
    kind, _, place = name.partition(":")
    if kind in PLACES and place:
        load = import_module(PLACES[kind]).load
        chosen = resolve(load, given, "data")
        bundle = load(place, root=data_root(root), **chosen)
    elif name in DATASETS:
        load = import_module(f"spurless.data.sets.{name}").load
        chosen = resolve(load, given, "data")
        bundle = load(root=data_root(root), **chosen)
    else:
        raise unknown("data set", name, [*DATASETS, "folder:PATH", "csv:FILE"])
    return dataclasses.replace(bundle, settings=chosen | {"source": name})


def make_recipe(spec: Recipe | str | Mapping[str, Any] | None, data: Bundle) -> Recipe:
    """A recipe from its name, from {"name": ..., field: value} (without a name: the data set's own), or as it is."""
    from spurless.core.recipe import Recipe

    if isinstance(spec, Recipe):
        made = _checked(spec, "recipe")
        _check_values(dataclasses.asdict(made))
        return made
    base, given = _base_recipe(spec)
    checked = resolve(Recipe, given, "recipe", dataclasses.asdict(base or data.recipe))
    _check_values(checked)
    return Recipe(**checked)


def check_recipe(spec: str | Mapping[str, Any]) -> None:
    """Find the mistakes in a recipe before the data is there, of which it may be a variant."""
    from spurless.core.recipe import Recipe

    base, given = _base_recipe(spec)
    _check_values(check(settings_of(Recipe), given, "recipe", now=dataclasses.asdict(base) if base else {}))


def _base_recipe(spec: str | Mapping[str, Any] | None) -> tuple[Recipe | None, dict[str, Any]]:
    """The named recipe, if there is one, and the fields that are given."""
    from spurless.core.recipe import RECIPES

    if not isinstance(spec, (str, Mapping, NoneType)):
        raise UserError(f"{spec!r} is no recipe: give a name, {{'name': ..., field: value}}, or a Recipe.")
    given = {"name": spec} if isinstance(spec, str) else dict(spec or {})
    name = given.pop("name", None)
    if name is None:
        return None, given
    if not isinstance(name, str) or name not in RECIPES:
        raise unknown("recipe", str(name), RECIPES)
    return RECIPES[name], given


def _check_values(fields: Mapping[str, Any]) -> None:
    """What a type and a range cannot say."""
    from spurless.core.augment import preset

    if fields.get("augment", "data") != "data":
        preset(fields["augment"])
    betas = fields.get("betas", (0, 0))
    if len(betas) != 2 or max(betas) >= 1:
        raise UserError(f"recipe.betas = {list(betas)} is not allowed; it takes two numbers below 1.")


def _checked(made: T, where: str) -> T:
    """An object whose settings were given to its class, which takes anything: each in its right type and range."""
    known = settings_of(type(made))
    return dataclasses.replace(made, **check(known, {name: getattr(made, name) for name in known}, where, now={}))


def name_and_settings(spec: str | Mapping[str, Any], what: str) -> tuple[str, dict[str, Any]]:
    """Of a name, or of {"name": ..., setting: value}."""
    if isinstance(spec, str):
        return spec, {}
    given = dict(spec)
    if not isinstance(given.get("name"), str):
        raise UserError(f"The {what} has no name: give {{'name': ..., setting: value}}.")
    return given.pop("name"), given
