"""Bundles from what a user has in Python: arrays, texts, a PyTorch dataset, a Hugging Face dataset.

Images are uint8 in 0..255 or floats in 0..1, (n, c, h, w), (n, h, w, c) or (n, h, w); they are kept as uint8. Vectors
are (n, d). What could be read in two ways is refused, with what to do. Everything is held in memory; for a folder that
does not fit there, see `folder:PATH`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from spurless.core.data import Bundle
from spurless.core.errors import DataError, SettingError
from spurless.data.ingest import images
from spurless.data.ingest.given import Given, Part, as_part, given_or_shares
from spurless.data.ingest.items import (
    IMAGE,
    LABEL,
    column_of,
    hf_splits,
    read_items,
    text_cells,
    text_columns,
)
from spurless.data.ingest.pixels import as_pixels as as_pixels


def from_arrays(
    x: Any,
    y: Any,
    a: Any = None,
    *,
    val: float | tuple[Any, ...] = 0.1,
    test: float | tuple[Any, ...] = 0.2,
    classes: Sequence[str] = (),
    attributes: Sequence[str] = (),
    name: str = "arrays",
    seed: int = 0,
    **fields: Any,
) -> Bundle:
    """A dataset from arrays or tensors.

    `y` is (n,) and `a` (n,), (n, k) or {name: (n,)}, in whole numbers or words. `val` and `test` are (x, y) or
    (x, y, a), or the share of the samples that is drawn for them, by class and attribute. `fields` go to the Bundle:
    net, recipe, inputs (how images are standardised and augmented) and so on.

    >>> bundle = from_arrays(np.zeros((10, 4)), ["cat"] * 5 + ["dog"] * 5, a=[0, 1] * 5, val=0)
    >>> bundle.classes, len(bundle.train), len(bundle.test)
    (('cat', 'dog'), 8, 2)
    """
    given, shares = given_or_shares((x, y, a), val, test, "x")
    parts = {split: as_part(of, split, _as_list(attributes)) for split, of in given.items()}
    return Given(name, parts, shares, tuple(classes), seed=seed).bundle(**fields)


def from_texts(
    texts: Sequence[str] | Sequence[tuple[str, str]],
    y: Any,
    a: Any = None,
    *,
    val: float | tuple[Any, ...] = 0.1,
    test: float | tuple[Any, ...] = 0.2,
    classes: Sequence[str] = (),
    attributes: Sequence[str] = (),
    tokenizer: str = "minilm",
    length: int = 128,
    name: str = "texts",
    seed: int = 0,
    **fields: Any,
) -> Bundle:
    """A dataset from texts, or from pairs of texts, which are cut after `length` tokens.

    `tokenizer` is minilm, a folder or file, or a name on the Hugging Face hub. `val` and `test` are (texts, y) or
    (texts, y, a), or shares; the rest is as in `from_arrays`.
    """
    given, shares = given_or_shares((texts, y, a), val, test, "texts")
    parts, described = _of_texts(given, _as_list(attributes), tokenizer, length, name)
    return Given(name, parts, shares, tuple(classes), seed=seed).bundle(**(described | fields))


def from_dataset(
    dataset: Any,
    *,
    val: Any = 0.1,
    test: Any = 0.2,
    size: int | None = None,
    resize: images.Resize = "crop",
    classes: Sequence[str] = (),
    attributes: Sequence[str] = (),
    name: str = "dataset",
    seed: int = 0,
    **fields: Any,
) -> Bundle:
    """A dataset from a map-style PyTorch dataset that returns (x, y) or (x, y, a).

    `x` is a PIL image, a tensor or an array; images of several sizes need `size`. Each item is asked for once, so
    a transform that draws random numbers draws once: leave augmentation to the recipe. `val` and `test` are datasets or
    shares; the rest is as in `from_arrays`.
    """
    attributes = _as_list(attributes)
    frame = None if size is None else images.Frame(size, resize)
    parts = {"train": dataset, "val": val, "test": test}
    shares = {split: float(of) for split, of in parts.items() if isinstance(of, (int, float))}
    given = {p: read_items(of, p, frame, lambda d, i: d[i], attributes) for p, of in parts.items() if p not in shares}
    if not classes and np.issubdtype(given["train"].y.dtype, np.integer):
        classes = getattr(dataset, "classes", ())  # torchvision's datasets know theirs
    return Given(name, given, shares, tuple(classes), seed=seed).bundle(**fields)


def from_hf(
    data: Any,
    *,
    image: str | None = None,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    classes: Sequence[str] = (),
    attributes: Sequence[str] = (),
    val: Any = 0.1,
    test: Any = 0.2,
    size: int | None = None,
    resize: images.Resize = "crop",
    tokenizer: str = "minilm",
    length: int = 128,
    name: str = "hf",
    seed: int = 0,
    **fields: Any,
) -> Bundle:
    """A dataset from a Hugging Face `datasets.Dataset`, or a `DatasetDict` with train, validation and test.

    The image (or text) and label columns are found by their names unless they are given; `attributes` are columns.
    `text` is a column, or the two of a pair of sentences. Names of classes and values come from `ClassLabel` features.
    `val` and `test` are datasets or shares, for what `data` has no split of; splits of other names are not used, which
    is in the notes. The rest is as in `from_dataset` and `from_texts`.
    """
    attributes = _as_list(attributes)
    parts, unused = hf_splits(data, val, test)
    train = parts["train"]
    columns = list(getattr(train, "column_names", None) or ())
    at_label = column_of(columns, label, LABEL, "label")
    for column in attributes:
        column_of(columns, column, (), "attributes")
    if at_label in attributes:
        raise SettingError(
            f"The column '{at_label}' is the label, so it cannot be an attribute; name another as `label`."
        )
    of_label, *of_attributes = (
        tuple(getattr(train.features[column], "names", None) or ()) for column in (at_label, *attributes)
    )
    names, values = tuple(classes) or of_label, dict(zip(attributes, of_attributes, strict=True))
    shares = {split: float(of) for split, of in parts.items() if isinstance(of, (int, float))}
    at_text = None if image else text_columns(columns, text)
    if at_text:
        rows = {p: text_cells(of, at_text, at_label, attributes) for p, of in parts.items() if p not in shares}
        texts, described = _of_texts(rows, attributes, tokenizer, length, name)
        return Given(name, texts, shares, names, values, seed, unused).bundle(**(described | fields))
    at_image = column_of(columns, image, IMAGE, "image")

    def item(dataset: Any, row: int) -> tuple[Any, ...]:
        cells = dataset[row]
        return cells[at_image], cells[at_label], *([[cells[c] for c in attributes]] if attributes else [])

    frame = None if size is None else images.Frame(size, resize)
    given = {p: read_items(of, p, frame, item, attributes) for p, of in parts.items() if p not in shares}
    return Given(name, given, shares, names, values, seed, unused).bundle(**fields)


def _as_list(names: Sequence[str]) -> list[str]:
    """Names of attributes, of which a single one may be given as it is."""
    return [names] if isinstance(names, str) else list(names)


def _of_texts(
    given: Mapping[str, tuple[Any, ...]], attributes: Sequence[str], tokenizer: str, length: int, name: str
) -> tuple[dict[str, Part], dict[str, Any]]:
    """The parts with their texts as tokens, all of one length, and what the Bundle must know of them."""
    from spurless.data.ingest.texts import text_fields, tokens_of_splits

    pairs = _check_texts([text for of in given.values() for text in of[0]], name)
    columns = {
        split: ([t[0] for t in of[0]], [t[1] for t in of[0]]) if pairs else (of[0],) for split, of in given.items()
    }
    tokens = tokens_of_splits(name, columns, tokenizer, length)
    parts = {split: as_part((tokens[split], *of[1:]), split, attributes, ready=True) for split, of in given.items()}
    return parts, text_fields(tokenizer)


def _check_texts(texts: Sequence[Any], name: str) -> bool:
    """Whether they are pairs; refuses what is neither all texts nor all pairs of texts, and texts that say nothing."""
    pairs = bool(texts) and not isinstance(texts[0], str)
    odd = [text for text in texts if not _is_text(text, pairs)]
    if odd or not texts:
        shown = repr(odd[0])[:80] if odd else "no samples"
        raise DataError(f"{name} holds {shown}; texts are all strings, or all pairs of two strings.")
    if not any(text.strip() for row in texts for text in ((row,) if isinstance(row, str) else row)):
        raise DataError(f"{name} holds empty texts only; there is nothing to learn from.")
    return pairs


def _is_text(text: Any, pair: bool) -> bool:
    if not pair:
        return isinstance(text, str)
    return isinstance(text, (tuple, list)) and len(text) == 2 and all(isinstance(t, str) for t in text)
