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
        for key in ("loss", "lr", "val_accuracy", "val_loss", "train_accuracy"):
            if key in where.row:
                self.writer.add_scalar(f"{where.stage}/{key}", where.row[key], where.row["step"])
