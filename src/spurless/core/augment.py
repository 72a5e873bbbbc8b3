"""Augmentation of a whole batch on its device, each sample with its own random numbers.

`draw` makes the random numbers, `resample` applies all geometry in one resampling and `recolour` all colour in one
pass. Each step taken alone does what torchvision's transform of that name does; together they come in a fixed order:
resized crop, padded crop, flip, rotation, brightness, contrast, saturation, hue (torchvision shuffles the last four).
Nothing here waits for the device or reads a value, so all of it can be captured in a CUDA graph or compiled.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from spurless.core.errors import UserError, unknown

Mode = Literal["bilinear", "nearest"]


@dataclass(frozen=True)
class Augment:
    """What is drawn for each sample. Zero or False leaves a step out."""

    scale: tuple[float, float] = (1.0, 1.0)  # random resized crop: share of the area that is kept
    ratio: tuple[float, float] = (1.0, 1.0)  # random resized crop: aspect ratio; 1 to 1 for both: no such crop
    pad: int = 0  # padded crop: shift by up to this many whole pixels, zeros outside
    flip: bool = False  # mirror left to right, half of the time
    rotate: float = 0.0  # degrees to either side
    brightness: float = 0.0  # factor drawn from 1 - v to 1 + v
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0  # share of the colour circle to either side, at most 0.5
    rotate_mode: Mode = "bilinear"  # how a rotation reads between pixels; a resized crop is bilinear always

    @property
    def resizes(self) -> bool:
        return self.scale != (1.0, 1.0) or self.ratio != (1.0, 1.0)

    @property
    def off(self) -> bool:
        return replace(self, rotate_mode="bilinear") == Augment()


PRESETS: dict[str, Augment] = {
    "none": Augment(),
    # DCWP on BFFHQ.
    "flip": Augment(flip=True),
    # LfF, DisEnt and DCWP on Corrupted CIFAR-10; DisEnt on BFFHQ at 224 px; BiasAdv (supplement D.2) throughout.
    "crop_flip": Augment(pad=4, flip=True),
    # PGD's released code, Colored MNIST. Area factors above 1 mostly do not fit and are drawn again, as they are there.
    "pgd_digits": Augment(
        scale=(0.9, 1.1), ratio=(3 / 4, 4 / 3), rotate=10, rotate_mode="nearest", saturation=0.05, hue=0.05
    ),
    # PGD on Corrupted CIFAR-10, BAR and BFFHQ: the paper names the same three steps and no values (appendix B), and the
    # release holds only Colored MNIST. Chosen here: its values, with a wider crop, and bilinear for photographs.
    "pgd_photos": Augment(scale=(0.7, 1.0), ratio=(3 / 4, 4 / 3), rotate=10, saturation=0.05, hue=0.05),
    # BPA's released code, CelebA: torchvision's RandomResizedCrop with its own defaults.
    "resized_crop_flip": Augment(scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3), flip=True),
    # GC-DRO's released code, CelebA.
    "mild_resized_crop_flip": Augment(scale=(0.7, 1.0), ratio=(1.0, 4 / 3), flip=True),
}


def preset(name: str) -> Augment:
    """The augmentation of that name.

    >>> preset("crop_flip").pad
    4
    """
    if name not in PRESETS:
        raise unknown("augmentation preset", name, PRESETS)
    return PRESETS[name]


def floats(images: Tensor) -> Tensor:
    """Images of any kind as numbers from 0 to 1."""
    return images.float() / 255 if images.dtype == torch.uint8 else images.float()


def like(x: Tensor, original: Tensor) -> Tensor:
    """Numbers from 0 to 1 as images of the original's kind."""
    return (x * 255).round().clamp(0, 255).to(torch.uint8) if original.dtype == torch.uint8 else x.to(original.dtype)


class Draws(NamedTuple):
    """The random numbers of a batch. None: the step is off."""

    crop: Tensor | None = None  # (4, n) top, left, height and width of the resized crop, whole pixels
    shift: Tensor | None = None  # (2, n) the row and column where the padded crop starts, from -pad to pad
    flip: Tensor | None = None  # (n,) 1: as it is, -1: mirrored
    angle: Tensor | None = None  # (n,) degrees, anticlockwise
    brightness: Tensor | None = None  # (n,) factors
    contrast: Tensor | None = None
    saturation: Tensor | None = None
    hue: Tensor | None = None  # (n,) share of the colour circle


def augment(x: Tensor, how: Augment) -> Tensor:
    """Float images (n, c, h, w) in 0..1, each changed by random numbers of its own from the device's generator.

    Memory format and size stay as they are. Where everything is off, `x` itself comes back.

    >>> x = torch.rand(8, 3, 28, 28)
    >>> augment(x, preset("pgd_digits")).shape, augment(x, preset("none")) is x
    (torch.Size([8, 3, 28, 28]), True)
    """
    if how.off:
        return x
    if x.ndim != 4:
        raise UserError(f"Augmentation needs images, but an input here is of shape {tuple(x.shape[1:])}; turn it off.")
    n, _, h, w = x.shape
    return apply(x, draw(how, n, h, w, x.device), how.rotate_mode)


def apply(x: Tensor, draws: Draws, rotate_mode: Mode = "bilinear") -> Tensor:
    """The images (n, c, h, w), changed by the given random numbers."""
    out = recolour(resample(x, draws, rotate_mode), draws)
    return out if out.stride() == x.stride() else torch.empty_like(x).copy_(out)


def draw(how: Augment, n: int, h: int, w: int, device: torch.device | str = "cpu") -> Draws:
    """Random numbers for `n` images of `h` by `w` pixels, from the default generator of the device.

    >>> draw(Augment(flip=True), 3, 28, 28).flip.abs()
    tensor([1., 1., 1.])
    """

    def factor(v: float) -> Tensor | None:
        return _uniform(max(0.0, 1 - v), 1 + v, (n,), device) if v else None

    return Draws(
        crop=_draw_crop(how.scale, how.ratio, n, h, w, device) if how.resizes else None,
        shift=torch.randint(-how.pad, how.pad + 1, (2, n), device=device) if how.pad else None,
        flip=torch.randint(2, (n,), device=device) * 2.0 - 1 if how.flip else None,
        angle=_uniform(-how.rotate, how.rotate, (n,), device) if how.rotate else None,
        brightness=factor(how.brightness),
        contrast=factor(how.contrast),
        saturation=factor(how.saturation),
        hue=_uniform(-how.hue, how.hue, (n,), device) if how.hue else None,
    )


def pack(draws: Draws) -> Tensor:
    """All random numbers as one table (k, n), so that a batch's share is one gather; `unpack` is the way back.

    >>> draws = draw(Augment(pad=2, flip=True), 3, 28, 28)
    >>> bool((unpack(pack(draws), Augment(pad=2, flip=True)).shift == draws.shift).all())
    True
    """
    return torch.cat([d.reshape(-1, d.shape[-1]).float() for d in draws if d is not None])


def unpack(table: Tensor, how: Augment) -> Draws:
    """The random numbers of the steps that `how` has on, from the rows of a table (k, n)."""
    on = (how.resizes, how.pad, how.flip, how.rotate, how.brightness, how.contrast, how.saturation, how.hue)
    rows = iter(table)
    tensors: list[Tensor | None] = []
    for step, is_on in zip(Draws._fields, on, strict=True):
        count = {"crop": 4, "shift": 2}.get(step)
        if not is_on:
            tensors.append(None)
        else:
            tensors.append(next(rows) if count is None else torch.stack([next(rows) for _ in range(count)]))
    return Draws(*tensors)


def resample(x: Tensor, draws: Draws, rotate_mode: Mode = "bilinear") -> Tensor:
    """All geometry in one resampling: where each output pixel comes from, traced back step by step.

    A nearest rotation after a resized crop, as in PGD, is as exact as doing one after the other; a bilinear one reads
    between the four nearest pixels once, not twice. Steps that only move whole pixels copy them. Zeros lie outside, but
    what a padded crop pushes out of the frame, a rotation may bring back.
    """
    crop, shift, flip, angle = (None if d is None else d[..., None, None].to(x.dtype) for d in draws[:4])
    if all(d is None for d in draws[:4]):
        return x
    h, w = x.shape[2:]
    nearest = rotate_mode == "nearest"
    # Coordinates count pixels from the centre of the image. No matrix product makes them, as it does in affine_grid:
    # tf32 and bf16 would round it, by up to a pixel.
    col = torch.linspace(-(w - 1) / 2, (w - 1) / 2, w, device=x.device, dtype=x.dtype)  # (w,)
    row = torch.linspace(-(h - 1) / 2, (h - 1) / 2, h, device=x.device, dtype=x.dtype)[:, None]  # (h, 1)
    if angle is not None:
        turn = angle.deg2rad()
        cos, sin = turn.cos(), turn.sin()  # (n, 1, 1)
        col, row = cos * col - sin * row, sin * col + cos * row  # (n, h, w)
    if flip is not None:
        col = flip * col
    if shift is not None:
        row, col = row + shift[0], col + shift[1]
    inside = None
    if crop is not None:
        if angle is not None and nearest:
            row, col = _to_pixel(row, h), _to_pixel(col, w)
        if angle is not None or shift is not None:
            inside = _inside(row, h) * _inside(col, w)  # (n, h, w)
        top, left, height, width = crop
        row, col = _into_crop(row, h, top, height), _into_crop(col, w, left, width)
    # A plane of columns and one of rows, not pairs: quicker to make and to read on a CPU.
    planes = torch.broadcast_tensors(col * (2 / w), row * (2 / h))  # each (n, h, w), from -1 to 1
    grid = torch.stack(planes).permute(1, 2, 3, 0)  # (n, h, w, 2)
    between = crop is not None or (angle is not None and not nearest)
    out = F.grid_sample(x, grid, "bilinear" if between else "nearest", padding_mode="zeros", align_corners=False)
    return out if inside is None else out.mul_(inside[:, None])


def recolour(x: Tensor, draws: Draws) -> Tensor:
    """All colour in one pass. Saturation and hue leave images alone that have not three channels."""
    factors = (None if d is None else d[:, None, None, None].to(x.dtype) for d in draws[4:])  # each (n, 1, 1, 1)
    brightness, contrast, saturation, hue = factors
    if x.shape[1] != 3:
        saturation = hue = None
    if all(d is None for d in (brightness, contrast, saturation, hue)):
        return x
    x = x.contiguous()  # whole planes: with channels last a CPU would loop over three values at a time
    if brightness is not None:
        x = (x * brightness).clamp_(0, 1)
    if contrast is not None:
        mean = _grey(x).mean((1, 2, 3), keepdim=True)  # (n, 1, 1, 1)
        x = (x * contrast).add_(mean * (1 - contrast)).clamp_(0, 1)
    if saturation is not None:
        x = torch.lerp(_grey(x), x, saturation).clamp_(0, 1)
    return x if hue is None else turn_hue(x, hue)


def turn_hue(x: Tensor, turn: Tensor) -> Tensor:
    """RGB images (n, 3, h, w) turned on the colour circle by `turn` (n, 1, 1, 1), keeping HSV value and saturation.

    With the channels scaled so that the largest is 1 and the least 0, the hue in sixths of the circle, to either side
    of red, is 1 + g + b - r, on the side of green or of blue, whichever is larger. That is the usual formula, without
    its three cases; back again, a channel falls from 1 to 0 between one and two sixths away from its own hue.

    >>> red = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1)
    >>> turn_hue(red, torch.tensor(1 / 3)).flatten().tolist()
    [0.0, 1.0, 0.0]
    """
    red, green, blue = x.split(1, dim=1)  # (n, 1, h, w)
    low = red.minimum(green).minimum(blue)
    chroma = red.maximum(green).maximum(blue).sub_(low)
    away = (green + blue).sub_(red).sub_(low).div_(chroma.clamp_min(1e-12)).add_(1)
    hue = turn.add(away.copysign_(green - blue), alpha=1 / 6)  # (n, 1, h, w) in turns
    own = torch.linspace(0, 2 / 3, 3, device=x.device, dtype=x.dtype).view(3, 1, 1)  # red, green, blue
    apart = hue - own  # (n, 3, h, w)
    apart.sub_(apart.round()).abs_()  # the shorter way round, at most 1/2
    return apart.mul_(-6).add_(2).clamp_(0, 1).mul_(chroma).add_(low)


def _uniform(low: float, high: float, shape: tuple[int, ...], device: torch.device | str) -> Tensor:
    return torch.empty(shape, device=device).uniform_(low, high)


def _draw_crop(
    scale: tuple[float, float], ratio: tuple[float, float], n: int, h: int, w: int, device: torch.device | str
) -> Tensor:
    """(4, n): as torchvision's RandomResizedCrop draws it, its ten tries made at once and one that fits taken."""

    def pair(rows: float, columns: float) -> Tensor:
        return torch.linspace(rows, columns, 2, device=device).view(2, 1, 1)  # torch.tensor would wait for the device

    # Where no try fits: the largest central crop of an allowed ratio.
    spare_h, spare_w = min(h, round(w / ratio[0])), min(w, round(h * ratio[1]))
    spare_top, spare_left = (h - spare_h) // 2, (w - spare_w) // 2

    size = pair(h, w)
    side = _uniform(scale[0] * h * w, scale[1] * h * w, (10, n), device).sqrt()
    stretch = _uniform(math.log(ratio[0]) / 2, math.log(ratio[1]) / 2, (10, n), device)
    lengths = (side * (stretch * pair(-1, 1)).exp()).round().clamp_min(1)  # (2, 10, n) heights and widths
    fits, pick = (lengths <= size).all(0, keepdim=True).max(1, keepdim=True)  # (1, 1, n)
    length = torch.where(fits, lengths.gather(1, pick.expand(2, 1, n)), pair(spare_h, spare_w))  # (2, 1, n)
    start = (torch.rand_like(length) * (size - length + 1)).floor()
    start = torch.where(fits, start, pair(spare_top, spare_left))
    return torch.cat([start, length]).squeeze(1)


def _to_pixel(at: Tensor, size: int) -> Tensor:
    """The nearest pixel's coordinate."""
    middle = (size - 1) / 2
    return (at + middle).round_().sub_(middle)


def _inside(at: Tensor, size: int) -> Tensor:
    """The share that bilinear reading takes from inside when zeros lie outside: 1, falling to 0 one pixel beyond."""
    return ((size + 1) / 2 - at.abs()).clamp_(0, 1)


def _into_crop(at: Tensor, size: int, start: Tensor, length: Tensor) -> Tensor:
    """From the resized crop back to the image; like a resize, it never reads beyond the crop's outermost pixels."""
    edge = (length - 1) / 2
    at = torch.maximum(at * (length / size), -edge)
    return torch.minimum(at, edge).add_(start + (length - size) / 2)


def _grey(x: Tensor) -> Tensor:
    """(n, 1, h, w) brightness as the eye weighs the colours; the mean where there are not three channels."""
    if x.shape[1] != 3:
        return x.mean(1, keepdim=True)
    red, green, blue = x[:, :1], x[:, 1:2], x[:, 2:]
    return (0.2989 * red).add_(green, alpha=0.587).add_(blue, alpha=0.114)
