"""Inputs from Python: images as uint8 pixels (c, h, w), or float vectors (d,)."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spurless.core.errors import DataError
from spurless.data.ingest import images


def inputs(x: Any, split: str) -> Tensor:
    """uint8 images (n, c, h, w), or float vectors (n, d)."""
    x = as_tensor(x)
    if x is None:
        raise DataError(f"The inputs of {split} are not numbers of one shape; bring all images to one size first.")
    if x.dim() == 2:
        if not bool(torch.isfinite(x).all()):
            raise DataError(
                f"The vectors of {split} hold values that are not finite; fill them in or leave the samples out."
            )
        return torch.as_tensor(x, dtype=torch.float32)
    if x.dim() not in (3, 4):
        raise DataError(
            f"The inputs of {split} are of shape {tuple(x.shape)}; vectors are (n, d), images (n, c, h, w)."
        )
    return as_pixels(_channels_first(x, split), f"The images of {split}")


def as_tensor(x: Any) -> Tensor | None:
    """Numbers as a tensor of a type that torch can calculate with; None where they are no numbers of one shape."""
    if not isinstance(x, Tensor):
        try:
            array = np.asarray(x)
        except (TypeError, ValueError):
            array = np.empty(0, object)
        if array.dtype.kind not in "biuf":
            return None
        # torch takes none that are read-only, reversed, in a foreign order of bytes or of more than 64 bits
        dtype = array.dtype.newbyteorder("=") if array.dtype.itemsize <= 8 else np.float64
        x = torch.from_numpy(np.require(array, dtype, ["C", "W"]))
    if x.is_complex():
        return None
    out: Tensor = x.detach().cpu()
    return out.long() if out.dtype in (torch.uint16, torch.uint32, torch.uint64) else out


def _channels_first(x: Tensor, split: str) -> Tensor:
    """(n, c, h, w) from (n, h, w), (n, h, w, c) or itself."""
    if x.dim() == 3:
        return x[:, None]
    if x.shape[1] in (1, 3, 4):
        return x
    if x.shape[-1] in (1, 3, 4):
        return x.permute(0, 3, 1, 2).contiguous()
    raise DataError(f"Which axis of {split} holds the channels? Its shape is {tuple(x.shape)}; give (n, c, h, w).")


def as_pixels(x: Tensor, what: str) -> Tensor:
    """Images as uint8, from uint8 in 0..255 or floats in 0..1; another range is refused, because it would be a guess.

    >>> as_pixels(torch.tensor([0.0, 0.5, 1.0]), "The images").tolist()
    [0, 128, 255]
    """
    out = _scaled(x, what)
    if x.numel() and int(out.amax()) == 1:
        raise DataError(
            f"{what} are nearly black: the largest value is {float(x.amax()):.4g}. If they are 0 and 1 as whole "
            "numbers, multiply by 255; if they were divided by 255 twice, divide once."
        )
    return out


def _scaled(x: Tensor, what: str) -> Tensor:
    if x.dtype == torch.bool:
        raise DataError(f"{what} are true or false; give uint8 in 0..255 (times 255) or floats in 0..1.")
    if x.dtype == torch.uint8 or not x.numel():
        return x.to(torch.uint8)
    low, high = float(x.amin()), float(x.amax())
    spans = f"{what} go from {low:.4g} to {high:.4g}"
    if not x.is_floating_point():
        if low < 0 or high > 255:
            raise DataError(f"{spans}; whole numbers must lie in 0..255. Scale 16 bits down by 257.")
        return x.to(torch.uint8)
    if not (low >= 0 and high <= 1):  # what is not finite is neither
        raise DataError(
            f"{spans}; floats must lie in 0..1. Divide 0..255 by 255; undo a standardisation, and pass its mean and "
            "std instead."
        )
    return (x * 255).round().to(torch.uint8)


def one_input(x: Any, frame: images.Frame | None, what: str) -> Tensor:
    """One image (c, h, w) as uint8, or one vector."""
    if hasattr(x, "getexif") or (isinstance(x, Mapping) and (x.get("bytes") or x.get("path"))):
        got = images.or_why(lambda: _pixels(x, frame))
        if isinstance(got, str):
            file = f" ({x['path']})" if isinstance(x, Mapping) and x.get("path") else ""
            raise DataError(f"{what}{file} cannot be read: {got}. Mend it, or leave it out.")
        return torch.from_numpy(got)
    numbers = as_tensor(x)
    if numbers is None:
        raise DataError(f"{what} holds {repr(x)[:80]}; it takes a PIL image, or numbers as a tensor or an array.")
    if numbers.dim() < 2:
        return numbers.reshape(-1).float()
    x = _channels_first(numbers[None], what)[0]
    if frame is not None:
        from PIL import Image

        pixels = _scaled(x, what).permute(1, 2, 0).numpy()
        return torch.from_numpy(frame.cut(Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels)))
    return _scaled(x, what)  # one image may well be black; whether all are is looked at in the end


def _pixels(picture: Any, frame: images.Frame | None) -> np.ndarray:
    """(c, h, w) of a PIL image, or of a cell of a Hugging Face dataset, which holds bytes or a path if not decoded."""
    from PIL import Image

    if isinstance(picture, Mapping):
        picture = Image.open(io.BytesIO(picture["bytes"]) if picture.get("bytes") else picture["path"])
    if frame is not None:
        return frame.cut(picture)
    pixels = np.array(images.to_rgb(picture)).transpose(2, 0, 1)
    return (pixels[:1] if picture.mode == "L" else pixels).copy()
