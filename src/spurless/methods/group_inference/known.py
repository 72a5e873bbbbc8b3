"""The true groups: class and bias attributes."""

from dataclasses import dataclass
from typing import ClassVar

from spurless.core.method import Run
from spurless.methods.group_inference import Groups, Inference, Inferring, groups_of


@dataclass(frozen=True)
class Known(Inference):
    """Every combination of class and attribute values is a group, or of the values alone. Needs bias labels."""

    needs_labels: ClassVar[bool] = True

    def infer(self, run: Run) -> Inferring:
        values = tuple(len(names) for names in run.data.values)
        with_class = not run.data.groups_ignore_class
        count = len(run.data.classes) if with_class else 1
        for size in values:
            count *= size
        val = run.data.val
        held_out = None if val is None or val.a is None else groups_of(val, values, with_class)
        return Groups(groups_of(run.data.train, values, with_class), held_out, count)
        yield  # a generator like the others, which train
