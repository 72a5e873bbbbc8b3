"""The files that datasets are made of: what is needed, and reading it as distributed."""

import ast
import gzip
import hashlib
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from spurless.core.errors import UserError
from spurless.core.files import data_root
from spurless.data import hosts, sources
from spurless.data.hosts import Source
from spurless.data.sets import DATASETS

GENERATED = {"toy", "colored_digits", "shapes", "parity", "moon_star", "gaussians", "linear_toy", "movie_reviews"}


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


# --- Reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_are_read_plain_and_gzipped(tmp_path, packed):
    images = np.arange(2 * 28 * 28, dtype=np.uint8).reshape(2, 28, 28)
    folder = tmp_path / "MNIST/raw"
    folder.mkdir(parents=True)
    for name, array in (("images-idx3", images), ("labels-idx1", np.array([7, 3], dtype=np.uint8))):
        path = folder / f"t10k-{name}-ubyte{'.gz' if packed else ''}"
        path.write_bytes(gzip.compress(idx(array)) if packed else idx(array))
    x, y = sources.mnist(tmp_path, train=False)
    assert x.dtype == torch.uint8
    assert y.dtype == torch.int64
    assert np.array_equal(x.numpy(), images)
    assert y.tolist() == [7, 3]


@pytest.mark.parametrize("spoil", [lambda d: d[:-1], lambda d: d + b"x", lambda d: b"\1" + d[1:], lambda d: b""])
def test_a_damaged_idx_file_is_named(tmp_path, spoil):
    path = tmp_path / "broken-idx"
    path.write_bytes(spoil(idx(np.zeros((2, 3), dtype=np.uint8))))
    with pytest.raises(UserError, match="broken-idx"):
        sources.read_idx(path)


def test_a_damaged_gzip_is_named(tmp_path):
    path = tmp_path / "short-idx.gz"
    path.write_bytes(gzip.compress(idx(np.zeros((2, 300), dtype=np.uint8)))[:-9])
    with pytest.raises(UserError, match="short-idx"):
        sources.read_idx(path)


def test_images_without_their_labels_are_refused(tmp_path):
    folder = tmp_path / "KMNIST/raw"
    folder.mkdir(parents=True)
    (folder / "t10k-images-idx3-ubyte").write_bytes(idx(np.zeros((3, 28, 28), dtype=np.uint8)))
    (folder / "t10k-labels-idx1-ubyte").write_bytes(idx(np.zeros(2, dtype=np.uint8)))
    with pytest.raises(UserError, match="3 images but 2 labels"):
        sources.kmnist(tmp_path, train=False)


def test_emnist_letters_stand_upright_and_count_from_zero(tmp_path):
    upright = np.zeros((1, 28, 28), dtype=np.uint8)
    upright[0, 2, 5:20] = 255  # a bar from left to right near the top
    folder = tmp_path / "EMNIST/raw"
    folder.mkdir(parents=True)
    (folder / "emnist-letters-train-images-idx3-ubyte").write_bytes(idx(upright.transpose(0, 2, 1).copy()))
    (folder / "emnist-letters-train-labels-idx1-ubyte").write_bytes(idx(np.array([26], dtype=np.uint8)))
    x, y = sources.emnist_letters(tmp_path)
    assert np.array_equal(x.numpy(), upright)
    assert y.tolist() == [25]


def test_a_missing_file_is_an_error_that_says_what_to_do(tmp_path):
    with pytest.raises(UserError) as error:
        sources.fashion_mnist(tmp_path)
    assert "FashionMNIST/raw/train-images-idx3-ubyte" in str(error.value)
    assert str(tmp_path) in str(error.value)
    assert "spurless data download fashion_mnist" in str(error.value)


def test_cifar_batches_are_read(tmp_path):
    rows = np.arange(2 * 3072, dtype=np.uint8).reshape(2, 3072)
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "test_batch").write_bytes(pickle.dumps({"data": rows, "labels": [9, 0]}, protocol=2))
    x, y = sources.cifar10(tmp_path, train=False)
    assert x.shape == (2, 3, 32, 32)
    assert x[1, 2, 31, 31] == rows[1, -1]  # channels first, then rows, then columns
    assert y.tolist() == [9, 0]


class Evil:
    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_that_runs_code_is_refused_and_does_not_run(tmp_path, protocol):
    batch, trace = tmp_path / "test_batch", tmp_path / "trace"
    batch.write_bytes(pickle.dumps({"data": Evil(trace), "labels": []}, protocol=protocol))
    with pytest.raises(UserError, match="it asks for"):
        sources.read_batch(batch)
    assert not trace.exists()
    pickle.loads(batch.read_bytes())
    assert trace.exists()  # an ordinary reader would have run it


@pytest.mark.parametrize("content", [b"", b"not a pickle", pickle.dumps({"data": 1}), pickle.dumps([1])])
def test_what_is_no_cifar_batch_is_named(tmp_path, content):
    path = tmp_path / "data_batch_1"
    path.write_bytes(content)
    with pytest.raises(UserError, match="data_batch_1"):
        sources.read_batch(path)


@pytest.mark.data("MNIST", "FashionMNIST")
@pytest.mark.parametrize("name", ["MNIST", "FashionMNIST"])
def test_idx_sources_equal_torchvisions(name):
    from torchvision import datasets

    theirs = getattr(datasets, name)(data_root(), train=False)
    x, y = {"MNIST": sources.mnist, "FashionMNIST": sources.fashion_mnist}[name](train=False)
    assert torch.equal(x, theirs.data)
    assert torch.equal(y, theirs.targets)


@pytest.mark.data("cifar-10-batches-py")
def test_cifar10_equals_torchvisions():
    from torchvision import datasets

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchvision's unpickling makes numpy 2.4 warn
        theirs = datasets.CIFAR10(data_root(), train=False)
    x, y = sources.cifar10(train=False)
    assert np.array_equal(x.permute(0, 2, 3, 1).numpy(), theirs.data)
    assert y.tolist() == theirs.targets
    assert tuple(theirs.classes) == sources.CIFAR10_CLASSES


def test_sources_do_not_need_torchvision():
    tree = ast.parse(Path(sources.__file__).read_text())
    imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    imported |= {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert not any("torchvision" in name for name in imported)


# --- What there is ---------------------------------------------------------------------------------------------------


def test_every_data_set_that_needs_files_has_a_source():
    assert set(DATASETS) - GENERATED <= set(hosts.SOURCES)
    assert not GENERATED & set(hosts.SOURCES)


def test_every_source_can_be_had_somehow():
    for name, source in hosts.SOURCES.items():
        assert source.files or source.parts or source.by_hand, name
        assert source.needs or source.files or source.parts, name
        assert set(source.parts) <= set(hosts.SOURCES), name
        for file in source.files:
            assert file.urls, file
            assert all(url.startswith(("https://", "http://")) for url in file.urls), file
            assert len(file.checksum) in (0, len("md5:") + 32, len("sha256:") + 64), file


def test_checksums_are_those_that_torchvision_publishes():
    from torchvision import datasets

    for name, theirs in (
        ("mnist", datasets.MNIST),
        ("fashion_mnist", datasets.FashionMNIST),
        ("kmnist", datasets.KMNIST),
    ):
        ours = {Path(f.path).name: f.checksum for f in hosts.SOURCES[name].files}
        assert ours == {file: f"md5:{md5}" for file, md5 in theirs.resources}
    assert hosts.SOURCES["emnist"].files[0].checksum == f"md5:{datasets.EMNIST.md5}"
    assert hosts.SOURCES["cifar10"].files[0].checksum == f"md5:{datasets.CIFAR10.tgz_md5}"
    celeba = {name: f"md5:{md5}" for _, md5, name in datasets.CelebA.file_list}
    assert all(f.checksum == celeba[Path(f.path).name] for f in hosts.SOURCES["celeba"].files)


@pytest.mark.data("tabular")
@pytest.mark.parametrize("name", ["adult", "compas", "german"])
def test_checksums_of_tables_fit_the_files(name):
    for file in hosts.SOURCES[name].files:
        content = (data_root() / file.path).read_bytes()
        assert file.checksum == "sha256:" + hashlib.sha256(content).hexdigest()


def test_what_is_missing_is_listed_and_gzip_counts(tmp_path, monkeypatch):
    monkeypatch.setitem(hosts.SOURCES, "small", Source("", ("a/one", "a/two")))
    monkeypatch.setitem(hosts.SOURCES, "both", Source("", ("b",), parts=("small",)))
    assert hosts.missing("both", tmp_path) == ["b", "a/one", "a/two"]
    (tmp_path / "a").mkdir()
    (tmp_path / "a/one").touch()
    (tmp_path / "a/two.gz").touch()
    assert hosts.available("small", tmp_path)
    assert not hosts.available("both", tmp_path)
    with pytest.raises(UserError, match="did you mean 'small'"):
        hosts.available("smal", tmp_path)
