"""The scores of a run's classifier, and what has to be said beside them."""

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
    if result.selection != "last" and not loop.selected:
        result.notes.append(
            f"No stage of {result.method} lets recipe.selection pick its weights: they are the last ones."
        )
        result.selection = "last"
    if result.selection == "val_worst_group":
        result.notes += [f"Weights were picked by validation groups. {note}" for note in coverage(data, "val")["notes"]]
    result.sparsity = sparsity(loop.net)
    for rows in loop.run.findings.values():
        result.notes += [_lost(result.method, data, c) for c in lost_classes(rows.numpy(), data.train.y.numpy())]
    truth = data.is_aligned(data.train)
    if truth is not None:
        conflicting = ~truth.all(1).numpy()
        result.mining = {k: mining_scores(rows.numpy(), conflicting) for k, rows in loop.run.findings.items()}
        true, y = groups_of(data.train, tuple(map(len, data.values))).numpy(), data.train.y.numpy()
        for k, guess in loop.run.guesses.items():
            result.mining[k] = inference_scores(guess.numpy(), true, y, conflicting)


def _lost(method: str, data: Bundle, label: int) -> str:
    return (
        f"{method} took nearly all training rows of the class '{data.classes[label]}' for conflicting: the network "
        "that finds them has not learnt it. Try another seed or learning rate, or a smaller q where GCE trains it."
    )


def _overflown(net: nn.Module) -> str:
    """A BatchNorm whose statistics are not finite: everything that goes through it comes out the same."""
    for name, part in net.named_modules():
        held = getattr(part, "running_var", None)
        if isinstance(held, torch.Tensor) and not bool(torch.isfinite(held).all()):
            return f"The variance that '{name}' has seen"
    return ""
