"""The theorems, against numbers."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from spurless.datasets.linear_toy import load
from spurless.engine import fit
from spurless.errors import UserError
from spurless.nets import build
from spurless.registry import load_data
from spurless.theory import (
    Decomposed,
    activation_variability,
    debiasing_phi,
    error_bound,
    expected_posterior,
    gradient_flow,
    gradient_ratio,
    growth_rate,
    information_gain_ratio,
    invariant_bounds,
    loss_ratio,
    margin,
    margins,
    pruned_error,
    rank_correlation,
    spurious_correlation,
    spurious_floor,
    spurious_ratio,
    trained_ratio,
)
from tests.reference import gradient_ratio_by_hand, loss_ratio_by_hand

P = (0.6, 0.75, 0.9, 0.99)


def exact_error(pi_inv, pi_sp, alpha, p, phi=0.0):
    """Equation 2 by enumeration: each spurious term is α, 0 or −α."""
    total, q = 0.0, p * (1 - phi)
    for m, signs in itertools.product((0, 1), itertools.product((1, 0, -1), repeat=len(alpha))):
        chance = pi_inv if m else 1 - pi_inv
        for s, pi in zip(signs, pi_sp, strict=True):
            chance *= {1: pi * q, 0: 1 - pi, -1: pi * (1 - q)}[s]
        output = round(m + float(np.dot(signs, alpha)), 12)
        total += chance * (1.0 if output < 0 else 0.5 if output == 0 else 0.0)
    return total


def worlds(count, D, rng):
    for _ in range(count):
        yield rng.random(), rng.random(D), rng.random(D) * rng.choice([0.1, 0.5, 1.0])


def test_monte_carlo_is_the_error():
    rng = np.random.default_rng(0)
    for pi_inv, pi_sp, alpha in worlds(5, 4, rng):
        for p, phi in ((0.9, 0.0), (0.8, 0.2)):
            wanted = exact_error(pi_inv, pi_sp, alpha, p, phi)
            assert pruned_error(pi_inv, pi_sp, alpha, p, phi, n=40_000) == pytest.approx(wanted, abs=0.012)


@pytest.mark.parametrize("p", P)
def test_the_error_is_never_above_its_bound(p):
    """Theorem 1 in training (p) and on test data (1/2), theorem 2 for every φ that it allows; exact, and simulated."""
    rng = np.random.default_rng(1)
    informative = 0
    for pi_inv, pi_sp, alpha in worlds(40, 4, rng):
        for q, phi in ((p, 0.0), (0.5, 0.0), (p, 0.5 * debiasing_phi(p)), (p, debiasing_phi(p))):
            bound = error_bound(pi_inv, pi_sp, alpha, q, phi)
            assert exact_error(pi_inv, pi_sp, alpha, q, phi) <= bound + 1e-12
            informative += bound < 1
    assert informative > 5
    for D in (1, 15, 50):
        for pi_inv, pi_sp, alpha in worlds(10, D, rng):
            assert pruned_error(pi_inv, pi_sp, alpha, p, n=5_000) <= error_bound(pi_inv, pi_sp, alpha, p)


@pytest.mark.parametrize("p", P)
def test_phi_makes_the_training_bound_the_test_bound(p):
    rng = np.random.default_rng(2)
    for pi_inv, pi_sp, alpha in worlds(20, 15, rng):
        debiased = error_bound(pi_inv, pi_sp, alpha, p, debiasing_phi(p))
        assert debiased == pytest.approx(error_bound(pi_inv, pi_sp, alpha, 0.5), rel=1e-9)
        by_hand = 2 * math.exp(-2 * pi_inv**2 / (4 * sum(alpha**2) + 1))
        assert debiased == pytest.approx(by_hand, rel=1e-9)
        assert error_bound(pi_inv, pi_sp, alpha, p) < debiased  # the gap that keeps spurious weights alive
    assert debiasing_phi(p) == pytest.approx(1 - 1 / (2 * p))
    x = load(D=3, n=40_000, p=p, phi=debiasing_phi(p), n_val=0, n_test=0).train.x  # and the data set does so
    assert float((x[:, :1] * x[:, 1:]).mean()) == pytest.approx(0, abs=0.015)


def test_the_margin_is_the_mean_output():
    rng = np.random.default_rng(3)
    pi_inv, pi_sp, alpha = 0.7, rng.random(4), rng.random(4)
    n = 200_000
    agrees = np.where(rng.random((n, 4)) < 0.9 * 0.8, 1, -1)
    output = (rng.random(n) < pi_inv) + (agrees * (rng.random((n, 4)) < pi_sp)) @ alpha
    assert margin(pi_inv, pi_sp, alpha, 0.9, phi=0.2) == pytest.approx(output.mean(), abs=0.01)


def test_a_negative_margin_claims_nothing():
    assert error_bound(0.0, np.ones(3), np.ones(3), p=0.9, phi=0.9) == 2


# Dynamics


@pytest.mark.parametrize("p", [0.7, 0.9, 0.99])
def test_gradient_flow_stays_within_the_papers_bounds(p):
    D, t = 5, np.concatenate([[0], np.logspace(-2, 4, 60)])
    start = np.full(D, 0.1)
    flow = gradient_flow(0.2, start, p, t)
    low, high = invariant_bounds(0.2, start, p, t)
    slack = 1e-6
    assert (low - slack <= flow.inv).all() and (flow.inv <= high + slack).all()
    assert (np.diff(flow.inv) > 0).all() and (np.diff(flow.sp[:, 0]) > -slack).all()
    assert (flow.sp <= math.log(p / (1 - p)) / 2 + slack).all()
    assert (flow.sp[:, 0] >= spurious_floor(0.1, p, D, t, last=flow.inv[-1]) - slack).all()
    assert (flow.alpha > 0).all()


def test_equation_39_holds_with_the_addition_outside_artanh_and_not_as_printed():
    p, w, t = 0.55, 0.05, np.linspace(0, 10, 50)
    flow = gradient_flow(0.001, np.array([w]), p, t)
    last = flow.inv[-1]
    push = math.exp(-last) * math.sqrt(p * (1 - p)) * t
    printed = math.log(p / (1 - p)) / 2 + np.log(math.sqrt((1 - p) / p) * math.exp(w) + push)  # log tanh artanh
    assert (printed - flow.sp[:, 0]).max() > 0.3
    assert (spurious_floor(w, p, 1, t, last) <= flow.sp[:, 0] + 1e-6).all()


def test_the_flow_is_gradient_descent_with_small_steps():
    p, D, dt = 0.8, 3, 1e-3
    w = np.array([0.3, 0.1, 0.2, 0.05])
    rows = np.array(list(itertools.product((1, -1), repeat=D)))
    x = np.concatenate([np.ones((8, 1)), rows], axis=1)
    chance = np.prod(np.where(rows == 1, p, 1 - p), axis=1)
    flow = gradient_flow(w[0], w[1:], p, np.array([0.0, 2.0]))
    for _ in range(2000):
        w = w + dt * (chance * np.exp(-x @ w)) @ x  # minus the gradient of E exp(−w·x)
    assert flow.inv[-1] == pytest.approx(w[0], abs=1e-3) and flow.sp[-1] == pytest.approx(w[1:], abs=1e-3)


def test_the_ratio_vanishes_with_time_but_the_more_slowly_the_stronger_the_bias():
    t = np.array([0.0, 1e2, 1e4, 1e7])
    ratios = {p: gradient_flow(0.1, np.full(15, 0.1), p, t).alpha for p in (0.7, 0.9, 0.99)}
    for alpha in ratios.values():
        assert (np.diff(alpha) < 0).all()
    assert (ratios[0.7][1:] < ratios[0.9][1:]).all() and (ratios[0.9][1:] < ratios[0.99][1:]).all()
    assert ratios[0.7][-1] < 0.05 and ratios[0.99][1] > 0.9
    limit = math.log(0.7 / 0.3) / 2
    assert gradient_flow(0.1, np.full(15, 0.1), 0.7, t).sp[-1] == pytest.approx(limit, abs=1e-3)


def test_figure_2_the_ratio_grows_towards_1_and_the_unbiased_accuracy_falls():
    found = [trained_ratio(p, epochs=40, n=4096, seed=0) for p in (0.6, 0.8, 0.95, 0.99)]
    ratios, accuracies = [f.ratio for f in found], [f.accuracy for f in found]
    assert ratios == sorted(ratios) and ratios[0] < 0.35 and 0.9 < ratios[-1] < 1
    assert accuracies[0] > 95 > 75 > accuracies[-1]


# AVP's definitions


def test_definition_3_9_by_hand():
    z = np.array([[0.0], [0.0], [1.0], [1.0]])
    seen, true = (z, np.array([0, 0, 1, 1])), (z, np.array([0, 1, 0, 1]))
    assert expected_posterior(*[seen[0][:, 0], seen[1]]) == 1
    assert spurious_correlation(seen, true).tolist() == [0.5]
    assert spurious_correlation(seen, seen).tolist() == [0]


def test_definition_3_10_by_hand():
    # z says the label with 3/4: H(y|z) = h(1/4), I = log 2 − h(1/4).
    z, y = np.repeat([0, 1], 8), np.array([0] * 6 + [1] * 2 + [1] * 6 + [0] * 2)
    h = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    j = (math.log(2) - h) / h
    assert information_gain_ratio(z, y) == pytest.approx(j)
    w = np.array([0] * 7 + [1] * 1 + [1] * 7 + [0] * 1)  # with 7/8
    g = -(0.125 * math.log(0.125) + 0.875 * math.log(0.875))
    beta = spurious_ratio((z[:, None], w), (z[:, None], y))
    assert beta[0] == pytest.approx(abs((math.log(2) - g) / g - j) / j)
    assert spurious_ratio((z[:, None], y), (z[:, None], y))[0] == 0
    assert information_gain_ratio(z, z) == math.inf


def test_a_latent_that_tells_nothing_gains_next_to_nothing():
    rng = np.random.default_rng(0)
    assert information_gain_ratio(rng.standard_normal(20_000), rng.integers(0, 2, 20_000)) < 0.002


def test_beta_does_not_see_the_scale_of_a_latent_and_kappa_is_nothing_but():
    """So β cannot be a falling function of κ without more being said (theorem 3.13)."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 4000)
    z = (y + rng.standard_normal(4000))[:, None] + 3
    seen, true = (z, y), (z + 0.5 * rng.standard_normal((4000, 1)), y)
    again = (10 * seen[0], y), (10 * true[0], y)
    assert spurious_ratio(*again) == pytest.approx(spurious_ratio(seen, true))
    assert activation_variability(again[0][0]) == pytest.approx(10 * activation_variability(z))


def test_on_the_toy_the_most_spurious_input_varies_most():
    """Of what the theorem says, the opposite."""
    data = load_data("toy")
    seen, true = ((s.x.numpy().astype(float), s.y.numpy()) for s in (data.train, data.test))
    beta, variance = spurious_ratio(seen, true), seen[0].var(0)
    assert (
        beta[:3].argmax() == variance.argmax() == 2
    )  # of core, core and shortcut; noise has next to no J to divide by
    assert rank_correlation(beta[:3], variance[:3]) > 0


# Confident mistakes: the large-learning-rate study


def followers(n=40, classes=2, seed=0, least=0.5):
    """Logits of a network that follows the bias: aligned rows right by at least so much, conflicting ones wrong."""
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % classes
    aligned = torch.arange(n) < 0.9 * n
    shown = torch.where(aligned, y, (y + 1) % classes)
    logits = torch.rand(n, classes, generator=g).double()
    best = logits.max(1).values + least + torch.rand(n, generator=g)
    return logits.scatter(1, shown[:, None], best[:, None]), y, aligned


@pytest.mark.parametrize("classes", [2, 5])
def test_ratios_of_losses_are_exact_where_softmax_gives_nothing(classes):
    logits, y, aligned = followers(classes=classes)
    scales = (0.5, 3, 40, 400)
    found = loss_ratio(logits, y, aligned, scales)
    assert found == pytest.approx([loss_ratio_by_hand(logits, y, aligned, k) for k in scales], rel=1e-9)
    assert found[-1] > 1e80 and not torch.isfinite(
        1 / nn.functional.cross_entropy(400 * logits, y, reduction="none").min()
    )


@pytest.mark.parametrize("classes", [2, 5])
def test_proposition_1_holds_with_the_smallest_margin_of_an_aligned_row(classes):
    """Θ(k e^(αk)), also with margins that differ from row to row, and with more than two classes."""
    logits, y, aligned = followers(classes=classes)
    alpha = margins(logits, y, aligned).aligned
    assert margins(logits, y, aligned).follows
    k = np.linspace(400, 500, 5)
    ratios = loss_ratio(logits, y, aligned, k)
    assert growth_rate(k, ratios, power=1) == pytest.approx(alpha, rel=1e-3)
    assert abs(growth_rate(k, ratios, power=0) - alpha) > abs(growth_rate(k, ratios, power=1) - alpha)  # the k is there
    lead = -(logits - logits.gather(1, y[:, None])).scatter(1, y[:, None], -math.inf).amax(1)
    alone = int((lead[aligned] < alpha + 1e-9).sum())
    constant = ratios / (k * np.exp(alpha * k))
    assert constant == pytest.approx(float(-lead[~aligned].sum()) / alone, rel=0.01)
    assert margins(logits, y, aligned).conflicting == pytest.approx(float(-lead[~aligned].mean()))


def test_shared_margins_are_the_proofs_own_case():
    """Its constant, |Ω_bc| β / |Ω_ba|, to first order."""
    net = Decomposed().double()
    x, y = net.rows(aligned=90, conflicting=10)
    logits, aligned = net(x).detach(), torch.arange(100) < 90
    assert margins(logits, y, aligned) == (3.5, 2.0, True)
    k = np.array([8.0, 16.0, 32.0])
    assert loss_ratio(logits, y, aligned, k) / (k * np.exp(3.5 * k)) == pytest.approx(10 * 2 / 90, rel=1e-6)


def test_one_aligned_row_that_is_wrong_ends_the_growth():
    """So the assumption is not a formality: then both sums grow like k."""
    logits, y, aligned = followers()
    logits[0] = logits[0].flip(0)
    assert not margins(logits, y, aligned).follows
    ratios = loss_ratio(logits, y, aligned, [50, 100, 200])
    assert ratios[2] == pytest.approx(ratios[0], rel=0.02) and ratios[2] < 100


def test_a_network_that_trains_does_follow_the_bias_for_a_while():
    data = load_data({"name": "parity", "n": 3000, "n_test": 10})
    recipe = {"optimizer": "sgd", "lr": 0.1, "momentum": 0.0, "batch_size": 100, "iterations": 300, "until_accuracy": 0}
    net = fit("erm", data, {"name": "fcn", "width": 100}, recipe, device="cpu", progress=False).classifier.double()
    with torch.no_grad():
        logits = net(data.train.x.double())
    y, aligned = data.train.y, data.is_aligned(data.train)[:, 0]
    seen = margins(logits, y, aligned)
    assert seen.follows and seen.aligned > 0
    k = np.linspace(50, 100, 5) / seen.aligned
    assert growth_rate(k, loss_ratio(logits, y, aligned, k), 1) == pytest.approx(seen.aligned, rel=0.01)


def test_ratios_of_gradients_are_those_by_hand():
    net = build({"name": "mlp", "widths": [6], "activation": "tanh"}, (4,), 3).double()
    x, y = torch.randn(9, 4).double(), torch.arange(9) % 3
    some, others = ["encoder.1.weight", "encoder.1.bias"], ["head.weight"]
    found = gradient_ratio(net, x, y, some, others, [0.5, 2, 10])
    assert found == pytest.approx([gradient_ratio_by_hand(net, x, y, some, others, k) for k in (0.5, 2, 10)], rel=1e-6)
    with pytest.raises(UserError, match="no parameter 'heads.weight'"):
        gradient_ratio(net, x, y, ["heads.weight"], others, [1])
    with pytest.raises(UserError, match="at least one parameter"):
        gradient_ratio(net, x, y, [], others, [1])
    with pytest.raises(UserError, match="aligned and conflicting"):
        loss_ratio(torch.zeros(3, 2), torch.zeros(3).long(), torch.ones(3, dtype=torch.bool), [1])


def test_proposition_2_holds_where_the_core_part_has_converged_to_the_last_digit():
    net = Decomposed().double()
    x, y = net.rows(aligned=90, conflicting=10)
    k = np.array([4.0, 8.0, 16.0, 32.0])
    ratios = gradient_ratio(net, x, y, ["s"], ["c"], k)
    assert growth_rate(k, ratios, power=0) == pytest.approx(3.5, rel=1e-3)
    assert ratios / np.exp(3.5 * k) == pytest.approx(10 / 90, rel=0.001)


@pytest.mark.parametrize("leak", [1e-6, 1e-3, 0.1])
def test_and_not_where_it_has_only_nearly(leak):
    """≈ 0 in definition 1 is not enough: what is left of the core part's gradient grows like k, as the other does."""
    net = Decomposed(leak=leak).double()
    x, y = net.rows(aligned=90, conflicting=10)
    ratios = gradient_ratio(net, x, y, ["s"], ["c"], [16, 64])
    assert ratios == pytest.approx(1 / (4 * leak), rel=1e-3)  # 4 c u of the leak against v
    assert growth_rate([16, 64], ratios, power=0) < 1e-3


def test_a_linear_part_never_converges_in_the_sense_of_definition_1():
    """The gradient of f[y] − f[b] by the weights of a linear part is its input, whatever the weights are."""

    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            self.core, self.spurious = nn.Linear(3, 2, bias=False), nn.Linear(2, 2, bias=False)

        def forward(self, x):
            return self.core(x[:, :3]) + self.spurious(x[:, 3:])

    net = Linear().double()
    x, y = torch.randn(50, 5).double(), torch.zeros(50).long()
    lead = net(x).diff(dim=1)[:, 0].detach()
    aligned = lead < 0
    ratios = gradient_ratio(net, x, y, ["spurious.weight"], ["core.weight"], [10_000, 20_000])
    wrong = x[~aligned]
    assert ratios == pytest.approx(float(wrong[:, 3:].norm(dim=1).sum() / wrong[:, :3].norm(dim=1).sum()), rel=0.01)
