"""Where the features of a dataset are in its inputs: the masks that attribution maps are held against."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from spurless.core.data import Bundle
from spurless.core.errors import DataError, UserError, unknown
from spurless.metrics import checks

Rows = Tensor | Sequence[int] | None


def core_mask(data: Bundle, split: str = "test", rows: Rows = None) -> Tensor:
    """(m, h, w): where the feature that the label means is, in datasets that know it; (m, d) for vectors.

    >>> from spurless.data.sets import parity
    >>> core_mask(parity.load(core=2, spurious=1, noise=1, n=4), "train", [0]).tolist()
    [[True, True, False, False]]
    """
    return _regions(data, split, rows_of(data, split, rows))[0]


def spurious_mask(data: Bundle, split: str = "test", rows: Rows = None, bias: str | None = None) -> Tensor:
    """(m, h, w): where a bias attribute is, in datasets that know it; (m, d) for vectors.

    Without a name: where any of the attributes is that has pixels of its own.

    Refused for an attribute without pixels of its own, such as the colour of the object or its position: there
    attribution cannot tell the two features apart, and CSI and BSI (spurless.metrics.representation) are the way.

    >>> from spurless.data.sets import parity
    >>> spurious_mask(parity.load(core=2, spurious=1, noise=1, n=4), "train", [0]).tolist()
    [[False, False, True, False]]
    """
    mask = _regions(data, split, rows_of(data, split, rows))[1]
    if bias is not None and bias not in data.attributes:
        raise unknown("attribute", bias, data.attributes)
    wanted = [name for name in data.attributes if name in mask] if bias is None else [bias]
    if not wanted or wanted[0] not in mask:
        named = bias or ", ".join(data.attributes) or "The bias"
        raise UserError(
            f"{named} of {data.name} has no pixels of its own, so attribution cannot tell it from the core feature; "
            "compare CSI and BSI instead."
        )
    return torch.stack([mask[name] for name in wanted]).any(0)


def background_mask(x: Tensor, segmenter: nn.Module, background: int = 0, batch_size: int = 16) -> Tensor:
    """(n, h, w): where a segmentation network of your own sees its background class in its prepared images x.

    It may return scores (n, classes, h, w), or a dictionary with these under "out", as torchvision's DeepLabV3 does.

    >>> background_mask(torch.tensor([[[[0.0, 2.0]]]]), nn.Conv2d(1, 2, 1), batch_size=1).shape
    torch.Size([1, 1, 2])
    """
    from spurless.nets.heads import evaluating

    x, masks = checks.inputs(x), []
    with evaluating(segmenter), torch.no_grad():
        for chunk in x.split(checks.count(batch_size, "batch_size")):
            with checks.asking(segmenter, x):
                output = segmenter(chunk.to(device_of(segmenter)))
            scores = output.get("out") if isinstance(output, dict) else output  # (m, classes, h, w)
            if not isinstance(scores, Tensor) or scores.dim() != 4 or not 0 <= background < scores.shape[1]:
                kind = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
                raise UserError(f"A segmenter gives scores (n, classes, h, w) with class {background}, not {kind}.")
            if scores.isnan().any():
                raise UserError("The segmenter's scores are NaN somewhere, so what it sees there is not known.")
            if scores.shape[-2:] != x.shape[-2:]:
                scores = nn.functional.interpolate(scores, x.shape[-2:], mode="bilinear", align_corners=False)
            masks.append((scores.argmax(1) == background).cpu())
    return torch.cat(masks)


def device_of(module: nn.Module) -> torch.device:
    """Where a module's parameters are, which must be of single precision, as inputs are."""
    parameter = next(module.parameters(), None)
    if parameter is not None and parameter.is_floating_point() and parameter.dtype != torch.float32:
        kind = str(parameter.dtype).removeprefix("torch.")
        raise UserError(f"The network's weights are {kind}, and its inputs float32: call its float() first.")
    return torch.device("cpu") if parameter is None else parameter.device


def rows_of(data: Bundle, split: str, rows: Rows) -> Tensor:
    """Row numbers of a split; None: all of them."""
    if split not in data.splits:
        raise UserError(f"{data.name} has no split '{split}'; it has {', '.join(data.splits)}.")
    n = len(data.splits[split])
    if rows is None:
        return torch.arange(n)
    chosen = checks.tensor(rows, "rows")
    if chosen.dim() != 1:
        raise UserError(f"Samples are a list of numbers, not of shape {tuple(chosen.shape)}.")
    if chosen.dtype == torch.bool:
        if chosen.shape != (n,):
            raise UserError(
                f"A mask of samples has one entry for each of {n} samples; this one has shape {tuple(chosen.shape)}."
            )
        return chosen.nonzero()[:, 0].cpu()
    if chosen.is_floating_point() and len(chosen):
        raise UserError("Rows are whole numbers, or True and False for each sample.")
    chosen = chosen.to("cpu", torch.int64)
    if len(chosen) and not 0 <= int(chosen.min()) <= int(chosen.max()) < n:
        raise UserError(
            f"Samples of the split '{split}' are from 0 to {n - 1}; there are others among those asked for."
        )
    return chosen


def first_rows(data: Bundle, split: str) -> list[int]:
    """Two samples to try a network with; the same one twice where there is no other."""
    n = len(rows_of(data, split, None))
    if not n:
        raise UserError(f"The split '{split}' of {data.name} has no samples.")
    return [0, min(1, n - 1)]


def _regions(data: Bundle, split: str, idx: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The mask of the core feature, and that of each attribute that has pixels of its own: (m, ...) each."""
    if data.regions is None:
        raise DataError(
            f"{data.name} does not say where its features are; pass masks of your own, or background_mask's."
        )
    return data.regions(data, split, idx)
