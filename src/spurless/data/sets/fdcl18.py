"""FDCL18: abusive, spam, normal and hateful tweets; the dialect of their author as the bias."""

from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from spurless.core.data import Bundle
from spurless.core.errors import UserError
from spurless.data.ingest.texts import Length, Part, Tokenizer, folder_of, lines, to_bundle

CLASSES = ("abusive", "spam", "normal", "hateful")
DIALECTS = ("other", "AAE", "hispanic", "white")
FILES = {"train": "train.tsv", "val": "valid.tsv", "test": "test.tsv"}


def load(
    root: Path | None = None,
    partition: Annotated[
        Literal["clean", "imperfect"], "training groups: label and dialect (16), or the dialect alone (4)"
    ] = "clean",
    length: Length = 96,
    tokenizer: Tokenizer = "minilm",
) -> Bundle:
    """About 100,000 tweets; those in African American English are labelled as abusive more often.

    - Input: text. Label: abusive, spam, normal or hateful. Bias: the dialect as Blodgett's model guesses it: other,
      African American English, Hispanic, white.
    - Splits: those of the files, train.tsv, valid.tsv and test.tsv, in GC-DRO's layout: columns divided by tabs, the
      label first, the dialect second (numbers or words), the text last; a header is not needed.
    - data.partition: with imperfect, a method takes the dialect for its groups without the label; scores are by label
      and dialect all the same. GC-DRO joins test groups of up to 100 tweets; here each stays a group of its own, and
      its interval says how little it tells.
    - Citation: Founta et al. 2018; Blodgett et al. 2016 (dialects); Zhou et al. 2021 (groups). Licence: on request.
    """
    folder = folder_of("fdcl18", tuple(FILES.values()), root, below=("FDCL18", "text/FDCL18"))
    parts = {}
    for name, file in FILES.items():
        texts, y, dialect = _read(folder, file)
        names = [f"{file} row {i + 1}" for i in range(len(texts))]
        parts[name] = Part(texts, y, dialect[:, None], names=names)
    return to_bundle(
        "fdcl18" if partition == "clean" else "fdcl18 imperfect",
        parts,
        tokenizer,
        length,
        CLASSES,
        ("dialect", DIALECTS),
        groups_ignore_class=partition == "imperfect",
    )


def _read(folder: Path, file: str) -> tuple[list[str], np.ndarray, np.ndarray]:
    texts, y, dialect, wrong = [], [], [], []
    for number, line in enumerate(lines(folder, file), start=1):
        cells = line.rstrip("\r").split("\t")
        if not line.strip() or (number == 1 and cells[0].strip().lower() in ("label", "class")):
            continue
        label, of = (_code(cells[0], CLASSES), _code(cells[1], DIALECTS)) if len(cells) > 2 else (None, None)
        if label is None or of is None:
            wrong.append(number)
        else:
            y.append(label)
            dialect.append(of)
            texts.append(cells[-1])
    if wrong:
        more = f" and {len(wrong) - 1:,} more" if len(wrong) > 1 else ""
        raise UserError(
            f"{folder / file}: line {wrong[0]}{more} does not begin with a label ({', '.join(CLASSES)}, or 0 to 3) and "
            f"a dialect ({', '.join(DIALECTS)}, or 0 to 3), divided by tabs."
        )
    return texts, np.array(y, np.int64), np.array(dialect, np.int64)


def _code(cell: str, names: tuple[str, ...]) -> int | None:
    """The place of a name, or the number as it is; None for anything else.

    >>> _code("AAE", DIALECTS), _code("3", DIALECTS), _code("4", DIALECTS)
    (1, 3, None)
    """
    code_of = {name.lower(): i for i, name in enumerate(names)} | {str(i): i for i in range(len(names))}
    return code_of.get(cell.strip().lower())
