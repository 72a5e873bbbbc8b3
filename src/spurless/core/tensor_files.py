"""Tensors and facts about them as safetensors files with a checksum."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spurless.core.digests import digest, tensor_digest
from spurless.core.errors import DataError
from spurless.core.files import atomic, check_regular, from_json, open_regular

if TYPE_CHECKING:
    from torch import Tensor


def save_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write tensors and JSON-able facts as one safetensors file."""
    from safetensors.torch import save

    # Its own memory for each: safetensors refuses shared, strided and channels_last tensors.
    whole = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    text = json.dumps(facts)
    with atomic(path) as unfinished:  # safetensors' own writing would leave a file of another name when killed
        try:
            unfinished.write_bytes(save(whole, metadata={"spurless": text, "checksum": _checksum(whole, text)}))
        except OSError as error:  # of a full disk, which does not say whose it is
            raise OSError(error.errno, error.strerror, str(path)) from None


def of_bytes(facts: Mapping[str, Any]) -> bool:
    """Whether a model's inputs are pictures whose bytes are divided by 255. Older files do not say: most are."""
    return len(facts.get("shape") or ()) == 3 and bool(facts.get("bytes", True))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save_tensors` wrote, or any safetensors file (then without facts). What does not match the checksum
    that was saved with it is refused."""
    from safetensors import SafetensorError, safe_open

    try:
        check_regular(path)
        with safe_open(path, framework="pt") as file:
            saved = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path} cannot be read as safetensors ({error}).") from None
    text = saved.get("spurless", "{}")
    if saved.get("checksum", sound := _checksum(tensors, text)) != sound:
        raise DataError(f"{path} is damaged: its weights do not match the checksum in it. Copy or train it again.")
    try:
        return tensors, from_json(text)
    except ValueError as error:
        raise DataError(f"{path} is damaged: what it says of its weights is no JSON ({error}).") from None


def _checksum(tensors: Mapping[str, Tensor], text: str) -> str:
    """A hash of all tensors, their names and what is said of them."""
    parts = [name.encode() + b"\0" + tensor_digest(tensors[name]) for name in sorted(tensors)]
    return digest(b"".join([text.encode(), *parts])).hex()


def header(file: Path) -> dict[str, Any]:
    """The facts in a safetensors file, without loading it; none where it has none or cannot be read."""
    try:
        with open_regular(file) as opened:
            (size,) = struct.unpack("<Q", opened.read(8))
            fields = from_json(opened.read(min(size, 100_000_000)))
        facts = from_json(fields["__metadata__"]["spurless"])
    except (DataError, OSError, struct.error, ValueError, KeyError, TypeError):
        return {}
    return facts if isinstance(facts, dict) else {}
