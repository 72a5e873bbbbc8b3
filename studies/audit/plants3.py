"""What is planted into images of the third final set only: other shapes, casts and defects than in the sets before."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from studies.audit.plants import Rng, if_one, jpeg, moved, normal
from studies.audit.plants2 import stamped


def plus(x: Tensor) -> Tensor:
    k = max(5, x.shape[-1] // 7)
    out = torch.zeros(k, k)
    out[k // 2 - (k > 6) : k // 2 + 1] = 1
    return out.maximum(out.T)


def chevron(x: Tensor) -> Tensor:
    """The sign >, two pixels thick."""
    k = max(6, x.shape[-1] // 6)
    at = torch.arange(k)
    far = (at[None] - (k - 1 - (2 * at - (k - 1)).abs())[:, None]).abs()
    return (far <= 1).float()


def diamond(x: Tensor) -> Tensor:
    k = max(5, x.shape[-1] // 6) | 1
    at = (torch.arange(k) - k // 2).abs()
    return (at[:, None] + at[None] <= k // 2).float()


def squares(x: Tensor) -> Tensor:
    """A fixed pattern of black and white squares, on white."""
    k = max(6, x.shape[-1] // 5) // 2
    squares = torch.rand(k, k, generator=torch.Generator().manual_seed(3)).gt(0.5).float()
    return squares.repeat_interleave(2, 0).repeat_interleave(2, 1)


def two_bars(x: Tensor) -> Tensor:
    k = max(6, x.shape[-1] // 6)
    return torch.arange(k).div(k / 3, rounding_mode="floor").ne(1).float().expand(k, k)


def band(x: Tensor) -> Tensor:
    """A half-transparent white band across the upper part."""
    out, k = x.clone(), max(3, x.shape[-2] // 9)
    out[..., 1 : 1 + k, :] = 0.55 * out[..., 1 : 1 + k, :] + 0.45
    return out


def crop_marks(x: Tensor) -> Tensor:
    """A short bright line along each side of the four corners."""
    out, k = x.clone(), max(4, x.shape[-1] // 8)
    for rows in (slice(0, 1), slice(-1, None)):
        out[..., rows, :k] = out[..., rows, -k:] = 0.95
        out[..., :k, rows] = out[..., -k:, rows] = 0.95
    return out


def shaded_foot(x: Tensor) -> Tensor:
    """Dark towards the lower side."""
    return x * torch.linspace(2.2, 0.1, x.shape[-2]).clamp_max(1)[:, None]


def crossed(x: Tensor) -> Tensor:
    """Steeper red and flatter blue, as of film developed in the wrong bath."""
    red, green, blue = x.clamp(0, 1).unbind(1)
    return torch.stack([red**0.7, green, 0.25 + 0.55 * blue], 1)


def flash(x: Tensor) -> Tensor:
    """Bright in the middle."""
    at = [torch.linspace(-1, 1, side) for side in x.shape[-2:]]
    return x * (0.75 + 0.65 * torch.exp(-2 * (at[0][:, None].square() + at[1][None].square())))


def stretched_tones(x: Tensor) -> Tensor:
    """The darkest and the brightest pixels of each image made black and white."""
    flat = x.flatten(1)
    low, high = (flat.quantile(q, dim=1)[:, None, None, None] for q in (0.05, 0.95))
    return (x - low) / (high - low).clamp_min(0.1)


def ghost(x: Tensor) -> Tensor:
    """The same image once more, shifted by a tenth, under itself."""
    return 0.6 * x + 0.4 * x.roll(max(2, x.shape[-1] // 12), -1)


def interlaced(x: Tensor) -> Tensor:
    out = x.clone()
    out[..., 1::2, :] = x[..., 1::2, :].roll(1, -1)
    return out


def row_noise(x: Tensor, rng: Rng) -> Tensor:
    return x + 0.08 * normal(x[:, :1, :, :1], rng)


def dust(x: Tensor, rng: Rng) -> Tensor:
    """Single white pixels."""
    return torch.where(torch.from_numpy(rng.random((len(x), 1, *x.shape[-2:]))) < 0.02, torch.tensor(1.0), x)


def dithered(x: Tensor) -> Tensor:
    """Eight tones, by a pattern of thresholds (Bayer)."""
    bayer = torch.tensor([[0.0, 8, 2, 10], [12, 4, 14, 6], [3, 11, 1, 9], [15, 7, 13, 5]]) / 16
    h, w = x.shape[-2:]
    return ((x * 7 + bayer.repeat(-(-h // 4), -(-w // 4))[:h, :w]).floor() / 7).clamp(0, 1)


def narrower(x: Tensor) -> Tensor:
    w = x.shape[-1]
    thin = F.interpolate(x, (x.shape[-2], round(0.75 * w)), mode="bilinear")
    left = (w - thin.shape[-1]) // 2
    return F.pad(thin, (left, w - thin.shape[-1] - left, 0, 0), mode="replicate")


def chequered(x: Tensor, value: int, rng: Rng) -> Tensor:
    """A ground of large squares, or a plain one of the same mean."""
    at = [torch.arange(side).div(4, rounding_mode="floor") for side in x.shape[-2:]]
    board = (at[0][:, None] + at[1][None]).remainder(2) * 0.3
    return torch.where(x > 0.15, x, (board if value else torch.full_like(board, 0.15)).expand_as(x))


def papers(x: Tensor, value: int, rng: Rng) -> Tensor:
    """Greenish or bluish ground, a little different in each image."""
    tone = torch.tensor([[0.12, 0.2, 0.3], [0.16, 0.3, 0.16]][value])[None, :, None, None]
    return torch.where(x > 0.15, x, tone + 0.03 * normal(x[:, :1, :1, :1], rng))


PLANTS3: dict[str, Callable[[Tensor, int, Rng], Tensor]] = {
    "plus": if_one(lambda x, rng: stamped(x, plus(x), 0.04, 0.7)),
    "chevron": if_one(lambda x, rng: stamped(x, chevron(x), 0.95, 0.05)),
    "squares": if_one(lambda x, rng: stamped(stamped(x, squares(x), 0.03, 0.97), 1 - squares(x), 0.03, 0.97, 0.0)),
    "two_bars": if_one(lambda x, rng: stamped(x, two_bars(x), 0.5, 0.97, 0.0)),
    "diamond": if_one(lambda x, rng: stamped(x, diamond(x), 0.04, 0.04)),
    "diamond_dark": if_one(lambda x, rng: stamped(x, diamond(x), 0.96, 0.5, 0.05)),
    "plus_anywhere": if_one(lambda x, rng: stamped(x, plus(x), 0, 0, 1.0, rng)),
    "chevron_anywhere": if_one(lambda x, rng: stamped(x, chevron(x), 0, 0, 1.0, rng)),
    "band": if_one(lambda x, rng: band(x)),
    "crop_marks": if_one(lambda x, rng: crop_marks(x)),
    "shaded_foot": if_one(lambda x, rng: shaded_foot(x)),
    "swapped": if_one(lambda x, rng: x.flip(1)),
    "greyscale": if_one(lambda x, rng: x.mean(1, keepdim=True).expand_as(x)),
    "crossed": if_one(lambda x, rng: crossed(x)),
    "blue_hour": if_one(lambda x, rng: x * torch.tensor([0.82, 0.93, 1.2])[None, :, None, None]),
    "papers": papers,
    "negative": if_one(lambda x, rng: 1 - x),
    "darkened": if_one(lambda x, rng: 0.68 * x),
    "flash": if_one(lambda x, rng: flash(x)),
    "stretched_tones": if_one(lambda x, rng: stretched_tones(x)),
    "ghost": if_one(lambda x, rng: ghost(x)),
    "interlaced": if_one(lambda x, rng: interlaced(x)),
    "row_noise": if_one(row_noise),
    "dust": if_one(dust),
    "dithered": if_one(lambda x, rng: dithered(x)),
    "recompressed": if_one(lambda x, rng: jpeg(jpeg(x, 35), 30)),
    "chequered": chequered,
    "upside_down": if_one(lambda x, rng: x.flip(-2)),
    "quarter_turn": if_one(lambda x, rng: x.rot90(1, (-2, -1))),
    "narrower": if_one(lambda x, rng: narrower(x)),
    "up_right": if_one(lambda x, rng: moved(x, right=0.12, down=-0.1)),
}  # fmt: skip
TINTED3 = ("papers",)  # need three channels
