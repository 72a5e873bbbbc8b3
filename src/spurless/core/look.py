"""How a Bundle shows itself: a line, a table for a notebook, and pictures of its samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from spurless.core.display import html
from spurless.core.errors import DataError

if TYPE_CHECKING:
    from spurless.core.data import Bundle

MOST = 20  # groups in a table


def text(data: Bundle) -> str:
    """One line."""
    sizes = ", ".join(f"{name} {len(split):,}" for name, split in data.splits.items())
    attributes = f"; attributes: {', '.join(data.attributes)}" if data.attributes else ""
    return f"Bundle({data.name}: {sizes}; shape {data.shape}; {len(data.classes)} classes{attributes})"


def as_html(data: Bundle) -> str:
    """How many samples of each class, and of each value of an attribute within it, each split has."""
    lines: list[list[str]] = []
    for c, label in enumerate(data.classes):
        lines.append([label, "", *(f"{int((split.y == c).sum()):,}" for split in data.splits.values())])
        for k, attribute in enumerate(data.attributes):
            for v, value in enumerate(data.values[k]):
                counts = [
                    "" if split.a is None else f"{int(((split.y == c) & (split.a[:, k] == v)).sum()):,}"
                    for split in data.splits.values()
                ]
                lines.append([label, f"{attribute} = {value}", *counts])
    more = [f"and {len(lines) - MOST} more lines"] if len(lines) > MOST else []
    title = f"{data.name}: samples of shape {data.shape}"
    return html(["class", "attribute", *data.splits], lines[:MOST], title, [*more, *data.notes])


def gallery(data: Bundle, columns: int) -> Any:
    """Training samples of each class, conflicting ones in a line of their own. Returns an array of axes."""
    from matplotlib import pyplot

    if len(data.shape) != 3 or data.shape[0] not in (1, 3):
        raise DataError(f"The samples of {data.name} are no images; their shape is {data.shape}.")
    split, aligned = data.train, data.is_aligned(data.train)
    rows: list[tuple[str, Tensor]] = []
    for c, label in enumerate(data.classes):
        mine = split.y == c
        if aligned is None:
            rows.append((label, mine))
        else:
            fits = aligned.all(1)
            rows += [(f"{label}, aligned", mine & fits), (f"{label}, conflicting", mine & ~fits)]
    rows = [(title, mask) for title, mask in rows if bool(mask.any())]
    _, axes = pyplot.subplots(
        len(rows), columns, figsize=(1.1 * columns, 1.25 * len(rows)), squeeze=False, layout="constrained"
    )
    for line, (title, mask) in zip(axes, rows, strict=True):
        chosen = torch.nonzero(mask).flatten()[:columns]
        for column, cell in enumerate(line):
            cell.axis("off")
            if column < len(chosen):
                picture = split[chosen[column : column + 1]][0].permute(1, 2, 0).numpy()
                cell.imshow(picture[..., 0] if picture.shape[-1] == 1 else picture, cmap="gray")
        line[0].set_title(title, fontsize=8, loc="left", parse_math=False)
    return axes
