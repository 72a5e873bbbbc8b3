"""How much of its accuracy a classifier keeps when test images are corrupted, above all where the shortcut fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from spurless.core.data import Bundle, Images, Split
from spurless.core.errors import UserError, unknown
from spurless.core.recipe import Recipe
from spurless.metrics import checks
from spurless.metrics.feature_use import some_rows
from spurless.metrics.groups import MIN_GROUP
from spurless.metrics.regions import device_of, first_rows
from spurless.nets.outputs import Inputs
from spurless.train.result import Result

CHUNK = 256  # images that are corrupted and judged at a time
SHOWN = ("average", "unbiased", "aligned", "conflicting", "worst_group")


def robustness(
    model: nn.Module | Result | str | Path,
    data: Bundle | str | Mapping[str, Any],
    corruptions: Sequence[str] | None = None,
    family: Literal["biasadv", "cifar-c"] = "biasadv",
    severities: Sequence[int] = (),
    split: str = "test",
    rows: int | None = None,
    seed: int = 0,
    root: str | Path | None = None,
) -> list[dict[str, Any]]:
    """Accuracy by group under each corruption of the test images, in percent, then the mean; the first row is without.

    `model` is a network of your own, a run's result, or a run's folder. The default are BiasAdv's eight, which draw how
    strong they are for each image (the paper gives a range each, no severities). "cifar-c" are the 19 of CIFAR-10-C, at
    `severities` from 1 to 5 (default 3). `rows`: so many rows, drawn at random. Each image is corrupted alike for every
    network that is asked with this seed.

    >>> from spurless.registry import load_data
    >>> shapes = load_data({"name": "shapes", "n": 8, "n_val": 0, "n_test": 32, "size": 32})
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, len(shapes.classes)))
    >>> [row["corruption"] for row in robustness(net, shapes, ["jpeg", "cutout"])]
    ['none', 'jpeg', 'cutout', 'mean']
    """
    from spurless.metrics.scores import score
    from spurless.registry import load_data

    data, net = load_data(data, root=root), _network(model)
    first_rows(data, split)  # refuses a split that is not there, or without any
    samples = data.splits[split]
    if not isinstance(data.inputs, Images) or samples.x.dtype != torch.uint8:
        raise UserError(f"Corruptions are for images, and {data.name} holds none.")
    idx = some_rows(data, split, rows, seed).sort().values
    picked = Split(torch.zeros(0), samples.y[idx], None if samples.a is None else samples.a[idx])
    device = device_of(net)
    inputs = Inputs(data, Recipe(channels_last=False), device)
    rows_of_scores = []
    for name, severity, corrupt in _corruptions(corruptions, family, severities, seed):
        scores = score(data, picked, _logits(net, samples, idx, corrupt, inputs, device))
        row: dict[str, Any] = {"corruption": name, "severity": severity, "n": len(idx)}
        row |= {key: scores.get(key) for key in SHOWN}
        rows_of_scores.append(row | {"worst_group_n": scores["n"]["worst_group"]})
    mean: dict[str, Any] = {"corruption": "mean", "severity": None, "n": len(idx)}
    for key in SHOWN:
        values = [row[key] for row in rows_of_scores[1:]]
        mean[key] = None if not values or None in values else sum(values) / len(values)
    return [*rows_of_scores, mean]


def as_table(rows: Sequence[Mapping[str, Any]], scores: Sequence[str] = ("average", "conflicting")) -> str:
    """The rows as a Markdown table, in percent.

    >>> print(as_table([{"corruption": "none", "severity": None, "average": 91.25, "conflicting": None}]))
    | corruption | average | conflicting |
    | :-- | --: | --: |
    | none | 91.2 | - |
    """
    lines = [f"| corruption | {' | '.join(scores)} |", f"| :-- |{' --: |' * len(scores)}"]
    for row in rows:
        name = row["corruption"].replace("_", " ") + (f", severity {row['severity']}" if row["severity"] else "")
        for key in scores:
            if key not in row:
                raise unknown("score", key, [shown for shown in SHOWN if shown in row])
        values = ["-" if row[key] is None else f"{row[key]:.1f}" + _few(row, key) for key in scores]
        lines.append(f"| {name} | {' | '.join(values)} |")
    return "\n".join(lines)


def _few(row: Mapping[str, Any], score: str) -> str:
    """The n of a worst group that few samples decided."""
    n = row.get("worst_group_n")
    return f" (n = {n})" if score == "worst_group" and n and n < MIN_GROUP else ""


Corrupt = Callable[[Tensor, Tensor], Tensor]  # images and their row numbers


def _corruptions(
    names: Sequence[str] | None, family: str, severities: Sequence[int], seed: int
) -> Iterator[tuple[str, int | None, Corrupt]]:
    """Name, severity and function, the identity first."""
    from spurless.data.corruptions import CORRUPTIONS, corrupt
    from spurless.data.corruptions.inputs import INPUT_CORRUPTIONS

    kinds = {"biasadv": list(INPUT_CORRUPTIONS), "cifar-c": list(CORRUPTIONS)}
    if family not in kinds:
        raise unknown("family of corruptions", family, kinds)
    chosen = kinds[family] if names is None else list(names)
    for name in chosen:
        if name not in kinds[family]:
            raise unknown("corruption", name, kinds[family])
    if family == "biasadv" and severities:
        raise UserError('BiasAdv\'s corruptions have no severities: each image draws its own; use family="cifar-c".')
    yield "none", None, lambda x, rows: x
    for name in chosen:
        if family == "biasadv":
            one = INPUT_CORRUPTIONS[name]
            yield name, None, lambda x, rows, one=one: one(x, seed, rows.tolist())  # type: ignore[misc]
        for level in severities or (3,) if family == "cifar-c" else ():
            yield name, level, lambda x, rows, n=name, s=level: corrupt(x, n, s, seed, rows.tolist())  # type: ignore[misc]


@torch.no_grad()
def _logits(
    net: nn.Module, split: Split, idx: Tensor, corrupt: Corrupt, inputs: Inputs, device: torch.device
) -> Tensor:
    from spurless.nets.heads import evaluating
    from spurless.nets.outputs import tensor_of

    output: Tensor | None = None
    with evaluating(net):
        for start in range(0, len(idx), CHUNK):
            chunk = idx[start : start + CHUNK]
            x = inputs(corrupt(split[chunk], chunk).to(device))
            with checks.asking(net, x):
                logits = tensor_of(net(x)).float().cpu()
            # One table from the start: many small results between large images would leave holes in memory.
            output = logits.new_empty(len(idx), *logits.shape[1:]) if output is None else output
            output[start : start + CHUNK] = logits
    assert output is not None
    return output


def _network(model: nn.Module | Result | str | Path) -> nn.Module:
    if isinstance(model, (str, Path)):
        from spurless.train.saved import load_run

        model = load_run(model)
    if isinstance(model, Result):
        if model.classifier is None:
            raise UserError("This run has no classifier: it diverged, or was read without its weights.")
        return model.classifier
    return model
