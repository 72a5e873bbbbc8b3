"""Is the model taking a shortcut, where, what does it cost, and what should be done?"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import torch

from spurless.auditing import attributes, shift
from spurless.auditing.advice import TRY, advise
from spurless.auditing.case import Case, make_case
from spurless.auditing.columns import columns_of
from spurless.auditing.decisions import Decisions
from spurless.auditing.evidence import share
from spurless.auditing.exhibits import exhibits, suspicion
from spurless.auditing.facts import facts_of
from spurless.auditing.folder import check_folder, save, set_aside_if_changed
from spurless.auditing.gather import attribute_cue, gather
from spurless.auditing.judge import judge, of_attribute, order, overall
from spurless.auditing.model import (
    Audited,
    drawn_from_training,
    given,
    open_data,
    plain_case,
    train,
    with_held_out,
)
from spurless.auditing.pool import Pool, pool_of
from spurless.auditing.record import AuditReport
from spurless.auditing.request import Options, Request
from spurless.auditing.samples import write_samples
from spurless.auditing.situation import situation
from spurless.auditing.slices import find_slices
from spurless.auditing.steps import Step
from spurless.auditing.suspects import Suspect, available, balance, harm, use, worth_asking
from spurless.auditing.verdict import ACCUSED, Doubt, cost, doubt, entry, headline, power, shortcut_of
from spurless.core.errors import unknown
from spurless.metrics.scores import coverage

if TYPE_CHECKING:
    from torch import nn

    from spurless.core.data import Bundle

FOR_CUES = 0.7  # share of a time budget after which no further cue is tested in the model


def audit(
    data: Bundle | str | Mapping[str, Any],
    model: nn.Module | str | Path | None = None,
    out: str | Path | None = None,
    budget: float | None = None,
    fix: bool = False,
    **options: Unpack[Options],
) -> AuditReport:
    """Audit a model, or what the data would let a model do. Returns what audit.json holds.

    `model` is a module, a run's folder or a weights file, judged on samples that it was not trained on. Without one, a
    plain model answers every sample out of fold; `net` or `recipe` train a network instead, on part of the samples.
    `out` is the folder for audit.json, pictures and report.html (none: nothing is written); `budget` minutes for
    everything; `fix` repairs the model; `quick` looks at what the data gives away and at no model. `decisions` (of
    `spurless.review`): what is legitimate is not accused, and confirmed shortcuts are known attributes. `seed`,
    `device`, `root` and `progress` are those of `fit`; `command`, `source` and `settings` are how a shell would say it,
    for the report and for the commands that are advised.

    >>> found = audit({"name": "toy", "n": 600}, progress=False, device="cpu")
    >>> found.findings[0]["name"]
    'spurious'
    """
    unexpected = [name for name in options if name not in Options.__annotations__]
    if unexpected:
        raise unknown("option of audit", unexpected[0], Options.__annotations__)
    return _Audit(Request(data, model, out, budget, fix, **options)).run()


class _Audit:
    """One audit, from the data to the report."""

    def __init__(self, asked: Request):
        from spurless.train.device import pick_device

        self.started = time.monotonic()
        self.step = Step(asked.progress)
        self.step("data")
        self.device = pick_device(asked.device)
        self.whole = open_data(asked.data, asked.root, asked.model)
        self.asked = asked.named(self.whole)
        told = asked.decisions
        self.reviewed = told if isinstance(told, Decisions) or told is None else Decisions.read(told)

    def run(self) -> AuditReport:
        asked = self.asked
        if asked.folder is not None:
            check_folder(asked.folder, self.whole, asked.model, asked.net)
        if self.reviewed is not None:
            self.whole = self.reviewed.attached(self.whole)
        if asked.quick:
            from spurless.auditing.quick import quick

            report = quick(self.whole, asked, self.device, self.step, self.reviewed)
        else:
            report = self._with_model()
        report.seconds = round(time.monotonic() - self.started, 1)
        if asked.folder is not None:
            self.step("report")
            save(report, asked.folder)
        self.step.done()
        return report

    def _with_model(self) -> AuditReport:
        asked = self.asked
        self.step("model")
        case, audited, unseen = model_case(self.whole, asked, self.device, self.step)
        pool = pool_of(case)
        suspects = of_attributes(case, pool, self.step)
        entries = [s.extra["entry"] for s in suspects]
        cues, left_out = of_cues(case, pool, self.step, self._late)
        suspects += cues
        judge(case, suspects)
        suspects = order(suspects if self.reviewed is None else self.reviewed.without_legitimate(suspects))
        unsure, moved = doubt(case, unseen), shift.examine(case)
        verdict = _overall(suspects, unsure, moved)
        leading = _leading(case, suspects, verdict)
        shortcut = shortcut_of(leading)
        self.step("slices")
        slices = find_slices(case)
        self.step("pictures")
        shown = exhibits(case, shortcut, slices, asked.folder, hurry=self._late())
        report = AuditReport(
            verdict=verdict,
            headline=_headline(verdict, leading, case, suspects, unsure, moved),
            **facts_of(case, audited, asked.command, asked.model, left_out),
            shortcut=None if leading is None else {"name": leading.name, "kind": leading.kind, "words": leading.words},
            cost=cost(case, shortcut),
            findings=[entry(s) for s in suspects if s.verdict != "no evidence"],
            tested=[s.name for s in suspects if s.verdict == "no evidence"],
            power=power(case),
            shift=moved,
            attributes=[{k: v for k, v in e.items() if not isinstance(v, torch.Tensor)} for e in entries],
            coverage=coverage(case.data, "train" if case.fold is not None else case.split),
            advice=advise(
                situation(case, audited, asked, verdict, shortcut, unsure, bool(suspects), in_time=not self._late())
            ),
            decisions=None if self.reviewed is None else self.reviewed.summary(),
            **shown,
        )
        if asked.folder is not None:
            write_samples(case, suspects, suspicion(case, shortcut), asked.folder)
        if asked.fix:
            self.step("fix")
            from spurless.auditing.fix import MOST, repair

            fixed = repair(case, suspects if leading else [], asked.folder, 1 if self._late() else MOST)
            report.fix = fixed.to_dict()
            report.advice = [*fixed.advice(), *(each for each in report.advice if each["title"] != TRY)]
        return report

    def _late(self) -> bool:
        seconds = self.asked.seconds
        return seconds is not None and time.monotonic() - self.started > FOR_CUES * seconds


def _overall(suspects: list[Suspect], unsure: Doubt | None, moved: list[dict[str, Any]]) -> str:
    """The verdict of the audit; a test split that is clearly harder than the validation split is a gap."""
    verdict = overall([s.verdict for s in suspects], sure=unsure is None)
    harder = any(e["finding"] != "none" for e in moved)
    return "gap" if harder and verdict in ("no evidence", "cannot tell") else verdict


def _leading(case: Case, suspects: list[Suspect], verdict: str) -> Suspect | None:
    """The worst suspect of that verdict, with its harm."""
    if verdict not in (*ACCUSED, "cannot tell"):
        return None
    leading = next((s for s in suspects if s.verdict == verdict), None)
    if leading is not None and leading.harm is None and verdict in ACCUSED:
        harm(case, leading)
    return leading


def model_case(whole: Bundle, asked: Request, device: torch.device, step: Step) -> tuple[Case, Audited, bool]:
    """The model, its answers, and whether the answered samples are known to be new to it."""
    model, folder, seed = asked.model, asked.folder, asked.seed
    if model is None and asked.net is None and asked.recipe is None:
        case, audited = plain_case(whole, seed, device, asked.seconds, step)
        return case, audited, True
    bundle, split = with_held_out(whole, seed)
    if folder is not None and model is None:
        set_aside_if_changed(folder, bundle, seed)
    unseen = model is None or bundle is whole  # else the samples were drawn from those that the model may have learnt
    if not unseen:
        bundle = drawn_from_training(whole, bundle, model)
    if model is None:
        audited = train(bundle, split, asked, device)
    else:
        audited = given(model, bundle, asked.net, split)
    case = make_case(audited.data, audited.net, audited.source, split, device, seed, audited.own)
    return case, audited, unseen


def findings_again(
    data: Bundle | str | Mapping[str, Any],
    names: Sequence[str],
    report: AuditReport,
    model: nn.Module | str | Path | None = None,
    root: str | Path | None = None,
    device: str | torch.device | None = None,
) -> tuple[Case, list[Suspect]]:
    """The findings of these names, measured again on the audited data, in their order."""
    told = {f["name"]: f for f in report.findings}
    for name in names:
        if name not in told:
            raise unknown("finding", name, told)
    request = _Audit(Request(data, model, seed=int(report.settings["seed"]), root=root, device=device, progress=False))
    case, _, _ = model_case(request.whole, request.asked, request.device, request.step)
    pool = pool_of(case)
    again = {}
    if any(told[name]["kind"] == "attribute" for name in names):
        again = {s.name: s for s in of_attributes(case, pool, request.step)}
    wanted = set(names) - set(again)
    for cue in gather(case, pool) if wanted else ():
        if cue.name in wanted and cue.name not in again:
            again[cue.name] = available(case, pool, cue)
            harm(case, again[cue.name])
    missing = next((name for name in names if name not in again), None)
    if missing is not None:
        raise unknown("finding", missing, again)
    for name in names:
        again[name].verdict, again[name].used = told[name]["verdict"], told[name]["used"]
    return case, [again[name] for name in names]


def of_attributes(case: Case, pool: Pool, step: Callable[..., None]) -> list[Suspect]:
    """Every known attribute, and pairs of them, with the exact tests and whether a balanced model does better."""
    suspects = []
    columns = {c.name: c for c in columns_of(case.data)} if not case.images and not case.texts else {}
    for e in attributes.examine(case):
        step("attributes", e["name"])
        k = case.data.attributes.index(e["name"]) if e["name"] in case.data.attributes else None
        column = columns.get(e["name"])
        cue = None if k is None else attribute_cue(case, pool, k, None if column is None else column.swap)
        s = available(case, pool, cue) if cue is not None else _unread(case, e)
        s.follows, s.asked = e["follows"], torch.arange(len(case.held))
        s.says = _said(case, e, k, s.says)
        s.extra |= {"entry": e, "needed": e["needed"], "groups": e["groups"], "classes": len(case.data.classes)}
        s.harm = {"aligned": e["following"], "conflicting": e["contradicting"], "gap": e["gap"], "p": e["p"]}
        s.harm["balanced"] = None
        if e["finding"] in ("found", "suspected"):
            balance(case, s)
            if cue is not None and cue.swap is not None:
                s.asked, follows = pool.asked, s.follows
                use(case, pool, cue, s)
                s.asked, s.follows = torch.arange(len(case.held)), follows
        s.verdict = of_attribute(s)
        suspects.append(s)
    return suspects


def _said(case: Case, e: dict[str, Any], k: int | None, guessed: torch.Tensor) -> torch.Tensor:
    """The class that an attribute points to: by the model's answers, by what went together in its own training, or as
    it was `guessed` from the samples."""
    if e.get("says") is not None:
        says: torch.Tensor = e["says"]
        return says
    if case.own is False and k is not None and case.held.a is not None:
        table = case.data.aligned[k].long()
        return torch.where(table.any(0), table.argmax(0), -1)[case.held.a[:, k]]
    return guessed


def _unread(case: Case, e: dict[str, Any]) -> Suspect:
    """An attribute that is not known for all samples, or a pair of attributes."""
    alone = share([True] * round(100 * e["association"]) + [False] * (100 - round(100 * e["association"])))
    assert alone is not None
    says = e.get("says")
    nothing = case.predicted if says is None else says
    return Suspect(
        e["name"], f"'{e['name']}'", "attribute", alone, 0.0, e["association"] ** 2, None, nothing, e["follows"],
        torch.arange(len(case.held)),
    )  # fmt: skip


def of_cues(
    case: Case, pool: Pool, step: Callable[..., None], late: Callable[[], bool]
) -> tuple[list[Suspect], list[str]]:
    """Every property of the inputs: what it gives away, and where that is much, whether the model uses it. And the
    names of those that the model was not asked about because it was `late`."""
    suspects, left_out = [], []
    named = set(case.data.attributes)
    for cue in gather(case, pool):
        if cue.kind == "column" and cue.name in named:
            continue  # the attribute itself
        step("cues", cue.name)
        s = available(case, pool, cue)
        if worth_asking(case, s) and late():
            left_out.append(cue.name)
        elif worth_asking(case, s):
            use(case, pool, cue, s)
            harm(case, s)
            if s.effect >= 0.05 or cue.swap is None:
                balance(case, s)
        suspects.append(s)
    return suspects, left_out


def _headline(
    verdict: str, leading: Suspect | None, case: Case, suspects: list[Suspect], unsure: Any, moved: list[dict[str, Any]]
) -> str:
    if verdict == "gap" and leading is None and moved:
        return (
            "The model is weaker on the test split than on the validation split"
            f" by {moved[0]['effect']:.0f} points: something that held in its training does not hold there."
        )
    return headline(verdict, leading, case, len(suspects), unsure)
