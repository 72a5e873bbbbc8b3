"""The columns of a table that could be named as its attribute, where none is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch import Tensor

from spurless.core import Bundle
from spurless.describe import counts, cramers_v

FEW = 20  # values of a column that can be an attribute


def candidates(data: Bundle) -> list[tuple[str, float]]:
    """Columns with few values, and how much each goes with the label among the training rows: the closest first.

    >>> import torch
    >>> from spurless.core import Split
    >>> x = torch.tensor([[1.0, 0.0, 0.3], [0.0, 1.0, 0.1], [1.0, 0.0, 0.7], [0.0, 1.0, 0.4]] * 9)
    >>> table = Bundle("t", Split(x, torch.tensor([0, 1, 0, 1] * 9)), columns=("job=cook", "job=nurse", "age"))
    >>> [(name, round(association, 2)) for name, association in candidates(table)]
    [('job', 1.0), ('age', 0.97)]
    """
    x = data.train.x
    if not isinstance(x, Tensor) or x.dim() != 2 or x.shape[1] != len(data.columns):
        return []
    y, classes = data.train.y.numpy(), len(data.classes)
    found = []
    for name, codes in _coded(x, data.columns):
        values, codes = np.unique(codes, return_inverse=True)
        if 1 < len(values) <= FEW:
            found.append((name, cramers_v(counts(y, codes, classes, len(values)))[1]))
    return sorted(found, key=lambda each: -each[1])


def _coded(x: Tensor, names: tuple[str, ...]) -> Iterator[tuple[str, np.ndarray]]:
    """Each column of the table as one array; one of words is several inputs, 'job=cook' and 'job=nurse'."""
    parts: dict[str, list[int]] = {}
    for k, name in enumerate(names):
        if not name.endswith(" missing"):  # which marks the gaps of another column
            parts.setdefault(name.partition("=")[0], []).append(k)
    for name, inputs in parts.items():
        yield name, (x[:, inputs[0]] if len(inputs) == 1 else x[:, inputs].argmax(1)).numpy()
