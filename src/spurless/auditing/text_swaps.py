"""What an exchange does with the token ids of two texts: mine, with a property of theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np


def holds(ids: list[int], piece: Sequence[int], end: bool) -> bool:
    """Whether a text begins (or ends) with these tokens."""
    return ids[-len(piece) :] == list(piece) if end else ids[: len(piece)] == list(piece)


def place_of(ids: list[int], phrase: Sequence[int]) -> int | None:
    """Where these tokens stand in a row for the first time.

    >>> place_of([4, 1, 2, 3], (1, 2)), place_of([4, 1], (1, 2))
    (1, None)
    """
    k = len(phrase)
    return next((i for i in range(len(ids) - k + 1) if ids[i : i + k] == list(phrase)), None)


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
    if holds(mine, piece, end):
        rest = mine[: -len(piece)] if end else mine[len(piece) :]
    if not holds(theirs, piece, end):
        return rest
    return [*rest, *piece] if end else [*piece, *rest]


def swap_run(mine: list[int], theirs: list[int], kind: np.ndarray) -> list[int]:
    """My text with their first tokens of a kind (size,) in place of mine."""
    first = [next((k for k, i in enumerate(ids) if not kind[i]), len(ids)) for ids in (mine, theirs)]
    return theirs[: first[1]] + mine[first[0] :]


def swap_phrase(mine: list[int], theirs: list[int], phrase: Sequence[int]) -> list[int]:
    """My text without the tokens in a row, and with them in its middle where theirs has them.

    >>> swap_phrase([5, 1, 2, 6], [9], (1, 2)), swap_phrase([5, 6], [1, 2, 9], (1, 2))
    ([5, 6], [5, 1, 2, 6])
    """
    rest = list(mine)
    while (at := place_of(rest, phrase)) is not None:
        del rest[at : at + len(phrase)]
    half = len(rest) // 2
    return [*rest[:half], *phrase, *rest[half:]] if place_of(theirs, phrase) is not None else rest


def swap_casing(mine: list[int], theirs: list[int], capital: Mapping[int, int], plain: Mapping[int, int]) -> list[int]:
    """My text with as large a share of capital letters as theirs, as far as there are such tokens, spread evenly.

    >>> swap_casing([5, 6, 7, 8], [15, 16], {5: 15, 6: 16, 7: 17}, {15: 5, 16: 6, 17: 7})
    [15, 16, 17, 8]
    >>> swap_casing([15, 16], [5, 6], {5: 15, 6: 16}, {15: 5, 16: 6})
    [5, 6]
    """
    out = [plain.get(i, i) for i in mine]
    wanted = round(sum(i in plain for i in theirs) / max(1, len(theirs)) * len(out))
    at = [k for k, i in enumerate(out) if i in capital]
    for k in at[:: max(1, len(at) // max(1, wanted))][:wanted]:
        out[k] = capital[out[k]]
    return out
