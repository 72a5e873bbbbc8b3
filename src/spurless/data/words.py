"""Rows of token ids as words: pieces of a word put together again, special tokens left out."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from spurless.core.errors import UserError
from spurless.data.tokens import Tokens

TIGHT_BEFORE, TIGHT_AFTER = set(".,;:!?)]}%'’”"), set("([{$#@'’“")  # signs that stand next to a word


class Word(NamedTuple):
    text: str
    start: int  # its pieces are the row's tokens from start to stop
    stop: int


class Words:
    """What the ids of a dataset stand for. Without a tokenizer at hand, each id is a word of its own."""

    def __init__(self, pieces: Sequence[str], special: Sequence[int] = ()):
        self.special = np.zeros(len(pieces), bool)
        self.special[list(special)] = True
        marked = Counter(next((m for m in ("##", "Ġ", "▁") if p.startswith(m)), "") for p in pieces)
        self.mark = next((m for m in ("##", "Ġ", "▁") if marked[m] > len(pieces) // 100), "")
        if self.mark == "##":  # the end of a word, continued
            self.goes_on = np.array([p.startswith("##") for p in pieces])
            self.texts = [p.removeprefix("##") for p in pieces]
        elif self.mark:  # on what begins
            self.texts = [_plain(p) if self.mark == "Ġ" else p.replace("▁", "") for p in pieces]
            # A sign behind a word has no mark either, and is a word of its own all the same: "good" is not "good.".
            goes_on = (not p.startswith(self.mark) and _joins(t) for p, t in zip(pieces, self.texts, strict=True))
            self.goes_on = np.array(list(goes_on))
        else:
            self.goes_on, self.texts = np.zeros(len(pieces), bool), list(pieces)

    def of(self, row: Tensor) -> list[Word]:
        """The words of one sample (2, length), in order.

        >>> words = Words(["[PAD]", "[CLS]", "film", "##s", "good"], special=[0, 1])
        >>> words.of(torch.tensor([[1, 4, 2, 3, 0], [1, 1, 1, 1, 0]]))
        [Word(text='good', start=1, stop=2), Word(text='films', start=2, stop=4)]
        """
        ids, segments = row[0].numpy(), row[1].numpy()
        real = np.flatnonzero((segments > 0) & ~self.special[ids])
        words: list[Word] = []
        for at in real.tolist():
            text, joins = self.texts[ids[at]], bool(self.goes_on[ids[at]])
            if words and words[-1].stop == at and segments[at] == segments[at - 1] and joins and _joins(words[-1].text):
                last = words.pop()
                words.append(Word(last.text + text, last.start, at + 1))
            else:
                words.append(Word(text, at, at + 1))
        return words


@functools.lru_cache(maxsize=8)
def words_of(tokens: Tokens) -> Words:
    """The words of a tokenizer."""
    from spurless.data.tokens import _tokenizer

    try:
        tokenizer = _tokenizer(tokens.tokenizer)
    except UserError:
        return Words([f"token {i}" for i in range(tokens.size)])
    pieces = [tokenizer.id_to_token(i) or f"<{i}>" for i in range(tokens.size)]
    special = [i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special]
    return Words(pieces, special)


def as_text(words: Sequence[str]) -> list[str]:
    """Each word with the space before it, where one belongs there.

    >>> "".join(as_text(["good", ",", "they", "'", "re", "(", "not", ")", "."]))
    "good, they're (not)."
    """
    texts: list[str] = []
    for word, before in zip(words, ["", *words], strict=False):
        tight = not texts or word in TIGHT_BEFORE or before in TIGHT_AFTER
        texts.append(word if tight else f" {word}")
    return texts


def presence(words: Words, rows: Tensor, fewest: int = 5, most: int = 4000) -> tuple[list[str], Tensor]:
    """The words that at least `fewest` of the samples (n, 2, l) hold, commonest first, and which samples hold them (n,
    k).

    >>> words = Words(["[PAD]", "a", "b"], special=[0])
    >>> presence(words, torch.tensor([[[1, 2], [1, 1]], [[1, 0], [1, 0]]]), fewest=1)
    (['a', 'b'], tensor([[ True,  True],
            [ True, False]]))
    """
    words_in = [{word.text for word in words.of(row)} for row in rows.cpu()]
    count = Counter(word for row in words_in for word in row)
    vocabulary = [word for word, n in sorted(count.items(), key=lambda each: (-each[1], each[0])) if n >= fewest][:most]
    column_of = {word: k for k, word in enumerate(vocabulary)}
    present = torch.zeros(len(rows), len(vocabulary), dtype=torch.bool)
    for i, row in enumerate(words_in):
        present[i, [column_of[word] for word in row if word in column_of]] = True
    return vocabulary, present


def _joins(text: str) -> bool:
    """Whether a piece can be part of a longer word: it is more than signs, or nothing that can be seen."""
    return not text or any(c.isalnum() for c in text)


def _plain(piece: str) -> str:
    """A piece of byte-level BPE as text; what is no whole character stays as it is."""
    try:
        return bytes(_BYTES[c] for c in piece).decode().strip()
    except (KeyError, UnicodeDecodeError):
        return piece.removeprefix("Ġ")


def _byte_table() -> dict[str, int]:
    """The character that byte-level BPE (GPT-2) writes for each byte: itself where it can be seen, else another."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in seen]
    return {chr(b): b for b in seen} | {chr(256 + i): b for i, b in enumerate(hidden)}


_BYTES = _byte_table()
