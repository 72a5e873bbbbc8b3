"""infer_groups() runs a group inference on its own."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from spurless.core.data import Bundle, Labels
from spurless.core.errors import UserError
from spurless.core.method import Method, Run, Stage
from spurless.core.recipe import Recipe
from spurless.methods.group_inference import CHOICE, Groups, Inference, agreement, infer, labels_for
from spurless.registry import load_data
from spurless.train.fit import fit

if TYPE_CHECKING:
    from spurless.nets import Net
    from spurless.train.networks import NetSpec
    from spurless.train.progress import Watcher


def infer_groups(
    data: Bundle | str | Mapping[str, Any],
    how: Inference | str | Mapping[str, Any],
    net: NetSpec | None = None,
    recipe: Recipe | str | Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str | torch.device | None = None,
    root: str | Path | None = None,
    progress: bool | Watcher | None = None,
) -> Groups:
    """Groups and conflicting samples, without training a robust network after it. `how` is a name of those that
    `spurless list inferences` lists, {"name": ..., setting: value}, or an object.

    >>> groups = infer_groups("toy", {"name": "cnc", "identify_epochs": 2}, progress=False, device="cpu")
    >>> groups.train.shape, groups.number, sorted(groups.quality)
    (torch.Size([2000]), 4, ['ami', 'n_conflicting', 'n_groups', 'n_mined', 'precision', 'recall'])
    """
    inference = CHOICE.make(CHOICE.plain(how, "inference"), "inference")  # a mistake ends it before data is loaded
    bundle = load_data(data, root=root)
    finished: list[Groups] = []

    class Infer(Method):
        """Drives the inference through the one training loop."""

        @property
        def labels(self) -> Labels:
            return labels_for(inference)

        def stages(self, run: Run) -> Generator[Stage, None, Net]:
            finished.append((yield from infer(run, inference)))
            return finished[0].net or run.net()

    result = fit(Infer(), bundle, net=net, recipe=recipe, seed=seed, device=device, root=root, progress=progress)
    if not finished:
        raise UserError(f"The inference did not finish. {result.error}")
    groups, conflicting, scores = finished[0], finished[0].conflicting, finished[0].scores
    return groups._replace(
        conflicting=None if conflicting is None else conflicting.cpu(),
        scores=None if scores is None else scores.cpu(),
        quality=agreement(groups.train, bundle, conflicting),
    )
