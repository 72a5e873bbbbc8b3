"""What the tables share: from a pandas DataFrame to a Bundle of float vectors. Nothing is left out without a note."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from spurless.core.data import Bundle, Split, overrepresented
from spurless.core.errors import UserError
from spurless.core.files import data_root
from spurless.core.recipe import Recipe
from spurless.data.coding import MISSING, encode

if TYPE_CHECKING:
    from pandas import DataFrame

SPLITS = ("train", "val", "test")
RECIPE = Recipe(optimizer="adam", lr=1e-3, batch_size=256, epochs=20)


@dataclass(frozen=True)
class Field:
    """A target or a bias attribute: one text a row (None: missing), and the input columns that spell it out."""

    name: str
    values: np.ndarray  # (n,) of str or None
    columns: tuple[str, ...]
    order: tuple[str, ...] = ()  # of the names; those that are not listed follow, numbers by size

    def rows(self, keep: np.ndarray) -> Field:
        return replace(self, values=self.values[keep])


def to_bundle(
    frame: DataFrame,
    label: Field,
    attributes: Sequence[Field],
    split: np.ndarray,  # (n,) of train, val, test
    *,
    name: str,
    drop_attribute: bool = False,
    categorical: Sequence[str] = (),
    max_categories: int = 100,
    keep_columns: Sequence[str] = (),
    rho: float | None = None,
    seed: int = 0,
    rows: Sequence[str] | None = None,
    notes: Sequence[str] = (),
    settings: dict[str, Any] | None = None,
) -> Bundle:
    """The table as a Bundle. The label's columns never reach the input; the attributes' do unless `drop_attribute`."""
    y, classes = codes(label.values, label.order)
    coded = [codes(field.values, field.order) for field in attributes]
    a = np.stack([c for c, _ in coded], axis=1) if coded else None  # (n, k)
    values = tuple(v for _, v in coded)

    train = split == "train"
    aligned = tuple(
        overrepresented(torch.from_numpy(y[train]), torch.from_numpy(c[train]), len(classes), len(v)) for c, v in coded
    )
    keep = np.ones(len(frame), bool)
    if rho is not None and a is not None:
        conflicting = ~aligned[0].numpy()[y, a[:, 0]]
        keep = thinned(conflicting, split, rho, seed)

    hidden = set(label.columns).union(*(f.columns for f in attributes if drop_attribute))
    inputs = frame[[c for c in frame.columns if c not in hidden]]
    x, columns, said, coding = encode(inputs[keep], train[keep], categorical, max_categories, keep_columns)
    notes = [*notes, *said]
    if not x.shape[1]:
        raise UserError(f"{name} has no input column left to learn from: {'; '.join(said) or 'all are targets'}.")
    if not keep.all():
        notes.append(f"{(~keep).sum():,} train and val rows left out at random so that {rho:.3g} of them conflict")

    def part(which: str) -> Split | None:
        chosen = np.flatnonzero(keep & (split == which))
        if not len(chosen):
            return None
        return Split(
            torch.from_numpy(x[split[keep] == which]),
            torch.from_numpy(y[chosen]),
            None if a is None else torch.from_numpy(a[chosen]),
            None if rows is None else [rows[i] for i in chosen.tolist()],
        )

    first = part("train")
    if first is None:
        raise UserError(f"{name} has no training rows left.")
    return Bundle(
        name=name,
        train=first,
        val=part("val"),
        test=part("test"),
        classes=classes,
        attributes=tuple(f.name for f in attributes),
        values=values,
        aligned=aligned,
        columns=tuple(columns),
        coding=coding,
        net="mlp",
        recipe=RECIPE,
        settings=settings or {},
        notes=tuple(notes),
    )


def codes(values: Iterable[str | None], order: Sequence[str] = ()) -> tuple[np.ndarray, tuple[str, ...]]:
    """Each value as the place of its name in the list of names: as in `order`, then by size, missing ones last.

    >>> place, names = codes(["10", "9", None, "9"])
    >>> place.tolist(), names
    ([1, 0, 2, 0], ('9', '10', '(missing)'))
    """
    listed = [MISSING if v is None or v != v else str(v) for v in values]  # v != v: NaN, as pandas may have it
    present = set(listed)
    names = [n for n in order if n in present] + sorted(present.difference(order), key=_by_size)
    place = {name: i for i, name in enumerate(names)}
    return np.array([place[v] for v in listed], dtype=np.int64), tuple(names)


def _by_size(name: str) -> tuple[bool, float, str]:
    try:
        number = float(name)
    except ValueError:
        return name == MISSING, float("inf"), name
    return False, number, name


def stratified(groups: np.ndarray, fractions: Sequence[float], seed: int) -> np.ndarray:
    """(n,) of train, val, test: a seeded split in which every group has its share to within a row or two.

    `groups` is (n, k) of codes, the class first. A class too rare to be shared out is for training.

    >>> groups = np.repeat([[0, 0], [0, 1], [1, 0]], [60, 20, 20], axis=0)
    >>> split = stratified(groups, (0.6, 0.2, 0.2), seed=0)
    >>> [int((split[:60] == s).sum()) for s in SPLITS], [int((split == s).sum()) for s in SPLITS]
    ([36, 12, 12], [60, 20, 20])
    """
    _, val, test = check_fractions(fractions)
    n = len(groups)
    order = np.lexsort((np.random.default_rng(seed).random(n), *groups.T[::-1]))  # by group, at random within it
    split = np.full(n, "train", dtype=object)
    picked = _every(n, test)
    split[order[picked]] = "test"
    rest = order[~picked]
    split[rest[_every(len(rest), val / (1 - test))]] = "val"
    for c in np.unique(groups[:, 0]):
        of_class = np.flatnonzero(groups[:, 0] == c)
        if not (split[of_class] == "train").any():
            split[of_class] = "train"
    return split


def _every(n: int, share: float) -> np.ndarray:
    """(n,) bool: evenly spaced, round(n * share) of them, so that any stretch holds its share."""
    steps = np.floor(np.arange(n + 1) * share + 0.5 + 1e-9)
    return np.diff(steps) > 0


def check_fractions(fractions: Sequence[float]) -> tuple[float, float, float]:
    """The shares of train, val and test, or a UserError."""
    if len(fractions) != 3 or fractions[0] <= 0 or min(fractions) < 0 or abs(sum(fractions) - 1) > 1e-6:
        raise UserError(
            f"data.fractions = {list(fractions)} is not allowed; it takes the shares of train, val and test, "
            "which add up to 1, such as [0.6, 0.2, 0.2]."
        )
    return fractions[0], fractions[1], fractions[2]


def thinned(conflicting: np.ndarray, split: np.ndarray, rho: float, seed: int) -> np.ndarray:
    """(n,) bool: the rows to keep so that a share `rho` of the train and of the val rows conflicts.

    The larger of the two kinds loses rows at random; the test rows stay as they are.

    >>> conflicting, split = np.repeat([True, False], [50, 90]), np.repeat(["train"], 140)
    >>> keep = thinned(conflicting, split, rho=0.1, seed=0)
    >>> int(keep[:50].sum()), int(keep[50:].sum())
    (10, 90)
    """
    rng = np.random.default_rng(seed)
    keep = np.ones(len(split), bool)
    for part in ("train", "val"):
        against = rng.permutation(np.flatnonzero((split == part) & conflicting))
        along = rng.permutation(np.flatnonzero((split == part) & ~conflicting))
        if len(against) * (1 - rho) > len(along) * rho:
            keep[against[round(len(along) * rho / (1 - rho)) :]] = False
        elif rho > 0:
            keep[along[round(len(against) * (1 - rho) / rho) :]] = False
    return keep


def bands(numbers: Iterable[float], edges: Sequence[float]) -> tuple[np.ndarray, tuple[str, ...]]:
    """(n,) of band names (None where the number is missing), and the names in order; each edge begins a new band.

    >>> values, names = bands([24, 25, 59.5, 60, float("nan")], (25, 60))
    >>> values.tolist()
    ['under 25', '25 to under 60', '25 to under 60', '60 and over', None]
    """
    edges = sorted(set(edges))
    if not edges:
        raise UserError("Bands need at least one edge, such as data.age_bands=[25].")
    texts = written(edges)
    between = [f"{low} to under {high}" for low, high in pairwise(texts)]
    names = (f"under {texts[0]}", *between, f"{texts[-1]} and over")
    values = np.array(list(numbers), dtype=np.float64)
    named = np.array(names, dtype=object)[np.searchsorted(edges, values, side="right")]
    named[np.isnan(values)] = None
    return named, names


def written(numbers: Sequence[float]) -> list[str]:
    """Different numbers as texts, as short as keeps them apart.

    >>> written([25, 0.5]), written([1700000001, 1700000002])
    (['25', '0.5'], ['1700000001', '1700000002'])
    """
    tried = ([f"{number:.{digits}g}" for number in numbers] for digits in (6, 10, 14, 17))
    return next(texts for texts in tried if len(set(texts)) == len(set(numbers)))


def find(name: str, files: Sequence[str], root: Path | None, source: str) -> Path:
    """The folder of a table as distributed: `tabular/NAME` or `NAME` under the data root."""
    base = data_root(root)
    for folder in (base / "tabular" / name, base / name):
        if all((folder / file).is_file() for file in files):
            return folder
    raise UserError(
        f"'{name}' needs {' and '.join(files)} in {base / 'tabular' / name}. Run 'spurless data download {name}', or "
        f"get them from {source}; --data-root or SPURLESS_DATA name another data root."
    )


def choose(fields: dict[str, Field], target: str, attribute: Sequence[str]) -> tuple[Field, list[Field]]:
    """The target and the attributes among the fields of a table; one field cannot be both."""
    if target in attribute or len(set(attribute)) != len(attribute):
        raise UserError(f"data.attribute = {list(attribute)} must differ from data.target = '{target}', and each once.")
    return fields[target], [fields[a] for a in attribute]


def expect_rows(file: str, found: int, published: int) -> list[str]:
    """A note where a file has other rows than the one that is distributed."""
    return [] if found == published else [f"{file} holds {found:,} rows; the distributed file has {published:,}"]
