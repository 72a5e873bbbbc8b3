"""Attribution maps against versions by hand, what they leave behind, masks, and pictures of them."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from spurless import fit
from spurless.core.data import Bundle, Images, Split
from spurless.core.errors import UserError
from spurless.data.regions import halves
from spurless.data.sets import linear_toy, moon_star, parity, shapes, toy
from spurless.metrics import attribution as at
from spurless.metrics.explainers import outputs_and_last_block
from spurless.nets import build
from tests.support.reference import (
    deeplift_by_hand,
    entropy_by_hand,
    gradcam_by_hand,
    ig_by_hand,
    share_by_hand,
    unit_share_by_hand,
)
from tests.support.worlds import OwnModule, pictures, tiny

pytest.importorskip("captum")


def net_of(spec, shape=(3, 32, 32), classes=4):
    """With running statistics that are not those of a fresh network, in training mode as it would be in a run."""
    net = build(spec, shape, classes)
    with torch.no_grad():
        net(torch.rand(8, *shape))
    return net


def gap(net, x, target, start=0.0):
    """f(x) − f(baseline), which the maps of two methods must sum to."""
    net = copy.deepcopy(net).eval()
    with torch.no_grad():
        return (net(x) - net(torch.zeros_like(x) + start)).gather(1, target[:, None])[:, 0]


# The methods.


def test_integrated_gradients_are_those_by_hand():
    net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).eval()
    x, start, target = torch.randn(3, 5), torch.randn(5), torch.tensor([2, 0, 1])
    found = at.attribute(net, x, target, "ig", baseline=start[None])
    assert torch.allclose(found, ig_by_hand(net, x, start, target), atol=1e-5)
    assert not torch.allclose(found, at.attribute(net, x, target, "ig"), atol=1e-2)  # the baseline matters


def test_deeplift_is_that_by_hand():
    net = nn.Sequential(nn.Linear(5, 20), nn.ReLU(), nn.Linear(20, 3))
    x, start, target = torch.randn(4, 5), torch.randn(5), torch.tensor([2, 0, 1, 1])
    found = at.attribute(net, x, target, "deeplift", baseline=start[None])
    assert torch.allclose(found, deeplift_by_hand(net[0], net[2], x, start, target), atol=1e-5)


def test_gradcam_is_that_by_hand_scaled_up():
    net = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 36, 4))
    x, target = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 3])
    small = gradcam_by_hand(net[:2], net[2:], x, target)
    expected = F.interpolate(small[:, None], (8, 8), mode="bilinear", align_corners=False)[:, 0]
    found = at.attribute(net, x, target)
    assert found.shape == (4, 8, 8) and torch.allclose(found, expected, atol=1e-6)
    assert (found >= 0).all() and found.max() > 0
    before = gradcam_by_hand(net[:1], net[1:], x, target)
    before = F.interpolate(before[:, None], (8, 8), mode="bilinear", align_corners=False)[:, 0]
    assert torch.allclose(at.attribute(net, x, target, layer="0"), before, atol=1e-6)


@pytest.mark.parametrize("net", ["mlp", "conv3", "simconv1", "vgg11_lin", "resnet18"])
def test_maps_of_deeplift_sum_to_the_change_of_the_output(net):
    net = net_of({"name": net, "stem": "small"} if net == "resnet18" else net)
    x, start, target = torch.rand(3, 3, 32, 32), torch.rand(1, 3, 32, 32), torch.tensor([3, 0, 1])
    maps = at.attribute(net, x, target, "deeplift", baseline=start)
    error = (maps.flatten(1).sum(1) - gap(net, x, target, start)).abs() / maps.flatten(1).abs().sum(1)
    assert error.max() < 1e-5


@pytest.mark.parametrize("net", ["mlp", "conv3", "simconv1"])
def test_maps_of_integrated_gradients_do_so_nearly(net):
    net, x, target = net_of(net, (3, 28, 28)), torch.rand(3, 3, 28, 28), torch.tensor([3, 0, 1])
    maps = at.attribute(net, x, target, "ig")
    error = (maps.flatten(1).sum(1) - gap(net, x, target)).abs() / maps.flatten(1).abs().sum(1)
    assert error.max() < 1e-2


@pytest.mark.parametrize("how", ["gradcam", "ig", "deeplift"])
def test_a_row_is_explained_alike_in_any_company(how):
    net, x, target = net_of("conv3"), torch.rand(5, 3, 32, 32), torch.tensor([0, 1, 2, 3, 0])
    together = at.attribute(net, x, target, how, steps=8)
    alone = torch.cat([at.attribute(net, x[i : i + 1], target[i : i + 1], how, steps=8) for i in range(5)])
    assert torch.allclose(together, at.attribute(net, x, target, how, steps=8, batch_size=16), atol=1e-6)
    assert torch.allclose(together, alone, atol=1e-6)


def test_a_baseline_for_each_row_stays_with_its_row():
    net, x = nn.Linear(4, 2, bias=False), torch.randn(6, 4)
    start = torch.randn(6, 4)
    expected = (x - start) * net.weight[1].detach()
    for how in ("ig", "deeplift"):
        assert torch.allclose(at.attribute(net, x, 1, how, baseline=start, batch_size=100), expected, atol=1e-5), how


def test_targets():
    net, x = nn.Linear(4, 3, bias=False), torch.randn(5, 4)
    weight = net.weight.detach()
    assert torch.allclose(at.attribute(net, x, how="ig"), x * weight[net(x).argmax(1)], atol=1e-5)  # the predicted
    assert torch.allclose(at.attribute(net, x, 2, "ig"), x * weight[2], atol=1e-5)
    for wrong in (3, -1, torch.tensor([0, 1])):
        with pytest.raises(UserError, match="from 0 to 2 for each of 5 samples"):
            at.attribute(net, x, wrong, "ig")
    with pytest.raises(UserError, match="did you mean 'gradcam'"):
        at.attribute(net, x, how="grad_cam")


def test_channels_are_added_up_or_their_sizes_are():
    net = nn.Sequential(nn.Flatten(), nn.Linear(8, 1, bias=False))
    net[1].weight.data = torch.tensor([[1.0, 2, 3, 4, -1, -2, -3, 4]])
    x = torch.ones(1, 2, 2, 2)
    assert torch.allclose(at.attribute(net, x, 0, "ig"), torch.tensor([[[0.0, 0], [0, 8]]]), atol=1e-5)
    assert torch.allclose(at.attribute(net, x, 0, "ig", channels="abs"), torch.tensor([[[2.0, 4], [6, 8]]]), atol=1e-5)
    assert at.attribute(net, x[:0], 0, "ig").shape == (0, 2, 2)


# Networks as people write them.


class Written(nn.Module):
    """One function in several spellings."""

    def __init__(self, spelling):
        super().__init__()
        self.spelling = spelling
        self.conv, self.norm, self.fc = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(4 * 4, 10)
        self.out = nn.Linear(10, 3)
        self.relu, self.other = nn.ReLU(spelling == "in place"), nn.ReLU(spelling == "in place")
        self.pool = nn.MaxPool2d(3)

    def forward(self, x):
        x = self.norm(self.conv(x))
        if self.spelling == "functional":
            return self.out(torch.relu(self.fc(self.pool(F.relu(x, inplace=True)).flatten(1))))
        if self.spelling == "methods":
            return self.out(self.fc(self.pool(x.relu()).flatten(1)).relu_())
        if self.spelling == "reused":
            return self.out(self.relu(self.fc(self.pool(self.relu(x)).flatten(1))))
        if self.spelling == "untraceable" and float(x.detach().sum()) == 12345.0:
            return x
        if self.spelling == "untraceable":
            return self.out(F.relu(self.fc(self.pool(F.relu(x)).flatten(1))))
        return self.out(self.other(self.fc(self.pool(self.relu(x)).flatten(1))))


def spellings():
    plain = Written("modules")
    nn.init.uniform_(plain.norm.running_mean), nn.init.uniform_(plain.norm.bias)
    for name in ("in place", "functional", "methods", "reused"):
        other = Written(name)
        other.load_state_dict(plain.state_dict())
        yield plain, name, other


@pytest.mark.parametrize("how", ["gradcam", "ig", "deeplift"])
def test_how_a_network_is_written_does_not_matter(how):
    x, start = torch.randn(4, 1, 8, 8), torch.rand(1, 1, 8, 8)
    layer = "norm" if how == "gradcam" else None  # a functional ReLU has no name to look at
    for plain, name, other in spellings():
        expected = at.attribute(plain, x, 1, how, baseline=start, layer=layer)
        found = at.attribute(other, x, 1, how, baseline=start, layer=layer)
        assert expected.abs().max() > 1e-3 and torch.allclose(found, expected, atol=1e-6), name


def test_deeplift_refuses_what_its_rules_do_not_cover():
    vectors, images = torch.randn(4, 6), torch.randn(4, 1, 9, 9)
    refused = {
        "GELU": (nn.Sequential(nn.Linear(6, 20), nn.GELU(), nn.Linear(20, 3)), vectors),
        "softmax": (nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 3), nn.Softmax(1)), vectors),
        "functional, untraceable": (Written("untraceable"), images[:, :, :8, :8]),
        "overlapping windows": (
            nn.Sequential(nn.Conv2d(1, 4, 3), nn.MaxPool2d(3, 2), nn.Flatten(), nn.Linear(36, 3)),
            images,
        ),
    }
    for name, (net, x) in refused.items():
        with pytest.raises(UserError, match='no rule for a part of .* use how="ig"'):
            at.attribute(net, x, 1, "deeplift", baseline=torch.randn_like(x[:1]))
        assert at.attribute(net, x, 1, "ig").shape[0] == 4, name


def test_a_network_that_does_not_give_logits_is_refused():
    with pytest.raises(UserError, match=r"tensor \(n, classes\)"):
        at.attribute(nn.Conv2d(1, 2, 3), torch.rand(1, 1, 5, 5))


def test_gradcam_without_convolution_is_ig_and_says_so(capsys):
    net, x = build("mlp", (1, 6, 6), 3), torch.rand(2, 1, 6, 6)
    found = at.attribute(net, x, 1, "gradcam")
    assert "no convolution" in capsys.readouterr().err
    assert torch.equal(found, at.attribute(net, x, 1, "ig"))
    assert at.usable(net, "gradcam", (1, 6, 6)) == "ig" and at.usable(net, "deeplift", (1, 6, 6)) == "deeplift"
    assert at.usable(build("conv3", (3, 16, 16), 2), "gradcam", (3, 16, 16)) == "gradcam"


def test_gradcam_looks_at_the_last_convolution_called_that_still_has_a_picture():
    class Backwards(nn.Module):
        """Lists its layers in the wrong order; the last convolution sees only one place; a ReLU is used twice."""

        def __init__(self):
            super().__init__()
            self.head, self.squeeze = nn.Linear(3, 2), nn.Conv2d(5, 3, 1)
            self.second, self.first, self.relu = nn.Conv2d(4, 5, 3), nn.Conv2d(1, 4, 3), nn.ReLU()

        def forward(self, x):
            x = self.relu(self.second(self.relu(self.first(x)))).mean((2, 3), keepdim=True)
            return self.head(self.squeeze(x).flatten(1))

    net = Backwards()
    assert outputs_and_last_block(net, torch.rand(1, 1, 9, 9))[1] is net.second
    small = build("resnet18", (3, 64, 64), 2)
    assert outputs_and_last_block(small.eval(), torch.rand(1, 3, 64, 64))[1] is small.encoder.layer4


def state_of(net):
    """All that a call could leave behind."""
    hooks = [k for k in vars(nn.Module()) if "hooks" in k]
    return {
        "weights": {k: v.clone() for k, v in net.state_dict().items()},
        "grads": [None if p.grad is None else p.grad.clone() for p in net.parameters()],
        "flags": [p.requires_grad for p in net.parameters()],
        "modes": [m.training for m in net.modules()],
        "inplace": [getattr(m, "inplace", None) for m in net.modules()],
        "names": [sorted(vars(m)) for m in net.modules()],
        "hooks": [[list(getattr(m, k) or ()) for k in hooks] for m in net.modules()],
    }


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@pytest.mark.parametrize("how", ["gradcam", "ig", "deeplift"])
@pytest.mark.parametrize("spelling", ["in place", "reused", "untraceable"])
def test_nothing_is_left_behind(how, spelling):
    net = Written(spelling).train()
    net.norm.eval()  # a mode of its own
    net.fc.requires_grad_(False)
    net.out.weight.grad = torch.ones_like(net.out.weight)
    net.relu.register_forward_hook(lambda *_: None)
    x = torch.randn(3, 1, 8, 8)
    before, random = state_of(net), torch.get_rng_state()
    if (how, spelling) == ("deeplift", "untraceable"):
        with pytest.raises(UserError):
            at.attribute(net, x, 0, how)
    else:
        at.attribute(net, x, 0, how)
    assert same(before, state_of(net))
    assert torch.equal(random, torch.get_rng_state()) and not x.requires_grad and x.grad is None


def test_it_works_where_gradients_are_off():
    net = net_of("conv3")
    x = torch.rand(2, 3, 32, 32)
    for how in ("gradcam", "ig", "deeplift"):
        expected = at.attribute(net, x, 1, how, steps=4)
        with torch.no_grad():
            assert torch.equal(at.attribute(net, x, 1, how, steps=4), expected)
        with torch.inference_mode():
            made_here = x + 0
            assert torch.equal(at.attribute(net, made_here, 1, how, steps=4), expected)
        assert not expected.requires_grad


# Rows of datasets, and the numbers made of maps.


def test_rows_of_a_run_on_their_own_label():
    data = tiny()
    net = fit("erm", data).classifier
    rows = [5, 0, 7]
    expected = data.test.x[rows] * net.head.weight[data.test.y[rows]].detach()  # linear and not standardised
    assert torch.allclose(at.attribute_rows(net, data, "test", rows, "ig"), expected, atol=1e-5)
    assert at.attribute_rows(OwnModule(), data, "val", rows, "deeplift", target=0).shape == (3, 7)
    with pytest.raises(UserError, match="no split 'dev'; it has train, val, test"):
        at.attribute_rows(net, data, "dev", rows)


def test_rows_are_prepared_as_in_training_and_black_is_black():
    data = replace(pictures(n=8), inputs=Images((0.1, 0.2, 0.3), (0.5, 0.6, 0.7)))
    expected = (data.train.x[3].double() / 255 - torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1)) / torch.tensor(
        [0.5, 0.6, 0.7]
    ).view(3, 1, 1)
    assert torch.allclose(at.prepare(data, "train", [3])[0].double(), expected, atol=1e-6)
    assert at.prepare(data, "train").shape == (8, 3, 28, 28)
    dark = replace(data, train=Split(torch.zeros(2, 3, 28, 28, dtype=torch.uint8), torch.tensor([0, 1])))
    assert torch.equal(at.black(data), at.prepare(dark, "train", [0]))


def test_a_network_that_looks_at_one_half_has_its_share_there():
    data = Bundle(
        "double_mnist",
        Split(torch.randint(0, 256, (6, 1, 28, 56), dtype=torch.uint8), torch.arange(6) % 2, torch.zeros(6, 1).long()),
        regions=lambda data, split, idx: halves(data, idx, "right"),
    )
    net = nn.Sequential(nn.Flatten(), nn.Linear(28 * 56, 2))
    with torch.no_grad():
        net[1].weight.view(2, 28, 56)[:, :, :28] = 0  # blind on the left
    maps = at.attribute_rows(net, data, "train", how="ig")
    assert at.share(maps, at.core_mask(data, "train")).tolist() == [1.0] * 6
    assert at.share(maps, at.spurious_mask(data, "train")).tolist() == [0.0] * 6


def test_shares_and_entropy():
    maps = torch.randn(20, 6, 7)
    mask = torch.rand(20, 6, 7) < 0.4
    assert torch.allclose(at.share(maps, mask), share_by_hand(maps, mask), atol=1e-6)
    assert torch.allclose(at.share(maps, mask) + at.share(maps, ~mask), torch.ones(20), atol=1e-6)
    assert torch.allclose(at.share(maps, mask[0]), share_by_hand(maps, mask[:1].expand(20, -1, -1)), atol=1e-6)
    p = maps.abs().flatten(1) / maps.abs().flatten(1).sum(1, keepdim=True)
    assert torch.allclose(at.entropy(maps), torch.distributions.Categorical(p).entropy(), atol=1e-5)
    assert torch.allclose(at.entropy(maps), entropy_by_hand(maps), atol=1e-5)
    assert torch.allclose(at.entropy(maps * 1e-30), at.entropy(maps), atol=1e-5)  # the scale says nothing
    empty = torch.zeros(1, 6, 7)
    assert at.share(empty, mask[:1]).isnan().all() and at.entropy(empty).isnan().all()
    with pytest.raises(UserError, match="float32 of shape"):
        at.share(maps, mask.float())
    with pytest.raises(UserError, match=r"of shape \(7, 6\)"):
        at.share(maps, mask[0].T)


def test_shares_of_units_are_those_of_their_weights():
    net = nn.Sequential(nn.Linear(6, 4, bias=False), nn.Linear(4, 2))
    mask = torch.tensor([True, True, False, False, False, False])
    weight = net[0].weight.detach().abs()
    expected = weight[:, mask].sum(1) / weight.sum(1)
    x = torch.ones(3, 6)
    assert torch.allclose(at.unit_shares(net, x, mask, range(4)), expected, atol=1e-5)
    assert torch.allclose(at.unit_shares(net, x, mask, torch.tensor([2]), "deeplift"), expected[2:3], atol=1e-5)
    bent, rows = build({"name": "mlp", "widths": [4], "activation": "tanh"}, (6,), 2), torch.randn(3, 6)
    by_hand = [unit_share_by_hand(bent, rows, mask, unit) for unit in (0, 3)]
    assert torch.allclose(at.unit_shares(bent, rows, mask, [0, 3]), torch.tensor(by_hand), atol=1e-4)
    dead = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
    dead[0].bias.data.fill_(-1e3)
    assert at.unit_shares(dead, x, mask, [0]).isnan().all()


# Masks.


def test_masks_of_vectors():
    world = parity.load(core=2, spurious=3, noise=1, n=4)
    assert at.core_mask(world, "train")[3].tolist() == [True] * 2 + [False] * 4
    assert at.spurious_mask(world, "test", [1, 2])[1].tolist() == [False] * 2 + [True] * 3 + [False]
    world = toy.load(n=20)
    assert at.core_mask(world)[0].tolist() == [True, True] + [False] * 5
    assert at.spurious_mask(world)[0].tolist() == [False, False, True] + [False] * 4
    each = linear_toy.load(D=3, n=4, attribute="each")
    assert at.core_mask(each)[0].tolist() == [True, False, False, False]
    assert at.spurious_mask(each)[0].tolist() == [False, True, True, True]
    assert at.spurious_mask(each, bias="sp2")[0].tolist() == [False, False, True, False]
    most = linear_toy.load(D=3, n=4)
    assert at.spurious_mask(most)[0].tolist() == [False, True, True, True]


def test_the_toys_masks_are_where_its_features_are():
    world = toy.load(n=20)
    x, y, a = world.test.x, world.test.y, world.test.a[:, 0]  # here a and y are independent
    by_label, by_bias = ((x[v == 1].mean(0) - x[v == 0].mean(0)).abs() > 0.5 for v in (y, a))
    assert torch.equal(by_label, at.core_mask(world)[0]) and torch.equal(by_bias, at.spurious_mask(world)[0])


def test_masks_of_shapes():
    world = shapes.load(n=6, n_val=0, n_test=0, biases=("watermark", "texture", "colour", "position"))
    rows = [4, 1]
    parts = shapes.masks(world, "train", torch.tensor(rows))
    assert torch.equal(at.core_mask(world, "train", rows), parts["object"])
    assert torch.equal(at.spurious_mask(world, "train", rows, "watermark"), parts["watermark"])
    assert torch.equal(at.spurious_mask(world, "train", rows, "texture"), parts["background"])
    assert torch.equal(at.spurious_mask(world, "train", rows), ~parts["object"])
    for bias in ("colour", "position"):
        with pytest.raises(UserError, match=f"{bias} of shapes has no pixels of its own"):
            at.spurious_mask(world, "train", rows, bias)
    with pytest.raises(UserError, match="no attribute 'colur'; did you mean 'colour'"):
        at.spurious_mask(world, "train", rows, "colur")


def test_mask_of_moon_star_is_the_object_in_its_quadrant():
    world = moon_star.load(n=40, n_val=0, n_test=0)
    mask = at.core_mask(world, "train")
    halves = mask.view(40, 2, 32, 2, 32).any(4).any(2)  # (n, 2, 2): which quadrants it is in
    assert (halves.flatten(1).sum(1) == 1).all()
    falling = halves[:, 0, 0] | halves[:, 1, 1]
    assert torch.equal(falling, world.train.a[:, 0] == 1)
    with pytest.raises(UserError, match="quadrants of moon_star has no pixels of its own"):
        at.spurious_mask(world, "train")


def test_other_data_has_no_masks():
    with pytest.raises(UserError, match="pictures does not say where its features are"):
        at.core_mask(pictures(), "train")


@pytest.mark.data("MNIST")
def test_the_dim_digit_is_in_the_mask_of_double_mnist():
    from spurless.data.sets import double_mnist

    for side in ("left", "right"):
        world = double_mnist.load(core=side)
        rows = torch.arange(50)
        x = world.test.x[rows, 0].float()
        core, spurious = at.core_mask(world, "test", rows), at.spurious_mask(world, "test", rows)
        assert (x * core).amax((1, 2)).max() <= 128 < (x * spurious).amax((1, 2)).min()
        assert (core ^ spurious).all()


@pytest.mark.data("MNIST", "cifar-10-batches-py")
def test_the_digit_is_grey_in_the_mask_of_mnist_cifar():
    from spurless.data.sets import mnist_cifar

    for side in ("top", "bottom"):
        world = mnist_cifar.load(core=side)
        x = world.test.x[:50].float()
        colourful = (x.amax(1) - x.amin(1)) > 0  # (n, h, w)
        assert not (colourful & at.spurious_mask(world, "test", range(50))).any()
        assert (colourful & at.core_mask(world, "test", range(50))).any(2).any(1).float().mean() > 0.9


def test_tiles_of_multi_bias_mnist():
    from spurless.data.sets import multi_bias_mnist

    VALUES = multi_bias_mnist.VALUES
    rows = Split(torch.zeros(4, 3, 56, 56, dtype=torch.uint8), torch.arange(4) % 2, torch.zeros(4, 7).long())
    names = {"attributes": tuple(VALUES), "values": tuple(VALUES.values())}
    world = Bundle("multi_bias_mnist-standin", rows, **names, regions=multi_bias_mnist._regions)
    core = at.core_mask(world, "train", [0])[0]
    assert core[:28, :28].all() and core.sum() == 28 * 28
    letter, kana = (at.spurious_mask(world, "train", [2], name)[0] for name in ("letter", "kana_color"))
    assert letter[:28, 28:].all() and kana[28:, 28:].all() and letter.sum() == kana.sum() == 28 * 28
    assert torch.equal(at.spurious_mask(world, "train", [0])[0], ~core)
    with pytest.raises(UserError, match="digit_color of multi_bias"):
        at.spurious_mask(world, "train", [0], "digit_color")


def test_background_of_a_segmentation_network():
    class Brightness(nn.Module):
        """Class 1 where the pixel is bright; half the size, as some give it back."""

        def __init__(self, as_dict):
            super().__init__()
            self.as_dict, self.drop = as_dict, nn.Dropout(0.9)

        def forward(self, x):
            bright = self.drop(F.avg_pool2d(x, 2))[:, :1] - 0.5
            scores = torch.cat([-bright, bright], 1)
            return {"out": scores} if self.as_dict else scores

    x = torch.zeros(3, 1, 4, 4)
    x[:, :, :2] = 1
    for as_dict in (True, False):
        net = Brightness(as_dict).train()
        found = at.background_mask(x, net, batch_size=2)
        assert found[:, 0].sum() == 0 and found[:, 3].all() and found.shape == (3, 4, 4)
        assert net.drop.training


# Pictures.


def test_overlay_colours():
    image = torch.full((3, 2, 2), 100, dtype=torch.uint8)
    heat = torch.tensor([[2.0, -2.0], [0.0, 1.0]])
    found = at.overlay(image, heat, strength=1.0)
    assert found.dtype == torch.uint8 and found.shape == (3, 2, 2)
    assert found[:, 0, 0].tolist() == [240, 228, 66] and found[:, 0, 1].tolist() == [86, 180, 233]
    assert found[:, 1, 0].tolist() == [100, 100, 100]
    # half the heat: half way between grey and the colour half way between weak and strong
    assert found[:, 1, 1].tolist() == [round((100 + v) / 2) for v in (226.5, 161.0, 33.0)]
    assert torch.equal(at.overlay(image, heat * 1e-20, strength=1.0), found)


def test_overlay_of_an_empty_map_is_the_grey_image():
    image = torch.randint(0, 256, (3, 5, 5), dtype=torch.uint8)
    for heat in (torch.zeros(5, 5), torch.full((5, 5), torch.nan)):
        found = at.overlay(image, heat).long()
        assert (found[0] == found[1]).all() and (found[1] == found[2]).all()
        expected = (image.double() * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(0)
        assert (found[0] - expected).abs().max() <= 0.51
    grey = torch.randint(0, 256, (1, 5, 5), dtype=torch.uint8)
    assert torch.equal(at.overlay(grey, torch.zeros(5, 5)), grey.expand(3, -1, -1))


def test_overlay_of_a_batch_is_that_of_each():
    images, heat = torch.randint(0, 256, (4, 1, 6, 5), dtype=torch.uint8), torch.randn(4, 6, 5)
    each = torch.stack([at.overlay(image, one) for image, one in zip(images, heat, strict=True)])
    assert torch.equal(at.overlay(images, heat), each)
    for bad in ((images.float(), heat), (images, heat[:, :5]), (images[0], heat)):
        with pytest.raises(UserError, match="uint8 images"):
            at.overlay(*bad)


@pytest.mark.parametrize("shape", [(3, 1, 4, 4), (1, 1, 4, 4), (2, 4, 4), (4,)])
def test_a_mask_of_another_shape_is_refused(shape):
    with pytest.raises(UserError, match="A mask holds"):
        at.share(torch.rand(3, 4, 4), torch.ones(shape, dtype=torch.bool))


def test_unknown_words_and_no_steps_are_refused():
    net, x = nn.Linear(4, 2), torch.rand(2, 4)
    for wrong, said in (({"channels": "bogus"}, "bogus"), ({"steps": 0}, "steps = 0")):
        with pytest.raises(UserError, match=said):
            at.attribute(net, x, 0, "ig", **wrong)
