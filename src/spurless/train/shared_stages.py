"""First stages that several runs have in common: trained by the one that comes first, found by the others.

A stage says what its outcome depends on beside the data, the network, the recipe and the seed (`Stage.shared`). All of
it together, hashed, names the file in which its end lies: the weights, the optimiser, the epochs' history.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from torch import Tensor, nn

from spurless.core.files import lock
from spurless.core.method import Stage
from spurless.core.tensor_files import load_tensors, save_tensors


class Shelf:
    """A folder of finished stages, for runs with these settings."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]):
        self.folder = folder
        # The method itself is left out: that is what differs between runs that share a stage.
        self.settings = {k: v for k, v in settings.items() if k != "method"}
        self.held: dict[str, IO[bytes]] = {}
        self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        """What runs left that were killed while they wrote a stage: those whose reservation nobody holds."""
        for left in self.folder.glob(".*.safetensors.*"):
            with suppress(OSError):  # no locks here: what is left stays
                if unused := lock(self.folder / f".{left.name.split('.')[1]}.lock"):
                    left.unlink(missing_ok=True)
                    unused.close()

    def key(self, index: int, stage: Stage, steps: int, modules: Sequence[nn.Module]) -> str:
        """What the outcome of a stage depends on, in a few letters. Its name is not among it."""
        start = [(name, _digest(t)) for m in modules for name, t in m.state_dict().items()]
        draws = [None if t is None else _digest(t) for t in (stage.rows, stage.sample_weights)]
        recipe = self.settings["recipe"]
        picks = stage.select and (
            recipe["selection"] != "last" or recipe["test_every"] > 0
        )  # or evaluates the test split
        optimizers = [(type(opt).__name__, [_plain(group) for group in opt.param_groups]) for _, opt in stage.updates]
        decides = [self.settings, stage.shared, index, steps, stage.span, picks, draws, optimizers, start]
        if recipe["until_accuracy"] or recipe["until_loss"]:  # else it decides nothing, and older shelves stay valid
            decides.append(stage.may_end_early)
        if stage.recipe:
            decides.append(asdict(stage.recipe))
        return hashlib.sha256(json.dumps(decides, sort_keys=True, default=str).encode()).hexdigest()[:20]

    def take(self, key: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The end of this stage, if some run has reached it."""
        path = self.folder / f"{key}.safetensors"
        return load_tensors(path) if path.exists() else None

    def reserve(self, key: str) -> bool:
        """Whether this run is the one that trains it. The claim ends with the process, however that ends."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if key in self.held:
            return True
        try:
            file = lock(self.folder / f".{key}.lock")
        except OSError:  # no locks here: two runs may both train a stage, which costs time and changes nothing
            return True
        if file is None:
            return False
        self.held[key] = file
        return True

    def put(self, key: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        save_tensors(self.folder / f"{key}.safetensors", tensors, facts)
        self.release()

    def release(self) -> None:
        """Give up what was reserved and not finished."""
        for file in self.held.values():
            file.close()
        self.held.clear()


def _plain(group: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a parameter group."""
    return {k: float(v) if isinstance(v, Tensor) else v for k, v in group.items() if k != "params"}


def _digest(t: Tensor) -> str:
    return hashlib.sha256(t.detach().cpu().contiguous().numpy().tobytes()).hexdigest()
