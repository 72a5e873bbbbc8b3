"""Which words set some texts of a class apart from others of it: odds ratios of holding a word, with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from spurless.auditing.case import Case
from spurless.auditing.evidence import holm
from spurless.core.data import Texts
from spurless.core.seeds import derive
from spurless.data.words import presence, words_of
from spurless.methods.parts.clusters import sample

LEVEL = 0.05  # of the p-values, corrected for the number of words
MOST = 2000  # samples of each kind that are read
FEWEST = 5  # texts that hold a word, for it to be counted at all
SHOWN = 8  # words of a class


class Odds(NamedTuple):
    word: str
    here: float  # share of the samples that hold it
    elsewhere: float
    ratio: float  # of the odds of holding it
    low: float  # and its 95 % interval
    high: float
    p: float  # corrected

    def __str__(self) -> str:
        shares = f"{100 * self.here:.0f} % here, {100 * self.elsewhere:.0f} % elsewhere in the class"
        return f"'{self.word}': {shares} (odds × {self.ratio:.2g}, {self.low:.2g} to {self.high:.2g})"


def odds_ratios(here: Tensor, elsewhere: Tensor, words: Sequence[str]) -> list[Odds]:
    """Of each word: how much more often (n, k) samples hold it than (m, k) others, the surest first.

    Odds ratios with half a sample added to every count (Haldane and Anscombe), intervals and p-values by the normal
    approximation of their logarithm (Woolf); p-values corrected for the number of words (Holm).

    >>> here, elsewhere = torch.tensor([[True]] * 9 + [[False]]), torch.tensor([[True]] + [[False]] * 9)
    >>> round(odds_ratios(here, elsewhere, ["dull"])[0].ratio, 3), round((9.5 / 1.5) ** 2, 3)
    (40.111, 40.111)
    """
    n, m = len(here), len(elsewhere)
    a, b = here.sum(0).double(), elsewhere.sum(0).double()  # (k,) each
    counts = [each + 0.5 for each in (a, n - a, b, m - b)]
    log = counts[0].log() - counts[1].log() - counts[2].log() + counts[3].log()
    error = torch.stack([1 / each for each in counts]).sum(0).sqrt()
    p = holm(torch.special.erfc((log / error).abs() / math.sqrt(2)).tolist())
    ratio, low, high = ((log + t * error).exp().tolist() for t in (0, -1.96, 1.96))
    shares = zip((a / n).tolist(), (b / m).tolist(), strict=True)
    ratios = [
        Odds(word, *share, ratio[k], low[k], high[k], p[k])
        for k, (word, share) in enumerate(zip(words, shares, strict=True))
    ]
    order = (log / error).abs().argsort(descending=True, stable=True).tolist()
    return [ratios[k] for k in order]


def apart(case: Case, rows: Tensor, others: Tensor) -> list[Odds]:
    """The words that these held-out samples hold more often, or less often, than the others, beyond chance."""
    assert isinstance(case.data.inputs, Texts)
    if not len(rows) or not len(others):
        return []
    seed = derive(case.seed, "words")
    rows, others = (i[sample(len(i), MOST, seed)] for i in (rows, others))
    words, present = presence(words_of(case.data.inputs.tokens), case.held[torch.cat([rows, others])], FEWEST)
    words, present = _worth_telling(words, present)
    ratios = odds_ratios(present[: len(rows)], present[len(rows) :], words) if words else []
    return [each for each in ratios if each.p < LEVEL]


def of_errors(case: Case) -> list[dict[str, Any]]:
    """For each class, the words by which texts that the model gets wrong differ from those that it gets right."""
    if not case.texts:
        return []
    entries = []
    for label, name in enumerate(case.data.classes):
        own = case.held.y == label
        wrong, right = ((own & mask).nonzero()[:, 0] for mask in (~case.right, case.right))
        told = apart(case, wrong, right)
        if told:
            words = [each._asdict() for each in told[:SHOWN]]
            entries.append({"class": name, "wrong": len(wrong), "right": len(right), "words": words})
    return entries


def _worth_telling(words: Sequence[str], present: Tensor) -> tuple[list[str], Tensor]:
    """Without signs that are no words: a full stop explains nothing to a reader."""
    kept = [k for k, word in enumerate(words) if any(c.isalnum() for c in word)]
    return [words[k] for k in kept], present[:, kept]
