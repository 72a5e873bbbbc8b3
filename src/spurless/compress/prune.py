"""Prune a trained run to several sizes, and see what that costs. The run itself is only read.

    rows = prune("runs/erm-toy", keep=[0.5, 0.3], pruning=Pruning("avp", structured=True))["rows"]

Each size is saved as weights of the same shape with zeros (`keep-0.30/model.safetensors`, for `spurless evaluate` and
`spurless export`), and measured after its dead channels are cut out.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from spurless.compress.channels import channel_groups, torch_pruning
from spurless.compress.export import classifier_of, folder_name
from spurless.compress.loading import data_for
from spurless.compress.prune_curve import draw, measured, notes, sizes
from spurless.compress.prune_folder import (
    CURVE,
    UNFINISHED,
    WEIGHTS,
    asked_of,
    claim,
    finished_shares,
    how_to_go_on,
    keep_finished,
)
from spurless.compress.prune_trained import PruneTrained, Pruning
from spurless.core.data import Bundle
from spurless.core.errors import UserError
from spurless.core.files import atomic, finite
from spurless.core.messages import log
from spurless.core.method import Method
from spurless.core.output import default_folder
from spurless.core.settings import build, check, resolve, settings_of
from spurless.core.tensor_files import save_tensors
from spurless.methods.dcwp import DCWP
from spurless.metrics.batchnorm import norms
from spurless.nets import Net
from spurless.registry import check_installed, make_recipe, saved_method
from spurless.train.device import pick_device
from spurless.train.fit import fit
from spurless.train.networks import NetSpec, example_of
from spurless.train.result import Result
from spurless.train.run_folder import MODEL
from spurless.train.saved import load_run

# Settings of DCWP that `--how dcwp` has no use for, and what to use instead.
NO_USE = {
    "prune": "there is always a mask",
    "reset": "the trained weights are kept",
    "mask.over": "--structured removes channels",
    "mask.layers": "all layers are ranked together",
    "finetune.iterations": "--finetune says how long",
}


def prune(
    run: str | Path,
    keep: Sequence[float] = (0.3,),
    pruning: Pruning | str = "magnitude",
    *,
    out: str | Path | None = None,
    data: Bundle | None = None,
    net: NetSpec | None = None,
    seed: int | None = None,
    device: str | None = None,
    root: str | Path | None = None,
) -> dict[str, Any]:
    """Prune a run to each share, score it, save it, and draw accuracy against size. Returns what prune.json holds.

    `data` and `net`: needed where the run was made with objects of your own. `seed`: by default the run's.
    """
    pruning = Pruning(pruning) if isinstance(pruning, str) else pruning  # type: ignore[arg-type]
    keep, path = check_shares(keep), Path(run)
    dcwp = dcwp_of(pruning)
    if pruning.structured:
        torch_pruning()
    if path.is_file():
        raise UserError(f"{run} is a file. Name the folder of a finished run: its settings say what it was trained on.")
    before = load_run(path, net, "cpu")
    seed = before.seed if seed is None else seed
    classifier, facts = classifier_of(path, net)
    bundle = data_of(path, before, root) if data is None else data
    asked = asked_of(path, pruning, keep, seed)
    words = "prune", folder_name(path), pruning.how, "structured" if pruning.structured else ""
    folder = Path(out) if out is not None else default_folder(*words, given=asked)
    asked[WEIGHTS] = hashlib.sha256((path / MODEL).read_bytes()).hexdigest()[:16]  # not in the name of the folder
    if saved := claim(folder, path, asked):
        return saved
    recipe = make_recipe(before.settings["recipe"] | dict(pruning.settings.get("recipe", {})), bundle)
    example = example_of(bundle)
    done, evidence = finished_shares(folder, pick_device(device))
    method = method_for(pruning, before, classifier, saved_method(facts["method"]), example)
    method = replace(method, dcwp=dcwp, evidence=evidence)
    spec = fresh(facts["net"]) if net is None else net
    with tempfile.TemporaryDirectory() as shelf:  # what comes before the fine-tuning is trained once for all shares
        for share in keep[len(done) :]:
            try:
                result = fit(
                    replace(method, keep=share), bundle, net=spec, recipe=recipe, seed=seed, device=device, stages=shelf
                )
                done.append(saved_row(result, share, folder, facts, example))
            except KeyboardInterrupt:
                raise KeyboardInterrupt(how_to_go_on(len(done), len(keep), folder)) from None
            keep_finished(folder, asked, done, evidence)
    whole = {"keep": 1.0, "scores": before.scores, "n": before.n, "pruned": False}
    rows = [sizes(classifier, example, None) | whole, *done]
    curve = asked | {"data": bundle.name, "net": before.net, "method": before.method, "rows": rows}
    curve["notes"] = notes(curve, bool(norms(classifier)), before.scored_on)
    save_curve(curve, folder)
    return curve | {"folder": str(folder)}


def save_curve(curve: Mapping[str, Any], folder: Path) -> None:
    """Draw and write the curve; what resuming an unfinished pruning takes is needed no more."""
    draw(curve, folder)
    with atomic(folder / CURVE) as unfinished:
        unfinished.write_text(json.dumps(finite(curve), indent=1) + "\n", encoding="utf-8")
    (folder / UNFINISHED).unlink(missing_ok=True)


def method_for(pruning: Pruning, before: Result, classifier: Net, by: Method | None, example: Tensor) -> PruneTrained:
    """The pruning of a run's classifier, which was trained `by` this method; refused where it cannot be done."""
    groups = channel_groups(copy.deepcopy(classifier), example) if pruning.structured else []
    if pruning.structured and not groups:
        raise UserError(f"{before.net} has no channels that can be cut; prune single weights, without --structured.")
    if pruning.repeats and by is None:
        raise UserError(f"{before.method} is not a method of this package: fine-tune with --objective plain.")
    return PruneTrained(pruning, trained=classifier.state_dict(), by=by, groups=groups)


def data_of(run: Path, before: Result, root: str | Path | None) -> Bundle:
    """What a run was trained on, loaded again by the run's settings."""
    trained_on = before.settings["data"]
    name = trained_on.get("source", trained_on["name"])
    check_installed("data", name, run)
    return data_for(run, {"name": name}, root)


def saved_row(result: Result, share: float, folder: Path, facts: Mapping[str, Any], example: Tensor) -> dict[str, Any]:
    """A row of the curve; the pruned network, if it did not diverge, is saved in a folder of its share."""
    if result.classifier is None:
        log.warning(f"At {share:g}: {result.error}")
        return {"keep": share, "pruned": True, "error": result.error}
    pruned = result.classifier.cpu().eval()
    save_tensors(folder / f"keep-{share:.2f}" / MODEL, pruned.state_dict(), facts)
    scored = {"scores": result.scores, "n": result.n, "scored_on": result.scored_on}
    return measured(pruned, example) | {"keep": share, **scored, "pruned": True}


def check_shares(keep: Sequence[float]) -> list[float]:
    """In falling order, each once, with a name of its own.

    >>> check_shares([0.3, 0.5, 0.3])
    [0.5, 0.3]
    """
    shares = sorted({round(float(k), 2) for k in keep}, reverse=True)
    exact = all(math.isclose(k, round(float(k), 2)) for k in keep)  # 0.1 + 0.2 is 0.3
    if not shares or not exact or not all(0 < k <= 1 for k in shares):
        raise UserError("--keep takes shares above 0 and up to 1, to two decimals, such as --keep 0.5 --keep 0.3.")
    return shares


def dcwp_of(pruning: Pruning) -> DCWP:
    """DCWP with the settings that are asked for; those that would change nothing are refused."""
    given = dict(pruning.settings.get("method", {}))
    if given and pruning.how != "dcwp":
        raise UserError(f"--set method... is for --how dcwp; {pruning.how} has no settings.")
    dcwp: DCWP = build(DCWP, resolve(DCWP, given, "method"))
    settings = settings_of(DCWP)
    for name in check(settings, given, "method", now={}):
        path = settings[name].path
        if path in NO_USE:
            raise UserError(f"method.{path} has no effect when a trained run is pruned: {NO_USE[path]}.")
        if path.startswith("finetune.") and not pruning.finetune:
            raise UserError(f"method.{path} has no effect without fine-tuning: add --finetune.")
    return dcwp


def fresh(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The network of a run without the weights that it started from, which need not be here."""
    return {k: v for k, v in spec.items() if k not in ("pretrained", "weights")}
