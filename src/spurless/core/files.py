"""Where data lies, and how files are written so that a kill leaves the old file or the new one, never half of one."""

import errno
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


def cache_dir() -> Path:
    """Where decoded images and built data sets are kept: SPURLESS_CACHE, else the user's cache folder."""
    if given := os.environ.get("SPURLESS_CACHE"):
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spurless"


def data_root(given: str | Path | None = None) -> Path:
    """Where data sets are looked for: the given folder, else SPURLESS_DATA, else `data` in the cache folder."""
    chosen = given or os.environ.get("SPURLESS_DATA")
    return Path(chosen).expanduser() if chosen else cache_dir() / "data"


@contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """A temporary file beside `path` that takes its name when the block ends well, and vanishes otherwise.

    >>> with atomic("/tmp/spurless-doctest.txt") as part:
    ...     _ = part.write_text("whole")
    >>> Path("/tmp/spurless-doctest.txt").read_text()
    'whole'
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    part = Path(name)
    try:
        yield part
        with open(part, "rb") as file:
            os.fsync(file.fileno())
        part.chmod(0o644)
        os.replace(part, path)
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


def lock(path: Path) -> IO[bytes] | None:
    """A file that nobody else can lock until it is closed or this process ends, however that ends; None if somebody
    else holds it. An OSError where the file system knows no locks.

    >>> held = lock(Path("/tmp/spurless-doctest.lock"))
    >>> lock(Path("/tmp/spurless-doctest.lock")) is None
    True
    >>> held.close()
    """
    while True:
        file = open(path, "ab")  # noqa: SIM115 (open for as long as it is held)
        try:
            _lock(file)
        except OSError as error:
            file.close()
            if error.errno in (errno.EAGAIN, errno.EACCES, errno.EDEADLK):
                return None
            raise
        # Who held it may have removed it in between: then the next one would make and lock a new file.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()


if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[bytes]) -> None:
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
