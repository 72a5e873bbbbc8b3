"""The 19 corruptions of CIFAR-10-C and the eight of BiasAdv: known values, slow twins, and rows that stand alone."""

import io

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage

from spurless.core.errors import UserError
from spurless.data import corruptions
from spurless.data.corruptions import CORRUPTIONS, blur, corrupt, digital, noise, resample, weather
from spurless.data.corruptions import inputs as input_corruptions
from spurless.data.corruptions import streams as corruption_streams
from spurless.data.corruptions.inputs import INPUT_CORRUPTIONS
from spurless.data.corruptions.streams import Streams

LEVELS = range(1, 6)
WITHOUT_CHANCE = {
    "gaussian_blur",
    "defocus_blur",
    "zoom_blur",
    "brightness",
    "contrast",
    "saturate",
    "jpeg",
    "pixelate",
}


def pictures(n=8, h=32, w=32, channels=3, seed=0):
    """Smooth blobs of colour with some fine detail, uint8 (n, c, h, w)."""
    rng = np.random.default_rng(seed)
    blobs = ndimage.gaussian_filter(rng.normal(size=(n, channels, h, w)), (0, 0, 4, 4)) * 8
    detail = ndimage.gaussian_filter(rng.normal(size=(n, channels, h, w)), (0, 0, 0.8, 0.8)) * 0.3
    return torch.from_numpy(((blobs + detail) * 50 + 120).clip(0, 255).astype(np.uint8))


def constant(*value, n=1):
    return torch.tensor(value, dtype=torch.uint8).view(1, -1, 1, 1).repeat(n, 3 // len(value), 32, 32)


def streams(n, name="test"):
    return Streams(0, name, range(n))


def unit(x):
    return corruptions.to_unit(x)


# --- All of them -----------------------------------------------------------------------------------------------------


def test_there_are_nineteen():
    assert len(CORRUPTIONS) == 19


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_each_level_changes_the_image_and_keeps_its_form(name):
    x = pictures()
    before = x.clone()
    seen = [corrupt(x, name, level) for level in LEVELS]
    assert torch.equal(x, before)
    for out in seen:
        assert out.shape == x.shape
        assert out.dtype == torch.uint8
        assert not torch.equal(out, x)
    # These constants differ too little to show in 8 bits.
    alike = {"glass_blur": [1], "motion_blur": [3]}.get(name, [])
    assert [level for level in range(1, 5) if torch.equal(seen[level - 1], seen[level])] == alike


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_seed_decides(name):
    x = pictures()
    once, again, other = (corrupt(x, name, 5, seed) for seed in (3, 3, 4))
    assert torch.equal(once, again)
    assert torch.equal(once, other) == (name in WITHOUT_CHANCE)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_row_comes_out_the_same_in_any_batch(name, monkeypatch):
    x = pictures(7)
    for level in (3, 5):  # spatter has two ways of working
        whole = corrupt(x, name, level)
        alone = torch.cat([corrupt(x[i : i + 1], name, level, rows=[i]) for i in range(7)])
        order = [4, 0, 6, 2]
        assert torch.equal(alone, whole)
        assert torch.equal(corrupt(x[order], name, level, rows=order), whole[order])
        monkeypatch.setattr(corruption_streams, "BLOCK", 2 * 3 * 32 * 32)  # two rows at a time
        assert torch.equal(corrupt(x, name, level), whole)
        monkeypatch.undo()


@pytest.mark.parametrize("name", sorted(set(CORRUPTIONS) - WITHOUT_CHANCE))
def test_equal_images_in_different_rows_differ(name):
    out = corrupt(pictures(1).repeat(2, 1, 1, 1), name, 5)
    assert not torch.equal(out[0], out[1])


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_other_sizes(name):
    assert corrupt(pictures(2, 48, 70), name, 5).shape == (2, 3, 48, 70)


def test_no_images():
    assert corrupt(pictures(2)[:0], "fog", 1).shape == (0, 3, 32, 32)


# Not for elastic (level 1 is all affine jitter, level 5 mostly wobble), saturate (1 and 2 drain colour, 3 to 5 add it),
# glass, snow and spatter (their constants are not ordered).
@pytest.mark.parametrize(
    "name",
    [
        "gaussian_noise",
        "shot_noise",
        "impulse_noise",
        "speckle_noise",
        "gaussian_blur",
        "defocus_blur",
        "motion_blur",
        "zoom_blur",
        "fog",
        "brightness",
        "contrast",
        "jpeg",
        "pixelate",
    ],
)
def test_a_higher_severity_does_more_harm(name):
    x = pictures(32)
    harm = [(corrupt(x, name, level).float() - x.float()).square().mean().item() for level in LEVELS]
    assert harm == sorted(harm)
    assert harm[4] > 1.5 * harm[0]


@pytest.mark.parametrize("name", ["gaussian_blur", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "elastic"])
def test_what_moves_pixels_leaves_a_flat_image_alone(name):
    x = constant(10, 100, 250, n=3)
    for level in LEVELS:
        assert torch.equal(corrupt(x, name, level), x)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda x: corrupt(x, "blurr", 1), "There is no corruption 'blurr'"),
        (lambda x: corrupt(x, "fog", 6), "from 1 to 5"),
        (lambda x: corrupt(x, "fog", 0), "from 1 to 5"),
        (lambda x: corrupt(x.float(), "fog", 1), "uint8 images"),
        (lambda x: corrupt(x[:, :1], "fog", 1), "uint8 images"),
        (lambda x: INPUT_CORRUPTIONS["cutout"](x.float()), "uint8 images"),
        (lambda x: INPUT_CORRUPTIONS["jpeg"](x[:, :2]), "1 or 3 channels"),
    ],
)
def test_mistakes_are_named(given, message):
    with pytest.raises(UserError, match=message):
        given(pictures(1))


# --- Noise -----------------------------------------------------------------------------------------------------------


def test_gaussian_noise_has_its_standard_deviation():
    for level, std in zip(LEVELS, noise.GAUSSIAN_STD, strict=True):
        added = corrupt(constant(128, n=20), "gaussian_noise", level).float() - 128
        expected = ((std * 255) ** 2 + 1 / 12) ** 0.5  # and the rounding
        assert added.std().item() == pytest.approx(expected, rel=0.02)
        assert abs(added.mean().item()) < 0.5


def test_shot_noise_has_the_variance_of_a_photon_count():
    for level, photons in zip(LEVELS, noise.SHOT_PHOTONS, strict=True):
        added = corrupt(constant(102, n=20), "shot_noise", level).float() / 255 - 0.4
        assert added.var().item() == pytest.approx(0.4 / photons, rel=0.04)
        assert abs(added.mean().item()) < 0.003
    assert corrupt(constant(0), "shot_noise", 5).max() == 0


def test_impulse_noise_hits_single_values_half_black_half_white():
    for level, share in zip(LEVELS, noise.IMPULSE_SHARE, strict=True):
        out = corrupt(constant(100, n=40), "impulse_noise", level)
        n = out.numel()
        for value in (0, 255):
            error = 4 * (share / 2 / n) ** 0.5
            assert (out == value).float().mean().item() == pytest.approx(share / 2, abs=error)
        assert out.unique().tolist() == [0, 100, 255]
        hit = (out != 100).sum(1)  # (n, h, w) channels of a pixel
        assert (hit == 1).sum() > 5 * (hit == 3).sum()


def test_speckle_noise_grows_with_the_value():
    for level, std in zip(LEVELS, noise.SPECKLE_STD, strict=True):
        for value in (50, 100):
            added = corrupt(constant(value, n=20), "speckle_noise", level).float() - value
            assert added.std().item() == pytest.approx(((std * value) ** 2 + 1 / 12) ** 0.5, rel=0.02)
    assert corrupt(constant(0), "speckle_noise", 5).max() == 0


# --- Blur ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_kernels_sum_to_one(level):
    assert blur.motion_kernel(*blur.MOTION[level - 1]).sum() == pytest.approx(1)
    assert blur.disk(*blur.DEFOCUS[level - 1]).sum() == pytest.approx(1)


@pytest.mark.parametrize("name", ["gaussian_blur", "defocus_blur", "motion_blur"])
def test_blur_keeps_the_light_of_a_dot(name):
    dot = np.zeros((4, 3, 48, 48), np.float32)
    dot[:, :, 24, 24] = 1
    for level in LEVELS:
        out = CORRUPTIONS[name](dot, level, streams(4))
        assert np.allclose(out.sum((2, 3)), 1, atol=1e-5)
        assert out.max() < 1


def test_gaussian_blur_of_a_dot_is_the_kernel():
    dot = np.zeros((1, 3, 33, 33), np.float32)
    dot[..., 16, 16] = 1
    step = np.arange(-4, 5)  # four standard deviations
    row = np.exp(-(step**2) / 2) / np.exp(-(step**2) / 2).sum()
    assert np.allclose(blur.gaussian_blur(dot, 5, streams(1))[0, 0, 12:21, 12:21], np.outer(row, row), atol=1e-6)


def test_defocus_against_a_plain_double_loop():
    x = unit(pictures(1))
    kernel = blur.disk(*blur.DEFOCUS[4])  # (7, 7)
    wide = np.pad(x, ((0, 0), (0, 0), (3, 3), (3, 3)), "reflect")
    slow = np.zeros_like(x)
    for r in range(7):
        for c in range(7):
            slow += kernel[r, c] * wide[:, :, r : r + 32, c : c + 32]
    assert np.allclose(blur.defocus_blur(x, 5, streams(1)), slow, atol=1e-6)


def test_the_widest_disk_is_three_by_three():
    hard = blur.disk(1.5, 1e-3)
    assert np.allclose(hard[2:5, 2:5], 1 / 9)
    assert hard.sum() == pytest.approx(1)


def test_glass_blur_against_the_original_loop():
    """Pixel by pixel from the lower right, with the swap that numpy's views turn into a copy."""
    sigma, passes = blur.GLASS[4]
    x = unit(pictures(2))
    rng = streams(2)
    draws = [rng.integers(2, 2, 32, 32) for _ in range(passes)]
    slow = []
    for i, image in enumerate(x):
        p = ndimage.gaussian_filter(image, (0, sigma, sigma), mode="nearest").transpose(1, 2, 0).copy()
        for draw in draws:
            for h in range(31, 1, -1):
                for w in range(31, 1, -1):
                    up, left = draw[i, :, h, w]
                    p[h, w], p[h - up, w - left] = p[h - up, w - left], p[h, w]
        slow.append(ndimage.gaussian_filter(p.transpose(2, 0, 1), (0, sigma, sigma), mode="nearest"))
    assert np.allclose(blur.glass_blur(x, 5, streams(2)), slow, atol=1e-6)


def test_motion_blur_against_a_plain_loop():
    x = unit(pictures(3))
    angles = np.array([0.0, 33.0, -120.0], np.float32)
    taps = blur.motion_kernel(8, 2.0)
    assert len(taps) == 17
    slow = np.zeros_like(x)
    for n, angle in enumerate(np.deg2rad(angles.astype(np.float64))):
        for h in range(32):
            for w in range(32):
                for i, weight in enumerate(taps):
                    row = int(np.clip(h + np.ceil(i * np.sin(angle) - 0.5), 0, 31))
                    col = int(np.clip(w + np.ceil(i * np.cos(angle) - 0.5), 0, 31))
                    slow[n, :, h, w] += weight * x[n, :, row, col]
    assert np.allclose(blur.move(x, angles, 8, 2.0), slow, atol=1e-6)


def test_level_motion_smears_a_dot_along_its_row():
    dot = np.zeros((1, 1, 32, 32), np.float32)
    dot[..., 10, 20] = 1
    out = blur.move(dot, np.zeros(1, np.float32), 6, 2.0)[0, 0]
    assert np.allclose(out[10, 8:21][::-1], blur.motion_kernel(6, 2.0))
    assert np.delete(out, 10, 0).max() == 0


@pytest.mark.parametrize("factor", [1.0, 1.01, 1.06, 1.25, 1.75, 2.25])
def test_clipped_zoom_against_scipy(factor):
    x = unit(pictures(1))
    kept = int(np.ceil(32 / factor))
    first = (32 - kept) // 2
    crop = x[0, :, first : first + kept, first : first + kept]
    large = ndimage.zoom(crop, (1, factor, factor), order=1)
    trim = (large.shape[1] - 32) // 2
    expected = large[:, trim : trim + 32, trim : trim + 32]
    assert np.allclose(resample.clipped_zoom(x, factor)[0], expected, atol=1e-6)


def test_zoom_blur_is_the_mean_of_the_image_and_its_enlargements():
    x = unit(pictures(1))
    for level, last in zip(LEVELS, (1.06, 1.11, 1.15, 1.20, 1.25), strict=True):
        steps = round(last * 100) - 100 + 1
        slow = x.copy()
        for step in range(steps):
            slow += resample.clipped_zoom(x, 1 + step / 100 + 1e-12)  # 26 * 1.25 = 32.5 counts as 33
        assert np.allclose(blur.zoom_blur(x, level, streams(1)), slow / (steps + 1), atol=1e-5)


@pytest.mark.parametrize(("border", "mode"), [("symmetric", "reflect"), ("mirror", "mirror"), ("edge", "nearest")])
def test_reading_between_and_beyond_pixels_against_scipy(border, mode):
    x = unit(pictures(2, 20, 24))
    rng = np.random.default_rng(0)
    rows, cols = rng.uniform(-15, 35, (2, 2, 9, 5))
    out = resample.sample(x, rows, cols, border)
    for i in range(2):
        for c in range(3):
            expected = ndimage.map_coordinates(x[i, c], [rows[i], cols[i]], order=1, mode=mode)
            assert np.allclose(out[i, c], expected, atol=1e-5)


# --- Weather ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["snow", "frost"])
def test_snow_and_light_frost_only_brighten(name):
    x = pictures()
    assert (corrupt(x, name, 1) >= x).all()


def test_snow_falls_as_on_a_half_turned_card():
    """The flakes and their rotation by 180 degrees: over a flat image the result is its own rotation."""
    for level in LEVELS:
        out = corrupt(constant(20, n=4), "snow", level)
        assert torch.equal(out, out.flip(2, 3))
        assert out.float().std() > 5


def test_frost_adds_its_share_of_the_texture():
    sheets = weather.frost_sheets()
    assert sheets.shape == (5, 3, 256, 256)
    assert 0 <= sheets.min() < 0.1
    assert 0.9 < sheets.max() <= 1
    black, white = constant(0, n=20), constant(255, n=20)
    for level, (image_share, frost_share) in zip(LEVELS, weather.FROST, strict=True):
        out = unit(corrupt(black, "frost", level))
        assert out.max() <= frost_share + 0.5 / 255
        assert out.mean() == pytest.approx(frost_share * sheets.mean(), rel=0.15)
        assert unit(corrupt(white, "frost", level)).min() >= image_share - 0.5 / 255


def test_frost_is_the_same_texture_for_every_seed():
    """A piece of one of the five sheets lies over a black image."""
    out = corrupt(constant(0, n=3), "frost", 2, seed=9)
    texture = np.rint(weather.frost_sheets() * 0.3 * 255)  # (5, 3, 256, 256)
    wide = np.concatenate([texture, texture[..., :32]], 3)
    for image in out.numpy():
        # Rows of the piece are rows of a sheet: look for its first row.
        windows = np.lib.stride_tricks.sliding_window_view(wide[:, 0], 32, axis=2)  # (5, 256, 257, 32)
        assert (np.abs(windows - image[0, 0]).max(3) <= 1).any()


def test_fog_runs_from_the_darkened_peak_to_the_peak():
    for level, (strength, _) in zip(LEVELS, weather.FOG, strict=True):
        out = corrupt(constant(255, n=5), "fog", level)
        for image in out:
            assert image.max() == 255
            assert image.min() == round(255 / (1 + strength))
    assert corrupt(constant(0), "fog", 5).max() == 0


def test_plasma_against_the_diamond_square_rule_cell_by_cell():
    size, decay = 8, 2.0
    rng = streams(2)
    slow = np.zeros((2, size, size))
    step, wobble = size, 100.0
    while step >= 2:
        half, cells = step // 2, size // step
        for kind in ("square", "across", "down"):
            draw = wobble * rng.uniform(-wobble, wobble, cells, cells)
            for i in range(cells):
                for j in range(cells):
                    r, c = i * step, j * step
                    if kind == "square":
                        at, near = (r + half, c + half), [(0, 0), (0, step), (step, 0), (step, step)]
                    elif kind == "across":
                        at, near = (r, c + half), [(0, 0), (0, step), (half, half), (-half, half)]
                    else:
                        at, near = (r + half, c), [(0, 0), (step, 0), (half, half), (half, -half)]
                    mean = sum(slow[:, (r + dr) % size, (c + dc) % size] for dr, dc in near) / 4
                    slow[:, at[0], at[1]] = mean + draw[:, i, j]
        step, wobble = half, wobble / decay
    slow -= slow.min((1, 2), keepdims=True)
    slow /= slow.max((1, 2), keepdims=True)
    assert np.allclose(weather.plasma(streams(2), size, decay), slow, atol=1e-5)


def test_mud_covers_or_leaves_alone():
    x = constant(200, n=10)
    for level in (4, 5):
        out = corrupt(x, "spatter", level)
        muddy = (out != 200).any(1)  # (n, h, w)
        assert 0.01 < muddy.float().mean() < 0.6
        cover = (200 - out[:, 0].float()) / (200 - 63)
        assert cover[muddy].min() > 0.79  # thinner cover is cut off
        full = muddy & (cover > 0.999)
        assert full.any()
        assert ((out.permute(0, 2, 3, 1)[full].int() - torch.tensor([63, 42, 20])).abs() <= 1).all()


def test_water_only_brightens_and_in_its_own_colour():
    for level in (1, 2, 3):
        added = corrupt(constant(100, n=10), "spatter", level).float() - 100
        assert added.min() == 0
        assert added.amax((1, 2, 3)).min() > 20
        assert torch.equal(added[:, 1], added[:, 2])
        assert ((added[:, 0] - added[:, 1] * 175 / 238).abs() <= 1).all()


def test_a_step_has_one_line_of_edge():
    step = np.zeros((2, 12, 12), np.uint8)
    step[0, :, 6:] = 200
    step[1, 3:] = 200
    edges = weather._edges(step)
    assert edges[0].sum(1).tolist() == [1] * 12
    assert edges[1].sum(0).tolist() == [1] * 12


def test_faint_edges_count_only_where_they_touch_a_strong_one():
    faint = np.zeros((2, 12, 12), np.uint8)
    faint[:, :, 6:] = 25  # a step of 25 has the gradient 100: between the thresholds
    faint[1, 5:7, 6:] = 200
    edges = weather._edges(faint)
    assert not edges[0].any()
    assert edges[1, :, 5:7].any(1).all()


def test_relief_of_dry_glass_is_finite_and_the_same_in_any_batch():
    dry = np.zeros((1, 32, 32), np.uint8)
    wet = np.zeros((1, 32, 32), np.uint8)
    wet[0, 8:20, 8:20] = 200
    alone, together = weather._relief(dry), weather._relief(np.concatenate([dry, wet]))
    assert np.isfinite(alone).all()
    assert np.array_equal(together[:1], alone)
    assert np.array_equal(together[1:], weather._relief(wet))


def test_histogram_equalisation_by_hand():
    x = np.array([[[0, 0], [1, 3]], [[7, 7], [7, 7]]], np.uint8)
    assert weather._equalised(x).tolist() == [[[0, 0], [128, 255]], [[7, 7], [7, 7]]]


# --- Digital ---------------------------------------------------------------------------------------------------------


def test_brightness_adds_to_the_hsv_value():
    out = corrupt(constant(102, 51, 0), "brightness", 1)  # value 0.4 becomes 0.45
    assert out[0, :, 0, 0].tolist() == [115, 57, 0]
    assert corrupt(constant(0), "brightness", 4).unique().tolist() == [51]
    assert corrupt(constant(250, 125, 0), "brightness", 5)[0, :, 0, 0].tolist() == [255, 128, 0]


def test_contrast_shrinks_about_each_channels_mean():
    x = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    x[:, 0, :, 16:] = 200  # mean 100
    x[:, 1, :, 24:] = 100  # mean 25
    out = corrupt(x, "contrast", 3)  # 0.4
    assert out[0, 0, 0, [0, 31]].tolist() == [60, 140]
    assert out[0, 1, 0, [0, 31]].tolist() == [15, 55]
    assert out[0, 2].unique().tolist() == [0]


def test_saturate_scales_the_hsv_saturation():
    pixel = constant(200, 100, 100)  # saturation 0.5: becomes 0.15, 0.05, 0.75, 1, 1
    seen = [corrupt(pixel, "saturate", level)[0, :, 0, 0].tolist() for level in LEVELS]
    assert seen == [[200, 170, 170], [200, 190, 190], [200, 50, 50], [200, 0, 0], [200, 0, 0]]


def test_saturate_leaves_grey_alone_until_it_adds_a_constant():
    grey = constant(100)
    for level in (1, 2, 3):
        assert torch.equal(corrupt(grey, "saturate", level), grey)
    assert corrupt(grey, "saturate", 4)[0, :, 0, 0].tolist() == [100, 90, 90]  # hue 0 is red
    assert corrupt(grey, "saturate", 5)[0, :, 0, 0].tolist() == [100, 80, 80]


def test_brightness_and_saturate_against_colorsys():
    import colorsys

    x = torch.randint(0, 256, (1, 3, 6, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    bright, drained, vivid = corrupt(x, "brightness", 3), corrupt(x, "saturate", 1), corrupt(x, "saturate", 4)
    for r in range(6):
        for c in range(6):
            h, s, v = colorsys.rgb_to_hsv(*(x[0, :, r, c].double() / 255).tolist())
            for out, hsv in (
                (bright, (h, s, min(1, v + 0.15))),
                (drained, (h, s * 0.3, v)),
                (vivid, (h, min(1, s * 2 + 0.1), v)),
            ):
                expected = torch.tensor(colorsys.hsv_to_rgb(*hsv)) * 255
                assert (out[0, :, r, c] - expected).abs().max() <= 0.5001


@pytest.mark.parametrize(("name", "error"), [("pixelate", 0), ("contrast", 0), ("jpeg", 1)])
def test_a_grey_image_stays_as_it_is(name, error):
    for level in LEVELS:
        out = corrupt(constant(77), name, level).int()
        assert (out - 77).abs().max() <= error
        assert len(out.unique()) == 1


def test_pixelate_and_jpeg_against_pillow_alone():
    x = pictures(2)
    for i, image in enumerate(x.permute(0, 2, 3, 1).numpy()):
        small = Image.fromarray(image).resize((20, 20), Image.Resampling.BOX)  # 32 * 0.65
        expected = np.asarray(small.resize((32, 32), Image.Resampling.BOX))
        assert np.array_equal(corrupt(x, "pixelate", 5)[i].permute(1, 2, 0), expected)
        file = io.BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=40)
        assert np.array_equal(corrupt(x, "jpeg", 5)[i].permute(1, 2, 0), np.asarray(Image.open(file)))


def test_pixelate_leaves_twenty_values_a_row():
    ramp = torch.arange(32, dtype=torch.uint8).mul(8).expand(1, 3, 32, 32)
    assert len(corrupt(ramp.contiguous(), "pixelate", 5)[0, 0, 0].unique()) == 20


def test_affine_moves_the_image_with_its_three_corners():
    x = unit(pictures(1))
    assert np.allclose(digital._affine(x, np.zeros((1, 3, 2), np.float32)), x, atol=1e-5)
    right = digital._affine(x, np.tile(np.float32([2, 0]), (1, 3, 1)))
    assert np.allclose(right[..., 2:], x[..., :-2], atol=1e-5)
    down = digital._affine(x, np.tile(np.float32([0, 3]), (1, 3, 1)))
    assert np.allclose(down[:, :, 3:], x[:, :, :-3], atol=1e-5)
    assert np.allclose(down[:, :, 2], x[:, :, 1], atol=1e-5)  # mirrored at the edge, without repeating it


def test_elastic_shifts_stay_within_their_bounds():
    """An image whose value is its column: after the shifts no pixel can be further off than shift plus jitter allow."""
    ramp = (np.arange(64, dtype=np.float32) / 64 * np.ones((16, 3, 64, 1), np.float32)).copy()
    out = digital.elastic(ramp, 4, streams(16))
    off = np.abs(out - ramp)[..., 16:48, 16:48] * 64
    assert 0.5 < off.max() < 64 * (0.1 + 3 * 0.05)


# --- Random numbers --------------------------------------------------------------------------------------------------


def test_streams_are_apart_by_seed_name_and_row():
    draws = [Streams(s, n, [r]).normal(8).tobytes() for s in (0, 1) for n in ("a", "b") for r in (0, 1)]
    assert len(set(draws)) == 8


def test_streams_draw_what_they_say():
    rng = Streams(0, "a", range(200))
    normal, uniform = rng.normal(50), rng.uniform(-3, 5, 50)
    assert normal.std() == pytest.approx(1, abs=0.03)
    assert uniform.min() >= -3
    assert uniform.max() <= 5
    assert uniform.mean() == pytest.approx(1, abs=0.1)
    assert np.bincount(rng.integers(3, 50).ravel()).min() > 3000
    assert rng.poisson(np.full((200, 50), 4.0)).mean() == pytest.approx(4, abs=0.1)
    assert abs(np.corrcoef(normal[:-1].ravel(), normal[1:].ravel())[0, 1]) < 0.05  # neighbouring rows are unrelated


# --- BiasAdv's eight -------------------------------------------------------------------------------------------------


def test_there_are_eight():
    assert list(INPUT_CORRUPTIONS) == [
        "gaussian_noise",
        "salt_and_pepper",
        "cutout",
        "coarse_dropout",
        "rotation",
        "perspective",
        "jpeg",
        "gaussian_blur",
    ]


@pytest.mark.parametrize("name", INPUT_CORRUPTIONS)
@pytest.mark.parametrize("shape", [(12, 1, 28, 28), (12, 3, 50, 40)])
def test_input_corruptions_keep_form_and_rows(name, shape, monkeypatch):
    n, channels, h, w = shape
    x = pictures(n, h, w, channels)
    function = INPUT_CORRUPTIONS[name]
    whole = function(x)
    assert whole.shape == x.shape
    assert whole.dtype == torch.uint8
    assert not torch.equal(whole, x)
    assert torch.equal(function(x), whole)
    assert not torch.equal(function(x, seed=1), whole)
    assert torch.equal(torch.cat([function(x[i : i + 1], rows=[i]) for i in range(n)]), whole)
    monkeypatch.setattr(corruption_streams, "BLOCK", 5 * channels * h * w)
    assert torch.equal(function(x), whole)


def test_input_noise_has_one_strength_an_image_and_one_value_a_pixel():
    out = INPUT_CORRUPTIONS["gaussian_noise"](constant(100, n=300)).float()
    assert torch.equal(out[:, 0], out[:, 2])
    std = out[:, 0].flatten(1).std(1)
    assert std.max() < 2.75
    assert std.min() < 0.3
    assert std.mean().item() == pytest.approx(2.55 / 2, abs=0.2)


def test_one_pixel_in_a_thousand_is_salt_or_pepper():
    out = INPUT_CORRUPTIONS["salt_and_pepper"](constant(77, n=200))
    hit = (out != 77).any(1)
    assert hit.float().mean().item() == pytest.approx(0.001, rel=0.25)
    grains = out.permute(0, 2, 3, 1)[hit]
    assert (grains == grains[:, :1]).all()  # grey
    assert ((grains[:, 0] < 64) | (grains[:, 0] > 191)).float().mean() > 0.55  # an even spread would have a half


def test_cutout_hides_two_squares():
    out = INPUT_CORRUPTIONS["cutout"](constant(0, n=200))
    hidden = (out == 128).all(1)
    assert torch.equal(hidden, (out != 0).any(1))
    area = hidden.sum((1, 2))
    assert area.max() == 2 * 6 * 6
    assert area.min() >= 3 * 3
    assert area.float().mean() > 45


def test_coarse_dropout_blackens_rectangles():
    x = torch.full((400, 3, 40, 40), 255, dtype=torch.uint8)
    black = INPUT_CORRUPTIONS["coarse_dropout"](x).eq(0).all(1)
    assert black.float().mean().item() == pytest.approx(0.025, abs=0.006)
    assert black.any((1, 2)).float().mean() < 0.95  # some are spared
    for image in black.numpy():
        _, count = ndimage.label(image)
        assert image.sum() >= 16 * count  # a cell has at least four rows and columns


def test_rotation_against_scipy():
    x = pictures(3, 40, 40)
    angles = Streams(0, "input rotation", range(3)).uniform(-30, 30)
    assert np.abs(angles).max() > 5
    out = INPUT_CORRUPTIONS["rotation"](x).float().numpy()
    for i in range(3):
        for c in range(3):
            image = x[i, c].numpy().astype(np.float32)
            expected = ndimage.rotate(image, -angles[i], reshape=False, order=1, mode="reflect")
            assert np.abs(out[i, c] - expected).max() <= 0.51


def test_perspective_sends_corners_to_its_four_points_and_never_folds():
    rng = np.random.default_rng(0)
    corner = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], float)
    inwards = rng.uniform(0, input_corruptions.FURTHEST_CORNER, (500, 4, 2))
    inwards[:100] = rng.choice([0, input_corruptions.FURTHEST_CORNER], (100, 4, 2))
    target = corner + inwards * (1 - 2 * corner)
    matrix = input_corruptions.homography(corner, target)
    for k, (u, v) in enumerate(corner):
        x, y, depth = np.moveaxis(matrix @ [u, v, 1], -1, 0)
        assert np.allclose(x / depth, target[:, k, 0])
        assert np.allclose(y / depth, target[:, k, 1])
        assert depth.min() > 0  # it is linear: positive at the corners, positive everywhere


def test_perspective_against_pillow():
    """On images that are not square, so that rows and columns cannot change places unseen."""
    h, w = 50, 40
    x = pictures(4, h, w, channels=1)
    out = INPUT_CORRUPTIONS["perspective"](x)
    rng = Streams(0, "input perspective", range(4))
    inwards = np.abs(rng.normal(4, 2) * rng.uniform(0.05, 0.15)[:, None, None]).clip(0, 0.32)
    for i in range(4):
        equations, values = [], []
        for k, (u, v) in enumerate([(0, 0), (1, 0), (1, 1), (0, 1)]):
            col, row = u * w, v * h
            to_col, to_row = col + inwards[i, k, 0] * w * (1 - 2 * u), row + inwards[i, k, 1] * h * (1 - 2 * v)
            equations += [[col, row, 1, 0, 0, 0, -col * to_col, -row * to_col]]
            equations += [[0, 0, 0, col, row, 1, -col * to_row, -row * to_row]]
            values += [to_col, to_row]
        map_back = np.linalg.solve(equations, values)
        image = Image.fromarray(x[i, 0].numpy())
        expected = image.transform((w, h), Image.Transform.PERSPECTIVE, map_back, Image.Resampling.BILINEAR)
        assert np.abs(out[i, 0].numpy()[2:-2, 2:-2] - np.asarray(expected, int)[2:-2, 2:-2]).max() <= 1


def test_perspective_enlarges_the_middle():
    ramp = torch.arange(64, dtype=torch.uint8).mul(4).expand(50, 1, 64, 64).contiguous()
    out = INPUT_CORRUPTIONS["perspective"](ramp).int()
    assert (out.diff(dim=3) >= 0).float().mean() > 0.99  # columns keep their order
    left, right = out[..., 0].float().mean() / 4, out[..., -1].float().mean() / 4
    assert 3 < left < 9  # on average 0.08 of a side, E|N(0, s)| with s about 0.1
    assert 54 < right < 60


def test_input_jpeg_has_a_quality_from_7_to_22():
    x = pictures(64)
    strength = 80 + Streams(0, "input jpeg", range(64)).integers(16)
    assert {80, 95} <= set(strength.tolist())
    out = INPUT_CORRUPTIONS["jpeg"](x)
    for i in range(64):
        quality = round(1 + 99 * (1 - strength[i] / 101))
        assert 7 <= quality <= 22
        file = io.BytesIO()
        Image.fromarray(x[i].permute(1, 2, 0).numpy()).save(file, "JPEG", quality=quality)
        assert np.array_equal(out[i].permute(1, 2, 0), np.asarray(Image.open(file)))


def test_input_blur_against_scipy():
    x = pictures(6)
    sigma = Streams(0, "input gaussian_blur", range(6)).uniform(1, 3).astype(float)
    out = INPUT_CORRUPTIONS["gaussian_blur"](x).float().numpy()
    for i, s in enumerate(sigma):
        size = int(max(3.3 * s, 5))
        expected = ndimage.gaussian_filter(x[i].numpy().astype(float), (0, s, s), mode="mirror", radius=size // 2)
        assert np.abs(out[i] - expected).max() <= 0.51
