"""Trained models from files, for data that they may not have been trained on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from spurless.core import Bundle
from spurless.engine import Precision, example_of, load_classifier, load_run
from spurless.errors import UserError
from spurless.folder import MODEL, load_tensors
from spurless.nets import Net, build, builder
from spurless.nets.weights import load_weights, read_weights
from spurless.progress import complain
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
