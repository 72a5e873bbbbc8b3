"""A Bundle from whatever holds data: `Bundle.of`, and what `load_data`, `fit`, `evaluate` and `audit` take."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, SubsetRandomSampler

from spurless.core.data import Bundle
from spurless.core.errors import DataError
from spurless.core.messages import log
from spurless.core.settings import resolve
from spurless.data.arrays import from_arrays, from_dataset, from_hf, from_texts

if TYPE_CHECKING:
    from pandas import DataFrame

TAKES = (
    "a dataset's name, the path of a folder of images or of a table, a Bundle, a pandas or Polars frame, a PyTorch "
    "dataset or DataLoader, a Hugging Face dataset, or (x, y) or (x, y, attributes) with arrays or texts"
)


def from_object(data: Any, **settings: Any) -> Bundle:
    """The Bundle of an object that holds data: anything but a name, a path or a table of settings."""
    if isinstance(data, Bundle):
        if settings:
            raise DataError(f"A Bundle is taken as it is, so that {', '.join(settings)} would change nothing.")
        return data
    if _is_frame(data):
        return from_pandas(data, **settings)
    if _is_hf(data):
        return from_hf(data, **settings)
    if isinstance(data, DataLoader):
        return from_dataset(_dataset_of(data), **_with_size(data.dataset, settings))
    if isinstance(data, Dataset) or (hasattr(data, "__getitem__") and hasattr(data, "samples")):
        return from_dataset(data, **_with_size(data, settings))
    if isinstance(data, tuple) and len(data) in (2, 3):
        return (from_texts if _is_texts(data[0]) else from_arrays)(*data, **settings)
    raise _no_dataset(data)


def _no_dataset(data: Any) -> DataError:
    """The error for what is no dataset, with what it probably is."""
    kind = type(data).__name__
    if isinstance(data, nn.Module):
        return DataError(
            f"{kind} is a network, and a dataset is expected in its place. Are the arguments in the wrong order? It is "
            "audit(data, model), evaluate(net, data) and fit(method, data, net=net)."
        )
    if isinstance(data, (list, tuple)) or hasattr(data, "__array__"):
        return DataError(f"{kind} holds no labels; give (x, y) or (x, y, attributes) instead.")
    return DataError(f"{kind} is no dataset; give {TAKES}.")


def from_pandas(frame: Any, *, label: str | None = None, name: str = "frame", **settings: Any) -> Bundle:
    """A dataset from a pandas or Polars frame: the same as the table would be in a file, with the settings of `csv:`
    (`label`, `attribute`, `split`, `text`, `ignore`, ...).

    >>> import pandas as pd
    >>> table = pd.DataFrame({"size": [1.5, 2.25] * 10, "label": ["cat", "dog"] * 10})
    >>> from_pandas(table).classes
    ('cat', 'dog')
    """
    from spurless.data.csv import Csv

    return Csv(**resolve(Csv, {"label": label} | settings, "data")).of_frame(_as_pandas(frame), name)


def is_named(data: Any) -> bool:
    """Whether it is a name, a path, or a table of settings with a name."""
    return isinstance(data, (str, PathLike)) or (isinstance(data, Mapping) and not _is_hf(data) and not _is_frame(data))


def _is_frame(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] in ("pandas", "polars") and hasattr(data, "columns")


def _as_pandas(frame: Any) -> DataFrame:
    import pandas as pd

    if hasattr(frame, "collect"):  # a lazy frame of Polars
        frame = frame.collect()
    if isinstance(frame, pd.DataFrame):
        return frame
    if not hasattr(frame, "to_dict"):
        raise DataError(f"{type(frame).__name__} is no frame; give one of pandas or Polars.")
    return pd.DataFrame(frame.to_dict(as_series=False))  # not to_pandas, which needs pyarrow


def _is_hf(data: Any) -> bool:
    """A dataset of Hugging Face, or a dictionary of its splits."""
    one = next(iter(data.values()), None) if isinstance(data, Mapping) else data
    return hasattr(one, "column_names") and hasattr(one, "features")


def _dataset_of(loader: DataLoader[Any]) -> Any:
    """What a DataLoader reads. The order in which it does is no part of a dataset."""
    dataset, sampler = loader.dataset, loader.sampler
    if isinstance(sampler, SubsetRandomSampler):
        return Subset(dataset, list(sampler.indices))
    if type(sampler).__name__ not in ("SequentialSampler", "RandomSampler"):
        log.warning(f"The DataLoader's {type(sampler).__name__} is ignored: every sample of its dataset is read once.")
    return dataset


def _with_size(dataset: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """An ImageFolder without a transform gives images of many sizes."""
    needs_size = hasattr(dataset, "loader") and getattr(dataset, "transform", None) is None
    return ({"size": 224} if needs_size else {}) | dict(settings)


def _is_texts(x: Any) -> bool:
    """Whether the inputs are strings, or pairs of strings."""
    if not isinstance(x, (list, tuple)) or not x:
        return False
    return isinstance(x[0], str) or (isinstance(x[0], (list, tuple)) and all(isinstance(t, str) for t in x[0]))
