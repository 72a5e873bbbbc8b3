"""A frozen encoder with less to compute, and the same answers."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval


@torch.no_grad()
def folded(encoder: nn.Module) -> nn.Module:
    """The encoder itself, in evaluation mode: each batch normalisation is folded into the convolution before it,
    padding that is the same on all sides is left to the convolution, and ReLU6 writes in place.

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
        if isinstance(layer, nn.Conv2d) and isinstance(pad, nn.ZeroPad2d) and len(set(pad.padding)) == 1:
            layer.padding, layer.static_padding = (pad.padding[0], pad.padding[0]), nn.Identity()
    return encoder
