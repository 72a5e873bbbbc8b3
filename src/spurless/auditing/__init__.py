"""Is the model taking a shortcut, where, what does it cost, and what should be done?"""

from spurless.auditing.audit import FILE, REPORT, audit, save
from spurless.auditing.record import SCHEMA, AuditReport

__all__ = ["FILE", "REPORT", "SCHEMA", "AuditReport", "audit", "save"]
