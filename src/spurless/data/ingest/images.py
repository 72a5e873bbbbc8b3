"""Image files as uint8 pixels (3, size, size): what is decoded, and how.

What comes out is what a person sees on a white page: turned as EXIF says, transparent parts white, palette, grey and
CMYK as RGB, 16 bits scaled to 8. Of an animation it is the first frame. Floating-point and 32-bit files are refused,
because nothing says which value is white.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from spurless.core.digests import digest, file_digests, stat_of
from spurless.core.errors import DataError
from spurless.core.files import open_regular, read_bytes
from spurless.core.settings import Range
from spurless.core.shards import split_path
from spurless.core.terminal import track
from spurless.core.threads import pool, spread
from spurless.data.ingest import jpeg
from spurless.data.ingest.pillow_memory import rgb_pixels

if TYPE_CHECKING:
    from PIL.Image import Image

T = TypeVar("T")
Pixels = NDArray[np.uint8]
Resize = Literal["crop", "squash"]
# The settings that collections of images share.
Size = Annotated[int, "side of the square that every image becomes, in pixels", Range(8, 2048)]
HowResized = Annotated[Resize, "crop: shorter side to size, then the centre; squash: the whole image, stretched"]
Zoom = Annotated[float, "how much larger than size an image is made before its centre is cut out", Range(1, 4)]
UseCache = Annotated[bool, "decode once into a cache on disk; false: again whenever an image is needed"]
MaxPixels = Annotated[int, "most pixels of an image file, and of what it is resized to, that are decoded", Range(1)]
SkipBroken = Annotated[bool, "leave out image files that cannot be read, instead of stopping"]

SUFFIXES = {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".avif"}
SUFFIXES |= {".ppm", ".pgm", ".pbm"}
ORIENTATION = 0x0112  # EXIF's tag
MAX_PIXELS = 64_000_000  # of an image file: 0.7 GB while it is decoded
VERSION = 2  # of what decoding means: a change of it leaves old caches unused
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


@dataclass(frozen=True)
class Frame:
    """Which part of a picture is kept, and how large it becomes."""

    size: int = 224
    resize: Resize = "crop"
    zoom: float = 1.0
    # More pixels than this are neither decoded nor made by resizing: a small file can ask for any amount of memory.
    # Not in the repr, which tells one cache from another: what is decoded is the same under any limit.
    max_pixels: int = field(default=MAX_PIXELS, repr=False)

    @property
    def shape(self) -> tuple[int, int, int]:
        return 3, self.size, self.size

    @property
    def nbytes(self) -> int:
        return 3 * self.size * self.size

    def scaled(self, width: int, height: int) -> tuple[int, int]:
        """The width and height to which a picture is resized before the centre is cut out, as torchvision rounds them.

        >>> Frame(64).scaled(300, 100), Frame(64, "squash").scaled(300, 100), Frame(64, zoom=1.5).scaled(300, 100)
        ((192, 64), (64, 64), (288, 96))
        """
        shorter, side = min(width, height), max(self.size, round(self.size * self.zoom))
        if self.resize == "squash":
            return side, side
        return side * width // shorter, side * height // shorter

    @property
    def enough(self) -> int:
        """A side that leaves twice the pixels that are needed."""
        return int(2 * self.size * self.zoom) + 1

    def draft(self, picture: Image) -> None:
        """Let a JPEG be decoded at a half, a quarter or an eighth of its size: much less work, and as long as twice the
        pixels that are needed are left, hardly a difference."""
        picture.draft(None, (self.enough, self.enough))

    def check(self, size: tuple[int, int]) -> None:
        """Refuse a picture that takes too much memory, from its header."""
        for (width, height), what in ((size, "it has"), (self.scaled(*size), "resized it would have")):
            if width * height > self.max_pixels:
                raise ValueError(
                    f"{what} {width:,} x {height:,} pixels, and at most {self.max_pixels:,} are decoded "
                    "(data.max_pixels of folder:)"
                )

    def cut(self, picture: Image) -> Pixels:
        """(3, size, size) uint8 pixels of an open picture."""
        self.check(picture.size)
        return self.cut_pixels(rgb_pixels(to_rgb(picture)))

    def cut_pixels(self, pixels: Tensor) -> Pixels:
        """(3, size, size) of uint8 pixels (h, w, 3 or 4)."""
        height, width, _ = pixels.shape
        w, h = self.scaled(width, height)
        # Pillow's own resize gives the same to within a level, in twice the time.
        large = F.interpolate(pixels.permute(2, 0, 1)[None], (h, w), mode="bilinear", antialias=True)[0]
        top, left = round((h - self.size) / 2), round((w - self.size) / 2)
        return large[:3, top : top + self.size, left : left + self.size].contiguous().numpy()


DEFAULT_FRAME = Frame()


def to_rgb(picture: Image) -> Image:
    """The picture as it looks on a white page, upright, in RGB.

    >>> from PIL import Image
    >>> to_rgb(Image.new("RGBA", (1, 1), (0, 0, 0, 0))).getpixel((0, 0))
    (255, 255, 255)
    """
    from PIL import Image, ImageOps

    picture.load()
    wide = picture.mode.startswith("I;16") or (picture.mode == "I" and picture.format in ("PNG", "PPM"))
    if picture.mode in ("I", "F") and not wide:
        raise ValueError(f"nothing in its pixels ({picture.mode}) says which value is white; save it with 8 or 16 bits")
    # Damaged EXIF says nothing about which way is up; the pixels are sound.
    with suppress(Exception):
        if picture.getexif().get(ORIENTATION, 1) != 1:
            picture = ImageOps.exif_transpose(picture)
    if wide:
        values = np.asarray(picture).astype(np.uint32)
        picture = Image.fromarray(((values + 128) // 257).clip(0, 255).astype(np.uint8))
    if picture.has_transparency_data:
        page = Image.new("RGBA", picture.size, "white")
        page.alpha_composite(picture.convert("RGBA"))
        picture = page
    return picture if picture.mode == "RGB" else picture.convert("RGB")


def decode(data: bytes, frame: Frame) -> Pixels:
    """(3, size, size) uint8 pixels of an image file's bytes."""
    from PIL import Image

    size = jpeg.plain_size(data)
    if size is not None and min(size) < 2 * frame.enough:  # else Pillow's draft makes it smaller
        frame.check(size)
        if (pixels := jpeg.pixels_of(data)) is not None:
            return frame.cut_pixels(pixels)
    with Image.open(io.BytesIO(data)) as picture:
        frame.draft(picture)
        return frame.cut(picture)


class LazyRows:
    """Image files as rows that are decoded when asked for, by all cores: nothing is kept."""

    dtype = torch.uint8

    def __init__(self, folder: str | Path, names: Sequence[str], frame: Frame):
        self.folder, self.names, self.frame = str(folder), names, frame
        self.shape: tuple[int, ...] = (len(names), *frame.shape)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def files(self) -> list[str]:
        return [os.path.join(self.folder, name) for name in self.names]

    def keep(self, rows: Sequence[int]) -> LazyRows:
        """Some of the rows, still not decoded."""
        return LazyRows(self.folder, [self.names[row] for row in rows], self.frame)

    def content_digest(self) -> bytes:
        """A hash of the content of all files, the same as that of the rows in the cache."""
        return content(file_digests(self.files), self.frame)

    def __getitem__(self, idx: Tensor) -> Tensor:
        """The rows `idx`, which may be all that a tensor can be indexed with."""
        wanted = torch.arange(len(self))[idx]
        files = self.keep(wanted.flatten().tolist()).files
        out = np.empty((len(files), *self.frame.shape), np.uint8)
        for row, got in enumerate(pool().map(lambda file: attempt(file, self.frame), files)):
            if isinstance(got, str):
                raise DataError(f"{files[row]} cannot be read: {got}. Mend or remove it.")
            out[row] = got[0]
        return torch.from_numpy(out).view(*wanted.shape, *self.frame.shape)


def inspect(
    files: Sequence[str], frame: Frame = DEFAULT_FRAME, whole: bool = False
) -> tuple[NDArray[np.bytes_], dict[int, str]]:
    """What can be known without decoding: (n,) hashes of files that share their size with another, and broken headers;
    if the `whole` files are read, all broken ones.

    >>> inspect(["no-such-file.png"])[1]
    {0: 'No such file or directory'}
    """
    stats = map(stat_of, files)
    sizes = np.array([of.st_size if of is not None and S_ISREG(of.st_mode) else -1 for of in stats])
    _, place, count = np.unique(sizes, return_inverse=True, return_counts=True)
    digests, broken = np.zeros(len(files), "S16"), {}
    wanted = list(zip(files, (count[place] > 1).tolist(), strict=True))
    peeks = spread(lambda of: _peek(*of, frame, whole), wanted, together=8)
    for row, got in enumerate(track(peeks, "looking at images", len(files))):
        if isinstance(got, str):
            broken[row] = got
        else:
            digests[row] = got
    return digests, broken


def content(digests: NDArray[np.bytes_], frame: Frame) -> bytes:
    """What tells rows of pixels from others: the content of their files, and what is made of it."""
    return digest(f"{VERSION} {frame}".encode() + digests.tobytes())


def attempt(file: str, frame: Frame) -> tuple[Pixels, bytes] | str:
    """The pixels and the hash of a file, or why there are none."""

    def read() -> tuple[Pixels, bytes]:
        data = read_bytes(file)
        return decode(data, frame), digest(data)

    return or_why(read)


def _peek(file: str, hashed: bool, frame: Frame, whole: bool) -> bytes | str:
    """The hash of a file, if it is wanted, or why it is no image as far as its header tells, or all of it."""
    from PIL import Image

    def read() -> bytes:
        opened = io.BytesIO(read_bytes(file)) if split_path(file) else open_regular(file)
        with opened, Image.open(opened) as picture:
            frame.draft(picture)
            frame.check(picture.size)
            if whole:
                picture.load()
        return digest(read_bytes(file)) if hashed else b""

    return or_why(read)


def or_why(read: Callable[[], T]) -> T | str:
    """What was read from an image file, or why it cannot be."""
    from PIL import UnidentifiedImageError

    try:
        return read()
    except UnidentifiedImageError:
        return "not an image of a known kind"
    except OSError as error:
        return error.strerror or str(error)
    except MemoryError:
        raise
    except Exception as error:  # a damaged file can make a decoder fail in any way
        return str(error) or type(error).__name__
