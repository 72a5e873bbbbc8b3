"""What attribution maps say: how much of one is inside a mask, how widely it is spread, and a picture of it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from spurless.core.errors import UserError
from spurless.metrics import checks

# Of Okabe and Ito's palette, told apart with any colour vision: from weak to strong, for and against the target.
FOR = ((213, 94, 0), (240, 228, 66))
AGAINST = ((0, 114, 178), (86, 180, 233))


def share(maps: Tensor, mask: Tensor) -> Tensor:
    """(n,): the share Σ_mask |m| / Σ |m| of each map that is inside the mask (n, h, w) or (h, w).

    NaN for a map that is 0 everywhere: it says nothing.

    >>> share(torch.tensor([[[1.0, -2.0], [0.0, 1.0]]]), torch.tensor([[True, True], [False, False]])).tolist()
    [0.75]
    """
    maps, mask = places(maps), checks.tensor(mask, "mask")
    if mask.dtype != torch.bool or mask.shape not in (maps.shape, maps.shape[1:]):
        raise UserError(
            f"A mask holds True and False for each of {tuple(maps.shape[1:])} places, of each map or of all; "
            f"this one is {str(mask.dtype).removeprefix('torch.')} of shape {tuple(mask.shape)}."
        )
    weight = maps.abs().double()
    inside = (weight * mask.to(maps.device)).flatten(1).sum(1)
    return (inside / weight.flatten(1).sum(1)).float()


def entropy(maps: Tensor, relative: bool = False) -> Tensor:
    """(n,): the entropy −Σ p log p of each map, p = |m| / Σ |m|, in nats: high where a network looks everywhere.

    relative=True divides it by that of an even map, log(h w). NaN for a map that is 0 everywhere.

    >>> entropy(torch.tensor([[[1.0, 1.0], [1.0, -1.0]], [[0.0, 5.0], [0.0, 0.0]]]), relative=True).tolist()
    [1.0, 0.0]
    """
    weight = places(maps).abs().double().flatten(1)
    p = weight / weight.sum(1, keepdim=True)  # (n, places)
    nats: Tensor = torch.special.entr(p).sum(1)
    return (nats / math.log(p.shape[1]) if relative else nats).float()


def places(maps: Tensor) -> Tensor:
    """Maps (n, h, w), or (n, d) of vectors, as a tensor."""
    maps = checks.tensor(maps, "maps")
    if maps.dim() < 2 or 0 in maps.shape[1:]:
        raise UserError(f"Maps are samples of at least one place; these are of shape {tuple(maps.shape)}.")
    return maps


def overlay(image: Tensor, heat: Tensor, strength: float = 0.85) -> Tensor:
    """uint8 (3, h, w): a map (h, w) on its image, uint8 (c, h, w); whole batches, too.

    The image turns grey, so that all colour is heat: orange to yellow speaks for the target, blue against it, and the
    largest absolute value of the map is the strongest. With a map of zeros (or NaN) the image is only grey.

    >>> overlay(torch.zeros(1, 1, 2, dtype=torch.uint8), torch.tensor([[0.0, 1.0]]), strength=1.0).tolist()
    [[[0, 240]], [[0, 228]], [[0, 66]]]
    """
    image, heat = checks.tensor(image, "image"), checks.tensor(heat, "heat")
    checks.share(strength, "strength")
    fits = image.dim() == heat.dim() + 1 >= 3 and (*image.shape[:-3], *image.shape[-2:]) == heat.shape
    if image.dtype != torch.uint8 or not fits or 0 in image.shape[-3:]:
        raise UserError(
            f"overlay takes uint8 images (c, h, w) and maps (h, w) of the same size, not "
            f"{str(image.dtype).removeprefix('torch.')} {tuple(image.shape)} and {tuple(heat.shape)}."
        )
    luma = torch.tensor([0.299, 0.587, 0.114]) if image.shape[-3] == 3 else torch.ones(image.shape[-3])
    grey = (image.cpu().float() * (luma / luma.sum()).view(-1, 1, 1)).sum(-3)  # (..., h, w)
    heat = heat.detach().cpu().float().nan_to_num(0.0, 0.0, 0.0)
    scaled = heat / heat.abs().amax((-2, -1), keepdim=True).clamp_min(torch.finfo(heat.dtype).tiny)
    level = scaled.abs().unsqueeze(-3)  # (..., 1, h, w)
    ends = torch.tensor([FOR, AGAINST], dtype=torch.float32)[(scaled < 0).long()]  # (..., h, w, 2, 3)
    weak, strong = (end.movedim(-1, -3) for end in ends.unbind(-2))  # (..., 3, h, w) each
    colour = torch.lerp(weak, strong, level.expand_as(weak))
    return torch.lerp(grey.unsqueeze(-3).expand_as(colour), colour, strength * level).round().to(torch.uint8)
