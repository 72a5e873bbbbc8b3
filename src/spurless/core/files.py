"""Where data lies, and how files are written so that a kill leaves the old file or the new one, never half of one."""

import errno
import json
import math
import os
import re
import stat
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import tomli_w

from spurless.core.errors import DataError, FolderError


def cache_dir() -> Path:
    """Where decoded images and built datasets are kept: SPURLESS_CACHE, else the user's cache folder."""
    if given := os.environ.get("SPURLESS_CACHE"):
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spurless"


def data_root(given: str | Path | None = None) -> Path:
    """Where datasets are looked for: the given folder, else SPURLESS_DATA, else `data` in the cache folder."""
    chosen = given or os.environ.get("SPURLESS_DATA")
    return Path(chosen).expanduser() if chosen else cache_dir() / "data"


@contextmanager
def atomic(path: str | Path, forced: bool = True) -> Iterator[Path]:
    """A temporary file beside `path` that takes its name when the block ends well, and vanishes otherwise.

    Unless it is `forced` to the disk, a power cut may lose it.

    >>> with atomic("/tmp/spurless-doctest.txt") as part:
    ...     _ = part.write_text("whole")
    >>> Path("/tmp/spurless-doctest.txt").read_text()
    'whole'
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    unfinished = Path(name)
    try:
        yield unfinished
        if forced:
            with open(unfinished, "rb") as file:
                os.fsync(file.fileno())
        unfinished.chmod(0o666 & ~_umask())
        os.replace(unfinished, path)
    finally:
        with suppress(FileNotFoundError):
            unfinished.unlink()


def _umask() -> int:
    """What the user keeps from others; it can only be read by setting it."""
    with suppress(OSError, AttributeError, TypeError):  # Linux says it, without the moment in which it is another one
        return int(re.search(r"^Umask:\s*(\d+)", Path("/proc/self/status").read_text(), re.MULTILINE)[1], 8)  # type: ignore[index]
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of `atomic` that a kill left in a folder that nobody else writes to."""
    for file in folder.glob(".*"):
        name = re.fullmatch(r"\.(.+\.(?:toml|json|jsonl|safetensors))\.\w{8}", file.name)
        if name and file.is_file() and not file.is_symlink():
            file.unlink(missing_ok=True)


def open_regular(path: str | Path) -> IO[bytes]:
    """Open a file for reading, and only a regular file: a FIFO would wait for ever, and a device never ends.

    >>> open_regular("/dev/null")
    Traceback (most recent call last):
    spurless.core.errors.DataError: /dev/null is not a regular file.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise DataError(f"{path} is not a regular file.")


def check_regular(path: str | Path) -> None:
    """Refuse what `open_regular` refuses, before a library opens it by its path."""
    open_regular(path).close()


def read_bytes(path: str | Path) -> bytes:
    """All of a regular file, or of one inside a shard."""
    try:
        with open_regular(path) as file:
            return file.read()
    except NotADirectoryError:
        from spurless.core.shards import read_member, split_path

        if inside := split_path(path):
            return read_member(*inside)
        raise


def read_text(path: str | Path) -> str:
    return read_bytes(path).decode("utf-8")


def from_json(text: str | bytes) -> Any:
    """JSON from a file; a ValueError also where it is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def check_output(path: str | Path, option: str, beginnings: tuple[bytes, ...]) -> None:
    """Refuse to overwrite a file that does not begin as one of its kind does: it holds something else."""
    path = Path(path)
    if path.is_dir():
        raise FolderError(f"{option} {path} is a folder; name a file.")
    if not os.path.lexists(path):
        return
    try:
        with open_regular(path) as file:
            start = file.read(512).lstrip().lower()
    except FileNotFoundError:  # a link to what is not there
        return
    if start and not start.startswith(beginnings):
        raise FolderError(f"{option} {path} would overwrite a file of another kind. Name another file, or remove it.")


def lock(path: Path) -> IO[bytes] | None:
    """Lock a file that nobody else can lock until it is closed or this process ends, however that ends; return None if
    somebody else holds it. An OSError is raised where the file system knows no locks.

    (`filelock` does not wait either if told so, but then reports a lock whose holder removed its file as held.)

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


def to_toml(settings: Mapping[str, Any]) -> str:
    """Write nested settings as TOML; None is left out, because TOML has no word for it.

    >>> print(to_toml({"seed": 1, "recipe": {"lr": 0.1, "note": None, "betas": (0.9, 0.99)}}), end="")
    seed = 1
    <BLANKLINE>
    [recipe]
    lr = 0.1
    betas = [
        0.9,
        0.99,
    ]
    """
    return tomli_w.dumps(_without_none(settings))


def _without_none(settings: Mapping[str, Any]) -> dict[str, Any]:
    given = {key: value for key, value in settings.items() if value is not None}
    return {key: _without_none(value) if isinstance(value, Mapping) else value for key, value in given.items()}


def from_toml(text: str) -> dict[str, Any]:
    """TOML as a table; a ValueError also where it is nested too deeply."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError("it is nested too deeply") from None


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file; a SettingError says where it is wrong."""
    try:
        return from_toml(read_text(path))
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}).") from None
    except ValueError as error:  # also of bytes that are no text, and of numbers with thousands of digits
        raise DataError(f"{path} is not valid TOML: {error}.") from None


def finite(value: Any) -> Any:
    """The same structure with numbers that are not finite as None, because JSON has none, and single numbers of numpy
    and torch as Python's."""
    if isinstance(value, Mapping):
        return {str(k): finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return os.fspath(value) if isinstance(value, Path) else value
