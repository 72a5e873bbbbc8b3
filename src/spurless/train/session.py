"""A run that can be driven step by step."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import torch

from spurless.core.data import Bundle
from spurless.core.digests import is_partial
from spurless.core.errors import DataError, Diverged, SettingError, UserError, first_line
from spurless.core.extras import check_run
from spurless.core.messages import log
from spurless.core.method import Method
from spurless.core.parallel import world
from spurless.core.recipe import Recipe
from spurless.data.tokens import suited
from spurless.nets.reads import check_reads
from spurless.registry import as_named, load_data, make_method, make_recipe, name_of
from spurless.train import first_look
from spurless.train.device import let_threads_sleep, pick_device
from spurless.train.dynamics import Dynamics, as_dynamics
from spurless.train.engine_run import EngineRun
from spurless.train.identity import describe_run, is_factory, model_facts
from spurless.train.loop import Loop
from spurless.train.networks import NetSpec, example_of, network_maker
from spurless.train.observe import Progress, Watcher
from spurless.train.permit import permit
from spurless.train.result import Result, versions
from spurless.train.scoring import add_scores
from spurless.train.shared_stages import Shelf
from spurless.train.team_folder import run_folder

PARTLY_COMPARED = (
    "This run was begun by an older version, with a partial fingerprint: of its data the labels, the attributes and 64 "
    "inputs of each split were compared."
)


@dataclass
class RunArguments:
    """What `fit` takes, which describes each."""

    method: Method | str | Mapping[str, Any]
    data: Bundle | str | Mapping[str, Any]
    _: KW_ONLY
    net: NetSpec | None = None
    recipe: Recipe | str | Mapping[str, Any] | None = None
    seed: int = 0
    out: str | Path | None = None
    device: str | torch.device | None = None
    root: str | Path | None = None
    progress: bool | Watcher | None = None
    track: str | None = None
    checkpoint_seconds: float = 60
    stages: str | Path | None = None
    dynamics: Dynamics | Mapping[str, Any] | bool | None = None
    command: str | None = None


Asked = tuple[Bundle, NetSpec | None, Recipe | str | Mapping[str, Any] | None]


def load_for(
    data: Bundle | str | Mapping[str, Any],
    net: NetSpec | None,
    recipe: Recipe | str | Mapping[str, Any] | None,
    device: torch.device,
    root: str | Path | None = None,
) -> Asked:
    """The data, network and recipe of a run, from what was asked for; small ones for a first look."""
    data = as_named(data, root)
    if not first_look.is_first_look(data, net, recipe, device):
        return load_data(data, root=root), net, recipe
    assert isinstance(data, (str, Mapping))
    bundle = load_data(first_look.small_images(data), root=root)
    net, recipe = first_look.quick_training(len(bundle.train))
    first_look.announce(net, recipe)
    return bundle, net, recipe


class Session:
    """One run that can be driven step by step: iterate over it, and then read its `result`.

    `fit` shows the progress. The arithmetic's switches, the random numbers and the stream are those of whoever drives
    the session.
    """

    def __init__(self, asked: RunArguments):
        seed = whole_seed(asked.seed)
        check_run(asked.net, asked.recipe, asked.track)
        self.asked, self.method, self.device = asked, make_method(asked.method), pick_device(asked.device)
        data, net, recipe = load_for(asked.data, asked.net, asked.recipe, self.device, asked.root)
        self.spec: NetSpec = data.net if net is None else net
        self.data = suited(data, self.spec)
        self.recipe = make_recipe(recipe, self.data)
        self.folder = None if asked.out is None else run_folder(asked.out)
        self.dynamics = as_dynamics(asked.dynamics)
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
            folder=None if asked.out is None else str(asked.out),
            notes=notes,
            bundle=self.data,
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
        let_threads_sleep()
        data, result, folder = self.data, self.result, self.folder
        self.loop = loop = self._loop()
        loop.stop = self.stopped
        try:
            yield from loop
            add_scores(result, loop, data)
            result.classifier = loop.net
        except Diverged as error:
            result.status, result.error = "diverged", str(error)
        except (UserError, RuntimeError) as error:
            unfit = isinstance(error, RuntimeError) and self._why_unfit()
            if folder and (unfit or isinstance(error, UserError)):
                folder.release()
            if unfit:
                name, shape = result.net, tuple(data.shape)
                raise DataError(f"{name} cannot take inputs of shape {shape} ({unfit}).") from error
            raise
        result.seconds, result.history, result.test_selected = round(loop.spent, 3), loop.history, loop.test_selected
        if result.classifier is not None:
            result.facts = model_facts(data, result.settings)
        if folder:
            if result.classifier is not None and result.facts is not None:
                folder.save_model(result.classifier.state_dict(), result.facts)
            folder.write_result(result.row())
            folder.drop_parts(result.history)

    def _loop(self) -> Loop:
        data, result = self.data, self.result
        make = network_maker(self.spec, data.shape, len(data.classes), result.seed, example_of(data))
        run = EngineRun(data.blinded(self.method.labels), self.recipe, result.seed, self.device, make)
        nameless = is_factory(self.spec)  # it is known by one network of those that it makes
        decides = result.settings | {"device": self.device.type}
        stages = self.asked.stages
        shelf = Shelf(Path(stages), decides) if stages and not nameless and world() == 1 else None
        return Loop(
            self.method, data, run, self.folder, self.asked.checkpoint_seconds, log.warning, shelf, self.dynamics
        )

    def _why_unfit(self) -> str:
        """Why a network of ours, new and alone, cannot take two of the data's inputs; nothing where it can."""
        if not isinstance(self.spec, (str, Mapping)):
            return ""
        try:
            net = network_maker(self.spec, self.data.shape, len(self.data.classes), 0)(0).eval()
            with torch.no_grad():
                net(example_of(self.data))
        except RuntimeError as error:
            return "" if "memory" in str(error) else first_line(error)
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
