"""Optional logging of the epochs to TensorBoard, beside the bar."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spurless.core.errors import SettingError
from spurless.core.files import atomic
from spurless.registry import name_of
from spurless.train.progress import Bar

if TYPE_CHECKING:
    from spurless.core.method import Method
    from spurless.train.observe import Progress

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


STEPS = ".steps.json"  # beside the events: the last step of each stage


class TensorBoard:
    """Writes each epoch's numbers under its stage's name, by the steps of the whole run.

    A stage counts its own steps. But stages may have the same name (a method that yields one for every round), and what
    TensorBoard forgets where a run goes on after a kill, it forgets by step, under all names.
    """

    def __init__(self, method: Method, folder: Path):
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise SettingError("--tensorboard needs tensorboardX: pip install 'spurless[tracking]'.") from None
        folder.mkdir(parents=True, exist_ok=True)  # a place that cannot be used is told before the training
        self.open, self.folder = SummaryWriter, folder
        self.writer: Any = None  # until the first epoch says from which step on
        self.ends = _saved(folder)  # by stage: its last step
        self.bar = Bar(name_of(method))

    def __enter__(self) -> TensorBoard:
        self.bar.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.__exit__(*error)
        if self.writer is not None:
            self.writer.close()

    def __call__(self, where: Progress) -> None:
        self.bar(where)
        if where.row is None:
            return
        step = self._step(where.row["stage_index"], where.row["step"])
        if self.writer is None:
            before = any(self.folder.glob("events.*"))
            self.writer = self.open(str(self.folder), purge_step=step if before else None)
        for key, name in SENT.items():
            if key in where.row:
                self.writer.add_scalar(f"{where.stage}/{name}", where.row[key], step)
        with atomic(self.folder / STEPS) as part:
            part.write_text(json.dumps(self.ends), encoding="utf-8")

    def _step(self, stage: int, step: int) -> int:
        """Of the run; what was noted of this stage and later ones is made again."""
        self.ends = {i: end for i, end in self.ends.items() if i < stage}
        before = sum(self.ends.values())
        self.ends[stage] = step
        return before + step


def _saved(folder: Path) -> dict[int, int]:
    try:
        found = json.loads((folder / STEPS).read_text(encoding="utf-8"))
        return {int(stage): int(end) for stage, end in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
