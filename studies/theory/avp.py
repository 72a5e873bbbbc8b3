"""AVP's definitions 3.9 to 3.11, and its toy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from spurless.core.errors import SettingError
from spurless.metrics import checks

if TYPE_CHECKING:
    from spurless.core.data import Split

Array = np.ndarray


def expected_posterior(z: Array, y: Array, edges: Array | None = None, bins: int = 16) -> float:
    """E[P(y | z)]: how probable a row's label is, given its latent, on average.

    >>> expected_posterior(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]))  # 1/2 twice, 1 twice
    0.75
    """
    joint = _joint(z, y, edges, bins)
    seen = joint.sum(1, keepdims=True)
    return float(np.sum(joint * np.divide(joint, seen, out=np.zeros_like(joint), where=seen > 0)))


def information_gain_ratio(z: Array, y: Array, edges: Array | None = None, bins: int = 16) -> float:
    """J = I(y; z) / H(y | z), from counts; infinite where the latent gives the label away.

    >>> round(information_gain_ratio(np.array([0, 0, 0, 0, 1, 1]), np.array([0, 1, 0, 1, 1, 1])), 4)
    0.3774
    """
    joint = _joint(z, y, edges, bins)
    whole, given = _entropy(joint.sum(0)), _entropy(joint.ravel()) - _entropy(joint.sum(1))
    return float(np.inf) if given <= 1e-12 else max(0.0, whole - given) / given


def spurious_correlation(seen: tuple[Array, Array], true: tuple[Array, Array], bins: int = 16) -> Array:
    """(d,) Definition 3.9 for each latent: |E[P(y | z_i)] in the data seen − in the true one|.

    Data are pairs of latents z (n, d) and labels y (n,).
    """
    return _apart(expected_posterior, seen, true, bins)[0]


def spurious_ratio(seen: tuple[Array, Array], true: tuple[Array, Array], bins: int = 16) -> Array:
    """(d,) Definition 3.10 for each latent: β_i = |J in the data seen − J in the true one| / J in the true one.

    Not a number where both are infinite. J from counts is too high by about bins · classes / rows: take many rows.
    """
    gap, base = _apart(information_gain_ratio, seen, true, bins)
    with np.errstate(divide="ignore", invalid="ignore"):
        return gap / base


def activation_variability(z: Array, a: Array | None = None) -> Array:
    """Definition 3.11 as printed: κ_ij = Var(A_ij Z_i) / mean(A_ij Z_i). (d, k) for A (d, k); (d,) without it.

    >>> activation_variability(np.array([[1.0], [3.0]]), np.array([[1.0, -2.0]])).tolist()  # linear in A, and signed
    [[0.5, -1.0]]
    """
    z = checks.array(z, "z")
    z = checks.numbers(z, "z", dims=max(1, z.ndim))
    with np.errstate(divide="ignore", invalid="ignore"):
        kappa = z.var(0) / z.mean(0)
    if a is None:
        return kappa
    weight = checks.numbers(a, "A", dims=2)
    if z.ndim != 2 or len(weight) != z.shape[1]:
        raise SettingError(f"A has a row for each of the latents, (d, k); here A is {weight.shape} and z {z.shape}.")
    return weight * kappa[:, None]


class Units(NamedTuple):
    """The hidden units of a trained network."""

    layer: Array  # (units,)
    mean: Array  # of each activation over the training samples
    variance: Array
    beta: Array  # how spurious its relation to the observed label is

    @property
    def kappa(self) -> Array:
        """Variability without its sign."""
        return self.variance / np.abs(self.mean)


def units_on_gaussians(labels: str = "structured", seed: int = 0, epochs: int = 1000, rows: int = 20_000) -> Units:
    """AVP's toy: train its network on mislabelled points, and ask of each unit how variable and how spurious it is.

    β compares the observed with the true labels on fresh rows, enough of them for its information to be estimated.
    """
    import torch

    from spurless.registry import load_data
    from spurless.train.fit import fit

    data = load_data({"name": "gaussians", "labels": labels, "seed": seed})
    fresh = load_data({"name": "gaussians", "labels": labels, "seed": seed + 1000, "n": rows, "n_test": rows})
    net = {"name": "mlp", "widths": [32, 32], "activation": "tanh"}
    trained = fit("erm", data, net=net, recipe={"epochs": epochs}, seed=seed, device="cpu", progress=False).classifier
    assert trained is not None and fresh.test is not None
    _, first, tanh, second, _ = trained.encoder.children()

    @torch.no_grad()
    def activations(split: Split) -> Array:
        one = tanh(first(split.x))
        return torch.cat([one, tanh(second(one))], dim=1).double().numpy()  # (n, 64)

    seen, true = ((activations(split), split.y.numpy()) for split in (fresh.train, fresh.test))
    z = activations(data.train)
    return Units(np.repeat([1, 2], 32), z.mean(0), z.var(0), spurious_ratio(seen, true))


def rank_correlation(a: Array, b: Array) -> float:
    """Spearman's, over the places where both are finite; NaN where fewer than two differ.

    >>> rank_correlation(np.array([1.0, 2.0, 3.0, np.inf]), np.array([9.0, 5.0, 1.0, 0.0]))
    -1.0
    """
    from scipy.stats import spearmanr

    first, second = checks.array(a, "a"), checks.array(b, "b")
    if first.ndim != 1 or first.shape != second.shape or not {first.dtype.kind, second.dtype.kind} <= set("biuf"):
        raise SettingError(f"Two lists of numbers, as long, can be compared; not {first.shape} and {second.shape}.")
    finite = np.isfinite(first) & np.isfinite(second)
    first, second = first[finite], second[finite]
    if len(np.unique(first)) < 2 or len(np.unique(second)) < 2:
        return float("nan")
    return float(spearmanr(first, second).statistic)


def _apart(
    measure: Callable[..., float], seen: tuple[Array, Array], true: tuple[Array, Array], bins: int
) -> tuple[Array, Array]:
    """(d,), (d,) The absolute difference of a measure between two datasets, and its value in the second."""
    try:
        (z, y), (z_true, y_true) = seen, true
    except ValueError:
        raise SettingError("Data are two pairs of latents z (n, d) and labels y (n,).") from None
    seen, true = (checks.numbers(z, "z", 2), y), (checks.numbers(z_true, "z", 2), y_true)
    if seen[0].shape[1] != true[0].shape[1]:
        raise SettingError(f"Both data need the same latents, not {seen[0].shape[1]} and {true[0].shape[1]}.")
    values = []
    for i in range(seen[0].shape[1]):
        edges = _edges(np.concatenate([seen[0][:, i], true[0][:, i]]), bins)  # the same cells for both
        values.append([measure(z[:, i], y, edges) for z, y in (seen, true)])
    found = np.array(values)
    with np.errstate(invalid="ignore"):
        return np.abs(found[:, 0] - found[:, 1]), found[:, 1]


def _edges(z: Array, bins: int) -> Array:
    """Upper ends of all cells but the last: one for each value where there are few, else cells with equally many
    rows."""
    values = np.unique(z)
    if len(values) <= checks.count(bins, "bins"):
        return values[:-1]  # not what lies between two of them: the middle of neighbouring numbers is one of them
    return np.unique(np.quantile(z, np.linspace(0, 1, bins + 1)[1:-1]))


def _joint(z: Array, y: Array, edges: Array | None, bins: int) -> Array:
    """(cells, classes) Shares of the rows."""
    z = checks.numbers(z, "z")
    y = checks.labels(y, "y", z.shape)
    edges = _edges(z, bins) if edges is None else np.sort(checks.numbers(edges, "edges", least=0))
    _, label = np.unique(y, return_inverse=True)
    counts = np.zeros((len(edges) + 1, int(label.max()) + 1))
    np.add.at(counts, (np.searchsorted(edges, z), label), 1)
    return counts / len(y)


def _entropy(p: Array) -> float:
    p = p[p > 0]
    return float(-np.sum(p * np.log(p)))
