"""Parts of the methods for a training loop of one's own: weights of samples, and a refitted head.

Nothing is computed here that the methods do not compute: a loader is read once, and what the model's last linear layer
is given, the features, becomes the data of a run whose network is that layer alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from spurless.core.data import Bundle, Split
from spurless.core.errors import DataError, SettingError
from spurless.core.method import Method
from spurless.core.recipe import Recipe
from spurless.methods import afr, dcwp, jtt, lff
from spurless.methods.dfr import DFR
from spurless.methods.group_dro import group_odds
from spurless.methods.group_inference import within_classes
from spurless.methods.group_inference.errors import wrong
from spurless.methods.pgd import PGD
from spurless.methods.rs import RS
from spurless.nets import Net
from spurless.nets.heads import evaluating, find_head
from spurless.registry import make_method
from spurless.train.engine_run import EngineRun

LABELS = ("labels", "label")  # of a batch that is a dictionary


def sample_weights(
    model: nn.Module | None,
    loader: Any,
    how: Method | str | Mapping[str, Any] = "pgd",
    *,
    groups: ArrayLike | None = None,
    against: nn.Module | None = None,
    head: str | None = None,
) -> Tensor:
    """How often, or with which weight, each sample should count, in the order of the loader's dataset: (n,) for
    `torch.utils.data.WeightedRandomSampler`, or to multiply losses with.

    Args:
        model: a trained network, whose last layer is linear; for `balanced` None will do.
        loader: a DataLoader, whose dataset is read once, in its own order; or batches (x, y), (x, y, attribute) or
            dictionaries with `labels`. Read it without augmentation.
        how: `pgd`: by the gradient's norm, of a network that relies on the bias, such as one trained with GCE;
            `jtt` and `dcwp`: more for the samples that the network gets wrong; `afr`: more for those that it does not
            believe; `lff`: by the network's share of the loss of both networks; `balanced`: every group alike. With
            settings as in `fit`: `{"name": "jtt", "lambda_up": 50}`.
        groups: (n,) the group of each sample, for `balanced`; else class and attribute of the batches.
        against: the network that is being debiased, for `lff`.
        head: the name of the last layer, where it cannot be told.

    >>> x, y = torch.tensor([[0.0], [1.0], [4.0]]), torch.tensor([0, 1, 1])
    >>> model = nn.Linear(1, 2)
    >>> with torch.no_grad():
    ...     _ = model.weight.copy_(torch.tensor([[0.0], [1.0]])), model.bias.copy_(torch.tensor([1.5, 0.0]))
    >>> sample_weights(model, [(x, y)], {"name": "jtt", "lambda_up": 5}).tolist()  # it gets the second one wrong
    [1.0, 5.0, 1.0]
    """
    method = RS() if how == "balanced" else make_method(how)
    if isinstance(method, RS):
        labels, attributes = read_labels(loader)
        if method.by == "class":
            return group_odds(labels)
        return group_odds(_groups(labels, attributes, groups))
    if model is None:
        raise SettingError(f"sample_weights by '{how}' needs a trained network; only 'balanced' needs none.")
    seen = read(model, loader, head)
    logits, y = seen.logits, seen.y
    if isinstance(method, PGD):
        if method.scope == "full":
            raise SettingError("sample_weights has the gradient of the head only: leave scope at 'head'.")
        return method.odds(seen.run(), seen.net).cpu()
    if isinstance(method, jtt.JTT):
        return torch.bincount(jtt.upsampled(wrong(logits, y), method.times), minlength=len(y)).float()
    if isinstance(method, dcwp.DCWP):
        weights = dcwp.oversampling(wrong(logits, y), method.mask.up)
        return torch.ones(len(y)) if weights is None else weights
    if isinstance(method, afr.AFR):
        return afr.sample_weights(logits, y, logits.shape[1], method.gamma)
    if isinstance(method, lff.LfF):
        if against is None:
            raise SettingError("sample_weights by 'lff' compares two networks: give the debiased one as against=...")
        other = read(against, loader, None)
        return lff.relative_difficulty(_ce(logits, y), _ce(other.logits, y))
    raise SettingError(f"sample_weights knows pgd, jtt, dcwp, afr, lff and balanced; '{how}' weighs nothing by itself.")


def refit_head(
    model: nn.Module,
    loader: Any,
    how: Method | str | Mapping[str, Any] = "dfr",
    *,
    groups: ArrayLike | None = None,
    head: str | None = None,
    seed: int = 0,
) -> nn.Module:
    """Refit the last linear layer of your model, in place, on samples that it was not trained on; returns the model.

    Args:
        model: a trained network, whose last layer is linear.
        loader: as in `sample_weights`; held-out samples.
        how: `dfr` (a logistic regression on samples that are balanced by group, which needs groups) or `afr` (gradient
            descent on samples weighted by how little the model believes them), with settings as in `fit`.
        groups: (n,) the group of each sample; else class and attribute of the batches.
        head: the name of the last layer, where it cannot be told.
        seed: what the balanced parts are drawn by.
    """
    method = make_method(how)
    seen = read(model, loader, head)
    if isinstance(method, DFR):
        run = seen.run(seed)
        method._refit(run, seen.net, run.data.train, _groups(seen.y, seen.a, groups))
    elif isinstance(method, afr.AFR):
        weights = afr.sample_weights(seen.logits, seen.y, seen.net.classes, method.gamma)
        method.retrain(seen.net, seen.features.double(), seen.y, weights)
    else:
        raise SettingError(f"refit_head knows dfr and afr, not '{how}'.")
    with torch.no_grad():
        for own, fitted in zip(seen.head.parameters(), seen.net.head.parameters(), strict=True):
            own.copy_(fitted)
    return model


class Seen(NamedTuple):
    """What a model made of a loader's samples, on the CPU."""

    features: Tensor  # (n, d) what the head was given
    y: Tensor  # (n,)
    a: Tensor | None  # (n,) the attribute, where the batches have one
    head: nn.Linear  # the model's own
    net: Net  # a copy of the head, as a network on the features

    @property
    def logits(self) -> Tensor:
        with torch.no_grad():
            logits: Tensor = self.net(self.features)
            return logits

    def run(self, seed: int = 0) -> EngineRun:
        data = Bundle("loader", Split(self.features, self.y), classes=tuple(map(str, range(self.net.classes))))
        recipe = Recipe(channels_last=False)
        return EngineRun(data, recipe, seed, torch.device("cpu"), lambda count: self.net)


def read(model: nn.Module, loader: Any, head: str | None = None) -> Seen:
    """One pass over a loader in evaluation mode: the features of each sample, and its label and attribute."""
    features: list[Tensor] = []
    labels: list[Tensor] = []
    attributes: list[Tensor | None] = []
    layer: nn.Linear | None = None
    device = next(model.parameters()).device
    hook = None

    def keep(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        features.append(given[0].detach().float().cpu())

    try:
        with evaluating(model), torch.no_grad():
            for batch in in_order(loader):
                x, y, a = parts_of(batch)
                x = {k: v.to(device) for k, v in x.items()} if isinstance(x, Mapping) else x.to(device)
                if layer is None:
                    layer = _head_of(model, x, head)
                    hook = layer.register_forward_pre_hook(keep)
                model(**x) if isinstance(x, Mapping) else model(x)
                labels.append(y)
                attributes.append(a)
    finally:
        if hook is not None:
            hook.remove()
    if layer is None:
        raise DataError("The loader has no samples.")
    copied = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None)
    copied.load_state_dict({name: value.float() for name, value in layer.state_dict().items()})
    phi, y = torch.cat(features), torch.cat(labels)
    if phi.shape != (len(y), layer.in_features):
        raise DataError(
            f"The last layer was given inputs of shape {tuple(phi.shape)} for {len(y)} samples; it must be used once "
            "for each."
        )
    return Seen(phi, y, _joined(attributes), layer, Net(nn.Identity(), copied))


def read_labels(loader: Any) -> tuple[Tensor, Tensor | None]:
    """The labels of all samples, and their attribute where the batches have one."""
    labelled = [parts_of(batch)[1:] for batch in in_order(loader)]
    if not labelled:
        raise DataError("The loader has no samples.")
    return torch.cat([y for y, _ in labelled]), _joined([a for _, a in labelled])


def in_order(loader: Iterable[Any]) -> Iterable[Any]:
    """The batches of a DataLoader's whole dataset in its own order, fetched as the loader fetches them."""
    if not isinstance(loader, DataLoader):
        return loader
    return DataLoader(
        loader.dataset,
        batch_size=loader.batch_size or 64,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        worker_init_fn=loader.worker_init_fn,
    )


def parts_of(batch: Any) -> tuple[Any, Tensor, Tensor | None]:
    """The inputs of a batch, its labels, and its attribute where it has one."""
    if isinstance(batch, Mapping):
        name = next((name for name in LABELS if name in batch), None)
        if name is None:
            raise DataError(f"A batch has {', '.join(batch)}, and no labels; name them 'labels'.")
        used = {k: v for k, v in batch.items() if k not in (name, "attribute")}
        attribute = batch.get("attribute")
        return used, batch[name].cpu(), None if attribute is None else attribute.cpu()
    if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
        raise DataError("A batch must be (x, y), (x, y, attribute), or a dictionary with 'labels'.")
    return batch[0], batch[1].cpu().long(), batch[2].cpu().long() if len(batch) == 3 else None


class _Logits(nn.Module):
    """A model that takes a batch as a dictionary and gives an object with logits, as one that gives a tensor."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        given = self.model(**batch)
        logits: Tensor = getattr(given, "logits", given)
        return logits


def _head_of(model: nn.Module, x: Any, head: str | None) -> nn.Linear:
    if isinstance(x, Mapping):
        model, head = _Logits(model), head and f"model.{head}"
    layer = model.get_submodule(find_head(model, head, x))
    assert isinstance(layer, nn.Linear)
    return layer


def _joined(parts: list[Tensor | None]) -> Tensor | None:
    present = [chunk for chunk in parts if chunk is not None]
    return torch.cat(present) if present and len(present) == len(parts) else None


def _groups(y: Tensor, a: Tensor | None, groups: ArrayLike | None) -> Tensor:
    """(n,) The group of each sample, as it was given, else from class and attribute."""
    if groups is not None:
        codes = torch.from_numpy(np.unique(np.asarray(groups), return_inverse=True)[1])
        if codes.shape != y.shape:
            raise DataError(f"groups has the shape {tuple(codes.shape)}, and there are {len(y)} samples.")
        return codes
    if a is None:
        raise DataError("There are no groups: give groups=..., or batches (x, y, attribute).")
    return within_classes(y, a, int(a.max()) + 1)


def _ce(logits: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(logits, y, reduction="none")
