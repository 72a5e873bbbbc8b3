"""Measured after a training (`after` of a specification): what a table asks for beyond the scores of its runs."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from spurless.core.data import Bundle
from spurless.core.errors import UserError
from spurless.train.fit import evaluate
from spurless.train.result import Result
from spurless.train.run_folder import RunFolder

KEPT = ("average", "unbiased", "aligned", "conflicting", "worst_group", "n")


def first_stage(result: Result, data: Bundle, folder: Path) -> dict[str, Any]:
    """The scores of the network as its first stage left it, on the split that the run was scored on."""
    kept = RunFolder(folder).load(0)
    if kept is None or result.classifier is None:
        raise UserError(f"{folder} has no checkpoint of its first stage: remove that folder to train it again.")
    start = "module.0."  # the first network of the stage
    net = copy.deepcopy(result.classifier)
    net.load_state_dict({name.removeprefix(start): t for name, t in kept[0].items() if name.startswith(start)})
    device = next(net.parameters()).device
    scores = evaluate(net, data, result.scored_on, device, precision=result.settings["recipe"]["precision"])
    return {"first_stage": {name: scores[name] for name in KEPT if name in scores}}
