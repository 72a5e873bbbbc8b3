"""What could stand in for the label, and three questions to each: is it available, is it used, does it do harm?

- Available: numbers that hold the cue and nothing else are fitted to the labels, each sample judged by a fit without
  it. The placebo is the same fit to labels in random order.
- Used: samples that the model gets right are given the cue of a sample of another class, and as a placebo that of a
  sample of their own class. What counts is how much more often the model then answers as the donor's class would
  have it.
- Harm: the model's accuracy where the cue points to the label and where it points elsewhere (exact test by class),
  and whether a head that is trained with balanced groups does better there. Samples that are simply hard stay hard.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spurless.auditing.case import Case
from spurless.auditing.evidence import Score, apart, more_errors, more_than_half, share
from spurless.auditing.gather import AREA, CHUNK, Cue, Swap
from spurless.auditing.learner import Guess
from spurless.auditing.plain import fit_heads, folds_of
from spurless.auditing.pool import Pool
from spurless.core.augment import floats, like
from spurless.core.stats import wilson

PAIRS, FEWEST_PAIRS = 160, 20  # exchanged samples at most and at least
PHOTOS = 90, 0.3  # of photographs, whose passes take long: exchanged samples, and how strong a cue must be to be asked
UNKNOWN = {"place": 0.5, "part": 0.5}  # crispness of what belongs to most classes, where hardly a sample shows it
WORTH = 0.35  # by how much more often the cue says a class of that class than of others, for the model to be asked


@dataclass
class Suspect:
    """A cue, and what was measured about it. Accuracies and shares are percentages."""

    name: str
    words: str
    kind: str
    alone: Score  # accuracy by the cue alone
    placebo: float  # the same with labels in random order
    strength: float  # true less false positives, lower end: of all classes or of the one that is named
    of: str | None  # the class that the cue gives away, where it does not tell all of them apart
    says: Tensor  # (n,) of case.held: the class that the cue points to
    follows: Tensor  # (n,) of case.held: whether it points to the label
    asked: Tensor  # (m,) places in case.held that were looked at
    used: dict[str, Any] | None = None
    harm: dict[str, Any] | None = None
    verdict: str = "no evidence"
    text: str = ""
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def crisp(self) -> float:
        """How sure the cue is where it misleads, against where it helps."""
        return float(self.extra.get("crisp", 1.0))

    @property
    def effect(self) -> float:
        """Lower end of how much more often the model goes with the donor than with the placebo, 0 where not asked."""
        return self.used["effect"]["low"] / 100 if self.used else 0.0


# Available


def available(case: Case, pool: Pool, cue: Cue) -> Suspect:
    """How much the cue alone tells about the label."""
    classes, y = len(case.data.classes), pool.y
    if cue.scores is not None:
        scores, placebo = cue.scores, float(y.bincount().max()) / len(y)
    else:
        assert cue.values is not None
        values = cue.values[pool.learn]
        guess = Guess(values, y[pool.learn], classes, case.seed, waves=48 if values.shape[1] <= 6 else 160)
        scores, placebo = guess(cue.values), guess.placebo
        scores[pool.learn] = guess.left_out
    prior = y[pool.learn].bincount(minlength=classes).float().clamp_min(1) / len(pool.learn)
    says = (scores / prior).argmax(1)  # as if all classes were of one size
    by_class = {c: told(says[pool.learn], y[pool.learn], c) for c in range(classes)}
    mean = sum(by_class.values()) / classes
    best = max(by_class, key=lambda c: by_class[c])
    one = classes > 2 and by_class[best] > mean + 0.15
    strength = by_class[best] if one else mean
    everything = case.predicted.clone()
    everything[pool.asked] = says[pool.held]
    follows = torch.ones(len(case.held), dtype=torch.bool)
    agrees = says == y if not one else (says == best) == (y == best)
    follows[pool.asked] = agrees[pool.held]
    alone = share((says == y)[pool.learn].numpy())
    assert alone is not None
    suspect = Suspect(
        cue.name, cue.words, cue.kind, alone, 100 * placebo, strength, str(case.data.classes[best]) if one else None,
        everything, follows, pool.asked,
    )  # fmt: skip
    ahead = (scores / prior)[pool.learn]
    crisp = crispness(ahead if not one else against_the_rest(ahead, best), agrees[pool.learn])
    crisp = crisp if crisp is not None else UNKNOWN.get(cue.kind, 1.0)
    suspect.extra = {"best": best if one else None, "crisp": crisp, "cue": cue}
    if cue.kind == "background":
        suspect.extra["scores"] = scores[pool.held]
    return suspect


def against_the_rest(scores: Tensor, c: int) -> Tensor:
    """(n, 2) The scores of a class, and the highest of the others."""
    others = torch.cat([scores[:, :c], scores[:, c + 1 :]], 1)
    return torch.stack([scores[:, c], others.amax(1)], 1)


def crispness(scores: Tensor, agrees: Tensor) -> float | None:
    """How sure the cue is where it points elsewhere, against where it points to the label; None where it hardly does.

    What was put into an image or a text is there or not, so that the cue is as sure where it misleads. What belongs to
    the classes themselves (a boot is taller than a sandal) misleads where a sample is near the border between them."""
    ahead = scores.topk(2, dim=1).values
    sure = (ahead[:, 0] - ahead[:, 1]) / ahead[:, 0].abs().clamp_min(1e-3)
    if int((~agrees).sum()) < 3:
        return None
    return min(1.0, float(sure[~agrees].median() / sure[agrees].median().clamp_min(1e-3)))


def told(says: Tensor, y: Tensor, c: int) -> float:
    """How much more often the cue says c of c than of others; the lower end of Newcombe's 95 % interval."""
    own, other = says[y == c] == c, says[y != c] == c
    if not len(own) or not len(other):
        return 0.0
    p, q = float(own.float().mean()), float(other.float().mean())
    low, high = wilson(int(own.sum()), len(own))[0], wilson(int(other.sum()), len(other))[1]
    return p - q - math.hypot(p - low, high - q)


# Used


def slow(case: Case) -> bool:
    return case.images and min(case.data.shape[1:]) >= AREA


def worth_asking(case: Case, suspect: Suspect) -> bool:
    """Whether the cue gives away enough for the model to be asked about it."""
    return suspect.strength >= (PHOTOS[1] if slow(case) and suspect.kind != "background" else WORTH)


def use(case: Case, pool: Pool, cue: Cue, suspect: Suspect) -> None:
    """Exchange the cue between samples of different classes, and as a placebo between samples of one class."""
    if cue.swap is None:
        return
    y, right = case.held.y[pool.asked], case.right[pool.asked]
    typical = suspect.follows[pool.asked]
    of, other, same = exchange_pairs(y, right & typical, typical, suspect.extra["best"], case.seed)
    if slow(case):
        of, other, same = of[: PHOTOS[0]], other[: PHOTOS[0]], same[: PHOTOS[0]]
    if len(of) < FEWEST_PAIRS:
        suspect.used = None
        suspect.extra["pairs"] = len(of)
        return
    x = pool.x[pool.held]
    toward = y[other]
    answers = []
    for donor in (other, same, of):  # the last one is a sham: the edit with the sample itself as the donor
        many = len(of) // 4 if donor is of else len(of)
        changed = edited(x, of[:many], donor[:many], cue.swap, case.images)
        answers.append(case.answers(changed, pool.asked[of[:many]]))
    went = [a == toward[: len(a)] for a in answers]
    lean, placebo = share(went[0].numpy()), share(went[1].numpy())
    only, against = int((went[0] & ~went[1]).sum()), int((went[1] & ~went[0]).sum())
    suspect.used = {
        "pairs": len(of),
        "other_class": lean,
        "same_class": placebo,
        "sham": share(went[2].numpy()),
        "effect": apart(lean, placebo),
        "p": more_than_half(only, against),
    }


def edited(x: Tensor, of: Tensor, donor: Tensor, swap: Swap, images: bool) -> Tensor:
    if not images:
        return swap(x[of], x[donor])
    parts = zip(of.split(CHUNK), donor.split(CHUNK), strict=True)
    return torch.cat([like(swap(floats(x[a]), floats(x[b])), x[:1]) for a, b in parts])


def exchange_pairs(
    y: Tensor, right: Tensor, typical: Tensor, best: int | None, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Samples that the model gets right, for each a typical donor of another class, and one of its own class.

    `best`: the one class that the cue gives away; then its samples are the donors, and others receive.

    >>> ok = torch.ones(6, dtype=torch.bool)
    >>> y = torch.tensor([0, 0, 0, 1, 1, 1])
    >>> of, other, same = exchange_pairs(y, ok, ok, None, 0)
    >>> bool((y[of] != y[other]).all()), bool((y[of] == y[same]).all()), bool((of != same).all())
    (True, True, True)
    """
    generator = torch.Generator().manual_seed(seed)

    def mixed(rows: Tensor) -> Tensor:
        return rows[torch.randperm(len(rows), generator=generator)]

    rows = mixed((right if best is None else right & (y != best)).nonzero()[:, 0])
    order = mixed(typical.nonzero()[:, 0])
    by_class = {int(c): order[y[order] == c] for c in y.unique()}
    others = {c: order[(y[order] != c) if best is None else (y[order] == best)] for c in by_class}
    pairs: list[tuple[int, int, int]] = []
    # Classes in turn, so that the samples of a rare one take part.
    turns = sorted(range(len(rows)), key=lambda i, seen={}: _turn(seen, int(y[rows[i]])))  # type: ignore[misc]
    for i in rows[turns].tolist()[:PAIRS]:
        c = int(y[i])
        mine = by_class[c]
        if len(others[c]) and len(mine) > 1:
            same = int(mine[len(pairs) % len(mine)])
            if same == i:
                same = int(mine[(len(pairs) + 1) % len(mine)])
            pairs.append((i, int(others[c][len(pairs) % len(others[c])]), same))
    made = torch.tensor(pairs, dtype=torch.long).reshape(-1, 3)
    return made[:, 0], made[:, 1], made[:, 2]


def _turn(seen: dict[int, int], c: int) -> int:
    seen[c] = seen.get(c, 0) + 1
    return seen[c]


# Harm


def harm(case: Case, suspect: Suspect) -> None:
    """Accuracy where the cue points to the label and where it does not, and with groups that are balanced."""
    rows = suspect.asked
    y, right, follows = case.held.y[rows].numpy(), case.right[rows].numpy(), suspect.follows[rows].numpy()
    aligned, conflicting = share(right[follows]), share(right[~follows])
    suspect.harm = {
        "aligned": aligned,
        "conflicting": conflicting,
        "gap": apart(aligned, conflicting),
        "p": more_errors(~right, ~follows, y),
        "balanced": None,
    }


FEWEST = 5  # conflicting samples that a balanced head can be judged by
HEAVIEST = 30.0  # weight of a sample, in mean weights
FAIR = (0.1, 1.0, 10.0)  # ridges of a balanced head


def balance(case: Case, suspect: Suspect) -> None:
    """What a head on the same features gets if all groups (class, points there or not) weigh the same in training."""
    if suspect.harm is None:
        return
    rows = suspect.asked
    y, follows = case.held.y[rows], suspect.follows[rows]
    if int((~follows).sum()) < FEWEST:
        return
    fold, learn = _folds(case, rows)
    features, classes = case.features[rows], len(case.data.classes)
    plain = (case.logits[rows] if case.heads is not None else _head(features, y, classes, fold, learn)).argmax(1) == y
    fair = _head(features, y, classes, fold, learn, group_weights(y, follows)).argmax(1) == y
    mended, broken = int((fair & ~plain & ~follows).sum()), int((plain & ~fair & ~follows).sum())
    suspect.harm["balanced"] = {
        "aligned": share(fair[follows].numpy()),
        "conflicting": share(fair[~follows].numpy()),
        "gain": 100 * float(fair[~follows].float().mean() - plain[~follows].float().mean()),
        "loss": 100 * float(plain[follows].float().mean() - fair[follows].float().mean()),
        "p": more_than_half(mended, broken),
    }


def _folds(case: Case, rows: Tensor) -> tuple[Tensor, Tensor]:
    if case.fold is not None:
        fold = case.fold[rows]
        return fold, (fold >= 0).nonzero()[:, 0]
    return folds_of(case.held.y[rows], case.seed), torch.arange(len(rows))


def _head(
    features: Tensor, y: Tensor, classes: int, fold: Tensor, learn: Tensor, weights: Tensor | None = None
) -> Tensor:
    if weights is None:
        return fit_heads(features[learn], y[learn], classes, fold[learn]).logits(features, fold)
    # A few heavy samples are easily learnt by heart: stronger ridges are tried than for the plain head.
    tried = [fit_heads(features[learn], y[learn], classes, fold[learn], weights[learn], s) for s in FAIR]
    answers = [heads.logits(features, fold) for heads in tried]
    return max(answers, key=lambda logits: float((weights[learn] * (logits[learn].argmax(1) == y[learn])).sum()))


def group_weights(y: Tensor, follows: Tensor) -> Tensor:
    """(n,) Weights by which every class has as much, and half of it where the cue misleads."""
    weights = torch.zeros(len(y))
    for c in y.unique():
        cells = [(y == c) & (follows == kind) for kind in (True, False)]
        present = [cell for cell in cells if bool(cell.any())]
        for cell in present:
            weights[cell] = 1 / (len(present) * int(cell.sum()))
    return weights.clamp_max(HEAVIEST * float(weights.mean()))


def background_part(case: Case, suspect: Suspect) -> float:
    """How much of what the whole image tells (area under the ROC curve above one half, mean of the classes against the
    rest) its background tells alone."""
    rows = suspect.asked
    y, alone = case.held.y[rows], suspect.extra["scores"]
    areas = [(_area(case.logits[rows], y, int(c)), _area(alone, y, int(c))) for c in y.unique()]
    whole, ground = (float(np.mean([each[k] for each in areas])) - 0.5 for k in (0, 1))
    return ground / max(1e-6, whole) if ground > 0.1 else 0.0


def _area(scores: Tensor, y: Tensor, c: int) -> float:
    """How often a sample of the class has a higher score than another one, against the mean of the other classes."""
    ahead = scores[:, c] - (scores.sum(1) - scores[:, c]) / max(1, scores.shape[1] - 1)
    rank = ahead.argsort(stable=True).argsort().double() + 1
    own = y == c
    n, m = int(own.sum()), int((~own).sum())
    return 0.5 if not n or not m else float((rank[own].sum() - n * (n + 1) / 2) / (n * m))
