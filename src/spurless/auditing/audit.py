"""Is the model taking a shortcut, where, what does it cost, and what should be done?"""

from __future__ import annotations

import datetime
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from spurless.auditing import attributes, shift
from spurless.auditing.advice import Facts, advise
from spurless.auditing.case import Case, make_case
from spurless.auditing.columns import columns_of
from spurless.auditing.decisions import Decisions
from spurless.auditing.evidence import share
from spurless.auditing.gallery import (
    draw,
    galleries,
    highlight,
    histogram,
    map2d,
    suspicious_rows,
    with_pictures,
    with_texts,
)
from spurless.auditing.judge import judge, of_attribute, order, overall
from spurless.auditing.model import (
    SIDE,
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
from spurless.auditing.samples import write_samples
from spurless.auditing.slices import find_slices
from spurless.auditing.suspects import Cue, Suspect, attribute_cue, available, balance, gather, harm, use, worth_asking
from spurless.auditing.text_words import of_errors
from spurless.auditing.verdict import (
    ACCUSED,
    Shortcut,
    cost,
    doubt,
    entry,
    headline,
    power,
    shortcut_of,
)
from spurless.core.digests import same_content
from spurless.core.errors import UserError
from spurless.core.files import atomic, read_toml
from spurless.core.fingerprint import fingerprint
from spurless.core.messages import displays, log
from spurless.data.anything import is_named
from spurless.metrics.groups import confusion
from spurless.metrics.scores import coverage
from spurless.train.run_folder import SETTINGS

if TYPE_CHECKING:
    from torch import nn

    from spurless.core.data import Bundle
    from spurless.core.recipe import Recipe
    from spurless.train.networks import NetSpec
    from spurless.train.progress import Watcher

FILE, REPORT = "audit.json", "report.html"
SURE = 0.99  # a probability that the model gives to a class other than the label, for the label to look wrong
STEPS = ("data", "model", "attributes", "cues", "slices", "pictures", "fix", "report")


def audit(
    data: Bundle | str | Mapping[str, Any],
    model: nn.Module | str | Path | None = None,
    out: str | Path | None = None,
    budget: float | None = None,
    fix: bool = False,
    net: NetSpec | None = None,
    recipe: Recipe | Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str | torch.device | None = None,
    root: str | Path | None = None,
    progress: bool | Watcher | None = None,
    command: str | None = None,
    source: str | None = None,
    settings: tuple[str, ...] = (),
    quick: bool = False,
    decisions: Decisions | str | Path | None = None,
) -> AuditReport:
    """Audit a model, or what the data would let a model do. Returns what audit.json holds.

    `model` is a module, a run's folder or a weights file, judged on samples that it was not trained on. Without one, a
    plain model answers every sample out of fold; `net` or `recipe` train a network instead, on part of the samples.
    `out` is the folder for audit.json, pictures and report.html (none: nothing is written); `budget` minutes for
    everything; `fix` repairs the model; `quick` looks at what the data gives away and at no model. `decisions` (of
    `spurless.review`): what is legitimate is not accused, and confirmed shortcuts are known attributes. `command`,
    `source` and `settings` are how a shell would say it, for the report and for the commands that are advised.

    >>> found = audit({"name": "toy", "n": 600}, progress=False, device="cpu")
    >>> found.findings[0]["name"]
    'spurious'
    """
    from spurless.train.device import pick_device

    started, place = time.monotonic(), pick_device(device)
    folder = None if out is None else Path(out)
    step = Step(progress)
    step("data")
    whole = open_data(data, root, model)
    data = whole if not is_named(data) else fspath(data) if isinstance(data, PathLike) else data
    if source is None:
        source = data if isinstance(data, str) else str(data["name"]) if isinstance(data, Mapping) else ""
        if source == "" and whole.settings:  # else it was made from arrays, which no command line can name
            source = whole.source
    if isinstance(data, Mapping) and not settings:
        settings = _pairs("data", data)
    if isinstance(model, (str, Path)) or not isinstance(data, (str, Mapping)):
        settings = _with_its_own(settings, whole)
    if folder is not None:
        _check_folder(folder, whole, model, net)
    reviewed = decisions if isinstance(decisions, Decisions) or decisions is None else Decisions.read(decisions)
    if reviewed is not None:
        whole = reviewed.attached(whole)
    if quick:
        return _quick(whole, seed, place, folder, command, started, step, reviewed)
    seconds = None if budget is None else 60 * budget
    step("model")
    case, audited, unseen = _model(whole, model, net, recipe, seconds, folder, place, seed, progress)
    pool = pool_of(case)
    suspects = _of_attributes(case, pool, step)
    known = [s.extra["entry"] for s in suspects]
    suspects += _of_cues(case, pool, step)
    judge(case, suspects)
    suspects = order(suspects if reviewed is None else reviewed.without_legitimate(suspects))
    unsure = doubt(case, unseen)
    moved = shift.examine(case)
    verdict = overall([s.verdict for s in suspects], sure=unsure is None)
    if verdict in ("no evidence", "cannot tell") and any(e["finding"] != "none" for e in moved):
        verdict = "gap"
    leading = next((s for s in suspects if s.verdict == verdict and verdict in (*ACCUSED, "cannot tell")), None)
    if leading is not None and leading.harm is None and verdict in ACCUSED:
        harm(case, leading)
    shortcut = shortcut_of(leading)
    step("slices")
    slices = find_slices(case)
    situation = replace(
        _situation(case, audited, source, verdict, shortcut, budget, settings),
        model=_same_model(model, net),
        recipe=_pairs("recipe", recipe),
        root=() if root is None else ("--data-root", str(root)),
        tested=bool(suspects),
        doubt=unsure,
    )
    found = AuditReport(
        verdict=verdict,
        headline=_headline(verdict, leading, case, suspects, unsure, moved),
        **_facts(case, audited, command, model),
        shortcut=None if leading is None else {"name": leading.name, "kind": leading.kind, "words": leading.words},
        cost=cost(shortcut),
        findings=[entry(s) for s in suspects if s.verdict != "no evidence"],
        tested=[s.name for s in suspects if s.verdict == "no evidence"],
        power=power(case),
        shift=moved,
        attributes=[_plain(e) for e in known],
        coverage=coverage(case.data, "train" if case.fold is not None else case.split),
        advice=advise(situation),
        decisions=None if reviewed is None else reviewed.summary(),
        **_where(case, shortcut, slices, folder, step),
    )
    if folder is not None:
        write_samples(case, suspects, suspicion(case, shortcut), folder)
    if fix:
        step("fix")
        from spurless.auditing.fix import repair

        found.fix = repair(case, leading, _cue_named(case, pool, leading), folder)
    found.seconds = round(time.monotonic() - started, 1)
    if folder is not None:
        step("report")
        save(found, folder)
    step.done()
    return found


def _model(
    whole: Bundle,
    model: Any,
    net: NetSpec | None,
    recipe: Any,
    seconds: float | None,
    folder: Path | None,
    device: torch.device,
    seed: int,
    progress: bool | Watcher | None,
) -> tuple[Case, Audited, bool]:
    """The model, its answers, and whether the answered samples are known to be new to it."""
    if model is None and net is None and recipe is None:
        case, audited = plain_case(whole, seed, device)
        return case, audited, True
    bundle, split = with_held_out(whole, seed)
    if folder is not None and model is None:
        _set_aside_if_changed(folder, bundle, seed)
    unseen = model is None or bundle is whole  # else the samples were drawn from those that the model may have learnt
    if not unseen:
        bundle = drawn_from_training(whole, bundle, model)
    if model is None:
        audited = train(bundle, split, net, recipe, seconds, folder, device, seed, progress)
    else:
        audited = given(model, bundle, net, split)
    case = make_case(audited.data, audited.net, audited.source, split, device, seed, audited.own)
    return case, audited, unseen


def _of_attributes(case: Case, pool: Pool, step: Callable[..., None]) -> list[Suspect]:
    """Every known attribute, and pairs of them, with the exact tests and whether a balanced model does better."""
    found = []
    columns = {c.name: c for c in columns_of(case.data)} if not case.images and not case.texts else {}
    for e in attributes.examine(case):
        step("attributes", e["name"])
        k = case.data.attributes.index(e["name"]) if e["name"] in case.data.attributes else None
        column = columns.get(e["name"])
        cue = None if k is None else attribute_cue(case, pool, k, None if column is None else column.swap)
        s = available(case, pool, cue) if cue is not None else _unread(case, e)
        s.follows, s.asked = e["follows"], torch.arange(len(case.held))
        if e.get("says") is not None:
            s.says = e["says"]
        elif case.own is False and k is not None and case.held.a is not None:  # what went together in its own training
            table = case.data.aligned[k].long()
            s.says = torch.where(table.any(0), table.argmax(0), -1)[case.held.a[:, k]]
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
        found.append(s)
    return found


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


def _of_cues(case: Case, pool: Pool, step: Callable[..., None]) -> list[Suspect]:
    """Every property of the inputs: what it gives away, and where that is much, whether the model uses it."""
    found = []
    named = set(case.data.attributes)
    for cue in gather(case, pool):
        if cue.kind == "column" and cue.name in named:
            continue  # the attribute itself
        step("cues", cue.name)
        s = available(case, pool, cue)
        if worth_asking(case, s):
            _ask(case, pool, cue, s)
        found.append(s)
    return found


def _ask(case: Case, pool: Pool, cue: Cue, s: Suspect) -> None:
    use(case, pool, cue, s)
    harm(case, s)
    if s.effect >= 0.12 or cue.swap is None:
        balance(case, s)


def _cue_named(case: Case, pool: Pool, leading: Suspect | None) -> Cue | None:
    """The cue of the leading finding, for a repair that exchanges it."""
    if leading is None or leading.kind == "attribute":
        return None
    return next((cue for cue in gather(case, pool) if cue.name == leading.name), None)


def _headline(
    verdict: str, leading: Suspect | None, case: Case, suspects: list[Suspect], unsure: Any, moved: list[dict[str, Any]]
) -> str:
    if verdict == "gap" and leading is None and moved:
        return (
            "The model is weaker on the test split than on the validation split"
            f" by {moved[0]['effect']:.0f} points: something that held in its training does not hold there."
        )
    return headline(verdict, leading, case, len(suspects), unsure)


def _quick(
    whole: Bundle,
    seed: int,
    device: torch.device,
    folder: Path | None,
    command: str | None,
    started: float,
    step: Step,
    reviewed: Decisions | None = None,
) -> AuditReport:
    """What gives the label away, with no model."""
    from spurless.auditing.model import everything
    from spurless.nets import Net

    held, fold = everything(whole, seed)
    logits = torch.zeros(len(held), len(whole.classes))
    net = Net(torch.nn.Flatten(), torch.nn.Linear(1, 1))
    case = Case(whole, net, "none", held, "all", device, logits, torch.zeros(len(held), 1), seed, True, None, fold)
    pool = pool_of(case)
    suspects = []
    for k in range(len(whole.attributes) if held.a is not None else 0):
        cue = attribute_cue(case, pool, k, None)
        suspects += [] if cue is None else [available(case, pool, cue)]
    for cue in gather(case, pool, model=False):
        step("cues", cue.name)
        suspects.append(available(case, pool, cue))
    for s in suspects:
        crisp = s.extra.get("crisp", 1.0)
        clear = s.strength >= 0.65 and (crisp >= 0.8 or s.kind in ("attribute", "file")) and s.kind != "part"
        s.verdict = "available" if clear or (s.strength >= 0.8 and crisp >= 0.6) else "no evidence"
    suspects = order(suspects if reviewed is None else reviewed.without_legitimate(suspects))
    verdict = overall([s.verdict for s in suspects])
    leading = next((s for s in suspects if s.verdict == "available"), None)
    found = AuditReport(
        verdict=verdict,
        headline=headline(verdict, leading, case, len(suspects)).replace(
            "; whether the model uses it could not be tested", ""
        ),
        **_facts(case, None, command, None),
        shortcut=None if leading is None else {"name": leading.name, "kind": leading.kind, "words": leading.words},
        findings=[entry(s) for s in suspects if s.verdict != "no evidence"],
        tested=[s.name for s in suspects if s.verdict == "no evidence"],
        power=power(case),
        decisions=None if reviewed is None else reviewed.summary(),
        seconds=round(time.monotonic() - started, 1),
    )
    if folder is not None:
        save(found, folder)
    step.done()
    return found


def save(found: AuditReport, folder: Path) -> None:
    """Write audit.json, and the report that is made from it."""
    from spurless.report import write_audit

    folder.mkdir(parents=True, exist_ok=True)
    with atomic(folder / FILE) as part:
        part.write_text(found.to_json(), encoding="utf-8")
    write_audit(folder, folder / REPORT)


def _check_folder(folder: Path, data: Bundle, model: Any, net: NetSpec | None) -> None:
    """Refuse a folder that holds anything but an audit of the same data and model, or what a killed one left there."""
    if (folder / FILE).exists():
        fits = _is_of(folder / FILE, data, model, net)
    else:
        fits = not folder.exists() or _left_by_a_kill(folder, trains=model is None)
    if not fits:
        raise UserError(f"{folder} is not empty and holds no audit of this. Name another --out folder.")


def _set_aside_if_changed(folder: Path, data: Bundle, seed: int) -> None:
    """Give another name to what a finished audit trained on rows that are others by now: it would not go on with these.
    Rows that were drawn with another seed are others too, but that is another audit, which is refused."""
    file = folder / "model" / SETTINGS
    if not (folder / FILE).exists() or not file.exists():
        return
    before = read_toml(file)
    if before.get("seed") != seed or same_content(before.get("data", {}).get("fingerprint"), fingerprint(data)):
        return
    for made in ("model", "fix"):
        if (folder / made).exists():
            names = (f"{made}-before-{n}" if n > 1 else f"{made}-before" for n in count(1))
            name = next(name for name in names if not (folder / name).exists())
            (folder / made).rename(folder / name)
            log.warning(f"{data.name} has changed since the audit in {folder}: its {made} is kept as {name}.")


def _is_of(file: Path, data: Bundle, model: Any, net: NetSpec | None) -> bool:
    """Whether the file is an audit of this data and model; the rows may be others, such as mended ones."""
    from spurless.train.identity import describe_net

    if model is None:
        name, source = None if net is None else describe_net(net)["name"], "trained for this audit"
    else:
        name, source = Path(model).name if isinstance(model, (str, Path)) else type(model).__name__, "given"
    try:
        saved = json.loads(file.read_text(encoding="utf-8"))
        made = saved["model"] or {"name": None, "source": "trained for this audit"}  # a quick one has no model
        of = saved["data"]["name"], saved["settings"]["data"], made["name"], made["source"]
        place = {"model": saved["settings"]["model"]} if "model" in saved["settings"] else {}
    except (ValueError, KeyError, TypeError):  # damaged, or of another program
        return False
    return (
        of[:2] == (data.name, _in_words(data.settings))
        and name in (None, of[2])
        and of[3] == source
        and place
        in (
            {},
            _place(model),
        )
    )


def _left_by_a_kill(folder: Path, trains: bool) -> bool:
    """Whether all that lies here is what an audit writes before its file: the model first, then pictures and fixes."""
    names = _names(folder)
    if trains and "model" in names:  # that it is this audit's own is checked when its training goes on
        return names <= {"model", "pictures", "fix", "review", REPORT}
    drawn = _names(folder / "pictures") if "pictures" in names else set()
    return names <= {"pictures", "fix", "review"} and all(re.fullmatch(r"\d+(-map)?\.png", name) for name in drawn)


def _names(folder: Path) -> set[str]:
    """What lies there; a name with a dot is what a kill left of a file that was being written."""
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def _place(model: Any) -> dict[str, str]:
    """Where the model lies, if it is a path: its name alone may be that of many."""
    return {"model": str(Path(model).resolve())} if isinstance(model, (str, Path)) else {}


def _in_words(settings: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in settings.items()}


class Step:
    """Says what the audit is at, in one line that is drawn over, where someone watches."""

    def __init__(self, progress: bool | Watcher | None):
        from rich.console import Console

        console = Console(stderr=True)
        shown = console.is_terminal if progress is None else progress is True
        self.status = console.status("") if shown else None
        if self.status is not None:
            displays.append(self.status.stop)

    def __call__(self, name: str, detail: str = "") -> None:
        if self.status is None:
            return
        if name in ("model", "fix"):  # these have bars of their own
            self.status.stop()
            return
        self.status.update(f"audit {STEPS.index(name) + 1}/{len(STEPS)}: {name} {detail}")
        self.status.start()

    def done(self) -> None:
        if self.status is not None:
            self.status.stop()


def _facts(case: Case, audited: Audited | None, command: str | None, model: Any) -> dict[str, Any]:
    from spurless import __version__
    from spurless.train.result import versions

    data = case.data
    return {
        "spurless": __version__,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": command,
        "data": {
            "name": data.name,
            "samples": sum(len(split) for split in data.splits.values()),
            "answered": len(case.held),
            "split": case.split,
            "classes": list(data.classes),
            "attributes": list(data.attributes),
            "notes": list(data.notes),
        },
        "model": None
        if audited is None
        else {"name": audited.name, "source": audited.source, "average": share(case.right.numpy())},
        "settings": {"seed": case.seed, "data": _in_words(data.settings)} | _place(model),
        "versions": versions(case.device),
    }


def suspicion(case: Case, shortcut: Shortcut | None) -> Tensor:
    """(n,) 1 − the probability of each row's label; rows that follow the shortcut count for half."""
    score = 1 - case.logits.softmax(1).gather(1, case.held.y[:, None])[:, 0]
    return score if shortcut is None else torch.where(shortcut.follows, score / 2, score)


def _where(
    case: Case, shortcut: Shortcut | None, slices: list[dict[str, Any]], folder: Path | None, step: Callable[..., None]
) -> dict[str, Any]:
    """The rows, galleries, slices and charts; with pictures where there is a folder for them."""
    step("pictures")
    score = suspicion(case, shortcut)
    conflicting = ~case.right if shortcut is None else ~shortcut.follows
    rows = suspicious_rows(case, shortcut and shortcut.says, score)
    shown = galleries(case, conflicting, score)
    names = ("aligned", "conflicting") if shortcut else ("right", "wrong")
    everything = torch.ones(len(score), dtype=torch.bool)
    kinds = {"aligned": ~conflicting, "conflicting": conflicting} if shortcut else {"all": everything}
    if folder is not None:
        wanted = [r["row"] for r in rows] + [i["row"] for g in shown for k in ("aligned", "conflicting") for i in g[k]]
        drawn = draw(case, wanted + [r for s in slices for r in s["rows"][:6]], folder)
        rows = with_pictures(rows, drawn)
        shown = [g | {k: with_pictures(g[k], drawn) for k in ("aligned", "conflicting")} for g in shown]
        slices = [s | {"pictures": [drawn[r][0] for r in s["rows"][:6] if r in drawn]} for s in slices]
    if folder is not None and case.texts:
        worst = {id(s): _worst(s["rows"], score) for s in slices}
        texts = highlight(case, wanted + [r for of in worst.values() for r in of])
        rows = with_texts(rows, texts)
        shown = [g | {k: with_texts(g[k], texts) for k in ("aligned", "conflicting")} for g in shown]
        slices = [s | {"texts": [texts[r] for r in worst[id(s)]]} for s in slices]
    return {
        "kinds": list(names),
        "rows": rows,
        "gallery": shown,
        "slices": [{k: v for k, v in s.items() if k != "rows"} for s in slices],
        **({"words": of_errors(case)} if case.texts else {}),
        "histogram": histogram(score, conflicting),
        "confusion": confusion(case.held.y, case.predicted, case.data.classes, kinds),
        "map2d": map2d(case, conflicting.long(), names, most=800) if folder is not None else None,
    }


def _worst(rows: list[int], score: Tensor, most: int = 2) -> list[int]:
    """The rows of a slice that are shown: those with the highest scores."""
    return sorted(rows, key=lambda r: (-float(score[r]), r))[:most]


def _situation(
    case: Case,
    audited: Audited,
    source: str,
    verdict: str,
    shortcut: Shortcut | None,
    budget: float | None,
    settings: tuple[str, ...],
) -> Facts:
    named = shortcut is not None and shortcut.kind == "attribute"
    chance, other = case.logits.softmax(1).max(1)
    odd = (chance > SURE) & (other != case.held.y)
    if shortcut is not None and shortcut.says is not None:
        odd &= shortcut.says != other  # a shortcut that points there explains it
    return Facts(
        verdict=verdict,
        source=source,
        train_labels=named and case.data.train.a is not None,
        val_labels=named and case.data.val is not None and case.data.val.a is not None,
        rows=len(case.data.train),
        held_out=len(case.held),
        classes=len(case.data.classes),
        contradicting=None if shortcut is None else int((~shortcut.follows).sum()),
        conflicting=shortcut.conflicting["value"] if shortcut and shortcut.conflicting else None,
        aligned=shortcut.aligned["value"] if shortcut and shortcut.aligned else None,
        seconds=audited.seconds or None,
        budget=budget,
        wrong_labels=float(odd.float().mean()),
        name=None if shortcut is None else shortcut.name,
        settings=settings,
        needed=_rows_to_hold(case, shortcut),
        network=_train_options(audited, settings),
        attributes=case.data.attributes,
        is_input=shortcut is not None and any(code["column"] == shortcut.name for code in case.data.coding),
    )


def _train_options(audited: Audited, settings: tuple[str, ...]) -> tuple[str, ...]:
    """How `train` names the audited network and the size of its images, where they are not the data's own."""
    size = audited.data.settings.get("size")
    # A size that nobody named is the audit's, or that of the given run: `train` would choose neither by itself.
    chosen = size == SIDE or (size is not None and audited.source == "given")
    words = ("--set", f"data.size={size}") if chosen and not any(s.startswith("data.size=") for s in settings) else ()
    network = _network_options(audited.spec)
    return words if network == ("--net", audited.data.net) else (*network, *words)


def _network_options(spec: NetSpec | None) -> tuple[str, ...]:
    """--net NAME --set net.SETTING=VALUE; nothing for a network that has no name on a command line."""
    if isinstance(spec, str):
        return "--net", spec
    if not isinstance(spec, Mapping) or "own" in spec:
        return ()
    return "--net", spec["name"], *(word for pair in _pairs("net", spec) for word in ("--set", pair))


def _with_its_own(settings: tuple[str, ...], data: Bundle) -> tuple[str, ...]:
    """Settings that the data has, from the audited run or as it was loaded: without them, advised commands would be
    about other data."""
    from spurless.compress.loading import unusual_settings

    typed = {pair.partition("=")[0] for pair in settings}
    return (*settings, *(p for p in _pairs("data", unusual_settings(data)) if p.partition("=")[0] not in typed))


def _pairs(section: str, given: Any) -> tuple[str, ...]:
    """Settings as --set takes them.

    >>> _pairs("net", {"name": "mlp", "widths": (16, 8), "dropout": None, "norm": True})
    ('net.widths=[16, 8]', 'net.dropout=none', 'net.norm=true')
    """
    table = given if isinstance(given, Mapping) else {}
    return tuple(f"{section}.{name}={_value(value)}" for name, value in table.items() if name != "name")


def _value(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (tuple, list)) else str(value)


def _same_model(model: Any, net: NetSpec | None) -> tuple[str, ...]:
    """The options of `audit` that were given for the model: without them it would train and audit another one."""
    path = ("--model", str(model)) if isinstance(model, (str, Path)) else ()
    return *path, *_network_options(net)


def _rows_to_hold(case: Case, shortcut: Shortcut | None) -> int | None:
    """Held-out rows in all, for as many contradicting ones as the test needs."""
    if shortcut is None or shortcut.needed is None:
        return None
    have = int((~shortcut.follows).sum())
    return round(len(case.held) * shortcut.needed / have) if have else None


def _plain(entry: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in entry.items() if not isinstance(v, Tensor)}
