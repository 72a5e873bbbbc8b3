"""A frozen network's features of images, as fast as a CPU gives them: the same numbers to within rounding.

By ONNX Runtime where the packages of the extra `export` are, else by torch with every BatchNorm folded into the
convolution before it, and the channels last. What gives other features than the network itself is not used.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from spurless.core.messages import log
from spurless.nets import Net
from spurless.nets.folding import folded
from spurless.nets.heads import evaluating

TOLERANCE = 1e-4  # of the largest feature: what two orders of the same sums differ by, and ten times as much
Features = Callable[[Tensor], Tensor]


class Frozen(nn.Module):
    """What `outputs` asks for features, in place of the network."""

    def __init__(self, features: Features, how: str):
        super().__init__()
        self.features, self.how = features, how


@torch.no_grad()
def quickest(net: Net, example: Tensor) -> nn.Module:
    """What gives the network's features of images like the `example` (n, c, h, w) fastest; the network itself where
    nothing else agrees with it.

    It takes seconds, and pays from some hundred images on.
    """
    with evaluating(net):
        expected = net.features(example)
        for how, make in WAYS.items():
            try:
                features = make(net.encoder, example)
                close = bool((features(example) - expected).abs().max() <= TOLERANCE * expected.abs().max())
            except Exception as error:  # exporters and tracers fail in ways of their own
                log.debug(f"features by {how}: {error}")
                continue
            if close:
                return Frozen(features, how)
    return net


def by_onnx(encoder: nn.Module, example: Tensor) -> Features:
    """By ONNX Runtime, which fuses what belongs together and lays images out as the processor wants them."""
    import onnxruntime

    from spurless.compress.export import quiet

    with quiet():
        whole = torch.cat([example[:1]] * 2)  # torch would take a single sample for a constant
        sizes = ({0: torch.export.Dim.AUTO},)
        made = torch.onnx.export(torch.export.export(encoder, (whole,), dynamic_shapes=sizes), verbose=False)
        assert made is not None
        written = io.BytesIO()
        made.save(cast(Any, written), external_data=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(written.getvalue(), options, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()

    def features(x: Tensor) -> Tensor:
        return torch.from_numpy(session.run(None, {given.name: x.contiguous().numpy()})[0]).flatten(1)

    return features


def by_folding(encoder: nn.Module, example: Tensor) -> Features:
    """By torch, with BatchNorm folded into convolutions and the channels last."""
    made = folded(copy.deepcopy(encoder)).to(memory_format=torch.channels_last)
    return lambda x: made(x.contiguous(memory_format=torch.channels_last)).flatten(1)


WAYS: dict[str, Callable[[nn.Module, Tensor], Features]] = {"ONNX Runtime": by_onnx, "folding": by_folding}
