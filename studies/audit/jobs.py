"""What a run of the zoo consists of. Processes that are spawned find it here by name."""

from __future__ import annotations

import random
import traceback
from typing import Any, NamedTuple

from studies.audit.final import FINAL_KINDS
from studies.audit.kinds import KINDS, STRENGTHS, Kind, kinds

DRAWS = 10  # of Waterbirds, biased and balanced
REPAIRS = (  # of the development half, and the birds in their places
    "square in the corner", "mark in the lower left", "thin frame", "red or blue cast", "brighter photographs",
    "birds and their places, few", "starts with a word", "one of four words", "a column of the clinic",
    "a shifted measurement",
)  # fmt: skip


class Job(NamedTuple):
    what: str  # zoo, waterbirds or repair
    kind: Kind | None
    strength: float
    seed: int

    @property
    def key(self) -> tuple[Any, ...]:
        if self.kind is None:
            return "waterbirds, 95 %" if self.strength > 0.5 else "waterbirds, balanced", None, self.seed, "waterbirds"
        half = "repairs" if self.what == "repair" else self.kind.half
        return self.kind.name, None if self.kind.clean and self.what == "zoo" else self.strength, self.seed, half


def jobs(chosen: str, draws: int, clean_draws: int, first: int) -> list[Job]:
    """In random order, so that a run cut short is a sample of everything; photographs, which take longest, first."""
    every: list[Job] = []
    if chosen in ("waterbirds", "final"):
        every += [Job("waterbirds", None, strength, seed) for strength in (0.95, 0.5) for seed in range(DRAWS)]
    if chosen in ("repairs", "final"):
        every += [Job("repair", kind, 0.95, 0) for kind in KINDS if kind.name in REPAIRS]
    for seed in range(first, first + max(draws, clean_draws)):
        for kind in FINAL_KINDS if chosen == "final" else kinds(chosen):
            if kind.clean and seed < first + clean_draws:
                every.append(Job("zoo", kind, 0.5, seed))
            elif not kind.clean and seed < first + draws:
                every += [Job("zoo", kind, strength, seed) for strength in STRENGTHS]
    random.Random(0).shuffle(every)
    return sorted(every, key=lambda job: job.kind is not None and job.kind.domain != "photo")


def run(job: Job) -> dict[str, Any]:
    """The row of a job; an audit that fails is a row that says so."""
    import torch

    from studies.audit import measure

    torch.set_num_threads(1)
    try:
        if job.kind is None:
            return measure.waterbirds(job.strength > 0.5, job.seed)
        return (measure.repair if job.what == "repair" else measure.zoo)(job.kind, job.strength, job.seed)
    except Exception:
        name, strength, seed, half = job.key
        return {"kind": name, "strength": strength, "seed": seed, "half": half, "error": traceback.format_exc()}
