"""Checksums of what decides a run: tensors whole, files by their content; and how fingerprints of data are compared.

A tensor is hashed in chunks, by all cores, at about 1 GB a second on each. A file's hash is kept with its path, size,
time of change (mtime) and a stamp of what no user can set (ctime and inode): where all of them are as before, the file
is not read again; where any differs, it is.
"""

from __future__ import annotations

import ctypes
import os
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from spurless.core.errors import DataError
from spurless.core.files import atomic, cache_dir, read_bytes
from spurless.core.shards import split_path
from spurless.core.threads import cores, pool, spread

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

CHUNK = 2**24  # bytes that are hashed at a time
YOUNG = 1.0  # seconds in which a file may change again without another ctime: clocks of file systems tick slowly
FULL = "v2"  # the form of a fingerprint that covers every sample; one of the first form is 16 letters and nothing else


def digest(data: Any, size: int = 16) -> bytes:
    """The hash of anything that has bytes."""
    return blake2b(data, digest_size=size).digest()


def checksum(data: Any) -> int:
    """64 bits of it as a number.

    >>> checksum(b"a") == checksum(b"a") != checksum(b"b")
    True
    """
    return int.from_bytes(digest(data, 8), "little")


# Tensors


class _Hashed(NamedTuple):
    of: weakref.ref[Tensor]
    state: tuple[Any, ...]
    digest: bytes
    vouched: bool


_hashed: dict[int, _Hashed] = {}


def tensor_digest(t: Tensor) -> bytes:
    """The hash of a tensor's type, shape and every byte; of one that was hashed before and not changed, as it was then.

    torch counts changes in place, but not those through an array of numpy that shares the memory. So a tensor is
    remembered only where there is no such array (torch lets its storage be resized), or where somebody `vouch`es.
    """
    state = _state(t)
    cached = _hashed.get(id(t))
    if cached is not None and cached.of() is t and cached.state == state and (cached.vouched or _is_torchs_own(t)):
        return cached.digest
    whole = blake2b(f"{t.dtype} {tuple(t.shape)}".encode(), digest_size=16)
    chunks = _chunks(t)
    while some := list(islice(chunks, 2 * cores())):  # not all at once: of a tensor on a GPU each is a copy
        whole.update(b"".join(pool().map(digest, some)))
    if _is_torchs_own(t):
        vouch(t, whole.digest(), vouched=False)
    return whole.digest()


def vouch(t: Tensor, digest: bytes, vouched: bool = True) -> None:
    """Take this as the tensor's hash until torch changes it in place: its content is known from elsewhere."""
    state, number = _state(t), id(t)
    if state is not None:
        _hashed[number] = _Hashed(weakref.ref(t, lambda _: _hashed.pop(number, None)), state, digest, vouched)


def _is_torchs_own(t: Tensor) -> bool:
    """Whether no array of numpy shares its memory: torch forbids to resize what it has once shared."""
    return t.untyped_storage().resizable()


def _state(t: Tensor) -> tuple[Any, ...] | None:
    """What differs once a tensor is changed or exchanged; None where torch does not count changes."""
    if t.is_inference():
        return None
    return t._version, t.data_ptr(), t.dtype, tuple(t.shape), t.stride()


def _chunks(t: Tensor) -> Iterator[Any]:
    """The bytes of a tensor in order, in views of at most CHUNK bytes where it is contiguous, else in copies.

    One row is never cut.
    """
    if not t.numel():
        return
    rows = t.detach().reshape(1) if t.dim() == 0 else t.detach()
    step = max(1, CHUNK // max(1, rows[0].numel() * rows.element_size()))
    for chunk in rows.split(step):
        yield raw(chunk.cpu().contiguous())


def raw(t: Tensor) -> Any:
    """The bytes of a contiguous CPU tensor, in place. Not by numpy: that would forbid torch to resize the storage."""
    view = (ctypes.c_char * (t.numel() * t.element_size())).from_address(t.data_ptr())
    view.owner = t  # type: ignore[attr-defined]  # the memory lives as long as the view
    return view


# Files


def file_key(file: str, stat: os.stat_result | None) -> bytes:
    """A hash of a file's path, size and time of change."""
    state = "none" if stat is None else f"{stat.st_size} {stat.st_mtime_ns}"
    return digest(f"{os.path.abspath(file)}\0{state}".encode("utf-8", "surrogateescape"))


def file_stamp(stat: os.stat_result | None) -> int:
    """A number from ctime and inode: `touch -r` and `cp -p` give a file another one's size and mtime, never these.

    0, which stands for no stamp, where the file is so new that it may change again within the same tick of the clock.
    """
    if stat is None or time.time() - stat.st_ctime_ns / 1e9 < YOUNG:
        return 0
    return checksum(f"{stat.st_ctime_ns} {stat.st_ino}".encode()) or 1


def keys_and_stamps(files: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """(n,) the key and the stamp of each file. What the system says of a million files would take half a gigabyte."""
    import numpy as np

    keys, stamps = np.zeros(len(files), "S16"), np.zeros(len(files), "u8")
    for row, file in enumerate(files):
        stat = stat_of(file)
        keys[row], stamps[row] = file_key(file, stat), file_stamp(stat)
    return keys, stamps


def stat_of(file: str) -> os.stat_result | None:
    """What the system says of a file; of one inside a shard, of the shard."""
    try:
        return os.stat(file)
    except NotADirectoryError:
        inside = split_path(file)
        return os.stat(inside[0]) if inside else None
    except (OSError, ValueError):
        return None


def content_digest(file: str) -> bytes:
    """The hash of a file's bytes; empty where it cannot be read."""
    try:
        return digest(read_bytes(file))
    except (OSError, ValueError, DataError):
        return b""


def content_digests(files: Sequence[str]) -> list[bytes]:
    """The hash of each file's bytes, read by all cores."""
    return list(spread(content_digest, files))


def file_digests(files: Sequence[str]) -> np.ndarray:
    """(n,) the hash of each file's bytes. Kept in the cache folder: a file is read again where its path, size, mtime,
    ctime or inode is not what it was."""
    import numpy as np

    kind = np.dtype([("key", "S16"), ("stamp", "u8"), ("digest", "S16")])
    now = np.zeros(len(files), kind)
    now["key"], now["stamp"] = keys_and_stamps(files)
    listed = blake2b(digest_size=16)
    for k, file in enumerate(files):
        listed.update(("\0" * (k > 0) + os.path.abspath(file)).encode("utf-8", "surrogateescape"))
    kept = cache_dir() / "digests" / f"{listed.hexdigest()}.files"
    before = np.zeros(len(files), kind)
    with suppress(OSError, ValueError):
        if len(read := np.fromfile(kept, kind)) == len(files):
            before = read
    same = (before["key"] == now["key"]) & (before["stamp"] == now["stamp"]) & (now["stamp"] != 0)
    now["digest"][same] = before["digest"][same]
    changed = np.flatnonzero(~same)
    if len(changed):
        now["digest"][changed] = content_digests([files[i] for i in changed.tolist()])
        with suppress(OSError), atomic(kept) as unfinished:  # where nothing can be kept, they are read at every start
            now.tofile(unfinished)
    return now["digest"]


# Fingerprints of data: "HASH v2 train INPUTS/LABELS val INPUTS/LABELS ... v1 PARTIAL", or, in older runs, PARTIAL alone


def full_form(splits: dict[str, tuple[bytes, bytes]], partial: str) -> str:
    """A fingerprint from the hashes of each split's inputs and labels, and the one of 64 samples of each.

    >>> full_form({"train": (b"12345678", b"1234")}, "f" * 16)
    '24b8e9709f02338c v2 train 3132333435363738/31323334 v1 ffffffffffffffff'
    """
    parts = [f"{name} {inputs.hex()[:16]}/{labels.hex()[:8]}" for name, (inputs, labels) in splits.items()]
    text = " ".join([FULL, *parts, "v1", partial])
    return f"{digest(text.encode(), 8).hex()} {text}"


def is_partial(fingerprint: Any) -> bool:
    """Whether a fingerprint is of the first form, of 64 samples of each split."""
    return isinstance(fingerprint, str) and len(fingerprint) == 16 and " " not in fingerprint


def same_content(saved: Any, now: Any) -> bool:
    """Whether two fingerprints are of the same data, as far as the older one tells.

    >>> full = full_form({"train": (b"12345678", b"1234")}, "f" * 16)
    >>> same_content("f" * 16, full), same_content(full, full), same_content("0" * 16, full)
    (True, True, False)
    """
    return saved == now or (is_partial(saved) and _partial_of(now) == saved)


def changed_parts(saved: Any, now: Any) -> str:
    """What differs between the data of two fingerprints, in words.

    >>> one, other = (full_form({"train": (x, b"1234")}, "f" * 16) for x in (b"12345678", b"12345679"))
    >>> changed_parts(one, other)
    'the inputs of train have changed'
    """
    there, here = _parts(saved), _parts(now)
    if not there or not here:
        return "the data has changed"
    if there.keys() != here.keys():
        return f"the splits were {', '.join(there)} and are {', '.join(here)}"
    differing = []
    for i, kind in enumerate(("inputs", "labels, attributes or their names")):
        if names := [name for name in here if there[name][i] != here[name][i]]:
            differing.append(f"the {kind} of {', '.join(names)}")
    return f"{' and '.join(differing) or 'the pixels that the same files are decoded to'} have changed"


def in_full(fingerprints: Iterable[Any]) -> Callable[[Any], Any]:
    """A function that gives a partial fingerprint the full form of the same data, where exactly one is among these.

    >>> full = full_form({"train": (b"12345678", b"1234")}, "f" * 16)
    >>> as_full = in_full([full, "f" * 16])
    >>> as_full("f" * 16) == as_full(full) == full, as_full("0" * 16)
    (True, '0000000000000000')
    """
    full: dict[str, set[str]] = {}
    for fingerprint in fingerprints:
        if partial := _partial_of(fingerprint):
            full.setdefault(partial, set()).add(fingerprint)
    only = {partial: next(iter(of)) for partial, of in full.items() if len(of) == 1}
    return lambda fingerprint: only.get(fingerprint, fingerprint)


def _partial_of(fingerprint: Any) -> str:
    """What a full fingerprint says of 64 samples of each split; empty for others."""
    words = fingerprint.split() if isinstance(fingerprint, str) else []
    return words[-1] if words[1:2] == [FULL] and words[-2] == "v1" else ""


def _parts(fingerprint: Any) -> dict[str, list[str]]:
    words = fingerprint.split()[2:-2] if _partial_of(fingerprint) else []
    return {name: hashes.split("/") for name, hashes in zip(words[::2], words[1::2], strict=True)}
