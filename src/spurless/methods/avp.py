"""Pruning by how much activations vary, a few weights an epoch."""

import math
from abc import abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, Literal

import torch

from spurless.core.errors import UserError
from spurless.core.method import Method, Run, Stage
from spurless.core.settings import Range
from spurless.methods.parts.pruning import (
    EVERY,
    Alive,
    Kappa,
    Layers,
    Scores,
    Structure,
    hold,
    left,
    remove_lowest,
    variability,
    watching,
    zero,
)
from spurless.methods.pgd import length
from spurless.nets import Net

SHARE = 0.2  # of the training, before the first removal: CelebA's 10 of 50 epochs


@dataclass(frozen=True)
class GradualPruning(Method):
    """Train; then, before each further epoch, with a certain chance, remove the candidates with the lowest scores."""

    candidates: Annotated[Literal["weight", "unit"], "remove single weights, or all weights that leave a unit"] = (
        "weight"
    )
    count: Annotated[int, "candidates that are removed at a time", Range(1)] = 2
    share: Annotated[float, "share of all candidates that is removed at a time, instead; 0: count", Range(0, 1)] = 0.0
    chance: Annotated[float, "chance that an epoch begins with a removal", Range(0, 1)] = 0.5
    from_epoch: Annotated[float, "epochs before pruning begins; 0: a fifth of the recipe's length", Range(0)] = 0.0
    prune_epochs: Annotated[int, "epochs of pruning; 0: the rest of the recipe's length", Range(0)] = 0
    frozen: Annotated[bool, "prune only, without training on"] = False
    keep: Annotated[float, "share of the candidates that always stays", Range(0, 1)] = 0.04
    layers: Layers = EVERY

    @property
    def structure(self) -> Structure:
        return "weight" if self.candidates == "weight" else "column"

    @abstractmethod
    def scores(self, run: Run, net: Net, dice: torch.Generator) -> Scores:
        """The lowest are removed first."""

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        if run.recipe.selection != "last" and not self.frozen:
            raise UserError(
                "Gradual pruning makes a stage of each epoch, and no rule can pick among them: "
                "use recipe.selection = last."
            )
        # Two generators, so that with one seed every kind of score removes as many at the same epochs.
        net, coin, dice = run.net(), run.generator("prune"), run.generator("scores")
        alive = run.keep(Alive(net, self.layers))
        optimizer = hold(run.optimizer(net), net, alive.masks)
        before, after = self._epochs(run)
        whole = before + after

        def stage(name: str, begin: float, end: float, select: bool, until: bool = False) -> Stage:
            loss = lambda b: run.ce(net(b.x), b.y)  # noqa: E731
            span = begin / whole, end / whole
            return Stage(name, loss, optimizer, model=net, epochs=end - begin, span=span, select=select, until=until)

        # The manuscript's toy is trained to no training error before pruning: the recipe can end this stage so.
        yield stage("dense", 0, before, select=self.frozen, until=True)
        for k in range(after):
            if float(torch.rand((), generator=coin)) < self.chance:
                self._remove(run, net, alive, dice)
            if not self.frozen:
                yield stage("prune", before + k, before + k + 1, select=k == after - 1)
        return net

    def _remove(self, run: Run, net: Net, alive: Alive, dice: torch.Generator) -> None:
        masks = alive.masks
        remaining, total = left(masks, self.structure, net)
        wanted = round(self.share * total) if self.share else self.count
        spare = remaining - math.ceil(self.keep * total)
        scores = self.scores(run, net, dice)
        remove_lowest(masks, scores, max(0, min(wanted, spare)), self.structure, net)
        zero(net, masks)

    def _epochs(self, run: Run) -> tuple[float, int]:
        """Before pruning, and with it."""
        whole = length(run)
        before = self.from_epoch or max(1, round(SHARE * whole))
        return before, self.prune_epochs or max(1, round(whole - before))


@dataclass(frozen=True)
class AVP(GradualPruning):
    """Activation-variability pruning (Malik and Fern, manuscript).  κ_ij = Var(A_ij Z_i) / mean(A_ij Z_i), lowest first

    Z_i is what goes into a layer, A_ij the weight that it meets there; mean and variance are over the training samples.
    """

    kappa: Annotated[Kappa, "|A| Var(Z)/|mean Z|; with the signs as printed; or the variance A² Var(Z) alone"] = (
        "absolute"
    )

    def scores(self, run: Run, net: Net, dice: torch.Generator) -> Scores:
        with watching(net, self.layers) as moments:
            run.outputs(net)
        return variability(net, moments, self.kappa, units=self.candidates == "unit")
