"""JPEG files by torchvision's decoder: the pixels that Pillow gives, bit by bit (both are libjpeg-turbo), in two thirds
of the time. Only files of the plainest kind; all others, and whatever it refuses, are Pillow's."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

START, EXIF_OR_XMP, SCAN, FILL = b"\xff\xd8\xff", 0xE1, 0xDA, 0xFF
UNCHANGED = 0  # the mode: as many channels as the file has
FRAMES = (0xC0, 0xC1, 0xC2)  # baseline, extended, progressive


def plain_size(data: bytes) -> tuple[int, int] | None:
    """The width and height of a JPEG in colour with 8 bits, in which nothing tells which way is up; None of others.

    >>> plain_size(b"no picture")
    """
    size, at = None, 2
    while data[:3] == START and data[at : at + 1] == b"\xff":
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4])
        if marker == FILL:
            at += 1
            continue
        if marker == SCAN:
            return size
        if marker == EXIF_OR_XMP:
            return None
        if marker in FRAMES:
            bits, channels = data[at + 4], data[at + 9]
            height, width = (int.from_bytes(data[k : k + 2]) for k in (at + 5, at + 7))
            size = (width, height) if bits == 8 and channels == 3 and width and height else None
        at += 2 + length
    return None


def pixels_of(data: bytes) -> Tensor | None:
    """(h, w, 3) uint8 of a plain JPEG; None where torchvision cannot decode it: damaged, or built without JPEG."""
    if (decode := _decoder()) is None:
        return None
    try:
        pixels: Tensor = decode(torch.frombuffer(bytearray(data), dtype=torch.uint8), UNCHANGED)
    except RuntimeError:
        return None
    return pixels.permute(1, 2, 0) if pixels.shape[0] == 3 else None


@functools.cache
def _decoder() -> Callable[..., Tensor] | None:
    """The operation itself: the function around it says that it will move to torchcodec."""
    try:
        import torchvision.io  # noqa: F401

        operation: Callable[..., Tensor] = torch.ops.image.decode_jpeg
    except (ImportError, OSError, RuntimeError, AttributeError):
        return None
    return operation
