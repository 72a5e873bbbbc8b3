"""From names and tables of settings to methods, datasets, networks and recipes: `find` is the one function for all.

A name is one of ours, an entry point (`spurless.methods`, `spurless.data.sets`, `spurless.nets`) of an installed
package, or `package.module:Class`. Imports what a name needs, when it needs it.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import os
import re
import sys
from collections.abc import Mapping
from importlib import import_module, metadata
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, get_type_hints

from spurless.core.errors import SettingError, UserError, first_line, unknown
from spurless.core.settings import arguments, build, check, resolve, settings_of, values_of

if TYPE_CHECKING:
    from spurless.core.data import Bundle
    from spurless.core.method import Method
    from spurless.core.recipe import Recipe
    from spurless.data.coding import Coding

T = TypeVar("T", "Method", "Recipe")
Kind = Literal["method", "data", "net", "recipe"]

# Datasets that take a path instead of a name: folder:PATH, csv:FILE.
PLACES = {"folder": "spurless.data.folder:Folder", "csv": "spurless.data.csv:Csv"}
# What stands before a colon and belongs to us; anything else there is a module.
PREFIXES = {"data": tuple(PLACES), "net": ("timm", "hf")}


class Source(NamedTuple):
    """Where the names of a kind come from, and what an object of another package has to be."""

    noun: str
    table: str  # module:NAME of our own
    group: str | None  # of entry points
    must_be: str


SOURCES: dict[Kind, Source] = {
    "method": Source("method", "spurless.methods:METHODS", "spurless.methods", "a subclass of spurless.Method"),
    "data": Source(
        "dataset",
        "spurless.data.sets:DATASETS",
        "spurless.data.sets",
        "a function (root, **settings) -> spurless.Bundle, with that annotation",
    ),
    "net": Source(
        "net",
        "spurless.nets:NETS",
        "spurless.nets",
        "a torch.nn.Module, or a function annotated to return one, that takes (shape, classes, **settings)",
    ),
    "recipe": Source("recipe", "spurless.core.recipe:RECIPES", None, "a spurless.Recipe"),
}


def find(kind: Kind, name: str) -> Any:
    """The object of a name: a method's class, a dataset's `load`, a network's builder, a recipe."""
    name = data_name(name) if kind == "data" else name
    check_name(kind, name)
    if name in _table(kind):
        return _ours(kind, name)
    prefix, _, rest = name.partition(":")
    if rest and prefix in PREFIXES.get(kind, ()):
        return _prefixed(prefix, rest)
    path = entry_points(kind).get(name, name)
    target = _imported(path, f"{SOURCES[kind].noun} '{name}'")
    if not _is_a(kind, target):
        raise SettingError(f"{SOURCES[kind].noun} '{name}': {path} is not {SOURCES[kind].must_be}.")
    return target


def check_name(kind: Kind, name: str) -> None:
    """Refuse a name that nothing has, without importing what it names."""
    name = data_name(name) if kind == "data" else name
    ours = _table(kind)
    prefix, _, rest = name.partition(":")
    if name in ours or (rest and prefix in PREFIXES.get(kind, ())) or is_path(entry_points(kind).get(name, name)):
        return
    listed = [*ours, *entry_points(kind), *(f"{p}:{'PATH' if p == 'folder' else 'FILE'}" for p in PLACES)]
    raise unknown(SOURCES[kind].noun, name, listed if kind == "data" else [*ours, *entry_points(kind)])


def _table(kind: Kind) -> Mapping[str, Any]:
    module, _, name = SOURCES[kind].table.partition(":")
    table: Mapping[str, Any] = getattr(import_module(module), name)
    return table


def _ours(kind: Kind, name: str) -> Any:
    entry = _table(kind)[name]
    if kind == "recipe":
        return entry
    if kind == "data":
        return import_module(f"spurless.data.sets.{name}").load
    if kind == "net":
        if name.endswith(":NAME"):  # as the list writes it
            raise SettingError(f"There is no net '{name}': replace NAME by the network's own name.")
        return getattr(import_module("spurless.nets"), name)
    module, _, own = entry.where.partition(":")
    return getattr(import_module(f"spurless.methods.{module}"), own)


def _prefixed(prefix: str, rest: str) -> Any:
    if prefix in PLACES:
        module, _, name = PLACES[prefix].partition(":")
        return getattr(import_module(module), name)
    if prefix == "timm":
        return import_module("spurless.nets.zoo").timm_builder(rest)
    return import_module("spurless.nets.text").hf_builder(rest)


@functools.cache
def entry_points(kind: Kind) -> dict[str, str]:
    """What installed packages offer: `package.module:Class` by name. A name of ours stays ours."""
    group = SOURCES[kind].group
    offered = {point.name: point.value for point in metadata.entry_points(group=group)} if group else {}
    return {name: path for name, path in sorted(offered.items()) if name not in _table(kind)}


def is_ours(kind: Kind, name: str) -> bool:
    return name.partition(":")[0] in PREFIXES.get(kind, ()) or name in _table(kind)


def is_path(name: str) -> bool:
    """Whether a name has the form package.module:Class.

    >>> is_path("mypackage.methods:Mine"), is_path("pgd"), is_path("folder:photos/a")
    (True, False, False)
    """
    return re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", name) is not None


def is_installed(path: str) -> bool:
    """Whether the module of `package.module:name` is ours, of an installed package, or imported already.

    What a file names is imported only then: a file that came from elsewhere must not run a module that lies beside it.
    """
    module = path.partition(":")[0]
    return module in sys.modules or module.partition(".")[0] in ("spurless", *metadata.packages_distributions())


def check_installed(kind: Kind, name: Any, where: object) -> None:
    """Refuse a name that a file gives and that stands for a module that is not installed."""
    if isinstance(name, str) and not is_ours(kind, name) and is_path(name) and not is_installed(name):
        raise SettingError(
            f"{where} names the {SOURCES[kind].noun} {name}, whose module is not installed: nothing was imported. "
            "Install its package, or pass the object from Python."
        )


def _imported(path: str, what: str) -> Any:
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name)
    except AttributeError:
        raise SettingError(f"{what}: {module} has no '{name}'.") from None
    except ModuleNotFoundError as error:
        if f"{module}.".startswith(f"{error.name}."):
            hint = "Install its package, or put its folder on PYTHONPATH."
            raise SettingError(f"{what}: there is no module '{error.name}'. {hint}") from None
        raise SettingError(f"{what}: importing {module} fails ({first_line(error)}).") from error
    except Exception as error:  # whatever the module does when it is imported
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise SettingError(f"{what}: importing {module} fails ({reason}).") from error


def _is_a(kind: Kind, target: Any) -> bool:
    """Whether it declares itself to be of this kind: judged before anything of it is called."""
    if kind == "method":
        from spurless.core.method import Method

        return isinstance(target, type) and issubclass(target, Method)
    if kind == "recipe":
        from spurless.core.recipe import Recipe

        return isinstance(target, Recipe)
    if kind == "net":
        from torch.nn import Module
    made = target
    if kind == "data" or not isinstance(target, type):
        try:
            made = get_type_hints(target).get("return")
        except (TypeError, NameError, AttributeError):
            return False
    return isinstance(made, type) and issubclass(made, Module if kind == "net" else _bundle())


def code_of(target: Any) -> str | None:
    """A hash of the source of an object of another package, whose code may change under its name; None for ours."""
    if (getattr(target, "__module__", None) or "spurless").partition(".")[0] == "spurless":
        return None
    try:
        return hashlib.sha256(inspect.getsource(target).encode()).hexdigest()[:16]
    except (OSError, TypeError):
        return None


def method_class(name: str) -> type[Method]:
    kind: type[Method] = find("method", name)
    return kind


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
    return build(kind, resolve(kind, given, "method"))


def name_of(method: Method) -> str:
    """The registered name of a method, or its class's name; a name that is taken is marked as one's own."""
    kind, name = type(method), type(method).__name__.lower()
    own = f"{kind.__module__.removeprefix('spurless.methods.')}:{kind.__name__}"
    ours = _table("method")
    if kind.__module__.startswith("spurless.methods."):
        return next((registered for registered, entry in ours.items() if entry.where == own), name)
    offered = next((registered for registered, path in entry_points("method").items() if path == own), None)
    return offered or (f"own-{name}" if name in ours else name)


def path_of(method: Method) -> str | None:
    """`package.module:Class` of a method of another package, by which it is found again; None where it cannot be."""
    kind = type(method)
    module = sys.modules.get(kind.__module__)
    if kind.__module__ == "__main__" or kind.__module__.partition(".")[0] == "spurless":
        return None
    return f"{kind.__module__}:{kind.__name__}" if getattr(module, kind.__name__, None) is kind else None


def saved_method(table: Mapping[str, Any]) -> Method | None:
    """The method of a file's table of settings; None where it was made in a script, and only that script has it."""
    given = {k: v for k, v in table.items() if k not in ("class", "code")}
    name = str(given.get("name"))
    if name not in _table("method") and name not in entry_points("method"):
        name = str(table.get("class"))
        if not is_path(name) or not is_installed(name):
            return None
    kind = method_class(name)
    return build(kind, resolve(kind, {k: v for k, v in given.items() if k in settings_of(kind)}, "method"))


def data_name(name: str, root: str | Path | None = None) -> str:
    """The name of a dataset as it is, or the path of a folder or file as folder:PATH or csv:FILE.

    >>> data_name("/"), data_name("toy"), data_name("")
    ('folder:/', 'toy', '')
    """
    if is_ours("data", name) or is_path(name) or name in entry_points("data"):
        return name
    from spurless.core.files import data_root

    for path in (Path(name).expanduser(), data_root(root) / name) if name else ():
        if path.is_dir():
            return f"folder:{name}"
        if path.is_file():
            return f"csv:{name}"
    return name


def as_named(data: Any, root: str | Path | None = None) -> Any:
    """Data as it was asked for, a path or name in it as `data_name` writes it.

    >>> as_named({"name": "/", "size": 80}), as_named("toy"), as_named(3)
    ({'name': 'folder:/', 'size': 80}, 'toy', 3)
    """
    if isinstance(data, str):
        return data_name(data, root)
    if isinstance(data, Mapping) and isinstance(data.get("name"), str):
        return dict(data) | {"name": data_name(data["name"], root)}
    return data


def load_data(
    spec: Any,
    root: str | Path | None = None,
    *,
    coding: Coding | None = None,
    only_scored: bool = False,
) -> Bundle:
    """A dataset from its name, from {"name": ..., setting: value}, from the path of a folder of images or of a table
    (folder:PATH, csv:FILE), or from any object that holds data (see `Bundle.of`).

    For a trained model that is given other data than its own: `coding`, how the columns of its table became numbers;
    `only_scored`, whether a folder or a table is scored whole, with no splits drawn from it.
    """
    from spurless.core.files import data_root
    from spurless.data.pseudo import split_settings, with_attributes

    if not isinstance(spec, str):
        from spurless.data.anything import from_object, is_named

        if not is_named(spec):
            return from_object(spec)
    name, given = name_and_settings(spec if isinstance(spec, Mapping) else os.fspath(spec), "data")
    name = data_name(name, root)
    target = find("data", name)
    given, attributes = split_settings(given)
    chosen = resolve(target, given, "data")
    kind, _, path = name.partition(":")
    load = functools.partial(target(**chosen).read, path) if kind in PLACES else functools.partial(target, **chosen)
    asked = {"coding": coding, "only_scored": only_scored}
    # A loader takes them as arguments; what is a setting of that name, as parity's `coding`, is another thing.
    parameters = inspect.signature(load).parameters.keys() - chosen.keys()
    accepted = {argument: value for argument, value in asked.items() if argument in parameters}
    bundle = load(root=data_root(root), **accepted)
    if not isinstance(bundle, _bundle()):
        raise SettingError(f"dataset '{name}' loads {type(bundle).__name__}, and not a spurless.Bundle.")
    if attributes is not None:
        bundle, chosen = with_attributes(bundle, attributes), chosen | {"attribute": str(attributes)}
    return dataclasses.replace(bundle, settings=chosen | {"source": name})


def _bundle() -> type[Bundle]:
    from spurless.core.data import Bundle

    return Bundle


def make_recipe(spec: Recipe | str | Mapping[str, Any] | None, data: Bundle) -> Recipe:
    """A recipe from its name, from {"name": ..., field: value} (without a name: the dataset's own), or as it is."""
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
    if not isinstance(spec, (str, Mapping, NoneType)):
        raise UserError(f"{spec!r} is no recipe: give a name, {{'name': ..., field: value}}, or a Recipe.")
    given = {"name": spec} if isinstance(spec, str) else dict(spec or {})
    name = given.pop("name", None)
    if name is None:
        return None, given
    return find("recipe", str(name)), given


def _check_values(fields: Mapping[str, Any]) -> None:
    """What a type and a range cannot say."""
    if fields.get("augment", "data") not in ("data", "none"):
        from spurless.core.augment import preset

        preset(fields["augment"])
    betas = fields.get("betas", (0, 0))
    if len(betas) != 2 or max(betas) >= 1:
        raise UserError(f"recipe.betas = {list(betas)} is not allowed; it takes two numbers below 1.")


def _checked(made: T, where: str) -> T:
    """An object whose settings were given to its class, which takes anything: each in its right type and range."""
    checked = check(settings_of(type(made)), values_of(made), where, now={})
    return dataclasses.replace(made, **arguments(type(made), checked))


def name_and_settings(spec: str | Mapping[str, Any], what: str) -> tuple[str, dict[str, Any]]:
    """Of a name, or of {"name": ..., setting: value}."""
    if isinstance(spec, str):
        return spec, {}
    given = dict(spec)
    if not isinstance(given.get("name"), str):
        raise UserError(f"The {what} has no name: give {{'name': ..., setting: value}}.")
    return given.pop("name"), given
