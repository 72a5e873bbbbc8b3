"""How samples become a network's inputs, and what a network says about each of them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from spurless.core.augment import Augment, apply, draw, pack, preset, unpack
from spurless.core.data import Bundle, Images, Split, Texts
from spurless.core.errors import UserError
from spurless.core.parallel import my_share
from spurless.core.recipe import Recipe
from spurless.data.tokens import bucket, row_lengths
from spurless.nets import Net
from spurless.nets.heads import evaluating

if TYPE_CHECKING:
    from spurless.train.feed import Resident


class Inputs:
    """How samples become network inputs: scaled to 0..1, augmented when training, standardised; tokens as they are."""

    def __init__(self, data: Bundle, recipe: Recipe, device: torch.device):
        kind = data.inputs
        self.is_image, self.is_text = isinstance(kind, Images), isinstance(kind, Texts)
        own = kind.augment if isinstance(kind, Images) else Augment()
        self.how = own if recipe.augment == "data" else preset(recipe.augment)
        self.channels_last = recipe.channels_last and self.is_image
        view = (1, -1, 1, 1) if self.is_image else (1, -1)
        self.mean = torch.tensor(kind.mean, device=device).view(view) if kind.mean else None
        self.std = torch.tensor(kind.std, device=device).view(view) if kind.std else None

        self.device = device
        self.augments = self.is_image and not self.how.off

    def __call__(self, rows: Tensor) -> Tensor:
        """As they are, for evaluation."""
        return self.training(rows, None)

    def draw(self, n: int, shape: tuple[int, ...]) -> Tensor:
        """(k, n): the random numbers that augmenting `n` samples takes."""
        return pack(draw(self.how, n, shape[1], shape[2], self.device))

    def training(self, rows: Tensor, draws: Tensor | None) -> Tensor:
        """Augmented by these random numbers (k, n), where there are any."""
        if self.is_text:
            return rows  # ids are names, not quantities
        x = rows.float()
        if rows.dtype == torch.uint8:
            x = x.mul_(1 / 255)
        if self.channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        if draws is not None:
            x = apply(x, unpack(draws, self.how), self.how.rotate_mode)
        if self.mean is not None and self.std is not None:
            x = (x - self.mean) / self.std
        return x

    # Prepared inputs are stored with the channels last where the network wants them so: a view takes no copy.

    def stored(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[1:], shape[0]) if self.channels_last else shape

    def as_stored(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 3, 1) if self.channels_last else x

    def from_stored(self, x: Tensor) -> Tensor:
        return x.permute(0, 3, 1, 2) if self.channels_last else x


def fetch_ahead(
    split: Split, order: Tensor, size: int, ahead: int, pin: bool = False, share: bool = False
) -> Iterator[Tensor]:
    """The samples of each batch of `order`, in turn, fetched by a thread that keeps `ahead` batches ready.

    `share`: of each batch only those that this one of several processes fetches.
    """
    ready: queue.Queue[Tensor | BaseException | None] = queue.Queue(maxsize=ahead)
    wanted = threading.Event()
    wanted.set()

    def put(item: Tensor | BaseException | None) -> None:
        while wanted.is_set():
            with suppress(queue.Full):
                ready.put(item, timeout=0.1)
                return

    def work() -> None:
        try:
            for idx in order.split(size):
                if not wanted.is_set():
                    return
                rows = split[idx[my_share(len(idx))] if share else idx]
                put(rows.pin_memory() if pin else rows)
            put(None)
        except BaseException as error:  # handed over: the training thread must see it, not a silent end
            put(error)

    threading.Thread(target=work, daemon=True, name="spurless-fetch").start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        wanted.clear()


@torch.no_grad()
def outputs(
    net: nn.Module,
    split: Split,
    inputs: Inputs,
    recipe: Recipe,
    device: torch.device,
    features: bool = False,
    placed: Resident | None = None,
    draws: Tensor | None = None,
) -> Tensor:
    """Logits (n, classes), or features (n, d), of every sample, in order and in evaluation mode; modes are put back.

    `placed`: the samples, where they lie on the device already; `draws` (k, n): random numbers to augment them by.
    """
    ask = net.features if features else net
    out, done = None, 0  # filled in as batches come: joined in the end, all of it would be held twice
    with evaluating(net):
        size = recipe.eval_batch_size
        here = split.x if placed is None else placed.x
        if isinstance(here, Tensor) and inputs.is_text:
            return _of_text(ask, here, recipe, device, sort=isinstance(net, Net))
        if placed is not None:
            batches = placed.parts(size)
        elif isinstance(here, Tensor):
            batches = iter(here.split(size))
        else:
            batches = fetch_ahead(split, torch.arange(len(split)), size, ahead=2)
        for i, rows in enumerate(batches):
            own_draws = None if draws is None else draws[:, i * size : (i + 1) * size]
            x = inputs.training(rows.to(device, non_blocking=True), own_draws)
            with torch.autocast(device.type, torch.bfloat16, enabled=recipe.precision == "bf16"):
                made = tensor_of(ask(x)).float()  # type: ignore[operator]
            if out is None:
                out = made.new_empty((len(split), *made.shape[1:]))
            out[done : done + len(made)] = made
            done += len(made)
    assert out is not None and done == len(split)
    return out


def _of_text(ask: Any, x: Tensor, recipe: Recipe, device: torch.device, sort: bool) -> Tensor:
    """Each batch is cut to its longest sample, and samples of about the same length come together.

    Not for what stands in for a network: it may count on the order of the samples (grads.GradNorms).
    """
    lengths = row_lengths(x).cpu()
    order = lengths.argsort(stable=True) if sort else torch.arange(len(x))
    logits = []
    for idx in order.split(recipe.eval_batch_size):
        rows = x[idx.to(x.device)][..., : bucket(int(lengths[idx].max()), x.shape[-1])].to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=recipe.precision == "bf16"):
            logits.append(ask(rows).float())
    return torch.cat(logits)[order.argsort().to(device)]


def tensor_of(output: Any) -> Tensor:
    """What a network gave, which must be a tensor."""
    if not isinstance(output, Tensor):
        raise UserError(
            f"The network gives a {type(output).__name__}, not a tensor; wrap it so that it gives its logits."
        )
    return output
