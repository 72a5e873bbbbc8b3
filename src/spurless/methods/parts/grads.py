"""Per-sample gradients: in closed form for the head, through torch.func for a whole network; and what they are for:
their norms (PGD's score), and the trace of the inverse of the empirical Fisher information that they make up.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import one_hot

from spurless.core.errors import UserError
from spurless.methods.parts.losses import RowLoss, ce_rows
from spurless.nets.heads import evaluating

Norm = Literal["l1", "l2", "l2_squared", "linf", "l0.7"]

MOST = 2**26  # gradient entries held at once
EXACT = 5000  # largest matrix whose eigenvalues are computed: ten seconds on one core


def head_grad_norms(logits: Tensor, features: Tensor, y: Tensor, norm: Norm = "l2", bias: bool = False) -> Tensor:
    """(n,) The norm of each row's cross-entropy gradient with respect to the head's weight, in one forward pass.

    The gradient is the outer product (p − onehot(y)) ⊗ φ of the error and the features, so every entrywise norm of
    it is the product of the two vectors' norms; with the head's bias included, φ gains a 1.

    >>> logits, features = torch.zeros(1, 2), torch.tensor([[3.0, 4.0]])
    >>> round(float(head_grad_norms(logits, features, torch.tensor([0]))), 4)  # √(1/4 + 1/4) · 5
    3.5355
    """
    error, phi = _head_factors(logits, features, y, bias)
    return _entrywise([error], norm) * _entrywise([phi], norm)


def grad_norms(
    net: nn.Module, x: Tensor, y: Tensor, norm: Norm = "l2", loss: RowLoss = ce_rows, chunk: int | None = None
) -> Tensor:
    """(n,) The norm of each row's gradient with respect to all trainable parameters, in evaluation mode.

    A row must not depend on the others, which evaluation mode sees to for BatchNorm. `chunk` rows are taken at a time;
    by default up to 128, as long as their gradients stay within a quarter of a gigabyte. The first call of a process
    takes some seconds, in which torch imports what its vmap needs.
    """
    held, fixed = _tensors(net)
    chunk = chunk or max(1, min(128, MOST // sum(p.numel() for p in held.values())))

    def loss_of_row(params: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return loss(functional_call(net, (params, fixed), (x[None],)), y[None])[0]

    def norm_of_row(x: Tensor, y: Tensor) -> Tensor:
        parts = grad(loss_of_row)(held, x, y)
        return _entrywise([g.flatten() for g in parts.values()], norm)

    with evaluating(net):
        return vmap(norm_of_row, chunk_size=chunk)(x, y)


class GradNorms(nn.Module):
    """`grad_norms` of the rows of a split in the shape of a network, for Run.outputs, which passes them in order."""

    def __init__(self, net: nn.Module, y: Tensor, norm: Norm = "l2"):
        super().__init__()
        self.net, self.y, self.norm, self.at = net, y, norm, 0

    def forward(self, x: Tensor) -> Tensor:
        y = self.y[self.at : self.at + len(x)]
        self.at = (self.at + len(x)) % len(self.y)
        return grad_norms(self.net, x, y, self.norm)


class Estimate(NamedTuple):
    """A number and its standard error, which is 0 where it is exact."""

    value: float
    error: float = 0.0


def fisher_trace_inverse_head(
    logits: Tensor,
    features: Tensor,
    y: Tensor,
    h: Tensor | None = None,
    damping: float = 1e-6,
    bias: bool = False,
    probes: int = 16,
    exact: int = EXACT,
) -> Estimate:
    """Tr (Î + δI)⁻¹ of the head, Î = Σ h_i g_i g_iᵀ the empirical Fisher information: PGD's objective (equation 7).

    `h` (n,) is the sampling probability, uniform by default. δ is the damping, without which there is no inverse as
    soon as a feature is always 0; a direction that no row fills counts 1/δ, so compare traces at one δ only. The d
    directions that add the same to all logits change no prediction: Î is always 0 there, and they are left out (they
    would add d/δ). So the size of Î is (classes − 1) · d.
    Exact from the eigenvalues of Î or, with fewer rows than its size, of their n x n inner products; where both are
    larger than `exact`, estimated with `probes` random vectors (see `trace_inverse`). Linear in n but for the second.

    >>> logits, features = torch.zeros(2, 2), torch.eye(2)  # errors of ±1/2 in both classes, one feature each
    >>> trace = fisher_trace_inverse_head(logits, features, torch.tensor([0, 1]), damping=0.25)
    >>> round(trace.value, 6), trace.error  # Î = I/4: two directions of 1 / (1/4 + 1/4)
    (4.0, 0.0)
    """
    error, phi = _head_factors(logits, features, y, bias)
    error = error @ _without_shift(error)  # (n, classes - 1): the same lengths and angles
    weight = _odds(h, error)  # (n,)
    (n, c), d = error.shape, phi.shape[1]
    if min(n, c * d) > exact:

        def product(v: Tensor) -> Tensor:
            along = torch.einsum("nc,cd,nd->n", error, v.view(c, d), phi)  # g_i · v
            return torch.einsum("n,nc,nd->cd", weight * along, error, phi).flatten()

        return trace_inverse(product, torch.zeros(c * d).to(error), damping, probes)
    if n < c * d:
        root = weight.sqrt()
        matrix = (error @ error.T) * (phi @ phi.T) * root[:, None] * root  # (n, n)
    else:
        matrix = torch.zeros(c * d, c * d).to(error)
        for e, f, w in zip(*(t.split(max(1, MOST // (c * d))) for t in (error, phi, weight)), strict=True):
            g = (e[:, :, None] * f[:, None, :]).flatten(1)  # (m, c * d)
            matrix.addmm_(g.T, g * w[:, None])
    eigenvalues = torch.linalg.eigvalsh(matrix).clamp_min(0)
    return Estimate(float((1 / (eigenvalues + damping)).sum()) + (c * d - len(eigenvalues)) / damping)


def fisher_trace_inverse(
    net: nn.Module,
    batches: Sequence[tuple[Tensor, Tensor]],
    h: Tensor | None = None,
    damping: float = 1e-4,
    probes: int = 4,
    loss: RowLoss = ce_rows,
) -> Estimate:
    """Tr (Î + δI)⁻¹ over all trainable parameters of a network, estimated; no gradient of a single row is ever held.

    `batches` are inputs and labels, in the order of `h` (n,). A product Îv takes a pass forward and three backward over
    each batch, so it is linear in n. Freeze parameters (requires_grad) to leave them out. Most directions of a network
    are empty, and count 1/δ each.
    """
    held, fixed = _tensors(net)
    leaves = [p.requires_grad_() for p in held.values()]
    weights = _odds(h, torch.cat([y for _, y in batches])).split([len(y) for _, y in batches])

    def pulled_back(losses: Tensor, by: Tensor, again: bool = False) -> Tensor:
        """Σ by_i g_i, as one long vector."""
        found = torch.autograd.grad(losses, leaves, by, retain_graph=True, create_graph=again, materialize_grads=True)
        return torch.cat([g.flatten() for g in found])

    def product(v: Tensor) -> Tensor:
        total = torch.zeros_like(v)
        for (x, y), w in zip(batches, weights, strict=True):
            losses = loss(functional_call(net, (held, fixed), (x,)), y)  # (m,)
            # The sum above is linear in `by`, so its derivative along v is each row's g_i · v.
            by = torch.zeros_like(losses, requires_grad=True)
            (along,) = torch.autograd.grad(pulled_back(losses, by, again=True), by, v.to(losses))  # (m,)
            total += pulled_back(losses, (w * along).to(losses)).to(total)
        return total

    size = sum(p.numel() for p in leaves)
    with evaluating(net), torch.enable_grad():
        return trace_inverse(product, torch.zeros(size, device=leaves[0].device).double(), damping, probes)


def trace_inverse(
    product: Callable[[Tensor], Tensor], like: Tensor, damping: float, probes: int, tolerance: float = 1e-5
) -> Estimate:
    """Tr (A + δI)⁻¹ of a positive semi-definite A that is known by its products with vectors shaped `like` (size,).

    Hutchinson's estimate: the mean of zᵀ(A + δI)⁻¹z over random signs z (fixed, so that it repeats), each solved by
    conjugate gradients. It is exact when A is diagonal.

    >>> trace_inverse(lambda v: torch.tensor([1.0, 3.0]) * v, torch.zeros(2), damping=1.0, probes=2)
    Estimate(value=0.75, error=0.0)
    """
    generator = torch.Generator().manual_seed(0)
    found = []
    for _ in range(probes):
        z = (2.0 * torch.randint(2, like.shape, generator=generator) - 1).to(like)
        solution = _solve(lambda v: product(v) + damping * v, z, tolerance)
        found.append(float(z @ solution))
    mean = sum(found) / probes
    spread = sum((v - mean) ** 2 for v in found) / max(1, probes - 1)
    return Estimate(mean, math.sqrt(spread / probes))


def _solve(product: Callable[[Tensor], Tensor], b: Tensor, tolerance: float, steps: int = 2000) -> Tensor:
    """x with product(x) = b, by conjugate gradients."""
    x, rest = torch.zeros_like(b), b.clone()
    direction, size = rest.clone(), rest @ rest
    target = tolerance**2 * float(size)
    for _ in range(steps):
        if float(size) <= target:
            return x
        image = product(direction)
        step = size / (direction @ image)
        x += step * direction
        rest -= step * image
        before, size = size, rest @ rest
        direction = rest + size / before * direction
    raise UserError(f"The Fisher information could not be inverted in {steps} steps; take a larger damping.")


def _head_factors(logits: Tensor, features: Tensor, y: Tensor, bias: bool) -> tuple[Tensor, Tensor]:
    """(n, classes), (n, d): error and features, whose outer product is a row's gradient. In double precision, because
    1 − p of a confident row is lost in single."""
    error = logits.double().softmax(1) - one_hot(y.to(logits.device), logits.shape[1])
    phi = features.double()
    return error, torch.cat([phi, torch.ones_like(phi[:, :1])], dim=1) if bias else phi


def _without_shift(error: Tensor) -> Tensor:
    """(classes, classes - 1): an orthonormal basis of the vectors whose entries sum to 0."""
    c = error.shape[1]
    ones_first = torch.cat([torch.ones(c, 1), torch.eye(c)[:, 1:]], dim=1).to(error)
    return torch.linalg.qr(ones_first).Q[:, 1:]


def _odds(h: Tensor | None, rows: Tensor) -> Tensor:
    """(n,) Sampling probabilities, uniform where none are given."""
    h = torch.ones(len(rows)) if h is None else h
    return (h.double() / h.double().sum()).to(rows.device)


def _tensors(net: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What is trained, and all else that the network holds."""
    held = {k: p.detach() for k, p in net.named_parameters() if p.requires_grad}
    if not held:
        raise UserError("The network has no trainable parameter, so it has no gradient.")
    fixed = {k: p.detach() for k, p in net.named_parameters() if not p.requires_grad}
    return held, fixed | dict(net.named_buffers())


def _entrywise(parts: Sequence[Tensor], norm: Norm) -> Tensor:
    """The norm over the last dimension of all parts together."""
    if norm == "linf":
        return torch.stack([v.abs().amax(-1) for v in parts]).amax(0)
    order = {"l1": 1.0, "l2": 2.0, "l2_squared": 2.0, "l0.7": 0.7}[norm]
    total = torch.stack([v.abs().pow(order).sum(-1) for v in parts]).sum(0)
    return total if norm == "l2_squared" else total.pow(1 / order)
