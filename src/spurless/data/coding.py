"""How the columns of a table become numbers: learnt from the training samples, kept with the model, used again.

Numbers are standardised, everything else becomes one input for each value. A model must be given a new table as it was
given its own: means and lists of values that are learnt anew would show it something else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from spurless.core.data import Bundle, Table
from spurless.core.errors import DataError
from spurless.core.messages import log
from spurless.data.ingest.labels import MISSING

if TYPE_CHECKING:
    from pandas import DataFrame, Series

OTHER = "(other)"
TELLING = 20  # samples from which on it is no accident that a column counts them, or differs in each of them

# One for each column that is an input, as JSON can hold it. Of numbers: column, mean, std, median, and whether gaps are
# marked by an input of their own. Of words: column, values, and whether there is an input for all rarer ones.
Coding = tuple[Mapping[str, Any], ...]


def coding_of(data: Bundle) -> Coding:
    """How the columns of a table became inputs; nothing where they are no table."""
    return data.inputs.coding if isinstance(data.inputs, Table) else ()


def of_words(coding: Coding | None) -> set[str]:
    """Columns that are given as words, also where a table happens to hold nothing but numbers in them."""
    return {code["column"] for code in coding or () if "values" in code}


def columns_read(coding: Coding | None) -> set[str]:
    """Columns that the model reads for which a table is loaded: they stay inputs, whatever they look like."""
    return {code["column"] for code in coding or ()}


def encode(
    frame: DataFrame,
    train: np.ndarray,
    categorical: Sequence[str] = (),
    max_categories: int = 100,
    keep: Sequence[str] = (),
    coding: Coding | None = None,
) -> tuple[np.ndarray, list[str], list[str], Coding]:
    """(samples, features) float32, the name of each feature, what has to be said about it, and how it was done.

    `keep`: columns that stay inputs though they hold a different text in every sample. `coding`: as the table of a
    trained model was coded; None: as the training samples here ask for.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"age": [20.0, 40.0, None], "job": ["cook", "nurse", "cook"], "unit": [1, 1, 1]})
    >>> x, names, said, coding = encode(table, train=np.array([True, True, False]))
    >>> names
    ['age', 'job=cook', 'job=nurse']
    >>> x.tolist()
    [[-1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    >>> said[-1]
    'left out, the same in all training samples: unit'
    >>> encode(pd.DataFrame({"job": ["nurse"], "age": [60.0]}), train=np.array([True]), coding=coding)[0].tolist()
    [[3.0, 0.0, 1.0]]
    """
    given = coding is not None
    coding, notes = (coding, []) if coding is not None else _learn(frame, train, categorical, max_categories, keep)
    blocks, names, unseen = [np.empty((len(frame), 0), np.float32)], list[str](), list[str]()
    for code in coding:
        column = code["column"]
        if column not in frame:
            raise DataError(
                f"The model reads the column '{column}', which is not among the inputs here ({', '.join(frame)}); "
                "give it a table with the columns that it was trained on."
            )
        if "values" in code:
            texts = _texts(frame[column])
            if given and not {*texts} & {*code["values"]}:
                vocabulary, here = (", ".join(sorted(map(str, each))[:5]) for each in (code["values"], {*texts}))
                raise DataError(
                    f"The model knows other values of the column '{column}' ({vocabulary}) than are here: {here}."
                )
            block, new = _one_hot(texts, list(code["values"]), code["other"])
            named = [f"={v}" for v in code["values"]] + [f"={OTHER}"] * code["other"]
            if new:
                unseen.append(f"{column} {new:,}")
        else:
            block, named = _standardised(_floats(frame[column]), code)
        blocks.append(block)
        names += [f"{column}{n}" for n in named]
    if unseen and given:
        log.warning(
            f"Samples with a value that the model was not trained on, which it does not see: {', '.join(unseen)}."
        )
    elif unseen:
        notes.append(f"samples with a value that no training sample has: {', '.join(unseen)}")
    return np.concatenate(blocks, axis=1, dtype=np.float32), names, notes, coding


def _learn(
    frame: DataFrame, train: np.ndarray, categorical: Sequence[str], max_categories: int, keep: Sequence[str]
) -> tuple[Coding, list[str]]:
    """The coding that the training samples ask for, and what has to be said about it."""
    from pandas.api.types import is_numeric_dtype

    coding: list[dict[str, Any]] = []
    marked, filled, own_value, rare, constant, ids, few = (list[str]() for _ in range(7))
    for column in frame.columns:
        numeric = column not in categorical and is_numeric_dtype(frame[column])
        gaps = frame[column].isna().to_numpy()
        if numeric:
            code = _numbers(_floats(frame[column]), train)
        else:
            kept, cut = _vocabulary(_texts(frame[column])[train], max_categories)
            if len(kept) + cut == train.sum() > 1 and column not in keep:
                if cut or train.sum() >= TELLING:
                    ids.append(column)
                    continue
                few.append(column)
            if cut:
                rare.append(f"{column} ({cut:,} values)")
            code = {"values": kept, "other": cut > 0} if len(kept) + (cut > 0) > 1 else {}
        if not code:
            constant.append(column)
            continue
        coding.append({"column": column} | code)
        if gaps.any() and numeric:
            (marked if code["marked"] else filled).append(f"{column} {gaps.sum():,}")
        elif gaps[train].any():  # else it is a value that no training sample has, which is said of all such
            own_value.append(f"{column} {gaps.sum():,}")
    notes = [
        f"{lead}: {', '.join(which)}"
        for lead, which in [
            ("missing values, filled with the training median and marked in a column of their own", marked),
            ("missing values, none in training, filled with the training median", filled),
            ("missing values, taken as a value of their own", own_value),
            (f"beyond the {max_categories} commonest values, taken as '{OTHER}'", rare),
            (f"kept, though a different text in each of fewer than {TELLING} training samples; data.ignore an id", few),
            ("left out, a different text in every training sample (data.keep=NAME keeps it)", ids),
            ("left out, the same in all training samples", constant),
        ]
        if which
    ]
    return tuple(coding), notes


def _floats(column: Series) -> np.ndarray:
    try:
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    except (TypeError, ValueError):
        raise DataError(f"The model reads numbers in the column '{column.name}', and here it holds words.") from None


def _texts(column: Series) -> np.ndarray:
    return np.where(column.isna().to_numpy(), MISSING, column.astype(str).to_numpy(dtype=object))


def _numbers(values: np.ndarray, train: np.ndarray) -> dict[str, Any]:
    """Mean, deviation and median of the training samples; gaps are marked where the training samples have some."""
    gaps = np.isnan(values)
    present = values[train & ~gaps]
    varies = bool(len(present)) and float(np.ptp(present)) > 0
    marked = bool(gaps[train].any() and not gaps[train].all())
    if not varies:
        return {"mean": None, "marked": marked} if marked else {}
    median = float(np.median(present))
    filled = np.where(gaps, median, values)[train]
    return {"mean": float(filled.mean()), "std": float(filled.std()), "median": median, "marked": marked}


def _standardised(values: np.ndarray, code: Mapping[str, Any]) -> tuple[np.ndarray, list[str]]:
    """A standardised column, and a second one that marks missing values."""
    gaps = np.isnan(values)
    parts, names = [np.empty((len(values), 0))], []
    if code["mean"] is not None:
        filled = np.where(gaps, code["median"], values)
        parts.append(((filled - code["mean"]) / code["std"])[:, None])
        names.append("")
    if code["marked"]:
        parts.append(gaps[:, None].astype(np.float64))
        names.append(" missing")
    return np.concatenate(parts, axis=1), names


def _vocabulary(texts: np.ndarray, most: int) -> tuple[list[str], int]:
    """The commonest values in the order of the alphabet, and how many rarer ones there are."""
    names, counts = np.unique(texts.astype(str), return_counts=True)
    common = np.argsort(-counts, kind="stable")[:most]
    return sorted(names[common].tolist()), len(names) - len(common)


def _one_hot(texts: np.ndarray, vocabulary: list[str], has_other: bool) -> tuple[np.ndarray, int]:
    """(n, values) of 0 and 1, and how many samples hold a value that is not in the list."""
    column_of = {v: i for i, v in enumerate(vocabulary)}
    at = np.array([column_of.get(t, -1) for t in texts])
    width = len(vocabulary) + has_other
    hot = np.zeros((len(texts), width), np.float32)
    rows = np.arange(len(texts)) if has_other else np.flatnonzero(at >= 0)
    hot[rows, at[rows]] = 1  # place -1 is the last column: "(other)"
    return hot, 0 if has_other else int((at < 0).sum())
