"""Which part of an input a network looks at, how much of that is the core feature, and pictures of it.

The maps come from Captum (pip install "spurless[attribution]"). They are computed on a copy of the network in
evaluation mode, so that nothing is left behind on the network itself: no hook, no gradient, no other mode.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn

from spurless.core.data import Bundle
from spurless.core.errors import UserError, one_of, unknown
from spurless.core.messages import log
from spurless.core.recipe import Recipe
from spurless.metrics import checks
from spurless.metrics.regions import Rows, device_of, rows_of
from spurless.metrics.regions import background_mask as background_mask
from spurless.metrics.regions import core_mask as core_mask
from spurless.metrics.regions import spurious_mask as spurious_mask
from spurless.nets import Net
from spurless.nets.outputs import Inputs

How = Literal["gradcam", "ig", "deeplift"]

# DeepLift's maps sum to f(x) - f(baseline) where its rules cover all of the network: to within 1e-7 of the sum of
# absolute values in networks from an MLP to ResNet-50. With one activation that they do not cover it was over 1e-2.
INCOMPLETE = 1e-3

# As functions and as methods of tensors.
ACTIVATIONS: dict[Any, type[nn.Module]] = dict.fromkeys(
    (nn.functional.relu, torch.relu, torch.relu_, "relu", "relu_"), nn.ReLU
)
ACTIVATIONS |= dict.fromkeys((nn.functional.tanh, torch.tanh, "tanh"), nn.Tanh)
ACTIVATIONS |= dict.fromkeys((nn.functional.sigmoid, torch.sigmoid, "sigmoid"), nn.Sigmoid)

# Of Okabe and Ito's palette, told apart with any colour vision: from weak to strong, for and against the target.
FOR = ((213, 94, 0), (240, 228, 66))
AGAINST = ((0, 114, 178), (86, 180, 233))


def attribute(
    net: nn.Module,
    x: Tensor,
    target: Tensor | int | None = None,
    how: How = "gradcam",
    *,
    of: Literal["logits", "features"] = "logits",
    baseline: Tensor | float = 0.0,
    steps: int = 50,
    layer: str | None = None,
    channels: Literal["sum", "abs"] = "sum",
    normalise: bool = False,
    batch_size: int = 256,
) -> Tensor:
    """(n, h, w): how much each pixel of the prepared images x (n, c, h, w) speaks for the target; (n, d) for vectors.

    `ig`        Integrated Gradients, (x − x₀) ∫ ∇f(x₀ + t (x − x₀)) dt, in `steps` points. A map sums to f(x) − f(x₀).
    `deeplift`  DeepLift, rescale rule: much cheaper, the same sum. A network with a part that its rules do not cover
                is refused.
    `gradcam`   Grad-CAM, relu(Σ_k A_k mean ∂f/∂A_k), scaled up to the image. A are the channels of the last
                convolution, after its normalisation and activation, or those of the layer of this name. Without a
                convolution it is `ig`, and that is said; `usable` tells beforehand.

    `target`: a class for all rows or for each; None: the one that the network predicts. With of="features" it is a
    unit of the penultimate layer. `baseline` is x₀, as the network would see it (`black` makes a black image).
    Channels are added up, or their absolute values are. `normalise` divides a map by its largest absolute value.
    `batch_size` counts rows that are in one forward pass, the steps of `ig` included.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(4, 2, bias=False))
    >>> _ = net[1].weight.data.copy_(torch.tensor([[1.0, 2, 0, 0], [0, 0, 3, 4]]))
    >>> attribute(net, torch.ones(1, 1, 2, 2), target=1, how="ig").round(decimals=3).tolist()
    [[[0.0, 0.0], [3.0, 4.0]]]
    """
    captum = _captum()
    one_of("attribution", how, ("gradcam", "ig", "deeplift"))
    one_of("way to join channels", channels, ("sum", "abs"))
    one_of("output to attribute", of, ("logits", "features"))
    x, steps = checks.inputs(x), checks.count(steps, "steps")
    if len(x) == 0:
        return torch.zeros(0, *(x.shape[2:] if x.dim() == 4 else x.shape[1:]))
    with torch.inference_mode(False), torch.enable_grad(), _quiet():
        module = _own_copy(net, of, x)
        width, last = _look(module, x[:1])
        if how == "gradcam" and layer is None and (last is None or x.dim() != 4):
            log.warning(f"{type(net).__name__} has no convolution for Grad-CAM: the maps are Integrated Gradients.")
            how = "ig"
        goal = _goal(target, len(x), width)
        start = _start(baseline, x)
        explain: Callable[[Tensor, Tensor, Tensor], Tensor]
        match how:
            case "gradcam":
                at = last if layer is None else _layer(module, layer)
                explain, rows = _gradcam(captum, module, at, layer), batch_size
            case "ig":
                explain, rows = _integrated(captum, module, steps), batch_size // steps
            case "deeplift":
                explain, rows = _deeplift(captum, module, type(net).__name__), batch_size // 2
        found = []
        place = device_of(module)
        for part in torch.arange(len(x)).split(max(1, rows)):
            here = x[part.to(x.device)].to(place).clone()  # one's own, which may also be used where x may not
            wanted = module(here).detach().argmax(1) if goal is None else goal[part].to(place)
            drawn = explain(here, start[part.to(start.device)].to(place), wanted).detach()
            if drawn.dim() == 4:
                drawn = drawn.sum(1) if channels == "sum" else drawn.abs().sum(1)  # (m, h, w)
            found.append(drawn.float().cpu())
    maps = torch.cat(found)
    if normalise:
        maps = maps / _per_row(maps.abs().flatten(1).amax(1), maps).clamp_min(torch.finfo(maps.dtype).tiny)
    return maps


def usable(net: nn.Module, how: How, shape: Sequence[int]) -> How:
    """What `attribute` will really do for inputs of this shape: Grad-CAM needs an image and a convolution.

    >>> usable(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), "gradcam", (1, 2, 2))
    'ig'
    """
    one_of("attribution", how, ("gradcam", "ig", "deeplift"))
    if how != "gradcam":
        return how
    with torch.inference_mode(False), torch.no_grad():
        module = copy.deepcopy(net).eval()
        found = len(shape) == 3 and _look(module, torch.zeros(1, *shape))[1] is not None
    return "gradcam" if found else "ig"


def attribute_rows(
    net: nn.Module, data: Bundle, split: str = "test", rows: Rows = None, how: How = "gradcam", **settings: Any
) -> Tensor:
    """(m, h, w): `attribute` for rows of a data set, for their own label unless a target is given; None: all rows.

    >>> from spurless.registry import load_data
    >>> toy = load_data({"name": "toy", "n": 20})
    >>> attribute_rows(nn.Linear(7, 2), toy, "test", [0, 5], how="ig").shape
    torch.Size([2, 7])
    """
    if data.tokens is not None:
        raise UserError(f"{data.name} holds texts; attribute_text of spurless.metrics.attribution_text is for them.")
    idx = rows_of(data, split, rows)
    settings.setdefault("target", data.splits[split].y[idx])
    return attribute(net, prepare(data, split, idx), how=how, **settings)


def prepare(data: Bundle, split: str = "test", rows: Rows = None) -> Tensor:
    """(m, ...): rows as a network sees them, without augmentation: scaled to 0..1 and standardised.

    >>> from spurless.core.data import Split
    >>> grey = Split(torch.full((2, 1, 1, 1), 255, dtype=torch.uint8), torch.tensor([0, 1]))
    >>> prepare(Bundle("grey", grey, mean=(0.5,), std=(0.25,)), "train", [1]).flatten().tolist()
    [2.0]
    """
    return Inputs(data, Recipe(channels_last=False), torch.device("cpu"))(
        data.splits[split][rows_of(data, split, rows)]
    )


def black(data: Bundle) -> Tensor:
    """(1, ...): a black image as a network sees it, to be a `baseline`; of vectors, all zeros.

    >>> from spurless.core.data import Split
    >>> grey = Split(torch.zeros(2, 1, 1, 1, dtype=torch.uint8), torch.tensor([0, 1]))
    >>> black(Bundle("grey", grey, mean=(0.5,), std=(0.25,))).flatten().tolist()
    [-2.0]
    """
    return Inputs(data, Recipe(channels_last=False), torch.device("cpu"))(torch.zeros(1, *data.shape))


def share(maps: Tensor, mask: Tensor) -> Tensor:
    """(n,): the share Σ_mask |m| / Σ |m| of each map that is inside the mask (n, h, w) or (h, w).

    NaN for a map that is 0 everywhere: it says nothing.

    >>> share(torch.tensor([[[1.0, -2.0], [0.0, 1.0]]]), torch.tensor([[True, True], [False, False]])).tolist()
    [0.75]
    """
    maps, mask = places(maps), checks.tensor(mask, "mask")
    if mask.dtype != torch.bool or mask.shape not in (maps.shape, maps.shape[1:]):
        raise UserError(
            f"A mask holds True and False for each of {tuple(maps.shape[1:])} places, of each map or of all; "
            f"this one is {str(mask.dtype).removeprefix('torch.')} of shape {tuple(mask.shape)}."
        )
    weight = maps.abs().double()
    inside = (weight * mask.to(maps.device)).flatten(1).sum(1)
    return (inside / weight.flatten(1).sum(1)).float()


def entropy(maps: Tensor, relative: bool = False) -> Tensor:
    """(n,): the entropy −Σ p log p of each map, p = |m| / Σ |m|, in nats: high where a network looks everywhere.

    relative=True divides it by that of an even map, log(h w). NaN for a map that is 0 everywhere.

    >>> entropy(torch.tensor([[[1.0, 1.0], [1.0, -1.0]], [[0.0, 5.0], [0.0, 0.0]]]), relative=True).tolist()
    [1.0, 0.0]
    """
    weight = places(maps).abs().double().flatten(1)
    p = weight / weight.sum(1, keepdim=True)  # (n, places)
    nats: Tensor = torch.special.entr(p).sum(1)
    return (nats / math.log(p.shape[1]) if relative else nats).float()


def places(maps: Tensor) -> Tensor:
    """Maps (n, h, w), or (n, d) of vectors, as a tensor."""
    found = checks.tensor(maps, "maps")
    if found.dim() < 2 or 0 in found.shape[1:]:
        raise UserError(f"Maps are rows of at least one place; these are of shape {tuple(found.shape)}.")
    return found


def unit_shares(
    net: nn.Module,
    x: Tensor,
    mask: Tensor,
    units: Tensor | Sequence[int],
    how: Literal["ig", "deeplift"] = "ig",
    **settings: Any,
) -> Tensor:
    """(u,): for units of the penultimate layer, the mean share of their attribution that is inside the mask.

    With a mask of the spurious feature it is the spurious feature utilisation of single neurons. Rows of which a unit
    has no attribution at all are left out; NaN where that is all of them.

    >>> net = nn.Sequential(nn.Linear(3, 2, bias=False), nn.ReLU(), nn.Linear(2, 2))
    >>> _ = net[0].weight.data.copy_(torch.tensor([[1.0, 3.0, 0.0], [0.0, 0.0, 1.0]]))
    >>> unit_shares(net, torch.ones(4, 3), torch.tensor([True, False, False]), [0, 1]).tolist()
    [0.25, 0.0]
    """
    numbers = checks.tensor(units, "units").flatten().tolist()
    found = [share(attribute(net, x, unit, how, of="features", **settings), mask).nanmean() for unit in numbers]
    return torch.stack(found) if found else torch.zeros(0)


def overlay(image: Tensor, heat: Tensor, strength: float = 0.85) -> Tensor:
    """uint8 (3, h, w): a map (h, w) on its image, uint8 (c, h, w); whole batches, too.

    The image turns grey, so that all colour is heat: orange to yellow speaks for the target, blue against it, and the
    largest absolute value of the map is the strongest. With a map of zeros (or NaN) the image is only grey.

    >>> overlay(torch.zeros(1, 1, 2, dtype=torch.uint8), torch.tensor([[0.0, 1.0]]), strength=1.0).tolist()
    [[[0, 240]], [[0, 228]], [[0, 66]]]
    """
    image, heat = checks.tensor(image, "image"), checks.tensor(heat, "heat")
    checks.share(strength, "strength")
    fits = image.dim() == heat.dim() + 1 >= 3 and (*image.shape[:-3], *image.shape[-2:]) == heat.shape
    if image.dtype != torch.uint8 or not fits or 0 in image.shape[-3:]:
        raise UserError(
            f"overlay takes uint8 images (c, h, w) and maps (h, w) of the same size, not "
            f"{str(image.dtype).removeprefix('torch.')} {tuple(image.shape)} and {tuple(heat.shape)}."
        )
    luma = torch.tensor([0.299, 0.587, 0.114]) if image.shape[-3] == 3 else torch.ones(image.shape[-3])
    grey = (image.cpu().float() * (luma / luma.sum()).view(-1, 1, 1)).sum(-3)  # (..., h, w)
    heat = heat.detach().cpu().float().nan_to_num(0.0, 0.0, 0.0)
    scaled = heat / heat.abs().amax((-2, -1), keepdim=True).clamp_min(torch.finfo(heat.dtype).tiny)
    level = scaled.abs().unsqueeze(-3)  # (..., 1, h, w)
    ends = torch.tensor([FOR, AGAINST], dtype=torch.float32)[(scaled < 0).long()]  # (..., h, w, 2, 3)
    weak, strong = (end.movedim(-1, -3) for end in ends.unbind(-2))  # (..., 3, h, w) each
    colour = torch.lerp(weak, strong, level.expand_as(weak))
    return torch.lerp(grey.unsqueeze(-3).expand_as(colour), colour, strength * level).round().to(torch.uint8)


# The methods, each as a function of inputs, baselines and targets: attributions (m, c, h, w), or (m, d) of vectors.


def _integrated(captum: Any, module: nn.Module, steps: int) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    found = captum.IntegratedGradients(module)
    return lambda x, start, target: found.attribute(x, start, target=target, n_steps=steps)


def _gradcam(
    captum: Any, module: nn.Module, layer: nn.Module | None, name: str | None
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    found = captum.LayerGradCam(module, layer)

    def explain(x: Tensor, start: Tensor, target: Tensor) -> Tensor:
        small = found.attribute(x, target=target, relu_attributions=True)  # (m, 1, h', w')
        if x.dim() != 4 or small.dim() != 4:
            raise UserError(f"Layer '{name}' gives no picture, which Grad-CAM needs; name a convolution of images.")
        return nn.functional.interpolate(small, x.shape[-2:], mode="bilinear", align_corners=False)

    return explain


def _deeplift(captum: Any, module: nn.Module, kind: str) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    flat = _unrolled(module)
    found = captum.DeepLift(flat)

    def explain(x: Tensor, start: Tensor, target: Tensor) -> Tensor:
        try:
            drawn = found.attribute(x, start, target=target)
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
            part = graph.get_submodule(str(node.target))
            if isinstance(part, nn.MaxPool2d) and not _overlaps(part):
                # Captum's hooks on one tensor come in the wrong order where a ReLU's output is the input of a pool.
                with graph.graph.inserting_before(node):
                    node.args = (graph.graph.call_function(torch.clone, node.args[:1]), *node.args[1:])
            if part not in used or next(part.parameters(), None) is not None:
                used.add(part)
                continue
            fresh, args, kwargs = copy.deepcopy(part), node.args, node.kwargs
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


def _own_copy(net: nn.Module, of: str, x: Tensor) -> nn.Module:
    """A copy in evaluation mode, without operations in place, whose outputs (n, outputs) are to be explained."""
    if of == "features" and not isinstance(net, Net):
        net = checks.as_net(net, x[:2].to(device_of(net)))
    try:
        module: nn.Module = copy.deepcopy(net).eval().requires_grad_(False)
    except Exception as error:
        raise UserError(f"{type(net).__name__} cannot be copied (copy.deepcopy): {error}") from None
    for part in module.modules():
        if getattr(part, "inplace", False) is True:
            part.inplace = False  # type: ignore[assignment]
    return nn.Sequential(module.get_submodule("encoder"), nn.Flatten(1)) if of == "features" else module


def _look(module: nn.Module, example: Tensor) -> tuple[int, nn.Module | None]:
    """How many outputs the module has, and which layer Grad-CAM should look at, if there is a convolution.

    That is the last convolution that still has a picture (more than one place), or rather what is made of it at the
    same size: its normalisation, its activation, the block that it ends. Before the activation most values can be
    negative, and maps turn out empty.
    """
    calls: list[tuple[nn.Module, tuple[int, ...]]] = []

    def watch(layer: nn.Module, _: Any, out: Any) -> None:
        calls.append((layer, tuple(out.shape) if isinstance(out, Tensor) else ()))

    # In the order of the calls: a module may list its layers in any order.
    hooks = [part.register_forward_hook(watch) for part in module.modules() if part is not module]
    try:
        with torch.no_grad(), checks.asking(module, example):
            out = module(example.to(device_of(module)))
    finally:
        for hook in hooks:
            hook.remove()
    if not isinstance(out, Tensor) or out.dim() != 2:
        raise UserError(f"{type(module).__name__} must return a tensor (n, classes) for its output to be explained.")
    found: nn.Module | None = None
    size: tuple[int, ...] | None = None
    uses = Counter(layer for layer, _ in calls)
    for layer, shape in calls:
        if isinstance(layer, nn.Conv2d) and len(shape) == 4 and math.prod(shape[2:]) > 1:
            found, size = layer, shape
        elif shape == size:
            found = layer if uses[layer] == 1 else found  # of a layer with several uses Captum takes just one
        else:
            size = None
    return out.shape[1], found


def _layer(module: nn.Module, name: str) -> nn.Module:
    layers: dict[str, nn.Module] = dict(module.named_modules())
    if name not in layers:
        raise unknown("layer", name, (key for key, part in layers.items() if isinstance(part, nn.Conv2d)))
    return layers[name]


def _goal(target: Tensor | int | None, n: int, width: int) -> Tensor | None:
    if target is None:
        return None
    wanted = checks.tensor(target, "target").cpu()
    wanted = wanted.expand(n) if wanted.dim() == 0 else wanted
    goal = wanted.long()
    if goal.shape != (n,) or (goal != wanted).any() or not (0 <= int(goal.min()) <= int(goal.max()) < width):
        raise UserError(f"target must hold one number from 0 to {width - 1} for each of {n} rows, or one for all.")
    return goal


def _start(baseline: Tensor | float, x: Tensor) -> Tensor:
    start = checks.tensor(baseline, "baseline").to(x.dtype)
    try:
        return start.expand(x.shape)
    except RuntimeError:
        raise UserError(
            f"baseline is a number, or of the shape of one row or of all, {tuple(x.shape)}, not {tuple(start.shape)}."
        ) from None


def _per_row(values: Tensor, like: Tensor) -> Tensor:
    return values.view(-1, *[1] * (like.dim() - 1))


def _captum() -> Any:
    with _quiet():
        try:
            import captum.attr
        except ImportError:
            raise UserError('Attribution maps need the captum package: pip install "spurless[attribution]"') from None
    return captum.attr


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Captum's warnings about hooks and gradients, which are on a copy here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"\s*(Setting (forward|backward)|Input Tensor \d+ )")
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"captum")
        yield
