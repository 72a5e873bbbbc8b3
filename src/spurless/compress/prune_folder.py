"""The folder of a pruning: what it was asked for, the shares that are finished, and the curve."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from spurless.compress.prune_trained import Pruning
from spurless.core.errors import FolderError, UserError
from spurless.core.files import finite, from_json, read_bytes
from spurless.core.output import claim_folder
from spurless.core.tensor_files import header, load_tensors, save_tensors

CURVE = "prune.json"
UNFINISHED = "unfinished.safetensors"  # until then: the rows so far, and the scores that they were pruned by
WEIGHTS = "run_weights"  # in both files: a hash of the run's weights; folders of before have none


def asked_of(run: Path, pruning: Pruning, keep: list[float], seed: int) -> dict[str, Any]:
    """What the folder's name and prune.json hold of it; what has no effect or was added later, only where it is set."""
    asked: dict[str, Any] = {"run": str(run), "how": pruning.how, "structured": pruning.structured}
    asked |= {"finetune": pruning.finetune, "keep": keep, "seed": seed}
    asked |= {"settings": {name: dict(given) for name, given in pruning.settings.items() if given}}
    asked |= {"objective": pruning.objective} if pruning.finetune else {}
    return asked | ({"batchnorm": pruning.batchnorm} if pruning.batchnorm != "kept" else {})


def claim(folder: Path, run: Path, asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the folder holds if it was asked the same before; refuse a folder with anything else."""
    if folder.resolve() == run.resolve():
        raise UserError("--out is the run's own folder, which is never changed; name another one.")
    if not (folder / CURVE).exists() and not (folder / UNFINISHED).exists():
        claim_folder(folder, "pruning", [CURVE, UNFINISHED], leftovers=["keep-*"])
        return None
    saved, finished = _saved(folder), (folder / CURVE).exists()
    wanted = {"batchnorm": None} | json.loads(json.dumps(asked))  # not named: kept
    other = [k for k in wanted if saved.get(k) != wanted[k] and (k != WEIGHTS or k in saved)]
    if other == [WEIGHTS]:
        raise UserError(
            f"{folder} holds a pruning of {run} as it was before it was trained anew. Name another --out folder, or "
            "remove this one."
        )
    if other:
        raise UserError(
            f"{folder} holds a pruning with other settings ({', '.join(other)}). Name another --out folder, or remove "
            "this one."
        )
    return saved | {"folder": str(folder)} if finished else None


def _saved(folder: Path) -> dict[str, Any]:
    """What the curve in a folder says or, before there is one, the file of the shares that are finished."""
    curve = folder / CURVE
    try:
        saved = from_json(read_bytes(curve)) if curve.exists() else header(folder / UNFINISHED)
    except ValueError:
        saved = None
    if not isinstance(saved, dict) or (curve.exists() and not _is_curve(saved)):
        raise FolderError(f"{curve} is damaged: remove it, and the pruning is done again.")
    return saved


def _is_curve(saved: Mapping[str, Any]) -> bool:
    """Whether a file holds what is printed of a pruning."""
    rows, sizes = saved.get("rows"), ("weights_percent", "parameters", "macs")
    if not isinstance(rows, list) or not isinstance(saved.get("notes"), list):
        return False
    return all(
        isinstance(row, dict)
        and isinstance(row.get("keep"), (int, float))
        and (row.get("error") or all(isinstance(row.get(name), (int, float)) for name in sizes))
        for row in rows
    )


def finished_shares(folder: Path, device: torch.device) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows of the shares that an interrupted pruning had finished, and its evidence for what goes first."""
    if not (folder / UNFINISHED).exists():
        return [], {}
    tensors, facts = load_tensors(folder / UNFINISHED)
    tensors = {name: t.to(device) for name, t in tensors.items()}
    evidence: dict[str, Any] = {name: t for name, t in tensors.items() if not name.startswith("scores.")}
    if scores := {k.removeprefix("scores."): t for k, t in tensors.items() if k.startswith("scores.")}:
        evidence["scores"] = scores
    return facts["rows"], evidence


def keep_finished(
    folder: Path, asked: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], evidence: Mapping[str, Any]
) -> None:
    """What the shares to come need in order to turn out the same if they are pruned another time."""
    tensors = {name: t for name, t in evidence.items() if name != "scores"}
    tensors |= {f"scores.{name}": t for name, t in evidence.get("scores", {}).items()}
    save_tensors(folder / UNFINISHED, tensors, {**asked, "rows": finite(rows)})


def how_to_go_on(done: int, of: int, folder: Path) -> str:
    if not done:
        return "No share was finished, so nothing is kept: the same command begins anew."
    return f"{done} of {of} shares are finished and kept in {folder}: re-run the command to resume with the next."
