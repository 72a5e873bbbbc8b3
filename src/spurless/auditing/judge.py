"""From what was measured about each suspect to its verdict, and to the verdict of the audit."""

from __future__ import annotations

from collections.abc import Sequence

from spurless.auditing.case import Case
from spurless.auditing.evidence import holm
from spurless.auditing.suspects import Suspect, background_part

VERDICTS = ("found", "gap", "available", "cannot tell", "no evidence")  # the worst first
LEVEL = 0.005  # of corrected p-values
LEAST_GAP = 10.0  # points of accuracy between samples where the cue helps and where it misleads
USED = 0.25  # by how much the model goes with the donor more often than with the placebo, lower end
CLEAR = 0.65  # strength from which a cue by itself lets a model cheat
CRISP = 0.8  # how sure the cue must be where it misleads, against where it helps
GAIN, NET = 25.0, 12.0  # points that balanced training brings where the cue misleads, and after what it costs elsewhere


def judge(case: Case, suspects: Sequence[Suspect]) -> None:
    """Give each suspect its verdict. P-values are corrected for how many suspects the model was asked about."""
    asked = [s for s in suspects if s.used is not None and s.used["p"] is not None]
    for s, p in zip(asked, holm([s.used["p"] for s in asked if s.used]), strict=True):
        assert s.used is not None
        s.used["p"] = p
    harmed = [s for s in suspects if s.harm is not None]
    for s, p in zip(harmed, holm([s.harm["p"] for s in harmed if s.harm]), strict=True):
        assert s.harm is not None
        s.harm["p"] = p
    for s in suspects:
        if s.kind != "attribute":
            s.verdict = of_cue(case, s)


def of_cue(case: Case, s: Suspect) -> str:
    """Found: used and harmful, and not explained by samples that are hard. Available: the data lets a model cheat."""
    if s.kind == "background":
        return _of_background(case, s)
    if used(s) and harmful(s) and (s.kind not in ("column", "text") or s.strength >= CLEAR):
        # Either balanced groups help, or what was exchanged cannot be the object: light, or what was put there.
        light = s.kind in ("light", "detail") and (s.effect >= 0.3 or s.strength >= 0.5)
        put = s.kind in ("mark", "spot", "margin", "text") and s.strength >= CLEAR and s.extra.get("crisp", 1.0) >= 0.9
        if recovers(s) or light or put:
            return "found"
    if s.kind == "column" and not matches(case, s):
        return "no evidence"  # which columns may decide, only a person can say
    if s.kind == "text":
        return "available" if s.strength >= CLEAR or matches(case, s) else "no evidence"
    crisp = s.strength >= CLEAR and s.extra.get("crisp", 1.0) >= CRISP and s.kind != "part"
    strong = s.strength >= 0.8 and s.extra.get("crisp", 1.0) >= 0.6 and s.kind != "part"
    if (
        crisp
        or strong
        or matches(case, s)
        or (s.strength >= 0.35 and s.effect >= 0.3)
        or (s.kind == "file" and s.strength > 0.5)
    ):
        return "available"
    return "no evidence"


def of_attribute(s: Suspect) -> str:
    """Of a known attribute: found only where it is an input that was exchanged; a gap where that cannot be done.

    A gap needs that a model trained with balanced groups does better there: else the samples are hard, and so it would
    be for a column that the model never sees and that goes with a legitimate input."""
    e = s.extra["entry"]
    strong = "available" if s.strength >= CLEAR else None
    if not e["varies"]:
        return "no evidence"
    if e["finding"] in ("found", "suspected"):
        fair = s.harm and s.harm["balanced"]
        helps = fair and fair["gain"] >= 10 and fair["gain"] - max(0.0, fair["loss"]) >= 6 and fair["p"] < 0.01
        # Against a strong attribute the model is worse than a guess: it answers by it, or by what goes with it.
        worse = (
            s.strength >= CLEAR and e["contradicting"] and e["contradicting"]["high"] < 100 / max(2, s.extra["classes"])
        )
        if s.used is not None:
            return "found" if (helps or worse or e["by"] == "answers") and used(s) else strong or "no evidence"
        if helps or worse or e["by"] == "answers" or (not fair and e["finding"] == "found"):
            return "gap"
        return strong or "no evidence"
    return strong or e["finding"].replace("none", "no evidence")


def _of_background(case: Case, s: Suspect) -> str:
    part = background_part(case, s)
    sure = s.used is not None and s.used["p"] < LEVEL
    if sure and ((part >= 0.9 and s.effect >= 0.12) or (part >= 0.84 and s.effect >= USED)):
        return "found"
    return "available" if part >= 0.9 else "no evidence"


def used(s: Suspect) -> bool:
    return s.used is not None and s.used["p"] < LEVEL and s.effect >= USED


def harmful(s: Suspect) -> bool:
    return (
        s.harm is not None and s.harm["gap"] is not None and s.harm["gap"]["value"] >= LEAST_GAP and s.harm["p"] < LEVEL
    )


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
    return s.strength >= 0.3 and alone >= model - 0.02


def order(suspects: Sequence[Suspect]) -> list[Suspect]:
    """The worst first; among equals the one that stands out most. Where a cue is found, and another one that is
    exchanged with effect stands out more, that one is what was found: the first is a part of it."""
    found = [s for s in suspects if s.verdict == "found"]
    if found:
        top = max(
            (s for s in suspects if s.verdict in ("found", "available")), key=lambda s: weight(s) + 0.1 * (s in found)
        )
        if top.verdict == "available" and top.effect >= 0.12 and top.kind != "attribute":
            top.verdict = "found"
    return sorted(suspects, key=lambda s: (VERDICTS.index(s.verdict), -weight(s)))


BONUS = {"file": 0.15, "mark": 0.08, "spot": -0.06, "margin": -0.08, "detail": 0.03, "background": -0.1, "part": -0.3}


def weight(s: Suspect) -> float:
    """How specific and how strong: what was put there is crisp, and what the model uses counts more."""
    gaps = 0.02 if s.name.startswith("missing") else 0.0  # of two that tell the same, the narrower one
    return s.strength * s.extra.get("crisp", 1.0) + 0.5 * max(0.0, s.effect) + BONUS.get(s.kind, 0.0) + gaps


def overall(verdicts: Sequence[str], sure: bool = True) -> str:
    """The verdict of an audit: its worst finding. Where there is a doubt (not `sure`), finding nothing means nothing.

    >>> overall(["no evidence", "gap", "available"]), overall([]), overall(["no evidence"], sure=False)
    ('gap', 'cannot tell', 'cannot tell')
    """
    found = set(verdicts) - {"cannot tell"} if "no evidence" in verdicts or "available" in verdicts else set(verdicts)
    found = found or {"cannot tell"}
    if not sure and found <= {"no evidence"}:
        return "cannot tell"
    return next(v for v in VERDICTS if v in found)
