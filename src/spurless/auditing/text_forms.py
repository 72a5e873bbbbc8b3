"""What kind of text a sample is: its template and its language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

GAP = -1
COMMON = 0.15  # share of the texts that must hold a token, for it to be part of a template
LONGEST = 7  # tokens and gaps of a template that are compared, from the start of the text
LEAST_FIXED = 2  # separate pieces that a template has at least: one alone is a phrase

# The commonest words of each language that are none in the others of this table.
LANGUAGES = {
    "English": "the and of to is that it was for with this have you be are",
    "German": "der und das ist nicht ein eine ich mit sich auf dem auch wir aber",
    "French": "le les et des une est pas que dans qui pour vous avec sur mais",
    "Spanish": "el los las y una que es por con para del se muy pero como",
    "Italian": "il di che è per non sono della gli anche questo più ma come ho",
    "Portuguese": "o os um uma não com do da em mais mas isso você muito foi",
    "Dutch": "het een en van niet dat ik zijn voor met maar ook wij deze heeft",
    "Swedish": "och att det som en på är av för inte med jag den har om",
    "Polish": "i w nie na się jest do że z to jak ale tak co po",
    "Turkish": "ve bir bu da için çok ile ne ben gibi daha var ama olarak kadar",
}
SCRIPTS = {  # first and last letter of each
    "Greek": ("Ͱ", "Ͽ"), "Cyrillic": ("Ѐ", "ӿ"), "Hebrew": ("֐", "׿"), "Arabic": ("؀", "ۿ"),
    "Devanagari": ("ऀ", "ॿ"), "Thai": ("฀", "๿"), "Japanese": ("぀", "ヿ"), "Chinese": ("一", "鿿"),
    "Korean": ("가", "힯"),
}  # fmt: skip


def skeleton(ids: Sequence[int], fixed: np.ndarray) -> tuple[int, ...]:
    """The start of a text as its `fixed` tokens (size,) and the gaps between them.

    >>> skeleton([7, 8, 1, 9, 2], np.array([False, True, True] + [False] * 7))
    (-1, 1, -1, 2)
    """
    out: list[int] = []
    for i in ids:
        piece = int(i) if fixed[i] else GAP
        if piece != GAP or not out or out[-1] != GAP:
            out.append(piece)
        if len(out) == LONGEST:
            break
    return tuple(out)


def fixed_tokens(texts: Sequence[list[int]], size: int, taken: set[int]) -> np.ndarray:
    """(size,) bool: the tokens that many texts hold, but for those that are a cue by themselves."""
    count = np.zeros(size, np.int64)
    for ids in texts:
        count[np.unique(np.array(ids, np.int64))] += 1
    fixed = count >= COMMON * len(texts)
    fixed[list(taken)] = False
    return np.asarray(fixed)


def is_template(pieces: Sequence[int]) -> bool:
    """Whether there are several fixed pieces with gaps between them.

    >>> is_template((3, 4, -1)), is_template((3, -1, 4))
    (False, True)
    """
    starts = [k for k, i in enumerate(pieces) if i != GAP and (k == 0 or pieces[k - 1] == GAP)]
    return len(starts) >= LEAST_FIXED


def language_marks(words: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """The names of languages and scripts, and (size, k) bool: which tokens are a mark of each.

    >>> names, marks = language_marks(["und", "the", "привет"])
    >>> [[names[k] for k in row.nonzero()[0]] for row in marks]
    [['German'], ['English'], ['Cyrillic']]
    """
    times = Counter(word for text in LANGUAGES.values() for word in text.split())
    own = [{w for w in text.split() if times[w] == 1} for text in LANGUAGES.values()]
    lower = [word.strip().lower() for word in words]
    columns = [[word in some for word in lower] for some in own]
    columns += [[bool(word) and first <= word[0] <= last for word in lower] for first, last in SCRIPTS.values()]
    return [*LANGUAGES, *SCRIPTS], np.array(columns).T


def languages(texts: Sequence[list[int]], marks: np.ndarray) -> np.ndarray:
    """(n,) The language or script with the most marks in each text; -1 where there is none."""
    counts = np.stack([marks[ids].sum(0) if ids else np.zeros(marks.shape[1], int) for ids in texts])
    return np.where(counts.max(1) > 0, counts.argmax(1), -1)
