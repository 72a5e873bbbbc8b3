"""Corrupted CIFAR-10: published counts, rows that fit their labels, and a cache that is whole or absent."""

import os
import pickle
import signal
import subprocess
import sys
import time
from bisect import bisect_right
from collections import Counter

import numpy as np
import pytest
import torch

from spurless.core.files import cache_dir
from spurless.core.recipe import Recipe
from spurless.core.seeds import derive
from spurless.data.corruptions import CORRUPTIONS, corrupt
from spurless.data.sets import corrupted_cifar10 as cc
from spurless.registry import load_data

TRAIN, TEST = 300, 100


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A CIFAR-10 of 300 + 100 noise images, in the real layout, and an empty cache."""
    monkeypatch.setenv("SPURLESS_CACHE", str(tmp_path / "cache"))
    write_cifar(tmp_path / "data")
    return tmp_path / "data"


def write_cifar(root, seed=0):
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    sizes = {f"data_batch_{i}": TRAIN // 5 for i in range(1, 6)} | {"test_batch": TEST}
    for name, n in sizes.items():
        images = rng.integers(0, 256, (n, 3, 8, 8), dtype=np.uint8).repeat(4, 2).repeat(4, 3)
        batch = {"data": images.reshape(n, -1), "labels": [int(i) % 10 for i in rng.permutation(n)]}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))


def cached():
    return sorted(p.name for p in (cache_dir() / "corrupted_cifar10").glob("*.npy"))


def conflicting(split):
    return int((split.y != split.a[:, 0]).sum())


# --- Which rows, which corruption ------------------------------------------------------------------------------------


def test_mappings_name_ten_corruptions_each():
    for names in cc.MAPPINGS.values():
        assert len(set(names)) == 10
        assert set(names) <= {*CORRUPTIONS, cc.ORIGINAL}
    # LfF's two types share nothing, and are all 19 and the original.
    assert {*cc.MAPPINGS["lff0"], *cc.MAPPINGS["lff1"]} == {*CORRUPTIONS, cc.ORIGINAL}


@pytest.mark.parametrize(
    ("rho", "aligned", "against"),
    [(0.005, 44_832, 228), (0.01, 44_527, 442), (0.02, 44_145, 887), (0.05, 42_820, 2_242), (0.1, 40_500, 4_500)],
)
def test_disent_counts_are_the_published_ones(rho, aligned, against):
    y = torch.arange(50_000) % 10
    parts = cc._disent_rows(50_000, rho, seed=0, train_size=0)
    biases = {name: cc._spread(y[rows], n) for name, (rows, n) in parts.items()}
    train, val = (parts[name][0] for name in ("train", "val"))
    assert int((biases["train"] == y[train]).sum()) == aligned
    assert int((biases["train"] != y[train]).sum()) == against
    assert len(val) == 5_000
    assert int((biases["val"] != y[val]).sum()) == round(rho * 5_000)
    assert len(train.unique()) == len(train)
    assert not set(train.tolist()) & set(val.tolist())
    assert len(val) - len(val.unique()) == max(0, aligned + against - 45_000)


def test_disent_conflicts_are_spread_over_classes_and_corruptions():
    y = torch.arange(45_000) % 10
    a = cc._spread(y, 2_242)
    pairs = Counter(zip(y[a != y].tolist(), a[a != y].tolist(), strict=True))
    assert len(pairs) == 90
    assert set(pairs.values()) <= {24, 25, 26}  # 2,242 / 90
    per_class = Counter(y[a != y].tolist()).values()
    assert max(per_class) - min(per_class) <= 1


def test_lff_biases_against_the_running_count():
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(10, (5_000,), generator=generator)
    for rho in (0.0, 0.005, 0.05, 0.1, 0.9, 1.0):
        a = cc._stretches(y, rho)
        seen = Counter()
        total = Counter(y.tolist())
        for label, bias in zip(y.tolist(), a.tolist(), strict=True):
            shares = [1 - rho if b == label else rho / 9 for b in range(10)]
            ends = [int(np.rint(sum(shares[: b + 1]) * total[label])) for b in range(9)]
            assert bias == bisect_right(ends, seen[label])
            seen[label] += 1


@pytest.mark.parametrize(("rho", "against"), [(0.005, 250), (0.01, 500), (0.02, 1000), (0.05, 2500)])
def test_lff_counts(rho, against):
    y = torch.arange(50_000) % 10
    a = cc._stretches(y, rho)
    assert int((a != y).sum()) == against
    pairs = Counter(zip(y.tolist(), a.tolist(), strict=True))
    assert max(abs(n - 5_000 * rho / 9) for (label, bias), n in pairs.items() if label != bias) <= 1


def test_the_test_split_has_every_pair_equally_often():
    y = torch.arange(10_000) % 10
    pairs = Counter(zip(y.tolist(), cc._stretches(y, cc.TEST_RHO).tolist(), strict=True))
    assert set(pairs.values()) == {100}
    assert len(pairs) == 100


# --- The dataset ----------------------------------------------------------------------------------------------------


def test_each_row_is_its_own_image_with_its_own_corruption(root):
    """Caught: labels, biases and images in different orders."""
    from spurless.data.sources import cifar10

    for mapping in ("lff0", "lff1"):
        data = cc.load(root, mapping, rho=0.3, severity=3, seed=7)
        for name, split in data.splits.items():
            x, y = cifar10(root, train=name == "train")
            for i in range(0, len(split), 7):
                file, _, row = split.names[i].partition("/")
                assert file == name
                assert int(split.y[i]) == int(y[int(row)])
                bias = data.values[0][int(split.a[i, 0])]
                clean = x[int(row)][None]
                seed = derive(7, "corrupted_cifar10", name)
                expected = clean if bias == cc.ORIGINAL else corrupt(clean, bias, 3, seed, rows=[i])
                assert torch.equal(split.x[i], expected[0])


def test_disent_rows_are_their_own_images_too(root):
    from spurless.data.sources import cifar10

    x, y = cifar10(root, train=True)
    data = cc.load(root, rho=0.2, train_size=180)
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 180, "val": 20, "test": 100}
    assert conflicting(data.train) == 36
    assert conflicting(data.val) == 4
    assert not set(data.train.names) & set(data.val.names)
    for name in ("train", "val"):
        split = data.splits[name]
        for i in range(0, len(split), 9):
            row = int(split.names[i].removeprefix("train/"))
            bias = data.values[0][int(split.a[i, 0])]
            expected = corrupt(x[row][None], bias, 5, derive(0, "corrupted_cifar10", name), rows=[i])
            assert torch.equal(split.x[i], expected[0])
            assert int(split.y[i]) == int(y[row])


def test_two_splits_do_not_share_their_noise(root):
    """Row 0 of train and of test are the same flat image with the same corruption, but not under the same noise."""
    for path in (root / "cifar-10-batches-py").iterdir():
        batch = pickle.loads(path.read_bytes())
        batch = {"data": np.full_like(batch["data"], 128), "labels": [0] * len(batch["labels"])}
        path.write_bytes(pickle.dumps(batch, protocol=2))
    data = cc.load(root, "lff1", rho=0)
    assert data.train.a[0] == data.test.a[0] == 0  # Gaussian noise
    noise = [(split.x[0].float() - 128).flatten() for split in (data.train, data.test)]
    assert abs(torch.corrcoef(torch.stack(noise))[0, 1]) < 0.1


def test_the_bundle_says_what_it_is(root):
    data = load_data({"name": "corrupted_cifar10", "mapping": "lff0", "rho": 0.1, "train_size": 50}, root)
    assert data.shape == (3, 32, 32)
    assert data.train.x.dtype == torch.uint8
    assert data.classes[:2] == ("airplane", "automobile")
    assert data.attributes == ("corruption",)
    assert data.values[0][7] == "jpeg"
    aligned = data.is_aligned(data.test)
    assert aligned is not None
    assert torch.equal(aligned[:, 0], data.test.y == data.test.a[:, 0])
    assert data.inputs.mean == (0.4914, 0.4822, 0.4465)
    assert data.inputs.std == (0.2023, 0.1994, 0.2010)
    assert (data.inputs.augment.pad, data.inputs.augment.flip) == (4, True)
    assert data.net == "resnet18"
    assert data.recipe == Recipe(
        "adam", 1e-3, weight_decay=1e-3, batch_size=256, schedule="step", step_every=40, gamma=0.5, epochs=200
    )
    assert any("procedural" in note for note in data.notes)
    assert data.val is None
    assert data.settings["train_size"] == 50


def test_no_note_without_frost(root):
    assert cc.load(root, "lff1", train_size=10, test_size=10).notes == ()


def test_sizes(root):
    data = cc.load(root, train_size=90, test_size=30)
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 90, "val": 10, "test": 30}
    whole = cc.load(root, train_size=TRAIN)
    assert whole.val is None


# --- The cache -------------------------------------------------------------------------------------------------------


def test_a_second_load_reads_the_same_bytes(root, monkeypatch):
    first = cc.load(root, rho=0.05, train_size=90)
    copies = {name: split.x.clone() for name, split in first.splits.items()}
    files = cached()
    assert len(files) == 3

    def refuse(*_):
        raise AssertionError("built again")

    monkeypatch.setattr(cc, "corrupt", refuse)
    second = cc.load(root, rho=0.05, train_size=90)
    assert cached() == files
    for name, split in second.splits.items():
        assert torch.equal(split.x, copies[name])


def test_the_same_settings_build_the_same_bytes_anew(root, monkeypatch, tmp_path):
    first = cc.load(root, train_size=60)
    monkeypatch.setenv("SPURLESS_CACHE", str(tmp_path / "elsewhere"))
    second = cc.load(root, train_size=60)
    for name, split in first.splits.items():
        assert torch.equal(split.x, second.splits[name].x)
        assert torch.equal(split.a, second.splits[name].a)


def test_whatever_changes_the_images_changes_the_key(root, monkeypatch):
    cc.load(root, "lff0", train_size=40, test_size=10)
    known = set(cached())
    changes = [{"severity": 4}, {"seed": 1}, {"rho": 0.5}, {"mapping": "lff1"}, {"train_size": 41}]
    for change in changes:
        cc.load(root, **({"mapping": "lff0", "train_size": 40, "test_size": 10} | change))
        new = set(cached()) - known
        assert new, change
        known |= new
    monkeypatch.setattr(cc, "VERSION", -1)
    cc.load(root, "lff0", train_size=40, test_size=10)
    assert len(set(cached()) - known) == 2
    known = set(cached())
    monkeypatch.undo()
    monkeypatch.setenv("SPURLESS_CACHE", str(root.parent / "cache"))
    write_cifar(root, seed=1)  # other files under the same names
    cc.load(root, "lff0", train_size=40, test_size=10)
    assert len(set(cached()) - known) == 2


def test_writing_to_the_images_leaves_the_cache_alone(root):
    data = cc.load(root, train_size=20, test_size=10)
    before = data.train.x.clone()
    data.train.x.zero_()
    assert torch.equal(cc.load(root, train_size=20, test_size=10).train.x, before)


def test_a_damaged_file_is_built_again(root):
    before = cc.load(root, train_size=20, test_size=10).train.x.clone()
    for path in (cache_dir() / "corrupted_cifar10").glob("*.npy"):
        path.write_bytes(path.read_bytes()[:1000])
    assert torch.equal(cc.load(root, train_size=20, test_size=10).train.x, before)


def test_an_error_on_the_way_leaves_nothing(root, monkeypatch):
    calls = []

    def fail(*args):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return corrupt(*args)

    monkeypatch.setattr(cc, "corrupt", fail)
    with pytest.raises(KeyboardInterrupt):
        cc.load(root, train_size=60)
    assert list((cache_dir() / "corrupted_cifar10").iterdir()) == []


def test_a_killed_build_leaves_no_file_that_could_be_taken_for_whole(root):
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from spurless.data.sets import corrupted_cifar10 as cc\n"
        "real, calls = cc.corrupt, []\n"
        "def slow(*args):\n"
        "    calls.append(1)\n"
        "    if len(calls) == 4:\n"
        "        print('half', flush=True)\n"
        "        time.sleep(60)\n"
        "    return real(*args)\n"
        "cc.corrupt = slow\n"
        "cc.load(Path(sys.argv[1]), train_size=60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script, str(root)], stdout=subprocess.PIPE, env=dict(os.environ))
    assert child.stdout is not None
    assert child.stdout.readline().strip() == b"half"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    left = list((cache_dir() / "corrupted_cifar10").iterdir())
    assert left  # it was writing
    assert cached() == []
    data = cc.load(root, train_size=60)
    row = int(data.train.names[0].removeprefix("train/"))
    from spurless.data.sources import cifar10

    bias = data.values[0][int(data.train.a[0, 0])]
    expected = corrupt(cifar10(root)[0][row][None], bias, 5, derive(0, "corrupted_cifar10", "train"), rows=[0])
    assert torch.equal(data.train.x[0], expected[0])


# --- Real images -----------------------------------------------------------------------------------------------------


@pytest.fixture
def cold(tmp_path, monkeypatch):
    monkeypatch.setenv("SPURLESS_CACHE", str(tmp_path / "cache"))


@pytest.mark.data("cifar-10-batches-py")
def test_real_images_look_as_their_corruption_says(cold):
    data = cc.load(mapping="disent", rho=0.05, train_size=1800, test_size=500)
    assert conflicting(data.train) == 90
    x, a = data.train.x.float() / 255, data.train.a[:, 0]
    names = data.values[0]
    detail = (x.diff(dim=3).abs().mean((1, 2, 3)) + x.diff(dim=2).abs().mean((1, 2, 3))) / 2
    mean = {name: x[a == k].mean().item() for k, name in enumerate(names)}
    detail_of = {name: detail[a == k].mean().item() for k, name in enumerate(names)}
    assert max(mean, key=mean.__getitem__) == "brightness"
    assert min(detail_of, key=detail_of.__getitem__) == "contrast"
    assert set(sorted(detail_of, key=detail_of.__getitem__)[-2:]) == {"gaussian_noise", "impulse_noise"}
    assert detail_of["defocus_blur"] < detail_of["saturate"]
    assert detail_of["gaussian_blur"] < detail_of["saturate"]


@pytest.mark.slow
@pytest.mark.data("cifar-10-batches-py")
@pytest.mark.parametrize("mapping", ["disent", "lff0", "lff1"])
def test_the_whole_set(cold, mapping):
    start = time.perf_counter()
    data = cc.load(mapping=mapping, rho=0.01)
    seconds = time.perf_counter() - start
    counts = {name: (len(split), conflicting(split)) for name, split in data.splits.items()}
    if mapping == "disent":
        assert counts == {"train": (44_969, 442), "val": (5_000, 50), "test": (10_000, 9_000)}
    else:
        assert counts == {"train": (50_000, 500), "test": (10_000, 9_000)}
    pairs = torch.bincount(data.test.y * 10 + data.test.a[:, 0], minlength=100)
    assert pairs.tolist() == [100] * 100
    assert seconds < 180


# --- CIFAR-10 as it is -----------------------------------------------------------------------------------------------


def test_plain_cifar10_is_the_files_in_order_without_attributes(root):
    from spurless import fit
    from spurless.core.errors import UserError
    from spurless.data.sets import cifar10
    from spurless.data.sources import cifar10 as files

    plain = load_data("cifar10", root=root)
    x, y = files(root, train=True)
    assert torch.equal(plain.train.x, x) and torch.equal(plain.train.y, y) and plain.val is None
    assert plain.train.a is None and plain.test.a is None and plain.attributes == () and len(plain.test) == TEST
    assert all(map(torch.equal, (plain.test.x, plain.test.y), files(root, train=False)))
    corrupted = load_data({"name": "corrupted_cifar10", "mapping": "lff0"}, root=root)
    assert (plain.inputs, plain.classes) == (corrupted.inputs, corrupted.classes)
    held = cifar10.load(val=40, root=root)
    assert torch.equal(torch.cat((held.train.x, held.val.x)), x) and len(held.val) == 40
    with pytest.raises(UserError, match="data.val = 300 leaves none of the 300"):
        cifar10.load(val=TRAIN, root=root)
    result = fit("pgd", plain, net="simconv1", recipe={"epochs": 1, "batch_size": 64}, device="cpu", progress=False)
    assert result.status == "done" and 0 <= result.scores["average"] <= 100 and result.scores["conflicting"] is None
