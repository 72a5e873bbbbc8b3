"""What the tables share: from a pandas DataFrame to a Bundle of float vectors. Nothing is left out without a note."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray

from spurless.core.data import Bundle, Table, overrepresented
from spurless.core.errors import DataError, SettingError
from spurless.core.files import data_root
from spurless.core.recipe import Recipe
from spurless.core.settings import Range
from spurless.data.coding import Coding, encode
from spurless.data.ingest import bundle
from spurless.data.ingest.labels import Coded, Field, codes
from spurless.data.ingest.splits import SPLITS, stratified, thinned

if TYPE_CHECKING:
    from pandas import DataFrame

RECIPE = Recipe(optimizer="adam", lr=1e-3, batch_size=256, epochs=20)


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """How the columns of a table become inputs."""

    categorical: Annotated[tuple[str, ...], "columns of numbers that are codes, not quantities"] = ()
    keep: Annotated[tuple[str, ...], "columns that stay inputs though they count the rows or differ in each"] = ()
    drop_attribute: Annotated[bool, "take the bias attributes out of the inputs"] = False
    max_categories: Annotated[int, "values of a column that get an input of their own", Range(1)] = 100


@dataclass(frozen=True)
class Samples:
    """The samples of a table, what each is called, and their roles."""

    frame: DataFrame
    label: Field
    attributes: Sequence[Field]
    split: NDArray[np.object_]  # (n,) of train, val, test
    names: Sequence[str] | None = None


Drop = Annotated[bool, "take the bias attribute out of the inputs"]
Fractions = Annotated[tuple[float, ...], "shares of train, val and test", Range(0, 1)]
Rho = Annotated[
    float | None, "share of conflicting train and val samples, by leaving samples out; none: as it is", Range(0, 1)
]


def to_bundle(
    name: str,
    samples: Samples,
    inputs: Inputs = Inputs(),
    *,
    coding: Coding | None = None,
    rho: float | None = None,
    seed: int = 0,
    notes: Sequence[str] = (),
    **fields: Any,
) -> Bundle:
    """The table as a Bundle: the label's columns never reach the input; the attributes' do unless `drop_attribute`.

    `coding`: of a model that is given the table; None: learnt from the training samples. `rho`: the share of the train
    and val samples that conflict, by leaving others out. `fields` are those of the Bundle.
    """
    y, coded = samples.label.coded(), [field.coded() for field in samples.attributes]
    frame, split = samples.frame, samples.split
    aligned = tuple(_aligned(y, of, split == "train") for of in coded)
    keep = np.ones(len(frame), bool)
    if rho is not None and coded:
        keep = thinned(~aligned[0].numpy()[y.codes, coded[0].codes], split, rho, seed)
    kept, names = split[keep], samples.names
    hidden = [samples.label, *(samples.attributes if inputs.drop_attribute else ())]
    shown = frame.drop(columns=[c for field in hidden for c in field.columns if c in frame.columns])[keep]
    options = inputs.categorical, inputs.max_categories, inputs.keep
    x, columns, coding_notes, learnt = encode(shown, kept == "train", *options, coding=coding)
    if not x.shape[1]:
        raise DataError(
            f"{name} has no input column left to learn from: {'; '.join(coding_notes) or 'all are targets'}."
        )
    if not keep.all():
        coding_notes.append(
            f"{(~keep).sum():,} train and val samples left out at random so that {rho:.3g} of them conflict"
        )
    described = {"aligned": aligned, "inputs": Table(tuple(columns), learnt), "net": "mlp", "recipe": RECIPE}
    return bundle.to_bundle(
        name,
        {split_name: torch.from_numpy(x[kept == split_name]) for split_name in SPLITS},
        kept,
        y.rows(keep),
        [of.rows(keep) for of in coded],
        names=None if names is None else [names[i] for i in np.flatnonzero(keep).tolist()],
        notes=(*notes, *coding_notes),
        **(described | fields),
    )


def _aligned(y: Coded, a: Coded, train: NDArray[np.bool_]) -> torch.Tensor:
    of_train = torch.from_numpy(y.codes[train]), torch.from_numpy(a.codes[train])
    return overrepresented(*of_train, len(y.names), len(a.names))


def bands(numbers: Iterable[float], edges: Sequence[float]) -> tuple[NDArray[np.object_], tuple[str, ...]]:
    """(n,) of band names (None where the number is missing), and the names in order; each edge begins a new band.

    >>> values, names = bands([24, 25, 59.5, 60, float("nan")], (25, 60))
    >>> values.tolist()
    ['under 25', '25 to under 60', '25 to under 60', '60 and over', None]
    """
    edges = sorted(set(edges))
    if not edges:
        raise SettingError("Bands need at least one edge, such as data.age_bands=[25].")
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
    raise DataError(
        f"'{name}' needs {' and '.join(files)} in {base / 'tabular' / name}. Run 'spurless data download {name}', or "
        f"get them from {source}; --data-root or SPURLESS_DATA name another data root."
    )


def drawn(label: Field, attributes: Sequence[Field], fractions: Sequence[float], seed: int) -> NDArray[np.object_]:
    """(n,) of train, val and test, stratified by class and attribute."""
    return stratified(np.stack([codes(field.values)[0] for field in (label, *attributes)], axis=1), fractions, seed)


def choose(fields: dict[str, Field], target: str, attribute: Sequence[str]) -> tuple[Field, list[Field]]:
    """The target and the attributes among the fields of a table; one field cannot be both."""
    if target in attribute or len(set(attribute)) != len(attribute):
        raise SettingError(f"data.attribute = {list(attribute)} must differ from data.target = '{target}', each once.")
    return fields[target], [fields[a] for a in attribute]


def expect_rows(file: str, n: int, published: int) -> list[str]:
    """A note where a file has other samples than the one that is distributed."""
    return [] if n == published else [f"{file} holds {n:,} samples; the distributed file has {published:,}"]
