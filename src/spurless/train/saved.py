"""Finished runs and their classifiers, from their folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from spurless.core.errors import DataError, FolderError
from spurless.core.method import Method
from spurless.core.settings import settings_of
from spurless.core.tensor_files import header, load_tensors
from spurless.nets import Net, builder
from spurless.registry import check_installed, saved_method
from spurless.train.device import pick_device
from spurless.train.identity import describe_net
from spurless.train.networks import NetSpec, network_maker
from spurless.train.predict import Predictor
from spurless.train.result import Result
from spurless.train.run_folder import MODEL, RunFolder


def load_run(
    path: str | Path,
    net: NetSpec | None = None,
    device: str | torch.device | None = None,
    method: Method | None = None,
) -> Result:
    """A finished run from its folder, with its classifier. A network of the user's own must be passed again, and so
    must a method of the user's own whose classifier has another shape than the network."""
    folder = RunFolder(path)
    saved = folder.result()
    if saved is None:
        raise FolderError(f"{path} holds no finished run (no result.json); train it first, or give a weights file.")
    result = Result.from_row(saved | {"folder": str(path)})
    if result.status == "done":
        result.classifier = load_classifier(folder.path / MODEL, net, device, method)
        result.facts = header(folder.path / MODEL)
    return result


def load_predictor(path: str | Path, device: str | torch.device | None = None) -> Predictor:
    """The classifier of a run's folder or weights file, ready to predict new samples."""
    path = Path(path)
    if not path.exists():
        raise DataError(f"There is no run or weights file {path}.")
    if not path.is_dir():
        return Predictor(load_classifier(path, device=device), header(path))
    result = load_run(path, device=device)
    if result.classifier is None or result.facts is None:
        raise DataError(f"The run in {path} diverged: there is no classifier.")
    return Predictor(result.classifier, result.facts)


FORMS: dict[str, Callable[[Any], bool]] = {
    "net": lambda x: isinstance(x, Mapping) and isinstance(x.get("name"), str),
    "method": lambda x: isinstance(x, Mapping) and isinstance(x.get("name"), str),
    "data": lambda x: isinstance(x, str),
    "shape": lambda x: isinstance(x, Sequence) and len(x) > 0 and all(type(n) is int and 0 < n < 2**31 for n in x),
    "classes": lambda x: isinstance(x, list) and len(x) > 0 and all(isinstance(name, str) for name in x),
    "mean": lambda x: isinstance(x, list) and all(isinstance(n, (int, float)) for n in x),
    "std": lambda x: isinstance(x, list) and all(isinstance(n, (int, float)) for n in x),
    "trained_on": lambda x: isinstance(x, Mapping),
    "shortcuts": lambda x: isinstance(x, Mapping),
    "coding": lambda x: isinstance(x, list),
    "precision": lambda x: x in ("fp32", "tf32", "bf16"),
}


def check_facts(facts: Mapping[str, Any], file: object) -> None:
    """Refuse what a weights file says of itself where it has another form than ours."""
    for name, fits in FORMS.items():
        if name in facts and not fits(facts[name]):
            raise DataError(f"{file} is damaged: what it says of its {name} has an unknown form. Train it again.")


def load_classifier(
    weights: str | Path,
    net: NetSpec | None = None,
    device: str | torch.device | None = None,
    method: Method | None = None,
) -> Net:
    """The classifier in a model.safetensors. The file says which network it is; pretrained weights are not fetched."""
    tensors, facts = load_tensors(Path(weights))
    if not facts:
        raise DataError(
            f"{weights} does not say which network it holds; load it into your module and call spurless.evaluate."
        )
    check_facts(facts, weights)
    if not {"net", "method", "shape", "classes"} <= facts.keys():
        raise DataError(f"{weights} is damaged: it does not say which network, method, shape and classes it has.")
    spec = facts["net"] if net is None else net
    if isinstance(spec, Mapping):
        if spec.get("own"):
            raise DataError(f"{weights} holds a network of your own, {spec['name']}: pass it as net=... from Python.")
        if net is None:
            check_installed("net", spec.get("name"), weights)
        spec = {k: v for k, v in spec.items() if k not in ("pretrained", "weights")}
        if "pretrained" in settings_of(builder(spec["name"])):
            spec["pretrained"] = False  # which is not the default of networks that read text
    shape = tuple(facts["shape"])
    # What the head of a module that cannot be traced is told by: any inputs, of the kind that it takes.
    some = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    example = torch.zeros(2, *shape, dtype=torch.long) if "vocabulary" in facts else some
    make = network_maker(spec, shape, len(facts["classes"]), 0, example)
    method = method or saved_method(facts["method"])
    made = make(0) if method is None else method.classifier(lambda: make(0))
    try:
        made.load_state_dict(tensors)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise DataError(f"{weights} does not fit the network {describe_net(spec)['name']}: {reason}") from None
    return made.to(pick_device(device)).eval()
