"""What the Lightning and the Hugging Face callback log: the scores of each group, and whose loss it is."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from spurless.core.data import overrepresented
from spurless.core.errors import DataError
from spurless.metrics.frame import FIGURES, group_metrics


def group_log(
    logits: Tensor, y: Tensor, attributes: Tensor, aligned: Mapping[int, int] | None = None
) -> dict[str, float]:
    """Accuracies by group in percent (average, unbiased, aligned, conflicting, worst group, and each group's own), and
    `conflicting_loss_share`: the percentage of the total loss that is of bias-conflicting samples.

    `aligned` says for each class the value of the attribute that the shortcut predicts; without it, those values that
    are at least as common in the class as among all of these samples.

    >>> logits = torch.tensor([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0], [4.0, 0.0]])
    >>> y, a = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 0, 1, 0])
    >>> told = group_log(logits, y, a, {0: 0, 1: 1})
    >>> told["average"], told["conflicting"], round(told["conflicting_loss_share"], 1)
    (75.0, 0.0, 98.7)
    """
    y, attributes, logits = y.cpu(), attributes.cpu(), logits.detach().float().cpu()
    values = torch.from_numpy(np.unique(attributes.numpy(), return_inverse=True)[1])
    if aligned is None:
        fits = overrepresented(y, values, int(y.max()) + 1, int(values.max()) + 1)[y, values]
    else:
        fits = torch.tensor([aligned.get(c) == v for c, v in zip(y.tolist(), attributes.tolist(), strict=True)])
    scores = group_metrics(y.numpy(), logits.argmax(1).numpy(), attributes.numpy(), aligned=fits.numpy())
    told = {name: getattr(scores, name).value for name in FIGURES if getattr(scores, name).known}
    for group in scores.groups.to_dict("records"):
        told[f"group/{group['label']}/{group['value']}"] = float(group["accuracy"])
    loss = cross_entropy(logits, y, reduction="none").double()
    if float(loss.sum()) > 0:
        told["conflicting_loss_share"] = float(100 * loss[~fits].sum() / loss.sum())
    return told


def joined(parts: list[tuple[Tensor, Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, labels and attributes of all batches."""
    if not parts:
        raise DataError("There were no samples to log group metrics of.")
    logits, y, a = (torch.cat(list(tensors)) for tensors in zip(*parts, strict=True))
    return logits, y, a
