"""What happens while a network trains: who makes up its loss, how its logits, weights and gradients grow, and which
feature it relies on. `fit(..., dynamics=Dynamics())` watches any method from the outside.

The method stays blind. Logits are those that the step itself computed, caught where the stage's model saw the batch for
the first time; they are laid into a table on the device, and everything is computed from it many steps at a time.
"""

from __future__ import annotations

import bisect
import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from spurless.core.data import Bundle
from spurless.core.errors import Diverged, UserError, unknown
from spurless.core.files import atomic
from spurless.core.method import Stage
from spurless.core.parallel import world
from spurless.core.recipe import Recipe
from spurless.metrics import checks
from spurless.metrics.feature_use import feature_use
from spurless.metrics.parts import Parts, columns_of
from spurless.metrics.parts import unit_parts as unit_parts
from spurless.metrics.records import FILE, Record, Shares, batch_shares, read
from spurless.metrics.records import summary as summary
from spurless.metrics.regions import core_mask, spurious_mask
from spurless.nets import Net
from spurless.train.observe import StepWatch
from spurless.train.step import Steps

TABLE = 2**22  # logits held on the device before they are evaluated
OFTEN = 1000  # steps after which a CPU evaluates them: operations that are rare are slow there, so not at every epoch
BUDGET = 0.01  # of the steps of a stage, what all moments together may cost where they are not chosen by hand
# Steps that a moment costs beside its samples, where steps are small: copies, eager kernels.
ASIDE = {"cpu": 6, "cuda": 60}
MOMENTS = 8


@dataclass
class Dynamics:
    """What to watch; after training, `records` holds what was seen, and dynamics.json in the run's folder, too.

    every        steps between two measurements of the norms of gradients and weights; 0: none
    moments      steps after which attribution and selectivity are measured, in evaluation mode on test samples, and
                 once more at the end; None: up to 8, dense at first, as many as cost at most 1 % of the stage; (): none
    rows         samples of each moment; of them `attributed` for attribution, by Integrated Gradients in `ig_steps`
                 points
    units        of the penultimate layer, whose spurious feature utilisation is measured, too: each costs as much again
    parts        whose norms are taken: names, each with its parameters (None: all entries, or a mask of them), such as
                 `unit_parts` gives; None: the blocks of the network, by the first two words of its parameters' names

    >>> from spurless import fit
    >>> watch = Dynamics(moments=(4,), rows=20, attributed=4)
    >>> _ = fit("erm", {"name": "toy", "n": 64}, recipe={"epochs": 2, "batch_size": 16}, dynamics=watch)
    >>> (record,) = watch.records
    >>> len(record), list(record.gradient_norms)[-1], [row["step"] for row in record.moments]
    (8, 'head', [4, 8])
    """

    every: int = 32
    moments: Sequence[int] | None = None
    rows: int = 256
    attributed: int = 16
    ig_steps: int = 8
    units: Sequence[int] = ()
    parts: Parts | None = None
    records: list[Record] = field(default_factory=list)
    path: Path | None = None

    def __post_init__(self) -> None:
        for name, least in (("every", 0), ("rows", 1), ("attributed", 0), ("ig_steps", 1)):
            setattr(self, name, checks.count(getattr(self, name), name, least))

    def start(self, folder: str | Path | None) -> None:
        """A run begins, or is resumed, in this folder; what an earlier session saw of it is there."""
        self.path = None if folder is None else Path(folder) / FILE
        self.records = [] if self.path is None or not self.path.exists() else read(self.path.parent)

    def stage(
        self, index: int, stage: Stage, data: Bundle, recipe: Recipe, sizes: list[int], total: int, device: torch.device
    ) -> StageDynamics:
        """Watch a stage of a run on this data, which is the whole of it, not what the method may see."""
        return StageDynamics(self, index, stage, data, recipe, sizes, total, device)

    def save(self) -> None:
        if self.path is not None:
            with atomic(self.path) as file:
                file.write_text(json.dumps([r.row() for r in self.records], allow_nan=False) + "\n", encoding="utf-8")


def as_dynamics(given: Dynamics | Mapping[str, Any] | bool | None) -> Dynamics | None:
    """What `fit` was given: True is all defaults, a table is settings.

    >>> as_dynamics({"every": 4}).every, as_dynamics(False)
    (4, None)
    """
    if isinstance(given, Mapping):
        settings = [f.name for f in fields(Dynamics) if f.name not in ("records", "path")]
        for name in given:
            if name not in settings:
                raise unknown("setting of dynamics", name, settings)
        return Dynamics(**given)
    if isinstance(given, bool):
        return Dynamics() if given else None
    if given is not None and not isinstance(given, Dynamics):
        raise UserError(f"dynamics is True, a table of settings or a Dynamics, not {given!r}.")
    return given


class StageDynamics(StepWatch):
    """Watches the steps of one stage."""

    def __init__(
        self,
        owner: Dynamics,
        index: int,
        stage: Stage,
        data: Bundle,
        recipe: Recipe,
        sizes: list[int],
        total: int,
        device: torch.device,
    ):
        if world() > 1:
            raise UserError("Dynamics watches runs of one process; train it on one device.")
        if recipe.compile:
            raise UserError("Dynamics cannot look into a compiled loss: set recipe.compile = false.")
        self.owner, self.stage, self.data, self.device = owner, stage, data, device
        self.earlier = next((r for r in owner.records if r.index == index), None)  # of a session before this one
        self.record = Record(stage.name, index)
        owner.records = [r for r in owner.records if r.index < index] + [self.record]
        truth = data.is_aligned(data.train)
        self.y = data.train.y.to(device)
        self.conflicting = None if truth is None else ~truth.all(1).to(device)
        self.batch, self.sizes = sizes[0], sizes
        self.most = TABLE // (self.batch * len(data.classes))
        self.capacity = max(1, min(len(sizes), self.most))
        self.logits = torch.zeros(self.capacity, self.batch, len(data.classes), device=device)
        self.shape, self.on_cpu = self.logits.shape[2:], self.logits.is_cpu
        self.caught: list[Tensor] = []  # on a CPU, the logits of each step since the last evaluation
        self.versions: list[int] = []  # of each: another one later means that the loss changed them in place
        self.idx: list[Tensor] = []  # of the epochs that are over since then, the samples of each step
        self.x: Tensor | None = None  # of the step that is being made, until its logits are caught
        self.missed = self.armed = False
        self.as_whole = self.one_hook = False  # whether the loss called the whole network; whether only that is watched
        self.may_narrow = self.on_cpu  # elsewhere hooks are not asked by a replayed step
        self.step = 0  # of the stage
        self.done = self.flushed = 0  # steps of this epoch: made, and evaluated
        self.steps: Steps | None = None
        self._plan_norms(sizes)
        self.attributed = owner.attributed if _can_attribute(data) else 0
        chosen = owner.moments
        if chosen is None:
            chosen = usual_moments(total, moment_cost(owner, data) / self.batch + ASIDE[device.type])
        self.moments = sorted(set(chosen)) if isinstance(stage.model, Net) and data.test is not None else []

    def _plan_norms(self, sizes: list[int]) -> None:
        """Which parameters' norms are taken, and in which steps of an epoch."""
        every = self.owner.every
        trained = {id(p) for _, opt in self.stage.updates for group in opt.param_groups for p in group["params"]}
        self.columns = columns_of(self.stage.model, self.owner.parts, trained)
        self.names = [column.part for column in self.columns]
        rows = -(-len(sizes) // every) if every else 0
        self.norms = torch.zeros(rows, 2, len(self.columns), device=self.device)  # of gradients and of weights
        self.wanted = [bool(self.columns and rows) and at % every == 0 for at in range(len(sizes))]
        self.alike = [sys.maxsize] * len(sizes)  # from each step of an epoch on, how many are wanted or not like it
        if any(self.wanted):
            self.alike = [1 if wanted else every - at % every for at, wanted in enumerate(self.wanted)]
        self.nothing = [torch.zeros((), device=self.device)] * (2 * len(self.columns))
        self.row: list[Tensor] = []  # norms of the step that is being made
        self.rows: list[list[Tensor]] = []  # on a CPU, of those since the last evaluation
        self.measured: list[int] = []  # the steps that had them
        self.at = torch.zeros(1, dtype=torch.long, device=self.device)

    # Inside the step

    def __enter__(self) -> StageDynamics:
        net = next((m for m in self.stage.model.modules() if isinstance(m, Net)), None)
        first, last = (self.stage.model, self.stage.model) if net is None else (net.encoder, net.head)

        # Functions, not methods: whoever copies the network would copy a method's object, with all that it holds.
        def first_sees(_: nn.Module, given: tuple[Any, ...]) -> None:
            self.armed = self.armed or (self.x is not None and bool(given) and given[0] is self.x)

        def last_answers(_: nn.Module, given: tuple[Any, ...], out: Any) -> None:
            if self.armed:
                self._catch(out)

        def begins(_: nn.Module, given: tuple[Any, ...]) -> None:
            self.as_whole = self.as_whole or (self.x is not None and bool(given) and given[0] is self.x)

        def ends(_: nn.Module, given: tuple[Any, ...], out: Any) -> None:
            if self.x is not None and given and given[0] is self.x:
                self._catch(out)

        def hooks(one: bool) -> list[RemovableHandle]:
            if one and net is not None:
                return [net.register_forward_hook(ends)]
            halves = [first.register_forward_pre_hook(first_sees), last.register_forward_hook(last_answers)]
            return halves if net is None else [*halves, net.register_forward_pre_hook(begins)]

        self.make_hooks, self.hooks = hooks, hooks(False)
        return self

    def _hook(self, one: bool) -> None:
        """A loss may call the network, or its encoder and its head. For the first one hook is enough, and hooks are
        what costs most in small steps on a CPU."""
        for hook in self.hooks:
            hook.remove()
        self.one_hook, self.may_narrow, self.hooks = one, False, self.make_hooks(one)

    def wants_gradients(self, at: int) -> bool:
        return self.wanted[at]

    def begin(self, x: Tensor, at: Tensor) -> None:
        self.x, self.at, self.armed, self.row = x, at, False, []

    def _catch(self, out: Any) -> None:
        if not isinstance(out, Tensor) or out.shape[1:] != self.shape:
            return
        logits = out.detach()
        if self.on_cpu:  # no graph, so that they need not be copied
            self.caught.append(logits)
            self.versions.append(logits._version)
        else:
            at = self.at if self.capacity == len(self.sizes) else self.at % self.capacity
            self.logits[:, : len(logits)].index_copy_(0, at, logits.float()[None])
        self.x, self.armed = None, False  # only the first time: sharpness-aware steps and attacks see it again

    def gradients(self, parameters: Sequence[Tensor]) -> None:
        slope_of = {id(p): p.grad for p in parameters if p.grad is not None}
        chosen = {k: column for k, column in enumerate(self.columns) if id(column.parameter) in slope_of}
        if not chosen:
            return
        with torch.no_grad():
            slopes = [column.cut(slope_of[id(column.parameter)]) for column in chosen.values()]
            sizes = [column.cut(column.parameter) for column in chosen.values()]
            norms = torch._foreach_norm([*slopes, *sizes])
            self.row = self.row or list(self.nothing)
            for k, norm in zip([*chosen, *(len(self.columns) + k for k in chosen)], norms, strict=True):
                self.row[k] = norm.float()
            if not self.on_cpu:  # with what the optimisers before this one hold: each comes with its own update
                self.norms.index_copy_(0, self.at // self.owner.every, torch.stack(self.row).view(1, 2, -1))

    # Between two steps

    def free_steps(self, at: int, step: int) -> int:
        free = min(self.capacity - at + self.flushed, self.alike[at])
        moment = bisect.bisect_right(self.moments, step)
        return min(free, self.moments[moment] - step) if moment < len(self.moments) else free

    def after(self, steps: Steps, step: int) -> None:
        self.steps, self.done, self.step = steps, steps.next, step
        if self.x is not None:
            self._miss()
        elif self.as_whole and self.may_narrow:
            self._hook(one=True)
        if self.wanted[self.done - 1]:
            self.measured.append(step)
            self.rows += [self.row or self.nothing] if self.on_cpu else []
        ended = self.done == len(self.sizes)
        if ended and self.on_cpu and len(self.caught) < OFTEN and len(self.caught) + self.done <= self.most:
            self.idx.append(steps.order[self.flushed : self.done].clone())  # the table is filled anew for an epoch
        elif ended or self.done - self.flushed == self.capacity:
            self._flush()
        if ended:
            self.done = self.flushed = 0
        if step in self.moments:
            self._measure(step)

    def _miss(self) -> None:
        """The step's logits were not seen. A loss that calls encoder and head from now on loses this step alone."""
        if self.one_hook:
            self.caught.append(torch.full((self.sizes[self.done - 1], *self.shape), torch.nan))
            self.versions.append(0)
            self._hook(one=False)
        else:
            self.missed = True
        self.x = None

    @torch.no_grad()
    def _flush(self) -> None:
        """Everything up to the last step, from the tables."""
        before = len(self.record)
        if self.steps is None or self.step == before:
            return
        here = slice(self.flushed, self.done)
        idx = torch.cat([*self.idx, self.steps.order[here]])  # (steps, batch)
        sizes = [self.sizes[at % len(self.sizes)] for at in range(before, self.step)]
        self.missed = self.missed or [t._version for t in self.caught] != self.versions
        if self.missed:
            shares = Shares(*[np.full(len(sizes), np.nan, np.float32)] * len(Shares._fields))
        else:
            flags = None if self.conflicting is None else _taken(self.conflicting, idx)
            shares = batch_shares(self._logits(here), _taken(self.y, idx), flags, sizes)
        self.record.add(shares, np.array(self.measured, np.int64), self._norms(), self.names)
        self.idx, self.caught, self.versions, self.rows, self.measured = [], [], [], [], []
        self.flushed = self.done

    def _logits(self, here: slice) -> Tensor:
        """(steps, batch, classes): what was caught, or laid into the table in these steps of the epoch."""
        if not self.on_cpu:
            return self.logits[torch.arange(here.start, here.stop, device=self.device) % self.capacity]
        caught = self.caught
        if self.sizes[-1] < self.batch:
            caught = [nn.functional.pad(z, (0, 0, 0, self.batch - len(z))) for z in caught]
        return torch.stack(caught).float()

    def _norms(self) -> np.ndarray | None:
        """(measurements, 2, columns)"""
        if not self.measured:
            return None
        if not self.on_cpu:
            at = [(step - 1) % len(self.sizes) // self.owner.every for step in self.measured]
            return self.norms[at].cpu().numpy()
        return torch.stack([norm for row in self.rows for norm in row]).view(len(self.rows), 2, -1).numpy()

    def _measure(self, step: int) -> None:
        owner = self.owner
        if self.record.moments and self.record.moments[-1]["step"] == step:
            return
        use = feature_use(
            self.stage.model, self.data, "test", owner.rows, self.attributed, steps=owner.ig_steps, units=owner.units
        )
        self.record.moments.append({"step": step} | use)

    def resume(self, step: int) -> None:
        self.record = (self.earlier or self.record).upto(step)
        self.owner.records[-1] = self.record
        self.step, self.done = step, step % len(self.sizes)
        self.flushed = self.done

    def save(self) -> None:
        self._flush()
        self.owner.save()

    def __exit__(self, *error: object) -> None:
        for hook in self.hooks:
            hook.remove()
        if error[0] is not None and error[0] is not Diverged:
            return  # stopped: what belongs to the saved place was saved with it
        self._flush()
        if error[0] is None and self.moments and len(self.record):
            self._measure(len(self.record))
        self.owner.save()


def _taken(values: Tensor, idx: Tensor) -> Tensor:
    """values[idx], four times as fast on a CPU."""
    return values.index_select(0, idx.flatten()).view(idx.shape)


# Moments


def usual_moments(total: int, cost: float) -> list[int]:
    """Steps of a stage of `total` steps, evenly spaced on a logarithmic scale; a moment costs as much as `cost` steps.

    >>> usual_moments(6000, cost=10)
    [10, 36, 129, 464, 1669, 6000]
    >>> usual_moments(100, cost=10)
    []
    """
    count = min(MOMENTS, int(BUDGET * total / cost)) if cost else 0
    return sorted({round(v) for v in np.geomspace(min(10, total), total, count)}) if count else []


def moment_cost(what: Dynamics, data: Bundle) -> float:
    """Of one moment, in samples of training: forward alone is a third of forward and backward."""
    attributed = what.attributed if _can_attribute(data) else 0
    return what.rows / 3 + attributed * what.ig_steps * (1 + len(what.units))


def _can_attribute(data: Bundle) -> bool:
    """Whether the data knows where its features are, and Captum is there."""
    if importlib.util.find_spec("captum") is None or data.test is None:
        return False
    for mask in (core_mask, spurious_mask):
        try:
            mask(data, "test", [0])
        except UserError:
            continue
        return True
    return False
