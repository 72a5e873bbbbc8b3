"""What is planted into images: marks, light, detail, place, margins and grounds.

Images are numbers from 0 to 1 (n, c, h, w). A plant changes them according to a planted value, 0 or 1.
"""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

Rng = np.random.Generator


def floats(x: Tensor) -> Tensor:
    return x.float() / 255


def rgb(x: Tensor) -> Tensor:
    return floats(x).expand(-1, 3, -1, -1) if x.shape[1] == 1 else floats(x)


def normal(x: Tensor, rng: Rng) -> Tensor:
    return torch.from_numpy(rng.standard_normal(x.shape, dtype=np.float32))


def blur(x: Tensor, sigma: float) -> Tensor:
    from torchvision.transforms.functional import gaussian_blur

    return gaussian_blur(x, [7, 7], [sigma, sigma])


def patch(x: Tensor, top: float, left: float, size: float, value: float = 1.0, rng: Rng | None = None) -> Tensor:
    """A square of one value; with a generator, at random places."""
    h, w = x.shape[-2:]
    k, out = max(2, round(size * w)), x.clone()
    for i in range(len(x)):
        t, s = (round(top * (h - k)), round(left * (w - k))) if rng is None else rng.integers(0, h - k, 2)
        out[i, :, t : t + k, s : s + k] = value
    return out


def logo(x: Tensor, rng: Rng | None = None) -> Tensor:
    """A small cross in red and white in the lower right corner, or anywhere."""
    h, w = x.shape[-2:]
    k, out = max(5, w // 6), x.clone()
    mark = torch.ones(x.shape[1], k, k)
    mark[1:, k // 2], mark[1:, :, k // 2] = 0.1, 0.1
    for i in range(len(x)):
        t, s = (h - k - 1, w - k - 1) if rng is None else rng.integers(0, h - k, 2)
        out[i, :, t : t + k, s : s + k] = mark
    return out


def jpeg(x: Tensor, quality: int) -> Tensor:
    from PIL import Image

    out = torch.empty_like(x)
    for i, one in enumerate(x):
        pixels = (one.clamp(0, 1) * 255).byte().permute(1, 2, 0).numpy()
        file = io.BytesIO()
        Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(file, "JPEG", quality=quality)
        back = torch.from_numpy(np.array(Image.open(file))).float() / 255
        out[i] = back[None] if back.dim() == 2 else back.permute(2, 0, 1)
    return out


def moved(x: Tensor, angle: float = 0.0, zoom: float = 1.0, right: float = 0.0, down: float = 0.0) -> Tensor:
    from torchvision.transforms.functional import InterpolationMode, affine

    shift = [round(right * x.shape[-1]), round(down * x.shape[-2])]
    return affine(x, angle, shift, zoom, [0.0, 0.0], InterpolationMode.BILINEAR)


def coloured(x: Tensor, value: int, rng: Rng) -> Tensor:
    tint = torch.tensor([[1.0, 0.35, 0.3], [0.3, 0.45, 1.0]][value])
    return x * (tint + 0.1 * normal(x[:, :1, :1, :1], rng)[..., 0, 0])[..., None, None]


def ground(x: Tensor, value: int, rng: Rng) -> Tensor:
    tint = torch.tensor([[0.1, 0.4, 0.15], [0.15, 0.2, 0.5]][value])[None, :, None, None]
    return torch.where(x > 0.12, x, tint + 0.05 * normal(x[:, :1, :1, :1], rng))


def texture(x: Tensor, value: int, rng: Rng) -> Tensor:
    across = torch.arange(x.shape[-1]).remainder(4).lt(2).float() * 0.35
    lines = across[None, None, None, :] if value else across[None, None, :, None]
    return torch.where(x > 0.15, x, lines.expand_as(x))


def vignette(x: Tensor, width: int, shade: float) -> Tensor:
    out = x.clone()
    for side in (out[..., :width, :], out[..., -width:, :], out[..., :width], out[..., -width:]):
        side.fill_(shade)
    return out


def if_one(change: Callable[[Tensor, Rng], Tensor]) -> Callable[[Tensor, int, Rng], Tensor]:
    """The change is made where the planted value is 1, and nothing where it is 0."""
    return lambda x, value, rng: change(x, rng) if value and len(x) else x


PLANTS: dict[str, Callable[[Tensor, int, Rng], Tensor]] = {
    "corner": if_one(lambda x, rng: patch(x, 0.97, 0.97, 0.12)),
    "logo": if_one(lambda x, rng: logo(x)),
    "top": if_one(lambda x, rng: patch(x, 0.03, 0.5, 0.1)),
    "greener": if_one(lambda x, rng: x * torch.tensor([0.93, 1.22, 0.93])[None, :, None, None]),
    "faint": if_one(lambda x, rng: patch(x, 0.03, 0.97, 0.15, 0.3)),
    "lower_left": if_one(lambda x, rng: patch(x, 0.95, 0.05, 0.1, 0.8)),
    "bottom_line": if_one(lambda x, rng: torch.cat([x[..., :-2, :], x[..., -2:, :] * 0 + 0.9], 2)),
    "dot_anywhere": if_one(lambda x, rng: patch(x, 0, 0, 0.12, 1.0, rng)),
    "logo_anywhere": if_one(logo),
    "brighter": if_one(lambda x, rng: x * 0.85 + 0.2),
    "darker": if_one(lambda x, rng: x * 0.55),
    "flat": if_one(lambda x, rng: x * 0.5 + 0.25 * x.mean((1, 2, 3), keepdim=True) * 2),
    "cast": lambda x, value, rng: x * torch.tensor([[1.15, 1.0, 0.8], [0.8, 1.0, 1.15]][value])[None, :, None, None],
    "warm": if_one(lambda x, rng: x * torch.tensor([1.1, 1.0, 0.82])[None, :, None, None]),
    "coloured": coloured,
    "pale": if_one(lambda x, rng: 0.45 * x + 0.55 * x.mean(1, keepdim=True)),
    "blur": if_one(lambda x, rng: blur(x, 1.2)),
    "noise": if_one(lambda x, rng: x + 0.08 * normal(x, rng)),
    "pepper": if_one(
        lambda x, rng: torch.where(torch.from_numpy(rng.random(x.shape) < 0.03), torch.ones_like(x), x)
    ),
    "jpeg": if_one(lambda x, rng: jpeg(x, 15)),
    "right": if_one(lambda x, rng: moved(x, right=0.14)),
    "down": if_one(lambda x, rng: moved(x, down=0.12)),
    "smaller": if_one(lambda x, rng: moved(x, zoom=0.72)),
    "turned": if_one(lambda x, rng: moved(x, angle=30)),
    "border": if_one(lambda x, rng: vignette(x, 3, 0.0)),
    "frame": if_one(lambda x, rng: vignette(x, 1, 0.7)),
    "ground": ground,
    "texture": texture,
    "stamp": if_one(lambda x, rng: patch(patch(x, 0.96, 0.94, 0.08), 0.96, 0.8, 0.06, 0.0)),
}  # fmt: skip


# Of the final set only: used for nothing before it was named


def ring(x: Tensor, top: float, left: float, rng: Rng | None = None) -> Tensor:
    """A small bright ring."""
    h, w = x.shape[-2:]
    k, out = max(5, w // 6), x.clone()
    at = torch.linspace(-1, 1, k)
    far = (at[:, None].square() + at[None].square()).sqrt()
    on = (far > 0.55) & (far <= 1.05)
    for i in range(len(x)):
        t, s = (round(top * (h - k)), round(left * (w - k))) if rng is None else rng.integers(0, h - k, 2)
        out[i, :, t : t + k, s : s + k] = torch.where(on, torch.tensor(0.95), out[i, :, t : t + k, s : s + k])
    return out


def checker(x: Tensor, top: float, left: float) -> Tensor:
    h, w = x.shape[-2:]
    k, out = max(4, w // 7), x.clone()
    board = (torch.arange(k)[:, None] + torch.arange(k)[None]).remainder(2).float()
    t, s = round(top * (h - k)), round(left * (w - k))
    out[..., t : t + k, s : s + k] = board
    return out


def stripe(x: Tensor) -> Tensor:
    """A grey stripe down the left side."""
    out = x.clone()
    out[..., : max(2, x.shape[-1] // 14)] = 0.6
    return out


def bar(x: Tensor) -> Tensor:
    """A dark bar along the bottom, with a light line in it, as of a caption."""
    out, k = x.clone(), max(3, x.shape[-2] // 12)
    out[..., -k:, :] = 0.1
    out[..., -(k // 2 + 1), k:-k] = 0.9
    return out


def motion(x: Tensor) -> Tensor:
    """Blurred along the rows only."""
    kernel = torch.full((x.shape[1], 1, 1, 5), 0.2)
    return F.conv2d(F.pad(x, (2, 2, 0, 0), mode="replicate"), kernel, groups=x.shape[1])


def sharpened(x: Tensor) -> Tensor:
    return x + 1.5 * (x - blur(x, 1.0))


def pixelated(x: Tensor) -> Tensor:
    half = F.interpolate(x, scale_factor=0.5, mode="area")
    return F.interpolate(half, x.shape[-2:], mode="nearest")


def grain(x: Tensor, rng: Rng) -> Tensor:
    """Noise in grains of two pixels."""
    coarse = normal(F.interpolate(x[:, :1], scale_factor=0.5, mode="area"), rng)
    return x + 0.09 * F.interpolate(coarse, x.shape[-2:], mode="nearest")


def sepia(x: Tensor) -> Tensor:
    grey = x.mean(1, keepdim=True)
    return 0.5 * x + 0.5 * grey * torch.tensor([1.15, 1.0, 0.8])[None, :, None, None]


def vivid(x: Tensor) -> Tensor:
    grey = x.mean(1, keepdim=True)
    return grey + 1.8 * (x - grey)


def tinted(one: tuple[float, float, float], other: tuple[float, float, float]) -> Callable[[Tensor, int, Rng], Tensor]:
    """Multiplied by one of two colours, slightly different in each image."""
    colours = torch.tensor([one, other])
    return lambda x, value, rng: x * (colours[value] + 0.06 * normal(x[:, :1, :1, :1], rng)[..., 0, 0])[..., None, None]


def slope(x: Tensor, value: int, rng: Rng) -> Tensor:
    """A ground that grows brighter to the right, or downwards."""
    across = torch.linspace(0.05, 0.4, x.shape[-1])
    ramp = across[None, None, None, :] if value else across[None, None, :, None]
    return torch.where(x > 0.15, x, ramp.expand_as(x))


def corners(x: Tensor) -> Tensor:
    """Dark towards the corners, as of a lens."""
    at = [torch.linspace(-1, 1, side) for side in x.shape[-2:]]
    far = (at[0][:, None].square() + at[1][None].square()).sqrt()
    return x * (1.25 - 0.75 * far).clamp(0, 1)


def wider(x: Tensor) -> Tensor:
    h, w = x.shape[-2:]
    stretched = F.interpolate(x, (h, round(1.35 * w)), mode="bilinear")
    cut = (stretched.shape[-1] - w) // 2
    return stretched[..., cut : cut + w]


FINAL: dict[str, Callable[[Tensor, int, Rng], Tensor]] = {
    "ring": if_one(lambda x, rng: ring(x, 0.05, 0.05)),
    "ring_right": if_one(lambda x, rng: ring(x, 0.5, 0.97)),
    "ring_anywhere": if_one(lambda x, rng: ring(x, 0, 0, rng)),
    "checker": if_one(lambda x, rng: checker(x, 0.97, 0.5)),
    "checker_corner": if_one(lambda x, rng: checker(x, 0.03, 0.97)),
    "two_dots": if_one(lambda x, rng: patch(patch(x, 0.96, 0.96, 0.07), 0.96, 0.8, 0.07)),
    "stripe": if_one(lambda x, rng: stripe(x)),
    "caption": if_one(lambda x, rng: bar(x)),
    "watermark": if_one(lambda x, rng: patch(x, 0.05, 0.5, 0.16, 0.55)),
    "dark_tag": if_one(lambda x, rng: patch(x, 0.04, 0.04, 0.15, 0.0)),
    "white_frame": if_one(lambda x, rng: vignette(x, 2, 1.0)),
    "lens": if_one(lambda x, rng: corners(x)),
    "green_magenta": tinted((0.88, 1.1, 0.88), (1.1, 0.88, 1.1)),
    "cool": if_one(lambda x, rng: x * torch.tensor([0.82, 1.0, 1.15])[None, :, None, None]),
    "teal_orange": tinted((0.25, 0.85, 0.8), (1.0, 0.6, 0.2)),
    "sepia": if_one(lambda x, rng: sepia(x)),
    "vivid": if_one(lambda x, rng: vivid(x)),
    "gamma": if_one(lambda x, rng: x.clamp(0, 1) ** 1.7),
    "washed": if_one(lambda x, rng: 0.55 * x + 0.3),
    "dim": if_one(lambda x, rng: 0.6 * x),
    "motion": if_one(lambda x, rng: motion(x)),
    "sharpened": if_one(lambda x, rng: sharpened(x)),
    "pixelated": if_one(lambda x, rng: pixelated(x)),
    "grain": if_one(grain),
    "low_quality": if_one(lambda x, rng: jpeg(x, 22)),
    "up": if_one(lambda x, rng: moved(x, down=-0.13)),
    "left": if_one(lambda x, rng: moved(x, right=-0.13)),
    "larger": if_one(lambda x, rng: moved(x, zoom=1.3)),
    "wider": if_one(lambda x, rng: wider(x)),
    "turned_back": if_one(lambda x, rng: moved(x, angle=-38)),
    "slope": slope,
}
TINTED = ("coloured", "ground", "cast", "warm", "green_magenta", "cool", "teal_orange")  # need three channels
