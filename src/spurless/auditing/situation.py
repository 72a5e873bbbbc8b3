"""The facts that advice is made from, and how a shell would say what was audited."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spurless.auditing.advice import Facts
from spurless.auditing.case import Case
from spurless.auditing.evidence import Score
from spurless.auditing.model import SIDE, Audited
from spurless.auditing.verdict import ACCUSED, Doubt, Shortcut
from spurless.bench.estimate import look
from spurless.core.errors import UserError
from spurless.core.messages import log
from spurless.data.coding import coding_of
from spurless.train.first_look import is_first_look, quick_training

if TYPE_CHECKING:
    import torch

    from spurless.auditing.request import Request
    from spurless.core.data import Bundle
    from spurless.train.networks import NetSpec

FOR_TIMING = 3.0  # seconds
SURE = 0.99  # a probability that the model gives to a class other than the label, for the label to look wrong


def situation(
    case: Case,
    audited: Audited,
    asked: Request,
    verdict: str,
    shortcut: Shortcut | None,
    unsure: Doubt | None,
    tested: bool,
    in_time: bool = True,
) -> Facts:
    """`in_time`: whether there is time to train a few steps as an advised command would, to tell how long it takes."""
    network = train_options(audited, asked.settings)
    if alone := trains_alike(audited, asked, network, case.device):
        network = ()
    advised = verdict in ACCUSED and bool(asked.source) and in_time
    named = shortcut is not None and shortcut.kind == "attribute"
    chance, other = case.logits.softmax(1).max(1)
    odd = (chance > SURE) & (other != case.held.y)
    says = None if shortcut is None else shortcut.says
    odd &= True if says is None else says != other  # a shortcut that points there explains it
    return Facts(
        verdict=verdict,
        source=asked.source or "",
        train_labels=named and case.data.train.a is not None,
        val_labels=named and case.data.val is not None and case.data.val.a is not None,
        held_out=len(case.held),
        classes=len(case.data.classes),
        n_conflicting=_conflicting(shortcut),
        conflicting=_value_of(shortcut and shortcut.conflicting),
        aligned=_value_of(shortcut and shortcut.aligned),
        seconds=seconds_of_training(audited, asked, case.device, alone) if advised else None,
        budget=asked.budget,
        wrong_labels=float(odd.float().mean()),
        name=None if shortcut is None else shortcut.name,
        settings=asked.settings,
        needed=_rows_to_hold(case, shortcut),
        network=network,
        attributes=case.data.attributes,
        model=same_model(asked.model, asked.net),
        recipe=pairs("recipe", asked.recipe),
        root=() if asked.root is None else ("--data-root", str(asked.root)),
        tested=tested,
        doubt=unsure,
        is_input=shortcut is not None and shortcut.name in {code["column"] for code in coding_of(case.data)},
    )


def _conflicting(shortcut: Shortcut | None) -> int | None:
    return None if shortcut is None else int((~shortcut.follows).sum())


def _value_of(score: Score | None) -> float | None:
    return score["value"] if score else None


def trains_alike(audited: Audited, asked: Request, network: tuple[str, ...], device: torch.device) -> bool:
    """Whether `train` takes images of the audit's size by itself, for its first look at a folder."""
    small = network == ("--set", f"data.size={SIDE}") and not asked.settings
    return small and is_first_look(audited.data.source, None, asked.recipe, device)


def seconds_of_training(audited: Audited, asked: Request, device: torch.device, first_look: bool) -> float | None:
    """How long plain training takes on this machine, as an advised command would train it; None where it cannot."""
    data, recipe = audited.data, asked.recipe
    net = audited.spec if network_options(audited.spec) else data.net
    if first_look:
        net, recipe = quick_training(len(data.train))
    try:
        return look("erm", data, net, recipe, asked.seed, device, FOR_TIMING)[0].seconds
    except (UserError, RuntimeError) as error:
        log.debug("no estimate: %s", error)
        return None


def train_options(audited: Audited, settings: tuple[str, ...]) -> tuple[str, ...]:
    """How `train` names the audited network and the size of its images, where they are not the data's own."""
    size = audited.data.settings.get("size")
    # A size that nobody named is the audit's, or that of the given run: `train` would choose neither by itself.
    chosen = size == SIDE or (size is not None and audited.source == "given")
    words = ("--set", f"data.size={size}") if chosen and not any(s.startswith("data.size=") for s in settings) else ()
    network = network_options(audited.spec)
    return words if network == ("--net", audited.data.net) else (*network, *words)


def network_options(spec: NetSpec | None) -> tuple[str, ...]:
    """--net NAME --set net.SETTING=VALUE; nothing for a network that has no name on a command line."""
    if isinstance(spec, str):
        return "--net", spec
    if not isinstance(spec, Mapping) or "own" in spec:
        return ()
    return "--net", spec["name"], *(word for pair in pairs("net", spec) for word in ("--set", pair))


def with_its_own(settings: tuple[str, ...], data: Bundle) -> tuple[str, ...]:
    """Settings that the data has, from the audited run or as it was loaded: without them, advised commands would be
    about other data."""
    from spurless.compress.loading import unusual_settings

    typed = {pair.partition("=")[0] for pair in settings}
    return (*settings, *(p for p in pairs("data", unusual_settings(data)) if p.partition("=")[0] not in typed))


def pairs(section: str, given: Any) -> tuple[str, ...]:
    """Settings as --set takes them.

    >>> pairs("net", {"name": "mlp", "widths": (16, 8), "dropout": None, "norm": True})
    ('net.widths=[16, 8]', 'net.dropout=none', 'net.norm=true')
    """
    table = given if isinstance(given, Mapping) else {}
    return tuple(f"{section}.{name}={_value(value)}" for name, value in table.items() if name != "name")


def _value(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (tuple, list)) else str(value)


def same_model(model: Any, net: NetSpec | None) -> tuple[str, ...]:
    """The options of `audit` that were given for the model: without them it would train and audit another one."""
    path = ("--model", str(model)) if isinstance(model, (str, Path)) else ()
    return *path, *network_options(net)


def _rows_to_hold(case: Case, shortcut: Shortcut | None) -> int | None:
    """Held-out samples in all, for as many conflicting ones as the test needs."""
    if shortcut is None or shortcut.needed is None:
        return None
    have = int((~shortcut.follows).sum())
    return round(len(case.held) * shortcut.needed / have) if have else None
