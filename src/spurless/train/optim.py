"""Optimisers by name, fused where there is a fused one, and ready for a CUDA graph where they can be."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.optim import SGD, Adam, AdamW, Optimizer

from spurless.core.extras import missing
from spurless.core.recipe import Recipe


def make_optimizer(params: Iterable[nn.Parameter], recipe: Recipe, device: torch.device, **changes: Any) -> Optimizer:
    """The recipe's optimiser; `changes` override fields of the recipe.

    >>> make_optimizer([nn.Parameter(torch.zeros(2))], Recipe(), torch.device("cpu"), lr=0.5).param_groups[0]["lr"]
    0.5
    """
    r = replace(recipe, **changes)
    parameters = list(params)
    groups = decay_groups(parameters, r.weight_decay) if r.decay_exceptions else parameters
    on_gpu = device.type == "cuda"
    # A learning rate that lies on the device can change between two replays of a CUDA graph.
    lr: Any = torch.tensor(r.lr, device=device) if on_gpu and r.cuda_graph else r.lr
    fused = all(p.is_floating_point() for p in parameters)
    if r.optimizer == "sgd":
        opt: Optimizer = SGD(
            groups, lr, r.momentum, nesterov=r.nesterov and r.momentum > 0, weight_decay=r.weight_decay, fused=fused
        )
    elif r.optimizer == "psgd":
        opt = psgd_kron()(groups, lr=r.lr, momentum=r.momentum, weight_decay=r.weight_decay)
    else:
        kind = Adam if r.optimizer == "adam" else AdamW
        betas = (r.betas[0], r.betas[1])
        opt = kind(groups, lr, betas, r.eps, r.weight_decay, capturable=on_gpu and r.cuda_graph, fused=fused)
    for group in opt.param_groups:
        group["initial_lr"] = r.lr
    return opt


def decay_groups(parameters: Iterable[nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    """Two groups: weights, which decay, and what has one dimension (biases, scales of normalisation), which does not.

    >>> layer = nn.Linear(3, 2)
    >>> [(len(g["params"]), g["weight_decay"]) for g in decay_groups(layer.parameters(), 0.1)]
    [(1, 0.1), (1, 0.0)]
    """
    weights_and_rest: tuple[list[nn.Parameter], list[nn.Parameter]] = ([], [])
    for p in parameters:
        weights_and_rest[p.dim() < 2].append(p)
    return [{"params": p, "weight_decay": w} for p, w in zip(weights_and_rest, (weight_decay, 0.0), strict=True) if p]


def why_eager(optimizers: Iterable[Optimizer]) -> str | None:
    """Why a step with these optimisers cannot be a CUDA graph; None: it can."""
    return next((why for opt in optimizers if (why := getattr(opt, "eager_because", None))), None)


def layer_weights(modules: Iterable[nn.Module]) -> dict[int, nn.Parameter]:
    """The weights of the convolutions and linear layers, by identity: what the penalty recipe.l1 is on. Not biases, not
    the scales of normalisation layers, not embeddings, not the logits of gates.

    >>> len(layer_weights([nn.Sequential(nn.Conv1d(1, 1, 1), nn.BatchNorm1d(1), nn.Linear(1, 1))]))
    2
    """
    layers = [layer for module in modules for layer in module.modules() if isinstance(layer, (_ConvNd, nn.Linear))]
    return {id(layer.weight): layer.weight for layer in layers if isinstance(layer.weight, nn.Parameter)}


@functools.cache
def psgd_kron() -> Callable[..., Optimizer]:
    """PSGD-Kron (Li 2018) from pytorch_optimizer, with a state that a checkpoint can hold and a seed can repeat."""
    try:
        from pytorch_optimizer import Kron
        from pytorch_optimizer.optimizer.psgd import initialize_q_expressions
    except ImportError:
        raise missing("recipe.optimizer = psgd", "optim") from None
    # Without it torch multiplies the factors of a layer with one another first: 10⁸ numbers for 100 by 100 weights.
    if not torch.backends.opt_einsum.is_available():
        raise missing("recipe.optimizer = psgd", "optim")

    class PSGDKron(Kron):
        eager_because = "PSGD-Kron decides on the host when to update its factors, so it trains without a CUDA graph."
        BALANCE = 0.01  # chance that a step which updates the factors also balances them: the package's value

        def __init__(self, *args: Any, **settings: Any):
            super().__init__(*args, **settings)
            self.expressions: dict[int, Any] = {}  # by parameter: functions of its shape, not state

        @torch.no_grad()
        def step(self, closure: Callable[[], float] | None = None) -> Any:
            # The package asks numpy's global generator, which no seed of a run reaches.
            self.balance_prob = float(torch.rand(()) < self.BALANCE)
            self._gather()
            result = super().step(closure)
            self._spread()
            return result

        def _gather(self) -> None:
            """From tensors by name, as checkpoints hold them, to what the package expects."""
            for group, p, state in self._begun():
                names = sorted(name for name in state if name.startswith("factor"))
                state["Q"] = [state.pop(name).to(p.device) for name in names]
                state["expressions"] = self._expressions(p, group)
                for name in ("step", "update_counter"):
                    group[name] = int(state.pop(name))

        def _spread(self) -> None:
            # The package counts by group, and looks for updates in the first one alone.
            updates = self.param_groups[0]["update_counter"]
            for group, _, state in self._begun():
                del state["expressions"]
                state |= {f"factor{k}": q for k, q in enumerate(state.pop("Q"))}
                state |= {"step": group["step"], "update_counter": updates}

        def _begun(self) -> Iterator[tuple[dict[str, Any], Tensor, dict[str, Any]]]:
            """The parameters that have a state."""
            for group in self.param_groups:
                yield from ((group, p, self.state[p]) for p in group["params"] if self.state[p])

        def _expressions(self, p: Tensor, group: dict[str, Any]) -> Any:
            if id(p) not in self.expressions:
                like = torch.empty(p.shape, device="meta")
                settings = [group[k] for k in ("max_size_triangular", "min_ndim_triangular", "memory_save_mode")]
                self.expressions[id(p)] = initialize_q_expressions(like, 1.0, *settings)[1]
            return self.expressions[id(p)]

    return PSGDKron
