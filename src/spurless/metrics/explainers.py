"""Captum's explainers on a copy of a network in evaluation mode, with what they need to know of the network."""

from __future__ import annotations

import copy
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx, nn

from spurless.core.errors import UserError, unknown
from spurless.core.extras import missing
from spurless.metrics import checks
from spurless.metrics.regions import device_of

# DeepLift's maps sum to f(x) - f(baseline) where its rules cover all of the network: to within 1e-7 of the sum of
# absolute values in networks from an MLP to ResNet-50. With one activation that they do not cover it was over 1e-2.
INCOMPLETE = 1e-3

# As functions and as methods of tensors.
ACTIVATIONS: dict[Any, type[nn.Module]] = dict.fromkeys(
    (nn.functional.relu, torch.relu, torch.relu_, "relu", "relu_"), nn.ReLU
)
ACTIVATIONS |= dict.fromkeys((nn.functional.tanh, torch.tanh, "tanh"), nn.Tanh)
ACTIVATIONS |= dict.fromkeys((nn.functional.sigmoid, torch.sigmoid, "sigmoid"), nn.Sigmoid)

Explain = Callable[[Tensor, Tensor, Tensor], Tensor]  # of inputs, baselines and targets: (m, c, h, w), or (m, d)


def integrated_gradients(captum: Any, module: nn.Module, steps: int) -> Explain:
    explainer = captum.IntegratedGradients(module)
    return lambda x, start, target: explainer.attribute(x, start, target=target, n_steps=steps)


def grad_cam(captum: Any, module: nn.Module, layer: nn.Module | None, name: str | None) -> Explain:
    explainer = captum.LayerGradCam(module, layer)

    def explain(x: Tensor, start: Tensor, target: Tensor) -> Tensor:
        small = explainer.attribute(x, target=target, relu_attributions=True)  # (m, 1, h', w')
        if x.dim() != 4 or small.dim() != 4:
            raise UserError(f"Layer '{name}' gives no picture, which Grad-CAM needs; name a convolution of images.")
        return nn.functional.interpolate(small, x.shape[-2:], mode="bilinear", align_corners=False)

    return explain


def deep_lift(captum: Any, module: nn.Module, kind: str) -> Explain:
    flat = _unrolled(module)
    explainer = captum.DeepLift(flat)

    def explain(x: Tensor, start: Tensor, target: Tensor) -> Tensor:
        try:
            drawn = explainer.attribute(x, start, target=target)
        except (RuntimeError, AssertionError) as error:
            if "out of memory" in str(error):
                raise
            raise _not_covered(kind) from None
        with torch.no_grad():
            change = (flat(x) - flat(start)).gather(1, target[:, None])[:, 0]  # (m,)
        maps: Tensor = drawn.detach()
        flattened = maps.flatten(1).double()
        off = (flattened.sum(1) - change).abs()
        if bool((off > INCOMPLETE * flattened.abs().sum(1) + 1e-6).any()):
            raise _not_covered(kind)
        return maps

    return explain


def _not_covered(kind: str) -> UserError:
    return UserError(
        f"DeepLift has no rule for a part of {kind}: it knows ReLU, LeakyReLU, ELU, Softplus, Sigmoid, Tanh and max "
        'pooling whose windows do not overlap, besides linear layers; use how="ig".'
    )


def _unrolled(module: nn.Module) -> nn.Module:
    """The same network with an activation module of its own for each use: DeepLift keeps one input in each.

    A network that cannot be traced stays as it is; DeepLift then sees its functional activations as linear, and the
    sum of its attributions gives that away.
    """
    try:
        graph = fx.symbolic_trace(module)
    except Exception:
        return module
    used: set[nn.Module] = set()
    for number, node in enumerate(list(graph.graph.nodes)):
        if node.op == "call_module":
            child = graph.get_submodule(str(node.target))
            if isinstance(child, nn.MaxPool2d) and not _overlaps(child):
                # Captum's hooks on one tensor come in the wrong order where a ReLU's output is the input of a pool.
                with graph.graph.inserting_before(node):
                    node.args = (graph.graph.call_function(torch.clone, node.args[:1]), *node.args[1:])
            if child not in used or next(child.parameters(), None) is not None:
                used.add(child)
                continue
            fresh, args, kwargs = copy.deepcopy(child), node.args, node.kwargs
        elif node.op in ("call_function", "call_method") and node.target in ACTIVATIONS:
            fresh, args, kwargs = ACTIVATIONS[node.target](), node.args[:1] or (node.kwargs["input"],), {}
        else:
            continue
        name = f"activation_{number}"
        graph.add_submodule(name, fresh)
        with graph.graph.inserting_before(node):
            new = graph.graph.call_module(name, args, kwargs)
        node.replace_all_uses_with(new)
        graph.graph.erase_node(node)
    graph.recompile()
    return graph


def _overlaps(pool: nn.MaxPool2d) -> bool:
    kernel, stride = (v if isinstance(v, tuple) else (v, v) for v in (pool.kernel_size, pool.stride))
    return any(k > s for k, s in zip(kernel, stride, strict=True))


# What they need to know of a network.


def own_copy(net: nn.Module) -> nn.Module:
    """A copy in evaluation mode, without operations in place, whose outputs (n, outputs) are to be explained."""
    try:
        module: nn.Module = copy.deepcopy(net).eval().requires_grad_(False)
    except Exception as error:
        raise UserError(f"{type(net).__name__} cannot be copied (copy.deepcopy): {error}") from None
    for child in module.modules():
        if getattr(child, "inplace", False) is True:
            child.inplace = False  # type: ignore[assignment]
    return module


def outputs_and_last_block(module: nn.Module, example: Tensor) -> tuple[int, nn.Module | None]:
    """How many outputs the module has, and which layer Grad-CAM should look at, if there is a convolution.

    That is the last convolution that still has a picture (more than one place), or rather what is made of it at the
    same size: its normalisation, its activation, the block that it ends. Before the activation most values can be
    negative, and maps turn out empty.
    """
    calls: list[tuple[nn.Module, tuple[int, ...]]] = []

    def watch(layer: nn.Module, _: Any, out: Any) -> None:
        calls.append((layer, tuple(out.shape) if isinstance(out, Tensor) else ()))

    # In the order of the calls: a module may list its layers in any order.
    hooks = [child.register_forward_hook(watch) for child in module.modules() if child is not module]
    try:
        with torch.no_grad(), checks.asking(module, example):
            out = module(example.to(device_of(module)))
    finally:
        for hook in hooks:
            hook.remove()
    if not isinstance(out, Tensor) or out.dim() != 2:
        raise UserError(f"{type(module).__name__} must return a tensor (n, classes) for its output to be explained.")
    last: nn.Module | None = None
    size: tuple[int, ...] | None = None
    uses = Counter(layer for layer, _ in calls)
    for layer, shape in calls:
        if isinstance(layer, nn.Conv2d) and len(shape) == 4 and math.prod(shape[2:]) > 1:
            last, size = layer, shape
        elif shape == size:
            last = layer if uses[layer] == 1 else last  # of a layer with several uses Captum takes just one
        else:
            size = None
    return out.shape[1], last


def layer_named(module: nn.Module, name: str) -> nn.Module:
    layers: dict[str, nn.Module] = dict(module.named_modules())
    if name not in layers:
        raise unknown("layer", name, (key for key, child in layers.items() if isinstance(child, nn.Conv2d)))
    return layers[name]


def captum_attr() -> Any:
    with quiet():
        try:
            import captum.attr
        except ImportError:
            raise missing("Attribution", "attribution") from None
    return captum.attr


@contextmanager
def quiet() -> Iterator[None]:
    """Without Captum's warnings about hooks and gradients, which are on a copy here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"\s*(Setting (forward|backward)|Input Tensor \d+ )")
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"captum")
        yield
