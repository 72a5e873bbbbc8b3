"""Simple properties of an image from which a model can predict the class: how each is read, and how it is exchanged.

Each cue has two sides. `read(x)` are a few numbers that hold the cue and little else. `swap(x, donor)` is the image x
with the cue of another image, and all else left as it is. Images are numbers from 0 to 1, at the size the model sees.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

APART = 0.15  # how far a pixel's colour is from that of the image's edge, for it to be part of the object
SIDE = 64  # pixels at which most cues are read; the fine ones are read as the image is

Swap = Callable[[Tensor, Tensor], Tensor]


class Property(NamedTuple):
    name: str
    words: str  # in a sentence: "the model relies on ..."
    kind: str  # light, colour, detail, place, margin
    read: Callable[[Tensor], Tensor]  # (n, c, h, w) -> (n, k)
    swap: Swap  # both (n, c, h, w)


def small(x: Tensor) -> Tensor:
    """The image by its averages, where it is larger than SIDE."""
    return F.interpolate(x, (SIDE, SIDE), mode="area") if min(x.shape[-2:]) > SIDE else x


def grey(x: Tensor) -> Tensor:
    return x.mean(1, keepdim=True)


def object_mask(x: Tensor) -> Tensor:
    """(n, 1, h, w) 1 where a pixel differs from the usual colour of the image's edge."""
    edge = torch.cat([x[..., 0, :], x[..., -1, :], x[..., 0], x[..., -1]], dim=2)  # (n, c, pixels)
    ground = edge.median(2).values[:, :, None, None]
    return ((x - ground).abs().amax(1, keepdim=True) > APART).float()


def ranks(x: Tensor, *quantiles: float) -> Tensor:
    """(n, k) Quantiles of the pixels of each image."""
    flat = x.flatten(1)
    at = [min(flat.shape[1] - 1, round(q * flat.shape[1])) for q in quantiles]
    return torch.from_numpy(np.partition(flat.numpy(), sorted(set(at)), 1)[:, at])  # faster than to sort all


def middle(x: Tensor) -> Tensor:
    """x.median(0).values, faster."""
    at = (len(x) - 1) // 2
    return torch.from_numpy(np.partition(x.numpy(), at, 0)[at])


def middle_of_nine(x: Tensor) -> Tensor:
    """x.median(1).values of nine, faster: of the largest of the lows, the middle of the middles, the least of the highs
    of three times three."""
    low, mid, high = zip(*(_in_order(*x[:, k : k + 3].unbind(1)) for k in (0, 3, 6)), strict=True)
    return _in_order(_in_order(*low)[2], _in_order(*mid)[1], _in_order(*high)[0])[1]


def _in_order(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    low, high = a.minimum(b), a.maximum(b)
    return low.minimum(c), low.maximum(high.minimum(c)), high.maximum(c)


# Light and colour


def read_brightness(x: Tensor) -> Tensor:
    light = grey(small(x))
    return torch.cat([light.mean((1, 2, 3))[:, None], ranks(light, 0.1, 0.5, 0.95)], 1)


def swap_brightness(x: Tensor, donor: Tensor) -> Tensor:
    """Black and white stay where they are for the lowest and highest tone: each tone moves as the donor's do."""
    mine, theirs = ranks(grey(x), 0.1, 0.5, 0.95), ranks(grey(donor), 0.1, 0.5, 0.95)
    shift = (theirs.mean(1) - mine.mean(1))[:, None, None, None]
    return (x + shift).clamp(0, 1)


def read_contrast(x: Tensor) -> Tensor:
    light = grey(small(x))
    low_high = ranks(light, 0.05, 0.95, 1.0)
    return torch.cat([light.std((1, 2, 3))[:, None], (low_high[:, 1:] - low_high[:, :1])], 1)


def swap_contrast(x: Tensor, donor: Tensor) -> Tensor:
    mean, mine, theirs = x.mean((1, 2, 3), keepdim=True), read_contrast(x)[:, :1], read_contrast(donor)[:, :1]
    ratio = (theirs / mine.clamp_min(1e-3)).clamp(0.2, 5)[:, :, None, None]
    return ((x - mean) * ratio + mean).clamp(0, 1)


def tones(x: Tensor) -> Tensor:
    """(n, c) How far the mean of each channel, among the pixels that are not black, is from that of all channels."""
    lit = (grey(x) > 0.05).float()
    mean = (x * lit).sum((2, 3)) / lit.sum((2, 3)).clamp_min(1)
    return mean - mean.mean(1, keepdim=True)


def read_colour(x: Tensor) -> Tensor:
    x = small(x)
    inside = object_mask(x)
    mean = (x * inside).sum((2, 3)) / inside.sum((2, 3)).clamp_min(1)
    return torch.cat([tones(x), mean - mean.mean(1, keepdim=True), edge_tones(x)], 1)


def edge_tones(x: Tensor) -> Tensor:
    """(n, c - 1) How much stronger the edges of each channel are than those of the first: a cast scales all edges,
    whatever colours are in the image (the grey-edge hypothesis; van de Weijer, Gevers and Gijsenij 2007)."""
    edges = (x.diff(dim=2).abs().mean((2, 3)) + x.diff(dim=3).abs().mean((2, 3))).clamp_min(1e-3).log()
    return edges[:, 1:] - edges[:, :1]


def tint(x: Tensor) -> Tensor:
    """(n, c, 1, 1) The mean colour of the pixels that are not black; its largest channel is 1."""
    lit = (x.amax(1, keepdim=True) > 0.05).float()
    mean = (x * lit).sum((2, 3), keepdim=True) / lit.sum((2, 3), keepdim=True).clamp_min(1)
    return mean / mean.amax(1, keepdim=True).clamp_min(1e-3)


def swap_colour(x: Tensor, donor: Tensor) -> Tensor:
    """Every pixel moved from the image's mean colour to the donor's, as far as the pixel is bright."""
    return (x + x.amax(1, keepdim=True) * (tint(donor) - tint(x))).clamp(0, 1)


def read_channel(k: int, x: Tensor) -> Tensor:
    """How much of one colour there is beside the others: on the mean, in most pixels, and in the edges."""
    x = small(x)
    share = ((x[:, k] + 0.02) / (x.sum(1) + 0.06)).flatten(1).median(1).values
    edges = (x.diff(dim=2).abs().mean((2, 3)) + x.diff(dim=3).abs().mean((2, 3))).clamp_min(1e-3).log()
    return torch.stack([tones(x)[:, k], share, edges[:, k] - edges.mean(1)], 1)


def swap_channel(k: int, x: Tensor, donor: Tensor) -> Tensor:
    """One channel made as strong as the donor's, beside the others; they stay as they are."""
    lit = (grey(each) > 0.05 for each in (x, donor))
    share = [(each * on).sum((2, 3)) / (each.sum(1, keepdim=True) * on).sum((2, 3)).clamp_min(1e-3)
             for each, on in zip((x, donor), lit, strict=True)]  # fmt: skip
    mine, theirs = (each[:, k].clamp(0.02, 0.9) for each in share)
    ratio = (theirs / (1 - theirs) * (1 - mine) / mine).clamp(0.1, 5)
    out = x.clone()
    out[:, k] *= ratio[:, None, None]
    return out.clamp(0, 1)


def read_balance(x: Tensor) -> Tensor:
    """How strong the fine detail of each channel is beside another one's, and how alike both are: light and camera make
    that, hardly ever what is seen."""
    fine = (x - smoothed(x)).flatten(2)  # (n, c, pixels)
    size = fine.norm(dim=2).clamp_min(1e-5)
    pairs = [(i, j) for i in range(x.shape[1]) for j in range(i)]
    alike = [(fine[:, i] * fine[:, j]).sum(1) / (size[:, i] * size[:, j]) for i, j in pairs]
    unlike = [(1 - each).clamp_min(1e-4) for each in alike]
    return torch.stack([*unlike, *(size[:, i] / size[:, j] for i, j in pairs)], 1).log()


def read_tones(x: Tensor) -> Tensor:
    """The darkest and the brightest tone, and how much more fine detail the dark third has than the bright one: what a
    change of all tones leaves behind, whatever is seen."""
    light = grey(x)
    fine, low, high = (light - smoothed(light)).abs().flatten(1), *ranks(light, 1 / 3, 2 / 3)[..., None].unbind(1)
    thirds = [(light.flatten(1) <= low).float(), (light.flatten(1) >= high).float()]
    dark, bright = ((fine * third).sum(1) / third.sum(1) + 0.002 for third in thirds)
    return torch.cat([(dark / bright).log()[:, None], ranks(light, 0.005, 0.995)], 1)


def swap_tones(x: Tensor, donor: Tensor) -> Tensor:
    return swap_brightness(swap_contrast(x, donor), donor)


def read_saturation(x: Tensor) -> Tensor:
    x = small(x)
    chroma = x.amax(1, keepdim=True) - x.amin(1, keepdim=True)
    return torch.cat([chroma.mean((1, 2, 3))[:, None], ranks(chroma, 0.5, 0.9)], 1)


def swap_saturation(x: Tensor, donor: Tensor) -> Tensor:
    mine, theirs = read_saturation(x)[:, :1], read_saturation(donor)[:, :1]
    ratio = (theirs / mine.clamp_min(1e-3)).clamp(0, 6)[:, :, None, None]
    return (grey(x) + (x - grey(x)) * ratio).clamp(0, 1)


# Fine detail


def laplacian(x: Tensor) -> Tensor:
    return 4 * x[..., 1:-1, 1:-1] - x[..., :-2, 1:-1] - x[..., 2:, 1:-1] - x[..., 1:-1, :-2] - x[..., 1:-1, 2:]


def diagonal(x: Tensor) -> Tensor:
    """The finest diagonal detail, which holds noise and hardly any edges."""
    return (x[..., 1:, 1:] - x[..., :-1, 1:] - x[..., 1:, :-1] + x[..., :-1, :-1]) / 2


def lonely(x: Tensor) -> Tensor:
    """How far each pixel is from the median of its neighbourhood: single odd pixels."""
    light = F.pad(grey(x), (1, 1, 1, 1), mode="replicate")
    around = F.unfold(light, 3).view(len(x), 9, -1)
    return (around[:, 4] - middle_of_nine(around)).abs()


def read_noise(x: Tensor) -> Tensor:
    fine = diagonal(grey(x)).abs().flatten(1)
    return torch.stack(
        [
            fine.median(1).values.clamp_min(1e-3).log(),
            fine.mean(1).clamp_min(1e-3).log(),
            lonely(x).mean(1).clamp_min(1e-3).log(),
        ],
        1,
    )


def swap_noise(x: Tensor, donor: Tensor) -> Tensor:
    """The fine detail of x, made as strong as the donor's: noise is added, or what is there is smoothed."""
    mine, theirs = (diagonal(grey(each)).abs().flatten(1).mean(1) for each in (x, donor))
    more = (theirs.square() - mine.square()).clamp_min(0).sqrt()[:, None, None, None]
    generator = torch.Generator().manual_seed(0)
    noisy = x + 1.25 * more * torch.randn(x.shape, generator=generator)
    smooth = smoothed(x)
    mixture = ((mine - theirs) / (mine - diagonal(grey(smooth)).abs().flatten(1).mean(1)).clamp_min(1e-4)).clamp(0, 1)
    mixture = mixture[:, None, None, None]
    return torch.where(more > 0, noisy, mixture * smooth + (1 - mixture) * x).clamp(0, 1)


def smoothed(x: Tensor) -> Tensor:
    kernel = torch.tensor([1.0, 2.0, 1.0])
    kernel = (kernel[:, None] * kernel[None] / 16).expand(x.shape[1], 1, 3, 3)
    return F.conv2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), kernel, groups=x.shape[1])


def read_sharpness(x: Tensor) -> Tensor:
    """How steep edges are, beside all tones and at most, and how much of them smoothing takes away."""
    edges, spread = laplacian(grey(x)).abs().flatten(1), x.std((1, 2, 3)).clamp_min(1e-2)
    soft = laplacian(smoothed(grey(x))).abs().mean((1, 2, 3)).clamp_min(1e-4)
    return (
        torch.stack([(edges.mean(1) / spread), ranks(edges, 0.98)[:, 0], edges.mean(1) / soft], 1).clamp_min(1e-3).log()
    )


def swap_sharpness(x: Tensor, donor: Tensor) -> Tensor:
    """Blurred, or sharpened, until the edges are about as steep as the donor's."""
    mine, theirs = (laplacian(grey(each)).abs().flatten(1).mean(1) for each in (x, donor))
    ratio = (theirs / mine.clamp_min(1e-4)).clamp(0.05, 3)[:, None, None, None]
    once, twice = smoothed(x), smoothed(smoothed(smoothed(x)))
    soft = torch.where(ratio < 0.4, twice, once)
    blurred = soft + (ratio.clamp(0.4, 1) - 0.4) / 0.6 * (x - soft)
    return torch.where(ratio < 1, blurred, x + (ratio - 1) * (x - once)).clamp(0, 1)


def blocks(x: Tensor) -> Tensor:
    """(n, 64) The mean size of each coefficient of the 8 x 8 cosine transform that JPEG uses."""
    side = torch.arange(8.0)
    basis = torch.cos((2 * side[None] + 1) * side[:, None] * torch.pi / 16)
    basis = basis * torch.tensor([8**-0.5] + [0.5] * 7)[:, None]
    light = grey(x)[..., : x.shape[-2] // 8 * 8, : x.shape[-1] // 8 * 8]
    n, _, h, w = light.shape
    tiles = light.view(n, h // 8, 8, w // 8, 8).permute(0, 1, 3, 2, 4)
    return (basis @ tiles @ basis.T).abs().flatten(3).flatten(1, 2)  # (n, tiles, 64)


HIGH = [8 * i + j for i in range(8) for j in range(8) if i + j >= 5]


def read_compression(x: Tensor) -> Tensor:
    """How many of the fine coefficients are next to nothing, and how much steeper steps are at block borders."""
    light = grey(x)
    zero = (blocks(x)[..., HIGH] < 0.004).float().mean((1, 2))
    step = (light[..., 1:] - light[..., :-1]).abs().mean((1, 2))
    at = torch.arange(step.shape[1]) % 8 == 7
    border = (step[:, at].mean(1) / step[:, ~at].mean(1).clamp_min(1e-3)).clamp(0.2, 5).log()
    return torch.stack([zero, border], 1)


def swap_compression(x: Tensor, donor: Tensor) -> Tensor:
    """Encoded again at a low quality where the donor is more compressed; what is lost cannot be brought back."""
    more = read_compression(donor)[:, 0] > read_compression(x)[:, 0] + 0.05
    out = x.clone()
    rows = more.nonzero()[:, 0]
    if len(rows):
        out[rows] = encoded(x[rows], 15)
    return out


def encoded(x: Tensor, quality: int) -> Tensor:
    """The images as they come back from JPEG files of this quality."""
    import io

    import numpy as np
    from PIL import Image

    out = torch.empty_like(x)
    for i, pixels in enumerate((x.clamp(0, 1) * 255).byte().permute(0, 2, 3, 1).numpy()):
        file = io.BytesIO()
        Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels[..., :3]).save(file, "JPEG", quality=quality)
        back = torch.from_numpy(np.array(Image.open(file))).float() / 255
        out[i] = back[None] if back.dim() == 2 else back.permute(2, 0, 1)
    return out


# Place, size and direction of the object


def geometry(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(n,) each: centre across and down, and mean distance from it; the image goes from -1 to 1."""
    cx, cy, xx, _, yy = moments(x)
    return cx, cy, (xx + yy).clamp_min(4e-4).sqrt()


def moments(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(n,) each: the centre of the object and its second moments across, mixed and down."""
    mask = object_mask(x)[:, 0] + 1e-6  # (n, h, w)
    mask = mask / mask.sum((1, 2), keepdim=True)
    down, across = (torch.linspace(-1, 1, side, device=x.device) for side in x.shape[-2:])
    cy, cx = (mask.sum(2) * down).sum(1), (mask.sum(1) * across).sum(1)
    dy, dx = down[None, :, None] - cy[:, None, None], across[None, None] - cx[:, None, None]
    return cx, cy, (mask * dx * dx).sum((1, 2)), (mask * dx * dy).sum((1, 2)), (mask * dy * dy).sum((1, 2))


def read_position(x: Tensor) -> Tensor:
    x = small(x)
    cx, cy, _ = geometry(x)
    mask = object_mask(x)[:, 0]
    across, down = mask.amax(1), mask.amax(2)  # (n, w), (n, h)
    ends = [e.argmax(1) / e.shape[1] for each in (across, down) for e in (each, each.flip(1))]
    middle = [ends[0] - ends[1], ends[2] - ends[3]]
    return torch.stack([cx, cy, *middle], 1)


def read_size(x: Tensor) -> Tensor:
    x = small(x)
    mask = object_mask(x)[:, 0]
    return torch.stack([geometry(x)[2], mask.amax(1).mean(1), mask.amax(2).mean(1)], 1)


def read_orientation(x: Tensor) -> Tensor:
    """Twice the angle of the long axis, as far as there is one."""
    _, _, xx, xy, yy = moments(small(x))
    size = (xx + yy).clamp_min(1e-4)
    return torch.stack([(xx - yy) / size, 2 * xy / size], 1)


def swap_position(x: Tensor, donor: Tensor) -> Tensor:
    (cx, cy, _), (to_x, to_y, _) = geometry(x), geometry(donor)
    return warp(x, torch.ones_like(cx), cx - to_x, cy - to_y)


def swap_size(x: Tensor, donor: Tensor) -> Tensor:
    (cx, cy, mine), (_, _, theirs) = geometry(x), geometry(donor)
    zoom = (mine / theirs).clamp(1 / 3, 3)
    return warp(x, zoom, cx * (1 - zoom), cy * (1 - zoom))


def swap_orientation(x: Tensor, donor: Tensor) -> Tensor:
    """Turned about the middle of the object until its long axis lies as the donor's does."""
    mine, theirs = (torch.atan2(r[:, 1], r[:, 0]) / 2 for r in (read_orientation(x), read_orientation(donor)))
    turn = (theirs - mine + torch.pi / 2).remainder(torch.pi) - torch.pi / 2
    cx, cy, _ = geometry(x)
    cos, sin = turn.cos(), turn.sin()
    grid = torch.stack(
        [
            torch.stack([cos, sin, cx - cos * cx - sin * cy], 1),
            torch.stack([-sin, cos, cy + sin * cx - cos * cy], 1),
        ],
        1,
    )
    return sampled(x, grid)


def warp(x: Tensor, zoom: Tensor, right: Tensor, down: Tensor) -> Tensor:
    """The image moved and scaled; what comes in at an edge repeats the edge."""
    zero = torch.zeros_like(zoom)
    return sampled(x, torch.stack([torch.stack([zoom, zero, right], 1), torch.stack([zero, zoom, down], 1)], 1))


def sampled(x: Tensor, grid: Tensor) -> Tensor:
    places = F.affine_grid(grid, list(x.shape), align_corners=True)
    return F.grid_sample(x, places, padding_mode="border", align_corners=True)


# Margin


def ring(x: Tensor) -> tuple[int, int]:
    return max(1, round(0.06 * x.shape[-2])), max(1, round(0.06 * x.shape[-1]))


def read_margin(x: Tensor) -> Tensor:
    """Mean and spread of each side's outermost pixels."""
    top, left = ring(x)
    sides = [x[..., :top, :], x[..., -top:, :], x[..., :left], x[..., -left:]]
    return torch.cat([f for s in sides for f in (s.mean((2, 3)), s.std((2, 3)))], 1)


def swap_margin(x: Tensor, donor: Tensor) -> Tensor:
    top, left = ring(x)
    out = donor.clone()
    out[..., top:-top, left:-left] = x[..., top:-top, left:-left]
    return out


ANY = (
    Property("margin", "the margin of the image", "margin", read_margin, swap_margin),
    Property("brightness", "the brightness of the image", "light", read_brightness, swap_brightness),
    Property("contrast", "the contrast of the image", "light", read_contrast, swap_contrast),
    Property("brightness or contrast", "how bright the image is or its contrast", "light", read_tones, swap_tones),
    Property("noise", "how noisy the image is", "detail", read_noise, swap_noise),
    Property("sharpness", "how sharp the image is", "detail", read_sharpness, swap_sharpness),
    Property("compression", "how much the image is compressed", "detail", read_compression, swap_compression),
    Property("object position", "where the object is", "place", read_position, swap_position),
    Property("object size", "how large the object is", "place", read_size, swap_size),
    Property("object orientation", "how the object is turned", "place", read_orientation, swap_orientation),
)
COLOURED = (
    Property("colour", "the colours of the image", "light", read_colour, swap_colour),
    Property("colour balance", "the colour balance of the image", "light", read_balance, swap_colour),
    *(
        Property(name, f"how {name} the image is", "light", partial(read_channel, k), partial(swap_channel, k))
        for k, name in enumerate(("red", "green", "blue"))
    ),
    Property("saturation", "how colourful the image is", "light", read_saturation, swap_saturation),
)


def properties(channels: int) -> tuple[Property, ...]:
    return ANY + COLOURED if channels == 3 else ANY
