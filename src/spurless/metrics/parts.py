"""Parts of a network whose gradients and weights are told apart: its blocks, or the units that look at the core and at
the spurious feature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from torch import Tensor, nn

from spurless.core.data import Bundle
from spurless.core.errors import UserError, unknown
from spurless.metrics import checks
from spurless.metrics.regions import core_mask, first_rows, spurious_mask
from spurless.nets import Net

Parts = Mapping[str, Mapping[str, Tensor | None]]  # name -> parameter -> which of its entries; None: all


class Column(NamedTuple):
    """A parameter, or some of its entries, whose norm counts to a part of the network."""

    part: str
    parameter: Tensor
    mask: Tensor | None

    def cut(self, values: Tensor) -> Tensor:
        return values if self.mask is None else values * self.mask


def columns_of(model: nn.Module, parts: Parts | None, indices: set[int]) -> list[Column]:
    """Of what is trained, what counts to which part."""
    named = dict(model.named_parameters())
    if parts is None:
        blocks = {name: ".".join(name.split(".")[:-1][:2]) or name for name in named}
        return [Column(blocks[name], p, None) for name, p in named.items() if id(p) in indices]
    columns = []
    for part_name, entries in parts.items():
        for name, mask in entries.items():
            if name not in named:
                raise unknown("parameter", name, named)
            like = None if mask is None else _mask(mask, name, named[name])
            columns += [Column(part_name, named[name], like)] if id(named[name]) in indices else []
    return columns


def _mask(mask: Tensor, name: str, parameter: Tensor) -> Tensor:
    chosen = checks.tensor(mask, f"The mask of '{name}'").to(parameter)
    try:
        return chosen.expand_as(parameter)
    except RuntimeError:
        raise UserError(
            f"The mask of '{name}' must have its shape, {tuple(parameter.shape)}, not {tuple(chosen.shape)}."
        ) from None


def unit_parts(
    net: nn.Module,
    data: Bundle,
    split: str = "test",
    rows: int = 32,
    steps: int = 16,
    how: Literal["ig", "deeplift"] = "ig",
) -> dict[str, dict[str, Tensor]]:
    """Two parts of a network, `core` and `spurious`: what leads into and out of the units of its penultimate layer that
    look more at the core, and more at the spurious feature, by attribution; for `Dynamics(parts=...)`.

    A unit's own weights are its column of the head, and its row (or filter) of the last layer before it that has as
    many outputs. Units without any attribution belong to neither. A run with the same seed trains the same network
    again, so that the parts of a trained network can be watched from its first step on.

    >>> import torch
    >>> from spurless.registry import load_data
    >>> net = Net.wrap(nn.Sequential(nn.Linear(7, 2), nn.ReLU(), nn.Linear(2, 2)))
    >>> _ = net.encoder[0].weight.data.copy_(torch.eye(7)[[0, 2]]), net.encoder[0].bias.data.zero_()
    >>> parts = unit_parts(net, load_data({"name": "toy", "n": 20}))
    >>> parts["core"]["head.weight"].tolist(), parts["spurious"]["encoder.0.weight"][:, 0].tolist()
    ([[True, False], [True, False]], [False, True])
    """
    from spurless.metrics.attribution import prepare, unit_shares
    from spurless.metrics.compress import layers
    from spurless.metrics.feature_use import some_rows

    if not isinstance(net, Net):
        raise UserError("unit_parts takes a trained run's classifier, or Net.wrap(your module).")
    first_rows(data, split)  # refuses a split without any
    idx = some_rows(data, split, rows)
    x, every = prepare(data, split, idx), range(net.feature_dim)
    on_core = unit_shares(net, x, core_mask(data, split, idx), every, how, steps=steps)
    on_spurious = unit_shares(net, x, spurious_mask(data, split, idx), every, how, steps=steps)
    last = [(name, layer) for name, layer in layers(net.encoder).items() if layer.weight.shape[0] == net.feature_dim]
    by_part = {}
    for part_name, units in (("core", on_core > on_spurious), ("spurious", on_spurious > on_core)):
        entries = {"head.weight": units[None, :].expand(net.classes, -1)}
        for name, layer in last[-1:]:
            wide = units.view(-1, *[1] * (layer.weight.dim() - 1))
            entries[f"encoder.{name}.weight"] = wide.expand_as(layer.weight)
            if layer.bias is not None:
                entries[f"encoder.{name}.bias"] = units
        by_part[part_name] = entries
    return by_part
