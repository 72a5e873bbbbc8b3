"""Trained models from files, for data that they may not have been trained on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from spurless.core import Bundle
from spurless.datasets.coding import coded_as
from spurless.engine import Precision, example_of, load_classifier, load_run
from spurless.errors import UserError
from spurless.folder import MODEL, SETTINGS, load_tensors, read_toml
from spurless.nets import Net, build, builder
from spurless.nets.weights import load_weights, read_weights
from spurless.progress import complain
from spurless.registry import PLACES, load_data
from spurless.scoring import fingerprint
from spurless.settings import settings_of


def trained(model: Path, bundle: Bundle) -> tuple[Net, Bundle, Precision]:
    """The classifier of a run's folder or weights file, the data as it wants to see it, and its arithmetic."""
    if model.is_dir():
        classifier = load_run(model, device="cpu").classifier
        if classifier is None:
            raise UserError(f"The run in {model} diverged: there is no classifier.")
    elif model.suffix != ".safetensors":
        raise UserError(f"{model} is not a .safetensors file; name the network whose weights it holds with --net.")
    else:
        classifier = load_classifier(model, device="cpu")
    facts = load_tensors(model / MODEL if model.is_dir() else model)[1]
    known = list(facts["classes"])
    if len(known) != len(bundle.classes):
        raise UserError(
            f"{model} knows {len(known)} classes, beginning with {known[0]}, and {bundle.name} has "
            f"{len(bundle.classes)}, beginning with {bundle.classes[0]}: there is nothing to compare."
        )
    if known != list(bundle.classes):
        complain(
            f"Classes are compared by their place: {', '.join(known)} in {model}, {', '.join(bundle.classes)} here."
        )
    here = None if bundle.tokens is None else bundle.tokens.vocabulary
    if facts.get("vocabulary") != here:
        reads = f"tokens of data.tokenizer = {facts['tokenizer']}" if facts.get("tokenizer") else "no text"
        raise UserError(f"{model} reads {reads}, unlike what {bundle.name} holds; load the data as it was trained on.")
    if bundle.coding and "coding" not in facts:
        complain(f"{model} does not say how its table was coded: its scores hold for the table it was trained on only.")
    elif bundle.coding and json.dumps(facts["coding"]) != json.dumps(bundle.coding):
        raise UserError(
            f"{bundle.name} is coded by its own training rows, and {model} was trained on other ones. Give its name "
            "instead of what was loaded from it: then it is coded as the model knows it."
        )
    if len(bundle.shape) == 3 and tuple(facts["shape"]) != bundle.shape:
        complain(f"{model} was trained on images of shape {tuple(facts['shape'])}; these are {bundle.shape}.")
    # Standardised as in training: the numbers of the new data would shift what the network sees.
    bundle = replace(bundle, mean=tuple(facts["mean"]), std=tuple(facts["std"]))
    try:
        classifier(example_of(bundle))
    except (RuntimeError, IndexError):  # of a text with more tokens than the network has positions
        raise UserError(
            f"{model} was trained on inputs of shape {tuple(facts['shape'])} and cannot take those of {bundle.name}, "
            f"{bundle.shape}. Is it the same data set, with the same settings (--set data...)?"
        ) from None
    return classifier, bundle, facts.get("precision", "fp32")


def data_for(model: Path, data: Mapping[str, Any], root: str | Path | None = None) -> Bundle:
    """The data as a run or weights file was given its own: a table coded alike, images of the same size.

    Where it is what the run was trained on, all settings are the run's, but for those that are given: other ones would
    draw other splits, and score rows that it has learnt.
    """
    file = model / MODEL if model.is_dir() else model
    facts = load_tensors(file)[1] if file.suffix == ".safetensors" and file.exists() else {}
    saved = read_toml(model / SETTINGS).get("data", {}) if (model / SETTINGS).exists() else {}
    own = {k: v for k, v in saved.items() if k not in ("name", "source", "fingerprint")}
    source, wanted = str(saved.get("source", saved.get("name"))), saved.get("fingerprint")
    other = dict(data)
    if "size" not in other and len(facts.get("shape", ())) == 3 and usual_size(data["name"]):
        other["size"] = facts["shape"][-1]
    with coded_as(tuple(facts["coding"]) if "coding" in facts else None):
        if source == data["name"]:
            bundle = load_data(own | dict(data), root=root)
            if wanted not in (None, fingerprint(bundle)):
                _say_what_differs(bundle, model, [k for k in data if k != "name" and data[k] != own.get(k)])
            return bundle
        if _may_be_the_same(source, data["name"]):
            with suppress(UserError):  # of another table, for which the run's settings are not meant
                bundle = load_data(own | dict(data), root=root)
                if fingerprint(bundle) == wanted:
                    return bundle
        return load_data(other, root=root)


def _may_be_the_same(source: str, name: str) -> bool:
    """Whether it may be one place under two names: from another folder, or written in full.

    >>> _may_be_the_same("csv:a.csv", "csv:/data/a.csv"), _may_be_the_same("csv:a.csv", "csv:b.csv")
    (True, False)
    """
    (kind, _, place), (other, _, there) = source.partition(":"), name.partition(":")
    return kind == other and kind in PLACES and Path(place).resolve().name == Path(there).resolve().name


def _say_what_differs(bundle: Bundle, model: Path, given: Sequence[str]) -> None:
    if given:
        named = ", ".join(f"data.{name}" for name in given)
        complain(
            f"With {named} as given, {bundle.name} is not what {model} was trained on: it may have learnt such rows."
        )
    else:
        complain(f"{bundle.name} is not what {model} was trained on: its rows or splits are other ones by now.")


def unusual_settings(data: Bundle) -> dict[str, Any]:
    """What a data set was loaded with, as far as it is not what it would have been anyway."""
    source = str(data.settings.get("source", data.name))
    usual = {name: setting.default for name, setting in _settings_of_data(source).items()}
    return {k: v for k, v in data.settings.items() if k in usual and v != usual[k]}


def _settings_of_data(name: str) -> dict[str, Any]:
    kind = name.partition(":")[0]
    try:
        return settings_of(import_module(PLACES.get(kind, f"spurless.datasets.{name}")).load)
    except ImportError:
        return {}  # load_data says which names there are


def usual_size(name: str) -> int:
    """To how many pixels the images of a data set are scaled unless data.size says otherwise; 0 where they are not."""
    size = _settings_of_data(name).get("size")
    return size.default if size is not None and isinstance(size.default, int) else 0


def with_weights(net: dict[str, Any], file: Path, bundle: Bundle) -> Net:
    """A network with the weights of a file that does not say which network they belong to."""
    if file.is_dir():
        raise UserError(f"{file} is a folder, and --net goes with a weights file: a run's folder knows its network.")
    state = read_weights(file)
    if "weights" in settings_of(builder(net["name"])):
        made = build(net | {"weights": str(file)}, bundle.shape, len(bundle.classes))
    else:
        made = build(net, bundle.shape, len(bundle.classes))
        load_weights(made, state, "head", "", str(file))
    if not any(torch.equal(tensor, made.head.weight) for tensor in state.values()):
        raise UserError(f"{file} has no head for the {len(bundle.classes)} classes of {bundle.name}.")
    return made.eval()
