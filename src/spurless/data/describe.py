"""What a data set holds, and what its bias attributes give away: `spurless data describe`.

`describe` is a plain dict (JSON), `text` shows it on a terminal, `contact_sheet` draws it. All of it is counting;
nothing is trained.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw
    from rich.console import Group
    from rich.table import Table

    from spurless.core.data import Bundle, Split


def cramers_v(table: np.ndarray) -> tuple[float, float]:
    """Cramér's V of a table of counts, 0 (no association) to 1 (one decides the other), and bias-corrected beside it.

    V = √(φ² / (min(r, c) - 1)) with φ² = χ²/n; the correction is Bergsma's (2013), which takes away what chance alone
    gives in a small sample. Rows and columns without a count do not take part; where one is left, V is 0.

    >>> cramers_v(np.array([[10, 0], [0, 10]]))[0]
    1.0
    >>> cramers_v(np.array([[5, 5], [5, 5]]))
    (0.0, 0.0)
    >>> round(cramers_v(np.array([[30, 10], [10, 30]]))[0], 6)  # φ = (30·30 - 10·10) / (40·40)
    0.5
    """
    count = np.asarray(table, dtype=np.float64)
    count = count[count.sum(1) > 0][:, count.sum(0) > 0]
    n, (r, c) = count.sum(), count.shape
    if min(r, c) < 2:
        return 0.0, 0.0
    expected = count.sum(1, keepdims=True) * count.sum(0, keepdims=True) / n  # (r, c)
    phi2 = float(((count - expected) ** 2 / expected).sum() / n)
    plain = math.sqrt(phi2 / (min(r, c) - 1))
    if n < 2:
        return plain, 0.0
    less = max(0.0, phi2 - (r - 1) * (c - 1) / (n - 1))
    size = min(r - (r - 1) ** 2 / (n - 1), c - (c - 1) ** 2 / (n - 1)) - 1
    return min(1.0, plain), min(1.0, math.sqrt(less / size)) if size > 0 else 0.0


def counts(rows: np.ndarray, columns: np.ndarray, r: int, c: int) -> np.ndarray:
    """(r, c): how often each pair of codes occurs.

    >>> counts(np.array([0, 0, 1]), np.array([1, 1, 0]), 2, 2).tolist()
    [[0, 2], [1, 0]]
    """
    return np.bincount(rows * c + columns, minlength=r * c).reshape(r, c)


def best_guess(table: np.ndarray) -> tuple[float, float]:
    """Share of rows right when guessing the class from the attribute alone, and without it: (classes, values) counts.

    >>> best_guess(np.array([[9, 1], [1, 9]]))
    (0.9, 0.5)
    """
    n = max(1, int(table.sum()))
    return int(table.max(0).sum()) / n, int(table.sum(1).max()) / n


def describe(bundle: Bundle) -> dict[str, Any]:
    """Splits, classes, groups, associations, and one line that says what they mean; plain enough for JSON."""
    classes = _unique(bundle.classes)
    values = _attribute_values(bundle)
    association = _association(bundle, values)
    return {
        "name": bundle.name,
        "input": _text_in_words(bundle) if bundle.tokens else _input_in_words(bundle.shape),
        "shape": list(bundle.shape),
        "classes": classes,
        "attributes": values,
        # which values of each attribute the shortcut predicts for a class; rows with others are conflicting
        "aligned": {
            name: {
                c: [v for v, yes in zip(values[name], row, strict=True) if yes]
                for c, row in zip(classes, t, strict=True)
            }
            for name, t in zip(values, (table.tolist() for table in bundle.aligned), strict=False)
        },
        "splits": {which: _split(bundle, split, classes, values) for which, split in bundle.splits.items()},
        "samples": _samples(bundle),
        "association": association,
        "meaning": _meaning(association, classes),
        "notes": list(bundle.notes),
        "settings": _plain(bundle.settings),
    }


def _split(bundle: Bundle, split: Split, classes: list[str], values: dict[str, list[str]]) -> dict[str, Any]:
    y = split.y.numpy()
    part: dict[str, Any] = {"n": len(split), "classes": _named(classes, np.bincount(y, minlength=len(classes)))}
    part |= {"attributes": None, "groups": None, "conflicting": None, "overlap": None}
    if split.member is not None and bundle.overlap is not None:
        inside = split.member.numpy()
        part["overlap"] = {
            c: _named(bundle.overlap.groups, inside[y == k].sum(0)) for k, c in enumerate(classes)
        }  # a row counts in each of its groups
    if split.a is None:
        return part
    tables = {name: counts(y, split.a[:, k].numpy(), len(classes), len(values[name])) for k, name in enumerate(values)}
    part["attributes"] = {name: _named(values[name], t.sum(0)) for name, t in tables.items()}
    part["groups"] = {
        name: {c: _named(values[name], row) for c, row in zip(classes, t, strict=True)} for name, t in tables.items()
    }
    against = conflicting(bundle, split)
    if against is not None:
        part["conflicting"] = {
            "n": int(against.any(1).sum()),
            "share": float(against.any(1).mean()),  # at least one attribute contradicts the label
            "by_attribute": {name: float(against[:, k].mean()) for k, name in enumerate(values)},
            # how many rows 0, 1, 2, ... of the attributes contradict
            "rows_by_contradictions": np.bincount(against.sum(1), minlength=len(values) + 1).tolist(),
        }
    return part


def _samples(bundle: Bundle, each: int = 2) -> list[dict[str, str]]:
    """Of text: the first training rows that follow the shortcut and that do not, of each class; else nothing."""
    if bundle.tokens is None:
        return []
    import torch

    train, against = bundle.train, conflicting(bundle, bundle.train)
    kinds: dict[str, Any] = {"": np.ones(len(train), bool)}
    if against is not None:
        kinds = {"aligned": ~against.any(1), "conflicting": against.any(1)}
    found = []
    for kind, rows in kinds.items():
        for k, name in enumerate(bundle.classes):
            for i in np.flatnonzero(rows & (train.y.numpy() == k))[:each].tolist():
                found.append({"kind": kind, "class": name, "text": bundle.tokens.text(train[torch.tensor([i])][0])})
    return found


def conflicting(bundle: Bundle, split: Split) -> np.ndarray | None:
    """(n, k): whether each attribute contradicts the label; None where that is not known."""
    aligned = bundle.is_aligned(split) if bundle.aligned else None
    return None if aligned is None else ~aligned.numpy()


def _attribute_values(bundle: Bundle) -> dict[str, list[str]]:
    """For each attribute the names of its values; numbers where a bundle only has attributes beside its test rows."""
    codes = [s.a for s in bundle.splits.values() if s.a is not None]
    if not codes:
        return {}
    names = _unique(bundle.attributes or [f"a{k}" for k in range(codes[0].shape[1])])
    top = np.max([a.numpy().max(0, initial=0) for a in codes], axis=0)  # (k,)
    given = bundle.values or [[str(v) for v in range(int(m) + 1)] for m in top]
    return {name: _unique(v) for name, v in zip(names, given, strict=True)}


def _association(bundle: Bundle, values: dict[str, list[str]]) -> dict[str, Any] | None:
    """On the training rows: each attribute with the label, and the attributes with each other."""
    if bundle.train.a is None:
        return None
    y, a = bundle.train.y.numpy(), bundle.train.a.numpy()
    names, sizes = list(values), [len(v) for v in values.values()]
    label, between = {}, []
    for k, name in enumerate(names):
        table = counts(y, a[:, k], len(bundle.classes), sizes[k])
        plain, corrected = cramers_v(table)
        alone, without = best_guess(table)
        label[name] = {
            "cramers_v": plain,
            "corrected": corrected,
            "accuracy_from_it_alone": alone,
            "accuracy_of_commonest_class": without,
        }
        for j in range(k):
            plain, corrected = cramers_v(counts(a[:, j], a[:, k], sizes[j], sizes[k]))
            between.append({"attributes": [names[j], name], "cramers_v": plain, "corrected": corrected})
    return {"label": label, "between": between, "commonest_class": int(np.bincount(y).argmax())}


TELLING = 0.05  # a bias-corrected Cramér's V below this is next to nothing
GAIN = 0.005  # share of rows by which knowing an attribute must improve the guess to be worth a sentence


def _meaning(association: dict[str, Any] | None, classes: list[str]) -> str:
    """One line in plain words."""
    if association is None:
        return (
            "No bias attribute is known for the training rows, so nothing can be said of shortcuts from counts alone."
        )
    label = association["label"]
    gain = {n: v["accuracy_from_it_alone"] - v["accuracy_of_commonest_class"] for n, v in label.items()}
    main = max(label, key=lambda n: (label[n]["corrected"] >= TELLING, gain[n], label[n]["corrected"]))
    found, v = label[main], f"Cramér's V {label[main]['cramers_v']:.2f}"
    alone, without = percent(found["accuracy_from_it_alone"]), percent(found["accuracy_of_commonest_class"])
    guess = f"always guessing '{classes[association['commonest_class']]}' scores {without}"
    if found["corrected"] < TELLING:
        line = f"{main} says next to nothing about the class in the training rows ({v}): no shortcut to be had from it."
    elif gain[main] >= GAIN:
        line = (
            f"{main} predicts the class for {alone} of the training rows: a model can score {alone} by looking at it "
            f"alone ({v}; {guess})."
        )
    else:
        line = (
            f"{main} goes with the class ({v}), but looking at it alone does not beat a fixed guess ({guess}): "
            "a model that leans on it shows in its groups, not in its average."
        )
    others = [f"{n} {percent(label[n]['accuracy_from_it_alone'])}" for n in label if n != main]
    return line + (f" The others alone: {', '.join(others)}." if others else "")


def percent(share: float) -> str:
    """A share in percent that is never rounded up to all or down to nothing.

    >>> percent(0.99), percent(0.9999), percent(1), percent(0.4551), percent(0.0002), percent(0)
    ('99 %', '> 99.9 %', '100 %', '45.5 %', '< 0.1 %', '0 %')
    """
    if 0.9995 <= share < 1:
        return "> 99.9 %"
    if 0 < share < 0.0005:
        return "< 0.1 %"
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def _text_in_words(bundle: Bundle) -> str:
    from torch import Tensor

    from spurless.data.tokens import row_lengths

    most = bundle.shape[-1]
    said = f"text, up to {most} tokens a row (so there is no contact sheet)"
    full = sum(int((row_lengths(s.x) == most).sum()) for s in bundle.splits.values() if isinstance(s.x, Tensor))
    if not full or bundle.settings.get("length", most) > most:  # then not even the longest row was cut
        return said
    return f"{said}; {full:,} of {sum(map(len, bundle.splits.values())):,} rows fill them, and longer texts were cut"


def _input_in_words(shape: Sequence[int]) -> str:
    if is_image(shape):
        kind = {1: "grey", 3: "colour"}.get(shape[0], f"{shape[0]}-channel")
        return f"{kind} images, {shape[2]} x {shape[1]} px"
    size = " x ".join(str(s) for s in shape)
    return f"{size} numbers a row (not images, so there is no contact sheet)"


def is_image(shape: Sequence[int]) -> bool:
    """Whether inputs of this shape are (channels, height, width)."""
    return len(shape) == 3


def _unique(names: Sequence[str]) -> list[str]:
    """The names, told apart by their place where two are the same, so that no count hides another in a dict."""
    seen = [str(n) for n in names]
    return (
        [n if seen.count(n) == 1 else f"{n} ({i})" for i, n in enumerate(seen)] if len(set(seen)) < len(seen) else seen
    )


def _named(names: Sequence[str], numbers: np.ndarray) -> dict[str, int]:
    return {name: int(n) for name, n in zip(names, numbers, strict=True)}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


# On a terminal

MOST = 12  # rows or columns of a printed table


def text(description: dict[str, Any]) -> Group:
    """The description for a terminal: `rich.print(text(describe(bundle)))`."""
    from rich.console import Group
    from rich.text import Text

    tables: list[tuple[str, Table | None]] = [("Rows", _splits_table(description))]
    for name in description["attributes"]:
        tables.append(
            (f"Training rows by class and {name} (* agrees with the shortcut)", _groups_table(description, name))
        )
    tables.append(("Test rows by group; a row counts in each group that it is in", _overlap_table(description)))
    tables.append(("Training texts", _samples_table(description)))
    tables.append(
        ("Association in the training rows (0 none, 1 one decides the other)", _association_table(description))
    )
    parts: list[Any] = [Text(description["name"], style="bold"), Text(description["input"])]
    for title, table in tables:
        parts += [Text(f"\n{title}"), table] if table else []
    parts.append(Text(f"\n{description['meaning']}", style="bold"))
    parts += [Text(f"Note: {note}") for note in description["notes"]]
    return Group(*parts)


def _splits_table(description: dict[str, Any]) -> Table:
    from rich.text import Text

    classes, splits = description["classes"], description["splits"].values()
    table = _table("class", list(description["splits"]))
    for name in classes[:MOST]:
        table.add_row(Text(name), *[f"{part['classes'][name]:,}" for part in splits])
    if len(classes) > MOST:
        rest = [sum(part["classes"][name] for name in classes[MOST:]) for part in splits]
        table.add_row(f"... {len(classes) - MOST} more", *[f"{n:,}" for n in rest])
    table.add_section()
    table.add_row("all", *[f"{part['n']:,}" for part in splits])
    shares = [percent(p["conflicting"]["share"]) if p["conflicting"] else "not known" for p in splits]
    table.add_row("conflicting", *shares)
    return table


def _groups_table(description: dict[str, Any], attribute: str) -> Table | None:
    """Training rows by class and value; a star marks the pairs that the shortcut predicts."""
    from rich.text import Text

    groups = (description["splits"]["train"]["groups"] or {}).get(attribute)
    if not groups:
        return None
    values, aligned = description["attributes"][attribute], description["aligned"].get(attribute, {})
    more = [f"... {len(values) - MOST} more"] if len(values) > MOST else []
    table = _table("class", [*values[:MOST], *more])
    for name in description["classes"][:MOST]:
        cells = [f"{groups[name][v]:,}{'*' if v in aligned.get(name, ()) else ' '}" for v in values[:MOST]]
        rest = [f"{sum(groups[name][v] for v in values[MOST:]):,} "] if len(values) > MOST else []
        table.add_row(Text(name), *cells, *rest)
    if len(description["classes"]) > MOST:
        table.add_row(f"... {len(description['classes']) - MOST} more")
    return table


def _overlap_table(description: dict[str, Any]) -> Table | None:
    """One line for each group, because there can be many; of the split that is scored."""
    from rich.text import Text

    groups = (description["splits"].get("test") or description["splits"]["train"])["overlap"]
    if not groups:
        return None
    names = list(next(iter(groups.values())))
    table = _table("group", list(groups))
    for name in names[:MOST]:
        table.add_row(Text(name), *[f"{counts[name]:,}" for counts in groups.values()])
    if len(names) > MOST:
        table.add_row(f"... {len(names) - MOST} more")
    return table


def _samples_table(description: dict[str, Any]) -> Table | None:
    from rich.text import Text

    if not description["samples"]:
        return None
    table = _table("class", [])
    table.add_column("")
    table.add_column("text", max_width=90, no_wrap=True, overflow="ellipsis")
    for sample in description["samples"]:
        table.add_row(Text(sample["class"]), sample["kind"], Text(sample["text"]))
    return table


def _association_table(description: dict[str, Any]) -> Table | None:
    from rich.text import Text

    association = description["association"]
    if not association:
        return None
    table = _table("between", ["Cramér's V", "bias-corrected", "class from it alone"])
    for name, v in association["label"].items():
        alone = percent(v["accuracy_from_it_alone"])
        table.add_row(Text(f"class and {name}"), f"{v['cramers_v']:.3f}", f"{v['corrected']:.3f}", alone)
    for pair in association["between"]:
        both = Text(" and ".join(pair["attributes"]))
        table.add_row(both, f"{pair['cramers_v']:.3f}", f"{pair['corrected']:.3f}", "")
    return table


def _table(first: str, heads: Sequence[str]) -> Table:
    """An empty table. Names are Text, not markup: a class called "[red]" stays what it is."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(Text(first))
    for head in heads:
        table.add_column(Text(head), justify="right")
    return table


# As a picture

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

    if not is_image(bundle.shape):
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
            for place in range(across * rows):
                x, y = left[c] + place % across * cell_w, top + place // across * cell_h
                if place < len(idx):
                    sheet.paste(next(pictures), (x, y))
                    _write(draw, (x, y + tile_h), _caption(bundle, block.split, idx[place]), cell_w - GAP)
                else:
                    draw.rectangle((x, y, x + tile_w - 1, y + tile_h - 1), fill=FAINT)
        top += rows * cell_h + GAP
    for note in bundle.notes:
        _write(draw, (MARGIN, top), note, width - 2 * MARGIN)
        top += LINE
    said = PngImagePlugin.PngInfo()
    said.add_text(MARK, bundle.source)
    with atomic(path) as part:
        sheet.save(part, format="PNG", pnginfo=said)
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
    chosen: list[list[int]]  # for each class, the rows to draw


def _blocks(bundle: Bundle, classes: int, most: int) -> list[_Block]:
    """Aligned above conflicting rows, from train, or from the first split that has such rows."""
    if conflicting(bundle, bundle.train) is None:
        everything = [(name, split, np.ones(len(split), bool)) for name, split in bundle.splits.items()]
        return [_block("samples", everything, classes, most)]
    tables = [(name, split, conflicting(bundle, split)) for name, split in bundle.splits.items()]
    against = [(name, split, np.asarray(table.any(1))) for name, split, table in tables if table is not None]
    along = [(name, split, ~mask) for name, split, mask in against]
    return [_block("aligned", along, classes, most), _block("conflicting", against, classes, most)]


def _block(kind: str, splits: list[tuple[str, Split, np.ndarray]], classes: int, most: int) -> _Block:
    """What to draw of one kind; the first split that has such rows."""
    name, split, mask = next((s for s in splits if s[2].any()), splits[0])
    y = split.y.numpy()
    chosen = [_spread(np.flatnonzero(mask & (y == c)), most) for c in range(classes)]
    share = "" if kind == "samples" else f": {percent(mask.mean())} of the rows"
    if kind == "conflicting" and split.a is not None and split.a.shape[1] > 1:
        share += "; below each, the attributes that contradict its class"
    return _Block(f"{kind} ({name}{share})" if mask.any() else f"{kind}: no such rows", split, chosen)


def _spread(idx: np.ndarray, most: int) -> list[int]:
    """At most so many, drawn by chance, always the same: a file is often sorted, and evenly spaced rows of it would
    show every class in the same two or three colours.

    >>> _spread(np.arange(2), 3), len(set(_spread(np.arange(100), 3)))
    ([0, 1], 3)
    """
    if len(idx) <= most:
        return idx.tolist()
    return np.sort(np.random.default_rng(idx[:8]).choice(idx, most, replace=False)).tolist()


def _caption(bundle: Bundle, split: Split, i: int) -> str:
    """The value of the one attribute, or which of several contradict the label."""
    if split.a is None or not bundle.aligned:
        return ""
    values = split.a[i].tolist()
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
        best = min([best, *((file, lacking(file)) for file in sorted(files))], key=lambda found: len(found[1]))
    return best
