"""From rows to batches: where the rows lie, how they become network inputs, and in which order they come."""

import queue
import threading
from collections.abc import Iterator
from contextlib import suppress
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from spurless.core.augment import Augment, apply, draw, pack, preset, unpack
from spurless.core.data import Bundle, Split
from spurless.core.recipe import Recipe
from spurless.train.distributed import my_share, whole, world

PART = 4096  # images that are turned around at a time
RESIDENT_SHARE = 0.5  # of the free device memory that inputs may take before they are sent batch by batch


class Inputs:
    """How rows become network inputs: scaled to 0..1, augmented when training, standardised; tokens as they are."""

    def __init__(self, data: Bundle, recipe: Recipe, device: torch.device):
        self.how: Augment = data.augment if recipe.augment == "data" else preset(recipe.augment)
        self.is_image = len(data.shape) == 3
        self.is_text = data.tokens is not None
        self.channels_last = recipe.channels_last and self.is_image
        view = (1, -1, 1, 1) if self.is_image else (1, -1)
        self.mean = torch.tensor(data.mean, device=device).view(view) if data.mean else None
        self.std = torch.tensor(data.std, device=device).view(view) if data.std else None

        self.device = device
        self.augments = self.is_image and not self.how.off

    def __call__(self, rows: Tensor) -> Tensor:
        """As they are, for evaluation."""
        return self.training(rows, None)

    def draw(self, n: int, shape: tuple[int, ...]) -> Tensor:
        """(k, n): the random numbers that augmenting `n` rows takes."""
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


class Resident:
    """Rows that lie on the device: a batch is a gather, which a CUDA graph can hold."""

    def __init__(self, x: Tensor, channels_last: bool, device: torch.device):
        # Stored as (n, h, w, c), a gathered batch is channels_last without another copy.
        self.swap = channels_last and x.dim() == 4 and device.type == "cuda"
        self.x = with_channels_last(x, device) if self.swap else x.to(device)
        self.source = x  # kept, so that no other tensor is given its number

    def rows(self, idx: Tensor) -> Tensor:
        rows = self.x.index_select(0, idx)  # not x[idx]: slow for images on a CPU
        return rows.permute(0, 3, 1, 2) if self.swap else rows

    def parts(self, size: int) -> Iterator[Tensor]:
        """All rows in order, `size` at a time."""
        return (part.permute(0, 3, 1, 2) if self.swap else part for part in self.x.split(size))

    def start(self, order: Tensor, size: int) -> None:
        """Nothing to fetch."""

    def advance(self, size: int) -> None:
        """Nothing to fetch."""


_residents: WeakValueDictionary[tuple[int, int, bool, torch.device], Resident] = WeakValueDictionary()


def resident(x: Tensor, channels_last: bool, device: torch.device) -> Resident:
    """These rows on the device. Runs in lanes share them: they lie there once, and no run waits until they do."""
    key = id(x), 0 if x.is_inference() else x._version, channels_last, device
    found = _residents.get(key)
    if found is None:
        found = _residents[key] = Resident(x, channels_last, device)
        if device.type == "cuda":  # other streams will read them
            torch.cuda.current_stream(device).synchronize()
    return found


def with_channels_last(x: Tensor, device: torch.device) -> Tensor:
    """(n, h, w, c) on the device from (n, c, h, w). Turned around there, which is fast, and part by part, so that it
    never holds them twice.

    >>> with_channels_last(torch.zeros(2, 3, 4, 5), torch.device("cpu")).shape
    torch.Size([2, 4, 5, 3])
    """
    n, c, h, w = x.shape
    found = torch.empty((n, h, w, c), dtype=x.dtype, device=device)
    for place, part in zip(found.split(PART), x.split(PART), strict=True):
        place.copy_(part.to(device).permute(0, 2, 3, 1))
    return found


class Streamed:
    """Rows that are decoded on demand or do not fit on the device: a thread fetches a few batches ahead."""

    AHEAD = 4

    def __init__(self, split: Split, device: torch.device):
        self.split, self.device = split, device
        self.buffers: dict[int, Tensor] = {}  # one fixed address for each batch size, for the CUDA graph
        self.batches: Iterator[Tensor] = iter(())

    def rows(self, idx: Tensor) -> Tensor:
        return self.buffers[len(idx)]

    def start(self, order: Tensor, size: int) -> None:
        """Begin fetching the batches of this order."""
        pin = self.device.type == "cuda"
        self.batches = fetch_ahead(self.split, order, size, self.AHEAD, pin, share=world() > 1)

    def advance(self, size: int) -> None:
        """Put the next batch where `rows` finds it."""
        rows = next(self.batches)
        if size not in self.buffers:
            self.buffers[size] = torch.empty((size, *rows.shape[1:]), dtype=rows.dtype, device=self.device)
        if world() == 1:
            self.buffers[size].copy_(rows, non_blocking=True)
        else:
            self.buffers[size].copy_(whole(rows.to(self.device), size))


def place(split: Split, recipe: Recipe, device: torch.device) -> Resident | Streamed:
    """The rows on the device if they fit there, else streamed to it."""
    if isinstance(split.x, Tensor):
        if device.type != "cuda":
            return resident(split.x, recipe.channels_last, device)
        free, _ = torch.cuda.mem_get_info(device)
        if split.x.nbytes < RESIDENT_SHARE * free:
            return resident(split.x, recipe.channels_last, device)
    return Streamed(split, device)


def fetch_ahead(
    split: Split, order: Tensor, size: int, ahead: int, pin: bool = False, share: bool = False
) -> Iterator[Tensor]:
    """The rows of each batch of `order`, in turn, fetched by a thread that keeps `ahead` batches ready.

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


def epoch_order(n: int, weights: Tensor | None, rows: Tensor | None, generator: torch.Generator) -> Tensor:
    """The rows of one epoch in order: shuffled, or drawn with replacement by weight (inverse of the distribution).

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
