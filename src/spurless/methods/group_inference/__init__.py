"""In which group is each training sample, and which samples conflict? Known from bias labels, or inferred without them.

An inference is an object with settings; its `infer` yields training stages and returns what it found. A method says

    groups = yield from infer(run, self.groups)

where `groups` is a name ("george"), {"name": "george", "clusters": 4} or an object, George(clusters=4). `infer_groups`
runs one on its own. No inference but `known` sees a bias label. Groups are numbered class by class: every group lies
within one class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from spurless.core.data import Bundle, Labels, Split
from spurless.core.method import Run, Stage
from spurless.core.settings import OneOf
from spurless.methods import INFERENCES

if TYPE_CHECKING:
    from spurless.nets import Net


class Groups(NamedTuple):
    """What an inference found."""

    train: Tensor  # (n,) int64 on the CPU: the group of each training sample
    val: Tensor | None  # (m,) the same for the validation samples, where there are any and they can be told
    number: int  # of groups; some may hold no sample
    net: Net | None = None  # the network that it was read off; of two peers, the first
    conflicting: Tensor | None = None  # (n,) bool: the samples identified as conflicting, where it identifies them
    scores: Tensor | None = None  # (n,) float: the higher, the more conflicting, where it has scores
    quality: dict[str, Any] | None = None  # agreement with the truth, from `infer_groups`, where that is known


Inferring = Generator[Stage, None, Groups]

CLASSES = {name: f"spurless.methods.group_inference.{entry.where}" for name, entry in INFERENCES.items()}
CHOICE = OneOf("group inference", CLASSES)


class Inference(ABC):
    """A way to find groups; its fields are its settings."""

    needs_labels: ClassVar[bool] = False  # bias labels of the training samples

    @abstractmethod
    def infer(self, run: Run) -> Inferring:
        """Yield each stretch of training, and return the groups."""


GroupsFrom = Annotated[
    Inference | str | Mapping[str, Any],
    "where the groups come from, with settings of its own: known needs training bias labels, the others infer them",
    CHOICE,
]


def infer(run: Run, how: Inference | str | Mapping[str, Any]) -> Inferring:
    """The groups of the training samples; unless they are known, their agreement with the truth is in the result."""
    inference: Inference = CHOICE.make(how, "groups")
    groups = yield from inference.infer(run)
    if not inference.needs_labels:
        run.report_groups(groups.train)
    return groups


def labels_for(how: Inference | str | Mapping[str, Any]) -> Labels:
    """What a method may know that takes its groups from there: inferred groups need no label but to pick weights."""
    return "training" if are_known(how) else "selection"


def are_known(how: Inference | str | Mapping[str, Any]) -> bool:
    """Whether groups are the true ones, read off bias labels."""
    inference: Inference = CHOICE.make(how, "groups")
    return inference.needs_labels


def conflicting_groups(run: Run, conflicting: Tensor, scores: Tensor, net: Net, of_val: Tensor | None = None) -> Groups:
    """In each class the samples that conflict (n,), and the others; `of_val` (m,): those of the validation split."""
    run.report_conflicting(conflicting)
    y, val = run.data.train.y, run.data.val
    held_out = None if val is None or of_val is None else within_classes(val.y, of_val.long(), 2)
    groups = within_classes(y, conflicting.long(), 2)
    return Groups(groups, held_out, 2 * len(run.data.classes), net, conflicting, scores.float())


def within_classes(y: Tensor, group: Tensor, parts: int) -> Tensor:
    """(n,) The group of each sample from its class and its part of that class.

    >>> import torch
    >>> within_classes(torch.tensor([0, 1, 1]), torch.tensor([1, 0, 1]), parts=2).tolist()
    [1, 2, 3]
    """
    return y.cpu() * parts + group.cpu()


def groups_of(split: Split, values: tuple[int, ...], with_class: bool = True) -> Tensor:
    """(n,) The group of each sample from its class and all its attributes, which have so many values.

    >>> import torch
    >>> split = Split(torch.zeros(3, 1), torch.tensor([0, 1, 1]), torch.tensor([[1, 0], [0, 2], [1, 2]]))
    >>> groups_of(split, (2, 3)).tolist()
    [3, 8, 11]
    """
    assert split.a is not None
    group = split.y if with_class else torch.zeros_like(split.y)
    for column, count in zip(split.a.unbind(1), values, strict=True):
        group = group * count + column
    return group


def agreement(groups: Tensor, data: Bundle, conflicting: Tensor | None = None) -> dict[str, Any] | None:
    """How well groups (n,) and conflicting samples (n,) of the training split agree with the truth, if it is known."""
    from spurless.metrics.inference import inference_scores, mining_scores

    aligned = data.is_aligned(data.train)
    if aligned is None:
        return None
    truth = groups_of(data.train, tuple(len(names) for names in data.values))
    true_conflicting = ~aligned.all(1).numpy()
    scores = inference_scores(groups.numpy(), truth.numpy(), data.train.y.numpy(), true_conflicting)
    return scores if conflicting is None else scores | mining_scores(conflicting.cpu().numpy(), true_conflicting)
