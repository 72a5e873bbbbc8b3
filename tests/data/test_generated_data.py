"""The datasets that are drawn, not downloaded: parity, moon_star, gaussians, linear_toy and shapes."""

import colorsys
import dataclasses
import itertools
import math
from importlib import import_module

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from spurless.core.data import Bundle
from spurless.core.errors import UserError
from spurless.core.settings import resolve
from spurless.data.ingest import draw as _draw
from spurless.data.sets import linear_toy, moon_star, parity, shapes
from spurless.registry import load_data

NAMES = ("parity", "moon_star", "gaussians", "linear_toy", "shapes")
SMALL = {"n": 60, "n_val": 30, "n_test": 40}
EVERY = tuple(shapes.VALUES)


def load(name: str, **settings) -> Bundle:
    return import_module(f"spurless.data.sets.{name}").load(**{**SMALL, **settings})


def close(share: float, expected: float, n: int) -> bool:
    """Whether a share of n coins is within five standard errors of what is expected (one miss in 1.7 million)."""
    return abs(share - expected) <= 5 * math.sqrt(max(expected * (1 - expected), 1e-12) / n)


def false_alarms(p: list[float], level: float = 0.05) -> bool:
    """Whether as many p-values fall below the level as a correct test lets fall, with odds of error of 1 in 10,000."""
    low, high = stats.binom.ppf([0.5e-4, 1 - 0.5e-4], len(p), level)
    return low <= sum(value < level for value in p) <= high


# What holds for all of them


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_rows_and_another_seed_others(name):
    first, again, other = load(name), load(name), load(name, seed=1)
    for split in ("train", "val", "test"):
        a, b, c = first.splits[split], again.splits[split], other.splits[split]
        assert torch.equal(a.x, b.x)
        assert torch.equal(a.y, b.y)
        assert torch.equal(a.a, b.a)
        assert not torch.equal(a.x, c.x)


@pytest.mark.parametrize("name", NAMES)
def test_splits_come_from_streams_of_their_own(name):
    data = load(name, n=50, n_val=50, n_test=50)
    for one, two in itertools.combinations(data.splits.values(), 2):
        assert not torch.equal(one.x, two.x)
    if name in ("moon_star", "gaussians", "shapes"):  # the others have few possible rows, which may well repeat
        rows = torch.cat([s.x.flatten(1).float() for s in data.splits.values()])
        assert len(rows.unique(dim=0)) == 150


@pytest.mark.parametrize("name", NAMES)
def test_changing_the_size_of_one_split_leaves_the_others_alone(name):
    assert torch.equal(load(name).test.x, load(name, n=90, n_val=0).test.x)


@pytest.mark.parametrize("name", NAMES)
def test_shapes_and_types(name):
    data = load(name)
    assert [len(s) for s in data.splits.values()] == [60, 30, 40]
    for split in data.splits.values():
        assert split.y.dtype == split.a.dtype == torch.int64
        assert split.y.shape == (len(split),)
        assert split.a.shape == (len(split), len(data.attributes))
        assert split.x.dtype == (torch.uint8 if name in ("moon_star", "shapes") else torch.float32)
        assert 0 <= split.y.min() <= split.y.max() < len(data.classes)
        for k, values in enumerate(data.values):
            assert 0 <= split.a[:, k].min() <= split.a[:, k].max() < len(values)
    for table, values in zip(data.aligned, data.values, strict=True):
        assert table.shape == (len(data.classes), len(values))
        assert (table.sum(1) == 1).all()  # every class has one value of its own
    assert load(name, n_val=0, n_test=0).splits.keys() == {"train"}


@pytest.mark.parametrize("name", NAMES)
def test_the_registry_and_a_direct_call_give_the_same(name, tmp_path):
    by_name = load_data({"name": name, "n": 40}, root=tmp_path)
    direct = import_module(f"spurless.data.sets.{name}").load(n=40)
    assert torch.equal(by_name.train.x, direct.train.x)
    assert {**by_name.settings} == {**direct.settings, "source": name}
    assert direct.name == name


@pytest.mark.parametrize("name", NAMES)
def test_a_value_out_of_range_is_refused_from_python_too(name):
    with pytest.raises(UserError, match=r"data\.n = 0 is not allowed"):
        load(name, n=0)


# The pieces they share


def test_balanced_labels_differ_by_at_most_one():
    for n, classes in [(10, 3), (9, 3), (2, 5)]:
        count = np.bincount(_draw.balanced(_draw.stream(n, "test"), n, classes), minlength=classes)
        assert count.sum() == n
        assert count.max() - count.min() <= 1


def test_an_exact_share_is_exact_in_every_class_and_random_within_it():
    y = np.repeat([0, 1, 2], [100, 50, 7])
    picks = np.array([_draw.exact_share(_draw.stream(s, "test"), y, 0.1) for s in range(400)])
    for k, expected in enumerate([10, 5, 1]):
        assert (picks[:, y == k].sum(1) == expected).all()
        assert all(close(row, expected / (y == k).sum(), 400) for row in picks[:, y == k].mean(0))


def test_rank_in_class_matches_counting_one_by_one():
    y = _draw.stream(0, "labels").integers(4, size=200)
    rank = _draw.rank_in_class(_draw.stream(1, "ranks"), y)
    for k in range(4):
        assert sorted(rank[y == k]) == list(range((y == k).sum()))


@pytest.mark.parametrize("name", shapes.SHAPES)
def test_every_shape_lies_within_the_unit_circle_and_holds_its_centre_of_mass_near_it(name):
    side = torch.linspace(-1.5, 1.5, 601)
    v, u = torch.meshgrid(side, side, indexing="ij")
    inside = shapes.SHAPES[name](u, v) < 0
    assert torch.hypot(u, v)[inside].max() <= 1
    assert 1.05 < inside.float().mean() * 9 < 1.4  # alike in area, so that the size shows
    assert max(abs(u[inside].mean()), abs(v[inside].mean())) < 0.1  # so that the position shows


@pytest.mark.parametrize("name", shapes.SHAPES)
def test_smooth_edges_agree_with_counting_fine_points(name):
    size, fine = 24, 16
    place = {"x": torch.tensor([0.53]), "y": torch.tensor([0.41]), "radius": torch.tensor([0.33])}
    turn = torch.tensor([0.4])
    smooth = _draw.coverage(shapes.SHAPES[name], **place, turn=turn, size=size)[0]
    hits = torch.zeros(size * fine, size * fine)
    for row in range(size * fine):  # point by point along a row: no broadcasting to get wrong
        right = ((torch.arange(size * fine) + 0.5) / (size * fine) - 0.53) / 0.33
        up = torch.full_like(right, (0.41 - (row + 0.5) / (size * fine)) / 0.33)
        u = right * math.cos(0.4) + up * math.sin(0.4)
        v = -right * math.sin(0.4) + up * math.cos(0.4)
        hits[row] = (shapes.SHAPES[name](u, v) < 0).float()
    counted = hits.view(size, fine, size, fine).mean((1, 3))
    assert (smooth - counted).abs().mean() < 0.01
    assert (smooth - counted).abs().max() < 0.4  # at a sharp tip; a wrong turn or a flipped axis gives 1
    assert abs(smooth.sum() / counted.sum() - 1) < 0.02


def test_drawing_gives_the_threads_back():
    before = torch.get_num_threads()
    load("shapes")
    load("moon_star")
    assert torch.get_num_threads() == before


# parity


@pytest.mark.parametrize("coding", ["0/1", "+-1"])
def test_parity_is_the_slow_product(coding):
    data = load("parity", coding=coding, core=4, spurious=3, noise=2, n=300)
    columns = parity.columns(data)
    assert sum(len(c) for c in columns.values()) == data.shape[0] == 9
    for split in data.splits.values():
        assert set(split.x.unique().tolist()) == ({0, 1} if coding == "0/1" else {-1, 1})
        for row, y, a in zip(split.x.tolist(), split.y.tolist(), split.a[:, 0].tolist(), strict=True):
            for found, truth in [(columns["core"], y), (columns["spurious"], a)]:
                product = 1
                for i in found.tolist():
                    sign = row[i] if coding == "+-1" else (-1 if row[i] == 1 else 1)
                    product *= sign
                assert truth == (1 if product == -1 else 0)


def test_both_codings_write_the_same_bits():
    bits, signs = load("parity", coding="0/1"), load("parity", coding="+-1")
    assert torch.equal(1 - 2 * bits.train.x, signs.train.x)
    assert torch.equal(bits.train.y, signs.train.y)


@pytest.mark.parametrize(("rho", "rho_test"), [(0.1, 0.5), (0.3, 0.0), (0.0, 1.0)])
def test_parity_conflicts_as_often_as_asked(rho, rho_test):
    data = load("parity", rho=rho, rho_test=rho_test, n=10_000, n_val=2_000, n_test=10_000)
    for name, expected in [("train", rho), ("val", rho), ("test", rho_test)]:
        split = data.splits[name]
        conflicting = (split.y != split.a[:, 0]).float()
        assert close(conflicting.mean().item(), expected, len(split))
        for k in (0, 1):
            assert close((split.y == k).float().mean().item(), 0.5, len(split))
            assert close(conflicting[split.y == k].mean().item(), expected, int((split.y == k).sum()))


def test_spurious_strings_of_a_parity_are_equally_likely_and_no_bit_alone_tells_the_label():
    data = load("parity", core=3, spurious=3, noise=2, coding="0/1", n=20_000)
    x, y, a = data.train.x.long(), data.train.y, data.train.a[:, 0]
    code = x[:, 3:6] @ torch.tensor([1, 2, 4])
    for value in (0, 1):
        seen = torch.bincount(code[a == value], minlength=8)
        strings = [c for c in range(8) if bin(c).count("1") % 2 == value]
        assert seen.sum() == seen[strings].sum()
        assert stats.chisquare(seen[strings].numpy()).pvalue > 1e-4
    for i in range(8):
        for k in (0, 1):
            assert close(x[y == k, i].double().mean().item(), 0.5, int((y == k).sum()))


# moon_star


def quadrant_by_hand(image: Tensor) -> tuple[bool, bool]:
    """Whether the object's centre of mass is in the left and in the top half."""
    ink = image[0].double()
    rows, columns = torch.meshgrid(*(torch.arange(s) + 0.5 for s in ink.shape), indexing="ij")
    x, y = (ink * columns).sum() / ink.sum(), (ink * rows).sum() / ink.sum()
    return bool(x < ink.shape[1] / 2), bool(y < ink.shape[0] / 2)


@pytest.mark.parametrize("size", [32, 65])
def test_the_quadrant_rule_by_hand(size):
    data = load("moon_star", size=size, rho=0.25, n=200)
    aligned = data.is_aligned(data.train)[:, 0]
    seen = set()
    for image, y, right in zip(data.train.x, data.train.y.tolist(), aligned.tolist(), strict=True):
        left, top = quadrant_by_hand(image)
        seen.add((left, top))
        rising = left != top  # bottom left or top right: where stars belong
        assert right == (rising if data.classes[y] == "star" else not rising)
    assert len(seen) == 4
    assert (~aligned).sum() == 50


def test_moon_star_conflicts_exactly_as_often_as_asked():
    data = moon_star.load(size=16, n=1_000, n_val=100, n_test=1_000)
    for name, conflicts in [("train", 50), ("val", 5), ("test", 250)]:
        split = data.splits[name]
        for k in (0, 1):
            mine = split.y == k
            assert mine.sum() * 2 == len(split)
            assert (split.a[mine, 0] != k).sum() == conflicts


@pytest.mark.parametrize(("size", "rotation", "smallest"), [(50, 30, 0.5), (64, 180, 0.3), (100, 180, 1.0)])
def test_moons_and_stars_are_whole_and_within_one_quadrant(size, rotation, smallest):
    data = load("moon_star", size=size, rotation=rotation, smallest=smallest, n=300)
    ink = data.train.x[:, 0] > 0
    assert not (ink[:, 0].any() or ink[:, -1].any() or ink[:, :, 0].any() or ink[:, :, -1].any())
    half = size // 2
    corners = [
        ink[:, r, c].flatten(1).any(1)
        for r in (slice(half), slice(half, None))
        for c in (slice(half), slice(half, None))
    ]
    assert (torch.stack(corners).sum(0) == 1).all()


def test_the_label_says_which_object_is_drawn():
    data = load("moon_star", size=64, smallest=1, n=100)
    area = data.train.x.double().sum((1, 2, 3)) / 255 / (64 * moon_star.RADIUS) ** 2  # in squared radii
    star, moon = area[data.train.y == 0], area[data.train.y == 1]
    pentagram = 5 * math.sin(math.pi / 5) * math.cos(2 * math.pi / 5) / math.cos(math.pi / 5)  # R = 1: its exact area
    assert (star - pentagram).abs().max() < 0.03
    assert (moon > star.max()).all()


# gaussians


@pytest.mark.parametrize("labels", ["structured", "random"])
def test_wrong_labels_are_counted_exactly_and_follow_their_rule(labels):
    data = load("gaussians", labels=labels, noise=0.3, n=1_000, n_val=100, n_test=500)
    for split, wrong in [(data.train, 60), (data.val, 6), (data.test, 0)]:
        true = split.a[:, 0]
        table = torch.bincount(true * 5 + split.y, minlength=25).view(5, 5)
        assert (table.sum(1) == len(split) // 5).all()
        assert (table.diagonal() == len(split) // 5 - wrong).all()
        if labels == "structured":
            assert all(table[i, (i + 1) % 5] == wrong for i in range(5))
    if labels == "random":
        step = (data.train.y - data.train.a[:, 0]) % 5
        assert stats.chisquare(torch.bincount(step, minlength=5)[1:].numpy()).pvalue > 1e-4
    assert torch.equal(data.is_aligned(data.train)[:, 0], data.train.y == data.train.a[:, 0])


def test_points_lie_around_their_true_mean_not_around_their_label():
    data = load("gaussians", spread=0.1, n=5_000, noise=0.4)
    means = torch.tensor([[1.0, 0], [0, 1], [-1, 0], [0, -1], [0, 0]])
    for k in range(5):
        points = data.train.x[data.train.a[:, 0] == k]
        assert (points.mean(0) - means[k]).abs().max() < 5 * 0.1 / math.sqrt(1_000)
        assert ((points - means[k]).std(0) - 0.1).abs().max() < 5 * 0.1 / math.sqrt(2 * 1_000)


# linear_toy


@pytest.mark.parametrize(("p", "phi"), [(0.9, 0.0), (0.6, 0.0), (0.9, 0.2), (0.8, 0.375), (0.95, 1 - 1 / 1.9)])
def test_spurious_features_agree_with_probability_one_minus_phi_times_p(p, phi):
    data = load("linear_toy", p=p, phi=phi, n=20_000, n_val=5_000, n_test=20_000)
    for name, expected in [("train", (1 - phi) * p), ("val", (1 - phi) * p), ("test", 0.5)]:
        split = data.splits[name]
        sign = 2 * split.y - 1
        assert torch.equal(split.x[:, 0], sign.float())
        agree = (split.x[:, 1:] == sign[:, None]).float()
        assert split.x.abs().eq(1).all()
        assert all(close(share, expected, len(split)) for share in agree.mean(0).tolist())
        for k in (0, 1):  # the same in both classes
            mine = agree[split.y == k]
            assert close(mine.mean().item(), expected, mine.numel())


def test_the_largest_allowed_phi_makes_the_mixture_random():
    for p in (0.55, 0.7, 0.99):
        phi = linear_toy.debiasing_phi(p)
        assert (1 - phi) * p == pytest.approx(0.5)  # what is left of the agreement
        assert phi + (1 - phi) * (1 - p) == pytest.approx(0.5)  # equation 32, the other side
    data = load("linear_toy", p=0.9, phi=linear_toy.debiasing_phi(0.9), n=20_000)
    assert close((data.train.x[:, 1:] == data.train.x[:, :1]).float().mean().item(), 0.5, 20_000 * 15)


def test_features_are_drawn_one_by_one_given_the_label():
    data = load("linear_toy", p=0.7, phi=0.1, n=20_000)  # a mixture drawn row by row would correlate them
    agree = (data.train.x[:, 1:] == data.train.x[:, :1]).double()
    off = torch.corrcoef(agree.T) - torch.eye(15)
    assert off.abs().max() < 5 / math.sqrt(20_000)


@pytest.mark.parametrize("D", [15, 4, 1])
def test_the_majority_by_hand_and_each_feature(D):
    most, each = (load("linear_toy", D=D, p=0.6, n=300, attribute=a) for a in ("majority", "each"))
    assert torch.equal(most.train.x, each.train.x)
    assert torch.equal(each.train.a, (each.train.x[:, 1:] > 0).long())
    for row, a in zip(most.train.x[:, 1:].tolist(), most.train.a[:, 0].tolist(), strict=True):
        ups = row.count(1.0)
        assert a == (ups > D / 2 if ups != D / 2 else row[0] == 1)
    assert len(each.attributes) == D


# shapes: what the settings mean


@pytest.mark.parametrize(("classes", "values"), [(2, [2] * 5), (4, [4, 4, 4, 3, 4]), (16, [10, 12, 9, 3, 12])])
def test_each_attribute_has_a_value_for_each_class_as_far_as_there_are_values(classes, values):
    data = load("shapes", classes=classes, biases=EVERY, strength=1)
    assert [len(v) for v in data.values] == values
    for k, v in enumerate(values):
        assert torch.equal(data.train.a[:, k], data.train.y % v)
    assert data.is_aligned(data.train).all()


@pytest.mark.parametrize(("strength", "classes"), [(0.0, 10), (0.3, 4), ((0.95, 0.5), 10), ((1.0, 0.0), 2)])
def test_strength_is_the_share_of_own_values_beyond_chance(strength, classes):
    settings = {"biases": ("colour", "size"), "strength": strength, "classes": classes, "seed": 3}
    each = strength if isinstance(strength, tuple) else (strength, strength)
    for split in ("train", "val"):
        scene = shapes._scene({**load("shapes", **settings).settings}, split, 20_000)
        for name, s in zip(("colour", "size"), each, strict=True):
            values = min(classes, len(shapes.VALUES[name]))
            own = (scene.a[name] == scene.y % values).double()
            expected = 1 / values + s * (1 - 1 / values)
            assert close(own.mean().item(), expected, 20_000)
            assert 1 - expected == pytest.approx((1 - s) * (1 - 1 / values))  # rho, as the docstring says
            others = torch.bincount((scene.a[name] - scene.y) % values, minlength=values)[1:]
            if classes == 10 and name == "colour" and s < 1:  # a conflicting value is any of the others
                assert stats.chisquare(others.numpy()).pvalue > 1e-4


def test_in_the_test_split_every_value_is_equally_frequent_in_every_class():
    data = load("shapes", classes=4, biases=EVERY, strength=0.9, n_test=425)
    for k, values in enumerate(data.values):
        table = torch.bincount(data.test.y * len(values) + data.test.a[:, k]).view(4, -1)
        assert (table.amax(1) - table.amin(1)).max() <= 1
    code = data.test.a[:, 0] * 4 + data.test.a[:, 1]
    assert len(code.unique()) == 16  # two attributes do not move together


def test_biases_are_independent_given_the_label():
    settings = load("shapes", classes=3, biases=("texture", "watermark"), strength=0.5).settings
    p = []
    for seed in range(100):
        scene = shapes._scene({**settings, "seed": seed}, "train", 600)
        for k in range(3):
            table = np.zeros((3, 3))
            np.add.at(table, (scene.a["texture"][scene.y == k], scene.a["watermark"][scene.y == k]), 1)
            p.append(stats.chi2_contingency(table).pvalue)
    assert false_alarms(p)


def test_settings_as_the_command_line_gives_them():
    checked = resolve(shapes.load, {"strength": "0", "biases": "size"}, "data")
    assert checked["strength"] == 0
    assert checked["biases"] == ("size",)
    checked = resolve(shapes.load, {"strength": "[0.9, 0.5]", "biases": '["size", "colour"]'}, "data")
    assert checked["strength"] == (0.9, 0.5)
    assert load("shapes", biases=(), strength=0.9).train.a is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"biases": ("colour", "size"), "strength": (0.1, 0.2, 0.3)}, "3 values for 2 biases"),
        ({"biases": ("colour", "colour")}, "names a bias twice"),
        ({"biases": ("smell",)}, "one of texture, colour"),
        ({"strength": 1.5}, "from 0 to 1"),
        ({"classes": 17}, "from 2 to 16"),
    ],
)
def test_mistakes_are_told(wrong, message):
    with pytest.raises(UserError, match=message):
        load("shapes", **wrong)


# shapes: strength 0 is clean


def test_at_strength_zero_nothing_that_is_drawn_knows_the_label():
    """Over many seeds the tests of independence cry wolf at their nominal rate: for the attributes and all else."""
    settings = load("shapes", biases=EVERY, strength=0).settings
    attributes: list[float] = []
    rest: list[float] = []
    for seed in range(150):
        scene = shapes._scene({**settings, "seed": seed}, "train", 1_000)
        for name, value in scene.a.items():
            table = np.zeros((10, len(shapes.VALUES[name][:10])))
            np.add.at(table, (scene.y, value), 1)
            attributes.append(stats.chi2_contingency(table).pvalue)
        latents = [scene.x0, scene.y0, scene.radius, scene.turn, *scene.rgb.T, *scene.texture.T]
        by_class = [[latent[scene.y == k].numpy() for k in range(10)] for latent in latents]
        rest += [stats.f_oneway(*groups).pvalue for groups in by_class]
    assert false_alarms(attributes)
    assert false_alarms(rest)
    assert stats.kstest(attributes, "uniform").pvalue > 1e-4  # neither too often nor too rarely, at any level


def test_attributes_that_are_not_biases_stay_clean_while_another_is_biased():
    settings = load("shapes", biases=("colour",), strength=1).settings
    p = []
    for seed in range(100):
        scene = shapes._scene({**settings, "seed": seed}, "train", 1_000)
        for name in set(EVERY) - {"colour"}:
            table = np.zeros((10, len(shapes.VALUES[name])))
            np.add.at(table, (scene.y, scene.a[name]), 1)
            p.append(stats.chi2_contingency(table).pvalue)
        assert torch.equal(scene.a["colour"], scene.y)
    assert false_alarms(p)


def test_at_strength_zero_the_pixels_around_the_objects_know_nothing_of_the_label():
    """The rim holds texture, watermark and noise as they were rendered, class by class: nothing may have leaked."""
    p = []
    for seed in range(40):
        data = shapes.load(classes=4, n=400, n_val=0, n_test=0, size=40, biases=EVERY, strength=0, seed=seed)
        x = data.train.x[:, 0].double()
        rim = torch.cat([x[:, 0], x[:, -1], x[:, :, 0], x[:, :, -1]], dim=1)  # (n, 160)
        for feature in (rim.mean(1), rim.std(1), x[:, 0, 0], x[:, 20, 39]):
            p.append(stats.f_oneway(*[feature[data.train.y == k].numpy() for k in range(4)]).pvalue)
    assert false_alarms(p)


# shapes: what is drawn


def test_masks_part_the_image_and_fit_what_is_drawn():
    data = shapes.load(classes=16, n=160, n_val=0, n_test=0, size=48, noise=0, biases=("watermark",))
    found = shapes.masks(data, "train", torch.arange(160))
    assert (sum(m.int() for m in found.values()) == 1).all()
    spread = data.train.x.amax(1).int() - data.train.x.amin(1).int()  # only objects are coloured
    assert ((spread > 60) == found["object"]).float().mean() > 0.99
    assert spread[found["background"]].float().mean() < 3
    assert (spread[found["watermark"]] == 0).all()
    assert (data.train.x[:, 0][found["watermark"]] > 120).all()
    part = torch.tensor([5, 90, 17])
    again = shapes.masks(data, "train", part)
    assert all(torch.equal(again[name], found[name][part]) for name in found)
    first = dataclasses.replace(data.train, x=data.train.x[:80], y=data.train.y[:80], a=data.train.a[:80])
    fewer = dataclasses.replace(data, train=first)
    with pytest.raises(UserError, match="not those that shapes.load made"):
        shapes.masks(fewer, "train", part)


def test_objects_are_whole_and_meet_no_mark():
    data = shapes.load(classes=16, n=3_200, n_val=0, n_test=0, size=40, rotation=180, biases=EVERY, strength=0)
    scene = shapes._scene(data.settings, "train", 3_200)
    marks = shapes._marks(40)
    for k, shape in enumerate(shapes.SHAPES.values()):
        rows = (scene.y == k).nonzero()[:, 0]
        cover = shapes._object(shape, scene, rows, 40)
        rim = torch.cat([cover[:, 0], cover[:, -1], cover[:, :, 0], cover[:, :, -1]], dim=1)
        assert rim.max() == 0
        assert (cover * marks[scene.a["watermark"][rows]]).max() == 0
        assert (cover.flatten(1).amax(1) == 1).all()


def test_attributes_are_drawn_as_they_are_recorded():
    data = shapes.load(classes=12, n=600, n_val=0, n_test=0, size=64, noise=0, biases=EVERY, strength=0)
    x, a = data.train.x.double() / 255, dict(zip(EVERY, data.train.a.T, strict=True))
    thing = shapes.masks(data, "train", torch.arange(600))["object"]
    place = (torch.arange(64) + 0.5) / 64
    for i in range(600):
        red, green, blue = (x[i, c][thing[i]].median().item() for c in range(3))
        hue = 360 * colorsys.rgb_to_hsv(red, green, blue)[0]
        turn = (hue - shapes.HUES[data.values[1][a["colour"][i]]] + 180) % 360 - 180
        assert abs(turn) < 8
        mass = thing[i].double()
        centre = torch.stack([(mass.sum(0) * place).sum(), (mass.sum(1) * place).sum()]) / mass.sum()
        steps = torch.tensor(list(shapes.PLACES.values()))[: len(data.values[2])]
        assert ((centre - 0.5) / shapes.STEP - steps).norm(dim=1).argmin() == a["position"][i]
        radii = torch.tensor(list(shapes.RADII.values()))
        radius = math.sqrt(mass.sum() / 64**2 / 1.23)  # the middle of the shapes' areas in squared radii
        assert (radii / radius).log().abs().argmin() == a["size"][i]
        corner = shapes.VALUES["watermark"][a["watermark"][i]].rsplit(" ", 1)[0]
        quarters = {
            f"{v} {h}": x[i, 0, rows, columns]
            for v, rows in (("top", slice(0, 9)), ("bottom", slice(-9, None)))
            for h, columns in (("left", slice(0, 9)), ("right", slice(-9, None)))
        }
        assert max(quarters, key=lambda c: (quarters[c] > 0.7).sum()) == corner


def test_colours_agree_with_the_standard_library():
    rng = np.random.default_rng(0)
    hue, saturation, value = rng.uniform(-10, 370, 50), rng.random(50), rng.random(50)
    for row, h, s, v in zip(shapes._rgb(hue, saturation, value), hue, saturation, value, strict=True):
        assert np.allclose(row, colorsys.hsv_to_rgb((h / 360) % 1, s, v))


@pytest.mark.parametrize("size", [16, 33, 96])
def test_any_resolution(size):
    data = load("shapes", size=size, classes=16, biases=EVERY)
    assert data.shape == (3, size, size)
    assert all(m.shape == (3, size, size) for m in shapes.masks(data, "val", torch.arange(3)).values())


# shapes: it can be learned, and so can each bias


def upright(data: Bundle, split: str) -> Tensor:
    """(n, 256): the coloured part of each image, centred and brought to one size, on 16 x 16 points."""
    x = data.splits[split].x.float() / 255
    ink = (x.amax(1) - x.amin(1) - 0.15).clamp(min=0)  # (n, h, w)
    side = torch.linspace(-1, 1, x.shape[-1])
    total = ink.sum((1, 2))
    cx, cy = (ink.sum(1) * side).sum(1) / total, (ink.sum(2) * side).sum(1) / total  # (n,)
    spread = (
        (ink * ((side[None, None] - cx[:, None, None]) ** 2 + (side[None, :, None] - cy[:, None, None]) ** 2)).sum(
            (1, 2)
        )
        / total
    ).sqrt()
    zoom = 2 * spread[:, None, None]
    theta = torch.cat([torch.eye(2) * zoom, torch.stack([cx, cy], dim=1)[:, :, None]], dim=2)  # (n, 2, 3)
    grid = nn.functional.affine_grid(theta, [len(x), 1, 16, 16], align_corners=False)
    seen = nn.functional.grid_sample(ink[:, None], grid, align_corners=False)[:, 0].flatten(1)
    return seen / seen.norm(dim=1, keepdim=True)


def test_the_shape_is_decidable_whatever_the_attributes_are():
    data = shapes.load(n=6_000, n_val=0, n_test=1_000, biases=EVERY, strength=0)
    nearest = (upright(data, "test") @ upright(data, "train").T).topk(5).indices
    guess = data.train.y[nearest].mode(dim=1).values
    assert (guess == data.test.y).float().mean() > 0.9


def small_net(outputs: int) -> nn.Module:
    layers: list[nn.Module] = []
    for wide, width, kernel in [(3, 24, 5), (24, 48, 3), (48, 64, 3)]:
        layers += [nn.Conv2d(wide, width, kernel, 2, kernel // 2), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1024, outputs))


def learn(data: Bundle, targets: list[str], epochs: int, lr: float) -> dict[str, float]:
    """Test accuracy of one small convolutional network with an output for each target."""
    torch.manual_seed(0)

    def of(split: str) -> tuple[Tensor, dict[str, Tensor]]:
        rows = data.splits[split]
        x = (rows.x.float() / 255 - 0.36) / 0.15
        columns = {"shape": rows.y} | dict(zip(data.attributes, rows.a.T, strict=True))
        return x.contiguous(memory_format=torch.channels_last), {name: columns[name] for name in targets}

    x, y = of("train")
    widths = [int(column.max()) + 1 for column in y.values()]
    net = small_net(sum(widths)).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(net.parameters(), lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, epochs * math.ceil(len(x) / 50))
    for _ in range(epochs):
        for idx in torch.randperm(len(x)).split(50):
            outputs = net(x[idx]).split(widths, dim=1)
            loss = sum(nn.functional.cross_entropy(o, c[idx]) for o, c in zip(outputs, y.values(), strict=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    net.eval()
    x, y = of("test")
    with torch.no_grad():
        outputs = net(x).split(widths, dim=1)
    return {n: (o.argmax(1) == c).float().mean().item() for o, (n, c) in zip(outputs, y.items(), strict=True)}


def test_every_bias_is_easy_to_learn():
    data = shapes.load(n=4_000, n_val=0, n_test=1_000, biases=EVERY, strength=0)
    found = learn(data, list(EVERY), epochs=4, lr=4e-3)
    assert min(found.values()) > 0.95, found


@pytest.mark.slow
def test_the_shape_is_learned_from_unbiased_images_and_missed_on_biased_ones():
    clean = shapes.load(n=20_000, n_val=0, strength=0)
    assert learn(clean, ["shape"], epochs=6, lr=3e-3)["shape"] > 0.95
    biased = shapes.load(n=20_000, n_val=0, strength=0.99)
    assert learn(biased, ["shape"], epochs=6, lr=3e-3)["shape"] < 0.8


@pytest.mark.parametrize("p", [0, 0.4, 1.1, float("nan")])
def test_there_is_no_weight_that_mixes_away_what_is_no_bias(p):
    with pytest.raises(UserError, match="is not allowed"):
        linear_toy.debiasing_phi(p)
