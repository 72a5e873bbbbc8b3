"""One invariant and D spurious binary features: the motivating example of DCWP."""

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from spurless.core.data import Bundle, Split
from spurless.core.errors import UserError
from spurless.core.recipe import Recipe
from spurless.core.settings import Range
from spurless.data import regions
from spurless.data.ingest import draw as _draw


def load(
    root: Path | None = None,
    D: Annotated[int, "spurious features", Range(1)] = 15,
    p: Annotated[float, "probability that a spurious feature agrees with the label in training", Range(0, 1)] = 0.9,
    phi: Annotated[float, "weight of the debiasing distribution in the training mixture", Range(0, 1)] = 0.0,
    attribute: Annotated[
        Literal["majority", "each"], "the bias: what most spurious features say, or every feature on its own"
    ] = "majority",
    n: Annotated[int, "training samples", Range(1)] = 10_240,
    n_val: Annotated[int, "validation samples, drawn like the training samples", Range(0)] = 2_048,
    n_test: Annotated[int, "test samples, in which no spurious feature means anything", Range(0)] = 10_240,
    seed: Annotated[int, "which random dataset"] = 0,
) -> Bundle:
    """X = (Z_inv, Z_sp) in {-1, 1}^(D+1): Z_inv is the label, each Z_sp,i agrees with it more often than not.

    Input    (D + 1,) float32; the invariant feature first.
    Label    Y is -1 (class 0) or 1 (class 1), a fair coin, and Z_inv = Y.
    Bias     given Y, the Z_sp,i are independent. Training: the mixture of equation 5, element by element,
             P(Z_sp,i = Y) = phi · 0 + (1 - phi) · p, so phi = 0 is the biased environment of section 3.2 and
             phi = 1 - 1/(2p) (`debiasing_phi`) makes it 1/2. Test: 1/2.
             The attribute is the sign of the sum of Z_sp (a tie, possible when D is even, goes to Z_sp,1), since 15
             attributes would make 2^16 groups; attribute=each gives all D. At p = 0.9 and D = 15 the majority
             conflicts in about 3 of 100,000 training samples.
    Splits   train 10,240 (ten batches), val 2,048 alike, test 10,240.
    Citation Park et al., "Training debiased subnetworks with contrastive weight pruning" (DCWP), CVPR 2023; sections
             3.2 and B.3 of its preprint, "Efficient debiasing with contrastive weight pruning".
    Licence  generated here: that of this package.
    Choices  the paper gives D = 15, p from 0.6 to 0.99, 500 epochs, batches of 1024 and a linear classifier; it leaves
             the counts, the optimiser, the learning rate and the p of its figures open.

    >>> load(D=3, n=5).shape
    (4,)
    """
    settings = _draw.checked(load, locals())

    def split(name: str, count: int, agreement: float) -> Split:
        rng = _draw.stream(seed, "linear_toy", name)
        y = rng.integers(2, size=count)
        inv = 2.0 * y - 1
        sp = np.where(rng.random((count, D)) < agreement, 1, -1) * inv[:, None]  # (n, D)
        most = np.where(sp.sum(1) == 0, sp[:, 0], sp.sum(1))[:, None]  # (n, 1)
        a = (most if attribute == "majority" else sp) > 0
        x = np.concatenate([inv[:, None], sp], axis=1)
        return Split(torch.from_numpy(x).float(), torch.from_numpy(y), torch.from_numpy(a).long())

    names = ("majority",) if attribute == "majority" else tuple(f"sp{i + 1}" for i in range(D))
    return Bundle(
        "linear_toy",
        *_draw.splits(split, (n, n_val, n_test), (1 - phi) * p, 0.5),
        classes=("-1", "1"),
        attributes=names,
        values=(("-1", "1"),) * len(names),
        aligned=(torch.eye(2, dtype=torch.bool),) * len(names),
        net="linear",
        recipe=Recipe(optimizer="sgd", lr=0.1, momentum=0.0, batch_size=1024, epochs=500),
        settings=settings,
        regions=_regions,
    )


def _regions(data: Bundle, split: str, idx: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    spurious = range(1, data.shape[0])
    if data.settings["attribute"] == "majority":
        return regions.columns(data, idx, (0,), {"majority": spurious})
    return regions.columns(data, idx, (0,), {f"sp{k}": (k,) for k in spurious})


def debiasing_phi(p: float) -> float:
    """The mixture weight at which the spurious features agree with the label half of the time (theorem 2).

    >>> debiasing_phi(0.8)
    0.375
    >>> (1 - debiasing_phi(0.8)) * 0.8
    0.5
    """
    if not 0.5 <= p <= 1:
        raise UserError(f"p = {p} is not allowed: at 0.5 to 1 there is a bias to mix away, and a weight from 0 to 1.")
    return 1 - 1 / (2 * p)
