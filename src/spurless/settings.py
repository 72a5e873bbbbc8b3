"""Settings are the parameters of a class or function, with their meaning and range beside their type:

    q: Annotated[float, "how strongly the biased network prefers easy samples", Range(0, 1)] = 0.7

Methods, recipes, data sets and networks all declare theirs so; the command line, the run folder and the error
messages read them from there. This module imports nothing heavy.
"""

import inspect
import math
import tomllib
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from spurless.errors import UserError, unknown


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
        """The value in its right type, or a UserError that names the field and what is allowed."""
        try:
            return _coerce(self.kind, value, self.range)
        except ValueError:
            raise UserError(f"{where}.{self.name} = {value!r} is not allowed; it takes {self.allowed}.") from None


def settings_of(target: Callable) -> dict[str, Setting]:
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


def resolve(target: Callable, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """All settings of `target`: the given ones checked, the others at their default.

    >>> def load(rho: Annotated[float, "share of conflicting samples", Range(0, 1)] = 0.01): ...
    >>> resolve(load, {"rho": "0.05"}, "data")
    {'rho': 0.05}
    """
    known = settings_of(target)
    for name in given:
        if name not in known:
            lines = [f"  {where}.{s.name} ({s.allowed}; now {s.default!r}): {s.meaning}" for s in known.values()]
            first = str(unknown("setting", f"{where}.{name}", [f"{where}.{k}" for k in known])).split(" The settings")[
                0
            ]
            raise UserError(
                "\n".join([first, "The settings are:", *lines] if lines else [first, "It has no settings."])
            )
    chosen = {name: s.check(given[name], where) if name in given else s.default for name, s in known.items()}
    missing = [name for name, value in chosen.items() if value is inspect.Parameter.empty]
    if missing:
        raise UserError(f"{where}.{missing[0]} has no default ({known[missing[0]].meaning}); give it with --set.")
    return chosen


def from_text(text: str) -> Any:
    """A value as it would stand in a TOML file; anything that is not TOML is the text itself.

    >>> from_text("0.9"), from_text("[1, 2]"), from_text("true"), from_text("water"), from_text("none")
    (0.9, [1, 2], True, 'water', None)
    """
    if text.strip().lower() in ("none", "null"):
        return None
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text


def _coerce(kind: Any, value: Any, span: Range) -> Any:
    origin, args = get_origin(kind), get_args(kind)
    if type(None) in args and value in ("none", "null"):
        return None
    if kind is str:
        if isinstance(value, str):
            return value
        raise ValueError
    if origin is Literal:
        if value in args:
            return value
        raise ValueError
    if isinstance(value, str):
        value = from_text(value)
    if origin in (Union, types.UnionType):
        for option in args:
            try:
                return _coerce(option, value, span)
            except ValueError:
                continue
        raise ValueError
    if origin is tuple:
        if isinstance(value, (list, tuple)):
            return tuple(_coerce(args[0], v, span) for v in value)
        return (_coerce(args[0], value, span),)  # one value stands for a list of one
    if kind is type(None):
        if value is None:
            return None
        raise ValueError
    if kind is bool:
        if isinstance(value, bool):
            return value
        raise ValueError
    if kind in (int, float):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ValueError
        if kind is int and value != int(value):
            raise ValueError
        if not span.holds(value):
            raise ValueError
        return kind(value)
    if isinstance(kind, type) and isinstance(value, kind):
        return value
    raise ValueError


def _in_words(kind: Any, span: Range) -> str:
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return "one of " + ", ".join(str(a) for a in args)
    if origin in (Union, types.UnionType):
        return " or ".join(_in_words(a, span) for a in args)
    if origin is tuple:
        return "a list, each " + _in_words(args[0], span)
    if kind is type(None):
        return "none"
    if kind in (int, float):
        noun = "a whole number" if kind is int else "a number"
        return noun if span == Range() else f"{noun} {span}"
    return {bool: "true or false", str: "text"}.get(kind, getattr(kind, "__name__", str(kind)))
