"""`--fix`: repairs of an audit's findings, and the one that out-of-fold answers where shortcuts mislead choose."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from spurless.auditing.advice import Advice
from spurless.auditing.case import Case
from spurless.auditing.evidence import more_than_half
from spurless.auditing.exchanges import FEW, World, family, worlds
from spurless.auditing.plain import folds_of
from spurless.auditing.removals import removal
from spurless.auditing.repairs import Candidates, Repair
from spurless.auditing.suspects import Suspect
from spurless.core.errors import UserError

ACCUSED = ("found", "gap", "available")
MOST, JUDGES = 5, 3  # findings whose cues are exchanged, and those of them by which repairs are judged
NEAR = 0.03  # accuracies that count as alike
EQUAL = 0.015  # scores of two repairs that do
LEVEL = 0.05  # the chance that any repair is chosen where none is better
LEAST = 0.1  # gain where the cue misleads, below which an exchange is not believed and a change not worth it
AGAINST = 0.2  # the chance that a repair is put aside where it loses no real conflicting samples


@dataclass(frozen=True)
class Judge:
    """The worlds in which the model is worse where a cue misleads, and how much each counts: as it costs the model."""

    worlds: list[World]
    weights: list[float]
    asked: int  # worlds that were looked at

    def two(self, repair: Repair) -> tuple[float, float]:
        """The accuracies where the cues help and where they mislead."""
        helped, misled = zip(*(repair.two(world, k) for k, world in enumerate(self.worlds)), strict=True)
        return self._mean(helped), self._mean(misled)

    def score(self, repair: Repair) -> float:
        return self._mean([repair.score(world, k) for k, world in enumerate(self.worlds)])

    def _mean(self, values: Sequence[float]) -> float:
        return sum(w * v for w, v in zip(self.weights, values, strict=True)) / sum(self.weights)


@dataclass(frozen=True)
class Repairs:
    """What was tried on the findings, and what was chosen. `tried[0]` is the model as it was."""

    rule: str  # how the choice was made
    text: list[str]
    tried: list[Repair] = field(default_factory=list)
    chosen: Repair | None = None
    case: Case | None = None
    leading: Suspect | None = None  # the finding that was repaired, or that the repairs were judged by
    groups: str | None = None  # the file with what the cue points to, below `out`
    judge: Judge | None = None

    def answers(self, x: Tensor) -> Tensor:
        """(m,) The class that the chosen repair gives inputs of the data's own kind; the audited model where none is
        chosen."""
        if self.case is None:
            raise UserError("Nothing was repaired: no finding was there to judge a repair by.")
        return (self.chosen or self.tried[0]).answers(self.case, x)

    def advice(self) -> list[Advice]:
        """What the chosen repair asks a user to do."""
        if self.chosen is None or self.leading is None:
            return []
        how = "fit the last layer again, as the repair did" if self.chosen.edit is None else removal(self.leading.kind)
        return [{"title": how[0].upper() + how[1:], "why": self.text[0], "command": None}]

    def rows(self) -> list[dict[str, Any]]:
        """Each repair, where the cue of the leading finding helps and misleads. Methods of other findings name them."""
        if self.judge is None or self.leading is None:
            return []
        names = [world.finding.name for world in self.judge.worlds]
        k = names.index(self.leading.name)
        rows = [repair.row(self.judge.worlds[k], k) for repair in self.tried]
        of_all = [r.method == "mixed" and r.finding is None for r in self.tried]
        return [
            row | {"method": "mixed: all" if every else _named(row["method"], row["finding"], names[0])}
            for row, every in zip(rows, of_all, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """As audit.json holds it."""
        rows = self.rows()
        chosen = next((row for row, repair in zip(rows, self.tried, strict=True) if repair is self.chosen), None)
        before = self.tried[0] if self.tried else None
        return {
            "rule": self.rule,
            "chosen": None if chosen is None else chosen["method"],
            "finding": None if self.leading is None else self.leading.name,
            "text": self.text,
            "rows": rows,
            "judges": [_judged(world, k, before) for k, world in enumerate(self.judge.worlds)]
            if self.judge is not None and before is not None
            else [],
            "groups": self.groups,
        }


def _named(method: str, finding: str | None, first: str) -> str:
    """
    >>> _named("mixed", "margin", "margin"), _named("mixed", "red", "margin")
    ('mixed', 'mixed: red')
    """
    return method if finding in (None, first) else f"{method}: {finding}"


def _judged(world: World, k: int, before: Repair) -> dict[str, Any]:
    return {"name": world.finding.name, "exchanged": len(world.of), "conflicting": int((~world.follows).sum()),
            "lost": 100 * before.lost(world, k)}  # fmt: skip


def repair(case: Case, findings: Sequence[Suspect], out: Path | None, most: int = MOST) -> Repairs:
    """Try the repairs that fit the findings (the leading one first), and choose one by samples that none of its heads
    has seen.

    Few samples conflict where a shortcut is strong, and a guessed cue points elsewhere for other reasons, too. So what
    misleads is the conflicting samples together with exchanged ones: those with the cue of another class. And a finding
    may be a part of what was put there: so a repair of one is judged by the cues of the others as well.
    """
    findings = [finding for finding in findings if finding.verdict in ACCUSED]
    if not findings:
        return nothing()
    fold = case.fold if case.fold is not None else folds_of(case.held.y, case.seed)
    every = worlds(case, next_to(findings)[:most], fold)
    judge = judged_by(every, Candidates(case, every, fold).before())
    harmed = judge is not None
    judge = judge or Judge(every[:1], [1.0], len(every))
    candidates = Candidates(case, judge.worlds, fold)
    tried = candidates.all() if harmed else [candidates.before()]
    chosen = choose(tried, judge) if harmed else None
    leading = judge.worlds[0].finding if chosen is None or chosen.finding is None else chosen.finding
    groups = None if out is None else _write_groups(case, leading, out)
    rule = _rule(judge) if harmed else ""
    return Repairs(rule, _text(judge, tried[0], chosen, leading), tried, chosen, case, leading, groups, judge)


def nothing() -> Repairs:
    return Repairs("", ["Nothing was found that a repair could be judged by."])


def next_to(findings: Sequence[Suspect]) -> list[Suspect]:
    """The leading finding, and then those whose exchange moves the model most."""
    return [*findings[:1], *sorted(findings[1:], key=lambda finding: -finding.effect)]


def judged_by(every: Sequence[World], before: Repair) -> Judge | None:
    """The worlds that cost the model most, of each family one, and the surer the cue, the more; None where none costs
    it anything beyond chance."""
    weight = {
        k: before.lost(world, k) * max(0.05, world.finding.strength * world.finding.crisp)
        for k, world in enumerate(every)
        if _harmed(world, k, before, LEVEL / len(every))
    }
    chosen: dict[str, int] = {}
    for k in sorted(weight, key=lambda k: -weight[k]):
        chosen.setdefault(family(every[k].finding), k)
    first = list(chosen.values())[:JUDGES]
    return Judge([every[k] for k in first], [weight[k] for k in first], len(every)) if first else None


def _harmed(world: World, k: int, before: Repair, level: float) -> bool:
    """Whether the cue of another class costs the model LEAST, beyond chance and beyond what it costs to exchange one;
    and enough real conflicting samples do not speak against it: an exchange may spoil what it edits."""
    kept = before.kept[k]
    if _as_right(world, before) or before.lost(world, k) < LEAST:
        return False
    return kept is None or more_than_half(*_changes(kept[1], kept[0])) < level


def _as_right(world: World, before: Repair) -> bool:
    """Whether enough real conflicting samples say that the cue does no harm."""
    there, elsewhere = before.right[~world.follows].float(), before.right[world.follows].float()
    return len(there) >= FEW and float(there.mean()) >= float(elsewhere.mean()) - NEAR


def choose(tried: Sequence[Repair], judge: Judge) -> Repair | None:
    """The best repair, if it mends clearly more than it breaks where the cues mislead, and real samples do not speak
    against it. The world that costs the model most decides whether that is chance."""
    before, first = tried[0], judge.worlds[0]
    old = judge.two(before)
    others = [
        each
        for each in tried[1:]
        if sum(judge.two(each)) > sum(old) - NEAR
        and judge.two(each)[1] - old[1] >= LEAST
        and not _spoken_against(each.right[~first.follows], before.right[~first.follows])
    ]
    if not others:
        return None
    best = max(others, key=judge.score)
    removals = [e for e in others if e.edit is not None and judge.score(e) >= judge.score(best) - EQUAL]
    if removals:  # what is taken out of the input does not rest on the few conflicting samples
        best = max(removals, key=judge.score)
    if judge.score(best) <= judge.score(before):
        return None
    mended, broken = _changes(best.where_misled(first, 0), before.where_misled(first, 0))
    return best if more_than_half(mended, broken) < LEVEL / (len(tried[1:]) * judge.asked) else None


def _spoken_against(now: Tensor, then: Tensor) -> bool:
    """Whether a repair loses real conflicting samples: an exchange may be no more than a part of what misleads."""
    mended, broken = _changes(now, then)
    return more_than_half(broken, mended) < AGAINST


def _changes(now: Tensor, then: Tensor) -> tuple[int, int]:
    return int((now & ~then).sum()), int((then & ~now).sum())


def _rule(judge: Judge) -> str:
    names = ", ".join(
        f"{world.finding.name} ({int((~world.follows).sum()):,} conflicting samples"
        + (f" and {len(world.of):,} with the cue of another class)" if len(world.of) else ")")
        for world in judge.worlds
    )
    return (
        "the best accuracies where the cues help and where they mislead, of which the worse counts three times as "
        f"much; each cue counts as much as it costs the model: {names}; all out of fold, if the repair is right on "
        f"more where they mislead, by {100 * LEAST:.0f} points and beyond chance (level {LEVEL:.0%} for all together)"
    )


def _text(judge: Judge, before: Repair, chosen: Repair | None, leading: Suspect) -> list[str]:
    """What improved, what it cost, and how to get more conflicting samples."""
    follows, k = leading.follows, [world.finding.name for world in judge.worlds].index(leading.name)
    few, world = int((~follows).sum()), judge.worlds[k]
    more = (
        f"More samples in which {leading.words} points to another class would help most: {few:,} of {len(follows):,} "
        "do. Look for them among the samples that are listed as conflicting, or make some by exchanging it."
    )
    if chosen is None and not _harmed(world, k, before, LEVEL):
        if _as_right(world, before):
            return [f"Nothing is repaired: the model is about as right where {leading.words} misleads. {more}"]
        return [
            f"Nothing is repaired: with the cue of another class ({leading.words}) the model loses "
            f"{100 * max(0.0, before.lost(world, k)):.0f} points, too few to judge a repair by. {more}"
        ]
    if chosen is None:
        return [f"No repair of the last layer or of the input was clearly better out of fold. {more}"]
    old, new = before.row(world, k), chosen.row(world, k)
    told = [f"{chosen.words[0].upper()}{chosen.words[1:]} ({chosen.method})."]
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
    return [" ".join(told), more] if few < 50 else [" ".join(told)]


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
