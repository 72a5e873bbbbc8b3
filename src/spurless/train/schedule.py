"""How long a stage is, and how its learning rate decays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from spurless.core.method import Stage
from spurless.core.recipe import Recipe

Table = npt.NDArray[np.float64]  # a number for each step of a stage


def schedule(recipe: Recipe, steps_per_epoch: int, total: int, span: tuple[float, float] = (0, 1)) -> Table:
    """The factor on the learning rate at each step of a stage.

    >>> schedule(Recipe(schedule="step", step_every=1, gamma=0.1), 2, 4).round(3).tolist()
    [1.0, 1.0, 0.1, 0.1]
    >>> schedule(Recipe(schedule="step", step_from=1, step_every=1, gamma=0.1), 2, 6).round(3).tolist()
    [1.0, 1.0, 1.0, 1.0, 0.1, 0.1]
    >>> schedule(Recipe(schedule="step", fall_after=3, gamma=0.1), 1, 5).tolist()  # Barsbey et al. 2025: after 1000
    [1.0, 1.0, 1.0, 0.1, 0.1]
    >>> schedule(Recipe(schedule="linear", warmup=1), 2, 6).tolist()
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    >>> schedule(Recipe(schedule="wsd", decay_share=0.4, warmup=1), 2, 10).tolist()
    [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    whole = max(1, round(total / (span[1] - span[0])))  # steps of the schedule that this stage is a part of
    step = np.arange(total) + round(span[0] * whole)
    warm = round(recipe.warmup * steps_per_epoch)
    t = np.clip((step - warm) / max(1, whole - warm), 0, 1)
    if recipe.schedule == "wsd":
        factor = np.clip((whole - step) / max(1, recipe.decay_share * whole), 0, 1)
    elif recipe.schedule == "step" and recipe.fall_after:
        factor = np.where(step < recipe.fall_after, 1.0, recipe.gamma)
    elif recipe.schedule == "step":
        counted = np.clip(step / steps_per_epoch - recipe.step_from, 0, None)
        factor = recipe.gamma ** np.floor(counted / max(recipe.step_every, 1e-9))
    else:
        factor = {"constant": np.ones_like(t), "linear": 1 - t, "cosine": (1 + np.cos(np.pi * t)) / 2}[recipe.schedule]
    return np.where(step < warm, (step + 1) / max(1, warm), factor)


def batch_sizes(n: int, recipe: Recipe) -> list[int]:
    """The sizes of an epoch's batches. A last batch of one sample is left out: BatchNorm cannot be trained on it.

    >>> batch_sizes(10, Recipe(batch_size=4)), batch_sizes(10, Recipe(batch_size=4, drop_last=True))
    ([4, 4, 2], [4, 4])
    """
    full, rest = divmod(n, recipe.batch_size)
    keep_rest = rest > 1 and not recipe.drop_last
    return [recipe.batch_size] * full + [rest] * (keep_rest or not full)


def stage_length(stage: Stage, recipe: Recipe, steps_per_epoch: int) -> int:
    """Steps of a stage: its own length, else the recipe's."""
    if stage.iterations is not None:
        return stage.iterations
    if stage.epochs is None and recipe.iterations:
        return recipe.iterations
    epochs = recipe.epochs if stage.epochs is None else stage.epochs
    return round(epochs * steps_per_epoch)
