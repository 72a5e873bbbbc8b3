"""What held-out answers say: which samples a shortcut misleads, and whether one network is better there."""

import math
from statistics import NormalDist
from typing import NamedTuple

import torch
from torch import Tensor

FIXED = 0.2  # the least share that must be gone of plain training's errors where what is easy misleads
MOST = 0.45  # the same, where other samples are lost for it
LUCK = 0.2  # so many lost samples are put down to luck where their chance is higher, if nothing was made worse
ONLY_EASY = 1 / 3  # of the samples where what is easy misleads: right on fewer, a network knows little else
KNOWN = 0.1  # share of a class that the experts must be right on for its other samples to count as misled
SURE = 0.05  # share of the experts' errors that their confidence must leave unexplained where a shortcut shows
GAIN, FOR_EACH = 10.0, 0.05  # nats of the likelihood that ε must bring, and for each error
FEWEST_ERRORS = 20
MARGIN = 0.005  # of the held-out samples: what a network may cost that is called harmless
SHARES = (0.0, *(0.0005 * 2 ** (k / 2) for k in range(20)))  # ε: 0, 0.0005 … 0.36
TEMPERATURES = tuple(2 ** (k / 4) for k in range(-8, 17))  # T: 1/4 … 16


class Sure(NamedTuple):
    """How the experts are sure and wrong: what their logits must be divided by, and the share of labels as if drawn."""

    temperature: float  # T
    share: float  # ε

    def misled(self, p: Tensor, y: Tensor) -> Tensor:
        """(n,) The probability that a sample is of that share.  (ε / C) / p_ε

        >>> p, y = torch.tensor([[0.99, 0.01], [0.5, 0.5]]), torch.tensor([1, 1])
        >>> Sure(1.0, 0.1).misled(p, y).round(decimals=2).tolist()
        [0.85, 0.1]
        """
        of_label = (log(p) / self.temperature).softmax(1).gather(1, y[:, None])[:, 0]
        drawn = self.share / p.shape[1]
        return drawn / ((1 - self.share) * of_label + drawn)


class Evidence:
    """What is right of held-out samples, in the world that the experts' errors speak for.

    Where these show a shortcut, that is the world in which all labels are as if drawn, so that it tells nothing. Where
    they do not, half of a world in which what is easy tells nothing (by sharp odds), and half the samples as they are.
    """

    def __init__(self, p: Tensor, y: Tensor, shown: Sure | None):
        missed, classes = 1 - p.gather(1, y[:, None])[:, 0], p.shape[1]  # p (m, C): the experts' answers
        right = p.argmax(1) == y
        known = torch.zeros(classes, dtype=torch.double).index_add(0, y, right.double()) >= KNOWN * y.bincount(
            minlength=classes
        )
        self.shown, self.classes = shown, classes
        self.misled = ~right & known[y]  # of a class that the experts never give, all samples are rare, not misled
        self.weights = odds(missed, y, 0.5, sharpness(missed, y))
        if shown:
            r = shown.misled(p, y)
            self.misled = r > 0.5
            self.weights = r / r.sum()

    def score(self, right: Tensor) -> float:
        """Of a network, by whether each sample (m,) is predicted rightly."""
        return float(self.weights[right].sum().item())

    def by_guessing(self, right: Tensor) -> float:
        """Of guesses, the chance of such a score in the world in which all labels are as if drawn (normal)."""
        share = 1 / self.classes
        spread = math.sqrt(float((self.weights**2).sum()) * share * (1 - share))
        return 0.5 * math.erfc((self.score(right) - share) / spread / math.sqrt(2))

    def prefers(self, after: Tensor, before: Tensor, level: float) -> bool:
        """The gate: a higher score; where a shortcut shows, one that guesses would not have.

        Where none shows, more must be right where what is easy misleads, beyond chance, and a share FIXED of the errors
        be gone there, or MOST of them where other samples are lost for it: what is only hard stays hard, and what is
        learnt of it costs as much elsewhere. A network that is right on few there knows little else: FIXED will do.
        """
        if self.score(after) <= self.score(before):
            return False
        if self.shown:
            return self.by_guessing(after) <= level
        won, lost = int((after & ~before).sum()), int((before & ~after).sum())
        knows, misled = int((before & self.misled).sum()), int(self.misled.sum())
        only_easy = self.classes > 2 and knows < ONLY_EASY * misled
        share = FIXED if only_easy or chance(lost, won) > LUCK else MOST
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


def shows_shortcut(p: Tensor, y: Tensor) -> Sure | None:
    """Whether what is easy misleads as a shortcut does: the experts (n, C) are sure, and wrong all the same.

    Where classes are hard the experts are unsure, and after a temperature T their confidence explains the errors.
    Where a shortcut misleads it cannot: a share ε of the labels is as if drawn.  p_ε = (1 − ε) softmax(log p / T)
    + ε / C, T and ε by maximum likelihood. It must explain a share SURE of the errors.
    """
    wrong, classes = int((p.argmax(1) != y).sum()), p.shape[1]
    if wrong < FEWEST_ERRORS:
        return None
    drawn = torch.tensor(SHARES, dtype=torch.double, device=p.device)
    likelihood = torch.stack(
        [
            ((1 - drawn) * of_label[:, None] + drawn / classes).log().sum(0)
            for of_label in ((log(p) / t).softmax(1).gather(1, y[:, None])[:, 0] for t in TEMPERATURES)
        ]
    )  # (T, ε)
    t, share = divmod(int(likelihood.argmax()), len(SHARES))
    unexplained = SHARES[share] * (1 - 1 / classes) * len(y)
    if float(likelihood.max() - likelihood[:, 0].max()) < max(GAIN, FOR_EACH * wrong) or unexplained < SURE * wrong:
        return None
    return Sure(TEMPERATURES[t], SHARES[share])


def log(p: Tensor) -> Tensor:
    return p.double().clamp_min(1e-12).log()


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


def harmless(after: Tensor, before: Tensor, level: float = 0.05) -> bool:
    """Whether the second network costs less than MARGIN of what is right (m,), but for a chance of at most `level`.

    The upper limit of (lost − won) / m, by a normal approximation that is 2.7 / m where nothing changes (at 5 %).

    >>> right = torch.ones(1000, dtype=torch.bool)
    >>> harmless(right, right), harmless(right[:500], right[:500]), harmless(torch.arange(1000) >= 4, right)
    (True, False, False)
    """
    if not 0 < level < 1:
        return level == 1
    z = NormalDist().inv_cdf(1 - level)
    won, lost = int((after & ~before).sum()), int((before & ~after).sum())
    return lost - won + z * math.sqrt(lost + won + z**2) <= MARGIN * len(after)


def chance(more: int, less: int) -> float:
    """Of so many changes, the chance of at least so many for the better if both are equally likely (exact sign test).

    >>> chance(3, 0), chance(0, 0), chance(1, 1)
    (0.125, 1.0, 0.75)
    """
    return float(sum(math.comb(more + less, k) for k in range(more, more + less + 1)) / 2 ** (more + less))
