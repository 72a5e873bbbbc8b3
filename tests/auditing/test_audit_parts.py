"""Slices, suspicious rows, galleries, pictures and charts of an audit."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import fisher_exact
from torch import nn

from spurless.auditing import gallery, slices
from spurless.auditing.case import Case, make_case
from spurless.auditing.gather import Cue
from spurless.auditing.judge import of_cue, strange
from spurless.auditing.model import plain_case
from spurless.auditing.slices import find_slices, picture_measures, told
from spurless.auditing.suspects import Suspect, against_the_rest, crispness
from spurless.auditing.verdict import doubt, headline
from spurless.core.data import Bundle, Images, Split, Table
from spurless.core.errors import UserError
from spurless.core.stats import wilson
from spurless.metrics import attribution
from spurless.nets import Net
from spurless.registry import load_data
from spurless.train.fit import fit

CPU = torch.device("cpu")
WEIRD = ("<script>alert(1)</script>", "a \"b\" 'c' [red]", "naïve\n☃", "bad \udcff byte.png")


def case_of(x, y, wrong=None, features=None, a=None, names=None, net=None, classes=(), **fields):
    """A case in which the model is right except where `wrong`, and then says the next class."""
    held = Split(x, y, a, names)
    number = len(classes) or int(y.max()) + 1
    predicted = y if wrong is None else torch.where(wrong, (y + 1) % number, y)
    logits = torch.nn.functional.one_hot(predicted, number).float() * 3
    data = Bundle("made", held, held, held, classes=tuple(classes), **fields)
    net = net or Net(nn.Flatten(), nn.Linear(x[0].numel(), number))
    features = torch.zeros(len(y), 2) if features is None else features
    return Case(data, net.eval(), "given", held, "test", CPU, logits, features)


def planted(seed=0, n=200, size=30, classes=("land", "water"), **fields):
    """Rows of class 1 that lie apart and are mostly wrong; elsewhere one row in twenty is wrong, anywhere."""
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(2 * n) % 2
    inside = torch.zeros(2 * n, dtype=torch.bool)
    inside[(y == 1).nonzero()[:, 0][torch.randperm(n, generator=g)[:size]]] = True
    features = torch.randn(2 * n, 8, generator=g)
    features[inside, 3] += 8
    wrong = torch.rand(2 * n, generator=g) < torch.where(inside, 0.8, 0.05)
    return y, inside, features, wrong, g


def pictures(y, inside, how, g):
    """Noise with a white bar in the middle; inside, with one thing about it changed."""
    x = torch.randint(0, 60, (len(y), 3, 12, 12), generator=g, dtype=torch.uint8)
    x[..., 5:7] = 180
    if how == "left":
        x[inside] = x[inside].roll(-5, dims=3)
    elif how == "red":
        x[inside, 0] += 50
    elif how == "dark":
        x[inside] //= 2
    return x


# Slices


def test_a_planted_slice_is_found_and_named():
    y, inside, features, wrong, g = planted()
    ground = torch.where(inside, torch.rand(len(y), generator=g) < 0.9, torch.rand(len(y), generator=g) < 0.1).long()
    noise = torch.randint(0, 3, (len(y),), generator=g)
    case = case_of(
        torch.zeros(len(y), 4), y, wrong, features, torch.stack([noise, ground], 1), classes=("landbird", "waterbird"),
        attributes=("weather", "place"), values=(("sun", "rain", "snow"), ("water", "land")),
    )  # fmt: skip
    (found,) = find_slices(case)
    rows = torch.tensor(found["rows"])
    assert found["class"] == "waterbird" and found["size"] == len(rows)
    assert len(set(found["rows"]) & set(inside.nonzero()[:, 0].tolist())) >= 28 and len(rows) <= 32
    right = int((~wrong[rows]).sum())
    assert found["accuracy"]["value"] == pytest.approx(100 * right / len(rows)) and found["accuracy"]["n"] == len(rows)
    assert [found["accuracy"][k] / 100 for k in ("low", "high")] == pytest.approx(wilson(right, len(rows)))
    assert found["elsewhere"]["n"] == 200 - len(rows) and found["elsewhere"]["value"] > 85
    shares = [round(100 * float(ground[i].double().mean())) for i in (inside, (y == 1) & ~inside)]
    assert found["words"] == [f"place = land: {shares[0]} % here, {shares[1]} % elsewhere in the class"]


def test_p_values_are_fishers_corrected_for_all_slices_of_all_classes():
    y, _, features, wrong, _ = planted(seed=3)
    case = case_of(torch.zeros(len(y), 4), y, wrong, features)
    (found,) = find_slices(case)
    tried = sum(len(slices._clusters(case, label)) for label in (0, 1))
    rest = sorted(set((y == 1).nonzero()[:, 0].tolist()) - set(found["rows"]))
    table = [[int(wrong[i].sum()), int((~wrong[i]).sum())] for i in (found["rows"], rest)]
    assert tried > 8  # both classes are put into several
    assert found["p"] == pytest.approx(tried * fisher_exact(table, alternative="greater").pvalue, rel=1e-6)


@pytest.mark.parametrize("blobs", [1, 6])
def test_noise_has_no_slices(blobs):
    """Errors that have nothing to do with the features, in one cloud or several, at different rates in each class."""
    false = 0
    for seed in range(20):
        g = torch.Generator().manual_seed(seed)
        y = torch.randint(0, 4, (800,), generator=g)
        features = torch.randn(800, 16, generator=g)
        features += 6 * torch.randn(blobs, 16, generator=g)[torch.randint(0, blobs, (800,), generator=g)]
        wrong = torch.rand(800, generator=g) < torch.tensor([0.05, 0.1, 0.3, 0.5])[y]
        false += bool(find_slices(case_of(torch.zeros(800, 4), y, wrong, features)))
    assert false <= 1


def test_slices_are_the_same_again_whatever_the_threads():
    y, _, features, wrong, _ = planted(seed=1)
    case = case_of(torch.zeros(len(y), 4), y, wrong, features)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        first = find_slices(case)
        torch.set_num_threads(2)
        assert first and find_slices(case) == first
    finally:
        torch.set_num_threads(threads)


def test_worst_first_and_no_more_than_asked():
    parts = [planted(seed) for seed in (0, 1)]
    y = torch.cat([p[0] + 2 * i for i, p in enumerate(parts)])
    wrong = torch.cat([p[3] | (p[1] if i else False) for i, p in enumerate(parts)])  # in the second, all inside
    case = case_of(torch.zeros(len(y), 4), y, wrong, torch.cat([p[2] for p in parts]))
    both = find_slices(case)
    assert [s["class"] for s in both] == ["3", "1"]
    assert both[0]["accuracy"]["value"] < both[1]["accuracy"]["value"]
    assert find_slices(case, most=1) == both[:1]


def test_rows_beyond_the_cap_are_in_their_slice_too(monkeypatch):
    y, inside, features, wrong, _ = planted(n=400, size=80)
    monkeypatch.setattr(slices, "FIT_ROWS", 100)
    found = [row for s in find_slices(case_of(torch.zeros(len(y), 4), y, wrong, features)) for row in s["rows"]]
    assert len(set(found) & set(inside.nonzero()[:, 0].tolist())) >= 72


def test_a_class_that_is_all_right_all_wrong_small_or_not_finite_has_no_slices():
    y, _, features, wrong, _ = planted()
    x = torch.zeros(len(y), 4)
    assert find_slices(case_of(x, y, torch.zeros_like(wrong), features)) == []
    assert find_slices(case_of(x, y, torch.ones_like(wrong), features)) == []
    assert find_slices(case_of(x[:8], y[:8], wrong[:8] | (torch.arange(8) == 1), features[:8])) == []
    assert find_slices(case_of(x, y, wrong, features / 0)) == []
    holed = features.clone()
    holed[0] = float("nan")
    assert len(find_slices(case_of(x, y, wrong, holed))) == 1


# Words


@pytest.mark.parametrize(
    ("how", "words", "not_said"),
    [
        ("left", "object further left", ("more red", "brighter")),
        ("red", "more red", ("object", "less red")),
        ("dark", "darker", ("object", "brighter")),
        ("none", None, ("",)),
    ],
)
def test_pictures_without_attributes_are_told_by_how_they_look(how, words, not_said):
    y, inside, features, wrong, g = planted()
    (found,) = find_slices(case_of(pictures(y, inside, how, g), y, wrong, features))
    assert words is None or any(text.startswith(f"{words}: ") for text in found["words"])
    assert not any(text.startswith(not_said) for text in found["words"])


def test_what_is_measured_of_a_picture():
    def measured(x):
        return dict(zip((more for _, more in slices.MEASURES), picture_measures(x)[0].tolist(), strict=False))

    bar = torch.zeros(1, 1, 8, 8)
    bar[..., 6:, 0:2] = 1.0
    corner = measured(bar)
    assert "more red" not in corner and corner["brighter"] == pytest.approx(4 / 64)
    assert corner["object further right"] == pytest.approx(1 / 8, abs=1e-3)  # the middle of columns 0 and 1 of 8
    assert corner["object lower down"] == pytest.approx(7 / 8, abs=1e-3)
    fine = torch.arange(8).view(1, 1, 1, 8).expand(1, 1, 8, 8) % 2 * 1.0
    coarse = (torch.arange(8).view(1, 1, 1, 8).expand(1, 1, 8, 8) >= 4) * 1.0
    assert measured(fine)["more contrast"] == measured(coarse)["more contrast"] == 0.5
    assert measured(fine)["more fine detail"] > 3 * measured(coarse)["more fine detail"]
    assert picture_measures(torch.zeros(2, 3, 1, 1)).isfinite().all()


def test_noise_is_seldom_told():
    told_of = 0
    for seed in range(20):
        g = torch.Generator().manual_seed(seed)
        x = torch.rand(150, 9, generator=g)
        told_of += bool(told(x[:10], x[10:], slices.MEASURES))
    assert told_of <= 2


@pytest.mark.parametrize("columns", [None, ("age", "height", "married", WEIRD[0]), ("too", "few")])
def test_tables_are_told_by_their_columns(columns):
    y, inside, features, wrong, g = planted()
    x = torch.randn(len(y), 4, generator=g)
    x[inside, 1] -= 3
    x[:, 2] = (torch.rand(len(y), generator=g) < torch.where(inside, 0.95, 0.2)).float()
    (found,) = find_slices(case_of(x, y, wrong, features, inputs=Table(columns or ())))
    height, married = ("height", "married") if columns and len(columns) == 4 else ("column 2", "column 3")
    assert {text.split(":")[0] for text in found["words"]} == {f"lower {height}", married}
    share = round(100 * float(x[found["rows"], 2].double().mean()))
    assert any(text.startswith(f"{married}: {share} % here, ") for text in found["words"])


def test_what_rows_are_taken_for_is_told_only_of_several_classes():
    y, _, features, wrong, _ = planted()
    x = torch.zeros(len(y), 4, dtype=torch.long)  # numbers of words, of which more or less means nothing
    (found,) = find_slices(case_of(x, y, wrong, features, classes=("one", "two", WEIRD[0])))
    assert len(found["words"]) == 1 and found["words"][0].startswith(f"predicted as {WEIRD[0]}: ")
    (found,) = find_slices(case_of(x, y, wrong, features))
    assert found["words"] == []


# Suspicious rows and galleries


def test_suspicious_rows_are_ranked_and_keep_their_numbers():
    y = torch.tensor([0, 1, 2, 0, 1, 2, 0])
    score = torch.tensor([0.2, 0.9, float("nan"), 0.0, 0.9, 0.95, float("inf")])
    says = torch.tensor([1, 2, 0, 0, -1, 0, 0])
    case = case_of(torch.zeros(7, 4), y, y == 1, classes=("a", "b", "c"))
    found = gallery.suspicious_rows(case, says, score)
    assert [(r["rank"], r["row"], r["label"], r["prediction"], r["says"]) for r in found] == [
        (1, 5, "c", "c", "a"), (2, 1, "b", "c", "c"), (3, 4, "b", "c", None), (4, 0, "a", "a", "b")
    ]  # fmt: skip
    assert found[0]["score"] == 0.95 and found[0]["split"] == "test" and found[0]["name"] == "sample 5"
    assert [r["row"] for r in gallery.suspicious_rows(case, None, score, most=2)] == [5, 1]
    assert {r["says"] for r in gallery.suspicious_rows(case, None, score)} == {None}


def test_weird_names_stay_as_they_are_and_can_be_written():
    y = torch.tensor([0, 1, 0, 1])
    case = case_of(torch.zeros(4, 3, 6, 6, dtype=torch.uint8), y, names=WEIRD, classes=WEIRD[:2])
    found = gallery.suspicious_rows(case, 1 - y, torch.tensor([0.4, 0.3, 0.2, 0.1]))
    assert [r["name"] for r in found] == [*WEIRD[:3], "bad \\udcff byte.png"]
    assert found[0]["label"] == WEIRD[0] and found[0]["says"] == WEIRD[1]
    shown = gallery.galleries(case, y == 1, torch.ones(4))
    assert json.dumps([found, shown], ensure_ascii=False).encode("utf-8")


def test_galleries_put_typical_rows_against_the_most_suspicious():
    g = torch.Generator().manual_seed(0)
    y = torch.arange(90) % 3
    features = torch.randn(90, 4, generator=g)
    against = (torch.rand(90, generator=g) < 0.3) & (y != 1)
    wrong, score = torch.rand(90, generator=g) < 0.3, torch.rand(90, generator=g)
    case = case_of(torch.zeros(90, 1, 6, 6, dtype=torch.uint8), y, wrong, features, classes=("x", "y", "z"))
    found = gallery.galleries(case, against, score, each=4)
    counts = {c: int((against & (y == k)).sum()) for k, c in enumerate("xyz")}
    assert [f["class"] for f in found] == sorted("xz", key=lambda c: -counts[c])
    assert gallery.galleries(case, against, score, each=4, most_classes=1) == found[:1]
    for f in found:
        own = y == "xyz".index(f["class"])
        usual = own & ~wrong & ~against
        centre = features[usual].mean(0)
        nearest = sorted(usual.nonzero()[:, 0].tolist(), key=lambda r: float((features[r] - centre).norm()))
        highest = sorted((own & against).nonzero()[:, 0].tolist(), key=lambda r: -float(score[r]))
        assert [i["row"] for i in f["aligned"]] == nearest[:4]
        assert [i["row"] for i in f["conflicting"]] == highest[:4]
    assert gallery.galleries(case, torch.zeros(90, dtype=torch.bool), score) == []


# Pictures


def numbered(n=40, channels=3, side=20):
    """Images that say which row they are: the blue channel's level is the row's number."""
    x = torch.randint(0, 255, (n, channels, side, side), dtype=torch.uint8)
    x[:, -1] = torch.arange(n, dtype=torch.uint8)[:, None, None]
    return x, torch.arange(n) % 3


def conv(channels=3, classes=3):
    return Net(
        nn.Sequential(nn.Conv2d(channels, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        nn.Linear(4, classes),
    )


def opened(folder, path):
    with Image.open(folder / path) as image:
        assert image.format == "PNG"
        return np.asarray(image)


@pytest.mark.parametrize("net", ["conv", "linear"])
def test_thumbnails_are_of_the_right_rows(net, tmp_path):
    x, y = numbered()
    case = case_of(x, y, net=conv() if net == "conv" else None)
    rows = [17, 3, 39, 3, 0]
    drawn = gallery.draw(case, rows, tmp_path)
    assert set(drawn) == set(rows)
    for row, (picture, heat) in drawn.items():
        assert (picture, heat) == (f"pictures/{row}.png", f"pictures/{row}-map.png")
        assert np.array_equal(opened(tmp_path, picture), x[row].permute(1, 2, 0).numpy())
        assert opened(tmp_path, heat).shape == (20, 20, 3)
    assert len(list((tmp_path / "pictures").iterdir())) == 8
    found = gallery.with_pictures(gallery.suspicious_rows(case, None, (torch.arange(40) == 17) * 1.0), drawn)
    assert [(r["row"], r["picture"], r["map"]) for r in found] == [(17, *drawn[17])]


def test_large_pictures_become_small_and_keep_their_shape(tmp_path):
    x = torch.zeros(3, 1, 100, 300, dtype=torch.uint8)
    drawn = gallery.draw(case_of(x, torch.arange(3), net=conv(1)), [1], tmp_path, size=96)
    assert opened(tmp_path, drawn[1][0]).shape == (32, 96) and opened(tmp_path, drawn[1][1]).shape == (32, 96, 3)
    slow = case_of(x, torch.arange(3))  # no convolution: maps of large pictures would take long
    assert gallery.draw(slow, [1], tmp_path)[1] == ("pictures/1.png", None)


def test_maps_are_of_what_the_model_says_and_of_what_it_sees(tmp_path, monkeypatch):
    x, y = numbered()
    case = case_of(x, y, wrong=y == 1, net=conv(), inputs=Images((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)))
    asked = []
    real = attribution.attribute
    monkeypatch.setattr(
        attribution, "attribute", lambda n, x, t, h, **s: asked.append((x, t, h)) or real(n, x, t, h, **s)
    )
    drawn = gallery.draw(case, [7, 1], tmp_path)
    seen, target, how = asked[0]
    assert how == "gradcam" and target.tolist() == [2, 2]  # both are of class 1 and taken for 2
    torch.testing.assert_close(seen, (x[[1, 7]].float() / 255 - 0.5) / 0.25)
    own = real(case.net, seen[1:], 2)
    assert np.array_equal(
        opened(tmp_path, drawn[7][1]), gallery.spotlight(x[7], own[0]).permute(1, 2, 0).numpy()
    )  # and not that of row 1
    assert all(not module._forward_hooks and not module.training for module in case.net.modules())


@pytest.mark.parametrize("error", [UserError("captum is not here"), RuntimeError("cannot"), NotImplementedError()])
def test_an_audit_does_not_fail_for_a_map(error, tmp_path, monkeypatch, capsys):
    def fail(*args, **settings):
        raise error

    monkeypatch.setattr(attribution, "attribute", fail)
    x, y = numbered()
    assert gallery.draw(case_of(x, y, net=conv()), [1, 2], tmp_path) == {
        1: ("pictures/1.png", None), 2: ("pictures/2.png", None)
    }  # fmt: skip
    assert capsys.readouterr().err.count("No attribution maps") == 1


class Broken:
    """Rows of which one can no longer be read."""

    def __init__(self, x):
        self.x, self.shape, self.dtype = x, tuple(x.shape), x.dtype

    def __len__(self):
        return len(self.x)

    def __getitem__(self, idx):
        if 5 in idx:
            raise OSError("gone")
        return self.x[idx]


def test_a_picture_that_is_gone_is_left_out(tmp_path, capsys):
    x, y = numbered()
    case = case_of(Broken(x), y, net=conv(), names=[f"cat/{i}.png" for i in range(40)])
    drawn = gallery.draw(case, [4, 5, 6], tmp_path)
    assert sorted(drawn) == [4, 6] and all(heat for _, heat in drawn.values())
    assert np.array_equal(opened(tmp_path, drawn[6][0]), x[6].permute(1, 2, 0).numpy())
    assert "cat/5.png" in capsys.readouterr().err


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, 5.0), (2.0, 2.0)])
def test_pictures_of_numbers(low, high, tmp_path):
    x = torch.full((3, 3, 4, 4), low)
    x[:, :, 2:] = high
    drawn = gallery.draw(case_of(x, torch.arange(3)), [0], tmp_path)
    pixels = opened(tmp_path, drawn[0][0])
    assert (pixels[:2] == 0).all() and (pixels[2:] == (255 if high > low else 0)).all()


def test_tables_have_no_pictures(tmp_path):
    y, _, features, wrong, _ = planted()
    case = case_of(torch.zeros(len(y), 4), y, wrong, features)
    assert gallery.draw(case, [1, 2], tmp_path) == {} and not list(tmp_path.iterdir())
    shown = gallery.galleries(case, wrong, torch.ones(len(y)))
    assert shown and all(i["picture"] is None for g in shown for k in ("aligned", "conflicting") for i in g[k])
    assert gallery.suspicious_rows(case, None, wrong * 1.0)[0]["picture"] is None


# Charts


def test_a_histogram_counts_every_row_once():
    g = torch.Generator().manual_seed(0)
    score, candidates = torch.rand(500, generator=g), torch.rand(500, generator=g) < 0.2
    score[:3] = torch.tensor([0.0, 1.0, float("nan")])
    found = gallery.histogram(score, candidates)
    known = score.isfinite()
    for key, mask in (("aligned", ~candidates), ("conflicting", candidates)):
        assert found[key] == np.histogram(score[known & mask].double().numpy(), found["edges"])[0].tolist()
    assert sum(found["aligned"]) + sum(found["conflicting"]) == 499 and len(found["edges"]) == len(found["aligned"]) + 1
    assert gallery.histogram(torch.tensor([float("nan")]), torch.tensor([True])) is None


def test_the_map_has_each_row_with_its_own_label_and_group():
    g = torch.Generator().manual_seed(0)
    y, group = torch.randint(0, 2, (300,), generator=g), torch.randint(0, 2, (300,), generator=g)
    features = torch.randn(300, 5, generator=g)
    features[:, 0] += 40 * y
    features[:, 1] += 40 * group
    case = case_of(torch.zeros(300, 4), y, y == 1, features, classes=WEIRD[:2])
    found = gallery.map2d(case, group, WEIRD[2:], most=120)
    assert found["labels"] == list(WEIRD[:2]) and found["groups"] == list(WEIRD[2:]) and "120" in found["how"]
    points = torch.tensor(found["points"])
    assert points.shape == (120, 4)
    apart = torch.cdist(points[:, :2], points[:, :2]).fill_diagonal_(torch.inf)
    assert torch.equal(points[apart.argmin(1), 2:], points[:, 2:])  # four clouds, one for each pair
    assert gallery.map2d(case, group, WEIRD[2:], most=120) == found
    by_errors = gallery.map2d(case, None, (), most=50)
    assert by_errors["groups"] == ["right", "wrong"] and all(p[2] == p[3] for p in by_errors["points"])
    known = replace(case, held=replace(case.held, a=group[:, None]), data=replace(case.data, values=(("in", "out"),)))
    assert gallery.map2d(known, None, (), most=50)["groups"] == ["in", "out"]
    assert gallery.map2d(replace(case, features=features / 0), None, ()) is None
    assert gallery.map2d(case_of(torch.zeros(3, 4), torch.arange(3)), None, ()) is None


# On real digits


@pytest.fixture(scope="module")
def digits():
    """A model that learned colours, and digits of which one in twenty has another colour than its kind."""
    data = load_data({"name": "colored_digits", "rho": 0.05})
    train, held = (
        Split(data.train.x[part], data.train.y[part], data.train.a[part]) for part in (slice(1500), slice(1500, None))
    )
    data = replace(data, train=train, val=held)
    found = fit("erm", data, recipe=replace(data.recipe, epochs=4), device="cpu", progress=False)
    return make_case(data, found.classifier, "trained for this audit", "val", CPU)


def test_slices_of_digits_hold_the_wrong_colours(digits):
    found = find_slices(digits)
    rows = torch.tensor([row for s in found for row in s["rows"]])
    conflicting = digits.held.a[:, 0] != digits.held.y
    assert len(found) >= 3 and float(conflicting.float().mean()) < 0.07
    assert float(conflicting[rows].float().mean()) > 0.5
    assert all(any(text.startswith("color = ") for text in s["words"]) for s in found[:3])
    blind = replace(digits, held=digits.held.blinded())
    assert [s["rows"] for s in find_slices(blind)] == [s["rows"] for s in found]
    colours = ("more red", "less red", "more green", "less green", "more blue", "less blue")
    assert sum(any(text.startswith(colours) for text in s["words"]) for s in find_slices(blind)[:3]) >= 2


def test_what_belongs_to_most_classes_is_told_as_a_question():
    score = {"value": 99.0, "low": 98.0, "high": 99.6, "n": 500}
    none = torch.zeros(0)
    turned, light = (
        Suspect("x", words, kind, score, 50.0, 0.98, None, none, none, none, verdict="available")
        for words, kind in (("how the object is turned", "place"), ("the brightness of the image", "light"))
    )
    sentences = [headline("available", suspect, None, 9) for suspect in (turned, light)]
    assert sentences[0].startswith("How the object is turned gives the label away")
    assert "only you can say" in sentences[0]
    assert sentences[1].startswith("This data lets a model cheat: the brightness of the image")


def test_a_cue_is_crisp_if_it_is_as_sure_where_it_misleads():
    sure, near = [[0.9, 0.1], [0.1, 0.9]], [[0.52, 0.48], [0.48, 0.52]]
    agrees = torch.tensor([True] * 40 + [False] * 10)
    planted = crispness(torch.tensor(sure * 25), agrees)
    belongs = crispness(torch.tensor(sure * 20 + near * 5), agrees)
    assert planted == 1.0 and belongs is not None and belongs < 0.2
    assert crispness(torch.tensor(sure * 25), torch.ones(50, dtype=torch.bool)) is None
    # Of one class against many, it does not matter how near the others are to each other.
    many = torch.tensor([[0.8, 0.1, 0.1], [0.1, 0.46, 0.44], [0.1, 0.2, 0.7]])
    assert torch.equal(against_the_rest(many, 0), torch.tensor([[0.8, 0.1], [0.1, 0.46], [0.1, 0.7]]))


def test_of_a_few_samples_nothing_can_be_told():
    case = plain_case(load_data({"name": "toy", "n": 600}), 0, torch.device("cpu"))[0]
    assert doubt(case, True) is None
    told = doubt(replace(case, held=Split(case.held[torch.arange(40)], case.held.y[:40])), True)
    assert told is not None and told.says.startswith("Only 40 samples") and "100" in told.advice


def test_several_words_at_once_take_more_harm_and_many_more_certainty():
    def judged(gap, several, crisp=1.0):
        y = torch.zeros(40, dtype=torch.long)
        case = Case.__new__(Case)
        s = Suspect("words", "words", "text", {"value": 90.0}, 50.0, 0.7, None, y, y == 0, torch.arange(40))
        s.used = {"p": 1e-6, "effect": {"low": 40.0}}
        s.harm = {"gap": {"value": gap}, "p": 1e-6, "balanced": None}
        s.extra = {"cue": Cue("words", "words", "text", several=several), "crisp": crisp}
        return of_cue(case, s)

    assert judged(22.0, 1) == "found" and judged(22.0, 4) == "available" and judged(60.0, 4) == "found"
    assert judged(60.0, 12) == "found" and judged(60.0, 12, crisp=0.93) == "no evidence"


def test_only_cues_in_which_hardly_any_classes_differ_are_strange():
    y = torch.zeros(4, dtype=torch.long)
    named = lambda name, strength: Suspect(name, name, "light", {"value": 99.0}, 50.0, strength, None, y, y == 0, y)  # noqa: E731
    assert strange(named("colour balance", 0.55)) and not strange(named("colour balance", 0.54))
    assert not strange(named("a part at the top", 1.0))
