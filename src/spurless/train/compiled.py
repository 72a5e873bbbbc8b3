"""What torch.compile makes is kept between starts, and a person is told while it is at work."""

from __future__ import annotations

import functools
import os
import time
from contextlib import suppress
from pathlib import Path

from spurless.core.files import cache_dir
from spurless.core.messages import log

KEPT = "TORCHINDUCTOR_CACHE_DIR"  # the variable by which torch is told where
LONG = 5.0  # seconds of compiling that are worth another line


def keep_compiled() -> None:
    """Have torch keep compiled code in the user's cache folder instead of /tmp, where another start may not find it;
    a folder that the user has named stays. torch itself tells code of other versions and machines apart."""
    if not _named():
        folder = cache_dir().absolute() / "compiled"
        with suppress(OSError):  # a cache that can only be read: torch takes its own place
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                os.environ[KEPT] = str(folder)
    _announce()


def compiled_dir() -> Path:
    """Where compiled code is kept."""
    return Path(os.environ[KEPT]) if _named() else cache_dir().absolute() / "compiled"


def _named() -> bool:
    """Whether a folder was named, by the user or here. torch sets the variable, too, to a place in /tmp."""
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    return os.environ.get(KEPT, default_cache_dir()) != default_cache_dir()


def announcement(what: str) -> str:
    """What a person is told before it."""
    return (
        f"{what}: 10 to 60 s for each network and loss that is new, a few seconds where {compiled_dir()} holds it from "
        "an earlier start."
    )


@functools.cache
def _announce() -> None:
    """From now on, say once when torch begins to compile, and how long each long compilation took."""
    from torch._dynamo import callback

    started, said = [0.0], list[bool]()

    def begin(*_: object) -> None:
        started[0] = time.monotonic()
        if not said:
            said.append(True)
            log.info(announcement("torch.compile is compiling"))

    def end(*_: object) -> None:
        seconds = time.monotonic() - started[0]
        if seconds > LONG:
            log.info(f"torch.compile is done after {seconds:.0f} s.")

    callback.on_compile_start(begin)
    callback.on_compile_end(end)
