"""What a sweep measures of each trained network, where it was trained: `after="spurless.sweep.measures:measures"`.

As in the large-learning-rate study (Barsbey et al. 2025) all of it is on the test split, in which the bias tells
nothing; but the training and validation accuracies, which need no bias label and no test sample, are what decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from spurless.core.data import Bundle, Split
from spurless.core.recipe import Recipe
from spurless.metrics.compress import compressed
from spurless.metrics.prunability import prunability
from spurless.metrics.records import FILE, read, summary
from spurless.metrics.regions import device_of
from spurless.metrics.representation import bsi, class_separation, csi
from spurless.metrics.scores import score
from spurless.nets.outputs import Inputs, outputs
from spurless.train.feed import Resident, resident
from spurless.train.result import Result

INPUTS = 1000  # random test samples whose activations are looked at, as in the study
RESIDENT = 2**31  # bytes of inputs that may lie on the device while a dozen pruned networks see them


def measures(result: Result, data: Bundle, folder: Path | None = None) -> dict[str, Any]:
    """The measures of a finished run; numbers, or None where there is nothing to measure."""
    net = result.classifier
    if net is None:
        return {}
    look = Look(net, data, result.settings["recipe"])
    name = result.scored_on
    split = data.splits[name]
    measured: dict[str, Any] = {"train_accuracy": _train_accuracy(result, look, data), "train_rows": len(data.train)}
    if result.history and "reached" in result.history[-1]:  # whether until_accuracy and until_loss were
        measured["reached"] = result.history[-1]["reached"]
    if data.val is not None and name != "val":
        measured |= {"val_accuracy": look.accuracy(data.val), "val_rows": len(data.val)}
    rows = look.placed(split)
    accuracy = _unbiased(look, data, split, rows)
    if accuracy(net) > 0:
        for how, key in (("structured", "prunability"), ("magnitude", "magnitude_prunability")):
            curve = prunability(net, accuracy, how)  # type: ignore[arg-type]
            measured |= {key: curve.prunability, f"{key}_curve": list(curve.accuracy)}
        # Prunability divides by the accuracy, and so can fall where every pruned network is better than before.
        measured["pruned_accuracy"] = fmean(measured["prunability_curve"])
    z = look(split, rows, features=True)  # (n, d), on the device
    mix = torch.randperm(len(z), generator=torch.Generator().manual_seed(0))[:INPUTS].sort().values
    compressed_part = compressed(z[mix.to(z.device)])
    measured |= {"activation_compressibility": compressed_part.compressibility}
    measured |= {"activation_sparsity": compressed_part.sparsity, "activation_pq_index": compressed_part.pq_index}
    z = z.cpu()
    if len(split.y.unique()) > 1:
        measured |= {"csi": csi(z, split.y).average, "class_separation": class_separation(z, split.y)}
    if split.a is not None and len(split.a[:, 0].unique()) > 1:
        measured["bsi"] = bsi(z, split.a[:, 0]).average
    if folder is not None and (folder / FILE).exists():  # the run was watched while it trained
        seen = summary(read(folder))
        measured |= {name: seen.get(name) for name in ("largest_share", "largest_share_smooth")}
    return measured


class Look:
    """What a network gives for rows, in the arithmetic that it was trained in and where it is."""

    def __init__(self, net: nn.Module, data: Bundle, recipe: Mapping[str, Any]):
        self.net, self.device = net, device_of(net)
        self.recipe = Recipe(precision=recipe["precision"], channels_last=recipe["channels_last"])
        self.inputs = Inputs(data, self.recipe, self.device)
        if not any(isinstance(child, nn.Conv2d) for child in net.modules()):
            self.inputs.channels_last = False  # a copy that only convolutions pay back

    def placed(self, split: Split) -> Resident | None:
        """The rows on the device, where they fit: they are looked at many times."""
        fits = isinstance(split.x, Tensor) and split.x.nbytes <= RESIDENT
        return resident(split.x, self.recipe.channels_last, self.device) if fits else None  # type: ignore[arg-type]

    def __call__(self, split: Split, rows: Resident | None = None, features: bool = False) -> Tensor:
        return outputs(self.net, split, self.inputs, self.recipe, self.device, features, rows)

    def accuracy(self, split: Split) -> float:
        """In percent, of all rows, whatever their group."""
        return 100 * float((self(split).argmax(1).cpu() == split.y).double().mean())


def _unbiased(look: Look, data: Bundle, split: Split, rows: Resident | None) -> Callable[[nn.Module], float]:
    """The accuracy that pruning is held against: unbiased, or the average where no group is known or a class has no
    sample."""

    def accuracy(net: nn.Module) -> float:
        scores = score(data, split, look(split, rows))
        return float(scores["average"] if scores["unbiased"] is None else scores["unbiased"])

    return accuracy


def _train_accuracy(result: Result, look: Look, data: Bundle) -> float:
    """That of the last epoch, where training watched it and its weights were kept."""
    last = result.history[-1] if result.history else {}
    if result.selection == "last" and "train_accuracy" in last:
        return float(last["train_accuracy"])
    return look.accuracy(data.train)
