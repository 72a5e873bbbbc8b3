"""The columns of a table that could be named as its attribute, where none is."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from spurless.core.data import Bundle
from spurless.data.describe import counts, cramers_v

FEW = 20  # values of a column that can be an attribute


def candidates(data: Bundle) -> list[tuple[str, float]]:
    """Columns with few values, and how much each goes with the label among the training rows: the closest first.

    >>> import torch
    >>> from spurless.core.data import Split
    >>> x = torch.tensor([[0.3, 0.0, 1.0, 0.0], [0.1, 1.0, 0.0, 1.0], [0.7, 0.0, 1.0, 0.0], [0.4, 0.0, 0.0, 1.0]] * 9)
    >>> age = {"column": "age", "mean": 0.0, "std": 1.0, "median": 0.0, "marked": True}
    >>> job = {"column": "job", "values": ["cook", "nurse"], "other": False}
    >>> table = Bundle("t", Split(x, torch.tensor([0, 1, 0, 1] * 9)), coding=(age, job))
    >>> [(name, round(association, 2)) for name, association in candidates(table)]
    [('job', 1.0), ('age', 0.97)]
    """
    x, y, classes = data.train.x, data.train.y.numpy(), len(data.classes)
    found: list[tuple[str, float]] = []
    at = 0
    if not isinstance(x, Tensor):
        return found
    for code in data.coding:
        words = len(code["values"]) + code["other"] if "values" in code else 0
        width = words or (code["mean"] is not None) + code["marked"]  # the last of two marks the gaps
        inputs, at = x[:, at : at + width], at + width
        values, codes = np.unique((inputs.argmax(1) if words else inputs[:, 0]).numpy(), return_inverse=True)
        if 1 < len(values) <= FEW:
            found.append((code["column"], cramers_v(counts(y, codes, classes, len(values)))[1]))
    return sorted(found, key=lambda each: -each[1])
