"""How small a network could be: how well it still does when the least of its weights or activations are taken away."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from spurless.core.data import Bundle
from spurless.core.errors import NotNumbers, UserError, one_of, unknown
from spurless.core.recipe import Recipe
from spurless.metrics import checks
from spurless.metrics.batchnorm import ROWS, BatchNorm, buffers_kept, refresher
from spurless.metrics.compress import layers
from spurless.metrics.feature_use import some_rows
from spurless.metrics.regions import Rows, device_of, first_rows, rows_of

How = Literal["structured", "magnitude"]
Scope = Literal["layer", "global"]
Conv = Literal["kernel", "filter"]
Of = Literal["weights", "activations"]
KAPPAS = tuple(k / 10 for k in range(10))  # 0 to 0.9


class Curve(NamedTuple):
    """Accuracy against the share of weights or activations that is taken away."""

    kappas: tuple[float, ...]
    accuracy: tuple[float, ...]  # in percent, of the pruned network
    kept: tuple[float, ...]  # κ-prunability: accuracy / accuracy of the whole network
    pruned: tuple[float, ...]  # the share that was really taken away, at most κ

    @property
    def prunability(self) -> float:
        """The mean of κ-prunability over the curve."""
        return sum(self.kept) / len(self.kept)


def prunability(
    net: nn.Module,
    accuracy: Callable[[nn.Module], float],
    how: How = "structured",
    scope: Scope = "layer",
    kappas: Sequence[float] = KAPPAS,
    refresh: Callable[[nn.Module], None] | None = None,
    **settings: Any,
) -> Curve:
    """κ-prunability: what share of its accuracy a network keeps when a share κ of its weights is set to 0.

    `accuracy(net)` is asked for each κ, with the network pruned; see `pruned` for how and for the settings. Its
    weights are put back bit by bit, also if something fails. `data_accuracy` makes such a function from a dataset.
    `refresh` is called after each pruning, such as to recompute statistics (`recompute_batchnorm`), which are put
    back as well; what is kept is always counted from the network as it was.

    >>> net = nn.Linear(4, 2, bias=False)
    >>> _ = net.weight.data.copy_(torch.tensor([[0.0, 0.0, 0.0, 2.0], [0.0, 0.0, 0.0, -2.0]]))
    >>> prunability(net, lambda n: 100 * float(n.weight.abs().sum() > 0), kappas=(0, 0.5, 1)).kept
    (1.0, 1.0, 0.0)
    """
    kappas = _some(kappas)
    scores, shares = [], []
    order = Order(net, how, scope, **settings)
    for kappa in kappas:
        with order.pruned(kappa) as share, nullcontext() if refresh is None else buffers_kept(net):
            if refresh is not None:
                refresh(net)
            scores.append(_accuracy(accuracy, net, kappa))
            shares.append(share)
    whole = scores[list(kappas).index(0)] if 0 in kappas and refresh is None else float(accuracy(net))
    return _curve(kappas, scores, shares, whole)


def activation_prunability(
    features: Tensor,
    head: nn.Module,
    accuracy: Callable[[Tensor], float],
    how: How = "structured",
    kappas: Sequence[float] = KAPPAS,
) -> Curve:
    """The same for activations (n, d) of the penultimate layer: `accuracy` is asked for the logits (n, classes).

    structured: the neurons with the smallest root mean square over all samples are silenced. magnitude: of each sample
    by itself, the smallest activations.

    >>> z, y = torch.tensor([[3.0, 0.1], [0.2, 5.0]]), torch.tensor([0, 1])
    >>> right = lambda logits: 100 * float((logits.argmax(1) == y).float().mean())
    >>> activation_prunability(z, nn.Identity(), right, "magnitude", kappas=(0, 0.5)).kept
    (1.0, 1.0)
    """
    _one_of(how, How)
    kappas = _some(kappas)
    z = checks.inputs(features, "features").detach()
    if z.dim() != 2 or 0 in z.shape:
        raise UserError(f"Activations are a table of rows and neurons; these are of shape {tuple(z.shape)}.")
    score = _mean_square(z, 0)[None] if how == "structured" else z.abs()  # (1, d) or (n, d)
    order = score.argsort(dim=1, stable=True)
    scores, shares = [], []
    for kappa in kappas:
        gone = order[:, : math.floor(kappa * z.shape[1] + 1e-9)]
        mask = torch.zeros_like(score, dtype=torch.bool).scatter_(1, gone, True)
        with torch.no_grad():
            with checks.asking(head, z):
                logits = head(z.masked_fill(mask, 0))
            scores.append(_accuracy(accuracy, logits, kappa))
        shares.append(gone.shape[1] / z.shape[1])
    with torch.no_grad():
        whole = scores[list(kappas).index(0)] if 0 in kappas else float(accuracy(head(z)))
    return _curve(kappas, scores, shares, whole)


def data_accuracy(
    data: Bundle, split: str = "test", rows: Rows = None, score: str = "unbiased"
) -> Callable[[nn.Module | Tensor], float]:
    """A function that gives the accuracy in percent of a network, or of logits (n, classes), on these samples.

    `score` is one of evaluate()'s. Where the data has no attributes, `unbiased` is the average.

    >>> from spurless.registry import load_data
    >>> toy = load_data({"name": "toy", "n": 20})
    >>> data_accuracy(toy, score="average")(torch.nn.functional.one_hot(toy.test.y).float())
    100.0
    """
    from spurless.core.data import Split
    from spurless.metrics.groups import METRICS
    from spurless.metrics.scores import score as scores_of
    from spurless.nets.outputs import Inputs, outputs

    if score not in METRICS:
        raise unknown("score", score, METRICS)
    idx, whole = rows_of(data, split, rows), data.splits[split]
    a, member = (None if of is None else of[idx] for of in (whole.a, whole.member))
    samples = whole if rows is None else Split(whole[idx], whole.y[idx], a, member=member)
    name = "average" if score == "unbiased" and samples.a is None else score
    recipe = Recipe(channels_last=False)

    def accuracy(asked: nn.Module | Tensor) -> float:
        if isinstance(asked, nn.Module):
            device = device_of(asked)
            with checks.asking(asked, torch.empty(0, *data.shape)):
                asked = outputs(asked, samples, Inputs(data, recipe, device), recipe, device)
        asked = checks.tensor(asked, "logits")
        if len(asked) != len(samples):
            raise UserError(
                f"There are logits for {len(asked)} samples, and {len(samples)} samples of {data.name} are asked for."
            )
        reached: float | None = scores_of(data, samples, asked)[name]
        if reached is None:
            hint = "" if name == "average" else "; use average"
            gone = [label for c, label in enumerate(data.classes) if not bool((samples.y == c).any())]
            of = f" of the class {', '.join(map(str, gone))}, without which there is no {name} accuracy" if gone else ""
            lack = of or f" that its {name} accuracy could be taken from"
            raise UserError(f"{data.name} has no samples{lack}{hint}.")
        return reached

    return accuracy


def data_prunability(
    net: nn.Module,
    data: Bundle,
    of: Of = "weights",
    split: str = "test",
    rows: Rows = None,
    score: str = "unbiased",
    batchnorm: BatchNorm = "kept",
    **settings: Any,
) -> Curve:
    """κ-prunability of a network on a dataset: of its weights, or of its penultimate activations.

    BatchNorm's statistics stay those of the whole network, as in the study; `recomputed` takes them anew after each
    pruning, from 1000 training samples.

    >>> from spurless.registry import load_data
    >>> found = data_prunability(nn.Linear(7, 2), load_data({"name": "toy", "n": 20}), kappas=(0, 0.5, 0.9))
    >>> found.kept[0], len(found.accuracy)
    (1.0, 3)
    """
    _one_of(of, Of)
    from spurless.metrics.attribution import prepare
    from spurless.metrics.representation import features_of

    accuracy, device = data_accuracy(data, split, rows, score), device_of(net)
    refresh = refresher(batchnorm, lambda: prepare(data, "train", some_rows(data, "train", ROWS)).to(device))
    if of == "weights":
        return prunability(net, accuracy, refresh=refresh, **settings)
    if refresh is not None:
        raise UserError("Behind the penultimate activations there is no BatchNorm: batchnorm is for weights.")
    example = prepare(data, split, first_rows(data, split)).to(device)
    whole = checks.as_net(net, example)
    head = whole.head
    return activation_prunability(features_of(whole, data, split, rows).to(device), head, accuracy, **settings)


@contextmanager
def pruned(
    net: nn.Module,
    kappa: float,
    how: How = "structured",
    scope: Scope = "layer",
    conv: Conv = "kernel",
    centred: bool = False,
    skip: Iterable[str] = (),
) -> Iterator[float]:
    """The network with a share κ of its weights at 0, and the share that is; afterwards its weights are put back.

    magnitude   single weights, the smallest first.
    structured  columns of linear layers (all that goes out from one input), and kernels of convolutions (what goes
                from one channel to another) or, with conv="filter", all that goes into one output channel. Those of
                smallest root mean square go first.

    scope="layer" takes the share κ from every linear and convolutional layer, "global" from all of them together,
    wherever the least are. Never more than κ; among equals, the first go. Biases and normalisation stay. Layers named
    in `skip` stay whole. With `centred`, weights are measured and reset relative to the median of their layer.

    >>> net = nn.Linear(4, 1)
    >>> _ = net.weight.data.copy_(torch.tensor([[4.0, -1.0, 3.0, 2.0]]))
    >>> with pruned(net, 0.5, "magnitude") as share:
    ...     net.weight.tolist(), share
    ([[4.0, 0.0, 3.0, 0.0]], 0.5)
    >>> net.weight.tolist()
    [[4.0, -1.0, 3.0, 2.0]]
    """
    with Order(net, how, scope, conv, centred, skip).pruned(kappa) as share:
        yield share


class Order:
    """In which order the weights of a network go, found once for all shares; see `pruned`."""

    def __init__(
        self,
        net: nn.Module,
        how: How = "structured",
        scope: Scope = "layer",
        conv: Conv = "kernel",
        centred: bool = False,
        skip: Iterable[str] = (),
    ):
        for given, allowed in ((how, How), (scope, Scope), (conv, Conv)):
            _one_of(given, allowed)
        chosen = layers(net, skip)
        self.weights = [layer.weight for layer in chosen.values()]
        self.level = [float(w.detach().median()) if centred else 0.0 for w in self.weights]
        units = [_units(layer, how, conv) for layer in chosen.values()]
        scores = [
            _scores(w.detach() - at, dims) for w, at, dims in zip(self.weights, self.level, units, strict=True)
        ]  # where the weights are
        self.shapes = [s.shape for s in scores]
        self.sizes = [w.numel() // s.numel() for w, s in zip(self.weights, scores, strict=True)]  # weights of a unit
        flat = [s.flatten() for s in scores]
        every = [torch.full_like(s, n, dtype=torch.float64) for s, n in zip(flat, self.sizes, strict=True)]
        self.together = scope == "global"
        if self.together:
            self.orders = [_order(torch.cat(flat), torch.cat(every))]
        else:
            self.orders = [_order(s, n) for s, n in zip(flat, every, strict=True)]

    @contextmanager
    def pruned(self, kappa: float) -> Iterator[float]:
        """The network without a share κ of its weights; yields the share that is gone."""
        _checked(kappa)
        masks = [_first(order, taken, kappa) for order, taken in self.orders]
        if self.together:
            masks = list(masks[0].split([shape.numel() for shape in self.shapes]))
        saved = [w.detach().clone() for w in self.weights]
        try:
            with torch.no_grad():
                for weight, at, shape, gone in zip(self.weights, self.level, self.shapes, masks, strict=True):
                    weight.masked_fill_(gone.view(shape), at)
            total = sum(w.numel() for w in saved)
            yield sum(int(gone.sum()) * size for gone, size in zip(masks, self.sizes, strict=True)) / total
        finally:
            with torch.no_grad():
                for weight, before in zip(self.weights, saved, strict=True):
                    weight.copy_(before)


def lowest(scores: Tensor, sizes: Tensor, kappa: float) -> Tensor:
    """(m,): which of the units go, the lowest scores first, such that their sizes add up to at most a share κ.

    >>> lowest(torch.tensor([3.0, 1.0, 2.0, 1.0]), torch.ones(4), 0.5).tolist()
    [False, True, False, True]
    """
    scores, sizes = checks.tensor(scores, "scores"), checks.tensor(sizes, "sizes")
    if scores.dim() != 1 or scores.shape != sizes.shape or not len(sizes) or not bool((sizes > 0).all()):
        raise UserError(
            f"Units have a score and a size above 0 each, (m,), not {tuple(scores.shape)} and {tuple(sizes.shape)}."
        )
    return _first(*_order(scores, sizes), _checked(kappa))


def _order(scores: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """(m,) each: the units from the lowest score up, the first among equals first; and what they add up to so far."""
    order = scores.argsort(stable=True)
    return order, sizes[order].double().cumsum(0)


def _first(order: Tensor, taken: Tensor, kappa: float) -> Tensor:
    # A product that is meant to be exact may come out a little too small, as 0.29 · 100 does.
    count = int((taken <= kappa * taken[-1] * (1 + 1e-9)).sum())
    gone = torch.zeros(len(order), dtype=torch.bool, device=order.device)
    gone[order[:count]] = True
    return gone


def _units(layer: nn.Module, how: How, conv: str) -> tuple[int, ...]:
    """The dimensions of the weight over which a unit stretches."""
    if how == "magnitude":
        return ()
    if isinstance(layer, nn.Linear):
        return (0,)
    dims = layer.weight.dim()  # type: ignore[operator]
    return tuple(range(2 if conv == "kernel" else 1, dims))


def _scores(weight: Tensor, dims: tuple[int, ...]) -> Tensor:
    """The root mean square of each unit, with its dimensions kept at size 1."""
    if not dims:
        return weight.abs()
    return _mean_square(weight, dims, keepdim=True).sqrt()


def _mean_square(z: Tensor, dims: int | tuple[int, ...], keepdim: bool = False) -> Tensor:
    return z.double().square().mean(dims, keepdim=keepdim)


def _curve(kappas: Sequence[float], accuracy: list[float], shares: list[float], whole: float) -> Curve:
    if not whole > 0:
        raise UserError(f"The whole network has an accuracy of {whole:g}, so what it keeps of it means nothing.")
    return Curve(tuple(kappas), tuple(accuracy), tuple(a / whole for a in accuracy), tuple(shares))


def _accuracy(accuracy: Callable[[Any], float], asked: Any, kappa: float) -> float:
    """0 where what is left of a network gives no numbers; the whole network must give some."""
    try:
        return float(accuracy(asked))
    except NotNumbers:
        if kappa == 0:
            raise
        return 0.0


def _some(kappas: Any) -> tuple[float, ...]:
    """Shares; an array's as plain numbers."""
    chosen = tuple(_checked(kappa) for kappa in (kappas.tolist() if hasattr(kappas, "tolist") else kappas))
    if not chosen:
        raise UserError("kappas is empty; prunability is a mean over shares such as 0, 0.1, ..., 0.9.")
    return chosen


def _one_of(given: str, allowed: Any) -> None:
    one_of("way to prune", given, get_args(allowed))


def _checked(kappa: float) -> float:
    if not 0 <= kappa <= 1:
        raise UserError(f"κ is a share from 0 to 1, not {kappa}.")
    return kappa
