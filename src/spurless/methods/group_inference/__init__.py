"""In which group is each training row? Known from bias labels, or guessed without them.

An inference is a generator that yields its training stages and returns what it found, so that a method says

    found = yield from infer(run, "eiil")

and `infer_groups` runs one on its own. No inference but `known` sees a bias label. Groups are numbered class by class:
every group lies within one class.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import torch
from torch import Tensor

from spurless.core.data import Bundle, Labels, Split
from spurless.core.errors import UserError, unknown
from spurless.core.method import Method, Run, Stage
from spurless.core.recipe import Recipe
from spurless.core.settings import resolve

if TYPE_CHECKING:
    from spurless.nets import Net
    from spurless.train.networks import NetSpec
    from spurless.train.progress import Watcher


class Groups(NamedTuple):
    """What an inference found."""

    train: Tensor  # (n,) int64 on the CPU: the group of each training row
    val: Tensor | None  # (m,) the same for the validation rows, where there are any and they can be told
    number: int  # of groups; some may hold no row
    net: Net | None = None  # the network that it was read off
    quality: dict[str, Any] | None = None  # agreement with the true groups, from `infer_groups`, where they are known


Inference = Generator[Stage, None, Groups]
How = Literal["known", "gce", "jtt", "ecs", "eiil", "cnc", "george", "bpa", "xrm"]
GroupsFrom = Annotated[How, "where the groups come from: known needs training bias labels, the others guess"]

# Below spurless.methods.group_inference: module and function, each `(run, **settings) -> Inference`.
INFERENCES: dict[str, str] = {
    "known": "known:infer_known",
    "gce": "errors:infer_gce",
    "jtt": "errors:infer_jtt",
    "ecs": "errors:infer_ecs",
    "eiil": "eiil:infer_eiil",
    "cnc": "predictions:infer_cnc",
    "george": "clusters:infer_george",
    "bpa": "clusters:infer_bpa",
    "xrm": "xrm:infer_xrm",
}


def infer(run: Run, how: str, **settings: Any) -> Inference:
    """The groups of the training rows, by the inference of this name; its agreement with the truth is in the result."""
    inference = inference_of(how)
    found: Groups = yield from inference(run, **resolve(inference, settings, "inference"))
    if how != "known":
        run.report_groups(found.train)
    return found


def inference_of(how: str) -> Callable[..., Inference]:
    """The inference of this name; its settings are its parameters."""
    if how not in INFERENCES:
        raise unknown("inference", how, INFERENCES)
    module, function = INFERENCES[how].split(":")
    return getattr(import_module(f"spurless.methods.group_inference.{module}"), function)


def labels_for(how: str) -> Labels:
    """What a method may know that takes its groups from there: guessed groups need no label but to pick weights."""
    return "training" if how == "known" else "selection"


def within_classes(y: Tensor, part: Tensor, parts: int) -> Tensor:
    """(n,) The group of each row from its class and its part of that class.

    >>> import torch
    >>> within_classes(torch.tensor([0, 1, 1]), torch.tensor([1, 0, 1]), parts=2).tolist()
    [1, 2, 3]
    """
    return y.cpu() * parts + part.cpu()


def groups_of(split: Split, values: tuple[int, ...], with_class: bool = True) -> Tensor:
    """(n,) The group of each row from its class and all its attributes, which have so many values.

    >>> import torch
    >>> split = Split(torch.zeros(3, 1), torch.tensor([0, 1, 1]), torch.tensor([[1, 0], [0, 2], [1, 2]]))
    >>> groups_of(split, (2, 3)).tolist()
    [3, 8, 11]
    """
    assert split.a is not None
    group = split.y if with_class else torch.zeros_like(split.y)
    for column, count in zip(split.a.unbind(1), values, strict=True):
        group = group * count + column
    return group


# An inference on its own


def infer_groups(
    data: Bundle | str | Mapping[str, Any],
    how: str,
    net: NetSpec | None = None,
    recipe: Recipe | str | Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str | torch.device | None = None,
    root: str | Path | None = None,
    progress: bool | Watcher | None = None,
    **settings: Any,
) -> Groups:
    """Guess groups without training a robust network after it. `how` is a name in INFERENCES, `settings` are its own.

    >>> found = infer_groups("toy", "cnc", progress=False, device="cpu", identify_epochs=2)
    >>> found.train.shape, found.number, sorted(found.quality)
    (torch.Size([2000]), 4, ['ami', 'n_conflicting', 'n_groups', 'n_mined', 'precision', 'recall'])
    """
    from spurless.registry import load_data
    from spurless.train.fit import fit

    resolve(inference_of(how), settings, "inference")  # a mistake is said before anything is loaded
    bundle = load_data(data, root=root)
    found: list[Groups] = []

    class Infer(Method):
        """Drives the inference through the one training loop."""

        @property
        def labels(self) -> Labels:
            return labels_for(how)

        def stages(self, run: Run) -> Generator[Stage, None, Net]:
            found.append((yield from infer(run, how, **settings)))
            return found[0].net or run.net()

    result = fit(Infer(), bundle, net=net, recipe=recipe, seed=seed, device=device, root=root, progress=progress)
    if not found:
        raise UserError(f"The inference did not finish. {result.error}")
    return found[0]._replace(quality=agreement(found[0].train, bundle))


def agreement(groups: Tensor, data: Bundle) -> dict[str, Any] | None:
    """How groups (n,) of the training rows agree with the true ones; None where those are not known."""
    from spurless.metrics.inference import inference_scores

    aligned = data.is_aligned(data.train)
    if aligned is None:
        return None
    truth = groups_of(data.train, tuple(len(names) for names in data.values))
    return inference_scores(groups.numpy(), truth.numpy(), data.train.y.numpy(), ~aligned.all(1).numpy())
