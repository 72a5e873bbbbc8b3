"""Training for the worst cluster."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from spurless.core.data import Labels
from spurless.core.method import Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.group_dro import GroupDRO, train_for_worst_group
from spurless.methods.group_inference import infer
from spurless.methods.group_inference.clusters import George
from spurless.nets import Net


@dataclass(frozen=True)
class GEORGE(George, Method):
    """GEORGE, hidden stratification (Sohoni et al. 2020, algorithm 1).  min_f max_k mean of CE(f(x), y) over cluster k

    Features of a plainly trained network are clustered within each class; a fresh network is then trained by GroupDRO
    with the clusters as groups.
    """

    bias_labels: ClassVar[Labels] = "selection"

    eta: Annotated[float, "step size of the weights of the clusters", Range(0)] = 0.01
    adjustment: Annotated[float, "C of C/√n, which is added to the loss of a cluster of n samples", Range(0)] = 0.0

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        groups = yield from infer(run, self)
        return (yield from train_for_worst_group(run, groups, GroupDRO(eta=self.eta, adjustment=self.adjustment)))
