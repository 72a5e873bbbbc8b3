"""One audit of the zoo, one draw of Waterbirds, or one repair, as a row of results."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from studies.audit.kinds import Kind

RANK = ("found", "gap", "available", "cannot tell", "no evidence")
Row = dict[str, Any]


def zoo(kind: Kind, strength: float, seed: int) -> Row:
    """Judged twice: with what was planted as an attribute, and by the other findings alone."""
    from spurless import audit
    from studies.audit.make import make

    with tempfile.TemporaryDirectory() as folder:
        data = make(kind, strength, seed, True, Path(folder) / "zoo")
        started = time.monotonic()
        found = audit(data, progress=False, device="cpu", seed=seed)
        seconds = time.monotonic() - started
    cues = [f for f in found.findings if f["kind"] != "attribute"]
    without = next((v for v in RANK if v in {f["verdict"] for f in cues}), "no evidence")
    names = [(found.shortcut or {"name": None})["name"], cues[0]["name"] if cues else None]
    known = next((e for e in found.attributes if e["name"] == "planted"), None)
    gap = known["gap"] if known else None
    return {
        "kind": kind.name, "half": kind.half, "domain": kind.domain, "clean": kind.clean,
        "n": sum(len(split) for split in data.splits.values()),
        "strength": None if kind.clean else strength, "seed": seed, "verdict": found.verdict, "name": names[0],
        "without_attributes": without, "name_without": names[1],
        "named_right": bool(names[1]) and any(str(names[1]).startswith(name) for name in kind.names),
        # Whether what was planted misleads this model at all: by the planted values, which the audit's cues never see.
        "harmful": None if gap is None or known is None else bool(gap["value"] >= 10 and known["p"] < 0.005),
        "gap": None if gap is None else round(gap["value"], 1),
        "accuracy": round(found.model["average"]["value"], 1) if found.model else None, "seconds": round(seconds, 1),
    }  # fmt: skip


def waterbirds(biased: bool, seed: int, n: int = 1200) -> Row:
    """Photographs of Waterbirds without attributes: of its training split (95 %), or as many of each group."""
    from spurless import Bundle, audit
    from spurless.core.data import Images, Split
    from studies.audit.bases import all_birds

    x, y, place, train = all_birds()
    rng = np.random.default_rng([seed, int(biased)])
    if biased:
        rows = rng.permutation(train)[:n]
    else:
        groups = [np.flatnonzero(((y == c) & (place == v)).numpy()) for c in (0, 1) for v in (0, 1)]
        rows = rng.permutation(np.concatenate([rng.choice(group, n // 4, False) for group in groups]))
    drawn = torch.from_numpy(rows)
    # Their own mean and spread of ImageNet, as the loader gives them.
    data = Bundle(
        "birds", Split(x[drawn], y[drawn]), inputs=Images((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), net="conv3"
    )
    started = time.monotonic()
    found = audit(data, progress=False, device="cpu", seed=seed)
    seconds = time.monotonic() - started
    conflicting = y[drawn] != place[drawn]
    return {
        "kind": "waterbirds, 95 %" if biased else "waterbirds, balanced", "half": "waterbirds", "domain": "photo",
        "clean": not biased, "n": n, "strength": None, "seed": seed, "verdict": found.verdict,
        "name": (found.shortcut or {"name": None})["name"], "conflicting": int(conflicting.sum()),
        "accuracy": round(found.model["average"]["value"], 1) if found.model else None, "seconds": round(seconds, 1),
    }  # fmt: skip


def repair(kind: Kind, strength: float, seed: int) -> Row:
    """A planted case, repaired, and judged on fresh data of the same base in which nothing agrees with anything."""
    from spurless import audit
    from spurless.auditing.retry import repairs
    from studies.audit.make import make_apart

    with tempfile.TemporaryDirectory() as folder:
        data, fresh, points_to = make_apart(kind, strength, seed, Path(folder))
        started = time.monotonic()
        report = audit(data, progress=False, device="cpu", seed=seed)
        fixed = repairs(data, report, device="cpu")
        seconds = time.monotonic() - started
        row: Row = {
            "kind": kind.name, "half": "repairs", "domain": kind.domain, "clean": False, "n": len(data.train),
            "strength": strength, "seed": seed, "verdict": report.verdict,
            "name": (report.shortcut or {"name": None})["name"], "seconds": round(seconds, 1),
            "chosen": None if fixed.chosen is None else fixed.chosen.method,
        }  # fmt: skip
        if fixed.case is None:
            return row
        x = fresh[torch.arange(len(fresh))]
        conflicting = fresh.y != points_to
        for when, answers in (("before", fixed.tried[0].answers(fixed.case, x)), ("after", fixed.answers(x))):
            right = answers == fresh.y
            for where, rows in (("aligned", ~conflicting), ("conflicting", conflicting)):
                row[f"{when}_{where}"] = [int(right[rows].sum()), int(rows.sum())]
        mended = fixed.answers(x) == fresh.y
        first = fixed.tried[0].answers(fixed.case, x) == fresh.y
        row["mended"], row["broken"] = int((mended & ~first).sum()), int((first & ~mended).sum())
    return row


def harm(kind: Kind, strength: float, seed: int) -> Row:
    """How right the plain model is on fresh balanced data; nothing is audited or repaired."""
    from spurless.auditing.model import plain_case
    from studies.audit.make import make_apart

    with tempfile.TemporaryDirectory() as folder:
        data, fresh, points_to = make_apart(kind, strength, seed, Path(folder))
        case, _ = plain_case(data, seed, torch.device("cpu"))
        right = case.answers(fresh[torch.arange(len(fresh))]) == fresh.y
    aligned = fresh.y == points_to
    return {
        "kind": kind.name, "half": "harm", "domain": kind.domain, "clean": False, "n": len(data.train),
        "strength": strength, "seed": seed, "verdict": "not asked", "name": None,
        "aligned": [int(right[aligned].sum()), int(aligned.sum())],
        "conflicting": [int(right[~aligned].sum()), int((~aligned).sum())],
    }  # fmt: skip
