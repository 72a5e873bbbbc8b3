"""What the text datasets share: from texts, labels and attributes to a Bundle of token ids."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from spurless.core.data import Bundle, Split, Texts
from spurless.core.errors import DataError, first_line
from spurless.core.files import check_regular, data_root
from spurless.core.recipe import Recipe
from spurless.core.settings import Range
from spurless.data.hosts import how_to_get
from spurless.data.ingest import bundle
from spurless.data.ingest.bundle import of_splits
from spurless.data.ingest.splits import SPLITS
from spurless.data.ingest.table import Samples
from spurless.data.tokens import tokenise, tokens_of

Tokenizer = Annotated[str, "minilm, a folder or tokenizer.json, or a name on the Hugging Face hub; that of the network"]
Length = Annotated[int, "most tokens of a sample; longer texts are cut", Range(4)]

NET = "embedding_bag"
RECIPE = Recipe("adam", 2e-3, batch_size=64, epochs=10)


@dataclass(frozen=True)
class Part:
    """The texts of one split as given: second texts of pairs, attributes and groups where there are any."""

    texts: Sequence[str]
    y: np.ndarray  # (n,) int
    a: np.ndarray | None = None  # (n, k) int
    second: Sequence[str] | None = None
    names: Sequence[str] | None = None
    member: np.ndarray | None = None  # (n, m) bool

    def __len__(self) -> int:
        return len(self.texts)


def to_bundle(
    name: str,
    parts: Mapping[str, Part | None],
    tokenizer: str,
    length: int,
    classes: tuple[str, ...],
    attribute: tuple[str, tuple[str, ...]],
    **fields: Any,
) -> Bundle:
    """The parts train, val and test as a Bundle; `attribute` is a name and its values, `fields` are of the Bundle."""
    given = {key: split_name for key, split_name in parts.items() if split_name is not None and len(split_name)}
    texts = {
        key: (split_name.texts,) if split_name.second is None else (split_name.texts, split_name.second)
        for key, split_name in given.items()
    }
    names = {key: split_name.names for key, split_name in given.items() if split_name.names is not None}
    x = tokens_of_splits(name, texts, tokenizer, length, names)
    splits = {}
    for key, split_name in given.items():
        a = None if split_name.a is None else _codes(split_name.a)
        member = None if split_name.member is None else torch.from_numpy(np.asarray(split_name.member, bool))
        splits[key] = Split(x[key], _codes(split_name.y), a, split_name.names, member)
    described = {"classes": classes, "attributes": attribute[:1], "values": attribute[1:]}
    return of_splits(name, splits, **(text_fields(tokenizer) | described | fields))


def from_fields(name: str, samples: Samples, text: Sequence[str], tokenizer: str, length: int, **fields: Any) -> Bundle:
    """A table whose texts, in one column or in the two of a pair, are the inputs."""
    columns, rows = [samples.frame[column].tolist() for column in text], samples.names or ()
    texts, names = {}, {}
    for split_name in SPLITS:
        idx = np.flatnonzero(samples.split == split_name).tolist()
        if idx:
            texts[split_name] = tuple([column[i] for i in idx] for column in columns)
            names[split_name] = [rows[i] for i in idx]
    x = tokens_of_splits(name, texts, tokenizer, length, names)
    coded = [field.coded() for field in samples.attributes]
    described = text_fields(tokenizer) | fields
    return bundle.to_bundle(name, x, samples.split, samples.label.coded(), coded, names=rows, **described)


def tokens_of_splits(
    name: str,
    texts: Mapping[str, tuple[Sequence[str], ...]],  # of each split: one column, or the two of pairs
    tokenizer: str,
    length: int,
    names: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Tensor]:
    """int32 (n, 2, l) of each split, all tokenised at once, so that all have the same length."""
    for split_name, columns in texts.items():
        for column in columns:
            odd = next((i for i, text in enumerate(column) if not isinstance(text, str)), None)
            if odd is not None:
                row = names[split_name][odd] if names and split_name in names else f"row {odd}"
                raise DataError(f"{name}: {row} holds no text but {column[odd]!r}; mend it, or take the sample away.")
    first = [text for columns in texts.values() for text in columns[0]]
    second = [text for columns in texts.values() for text in columns[1]] if all(map(_is_pair, texts.values())) else None
    if not first:
        raise DataError(f"{name} holds no texts.")
    x = tokenise(first, tokenizer, length, second, name)
    return dict(zip(texts, x.split([len(columns[0]) for columns in texts.values()]), strict=True))


def _is_pair(columns: Sequence[Sequence[str]]) -> bool:
    return len(columns) == 2


def text_fields(tokenizer: str) -> dict[str, Any]:
    """What a Bundle of texts has of its own."""
    return {"net": NET, "recipe": RECIPE, "inputs": Texts(tokens_of(tokenizer))}


def _codes(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.asarray(values, np.int64))


def folder_of(name: str, files: Sequence[str], root: Path | None, below: Sequence[str] = ()) -> Path:
    """The folder that holds these files, plain or gzipped: `text/NAME` or `NAME` under the data root, or one given."""
    base = data_root(root)
    for folder in (base / "text" / name, base / name, *(base / folder_name for folder_name in below)):
        if all((folder / file).is_file() or (folder / f"{file}.gz").is_file() for file in files):
            return folder
    raise DataError(
        f"'{name}' needs {', '.join(files)} in {base / 'text' / name}. {how_to_get(name)} "
        "--data-root or SPURLESS_DATA name another data root."
    )


def read(folder: Path, file: str, **how: Any) -> Any:
    """A table of texts as a DataFrame; a file as distributed or gzipped. A text may read "null": only "" is a gap."""
    import pandas as pd

    with _readable(folder, file) as path:
        check_regular(path)
        return pd.read_csv(path, **({"keep_default_na": False} | how))


def lines(folder: Path, file: str) -> Iterator[str]:
    """The lines of a file in UTF-8, as distributed or gzipped; they end at line feeds only."""
    with _readable(folder, file) as path:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8", newline="\n") as given:
            for line in given:
                yield line.removesuffix("\n")


@contextmanager
def _readable(folder: Path, file: str) -> Iterator[Path]:
    """The file, plain or gzipped; a DataError where reading it fails."""
    path = folder / file if (folder / file).is_file() else folder / f"{file}.gz"
    try:
        yield path
    except (ValueError, OSError, EOFError, zlib.error) as error:  # ParserError and UnicodeDecodeError are ValueErrors
        raise DataError(f"{path} cannot be read ({first_line(error)}); get it again.") from None


def has_columns(frame: Any, columns: Sequence[str], file: str) -> None:
    """A DataError where a table lacks a column of the layout that is distributed."""
    lacking = [c for c in columns if c not in frame.columns]
    if lacking:
        raise DataError(f"{file} has no column '{lacking[0]}'; it has {', '.join(map(str, frame.columns[:30]))}.")


def places(frame: Any, column: str, names: Sequence[str], path: Path) -> np.ndarray:
    """(n,) The place of each cell of a column among the known ones; a DataError names the first row that has another.

    >>> import pandas as pd
    >>> places(pd.DataFrame({"label": ["good", "bad"]}), "label", ("bad", "good"), Path("a.csv")).tolist()
    [1, 0]
    >>> places(pd.DataFrame({"class": [0, 3]}), "class", ("0", "1"), Path("a.csv"))
    Traceback (most recent call last):
    spurless.core.errors.DataError: a.csv, row 2 below the header: class is '3', not one of 0, 1; get it again.
    """
    cells = frame[column].astype(str).str.strip().str.removesuffix(".0")  # numbers may have been written as 1.0
    indices = cells.map({name: i for i, name in enumerate(names)}).to_numpy(float)
    odd = np.flatnonzero(np.isnan(indices))
    if len(odd):
        cell = f"'{cells.iloc[odd[0]]}'" if cells.iloc[odd[0]] else "empty"
        raise DataError(
            f"{path}, row {odd[0] + 1} below the header: {column} is {cell}, not one of {', '.join(names)}; "
            "get it again."
        )
    return np.asarray(indices, np.int64)


def with_share(rewritten: np.ndarray, rho: float, seed: int) -> np.ndarray:
    """The samples, in order: all originals, and rewritten ones at random until they are a share rho.

    >>> rewritten = np.array([False, True] * 10)
    >>> [int(rewritten[with_share(rewritten, rho, seed=0)].sum()) for rho in (0, 0.2, 0.5)]  # beside 10 originals
    [0, 2, 10]
    """
    originals, others = np.flatnonzero(~rewritten), np.flatnonzero(rewritten)
    wanted = round(len(originals) * rho / (1 - rho))
    if wanted > len(others):
        raise DataError(f"data.rho = {rho} needs {wanted:,} rewritten samples, and there are {len(others):,}.")
    return np.sort(np.concatenate([originals, np.random.default_rng(seed).permutation(others)[:wanted]]))


def mentions(texts: Sequence[str], terms: Sequence[str]) -> np.ndarray:
    """(n, m) bool: which of the terms each text holds, as whole words; of two that overlap, the longer one.

    >>> mentions(["An African American and a white cat.", "whiter"], ["american", "african american", "white"]).tolist()
    [[False, True, True], [False, False, False]]
    """
    column_of = {term.lower(): i for i, term in enumerate(terms)}
    # Not \b, which stands only beside letters and digits: a word may begin with # or end with +.
    either = "|".join(map(re.escape, sorted(column_of, key=len, reverse=True)))
    pattern = re.compile(rf"(?<!\w)(?:{either})(?!\w)")
    hits = np.zeros((len(texts), len(terms)), bool)
    for i, text in enumerate(texts):
        for term in pattern.findall(text.lower()):
            hits[i, column_of[term]] = True
    return hits


# The words about identity of the set madlibs.
IDENTITY_TERMS = tuple(
    term.strip()
    for term in """african, african american, american, asian, bisexual, black, blind, buddhist, canadian, catholic,
    chinese, christian, deaf, elderly, european, female, gay, heterosexual, hispanic, homosexual, indian, japanese,
    jewish, latina, latino, latinx, lesbian, lgbt, lgbtq, male, mexican, middle aged, middle eastern, millenial, muslim,
    nonbinary, old, older, paralyzed, protestant, queer, sikh, straight, taoist, teenage, trans, transgender, white,
    young, younger""".split(",")
)
