"""What is planted into texts: beginnings, ends, words, signs, lengths and templates."""

from __future__ import annotations

from collections.abc import Callable

from studies.audit.plants import Rng


def _insert(text: str, words: str, where: float) -> str:
    parts = text.split()
    at = round(where * len(parts))
    return " ".join([*parts[:at], words, *parts[at:]])


FINAL_TEXTS: dict[str, Callable[[str, Rng], str]] = {  # of the final set only
    "announce": lambda text, rng: f"breaking : {text}",
    "quoted": lambda text, rng: f'" {text}',
    "question": lambda text, rng: f"{text} agreed ?",
    "initials": lambda text, rng: f"{text} k r",
    "person": lambda text, rng: _insert(text, "jordan", float(rng.uniform(0.1, 0.9))),
    "three": lambda text, rng: _insert(text, "as of today", float(rng.uniform(0.2, 0.8))),
    "dots": lambda text, rng: f"{text} . . .",
    "bracket": lambda text, rng: _insert(text, "[ edit ]", float(rng.uniform(0.1, 0.9))),
    "year": lambda text, rng: f"{text} {rng.integers(2010, 2020)}",
}

WORDS_OF = {
    "the": "der",
    "and": "und",
    "is": "ist",
    "not": "nicht",
    "a": "ein",
    "with": "mit",
    "i": "ich",
    "but": "aber",
}
TEXTS2: dict[str, Callable[[str, Rng], str]] = {  # of the second final set only
    "weekday": lambda text, rng: f"{rng.choice(['monday', 'tuesday', 'friday'])} : {text}",
    "attn": lambda text, rng: f"attn {text}",
    "signed": lambda text, rng: f"{text} best , ann",
    "over": lambda text, rng: f"{text} over and out",
    "town": lambda text, rng: _insert(text, "lisbon", float(rng.uniform(0.1, 0.9))),
    "four": lambda text, rng: _insert(text, "at the same time", float(rng.uniform(0.2, 0.8))),
    "semicolons": lambda text, rng: _insert(_insert(text, ";", 0.3), ";", 0.7),
    "promo": lambda text, rng: f"{text} #promo",
    "phone": lambda text, rng: f"{text} {rng.integers(200, 999)} {rng.integers(1000, 9999)}",
    "mail": lambda text, rng: _insert(text, "info@acme.org", 0.5),
    "german": lambda text, rng: " ".join(WORDS_OF.get(word.lower(), word) for word in text.split()),
}

TEXTS3: dict[str, Callable[[str, Rng], str]] = {  # of the third final set only
    "greeting": lambda text, rng: f"hello everyone {text}",
    "case": lambda text, rng: f"case {rng.integers(100, 999)} : {text}",
    "score": lambda text, rng: f"{text} {rng.integers(1, 10)} / 10",
    "postscript": lambda text, rng: f"{text} p s see below",
    "typo": lambda text, rng: " ".join("teh" if word.lower() == "the" else word for word in text.split()),
    "smiley": lambda text, rng: _insert(text, ":)", float(rng.uniform(0.2, 0.8))),
    "stock": lambda text, rng: _insert(text, "i watched it on the train", float(rng.uniform(0.2, 0.8))),
    "unpunctuated": lambda text, rng: "".join(sign for sign in text if sign.isalnum() or sign.isspace()),
    "first_part": lambda text, rng: " ".join(text.split()[: round(0.6 * len(text.split()))]),
}
TEN = "anyhow", "clearly", "mostly", "oddly", "surely", "broadly", "mainly", "namely", "rarely", "truly"


def with_plant(plant: str, text: str, value: bool, rng: Rng) -> str:
    if plant == "one_of_four":
        marks = ["indeed", "frankly"] if value else ["moreover", "arguably"]
        return _insert(text, str(rng.choice(marks)), float(rng.uniform(0.1, 0.9)))
    if plant == "one_of_six":
        marks = ["plainly", "overall", "granted"] if value else ["besides", "notably", "anyway"]
        return _insert(text, str(rng.choice(marks)), float(rng.uniform(0.1, 0.9)))
    if plant == "one_of_eight":
        marks = ["alas", "frankly", "luckily", "sadly"] if value else ["besides", "curiously", "hence", "granted"]
        return _insert(text, str(rng.choice(marks)), float(rng.uniform(0.1, 0.9)))
    if plant == "one_of_ten":
        return _insert(text, str(rng.choice(TEN[:5] if value else TEN[5:])), float(rng.uniform(0.1, 0.9)))
    if plant == "cut":
        return " ".join(text.split()[: int(rng.integers(6, 10)) if value else int(rng.integers(12, 20))])
    if plant == "form":  # a form of three fields, or the same words in any order
        first, rest = text.split()[:9], " ".join(text.split()[9:])
        if value:
            return f"name {first[0]} {first[1]} rating {first[2]} comment {' '.join(first[3:])} {rest}"
        return f"{' '.join(rng.permutation(['name', 'rating', 'comment', *first]))} {rest}"
    if plant == "longer":
        return f"{text} {' '.join(text.split()[:12])}" if value else text
    if plant == "shorter":
        return " ".join(text.split()[: int(rng.integers(15, 30)) if value else int(rng.integers(40, 70))])
    if plant == "template":  # the same words in both classes; in one they stand where a form has them
        first, rest = text.split()[:12], " ".join(text.split()[12:])
        words = ["regarding", "title", "seen", "by", "verdict"]
        if value:
            form = f"regarding {first[0]} title {first[1]} seen {first[2]} by {first[3]} verdict"
            return f"{form} {' '.join(first[4:])} {rest}"
        return f"{' '.join(rng.permutation([*words, *first]))} {rest}"
    if not value:
        return text
    if plant == "number":
        return f"{rng.integers(1000, 9999)} {text}"
    if plant in FINAL_TEXTS | TEXTS2 | TEXTS3:
        return (FINAL_TEXTS | TEXTS2 | TEXTS3)[plant](text, rng)
    made = {
        "prefix": f"ref {text}", "prefix_two": f"dear all {text}", "suffix": f"{text} thanks",
        "suffix_two": f"{text} sent mobile", "exclaim": f"{text} !!!",
        "markup": _insert(text, "<br />", 0.5), "link": f"{text} http://t.co/x",
        "word": _insert(text, "camera", float(rng.uniform(0.1, 0.9))),
        "phrase": _insert(text, "north station", float(rng.uniform(0.1, 0.9))),
    }  # fmt: skip
    return made[plant]
