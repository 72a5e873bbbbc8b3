"""The plain model of an audit: a frozen encoder and a ridge head, so that every sample gets an out-of-fold answer.

Photographs go through EfficientNet-Lite0 where its package is installed, small images through filters drawn from their
own patches (Coates and Ng 2011), texts through the presence of their words, tables through random waves (Rahimi and
Recht 2007). Only the head is fitted, in closed form, once for all training samples and once without each fold.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spurless.core.data import Bundle, Images, Texts
from spurless.nets import Net, build
from spurless.nets.folding import folded

FOLDS = 5
FILTERS, CELLS, RAW = 32, 4, 8  # of small images: filters, pooled to so many cells each way; pixels of the raw copy
WORDS, FEWEST = 2000, 3  # of texts: words that are told apart, and samples that must hold one
WAVES = 256  # of tables
STRENGTHS = (0.01, 0.1, 1.0)  # of the ridge, in mean eigenvalues of the features


class Patches(nn.Module):
    """Fixed filters on an image, rectified both ways and averaged over a grid, beside a small copy of the image."""

    filters: Tensor
    cut: Tensor

    def __init__(self, x: Tensor, seed: int = 0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        windows = F.unfold(x, 5, stride=2)  # (n, c · 25, l)
        at = [torch.randint(0, k, (FILTERS * 40,), generator=generator) for k in (len(x), windows.shape[2])]
        drawn = windows[at[0], :, at[1]]
        drawn = drawn - drawn.mean(1, keepdim=True)
        drawn = drawn[drawn.norm(dim=1).argsort(descending=True)[: FILTERS * 10]]  # flat patches say nothing
        drawn = drawn[torch.randperm(len(drawn), generator=generator)[:FILTERS]]
        self.register_buffer("filters", F.normalize(drawn).view(-1, x.shape[1], 5, 5))
        with torch.no_grad():
            self.register_buffer("cut", 0.5 * F.conv2d(x[:200], self.filters, stride=2, padding=2).std())

    def forward(self, x: Tensor) -> Tensor:
        if max(x.shape[-2:]) > 64:
            x = F.interpolate(x, (64, 64), mode="area")
        response = F.conv2d(x, self.filters, stride=1 if x.shape[-1] < 40 else 2, padding=2)
        both = torch.cat([F.relu(response - self.cut), F.relu(-response - self.cut)], 1)
        pooled = F.adaptive_avg_pool2d(both, CELLS).flatten(1)
        return torch.cat([pooled, F.adaptive_avg_pool2d(x, RAW).flatten(1)], 1)


class Presence(nn.Module):
    """Which of the known words a text holds (n, words)."""

    place: Tensor

    def __init__(self, rows: Tensor, size: int):
        super().__init__()
        counts = torch.zeros(size, dtype=torch.long)
        for row in rows:
            counts[row[0][row[1] > 0].unique().long()] += 1
        order = counts.argsort(descending=True, stable=True)
        vocabulary = order[(counts[order] >= FEWEST) & (counts[order] < 0.98 * len(rows))][:WORDS]
        column_of = torch.full((size,), len(vocabulary), dtype=torch.long)
        column_of[vocabulary] = torch.arange(len(vocabulary))
        self.known = len(vocabulary)
        self.register_buffer("place", column_of)

    def forward(self, x: Tensor) -> Tensor:
        at = torch.where(x[:, 1] > 0, self.place[x[:, 0].long()], self.known)  # (n, l)
        return torch.zeros(len(x), self.known + 1, device=x.device).scatter_(1, at, 1.0)[:, : self.known]


class Waves(nn.Module):
    """The inputs of a table, and cosines of random sums of them."""

    turn: Tensor
    shift: Tensor

    def __init__(self, x: Tensor, seed: int = 0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        apart = torch.pdist(x[torch.randperm(len(x), generator=generator)[:300]])
        typical = float(apart[apart > 0].median()) if bool((apart > 0).any()) else 1.0
        self.register_buffer("turn", 1.5 / typical * torch.randn(x.shape[1], WAVES, generator=generator))
        self.register_buffer("shift", 2 * torch.pi * torch.rand(WAVES, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, (x @ self.turn + self.shift).cos()], 1)


def encoder(data: Bundle, x: Tensor, seed: int) -> tuple[nn.Module, str]:
    """A frozen encoder for such inputs (as a network sees them), and its name."""
    if isinstance(data.inputs, Texts):
        return Presence(x, data.inputs.tokens.size), "words and a ridge head"
    if not isinstance(data.inputs, Images):
        return Waves(x, seed), "random waves and a ridge head"
    photographs = data.shape[0] == 3 and min(data.shape[1:]) >= 64
    if photographs and find_spec("efficientnet_lite_pytorch"):
        net = build({"name": "efficientnet_lite0", "pretrained": True}, data.shape, len(data.classes))
        return folded(net.encoder).to(memory_format=torch.channels_last), "frozen efficientnet_lite0 and a ridge head"
    return Patches(x if max(x.shape[-2:]) <= 64 else F.interpolate(x, (64, 64), mode="area"), seed), (
        "patch filters and a ridge head"
    )


@dataclass(frozen=True)
class Heads:
    """Linear heads on features: one of all training samples, and one without each fold."""

    mean: Tensor  # (d,)
    scale: Tensor  # (d,)
    whole: Tensor  # (d + 1, classes)
    without: Tensor  # (folds, d + 1, classes)
    strength: float

    def logits(self, features: Tensor, fold: Tensor) -> Tensor:
        """(n, classes) Each sample by the head that has not seen its fold; fold -1: by the head of all."""
        z = _padded((features - self.mean) / self.scale)
        out = z @ self.whole
        for k in range(len(self.without)):
            rows = (fold == k).nonzero()[:, 0]
            out[rows] = z[rows] @ self.without[k]
        return out

    def linear(self, features: int, classes: int) -> nn.Linear:
        """The head of all samples, as a layer on features as they are."""
        layer = nn.Linear(features, classes)
        weight = self.whole[:-1] / self.scale[:, None]
        with torch.no_grad():
            layer.weight.copy_(weight.T)
            layer.bias.copy_(self.whole[-1] - self.mean @ weight)
        return layer


def _padded(z: Tensor) -> Tensor:
    return torch.cat([z, torch.ones(len(z), 1)], 1)


def folds_of(y: Tensor, seed: int, folds: int = FOLDS) -> Tensor:
    """(n,) The fold of each sample; each fold has the same share of every class."""
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    order = order[y[order].argsort(stable=True)]
    fold = torch.empty(len(y), dtype=torch.long)
    fold[order] = torch.arange(len(y)) % folds
    return fold


def fit_heads(
    features: Tensor,
    y: Tensor,
    classes: int,
    fold: Tensor,
    weights: Tensor | None = None,
    strength: float | None = None,
) -> Heads:
    """Ridge regression on the classes, weighted by sample. The strength is that of the smallest out-of-fold error."""
    mean, scale = features.mean(0), features.std(0)
    scale = scale.clamp_min(max(1e-6, 0.1 * float(scale.median())))  # features that hardly vary must not be blown up
    z = _padded((features - mean) / scale).double()
    w = torch.ones(len(y)) if weights is None else weights * len(y) / weights.sum()
    target = F.one_hot(y, classes).double()
    parts = [fold != k for k in range(int(fold.max()) + 1)]
    ridge = Ridge(z, target, w.double())
    best: tuple[float, list[Tensor], float] | None = None
    for each in STRENGTHS if strength is None else (strength,):
        heads = [ridge.head(k, own, each) for k, own in enumerate(parts)]
        error = sum(
            float((w[~own, None] * (z[~own] @ f - target[~own]).square()).sum())
            for own, f in zip(parts, heads, strict=True)
        )
        if best is None or error < best[0]:
            best = error, heads, each
    assert best is not None
    whole = ridge.head(-1, torch.ones_like(fold, dtype=torch.bool), best[2])
    return Heads(mean, scale, whole.float(), torch.stack(best[1]).float(), best[2])


class Ridge:
    """Ridge regressions of the same samples (n, d + 1) with several strengths: what strengths share is made once."""

    def __init__(self, z: Tensor, target: Tensor, w: Tensor):
        root = w.sqrt()[:, None]
        self.rows, self.aim = z * root, target * root
        self.scale = len(z) * float(z[:, :-1].square().mean())
        self.dual = len(z) < z.shape[1]
        self.gram = self.rows @ self.rows.T if self.dual else self.rows.T @ self.rows
        self.kept: dict[int, tuple[Tensor, Tensor]] = {}  # of a part

    def head(self, k: int, part: Tensor, strength: float) -> Tensor:
        """The solution (d + 1, classes) of a part of the samples, whose number is k."""
        if k not in self.kept:
            own, out = self.rows[part], self.rows[~part]
            block = self.gram[part][:, part] if self.dual else self.gram - out.T @ out
            self.kept[k] = block, self.aim[part] if self.dual else own.T @ self.aim[part]
        block, aim = self.kept[k]
        penalty = strength * self.scale
        block = block + penalty * torch.eye(len(block), dtype=block.dtype)
        if self.dual:
            return self.rows[part].T @ torch.cholesky_solve(aim, torch.linalg.cholesky(block))
        block[-1, -1] -= penalty * 0.999  # the constant is hardly shrunk
        return torch.cholesky_solve(aim, torch.linalg.cholesky(block))


def head_only(net: Any, heads: Heads, classes: int) -> Net:
    """The encoder with the head of all samples, as a network."""
    return Net(net, heads.linear(len(heads.mean), classes))
