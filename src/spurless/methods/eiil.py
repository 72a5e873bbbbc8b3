"""Environment inference for invariant learning."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from spurless.core.data import Labels
from spurless.core.method import Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.group_dro import GroupDRO, train_for_worst_group
from spurless.methods.group_inference import infer
from spurless.methods.group_inference.eiil import Environments
from spurless.methods.irm import IRM, train_invariantly
from spurless.nets import Net


@dataclass(frozen=True)
class EIIL(Environments, Method):
    """Environment inference for invariant learning (Creager, Jacobsen and Zemel 2021, algorithm 1).

    q = argmax ½ (mean q·d)² + ½ (mean (1 − q)·d)²,   d_i = d/ds CE(s · f_ref(x_i), y_i) at s = 1

    f_ref is trained plainly; the samples with q > ½ and the others are two environments. Then GroupDRO is trained on
    environment × class, or IRMv1 on the environments.
    """

    bias_labels: ClassVar[Labels] = "selection"

    then: Annotated[Literal["group_dro", "irm"], "what is trained on the environments"] = "group_dro"
    eta: Annotated[float, "step size of the weights of the groups (group_dro)", Range(0)] = 0.01
    penalty_weight: Annotated[float, "weight of the penalty after annealing (irm)", Range(0)] = 191257.0
    anneal_at: Annotated[float, "share of the training after which it has that weight (irm)", Range(0, 1)] = 0.38

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        groups = yield from infer(run, self)
        if self.then == "irm":
            irm = IRM(penalty_weight=self.penalty_weight, anneal_at=self.anneal_at)
            return (yield from train_invariantly(run, groups, irm))
        return (yield from train_for_worst_group(run, groups, GroupDRO(eta=self.eta)))
