"""Which linear layer of a module is its head. A guess would train the wrong function in silence, so nothing is guessed:
the head's output must be the module's output, in its graph or in a run of it."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, fx, nn

from spurless.core.errors import UserError, first_line, unknown


def find_head(module: nn.Module, head: str | None, example: Tensor | None) -> str:
    """The name of the linear layer whose output is the module's output; a UserError where there is no such layer."""
    kind = type(module).__name__
    layers = {name: layer for name, layer in module.named_modules() if isinstance(layer, nn.Linear)}
    if not layers:
        raise UserError(f"{kind} has no linear layer (nn.Linear) that could be its head; end it with one.")
    if head is not None and head not in layers:
        raise unknown("linear layer", head, layers)
    if "" in layers:
        return ""
    try:
        heads = _traced_head(module)
    except _CannotTrace as reason:
        if example is None:
            pass_name = "" if head or len(layers) == 1 else "head=NAME and "
            raise UserError(
                f"{kind} cannot be traced ({reason}), so its head cannot be told from its code. Pass {pass_name}"
                f"example=a small batch of inputs; its linear layers are: {_listed(layers)}."
            ) from None
        heads = _seen_head(module, layers, example)
    if heads is None:
        raise UserError(
            f"{kind} does not return the output of one of its linear layers ({_listed(layers)}): something comes "
            "after it, such as a softmax. Return the logits, or pass the part of the module that does."
        )
    if head is not None and heads != head:
        raise UserError(f"{kind} returns the output of '{heads}', not of '{head}'; pass head='{heads}'.")
    return heads


PLACES_OF_HEAD = "_places_of_head"  # an attribute of a module whose head was taken off: (path, name) of each


def take_off(module: nn.Module, head: nn.Linear) -> nn.Module:
    """The module without its head: an Identity takes its place, under every name that it has."""
    if module is head:
        module, places = nn.Identity(), []
    else:
        places = [
            (path, name)
            for path, parent in module.named_modules()
            for name, child in parent._modules.items()  # named_children() leaves out second names
            if child is head
        ]
        for path, name in places:
            setattr(module.get_submodule(path), name, nn.Identity())
    setattr(module, PLACES_OF_HEAD, places)
    return module


def put_back(module: nn.Module, head: nn.Linear) -> nn.Module | None:
    """The module that `take_off` took the head from, with this head; None if no head was taken from it.

    >>> own = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> [*put_back(take_off(own, own[2]), nn.Linear(3, 2)).state_dict()]
    ['0.weight', '0.bias', '2.weight', '2.bias']
    """
    places = getattr(module, PLACES_OF_HEAD, None)
    if places is None:
        return None
    for path, name in places:
        setattr(module.get_submodule(path), name, head)
    return module if places else head


def logits(module: nn.Module, example: Tensor) -> Tensor:
    """What the module gives for the example, in evaluation mode."""
    with evaluating(module), torch.no_grad():
        result: Tensor = module(example)
        return result


def check_same(net: nn.Module, example: Tensor, expected: Tensor, kind: str) -> None:
    """Raise a UserError unless the net gives these logits (n, classes) for the example."""
    if expected.dim() != 2:
        raise UserError(f"{kind} returns a tensor of shape {tuple(expected.shape)}; logits have (n, classes).")
    if not torch.allclose(logits(net, example), expected, rtol=1e-5, atol=1e-6, equal_nan=True):
        raise UserError(
            f"{kind} gives other outputs once it is split into encoder and head. Let it return the logits of its "
            "last linear layer, and use that layer nowhere else."
        )


@contextmanager
def evaluating(*modules: nn.Module) -> Iterator[None]:
    """In evaluation mode for a while; each part gets its own mode back."""
    modes = [(child, child.training) for module in modules for child in module.modules()]
    for module in modules:
        module.eval()
    try:
        yield
    finally:
        for child, mode in modes:
            child.training = mode


class _CannotTrace(Exception):
    pass


class _Tracer(fx.Tracer):
    """Looks only into modules that hold a linear layer, so that the inside of the others need not be traceable."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if isinstance(m, nn.Linear) or super().is_leaf_module(m, module_qualified_name):
            return True
        return not any(isinstance(child, nn.Linear) for child in m.modules())


def _traced_head(module: nn.Module) -> str | None:
    """The layer that the graph ends in, in training and in evaluation mode; None if it ends in something else."""
    module = copy.deepcopy(module)  # one that keeps its activations would keep the tracer's stand-ins for them
    layers = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for mode in (True, False):
            try:
                graph = _Tracer().trace(module.train(mode))
            except Exception as error:
                raise _CannotTrace(first_line(error)) from None
            layers.add(_last_layer(graph, module))
    return layers.pop() if len(layers) == 1 else None


def _last_layer(graph: fx.Graph, module: nn.Module) -> str | None:
    last = next(node for node in graph.nodes if node.op == "output").args[0]
    # A second user of an output would be an operation in place on it, or a second result made of it.
    while isinstance(last, fx.Node) and last.op == "call_module" and len(last.users) == 1:
        owner = module.get_submodule(str(last.target))
        if isinstance(owner, nn.Linear):
            calls = sum(node.op == "call_module" and node.target == last.target for node in graph.nodes)
            return str(last.target) if calls == 1 else None
        if type(owner) is not nn.Identity:
            return None
        last = last.args[0]
    return None


def _seen_head(module: nn.Module, layers: dict[str, nn.Linear], example: Tensor) -> str | None:
    """The layer that returned, in its only call, the very tensor that the module returns, unchanged since."""
    calls: dict[str, list[tuple[Tensor, int]]] = {name: [] for name in layers}

    def watch(name: str, layer: nn.Linear) -> torch.utils.hooks.RemovableHandle:
        # The version of a tensor counts the operations in place on it.
        return layer.register_forward_hook(lambda _, args, out: calls[name].append((out, out._version)))

    hooks = [watch(name, layer) for name, layer in layers.items()]
    try:
        result = logits(module, example)
    finally:
        for hook in hooks:
            hook.remove()
    for name, outputs in calls.items():
        if len(outputs) == 1 and outputs[0][0] is result and outputs[0][1] == result._version:
            return name
    return None


def _listed(layers: dict[str, nn.Linear]) -> str:
    names = list(layers)
    return ", ".join(names if len(names) <= 8 else [*names[:2], "...", *names[-5:]])
