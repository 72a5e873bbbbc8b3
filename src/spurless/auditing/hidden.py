"""Attributes that nobody wrote down: does the model go by a simple cue instead of by the rest of the image or text?

Three questions to each cue, all of them on rows that the model was not trained on, or on rows left out of the fit:

1. Is it strong enough to stand in for the label? A model that sees the cue alone must remove over half of the errors
   that guessing the commonest class makes. In data with no shortcut, simple cues seldom do.
2. Does the model go by it? Half of the answer is put against the other half: an image of one class gets the cue of an
   image of another class. A model that looks at the thing itself stays with the image; one that takes the shortcut goes
   with the cue. Hard samples and wrong labels play no part, because only images that the model gets right are used.
   The null hypothesis is that of a sensible model: it goes with the cue no more often than with all the rest.
3. Does that cost anything? Among rows whose cue points to another class, errors are more frequent than elsewhere in
   their class.

Found: all three. Suspected: the first two, and no row in the data can show the third.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from spurless.auditing.attributes import FOUND, SUSPECTED
from spurless.auditing.case import Case
from spurless.auditing.cues import CUES, Cue, floats, like
from spurless.auditing.evidence import apart, holm, more_errors, more_than_half, share
from spurless.auditing.learner import Guess
from spurless.core.stats import wilson

LEARN, ASK, PAIRS = 1500, 4000, 400  # rows to learn a cue from, held-out rows it is read from, exchanged images
FEWEST_PAIRS = 30  # fewer cannot reach the level of the test after its correction
STRONG = 0.5  # share of the errors of guessing that a cue must remove


def examine(case: Case, on_step: Callable[[str], None] = lambda name: None) -> list[dict[str, Any]]:
    """One entry for each cue, the most telling first. Empty for data that is neither images nor texts."""
    if not case.images and not case.texts:
        return []
    train, asked = _rows(len(case.data.train), LEARN, case.seed), _rows(len(case.held), ASK, case.seed)
    cues: Sequence[Cue] = CUES
    if case.texts:
        cues, train = _of_text(case)
    learned, held = (x if case.texts else floats(x) for x in (case.data.train[train], case.held[asked]))
    found = []
    for cue in cues:
        on_step(cue.name)
        guess = Guess(cue.read(learned), case.data.train.y[train], len(case.data.classes), case.seed)
        found.append(_entry(case, cue, guess, train, asked, held))
    for entry, p in zip(found, holm([e["p"] for e in found]), strict=True):
        entry["p"] = p
        entry["finding"] = _finding(entry)
    return sorted(found, key=lambda e: (e["finding"] == "none", -e["goes_with_cue"] * (e["skill"] > STRONG)))


def _of_text(case: Case) -> tuple[Sequence[Cue], Tensor]:
    """The cues of these texts, and training rows to judge them by: other ones than those they were made from."""
    from spurless.auditing.text_cues import text_cues
    from spurless.data.words import words_of

    assert case.data.tokens is not None
    train = case.data.train
    both = _rows(len(train), 2 * LEARN, case.seed)
    seen, judged = both[::2], both[1::2]
    cues = text_cues(words_of(case.data.tokens), train[seen], train.y[seen], len(case.data.classes))
    return [Cue(*cue) for cue in cues], judged


def _entry(case: Case, cue: Cue, guess: Guess, train: Tensor, asked: Tensor, held: Tensor) -> dict[str, Any]:
    y, right = case.held.y[asked], case.right[asked]
    told = guess.left_out.argmax(1) == case.data.train.y[train]  # (rows,)
    usual = float(case.data.train.y[train].bincount().max()) / len(train)
    low = wilson(int(told.sum()), len(told))[0]
    says = guess(cue.read(held)).argmax(1)
    of, donor = exchange_pairs(y, right, right & (says == y), case.seed)
    with_cue = with_rest = 0
    if len(of):
        changed = cue.swap(held[of], held[donor])
        answer = case.answers(changed if case.texts else like(changed, case.held[asked[:1]]))
        with_cue, with_rest = int((answer == y[donor]).sum()), int((answer == y[of]).sum())
    follows = says == y
    following, contradicting = share(right[follows].numpy()), share(right[~follows].numpy())
    return {
        "name": cue.name,
        "words": cue.words,
        "kind": "text" if case.texts else "image",
        "alone": share(told.numpy()),
        "skill": (low - usual) / max(1e-9, 1 - usual),
        "goes_with_cue": with_cue,
        "goes_with_rest": with_rest,
        "pairs": len(of),
        "p": more_than_half(with_cue, with_rest),
        "p_cost": more_errors(~right.numpy(), ~follows.numpy(), y.numpy()),
        "following": following,
        "contradicting": contradicting,
        "gap": apart(following, contradicting),
        "rows": asked,
        "says": says,
    }


def _finding(entry: dict[str, Any]) -> str:
    if len(entry["rows"]) < FEWEST_PAIRS:
        return "cannot tell"  # before all else: in a few rows no cue looks strong
    if entry["skill"] <= STRONG:
        return "none"
    if entry["pairs"] < FEWEST_PAIRS:
        return "cannot tell"
    if entry["p"] < FOUND and entry["p_cost"] < SUSPECTED:
        return "found"
    return "suspected" if entry["p"] < SUSPECTED else "none"


def exchange_pairs(y: Tensor, right: Tensor, typical: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Rows that the model gets right, each at most once, and for each a typical row of another class as a donor.

    Typical are rows whose cue points to their own class: a donor must bring what its class usually has.

    >>> right = torch.tensor([True, True, True, True, False])
    >>> of, donor = exchange_pairs(torch.tensor([0, 0, 1, 1, 1]), right, right, 0)
    >>> sorted(of.tolist()), [set(pair) <= {0, 1} or set(pair) <= {2, 3} for pair in zip(of.tolist(), donor.tolist())]
    ([0, 1, 2, 3], [False, False, False, False])
    """
    rows = right.nonzero()[:, 0]
    generator = torch.Generator().manual_seed(seed)
    of = rows[torch.randperm(len(rows), generator=generator)][:PAIRS]
    possible = typical.nonzero()[:, 0]
    order = possible[torch.randperm(len(possible), generator=generator)]
    donors: list[int] = []
    kept: list[int] = []
    for i in of.tolist():
        others = order[y[order] != y[i]]
        if len(others):
            kept.append(i)
            donors.append(int(others[len(donors) % len(others)]))
    return torch.tensor(kept, dtype=torch.long), torch.tensor(donors, dtype=torch.long)


def _rows(n: int, most: int, seed: int) -> Tensor:
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:most].sort().values
