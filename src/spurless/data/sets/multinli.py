"""MultiNLI: does one sentence follow from another? Words of negation as the bias."""

import json
import string
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from spurless.core.data import Bundle, Overlap
from spurless.core.errors import UserError
from spurless.core.seeds import derive
from spurless.core.settings import Range
from spurless.data.ingest.splits import SPLITS
from spurless.data.ingest.texts import Length, Part, Tokenizer, folder_of, has_columns, lines, places, read, to_bundle

CLASSES = ("contradiction", "entailment", "neutral")
FILES = tuple(f"multinli_1.0_{part}.jsonl" for part in ("train", "dev_matched", "dev_mismatched"))
META = "metadata_random.csv"
BELOW = ("text/multinli_1.0", "multinli/data", "multinli_1.0")
PUBLISHED = {"train": 206_175, "val": 82_462, "test": 123_712}
BASES = ("none", "no, never", "nobody, nothing")
# GC-DRO: the clean group 3 * base + label, and the domain of the imperfect partition that it is in.
DOMAIN = np.array([2, 2, 2, 0, 1, 1, 1, 0, 0])


def load(
    root: Path | None = None,
    partition: Annotated[
        Literal["negation", "clean", "imperfect"],
        "groups: label and negation (6); label and kind of negation (9); GC-DRO's three training domains",
    ] = "negation",
    length: Length = 128,
    tokenizer: Tokenizer = "minilm",
    seed: Annotated[int, "of the split, where metadata_random.csv is not there", Range(0)] = 0,
) -> Bundle:
    """412,349 pairs of sentences; the second one of a contradiction often holds a word of negation.

    - Input: two sentences. Label: contradiction, entailment or neutral. Bias: whether the second sentence holds one of
      nobody, no, never and nothing (punctuation taken away, lower case, cut at spaces).
    - Splits: GroupDRO's, from metadata_random.csv: 206,175, 82,462 and 123,712; training groups by label, without and
      with negation: 57,498 11,158, 67,376 1,521, 66,630 1,992. Without that file half, a fifth and the rest of all
      labelled pairs are drawn with the seed, and a note says so.
    - data.partition: clean is GC-DRO's nine groups, by label and kind of negation (none; no, never; nobody, nothing,
      which goes before the other). With imperfect, a method sees three domains that mix the nine, and takes them for
      its groups without the label; scores are those of the nine clean groups all the same.
    - Citation: Williams, Nangia and Bowman 2018; Sagawa et al. 2020 (negation, splits); Zhou et al. 2021 (partitions).
      Licence: OANC and others.
    """
    folder = folder_of("multinli", FILES, root, below=BELOW)
    first, second, y = _pairs(folder)
    split, notes = _split(folder, second, y, seed)
    base = np.array([kind_of_negation(text) for text in second])
    parts = {}
    for name in SPLITS:
        rows = np.flatnonzero(split == name)
        kind = {"negation": base > 0, "clean": base, "imperfect": DOMAIN[3 * base + y]}[partition][rows]
        parts[name] = Part(
            [first[i] for i in rows],
            y[rows],
            np.asarray(kind, np.int64)[:, None],
            second=[second[i] for i in rows],
            names=[f"pair {i}" for i in rows],
            member=base[rows][:, None] == np.arange(3) if partition == "imperfect" else None,
        )
        if len(rows) != PUBLISHED[name]:
            notes.append(f"{name} holds {len(rows):,} pairs; {PUBLISHED[name]:,} are published")
    values = {"negation": ("no", "yes"), "clean": BASES, "imperfect": ("domain 0", "domain 1", "domain 2")}[partition]
    return to_bundle(
        "multinli" if partition == "negation" else f"multinli {partition}",
        parts,
        tokenizer,
        length,
        CLASSES,
        ("domain" if partition == "imperfect" else "negation", values),
        overlap=Overlap("negation", BASES) if partition == "imperfect" else None,
        groups_ignore_class=partition == "imperfect",
        notes=tuple(notes),
    )


def kind_of_negation(text: str) -> int:
    """0 for none, 1 for no or never, 2 for nobody or nothing.

    >>> [kind_of_negation(t) for t in ("It is nowhere.", "No, never!", "Nobody said no.")]
    [0, 1, 2]
    """
    words = set(text.translate(_WITHOUT_PUNCTUATION).lower().split(" "))
    return 2 if words & {"nobody", "nothing"} else 1 if words & {"no", "never"} else 0


_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def _pairs(folder: Path) -> tuple[list[str], list[str], np.ndarray]:
    """All pairs in the order of the files; the label of those that have none is -1."""
    first, second, y = [], [], []
    for name in FILES:
        for number, line in enumerate(lines(folder, name), start=1):
            try:
                row = json.loads(line)
                first.append(row["sentence1"])
                second.append(row["sentence2"])
                label = row["gold_label"]
                y.append(-1 if label == "-" else CLASSES.index(label))
            except (ValueError, KeyError, TypeError):
                raise UserError(f"{folder / name}, line {number}: this is no row of MultiNLI; get it again.") from None
    return first, second, np.array(y)


def _split(folder: Path, second: list[str], y: np.ndarray, seed: int) -> tuple[np.ndarray, list[str]]:
    """(n,) of train, val and test, and None for pairs without a label."""
    split = np.full(len(y), None, dtype=object)
    meta = next((f for f in (folder / META, folder.parent / "multinli" / META) if f.is_file()), None)
    if meta is None:
        rows = np.random.default_rng(derive(seed, "multinli")).permutation(np.flatnonzero(y >= 0))
        val, test = int(0.2 * len(rows)), int(0.3 * len(rows))
        split[rows[:test]], split[rows[test : test + val]], split[rows[test + val :]] = "test", "val", "train"
        return split, [f"{META} of GroupDRO is not there: split drawn with seed {seed}, 50/20/30"]
    frame = read(meta.parent, meta.name, index_col=0)
    has_columns(frame, ("gold_label", "sentence2_has_negation", "split"), META)
    rows = frame.index.to_numpy()
    if not (rows.dtype.kind in "iu" and frame.index.is_unique and rows.min() >= 0 and rows.max() < len(y)):
        raise UserError(
            f"{meta}: the first column must hold numbers of pairs, 0 to {len(y) - 1:,}, each once; get it again."
        )
    label = places(frame, "gold_label", [str(c) for c in range(len(CLASSES))], meta)
    split_codes = places(frame, "split", [str(s) for s in range(len(SPLITS))], meta)
    negated = np.array([kind_of_negation(second[i]) > 0 for i in rows])
    off = np.flatnonzero((label != y[rows]) | (frame["sentence2_has_negation"].to_numpy() != negated))
    if len(off):
        raise UserError(
            f"{meta} does not belong to these sentences: in row {off[0] + 1} below the header, label or negation are "
            f"not those of pair {rows[off[0]]}. Get both again, or take it away for a split by data.seed."
        )
    split[rows] = np.array(SPLITS, dtype=object)[split_codes]
    return split, []
