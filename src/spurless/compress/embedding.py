"""The features of a frozen network in place of its inputs: heads on a pretrained backbone train in seconds.

Features of a network that is known by name are kept in the cache folder by the content of all that they follow from:
the samples, how they are standardised, the network's weights and layers, and the versions of torch and Spurless.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from spurless import __version__
from spurless.compress.frozen import quickest
from spurless.core.data import Bundle, Images, Split, Table
from spurless.core.digests import digest
from spurless.core.errors import DataError
from spurless.core.files import cache_dir
from spurless.core.fingerprint import inputs_digest
from spurless.core.messages import log
from spurless.core.recipe import Recipe
from spurless.core.tensor_files import load_tensors, save_tensors
from spurless.nets import Net
from spurless.nets.outputs import Inputs, outputs
from spurless.nets.reads import check_reads
from spurless.registry import is_ours, load_data
from spurless.train.device import pick_device
from spurless.train.identity import contents, describe_net
from spurless.train.networks import NetSpec, example_of, network_maker

VERSION = 1  # of how features are made: a change of it leaves old ones unused
WORTH = 500  # samples from which features are kept, and it pays to prepare the network


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
    features = _Features(data, net, backbone, chosen_device).of_splits()
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


class _Features:
    """The features of a network, kept from earlier starts or computed."""

    def __init__(self, data: Bundle, net: NetSpec, backbone: Net, device: torch.device):
        self.data, self.backbone, self.device = data, backbone, device
        on_cpu = device.type == "cpu" and isinstance(data.inputs, Images)
        self.recipe = Recipe(channels_last=False, eval_batch_size=32 if on_cpu else 128)
        self.large = sum(map(len, data.splits.values())) >= WORTH and not isinstance(data.inputs, Table)
        self.quicker = on_cpu and self.large
        # Of a network of the user's own the code is not known: what was kept might be that of another.
        self.named = describe_net(net) if isinstance(net, (str, Mapping)) and is_ours("net", name_of_net(net)) else None

    def of_splits(self) -> dict[str, Tensor]:
        """(n, d) of each split, on the CPU."""
        files = {name: self._file(split) for name, split in self.data.splits.items()}
        found = {name: x for name, file in files.items() if file and (x := _kept(file)) is not None}
        missing = {name: split for name, split in self.data.splits.items() if name not in found}
        if missing:
            ask = quickest(self.backbone, example_of(self.data)) if self.quicker else self.backbone
            inputs = Inputs(self.data, self.recipe, self.device)
            for name, split in missing.items():
                found[name] = outputs(ask, split, inputs, self.recipe, self.device, features=True).cpu()
                if file := files[name]:
                    with suppress(OSError):  # a cache that can only be read
                        file.parent.mkdir(parents=True, exist_ok=True)
                        save_tensors(file, {"features": found[name]}, {})
        return {name: found[name] for name in self.data.splits}

    def _file(self, split: Split) -> Path | None:
        """Where the features of a split are kept, by the content of all that they follow from."""
        if self.named is None or not self.large:
            return None
        kind = self.data.inputs
        facts = [VERSION, __version__, torch.__version__, self.device.type, type(kind).__name__, kind.mean, kind.std]
        net = [self.named, contents(self.backbone)]
        return (
            cache_dir() / "features" / f"{digest(repr([facts, net]).encode() + inputs_digest(split)).hex()}.safetensors"
        )


def name_of_net(net: str | Mapping[str, Any]) -> str:
    return net if isinstance(net, str) else str(net.get("name"))


def _kept(file: Path) -> Tensor | None:
    if not file.is_file():
        return None
    try:
        return load_tensors(file)[0]["features"]
    except (DataError, KeyError) as error:
        log.warning(f"{error} The features are computed again.")
        return None
