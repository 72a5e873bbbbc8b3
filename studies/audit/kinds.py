"""The kinds of data that the audit is developed with, and those by which it is judged once, at the end.

This file was committed before the audit was rebuilt. A kind is a base of real data, what is planted into it (nothing in
a control), and the names under which a finding counts as named right: the audit's name must begin with one of them.
`half` says what a kind is for: "develop", or "held out". No threshold of the audit was chosen by a held-out kind.
"""

from __future__ import annotations

from typing import NamedTuple

STRENGTHS = (0.90, 0.95, 0.99)  # share of the samples in which what is planted agrees with the label


class Kind(NamedTuple):
    name: str
    domain: str  # small (images of 28 to 32 px), photo (80 px), text, table
    base: str  # the data: see make.py
    plant: str  # what is planted, "" in a control
    names: tuple[str, ...]  # of the shortcut; empty in a control
    n: int
    half: str

    @property
    def clean(self) -> bool:
        return not self.names


MARK, MARGIN = ("mark", "a mark"), ("margin", "border", "a mark")
COLOUR, LIGHT = ("colour", "red", "green", "blue", "saturation"), ("brightness", "contrast")
FINE, GROUND = ("noise", "sharpness"), ("background", "margin")

_PLANTED = (
    # name, domain, base, plant, names, n
    ("square in the corner", "small", "fashion 0 6", "corner", MARK, 1000),
    ("logo in the corner", "small", "cifar 3 5", "logo", MARK, 1000),
    ("mark at the top", "small", "mnist 3 8", "top", MARK, 1000),
    ("faint mark", "small", "kmnist 1 2", "faint", MARK, 1000),
    ("mark in the lower left", "small", "fashion 2 4", "lower_left", MARK, 1000),
    ("line across the bottom", "small", "cifar 1 9", "bottom_line", MARGIN, 1000),
    ("tag in one of ten, garments", "small", "fashion all", "one_corner", MARK, 2000),
    ("tag in one of ten, photographs", "small", "cifar all", "one_logo", MARK, 2000),
    ("tag in one of ten, digits", "small", "mnist all", "one_top", MARK, 2000),
    ("dot anywhere", "small", "fashion 0 3", "dot_anywhere", MARK, 1000),
    ("logo anywhere", "small", "cifar 4 7", "logo_anywhere", MARK, 1000),
    ("brighter garments", "small", "fashion 2 6", "brighter", LIGHT, 1000),
    ("brighter photographs", "small", "cifar 3 5", "brighter", LIGHT, 1000),
    ("darker script", "small", "kmnist 0 4", "darker", LIGHT, 1000),
    ("flat contrast", "small", "cifar 4 7", "flat", LIGHT, 1000),
    ("flat contrast of garments", "small", "fashion 2 4", "flat", LIGHT, 1000),
    ("red or blue cast", "small", "cifar 0 8", "cast", COLOUR, 1000),
    ("slight warm cast", "small", "cifar 1 9", "warm", COLOUR, 1000),
    ("coloured digits", "small", "mnist 3 5", "coloured", COLOUR, 1000),
    ("coloured script", "small", "kmnist 5 6", "coloured", COLOUR, 1000),
    ("paler photographs", "small", "cifar 3 7", "pale", COLOUR, 1000),
    ("blurred photographs", "small", "cifar 3 5", "blur", FINE, 1000),
    ("blurred garments", "small", "fashion 5 7", "blur", FINE, 1000),
    ("noise", "small", "cifar 4 7", "noise", FINE, 1000),
    ("salt and pepper", "small", "mnist 4 9", "pepper", FINE, 1000),
    ("compressed", "small", "cifar 0 2", "jpeg", ("compression", "JPEG", *FINE), 1000),
    ("compressed garments", "small", "fashion 0 6", "jpeg", ("compression", "JPEG", *FINE), 1000),
    ("shifted digits", "small", "mnist 3 8", "right", ("object position",), 1000),
    ("shifted garments", "small", "fashion 0 2", "down", ("object position",), 1000),
    ("smaller digits", "small", "mnist 4 9", "smaller", ("object size",), 1000),
    ("smaller garments", "small", "fashion 5 9", "smaller", ("object size",), 1000),
    ("turned digits", "small", "mnist 3 5", "turned", ("object orientation",), 1000),
    ("turned script", "small", "kmnist 2 3", "turned", ("object orientation",), 1000),
    ("black border", "small", "cifar 3 5", "border", MARGIN, 1000),
    ("thin frame", "small", "fashion 2 6", "frame", MARGIN, 1000),
    ("grounds of two colours", "small", "fashion 0 3", "ground", (*GROUND, *COLOUR, *LIGHT), 1000),
    ("grounds of two textures", "small", "mnist 3 8", "texture", (*GROUND, *FINE), 1000),
    ("birds and their places", "photo", "waterbirds", "place", ("background", "place"), 1200),
    ("birds and their places, few", "photo", "waterbirds", "place", ("background", "place"), 800),
    ("stamp on birds", "photo", "birds", "stamp", (*MARK, "margin"), 600),
    ("warm light on birds", "photo", "birds", "warm", (*COLOUR, "brightness"), 600),
    ("JPEG quality of files", "photo", "files cifar 3 5", "quality", ("JPEG", "compression", "file size"), 500),
    ("aspect ratio of files", "photo", "files cifar 1 9", "aspect", ("aspect ratio", "image size"), 500),
    ("PNG or JPEG", "photo", "files cifar 4 7", "format", ("file format", "JPEG", "file size"), 500),
    ("resolution of files", "photo", "files cifar 0 8", "resolution", ("image size", *FINE, "file size"), 500),
    ("camera in EXIF", "photo", "files cifar 3 7", "camera", ("camera", "EXIF"), 500),
    ("starts with a word", "text", "imdb", "prefix", ("starts with",), 1000),
    ("starts with two words", "text", "tweets", "prefix_two", ("starts with", "the phrase"), 1000),
    ("ends with a word", "text", "imdb", "suffix", ("ends with",), 1000),
    ("ends with a phrase", "text", "tweets", "suffix_two", ("ends with", "the phrase"), 1000),
    ("one of four words", "text", "imdb", "one_of_four", ("the word", "starts with"), 1500),
    ("a word in the middle", "text", "imdb", "word", ("the word", "the phrase"), 1000),
    ("two words in the middle", "text", "imdb", "phrase", ("the phrase", "the word"), 1000),
    ("exclamation marks", "text", "tweets", "exclaim", ("punctuation", "the word '!'", "ends with"), 1000),
    ("shorter texts", "text", "imdb", "shorter", ("length",), 1000),
    ("line breaks as markup", "text", "imdb", "markup", ("markup", "punctuation", "the word", "the phrase"), 1000),
    ("a link", "text", "tweets", "link", ("markup", "the word", "the phrase", "ends with"), 1000),
    ("a number at the start", "text", "imdb", "number", ("starts with", "digits", "the word"), 1000),
    ("a column of the clinic", "table", "adult", "clinic", ("clinic",), 2000),
    ("a column of the clinic, small", "table", "german", "clinic", ("clinic",), 800),
    ("gaps in a column", "table", "adult", "gaps", ("missing",), 2000),
    ("a serial number", "table", "compas", "serial", ("serial",), 1500),
    ("a shifted measurement", "table", "adult", "shifted", ("reading",), 2000),
    ("a rare code", "table", "compas", "code", ("code",), 1500),
)

_CONTROLS = (
    *(
        (f"garments {a} and {b}", "small", f"fashion {a} {b}", "", 1000)
        for a, b in ((0, 6), (2, 6), (2, 4), (0, 3), (0, 1), (5, 7), (7, 9), (8, 9), (3, 4), (4, 6), (1, 8), (0, 2))
    ),
    *(
        (f"photographs {a} and {b}", "small", f"cifar {a} {b}", "", 1000)
        for a, b in ((3, 5), (4, 7), (0, 8), (1, 9), (0, 2), (2, 6), (5, 7), (0, 1))
    ),
    *((f"digits {a} and {b}", "small", f"mnist {a} {b}", "", 1000) for a, b in ((0, 1), (3, 8), (4, 9), (2, 7))),
    *((f"script {a} and {b}", "small", f"kmnist {a} {b}", "", 1000) for a, b in ((0, 1), (2, 3), (4, 5), (6, 7))),
    ("garments, ten classes", "small", "fashion all", "", 2000),
    ("photographs, ten classes", "small", "cifar all", "", 2000),
    ("garments at 80 px", "photo", "large fashion 0 6", "", 500),
    ("photographs at 80 px", "photo", "large cifar 3 5", "", 500),
    ("horses at 80 px", "photo", "large cifar 4 7", "", 500),
    ("birds, balanced", "photo", "waterbirds", "balanced", 800),
    ("birds, balanced, few", "photo", "waterbirds", "balanced", 600),
    ("files without a shortcut", "photo", "files cifar 3 5", "files", 500),
    ("garments, 10 % wrong labels", "small", "fashion 0 6", "wrong_labels", 1000),
    ("digits, 10 % wrong labels", "small", "mnist 3 8", "wrong_labels", 1000),
    ("garments, one class rare", "small", "fashion 2 4", "rare", 1000),
    ("photographs, one class rare", "small", "cifar 3 5", "rare", 1000),
    ("a hard subgroup, blurred", "small", "fashion 0 6", "hard_blur", 1000),
    ("a hard subgroup, noisy", "small", "cifar 4 7", "hard_noise", 1000),
    ("reviews", "text", "imdb", "", 1000),
    ("reviews, 10 % wrong labels", "text", "imdb", "wrong_labels", 1000),
    ("tweets", "text", "tweets", "", 1000),
    ("tweets, shuffled attribute", "text", "tweets", "shuffled", 1000),
    ("incomes", "table", "adult", "", 2000),
    ("credits", "table", "german", "", 800),
    ("offences", "table", "compas", "", 1500),
    ("a legitimate column is named", "table", "adult", "legitimate", 2000),
    ("a column that the model never sees", "table", "copies", "unseen", 2000),
    ("a noisy copy of an input", "table", "copies", "noisy_copy", 2000),
    ("a shuffled column", "table", "compas", "shuffled", 1500),
    ("legitimate inputs of unlike strength", "table", "copies", "legitimate", 2000),
)  # fmt: skip

# Added to the development half after the final set was measured: new cues, and photographs of natural scenes.
ADDED = (
    ("greener photographs", "small", "cifar 2 9", "greener", ("green", "colour"), 1000),
    ("borders of files", "photo", "files cifar 5 7", "letterbox", ("border", "aspect ratio", "image size"), 500),
    (
        "texts of a template",
        "text",
        "imdb",
        "template",
        ("the template", "the phrase", "the word", "starts with"),
        1000,
    ),
    *(
        (f"photographs {pair} at 80 px", "photo", f"large cifar {pair}", "", (), 600)
        for pair in ("4 5", "0 3", "4 8", "7 8", "0 5", "2 4", "0 7", "5 6")
    ),
)

HALVES = ("develop", "held out")  # in turn, so that each half has each domain and each base
KINDS = tuple(
    [Kind(*fields, HALVES[i % 2]) for i, fields in enumerate(_PLANTED)]
    + [Kind(*fields[:4], (), fields[4], HALVES[i % 2]) for i, fields in enumerate(_CONTROLS)]
    + [Kind(*fields, "develop") for fields in ADDED]
)


def kinds(half: str, clean: bool | None = None) -> list[Kind]:
    """Those of one half: all, the controls, or those with something planted."""
    return [k for k in KINDS if k.half == half and clean in (None, k.clean)]
