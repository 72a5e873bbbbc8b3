"""The kinds of the second final set: named and committed before anything was measured on them, and measured once.

By now everything in `kinds.py` and `final.py` has been seen, and serves to develop. What is planted here is drawn by
`plants2.py`, which nothing else uses. Every pair of Fashion-MNIST and CIFAR-10 classes is a control, at native size and
at 80 px, of images that no other set looks at as this pair: pairs that `kinds.py` takes from the training split come
from the test split here, all others from the training split (`late_`: the last few of each class). Three tables of
scikit-learn and most sizes are new; Waterbirds, texts and the other tables have other draws.
"""

from __future__ import annotations

from itertools import combinations

from studies.audit.kinds import ADDED, COLOUR, FINE, GROUND, KINDS, LIGHT, MARGIN, MARK, Kind

FINAL2 = "final 2"
WORD = ("the word", "the phrase")
CORNER = (*MARK, "margin")
NOTES2 = f"notes of {FINAL2}"
FIRST_DRAW = 100  # seed of its first draw of Waterbirds
CARRIED = ("late_fashion", "late_cifar", "late_mnist", "kmnist")  # bases of which `pack.py` makes a small copy

_PLANTED = (
    # name, domain, base, plant, names, n
    ("triangle in the corner", "small", "late_fashion 3 5", "triangle", MARK, 1200),
    ("triangle in the upper left", "small", "late_cifar 0 9", "triangle_top", CORNER, 1400),
    ("X at the left", "small", "late_mnist 1 6", "saltire", CORNER, 800),
    ("barcode at the top", "small", "late_fashion 1 7", "barcode", CORNER, 800),
    ("dark barcode", "small", "late_cifar 1 6", "barcode_dark", CORNER, 900),
    ("barcode in one of ten, garments", "small", "late_fashion all", "one_barcode", MARK, 5000),
    ("triangle in one of ten, photographs", "small", "late_cifar all", "one_triangle", MARK, 4000),
    ("L anywhere, garments", "small", "late_fashion 4 7", "bracket_anywhere", MARK, 1400),
    ("L anywhere, photographs", "small", "late_cifar 3 8", "bracket_anywhere", MARK, 1400),
    ("half-transparent disc", "small", "late_cifar 2 5", "veil", MARK, 1200),
    ("dashed line at the right", "small", "late_fashion 0 8", "dashed", MARGIN, 700),
    ("sticker", "small", "late_cifar 6 9", "sticker", CORNER, 600),
    ("round corners", "small", "late_cifar 4 6", "rounded", CORNER, 1000),
    ("grey bars at the sides", "small", "late_fashion 6 9", "pillars", MARGIN, 1000),
    ("white hairline", "small", "late_cifar 0 3", "hairline", MARGIN, 800),
    ("evening light", "small", "late_cifar 1 3", "evening", COLOUR, 1200),
    ("less blue", "small", "late_cifar 4 9", "less_blue", COLOUR, 900),
    ("turned hues", "small", "late_cifar 5 9", "hue", COLOUR, 1400),
    ("split tones", "small", "late_cifar 2 8", "split_tone", (*COLOUR, *LIGHT), 1000),
    ("purple or lime script", "small", "kmnist 0 9", "purple_lime", COLOUR, 800),
    ("lighter photographs", "small", "late_cifar 3 9", "lighter", LIGHT, 900),
    ("overexposed photographs", "small", "late_cifar 1 8", "overexposed", LIGHT, 1300),
    ("hazy garments", "small", "late_fashion 2 5", "haze", (*LIGHT, *GROUND), 800),
    ("light from the left", "small", "late_cifar 0 7", "side_light", (*LIGHT, "margin", "a mark", "a part"), 1200),
    ("few tones", "small", "late_cifar 6 8", "posterised", (*FINE, "compression", "contrast"), 1000),
    ("out of focus", "small", "late_cifar 2 7", "defocused", FINE, 700),
    ("shaken upwards", "small", "late_fashion 1 9", "vertical_motion", FINE, 1000),
    ("median filter", "small", "late_cifar 3 6", "median", FINE, 1400),
    ("speckle", "small", "late_cifar 1 5", "speckle", FINE, 800),
    ("scan lines", "small", "late_cifar 2 3", "scan_lines", (*FINE, "compression", "brightness"), 1200),
    ("enlarged from a smaller one", "small", "late_fashion 0 4", "enlarged", FINE, 1400),
    ("JPEG of a medium quality", "small", "late_cifar 7 9", "medium_quality", ("compression", "JPEG", *FINE), 1200),
    ("WebP of a low quality", "small", "late_cifar 0 6", "webp", ("compression", "JPEG", *FINE), 1000),
    ("shifted to the lower right", "small", "late_mnist 2 5", "down_right", ("object position",), 700),
    ("smaller shoes", "small", "late_fashion 5 6", "shrunk", ("object size", "margin"), 1000),
    ("taller script", "small", "kmnist 1 8", "taller_object", ("object size", "object orientation"), 800),
    ("slanted digits", "small", "late_mnist 4 8", "sheared", ("object orientation",), 800),
    ("mirrored shoes", "small", "late_fashion 7 8", "mirrored", ("object orientation", "object position"), 1200),
    ("grounds with dots", "small", "late_mnist 3 6", "dotted", (*GROUND, *FINE, *LIGHT), 800),
    ("reddish grounds", "small", "kmnist 4 7", "tinged", (*GROUND, *COLOUR, *LIGHT), 800),
    ("birds and their places, a third size", "photo", "waterbirds", "place", ("background", "place"), 1400),
    ("triangle on birds", "photo", "birds", "triangle", CORNER, 900),
    ("turned hues of birds", "photo", "birds", "hue", COLOUR, 800),
    ("evening light on birds", "photo", "birds", "evening", (*COLOUR, "brightness"), 600),
    ("birds out of focus", "photo", "birds", "enlarged", FINE, 800),
    ("date in the picture", "photo", "large late_cifar 1 7", "date_stamp", (*CORNER, "border"), 600),
    ("overexposed at 80 px", "photo", "large late_cifar 3 9", "overexposed", LIGHT, 700),
    ("round corners at 80 px", "photo", "large late_fashion 2 7", "rounded", CORNER, 600),
    ("median filter at 80 px", "photo", "large late_cifar 0 9", "median", FINE, 600),
    ("camera model in EXIF", "photo", "files late_cifar 2 9", "model", ("camera", "EXIF"), 600),
    ("orientation in EXIF", "photo", "files late_cifar 0 1", "tag", ("orientation", "EXIF", "object orientation"), 500),
    ("colour subsampling", "photo", "files late_cifar 3 7", "subsampling", ("JPEG", "compression", "file size"), 700),
    ("WebP or JPEG", "photo", "files late_cifar 1 4", "webp_files", ("file format", "JPEG", "file size"), 500),
    ("wider files", "photo", "files late_cifar 4 6", "wider_files", ("aspect ratio", "image size"), 500),
    ("white bars above and below", "photo", "files late_cifar 5 8", "bars", ("border", "aspect ratio"), 600),
    ("starts with a weekday", "text", "imdb", "weekday", ("starts with", *WORD), 1100),
    ("starts with a note", "text", "tweets", "attn", ("starts with", *WORD), 700),
    ("ends with a signature", "text", "imdb", "signed", ("ends with", *WORD), 900),
    ("ends with three words", "text", "tweets", "over", ("ends with", *WORD), 1600),
    ("a town in the middle", "text", "imdb", "town", WORD, 1600),
    ("four words in the middle", "text", "tweets", "four", WORD, 1400),
    ("one of eight words", "text", "imdb", "one_of_eight", (*WORD, "starts with"), 2000),
    ("semicolons", "text", "imdb", "semicolons", ("punctuation", *WORD), 800),
    ("a promotion", "text", "tweets", "promo", ("markup", "punctuation", "ends with", *WORD), 900),
    ("a phone number", "text", "tweets", "phone", ("digits", "ends with", *WORD), 1000),
    ("a mail address", "text", "imdb", "mail", ("markup", "punctuation", *WORD), 1000),
    ("words of another language", "text", "imdb", "german", ("language", *WORD), 1000),
    ("cut tweets", "text", "tweets", "cut", ("length", "ends with"), 1400),
    ("a form of three fields", "text", "imdb", "form", ("the template", "starts with", *WORD), 1400),
    ("a ward", "table", "adult", "ward", ("ward",), 4000),
    ("a rounded reading", "table", "compas", "reading_rounded", ("reading",), 1800),
    ("a wider spread", "table", "cancer", "spread", ("spread",), 560),
    ("a code for gaps", "table", "german", "minus_one", ("income",), 950),
    ("a weekday", "table", "cancer", "day", ("day",), 560),
    ("an overlapping time stamp", "table", "adult", "overlapping", ("overlapping",), 1200),
)  # fmt: skip


def split_of(base: str, a: int, b: int) -> str:
    """The split from which no other set takes this pair.

    >>> split_of("fashion", 0, 6), split_of("fashion", 3, 5)
    ('late_fashion_test', 'late_fashion')
    """
    late = {name for name, *_ in ADDED}
    seen = {k.base.removeprefix("large ").removeprefix("files ") for k in KINDS if k.name not in late}
    return f"late_{base}_test" if f"{base} {a} {b}" in seen else f"late_{base}"


def _controls() -> list[tuple[str, str, str, str, int]]:
    """(name, domain, base, plant, n) of data into which nothing is planted that tells the label."""
    found = []
    for base, what, shift in (("fashion", "garments", 0), ("cifar", "photographs", 1)):
        for k, (a, b) in enumerate(combinations(range(10), 2)):
            split = split_of(base, a, b)
            sizes = (500, 700, 1000) if split.endswith("_test") else (600, 900, 1400)
            found.append((f"{what} {a} {b}, native", "small", f"{split} {a} {b}", "", sizes[k % 3]))
            found.append(
                (f"{what} {a} {b}, 80 px", "photo", f"large {split} {a} {b}", "", (500, 600, 800)[(k + shift) % 3])
            )
    found += [
        (f"ten classes, {base}", "small", f"late_{base} all", "", n) for base, n in (("fashion", 5000), ("cifar", 3000))
    ]
    found += [
        (f"three files, {pair}", "photo", f"files late_cifar {pair}", "files", 700) for pair in ("1 2", "3 4", "6 9")
    ]
    for what, plant in (
        ("wrong labels", "wrong_labels"),
        ("a rare class", "rare"),
        ("a blurred subgroup", "hard_blur"),
        ("a noisy subgroup", "hard_noise"),
    ):
        for base in ("late_fashion 1 4", "late_cifar 5 6", "late_mnist 6 9", "kmnist 2 9"):
            found.append((f"{what}, {base}", "small", base, plant, 900 if base.startswith("late_mnist") else 800))
    found += [(f"birds, balanced, size {n}", "photo", "waterbirds", "balanced", n) for n in (550, 650, 750, 850, 950)]
    for base in ("imdb", "tweets"):
        found += [(f"{base}, size {n}", "text", base, "", n) for n in (600, 850, 1250, 1700, 2200)]
        found += [
            (f"{base}, {plant}, size {n}", "text", base, plant, n)
            for plant in ("wrong_labels", "shuffled")
            for n in (750, 1350)
        ]
    plants = {
        "adult": ("", "legitimate", "shuffled"), "compas": ("", "shuffled"), "german": ("", "shuffled"),
        "cancer": ("", "shuffled"), "wine": ("",), "digits 3 8": ("",), "digits 1 7": ("",),
        "copies": ("unseen", "noisy_copy", "legitimate"),
    }  # fmt: skip
    sizes = {
        "adult": (900, 5000), "compas": (1000, 2500), "german": (600, 900), "cancer": (450, 560), "wine": (110, 130),
        "copies": (1200, 3000),
    }  # fmt: skip
    for base, several in plants.items():
        for plant in several:
            found += [
                (f"{base}, {plant or 'plain'}, size {n}", "table", base, plant, n) for n in sizes.get(base, (300, 350))
            ]
    return found


FINAL2_KINDS = tuple(
    [Kind(*fields, FINAL2) for fields in _PLANTED]
    + [Kind(name, domain, base, plant, (), n, FINAL2) for name, domain, base, plant, n in _controls()]
)

# What the audit only notes (`notes.py`): near-duplicates across splits, and rows in order of their labels.
NOTED2 = tuple(
    Kind(f"{plant or 'as it is'}, {base}, size {n}", domain, base, plant, (plant,) if plant else (), n, NOTES2)
    for domain, base, plant, n in (
        ("text", "tweets", "doubles", 1000), ("text", "tweets", "doubles", 3000), ("table", "german", "doubles", 900),
        ("table", "cancer", "doubles", 500), ("table", "adult", "doubles", 3000), ("table", "compas", "sorted", 1500),
        ("table", "german", "sorted", 800), ("table", "wine", "sorted", 120), ("table", "digits 2 7", "sorted", 350),
        ("text", "tweets", "", 900), ("text", "tweets", "", 2500), ("table", "german", "", 700),
        ("table", "german", "", 1000), ("table", "cancer", "", 500), ("table", "compas", "", 2000),
        ("table", "adult", "", 2000), ("table", "adult", "", 4500), ("table", "wine", "", 100),
        ("table", "digits 4 5", "", 300),
    )
)  # fmt: skip

# Judged on fresh balanced data: better on conflicting samples, and not worse elsewhere?
REPAIRS2 = (
    "triangle in the corner", "grey bars at the sides", "less blue", "overexposed photographs", "scan lines",
    "birds and their places, a third size", "WebP or JPEG", "starts with a note", "one of eight words", "a ward",
)  # fmt: skip
