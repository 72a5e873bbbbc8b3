"""Where data lies, and how files are written so that a kill leaves the old file or the new one, never half of one."""

import errno
import math
import os
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import tomli_w

from spurless.core.errors import SettingError


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
    return tomllib.loads(text)


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file; a SettingError says where it is wrong."""
    try:
        return from_toml(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(f"{path} cannot be read ({error.strerror}).") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{path} is not valid TOML: {error}.") from None


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
