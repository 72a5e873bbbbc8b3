"""The only training loop of the project drives a method's generator: the stages of a run, in turn."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from spurless.core.data import Bundle, Split
from spurless.core.errors import SettingError
from spurless.core.method import Method, Stage
from spurless.core.parallel import agree, from_first, world
from spurless.methods.parts.mixing import with_mixing
from spurless.metrics.scores import Judged
from spurless.nets import Net
from spurless.train.checkpoint import restore, snapshot
from spurless.train.engine_run import EngineRun
from spurless.train.feed import on_device
from spurless.train.observe import Interrupted, Progress
from spurless.train.run_folder import RunFolder
from spurless.train.schedule import batch_sizes, stage_length
from spurless.train.shared_stages import Shelf
from spurless.train.stage_loop import StageLoop, best_evaluation

if TYPE_CHECKING:
    from spurless.train.dynamics import Dynamics

Saved = tuple[dict[str, Tensor], dict[str, Any]]  # tensors, and facts about them


class Loop:
    """One run: the method's generator, and the stages it yields."""

    def __init__(
        self,
        method: Method,
        data: Bundle,
        run: EngineRun,
        folder: RunFolder | None,
        checkpoint_seconds: float,
        warn: Callable[[str], None],
        shelf: Shelf | None = None,
        dynamics: Dynamics | None = None,
    ):
        self.method, self.data, self.run, self.folder, self.warn = method, data, run, folder, warn
        self.shelf, self.dynamics = shelf, dynamics
        if dynamics:
            dynamics.start(folder.path if folder else None)
        self.recipe, self.device = run.recipe, run.device
        self.checkpoint_seconds = checkpoint_seconds
        self.samples = on_device(data.train, self.recipe, self.device)
        self.labels: dict[int, Tensor] = {}  # of splits that are judged, on the device
        run.lasting |= {id(split) for split in data.splits.values()}
        self.history: list[dict[str, Any]] = folder.history() if folder else []
        self.stop = False  # set from outside to end at the next step, with a checkpoint
        self.spent = 0.0  # seconds of training, over all sessions
        self.net: Net | None = None
        self.test_selected: dict[str, Any] | None = None  # see Result
        self.selected = ""  # the stage whose weights the recipe's rule picks
        self.tested: tuple[nn.Module, dict[str, Any]] | None = None  # the network that was, and its state afterwards

    def __iter__(self) -> Iterator[Progress]:
        """Drive the generator. A finished stage is loaded instead of trained; an unfinished one is resumed."""
        generator = with_mixing(self.method.stages(self.run), self.run)
        index = 0
        try:
            stage = next(generator)
            while True:
                if stage.select and self.selected and self.recipe.selection != "last":
                    raise SettingError(
                        f"{type(self.method).__name__} lets recipe.selection pick the weights of two stages, "
                        f"'{self.selected}' and '{stage.name}': only one may have select=True."
                    )
                self.selected = stage.name if stage.select else self.selected
                yield from self._stage(index, stage)
                if self.tests(stage):
                    self.tested = stage.model, copy.deepcopy(stage.model.state_dict())
                index += 1
                stage = next(generator)
        except StopIteration as end:
            self.net = end.value
        agree(self.run.modules)
        if not isinstance(self.net, Net):
            raise SettingError(f"{type(self.method).__name__}.stages must return a Net; it returned {type(self.net)}.")
        if self.tested and not unchanged(*self.tested):
            self.test_selected = None  # of a network that the method has changed since (DFR's head, pruning)

    def tests(self, stage: Stage) -> bool:
        """Whether the test split is evaluated while this stage trains."""
        return bool(self.recipe.test_every) and stage.select and self.data.test is not None

    def count_final_evaluation(self, scores: Mapping[str, Any]) -> None:
        """Count the final network's scores as one more evaluation, where the best so far is worse or there is none.

        Else nothing is new: the last evaluation of a stage is at its end. Its step is the last one, wherever the
        selection rule found the weights.
        """
        if not self.recipe.test_every or self.data.test is None or scores["missing_classes"]:
            return
        step = self.history[-1]["step"] if self.history else 0
        now = best_evaluation(self.test_selected, scores, step)
        if self.test_selected is None or now["unbiased"] > self.test_selected["unbiased"]:
            self.test_selected = now

    def _stage(self, index: int, stage: Stage) -> Iterator[Progress]:
        self._check(stage)
        self._agree(stage)
        optimizers = [opt for _, opt in stage.updates]
        checkpoint = self.folder.load(index) if self.folder else None
        if checkpoint and checkpoint[2]:
            tensors, facts, _ = checkpoint
            with self.folder.sound(index, True):  # type: ignore[union-attr]
                restore(tensors, self.run.modules, optimizers)
                self.run.draw_on(tensors)
                self.spent, self.test_selected = float(facts["seconds"]), facts["test_selected"]
            return
        key = self._shared_key(index, stage)
        if key and not checkpoint:
            shared = yield from self._wait_for_shared(key, stage)
            if shared:
                self._take_shared(index, stage, shared, optimizers)
                return
        yield from self._train(index, stage, checkpoint[:2] if checkpoint else None)
        tensors = snapshot(self.run.modules, optimizers)
        if self.folder:
            self._save_stage(index, tensors)
        if key and self.shelf:
            self._share(self.shelf, key, index, tensors)

    def _train(self, index: int, stage: Stage, checkpoint: Saved | None) -> Iterator[Progress]:
        trainer = StageLoop(self, index, stage)
        if checkpoint:
            with self.folder.sound(index, False):  # type: ignore[union-attr]
                trainer.resume(*checkpoint)
        self._forget_after(index, trainer.epoch)
        try:
            with trainer.watch:
                yield from trainer
        except BaseException:
            if self.shelf:
                self.shelf.release()
            raise
        trainer.steps.close()

    def _share(self, shelf: Shelf, key: str, index: int, tensors: dict[str, Tensor]) -> None:
        before = max((row["seconds"] for row in self.history if row["stage_index"] < index), default=0.0)
        epochs = [row | {"seconds": row["seconds"] - before} for row in self.history if row["stage_index"] == index]
        facts = {"seconds": self.spent - before, "history": epochs, "test_selected": self.test_selected}
        shelf.put(key, tensors, facts)

    def _save_stage(self, index: int, tensors: dict[str, Tensor]) -> None:
        assert self.folder
        facts = {"seconds": self.spent, "test_selected": self.test_selected}
        self.folder.save(index, True, tensors | self.run.drawn(), facts)

    def _shared_key(self, index: int, stage: Stage) -> str | None:
        if self.shelf is None or stage.shared is None or self.dynamics:  # what is taken over cannot be watched
            return None
        n = len(self.data.train) if stage.rows is None else len(stage.rows)
        recipe = stage.recipe or self.recipe
        steps = stage_length(stage, recipe, len(batch_sizes(n, recipe)))
        return self.shelf.key(index, stage, steps, self.run.modules)

    def _wait_for_shared(self, key: str, stage: Stage) -> Generator[Progress, None, Saved | None]:
        """Return the stage as another run has trained it, once it has; None if it is ours to train."""
        assert self.shelf
        while (shared := self.shelf.take(key)) is None:
            if self.shelf.reserve(key):
                # Asked once more: it may have been finished and its claim given up between the two.
                shared = self.shelf.take(key)
                if shared:
                    self.shelf.release()
                return shared
            if self.stop:
                raise Interrupted("Stopped while waiting for a stage that another run trains.")
            yield Progress(stage.name, 0, 1, waiting=True)
        return shared

    def _take_shared(self, index: int, stage: Stage, shared: Saved, optimizers: list[Optimizer]) -> None:
        tensors, facts = shared
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
        """Drop the history after the checkpoint that the run resumes from: it will be made again."""
        kept = [r for r in self.history if (r["stage_index"], r["epoch"]) <= (index, epoch)]
        if self.folder:  # also where nothing lies after it: a torn line at the end would be glued to the next one
            self.folder.rewrite_history(kept)
        self.history = kept

    def _agree(self, stage: Stage) -> None:
        """Give all processes what the first of them computed between two stages."""
        if world() > 1:
            agree(self.run.modules)
            of_first = from_first(lambda: [None if t is None else t.cpu() for t in (stage.sample_weights, stage.rows)])
            stage.sample_weights, stage.rows = of_first

    def _check(self, stage: Stage) -> None:
        kept = {id(p) for module in self.run.modules for p in module.parameters()}
        for _, opt in stage.updates:
            if any(id(p) not in kept for group in opt.param_groups for p in group["params"]):
                raise SettingError(
                    f"Stage '{stage.name}' trains parameters that no checkpoint would hold: "
                    "pass their module through run.keep(...) in the method."
                )
        n = len(self.data.train) if stage.rows is None else len(stage.rows)
        if n == 0:
            raise SettingError(f"Stage '{stage.name}' has no samples to train on.")
        w = stage.sample_weights
        if w is not None and (
            w.shape != (n,) or not bool(torch.isfinite(w).all()) or bool((w < 0).any()) or w.sum() <= 0
        ):
            raise SettingError(
                f"The sampling weights of stage '{stage.name}' must be {n} finite numbers, none negative, not all zero."
            )

    def judge(self, net: nn.Module, split: Split) -> Judged:
        """Judge what a network predicts for the samples of a split."""
        if id(split) not in self.labels:
            self.labels[id(split)] = split.y.to(self.device)
        return Judged(self.run.outputs(net, split), self.labels[id(split)])


def unchanged(net: nn.Module, copy_of_state: Mapping[str, Any]) -> bool:
    """Whether a network's weights are still those of a copy of its state."""
    return all(torch.equal(v, copy_of_state[k]) for k, v in net.state_dict().items() if isinstance(v, Tensor))
