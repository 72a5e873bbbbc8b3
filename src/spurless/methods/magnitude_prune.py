"""Pruning of the smallest weights."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated

from spurless.core.method import PLAIN, Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.parts.pruning import (
    EVERY,
    Layers,
    Masks,
    Scope,
    Structure,
    hold,
    keep_highest,
    prunable,
    squares,
    zero,
)
from spurless.methods.pgd import length
from spurless.nets import Net


@dataclass(frozen=True)
class MagnitudePrune(Method):
    """Magnitude pruning (Han et al. 2015): train, remove the smallest weights, train on.  m = 1[|w| > threshold]"""

    keep: Annotated[float, "share of the weights that stays", Range(0, 1)] = 0.3
    scope: Annotated[Scope, "one threshold for all layers, or one for each"] = "global"
    structure: Annotated[
        Structure, "what goes together: single weights, input columns, kernels, or output rows (not the head's)"
    ] = "weight"
    finetune: Annotated[float, "length of the training afterwards, as a share of the recipe's", Range(0)] = 0.2
    layers: Layers = EVERY

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        net = run.net()
        prunable(net, self.layers)  # a wrong name is told now, not after the training
        alone = self.finetune == 0
        yield Stage("dense", lambda b: run.ce(net(b.x), b.y), run.optimizer(net), model=net, select=alone, shared=PLAIN)
        masks = self.masks(net)
        zero(net, masks)
        if self.finetune:
            optimizer = hold(run.optimizer(net), net, masks)
            epochs = self.finetune * length(run)
            yield Stage("finetune", lambda b: run.ce(net(b.x), b.y), optimizer, model=net, epochs=epochs, select=True)
        return net

    def masks(self, net: Net) -> Masks:
        scores = squares(net, self.layers)
        if self.structure == "row":
            scores.pop("head.weight", None)  # a class cannot be cut off
        return keep_highest(scores, self.keep, self.scope, self.structure, net)
