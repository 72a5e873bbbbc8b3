"""Every cue of the audit: what is planted in one class is found and has its name, and clean data have none."""

import json
from collections.abc import Callable
from functools import cache, partial

import numpy as np
import pytest
import torch
from PIL import Image

from spurless import Bundle, audit
from spurless.auditing import marks
from spurless.auditing.cues import (
    encoded,
    middle,
    middle_of_nine,
    ranks,
    read_balance,
    read_tones,
    smoothed,
    swap_tones,
    warp,
)
from spurless.auditing.discovered import discovered
from spurless.auditing.files import NAMES, read_files
from spurless.auditing.leaks import near_duplicates, notes_of
from spurless.core.data import Images, Split
from spurless.data.arrays import from_texts
from tests.support.audits import undocumented

N = 300


def agreeing(n=N, strength=0.95, seed=0):
    """(n,) labels, and (n,) bool: which samples get what is planted."""
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    return y, torch.where(torch.rand(n, generator=g) < strength, y, 1 - y).bool()


def found_in(data):
    """The names of what a quick audit finds, the worst first."""
    return [f["name"] for f in audit(data, quick=True, progress=False, device="cpu").findings]


# Images: soft rectangles of any colour, size, place and direction, whatever the label


@cache
def scenes(side=32):
    g = torch.Generator().manual_seed(1)
    u = lambda low, high, *shape: low + (high - low) * torch.rand(N, *shape, generator=g)  # noqa: E731
    down, across = torch.meshgrid(torch.linspace(-1, 1, side), torch.linspace(-1, 1, side), indexing="ij")
    angle, cx, cy = u(-0.6, 0.6, 1, 1), u(-0.25, 0.25, 1, 1), u(-0.25, 0.25, 1, 1)
    a = (across - cx) * angle.cos() + (down - cy) * angle.sin()
    b = (down - cy) * angle.cos() - (across - cx) * angle.sin()
    inside = torch.sigmoid((u(0.25, 0.4, 1, 1) - a.abs()) * 18) * torch.sigmoid((u(0.12, 0.22, 1, 1) - b.abs()) * 18)
    ground = u(0.3, 0.6, 1, 1, 1) + u(-0.04, 0.04, 3, 1, 1)
    thing = ground + torch.where(u(0, 1, 1, 1, 1) < 0.5, 0.3, -0.25) + u(-0.08, 0.08, 3, 1, 1)
    return ground * (1 - inside[:, None]) + thing * inside[:, None]


def still(x):
    return torch.zeros(len(x))


def mark(x):
    x[..., 26:30, 26:30] = torch.tensor([1.0, 0.1, 0.1])[:, None, None]
    return x


def frame(x):
    """Darker towards the rim."""
    for k in (1, 2, 3):
        for at in (np.s_[..., :k, :], np.s_[..., -k:, :], np.s_[..., :k], np.s_[..., -k:]):
            x[at] = x[at] - 0.03
    return x


def tinted(k, x):
    x[:, k] *= 1.3
    return x


def turned_to(x):
    """Every object upright."""
    from spurless.auditing.cues import read_orientation, swap_orientation

    upright = torch.zeros_like(x[:1])
    upright[..., 4:28, 14:18] = 1.0
    assert read_orientation(upright)[0, 0] < -0.5
    return swap_orientation(x, upright.expand_as(x))


def letter(x, size=1):
    """The letter L, somewhere else in each image."""
    g = torch.Generator().manual_seed(4)
    for i in range(len(x)):
        t, s = torch.randint(0, x.shape[-1] - 5 * size, (2,), generator=g).tolist()
        x[i, :, t : t + 5 * size, s : s + 2 * size] = x[i, :, t + 3 * size : t + 5 * size, s : s + 5 * size] = 1.0
    return x


PLANTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "brightness": lambda x: x + 0.3,
    "contrast": lambda x: (x - 0.4) * 0.45 + 0.4,
    "red": partial(tinted, 0),
    "green": partial(tinted, 1),
    "blue": partial(tinted, 2),
    "saturation": lambda x: x.mean(1, keepdim=True) + 0.1 * (x - x.mean(1, keepdim=True)),
    "sharpness": lambda x: smoothed(smoothed(smoothed(x))),
    "noise": lambda x: x + 0.06 * torch.randn(x.shape, generator=torch.Generator().manual_seed(2)),
    "compression": lambda x: encoded(x, 8),
    "object position": lambda x: warp(x, torch.ones(len(x)), still(x) - 0.4, still(x) - 0.4),
    "object size": lambda x: warp(x, torch.ones(len(x)) * 0.55, still(x), still(x)),
    "object orientation": turned_to,
    "a mark in the lower right corner": mark,
    "a mark at changing places": letter,
    "margin": frame,
}
DETAIL = [PLANTS[name] for name in ("sharpness", "noise", "compression")]
ALSO = {  # names that say the same of such images, and may come first
    "object size": ("sharpness",), "red": ("saturation",), "green": ("saturation",), "contrast": ("sharpness",),
    "margin": ("brightness",), "a mark at changing places": ("sharpness",),  # by which patches were drawn
    "sharpness": ("noise", "compression"), "noise": ("sharpness",), "compression": ("noise", "sharpness"),
}  # fmt: skip


def images(plant=None):
    y, planted = agreeing()
    x = scenes().clone()
    grain = 0.02 * torch.randn(x.shape, generator=torch.Generator().manual_seed(3))  # of the camera: comes last
    if plant is not None and plant not in DETAIL:
        x[planted] = plant(x[planted].clone())
    x = (x + grain).clamp(0, 1)
    if plant in DETAIL:
        x[planted] = plant(x[planted].clone())
    return Bundle("scenes", Split((x.clamp(0, 1) * 255).byte(), y), inputs=Images((0.5,) * 3, (0.25,) * 3), net="conv3")


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_cue_of_images_is_found_and_named(name):
    names = found_in(images(PLANTS[name]))
    assert name in names and names[0] in (name, *ALSO.get(name, ())), names


@pytest.mark.parametrize("size", [1, 2])
def test_a_mark_at_changing_places_is_learnt_and_exchanged_at_any_size(size):
    x = scenes(32 * size).clone()
    y, planted = agreeing()
    x[planted] = letter(x[planted], size)
    spot = marks.search_spots(x, y, 2, 0)
    assert spot is not None and marks.search_spots(scenes(32 * size), y, 2, 0) is None
    far = -spot.read(x)[:, 0]
    assert far[planted].median() < 0.1 * far[~planted].median()
    none, has = (x[at.nonzero()[:20, 0]] for at in (~planted, planted))
    given, taken = spot.swap(none, has), spot.swap(has, none)
    assert (-spot.read(given)).median() < 0.1 * far[~planted].median() < (-spot.read(taken)).median()


def test_balance_and_tones_are_read_alike_whatever_is_in_the_image():
    g = torch.Generator().manual_seed(0)
    grain = lambda x: (x + 0.03 * torch.randn(x.shape, generator=g)).clamp(0, 1)  # noqa: E731
    plain, warm = grain(scenes()), grain(scenes()) * torch.tensor([1.2, 1.0, 0.9])[:, None, None]
    dull = 0.5 + 0.5 * grain(scenes())
    for read, changed in ((read_balance, warm), (read_tones, dull)):
        a, b = read(plain), read(changed)
        apart = (a.mean(0) - b.mean(0)).abs() / torch.maximum(a.std(0), b.std(0))
        assert apart.max() > 2, "the change is larger than how images differ"
    assert torch.allclose(read_balance(plain * 0.5), read_balance(plain), atol=0.05)
    assert swap_tones(plain, dull).amin() > plain.amin() + 0.05


def test_clean_images_have_no_cue():
    assert found_in(images()) == []


# What is discovered in features


def features(agree, n=600, seed=0):
    """Noise, in which a class and an unnamed attribute with two values have a direction each."""
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    a = torch.where(torch.rand(n, generator=g) < agree, y, 1 - y)
    z = torch.randn(n, 60, generator=g)
    z[:, :5] += 1.5 * y[:, None]
    z[:, 5:25] += 1.5 * a[:, None]
    return z, y, a


def test_an_attribute_is_discovered_once_the_class_is_taken_out():
    z, y, a = features(0.9)
    values = discovered(z, y, torch.arange(len(y)), 0)
    assert values is not None
    told = (values > values.median()) == (a == 1)
    assert max(float(told.float().mean()), 1 - float(told.float().mean())) > 0.95


def test_noise_has_no_directions_that_both_halves_find():
    z = torch.randn(600, 60, generator=torch.Generator().manual_seed(0))
    assert discovered(z, torch.arange(600) % 2, torch.arange(600), 0) is None


# Files


def write(folder, plant):
    """Pictures of one kind in a folder; those with an odd number are made in another way."""
    rng = np.random.default_rng(0)
    for i in range(12):
        odd, pixels = i % 2 == 1, rng.integers(0, 255, (32, 44, 3), dtype=np.uint8)
        picture, name, how = Image.fromarray(pixels).resize((88, 64)), f"{i}.jpg", {"quality": 90}
        if plant == "file format" and odd:
            name, how = f"{i}.png", {}
        if plant == "JPEG quality" and odd:
            how["quality"] = 40
        if plant in ("aspect ratio", "image size"):
            picture = picture.resize(((120, 64) if plant == "aspect ratio" else (176, 128)) if odd else (88, 64))
        if plant in ("camera", "date", "orientation tag"):
            how["exif"] = Image.Exif()
            tag, words = {
                "camera": (0x0110, ("Acme", "Bolt")), "date": (0x0132, ("2019:01:02", "2021:05:04")),
                "orientation tag": (0x0112, (1, 6)),
            }[plant]  # fmt: skip
            how["exif"][tag] = words[odd]
        if plant == "border" and odd:
            framed = Image.new("RGB", picture.size)
            framed.paste(picture.crop((0, 0, 60, 64)), (14, 0))
            picture = framed
        picture.save(folder / name, **how)
    return sorted((str(file) for file in folder.iterdir()), key=lambda name: int(name.split("/")[-1].split(".")[0]))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "file size"])
def test_a_property_of_files_is_read(name, tmp_path):
    values = read_files(write(tmp_path, name))[name]
    odd = torch.arange(12) % 2 == 1
    low, high = values[~odd], values[odd]
    assert float((low.mean(0) - high.mean(0)).abs().max()) > 3 * float(values[odd].std(0).max()), values


def test_files_that_are_made_alike_have_no_property_but_their_size_in_bytes(tmp_path):
    assert set(read_files(write(tmp_path, ""))) <= {"file size"}


# Texts


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """Whole words, with their capital letters."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    words = [*WORDS, *[w.capitalize() for w in WORDS], *EXTRA.split()]
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate([*special, *words])}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.add_special_tokens(special)
    made.save(str(tmp_path_factory.mktemp("cased") / "tokenizer.json"))
    return str(tmp_path_factory.getbasetemp() / "cased0")


WORDS = [a + b for a in "ba do fi gu ke lo ma ne po ru".split() for b in "l m n r s t v x z k".split()]
EXTRA = "dear all and to you of , . ! < br > http ref thanks 2024 der und ist nicht the with this have is"
TEXTS: dict[str, tuple[str, Callable[[list[str]], list[str]]]] = {
    "prefix": ("starts with 'ref'", lambda t: ["ref", *t]),
    "suffix": ("ends with 'thanks'", lambda t: [*t, "thanks"]),
    "number": ("starts with", lambda t: ["2024", *t]),
    "length": ("length", lambda t: t[:9]),
    "punctuation": ("punctuation", lambda t: [w for word in t for w in (word, ",")][: len(t)]),
    "casing": ("casing", lambda t: [w.capitalize() if w in WORDS else w for w in t]),
    "word": ("the word 'ref'", lambda t: [*t[:6], "ref", *t[6:]]),
    "n-gram": ("the phrase 'ref dear all'", lambda t: [*t[:5], "ref", "dear", "all", *t[5:]]),
    "template": ("the template", lambda t: [t[0], "dear", t[1], "all", t[2], "to", t[3], "you", t[4], "of", *t[5:9]]),
    "language": ("language", lambda t: [{"the": "der", "with": "und", "is": "ist"}.get(w, w) for w in t]),
    "one of ten": ("the words", lambda t: [*t[:6], EXTRA.split()[len("".join(t)) % 5], *t[6:]]),
    "markup": ("markup", lambda t: [*t[:4], "<", "br", ">", *t[4:7], "http", *t[7:]]),
}


def texts(tokenizer, how=None, n=240):
    g = np.random.default_rng(0)
    y, planted = agreeing(n)
    written = []
    for odd in planted.tolist():
        text = [*g.choice(WORDS, int(g.integers(11, 17)))]
        if how == "template":  # the same words in both classes, in another order
            text = [*text[:5], *g.permutation("dear all to you of".split()), *text[5:9]]
            text = TEXTS[how][1]([w for w in text if w in WORDS]) if odd else [*g.permutation(text)]
        elif how == "language":
            text = [w for word in text for w in (word, g.choice(["the", "with", "is", "have"]))][:16]
            text = TEXTS[how][1](text) if odd else text
        elif how == "one of ten":  # of five in one class, of five others in the other
            text = (
                TEXTS[how][1](text)
                if odd
                else [*text[:6], "der und ist nicht have".split()[len(written) % 5], *text[6:]]
            )
        elif how == "punctuation":
            text = TEXTS[how][1](text) if odd else text
        elif how is not None and odd:
            text = TEXTS[how][1](text)
        written.append(" ".join(text))
    return from_texts(written, y.numpy(), tokenizer=tokenizer, length=32, val=0, test=0, name="letters")


@pytest.mark.parametrize("how", TEXTS)
def test_a_planted_cue_of_texts_is_found_and_named(how, tokenizer):
    names = found_in(texts(tokenizer, how, 480 if how == "one of ten" else 240))
    assert any(name.startswith(TEXTS[how][0]) for name in names[:2]), names


def test_clean_texts_have_no_cue(tokenizer):
    assert found_in(texts(tokenizer)) == []


# Tables


def table(how=None, n=300, splits=False):
    """Numbers and words that say nothing, and a column that says the label, where one is planted."""
    import pandas as pd

    from spurless.data.ingest import table as tables
    from spurless.data.ingest.labels import Field

    g = np.random.default_rng(0)
    y, planted = (each.numpy() for each in agreeing(n))
    frame = pd.DataFrame({"age": g.normal(40, 9, n).round(1), "height": g.normal(170, 9, n).round(1)})
    frame["weight"] = g.normal(70, 9, n).round(1)
    frame["city"] = g.choice(["north", "south", "west"], n).astype(object)
    if how == "a column":
        frame["ward"] = np.where(planted, "a", "b").astype(object)
    if how == "a leak":
        frame["outcome"] = 2.0 * y + 0.01 * g.normal(size=n)
    if how == "a serial number":
        frame["case"] = g.permutation(n) + 500.0 * planted
    if how == "a time":
        frame["year"] = 2000.0 + 15 * planted + g.integers(0, 9, n)
    if how == "gaps":
        frame["dose"] = np.where(planted, np.nan, g.normal(size=n))
    split = np.where(np.arange(n) < n // 2, "train", "test").astype(object) if splits else np.full(n, "train", object)
    label = Field("label", np.where(y == 1, "one", "zero").astype(object), ())
    if how == "copies":
        frame.iloc[-40:] = frame.iloc[:40].to_numpy()
        frame.loc[n - 40 :, "age"] += 0.5
    return tables.to_bundle("made", tables.Samples(frame, label, [], split), tables.Inputs(keep=("case",)))


TABLES = {
    "a column": "ward", "a leak": "outcome", "a serial number": "case", "a time": "year", "gaps": "missing 'dose'",
}  # fmt: skip


@pytest.mark.parametrize("how", TABLES)
def test_a_planted_cue_of_tables_is_found_and_named(how):
    assert found_in(table(how))[0] == TABLES[how]


def test_the_page_of_a_table_shows_the_column_that_speaks_for_the_answer(tmp_path):
    report = audit(table("a column"), out=tmp_path, progress=False, device="cpu")
    shown = [item["text"][0] for g in report.gallery for item in g["aligned"]]
    assert shown and {text for text, _ in shown} == {"ward: a", "ward: b"} and all(w == 1.0 for _, w in shown)
    page = (tmp_path / "report.html").read_text()
    assert "What it looks like" in page and "ward: a" in page and undocumented(json.loads(report.to_json())) == []


def test_a_clean_table_has_no_cue():
    assert found_in(table()) == []


def test_a_sorted_table_is_noted_and_a_mixed_one_is_not():
    made = table()
    order = made.train.y.argsort(stable=True)
    ordered = Bundle("sorted", Split(made.train.x[order], made.train.y[order]), inputs=made.inputs)
    assert "The order of the rows gives the label away" in notes_of(ordered, [])[0] and not notes_of(made, [])


# Nearly the same in two splits


def test_rows_that_are_nearly_the_same_in_two_splits_are_counted_and_told():
    copied = near_duplicates(table("copies", splits=True))
    assert [(each["splits"], each["n"], each["of"]) for each in copied] == [(["train", "test"], 40, 150)]
    report = audit(table("copies", splits=True), quick=True, progress=False)
    assert report.duplicates == copied and any("40 of 150 samples of 'test'" in note for note in report.data["notes"])
    assert undocumented(json.loads(report.to_json())) == []
    assert near_duplicates(table(splits=True)) == []


def test_texts_that_are_nearly_the_same_in_two_splits_are_counted(tokenizer):
    made = texts(tokenizer)
    x, y = made.train.x, made.train.y
    copy = x[:30].clone()
    copy[:, 0, 3] = x[30:60, 0, 3]  # one word is another
    fresh = Bundle("t", Split(x[:120], y[:120]), test=Split(x[120:], y[120:]), inputs=made.inputs)
    copied = Bundle(
        "t", Split(x[:120], y[:120]), test=Split(torch.cat([x[120:], copy]), torch.cat([y[120:], y[:30]])),
        inputs=made.inputs,
    )  # fmt: skip
    assert near_duplicates(fresh) == []
    found = near_duplicates(copied)[0]
    assert found["n"] >= 28 and all(i == j - 120 for i, j in found["rows"])


def test_medians_and_quantiles_without_a_sort_are_those_of_a_sort():
    x = torch.rand(7, 9, 2, 5, generator=torch.Generator().manual_seed(0)).mul(20).round()  # with ties
    assert torch.equal(middle_of_nine(x), x.median(1).values)
    assert torch.equal(middle(x), x.median(0).values) and torch.equal(middle(x[:4]), x[:4].median(0).values)
    flat = x.flatten(1).sort(1).values
    assert torch.equal(ranks(x, 0.0, 0.5, 1.0), flat[:, [0, 45, 89]])
