"""Simple properties of a text that a model can take for the class, in the form that hidden.py asks about.

As with images each cue has two sides: `read` are a few numbers that hold the cue and little else, and `swap` is a text
with the cue of another text and all else left as it is. Of a pair of texts, the second one is read and changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from spurless.data.words import Words

MARKERS = 3  # single words that are looked at together
FREQUENT = 0.02  # share of the rows that must hold a word, for it to be a marker
ENDS, COMMON = 3, 50  # tokens at each end of a text, and how many different ones are told apart at each place

# Words that say little about what a text is about or how it judges; negations are left out, since they do.
FUNCTION = frozenset(
    """a about above after again all also am an and any are as at be because been before being below between both by
    can could did do does doing down during each for from further had has have having he her here hers herself him
    himself his how i if in into is it its itself may me might more most must my myself of off on once or other our
    ours ourselves out over own same shall she should so some such than that the their theirs them themselves then
    there these they this those through to under until up upon was we were what when where which while who whom whose
    why will with would you your yours yourself yourselves s t d ll m re ve""".split()
)


class Cue(NamedTuple):
    name: str
    words: str  # in a sentence: "the model goes by ..."
    read: Callable[[Tensor], Tensor]  # (n, 2, l) -> (n, k)
    swap: Callable[[Tensor, Tensor], Tensor]  # both (n, 2, l)


class Body(NamedTuple):
    """A row in three pieces: what stands before the text that a cue is about, its token ids, and what stands after."""

    before: np.ndarray  # (2, b)
    ids: list[int]
    after: np.ndarray  # (2, c)
    part: int

    def row(self, ids: Sequence[int], length: int) -> np.ndarray:
        """int32 (2, length) With other ids as the text; what is too long is cut at the end of the text."""
        room = length - self.before.shape[1] - self.after.shape[1]
        kept = np.array(list(ids)[: max(0, room)], np.int32)
        whole = np.concatenate([self.before, np.stack([kept, np.full_like(kept, self.part)]), self.after], axis=1)
        return np.pad(whole, ((0, 0), (0, length - whole.shape[1])))


def body(row: np.ndarray, special: np.ndarray) -> Body:
    """The last text of a row (2, l), without special tokens around it.

    >>> special = np.array([True, True, False, False, False])
    >>> found = body(np.array([[1, 2, 3, 1, 0], [1, 1, 1, 1, 0]]), special)
    >>> found.ids, found.before.tolist(), found.row([4], 5).tolist()
    ([2, 3], [[1], [1]], [[1, 4, 1, 0, 0], [1, 1, 1, 0, 0]])
    """
    ids, part = row[0], row[1]
    last = int(part.max())
    text = np.flatnonzero((part == last) & ~special[ids]) if last else np.zeros(0, int)
    real = int((part > 0).sum())
    first, end = (int(text[0]), int(text[-1]) + 1) if len(text) else (real, real)
    return Body(row[:, :first], ids[first:end].tolist(), row[:, end:real], max(1, last))


def text_cues(words: Words, rows: Tensor, y: Tensor, classes: int) -> tuple[Cue, ...]:
    """The cues for these rows (n, 2, l) with their labels (n,), which say what words and beginnings are common.

    They must be other rows than those that the cues are judged by.
    """
    special = words.special
    style = np.array([_is_style(t) and not s for t, s in zip(words.texts, special, strict=True)])
    bodies = [body(row, special) for row in rows.numpy()]
    markers = marker_ids(bodies, y, classes, len(special), MARKERS)
    named = ", ".join(f"'{words.texts[i]}'" for i in markers) or "any single word"
    first, last = (_common([b.ids for b in bodies], end) for end in (False, True))

    def each(change: Callable[[list[int], list[int]], list[int]]) -> Callable[[Tensor, Tensor], Tensor]:
        def swap(x: Tensor, donor: Tensor) -> Tensor:
            pairs = [(body(a, special), body(b, special)) for a, b in zip(x.numpy(), donor.numpy(), strict=True)]
            made = [mine.row(change(mine.ids, theirs.ids), x.shape[-1]) for mine, theirs in pairs]
            return torch.from_numpy(np.stack(made)).to(x.dtype)

        return swap

    def numbers(of: Callable[[list[int]], Sequence[float]]) -> Callable[[Tensor], Tensor]:
        return lambda x: torch.tensor([list(of(body(row, special).ids)) for row in x.numpy()], dtype=torch.float32)

    seen = np.flatnonzero(np.bincount([i for b in bodies for i in b.ids if style[i]], minlength=len(style)) >= 5)
    place = {int(i): k for k, i in enumerate(seen)}

    def rates(ids: list[int]) -> list[float]:
        found = [0.0] * (len(place) + 1)
        for i in ids:
            if style[i]:
                found[place.get(i, len(place))] += 1 / len(ids)
        return found

    def form(ids: list[int]) -> list[float]:
        return [float(np.log1p(len(ids))), *rates(ids)]

    return (
        Cue("form", "length, punctuation and small words", numbers(form), each(lambda a, b: swap_form(a, b, style))),
        Cue("length", "the length of the text", numbers(lambda ids: [float(np.log1p(len(ids)))]), each(swap_length)),
        Cue("style", "punctuation, numbers and small words", numbers(rates), each(lambda a, b: swap_kind(a, b, style))),
        Cue(
            "single words",
            f"the words {named}" if len(markers) > 1 else f"the word {named}",
            numbers(lambda ids: [float(i in set(ids)) for i in markers] or [0.0]),
            each(lambda a, b: swap_marked(a, b, frozenset(markers))),
        ),
        Cue("opening", f"the first {ENDS} tokens", numbers(lambda ids: _ends(ids, first, False)), each(swap_opening)),
        Cue("ending", f"the last {ENDS} tokens", numbers(lambda ids: _ends(ids, last, True)), each(swap_ending)),
    )


def marker_ids(bodies: Sequence[Body], y: Tensor, classes: int, size: int, most: int) -> list[int]:
    """The tokens whose presence alone tells most about the class: those by which guessing gains most rows."""
    held = np.zeros((classes, size), np.int64)
    for each, label in zip(bodies, y.tolist(), strict=True):
        held[label, np.unique(np.array(each.ids, np.int64))] += 1
    total = np.bincount(y.numpy(), minlength=classes)[:, None]  # (classes, 1)
    gain = held.max(0) + (total - held).max(0) - total.max()
    gain[held.sum(0) < FREQUENT * total.sum()] = 0
    order = np.argsort(-gain, kind="stable")[:most]
    return [int(i) for i in order if gain[i] > 0]


# What an exchange does with the ids of two texts


def swap_length(mine: list[int], theirs: list[int]) -> list[int]:
    """My text, cut or repeated to the length of theirs.

    >>> swap_length([1, 2, 3], [9]), swap_length([1, 2], [9] * 5)
    ([1], [1, 2, 1, 2, 1])
    """
    return (mine * (1 + len(theirs) // max(1, len(mine))))[: len(theirs)] if mine else []


def swap_kind(mine: list[int], theirs: list[int], kind: np.ndarray) -> list[int]:
    """My other tokens in their order, with their tokens of a kind (size,) between them, as densely as theirs stand.

    >>> swap_kind([5, 1, 6, 7, 8], [9, 2, 9, 3], np.array([i < 5 for i in range(10)]))
    [5, 2, 6, 3, 7, 2, 8, 3]
    """
    rest = [i for i in mine if not kind[i]]
    own, others = [i for i in theirs if kind[i]], sum(not kind[i] for i in theirs)
    if not rest:
        return mine
    wanted = min(len(own) * len(rest) // max(1, others), 4 * len(rest)) if own else 0
    brought = (own * (1 + wanted // max(1, len(own))))[:wanted]
    return interleave(rest, brought)


def swap_form(mine: list[int], theirs: list[int], kind: np.ndarray) -> list[int]:
    """Their text, each of whose other tokens is one of mine, in their order and from the start again where they end.

    >>> swap_form([5, 1, 6, 7, 8], [9, 2, 9, 3], np.array([i < 5 for i in range(10)]))
    [5, 2, 6, 3]
    """
    rest = [i for i in mine if not kind[i]]
    if not rest:
        return mine
    found, at = [], 0
    for i in theirs:
        found.append(i if kind[i] else rest[at % len(rest)])
        at += not kind[i]
    return found


def swap_marked(mine: list[int], theirs: list[int], marked: frozenset[int]) -> list[int]:
    """My text without its marked tokens, and with theirs.

    >>> swap_marked([5, 1, 6, 7], [9, 2, 2, 9], frozenset({1, 2}))
    [5, 6, 2, 7]
    """
    return interleave([i for i in mine if i not in marked], list(dict.fromkeys(i for i in theirs if i in marked)))


def interleave(text: list[int], brought: list[int]) -> list[int]:
    """The tokens of a text in their order, with others spread evenly between them."""
    at = [(k + 0.5) / len(text) for k in range(len(text))] + [
        (k + 1) / (len(brought) + 0.5) for k in range(len(brought))
    ]
    return [i for _, i in sorted(zip(at, text + brought, strict=True), key=lambda each: each[0])]


def swap_opening(mine: list[int], theirs: list[int]) -> list[int]:
    return theirs[:ENDS] + mine[ENDS:]


def swap_ending(mine: list[int], theirs: list[int]) -> list[int]:
    return mine[: max(0, len(mine) - ENDS)] + theirs[-ENDS:]


def _is_style(piece: str) -> bool:
    return piece.lower() in FUNCTION or not any(c.isalpha() for c in piece)


def _common(texts: Sequence[list[int]], end: bool) -> list[dict[int, int]]:
    """For each of the places at one end, the commonest tokens there."""
    found = []
    for k in range(ENDS):
        here = np.array([t[-1 - k if end else k] for t in texts if len(t) > k], np.int64)
        ids, count = np.unique(here, return_counts=True)
        found.append({int(i): n for n, i in enumerate(ids[np.argsort(-count, kind="stable")][:COMMON])})
    return found


def _ends(ids: list[int], common: list[dict[int, int]], end: bool) -> list[float]:
    found = [0.0] * (ENDS * (COMMON + 1))
    for k, known in enumerate(common):
        token = ids[-1 - k if end else k] if len(ids) > k else -1
        found[k * (COMMON + 1) + known.get(token, COMMON)] = 1.0
    return found
