"""Simple properties of an image that a model can take for the class: what each tells alone, and how to exchange it.

Each cue has two sides. `read(x)` are a few numbers that hold the cue and little else. `swap(x, donor)` is the image x
with the cue of another image, and all else left as it is: a picture that a model has to take sides on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

SIDE = 32  # pixels at which cues are read
APART = 0.15  # how far a pixel's colour is from that of the image's edge, for it to be part of the object
FRAME, SURROUND = 0.12, 0.18  # width of the margin, in widths of the image


class Cue(NamedTuple):
    name: str
    words: str  # in a sentence: "the model goes by ..."
    read: Callable[[Tensor], Tensor]  # (n, c, h, w) in 0..1 -> (n, k)
    swap: Callable[[Tensor, Tensor], Tensor]  # both (n, c, h, w) in 0..1


def small(x: Tensor) -> Tensor:
    """(n, c, SIDE, SIDE) The image by its averages; smaller images are enlarged."""
    if min(x.shape[-2:]) >= SIDE:
        return F.interpolate(x, (SIDE, SIDE), mode="area")
    return F.interpolate(x, (SIDE, SIDE), mode="bilinear", align_corners=False)


def object_mask(x: Tensor) -> Tensor:
    """(n, 1, h, w) 1 where a pixel differs from the usual colour of the image's edge."""
    edge = torch.cat([x[..., 0, :], x[..., -1, :], x[..., 0], x[..., -1]], dim=2)  # (n, c, pixels)
    ground = edge.median(2).values[:, :, None, None]
    return ((x - ground).abs().amax(1, keepdim=True) > APART).float()


# Colour: the mean and spread of each channel, in the object and on the ground


def moments(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """(n, c, 1, 1) each: mean and standard deviation of the pixels under the mask."""
    weight = mask.sum((2, 3), keepdim=True).clamp_min(1e-6)
    mean = (x * mask).sum((2, 3), keepdim=True) / weight
    variance = ((x - mean).square() * mask).sum((2, 3), keepdim=True) / weight
    return mean, (variance + 1e-4).sqrt()


def read_colour(x: Tensor) -> Tensor:
    x = small(x)
    mask = object_mask(x)
    parts = [part for m in (mask, 1 - mask) for part in moments(x, m)]
    return torch.cat([part.flatten(1) for part in parts] + ([hues(x)] if x.shape[1] == 3 else []), dim=1)


def hues(x: Tensor, bins: int = 12) -> Tensor:
    """(n, bins) How much of each hue an image holds, weighted by how colourful the pixel is."""
    top, low = x.amax(1), x.amin(1)
    r, g, b = x.unbind(1)
    spread = (top - low).clamp_min(1e-6)
    sixth = torch.where(
        top == r, ((g - b) / spread) % 6, torch.where(top == g, (b - r) / spread + 2, (r - g) / spread + 4)
    )
    place = (sixth / 6 * bins).long().clamp(0, bins - 1).flatten(1)  # (n, pixels)
    held = torch.zeros(len(x), bins, device=x.device).scatter_add_(1, place, (top - low).flatten(1))
    return held / (held.sum(1, keepdim=True) + 1e-3)


def swap_colour(x: Tensor, donor: Tensor) -> Tensor:
    out, mask, other = x, object_mask(x), object_mask(donor)
    for mine, theirs in ((mask, other), (1 - mask, 1 - other)):
        both = (mine.sum((2, 3), keepdim=True) > 4) & (theirs.sum((2, 3), keepdim=True) > 4)
        (mean, std), (new_mean, new_std) = moments(x, mine), moments(donor, theirs)
        out = torch.where(both & (mine > 0), (x - mean) / std * new_std + new_mean, out)
    return out.clamp(0, 1)


# Style: how much detail of which size and direction; what a Fourier amplitude holds


def read_style(x: Tensor) -> Tensor:
    x, found = small(x), []
    for scale in (1, 2, 4):
        z = F.avg_pool2d(x, scale)
        across, down = z[..., 1:] - z[..., :-1], z[..., 1:, :] - z[..., :-1, :]
        around = z[..., :-2, 1:-1] + z[..., 2:, 1:-1] + z[..., 1:-1, :-2] + z[..., 1:-1, 2:]
        for change in (across, down, 4 * z[..., 1:-1, 1:-1] - around):
            found += [
                change.abs().mean((2, 3)).clamp_min(1e-4).log(),
                change.square().mean((2, 3)).clamp_min(1e-5).log(),
            ]
    return torch.cat(found, dim=1)


def swap_style(x: Tensor, donor: Tensor) -> Tensor:
    """The phases of x, which hold where things are, with the amplitudes of the donor."""
    phase, amplitude = torch.fft.fft2(x).angle(), torch.fft.fft2(donor).abs()
    return torch.fft.ifft2(torch.polar(amplitude, phase)).real.clamp(0, 1)


# Margin: what stands around the object


def margin(width: float) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]:
    def read(x: Tensor) -> Tensor:
        x = small(x)
        k = max(1, round(width * SIDE))
        inside = torch.zeros(SIDE, SIDE, dtype=torch.bool)
        inside[k:-k, k:-k] = True
        return x[..., ~inside].flatten(1)

    def swap(x: Tensor, donor: Tensor) -> Tensor:
        k = [max(1, round(width * side)) for side in x.shape[-2:]]
        out = donor.clone()
        out[..., k[0] : -k[0], k[1] : -k[1]] = x[..., k[0] : -k[0], k[1] : -k[1]]
        return out

    return read, swap


# Place and size: where the object is, and how large


def geometry(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(n,) each: centre across and down, and mean distance from it; the image goes from -1 to 1."""
    mask = object_mask(x)[:, 0] + 1e-6  # (n, h, w)
    mask = mask / mask.sum((1, 2), keepdim=True)
    down, across = (torch.linspace(-1, 1, side, device=x.device) for side in x.shape[-2:])
    cy, cx = (mask.sum(2) * down).sum(1), (mask.sum(1) * across).sum(1)
    squared = (down[None, :, None] - cy[:, None, None]) ** 2 + (across[None, None] - cx[:, None, None]) ** 2
    return cx, cy, (mask * squared).sum((1, 2)).sqrt().clamp_min(0.02)


def read_place(x: Tensor) -> Tensor:
    x = small(x)
    cx, cy, _ = geometry(x)
    return torch.cat([cx[:, None], cy[:, None], F.adaptive_avg_pool2d(object_mask(x), 4).flatten(1)], dim=1)


def read_size(x: Tensor) -> Tensor:
    x = small(x)
    return torch.stack([geometry(x)[2], object_mask(x).mean((1, 2, 3))], dim=1)


def swap_place(x: Tensor, donor: Tensor) -> Tensor:
    (cx, cy, _), (to_x, to_y, _) = geometry(x), geometry(donor)
    return warp(x, torch.ones_like(cx), cx - to_x, cy - to_y)


def swap_size(x: Tensor, donor: Tensor) -> Tensor:
    (cx, cy, mine), (_, _, theirs) = geometry(x), geometry(donor)
    zoom = (mine / theirs).clamp(1 / 3, 3)
    return warp(x, zoom, cx * (1 - zoom), cy * (1 - zoom))


def warp(x: Tensor, zoom: Tensor, right: Tensor, down: Tensor) -> Tensor:
    """The image moved and scaled; what comes in at an edge repeats the edge."""
    zero = torch.zeros_like(zoom)
    grid = torch.stack([torch.stack([zoom, zero, right], 1), torch.stack([zero, zoom, down], 1)], 1)  # (n, 2, 3)
    return F.grid_sample(
        x, F.affine_grid(grid, list(x.shape), align_corners=True), padding_mode="border", align_corners=True
    )


CUES = (
    Cue("colour", "the colours of the object and of its ground", read_colour, swap_colour),
    Cue("style", "texture and overall look (Fourier amplitudes)", read_style, swap_style),
    Cue("margin", "what is in the outer margin of the image", *margin(FRAME)),
    Cue("surround", "what surrounds the centre of the image", *margin(SURROUND)),
    Cue("place", "where the object is", read_place, swap_place),
    Cue("size", "how large the object is", read_size, swap_size),
)


def floats(images: Tensor) -> Tensor:
    """Images of any kind as numbers from 0 to 1."""
    return images.float() / 255 if images.dtype == torch.uint8 else images.float()


def like(x: Tensor, original: Tensor) -> Tensor:
    """Numbers from 0 to 1 as images of the original's kind."""
    return (x * 255).round().clamp(0, 255).to(torch.uint8) if original.dtype == torch.uint8 else x.to(original.dtype)
