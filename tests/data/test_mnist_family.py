"""Colored MNIST and its relatives: published counts, colours, roles, and the fast code beside slow, obvious code."""

import gzip
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from spurless.core.errors import UserError
from spurless.core.files import data_root
from spurless.core.recipe import RECIPES
from spurless.data import sources
from spurless.data.hosts import available
from spurless.data.sets import colored_mnist, double_mnist, mnist_cifar, multi_bias_mnist

FAMILIES = ("lff", "disent", "pgd", "rebias")
MNIST_COUNTS = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)  # of the training file
LABELS = torch.tensor([label for label, n in enumerate(MNIST_COUNTS) for _ in range(n)])
LABELS = LABELS[torch.randperm(len(LABELS), generator=torch.Generator().manual_seed(0))]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def write_idx(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    header = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes(), 1))


def tell_tale(labels: np.ndarray, first: int) -> np.ndarray:
    """Images (n, 28, 28) from which label and row can be read: a grey square, and four pixels that spell the row."""
    images = np.zeros((len(labels), 28, 28), dtype=np.uint8)
    images[:, 8:20, 8:20] = (100 + 15 * labels)[:, None, None]
    for digit in range(4):
        images[:, 0, digit] = 20 * ((first + np.arange(len(labels))) // 10**digit % 10 + 1)
    return images


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    """A data root with small files of all five sources, in the layouts as distributed."""
    root = tmp_path_factory.mktemp("data")
    draw = np.random.default_rng(0)
    for folder, prefix, sides in (
        ("MNIST", "", ("train", "t10k")),
        ("FashionMNIST", "", ("train", "t10k")),
        ("KMNIST", "", ("train", "t10k")),
        ("EMNIST", "emnist-letters-", ("train", "test")),
    ):
        for side, n, first in ((sides[0], 1200, 0), (sides[1], 300, 5000)):
            labels = draw.permutation(np.arange(n) % 10)
            images = tell_tale(labels, first)
            if folder == "EMNIST":
                images, labels = images.transpose(0, 2, 1), labels + 1
            write_idx(root / folder / "raw" / f"{prefix}{side}-images-idx3-ubyte", images)
            write_idx(root / folder / "raw" / f"{prefix}{side}-labels-idx1-ubyte", labels)
    (root / "cifar-10-batches-py").mkdir()
    for name in ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"):
        labels = draw.permutation(np.arange(200) % 10)
        data = np.repeat(20 * labels[:, None] + 3, 3072, axis=1).astype(np.uint8)
        batch = pickle.dumps({"data": data, "labels": labels.tolist()}, protocol=2)
        (root / "cifar-10-batches-py" / name).write_bytes(batch)
    return root


# --- Which image gets which colour -----------------------------------------------------------------------------------


def slow_rounding(y: list[int], aligned: float) -> list[int]:
    """LfF's assignment as it is told: walk through each class, and change colour at each rounded milestone."""
    out = [-1] * len(y)
    for label in range(10):
        rows = [i for i, v in enumerate(y) if v == label]
        milestones, share = [], 0.0
        for value in range(10):
            share += aligned if value == label else (1 - aligned) / 9
            milestones.append(np.round(len(rows) * share))
        for rank, row in enumerate(rows):
            out[row] = next(value for value in range(10) if milestones[value] > rank)
    return out


@pytest.mark.parametrize("aligned", [1.0, 0.995, 0.99, 0.95, 0.5, 0.1, 0.0])
def test_rounded_shares_equal_the_slow_version(aligned):
    y = LABELS[:7000]
    assert colored_mnist.by_rounding(y, aligned).tolist() == slow_rounding(y.tolist(), aligned)


@pytest.mark.parametrize("rho", [0.005, 0.01, 0.02, 0.05])
def test_lff_counts_are_the_rounded_shares_of_each_class(rho):
    color = colored_mnist.assign("lff", LABELS, rho, rng())
    for label, n in enumerate(MNIST_COUNTS):
        counts = torch.bincount(color[label == LABELS], minlength=10)
        assert abs(int(counts[label]) - (1 - rho) * n) <= 1
        others = counts[torch.arange(10) != label]
        assert int(others.max() - others.min()) <= 1


@pytest.mark.parametrize(
    ("rho", "aligned", "conflicting"),
    [(0.005, 54_751, 249), (0.01, 54_509, 491), (0.02, 54_014, 986), (0.05, 52_551, 2_449)],
)
def test_disent_has_the_published_counts(rho, aligned, conflicting):
    y = LABELS[:55_000]
    color = colored_mnist.assign("disent", y, rho, rng())
    assert int((color == y).sum()) == aligned
    assert int((color != y).sum()) == conflicting
    held_out = colored_mnist.assign("disent", LABELS[55_000:], rho, rng())
    assert int((held_out != LABELS[55_000:]).sum()) == round(5000 * conflicting / 55_000)


@pytest.mark.parametrize("rho", [0.001, 0.01])
def test_rebias_rounds_down_and_spreads_the_rest(rho):
    color = colored_mnist.assign("rebias", LABELS, rho, rng())
    for label, n in enumerate(MNIST_COUNTS):
        counts = torch.bincount(color[label == LABELS], minlength=10)
        assert int(counts[label]) == int(n * round(1 - rho, 12))
        rest = n - int(counts[label])
        others = counts[torch.arange(10) != label]
        assert int(others.max()) == -(-rest // 9)
        assert int(others.sum()) == rest


def test_a_tenth_of_980_is_98():
    """1 - 0.9 is a little less than 0.1, and rounding down would then lose a sample of MNIST's zeros."""
    zeros = torch.zeros(980, dtype=torch.long)
    assert int((colored_mnist.assign("rebias", zeros, 0.9, rng()) == 0).sum()) == 98


def test_pgd_draws_each_image_by_itself():
    conflicts = [int((colored_mnist.assign("pgd", LABELS, 0.01, rng(s)) != LABELS).sum()) for s in range(20)]
    assert len(set(conflicts)) > 10  # not a fixed number
    assert abs(np.mean(conflicts) - 600) < 5 * (600 * 0.99 / 20) ** 0.5


@pytest.mark.parametrize("family", ["lff", "pgd", "rebias"])
@pytest.mark.parametrize("rho", [0.0, 1.0])
def test_no_bias_conflict_and_nothing_but_conflict(family, rho):
    color = colored_mnist.assign(family, LABELS, rho, rng())
    assert bool((color == LABELS).all()) is (rho == 0)
    assert bool((color != LABELS).all()) is (rho == 1)


@pytest.mark.parametrize("family", FAMILIES)
def test_at_rho_09_colour_says_nothing(family):
    """All hundred cells as large as chance makes them: chi-squared with 81 degrees of freedom (exact ones are less)."""
    color = colored_mnist.assign(family, LABELS, 0.9, rng())
    cells = torch.bincount(10 * LABELS + color, minlength=100).view(10, 10).double()
    expected = cells.sum(1, keepdim=True) / 10
    assert float(((cells - expected) ** 2 / expected).sum()) < 140


@pytest.mark.parametrize("family", ["disent", "pgd", "rebias"])
def test_conflicting_colours_are_spread_over_the_other_nine(family):
    color = colored_mnist.assign(family, LABELS, 0.05, rng())
    shift = ((color - LABELS) % 10)[color != LABELS]
    counts = torch.bincount(shift, minlength=10)[1:].double()
    assert float(((counts - counts.mean()) ** 2 / counts.mean()).sum()) < 35  # chi-squared, 8 degrees of freedom


def test_pick_gives_rows_that_have_the_label():
    wanted = LABELS[:5000]
    rows = colored_mnist.pick(LABELS, wanted, rng())
    assert torch.equal(LABELS[rows], wanted)
    assert len(rows.unique()) > 4500  # not one row over and over


# --- Painting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_painting_equals_painting_pixel_by_pixel(family):
    grey = torch.from_numpy(rng(1).integers(0, 256, (3, 28, 28)).astype(np.uint8))
    grey[:, :5] = 0
    color = torch.tensor([0, 9, 4])
    x = colored_mnist.paint(family, grey, color, 2, rng(7))
    noise = rng(7).standard_normal((3, 3), dtype=np.float32)
    std = np.float32(1e-4 if family == "pgd" else 0.02)
    for i in range(3):
        for channel in range(3):
            mean = colored_mnist.COLORS[family][color[i], channel].numpy()
            drawn = np.clip(mean + std * noise[i, channel], np.float32(0), np.float32(1))
            for row in range(28):
                for column in range(28):
                    g = np.float32(grey[i, row, column].item())
                    if family == "rebias":
                        truth = 255 if g else round(float(mean) * 255)
                    else:
                        truth = int(np.round(g * drawn)) if family == "pgd" else int(g * drawn)
                    assert x[i, channel, row, column].item() == truth


def test_colours_vary_by_severity_and_between_images_only():
    grey = torch.full((4000, 4, 4), 255, dtype=torch.uint8)
    color = torch.full((4000,), 3)
    for severity, std in enumerate((0.05, 0.02, 0.01, 0.005, 0.002), start=1):
        x = colored_mnist.paint("lff", grey, color, severity, rng()).double() / 255
        assert bool((x == x[:, :, :1, :1]).all())  # one colour in each image
        found = x[:, :, 0, 0].std(0)
        assert torch.allclose(found, torch.full((3,), std, dtype=torch.double), rtol=0.1, atol=2e-3)


@pytest.mark.data("MNIST")
@pytest.mark.parametrize("family", FAMILIES)
def test_real_digits_have_the_colours_of_the_list(family):
    data = colored_mnist.load(family)
    grey, digits = sources.mnist(train=False)
    split = data.test
    assert split.x.dtype == torch.uint8
    assert split.x.shape == (10_000, 3, 28, 28)
    assert torch.equal(split.y, digits)
    color = colored_mnist.COLORS[family][split.a[:, 0]]  # (n, 3)
    if family == "rebias":
        ink = (grey > 0)[:, None].expand(-1, 3, -1, -1)
        assert bool((split.x[ink] == 255).all())
        ground = (color * 255).round().to(torch.uint8)[:, :, None, None].expand_as(split.x)
        assert torch.equal(split.x[~ink], ground[~ink])
        return
    assert bool((split.x.permute(0, 2, 3, 1)[grey == 0] == 0).all())  # the background is black
    full = (grey == 255).flatten(1)  # where the ink is full, the pixel is the colour, noise aside
    at = full.int().argmax(1)
    seen = split.x.flatten(2)[torch.arange(10_000), :, at][full.any(1)].float() / 255
    off = (seen - color[full.any(1)]).abs()
    assert float(off.max()) < (0.004 if family == "pgd" else 5 * 0.005 + 0.004)


# --- The dataset ----------------------------------------------------------------------------------------------------


@pytest.mark.data("MNIST")
@pytest.mark.parametrize(
    ("family", "sizes", "net"),
    [
        ("lff", {"train": 60_000, "test": 10_000}, "mlp"),
        ("disent", {"train": 55_000, "val": 5_000, "test": 10_000}, "mlp"),
        ("pgd", {"train": 54_000, "val": 6_000, "test": 10_000}, "simconv1"),
        ("rebias", {"train": 60_000, "test": 10_000}, "simconv1"),
    ],
)
def test_families_have_the_published_sizes(family, sizes, net):
    data = colored_mnist.load(family, rho=0.05)
    assert {name: len(split) for name, split in data.splits.items()} == sizes
    assert data.net == net
    for name, split in data.splits.items():
        aligned = float(data.is_aligned(split).double().mean())
        expected = 0.1 if name == "test" else {"disent": 1 - 2449 / 55_000}.get(family, 0.95)
        assert aligned == pytest.approx(expected, abs=0.01)


@pytest.mark.data("MNIST")
def test_disent_from_files_has_the_published_counts():
    data = colored_mnist.load("disent", rho=0.01)
    aligned = data.is_aligned(data.train)
    assert int(aligned.sum()) == 54_509
    assert int((~aligned).sum()) == 491


def test_recipes_are_those_of_the_papers(small):
    pgd = colored_mnist.load("pgd", val=100, root=small)
    r = pgd.recipe
    assert (r.optimizer, r.lr, r.weight_decay, r.momentum, r.batch_size, r.epochs) == ("sgd", 0.02, 1e-3, 0.9, 128, 100)
    assert (r.schedule, r.step_every, r.gamma) == ("step", 40, 0.1)
    how = pgd.inputs.augment
    assert (how.scale, how.rotate, how.hue, how.saturation) == ((0.9, 1.1), 10, 0.05, 0.05)
    lff = colored_mnist.load("lff", root=small)
    assert (lff.recipe.optimizer, lff.recipe.lr, lff.recipe.batch_size, lff.recipe.epochs) == ("adam", 1e-3, 256, 100)
    assert lff.inputs.mean == ()
    assert lff.inputs.augment == type(lff.inputs.augment)()
    disent = colored_mnist.RECIPES["disent"]  # its 5,000 validation images are more than the small files hold
    assert disent == RECIPES["disent-cmnist"] and (disent.schedule, disent.gamma) == ("step", 0.5)
    mb = multi_bias_mnist.load(val=100, root=small).recipe
    assert (mb.optimizer, mb.lr, mb.weight_decay, mb.batch_size, mb.epochs) == ("sgd", 0.01, 1e-4, 32, 100)


def test_lff_validation_is_as_biased_as_training(small):
    """LfF colours in file order: cut after colouring, and the held-out end would hold most of the conflicts."""
    data = colored_mnist.load("lff", rho=0.2, val=400, root=small)
    assert (len(data.train), len(data.val)) == (800, 400)
    for split in (data.train, data.val):
        assert float(data.is_aligned(split).double().mean()) == pytest.approx(0.8, abs=0.02)


def test_target_color_swaps_the_roles(small):
    digit = colored_mnist.load("pgd", rho=0.3, val=200, root=small)
    color = colored_mnist.load("pgd", rho=0.3, val=200, target="color", root=small)
    for name in ("train", "val", "test"):
        one, other = digit.splits[name], color.splits[name]
        assert torch.equal(one.x, other.x)
        assert torch.equal(one.y, other.a[:, 0])
        assert torch.equal(one.a[:, 0], other.y)
        assert torch.equal(digit.is_aligned(one), color.is_aligned(other))
    assert digit.classes == color.values[0] == tuple("0123456789")
    assert (digit.attributes, color.attributes) == (("color",), ("digit",))
    assert color.classes[0] == "crimson"


LOADERS = [
    *(pytest.param(colored_mnist, {"family": f, "val": 200}, id=f) for f in ("lff", "pgd", "rebias")),
    pytest.param(multi_bias_mnist, {"val": 200}, id="multi_bias"),
    pytest.param(double_mnist, {"val": 200}, id="double"),
    pytest.param(mnist_cifar, {"val": 200}, id="mnist_cifar"),
]


@pytest.mark.parametrize(("module", "settings"), LOADERS)
def test_the_same_seed_gives_the_same_data_and_another_seed_other_data(small, module, settings):
    first, again = (module.load(**settings, rho=0.2, seed=3, root=small) for _ in range(2))
    other = module.load(**settings, rho=0.2, seed=4, root=small)
    assert set(first.splits) == {"train", "val", "test"}
    for name, split in first.splits.items():
        assert torch.equal(split.x, again.splits[name].x)
        assert torch.equal(split.y, again.splits[name].y)
        assert torch.equal(split.a, again.splits[name].a)
        assert not torch.equal(split.x, other.splits[name].x)
        assert torch.equal(split.y, other.splits[name].y)  # the target never changes
    assert first.settings == {**first.settings, **settings, "rho": 0.2, "seed": 3}
    assert "root" not in first.settings
    assert first.inputs.mean in ((), (0.5, 0.5, 0.5))


@pytest.mark.parametrize(("module", "settings"), LOADERS)
def test_splits_are_shaped_as_announced(small, module, settings):
    data = module.load(**settings, root=small)
    shape = {"multi_bias_mnist": (3, 56, 56), "double_mnist": (1, 28, 56), "mnist_cifar": (3, 64, 32)}
    assert data.shape == shape.get(data.name, (3, 28, 28))
    assert len(data.classes) == 10
    for split in data.splits.values():
        assert split.x.dtype == torch.uint8
        assert split.x.is_contiguous()
        assert split.a.dtype == split.y.dtype == torch.int64
        assert split.a.shape == (len(split.y), len(data.attributes))
    assert [len(v) for v in data.values] == [10] * len(data.attributes)


@pytest.mark.parametrize("module", [colored_mnist, multi_bias_mnist, double_mnist, mnist_cifar])
def test_missing_files_are_an_error_that_says_what_to_do(tmp_path, module):
    with pytest.raises(UserError, match="spurless data download"):
        module.load(root=tmp_path)


@pytest.mark.parametrize("module", [colored_mnist, multi_bias_mnist, double_mnist, mnist_cifar])
def test_holding_out_everything_is_an_error(small, module):
    with pytest.raises(UserError, match=r"data\.val = 1200"):
        module.load(val=1200, root=small)


def test_disent_takes_only_published_mixtures(small):
    with pytest.raises(UserError, match=r"0\.005, 0\.01, 0\.02, 0\.05"):
        colored_mnist.load("disent", rho=0.03, root=small)
    with pytest.raises(UserError, match="stays 5000"):
        colored_mnist.load("disent", rho=0.01, val=10, root=small)


# --- Multi-bias MNIST ------------------------------------------------------------------------------------------------


def shown(tile: torch.Tensor) -> torch.Tensor:
    """The label that a tell-tale tile (n, 3, 28, 28) shows, and the colour, from the pixel in its middle."""
    middle = tile[:, :, 14, 14].double()  # (n, 3)
    inks = 100 + 15.0 * torch.arange(10)
    every = inks[:, None, None] * colored_mnist.COLORS["pgd"].double()  # (label, colour, 3)
    off = (middle[:, None, None] - every).abs().amax(-1)  # (n, label, colour)
    assert float(off.flatten(1).amin(1).max()) <= 0.6
    return torch.stack(torch.unravel_index(off.flatten(1).argmin(1), (10, 10)), dim=1)


def test_tiles_show_what_the_attributes_say(small):
    data = multi_bias_mnist.load(rho=0.3, val=200, root=small)
    assert data.name == "multi_bias_mnist"
    assert data.notes == ()
    column = {name: k for k, name in enumerate(data.attributes)}
    assert len(column) == 7
    for split in data.splits.values():
        for tile, (row, col) in {"digit": (0, 0), "letter": (0, 1), "fashion": (1, 0), "kana": (1, 1)}.items():
            seen = shown(split.x[:, :, 28 * row : 28 * row + 28, 28 * col : 28 * col + 28])
            assert torch.equal(seen[:, 0], split.y if tile == "digit" else split.a[:, column[tile]])
            assert torch.equal(seen[:, 1], split.a[:, column[f"{tile}_color"]])


def test_each_bias_is_independent_of_the_others():
    pool = (torch.zeros(20_000, 28, 28, dtype=torch.uint8), LABELS[:20_000])
    split = multi_bias_mnist.build(dict.fromkeys(multi_bias_mnist.PLACES, pool), 0.3, rng())
    conflict = (split.a != split.y[:, None]).double()
    assert torch.allclose(conflict.mean(0), torch.full((7,), 0.3, dtype=torch.double), atol=0.015)
    correlation = torch.corrcoef(conflict.T) - torch.eye(7)
    assert float(correlation.abs().max()) < 0.035  # five standard deviations


@pytest.mark.parametrize("absent", [(), ("KMNIST", "EMNIST")])
def test_no_picture_is_in_two_splits(small, tmp_path, monkeypatch, absent):
    root = without(small, tmp_path, absent)
    seen: list[dict[str, set[bytes]]] = []
    real = multi_bias_mnist.build

    def spy(pools, rho, generator):
        seen.append({tile: {image.numpy().tobytes() for image in pool[0]} for tile, pool in pools.items()})
        return real(pools, rho, generator)

    monkeypatch.setattr(multi_bias_mnist, "build", spy)
    multi_bias_mnist.load(val=200, root=root)
    assert len(seen) == 3
    for tile in multi_bias_mnist.PLACES:
        for one, other in ((0, 1), (0, 2), (1, 2)):
            assert not seen[one][tile] & seen[other][tile]


def without(small: Path, tmp_path: Path, absent: tuple[str, ...]) -> Path:
    """The small data root without EMNIST, or without KMNIST's training images."""
    root = tmp_path / "root"
    for path in small.rglob("*.gz"):
        gone = path.parts[-3] in absent and (path.parts[-3] == "EMNIST" or path.name.startswith("train-images"))
        if not gone:
            copy = root / path.relative_to(small)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    return root


@pytest.mark.parametrize("absent", ["KMNIST", "EMNIST"])
def test_a_stand_in_names_itself(small, tmp_path, absent):
    root = without(small, tmp_path, (absent,))
    data = multi_bias_mnist.load(val=200, root=root)
    assert data.name == "multi_bias_mnist-standin"
    assert [absent in note for note in data.notes] == [True]
    assert len(data.train) == 1000
    with pytest.raises(UserError, match=f"{absent}/raw/"):
        multi_bias_mnist.load(val=200, standin=False, root=root)


def test_drawn_letters_vary_within_a_letter_and_differ_between_letters():
    images, labels = multi_bias_mnist.draw_letters(100, rng())
    assert images.shape == (1000, 28, 28)
    assert torch.bincount(labels).tolist() == [100] * 10
    assert len({image.numpy().tobytes() for image in images}) == 1000
    ink = (images > 128).flatten(1).sum(1)
    assert int(ink.min()) >= 10  # every font has the letter, and it is on the tile
    assert int(ink.max()) < 28 * 28 / 2
    assert bool((images[:, [0, -1]] < 128).all(dim=(1, 2)).double().mean() > 0.9)  # hardly any is cut off
    # The nearest neighbour among the others is mostly the same letter; chance is 0.1.
    flat = images.flatten(1).float()
    distance = torch.cdist(flat, flat).fill_diagonal_(float("inf"))
    assert float((labels[distance.argmin(1)] == labels).double().mean()) > 0.5


@pytest.mark.data("MNIST", "FashionMNIST", "KMNIST")
def test_multi_bias_mnist_loads_from_the_real_files():
    data = multi_bias_mnist.load()
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 54_000, "val": 6_000, "test": 10_000}
    assert (data.name == "multi_bias_mnist") is available("multi_bias_mnist", data_root())
    assert torch.allclose(
        data.is_aligned(data.train).double().mean(0), torch.full((7,), 0.9, dtype=torch.double), atol=0.01
    )
    assert torch.allclose(
        data.is_aligned(data.test).double().mean(0), torch.full((7,), 0.1, dtype=torch.double), atol=0.02
    )


# --- Double MNIST and MNIST-CIFAR ------------------------------------------------------------------------------------


@pytest.mark.parametrize("core", ["left", "right"])
def test_double_mnist_puts_the_dim_target_where_it_says(small, core):
    data = double_mnist.load(rho=0.3, core=core, val=200, root=small)
    assert int((data.train.a[:, 0] != data.train.y).sum()) == 300  # exactly, not about
    where = {"left": slice(0, 28), "right": slice(28, 56)}
    other = "right" if core == "left" else "left"
    for split in data.splits.values():
        dim, bright = split.x[:, 0, :, where[core]], split.x[:, 0, :, where[other]]
        assert torch.equal(bright[:, 14, 14].long(), 100 + 15 * split.a[:, 0])
        assert torch.equal(dim[:, 14, 14].long(), ((100 + 15 * split.y) * 0.5).round().long())
        mask, spurious = (each[0] for each in masks_of(data))
        assert bool((split.x[:, 0][:, mask].view(-1, 28, 28) == dim).all())
        assert torch.equal(mask, ~spurious)


def masks_of(data):
    """(1, h, w) each: the core region of the first test image, and the region of the attribute."""
    core, spurious = data.regions(data, "test", torch.tensor([0]))
    return core, spurious[data.attributes[0]]


def rows_of(images: torch.Tensor, brightness: float = 1.0) -> set[tuple[int, ...]]:
    """Which rows of the file tell-tale images (n, 28, 28) are."""
    return {tuple(row) for row in (images[:, 0, :4].double() / (20 * brightness)).round().int().tolist()}


def test_partners_come_from_the_same_split(small):
    data = double_mnist.load(rho=0.3, val=200, root=small)
    seen = {
        name: rows_of(split.x[:, 0, :, :28], 0.5) | rows_of(split.x[:, 0, :, 28:])
        for name, split in data.splits.items()
    }
    assert {name: len(rows) for name, rows in seen.items()} == {"train": 1000, "val": 200, "test": 300}
    dominoes = mnist_cifar.load(val=200, root=small)
    seen = {name: rows_of(split.x[:, 0, 2:30, 2:30]) for name, split in dominoes.splits.items()}
    assert not seen["train"] & seen["val"]
    assert not seen["train"] & seen["test"]


@pytest.mark.parametrize("core", ["top", "bottom"])
def test_mnist_cifar_puts_picture_and_digit_where_it_says(small, core):
    data = mnist_cifar.load(rho=0.25, core=core, val=200, root=small)
    assert data.classes == sources.CIFAR10_CLASSES
    assert int((data.train.a[:, 0] != data.train.y).sum()) == 200  # a quarter of 800
    mask, spurious = (each[0] for each in masks_of(data))
    assert torch.equal(mask, ~spurious)
    for split in data.splits.values():
        picture = split.x[:, :, mask].view(-1, 3, 32, 32)
        digit = split.x[:, :, ~mask].view(-1, 3, 32, 32)
        assert bool((picture.long() == (20 * split.y + 3)[:, None, None, None]).all())
        assert torch.equal(digit[:, 1, 16, 16].long(), 100 + 15 * split.a[:, 0])
        assert bool((digit == digit[:, :1]).all())  # grey
        border = torch.ones(32, 32, dtype=torch.bool)
        border[2:30, 2:30] = False
        assert bool((digit[:, :, border] == 0).all())


@pytest.mark.data("MNIST", "cifar-10-batches-py")
@pytest.mark.parametrize(
    ("module", "train", "conflicting"), [(double_mnist, 60_000, 1_500), (mnist_cifar, 50_000, 5_000)]
)
def test_sizes_are_those_of_the_paper(module, train, conflicting):
    data = module.load()
    assert {name: len(split) for name, split in data.splits.items()} == {"train": train, "test": 10_000}
    assert int((data.train.a[:, 0] != data.train.y).sum()) == conflicting
    assert int((data.test.a[:, 0] != data.test.y).sum()) == 9_000
    assert (data.recipe.optimizer, data.recipe.momentum, data.recipe.batch_size) == ("sgd", 0, 100)
    assert data.recipe.until_accuracy == 100
