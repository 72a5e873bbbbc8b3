"""In which group is each training row? Known from bias labels, or guessed without them.

An inference is a generator that yields its training stages and returns what it found, so that a method says

    found = yield from infer(run, "eiil")

No inference but `known` sees a bias label. Groups are numbered class by class: every group lies within one class.
"""

from __future__ import annotations

from collections.abc import Generator
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from torch import Tensor

from spurless.core import Run, Split, Stage
from spurless.settings import resolve

if TYPE_CHECKING:
    from spurless.core import Labels
    from spurless.nets import Net


class Groups(NamedTuple):
    """What an inference found."""

    train: Tensor  # (n,) int64 on the CPU: the group of each training row
    val: Tensor | None  # (m,) the same for the validation rows, where there are any and they can be told
    number: int  # of groups; some may hold no row
    net: Net | None = None  # the network that it was read off


Inference = Generator[Stage, None, Groups]
How = Literal["known", "gce", "jtt", "ecs", "eiil", "cnc", "george", "bpa"]
GroupsFrom = Annotated[How, "where the groups come from: known needs training bias labels, the others guess"]

# Below spurless.inference: module and function, each `(run, **settings) -> Inference`.
INFERENCES: dict[str, str] = {
    "known": "known:infer_known",
    "gce": "errors:infer_gce",
    "jtt": "errors:infer_jtt",
    "ecs": "errors:infer_ecs",
    "eiil": "eiil:infer_eiil",
    "cnc": "predictions:infer_cnc",
    "george": "clusters:infer_george",
    "bpa": "clusters:infer_bpa",
}


def infer(run: Run, how: str, **settings: Any) -> Inference:
    """The groups of the training rows, by the inference of this name; its agreement with the truth is in the result."""
    module, function = INFERENCES[how].split(":")
    inference = getattr(import_module(f"spurless.inference.{module}"), function)
    found: Groups = yield from inference(run, **resolve(inference, settings, "inference"))
    if how != "known":
        run.grouped(found.train)
    return found


def labels_for(how: str) -> Labels:
    """What a method may know that takes its groups from there: guessed groups need no label but to pick weights."""
    return "training" if how == "known" else "selection"


def within_classes(y: Tensor, part: Tensor, parts: int) -> Tensor:
    """(n,) The group of each row from its class and its part of that class.

    >>> import torch
    >>> within_classes(torch.tensor([0, 1, 1]), torch.tensor([1, 0, 1]), parts=2).tolist()
    [1, 2, 3]
    """
    return y.cpu() * parts + part.cpu()


def groups_of(split: Split, values: tuple[int, ...]) -> Tensor:
    """(n,) The group of each row from its class and all its attributes, which have so many values.

    >>> import torch
    >>> split = Split(torch.zeros(3, 1), torch.tensor([0, 1, 1]), torch.tensor([[1, 0], [0, 2], [1, 2]]))
    >>> groups_of(split, (2, 3)).tolist()
    [3, 8, 11]
    """
    assert split.a is not None
    group = split.y
    for column, count in zip(split.a.unbind(1), values, strict=True):
        group = group * count + column
    return group
