"""Cross-risk minimisation, then training for the worst group."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from spurless.core.data import Labels
from spurless.core.method import Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.group_dro import GroupDRO, train_for_worst_group
from spurless.methods.group_inference import infer
from spurless.methods.group_inference.xrm import TwinEpochs
from spurless.nets import Net


@dataclass(frozen=True)
class XRM(Method):
    """Cross-risk minimisation (Pezeshki et al. 2024), then GroupDRO on class × (either twin is wrong)."""

    bias_labels: ClassVar[Labels] = "selection"

    identify_epochs: TwinEpochs = 0
    eta: Annotated[float, "step size of the weights of the groups", Range(0)] = 0.01

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        found = yield from infer(run, "xrm", identify_epochs=self.identify_epochs)
        return (yield from train_for_worst_group(run, found, GroupDRO(eta=self.eta)))
