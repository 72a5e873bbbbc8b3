"""Batched augmentation: each step against torchvision's own, sample by sample, and what only a batch can get wrong."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torchvision.transforms.functional as TF
from torch import Tensor
from torchvision.transforms import InterpolationMode, RandomResizedCrop

from spurless.core.augment import PRESETS, Augment, Draws, apply, augment, draw, preset, turn_hue
from spurless.core.errors import UserError

ALONE = {
    "resized crop": Augment(scale=(0.3, 0.9)),
    "ratio": Augment(scale=(0.5, 0.6), ratio=(0.5, 2.0)),
    "padded crop": Augment(pad=3),
    "flip": Augment(flip=True),
    "rotation": Augment(rotate=30),
    "nearest rotation": Augment(rotate=30, rotate_mode="nearest"),
    "brightness": Augment(brightness=0.5),
    "contrast": Augment(contrast=0.5),
    "saturation": Augment(saturation=0.5),
    "hue": Augment(hue=0.5),
}
ALL = Augment((0.5, 1.0), (0.8, 1.25), 2, True, 20, 0.4, 0.4, 0.4, 0.1)
MODE = {"bilinear": InterpolationMode.BILINEAR, "nearest": InterpolationMode.NEAREST}


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def images(n: int = 12, c: int = 3, h: int = 17, w: int = 22, dtype: torch.dtype = torch.float64) -> Tensor:
    """Not square, so that rows and columns cannot be mistaken for each other; odd and even, for the centre."""
    return torch.rand(n, c, h, w, dtype=dtype)


def drawn(how: Augment, n: int, h: int, w: int, device: str = "cpu") -> Any:
    return draw(how, n, h, w, device)


def each(x: Tensor, change) -> Tensor:
    """The slow, obvious way: image by image."""
    return torch.stack([change(image, i) for i, image in enumerate(x)])


def slowly_cropped(x: Tensor, crop: Tensor) -> Tensor:
    boxes = crop.int().T.tolist()  # top, left, height, width
    return each(x, lambda image, i: TF.resized_crop(image, *boxes[i], list(image.shape[1:]), antialias=True))


def slowly_shifted(x: Tensor, shift: Tensor, pad: int) -> Tensor:
    h, w = x.shape[2:]
    return each(x, lambda m, i: TF.crop(TF.pad(m, [pad] * 4), *(shift[:, i] + pad).int().tolist(), h, w))


def slowly_rotated(x: Tensor, angle: Tensor, mode: str) -> Tensor:
    return each(x, lambda image, i: TF.rotate(image, angle[i].item(), MODE[mode]))


def close(a: Tensor, b: Tensor, within: float = 1e-6) -> None:
    torch.testing.assert_close(a, b.to(a.dtype), rtol=0, atol=within)


# Each step against torchvision.


@pytest.mark.parametrize("how", [ALONE["resized crop"], ALONE["ratio"], preset("resized_crop_flip")])
@pytest.mark.parametrize("size", [(17, 22), (28, 28), (9, 40)])
def test_resized_crop_is_torchvisions(how, size):
    x = images(40, h=size[0], w=size[1])
    d = drawn(replace(how, flip=False), len(x), *size)
    close(apply(x, d), slowly_cropped(x, d.crop), 1e-5)


def test_a_crop_at_the_border_does_not_darken():
    x = torch.ones(1, 3, 8, 8)
    corner = torch.tensor([[0.0], [0.0], [3.0], [3.0]])
    close(apply(x, Draws(crop=corner)), x)


@pytest.mark.parametrize("mode", MODE)
@pytest.mark.parametrize("size", [(17, 22), (28, 28)])
def test_rotation_is_torchvisions(mode, size):
    x = images(20, h=size[0], w=size[1])
    d = drawn(Augment(rotate=180), len(x), *size)
    close(apply(x, d, mode), slowly_rotated(x, d.angle, mode), 1e-5)


def test_rotation_turns_anticlockwise():
    x = torch.zeros(1, 1, 5, 5)
    x[..., 2, 4] = 1  # right of the centre
    out = apply(x, Draws(angle=torch.tensor([90.0])), "nearest")
    assert out.nonzero().tolist() == [[0, 0, 0, 2]]  # above it


def test_padded_crop_moves_whole_pixels_exactly():
    x = images(50, dtype=torch.float32)
    d = drawn(Augment(pad=4), len(x), 17, 22)
    assert torch.equal(apply(x, d), slowly_shifted(x, d.shift, 4))


def test_flip_is_exact():
    x = images(50, dtype=torch.float32)
    d = drawn(Augment(flip=True), len(x), 17, 22)
    assert torch.equal(apply(x, d), torch.where(d.flip[:, None, None, None] < 0, x.flip(3), x))


@pytest.mark.parametrize("size", [(32, 32), (224, 224), (33, 47)])
def test_crop_and_flip_of_cifar_are_exact(size):
    x = images(16, h=size[0], w=size[1], dtype=torch.float32)
    d = drawn(preset("crop_flip"), len(x), *size)
    slow = slowly_shifted(x, d.shift, 4)
    assert torch.equal(apply(x, d), torch.where(d.flip[:, None, None, None] < 0, slow.flip(3), slow))


@pytest.mark.parametrize(
    ("step", "values"),
    [
        ("brightness", (0.0, 0.4, 1.0, 1.9)),
        ("contrast", (0.0, 0.4, 1.0, 1.9)),
        ("saturation", (0.0, 0.4, 1.0, 1.9)),
        ("hue", (-0.5, -0.26, -0.05, 0.0, 0.1, 1 / 3, 0.5)),
    ],
)
def test_colour_is_torchvisions(step, values):
    x = torch.cat([images(1, h=30, w=30), corners_of_the_cube()[None].expand(1, 3, 30, 30)])
    for value in values:
        factor = torch.full((2,), value, dtype=torch.float64)
        slow = each(x, lambda image, _, v=value: getattr(TF, f"adjust_{step}")(image, v))
        close(apply(x, Draws(**{step: factor})), slow)


def corners_of_the_cube() -> Tensor:
    """Every colour whose channels are 0, 0.3, 0.5 or 1: greys, ties for the largest and the least, pure colours."""
    levels = torch.tensor([0.0, 0.3, 0.5, 1.0], dtype=torch.float64)
    colours = torch.cartesian_prod(levels, levels, levels).T  # (3, 64)
    return colours.repeat(1, 15)[:, :900].reshape(3, 30, 30)


def test_hue_in_single_precision_is_torchvisions():
    x = torch.rand(4, 3, 64, 64).square()  # many dark, nearly grey pixels
    turns = torch.tensor([-0.37, 0.05, 0.21, 0.5])
    slow = each(x, lambda image, i: TF.adjust_hue(image, turns[i].item()))
    close(turn_hue(x, turns.view(4, 1, 1, 1)), slow, 1e-5)


def test_hue_keeps_value_and_chroma():
    x = images()
    out = apply(x, Draws(hue=torch.linspace(-0.5, 0.5, len(x))))
    close(out.amax(1), x.amax(1))
    close(out.amin(1), x.amin(1))


@pytest.mark.parametrize("c", [1, 2])
def test_saturation_and_hue_need_three_channels(c):
    x = images(c=c)
    assert augment(x, Augment(saturation=0.5, hue=0.5)) is x
    assert augment(x, Augment(brightness=0.5, contrast=0.5)).shape == x.shape


@pytest.mark.parametrize("step", ["brightness", "contrast"])
def test_grey_images_are_torchvisions(step):
    x, factor = images(c=1), torch.linspace(0, 2, 12)
    slow = each(x, lambda image, i: getattr(TF, f"adjust_{step}")(image, factor[i].item()))
    close(apply(x, Draws(**{step: factor})), slow)


# Several steps together.


def test_colours_come_in_the_stated_order():
    x, how = images(), Augment(brightness=0.5, contrast=0.5, saturation=0.5, hue=0.3)
    d = drawn(how, len(x), 17, 22)
    slow = x
    for step in ("brightness", "contrast", "saturation", "hue"):
        adjust, factor = getattr(TF, f"adjust_{step}"), getattr(d, step)
        slow = each(slow, lambda image, i, a=adjust, f=factor: a(image, f[i].item()))
    close(apply(x, d), slow)


def test_pgds_pipeline_is_torchvisions_one_after_the_other():
    x, how = images(40, h=28, w=28), preset("pgd_digits")
    d = drawn(how, len(x), 28, 28)
    slow = slowly_cropped(x, d.crop)
    slow = each(slow, lambda m, i: TF.adjust_hue(TF.adjust_saturation(m, d.saturation[i].item()), d.hue[i].item()))
    close(apply(x, d, how.rotate_mode), slowly_rotated(slow, d.angle, "nearest"), 1e-5)


def test_geometry_comes_in_the_stated_order():
    x, how = images(40), Augment((0.3, 0.9), (0.5, 2.0), 3, True, 180)
    d = drawn(how, len(x), 17, 22)
    slow = slowly_shifted(slowly_cropped(x, d.crop), d.shift, 3)
    slow = torch.where(d.flip[:, None, None, None] < 0, slow.flip(3), slow)
    close(apply(x, d._replace(angle=None)), slow, 1e-5)  # exact without rotation
    slow = slowly_rotated(slow, d.angle, "nearest")
    # Rotated last, a pixel of the zero border is beyond the image there, and may be inside it here.
    here = apply(x, d, "nearest")
    unlike = ((here - slow).abs() > 1e-5) & (slow != 0)
    assert not unlike.any()


def test_one_bilinear_reading_is_near_two():
    ramp = torch.linspace(0.2, 1, 40, dtype=torch.float64)
    x = (ramp[:, None] * ramp).expand(10, 3, 40, 40)  # smooth: reading between pixels once or twice is the same
    d = drawn(Augment(scale=(0.5, 1.0), rotate=30), len(x), 40, 40)
    close(apply(x, d), slowly_rotated(slowly_cropped(x, d.crop), d.angle, "bilinear"), 5e-3)


# The draws.


def test_draws_are_in_range_and_reach_their_ends():
    d = drawn(Augment((0.5, 1.0), (0.8, 1.25), 2, True, 20, 0.4, 1.5, 0.4, 0.1), 20_000, 20, 30)
    ranges = [(d.angle, -20, 20), (d.brightness, 0.6, 1.4), (d.contrast, 0, 2.5), (d.saturation, 0.6, 1.4)]
    for values, low, high in [*ranges, (d.hue, -0.1, 0.1)]:
        edge = (high - low) * 0.01
        assert low <= values.min() < low + edge
        assert high - edge < values.max() <= high
        assert abs(values.mean() - (low + high) / 2) < 5 * (high - low) / math.sqrt(12 * 20_000)
    top, left, height, width = d.crop
    assert (torch.stack([top, left]) >= 0).all()
    assert (torch.stack([height, width]) >= 1).all()
    assert (top + height).max() == 20
    assert (left + width).max() == 30
    assert torch.equal(d.crop, d.crop.round())


@pytest.mark.parametrize("pad", [1, 4])
def test_shifts_are_uniform_and_independent(pad):
    n, span = 40_000, 2 * pad + 1
    shift = drawn(Augment(pad=pad), n, 32, 32).shift
    cells = torch.bincount((shift[0] + pad) * span + shift[1] + pad, minlength=span**2)
    expected = n / span**2
    chi2 = ((cells - expected) ** 2 / expected).sum().item()
    assert len(cells) == span**2
    assert abs(chi2 - (span**2 - 1)) < 5 * math.sqrt(2 * (span**2 - 1))


def test_half_of_the_images_are_flipped():
    flip = drawn(Augment(flip=True), 10_000, 4, 4).flip
    assert set(flip.tolist()) == {-1.0, 1.0}
    assert abs(flip.mean()) < 5 / math.sqrt(10_000)


@pytest.mark.parametrize(
    ("how", "size"),
    [
        (preset("pgd_digits"), (28, 28)),  # half of the tries do not fit
        (preset("resized_crop_flip"), (32, 32)),
        (preset("mild_resized_crop_flip"), (40, 40)),  # wide crops only
        (Augment(scale=(0.5, 1.0), ratio=(0.75, 4 / 3)), (16, 40)),
        (Augment(scale=(0.9, 1.0)), (12, 30)),  # nothing fits: always the central square
        (Augment(scale=(0.9, 1.0)), (30, 13)),
    ],
)
def test_crops_are_drawn_as_torchvision_draws_them(how, size):
    n, blank = 3000, torch.empty(1, *size)
    theirs = torch.tensor([RandomResizedCrop.get_params(blank, list(how.scale), list(how.ratio)) for _ in range(n)])
    ours = drawn(how, n, *size).crop.T
    for mine, their in zip(ours.T, theirs.T.float(), strict=True):
        both = torch.cat([mine, their]).unique()
        gap = (mine[:, None] <= both).float().mean(0) - (their[:, None] <= both).float().mean(0)
        assert gap.abs().max() < 2.2 * math.sqrt(2 / n)  # Kolmogorov and Smirnov: by chance once in 8,000


# What only a batch can get wrong.


@pytest.mark.parametrize("how", ALONE.values(), ids=ALONE)
def test_each_sample_has_its_own_numbers(how):
    x = images(1, dtype=torch.float32).expand(64, 3, 17, 22)
    kinds = augment(x, how).flatten(1).unique(dim=0)
    assert len(kinds) == 2 if how.flip else len(kinds) > 20
    assert not torch.equal(augment(x, how), augment(x, how))


@pytest.mark.parametrize("how", ALONE.values(), ids=ALONE)
def test_no_sample_reaches_into_another(how):
    x, d = images(6), drawn(how, 6, 17, 22)
    other = x.clone()
    other[1:] = torch.rand_like(other[1:])
    assert torch.equal(apply(x, d)[0], apply(other, d)[0])


@pytest.mark.parametrize("how", [*PRESETS.values(), ALL])
@pytest.mark.parametrize("c", [1, 3])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_layout_range_and_input_are_kept(how, c, layout):
    x = images(5, c, dtype=torch.float32).to(memory_format=layout)
    before = x.clone()
    out = augment(x, how)
    assert out.shape == x.shape
    assert out.stride() == x.stride()
    assert out.dtype == x.dtype
    assert torch.equal(x, before)
    assert (out.amin() >= 0) & (out.amax() <= 1 + 1e-6)


def test_layout_does_not_change_the_result():
    x, d = images(dtype=torch.float32), drawn(ALL, 12, 17, 22)
    assert torch.equal(apply(x, d), apply(x.to(memory_format=torch.channels_last), d))


@pytest.mark.parametrize("how", [Augment(), Augment(rotate_mode="nearest"), preset("none")])
def test_all_off_returns_the_input_and_draws_nothing(how):
    x, state = images(), torch.get_rng_state()
    assert augment(x, how) is x
    assert augment(x[:, 0, 0], how).ndim == 2  # vectors too
    assert torch.equal(torch.get_rng_state(), state)
    assert draw(how, 3, 4, 4) == Draws()


def test_same_seed_same_images():
    x = images()
    first, then = (torch.manual_seed(7), augment(x, ALL))[1], augment(x, ALL)
    assert torch.equal((torch.manual_seed(7), augment(x, ALL))[1], first)
    assert not torch.equal(first, then)


def test_low_precision_of_the_network_does_not_move_pixels():
    x, d = images(4, h=224, w=224, dtype=torch.float32), drawn(ALL, 4, 224, 224)
    with torch.autocast("cpu", torch.bfloat16):
        inside = apply(x, d)
    assert torch.equal(inside, apply(x, d))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch 2.11's own
@pytest.mark.parametrize("how", [preset("pgd_digits"), preset("crop_flip"), ALL])
def test_compiles_in_one_piece(how):
    """No value is looked at on the way, which a CUDA graph would not allow either."""
    x = images(4, dtype=torch.float32)
    torch.compiler.reset()
    compiled = torch.compile(augment, fullgraph=True, backend="eager")
    expected = (torch.manual_seed(3), augment(x, how))[1]
    torch.manual_seed(3)
    close(compiled(x, how), expected)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("how", [*list(PRESETS.values())[1:], ALL])
def test_cuda_graph(how):
    x = images(64, h=28, w=28, dtype=torch.float32).cuda().to(memory_format=torch.channels_last)
    d = drawn(how, 64, 28, 28, "cuda")
    on_cpu = Draws(*(None if v is None else v.cpu() for v in d))
    unlike = (apply(x, d, how.rotate_mode).cpu() - apply(x.cpu(), on_cpu, how.rotate_mode)).abs() > 1e-4
    assert unlike.float().mean() < 1e-3  # a nearest pixel may be the neighbour where it lies half way
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        augment(x, how)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = augment(x, how)
    graph.replay()
    first = out.clone()
    graph.replay()
    assert not torch.equal(first, out)  # new numbers at each replay
    assert out.stride() == x.stride()


def test_a_wrong_name_and_wrong_inputs_say_what_to_do():
    with pytest.raises(UserError, match="did you mean 'crop_flip'"):
        preset("cropflip")
    with pytest.raises(UserError, match=r"shape \(10,\)"):
        augment(torch.rand(4, 10), preset("flip"))
