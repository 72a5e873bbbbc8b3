"""The kinds of the final set: named before anything was measured on them, and measured once.

What is planted (its shape, place, colour or words), the class pairs and the draws are others than those of `kinds.py`;
images are of the test splits, which nothing else in this study reads (KMNIST has other class pairs; the birds, texts
and tables have other draws). The development half of `kinds.py` chose every threshold; no final kind did.
"""

from __future__ import annotations

from itertools import combinations

from studies.audit.kinds import COLOUR, FINE, GROUND, KINDS, LIGHT, MARGIN, MARK, Kind

FINAL = "final"
ANY_WORD = ("the word", "the phrase")

_PLANTED = (
    # name, domain, base, plant, names, n
    ("ring in the upper left", "small", "fashion_test 5 8", "ring", MARK, 1000),
    ("ring at the right", "small", "cifar_test 2 7", "ring_right", MARK, 1000),
    ("two dots in the corner", "small", "mnist_test 1 7", "two_dots", (*MARK, "margin"), 1000),
    ("stripe down the left", "small", "cifar_test 6 9", "stripe", MARGIN, 1000),
    ("watermark at the top", "small", "fashion_test 1 4", "watermark", MARK, 1000),
    ("dark tag", "small", "cifar_test 4 9", "dark_tag", (*MARK, "margin"), 1000),
    ("ring in one of ten, script", "small", "kmnist all", "one_ring", MARK, 2000),
    ("checkers in one of ten, photographs", "small", "cifar_test all", "one_checker", (*MARK, "margin"), 2000),
    ("checkers at the bottom", "small", "cifar_test 2 4", "checker", (*MARK, "margin"), 1000),
    ("ring anywhere, garments", "small", "fashion_test 1 9", "ring_anywhere", MARK, 1000),
    ("ring anywhere, photographs", "small", "cifar_test 0 6", "ring_anywhere", MARK, 1000),
    ("green or magenta cast", "small", "cifar_test 2 9", "green_magenta", COLOUR, 1000),
    ("cool light", "small", "cifar_test 3 6", "cool", COLOUR, 1000),
    ("teal or orange digits", "small", "mnist_test 2 6", "teal_orange", COLOUR, 1000),
    ("sepia photographs", "small", "cifar_test 5 8", "sepia", COLOUR, 1000),
    ("vivid photographs", "small", "cifar_test 1 6", "vivid", COLOUR, 1000),
    ("dark by gamma", "small", "cifar_test 0 4", "gamma", LIGHT, 1000),
    ("washed-out garments", "small", "fashion_test 4 8", "washed", (*LIGHT, "margin", "background"), 1000),
    ("dim garments", "small", "fashion_test 1 3", "dim", LIGHT, 1000),
    ("motion blur", "small", "cifar_test 2 5", "motion", FINE, 1000),
    ("sharpened photographs", "small", "cifar_test 1 2", "sharpened", (*FINE, "contrast"), 1000),
    ("grain", "small", "cifar_test 8 9", "grain", FINE, 1000),
    ("pixelated garments", "small", "fashion_test 3 6", "pixelated", (*FINE, "compression"), 1000),
    ("low JPEG quality", "small", "cifar_test 6 8", "low_quality", ("compression", "JPEG", *FINE), 1000),
    ("shifted up, script", "small", "kmnist 1 7", "up", ("object position",), 1000),
    ("shifted left, shoes", "small", "fashion_test 7 8", "left", ("object position", "margin"), 1000),
    ("larger digits", "small", "mnist_test 5 6", "larger", ("object size",), 1000),
    ("wider script", "small", "kmnist 0 8", "wider", ("object size", "object orientation"), 1000),
    ("turned back garments", "small", "fashion_test 1 6", "turned_back", ("object orientation",), 1000),
    ("dark corners", "small", "cifar_test 4 8", "lens", ("margin", "brightness", "a mark", *LIGHT), 1000),
    ("white frame", "small", "cifar_test 0 5", "white_frame", MARGIN, 1000),
    ("sloping grounds", "small", "mnist_test 0 9", "slope", (*GROUND, *LIGHT, "a mark"), 1000),
    ("birds and their places, another size", "photo", "waterbirds", "place", ("background", "place"), 1000),
    ("ring on birds", "photo", "birds", "ring", (*MARK, "margin"), 700),
    ("caption on birds", "photo", "birds", "caption", MARGIN, 700),
    ("cool light on birds", "photo", "birds", "cool", (*COLOUR, "brightness"), 700),
    ("sepia birds", "photo", "birds", "sepia", COLOUR, 700),
    ("caption at 80 px", "photo", "large cifar_test 2 8", "caption", MARGIN, 700),
    ("motion blur at 80 px", "photo", "large cifar_test 6 7", "motion", FINE, 700),
    ("dark tag at 80 px", "photo", "large cifar_test 5 9", "dark_tag", (*MARK, "margin"), 700),
    ("dim photographs at 80 px", "photo", "large cifar_test 1 4", "dim", LIGHT, 700),
    ("software in EXIF", "photo", "files cifar_test 2 3", "software", ("camera", "EXIF"), 500),
    ("date in EXIF", "photo", "files cifar_test 1 5", "date", ("date", "EXIF"), 500),
    ("mildly lower quality", "photo", "files cifar_test 4 6", "mild", ("JPEG", "compression", "file size"), 500),
    ("taller files", "photo", "files cifar_test 0 7", "taller", ("aspect ratio", "image size"), 500),
    ("starts with an announcement", "text", "imdb", "announce", ("starts with", *ANY_WORD), 1200),
    ("starts with a quotation mark", "text", "tweets", "quoted", ("starts with", "punctuation", *ANY_WORD), 1200),
    ("ends with a question", "text", "imdb", "question", ("ends with", "punctuation", *ANY_WORD), 1200),
    ("ends with initials", "text", "tweets", "initials", ("ends with", *ANY_WORD), 1200),
    ("a name in the middle", "text", "imdb", "person", ANY_WORD, 1200),
    ("three words in the middle", "text", "tweets", "three", ANY_WORD, 1200),
    ("one of six words", "text", "imdb", "one_of_six", (*ANY_WORD, "starts with"), 1500),
    ("dots", "text", "imdb", "dots", ("punctuation", "ends with", *ANY_WORD), 1200),
    ("longer texts", "text", "tweets", "longer", ("length", "ends with", *ANY_WORD), 1200),
    ("a bracketed tag", "text", "imdb", "bracket", ("markup", "punctuation", *ANY_WORD), 1200),
    ("a year at the end", "text", "tweets", "year", ("digits", "ends with", *ANY_WORD), 1200),
    ("a batch code", "table", "adult", "batch", ("batch",), 1800),
    ("a device of four", "table", "compas", "device", ("device",), 1600),
    ("a drifting sensor", "table", "german", "sensor", ("sensor",), 900),
    ("gaps in a second column", "table", "compas", "second_gaps", ("missing", "visits"), 1600),
    ("a later time stamp", "table", "adult", "later", ("later",), 1800),
)


def _pairs(base: str, most: int, known: str = "") -> list[str]:
    """Class pairs of a base that no kind of `kinds.py` has, the first so many in a fixed order."""
    used = {k.base for k in KINDS} | {fields[2] for fields in _PLANTED}
    known = known or base.removesuffix("_test")
    free = [(a, b) for a, b in combinations(range(10), 2) if f"{known} {a} {b}" not in used]
    spread = sorted(free, key=lambda pair: (pair[0] * 7 + pair[1] * 3) % 11)
    return [f"{base} {a} {b}" for a, b in spread[:most]]


def _controls() -> list[tuple[str, str, str, str, int]]:
    """(name, domain, base, plant, n) of data into which nothing is planted that tells the label."""
    small = [
        *(("garments", base) for base in _pairs("fashion_test", 30)),
        *(("photographs", base) for base in _pairs("cifar_test", 30)),
        *(("digits", base) for base in _pairs("mnist_test", 28)),
        *(("script", base) for base in _pairs("kmnist", 28)),
    ]
    found = [(f"{what}, {base.partition(' ')[2]}", "small", base, "", 1000) for what, base in small]
    for what, (plant, kinds) in {
        "wrong labels": ("wrong_labels", ("fashion_test 1 7", "cifar_test 0 9", "mnist_test 2 8", "kmnist 3 9")),
        "a rare class": ("rare", ("fashion_test 0 8", "cifar_test 6 7", "mnist_test 0 6", "kmnist 2 8")),
        "a blurred subgroup": ("hard_blur", ("fashion_test 2 9", "cifar_test 4 5", "mnist_test 5 8", "kmnist 6 9")),
        "a noisy subgroup": ("hard_noise", ("fashion_test 3 8", "cifar_test 1 7", "mnist_test 4 7", "kmnist 0 5")),
    }.items():
        found += [(f"{what}, {base}", "small", base, plant, 1000) for base in kinds]
    found += [(f"at 80 px, {base}", "photo", f"large {base}", "", 600) for base in _pairs("cifar_test", 12)[::-1]]
    found += [(f"at 80 px, {base}", "photo", f"large {base}", "", 600) for base in _pairs("fashion_test", 5)]
    found += [(f"birds, balanced, draw {n}", "photo", "waterbirds", "balanced", n) for n in (500, 700, 900, 1000, 1100)]
    found += [(f"files, {base}", "photo", f"files {base}", "files", 500) for base in _pairs("cifar_test", 8)]
    for base, many in (("imdb", 8), ("tweets", 7)):
        found += [(f"{base}, draw {k}", "text", base, "", 700 + 100 * k) for k in range(many)]
        found += [(f"{base}, wrong labels, draw {k}", "text", base, "wrong_labels", 900 + 100 * k) for k in range(2)]
        found += [(f"{base}, shuffled, draw {k}", "text", base, "shuffled", 900 + 100 * k) for k in range(2)]
    tables = (("adult", 1700), ("german", 750), ("compas", 1300), ("copies", 1700))
    plants = {"adult": ("", "legitimate", "shuffled"), "german": ("", "shuffled"), "compas": ("", "shuffled")}
    for base, n in tables:
        for plant in plants.get(base, ("unseen", "noisy_copy", "legitimate")):
            found += [(f"{base}, {plant or 'as it is'}, draw {k}", "table", base, plant, n + 50 * k) for k in range(2)]
    return found


FINAL_KINDS = tuple(
    [Kind(*fields, FINAL) for fields in _PLANTED]
    + [Kind(name, domain, base, plant, (), n, FINAL) for name, domain, base, plant, n in _controls()]
)
