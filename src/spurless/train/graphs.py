"""CUDA graphs and torch.compile, as far as torch does not do them as a step needs them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

F = TypeVar("F", bound=Callable[..., Any])


@contextmanager
def recording(graph: torch.cuda.CUDAGraph, pool: Any) -> Iterator[None]:
    """Capture what is done on this stream. Unlike torch.cuda.graph, without a garbage collection before it, which
    takes longer than the capture; none may happen during it either, because what it frees may belong to the device."""
    collects = gc.isenabled()
    gc.disable()
    try:
        # The thread's own mode: another thread may be decoding samples meanwhile.
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            yield
        finally:
            graph.capture_end()
    finally:
        if collects:
            gc.enable()


def renew_generator(device: torch.device, state: Tensor) -> None:
    """Give the device's generator this state anew: a failed capture left it believing that it is being captured."""
    fresh = torch.Generator(device)
    fresh.set_state(state)
    torch.cuda.default_generators[device.index].graphsafe_set_state(fresh)


def compiler(compiles: bool) -> Callable[[F], F]:
    """Return what compiles a function, or leaves it as it is.

    >>> compiler(False)(abs) is abs
    True
    """
    if not compiles:
        return lambda function: function
    # Each loss for every kind of network: torch would leave it at 8, and run eagerly.
    torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)
    _compile_backward_as_it_is_run()

    def compiled(function: F) -> F:
        return cast(F, torch.compile(function, dynamic=False))

    return compiled


def _compile_backward_as_it_is_run() -> None:
    """Outside of autocast. Else torch compiles it for bf16 altogether, also where a loss had switched that off."""
    from torch._functorch import config

    if hasattr(config, "backward_pass_autocast"):
        config.backward_pass_autocast = "off"
