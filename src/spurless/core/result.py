"""What a run comes to."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from spurless.nets import Net


@dataclass
class Result:
    """The classifier, its scores and how they came about. All but the classifier is saved as result.json."""

    method: str
    data: str
    net: str
    seed: int
    status: str  # done, or diverged
    scores: dict[str, Any] | None = None  # in percent; see metrics.groups
    n: int = 0  # rows that were scored
    scored_on: str = "test"
    selection: str = "last"  # the rule that picked the weights
    labels_used: str = "none"  # bias labels that were seen: none, validation, training
    # The best unbiased accuracy on the test split of all looks at it (recipe.test_every), as some papers report it. It
    # picks nothing: `scores` are those of the weights that `selection` kept. They are one of the looks, the only one if
    # the method changed the network after its training.
    test_selected: dict[str, Any] | None = None
    mining: dict[str, Any] = field(default_factory=dict)  # conflicting rows and groups as guessed, against the truth
    sparsity: float | None = None  # percent of the weights of convolutions and linear layers that are zero
    seconds: float = 0.0
    error: str | None = None
    notes: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    folder: str | None = None
    history: list[dict[str, Any]] = field(default_factory=list)  # one row an epoch
    classifier: Net | None = None

    def row(self) -> dict[str, Any]:
        """Everything but the network."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "classifier"}

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Result:
        known = {f.name for f in fields(cls)}
        return cls(**{k: v for k, v in row.items() if k in known})


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
