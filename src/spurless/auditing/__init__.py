"""Is the model taking a shortcut, where, what does it cost, and what should be done?"""

from spurless.auditing.audit import audit
from spurless.auditing.decisions import Decisions
from spurless.auditing.folder import FILE, REPORT, save
from spurless.auditing.record import SCHEMA, AuditReport

__all__ = ["FILE", "REPORT", "SCHEMA", "AuditReport", "Decisions", "audit", "save"]
