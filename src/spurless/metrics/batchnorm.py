"""BatchNorm's statistics, taken anew: those of training are of a network that was pruned or moved since."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from spurless.core.errors import UserError, one_of
from spurless.metrics import checks
from spurless.nets.heads import evaluating

BatchNorm = Literal["kept", "recomputed"]
ROWS = 1000  # training samples from which they are taken, where nobody says


def refresher(
    how: BatchNorm, inputs: Callable[[], Tensor], batch_size: int = 1024
) -> Callable[[nn.Module], None] | None:
    """What is to be done to a network before it is measured: nothing, or its statistics are taken from these inputs."""
    one_of("way to treat BatchNorm", how, get_args(BatchNorm))
    if how == "kept":
        return None
    x = inputs()
    return lambda net: recompute_batchnorm(net, x, batch_size)


def recompute_batchnorm(net: nn.Module, x: Tensor, batch_size: int = 1024) -> None:
    """Take the running statistics of all BatchNorm layers anew, as plain averages over batches of prepared inputs.

    The batches are as equal in size as can be: a small last one would count as much as the others. If something fails,
    the statistics are those from before.

    >>> net = nn.Sequential(nn.BatchNorm1d(1))
    >>> recompute_batchnorm(net, torch.tensor([[1.0], [3.0]]))
    >>> net[0].running_mean.item(), net[0].running_var.item(), net[0].momentum
    (2.0, 2.0, 0.1)
    """
    layers = norms(net)
    before = [(m.momentum, copy.deepcopy(m.state_dict())) for m in layers]
    x, size = checks.inputs(x), checks.count(batch_size, "batch_size")
    if len(x) < 2:
        raise UserError(f"BatchNorm's statistics need at least two samples, not {len(x)}.")
    with evaluating(net), torch.no_grad():
        for m in layers:
            m.reset_running_stats()
            m.momentum = None
            m.train()
        try:
            count = min(-(-len(x) // size), len(x) // 2)  # of batches; one sample has no variance
            with checks.asking(net, x):
                for chunk in x.tensor_split(count):
                    net(chunk)
        except BaseException:
            for m, (_, state) in zip(layers, before, strict=True):
                m.load_state_dict(state)
            raise
        finally:
            for m, (momentum, _) in zip(layers, before, strict=True):
                m.momentum = momentum


def norms(net: nn.Module) -> list[_BatchNorm]:
    """The layers that keep such statistics.

    >>> len(norms(nn.Sequential(nn.BatchNorm1d(1), nn.BatchNorm1d(1, track_running_stats=False))))
    1
    """
    return [m for m in net.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]


@contextmanager
def buffers_kept(net: nn.Module) -> Iterator[None]:
    """Afterwards statistics, and other buffers, are put back bit by bit."""
    before = [(buffer, buffer.detach().clone()) for buffer in net.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)
