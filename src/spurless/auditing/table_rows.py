"""Rows of a table as text, each column with how much it speaks for the model's answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from spurless.auditing.case import Case
from spurless.auditing.columns import Column, columns_of
from spurless.core.data import Split, Table

MOST_COLUMNS = 8  # of a row that are shown, those that matter most
Shown = dict[int, list[list[Any]]]  # sample -> its columns, each with a number from -1 to 1


def column_texts(case: Case, rows: Sequence[int]) -> Shown:
    """The columns of samples, those first that matter most to the model: 1 for the one that speaks most for its
    answer, below 0 against it. What a column adds is what the answer loses without it: with the mean of all samples in
    its place. Empty for data that is no table."""
    wanted = sorted(set(rows))
    columns = [c for c in columns_of(case.data) if not c.name.startswith("missing '")]
    if not isinstance(case.data.inputs, Table) or not wanted or not columns:
        return {}
    x = case.held[torch.tensor(wanted)].float()
    weights = _without(case, x, case.predicted[wanted], columns)  # (rows, columns)
    order = weights.abs().mean(0).argsort(descending=True, stable=True)[:MOST_COLUMNS].tolist()
    coding = {code["column"]: code for code in case.data.inputs.coding}
    return {row: _spans(x[i], weights[i], [columns[k] for k in order], order, coding) for i, row in enumerate(wanted)}


def _without(case: Case, x: Tensor, answers: Tensor, columns: Sequence[Column]) -> Tensor:
    """(n, columns) By how much the score of each answer falls with the mean of all samples in place of a column."""
    usual = case.held[torch.arange(len(case.held))].float().mean(0, keepdim=True).expand_as(x)
    edited = [x, *(column.swap(x, usual) for column in columns)]
    every = torch.cat(edited)
    scores = case.outputs(Split(every, torch.zeros(len(every), dtype=torch.long)))
    own = scores.view(len(edited), len(x), -1).gather(2, answers[None, :, None].expand(len(edited), -1, 1))[..., 0]
    return (own[0] - own[1:]).T


def _spans(
    x: Tensor, weights: Tensor, columns: Sequence[Column], order: Sequence[int], coding: Mapping[str, Mapping[str, Any]]
) -> list[list[Any]]:
    top = float(weights.abs().max()) or 1.0
    spans: list[list[Any]] = []
    for column, k in zip(columns, order, strict=True):
        value = value_of(x[column.inputs].tolist(), coding.get(column.name))
        if value is not None:
            spans += [[", ", None]] if spans else []
            spans.append([f"{column.name}: {value}", round(float(weights[k]) / top, 2)])
    return spans


def value_of(numbers: Sequence[float], code: Mapping[str, Any] | None) -> str | None:
    """The cell that became these inputs; None where it says nothing more than another column.

    >>> value_of([0.0, 1.0], {"column": "job", "values": ["cook", "nurse"], "other": False})
    'nurse'
    >>> value_of([1.0, 0.0], {"column": "age", "mean": 40.0, "std": 10.0, "marked": True})
    '50'
    """
    if code is None:
        return f"{numbers[0]:.3g}" if len(numbers) == 1 else None
    if "values" in code:
        k = max(range(len(numbers)), key=numbers.__getitem__)
        return None if numbers[k] <= 0 else str(code["values"][k]) if k < len(code["values"]) else "(other)"
    if code["marked"] and numbers[-1] > 0:
        return "(missing)"
    return None if code["mean"] is None else f"{numbers[0] * code['std'] + code['mean']:.4g}"
