"""PGD's objective, the trace of the inverse of the empirical Fisher information: exact for a head, estimated for a
whole network. No method needs it; the page of PGD and the tests compare sampling odds by it.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from spurless.core.errors import UserError
from spurless.methods.parts.grads import MOST, head_factors, trainable_and_fixed
from spurless.methods.parts.losses import RowLoss, ce_rows
from spurless.nets.heads import evaluating

EXACT = 5000  # largest matrix whose eigenvalues are computed: ten seconds on one core


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
    soon as a feature is always 0; a direction that no sample fills counts 1/δ, so compare traces at one δ only. The d
    directions that add the same to all logits change no prediction: Î is always 0 there, and they are left out (they
    would add d/δ). So the size of Î is (classes − 1) · d.
    Exact from the eigenvalues of Î or, with fewer samples than its size, of their n x n inner products; where both are
    larger than `exact`, estimated with `probes` random vectors (see `trace_inverse`). Linear in n but for the second.

    >>> logits, features = torch.zeros(2, 2), torch.eye(2)  # errors of ±1/2 in both classes, one feature each
    >>> trace = fisher_trace_inverse_head(logits, features, torch.tensor([0, 1]), damping=0.25)
    >>> round(trace.value, 6), trace.error  # Î = I/4: two directions of 1 / (1/4 + 1/4)
    (4.0, 0.0)
    """
    error, phi = head_factors(logits, features, y, bias)
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
    """Tr (Î + δI)⁻¹ over all trainable parameters of a network, estimated; no gradient of a single sample is ever held.

    `batches` are inputs and labels, in the order of `h` (n,). A product Îv takes a pass forward and three backward over
    each batch, so it is linear in n. Freeze parameters (requires_grad) to leave them out. Most directions of a network
    are empty, and count 1/δ each.
    """
    trained, fixed = trainable_and_fixed(net)
    leaves = [p.requires_grad_() for p in trained.values()]
    weights = _odds(h, torch.cat([y for _, y in batches])).split([len(y) for _, y in batches])

    def pulled_back(losses: Tensor, by: Tensor, again: bool = False) -> Tensor:
        """Σ by_i g_i, as one long vector."""
        grads = torch.autograd.grad(losses, leaves, by, retain_graph=True, create_graph=again, materialize_grads=True)
        return torch.cat([g.flatten() for g in grads])

    def product(v: Tensor) -> Tensor:
        total = torch.zeros_like(v)
        for (x, y), w in zip(batches, weights, strict=True):
            losses = loss(functional_call(net, (trained, fixed), (x,)), y)  # (m,)
            # The sum above is linear in `by`, so its derivative along v is each sample's g_i · v.
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
    estimates = []
    for _ in range(probes):
        z = (2.0 * torch.randint(2, like.shape, generator=generator) - 1).to(like)
        solution = _solve(lambda v: product(v) + damping * v, z, tolerance)
        estimates.append(float(z @ solution))
    mean = sum(estimates) / probes
    spread = sum((v - mean) ** 2 for v in estimates) / max(1, probes - 1)
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


def _without_shift(error: Tensor) -> Tensor:
    """(classes, classes - 1): an orthonormal basis of the vectors whose entries sum to 0."""
    c = error.shape[1]
    ones_first = torch.cat([torch.ones(c, 1), torch.eye(c)[:, 1:]], dim=1).to(error)
    basis: Tensor = torch.linalg.qr(ones_first).Q
    return basis[:, 1:]


def _odds(h: Tensor | None, rows: Tensor) -> Tensor:
    """(n,) Sampling probabilities, uniform where none are given."""
    h = torch.ones(len(rows)) if h is None else h
    return (h.double() / h.double().sum()).to(rows.device)
