"""A run that can be driven step by step."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from spurless.core.data import Bundle
from spurless.core.digests import is_partial
from spurless.core.errors import DataError, Diverged, SettingError, UserError, first_line
from spurless.core.messages import log
from spurless.core.method import Method
from spurless.core.parallel import first, world
from spurless.core.recipe import Recipe
from spurless.core.result import Result, versions
from spurless.core.tensor_files import save_tensors
from spurless.data.tokens import check_reads, suited
from spurless.methods import METHODS
from spurless.methods.group_inference import groups_of
from spurless.methods.parts.pruning import sparsity
from spurless.metrics.groups import group_notes
from spurless.metrics.inference import inference_scores
from spurless.metrics.mining import lost_classes, mining_scores
from spurless.metrics.scores import coverage, full_score
from spurless.registry import load_data, make_method, make_recipe, name_of
from spurless.train.device import hint_if_threads_spin, pick_device
from spurless.train.dynamics import Dynamics, as_dynamics
from spurless.train.engine_run import EngineRun
from spurless.train.identity import describe_run, is_factory, model_facts
from spurless.train.loop import Loop
from spurless.train.networks import NetSpec, example_of, network_maker
from spurless.train.observe import Progress
from spurless.train.progress import Watcher
from spurless.train.run_folder import MODEL
from spurless.train.shared_stages import Shelf
from spurless.train.team_folder import run_folder

PARTLY_COMPARED = (
    "This run was begun by an older version, with a partial fingerprint: of its data the labels, the attributes and 64 "
    "inputs of each split were compared."
)

# How torch says that a network is made for inputs of another size.
UNFIT = re.compile(
    "Kernel size can't be greater|Output size is too small|shapes cannot be multiplied|to have \\d+ channels"
)


class Session:
    """One run that can be driven step by step: iterate over it, and then read its `result`.

    It takes what `fit` takes, which describes the parameters, and `fit` is what shows the progress. The arithmetic's
    switches, the random numbers and the stream are those of whoever drives it.
    """

    def __init__(
        self,
        method: Method | str | Mapping[str, Any],
        data: Bundle | str | Mapping[str, Any],
        *,
        net: NetSpec | None = None,
        recipe: Recipe | str | Mapping[str, Any] | None = None,
        seed: int = 0,
        out: str | Path | None = None,
        device: str | torch.device | None = None,
        root: str | Path | None = None,
        progress: bool | Watcher | None = None,
        checkpoint_seconds: float = 60,
        stages: str | Path | None = None,
        dynamics: Dynamics | Mapping[str, Any] | bool | None = None,
    ):
        seed = whole_seed(seed)
        self.method, self.data = make_method(method), load_data(data, root=root)
        self.spec: NetSpec = self.data.net if net is None else net
        self.data = suited(self.data, self.spec)
        self.recipe, self.device = make_recipe(recipe, self.data), pick_device(device)
        self.folder = None if out is None else run_folder(out)
        self.progress, self.checkpoint_seconds = progress, checkpoint_seconds
        self.stages = None if stages is None else Path(stages)
        self.dynamics = as_dynamics(dynamics)
        used = permit(self.method, self.data, self.recipe)
        check_reads(self.data, self.spec)
        settings = describe_run(self.method, self.data, self.spec, self.recipe, seed)
        notes = list(self.data.notes)
        if self.folder:
            self.folder.claim(settings)
            if is_partial(begun_on := self.folder.fingerprint()):
                settings["data"]["fingerprint"] = begun_on  # nobody knows more of what it was trained on
                notes.append(PARTLY_COMPARED)
        self.loop: Loop | None = None
        self.stopped = False
        self.result = Result(
            method=name_of(self.method),
            data=self.data.name,
            net=settings["net"]["name"],
            seed=seed,
            status="done",
            selection=self.recipe.selection,
            labels_used=used,
            settings=settings,
            versions=versions(self.device),
            folder=str(out) if out is not None else None,
            notes=notes,
        )

    def stop(self) -> None:
        """End after the step that is running, with a checkpoint."""
        self.stopped = True
        if self.loop:
            self.loop.stop = True

    def __iter__(self) -> Iterator[Progress]:
        with self.folder.alone() if self.folder else nullcontext():
            yield from self._train()

    def _train(self) -> Iterator[Progress]:
        hint_if_threads_spin(self.device)
        data, result, folder = self.data, self.result, self.folder
        make = network_maker(self.spec, data.shape, len(data.classes), result.seed, example_of(data))
        run = EngineRun(data.blinded(self.method.labels), self.recipe, result.seed, self.device, make)
        nameless = is_factory(self.spec)  # it is known by one network of those that it makes
        known = result.settings | {"device": self.device.type}
        shelf = Shelf(self.stages, known) if self.stages and not nameless and world() == 1 else None
        self.loop = loop = Loop(
            self.method, data, run, folder, self.checkpoint_seconds, log.warning, shelf, self.dynamics
        )
        loop.stop = self.stopped
        try:
            yield from loop
            add_scores(result, loop, data)
            result.classifier = loop.net
        except Diverged as error:
            result.status, result.error = "diverged", str(error)
        except (UserError, RuntimeError) as error:
            unfit = (
                isinstance(error, RuntimeError) and isinstance(self.spec, (str, Mapping)) and UNFIT.search(str(error))
            )
            if isinstance(error, RuntimeError) and not unfit:
                raise
            if folder:
                folder.release()
            if unfit:
                name, shape = result.net, tuple(data.shape)
                raise DataError(f"{name} cannot take inputs of shape {shape} ({first_line(error)}).") from error
            raise
        result.seconds, result.history, result.test_selected = round(loop.spent, 3), loop.history, loop.test_selected
        if folder:
            if result.classifier is not None and first():
                save_tensors(folder.path / MODEL, result.classifier.state_dict(), model_facts(data, result.settings))
            folder.write_result(result.row())
            folder.drop_parts(result.history)


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


def whole_seed(given: Any) -> int:
    """The seed as an int: one of numpy's must draw what the same number draws everywhere else.

    >>> whole_seed(3)
    3
    """
    try:
        return operator.index(given)
    except TypeError:
        raise SettingError(f"seed = {given!r} is not allowed; it takes a whole number.") from None


def permit(method: Method, data: Bundle, recipe: Recipe) -> str:
    """Which bias labels this run uses; refuse what the method may not see or the data does not have."""
    need = method.labels if method.labels != "selection" else "none"
    if recipe.selection == "val_worst_group":
        if method.labels == "none":
            raise SettingError(
                f"recipe.selection = val_worst_group needs bias labels, which {name_of(method)} may not see; "
                "use last, val_accuracy or val_loss."
            )
        need = "training" if need == "training" else "validation"
        if data.val is not None and data.val.a is None:
            raise SettingError(f"recipe.selection = val_worst_group needs bias labels, and {data.name} has none.")
    if recipe.eval_every != int(recipe.eval_every):
        raise SettingError(
            f"recipe.eval_every = {recipe.eval_every:g}: the validation split is looked at where an epoch ends; give a "
            "whole number of epochs."
        )
    if recipe.selection != "last" and data.val is None:
        raise SettingError(f"recipe.selection = {recipe.selection} needs a validation split, which {data.name} lacks.")
    if recipe.augment not in ("data", "none") and len(data.shape) != 3:
        raise SettingError(f"recipe.augment = {recipe.augment} is for images, and {data.name} holds none; use none.")
    if recipe.mix and data.tokens is not None:
        raise SettingError(f"recipe.mix = {recipe.mix} mixes inputs, and {data.name} holds token ids; use none.")
    split = {"training": data.train, "validation": data.val}.get(need)
    if need != "none" and (split is None or split.a is None):
        free = ", ".join(name for name, entry in METHODS.items() if entry.labels in ("none", "selection"))
        guess = " It can also guess the groups: method.groups = eiil." if hasattr(method, "groups") else ""
        lack = f"bias labels and {data.name} has none"
        if split is None:
            lack = f"the bias labels of validation rows and {data.name} has no validation split"
        raise SettingError(f"{name_of(method)} needs {lack}; these do not: {free}.{guess}")
    return need
