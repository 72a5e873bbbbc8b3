"""A frozen encoder with less to compute, and the same answers."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval


@torch.no_grad()
def folded(encoder: nn.Module) -> nn.Module:
    """The encoder itself, in evaluation mode: each batch normalisation is folded into the convolution before it,
    padding is left to the convolution, and ReLU6 writes in place.

    Layers are taken to follow one another as their block defines them, as those of EfficientNet-Lite do."""
    encoder.eval()
    for block in list(encoder.modules()):
        for (name, conv), (after, norm) in pairwise(list(block.named_children())):
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                setattr(block, name, fuse_conv_bn_eval(conv, norm))
                setattr(block, after, nn.Identity())
    for layer in encoder.modules():
        if isinstance(layer, nn.ReLU6):
            layer.inplace = True
        pad = getattr(layer, "static_padding", None)
        if isinstance(layer, nn.Conv2d) and isinstance(pad, nn.ZeroPad2d):
            _pad_inside(layer, *pad.padding)
    return encoder


def _pad_inside(conv: nn.Conv2d, left: int, right: int, top: int, bottom: int) -> None:
    """Leave the padding to the convolution, which is faster than a copy of its input.

    One more pixel at the right and below, as a stride of two asks for it, is the same on all sides for a kernel that
    begins with a row and a column of zeros: the sums are the same.
    """
    more = right - left
    if bottom - top != more or more not in (0, 1) or conv.dilation != (1, 1):
        return
    conv.weight = nn.Parameter(F.pad(conv.weight, (more, 0, more, 0)))
    conv.kernel_size = (conv.weight.shape[2], conv.weight.shape[3])
    conv.padding, conv.static_padding = (top + more, left + more), nn.Identity()
