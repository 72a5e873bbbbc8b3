"""`--fix`: repairs of the last layer and of the input, chosen by out-of-fold answers where the shortcut misleads."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from spurless.auditing.case import Case
from spurless.auditing.evidence import more_than_half, share
from spurless.auditing.plain import fit_heads, folds_of
from spurless.auditing.suspects import Cue, Suspect, _edited, exchange_pairs, group_weights
from spurless.core.data import Split

BEFORE = "before"  # the audited model, as a row of the table
FEW = 10  # conflicting samples, below which exchanged inputs decide
LEVEL = 0.05  # the chance that any repair is chosen where none is better
RESAMPLES = 10  # balanced subsets that the heads of DFR are averaged over
STRENGTHS = (0.1, 1.0, 10.0)

# What takes each kind of cue out of the input, in a user's own pipeline.
REMOVE = {
    "mark": "paint over or crop away that part of every image",
    "part": "crop that part away from every image",
    "spot": "paint over the mark in every image",
    "margin": "crop the margin of every image",
    "light": "give all images the same brightness, contrast and colour balance",
    "detail": "bring all images to one sharpness and noise level: resize and encode them again in one way",
    "place": "centre and scale all objects in the same way",
    "background": "cut the objects out, or mix the backgrounds in training",
    "text": "strip it from every text",
    "column": "drop the column",
    "file": "encode all files again in one format, size and quality",
}


@dataclass(frozen=True)
class Tried:
    """A repair, and where it is right: of all samples, and of those whose cue was exchanged."""

    method: str
    words: str
    right: Tensor  # (n,)
    kept: Tensor | None  # (pairs,) whether the answer stays right with the cue of another class

    def row(self, follows: Tensor) -> dict[str, Any]:
        return {
            "method": self.method,
            "words": self.words,
            "aligned": share(self.right[follows].numpy()),
            "conflicting": share(self.right[~follows].numpy()),
            "average": share(self.right.numpy()),
            "exchanged": None if self.kept is None else share(self.kept.numpy()),
        }


def repair(case: Case, leading: Suspect | None, cue: Cue | None, out: Path | None) -> dict[str, Any]:
    """Try the repairs that fit the finding, and choose one by samples that none of its heads has seen.

    With ten or more conflicting samples, their out-of-fold accuracy decides. With fewer, exchanged inputs do: a sample
    with the cue of another class must keep its answer.
    """
    if leading is None or leading.verdict not in ("found", "gap", "available"):
        return {"rule": "", "chosen": None, "text": ["Nothing was found that a repair could be judged by."], "rows": []}
    fixer = _Fixer(case, leading, cue)
    tried = [fixer.before(), *fixer.heads()]
    if cue is not None and cue.swap is not None:
        tried.append(fixer.without())
    few = int((~fixer.follows).sum()) < FEW
    by_exchange = few and tried[0].kept is not None
    chosen = _choose(tried, fixer.follows, by_exchange)
    rule = (
        f"the most samples that keep their answer with the cue of another class ({len(fixer.of):,} exchanged ones; "
        f"only {int((~fixer.follows).sum())} samples are conflicting)"
        if by_exchange
        else f"the highest mean of the accuracies where it helps and where it misleads "
        f"({int((~fixer.follows).sum()):,} conflicting samples)"
    )
    rule += f", all out of fold, if that is better than before by more than chance (level {LEVEL:.0%} for all together)"
    return {
        "rule": rule,
        "chosen": None if chosen is None else chosen.method,
        "text": _text(tried, chosen, leading, fixer.follows, by_exchange),
        "rows": [each.row(fixer.follows) for each in tried],
        "groups": None if out is None else _write_groups(case, leading, out),
    }


class _Fixer:
    """The samples, features and folds that all repairs share."""

    def __init__(self, case: Case, leading: Suspect, cue: Cue | None):
        self.case, self.leading, self.cue = case, leading, cue
        self.y, self.follows = case.held.y, leading.follows
        self.fold = case.fold if case.fold is not None else folds_of(self.y, case.seed)
        self.learn = (self.fold >= 0).nonzero()[:, 0]
        self.classes = len(case.data.classes)
        self.of, self.donor = torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.long)
        self.edited: Tensor | None = None
        if cue is not None and cue.swap is not None:
            typical = self.follows
            self.of, self.donor, _ = exchange_pairs(self.y, typical, typical, leading.extra.get("best"), case.seed)
            x = case.held[torch.arange(len(case.held))]
            if len(self.of) >= FEW:
                changed = _edited(x, self.of, self.donor, cue.swap, case.images)
                self.edited = case.outputs(Split(changed, torch.zeros(len(changed), dtype=torch.long)), features=True)

    def before(self) -> Tried:
        if self.case.heads is not None:
            kept = None if self.edited is None else self.case.heads.logits(self.edited, self.fold[self.of])
        else:
            with torch.no_grad():
                kept = None if self.edited is None else self.case.net.head.cpu()(self.edited)
        return Tried(BEFORE, "the audited model", self.case.right, self._kept(kept))

    def _kept(self, logits: Tensor | None) -> Tensor | None:
        return None if logits is None else logits.argmax(1) == self.y[self.of]

    def heads(self) -> list[Tried]:
        """Heads on the same features: with groups that weigh the same, and of balanced subsets (DFR)."""
        if int((~self.follows[self.learn]).sum()) < 4:
            return []
        weights = group_weights(self.y, self.follows)
        found = [
            self._head(f"balanced head, ridge {strength:g}", weights[self.learn], strength) for strength in STRENGTHS
        ]
        best = max(found, key=lambda each: _mean(each.right, self.follows))
        reweighted = Tried("balanced head", "the last layer, fitted with all groups weighing the same", *best_of(best))
        return [reweighted, self._dfr()]

    def _head(self, name: str, weights: Tensor, strength: float) -> Tried:
        features = self.case.features
        heads = fit_heads(
            features[self.learn], self.y[self.learn], self.classes, self.fold[self.learn], weights, strength
        )
        kept = None if self.edited is None else heads.logits(self.edited, self.fold[self.of])
        return Tried(name, "", heads.logits(features, self.fold).argmax(1) == self.y, self._kept(kept))

    def _dfr(self) -> Tried:
        """The mean of heads on subsets in which every group has as many samples as the smallest one."""
        logits, kept = torch.zeros(len(self.y), self.classes), torch.zeros(len(self.of), self.classes)
        generator = torch.Generator().manual_seed(self.case.seed)
        group = 2 * self.y[self.learn] + self.follows[self.learn].long()
        cells = [(group == g).nonzero()[:, 0] for g in group.unique()]
        least = max(4, min(len(cell) for cell in cells))
        for _ in range(RESAMPLES):
            drawn = torch.cat([cell[torch.randperm(len(cell), generator=generator)[:least]] for cell in cells])
            rows = self.learn[drawn]
            heads = fit_heads(self.case.features[rows], self.y[rows], self.classes, self.fold[rows], None, 1.0)
            logits += heads.logits(self.case.features, self.fold)
            if self.edited is not None:
                kept += heads.logits(self.edited, self.fold[self.of])
        words = f"the last layer, fitted on balanced subsets of {least} samples a group (DFR)"
        right = logits.argmax(1) == self.y
        return Tried("dfr", words, right, self._kept(None if self.edited is None else kept))

    def without(self) -> Tried:
        """All samples get the cue of one and the same sample, so that it says nothing, and the head is fitted again."""
        assert self.cue is not None and self.cue.swap is not None
        x = self.case.held[torch.arange(len(self.case.held))]
        every = torch.arange(len(x))
        donor = torch.full_like(every, self._neutral())
        same = _edited(x, every, donor, self.cue.swap, self.case.images)
        features = self.case.outputs(Split(same, torch.zeros(len(same), dtype=torch.long)), features=True)
        heads = fit_heads(features[self.learn], self.y[self.learn], self.classes, self.fold[self.learn])
        right = heads.logits(features, self.fold).argmax(1) == self.y
        kept = right[self.of] if self.edited is not None else None  # what was exchanged is taken out again
        how = REMOVE.get(self.leading.kind, "take it out of the input")
        return Tried("without the cue", f"the cue taken out of the input: {how}", right, kept)

    def _neutral(self) -> int:
        """A sample without what was put there: of the class that has it less often, one that is typical."""
        values = self.cue.values if self.cue is not None else None
        order = self.leading.asked
        if values is not None and len(values) >= len(order) and self.leading.kind == "text":
            few = values[-len(order) :].sum(1)
            return int(order[int(few.argmin())])
        typical = (self.follows[order]).nonzero()[:, 0]
        return int(order[typical[len(typical) // 2]])


def best_of(tried: Tried) -> tuple[Tensor, Tensor | None]:
    return tried.right, tried.kept


def _mean(right: Tensor, follows: Tensor) -> float:
    """The mean of the two accuracies, where the cue helps and where it misleads."""
    return sum(float(right[kind].float().mean()) for kind in (follows, ~follows) if bool(kind.any())) / 2


def _choose(tried: list[Tried], follows: Tensor, by_exchange: bool) -> Tried | None:
    """The best repair, if it mends clearly more than it breaks where that counts."""
    before, others = tried[0], tried[1:]
    if not others:
        return None

    def score(each: Tried) -> float:
        if by_exchange and each.kept is not None:
            return float(each.kept.float().mean()) + 0.5 * float(each.right[follows].float().mean())
        return _mean(each.right, follows)

    best = max(others, key=score)
    if score(best) <= score(before):
        return None
    if by_exchange and best.kept is not None and before.kept is not None:
        mended, broken = int((best.kept & ~before.kept).sum()), int((before.kept & ~best.kept).sum())
    else:
        rows = ~follows
        mended = int((best.right & ~before.right)[rows].sum())
        broken = int((before.right & ~best.right)[rows].sum())
    return best if more_than_half(mended, broken) < LEVEL / len(others) else None


def _text(tried: list[Tried], chosen: Tried | None, leading: Suspect, follows: Tensor, by_exchange: bool) -> list[str]:
    """What improved, what it cost, and how to get more conflicting samples."""
    few = int((~follows).sum())
    more = (
        f"More samples in which {leading.words} points to another class would help most: {few:,} of {len(follows):,} "
        "do. Look for them among the samples that are listed as conflicting, or make some by exchanging it."
    )
    if chosen is None:
        return [f"No repair of the last layer or of the input was clearly better out of fold. {more}"]
    old, new = tried[0].row(follows), chosen.row(follows)
    told = [f"{chosen.method}: {chosen.words}."]
    if new["conflicting"] and old["conflicting"]:
        told.append(
            f"Where {leading.words} misleads, {old['conflicting']['value']:.0f} % become "
            f"{new['conflicting']['value']:.0f} % (n = {few:,}); where it helps, {old['aligned']['value']:.0f} % "
            f"become {new['aligned']['value']:.0f} %."
        )
    if new["exchanged"] and old["exchanged"]:
        told.append(
            f"With the cue of another class, {old['exchanged']['value']:.0f} % kept the right answer before and "
            f"{new['exchanged']['value']:.0f} % do now (n = {new['exchanged']['n']:,})."
        )
    return [" ".join(told), more] if by_exchange or few < 50 else [" ".join(told)]


def _write_groups(case: Case, leading: Suspect, out: Path) -> str:
    """fix/groups.csv: for each sample what the cue points to, as a column that can be named as an attribute."""
    folder = out / "fix"
    folder.mkdir(parents=True, exist_ok=True)
    classes = case.data.classes
    with (folder / "groups.csv").open("w", newline="", encoding="utf-8") as file:
        write = csv.writer(file)
        write.writerow(["filename", "label", "points_to", "conflicting"])
        for i in range(len(case.held)):
            name = str(case.held.names[i]) if case.held.names is not None else str(i)
            points = int(leading.says[i])
            write.writerow(
                [name, classes[int(case.held.y[i])], classes[points] if points >= 0 else "", int(~leading.follows[i])]
            )
    return "fix/groups.csv"
