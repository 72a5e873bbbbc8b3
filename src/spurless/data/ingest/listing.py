"""The samples of a folder before any image is opened: file names, labels, values of bias attributes and splits."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from spurless.data.ingest.labels import spelling
from spurless.data.ingest.problems import Kind, Problems, listed

STRAY = Kind("A label with stray spaces", "Take the spaces away:")
SPELT = Kind(
    "A label or attribute in two spellings", "Write it alike everywhere, or say data.spellings=keep if they differ:"
)


@dataclass
class Listing:
    """The samples of a folder before any image is opened, in columns: 100,000 of them must stay small."""

    layout: str  # in words
    attributes: tuple[str, ...] = ()
    names: list[str] = field(default_factory=list)  # below the folder
    labels: list[str] = field(default_factory=list)
    values: list[tuple[str, ...]] = field(default_factory=list)  # of the bias attributes
    splits: list[str] = field(default_factory=list)  # "": none given
    aligned: set[tuple[str, str]] = field(default_factory=set)  # (label, value) pairs, where the layout tells
    unused: list[str] = field(default_factory=list)  # what else was seen

    def add(self, name: str, label: str, values: tuple[str, ...], split: str) -> None:
        self.names.append(name)
        self.labels.append(label)
        self.values.append(values)
        self.splits.append(split)

    def coded(self, split: str) -> list[tuple[str, int, int]]:
        """(name, label, attribute) of a split, where labels and the one attribute are written as numbers."""
        columns = zip(self.names, self.labels, self.values, self.splits, strict=True)
        return [(name, int(label), int(values[0])) for name, label, values, of in columns if of == split]

    def keep(self, rows: Sequence[int]) -> Listing:
        kept = Listing(self.layout, self.attributes, aligned=self.aligned, unused=self.unused)
        for row in rows:
            kept.add(self.names[row], self.labels[row], self.values[row], self.splits[row])
        return kept

    def not_used(self, names: Sequence[str], what: str) -> None:
        """How many files were seen and not used, and a few of them."""
        if names:
            self.unused.append(f"{len(names):,} {what} ({listed(names)})")


class Spellings:
    """Labels and values of attributes, to report those that differ only by letter case or as numbers are written."""

    def __init__(self) -> None:
        self.counts: dict[tuple[int, str], int] = Counter()  # by column and text
        self.first: dict[tuple[int, str], str] = {}

    @classmethod
    def of(cls, listing: Listing) -> Spellings:
        spellings = cls()
        for name, label, values in zip(listing.names, listing.labels, listing.values, strict=True):
            spellings.add((label, *values), name)
        return spellings

    def add(self, texts: Sequence[str], where: str) -> None:
        for key in enumerate(texts):
            self.counts[key] += 1
            self.first.setdefault(key, where)

    def report(self, problems: Problems) -> None:
        """Each spelling but the commonest one, with its first sample."""
        alike: dict[tuple[int, Hashable], list[tuple[int, str]]] = defaultdict(list)
        for key in sorted(self.counts, key=lambda key: -self.counts[key]):
            alike[key[0], spelling(key[1])].append(key)
        for (_, main), *others in alike.values():
            for key in others:
                problems.add(SPELT, f"{self.first[key]}: {key[1]!r} is {main!r} in another spelling")
