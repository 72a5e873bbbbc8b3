"""What an audit was of: its data, model, settings and versions."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from spurless.auditing.case import Case
from spurless.auditing.evidence import share
from spurless.auditing.folder import in_words, location
from spurless.auditing.leaks import near_duplicates, notes_of

if TYPE_CHECKING:
    from spurless.auditing.model import Audited


def facts_of(
    case: Case, audited: Audited | None, command: str | None, model: Any, left_out: list[str] | None = None
) -> dict[str, Any]:
    from spurless import __version__
    from spurless.train.result import versions

    data, duplicates = case.data, near_duplicates(case.data, case.seed)
    notes = [*data.notes, *notes_of(data, duplicates, case.seed)]
    if left_out:
        notes.append(f"The time budget ended before the model was asked about {', '.join(left_out)}.")
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
            "notes": notes,
        },
        "model": None
        if audited is None
        else {"name": audited.name, "source": audited.source, "average": share(case.right.numpy())},
        "duplicates": duplicates,
        "settings": {"seed": case.seed, "data": in_words(data.settings)} | location(model),
        "versions": versions(case.device),
    }
