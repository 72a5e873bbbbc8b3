"""What an audit says, as one typed object and as audit.json (schema 2)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from spurless.core.display import Line, draw_lines, html
from spurless.core.errors import DataError, UserError, one_of
from spurless.core.stats import Estimate

SCHEMA = 2
WHERE = {
    "aligned": "where the shortcut agrees",
    "conflicting": "where it misleads",
    "alone": "a model that sees nothing but the shortcut",
}


@dataclass
class AuditReport:
    """One audit. The fields are the keys of audit.json, in this order; docs/audit.md says what each holds."""

    verdict: str  # found, gap, available, cannot tell, no evidence
    headline: str
    spurless: str
    date: str
    command: str | None
    data: dict[str, Any]
    model: dict[str, Any] | None
    settings: dict[str, Any]
    versions: dict[str, Any]
    schema: int = SCHEMA
    seconds: float = 0.0
    shortcut: dict[str, Any] | None = None
    cost: dict[str, Any] | None = None
    findings: list[dict[str, Any]] = field(default_factory=list)
    tested: list[str] = field(default_factory=list)
    power: dict[str, Any] | None = None
    shift: list[dict[str, Any]] = field(default_factory=list)
    attributes: list[dict[str, Any]] = field(default_factory=list)
    coverage: dict[str, Any] | None = None
    duplicates: list[dict[str, Any]] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    gallery: list[dict[str, Any]] = field(default_factory=list)
    slices: list[dict[str, Any]] = field(default_factory=list)
    words: list[dict[str, Any]] | None = None
    histogram: dict[str, Any] | None = None
    confusion: dict[str, Any] | None = None
    map2d: dict[str, Any] | None = None
    advice: list[dict[str, Any]] = field(default_factory=list)
    fix: dict[str, Any] | None = None
    decisions: dict[str, Any] | None = None

    def __getitem__(self, key: str) -> Any:
        """The value of a key of audit.json."""
        if key not in self.__dataclass_fields__:
            raise KeyError(key)
        return getattr(self, key)

    def __repr__(self) -> str:
        return f"AuditReport({self.data['name']}: {self.verdict}. {self.headline})"

    def _repr_html_(self) -> str:
        lines = [[f["words"], f["verdict"], f["text"]] for f in self.findings]
        advice = [f"{a['title']}: {a['command']}" for a in self.advice if a["command"]]
        return html(["finding", "verdict", "evidence"], lines, f"{self.verdict}: {self.headline}", advice)

    def plot(self, kind: Literal["cost", "slices"] = "cost", ax: Any = None) -> Any:
        """Draw the model's accuracy where the leading shortcut agrees and where it misleads ("cost"), or that of the
        slices in which it fails most ("slices"). Returns the matplotlib axes."""
        one_of("kind", kind, ("cost", "slices"))
        if kind == "cost":
            estimates = {name: e for name, e in (self.cost or {}).items() if isinstance(e, Mapping)}
            lines = [Line(WHERE.get(name, name), _estimate(e), name == "conflicting") for name, e in estimates.items()]
        else:
            lines = [
                Line(f"{s['class']}: {'; '.join(s['words']) or 'no words'}", _estimate(s["accuracy"]), True)
                for s in self.slices
            ]
        if not lines:
            raise DataError(f"The audit of {self.data['name']} has no {kind} to draw; its verdict is '{self.verdict}'.")
        return draw_lines(lines, "accuracy (percent, 95 % CI)", ax)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> AuditReport:
        """The report that `to_json` wrote; other schemas are refused."""
        saved = json.loads(text)
        if not isinstance(saved, Mapping) or saved.get("schema") != SCHEMA:
            schema = saved.get("schema") if isinstance(saved, Mapping) else None
            raise UserError(f"This audit has schema {schema}, and this version reads {SCHEMA}. Run the audit again.")
        names = {f.name for f in fields(cls)}
        return cls(**{name: value for name, value in saved.items() if name in names})


def _estimate(saved: Mapping[str, Any]) -> Estimate:
    return Estimate(saved["value"], saved["low"], saved["high"], saved["n"])
