"""Drawn objects with any number of bias attributes of any strength: the control data for detectors."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spurless.core.data import Bundle, Images, Split
from spurless.core.errors import UserError
from spurless.core.recipe import Recipe
from spurless.core.settings import Range
from spurless.data.ingest import draw as _draw

Bias = Literal["texture", "colour", "position", "size", "watermark"]

SHAPES: dict[str, _draw.Shape] = {
    "disc": _draw.disc,
    "cross": _draw.cross,
    "triangle": _draw.triangle,
    "ring": _draw.ring,
    "star": _draw.star,
    "bar": _draw.bar,
    "square": _draw.square,
    "moon": _draw.moon,
    "heart": _draw.heart,
    "bow": _draw.bow,
    "dots": _draw.dots,
    "tee": _draw.tee,
    "horseshoe": _draw.horseshoe,
    "arrow": _draw.arrow,
    "ell": _draw.ell,
    "half": _draw.half,
}
HUES = {"red": 0, "green": 120, "blue": 240, "yellow": 60, "magenta": 300, "cyan": 180}
HUES |= {"orange": 30, "violet": 270, "spring": 150, "rose": 330, "lime": 90, "azure": 210}  # degrees
PLACES = {"top left": (-1, -1), "bottom right": (1, 1), "top right": (1, -1), "bottom left": (-1, 1), "centre": (0, 0)}
PLACES |= {"top": (0, -1), "bottom": (0, 1), "left": (-1, 0), "right": (1, 0)}  # steps from the centre, y downwards
RADII = {"small": 0.16, "large": 0.3, "medium": 0.22}  # of the circle around the object, in widths of the image
CORNERS = {"top left": (0, 0), "bottom right": (1, 1), "top right": (1, 0), "bottom left": (0, 1)}
GLYPHS = {"dot": (0.065, 0.065), "dash": (0.11, 0.04), "pipe": (0.04, 0.11)}  # width and height
TEXTURES = ("rows", "columns", "checks", "rings", "grain", "blobs", "rising", "falling", "ramp", "plain")

VALUES: dict[str, tuple[str, ...]] = {
    "texture": TEXTURES,
    "colour": tuple(HUES),
    "position": tuple(PLACES),
    "size": tuple(RADII),
    "watermark": tuple(f"{corner} {glyph}" for glyph in GLYPHS for corner in CORNERS),
}
COUNTS = {"train": "n", "val": "n_val", "test": "n_test"}  # the setting that holds each split's samples
REGION = {"texture": "background", "colour": "object", "watermark": "watermark"}  # size and position have none

# The outermost centre is 0.5 - STEP - DRIFT = 0.34 from the border, the largest radius 0.3 (1 + WOBBLE) = 0.312: no
# object is cut. The nearest point of a mark, (0.125, 0.055), is 0.357 from that centre: no object meets a mark.
STEP, DRIFT, WOBBLE, MARGIN = 0.13, 0.03, 0.04, 0.015


def load(
    root: Path | None = None,
    biases: Annotated[tuple[Bias, ...], "what goes with the label: texture, colour, position, size, watermark"] = (
        "colour",
    ),
    strength: Annotated[
        float | tuple[float, ...], "how often a bias copies the label: one value, or one for each bias", Range(0, 1)
    ] = 0.95,
    classes: Annotated[int, "how many shapes", Range(2, len(SHAPES))] = 10,
    size: Annotated[int, "width and height in pixels", Range(16)] = 32,
    n: Annotated[int, "training samples", Range(1)] = 10_000,
    n_val: Annotated[int, "validation samples, with the training bias", Range(0)] = 1_000,
    n_test: Annotated[int, "test samples, without bias", Range(0)] = 2_000,
    rotation: Annotated[float, "largest turn of an object to either side, in degrees", Range(0, 180)] = 30.0,
    noise: Annotated[float, "largest brightness noise of a pixel to either side", Range(0, 0.5)] = 0.04,
    seed: Annotated[int, "which random dataset"] = 0,
) -> Bundle:
    """Drawn objects whose shape is the target, with biases of adjustable strength.

    Input    (3, size, size) uint8: one coloured object on a grey texture, a small grey mark in one corner.
    Label    the shape, one of the first `classes` of SHAPES; every class equally often.
    Bias     the attributes named in `biases`. Each has V = min(classes, number of values) values (texture 10,
             colour 12, position 9, size 3, watermark 12), and the own value of class c is c mod V.
    Strength with probability s an attribute is the class's own value, otherwise it is uniform over its V values:
             P(own value) = 1/V + s (1 - 1/V), which is a share of conflicting samples rho = (1 - s)(1 - 1/V).
             s = 1: always; s = 0: independent of the label. Several biases are independent given the label.
             A network that averages over the whole image can hardly see the position; the others it sees at once.
    Splits   train 10,000, val 1,000 with the training bias, test 2,000 in which every attribute has each of its
             values equally often (to within one sample) in each class.
    Clean    all else (attributes not named in `biases`, over all their values; place, turn and size within an
             attribute's value; shade, texture phase, noise) is drawn by calls that do not know the label. At
             strength 0 the training attributes are i.i.d. uniform, so tests of independence have their nominal level.
    Citation our own; there is no paper. The shape never depends on an attribute, and the object is never cut or
             covered. `masks` gives the pixels of object, background and watermark.
    Licence  generated here: that of this package.

    >>> load(n=20, n_val=0, n_test=0, classes=4, biases=("colour", "size"), strength=(0.9, 0.5)).train.a.shape
    torch.Size([20, 2])
    """
    settings = _draw.checked(load, locals())
    biases = settings["biases"]
    _strengths(settings)  # before any drawing, so that a mistake is told at once
    values = tuple(VALUES[b][:classes] for b in biases)
    return Bundle(
        name="shapes",
        train=_split(settings, "train", n),
        val=_split(settings, "val", n_val) if n_val else None,
        test=_split(settings, "test", n_test) if n_test else None,
        classes=tuple(SHAPES)[:classes],
        attributes=biases,
        values=values,
        aligned=tuple(_own(classes, len(v)) for v in values),
        inputs=Images((0.36, 0.36, 0.36), (0.15, 0.15, 0.15)),
        net="conv3",
        recipe=Recipe(optimizer="adam", lr=1e-3, batch_size=128, epochs=20),
        settings=settings,
        regions=_regions,
    )


@_draw.one_thread()
def masks(data: Bundle, split: str, idx: Tensor) -> dict[str, Tensor]:
    """Which pixels (m, size, size) of samples `idx` show the object, the background and the watermark: each pixel is
    one.

    `object` is the core region; REGION says where an attribute shows. They are drawn anew from the bundle's settings,
    so the bundle has to be as `load` made it.

    >>> data = load(n=4, n_val=0, n_test=0)
    >>> found = masks(data, "train", torch.tensor([2, 3]))
    >>> bool((sum(m.int() for m in found.values()) == 1).all()), tuple(found["object"].shape)
    (True, (2, 32, 32))
    """
    size = data.settings["size"]
    scene = _scene(data.settings, split, data.settings[COUNTS[split]])
    if not torch.equal(scene.y, data.splits[split].y):
        raise UserError(
            f"The {split} samples are not those that shapes.load made; take the masks of the whole dataset."
        )
    thing = torch.zeros(len(idx), size, size, dtype=torch.bool)
    for shape, rows in _groups(scene.y[idx], list(SHAPES.values())):
        for chunk in _draw.chunks(rows, size**2):
            thing[chunk] = _object(shape, scene, idx[chunk], size) >= 0.5
    mark = (_marks(size)[scene.a["watermark"][idx]] >= 0.5) & ~thing
    return {"object": thing, "background": ~thing & ~mark, "watermark": mark}


def _regions(data: Bundle, split: str, idx: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    drawn = masks(data, split, idx)
    own = {bias: REGION[bias] for bias in data.attributes if REGION.get(bias, "object") != "object"}
    return drawn["object"], {bias: drawn[region] for bias, region in own.items()}


@dataclass(frozen=True)
class _Scene:
    """All that is drawn for a split, bar the noise of single pixels: one row each."""

    y: Tensor  # (n,) the shape
    a: dict[str, Tensor]  # (n,) the value of each of the five attributes
    x0: Tensor  # (n,) the object's centre, y downwards; in units of the image's width, as is the radius
    y0: Tensor
    radius: Tensor
    turn: Tensor  # radians
    rgb: Tensor  # (n, 3) the object's colour, 0..1
    texture: Tensor  # (n, 5) five uniform numbers: what they mean is up to the texture


def _scene(settings: Mapping[str, Any], split: str, n: int) -> _Scene:
    """Every latent variable. The label enters in one place only: `_attribute`, for the attributes named as biases."""
    rng = _draw.stream(settings["seed"], "shapes", split)
    classes = settings["classes"]
    strengths = _strengths(settings)
    y = _draw.balanced(rng, n, classes)
    a = {}
    for name, values in VALUES.items():
        if name in strengths:
            a[name] = _attribute(rng, y, min(classes, len(values)), strengths[name], balance=split == "test")
        else:
            a[name] = rng.integers(len(values), size=n)

    def wobble(width: float) -> NDArray[np.float64]:
        return rng.uniform(-width, width, n)

    offset = np.array(list(PLACES.values()))[a["position"]] * STEP  # (n, 2)
    hue = np.array(list(HUES.values()))[a["colour"]] + wobble(6)
    drawn = {
        "x0": 0.5 + offset[:, 0] + wobble(DRIFT),
        "y0": 0.5 + offset[:, 1] + wobble(DRIFT),
        "radius": np.array(list(RADII.values()))[a["size"]] * (1 + wobble(WOBBLE)),
        "turn": np.radians(wobble(settings["rotation"])),
        "rgb": _rgb(hue, saturation=0.875 + wobble(0.125), value=0.9 + wobble(0.1)),
        "texture": rng.random((n, 5)),
    }
    return _Scene(
        torch.from_numpy(y),
        {name: torch.from_numpy(v) for name, v in a.items()},
        **{name: torch.from_numpy(v).float() for name, v in drawn.items()},
    )


def _attribute(
    rng: np.random.Generator, y: NDArray[np.int64], values: int, strength: float, balance: bool
) -> NDArray[np.int64]:
    """The value of one attribute in each sample: the class's own with probability `strength`, else any of them."""
    if balance:
        first = rng.integers(values, size=y.max() + 1)  # which values get the odd samples
        result: NDArray[np.int64] = (_draw.rank_in_class(rng, y) + first[y]) % values
        return result
    copies = rng.random(len(y)) < strength
    return np.where(copies, y % values, rng.integers(values, size=len(y)))


def _strengths(settings: Mapping[str, Any]) -> dict[str, float]:
    """The strength of each bias by its name."""
    biases, strength = settings["biases"], settings["strength"]
    each = strength if isinstance(strength, tuple) else (strength,)
    if len(set(biases)) < len(biases):
        raise UserError(f"data.biases = {list(biases)} names a bias twice; name each once.")
    if len(each) == 1:
        each *= len(biases)
    if len(each) != len(biases):
        raise UserError(
            f"data.strength has {len(each)} values for {len(biases)} biases; give one for all, or one for each."
        )
    return dict(zip(biases, each, strict=True))


def _own(classes: int, values: int) -> Tensor:
    """(classes, values): the value that goes with each class."""
    return torch.nn.functional.one_hot(torch.arange(classes) % values, values).bool()


def _rgb(hue: NDArray[np.float64], saturation: NDArray[np.float64], value: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n, 3): from degrees, 0..1, 0..1.

    >>> _rgb(np.array([0.0, 120.0]), np.ones(2), np.ones(2)).round(3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    sector = (hue[:, None] / 60 + np.array([5, 3, 1])) % 6
    dark = np.clip(np.minimum(sector, 4 - sector), 0, 1)
    result: NDArray[np.float64] = value[:, None] * (1 - saturation[:, None] * dark)
    return result


def _groups(labels: Tensor, things: list[Any]) -> Iterator[tuple[Any, Tensor]]:
    """Each thing with the samples that have its number as their label."""
    for k, thing in enumerate(things):
        rows = (labels == k).nonzero()[:, 0]
        if len(rows):
            yield thing, rows


def _object(shape: _draw.Shape, scene: _Scene, rows: Tensor, size: int) -> Tensor:
    s = scene
    return _draw.coverage(shape, s.x0[rows], s.y0[rows], s.radius[rows], s.turn[rows], size)


def _marks(size: int) -> Tensor:
    """(watermarks, size, size): the share of each pixel that the mark covers."""
    edge = torch.arange(size) / size
    marks = []
    for width, height in GLYPHS.values():
        for right, low in CORNERS.values():
            x = 1 - MARGIN - width if right else MARGIN
            y = 1 - MARGIN - height if low else MARGIN
            across = ((edge + 1 / size).clamp(max=x + width) - edge.clamp(min=x)).clamp(min=0) * size
            down = ((edge + 1 / size).clamp(max=y + height) - edge.clamp(min=y)).clamp(min=0) * size
            marks.append(down[:, None] * across[None, :])
    return torch.stack(marks)


def _pattern(name: str, u: Tensor, size: int, rng: np.random.Generator) -> Tensor:
    """(m, size, size) or what broadcasts to it, from -1 to 1. `u` (m, 5): uniform numbers."""
    u = u[:, :, None, None]  # (m, 5, 1, 1)
    x = ((torch.arange(size) + 0.5) / size)[None, None, :]
    y = ((torch.arange(size) + 0.5) / size)[None, :, None]
    pace = math.tau * (4 + u[:, 0])  # waves across the image, in radians
    phase, other = math.tau * u[:, 1], math.tau * u[:, 2]
    match name:
        case "rows":
            return (pace * y + phase).sin()
        case "columns":
            return (pace * x + phase).sin()
        case "rising":
            return (pace * math.sqrt(0.5) * (x + y) + phase).sin()
        case "falling":
            return (pace * math.sqrt(0.5) * (x - y) + phase).sin()
        case "checks":
            return ((pace * x + phase).sin() * (pace * y + other).sin() * 4).clamp(-1, 1)
        case "rings":
            return (pace * torch.hypot(x - 0.3 - 0.4 * u[:, 1], y - 0.3 - 0.4 * u[:, 2]) + other).sin()
        case "ramp":
            return (x - 0.5) * 1.4 * phase.cos() + (y - 0.5) * 1.4 * phase.sin()
        case "grain":
            return torch.from_numpy(rng.random((len(u), size, size), dtype=np.float32)) * 2 - 1
        case "blobs":
            few = torch.from_numpy(rng.random((len(u), 1, 5, 5), dtype=np.float32)) * 3 - 1.5
            smooth = torch.nn.functional.interpolate(few, (size, size), mode="bilinear", align_corners=True)
            return smooth[:, 0].clamp(-1, 1)
        case _:
            return torch.zeros(len(u), 1, 1)


@_draw.one_thread()
def _split(settings: Mapping[str, Any], name: str, n: int) -> Split:
    """Draw the background of each texture in turn, then each shape in turn: every sample meets only its own code."""
    size, noise = settings["size"], settings["noise"]
    scene = _scene(settings, name, n)
    grey = torch.empty(n, size, size, dtype=torch.uint8)
    rng = _draw.stream(settings["seed"], "shapes", name, "texture")
    for texture, rows in _groups(scene.a["texture"], list(TEXTURES)):
        for chunk in _draw.chunks(rows, size**2):
            u = scene.texture[chunk]
            level, depth = 0.3 + 0.1 * u[:, 3, None, None], 0.14 + 0.06 * u[:, 4, None, None]
            drawn = level + depth * _pattern(texture, u, size, rng)
            grey[chunk] = (drawn * 255).to(torch.uint8).expand(-1, size, size)

    images = torch.empty(n, 3, size, size, dtype=torch.uint8)
    marks = _marks(size)
    rng = _draw.stream(settings["seed"], "shapes", name, "noise")
    for shape, rows in _groups(scene.y, list(SHAPES.values())):
        for chunk in _draw.chunks(rows, size**2):
            back = grey[chunk].float() / 255  # (m, size, size)
            back += (0.85 - back) * marks[scene.a["watermark"][chunk]]
            if noise:
                back += torch.from_numpy(rng.random(back.shape, dtype=np.float32)) * (2 * noise) - noise
            cover = _object(shape, scene, chunk, size)
            for c in range(3):
                blend = torch.lerp(back, scene.rgb[chunk, c, None, None], cover)
                images[chunk, c] = (blend.clamp(0, 1) * 255 + 0.5).to(torch.uint8)
    a = [scene.a[bias] for bias in settings["biases"]]
    return Split(images, scene.y, torch.stack(a, dim=1) if a else None)
