"""The slice around a solution: its directions, its grid, and that the network is as it was."""

import copy
import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from spurless import evaluate, fit
from spurless.core.data import Split
from spurless.core.errors import UserError
from spurless.metrics.batchnorm import recompute_batchnorm
from spurless.metrics.representation import bsi, features_of
from spurless.nets import build
from studies import landscape as ls
from tests.support.reference import direction_by_hand, landscape_by_hand
from tests.support.runs import CPU
from tests.support.worlds import OwnModule, pictures, tiny


def small():
    return nn.Sequential(
        nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 2, 2, bias=False), nn.Flatten(), nn.Linear(8, 3)
    )


def bits(net):
    return {k: v.clone() for k, v in net.state_dict().items()}


def test_directions_are_normalised_filter_by_filter():
    net = small()
    found = ls.random_direction(net, seed=5)
    expected = direction_by_hand(net, torch.Generator().manual_seed(5))
    assert found.keys() == expected.keys()
    for name, values in found.items():
        assert torch.allclose(values, expected[name], atol=1e-6), name
    for name in ("0.bias", "1.weight", "1.bias", "5.bias"):  # biases and BatchNorm do not move
        assert (found[name] == 0).all()
    assert not torch.equal(found["0.weight"], ls.random_direction(net, seed=6)["0.weight"])


def test_the_parameters_of_a_layer_norm_of_many_dimensions_do_not_move():
    net = nn.Sequential(nn.LayerNorm((2, 3)), nn.Flatten(), nn.Linear(6, 2))
    found = ls.random_direction(net)
    assert not found["0.weight"].any() and not found["0.bias"].any() and found["2.weight"].any()


def test_where_a_network_gives_no_numbers_the_landscape_has_none():
    net = nn.Sequential(nn.Linear(7, 4), nn.ReLU(), nn.Linear(4, 2))
    for spurious in ("attribution", "bsi"):
        found = ls.data_landscape(net, tiny(), 1e30, points=3, rows=20, attributed=4, spurious=spurious)
        assert np.isnan(found.values["accuracy"][0, 0]) and np.isnan(found.values["loss"][0, 0])
        assert all(np.isfinite(values[1, 1]) for values in found.values.values())  # the solution itself


@pytest.mark.parametrize("value", [200 / 3, 1e9])
def test_values_that_differ_by_rounding_have_a_picture(value):
    steps, flat = np.array([-1.0, 0.0, 1.0]), np.full((3, 3), value)
    for other in (value, np.nextafter(value, np.inf)):
        flat[0, 0] = other
        assert len(ls.plot(ls.Landscape(steps, steps, {"accuracy": flat})).axes) == 2


def test_scaling_the_weights_scales_the_slice_with_them():
    """What the normalisation is for: a network and its rescaled twin have the same landscape."""
    net = nn.Sequential(nn.Linear(4, 6, bias=False), nn.ReLU(), nn.Linear(6, 3, bias=False))
    twin = copy.deepcopy(net)
    twin[0].weight.data *= 8
    twin[2].weight.data /= 8
    x, y = torch.randn(30, 4), torch.arange(30) % 3

    def loss(n):
        return float(nn.functional.cross_entropy(n(x), y).detach())

    one, other = (ls.landscape(n, {"loss": loss}, points=5).values["loss"] for n in (net, twin))
    assert np.allclose(one, other, atol=1e-5) and one.std() > 0


def test_a_filter_of_zeros_stays_where_it_is():
    net = nn.Linear(3, 2)
    net.weight.data[1] = 0
    found = ls.random_direction(net)["weight"]
    assert (found[1] == 0).all() and found.isfinite().all() and (found[0] != 0).all()


def test_the_grid_is_that_of_copies():
    net = small().eval()
    x = torch.randn(5, 2, 4, 4)
    first, second = ls.random_direction(net, 1), ls.random_direction(net, 2)

    def measure(n):
        return float(n(x).detach().abs().sum())

    found = ls.landscape(net, {"size": measure}, span=0.6, points=4, directions=(first, second))
    steps = [-0.6, -0.2, 0.2, 0.6]
    assert np.allclose(found.a, steps) and np.allclose(found.b, steps)
    assert np.allclose(found.values["size"], landscape_by_hand(net, measure, first, second, steps), rtol=1e-4)
    usual = ls.landscape(net, {"size": measure}, span=0.6, points=4, seed=3)
    seeded = landscape_by_hand(net, measure, ls.random_direction(net, 6), ls.random_direction(net, 7), steps)
    assert np.allclose(usual.values["size"], seeded, rtol=1e-4)
    assert ls.landscape(net, {"size": measure}, points=1).values["size"].tolist() == [[pytest.approx(measure(net))]]
    with pytest.raises(UserError, match="at least one"):
        ls.landscape(net, {})


def test_the_network_comes_back_bit_by_bit():
    net = small().train()
    net[5].weight.data[0, 0] = torch.nan
    before, places = bits(net), [p.data_ptr() for p in net.parameters()]

    def fails(n):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ls.landscape(net, {"x": fails})
    x = torch.randn(20, 2, 4, 4)
    ls.landscape(net, {"x": lambda n: 0.0}, points=3, refresh=lambda n: recompute_batchnorm(n, x))
    for key, value in net.state_dict().items():
        assert torch.equal(value.nan_to_num(7.0), before[key].nan_to_num(7.0)), key
    assert [p.data_ptr() for p in net.parameters()] == places and all(m.training for m in net.modules())


def test_recomputed_statistics_are_those_of_the_rows():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2)).train()
    net[1].momentum = 0.3
    x = torch.randn(40, 3)
    recompute_batchnorm(net, x, batch_size=40)
    z = net[0](x).detach()
    assert torch.allclose(net[1].running_mean, z.mean(0), atol=1e-5)
    assert torch.allclose(net[1].running_var, z.var(0), atol=1e-5)
    assert net[1].momentum == 0.3 and all(m.training for m in net.modules())


def test_around_a_trained_run():
    data = tiny()
    net = fit("erm", data, net="mlp", **CPU).classifier
    before = bits(net)
    found = ls.data_landscape(net, data, points=3, span=0.5, rows=None, attributed=20)
    middle = {name: values[1, 1] for name, values in found.values.items()}
    scores = evaluate(net, data, device="cpu")
    assert middle["accuracy"] == pytest.approx(scores["unbiased"])
    assert middle["loss"] == pytest.approx(float(nn.functional.cross_entropy(net(data.train.x), data.train.y).detach()))
    from spurless.metrics.attribution import attribute_rows, share, spurious_mask

    rows = list(range(20))
    maps = attribute_rows(net, data, "test", rows, "ig", steps=8)
    expected = share(maps, spurious_mask(data, "test", rows)).nanmean()
    assert middle["spurious"] == pytest.approx(float(expected), abs=1e-6)
    assert found.values["loss"].min() >= 0 and found.values["loss"].argmin() == 4  # lowest where it was trained to
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    again = ls.data_landscape(net, data, points=3, span=0.5, rows=None, attributed=20)
    assert all((again.values[k] == v).all() for k, v in found.values.items())


def test_of_some_rows_each_has_its_own_label():
    data, net = tiny(), OwnModule()
    found = ls.data_landscape(net, data, points=1, rows=30, attributed=7, seed=2)
    train, test = (torch.randperm(n, generator=torch.Generator().manual_seed(2))[:30] for n in (200, 4000))
    loss = nn.functional.cross_entropy(net(data.train.x[train]), data.train.y[train])
    assert found.values["loss"][0, 0] == pytest.approx(float(loss.detach()))
    held = Split(data.test.x[test], data.test.y[test], data.test.a[test])
    scores = evaluate(net, replace(data, test=held), device="cpu")
    assert (
        found.values["accuracy"][0, 0] == pytest.approx(scores["unbiased"]) and scores["unbiased"] != scores["average"]
    )


def test_where_the_data_does_not_know_its_features_neurons_are_asked():
    data, net = pictures(n=16), build("simconv1", (3, 28, 28), 4)
    kept = ls.data_landscape(net, data, points=1, rows=None)
    z = features_of(net, data)
    assert kept.values["spurious"][0, 0] == pytest.approx(bsi(z, data.test.a[:, 0]).average)
    anew = ls.data_landscape(net, data, points=1, rows=None, batchnorm="recomputed")
    assert anew.values["loss"][0, 0] != kept.values["loss"][0, 0]
    blind = replace(data, train=Split(data.train.x, data.train.y), test=Split(data.test.x, data.test.y), val=None)
    own = OwnModule(3 * 28 * 28, 4)
    assert sorted(ls.data_landscape(own, blind, points=1).values) == ["accuracy", "loss"]
    with pytest.raises(UserError, match="no bias attributes"):
        ls.data_landscape(own, blind, points=1, spurious="bsi")


def test_the_picture_has_a_panel_for_each_network_and_measure(tmp_path):
    steps = np.linspace(-1, 1, 5)
    bowl = steps[:, None] ** 2 + 2 * steps[None] ** 2
    one = ls.Landscape(steps, steps, {"loss": bowl + 0.1, "accuracy": 90 - 10 * bowl})
    other = ls.Landscape(steps, steps, {"loss": 1e3 * bowl + 0.1, "accuracy": np.where(bowl > 2, np.inf, bowl)})
    figure = ls.plot({"small": one, "large": other}, tmp_path / "land.png")
    assert (tmp_path / "land.png").stat().st_size > 10_000
    titles = [a.get_title() for a in figure.axes]
    assert titles[:2] == ["training loss", "unbiased test accuracy, %"] and len(figure.axes) == 4 + 2
    flat = ls.Landscape(steps, steps, {"mine": np.zeros((5, 5))})
    assert ls.plot(flat).axes[0].get_title() == "mine"
    slope = ls.Landscape(steps, steps, {"mine": np.repeat(steps[:, None], 5, 1)})  # it rises with a: upwards
    lowest = ls.plot(slope).axes[0].collections[0].get_paths()[0].vertices
    assert lowest[:, 1].max() < 0 < lowest[:, 0].max()
    for a, b in itertools.combinations(figure.axes[:4:2], 2):  # the same colours for the same value
        assert a.collections[0].norm.vmax == b.collections[0].norm.vmax


def test_a_small_last_batch_does_not_count_as_much_as_the_others():
    net = nn.Sequential(nn.BatchNorm1d(1))
    x = torch.cat([torch.zeros(1024, 1), torch.full((2, 1), 10.0)])
    recompute_batchnorm(net, x)
    assert net[0].running_mean.item() == pytest.approx(x.mean().item(), rel=0.01)
    recompute_batchnorm(net, x[-3:], batch_size=2)  # not two and one: one row has no variance
    assert net[0].running_var.item() == pytest.approx(x[-3:].var().item())
    with pytest.raises(UserError, match="two samples"):
        recompute_batchnorm(net, x[:0])


def test_unknown_words_are_refused():
    for wrong in ({"batchnorm": "bogus"}, {"spurious": "bogus"}):
        with pytest.raises(UserError, match="bogus"):
            ls.data_landscape(OwnModule(), tiny(), points=3, rows=20, attributed=2, **wrong)
