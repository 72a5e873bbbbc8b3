"""Gates: drawn with the probability that the formula says, learnt over weights that stand still, and then a mask."""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

from spurless.core.errors import UserError
from spurless.core.method import Method
from spurless.core.recipe import Recipe
from spurless.methods.parts.gates import (
    Gated,
    Gates,
    Mask,
    draw_gates,
    final_mask,
    keep_probability,
    mask_stage,
    penalty,
)
from spurless.methods.parts.losses import ce
from spurless.methods.parts.pruning import zero
from spurless.nets import Net, build
from spurless.train.fit import fit
from spurless.train.optim import make_optimizer
from tests.support.runs import CPU
from tests.support.worlds import OwnModule, pictures, tiny

KEPT = {"paper": 0.81757, "code": 0.69372}  # at Θ = 1.5: σ(1.5), and σ(σ(1.5))


def logistic(x):
    return 1 / (1 + math.exp(-x))


def sum_of_logistics(x):
    """P(two independent logistic numbers add up to at most x)."""
    return 1 / (1 - math.exp(-x)) - x * math.exp(-x) / (1 - math.exp(-x)) ** 2


@pytest.mark.parametrize("form", ["paper", "code"])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 3.0])
def test_gates_are_0_or_1_and_open_as_often_as_the_formula_says_at_every_temperature(form, temperature):
    gates = draw_gates(torch.full((200_000,), 1.5), temperature, form)
    assert set(gates.tolist()) == {0.0, 1.0}
    assert float(gates.mean()) == pytest.approx(KEPT[form], abs=0.004)  # four standard errors
    assert float(keep_probability(torch.tensor(1.5), form)) == pytest.approx(KEPT[form], abs=1e-5)


def test_the_codes_gate_is_open_at_least_half_of_the_time_however_low_its_logit():
    assert float(draw_gates(torch.full((100_000,), -50.0), form="code").mean()) == pytest.approx(0.5, abs=0.007)
    assert float(draw_gates(torch.full((1000,), -50.0), form="paper").mean()) == 0


@pytest.mark.parametrize("theta", [-2.0, 0.3, 1.5])
def test_the_gradient_of_the_keep_probability(theta):
    for form, slope in (
        ("paper", logistic(theta) * (1 - logistic(theta))),
        ("code", logistic(logistic(theta)) * (1 - logistic(logistic(theta))) * logistic(theta) * (1 - logistic(theta))),
    ):
        t = torch.tensor(theta, dtype=torch.double, requires_grad=True)
        keep_probability(t, form).backward()
        assert float(t.grad) == pytest.approx(slope, rel=1e-9)


@pytest.mark.parametrize("form", ["paper", "code"])
def test_a_gates_gradient_is_on_average_that_of_the_soft_gate(form):
    """σ(l + noise) is P(another logistic number ≤ l + noise): on average the distribution of the sum of two at l."""
    n, h = 400_000, 1e-4
    theta = torch.full((n,), 1.5, requires_grad=True)
    draw_gates(theta, 1.0, form).sum().backward()
    logit = 1.5 if form == "paper" else logistic(1.5)
    inner = 1.0 if form == "paper" else logistic(1.5) * (1 - logistic(1.5))
    slope = (sum_of_logistics(logit + h) - sum_of_logistics(logit - h)) / (2 * h) * inner
    assert float(theta.grad.mean()) == pytest.approx(slope, rel=0.01)
    assert float(theta.grad.min()) >= 0


def test_a_smaller_temperature_divides_the_slope():
    torch.manual_seed(3)
    theta = torch.zeros(1000, requires_grad=True)
    draw_gates(theta, 0.5).sum().backward()
    torch.manual_seed(3)
    soft = (torch.rand(1000).logit() / 0.5).sigmoid()
    torch.testing.assert_close(theta.grad, soft * (1 - soft) / 0.5)


def test_a_draw_of_exactly_zero_gives_no_nan(monkeypatch):
    monkeypatch.setattr(torch, "rand_like", torch.zeros_like)
    theta = torch.ones(3, requires_grad=True)
    gates = draw_gates(theta)
    gates.sum().backward()
    assert gates.tolist() == [0, 0, 0] and theta.grad.tolist() == [0, 0, 0]


def test_the_final_mask_and_the_two_penalties():
    theta = torch.tensor([-3.0, 0.0, 1e-6], requires_grad=True)
    assert final_mask(theta).tolist() == [False, False, True]
    assert final_mask(theta, "code").tolist() == [False, True, True]
    assert torch.autograd.grad(penalty([theta]), theta)[0].tolist() == [-1, 0, 1]  # towards the threshold
    assert torch.autograd.grad(penalty([theta], "code"), theta)[0].tolist() == [1, 1, 1]  # down, always


@pytest.mark.parametrize("spec", ["mlp", "simconv1", "conv3", "own"])
def test_every_conv_and_linear_weight_has_a_logit_and_nothing_else_has(spec):
    net = Net.wrap(OwnModule()) if spec == "own" else build(spec, (3, 28, 28), 4)
    gates = Gates(net, start=1.5)
    wanted = {n: p.shape for n, p in net.named_parameters() if n.endswith("weight") and p.dim() > 1}
    assert dict(zip(gates.names, [t.shape for t in gates.logits], strict=True)) == wanted
    assert float(gates.keep_probability()) == pytest.approx(KEPT["paper"], abs=1e-5)


@pytest.mark.parametrize("over", ["weight", "channel"])
@pytest.mark.parametrize("spec", ["mlp", "simconv1"])
def test_the_gated_network_in_evaluation_is_the_network_with_zeros(spec, over):
    net = build(spec, (3, 28, 28), 4).eval()
    gates = Gates(net, over=over).eval()
    for t in gates.logits:
        nn.init.normal_(t)
    x = torch.rand(5, 3, 28, 28)
    seen, before = Gated(net, gates)(x), {k: v.clone() for k, v in net.state_dict().items()}
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())
    zero(net, gates.masks())
    torch.testing.assert_close(seen, net(x))
    assert not torch.equal(before["head.weight"], net.head.weight) or over == "channel"


def test_a_forward_pass_is_one_draw_for_all_rows_and_the_next_one_another():
    net = build("mlp", (6,), 3)
    gated = Gated(net, Gates(net, start=0.0)).train()
    x = torch.randn(1, 6).repeat(4, 1)
    features, logits = gated.both(x)
    assert all(torch.equal(row, logits[0]) for row in logits)
    assert torch.allclose(features[0], features[3])
    assert not torch.equal(gated(x), logits)


def test_channel_gates_take_the_bias_along_and_leave_the_head_alone():
    net = build("simconv1", (3, 28, 28), 4)
    gates = Gates(net, over="channel")
    assert [t.shape for t in gates.logits] == [(8, 1, 1, 1), (32, 1, 1, 1), (64, 1, 1, 1)]
    with torch.no_grad():
        gates.logits[0][3] = -1
    masks = gates.masks()
    assert not any(name.startswith("head") for name in masks)
    gone = {name: (~mask).nonzero()[:, 0].unique().tolist() for name, mask in masks.items()}
    assert gone["encoder.0.weight"] == gone["encoder.0.bias"] == [3]
    assert sum(map(len, gone.values())) == 2
    with pytest.raises(UserError, match="no channels"):
        Gates(build("linear", (4,), 2), over="channel")


@dataclass(frozen=True)
class Masking(Method):
    """Only the mask is learnt, over a network with random weights."""

    iterations: int = 20
    hold_stats: bool = False

    def stages(self, run):
        net = run.net()
        gates = run.keep(Gates(net))
        Masking.before = {k: v.clone() for k, v in net.state_dict().items()}
        objective = lambda b, features, logits: ce(logits, b.y)  # noqa: E731
        mask = Mask(iterations=self.iterations, hold_stats=self.hold_stats)
        yield replace(
            mask_stage(run, net, gates, objective, mask, "code"),
            select=True,
        )
        Masking.gates = gates
        return net


@pytest.mark.parametrize("hold_stats", [False, True])
def test_frozen_weights_stay_bit_identical_while_the_logits_learn(hold_stats):
    result = fit(Masking(hold_stats=hold_stats), pictures(), net="simconv1", **CPU)
    after = result.classifier.state_dict()
    changed = {k for k, v in after.items() if not torch.equal(v, Masking.before[k])}
    assert changed == (set() if hold_stats else {k for k in after if "running" in k or "tracked" in k})
    assert all(bool((t != 1.5).all()) for t in Masking.gates.logits)


@pytest.mark.parametrize(("lam", "step"), [(1e-8, 301), (5e-6, 151)])
def test_a_logit_that_nothing_else_moves_falls_through_adams_eps(lam, step):
    """It goes lr · λ / (λ + eps) a step: 1.5 / 0.005 = 300 steps at λ = eps."""
    net = build("linear", (1,), 2)
    gates = Gates(net)
    gated = Gated(net, gates)
    opt = make_optimizer(gates.parameters(), Recipe(), torch.device("cpu"), lr=0.01)
    x, y = torch.zeros(4, 1), torch.tensor([0, 1, 0, 1])  # an input of zero: no gradient but the penalty's
    k = 0
    while float(gates.logits[0].detach()[0, 0]) >= 0 and k < 1000:
        k += 1
        loss = ce(gated(x), y) + lam * penalty(list(gates.logits), "code")
        opt.zero_grad()
        loss.backward()
        opt.step()
    assert abs(k - step) <= 2


def test_the_stage_has_its_own_adam_whatever_the_recipe_says():
    recipe = Recipe("sgd", 0.3, weight_decay=0.1, eps=1e-3, betas=(0.5, 0.5), batch_size=32)
    seen = []

    @dataclass(frozen=True)
    class Look(Masking):
        def stages(self, run):
            generator = super().stages(run)
            stage = next(generator)
            seen.append(stage.optimizer)
            yield stage
            return run.net()

    fit(Look(iterations=1), tiny(n=64), recipe=recipe, **CPU)
    (opt,) = seen
    group = opt.param_groups[0]
    assert type(opt) is torch.optim.Adam
    assert (group["initial_lr"], group["betas"], group["eps"], group["weight_decay"]) == (0.01, (0.9, 0.999), 1e-8, 0)


def test_a_tied_weight_has_one_logit():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
            self.b.weight = self.a.weight
            self.out = nn.Linear(4, 2)

        def forward(self, x):
            return self.out(self.b(self.a(x)))

    net = Net.wrap(Tied())
    gates = Gates(net).eval()
    assert len(gates.logits) == 2
    x = torch.randn(3, 4)
    with torch.no_grad():
        gates.logits[0][0] = -1
    seen = Gated(net.eval(), gates)(x)
    zero(net, gates.masks())
    torch.testing.assert_close(seen, net(x))
