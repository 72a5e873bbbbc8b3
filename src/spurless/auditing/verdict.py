"""From tests to a verdict, and to sentences that say what it rests on."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from spurless.auditing.attributes import FEWEST_ROWS
from spurless.auditing.case import Case
from spurless.auditing.evidence import Score, share
from spurless.core.stats import mean_of_cells
from spurless.data.describe import best_guess, counts

VERDICTS = ("shortcut found", "suspected", "cannot tell", "no evidence")  # the worst first
OF_FINDING = {"found": "shortcut found", "suspected": "suspected", "cannot tell": "cannot tell", "none": "no evidence"}


class Shortcut(NamedTuple):
    """What the model seems to go by: the strongest of all findings, or the closest to one."""

    name: str
    kind: str  # attribute or cue
    finding: str
    follows: Tensor  # (n,) bool over the held-out rows
    says: Tensor | None  # (n,) the class that it points to; None where it does not single one out
    following: Score | None
    contradicting: Score | None
    alone: Score | None  # what a model that saw nothing else would get
    needed: int | None  # contradicting rows that a test takes


class Doubt(NamedTuple):
    """Why it would mean nothing that no shortcut was found."""

    says: str
    advice: str | None = None  # what to do about it
    why: str = ""


def doubt(case: Case, unseen: bool) -> Doubt | None:
    """Whether there is one. `unseen`: whether the held-out rows are known to be new to the model."""
    if not unseen:
        return Doubt(
            "No rows are known to be new to the model, and on rows that it has learnt a shortcut need not show."
        )
    accuracy, guess = share(case.right.numpy()), 100 * int(case.held.y.bincount().max()) / len(case.held)
    if accuracy is not None and accuracy["low"] <= guess and not _knows_classes(case):
        return Doubt(
            f"The model is right on {accuracy['value']:.1f} % of the held-out rows, and to guess the commonest class "
            f"would be on {guess:.1f} %: too little is learnt to tell what it goes by.",
            "Train the model until it is better than a guess",
            f"{len(case.held):,} held-out rows do not show that it is. Look at its learning rate and length, at the "
            "labels, and at whether the inputs are made as in its training; of rare classes collect more rows.",
        )
    if case.own is False and (case.images or case.texts):
        return Doubt(
            "The model was trained on other data than this: what says nothing of the label here may have said much "
            "there.",
            "Audit it on the data that it was trained on",
            "Cues are looked for among the training rows at hand, and those are not the ones that it has learnt from. "
            "Attributes that are named are tested by its answers, wherever it learnt them.",
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


def overall(findings: list[str], sure: bool = True) -> str:
    """The verdict of an audit: its worst finding. "Cannot tell" only where nothing else was found; but where there is a
    doubt (not `sure`), finding nothing is no evidence of anything good.

    >>> overall(["none", "suspected", "cannot tell"]), overall(["none", "cannot tell"]), overall([])
    ('suspected', 'cannot tell', 'cannot tell')
    >>> overall(["none"]), overall(["none"], sure=False)
    ('no evidence', 'cannot tell')
    """
    verdicts = {OF_FINDING[f] for f in findings} or {"cannot tell"}
    if not sure:
        verdicts.add("cannot tell")
    return next(v for v in VERDICTS if v in verdicts)


def leading(case: Case, attributes: list[dict[str, Any]], cues: list[dict[str, Any]]) -> Shortcut | None:
    """The shortcut to talk about: found before suspected, a known attribute before a cue."""
    rank = {"found": 0, "suspected": 1, "cannot tell": 2}
    known = sorted((e for e in attributes if e["finding"] in rank), key=lambda e: rank[e["finding"]])
    seen = sorted((e for e in cues if e["finding"] in rank), key=lambda e: rank[e["finding"]])
    if known and (not seen or rank[known[0]["finding"]] <= rank[seen[0]["finding"]]):
        return _attribute(case, known[0])
    return _cue(case, seen[0]) if seen else None


def _attribute(case: Case, entry: dict[str, Any]) -> Shortcut:
    data = case.data
    says, alone = entry.get("says"), None
    known = entry["by"] == "rows" and entry["name"] in data.attributes
    if known and data.train.a is not None and case.held.a is not None:
        k = data.attributes.index(entry["name"])
        table = data.aligned[k].numpy()  # what the model has learnt
        if case.own is not False:
            table = counts(data.train.y.numpy(), data.train.a[:, k].numpy(), len(data.classes), len(data.values[k]))
            right = round(best_guess(table)[0] * len(data.train))
            alone = share(torch.arange(len(data.train)).numpy() < right)
        points_to = np.where(table.any(0), table.argmax(0), -1)  # (values,) -1: to none
        says = torch.from_numpy(points_to)[case.held.a[:, k]]
    scores = entry["following"], entry["contradicting"], alone
    return Shortcut(entry["name"], "attribute", entry["finding"], entry["follows"], says, *scores, entry["needed"])


def _cue(case: Case, entry: dict[str, Any]) -> Shortcut:
    follows, says = torch.ones(len(case.held), dtype=torch.bool), case.predicted.clone()
    says[entry["rows"]] = entry["says"]
    follows[entry["rows"]] = entry["says"] == case.held.y[entry["rows"]]
    scores = entry["following"], entry["contradicting"], entry["alone"]
    return Shortcut(entry["name"], "cue", entry["finding"], follows, says, *scores, needed=None)


def evidence(attributes: list[dict[str, Any]], cues: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each test in a sentence, with its numbers."""
    return [_of_attribute(e) for e in attributes] + [_of_cue(e) for e in cues]


def _of_attribute(e: dict[str, Any]) -> dict[str, Any]:
    gap, n = e["gap"], e["contradicting"]["n"] if e["contradicting"] else 0
    if not e["varies"]:
        text = f"'{e['name']}' has the same value in all training rows: there is nothing to test."
    elif e["by"] == "answers":
        text = _by_answers(e, n)
    elif e["finding"] == "cannot tell" and e["rows"] < FEWEST_ROWS:
        text = (
            f"It takes about {FEWEST_ROWS} training rows to see how '{e['name']}' goes with the label, not {e['rows']}."
        )
    elif e["finding"] == "cannot tell":
        text = f"Only {n:,} held-out rows contradict '{e['name']}'; about {e['needed']:,} are needed to tell."
    elif gap is None:
        text = f"No held-out row contradicts '{e['name']}'."
    else:
        text = (
            f"Accuracy is {e['following']['value']:.1f} % where '{e['name']}' agrees with the label as usual and "
            f"{e['contradicting']['value']:.1f} % where it does not ({n:,} rows); its association with the label is "
            f"{e['association']:.2f} of 1."
        )
        if e["finding"] == "none" and e["association_p"] >= 0.025:
            text += (
                " That is no more than chance would have it, and what says nothing of the label is no shortcut to it."
            )
    return {
        "test": f"errors by attribute '{e['name']}', given the label",
        "finding": e["finding"],
        "text": text,
        "p": e["p"],
        "effect": gap and gap["value"],
        "low": gap and gap["low"],
        "high": gap and gap["high"],
    }


def _by_answers(e: dict[str, Any], n: int) -> str:
    """Of a model whose own training rows are not at hand: where it leans to is read off its answers."""
    if e["following"] is None:
        return f"Given the label, the model's answers do not depend on '{e['name']}'."
    if e["gap"] is None or (e["finding"] == "cannot tell" and n < e["needed"]):
        return (
            f"Only {n:,} held-out rows have a '{e['name']}' that the model takes for a sign of another label; about "
            f"{e['needed']:,} are needed to tell."
        )
    numbers = (
        f"it is right on {e['following']['value']:.1f} % of the rows whose '{e['name']}' it takes for a sign of their "
        f"label, and on {e['contradicting']['value']:.1f} % of the other {n:,}."
    )
    if e["finding"] == "none":
        return f"Given the label, the model hardly answers by '{e['name']}': {numbers}"
    if e["finding"] == "cannot tell":
        return (
            f"The model may answer by '{e['name']}': {numbers} But that is not shown in two classes and at two values, "
            "and rows that are simply harder look like it."
        )
    return f"Given the label, the model answers by '{e['name']}': {numbers} It may have learnt that from other rows."


def _of_cue(e: dict[str, Any]) -> dict[str, Any]:
    with_cue, with_rest, kind = e["goes_with_cue"], e["goes_with_rest"], e["kind"]
    text = f"Alone, {e['words']} would give {e['alone']['value']:.1f} %. "
    text += (
        f"Of {e['pairs']:,} {kind}s that got it from one of another class, the model takes {with_cue:,} for the "
        f"class of the donor and {with_rest:,} for their own."
        if e["pairs"]
        else f"The model gets too few {kind}s right to exchange it between them."
    )
    part = share(torch.arange(with_cue + with_rest).numpy() < with_cue)
    if part:
        text += f" It sides with the donor in {part['value']:.0f} % ({part['low']:.0f} to {part['high']:.0f})."
    return {
        "test": f"exchange of {e['name']} between {kind}s",
        "finding": e["finding"],
        "text": text,
        "p": e["p"],
        "effect": None,  # a share, not points of accuracy
        "low": None,
        "high": None,
    }


def headline(
    verdict: str,
    shortcut: Shortcut | None,
    case: Case,
    moved: list[dict[str, Any]],
    doubt: Doubt | None = None,
    tested: bool = True,
) -> str:
    """One sentence for someone who reads nothing else. `tested`: whether there was an attribute or a cue to test."""
    if verdict == "cannot tell" and not tested:
        return (
            "Nothing was tested: no attribute with more than one value is named, and a table has no other cues that "
            "could be looked into."
        )
    if verdict == "cannot tell" and doubt is not None:
        return doubt.says
    if verdict == "no evidence":
        return f"No evidence of a shortcut in {len(case.held):,} held-out rows, as far as these tests can see."
    if verdict == "suspected" and (shortcut is None or shortcut.finding == "cannot tell"):
        drop = f", a drop of {moved[0]['effect']:.0f} points" if moved else ""
        return f"The model may go by something that holds in its training data and not in the test split{drop}."
    if shortcut is None or verdict == "cannot tell":
        need = ""
        if shortcut is not None and shortcut.needed:
            have = int((~shortcut.follows).sum())
            need = f": about {shortcut.needed:,} that contradict '{shortcut.name}' are needed, and {have:,} are there"
        return f"There are too few rows to tell whether the model takes a shortcut{need}."
    word = "goes by" if verdict == "shortcut found" else "may go by"
    what = (
        f"'{shortcut.name}'"
        if shortcut.kind == "attribute"
        else f"the {shortcut.name} of the {'text' if case.texts else 'image'}"
    )
    costs = ""
    if shortcut.contradicting and shortcut.following:
        costs = (
            f": it is right on {shortcut.contradicting['value']:.0f} % of the samples that contradict it, and on "
            f"{shortcut.following['value']:.0f} % of the others"
        )
    return f"The model {word} {what}{costs}."


def cost(shortcut: Shortcut | None) -> dict[str, Any] | None:
    if shortcut is None:
        return None
    told = []
    if shortcut.contradicting:
        s = shortcut.contradicting
        told.append(
            f"On the {s['n']:,} held-out samples that contradict '{shortcut.name}' the model is right in "
            f"{s['value']:.1f} % ({s['low']:.1f} to {s['high']:.1f})."
        )
    if shortcut.alone:
        told.append(f"A model that saw nothing but '{shortcut.name}' would get {shortcut.alone['value']:.1f} %.")
    return {
        "text": told,
        "following": shortcut.following,
        "contradicting": shortcut.contradicting,
        "shortcut_alone": shortcut.alone,
    }


def reliability(case: Case) -> dict[str, Any] | None:
    """How often such verdicts were wrong where the truth was known: measured by studies/calibration.py."""
    file = files(__package__).joinpath("calibration_text.json" if case.texts else "calibration.json")
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
