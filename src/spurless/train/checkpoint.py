"""The state of a run as named tensors: what the modules and the optimisers hold."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


def snapshot(modules: Sequence[nn.Module], optimizers: Sequence[Optimizer]) -> dict[str, Tensor]:
    """All tensors of the modules and optimisers, by place.

    >>> sorted(snapshot([nn.Linear(1, 1)], []))
    ['module.0.bias', 'module.0.weight']
    """
    tensors = {f"module.{i}.{name}": t for i, m in enumerate(modules) for name, t in m.state_dict().items()}
    for j, optimizer in enumerate(optimizers):
        for k, param in enumerate(_params(optimizer)):
            for name, value in optimizer.state.get(param, {}).items():
                if value is not None:
                    tensors[f"optimizer.{j}.{k}.{name}"] = value if isinstance(value, Tensor) else torch.tensor(value)
    return tensors


@torch.no_grad()
def restore(saved: dict[str, Tensor], modules: Sequence[nn.Module], optimizers: Sequence[Optimizer]) -> None:
    """Put a snapshot back in place."""
    for i, module in enumerate(modules):
        prefix = f"module.{i}."
        own = {name.removeprefix(prefix): t for name, t in saved.items() if name.startswith(prefix)}
        module.load_state_dict(own)
    for j, optimizer in enumerate(optimizers):
        for k, param in enumerate(_params(optimizer)):
            prefix = f"optimizer.{j}.{k}."
            own = {name.removeprefix(prefix): t for name, t in saved.items() if name.startswith(prefix)}
            if own:
                optimizer.state[param] = {name: _like(t, param, optimizer) for name, t in own.items()}


def _like(saved: Tensor, param: Tensor, optimizer: Optimizer) -> Tensor:
    """A saved tensor on the parameter's device and, where it is of its shape, in its memory layout (fused
    optimisers walk both side by side). Step counts lie where torch puts them."""
    if saved.shape == param.shape and saved.dim() > 0:
        return torch.empty_like(param, dtype=saved.dtype).copy_(saved)
    on_device = optimizer.defaults.get("fused") or optimizer.defaults.get("capturable")
    return saved.to(param.device) if on_device else saved.clone()


def _params(optimizer: Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]
