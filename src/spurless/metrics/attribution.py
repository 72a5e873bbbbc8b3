"""Which part of an input a network relies on, how much of that is the core feature, and pictures of it.

The maps come from Captum (pip install "spurless[attribution]"). They are computed on a copy of the network in
evaluation mode, so that nothing is left behind on the network itself: no hook, no gradient, no other mode.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from spurless.core.data import Bundle, Texts
from spurless.core.errors import UserError, one_of
from spurless.core.messages import log
from spurless.core.recipe import Recipe
from spurless.metrics import checks
from spurless.metrics.explainers import (
    captum_attr,
    deep_lift,
    grad_cam,
    integrated_gradients,
    layer_named,
    outputs_and_last_block,
    own_copy,
    quiet,
)
from spurless.metrics.maps import entropy as entropy
from spurless.metrics.maps import overlay as overlay
from spurless.metrics.maps import share as share
from spurless.metrics.regions import Rows, device_of, rows_of
from spurless.metrics.regions import background_mask as background_mask
from spurless.metrics.regions import core_mask as core_mask
from spurless.metrics.regions import spurious_mask as spurious_mask
from spurless.nets.outputs import Inputs

How = Literal["gradcam", "ig", "deeplift"]


def attribute(
    net: nn.Module,
    x: Tensor,
    target: Tensor | int | None = None,
    how: How = "gradcam",
    *,
    baseline: Tensor | float = 0.0,
    steps: int = 50,
    layer: str | None = None,
    channels: Literal["sum", "abs"] = "sum",
    batch_size: int = 256,
) -> Tensor:
    """(n, h, w): how much each pixel of the prepared images x (n, c, h, w) speaks for the target; (n, d) for vectors.

    `ig`        Integrated Gradients, (x − x₀) ∫ ∇f(x₀ + t (x − x₀)) dt, in `steps` points. A map sums to f(x) − f(x₀).
    `deeplift`  DeepLift, rescale rule: much cheaper, the same sum. A network with a part that its rules do not cover
                is refused.
    `gradcam`   Grad-CAM, relu(Σ_k A_k mean ∂f/∂A_k), scaled up to the image. A are the channels of the last
                convolution, after its normalisation and activation, or those of the layer of this name. Without a
                convolution it is `ig`, and that is said; `usable` tells beforehand.

    `target`: a class for all samples or for each; None: the one that the network predicts. `baseline` is x₀, as the
    network would see it (`black` makes a black image). Channels are added up, or their absolute values are.
    `batch_size` counts the samples of one forward pass, the steps of `ig` included.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(4, 2, bias=False))
    >>> _ = net[1].weight.data.copy_(torch.tensor([[1.0, 2, 0, 0], [0, 0, 3, 4]]))
    >>> attribute(net, torch.ones(1, 1, 2, 2), target=1, how="ig").round(decimals=3).tolist()
    [[[0.0, 0.0], [3.0, 4.0]]]
    """
    captum = captum_attr()
    one_of("attribution", how, ("gradcam", "ig", "deeplift"))
    one_of("way to join channels", channels, ("sum", "abs"))
    x, steps = checks.inputs(x), checks.count(steps, "steps")
    if len(x) == 0:
        return torch.zeros(0, *(x.shape[2:] if x.dim() == 4 else x.shape[1:]))
    with torch.inference_mode(False), torch.enable_grad(), quiet():
        module = own_copy(net)
        width, last = outputs_and_last_block(module, x[:1])
        if how == "gradcam" and layer is None and (last is None or x.dim() != 4):
            log.warning(f"{type(net).__name__} has no convolution for Grad-CAM: the maps are Integrated Gradients.")
            how = "ig"
        goal, start = classes_to_explain(target, len(x), width), _start(baseline, x)
        match how:
            case "gradcam":
                at = last if layer is None else layer_named(module, layer)
                explain, rows = grad_cam(captum, module, at, layer), batch_size
            case "ig":
                explain, rows = integrated_gradients(captum, module, steps), batch_size // steps
            case "deeplift":
                explain, rows = deep_lift(captum, module, type(net).__name__), batch_size // 2
        maps, device = [], device_of(module)
        for idx in torch.arange(len(x)).split(max(1, rows)):
            batch = x[idx.to(x.device)].to(device).clone()  # one's own, which may also be used where x may not
            wanted = module(batch).detach().argmax(1) if goal is None else goal[idx].to(device)
            drawn = explain(batch, start[idx.to(start.device)].to(device), wanted).detach()
            if drawn.dim() == 4:
                drawn = drawn.sum(1) if channels == "sum" else drawn.abs().sum(1)  # (m, h, w)
            maps.append(drawn.float().cpu())
    return torch.cat(maps)


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
        usable = len(shape) == 3 and outputs_and_last_block(module, torch.zeros(1, *shape))[1] is not None
    return "gradcam" if usable else "ig"


def attribute_rows(
    net: nn.Module, data: Bundle, split: str = "test", rows: Rows = None, how: How = "gradcam", **settings: Any
) -> Tensor:
    """(m, h, w): `attribute` for samples of a dataset, for their own label unless a target is given; None: all samples.

    >>> from spurless.registry import load_data
    >>> toy = load_data({"name": "toy", "n": 20})
    >>> attribute_rows(nn.Linear(7, 2), toy, "test", [0, 5], how="ig").shape
    torch.Size([2, 7])
    """
    if isinstance(data.inputs, Texts):
        raise UserError(f"{data.name} holds texts; attribute_text of spurless.metrics.attribution_text is for them.")
    idx = rows_of(data, split, rows)
    settings.setdefault("target", data.splits[split].y[idx])
    return attribute(net, prepare(data, split, idx), how=how, **settings)


def prepare(data: Bundle, split: str = "test", rows: Rows = None) -> Tensor:
    """(m, ...): samples as a network sees them, without augmentation: scaled to 0..1 and standardised.

    >>> from spurless.core.data import Images, Split
    >>> grey = Split(torch.full((2, 1, 1, 1), 255, dtype=torch.uint8), torch.tensor([0, 1]))
    >>> prepare(Bundle("grey", grey, inputs=Images((0.5,), (0.25,))), "train", [1]).flatten().tolist()
    [2.0]
    """
    return Inputs(data, Recipe(channels_last=False), torch.device("cpu"))(
        data.splits[split][rows_of(data, split, rows)]
    )


def black(data: Bundle) -> Tensor:
    """(1, ...): a black image as a network sees it, to be a `baseline`; of vectors, all zeros.

    >>> from spurless.core.data import Images, Split
    >>> grey = Split(torch.zeros(2, 1, 1, 1, dtype=torch.uint8), torch.tensor([0, 1]))
    >>> black(Bundle("grey", grey, inputs=Images((0.5,), (0.25,)))).flatten().tolist()
    [-2.0]
    """
    return Inputs(data, Recipe(channels_last=False), torch.device("cpu"))(torch.zeros(1, *data.shape))


def unit_shares(
    net: nn.Module,
    x: Tensor,
    mask: Tensor,
    units: Tensor | Sequence[int],
    how: Literal["ig", "deeplift"] = "ig",
    **settings: Any,
) -> Tensor:
    """(u,): for units of the penultimate layer, the mean share of their attribution that is inside the mask.

    With a mask of the spurious feature it is the spurious feature utilisation of single neurons. Samples of which a
    unit has no attribution at all are left out; NaN where that is all of them.

    >>> net = nn.Sequential(nn.Linear(3, 2, bias=False), nn.ReLU(), nn.Linear(2, 2))
    >>> _ = net[0].weight.data.copy_(torch.tensor([[1.0, 3.0, 0.0], [0.0, 0.0, 1.0]]))
    >>> unit_shares(net, torch.ones(4, 3), torch.tensor([True, False, False]), [0, 1]).tolist()
    [0.25, 0.0]
    """
    x, numbers = checks.inputs(x), checks.tensor(units, "units").flatten().tolist()
    whole = checks.as_net(net, x[:2].to(device_of(net)))
    encoder = nn.Sequential(whole.encoder, nn.Flatten(1))
    shares = [share(attribute(encoder, x, unit, how, **settings), mask).nanmean() for unit in numbers]
    return torch.stack(shares) if shares else torch.zeros(0)


def classes_to_explain(target: Tensor | int | None, n: int, width: int) -> Tensor | None:
    """(n,) The class, or unit, of each sample; None: those that the network predicts."""
    if target is None:
        return None
    wanted = checks.tensor(target, "target").cpu()
    wanted = wanted.expand(n) if wanted.dim() == 0 else wanted
    goal = wanted.long()
    if goal.shape != (n,) or (goal != wanted).any() or not (0 <= int(goal.min()) <= int(goal.max()) < width):
        raise UserError(f"target must hold one number from 0 to {width - 1} for each of {n} samples, or one for all.")
    return goal


def _start(baseline: Tensor | float, x: Tensor) -> Tensor:
    start = checks.tensor(baseline, "baseline").to(x.dtype)
    try:
        return start.expand(x.shape)
    except RuntimeError:
        raise UserError(
            f"baseline is a number, or of the shape of one sample or all, {tuple(x.shape)}, not {tuple(start.shape)}."
        ) from None
