"""What a run comes to: its scores, and a classifier that predicts new samples."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spurless.core.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    import torch
    from pandas import DataFrame
    from torch import nn

    from spurless.core.data import Bundle
    from spurless.nets import Net
    from spurless.train.look import Kind
    from spurless.train.predict import Predictor

NOT_SAVED = ("classifier", "facts", "bundle")


@dataclass
class Result:
    """The classifier, its scores and how they came about. All but the classifier is saved as result.json."""

    method: str
    data: str
    net: str
    seed: int
    status: str  # done, or diverged
    scores: dict[str, Any] | None = None  # in percent; see metrics.groups
    n: int = 0  # samples that were scored
    scored_on: str = "test"
    selection: str = "last"  # the rule that picked the weights
    labels_used: str = "none"  # bias labels that were seen: none, validation, training
    # The best unbiased accuracy on the test split of all evaluations (recipe.test_every), as some papers report it. It
    # picks nothing: `scores` are those of the weights that `selection` kept. They are one of the evaluations, the only
    # one if the method changed the network after its training.
    test_selected: dict[str, Any] | None = None
    mining: dict[str, Any] = field(default_factory=dict)  # inferred groups and conflicting samples, against the truth
    sparsity: float | None = None  # percent of the weights of convolutions and linear layers that are zero
    seconds: float = 0.0
    error: str | None = None
    notes: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    folder: str | None = None
    history: list[dict[str, Any]] = field(default_factory=list)  # one row an epoch
    classifier: Net | None = None
    facts: dict[str, Any] | None = field(default=None, repr=False)  # what the weights file says of the classifier
    bundle: Bundle | None = field(default=None, repr=False)  # what it was trained on, where it was trained just now

    def row(self) -> dict[str, Any]:
        """Everything but the network."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in NOT_SAVED}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Result:
        names = {f.name for f in fields(cls)} - {*NOT_SAVED}
        return cls(**{k: v for k, v in row.items() if k in names})

    def __repr__(self) -> str:
        from spurless.train import look

        return look.text(self)

    def _repr_html_(self) -> str:
        from spurless.train import look

        return look.as_html(self)

    def plot(self, kind: Kind = "groups", ax: Any = None) -> Any:
        """Draw the accuracy of each group ("groups") or loss and validation accuracy by epoch ("curves").

        Returns the matplotlib axes.
        """
        from spurless.train import look

        return look.plot(self, kind, ax)

    # The classifier at work

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the classifier's outputs."""
        return self._predictor().classes

    @property
    def module(self) -> nn.Module:
        """A copy of the classifier as the module that was trained, with its own keys: yours if you passed one, timm's
        or torchvision's if it has such a name."""
        return self._predictor().net.unwrapped()

    def predict(self, inputs: Any) -> np.ndarray:
        """The name of the predicted class for each input.

        Args:
            inputs: an array or tensor of raw inputs (images as uint8 or as floats from 0 to 1); paths of images, of
                folders or of a table; texts; a pandas frame with the columns that the model was trained on; PIL images;
                or a Bundle, of which the split is predicted that is scored: test, else val, else train.
        """
        return self._predictor().predict(inputs)

    def predict_proba(self, inputs: Any) -> np.ndarray:
        """(n, classes): the probability of each class, in the order of `classes`. Takes what `predict` takes."""
        return self._predictor().probabilities(inputs)

    def predictions(self, data: Bundle | None = None, split: str | None = None) -> DataFrame:
        """A frame with a row for each sample of a split: its name and label, the value of each bias attribute under the
        attribute's name, the predicted class and its probability, and whether the sample conflicts with the shortcut.

        Args:
            data: a Bundle, else what the run was trained on.
            split: train, val or test; else the one that is scored: test, else val, else train.
        """
        from spurless.train.predict import own_data

        if data is None:
            data = own_data(self.settings) if self.bundle is None else self.bundle
        return self._predictor().frame(data, split)

    def save(self, path: str | Path) -> Path:
        """Save a run's folder, which `load_run` and every command reads, or the weights alone as NAME.safetensors."""
        from spurless.train.saving import save_run

        self._predictor()
        return save_run(self, Path(path))

    def _predictor(self) -> Predictor:
        from spurless.train.predict import Predictor

        if self.classifier is None or self.facts is None:
            raise DataError(f"This run has no classifier; its status is '{self.status}'. {self.error or ''}".rstrip())
        return Predictor(self.classifier, self.facts)


def versions(device: torch.device) -> dict[str, str]:
    """What the run ran on."""
    import numpy
    import torch

    from spurless import __version__

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {
        "spurless": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "device": f"{device.type} ({name})",
        "threads": str(torch.get_num_threads()),
    }
