"""Which cues there are in such data: the properties of files, images, texts and tables that could tell the label."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from spurless.auditing import marks
from spurless.auditing.case import Case
from spurless.auditing.columns import columns_of
from spurless.auditing.cues import properties
from spurless.auditing.discovered import discovered
from spurless.auditing.files import NAMES, read_files
from spurless.auditing.foreground import background_only, fills_frame, swap_background
from spurless.auditing.plain import fit_heads, folds_of
from spurless.auditing.pool import LEARN, Pool, drawn, mixed
from spurless.core.augment import floats, like
from spurless.core.data import Split, Texts

CHUNK, LOOKED_AT = 400, 2000  # images in memory at a time; those among which marks are looked for
HIDDEN = "a hidden attribute"
AREA = 64  # pixels a side, from which images have backgrounds that can be told from objects

Swap = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Cue:
    """Something that each sample has, as numbers or as scores of the classes, and how it is exchanged."""

    name: str
    words: str  # in a sentence: "the model relies on ..."
    kind: str  # file, mark, margin, detail, light, place, text, column, spot, part, background, hidden, or attribute
    values: Tensor | None = None  # (n, k) of the pool
    scores: Tensor | None = None  # (n, classes) of the pool, each by a fit without that sample
    swap: Swap | None = None
    several: int = 1  # words at once: those of many a class tell much as well


def gather(case: Case, pool: Pool, model: bool = True) -> Iterator[Cue]:
    """All cues of such data; those that take passes of the network only with a `model`."""
    if pool.files is not None and case.images:
        for name, values in read_files(pool.files).items():
            yield Cue(name, NAMES[name], "file", values)
    if case.texts:
        yield from _of_texts(case, pool)
    elif case.images:
        yield from _of_images(case, pool, model)
    else:
        for column in columns_of(case.data):
            words = f"the column '{column.name}'" if not column.name.startswith("missing") else f"gaps: {column.name}"
            yield Cue(column.name, words, "column", column.read(pool.x.float()), swap=column.swap)


def _of_texts(case: Case, pool: Pool) -> Iterator[Cue]:
    from spurless.auditing.text_cues import text_cues
    from spurless.data.words import words_of

    assert isinstance(case.data.inputs, Texts)
    for cue in text_cues(words_of(case.data.inputs.tokens), pool.x, pool.y, pool.learn, len(case.data.classes)):
        several = len(cue.tokens) if cue.name.startswith("the words") else 1
        yield Cue(cue.name, cue.words, "text", cue.values, swap=cue.swap, several=several)


def _of_images(case: Case, pool: Pool, model: bool) -> Iterator[Cue]:
    shape = case.data.shape
    read: dict[str, list[Tensor]] = {p.name: [] for p in properties(shape[0])}
    for chunk in torch.arange(len(pool)).split(CHUNK):
        x = floats(pool.x[chunk])
        for p in properties(shape[0]):
            read[p.name].append(p.read(x).nan_to_num(0.0, 0.0, 0.0))
    for p in properties(shape[0]):
        yield Cue(p.name, p.words, p.kind, torch.cat(read[p.name]), swap=p.swap)
    yield from _marks(case, pool)
    photographs = model and min(shape[1:]) >= AREA and case.own is not False
    if photographs and not fills_frame(floats(pool.x[mixed(pool.learn, case.seed)[:200]])):
        yield _background(case, pool)
    if model and case.fold is not None:
        values = discovered(case.features[pool.asked], pool.y, pool.learn, case.seed)
        if values is not None:
            yield Cue(HIDDEN, "an attribute that was discovered in the features", "hidden", values[:, None])


def _marks(case: Case, pool: Pool) -> Iterator[Cue]:
    """Windows that tell much about a class, and a patch at changing places."""
    rows = mixed(pool.learn, case.seed)[:LOOKED_AT]
    x, y = floats(pool.x[rows]), pool.y[rows]
    if min(x.shape[-2:]) > 96:
        x = torch.nn.functional.interpolate(x, (96, 96), mode="area")
    classes, scale = len(case.data.classes), case.data.shape[1] / x.shape[2]
    names = set()
    for window in marks.search(x, y, classes, case.seed):
        name = marks.where(window.top, window.left, window.side, *x.shape[-2:])
        if window.put is None:
            name = name.replace("a mark", "a part")
        if name in names:  # another window of the same mark
            continue
        names.add(name)
        values = _in_parts(partial(window.read, scale=scale), pool)
        kind = "part" if window.put is None else "mark"
        yield Cue(name, name, kind, values, swap=marks.swap_window(*(round(scale * each) for each in window[:3])))
    spot = marks.search_spots(x, y, classes, case.seed)
    if spot is not None:
        values = _in_parts(spot.read, pool)
        yield Cue("a mark at changing places", "a small mark at changing places", "spot", values, swap=spot.swap)


def _in_parts(read: Callable[[Tensor], Tensor], pool: Pool) -> Tensor:
    """What is read of all images, from 0 to 1, a chunk at a time."""
    return torch.cat([read(floats(pool.x[chunk])) for chunk in torch.arange(len(pool)).split(CHUNK)])


def _background(case: Case, pool: Pool) -> Cue:
    """What the model's own features of the background alone tell about the class, out of fold."""
    empty = _in_parts(lambda x: like(background_only(x), pool.x[:1]), pool)
    features = case.outputs(Split(empty, torch.zeros(len(empty), dtype=torch.long)), features=True)
    fold = torch.full((len(pool),), -1)
    fold[pool.learn] = folds_of(pool.y[pool.learn], case.seed)
    heads = fit_heads(features[pool.learn], pool.y[pool.learn], len(case.data.classes), fold[pool.learn])
    scores = heads.logits(features, fold)
    return Cue("background", "the background", "background", scores=scores, swap=swap_background)


def attribute_cue(case: Case, pool: Pool, k: int, swap: Swap | None) -> Cue | None:
    """A known attribute as a cue; None where it is not known for all samples of the pool."""
    train, test, name = case.data.train.a, case.held.a, case.data.attributes[k]
    if test is None or (case.fold is None and train is None):
        return None
    if case.fold is None:
        assert train is not None
        rows = drawn(len(train), min(LEARN, len(pool.learn)), case.seed)
        column = torch.cat([train[rows, k], test[pool.asked, k]])
    else:
        column = test[pool.asked, k]
    if len(column) != len(pool):
        return None
    values = torch.nn.functional.one_hot(column, len(case.data.values[k])).float()
    return Cue(name, f"'{name}'", "attribute", values, swap=swap)
