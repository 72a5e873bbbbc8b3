"""A callback for Lightning's Trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from spurless.core.errors import DataError
from spurless.core.extras import missing
from spurless.integrations.groups_log import group_log, joined
from spurless.integrations.own_loop import parts_of

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError:
    raise missing("The Lightning callback", "lightning") from None


class GroupMetrics(Callback):
    """Log the scores of each group, and the conflicting share of the loss, after each validation.

    Batches are (x, y, attribute). Logits are those that `validation_step` returns as `{"logits": ...}`; else the module
    is called again with the inputs. What is logged begins with `prefix`: `val/worst_group`, `val/group/1/0`.

    Args:
        aligned: for each class the value of the attribute that the shortcut predicts, {0: 0, 1: 1}; without it, by the
            counts of the validation samples.
        prefix: what the names begin with.
    """

    def __init__(self, aligned: Mapping[int, int] | None = None, prefix: str = "val"):
        self.aligned, self.prefix = aligned, prefix
        self.parts: list[tuple[Tensor, Tensor, Tensor]] = []

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.parts = []

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        x, y, attribute = parts_of(batch)
        if attribute is None:
            raise DataError("GroupMetrics needs batches (x, y, attribute); these have no attribute.")
        given = outputs.get("logits") if isinstance(outputs, Mapping) else None
        logits = pl_module(x) if given is None else given  # in evaluation mode, without gradients
        self.parts.append((logits.detach().cpu(), y, attribute))

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking or not self.parts:
            return
        told = group_log(*joined(self.parts), self.aligned)
        pl_module.log_dict({f"{self.prefix}/{name}": value for name, value in told.items()})
