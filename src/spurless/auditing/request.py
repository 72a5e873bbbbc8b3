"""What is asked of an audit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from spurless.auditing.situation import pairs, with_its_own
from spurless.data.anything import is_named

if TYPE_CHECKING:
    import torch
    from torch import nn

    from spurless.auditing.decisions import Decisions
    from spurless.core.data import Bundle
    from spurless.core.recipe import Recipe
    from spurless.train.networks import NetSpec
    from spurless.train.progress import Watcher


class Options(TypedDict, total=False):
    """What else can be said of an audit; the defaults are those of `Request`."""

    quick: bool  # only what the data gives away, and no model
    net: NetSpec | None  # a network that is trained for the audit, on part of the samples
    recipe: Recipe | Mapping[str, Any] | None  # ... and how
    seed: int
    device: str | torch.device | None
    root: str | Path | None  # where data lies
    progress: bool | Watcher | None
    command: str | None  # the command line, for the report
    source: str | None  # the data as a shell would name it, for the commands that are advised
    settings: tuple[str, ...]  # ... and its settings
    decisions: Decisions | str | Path | None  # of `spurless.review`


@dataclass(frozen=True)
class Request:
    """What is asked of an audit."""

    data: Bundle | str | Mapping[str, Any]
    model: nn.Module | str | Path | None = None
    out: str | Path | None = None
    budget: float | None = None
    fix: bool = False
    quick: bool = False
    net: NetSpec | None = None
    recipe: Recipe | Mapping[str, Any] | None = None
    seed: int = 0
    device: str | torch.device | None = None
    root: str | Path | None = None
    progress: bool | Watcher | None = None
    command: str | None = None
    source: str | None = None
    settings: tuple[str, ...] = ()
    decisions: Decisions | str | Path | None = None

    @property
    def folder(self) -> Path | None:
        return None if self.out is None else Path(self.out)

    @property
    def seconds(self) -> float | None:
        return None if self.budget is None else 60 * self.budget

    def named(self, whole: Bundle) -> Request:
        """With how a shell would name the data and its settings."""
        source, settings = self.source, self.settings
        data = whole if not is_named(self.data) else fspath(self.data) if isinstance(self.data, PathLike) else self.data
        if source is None:
            source = data if isinstance(data, str) else str(data["name"]) if isinstance(data, Mapping) else ""
            if source == "" and whole.settings:  # else it was made from arrays, which no command line can name
                source = whole.source
        if isinstance(data, Mapping) and not settings:
            settings = pairs("data", data)
        if isinstance(self.model, (str, Path)) or not isinstance(data, (str, Mapping)):
            settings = with_its_own(settings, whole)
        return replace(self, source=source, settings=settings)
