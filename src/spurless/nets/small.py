"""The papers' own networks. Weights start as torch's layers start them unless a comment says otherwise."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from torch import nn

from spurless.core.errors import UserError
from spurless.core.settings import Range
from spurless.nets.batchnorm import BatchNorm2d
from spurless.nets.dropout import Dropout
from spurless.nets.net import Net

Shape = tuple[int, ...]
LEAST = 8  # pixels of a side that easy_cnn takes
ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU, "sigmoid": nn.Sigmoid}


def linear(shape: Shape, classes: int, bias: Annotated[bool, "add a bias"] = True) -> Net:
    """One linear layer; its features are the flattened input."""
    return Net(nn.Flatten(), nn.Linear(math.prod(shape), classes, bias=bias))


def mlp(
    shape: Shape,
    classes: int,
    widths: Annotated[tuple[int, ...], "units of each hidden layer", Range(1)] = (100, 100, 100),
    activation: Annotated[Literal["relu", "tanh", "gelu", "sigmoid"], "after each hidden layer"] = "relu",
    bias: Annotated[bool, "add a bias in every layer"] = True,
) -> Net:
    """Fully connected. The default is LfF's (Nam et al. 2020) without its second division of the input by 255."""
    layers: list[nn.Module] = [nn.Flatten()]
    wide = math.prod(shape)
    for width in widths:
        layers += [nn.Linear(wide, width, bias=bias), ACTIVATIONS[activation]()]
        wide = width
    return Net(nn.Sequential(*layers), nn.Linear(wide, classes, bias=bias))


def fcn(
    shape: Shape,
    classes: int,
    width: Annotated[int, "units of each hidden layer", Range(1)] = 1024,
    depth: Annotated[int, "hidden layers", Range(0)] = 2,
) -> Net:
    """Fully connected, ReLU, no bias (the large-learning-rate study; 2048 units on MNIST-CIFAR, 200 on parity)."""
    return mlp(shape, classes, widths=(width,) * depth, bias=False)


def simconv1(
    shape: Shape, classes: int, dropout: Annotated[float, "share of dropped activations", Range(0, 1)] = 0.5
) -> Net:
    """SimConv-1 (Ahn et al. 2023, appendix B.1). In the third block BatchNorm comes after the ReLU, as printed."""
    channels = image(shape, "simconv1", least=25)[0]
    encoder = nn.Sequential(
        *(nn.Conv2d(channels, 8, 4), BatchNorm2d(8), nn.ReLU(), Dropout(dropout), nn.AvgPool2d(2)),
        *(nn.Conv2d(8, 32, 4), BatchNorm2d(32), nn.ReLU(), Dropout(dropout), nn.AvgPool2d(2)),
        *(nn.Conv2d(32, 64, 4), nn.ReLU(), BatchNorm2d(64), Dropout(dropout), nn.AdaptiveAvgPool2d(1)),
    )
    return Net(encoder, nn.Linear(64, classes))


def simconv2(
    shape: Shape,
    classes: int,
    dropout: Annotated[float, "share of dropped activations", Range(0, 1)] = 0.5,
    padding: Annotated[Literal["same", "valid"], "same: zeros around each image; valid: none"] = "same",
    pool: Annotated[int, "side of the windows of the two average poolings", Range(1)] = 3,
) -> Net:
    """SimConv-2 (Ahn et al. 2023, appendix B.1). In the last two blocks BatchNorm comes after the ReLU.

    The paper prints no padding, but then its own 56-px images shrink to 3x3 in front of the 5x5 kernel and nothing
    can be computed. So each convolution keeps the size of its input here. padding="valid" is the network as printed,
    from 87 px on; with pool=2 it takes 56 px (56, 50, 25, 19, 9, 5, 3).
    """
    same = padding == "same"
    channels = image(shape, "simconv2", least=pool * pool if same else (7 * pool + 6) * pool + 6)[0]
    pad = {k: k // 2 if same else 0 for k in (7, 5, 3)}
    encoder = nn.Sequential(
        *(nn.Conv2d(channels, 8, 7, padding=pad[7]), BatchNorm2d(8), nn.ReLU(), Dropout(dropout), nn.AvgPool2d(pool)),
        *(nn.Conv2d(8, 32, 7, padding=pad[7]), BatchNorm2d(32), nn.ReLU(), Dropout(dropout), nn.AvgPool2d(pool)),
        *(nn.Conv2d(32, 64, 5, padding=pad[5]), nn.ReLU(), BatchNorm2d(64), Dropout(dropout)),
        *(nn.Conv2d(64, 128, 3, padding=pad[3]), nn.ReLU(), BatchNorm2d(128), Dropout(dropout)),
        nn.AdaptiveAvgPool2d(1),
    )
    return Net(encoder, nn.Linear(128, classes))


def easy_cnn(shape: Shape, classes: int, widths: tuple[int, ...] = (16, 32, 64)) -> Net:
    """A small network that learns what is easy (crossfit's experts): strided convolutions on images of about 48 px."""
    wide, height, width = image(shape, "easy_cnn", least=LEAST)
    by = min(height, width) // 48
    layers: list[nn.Module] = [nn.AvgPool2d(by) if by > 1 else nn.Identity()]  # by 1, it would cost as much as the rest
    for out in widths:
        layers += [nn.Conv2d(wide, out, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
        wide = out
    return Net(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1)), nn.Linear(wide, classes))


def conv3(
    shape: Shape,
    classes: int,
    order: Annotated[
        Literal["relu_bn", "bn_relu"], "after each convolution: the paper's text, or its code"
    ] = "relu_bn",
) -> Net:
    """DCWP's three-layer network for Colored MNIST (Park et al. 2023, appendix); no bias in the convolutions."""
    wide = image(shape, "conv3", least=8)[0]
    layers: list[nn.Module] = []
    for width in (64, 128, 256):
        after = [nn.ReLU(), nn.BatchNorm2d(width)]
        layers += [nn.Conv2d(wide, width, 4, stride=2, padding=1, bias=False)]
        layers += after if order == "relu_bn" else after[::-1]
        wide = width
    return Net(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1)), nn.Linear(256, classes))


def conv4(
    shape: Shape,
    classes: int,
    kernel: Annotated[int, "side of the filters, an odd number", Range(1)] = 7,
    widths: Annotated[tuple[int, ...], "channels of each layer", Range(1)] = (16, 32, 64, 128),
    last: Annotated[Literal["relu", "tanh"], "after the last BatchNorm: ReBias's, or EnD's"] = "relu",
) -> Net:
    """ReBias's network for Biased MNIST (Bahng et al. 2020), which EnD took over: no stride, He's start."""
    wide = image(shape, "conv4")[0]
    layers: list[nn.Module] = []
    for width in widths:
        conv = nn.Conv2d(wide, width, kernel, padding=kernel // 2)
        nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
        layers += [conv, nn.BatchNorm2d(width), nn.ReLU()]
        wide = width
    layers[-1] = ACTIVATIONS[last]()
    return Net(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1)), nn.Linear(wide, classes))


def vgg11_lin(
    shape: Shape,
    classes: int,
    init: Annotated[Literal["he", "torch"], "start of the convolutions: normal by fan-out, or torch's"] = "he",
) -> Net:
    """VGG11's convolutions and one linear layer, without bias (the large-learning-rate study).

    Where the study is silent: under 32 px the first pooling is left out, since five would leave nothing, and the
    convolutions start as torchvision's VGG does. Torch's start leaves a hundredth of that signal after eight layers
    without bias or normalisation.
    """
    wide, height, width = image(shape, "vgg11_lin", least=16)
    small = min(height, width) < 32
    layers: list[nn.Module] = []
    for number, block in enumerate([(64,), (128,), (256, 256), (512, 512), (512, 512)]):
        for out in block:
            conv = nn.Conv2d(wide, out, 3, padding=1, bias=False)
            if init == "he":
                nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
            layers += [conv, nn.ReLU()]
            wide = out
        if number > 0 or not small:
            layers.append(nn.MaxPool2d(2))
    stride = 16 if small else 32
    return Net(nn.Sequential(*layers), nn.Linear(512 * (height // stride) * (width // stride), classes, bias=False))


def image(shape: Shape, name: str, least: int = 1) -> tuple[int, int, int]:
    """The shape as channels, height and width; a UserError where it is no image, or one too small for the network."""
    if len(shape) != 3:
        raise UserError(f"{name} takes images (channels, height, width), not inputs of shape {shape}; try net mlp.")
    channels, height, width = shape
    if min(height, width) < least:
        raise UserError(f"{name} takes images of at least {least}x{least} pixels, not {height}x{width}; try net mlp.")
    return channels, height, width
