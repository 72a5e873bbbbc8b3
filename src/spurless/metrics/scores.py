"""What a network says about samples, and how good that is."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from spurless.core.data import Bundle, Split
from spurless.core.errors import NotNumbers, UserError
from spurless.metrics.groups import confusion, group_notes, group_scores


class Judged:
    """How good a network is on some samples. It is worked out on the device, and waited for when it is asked for."""

    def __init__(self, logits: Tensor, y: Tensor):
        self.logits = logits
        correct = logits.argmax(1) == y
        self.measured = torch.stack([correct.float().mean(), nn.functional.cross_entropy(logits, y)])

    @property
    def accuracy(self) -> float:
        """In percent."""
        return 100 * float(self.measured[0])

    @property
    def loss(self) -> float:
        return float(self.measured[1])


def predictions(data: Bundle, logits: Tensor) -> Tensor:
    """(n,) the class with the largest of a row's logits (n, classes); refused where they say nothing.

    The largest of NaNs would be the first class, and so would that of a single output.

    >>> toy = Bundle("toy", Split(torch.zeros(2, 3), torch.tensor([0, 1])))
    >>> predictions(toy, torch.tensor([[1.0, 2.0], [3.0, -1.0]]))
    tensor([1, 0])
    """
    if logits.dim() != 2 or logits.shape[1] < len(data.classes):
        raise UserError(
            f"{data.name} has {len(data.classes)} classes, and the network's output for {len(logits)} samples has "
            f"shape {tuple(logits.shape)}: it must give a number for each class."
        )
    lost = int(logits.isnan().any(1).sum())
    if lost:
        raise NotNumbers(f"The network's output is NaN for {lost} of {len(logits)} samples of {data.name}.")
    return logits.argmax(1)


def score(data: Bundle, split: Split, logits: Tensor) -> dict[str, Any]:
    """The scores of a split by group, in percent, each with its 95 % interval."""
    return _group_scores(data, split, (predictions(data, logits).cpu() == split.y).numpy())


def coverage(data: Bundle, split: str) -> dict[str, Any]:
    """Which groups and classes have no sample in a split, or few, and `notes` that say so beside any score on it."""
    samples = data.splits[split]
    scores = _group_scores(data, samples, np.ones(len(samples), dtype=bool))
    facts = {name: scores[name] for name in ("min_size", "small_groups", "groups_total", "missing_classes")}
    return facts | {"notes": group_notes(facts | {"worst_group": None}, split)}


def _group_scores(data: Bundle, split: Split, correct: np.ndarray) -> dict[str, Any]:
    aligned = data.is_aligned(split)
    return group_scores(
        correct,
        split.y.numpy(),
        None if split.a is None else split.a.numpy(),
        None if aligned is None else aligned.numpy(),
        classes=data.classes,
        attributes=data.attributes,
        values=data.values,
        train_counts=group_counts(data),
        all_counts=group_counts_anywhere(data, split),
        member=None if split.member is None else split.member.numpy(),
        overlap=data.overlap,
    )


def full_score(data: Bundle, split: Split, logits: Tensor) -> dict[str, Any]:
    """The scores, and label by prediction for samples that agree with the bias and for those that do not."""
    agrees = data.is_aligned(split)
    everything = np.ones(len(split), dtype=bool)
    kinds = {"all": everything} if agrees is None else {"aligned": agrees.all(1), "conflicting": ~agrees.all(1)}
    predicted = predictions(data, logits).cpu().numpy()
    return score(data, split, logits) | {"confusion": confusion(split.y.numpy(), predicted, data.classes, kinds)}


def group_counts(data: Bundle) -> list[np.ndarray] | None:
    """For each attribute, how many training samples each (class, value) pair has."""
    y, a = data.train.y, data.train.a
    if a is None:
        return None
    sizes = [len(values) for values in data.values]
    pairs = [torch.bincount(y * m + a[:, k], minlength=len(data.classes) * m) for k, m in enumerate(sizes)]
    return [count.view(len(data.classes), m).numpy() for count, m in zip(pairs, sizes, strict=True)]


def group_counts_anywhere(data: Bundle, split: Split) -> list[np.ndarray] | None:
    """For each attribute, and for overlapping groups where this split has them, how many samples of all splits each
    (class, value) pair has: a group exists where it has one."""
    whole = list({id(s): s for s in (*data.splits.values(), split)}.values())
    counts = []
    for k, values in enumerate(data.values if split.a is not None else ()):
        table = np.zeros((len(data.classes), len(values)), dtype=int)
        for each in whole:
            if each.a is not None:
                np.add.at(table, (each.y.numpy(), each.a[:, k].numpy()), 1)
        counts.append(table)
    if split.member is not None:
        table = np.zeros((len(data.classes), split.member.shape[1]), dtype=int)
        for each in whole:
            if each.member is not None:
                np.add.at(table, each.y.numpy(), each.member.numpy())
        counts.append(table)
    return counts or None
