"""Groups from clusters of a plainly trained network's features, within each class."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from spurless.core.extras import check_extra
from spurless.core.method import Run
from spurless.core.seeds import derive
from spurless.core.settings import Range
from spurless.methods.group_inference import Groups, Inference, Inferring
from spurless.methods.group_inference.predictions import Dims
from spurless.methods.group_inference.training import Length, PlainEpochs, plain_net
from spurless.methods.parts.clusters import (
    DENSE,
    SILHOUETTE_SAMPLES,
    Clustering,
    Clusters,
    best_clusters,
    cluster,
    distances,
    reducer,
    sample,
    silhouettes,
    unit,
)
from spurless.methods.parts.losses import ce_rows
from spurless.nets import Net

LEAST_SHARE, LEAST_SAMPLES = 0.005, DENSE  # of a class, that a part split off must hold

# (class, features of its samples, their losses, features of its validation samples) -> clusters, of features
Fit = Callable[[int, Tensor, Tensor, Tensor | None], Clusters]


@dataclass(frozen=True)
class George(Inference):
    """Clusters of features within each class, their number by the silhouette, then cut finer where that pays (GEORGE).

    reduction = head is how strongly features speak for the class: their product with w_c − mean of the other w, which
    for two classes is the released code's w₁ − w₀ on Waterbirds.
    """

    reduction: Annotated[
        Literal["none", "head", "pca", "umap"],
        "what is clustered: features, how strongly they speak for the class, or less",
    ] = "none"
    dims: Dims = 2
    normalise: Annotated[bool, "whether features are first divided by their length"] = True
    clustering: Annotated[Clustering, "how samples of a class are put into clusters"] = "kmeans"
    clusters: Annotated[int, "clusters of each class; 0: 2 to `most`, by the silhouette", Range(0)] = 0
    most: Annotated[int, "the largest number of clusters of a class that is tried", Range(2)] = 10
    overcluster: Annotated[
        int, "how many parts each cluster is then cut into, of which some are kept; 1: none", Range(1)
    ] = 5
    identify_epochs: PlainEpochs = 0

    def infer(self, run: Run) -> Inferring:
        if self.reduction == "umap":
            check_extra("reduction = umap", "umap", instead="use pca or none")
        net = yield from plain_net(run, Length(self.identify_epochs or None))
        head = net.head.weight.detach().cpu()  # (classes, d)

        def fit(c: int, features: Tensor, losses: Tensor, held_out: Tensor | None) -> Clusters:
            return self._of_class(derive(run.seed, "clusters", c), c, head, features, losses, held_out)

        return _in_each_class(run, net, fit)

    def _of_class(
        self, seed: int, c: int, head: Tensor, features: Tensor, losses: Tensor, held_out: Tensor | None
    ) -> Clusters:
        scaled = unit if self.normalise else _same
        if self.reduction == "head":
            reduced: Callable[[Tensor], Tensor] = margin_along(head, c)
        else:
            reduced = reducer(scaled(features), self.reduction, self.dims, seed)

        def prepared(features: Tensor) -> Tensor:
            return reduced(scaled(features))

        z, how = prepared(features), self.clustering
        whole = cluster(z, self.clusters, how, seed) if self.clusters else best_clusters(z, how, seed, 2, self.most)
        if self.overcluster > 1 and how != "hdbscan":  # which finds by itself how fine to cut
            z_val = None if held_out is None else prepared(held_out)
            whole = overclustered(whole, z, losses, z_val, self.overcluster, how, seed)
        return Clusters(whole.labels, whole.number, lambda features: whole.assign(prepared(features)))


@dataclass(frozen=True)
class Directions(Inference):
    """Clusters of the directions of features within each class (BPA)."""

    clusters: Annotated[int, "clusters of each class", Range(1)] = 8
    identify_epochs: PlainEpochs = 0

    def infer(self, run: Run) -> Inferring:
        net = yield from plain_net(run, Length(self.identify_epochs or None))

        def fit(c: int, features: Tensor, losses: Tensor, held_out: Tensor | None) -> Clusters:
            return cluster(features, self.clusters, "cosine", derive(run.seed, "clusters", c))

        return _in_each_class(run, net, fit)


def _in_each_class(run: Run, net: Net, fit: Fit) -> Groups:
    """Number the clusters of one class after those of another."""
    train, val = run.data.train, run.data.val
    features = run.outputs(net, features=True)  # (n, d)
    losses = ce_rows(net.head(features), train.y.to(features.device)).detach().cpu()  # (n,)
    features = features.cpu()
    held_out = None if val is None else run.outputs(net, val, features=True).cpu()  # (m, d)
    groups, val_groups = torch.zeros_like(train.y), None if val is None else torch.zeros_like(val.y)
    number = 0
    for c in range(len(run.data.classes)):
        own = train.y == c
        theirs = None if val is None or held_out is None else held_out[val.y == c]
        clusters = fit(c, features[own], losses[own], theirs)
        groups[own] = number + clusters.labels
        if val is not None and val_groups is not None and theirs is not None:
            val_groups[val.y == c] = number + clusters.assign(theirs)
        number += clusters.number
    return Groups(groups, val_groups, number, net)


def margin_along(head: Tensor, c: int) -> Callable[[Tensor], Tensor]:
    """How strongly features (n, d) speak for a class (n, 1), along its weights (classes, d) less the others' mean.

    >>> margin_along(torch.tensor([[3.0, 0.0], [0.0, -4.0]]), 1)(torch.tensor([[5.0, 10.0]])).round().tolist()
    [[-11.0]]
    """
    direction = head[c] - head[torch.arange(len(head)) != c].mean(0)
    direction = direction / direction.norm().clamp_min(1e-12)
    return lambda features: features @ direction[:, None]


# Cutting clusters finer


def overclustered(
    base: Clusters, features: Tensor, losses: Tensor, held_out: Tensor | None, factor: int, how: Clustering, seed: int
) -> Clusters:
    """Cut each cluster of the samples (n, d) into `factor` parts, and keep those parts that are worth it (GEORGE).

    A part is a cluster of its own if its samples' silhouettes rise on average (and are above 0), its loss is at least
    the cluster's, and it holds enough samples. The other parts of a cluster stay together.
    """
    cuts = [cluster(features[base.labels == k], factor, how, derive(seed, "cut", k)) for k in range(base.number)]

    def fine(others: Tensor) -> Tensor:
        coarse = base.assign(others)
        group = coarse * factor
        for k, cut in enumerate(cuts):
            group[coarse == k] += cut.assign(others[coarse == k])
        return group

    parts = fine(features)  # (n,)
    val_parts = None if held_out is None else fine(held_out)
    kept = worth_it(features, losses, base.labels, parts, val_parts, base.number * factor, seed)
    final, number = merged(kept, factor)
    return Clusters(final[parts], number, lambda others: final[fine(others)])


def worth_it(
    features: Tensor, losses: Tensor, coarse: Tensor, parts: Tensor, val_parts: Tensor | None, number: int, seed: int
) -> Tensor:
    """(number,) Which parts (n,) of the clusters (n,) become clusters of their own."""
    few = sample(len(features), SILHOUETTE_SAMPLES, seed)
    apart = distances(features[few])
    before, after = silhouettes(apart, coarse[few]), silhouettes(apart, parts[few])  # (few,), (few,)
    least = max(LEAST_SAMPLES, LEAST_SHARE * len(features))
    kept = torch.zeros(number, dtype=torch.bool)
    for group in parts.unique().tolist():
        own, here = parts == group, parts[few] == group
        parent = coarse == coarse[own][0]
        kept[group] = (
            int(own.sum()) >= least
            and (val_parts is None or int((val_parts == group).sum()) >= LEAST_SAMPLES)
            and bool(losses[own].mean() >= losses[parent].mean())
            and bool(here.any())
            and bool(after[here].mean() > before[here].mean().clamp_min(0))
        )
    return kept


def merged(kept: Tensor, factor: int) -> tuple[Tensor, int]:
    """(parts,) The final cluster of each part, `factor` of them from each cluster; and how many clusters there are.

    >>> merged(torch.tensor([False, True, False, True, True, True]), factor=3)  # of the second cluster nothing is left
    (tensor([0, 1, 0, 2, 3, 4]), 5)
    """
    final, number = [], 0
    for parts in kept.view(-1, factor).tolist():
        rest = number
        number += not all(parts)
        for keep in parts:
            final.append(number if keep else rest)
            number += keep
    return torch.tensor(final), number


def _same(features: Tensor) -> Tensor:
    return features
