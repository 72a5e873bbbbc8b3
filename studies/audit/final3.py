"""The kinds of the third final set: named and committed before anything was measured on them, and measured once.

By now everything of the sets before has been seen, and serves to develop. What is planted here is drawn by
`plants3.py`, which nothing else uses. The controls are sets of three classes, digits and script, of the first images of
each class in the training split (`early_`); birds, texts and tables are other draws.

Texts were accused by groups of their own words, which was mended after that. So what is shipped is asked once more for
false alarms, named here before it was: the controls again, in draws that nothing has seen (CONTROL_SEEDS; of small
classes the same images in other folds and splits), and ten draws of Waterbirds each way.
"""

from __future__ import annotations

from studies.audit.kinds import COLOUR, FINE, GROUND, LIGHT, MARGIN, MARK, Kind

FINAL3 = "final 3"
FIRST_DRAW3 = 200  # seed of its first draw of Waterbirds
DRAWS3 = 5  # biased, and balanced
CONTROLS, CONTROL_SEEDS, FIRST_DRAW4 = "controls", (1, 2), 300
WORD = ("the word", "the phrase")
CORNER = (*MARK, "margin")
TURN = ("object orientation", "object position")

_PLANTED = (
    # name, domain, base, plant, names, n
    ("plus at the top", "small", "early_fashion 0 1", "plus", CORNER, 800),
    ("chevron in the lower left", "small", "early_cifar 0 5", "chevron", CORNER, 900),
    ("squares in the upper right", "small", "early_fashion 3 8", "squares", CORNER, 700),
    ("dark bars at the right", "small", "early_cifar 2 9", "two_bars", CORNER, 800),
    ("diamond in one of ten, garments", "small", "early_fashion all", "one_diamond", MARK, 3000),
    ("dark diamond in one of ten, photographs", "small", "early_cifar all", "one_diamond_dark", CORNER, 3000),
    ("plus anywhere", "small", "early_fashion 2 9", "plus_anywhere", MARK, 1000),
    ("chevron anywhere", "small", "early_cifar 1 7", "chevron_anywhere", MARK, 1000),
    ("half-transparent band", "small", "early_cifar 3 4", "band", MARGIN, 800),
    ("crop marks", "small", "early_fashion 4 8", "crop_marks", MARGIN, 600),
    ("shaded foot", "small", "early_cifar 0 4", "shaded_foot", (*MARGIN, *LIGHT, "a part"), 900),
    ("red and blue exchanged", "small", "early_cifar 1 2", "swapped", COLOUR, 800),
    ("grey photographs", "small", "early_cifar 5 6", "greyscale", COLOUR, 700),
    ("cross-processed", "small", "early_cifar 7 8", "crossed", (*COLOUR, *LIGHT), 900),
    ("blue hour", "small", "early_cifar 4 5", "blue_hour", COLOUR, 1000),
    ("coloured papers", "small", "kmnist 2 6", "papers", (*GROUND, *COLOUR, *LIGHT), 800),
    ("negatives", "small", "early_mnist 0 5", "negative", (*LIGHT, *GROUND), 700),
    ("darkened photographs", "small", "early_cifar 2 3", "darkened", LIGHT, 900),
    ("flash", "small", "early_cifar 6 7", "flash", (*LIGHT, "margin"), 1000),
    ("stretched tones", "small", "early_cifar 4 8", "stretched_tones", LIGHT, 900),
    ("ghost image", "small", "early_fashion 6 7", "ghost", (*FINE, *LIGHT, "object"), 800),
    ("interlaced", "small", "early_cifar 3 5", "interlaced", (*FINE, "compression"), 900),
    ("noise of rows", "small", "early_cifar 8 9", "row_noise", FINE, 800),
    ("dust", "small", "early_cifar 0 2", "dust", (*FINE, "a mark"), 700),
    ("eight tones, dithered", "small", "early_cifar 1 4", "dithered", (*FINE, "compression"), 900),
    ("compressed twice", "small", "early_cifar 6 9", "recompressed", ("compression", "JPEG", *FINE), 1000),
    ("chequered grounds", "small", "early_mnist 2 9", "chequered", (*GROUND, *FINE, *LIGHT, "a part"), 700),
    ("upside down", "small", "early_fashion 0 7", "upside_down", TURN, 900),
    ("a quarter turned", "small", "early_mnist 4 5", "quarter_turn", TURN, 700),
    ("narrower script", "small", "kmnist 3 7", "narrower", ("object size", "object orientation", "margin"), 800),
    ("moved to the upper right", "small", "kmnist 0 7", "up_right", ("object position",), 700),
    ("birds and their places, another third size", "photo", "waterbirds", "place", ("background", "place"), 1100),
    ("plus on birds", "photo", "birds", "plus", CORNER, 600),
    ("grey birds", "photo", "birds", "greyscale", COLOUR, 500),
    ("chevron anywhere at 80 px", "photo", "large early_cifar 0 8", "chevron_anywhere", MARK, 600),
    ("crop marks at 80 px", "photo", "large early_cifar 2 6", "crop_marks", MARGIN, 500),
    ("flash at 80 px", "photo", "large early_cifar 5 8", "flash", (*LIGHT, "margin"), 500),
    ("ghost image at 80 px", "photo", "large early_cifar 1 9", "ghost", FINE, 500),
    ("larger files", "photo", "files early_cifar 4 7", "larger_files", ("image size", "file size", *FINE), 400),
    ("BMP or JPEG", "photo", "files early_cifar 0 3", "bmp_files", ("file format", "JPEG", "file size"), 400),
    ("starts with a greeting", "text", "imdb", "greeting", ("starts with", *WORD), 900),
    ("starts with a case number", "text", "tweets", "case", ("starts with", "digits", "punctuation", *WORD), 900),
    ("ends with a score", "text", "imdb", "score", ("ends with", "digits", "punctuation", "markup", *WORD), 1000),
    ("ends with a postscript", "text", "tweets", "postscript", ("ends with", *WORD), 800),
    ("a misspelt word", "text", "imdb", "typo", WORD, 1200),
    ("a smiley", "text", "tweets", "smiley", ("punctuation", "markup", *WORD), 900),
    ("one of ten words", "text", "imdb", "one_of_ten", (*WORD, "starts with"), 1800),
    ("a stock sentence", "text", "imdb", "stock", WORD, 900),
    ("no punctuation", "text", "imdb", "unpunctuated", ("punctuation", "ends with"), 900),
    ("shortened reviews", "text", "imdb", "first_part", ("length", "ends with"), 1200),
    ("a site of five", "table", "adult", "site", ("site",), 3000),
    ("pounds or kilograms", "table", "compas", "weight", ("weight",), 1600),
    ("a code for missing", "table", "german", "tenure", ("tenure",), 900),
)  # fmt: skip

TRIPLES = ("0 3 6", "1 4 7", "2 5 8", "3 6 9", "0 4 8", "1 5 9", "2 6 7", "0 5 7", "1 3 8", "2 4 9")


def _controls() -> list[tuple[str, str, str, str, int]]:
    """(name, domain, base, plant, n) of data into which nothing is planted that tells the label."""
    found = []
    for base, what in (("early_fashion", "garments"), ("early_cifar", "photographs")):
        for k, three in enumerate(TRIPLES):
            found.append((f"{what} {three}", "small", f"{base} {three}", "", (600, 750, 900)[k % 3]))
            found.append((f"{what} {three}, 80 px", "photo", f"large {base} {three}", "", (450, 540)[k % 2]))
    for base, several in (
        ("early_mnist", ("0 2", "1 8", "3 9", "4 6", "5 7", "0 9")),
        ("kmnist", ("0 1 2", "3 4 5", "6 7 8", "1 4 8", "2 5 9", "0 3 7")),
    ):
        found += [(f"{base} {some}", "small", f"{base} {some}", "", 700) for some in several]
    found += [(f"ten classes, early {base}", "small", f"early_{base} all", "", 2000) for base in ("mnist", "cifar")]
    for what, plant in (
        ("wrong labels", "wrong_labels"),
        ("a rare class", "rare"),
        ("a blurred subgroup", "hard_blur"),
        ("a noisy subgroup", "hard_noise"),
    ):
        for base in ("early_fashion 0 9", "early_cifar 3 8", "early_mnist 2 7"):
            found.append((f"{what}, {base}", "small", base, plant, 700))
    found += [
        (f"three files, early {pair}", "photo", f"files early_cifar {pair}", "files", 400) for pair in ("1 3", "2 8")
    ]
    found += [(f"birds, balanced, draw of {n}", "photo", "waterbirds", "balanced", n) for n in (500, 600, 700)]
    for base in ("imdb", "tweets"):
        found += [(f"{base}, draw of {n}", "text", base, "", n) for n in (500, 700, 950, 1150, 1450, 1900)]
        for plant in ("shuffled", "wrong_labels"):
            found.append((f"{base}, {plant}, draw of 900", "text", base, plant, 900))
    for base, plants, n in (
        ("adult", ("", "legitimate", "shuffled"), 1500),
        ("compas", ("", "shuffled"), 1300),
        ("german", ("", "shuffled"), 750),
        ("cancer", ("", "shuffled"), 500),
        ("digits 2 5", ("",), 320),
        ("copies", ("unseen", "noisy_copy", "legitimate"), 1600),
    ):
        found += [(f"{base}, {plant or 'plain'}, draw of {n}", "table", base, plant, n) for plant in plants]
    return found


FINAL3_KINDS = tuple(
    [Kind(*fields, FINAL3) for fields in _PLANTED]
    + [Kind(name, domain, base, plant, (), n, FINAL3) for name, domain, base, plant, n in _controls()]
)
