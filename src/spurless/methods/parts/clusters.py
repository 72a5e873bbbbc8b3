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
from spurless.core.extras import missing

if TYPE_CHECKING:
    import numpy as np

Clustering = Literal["kmeans", "cosine", "gmm", "hdbscan"]
Reduction = Literal["none", "pca", "umap"]

STARTS = 3  # tries from different centres, of which the best is taken
FIT_SAMPLES = 50_000  # a clustering is fitted to at most so many, drawn by the seed; the others are then assigned
SILHOUETTE_SAMPLES = 4_000  # the same for silhouettes, which compare every sample with every other
DENSE = 25  # samples that make a cluster (hdbscan), and GEORGE's least size


@dataclass(frozen=True)
class Clusters:
    """A clustering of samples that can also tell where others belong."""

    labels: Tensor  # (n,) int64 on the CPU: the cluster of each sample that it was made from
    number: int  # of clusters; some may hold no sample
    assign: Callable[[Tensor], Tensor]  # (m, d) -> (m,)


def cluster(features: Tensor, k: int, how: Clustering = "kmeans", seed: int = 0) -> Clusters:
    """Put samples (n, d) into k clusters, or fewer where there are fewer samples; hdbscan finds k by itself.

    cosine is k-means of samples of length 1, whose squared distance is 2 − 2 cos. gmm has full covariance matrices, so
    that it wants few dimensions.

    >>> two = cluster(torch.tensor([[0.0], [0.1], [5.0], [5.1]]), k=2)
    >>> len(set(two.labels[:2].tolist())), len(set(two.labels.tolist())), two.assign(torch.tensor([[4.9]])).shape
    (1, 2, torch.Size([1]))
    """
    from sklearn.cluster import KMeans
    from sklearn.mixture import GaussianMixture

    if how == "hdbscan":
        return _dense(features, seed)
    k = min(k, len(features))
    if k < 2:
        return one_cluster(len(features))
    samples = _array(features[sample(len(features), FIT_SAMPLES, seed)], how)
    try:
        with _repeatable():
            kind = GaussianMixture if how == "gmm" else KMeans
            model = kind(k, n_init=STARTS, random_state=seed % 2**32).fit(samples)
    except ValueError as error:  # not finite, or (gmm) so large that their covariance is no covariance
        raise UserError(
            f"These features cannot be clustered by {how}: {first_line(error)} Scale the inputs, or cluster otherwise."
        ) from None

    def assign(samples: Tensor) -> Tensor:
        if len(samples) == 0:
            return torch.zeros(0, dtype=torch.long)
        with _repeatable():
            return torch.from_numpy(model.predict(_array(samples, how))).long()

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
    most = min(most, len(features) - 1)  # a silhouette compares clusters, one of which must hold two samples
    if most < least:
        return one_cluster(len(features))
    few = sample(len(features), SILHOUETTE_SAMPLES, seed)
    apart = distances(features[few])
    tried = [cluster(features, k, how, seed) for k in range(least, most + 1)]
    scores = [float(cluster_silhouettes(apart, each.labels[few]).mean()) for each in tried]
    return tried[max(range(len(tried)), key=lambda i: scores[i])]


def one_cluster(n: int) -> Clusters:
    """All samples in one.

    >>> one_cluster(3).labels.tolist()
    [0, 0, 0]
    """

    def assign(samples: Tensor) -> Tensor:
        return torch.zeros(len(samples), dtype=torch.long)

    return Clusters(torch.zeros(n, dtype=torch.long), 1, assign)


# Silhouettes


def distances(features: Tensor) -> Tensor:
    """(n, n) Between each two samples.

    >>> distances(torch.tensor([[0.0, 0.0], [3.0, 4.0]])).tolist()
    [[0.0, 5.0], [5.0, 0.0]]
    """
    samples = features.detach().cpu().double()  # in single precision, products of samples set equal ones apart
    return torch.cdist(samples, samples, compute_mode="use_mm_for_euclid_dist").float().fill_diagonal_(0)


def silhouettes(apart: Tensor, labels: Tensor) -> Tensor:
    """(n,) How much closer each sample is to its own cluster than to the next one, from −1 to 1, from distances (n, n).

    All 0 where silhouettes are not defined: if there is one cluster, or if every sample is one.

    >>> silhouettes(torch.tensor([[0.0, 1.0, 4.0], [1.0, 0.0, 3.0], [4.0, 3.0, 0.0]]), torch.tensor([0, 0, 1]))
    tensor([0.7500, 0.6667, 0.0000])
    """
    from sklearn.metrics import silhouette_samples

    if not 1 < len(labels.unique()) < len(labels):
        return torch.zeros(len(labels))
    return torch.from_numpy(silhouette_samples(apart.numpy(), labels.numpy(), metric="precomputed")).float()


def cluster_silhouettes(apart: Tensor, labels: Tensor) -> Tensor:
    """(k,) The mean silhouette of each cluster that holds a sample.

    >>> cluster_silhouettes(torch.tensor([[0.0, 1.0, 4.0], [1.0, 0.0, 3.0], [4.0, 3.0, 0.0]]), torch.tensor([0, 0, 1]))
    tensor([0.7083, 0.0000])
    """
    each = silhouettes(apart, labels)
    return torch.stack([each[labels == label].mean() for label in labels.unique()])


# What comes before clustering


def unit(features: Tensor) -> Tensor:
    """(n, d) Each sample divided by its length; a sample of zeros stays one.

    >>> unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    length: Tensor = features.norm(dim=1, keepdim=True)
    return features / length.masked_fill(length == 0, 1.0)


def reducer(features: Tensor, how: Reduction, dims: int = 2, seed: int = 0) -> Callable[[Tensor], Tensor]:
    """A map of samples to fewer dimensions, fitted to these samples.

    >>> reducer(torch.tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]), "pca", dims=1)(torch.tensor([[2.0, 2.0]])).abs()
    tensor([[0.]])
    """
    from sklearn.decomposition import PCA

    dims = min(dims, features.shape[1], max(1, len(features) - 1))
    if how == "none" or len(features) < 2:
        return lambda samples: samples
    fitted_to = _array(features[sample(len(features), FIT_SAMPLES, seed)], "kmeans")
    with _repeatable():
        pca = PCA(dims, random_state=seed % 2**32)
        model = (_umap(dims, len(features), seed) if how == "umap" else pca).fit(fitted_to)

    def reduce(samples: Tensor) -> Tensor:
        if len(samples) == 0:
            return torch.zeros(0, dims)
        with _repeatable():
            return torch.from_numpy(model.transform(_array(samples, "kmeans"))).float()

    return reduce


def sample(n: int, most: int, seed: int) -> Tensor:
    """Numbers of at most so many samples, in order, drawn by the seed.

    >>> sample(3, 5, seed=0).tolist(), len(sample(100, 5, seed=0))
    ([0, 1, 2], 5)
    """
    if n <= most:
        return torch.arange(n)
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:most].sort().values


# Models


def _dense(features: Tensor, seed: int) -> Clusters:
    """Where samples lie densely; a sample in a thin place goes with its nearest dense one."""
    from sklearn.cluster import HDBSCAN
    from sklearn.neighbors import KNeighborsClassifier

    if len(features) < 2 * DENSE:
        return one_cluster(len(features))
    samples = _array(features[sample(len(features), FIT_SAMPLES, seed)], "kmeans")
    with _repeatable():
        labels = HDBSCAN(min_cluster_size=DENSE, copy=True).fit_predict(samples)
        if labels.max() < 1:
            return one_cluster(len(features))
        nearest = KNeighborsClassifier(1).fit(samples[labels >= 0], labels[labels >= 0])

    def assign(others: Tensor) -> Tensor:
        if len(others) == 0:
            return torch.zeros(0, dtype=torch.long)
        return torch.from_numpy(nearest.predict(_array(others, "kmeans"))).long()

    return Clusters(assign(features), int(labels.max()) + 1, assign)


def _umap(dims: int, n: int, seed: int) -> Any:
    try:
        from umap import UMAP
    except ImportError:
        raise missing("reduction = umap", "umap", "use pca or none") from None
    # GEORGE's settings. With a seed UMAP runs on one core, so that it repeats.
    return UMAP(n_components=dims, n_neighbors=min(10, n - 1), min_dist=0.0, random_state=seed % 2**32, n_jobs=1)


def _array(features: Tensor, how: Clustering) -> np.ndarray:
    samples = unit(features) if how == "cosine" else features
    samples = samples.detach().cpu()
    return (samples.double() if how == "gmm" else samples.float()).numpy()  # covariances of floats need not be definite


@contextmanager
def _repeatable() -> Generator[None, None, None]:
    """On one thread: several add up in the order in which they finish. What did not converge is used as it is."""
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield
