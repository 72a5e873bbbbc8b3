"""What a run is known by: all that decides its outcome, as it is saved and compared when the run is resumed."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import random
import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from spurless.core.augment import Augment
from spurless.core.data import Bundle, Images, Texts
from spurless.core.errors import UserError
from spurless.core.fingerprint import fingerprint
from spurless.core.method import Method
from spurless.core.recipe import Recipe
from spurless.core.settings import check, settings_of, values_of
from spurless.data.coding import coding_of
from spurless.nets import builder
from spurless.registry import name_and_settings, name_of, path_of
from spurless.train.networks import NetSpec

# What torch and Python print of a module and what the next start may print otherwise: where a function lies in memory,
# and on which GPU a list of parameters does.
PASSING = re.compile(r" at 0x[0-9a-fA-F]+| \((?:GPU |cuda:)\d+\)")


def describe_run(method: Method, data: Bundle, net: NetSpec, recipe: Recipe, seed: int) -> dict[str, Any]:
    """All that decides the outcome, as it is saved and compared when a run is resumed."""
    from spurless import __version__

    facts = {
        "seed": seed,
        "spurless": __version__.rsplit(".", 1)[0],
        "method": {"name": name_of(method)} | settings_of_method(method),
        "data": {"name": data.name} | data.settings | {"fingerprint": fingerprint(data)},
        "net": describe_net(net) | (contents(sample_of(net)) if is_factory(net) else {}),
        "recipe": dataclasses.asdict(recipe),
    }
    if unusual := describe_bundle(data):
        facts["bundle"] = unusual
    if isinstance(net, Mapping) and Path(str(net.get("weights") or "")).is_file():
        facts["weights"] = hashlib.sha256(Path(str(net["weights"])).read_bytes()).hexdigest()[
            :16
        ]  # not only their path
    return facts


def settings_of_method(method: Method) -> dict[str, Any]:
    """Its fields; of a method of the user's own also its code, which changes while it is being written."""
    values = {f.name: getattr(method, f.name) for f in dataclasses.fields(method)}
    if any(map(dataclasses.is_dataclass, values.values())):  # groups of settings, and choices that are objects
        declared = settings_of(type(method))
        groups = {s.path.partition(".")[0] for s in declared.values() if "." in s.path}
        values = {k: v for k, v in values.items() if k not in groups}
        values |= check(declared, values_of(method), "method", now={})
    own = [kind for kind in type(method).__mro__ if not kind.__module__.startswith(("spurless.", "builtins", "abc"))]
    if own:
        plain = {k: v for k, v in vars(method).items() if isinstance(v, (bool, int, float, str)) and k[:1] != "_"}
        values = plain | values  # of a class that is no dataclass itself
        with suppress(OSError, TypeError):  # typed at a prompt, or made by a program
            code = "".join(inspect.getsource(kind) for kind in own)
            values["code"] = hashlib.sha256(code.encode()).hexdigest()[:16]
        if path := path_of(method):
            values["class"] = path  # by which a saved run finds it again
    return values


def describe_bundle(data: Bundle) -> dict[str, Any]:
    """What decides the outcome beside the samples, as far as it is not what a Bundle of these samples has by itself.

    Empty for what was loaded by name, where name and settings decide all of it; fields that were exchanged since then
    are not seen.

    >>> from spurless.core.data import Split
    >>> grey = Split(torch.rand(2, 1, 4, 4), torch.tensor([0, 1]))
    >>> describe_bundle(Bundle("grey", grey, inputs=Images((0.5,), (0.25,))))
    {'mean': [0.5], 'std': [0.25]}
    """
    if "source" in data.settings:
        return {}
    by_default = _deciding(Bundle(data.name, data.train, data.val, data.test))
    return {name: value for name, value in _deciding(data).items() if value != by_default[name]}


def _deciding(data: Bundle) -> dict[str, Any]:
    tables = "".join(str(table.tolist()) for table in data.aligned)
    kind = data.inputs
    return {
        "mean": [float(m) for m in kind.mean],
        "std": [float(s) for s in kind.std],
        "augment": dataclasses.asdict(kind.augment if isinstance(kind, Images) else Augment()),
        "groups_ignore_class": data.groups_ignore_class,
        "classes": len(data.classes),
        "values": [len(names) for names in data.values],
        "aligned": hashlib.sha256(tables.encode()).hexdigest()[:16],
    }


def describe_net(net: NetSpec) -> dict[str, Any]:
    if isinstance(net, str):
        return {"name": net}
    if isinstance(net, Mapping):
        name, given = name_and_settings(net, "net")
        # In their types: what a shell gives as text is what Python gives as numbers.
        return {"name": name} | check(settings_of(builder(name)), given, "net", now={})
    if isinstance(net, nn.Module):
        return {"name": type(net).__name__, "own": True} | contents(net)
    if not callable(net):
        raise UserError(f"{net!r} is no network: give a name, {{'name': ...}}, a module, or a function that makes one.")
    return {"name": getattr(net, "__name__", "custom"), "own": True}


def is_factory(net: NetSpec) -> TypeGuard[Callable[[], nn.Module]]:
    """Whether it is a function that makes networks."""
    return callable(net) and not isinstance(net, nn.Module)


def contents(net: nn.Module) -> dict[str, str]:
    """What tells a user's module from another: its weights, and its layers, those of torch as they print themselves.

    What is only written in a `forward` of the user's own is not seen. Nor is what such a class prints of itself: it may
    print a set, or a number of its own, and would be another one at the next start.
    """
    weights, layers = hashlib.sha256(), hashlib.sha256()
    for name, layer in net.named_modules():
        kind = type(layer)
        shown = PASSING.sub("", layer.extra_repr()) if kind.__module__.startswith("torch.") else ""
        layers.update(f"{name} {kind.__qualname__} {shown}\n".encode())
    for name, tensor in net.state_dict().items():
        weights.update(name.encode())
        if not isinstance(tensor, Tensor):  # a module's extra state
            weights.update(PASSING.sub("", repr(tensor)).encode())
        elif not is_lazy(tensor):  # else it has no numbers yet
            whole = tensor.detach().cpu().contiguous()
            weights.update(whole.flatten().view(torch.uint8).numpy().tobytes())  # bytes: numpy has no bfloat16
    return {"weights": weights.hexdigest()[:16], "architecture": layers.hexdigest()[:16]}


def sample_of(factory: Callable[[], nn.Module]) -> nn.Module:
    """One network of a factory. Its random numbers do not come from the run's seed: for every seed the factory is the
    same."""
    with undrawn():
        for seed in (torch.manual_seed, np.random.seed, random.seed):
            seed(0)
        made = factory()
    if not isinstance(made, nn.Module):
        name = getattr(factory, "__name__", "custom")
        raise UserError(f"{name} must make a network, a torch.nn.Module; it makes {made!r}.")
    return made


@contextmanager
def undrawn() -> Generator[None, None, None]:
    """What is drawn in here of torch's, numpy's and Python's random numbers is there to be drawn again afterwards."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    try:
        with torch.random.fork_rng(devices=gpus):
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


def model_facts(data: Bundle, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What someone needs to know to use the weights: kept inside the file."""
    kind = data.inputs
    facts: dict[str, Any] = {"shape": data.shape, "classes": data.classes, "mean": kind.mean, "std": kind.std}
    facts["precision"] = settings["recipe"]["precision"]
    if isinstance(kind, Images):  # whether pixels came as bytes, which the network sees divided by 255
        facts["bytes"] = data.train[torch.arange(1)].dtype == torch.uint8
    if coding := coding_of(data):
        facts["coding"] = coding
    if data.attributes:  # which values went with which classes, for whoever scores it on other data
        facts["shortcuts"] = {
            name: {"values": values, "aligned": table.tolist()}
            for name, values, table in zip(data.attributes, data.values, data.aligned, strict=True)
        }
    if isinstance(kind, Texts):
        facts |= {"tokenizer": kind.tokens.tokenizer, "vocabulary": kind.tokens.vocabulary}
    # How the data was read, without where it lay, and which samples it was: its own scores are made again from its own.
    facts["trained_on"] = {k: v for k, v in settings["data"].items() if k not in ("name", "source", "fingerprint")}
    facts["rows"] = fingerprint(data, with_attributes=False)
    return {"net": settings["net"], "method": settings["method"], "data": data.name} | facts
