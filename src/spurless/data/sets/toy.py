"""The known-answer world: small vectors with a core feature and an easier spurious one."""

from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor

from spurless.core.data import Bundle, Split
from spurless.core.recipe import Recipe
from spurless.core.seeds import derive
from spurless.core.settings import Range
from spurless.data import regions

CORE = 1.25  # distance of the class means from the boundary, in standard deviations of the core noise
SPURIOUS, JITTER = 3.0, 1.0  # the spurious feature separates the classes much better


def load(
    root: Path | None = None,
    n: Annotated[int, "training samples", Range(20)] = 2000,
    rho: Annotated[float, "share of conflicting training samples", Range(0, 1)] = 0.05,
    noise: Annotated[int, "input features that mean nothing", Range(0)] = 4,
    seed: Annotated[int, "which random dataset"] = 0,
) -> Bundle:
    """Two classes; the input is [core, spurious, noise...].

    - Input: 3 + `noise` numbers. Two core numbers (2y - 1) · CORE/√2 + N(0, 1); one spurious number
      (2a - 1) · SPURIOUS + JITTER · N(0, 1); the rest N(0, 1).
    - Label y: 0 or 1, equally often. Bias a: equals y except in a share `rho` of the samples, exactly.
    - Splits: train n, val n/4 (same bias), test 4,000 with a independent of y (1,000 in each group).
    - Known answers: the best rule that uses the core alone is right with probability Φ(CORE) = 89.4 % in every
      group; a rule that uses the spurious number alone is right in 99.9 % of the aligned samples and 0.1 % of the
      others.
    """

    def draw(name: str, rows: int, conflicting: int) -> Split:
        g = torch.Generator().manual_seed(derive(seed, "toy", name))
        y = torch.arange(rows) % 2
        a = y.clone()
        a[:conflicting] = 1 - a[:conflicting]  # alternate labels, so both classes lose equally many
        mix = torch.randperm(rows, generator=g)
        y, a = y[mix], a[mix]
        return Split(_features(y, a, noise, g), y, a[:, None])

    rest = max(8, n // 4)
    return Bundle(
        "toy",
        draw("train", n, round(rho * n)),
        draw("val", rest, round(rho * rest)),
        draw("test", 4000, 2000),
        classes=("left", "right"),
        attributes=("spurious",),
        values=(("left", "right"),),
        aligned=(torch.eye(2, dtype=torch.bool),),
        net="linear",
        recipe=Recipe("adam", 3e-3, batch_size=64, epochs=15),
        regions=_regions,
    )


def _regions(data: Bundle, split: str, idx: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    return regions.columns(data, idx, (0, 1), {"spurious": (2,)})


def _features(y: Tensor, a: Tensor, noise: int, g: torch.Generator) -> Tensor:
    n = len(y)
    core = (2.0 * y - 1)[:, None] * CORE / 2**0.5 + torch.randn(n, 2, generator=g)  # (n, 2)
    spurious = (2.0 * a - 1)[:, None] * SPURIOUS + JITTER * torch.randn(n, 1, generator=g)  # (n, 1)
    return torch.cat([core, spurious, torch.randn(n, noise, generator=g)], dim=1)
