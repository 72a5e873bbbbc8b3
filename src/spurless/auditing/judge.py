"""From what was measured about each suspect to its verdict, and to the verdict of the audit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from spurless.auditing.case import Case
from spurless.auditing.evidence import holm
from spurless.auditing.suspects import Suspect, background_part
from spurless.auditing.text_cues import MARKERS

VERDICTS = ("found", "gap", "available", "cannot tell", "no evidence")  # the worst first
LEVEL = 0.005  # of corrected p-values
LEAST_GAP = 10.0  # points of accuracy between samples where the cue helps and where it misleads
WORDS_GAP = 40.0  # the same of several words at once: those of a class make its samples easy
USED = 0.25  # by how much the model goes with the donor more often than with the placebo, lower end
CLEAR = 0.65  # strength from which a cue by itself lets a model cheat
CRISP = 0.8  # how sure the cue must be where it misleads, against where it helps
SURE = 0.95  # the same of many words at once
STRANGE = {"colour balance": 0.55, "brightness or contrast": 0.6}  # strength of what hardly any classes differ in
HIDDEN = 0.85  # the same of what was discovered in the features: borders between classes are found there as well
GROUND = 0.78, 0.87  # part of what the model knows that the background alone must tell: to be available, and found
GAIN, NET = 25.0, 12.0  # points that balanced training brings where the cue misleads, and after what it costs elsewhere


class Rule(NamedTuple):
    """From where on a cue that is used and harmful was put into the samples, and is not the object itself."""

    kinds: tuple[str, ...]
    strength: float
    crisp: float
    effect: float  # of the exchange, lower end
    gap: float  # points of accuracy


# What was put there is as clear where it misleads as where it helps. Then a smaller effect is enough: an exchange
# brings only a part of many cues (a blurred image cannot be sharpened). Light alone is never the object.
LIGHT, PLACED = ("light", "detail"), ("light", "detail", "mark", "spot", "margin")
PUT = (
    Rule(("text",), CLEAR, 0.9, 0.08, 20),
    Rule(LIGHT, 0.5, 0.65, 0.1, 25),
    Rule(LIGHT, 0.35, 0.65, 0.3, 35),
    Rule(PLACED, CLEAR, CRISP, 0.05, 20),
    Rule(PLACED, CLEAR, 0.95, 0.05, 12),
)


def judge(case: Case, suspects: Sequence[Suspect]) -> None:
    """Give each suspect its verdict. P-values are corrected for how many suspects the model was asked about."""
    for tests in ([s.used for s in suspects if s.used], [s.harm for s in suspects if s.harm]):
        for test, p in zip(tests, holm([test["p"] for test in tests]), strict=True):
            test["p"] = p
    for s in suspects:
        if s.kind != "attribute":
            s.verdict = of_cue(case, s)


def of_cue(case: Case, s: Suspect) -> str:
    """Found: used and harmful, and not explained by samples that are hard. Available: the data lets a model cheat."""
    if s.kind == "background":
        return _of_background(case, s)
    if too_many(s):
        return "no evidence"
    may_decide = s.kind in ("column", "text") and s.strength < CLEAR
    if harmful(s) and (put(s) or (used(s) and recovers(s) and not may_decide)):
        return "found"
    return "available" if lets_cheat(s) or matches(case, s) else "no evidence"


def too_many(s: Suspect) -> bool:
    """Whether it is many words at once, and not as sure of them as of what was put there."""
    return several(s) > MARKERS and s.crisp < SURE


def several(s: Suspect) -> int:
    """How many words a cue is made of, each of which may belong to a class."""
    cue = s.extra.get("cue")
    return cue.several if cue is not None else 1


def strange(s: Suspect) -> bool:
    """Whether it is a cue in which hardly any classes differ, and these do."""
    return s.name in STRANGE and s.strength >= STRANGE[s.name]


def lets_cheat(s: Suspect) -> bool:
    """Whether the cue gives the label away, as nothing that belongs to the classes does."""
    if s.kind == "column":
        return False  # which columns may decide, only a person can say
    if s.kind == "text":
        return s.strength >= CLEAR
    if s.kind == "hidden":
        return s.strength >= CLEAR and s.crisp >= HIDDEN
    if s.kind == "file" and s.strength > 0.5:
        return True
    if s.kind == "part":
        return False
    if (s.strength >= CLEAR and s.crisp >= CRISP) or strange(s):
        return True
    # Where the object is, how large and how turned, belongs to most classes: a boot is taller than a sandal.
    return s.kind != "place" and s.strength >= 0.35 and s.effect >= 0.3


def of_attribute(s: Suspect) -> str:
    """Of a known attribute: found only where it is an input that was exchanged; a gap where that cannot be done.

    A gap needs that a model trained with balanced groups does better there: else the samples are hard, and so it would
    be for a column that the model never sees and that goes with a legitimate input."""
    e = s.extra["entry"]
    if not e["varies"]:
        return "no evidence"
    nothing = "available" if s.strength >= CLEAR else "no evidence"
    if e["finding"] not in ("found", "suspected"):
        return nothing if nothing == "available" else str(e["finding"]).replace("none", "no evidence")
    fair = s.harm and s.harm["balanced"]
    sure = _helps(fair) or _worse_than_a_guess(s) or e["by"] == "answers"
    if s.used is not None:
        return "found" if sure and used(s) else nothing
    return "gap" if sure or (not fair and e["finding"] == "found") else nothing


def _helps(fair: dict[str, Any] | None) -> bool:
    if not fair:
        return False
    return bool(fair["gain"] >= 10 and fair["gain"] - max(0.0, fair["loss"]) >= 6 and fair["p"] < 0.01)


def _worse_than_a_guess(s: Suspect) -> bool:
    """Against a strong attribute the model is worse than a guess: it answers by it, or by what goes with it."""
    against = s.extra["entry"]["contradicting"]
    return bool(s.strength >= CLEAR and against and against["high"] < 100 / max(2, s.extra["classes"]))


def _of_background(case: Case, s: Suspect) -> str:
    """Backgrounds tell something of most classes, for deer are seen in woods and ships at sea. What counts is whether
    they alone tell nearly all that the model knows: what belongs to a class leaves more to the object."""
    part = background_part(case, s)
    if part < GROUND[0]:
        return "no evidence"
    sure = part >= GROUND[1] and s.used is not None and s.used["p"] < LEVEL and s.effect >= 0.12
    return "found" if sure and harmful(s) else "available"


def put(s: Suspect) -> bool:
    """Whether the cue is used by the model and was put into the samples, by one of the rules."""
    if s.used is None or s.harm is None or s.used["p"] >= LEVEL:
        return False
    measured = (s.strength, s.crisp, s.effect, s.harm["gap"]["value"])
    return any(
        s.kind in rule.kinds and all(value >= least for value, least in zip(measured, rule[1:], strict=True))
        for rule in PUT
    )


def used(s: Suspect) -> bool:
    return s.used is not None and s.used["p"] < LEVEL and s.effect >= USED


def harmful(s: Suspect) -> bool:
    least = LEAST_GAP if several(s) == 1 else WORDS_GAP
    return s.harm is not None and s.harm["gap"] is not None and s.harm["gap"]["value"] >= least and s.harm["p"] < LEVEL


def recovers(s: Suspect) -> bool:
    """Whether training with balanced groups helps where the cue misleads: hard samples would stay hard."""
    fair = None if s.harm is None else s.harm["balanced"]
    return (
        fair is not None and fair["gain"] >= GAIN and fair["gain"] - max(0.0, fair["loss"]) >= NET and fair["p"] < 0.01
    )


def matches(case: Case, s: Suspect) -> bool:
    """Whether the cue alone is as good as the model, by the mean of the classes' accuracies."""
    rows = s.asked
    y = case.held.y[rows]
    classes = [y == c for c in y.unique()]
    alone, model = (
        sum(float((says[rows] == y)[own].float().mean()) for own in classes) / len(classes)
        for says in (s.says, case.predicted)
    )
    return s.strength >= 0.3 and s.kind != "hidden" and alone >= model - 0.02


def order(suspects: Sequence[Suspect]) -> list[Suspect]:
    """The worst first; among equals the one that stands out most. Where a cue is found, and another one that is
    exchanged with effect stands out more, that one is what was found: the first is a part of it."""
    accused = [s for s in suspects if s.verdict == "found"]
    if accused:
        top = max(
            (s for s in suspects if s.verdict in ("found", "available")), key=lambda s: weight(s) + 0.1 * (s in accused)
        )
        if top.verdict == "available" and top.effect >= 0.12 and top.kind != "attribute":
            top.verdict = "found"
    return sorted(suspects, key=lambda s: (VERDICTS.index(s.verdict), -weight(s)))


BONUS = {"file": 0.15, "mark": 0.14, "detail": 0.06, "light": 0.04, "spot": 0.08, "margin": -0.08, "background": -0.1,
         "place": -0.04, "part": -0.3, "hidden": -0.3}  # fmt: skip
MOVES = 0.35  # how much the effect of an exchange counts; an object that was turned or scaled is another picture

NARROW = ("missing", "red", "green", "blue", "language")


def weight(s: Suspect) -> float:
    """How specific and how strong: what was put there is crisp, and what the model uses counts more."""
    narrow = 0.02 if s.name.startswith(NARROW) else 0.0  # of two that tell the same, the narrower one
    if s.name in ("compression", "colour balance") or several(s) > MARKERS:  # noise or single words change them, too
        narrow = -0.08
    moved = MOVES * max(0.0, s.effect) if s.kind != "place" else 0.0
    return s.strength * s.crisp + moved + BONUS.get(s.kind, 0.0) + narrow


def overall(verdicts: Sequence[str], sure: bool = True) -> str:
    """The verdict of an audit: its worst finding. Where there is a doubt (not `sure`), finding nothing means nothing.

    >>> overall(["no evidence", "gap", "available"]), overall([]), overall(["no evidence"], sure=False)
    ('gap', 'cannot tell', 'cannot tell')
    """
    told = set(verdicts) - {"cannot tell"} if "no evidence" in verdicts or "available" in verdicts else set(verdicts)
    told = told or {"cannot tell"}
    if not sure and told <= {"no evidence"}:
        return "cannot tell"
    return next(v for v in VERDICTS if v in told)
