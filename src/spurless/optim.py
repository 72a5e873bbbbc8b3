"""Optimisers by name, fused where there is a fused one, and ready for a CUDA graph."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from spurless.core import Recipe


def make_optimizer(params: Iterable[nn.Parameter], recipe: Recipe, device: torch.device, **changes: Any) -> Optimizer:
    """The recipe's optimiser; `changes` override fields of the recipe.

    >>> make_optimizer([nn.Parameter(torch.zeros(2))], Recipe(), torch.device("cpu"), lr=0.5).param_groups[0]["lr"]
    0.5
    """
    r = replace(recipe, **changes)
    held = list(params)
    on_gpu = device.type == "cuda"
    # A learning rate that lies on the device can change between two replays of a CUDA graph.
    lr: Any = torch.tensor(r.lr, device=device) if on_gpu and r.cuda_graph else r.lr
    fused = all(p.is_floating_point() for p in held)
    if r.optimizer == "sgd":
        opt: Optimizer = SGD(
            held, lr, r.momentum, nesterov=r.nesterov and r.momentum > 0, weight_decay=r.weight_decay, fused=fused
        )
    else:
        kind = Adam if r.optimizer == "adam" else AdamW
        betas = (r.betas[0], r.betas[1])
        opt = kind(held, lr, betas, r.eps, r.weight_decay, capturable=on_gpu and r.cuda_graph, fused=fused)
    for group in opt.param_groups:
        group["initial_lr"] = r.lr
    return opt
