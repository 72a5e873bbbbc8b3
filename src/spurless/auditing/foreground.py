"""Where the object of a photograph is, without labels and without a download.

As in GrabCut (Rother, Kolmogorov and Blake 2004), the colours of object and ground are two mixtures that are fitted in
turn with the mask; the rim of the image starts as ground, its middle as object. In place of a graph cut, the odds of
neighbouring pixels are averaged where their colours are alike (a guided filter would do the same).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

SIDE = 40  # pixels a side at which the mask is made
COLOURS = 4  # of each mixture
ROUNDS = 3  # of colours and mask in turn
AREA = 0.08, 0.45  # the least and the largest part of an image that can be the object
BANDWIDTH = 0.06  # difference of colours (0 to 1) beyond which neighbours are not alike


def ellipse(height: int, width: int, share: float = 0.33) -> Tensor:
    """(1, 1, h, w) A soft ellipse in the middle of the image, where the object of a photograph mostly is."""
    down, across = (torch.linspace(-0.5, 0.5, side) for side in (height, width))
    radius = ((down[:, None] / share).square() + (across[None] / share).square()).sqrt()
    return torch.sigmoid((1 - radius) / 0.06)[None, None]


def foreground(x: Tensor) -> Tensor:
    """(n, 1, h, w) How much each pixel of images (n, c, h, w) in 0 to 1 belongs to the object: 0 to 1."""
    inside = _inside(x)
    mask = torch.sigmoid((inside - _threshold(inside)) / 0.05).view(-1, 1, SIDE, SIDE)
    return F.interpolate(mask, x.shape[-2:], mode="bilinear", align_corners=False)


def fills_frame(x: Tensor) -> bool:
    """Whether most objects are so large that hardly any background is left around them."""
    return float((_inside(x) > 0.5).float().mean(1).median()) > AREA[1]


def _inside(x: Tensor) -> Tensor:
    """(n, pixels) The probability of each pixel to belong to the object."""
    small = F.interpolate(x, (SIDE, SIDE), mode="area")
    colours = small.flatten(2).transpose(1, 2)  # (n, p, c)
    middle = ellipse(SIDE, SIDE).flatten()  # (p,)
    prior = torch.logit((0.08 + 0.84 * middle).clamp(0.05, 0.95))
    rim = torch.ones(SIDE, SIDE)
    rim[2:-2, 2:-2] = 0
    inside = middle[None].expand(len(x), -1)
    for _ in range(ROUNDS):
        ground = _log_density(colours, (1 - inside) * (0.3 + rim.flatten()))
        thing = _log_density(colours, inside)
        odds = (thing - ground).clamp(-6, 6) + prior
        inside = torch.sigmoid(_smoothed(odds.view(-1, 1, SIDE, SIDE), small).flatten(1))
    return inside


def grown(mask: Tensor, share: float = 0.05) -> Tensor:
    """The mask with a rim of this part of the image's side, so that nothing of the object's outline stays outside."""
    k = 2 * max(1, round(share * mask.shape[-1])) + 1
    widest = F.max_pool2d(F.max_pool2d(mask, (k, 1), 1, (k // 2, 0)), (1, k), 1, (0, k // 2))  # k + k, not k x k
    return F.avg_pool2d(widest, k, 1, k // 2, count_include_pad=False)


def background_only(x: Tensor) -> Tensor:
    """The images with their objects filled by what surrounds them, blurred: neither outline nor size stays."""
    outside = 1 - grown(foreground(x))
    filled = (x * outside).sum((2, 3), keepdim=True) / outside.sum((2, 3), keepdim=True).clamp_min(1)
    filled = filled.expand_as(x)
    for cells in (5, 10, 20, 40):  # from coarse to fine, as far as a cell has enough ground
        background = _resized(F.adaptive_avg_pool2d(outside, cells), x)
        mean = _resized(F.adaptive_avg_pool2d(x * outside, cells), x) / background.clamp_min(1e-3)
        sure = (background / 0.3).clamp(0, 1)
        filled = filled * (1 - sure) + mean * sure
    return x * outside + filled * (1 - outside)


def swap_background(x: Tensor, donor: Tensor) -> Tensor:
    """The object of x on the ground of the donor, whose own object is filled in."""
    mask = grown(foreground(x), 0.02)
    return x * mask + background_only(donor) * (1 - mask)


def _resized(cells: Tensor, x: Tensor) -> Tensor:
    return F.interpolate(cells, x.shape[-2:], mode="bilinear", align_corners=False)


def _threshold(inside: Tensor) -> Tensor:
    """(n, 1) A half, or what leaves an area that an object may have."""
    order = inside.sort(1, descending=True).values
    least, most = (order[:, round(a * order.shape[1]), None] for a in AREA)
    return torch.full_like(least, 0.5).maximum(most).minimum(least)


def _log_density(colours: Tensor, weight: Tensor) -> Tensor:
    """(n, p) Of each pixel (n, p, c), under a mixture of COLOURS spheres that is fitted to the weighted pixels.

    Components come before pixels: sums over four neighbouring numbers would be slow."""
    n, _, c = colours.shape
    light = (colours.mean(2) + 1e3 * (weight < 0.3)).argsort(1)  # pixels that count, dark to bright
    many = (weight >= 0.3).sum(1).clamp_min(COLOURS)
    at = ((torch.arange(COLOURS) + 0.5) / COLOURS * many[:, None]).long()
    mean = colours.gather(1, light.gather(1, at)[..., None].expand(-1, -1, c))  # (n, k, c)
    spread, share = torch.full((n, COLOURS), 0.01), torch.full((n, COLOURS), 1 / COLOURS)
    size = colours.square().sum(2)[:, None]  # (n, 1, p)
    for _ in range(4):
        near = _components(colours, size, mean, spread, share)  # (n, k, p)
        near = (near - near.amax(1, keepdim=True)).exp_()
        near *= (weight / near.sum(1))[:, None]
        total = near.sum(2).clamp_min(1e-3)
        mean = near @ colours / total[..., None]
        spread = ((near * _apart(colours, size, mean)).sum(2) / total / c).clamp_min(0.002)
        share = total / total.sum(1, keepdim=True)
    last = _components(colours, size, mean, spread, share)
    top = last.amax(1)
    return (last - top[:, None]).exp_().sum(1).log() + top


def _components(colours: Tensor, size: Tensor, mean: Tensor, spread: Tensor, share: Tensor) -> Tensor:
    """(n, k, p) The log of each component's share times its density, but for a constant."""
    known = share.clamp_min(1e-6).log() - 0.5 * colours.shape[2] * spread.log()  # (n, k)
    return known[..., None] - _apart(colours, size, mean) * (0.5 / spread)[..., None]


def _apart(colours: Tensor, size: Tensor, mean: Tensor) -> Tensor:
    """(n, k, p) Squared distances of pixels (n, p, c), whose squares are (n, 1, p), and means (n, k, c)."""
    mixed = mean @ colours.transpose(1, 2)
    return size - 2 * mixed + mean.square().sum(2)[..., None]


def _smoothed(odds: Tensor, x: Tensor, steps: int = 4) -> Tensor:
    """Averaged with the neighbours whose colours are alike."""
    for _ in range(steps):
        total, weight = odds.clone(), torch.ones_like(odds)
        for shift in ((0, 1), (0, -1), (1, 0), (-1, 0)):
            near, colour = (torch.roll(each, shift, (2, 3)) for each in (odds, x))
            alike = torch.exp(-(x - colour).square().mean(1, keepdim=True) / BANDWIDTH**2)
            total, weight = total + alike * near, weight + alike
        odds = total / weight
    return odds
