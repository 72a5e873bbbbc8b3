"""ReBias: HSIC from its definition, the biased network, and that neither update moves the other network."""

import itertools
import math

import pytest
import torch
from torch import nn

from spurless.core.data import Batch, Bundle, Split
from spurless.core.recipe import Recipe
from spurless.methods.parts.dependence import hsic, off_diagonal, rbf, squared_distances
from spurless.methods.parts.losses import ce
from spurless.methods.rebias import ReBias, flat, patches
from spurless.train.fit import fit
from tests.support.mining import open_run
from tests.support.runs import CPU, same_weights
from tests.support.worlds import pictures, tiny

# HSIC


def drawn(n, d, e, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=g)
    return x, x[:, :1] + torch.randn(n, e, generator=g)


def kernel(x, sigma):
    return [[math.exp(-sum((u - v) ** 2 for u, v in zip(p, q, strict=True)) / (2 * sigma**2)) for q in x] for p in x]


def slow_hsic(x, y, sigma):
    """The mean over all quadruples of different rows: an unbiased estimate, straight from the definition."""
    k, m = kernel(x.tolist(), sigma), kernel(y.tolist(), sigma)
    terms = [k[i][j] * (m[i][j] + m[q][r] - 2 * m[i][q]) for i, j, q, r in itertools.permutations(range(len(x)), 4)]
    return sum(terms) / len(terms)


@pytest.mark.parametrize(("n", "d", "e", "sigma"), [(4, 2, 3, 1.0), (6, 3, 1, 0.7), (8, 1, 5, 2.0)])
def test_hsic_is_the_mean_over_quadruples_of_rows(n, d, e, sigma):
    x, y = drawn(n, d, e)
    assert float(hsic(x, y, sigma)) == pytest.approx(slow_hsic(x, y, sigma), abs=1e-6)


def test_the_released_way_to_remove_the_diagonal_gives_the_same():
    """It takes a vector of ones from every row of K, so that off the diagonal, too, all is one less."""
    x, y = drawn(9, 2, 2)
    k, m, n = rbf(x, 1.0).double() - 1, rbf(y, 1.0).double() - 1, 9
    both = torch.trace(k @ m) + k.sum() * m.sum() / (n - 1) / (n - 2) - 2 * (k.sum(0) @ m.sum(0)) / (n - 2)
    assert float(hsic(x, y)) == pytest.approx(float(both) / (n * (n - 3)), abs=1e-6)


def test_the_diagonal_counts_for_nothing():
    k = rbf(drawn(5, 2, 1)[0], 1.0)
    assert off_diagonal(k).diagonal().eq(0).all()
    assert torch.equal(off_diagonal(k) + torch.eye(5), k)


def test_hsic_is_zero_on_average_for_independent_features_and_not_for_dependent_ones():
    g = torch.Generator().manual_seed(1)
    values = [float(hsic(torch.randn(30, 1, generator=g), torch.randn(30, 1, generator=g))) for _ in range(300)]
    mean = sum(values) / 300
    spread = torch.tensor(values).std() / 300**0.5
    assert abs(mean) < 4 * spread and min(values) < 0
    x = torch.randn(200, 1, generator=g)
    assert float(hsic(x, x.square())) > 0.01  # though nothing is correlated


def test_distances_survive_a_large_common_offset():
    x, _ = drawn(6, 3, 1)
    slow = torch.tensor([[float((p - q).square().sum()) for q in x] for p in x])
    torch.testing.assert_close(squared_distances(x), slow, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(squared_distances(x + 1000), slow, atol=1e-2, rtol=1e-3)


def test_the_median_radius_makes_hsic_free_of_scale():
    x, y = drawn(20, 4, 3)
    torch.testing.assert_close(hsic(100 * x, 0.01 * y, 0), hsic(x, y, 0))
    distances = sorted(float((p - q).norm()) for p, q in itertools.combinations(x, 2))
    median = distances[(len(distances) - 1) // 2]
    torch.testing.assert_close(rbf(x, 0), rbf(x, median), atol=1e-5, rtol=1e-4)
    assert float(hsic(100 * x, 100 * y, 1)) == pytest.approx(0, abs=1e-12)  # what a radius of 1 would make of it


@pytest.mark.parametrize("n", [1, 2, 3])
def test_too_few_rows_give_zero_and_a_gradient_of_zero(n):
    x = torch.randn(n, 2, requires_grad=True)
    value = hsic(x, torch.randn(n, 2))
    value.backward()
    assert float(value.detach()) == 0 and x.grad.eq(0).all()


@pytest.mark.parametrize("sigma", [0.0, 1.0])
def test_equal_rows_give_no_nan(sigma):
    x = torch.ones(6, 2, requires_grad=True)
    value = hsic(x, torch.randn(6, 2), sigma)
    value.backward()
    assert float(value.detach()) == pytest.approx(0, abs=1e-7) and torch.isfinite(x.grad).all()


# The two networks


def test_the_biased_network_knows_colours_and_not_places():
    g = patches(3, 4, 1, (8, 16)).eval()
    x = torch.rand(2, 3, 9, 9)
    shuffled = x.flatten(2)[:, :, torch.randperm(81)].view(2, 3, 9, 9)
    torch.testing.assert_close(g.features(x), g.features(shuffled))
    seeing = patches(3, 4, 3, (8, 16)).eval()
    assert not torch.allclose(seeing.features(x), seeing.features(shuffled), atol=1e-4)


def test_the_biased_network_of_vectors_is_linear():
    g = flat((5,), 3)
    x, z = torch.randn(2, 5), torch.randn(2, 5)
    zero = g(torch.zeros(2, 5))
    torch.testing.assert_close(g(x + z) - zero, g(x) + g(z) - 2 * zero)


def start(method, data, net):
    run = open_run(data, net)
    stage = next(method.stages(run))
    f, g = run.modules
    rows = torch.arange(16)
    x = data.train.x[rows].float() / (255 if data.train.x.dtype == torch.uint8 else 1)
    return stage, f, g, Batch(x, data.train.y[rows], None, rows, torch.tensor(0.0))


@pytest.mark.parametrize(("data", "net"), [(tiny(), "mlp"), (tiny(), "linear"), (pictures(), "simconv1")])
def test_neither_loss_moves_the_other_network(data, net):
    stage, f, g, b = start(ReBias(lambda_f=3, lambda_g=3), data, net)
    for loss, own, other in zip(stage.loss, (g, f), (f, g), strict=True):
        own.zero_grad(), other.zero_grad()
        loss(b).backward()
        assert all(p.grad is None for p in other.parameters())
        assert any(p.grad is not None and p.grad.abs().max() > 0 for p in own.parameters())
    held = [{id(p) for group in o.param_groups for p in group["params"]} for o in stage.optimizer]
    assert held == [{id(p) for p in net.parameters()} for net in (g, f)]


def test_g_follows_f_and_f_flees_g():
    stage, f, g, b = start(ReBias(lambda_f=2, lambda_g=3, sigma=1.5), tiny(), "mlp")
    of_g, of_f = (float(loss(b).detach()) for loss in stage.loss)
    with torch.no_grad():
        together = float(hsic(f.features(b.x), g.features(b.x), 1.5))
        assert of_g == pytest.approx(float(ce(g(b.x), b.y)) - 3 * together, abs=1e-6)
        assert of_f == pytest.approx(float(ce(f(b.x), b.y)) + 2 * together, abs=1e-6)
    assert abs(together) > 1e-4


def test_g_has_random_numbers_of_its_own():
    """It starts the same from the same seed, differently from another, and f starts as in any other method."""
    data = pictures()
    runs = [open_run(data, "simconv1", seed) for seed in (0, 0, 1)]
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first, again, other = (ReBias().biased(run) for run in runs)
    assert torch.equal(torch.get_rng_state(), state)
    assert same_weights(first, again) and not same_weights(first, other)
    _, f, _, _ = start(ReBias(), data, "simconv1")
    assert same_weights(f, open_run(data, "simconv1").net())


def test_an_update_of_f_sees_the_updated_g():
    """One batch by hand: g first, then f."""
    data, recipe = tiny(n=20), Recipe("sgd", 0.5, momentum=0.0, batch_size=20, epochs=1)
    result = fit(ReBias(sigma=1.0), data, net="mlp", recipe=recipe, **CPU)
    run = open_run(data, "mlp")
    f, g = run.net(), ReBias().biased(run)
    x, y = data.train.x, data.train.y
    for own, other, sign in ((g, f, -1), (f, g, 1)):
        loss = ce(own(x), y) + sign * hsic(own.features(x), other.features(x).detach())
        own.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in own.parameters():
                p -= 0.5 * p.grad
    for mine, theirs in zip(f.parameters(), result.classifier.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5)


def test_kernels_that_see_nothing_are_said(capsys):
    data = tiny(n=64)
    fit(ReBias(sigma=1e-3), data, net="mlp", **CPU)
    assert "this is plain training" in capsys.readouterr().err
    fit(ReBias(sigma=0), data, net="mlp", **CPU)
    assert capsys.readouterr().err == ""


def colours(n=300, rho=0.03, size=8):
    """Colour images whose class is the direction of stripes, and whose bias is the colour."""
    g = torch.Generator().manual_seed(0)

    def split(rows, conflicting):
        y = torch.arange(rows) % 2
        a = torch.where(torch.rand(rows, generator=g) < conflicting, 1 - y, y)
        stripes = torch.zeros(rows, 1, size, size)
        stripes[y == 0, :, ::2] = 1
        stripes[y == 1, :, :, ::2] = 1
        colour = torch.stack([1.0 - a, a.float(), torch.full((rows,), 0.5)], dim=1)[:, :, None, None]
        x = 60 * stripes + 70 * colour + 60 * torch.rand(rows, 3, size, size, generator=g)
        return Split(x.to(torch.uint8), y, a[:, None])

    return Bundle("colours", split(n, rho), None, split(400, 0.5))


def small():
    body = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU())
    return nn.Sequential(body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 2))


def test_it_repairs_a_network_that_follows_the_colour():
    data, recipe = colours(), Recipe("adam", 3e-3, batch_size=50, epochs=12)
    torch.manual_seed(0)
    own = small()
    plain, rebias = (fit(ReBias(lambda_f=weight), data, net=own, recipe=recipe, seed=1, **CPU) for weight in (0, 4))
    assert plain.scores["conflicting"] < 20 and rebias.scores["conflicting"] > 70
    assert rebias.scores["unbiased"] > plain.scores["unbiased"] + 20
    colour = nn.functional.one_hot(data.test.a[:, 0]).float()
    x = data.test.x.float() / 255
    before, after = (float(hsic(r.classifier.features(x).detach(), colour, 0)) for r in (plain, rebias))
    assert after < 0.5 * before
    assert rebias.labels_used == "none"


def test_with_the_median_radius_it_does_not_pay_to_shrink_the_features():
    x, y = drawn(12, 3, 2)
    size = torch.ones((), requires_grad=True)
    (grown,) = torch.autograd.grad(hsic(size * x, y, 0), size)
    assert abs(float(grown)) < 1e-5
    (fixed,) = torch.autograd.grad(hsic(size * x, y, 1.0), size)
    assert abs(float(fixed)) > 1e-4
