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
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from spurless.compress.channels import (
    Channels,
    channel_groups,
    columns_of,
    makes_channels,
    torch_pruning,
    width_of,
)
from spurless.methods.parts.pruning import weight_of
from spurless.nets.heads import evaluating

TOLERANCE = 1e-4  # largest difference of a logit, in float32
RELATIVE = 1e-5  # of the largest logit, where that is more: what float32 loses in ResNet-18 and VGG11 is up to 3e-6


class NotTheSame(AssertionError):
    """The cut network does not say what the masked one does: a bug, never to be passed over."""


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
    trained = {name: p.requires_grad for name, p in before.named_parameters()}
    work = copy.deepcopy(before).requires_grad_(True)
    exact = _in_double(work, inputs)
    inputs_exact = [x.double() if exact and x.is_floating_point() else x for x in inputs]
    logits = _logits(work, inputs_exact)
    limit = (1e-9 if exact else 1e-5) * max(1.0, float(logits.abs().max()))

    def same(trial: nn.Module) -> bool:
        try:
            now = _logits(trial, inputs_exact)
        except (RuntimeError, IndexError, AssertionError):  # widths that do not fit
            return False
        return now.shape == logits.shape and bool((now - logits).abs().max() <= limit)

    work, removed, stuck = _without_dead_channels(work, inputs_exact, same)
    cut = work.to(dtype) if exact else work
    for name, p in cut.named_parameters():
        p.requires_grad_(trained.get(name, True))
    cut.train(net.training)
    with evaluating(cut):
        expected = _logits(before, inputs)
        difference = float((_logits(cut, inputs) - expected).abs().max())
    if not difference < (most := allowed(expected, tolerance)):
        raise NotTheSame(f"The logits of the cut network differ by {difference:.3g}, more than {most:.3g}.")
    return Shrunk(cut, removed, [*stuck, *_remaining(cut, inputs[0])], difference)


def _without_dead_channels(
    net: nn.Module, inputs: list[Tensor], same: Callable[[nn.Module], bool]
) -> tuple[nn.Module, dict[str, int], list[str]]:
    """The network, how many output channels of which layer are cut, and what a cut would have changed."""
    removed: dict[str, int] = {}
    stuck: dict[tuple[str, ...], str] = {}  # by makers: why nothing is cut there

    while True:
        todo = [g for g in channel_groups(net, inputs[0]) if tuple(g.makers) not in stuck]
        plan = [cut for cut in zip(todo, dead_channels(net, todo, inputs), strict=True) if len(cut[1].gone)]
        if not plan:
            break
        net, done = _cut_what_changes_nothing(net, plan, same)
        for group, _ in plan:
            if not any(group is cut for cut, _ in done):
                stuck[tuple(group.makers)] = f"{', '.join(group.makers)}: a cut would change the logits"
        for group, dead in done:
            for maker in group.makers:
                removed[maker] = removed.get(maker, 0) + len(dead.gone)
    return net, removed, list(stuck.values())


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
        _logits(net, inputs)
    finally:
        for hook in hooks:
            hook.remove()
    spread = {name: high[name] - low[name] for name in low}
    rounding = {name: 1e-12 * torch.maximum(high[name].abs(), low[name].abs()) for name in low}
    # The middle of equal numbers is that number.
    return {name: ((high[name] + low[name]) / 2, spread[name] <= rounding[name]) for name in low}


# The cut


Plan = list[tuple[Channels, Dead]]


def _cut_what_changes_nothing(net: nn.Module, plan: Plan, same: Callable[[nn.Module], bool]) -> tuple[nn.Module, Plan]:
    """A network with all cuts of the plan or, where they change it, with those that alone do not; and these cuts."""
    trial = copy.deepcopy(net)
    for group, dead in plan:
        _cut(trial, group, dead)
    if same(trial):
        return trial, plan
    trial = copy.deepcopy(net)
    done: Plan = []
    for group, dead in plan:
        attempt = copy.deepcopy(trial)
        _cut(attempt, group, dead)
        if same(attempt):
            trial, done = attempt, [*done, (group, dead)]
    return trial, done


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
        if width_of(layer) is None:
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
    contribution = weight[:, columns] * constants[dead.gone].reshape(
        1, -1, *[1] * (weight.dim() - 2)
    )  # (out, gone, ...)
    if not bool(contribution.any()):
        return
    if _pads(layer):
        assert dead.into is not None
        weight[:, dead.into] += contribution.sum(1) / constants[dead.into, 0]
        return
    more = contribution.flatten(1).sum(1)  # (out,)
    bias = layer.bias
    layer.bias = nn.Parameter(more if bias is None else bias + more)  # type: ignore[operator]


# Small parts


@torch.no_grad()
def _logits(net: nn.Module, inputs: list[Tensor]) -> Tensor:
    with evaluating(net):
        return torch.cat([net(x) for x in inputs])


def _in_double(net: nn.Module, inputs: list[Tensor]) -> bool:
    """Turn a network to double precision, if it can work in it."""
    net.double()
    try:
        _logits(net, [x.double() if x.is_floating_point() else x for x in inputs])
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
        if not makes_channels(layer):
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
