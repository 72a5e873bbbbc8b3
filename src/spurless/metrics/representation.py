"""What the penultimate layer of a network holds: how far apart classes are, what single neurons answer to, and how
near the samples that contradict a shortcut are to those that follow it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from spurless.core.data import Bundle, Split
from spurless.core.errors import UserError, one_of
from spurless.core.extras import missing
from spurless.core.recipe import Recipe
from spurless.metrics import checks
from spurless.metrics.regions import Rows, device_of, rows_of
from spurless.nets import Net
from spurless.nets.outputs import Inputs

CSI_EPSILON = 1e-6


def features_of(net: nn.Module, data: Bundle, split: str = "test", rows: Rows = None, batch_size: int = 1024) -> Tensor:
    """(m, d): what the penultimate layer gives for samples of a dataset, in evaluation mode; None: for all samples.

    A module of your own must end in a linear layer, whose inputs these are; its modes and weights stay as they are.

    >>> from spurless.registry import load_data
    >>> net = nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 2))
    >>> features_of(net, load_data({"name": "toy", "n": 20}), "test", [0, 1, 2]).shape
    torch.Size([3, 5])
    """
    from spurless.nets.outputs import outputs

    idx, whole = rows_of(data, split, rows), data.splits[split]
    device = device_of(net)
    recipe = Recipe(channels_last=False, eval_batch_size=checks.count(batch_size, "batch_size"))
    inputs = Inputs(data, recipe, device)
    if not isinstance(net, Net):
        net = checks.as_net(net, inputs(whole[idx[:2]].to(device)))
    picked = whole if rows is None else Split(whole[idx], whole.y[idx])
    with checks.asking(net, torch.empty(0, *data.shape)):
        return outputs(net, picked, inputs, recipe, device, features=True).cpu()


def class_separation(features: Tensor, y: Tensor) -> float:
    """R² = 1 − d_within / d_total of features (n, d): 0 where classes lie alike, 1 where each is one direction.

    d_within is the mean cosine distance 1 − cos of two samples of one class, d_total that of two samples of any two
    classes, self-pairs included, all classes counting the same (Kornblith et al. 2021). With u = x / ‖x‖ and the class
    means μ_k of u, these are 1 − mean_k ‖μ_k‖² and 1 − ‖mean_k μ_k‖²: no pair has to be formed. A sample of zeros has
    cosine 0 with every sample. NaN where all samples point the same way.

    >>> class_separation(torch.tensor([[1.0, 0], [2, 0], [0, 1], [0, 3]]), torch.tensor([0, 0, 1, 1]))
    1.0
    >>> class_separation(torch.tensor([[1.0, 0], [0, 1], [1, 0], [0, 1]]), torch.tensor([0, 0, 1, 1]))
    0.0
    """
    features = _table(features)
    means, _, _ = _means(features, checks.codes(y, len(features)).cpu(), _units)  # (k, d)
    if len(means) < 2:
        raise UserError("Class separation needs samples of at least two classes.")
    within = 1 - float(means.square().sum(1).mean())
    total = 1 - float(means.mean(0).square().sum())
    return 1 - within / total if total > 1e-12 else math.nan


class Selectivity(NamedTuple):
    """For each neuron: how much it prefers one class, which, how many samples of that class it fires for, if ever."""

    values: Tensor  # (d,) CSI or BSI
    preferred: Tensor  # (d,) the class
    coverage: Tensor  # (d,) the share of its samples with an activation above 0
    active: Tensor  # (d,) whether the neuron fires for any sample at all

    @property
    def average(self) -> float:
        """Over all neurons, as the paper has it; neurons that never fire count 0."""
        return float(self.values.mean())

    @property
    def average_of_active(self) -> float:
        """Over the neurons that fire for at least one sample."""
        return float(self.values[self.active].mean())


def csi(
    activations: Tensor,
    y: Tensor,
    coverage: bool = True,
    negative: Literal["clip", "keep"] = "clip",
    epsilon: float = CSI_EPSILON,
) -> Selectivity:
    """The class-selectivity index of each neuron, from activations (n, d) of samples in which the bias tells nothing.

        CSI = ρ_max (π_max − π_rest) / (π_max + π_rest + ε)

    π_max is the largest class mean of the neuron, π_rest the mean of the other classes' means, ρ_max the share of
    samples of that class for which it fires, its coverage (left out with coverage=False). From 0, no preference, to 1:
    fires for every sample of one class and for no other. Activations below 0 count as 0 (not firing), since the index
    is no index otherwise; negative="keep" takes the formula as it stands.

    >>> found = csi(torch.tensor([[2.0, 1.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]), torch.tensor([0, 0, 1, 1]))
    >>> found.values.round(decimals=3).tolist(), found.coverage[0].item(), found.preferred[0].item()
    ([0.5, 0.0], 0.5, 0)
    """
    one_of("way to treat negative values", negative, ("clip", "keep"))
    if not epsilon >= 0:
        raise UserError(f"epsilon = {epsilon} is not allowed; it is a small number, at least 0.")
    activations = _table(activations)
    codes = checks.codes(y, len(activations)).cpu()
    means, names, _ = _means(activations, codes, lambda z: z.clamp(min=0) if negative == "clip" else z)  # (k, d)
    if len(means) < 2:
        raise UserError("Selectivity needs samples of at least two classes (or values of the attribute).")
    fires = _means(activations, codes, lambda z: (z > 0).double())[0]  # (k, d)
    top, best = means.max(0)  # (d,) each
    rest = (means.sum(0) - top) / (len(means) - 1)
    share = fires.gather(0, best[None])[0]  # (d,)
    values = (top - rest) / (top + rest + epsilon) * (share if coverage else 1)
    return Selectivity(values.float(), names[best], share.float(), fires.amax(0) > 0)


def bsi(activations: Tensor, a: Tensor, **settings: Any) -> Selectivity:
    """The bias-selectivity index: the same as `csi`, of the values (n,) of a bias attribute in place of classes.

    >>> bsi(torch.tensor([[1.0], [0.0]]), torch.tensor([1, 0])).preferred.tolist()
    [1]
    """
    a = checks.tensor(a, "a")
    if a.dim() != 1:
        raise UserError(f"bsi takes one attribute, a[:, k] of shape (n,), not shape {tuple(a.shape)}.")
    return csi(activations, a, **settings)


class Alignment(NamedTuple):
    """Mean cosines of samples of the same class."""

    gap: float  # among − across: how much nearer aligned samples are to one another than to conflicting ones
    among: float  # of two different aligned samples
    across: float  # of an aligned sample and a conflicting one
    classes: int  # that have two aligned samples and a conflicting one; the others are left out


def alignment_gap(features: Tensor, y: Tensor, aligned: Tensor) -> Alignment:
    """How much nearer aligned samples are to aligned samples of their class than to conflicting ones, by mean cosine.

        gap = mean_k [ mean_{i≠j aligned} cos(x_i, x_j) − mean_{i aligned, j conflicting} cos(x_i, x_j) ]

    Near 0 where the features do not show the shortcut. All classes count the same. Computed from sums of unit vectors,
    so without forming pairs. For a linear, semi-orthogonal map of D spurious signs that agree with the label with
    probability p, against samples in which they are coin flips, it is D (2p − 1)² / (D + 1) (DCWP, lemma 1).

    >>> features = torch.tensor([[1.0, 0], [2, 0], [0, 1]])
    >>> alignment_gap(features, torch.zeros(3, dtype=torch.long), torch.tensor([True, True, False]))
    Alignment(gap=1.0, among=1.0, across=0.0, classes=1)
    """
    features = _table(features)
    codes = checks.codes(y, len(features)).cpu()
    cells = 2 * codes + checks.flags(aligned, "aligned", (len(codes),)).cpu()
    means, names, count = _means(features, cells, _units)  # (cells, d), (cells,), (cells,)
    lengths = _means(features, cells, lambda x: _units(x).square().sum(1, keepdim=True))[0]  # (cells, 1)
    at = {cell: i for i, cell in enumerate(names.tolist())}
    gaps = []
    for k in codes.unique().tolist():
        ours, theirs = at.get(2 * k + 1), at.get(2 * k)
        if ours is None or theirs is None or count[ours] < 2:
            continue
        n, mean = float(count[ours]), means[ours]
        among = (n * float(mean @ mean) - float(lengths[ours])) / (n - 1)  # without the pairs of a sample with itself
        gaps.append((among, float(mean @ means[theirs])))
    if not gaps:
        return Alignment(math.nan, math.nan, math.nan, 0)
    among, across = np.mean(gaps, axis=0).tolist()
    return Alignment(among - across, among, across, len(gaps))


def represent(net: nn.Module, data: Bundle, split: str = "test", rows: Rows = None) -> dict[str, Any]:
    """All of this for a network and samples of a dataset; best on a split in which the bias tells nothing.

    `bsi` and `alignment_gap` hold one entry for each attribute, and none where the data has none.

    >>> from spurless.registry import load_data
    >>> net = nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 2))
    >>> sorted(represent(net, load_data({"name": "toy", "n": 20})))
    ['alignment_gap', 'bsi', 'class_separation', 'csi', 'dead', 'features', 'n']
    """
    idx, samples = rows_of(data, split, rows), data.splits[split]
    z, y = features_of(net, data, split, rows), samples.y[idx]
    core = csi(z, y)
    report: dict[str, Any] = {
        "class_separation": class_separation(z, y),
        "csi": core.average,
        "dead": int((~core.active).sum()),
        "bsi": {},
        "alignment_gap": {},
        "features": z.shape[1],
        "n": len(idx),
    }
    aligned = data.is_aligned(samples)
    if samples.a is not None and aligned is not None:
        for k, name in enumerate(data.attributes):
            if len(samples.a[idx, k].unique()) > 1:
                report["bsi"][name] = bsi(z, samples.a[idx, k]).average
            report["alignment_gap"][name] = alignment_gap(z, y, aligned[idx, k]).gap
    return report


class Projection(NamedTuple):
    """Coordinates for a plot."""

    rows: Tensor  # (m,) which samples of the features these are
    xy: Tensor  # (m, 2)


def project(
    features: Tensor,
    how: Literal["tsne", "umap"] = "tsne",
    most: int = 2000,
    seed: int = 0,
    perplexity: float = 30.0,
) -> Projection:
    """Two coordinates for each of at most `most` samples, drawn at random where there are more; samples stay in order.

    t-SNE is scikit-learn's, of the first 50 principal components, started from the first two; UMAP needs the package
    umap-learn. The same features and seed give the same coordinates (on the same machine and number of threads).
    Distances between far groups, and sizes of groups, mean nothing in either.

    >>> project(torch.randn(40, 8), most=20).xy.shape
    torch.Size([20, 2])
    """
    one_of("projection", how, ("tsne", "umap"))
    features = _table(features)
    n = len(features)
    if n < 4:
        raise UserError(f"A projection needs at least 4 samples, not {n}.")
    if not perplexity > 0:
        raise UserError(f"perplexity = {perplexity} is not allowed; it is about how many neighbours a sample has.")
    draw = np.random.default_rng(seed).permutation(n)[: max(most, 4)]
    rows = torch.from_numpy(np.sort(draw))
    z = features.detach()[rows.to(features.device)].flatten(1).cpu().float().numpy()
    if not np.isfinite(z).all():
        raise UserError("Some features are not finite, so they have no place in a plot; was the run diverging?")
    z = z - z.mean(0)
    size = float(np.abs(z).max())
    z = z / size if size > 0 else z
    if how == "umap":
        return Projection(rows, _umap(z, seed))
    return Projection(rows, _tsne(z, seed, perplexity))


def _tsne(z: np.ndarray, seed: int, perplexity: float) -> Tensor:
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    if z.shape[1] > 50 and len(z) > 50:
        z = PCA(50, random_state=seed).fit_transform(z)
    rank = np.linalg.matrix_rank(z)
    if rank == 0:  # all samples alike: they are one point
        return torch.zeros(len(z), 2)
    start = "pca" if rank > 1 and z.shape[1] > 1 else "random"
    nearest = min(perplexity, (len(z) - 1) / 3)
    projected = TSNE(2, perplexity=nearest, init=start, learning_rate="auto", random_state=seed).fit_transform(z)
    return torch.from_numpy(np.ascontiguousarray(projected, dtype=np.float32))


def _umap(z: np.ndarray, seed: int) -> Tensor:
    try:
        from umap import UMAP
    except ImportError:
        raise missing("how = umap", "umap", "use tsne") from None
    projected = UMAP(n_neighbors=min(15, len(z) - 1), random_state=seed, n_jobs=1).fit_transform(z)
    return torch.from_numpy(np.asarray(projected, dtype=np.float32))


def _units(x: Tensor) -> Tensor:
    """(n, d): each sample divided by its length; a sample of zeros stays one."""
    x = x / x.abs().amax(1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)  # first: squares of tiny values are 0
    result: Tensor = x / torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp_min(1)
    return result


def _means(
    values: Tensor, codes: Tensor, change: Callable[[Tensor], Tensor], chunk: int = 4096
) -> tuple[Tensor, Tensor, Tensor]:
    """(k, d): the mean over the samples of each code of the changed values; and the codes and their counts, (k,) each.

    In double precision, a chunk of samples at a time: the memory does not grow with n.
    """
    names, at, count = codes.unique(return_inverse=True, return_counts=True)
    sums: Tensor | float = 0.0
    for piece, where in zip(values.detach().flatten(1).split(chunk), at.split(chunk), strict=True):
        new = change(piece.double().cpu())
        sums = sums + new.new_zeros(len(names), new.shape[1]).index_add_(0, where, new)
    return sums / count[:, None], names, count


def _table(features: Tensor) -> Tensor:
    checked = checks.tensor(features, "features")
    if checked.dim() < 2 or 0 in checked.shape[1:]:
        raise UserError(f"Features are a table of rows and neurons; these are of shape {tuple(checked.shape)}.")
    return checked
