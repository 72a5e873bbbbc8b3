"""All that is wrong with a user's data, gathered so that it is reported at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from spurless.core.errors import DataError

LISTED = 100  # places under each kind of problem: more would push what they mean off the screen


class Kind(NamedTuple):
    """A kind of mistake in a user's data."""

    what: str
    remedy: str


BROKEN = Kind(
    "An image file that cannot be read", "Mend or remove it, or leave such files out with data.skip_broken=true:"
)


@dataclass
class Problems:
    """The problems with one folder or file, and the notes that every result on it must carry."""

    where: str = ""  # the folder or file
    skip_broken: bool = False  # rows that cannot be used are left out, with a note
    by_kind: dict[Kind, list[str]] = field(default_factory=dict)  # under each kind and its remedy, the places
    sentences: list[tuple[int, str]] = field(default_factory=list)  # (line or 0, problem with its remedy)
    notes: list[str] = field(default_factory=list)

    def add(self, kind: Kind, where: str) -> None:
        self.by_kind.setdefault(kind, []).append(where)

    def add_broken(self, broken: dict[str, str]) -> None:
        """Image files that cannot be read, and why."""
        for name, why in broken.items():
            self.add(BROKEN, f"{name}: {why}")

    def wrong(self, what: str, remedy: str, lines: Iterable[int] = ()) -> None:
        """A problem of its own, with the lines of the file that have it."""
        at = sorted(int(n) for n in lines)
        text = f"{what}; {remedy}."
        self.sentences.append((at[0], f"{in_words(at)}: {text}") if at else (0, text))

    def broken(self, what: str, remedy: str, lines: Iterable[int]) -> None:
        """Rows that cannot be used: left out if that was asked for, else a problem."""
        lines = list(lines)
        if not lines:
            return
        if self.skip_broken:
            self.note(f"left out {len(lines):,} row{'s' * (len(lines) > 1)}, {what}: {in_words(lines)}")
        else:
            self.wrong(what, f"{remedy}, or leave such rows out with data.skip_broken=true", lines)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def __len__(self) -> int:
        return len(self.sentences) + sum(map(len, self.by_kind.values()))

    def __str__(self) -> str:
        lines = [f"  {text}" for _, text in sorted(self.sentences, key=lambda problem: problem[0])]
        for kind, places in self.by_kind.items():
            lines += [f"{kind.what} ({len(places):,}). {kind.remedy}"]
            lines += [f"  {printable(where)}" for where in places[:LISTED]]
            lines += [f"  and {len(places) - LISTED:,} more"] * (len(places) > LISTED)
        return "\n".join(lines)

    def stop(self, where: str = "") -> None:
        """Raise them as one error, if there are any."""
        if len(self):
            raise DataError(f"{where or self.where}: {len(self):,} problem{'s' * (len(self) > 1)}.\n{self}")


def in_words(lines: Sequence[int], most: int = 10) -> str:
    """Line numbers for a message.

    >>> in_words([7]), in_words([3, 9]), in_words(list(range(2, 30)), most=3)
    ('line 7', 'lines 3, 9', 'lines 2, 3, 4 and 25 more')
    """
    shown = ", ".join(str(int(n)) for n in lines[:most])
    more = f" and {len(lines) - most} more" if len(lines) > most else ""
    return f"line{'s' * (len(lines) > 1)} {shown}{more}"


def listed(names: Sequence[str]) -> str:
    """The first names of a list, and how many more there are."""
    return ", ".join(names) if len(names) <= 12 else f"{', '.join(names[:10])} and {len(names) - 10:,} more"


def printable(text: str) -> str:
    """The text with line breaks, control codes and undecodable bytes spelt out: names of files may hold any.

    >>> print(printable("a\\x1b[2J\\n.png"))
    a\\x1b[2J\\n.png
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
