"""Cut networks say what the masked ones do; what cannot be cut stays."""

import copy
import importlib.util

import pytest
import torch
from torch import nn

from spurless.compress.channels import channel_groups
from spurless.compress.shrink import NotTheSame, shrink
from spurless.nets import Net, build

needs_package = pytest.mark.skipif(
    importlib.util.find_spec("torch_pruning") is None, reason="needs torch-pruning (extra: export)"
)


class Own(nn.Module):
    """A user's module: a residual connection, two readers of one layer, and a flatten over positions."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 12, 3, padding=1)
        self.norm = nn.BatchNorm2d(12)
        self.side = nn.Conv2d(12, 12, 1)
        self.down = nn.Conv2d(12, 10, 2, stride=2, bias=False)
        self.classify = nn.Linear(10 * 4, 3)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        x = torch.relu(self.side(x) + x)
        return self.classify(torch.relu(self.down(x)).flatten(1))


def net_of(name):
    if name == "own":
        return Net.wrap(Own(), example=torch.randn(2, 3, 4, 4)), (3, 4, 4)
    shape = {"simconv1": (3, 25, 25), "conv3": (2, 8, 8), "vgg11_lin": (1, 16, 16)}.get(name, (3, 8, 8))
    spec = {"name": name} | ({"stem": "small"} if name in ("resnet18", "swin_t") else {})
    return build(spec, shape, 3), shape


@torch.no_grad()
def shake(net):
    """BatchNorm as after training: its constants are not zero."""
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2)
            layer.weight.uniform_(0.5, 1.5)
            layer.bias.normal_()
    return net.eval()


@torch.no_grad()
def draw_masks(net, share, columns):
    """Zero random rows, or random columns, of every layer but the outputs (or the inputs)."""
    layers = [m for m in net.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    for layer in layers[1:] if columns else [m for m in layers if m is not net.head]:
        weight = layer.weight.transpose(0, 1) if columns else layer.weight
        weight[torch.rand(len(weight)) < share] = 0


@needs_package
@pytest.mark.parametrize(
    ("name", "columns"),
    [
        *(("simconv1", False), ("conv3", False), ("resnet18", False), ("vgg11_lin", False), ("swin_t", False)),
        *(("own", False), ("simconv1", True), ("conv3", True), ("vgg11_lin", True), ("own", True)),
    ],
)
def test_drawn_masks(name, columns):
    net, shape = net_of(name)
    shake(net)
    draw_masks(net, 0.6, columns)
    x = torch.randn(5, *shape)  # not what it is checked with inside
    with torch.no_grad():  # loud enough that a wrong channel would be heard: VGG11 whispers, without BatchNorm
        net.head.weight.mul_(5 / net(x).abs().max())
    before = copy.deepcopy(net.state_dict())
    shrunk = shrink(net, torch.randn(2, *shape))
    with torch.no_grad():
        assert net(x).abs().max() > 1
        assert (shrunk.net(x) - net(x)).abs().max() < 1e-4
    assert shrunk.channels > 0
    count = [sum(p.numel() for p in n.parameters()) for n in (net, shrunk.net)]
    assert count[1] < 0.9 * count[0]
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())  # the given one is left alone


@needs_package
def test_a_constant_moves_into_the_bias():
    net = Net(
        nn.Sequential(nn.Conv2d(1, 3, 1), nn.ReLU(), nn.Conv2d(3, 2, 3, bias=False), nn.AdaptiveAvgPool2d(1)),
        nn.Linear(2, 2),
    )
    first, second = net.encoder[0], net.encoder[2]
    with torch.no_grad():
        first.weight[1] = 0
        first.bias.copy_(torch.tensor([0.1, 3.0, 0.2]))
    shrunk = shrink(net, torch.randn(2, 1, 5, 5)).net
    assert shrunk.encoder[0].weight.shape[0] == 2
    assert torch.allclose(shrunk.encoder[2].bias, 3 * second.weight[:, 1].sum((1, 2)))  # there was none before
    assert torch.allclose(shrunk.encoder[2].weight, second.weight[:, [0, 2]])


@needs_package
def test_where_zeros_are_padded_one_channel_carries_all_constants():
    net = Net(
        nn.Sequential(nn.Conv2d(1, 4, 1), nn.ReLU(), nn.Conv2d(4, 2, 3, padding=1), nn.AdaptiveAvgPool2d(1)),
        nn.Linear(2, 2),
    )
    with torch.no_grad():
        net.encoder[0].weight[1:] = 0
        net.encoder[0].bias.copy_(torch.tensor([0.1, 1.0, 4.0, 2.0]))
    w = net.encoder[2].weight
    shrunk = shrink(net, torch.randn(2, 1, 5, 5))
    assert shrunk.removed == {"encoder.0": 2}
    assert torch.allclose(shrunk.net.encoder[2].weight[:, 1], w[:, 2] + (w[:, 1] + 2 * w[:, 3]) / 4, atol=1e-6)
    assert torch.equal(shrunk.net.encoder[2].bias, net.encoder[2].bias)
    assert any("encoder.0: 1 channels" in told for told in shrunk.kept)


@needs_package
def test_a_channel_of_a_residual_stream_goes_only_when_every_maker_is_dead():
    net, shape = net_of("own")
    shake(net)
    with torch.no_grad():
        net.encoder.first.weight[[0, 1, 2]] = 0
        net.encoder.first.bias[[0, 1, 2]] = 0
        net.encoder.norm.bias[[0, 1, 2]] = -50  # below the ReLU: the channel is zero
        net.encoder.side.weight[[1, 2, 3]] = 0
        net.encoder.side.bias[[1, 2, 3]] = 0
    shrunk = shrink(net, torch.randn(2, *shape))
    assert shrunk.removed == {"encoder.first": 2, "encoder.side": 2}  # 1 and 2, not 0 and 3
    assert len(shrunk.net.encoder.norm.weight) == 10


class Mixing(nn.Module):
    """Takes the mean over channels: none can go, dead or not, though every operation looks harmless."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.classify = nn.Linear(6, 2)

    def forward(self, x):
        x = self.conv(x).mean((2, 3))
        return self.classify(x - x.mean(1, keepdim=True))


@needs_package
def test_a_cut_that_would_change_the_logits_is_undone():
    net = Net.wrap(Mixing(), example=torch.randn(2, 1, 4, 4))
    with torch.no_grad():
        net.head.weight[:, :3] = 0
    shrunk = shrink(net, torch.randn(2, 1, 4, 4))
    assert shrunk.channels == 0
    assert any("would change the logits" in told for told in shrunk.kept)


@needs_package
def test_a_network_that_says_something_else_at_the_end_is_never_handed_out(monkeypatch):
    net, shape = net_of("own")
    monkeypatch.setattr("spurless.compress.shrink.allowed", lambda *_: 0.0)
    with pytest.raises(NotTheSame, match="logits of the cut network differ"):
        shrink(net, torch.randn(2, *shape))


@needs_package
def test_one_channel_stays_and_modes_are_kept():
    net = Net(nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.ReLU()), nn.Linear(5, 2)).train()
    net.encoder[1].weight.requires_grad_(False)
    with torch.no_grad():
        net.encoder[1].weight.zero_()
    shrunk = shrink(net, torch.randn(2, 4)).net
    assert shrunk.encoder[1].weight.shape == (1, 4)
    assert shrunk.training and not shrunk.encoder[1].weight.requires_grad and shrunk.head.weight.requires_grad
    assert shrunk.head.weight.dtype == torch.float32


@needs_package
def test_a_dead_relu_alone_is_no_proof():
    """Silent on everything it was shown, but there are weights into it: it may speak tomorrow."""
    net = Net(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), nn.Linear(4, 2))
    with torch.no_grad():
        net.encoder[0].bias[0] = -1e4
    assert shrink(net, torch.randn(2, 3)).channels == 0


@needs_package
def test_groups_of_a_residual_network():
    net, shape = net_of("own")
    found = {
        tuple(g.makers): (g.size, g.through, sorted(g.takers)) for g in channel_groups(net, torch.randn(2, *shape))
    }
    assert found == {
        ("encoder.first", "encoder.side"): (12, ["encoder.norm"], ["encoder.down", "encoder.side"]),
        ("encoder.down",): (10, [], ["head"]),
    }


@needs_package
def test_a_channel_that_is_read_by_one_weight_stays():
    net = Net(nn.Sequential(nn.Linear(3, 4), nn.Tanh()), nn.Linear(4, 2))
    with torch.no_grad():
        net.head.weight[:, 0] = 0
        net.head.weight[0, 1] = 0
    shrunk = shrink(net, torch.randn(2, 3))
    assert shrunk.removed == {"encoder.0": 1} and shrunk.kept == []
    assert torch.equal(shrunk.net.encoder[0].weight, net.encoder[0].weight[1:])


def test_the_table_of_the_page_is_that_of_the_measured_rows():
    from studies import shrunk

    found = shrunk.rows("shrunk")
    assert len(found) == len(shrunk.SEEDS) and shrunk.table(found) in shrunk.PAGE.read_text(encoding="utf-8")
