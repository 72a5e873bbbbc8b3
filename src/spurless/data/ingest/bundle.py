"""From inputs, labels and attributes to a Bundle: the one way for folders, tables, texts and data from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spurless.core.data import Bundle, Rows, Split
from spurless.core.errors import DataError
from spurless.data.ingest.labels import Coded
from spurless.data.ingest.splits import SPLITS


def to_bundle(
    name: str,
    x: Mapping[str, Tensor | Rows],  # the inputs of each split
    split: Sequence[str] | NDArray[np.object_],  # (n,) of train, val, test
    label: Coded,
    attributes: Sequence[Coded] = (),
    *,
    names: Sequence[str] | None = None,  # (n,) of the samples
    **fields: Any,  # of the Bundle
) -> Bundle:
    """A Bundle of n samples; the inputs of a split come in the order of its samples."""
    of_split = np.asarray(split, dtype=object)
    parts = {}
    for split_name in SPLITS:
        rows = np.flatnonzero(of_split == split_name)
        if len(rows):
            y = torch.from_numpy(label.codes[rows])
            a = torch.from_numpy(np.stack([of.codes[rows] for of in attributes], axis=1)) if attributes else None
            parts[split_name] = Split(
                x[split_name], y, a, None if names is None else [names[row] for row in rows.tolist()]
            )
    described = {
        "classes": label.names,
        "attributes": tuple(of.name for of in attributes),
        "values": tuple(of.names for of in attributes),
    }
    return of_splits(name, parts, **(described | fields))


def of_splits(name: str, splits: Mapping[str, Split], **fields: Any) -> Bundle:
    """A Bundle of splits by their names."""
    if "train" not in splits:
        raise DataError(f"{name} has no training samples left.")
    return Bundle(name, splits["train"], splits.get("val"), splits.get("test"), **fields)
