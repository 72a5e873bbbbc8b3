"""CAD, IMDb: film reviews and the same reviews rewritten to mean the opposite."""

from pathlib import Path
from typing import Annotated

import numpy as np
import torch

from spurless.core.data import Bundle
from spurless.core.errors import UserError
from spurless.core.seeds import derive
from spurless.core.settings import Range
from spurless.data.ingest import texts

CLASSES = ("negative", "positive")
FILES = {"train": "train_paired.tsv", "val": "dev_paired.tsv", "test": "test_paired.tsv"}


def load(
    root: Path | None = None,
    rho: Annotated[float, "share of rewritten reviews in training; 0.5: all of them", Range(0, 0.5)] = 0.05,
    length: texts.Length = 256,
    tokenizer: texts.Tokenizer = "minilm",
    seed: Annotated[int, "which rewritten reviews are trained on", Range(0)] = 0,
) -> Bundle:
    """Counterfactually augmented IMDb reviews: what changes the label was changed, all else stayed.

    - Input: text. Label: negative or positive. Bias: the context, that is the label of the review before it was
      rewritten. Words that go with a label without being its cause stay when a review is rewritten, so in a rewritten
      review they speak for the other label, and a model that uses them is wrong there.
    - Splits: as distributed, 1,707, 245 and 488 pairs. Train holds every original and as many rewritten ones as make
      the share rho; val and test hold all pairs, so each group is a quarter of them.
    - Open: the files do not mark which of a pair is the original. It is the first: all 2,440 first texts begin as a
      review of IMDb's training set begins (of the second, 38 %: rewriting often starts later in the text).
    - Citation: Kaushik, Hovy and Lipton 2020. Licence: Apache 2.0 (the repository).
    """
    folder = texts.folder_of("cad_imdb", tuple(FILES.values()), root)
    parts = {}
    for name, file in FILES.items():
        frame = texts.read(folder, file, sep="\t")
        texts.has_columns(frame, ("Sentiment", "Text", "batch_id"), file)
        pair = frame["batch_id"].to_numpy()
        if len(pair) % 2 or (pair[::2] != pair[1::2]).any():
            raise UserError(f"{folder / file}: every two rows must be a pair, with the same batch_id; get it again.")
        y = texts.places(frame, "Sentiment", ("Negative", "Positive"), folder / file)
        context = np.repeat(y[::2], 2)
        if (y[::2] == y[1::2]).any():
            raise UserError(f"{folder / file}: the two texts of a pair must have different labels; get it again.")
        keep = texts.with_share(y != context, rho, derive(seed, "cad_imdb")) if name == "train" else np.arange(len(y))
        reviews = frame["Text"].tolist()
        names = [f"{file} line {i + 2}" for i in keep]
        parts[name] = texts.Part([reviews[i] for i in keep], y[keep], context[keep][:, None], names=names)
    return texts.to_bundle(
        "cad_imdb", parts, tokenizer, length, CLASSES, ("context", CLASSES), aligned=(torch.eye(2, dtype=torch.bool),)
    )
