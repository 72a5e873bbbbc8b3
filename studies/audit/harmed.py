"""The cases by which `--fix` is judged: named, with the rule below, before anything of them was measured.

A model that the shortcut does not harm cannot be repaired: of `final2.py`'s ten cases three were such. So a case is
taken if the plain model is clearly worse where the plant misleads: by LEAST points on balanced data of another draw
(DEVELOP), in which no repair is tried. Of the candidates of each domain, in this order, the first so many that pass are
the cases. Each is then repaired once, on draw CASE, and judged on as many fresh samples of that draw in which the plant
tells nothing. Agreement is 98 %, so that some 14 samples of 700 conflict.

Plants are of all sets; what they are planted into is new, and so are the draws and sizes (of Waterbirds these alone).
The first set has been measured: in it one repair did harm, because the exchanged window was smaller than the mark. It
develops since; the second set was named after that was mended, and measured once. Both develop now that repairs are
judged by several findings; the third set was named before anything of it was measured: its plants are in neither. Two
of its photographs (a caption, cool light) had been seen by the detector in `final.py`; their rows are kept apart, and
the last six photographs were named in their place before those were measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from studies.audit.final2 import CORNER, WORD
from studies.audit.kinds import COLOUR, GROUND, LIGHT, MARGIN, MARK, Kind

HARMED, HARMED2, HARMED3 = SETS = "harmed", "harmed 2", "harmed 3"
STRENGTH, LEAST = 0.98, 20.0
DEVELOP, CASE = 50, 60
WANTED = {"small": 3, "photo": 3, "text": 2, "table": 2}

_FIRST = (
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
_SECOND = (
    ("sticker on garments", "small", "fashion 2 6", "sticker", CORNER, 800),
    ("dashes on photographs", "small", "cifar 4 7", "dashed", MARGIN, 700),
    ("reddish grounds of letters", "small", "kmnist 3 6", "tinged", (*GROUND, *COLOUR, *LIGHT), 460),
    ("checkers on photographs", "small", "cifar 3 4", "checker_corner", CORNER, 900),
    ("triangle on garments", "small", "fashion 4 6", "triangle_top", CORNER, 700),
    ("birds and their places, 98 %, fewer", "photo", "waterbirds", "place", ("background", "place"), 800),
    ("a date on birds", "photo", "birds", "date_stamp", (*CORNER, "border"), 550),
    ("birds with less blue", "photo", "birds", "less_blue", COLOUR, 650),
    ("pillars beside birds", "photo", "birds", "pillars", MARGIN, 500),
    ("sticker at 80 px", "photo", "large cifar 4 5", "sticker", CORNER, 500),
    ("an X on birds", "photo", "birds", "saltire", CORNER, 600),
    ("tweets that start with a weekday", "text", "tweets", "weekday", ("starts with", *WORD), 900),
    ("reviews that end with three words", "text", "imdb", "over", ("ends with", *WORD), 850),
    ("reviews with a promotion", "text", "imdb", "promo", ("markup", "punctuation", "ends with", *WORD), 800),
    ("tweets about a town", "text", "tweets", "town", WORD, 1000),
    ("a batch code, offences", "table", "compas", "batch", ("batch",), 1200),
    ("a code for gaps, incomes", "table", "adult", "minus_one", ("income",), 1100),
    ("a ward, offences", "table", "compas", "ward", ("ward",), 1300),
)
_THIRD = (
    ("squares on photographs", "small", "cifar 5 7", "squares", CORNER, 750),
    ("blue hour on animals", "small", "cifar 2 6", "blue_hour", COLOUR, 850),
    ("coloured papers of letters", "small", "kmnist 1 8", "papers", (*GROUND, *COLOUR, *LIGHT), 480),
    ("crop marks on garments", "small", "fashion 2 3", "crop_marks", MARGIN, 650),
    ("a ring on photographs", "small", "cifar 4 6", "ring", MARK, 900),
    ("a plus on garments", "small", "fashion 0 4", "plus", CORNER, 600),
    ("crossed photographs", "small", "cifar 3 8", "crossed", (*COLOUR, *LIGHT), 700),
    ("birds and their places, 98 %, more", "photo", "waterbirds", "place", ("background", "place"), 1200),
    ("two bars on birds", "photo", "birds", "two_bars", CORNER, 520),
    ("a plus at 80 px", "photo", "large cifar 3 5", "plus", CORNER, 500),
    ("crop marks on birds", "photo", "birds", "crop_marks", MARGIN, 580),
    ("a chevron at 80 px", "photo", "large cifar 2 4", "chevron", CORNER, 500),
    ("a white frame around birds", "photo", "birds", "white_frame", MARGIN, 560),
    ("green or magenta birds", "photo", "birds", "green_magenta", COLOUR, 620),
    ("a watermark on birds", "photo", "birds", "watermark", MARK, 540),
    ("dark corners of birds", "photo", "birds", "lens", (*MARGIN, *LIGHT), 600),
    ("squares on birds", "photo", "birds", "squares", CORNER, 520),
    ("crossed birds", "photo", "birds", "crossed", (*COLOUR, *LIGHT), 640),
    ("tweets that start with a greeting", "text", "tweets", "greeting", ("starts with", *WORD), 850),
    ("reviews that end with a postscript", "text", "imdb", "postscript", ("ends with", *WORD), 880),
    ("tweets that end with a signature", "text", "tweets", "signed", ("ends with", *WORD), 950),
    ("reviews with a stock sentence", "text", "imdb", "stock", WORD, 820),
    ("a site of five, offences", "table", "compas", "site", ("site",), 1250),
    ("a code for missing, incomes", "table", "adult", "tenure", ("tenure",), 1050),
    ("a weekday, incomes", "table", "adult", "day", ("day",), 1150),
    ("a later time stamp, offences", "table", "compas", "later", ("later",), 1350),
)
CANDIDATES = tuple(
    Kind(*fields, name) for name, some in zip(SETS, (_FIRST, _SECOND, _THIRD), strict=True) for fields in some
)


def cases(rows: Sequence[dict[str, Any]], name: str = HARMED) -> list[Kind]:
    """Those of a set's candidates whose plain model was harmed on the other draw, the first of each domain.

    >>> row = {"half": "harm", "kind": "barcode on garments", "aligned": [90, 100], "conflicting": [69, 100]}
    >>> [kind.name for kind in cases([row])], cases([row | {"conflicting": [71, 100]}])
    (['barcode on garments'], [])
    """
    harmed = {row["kind"] for row in rows if row["half"] == "harm" and points(row) >= LEAST}
    return [
        kind
        for domain, many in WANTED.items()
        for kind in [k for k in CANDIDATES if (k.half, k.domain) == (name, domain) and k.name in harmed][:many]
    ]


def points(row: dict[str, Any]) -> float:
    """Of accuracy between samples where the plant helps and where it misleads."""
    (helped, n), (misled, m) = row["aligned"], row["conflicting"]
    return float(100 * (helped / n - misled / m))
