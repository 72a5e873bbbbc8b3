"""Davidson's tweets: hate speech, offensive language, or neither; words about identity as the bias."""

from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np

from spurless.core.data import Bundle
from spurless.core.settings import Range
from spurless.data.ingest import table as tables
from spurless.data.ingest import texts
from spurless.data.ingest.splits import SPLITS, check_fractions, stratified

CLASSES = ("hate", "offensive", "neither")
TOXIC = ("not toxic", "toxic")
Fractions = Annotated[tuple[float, ...], "shares of train, val, test", Range(0, 1)]
Words = Annotated[tuple[str, ...], "the cue: whole words, any of which a tweet may hold; none: 50 words about identity"]
PUBLISHED = 24_783


def load(
    root: Path | None = None,
    target: Annotated[Literal["class", "toxic"], "the three classes, or hate and offensive as one"] = "class",
    words: Words = (),
    fractions: Fractions = (0.6, 0.2, 0.2),
    length: texts.Length = 64,
    tokenizer: texts.Tokenizer = "minilm",
    seed: Annotated[int, "of the split", Range(0)] = 0,
) -> Bundle:
    """24,783 tweets that were found by words of a hate-speech lexicon and labelled by at least three people each.

    - Input: text, as it stands (with names, links and HTML entities). Label: hate (1,430), offensive (19,190) or
      neither (4,163), what most people said. Bias: whether one of the 50 words about identity of the set madlibs
      occurs (gay, black, muslim, ...): 17 % of the tweets with one are hateful, and 5 % of the others. Any other words
      can be the cue (data.words).
    - Splits: none are published; drawn with a seed, stratified by class and cue.
    - Citation: Davidson et al. 2017. Licence: MIT (the repository). The texts are offensive.
    """
    rows = tweets(root, target, words, fractions, seed)
    return texts.to_bundle(
        "davidson_tweets",
        rows.parts,
        tokenizer,
        length,
        rows.classes,
        ("identity" if not words else "cue", ("no", "yes")),
        notes=tuple(rows.notes),
    )


class Tweets(NamedTuple):
    """The parts, their classes, and what a result must say."""

    parts: dict[str, texts.Part]
    classes: tuple[str, ...]
    notes: list[str]


def tweets(
    root: Path | None, target: str, words: tuple[str, ...], fractions: tuple[float, ...], seed: int, terms: bool = False
) -> Tweets:
    """The tweets in three parts; with `terms`, also which of the 50 words about identity each of them holds."""
    check_fractions(fractions)
    folder = texts.folder_of("davidson_tweets", ("labeled_data.csv",), root)
    frame = texts.read(folder, "labeled_data.csv")
    texts.has_columns(frame, ("class", "tweet"), "labeled_data.csv")
    written = frame["tweet"].astype(str).tolist()
    kinds = texts.places(frame, "class", ("0", "1", "2"), folder / "labeled_data.csv")  # hate, offensive, neither
    y, classes = (kinds, CLASSES) if target == "class" else ((kinds < 2).astype(np.int64), TOXIC)
    cues = texts.mentions(written, words or texts.IDENTITY_TERMS)  # (n, m)
    a = np.asarray(cues.any(1), np.int64)[:, None]
    split = stratified(np.concatenate([y[:, None], a], axis=1), fractions, seed)
    parts = {}
    for name in SPLITS:
        rows = np.flatnonzero(split == name)
        parts[name] = texts.Part(
            [written[i] for i in rows],
            y[rows],
            a[rows],
            names=[f"row {i}" for i in rows],
            member=cues[rows] if terms else None,
        )
    notes = tables.expect_rows("labeled_data.csv", len(frame), PUBLISHED)
    return Tweets(parts, classes, [*notes, f"split drawn with seed {seed}, stratified by class and cue"])
