"""The bias-adversarial attack: what it finds, where it stays, and what it leaves alone."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from spurless.core.data import Images
from spurless.core.recipe import Recipe
from spurless.methods.parts.attacks import (
    Attack,
    bias_adversarial,
    pixel_range,
    project,
    random_point,
    steepest,
    within,
)
from spurless.nets.outputs import Inputs
from tests.support.attacks import slow_attack
from tests.support.worlds import pictures, tiny

MEAN, STD = (0.5, 0.3, 0.4), (0.2, 0.25, 0.3)


def conv(seed, dropout=0.5):
    """A small network with all that has a mode, and with statistics that are not those of the start."""
    torch.manual_seed(seed)
    net = nn.Sequential(
        *(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.Dropout(dropout), nn.Flatten(), nn.Linear(144, 3))
    )
    net(torch.randn(16, 3, 8, 8))
    return net


def images(n=6, seed=0):
    """Standardised images, a third of whose pixels are black or white; their labels; their pixel range."""
    g = torch.Generator().manual_seed(seed)
    raw = (torch.rand(n, 3, 8, 8, generator=g) * 1.5 - 0.25).clamp(0, 1)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (MEAN, STD))
    return (raw - mean) / std, torch.arange(n) % 3, (0 - mean) / std, (1 - mean) / std


@torch.no_grad()
def objective(x, y, biased, debiased, lam):
    biased, debiased = copy.deepcopy(biased).eval(), copy.deepcopy(debiased).eval()
    ce = nn.CrossEntropyLoss(reduction="none")
    return ce(biased(x), y) - lam * ce(debiased(x), y)  # (n,)


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("lam", [0.0, 0.5, 2.0])
def test_the_attack_raises_its_objective_on_every_row(norm, lam):
    x, y, low, high = images()
    biased, debiased = conv(1), conv(2)
    eps = {"l2": 1.0, "linf": 0.05}[norm]
    adv = bias_adversarial(x, y, biased, debiased, Attack(lam=lam, eps=eps, steps=7, norm=norm, low=low, high=high))
    gain = objective(adv, y, biased, debiased, lam) - objective(x, y, biased, debiased, lam)
    assert bool((gain > 0.05).all()), gain


def test_more_lambda_spares_the_debiased_network():
    x, y, _, _ = images(24)
    biased, debiased = conv(1), conv(2)
    losses = []
    for lam in (0.0, 0.5, 4.0):
        adv = bias_adversarial(x, y, biased, debiased, Attack(lam=lam, eps=1.0, steps=5))
        losses.append(float(objective(adv, y, debiased, debiased, 0.0).mean()))
    assert losses[0] > losses[1] > losses[2]


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("random_start", [False, True])
@pytest.mark.parametrize(("eps", "steps", "size"), [(0.3, 5, None), (2.0, 3, None), (0.5, 4, 10.0), (0.0, 2, None)])
def test_it_stays_in_the_ball_and_in_the_pixel_range(norm, random_start, eps, steps, size):
    x, y, low, high = images()
    how = {"lam": 0.5, "eps": eps, "steps": steps, "norm": norm, "step_size": size}
    adv = bias_adversarial(x, y, conv(1), conv(2), Attack(**how, random_start=random_start, low=low, high=high))
    change = (adv - x).flatten(1)
    far = change.norm(dim=1) if norm == "l2" else change.abs().amax(1)
    assert bool((far <= eps * (1 + 1e-5) + 1e-6).all())
    assert bool((adv >= low).all()) and bool((adv <= high).all())
    if eps:
        assert bool((far > 0.1 * eps).all())  # and it does not stay where it was


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("size", [None, 0.03])
def test_it_equals_the_slow_attack(norm, size):
    x, y, low, high = images(4)
    biased, debiased = conv(1), conv(2)
    how = {"lam": 0.7, "eps": 0.2, "steps": 3, "norm": norm}
    adv = bias_adversarial(x, y, biased, debiased, Attack(**how, step_size=size, low=low, high=high))
    slow = slow_attack(x, y, biased, debiased, **how, size=size, low=low, high=high)
    torch.testing.assert_close(adv, slow, rtol=0, atol=2e-5)


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_without_lambda_it_is_a_plain_attack_on_the_biased_network(norm):
    x, y, _, _ = images(4)
    biased = conv(1)
    adv = bias_adversarial(x, y, biased, conv(2), Attack(lam=0, eps=0.2, steps=3, norm=norm))
    other = bias_adversarial(x, y, biased, conv(3), Attack(lam=0, eps=0.2, steps=3, norm=norm))
    assert torch.equal(adv, other)
    torch.testing.assert_close(adv, slow_attack(x, y, biased, None, 0, 0.2, 3, norm), rtol=0, atol=2e-5)


def test_one_step_on_linear_networks_in_closed_form():
    biased, debiased = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    biased.weight.data, debiased.weight.data = torch.eye(2), torch.tensor([[0.0, 0.0], [2.0, 0.0]])
    x, y = torch.zeros(1, 2), torch.tensor([0])
    # Both give probabilities (1/2, 1/2), so ∇CE = Wᵀ(−1/2, 1/2): (−1/2, 1/2) and (1, 0). With λ = 1/4: (−3/4, 1/2).
    l2 = bias_adversarial(x, y, biased, debiased, Attack(lam=0.25, eps=0.3, steps=1))
    length = math.sqrt(13) / 4
    torch.testing.assert_close(l2, torch.tensor([[-0.3 * 0.75 / length, 0.3 * 0.5 / length]]))
    linf = bias_adversarial(x, y, biased, debiased, Attack(lam=0.25, eps=0.3, steps=1, norm="linf"))
    torch.testing.assert_close(linf, torch.tensor([[-0.3, 0.3]]))
    short = bias_adversarial(x, y, biased, debiased, Attack(lam=0.25, eps=0.3, steps=1, norm="linf", step_size=0.1))
    torch.testing.assert_close(short, torch.tensor([[-0.1, 0.1]]))


def test_rows_do_not_disturb_one_another():
    x, y, _, _ = images(6)
    biased, debiased = conv(1), conv(2)
    how = {"lam": 0.5, "eps": 0.5, "steps": 3}
    together = bias_adversarial(x, y, biased, debiased, Attack(**how))
    alone = torch.cat([bias_adversarial(x[i : i + 1], y[i : i + 1], biased, debiased, Attack(**how)) for i in range(6)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)


# What it leaves alone


def test_no_parameter_gradient_statistic_mode_or_random_number_changes():
    x, y, low, high = images()
    biased, debiased = conv(1), conv(2).eval()
    debiased[3].train()  # mixed modes: each module must get its own back
    before = [copy.deepcopy(net.state_dict()) for net in (biased, debiased)]
    modes = [[m.training for m in net.modules()] for net in (biased, debiased)]
    kept, random = x.clone(), torch.get_rng_state()
    adv = bias_adversarial(x, y, biased, debiased, Attack(lam=0.5, eps=0.5, steps=3, low=low, high=high))
    for net, state, mode in zip((biased, debiased), before, modes, strict=True):
        assert all(torch.equal(v, state[k]) for k, v in net.state_dict().items())
        assert all(p.grad is None and p.requires_grad for p in net.parameters())
        assert [m.training for m in net.modules()] == mode
    assert torch.equal(x, kept) and not x.requires_grad
    assert torch.equal(torch.get_rng_state(), random)  # dropout was off, and there was no random start
    assert not adv.requires_grad and adv.grad_fn is None


def test_gradients_that_are_there_already_are_left_alone():
    x, y, _, _ = images()
    biased, debiased = conv(1), conv(2)
    debiased(x).sum().backward()
    before = [p.grad.clone() for p in debiased.parameters()]
    bias_adversarial(x, y, biased, debiased, Attack(lam=0.5, eps=0.5, steps=2))
    assert all(torch.equal(p.grad, g) for p, g in zip(debiased.parameters(), before, strict=True))


def test_modes_come_back_after_an_error_too():
    x, y, _, _ = images()
    biased, debiased = conv(1), nn.Sequential(nn.Dropout(), nn.Linear(5, 3))  # the wrong size
    with pytest.raises(RuntimeError):
        bias_adversarial(x, y, biased, debiased, Attack(lam=0.5, eps=0.5, steps=2))
    assert all(m.training for net in (biased, debiased) for m in net.modules())


def test_it_works_where_gradients_are_off_and_under_autocast():
    x, y, _, _ = images()
    biased, debiased = conv(1), conv(2)
    how = {"lam": 0.5, "eps": 0.5, "steps": 3}
    plain = bias_adversarial(x, y, biased, debiased, Attack(**how))
    with torch.no_grad():
        assert torch.equal(bias_adversarial(x, y, biased, debiased, Attack(**how)), plain)
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        rough = bias_adversarial(x, y, biased, debiased, Attack(**how))
    assert rough.dtype == torch.float32
    assert bool(((rough - x).flatten(1).norm(dim=1) <= 0.5 + 1e-5).all())
    assert float(nn.functional.cosine_similarity((rough - x).flatten(1), (plain - x).flatten(1)).min()) > 0.8


# The pieces


def test_projections_by_hand():
    change = torch.tensor([[3.0, 4.0], [0.3, -0.4], [0.0, 0.0]])
    assert torch.allclose(project(change, 1.0, "l2"), torch.tensor([[0.6, 0.8], [0.3, -0.4], [0.0, 0.0]]))
    assert torch.equal(project(change, 1.0, "l2")[1:], change[1:])  # inside: not even rounded
    assert torch.equal(project(change, 1.0, "linf"), torch.tensor([[1.0, 1.0], [0.3, -0.4], [0.0, 0.0]]))
    for norm in ("l2", "linf"):
        assert torch.equal(project(change, 0.0, norm), torch.zeros(3, 2))


def test_a_row_is_an_image_not_a_channel():
    change = torch.zeros(2, 3, 2, 2)
    change[0, 0, 0, 0], change[0, 2, 1, 1] = 3.0, 4.0
    out = project(change, 1.0, "l2")
    assert float(out[0].norm()) == pytest.approx(1) and float(out[0, 0, 0, 0]) == pytest.approx(0.6)
    assert float(steepest(change, "l2")[0, 2, 1, 1]) == pytest.approx(0.8)


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1.0, 1e30])
def test_the_direction_does_not_depend_on_the_size_of_the_gradient(scale):
    grad = torch.tensor([[3.0, -4.0], [0.0, 0.0]]) * scale
    torch.testing.assert_close(steepest(grad, "l2"), torch.tensor([[0.6, -0.8], [0.0, 0.0]]))
    assert torch.equal(steepest(grad, "linf"), torch.tensor([[1.0, -1.0], [0.0, 0.0]]))


def test_a_random_start_is_uniform_in_the_ball():
    x = torch.zeros(20_000, 1, 1, 3)
    inside = random_point(x, 2.0, "l2").flatten(1)
    share = (inside.norm(dim=1) / 2) ** 3  # of the ball's volume that lies further in: uniform from 0 to 1
    error = 4 / math.sqrt(12 * len(x))
    assert float(share.max()) <= 1 + 1e-5 and abs(float(share.mean()) - 0.5) < error
    assert bool((inside.mean(0).abs() < 4 * 2 / math.sqrt(5 * len(x))).all())
    cube = random_point(x, 2.0, "linf")
    assert float(cube.abs().max()) <= 2 and abs(float(cube.abs().mean()) - 1) < 2 * error


def test_a_random_start_differs_and_repeats_with_the_seed():
    x, y, _, _ = images()
    biased, debiased = conv(1), conv(2)

    def started(seed):
        torch.manual_seed(seed)
        return bias_adversarial(x, y, biased, debiased, Attack(lam=0.5, eps=0.5, steps=0, random_start=True))

    assert torch.equal(started(0), started(0)) and not torch.equal(started(0), started(1))
    assert not torch.equal(started(0), x)


def test_the_pixel_range_is_what_black_and_white_become():
    data = replace(pictures(n=4), inputs=Images(MEAN, STD))
    inputs = Inputs(data, Recipe(channels_last=False), torch.device("cpu"))
    black_white = inputs(torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 3, 4, 4))
    low, high = pixel_range(data)
    torch.testing.assert_close(low.expand(1, 3, 4, 4), black_white[:1])
    torch.testing.assert_close(high.expand(1, 3, 4, 4), black_white[1:])
    low, high = pixel_range(pictures(n=4))
    assert low.flatten().tolist() == [0.0] and high.flatten().tolist() == [1.0]


def test_what_is_no_stored_image_has_no_range():
    assert pixel_range(tiny()) == (None, None)
    data = pictures(n=4)
    floats = replace(data, train=replace(data.train, x=data.train.x.float()))
    assert pixel_range(floats) == (None, None)
    x = torch.tensor([-9.0, 9.0])
    assert within(x, None, None) is x
    assert within(x, -1.0, None).tolist() == [-1.0, 9.0] and within(x, None, 1.0).tolist() == [-9.0, 1.0]
