"""Cut dead channels out of a network for good, so that it really is smaller, and prove that it says the same.

A channel can go when nothing reads it (the weights on it are zero in every layer that takes it), or when it is the same
number whatever the input (the weights into it are zero in every layer that makes it). That number need not be zero: a
bias or BatchNorm may have made it something. Then it moves into the next layer's bias; where zeros are padded around
the image, so that a bias would not be the same at the border, all such channels become one that stays.

Which layers share their channels, through residual connections and BatchNorm, is read from the graph that Torch-Pruning
traces. What cannot be cut without a change stays, and is named.

    shrunk = shrink(net, example)        # example: a small batch of inputs
    shrunk.net, shrunk.removed, shrunk.difference
"""

from __future__ import annotations

import copy
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from spurless.core.errors import UserError
from spurless.methods.parts.pruning import weight_of
from spurless.nets.heads import evaluating

TOLERANCE = 1e-4  # largest difference of a logit, in float32
RELATIVE = 1e-5  # of the largest logit, where that is more: what float32 loses in ResNet-18 and VGG11 is up to 3e-6
INSTALL = "Cutting channels needs one more package: pip install torch-pruning"

# Operations that treat each channel alone. What is not named here is not cut through.
ALONE = (
    *("Relu", "Gelu", "LeakyRelu", "Elu", "Celu", "Silu", "Sigmoid", "Tanh", "Hardtanh", "Hardswish", "Hardsigmoid"),
    *("Softplus", "Clamp", "Add", "Sub", "Mul", "Div", "MaxPool", "AvgPool", "AdaptiveAvgPool", "AdaptiveMaxPool"),
    *("MkldnnAdaptiveAvgPool", "Mean", "Amax", "Clone", "Squeeze", "Permute", "Transpose", "Contiguous", "ToCopy"),
)
MATRIX = ("Addmm", "Mm", "Bmm")  # the inside of a linear layer on inputs with more than two dimensions


class NotTheSame(AssertionError):
    """The cut network does not say what the masked one does: a bug, never to be passed over."""


@dataclass
class Channels:
    """Channels that can only be cut together: those that some layers make, and others take. Layers by name."""

    size: int
    makers: list[str] = field(default_factory=list)  # convolutions and linear layers: rows of their weights
    through: list[str] = field(default_factory=list)  # BatchNorm and the like: one entry for each channel
    takers: list[str] = field(default_factory=list)  # columns of their weights; several for a channel after a flatten


@dataclass
class Shrunk:
    """A smaller network, and how it came about."""

    net: nn.Module
    removed: dict[str, int]  # by layer: how many of its output channels went
    kept: list[str]  # what could not be cut, in words
    difference: float  # the largest of a logit, to the network before

    @property
    def channels(self) -> int:
        return sum(self.removed.values())


def shrink(net: nn.Module, example: Tensor, tolerance: float = TOLERANCE) -> Shrunk:
    """A copy of the network without its dead channels. The given network is left as it is.

    The logits are compared for the example and for random inputs: in double precision after every cut, which is undone
    if they change, and in the network's own precision at the end, where more than `allowed` raises NotTheSame.
    """
    torch_pruning()
    example = example.detach().cpu()
    inputs = probes(example)
    dtype = next(net.parameters()).dtype
    before = copy.deepcopy(net).cpu().eval()
    asked = {name: p.requires_grad for name, p in before.named_parameters()}
    work = copy.deepcopy(before).requires_grad_(True)
    exact = _in_double(work, inputs)
    inputs_exact = [x.double() if exact and x.is_floating_point() else x for x in inputs]
    said = _say(work, inputs_exact)
    limit = (1e-9 if exact else 1e-5) * max(1.0, float(said.abs().max()))
    removed: dict[str, int] = {}
    stuck: dict[tuple[str, ...], str] = {}  # by makers: why nothing is cut there

    def same(cut: nn.Module) -> bool:
        try:
            now = _say(cut, inputs_exact)
        except (RuntimeError, IndexError, AssertionError):  # widths that do not fit
            return False
        return now.shape == said.shape and bool((now - said).abs().max() <= limit)

    while True:
        todo = [g for g in channel_groups(work, inputs_exact[0]) if tuple(g.makers) not in stuck]
        found = dead_channels(work, todo, inputs_exact)
        plan = [(g, dead) for g, dead in zip(todo, found, strict=True) if len(dead.gone)]
        if not plan:
            break
        trial = copy.deepcopy(work)
        for group, dead in plan:
            _cut(trial, group, dead)
        if not same(trial):  # one at a time, to find which
            trial = copy.deepcopy(work)
            good: list[tuple[Channels, Dead]] = []
            for group, dead in plan:
                attempt = copy.deepcopy(trial)
                _cut(attempt, group, dead)
                if same(attempt):
                    trial, good = attempt, [*good, (group, dead)]
                else:
                    stuck[tuple(group.makers)] = f"{', '.join(group.makers)}: a cut would change the logits"
            plan = good
        for group, dead in plan:
            for maker in group.makers:
                removed[maker] = removed.get(maker, 0) + len(dead.gone)
        work = trial
    cut = work.to(dtype) if exact else work
    for name, p in cut.named_parameters():
        p.requires_grad_(asked.get(name, True))
    cut.train(net.training)
    with evaluating(cut):
        expected = _say(before, inputs)
        difference = float((_say(cut, inputs) - expected).abs().max())
    if not difference < (most := allowed(expected, tolerance)):
        raise NotTheSame(f"The logits of the cut network differ by {difference:.3g}, more than {most:.3g}.")
    return Shrunk(cut, removed, [*stuck.values(), *_remaining(cut, inputs[0])], difference)


def allowed(logits: Tensor, tolerance: float = TOLERANCE) -> float:
    """By how much others may differ from these logits and still be the same, but for rounding.

    >>> allowed(torch.tensor([-5.0, 2.0])), round(allowed(torch.tensor([2000.0])), 6)
    (0.0001, 0.02)
    """
    return max(tolerance, RELATIVE * float(logits.abs().max()))


def probes(example: Tensor) -> list[Tensor]:
    """The example, and random inputs of its shape: of the usual size and large."""
    if not example.is_floating_point():
        return [example]
    g = torch.Generator().manual_seed(0)
    drawn = torch.randn((4, *example.shape[1:]), generator=g).to(example.dtype)
    return [example, drawn * torch.tensor([1.0, 1.0, 3.0, 10.0]).view(-1, *[1] * (drawn.dim() - 1)).to(drawn)]


# Which channels belong together


def channel_groups(net: nn.Module, example: Tensor) -> list[Channels]:
    """All channels between layers that can be cut together. Those of the inputs and of the outputs are not among them,
    nor those that meet something that looks at several at once (LayerNorm, attention, grouped convolutions)."""
    tp = torch_pruning()
    names = {id(layer): name for name, layer in net.named_modules()}
    asked = [(p, p.requires_grad) for p in net.parameters()]
    with warnings.catch_warnings(), evaluating(net), torch.enable_grad():
        warnings.simplefilter("ignore")  # such as of parameters outside layers: those are not cut through
        net.requires_grad_(True)
        try:
            graph = tp.DependencyGraph().build_dependency(net, example_inputs=example, verbose=False)
        finally:
            for p, was in asked:
                p.requires_grad_(was)
    nodes = {id(node.module): node for node in graph.module2node.values() if id(node.module) in names}
    groups, seen = [], set()
    for layer in net.modules():
        if id(layer) in nodes and id(layer) not in seen and _makes(layer):
            members = _walk(nodes[id(layer)])
            if members is None:
                continue
            makers, through, takers = members
            seen |= {id(m) for m in makers}
            group = Channels(len(weight_of(layer)), *([names[id(m)] for m in part] for part in members))
            if takers and _fits(group, makers, through, takers):
                groups.append(group)
    return groups


def _walk(start: Any) -> tuple[list[nn.Module], list[nn.Module], list[nn.Module]] | None:
    """Makers, layers between, and takers of the channels that a layer makes; None where they cannot be told apart."""
    makers: list[nn.Module] = [start.module]
    through: list[nn.Module] = []
    takers: list[nn.Module] = []
    todo, seen = deque((node, start) for node in start.outputs), {id(start)}
    if not todo:
        return None
    while todo:
        node, source = todo.popleft()
        forward = any(node is other for other in source.outputs)
        if forward and _takes(node.module):
            if not any(node.module is t for t in takers):
                takers.append(node.module)
            continue
        if id(node) in seen:
            continue
        seen.add(id(node))
        if not forward and _makes(node.module):
            makers.append(node.module)
            todo.extend((other, node) for other in node.outputs)
            continue
        if isinstance(node.module, (nn.modules.batchnorm._BatchNorm, nn.PReLU)) or _depthwise(node.module):
            through.append(node.module)
        elif not _passes(node):
            return None
        todo.extend((other, node) for other in [*node.outputs, *node.inputs])
    return makers, through, takers


def _passes(node: Any) -> bool:
    """Whether an operation without weights leaves each channel to itself."""
    kind = node.type.name
    if kind == "RESHAPE":
        return True  # a flatten, or nothing at all; if not, the cut is undone
    if kind != "ELEMENTWISE":
        return False
    name = node.grad_fn.name() if hasattr(node.grad_fn, "name") else ""
    if name.startswith(MATRIX):
        return len(node.outputs) == 1 and _takes(node.outputs[0].module)
    return name.startswith(ALONE) or name == "TBackward0"


def _ordinary(layer: Any) -> bool:
    plain = isinstance(layer, nn.Linear) or (isinstance(layer, _ConvNd) and not isinstance(layer, _ConvTransposeNd))
    return plain and getattr(layer, "groups", 1) == 1 and isinstance(layer.weight, nn.Parameter)


_makes = _takes = _ordinary


def _depthwise(layer: Any) -> bool:
    return isinstance(layer, _ConvNd) and layer.groups == layer.in_channels == layer.out_channels > 1


def _fits(group: Channels, makers: list[nn.Module], through: list[nn.Module], takers: list[nn.Module]) -> bool:
    """Whether the sizes are those of one set of channels."""
    columns = [weight_of(t).shape[1] for t in takers]
    flattened = [isinstance(t, nn.Linear) and c % group.size == 0 for t, c in zip(takers, columns, strict=True)]
    return (
        all(len(weight_of(m)) == group.size for m in makers)
        and all(_width(t) in (group.size, None) for t in through)
        and all(c == group.size or flat for c, flat in zip(columns, flattened, strict=True))
    )


def _width(layer: nn.Module) -> int | None:
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


# Which of them are dead


@dataclass
class Dead:
    """What to do with the dead channels of a group."""

    gone: Tensor  # channels that are cut
    constants: dict[str, Tensor]  # by taker: (size, inputs a channel) what each dead channel always is there
    into: int | None = None  # the channel that takes over the others' part where a bias cannot


def dead_channels(net: nn.Module, groups: list[Channels], inputs: list[Tensor]) -> list[Dead]:
    """For each group the channels that can go without a change of the outputs."""
    values = _constants(net, groups, inputs)
    return [_dead(net, group, values) for group in groups]


def _dead(net: nn.Module, group: Channels, values: dict[str, tuple[Tensor, Tensor]]) -> Dead:
    every = torch.arange(group.size)
    unread = torch.ones(group.size, dtype=torch.bool)
    for name in group.takers:
        unread &= (_columns(net, name, group.size) == 0).flatten(1).all(1)
    still = torch.ones(group.size, dtype=torch.bool)  # the same whatever the input
    for name in group.makers:
        still &= (weight_of(net.get_submodule(name)) == 0).flatten(1).all(1)
    constants, padded = {}, []
    for name in group.takers:
        mean, steady = values[name]
        still &= steady.view(group.size, -1).all(1)
        constants[name] = mean.view(group.size, -1)
        if _pads(net.get_submodule(name)):
            padded.append(constants[name][:, 0])
    # Where zeros are padded, a constant is not a bias. One channel can carry them all, if it is zero for none of them.
    free = unread | (still & torch.stack([c == 0 for c in padded]).all(0) if padded else still)
    loaded = still & ~free
    into = None
    if int(loaded.sum()) > 1:
        size = torch.stack([c.abs() for c in padded]).amin(0).masked_fill(~loaded, -1)  # (size,)
        into = int(size.argmax()) if float(size.max()) > 0 else None
    gone = free | loaded if into is not None else free
    if into is not None:
        gone[into] = False
    if bool(gone.all()):
        gone[0] = False  # a layer without channels is none
    # What nothing reads has no part to hand on, and may be no constant at all.
    constants = {name: c.masked_fill(unread[:, None], 0) for name, c in constants.items()}
    return Dead(every[gone], constants, into)


def _columns(net: nn.Module, name: str, size: int) -> Tensor:
    """(size, ...) the weights that a taker has on each channel."""
    weight = weight_of(net.get_submodule(name)).transpose(0, 1)  # (in, out, ...)
    return weight.reshape(size, -1, *weight.shape[1:])


def _pads(layer: nn.Module) -> bool:
    """Whether zeros are put around its inputs."""
    if not isinstance(layer, _ConvNd) or layer.padding_mode != "zeros":
        return False
    if isinstance(layer.padding, str):
        return layer.padding == "same" and any(k > 1 for k in layer.kernel_size)
    return any(layer.padding)


def _constants(net: nn.Module, groups: list[Channels], inputs: list[Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
    """By taker: the mean of each of its inputs, and whether it was the same everywhere and always."""
    low: dict[str, Tensor] = {}
    high: dict[str, Tensor] = {}

    def watch(name: str) -> Callable[..., None]:
        def hook(layer: nn.Module, args: tuple[Tensor, ...]) -> None:
            x = args[0].detach()
            units = x.movedim(-1 - len(layer.kernel_size), -1) if isinstance(layer, _ConvNd) else x
            units = units.reshape(-1, units.shape[-1])
            low[name] = torch.minimum(low[name], units.amin(0)) if name in low else units.amin(0)
            high[name] = torch.maximum(high[name], units.amax(0)) if name in high else units.amax(0)

        return hook

    takers = {name for group in groups for name in group.takers}
    hooks = [net.get_submodule(name).register_forward_pre_hook(watch(name)) for name in takers]
    try:
        _say(net, inputs)
    finally:
        for hook in hooks:
            hook.remove()
    spread = {name: high[name] - low[name] for name in low}
    rounding = {name: 1e-12 * torch.maximum(high[name].abs(), low[name].abs()) for name in low}
    # The middle of equal numbers is that number.
    return {name: ((high[name] + low[name]) / 2, spread[name] <= rounding[name]) for name in low}


# The cut


@torch.no_grad()
def _cut(net: nn.Module, group: Channels, dead: Dead) -> None:
    """Hand on what the dead channels are, and remove them from every layer of the group."""
    for name in group.takers:
        _hand_on(net.get_submodule(name), dead, dead.constants[name], group.size)
    tp = torch_pruning()
    gone = dead.gone.tolist()
    for name in group.makers:
        layer = net.get_submodule(name)
        (tp.prune_linear_out_channels if isinstance(layer, nn.Linear) else tp.prune_conv_out_channels)(layer, gone)
    for name in group.through:
        layer = net.get_submodule(name)
        if _width(layer) is None:
            continue
        if isinstance(layer, nn.PReLU):
            tp.prune_prelu_out_channels(layer, gone)
        elif isinstance(layer, _ConvNd):
            tp.prune_depthwise_conv_out_channels(layer, gone)
        else:
            tp.prune_batchnorm_out_channels(layer, gone)
    for name in group.takers:
        layer = net.get_submodule(name)
        columns = columns_of(layer, dead.gone, group.size).tolist()
        (tp.prune_linear_in_channels if isinstance(layer, nn.Linear) else tp.prune_conv_in_channels)(layer, columns)


def _hand_on(layer: nn.Module, dead: Dead, constants: Tensor, size: int) -> None:
    """Move the constant part of the channels that go into the layer's bias, or into the channel that stays for it."""
    weight = weight_of(layer)
    columns = columns_of(layer, dead.gone, size)
    part = weight[:, columns] * constants[dead.gone].reshape(1, -1, *[1] * (weight.dim() - 2))  # (out, gone, ...)
    if not bool(part.any()):
        return
    if _pads(layer):
        assert dead.into is not None
        weight[:, dead.into] += part.sum(1) / constants[dead.into, 0]
        return
    more = part.flatten(1).sum(1)  # (out,)
    bias = layer.bias
    layer.bias = nn.Parameter(more if bias is None else bias + more)  # type: ignore[operator]


# Small parts


def torch_pruning() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import torch_pruning
    except ImportError:
        raise UserError(INSTALL) from None
    return torch_pruning


@torch.no_grad()
def _say(net: nn.Module, inputs: list[Tensor]) -> Tensor:
    with evaluating(net):
        return torch.cat([net(x) for x in inputs])


def _in_double(net: nn.Module, inputs: list[Tensor]) -> bool:
    """Turn a network to double precision, if it can work in it."""
    net.double()
    try:
        _say(net, [x.double() if x.is_floating_point() else x for x in inputs])
    except RuntimeError:  # it casts something itself
        net.float()
        return False
    return True


def _remaining(net: nn.Module, example: Tensor) -> list[str]:
    """Layers that still have channels without weights, and why."""
    groups = channel_groups(net, example)
    grouped = {name for group in groups for name in group.makers}
    told = []
    for name, layer in net.named_modules():
        if not _makes(layer):
            continue
        empty = int((weight_of(layer) == 0).flatten(1).all(1).sum())
        if not empty:
            continue
        mates = next((g.makers for g in groups if name in g.makers), [])
        if name not in grouped:
            why = "what reads them looks at several channels at once, or they are the outputs"
        elif len(mates) > 1:
            why = f"they are added to channels of {', '.join(m for m in mates if m != name)}, which are alive"
        else:
            why = "one stays to carry the constants of the others"
        told.append(f"{name}: {empty} channels without weights stay, because {why}")
    return told
