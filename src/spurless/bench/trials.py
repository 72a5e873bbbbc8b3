"""A trial: one training of a benchmark, named by a hash of the settings that decide its outcome."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spurless import __version__
from spurless.core.errors import UserError
from spurless.core.files import atomic
from spurless.core.settings import resolve, settings_of

SECTIONS = ("data", "method", "net", "recipe")
KEYS = ".keys.json"
HOW = ("compile",)  # of a recipe: how it is computed, as the device is, and not what

# Keys of trials that were checked before, by their settings as given: a folder that is resumed brings its own, so that
# a start with nothing left to do does not have to import torch.
_known: dict[str, str] = {}
_remembered: dict[Path, set[str]] = {}  # by folder: what is new in one may be old in another


@dataclass(frozen=True)
class Trial:
    """One training: what `fit` is called with. The labels say where it belongs in a table; they decide nothing.

    Nor do `after` and `dynamics`: what is measured when it is trained, and whether its steps are watched.
    """

    data: dict[str, Any]
    method: dict[str, Any]
    net: dict[str, Any] | None = None  # None: the dataset's own
    recipe: dict[str, Any] = field(default_factory=dict)  # without a name: over the dataset's own
    seed: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    after: str | None = None  # "module:function", called with (result, bundle, folder); its dict is row["extra"]
    dynamics: dict[str, Any] | bool | None = None  # of fit: True, or its settings

    @functools.cached_property
    def key(self) -> str:
        """A short hash of all settings that are not at their default: the same in every process and on every machine.

        A UserError if a setting is wrong.
        """
        given = digest([__version__, self.given()])
        if given not in _known:
            _known[given] = digest([__version__.rsplit(".", 1)[0], self.settings()])
        return _known[given]

    @property
    def folder(self) -> str:
        """Its run folder, below the benchmark's."""
        return f"cells/{self.key}"

    def given(self) -> dict[str, Any]:
        """As it was written, without what decides nothing."""
        return {name: getattr(self, name) for name in (*SECTIONS, "seed")}

    def whole(self) -> dict[str, Any]:
        """All of it, to be sent to another process: Trial(**whole) is the same."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def settings(self) -> dict[str, Any]:
        """All that decides the outcome and is not at its default; a UserError if something is wrong."""
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise UserError(f"seed = {self.seed!r} is not allowed; it takes a whole number, 0 or more.")
        return {
            "data": _changed("data", _text(self.data)),
            "method": _changed("method", _text(self.method)),
            "net": None if self.net is None else _changed("net", _text(self.net)),
            "recipe": {k: v for k, v in _recipe(_text(self.recipe)).items() if k not in HOW},
            "seed": self.seed,
        }

    def kind(self) -> str:
        """What trials share that differ in nothing but their seed: they take equally long."""
        return _text({k: v for k, v in self.given().items() if k != "seed"})


def digest(value: Any) -> str:
    """Sixteen letters that stand for a JSON-able value.

    >>> digest({"b": (1, 2), "a": 0.5}) == digest({"a": 0.5, "b": [1, 2]})
    True
    """
    return hashlib.sha256(_text(value).encode()).hexdigest()[:16]


def remember(out: Path) -> None:
    """Take the keys that a folder's trials had before, unless the package has changed since."""
    _remembered.pop(out.resolve(), None)  # of a folder that was there by this name before
    try:
        saved = json.loads((out / KEYS).read_text(encoding="utf-8"))
        if saved["package"] == _package():
            _known.update(saved["keys"])
            _remembered[out.resolve()] = set(saved["keys"])
    except (OSError, ValueError, KeyError, TypeError):
        return


def save_keys(out: Path, trials: list[Trial]) -> None:
    """Leave the keys of these trials for the next start."""
    keys = {digest([__version__, trial.given()]): trial.key for trial in trials if _is_ours(trial)}
    try:
        before = json.loads((out / KEYS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = {}
    if before.get("package") == _package():
        if keys.items() <= before["keys"].items():
            return
        keys = before["keys"] | keys
    with atomic(out / KEYS) as unfinished:
        unfinished.write_text(json.dumps({"package": _package(), "keys": keys}), encoding="utf-8")


def _is_ours(trial: Trial) -> bool:
    """Whether nothing of it is of another package, whose code and defaults may change under its name."""
    from spurless.registry import is_ours

    named = {"data": trial.data, "method": trial.method, "net": trial.net or {}}
    return all(is_ours(section, table["name"]) for section, table in named.items() if "name" in table)  # type: ignore[arg-type]


@functools.cache
def _package() -> str:
    """Which state of the package this is: a setting that gained another default must not be looked up."""
    here = Path(__file__).parents[1]
    files = [(str(p.relative_to(here)), p.stat().st_size, p.stat().st_mtime_ns) for p in sorted(here.rglob("*.py"))]
    return digest([str(here), files])


def stale(out: Path, pairs: Iterable[tuple[Trial, Mapping[str, Any]]]) -> None:
    """Refuse rows of a folder that were made when a setting that is not given had another default.

    Their key is the same.
    """
    checked = _remembered.get(out.resolve(), set())
    for trial, row in pairs:
        if digest([__version__, trial.given()]) in checked:
            continue  # made or checked by the package as it is
        made = row.get("settings") or {}
        now = {"data": _whole("data", _text(trial.data)), "method": _whole("method", _text(trial.method))}
        if "name" in trial.recipe:
            now["recipe"] = _whole("recipe", _text(trial.recipe))
        for section, whole in now.items():
            for name, value in whole.items():
                if section == "recipe" and name in HOW:
                    continue
                was = made.get(section, {}).get(name, value)
                if was != value and _text(was) != _text(value):  # 40 is 40.0, and a list is a tuple
                    raise UserError(
                        f"{trial.folder} was made with {section}.{name} = {was!r}, which would be {value!r} by now. "
                        "Remove that folder to train it again, or name another --out."
                    )


# Each distinct table is checked once, however many trials hold it: hence text, which can be a key.


@functools.cache
def _whole(section: str, text: str) -> dict[str, Any]:
    """All settings of a table, those at their default too; a UserError if one is wrong."""
    target, given = _target(section, text)
    return resolve(target, given, section)


@functools.cache
def _changed(section: str, text: str) -> dict[str, Any]:
    """The settings that differ from the default: one that is added later, with a default, changes no key."""
    from spurless.registry import code_of

    target, _ = _target(section, text)
    defaults = {k: s.default for k, s in settings_of(target).items()}
    chosen = {k: v for k, v in _whole(section, text).items() if _text(v) != _text(defaults[k])}
    name = json.loads(text)["name"]
    code = code_of(target)  # of another package: its code decides, too
    return chosen if section == "recipe" else {"name": name} | chosen | ({"code": code} if code else {})


@functools.cache
def _recipe(text: str) -> dict[str, Any]:
    """A named recipe as what it stands for; without a name it is over the dataset's, so every given field counts."""
    from spurless.registry import check_recipe

    given = json.loads(text)
    check_recipe(given)
    if "name" in given:
        return _changed("recipe", text)
    whole = _whole("recipe", text)
    return {"over": "data"} | {k: whole[k] for k in given}


@functools.cache
def _target(section: str, text: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """What a table is the settings of, and the settings that it gives."""
    from spurless.registry import find, make_method

    given = json.loads(text)
    name = given.pop("name", None)
    if section == "recipe":
        from spurless.core.recipe import Recipe

        return Recipe, (dataclasses.asdict(find("recipe", name)) if name else {}) | given
    if not isinstance(name, str):
        raise UserError(f"The {section} has no name: give {{name = ..., setting = value}}.")
    if section == "method":
        make_method({"name": name, **given})  # its own checks too, beyond types and ranges
    return find(section, name), given  # type: ignore[arg-type]


@functools.cache
def default_settings(section: str, name: str) -> dict[str, Any]:
    """What the settings of a method, dataset or network (or of the recipe) are if they are not given.

    Empty for a name that is not known here.
    """
    try:
        return _whole(section, _text({"name": name} if name else {}))
    except UserError:
        return {}


def _text(value: Any) -> str:
    """As JSON, in one way only."""
    return json.dumps(value, sort_keys=True, default=str)
