"""What a person looks at: the most suspicious samples, pictures of them with attribution maps, and a map of all
samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from spurless.auditing.case import Case
from spurless.auditing.columns import columns_of
from spurless.auditing.plain import Presence
from spurless.core.augment import floats
from spurless.core.data import Texts
from spurless.core.errors import UserError
from spurless.core.messages import log

Drawn = dict[int, tuple[str, str | None]]  # sample -> its picture, and its attribution map where there is one

BARS = 20
AT_ONCE = 32  # passes whose activations are in memory at a time
# Integrated Gradients, for networks without a convolution, take this many passes a picture: fine for small ones.
STEPS, LARGEST = 16, 64
TEXTS_AT_ONCE, MOST_WORDS = 256, 100  # passes of texts in memory at a time; words of a text that are shown


def suspicious_rows(case: Case, says: Tensor | None, score: Tensor, most: int = 40) -> list[dict[str, Any]]:
    """The held-out samples with the highest scores (n,), highest first; samples that score 0 are not suspicious.

    `says` (n,) is the class that the shortcut points to, -1 where it points to none.
    """
    classes, ranked = case.data.classes, []
    suspicious = (score.isfinite() & (score > 0)).nonzero()[:, 0]
    for rank, row in enumerate(_highest(score, suspicious)[:most], start=1):
        points_to = -1 if says is None else int(says[row])
        ranked.append(
            {
                "rank": rank,
                "row": row,
                "split": case.split,
                "name": name_of(case, row),
                "label": classes[int(case.held.y[row])],
                "prediction": classes[int(case.predicted[row])],
                "says": classes[points_to] if points_to >= 0 else None,
                "score": round(float(score[row]), 4),
                "picture": None,
                "map": None,
                "text": None,
            }
        )
    return ranked


def galleries(
    case: Case, conflicting: Tensor, score: Tensor, most_classes: int = 6, each: int = 6
) -> list[dict[str, Any]]:
    """For the classes with most conflicting samples (n,): those with the highest scores, against aligned ones.

    Aligned samples are right, and nearest to the mean of all such samples of the class in the model's features. Items
    hold their "row", for `draw` and `with_pictures`. Only of images, texts and tables.
    """
    count = torch.bincount(case.held.y[conflicting], minlength=len(case.data.classes))
    order = count.argsort(descending=True, stable=True)[:most_classes]
    entries = []
    shown = case.images or case.texts or bool(columns_of(case.data))
    for label in [c for c in order.tolist() if count[c] and shown]:
        own = case.held.y == label
        usual, against = ((own & mask).nonzero()[:, 0] for mask in (case.right & ~conflicting, conflicting))
        rows = _typical(case.features, usual)[:each], _highest(score, against)[:each]
        empty = {"picture": None, "map": None, "text": None}
        kinds = [[{"row": r, "name": name_of(case, r)} | empty for r in group] for group in rows]
        entries.append({"class": case.data.classes[label], "aligned": kinds[0], "conflicting": kinds[1]})
    return entries


def name_of(case: Case, row: int) -> str:
    """Where a sample came from, as text that any file can hold: names of files need not be valid Unicode."""
    names = case.held.names
    return f"sample {row}" if names is None else str(names[row]).encode("utf-8", "backslashreplace").decode()


def with_pictures(items: Sequence[Mapping[str, Any]], drawn: Drawn) -> list[dict[str, Any]]:
    """The items with the pictures of their samples, where they were drawn.

    >>> with_pictures([{"row": 3}, {"row": 4}], {3: ("pictures/3.png", None)})
    [{'row': 3, 'picture': 'pictures/3.png', 'map': None}, {'row': 4, 'picture': None, 'map': None}]
    """
    with_maps = [(item, drawn.get(item["row"], (None, None))) for item in items]
    return [{**item, "picture": picture, "map": heat} for item, (picture, heat) in with_maps]


# Texts

Shown = dict[int, list[list[Any]]]  # sample -> its words, each with a number from -1 to 1


def highlight(case: Case, rows: Sequence[int]) -> Shown:
    """The words of samples, each with how much it speaks for the model's prediction: 1 for the strongest word of the
    sample, below 0 against it; None where attribution cannot be made. Long texts are cut around the strongest word.
    Empty for data that is no text."""
    wanted = sorted(set(rows))
    if not isinstance(case.data.inputs, Texts) or not wanted:
        return {}
    tokens = case.data.inputs.tokens
    from spurless.data.words import words_of
    from spurless.metrics.attribution_text import attribute_tokens

    x = case.held[torch.tensor(wanted)]
    try:
        maps: Tensor | None = (
            _of_words(case.net.encoder, case.net.head.weight.detach().cpu(), x, case.predicted[wanted])
            if isinstance(case.net.encoder, Presence)
            else attribute_tokens(case.net, x, case.predicted[wanted], steps=STEPS, batch_size=TEXTS_AT_ONCE)
        )
    except Exception as error:  # an audit does not fail for it
        log.warning(f"No attribution of words: {error}")
        maps = None
    words = words_of(tokens)
    return {row: _weighted(x[i], words.of(x[i]), None if maps is None else maps[i]) for i, row in enumerate(wanted)}


def _weighted(x: Tensor, words: Sequence[Any], weights_of: Tensor | None) -> list[list[Any]]:
    """The words of a text (2, l), each with its weight in those of the strongest one."""
    from spurless.data.words import as_text

    weights = [None if weights_of is None else float(weights_of[w.start : w.stop].sum()) for w in words]
    top = max((abs(w) for w in weights if w is not None), default=0.0) or 1.0
    strongest = max(range(len(words)), key=lambda k: weights[k] or 0.0, default=0)
    start = 0 if strongest < MOST_WORDS else min(strongest - MOST_WORDS // 2, len(words) - MOST_WORDS)
    cut, spans = words[start : start + MOST_WORDS], list[list[Any]]([["… ", None]] if start else [])
    shown = weights[start : start + MOST_WORDS]
    for k, (t, w) in enumerate(zip(as_text([word.text for word in cut]), shown, strict=True)):
        if k and x[1, cut[k].start] != x[1, cut[k - 1].start]:  # the second text of a pair begins
            spans.append([" |", None])
            t = f" {t.lstrip()}"
        spans.append([t, None if w is None else round(w / top, 2)])
    return [*spans, [" …", None]] if start + len(cut) < len(words) else spans


def _of_words(encoder: Presence, weight: Tensor, x: Tensor, predicted: Tensor) -> Tensor:
    """(n, l) What each word adds to the predicted class against the mean of all: exact, since the model is a sum."""
    beyond = torch.nn.functional.pad(weight - weight.mean(0), (0, 1))  # unknown words add nothing
    columns = torch.where(x[:, 1] > 0, encoder.place.cpu()[x[:, 0].long()], encoder.known)
    return beyond[predicted[:, None], columns]


def with_texts(items: Sequence[Mapping[str, Any]], shown: Shown) -> list[dict[str, Any]]:
    """The items with the words of their samples.

    >>> with_texts([{"row": 3}, {"row": 4}], {3: [["dull", 1.0]]})
    [{'row': 3, 'text': [['dull', 1.0]]}, {'row': 4, 'text': None}]
    """
    return [{**item, "text": shown.get(item["row"])} for item in items]


# Pictures


def draw(case: Case, rows: Sequence[int], folder: Path, size: int = 96, maps: bool = True) -> Drawn:
    """Write pictures/ROW.png and pictures/ROW-map.png below the folder, at most `size` pixels wide and high.

    The map shows what speaks for the model's prediction (none without `maps`). A picture that cannot be made is left
    out, and so is a map: an audit does not fail for them. Paths are relative to the folder. Only of images.
    """
    if not case.images or not rows:
        return {}
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    read = {row: x for row in sorted(set(rows)) if (x := _read(case, row)) is not None}
    heat_of: Mapping[int, Tensor] = _maps(case, read) if maps else {}
    drawn: Drawn = {}
    for row, x in read.items():
        picture, heat = f"pictures/{row}.png", f"pictures/{row}-map.png"
        image = _bytes(x)
        _save(image, folder / picture, size)
        if row in heat_of:
            _save(spotlight(image, heat_of[row]), folder / heat, size)
        drawn[row] = picture, heat if row in heat_of else None
    return drawn


def _read(case: Case, row: int) -> Tensor | None:
    try:
        return case.held[torch.tensor([row])][0]  # (c, h, w)
    except Exception as error:  # a file that is gone or damaged by now
        log.warning(f"No picture of {name_of(case, row)}: {error}")
        return None


def _maps(case: Case, read: Mapping[int, Tensor]) -> dict[int, Tensor]:
    """The maps (h, w) of these samples; none where they cannot be made, or not quickly."""
    from spurless.metrics.attribution import attribute, usable

    rows = list(read)
    try:
        how = usable(case.net, "gradcam", case.data.shape)
        if not rows or (how == "ig" and max(case.data.shape[1:]) > LARGEST):
            return {}
        x = case.prepared(torch.stack([read[row] for row in rows]))
        maps = attribute(case.net, x, case.predicted[rows], how, steps=STEPS, batch_size=AT_ONCE)
        return dict(zip(rows, maps, strict=True))
    except Exception as error:
        log.warning(f"No attribution maps: {error}")
        return {}


def _bytes(x: Tensor) -> Tensor:
    """uint8 (1 or 3, h, w) Of an image of any kind; of numbers, the smallest is black and the largest white."""
    if x.dtype != torch.uint8:
        x = floats(x).nan_to_num(0.0, 0.0, 0.0)
        if x.min() < 0 or x.max() > 1:
            x = (x - x.min()) / (x.max() - x.min()).clamp_min(1e-6)
        x = (255 * x).round().to(torch.uint8)
    return x[:3] if len(x) > 2 else x[:1]


def spotlight(image: Tensor, heat: Tensor, least: float = 0.35) -> Tensor:
    """uint8 (3, h, w): the image in its own colours where the model looks, and darker elsewhere.

    A colour may be the shortcut, so that no colour is laid over it. `least` of the light stays everywhere.

    >>> red = torch.tensor([200, 0, 0], dtype=torch.uint8).view(3, 1, 1).expand(3, 8, 8)
    >>> heat = torch.zeros(8, 8)
    >>> heat[:4] = 1.0
    >>> shown = spotlight(red, heat)
    >>> shown[:, 0, 0].tolist(), shown[:, 7, 0].tolist()
    ([200, 0, 0], [70, 0, 0])
    """
    heat = heat.detach().cpu().float().nan_to_num(0.0, 0.0, 0.0).clamp_min(0)
    heat = torch.nn.functional.avg_pool2d(heat[None, None], 3, 1, 1, count_include_pad=False)[0, 0]
    low, high = heat.min(), heat.max()
    seen = (heat - low) / (high - low) if bool(high > low) else torch.ones_like(heat)
    return (image.float().expand(3, -1, -1) * (least + (1 - least) * seen)).round().to(torch.uint8)


def _save(image: Tensor, file: Path, size: int) -> None:
    from PIL import Image

    pixels = image.permute(1, 2, 0).contiguous().numpy()
    picture = Image.fromarray(pixels[..., 0] if len(image) == 1 else pixels)
    picture.thumbnail((size, size))  # never larger than it is
    picture.save(file, "PNG", optimize=True)


# Charts


def histogram(
    score: Tensor, candidates: Tensor, title: str = "How suspicious each held-out sample is"
) -> dict[str, Any] | None:
    """How many usual samples and candidates (n,) have which score (n,); None without scores.

    >>> found = histogram(torch.tensor([0.0, 0.02, 1.0]), torch.tensor([False, False, True]))
    >>> found["edges"][:3], found["aligned"][:2], found["conflicting"][-1]
    ([0.0, 0.05, 0.1], [2, 0], 1)
    """
    finite = score.isfinite()
    if not bool(finite.any()):
        return None
    low, high = min(0.0, float(score[finite].min())), max(1.0, float(score[finite].max()))
    edges = [round(low + (high - low) * i / BARS, 6) for i in range(BARS + 1)]
    bins = ((score.double() - low) / (high - low) * BARS).nan_to_num().long().clamp(0, BARS - 1)
    counts = [bins[finite & mask].bincount(minlength=BARS).tolist() for mask in (~candidates, candidates)]
    return {"edges": edges, "aligned": counts[0], "conflicting": counts[1], "title": title}


def map2d(case: Case, groups: Tensor | None, names: Sequence[str], most: int = 1500) -> dict[str, Any] | None:
    """Two coordinates for at most so many samples, so that samples alike to the model lie together (t-SNE).

    `groups` (n,) number the `names`; None: by the first attribute or, where none is known, by right and wrong.
    """
    from spurless.metrics.representation import project

    if groups is None and case.held.a is not None:
        groups, names = case.held.a[:, 0], case.data.values[0]
    elif groups is None:
        groups, names = (~case.right).long(), ("right", "wrong")
    try:
        projection = project(case.features, most=most, seed=case.seed)
    except UserError:  # too few samples, or features that are not finite
        return None
    n, m = len(projection.rows), len(case.features)
    places = [[round(v, 2) for v in point] for point in projection.xy.tolist()]
    codes = zip(case.held.y[projection.rows].tolist(), groups[projection.rows].tolist(), strict=True)
    return {
        "how": f"t-SNE of the model's features of {n:,} held-out samples" + (f", drawn from {m:,}" if n < m else ""),
        "points": [[*point, *code] for point, code in zip(places, codes, strict=True)],
        "labels": [str(c) for c in case.data.classes],
        "groups": [str(g) for g in names],
    }


def _highest(score: Tensor, rows: Tensor) -> list[int]:
    """The samples by score, highest first and unknown last; of several with one score, the first sample first."""
    return rows[score[rows].nan_to_num(-torch.inf).argsort(descending=True, stable=True)].tolist()


def _typical(features: Tensor, rows: Tensor) -> list[int]:
    """The samples by how near they are to their mean, nearest first."""
    z = features[rows].double().nan_to_num(0.0, 0.0, 0.0)
    return rows[(z - z.mean(0)).norm(dim=1).argsort(stable=True)].tolist()
