"""Bundles from what a user has in Python: arrays, texts, a PyTorch dataset, a Hugging Face dataset.

Images are uint8 in 0..255 or floats in 0..1, (n, c, h, w), (n, h, w, c) or (n, h, w); they are kept as uint8. Vectors
are (n, d). What could be read in two ways is refused, with what to do. Everything is held in memory; for a folder that
does not fit there, see `folder:PATH`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, Unpack, cast

import numpy as np

from spurless.core.data import Bundle
from spurless.core.errors import DataError, SettingError
from spurless.data.ingest import images
from spurless.data.ingest.given import Described, Given, Part, as_part, attributes_of, given_or_shares
from spurless.data.ingest.items import (
    IMAGE,
    LABEL,
    column_of,
    hf_splits,
    image_cells,
    read_items,
    text_cells,
    text_columns,
)
from spurless.data.ingest.pixels import as_pixels as as_pixels

Read = TypeVar("Read")


def from_arrays(
    x: Any,
    y: Any,
    a: Any = None,
    *,
    val: float | tuple[Any, ...] = 0.1,
    test: float | tuple[Any, ...] = 0.2,
    **described: Unpack[Described],
) -> Bundle:
    """A dataset from arrays or tensors.

    `y` is (n,) and `a` (n,), (n, k) or {name: (n,)}, in whole numbers or words. `val` and `test` are (x, y) or
    (x, y, a), or the share of the samples that is drawn for them, by class and attribute, with a `seed`. `name`,
    `classes` and `attributes` are names; `net`, `recipe`, `inputs` (how images are standardised and augmented) and so
    on go to the Bundle.

    >>> bundle = from_arrays(np.zeros((10, 4)), ["cat"] * 5 + ["dog"] * 5, a=[0, 1] * 5, val=0)
    >>> bundle.classes, len(bundle.train), len(bundle.test)
    (('cat', 'dog'), 8, 2)
    """
    given, shares = given_or_shares((x, y, a), val, test, "x")
    parts = {split: as_part(of, split, attributes_of(described)) for split, of in given.items()}
    return Given(parts, shares, Described(name="arrays") | described).bundle()


def from_texts(
    texts: Sequence[str] | Sequence[tuple[str, str]],
    y: Any,
    a: Any = None,
    *,
    val: float | tuple[Any, ...] = 0.1,
    test: float | tuple[Any, ...] = 0.2,
    tokenizer: str = "minilm",
    length: int = 128,
    **described: Unpack[Described],
) -> Bundle:
    """A dataset from texts, or from pairs of texts, which are cut after `length` tokens.

    `tokenizer` is minilm, a folder or file, or a name on the Hugging Face hub. `val` and `test` are (texts, y) or
    (texts, y, a), or shares; the rest is as in `from_arrays`.
    """
    given, shares = given_or_shares((texts, y, a), val, test, "texts")
    return _of_texts(given, shares, tokenizer, length, Described(name="texts") | described).bundle()


def from_dataset(
    dataset: Any,
    *,
    val: Any = 0.1,
    test: Any = 0.2,
    size: int | None = None,
    resize: images.Resize = "crop",
    **described: Unpack[Described],
) -> Bundle:
    """A dataset from a map-style PyTorch dataset that returns (x, y) or (x, y, a).

    `x` is a PIL image, a tensor or an array; images of several sizes need `size`. Each item is asked for once, so
    a transform that draws random numbers draws once: leave augmentation to the recipe. `val` and `test` are datasets or
    shares; the rest is as in `from_arrays`.
    """
    read = _reader(size, resize, attributes_of(described), lambda d, i: d[i])
    given, shares = _apart({"train": dataset, "val": val, "test": test}, read)
    if not described.get("classes") and np.issubdtype(given["train"].y.dtype, np.integer):
        described["classes"] = getattr(dataset, "classes", ())  # torchvision's datasets know theirs
    return Given(given, shares, Described(name="dataset") | described).bundle()


class HuggingFace(Described, total=False):
    """How the images or texts of a Hugging Face dataset become inputs; as in `from_dataset` and `from_texts`."""

    size: int | None
    resize: images.Resize
    tokenizer: str
    length: int


def from_hf(
    data: Any,
    *,
    image: str | None = None,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    val: Any = 0.1,
    test: Any = 0.2,
    **described: Unpack[HuggingFace],
) -> Bundle:
    """A dataset from a Hugging Face `datasets.Dataset`, or a `DatasetDict` with train, validation and test.

    The image (or text) and label columns are found by their names unless they are given; `attributes` are columns.
    `text` is a column, or the two of a pair of sentences. Names of classes and values come from `ClassLabel` features.
    `val` and `test` are datasets or shares, for what `data` has no split of; splits of other names are not used, which
    is in the notes. The rest is as in `from_dataset` and `from_texts`.
    """
    size, resize = described.pop("size", None), described.pop("resize", "crop")
    tokenizer, length = described.pop("tokenizer", "minilm"), described.pop("length", 128)
    attributes = attributes_of(described)
    parts, unused = hf_splits(data, val, test)
    columns = list(getattr(parts["train"], "column_names", None) or ())
    label = column_of(columns, label, LABEL, "label")
    for column in attributes:
        column_of(columns, column, (), "attributes")
    if label in attributes:
        raise SettingError(f"The column '{label}' is the label, so it cannot be an attribute; name another as `label`.")
    of_label, *of_attributes = (
        tuple(getattr(parts["train"].features[column], "names", None) or ()) for column in (label, *attributes)
    )
    described["classes"] = described.get("classes") or of_label
    values = dict(zip(attributes, of_attributes, strict=True))
    text_column = None if image else text_columns(columns, text)
    if text_column:
        texts, shares = _apart(parts, lambda of, split: text_cells(of, text_column, label, attributes))
        out = _of_texts(texts, shares, tokenizer, length, Described(name="hf") | described)
    else:
        item = partial(image_cells, column_of(columns, image, IMAGE, "image"), label, attributes)
        read, shares = _apart(parts, _reader(size, resize, attributes, item))
        out = Given(read, shares, Described(name="hf") | described)
    return replace(out, values=values, notes=unused).bundle()


def _apart(parts: Mapping[str, Any], read: Callable[[Any, str], Read]) -> tuple[dict[str, Read], dict[str, float]]:
    """The parts that are given, read, and the shares to draw for the others."""
    shares = {split: float(of) for split, of in parts.items() if isinstance(of, (int, float))}
    return {split: read(of, split) for split, of in parts.items() if split not in shares}, shares


def _reader(
    size: int | None, resize: images.Resize, attributes: Sequence[str], item: Callable[[Any, int], tuple[Any, ...]]
) -> Callable[[Any, str], Part]:
    """Reads every item of a dataset, images at one size."""
    frame = None if size is None else images.Frame(size, resize)
    return lambda dataset, split: read_items(dataset, split, frame, item, attributes)


def _of_texts(
    given: Mapping[str, tuple[Any, ...]], shares: dict[str, float], tokenizer: str, length: int, described: Described
) -> Given:
    """The parts with their texts as tokens, all of one length, and what the Bundle must know of them."""
    from spurless.data.ingest.texts import text_fields, tokens_of_splits

    name = described["name"]
    pairs = _check_texts([text for of in given.values() for text in of[0]], name)
    columns = {
        split: ([t[0] for t in of[0]], [t[1] for t in of[0]]) if pairs else (of[0],) for split, of in given.items()
    }
    tokens = tokens_of_splits(name, columns, tokenizer, length)
    attributes = attributes_of(described)
    parts = {split: as_part((tokens[split], *of[1:]), split, attributes, ready=True) for split, of in given.items()}
    return Given(parts, shares, cast("Described", text_fields(tokenizer)) | described)


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
