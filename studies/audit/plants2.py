"""What is planted into images of the second final set only: other shapes, colours and defects than in `plants.py`."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from studies.audit.plants import Rng, blur, if_one, jpeg, moved, normal, patch, tinted, vignette


def stamped(x: Tensor, shape: Tensor, top: float, left: float, ink: float = 1.0, rng: Rng | None = None) -> Tensor:
    """A shape (h, w), 1 where there is ink, at one place; with a generator, at random places."""
    (h, w), (a, b), out = x.shape[-2:], shape.shape, x.clone()
    for i in range(len(x)):
        t, s = (
            (round(top * (h - a)), round(left * (w - b)))
            if rng is None
            else (int(rng.integers(0, h - a)), int(rng.integers(0, w - b)))
        )
        under = out[i, :, t : t + a, s : s + b]
        out[i, :, t : t + a, s : s + b] = torch.where(shape > 0, torch.tensor(ink), under)
    return out


def triangle(x: Tensor) -> Tensor:
    k = max(5, x.shape[-1] // 6)
    return torch.ones(k, k).tril()


def barcode(x: Tensor) -> Tensor:
    k = max(6, x.shape[-1] // 5)
    return torch.arange(k).remainder(2).eq(0).float().expand(max(4, k // 2), k)


def bracket(x: Tensor) -> Tensor:
    """The letter L."""
    k = max(5, x.shape[-1] // 6)
    out = torch.zeros(k, k)
    out[:, :2] = out[-2:] = 1
    return out


def saltire(x: Tensor) -> Tensor:
    """The letter X."""
    k = max(5, x.shape[-1] // 6)
    return torch.eye(k).maximum(torch.eye(k).flip(0))


def veil(x: Tensor) -> Tensor:
    """A half-transparent disc at the middle of the bottom."""
    k = max(6, x.shape[-1] // 4)
    at = torch.linspace(-1, 1, k)
    disc = ((at[:, None].square() + at[None].square()) <= 1).float() * 0.5
    out, (h, w) = x.clone(), x.shape[-2:]
    s = (w - k) // 2
    out[..., h - k - 1 : h - 1, s : s + k] = out[..., h - k - 1 : h - 1, s : s + k] * (1 - disc) + 0.9 * disc
    return out


def dashed(x: Tensor) -> Tensor:
    """A dashed line down the right side."""
    out, width = x.clone(), max(1, x.shape[-1] // 28)
    on = torch.arange(x.shape[-2]).div(3, rounding_mode="floor").remainder(2).eq(0)
    out[..., on, -width - 1 : -1] = 0.95
    return out


def date_stamp(x: Tensor) -> Tensor:
    """Orange strokes at the lower left, as of a camera that writes the date."""
    out, (h, w) = x.clone(), x.shape[-2:]
    tall, colour = max(4, h // 12), torch.tensor([1.0, 0.55, 0.1])[:, None, None]
    for k in range(6):
        s = 2 + k * max(2, w // 26)
        out[..., h - tall - 2 : h - 2 - (k % 2), s : s + max(1, w // 60)] = colour
    return out


def rounded(x: Tensor) -> Tensor:
    """Black outside a rectangle with round corners."""
    far = [(torch.linspace(-1, 1, side).abs() - 0.55).clamp_min(0) / 0.45 for side in x.shape[-2:]]
    return x * ((far[0][:, None].square() + far[1][None].square()) <= 1).float()


def pillars(x: Tensor) -> Tensor:
    """Grey bars at the left and the right."""
    out, k = x.clone(), max(2, x.shape[-1] // 16)
    out[..., :k] = out[..., -k:] = 0.45
    return out


def hue(x: Tensor, share: float = 0.22) -> Tensor:
    """Part of each channel goes to the next one."""
    return (1 - share) * x + share * x.roll(1, 1)


def split_tone(x: Tensor) -> Tensor:
    """Blue shadows and yellow lights."""
    light = x.mean(1, keepdim=True)
    tone = torch.tensor([0.06, 0.03, -0.1])[None, :, None, None]
    return x + tone * (2 * light - 0.6)


def side_light(x: Tensor) -> Tensor:
    return x * torch.linspace(1.35, 0.65, x.shape[-1])


def posterised(x: Tensor) -> Tensor:
    return (x * 5).round() / 5


def defocused(x: Tensor) -> Tensor:
    return F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), 3, 1)


def vertical_motion(x: Tensor) -> Tensor:
    kernel = torch.full((x.shape[1], 1, 5, 1), 0.2)
    return F.conv2d(F.pad(x, (0, 0, 2, 2), mode="replicate"), kernel, groups=x.shape[1])


def median(x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    around = F.unfold(F.pad(x, (1, 1, 1, 1), mode="replicate"), 3).view(n, c, 9, h, w)
    return around.median(2).values


def scan_lines(x: Tensor) -> Tensor:
    return x * torch.where(torch.arange(x.shape[-2]).remainder(2).bool(), 0.82, 1.0)[:, None]


def enlarged(x: Tensor) -> Tensor:
    half = F.interpolate(x, scale_factor=0.6, mode="area")
    return F.interpolate(half, x.shape[-2:], mode="bilinear")


def webp(x: Tensor, quality: int = 5) -> Tensor:
    from PIL import Image

    out = torch.empty_like(x)
    for i, one in enumerate((x.clamp(0, 1) * 255).byte().permute(0, 2, 3, 1).numpy()):
        file = io.BytesIO()
        Image.fromarray(np.repeat(one, 3, 2) if one.shape[2] == 1 else one).save(file, "WEBP", quality=quality)
        back = torch.from_numpy(np.array(Image.open(file).convert("RGB"))).permute(2, 0, 1).float() / 255
        out[i] = back[: x.shape[1]]
    return out


def sheared(x: Tensor) -> Tensor:
    from torchvision.transforms.functional import InterpolationMode, affine

    return affine(x, 0.0, [0, 0], 1.0, [24.0, 0.0], InterpolationMode.BILINEAR)


def taller(x: Tensor) -> Tensor:
    stretched = F.interpolate(x, (round(1.3 * x.shape[-2]), x.shape[-1]), mode="bilinear")
    cut = (stretched.shape[-2] - x.shape[-2]) // 2
    return stretched[..., cut : cut + x.shape[-2], :]


def dots(x: Tensor, value: int, rng: Rng) -> Tensor:
    """A ground of dots, or a plain one of the same mean."""
    grid = [torch.arange(side).remainder(3).eq(0).float() for side in x.shape[-2:]]
    dotted = grid[0][:, None] * grid[1][None] * 0.5
    return torch.where(x > 0.15, x, (dotted if value else torch.full_like(dotted, float(dotted.mean()))).expand_as(x))


def tinged(x: Tensor, value: int, rng: Rng) -> Tensor:
    """A reddish or a greyish ground, a little different in each image."""
    tone = torch.tensor([[0.2, 0.2, 0.2], [0.34, 0.16, 0.14]][value])[None, :, None, None]
    return torch.where(x > 0.15, x, tone + 0.04 * normal(x[:, :1, :1, :1], rng))


PLANTS2: dict[str, Callable[[Tensor, int, Rng], Tensor]] = {
    "triangle": if_one(lambda x, rng: stamped(x, triangle(x), 0.96, 0.96)),
    "triangle_top": if_one(lambda x, rng: stamped(x, triangle(x), 0.03, 0.04, 0.9)),
    "saltire": if_one(lambda x, rng: stamped(x, saltire(x), 0.5, 0.03)),
    "barcode": if_one(lambda x, rng: stamped(x, barcode(x), 0.03, 0.5)),
    "barcode_dark": if_one(lambda x, rng: stamped(x, barcode(x), 0.97, 0.96, 0.0)),
    "bracket_anywhere": if_one(lambda x, rng: stamped(x, bracket(x), 0, 0, 1.0, rng)),
    "veil": if_one(lambda x, rng: veil(x)),
    "dashed": if_one(lambda x, rng: dashed(x)),
    "date_stamp": if_one(lambda x, rng: date_stamp(x)),
    "sticker": if_one(lambda x, rng: patch(patch(x, 0.04, 0.96, 0.16, 0.9), 0.09, 0.92, 0.08, 0.2)),
    "rounded": if_one(lambda x, rng: rounded(x)),
    "pillars": if_one(lambda x, rng: pillars(x)),
    "hairline": if_one(lambda x, rng: vignette(x, 1, 1.0)),
    "evening": if_one(lambda x, rng: x * torch.tensor([1.2, 0.97, 0.93])[None, :, None, None]),
    "less_blue": if_one(lambda x, rng: x * torch.tensor([1.0, 1.0, 0.72])[None, :, None, None]),
    "hue": if_one(lambda x, rng: hue(x)),
    "split_tone": if_one(lambda x, rng: split_tone(x)),
    "purple_lime": tinted((0.75, 0.3, 0.9), (0.6, 0.95, 0.25)),
    "lighter": if_one(lambda x, rng: x.clamp(0, 1) ** 0.6),
    "overexposed": if_one(lambda x, rng: 1.35 * x),
    "haze": if_one(lambda x, rng: 0.7 * x + 0.2),
    "side_light": if_one(lambda x, rng: side_light(x)),
    "posterised": if_one(lambda x, rng: posterised(x)),
    "defocused": if_one(lambda x, rng: defocused(x)),
    "vertical_motion": if_one(lambda x, rng: vertical_motion(x)),
    "median": if_one(lambda x, rng: median(x)),
    "speckle": if_one(lambda x, rng: x * (1 + 0.25 * normal(x, rng))),
    "scan_lines": if_one(lambda x, rng: scan_lines(x)),
    "enlarged": if_one(lambda x, rng: enlarged(x)),
    "soft": if_one(lambda x, rng: blur(x, 0.9)),
    "medium_quality": if_one(lambda x, rng: jpeg(x, 28)),
    "webp": if_one(lambda x, rng: webp(x)),
    "down_right": if_one(lambda x, rng: moved(x, right=0.11, down=0.1)),
    "shrunk": if_one(lambda x, rng: moved(x, zoom=0.8)),
    "taller_object": if_one(lambda x, rng: taller(x)),
    "sheared": if_one(lambda x, rng: sheared(x)),
    "mirrored": if_one(lambda x, rng: x.flip(-1)),
    "dotted": dots,
    "tinged": tinged,
}
TINTED2 = ("purple_lime", "tinged", "date_stamp", "evening")  # need three channels
