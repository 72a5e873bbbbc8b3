"""A callback for the Trainer of transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import nn

from spurless.core.errors import DataError
from spurless.core.extras import missing
from spurless.integrations.groups_log import group_log, joined
from spurless.integrations.own_loop import parts_of
from spurless.nets.heads import evaluating

try:
    from transformers import TrainerCallback
except ImportError:
    raise missing("The Trainer's callback", "hf") from None


class GroupMetrics(TrainerCallback):
    """Log the scores of each group, and the conflicting share of the loss, after each evaluation.

    The evaluation samples are read once more. The numbers are in what `evaluate` returns, so that
    `metric_for_best_model="eval_worst_group"` works, and in `state.log_history`.

    Args:
        attributes: (n,) whole numbers, one for each sample of the evaluation dataset, in its order. (The Trainer
            removes columns that the model does not take.)
        aligned: for each class the value of the attribute that the shortcut predicts, {0: 0, 1: 1}; without it, by the
            counts of the evaluation samples.
        prefix: what the names begin with.
    """

    def __init__(self, attributes: ArrayLike, aligned: Mapping[int, int] | None = None, prefix: str = "eval"):
        self.attributes, self.aligned, self.prefix = torch.as_tensor(attributes), aligned, prefix

    def on_evaluate(
        self,
        args: Any,
        state: Any,
        control: Any,
        model: nn.Module | None = None,
        eval_dataloader: Any = None,
        metrics: dict[str, float] | None = None,
        **others: Any,
    ) -> None:
        assert model is not None
        parts, at = [], 0
        device = next(model.parameters()).device
        with evaluating(model), torch.no_grad():
            for batch in eval_dataloader:
                x, y, _ = parts_of(dict(batch))
                logits = model(**{name: value.to(device) for name, value in x.items()}).logits
                parts.append((logits.cpu(), y, self.attributes[at : at + len(y)]))
                at += len(y)
        if at != len(self.attributes):
            raise DataError(
                f"GroupMetrics was given {len(self.attributes)} attributes, and {at} samples were evaluated."
            )
        told = {f"{self.prefix}_{name}": value for name, value in group_log(*joined(parts), self.aligned).items()}
        if metrics is not None:
            metrics.update(told)
        state.log_history.append({"epoch": state.epoch, "step": state.global_step, **told})
