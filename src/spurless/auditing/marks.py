"""Small marks: the part of the image that gives the label away by itself, wherever it is."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from spurless.auditing.cues import Swap

LOOK = 1000  # samples by which a window is called steady
MANY = 250  # windows and classes that are looked at, those that tell most first
PART = 8  # a window is this part of the image's side
CODES, SPOT = 96, 5  # of marks at changing places: patches that are looked for, and their side in pixels


def windows(x: Tensor) -> tuple[Tensor, int, int]:
    """(n, k, rows, columns) Numbers of every window, the window's side and the step between windows."""
    side = max(3, round(min(x.shape[-2:]) / PART))
    step = max(1, side // 2)
    light = x.mean(1, keepdim=True)
    mean, square = F.avg_pool2d(x, side, step), F.avg_pool2d(light.square(), side, step)
    spread = (square - F.avg_pool2d(light, side, step).square()).clamp_min(0).sqrt()
    top, low = F.max_pool2d(light, side, step), -F.max_pool2d(-light, side, step)
    return torch.cat([mean, spread, top, low], 1), side, step


def strength(numbers: Tensor, y: Tensor, classes: int, half: Tensor) -> Tensor:
    """(windows, classes) True less false positives of "this window says it is this class", on the other half."""
    n = len(numbers)
    z = numbers.flatten(2).permute(2, 0, 1)  # (windows, n, k)
    z = torch.cat(
        [(z - z.mean(1, keepdim=True)) / z.std(1, keepdim=True).clamp_min(1e-4), torch.ones(*z.shape[:2], 1)], 2
    )
    z = torch.cat([z, z[..., :-1].square().clamp_max(16)], 2).double()
    target = F.one_hot(y, classes).double()
    target = target / target.mean(0) - 1  # as if classes were of one size
    fit, test = half, ~half
    gram = z[:, fit].transpose(1, 2) @ z[:, fit] + 0.01 * n * torch.eye(z.shape[2], dtype=z.dtype)
    weight = torch.linalg.solve(gram, z[:, fit].transpose(1, 2) @ target[fit])
    says = (z[:, test] @ weight).argmax(2)  # (windows, m)
    own = F.one_hot(y[test], classes).double()
    hit = F.one_hot(says, classes).double()
    together = torch.einsum("wmc,mc->wc", hit, own) / own.sum(0).clamp_min(1)
    false = torch.einsum("wmc,mc->wc", hit, 1 - own) / (1 - own).sum(0).clamp_min(1)
    return together - false


def search(x: Tensor, y: Tensor, classes: int, seed: int, most: int = 4) -> list[tuple[int, int, int, bool]]:
    """(top, left, side, steady) of the windows that tell most about a class, apart from each other, steady ones first.

    Steady is what was put there: it looks the same in all images that have it, as no part of an object does."""
    numbers, side, step = windows(x)
    half = torch.rand(len(y), generator=torch.Generator().manual_seed(seed)) < 0.5
    told = strength(numbers, y, classes, half)  # (windows, classes)
    across, some = numbers.shape[3], x[:LOOK]
    edge = torch.cat([some[..., 0, :], some[..., -1, :], some[..., 0], some[..., -1]], dim=2).median(2).values  # (n, c)
    marks: list[tuple[int, int, int, bool]] = []
    parts = 0
    for at in told.flatten().argsort(descending=True).tolist()[:MANY]:
        if float(told.flatten()[at]) < 0.3 or len(marks) >= most:
            break
        c, at = at % classes, at // classes
        top, left = at // across * step, at % across * step
        if any(abs(top - t) < side and abs(left - s) < side for t, s, _, _ in marks):
            continue
        steady = is_steady(x[:LOOK, :, top : top + side, left : left + side], edge, y[:LOOK] == c)
        if steady or parts < 1:
            marks.append((top, left, side, steady))
            parts += not steady
    return sorted(marks, key=lambda each: not each[3])


def is_steady(cut: Tensor, edge: Tensor, own: Tensor) -> bool:
    """Whether, in the class or in the others, most windows are nearly one picture that stands out from the edges (n, c)
    of the images."""
    common = edge.median(0).values[:, None, None]
    for group in (own, ~own):
        usual = cut[group].median(0).values  # (c, side, side)
        out = (usual - common).abs() > 0.1  # pixels that stand out from the ground
        if float(out.float().mean()) < 0.2:
            continue
        spread = (cut[group] - usual).abs().median(0).values[out].median()
        others = (cut[~group] - usual).abs()[:, out].mean(1).median()
        if float(spread) < 0.03 and float(others) > 0.1:
            return True
    return False


def read_window(top: int, left: int, side: int, x: Tensor) -> Tensor:
    cut = x[..., top : top + side, left : left + side]
    light = cut.mean(1).flatten(1)
    return torch.cat([cut.mean((2, 3)), torch.stack([light.std(1), light.amax(1), light.amin(1)], 1)], 1)


def swap_window(top: int, left: int, side: int) -> Swap:
    """The window and two pixels around it."""
    at = slice(max(0, top - 2), top + side + 2), slice(max(0, left - 2), left + side + 2)

    def swap(x: Tensor, donor: Tensor) -> Tensor:
        out = x.clone()
        out[..., at[0], at[1]] = donor[..., at[0], at[1]]
        return out

    return swap


def where(top: int, left: int, side: int, height: int, width: int) -> str:
    """
    >>> where(24, 24, 4, 28, 28), where(0, 12, 4, 28, 28), where(12, 12, 4, 28, 28)
    ('a mark in the lower right corner', 'a mark at the top', 'a mark in the middle')
    """
    down, across = (top + side / 2) / height, (left + side / 2) / width
    row = "upper" if down < 0.34 else "lower" if down > 0.66 else ""
    column = "left" if across < 0.34 else "right" if across > 0.66 else ""
    if row and column:
        return f"a mark in the {row} {column} corner"
    if row:
        return f"a mark at the {'top' if row == 'upper' else 'bottom'}"
    return f"a mark at the {column}" if column else "a mark in the middle"


# Marks at changing places


class Spot:
    """A small patch that is looked for everywhere: how well its best place in the image fits."""

    def __init__(self, code: Tensor):
        self.code = code  # (c, SPOT, SPOT)

    def fit(self, x: Tensor) -> Tensor:
        """(n, rows, columns) Minus the mean squared difference at each place."""
        k = self.code.shape[-1]
        ones = torch.ones(1, x.shape[1], k, k)
        square = F.conv2d(x.square(), ones)
        return -(square - 2 * F.conv2d(x, self.code[None]) + self.code.square().sum())[:, 0] / ones.numel()

    def read(self, x: Tensor) -> Tensor:
        return torch.cat([self.fit(chunk).flatten(1).amax(1) for chunk in x.split(500)])[:, None]

    def swap(self, x: Tensor, donor: Tensor) -> Tensor:
        """The donor's patch, at the donor's place; my own is painted over by what surrounds it."""
        k, out = self.code.shape[-1], x.clone()
        mine, theirs = self.fit(x), self.fit(donor)
        for i in range(len(x)):
            t, s = divmod(int(mine[i].argmax()), mine.shape[2])
            around = x[i, :, max(0, t - 2) : t + k + 2, max(0, s - 2) : s + k + 2]
            out[i, :, t : t + k, s : s + k] = around.flatten(1).median(1).values[:, None, None]
            t, s = divmod(int(theirs[i].argmax()), theirs.shape[2])
            out[i, :, t : t + k, s : s + k] = donor[i, :, t : t + k, s : s + k]
        return out


def search_spots(x: Tensor, y: Tensor, classes: int, seed: int) -> Spot | None:
    """The patch whose presence anywhere tells most about one class, of many that were drawn from images."""
    generator = torch.Generator().manual_seed(seed)
    x, y, k = x[:700], y[:700], SPOT
    best = None
    patches = F.unfold(x, k, stride=2)  # (n, c k k, places)
    spread = patches.std(1)
    rows = torch.randint(0, len(x), (CODES * 4,), generator=generator)
    positions = torch.randint(0, patches.shape[2], (CODES * 4,), generator=generator)
    order = spread[rows, positions].argsort(descending=True)[: CODES * 2]
    order = order[torch.randperm(len(order), generator=generator)[:CODES]]
    codes = patches[rows[order], :, positions[order]].view(-1, x.shape[1], k, k)
    ones = torch.ones(1, x.shape[1], k, k)
    square, size = F.conv2d(x.square(), ones), codes.square().sum((1, 2, 3))
    nearest = torch.cat(
        [
            (square[chunk] - 2 * F.conv2d(x[chunk], codes) + size[None, :, None, None]).flatten(2).amin(2)
            for chunk in torch.arange(len(x)).split(250)
        ]
    )  # (n, codes)
    top = 0.0
    for c in range(classes if classes > 2 else 1):
        own = y == c
        for sign in (1.0, -1.0):
            gap = _apart(sign * nearest[own], sign * nearest[~own])
            if float(gap.max()) > top:
                top, best = float(gap.max()), int(gap.argmax())
    return None if best is None or top < 0.5 else Spot(codes[best])


def _apart(one: Tensor, other: Tensor) -> Tensor:
    """(k,) The largest distance between the two cumulative distributions of each column (Kolmogorov and Smirnov)."""
    both = torch.cat([one, other])
    order = both.argsort(0)
    step = torch.cat([torch.full(one.shape, 1 / len(one)), torch.full(other.shape, -1 / len(other))])
    return step.gather(0, order).cumsum(0).amax(0)
