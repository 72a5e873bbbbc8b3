"""Pruning at random."""

from dataclasses import dataclass

import torch

from spurless.core.method import Run
from spurless.methods.avp import GradualPruning
from spurless.methods.parts.pruning import Scores, chances
from spurless.nets import Net


@dataclass(frozen=True)
class RandomPrune(GradualPruning):
    """Random pruning (Malik and Fern, manuscript: R-prune), with AVP's budget.  The scores are random numbers."""

    def scores(self, run: Run, net: Net, dice: torch.Generator) -> Scores:
        return chances(net, dice, self.layers, self.structure)
