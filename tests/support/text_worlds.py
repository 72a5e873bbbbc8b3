"""Small datasets of text that tests share."""

import torch

from spurless.core.data import Bundle, Overlap, Split, Texts
from spurless.core.recipe import Recipe
from spurless.data.tokens import Tokens

VOCAB = 50
BAG = {"name": "embedding_bag", "dim": 16, "vocab": VOCAB}
BERT = {"name": "bert", "layers": 2, "width": 16, "heads": 2, "vocab": VOCAB}
WORDS = "a b c d e f good bad film was the it really not . rotten imdb review fine dull 1 2 3".split()


def sentences(n=200, length=20, rho=0.05, seed=0, overlap=False):
    """Token ids: one word gives the class away, two give the bias away, and the rest of a row says nothing.

    Rows have 6 to `length` tokens. No tokenizer stands behind them.
    """
    g = torch.Generator().manual_seed(seed)

    def split(rows, against):
        y = torch.arange(rows) % 2
        a = torch.where(torch.rand(rows, generator=g) < against, 1 - y, y)
        lengths = torch.randint(6, length + 1, (rows,), generator=g)
        ids = torch.randint(10, VOCAB, (rows, length), generator=g)
        ids[:, 0], ids[:, 1], ids[:, 2], ids[:, 3] = 1, 2 + y, 4 + a, 4 + a
        real = (torch.arange(length) < lengths[:, None]).long()
        member = torch.rand(rows, 3, generator=g) < 0.4 if overlap else None
        return Split(torch.stack([ids * real, real], dim=1).int(), y, a[:, None], member=member)

    return Bundle(
        "sentences",
        split(n, rho),
        split(64, rho),
        split(200, 0.5),
        classes=("no", "yes"),
        attributes=("cue",),
        inputs=Texts(Tokens("sentences", VOCAB, "sentences")),
        overlap=Overlap("topic", ("a", "b", "c")) if overlap else None,
        net="embedding_bag",
        recipe=Recipe("adam", 1e-2, batch_size=32, epochs=3),
    )


def word_tokenizer(folder):
    """A tokenizer.json of whole words, with BERT's special tokens."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocab = {word: i for i, word in enumerate([*special, *WORDS])}
    made = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.add_special_tokens(special)
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    return str(folder)
