"""What a trained classifier predicts, for new samples and for its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from spurless.core.data import Bundle, Split
from spurless.core.digests import same_content
from spurless.core.errors import DataError, one_of
from spurless.core.fingerprint import fingerprint
from spurless.core.messages import log
from spurless.core.recipe import Recipe
from spurless.nets import Net
from spurless.nets.outputs import Inputs, outputs
from spurless.registry import load_data
from spurless.train.new_inputs import as_bundle, check_own, read, read_paths

if TYPE_CHECKING:
    from pandas import DataFrame


class Predictor:
    """A classifier, with what its weights file says of its inputs and classes."""

    def __init__(self, net: Net, facts: Mapping[str, Any]):
        self.net, self.facts = net, facts
        self.classes = tuple(facts["classes"])
        self.device = next(net.parameters()).device

    def predict(self, inputs: Any) -> np.ndarray:
        """(n,) names of classes."""
        return self.names_of(self.probabilities(inputs))

    def probabilities(self, inputs: Any) -> np.ndarray:
        """(n, classes)"""
        if isinstance(inputs, Bundle):
            return self._of(check_own(inputs, self.facts), _scored(inputs, None)[1])
        new = read(inputs, self.facts)
        return self._of(new, new.train)

    def names_of(self, probabilities: np.ndarray) -> np.ndarray:
        return np.array([self.classes[k] for k in probabilities.argmax(1)], object)

    def frame(self, data: Bundle, split: str | None) -> DataFrame:
        """See Result.predictions."""
        import pandas as pd

        name, samples = _scored(data, split)
        probabilities = self._of(check_own(data, self.facts), samples)
        columns: dict[str, Any] = {"name": list(samples.names or (f"{name} {i}" for i in range(len(samples))))}
        columns["label"] = np.array(data.classes, object)[samples.y.numpy()]
        if samples.a is not None:
            for k, attribute in enumerate(data.attributes):
                key = attribute if attribute not in FIXED else f"attribute {attribute}"
                columns[key] = np.array(data.values[k], object)[samples.a[:, k].numpy()]
        aligned = data.is_aligned(samples)
        columns |= self._columns(probabilities)
        columns["conflicting"] = None if aligned is None else ~aligned.all(1).numpy()
        return pd.DataFrame(columns)

    def frame_of_paths(self, paths: list[str]) -> DataFrame:
        """A row for each new file, or for each line of new tables."""
        import pandas as pd

        new = read_paths(paths, self.facts)
        probabilities = self._of(new, new.train)
        return pd.DataFrame({"name": list(new.train.names or ())} | self._columns(probabilities))

    def _columns(self, probabilities: np.ndarray) -> dict[str, Any]:
        return {"prediction": self.names_of(probabilities), "probability": probabilities.max(1)}

    def _of(self, data: Bundle, samples: Split) -> np.ndarray:
        """(n, classes) probabilities of samples of this data, standardised by the model's own numbers."""
        if not len(samples):
            return np.empty((0, len(self.classes)))
        recipe = Recipe(channels_last=False, precision=self.facts.get("precision", "fp32"))
        own = as_bundle(samples.x, samples.names, self.facts)
        logits = outputs(self.net, own.train, Inputs(own, recipe, self.device), recipe, self.device)
        return logits.double().softmax(1).cpu().numpy()


FIXED = ("name", "label", "prediction", "probability", "conflicting")


def _scored(data: Bundle, split: str | None) -> tuple[str, Split]:
    """A split by name, else the one that results are scored on."""
    if split is not None:
        one_of("split", split, data.splits)
    name = split or next(name for name in ("test", "val", "train") if name in data.splits)
    return name, data.splits[name]


def own_data(settings: Mapping[str, Any]) -> Bundle:
    """What a run was trained on, loaded again."""
    described = dict(settings.get("data", {}))
    if "source" not in described:
        raise DataError("The run was trained on data that was made in Python; pass it as data=...")
    saved = described.pop("fingerprint", "")
    source = described.pop("source")
    data = load_data(described | {"name": source})
    if not same_content(saved, fingerprint(data)):
        log.warning(f"{source} is not what the run was trained on: its samples or splits have changed since.")
    return data
