"""Clustering of features, through scikit-learn: the same seed gives the same clusters, on any number of cores."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from spurless.core.errors import UserError, first_line

if TYPE_CHECKING:
    import numpy as np

Clustering = Literal["kmeans", "cosine", "gmm", "hdbscan"]
Reduction = Literal["none", "pca", "umap"]

STARTS = 3  # tries from different centres, of which the best is taken
FIT_ROWS = 50_000  # a clustering is fitted to at most so many rows, drawn by the seed; the others are then assigned
SILHOUETTE_ROWS = 4_000  # the same for silhouettes, which compare every row with every other
DENSE = 25  # rows that make a cluster (hdbscan), and GEORGE's least size


@dataclass(frozen=True)
class Clusters:
    """A clustering of rows that can also tell where others belong."""

    labels: Tensor  # (n,) int64 on the CPU: the cluster of each row that it was made from
    number: int  # of clusters; some may hold no row
    assign: Callable[[Tensor], Tensor]  # (m, d) -> (m,)


def cluster(features: Tensor, k: int, how: Clustering = "kmeans", seed: int = 0) -> Clusters:
    """Put rows (n, d) into k clusters, or fewer where there are fewer rows; hdbscan finds k by itself.

    cosine is k-means of rows of length 1, whose squared distance is 2 − 2 cos. gmm has full covariance matrices, so
    that it wants few dimensions.

    >>> two = cluster(torch.tensor([[0.0], [0.1], [5.0], [5.1]]), k=2)
    >>> len(set(two.labels[:2].tolist())), len(set(two.labels.tolist())), two.assign(torch.tensor([[4.9]])).shape
    (1, 2, torch.Size([1]))
    """
    if how == "hdbscan":
        return _dense(features, seed)
    k = min(k, len(features))
    if k < 2:
        return one_cluster(len(features))
    rows = _array(features[sample(len(features), FIT_ROWS, seed)], how)
    try:
        with _repeatable():
            model = _model(k, how, seed).fit(rows)
    except ValueError as error:  # not finite, or (gmm) so large that their covariance is no covariance
        raise UserError(
            f"These features cannot be clustered by {how}: {first_line(error)} Scale the inputs, or cluster otherwise."
        ) from None

    def assign(rows: Tensor) -> Tensor:
        if len(rows) == 0:
            return torch.zeros(0, dtype=torch.long)
        with _repeatable():
            return torch.from_numpy(model.predict(_array(rows, how))).long()

    return Clusters(assign(features), k, assign)


def best_clusters(
    features: Tensor, how: Clustering = "kmeans", seed: int = 0, least: int = 2, most: int = 10
) -> Clusters:
    """The clustering into `least` to `most` clusters whose clusters are told apart best: that with the highest mean of
    the clusters' silhouettes, and of several the one with the fewest clusters.

    >>> blobs = torch.tensor([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2], [9.0], [9.1], [9.2]])
    >>> best_clusters(blobs).number
    3
    """
    if how == "hdbscan":
        return cluster(features, 0, how, seed)
    most = min(most, len(features) - 1)  # a silhouette compares clusters, one of which must hold two rows
    if most < least:
        return one_cluster(len(features))
    rows = sample(len(features), SILHOUETTE_ROWS, seed)
    apart = distances(features[rows])
    tried = [cluster(features, k, how, seed) for k in range(least, most + 1)]
    scores = [float(cluster_silhouettes(apart, each.labels[rows]).mean()) for each in tried]
    return tried[max(range(len(tried)), key=lambda i: scores[i])]


def one_cluster(n: int) -> Clusters:
    """All rows in one.

    >>> one_cluster(3).labels.tolist()
    [0, 0, 0]
    """

    def assign(rows: Tensor) -> Tensor:
        return torch.zeros(len(rows), dtype=torch.long)

    return Clusters(torch.zeros(n, dtype=torch.long), 1, assign)


# Silhouettes


def distances(features: Tensor) -> Tensor:
    """(n, n) Between each two rows.

    >>> distances(torch.tensor([[0.0, 0.0], [3.0, 4.0]])).tolist()
    [[0.0, 5.0], [5.0, 0.0]]
    """
    rows = features.detach().cpu().double()  # in single precision, products of rows set equal ones apart
    return torch.cdist(rows, rows, compute_mode="use_mm_for_euclid_dist").float().fill_diagonal_(0)


def row_silhouettes(apart: Tensor, labels: Tensor) -> Tensor:
    """(n,) How much closer each row is to its own cluster than to the next one, from −1 to 1, from distances (n, n).

    All 0 where silhouettes are not defined: if there is one cluster, or if every row is one.

    >>> row_silhouettes(torch.tensor([[0.0, 1.0, 4.0], [1.0, 0.0, 3.0], [4.0, 3.0, 0.0]]), torch.tensor([0, 0, 1]))
    tensor([0.7500, 0.6667, 0.0000])
    """
    from sklearn.metrics import silhouette_samples

    if not 1 < len(labels.unique()) < len(labels):
        return torch.zeros(len(labels))
    return torch.from_numpy(silhouette_samples(apart.numpy(), labels.numpy(), metric="precomputed")).float()


def cluster_silhouettes(apart: Tensor, labels: Tensor) -> Tensor:
    """(k,) The mean silhouette of each cluster that holds a row.

    >>> cluster_silhouettes(torch.tensor([[0.0, 1.0, 4.0], [1.0, 0.0, 3.0], [4.0, 3.0, 0.0]]), torch.tensor([0, 0, 1]))
    tensor([0.7083, 0.0000])
    """
    rows = row_silhouettes(apart, labels)
    return torch.stack([rows[labels == label].mean() for label in labels.unique()])


# What comes before clustering


def unit(features: Tensor) -> Tensor:
    """(n, d) Each row divided by its length; a row of zeros stays one.

    >>> unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    length: Tensor = features.norm(dim=1, keepdim=True)
    return features / length.masked_fill(length == 0, 1.0)


def reducer(features: Tensor, how: Reduction, dims: int = 2, seed: int = 0) -> Callable[[Tensor], Tensor]:
    """A map of rows to fewer dimensions, fitted to these rows.

    >>> reducer(torch.tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]), "pca", dims=1)(torch.tensor([[2.0, 2.0]])).abs()
    tensor([[0.]])
    """
    dims = min(dims, features.shape[1], max(1, len(features) - 1))
    if how == "none" or len(features) < 2:
        return lambda rows: rows
    fitted_to = _array(features[sample(len(features), FIT_ROWS, seed)], "kmeans")
    with _repeatable():
        model = (_umap(dims, len(features), seed) if how == "umap" else _pca(dims, seed)).fit(fitted_to)

    def reduce(rows: Tensor) -> Tensor:
        if len(rows) == 0:
            return torch.zeros(0, dims)
        with _repeatable():
            return torch.from_numpy(model.transform(_array(rows, "kmeans"))).float()

    return reduce


def sample(n: int, most: int, seed: int) -> Tensor:
    """Numbers of at most so many rows, in order, drawn by the seed.

    >>> sample(3, 5, seed=0).tolist(), len(sample(100, 5, seed=0))
    ([0, 1, 2], 5)
    """
    if n <= most:
        return torch.arange(n)
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:most].sort().values


# Models


def _model(k: int, how: Clustering, seed: int) -> Any:
    from sklearn.cluster import KMeans
    from sklearn.mixture import GaussianMixture

    start = seed % 2**32
    if how == "gmm":
        return GaussianMixture(k, n_init=STARTS, random_state=start)
    return KMeans(k, n_init=STARTS, random_state=start)


def _dense(features: Tensor, seed: int) -> Clusters:
    """Where rows lie densely; a row in a thin place goes with its nearest dense one."""
    from sklearn.cluster import HDBSCAN
    from sklearn.neighbors import KNeighborsClassifier

    if len(features) < 2 * DENSE:
        return one_cluster(len(features))
    rows = _array(features[sample(len(features), FIT_ROWS, seed)], "kmeans")
    with _repeatable():
        labels = HDBSCAN(min_cluster_size=DENSE, copy=True).fit_predict(rows)
        if labels.max() < 1:
            return one_cluster(len(features))
        nearest = KNeighborsClassifier(1).fit(rows[labels >= 0], labels[labels >= 0])

    def assign(others: Tensor) -> Tensor:
        if len(others) == 0:
            return torch.zeros(0, dtype=torch.long)
        return torch.from_numpy(nearest.predict(_array(others, "kmeans"))).long()

    return Clusters(assign(features), int(labels.max()) + 1, assign)


def _pca(dims: int, seed: int) -> Any:
    from sklearn.decomposition import PCA

    return PCA(dims, random_state=seed % 2**32)


def _umap(dims: int, n: int, seed: int) -> Any:
    try:
        from umap import UMAP
    except ImportError:
        raise UserError(
            "reduction = umap needs the package umap-learn: pip install umap-learn, or use reduction = pca or none."
        ) from None
    # GEORGE's settings. With a seed UMAP runs on one core, so that it repeats.
    return UMAP(n_components=dims, n_neighbors=min(10, n - 1), min_dist=0.0, random_state=seed % 2**32, n_jobs=1)


def _array(features: Tensor, how: Clustering) -> np.ndarray:
    rows = unit(features) if how == "cosine" else features
    rows = rows.detach().cpu()
    return (rows.double() if how == "gmm" else rows.float()).numpy()  # covariances of floats need not be definite


@contextmanager
def _repeatable() -> Generator[None, None, None]:
    """On one thread: several add up in the order in which they finish. What did not converge is used as it is."""
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield
