"""How much a network uses the core feature, and how much the spurious one: by attribution, and by what neurons answer
to. One call gives both, for a trained network or at a moment of training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from spurless.core.data import Bundle
from spurless.core.errors import UserError, one_of
from spurless.metrics import checks
from spurless.metrics.regions import Rows, core_mask, device_of, first_rows, rows_of, spurious_mask
from spurless.nets import Net


def feature_use(
    net: nn.Module,
    data: Bundle,
    split: str = "test",
    rows: int | None = 1000,
    attributed: int = 256,
    how: Literal["ig", "deeplift"] = "ig",
    steps: int = 50,
    units: Sequence[int] = (),
    seed: int = 0,
) -> dict[str, Any]:
    """CSI, BSI and, where the data knows where its features are, the shares of attribution on them.

    `rows` rows of the split are drawn at random (None: all) for accuracy, `csi` and `bsi`; the first `attributed` of
    them for `core_share`, `spurious_share` and `entropy` (relative, from 0 to 1), each a mean over samples whose map is
    not empty; None where the data has no such mask. `units`: `unit_shares` is then the spurious share of each of these
    units of the penultimate layer. Best on a split in which the bias tells nothing.

    >>> from spurless.registry import load_data
    >>> net = nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 2))
    >>> found = feature_use(net, load_data({"name": "toy", "n": 20}), rows=50, attributed=5, steps=4)
    >>> found["n"], found["attributed"], 0 <= found["core_share"] + found["spurious_share"] <= 1
    (50, 5, True)
    """
    from spurless.metrics.attribution import prepare
    from spurless.metrics.representation import bsi, csi, features_of

    one_of("attribution for this", how, ("ig", "deeplift"))
    if attributed < 0:
        raise UserError(f"attributed = {attributed} is not allowed; 0 leaves attribution out.")
    idx, samples = some_rows(data, split, rows, seed), data.splits[split]
    example = prepare(data, split, first_rows(data, split)).to(device_of(net))
    whole, chosen = checks.as_net(net, example), checks.tensor(units, "units").flatten().tolist()
    z, y = features_of(whole, data, split, idx), samples.y[idx]
    report: dict[str, Any] = {"n": len(idx)} | _accuracies(whole, z, data, split, idx)
    report["csi"] = csi(z, y).average if len(y.unique()) > 1 else None
    report["bsi"] = {}
    for k, name in enumerate(data.attributes):
        if samples.a is not None and len(samples.a[idx, k].unique()) > 1:
            report["bsi"][name] = bsi(z, samples.a[idx, k]).average
    return report | _attribution(whole, data, split, idx[:attributed], chosen, how=how, steps=steps)


def _attribution(
    net: Net, data: Bundle, split: str, idx: Tensor, units: Sequence[int], **settings: Any
) -> dict[str, Any]:
    """The mean shares of attribution on the core and on the spurious feature, where the data knows where they are."""
    from spurless.metrics.attribution import attribute_rows, entropy, prepare, share, unit_shares

    core, spurious = (_mask(f, data, split, idx) if len(idx) else None for f in (core_mask, spurious_mask))
    if core is None and spurious is None:
        return {"attributed": 0, "core_share": None, "spurious_share": None, "entropy": None, "unit_shares": []}
    maps = attribute_rows(net, data, split, idx, **settings)
    of_units: list[float | None] = []
    if len(units) and spurious is not None:
        shares = unit_shares(net, prepare(data, split, idx), spurious, units, **settings)
        of_units = [None if v != v else v for v in shares.tolist()]
    return {
        "attributed": len(idx),
        "core_share": None if core is None else _mean(share(maps, core)),
        "spurious_share": None if spurious is None else _mean(share(maps, spurious)),
        "entropy": _mean(entropy(maps, relative=True)),
        "unit_shares": of_units,
    }


def some_rows(data: Bundle, split: str, rows: int | None, seed: int = 0) -> Tensor:
    """(m,): at most so many samples of a split, drawn at random, in the order drawn; None: all, in order.

    >>> from spurless.registry import load_data
    >>> toy = load_data({"name": "toy", "n": 20})
    >>> len(some_rows(toy, "train", 5)), some_rows(toy, "train", None)[:3].tolist()
    (5, [0, 1, 2])
    """
    every = rows_of(data, split, None)
    if rows is not None and not (rows >= 1 and float(rows).is_integer()):
        raise UserError(f"rows = {rows} is not allowed; there must be at least one, or None for all.")
    if rows is None or rows >= len(every):
        return every
    return torch.randperm(len(every), generator=torch.Generator().manual_seed(seed))[: int(rows)]


def _accuracies(net: Net, z: Tensor, data: Bundle, split: str, idx: Tensor) -> dict[str, float | None]:
    """In percent: of all samples, of those that agree with the bias, and of those that do not."""
    from spurless.metrics.scores import predictions

    with torch.no_grad():
        logits = net.head(z.to(device_of(net)))
    right = (predictions(data, logits).cpu() == data.splits[split].y[idx]).double()
    agrees = data.is_aligned(data.splits[split])
    kinds = {"average": torch.ones(len(idx), dtype=torch.bool)}
    if agrees is not None:
        every = agrees.all(1)[idx]
        kinds |= {"aligned": every, "conflicting": ~every}
    return {name: 100 * float(right[which].mean()) if which.any() else None for name, which in kinds.items()}


def _mask(of: Callable[[Bundle, str, Rows], Tensor], data: Bundle, split: str, rows: Tensor) -> Tensor | None:
    try:
        return of(data, split, rows)
    except UserError:  # the data does not know, or the feature has no pixels of its own
        return None


def _mean(values: Tensor) -> float | None:
    numbers = values[~values.isnan()]
    return float(numbers.double().mean()) if len(numbers) else None
