"""The features of a frozen network in place of its inputs: heads on a pretrained backbone train in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from spurless.core.data import Bundle, Table
from spurless.core.recipe import Recipe
from spurless.nets.outputs import Inputs, outputs
from spurless.nets.reads import check_reads
from spurless.registry import load_data
from spurless.train.device import pick_device
from spurless.train.identity import describe_net
from spurless.train.networks import NetSpec, example_of, network_maker


def embed(
    data: Bundle | str | Mapping[str, Any],
    net: NetSpec,
    device: str | torch.device | None = None,
    root: str | Path | None = None,
) -> Bundle:
    """The same samples, labels and attributes, with the network's features (n, d) as inputs, standardised.

    >>> embed({"name": "toy", "n": 100}, "mlp", device="cpu").shape
    (100,)
    """
    data, chosen_device = load_data(data, root=root), pick_device(device)
    check_reads(data, net)
    backbone = network_maker(net, data.shape, len(data.classes), seed=0, example=example_of(data))(0).to(chosen_device)
    recipe = Recipe(channels_last=False, eval_batch_size=128)
    inputs = Inputs(data, recipe, chosen_device)
    features = {
        name: outputs(backbone, split, inputs, recipe, chosen_device, features=True).cpu()
        for name, split in data.splits.items()
    }
    x = features["train"]
    named = describe_net(net)
    splits: dict[str, Any] = {name: replace(split, x=features[name]) for name, split in data.splits.items()}
    return replace(
        data,
        name=f"{data.name}@{named['name']}",
        **splits,
        inputs=Table(mean=tuple(x.mean(0).tolist()), std=tuple(x.std(0).clamp_min(1e-6).tolist())),
        net="mlp",
        recipe=Recipe(),
        settings=data.settings | {"backbone": named["name"]},
        notes=(*data.notes, f"inputs are features of a frozen {named['name']}, which is not trained further"),
    )
