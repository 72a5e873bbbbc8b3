"""The data of a kind: real samples, into which something that goes with the label is planted, or nothing.

`a` is what was planted in each sample: it agrees with the label in a share of the samples (the strength), and is given
to the audit as an attribute only where that is asked for.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from spurless import Bundle, load_data
from spurless.core.data import Images, Split
from spurless.data.arrays import from_texts
from spurless.data.ingest import table as tables
from spurless.data.ingest.labels import Field
from studies.audit.bases import SIDE, SKLEARN, all_birds, copies, reviews, source, table_base, tweets
from studies.audit.kinds import Kind
from studies.audit.plants import FINAL, PLANTS, TINTED, Rng, blur, floats, normal, rgb
from studies.audit.plants2 import PLANTS2, TINTED2
from studies.audit.plants3 import PLANTS3, TINTED3
from studies.audit.text_plants import with_plant

Strength = float | tuple[float, float]  # of all samples, or of the first and the second half of them


def make(kind: Kind, strength: float, seed: int, attribute: bool, folder: Path) -> Bundle:
    """The kind's data; with a strength of 0.5, what is planted says nothing about the label."""
    rng = np.random.default_rng([zlib.crc32(kind.name.encode()), seed, int(1000 * strength)])
    return _made(kind, strength, rng, attribute, folder)


def make_apart(kind: Kind, strength: float, seed: int, folder: Path) -> tuple[Bundle, Split, Tensor]:
    """The kind's data without its attribute, and as many other samples in which what is planted says nothing; and
    the label that it points to in these, of two."""
    twice = kind._replace(n=2 * kind.n)
    both = []
    for attribute in (True, False):
        rng = np.random.default_rng([zlib.crc32(kind.name.encode()), seed, int(1000 * strength), 2])
        both.append(_made(twice, (strength, 0.5), rng, attribute, folder))
    known, data = both
    half = len(data.train) // 2
    first, rest = torch.arange(half), torch.arange(half, len(data.train))
    assert known.train.a is not None
    kept = Split(data.train[first], data.train.y[first])
    values = known.train.a[:, 0]
    turned = int(float((values[first] == known.train.y[first]).float().mean()) < 0.5)  # names of classes have an order
    return replace(data, train=kept), Split(data.train[rest], data.train.y[rest]), values[rest] ^ turned


def _made(kind: Kind, strength: Strength, rng: Rng, attribute: bool, folder: Path) -> Bundle:
    base = kind.base.split()
    if base[0] in ("adult", "german", "compas", "copies", *SKLEARN):
        return _table(kind, strength, rng, attribute)
    if base[0] in ("imdb", "tweets"):
        return _text(kind, strength, rng, attribute)
    if base[0] in ("waterbirds", "birds"):
        return _birds(kind, strength, rng, attribute)
    if base[0] == "files":
        return _files(kind, strength, rng, attribute, folder)
    x, y = _small(base[1:] if base[0] == "large" else base, kind.n, rng)
    if base[0] == "large":
        x = (F.interpolate(rgb(x), (SIDE, SIDE), mode="bilinear") * 255).round().to(torch.uint8)
    return _images(kind, x, y, strength, rng, attribute)


def planted(y: np.ndarray, strength: Strength, rng: Rng, one: bool = False) -> np.ndarray:
    """(n,) 0 or 1: what is planted. It goes with the label's parity; `one`: with class 0 against all others."""
    wanted = (y == 0) if one else (y % 2 == 1)
    two = strength if isinstance(strength, tuple) else (strength, strength)
    along = np.where(np.arange(len(y)) < len(y) // 2, *two)
    return np.where(rng.random(len(y)) < along, wanted, ~wanted).astype(np.int64)


# Images


def _small(base: list[str], n: int, rng: Rng) -> tuple[Tensor, Tensor]:
    x, y = source(base[0])
    wanted = list(range(10)) if base[1] == "all" else [int(c) for c in base[1:]]
    rows = np.concatenate([rng.choice(np.flatnonzero(y.numpy() == c), n // len(wanted), False) for c in wanted])
    rows = torch.from_numpy(rng.permutation(rows))
    return x[rows], torch.tensor([wanted.index(int(c)) for c in y[rows]])


def _images(kind: Kind, x: Tensor, y: Tensor, strength: Strength, rng: Rng, attribute: bool) -> Bundle:
    names = kind.plant
    if kind.clean:
        x, y, a = _control(kind, x, y, rng)
        return _bundle(kind, x, y, a)
    a = planted(y.numpy(), strength, rng, one=names.startswith("one_"))
    z = floats(x)
    if names in (*TINTED, *TINTED2, *TINTED3):
        z = z.expand(-1, 3, -1, -1).clone() if z.shape[1] == 1 else z
    for value in (0, 1):
        rows = torch.from_numpy(np.flatnonzero(a == value))
        z[rows] = (PLANTS | FINAL | PLANTS2 | PLANTS3)[names.removeprefix("one_")](z[rows], value, rng)
    out = (z.clamp(0, 1) * 255).round().to(torch.uint8)
    return _bundle(kind, out, y, torch.from_numpy(a) if attribute else None)


def _bundle(kind: Kind, x: Tensor, y: Tensor, a: Tensor | None) -> Bundle:
    channels = x.shape[1]
    inputs = Images((0.5,) * channels, (0.25,) * channels)
    split = Split(x, y, None if a is None else a.long()[:, None])
    named = () if a is None else ("planted",)
    return Bundle(kind.name, split, attributes=named, inputs=inputs, net="conv3")


def _control(kind: Kind, x: Tensor, y: Tensor, rng: Rng) -> tuple[Tensor, Tensor, Tensor | None]:
    """What is not a shortcut: wrong labels, a rare class, an attribute that makes samples hard in both classes."""
    what = kind.plant
    if what == "wrong_labels":
        wrong = torch.from_numpy(rng.random(len(y)) < 0.1)
        return x, torch.where(wrong, (y + 1) % (int(y.max()) + 1), y), None
    if what == "rare":
        keep = torch.from_numpy((y.numpy() == 0) | (rng.random(len(y)) < 0.2))
        return x[keep], y[keep], None
    if what in ("hard_blur", "hard_noise"):
        a = torch.from_numpy((rng.random(len(y)) < np.where(y.numpy() == 1, 0.35, 0.25)).astype(np.int64))
        z = floats(x)
        rows = a.nonzero()[:, 0]
        z[rows] = blur(z[rows], 1.6) if what == "hard_blur" else z[rows] + 0.35 * normal(z[rows], rng)
        return (z.clamp(0, 1) * 255).round().to(torch.uint8), y, a
    return x, y, None


# Photographs


def _birds(kind: Kind, strength: Strength, rng: Rng, attribute: bool) -> Bundle:
    """Waterbirds, drawn so that the place agrees with the kind of bird in a share of them: half, for a control."""
    x, y, place, _ = all_birds()
    shares = strength if isinstance(strength, tuple) else (strength,)
    free, drawn = np.ones(len(y), bool), []
    for share in shares if kind.plant == "place" else (0.5,):
        rows = []
        many = kind.n // 2 // (len(shares) if kind.plant == "place" else 1)
        for c in (0, 1):
            agree = round(share * many)
            for value, wanted in ((c, agree), (1 - c, many - agree)):
                own = np.flatnonzero(((y == c) & (place == value)).numpy() & free)
                rows.append(rng.choice(own, min(wanted, len(own)), False))
        drawn.append(rng.permutation(np.concatenate(rows)))
        free[drawn[-1]] = False
    chosen = torch.from_numpy(np.concatenate(drawn))
    images, labels = x[chosen], y[chosen]
    if kind.plant == "place":
        return _bundle(kind, images, labels, place[chosen] if attribute else None)
    return _images(kind, images, labels, strength, rng, attribute)


# Tags, and what they say where nothing is planted and where something is.
EXIF = {
    "camera": (0x010F, ("Bolt", "Acme")),
    "software": (0x0131, ("Darkroom 2", "Lightbox 7")),
    "date": (0x0132, ("2019:03:04 10:00:00", "2021:11:02 10:00:00")),
    "model": (0x0110, ("Mark II", "Mark IV")),
}


def _files(kind: Kind, strength: Strength, rng: Rng, attribute: bool, folder: Path) -> Bundle:
    """Image files in a folder for each class: what is planted is how the file was made."""
    import shutil

    from PIL import Image

    x, y = _small(kind.base.split()[1:], kind.n, rng)
    a = np.zeros(len(y), np.int64) if kind.clean else planted(y.numpy(), strength, rng)
    shutil.rmtree(folder, ignore_errors=True)
    for c in (0, 1):
        (folder / f"class{c}").mkdir(parents=True)
    lines = ["filename,label,planted"]
    for i in range(len(y)):
        pixels = Image.fromarray(x[i].permute(1, 2, 0).numpy()).resize((96, 96), Image.Resampling.BICUBIC)
        how: dict[str, Any] = {"quality": int(rng.choice([88, 90, 92]))}
        name, value = f"class{int(y[i])}/{i:05}.jpg", bool(a[i])
        if kind.plant == "quality" and value:
            how["quality"] = int(rng.choice([38, 40, 45]))
        if kind.plant == "aspect" and value:
            pixels = pixels.resize((128, 96))
        if kind.plant == "resolution" and value:
            pixels = pixels.resize((64, 64))
        if kind.plant == "format" and value:
            name, how = name.replace(".jpg", ".png"), {}
        if kind.plant == "mild" and value:
            how["quality"] = int(rng.choice([66, 70, 72]))
        if kind.plant == "letterbox":
            framed = Image.new("RGB", (128, 96), "black")
            framed.paste(pixels.resize((96, 96) if value else (128, 96)), (16 * value, 0))
            pixels = framed
        if kind.plant == "taller" and value:
            pixels = pixels.resize((96, 120))
        if kind.plant == "wider_files" and value:
            pixels = pixels.resize((108, 96))
        if kind.plant == "bars":
            framed = Image.new("RGB", (96, 128), "white")
            framed.paste(pixels.resize((96, 104) if value else (96, 128)), (0, 12 * value))
            pixels = framed
        if kind.plant == "subsampling":
            how["subsampling"] = 0 if value else 2
        if kind.plant == "webp_files" and value:
            name, how = name.replace(".jpg", ".webp"), {"quality": 88}
        if kind.plant == "larger_files" and value:
            pixels = pixels.resize((120, 120))
        if kind.plant == "bmp_files" and value:
            name, how = name.replace(".jpg", ".bmp"), {}
        if kind.plant == "tag" and value:
            how["exif"] = Image.Exif()
            how["exif"][0x0112] = 2
        if kind.plant in EXIF:
            tag, texts = EXIF[kind.plant]
            how["exif"] = Image.Exif()
            how["exif"][tag] = texts[int(value)]
        pixels.save(folder / name, **how)
        lines.append(f"{name},class{int(y[i])},{int(value)}")
    if not attribute or kind.clean:
        lines = [",".join(line.split(",")[:2]) for line in lines]
    (folder / "metadata.csv").write_text("\n".join(lines) + "\n")
    asked = {"attribute": "planted"} if attribute and not kind.clean else {}
    return load_data({"name": f"folder:{folder}", "label": "label", "size": SIDE, **asked})


# Texts


def _text(kind: Kind, strength: Strength, rng: Rng, attribute: bool) -> Bundle:
    texts, y = reviews() if kind.base == "imdb" else tweets()
    rows = np.concatenate([rng.choice(np.flatnonzero(y == c), kind.n // 2, False) for c in (0, 1)])
    rows = rng.permutation(rows)
    # Cut first: what is planted at an end must not be cut away by the tokenizer.
    chosen, y = [" ".join(texts[i].split()[:70]) for i in rows], y[rows]
    a: np.ndarray | None = None
    if kind.plant == "wrong_labels":
        y = np.where(rng.random(len(y)) < 0.1, 1 - y, y)
    elif kind.plant == "shuffled":
        a = rng.integers(0, 2, len(y))
    elif not kind.clean:
        a = planted(y, strength, rng)
        chosen = [with_plant(kind.plant, text, bool(v), rng) for text, v in zip(chosen, a, strict=True)]
        a = a if attribute else None
    given = {} if a is None else {"a": {"planted": a}}
    return from_texts(chosen, y, **given, val=0, test=0, length=128, name=kind.name)


# Tables


def _table(kind: Kind, strength: Strength, rng: Rng, attribute: bool) -> Bundle:
    import pandas as pd

    if kind.base == "copies":
        columns, y = copies(kind.n, rng)
        frame = pd.DataFrame(columns)
    else:
        whole, labels = table_base(kind.base)
        rows = rng.permutation(len(whole))[: kind.n]
        frame, y = whole.iloc[rows].reset_index(drop=True).copy(), labels[rows]
    named: np.ndarray | None = None
    sign = lambda values: np.where(values > np.median(values), "high", "low").astype(object)  # noqa: E731
    hidden: tuple[str, ...] = ()
    if kind.plant in ("unseen", "noisy_copy"):
        named = sign(frame["one"].to_numpy())
        named = np.where(rng.random(len(y)) < 0.1, np.where(named == "high", "low", "high"), named).astype(object)
        frame["clinic"], hidden = named, ("clinic",) if kind.plant == "unseen" else ()
        field = Field("clinic", named, ("clinic",))
    elif kind.plant == "legitimate":
        column = "education-num" if kind.base == "adult" else "one"
        named = sign(frame[column].to_numpy().astype(float))
        field = Field(column, named, (column,))
    elif kind.plant == "shuffled":
        named = rng.choice(np.array(["a", "b"], object), len(y))
        frame["code"], field = named, Field("code", named, ("code",))
    elif not kind.clean:
        a = planted(y, strength, rng)
        renamed = {"gaps": "hours", "shifted": "reading", "second_gaps": "visits", "minus_one": "income",
                   "reading_rounded": "reading"}  # fmt: skip
        column = renamed.get(kind.plant, kind.plant)
        noise = rng.standard_normal(len(y))
        frame[column] = {
            "clinic": np.where(a == 1, "north", "south").astype(object),
            "gaps": np.where(a == 1, np.nan, 40 + 5 * noise),
            "serial": rng.permutation(len(y)) + len(y) * a,
            "shifted": 20 + noise + 4 * a,
            "code": np.where(a == 1, rng.choice(["k1", "k2"], len(y)), rng.choice(["m1", "m2"], len(y))).astype(object),
            "batch": np.char.add(np.where(a == 1, "B", "A"), rng.integers(1, 4, len(y)).astype(str)).astype(object),
            "device": np.where(a == 1, rng.choice(["d1", "d3"], len(y)), rng.choice(["d2", "d4"], len(y))).astype(
                object
            ),
            "sensor": 5 + noise - 3.5 * a,
            "second_gaps": np.where(a == 1, np.nan, 3 + noise),
            "later": 1000 + 100 * a + rng.integers(0, 100, len(y)),
            "overlapping": 1000 + 70 * a + rng.integers(0, 100, len(y)),
            "ward": np.char.add("W", (3 * a + rng.integers(0, 3, len(y))).astype(str)).astype(object),
            "reading_rounded": np.where(a == 1, (20 + 3 * noise).round(), 20 + 3 * noise),
            "spread": noise * np.where(a == 1, 4.0, 0.5),
            "minus_one": np.where(a == 1, -1.0, 30 + 6 * noise),
            "site": np.char.add("S", (rng.integers(0, 3, len(y)) + 2 * a).astype(str)).astype(object),
            "weight": (70 + 12 * noise) * np.where(a == 1, 2.2, 1.0),
            "tenure": np.where(a == 1, 999.0, 8 + 3 * noise),
            "day": np.where(a == 1, rng.choice(["mon", "tue"], len(y)), rng.choice(["thu", "fri"], len(y))).astype(
                object
            ),
        }[kind.plant]
        if attribute:
            named = np.where(a == 1, "yes", "no").astype(object)
            field = Field("planted", named, ())
    label = Field("label", np.where(y == 1, "one", "zero").astype(object), ())
    split = np.full(len(y), "train", object)
    fields = [field] if named is not None and (attribute or kind.clean) else []
    samples = tables.Samples(frame.drop(columns=list(hidden)), label, fields, split)
    return tables.to_bundle(kind.name, samples, tables.Inputs(keep=("serial",)))
