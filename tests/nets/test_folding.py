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
    assert not {"BatchNorm2d", "ZeroPad2d"} & set(kinds)


class Padded(nn.Conv2d):
    """A convolution that pads by itself, as EfficientNet-Lite's do."""

    def __init__(self, kernel, padding, stride=2, dilation=1):
        super().__init__(4, 4, kernel, stride=stride, dilation=dilation, groups=4)
        self.static_padding = nn.ZeroPad2d(padding)

    def forward(self, x):
        return super().forward(self.static_padding(x))


@pytest.mark.parametrize("side", [15, 16])
@pytest.mark.parametrize(
    ("kernel", "padding"), [(3, (0, 1, 0, 1)), (5, (1, 2, 1, 2)), (3, (1, 1, 1, 1)), (2, (0, 1, 0, 1))]
)
def test_padding_is_left_to_the_convolution(kernel, padding, side):
    x = torch.randn(3, 4, side, side)
    conv = Padded(kernel, padding)
    expected = conv(x)
    (made,) = folded(nn.Sequential(conv))
    assert isinstance(made.static_padding, nn.Identity)
    assert torch.allclose(made(x), expected, atol=1e-6) and made(x).shape == expected.shape


@pytest.mark.parametrize(
    ("padding", "dilation"), [((0, 2, 0, 2), 1), ((0, 1, 1, 1), 1), ((1, 0, 1, 0), 1), ((0, 1, 0, 1), 2)]
)
def test_other_padding_stays_a_step_of_its_own(padding, dilation):
    x = torch.randn(3, 4, 16, 16)
    conv = Padded(3, padding, dilation=dilation)
    expected = conv(x)
    (made,) = folded(nn.Sequential(conv))
    assert isinstance(made.static_padding, nn.ZeroPad2d) and torch.equal(made(x), expected)
