"""Networks that read text: samples int32 (n, 2, length) of token ids and of the text that each belongs to
(data.tokens).

Every encoder here has two halves, for what has to happen between them (an attack on the embeddings, attribution):

    e = net.encoder.embed(x)                        # (n, length, d): the vector of each token, before positions
    net.head(net.encoder.from_embeddings(e, x))     # equals net(x); x still says what is padding

`net.encoder.embedding` is the layer of those vectors.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spurless.core.errors import UserError, first_line
from spurless.core.extras import missing
from spurless.core.settings import Range
from spurless.nets.dropout import Dropout
from spurless.nets.net import Net
from spurless.nets.small import Shape

Vocab = Annotated[int, "token ids that it knows", Range(1)]
Drop = Annotated[float, "share of dropped activations", Range(0, 1)]
Pooling = Annotated[Literal["mean", "first"], "features: the mean over the tokens, or the first token's ([CLS])"]
Layers = Annotated[int, "layers", Range(1)]
Width = Annotated[int, "units of a token", Range(1)]
Heads = Annotated[int, "attention heads; they share out the width", Range(1)]
Inner = Annotated[int, "units of the wide layer; 0: four times the width", Range(0)]
Pretrained = Annotated[bool, "start from the pretrained weights"]
Trained = Annotated[
    int, "how many of the last layers are trained, the rest staying as it is; -1: everything", Range(-1)
]


class TextEncoder(nn.Module):
    """What all of them share: samples in, features (n, d) out."""

    embedding: nn.Embedding

    def embed(self, x: Tensor) -> Tensor:
        result: Tensor = self.embedding(x[:, 0].long())  # (n, l, d)
        return result

    def from_embeddings(self, e: Tensor, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        return self.from_embeddings(self.embed(x), x)


class Bag(TextEncoder):
    """The mean of the tokens' vectors, in any order, and layers on it."""

    def __init__(self, vocab: int, dim: int, widths: tuple[int, ...], dropout: float):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        nn.init.normal_(self.embedding.weight, std=0.1)  # torch's 1 would drown a mean of hundreds of vectors
        layers: list[nn.Module] = [Dropout(dropout)]
        for width in widths:
            layers += [nn.Linear(dim, width), nn.ReLU()]
            dim = width
        self.layers = nn.Sequential(*layers)

    def from_embeddings(self, e: Tensor, x: Tensor) -> Tensor:
        result: Tensor = self.layers(pooled(e, x[:, 1] > 0, "mean"))
        return result


class Layer(nn.Module):
    """Attention and two linear layers, each added to its input and normalised after that (as BERT has it)."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float, eps: float):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.mix = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps), nn.LayerNorm(width, eps)
        self.drop = Dropout(dropout)

    def forward(self, h: Tensor, seen: Tensor) -> Tensor:
        n, length, width = h.shape
        split = (n, length, self.heads, width // self.heads)
        q, k, v = (project(h).view(split).transpose(1, 2) for project in (self.query, self.key, self.value))
        # Attention weights are not dropped: the fast kernels cannot, and one process could not draw what several do.
        mixed = F.scaled_dot_product_attention(q, k, v, seen)  # (n, heads, l, width / heads)
        h = self.norm1(h + self.drop(self.mix(mixed.transpose(1, 2).reshape(n, length, width))))
        result: Tensor = self.norm2(h + self.drop(self.narrow(F.gelu(self.wide(h)))))
        return result


class Size(NamedTuple):
    """The size of an encoder like BERT's, and where it differs from that."""

    layers: int
    width: int
    heads: int
    inner: int  # 0: four times the width
    pooling: Literal["mean", "first"]
    dropout: float
    positions: int = 512
    first_position: int = 0
    kinds: int = 2
    eps: float = 1e-12


class Transformer(TextEncoder):
    """BERT's encoder, and RoBERTa's, which counts positions from 2 and has one kind of text."""

    def __init__(self, vocab: int, length: int, size: Size):
        super().__init__()
        width, most = size.width, size.positions
        if width % size.heads:
            raise UserError(f"net.width = {width} cannot be shared out to net.heads = {size.heads}; take a multiple.")
        if length > most:
            raise UserError(f"This network reads up to {most} tokens, not {length}; set data.length={most}.")
        self.embedding, self.kinds = nn.Embedding(vocab, width), nn.Embedding(size.kinds, width)
        self.first_position = size.first_position
        self.positions = nn.Embedding(most + size.first_position, width)
        self.norm, self.drop, self.pooling = nn.LayerNorm(width, size.eps), Dropout(size.dropout), size.pooling
        inner = size.inner or 4 * width
        self.layers = nn.ModuleList(Layer(width, size.heads, inner, size.dropout, size.eps) for _ in range(size.layers))
        for module in self.modules():  # as BERT starts
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def from_embeddings(self, e: Tensor, x: Tensor) -> Tensor:
        segments = x[:, 1].long()  # (n, l)
        at = torch.arange(e.shape[1], device=e.device) + self.first_position
        kind = (segments - 1).clamp(0, self.kinds.num_embeddings - 1)
        h = self.drop(self.norm(e + self.positions(at) + self.kinds(kind)))  # (n, l, d)
        seen = attended(segments > 0)[:, None, None]  # (n, 1, 1, l)
        for layer in self.layers:
            h = layer(h, seen)
        return pooled(h, segments > 0, self.pooling)


class Foreign(TextEncoder):
    """An encoder of the transformers package. It is given embeddings, so that both halves are its own."""

    def __init__(self, model: Any, pooling: Literal["mean", "first"]):
        super().__init__()
        self.model, self.pooling = model, pooling
        kinds = getattr(model.config, "type_vocab_size", 0) or 0
        self.kinds = int(kinds) if "token_type_ids" in inspect.signature(model.forward).parameters else 0

    @property
    def embedding(self) -> nn.Embedding:  # type: ignore[override]
        result: nn.Embedding = self.model.get_input_embeddings()
        return result

    def from_embeddings(self, e: Tensor, x: Tensor) -> Tensor:
        segments = x[:, 1].long()
        more = {"token_type_ids": (segments - 1).clamp(0, self.kinds - 1)} if self.kinds > 1 else {}
        output = self.model(inputs_embeds=e, attention_mask=attended(segments > 0).long(), return_dict=True, **more)
        return pooled(output.last_hidden_state, segments > 0, self.pooling)


def attended(real: Tensor) -> Tensor:
    """(n, l) Which tokens are looked at: the real ones, and the first, so that a sample of padding alone is finite."""
    return real | (torch.arange(real.shape[1], device=real.device) == 0)


def pooled(h: Tensor, real: Tensor, how: str) -> Tensor:
    """(n, d) One vector for each sample of (n, l, d).

    >>> pooled(torch.tensor([[[2.0], [4.0], [9.0]]]), torch.tensor([[True, True, False]]), "mean").tolist()
    [[3.0]]
    """
    if how == "first":
        return h[:, 0]
    weight = real.to(h.dtype)[:, :, None]  # (n, l, 1)
    return (h * weight).sum(1) / weight.sum(1).clamp_min(1)


# Builders


def embedding_bag(
    shape: Shape,
    classes: int,
    dim: Annotated[int, "numbers of a token's vector", Range(1)] = 64,
    widths: Annotated[tuple[int, ...], "units of hidden layers on the mean", Range(1)] = (),
    dropout: Drop = 0.0,
    vocab: Vocab = 30522,
    pretrained: Annotated[bool, "start from the tokens' vectors of MiniLM, which are of 384 numbers"] = False,
) -> Net:
    """The mean of the tokens' vectors, in any order (a bag of words): fast, and a fair baseline for topics and tone."""
    token_length(shape, "embedding_bag")
    encoder = Bag(vocab, dim, widths, dropout)
    if pretrained:
        weight = _minilm_weights()["embeddings.word_embeddings.weight"]
        if weight.shape != (vocab, dim):
            raise UserError("MiniLM has 30,522 vectors of 384 numbers; set net.dim=384 and leave net.vocab.")
        with torch.no_grad():
            # Centred and scaled to the size that random ones start with: theirs have a large common part.
            weight = weight - weight.mean(0)
            encoder.embedding.weight.copy_(weight * (0.1 / weight.std()))
    return Net(encoder, nn.Linear(widths[-1] if widths else dim, classes))


def minilm(
    shape: Shape,
    classes: int,
    pretrained: Pretrained = True,
    pooling: Pooling = "mean",
    trained: Trained = -1,
    dropout: Drop = 0.1,
) -> Net:
    """MiniLM (Wang et al. 2020; all-MiniLM-L6-v2): 6 layers of 384 units. Its package carries weights and tokenizer."""
    encoder = Transformer(30522, token_length(shape, "minilm"), Size(6, 384, 12, 1536, pooling, dropout))
    if pretrained:
        encoder.load_state_dict(own_names(_minilm_weights()))
    freeze(encoder, list(encoder.layers), trained)
    return _with_head(encoder, 384, classes)


def bert(
    shape: Shape,
    classes: int,
    layers: Layers = 2,
    width: Width = 128,
    heads: Heads = 2,
    inner: Inner = 0,
    vocab: Vocab = 30522,
    pooling: Pooling = "first",
    dropout: Drop = 0.1,
) -> Net:
    """BERT's encoder (Devlin et al. 2019), untrained; by default of the size called tiny. BERT-base: 12, 768, 12."""
    size = Size(layers, width, heads, inner, pooling, dropout)
    return _with_head(Transformer(vocab, token_length(shape, "bert"), size), width, classes)


def roberta(
    shape: Shape,
    classes: int,
    layers: Layers = 2,
    width: Width = 128,
    heads: Heads = 2,
    inner: Inner = 0,
    vocab: Vocab = 50265,
    pooling: Pooling = "first",
    dropout: Drop = 0.1,
) -> Net:
    """RoBERTa's encoder (Liu et al. 2019), untrained: as BERT's, but positions count from 2 and texts have no kind."""
    size = Size(layers, width, heads, inner, pooling, dropout, first_position=2, kinds=1, eps=1e-5)
    return _with_head(Transformer(vocab, token_length(shape, "roberta"), size), width, classes)


def hf_builder(location: str) -> Callable[..., Net]:
    """The builder of an encoder of the transformers package, from a folder or from its name on the hub."""

    def hf_net(
        shape: Shape, classes: int, pretrained: Pretrained = True, pooling: Pooling = "mean", trained: Trained = -1
    ) -> Net:
        try:
            from transformers import AutoConfig, AutoModel
        except ImportError:
            raise missing(f"hf:{location}", "text") from None
        from spurless.data.tokens import model_folder

        length, where = token_length(shape, f"hf:{location}"), model_folder(location)
        try:
            config = AutoConfig.from_pretrained(where, trust_remote_code=False)
            with _without_bar():
                if pretrained:
                    model = AutoModel.from_pretrained(where, trust_remote_code=False)
                else:
                    model = AutoModel.from_config(config, trust_remote_code=False)
        except Exception as error:
            reason = first_line(error)
            raise UserError(
                f"hf:{location} cannot be had ({reason}). Name a folder with config.json and weights, or a name on the "
                "Hugging Face hub; offline, minilm needs no download."
            ) from None
        most = _most_tokens(model)
        if most is not None and length > most:
            raise UserError(f"hf:{location} reads up to {most} tokens, not {length}; set data.length={most}.")
        if isinstance(getattr(model, "pooler", None), nn.Module):
            model.pooler = None  # features are taken before it: it would never be trained
        encoder = Foreign(model.float(), pooling)  # some checkpoints are kept in 16 bits
        freeze(encoder, _layers_of(model), trained)
        return _with_head(encoder, int(config.hidden_size), classes)

    return hf_net


def freeze(encoder: nn.Module, layers: list[nn.Module], trained: int) -> None:
    """Leave only the last `trained` layers to be trained; -1: leave everything."""
    if trained < 0:
        return
    if trained > len(layers):
        raise UserError(f"net.trained = {trained} is more than the {len(layers)} layers that this network has.")
    encoder.requires_grad_(False)
    for layer in layers[len(layers) - trained :]:
        layer.requires_grad_(True)


def token_length(shape: Shape, name: str) -> int:
    """The length of samples of token ids; a UserError where inputs are something else."""
    if len(shape) != 2 or shape[0] != 2:
        raise UserError(
            f"{name} reads text, samples of shape (2, length), not inputs of shape {tuple(shape)}; try net mlp."
        )
    return shape[1]


_OWN = {  # by the names that checkpoints of BERT and RoBERTa have
    "embeddings.word_embeddings": "embedding",
    "embeddings.position_embeddings": "positions",
    "embeddings.token_type_embeddings": "kinds",
    "embeddings.LayerNorm": "norm",
    "attention.self.query": "query",
    "attention.self.key": "key",
    "attention.self.value": "value",
    "attention.output.dense": "mix",
    "attention.output.LayerNorm": "norm1",
    "intermediate.dense": "wide",
    "output.dense": "narrow",
    "output.LayerNorm": "norm2",
}


def own_names(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A checkpoint of BERT or RoBERTa under the names that `Transformer` has, without the pooler.

    >>> list(own_names({"encoder.layer.3.output.dense.bias": torch.zeros(1), "pooler.dense.bias": torch.zeros(1)}))
    ['layers.3.narrow.bias']
    """
    names = {}
    for name, tensor in weights.items():
        prefix, _, kind = name.rpartition(".")
        layer = re.fullmatch(r"encoder\.layer\.(\d+)\.(.*)", prefix)
        own = _OWN.get(layer[2] if layer else prefix)
        if own:
            names[f"layers.{layer[1]}.{own}.{kind}" if layer else f"{own}.{kind}"] = tensor
    return names


def _with_head(encoder: nn.Module, width: int, classes: int) -> Net:
    head = nn.Linear(width, classes)
    nn.init.normal_(head.weight, std=0.02)  # as transformers starts its classifiers
    nn.init.zeros_(head.bias)
    return Net(encoder, head)


@contextmanager
def _without_bar() -> Iterator[None]:
    """Loading weights takes a moment, for which transformers would draw a bar on the terminal."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _most_tokens(model: Any) -> int | None:
    """How many tokens an encoder of transformers reads; None: any number."""
    most = getattr(model.config, "max_position_embeddings", None) or 0
    if most < 1:  # XLNet says -1
        return None
    places = (child for name, child in model.named_modules() if name.endswith("position_embeddings"))
    padding = next((getattr(child, "padding_idx", None) for child in places), None)
    # RoBERTa and its kin count from behind the position of padding: 514 positions are 512 tokens.
    return most - (0 if padding is None else padding + 1)


def _layers_of(model: nn.Module) -> list[nn.Module]:
    """The stack of layers: the longest list of modules of one kind."""
    stacks = [list(m) for m in model.modules() if isinstance(m, nn.ModuleList) and len({type(p) for p in m}) == 1]
    return max(stacks, key=len, default=[])


def _minilm_weights() -> dict[str, Tensor]:
    from safetensors.torch import load_file

    from spurless.data.tokens import model_folder

    return load_file(Path(model_folder("minilm")) / "model.safetensors")
