"""`csv:FILE`: a table of the user's own.

Input     every column that is not the label, the split or ignored: numbers standardised, all else one-hot. With
          data.text, the text in that column (or the pair in two) and nothing else.
Label     the column named by data.label.
Bias      the columns named by data.attribute, any number of them; a numeric one with more than ten different values is
          cut into bands of equal count.
Splits    a column that says train, val or test (or 0, 1, 2), else a seeded split, stratified by class and attribute.
Files     comma, semicolon, tab or pipe separated text with a header, plain or gzipped, or Parquet (needs pyarrow).
Left out  a column that only counts the samples, or holds a different text in every sample; data.keep keeps it.
Choices   What cannot be read without guessing is reported with its line and its remedy, all of it in one go. What is
          left out or filled in is in the notes of the dataset. The bias attribute stays among the inputs unless
          data.drop_attribute=true.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from spurless.core.data import Bundle
from spurless.core.errors import DataError, SettingError
from spurless.core.files import data_root
from spurless.core.settings import Range
from spurless.data import coding as codings
from spurless.data.coding import Coding
from spurless.data.ingest import columns as of_table
from spurless.data.ingest import table as tables
from spurless.data.ingest.labels import Field, codes
from spurless.data.ingest.problems import Problems
from spurless.data.ingest.splits import check_fractions, stratified
from spurless.data.ingest.table_files import Format, from_frame, read_table
from spurless.data.ingest.texts import Length, Tokenizer, from_fields

if TYPE_CHECKING:
    from pandas import DataFrame, Series

LABEL_NAMES = ("y", "label", "target", "class")


@dataclass(frozen=True, kw_only=True)
class Roles:
    """Which columns are what."""

    label: Annotated[str | None, "the column to predict; none: the one called y, label, target or class"] = None
    attribute: Annotated[tuple[str, ...], "the column or columns that hold a bias attribute"] = ()
    split: Annotated[str | None, "the column that says train, val or test; none: `split`, else it is drawn"] = None
    ignore: Annotated[tuple[str, ...], "columns that are not given to the model"] = ()
    bands: Annotated[int, "bands that a numeric attribute of many values is cut into", Range(2, 100)] = 4


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """How the split is drawn where no column tells it, and samples that stand in two."""

    fractions: Annotated[tuple[float, ...], "shares of train, val, test, where drawn", Range(0, 1)] = (0.6, 0.2, 0.2)
    seed: Annotated[int, "of the split, where it is drawn", Range(0)] = 0
    duplicates: Annotated[
        Literal["error", "keep", "drop"], "equal samples in two splits; drop: keep only the one in test, or in val"
    ] = "error"


@dataclass(frozen=True, kw_only=True)
class Text:
    """Texts as the only input."""

    text: Annotated[tuple[str, ...], "the column of texts, or the two of pairs, that the model reads"] = ()
    tokenizer: Tokenizer = "minilm"
    length: Length = 128


@dataclass(frozen=True, kw_only=True)
class Csv(Text, Drawn, Format, tables.Inputs, Roles):
    """The settings of `csv:FILE`, and how it is read."""

    spellings: Annotated[
        Literal["error", "merge", "keep"],
        "labels or attribute values that differ only by spaces or letter case, or as 1 and 1.0 do",
    ] = "error"
    skip_broken: Annotated[bool, "leave out samples that cannot be read or have no label"] = False

    def read(
        self, path: str | Path, root: Path | None = None, coding: Coding | None = None, only_scored: bool = False
    ) -> Bundle:
        """The table in the file, or one error that lists everything that is wrong with it.

        `coding`: of a trained model that is given the table. `only_scored`: it is given it to be scored on, so that all
        samples are one split, `train`, unless a column tells more, and may be of one class.
        """
        check_fractions(self.fractions)
        if self.text and self.drop_attribute:
            raise SettingError(
                "data.drop_attribute=true changes nothing beside data.text: the texts are the only input."
            )
        file = locate(path, root)
        problems = Problems(file.name, self.skip_broken)
        frame, lines = read_table(file, self, problems)
        bundle = _Reading(self, f"csv:{file.name}", problems, frame, lines, coding, only_scored).bundle()
        return replace(bundle, settings={of.name: getattr(self, of.name) for of in fields(self)})

    def of_frame(self, frame: DataFrame, name: str) -> Bundle:
        """A table in memory, read as if it lay in a file."""
        check_fractions(self.fractions)
        problems = Problems(name, self.skip_broken)
        cells, lines = from_frame(frame, problems)
        return _Reading(self, name, problems, cells, lines, None, False).bundle()


def load(path: str | Path, root: Path | None = None, **settings: Any) -> Bundle:
    """The table in the file, read with these settings (those of `Csv`)."""
    return Csv(**settings).read(path, root)


def locate(path: str | Path, root: Path | None) -> Path:
    """The file as named, or under the data root."""
    named = Path(path).expanduser()
    for file in (named, data_root(root) / named):
        if file.is_file():
            return file
    raise DataError(f"There is no file '{named}', neither here nor in the data root {data_root(root)}.")


class _Reading:
    """One table on its way to a Bundle: its columns get their roles, their types and their names, in this order."""

    def __init__(
        self,
        how: Csv,
        name: str,
        problems: Problems,
        frame: DataFrame,
        lines: NDArray[np.int64],
        coding: Coding | None,
        only_scored: bool,
    ):
        self.how, self.name, self.problems, self.coding, self.only_scored = how, name, problems, coding, only_scored
        self.columns = [str(name) for name in frame.columns]
        self.label, self.split = self._roles()
        frame, lines = of_table.labelled(frame, lines, self.label, how.missing, problems)
        self.frame, self.lines = of_table.with_texts(frame, lines, how.text, problems)

    def _roles(self) -> tuple[str, str | None]:
        """The columns of the label and of the split; what is named must be there."""
        how, problems = self.how, self.problems
        label = how.label or of_table.usual("label", LABEL_NAMES, self.columns, problems) or ""
        split = how.split or of_table.usual("split", ("split",), self.columns, problems)
        roles = {"label": [label], "attribute": how.attribute, "split": [split] if split else [], "ignore": how.ignore}
        roles |= {"text": how.text, "categorical": how.categorical, "keep": how.keep}
        of_table.check_names(self.columns, roles, problems)
        return label, split

    def bundle(self) -> Bundle:
        import pandas as pd

        how, problems = self.how, self.problems
        typed, named = self._typed_and_named()
        of_table.check_classes(named[self.label], self.label, problems, self.only_scored)
        inputs = list(how.text) or self._inputs(typed, named[self.label])
        label = Field(self.label, named[self.label], (self.label,))
        attributes = [of_table.attribute(a, named[a], typed[a], how.bands, problems) for a in how.attribute]
        splits = self._splits([label, *attributes])
        shown = pd.DataFrame({c: self.frame[c] if how.text else typed[c] for c in inputs})
        rule = how.duplicates if self.split or how.duplicates == "drop" else "note"
        whole = shown.assign(**{f"named {c}": v for c, v in named.items()})
        kept = of_table.apart(whole, splits, self.lines, rule, problems)
        problems.stop()

        label, attributes, splits = label.rows(kept), [field.rows(kept) for field in attributes], splits[kept]
        rows = [f"line {n}" for n in self.lines[kept].tolist()]
        samples, notes = tables.Samples(shown[kept], label, attributes, splits, rows), tuple(problems.notes)
        if how.text:
            return from_fields(self.name, samples, how.text, how.tokenizer, how.length, notes=notes)
        return tables.to_bundle(self.name, samples, how, coding=self.coding, notes=notes)

    def _typed_and_named(self) -> tuple[dict[str, Series], dict[str, NDArray[np.object_]]]:
        """Columns as numbers or words, and the label and attributes as names."""
        how, frame = self.how, self.frame
        cells = {c: frame[c].str.strip() for c in self.columns}
        gaps = {c: cells[c].isin(how.missing).to_numpy() for c in self.columns}
        unused = {self.label, self.split, *how.text}
        read = [c for c in self.columns if c in how.attribute or not (how.text or c in how.ignore)]
        codes = {*how.categorical, *codings.of_words(self.coding)}
        typed = {
            c: of_table.typed(cells[c], gaps[c], self.lines, c in codes, how.decimal, self.problems)
            for c in read
            if c not in unused
        }
        # Codes may differ by a zero, and of a quantity only its band is named.
        as_texts = {*how.categorical, *(a for a in how.attribute if of_table.is_banded(typed[a]))}
        named = {
            c: of_table.named(frame[c], gaps[c], self.lines, how.spellings, c in as_texts, self.problems)
            for c in [self.label, *how.attribute]
        }
        return typed, named

    def _inputs(self, typed: dict[str, Series], labels: NDArray[np.object_]) -> list[str]:
        """The columns that the model sees; notes on those that look like a text or like the label itself."""
        how, problems = self.how, self.problems
        asked = {*how.keep, *codings.columns_read(self.coding)}
        names = [c for c in typed if c not in how.ignore]
        inputs = of_table.inputs(names, typed, self.columns, self.lines, asked, problems)
        for c in inputs:
            of_table.note_if_text(self.frame[c], problems)
            if len(set(labels)) > 1 and of_table.gives_away(typed[c], labels):
                problems.note(
                    f"column '{c}' alone gives the label of every sample; if it is the label itself, data.ignore it"
                )
        return inputs

    def _splits(self, described: Sequence[Field]) -> NDArray[np.object_]:
        """(n,) of train, val, test: as a column says, or drawn by class and attribute."""
        if self.split:
            labels = described[0].values
            return of_table.given_split(self.frame[self.split], self.lines, labels, self.problems, self.only_scored)
        if self.only_scored:
            return np.full(len(self.frame), "train", dtype=object)
        seed, by = self.how.seed, " and attribute" if len(described) > 1 else ""
        self.problems.note(f"split drawn with seed {seed}, stratified by class{by}")
        groups = np.stack(
            [codes(field.values)[0] for field in described], axis=1
        )  # in the order of names, not of bands
        return stratified(groups, self.how.fractions, seed)
