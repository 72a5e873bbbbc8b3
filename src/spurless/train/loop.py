"""The only training loop of the project. It drives a method's generator, stage by stage."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from spurless.core.data import Bundle, Split
from spurless.core.errors import Diverged, UserError
from spurless.core.method import M, Method, Run, Stage
from spurless.core.parallel import TALK, agree, any_of, as_first, from_first, world
from spurless.core.recipe import Recipe
from spurless.core.seeds import derive
from spurless.metrics.scores import Judged, score
from spurless.nets import Net
from spurless.nets.outputs import Inputs, outputs
from spurless.train.checkpoint import restore, snapshot
from spurless.train.feed import Resident, epoch_order, place, resident
from spurless.train.observe import StepWatch
from spurless.train.optim import make_optimizer
from spurless.train.run_folder import RunFolder
from spurless.train.shared_stages import Shelf
from spurless.train.step import Steps, schedule

if TYPE_CHECKING:
    from spurless.train.dynamics import Dynamics

KEEP = 2**30  # bytes of a split that may stay on a GPU between two evaluations
Saved = tuple[dict[str, Tensor], dict[str, Any]]  # tensors, and facts about them
POLL = 200  # steps between two looks at whether the loss is still finite


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with one line that says how to go on."""


@dataclass(frozen=True)
class Progress:
    """Where a run is: what the loop yields after every step or few steps, and with a row after every epoch."""

    stage: str
    step: int
    total: int
    done: int = 0  # steps since the last word
    row: dict[str, Any] | None = None  # the finished epoch, as it stands in the history
    waiting: bool = False  # for another run that trains a stage both share
    pending: torch.cuda.Event | None = None  # a time to let other lanes work, until the device has come here


@dataclass(frozen=True)
class Asked:
    """What a device works out at the end of an epoch."""

    sound: Tensor  # whether all losses and weights are finite
    loss: Tensor  # the mean of the epoch
    validation: Judged | None


class EngineRun(Run):
    """What a method holds. It knows the blinded data only."""

    def __init__(self, data: Bundle, recipe: Recipe, seed: int, device: torch.device, make: Callable[[int], Net]):
        self.data, self.recipe, self.seed, self.device = data, recipe, seed, device
        self.modules: list[nn.Module] = []  # everything a checkpoint must hold
        self.findings: dict[str, Tensor] = {}  # by name: (n,) bool, rows taken for conflicting
        self.guesses: dict[str, Tensor] = {}  # by name: (n,) int, the group each row was guessed to be in
        self.inputs = Inputs(data, recipe, device)
        self.placed: dict[int, Resident] = {}  # splits that are looked at again and again, on the device
        # Those of the data sets, which live as long as the run: the number of one that does not may be given again.
        self.lasting = {id(split) for split in data.splits.values()}
        self.generators: dict[str, torch.Generator] = {}  # that were handed out, the last of each name
        self._make = make
        self._nets = 0

    def net(self) -> Net:
        net = self._make(self._nets)
        self._nets += 1
        if not any(isinstance(module, nn.Conv2d) for module in net.modules()):
            self.inputs.channels_last = False  # a copy that only convolutions pay back
        return self.keep(net)

    def keep(self, module: M) -> M:
        if self.recipe.channels_last and len(self.data.shape) == 3:
            module.to(self.device).to(memory_format=torch.channels_last)
        else:
            module.to(self.device)
        self.modules.append(module)
        return module

    def optimizer(self, *held: nn.Module | Iterable[nn.Parameter], **changes: Any) -> Optimizer:
        params: list[nn.Parameter] = []
        for item in held:
            params += item.parameters() if isinstance(item, nn.Module) else item
        return make_optimizer([p for p in params if p.requires_grad], self.recipe, self.device, **changes)

    def outputs(
        self, net: nn.Module, split: Split | None = None, features: bool = False, augment: bool = False
    ) -> Tensor:
        split = split or self.data.train
        lasts = id(split) in self.lasting and id(split) not in self.placed
        if lasts and isinstance(split.x, Tensor) and split.x.nbytes < KEEP:
            self.placed[id(split)] = resident(split.x, self.recipe.channels_last, self.device)
        draws = None
        if augment and self.inputs.augments:
            with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
                torch.manual_seed(derive(self.seed, "views"))
                draws = self.inputs.draw(len(split), self.data.shape)
        placed = self.placed.get(id(split))
        return as_first(outputs(net, split, self.inputs, self.recipe, self.device, features, placed, draws))

    def generator(self, name: str) -> torch.Generator:
        self.generators[name] = torch.Generator().manual_seed(derive(self.seed, "method", name))
        return self.generators[name]

    def drawn(self) -> dict[str, Tensor]:
        """How far the method's own generators are, for a checkpoint: a loss may draw from them."""
        return {f"generator.{name}": generator.get_state() for name, generator in self.generators.items()}

    def draw_on(self, saved: Mapping[str, Tensor]) -> None:
        for name, generator in self.generators.items():
            if f"generator.{name}" in saved:
                generator.set_state(saved[f"generator.{name}"])

    def report_conflicting(self, conflicting: Tensor, name: str = "mined") -> None:
        self.findings[name] = conflicting.detach().bool().cpu()

    def report_groups(self, groups: Tensor, name: str = "groups") -> None:
        self.guesses[name] = groups.detach().cpu()


class Loop:
    """One run: the method's generator, and the stages it yields."""

    def __init__(
        self,
        method: Method,
        data: Bundle,
        run: EngineRun,
        folder: RunFolder | None,
        checkpoint_seconds: float,
        say: Callable[[str], None],
        shelf: Shelf | None = None,
        dynamics: Dynamics | None = None,
    ):
        self.method, self.data, self.run, self.folder, self.say = method, data, run, folder, say
        self.shelf, self.dynamics = shelf, dynamics
        if dynamics:
            dynamics.start(folder.path if folder else None)
        self.recipe, self.device = run.recipe, run.device
        self.checkpoint_seconds = checkpoint_seconds
        self.rows = place(data.train, self.recipe, self.device)
        self.labels: dict[int, Tensor] = {}  # of splits that are judged, on the device
        run.lasting |= {id(split) for split in data.splits.values()}
        self.history: list[dict[str, Any]] = folder.history() if folder else []
        self.stop = False  # set from outside to end at the next step, with a checkpoint
        self.spent = 0.0  # seconds of training, over all sessions
        self.net: Net | None = None
        self.test_selected: dict[str, Any] | None = None  # see Result
        self.selected = ""  # the stage whose weights the recipe's rule picks
        self.looked_at: tuple[nn.Module, dict[str, Any]] | None = None  # by those looks, and its state afterwards

    def __iter__(self) -> Iterator[Progress]:
        """Drive the generator. A finished stage is loaded instead of trained; an unfinished one goes on."""
        generator = self.method.stages(self.run)
        index = 0
        try:
            stage = next(generator)
            while True:
                if stage.select and self.selected and self.recipe.selection != "last":
                    raise UserError(
                        f"{type(self.method).__name__} lets recipe.selection pick the weights of two stages, "
                        f"'{self.selected}' and '{stage.name}': only one may have select=True."
                    )
                self.selected = stage.name if stage.select else self.selected
                yield from self._stage(index, stage)
                if self.tests(stage):
                    self.looked_at = stage.model, copy.deepcopy(stage.model.state_dict())
                index += 1
                stage = next(generator)
        except StopIteration as end:
            self.net = end.value
        agree(self.run.modules)
        if not isinstance(self.net, Net):
            raise UserError(f"{type(self.method).__name__}.stages must return a Net; it returned {type(self.net)}.")
        if self.looked_at and not unchanged(*self.looked_at):
            self.test_selected = None  # of a network that the method has changed since (DFR's head, pruning)

    def tests(self, stage: Stage) -> bool:
        """Whether the test split is looked at while this stage trains."""
        return bool(self.recipe.test_every) and stage.select and self.data.test is not None

    def look_at_the_end(self, scores: Mapping[str, Any]) -> None:
        """Take the final network's scores for one more look, where the best so far is worse or there is none.

        Else nothing is new: the last look of a stage is at its end. Its step is the last one, wherever the selection
        rule found the weights.
        """
        if not self.recipe.test_every or self.data.test is None or scores["missing_classes"]:
            return
        step = self.history[-1]["step"] if self.history else 0
        now = best_look(self.test_selected, scores, step)
        if self.test_selected is None or now["unbiased"] > self.test_selected["unbiased"]:
            self.test_selected = now

    def _stage(self, index: int, stage: Stage) -> Iterator[Progress]:
        self._check(stage)
        self._agree(stage)
        optimizers = [opt for _, opt in stage.updates]
        saved = self.folder.load(index) if self.folder else None
        if saved and saved[2]:
            tensors, facts, _ = saved
            with self.folder.sound(index, True):  # type: ignore[union-attr]
                restore(tensors, self.run.modules, optimizers)
                self.run.draw_on(tensors)
                self.spent, self.test_selected = facts["seconds"], facts["test_selected"]
            return
        key = self._shared_key(index, stage)
        if key and not saved:
            taken = yield from self._look_for(key, stage)
            if taken:
                self._take(index, stage, taken, optimizers)
                return
        trainer = StageLoop(self, index, stage)
        if saved:
            tensors, facts, _ = saved
            with self.folder.sound(index, False):  # type: ignore[union-attr]
                trainer.resume(tensors, facts)
        self._forget_after(index, trainer.epoch)
        try:
            with trainer.watch:
                yield from trainer
        except BaseException:
            if self.shelf:
                self.shelf.release()
            raise
        trainer.steps.close()
        tensors = snapshot(self.run.modules, optimizers)
        if self.folder:
            self._save_stage(index, tensors)
        if key and self.shelf:
            before = max((row["seconds"] for row in self.history if row["stage_index"] < index), default=0.0)
            epochs = [row | {"seconds": row["seconds"] - before} for row in self.history if row["stage_index"] == index]
            facts = {"seconds": self.spent - before, "history": epochs, "test_selected": self.test_selected}
            self.shelf.put(key, tensors, facts)

    def _save_stage(self, index: int, tensors: dict[str, Tensor]) -> None:
        assert self.folder
        facts = {"seconds": self.spent, "test_selected": self.test_selected}
        self.folder.save(index, True, tensors | self.run.drawn(), facts)

    def _shared_key(self, index: int, stage: Stage) -> str | None:
        if self.shelf is None or stage.shared is None or self.dynamics:  # what is taken over cannot be watched
            return None
        n = len(self.data.train) if stage.rows is None else len(stage.rows)
        steps = stage_length(stage, self.recipe, len(batch_sizes(n, self.recipe)))
        return self.shelf.key(index, stage, steps, self.run.modules)

    def _look_for(self, key: str, stage: Stage) -> Generator[Progress, None, Saved | None]:
        """A stage that another run has trained, or is training; None: it is ours to train."""
        assert self.shelf
        while (taken := self.shelf.take(key)) is None:
            if self.shelf.reserve(key):
                # Looked at once more: it may have been finished and its claim given up between the two looks.
                taken = self.shelf.take(key)
                if taken:
                    self.shelf.release()
                return taken
            if self.stop:
                raise Interrupted("Stopped while waiting for a stage that another run trains.")
            yield Progress(stage.name, 0, 1, waiting=True)
        return taken

    def _take(self, index: int, stage: Stage, taken: Saved, optimizers: list[Optimizer]) -> None:
        tensors, facts = taken
        restore(tensors, self.run.modules, optimizers)
        self._forget_after(index, 0)
        if stage.select:
            self.test_selected = facts["test_selected"]
        for row in facts["history"]:
            row = row | {"stage": stage.name, "shared": True, "seconds": round(self.spent + row["seconds"], 3)}
            self.history.append(row)
            if self.folder:
                self.folder.append_history(row)
        self.spent += facts["seconds"]  # as if it had been trained here: what a result costs does not depend on luck
        if self.folder:
            self._save_stage(index, tensors)

    def _forget_after(self, index: int, epoch: int) -> None:
        """Drop history that lies after the place from which the run goes on: it will be made again."""
        kept = [r for r in self.history if (r["stage_index"], r["epoch"]) <= (index, epoch)]
        if self.folder:  # also where nothing lies after it: a torn line at the end would be glued to the next one
            self.folder.rewrite_history(kept)
        self.history = kept

    def _agree(self, stage: Stage) -> None:
        """What was found between two stages, as the first of several processes found it."""
        if world() > 1:
            agree(self.run.modules)
            of_first = from_first(lambda: [None if t is None else t.cpu() for t in (stage.sample_weights, stage.rows)])
            stage.sample_weights, stage.rows = of_first

    def _check(self, stage: Stage) -> None:
        known = {id(p) for module in self.run.modules for p in module.parameters()}
        for _, opt in stage.updates:
            if any(id(p) not in known for group in opt.param_groups for p in group["params"]):
                raise UserError(
                    f"Stage '{stage.name}' trains parameters that no checkpoint would hold: "
                    "pass their module through run.keep(...) in the method."
                )
        n = len(self.data.train) if stage.rows is None else len(stage.rows)
        if n == 0:
            raise UserError(f"Stage '{stage.name}' has no rows to train on.")
        w = stage.sample_weights
        if w is not None and (
            w.shape != (n,) or not bool(torch.isfinite(w).all()) or bool((w < 0).any()) or w.sum() <= 0
        ):
            raise UserError(
                f"The sampling weights of stage '{stage.name}' must be {n} finite numbers, none negative, not all zero."
            )

    def judge(self, net: nn.Module, split: Split) -> Judged:
        """What a network says about rows."""
        if id(split) not in self.labels:
            self.labels[id(split)] = split.y.to(self.device)
        return Judged(self.run.outputs(net, split), self.labels[id(split)])


class StageLoop:
    """The epochs and steps of one stage."""

    def __init__(self, loop: Loop, index: int, stage: Stage):
        self.loop, self.index, self.stage, self.run, self.recipe = loop, index, stage, loop.run, loop.recipe
        self.n = len(loop.data.train) if stage.rows is None else len(stage.rows)
        self.sizes = batch_sizes(self.n, self.recipe)
        self.total = stage_length(stage, self.recipe, len(self.sizes))
        self.step = 0  # done in this stage
        self.epoch = 0  # finished in this stage
        self.best: tuple[float, dict[str, Tensor]] | None = None
        self.ended_early = False
        self.started = self.saved_at = time.monotonic()
        self.spent_before = loop.spent
        show = loop.method.labels == "training"
        place = loop.data, loop.rows, self.run.inputs, self.recipe, loop.device
        self.watch = StepWatch()
        if loop.dynamics:
            seen = loop.data, self.recipe, self.sizes, self.total, loop.device
            self.watch = loop.dynamics.stage(index, stage, *seen)
        self.steps = Steps(stage, *place, show, loop.say, self.run.modules, self.watch)
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
                done = self.steps.run(self._free_steps())
                self.step += done
                self.watch.after(self.steps, self.step)
                if self.step % POLL < done and any_of(self.steps.looks_bad())[0]:
                    self._stop_if_diverged()
                if self._test_due():
                    self._look_at_test()
                # Before any checkpoint: a run that goes on from the end of an epoch must not miss what belongs to it.
                ends = self.step % len(self.sizes) == 0 or self.step == self.total
                asked = self._ask() if ends else None
                if ends and self.loop.device.type == "cuda":
                    if self.step < self.total:
                        self._order(self.step // len(self.sizes))  # while the device has still to do
                    yield from self._pause()
                row = self._end_epoch(asked) if asked else None
                stop, save = self._wishes(ends)
                if stop or save:
                    self._save_part()
                if stop:
                    raise Interrupted(self._how_to_go_on())
                yield Progress(self.stage.name, self.step, self.total, done)
                if row:
                    yield Progress(self.stage.name, self.step, self.total, row=row)
                if self.steps.slow:
                    yield from self._pause()
        self._take_best()
        yield from self._pause()

    def _pause(self) -> Iterator[Progress]:
        """A time to let other lanes work: what comes next takes the host long."""
        if self.loop.device.type == "cuda":
            yield Progress(self.stage.name, self.step, self.total, pending=self.steps.mark())

    def _free_steps(self) -> int:
        """How many steps may be made before something has to be done between two of them."""
        at, every = self.step % len(self.sizes), self.recipe.test_every if self.loop.tests(self.stage) else 0
        free = min(len(self.sizes) - at, self.total - self.step, self.watch.free_steps(at, self.step))
        return min(free, every - self.step % every) if every else free

    def _start_epoch(self) -> int:
        """Lay out the epoch and say how many of its steps are done: more than 0 when the run goes on inside it.

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
        """Which rows an epoch takes, in their order: drawn once, on the host."""
        if self.drawn is None or self.drawn[0] != epoch:
            generator = torch.Generator().manual_seed(derive(self.run.seed, "order", self.index, epoch))
            order = epoch_order(len(self.loop.data.train), self.stage.sample_weights, self.stage.rows, generator)
            self.drawn = epoch, order[: sum(self.sizes)]
        return self.drawn[1]

    def _set_modes(self) -> None:
        held = {id(p) for _, opt in self.stage.updates for group in opt.param_groups for p in group["params"]}
        for module in self.run.modules:
            module.train(any(id(p) in held for p in module.parameters()))
        for module in self.stage.in_training_mode:
            module.train()

    def _ask(self) -> Asked:
        """Have the device work out what is to be said about the epoch that ends; nobody waits for it here."""
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
            row |= self._look_at_validation(asked.validation)
        row |= self._look_at_training()
        self.loop.spent = self.spent_before + time.monotonic() - self.started
        row["seconds"] = round(self.loop.spent, 3)
        self.loop.history.append(row)
        if self.loop.folder:
            self.loop.folder.append_history(row)
        return row

    def _look_at_training(self) -> dict[str, Any]:
        """Training accuracy and cross entropy in evaluation mode, and whether they are what training goes on until."""
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
            self.loop.say(
                f"Stage '{self.stage.name}' was to go on until its criterion, and its {length} over: "
                f"training accuracy {row['train_accuracy']:.2f} %, cross entropy {row['train_loss']:.2g}."
            )
        return row | {"reached": self.ended_early}

    @property
    def _selects(self) -> bool:
        return self.stage.select and self.recipe.selection != "last"

    def _judge_validation(self) -> Judged | None:
        """What the network says about the validation rows, if someone wants to know after this epoch."""
        every, val = int(self.recipe.eval_every), self.loop.data.val
        due = every and (self.epoch % every == 0 or self.step >= self.total)
        if val is None or not (due or self._selects):
            return None
        return self.loop.judge(self.stage.model, val)

    def _look_at_validation(self, judged: Judged) -> dict[str, Any]:
        """Validation accuracy and loss, and the best weights so far by the selection rule."""
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
                self.loop.say(
                    f"recipe.selection = {rule} had nothing to go by: no look gave a number. The last are kept."
                )
        return row

    def _test_due(self) -> bool:
        due = self.loop.tests(self.stage)
        return due and (self.step % self.recipe.test_every == 0 or self.step == self.total)

    def _look_at_test(self) -> None:
        """Note how well the test split would be done now: for comparison with papers that pick their weights so."""
        test = self.loop.data.test
        assert test is not None
        logits = self.run.outputs(self.stage.model, test)
        if bool(logits.isnan().any()):
            return  # the run diverges, and is said to have when its losses are looked at
        scores = score(self.loop.data, test, logits)
        if not scores["missing_classes"]:  # else there is no unbiased accuracy
            self.loop.test_selected = best_look(self.loop.test_selected, scores, self.step)

    def _take_best(self) -> None:
        if self.best is not None:
            self.stage.model.load_state_dict(self.best[1])

    def _lr(self, step: int) -> float:
        """The learning rate of the first optimiser at a step."""
        return self.factor[step] * self.stage.updates[0][1].param_groups[0]["initial_lr"]

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
        self._stop_if_diverged(weights=True)  # never keep a place from which there is no way on
        self.watch.save()  # first: what it saw beyond the place that is saved is dropped when the run goes on
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

    def _how_to_go_on(self) -> str:
        if self.loop.folder is None:
            return "Nothing was saved, because no folder was named (out=...)."
        return f"The place is saved in {self.loop.folder.path}: the same command goes on from there."

    def resume(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Go back to where `_save_part` was."""
        restore(tensors, self.run.modules, [opt for _, opt in self.stage.updates])
        self.run.draw_on(tensors)
        self.steps.losses.copy_(tensors["losses"])
        self.step, self.epoch, self.last_loss = facts["step"], facts["epoch"], facts["last_loss"]
        self.ended_early, self.loop.test_selected = facts["ended_early"], facts["test_selected"]
        self.watch.resume(self.step)
        self.spent_before = self.loop.spent = facts["seconds"]
        if "best" in facts:
            device = self.loop.device
            weights = {k.removeprefix("best."): v.to(device) for k, v in tensors.items() if k.startswith("best.")}
            self.best = (facts["best"], weights)
        if self.step % len(self.sizes):
            self.random = {name: t for name, t in tensors.items() if name.startswith("rng.")}


def _lowest(data: Bundle, scores: Mapping[str, Any]) -> float:
    """The worst group on the validation split, or, where a class has no sample there, the worst of those that have:
    selection must go by something, and the result's notes say by what."""
    if scores["worst_group"] is not None:
        return float(scores["worst_group"])
    judging = [g for g in scores["groups"] if data.overlap is None or g["attribute"] == data.overlap.name]
    return min((g["accuracy"] for g in judging), default=math.nan)


def best_look(so_far: dict[str, Any] | None, scores: Mapping[str, Any], step: int) -> dict[str, Any]:
    """The best of the looks at the test split up to this one; of equal ones the first.

    >>> best_look({"unbiased": 70.0, "step": 9, "looks": 1}, {"unbiased": None, "average": 60.0}, 18)
    {'unbiased': 70.0, 'step': 9, 'looks': 2}
    """
    value = scores["average"] if scores["unbiased"] is None else scores["unbiased"]
    looks = so_far["looks"] + 1 if so_far else 1
    if so_far and so_far["unbiased"] >= value:
        return so_far | {"looks": looks}
    return {"unbiased": value, "step": step, "looks": looks}


def unchanged(net: nn.Module, held: Mapping[str, Any]) -> bool:
    """Whether a network's weights are still those of a copy of its state."""
    return all(torch.equal(v, held[k]) for k, v in net.state_dict().items() if isinstance(v, Tensor))


def batch_sizes(n: int, recipe: Recipe) -> list[int]:
    """The sizes of an epoch's batches. A last batch of one row is left out: BatchNorm cannot be trained on it.

    >>> batch_sizes(10, Recipe(batch_size=4)), batch_sizes(10, Recipe(batch_size=4, drop_last=True))
    ([4, 4, 2], [4, 4])
    """
    full, rest = divmod(n, recipe.batch_size)
    keep_rest = rest > 1 and not recipe.drop_last
    return [recipe.batch_size] * full + [rest] * (keep_rest or not full)


def stage_length(stage: Stage, recipe: Recipe, steps_per_epoch: int) -> int:
    """Steps of a stage: its own length, else the recipe's."""
    if stage.iterations is not None:
        return stage.iterations
    if stage.epochs is None and recipe.iterations:
        return recipe.iterations
    epochs = recipe.epochs if stage.epochs is None else stage.epochs
    return round(epochs * steps_per_epoch)
