"""The epochs and steps of one stage: evaluation, selection, early ends and checkpoints inside it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from spurless.core.data import Bundle
from spurless.core.errors import Diverged
from spurless.core.method import Stage
from spurless.core.parallel import TALK, any_of, world
from spurless.core.seeds import derive
from spurless.metrics.scores import Judged, score
from spurless.train.checkpoint import restore, snapshot
from spurless.train.feed import epoch_order
from spurless.train.observe import Interrupted, Progress, StepWatch
from spurless.train.schedule import batch_sizes, schedule, stage_length
from spurless.train.step import Steps

if TYPE_CHECKING:
    from spurless.train.loop import Loop

POLL = 200  # steps between two checks of whether the loss is still finite


@dataclass(frozen=True)
class Asked:
    """What a device works out at the end of an epoch."""

    sound: Tensor  # whether all losses and weights are finite
    loss: Tensor  # the mean of the epoch
    validation: Judged | None


class StageLoop:
    """The epochs and steps of one stage."""

    def __init__(self, loop: Loop, index: int, stage: Stage):
        self.loop, self.index, self.stage, self.run = loop, index, stage, loop.run
        self.recipe = stage.recipe or loop.recipe
        self.n = len(loop.data.train) if stage.rows is None else len(stage.rows)
        self.sizes = batch_sizes(self.n, self.recipe)
        self.total = stage_length(stage, self.recipe, len(self.sizes))
        self.step = 0  # done in this stage
        self.epoch = 0  # finished in this stage
        self.best: tuple[float, dict[str, Tensor]] | None = None
        self.ended_early = False
        self.started = self.saved_at = time.monotonic()
        self.spent_before = loop.spent
        self.watch = StepWatch()
        if loop.dynamics:
            seen = loop.data, self.recipe, self.sizes, self.total, loop.device
            self.watch = loop.dynamics.stage(index, stage, *seen)
        self.steps = Steps(stage, self.run, loop.samples, loop.warn, self.watch)
        self.factor = schedule(self.recipe, len(self.sizes), self.total, stage.span)
        progress = np.linspace(*stage.span, self.total, endpoint=False)
        self.steps.plan(self.factor, progress, self.sizes)
        self.random: dict[str, Tensor] = {}  # where the random numbers were when the run was stopped inside an epoch
        self.last_loss: float | None = None  # of the epoch before
        self.drawn: tuple[int, Tensor] | None = None  # an epoch and its order

    def __iter__(self) -> Iterator[Progress]:
        yield from self._pause()
        self._set_modes()
        while self.step < self.total and not self.ended_early:
            ends_at = self.step + len(self.sizes) - self._start_epoch()
            while self.step < min(ends_at, self.total):
                done = self._run_steps()
                # Before any checkpoint: a run resumed from the end of an epoch must not miss what belongs to it.
                ends = self.step % len(self.sizes) == 0 or self.step == self.total
                asked = self._ask() if ends else None
                if ends and self.loop.device.type == "cuda":
                    if self.step < self.total:
                        self._order(self.step // len(self.sizes))  # while the device has still to do
                    yield from self._pause()
                row = self._end_epoch(asked) if asked else None
                self._save_or_stop(ends)
                yield Progress(self.stage.name, self.step, self.total, done, self.stage.span[1] - self.stage.span[0])
                if row:
                    yield Progress(self.stage.name, self.step, self.total, row=row)
                if self.steps.slow:
                    yield from self._pause()
        self._take_best()
        yield from self._pause()

    def _run_steps(self) -> int:
        """Make the next step, or several at once, and say how many."""
        done = self.steps.run(self._free_steps())
        self.step += done
        self.watch.after(self.steps, self.step)
        if self.step % POLL < done and any_of(self.steps.looks_bad())[0]:
            self._stop_if_diverged()
        if self._test_due():
            self._evaluate_test()
        return done

    def _pause(self) -> Iterator[Progress]:
        """Let other lanes work: what comes next takes the host long."""
        if self.loop.device.type == "cuda":
            yield Progress(self.stage.name, self.step, self.total, pending=self.steps.mark())

    def _free_steps(self) -> int:
        """Count the steps that may be made before something has to be done between two of them."""
        at, every = self.step % len(self.sizes), self.recipe.test_every if self.loop.tests(self.stage) else 0
        free = min(len(self.sizes) - at, self.total - self.step, self.watch.free_steps(at, self.step))
        return min(free, every - self.step % every) if every else free

    def _start_epoch(self) -> int:
        """Lay out the epoch and say how many of its steps are done: more than 0 when the run is resumed inside it.

        Its order and its random numbers are functions of seed, stage and epoch alone, so it is the same epoch again.
        """
        epoch, at = divmod(self.step, len(self.sizes))
        seed = derive(self.run.seed, "epoch", self.index, epoch)
        self.steps.start_epoch(self._order(epoch), self.step - at, at, seed)
        if "rng.cpu" in self.random:
            torch.set_rng_state(self.random.pop("rng.cpu"))
        if "rng.cuda" in self.random:
            torch.cuda.set_rng_state(self.random.pop("rng.cuda"), self.loop.device)
        return at

    def _order(self, epoch: int) -> Tensor:
        """Draw which samples an epoch takes, in their order: once, on the host."""
        if self.drawn is None or self.drawn[0] != epoch:
            generator = torch.Generator().manual_seed(derive(self.run.seed, "order", self.index, epoch))
            order = epoch_order(len(self.loop.data.train), self.stage.sample_weights, self.stage.rows, generator)
            self.drawn = epoch, order[: sum(self.sizes)]
        return self.drawn[1]

    def _set_modes(self) -> None:
        trained = {id(p) for _, opt in self.stage.updates for group in opt.param_groups for p in group["params"]}
        for module in self.run.modules:
            module.train(any(id(p) in trained for p in module.parameters()))
        for module in self.stage.in_training_mode:
            module.train()

    def _ask(self) -> Asked:
        """Have the device work out what is reported of the epoch that ends; nobody waits for it here."""
        done = self.step % len(self.sizes) or len(self.sizes)
        self.epoch = math.ceil(self.step / len(self.sizes))
        sound = torch.isfinite(self.steps.losses[:done]).all() & self.steps.weights_finite()
        return Asked(sound, self.steps.losses[:done].double().mean(), self._judge_validation())

    def _end_epoch(self, asked: Asked) -> dict[str, Any]:
        if not bool(asked.sound):
            self._stop_if_diverged(weights=True)
        row: dict[str, Any] = {
            "stage": self.stage.name,
            "stage_index": self.index,
            "epoch": self.epoch,
            "step": self.step,
            "loss": float(asked.loss),
            "lr": self._lr(self.step - 1),
        }
        self.last_loss = row["loss"]
        if asked.validation:
            row |= self._note_validation(asked.validation)
        row |= self._evaluate_training()
        self.loop.spent = self.spent_before + time.monotonic() - self.started
        row["seconds"] = round(self.loop.spent, 3)
        self.loop.history.append(row)
        if self.loop.folder:
            self.loop.folder.append_history(row)
        return row

    def _evaluate_training(self) -> dict[str, Any]:
        """Return accuracy and cross entropy of the training split, and end the stage if they meet its criterion."""
        accuracy, loss = self.recipe.until_accuracy, self.recipe.until_loss
        every = max(1, int(self.recipe.eval_every))
        due = self.epoch % every == 0 or self.step >= self.total
        if not (accuracy or loss) or not self.stage.may_end_early or not due:
            return {}
        judged = self.loop.judge(self.stage.model, self.run.data.train)
        row = {"train_accuracy": judged.accuracy, "train_loss": judged.loss}
        self.ended_early = row["train_accuracy"] >= accuracy and (not loss or row["train_loss"] < loss)
        if self.stage.select and self.step >= self.total and not self.ended_early:
            length = "one epoch is" if self.epoch == 1 else f"{self.epoch} epochs are"
            self.loop.warn(
                f"Stage '{self.stage.name}' did not reach its criterion, and its {length} over: "
                f"training accuracy {row['train_accuracy']:.2f} %, cross entropy {row['train_loss']:.2g}."
            )
        return row | {"reached": self.ended_early}

    @property
    def _selects(self) -> bool:
        return self.stage.select and self.recipe.selection != "last"

    def _judge_validation(self) -> Judged | None:
        """Judge the network on the validation samples, if an evaluation is due after this epoch."""
        every, val = int(self.recipe.eval_every), self.loop.data.val
        due = every and (self.epoch % every == 0 or self.step >= self.total)
        if val is None or not (due or self._selects):
            return None
        return self.loop.judge(self.stage.model, val)

    def _note_validation(self, judged: Judged) -> dict[str, Any]:
        """Return validation accuracy and loss, and keep the best weights so far by the selection rule."""
        data, rule = self.loop.data, self.recipe.selection
        assert data.val is not None
        last = self.step >= self.total
        row = {"val_accuracy": judged.accuracy, "val_loss": judged.loss}
        if self._selects:
            goodness = row["val_accuracy"] if rule == "val_accuracy" else -row["val_loss"]
            if rule == "val_worst_group" and not math.isnan(judged.loss):
                row["val_worst_group"] = goodness = _lowest(data, score(data, data.val, judged.logits))
            if math.isfinite(goodness) and (self.best is None or goodness > self.best[0]):
                weights = {k: v.detach().clone() for k, v in self.stage.model.state_dict().items()}
                self.best = (goodness, weights)
            elif last and self.best is None:
                self.loop.warn(
                    f"recipe.selection = {rule} picked nothing: no evaluation gave a number. The last weights are kept."
                )
        return row

    def _test_due(self) -> bool:
        due = self.loop.tests(self.stage)
        return due and (self.step % self.recipe.test_every == 0 or self.step == self.total)

    def _evaluate_test(self) -> None:
        """Score the test split now, for comparison with papers that pick their weights by it."""
        test = self.loop.data.test
        assert test is not None
        logits = self.run.outputs(self.stage.model, test)
        if bool(logits.isnan().any()):
            return  # the run diverges, which shows when its losses are next polled
        scores = score(self.loop.data, test, logits)
        if not scores["missing_classes"]:  # else there is no unbiased accuracy
            self.loop.test_selected = best_evaluation(self.loop.test_selected, scores, self.step)

    def _take_best(self) -> None:
        if self.best is not None:
            self.stage.model.load_state_dict(self.best[1])

    def _lr(self, step: int) -> float:
        """Return the learning rate of the first optimiser at a step."""
        initial: float = self.stage.updates[0][1].param_groups[0]["initial_lr"]
        return float(self.factor[step]) * initial

    def _stop_if_diverged(self, weights: bool = False) -> None:
        bad = self.steps.first_bad()
        if bad is None and (not weights or self.steps.weights_finite()):
            return
        step = self.step - 1 if bad is None else self.step - self.steps.next + bad
        seen = self.steps.losses[: self.steps.next if bad is None else bad]
        last = float(seen[-1]) if len(seen) else self.last_loss
        what = "A weight" if bad is None else "The loss"
        raise Diverged(self.stage.name, step, self._lr(step), last, what)

    # Checkpoints inside the stage

    def _save_or_stop(self, ends: bool) -> None:
        stop, save = self._wishes(ends)
        if stop or save:
            self._save_part()
        if stop:
            raise Interrupted(self._how_to_resume())

    def _wishes(self, ends: bool) -> tuple[bool, ...]:
        """Whether to stop, and whether to save. Several processes must do both at the same step."""
        if world() > 1 and self.step % TALK and not ends:
            return False, False
        return any_of(self.loop.stop, self._checkpoint_due())

    def _checkpoint_due(self) -> bool:
        return self.loop.folder is not None and time.monotonic() - self.saved_at >= self.loop.checkpoint_seconds

    def _save_part(self) -> None:
        if self.loop.folder is None:
            return
        self._stop_if_diverged(weights=True)  # never keep a checkpoint that cannot be resumed
        self.watch.save()  # first: what it saw beyond the checkpoint is dropped when the run is resumed
        tensors = snapshot(self.run.modules, [opt for _, opt in self.stage.updates])
        tensors |= {"losses": self.steps.losses} | self.run.drawn()
        tensors["rng.cpu"] = torch.get_rng_state()
        if self.loop.device.type == "cuda":
            tensors["rng.cuda"] = torch.cuda.get_rng_state(self.loop.device)
        seconds = self.spent_before + time.monotonic() - self.started
        facts: dict[str, Any] = {
            "step": self.step,
            "epoch": self.epoch,
            "last_loss": self.last_loss,
            "seconds": seconds,
        }
        facts |= {"ended_early": self.ended_early, "test_selected": self.loop.test_selected}
        if self.best is not None:
            facts["best"] = self.best[0]
            tensors |= {f"best.{k}": v for k, v in self.best[1].items()}
        self.loop.folder.save(self.index, False, tensors, facts)
        self.saved_at = time.monotonic()

    def _how_to_resume(self) -> str:
        if self.loop.folder is None:
            return "Nothing was saved, because no folder was named (out=...)."
        return f"Checkpoint saved to {self.loop.folder.path}; re-run the command to resume."

    def resume(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Restore what `_save_part` saved."""
        restore(tensors, self.run.modules, [opt for _, opt in self.stage.updates])
        self.run.draw_on(tensors)
        self.steps.losses.copy_(tensors["losses"])
        self.step, self.epoch, self.last_loss = facts["step"], facts["epoch"], facts["last_loss"]
        self.ended_early, self.loop.test_selected = facts["ended_early"], facts["test_selected"]
        self.watch.resume(self.step)
        self.spent_before = self.loop.spent = float(facts["seconds"])
        if "best" in facts:
            device = self.loop.device
            weights = {k.removeprefix("best."): v.to(device) for k, v in tensors.items() if k.startswith("best.")}
            self.best = (facts["best"], weights)
        if self.step % len(self.sizes):
            self.random = {name: t for name, t in tensors.items() if name.startswith("rng.")}


def _lowest(data: Bundle, scores: Mapping[str, Any]) -> float:
    """Return the accuracy of the worst validation group, or, where a class has no sample there, of the worst that has
    samples: selection needs a number, and the result's notes say which it was."""
    if scores["worst_group"] is not None:
        return float(scores["worst_group"])
    judging = [g for g in scores["groups"] if data.overlap is None or g["attribute"] == data.overlap.name]
    return min((g["accuracy"] for g in judging), default=math.nan)


def best_evaluation(so_far: dict[str, Any] | None, scores: Mapping[str, Any], step: int) -> dict[str, Any]:
    """Return the best evaluation of the test split up to this one; of equal ones the first.

    >>> best_evaluation({"unbiased": 70.0, "step": 9, "looks": 1}, {"unbiased": None, "average": 60.0}, 18)
    {'unbiased': 70.0, 'step': 9, 'looks': 2}
    """
    value = scores["average"] if scores["unbiased"] is None else scores["unbiased"]
    looks = so_far["looks"] + 1 if so_far else 1
    if so_far and so_far["unbiased"] >= value:
        return so_far | {"looks": looks}
    return {"unbiased": value, "step": step, "looks": looks}
