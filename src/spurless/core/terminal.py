"""A console of rich's that prints names and values, and never obeys them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import rich.console
from rich.segment import Segment
from rich.text import Text

from spurless.core.messages import printable


class Console(rich.console.Console):
    """Escapes control characters in whatever is printed, and makes no links of it.

    Text is escaped before it is measured, so that tables keep their columns; what comes as another renderable is
    escaped when it is rendered. The sequences of rich itself (colours, progress bars) are added after that.
    """

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(printable(text), **how)

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            if control:
                yield Segment(text, style, control)
            else:
                yield Segment(printable(text), style.update_link(None) if style and style.link else style)
