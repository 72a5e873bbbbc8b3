"""Load an exported network with torch alone (and torchvision, for its networks): nothing of Spurless is needed.

`spurless export` puts a copy of this file beside the weights:

    from load import describe, load
    net = load(".")        # an nn.Module in evaluation mode; load("model.pt2") and load("model.onnx") work alike
    describe(".")          # classes, shape, mean and std of the inputs, and how they are scaled
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

METADATA = "spurless.json"  # in model.pt2


class Preprocessed(nn.Module):
    """A network that takes images as bytes: uint8 (n, c, h, w), of its input size."""

    mean: Tensor
    std: Tensor

    def __init__(self, net: nn.Module, mean: list[float], std: list[float]):
        super().__init__()
        self.net = net
        self.register_buffer("mean", torch.tensor(mean or [0.0]).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std or [1.0]).view(-1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.net((images.float() / 255 - self.mean) / self.std)
        return logits


def load(path: str | Path, compressed: bool = False) -> Callable[[Tensor], Tensor]:
    """The network of a folder, in evaluation mode; from the compressed file of weights if asked. Or that of a file:
    model.pt2, or model.onnx, which runs in onnxruntime on the CPU."""
    path = Path(path)
    if path.suffix == ".pt2":
        return torch.export.load(path).module()
    if path.suffix == ".onnx":
        session = _session(path)
        return lambda x: torch.from_numpy(session.run(None, {"x": x.numpy()})[0])
    architecture = _architecture(path)
    net = build(architecture)
    file = path / "model.sparse.safetensors"
    net.load_state_dict(unpack(load_file(file)) if compressed else load_file(path / "model.safetensors"))
    about = architecture.get("input", {})
    return (Preprocessed(net, about["mean"], about["std"]) if about.get("preprocessing") else net).eval()


def describe(path: str | Path) -> dict[str, Any]:
    """What a folder, a model.pt2 or a model.onnx says of its network: classes, shape, mean, std, scaled,
    preprocessing (whether it takes bytes)."""
    path = Path(path)
    if path.suffix == ".pt2":
        texts = {METADATA: ""}
        torch.export.load(path, extra_files=texts)
        return dict(json.loads(texts[METADATA]))
    if path.suffix == ".onnx":
        metadata = _session(path).get_modelmeta().custom_metadata_map
        return {name: json.loads(metadata[name]) for name in metadata if name in FACTS}
    return dict(_architecture(path)["input"])


FACTS = ("shape", "classes", "mean", "std", "coding", "scaled", "preprocessing")


def _architecture(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "architecture.json").read_text(encoding="utf-8")))


def _session(file: Path) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])


def build(architecture: Mapping[str, Any]) -> nn.Module:
    """The network that an architecture.json describes, with weights as they start."""
    base = architecture["base"]
    if base is None:
        raise ValueError(f"{architecture['why']} Use model.pt2 (torch.export.load) or model.onnx.")
    layers = [(name, layer(kind, settings)) for name, kind, settings in architecture["layers"]]
    if base == "sequential":
        return nn.Sequential(*(made for _, made in layers))
    from torchvision import models

    net: nn.Module = models.get_model(base, weights=None, num_classes=architecture["outputs"])
    for name, made in layers:  # those that are not as in the original
        parent, _, last = name.rpartition(".")
        setattr(net.get_submodule(parent), last, made)
    return net


def layer(kind: str, settings: Mapping[str, Any]) -> nn.Module:
    """A layer of torch.nn from its name and settings.

    >>> layer("Linear", {"in_features": 2, "out_features": 3})
    Linear(in_features=2, out_features=3, bias=True)
    """
    made: nn.Module = getattr(nn, kind)(**{k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()})
    return made


def pack(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors without their zeros, where that is smaller: one bit for each entry, and the entries that are not zero.

    >>> packed = pack({"w": torch.tensor([[0.0, 2.0] * 40])})
    >>> {name: tuple(t.shape) for name, t in packed.items()}
    {'w.bits': (10,), 'w.values': (40,), 'w.shape': (2,)}
    >>> torch.equal(unpack(packed)["w"], torch.tensor([[0.0, 2.0] * 40]))
    True
    """
    packed = {}
    for name, tensor in tensors.items():
        there = (tensor != 0).flatten()
        pad = -len(there) % 8
        size = tensor.element_size()
        if tensor.is_floating_point() and int(there.sum()) * size + (len(there) + pad) // 8 < len(there) * size:
            bits = torch.cat([there, there.new_zeros(pad)]).view(-1, 8).to(torch.int64)
            packed[f"{name}.bits"] = (bits * 2 ** torch.arange(8)).sum(1).to(torch.uint8)
            packed[f"{name}.values"] = tensor.flatten()[there]
            packed[f"{name}.shape"] = torch.tensor(tensor.shape)
        else:
            packed[name] = tensor
    return packed


def unpack(packed: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What `pack` was given."""
    tensors = {}
    for name, tensor in packed.items():
        if not name.endswith((".bits", ".values", ".shape")):
            tensors[name] = tensor
        elif name.endswith(".bits"):
            stem = name.removesuffix(".bits")
            values, shape = packed[f"{stem}.values"], packed[f"{stem}.shape"].tolist()
            whole = values.new_zeros(shape).flatten()
            there = (tensor.to(torch.int64)[:, None] >> torch.arange(8)).flatten()[: len(whole)] % 2 == 1
            whole[there] = values
            tensors[stem] = whole.view(shape)
    return tensors
