"""The samples, pictures and charts that a report shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from spurless.auditing.case import Case
from spurless.auditing.gallery import (
    draw,
    galleries,
    highlight,
    histogram,
    map2d,
    suspicious_rows,
    with_pictures,
    with_texts,
)
from spurless.auditing.table_rows import column_texts
from spurless.auditing.text_words import of_errors
from spurless.auditing.verdict import Shortcut
from spurless.metrics.groups import confusion

# Kinds of shortcut that are in the whole image: a map of where the model looked would only hide their colours.
WHOLE = ("light", "detail", "file")


def suspicion(case: Case, shortcut: Shortcut | None) -> Tensor:
    """(n,) 1 − the probability of each row's label; samples that follow the shortcut count for half."""
    score = 1 - case.logits.softmax(1).gather(1, case.held.y[:, None])[:, 0]
    return score if shortcut is None else torch.where(shortcut.follows, score / 2, score)


def exhibits(
    case: Case, shortcut: Shortcut | None, slices: list[dict[str, Any]], folder: Path | None, hurry: bool = False
) -> dict[str, Any]:
    """The samples, galleries, slices and charts; with pictures where there is a folder for them.

    In a `hurry` there is no map of all samples."""
    score = suspicion(case, shortcut)
    conflicting = ~case.right if shortcut is None else ~shortcut.follows
    names = ("aligned", "conflicting") if shortcut else ("right", "wrong")
    everything = torch.ones(len(score), dtype=torch.bool)
    kinds = {"aligned": ~conflicting, "conflicting": conflicting} if shortcut else {"all": everything}
    shown = _Shown(
        suspicious_rows(case, shortcut and shortcut.says, score), galleries(case, conflicting, score), slices
    )
    if folder is not None:
        shown.draw(case, folder, maps=shortcut is None or shortcut.kind not in WHOLE)
        if not case.images:
            shown.highlight(case, score)
    return {
        "kinds": list(names),
        "rows": shown.rows,
        "gallery": shown.gallery,
        "slices": [{k: v for k, v in s.items() if k != "rows"} for s in shown.slices],
        **({"words": of_errors(case)} if case.texts else {}),
        "histogram": histogram(score, conflicting),
        "confusion": confusion(case.held.y, case.predicted, case.data.classes, kinds),
        "map2d": map2d(case, conflicting.long(), names, most=800) if folder is not None and not hurry else None,
    }


@dataclass
class _Shown:
    """The samples that are shown, to which pictures or words are added."""

    rows: list[dict[str, Any]]
    gallery: list[dict[str, Any]]
    slices: list[dict[str, Any]]

    @property
    def wanted(self) -> list[int]:
        of_gallery = [i["row"] for g in self.gallery for k in ("aligned", "conflicting") for i in g[k]]
        return [r["row"] for r in self.rows] + of_gallery

    def each(self, add: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
        """Add something to all items of samples and gallery."""
        self.rows = add(self.rows)
        self.gallery = [g | {k: add(g[k]) for k in ("aligned", "conflicting")} for g in self.gallery]

    def draw(self, case: Case, folder: Path, maps: bool) -> None:
        drawn = draw(case, self.wanted + [r for s in self.slices for r in s["rows"][:6]], folder, maps=maps)
        self.each(lambda items: with_pictures(items, drawn))
        pictures = [[drawn[r][0] for r in s["rows"][:6] if r in drawn] for s in self.slices]
        self.slices = [s | {"pictures": own} for s, own in zip(self.slices, pictures, strict=True)]

    def highlight(self, case: Case, score: Tensor) -> None:
        worst = [_worst(s["rows"], score) for s in self.slices]
        tell = highlight if case.texts else column_texts
        texts = tell(case, self.wanted + [r for rows in worst for r in rows])
        if not texts:
            return
        self.each(lambda items: with_texts(items, texts))
        self.slices = [s | {"texts": [texts[r] for r in rows]} for s, rows in zip(self.slices, worst, strict=True)]


def _worst(rows: list[int], score: Tensor, most: int = 2) -> list[int]:
    """The samples of a slice that are shown: those with the highest scores."""
    return sorted(rows, key=lambda r: (-float(score[r]), r))[:most]
