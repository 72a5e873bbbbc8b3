"""Labels and bias attributes as numbers: which names there are, in which order, and which are one in two spellings."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MISSING = "(missing)"
MISSING_MARKS = ("", "?", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
PLAIN_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)", re.ASCII)


class Coded(NamedTuple):
    """A label or a bias attribute in numbers, and what they stand for."""

    name: str
    codes: NDArray[np.int64]  # (n,)
    names: tuple[str, ...]

    def rows(self, keep: NDArray[np.bool_]) -> Coded:
        return self._replace(codes=self.codes[keep])


@dataclass(frozen=True)
class Field:
    """A label or a bias attribute: one text a sample (None: missing), and the input columns that spell it out."""

    name: str
    values: NDArray[np.object_]  # (n,) of str or None
    columns: tuple[str, ...]
    order: tuple[str, ...] = ()  # of the names; those that are not listed follow, numbers by size

    def rows(self, keep: NDArray[np.bool_]) -> Field:
        return replace(self, values=self.values[keep])

    def coded(self) -> Coded:
        return Coded(self.name, *codes(self.values, self.order))


def codes(values: Iterable[str | None], order: Sequence[str] = ()) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Each value as the index of its name in the list of names: as in `order`, then by size, missing ones last.

    >>> place, names = codes(["10", "9", None, "9"])
    >>> place.tolist(), names
    ([1, 0, 2, 0], ('9', '10', '(missing)'))
    """
    texts = [MISSING if v is None or v != v else str(v) for v in values]  # v != v: NaN, as pandas may have it
    present = set(texts)
    names = (*(name for name in order if name in present), *sorted(present.difference(order), key=_by_size))
    return places(texts, names), names


def places(texts: Iterable[str], names: Sequence[str]) -> NDArray[np.int64]:
    """(n,) The place of each text among the names."""
    index_of = {name: i for i, name in enumerate(names)}
    return np.array([index_of[text] for text in texts], dtype=np.int64)


def ordered(names: Iterable[str]) -> tuple[str, ...]:
    """By number where all are whole numbers, else by name: the classes of folders and of data from Python. In a table
    (`codes`), numbers come before words.

    >>> ordered({"10", "9"}), ordered({"b", "a"}), ordered({"10", "9", "a"})
    (('9', '10'), ('a', 'b'), ('10', '9', 'a'))
    """
    names = list(names)
    numbers = all(re.fullmatch(r"-?\d{1,18}", name) for name in names)
    return tuple(sorted(names, key=lambda name: (int(name) if numbers else 0, name)))


def _by_size(name: str) -> tuple[bool, float, str]:
    try:
        number = float(name)
    except ValueError:
        number = math.inf
    return name == MISSING, number if math.isfinite(number) else math.inf, name


def spelling(text: str) -> Hashable:
    """What texts have in common that differ only by spaces or letter case, or as numbers are written.

    >>> spelling("Old  car ") == spelling("old car"), spelling("1.0") == spelling("1"), spelling("1.5") == spelling("1")
    (True, True, False)
    """
    text = " ".join(text.split()).casefold()
    # A float would make one of two long numbers that differ in the last digit.
    return Decimal(text) if PLAIN_NUMBER.fullmatch(text) else text
