"""Is the model taking a shortcut, where, what does it cost, and what should be done?"""

from __future__ import annotations

import datetime
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from spurless.auditing import attributes, hidden, shift
from spurless.auditing.advice import Facts, advise
from spurless.auditing.case import Case, make_case
from spurless.auditing.columns import candidates
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
from spurless.auditing.model import SIDE, Audited, drawn_from_training, given, open_data, suited, train, with_held_out
from spurless.auditing.slices import find_slices
from spurless.auditing.text_words import of_errors
from spurless.auditing.verdict import Shortcut, cost, doubt, evidence, headline, leading, overall, reliability
from spurless.core.digests import same_content
from spurless.core.errors import UserError
from spurless.core.files import atomic, read_toml
from spurless.core.fingerprint import fingerprint
from spurless.core.messages import log
from spurless.metrics.groups import confusion
from spurless.metrics.scores import coverage
from spurless.train.run_folder import SETTINGS

if TYPE_CHECKING:
    from torch import nn

    from spurless.core.data import Bundle
    from spurless.core.recipe import Recipe
    from spurless.train.networks import NetSpec
    from spurless.train.progress import Watcher

SCHEMA = 1
FILE, REPORT = "audit.json", "report.html"
FIX_MINUTES = 10.0  # for --fix, where no budget is named
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
) -> dict[str, Any]:
    """Audit a model on held-out rows; without a model, train a plain one first. Returns what audit.json holds.

    `model` is a module, a run's folder or a weights file; `out` the folder for audit.json, pictures and report.html
    (none: nothing is written); `budget` minutes for everything; `fix` tries the methods that fit. `command`, `source`
    and `settings` are how a shell would say it, for the report and for the commands that are advised.

    >>> found = audit({"name": "toy", "n": 600}, progress=False, device="cpu")
    >>> found["verdict"], found["attributes"][0]["name"]
    ('shortcut found', 'spurious')
    """
    from spurless.train.device import pick_device

    started, place = time.monotonic(), pick_device(device)
    folder = None if out is None else Path(out)
    step = Step(progress)
    step("data")
    whole = open_data(data, root, model)
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
    bundle, split = with_held_out(whole, seed)
    if folder is not None and model is None:
        _set_aside_if_changed(folder, bundle, seed)
    unseen = model is None or bundle is whole  # else the rows were drawn from those that the model may have learnt
    if not unseen:
        bundle = drawn_from_training(whole, bundle, model)
    step("model")
    seconds = None if budget is None else 60 * budget
    if model is None:
        audited = train(bundle, split, net, recipe, seconds, folder, place, seed, progress)
    else:
        audited = given(model, bundle, net, split)
    case = make_case(audited.data, audited.net, audited.source, split, place, seed, audited.own)
    step("attributes")
    known = attributes.examine(case)
    cues = hidden.examine(case, lambda cue: step("cues", cue))
    moved = shift.examine(case)
    # That two splits are alike clears nothing: a shortcut may hold in both of them, and does where they were drawn.
    varied = [e for e in known if e["varies"]]
    clues = [*varied, *cues, *(e for e in moved if e["finding"] != "none")]
    unsure = doubt(case, unseen)
    verdict = overall([e["finding"] for e in clues], sure=unsure is None)
    tested = bool(varied or cues)
    measured = tested and all(e["by"] == "rows" for e in known)  # how often such verdicts are wrong
    shortcut = leading(case, known, cues)
    step("slices")
    slices = find_slices(case)
    situation = _situation(case, audited, source, verdict, shortcut, budget, settings)
    situation = replace(
        situation,
        model=_same_model(model, net),
        recipe=_pairs("recipe", recipe),
        root=() if root is None else ("--data-root", str(root)),
        tested=tested,
        doubt=unsure,
        columns=() if tested else tuple(candidates(case.data)),
    )
    found = {
        "verdict": verdict,
        "schema": SCHEMA,
        "headline": headline(verdict, shortcut, case, moved, unsure, tested),
        **_facts(case, audited, command, model),
        "evidence": evidence(known, cues) + moved,
        "reliability": reliability(case) if measured else None,
        "attributes": [_plain(e) for e in known],
        "coverage": coverage(case.data, case.split),
        "cues": [_plain(e) for e in cues],
        **_where(case, shortcut, slices, folder, step),
        "cost": cost(shortcut),
        "advice": advise(situation),
        "fix": None,
    }
    if fix:
        step("fix")
        left = (seconds or 60 * FIX_MINUTES) - (time.monotonic() - started if seconds else 0)
        found["fix"] = _fix(case, audited, shortcut, left, folder, place, progress)
    found["seconds"] = round(time.monotonic() - started, 1)
    if folder is not None:
        step("report")
        save(found, folder)
    step.done()
    return found


def save(found: dict[str, Any], folder: Path) -> None:
    """Write audit.json, and the report that is made from it."""
    from spurless.report import write_audit

    folder.mkdir(parents=True, exist_ok=True)
    with atomic(folder / FILE) as part:
        part.write_text(json.dumps(found, indent=1, allow_nan=False), encoding="utf-8")
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
        name, source = describe_net(net or suited(data))["name"], "trained for this audit"
    else:
        name, source = Path(model).name if isinstance(model, (str, Path)) else type(model).__name__, "given"
    try:
        saved = json.loads(file.read_text(encoding="utf-8"))
        of = saved["data"]["name"], saved["settings"]["data"], saved["model"]["name"], saved["model"]["source"]
        place = {"model": saved["settings"]["model"]} if "model" in saved["settings"] else {}
    except (ValueError, KeyError, TypeError):  # damaged, or of another program
        return False
    return of == (data.name, _in_words(data.settings), name, source) and place in ({}, _place(model))


def _left_by_a_kill(folder: Path, trains: bool) -> bool:
    """Whether all that lies here is what an audit writes before its file: the model first, then pictures and fixes."""
    names = _names(folder)
    if trains:  # that `model` is this audit's own is checked when its training goes on
        return not names or ("model" in names and names <= {"model", "pictures", "fix", REPORT})
    drawn = _names(folder / "pictures") if "pictures" in names else set()
    return names <= {"pictures", "fix"} and all(re.fullmatch(r"\d+(-map)?\.png", name) for name in drawn)


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
        from spurless.core.terminal import Console

        console = Console(stderr=True)
        shown = console.is_terminal if progress is None else progress is True
        self.status = console.status("") if shown else None

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


def _facts(case: Case, audited: Audited, command: str | None, model: Any) -> dict[str, Any]:
    from spurless import __version__
    from spurless.core.result import versions

    data = case.data
    return {
        "spurless": __version__,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": command,
        "seconds": 0.0,
        "data": {
            "name": data.name,
            "rows": len(data.train),
            "held_out": len(case.held),
            "split": case.split,
            "classes": list(data.classes),
            "attributes": list(data.attributes),
            "notes": list(data.notes),
        },
        "model": {"name": audited.name, "source": audited.source, "average": share(case.right.numpy())},
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
    contradicting = ~case.right if shortcut is None else ~shortcut.follows
    rows = suspicious_rows(case, shortcut and shortcut.says, score)
    shown = galleries(case, contradicting, score)
    names = ("usual", "contradicting") if shortcut else ("right", "wrong")
    everything = torch.ones(len(score), dtype=torch.bool)
    kinds = {"usual": ~contradicting, "contradicting": contradicting} if shortcut else {"all": everything}
    if folder is not None:
        wanted = [r["row"] for r in rows] + [i["row"] for g in shown for k in ("usual", "contradicting") for i in g[k]]
        drawn = draw(case, wanted + [r for s in slices for r in s["rows"][:6]], folder)
        rows = with_pictures(rows, drawn)
        shown = [g | {k: with_pictures(g[k], drawn) for k in ("usual", "contradicting")} for g in shown]
        slices = [s | {"pictures": [drawn[r][0] for r in s["rows"][:6] if r in drawn]} for s in slices]
    if folder is not None and case.texts:
        worst = {id(s): _worst(s["rows"], score) for s in slices}
        texts = highlight(case, wanted + [r for of in worst.values() for r in of])
        rows = with_texts(rows, texts)
        shown = [g | {k: with_texts(g[k], texts) for k in ("usual", "contradicting")} for g in shown]
        slices = [s | {"texts": [texts[r] for r in worst[id(s)]]} for s in slices]
    return {
        "kinds": list(names),
        "rows": rows,
        "gallery": shown,
        "slices": [{k: v for k, v in s.items() if k != "rows"} for s in slices],
        **({"words": of_errors(case)} if case.texts else {}),
        "histogram": histogram(score, contradicting),
        "confusion": confusion(case.held.y, case.predicted, case.data.classes, kinds),
        "map2d": map2d(case, contradicting.long(), names, most=800) if folder is not None else None,
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
        conflicting=shortcut.contradicting["value"] if shortcut and shortcut.contradicting else None,
        aligned=shortcut.following["value"] if shortcut and shortcut.following else None,
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


def _fix(
    case: Case,
    audited: Audited,
    shortcut: Shortcut | None,
    seconds: float,
    folder: Path | None,
    device: torch.device,
    progress: bool | Watcher | None,
) -> dict[str, Any]:
    from spurless.auditing.fix import repair

    if shortcut is None:
        return {
            "rule": "",
            "chosen": None,
            "text": ["No shortcut is known by name: there is nothing to compare by."],
            "rows": [],
        }
    labels = tuple(shortcut.name.split(" & ")) if shortcut.kind == "attribute" else ()
    return repair(
        case,
        ~shortcut.follows,
        seconds,
        folder,
        audited.spec,
        audited.recipe,
        device,
        seconds_of_one=audited.seconds,
        progress=progress,
        labels=labels,
    )


def _plain(entry: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in entry.items() if not isinstance(v, Tensor)}
