"""Samples of datasets in Python: PyTorch's, which give items by number, and Hugging Face's, which have columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spurless.core.errors import DataError
from spurless.core.terminal import track
from spurless.data.ingest import images
from spurless.data.ingest.given import Part, as_part, attribute_names
from spurless.data.ingest.pixels import one_input
from spurless.data.ingest.splits import SPLIT_NAMES, SPLITS

IMAGE = ("image", "img", "picture", "pixel_values")
TEXT = ("text", "sentence", "review", "comment_text", "tweet", "content")
TEXTS = (
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "passage"),
)
LABEL = ("label", "labels", "y", "target", "class", "fine_label")


def read_items(
    dataset: Any,
    split: str,
    frame: images.Frame | None,
    item: Callable[[Any, int], tuple[Any, ...]],
    attributes: Sequence[str],
) -> Part:
    """Every item of a dataset, once."""
    try:
        n = len(dataset)
    except TypeError:
        raise DataError(
            f"The {split} dataset must have a length and items by number (map-style); read a stream into one first."
        ) from None
    if not n:
        raise DataError(f"{split} has no samples.")
    xs: list[Tensor] = []
    ys, cells = [], list[dict[str, Any]]()
    for row in track(range(n), f"reading {split}", n):
        got, where = item(dataset, row), f"Item {row} of {split}"
        if not isinstance(got, (tuple, list)) or len(got) not in (2, 3):
            raise DataError(f"{where} is not (x, y) or (x, y, a).")
        xs.append(one_input(got[0], frame, where))
        if xs[row].shape != xs[0].shape:
            raise DataError(
                f"{where} is of shape {tuple(xs[row].shape)}, item 0 of {tuple(xs[0].shape)}; "
                "pass size=224 to give all images one."
            )
        ys.append(_plain(got[1]))
        if len(got) == 3:
            cells.append(_attribute_cells(got[2], attributes, where))
            if cells[-1].keys() != cells[0].keys():
                raise DataError(f"{where} has other attributes than the items before it: {', '.join(cells[-1])}.")
    a = {name: [of[name] for of in cells] for name in cells[0]} if cells else None
    return as_part((torch.stack(xs), ys, a), split, attributes)


def _attribute_cells(given: Any, attributes: Sequence[str], where: str) -> dict[str, Any]:
    """The attributes of one item by name, from one value, several or {name: value}."""
    if isinstance(given, Mapping):
        return {str(name): _plain(value) for name, value in given.items()}
    given = _plain(given)
    values = [_plain(value) for value in given] if isinstance(given, (tuple, list)) else [given]
    return dict(zip(attribute_names(attributes, len(values), f"a of {where}"), values, strict=True))


def _plain(value: Any) -> Any:
    """A number or word, or several, out of tensors and arrays."""
    if isinstance(value, (Tensor, np.ndarray, np.generic)):
        return value.tolist()
    return value


def hf_splits(data: Any, val: Any, test: Any) -> tuple[dict[str, Any], list[str]]:
    """train, val and test, as given or from a dictionary of splits, and a note on its splits that are none of them."""
    parts = {"train": data, "val": val, "test": test}
    if not isinstance(data, Mapping):
        return parts, []
    called: dict[str, list[Any]] = defaultdict(list)  # by part; "": none that is known
    for key in data:
        called[SPLIT_NAMES.get(str(key).strip().lower(), "")].append(key)
    if "train" not in called:
        raise DataError(
            f"The dataset has the splits {', '.join(map(str, data))} but no train; pass data['...'] itself."
        )
    for split in SPLITS:
        names = [f"'{key}'" for key in called[split]]
        if names and split != "train" and not isinstance(parts[split], (int, float)):
            names += [f"`{split}`"] * (parts[split] is not data[called[split][0]])
        if len(names) > 1:
            raise DataError(f"The dataset has more than one split for {split}: {' and '.join(names)}; pass only one.")
        if names:
            parts[split] = data[called[split][0]]
    unused = [f"'{key}'" for key in called[""] if not any(data[key] is of for of in parts.values())]
    how = f"splits of the dataset that are not used: {', '.join(unused)}; pass one as `val` or `test` to use it"
    return parts, [how] if unused else []


def text_columns(columns: Sequence[str], asked: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """The column of texts, or the two of a pair; None where the dataset is one of images."""
    if asked is not None:
        chosen = (asked,) if isinstance(asked, str) else tuple(asked)
        if len(chosen) not in (1, 2):
            raise DataError(f"`text` takes one column, or the two of a pair, not {len(chosen)}.")
        return tuple(column_of(columns, column, (), "text") for column in chosen)
    if any(column in columns for column in IMAGE):
        return None
    pair = next((pair for pair in TEXTS if set(pair) <= set(columns)), None)  # before one of them alone
    return pair or next(((column,) for column in TEXT if column in columns), None)


def text_cells(dataset: Any, text: tuple[str, ...], label: str, attributes: Sequence[str]) -> tuple[Any, ...]:
    """(texts, y, a) of a Hugging Face dataset."""
    columns = [list(dataset[column]) for column in text]
    texts = columns[0] if len(text) == 1 else list(zip(*columns, strict=True))
    return texts, list(dataset[label]), {c: list(dataset[c]) for c in attributes} or None


def image_cells(image: str, label: str, attributes: Sequence[str], dataset: Any, row: int) -> tuple[Any, ...]:
    """(image, y, a) of one row of a Hugging Face dataset; without attributes (image, y)."""
    cells = dataset[row]
    return cells[image], cells[label], *([[cells[c] for c in attributes]] if attributes else [])


def column_of(columns: Sequence[str], asked: str | None, usual: Sequence[str], what: str) -> str:
    chosen = asked if asked is not None else next((name for name in usual if name in columns), None)
    if chosen not in columns or chosen is None:
        raise DataError(f"Which column is it? Pass `{what}`, from: {', '.join(columns) or 'none'}.")
    return chosen
