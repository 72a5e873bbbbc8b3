"""The cases by which `--fix` is judged: named, with the rule below, before anything of them was measured.

A model that the shortcut does not harm cannot be repaired: of `final2.py`'s ten cases three were such. So a case is
taken if the plain model is clearly worse where the plant misleads: by LEAST points on balanced data of another draw
(DEVELOP), in which no repair is tried. Of the candidates of each domain, in this order, the first so many that pass are
the cases. Each is then repaired once, on draw CASE, and judged on as many fresh samples of that draw in which the plant
tells nothing. Agreement is 98 %, so that some 14 samples of 700 conflict.

Plants are of all sets; what they are planted into is new, and so are the draws and sizes (of Waterbirds these alone).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from studies.audit.final2 import CORNER, WORD
from studies.audit.kinds import COLOUR, LIGHT, MARGIN, MARK, Kind

HARMED = "harmed"
STRENGTH, LEAST = 0.98, 20.0
DEVELOP, CASE = 50, 60
WANTED = {"small": 3, "photo": 3, "text": 2, "table": 2}

CANDIDATES = tuple(
    Kind(*fields, HARMED)
    for fields in (
        ("barcode on garments", "small", "fashion 2 4", "barcode", CORNER, 700),
        ("stripe on photographs", "small", "cifar 3 6", "stripe", MARGIN, 800),
        ("purple or lime letters", "small", "kmnist 2 6", "purple_lime", COLOUR, 450),
        ("evening light on animals", "small", "cifar 2 4", "evening", COLOUR, 900),
        ("overexposed garments", "small", "fashion 0 2", "overexposed", LIGHT, 700),
        ("birds and their places, 98 %", "photo", "waterbirds", "place", ("background", "place"), 1000),
        ("stripe on birds", "photo", "birds", "stripe", MARGIN, 500),
        ("split tones of birds", "photo", "birds", "split_tone", (*COLOUR, *LIGHT), 600),
        ("vivid birds", "photo", "birds", "vivid", COLOUR, 500),
        ("barcode at 80 px", "photo", "large cifar 3 5", "barcode", CORNER, 500),
        ("dark tag on birds", "photo", "birds", "dark_tag", CORNER, 600),
        ("round corners of birds", "photo", "birds", "rounded", MARK, 500),
        ("reviews that end with initials", "text", "imdb", "initials", ("ends with", *WORD), 900),
        ("tweets that start with an announcement", "text", "tweets", "announce", ("starts with", *WORD), 800),
        ("tweets with a mail address", "text", "tweets", "mail", ("markup", "punctuation", *WORD), 900),
        ("reviews that start with a note", "text", "imdb", "attn", ("starts with", *WORD), 900),
        ("a device of four, incomes", "table", "adult", "device", ("device",), 1000),
        ("a drifting sensor, offences", "table", "compas", "sensor", ("sensor",), 1400),
        ("gaps in visits, incomes", "table", "adult", "second_gaps", ("missing", "visits"), 1000),
    )
)


def cases(rows: Sequence[dict[str, Any]]) -> list[Kind]:
    """Those of the candidates whose plain model was harmed on the other draw, the first of each domain.

    >>> row = {"half": "harm", "kind": "barcode on garments", "aligned": [90, 100], "conflicting": [69, 100]}
    >>> [kind.name for kind in cases([row])], cases([row | {"conflicting": [71, 100]}])
    (['barcode on garments'], [])
    """
    harmed = {row["kind"] for row in rows if row["half"] == "harm" and points(row) >= LEAST}
    return [
        kind
        for domain, many in WANTED.items()
        for kind in [k for k in CANDIDATES if k.domain == domain and k.name in harmed][:many]
    ]


def points(row: dict[str, Any]) -> float:
    """Of accuracy between samples where the plant helps and where it misleads."""
    (helped, n), (misled, m) = row["aligned"], row["conflicting"]
    return float(100 * (helped / n - misled / m))
