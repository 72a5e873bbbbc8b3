"""The registry of networks, and `build`. This file imports nothing heavy; torch comes with the first network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from spurless.core.errors import UserError
from spurless.core.settings import resolve

if TYPE_CHECKING:
    from spurless.nets.batchnorm import BatchNorm2d as BatchNorm2d
    from spurless.nets.dropout import Dropout as Dropout
    from spurless.nets.net import Net as Net

NETS: dict[str, str] = {
    "linear": "one linear layer on the flattened input",
    "mlp": "fully connected, 100-100-100 with ReLU (LfF's); widths, activation and bias are settings",
    "simconv1": "three 4x4 convolutions with dropout (PGD's SimConv-1, for 28 px)",
    "simconv2": "four convolutions with dropout (PGD's SimConv-2, for 56 px)",
    "conv3": "three strided 4x4 convolutions, 64-128-256 (DCWP's, for 28 px)",
    "conv4": "four 7x7 convolutions without stride, 16-32-64-128 (ReBias's and EnD's, for 28 px)",
    "fcn": "fully connected without bias, two hidden layers of 1024 (large-learning-rate study)",
    "vgg11_lin": "VGG11's convolutions and one linear layer, without bias (large-learning-rate study)",
    "resnet18": "torchvision's ResNet-18, ImageNet or 32-px stem",
    "resnet50": "torchvision's ResNet-50, ImageNet or 32-px stem",
    "wide_resnet101_2": "torchvision's Wide ResNet-101-2, ImageNet or 32-px stem",
    "swin_t": "torchvision's Swin Transformer (tiny), ImageNet or 32-px stem",
    "efficientnet_lite0": "EfficientNet-Lite0; its package carries the ImageNet weights, so they need no download",
    "embedding_bag": "text: the mean of the tokens' vectors; fast",
    "minilm": "text: MiniLM (6 layers of 384); its package carries weights and tokenizer, so they need no download",
    "bert": "text: BERT's encoder of any size, untrained",
    "roberta": "text: RoBERTa's encoder of any size, untrained",
    "hf:NAME": "text: any encoder of the transformers package, by a folder or its name on the Hugging Face hub",
    "timm:NAME": "any network of the timm package by its name there, such as timm:convnext_tiny",
}

# The module of this package that holds each public name.
_WHERE = {"Net": "net", "BatchNorm2d": "batchnorm", "Dropout": "dropout"}
_WHERE |= dict.fromkeys(("linear", "mlp", "simconv1", "simconv2", "conv3", "conv4", "fcn", "vgg11_lin"), "small")
_WHERE |= dict.fromkeys(("resnet18", "resnet50", "wide_resnet101_2", "swin_t", "efficientnet_lite0"), "zoo")
READS_TEXT = ("embedding_bag", "minilm", "bert", "roberta")
_WHERE |= dict.fromkeys(READS_TEXT, "text")
__all__ = ["NETS", "READS_TEXT", "build", "builder", *_WHERE]


def build(spec: str | Mapping[str, Any], shape: Sequence[int], classes: int) -> Net:
    """A fresh network for inputs of this shape, from its name or from {"name": ..., setting: value}.

    >>> build({"name": "mlp", "widths": [16, 8]}, (3, 28, 28), 10).feature_dim
    8
    """
    given = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = given.pop("name", None)
    if not isinstance(name, str):
        raise UserError('A network is given by its name, or as {"name": NAME, setting: value}; the name is missing.')
    make = builder(name)
    from spurless.nets.net import Net

    net = make(tuple(shape), classes, **resolve(make, given, where="net"))
    return net if isinstance(net, Net) else Net.wrap(net)  # a plain module of another package


def builder(name: str) -> Callable[..., Net]:
    """The function (shape, classes, **settings) -> Net of this name; its Annotated parameters are the settings."""
    from spurless.registry import find

    result: Callable[..., Net] = find("net", name)
    return result


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"spurless.nets.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'spurless.nets' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
