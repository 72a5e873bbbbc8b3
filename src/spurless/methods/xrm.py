"""Cross-risk minimisation, then training for the worst group."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from spurless.core.data import Labels
from spurless.core.method import Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.group_dro import GroupDRO, train_for_worst_group
from spurless.methods.group_inference import infer
from spurless.methods.group_inference.xrm import Twins
from spurless.nets import Net


@dataclass(frozen=True)
class XRM(Twins, Method):
    """Cross-risk minimisation (Pezeshki et al. 2024), then GroupDRO on class × (either twin is wrong)."""

    bias_labels: ClassVar[Labels] = "selection"

    eta: Annotated[float, "step size of the weights of the groups", Range(0)] = 0.01

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        groups = yield from infer(run, self)
        return (yield from train_for_worst_group(run, groups, GroupDRO(eta=self.eta)))
