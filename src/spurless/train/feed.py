"""From samples to batches: where the samples lie, how they become network inputs, and in which order they come."""

from collections.abc import Iterator
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from spurless.core.data import Split
from spurless.core.parallel import whole, world
from spurless.core.recipe import Recipe
from spurless.nets.outputs import fetch_ahead

PART = 4096  # images that are turned around at a time
RESIDENT_SHARE = 0.5  # of the free device memory that inputs may take before they are sent batch by batch


class Resident:
    """Samples that lie on the device: a batch is a gather, which a CUDA graph can hold."""

    def __init__(self, x: Tensor, channels_last: bool, device: torch.device):
        # Stored as (n, h, w, c), a gathered batch is channels_last without another copy.
        self.swap = channels_last and x.dim() == 4 and device.type == "cuda"
        self.x = with_channels_last(x, device) if self.swap else x.to(device)
        self.source = x  # kept, so that no other tensor is given its number

    def take(self, idx: Tensor) -> Tensor:
        batch = self.x.index_select(0, idx)  # not x[idx]: slow for images on a CPU
        return batch.permute(0, 3, 1, 2) if self.swap else batch

    def parts(self, size: int) -> Iterator[Tensor]:
        """All samples in order, `size` at a time."""
        return (chunk.permute(0, 3, 1, 2) if self.swap else chunk for chunk in self.x.split(size))

    def start(self, order: Tensor, size: int) -> None:
        """Nothing to fetch."""

    def advance(self, size: int) -> None:
        """Nothing to fetch."""


_residents: WeakValueDictionary[tuple[int, int, bool, torch.device], Resident] = WeakValueDictionary()


def resident(x: Tensor, channels_last: bool, device: torch.device) -> Resident:
    """These inputs on the device. Runs in lanes share them: they lie there once, and no run waits until they do."""
    key = id(x), 0 if x.is_inference() else x._version, channels_last, device
    shared = _residents.get(key)
    if shared is None:
        shared = _residents[key] = Resident(x, channels_last, device)
        if device.type == "cuda":  # other streams will read them
            torch.cuda.current_stream(device).synchronize()
    return shared


def with_channels_last(x: Tensor, device: torch.device) -> Tensor:
    """(n, h, w, c) on the device from (n, c, h, w). Turned around there, which is fast, and part by part, so that it
    never holds them twice.

    >>> with_channels_last(torch.zeros(2, 3, 4, 5), torch.device("cpu")).shape
    torch.Size([2, 4, 5, 3])
    """
    n, c, h, w = x.shape
    turned = torch.empty((n, h, w, c), dtype=x.dtype, device=device)
    for target, images in zip(turned.split(PART), x.split(PART), strict=True):
        target.copy_(images.to(device).permute(0, 2, 3, 1))
    return turned


class Streamed:
    """Samples that are decoded on demand or do not fit on the device: a thread fetches a few batches ahead."""

    AHEAD = 4

    def __init__(self, split: Split, device: torch.device):
        self.split, self.device = split, device
        self.buffers: dict[int, Tensor] = {}  # one fixed address for each batch size, for the CUDA graph
        self.batches: Iterator[Tensor] = iter(())

    def take(self, idx: Tensor) -> Tensor:
        return self.buffers[len(idx)]

    def start(self, order: Tensor, size: int) -> None:
        """Begin fetching the batches of this order."""
        pin = self.device.type == "cuda"
        self.batches = fetch_ahead(self.split, order, size, self.AHEAD, pin, share=world() > 1)

    def advance(self, size: int) -> None:
        """Put the next batch where `take` finds it."""
        batch = next(self.batches)
        if size not in self.buffers:
            self.buffers[size] = torch.empty((size, *batch.shape[1:]), dtype=batch.dtype, device=self.device)
        if world() == 1:
            self.buffers[size].copy_(batch, non_blocking=True)
        else:
            self.buffers[size].copy_(whole(batch.to(self.device), size))


def on_device(split: Split, recipe: Recipe, device: torch.device) -> Resident | Streamed:
    """The samples on the device if they fit there, else streamed to it."""
    if isinstance(split.x, Tensor):
        if device.type != "cuda":
            return resident(split.x, recipe.channels_last, device)
        free, _ = torch.cuda.mem_get_info(device)
        if split.x.nbytes < RESIDENT_SHARE * free:
            return resident(split.x, recipe.channels_last, device)
    return Streamed(split, device)


def epoch_order(n: int, weights: Tensor | None, rows: Tensor | None, generator: torch.Generator) -> Tensor:
    """The samples of one epoch in order: shuffled, or drawn with replacement by weight (inverse of the distribution).

    >>> epoch_order(3, torch.tensor([0.0, 1.0, 0.0]), None, torch.Generator()).tolist()
    [1, 1, 1]
    """
    n = n if rows is None else len(rows)
    if weights is None:
        order = torch.randperm(n, generator=generator)
    else:
        cumulative = weights.double().cpu().cumsum(0)
        draws = torch.rand(n, generator=generator, dtype=torch.float64) * cumulative[-1]
        order = torch.searchsorted(cumulative, draws, right=True).clamp_(max=n - 1)
    return order if rows is None else rows.cpu()[order]
