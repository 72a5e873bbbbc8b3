"""How much one set of features tells about another: HSIC, and EnD's two terms. Pure functions of a batch's features."""

import torch
from torch import Tensor

from spurless.methods.parts.losses import Form
from spurless.nets import Net

# Kernels and Gram matrices are computed outside autocast: differences of large products are lost in half precision.


def hsic(x: Tensor, y: Tensor, sigma: float = 1.0) -> Tensor:
    """The Hilbert-Schmidt independence criterion of features (n, d) and (n, e), estimated without bias.

    With RBF kernels K and L whose diagonals are set to zero (Song et al. 2012, equation 5):

        [tr KL + 1ᵀK1 · 1ᵀL1 / ((n−1)(n−2)) − 2/(n−2) · 1ᵀKL1] / (n (n−3))

    Zero on average where x and y are independent, so that it may be negative; 0 for less than four samples.
    `sigma` is the radius of both kernels, in the units of the features; 0: their median distances.

    >>> x = torch.linspace(0, 4, 5)[:, None]
    >>> round(float(hsic(x, x)), 4), abs(float(hsic(x, torch.ones(5, 1)))) < 1e-6
    (0.1081, True)
    """
    n = len(x)
    if n < 4:
        return 0.0 * (x.sum() + y.sum())
    with torch.autocast(x.device.type, enabled=False):
        k, m = off_diagonal(rbf(x.float(), sigma)), off_diagonal(rbf(y.float(), sigma))  # (n, n), (n, n)
        rows_k, rows_m = k.sum(1), m.sum(1)  # (n,), (n,)
        both = (k * m).sum() + rows_k.sum() * rows_m.sum() / ((n - 1) * (n - 2)) - 2 / (n - 2) * (rows_k @ rows_m)
        return both / (n * (n - 3))


def rbf(x: Tensor, sigma: float) -> Tensor:
    """(n, n) exp(−‖x_i − x_j‖² / 2σ²); σ = 0: the median distance between two samples.

    >>> rbf(torch.tensor([[0.0], [2.0]]), sigma=2.0)[0, 1]  # exp(−1/2)
    tensor(0.6065)
    """
    apart = squared_distances(x)
    # The gradient goes through the median: with a radius that only follows, shrinking all features would always pay.
    radius2 = sigma**2 if sigma else median_off_diagonal(apart).clamp_min(1e-12)
    return (-apart / (2 * radius2)).exp()


def squared_distances(x: Tensor) -> Tensor:
    """(n, n) ‖x_i − x_j‖².

    >>> squared_distances(torch.tensor([[0.0, 0.0], [3.0, 4.0]])).tolist()
    [[0.0, 25.0], [25.0, 0.0]]
    """
    x = x - x.mean(0)  # what all samples share would drown the differences in rounding
    norms = x.square().sum(1)  # (n,)
    return (norms[:, None] + norms - 2 * x @ x.T).clamp_min(0)


def median_off_diagonal(square: Tensor) -> Tensor:
    """The median of the entries (n, n) above the diagonal and below it.

    >>> float(median_off_diagonal(torch.tensor([[0.0, 1.0, 4.0], [1.0, 0.0, 2.0], [4.0, 2.0, 0.0]])))
    2.0
    """
    n = len(square)
    ordered = square.flatten().sort().values  # the n entries of the diagonal, which are the smallest, come first
    return ordered[n + (n * n - n - 1) // 2]


def off_diagonal(square: Tensor) -> Tensor:
    """(n, n) The same with zeros on the diagonal.

    >>> off_diagonal(torch.ones(2, 2)).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    return square - torch.diag(square.diagonal())


def cosines(features: Tensor) -> Tensor:
    """(n, n) The cosine of the angle between the features (n, d) of any two samples; 0 with a sample of zeros.

    >>> cosines(torch.tensor([[3.0, 0.0], [1.0, 1.0], [0.0, 0.0]]))[0]
    tensor([1.0000, 0.7071, 0.0000])
    """
    with torch.autocast(features.device.type, enabled=False):
        length: Tensor = features.float().norm(dim=1, keepdim=True)  # (n, 1)
        unit = features.float() / length.masked_fill(length < 1e-8, 1.0)  # (n, d)
        return unit @ unit.T


def disentangling(cosine: Tensor, b: Tensor, values: int) -> Tensor:
    """EnD's first term: how parallel features are that share a value of the bias b (n,), which has so many values.

        Σ_v |Σ over pairs i < j with b_i = b_j = v of cos_ij| / the number of such pairs of all values

    The sums are taken before the absolute value, as released. 0 where there is no such pair.

    >>> parallel, b = torch.ones(3, 3), torch.tensor([0, 0, 1])
    >>> float(disentangling(parallel, b, 2)), float(disentangling(parallel, torch.tensor([0, 1, 2]), 3))
    (1.0, 0.0)
    """
    with torch.autocast(cosine.device.type, enabled=False):
        of = (b[:, None] == torch.arange(values, device=b.device)).float()  # (n, values)
        summed = (of * (cosine.tril(-1) @ of)).sum(0)  # (values,)
        pairs = (of * (torch.ones_like(cosine).tril(-1) @ of)).sum()
        return summed.abs().sum() / pairs.clamp_min(1)


def entangling(cosine: Tensor, y: Tensor, b: Tensor, form: Form = "paper") -> Tensor:
    """EnD's second term: how far from parallel features are that share the class y (n,) and not the bias b (n,).

        1 − mean over pairs i ≠ j with y_i = y_j, b_i ≠ b_j of (1 + cos_ij) / 2

    code: only the pairs whose later sample has the smaller bias, about half of them, as released. 0 where there is
    none.

    >>> opposite = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    >>> y, b = torch.tensor([0, 0]), torch.tensor([0, 1])
    >>> float(entangling(opposite, y, b)), float(entangling(-opposite, y, b)), float(entangling(opposite, y, b, "code"))
    (1.0, 0.0, 0.0)
    """
    differs = b[:, None] < b if form == "code" else b[:, None] != b
    mask = ((y[:, None] == y) & differs).float().tril(-1)  # (n, n)
    pairs = mask.sum()
    return (mask * (1 - cosine) / 2).sum() / pairs.clamp_min(1)


def trained_features(net: Net, x: Tensor) -> tuple[Tensor, Tensor]:
    """The features (n, d) that training can move, and the logits (n, classes).

    The features of a network that is its head alone are its inputs: the logits stand in for them.
    """
    features = net.features(x)
    logits = net.head(features)
    return (features if trains_features(net) else logits), logits


def trains_features(net: Net) -> bool:
    """Whether the encoder has anything to train.

    >>> from spurless.nets import build
    >>> trains_features(build("mlp", (3,), 2)), trains_features(build("linear", (3,), 2))
    (True, False)
    """
    return any(p.requires_grad for p in net.encoder.parameters())
