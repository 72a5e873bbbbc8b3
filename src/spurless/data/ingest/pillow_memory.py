"""The pixels of an open picture where Pillow keeps them, without a copy."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from PIL.Image import Image


class _Array(ctypes.Structure):
    """ArrowArray, as Arrow's C data interface lays it out."""


_Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_Array))),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def rgb_pixels(picture: Image) -> Tensor:
    """(h, w, 3 or 4) The uint8 pixels of an RGB picture: red, green, blue, and, where it is Pillow's own memory, a byte
    of padding. What is returned must not be written to.

    >>> from PIL import Image
    >>> rgb_pixels(Image.new("RGB", (2, 1), (7, 8, 9)))[..., :3].tolist()
    [[[7, 8, 9], [7, 8, 9]]]
    """
    try:
        capsules = picture.__arrow_c_array__()
    except (AttributeError, ValueError, MemoryError):  # Pillow before 11.2, or a picture in several blocks of memory
        return torch.from_numpy(np.array(picture))
    return _of_arrow(capsules, picture.width, picture.height)


def _of_arrow(capsules: tuple[Any, Any], width: int, height: int) -> Tensor:
    array = ctypes.cast(_pointer(capsules[1], b"arrow_array"), ctypes.POINTER(_Array)).contents
    pixels = array.children[0].contents
    if array.length != width * height or pixels.length != 4 * width * height or array.offset or pixels.offset:
        raise ValueError("Pillow gives its pixels in another form than RGB with a byte of padding")
    view = (ctypes.c_uint8 * pixels.length).from_address(pixels.buffers[1])
    view.owner = capsules  # the memory lives as long as the view
    return torch.frombuffer(view, dtype=torch.uint8).view(height, width, 4)
