"""Which channels of a network can only be cut together: those that some layers make and others take.

It is read from the graph that Torch-Pruning traces: residual connections and BatchNorm share channels between layers.
"""

from __future__ import annotations

import warnings
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from spurless.core.extras import missing
from spurless.methods.parts.pruning import weight_of
from spurless.nets.heads import evaluating

# Operations that treat each channel alone. What is not named here is not cut through.
ALONE = (
    *("Relu", "Gelu", "LeakyRelu", "Elu", "Celu", "Silu", "Sigmoid", "Tanh", "Hardtanh", "Hardswish", "Hardsigmoid"),
    *("Softplus", "Clamp", "Add", "Sub", "Mul", "Div", "MaxPool", "AvgPool", "AdaptiveAvgPool", "AdaptiveMaxPool"),
    *("MkldnnAdaptiveAvgPool", "Mean", "Amax", "Clone", "Squeeze", "Permute", "Transpose", "Contiguous", "ToCopy"),
)
MATRIX = ("Addmm", "Mm", "Bmm")  # the inside of a linear layer on inputs with more than two dimensions


@dataclass
class Channels:
    """Channels that can only be cut together: those that some layers make, and others take. Layers by name."""

    size: int
    makers: list[str] = field(default_factory=list)  # convolutions and linear layers: rows of their weights
    through: list[str] = field(default_factory=list)  # BatchNorm and the like: one entry for each channel
    takers: list[str] = field(default_factory=list)  # columns of their weights; several for a channel after a flatten


def channel_groups(net: nn.Module, example: Tensor) -> list[Channels]:
    """All channels between layers that can be cut together. Those of the inputs and of the outputs are not among them,
    nor those that meet something that looks at several at once (LayerNorm, attention, grouped convolutions)."""
    names = {id(layer): name for name, layer in net.named_modules()}
    nodes = {id(node.module): node for node in _traced(net, example) if id(node.module) in names}
    groups: list[Channels] = []
    seen: set[int] = set()
    for layer in net.modules():
        if id(layer) not in nodes or id(layer) in seen or not makes_channels(layer):
            continue
        members = _walk(nodes[id(layer)])
        if members is None:
            continue
        makers, through, takers = members
        seen |= {id(m) for m in makers}
        group = Channels(len(weight_of(layer)), *([names[id(m)] for m in member] for member in members))
        if takers and _fits(group, makers, through, takers):
            groups.append(group)
    return groups


def _traced(net: nn.Module, example: Tensor) -> list[Any]:
    """The nodes of Torch-Pruning's graph."""
    tp = torch_pruning()
    trained = [(p, p.requires_grad) for p in net.parameters()]
    with warnings.catch_warnings(), evaluating(net), torch.enable_grad():
        warnings.simplefilter("ignore")  # such as of parameters outside layers: those are not cut through
        net.requires_grad_(True)
        try:
            graph = tp.DependencyGraph().build_dependency(net, example_inputs=example, verbose=False)
        finally:
            for p, was in trained:
                p.requires_grad_(was)
    return list(graph.module2node.values())


def _walk(start: Any) -> tuple[list[nn.Module], list[nn.Module], list[nn.Module]] | None:
    """Makers, layers between, and takers of the channels that a layer makes; None where they cannot be told apart."""
    makers: list[nn.Module] = [start.module]
    through: list[nn.Module] = []
    takers: dict[int, nn.Module] = {}
    todo, seen = deque((node, start) for node in start.outputs), {id(start)}
    if not todo:
        return None
    while todo:
        node, source = todo.popleft()
        forward = any(node is other for other in source.outputs)
        if forward and makes_channels(node.module):
            takers.setdefault(id(node.module), node.module)
            continue
        if id(node) in seen:
            continue
        seen.add(id(node))
        if not forward and makes_channels(node.module):
            makers.append(node.module)
            todo.extend((other, node) for other in node.outputs)
            continue
        if _one_entry_a_channel(node.module):
            through.append(node.module)
        elif not _passes(node):
            return None
        todo.extend((other, node) for other in [*node.outputs, *node.inputs])
    return makers, through, list(takers.values())


def _passes(node: Any) -> bool:
    """Whether an operation without weights leaves each channel to itself."""
    kind = node.type.name
    if kind == "RESHAPE":
        return True  # a flatten, or nothing at all; if not, the cut is undone
    if kind != "ELEMENTWISE":
        return False
    name = node.grad_fn.name() if hasattr(node.grad_fn, "name") else ""
    if name.startswith(MATRIX):
        return len(node.outputs) == 1 and makes_channels(node.outputs[0].module)
    return name.startswith(ALONE) or name == "TBackward0"


def makes_channels(layer: Any) -> bool:
    """Whether it makes channels, as rows of its weight, and takes them, as columns."""
    plain = isinstance(layer, nn.Linear) or (isinstance(layer, _ConvNd) and not isinstance(layer, _ConvTransposeNd))
    return plain and getattr(layer, "groups", 1) == 1 and isinstance(layer.weight, nn.Parameter)


def _one_entry_a_channel(layer: Any) -> bool:
    depthwise = isinstance(layer, _ConvNd) and layer.groups == layer.in_channels == layer.out_channels > 1
    return depthwise or isinstance(layer, (nn.modules.batchnorm._BatchNorm, nn.PReLU))


def _fits(group: Channels, makers: list[nn.Module], through: list[nn.Module], takers: list[nn.Module]) -> bool:
    """Whether the sizes are those of one set of channels."""
    columns = [weight_of(t).shape[1] for t in takers]
    flattened = [isinstance(t, nn.Linear) and c % group.size == 0 for t, c in zip(takers, columns, strict=True)]
    return (
        all(len(weight_of(m)) == group.size for m in makers)
        and all(width_of(t) in (group.size, None) for t in through)
        and all(c == group.size or flat for c, flat in zip(columns, flattened, strict=True))
    )


def width_of(layer: nn.Module) -> int | None:
    """The channels that a layer between two others has entries for; None: one entry for all."""
    if isinstance(layer, nn.PReLU):
        return layer.num_parameters if layer.num_parameters > 1 else None
    return layer.out_channels if isinstance(layer, _ConvNd) else int(layer.num_features)  # type: ignore[arg-type]


def columns_of(layer: nn.Module, channels: Tensor, size: int) -> Tensor:
    """Which inputs of a layer these channels are: after a flatten each is several in a row.

    >>> columns_of(nn.Linear(6, 1), torch.tensor([0, 2]), size=3)
    tensor([0, 1, 4, 5])
    """
    each = weight_of(layer).shape[1] // size
    return (channels[:, None] * each + torch.arange(each)).flatten()


def torch_pruning() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import torch_pruning
    except ImportError:
        raise missing("Cutting channels", "export") from None
    return torch_pruning
