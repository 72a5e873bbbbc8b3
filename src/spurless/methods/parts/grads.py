"""Norms of per-sample gradients: in closed form for the head, through torch.func for a whole network."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import one_hot

from spurless.core.errors import UserError
from spurless.methods.parts.losses import RowLoss, ce_rows
from spurless.nets.heads import evaluating

Norm = Literal["l1", "l2", "l2_squared", "linf", "l0.7"]

MOST = 2**26  # gradient entries held at once


def head_grad_norms(logits: Tensor, features: Tensor, y: Tensor, norm: Norm = "l2", bias: bool = False) -> Tensor:
    """(n,) The norm of each sample's cross-entropy gradient with respect to the head's weight, in one forward pass.

    The gradient is the outer product (p − onehot(y)) ⊗ φ of the error and the features, so every entrywise norm of
    it is the product of the two vectors' norms; with the head's bias included, φ gains a 1.

    >>> logits, features = torch.zeros(1, 2), torch.tensor([[3.0, 4.0]])
    >>> round(float(head_grad_norms(logits, features, torch.tensor([0]))), 4)  # √(1/4 + 1/4) · 5
    3.5355
    """
    error, phi = head_factors(logits, features, y, bias)
    return _entrywise([error], norm) * _entrywise([phi], norm)


def grad_norms(
    net: nn.Module, x: Tensor, y: Tensor, norm: Norm = "l2", loss: RowLoss = ce_rows, chunk: int | None = None
) -> Tensor:
    """(n,) The norm of each sample's gradient with respect to all trainable parameters, in evaluation mode.

    A sample must not depend on the others, which evaluation mode sees to for BatchNorm. `chunk` samples are taken at a
    time; by default up to 128, as long as their gradients stay within a quarter of a gigabyte. The first call of a
    process takes some seconds, in which torch imports what its vmap needs.
    """
    trained, fixed = trainable_and_fixed(net)
    chunk = chunk or max(1, min(128, MOST // sum(p.numel() for p in trained.values())))

    def loss_of_one(params: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return loss(functional_call(net, (params, fixed), (x[None],)), y[None])[0]

    def norm_of_one(x: Tensor, y: Tensor) -> Tensor:
        grads = grad(loss_of_one)(trained, x, y)
        return _entrywise([g.flatten() for g in grads.values()], norm)

    with evaluating(net):
        return vmap(norm_of_one, chunk_size=chunk)(x, y)


class GradNorms(nn.Module):
    """`grad_norms` of the samples of a split in the shape of a network, for Run.outputs, which passes them in order."""

    def __init__(self, net: nn.Module, y: Tensor, norm: Norm = "l2"):
        super().__init__()
        self.net, self.y, self.norm, self.at = net, y, norm, 0

    def forward(self, x: Tensor) -> Tensor:
        y = self.y[self.at : self.at + len(x)]
        self.at = (self.at + len(x)) % len(self.y)
        return grad_norms(self.net, x, y, self.norm)


def head_factors(logits: Tensor, features: Tensor, y: Tensor, bias: bool) -> tuple[Tensor, Tensor]:
    """(n, classes), (n, d): error and features, whose outer product is a sample's gradient. In double precision,
    because 1 − p of a confident sample is lost in single."""
    error = logits.double().softmax(1) - one_hot(y.to(logits.device), logits.shape[1])
    phi = features.double()
    return error, torch.cat([phi, torch.ones_like(phi[:, :1])], dim=1) if bias else phi


def trainable_and_fixed(net: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What is trained, and all else that the network holds."""
    trained = {k: p.detach() for k, p in net.named_parameters() if p.requires_grad}
    if not trained:
        raise UserError("The network has no trainable parameter, so it has no gradient.")
    fixed = {k: p.detach() for k, p in net.named_parameters() if not p.requires_grad}
    return trained, fixed | dict(net.named_buffers())


def _entrywise(parts: Sequence[Tensor], norm: Norm) -> Tensor:
    """The norm over the last dimension of all parts together."""
    if norm == "linf":
        return torch.stack([v.abs().amax(-1) for v in parts]).amax(0)
    order = {"l1": 1.0, "l2": 2.0, "l2_squared": 2.0, "l0.7": 0.7}[norm]
    total = torch.stack([v.abs().pow(order).sum(-1) for v in parts]).sum(0)
    return total if norm == "l2_squared" else total.pow(1 / order)
