"""Fetching the files of a dataset: resumed after an interruption, checked by checksum, unpacked whole or not at all."""

import fnmatch
import gzip
import hashlib
import http.client
import os
import stat
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from spurless.core.errors import UserError
from spurless.core.files import data_root
from spurless.core.terminal import track
from spurless.data.hosts import SOURCES, File, missing
from spurless.data.sets import DATASETS


def download(name: str, root: Path | None = None) -> str:
    """Fetch what is missing of a source and say what was done; a UserError says what is left to do by hand."""
    if name not in SOURCES and name in DATASETS:
        return f"{name} needs no download."
    before = missing(name, root)
    problems = _fetch_missing(name, data_root(root))
    if not problems and (still := missing(name, root)):
        problems.append(f"Still missing in {data_root(root)}: {', '.join(still)}.")
    if problems:
        raise UserError("\n".join(dict.fromkeys(problems)))
    return f"{name} is in {data_root(root)}{': fetched ' + ', '.join(before) if before else ', nothing was missing'}."


def _fetch_missing(name: str, base: Path) -> list[str]:
    """Fetch the files of a source and its parts; what went wrong, so that one dead host does not stop the others."""
    source = SOURCES[name]
    problems = [problem for inner in source.parts for problem in _fetch_missing(inner, base)]
    for file in source.files if missing(name, base) else ():
        try:
            _get(file, base)
        except UserError as error:
            problems.append(str(error))
    if source.by_hand and (problems or (not source.files and missing(name, base))):
        problems.append(f"{name}: {source.by_hand}")
    return problems


def _get(file: File, base: Path) -> None:
    target = base / file.path
    if not file.into:
        if not target.exists() and not (base / file.path.removesuffix(".gz")).exists():
            fetch(file, target)
        return
    brought = target.exists() and _is_right(target, file)  # the user's own copy of the archive will do, and is kept
    if not brought:
        fetch(file, target)
    try:
        unpack(target, base / file.into, file.only, file.strip)
    except UserError:
        if not brought:
            target.unlink()
        raise
    if not brought:
        target.unlink()


def fetch(file: File, target: Path) -> None:
    """Fetch a file from the first host that delivers it whole; it takes its name only after its checksum was right.

    What has arrived stays in NAME.part, so that the next attempt, with any host, resumes there.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(target.name + ".part")
    failures = []
    for url in file.urls:
        while True:
            resumed = unfinished.exists()
            try:
                _transfer(url, unfinished)
            except (OSError, http.client.HTTPException) as error:
                failures.append(f"{url}: {error}")
                break
            if _is_right(unfinished, file):
                os.replace(unfinished, target)
                return
            unfinished.unlink()
            if not resumed:  # otherwise what was there before may be to blame: once more from the start
                failures.append(f"{url}: what it sent does not have the checksum {file.checksum}")
                break
    raise UserError(f"{file.path} could not be fetched.\n  " + "\n  ".join(failures))


def _transfer(url: str, unfinished: Path) -> None:
    have = unfinished.stat().st_size if unfinished.exists() else 0
    headers = {"User-Agent": "spurless"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        reply = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60)
    except urllib.error.HTTPError as error:
        with error:
            if error.code != 416:  # the range begins at or after the end
                raise
            if error.headers.get("Content-Range") != f"bytes */{have}":
                unfinished.unlink()
                _transfer(url, unfinished)
            return
    with reply:
        if reply.status != 206:
            have = 0  # this host sends the whole file, whatever was asked for
        elif reply.headers.get("Content-Range", "").split("-")[0] != f"bytes {have}":
            raise ConnectionError("the host sent another range than was asked for")
        expected = int(reply.headers.get("Content-Length") or -1)
        blocks = iter(lambda: reply.read(1 << 20), b"")
        with open(unfinished, "ab" if have else "wb") as out:
            total = -(-expected >> 20) if expected >= 0 else None
            for block in track(blocks, unfinished.name.removesuffix(".part"), total):
                out.write(block)
            out.flush()
            os.fsync(out.fileno())
    if expected >= 0 and unfinished.stat().st_size != have + expected:
        raise ConnectionError(f"the connection ended after {unfinished.stat().st_size} of {have + expected} bytes")


def _is_right(path: Path, file: File) -> bool:
    if not file.checksum:
        return True
    kind, expected = file.checksum.split(":")
    with open(path, "rb") as content:
        return hashlib.file_digest(content, kind).hexdigest() == expected


def unpack(archive: Path, into: Path, only: str = "*", strip: int = 0) -> None:
    """Unpack a zip or tar file into a folder, wholly or not at all.

    An archive with a link, a device or a name that leads out of the folder is refused.
    """
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into, prefix=".unpacking-") as folder:
        try:
            for name, content in _members(archive):
                target = PurePosixPath(*_inside(name, archive).parts[strip:])
                if fnmatch.fnmatch(str(target), only) and target.parts:
                    path = Path(folder, target)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with open(path, "wb") as out:
                        while block := content.read(1 << 20):
                            out.write(block)
        except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise UserError(f"{archive} is not a whole zip or tar file ({error}).") from None
        except (RuntimeError, NotImplementedError) as error:  # encrypted, or packed in a way that Python cannot read
            raise UserError(f"{archive} cannot be unpacked ({error}).") from None
        _move(Path(folder), into)


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for info in packed.infolist():
                if stat.S_ISLNK(info.external_attr >> 16):
                    raise _refused(archive, info.filename)
                if not info.is_dir():
                    with packed.open(info) as content:
                        yield info.filename, content
        return
    with tarfile.open(archive) as tape:
        for member in tape:
            if member.isfile() and (packed_file := tape.extractfile(member)) is not None:
                yield member.name, packed_file
            elif not member.isdir():
                raise _refused(archive, member.name)


def _inside(name: str, archive: Path) -> PurePosixPath:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or PureWindowsPath(name).drive:
        raise _refused(archive, name)
    return path


def _refused(archive: Path, name: str) -> UserError:
    return UserError(f"{archive} was not unpacked: its member {name!r} is a link or leads out of the folder.")


def _move(folder: Path, into: Path) -> None:
    """Move all that is in a folder into another; where nothing stands in the way, whole folders at once."""
    for item in list(folder.iterdir()):
        target = into / item.name
        if item.is_dir() and target.is_dir():
            _move(item, target)
        else:
            os.replace(item, target)
