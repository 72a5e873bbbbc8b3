"""Settings are the parameters of a class or function, with their meaning and range beside their type:

    q: Annotated[float, "how strongly the biased network prefers easy samples", Range(0, 1)] = 0.7

Methods, recipes, datasets and networks all declare theirs so; the command line, the run folder and the error
messages read them from there. Two kinds of settings hold others: a group, whose type is a dataclass of settings, and a
choice (`OneOf`) among classes that have settings. Both are given as tables, {"mask": {"lr": 0.1}}, or by dotted names,
{"mask.lr": 0.1}. This module imports nothing heavy.
"""

import dataclasses
import difflib
import inspect
import math
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from numbers import Real
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from spurless.core.errors import SettingError, unknown

T = TypeVar("T")


@dataclass(frozen=True)
class Range:
    """The values a number may take, both ends included; None leaves an end open."""

    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        if self.low is None and self.high is None:
            return "any number"
        if self.high is None:
            return f"at least {self.low:g}"
        return f"at most {self.high:g}" if self.low is None else f"from {self.low:g} to {self.high:g}"

    def holds(self, value: float) -> bool:
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


@dataclass(frozen=True)
class Was:
    """The name under which a setting of a group is saved: the one it had before there were groups."""

    name: str


@dataclass(frozen=True)
class OneOf:
    """The value is an object of one of these classes: a name, {"name": ..., setting: value}, or the object."""

    noun: str
    classes: Mapping[str, str]  # "module:Class" by name

    def find(self, name: Any) -> type:
        if name not in self.classes:
            raise unknown(self.noun, str(name), self.classes)
        module, _, kind = self.classes[name].partition(":")
        target: type = getattr(import_module(module), kind)
        return target

    def make(self, value: Any, where: str) -> Any:
        """The object."""
        if not isinstance(value, (str, Mapping)):
            return value
        table = _table(value)
        kind = self.find(table.pop("name", None))
        return build(kind, resolve(kind, table, where))

    def plain(self, value: Any, where: str) -> str | dict[str, Any]:
        """How the object is saved: its name, and the settings that are not at their default, if there are any."""
        made = self.make(value, where)
        own = f"{type(made).__module__}:{type(made).__name__}"
        name = next((name for name, path in self.classes.items() if path == own), None)
        if name is None:
            raise SettingError(f"{where} = {value!r} is not allowed; it takes {self}.")
        declared = settings_of(type(made))
        checked = check(declared, values_of(made), where, now={})
        changed = {k: v for k, v in checked.items() if v != declared[k].default}
        return {"name": name} | changed if changed else name

    def __str__(self) -> str:
        return "one of " + ", ".join(self.classes)


@dataclass(frozen=True)
class Setting:
    """One parameter: what it is called, what it may be, what it means."""

    name: str  # under which it is saved
    kind: Any
    default: Any
    meaning: str = ""
    range: Range = Range()
    path: str = ""  # under which it is set: group.name in a group, else the name
    choice: OneOf | None = None

    @property
    def allowed(self) -> str:
        """The allowed values in words.

        >>> Setting("q", float, 0.7, range=Range(0, 1)).allowed
        'a number from 0 to 1'
        """
        return str(self.choice) if self.choice else _in_words(self.kind, self.range)

    def check(self, value: Any, where: str) -> Any:
        """The value in its right type, or a SettingError that names the field and what is allowed."""
        name = f"{where}.{self.path or self.name}"
        if self.choice:
            return self.choice.plain(value, name)
        try:
            return _coerce(self.kind, value, self.range)
        except (ValueError, OverflowError):
            raise SettingError(f"{name} = {value!r} is not allowed; it takes {self.allowed}.") from None


def settings_of(target: Callable[..., Any]) -> dict[str, Setting]:
    """The settings that a class or function declares, by the names under which they are saved: those of its parameters
    that are Annotated, and those of its groups.

    >>> def load(rho: Annotated[float, "share of conflicting samples", Range(0, 1)] = 0.01): ...
    >>> settings_of(load)["rho"].meaning
    'share of conflicting samples'
    """
    hints = get_type_hints(target, include_extras=True)
    declared = {}
    for name, parameter in inspect.signature(target).parameters.items():
        hint = hints.get(name)
        if get_origin(hint) is not Annotated:
            continue
        kind, *notes = get_args(hint)
        if dataclasses.is_dataclass(kind):
            for inner in _of_group(name, kind, parameter.default):
                declared[inner.name] = inner
            continue
        meaning = next((n for n in notes if isinstance(n, str)), "")
        span = next((n for n in notes if isinstance(n, Range)), Range())
        choice = next((n for n in notes if isinstance(n, OneOf)), None)
        declared[name] = Setting(name, kind, parameter.default, meaning, span, name, choice)
    return declared


def _of_group(group: str, kind: Any, default: Any) -> list[Setting]:
    """The settings of a group, with the defaults that it has there."""
    hints = get_type_hints(kind, include_extras=True)
    saved = {name: [n.name for n in get_args(hint)[1:] if isinstance(n, Was)] for name, hint in hints.items()}
    return [
        dataclasses.replace(
            s, name=(saved[name] or [f"{group}.{name}"])[0], path=f"{group}.{name}", default=getattr(default, name)
        )
        for name, s in settings_of(kind).items()
    ]


def values_of(made: Any) -> dict[str, Any]:
    """The settings of an object of a class that declares some, by the names under which they are saved."""
    return {name: reduce(getattr, s.path.split("."), made) for name, s in settings_of(type(made)).items()}


def build(target: type[T], values: Mapping[str, Any]) -> T:
    """The object with these settings, named as they are saved."""
    return target(**arguments(target, values))


def arguments(target: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """What the constructor takes: settings of a group in one object."""
    declared = settings_of(target)
    own: dict[str, Any] = {}
    groups: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        group, dot, inner = declared[name].path.partition(".") if name in declared else (name, "", "")
        (groups.setdefault(group, {}) if dot else own)[inner or group] = value
    hints = get_type_hints(target, include_extras=True)
    return own | {group: get_args(hints[group])[0](**inner) for group, inner in groups.items()}


def resolve(
    target: Callable[..., Any], given: Mapping[str, Any], where: str, defaults: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """All settings of `target`: the given ones checked, the others at their default, or at that of `defaults`.

    >>> def load(rho: Annotated[float, "share of conflicting samples", Range(0, 1)] = 0.01): ...
    >>> resolve(load, {"rho": "0.05"}, "data")
    {'rho': 0.05}
    """
    declared = settings_of(target)
    values = {name: s.default for name, s in declared.items()} | dict(defaults or {})
    chosen = values | check(declared, given, where, values)
    missing = [name for name, value in chosen.items() if value is inspect.Parameter.empty]
    if missing:
        raise SettingError(f"{where}.{missing[0]} has no default ({declared[missing[0]].meaning}); give it with --set.")
    return chosen


def check(
    declared: Mapping[str, Setting], given: Mapping[str, Any], where: str, now: Mapping[str, Any]
) -> dict[str, Any]:
    """The given settings, as they are saved and in their right types. A wrong name is an error that lists the right
    ones and, where they are known, the values that they have `now`."""
    named = _as_saved(declared, given, now)
    for name in named:
        if name not in declared:
            paths = [s.path for s in declared.values()]
            near = difflib.get_close_matches(name, paths, n=1, cutoff=0.5)
            hint = f"; did you mean '{where}.{near[0]}'?" if near else "."
            lines = [f"There is no setting '{where}.{name}'{hint}"]
            lines.append("The settings are:" if declared else f"This {where} has no settings.")
            for s in declared.values():
                value = f"; now {now[s.name]!r}" if s.name in now else ""
                lines.append(f"  {where}.{s.path} ({s.allowed}{value}): {s.meaning}")
            raise SettingError("\n".join(lines))
    return {name: declared[name].check(value, where) for name, value in named.items()}


def _as_saved(declared: Mapping[str, Setting], given: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The given settings under the names by which they are saved: tables of groups are opened, and the settings of a
    choice put into its table."""
    by_path = {s.path: name for name, s in declared.items()}
    named: dict[str, Any] = {}
    for name, value in given.items():
        head, dot, inner = name.partition(".")
        if isinstance(value, Mapping) and any(path.startswith(f"{name}.") for path in by_path):
            named |= _as_saved(declared, {f"{name}.{k}": v for k, v in value.items()}, now)
        elif dot and head in declared and declared[head].choice:
            before = given.get(head, now.get(head, declared[head].default))
            named[head] = _table(named.get(head, before)) | {inner: value}
        elif (
            name not in named or not declared[name].choice
        ):  # else it is in the table of its settings, which came first
            named[by_path.get(name, name)] = value
    return named


def _table(value: Any) -> dict[str, Any]:
    """A choice as {"name": ..., setting: value}."""
    return dict(value) if isinstance(value, Mapping) else {"name": value}


def from_text(text: str) -> Any:
    """A value as it would stand in a TOML file, or in Python; anything else is the text itself.

    >>> from_text("0.9"), from_text("[1, 2]"), from_text("true"), from_text("water"), from_text("none")
    (0.9, [1, 2], True, 'water', None)
    """
    import tomllib  # here, as it takes a tenth of the time in which help is printed

    plain = text.strip()
    if plain.lower() in ("none", "null"):
        return None
    try:
        read = tomllib.loads(f"v = {plain.lower() if plain in ('True', 'False') else plain}")
    except (ValueError, RecursionError):  # no TOML; a number of thousands of digits; lists in lists in lists
        return text
    return read["v"] if len(read) == 1 else text


def _coerce(kind: Any, value: Any, span: Range) -> Any:
    """The value as `kind`. Text is read as a number, list and so on only where `kind` asks for one: a column may be
    called 2024."""
    origin, args = get_origin(kind), get_args(kind)
    read = from_text(value) if isinstance(value, str) else value
    if origin in (Union, types.UnionType):
        return None if read is None and type(None) in args else _first_fit(args, value, span)
    if origin is tuple:
        items = _items(value, read)
        kinds = [args[0]] * len(items) if args[-1] is Ellipsis else args
        return tuple(_coerce(kind, item, span) for kind, item in zip(kinds, items, strict=True))
    if origin is Literal:
        return _listed(args, value, read)
    if kind in (int, float):
        return _number(kind, read, span)
    fits = value if kind is str else read
    if isinstance(kind, type) and isinstance(fits, kind):
        return fits
    raise ValueError


def _first_fit(kinds: Sequence[Any], value: Any, span: Range) -> Any:
    for kind in sorted(kinds, key=lambda kind: kind is str):  # text fits any text, so it comes last
        with suppress(ValueError, OverflowError):
            return _coerce(kind, value, span)
    raise ValueError


def _listed(allowed: Sequence[Any], *candidates: Any) -> Any:
    for candidate in candidates:
        if any(candidate == value and type(candidate) is type(value) for value in allowed):
            return candidate
    raise ValueError


def _number(kind: type, value: Any, span: Range) -> Any:
    """One of numpy's too, but not true or false."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value):
        raise ValueError
    if (kind is int and value != int(value)) or not span.holds(value):
        raise ValueError
    return kind(value)


def _items(value: Any, read: Any) -> Sequence[Any]:
    """The elements of a list. One value stands for a list of one, and, because a shell eats quotes, [a, b] for
    ["a", "b"]."""
    if isinstance(read, (list, tuple)):
        return read
    if isinstance(value, str) and value.strip().startswith("[") and value.strip().endswith("]"):
        return [item.strip().strip("'\"") for item in value.strip()[1:-1].split(",")]
    return [value]


def _in_words(kind: Any, span: Range) -> str:
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return "one of " + ", ".join(str(a) for a in args)
    if origin in (Union, types.UnionType):
        return " or ".join(_in_words(a, span) for a in args)
    if origin is tuple:
        count = "" if args[-1] is Ellipsis else f" of {len(args)}"
        return f"a list{count}, each {_in_words(args[0], span)}"
    if kind is type(None):
        return "none"
    if kind in (int, float):
        noun = "a whole number" if kind is int else "a number"
        return noun if span == Range() else f"{noun} {span}"
    return {bool: "true or false", str: "text"}.get(kind, getattr(kind, "__name__", str(kind)))
