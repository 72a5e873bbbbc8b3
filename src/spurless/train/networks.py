"""How a run makes its networks."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from spurless.core.data import Bundle, Images, Texts
from spurless.core.errors import UserError
from spurless.core.recipe import Recipe
from spurless.core.seeds import derive
from spurless.nets import Net, build
from spurless.nets.outputs import Inputs
from spurless.nets.small import LEAST, easy_cnn
from spurless.nets.text import embedding_bag

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


def easy_maker(data: Bundle, seed: int) -> Callable[[int], Net] | None:
    """How a run makes networks that learn what is easy: small ones for images, bags of words for texts."""
    shape, classes = data.shape, len(data.classes)
    if isinstance(data.inputs, Images) and min(shape[1:]) >= LEAST:
        return network_maker(functools.partial(easy_cnn, shape, classes), shape, classes, derive(seed, "easy"))
    if isinstance(data.inputs, Texts):
        words = 1 + max(int(split.x[:, 0].max()) for split in data.splits.values() if isinstance(split.x, Tensor))
        bag = functools.partial(embedding_bag, shape, classes, vocab=words)
        return network_maker(bag, shape, classes, derive(seed, "easy"))
    return None


def example_of(data: Bundle) -> Tensor:
    """Two inputs as a network sees them, to try a user's module on."""
    return Inputs(data, Recipe(channels_last=False), torch.device("cpu"))(data.train[torch.arange(2)])
