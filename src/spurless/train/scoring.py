"""The scores of a run's classifier, and the notes that belong to them."""

from __future__ import annotations

import torch
from torch import nn

from spurless.core.data import Bundle
from spurless.core.errors import Diverged
from spurless.methods.group_inference import groups_of
from spurless.methods.parts.pruning import sparsity
from spurless.metrics.groups import group_notes
from spurless.metrics.inference import inference_scores, lost_classes, mining_scores
from spurless.metrics.scores import coverage, full_score
from spurless.train.loop import Loop
from spurless.train.result import Result


def add_scores(result: Result, loop: Loop, data: Bundle) -> None:
    """Score the classifier on the test split (the validation split where there is none), and mining against truth."""
    assert loop.net is not None
    name = "test" if data.test is not None else "val" if data.val is not None else "train"
    split = data.splits[name]
    logits = loop.run.outputs(loop.net, split)
    broken = "The output of the trained network" if bool(logits.isnan().any()) else _overflown(loop.net)
    if broken and loop.history:  # in the step after the last loss
        last = loop.history[-1]
        raise Diverged(last["stage"], last["step"], last["lr"], last["loss"], broken)
    result.scores = full_score(data, split, logits)
    result.scored_on, result.n = name, len(split)
    result.notes += group_notes(result.scores, name)
    loop.count_final_evaluation(result.scores)
    _note_selection(result, loop, data)
    result.sparsity = sparsity(loop.net)
    _add_mining(result, loop, data)


def _note_selection(result: Result, loop: Loop, data: Bundle) -> None:
    if result.selection != "last" and not loop.selected:
        result.notes.append(
            f"No stage of {result.method} lets recipe.selection pick its weights: they are the last ones."
        )
        result.selection = "last"
    if result.selection == "val_worst_group":
        result.notes += [f"Weights were picked by validation groups. {note}" for note in coverage(data, "val")["notes"]]


def _add_mining(result: Result, loop: Loop, data: Bundle) -> None:
    """The samples identified as conflicting and the inferred groups, against the truth where it is known."""
    y, aligned = data.train.y.numpy(), data.is_aligned(data.train)
    masks = {name: mask.numpy() for name, mask in loop.run.findings.items()}
    for mask in masks.values():
        result.notes += [_lost(result.method, data, c) for c in lost_classes(mask, y)]
    if aligned is not None:
        conflicting = ~aligned.all(1).numpy()
        result.mining = {name: mining_scores(mask, conflicting) for name, mask in masks.items()}
        groups = groups_of(data.train, tuple(map(len, data.values))).numpy()
        for name, inferred in loop.run.guesses.items():
            result.mining[name] = inference_scores(inferred.numpy(), groups, y, conflicting)


def _lost(method: str, data: Bundle, label: int) -> str:
    return (
        f"{method} took nearly all training samples of the class '{data.classes[label]}' for conflicting: the network "
        "that finds them has not learnt it. Try another seed or learning rate, or a smaller q where GCE trains it."
    )


def _overflown(net: nn.Module) -> str:
    """A BatchNorm whose statistics are not finite: everything that goes through it comes out the same."""
    for name, module in net.named_modules():
        variance = getattr(module, "running_var", None)
        if isinstance(variance, torch.Tensor) and not bool(torch.isfinite(variance).all()):
            return f"The variance that '{name}' has seen"
    return ""
