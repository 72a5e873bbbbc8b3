"""Which words of a text a network relies on: LayerIntegratedGradients of Captum on the layer of the tokens' vectors.

They are computed on a copy of the network in evaluation mode; nothing is left behind on the network itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from spurless.core.data import Bundle, Texts
from spurless.core.errors import UserError
from spurless.data.tokens import Tokens, bucket, row_lengths
from spurless.data.words import words_of
from spurless.metrics import checks
from spurless.metrics.attribution import classes_to_explain
from spurless.metrics.explainers import captum_attr, own_copy, quiet
from spurless.metrics.maps import places
from spurless.metrics.regions import Rows, device_of, rows_of


def attribute_tokens(
    net: nn.Module,
    x: Tensor,
    target: Tensor | int | None = None,
    *,
    baseline: int | None = None,
    steps: int = 50,
    layer: str | None = None,
    batch_size: int = 512,
) -> Tensor:
    """(n, l): how much each token of the samples x (n, 2, l) speaks for the target; 0 at padding.

    Integrated Gradients, Σ_d (e − e₀) ∫ ∇f(e₀ + t (e − e₀)) dt over the vector e of each token, in `steps` points: the
    numbers of a sample sum to f(x) − f(x₀). `baseline` is the token whose vector stands for "no word" (e₀); None:
    zeros.

    `target`: a class for all samples or for each; None: the one that the network predicts. The network may be one's
    own: `layer` names its nn.Embedding of the tokens; None: the one that is given the ids. `batch_size` counts samples
    in one forward pass, the steps included; samples of about the same length come together.

    >>> import pytest
    >>> _ = pytest.importorskip("captum")
    >>> from spurless.nets import build
    >>> net = build({"name": "embedding_bag", "dim": 1, "vocab": 4}, (2, 4), 2)
    >>> _ = net.encoder.embedding.weight.data.copy_(torch.tensor([[0.0], [2.0], [-4.0], [8.0]]))
    >>> _ = net.head.weight.data.copy_(torch.tensor([[0.0], [1.0]]))
    >>> rows = torch.tensor([[[1, 2, 0, 0], [1, 1, 0, 0]], [[3, 1, 1, 2], [1, 1, 1, 1]]])
    >>> attribute_tokens(net, rows, target=1).round(decimals=3).tolist()  # of a mean: each vector / how many there are
    [[1.0, -2.0, 0.0, 0.0], [2.0, 0.5, 0.5, -1.0]]
    """
    captum = captum_attr()
    x, steps = checks.tensor(x, "x"), checks.count(steps, "steps")
    if x.dim() != 3 or x.shape[1] != 2 or x.shape[2] == 0:
        raise UserError(f"Samples of tokens have shape (n, 2, length), ids and where they are, not {tuple(x.shape)}.")
    scores = torch.zeros(len(x), x.shape[-1])
    if len(x) == 0:
        return scores
    with torch.inference_mode(False), torch.enable_grad(), quiet():
        module = own_copy(net)
        read = Blankable(module, layer or token_layer(module, x[:2].to(device_of(module))), baseline)
        if layer is None and not 0 <= int(x[:, 0].min()) <= int(x[:, 0].max()) < read.vectors.num_embeddings:
            raise UserError(
                f"Token ids are 0 to {read.vectors.num_embeddings - 1} in this network; some of these are not: "
                "were they made with another tokenizer?"
            )
        device, explain = device_of(module), captum.LayerIntegratedGradients(read, read.vectors)
        with torch.no_grad(), checks.asking(module, x):
            goal = classes_to_explain(target, len(x), module(x[:1].to(device)).shape[1])
        lengths = row_lengths(x).cpu()
        for idx in lengths.argsort(stable=True).split(max(1, batch_size // steps)):
            size = bucket(int(lengths[idx].max()), x.shape[-1])
            rows = x[idx.to(x.device)][..., :size].to(device).clone()
            blank = rows[:, 1] > 0  # (m, size): padding is the same with and without words
            wanted = module(rows).detach().argmax(1) if goal is None else goal[idx].to(device)
            drawn = explain.attribute(
                torch.zeros_like(blank), blank, target=wanted, additional_forward_args=(rows,), n_steps=steps
            )  # (m, size, d)
            scores[idx, :size] = drawn.detach().sum(2).float().cpu()
    return scores


def attribute_text(
    net: nn.Module, data: Bundle, split: str = "test", rows: Rows = None, **settings: Any
) -> list[list[tuple[str, float]]]:
    """For samples of a dataset of texts, every word with how much it speaks for the row's label, or a given target.

    >>> import pytest
    >>> _ = pytest.importorskip("captum")
    >>> from spurless.core.data import Split
    >>> from spurless.nets import build
    >>> x = torch.tensor([[[1, 2], [1, 1]], [[2, 0], [1, 0]]]).int()
    >>> data = Bundle("short", Split(x, torch.tensor([0, 1])), inputs=Texts(Tokens("nobody's tokenizer", 3, "")))
    >>> net = build({"name": "embedding_bag", "dim": 4, "vocab": 3}, (2, 2), 2)
    >>> [[word for word, _ in row] for row in attribute_text(net, data, "train")]
    [['token 1', 'token 2'], ['token 2']]
    """
    if not isinstance(data.inputs, Texts):
        raise UserError(f"{data.name} holds no texts; spurless.metrics.attribution is for other inputs.")
    idx = rows_of(data, split, rows)
    settings.setdefault("target", data.splits[split].y[idx])
    x = data.splits[split][idx]
    maps = attribute_tokens(net, x, **settings)
    return [by_word(data.inputs.tokens, row, of) for row, of in zip(x, maps, strict=True)]


def by_word(tokens: Tokens, row: Tensor, of: Tensor) -> list[tuple[str, float]]:
    """The words of a sample (2, l), each with the sum of what its pieces (l,) have; special tokens are left out."""
    row, of = checks.tensor(row, "row"), checks.tensor(of, "of")
    if row.dim() != 2 or len(row) != 2 or of.shape != row.shape[1:]:
        raise UserError(
            f"A sample of tokens has shape (2, length), and a number for each; not {tuple(row.shape)} and "
            f"{tuple(of.shape)}."
        )
    if not 0 <= int(row[0].min()) <= int(row[0].max()) < tokens.size:
        raise UserError(f"Token ids are 0 to {tokens.size - 1} here; some of these are not.")
    return [(word.text, float(of[word.start : word.stop].sum())) for word in words_of(tokens).of(row)]


def shares(maps: Tensor) -> Tensor:
    """(n, l): each token's part of a row's attribution, |m| / Σ |m|; NaN for a sample that has none.

    >>> shares(torch.tensor([[1.0, -3.0, 0.0]])).tolist()
    [[0.25, 0.75, 0.0]]
    """
    weight = places(maps).abs().double()
    return (weight / weight.sum(1, keepdim=True)).float()


class Blankable(nn.Module):
    """A network that is told which of its tokens (n, l) are blank: their vectors are those of "no word".

    Captum asks its network for the layer's output at the inputs and at the baseline, and lays its own points between
    them over that output. So the hook here must be on the layer before Captum's: no token has a vector of zeros, and
    a network of one's own may look at the ids in other places, too, which must not change on the way.
    """

    def __init__(self, module: nn.Module, layer: str, baseline: int | None):
        super().__init__()
        modules: dict[str, nn.Module] = dict(module.named_modules())
        if not isinstance(modules.get(layer), nn.Embedding):
            tables = [name for name, child in modules.items() if isinstance(child, nn.Embedding)]
            raise UserError(f"'{layer}' is no nn.Embedding of the network; there are: {', '.join(tables) or 'none'}.")
        self.module, self.vectors = module, cast(nn.Embedding, modules[layer])
        self.blank: Tensor | None = None
        if baseline is not None and (baseline != int(baseline) or not 0 <= baseline < self.vectors.num_embeddings):
            raise UserError(f"baseline = {baseline} is no token; they are 0 to {self.vectors.num_embeddings - 1}.")

        def hook(_: nn.Module, given: Any, e: Tensor) -> Tensor:
            if self.blank is None:
                return e
            if e.shape[:-1] != self.blank.shape:
                raise UserError(
                    f"'{layer}' is given ids of another shape than the samples have; name another with layer=."
                )
            if baseline is None:
                none = torch.zeros_like(e)
            else:  # as the layer gives it, which may do more than look it up; `forward` alone calls no hook
                none = self.vectors.forward(torch.full_like(given[0], baseline))
            return torch.where(self.blank[..., None], none, e)  # (n, l, d)

        self.vectors.register_forward_hook(hook)

    def forward(self, blank: Tensor, rows: Tensor) -> Tensor:
        self.blank = blank
        try:
            result: Tensor = self.module(rows)
            return result
        finally:
            self.blank = None


def token_layer(module: nn.Module, rows: Tensor) -> str:
    """The name of the nn.Embedding that a network gives the ids of the samples (n, 2, l) to."""
    called: list[str] = []
    ids = rows[:, 0].long()
    hooks = []
    for name, child in module.named_modules():
        if isinstance(child, nn.Embedding):

            def watch(_: nn.Module, given: Sequence[Any], name: str = name) -> None:
                if given and given[0].shape == ids.shape and bool((given[0] == ids).all()):
                    called.append(name)

            hooks.append(child.register_forward_pre_hook(watch))
    try:
        with torch.no_grad(), checks.asking(module, rows):
            module(rows)
    finally:
        for hook in hooks:
            hook.remove()
    if len(set(called)) != 1:
        raise UserError(
            f"{type(module).__name__} has {'no' if not called else 'more than one'} nn.Embedding that is given the "
            "token ids of all samples; name it with layer=."
        )
    return called[0]
