"""Pruning: scores of weights, which of them stay, and training in which the others stay zero.

A pruned network is an ordinary network whose removed weights are exactly zero. Scores and masks are tensors by the
name of the parameter, in its shape: `keep_highest(squares(net), keep=0.3)`.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.optim import Optimizer

from spurless.core.errors import UserError

Masks = dict[str, Tensor]  # by the parameter's name: bool, in its shape, True where it stays
Scores = dict[str, Tensor]  # by the parameter's name: the higher, the longer it stays
Structure = Literal["weight", "column", "kernel", "row"]
Scope = Literal["global", "layer"]
Kappa = Literal["absolute", "signed", "variance"]
Layers = Annotated[tuple[str, ...], "which convolution and linear layers, by name; * stands for anything"]

EVERY = ("*",)
TINY = 1e-6  # added to a mean that is divided by


# What can be pruned


def prunable(net: nn.Module, layers: Sequence[str] = EVERY) -> dict[str, nn.Module]:
    """The convolution and linear layers of a network that the patterns name, by the name of their weight.

    A layer whose weight is computed from other parameters (weight norm) has none of its own and is left out.

    >>> list(prunable(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))))
    ['0.weight', '2.weight']
    """
    layers_by_weight: dict[str, nn.Module] = {}
    seen: set[int] = set()
    for name, layer in net.named_modules():
        if isinstance(layer, (_ConvNd, nn.Linear)) and isinstance(layer.weight, nn.Parameter):
            if id(layer.weight) not in seen and any(fnmatch.fnmatchcase(name, pattern) for pattern in layers):
                layers_by_weight[f"{name}.weight".lstrip(".")] = layer
            seen.add(id(layer.weight))  # two layers may share a weight: it is pruned once
    if not layers_by_weight:
        every = [name for name, layer in net.named_modules() if isinstance(layer, (_ConvNd, nn.Linear))]
        raise UserError(f"No layer is called {' or '.join(layers)}; those with weights are: {', '.join(every)}.")
    return layers_by_weight


def weight_of(layer: nn.Module) -> Tensor:
    weight = layer.weight
    assert isinstance(weight, Tensor)
    return weight.detach()


def sparsity(net: nn.Module, layers: Sequence[str] = EVERY) -> float:
    """The share of the weights of these layers that are exactly zero, in percent.

    >>> layer = nn.Linear(2, 2)
    >>> zero(layer, {"weight": torch.tensor([[True, False], [True, True]])})
    >>> sparsity(layer)
    25.0
    """
    weights = [weight_of(layer) for layer in prunable(net, layers).values()]
    return 100 * sum(int((w == 0).sum()) for w in weights) / sum(w.numel() for w in weights)


# Masks


@torch.no_grad()
def zero(net: nn.Module, masks: Mapping[str, Tensor]) -> None:
    """Set the removed weights to zero."""
    for name, mask in masks.items():
        net.get_parameter(name).masked_fill_(~mask, 0)


def hold(optimizer: Optimizer, net: nn.Module, masks: Mapping[str, Tensor]) -> Optimizer:
    """Remove weights now and again after every step of the optimiser, whatever its momentum or decay would do.

    Masks that are changed in place later are followed. A limit on the gradient's norm counts removed weights, too.
    """
    zero(net, masks)
    optimizer.register_step_post_hook(lambda *_: zero(net, masks))
    return optimizer


class Alive(nn.Module):
    """Which weights of a network stay, as state that checkpoints hold. At first all do."""

    def __init__(self, net: nn.Module, layers: Sequence[str] = EVERY):
        super().__init__()
        self.names = list(prunable(net, layers))
        for k, name in enumerate(self.names):
            self.register_buffer(f"mask{k}", torch.ones_like(net.get_parameter(name), dtype=torch.bool))

    @property
    def masks(self) -> Masks:
        """Those that are held, not copies."""
        return {name: self.get_buffer(f"mask{k}") for k, name in enumerate(self.names)}


def grouped(scores: Tensor, structure: Structure, layer: nn.Module | None = None) -> Tensor:
    """The mean score of each group of weights that go together, in a shape for `spread`.

    column: the weights on one input unit or channel. row: those into one output unit or channel. kernel: those
    between one input and one output channel; in a linear layer, where that is one weight, a column.
    A convolution of several groups, or one that is transposed, is told by its `layer`.

    >>> grouped(torch.tensor([[1.0, 2.0], [3.0, 6.0]]), "column")
    tensor([[2., 4.]])
    >>> grouped(torch.tensor([[[1.0]], [[3.0]]]), "column", nn.Conv1d(2, 2, 1, groups=2)).flatten()
    tensor([1., 3.])
    """
    inner = list(range(2, scores.dim()))
    if structure == "weight":
        return scores
    if structure == "kernel" and inner:
        return scores.mean(inner, keepdim=True)
    # A weight is (out, in / groups, ...), that of a transposed convolution (in, out / groups, ...).
    if structure == ("column" if isinstance(layer, _ConvTransposeNd) else "row"):
        return scores.mean([1, *inner], keepdim=True)
    groups = layer.groups if isinstance(layer, _ConvNd) else 1
    if groups > 1:  # (groups, 1, in / groups, ...): each group has channels of its own
        by_group: Tensor = scores.unflatten(0, (groups, -1))
        return by_group.mean([1, *(i + 1 for i in inner)], keepdim=True)
    return scores.mean([0, *inner], keepdim=True)


def spread(each: Tensor, shape: Sequence[int]) -> Tensor:
    """What `grouped` says of each group, for every weight of it.

    >>> spread(torch.tensor([[[1, 2]], [[3, 4]]]), (4, 2)).tolist()
    [[1, 2], [1, 2], [3, 4], [3, 4]]
    """
    if each.dim() > len(shape):
        return each.expand(-1, shape[0] // len(each), *shape[1:]).flatten(0, 1)
    return each.expand(*shape)


def _groups(values: Mapping[str, Tensor], structure: Structure, net: nn.Module | None) -> dict[str, Tensor]:
    """Of each layer by the name of its weight."""
    if net is None:
        return {name: grouped(value, structure) for name, value in values.items()}
    layers = {name: net.get_submodule(name.rpartition(".")[0]) for name in values}
    return {name: grouped(value, structure, layers[name]) for name, value in values.items()}


def keep_highest(
    scores: Mapping[str, Tensor],
    keep: float,
    scope: Scope = "global",
    structure: Structure = "weight",
    net: nn.Module | None = None,
) -> Masks:
    """Masks that keep this share of the weights, those of the highest scores, over all layers or in each.

    Whole groups are removed as long as they fit into the budget. Of equal scores, the first is removed first.
    `net`: whose weights they are, which columns and rows of grouped and transposed convolutions are told by.

    >>> keep_highest({"a": torch.tensor([[1.0, 5.0]]), "b": torch.tensor([[2.0, 9.0]])}, 0.5)
    {'a': tensor([[False,  True]]), 'b': tensor([[False,  True]])}
    """
    if scope == "layer":
        by_layer = [keep_highest({name: s}, keep, "global", structure, net) for name, s in scores.items()]
        return {name: mask for masks in by_layer for name, mask in masks.items()}
    groups = _groups(scores, structure, net)
    flat = torch.cat([g.flatten() for g in groups.values()])
    sizes = [scores[name].numel() // g.numel() for name, g in groups.items()]
    counts = torch.tensor([g.numel() for g in groups.values()])
    size = torch.tensor(sizes).repeat_interleave(counts).to(flat.device)  # weights in each group
    order = flat.argsort(stable=True)
    budget = round((1 - keep) * sum(s.numel() for s in scores.values()))
    gone = torch.zeros_like(flat, dtype=torch.bool).scatter_(0, order, size[order].cumsum(0) <= budget)
    parts_of_all = gone.split(counts.tolist())
    return {
        name: ~spread(masks.view(g.shape), scores[name].shape)
        for (name, g), masks in zip(groups.items(), parts_of_all, strict=True)
    }


@torch.no_grad()
def remove_lowest(
    masks: Mapping[str, Tensor],
    scores: Mapping[str, Tensor],
    count: int,
    structure: Structure = "weight",
    net: nn.Module | None = None,
) -> int:
    """Remove, in place, the `count` remaining weights or groups of the lowest scores; return how many there were.

    `net` as in `keep_highest`.

    >>> masks = {"a": torch.tensor([[False, True, True]])}
    >>> remove_lowest(masks, {"a": torch.tensor([[1.0, 3.0, 2.0]])}, 1), masks["a"].tolist()
    (1, [[False, True, False]])
    """
    groups = _groups(scores, structure, net)
    kept = _groups({name: masks[name].float() for name in groups}, structure, net)
    remains = torch.cat([g.flatten() > 0 for g in kept.values()])
    flat = torch.cat([g.flatten() for g in groups.values()]).masked_fill(~remains, math.inf)
    count = min(count, int(remains.sum()))
    # By rank, not by score: a score that is itself infinite must not count as removed.
    order = flat.argsort(stable=True)
    lowest = order[remains[order]][:count]
    gone = torch.zeros_like(remains).index_fill_(0, lowest, True)
    for (name, g), gone_here in zip(groups.items(), gone.split([g.numel() for g in groups.values()]), strict=True):
        masks[name].masked_fill_(spread(gone_here.view(g.shape), masks[name].shape), False)
    return count


def left(masks: Mapping[str, Tensor], structure: Structure = "weight", net: nn.Module | None = None) -> tuple[int, int]:
    """How many weights or groups remain, and of how many. `net` as in `keep_highest`.

    >>> left({"a": torch.tensor([[True, False], [False, False]])}), left({"a": torch.ones(2, 3).bool()}, "column")
    ((1, 4), (3, 3))
    """
    groups = _groups({name: mask.float() for name, mask in masks.items()}, structure, net).values()
    return sum(int((g > 0).sum()) for g in groups), sum(g.numel() for g in groups)


# Scores


def squares(net: nn.Module, layers: Sequence[str] = EVERY) -> Scores:
    """Each weight squared: its rank is that of its size, and a group's mean ranks groups by their norm."""
    return {name: weight_of(layer).square() for name, layer in prunable(net, layers).items()}


def chances(
    net: nn.Module, generator: torch.Generator, layers: Sequence[str] = EVERY, structure: Structure = "weight"
) -> Scores:
    """Random scores, one for each weight or group. Drawn on the CPU: the same on every device."""
    scores = {}
    for name, layer in prunable(net, layers).items():
        weight = weight_of(layer)
        drawn = torch.rand(grouped(weight, structure, layer).shape, generator=generator)
        scores[name] = spread(drawn.to(weight.device), weight.shape)
    return scores


class Moments:
    """Mean and variance of each unit in one pass, by Chan's update: no difference of large sums.

    >>> m = Moments()
    >>> for part in torch.tensor([[1.0], [3.0], [8.0]]).split(2):
    ...     m.update(part)
    >>> m.mean.tolist(), round(float(m.variance), 4)  # 26/3
    ([4.0], 8.6667)
    """

    def __init__(self) -> None:
        self.rows = 0
        self.mean = self.squares = torch.zeros(())

    @property
    def variance(self) -> Tensor:
        return self.squares / max(1, self.rows)

    @torch.no_grad()
    def update(self, values: Tensor) -> None:
        """Fold (n, units) in."""
        new = len(values)
        if not new:
            return
        variance, mean = (t.double() for t in torch.var_mean(values.float(), 0, correction=0))
        off, total = mean - self.mean.to(mean.device), self.rows + new
        self.squares = self.squares.to(mean.device) + variance * new + off.square() * self.rows * new / total
        self.mean = self.mean.to(mean.device) + off * new / total
        self.rows = total


@contextmanager
def watching(net: nn.Module, layers: Sequence[str] = EVERY) -> Iterator[dict[str, Moments]]:
    """The moments of what goes into each layer while the network runs, by the name of its weight.

    A unit of a convolution is a channel, over all its positions; the zeros of its padding do not count. Nor does the
    padding of texts, of which there is more or less by what else is in a batch, in layers that see (n, length, units).
    """
    moments = {name: Moments() for name in prunable(net, layers)}
    real: list[Tensor] = []  # (n, length): which tokens of the batch are none of padding

    def look(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        real[:] = [x[:, 1] > 0 for x in inputs[:1] if _is_text(x)]

    def note(name: str) -> Callable[..., None]:
        def hook(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            x = inputs[0].detach()
            units = x.movedim(1, -1) if isinstance(layer, _ConvNd) else x
            if real and units.dim() == 3 and units.shape[:2] == real[0].shape:
                units = units[real[0]]
            moments[name].update(units.reshape(-1, units.shape[-1]))

        return hook

    hooks = [net.register_forward_pre_hook(look)]
    hooks += [layer.register_forward_pre_hook(note(name)) for name, layer in prunable(net, layers).items()]
    try:
        yield moments
    finally:
        for hook in hooks:
            hook.remove()


def _is_text(x: Tensor) -> bool:
    """Whether these are samples of tokens, which carry their mask (spurless.data.tokens)."""
    return x.dim() == 3 and x.shape[1] == 2 and not x.is_floating_point()


def variability(
    net: nn.Module, moments: Mapping[str, Moments], kappa: Kappa = "absolute", units: bool = False
) -> Scores:
    """AVP's activation variability of each weight A from unit Z, or with `units` of the unit alone (A = 1).

    absolute:  |A| · Var(Z) / (|mean Z| + 10⁻⁶)    what definition 3.11 must mean if its sign carries nothing
    signed:     A · Var(Z) / mean Z                as printed: negative where A and the mean differ in sign
    variance:   A² · Var(Z)                        Var(A Z), what the text says ("low-variance activations")

    Layers that nothing went through have no score.
    """
    scores: Scores = {}
    for name, layer in prunable(net).items():
        if name not in moments or not moments[name].rows:
            continue
        spread, mean = moments[name].variance, moments[name].mean
        if kappa == "absolute":
            spread = spread / (mean.abs() + TINY)
        elif kappa == "signed":
            spread = spread / (mean + torch.where(mean < 0, -TINY, TINY))
        weight = weight_of(layer)
        share = torch.ones_like(weight) if units else {"absolute": weight.abs(), "signed": weight}.get(kappa)
        share = weight.square() if share is None else share
        scores[name] = share * by_input(spread.to(weight.dtype), layer)
    return scores


def by_input(values: Tensor, layer: nn.Module) -> Tensor:
    """A value for each input unit of a layer, in a shape that spreads over its weight.

    >>> by_input(torch.tensor([1.0, 2.0, 3.0, 4.0]), nn.Conv1d(4, 2, 1, groups=2))[..., 0]
    tensor([[1., 2.],
            [3., 4.]])
    """
    weight = weight_of(layer)
    inner = [1] * (weight.dim() - 2)
    if isinstance(layer, _ConvTransposeNd):
        return values.view(-1, 1, *inner)  # (in, 1, ...): its weight is (in, out / groups, ...)
    groups = layer.groups if isinstance(layer, _ConvNd) else 1
    each = values.view(groups, -1).repeat_interleave(len(weight) // groups, 0)  # (out, in / groups)
    return each.view(*each.shape, *inner) if groups > 1 else values.view(1, -1, *inner)
