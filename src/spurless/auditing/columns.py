"""The columns of a table: which inputs belong to each, and what each tells."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from spurless.core.data import Bundle, Table


class Column(NamedTuple):
    name: str
    inputs: list[int]  # places among the inputs

    def read(self, x: Tensor) -> Tensor:
        return x[:, self.inputs]

    def swap(self, x: Tensor, donor: Tensor) -> Tensor:
        out = x.clone()
        out[:, self.inputs] = donor[:, self.inputs]
        return out


def columns_of(data: Bundle) -> list[Column]:
    """Every column of the table, and for numbers with gaps whether they are missing.

    >>> import torch
    >>> from spurless.core.data import Split, Table
    >>> age = {"column": "age", "mean": 0.0, "std": 1.0, "median": 0.0, "marked": True}
    >>> job = {"column": "job", "values": ["cook", "nurse"], "other": False}
    >>> table = Bundle("t", Split(torch.zeros(2, 4), torch.tensor([0, 1])), inputs=Table(coding=(age, job)))
    >>> [(column.name, column.inputs) for column in columns_of(table)]
    [('age', [0, 1]), ("missing 'age'", [1]), ('job', [2, 3])]
    """
    if not isinstance(data.inputs, Table):
        return []
    columns, at = [], 0
    for code in data.inputs.coding:
        words = len(code["values"]) + code["other"] if "values" in code else 0
        width = words or (code["mean"] is not None) + code["marked"]  # the last of two marks the gaps
        columns.append(Column(code["column"], list(range(at, at + width))))
        if not words and code["marked"] and width == 2:
            columns.append(Column(f"missing '{code['column']}'", [at + 1]))
        at += width
    if not columns and len(data.shape) == 1:
        names = data.inputs.columns or tuple(f"input {k}" for k in range(data.shape[0]))
        columns = [Column(name, [k]) for k, name in enumerate(names)] if len(names) <= 200 else []
    return columns
