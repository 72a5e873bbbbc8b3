"""Clustering: what scikit-learn is asked for, how many clusters there are, and that a seed decides all of it."""

import sys

import numpy as np
import pytest
import torch

from spurless.core.errors import UserError
from spurless.methods.parts import clusters
from spurless.methods.parts.clusters import (
    best_clusters,
    cluster,
    cluster_silhouettes,
    distances,
    one_cluster,
    reducer,
    sample,
    silhouettes,
    unit,
)

ALL = ("kmeans", "cosine", "gmm", "hdbscan")


def blobs(*sizes, apart=8.0, d=3, seed=0):
    """Round heaps of rows on different axes, and which heap each row is from; mixed."""
    g = torch.Generator().manual_seed(seed)
    which = torch.cat([torch.full((n,), i) for i, n in enumerate(sizes)])
    x = torch.randn(len(which), d, generator=g)
    x[torch.arange(len(which)), which % d] += apart
    mix = torch.randperm(len(which), generator=g)
    return x[mix], which[mix]


def same_partition(a, b):
    pairs = set(zip(a.tolist(), b.tolist(), strict=True))
    return len(pairs) == len(set(a.tolist())) == len(set(b.tolist()))


@pytest.mark.parametrize("how", ALL)
def test_it_finds_heaps_of_unequal_size_and_says_where_new_rows_belong(how):
    x, which = blobs(120, 40, 60)
    found = best_clusters(x, how)
    assert found.number == 3 and found.labels.dtype == torch.int64
    assert same_partition(found.labels, which)
    new, of = blobs(10, 10, 10, seed=1)
    assert same_partition(torch.cat([found.labels, found.assign(new)]), torch.cat([which, of]))


@pytest.mark.parametrize("how", ALL)
def test_the_seed_decides(how):
    x = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))  # no heaps: many cuts are as good
    first = cluster(x, 5, how, seed=7).labels
    np.random.seed(99)
    torch.rand(10)
    assert torch.equal(cluster(x, 5, how, seed=7).labels, first)
    if how != "hdbscan":  # which draws nothing
        assert not all(torch.equal(cluster(x, 5, how, seed=s).labels, first) for s in (8, 9, 2**40))


def test_several_threads_cannot_change_a_sum():
    from threadpoolctl import threadpool_info

    x, _ = blobs(30, 30)
    cluster(x, 2)  # so that the libraries are loaded
    with clusters._repeatable():
        assert {pool["num_threads"] for pool in threadpool_info()} == {1}


def test_kmeans_assigns_to_the_nearest_mean():
    x, _ = blobs(50, 50, 50, apart=3.0)
    found = cluster(x, 3)
    means = torch.stack([x[found.labels == k].mean(0) for k in range(3)])
    new = torch.randn(40, 3, generator=torch.Generator().manual_seed(3)) * 3
    assert found.assign(new).tolist() == [int((means - row).norm(dim=1).argmin()) for row in new]


def test_cosine_looks_at_directions_only():
    g = torch.Generator().manual_seed(0)
    which = torch.arange(200) % 2
    direction = torch.nn.functional.one_hot(which, 2).float()
    x = (direction + 0.1 * torch.randn(200, 2, generator=g)) * torch.logspace(-2, 2, 200)[:, None]
    assert same_partition(cluster(x, 2, "cosine").labels, which)
    assert not same_partition(cluster(x, 2, "kmeans").labels, which)  # length is most of the distance


def test_gmm_knows_that_clusters_differ_in_width():
    g = torch.Generator().manual_seed(0)
    which = torch.arange(400) % 2
    x = torch.randn(400, 1, generator=g) * torch.tensor([0.3, 4.0])[which][:, None] + 4.0 * which[:, None]

    def right(how):
        share = float((cluster(x, 2, how).labels == which).float().mean())
        return max(share, 1 - share)

    assert right("gmm") > 0.9 > 0.85 > right("kmeans")  # whose border lies half-way, inside the wide one


def test_hdbscan_gives_thin_rows_to_their_nearest_heap():
    x, which = blobs(60, 60)
    thin = torch.tensor([[5.0, -3.0, 0.0], [-3.0, 5.0, 0.0]])  # nearer to the first heap, nearer to the second
    found = cluster(torch.cat([x, thin]), 0, "hdbscan")
    assert found.number == 2
    assert same_partition(found.labels, torch.cat([which, torch.tensor([0, 1])]))


@pytest.mark.parametrize("how", ALL)
def test_few_rows_no_rows_and_equal_rows(how):
    assert cluster(torch.zeros(0, 3), 4, how).labels.tolist() == []
    assert cluster(torch.ones(1, 3), 4, how).labels.tolist() == [0]
    assert best_clusters(torch.randn(2, 3), how).number == 1
    three = cluster(torch.eye(3), 8, how)
    assert three.number <= 3 and int(three.labels.max()) < three.number
    equal = best_clusters(torch.ones(60, 3), how)  # no warning either: pytest would turn it into an error
    assert int(equal.labels.max()) < equal.number
    assert three.assign(torch.zeros(0, 3)).tolist() == one_cluster(3).assign(torch.zeros(0, 3)).tolist() == []


# The number of clusters


def slow_silhouette(x, labels, i):
    def mean_to(k):
        return np.mean([float((x[i] - x[j]).norm()) for j in range(len(x)) if j != i and labels[j] == k])

    own = int(labels[i])
    if int((labels == own).sum()) == 1:
        return 0.0
    within, without = mean_to(own), min(mean_to(k) for k in set(labels.tolist()) - {own})
    return (without - within) / max(within, without)


def test_silhouettes_equal_a_slow_loop():
    x, labels = blobs(6, 5, 1, apart=2.0)
    slow = [slow_silhouette(x, labels, i) for i in range(12)]
    apart = distances(x)
    assert silhouettes(apart, labels).tolist() == pytest.approx(slow, abs=1e-5)
    by_cluster = [np.mean([s for s, k in zip(slow, labels.tolist(), strict=True) if k == own]) for own in range(3)]
    assert cluster_silhouettes(apart, labels).tolist() == pytest.approx(by_cluster, abs=1e-5)


def test_silhouettes_that_are_not_defined_are_nought():
    apart = distances(torch.randn(4, 2))
    assert silhouettes(apart, torch.zeros(4, dtype=torch.long)).tolist() == [0] * 4
    assert silhouettes(apart, torch.arange(4)).tolist() == [0] * 4


def test_a_small_cluster_counts_as_much_as_a_large_one(monkeypatch):
    """The mean over clusters, not over rows: else a rare group would hardly matter."""
    small_and_bad = torch.tensor([0] * 90 + [1] * 10)  # silhouettes 0.9 and 0.1: 0.82 over rows, 0.5 over clusters
    all_alike = torch.arange(100) % 3  # 0.7 everywhere
    labels = {2: small_and_bad, 3: all_alike}
    silhouettes = {2: torch.tensor([0.9] * 90 + [0.1] * 10), 3: torch.full((100,), 0.7)}
    monkeypatch.setattr(clusters, "cluster", lambda x, k, how, seed: clusters.Clusters(labels[k], k, lambda rows: rows))
    monkeypatch.setattr(clusters, "silhouettes", lambda apart, own: silhouettes[len(own.unique())])
    assert best_clusters(torch.randn(100, 2), most=3).number == 3


def test_large_data_is_looked_at_in_part_and_assigned_whole(monkeypatch):
    x, which = blobs(300, 200, 100)
    looked_at = []
    real = clusters.distances
    monkeypatch.setattr(clusters, "distances", lambda rows: looked_at.append(len(rows)) or real(rows))
    monkeypatch.setattr(clusters, "SILHOUETTE_SAMPLES", 80)
    monkeypatch.setattr(clusters, "FIT_SAMPLES", 90)
    fitted_to = []
    array = clusters._array
    monkeypatch.setattr(clusters, "_array", lambda rows, how: fitted_to.append(len(rows)) or array(rows, how))
    found = best_clusters(x, most=4)
    assert looked_at == [80] and fitted_to == [90, 600] * 3
    assert found.number == 3 and same_partition(found.labels, which)


def test_a_sample_is_the_seeds_own_and_has_no_row_twice():
    rows = sample(1000, 50, seed=3)
    assert torch.equal(rows, sample(1000, 50, seed=3)) and not torch.equal(rows, sample(1000, 50, seed=4))
    assert len(rows.unique()) == 50


# Fewer dimensions


def test_pca_keeps_the_widest_direction_and_maps_new_rows_alike():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(100, 5, generator=g) * torch.tensor([0.1, 0.1, 6.0, 0.1, 0.1]) + 3
    reduce = reducer(x, "pca", dims=1)
    assert reduce(x).shape == (100, 1)
    assert abs(float(torch.corrcoef(torch.stack([reduce(x)[:, 0], x[:, 2]]))[0, 1])) > 0.999
    torch.testing.assert_close(reduce(x[:7]), reduce(x)[:7])
    assert reducer(x[:3], "pca", dims=9)(x).shape == (100, 2)  # three rows span two dimensions


def test_none_leaves_rows_as_they_are():
    x = torch.randn(4, 3)
    assert torch.equal(reducer(x, "none", dims=1)(x), x)


def test_umap_is_asked_for_as_in_george(monkeypatch):
    asked = {}

    class UMAP:
        def __init__(self, **settings):
            asked.update(settings)

        def fit(self, rows):
            return self

        def transform(self, rows):
            return rows[:, :2]

    monkeypatch.setitem(sys.modules, "umap", type(sys)("umap"))
    monkeypatch.setattr(sys.modules["umap"], "UMAP", UMAP, raising=False)
    x = torch.randn(30, 3)
    assert torch.equal(reducer(x, "umap", dims=2, seed=5)(x), x[:, :2])
    assert (asked["n_neighbors"], asked["min_dist"], asked["random_state"], asked["n_components"]) == (10, 0.0, 5, 2)


def test_unit_rows_survive_a_row_of_noughts():
    x = torch.tensor([[0.0, 0.0], [0.0, -2.0]])
    assert unit(x).tolist() == [[0, 0], [0, -1]]


def test_rows_have_length_1_however_short_they_were():
    x = torch.tensor([[1e-8, 0.0], [0.0, 1e-8], [3e-9, 4e-9]])
    assert unit(x).norm(dim=1).tolist() == pytest.approx([1, 1, 1])
    found = cluster(torch.tensor([[1e-8, 0.0], [0.0, 1e-8], [2e-8, 0.0], [0.0, 5e-8]]), 2, "cosine").labels
    assert same_partition(found, torch.tensor([0, 1, 0, 1]))


@pytest.mark.parametrize("how", ["kmeans", "cosine", "gmm"])
def test_features_that_cannot_be_clustered_are_refused_in_a_sentence(how):
    with pytest.raises(UserError, match=f"by {how}: Input X contains NaN"):
        cluster(torch.full((20, 3), torch.nan), 2, how)
    if how == "gmm":  # one direction alone, and large: no covariance of it can be inverted
        line = 1e6 * torch.randn(200, 1, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 2.0, -1.0])
        with pytest.raises(UserError, match="by gmm: .*ill-defined"):
            cluster(line, 3, how)
