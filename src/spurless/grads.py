"""Per-sample gradients: in closed form for the head, through torch.func for a whole network."""

from typing import Literal

import torch
from torch import Tensor

Norm = Literal["l1", "l2", "l2_squared", "linf", "l0.7"]


def head_grad_norms(logits: Tensor, features: Tensor, y: Tensor, norm: Norm = "l2", bias: bool = False) -> Tensor:
    """(n,) The norm of each row's cross-entropy gradient with respect to the head's weight, in one forward pass.

    The gradient is the outer product (p − onehot(y)) ⊗ φ of the error and the features, so every entrywise norm of
    it is the product of the two vectors' norms; with the head's bias included, φ gains a 1.

    >>> logits, features = torch.zeros(1, 2), torch.tensor([[3.0, 4.0]])
    >>> round(float(head_grad_norms(logits, features, torch.tensor([0]))), 4)  # √(1/4 + 1/4) · 5
    3.5355
    """
    error = logits.double().softmax(1)  # (n, classes)
    error = error - torch.nn.functional.one_hot(y, logits.shape[1])
    phi = features.double()  # (n, d)
    if bias:
        phi = torch.cat([phi, torch.ones_like(phi[:, :1])], dim=1)
    return _entrywise(error, norm) * _entrywise(phi, norm)


def _entrywise(v: Tensor, norm: Norm) -> Tensor:
    if norm == "l2_squared":
        return v.square().sum(1)
    order = {"l1": 1.0, "l2": 2.0, "linf": float("inf"), "l0.7": 0.7}[norm]
    if order == 0.7:  # a quasi-norm, which linalg does not have: (Σ |v|^0.7)^(1/0.7)
        return v.abs().pow(order).sum(1).pow(1 / order)
    return torch.linalg.vector_norm(v, order, dim=1)
