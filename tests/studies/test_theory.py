"""The theorems, against numbers."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from spurless.core.errors import UserError
from spurless.data.sets.linear_toy import load
from spurless.nets import build
from spurless.registry import load_data
from spurless.train.fit import fit
from studies.theory import (
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
    units_on_gaussians,
)
from tests.support import reference
from tests.support.reference import gradient_ratio_by_hand, loss_ratio_by_hand, pruned_error_by_hand

P = (0.6, 0.75, 0.9, 0.99)


def worlds(count, D, rng):
    for _ in range(count):
        yield rng.random(), rng.random(D), rng.random(D) * rng.choice([0.1, 0.5, 1.0])


def test_monte_carlo_is_the_error():
    rng = np.random.default_rng(0)
    for pi_inv, pi_sp, alpha in worlds(5, 4, rng):
        for p, phi in ((0.9, 0.0), (0.8, 0.2)):
            wanted = pruned_error_by_hand(pi_inv, pi_sp, alpha, p, phi)
            assert pruned_error(pi_inv, pi_sp, alpha, p, phi, n=40_000) == pytest.approx(wanted, abs=0.012)


@pytest.mark.parametrize("p", P)
def test_the_error_is_never_above_its_bound(p):
    """Theorem 1 in training (p) and on test data (1/2), theorem 2 for every φ that it allows; exact, and simulated."""
    rng = np.random.default_rng(1)
    informative = 0
    for pi_inv, pi_sp, alpha in worlds(40, 4, rng):
        for q, phi in ((p, 0.0), (0.5, 0.0), (p, 0.5 * debiasing_phi(p)), (p, debiasing_phi(p))):
            bound = error_bound(pi_inv, pi_sp, alpha, q, phi)
            assert pruned_error_by_hand(pi_inv, pi_sp, alpha, q, phi) <= bound + 1e-12
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
    x = load(D=3, n=40_000, p=p, phi=debiasing_phi(p), n_val=0, n_test=0).train.x  # and the dataset does so
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
    w = reference.flow_by_hand(0.3, [0.1, 0.2, 0.05], 0.8, 2.0)
    flow = gradient_flow(0.3, np.array([0.1, 0.2, 0.05]), 0.8, np.array([0.0, 2.0]))
    assert flow.inv[-1] == pytest.approx(w[0], abs=1e-3) and flow.sp[-1] == pytest.approx(w[1:], abs=1e-3)


def test_bounds_are_those_by_hand():
    for world in worlds(10, 3, np.random.default_rng(5)):
        for p, phi in ((0.9, 0.0), (0.8, 0.3), (0.6, 0.9)):
            assert margin(*world, p, phi) == pytest.approx(reference.margin_by_hand(*world, p, phi), abs=1e-9)
            assert error_bound(*world, p, phi) == pytest.approx(reference.error_bound_by_hand(*world, p, phi))
            assert debiasing_phi(p) == pytest.approx(reference.debiasing_phi_by_hand(p), abs=1e-12)


@pytest.mark.parametrize("p", [0.6, 0.9])
def test_bounds_of_weights_are_those_by_hand(p):
    w_inv, w_sp, t = 0.3, [0.1, 0.05, -0.2], 1.5
    found = invariant_bounds(w_inv, np.array(w_sp), p, np.array([t]))
    assert np.ravel(found) == pytest.approx(reference.invariant_bounds_by_hand(w_inv, w_sp, p, t), abs=1e-3)
    floor = spurious_floor(0.1, p, 3, np.array([t]), last=0.8)
    assert floor == pytest.approx(reference.spurious_floor_by_hand(0.1, p, 3, t, 0.8), abs=1e-3)


def test_a_trained_classifier_is_that_by_hand():
    settings = {"p": 0.8, "D": 3, "n": 50, "epochs": 6, "batch": 16, "lr": 0.3, "seed": 2}
    found = trained_ratio(**settings)
    assert found == pytest.approx(reference.trained_ratio_by_hand(**settings), rel=1e-4)
    assert 0 < found.ratio < 1


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


def test_neighbouring_numbers_are_different_values():
    one = np.nextafter(1.0, 2.0)  # whose middle with the next number is that number
    z, y = np.array([one, np.nextafter(one, 2.0)] * 2), np.array([0, 1] * 2)
    assert information_gain_ratio(z, y) == math.inf and expected_posterior(z, y) == 1


def two_data(n=60, few=False):
    rng = np.random.default_rng(7)
    y, other = rng.integers(0, 3, n), rng.integers(0, 3, n + 10)
    z, true = rng.standard_normal((n, 2)) + y[:, None], rng.standard_normal((n + 10, 2)) + 0.3 * other[:, None]
    return ((z.round(), y), (true.round(), other)) if few else ((z, y), (true, other))


@pytest.mark.parametrize("few", [False, True])
def test_definitions_are_those_by_hand(few):
    seen, true = two_data(few=few)
    rows = [(z.tolist(), y.tolist()) for z, y in (seen, true)]
    z, y = seen[0][:, 0], seen[1]
    edges = reference.edges_by_hand(z.tolist(), 8)
    assert expected_posterior(z, y, bins=8) == pytest.approx(reference.expected_posterior_by_hand(z, y, edges))
    assert information_gain_ratio(z, y, bins=8) == pytest.approx(reference.gain_ratio_by_hand(z, y, edges))
    assert spurious_correlation(seen, true, 8) == pytest.approx(reference.spurious_correlation_by_hand(*rows, 8))
    assert spurious_ratio(seen, true, 8) == pytest.approx(reference.spurious_ratio_by_hand(*rows, 8))
    a = np.array([[1.0, -2.0, 0.5], [3.0, 0.1, -1.0]])
    assert activation_variability(true[0] + 9, a) == pytest.approx(
        np.array(reference.variability_by_hand((true[0] + 9).tolist(), a.tolist()))
    )
    first, second = seen[0].T.round(1)
    assert rank_correlation(first, second) == pytest.approx(reference.correlation_by_hand(first, second)[1])


def test_units_are_those_by_hand(capsys):
    found = units_on_gaussians("random", seed=3, epochs=5, rows=40)
    data = load_data({"name": "gaussians", "labels": "random", "seed": 3})
    fresh = load_data({"name": "gaussians", "labels": "random", "seed": 1003, "n": 40, "n_test": 40})
    mlp = {"name": "mlp", "widths": [32, 32], "activation": "tanh"}
    net = fit("erm", data, net=mlp, recipe={"epochs": 5}, seed=3, device="cpu", progress=False).classifier
    z = np.array(reference.hidden_by_hand(net, data.train.x))
    assert z.shape[1] == len(found.layer) == 64
    assert found.mean == pytest.approx([sum(c) / len(c) for c in z.T], abs=1e-5)
    assert found.variance == pytest.approx([sum((c - c.mean()) ** 2) / len(c) for c in z.T], abs=1e-5)
    assert found.kappa == pytest.approx(found.variance / abs(found.mean))
    pairs = [(reference.hidden_by_hand(net, s.x), s.y.tolist()) for s in (fresh.train, fresh.test)]
    assert found.beta[:6] == pytest.approx(reference.spurious_ratio_by_hand(*pairs, 16)[:6])


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
    net = fit(
        "erm", data, net={"name": "fcn", "width": 100}, recipe=recipe, device="cpu", progress=False
    ).classifier.double()
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


@pytest.mark.parametrize("leak", [0.0, 0.2])
def test_the_decomposed_network_by_hand(leak):
    net = Decomposed(core=0.4, spurious=2.0, leak=leak)
    for u, v in itertools.product((-1.0, 1.0), repeat=2):
        out = net(torch.tensor([[u, v]])).tolist()[0]
        assert out[1] - out[0] == pytest.approx(reference.decomposed_by_hand(u, v, 0.4, 2.0, leak))
        assert out[0] == -out[1]


# What is given


def test_lists_and_tensors_are_taken_as_arrays_are():
    seen, true = two_data()
    z, y = seen[0][:, 0], seen[1]
    for like in (np.ndarray.tolist, torch.from_numpy):
        pairs = [tuple(like(np.array(each)) for each in pair) for pair in (seen, true)]
        assert expected_posterior(like(z), like(y)) == expected_posterior(z, y)
        assert spurious_correlation(*pairs).tolist() == spurious_correlation(seen, true).tolist()
        assert spurious_ratio(*pairs).tolist() == spurious_ratio(seen, true).tolist()
        assert activation_variability(pairs[0][0]).tolist() == activation_variability(seen[0]).tolist()  # not n − 1
        assert rank_correlation(like(z), like(z)) == pytest.approx(1)
        for bound in (margin, error_bound, pruned_error):
            assert bound(1.0, like(np.array([0.5, 1])), like(np.array([0.2, 0.3])), 0.9) == bound(
                1.0, np.array([0.5, 1]), np.array([0.2, 0.3]), 0.9
            )
        t = np.array([0.5, 1.0])
        assert gradient_flow(0.1, like(np.array([0.1])), 0.9, like(t)).inv == pytest.approx(
            gradient_flow(0.1, np.array([0.1]), 0.9, t).inv
        )
        assert np.array_equal(
            invariant_bounds(0.1, like(np.array([0.1])), 0.9, like(t))[0],
            invariant_bounds(0.1, np.array([0.1]), 0.9, t)[0],
        )
        assert np.array_equal(spurious_floor(0.1, 0.9, 3, like(t), 1.0), spurious_floor(0.1, 0.9, 3, t, 1.0))
    assert expected_posterior(z, y, edges=[0.5, -0.5]) == expected_posterior(z, y, edges=np.array([-0.5, 0.5]))


def test_lists_and_arrays_are_taken_as_tensors_are():
    logits, y, aligned = followers()
    for like in (torch.Tensor.tolist, torch.Tensor.numpy):
        given = like(logits), like(y), like(aligned)
        assert margins(*given) == pytest.approx(margins(logits, y, aligned), rel=1e-6)  # a list is of single precision
        assert loss_ratio(*given, [1, 2]) == pytest.approx(loss_ratio(logits, y, aligned, [1, 2]), rel=1e-5)
    net = Decomposed().double()
    x, y = net.rows(9, 1)
    expected = gradient_ratio(net, x, y, ["s"], ["c"], [2])
    for like in (torch.Tensor.tolist, torch.Tensor.numpy):
        assert gradient_ratio(net, like(x), like(y), "s", "c", [2]) == pytest.approx(expected)
    assert growth_rate(torch.tensor([1.0, 2]), torch.tensor([1.0, 4]), 0) == pytest.approx(math.log(4))
    assert growth_rate([0, 2], [1, math.e], 0) == pytest.approx(0.5)


def test_a_network_in_training_mode_is_asked_in_evaluation_mode():
    net = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 2)).double()
    x, y = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)).double(), torch.arange(8) % 2
    found = gradient_ratio(net, x, y, ["0.weight"], ["2.weight"], [1, 3])
    assert net.training and float(net[0].running_mean.abs().sum()) == 0
    assert found == pytest.approx(gradient_ratio(net.eval(), x, y, ["0.weight"], ["2.weight"], [1, 3]))


Z, Y, ONE, TIMES = np.array([0.0, 0, 1, 1]), np.array([0, 1, 1, 1]), np.ones(2), np.array([0.0, 1.0])
LOGITS, LABELS, ALIGNED = torch.tensor([[2.0, 0], [3, 0], [1, 0]]), torch.tensor([0, 0, 1]), torch.arange(3) < 2
NORMED = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))
FEW = {"p": 0.9, "D": 3, "n": 20, "epochs": 1}


def decomposed(**changed):
    net = Decomposed().double()
    x, y = net.rows(9, 1)
    given = {"net": net, "x": x, "y": y, "spurious": ["s"], "core": ["c"], "scales": [1]}
    return gradient_ratio(**(given | {k: f(given[k]) for k, f in changed.items()}))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        *[
            (lambda f=f, z=z, y=y, s=settings: f(z, y, **s), said)
            for f in (expected_posterior, information_gain_ratio)
            for z, y, settings, said in [
                (Z[:0], Y[:0], {}, "not empty"),
                (Z, Y[:3], {}, "as long"),
                (Z, Y[:1], {}, "as long"),
                (Z[:, None], Y, {}, "z must be a list"),
                (Z * math.nan, Y, {}, "finite"),
                (Z, Y * math.nan, {}, "whole numbers"),
                (Z, Y + 0.5, {}, "whole numbers"),
                (Z, Y, {"bins": 0}, "bins = 0"),
                (Z, Y, {"edges": [math.nan]}, "edges"),
            ]
        ],
        *[
            (lambda f=f, a=a, b=b: f(a, b), said)
            for f in (spurious_correlation, spurious_ratio)
            for a, b, said in [
                ((Z, Y), (Z, Y), "2 dimensions"),
                ((Z[:, None], Y), (np.ones((4, 2)), Y), "same latents"),
                ((np.ones((4, 2)), Y), (Z[:, None], Y), "same latents"),
                ((Z[:, None], Y[:2]), (Z[:, None], Y), "as long"),
                ((Z[:0, None], Y[:0]), (Z[:, None], Y), "not empty"),
                ((np.full((4, 1), math.nan), Y), (Z[:, None], Y), "finite"),
                (Z[:, None], Z[:, None], "two pairs"),
            ]
        ],
        (lambda: activation_variability(np.zeros((0, 2))), "not empty"),
        (lambda: activation_variability(np.ones((3, 2)), np.ones((1, 4))), "a row for each of the latents"),
        (lambda: activation_variability(np.ones((3, 2)), np.ones(2)), "2 dimensions"),
        (lambda: rank_correlation(ONE, np.ones(3)), "as long"),
        (lambda: rank_correlation(np.ones((2, 2)), np.ones((2, 2))), "as long"),
        *[
            (lambda f=f, world=world: f(*world), said)
            for f in (margin, error_bound, pruned_error)
            for world, said in [
                ((1.0, ONE, ONE, 2), "p = 2"),
                ((1.0, ONE, ONE, math.nan), "p = nan"),
                ((1.0, ONE, ONE, 0.9, -1), "phi = -1"),
                ((3.0, ONE, ONE, 0.9), "pi_inv = 3"),
                ((1.0, 3 * ONE, ONE, 0.9), "pi_sp holds a share"),
                ((1.0, ONE * math.nan, ONE, 0.9), "pi_sp must hold finite"),
                ((1.0, ONE, ONE * math.inf, 0.9), "alpha must hold finite"),
                ((1.0, np.ones(1), ONE, 0.9), "each of the 2 ratios"),
            ]
        ],
        (lambda: pruned_error(1.0, ONE, ONE, 0.9, n=0), "n = 0"),
        (lambda: gradient_flow(0.1, ONE, 2, TIMES), "p = 2"),
        (lambda: gradient_flow(math.nan, ONE, 0.9, TIMES), "w_inv must hold finite"),
        (lambda: gradient_flow([0.1, 0.2], ONE, 0.9, TIMES), "w_inv is one number"),
        (lambda: gradient_flow(0.1, ONE[None], 0.9, TIMES), "w_sp must be a list"),
        (lambda: gradient_flow(0.1, ONE, 0.9, []), "not empty"),
        (lambda: gradient_flow(0.1, ONE, 0.9, TIMES[::-1]), "must grow"),
        (lambda: gradient_flow(0.1, ONE, 0.9, [0.0]), "end after 0"),
        (lambda: gradient_flow(0.1, ONE, 0.9, TIMES - 1), "from 0 on"),
        (lambda: gradient_flow(0.1, ONE, 0.9, [0, math.inf]), "finite"),
        (lambda: gradient_flow(0.1, ONE * 800, 0.9, TIMES), "beyond all numbers"),
        (lambda: invariant_bounds(0.1, ONE / 10, 1.5, TIMES), "p = 1.5"),
        (lambda: invariant_bounds(0.1, ONE / 10, 0.9, TIMES - 5), "from 0 on"),
        (lambda: invariant_bounds(0.1, ONE / 10, 0.3, TIMES), "or below"),  # the two would change places
        (lambda: spurious_floor(5.0, 0.9, 3, TIMES, 1.0), "or below"),
        (lambda: spurious_floor(0.1, 1.0, 3, TIMES, 1.0), "p = 1"),
        (lambda: spurious_floor(0.1, 0.9, 0, TIMES, 1.0), "D = 0"),
        (lambda: spurious_floor(0.1, 0.9, 3, TIMES, math.nan), "last"),
        *[
            (lambda name=name, value=value: trained_ratio(**(FEW | {name: value})), f"{name} = {value}")
            for name, value in [("p", 2), ("D", 0), ("n", 0), ("epochs", 0), ("batch", 0), ("lr", 0), ("lr", math.nan)]
        ],
        *[
            (lambda f=f, given=given: f(*given), said)
            for f in (margins, lambda *given: loss_ratio(*given, [1]))
            for given, said in [
                ((LOGITS, LABELS - 1, ALIGNED), "from 0 to 1"),
                ((LOGITS, LABELS + 5, ALIGNED), "from 0 to 1"),
                ((LOGITS, LABELS + 0.5, ALIGNED), "whole numbers"),
                ((LOGITS, LABELS[1:], ALIGNED), "one label for each sample"),
                ((LOGITS * math.nan, LABELS, ALIGNED), "finite"),
                ((LOGITS[:0], LABELS[:0], ALIGNED[:0]), "0 samples"),
                ((LOGITS[:, :1], LABELS * 0, ALIGNED), "two classes"),
                ((LOGITS[:, 0], LABELS, ALIGNED), "two classes"),
            ]
        ],
        (lambda: loss_ratio(LOGITS, LABELS, ALIGNED, [-1]), "from 0 on"),
        (lambda: loss_ratio(LOGITS, LABELS, ALIGNED, [math.nan]), "finite"),
        (lambda: growth_rate([1, 2], [0, 1], 1), "above 0"),
        (lambda: growth_rate([0, 2], [1, 1], 1), "above 0"),
        (lambda: growth_rate([1, 2], [1, 2], math.nan), "finite power"),
        (lambda: decomposed(x=lambda x: x[:, :1]), "Decomposed cannot take inputs of shape"),
        (lambda: decomposed(x=lambda x: x[:0], y=lambda y: y[:0]), "0 samples"),
        (lambda: decomposed(x=lambda x: x * math.nan), "finite"),
        (lambda: decomposed(y=lambda y: y[:3]), "one label for each sample"),
        (lambda: decomposed(y=lambda y: y + 5), "from 0 to 1"),
        (lambda: decomposed(scales=lambda _: [0]), "above 0"),
        (lambda: Decomposed.rows(-1, 2), "aligned = -1"),
        (
            lambda: gradient_ratio(NORMED, torch.rand(3, 2), LABELS, "0.running_mean", "1.bias", [1]),
            "no parameter '0.run",
        ),
    ],
)
def test_what_has_no_answer_is_refused_in_a_sentence(call, said):
    with pytest.raises(UserError, match=said):
        call()


def test_what_has_an_odd_answer_has_it_without_a_warning():
    assert activation_variability(np.array([[-1.0], [1.0]])).tolist() == [math.inf]
    assert math.isnan(rank_correlation(np.ones(3), np.arange(3.0)))
    assert spurious_floor(0.0, 0.5, 3, TIMES, 1.0).tolist() == [0, 0]  # at its limit a weight stays
