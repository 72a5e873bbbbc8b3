"""Adversarial inputs: small changes, found by gradient ascent, that a pair of networks sees differently."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from spurless.core.data import Bundle, Images
from spurless.core.errors import UserError
from spurless.methods.parts.losses import ce_rows
from spurless.nets.heads import evaluating

Ball = Literal["l2", "linf"]
Read = Callable[[nn.Module, Tensor], Tensor]  # what a network answers to an input


def ask(net: nn.Module, x: Tensor) -> Tensor:
    """The network's logits (n, classes) of inputs that it takes as they are."""
    logits: Tensor = net(x)
    return logits


@dataclass(frozen=True)
class Attack:
    """What an attack may do to inputs. ε and the step are in the units of the inputs."""

    lam: float  # λ, how much it spares the debiased network
    eps: float  # ε, radius of the ball
    steps: int
    norm: Ball = "l2"
    step_size: float | None = None  # None: 2.5 ε / steps
    random_start: bool = False
    low: Tensor | float | None = None  # the valid values: numbers, or tensors that broadcast with the inputs
    high: Tensor | float | None = None

    @property
    def size(self) -> float:
        return 2.5 * self.eps / max(self.steps, 1) if self.step_size is None else self.step_size


def bias_adversarial(
    x: Tensor,
    y: Tensor,
    biased: nn.Module,
    debiased: nn.Module,
    attack: Attack,
    free: Tensor | None = None,
    read: Read = ask,
) -> Tensor:
    """Inputs near x that the biased network gets wrong and the debiased one still gets right (BiasAdv).

        argmax over ‖x̃ − x‖ ≤ ε of  CE(biased, x̃) − λ · CE(debiased, x̃)

    by projected gradient steps, of which the last point is returned. `free` is 1 where x may change and 0 where it must
    not; `read(network, x̃)` gives the logits: see `on_text`. Both networks are in evaluation mode meanwhile; nothing of
    them changes, neither gradients nor statistics.

    >>> biased, debiased = nn.Linear(2, 2), nn.Linear(2, 2)
    >>> x, y = torch.zeros(3, 2), torch.tensor([0, 1, 1])
    >>> moved = bias_adversarial(x, y, biased, debiased, Attack(lam=0.5, eps=0.3, steps=5))
    >>> bool((moved - x).norm(dim=1).max() <= 0.3 + 1e-6)
    True
    """
    start = adv = x.detach()
    if attack.random_start:
        adv = within(start + random_point(start, attack.eps, attack.norm, free), attack.low, attack.high)
    with evaluating(biased, debiased), torch.enable_grad():
        for _ in range(attack.steps):
            adv = adv.detach().requires_grad_()
            # A sum, so that each sample has the gradient that it would have on its own.
            gain = (ce_rows(read(biased, adv), y) - attack.lam * ce_rows(read(debiased, adv), y)).sum()
            (grad,) = torch.autograd.grad(gain, adv)  # of the inputs alone: parameters gather nothing
            grad = grad if free is None else grad * free
            moved = adv.detach() + attack.size * steepest(grad, attack.norm)
            # Into the ball, then into the valid values: where x is valid, the second never leads out of the first.
            adv = within(start + project(moved - start, attack.eps, attack.norm), attack.low, attack.high)
    return adv.detach()


def steepest(grad: Tensor, norm: Ball) -> Tensor:
    """The direction of unit length, sample by sample, in which a function with this gradient rises most.

    >>> steepest(torch.tensor([[3.0, -4.0], [0.0, 0.0]]), "l2").tolist()
    [[0.6000000238418579, -0.800000011920929], [0.0, 0.0]]
    """
    if norm == "linf":
        return grad.sign()
    dims = tuple(range(1, grad.dim()))
    # Scaled first: the squares of a confident network's tiny gradients would all be 0.
    grad = grad / grad.abs().amax(dims, keepdim=True).clamp_min(torch.finfo(grad.dtype).tiny)
    length: Tensor = torch.linalg.vector_norm(grad, dim=dims, keepdim=True)
    return grad / length.clamp_min(1)  # at least 1 unless all is 0


def project(change: Tensor, eps: float, norm: Ball) -> Tensor:
    """Each sample's nearest point in the ball of radius eps around 0.

    >>> project(torch.tensor([[3.0, 4.0], [0.3, 0.4]]), 1.0, "linf").tolist()
    [[1.0, 1.0], [0.30000001192092896, 0.4000000059604645]]
    """
    if norm == "linf":
        return change.clamp(-eps, eps)
    length: Tensor = torch.linalg.vector_norm(change, dim=tuple(range(1, change.dim())), keepdim=True)
    return change * (eps / length.clamp_min(max(eps, 1e-12)))


def random_point(x: Tensor, eps: float, norm: Ball, free: Tensor | None = None) -> Tensor:
    """A change like x, each sample drawn uniformly from the ball of radius eps; 0 where `free` is 0."""
    if norm == "linf":
        change = (2 * torch.rand_like(x) - 1) * eps
        return change if free is None else change * free
    # The share of a d-dimensional ball that lies within r of its centre is (r/ε)^d.
    radius = torch.rand_like(x[(slice(None), *[slice(0, 1)] * (x.dim() - 1))])  # (n, 1, ...)
    change = torch.randn_like(x)
    if free is None:
        return eps * radius ** (1 / x[0].numel()) * steepest(change, "l2")
    dims = free.expand_as(x).flatten(1).sum(1).clamp_min(1).view_as(radius)  # of each sample's own ball
    return eps * radius ** (1 / dims) * steepest(change * free, "l2")


def within(x: Tensor, low: Tensor | float | None, high: Tensor | float | None) -> Tensor:
    """x with its values brought between the two limits, where there are any."""
    if low is not None:
        x = torch.clamp(x, min=low)
    return x if high is None else torch.clamp(x, max=high)


def pixel_range(data: Bundle, device: torch.device | str = "cpu") -> tuple[Tensor | None, Tensor | None]:
    """The least and the greatest value of a batch's pixels: 0 and 1, standardised as the dataset is.

    (None, None) for what is no image, and for images that are not stored as uint8: their range is not known.

    >>> from spurless.core.data import Split
    >>> images = Split(torch.zeros(2, 1, 4, 4, dtype=torch.uint8), torch.tensor([0, 1]))
    >>> low, high = pixel_range(Bundle("grey", images, inputs=Images((0.5,), (0.25,))))
    >>> low.flatten().tolist(), high.flatten().tolist()
    ([-2.0], [2.0])
    """
    if not isinstance(data.inputs, Images) or data.train.x.dtype != torch.uint8:
        return None, None
    ends = torch.tensor([0.0, 1.0], device=device).view(2, 1, 1, 1, 1)
    if data.inputs.mean and data.inputs.std:
        mean, std = (torch.tensor(v, device=device).view(1, 1, -1, 1, 1) for v in (data.inputs.mean, data.inputs.std))
        ends = (ends - mean) / std
    low, high = ends  # each (1, channels or 1, 1, 1)
    return low, high


# Text: what is changed is the vector of each token


def on_text(x: Tensor, like: nn.Module) -> tuple[Tensor, Tensor, Read]:
    """An attack on texts as token ids (n, 2, l): where it starts, what is free to change, and how a network reads it.

    Ids cannot change by a little. What does is one change (n, l, d), at first 0, that is added to the vector that each
    token has in a network; the places of padding stay 0. Every network adds it to its own vectors. `like` is a network
    with vectors of the width d.

    >>> from spurless.nets import build
    >>> net = build({"name": "embedding_bag", "dim": 4, "vocab": 9}, (2, 3), 2)
    >>> text = torch.tensor([[[7, 8, 0], [1, 1, 0]]])  # two tokens and one place of padding
    >>> start, free, read = on_text(text, net)
    >>> start.shape, free.flatten().tolist(), torch.equal(read(net, start), net(text))
    (torch.Size([1, 3, 4]), [1.0, 1.0, 0.0], True)
    """
    table = embedding_of(like).weight
    start = torch.zeros(len(x), x.shape[-1], table.shape[1], dtype=table.dtype, device=x.device)

    def read(net: nn.Module, change: Tensor) -> Tensor:
        encoder: Any = net.encoder
        # Whole in every process: each then finds the same gradients, of which the mean is taken.
        features = encoder.from_embeddings(encoder.embed(x) + change, x).flatten(1)
        logits: Tensor = net.head(features)  # type: ignore[operator]
        return logits

    return start, (x[:, 1] > 0).to(table.dtype)[..., None], read


def embedding_of(net: nn.Module) -> nn.Embedding:
    """The layer of a network's token vectors; a UserError for one that is not in the two halves of nets.text."""
    encoder: Any = getattr(net, "encoder", None)
    if not all(hasattr(encoder, attribute) for attribute in ("embedding", "embed", "from_embeddings")):
        raise UserError(
            f"On text bias_adv changes the vectors of tokens, and {type(encoder or net).__name__} has no embed and "
            "from_embeddings as spurless.nets.text describes them; use embedding_bag, minilm, bert, roberta or hf:NAME."
        )
    embedding: nn.Embedding = encoder.embedding
    return embedding
