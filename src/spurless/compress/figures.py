"""How large and how fast a network is, before and after it was cut."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from spurless.nets.heads import evaluating

BATCHES = (1, 64)


def pair(before: nn.Module, after: nn.Module, measure: Any) -> dict[str, Any]:
    return {"before": measure(before), "after": measure(after)}


def parameters(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


@torch.no_grad()
def macs(net: nn.Module, example: Tensor) -> int:
    """Multiplications with an addition for one input, in convolutions and matrix products. Zeros count as well.

    >>> macs(nn.Linear(3, 5), torch.zeros(1, 3))
    15
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # one kernel for a whole layer of attention, which is not counted
    try:
        # As matrix products: torch 2.9 does not count the CPU's own kernel for attention.
        with sdpa_kernel(SDPBackend.MATH), evaluating(net), FlopCounterMode(display=False) as counter:
            net(example)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return int(counter.get_total_flops()) // 2 // len(example)


def size_of(net: nn.Module) -> int:
    """Bytes of the weights as a safetensors file."""
    from safetensors.torch import save

    return len(save({name: t.detach().contiguous().clone() for name, t in net.state_dict().items()}))


@torch.no_grad()
def latency(
    nets: Mapping[str, nn.Module], shape: Sequence[int], batches: Sequence[int] = BATCHES, repeats: int = 15
) -> dict[str, dict[str, float]]:
    """Milliseconds of a forward pass on one CPU thread, by batch size and network: the median of `repeats`.

    The networks take turns, so that a machine that is busy for a while is so for all of them.
    """
    for net in nets.values():
        net.eval()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    timed: dict[str, dict[str, float]] = {}
    try:
        for batch in batches:
            x = torch.randn(batch, *shape, generator=torch.Generator().manual_seed(0))
            times: dict[str, list[float]] = {name: [] for name in nets}
            for k in range(repeats + 1):
                for name, net in nets.items():
                    start = time.perf_counter()
                    net(x)
                    if k:  # the first is a warm-up
                        times[name].append(1000 * (time.perf_counter() - start))
            timed[str(batch)] = {name: round(statistics.median(taken), 4) for name, taken in times.items()}
    finally:
        torch.set_num_threads(threads)
    return timed


def notes(report: Mapping[str, Any]) -> list[str]:
    """What a reader of the figures must know."""
    told = []
    zeros = report["weights_that_are_zero_percent"]["after"]
    if zeros >= 1:
        packed = "They make the compressed file smaller; they" if report["bytes"]["compressed"] else "They"
        told.append(
            f"{zeros:.1f} % of the weights that are left are zeros at single places. {packed} do not make the network "
            "faster, because dense kernels multiply by them all the same."
        )
    if not report["channels_removed"]:
        told.append("No channel was cut: the network is as large and as fast as before.")
    return told


def lines(report: Mapping[str, Any]) -> list[str]:
    """The report for a terminal."""
    rows = [
        ("parameters", report["parameters"], "{:,}"),
        ("MACs", report["macs"], "{:,}"),
        ("file, bytes", report["bytes"], "{:,}"),
        *((f"ms, batch {batch}", times, "{:.2f}") for batch, times in report["latency_ms"].items()),
    ]
    told = [f"{'':14}{'before':>16}{'after':>16}{'ratio':>8}"]
    for name, values, form in rows:
        was, now = values["before"], values["after"]
        ratio = f"{was / now:.2f}x" if now else ""
        told.append(f"{name:14}{form.format(was):>16}{form.format(now):>16}{ratio:>8}")
    zeros = report["weights_that_are_zero_percent"]
    told.append(f"{'zeros, %':14}{zeros['before']:>16.1f}{zeros['after']:>16.1f}")
    if report["bytes"].get("compressed"):
        told.append(f"{'compressed':14}{'':>16}{report['bytes']['compressed']:>16,}")
    told.append(f"Largest difference of a logit, cut against masked: {report['difference']:.2g}")
    for name, check in report["checks"].items():
        told.append(f"{name}: " + (f"logits differ by {check:.2g}" if isinstance(check, float) else check))
    return [*told, *report["notes"], *(f"Kept: {why}" for why in report["kept"][:5])]
