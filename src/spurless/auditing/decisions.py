"""What a person decided about the findings of an audit: decisions.json, and group labels beside it as decisions.csv."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from spurless.core.errors import DataError, SettingError
from spurless.core.files import atomic, from_json, read_bytes

if TYPE_CHECKING:
    from spurless.auditing.suspects import Suspect
    from spurless.core.data import Bundle

FILE, TABLE = "decisions.json", "decisions.csv"
SCHEMA = 1
Choice = Literal["shortcut", "legitimate", "not sure"]
CHOICES = ("shortcut", "legitimate", "not sure")


@dataclass(frozen=True)
class Group:
    """One value of a pseudo-attribute, and how many samples have it."""

    name: str
    n: int


@dataclass(frozen=True)
class Decided:
    """A finding, what was decided, its groups, and the edits that made them (in order; they can be undone)."""

    name: str
    kind: str
    decision: Choice | None = None
    groups: tuple[Group, ...] = ()
    edits: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Decisions:
    """The decisions on an audit. `digest` tells the samples that were grouped.

    >>> made = Decisions("birds", "0f", (Decided("brightness", "light", "legitimate"), Decided("a mark", "mark")))
    >>> made.legitimate, made.shortcuts, made.undecided
    (('brightness',), (), ('a mark',))
    """

    data: str
    digest: str
    findings: tuple[Decided, ...] = ()
    schema: int = SCHEMA
    path: Path | None = None  # of the file that it was read from

    @property
    def shortcuts(self) -> tuple[str, ...]:
        return self._names("shortcut")

    @property
    def legitimate(self) -> tuple[str, ...]:
        return self._names("legitimate")

    @property
    def undecided(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.findings if f.decision in (None, "not sure"))

    @property
    def table(self) -> Path | None:
        """The CSV with the group labels of the shortcuts, as `data.attribute` takes it; None where there is none."""
        return self.path.with_name(TABLE) if self.path is not None and self.shortcuts else None

    def attached(self, data: Bundle) -> Bundle:
        """The dataset, in which the confirmed shortcuts are known attributes."""
        from spurless.data.pseudo import with_attributes

        return data if self.table is None else with_attributes(data, self.table, keep=True)

    def without_legitimate(self, suspects: Sequence[Suspect]) -> list[Suspect]:
        """The suspects that may be accused."""
        return [s for s in suspects if s.name not in self.legitimate]

    def summary(self) -> dict[str, Any]:
        """As audit.json holds them."""
        file = None if self.path is None else self.path.name
        return {
            "file": file, "shortcuts": list(self.shortcuts), "legitimate": list(self.legitimate),
            "undecided": list(self.undecided),
        }  # fmt: skip

    def _names(self, choice: Choice) -> tuple[str, ...]:
        return tuple(f.name for f in self.findings if f.decision == choice)

    def to_json(self) -> str:
        return json.dumps({k: v for k, v in asdict(self).items() if k != "path"}, indent=1, allow_nan=False)

    def write(self, path: str | Path) -> None:
        with atomic(path) as part:
            part.write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def from_json(cls, text: str | bytes) -> Decisions:
        """The decisions that `to_json` wrote."""
        try:
            saved = from_json(text)
            if saved["schema"] != SCHEMA:
                raise SettingError(f"These decisions have schema {saved['schema']}, and this version reads {SCHEMA}.")
            return cls(str(saved["data"]), str(saved["digest"]), tuple(map(_decided, saved["findings"])))
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, SettingError):
                raise
            raise DataError(f"This is no file of decisions ({type(error).__name__}: {error}).") from None

    @classmethod
    def read(cls, path: str | Path) -> Decisions:
        """The decisions in a file, or beside an audit."""
        file = Path(path) / FILE if Path(path).is_dir() else Path(path)
        try:
            content = read_bytes(file)
        except OSError as error:
            raise DataError(f"{file} cannot be read ({error.strerror}); `spurless review` writes it.") from None
        try:
            return replace(cls.from_json(content), path=file)
        except (DataError, SettingError) as error:
            raise type(error)(f"{file}: {error}") from None


def _decided(saved: Any) -> Decided:
    if saved["decision"] not in (None, *CHOICES) or not all(isinstance(e, dict) for e in saved["edits"]):
        raise ValueError(f"the decision on '{saved['name']}' is none of {', '.join(CHOICES)}")
    groups = tuple(Group(str(g["name"]), int(g["n"])) for g in saved["groups"])
    return Decided(str(saved["name"]), str(saved["kind"]), saved["decision"], groups, tuple(saved["edits"]))
