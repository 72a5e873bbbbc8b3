"""Sharpness-aware minimisation: the gradient of a step is taken where the loss is highest nearby.

    SAM (Foret et al. 2021):   ε = ρ · g / ‖g‖
    ASAM (Kwon et al. 2021):   ε = ρ · T² g / ‖T g‖,   T = |w| + η for weights, 1 for other parameters (biases)

A first pass finds g at w, a second one the gradient at w + ε, with which the optimiser then leaves from w. It is no
wrapper of an optimiser, because a step here may have several losses, state, and a CUDA graph:

- Both passes start from the same state. What the second one does to buffers (the memories of LfF, the weights of
  GroupDRO, BatchNorm's running statistics) is undone, so that each is updated once, by the losses at w.
- Each pass draws random numbers of its own (dropout, gates), as in the released code.
- ρ is the length of the step over everything that one optimiser holds, which may be two networks (LfF, DisEnt).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from spurless.core.recipe import Recipe

RADIUS = {"sam": 0.05, "asam": 0.5}  # ρ of the papers' first experiments
ETA = 0.01  # as released


class Sharpness:
    """The two passes of a step. `modules` are those whose state a loss may change."""

    def __init__(self, recipe: Recipe, modules: Sequence[nn.Module]):
        self.rho = RADIUS[recipe.sharpness] if recipe.rho is None else recipe.rho
        # Held once, though a head may be in two of the modules; whichever tensor a buffer is now.
        self.modules = {id(submodule): submodule for module in modules for submodule in module.modules()}.values()
        named = [item for module in modules for item in module.named_parameters()] if recipe.sharpness == "asam" else []
        self.scaled = {id(p) for name, p in named if "weight" in name.rpartition(".")[2]}  # as released

    def gradients(self, backward: Callable[[], Tensor], parameters: Sequence[Tensor]) -> Tensor:
        """Leave the gradient for the step in `held`; return the loss of the first pass. `backward` does one pass."""
        before = self._state()
        loss = backward()
        after = self._state()
        self._put_back(before)
        with self._climbed([p for p in parameters if p.grad is not None]):
            backward()
        self._put_back(after)
        return loss

    @contextmanager
    def _climbed(self, params: Sequence[Tensor]) -> Iterator[None]:
        with torch.no_grad():
            start = [p.clone() for p in params]  # a copy: adding ε and taking it away again would leave rounding
            grads = [p.grad for p in params if p.grad is not None]
            for p, e in zip(
                params, ascent(start, grads, self.rho, [id(p) in self.scaled for p in params]), strict=True
            ):
                p.add_(e)
        try:
            yield
        finally:
            with torch.no_grad():
                for p, w in zip(params, start, strict=True):
                    p.copy_(w)

    def _state(self) -> list[Tensor]:
        return [buffer.clone() for buffer in self._buffers()]

    def _put_back(self, state: list[Tensor]) -> None:
        with torch.no_grad():
            for buffer, saved in zip(self._buffers(), state, strict=True):
                buffer.copy_(saved)

    def _buffers(self) -> Iterator[Tensor]:
        return (buffer for module in self.modules for buffer in module.buffers(recurse=False))


def ascent(params: Sequence[Tensor], grads: Sequence[Tensor], rho: float, scaled: Sequence[bool]) -> list[Tensor]:
    """The way ε from the parameters to where the loss is highest within ρ, to first order.

    >>> w, g = torch.tensor([3.0, -1.0]), torch.tensor([0.3, 0.4])
    >>> ascent([w], [g], 0.5, [False])[0]  # 0.5 · g / 0.5
    tensor([0.3000, 0.4000])
    >>> ascent([w], [g], 1.0, [True])[0]  # T = (3.01, 1.01), T g = (0.903, 0.404), of norm 0.9893
    tensor([2.7476, 0.4125])
    """
    scales = [p.abs() + ETA if yes else None for p, yes in zip(params, scaled, strict=True)]
    pulls = [g if t is None else t * g for t, g in zip(scales, grads, strict=True)]  # T g
    norm = torch.stack([torch.linalg.vector_norm(pull) for pull in pulls]).square().sum().sqrt()
    factor = rho / (norm + 1e-12)  # where all gradients are 0, there is no way up
    return [factor * (pull if t is None else t * pull) for t, pull in zip(scales, pulls, strict=True)]
