"""The sentences of an audit: what each measurement says, and the one sentence at the top."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, NamedTuple

from torch import Tensor

from spurless.auditing.case import Case
from spurless.auditing.evidence import Score, share
from spurless.auditing.suspects import Suspect
from spurless.core.stats import mean_of_cells

ACCUSED = ("found", "gap", "available")


class Shortcut(NamedTuple):
    """The leading finding, in the form that galleries, advice and repair take."""

    name: str
    kind: str  # attribute, or that of a cue
    verdict: str
    follows: Tensor  # (n,) bool over the answered samples
    says: Tensor | None  # (n,) the class that it points to
    aligned: Score | None
    conflicting: Score | None
    alone: Score | None  # what a model that saw nothing else would get
    needed: int | None = None  # conflicting samples that a test takes


def shortcut_of(leading: Suspect | None) -> Shortcut | None:
    if leading is None:
        return None
    harm = leading.harm or {"aligned": None, "conflicting": None}
    return Shortcut(
        leading.name, leading.kind, leading.verdict, leading.follows, leading.says, harm["aligned"],
        harm["conflicting"], leading.alone, leading.extra.get("needed"),
    )  # fmt: skip


FEWEST = 100  # answered samples, below which finding nothing means nothing


class Doubt(NamedTuple):
    """Why it would mean nothing that no shortcut was found."""

    says: str
    advice: str | None = None  # what to do about it
    why: str = ""


def doubt(case: Case, unseen: bool) -> Doubt | None:
    """Whether there is one. `unseen`: whether the held-out samples are known to be new to the model."""
    if not unseen:
        return Doubt(
            "No samples are known to be new to the model, and on samples that it has learnt a shortcut need not show."
        )
    if len(case.held) < FEWEST:
        return Doubt(
            f"Only {len(case.held):,} samples were looked at: too few to show a shortcut that some of them contradict.",
            f"Collect {FEWEST} samples or more",
            "How often such tests see a shortcut was measured with hundreds.",
        )
    accuracy, guess = share(case.right.numpy()), 100 * int(case.held.y.bincount().max()) / len(case.held)
    if accuracy is not None and accuracy["low"] <= guess and not _knows_classes(case):
        return Doubt(
            f"The model is right on {accuracy['value']:.1f} % of the held-out samples, and to guess the commonest "
            f"class would be on {guess:.1f} %: too little is learnt to tell what it relies on.",
            "Train the model until it is better than a guess",
            f"{len(case.held):,} held-out samples do not show that it is. Look at its learning rate and length, at the "
            "labels, and at whether the inputs are made as in its training; of rare classes collect more samples.",
        )
    if case.own is False and (case.images or case.texts):
        return Doubt(
            "The model was trained on other data than this: what says nothing of the label here may have said much "
            "there.",
            "Audit it on the data that it was trained on",
            "Cues are looked for among the training samples at hand, and those are not the ones that it has learnt "
            "from. Attributes that are named are tested by its answers, wherever it learnt them.",
        )
    return None


def _knows_classes(case: Case) -> bool:
    """Whether the mean of the classes' accuracies is beyond that of a guess: where one class is rare, a good model may
    be right less often than one that never names it."""
    y = case.held.y
    present = [y == c for c in y.unique()]
    right = [int(case.right[own].sum()) for own in present]
    low = mean_of_cells(right, [int(own.sum()) for own in present], [1.0] * len(present))[1]
    return len(present) > 1 and low > 1 / len(present)


# Sentences


def quoted(name: str) -> str:
    """A name in a sentence.

    >>> quoted("colour"), quoted("starts with 'ref'")
    ("'colour'", "starts with 'ref'")
    """
    return name if "'" in name else f"'{name}'"


def percent(score: Score | None) -> str:
    """
    >>> percent({"value": 37.4, "low": 30.0, "high": 45.1, "n": 120})
    '37 %'
    """
    return "–" if score is None else f"{score['value']:.0f} %"


def headline(verdict: str, leading: Suspect | None, case: Case, tested: int, doubt: Doubt | None = None) -> str:
    """One sentence for someone who reads nothing else."""
    if verdict == "cannot tell":
        return _unknown(leading, doubt)
    if verdict == "no evidence" or leading is None:
        return (
            f"No evidence of a shortcut: {tested:,} properties were tested on {len(case.held):,} samples. What was not "
            "tested is not covered."
        )
    harm = leading.harm or {}
    costs = ""
    if harm.get("aligned") and harm.get("conflicting"):
        costs = (
            f": right on {percent(harm['aligned'])} of the samples where it helps, and on "
            f"{percent(harm['conflicting'])} where it misleads"
        )
    if verdict == "found":
        return f"The model relies on {leading.words}{costs}."
    if verdict == "gap":
        return _worst_groups(leading) or f"The model is weaker where {leading.words} is unusual{costs}."
    one = f" class '{leading.of}'" if leading.of else " the label"
    flips = None if leading.used is None else float(leading.used["effect"]["value"])
    does = (
        "; whether the model uses it could not be tested"
        if flips is None
        else f"; exchanging it changes {max(0.0, flips):.0f} % of this model's answers"
    )
    told = f"{leading.words} gives{one} away ({percent(leading.alone)} alone){does}."
    if leading.kind == "place":  # which belongs to most classes
        return f"{told[0].upper()}{told[1:]} If that is how the classes differ, it is no shortcut: only you can say."
    return f"This data lets a model cheat: {told}"


def _unknown(leading: Suspect | None, doubt: Doubt | None) -> str:
    if doubt is not None:
        return doubt.says
    if leading is not None and leading.extra.get("needed"):
        n = int((~leading.follows).sum())
        return (
            f"There are too few samples to tell whether the model relies on {quoted(leading.name)}: about "
            f"{leading.extra['needed']:,} that contradict it are needed, and {n:,} are there."
        )
    return "Nothing could be tested: no attribute is named, and there is nothing else to look at."


def _worst_groups(s: Suspect) -> str | None:
    """The worst group of a known attribute against the best one of the same class."""
    groups = [g for g in s.extra.get("groups", ()) if g["n"] >= 5]
    if not groups:
        return None
    worst = min(groups, key=lambda g: g["accuracy"])
    same = [g for g in groups if g["label"] == worst["label"]]
    best = max(same, key=lambda g: float(g["accuracy"]))
    if best is worst:
        return None
    return (
        f"The model is right on {worst['accuracy']:.0f} % of '{worst['label']}' with {s.name} = {worst['value']}, and "
        f"on {best['accuracy']:.0f} % with {s.name} = {best['value']}. Whether it relies on {s.words} cannot be "
        "tested: it cannot be exchanged."
    )


def sentence(s: Suspect) -> str:
    """What was measured about a suspect."""
    told = [f"Alone it gives {s.alone['value']:.1f} % (placebo {s.placebo:.0f} %)"]
    if s.of:
        told[0] = (
            f"It gives class '{s.of}' away ({100 * s.strength:.0f} points more often than other classes, at least)"
        )
    if s.used:
        u = s.used
        told.append(
            f"exchanged between classes it turns {percent(u['other_class'])} of {u['pairs']:,} answers to the donor's "
            f"class, and {percent(u['same_class'])} with a donor of the same class (placebo)"
        )
    elif s.strength >= 0.35 and s.kind in ("file", "attribute"):
        told.append("it cannot be exchanged in the inputs")
    if s.harm and s.harm["aligned"] and s.harm["conflicting"]:
        h = s.harm
        told.append(
            f"the model is right on {h['aligned']['value']:.1f} % of {h['aligned']['n']:,} samples where it helps and "
            f"on {h['conflicting']['value']:.1f} % of {h['conflicting']['n']:,} where it misleads"
        )
        if h["balanced"]:
            told.append(
                f"with balanced groups {h['balanced']['conflicting']['value']:.1f} % there, and "
                f"{h['balanced']['aligned']['value']:.1f} % elsewhere"
            )
    return "; ".join(told) + "."


def entry(s: Suspect) -> dict[str, Any]:
    """A suspect as audit.json holds it."""
    return {
        "name": s.name,
        "kind": s.kind,
        "verdict": s.verdict,
        "words": s.words,
        "text": s.text or sentence(s),
        "class": s.of,
        "available": {"alone": s.alone, "placebo": s.placebo, "strength": s.strength, "crisp": s.extra.get("crisp")},
        "used": s.used,
        "harm": s.harm,
    }


def cost(case: Case, shortcut: Shortcut | None) -> dict[str, Any] | None:
    if shortcut is None or shortcut.verdict not in ACCUSED:
        return None
    told = []
    if shortcut.conflicting:
        s = shortcut.conflicting
        told.append(
            f"On the {s['n']:,} samples where {quoted(shortcut.name)} misleads, the model is right in "
            f"{s['value']:.1f} % (95 % CI {s['low']:.1f} to {s['high']:.1f})."
        )
    if shortcut.alone:
        told.append(f"A model that saw nothing but {quoted(shortcut.name)} would get {shortcut.alone['value']:.1f} %.")
    if where := _where_conflicting(case, shortcut.follows):
        told.append(where)
    return {
        "text": told,
        "aligned": shortcut.aligned,
        "conflicting": shortcut.conflicting,
        "alone": shortcut.alone,
    }


def _where_conflicting(case: Case, follows: Tensor) -> str | None:
    """How many training samples conflict and how many others, where these are unlike: a balanced test split makes a
    count over all samples look large."""
    if case.fold is None or bool((case.fold >= 0).all()):
        return None
    counts = [(int((~follows & own).sum()), int(own.sum())) for own in (case.fold >= 0, case.fold < 0)]
    (few, n), (many, m) = counts
    if abs(few / n - many / m) < 0.05:
        return None
    return (
        f"Of the {n:,} training samples {few:,} conflict ({100 * few / n:.1f} %), of the {m:,} samples of other splits "
        f"{many:,} ({100 * many / m:.1f} %)."
    )


def power(case: Case) -> dict[str, Any] | None:
    """How often such verdicts were right where the truth was known (studies/audit), for this kind of input."""
    file = files(__package__).joinpath("power.json")
    if not file.is_file():
        return None
    domain = (
        "text" if case.texts else "table" if not case.images else "photo" if min(case.data.shape[1:]) >= 64 else "small"
    )
    measured: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return measured.get(domain)
