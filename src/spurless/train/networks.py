"""How a run makes its networks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from spurless.core.data import Bundle
from spurless.core.errors import UserError
from spurless.core.recipe import Recipe
from spurless.core.seeds import derive
from spurless.nets import Net, build
from spurless.nets.outputs import Inputs

NetSpec = str | Mapping[str, Any] | nn.Module | Callable[[], nn.Module]


def network_maker(
    spec: NetSpec, shape: tuple[int, ...], classes: int, seed: int, example: Tensor | None = None
) -> Callable[[int], Net]:
    """How a run makes its networks: from a name, from a factory, or as copies of the user's own module."""

    def make(count: int) -> Net:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive(seed, "net", count))
            if isinstance(spec, Net):
                return copy.deepcopy(spec)
            if isinstance(spec, (str, Mapping)):
                return build(spec, shape, classes)
            module = spec if isinstance(spec, nn.Module) else spec()
            net = module if isinstance(module, Net) else Net.wrap(module, example=example)
            if net.classes < classes:
                raise UserError(
                    f"{type(module).__name__} has {net.classes} outputs, and there are {classes} classes: it must give "
                    "a number for each."
                )
            return net

    return make


def example_of(data: Bundle) -> Tensor:
    """Two inputs as a network sees them, to try a user's module on."""
    return Inputs(data, Recipe(channels_last=False), torch.device("cpu"))(data.train[torch.arange(2)])
