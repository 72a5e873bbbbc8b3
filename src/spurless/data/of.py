"""`Bundle.of`: a Bundle from a name, a path or any object that holds data."""

from __future__ import annotations

from os import PathLike, fspath
from typing import Any

from spurless.core.data import Bundle
from spurless.data.anything import from_object, is_named
from spurless.registry import load_data


def of(data: Any, **settings: Any) -> Bundle:
    """The data as a Bundle. `settings` are those of the reader: of `folder:` and `csv:` for paths and frames, else the
    arguments of `from_dataset`, `from_hf`, `from_arrays` or `from_texts`.

    >>> import numpy as np
    >>> len(of((np.zeros((10, 4)), ["cat"] * 5 + ["dog"] * 5), test=0.4).test)
    4
    """
    if not is_named(data):
        return from_object(data, **settings)
    spec = {"name": fspath(data)} if isinstance(data, (str, PathLike)) else dict(data)
    return load_data(spec | settings)
