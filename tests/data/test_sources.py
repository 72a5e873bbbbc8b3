"""Reading the files as distributed, and fetching them: from a host on this machine, never from outside."""

import ast
import gzip
import hashlib
import io
import pickle
import tarfile
import threading
import warnings
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch

from spurless.core.errors import UserError
from spurless.core.files import data_root
from spurless.data import sources
from spurless.data.sets import DATASETS
from spurless.data.sources import File, Source

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
    assert set(DATASETS) - GENERATED <= set(sources.SOURCES)
    assert not GENERATED & set(sources.SOURCES)


def test_every_source_can_be_had_somehow():
    for name, source in sources.SOURCES.items():
        assert source.files or source.parts or source.by_hand, name
        assert source.needs or source.parts, name
        assert set(source.parts) <= set(sources.SOURCES), name
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
        ours = {Path(f.path).name: f.checksum for f in sources.SOURCES[name].files}
        assert ours == {file: f"md5:{md5}" for file, md5 in theirs.resources}
    assert sources.SOURCES["emnist"].files[0].checksum == f"md5:{datasets.EMNIST.md5}"
    assert sources.SOURCES["cifar10"].files[0].checksum == f"md5:{datasets.CIFAR10.tgz_md5}"
    celeba = {name: f"md5:{md5}" for _, md5, name in datasets.CelebA.file_list}
    assert all(f.checksum == celeba[Path(f.path).name] for f in sources.SOURCES["celeba"].files)


@pytest.mark.data("tabular")
@pytest.mark.parametrize("name", ["adult", "compas", "german"])
def test_checksums_of_tables_fit_the_files(name):
    for file in sources.SOURCES[name].files:
        content = (data_root() / file.path).read_bytes()
        assert file.checksum == "sha256:" + hashlib.sha256(content).hexdigest()


def test_what_is_missing_is_listed_and_gzip_counts(tmp_path, monkeypatch):
    monkeypatch.setitem(sources.SOURCES, "small", Source("", ("a/one", "a/two")))
    monkeypatch.setitem(sources.SOURCES, "both", Source("", ("b",), parts=("small",)))
    assert sources.missing("both", tmp_path) == ["b", "a/one", "a/two"]
    (tmp_path / "a").mkdir()
    (tmp_path / "a/one").touch()
    (tmp_path / "a/two.gz").touch()
    assert sources.available("small", tmp_path)
    assert not sources.available("both", tmp_path)
    with pytest.raises(UserError, match="did you mean 'small'"):
        sources.available("smal", tmp_path)


# --- Fetching --------------------------------------------------------------------------------------------------------

CONTENT = np.random.default_rng(0).bytes(3_000_000)
CHECKSUM = "md5:" + hashlib.md5(CONTENT).hexdigest()


class Host(ThreadingHTTPServer):
    """Serves `files` by path. A path under /plain/ ignores ranges, one under /cut/ ends halfway through."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {"/good": CONTENT, "/plain/good": CONTENT, "/cut/good": CONTENT, "/wrong": CONTENT[::-1]}
        self.asked: list[tuple[str, str | None]] = []

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"


class Handler(BaseHTTPRequestHandler):
    server: Host

    def do_GET(self):
        asked = self.headers.get("Range")
        self.server.asked.append((self.path, asked))
        if self.path not in self.server.files:
            return self.send_error(404)
        content = self.server.files[self.path]
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and "/plain/" not in self.path else 0
        if start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = (start + len(content)) // 2 if "/cut/" in self.path else len(content)
        return self.wfile.write(content[start:end])

    def log_message(self, *_):
        pass


@pytest.fixture
def host(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Host()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def fetched(host, tmp_path, *paths, part: bytes | None = None, checksum: str = CHECKSUM) -> bytes | None:
    """What is at the target after fetching from these paths of the host, with this left over from before."""
    target = tmp_path / "folder/file.bin"
    if part is not None:
        target.parent.mkdir()
        target.with_name("file.bin.part").write_bytes(part)
    sources.fetch(File("folder/file.bin", tuple(map(host.url, paths)), checksum), target)
    assert [p.name for p in target.parent.iterdir()] == ["file.bin"]  # and nothing else is left
    return target.read_bytes()


def test_a_file_is_fetched(host, tmp_path):
    assert fetched(host, tmp_path, "/good") == CONTENT


def test_a_fetch_goes_on_where_it_ended(host, tmp_path):
    assert fetched(host, tmp_path, "/good", part=CONTENT[:1_234_567]) == CONTENT
    assert host.asked == [("/good", "bytes=1234567-")]


def test_a_host_that_ignores_ranges_sends_it_all_again(host, tmp_path):
    assert fetched(host, tmp_path, "/plain/good", part=CONTENT[:1000]) == CONTENT


def test_what_was_complete_but_not_renamed_is_taken(host, tmp_path):
    assert fetched(host, tmp_path, "/good", part=CONTENT) == CONTENT
    assert len(host.asked) == 1


def test_a_rest_that_is_longer_than_the_file_is_dropped(host, tmp_path):
    assert fetched(host, tmp_path, "/good", part=CONTENT + b"more") == CONTENT


def test_a_rest_that_is_garbage_is_dropped(host, tmp_path):
    assert fetched(host, tmp_path, "/good", part=b"garbage") == CONTENT
    assert host.asked == [("/good", "bytes=7-"), ("/good", None)]


def test_the_second_host_is_used_when_the_first_fails(host, tmp_path):
    assert fetched(host, tmp_path, "/absent", "/good") == CONTENT


def test_the_second_host_goes_on_where_the_first_broke_off(host, tmp_path):
    assert fetched(host, tmp_path, "/cut/good", "/good") == CONTENT
    assert host.asked == [("/cut/good", None), ("/good", "bytes=1500000-")]


def test_the_second_host_is_used_when_the_first_sends_something_else(host, tmp_path):
    assert fetched(host, tmp_path, "/wrong", "/good") == CONTENT
    assert host.asked == [("/wrong", None), ("/good", None)]


def test_a_wrong_checksum_is_refused_and_nothing_is_kept(host, tmp_path):
    with pytest.raises(UserError, match=r"(?s)file\.bin could not be fetched.*checksum"):
        fetched(host, tmp_path, "/wrong")
    assert list((tmp_path / "folder").iterdir()) == []


def test_a_broken_connection_without_a_checksum_is_no_success(host, tmp_path):
    with pytest.raises(UserError, match="ended after 1500000 of 3000000 bytes"):
        fetched(host, tmp_path, "/cut/good", checksum="")
    assert (tmp_path / "folder/file.bin.part").stat().st_size == 1_500_000  # for the next attempt
    assert not (tmp_path / "folder/file.bin").exists()


def test_a_host_that_is_not_there_is_an_error_with_its_address(host, tmp_path):
    with pytest.raises(UserError, match=r"127\.0\.0\.1:9/"):
        sources.fetch(File("x", ("http://127.0.0.1:9/x",)), tmp_path / "x")


def make_zip(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return out.getvalue()


def make_tar(members: dict[str, bytes], *more: tarfile.TarInfo) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tape:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tape.addfile(info, io.BytesIO(content))
        for info in more:
            tape.addfile(info)
    return out.getvalue()


def test_download_fetches_unpacks_and_then_finds_nothing_to_do(host, tmp_path, monkeypatch):
    archive = make_tar({"top/a.csv": b"1", "top/sub/b.csv": b"2", "top/readme": b"3"})
    host.files |= {"/x.tar.gz": archive, "/idx.gz": gzip.compress(b"4")}
    checksum = "sha256:" + hashlib.sha256(archive).hexdigest()
    files = (
        File("x.tar.gz", (host.url("/x.tar.gz"),), checksum, into="here", only="*.csv", strip=1),
        File("idx.gz", (host.url("/idx.gz"),)),
    )
    monkeypatch.setitem(sources.SOURCES, "x", Source("", ("here/a.csv", "here/sub/b.csv", "idx"), files))
    assert "fetched here/a.csv, here/sub/b.csv, idx" in sources.download("x", tmp_path)
    found = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert found == {"here/a.csv", "here/sub/b.csv", "idx.gz"}  # the archive itself is gone
    host.asked.clear()
    assert "nothing was missing" in sources.download("x", tmp_path)
    assert host.asked == []


def test_an_archive_that_the_user_brought_is_unpacked_and_kept(host, tmp_path, monkeypatch):
    archive = make_zip({"a": b"1"})
    checksum = "md5:" + hashlib.md5(archive).hexdigest()
    file = File("x.zip", (host.url("/absent"),), checksum, into=".")
    monkeypatch.setitem(sources.SOURCES, "x", Source("", ("a",), (file,)))
    (tmp_path / "x.zip").write_bytes(archive)
    sources.download("x", tmp_path)
    assert (tmp_path / "a").read_bytes() == b"1"
    assert (tmp_path / "x.zip").exists()
    assert host.asked == []


def test_one_dead_host_does_not_stop_the_other_parts(host, tmp_path, monkeypatch):
    monkeypatch.setitem(sources.SOURCES, "dead", Source("", ("d",), (File("d", (host.url("/absent"),)),)))
    monkeypatch.setitem(sources.SOURCES, "live", Source("", ("l",), (File("l", (host.url("/good"),)),)))
    monkeypatch.setitem(sources.SOURCES, "all", Source("", parts=("dead", "live"), by_hand="ask a friend"))
    with pytest.raises(UserError, match=r"(?s)d could not be fetched.*404.*ask a friend"):
        sources.download("all", tmp_path)
    assert (tmp_path / "l").read_bytes() == CONTENT


def test_a_source_without_a_public_address_says_what_to_put_where(tmp_path):
    with pytest.raises(UserError, match=r"bffhq/0\.5pct"):
        sources.download("bffhq", tmp_path)


def test_a_generated_data_set_needs_no_download(tmp_path):
    assert sources.download("toy", tmp_path) == "toy needs no download."


def test_a_name_that_does_not_exist_is_a_users_mistake(tmp_path):
    with pytest.raises(UserError, match="did you mean 'mnist'"):
        sources.download("mnst", tmp_path)


# --- Archives that mean harm -----------------------------------------------------------------------------------------


def link(kind: bytes, target: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo("inside/link")
    info.type, info.linkname = kind, target
    return info


def zip_with_link() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        info = zipfile.ZipInfo("link")
        info.external_attr = 0o120777 << 16
        packed.writestr(info, "/etc/passwd")
    return out.getvalue()


EVIL = {
    "tar ..": make_tar({"good": b"1", "../evil": b"2"}),
    "tar deep ..": make_tar({"good": b"1", "a/../../evil": b"2"}),
    "tar absolute": make_tar({"good": b"1", "/tmp/spurless-evil": b"2"}),
    "tar symlink": make_tar({"good": b"1"}, link(tarfile.SYMTYPE, "../..")),
    "tar hard link": make_tar({"good": b"1"}, link(tarfile.LNKTYPE, "/etc/passwd")),
    "tar device": make_tar({"good": b"1"}, link(tarfile.CHRTYPE, "")),
    "zip ..": make_zip({"good": b"1", "../evil": b"2"}),
    "zip absolute": make_zip({"good": b"1", "/tmp/spurless-evil": b"2"}),
    "zip backslash": make_zip({"good": b"1", "..\\evil": b"2"}),
    "zip drive": make_zip({"good": b"1", "C:evil": b"2"}),
    "zip symlink": zip_with_link(),
}


@pytest.mark.parametrize("kind", EVIL)
def test_an_archive_that_leads_out_of_the_folder_is_refused_whole(tmp_path, kind):
    archive = tmp_path / "archive"
    archive.write_bytes(EVIL[kind])
    with pytest.raises(UserError, match="was not unpacked"):
        sources.unpack(archive, tmp_path / "root/into")
    assert {p.name for p in tmp_path.rglob("*")} == {"archive", "root", "into"}  # not even its harmless member
    assert not Path("/tmp/spurless-evil").exists()


@pytest.mark.parametrize(  # named: an archive holds the time, and two workers must collect the same tests
    "content",
    [b"no archive", make_tar({"a": CONTENT})[:-2000], make_zip({"a": b"1" * 99})[:50]],
    ids=["no archive", "cut tar", "cut zip"],
)
def test_a_broken_archive_is_refused_whole(tmp_path, content):
    archive = tmp_path / "archive"
    archive.write_bytes(content)
    with pytest.raises(UserError, match="not a whole zip or tar"):
        sources.unpack(archive, tmp_path / "into")
    assert list((tmp_path / "into").iterdir()) == []


def test_a_refused_archive_is_not_kept(host, tmp_path, monkeypatch):
    host.files["/evil.tar.gz"] = EVIL["tar .."]
    file = File("evil.tar.gz", (host.url("/evil.tar.gz"),), into="evil")
    monkeypatch.setitem(sources.SOURCES, "evil", Source("", ("evil/good",), (file,)))
    with pytest.raises(UserError, match="was not unpacked"):
        sources.download("evil", tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"evil"}


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_unpacking_adds_to_what_is_there(tmp_path, make):
    archive = tmp_path / "archive"
    archive.write_bytes(make({"top/new/x": b"1", "top/old/y": b"2", "top/old/z": b"3"}))
    (tmp_path / "into/old").mkdir(parents=True)
    (tmp_path / "into/old/kept").write_bytes(b"0")
    (tmp_path / "into/old/y").write_bytes(b"before")
    sources.unpack(archive, tmp_path / "into", strip=1)
    found = {
        str(p.relative_to(tmp_path / "into")): p.read_bytes() for p in (tmp_path / "into").rglob("*") if p.is_file()
    }
    assert found == {"old/kept": b"0", "old/y": b"2", "old/z": b"3", "new/x": b"1"}
