"""One training step, and how it is replayed.

At the start of an epoch its tables are laid out on the device: which samples each step takes, its learning rate, its
progress, the random numbers of its augmentation, and room for its loss. A step reads them by a counter that lies there
too. So the host only has to start it again, and on a GPU the whole step is captured once as a CUDA graph and replayed;
in long stages also a graph of many steps. The steps before a capture are real training steps: nothing has to be undone.

Small images are augmented many batches at a time on a GPU: a hundred small kernels for 128 images take as long as for
thousands.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from spurless.core.data import Batch
from spurless.core.errors import SettingError, first_line
from spurless.core.method import Loss, Stage
from spurless.core.parallel import average_gradients, dividing, world
from spurless.data.tokens import bucket, row_lengths
from spurless.methods.parts.losses import two_labels
from spurless.nets.outputs import Inputs
from spurless.train.engine_run import EngineRun
from spurless.train.feed import Resident, Streamed
from spurless.train.graphs import compiler, recording, renew_generator
from spurless.train.observe import StepWatch
from spurless.train.optim import layer_weights, why_eager
from spurless.train.schedule import Table
from spurless.train.sharpness import Sharpness

AHEAD_BYTES = 2**27  # of prepared inputs on a GPU, at most AHEAD batches of them
AHEAD = 64
WARMUP = 3  # eager steps of a batch size before it is captured, so that libraries have chosen their kernels
CHUNK = 4  # steps of a graph that does several; one of thousands of kernels would make the host wait for the device
WORTH = 500  # steps that must lie ahead before such a graph is captured


# Of a step: its batch size, the length that a batch of text is cut to, and whether its gradients are watched.
Shape = tuple[int, int, bool]


class Steps:
    """The steps of a stage: `start_epoch` lays out its tables, `run` does the next step or steps."""

    def __init__(
        self,
        stage: Stage,
        run: EngineRun,
        samples: Resident | Streamed,
        warn: Callable[[str], None],
        watch: StepWatch,
    ):
        self.watch, self.warn = watch, warn
        data, recipe, device = run.data, stage.recipe or run.recipe, run.device
        self.stage, self.samples = stage, samples
        self.inputs = Inputs(data, recipe, device) if stage.recipe else run.inputs
        self.recipe, self.device = recipe, device
        self.shape, self.y = data.shape, data.train.y.to(device)
        self.a = None if data.train.a is None else data.train.a.to(device)  # the run's data is blinded
        self.updates = [(loss, opt, _held(opt)) for loss, opt in stage.updates]
        # Compiled for full batches only: the smaller last batch of an epoch would have everything compiled again.
        two = stage.mix is not None and stage.mix.labels == 2  # the second would be a constant of what is compiled
        compiles = recipe.compile and world() == 1 and not two
        compiled = compiler(compiles)
        self.quick = {id(loss): compiled(loss) for loss, _, _ in self.updates}
        self.quick_inputs = compiled(self.inputs.training)
        self.graphs: dict[tuple[Shape, int], torch.cuda.CUDAGraph] = {}  # by shape, and by how many steps it does
        self.seen: dict[Shape, int] = {}
        x = data.train.x
        self.lengths = row_lengths(x) if isinstance(x, Tensor) and run.inputs.is_text else None
        self.may_capture = self._is_capturable()
        self.weights = layer_weights(run.modules) if recipe.l1 else {}
        self.sharpness = Sharpness(recipe, run.modules) if recipe.sharpness != "none" else None
        self.slow = False  # whether the last step took the host long: done eagerly, or captured, as first ones are
        self.polled: torch.cuda.Event | None = None
        self.bad = torch.zeros((), dtype=torch.bool, pin_memory=device.type == "cuda")

    def _is_capturable(self) -> bool:
        # Not over several processes: whether a captured exchange between GPUs is right was not tested.
        if not self.recipe.cuda_graph or self.device.type != "cuda" or world() > 1:
            return False
        if why := why_eager(opt for _, opt, _ in self.updates):
            _warn_once(self.warn, why)
        return not why

    def plan(self, factor: Table, progress: Table, sizes: list[int]) -> None:
        """Make room for the tables of an epoch. `factor` and `progress` are those of every step of the stage."""
        self.all_factors, self.all_progress, self.sizes = factor, progress, sizes
        steps, size = len(sizes), sizes[0]

        def room(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=self.device)

        self.ahead, self.prepared = self._ahead(size), -1
        self.preparing: torch.cuda.CUDAGraph | None = None
        self.stretches = 0  # prepared so far
        whole = -(-steps // self.ahead) * self.ahead  # rounded up, so that every stretch prepared ahead is full
        self.order = room(whole, size, dtype=torch.long)
        self.progress, self.losses = room(steps), room(steps)
        self.draws = room(whole, self.inputs.draw(2, self.shape).shape[0], size) if self.inputs.augments else None
        self.x = room(self.ahead, size, *self.inputs.stored(self.shape)) if self.ahead > 1 else None
        # Of shape (1,), not (): indexing by a tensor without dimensions would fetch its value from the device.
        self.at, self.stretch = room(1, dtype=torch.long), room(1, dtype=torch.long)
        # Parameter groups, each with its start value and its table on the device.
        self.groups: list[tuple[dict[str, Any], float, Tensor]] = []
        for _, opt, _ in self.updates:
            for group in opt.param_groups:
                start = group.setdefault("initial_lr", float(group["lr"]))
                if self.may_capture and not isinstance(group["lr"], Tensor):
                    group["lr"] = torch.tensor(start, device=self.device)
                self.groups.append((group, start, room(steps)))

    def _ahead(self, size: int) -> int:
        """How many batches are prepared at a time."""
        if self.device.type != "cuda" or not self.inputs.augments or not isinstance(self.samples, Resident):
            return 1
        return max(1, min(AHEAD, AHEAD_BYTES // (4 * size * math.prod(self.shape))))

    def start_epoch(self, order: Tensor, first_step: int, at: int, seed: int) -> None:
        """Lay out the epoch that begins at `first_step` of the stage, `at` of whose steps are done already."""
        torch.manual_seed(seed)
        steps, size = self.order.shape
        padded = nn.functional.pad(order, (0, steps * size - len(order))).view(steps, size)
        self.order.copy_(padded)
        here = slice(first_step, first_step + len(self.sizes))
        _fill(self.progress, self.all_progress[here])
        for _, start, table in self.groups:
            _fill(table, start * self.all_factors[here])
        self.factors = self.all_factors[here].tolist()
        if self.draws is not None:
            n = len(self.sizes)
            self.draws[:n] = self.inputs.draw(n * size, self.shape).view(-1, n, size).transpose(0, 1)  # (n, k, size)
        self.at.fill_(at)
        self.cuts = [0] * len(self.sizes)
        if self.lengths is not None:
            longest = (int(lengths.max()) for lengths in self.lengths[order].split(size))
            self.cuts = [bucket(n, self.shape[-1]) for n in longest]
        self.first, self.next, self.prepared = first_step, at, -1
        self.samples.start(order[sum(self.sizes[:at]) :], size)

    def run(self, most: int = 1) -> int:
        """The next step, or several where a graph of several fits into `most` of them; says how many.

        Replayed if one of its shape was captured, eager otherwise.
        """
        shape = (self.sizes[self.next], self.cuts[self.next], self.watch.wants_gradients(self.next))
        self.samples.advance(shape[0])
        if self.x is not None and self.prepared != self.next // self.ahead:
            self._prepare(self.next // self.ahead)
        graphs = len(self.graphs)
        count = CHUNK if self._may_chunk(shape, most) and self._captured(shape, CHUNK) else 1
        replays = count > 1 or (self.may_capture and self.seen.get(shape, 0) >= WARMUP and self._captured(shape, 1))
        if replays:
            self.graphs[shape, count].replay()
        else:
            self._step(*shape)
            self.seen[shape] = self.seen.get(shape, 0) + 1
        self.slow = self.may_capture and (not replays or len(self.graphs) > graphs)
        self.next += count
        return count

    def _may_chunk(self, shape: Shape, most: int) -> bool:
        """Whether the next CHUNK steps are alike, and nothing has to be done between them."""
        here = slice(self.next, self.next + CHUNK)
        return (
            most >= CHUNK
            and (shape, 1) in self.graphs
            and ((shape, CHUNK) in self.graphs or len(self.all_factors) - self.first - self.next >= WORTH)
            and isinstance(self.samples, Resident)
            and (self.x is None or self.next % self.ahead + CHUNK <= self.ahead)
            and self.sizes[here] == [shape[0]] * CHUNK
            and self.cuts[here] == [shape[1]] * CHUNK
        )

    def _captured(self, shape: Shape, count: int) -> bool:
        return (shape, count) in self.graphs or self._capture(shape, count)

    def _prepare(self, stretch: int) -> None:
        """The inputs of the next `ahead` steps, all at once."""
        self.stretch.fill_(stretch)
        self.prepared, self.stretches = stretch, self.stretches + 1
        if self.preparing is None and self.may_capture and self.stretches > WARMUP:
            self.preparing = self._record(self._make_ahead)
        if self.preparing is None:
            self._make_ahead()
        else:
            self.preparing.replay()

    def _make_ahead(self) -> None:
        assert self.x is not None and self.draws is not None
        order = self.order.view(-1, self.ahead * self.order.shape[1])[self.stretch][0]
        draws = self.draws.view(-1, self.ahead, *self.draws.shape[1:])[self.stretch][0]
        x = self.quick_inputs(self.samples.take(order), draws.transpose(0, 1).flatten(1))  # (k, ahead * size)
        self.x.copy_(self.inputs.as_stored(x).view(self.x.shape))

    def _inputs(self, idx: Tensor) -> Tensor:
        """The inputs of this step: taken from what was prepared, or made now."""
        if self.x is not None:
            return self.inputs.from_stored(self.x[self.at % self.ahead][0, : len(idx)])
        draws = None if self.draws is None else self.draws[self.at][0, :, : len(idx)]
        make = self.quick_inputs if len(idx) == self.sizes[0] else self.inputs.training
        return make(self.samples.take(idx), draws)

    def _capture(self, shape: Shape, count: int) -> bool:
        def steps() -> None:
            for _ in range(count):
                self._step(*shape)

        for _, opt, _ in self.updates:
            opt.zero_grad(set_to_none=True)
        graph = self._record(steps)
        if graph is not None:
            self.graphs[shape, count] = graph
        return graph is not None

    def _record(self, work: Callable[[], None]) -> torch.cuda.CUDAGraph | None:
        """The work as a graph, or None where it cannot be one; then nothing of this stage is."""
        graph, random = torch.cuda.CUDAGraph(), torch.cuda.get_rng_state(self.device)
        pool = next(iter(self.graphs.values())).pool() if self.graphs else None
        try:
            with recording(graph, pool):
                work()
        except Exception as error:
            torch.cuda.synchronize()
            self.may_capture, self.preparing = False, None
            self.graphs.clear()
            renew_generator(self.device, random)
            cause = error.__context__ or error  # what ended the capture, not the error of its end
            reason = first_line(cause)
            self.warn(f"Stage '{self.stage.name}' runs without a CUDA graph, which is slower: {reason}")
            return None
        return graph

    def _step(self, size: int, cut: int, watched: bool) -> None:
        idx = self.order[self.at][0, :size]
        full = size == self.sizes[0]
        a = None if self.a is None else self.a[idx]
        x = self._inputs(idx)
        if cut:
            x = x[..., :cut]  # the rest is padding in all of its samples
        batch = Batch(x, self.y[idx], a, idx, self.progress[self.at][0])
        second = None
        if self.stage.mix is not None:
            batch, second = self.stage.mix(batch)
        self.watch.begin(batch.x, self.at)
        self._set_lr()
        losses = []
        for loss_of, opt, parameters in self.updates:
            ask = self.quick[id(loss_of)] if full else loss_of
            backward = functools.partial(self._backward, ask, batch, second, opt, parameters)
            loss = self.sharpness.gradients(backward, parameters) if self.sharpness else backward()
            if watched:
                self.watch.gradients(parameters)
            if self.recipe.clip_norm:
                nn.utils.clip_grad_norm_(parameters, self.recipe.clip_norm)
            opt.step()
            losses.append(loss)
        total = losses[0] if len(losses) == 1 else torch.stack(losses).sum()
        self.losses.index_copy_(0, self.at, total.reshape(1))
        self.at += 1

    def _backward(
        self,
        ask: Loss,
        batch: Batch,
        second: tuple[Tensor, Tensor, Tensor] | None,
        opt: Optimizer,
        parameters: list[Tensor],
    ) -> Tensor:
        """Leave the gradient of a loss in the parameters that are held, and return the loss, without its penalty."""
        mixed = self.recipe.precision == "bf16"
        with (
            two_labels(batch.y, second),
            torch.autocast(self.device.type, torch.bfloat16, enabled=mixed, cache_enabled=False),
            dividing(),
        ):
            loss = ask(batch)
        if loss.dim() != 0:
            raise SettingError(
                f"The loss of stage '{self.stage.name}' has shape {tuple(loss.shape)}; it must be one number: "
                "take the mean over the batch."
            )
        sizes = [p.abs().sum() for p in parameters if id(p) in self.weights]
        opt.zero_grad(set_to_none=True)
        (loss + self.recipe.l1 * torch.stack(sizes).sum() if sizes else loss).backward(inputs=parameters)
        average_gradients(parameters)
        return loss.detach().float()

    def _set_lr(self) -> None:
        for group, start, table in self.groups:
            if isinstance(group["lr"], Tensor):
                torch.index_select(table, 0, self.at, out=group["lr"].view(1))
            else:
                group["lr"] = start * self.factors[self.next]

    def close(self) -> None:
        """Give back what the graphs hold: memory that no later stage could have, and there may be thirty stages."""
        if self.graphs or self.preparing:
            self.graphs.clear()
            self.preparing = None
            for _, opt, _ in self.updates:
                opt.zero_grad(set_to_none=True)  # gradients lie in that memory, and would keep it
            torch.cuda.empty_cache()

    def first_bad(self) -> int | None:
        """The step of this epoch where the loss was first not finite, or None. Waits for the device."""
        bad = torch.nonzero(~torch.isfinite(self.losses[: self.next]))
        return int(bad[0]) if len(bad) else None

    def weights_finite(self) -> Tensor:
        return torch.stack([torch.isfinite(p).all() for _, _, parameters in self.updates for p in parameters]).all()

    def looks_bad(self) -> bool:
        """Say whether a loss was not finite when this was last asked, so that a GPU is not waited for."""
        if self.device.type != "cuda":
            return self.first_bad() is not None
        was_bad = self.polled is not None and self.polled.query() and bool(self.bad)
        self.bad.copy_(~torch.isfinite(self.losses[: self.next]).all(), non_blocking=True)
        self.polled = self.mark()
        return was_bad

    def mark(self) -> torch.cuda.Event:
        """What will have happened when the GPU has done all that it was told so far."""
        event = torch.cuda.Event()
        event.record()
        return event


@functools.cache
def _warn_once(warn: Callable[[str], None], text: str) -> None:
    warn(text)


def _fill(table: Tensor, values: Table) -> None:
    table[: len(values)] = torch.from_numpy(values.astype(np.float32)).to(table.device)


def _held(opt: Optimizer) -> list[Tensor]:
    return [p for group in opt.param_groups for p in group["params"]]
