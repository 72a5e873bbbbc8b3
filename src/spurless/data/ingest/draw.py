"""What the generated datasets share: random numbers, exact shares, and shapes drawn as signed distances.

A shape is a function of the coordinates u (to the right) and v (upwards) that is negative inside and, near the edge,
grows by one per unit of length. Every shape lies within the unit circle, so an object of radius r is visible in full
wherever its centre keeps r from the border.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spurless.core.data import Bundle, Split
from spurless.core.recipe import Recipe
from spurless.core.seeds import derive
from spurless.core.settings import resolve

# Barsbey et al. 2025: plain SGD at a constant learning rate until the training data is fitted. The rate is the
# experiment itself (0.01 to 0.75 on parity and moon_star); this is one from the middle of their range.
LARGE_LR = Recipe(optimizer="sgd", lr=0.1, momentum=0.0, batch_size=100, epochs=500, until_accuracy=100)

Shape = Callable[[Tensor, Tensor], Tensor]
CHUNK = 2**18  # pixels drawn at once: they stay in a core's cache


def stream(seed: int, *purpose: str) -> np.random.Generator:
    """Random numbers for one purpose, such as one split of one dataset."""
    return np.random.default_rng(derive(seed, *purpose))


def checked(load: Callable[..., Bundle], given: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of a call, held to their types and ranges, from Python too; `given` is `locals()` at its start."""
    return resolve(load, {name: value for name, value in given.items() if name != "root"}, "data")


def balanced(rng: np.random.Generator, n: int, classes: int) -> NDArray[np.int64]:
    """n labels in random order, every class equally often (to within one).

    >>> np.bincount(balanced(stream(0, "doctest"), 7, 3)).tolist()
    [3, 2, 2]
    """
    return rng.permutation(np.arange(n) % classes)


def rank_in_class(rng: np.random.Generator, y: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place of each sample in a random order of the samples of its class: `rank < k` picks exactly k samples of a
    class.

    >>> y = np.array([0, 1, 0, 1, 1])
    >>> rank = rank_in_class(stream(0, "doctest"), y)
    >>> sorted(rank[y == 0].tolist()), sorted(rank[y == 1].tolist())
    ([0, 1], [0, 1, 2])
    """
    order = np.lexsort((rng.random(len(y)), y))
    count = np.bincount(y)
    start = np.repeat(np.cumsum(count) - count, count)
    rank = np.empty(len(y), dtype=np.int64)
    rank[order] = np.arange(len(y)) - start
    return rank


def exact_share(rng: np.random.Generator, y: NDArray[np.int64], share: float) -> NDArray[np.bool_]:
    """Which samples are chosen when the same share of every class is, to the nearest whole sample.

    >>> int(exact_share(stream(0, "doctest"), np.zeros(40, dtype=np.int64), 0.1).sum())
    4
    """
    return np.asarray(rank_in_class(rng, y) < np.floor(share * np.bincount(y) + 0.5)[y])


def splits(
    draw: Callable[[str, int, float], Split], counts: tuple[int, int, int], rho: float, rho_test: float
) -> tuple[Split, Split | None, Split | None]:
    """train, val and test of these sizes, val with the training bias; val and test without samples are None."""
    n, n_val, n_test = counts
    val = draw("val", n_val, rho) if n_val else None
    return draw("train", n, rho), val, draw("test", n_test, rho_test) if n_test else None


@contextmanager
def one_thread() -> Iterator[None]:
    """Draw on one thread: on arrays this small a second one gains little, and costs much where its core is busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def chunks(rows: Tensor, pixels: int) -> Iterator[Tensor]:
    """The samples in pieces of about CHUNK pixels, `pixels` being those of one sample."""
    return iter(rows.split(max(1, CHUNK // pixels)))


def coverage(shape: Shape, x: Tensor, y: Tensor, radius: Tensor, turn: Tensor, size: int) -> Tensor:
    """(n, size, size): the share of each pixel that the object covers, taken from the distance to its edge.

    Centre (x, y) and radius (n,) are in units of the image's width, y downwards; `turn` (n,) is in radians.
    """
    pixel = (torch.arange(size) + 0.5) / size
    right = (pixel - x[:, None])[:, None, :] / radius[:, None, None]  # (n, 1, size)
    up = (y[:, None] - pixel)[:, :, None] / radius[:, None, None]  # (n, size, 1)
    cos, sin = turn.cos()[:, None, None], turn.sin()[:, None, None]
    u, v = right * cos + up * sin, up * cos - right * sin  # (n, size, size)
    # Beyond a sharp tip the distance to its two edges stays small for a while; the unit circle ends it there.
    distance = torch.maximum(shape(u, v), _circle(u, v, 1))
    return distance.mul_(radius[:, None, None] * -size).add_(0.5).clamp_(0, 1)


def _box(u: Tensor, v: Tensor, width: float, height: float) -> Tensor:
    return torch.maximum(u.abs() - width, v.abs() - height)


def _circle(u: Tensor, v: Tensor, radius: float) -> Tensor:
    return torch.hypot(u, v) - radius


def disc(u: Tensor, v: Tensor) -> Tensor:
    return _circle(u, v, 0.64)


def square(u: Tensor, v: Tensor) -> Tensor:
    return _box(u, v, 0.56, 0.56)


def bar(u: Tensor, v: Tensor) -> Tensor:
    return _box(u, v, 0.93, 0.34)


def cross(u: Tensor, v: Tensor) -> Tensor:
    return torch.minimum(_box(u, v, 0.85, 0.21), _box(u, v, 0.21, 0.85))


def ring(u: Tensor, v: Tensor) -> Tensor:
    return (torch.hypot(u, v) - 0.6).abs() - 0.17


def triangle(u: Tensor, v: Tensor) -> Tensor:
    return torch.maximum(u.abs() * math.cos(math.pi / 6) + v * 0.5, -v) - 0.5


def star(u: Tensor, v: Tensor) -> Tensor:
    """Five points: a point of the plane is inside when it is outside at most one side of the inner pentagon."""
    first = second = torch.full_like(u, -math.inf)
    for k in range(5):
        angle = math.tau * (k / 5 + 0.05)
        side = u * math.cos(angle) + v * math.sin(angle)
        second = torch.maximum(second, torch.minimum(first, side))
        first = torch.maximum(first, side)
    return second - math.cos(math.tau / 5)  # so that the tips touch the unit circle


def moon(u: Tensor, v: Tensor) -> Tensor:
    return torch.maximum(_circle(u - 0.2, v, 0.8), 0.58 - torch.hypot(u - 0.7, v))


def heart(u: Tensor, v: Tensor) -> Tensor:
    right, up = u.abs(), v + 0.15
    point = (right + up.abs() - 0.6) * math.sqrt(0.5)
    return torch.minimum(point, _circle(right - 0.3, up - 0.3, 0.6 * math.sqrt(0.5)))


def bow(u: Tensor, v: Tensor) -> Tensor:
    slant = (v.abs() - 0.7 * u.abs() - 0.08) / math.hypot(1, 0.7)
    return torch.maximum(u.abs() - 0.78, slant)


def tee(u: Tensor, v: Tensor) -> Tensor:
    return torch.minimum(_box(u, v - 0.38, 0.76, 0.25), _box(u, v + 0.26, 0.25, 0.64))


def dots(u: Tensor, v: Tensor) -> Tensor:
    """Three discs on a triangle."""
    right = u.abs()
    return torch.minimum(_circle(right - 0.5, v + 0.29, 0.37), _circle(u, v - 0.58, 0.37))


def arrow(u: Tensor, v: Tensor) -> Tensor:
    head = torch.maximum((u.abs() + v - 0.95) * math.sqrt(0.5), 0.1 - v)
    return torch.minimum(head, _box(u, v + 0.28, 0.22, 0.67))


def horseshoe(u: Tensor, v: Tensor) -> Tensor:
    from_spine = torch.hypot(u, (v - 0.06).clamp(max=0))  # a half circle below, straight legs above
    return torch.maximum((from_spine - 0.58).abs() - 0.2, v - 0.61)


def half(u: Tensor, v: Tensor) -> Tensor:
    """Half a disc."""
    return torch.maximum(_circle(u, v + 0.35, 0.92), -0.35 - v)


def ell(u: Tensor, v: Tensor) -> Tensor:
    return torch.minimum(_box(u + 0.29, v - 0.11, 0.25, 0.72), _box(u - 0.11, v + 0.36, 0.65, 0.25))
