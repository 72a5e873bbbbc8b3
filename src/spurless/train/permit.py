"""Whether a run may go ahead: which bias labels it sees, and whether the data has what the recipe asks for."""

from __future__ import annotations

from spurless.core.data import Bundle, Images, Texts
from spurless.core.errors import SettingError
from spurless.core.method import Method
from spurless.core.recipe import Recipe
from spurless.methods import METHODS
from spurless.methods.parts.exchange import WAYS, from_0_to_1
from spurless.registry import name_of


def permit(method: Method, data: Bundle, recipe: Recipe) -> str:
    """Which bias labels this run uses; refuse what the method may not see or the data does not have."""
    need = method.labels if method.labels != "selection" else "none"
    if recipe.selection == "val_worst_group":
        if method.labels == "none":
            raise SettingError(
                f"recipe.selection = val_worst_group needs bias labels, which {name_of(method)} may not see; "
                "use last, val_accuracy or val_loss."
            )
        need = "training" if need == "training" else "validation"
    check_recipe(recipe, data)
    split = {"training": data.train, "validation": data.val}.get(need)
    if need != "none" and (split is None or split.a is None):
        free = ", ".join(name for name, entry in METHODS.items() if entry.labels in ("none", "selection"))
        hint = " It can also infer the groups: method.groups = eiil." if hasattr(method, "groups") else ""
        lack = f"bias labels and {data.name} has none"
        if split is None:
            lack = f"the bias labels of validation samples and {data.name} has no validation split"
        raise SettingError(f"{name_of(method)} needs {lack}; these do not: {free}.{hint}")
    return need


def check_recipe(recipe: Recipe, data: Bundle) -> None:
    """Refuse a recipe that this data cannot serve."""
    if recipe.eval_every != int(recipe.eval_every):
        raise SettingError(
            f"recipe.eval_every = {recipe.eval_every:g}: the validation split is evaluated where an epoch ends; give a "
            "whole number of epochs."
        )
    if recipe.selection != "last" and data.val is None:
        raise SettingError(f"recipe.selection = {recipe.selection} needs a validation split, which {data.name} lacks.")
    if recipe.selection == "val_worst_group" and data.val is not None and data.val.a is None:
        raise SettingError(f"recipe.selection = val_worst_group needs bias labels, and {data.name} has none.")
    if recipe.augment not in ("data", "none") and not isinstance(data.inputs, Images):
        raise SettingError(f"recipe.augment = {recipe.augment} is for images, and {data.name} holds none; use none.")
    if recipe.mix and isinstance(data.inputs, Texts):
        raise SettingError(f"recipe.mix = {recipe.mix} mixes inputs, and {data.name} holds token ids; use none.")
    if recipe.mix in WAYS and not (isinstance(data.inputs, Images) and from_0_to_1(data.train)):
        raise SettingError(
            f"recipe.mix = {recipe.mix} is for images, of bytes or of numbers from 0 to 1, and {data.name} holds none; "
            "use none."
        )
