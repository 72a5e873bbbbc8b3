"""A contact sheet: aligned samples of a dataset above conflicting ones, as a PNG file."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from spurless.core.data import Bundle, Images, Split
from spurless.data.describe import conflicting, percent

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

TILE = 96  # px: about the longer side of a drawn sample
MARK = "spurless"  # the entry of a sheet's file that says which data it shows
GAP, LINE, MARGIN = 6, 18, 10  # px: between tiles, a line of text, around the sheet
PAPER, INK, FAINT = (255, 255, 255), (20, 20, 20), (235, 235, 235)


def contact_sheet(bundle: Bundle, path: str | Path, columns: int = 10, rows: int = 3) -> Path | None:
    """Draw aligned samples above and conflicting ones below, a column or more for each class, as a PNG file.

    Without attributes: samples of each class. Of data that are not images nothing is drawn, and None comes back.
    """
    from PIL import Image, ImageDraw, PngImagePlugin

    from spurless.core.files import atomic

    if not isinstance(bundle.inputs, Images):
        return None
    classes = min(len(bundle.classes), columns)
    across = max(1, columns // classes)  # samples of a class side by side
    tile_w, tile_h = _tile_size(bundle.shape[2], bundle.shape[1])
    cell_w = max(tile_w, 64) + GAP
    cell_h = tile_h + GAP + (LINE if bundle.train.a is not None else 0)
    blocks = _blocks(bundle, classes, across * rows)
    width = 2 * MARGIN + classes * across * cell_w + (classes - 1) * GAP
    top = MARGIN + LINE + LINE  # the title and the class names
    height = top + len(blocks) * (LINE + rows * cell_h + GAP) + LINE * len(bundle.notes) + MARGIN

    sheet = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(sheet)
    more = f"; {classes} of {len(bundle.classes)} classes" if classes < len(bundle.classes) else ""
    _write(draw, (MARGIN, MARGIN), f"{bundle.name}{more}", width - 2 * MARGIN)
    left = [MARGIN + c * (across * cell_w + GAP) for c in range(classes)]
    for c in range(classes):
        _write(draw, (left[c], MARGIN + LINE), bundle.classes[c], across * cell_w - GAP, f"class {c}")
    for block in blocks:
        _write(draw, (MARGIN, top), block.heading, width - 2 * MARGIN)
        top += LINE
        pictures = iter(_pictures(block.split, [i for idx in block.chosen for i in idx], (tile_w, tile_h)))
        for c, idx in enumerate(block.chosen):
            for index in range(across * rows):
                x, y = left[c] + index % across * cell_w, top + index // across * cell_h
                if index < len(idx):
                    sheet.paste(next(pictures), (x, y))
                    _write(draw, (x, y + tile_h), _caption(bundle, block.split, idx[index]), cell_w - GAP)
                else:
                    draw.rectangle((x, y, x + tile_w - 1, y + tile_h - 1), fill=FAINT)
        top += rows * cell_h + GAP
    for note in bundle.notes:
        _write(draw, (MARGIN, top), note, width - 2 * MARGIN)
        top += LINE
    metadata = PngImagePlugin.PngInfo()
    metadata.add_text(MARK, bundle.source)
    with atomic(path) as unfinished:
        sheet.save(unfinished, format="PNG", pnginfo=metadata)
    return Path(path)


def is_sheet(path: Path, source: str | None = None) -> bool:
    """Whether a sheet (of this data) may be written there: there is nothing yet, or such a sheet."""
    from PIL import Image, UnidentifiedImageError

    from spurless.core.errors import UserError
    from spurless.core.files import open_regular

    if not path.exists():
        return True
    try:
        with open_regular(path) as file, Image.open(file) as there:
            return MARK in there.info and source in (None, there.info[MARK])
    except (UserError, OSError, UnidentifiedImageError):
        return False


class _Block(NamedTuple):
    heading: str
    split: Split
    chosen: list[list[int]]  # for each class, the samples to draw


def _blocks(bundle: Bundle, classes: int, most: int) -> list[_Block]:
    """Aligned above conflicting samples, from train, or from the first split that has such samples."""
    if conflicting(bundle, bundle.train) is None:
        everything = [(name, split, np.ones(len(split), bool)) for name, split in bundle.splits.items()]
        return [_block("samples", everything, classes, most)]
    tables = [(name, split, conflicting(bundle, split)) for name, split in bundle.splits.items()]
    against = [(name, split, np.asarray(table.any(1))) for name, split, table in tables if table is not None]
    along = [(name, split, ~mask) for name, split, mask in against]
    return [_block("aligned", along, classes, most), _block("conflicting", against, classes, most)]


def _block(kind: str, splits: list[tuple[str, Split, np.ndarray]], classes: int, most: int) -> _Block:
    """What to draw of one kind; the first split that has such samples."""
    name, split, mask = next((s for s in splits if s[2].any()), splits[0])
    y = split.y.numpy()
    chosen = [_spread(np.flatnonzero(mask & (y == c)), most) for c in range(classes)]
    share = "" if kind == "samples" else f": {percent(mask.mean())} of the samples"
    if kind == "conflicting" and split.a is not None and split.a.shape[1] > 1:
        share += "; below each, the attributes that contradict its class"
    return _Block(f"{kind} ({name}{share})" if mask.any() else f"{kind}: no such samples", split, chosen)


def _spread(idx: np.ndarray, most: int) -> list[int]:
    """At most so many, drawn by chance, always the same: a file is often sorted, and evenly spaced samples of it would
    show every class in the same two or three colours.

    >>> _spread(np.arange(2), 3), len(set(_spread(np.arange(100), 3)))
    ([0, 1], 3)
    """
    if len(idx) > most:
        idx = np.sort(np.random.default_rng(idx[:8]).choice(idx, most, replace=False))
    return [int(i) for i in idx]


def _caption(bundle: Bundle, split: Split, i: int) -> str:
    """The value of the one attribute, or which of several contradict the label."""
    if split.a is None or not bundle.aligned:
        return ""
    values: list[int] = split.a[i].tolist()
    if len(values) == 1:
        return bundle.values[0][values[0]]
    y = int(split.y[i])
    return ", ".join(n for n, t, v in zip(bundle.attributes, bundle.aligned, values, strict=True) if not t[y, v])


def _pictures(split: Split, idx: list[int], size: tuple[int, int]) -> list[Image]:
    """Rows as RGB pictures: small ones enlarged pixel by pixel, large ones made smaller with care."""
    import torch
    from PIL import Image

    if not idx:
        return []
    x = split[torch.tensor(idx)].cpu()  # (m, c, h, w)
    if x.dtype != torch.uint8:
        x = x.float()
        if x.min() < 0 or x.max() > 1:  # not the usual 0..1: show whatever range there is
            x = (x - x.min()) / (x.max() - x.min()).clamp(min=1e-12)
        x = (x * 255).round().to(torch.uint8)
    if x.shape[1] not in (1, 3):
        x = x.float().mean(1, keepdim=True).to(torch.uint8)
    arrays = x.expand(-1, 3, -1, -1).permute(0, 2, 3, 1).numpy()  # (m, h, w, 3)
    how = Image.Resampling.NEAREST if size[0] >= x.shape[3] else Image.Resampling.LANCZOS
    return [Image.fromarray(np.ascontiguousarray(array)).resize(size, how) for array in arrays]


def _tile_size(w: int, h: int) -> tuple[int, int]:
    """Enlarged by a whole factor, or reduced to fit.

    >>> _tile_size(28, 28), _tile_size(400, 200)
    ((84, 84), (96, 48))
    """
    longer = max(w, h)
    if longer <= TILE:
        return w * (TILE // longer), h * (TILE // longer)
    return max(1, round(w * TILE / longer)), max(1, round(h * TILE / longer))


def _write(draw: ImageDraw, at: tuple[int, int], words: str, width: int, instead: str = "") -> None:
    """One line of text, cut to fit. `instead` is written where no font at hand has most of the characters."""
    from PIL import ImageFont

    line = " ".join("".join(ch if ch.isprintable() else " " for ch in words).split())
    file, lacking = _font_file(frozenset(line))
    if instead and 2 * sum(ch in lacking for ch in line) > len(line):
        line = instead
    line = "".join("?" if ch in lacking else ch for ch in line)
    font = ImageFont.truetype(file, 12)
    whole = len(line)
    while line and font.getlength(line) > width:  # in the middle: names often differ at their end
        whole -= 1
        line = f"{line[: (whole + 1) // 2]}…{line[len(line) - whole // 2 :]}" if whole else ""
    draw.text(at, line, fill=INK, font=font)


@cache
def _font_file(characters: frozenset[str]) -> tuple[str, set[str]]:
    """A font that has these characters, and those that it lacks: the one that matplotlib ships, else the system's."""
    import matplotlib
    from matplotlib.ft2font import FT2Font

    def lacking(file: str) -> set[str]:
        try:
            return {ch for ch in characters if ord(ch) not in FT2Font(file).get_charmap()}
        except (OSError, RuntimeError):  # bitmap fonts and broken ones
            return set(characters)

    shipped = str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf")
    best = shipped, lacking(shipped)
    if best[1]:
        from matplotlib.font_manager import fontManager

        # the "Last Resort" font has a box for every character there is, so it would always win
        files = {f.fname for f in fontManager.ttflist if not f.name.startswith(("Last Resort", ".Last"))}
        best = min([best, *((file, lacking(file)) for file in sorted(files))], key=lambda candidate: len(candidate[1]))
    return best
