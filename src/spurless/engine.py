"""fit(): train a classifier by a method on a data set, and say how good it is."""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import inspect
import operator
import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Literal, TypeGuard

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from spurless.core import Bundle, Method, Recipe
from spurless.distributed import first, local_gpu, run_folder, world
from spurless.errors import Diverged, UserError
from spurless.feed import Inputs
from spurless.folder import MODEL, RunFolder, load_tensors, save_tensors
from spurless.hashing import is_partial
from spurless.inference import groups_of
from spurless.loop import EngineRun, Loop, Progress
from spurless.methods import METHODS
from spurless.metrics.dynamics import Dynamics, as_dynamics
from spurless.metrics.groups import group_notes
from spurless.metrics.inference import inference_scores
from spurless.metrics.mining import lost_classes, mining_scores
from spurless.nets import Net, build, builder
from spurless.progress import Bar, Watcher, complain
from spurless.pruning import sparsity
from spurless.registry import load_data, make_method, make_recipe, name_and_settings, name_of
from spurless.result import Result, versions
from spurless.scoring import coverage, fingerprint, full_score, outputs
from spurless.seeds import derive
from spurless.settings import check, settings_of
from spurless.shelf import Shelf
from spurless.text import check_reads, suited

Precision = Literal["fp32", "tf32", "bf16"]
NetSpec = str | Mapping[str, Any] | nn.Module | Callable[[], nn.Module]
PARTLY_COMPARED = (
    "This run was begun by an older version, with a partial fingerprint: of its data the labels, the attributes and 64 "
    "inputs of each split were compared."
)
PATIENCE = 0.2  # seconds between two looks at whether another process has finished a stage that is shared
# What torch and Python print of a module and what the next start may print otherwise: where a function lies in memory,
# and on which GPU a list of parameters does.
PASSING = re.compile(r" at 0x[0-9a-fA-F]+| \((?:GPU |cuda:)\d+\)")


def fit(
    method: Method | str | Mapping[str, Any],
    data: Bundle | str | Mapping[str, Any],
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
) -> Result:
    """Train, select, score, and save where `out` is given.

    Names, {"name": ..., setting: value} tables and objects are all accepted. In a folder with an unfinished run the
    run goes on; in a finished one its result is returned; in one made with other settings, it refuses.
    A run that diverges comes back with the status "diverged", no scores, and the reason in `error`.
    First stages that several runs have in common are trained once where they share a folder `stages`.
    `dynamics` watches the steps, with bias labels that no method sees (metrics.dynamics).
    """
    session = Session(method, data, net, recipe, seed, out, device, root, checkpoint_seconds, stages, dynamics)
    if session.folder and session.folder.result():
        if session.dynamics:
            session.dynamics.start(session.folder.path)  # what was seen is read
        found = load_run(session.folder.path, session.spec, session.device, session.method)
        found.notes += [note for note in session.result.notes if note == PARTLY_COMPARED and note not in found.notes]
        return found
    name = session.result.method
    if not first():
        progress = False
    watch: Watcher = progress if callable(progress) else Bar(name, shown=progress)
    with arithmetic(session.recipe, session.device), interruptible(session.stop), watch:
        for place_reached in session:
            if place_reached.waiting:
                time.sleep(PATIENCE)
            watch(place_reached)
    return session.result


class Session:
    """One run that can be driven step by step: iterate over it, and then read its `result`.

    The arithmetic's switches, the random numbers and the stream are those of whoever drives it.
    """

    def __init__(
        self,
        method: Method | str | Mapping[str, Any],
        data: Bundle | str | Mapping[str, Any],
        net: NetSpec | None = None,
        recipe: Recipe | str | Mapping[str, Any] | None = None,
        seed: int = 0,
        out: str | Path | None = None,
        device: str | torch.device | None = None,
        root: str | Path | None = None,
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
        self.checkpoint_seconds = checkpoint_seconds
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
        self.loop = loop = Loop(self.method, data, run, folder, self.checkpoint_seconds, complain, shelf, self.dynamics)
        loop.stop = self.stopped
        try:
            yield from loop
            add_scores(result, loop, data)
            result.classifier = loop.net
        except Diverged as error:
            result.status, result.error = "diverged", str(error)
        except UserError:
            if folder:
                folder.release()
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
    loop.look_at_the_end(result.scores)
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
        raise UserError(f"seed = {given!r} is not allowed; it takes a whole number.") from None


def permit(method: Method, data: Bundle, recipe: Recipe) -> str:
    """Which bias labels this run uses; refuse what the method may not see or the data does not have."""
    need = method.labels if method.labels != "selection" else "none"
    if recipe.selection == "val_worst_group":
        if method.labels == "none":
            raise UserError(
                f"recipe.selection = val_worst_group needs bias labels, which {name_of(method)} may not see; "
                "use last, val_accuracy or val_loss."
            )
        need = "training" if need == "training" else "validation"
        if data.val is not None and data.val.a is None:
            raise UserError(f"recipe.selection = val_worst_group needs bias labels, and {data.name} has none.")
    if recipe.eval_every != int(recipe.eval_every):
        raise UserError(
            f"recipe.eval_every = {recipe.eval_every:g}: the validation split is looked at where an epoch ends; give a "
            "whole number of epochs."
        )
    if recipe.selection != "last" and data.val is None:
        raise UserError(f"recipe.selection = {recipe.selection} needs a validation split, which {data.name} lacks.")
    if recipe.augment not in ("data", "none") and len(data.shape) != 3:
        raise UserError(f"recipe.augment = {recipe.augment} is for images, and {data.name} holds none; use none.")
    if recipe.mix and data.tokens is not None:
        raise UserError(f"recipe.mix = {recipe.mix} mixes inputs, and {data.name} holds token ids; use none.")
    split = {"training": data.train, "validation": data.val}.get(need)
    if need != "none" and (split is None or split.a is None):
        free = ", ".join(name for name, entry in METHODS.items() if entry.labels in ("none", "selection"))
        guess = " It can also guess the groups: method.groups = eiil." if hasattr(method, "groups") else ""
        lack = f"bias labels and {data.name} has none"
        if split is None:
            lack = f"the bias labels of validation rows and {data.name} has no validation split"
        raise UserError(f"{name_of(method)} needs {lack}; these do not: {free}.{guess}")
    return need


def describe_run(method: Method, data: Bundle, net: NetSpec, recipe: Recipe, seed: int) -> dict[str, Any]:
    """All that decides the outcome, as it is saved and compared when a run is resumed."""
    from spurless import __version__

    known = {
        "seed": seed,
        "spurless": __version__.rsplit(".", 1)[0],
        "method": {"name": name_of(method)} | settings_of_method(method),
        "data": {"name": data.name} | data.settings | {"fingerprint": fingerprint(data)},
        "net": describe_net(net) | (contents(sample_of(net)) if is_factory(net) else {}),
        "recipe": dataclasses.asdict(recipe),
    }
    if unusual := describe_bundle(data):
        known["bundle"] = unusual
    if isinstance(net, Mapping) and Path(str(net.get("weights") or "")).is_file():
        known["weights"] = hashlib.sha256(Path(str(net["weights"])).read_bytes()).hexdigest()[
            :16
        ]  # not only their path
    return known


def settings_of_method(method: Method) -> dict[str, Any]:
    """Its fields; of a method of the user's own also its code, which changes while it is being written."""
    known = {f.name: getattr(method, f.name) for f in dataclasses.fields(method)}
    own = [kind for kind in type(method).__mro__ if not kind.__module__.startswith(("spurless.", "builtins", "abc"))]
    if own:
        plain = {k: v for k, v in vars(method).items() if isinstance(v, (bool, int, float, str)) and k[:1] != "_"}
        known = plain | known  # of a class that is no dataclass itself
        with suppress(OSError, TypeError):  # typed at a prompt, or made by a program
            code = "".join(inspect.getsource(kind) for kind in own)
            known["code"] = hashlib.sha256(code.encode()).hexdigest()[:16]
    return known


def describe_bundle(data: Bundle) -> dict[str, Any]:
    """What decides the outcome beside the rows, as far as it is not what a Bundle of these rows has by itself.

    Empty for what was loaded by name, where name and settings decide all of it; fields that were exchanged since then
    are not seen.

    >>> from spurless.core import Split
    >>> describe_bundle(Bundle("grey", Split(torch.rand(2, 1, 4, 4), torch.tensor([0, 1])), mean=(0.5,), std=(0.25,)))
    {'mean': [0.5], 'std': [0.25]}
    """
    if "source" in data.settings:
        return {}
    usual = _deciding(Bundle(data.name, data.train, data.val, data.test))
    return {name: value for name, value in _deciding(data).items() if value != usual[name]}


def _deciding(data: Bundle) -> dict[str, Any]:
    tables = "".join(str(table.tolist()) for table in data.aligned)
    return {
        "mean": [float(m) for m in data.mean],
        "std": [float(s) for s in data.std],
        "augment": dataclasses.asdict(data.augment),
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
        said = PASSING.sub("", layer.extra_repr()) if kind.__module__.startswith("torch.") else ""
        layers.update(f"{name} {kind.__qualname__} {said}\n".encode())
    for name, held in net.state_dict().items():
        weights.update(name.encode())
        if not isinstance(held, Tensor):  # a module's extra state
            weights.update(PASSING.sub("", repr(held)).encode())
        elif not is_lazy(held):  # else it has no numbers yet
            whole = held.detach().cpu().contiguous()
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
    known: dict[str, Any] = {"shape": data.shape, "classes": data.classes, "mean": data.mean, "std": data.std}
    known["precision"] = settings["recipe"]["precision"]
    if len(data.shape) == 3:  # whether pixels came as bytes, which the network sees divided by 255
        known["bytes"] = data.train[torch.arange(1)].dtype == torch.uint8
    if data.coding:
        known["coding"] = data.coding
    if data.attributes:  # which values went with which classes, for whoever scores it on other data
        known["shortcuts"] = {
            name: {"values": values, "aligned": table.tolist()}
            for name, values, table in zip(data.attributes, data.values, data.aligned, strict=True)
        }
    if data.tokens is not None:
        known |= {"tokenizer": data.tokens.tokenizer, "vocabulary": data.tokens.vocabulary}
    # How the data was read, without where it lay, and which rows it was: its own scores are made again from its own.
    known["trained_on"] = {k: v for k, v in settings["data"].items() if k not in ("name", "source", "fingerprint")}
    known["rows"] = fingerprint(data, with_attributes=False)
    return {"net": settings["net"], "method": settings["method"], "data": data.name} | known


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
        raise UserError(f"{path} holds no finished run (no result.json); train it first, or give a weights file.")
    result = Result.from_row(saved | {"folder": str(path)})
    if result.status == "done":
        result.classifier = load_classifier(folder.path / MODEL, net, device, method)
    return result


def load_classifier(
    weights: str | Path,
    net: NetSpec | None = None,
    device: str | torch.device | None = None,
    method: Method | None = None,
) -> Net:
    """The classifier in a model.safetensors. The file says which network it is; pretrained weights are not fetched."""
    tensors, facts = load_tensors(Path(weights))
    if not facts:
        raise UserError(
            f"{weights} does not say which network it holds; load it into your module and call spurless.evaluate."
        )
    spec = facts["net"] if net is None else net
    if isinstance(spec, Mapping):
        if spec.get("own"):
            raise UserError(f"{weights} holds a network of your own, {spec['name']}: pass it as net=... from Python.")
        spec = {k: v for k, v in spec.items() if k not in ("pretrained", "weights")}
        if "pretrained" in settings_of(builder(spec["name"])):
            spec["pretrained"] = False  # which is not the default of networks that read text
    shape = tuple(facts["shape"])
    # What the head of a module that cannot be traced is told by: any inputs, of the kind that it takes.
    some = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    example = torch.zeros(2, *shape, dtype=torch.long) if "vocabulary" in facts else some
    make = network_maker(spec, shape, len(facts["classes"]), 0, example)
    if method is None and facts["method"]["name"] in METHODS:
        method = make_method(facts["method"])
    made = make(0) if method is None else method.classifier(lambda: make(0))
    try:
        made.load_state_dict(tensors)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise UserError(f"{weights} does not fit the network {describe_net(spec)['name']}: {reason}") from None
    return made.to(pick_device(device)).eval()


def evaluate(
    net: nn.Module,
    data: Bundle | str | Mapping[str, Any],
    split: str = "test",
    device: str | torch.device | None = None,
    root: str | Path | None = None,
    precision: Precision = "fp32",
) -> dict[str, Any]:
    """The scores of any network that takes the data's inputs, by group, in percent."""
    data = load_data(data, root=root)
    if split not in data.splits:
        raise UserError(f"{data.name} has no split '{split}'; it has {', '.join(data.splits)}.")
    place = pick_device(device)
    recipe = Recipe(channels_last=False, precision=precision)
    net = net.to(place)
    rows = data.splits[split]
    return full_score(data, rows, outputs(net, rows, Inputs(data, recipe, place), recipe, place))


def network_maker(
    spec: NetSpec, shape: tuple[int, ...], classes: int, seed: int, example: Tensor | None = None
) -> Callable[[int], Net]:
    """How a run makes its networks: from a name, from a factory, or as copies of the user's own module."""

    def make(count: int) -> Net:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive(seed, "net", count))
            if isinstance(spec, Net):
                return copy.deepcopy(spec)
            if isinstance(spec, (str, Mapping)):
                return build(spec, shape, classes)
            module = spec if isinstance(spec, nn.Module) else spec()
            net = module if isinstance(module, Net) else Net.wrap(module, example=example)
            if net.classes < classes:
                raise UserError(
                    f"{type(module).__name__} has {net.classes} outputs, and there are {classes} classes: it must give "
                    "a number for each."
                )
            return net

    return make


def example_of(data: Bundle) -> Tensor:
    """Two inputs as a network sees them, to try a user's module on."""
    return Inputs(data, Recipe(channels_last=False), torch.device("cpu"))(data.train[torch.arange(2)])


@contextmanager
def interruptible(stop: Callable[[], None]) -> Generator[None, None, None]:
    """The first Ctrl-C ends the loop after its step, with a checkpoint; a second one ends it at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def on_interrupt(*_: Any) -> None:
        stop()
        if world() == 1:  # torchrun passes a Ctrl-C on that the process has had already
            signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def arithmetic(recipe: Recipe, device: torch.device) -> Generator[None, None, None]:
    """The recipe's switches that torch holds globally, put back afterwards; and random numbers of the run's own."""
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_gpu else []), switches(recipe, device):
        if on_gpu:
            with torch.cuda.stream(side_stream(device)):  # a graph cannot be captured on the default one
                yield
            torch.cuda.synchronize(device)
        else:
            yield


@contextmanager
def switches(recipe: Recipe, device: torch.device) -> Generator[None, None, None]:
    """What torch holds for the whole process: how convolutions are chosen, determinism, the precision of products."""
    was = torch.backends.cudnn.benchmark, torch.are_deterministic_algorithms_enabled()
    precision = torch.get_float32_matmul_precision()
    on_gpu = device.type == "cuda"
    try:
        torch.backends.cudnn.benchmark = on_gpu and not recipe.deterministic
        if on_gpu and recipe.deterministic:
            torch.use_deterministic_algorithms(True)
        if recipe.precision == "tf32":
            torch.set_float32_matmul_precision("high")
        yield
    finally:
        torch.backends.cudnn.benchmark = was[0]
        torch.use_deterministic_algorithms(was[1])
        if recipe.precision == "tf32":  # not always: where it was never set, setting it has everything compiled again
            torch.set_float32_matmul_precision(precision)


@functools.cache
def hint_if_threads_spin(device: torch.device) -> None:
    """Say once how to avoid a slow-down of up to ten times: threads that spin while they wait, on a busy machine."""
    busy = os.getloadavg()[0] > (os.cpu_count() or 1) if hasattr(os, "getloadavg") else False
    if device.type == "cpu" and busy and torch.get_num_threads() > 1 and "OMP_WAIT_POLICY" not in os.environ:
        complain(
            "This machine is busy, and torch was imported before spurless: its threads spin while they wait, which can "
            "be much slower. Import spurless first, or set OMP_WAIT_POLICY=PASSIVE."
        )


@functools.cache
def side_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all runs: libraries keep tens of megabytes of workspace for every stream that they have seen."""
    return torch.cuda.Stream(device)


def pick_device(given: str | torch.device | None) -> torch.device:
    """The given device, else a GPU if there is one."""
    if given is None:
        given = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(given)
    except RuntimeError:
        raise UserError(f"There is no device '{given}'; use cpu, cuda or cuda:1.") from None
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"--device {given}: only cpu and cuda are supported.")
    if device.type == "cpu":
        return device
    index = local_gpu() if device.index is None else device.index
    if index >= torch.cuda.device_count():
        found = torch.cuda.device_count()
        have = f"CUDA devices here go up to cuda:{found - 1}" if found else "no CUDA device is available here"
        raise UserError(f"--device {given}: {have}; use {'one of those' if found else '--device cpu'}.")
    return torch.device("cuda", index)
