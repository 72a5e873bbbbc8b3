"""Load an exported network with torch alone (and torchvision, for its networks): nothing of Spurless is needed.

`spurless export` puts a copy of this file beside the weights:

    from load import load
    net = load(".")        # an nn.Module in evaluation mode
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn


def load(folder, compressed=False):
    """The network of a folder, in evaluation mode; from the compressed file of weights if asked."""
    folder = Path(folder)
    net = build(json.loads((folder / "architecture.json").read_text(encoding="utf-8")))
    file = folder / "model.sparse.safetensors"
    net.load_state_dict(unpack(load_file(file)) if compressed else load_file(folder / "model.safetensors"))
    return net.eval()


def build(architecture):
    """The network that an architecture.json describes, with weights as they start."""
    base = architecture["base"]
    if base is None:
        raise ValueError(f"{architecture['why']} Use model.pt2 (torch.export.load) or model.onnx.")
    layers = [(name, layer(kind, settings)) for name, kind, settings in architecture["layers"]]
    if base == "sequential":
        return nn.Sequential(*(made for _, made in layers))
    from torchvision import models

    net = models.get_model(base, weights=None, num_classes=architecture["outputs"])
    for name, made in layers:  # those that are not as in the original
        parent, _, last = name.rpartition(".")
        setattr(net.get_submodule(parent), last, made)
    return net


def layer(kind, settings):
    """A layer of torch.nn from its name and settings.

    >>> layer("Linear", {"in_features": 2, "out_features": 3})
    Linear(in_features=2, out_features=3, bias=True)
    """
    return getattr(nn, kind)(**{k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()})


def pack(tensors):
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


def unpack(packed):
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
