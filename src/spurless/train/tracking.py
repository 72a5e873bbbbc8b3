"""Sends a run's numbers to TensorBoard, Weights & Biases or MLflow: each epoch's, and in the end the scores."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from spurless.core.errors import SettingError, one_of
from spurless.core.extras import missing
from spurless.core.files import atomic, from_json, read_text
from spurless.train.observe import Progress, Through, Watcher
from spurless.train.result import Result

# What a row of the history calls it, and the name that it is sent under. There are two training losses: the mean over
# the epoch's batches, of whatever the method minimises and while the weights change; and the cross entropy of the whole
# training split afterwards, in evaluation mode, which is known where `until_accuracy` or `until_loss` asks for it.
SENT = {
    "loss": "loss_of_batches",
    "train_loss": "train_split_cross_entropy",
    "train_accuracy": "train_split_accuracy",
    "val_loss": "val_loss",
    "val_accuracy": "val_accuracy",
    "lr": "lr",
}
SCORES = ("average", "unbiased", "worst_group", "aligned", "conflicting")
STEPS = ".steps.json"  # the last step of each stage, and the tracker's own name of the run
PROJECT = "spurless"


class Tracker(Protocol):
    """A service that keeps numbers by step."""

    def open(self, step: int, run_id: str | None) -> str | None:
        """Begin a run, or resume the one of that id, at this step; returns the run's id, if it has one."""

    def send(self, numbers: Mapping[str, float], step: int) -> None: ...
    def close(self, scores: Mapping[str, float], finished: bool) -> None: ...


class TensorBoard:
    """Event files, written by tensorboardX."""

    def __init__(self, folder: Path):
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise missing("track = tensorboard", "tracking") from None
        folder.mkdir(parents=True, exist_ok=True)  # a folder that cannot be used is told before the training
        self.folder = folder
        self.make: Any = SummaryWriter
        self.writer: Any = None

    def open(self, step: int, run_id: str | None) -> None:
        """TensorBoard forgets what it has from this step on: those steps are made again."""
        before = any(self.folder.glob("events.*"))
        self.writer = self.make(str(self.folder), purge_step=step if before else None)

    def send(self, numbers: Mapping[str, float], step: int) -> None:
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, step)

    def close(self, scores: Mapping[str, float], finished: bool) -> None:
        if self.writer is not None:
            self.send(scores, 0)
            self.writer.close()


class WandB:
    """Weights & Biases; WANDB_MODE=offline keeps everything on this machine."""

    def __init__(self, project: str, name: str, settings: Mapping[str, Any], folder: Path | None):
        try:
            import wandb
        except ImportError:
            raise missing("track = wandb", "wandb") from None
        self.how = {"project": project, "name": name, "config": dict(settings), "dir": folder, "resume": "allow"}
        self.wandb: Any = wandb
        self.run: Any = None

    def open(self, step: int, run_id: str | None) -> str:
        self.run = self.wandb.init(id=run_id, **self.how)
        return str(self.run.id)

    def send(self, numbers: Mapping[str, float], step: int) -> None:
        self.run.log(dict(numbers), step=step)

    def close(self, scores: Mapping[str, float], finished: bool) -> None:
        if self.run is not None:
            self.run.summary.update(dict(scores))
            self.run.finish(exit_code=0 if finished else 1)


class MLflow:
    """MLflow, at its default tracking URI (MLFLOW_TRACKING_URI)."""

    def __init__(self, experiment: str, name: str, settings: Mapping[str, Any]):
        try:
            from mlflow import MlflowClient
        except ImportError:
            raise missing("track = mlflow", "mlflow") from None
        self.client: Any = MlflowClient()
        self.experiment, self.name, self.settings = experiment, name, settings
        self.run_id: str | None = None

    def open(self, step: int, run_id: str | None) -> str:
        self.run_id = run_id or self._new_run()
        return self.run_id

    def _new_run(self) -> str:
        experiment = self.client.get_experiment_by_name(self.experiment)
        experiment_id = experiment.experiment_id if experiment else self.client.create_experiment(self.experiment)
        run_id = str(self.client.create_run(experiment_id, run_name=self.name).info.run_id)
        for key, value in flat(self.settings).items():
            self.client.log_param(run_id, key, str(value)[:500])
        return run_id

    def send(self, numbers: Mapping[str, float], step: int) -> None:
        for name, value in numbers.items():
            self.client.log_metric(self.run_id, name, value, step=step)

    def close(self, scores: Mapping[str, float], finished: bool) -> None:
        if self.run_id is not None:
            self.send(scores, 0)
            self.client.set_terminated(self.run_id, "FINISHED" if finished else "KILLED")


TRACKERS = ("tensorboard", "wandb", "mlflow")


def make_tracker(track: str, result: Result) -> Tracker:
    """A tracker by its name, `tensorboard`, `wandb` or `mlflow`; a folder, project or experiment after a colon."""
    kind, _, target = track.partition(":")
    one_of("tracker", kind, TRACKERS)
    folder = None if result.folder is None else Path(result.folder)
    name = f"{result.method} {result.data} {result.net} seed {result.seed}"
    if kind == "wandb":
        return WandB(target or PROJECT, name, result.settings, folder)
    if kind == "mlflow":
        return MLflow(target or PROJECT, name, result.settings)
    if not target and folder is None:
        raise SettingError("track = tensorboard writes into the run's folder: give `out`, or tensorboard:FOLDER.")
    return TensorBoard(Path(target) if target else folder / "tensorboard")  # type: ignore[operator]


class Tracking(Through):
    """Shows a run with another observer, and sends each epoch's numbers under its stage's name.

    They are counted by the steps of the whole run. A stage counts its own, but stages may have the same name (a method
    that yields one for every round), and services order numbers by step, under all names.
    """

    def __init__(self, tracker: Tracker, folder: Path | None, shown: Watcher):
        super().__init__(shown)
        self.tracker, self.folder = tracker, folder
        self.ends, self.run_id = _saved(folder)  # by stage: its last step
        self.opened = False
        self.scores: dict[str, float] = {}
        self.finished = False

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        if self.opened:
            self.tracker.close(self.scores, self.finished)

    def __call__(self, progress: Progress) -> None:
        super().__call__(progress)
        row = progress.row
        if row is None:
            return
        step = self._step(row["stage_index"], row["step"])
        if not self.opened:
            self.run_id, self.opened = self.tracker.open(step, self.run_id), True
        self.tracker.send({f"{progress.stage}/{name}": row[key] for key, name in SENT.items() if key in row}, step)
        if self.folder is not None:
            with atomic(self.folder / STEPS) as file:
                file.write_text(json.dumps(self.ends | ({"run": self.run_id} if self.run_id else {})), encoding="utf-8")

    def finish(self, result: Result) -> None:
        """The run has ended by itself: its scores are sent when the observer is closed."""
        self.finished = result.status == "done"
        values = {name: (result.scores or {}).get(name) for name in SCORES}
        self.scores = {f"{result.scored_on}/{name}": value for name, value in values.items() if value is not None}

    def _step(self, stage: int, step: int) -> int:
        """Of the run; what was noted of this stage and later ones is made again."""
        self.ends = {i: end for i, end in self.ends.items() if i < stage}
        before = sum(self.ends.values())
        self.ends[stage] = step
        return before + step


def track_run(track: str, result: Result, shown: Watcher) -> Tracking:
    tracker = make_tracker(track, result)
    if isinstance(tracker, TensorBoard):
        return Tracking(tracker, tracker.folder, shown)
    return Tracking(tracker, None if result.folder is None else Path(result.folder), shown)


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """
    >>> flat({"seed": 0, "recipe": {"lr": 0.1}})
    {'seed': 0, 'recipe.lr': 0.1}
    """
    flattened: dict[str, Any] = {}
    for key, value in settings.items():
        flattened |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flattened


def _saved(folder: Path | None) -> tuple[dict[int, int], str | None]:
    try:
        saved = from_json(read_text(folder / STEPS)) if folder else {}
        run_id = saved.pop("run", None)
        return {int(stage): int(end) for stage, end in saved.items()}, run_id
    except (OSError, ValueError, TypeError, AttributeError):
        return {}, None
