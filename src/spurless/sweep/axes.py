"""What is swept: names such as lr, l2 or focal.gamma, and the settings of a run that they stand for."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spurless.core.errors import UserError
from spurless.core.settings import from_text, settings_of

SECTIONS = ("method", "data", "net", "recipe")
# A short name, the setting, and what must be on for the setting to matter.
ALIASES: dict[str, tuple[str, dict[str, Any]]] = {
    "l1": ("recipe.l1", {}),
    "l2": ("recipe.weight_decay", {}),
    "fall_after": ("recipe.fall_after", {"recipe.schedule": "step"}),
    "focal.gamma": ("recipe.focal_gamma", {"recipe.loss": "focal"}),
    "sam.rho": ("recipe.rho", {"recipe.sharpness": "sam"}),
    "asam.rho": ("recipe.rho", {"recipe.sharpness": "asam"}),
}
# Less of these is more: small batches have noisy steps, as large learning rates do.
FALLING = ("recipe.batch_size",)
# The size of a step, on its own or in effect: of values that validate alike, the one with the largest steps is taken.
STEPS = ("recipe.lr", "recipe.batch_size", "recipe.momentum")

Settings = dict[str, dict[str, Any]]  # by section


@dataclass(frozen=True)
class Axis:
    """One sweep: a setting, its values from the gentlest to the most extreme, and what is fixed beside it."""

    name: str  # as the user calls it
    setting: str  # section.field
    values: tuple[Any, ...]
    fixed: dict[str, Any] = field(default_factory=dict)  # section.field: value
    also: str = ""  # the fixed settings as the user wrote them

    @property
    def title(self) -> str:
        return f"{self.name} ({self.also})" if self.also else self.name

    @property
    def ordered(self) -> bool:
        """Whether the values are numbers, so that one is further out than another."""
        return all(is_number(v) for v in self.values)

    @property
    def towards(self) -> bool:
        """Whether the more extreme of two values that validate alike is to be taken: it makes larger steps."""
        return self.ordered and self.setting in STEPS

    def settings(self, base: Mapping[str, Mapping[str, Any]], value: Any) -> Settings:
        """The settings of a run at this value, on top of those of the base.

        >>> Axis("l2", "recipe.weight_decay", (0.1,)).settings({"recipe": {"lr": 1}}, 0.1)["recipe"]
        {'lr': 1, 'weight_decay': 0.1}
        """
        settings = {section: dict(base.get(section) or {}) for section in SECTIONS}
        for name, given in (self.fixed | {self.setting: value}).items():
            section, _, key = name.partition(".")
            settings[section][key] = given
        return settings


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def make_axis(over: str, values: str | Sequence[Any], method: str = "erm") -> Axis:
    """The axis of `--over OVER --values VALUES`. After a comma, OVER may fix other settings for this sweep alone.

    >>> axis = make_axis("l2,lr=0.1", "1e-5,1e-4")
    >>> axis.setting, axis.values, axis.fixed, axis.title
    ('recipe.weight_decay', (1e-05, 0.0001), {'recipe.lr': 0.1}, 'l2 (lr=0.1)')
    >>> make_axis("batch_size", [25, 100]).values
    (100, 25)
    """
    name, *pairs = _parts(over)
    setting, fixed = setting_of(name, method)
    for pair in pairs:
        key, equals, text = (piece.strip() for piece in pair.partition("="))
        if not equals or not text:
            raise UserError(f"--over {over}: '{pair}' is not of the form setting=value, such as lr=0.1.")
        other, needed = setting_of(key, method)
        fixed = fixed | needed | {other: from_text(text)}
    if setting in fixed:
        raise UserError(f"--over {over}: {name} is what is swept, so it cannot be fixed as well.")
    values_read = _values(over, values)
    if all(is_number(v) for v in values_read):
        values_read = sorted(values_read, reverse=setting in FALLING)
    return Axis(name, setting, tuple(values_read), fixed, ", ".join(pairs))


def setting_of(name: str, method: str = "erm") -> tuple[str, dict[str, Any]]:
    """The setting (section.field) that a name stands for, and the settings that it needs beside it.

    >>> setting_of("lr"), setting_of("focal.gamma"), setting_of("q", "lff")
    (('recipe.lr', {}), ('recipe.focal_gamma', {'recipe.loss': 'focal'}), ('method.q', {}))
    """
    from spurless.core.recipe import Recipe
    from spurless.registry import method_class

    if name in ALIASES:
        setting, needed = ALIASES[name]
        return setting, dict(needed)
    section, dot, key = name.partition(".")
    if dot and section in SECTIONS and key and key != "name":
        return name, {}
    recipe = [f.name for f in dataclasses.fields(Recipe)]
    declared = settings_of(method_class(method))
    own = [s.path for s in declared.values()]
    if name in recipe and name in own and f"recipe.{name}" not in STEPS:  # what everybody calls lr is the recipe's
        raise UserError(f"Both the recipe and {method} have a setting '{name}': name recipe.{name} or method.{name}.")
    if name in recipe:
        return f"recipe.{name}", {}
    if name in own or name in declared:
        return f"method.{name}", {}
    raise UserError(
        f"There is no setting '{name}' to sweep over. Name a field of the recipe ({', '.join(recipe)}), "
        f"{' or '.join(ALIASES)}, a setting of {method}{' (' + ', '.join(own) + ')' if own else ''}, or any setting as "
        "section.name, such as data.rho."
    )


def _values(over: str, values: str | Sequence[Any]) -> list[Any]:
    parts = _parts(values) if isinstance(values, str) else list(values)
    parsed = [from_text(piece) if isinstance(piece, str) else piece for piece in parts]
    if not parsed or "" in parsed:
        raise UserError(f"--over {over} needs values: --values 0.001,0.01,0.1.")
    if len(set(map(_same, parsed))) < len(parsed):
        raise UserError(f"--over {over}: a value is given twice in {', '.join(map(str, parsed))}.")
    return parsed


def _parts(text: str) -> list[str]:
    """What stands between the commas that are not within a list.

    >>> _parts("[0.9, 0.99], [0.5, 0.99]")
    ['[0.9, 0.99]', '[0.5, 0.99]']
    """
    return [piece.strip() for piece in re.split(r",(?![^\[]*\])", text)]


def _same(value: Any) -> str:
    """1 and 1.0 are one value.

    >>> _same(1) == _same(1.0), _same(10**400) == _same(10**401)
    (True, False)
    """
    try:
        return str(float(value)) if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
    except OverflowError:  # an integer that no float holds
        return str(value)
