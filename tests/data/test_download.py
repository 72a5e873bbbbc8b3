"""Fetching and unpacking files: from a host on this machine, never from outside."""

import gzip
import hashlib
import io
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from spurless.core.errors import UserError
from spurless.data import download
from spurless.data.hosts import File, Source

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
    download.fetch(File("folder/file.bin", tuple(map(host.url, paths)), checksum), target)
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
        download.fetch(File("x", ("http://127.0.0.1:9/x",)), tmp_path / "x")


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
    monkeypatch.setitem(download.SOURCES, "x", Source("", ("here/a.csv", "here/sub/b.csv", "idx"), files))
    assert "fetched here/a.csv, here/sub/b.csv, idx" in download.download("x", tmp_path)
    found = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert found == {"here/a.csv", "here/sub/b.csv", "idx.gz"}  # the archive itself is gone
    host.asked.clear()
    assert "nothing was missing" in download.download("x", tmp_path)
    assert host.asked == []


def test_an_archive_that_the_user_brought_is_unpacked_and_kept(host, tmp_path, monkeypatch):
    archive = make_zip({"a": b"1"})
    checksum = "md5:" + hashlib.md5(archive).hexdigest()
    file = File("x.zip", (host.url("/absent"),), checksum, into=".")
    monkeypatch.setitem(download.SOURCES, "x", Source("", ("a",), (file,)))
    (tmp_path / "x.zip").write_bytes(archive)
    download.download("x", tmp_path)
    assert (tmp_path / "a").read_bytes() == b"1"
    assert (tmp_path / "x.zip").exists()
    assert host.asked == []


def test_one_dead_host_does_not_stop_the_other_parts(host, tmp_path, monkeypatch):
    monkeypatch.setitem(download.SOURCES, "dead", Source("", ("d",), (File("d", (host.url("/absent"),)),)))
    monkeypatch.setitem(download.SOURCES, "live", Source("", ("l",), (File("l", (host.url("/good"),)),)))
    monkeypatch.setitem(download.SOURCES, "all", Source("", parts=("dead", "live"), by_hand="ask a friend"))
    with pytest.raises(UserError, match=r"(?s)d could not be fetched.*404.*ask a friend"):
        download.download("all", tmp_path)
    assert (tmp_path / "l").read_bytes() == CONTENT


def test_a_source_without_a_public_address_says_what_to_put_where(tmp_path):
    with pytest.raises(UserError, match=r"bffhq/0\.5pct"):
        download.download("bffhq", tmp_path)


def test_a_generated_data_set_needs_no_download(tmp_path):
    assert download.download("toy", tmp_path) == "toy needs no download."


def test_a_name_that_does_not_exist_is_a_users_mistake(tmp_path):
    with pytest.raises(UserError, match="did you mean 'mnist'"):
        download.download("mnst", tmp_path)


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
        download.unpack(archive, tmp_path / "root/into")
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
        download.unpack(archive, tmp_path / "into")
    assert list((tmp_path / "into").iterdir()) == []


def test_a_refused_archive_is_not_kept(host, tmp_path, monkeypatch):
    host.files["/evil.tar.gz"] = EVIL["tar .."]
    file = File("evil.tar.gz", (host.url("/evil.tar.gz"),), into="evil")
    monkeypatch.setitem(download.SOURCES, "evil", Source("", ("evil/good",), (file,)))
    with pytest.raises(UserError, match="was not unpacked"):
        download.download("evil", tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"evil"}


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_unpacking_adds_to_what_is_there(tmp_path, make):
    archive = tmp_path / "archive"
    archive.write_bytes(make({"top/new/x": b"1", "top/old/y": b"2", "top/old/z": b"3"}))
    (tmp_path / "into/old").mkdir(parents=True)
    (tmp_path / "into/old/kept").write_bytes(b"0")
    (tmp_path / "into/old/y").write_bytes(b"before")
    download.unpack(archive, tmp_path / "into", strip=1)
    found = {
        str(p.relative_to(tmp_path / "into")): p.read_bytes() for p in (tmp_path / "into").rglob("*") if p.is_file()
    }
    assert found == {"old/kept": b"0", "old/y": b"2", "old/z": b"3", "new/x": b"1"}
