"""What a run of the zoo consists of. Processes that are spawned find it here by name."""

from __future__ import annotations

import random
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

from studies.audit.final import FINAL_KINDS
from studies.audit.final2 import CARRIED, FINAL2, FINAL2_KINDS, FIRST_DRAW, NOTED2, REPAIRS2
from studies.audit.final3 import CONTROL_SEEDS, CONTROLS, DRAWS3, FINAL3, FINAL3_KINDS, FIRST_DRAW3, FIRST_DRAW4
from studies.audit.harmed import CANDIDATES, CASE, DEVELOP, HARMED, HARMED2, HARMED3, STRENGTH, cases
from studies.audit.kinds import KINDS, STRENGTHS, Kind, kinds
from studies.audit.notes import NOTE_SHARES, noted

DRAWS = 10  # of Waterbirds, biased and balanced
REPAIRS = (  # of the development half, and the birds in their places
    "square in the corner", "mark in the lower left", "thin frame", "red or blue cast", "brighter photographs",
    "birds and their places, few", "starts with a word", "one of four words", "a column of the clinic",
    "a shifted measurement",
)  # fmt: skip


class Job(NamedTuple):
    what: str  # zoo, control, waterbirds, repair, harm or note
    kind: Kind | None
    strength: float
    seed: int

    @property
    def half(self) -> str:
        """What its row belongs to."""
        if self.kind is None:
            return ("waterbirds", "waterbirds 2", "waterbirds 3", "waterbirds 4")[self.seed // FIRST_DRAW]
        if self.what == "repair":
            return {FINAL2: "repairs 2", HARMED: "repairs 3", HARMED2: "repairs 4", HARMED3: "repairs 5"}.get(
                self.kind.half, "repairs"
            )
        if self.what in ("harm", "control"):
            return {"harm": "harm", "control": CONTROLS}[self.what]
        return self.kind.half

    @property
    def key(self) -> tuple[Any, ...]:
        if self.kind is None:
            return "waterbirds, 95 %" if self.strength > 0.5 else "waterbirds, balanced", None, self.seed, self.half
        return (
            self.kind.name,
            None if self.kind.clean and self.what in ("zoo", "control", "note") else self.strength,
            self.seed,
            self.half,
        )

    @property
    def carried(self) -> bool:
        """Whether it needs no other data than `pack.py` packs."""
        return self.kind is not None and self.kind.base.removeprefix("large ").removeprefix("files ").startswith(
            CARRIED
        )


def jobs(chosen: str, draws: int, clean_draws: int, first: int) -> list[Job]:
    """In random order, so that a run cut short is a sample of everything; of the earlier sets photographs, which take
    longest, first."""
    every: list[Job] = []
    second = chosen == FINAL2
    if chosen in ("waterbirds", "final", FINAL2, FINAL3, CONTROLS):
        starts = {FINAL2: (FIRST_DRAW, DRAWS), FINAL3: (FIRST_DRAW3, DRAWS3), CONTROLS: (FIRST_DRAW4, DRAWS)}
        start, many = starts.get(chosen, (0, DRAWS))
        every += [Job("waterbirds", None, strength, start + k) for strength in (0.95, 0.5) for k in range(many)]
    if chosen in ("repairs", "final"):
        every += [Job("repair", kind, 0.95, 0) for kind in KINDS if kind.name in REPAIRS]
    if second:  # of those that are carried, there are 700 of a class
        every += [Job("repair", k._replace(n=min(k.n, 700)), 0.95, 0) for k in FINAL2_KINDS if k.name in REPAIRS2]
        every += [Job("note", k, s, 0) for k in NOTED2 for s in (NOTE_SHARES[:1] if k.clean else NOTE_SHARES)]
    if chosen == CONTROLS:
        every += [Job("control", kind, 0.5, seed) for kind in FINAL3_KINDS if kind.clean for seed in CONTROL_SEEDS]
        random.Random(0).shuffle(every)
        return every
    of = {"final": FINAL_KINDS, FINAL2: FINAL2_KINDS, FINAL3: FINAL3_KINDS}
    for seed in range(first, first + max(draws, clean_draws)):
        for kind in of.get(chosen) or kinds(chosen):
            if kind.clean and seed < first + clean_draws:
                every.append(Job("zoo", kind, 0.5, seed))
            elif not kind.clean and seed < first + draws:
                every += [Job("zoo", kind, strength, seed) for strength in STRENGTHS]
    random.Random(0).shuffle(every)
    if chosen == FINAL3:
        return every
    return sorted(every, key=lambda job: job.kind is not None and job.kind.domain != "photo")


def harmed_jobs(chosen: str, rows: Sequence[dict[str, Any]]) -> list[Job]:
    """How harmed the candidates are; where all of them were measured, the repairs of the cases."""
    asked = [Job("harm", kind, STRENGTH, DEVELOP) for kind in CANDIDATES if kind.half == chosen]
    if {job.key for job in asked} - {(r["kind"], r["strength"], r["seed"], r["half"]) for r in rows}:
        return asked
    return [Job("repair", kind, STRENGTH, CASE) for kind in cases(rows, chosen)]


def run(job: Job) -> dict[str, Any]:
    """The row of a job; an audit that fails is a row that says so."""
    import torch

    from studies.audit import measure

    torch.set_num_threads(1)
    try:
        if job.kind is None:
            row = measure.waterbirds(job.strength > 0.5, job.seed)
        elif job.what == "note":
            row = noted(job.kind, job.strength, job.seed)
        else:
            how = {"repair": measure.repair, "harm": measure.harm}.get(job.what, measure.zoo)
            row = how(job.kind, job.strength, job.seed)
        return row | {"half": job.half}
    except Exception:
        name, strength, seed, half = job.key
        return {"kind": name, "strength": strength, "seed": seed, "half": half, "error": traceback.format_exc()}
