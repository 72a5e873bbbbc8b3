"""What an audit says, as one typed object and as audit.json (schema 2)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from spurless.core.errors import UserError

SCHEMA = 2


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

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> AuditReport:
        """The report that `to_json` wrote; other schemas are refused."""
        found = json.loads(text)
        if not isinstance(found, Mapping) or found.get("schema") != SCHEMA:
            schema = found.get("schema") if isinstance(found, Mapping) else None
            raise UserError(f"This audit has schema {schema}, and this version reads {SCHEMA}. Run the audit again.")
        known = {f.name for f in fields(cls)}
        return cls(**{name: value for name, value in found.items() if name in known})
