"""Simple properties of a text from which a model can predict the class: how it begins and ends, its words, length and
signs.

As with images each has two sides: numbers that hold it and little else, and `swap`, a text with the property of another
text and all else left as it is. Of a pair of texts, the second one is read and changed. Which words and beginnings are
common is learnt from half of the training samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from spurless.auditing.text_forms import GAP, fixed_tokens, is_template, language_marks, languages, skeleton
from spurless.auditing.text_swaps import (
    holds,
    place_of,
    swap_casing,
    swap_end,
    swap_form,
    swap_kind,
    swap_length,
    swap_marked,
    swap_phrase,
    swap_run,
)
from spurless.data.words import Words

MARKERS, MOST_MARKERS = 4, 12  # single words that are looked at together
FREQUENT = 0.02  # share of the samples that must hold a word, for it to be a marker
AT_ENDS = 0.8  # share of the texts with a word that have it at their beginning or end, to name it only there
TEMPLATES = 12  # that are told apart
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
    swap: Callable[[Tensor, Tensor], Tensor] | None  # both (n, 2, l); None: it cannot be exchanged
    tokens: frozenset[int] = frozenset()  # that it is made of


def text_cues(words: Words, rows: Tensor, y: Tensor, learn: Tensor, classes: int) -> list[TextCue]:
    """The properties of all samples (n, 2, l), the most specific first. Labels (n,) are looked at of `learn` only."""
    texts = _Texts(words, rows, y, learn, classes)
    ends = texts.ends()
    taken = texts.only_at_ends(ends)
    small = [*texts.phrases(taken), *texts.single_words(taken), *texts.signs()]
    return [*ends, *small, *texts.templates(taken), *texts.languages(), *texts.forms()]


class _Texts:
    """The texts whose properties are looked for, and what is common to all properties."""

    def __init__(self, words: Words, rows: Tensor, y: Tensor, learn: Tensor, classes: int):
        self.words, self.classes, self.length = words, classes, rows.shape[-1]
        self.texts = [body(row, words.special).ids for row in rows.numpy()]
        mixed = torch.randperm(len(learn), generator=torch.Generator().manual_seed(0))  # classes may take turns
        seen = learn[mixed[::2]].tolist()
        self.own, self.y = [self.texts[i] for i in seen], y[seen].numpy()
        kinds = list(zip(words.texts, words.special, strict=True))
        self.digit = np.array([t.isdigit() for t in words.texts])
        self.sign = np.array([t.lower() in SIGNS and not special for t, special in kinds])
        self.punctuation = np.array(
            [bool(t) and not any(c.isalnum() for c in t) and not special for t, special in kinds]
        )

    def cue(self, name: str, told: str, read: Callable[[list[int]], Sequence[float]], change: Change | None,
            tokens: Sequence[int] = ()) -> TextCue:  # fmt: skip
        """A property that is read from a text and changed in it."""
        special, length = self.words.special, self.length
        values = torch.tensor([[float(v) for v in read(ids)] for ids in self.texts])
        if change is None:
            return TextCue(name, told, values, None, frozenset(tokens))

        def swap(x: Tensor, donor: Tensor) -> Tensor:
            pairs = [(body(a, special), body(b, special)) for a, b in zip(x.numpy(), donor.numpy(), strict=True)]
            made = [mine.row(change(mine.ids, theirs.ids), length) for mine, theirs in pairs]
            return torch.from_numpy(np.stack(made)).to(x.dtype)

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

    def only_at_ends(self, ends: Sequence[TextCue]) -> set[int]:
        """The tokens of these cues that hardly stand anywhere else: as words they would tell the same again."""
        tokens = {i for cue in ends for i in cue.tokens}
        at_end = torch.stack([cue.values[:, 0] > 0 for cue in ends]).any(0) if tokens else torch.zeros(0)
        taken = set()
        for i in tokens:
            held = [k for k, ids in enumerate(self.texts) if i in ids]
            if float(at_end[held].float().mean()) >= AT_ENDS:
                taken.add(i)
        return taken

    def phrases(self, taken: set[int]) -> Iterator[TextCue]:
        """The words in a row that go most with a class."""
        phrase = _phrase(self.own, self.y, self.classes)
        if phrase and not set(phrase) <= taken:
            name = f"the phrase '{self.spelt(phrase)}'"
            read, change = partial(_reads_phrase, phrase), partial(_phrase_of, phrase)
            yield self.cue(name, name, read, change, phrase)

    def single_words(self, taken: set[int]) -> Iterator[TextCue]:
        """The word that goes most with a class, and the first few of them together."""
        order = marker_ids(self.own, self.y, self.classes, len(self.words.special), MOST_MARKERS + 8)
        plain = [i for i in order if i not in taken and not self.punctuation[i] and not self.sign[i]][:MOST_MARKERS]
        for many in (1, MARKERS, MOST_MARKERS):
            some = plain[:many]
            if len(some) > many // 4:
                named = ", ".join(f"'{self.words.texts[i]}'" for i in some[:MARKERS]) + ", …" * (many > MARKERS)
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

    def templates(self, taken: set[int]) -> Iterator[TextCue]:
        """Texts that are made alike: fixed words in the same order, with other words between them."""
        fixed = fixed_tokens(self.own, len(self.words.special), taken)
        keys = [k if is_template(k := skeleton(ids, fixed)) else None for ids in self.own]
        common = {key: n for key, n in Counter(keys).items() if key is not None and n >= FREQUENT * len(keys)}
        if common:
            best = sorted(common, key=lambda key: (-common[key], key))[:TEMPLATES]
            spelt = " ".join("…" if i == GAP else self.words.texts[i] for i in best[0])
            name = f"the template '{spelt}'"
            yield self.cue(
                name, name, lambda ids: [skeleton(ids, fixed) == key for key in best], partial(_in_form, fixed)
            )

    def languages(self) -> Iterator[TextCue]:
        """The language, where the texts are in several."""
        names, marks = language_marks(self.words.texts)
        seen = languages(self.own, marks)
        many = [k for k in range(len(names)) if np.mean(seen == k) >= FREQUENT]
        if len(many) > 1:
            yield self.cue(
                "language", f"the language ({', '.join(names[k] for k in many)})",
                lambda ids: [float(k) for k in languages([ids], marks[:, many])[0] == np.arange(len(many))], None,
            )  # fmt: skip

    def forms(self) -> Iterator[TextCue]:
        """Capital letters, and how long a text is."""
        upper = np.array([t != t.lower() for t in self.words.texts]) & ~self.words.special
        if upper.mean() > 0.05:  # else the tokenizer reads all letters as small ones
            by_text = {text: i for i, text in enumerate(self.words.texts) if not self.words.special[i]}
            plain = {i: by_text[t.lower()] for t, i in by_text.items() if upper[i] and t.lower() in by_text}
            capital = {low: high for high, low in reversed(plain.items())}
            change = partial(_with_capitals, capital, plain)
            yield self.cue("casing", "capital letters", lambda ids: [_share(ids, upper)], change)
        yield self.cue("length", "the length of the text", lambda ids: [float(np.log1p(len(ids)))], swap_length)


def _reads_end(piece: list[int], end: bool, ids: list[int]) -> list[float]:
    return [float(holds(ids, piece, end))]


def _share(ids: Sequence[int], kind: np.ndarray) -> float:
    return sum(bool(kind[i]) for i in ids) / max(1, len(ids))


def _reads_phrase(phrase: Sequence[int], ids: list[int]) -> list[float]:
    return [float(place_of(ids, phrase) is not None)]


def _phrase_of(phrase: Sequence[int], mine: list[int], theirs: list[int]) -> list[int]:
    return swap_phrase(mine, theirs, phrase)


def _in_form(fixed: np.ndarray, mine: list[int], theirs: list[int]) -> list[int]:
    return swap_form(mine, theirs, fixed)


def _with_capitals(capital: dict[int, int], plain: dict[int, int], mine: list[int], theirs: list[int]) -> list[int]:
    return swap_casing(mine, theirs, capital, plain)


def _which(some: Sequence[int], ids: list[int]) -> list[float]:
    return [float(i in ids) for i in some]


def _which_and_share(some: Sequence[int], kind: np.ndarray, ids: list[int]) -> list[float]:
    runs = np.diff(np.flatnonzero(np.concatenate([[True], ~kind[ids], [True]])))  # (r,) of such tokens in a row, + 1
    return [*_which(some, ids), _share(ids, kind), float(np.log(runs.max()))]


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


def _phrase(texts: Sequence[list[int]], y: np.ndarray, classes: int) -> list[int]:
    """The two tokens in a row that go most with a class, and those that nearly always stand beside them."""
    counts: dict[tuple[int, int], np.ndarray] = {}
    for ids, label in zip(texts, y.tolist(), strict=True):
        for pair in set(pairwise(ids)):
            counts.setdefault(pair, np.zeros(classes, np.int64))[label] += 1
    many = {pair: count for pair, count in counts.items() if count.sum() >= FREQUENT * len(texts)}
    if not many:
        return []
    pairs = list(many)
    gain = gains(np.stack([many[p] for p in pairs], 1), np.bincount(y, minlength=classes))
    return _longer(texts, list(pairs[int(gain.argmax())])) if gain.max() > 0.1 else []


def _longer(texts: Sequence[list[int]], phrase: list[int]) -> list[int]:
    """The phrase with the tokens that stand before or after it in nearly all texts that hold it."""
    for after in (True, False):
        while len(phrase) < LONGEST:
            at = [(ids, place_of(ids, phrase)) for ids in texts]
            beside = [ids[k + len(phrase) : k + len(phrase) + 1] if after else ids[max(0, k - 1) : k]
                      for ids, k in at if k is not None]  # fmt: skip
            tokens, count = np.unique([i for some in beside for i in some] or [-1], return_counts=True)
            if tokens[0] < 0 or count.max() < 0.85 * len(beside):
                break
            token = int(tokens[count.argmax()])
            phrase = [*phrase, token] if after else [token, *phrase]
    return phrase
