"""The repairs of an audit's finding, tried again from its report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spurless.auditing.audit import findings_again
from spurless.auditing.fix import ACCUSED, Repairs, nothing, repair

if TYPE_CHECKING:
    import torch
    from torch import nn

    from spurless.auditing.record import AuditReport
    from spurless.core.data import Bundle


def repairs(
    data: Bundle | str | Mapping[str, Any],
    report: AuditReport,
    *,
    name: str | None = None,
    model: nn.Module | str | Path | None = None,
    out: str | Path | None = None,
    root: str | Path | None = None,
    device: str | torch.device | None = None,
) -> Repairs:
    """The repairs of an audit's finding, tried again on its data: candidates with out-of-fold evidence and the choice.

    `data` and `model` are those that were audited; `name` is the finding (default: the leading one and those after it,
    as with `--fix`). Below `out`, fix/groups.csv says for each sample what the shortcut points to.

    >>> from spurless import audit
    >>> report = audit({"name": "toy", "n": 600}, progress=False, device="cpu")
    >>> repairs({"name": "toy", "n": 600}, report, device="cpu").tried[0].method
    'before'
    """
    accused = [f["name"] for f in report.findings if f["verdict"] in ACCUSED]
    names = [name] if name is not None else accused if report.shortcut else []
    if not names:
        return nothing()
    case, findings = findings_again(data, names, report, model, root, device)
    return repair(case, findings, None if out is None else Path(out))
