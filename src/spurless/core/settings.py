"""Settings are the parameters of a class or function, with their meaning and range beside their type:

    q: Annotated[float, "how strongly the biased network prefers easy samples", Range(0, 1)] = 0.7

Methods, recipes, data sets and networks all declare theirs so; the command line, the run folder and the error
messages read them from there. This module imports nothing heavy.
"""

import difflib
import inspect
import math
import tomllib
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from spurless.core.errors import SettingError


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
class Setting:
    """One parameter: what it is called, what it may be, what it means."""

    name: str
    kind: Any
    default: Any
    meaning: str = ""
    range: Range = Range()

    @property
    def allowed(self) -> str:
        """The allowed values in words.

        >>> Setting("q", float, 0.7, range=Range(0, 1)).allowed
        'a number from 0 to 1'
        """
        return _in_words(self.kind, self.range)

    def check(self, value: Any, where: str) -> Any:
        """The value in its right type, or a SettingError that names the field and what is allowed."""
        try:
            return _coerce(self.kind, value, self.range)
        except (ValueError, OverflowError):
            raise SettingError(f"{where}.{self.name} = {value!r} is not allowed; it takes {self.allowed}.") from None


def settings_of(target: Callable[..., Any]) -> dict[str, Setting]:
    """The settings that a class or function declares: those of its parameters that are Annotated.

    >>> def load(rho: Annotated[float, "share of conflicting samples", Range(0, 1)] = 0.01): ...
    >>> settings_of(load)["rho"].meaning
    'share of conflicting samples'
    """
    hints = get_type_hints(target, include_extras=True)
    found = {}
    for name, parameter in inspect.signature(target).parameters.items():
        hint = hints.get(name)
        if get_origin(hint) is not Annotated:
            continue
        kind, *notes = get_args(hint)
        meaning = next((n for n in notes if isinstance(n, str)), "")
        span = next((n for n in notes if isinstance(n, Range)), Range())
        found[name] = Setting(name, kind, parameter.default, meaning, span)
    return found


def resolve(
    target: Callable[..., Any], given: Mapping[str, Any], where: str, defaults: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """All settings of `target`: the given ones checked, the others at their default, or at that of `defaults`.

    >>> def load(rho: Annotated[float, "share of conflicting samples", Range(0, 1)] = 0.01): ...
    >>> resolve(load, {"rho": "0.05"}, "data")
    {'rho': 0.05}
    """
    known = settings_of(target)
    values = {name: s.default for name, s in known.items()} | dict(defaults or {})
    chosen = values | check(known, given, where, values)
    missing = [name for name, value in chosen.items() if value is inspect.Parameter.empty]
    if missing:
        raise SettingError(f"{where}.{missing[0]} has no default ({known[missing[0]].meaning}); give it with --set.")
    return chosen


def check(known: Mapping[str, Setting], given: Mapping[str, Any], where: str, now: Mapping[str, Any]) -> dict[str, Any]:
    """The given settings in their right types. A wrong name is an error that lists the right ones and, where they are
    known, the values that they have `now`."""
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"; did you mean '{where}.{near[0]}'?" if near else "."
            lines = [f"There is no setting '{where}.{name}'{hint}"]
            lines.append("The settings are:" if known else f"This {where} has no settings.")
            for s in known.values():
                value = f"; now {now[s.name]!r}" if s.name in now else ""
                lines.append(f"  {where}.{s.name} ({s.allowed}{value}): {s.meaning}")
            raise SettingError("\n".join(lines))
    return {name: known[name].check(value, where) for name, value in given.items()}


def from_text(text: str) -> Any:
    """A value as it would stand in a TOML file, or in Python; anything else is the text itself.

    >>> from_text("0.9"), from_text("[1, 2]"), from_text("true"), from_text("water"), from_text("none")
    (0.9, [1, 2], True, 'water', None)
    """
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
        if type(None) in args and read is None:
            return None
        for option in sorted(args, key=lambda option: option is str):  # text fits any text, so it comes last
            try:
                return _coerce(option, value, span)
            except (ValueError, OverflowError):
                continue
        raise ValueError
    if origin is tuple:
        items = _items(value, read)
        if args[-1] is Ellipsis:
            return tuple(_coerce(args[0], item, span) for item in items)
        return tuple(_coerce(part, item, span) for part, item in zip(args, items, strict=True))
    if origin is Literal:
        for option in (value, read):
            if any(option == a and type(option) is type(a) for a in args):
                return option
        raise ValueError
    if kind is str:
        if isinstance(value, str):
            return value
        raise ValueError
    if kind in (int, float):
        if not _is_number(read) or not math.isfinite(read):
            raise ValueError
        if (kind is int and read != int(read)) or not span.holds(read):
            raise ValueError
        return kind(read)
    if isinstance(kind, type) and isinstance(read, kind):
        return read
    raise ValueError


def _is_number(value: Any) -> bool:
    """One of numpy's too, but not true or false."""
    return isinstance(value, Real) and not isinstance(value, bool)


def _items(value: Any, read: Any) -> Sequence[Any]:
    """The elements of a list. One value stands for a list of one, and, because a shell eats quotes, [a, b] for
    ["a", "b"]."""
    if isinstance(read, (list, tuple)):
        return read
    if isinstance(value, str) and value.strip().startswith("[") and value.strip().endswith("]"):
        return [part.strip().strip("'\"") for part in value.strip()[1:-1].split(",")]
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
