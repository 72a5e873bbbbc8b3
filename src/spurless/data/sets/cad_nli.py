"""CAD, NLI: pairs of sentences from SNLI, and the same pairs rewritten so that another label is right."""

from pathlib import Path
from typing import Annotated

import numpy as np
import torch

from spurless.core.data import Bundle
from spurless.core.errors import UserError
from spurless.core.seeds import derive
from spurless.core.settings import Range
from spurless.data.ingest.texts import Length, Part, Tokenizer, folder_of, has_columns, read, to_bundle, with_share

CLASSES = ("contradiction", "entailment", "neutral")
PARTS = {"train": "train", "val": "dev", "test": "test"}


def load(
    root: Path | None = None,
    rho: Annotated[float, "share of rewritten pairs in training; 0.8: all of them", Range(0, 0.8)] = 0.05,
    length: Length = 96,
    tokenizer: Tokenizer = "minilm",
    seed: Annotated[int, "which rewritten pairs are trained on", Range(0)] = 0,
) -> Bundle:
    """Counterfactually augmented SNLI: premise or hypothesis was changed as little as another label takes.

    - Input: two sentences. Label: contradiction, entailment or neutral. Bias: the context, that is the label of the
      pair before it was rewritten. What goes with a label without being its cause stays when a pair is rewritten.
    - Splits: as distributed, 1,666, 200 and 400 pairs, each rewritten four times (either sentence, to either of the
      other labels). Train holds every original and as many rewritten ones as make the share rho; val and test hold all.
    - Open: which rows belong together follows from the order of the files, and is checked: in train and dev every five
      rows hold the original of the same number, in test four rewritten ones of each come first and then the originals.
    - Citation: Kaushik, Hovy and Lipton 2020; Bowman et al. 2015 (SNLI). Licence: Apache 2.0 (the repository); SNLI is
      under CC BY-SA 4.0.
    """
    files = [f"{kind}_{split}.tsv" for kind in ("original", "all_combined") for split in PARTS.values()]
    folder = folder_of("cad_nli", files, root)
    parts = {}
    for name, split in PARTS.items():
        original, rows = (_rows(folder, f"{kind}_{split}.tsv") for kind in ("original", "all_combined"))
        of = _originals(original, rows, f"all_combined_{split}.tsv")  # (n,)
        y = np.array([CLASSES.index(row[2]) for row in rows])
        context = np.array([CLASSES.index(original[i][2]) for i in of])
        keep = np.arange(len(y))
        if name == "train":
            keep = with_share(y != context, rho, derive(seed, "cad_nli"))
        parts[name] = Part(
            [rows[i][0] for i in keep],
            y[keep],
            context[keep][:, None],
            second=[rows[i][1] for i in keep],
            names=[f"all_combined_{split}.tsv line {i + 2}" for i in keep],
        )
    return to_bundle(
        "cad_nli", parts, tokenizer, length, CLASSES, ("context", CLASSES), aligned=(torch.eye(3, dtype=torch.bool),)
    )


def _rows(folder: Path, file: str) -> list[list[str]]:
    frame = read(folder, file, sep="\t", keep_default_na=False)
    has_columns(frame, ("sentence1", "sentence2", "gold_label"), file)
    rows: list[list[str]] = frame[["sentence1", "sentence2", "gold_label"]].to_numpy(dtype=object).tolist()
    odd = [row[2] for row in rows if row[2] not in CLASSES]
    if odd:
        raise UserError(f"{folder / file}: '{odd[0]}' is no label; they are {', '.join(CLASSES)}.")
    return rows


def _originals(original: list[list[str]], rows: list[list[str]], file: str) -> np.ndarray:
    """(n,) The number of the original that each row was made from, or is."""
    n = len(original)
    at_the_end = rows[-n:] == original
    each = 4 if at_the_end else 5
    if len(rows) != 5 * n:
        raise UserError(f"{file} has {len(rows):,} rows; five for each of the {n:,} originals are expected.")
    of = np.concatenate([np.arange(each * n) // each, np.arange(n) if at_the_end else []]).astype(np.int64)
    for i, row in enumerate(original):
        block = rows[each * i : each * (i + 1)]
        if (not at_the_end and row not in block) or sum(other[2] == row[2] for other in block) != each - 4:
            raise UserError(f"{file}: rows {each * i + 2} to {each * (i + 1) + 1} do not belong to original {i + 2}.")
    return of
