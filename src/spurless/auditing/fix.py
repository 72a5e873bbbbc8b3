"""`--fix`: the repairs of a finding, and which one is chosen by out-of-fold answers where the shortcut misleads."""

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
from spurless.auditing.gather import Cue
from spurless.auditing.repairs import FEW, Candidates, Repair, removal
from spurless.auditing.suspects import Suspect
from spurless.core.errors import UserError

NEAR = 0.03  # what counts as alike: scores of two repairs, or accuracies where the cue helps and where it misleads
LEVEL = 0.05  # the chance that any repair is chosen where none is better
LEAST = 0.1  # gain where the cue misleads, below which an exchange is not believed and a change not worth it
AGAINST = 0.2  # the chance that a repair is put aside where it loses no real conflicting samples


@dataclass(frozen=True)
class Repairs:
    """What was tried on a finding, and what was chosen. `tried[0]` is the model as it was."""

    rule: str  # how the choice was made
    text: list[str]
    tried: list[Repair] = field(default_factory=list)
    chosen: Repair | None = None
    case: Case | None = None
    leading: Suspect | None = None
    groups: str | None = None  # the file with what the cue points to, below `out`

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

    def to_dict(self) -> dict[str, Any]:
        """As audit.json holds it."""
        follows = None if self.leading is None else self.leading.follows
        return {
            "rule": self.rule,
            "chosen": None if self.chosen is None else self.chosen.method,
            "text": self.text,
            "rows": [] if follows is None else [repair.row(follows) for repair in self.tried],
            "groups": self.groups,
        }


def repair(case: Case, leading: Suspect | None, cue: Cue | None, out: Path | None) -> Repairs:
    """Try the repairs that fit the finding, and choose one by samples that none of its heads has seen.

    Few samples conflict where a shortcut is strong, and a guessed cue points elsewhere for other reasons, too. So what
    misleads is the conflicting samples together with exchanged ones: those with the cue of another class.
    """
    if leading is None or leading.verdict not in ("found", "gap", "available"):
        return nothing()
    candidates = Candidates(case, leading, cue)
    tried, follows = candidates.all(), leading.follows
    chosen = choose(tried, follows)
    exchanged = "" if tried[0].kept is None else f" and {len(tried[0].kept):,} with the cue of another class"
    rule = (
        "the best accuracies where it helps and where it misleads, of which the worse counts three times as much "
        f"({int((~follows).sum()):,} conflicting samples{exchanged}), all out of fold, if it is right on more where it "
        f"misleads, by {100 * LEAST:.0f} points and beyond chance (level {LEVEL:.0%} for all together)"
    )
    text = _text(tried[0], chosen, leading)
    groups = None if out is None else _write_groups(case, leading, out)
    return Repairs(rule, text, tried, chosen, case, leading, groups)


def nothing() -> Repairs:
    return Repairs("", ["Nothing was found that a repair could be judged by."])


def choose(tried: Sequence[Repair], follows: Tensor) -> Repair | None:
    """The best repair, if it mends clearly more than it breaks where the cue misleads, and real samples do not speak
    against it."""
    before = tried[0]
    if unharmed(before.right, follows):
        return None
    others = [
        each
        for each in tried[1:]
        if sum(each.two(follows)) > sum(before.two(follows))
        and not _spoken_against(each.right[~follows], before.right[~follows])
    ]
    if not others:
        return None
    score = {id(each): each.score(follows) for each in tried}
    best = max(others, key=lambda each: score[id(each)])
    for each in others:  # what is taken out of the input does not rest on the few conflicting samples
        if each.edit is not None and score[id(each)] >= score[id(best)] - NEAR:
            best = each
    gain = best.two(follows)[-1] - before.two(follows)[-1]
    if score[id(best)] <= score[id(before)] or gain < LEAST:
        return None
    mended, broken = _changes(best.where_misled(follows), before.where_misled(follows))
    return best if more_than_half(mended, broken) < LEVEL / len(tried[1:]) else None


def unharmed(right: Tensor, follows: Tensor) -> bool:
    """Whether enough real samples conflict, and the model is as right on them: an exchange may spoil what it edits."""
    there, elsewhere = right[~follows].float(), right[follows].float()
    return len(there) >= FEW and float(there.mean()) >= float(elsewhere.mean()) - NEAR


def _spoken_against(now: Tensor, then: Tensor) -> bool:
    """Whether a repair loses real conflicting samples: an exchange may be no more than a part of what misleads."""
    mended, broken = _changes(now, then)
    return more_than_half(broken, mended) < AGAINST


def _changes(now: Tensor, then: Tensor) -> tuple[int, int]:
    return int((now & ~then).sum()), int((then & ~now).sum())


def _text(before: Repair, chosen: Repair | None, leading: Suspect) -> list[str]:
    """What improved, what it cost, and how to get more conflicting samples."""
    follows = leading.follows
    few = int((~follows).sum())
    more = (
        f"More samples in which {leading.words} points to another class would help most: {few:,} of {len(follows):,} "
        "do. Look for them among the samples that are listed as conflicting, or make some by exchanging it."
    )
    if chosen is None and unharmed(before.right, follows):
        return [f"The model is as right on the {few:,} samples where it misleads: nothing is repaired. {more}"]
    if chosen is None:
        return [f"No repair of the last layer or of the input was clearly better out of fold. {more}"]
    old, new = before.row(follows), chosen.row(follows)
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
