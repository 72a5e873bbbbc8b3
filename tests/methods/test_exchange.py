"""Exchanges give a sample the light or the fine detail of another, and small networks tell which carries a shortcut."""

import logging
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from spurless.core.data import Batch, Bundle, Images, Split
from spurless.core.errors import UserError
from spurless.methods.crossfit import CrossFit
from spurless.methods.group_inference.experts import Experts
from spurless.methods.parts.exchange import Exchange, blur, detail, effects, light, strongest, swapped, turn
from spurless.train.fit import fit
from tests.support.attacks import engine_run
from tests.support.runs import CPU, same_weights, stages_of
from tests.support.worlds import FAST, pictures, tiny


def images(n=6, seed=0, shape=(3, 16, 16)):
    return torch.rand(n, *shape, generator=torch.Generator().manual_seed(seed))


def digits(colours, seed=0):
    """White strokes on black, each tinted."""
    strokes = (images(len(colours), seed, (1, 12, 12)) > 0.7).float()
    return strokes, strokes * torch.tensor(colours)[:, :, None, None]


def test_a_tinted_stroke_takes_the_donors_colour_and_keeps_its_shape():
    colours = [[1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.9, 0.9, 0.1]]
    strokes, x = digits(colours)
    out = light(x, x.roll(1, 0))
    for k in range(3):
        on = strokes[k, 0] > 0
        seen, wanted = out[k][:, on].mean(1), torch.tensor(colours[k - 1])
        assert torch.cosine_similarity(seen, wanted, dim=0) > 0.97
        assert out[k][:, ~on].max() < 0.2 * seen.max()  # black stays nearly black


def test_light_is_the_donors_mean_colour_and_contrast():
    x, donor = 0.3 + 0.2 * images(), 0.4 + 0.3 * images(seed=1)  # far from 0 and 1: nothing is cut off
    out = light(x, donor)
    assert torch.allclose(out.mean((2, 3)), donor.mean((2, 3)), atol=2e-3)
    # A rotation keeps lengths: the spread over all channels and pixels about their own means is scaled alone.
    mine = (x - x.mean((2, 3), keepdim=True)).square().sum((1, 2, 3)).sqrt()
    after = (out - out.mean((2, 3), keepdim=True)).square().sum((1, 2, 3)).sqrt()
    assert torch.allclose(after / mine, donor.std((1, 2, 3)) / x.std((1, 2, 3)), rtol=1e-3)
    assert torch.allclose(light(x, x), x, atol=1e-5)


def test_a_colour_is_turned_by_the_smallest_rotation():
    u, v = torch.tensor([[0.8, 0.1, 0.3]]), torch.tensor([[0.2, 0.9, 0.1]])
    basis = torch.eye(3)[None, :, :, None]  # three pixels: red, green, blue
    matrix = turn(basis, u, v)[0, :, :, 0]
    assert torch.allclose(matrix @ matrix.T, torch.eye(3), atol=1e-5) and torch.det(matrix) == pytest.approx(1)
    a, b = (c / c.norm() for c in (u[0] + 1e-3, v[0] + 1e-3))
    assert torch.allclose(matrix @ a, b, atol=1e-5)
    angle = math.acos((float(matrix.trace()) - 1) / 2)
    assert angle == pytest.approx(math.acos(float(a @ b)), abs=1e-3)


def test_grey_images_change_brightness_and_contrast_alone():
    x, donor = 0.3 + 0.2 * images(shape=(1, 16, 16)), 0.5 + 0.1 * images(seed=1, shape=(1, 16, 16))
    out = light(x, donor)
    assert torch.allclose(out.mean((2, 3)), donor.mean((2, 3)), atol=2e-3)
    flat = torch.stack([x.flatten(), out.flatten()])
    assert torch.corrcoef(torch.stack([x[0].flatten(), out[0].flatten()]))[0, 1] > 0.999 and flat.isfinite().all()


def slow_blur(x, deviation):
    """One pixel at a time, mirrored at the edges."""
    reach, (h, w) = math.ceil(2.5 * deviation), x.shape
    bell = [math.exp(-(k**2) / (2 * deviation**2)) for k in range(-reach, reach + 1)]

    def mirrored(at, side):
        return -at if at < 0 else 2 * (side - 1) - at if at >= side else at

    out = torch.zeros(h, w)
    for i in range(h):
        for j in range(w):
            for a in range(-reach, reach + 1):
                for b in range(-reach, reach + 1):
                    pixel = float(x[mirrored(i + a, h), mirrored(j + b, w)])
                    out[i, j] += bell[a + reach] * bell[b + reach] / sum(bell) ** 2 * pixel
    return out


def test_blur_is_the_slow_one():
    x = images(1, shape=(2, 9, 8))
    for channel in range(2):
        assert torch.allclose(blur(x)[0, channel], slow_blur(x[0, channel], 1.0), atol=1e-5)


def test_fine_detail_is_what_a_blur_takes_away():
    x, donor = 0.4 + 0.2 * images(), 0.4 + 0.2 * images(seed=1)
    assert torch.allclose(detail(x, donor), blur(x) + donor - blur(donor), atol=1e-5)
    smooth = torch.full_like(x, 0.5)
    noisy = (smooth + 0.1 * torch.randn(smooth.shape, generator=torch.Generator().manual_seed(2))).clamp(0, 1)
    grain = detail(smooth, noisy) - 0.5
    assert torch.allclose(grain, noisy - blur(noisy), atol=1e-5)  # noise goes over whole


def test_both_are_one_after_the_other():
    x, donor = images(), images(seed=1)
    assert torch.equal(swapped(x, donor, "light_detail"), detail(light(x, donor), donor))


def batch(x):
    n = len(x)
    return Batch(x, torch.arange(n) % 3, None, torch.arange(n) + 5, torch.tensor(0.5))


@pytest.mark.parametrize("how", ["light", "detail", "light_detail"])
def test_half_of_a_batch_is_exchanged_and_keeps_label_and_number(how):
    inputs = Images(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.1))
    exchange = Exchange(how, inputs, torch.device("cpu"))
    b = batch((images(400, shape=(3, 8, 8)) - exchange.mean) / exchange.std)
    torch.manual_seed(0)
    mixed, second = exchange(b)
    assert second is None and torch.equal(mixed.y, b.y) and torch.equal(mixed.idx, b.idx)
    changed = (~torch.isclose(mixed.x, b.x, atol=1e-5)).flatten(1).any(1).float().mean()
    assert 0.4 < float(changed) < 0.6 if how != "light_detail" else 0.65 < float(changed) < 0.85
    x = mixed.x * exchange.std + exchange.mean
    assert float(x.min()) >= -1e-5 and float(x.max()) <= 1 + 1e-5


@pytest.mark.parametrize("how", ["light", "detail"])
def test_what_is_exchanged_is_that_of_another_sample_of_the_batch(how):
    """Each image is as it was, or as the function makes it of some donor; not always of the next one."""
    inputs = Images(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.1))
    exchange, x = Exchange(how, inputs, torch.device("cpu")), images(12, shape=(3, 8, 8))
    mixed, _ = exchange(batch((x - exchange.mean) / exchange.std))
    made, away = mixed.x * exchange.std + exchange.mean, set()
    for i in range(12):
        if torch.allclose(made[i], x[i], atol=1e-4):
            continue
        donors = [
            j for j in range(12) if torch.allclose(made[i], swapped(x[i : i + 1], x[j : j + 1], how)[0], atol=1e-3)
        ]
        assert len(donors) == 1 and donors != [i]
        away.add((donors[0] - i) % 12)
    assert len(away) > 1


def test_a_way_of_the_methods_own_is_said_to_come_first(caplog):
    data = Bundle("tinted", tinted(400, 0.02, 0), tinted(100, 0.02, 1), tinted(100, 0.5, 2))
    with caplog.at_level(logging.WARNING, "spurless"):
        fit(CrossFit(level=1), data, net="simconv1", recipe=replace(FAST, epochs=1, batch_size=64, mix="mixup"), **CPU)
    assert "recipe.mix = mixup is not used" in caplog.text


def test_the_layout_and_the_kind_of_numbers_stay():
    b = batch(images(8).to(memory_format=torch.channels_last))
    mixed, _ = Exchange("light_detail", Images(), torch.device("cpu"))(b)
    assert mixed.x.stride() == b.x.stride() and mixed.x.dtype == b.x.dtype


# Which exchange carries what is easy


class Told(nn.Module):
    """An expert that reads one thing of images alone."""

    def __init__(self, read):
        super().__init__()
        self.read = read

    def forward(self, x):
        return nn.functional.one_hot(self.read(x), 3).float() * 9


def by_light(x):
    return x.mean((2, 3)).argmax(1)  # the strongest channel


def by_detail(x):
    grain = (x - blur(x)).abs().mean((1, 2, 3))
    return torch.bucketize(grain, torch.tensor([0.02, 0.07]))


def by_place(x):
    return torch.stack([third.mean((1, 2, 3)) for third in x.chunk(3, dim=2)], 1).argmax(1)  # which is the brightest


def world(kind, n=600):
    """Images whose class is their strongest channel, how grainy they are, or which third is bright."""
    g = torch.Generator().manual_seed(0)
    y = torch.arange(n) % 3
    x = 0.45 + 0.01 * torch.rand(n, 3, 24, 24, generator=g)
    if kind is by_light:
        x[torch.arange(n), y] += 0.3
    elif kind is by_detail:
        x += torch.tensor([0.0, 0.2, 0.6])[y, None, None, None] * (torch.rand(x.shape, generator=g) - 0.5)
    else:
        x += 0.3 * (torch.arange(24)[None] // 8 == y[:, None]).float()[:, None, :, None]
    return Bundle("told", Split((x * 255).round().to(torch.uint8), y), recipe=FAST)


@pytest.mark.parametrize(("kind", "how"), [(by_light, "light"), (by_detail, "detail"), (by_place, None)])
def test_the_exchange_that_moves_the_experts_is_the_one_of_what_they_read(kind, how):
    data = world(kind)
    run, expert = engine_run(data, "linear"), Told(kind)
    experts = Experts((expert,), (torch.zeros(600, dtype=torch.bool),), small=True)
    right = kind(data.train.x.float() / 255) == data.train.y
    assert right.float().mean() > 0.95
    moved = effects(run, experts, right)
    assert set(moved) == {"light", "detail", "light_detail"} and strongest(moved) == how
    if how:
        other = "detail" if how == "light" else "light"  # the donor's contrast makes grain stronger or weaker, too
        assert moved[how] > 0.95 and moved[other] < 0.7


def test_an_exchange_that_ruins_images_does_not_count():
    """An expert that is thrown by any change: the placebo takes away what a donor of another class seems to move."""
    data = world(by_light)
    kept = {x.numpy().tobytes(): int(label) for x, label in zip(data.train.x, data.train.y, strict=True)}

    def by_heart(x):  # what it has not seen, it takes for the next class of what the light says
        raw = (x * 255).round().to(torch.uint8)
        says = by_light(x)
        return torch.stack(
            [torch.tensor(kept.get(r.numpy().tobytes(), int(s + 1) % 3)) for r, s in zip(raw, says, strict=True)]
        )

    run = engine_run(data, "linear")
    experts = Experts((Told(by_heart),), (torch.zeros(600, dtype=torch.bool),), small=True)
    assert strongest(effects(run, experts, torch.ones(600, dtype=torch.bool))) is None


def test_nothing_is_exchanged_of_tables_of_few_samples_or_of_large_experts():
    run, right = engine_run(tiny(), "mlp"), torch.ones(200, dtype=torch.bool)
    experts = Experts((Told(by_light),), (torch.zeros(200, dtype=torch.bool),), small=True)
    assert effects(run, experts, right) == {} and strongest({}) is None
    data = world(by_light, n=600)
    few = torch.arange(600) < 60
    assert effects(engine_run(data, "linear"), experts, few) == {}
    assert effects(engine_run(data, "linear"), experts._replace(small=False), torch.ones(600, dtype=torch.bool)) == {}


def tinted(n, rho, seed):
    """Squares or crosses, whose tint gives them away but for a share rho."""
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    a = torch.where(torch.rand(n, generator=g) < rho, 1 - y, y)
    x = torch.zeros(n, 3, 25, 25)
    at = torch.randint(1, 16, (n, 2), generator=g)
    for k in range(n):
        i, j = at[k].tolist()
        shape = torch.zeros(8, 8)
        if y[k]:
            shape[3:5], shape[:, 3:5] = 1.0, 1.0
        else:
            shape[1:7, 1:7] = 1.0
        x[k, 0 if a[k] else 2, i : i + 8, j : j + 8] = 0.9 * shape
        x[k, 1, i : i + 8, j : j + 8] = 0.2 * shape
    noise = 0.1 * torch.rand(x.shape, generator=g)
    return Split(((x + noise).clamp(0, 1) * 255).to(torch.uint8), y, a[:, None])


def test_crossfit_exchanges_the_light_of_tinted_shapes_and_says_so(monkeypatch, caplog):
    data = Bundle("tinted", tinted(1500, 0.02, 0), tinted(600, 0.02, 1), tinted(600, 0.5, 2))
    recipe = replace(FAST, epochs=4, batch_size=64, lr=3e-3)
    with caplog.at_level(logging.INFO, "spurless"):
        stages, found = stages_of(monkeypatch, CrossFit(level=1), data, "simconv1", recipe)
    assert "what is easy lies in the light" in caplog.text
    debiased = next(s for s in stages if s.name == "debiased")
    assert debiased.mix.how.startswith("light") and debiased.shared["exchange"] == debiased.mix.how
    assert all(s.mix is None for s in stages if s.name in ("plain",) or s.name.startswith("expert"))
    plain = fit("erm", data, net="simconv1", recipe=recipe, **CPU)
    assert found.scores["conflicting"] > plain.scores["conflicting"] + 10


@pytest.mark.parametrize("how", ["light", "detail", "light_detail"])
def test_the_recipe_exchanges_for_every_method(how):
    data = pictures()
    runs = [fit("erm", data, net="simconv1", recipe=replace(data.recipe, mix=mix), **CPU) for mix in (how, how, None)]
    assert same_weights(runs[0].classifier, runs[1].classifier)
    assert not same_weights(runs[0].classifier, runs[2].classifier)


def test_a_table_has_no_light():
    with pytest.raises(UserError, match="is for images"):
        fit("erm", tiny(), recipe=replace(FAST, mix="light"), **CPU)


def test_pixels_that_are_not_from_0_to_1_are_left_alone():
    """An exchange would cut them off."""
    data = world(by_light)
    x = data.train.x.float() / 255
    experts = Experts((Told(by_light),), (torch.zeros(600, dtype=torch.bool),), small=True)
    for scaled, exchanged in ((x, True), (x - 0.5, False), (x * 255, False)):
        own = Bundle("told", Split(scaled, data.train.y), recipe=FAST)
        assert bool(effects(engine_run(own, "linear"), experts, torch.ones(600, dtype=torch.bool))) is exchanged
    with pytest.raises(UserError, match="from 0 to 1, and told holds none"):
        fit("erm", Bundle("told", Split(x - 0.5, data.train.y)), net="linear", recipe=replace(FAST, mix="light"), **CPU)
