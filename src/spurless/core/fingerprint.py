"""A hash of all that a dataset holds, to notice that it is not the same as before."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from spurless.core.data import Bundle, HasContent, Split
from spurless.core.digests import digest, full_form, raw, tensor_digest


def fingerprint(data: Bundle, with_attributes: bool = True) -> str:
    """Hashes of all inputs and labels of each split, to notice that a dataset is not the same as before.

    `with_attributes`: also of bias attributes, groups and all names. Ends in the fingerprint of older versions, so that
    what these have saved can be compared.

    >>> toy = Bundle("toy", Split(torch.zeros(2, 3), torch.tensor([0, 1])))
    >>> fingerprint(toy) == fingerprint(Bundle("toy", Split(torch.ones(2, 3), torch.tensor([0, 1]))))
    False
    """
    names = repr((data.classes, data.attributes, data.values, data.overlap)).encode() if with_attributes else b""
    splits = {}
    for name, split in data.splits.items():
        kept = [split.a, split.member] if with_attributes else []
        labels = [b"" if t is None else tensor_digest(t) for t in (split.y, *kept)]
        splits[name] = inputs_digest(split), digest(b"/".join([*labels, names]))
    return full_form(splits, partial_fingerprint(data, with_attributes))


def inputs_digest(split: Split) -> bytes:
    """Of samples that are decoded on demand: the hash that they tell, such as that of their files, else decode all."""
    if isinstance(split.x, Tensor):
        return tensor_digest(split.x)
    if isinstance(split.x, HasContent):
        return split.x.content_digest()
    parts = (tensor_digest(split[idx]) for idx in torch.arange(len(split)).split(256))
    return digest(b"".join(parts))


def partial_fingerprint(data: Bundle, with_attributes: bool = True) -> str:
    """The fingerprint of older versions: labels, attributes and 64 inputs of each split."""
    seen = hashlib.sha256()
    for name, split in data.splits.items():
        seen.update(f"{name} {tuple(split.x.shape)}".encode())
        sample = torch.linspace(0, len(split) - 1, min(len(split), 64)).long()
        kept = (split.a, split.member) if with_attributes else ()
        for t in (split.y, *kept, split[sample]):
            if t is not None and t.numel():
                whole = t.contiguous()
                seen.update(raw(whole))
    return seen.hexdigest()[:16]
