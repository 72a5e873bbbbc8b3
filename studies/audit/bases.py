"""The real data of which the zoo is made: images, photographs, texts and tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spurless import load_data
from spurless.core.files import data_root
from spurless.data import sources

Rng = np.random.Generator
SIDE = 80
LATE = 700, 500  # of each class, of a training and of a test split
EARLY = 1000  # of each class
SKLEARN = ("cancer", "wine", "digits")  # tables that come with scikit-learn


@cache
def source(name: str) -> tuple[Tensor, Tensor]:
    """A base by its name; `fashion_test` is the test split of `fashion`, `late_` the last few of each class, and
    `early_` the first ones. Of KMNIST the test file is enough."""
    read: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
        "mnist": sources.mnist, "fashion": sources.fashion_mnist, "kmnist": sources.kmnist, "cifar": sources.cifar10,
    }  # fmt: skip
    base = name.removeprefix("late_").removeprefix("early_").removesuffix("_test")
    x, y = read[base](train=not name.endswith("_test") and base != "kmnist")
    if name.startswith("late_"):
        rows = late(y, LATE[name.endswith("_test")])
        x, y = x[rows], y[rows]
    if name.startswith("early_"):
        rows = torch.cat([(y == c).nonzero()[:EARLY, 0] for c in y.unique()]).sort().values
        x, y = x[rows], y[rows]
    return x if x.dim() == 4 else x[:, None], y.long()


def late(y: Tensor, many: int) -> Tensor:
    """The last `many` of each class, in their order.

    >>> late(torch.tensor([0, 1, 0, 1, 0]), 2).tolist()
    [1, 2, 3, 4]
    """
    return torch.cat([(y == c).nonzero()[-many:, 0] for c in y.unique()]).sort().values


@cache
def all_birds() -> tuple[Tensor, Tensor, Tensor, np.ndarray]:
    """Images, birds and places of all splits of Waterbirds, and which of them are training samples."""
    data = load_data({"name": "waterbirds", "size": SIDE})
    parts = [data.splits[name] for name in ("train", "val", "test")]
    x = torch.cat([part[torch.arange(len(part))] for part in parts])
    place = torch.cat([part.a[:, 0] for part in parts if part.a is not None])
    return x, torch.cat([part.y for part in parts]), place, np.arange(len(parts[0]))


@cache
def reviews() -> tuple[list[str], np.ndarray]:
    import pandas as pd

    parts = [data_root() / "text" / "cad_imdb" / f"{part}_paired.tsv" for part in ("train", "dev", "test")]
    frame = pd.concat([pd.read_csv(file, sep="\t") for file in parts])
    return frame["Text"].tolist(), (frame["Sentiment"] == "Positive").to_numpy().astype(int)


@cache
def tweets() -> tuple[list[str], np.ndarray]:
    import pandas as pd

    frame = pd.read_csv(data_root() / "text" / "davidson_tweets" / "labeled_data.csv")
    frame = frame[frame["class"].isin([1, 2])]
    return frame["tweet"].tolist(), (frame["class"] == 2).to_numpy().astype(int)


def copies(n: int, rng: Rng) -> tuple[dict[str, np.ndarray], np.ndarray]:
    one, two, noise = rng.standard_normal((3, n))
    return {"one": one, "two": two, "three": rng.standard_normal(n)}, (one + two + 0.5 * noise > 0).astype(int)


@cache
def table_base(name: str) -> tuple[Any, np.ndarray]:
    import pandas as pd

    if name == "adult":
        from spurless.data.sets.adult import read

        frame = read(data_root() / "tabular" / "adult" / "adult.data")
        y = frame["income"].astype(str).str.contains(">50K").to_numpy().astype(int)
        return frame.drop(columns=["income"]), y
    if name == "german":
        frame = pd.read_csv(data_root() / "tabular" / "german" / "german.data", sep=" ", header=None)
        frame.columns = [f"field{i}" for i in range(frame.shape[1])]
        last = frame.columns[-1]
        return frame.drop(columns=[last]), (frame[last] == 2).to_numpy().astype(int)
    if name.split()[0] in SKLEARN:
        return _of_sklearn(*name.split())
    frame = pd.read_csv(data_root() / "tabular" / "compas" / "compas-scores-two-years.csv")
    columns = ["sex", "age", "race", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count"]
    return frame[[*columns, "c_charge_degree"]], frame["two_year_recid"].to_numpy().astype(int)


def _of_sklearn(name: str, *pair: str) -> tuple[Any, np.ndarray]:
    """Cancer, two kinds of wine, or two handwritten digits as a table of their pixels."""
    from sklearn import datasets

    load = {"cancer": datasets.load_breast_cancer, "wine": datasets.load_wine, "digits": datasets.load_digits}[name]
    x, y = load(return_X_y=True, as_frame=True)
    one, other = map(int, pair or ("0", "1"))
    kept = y.isin([one, other]).to_numpy()
    return x[kept].reset_index(drop=True), (y[kept] == other).to_numpy().astype(int)
