"""What held-out errors say: which samples a shortcut misleads, and whether one network is better there than another."""

import math

import torch
from torch import Tensor

FIXED = 0.2  # the least share that must be gone of plain training's errors where what is easy misleads
MOST = 0.45  # the same, where other samples are lost for it
LUCK = 0.2  # so many lost samples are put down to luck where their chance is higher, if nothing was made worse
APART = 1 / 8  # of ln(C − 1): what the wrong class may tell of the right one where a shortcut is at work


class Evidence:
    """What is right of held-out samples, in the world that the experts' errors speak for.

    Where these show a shortcut, that is a world in which what is easy tells nothing (the samples weigh as sharp odds
    would draw them); where they do not, the samples count as they are. Where they cannot tell, the mean of both.
    """

    def __init__(self, p: Tensor, y: Tensor, shown: bool | None):
        missed, share = 1 - p.gather(1, y[:, None])[:, 0], {True: 0.0, None: 0.5, False: 1.0}[shown]
        self.shown, self.classes, self.misled = shown, p.shape[1], p.argmax(1) != y  # p (m, C): the experts' answers
        self.weights = odds(missed, y, 0.0, sharpness(missed, y)) * (1 - share) + share / len(y)

    def score(self, right: Tensor) -> float:
        """Of a network, by whether each sample (m,) is predicted rightly."""
        return float(self.weights[right].sum().item())

    def prefers(self, after: Tensor, before: Tensor, level: float) -> bool:
        """The gate. Where the errors speak against a shortcut, and of two classes, more must be right beyond chance
        where what is easy misleads, and a share FIXED of the errors be gone there, or MOST of them where other samples
        are lost for it: what is only hard stays hard, and what is learnt of it costs as much elsewhere."""
        if self.score(after) <= self.score(before):
            return False
        if self.shown or (self.shown is None and self.classes > 2):
            return True
        won, lost = int((after & ~before).sum()), int((before & ~after).sum())
        share = FIXED if chance(lost, won) > LUCK else MOST
        return shortcut_evidence(self.misled, before, after, level, share)


def odds(missed: Tensor, y: Tensor, floor: float, power: float = 1.0) -> Tensor:
    """(n,) How often each sample is drawn: by missed^power within its class, classes alike, and a share of all alike.

    >>> odds(torch.tensor([0.25, 0.75, 0.5, 0.5]), torch.tensor([0, 0, 1, 1]), floor=0.0).tolist()
    [0.125, 0.375, 0.25, 0.25]
    """
    missed = missed.clamp_min(1e-12) ** power
    total = missed.new_zeros(int(y.max()) + 1).index_add(0, y, missed)
    return (1 - floor) * missed / total[y] / (total > 0).sum() + floor / len(y)


def sharpness(missed: Tensor, y: Tensor) -> float:
    """The power with which the experts are right on 1 / C of what is drawn: what is easy tells nothing. At most 8.

    >>> missed, y = torch.tensor([0.1, 0.1, 0.9] * 2).double(), torch.tensor([0, 0, 0, 1, 1, 1])
    >>> power = sharpness(missed, y)
    >>> round(power, 2), round(float((odds(missed, y, 0.0, power) * (1 - missed)).sum()), 2)
    (0.32, 0.5)
    """
    low, high, target = 0.0, 8.0, 1 / (int(y.max()) + 1)
    for _ in range(40):
        power = (low + high) / 2
        easy = float((odds(missed, y, 0.0, power) * (1 - missed)).sum())
        low, high = (low, power) if easy < target else (power, high)
    return power


def shows_shortcut(y: Tensor, predicted: Tensor) -> bool | None:
    """Whether what is easy misleads as a shortcut does: to any wrong class (n,) alike, whatever the right one is.

    Where the classes themselves are easy or hard, they are confused in pairs. None: two classes, or too few errors.
    """
    classes, wrong = int(y.max()) + 1, predicted != y
    free = (classes - 1) ** 2 - classes  # the mean of the likelihood ratio if they are independent; its variance: twice
    if classes < 3 or int(wrong.sum()) < 2 * free:
        return None
    counts = torch.bincount(y[wrong] * classes + predicted[wrong], minlength=classes**2).view(classes, classes).double()
    expected = 1 - torch.eye(classes, dtype=torch.double)
    for _ in range(100):  # rows and columns in turn: independent but for the empty diagonal
        expected *= (counts.sum(1) / expected.sum(1).clamp_min(1e-9))[:, None]
        expected *= (counts.sum(0) / expected.sum(0).clamp_min(1e-9))[None]
    seen = counts > 0
    g = 2 * float((counts[seen] * torch.log(counts[seen] / expected[seen])).sum())
    told, margin, limit = g - free, 2 * math.sqrt(2 * max(free, 1)), 2 * counts.sum() * APART * math.log(classes - 1)
    return True if told + margin < limit else False if told - margin > limit else None


def shortcut_evidence(misled: Tensor, before: Tensor, after: Tensor, level: float = 0.05, share: float = FIXED) -> bool:
    """Whether more is right (m,) where what is easy misleads, beyond chance, and a share of the errors of before gone.

    >>> misled, before = torch.arange(100) < 20, torch.arange(100) >= 10
    >>> shortcut_evidence(misled, before, before | True), shortcut_evidence(misled, before, ~before | misled)
    (True, True)
    >>> shortcut_evidence(misled, before, before | (torch.arange(100) < 1))
    False
    """
    up, down = int((after & ~before & misled).sum()), int((before & ~after & misled).sum())
    return chance(up, down) <= level and up - down >= share * int((~before & misled).sum())


def chance(more: int, less: int) -> float:
    """Of so many changes, the chance of at least so many for the better if both are equally likely (exact sign test).

    >>> chance(3, 0), chance(0, 0), chance(1, 1)
    (0.125, 1.0, 0.75)
    """
    return float(sum(math.comb(more + less, k) for k in range(more, more + less + 1)) / 2 ** (more + less))
