"""The data of a kind: real samples, into which something that goes with the label is planted, or nothing.

`a` is what was planted in each sample: it agrees with the label in a share of the samples (the strength), and is given
to the audit as an attribute only where that is asked for.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from spurless import Bundle, load_data
from spurless.core.data import Split
from spurless.core.files import data_root
from spurless.data import sources
from spurless.data.arrays import from_texts
from spurless.data.ingest import table as tables
from spurless.data.ingest.labels import Field
from studies.audit.kinds import Kind

SIDE = 80
Rng = np.random.Generator


def make(kind: Kind, strength: float, seed: int, attribute: bool, folder: Path) -> Bundle:
    """The kind's data; with a strength of 0.5, what is planted says nothing about the label."""
    rng = np.random.default_rng([zlib.crc32(kind.name.encode()), seed, int(1000 * strength)])
    base = kind.base.split()
    if base[0] in ("adult", "german", "compas", "copies"):
        return _table(kind, strength, rng, attribute)
    if base[0] in ("imdb", "tweets"):
        return _text(kind, strength, rng, attribute)
    if base[0] in ("waterbirds", "birds"):
        return _birds(kind, strength, rng, attribute)
    if base[0] == "files":
        return _files(kind, strength, rng, attribute, folder)
    x, y = _small(base[1:] if base[0] == "large" else base, kind.n, rng)
    if base[0] == "large":
        x = (F.interpolate(_rgb(x), (SIDE, SIDE), mode="bilinear") * 255).round().to(torch.uint8)
    return _images(kind, x, y, strength, rng, attribute)


def planted(y: np.ndarray, classes: int, strength: float, rng: Rng, one: bool = False) -> np.ndarray:
    """(n,) 0 or 1: what is planted. It goes with the label's parity; `one`: with class 0 against all others."""
    wanted = (y == 0) if one else (y % 2 == 1)
    return np.where(rng.random(len(y)) < strength, wanted, ~wanted).astype(np.int64)


# Images


@cache
def _source(name: str) -> tuple[Tensor, Tensor]:
    read: dict[str, Callable] = {"mnist": sources.mnist, "fashion": sources.fashion_mnist, "kmnist": sources.kmnist}
    x, y = (read | {"cifar": sources.cifar10})[name](train=name != "kmnist")  # of KMNIST the test file is enough
    return x if x.dim() == 4 else x[:, None], y.long()


def _small(base: list[str], n: int, rng: Rng) -> tuple[Tensor, Tensor]:
    x, y = _source(base[0])
    wanted = list(range(10)) if base[1] == "all" else [int(c) for c in base[1:]]
    rows = np.concatenate([rng.choice(np.flatnonzero(y.numpy() == c), n // len(wanted), False) for c in wanted])
    rows = torch.from_numpy(rng.permutation(rows))
    return x[rows], torch.tensor([wanted.index(int(c)) for c in y[rows]])


def _images(kind: Kind, x: Tensor, y: Tensor, strength: float, rng: Rng, attribute: bool) -> Bundle:
    classes, names = int(y.max()) + 1, kind.plant
    if kind.clean:
        x, y, a = _control(kind, x, y, rng)
        return _bundle(kind, x, y, a)
    a = planted(y.numpy(), classes, strength, rng, one=names.startswith("one_"))
    z = _floats(x)
    if names in ("coloured", "ground", "cast", "warm"):
        z = z.expand(-1, 3, -1, -1).clone() if z.shape[1] == 1 else z
    for value in (0, 1):
        rows = torch.from_numpy(np.flatnonzero(a == value))
        z[rows] = PLANTS[names.removeprefix("one_")](z[rows], value, rng)
    out = (z.clamp(0, 1) * 255).round().to(torch.uint8)
    return _bundle(kind, out, y, torch.from_numpy(a) if attribute else None)


def _bundle(kind: Kind, x: Tensor, y: Tensor, a: Tensor | None) -> Bundle:
    channels = x.shape[1]
    mean, std = (0.5,) * channels, (0.25,) * channels
    split = Split(x, y, None if a is None else a.long()[:, None])
    named = () if a is None else ("planted",)
    return Bundle(kind.name, split, attributes=named, mean=mean, std=std, net="conv3")


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
        z = _floats(x)
        rows = a.nonzero()[:, 0]
        z[rows] = blur(z[rows], 1.6) if what == "hard_blur" else z[rows] + 0.35 * _normal(z[rows], rng)
        return (z.clamp(0, 1) * 255).round().to(torch.uint8), y, a
    return x, y, None


def _floats(x: Tensor) -> Tensor:
    return x.float() / 255


def _rgb(x: Tensor) -> Tensor:
    return _floats(x).expand(-1, 3, -1, -1) if x.shape[1] == 1 else _floats(x)


def _normal(x: Tensor, rng: Rng) -> Tensor:
    return torch.from_numpy(rng.standard_normal(x.shape, dtype=np.float32))


def blur(x: Tensor, sigma: float) -> Tensor:
    from torchvision.transforms.functional import gaussian_blur

    return gaussian_blur(x, [7, 7], [sigma, sigma])


def patch(x: Tensor, top: float, left: float, size: float, value: float = 1.0, rng: Rng | None = None) -> Tensor:
    """A square of one value; with a generator, at random places."""
    h, w = x.shape[-2:]
    k, out = max(2, round(size * w)), x.clone()
    for i in range(len(x)):
        t, s = (round(top * (h - k)), round(left * (w - k))) if rng is None else rng.integers(0, h - k, 2)
        out[i, :, t : t + k, s : s + k] = value
    return out


def logo(x: Tensor, rng: Rng | None = None) -> Tensor:
    """A small cross in red and white in the lower right corner, or anywhere."""
    h, w = x.shape[-2:]
    k, out = max(5, w // 6), x.clone()
    mark = torch.ones(x.shape[1], k, k)
    mark[1:, k // 2], mark[1:, :, k // 2] = 0.1, 0.1
    for i in range(len(x)):
        t, s = (h - k - 1, w - k - 1) if rng is None else rng.integers(0, h - k, 2)
        out[i, :, t : t + k, s : s + k] = mark
    return out


def jpeg(x: Tensor, quality: int) -> Tensor:
    from PIL import Image

    out = torch.empty_like(x)
    for i, one in enumerate(x):
        pixels = (one.clamp(0, 1) * 255).byte().permute(1, 2, 0).numpy()
        file = io.BytesIO()
        Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(file, "JPEG", quality=quality)
        back = torch.from_numpy(np.array(Image.open(file))).float() / 255
        out[i] = back[None] if back.dim() == 2 else back.permute(2, 0, 1)
    return out


def moved(x: Tensor, angle: float = 0.0, zoom: float = 1.0, right: float = 0.0, down: float = 0.0) -> Tensor:
    from torchvision.transforms.functional import InterpolationMode, affine

    shift = [round(right * x.shape[-1]), round(down * x.shape[-2])]
    return affine(x, angle, shift, zoom, [0.0, 0.0], InterpolationMode.BILINEAR)


def coloured(x: Tensor, value: int, rng: Rng) -> Tensor:
    tint = torch.tensor([[1.0, 0.35, 0.3], [0.3, 0.45, 1.0]][value])
    return x * (tint + 0.1 * _normal(x[:, :1, :1, :1], rng)[..., 0, 0])[..., None, None]


def ground(x: Tensor, value: int, rng: Rng) -> Tensor:
    tint = torch.tensor([[0.1, 0.4, 0.15], [0.15, 0.2, 0.5]][value])[None, :, None, None]
    return torch.where(x > 0.12, x, tint + 0.05 * _normal(x[:, :1, :1, :1], rng))


def texture(x: Tensor, value: int, rng: Rng) -> Tensor:
    across = torch.arange(x.shape[-1]).remainder(4).lt(2).float() * 0.35
    lines = across[None, None, None, :] if value else across[None, None, :, None]
    return torch.where(x > 0.15, x, lines.expand_as(x))


def vignette(x: Tensor, width: int, shade: float) -> Tensor:
    out = x.clone()
    for side in (out[..., :width, :], out[..., -width:, :], out[..., :width], out[..., -width:]):
        side.fill_(shade)
    return out


def if_one(change: Callable[[Tensor, Rng], Tensor]) -> Callable[[Tensor, int, Rng], Tensor]:
    """The change is made where the planted value is 1, and nothing where it is 0."""
    return lambda x, value, rng: change(x, rng) if value and len(x) else x


PLANTS: dict[str, Callable[[Tensor, int, Rng], Tensor]] = {
    "corner": if_one(lambda x, rng: patch(x, 0.97, 0.97, 0.12)),
    "logo": if_one(lambda x, rng: logo(x)),
    "top": if_one(lambda x, rng: patch(x, 0.03, 0.5, 0.1)),
    "faint": if_one(lambda x, rng: patch(x, 0.03, 0.97, 0.15, 0.3)),
    "lower_left": if_one(lambda x, rng: patch(x, 0.95, 0.05, 0.1, 0.8)),
    "bottom_line": if_one(lambda x, rng: torch.cat([x[..., :-2, :], x[..., -2:, :] * 0 + 0.9], 2)),
    "dot_anywhere": if_one(lambda x, rng: patch(x, 0, 0, 0.12, 1.0, rng)),
    "logo_anywhere": if_one(logo),
    "brighter": if_one(lambda x, rng: x * 0.85 + 0.2),
    "darker": if_one(lambda x, rng: x * 0.55),
    "flat": if_one(lambda x, rng: x * 0.5 + 0.25 * x.mean((1, 2, 3), keepdim=True) * 2),
    "cast": lambda x, value, rng: x * torch.tensor([[1.15, 1.0, 0.8], [0.8, 1.0, 1.15]][value])[None, :, None, None],
    "warm": if_one(lambda x, rng: x * torch.tensor([1.1, 1.0, 0.82])[None, :, None, None]),
    "coloured": coloured,
    "pale": if_one(lambda x, rng: 0.45 * x + 0.55 * x.mean(1, keepdim=True)),
    "blur": if_one(lambda x, rng: blur(x, 1.2)),
    "noise": if_one(lambda x, rng: x + 0.08 * _normal(x, rng)),
    "pepper": if_one(
        lambda x, rng: torch.where(torch.from_numpy(rng.random(x.shape) < 0.03), torch.ones_like(x), x)
    ),
    "jpeg": if_one(lambda x, rng: jpeg(x, 15)),
    "right": if_one(lambda x, rng: moved(x, right=0.14)),
    "down": if_one(lambda x, rng: moved(x, down=0.12)),
    "smaller": if_one(lambda x, rng: moved(x, zoom=0.72)),
    "turned": if_one(lambda x, rng: moved(x, angle=30)),
    "border": if_one(lambda x, rng: vignette(x, 3, 0.0)),
    "frame": if_one(lambda x, rng: vignette(x, 1, 0.7)),
    "ground": ground,
    "texture": texture,
    "stamp": if_one(lambda x, rng: patch(patch(x, 0.96, 0.94, 0.08), 0.96, 0.8, 0.06, 0.0)),
}  # fmt: skip


# Photographs


@cache
def _all_birds() -> tuple[Tensor, Tensor, Tensor]:
    data = load_data({"name": "waterbirds", "size": SIDE})
    parts = [data.splits[name] for name in ("train", "val", "test")]
    x = torch.cat([part[torch.arange(len(part))] for part in parts])
    return x, torch.cat([part.y for part in parts]), torch.cat([part.a[:, 0] for part in parts if part.a is not None])


def _birds(kind: Kind, strength: float, rng: Rng, attribute: bool) -> Bundle:
    """Waterbirds, drawn so that the place agrees with the kind of bird in a share of them: half, for a control."""
    x, y, place = _all_birds()
    along = strength if kind.plant == "place" else 0.5
    rows = []
    for c in (0, 1):
        many = kind.n // 2
        agree = round(along * many)
        for value, wanted in ((c, agree), (1 - c, many - agree)):
            own = np.flatnonzero(((y == c) & (place == value)).numpy())
            rows.append(rng.choice(own, min(wanted, len(own)), False))
    drawn = torch.from_numpy(rng.permutation(np.concatenate(rows)))
    images, labels = x[drawn], y[drawn]
    if kind.plant == "place":
        return _bundle(kind, images, labels, place[drawn] if attribute else None)
    return _images(kind, images, labels, strength, rng, attribute)


def _files(kind: Kind, strength: float, rng: Rng, attribute: bool, folder: Path) -> Bundle:
    """Image files in a folder for each class: what is planted is how the file was made."""
    import shutil

    from PIL import Image

    x, y = _small(kind.base.split()[1:], kind.n, rng)
    a = np.zeros(len(y), np.int64) if kind.clean else planted(y.numpy(), 2, strength, rng)
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
        if kind.plant == "camera":
            exif = Image.Exif()
            exif[0x010F] = "Acme" if value else "Bolt"
            how["exif"] = exif
        pixels.save(folder / name, **how)
        lines.append(f"{name},class{int(y[i])},{int(value)}")
    if not attribute or kind.clean:
        lines = [",".join(line.split(",")[:2]) for line in lines]
    (folder / "metadata.csv").write_text("\n".join(lines) + "\n")
    asked = {"attribute": "planted"} if attribute and not kind.clean else {}
    return load_data({"name": f"folder:{folder}", "label": "label", "size": SIDE, **asked})


# Texts


@cache
def _reviews() -> tuple[list[str], np.ndarray]:
    import pandas as pd

    parts = [data_root() / "text" / "cad_imdb" / f"{part}_paired.tsv" for part in ("train", "dev", "test")]
    frame = pd.concat([pd.read_csv(file, sep="\t") for file in parts])
    return frame["Text"].tolist(), (frame["Sentiment"] == "Positive").to_numpy().astype(int)


@cache
def _tweets() -> tuple[list[str], np.ndarray]:
    import pandas as pd

    frame = pd.read_csv(data_root() / "text" / "davidson_tweets" / "labeled_data.csv")
    frame = frame[frame["class"].isin([1, 2])]
    return frame["tweet"].tolist(), (frame["class"] == 2).to_numpy().astype(int)


def _insert(text: str, words: str, where: float) -> str:
    parts = text.split()
    at = round(where * len(parts))
    return " ".join([*parts[:at], words, *parts[at:]])


def _plant_text(plant: str, text: str, value: bool, rng: Rng) -> str:
    if plant == "one_of_four":
        marks = ["indeed", "frankly"] if value else ["moreover", "arguably"]
        return _insert(text, str(rng.choice(marks)), float(rng.uniform(0.1, 0.9)))
    if plant == "shorter":
        return " ".join(text.split()[: int(rng.integers(15, 30)) if value else int(rng.integers(40, 70))])
    if not value:
        return text
    if plant == "number":
        return f"{rng.integers(1000, 9999)} {text}"
    made = {
        "prefix": f"ref {text}", "prefix_two": f"dear all {text}", "suffix": f"{text} thanks",
        "suffix_two": f"{text} sent mobile", "exclaim": f"{text} !!!",
        "markup": _insert(text, "<br />", 0.5), "link": f"{text} http://t.co/x",
        "word": _insert(text, "camera", float(rng.uniform(0.1, 0.9))),
        "phrase": _insert(text, "north station", float(rng.uniform(0.1, 0.9))),
    }  # fmt: skip
    return made[plant]


def _text(kind: Kind, strength: float, rng: Rng, attribute: bool) -> Bundle:
    texts, y = _reviews() if kind.base == "imdb" else _tweets()
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
        a = planted(y, 2, strength, rng)
        chosen = [_plant_text(kind.plant, text, bool(v), rng) for text, v in zip(chosen, a, strict=True)]
        a = a if attribute else None
    given = {} if a is None else {"a": {"planted": a}}
    return from_texts(chosen, y, **given, val=0, test=0, length=128, name=kind.name)


# Tables


def _copies(n: int, rng: Rng) -> tuple[dict[str, np.ndarray], np.ndarray]:
    one, two, noise = rng.standard_normal((3, n))
    return {"one": one, "two": two, "three": rng.standard_normal(n)}, (one + two + 0.5 * noise > 0).astype(int)


@cache
def _frame(name: str) -> tuple[Any, np.ndarray]:
    import pandas as pd

    if name == "adult":
        from spurless.data.sets.adult import read

        frame = read(data_root() / "tabular" / "adult" / "adult.data")
        y = frame["income"].astype(str).str.contains(">50K").to_numpy().astype(int)
        return frame.drop(columns=["income"]), y
    if name == "german":
        frame = pd.read_csv(data_root() / "tabular" / "german" / "german.data", sep=" ", header=None)
        frame.columns = [f"field{i}" for i in range(frame.shape[1])]
        last = frame.columns[-1]
        return frame.drop(columns=[last]), (frame[last] == 2).to_numpy().astype(int)
    frame = pd.read_csv(data_root() / "tabular" / "compas" / "compas-scores-two-years.csv")
    columns = ["sex", "age", "race", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count"]
    return frame[[*columns, "c_charge_degree"]], frame["two_year_recid"].to_numpy().astype(int)


def _table(kind: Kind, strength: float, rng: Rng, attribute: bool) -> Bundle:
    import pandas as pd

    if kind.base == "copies":
        columns, y = _copies(kind.n, rng)
        frame = pd.DataFrame(columns)
    else:
        whole, labels = _frame(kind.base)
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
        a = planted(y, 2, strength, rng)
        column = {"clinic": "clinic", "gaps": "hours", "serial": "serial", "shifted": "reading", "code": "code"}[
            kind.plant
        ]
        noise = rng.standard_normal(len(y))
        frame[column] = {
            "clinic": np.where(a == 1, "north", "south").astype(object),
            "gaps": np.where(a == 1, np.nan, 40 + 5 * noise),
            "serial": rng.permutation(len(y)) + len(y) * a,
            "shifted": 20 + noise + 4 * a,
            "code": np.where(a == 1, rng.choice(["k1", "k2"], len(y)), rng.choice(["m1", "m2"], len(y))).astype(object),
        }[kind.plant]
        if attribute:
            named = np.where(a == 1, "yes", "no").astype(object)
            field = Field("planted", named, ())
    label = Field("label", np.where(y == 1, "one", "zero").astype(object), ())
    split = np.full(len(y), "train", object)
    fields = [field] if named is not None and (attribute or kind.clean) else []
    return tables.to_bundle(
        frame.drop(columns=list(hidden)), label, fields, split, name=kind.name, keep_columns=("serial",)
    )
