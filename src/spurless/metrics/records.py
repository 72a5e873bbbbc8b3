"""What was seen of a training: for each step whose loss it was, norms every few steps, and a row for each moment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from spurless.core.errors import UserError
from spurless.core.files import finite
from spurless.metrics import checks

FILE = "dynamics.json"
Array = np.ndarray


class Shares(NamedTuple):
    """Of each batch: whose loss it is, by cross entropy. (steps,) each."""

    loss_share: Array  # Σ over conflicting samples / Σ over all; NaN where nothing is lost at all
    loss_conflicting: Array  # mean over conflicting samples; NaN where there is none
    loss_aligned: Array
    conflicting: Array  # how many samples of the batch conflict
    logit_norm: Array  # mean length of the logits


def batch_shares(logits: Tensor, y: Tensor, conflicting: Tensor | None, sizes: Sequence[int]) -> Shares:
    """Whose loss each batch is, from its logits (steps, batch, classes), labels and flags (steps, batch).

    Only the first `sizes[i]` samples of batch i are there. Without flags only the logits' length is known.

    >>> found = batch_shares(torch.zeros(1, 4, 2), torch.zeros(1, 4).long(), torch.eye(4)[:1] > 0, [4])
    >>> found.loss_share.tolist(), found.conflicting.tolist()
    ([0.25], [1.0])
    """
    logits = checks.tensor(logits, "logits")
    if logits.dim() != 3:
        raise UserError(f"logits have shape (steps, batch, classes), not {tuple(logits.shape)}.")
    steps, batch, classes = logits.shape
    if len(sizes) != steps or not all(0 <= size <= batch for size in sizes):
        raise UserError(f"sizes must hold the samples, at most {batch}, of each of {steps} batches.")
    device = logits.device
    here = torch.arange(batch, device=device) < torch.tensor(sizes, device=device)[:, None]  # (steps, batch)
    # (classes, samples): sums over classes are many times as fast so, and in double no square is too large.
    z = logits.flatten(0, 1).T.to(torch.double, memory_format=torch.contiguous_format)
    length = (z * z).sum(0).sqrt().view(steps, batch).where(here, 0.0).sum(1) / here.sum(1)
    if conflicting is None:
        unknown = np.full(steps, np.nan, np.float32)
        return Shares(unknown, unknown, unknown, unknown, as_array(length))
    y, conflicting = checks.tensor(y, "y"), checks.flags(conflicting, "conflicting", (steps, batch))
    if y.shape != (steps, batch):
        raise UserError(f"y has shape {tuple(y.shape)}, not {(steps, batch)}.")
    own = checks.codes(y.reshape(-1), steps * batch, classes) if steps * batch else y.reshape(-1).long()
    loss = -z.log_softmax(0).gather(0, own[None]).view(steps, batch)
    bad, good = here & conflicting, here & ~conflicting
    of_bad, of_good = (loss.where(which, 0.0).sum(1) for which in (bad, good))  # (steps,)
    many, few = bad.sum(1), good.sum(1)
    values = of_bad / (of_bad + of_good), of_bad / many, of_good / few, many.double(), length
    return Shares(*as_array(torch.stack(values)))  # one wait for the device


@dataclass
class Record:
    """What was seen of one stage: a value for each step, norms every few steps, and a row for each moment."""

    stage: str
    index: int
    series: dict[str, Array] = field(default_factory=lambda: {name: np.zeros(0, np.float32) for name in Shares._fields})
    norm_steps: Array = field(default_factory=lambda: np.zeros(0, np.int64))  # (m,) counted from 1
    gradient_norms: dict[str, Array] = field(default_factory=dict)  # (m,) by part of the network, before the update
    weight_norms: dict[str, Array] = field(default_factory=dict)
    moments: list[dict[str, Any]] = field(default_factory=list)  # what feature_use says, with the step

    def __len__(self) -> int:
        return len(self.series["loss_share"])

    def add(self, shares: Shares, looked: Array, norms: Array | None, parts: Sequence[str]) -> None:
        """What some more steps showed; norms (looks, 2, columns) are those of gradients and weights."""
        for name, values in shares._asdict().items():
            self.series[name] = np.concatenate([self.series[name], values])
        if norms is None:
            return
        squares = norms.astype(np.float64) ** 2
        for which, kept in enumerate((self.gradient_norms, self.weight_norms)):
            for part_name in dict.fromkeys(parts):
                new = np.sqrt(squares[:, which, [name == part_name for name in parts]].sum(1)).astype(np.float32)
                kept[part_name] = np.concatenate([kept[part_name], new]) if part_name in kept else new
        self.norm_steps = np.concatenate([self.norm_steps, looked])

    def largest_share(self, window: int = 1) -> float | None:
        """The largest share of a batch's loss that is of conflicting samples (figure 12); of the mean of `window`
        batches in a row, where single ones are too noisy. None where it is not known.

        >>> record = Record("erm", 0, {"loss_share": np.array([0.1, 0.9, np.nan, 0.3])})
        >>> record.largest_share(), round(record.largest_share(window=2), 3)
        (0.9, 0.6)
        """
        share = self.series["loss_share"].astype(float)
        share = share[~np.isnan(share)]
        if len(share) < checks.count(window, "window"):
            return None
        return float(np.convolve(share, np.ones(window) / window, "valid").max())

    def upto(self, step: int) -> Record:
        """The same, as it was after this step; steps that were not watched are NaN."""
        series = {name: np.full(step, np.nan, np.float32) for name in self.series}
        for name, values in self.series.items():
            series[name][: len(values)] = values[:step]
        within = self.norm_steps <= step
        return replace(
            self,
            series=series,
            norm_steps=self.norm_steps[within],
            gradient_norms={name: v[within] for name, v in self.gradient_norms.items()},
            weight_norms={name: v[within] for name, v in self.weight_norms.items()},
            moments=[row for row in self.moments if row["step"] <= step],
        )

    def row(self) -> dict[str, Any]:
        """As JSON; nine digits bring a float32 back bit by bit."""

        def plain(value: Any) -> Any:
            if isinstance(value, np.ndarray):
                return value.tolist() if value.dtype == np.int64 else [float(f"{v:.9g}") for v in value.tolist()]
            return {k: plain(v) for k, v in value.items()} if isinstance(value, dict) else value

        result: dict[str, Any] = finite({f.name: plain(getattr(self, f.name)) for f in fields(self)})
        return result

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Record:
        def arrays(table: Mapping[str, list[float | None]]) -> dict[str, Array]:
            return {
                k: np.array([np.nan if v is None else v for v in values], np.float32) for k, values in table.items()
            }

        tables = {name: arrays(row[name]) for name in ("series", "gradient_norms", "weight_norms")}
        return cls(**{**row, **tables, "norm_steps": np.array(row["norm_steps"], np.int64)})


def read(folder: str | Path) -> list[Record]:
    """What was seen of a run, from its folder; a UserError where it was not watched."""
    path = Path(folder) / FILE
    try:
        return [Record.from_row(row) for row in json.loads(path.read_text(encoding="utf-8"))]
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{folder} was not watched: train it with dynamics=True.") from None
    except (ValueError, KeyError, TypeError, AttributeError, IsADirectoryError):
        raise UserError(f"{path} is damaged: remove it and the run, and train again.") from None


def summary(records: Sequence[Record], window: int = 100) -> dict[str, Any]:
    """What a table of runs needs of the last stage that was watched.

    >>> found = summary([Record("erm", 0, {"loss_share": np.array([0.1, 0.9]), "logit_norm": np.array([1.0, 2.0])})])
    >>> found["largest_share"], found["last_logit_norm"], found["steps"]
    (0.9, 2.0, 2)
    """
    watched = [r for r in records if len(r)]
    if not watched:
        return {"steps": 0}
    last = watched[-1]
    length = last.series["logit_norm"]
    facts: dict[str, Any] = {"stage": last.stage, "steps": len(last)}
    facts["largest_share"] = last.largest_share()
    facts["largest_share_smooth"] = last.largest_share(window)
    facts["smoothed_over"] = window
    measured = length[~np.isnan(length)]  # none where the logits could not be caught
    facts["largest_logit_norm"], facts["last_logit_norm"] = max(measured.tolist(), default=None), float(length[-1])
    for name, norms in (("gradient_norm", last.gradient_norms), ("weight_norm", last.weight_norms)):
        facts[f"last_{name}"] = {part_name: float(values[-1]) for part_name, values in norms.items() if len(values)}
    result: dict[str, Any] = finite(facts)
    return result


def as_array(values: Tensor) -> Array:
    """As float32, on the host."""
    return values.float().cpu().numpy()
