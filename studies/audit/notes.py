"""What the audit only notes: samples that stand, nearly the same, in two splits, and rows in order of their labels."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from spurless import Bundle
from spurless.data.arrays import from_texts
from spurless.data.ingest import table as tables
from spurless.data.ingest.labels import Field
from studies.audit.bases import Rng, table_base, tweets
from studies.audit.kinds import Kind

NOTES = {"doubles": "nearly the same", "sorted": "order of the rows"}
NOTE_SHARES = (0.1, 0.3, 1.0)  # of the test samples that are doubles, of the rows that are sorted


def noted(kind: Kind, share: float, seed: int) -> dict[str, Any]:
    """Whether the notes say what was done to the data, and nothing else."""
    from spurless import audit

    rng = np.random.default_rng([len(kind.name), kind.n, seed, int(1000 * share)])
    data = made(kind, share, rng)
    started = time.monotonic()
    told = audit(data, quick=True, progress=False, device="cpu", seed=seed).data["notes"]
    seconds = time.monotonic() - started
    said = sorted(name for name, words in NOTES.items() if any(words in note for note in told))
    return {
        "kind": kind.name, "half": kind.half, "domain": kind.domain, "clean": kind.clean, "n": kind.n, "seed": seed,
        "strength": None if kind.clean else share, "noted": said, "seconds": round(seconds, 1),
    }  # fmt: skip


def made(kind: Kind, share: float, rng: Rng) -> Bundle:
    """Seven tenths of the samples for training, the others to test; some of these are training samples, changed in
    one word or one number, or the rows stand in order of their labels."""
    doubles = share if kind.plant == "doubles" else 0.0
    first = 7 * kind.n // 10
    if kind.domain == "text":
        texts, y = tweets()
        rows = rng.permutation(len(y))[: kind.n]
        chosen = [" ".join(texts[i].split()[:70]) for i in rows]
        labels = y[rows].copy()
        for i in range(first, first + round(doubles * (kind.n - first))):
            source = int(rng.integers(first))
            words = chosen[source].split()
            words[int(rng.integers(len(words)))] = "really"
            chosen[i], labels[i] = " ".join(words), labels[source]
        return from_texts(chosen[:first], labels[:first], val=0, test=(chosen[first:], labels[first:]), name=kind.name)
    whole, y = table_base(kind.base)
    rows = rng.permutation(len(whole))[: kind.n]
    frame, labels = whole.iloc[rows].reset_index(drop=True).copy(), y[rows].copy()
    numbers = [c for c in frame.columns if frame[c].dtype.kind in "if" and frame[c].nunique() > 20]
    for i in range(first, first + round(doubles * (kind.n - first))):
        source, column = int(rng.integers(first)), frame.columns.get_loc(str(rng.choice(numbers)))
        frame.iloc[i], labels[i] = frame.iloc[source], labels[source]
        frame.iloc[i, column] = frame.iloc[int(rng.integers(first)), column]
    if kind.plant == "sorted":
        at = np.sort(rng.permutation(kind.n)[: round(share * kind.n)])
        order = np.arange(kind.n)
        order[at] = at[np.argsort(labels[at], kind="stable")]
        frame, labels = frame.iloc[order].reset_index(drop=True), labels[order]
    label = Field("label", np.where(labels == 1, "one", "zero").astype(object), ())
    test = (np.arange(kind.n) >= first) & (kind.plant != "sorted")
    return tables.to_bundle(kind.name, tables.Samples(frame, label, [], np.where(test, "test", "train").astype(object)))
