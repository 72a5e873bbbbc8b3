"""Repairs of the last layer and of the input, each with its out-of-fold answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from spurless.auditing.case import Case
from spurless.auditing.cues import encoded, floats, like, ring, smoothed
from spurless.auditing.evidence import share
from spurless.auditing.foreground import background_only, foreground, grown
from spurless.auditing.gather import Cue, Swap
from spurless.auditing.plain import Heads, fit_heads, folds_of
from spurless.auditing.suspects import Suspect, edited, group_weights
from spurless.core.data import Split

FEW = 10  # exchanged samples that can speak for a repair, or conflicting ones that speak for themselves
RESAMPLES = 10  # balanced subsets that the heads of DFR are averaged over
STRENGTHS = (0.1, 1.0, 10.0)  # ridges that are tried
TIMES = (1.0, 2.0, 3.0)  # weights of an exchanged sample, of the mean one's
GAMMAS = (4.0, 10.0)  # of AFR: how much heavier a sample is that the model gets wrong
SHARPNESS = 6.0  # from scores of the ridge head to probabilities

# What takes each kind of cue out of the input, in a user's own pipeline.
REMOVE = {
    "mark": "paint over or crop away that part of every image",
    "part": "crop that part away from every image",
    "spot": "paint over the mark in every image",
    "margin": "crop the margin of every image",
    "light": "give all images the same brightness, contrast and colour balance",
    "detail": "bring all images to one sharpness and noise level: resize and encode them again in one way",
    "place": "centre and scale all objects in the same way",
    "background": "cut the objects out, or mix the backgrounds in training",
    "text": "strip it from every text",
    "column": "drop the column",
    "attribute": "drop the column",
    "file": "encode all files again in one format, size and quality",
    "hidden": "name it in a review, and collect or weigh its groups evenly",
}

Edit = Callable[[Tensor], Tensor]


def removal(kind: str) -> str:
    """What a user does to take a cue of this kind out of the input."""
    return REMOVE.get(kind, "take it out of the input")


@dataclass(frozen=True)
class Repair:
    """A way to answer, and where it is right: of all samples, and of those whose cue was exchanged."""

    method: str
    words: str
    right: Tensor  # (n,) out of fold
    kept: Tensor | None = None  # (pairs,) whether the answer stays right with the cue of another class
    heads: tuple[Heads, ...] = ()  # whose scores are added up
    edit: Edit | None = None  # what is done to an input first

    def answers(self, case: Case, x: Tensor) -> Tensor:
        """(m,) The class that the repaired model gives inputs of the data's own kind."""
        features = case.outputs(_unlabelled(x if self.edit is None else self.edit(x)), features=bool(self.heads))
        if not self.heads:
            return features.argmax(1)
        return _added(self.heads, features, torch.full((len(x),), -1)).argmax(1)

    def where_misled(self, follows: Tensor) -> Tensor:
        """What is right of the conflicting samples and of those with the cue of another class."""
        return self.right[~follows] if self.kept is None else torch.cat([self.right[~follows], self.kept])

    def two(self, follows: Tensor) -> list[float]:
        """The accuracies where the cue helps and where it misleads. An exchange may be a part of what misleads: where
        enough real samples conflict, they count as much as all exchanged ones."""
        misled = [self.where_misled(follows)]
        if self.kept is not None and int((~follows).sum()) >= FEW:
            misled = [self.right[~follows], self.kept]
        parts = [[float(some.float().mean()) for some in each if len(some)] for each in ([self.right[follows]], misled)]
        return [sum(each) / len(each) for each in parts if each]

    def score(self, follows: Tensor) -> float:
        """Half the mean of the two, half the worse: a repaired model is as right where the cue misleads."""
        two = self.two(follows)
        return 0.5 * (sum(two) / len(two) + min(two))

    def row(self, follows: Tensor) -> dict[str, Any]:
        return {
            "method": self.method,
            "words": self.words,
            "aligned": share(self.right[follows].numpy()),
            "conflicting": share(self.right[~follows].numpy()),
            "average": share(self.right.numpy()),
            "exchanged": None if self.kept is None else share(self.kept.numpy()),
        }


class Candidates:
    """The repairs that fit a finding. They share samples, features and folds."""

    def __init__(self, case: Case, leading: Suspect, cue: Cue | None):
        self.case, self.leading, self.cue = case, leading, cue
        self.y, self.follows = case.held.y, leading.follows
        self.fold = case.fold if case.fold is not None else folds_of(self.y, case.seed)
        self.learn = (self.fold >= 0).nonzero()[:, 0]
        self.of = torch.zeros(0, dtype=torch.long)  # samples that were given the cue of another class
        self.changed, self.exchanged = torch.zeros(0), None  # they, and (pairs, d) their features
        if cue is not None and cue.swap is not None:
            of, donor = donors(self.y, self.follows & (self.fold >= 0), leading.extra.get("best"), case.seed)
            if len(of) >= FEW:
                swap = stricter(cue, case.data.shape)
                self.changed = edited(case.held[torch.arange(len(self.y))], of, donor, swap, case.images)
                self.of, self.exchanged = of, case.outputs(_unlabelled(self.changed), features=True)

    def all(self) -> list[Repair]:
        """The model as it is, and every repair."""
        candidates = [self.before()]
        if int((~self.follows[self.learn]).sum()) >= 4:
            weights = group_weights(self.y, self.follows)[self.learn]
            candidates.append(
                self._best("balanced head", "the last layer, fitted with all groups weighing the same", [weights])
            )
            candidates.append(self._dfr())
        candidates.append(self._afr())
        if self.exchanged is not None:
            candidates.append(self._mixed())
        edit = self._removal()
        return candidates if edit is None else [*candidates, self._without(edit)]

    def before(self) -> Repair:
        case, kept = self.case, None
        if self.exchanged is not None and case.heads is not None:
            kept = case.heads.logits(self.exchanged, self.fold[self.of])
        elif self.exchanged is not None:
            with torch.no_grad():
                kept = case.net.head.cpu()(self.exchanged)
        heads = () if case.heads is None else (case.heads,)
        return Repair("before", "the audited model", case.right, self._kept(kept), heads)

    def _best(self, method: str, words: str, weights: Sequence[Tensor]) -> Repair:
        """The best of heads fitted with these weights (of the training samples) and several ridges."""
        features, y = self.case.features[self.learn], self.y[self.learn]
        classes, fold = len(self.case.data.classes), self.fold[self.learn]
        tried = [
            self._repair(method, words, (fit_heads(features, y, classes, fold, each, strength),))
            for each in weights
            for strength in STRENGTHS
        ]
        return max(tried, key=lambda repair: repair.score(self.follows))

    def _dfr(self) -> Repair:
        """Deep feature reweighting (Kirichenko, Izmailov and Wilson 2023): the mean of heads on subsets in which every
        group has as many samples as the smallest one."""
        generator = torch.Generator().manual_seed(self.case.seed)
        group = 2 * self.y[self.learn] + self.follows[self.learn].long()
        cells = [(group == g).nonzero()[:, 0] for g in group.unique()]
        least = max(4, min(len(cell) for cell in cells))
        heads = []
        for _ in range(RESAMPLES):
            drawn = torch.cat([cell[torch.randperm(len(cell), generator=generator)[:least]] for cell in cells])
            rows = self.learn[drawn]
            features, fold = self.case.features[rows], self.fold[rows]
            heads.append(fit_heads(features, self.y[rows], len(self.case.data.classes), fold, None, 1.0))
        words = f"the last layer, fitted on balanced subsets of {least} samples a group"
        return self._repair("dfr", words, tuple(heads))

    def _afr(self) -> Repair:
        """Automatic feature reweighting (Qiu et al. 2023): samples that the model finds hard weigh more; the cue is not
        asked. Weights are exp(-γ p), with p the out-of-fold probability of the label."""
        scale = SHARPNESS if self.case.heads is not None else 1.0
        chance = (scale * self.case.logits).softmax(1).gather(1, self.y[:, None])[self.learn, 0]
        size = self.y[self.learn].bincount(minlength=len(self.case.data.classes)).float()[self.y[self.learn]]
        weights = [torch.exp(-gamma * chance) / size for gamma in GAMMAS]
        return self._best("afr", "the last layer, fitted with samples that the model finds hard weighing more", weights)

    def _mixed(self) -> Repair:
        """The head is fitted to every sample, and to the typical ones with the cue of another class.

        An exchange may leave a trace of the sample's own cue. So the exchanged ones also weigh more than one each,
        beside balanced groups; the head is chosen that is as right where the cue misleads as where it helps."""
        assert self.exchanged is not None
        rows = torch.cat([self.learn, self.of])
        features = torch.cat([self.case.features[self.learn], self.exchanged])
        groups = group_weights(self.y, self.follows)[self.learn]
        tried = []
        for own, times in ((torch.ones_like(groups), 1.0), *((groups / groups.mean(), times) for times in TIMES)):
            both = torch.cat([own, torch.full((len(self.of),), times)])
            heads = fit_heads(features, self.y[rows], len(self.case.data.classes), self.fold[rows], both, 1.0)
            tried.append(self._repair("mixed", "", (heads,)))
        best = max(tried, key=lambda repair: min(repair.two(self.follows)))
        return replace(best, words="the last layer, fitted to every sample as it is and with the cue of another class")

    def _without(self, edit: Edit) -> Repair:
        """The cue is taken out of all inputs, and the head is fitted again."""
        every = self.case.held[torch.arange(len(self.case.held))]
        features = self.case.outputs(_unlabelled(edit(every)), features=True)
        classes = len(self.case.data.classes)
        heads = fit_heads(features[self.learn], self.y[self.learn], classes, self.fold[self.learn])
        right = heads.logits(features, self.fold).argmax(1) == self.y
        kept = None
        if self.exchanged is not None and self.case.images and self.leading.kind in REMOVALS:
            again = self.case.outputs(_unlabelled(edit(self.changed)), features=True)  # it may leave a trace
            kept = self._kept(heads.logits(again, self.fold[self.of]))
        elif self.exchanged is not None:
            kept = right[self.of]  # all are given the same cue
        words = f"the cue taken out of the input: {removal(self.leading.kind)}"
        return Repair("without the cue", words, right, kept, (heads,), edit)

    def _repair(self, method: str, words: str, heads: tuple[Heads, ...]) -> Repair:
        right = _added(heads, self.case.features, self.fold).argmax(1) == self.y
        kept = None if self.exchanged is None else _added(heads, self.exchanged, self.fold[self.of])
        return Repair(method, words, right, self._kept(kept), heads)

    def _kept(self, logits: Tensor | None) -> Tensor | None:
        return None if logits is None else logits.argmax(1) == self.y[self.of]

    def _removal(self) -> Edit | None:
        """How the cue is taken out of an input: as a user would, or by giving all samples that of one and the same."""
        kind, images = self.leading.kind, self.case.images
        if images and kind in REMOVALS:
            return _on_images(REMOVALS[kind])
        if self.cue is None or self.cue.swap is None:
            return None
        swap, one = stricter(self.cue, self.case.data.shape), torch.tensor([self._neutral()])
        neutral = self.case.held[one]

        def edit(x: Tensor) -> Tensor:
            every = torch.arange(len(x))
            return edited(torch.cat([x, neutral]), every, torch.full_like(every, len(x)), swap, images)

        return edit

    def _neutral(self) -> int:
        """A typical sample, and of a text one without what was put there."""
        values = self.cue.values if self.cue is not None else None
        order = self.leading.asked
        if values is not None and len(values) >= len(order) and self.leading.kind == "text":
            return int(order[int(values[-len(order) :].sum(1).argmin())])
        typical = self.follows[order].nonzero()[:, 0]
        return int(order[typical[len(typical) // 2]])


def donors(y: Tensor, typical: Tensor, best: int | None, seed: int) -> tuple[Tensor, Tensor]:
    """Typical samples, and for each one of another class whose cue it is given.

    `best`: the one class that the cue gives away; then its samples are the donors of all others.

    >>> y = torch.tensor([0, 0, 1, 1, 2, 2])
    >>> of, donor = donors(y, torch.tensor([True, False, True, True, True, True]), 1, 0)
    >>> of.tolist(), y[donor[y[of] != 1]].tolist(), bool((y[of] != y[donor]).all())
    ([0, 2, 3, 4, 5], [1, 1, 1], True)
    """
    generator = torch.Generator().manual_seed(seed)
    order, donor = typical.nonzero()[:, 0], torch.full((len(y),), -1)
    for c in y[order].unique():
        own, others = order[y[order] == c], order[(y[order] != c) if best in (None, int(c)) else (y[order] == best)]
        if len(others):
            donor[own] = others[torch.randint(len(others), (len(own),), generator=generator)]
    of = order[donor[order] >= 0]
    return of, donor[of]


# What takes a cue out of images from 0 to 1


def cropped(x: Tensor) -> Tensor:
    """Without its margin, at the size that it had."""
    top, left = (2 * side for side in ring(x))
    return F.interpolate(x[..., top:-top, left:-left], x.shape[-2:], mode="bilinear", align_corners=False)


def reencoded(x: Tensor) -> Tensor:
    """As if all files had been small ones of a low quality: what is lost in one is lost in all."""
    return encoded(smoothed(x), 30)


def cut_out(x: Tensor) -> Tensor:
    """The object, on grey."""
    mask = grown(foreground(x))
    return x * mask + 0.5 * (1 - mask)


def on_other_ground(x: Tensor, donor: Tensor) -> Tensor:
    """The inside of the object of x on the ground of the donor: along its outline something of x's own ground stays."""
    k = 2 * max(1, round(0.0125 * x.shape[-1])) + 1
    inside = -F.max_pool2d(-foreground(x), k, 1, k // 2)
    return x * inside + background_only(donor) * (1 - inside)


def wider(swap: Swap, shape: tuple[int, ...]) -> Swap:
    """An exchange of a window, with a rim of a quarter of its side: a mark may reach beyond the window that shows it.

    >>> at = wider(lambda x, donor: torch.cat([donor[..., :4], x[..., 4:]], 3), (1, 4, 12))
    >>> at(torch.zeros(1, 1, 4, 12), torch.ones(1, 1, 4, 12))[0, 0, 0].tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    window = swap(torch.zeros(1, *shape), torch.ones(1, *shape))
    rim = max(1, round(0.25 * math.sqrt(float(window[0, 0].sum()))))
    window = F.max_pool2d(window, 2 * rim + 1, 1, rim)
    return lambda x, donor: torch.where(window > 0, donor, x)


def stricter(cue: Cue, shape: tuple[int, ...]) -> Swap:
    """An exchange that leaves less of a sample's own cue than the one that shows whether it is used."""
    assert cue.swap is not None
    if cue.kind == "background":
        return on_other_ground
    return wider(cue.swap, shape) if cue.kind in ("mark", "part") else cue.swap


REMOVALS: dict[str, Edit] = {"margin": cropped, "file": reencoded, "background": cut_out}


def _on_images(change: Edit, at_once: int = 400) -> Edit:
    return lambda x: torch.cat([like(change(floats(chunk)), x[:1]) for chunk in x.split(at_once)])


def _unlabelled(x: Tensor) -> Split:
    return Split(x, torch.zeros(len(x), dtype=torch.long))


def _added(heads: Sequence[Heads], features: Tensor, fold: Tensor) -> Tensor:
    return torch.stack([each.logits(features, fold) for each in heads]).sum(0)
