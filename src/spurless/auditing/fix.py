"""`--fix`: train the methods that fit, pick one by half of the held-out rows, compare on the other half."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import torch
from torch import Tensor

from spurless.auditing.advice import COST, fitting
from spurless.auditing.case import Case
from spurless.auditing.evidence import more_than_half, share
from spurless.core.data import Bundle
from spurless.core.errors import UserError
from spurless.core.recipe import Recipe
from spurless.core.result import Result
from spurless.core.seeds import derive
from spurless.metrics.groups import MIN_GROUP
from spurless.registry import make_recipe
from spurless.train.fit import fit
from spurless.train.networks import NetSpec
from spurless.train.observe import Progress
from spurless.train.progress import Bar, Watcher

BEFORE = "before"  # the audited model, as a row of the table
FEW = 5  # contradicting rows of the picking half, below which one or two of them would decide
LEVEL = 0.05  # the chance that any method is picked where none is better


def repair(
    case: Case,
    contradicting: Tensor,
    budget_seconds: float,
    out: Path | None,
    net_spec: NetSpec | None,
    recipe: Recipe | None,
    device: torch.device,
    *,
    seconds_of_one: float,
    progress: bool | Watcher | None = None,
    labels: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Run the methods that fit within the budget, and say whether one of them is better than the audited model.

    `contradicting` (n,) marks held-out rows that contradict the shortcut. It must not come from the audited model's own
    errors: that model would be wrong there by construction, and whatever is trained next would look like a repair.
    `labels` are the attributes that the shortcut is made of; None: all that are known; (): none of them, so that only
    methods without labels are tried.
    """
    if case.split == "train":
        raise ValueError("the methods train on these rows: there is nothing to compare them by")
    contradicting = contradicting.cpu()
    picking, reporting = halves(case.held.y, contradicting, case.seed)
    rule = make_rule(picking, contradicting, case.held.y)
    data = lesson(case, labels)
    recipe = make_recipe(recipe, data)
    if data.val is None:
        recipe = replace(recipe, selection="last")
    deadline, text = time.monotonic() + budget_seconds, []
    tried = [Tried(BEFORE, case.right)]
    for name in fitting(data.train.a is not None, data.val is not None and data.val.a is not None):
        left, takes = deadline - time.monotonic(), COST[name] * seconds_of_one
        if left <= 0 or takes > left:
            text.append(f"{name} was left out: {_why_not(takes, left)}.")
            continue
        folder = None if out is None else out / "fix" / name
        watch = Deadline(progress if callable(progress) else Bar(name, shown=progress), deadline)
        train = partial(
            fit, name, data, net=net_spec, recipe=recipe, seed=case.seed, out=folder, device=device, progress=watch
        )
        tried.append(attempt(case, name, train))
        if tried[-1].note:
            text.append(f"{name}: {tried[-1].note}")
    chosen = rule.choose(tried)
    return {
        "rule": f"{rule.words}, on {len(picking):,} held-out rows; the table is of the other {len(reporting):,}",
        "chosen": chosen.method if chosen else None,
        "text": [_summary(tried, chosen, contradicting, reporting), *text],
        "rows": [each.row(contradicting, reporting) for each in tried],
    }


def _why_not(takes: float, left: float) -> str:
    """
    >>> _why_not(30.0, 12.0), _why_not(0.0, -1.0)
    ('it takes about 30 s, and 12 s were left', 'no time was left, and how long it takes is not known')
    """
    if not takes:  # the audited model was trained elsewhere, so that there is nothing to go by
        return "no time was left, and how long it takes is not known"
    return f"it takes about {takes:.3g} s, and {max(0, left):.3g} s were left"


@dataclass(frozen=True)
class Tried:
    """A model, and where it is right."""

    method: str
    right: Tensor | None  # (n,) of all held-out rows; None: there is no model
    seconds: float | None = None
    note: str | None = None  # why there is none

    def row(self, contradicting: Tensor, rows: Tensor) -> dict[str, Any]:
        """What the table says, of these rows only."""
        kinds = {"following": ~contradicting[rows], "contradicting": contradicting[rows]}
        kinds["average"] = torch.ones(len(rows), dtype=torch.bool)
        scores = {name: None if self.right is None else share(self.right[rows[kind]]) for name, kind in kinds.items()}
        return {"method": self.method, **scores, "seconds": self.seconds, "note": self.note}


def attempt(case: Case, method: str, train: Callable[[], Result]) -> Tried:
    """Train one method. What goes wrong with it is a row; the audit goes on."""
    start = time.monotonic()
    try:
        result = train()
    except (UserError, OutOfTime) as error:
        return Tried(method, None, time.monotonic() - start, str(error))
    if result.classifier is None:
        return Tried(method, None, result.seconds, f"It diverged. {result.error}")
    logits = replace(case, net=result.classifier).outputs(case.held)
    return Tried(method, logits.argmax(1) == case.held.y, result.seconds)


# Which rows are for what


def halves(y: Tensor, contradicting: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Row numbers of two halves, alike in how many rows of each class contradict: one to pick by, one to report.

    Rows are sorted by kind and class, shuffled within, and dealt out in turn, so that cells of a single row do not all
    end on one side.

    >>> first, second = halves(torch.arange(6), torch.ones(6, dtype=torch.bool), seed=0)
    >>> len(first), len(second), sorted(first.tolist() + second.tolist())
    (3, 3, [0, 1, 2, 3, 4, 5])
    """
    mixed = torch.randperm(len(y), generator=torch.Generator().manual_seed(derive(seed, "fix", "halves")))
    cell = contradicting.long() * (int(y.max()) + 1) + y
    dealt = mixed[cell[mixed].argsort(stable=True)]
    return dealt[1::2].sort().values, dealt[::2].sort().values


def lesson(case: Case, labels: Sequence[str] | None) -> Bundle:
    """The data as the methods get it: never the held-out rows to learn or to choose weights from, and only the
    attributes that are named."""
    data = case.data if case.split != "val" else replace(case.data, val=None)
    if labels is None:
        return data
    kept = [k for k, name in enumerate(data.attributes) if name in labels]
    of_kept: dict[str, Any] = {
        name: replace(split, a=split.a[:, kept] if kept and split.a is not None else None)
        for name, split in data.splits.items()
    }
    of_kept |= {name: tuple(getattr(data, name)[k] for k in kept) for name in ("attributes", "values", "aligned")}
    return replace(data, **of_kept)


# Which method is picked


class Rule(NamedTuple):
    """Picks by the accuracy in each cell of rows: their mean, or the worst of them."""

    words: str
    cells: list[Tensor]  # row numbers, all of the picking half
    worst: bool

    def score(self, right: Tensor) -> float:
        found = [float(right[cell].double().mean()) for cell in self.cells]
        return min(found) if self.worst else sum(found) / len(found)

    def choose(self, tried: Sequence[Tried]) -> Tried | None:
        """The best of the others, if it is clearly better than the first."""
        before = tried[0].right
        models = [each for each in tried[1:] if each.right is not None]
        if before is None or not models:
            return None
        best = max(models, key=lambda each: self.score(each.right))  # type: ignore[arg-type]
        assert best.right is not None
        gain = self.score(best.right) - self.score(before)
        sure = NormalDist().inv_cdf(1 - LEVEL / len(models))  # the best of several is good by chance more often
        return best if gain > sure * self.error(before, best.right) else None

    def error(self, before: Tensor, after: Tensor) -> float:
        """The standard error of the gain, from rows that were mended and rows that were broken.

        One more of each keeps a few rows that all changed in the same way from counting as certain. Of a worst cell,
        that of the cell which was worst before.
        """
        cells = [min(self.cells, key=lambda c: float(before[c].double().mean()))] if self.worst else self.cells
        variance = 0.0
        for cell in cells:
            mended, broken = changes(before, after, cell)
            n = len(cell) + 2
            variance += ((mended + broken + 2) / n - ((mended - broken) / n) ** 2) / len(cell)
        return variance**0.5 / len(cells)


def make_rule(picking: Tensor, contradicting: Tensor, y: Tensor) -> Rule:
    """The rule for these rows. It needs no bias labels: which rows contradict may be the audit's own guess."""
    kinds = [picking[contradicting[picking] == kind] for kind in (False, True)]
    need = f"if that is better than before by more than chance (level {LEVEL:.0%} for all methods together)"
    if min(map(len, kinds)) >= FEW:
        words = "the highest mean of two accuracies, of rows that follow the shortcut and of rows that contradict it,"
        return Rule(f"{words} {need}", kinds, worst=False)
    # Average accuracy would reward the shortcut; the worst class is what is known to serve where groups are not
    # known (Yang et al. 2023, Change is hard).
    of_class = [picking[y[picking] == c] for c in y.unique()]
    classes = [rows for rows in of_class if len(rows)]
    words = f"the highest accuracy in its worst class (fewer than {2 * FEW} rows are known to contradict the shortcut"
    if len(classes) < len(of_class):
        words += f"; of the {len(classes)} of {len(of_class)} classes that have rows here"
    if (least := min(map(len, classes))) < MIN_GROUP:
        words += f"; the smallest has n = {least}"
    words += "),"
    return Rule(f"{words} {need}", classes, worst=True)


def _summary(tried: Sequence[Tried], chosen: Tried | None, contradicting: Tensor, rows: Tensor) -> str:
    """The outcome in a sentence, from these rows only."""
    if len(tried) == 1:
        return "No method was run: the time budget is too short for any."
    if all(each.right is None for each in tried[1:]):
        return "No method came to an end, so that there is nothing to compare."
    before = tried[0].right
    if chosen is None or chosen.right is None or before is None:
        return "No method was clearly better than before: keep the model, and collect more samples."
    those, others = rows[contradicting[rows]], rows[~contradicting[rows]]
    mended, broken = changes(before, chosen.right, those)
    chance = "" if more_than_half(mended, broken) < 0.05 else ", which can be chance"
    lost = changes(before, chosen.right, others)
    return (
        f"{chosen.method}, on rows that were not used to pick it: of {len(those):,} that contradict the shortcut it "
        f"mends {mended:,} and breaks {broken:,}{chance}; of the {len(others):,} others it mends {lost[0]:,} and "
        f"breaks {lost[1]:,}."
    )


def changes(before: Tensor, after: Tensor, rows: Tensor) -> tuple[int, int]:
    """How many of these rows became right, and how many wrong."""
    return int((after & ~before)[rows].sum()), int((before & ~after)[rows].sum())


# The clock


class OutOfTime(Exception):
    """The budget ended while a method was training."""


class Deadline:
    """Watches a run like any other watcher, and ends it when the time is over."""

    def __init__(self, watch: Watcher, end: float):
        self.watch, self.end = watch, end

    def __enter__(self) -> Deadline:
        self.watch.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.watch.__exit__(*error)

    def __call__(self, where: Progress) -> None:
        self.watch(where)
        if time.monotonic() > self.end:
            raise OutOfTime("It was stopped: the time was used up.")
