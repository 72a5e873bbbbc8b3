"""Repairs of the last layer and of the input, each with its out-of-fold answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from spurless.auditing.case import Case
from spurless.auditing.evidence import share
from spurless.auditing.exchanges import FEW, World, unlabelled
from spurless.auditing.plain import Heads, fit_heads
from spurless.auditing.removals import Edit, edits, removal
from spurless.auditing.suspects import Suspect, group_weights

RESAMPLES = 10  # balanced subsets that the heads of DFR are averaged over
STRENGTHS = (0.1, 1.0, 10.0)  # ridges that are tried
GAMMAS = (4.0, 10.0)  # of AFR: how much heavier a sample is that the model gets wrong
SHARPNESS = 6.0  # from scores of the ridge head to probabilities

Kept = tuple[Tensor, Tensor]  # (pairs,) bool each: right with the cue of another class, with that of their own


@dataclass(frozen=True)
class Repair:
    """A way to answer, and where it is right: of all samples, and in each world of those whose cue was exchanged."""

    method: str
    words: str
    right: Tensor  # (n,) out of fold
    kept: tuple[Kept | None, ...] = ()
    heads: tuple[Heads, ...] = ()  # whose scores are added up
    edit: Edit | None = None  # what is done to an input first
    finding: Suspect | None = None  # whose cue it takes from the model; None: of none or of all

    def answers(self, case: Case, x: Tensor) -> Tensor:
        """(m,) The class that the repaired model gives inputs of the data's own kind."""
        features = case.outputs(unlabelled(x if self.edit is None else self.edit(x)), features=bool(self.heads))
        if not self.heads:
            return features.argmax(1)
        return added(self.heads, features, torch.full((len(x),), -1)).argmax(1)

    def where_misled(self, world: World, k: int) -> Tensor:
        """What is right of a world's conflicting samples and of those with the cue of another class."""
        real, kept = self.right[~world.follows], self.kept[k]
        return real if kept is None else torch.cat([real, kept[0]])

    def lost(self, world: World, k: int) -> float:
        """The share of right answers that the cue of another class costs beyond that of another sample of the same
        class: an exchange spoils more than the cue. Without one, what it costs to conflict."""
        kept, real = self.kept[k], self.right[~world.follows]
        if kept is not None:
            return _mean(kept[1]) - _mean(kept[0])
        return _mean(self.right[world.follows]) - _mean(real) if len(real) else 0.0

    def two(self, world: World, k: int) -> tuple[float, float]:
        """The accuracies where the cue helps and where it misleads.

        An exchange spoils more than the cue, but what it spoils may look like the cue (a seam, like a stripe): half of
        what the placebo costs is taken off. An exchange may be a part of what misleads: where enough real samples
        conflict, they count as much as all exchanged ones."""
        helped, real, kept = _mean(self.right[world.follows]), self.right[~world.follows], self.kept[k]
        if kept is None:
            return helped, _mean(real) if len(real) else helped
        exchanged = _mean(kept[0]) + 0.5 * max(0.0, _mean(self.right[world.of]) - _mean(kept[1]))
        if len(real) >= FEW:
            return helped, 0.5 * (_mean(real) + exchanged)
        n = len(world.of)
        return helped, (float(real.sum()) + n * exchanged) / (len(real) + n)

    def score(self, world: World, k: int) -> float:
        """Half the mean of the two, half the worse: a repaired model is as right where the cue misleads."""
        two = self.two(world, k)
        return 0.5 * (sum(two) / 2 + min(two))

    def row(self, world: World, k: int) -> dict[str, Any]:
        """As audit.json holds it, with accuracies where the cue of a world helps and misleads."""
        kept = self.kept[k]
        return {
            "method": self.method,
            "words": self.words,
            "finding": None if self.finding is None else self.finding.name,
            "aligned": share(self.right[world.follows].numpy()),
            "conflicting": share(self.right[~world.follows].numpy()),
            "average": share(self.right.numpy()),
            "exchanged": None if kept is None else share(kept[0].numpy()),
        }


def _mean(right: Tensor) -> float:
    return float(right.float().mean()) if len(right) else 0.0


def added(heads: Sequence[Heads], features: Tensor, fold: Tensor) -> Tensor:
    return torch.stack([each.logits(features, fold) for each in heads]).sum(0)


class Candidates:
    """The repairs that fit some findings. They share samples, features and folds, and are asked in the same worlds."""

    def __init__(self, case: Case, worlds: Sequence[World], fold: Tensor):
        self.case, self.worlds, self.fold, self.y = case, worlds, fold, case.held.y
        self.learn = (fold >= 0).nonzero()[:, 0]
        self.classes = len(case.data.classes)

    def all(self) -> list[Repair]:
        """The model as it is, and every repair."""
        candidates = [self.before(), *self._balanced(0), self._afr()]
        for k, world in enumerate(self.worlds):
            if k and world.features is None:
                candidates += self._balanced(k)
            if world.features is not None:
                candidates.append(self._mixed([world]))
            candidates += [self._without(edit, world, how) for how, edit in edits(self.case, world).items()]
        several = [world for world in self.worlds if world.features is not None]
        return [*candidates, self._mixed(several)] if len(several) > 1 else candidates

    def before(self) -> Repair:
        case = self.case
        if case.heads is not None:
            return replace(self._repair("before", "the audited model", (case.heads,)), right=case.right)
        with torch.no_grad():
            head = case.net.head.cpu()
            kept = tuple(None if w.features is None else self._kept(w, *map(head, w.features)) for w in self.worlds)
        return Repair("before", "the audited model", case.right, kept)

    def _balanced(self, k: int) -> list[Repair]:
        world = self.worlds[k]
        if int((~world.follows[self.learn]).sum()) < 4:
            return []
        weights = group_weights(self.y, world.follows)[self.learn]
        head = self._best("balanced head", "the last layer, fitted with all groups weighing the same", [weights])
        return [replace(each, finding=world.finding) for each in (head, self._dfr(world.follows))]

    def _best(self, method: str, words: str, weights: Sequence[Tensor]) -> Repair:
        """The best of heads fitted with these weights (of the training samples) and several ridges."""
        features, y, fold = self.case.features[self.learn], self.y[self.learn], self.fold[self.learn]
        tried = [
            self._repair(method, words, (fit_heads(features, y, self.classes, fold, each, strength),))
            for each in weights
            for strength in STRENGTHS
        ]
        return self._top(tried)

    def _top(self, tried: Sequence[Repair]) -> Repair:
        return max(tried, key=lambda repair: sum(repair.score(w, k) for k, w in enumerate(self.worlds)))

    def _dfr(self, follows: Tensor) -> Repair:
        """Deep feature reweighting (Kirichenko, Izmailov and Wilson 2023): the mean of heads on subsets in which every
        group has as many samples as the smallest one."""
        generator = torch.Generator().manual_seed(self.case.seed)
        group = 2 * self.y[self.learn] + follows[self.learn].long()
        cells = [(group == g).nonzero()[:, 0] for g in group.unique()]
        least = max(4, min(len(cell) for cell in cells))
        heads = []
        for _ in range(RESAMPLES):
            drawn = torch.cat([cell[torch.randperm(len(cell), generator=generator)[:least]] for cell in cells])
            rows = self.learn[drawn]
            features, fold = self.case.features[rows], self.fold[rows]
            heads.append(fit_heads(features, self.y[rows], self.classes, fold, None, 1.0))
        words = f"the last layer, fitted on balanced subsets of {least} samples a group"
        return self._repair("dfr", words, tuple(heads))

    def _afr(self) -> Repair:
        """Automatic feature reweighting (Qiu et al. 2023): samples that the model finds hard weigh more; the cue is not
        asked. Weights are exp(-γ p), with p the out-of-fold probability of the label."""
        scale = SHARPNESS if self.case.heads is not None else 1.0
        chance = (scale * self.case.logits).softmax(1).gather(1, self.y[:, None])[self.learn, 0]
        size = self.y[self.learn].bincount(minlength=self.classes).float()[self.y[self.learn]]
        weights = [torch.exp(-gamma * chance) / size for gamma in GAMMAS]
        return self._best("afr", "the last layer, fitted with samples that the model finds hard weighing more", weights)

    def _mixed(self, worlds: Sequence[World]) -> Repair:
        """The head is fitted to exchanged samples alone, half of them with the cue of another class: there it tells
        nothing. Samples as they are would tell the head apart where an exchange was made, and where the cue helps."""
        parts = [(world.of, features) for world in worlds for features in world.features or ()]
        rows, features = torch.cat([of for of, _ in parts]), torch.cat([features for _, features in parts])
        tried = [
            self._repair("mixed", "", (fit_heads(features, self.y[rows], self.classes, self.fold[rows], None, each),))
            for each in STRENGTHS[:2]
        ]
        words = "the last layer, fitted to samples with the cue of their own and of another class"
        one = len(worlds) == 1
        words = words if one else f"{words}, of each cue"
        return replace(self._top(tried), words=words, finding=worlds[0].finding if one else None)

    def _without(self, edit: Edit, world: World, how: str = "") -> Repair:
        """The cue is taken out of all inputs, and the head is fitted again. What an exchange changes it may not."""
        every = self.case.held[torch.arange(len(self.case.held))]
        features = self.case.outputs(unlabelled(edit(every)), features=True)
        heads = fit_heads(features[self.learn], self.y[self.learn], self.classes, self.fold[self.learn])
        right = heads.logits(features, self.fold).argmax(1) == self.y
        kept = []
        for w in self.worlds:
            again = [self.case.outputs(unlabelled(edit(x)), features=True) for x in w.inputs or ()]
            kept.append(self._kept(w, *(heads.logits(x, self.fold[w.of]) for x in again)) if again else None)
        words = f"the cue taken out of the input: {removal(world.finding.kind)}" + (f" ({how})" if how else "")
        return Repair(
            "without the cue" + (f", {how}" if how else ""), words, right, tuple(kept), (heads,), edit, world.finding
        )

    def _repair(self, method: str, words: str, heads: tuple[Heads, ...]) -> Repair:
        right = added(heads, self.case.features, self.fold).argmax(1) == self.y
        kept = [
            None if w.features is None else self._kept(w, *(added(heads, f, self.fold[w.of]) for f in w.features))
            for w in self.worlds
        ]
        return Repair(method, words, right, tuple(kept), heads)

    def _kept(self, world: World, other: Tensor, same: Tensor) -> Kept:
        y = self.y[world.of]
        return other.argmax(1) == y, same.argmax(1) == y
