"""One training step, and how it is replayed.

The step reads its rows, its learning rate and its progress from tensors on the device, by counters that lie there
too. So the host only has to say "again", and on a GPU the whole step is captured once as a CUDA graph and replayed.
The steps before the capture are real training steps: nothing has to be undone.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from spurless.core import Batch, Bundle, Recipe, Stage
from spurless.errors import UserError
from spurless.feed import Inputs, Resident, Streamed

WARMUP = 3  # eager steps of a batch size before it is captured, so that libraries have chosen their kernels


def schedule(recipe: Recipe, steps_per_epoch: int, total: int, span: tuple[float, float] = (0, 1)) -> np.ndarray:
    """The factor on the learning rate at each step of a stage.

    >>> schedule(Recipe(schedule="step", step_every=1, gamma=0.1), 2, 4).round(3).tolist()
    [1.0, 1.0, 0.1, 0.1]
    >>> schedule(Recipe(schedule="linear", warmup=1), 2, 6).tolist()
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    whole = max(1, round(total / (span[1] - span[0])))  # steps of the schedule that this stage is a part of
    step = np.arange(total) + round(span[0] * whole)
    warm = round(recipe.warmup * steps_per_epoch)
    t = np.clip((step - warm) / max(1, whole - warm), 0, 1)
    if recipe.schedule == "step":
        factor = recipe.gamma ** np.floor(step / steps_per_epoch / max(recipe.step_every, 1e-9))
    else:
        factor = {"constant": np.ones_like(t), "linear": 1 - t, "cosine": (1 + np.cos(np.pi * t)) / 2}[recipe.schedule]
    return np.where(step < warm, (step + 1) / max(1, warm), factor)


class Steps:
    """The steps of a stage: `run(size)` does the next one."""

    def __init__(
        self,
        stage: Stage,
        data: Bundle,
        rows: Resident | Streamed,
        inputs: Inputs,
        recipe: Recipe,
        device: torch.device,
        show_attributes: bool,
        say: Callable[[str], None],
    ):
        self.stage, self.rows, self.inputs, self.recipe, self.device, self.say = (
            stage,
            rows,
            inputs,
            recipe,
            device,
            say,
        )
        self.y = data.train.y.to(device)
        self.a = data.train.a.to(device) if show_attributes and data.train.a is not None else None
        self.updates = [(self._compiled(loss), opt, _held(opt)) for loss, opt in stage.updates]
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.seen: dict[int, int] = {}
        self.may_capture = recipe.cuda_graph and device.type == "cuda"
        self.counter = torch.zeros((), dtype=torch.long, device=device)  # steps done in this stage
        self.position = torch.zeros((), dtype=torch.long, device=device)  # rows of the epoch already used
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)  # over the epoch
        self.first_bad = torch.full((), -1, dtype=torch.long, device=device)  # step of the first loss not finite
        self.last_good = torch.full((), math.nan, dtype=torch.float64, device=device)  # last loss before it

    def _compiled(self, loss: Callable[[Batch], Tensor]) -> Callable[[Batch], Tensor]:
        return torch.compile(loss, dynamic=False) if self.recipe.compile else loss

    def plan(self, factor: np.ndarray, span: tuple[float, float], epoch_rows: int) -> None:
        """Lay out what the counters index: the learning-rate factors, the progress and room for an epoch's order."""
        total = len(factor)
        t = np.linspace(span[0], span[1], total + 1)[:-1]
        self.factor = torch.tensor(factor, dtype=torch.float32, device=self.device)
        self.progress = torch.tensor(t, dtype=torch.float32, device=self.device)
        self.order = torch.zeros(epoch_rows, dtype=torch.long, device=self.device)
        self.offsets = torch.arange(epoch_rows, device=self.device)
        self.groups: list[tuple[dict, float]] = []
        for _, opt, _ in self.updates:
            for group in opt.param_groups:
                start = group.setdefault("initial_lr", float(group["lr"]))
                if self.may_capture and not isinstance(group["lr"], Tensor):
                    group["lr"] = torch.tensor(start, device=self.device)
                self.groups.append((group, start))

    def start_epoch(self, order: Tensor, at: int, size: int) -> None:
        """Begin an epoch with this order of rows, `at` of which have been used already."""
        self.order.copy_(order, non_blocking=True)
        self.position.fill_(at)
        self.rows.start(order[at:], size)

    def run(self, size: int) -> None:
        """The next step, on `size` rows: replayed if it was captured, eager otherwise."""
        self.rows.advance(size)
        if size in self.graphs:
            self.graphs[size].replay()
            return
        if self.may_capture and self.seen.get(size, 0) >= WARMUP and self._capture(size):
            self.graphs[size].replay()
            return
        self._step(size)
        self.seen[size] = self.seen.get(size, 0) + 1

    def _capture(self, size: int) -> bool:
        graph = torch.cuda.CUDAGraph()
        for _, opt, _ in self.updates:
            opt.zero_grad(set_to_none=True)
        pool = next(iter(self.graphs.values())).pool() if self.graphs else None
        try:
            # The thread's own mode: another thread may be decoding rows meanwhile.
            with torch.cuda.graph(
                graph, pool=pool, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"
            ):
                self._step(size)
        except Exception as error:
            torch.cuda.synchronize()
            self.may_capture = False
            self.graphs.clear()
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            self.say(f"Stage '{self.stage.name}' runs without a CUDA graph, which is slower: {reason}")
            return False
        self.graphs[size] = graph
        return True

    def _step(self, size: int) -> None:
        idx = self.order[self.position + self.offsets[:size]]
        x = self.inputs(self.rows.rows(idx), training=True)
        a = None if self.a is None else self.a[idx]
        batch = Batch(x, self.y[idx], a, idx, self.progress[self.counter])
        self._set_lr()
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for loss_of, opt, held in self.updates:
            with torch.autocast(
                self.device.type, torch.bfloat16, enabled=self.recipe.precision == "bf16", cache_enabled=False
            ):
                loss = loss_of(batch)
            if loss.dim() != 0:
                raise UserError(
                    f"The loss of stage '{self.stage.name}' has shape {tuple(loss.shape)}; it must be one number: "
                    "take the mean over the batch."
                )
            opt.zero_grad(set_to_none=True)
            loss.backward(inputs=held)
            if self.recipe.clip_norm:
                nn.utils.clip_grad_norm_(held, self.recipe.clip_norm)
            opt.step()
            total += loss.detach()
        self._book(total)
        self.position += size
        self.counter += 1

    def _set_lr(self) -> None:
        factor = self.factor[self.counter]
        for group, start in self.groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].copy_(factor * start)
            else:
                group["lr"] = float(factor) * start

    def _book(self, loss: Tensor) -> None:
        """Add up the loss, and remember the first step where it was not finite: without asking the device."""
        self.loss_sum += loss
        good = torch.isfinite(loss) & (self.first_bad < 0)
        self.last_good.copy_(torch.where(good, loss, self.last_good))
        self.first_bad.copy_(torch.where(good | (self.first_bad >= 0), self.first_bad, self.counter))

    def lr(self, step: int) -> float:
        """The learning rate of the first group at a step."""
        return float(self.factor[min(step, len(self.factor) - 1)]) * self.groups[0][1]

    def weights_finite(self) -> bool:
        return all(bool(torch.isfinite(p).all()) for _, _, held in self.updates for p in held)


def _held(opt: Optimizer) -> list[Tensor]:
    return [p for group in opt.param_groups for p in group["params"]]
