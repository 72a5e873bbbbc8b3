"""Simple properties of a text from which a model can predict the class: how it begins and ends, its words, length and
signs.

As with images each has two sides: numbers that hold it and little else, and `swap`, a text with the property of another
text and all else left as it is. Of a pair of texts, the second one is read and changed. Which words and beginnings are
common is learnt from half of the training samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from spurless.data.words import Words

MARKERS = 4  # single words that are looked at together
FREQUENT = 0.02  # share of the samples that must hold a word, for it to be a marker
LONGEST = 4  # tokens of a beginning or an end that are looked at together
SIGNS = frozenset("<>/\\@#&{}[]|*_~^=") | {"http", "https", "www", "br", "html", "rt", "amp"}

Change = Callable[[list[int], list[int]], list[int]]  # of my text, with the property of theirs


class Body(NamedTuple):
    """A sample in three pieces: what stands before the text that a cue is about, its token ids, and what stands
    after."""

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
    """The last text of a sample (2, l), without special tokens around it.

    >>> special = np.array([True, True, False, False, False])
    >>> found = body(np.array([[1, 2, 3, 1, 0], [1, 1, 1, 1, 0]]), special)
    >>> found.ids, found.before.tolist(), found.row([4], 5).tolist()
    ([2, 3], [[1], [1]], [[1, 4, 1, 0, 0], [1, 1, 1, 0, 0]])
    """
    ids, segments = row[0], row[1]
    last = int(segments.max())
    text = np.flatnonzero((segments == last) & ~special[ids]) if last else np.zeros(0, int)
    real = int((segments > 0).sum())
    first, end = (int(text[0]), int(text[-1]) + 1) if len(text) else (real, real)
    return Body(row[:, :first], ids[first:end].tolist(), row[:, end:real], max(1, last))


class TextCue(NamedTuple):
    name: str
    words: str  # in a sentence: "the model relies on ..."
    values: Tensor  # (n, k)
    swap: Callable[[Tensor, Tensor], Tensor]  # both (n, 2, l)
    tokens: frozenset[int] = frozenset()  # that it is made of


def text_cues(words: Words, rows: Tensor, y: Tensor, learn: Tensor, classes: int) -> list[TextCue]:
    """The properties of all samples (n, 2, l), the most specific first. Labels (n,) are looked at of `learn` only."""
    texts = _Texts(words, rows, y, learn, classes)
    ends = texts.ends()
    taken = {i for cue in ends for i in cue.tokens}
    return [*ends, *texts.phrases(taken), *texts.single_words(taken), *texts.signs(), *texts.forms()]


class _Texts:
    """The texts whose properties are looked for, and what is common to all properties."""

    def __init__(self, words: Words, rows: Tensor, y: Tensor, learn: Tensor, classes: int):
        self.words, self.classes, self.length = words, classes, rows.shape[-1]
        self.texts = [body(row, words.special).ids for row in rows.numpy()]
        seen = learn[::2].tolist()
        self.own, self.y = [self.texts[i] for i in seen], y[seen].numpy()
        kinds = list(zip(words.texts, words.special, strict=True))
        self.digit = np.array([t.isdigit() for t in words.texts])
        self.sign = np.array([t.lower() in SIGNS and not special for t, special in kinds])
        self.punctuation = np.array(
            [bool(t) and not any(c.isalnum() for c in t) and not special for t, special in kinds]
        )

    def cue(self, name: str, told: str, read: Callable[[list[int]], Sequence[float]], change: Change,
            tokens: Sequence[int] = ()) -> TextCue:  # fmt: skip
        """A property that is read from a text and changed in it."""
        special, length = self.words.special, self.length

        def swap(x: Tensor, donor: Tensor) -> Tensor:
            pairs = [(body(a, special), body(b, special)) for a, b in zip(x.numpy(), donor.numpy(), strict=True)]
            made = [mine.row(change(mine.ids, theirs.ids), length) for mine, theirs in pairs]
            return torch.from_numpy(np.stack(made)).to(x.dtype)

        values = torch.tensor([[float(v) for v in read(ids)] for ids in self.texts])
        return TextCue(name, told, values, swap, frozenset(tokens))

    def spelt(self, ids: Sequence[int]) -> str:
        return " ".join(self.words.texts[i] for i in ids)

    def ends(self) -> list[TextCue]:
        """How texts begin and end: the piece that goes most with a class, and a number at the beginning."""
        ends = []
        for end, name, told in ((False, "starts with", "beginning"), (True, "ends with", "ending")):
            piece = _common_end(self.own, self.y, self.classes, end)
            if piece:
                read = partial(_reads_end, piece, end)
                name, told = f"{name} '{self.spelt(piece)}'", f"the {told} '{self.spelt(piece)}'"
                ends.append(self.cue(name, told, read, partial(_end, piece, end), piece))
        digit = self.digit
        number = self.cue(
            "starts with a number", "a number at the beginning", lambda ids: [bool(ids) and bool(digit[ids[0]])],
            lambda mine, theirs: swap_run(mine, theirs, digit),
        )  # fmt: skip
        return [*ends, number] if 0.02 < float(number.values.mean()) < 0.98 else ends

    def phrases(self, taken: set[int]) -> Iterator[TextCue]:
        """The two words in a row that go most with a class."""
        pair = _phrase(self.own, self.y, self.classes)
        if pair and not set(pair) <= taken:
            name = f"the phrase '{self.spelt(pair)}'"
            yield self.cue(
                name, name, lambda ids: [_has_pair(ids, pair)], lambda mine, theirs: swap_pair(mine, theirs, pair), pair
            )

    def single_words(self, taken: set[int]) -> Iterator[TextCue]:
        """The word that goes most with a class, and the first few of them together."""
        order = marker_ids(self.own, self.y, self.classes, len(self.words.special), 3 * MARKERS)
        plain = [i for i in order if i not in taken and not self.punctuation[i] and not self.sign[i]][:MARKERS]
        for some in [plain[:1], plain] if len(plain) > 1 else [plain]:
            if some:
                named = ", ".join(f"'{self.words.texts[i]}'" for i in some)
                title = f"the word{'s' if len(some) > 1 else ''} {named}"
                yield self.cue(title, title, partial(_which, some), partial(_marked, frozenset(some)), some)

    def signs(self) -> Iterator[TextCue]:
        """Markup, punctuation and numbers: which there are, and how many."""
        for name, told, kind in (
            ("markup", "links, tags and other markup", self.sign),
            ("punctuation", "the punctuation", self.punctuation & ~self.sign),
            ("digits", "the numbers in the text", self.digit),
        ):
            used = marker_ids(self.own, self.y, self.classes, len(self.words.special), 12, kind)
            if used:
                yield self.cue(name, told, partial(_which_and_share, used, kind), partial(_of_kind, kind), used)

    def forms(self) -> Iterator[TextCue]:
        """Capital letters, and how long a text is."""
        upper = np.array([t != t.lower() for t in self.words.texts])
        if upper.mean() > 0.05:  # else the tokenizer reads all letters as small ones
            yield self.cue("casing", "capital letters", lambda ids: [_share(ids, upper)], lambda mine, theirs: mine)
        yield self.cue("length", "the length of the text", lambda ids: [float(np.log1p(len(ids)))], swap_length)


def _reads_end(piece: list[int], end: bool, ids: list[int]) -> list[float]:
    return [float(_holds(ids, piece, end))]


def _share(ids: Sequence[int], kind: np.ndarray) -> float:
    return sum(bool(kind[i]) for i in ids) / max(1, len(ids))


def _which(some: Sequence[int], ids: list[int]) -> list[float]:
    return [float(i in ids) for i in some]


def _which_and_share(some: Sequence[int], kind: np.ndarray, ids: list[int]) -> list[float]:
    return [*_which(some, ids), _share(ids, kind)]


def _end(piece: list[int], end: bool, mine: list[int], theirs: list[int]) -> list[int]:
    return swap_end(mine, theirs, piece, end)


def _marked(marked: frozenset[int], mine: list[int], theirs: list[int]) -> list[int]:
    return swap_marked(mine, theirs, marked)


def _of_kind(kind: np.ndarray, mine: list[int], theirs: list[int]) -> list[int]:
    return swap_kind(mine, theirs, kind)


def gains(counts: np.ndarray, total: np.ndarray) -> np.ndarray:
    """(k,) For things that `held` (classes, k) samples of each class have: by how much more often one class has it."""
    share = counts / np.maximum(1, total)[:, None]
    rest = (counts.sum(0) - counts) / np.maximum(1, total.sum() - total)[:, None]
    return np.asarray(np.abs(share - rest).max(0))


def marker_ids(
    texts: Sequence[list[int]], y: np.ndarray, classes: int, size: int, most: int, kind: np.ndarray | None = None
) -> list[int]:
    """The tokens (of a kind) whose presence tells most about a class, the most telling first."""
    counts = np.zeros((classes, size), np.int64)
    for ids, label in zip(texts, y.tolist(), strict=True):
        counts[label, np.unique(np.array(ids, np.int64))] += 1
    total = np.bincount(y, minlength=classes)
    gain = gains(counts, total)
    gain[counts.sum(0) < FREQUENT * total.sum()] = 0
    if kind is not None:
        gain[~kind] = 0
    order = np.argsort(-gain, kind="stable")[:most]
    return [int(i) for i in order if gain[i] > 0]


def _best(keys: Sequence[int | None], y: np.ndarray, classes: int) -> int | None:
    """The key, of one for each text, that goes most with a class."""
    names = sorted({k for k in keys if k is not None})
    column_of = {k: i for i, k in enumerate(names)}
    counts = np.zeros((classes, len(names) + 1), np.int64)
    for key, label in zip(keys, y.tolist(), strict=True):
        counts[label, len(names) if key is None else column_of[key]] += 1
    total = np.bincount(y, minlength=classes)
    gain = gains(counts, total)[:-1]
    gain[counts.sum(0)[:-1] < FREQUENT * total.sum()] = 0
    return names[int(gain.argmax())] if len(names) and gain.max() > 0.05 else None


def _common_end(texts: Sequence[list[int]], y: np.ndarray, classes: int, end: bool) -> list[int]:
    """The beginning (or end) that goes most with a class: one token, and those that nearly always follow it."""
    turned = [ids[::-1] if end else ids for ids in texts]
    first = _best([ids[0] if ids else None for ids in turned], y, classes)
    if first is None:
        return []
    piece = [first]
    while len(piece) < LONGEST:
        same = [ids[len(piece)] for ids in turned if ids[: len(piece)] == piece and len(ids) > len(piece)]
        if not same:
            break
        ids, count = np.unique(same, return_counts=True)
        if count.max() < 0.85 * len(same):
            break
        piece.append(int(ids[count.argmax()]))
    return [int(i) for i in (piece[::-1] if end else piece)]


def _holds(ids: list[int], piece: Sequence[int], end: bool) -> bool:
    return ids[-len(piece) :] == list(piece) if end else ids[: len(piece)] == list(piece)


def _phrase(texts: Sequence[list[int]], y: np.ndarray, classes: int) -> tuple[int, int] | None:
    """The two tokens in a row that go most with a class."""
    counts: dict[tuple[int, int], np.ndarray] = {}
    for ids, label in zip(texts, y.tolist(), strict=True):
        for pair in set(pairwise(ids)):
            counts.setdefault(pair, np.zeros(classes, np.int64))[label] += 1
    many = {pair: count for pair, count in counts.items() if count.sum() >= FREQUENT * len(texts)}
    if not many:
        return None
    pairs = list(many)
    gain = gains(np.stack([many[p] for p in pairs], 1), np.bincount(y, minlength=classes))
    return pairs[int(gain.argmax())] if gain.max() > 0.1 else None


def _has_pair(ids: list[int], pair: tuple[int, int]) -> bool:
    return any(pair == both for both in pairwise(ids))


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
    pieces, at = [], 0
    for i in theirs:
        pieces.append(i if kind[i] else rest[at % len(rest)])
        at += not kind[i]
    return pieces


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


def swap_end(mine: list[int], theirs: list[int], piece: Sequence[int], end: bool) -> list[int]:
    """My text with the beginning (or end) where theirs has it, and without it where theirs does not.

    >>> swap_end([7, 1, 2], [3, 4], [7], end=False), swap_end([1, 2], [3, 9], [9], end=True)
    ([1, 2], [1, 2, 9])
    """
    rest = mine
    if _holds(mine, piece, end):
        rest = mine[: -len(piece)] if end else mine[len(piece) :]
    if not _holds(theirs, piece, end):
        return rest
    return [*rest, *piece] if end else [*piece, *rest]


def swap_run(mine: list[int], theirs: list[int], kind: np.ndarray) -> list[int]:
    """My text with their first tokens of a kind (size,) in place of mine."""
    first = [next((k for k, i in enumerate(ids) if not kind[i]), len(ids)) for ids in (mine, theirs)]
    return theirs[: first[1]] + mine[first[0] :]


def swap_pair(mine: list[int], theirs: list[int], pair: tuple[int, int]) -> list[int]:
    """My text without the two tokens in a row, and with them in its middle where theirs has them."""
    rest, k = [], 0
    while k < len(mine):
        if tuple(mine[k : k + 2]) == pair:
            k += 2
            continue
        rest.append(mine[k])
        k += 1
    half = len(rest) // 2
    return [*rest[:half], *pair, *rest[half:]] if _has_pair(theirs, pair) else rest
