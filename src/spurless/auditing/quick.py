"""What gives the label away, with no model: `--quick`."""

from __future__ import annotations

from collections.abc import Callable

import torch

from spurless.auditing.advice import Advice, Facts
from spurless.auditing.case import Case
from spurless.auditing.decisions import Decisions
from spurless.auditing.facts import facts_of
from spurless.auditing.gather import AREA, attribute_cue, gather
from spurless.auditing.judge import CLEAR, order, overall, strange, too_many
from spurless.auditing.model import everything
from spurless.auditing.pool import pool_of
from spurless.auditing.record import AuditReport
from spurless.auditing.request import Request
from spurless.auditing.suspects import Suspect, available
from spurless.auditing.verdict import entry, headline
from spurless.core.data import Bundle
from spurless.nets import Net


def quick(
    whole: Bundle, asked: Request, device: torch.device, step: Callable[..., None], reviewed: Decisions | None = None
) -> AuditReport:
    """The available shortcuts only, in seconds."""
    seed = asked.seed
    held, fold = everything(whole, seed)
    logits = torch.zeros(len(held), len(whole.classes))
    net = Net(torch.nn.Flatten(), torch.nn.Linear(1, 1))
    case = Case(whole, net, "none", held, "all", device, logits, torch.zeros(len(held), 1), seed, True, None, fold)
    suspects = _suspects(case, step)
    suspects = order(suspects if reviewed is None else reviewed.without_legitimate(suspects))
    verdict = overall([s.verdict for s in suspects], sure=not _has_background(case))
    leading = next((s for s in suspects if s.verdict == "available"), None)
    return AuditReport(
        verdict=verdict,
        headline=_headline(verdict, leading, case, len(suspects)),
        **facts_of(case, None, asked.command, None),
        shortcut=None if leading is None else {"name": leading.name, "kind": leading.kind, "words": leading.words},
        findings=[entry(s) for s in suspects if s.verdict != "no evidence"],
        tested=[s.name for s in suspects if s.verdict == "no evidence"],
        advice=[_ask_a_model(case, asked, verdict)],
        decisions=None if reviewed is None else reviewed.summary(),
    )


def _has_background(case: Case) -> bool:
    """Whether these are photographs without an attribute: nothing here looks at their backgrounds."""
    return case.images and min(case.data.shape[1:]) >= AREA and not case.data.attributes


def _headline(verdict: str, leading: Suspect | None, case: Case, tested: int) -> str:
    if leading is not None or not tested:
        return headline(verdict, leading, case, tested).replace("; whether the model uses it could not be tested", "")
    n = len(case.held)
    told = f"None of {tested:,} properties gives the label of these {n:,} samples away. No model was asked"
    return f"{told}, and the background was not looked at." if _has_background(case) else f"{told}."


def _ask_a_model(case: Case, asked: Request, verdict: str) -> Advice:
    root = () if asked.root is None else ("--data-root", str(asked.root))
    facts = Facts(
        verdict, asked.source or "", False, False, len(case.held), len(case.data.classes), settings=asked.settings,
        root=root,
    )  # fmt: skip
    return {
        "title": "Ask a model, too",
        "why": f"Only the {facts.held_out:,} samples were looked at. Without --quick a model is asked what it relies "
        "on, and what that costs; of photographs the background is looked at, too.",
        "command": facts.command("audit"),
    }


def _suspects(case: Case, step: Callable[..., None]) -> list[Suspect]:
    """Every known attribute and every cue, with whether it gives the label away."""
    pool, labelled = pool_of(case), range(len(case.data.attributes) if case.held.a is not None else 0)
    cues = [cue for k in labelled if (cue := attribute_cue(case, pool, k, None)) is not None]
    suspects = [available(case, pool, cue) for cue in cues]
    for cue in gather(case, pool, model=False):
        step("cues", cue.name)
        suspects.append(available(case, pool, cue))
    for s in suspects:
        s.verdict = "available" if stands_out(s) else "no evidence"
    return suspects


def stands_out(s: Suspect) -> bool:
    """Whether the cue gives the label away and looks like something that was put there."""
    if too_many(s):
        return False
    if strange(s):
        return True
    clear = s.strength >= CLEAR and (s.crisp >= 0.8 or s.kind in ("attribute", "file")) and s.kind != "part"
    return clear or (s.strength >= 0.8 and s.crisp >= 0.6)
