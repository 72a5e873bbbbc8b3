"""What an image file says before anything is cropped: format, JPEG quality, size, aspect ratio, borders, EXIF."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from spurless.core.threads import pool

if TYPE_CHECKING:
    from PIL.Image import Image

MAKE, MODEL, SOFTWARE, DATE, ORIENTATION = 0x010F, 0x0110, 0x0131, 0x0132, 0x0112
SMALL = 64  # pixels at which borders are read
PLAIN = 0.02  # spread of the colours of a line (0 to 1), up to which it is part of a border
NAMES = {
    "file format": "the file format",
    "JPEG quality": "the JPEG quality of the files",
    "aspect ratio": "the aspect ratio of the files",
    "image size": "the width and height of the files",
    "camera": "the camera that EXIF names",
    "date": "the date in EXIF",
    "orientation tag": "the orientation in EXIF",
    "border": "the border around the picture in the files",
    "file size": "how many bytes the files have for each pixel",
}


def read_files(files: Sequence[str]) -> dict[str, Tensor]:
    """(n, k) numbers for each property that varies. Headers are read, and of pictures that are not square the rims,
    which the loader crops away."""
    facts = list(pool().map(_facts, files))
    contents = {}
    for name in NAMES:
        values = [fact.get(name) for fact in facts]
        if any(isinstance(v, str) for v in values):
            numbers = _one_hot([str(v) for v in values])
        elif name == "border":
            numbers = torch.tensor([(0.0,) * 4 if v is None else v for v in values])
        else:
            numbers = torch.tensor([[np.nan if v is None else float(v)] for v in values])
            if name == "JPEG quality" and numbers.isnan().float().mean() > 0.02:
                continue  # not all are JPEG files: the format says so
            numbers = torch.cat([numbers.nan_to_num(0.0), numbers.isnan().float()], 1)
        if bool((numbers.std(0) > 1e-9).any()):
            contents[name] = numbers.float()
    return contents


def _facts(file: str) -> dict[str, Any]:
    from PIL.Image import open as opened

    try:
        with opened(file) as picture:
            width, height = picture.size
            exif = picture.getexif()
            tables = getattr(picture, "quantization", None)
            quality = -float(np.log(np.mean(next(iter(tables.values()))))) if tables else None
            return {
                "file format": picture.format or "unknown",
                "JPEG quality": quality,
                "aspect ratio": round(width / height, 3),
                "image size": float(np.log(width * height)),
                "camera": f"{exif.get(MAKE, '')} {exif.get(MODEL, '')} {exif.get(SOFTWARE, '')}".strip() or "none",
                "date": str(exif.get(DATE, ""))[:7] or "none",
                "orientation tag": str(exif.get(ORIENTATION, "none")),
                "file size": float(np.log(max(1, os.path.getsize(file)) / (width * height))),
                "border": None if width == height else _border(picture),
            }
    except Exception:  # a file that cannot be read has no properties; the loader has said so
        return {}


def _border(picture: Image) -> tuple[float, ...]:
    """How much of the picture is border at the top, bottom, left and right: lines of one colour."""
    picture.draft("RGB", (SMALL, SMALL))
    pixels = np.asarray(picture.convert("RGB").resize((SMALL, SMALL)), np.float32) / 255  # (h, w, 3)
    shares = []
    for lines in (pixels, pixels[::-1], pixels.transpose(1, 0, 2), pixels.transpose(1, 0, 2)[::-1]):
        plain = (lines.std(1).max(1) < PLAIN) & (np.abs(lines.mean(1) - lines[0].mean(0)).max(1) < PLAIN)
        shares.append(float(np.argmin(plain)) / SMALL if not plain.all() else 1.0)
    return tuple(shares)


def _one_hot(values: Sequence[str], most: int = 12) -> Tensor:
    _, codes, count = np.unique(np.array(values, dtype=object).astype(str), return_inverse=True, return_counts=True)
    kept = np.argsort(-count, kind="stable")[:most]
    return torch.from_numpy((codes[:, None] == kept[None]).astype(np.float32))
