"""The model that is audited: the user's own, or a plain one that is trained here for the purpose."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from spurless.auditing.case import RECIPE, Case
from spurless.auditing.plain import FOLDS, encoder, fit_heads, folds_of
from spurless.core.data import Bundle, Images, Split, Texts
from spurless.core.digests import same_content
from spurless.core.errors import UserError
from spurless.core.files import read_toml
from spurless.core.fingerprint import fingerprint
from spurless.core.recipe import Recipe
from spurless.core.settings import resolve
from spurless.core.tensor_files import load_tensors
from spurless.data.anything import is_named
from spurless.nets import Net
from spurless.nets.outputs import Inputs, outputs
from spurless.registry import data_name, load_data
from spurless.train.fit import fit
from spurless.train.networks import NetSpec, example_of, network_maker
from spurless.train.run_folder import MODEL, SETTINGS

if TYPE_CHECKING:
    from spurless.auditing.request import Request

HELD_OUT = (
    0.3  # share of the training samples that are held out where the data has neither a test nor a validation split
)
SIDE = 80  # pixels at which photographs are audited, where the user names no size: enough for most shortcuts, and fast
STEPS = 2000  # at most, of a training from scratch
QUICK_NETS = ("linear", "mlp", "fcn", "simconv1", "simconv2", "conv3")  # that train in seconds on a CPU
TEXT_EPOCHS = 10  # of a bag of words, at most STEPS steps
FOR_TRAINING = 0.5  # share of a time budget
MOST_TRAIN, MOST_OTHER = 4000, 3000  # samples of a split that the plain model learns from, or is asked about
FOR_FEATURES, FEWEST = 0.2, 300  # share of a time budget for the plain model's features; samples that are read anyway
AT_ONCE = 512  # samples that are read between two lines of progress


@dataclass(frozen=True)
class Audited:
    """A model, the data as the model sees it, and the split that it was not trained on."""

    data: Bundle
    net: Net
    name: str
    source: str
    split: str
    spec: NetSpec  # how to make such a network again
    recipe: Recipe
    seconds: float  # of training
    own: bool | None = None  # whether it was trained on the training samples of this data; None: nobody knows


def open_data(data: Any, root: str | Path | None, model: Any = None) -> Bundle:
    """The data: as a given run was given its own, or with photographs of a small size."""
    from spurless.compress.loading import data_for, usual_size

    if not is_named(data):
        return load_data(data)
    given: dict[str, Any] = {"name": fspath(data)} if isinstance(data, (str, PathLike)) else dict(data)
    given["name"] = data_name(given["name"], root)
    if isinstance(model, (str, Path)):
        return data_for(Path(model), given, root)
    if model is None and "size" not in given and usual_size(given["name"]) > SIDE:
        given["size"] = SIDE
    return load_data(given, root=root)


def with_held_out(data: Bundle, seed: int) -> tuple[Bundle, str]:
    """The data, and the split whose samples a model has not seen; drawn from the training samples where there is
    none."""
    if data.test is not None:
        return data, "test"
    if data.val is not None:
        return data, "val"
    kept, test = (split_rows(data.train, rows) for rows in kept_and_held(data.train.y, seed))
    if not len(test):
        raise UserError(
            f"{data.name} has too few samples to hold any out: an audit takes samples that were not trained on."
        )
    return replace(data, train=kept, val=test), "val"


def drawn_from_training(whole: Bundle, drawn: Bundle, model: Any) -> Bundle:
    """The drawn data, with a note that a given model may have been trained on its held-out samples; refuse a run of
    Spurless that is known to have been."""
    run = Path(model) if isinstance(model, (str, Path)) else None
    if run is not None and (run / SETTINGS).exists():
        trained_on = read_toml(run / SETTINGS).get("data", {}).get("fingerprint")
        if same_content(trained_on, fingerprint(whole)):
            raise UserError(
                f"{run} was trained on all samples of {whole.name}: none is new to it. Give data with a test or "
                "validation split, or leave out the model: then one is trained without 30 % of the samples."
            )
    note = (
        f"{whole.name} has neither a test nor a validation split: the held-out samples were drawn from its training "
        "samples, and the given model may have learnt them."
    )
    return replace(drawn, notes=(*drawn.notes, note))


def kept_and_held(y: Tensor, seed: int, share: float = HELD_OUT) -> tuple[Tensor, Tensor]:
    """Numbers of the samples to keep and of those to hold out, the same share of every class."""
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    test_mask = torch.zeros(len(y), dtype=torch.bool)
    for c in y.unique():
        own = order[y[order] == c]
        test_mask[own[: round(share * len(own))]] = True
    return (~test_mask).nonzero()[:, 0], test_mask.nonzero()[:, 0]


def split_rows(split: Split, rows: Tensor) -> Split:
    names = None if split.names is None else [split.names[i] for i in rows.tolist()]
    a, member = (None if of is None else of[rows] for of in (split.a, split.member))
    return Split(split[rows], split.y[rows], a, names, member)


def given(model: Any, data: Bundle, net: NetSpec | None, split: str) -> Audited:
    """The user's model: a run's folder, a weights file, or a module."""
    from spurless.compress.loading import is_its_own, trained, with_weights

    if isinstance(model, nn.Module):
        wrapped = model if isinstance(model, Net) else Net.wrap(model, example=example_of(data))
        if wrapped.classes != len(data.classes):
            raise UserError(
                f"{type(model).__name__} has {wrapped.classes} outputs, and {data.name} has {len(data.classes)} "
                "classes: an audit needs one output for each."
            )
        return Audited(data, wrapped, type(model).__name__, "given", split, model, data.recipe, 0.0, None)
    path = Path(model)
    if not path.exists():
        raise UserError(f"{path} is neither a run's folder nor a weights file.")
    if net is None:
        own = is_its_own(path, data)
        classifier, data, _ = trained(path, data)
        facts = load_tensors(path / MODEL if path.is_dir() else path)[1]
        return Audited(data, classifier, path.name, "given", split, facts["net"], data.recipe, 0.0, own)
    if not isinstance(net, (str, Mapping)):
        raise UserError("The network of a weights file is named: net='resnet18', or a table of its settings.")
    spec: dict[str, Any] = {"name": net} if isinstance(net, str) else dict(net)
    return Audited(data, with_weights(spec, path, data), path.name, "given", split, spec, data.recipe, 0.0, None)


def train(data: Bundle, split: str, asked: Request, device: torch.device) -> Audited:
    """A network, trained for this audit on the training samples alone."""
    spec, recipe, budget, seed = asked.net or suited(data), asked.recipe, asked.seconds, asked.seed
    how = recipe if isinstance(recipe, Recipe) else suited_recipe(data, spec)
    if isinstance(recipe, Mapping):
        how = Recipe(**resolve(Recipe, recipe, "recipe", asdict(how)))
    folder = None if asked.folder is None else asked.folder / "model"
    if budget is not None:
        planned = begun_with(folder)
        if planned is None:
            how = within(budget * FOR_TRAINING, data, spec, how, device, seed)
        else:
            how = replace(how, iterations=planned)
    started = time.monotonic()
    result = fit("erm", data, net=spec, recipe=how, seed=seed, out=folder, device=device, progress=asked.progress)
    if result.classifier is None:
        raise UserError(f"The model of the audit diverged: {result.error} Try a lower recipe.lr.")
    spent = result.seconds or time.monotonic() - started
    return Audited(data, result.classifier, result.net, "trained for this audit", split, spec, how, spent, True)


def begun_with(folder: Path | None) -> int | None:
    """The steps that an audit here was begun with: timed again, they would differ, and the audit could not be
    resumed."""
    if folder is None or not (folder / SETTINGS).exists():
        return None
    steps: int | None = read_toml(folder / SETTINGS).get("recipe", {}).get("iterations")
    return steps


def suited(data: Bundle) -> NetSpec:
    """A network that learns the data within a few minutes on a CPU."""
    if isinstance(data.inputs, Texts):
        vocab = data.inputs.tokens.size
        return "embedding_bag" if vocab == 30522 else {"name": "embedding_bag", "vocab": vocab}
    if data.net in QUICK_NETS:
        return data.net
    is_image = isinstance(data.inputs, Images)
    photographs = is_image and data.shape[0] == 3 and min(data.shape[1:]) >= 64
    if photographs and find_spec("efficientnet_lite_pytorch"):
        return {"name": "efficientnet_lite0", "pretrained": True}
    return "conv3" if is_image else data.net


def suited_recipe(data: Bundle, spec: NetSpec) -> Recipe:
    """How to train it: a few epochs of a pretrained network, more of one that starts from nothing."""
    if isinstance(spec, Mapping) and spec.get("pretrained"):
        return Recipe("adamw", 3e-4, batch_size=32, epochs=3, schedule="cosine", augment="none", eval_every=0)
    if isinstance(data.inputs, Texts) and _name(spec) == "embedding_bag":
        steps = min(STEPS, -(-TEXT_EPOCHS * len(data.train) // 64))
        return Recipe("adam", 2e-3, batch_size=64, iterations=steps, eval_every=0)
    if not isinstance(data.inputs, Images):
        return replace(data.recipe, selection="last", eval_every=0)
    steps = min(STEPS, -(-12 * len(data.train) // 64))
    return Recipe("adam", 1e-3, batch_size=64, iterations=steps, eval_every=0)


def _name(spec: NetSpec) -> str:
    return spec if isinstance(spec, str) else str(spec.get("name")) if isinstance(spec, Mapping) else ""


def within(seconds: float, data: Bundle, spec: NetSpec, recipe: Recipe, device: torch.device, seed: int) -> Recipe:
    """The recipe, shortened where three timed steps say that it would not end in time."""
    net = network_maker(spec, data.shape, len(data.classes), seed, example_of(data))(0).to(device).train()
    rows = torch.arange(min(recipe.batch_size, len(data.train)))
    x, y = Inputs(data, recipe, device)(data.train[rows].to(device)), data.train.y[rows].to(device)
    took = []
    for _ in range(4):
        started = time.monotonic()
        nn.functional.cross_entropy(net(x), y).backward()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        took.append(time.monotonic() - started)
    step = sum(took[1:]) / 3  # the first one also sets things up
    planned = recipe.iterations or recipe.epochs * -(-len(data.train) // recipe.batch_size)
    affordable = max(20, int(seconds / max(step, 1e-6)))
    return recipe if planned <= affordable else replace(recipe, iterations=affordable)


# The plain model


def plain_case(
    data: Bundle,
    seed: int,
    device: torch.device,
    budget: float | None = None,
    step: Callable[..., None] = lambda *words: None,
) -> tuple[Case, Audited]:
    """The plain model with its out-of-fold answers on all samples: training ones by folds, the others by the whole.

    With a `budget` of seconds, as many samples as its encoder can read in time."""
    if len(data.train) < FOLDS:
        raise UserError(
            f"{data.name} has too few samples to hold any out: an audit takes samples that were not trained on."
        )
    samples, fold = everything(data, seed)
    learn = (fold >= 0).nonzero()[:, 0]
    order = torch.randperm(len(learn), generator=torch.Generator().manual_seed(seed))
    rows = learn if isinstance(data.inputs, Texts) else learn[order[:500]]
    frozen, name = encoder(data, Inputs(data, RECIPE, torch.device("cpu"))(samples[rows]), seed)
    net = Net(frozen, nn.Linear(1, len(data.classes))).to(device).eval()
    most = None if budget is None else affordable(net, data, samples, device, FOR_FEATURES * budget)
    if most is not None and most < len(samples):
        samples, fold = everything(data, seed, most)
        learn = (fold >= 0).nonzero()[:, 0]
    else:
        most = None
    features = encoded(net, data, samples, device, step)
    heads = fit_heads(features[learn], samples.y[learn], len(data.classes), fold[learn])
    net = Net(frozen, heads.linear(features.shape[1], len(data.classes))).to(device).eval()
    logits = heads.logits(features, fold)
    spec = suited(data)
    source = "trained for this audit"
    case = Case(data, net, source, samples, "all", device, logits, features, seed, True, heads, fold, most)
    # No seconds: how long this took says nothing about how long a network trains.
    made = Audited(data, net, name, source, "all", spec, suited_recipe(data, spec), 0.0, True)
    return case, made


def affordable(net: Net, data: Bundle, samples: Split, device: torch.device, seconds: float) -> int:
    """How many samples the encoder reads in so many seconds; at least FEWEST."""
    inputs, some = Inputs(data, RECIPE, device), split_rows(samples, torch.arange(min(64, len(samples))))
    outputs(net, some, inputs, RECIPE, device, features=True)  # the first pass also sets things up
    started = time.monotonic()
    outputs(net, some, inputs, RECIPE, device, features=True)
    return max(FEWEST, int(len(some) * seconds / max(1e-6, time.monotonic() - started)))


def encoded(net: Net, data: Bundle, samples: Split, device: torch.device, step: Callable[..., None]) -> Tensor:
    """(n, d) The features of all samples."""
    inputs, parts = Inputs(data, RECIPE, device), []
    for rows in torch.arange(len(samples)).split(AT_ONCE):
        step("model", f"{int(rows[0]):,} of {len(samples):,} samples")
        parts.append(outputs(net, split_rows(samples, rows), inputs, RECIPE, device, features=True).float().cpu())
    return torch.cat(parts)


def drawn_rows(data: Bundle, seed: int, most: int | None = None) -> Iterator[tuple[str, Tensor]]:
    """Of each split the samples that are answered: of very many a draw, or its part of `most`."""
    share = 1.0 if most is None else min(1.0, most / sum(len(split) for split in data.splits.values()))
    for name, split in data.splits.items():
        limit = min(MOST_TRAIN if name == "train" else MOST_OTHER, max(1, round(share * len(split))))
        yield name, torch.randperm(len(split), generator=torch.Generator().manual_seed(seed))[:limit].sort().values


def everything(data: Bundle, seed: int, most: int | None = None) -> tuple[Split, Tensor]:
    """All samples (of very many a draw, or `most`), and the fold of each; -1 for those of other splits than train."""
    parts, folds = [], []
    for name, rows in drawn_rows(data, seed, most):
        parts.append(split_rows(data.splits[name], rows))
        folds.append(folds_of(parts[-1].y, seed) if name == "train" else torch.full((len(rows),), -1))
    x = torch.cat([torch.as_tensor(split.x) for split in parts])
    attributes = [split.a for split in parts if split.a is not None]
    names = [name for split in parts for name in split.names or ()]
    whole = Split(
        x,
        torch.cat([split.y for split in parts]),
        torch.cat(attributes) if len(attributes) == len(parts) else None,
        names if len(names) == len(x) else None,
    )
    return whole, torch.cat(folds)
