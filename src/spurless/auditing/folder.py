"""The folder of an audit: what may be there before, and what is written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spurless.auditing.record import AuditReport
from spurless.core.digests import same_content
from spurless.core.errors import UserError
from spurless.core.files import atomic, read_toml
from spurless.core.fingerprint import fingerprint
from spurless.core.messages import log
from spurless.train.run_folder import SETTINGS

if TYPE_CHECKING:
    from spurless.core.data import Bundle
    from spurless.train.networks import NetSpec

FILE, REPORT = "audit.json", "report.html"


def save(report: AuditReport, folder: Path) -> None:
    """Write audit.json, and the report that is made from it."""
    from spurless.report import write_audit

    folder.mkdir(parents=True, exist_ok=True)
    with atomic(folder / FILE) as unfinished:
        unfinished.write_text(report.to_json(), encoding="utf-8")
    write_audit(folder, folder / REPORT)


def check_folder(folder: Path, data: Bundle, model: Any, net: NetSpec | None) -> None:
    """Refuse a folder that holds anything but an audit of the same data and model, or what a killed one left there."""
    if (folder / FILE).exists():
        fits = _is_of(folder / FILE, data, model, net)
    else:
        fits = not folder.exists() or _left_by_a_kill(folder, trains=model is None)
    if not fits:
        raise UserError(f"{folder} is not empty and holds no audit of this. Name another --out folder.")


def set_aside_if_changed(folder: Path, data: Bundle, seed: int) -> None:
    """Give another name to what a finished audit trained on samples that are others by now: it could not be resumed
    with these. Samples that were drawn with another seed are others too, but that is another audit, which is
    refused."""
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
    """Whether the file is an audit of this data and model; the samples may be others, such as mended ones."""
    from spurless.train.identity import describe_net

    if model is None:
        name, source = None if net is None else describe_net(net)["name"], "trained for this audit"
    else:
        name, source = Path(model).name if isinstance(model, (str, Path)) else type(model).__name__, "given"
    try:
        saved = json.loads(file.read_text(encoding="utf-8"))
        made = saved["model"] or {"name": None, "source": "trained for this audit"}  # a quick one has no model
        of = saved["data"]["name"], saved["settings"]["data"], made["name"], made["source"]
        given_model = {"model": saved["settings"]["model"]} if "model" in saved["settings"] else {}
    except (ValueError, KeyError, TypeError):  # damaged, or of another program
        return False
    same_data = of[:2] == (data.name, in_words(data.settings))
    return same_data and name in (None, of[2]) and of[3] == source and given_model in ({}, location(model))


def _left_by_a_kill(folder: Path, trains: bool) -> bool:
    """Whether all that lies here is what an audit writes before its file: the model first, then pictures and fixes."""
    names = _names(folder)
    if trains and "model" in names:  # that it is this audit's own is checked when its training is resumed
        return names <= {"model", "pictures", "fix", "review", REPORT}
    drawn = _names(folder / "pictures") if "pictures" in names else set()
    return names <= {"pictures", "fix", "review"} and all(re.fullmatch(r"\d+(-map)?\.png", name) for name in drawn)


def _names(folder: Path) -> set[str]:
    """What lies there; a name with a dot is what a kill left of a file that was being written."""
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def location(model: Any) -> dict[str, str]:
    """Where the model lies, if it is a path: its name alone may be that of many."""
    return {"model": str(Path(model).resolve())} if isinstance(model, (str, Path)) else {}


def in_words(settings: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in settings.items()}
