"""Data that a user has in Python, on its way to a Bundle: labels and attributes in numbers or words, splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spurless.core.data import Bundle, Images, Table, Texts
from spurless.core.errors import DataError, SettingError
from spurless.core.recipe import Recipe
from spurless.data.ingest import images
from spurless.data.ingest.bundle import to_bundle
from spurless.data.ingest.labels import Coded, ordered
from spurless.data.ingest.pixels import inputs
from spurless.data.ingest.problems import listed
from spurless.data.ingest.splits import SPLITS, share_out

Column = NDArray[Any]  # (n,) whole numbers or words
NAMING = ("name", "classes", "attributes", "seed")  # what of a description is no field of the Bundle as it is


@dataclass
class Part:
    """One split as given: its inputs, labels and attributes."""

    x: Tensor
    y: Column
    a: dict[str, Column]  # by attribute

    def keep(self, rows: list[int]) -> Part:
        idx = torch.tensor(rows, dtype=torch.long)
        return Part(self.x[idx], self.y[rows], {name: column[rows] for name, column in self.a.items()})


class Described(TypedDict, total=False):
    """What may be said of a dataset beside its samples: names, the seed of drawn splits, and fields of the Bundle."""

    name: str
    classes: Sequence[str]
    attributes: Sequence[str]
    seed: int
    inputs: Images | Table | Texts
    aligned: tuple[Tensor, ...]
    groups_ignore_class: bool
    net: str
    recipe: Recipe
    notes: Sequence[str]


def attributes_of(described: Described) -> list[str]:
    """Names of attributes, of which a single one may be given as it is."""
    names = described.get("attributes", ())
    return [names] if isinstance(names, str) else list(names)


@dataclass
class Given:
    """A dataset as given: its parts, shares of train for the parts that it lacks, and what classes and values mean."""

    parts: dict[str, Part]
    shares: dict[str, float]
    described: Described
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by attribute, where they are known
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.name = self.described["name"]
        self.classes = tuple(self.described.get("classes", ()))
        self.seed = self.described.get("seed", 0)

    def bundle(self) -> Bundle:
        """The Bundle, with the missing splits drawn from the training samples."""
        fields: dict[str, Any] = {k: v for k, v in self.described.items() if k not in NAMING}
        self._draw()
        self._check_alike()
        parts = {split: self.parts[split] for split in SPLITS if split in self.parts}
        train = parts["train"]
        labels = {split: of.y for split, of in parts.items()}
        columns = {name: {split: of.a[name] for split, of in parts.items()} for name in train.a}
        remarks = [check_numbers("label", labels, bool(self.classes), is_label=True)]
        remarks += [check_numbers(name, columns[name], bool(self.values.get(name))) for name in columns]
        if len(np.unique(train.y)) < 2:
            raise DataError(
                f"All training samples of {self.name} have the same label; a label needs two classes or more."
            )
        notes = (*fields.pop("notes", ()), *self.notes, *filter(None, remarks))
        return to_bundle(
            self.name,
            {split: of.x for split, of in parts.items()},
            np.repeat(np.array(list(parts), dtype=object), [len(of.y) for of in parts.values()]),
            coded("label", labels, self.classes, known_in=["train"]),
            [coded(name, columns[name], self.values.get(name, ()), known_in=list(parts)) for name in columns],
            notes=notes,
            **(_kind(train.x) | fields),
        )

    def _draw(self) -> None:
        """Take the samples of the missing splits from train, by class and attribute."""
        train, shares = self.parts["train"], self.shares
        if sum(shares.values()) >= 1 or min(shares.values(), default=0) < 0:
            raise SettingError("The shares `val` and `test` must not be negative, and leave something to train on.")
        if not any(shares.values()):
            return
        strata = list(zip(train.y.tolist(), *(column.tolist() for column in train.a.values()), strict=True))
        ids = [str(row) for row in range(len(train.y))]
        drawn = share_out(ids, strata, shares.get("val", 0), shares.get("test", 0), self.seed)
        for split in SPLITS:
            if rows := [row for row, of in enumerate(drawn) if of == split]:
                self.parts[split] = train.keep(rows)

    def _check_alike(self) -> None:
        """Refuse parts that differ in their attributes, in the shape of their inputs or in how labels are written."""
        train = self.parts["train"]
        for split, of in self.parts.items():
            if list(of.a) != list(train.a):
                raise DataError(
                    f"{split} has the attributes {list(of.a)}, but train has {list(train.a)}; give the same."
                )
            if of.x.shape[1:] != train.x.shape[1:]:
                here, there = tuple(of.x.shape[1:]), tuple(train.x.shape[1:])
                raise DataError(f"An input of {split} is of shape {here}, one of train of {there}.")
            for what, mine, trained in (("label", of.y, train.y), *((k, of.a[k], train.a[k]) for k in train.a)):
                if mine.dtype.kind != trained.dtype.kind:
                    raise DataError(
                        f"The {what} is a word in one of train and {split}, a number in the other; write it alike."
                    )


def _kind(x: Tensor) -> dict[str, Any]:
    """What a Bundle of such inputs has by default: its network, and how images of three channels are standardised."""
    if x.dim() != 4:
        return {"net": "mlp"}
    standard = {"inputs": Images(images.IMAGENET_MEAN, images.IMAGENET_STD)} if x.shape[1] == 3 else {}
    return {"net": "resnet18"} | standard


def coded(what: str, columns: Mapping[str, Column], names: Sequence[str], known_in: Sequence[str]) -> Coded:
    """Codes of all parts, one after the other, from whole numbers or words. What occurs must occur in the parts
    `known_in`, and have one of the names, if there are any."""
    present = np.unique(np.concatenate([columns[split] for split in known_in]))
    names, codes = _numbered(what, present, names)
    for split, column in columns.items():
        missing = sorted(str(value) for value in set(column.tolist()) - codes.keys())
        if missing:
            raise DataError(
                f"The {what} {missing[0]!r} in {split} does not occur in train; leave its samples out, or train on "
                "some."
            )
    values = np.concatenate(list(columns.values())).tolist()
    return Coded(what, np.array([codes[value] for value in values], dtype=np.int64), names)


def _numbered(what: str, present: Column, names: Sequence[str]) -> tuple[tuple[str, ...], dict[Any, int]]:
    """All names, and the code of each number or word that occurs."""
    if np.issubdtype(present.dtype, np.integer):
        if names and present[-1] >= len(names):
            raise DataError(
                f"The {what} {present[-1]} has no name; there are {len(names)} names, for the numbers from 0 on."
            )
        every = tuple(map(str, names)) or tuple(str(i) for i in range(int(present[-1]) + 1))
        return every, {int(v): int(v) for v in present}
    unnamed = set(present.tolist()) - set(names)
    if names and unnamed:
        raise DataError(f"The {what} '{unnamed.pop()}' is not among {', '.join(names)}.")
    every = tuple(names) or ordered(present.tolist())
    return every, {word: at for at, word in enumerate(every)}


def check_numbers(what: str, columns: Mapping[str, Column], named: bool, is_label: bool = False) -> str:
    """A note on whole numbers that no sample has though a larger one occurs: each is a class, or value, all the same.

    Labels that do not begin at 0 could be read in two ways, and numbers of which most are missing are codes: refused.
    """
    present = np.unique(np.concatenate(list(columns.values())))
    if present.dtype.kind != "i":
        return ""
    if present[0] < 0:
        raise DataError(f"The {what} {present[0]} is negative; numbers begin at 0 (samples without one: leave out).")
    absent = int(present[-1]) + 1 - len(present)
    if named or not absent or (is_label and len(present) == 1):  # of a single label more is said elsewhere
        return ""
    many, each = ("labels", "class") if is_label else (f"values of '{what}'", "value")
    if absent > 2 * len(present) or (is_label and present[0] > 0):
        first = next(number for number, value in enumerate(present.tolist()) if number != value)
        raise DataError(
            f"The {many} go up to {present[-1]}, but smaller numbers have no sample ({absent:,}, beginning with "
            f"{first}); each would be a {each}. Number them 0, 1, 2 and so on, or give them as words, such as "
            f"'{present[-1]}'" + (", or name all classes from 0 on with `classes`." if is_label else ".")
        )
    numbers = listed([str(n) for n in np.setdiff1d(np.arange(present[-1]), present)])
    return (
        f"{many} that no sample has, though larger ones occur, each taken as a {each} (words would not be): {numbers}"
    )


def as_part(given: tuple[Any, ...], split: str, attributes: Sequence[str], ready: bool = False) -> Part:
    """`ready`: the inputs are as they are to be."""
    x, y, a = (*given, None)[:3]
    out = Part(x if ready else inputs(x, split), words_or_numbers(y, f"y of {split}"), _columns(a, split, attributes))
    for what, column in (("y", out.y), *out.a.items()):
        if len(column) != len(out.x):
            raise DataError(f"{split} has {len(out.x):,} inputs but {len(column):,} values of {what}.")
    if not len(out.x):
        raise DataError(f"{split} has no samples.")
    return out


def _columns(a: Any, split: str, attributes: Sequence[str]) -> dict[str, Column]:
    """Attributes by name, from {name: (n,)}, (n,) or (n, k)."""
    if a is None:
        return {}
    if not (isinstance(a, Mapping) or hasattr(a, "columns")):  # a pandas table has them
        table = _array(a, f"a of {split}")
        table = table[:, None] if table.ndim == 1 else table
        if table.ndim != 2:
            raise DataError(f"a of {split} is of shape {table.shape}; it takes (n,), (n, k) or {{name: (n,)}}.")
        a = dict(zip(attribute_names(attributes, table.shape[1], f"a of {split}"), table.T, strict=True))
    elif attributes and set(attributes) != set(map(str, a)):
        raise DataError(f"a of {split} has the columns {list(a)}, but the names {list(attributes)} were given.")
    return {str(name): words_or_numbers(column, f"'{name}' of {split}") for name, column in a.items()}


def attribute_names(attributes: Sequence[str], count: int, what: str) -> Sequence[str]:
    names = attributes or [f"a{k}" for k in range(count)]
    if len(names) != count:
        raise DataError(f"{what} has {count} columns, but {len(names)} names were given.")
    if len(set(names)) < count:
        raise DataError(f"`attributes` holds a name twice: {', '.join(names)}; give each its own.")
    return names


def _array(values: Any, what: str) -> Column:
    """An array that holds what was given: NaN among words stays NaN, which numpy would make a word."""
    try:
        out = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    except ValueError:
        raise DataError(f"{what} has samples of different lengths; give each as many values.") from None
    is_list = isinstance(values, (list, tuple))
    return np.asarray(values, dtype=object) if is_list and out.dtype.kind == "U" else out


def words_or_numbers(values: Any, what: str) -> Column:
    """(n,) whole numbers or words."""
    out = _array(values, what)
    if out.ndim != 1:
        raise DataError(f"{what} is of shape {out.shape}; it takes one whole number or word for each sample, (n,).")
    if out.dtype.kind in "OU":
        fits = np.array([isinstance(value, (str, int, np.integer, np.bool_)) for value in out.tolist()], bool)
    elif out.dtype.kind == "f":
        fits = np.isfinite(out) & (out == np.floor(out))
    else:
        fits = np.full(len(out), out.dtype.kind in "biu")
    if not fits.all():
        row = int(np.argmin(fits))
        raise DataError(
            f"{what} holds {out[row : row + 1].tolist()[0]!r} in sample {row}; it takes whole numbers or words. Fill "
            "it in, or leave the sample out."
        )
    if out.dtype.kind not in "OU":
        return out.astype(np.int64)
    words = out.astype(str)
    stray = [text for text in words.tolist() if text != text.strip() or text in ("", "nan")]
    if stray:
        raise DataError(f"{what} holds {stray[0]!r}; take stray spaces and empty values away.")
    return words


def given_or_shares(
    train: tuple[Any, ...], val: Any, test: Any, x: str
) -> tuple[dict[str, tuple[Any, ...]], dict[str, float]]:
    """The splits that are given, and the shares to draw for the others; `x` is what the inputs are called."""
    given: dict[str, tuple[Any, ...]] = {"train": train}
    shares = {}
    for split, value in (("val", val), ("test", test)):
        if isinstance(value, (int, float)):
            shares[split] = float(value)
        elif isinstance(value, tuple) and len(value) in (2, 3):
            given[split] = value
        else:
            raise DataError(f"`{split}` takes a share of the samples, such as 0.1, or ({x}, y) or ({x}, y, a).")
    return given, shares
