"""Optional logging of the epochs to TensorBoard, beside the bar."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from spurless.errors import UserError
from spurless.progress import Bar
from spurless.registry import name_of

if TYPE_CHECKING:
    from spurless.core import Method
    from spurless.loop import Progress

# What a row of the history calls it, and the name that it is sent under. There are two training losses: the mean over
# the epoch's batches, of whatever the method minimises and while the weights change; and the cross entropy of the whole
# training split afterwards, in evaluation mode, which is known where `until_accuracy` or `until_loss` asks for it.
SENT = {
    "loss": "loss_of_batches",
    "train_loss": "train_split_cross_entropy",
    "train_accuracy": "train_split_accuracy",
    "val_loss": "val_loss",
    "val_accuracy": "val_accuracy",
    "lr": "lr",
}


class TensorBoard:
    """Writes each epoch's numbers under its stage's name."""

    def __init__(self, method: Method, folder: Path):
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise UserError("--tensorboard needs tensorboardX: pip install 'spurless[tracking]'.") from None
        self.writer = SummaryWriter(str(folder))
        self.bar = Bar(name_of(method))

    def __enter__(self) -> TensorBoard:
        self.bar.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.__exit__(*error)
        self.writer.close()

    def __call__(self, where: Progress) -> None:
        self.bar(where)
        if where.row is None:
            return
        for key, name in SENT.items():
            if key in where.row:
                self.writer.add_scalar(f"{where.stage}/{name}", where.row[key], where.row["step"])
