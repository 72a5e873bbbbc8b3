"""Which networks read texts, and whether one reads the tokens of a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spurless.core.data import Bundle, Texts
from spurless.core.errors import UserError
from spurless.core.settings import resolve
from spurless.data.tokens import tokens_of
from spurless.nets import READS_TEXT, builder


def check_reads(data: Bundle, net: Any) -> None:
    """Refuse a network that would read token ids as numbers, or as those of another vocabulary.

    A module of the user's own is not judged: its author knows what it reads.
    """
    given = {"name": net} if isinstance(net, str) else dict(net) if isinstance(net, Mapping) else {}
    name = given.pop("name", "")
    kind, _, location = str(name).partition(":")
    reads = name in READS_TEXT or (kind == "hf" and location)
    texts = data.inputs if isinstance(data.inputs, Texts) else None
    if not name or (texts is None and not reads):
        return
    if texts is None:
        raise UserError(f"{name} reads text, and {data.name} holds none; name another network with --net.")
    if not reads:
        raise UserError(f"{name} cannot read text, which {data.name} holds; use {', '.join(READS_TEXT)} or hf:NAME.")
    if name == "minilm" or location:
        own = tokens_of(location or name)
        if own.vocabulary != texts.tokens.vocabulary:
            raise UserError(
                f"{name} reads other tokens than data.tokenizer = {texts.tokens.tokenizer} gives; "
                f"set data.tokenizer={own.tokenizer}."
            )
    elif texts.tokens.size > (vocab := resolve(builder(name), given, "net")["vocab"]):
        raise UserError(
            f"{name} knows {vocab:,} tokens, and data.tokenizer = {texts.tokens.tokenizer} has {texts.tokens.size:,}; "
            f"set net.vocab={texts.tokens.size}."
        )
