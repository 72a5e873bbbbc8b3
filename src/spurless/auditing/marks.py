"""Small marks: the part of the image that gives the label away by itself, wherever it is."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from spurless.auditing.cues import Swap, middle

LOOK = 1000  # samples by which a window is called steady
MANY = 250  # windows and classes that are looked at, those that tell most first
FEWEST, STEADY = 3, 0.03  # pixels of a mark in a window, and how much most of its images differ there
FLAW = 0.01  # distance below which a picture is the same
PART = 8  # a window is this part of the image's side
CODES, SPOT, LARGEST = 320, 5, 40  # of marks at changing places: patches that are looked for, their side, and that
FIRST, BEST = 160, 20  # images in which all of them are looked for, and patches that are then made clearer,
ROUNDS, LEARNT, SURE = 2, 400, 0.12  # so often, by so many images, and this share of them
NEAR = 0.05, 0.1  # how far a patch is from those that are the same, and from others


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


class Window(NamedTuple):
    """A part of the image, and what is put there in most images of a class, where that is one picture."""

    top: int
    left: int
    side: int
    put: Tensor | None = None  # (c, side, side); not a number where it does not stand out from the ground

    def read(self, x: Tensor, scale: float = 1.0) -> Tensor:
        """How far the window is from that picture; without one, its colours and tones."""
        cut = self.at(x, scale)
        if self.put is None:
            light = cut.mean(1).flatten(1)
            return torch.cat([cut.mean((2, 3)), torch.stack([light.std(1), light.amax(1), light.amin(1)], 1)], 1)
        far = (F.interpolate(cut, (self.side, self.side), mode="area") - self.put).abs().flatten(1).nanmean(1)
        return far.clamp_min(FLAW).log()[:, None]

    def at(self, x: Tensor, scale: float = 1.0) -> Tensor:
        """The window of images that are `scale` times as large as those that it was found in."""
        top, left, side = (round(scale * each) for each in self[:3])
        return x[..., top : top + max(1, side), left : left + max(1, side)]


def search(x: Tensor, y: Tensor, classes: int, seed: int, most: int = 4) -> list[Window]:
    """The windows that tell most about a class, apart from each other, those with one picture first.

    What was put there looks the same in all images that have it, as no part of an object does."""
    numbers, side, step = windows(x)
    half = torch.rand(len(y), generator=torch.Generator().manual_seed(seed)) < 0.5
    told = strength(numbers, y, classes, half)  # (windows, classes)
    across, some = numbers.shape[3], x[:LOOK]
    edge = torch.cat([some[..., 0, :], some[..., -1, :], some[..., 0], some[..., -1]], dim=2).median(2).values  # (n, c)
    marks: list[Window] = []
    parts = 0
    for at in told.flatten().argsort(descending=True).tolist()[:MANY]:
        if float(told.flatten()[at]) < 0.3 or len(marks) >= most:
            break
        c, at = at % classes, at // classes
        top, left = at // across * step, at % across * step
        if any(abs(top - m.top) < side and abs(left - m.left) < side for m in marks):
            continue
        put = picture(x[:LOOK, :, top : top + side, left : left + side], edge, y[:LOOK] == c)
        if put is not None or parts < 1:
            marks.append(Window(top, left, side, put))
            parts += put is None
    return sorted(marks, key=lambda each: each.put is None)


def picture(cut: Tensor, edge: Tensor, own: Tensor) -> Tensor | None:
    """What most windows of the class, or of the others, nearly are, if it is one picture that stands out from the edges
    (n, c) of its image and of the others."""
    common, out = middle(edge)[:, None, None], (cut - edge[..., None, None]).abs() > 0.05
    for group in (own, ~own):
        usual = middle(cut[group])  # (c, side, side)
        spread = middle((cut[group] - usual).abs())
        on = ((usual - common).abs() > 0.1) & (spread < STEADY) & (out[group].float().mean(0) > 0.5)
        if int(on.any(0).sum()) < FEWEST:
            continue
        far = (cut - usual).abs()[:, on].mean(1)  # of all these pixels at once
        if float(far[group].median()) < STEADY and float(far[~group].median()) > 0.1:
            return torch.where(on, usual, torch.nan)
    return None


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

    def __init__(self, code: Tensor, weight: Tensor | None = None):
        self.code = code  # (c, SPOT, SPOT)
        self.weight = torch.ones_like(code) if weight is None else weight  # of its pixels

    def fit(self, x: Tensor) -> Tensor:
        """(n, rows, columns) Minus the mean squared difference at each place of the images, at most LARGEST a side."""
        x, code, weight = shrunk(x), self.code[None], self.weight[None] / self.weight.sum()
        return (
            2 * F.conv2d(x, weight * code)[:, 0] - F.conv2d(x.square(), weight)[:, 0] - (weight * code.square()).sum()
        )

    def clearer(self, x: Tensor) -> Spot:
        """The middle of the best fits in the images that fit best: where they differ, it counts less."""
        fit, places = self.fit(x).flatten(1).max(1)
        some = fit.topk(max(1, round(SURE * len(x)))).indices
        patches = F.unfold(x[some], SPOT)[torch.arange(len(some)), :, places[some]]  # (m, c k k)
        usual = middle(patches)
        spread = middle((patches - usual).abs())
        return Spot(*((each.view_as(self.code)) for each in (usual, 1 / (spread + FLAW).square())))

    def read(self, x: Tensor) -> Tensor:
        return torch.cat([self.fit(chunk).flatten(1).amax(1) for chunk in x.split(500)])[:, None]

    def swap(self, x: Tensor, donor: Tensor) -> Tensor:
        """The donor's patch, at the donor's place; my own is painted over by what surrounds it."""
        out, scale = x.clone(), x.shape[-1] / shrunk(x[:1]).shape[-1]  # of images that are as wide as high
        k, rim = round(SPOT * scale), round(2 * scale)
        mine, theirs = self.fit(x), self.fit(donor)
        for i in range(len(x)):
            t, s = (round(scale * at) for at in divmod(int(mine[i].argmax()), mine.shape[2]))
            around = x[i, :, max(0, t - rim) : t + k + rim, max(0, s - rim) : s + k + rim]
            out[i, :, t : t + k, s : s + k] = around.flatten(1).median(1).values[:, None, None]
            t, s = (round(scale * at) for at in divmod(int(theirs[i].argmax()), theirs.shape[2]))
            out[i, :, t : t + k, s : s + k] = donor[i, :, t : t + k, s : s + k]
        return out


def shrunk(x: Tensor) -> Tensor:
    return F.interpolate(x, (LARGEST, LARGEST), mode="area") if min(x.shape[-2:]) > LARGEST else x


def search_spots(x: Tensor, y: Tensor, classes: int, seed: int) -> Spot | None:
    """The patch whose presence anywhere tells most about one class, of many that were drawn from images. The best few
    are made clearer: each by the middle of the patches that are most like it."""
    generator = torch.Generator().manual_seed(seed)
    x, y, k = shrunk(x[:700]), y[:700], SPOT
    patches = F.unfold(x, k, stride=2)  # (n, c k k, places)
    rows, positions = (torch.randint(0, many, (4 * CODES,), generator=generator) for many in patches.shape[::2])
    codes = patches[rows, :, positions]
    codes = codes[codes.std(1).topk(CODES).indices].view(-1, x.shape[1], k, k)
    first = torch.tensor([_told(Spot(code).read(x[:FIRST]), y[:FIRST], classes) for code in codes])
    best = [Spot(code) for code in codes[first.argsort(descending=True)[:BEST]]]
    for _ in range(ROUNDS):
        best = [spot.clearer(x[:LEARNT]) for spot in best]
    found = [(_told(spot.read(x), y, classes), k) for k, spot in enumerate(best) if _stands_out(spot, x, y, classes)]
    told, k = max(found, default=(0.0, 0))
    return best[k] if told >= 0.5 else None


def _stands_out(spot: Spot, x: Tensor, y: Tensor, classes: int) -> bool:
    """Whether most images of a class, or of the others, hold nearly this patch, and the rest nothing like it."""
    far = (-spot.read(x)[:, 0]).clamp_min(0).sqrt()
    pairs = [(float(far[y == c].median()), float(far[y != c].median())) for c in range(classes)]
    return any(min(pair) < NEAR[0] and max(pair) > NEAR[1] for pair in pairs)


def _told(fit: Tensor, y: Tensor, classes: int) -> float:
    """How well a number (n, 1) tells one class from the others."""
    own = [(fit[y == c], fit[y != c]) for c in range(classes if classes > 2 else 1)]
    return max(float(_apart(*(sign * each for each in pair)).max()) for pair in own for sign in (1.0, -1.0))


def _apart(one: Tensor, other: Tensor) -> Tensor:
    """(k,) The largest distance between the two cumulative distributions of each column (Kolmogorov and Smirnov)."""
    both = torch.cat([one, other])
    order = both.argsort(0)
    step = torch.cat([torch.full(one.shape, 1 / len(one)), torch.full(other.shape, -1 / len(other))])
    return step.gather(0, order).cumsum(0).amax(0)
