"""Why published numbers do not come back: studies/causes.toml, held against the kept rows.

Every number that does not come back is named by one cause, and every cause names such numbers (tests/studies). A cause
is settled if an experiment shows it; otherwise it tells what was tried.
"""

import tomllib
from dataclasses import dataclass

from studies.papers import FIRM, Number, numbers
from studies.rows import ROOT

FILE = ROOT / "studies" / "causes.toml"


@dataclass(frozen=True)
class Cause:
    """Of the numbers of a table; of one dataset, some methods or one point alone, where that is given."""

    table: str
    what: str
    why: str
    settled: bool = False
    data: str | None = None
    methods: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
    stand_in: bool = False

    def names(self, number: Number) -> bool:
        """
        >>> from spurless.core.stats import Estimate
        >>> ours = Number("pgd-table1", "CMNIST", "JTT", Estimate(85.8), point="0.005")
        >>> Cause("pgd-table1", "JTT", "", methods=("JTT",)).names(ours)
        True
        >>> Cause("pgd-table1", "other data", "", data="BAR").names(ours)
        False
        """
        return (
            (self.table, self.stand_in) == (number.table, number.stand_in)
            and self.data in (None, number.data)
            and (not self.methods or number.method in self.methods)
            and (not self.points or number.point in self.points)
        )


def causes() -> list[Cause]:
    """Those of the file, in its order."""
    found = tomllib.loads(FILE.read_text(encoding="utf-8"))["cause"]
    return [Cause(**{k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}) for given in found]


def missing(table: str) -> list[Number]:
    return [n for n in numbers(table) if not n.back()]


def table_of(paper: str) -> str:
    """The causes of a paper's tables, with how many numbers each is about and by how much ours differ."""
    lines = ["| table | what | numbers | ours − paper | cause, or what was tried |", "| :-- | :-- | --: | --: | :-- |"]
    for cause in (c for c in causes() if c.table.startswith(paper)):
        own = [n for n in missing(cause.table) if cause.names(n)]
        apart = sorted(nearest(n) - n.theirs.value for n in own)
        span = f"{apart[0]:+.1f}" if len(own) == 1 else f"{apart[0]:+.1f} to {apart[-1]:+.1f}"
        seeds = "" if all(n.nearest().n >= FIRM for n in own) else " *"
        why = cause.why if cause.settled else f"**not settled.** {cause.why}"
        lines.append(f"| {cause.table.removeprefix(paper + '-')} | {cause.what} | {len(own)}{seeds} | {span} | {why} |")
    return "\n".join([*lines, "", f"\\* some of fewer than {FIRM} seeds."])


def nearest(number: Number) -> float:
    """Ours, by whichever form and selection comes nearest."""
    return min((e.value for e in number.ours.values()), key=lambda value: abs(value - number.theirs.value))
