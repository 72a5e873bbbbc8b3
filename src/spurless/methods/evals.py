"""Retraining the last layer on samples of high and low loss."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from spurless.core.errors import UserError
from spurless.core.method import PLAIN, Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.dfr import STRENGTHS, Head, Penalty, Samples, fit_head, halves, worst_group
from spurless.methods.group_inference import within_classes
from spurless.methods.group_inference.eiil import best_environments
from spurless.methods.irm import slopes
from spurless.methods.parts.losses import ce_rows
from spurless.nets import Net

SHARES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5)  # of the smallest class of the half that is fitted on


@dataclass(frozen=True)
class EVaLS(Method):
    """Loss-based sampling (Ghaznavi et al. 2024).  the k highest and the k lowest losses of each class

    A network is trained plainly; its head is refitted on the held-out samples of each class with the highest and the
    lowest loss. How many, and the penalty, are those by which the worst inferred environment of a class is best.
    """

    k: Annotated[int, "samples of the highest, and of the lowest, loss of each class; 0: picked", Range(0)] = 0
    strength: Annotated[float, "C, the inverse of the penalty's weight; 0: picked", Range(0)] = 0
    penalty: Annotated[Penalty, "what keeps the head small: the sum of its absolute weights, or of their squares"] = (
        "l1"
    )

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        val = run.data.val
        if val is None or len(set(val.y.tolist())) < len(run.data.classes):
            raise UserError(
                f"EVaLS fits the head on validation samples of every class, and {run.data.name} lacks some; use dfr "
                "with method.on = train, or afr."
            )
        net = run.net()
        yield Stage("erm", lambda b: run.ce(net(b.x), b.y), run.optimizer(net), model=net, select=True, shared=PLAIN)
        logits, y = run.outputs(net, val).cpu(), val.y
        environment = within_classes(y, best_environments(slopes(logits.double(), y)).long(), 2)
        samples = Samples.of(run.outputs(net, val, features=True), y, environment, net)
        fit_on, judge_on = halves(y, run.generator("evals"))
        self.best_head(samples, ce_rows(logits, y), fit_on, judge_on).put_into(net)
        return net

    def best_head(self, samples: Samples, loss: Tensor, fit_on: Tensor, judge_on: Tensor) -> Head:
        """The head, of all numbers k and strengths C, by which the worst environment of the other half is best."""
        y = torch.from_numpy(samples.y)
        smallest = int(torch.bincount(y[fit_on]).min())
        numbers = [self.k] if self.k else sorted({max(1, round(s * smallest)) for s in SHARES})
        strengths = [self.strength] if self.strength else STRENGTHS
        judge = samples.pick(judge_on if len(judge_on) else fit_on)
        subsets = [samples.pick(fit_on[extremes(loss[fit_on], y[fit_on], k)]) for k in numbers]
        heads = [fit_head(subset, self.penalty, c) for subset in subsets for c in strengths]
        return heads[int(np.argmax([worst_group(head.right(judge), judge.group) for head in heads]))]


def extremes(loss: Tensor, y: Tensor, k: int) -> Tensor:
    """(m,) Numbers of the k samples of the highest and the k of the lowest loss in each class, in order.

    Of a class with fewer than 2 k samples all are taken.

    >>> extremes(torch.tensor([0.1, 3.0, 0.5, 0.2, 0.4, 0.3]), torch.tensor([0, 0, 0, 1, 1, 1]), 1).tolist()
    [0, 1, 3, 4]
    """
    kept = []
    for c in y.unique():
        mine = (y == c).nonzero()[:, 0]
        ranked = mine[loss[mine].argsort(stable=True)]
        kept.append(ranked if len(ranked) <= 2 * k else torch.cat([ranked[:k], ranked[-k:]]))
    return torch.cat(kept).sort().values
