"""Madlibs: short sentences about 50 identities, kind and unkind, to test a classifier that was trained on tweets."""

from pathlib import Path
from typing import Annotated

import numpy as np

from spurless.core.data import Bundle, Overlap
from spurless.core.settings import Range
from spurless.data.ingest import texts
from spurless.data.sets.davidson_tweets import tweets


def load(
    root: Path | None = None,
    n_test: Annotated[int, "test samples, drawn with the seed; 0: all 76,564", Range(0)] = 0,
    length: texts.Length = 64,
    tokenizer: texts.Tokenizer = "minilm",
    seed: Annotated[int, "of the split of the tweets, and of the test samples", Range(0)] = 0,
) -> Bundle:
    """Trained on real tweets, tested on templates: "Alex is a kind muslim" is not toxic.

    - Input: text. Label: toxic or not. Bias: whether a word about identity occurs.
    - Splits: train and val are those of davidson_tweets (target toxic); test is the set madlibs, 38,282 sentences of
      each label, in which every identity occurs as often in kind sentences as in unkind ones. Nothing is trained on it.
    - Groups: 50 identities, each with both labels: 100 cells, `worst_group` is the worst of them. A tweet can mention
      several identities, or none, so they overlap there.
    - Citation: Dixon et al. 2018 (the sentences), Davidson et al. 2017 (the tweets). Licence: Apache 2.0 and MIT (the
      repositories). The texts are offensive.
    """
    rows = tweets(root, "toxic", (), (0.8, 0.2, 0.0), seed, terms=True)
    folder = texts.folder_of("madlibs", ("bias_madlibs_77k.csv",), root, below=("text/madlibs_77k", "madlibs_77k"))
    frame = texts.read(folder, "bias_madlibs_77k.csv")
    texts.has_columns(frame, ("Text", "Label"), "bias_madlibs_77k.csv")
    keep = np.arange(len(frame))
    if n_test:
        keep = np.sort(np.random.default_rng(seed).permutation(keep)[:n_test])
    sentences = frame["Text"].iloc[keep].tolist()
    y = texts.places(frame, "Label", ("NOT_BAD", "BAD"), folder / "bias_madlibs_77k.csv")[keep]
    member = texts.mentions(sentences, texts.IDENTITY_TERMS)
    a = np.asarray(member.any(1), np.int64)[:, None]
    test = texts.Part(sentences, y, a, names=[f"line {i + 2}" for i in keep], member=member)
    return texts.to_bundle(
        "madlibs",
        {"train": rows.parts["train"], "val": rows.parts["val"], "test": test},
        tokenizer,
        length,
        rows.classes,
        ("identity", ("no", "yes")),
        overlap=Overlap("identity word", texts.IDENTITY_TERMS),
        notes=(*rows.notes, "trained on davidson_tweets, tested on madlibs"),
    )
