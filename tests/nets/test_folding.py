"""The folded encoder of the audit answers as the one it was made of."""

import copy

import pytest
import torch
from torch import nn

from spurless.nets import build
from spurless.nets.folding import folded


def test_a_folded_encoder_answers_the_same_without_any_normalisation():
    pytest.importorskip("efficientnet_lite_pytorch")
    encoder = build({"name": "efficientnet_lite0"}, (3, 64, 64), 2).encoder.eval()
    generator = torch.Generator().manual_seed(0)
    for layer in encoder.modules():
        if isinstance(layer, nn.BatchNorm2d):  # as after a training: untouched ones would fold into nothing
            layer.running_mean.normal_(0, 0.2, generator=generator)
            layer.running_var.uniform_(0.5, 2, generator=generator)
            layer.weight.data.uniform_(0.5, 2, generator=generator)
            layer.bias.data.normal_(0, 0.2, generator=generator)
    x = torch.randn(3, 3, 80, 80, generator=generator)
    with torch.no_grad():
        before = encoder(x)
    made = folded(copy.deepcopy(encoder))
    assert float(before.abs().max()) > 0.1
    torch.testing.assert_close(made(x).detach(), before, rtol=1e-3, atol=1e-4)
    kinds = [type(layer).__name__ for layer in made.modules()]
    assert "BatchNorm2d" not in kinds and kinds.count("ZeroPad2d") == 5, "only uneven padding is left"
