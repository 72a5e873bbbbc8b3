"""What lies around a solution: loss, accuracy and use of the spurious feature over a flat slice through weight space.

The slice is spanned by two random directions in which every filter is as long as the network's own (Li et al. 2018), so
that networks whose weights differ in size can be compared. Biases and the parameters of normalisation layers stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from spurless.core.data import Bundle
from spurless.core.errors import NotNumbers, UserError, one_of
from spurless.core.terminal import track
from spurless.metrics import checks
from spurless.metrics.batchnorm import BatchNorm, refresher
from spurless.metrics.feature_use import some_rows
from spurless.metrics.regions import device_of, spurious_mask
from spurless.nets.heads import evaluating

if TYPE_CHECKING:
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

Array = np.ndarray
Direction = dict[str, Tensor]  # by parameter name
Measure = Callable[[nn.Module], float]


@dataclass(frozen=True)
class Landscape:
    """Values at weights + a · first + b · second; the solution itself is at a = b = 0."""

    a: Array  # (points,)
    b: Array  # (points,)
    values: dict[str, Array]  # by measure: (points of a, points of b); NaN where it is not a number


def random_direction(net: nn.Module, seed: int = 0) -> Direction:
    """A random direction in which every filter is as long as the network's own; 0 for biases and normalisation.

    A filter is what leads into one output: a row of a linear layer, all kernels of one channel of a convolution.

    >>> net = nn.Linear(3, 2)
    >>> found = random_direction(net)
    >>> torch.allclose(found["weight"].norm(dim=1), net.weight.norm(dim=1)), found["bias"].tolist()
    (True, [0.0, 0.0])
    """
    generator = torch.Generator().manual_seed(seed)
    # LayerNorm's may have as many dimensions as a filter.
    scales = {id(p) for part in net.modules() if isinstance(part, nn.LayerNorm) for p in part.parameters()}
    found = {}
    for name, p in net.named_parameters():
        drawn = torch.randn(p.shape, generator=generator).to(p)
        if p.dim() < 2 or id(p) in scales:
            found[name] = torch.zeros_like(p.detach())
            continue
        own, length = (t.detach().flatten(1).norm(dim=1) for t in (p, drawn))  # (filters,)
        found[name] = drawn * (own / length).view(-1, *[1] * (p.dim() - 1))
    return found


@contextmanager
def moved(net: nn.Module, steps: Sequence[tuple[float, Direction]]) -> Iterator[None]:
    """The network at its weights + Σ step · direction; afterwards parameters and buffers are put back bit by bit.

    >>> net = nn.Linear(1, 1, bias=False)
    >>> _ = net.weight.data.fill_(2.0)
    >>> with moved(net, [(0.5, {"weight": torch.ones(1, 1)})]):
    ...     net.weight.item()
    2.5
    >>> net.weight.item()
    2.0
    """
    before = [(t, t.detach().clone()) for t in (*net.parameters(), *net.buffers())]
    try:
        with torch.no_grad():
            for name, p in net.named_parameters():
                for step, direction in steps:
                    p.add_(_way(direction, name, p), alpha=step)
        yield
    finally:
        with torch.no_grad():
            for tensor, value in before:
                tensor.copy_(value)


def landscape(
    net: nn.Module,
    measures: Mapping[str, Measure],
    span: float = 1.0,
    points: int = 21,
    seed: int = 0,
    directions: tuple[Direction, Direction] | None = None,
    refresh: Callable[[nn.Module], None] | None = None,
) -> Landscape:
    """Each measure of the network on a grid of `points` x `points` places, from −span to span both ways.

    A step of 1 moves every filter by its own length. `measures` are functions of the network, which they must not
    change. `refresh` is called at each place first, such as to recompute statistics (`recompute_batchnorm`).

    >>> net = nn.Linear(2, 1, bias=False)
    >>> _ = net.weight.data.copy_(torch.tensor([[3.0, 4.0]]))
    >>> ways = {"weight": torch.tensor([[1.0, 0.0]])}, {"weight": torch.tensor([[0.0, 1.0]])}
    >>> found = landscape(net, {"first": lambda n: n.weight[0, 0].item()}, span=4, points=3, directions=ways)
    >>> found.values["first"].tolist()  # a moves the first weight, b the second
    [[-1.0, -1.0, -1.0], [3.0, 3.0, 3.0], [7.0, 7.0, 7.0]]
    """
    if points < 1 or not measures or not np.isfinite(span):
        raise UserError(f"A landscape needs at least one point and one measure, and a finite span, not {span}.")
    first, second = directions or (random_direction(net, 2 * seed), random_direction(net, 2 * seed + 1))
    steps = np.linspace(-span, span, points) if points > 1 else np.zeros(1)
    values = {name: np.full((points, points), np.nan) for name in measures}
    for i, j in track([(i, j) for i in range(points) for j in range(points)], "landscape"):
        with moved(net, [(float(steps[i]), first), (float(steps[j]), second)]):
            if refresh is not None:
                refresh(net)
            for name, measure in measures.items():
                with suppress(NotNumbers):  # far out a network may give no numbers
                    values[name][i, j] = measure(net)
    return Landscape(steps, steps.copy(), values)


def data_landscape(
    net: nn.Module,
    data: Bundle,
    span: float = 1.0,
    points: int = 21,
    rows: int | None = 1000,
    attributed: int = 64,
    spurious: Literal["attribution", "bsi", "none"] | None = None,
    batchnorm: BatchNorm = "kept",
    seed: int = 0,
) -> Landscape:
    """Training loss, unbiased test accuracy and spurious feature utilisation around a network (figure 9 of the study).

    `loss` is cross entropy on `rows` training samples (None: all), `accuracy` the unbiased one on as many test samples,
    in percent (the plain average where the data has no attributes, or a class no sample among these). `spurious` is the
    share of attribution on the spurious feature, of `attributed` test samples (Integrated Gradients, 8 points), where
    the data knows where that is; else the mean BSI of the penultimate neurons. The network is in evaluation mode.
    BatchNorm's statistics stay those of training, as is usual; `recomputed` takes them anew at each place, from the
    same training samples.

    >>> from spurless.registry import load_data
    >>> net = nn.Sequential(nn.Linear(7, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> found = data_landscape(net, load_data({"name": "toy", "n": 40}), points=3, rows=20, attributed=4)
    >>> sorted(found.values), found.values["loss"].shape
    (['accuracy', 'loss', 'spurious'], (3, 3))
    """
    from spurless.metrics.attribution import prepare
    from spurless.metrics.prunability import data_accuracy
    from spurless.metrics.representation import bsi, features_of
    from spurless.metrics.scores import predictions

    if spurious is not None:
        one_of("measure of the spurious feature", spurious, ("attribution", "bsi", "none"))
    place = device_of(net)
    on = "test" if data.test is not None else "val" if data.val is not None else "train"
    train, test = some_rows(data, "train", rows, seed), some_rows(data, on, rows, seed)
    x, y = prepare(data, "train", train).to(place), data.train.y[train].to(place)
    every_class = len(data.splits[on].y[test].unique()) == len(data.classes)
    x_test = prepare(data, on, test).to(place)
    score = data_accuracy(data, on, test, "unbiased" if every_class else "average")
    predictions(data, _logits(net, x[:2]))  # refuses a network that is not for this data
    measures: dict[str, Measure] = {
        "loss": lambda n: float(nn.functional.cross_entropy(_logits(n, x).double(), y)),
        "accuracy": lambda n: score(_logits(n, x_test)),
    }
    a = data.splits[on].a
    if spurious is None:
        spurious = "attribution" if _knows(data, on) else "bsi" if a is not None else "none"
    if spurious == "attribution":
        measures["spurious"] = _attribution(data, on, test[: checks.count(attributed, "attributed")])
    elif spurious == "bsi":
        if a is None:
            raise UserError(f"{data.name} has no bias attributes, so its neurons cannot be asked for them.")
        values = a[test]
        measures["spurious"] = lambda n: float(
            np.mean([bsi(z, values[:, k]).average for z in [features_of(n, data, on, test)] for k in range(a.shape[1])])
        )
    return landscape(net, measures, span, points, seed, refresh=refresher(batchnorm, lambda: x))


LABELS = {
    "loss": "training loss",
    "accuracy": "unbiased test accuracy, %",
    "spurious": "spurious feature utilisation",
}


def plot(found: Landscape | Mapping[str, Landscape], path: str | Path | None = None) -> Figure:
    """A picture with a row for each network and a column for each measure; colours mean the same within a column.

    The cross is the solution. Saved where a path is given.

    >>> steps = np.array([-1.0, 0.0, 1.0])
    >>> len(plot(Landscape(steps, steps, {"loss": np.outer(steps, steps) + 2})).axes)  # the panel and its colour bar
    2
    """
    from matplotlib.figure import Figure

    every = {"": found} if isinstance(found, Landscape) else dict(found)
    names = list(next(iter(every.values())).values) if every else []
    if not names or any(set(land.values) != set(names) for land in every.values()):
        raise UserError("A picture needs at least one landscape, and all of them must have the same measures.")
    if any(len(steps) < 2 for land in every.values() for steps in (land.a, land.b)):
        raise UserError("A landscape of a single point has no picture; compute it with points=21 or so.")
    figure = Figure(figsize=(3.6 * len(names), 2.7 * len(every)), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12)  # type: ignore[union-attr, call-arg]
    panels = figure.subplots(len(every), len(names), squeeze=False)
    for column, name in enumerate(names):
        scale, levels = _scale(np.concatenate([land.values[name].ravel() for land in every.values()]))
        for row, (label, land) in enumerate(every.items()):
            panel = panels[row][column]
            drawn = panel.contourf(
                land.b, land.a, np.ma.masked_invalid(land.values[name]), levels=levels, norm=scale, cmap="cividis"
            )
            panel.plot(0, 0, "+", color="white", markersize=10, markeredgewidth=2)
            panel.set_aspect("equal")
            panel.tick_params(labelsize=8)
            panel.set_title(LABELS.get(name, name) if row == 0 else "", fontsize=10)
            panel.set_ylabel("" if column else label)
        bar = figure.colorbar(drawn, ax=[panels[row][column] for row in range(len(every))], shrink=0.9)
        bar.set_ticks(levels[::3].tolist(), labels=[f"{level:.3g}" for level in levels[::3]])
        bar.ax.minorticks_off()
        bar.ax.tick_params(labelsize=8)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def _scale(values: np.ndarray) -> tuple[Normalize, np.ndarray]:
    """The colours and levels of a column; infinite values have none."""
    from matplotlib.colors import LogNorm, Normalize

    shown = values[np.isfinite(values)]
    low, high = (float(shown.min()), float(shown.max())) if len(shown) else (0.0, 1.0)
    high = max(high, low + 1e-9 * max(1.0, abs(low)))  # levels must differ, and rounding is no landscape
    if low > 0 and high / low > 100:  # such as a loss that explodes at the rim: equal steps would hide the rest
        return LogNorm(low, high), np.geomspace(low, high, 16)
    return Normalize(low, high), np.linspace(low, high, 16)


def _logits(net: nn.Module, x: Tensor, batch_size: int = 1024) -> Tensor:
    with evaluating(net), torch.no_grad(), checks.asking(net, x):
        return torch.cat([net(part) for part in x.split(batch_size)])


def _way(direction: Direction, name: str, p: Tensor) -> Tensor:
    """What a direction says of a parameter."""
    if name not in direction:
        raise UserError(f"A direction must name every parameter of the network; this one lacks '{name}'.")
    found = checks.tensor(direction[name], name)
    if found.shape != p.shape:
        raise UserError(f"A direction for '{name}' has shape {tuple(p.shape)}, not {tuple(found.shape)}.")
    return found.to(p.device)


def _knows(data: Bundle, split: str) -> bool:
    try:
        spurious_mask(data, split, [0])
    except UserError:
        return False
    return True


def _attribution(data: Bundle, split: str, rows: Tensor) -> Measure:
    from spurless.metrics.attribution import attribute, prepare, share

    x, y, mask = prepare(data, split, rows), data.splits[split].y[rows], spurious_mask(data, split, rows)
    settings: dict[str, Any] = {"how": "ig", "steps": 8}
    return lambda net: float(share(attribute(net, x, y, **settings), mask).nanmean())
