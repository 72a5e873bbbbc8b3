"""The training options of a recipe: each against a slow and obvious version, and with methods of every shape."""

import copy
import itertools
import math
import sys
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from spurless.core.errors import UserError
from spurless.core.method import Method, Stage
from spurless.core.recipe import Recipe
from spurless.core.seeds import derive
from spurless.methods import METHODS
from spurless.methods.parts.gates import Gates
from spurless.methods.parts.losses import ce, ce_rows, focal
from spurless.nets import Net, build
from spurless.registry import make_method
from spurless.train import optim
from spurless.train.checkpoint import restore, snapshot
from spurless.train.engine_run import EngineRun
from spurless.train.feed import epoch_order
from spurless.train.fit import fit
from spurless.train.observe import Interrupted
from spurless.train.optim import layer_weights, make_optimizer, why_eager
from spurless.train.saved import load_run
from spurless.train.schedule import schedule
from spurless.train.session import RunArguments, Session
from spurless.train.sharpness import Sharpness
from tests.support.quick import QUICK
from tests.support.runs import CPU, StopAt, same_weights, timeless
from tests.support.worlds import FAST, pictures, tiny

SHAPES = ("erm", "lff", "pgd", "jtt", "disent", "bias_adv", "group_dro", "dcwp")  # of methods: the contract's eight


def quick(name):
    return make_method({"name": name} | QUICK.get(name, {}))


def normed(shape=(2,), classes=2):
    """A small network with everything that is treated apart: biases, BatchNorm's scales, running statistics."""
    wide = math.prod(shape)
    body = nn.Sequential(nn.Flatten(), nn.Linear(wide, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh())
    return Net(body, nn.Linear(5, classes))


def by_hand(data, recipe, seed, step, epochs=3):
    """Train `normed` in the plainest way: `step(net, optimizer, x, y)` for each batch."""
    torch.manual_seed(derive(seed, "net", 0))
    net = normed(data.shape)
    optimizer = make_optimizer(net.parameters(), recipe, torch.device("cpu"))
    net.train()
    n = len(data.train)
    for epoch in range(epochs):
        order = epoch_order(n, None, None, torch.Generator().manual_seed(derive(seed, "order", 0, epoch)))
        for rows in order.split(recipe.batch_size):
            step(net, optimizer, data.train.x[rows], data.train.y[rows])
    return net


def close(a, b, atol=1e-6):
    for (name, mine), theirs in zip(a.state_dict().items(), b.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=atol, msg=lambda text, name=name: f"{name}: {text}")
    return True


# Focal loss


@pytest.mark.parametrize("gamma", [0.001, 0.5, 1.0, 2.0, 5.0])
def test_the_focal_gradient_is_the_formula(gamma):
    logits = torch.tensor([[0.3, -1.0, 2.0], [4.0, 0.0, 0.0], [-3.0, 1.0, 0.5]], dtype=torch.float64)
    y = torch.tensor([0, 0, 1])
    p = logits.softmax(1)[torch.arange(3), y]
    scale = (1 - p) ** gamma - gamma * p * (1 - p) ** (gamma - 1) * p.log()
    expected = scale[:, None] * (logits.softmax(1) - nn.functional.one_hot(y, 3))
    for loss in (lambda z: focal(ce_rows(z, y), gamma), lambda z: ce_rows(z, y, gamma), lambda z: 3 * ce(z, y, gamma)):
        z = logits.clone().requires_grad_()
        (grad,) = torch.autograd.grad(loss(z).sum(), z)
        torch.testing.assert_close(grad, expected)
    assert torch.autograd.gradcheck(lambda z: focal(ce_rows(z, y), gamma), logits.requires_grad_())


@pytest.mark.parametrize("gamma", [0.001, 0.5, 2.0, 25.0])
def test_focal_gradients_are_finite_where_a_row_is_learnt_or_lost(gamma):
    logits = torch.tensor([[200.0, 0.0], [-200.0, 0.0], [20.0, 0.0]], requires_grad=True)
    (grad,) = torch.autograd.grad(ce(logits, torch.tensor([0, 0, 0]), gamma), logits)
    assert torch.isfinite(grad).all() and grad[0].abs().max() == 0
    torch.testing.assert_close(grad[1], torch.tensor([-1 / 3, 1 / 3]))  # lost: as cross entropy


def test_values_stay_cross_entropy():
    logits, y = torch.randn(6, 3, requires_grad=True), torch.arange(6) % 3
    assert torch.equal(ce_rows(logits, y, 2.0), ce_rows(logits, y)), "scores are made of values"
    torch.testing.assert_close(ce(logits, y, 2.0), ce(logits, y))
    focal, plain = (torch.autograd.grad(ce(logits, y, gamma), logits)[0] for gamma in (2.0, 0.0))
    assert not torch.allclose(focal, plain)


def test_gamma_0_is_cross_entropy_to_the_bit():
    recipes = FAST, replace(FAST, loss="focal", focal_gamma=0.0), replace(FAST, focal_gamma=5.0)
    plain, zero, unused = (fit("lff", tiny(n=64), net="mlp", recipe=recipe, **CPU) for recipe in recipes)
    assert same_weights(plain.classifier, zero.classifier) and same_weights(plain.classifier, unused.classifier)
    assert timeless(plain.history) == timeless(zero.history)


def test_focal_training_equals_a_loop_by_hand():
    data, recipe = tiny(n=70), replace(FAST, optimizer="sgd", lr=0.1, loss="focal", focal_gamma=1.5)

    def step(net, optimizer, x, y):
        p = net(x).softmax(1)[torch.arange(len(y)), y]
        optimizer.zero_grad()
        (-((1 - p) ** 1.5) * p.log()).mean().backward()
        optimizer.step()

    assert close(
        fit("erm", data, net=lambda: normed(data.shape), recipe=recipe, **CPU).classifier,
        by_hand(data, recipe, 0, step),
    )


# What focal loss changes, for each stage of the contract's methods: the networks, in the order in which the method asks
# for them, whose gradients differ from those of cross entropy. GCE stays GCE.
CHANGED = {
    "erm": [("erm", {0})],
    "lff": [("lff", {1})],  # not the biased network's
    "pgd": [("biased", set()), ("debiased", {0})],
    "jtt": [("mine", {0}), ("upsampled", {1})],
    "disent": [("disent", {0})],  # of the encoders, the one for the label
    "bias_adv": [("bias_adv", {1})],
    "group_dro": [("group_dro", {0})],
    "dcwp": [("mine", set()), ("pretrain", {1}), ("mask", set()), ("finetune", {1})],
}


def look_at_first_batches(method, recipe):
    """For each stage: its name, whether its value is the same with focal loss, and which networks' gradients differ."""
    found = []

    def grads(loss, b, run, gamma):
        random, state = torch.get_rng_state(), [t.clone() for m in run.modules for t in m.buffers()]
        params = [p for m in run.modules for p in m.parameters() if p.requires_grad]
        run.focal_gamma = gamma
        value = loss(b)
        some = torch.autograd.grad(value, params, allow_unused=True)
        torch.set_rng_state(random)
        for t, saved in zip((t for m in run.modules for t in m.buffers()), state, strict=True):
            t.copy_(saved)
        return value.detach(), {id(p): g for p, g in zip(params, some, strict=True) if g is not None}

    class Spy(type(method)):
        def stages(self, run):
            generator = super().stages(run)
            try:
                stage = next(generator)
                while True:
                    yield self.spied(stage, run)
                    stage = next(generator)
            except StopIteration as end:
                return end.value

        def spied(self, stage, run):
            losses = [stage.loss] if callable(stage.loss) else stage.loss
            opts = [stage.optimizer] if callable(stage.loss) else stage.optimizer
            seen = set()

            def watch(loss, opt):
                def watched(b):
                    if id(loss) not in seen:
                        seen.add(id(loss))
                        (plain, before), (value, after) = (grads(loss, b, run, gamma) for gamma in (0.0, 2.0))
                        held = {id(p) for group in opt.param_groups for p in group["params"]}
                        nets = [m for m in run.modules if isinstance(m, Net)]
                        moved = {k for k in before if k in held and not torch.allclose(before[k], after[k], 1e-4, 0)}
                        which = {i for i, net in enumerate(nets) if moved & {id(p) for p in net.parameters()}}
                        found.append((stage.name, torch.allclose(plain, value, 1e-5), which, bool(moved)))
                    return loss(b)

                return watched

            pairs = [watch(loss, opt) for loss, opt in zip(losses, opts, strict=True)]
            return replace(stage, loss=pairs, optimizer=opts)

    spy = Spy(**{f.name: getattr(method, f.name) for f in fields(method)})
    fit(spy, tiny(n=64), net="mlp", recipe=recipe, **CPU)
    return found


@pytest.mark.parametrize("name", METHODS)
def test_what_focal_loss_changes(name):
    found = look_at_first_batches(quick(name), replace(FAST, epochs=1))
    assert all(same for _, same, _, _ in found), "values, and so the scores that are made of them, stay cross entropy's"
    assert any(moved for _, _, _, moved in found)
    if name in CHANGED:
        assert [(stage, which) for stage, _, which, _ in found] == CHANGED[name]
    if name == "dcwp":
        assert {stage: moved for stage, _, _, moved in found}["mask"], "there the gates learn"


def test_runs_that_take_turns_have_each_their_own_loss():
    recipes = replace(FAST, loss="focal"), FAST, replace(FAST, loss="focal", focal_gamma=0.5)
    together = [Session(RunArguments("erm", tiny(n=64), net="mlp", recipe=recipe, device="cpu")) for recipe in recipes]
    for _ in itertools.zip_longest(*map(iter, together)):
        pass
    for session, recipe in zip(together, recipes, strict=True):
        alone = fit("erm", tiny(n=64), net="mlp", recipe=recipe, **CPU)
        assert same_weights(session.result.classifier, alone.classifier)


@pytest.mark.parametrize("gammas", [(0.0, 2.0, 0.0), (2.0, 0.5, 2.0)])
def test_a_compiled_loss_has_the_gamma_of_its_run(gammas):
    torch.compiler.reset()
    logits, y = torch.randn(4, 3, requires_grad=True), torch.arange(4) % 3
    for gamma in gammas:
        run = EngineRun(
            tiny(n=64), replace(FAST, loss="focal", focal_gamma=gamma), 0, torch.device("cpu"), lambda k: None
        )
        compiled = torch.compile(lambda b: run.ce(b[0], b[1]), backend="eager", fullgraph=True)  # noqa: B023
        ours = torch.autograd.grad(compiled((logits, y)), logits)[0]
        torch.testing.assert_close(ours, torch.autograd.grad(ce(logits, y, gamma), logits)[0])


# L1


def test_the_l1_penalty_is_on_the_weights_of_layers_alone():
    net = normed()
    found = {id(net.encoder[1].weight), id(net.encoder[4].weight), id(net.head.weight)}
    assert set(layer_weights([net, net.head])) == found
    assert not layer_weights([Gates(net), nn.Embedding(3, 2), nn.LayerNorm(4)])
    assert len(layer_weights([nn.Conv2d(1, 1, 1), nn.ConvTranspose1d(1, 1, 1)])) == 2


def test_l1_training_equals_a_loop_by_hand():
    data, recipe = tiny(n=70), replace(FAST, optimizer="sgd", lr=0.1, l1=0.02, weight_decay=0.01)

    def step(net, optimizer, x, y):
        weights = [net.encoder[1].weight, net.encoder[4].weight, net.head.weight]
        optimizer.zero_grad()
        (cross_entropy(net(x), y) + 0.02 * sum(w.abs().sum() for w in weights)).backward()
        optimizer.step()

    result = fit("erm", data, net=lambda: normed(data.shape), recipe=recipe, **CPU)
    assert close(result.classifier, by_hand(data, recipe, 0, step))
    plain = fit(
        "erm", data, net=lambda: normed(data.shape), recipe=replace(recipe, l1=0.0, epochs=1, batch_size=70), **CPU
    )
    one = fit("erm", data, net=lambda: normed(data.shape), recipe=replace(recipe, epochs=1, batch_size=70), **CPU)
    assert one.history[0]["loss"] == plain.history[0]["loss"], "the history's loss is without the penalty"


def test_each_loss_of_a_stage_has_the_penalty_of_what_its_optimiser_holds():
    strong = replace(FAST, optimizer="sgd", momentum=0.0, lr=0.01, l1=1.0, epochs=1, batch_size=64)

    @dataclass(frozen=True)
    class Two(Method):
        def stages(self, run):
            f, g = run.net(), run.net()
            losses = [lambda b: 0 * ce(f(b.x), b.y), lambda b: 0 * ce(g(b.x), b.y)]
            Two.before = copy.deepcopy((f, g))
            yield Stage("two", losses, [run.optimizer(f), run.optimizer(g)], model=f, select=True)
            Two.after = f, g
            return f

    fit(Two(), tiny(n=64), net="mlp", recipe=strong, **CPU)
    for before, after in zip(Two.before, Two.after, strict=True):
        for (name, was), now in zip(before.named_parameters(), after.parameters(), strict=True):
            moved = was - 0.01 * was.sign() if "weight" in name else was
            torch.testing.assert_close(now, moved)


# SAM and ASAM


@pytest.mark.parametrize(
    ("kind", "expected"),
    # Of a1 w²/2 + a2 b²/2 with a = (1, 2), w = 3, b = 2: g = (3, 4), of norm 5.
    # asam: T = (3.01, 1), T g = (9.03, 4), of norm 9.8763; ε = (T² g, g)/norm = (2.7521, 0.4050).
    [("sam", (3.6, 5.6)), ("asam", (3 + 27.1803 / 9.87629, 2 * (2 + 4 / 9.87629)))],
)
def test_the_gradient_on_a_quadratic_by_hand(kind, expected):
    layer = nn.Linear(1, 1)
    nn.init.constant_(layer.weight, 3.0)
    nn.init.constant_(layer.bias, 2.0)

    def backward():
        layer.zero_grad()
        loss = layer.weight.square().sum() / 2 + layer.bias.square().sum()
        loss.backward()
        return loss.detach()

    loss = Sharpness(Recipe(sharpness=kind, rho=1.0), [layer]).gradients(backward, list(layer.parameters()))
    assert loss == 8.5
    assert (layer.weight.grad.item(), layer.bias.grad.item()) == pytest.approx(expected, rel=1e-5)
    assert (layer.weight.item(), layer.bias.item()) == (3.0, 2.0)


@pytest.mark.parametrize(("kind", "rho"), [("sam", 0.05), ("sam", 2.0), ("asam", 0.5), ("asam", 3.0)])
def test_sharpness_equals_a_loop_by_hand(kind, rho):
    """On a second network: where the first one's gradient leads to, and what the gradient is there."""
    own = rho == {"sam": 0.05, "asam": 0.5}[kind]
    data, recipe = tiny(n=70), replace(FAST, optimizer="sgd", lr=0.1, sharpness=kind, rho=None if own else rho)

    def step(net, optimizer, x, y):
        optimizer.zero_grad()
        cross_entropy(net(x), y).backward()
        other = copy.deepcopy(net)
        normal = {
            name: p.abs() + 0.01 if kind == "asam" and name.endswith("weight") else torch.ones_like(p)
            for name, p in net.named_parameters()
        }
        named = dict(net.named_parameters())
        norm = math.sqrt(sum(float((normal[k].detach() * p.grad).square().sum()) for k, p in named.items()))
        with torch.no_grad():
            for name, p in other.named_parameters():
                p += rho * normal[name] ** 2 * named[name].grad / norm
        there = torch.autograd.grad(cross_entropy(other(x), y), list(other.parameters()))
        for p, g in zip(net.parameters(), there, strict=True):
            p.grad = g
        optimizer.step()

    result = fit("erm", data, net=lambda: normed(data.shape), recipe=recipe, **CPU)
    assert close(result.classifier, by_hand(data, recipe, 0, step), atol=2e-5)


def test_sam_is_that_of_a_library():
    SAM = pytest.importorskip("pytorch_optimizer", reason="needs pytorch-optimizer (extra optim)").SAM
    data, recipe = tiny(n=64), replace(FAST, optimizer="sgd", lr=0.1, sharpness="sam", rho=0.7)
    sam = {}

    def step(net, optimizer, x, y):
        wrapped = sam.setdefault(id(net), SAM(list(net.parameters()), torch.optim.SGD, rho=0.7, lr=0.1, momentum=0.9))
        cross_entropy(net(x), y).backward()
        wrapped.first_step(zero_grad=True)
        net.encoder[2].momentum, momentum = 0.0, net.encoder[2].momentum  # its own way to hold running statistics
        cross_entropy(net(x), y).backward()
        net.encoder[2].momentum = momentum
        wrapped.second_step(zero_grad=True)

    theirs = by_hand(data, recipe, 0, step)
    theirs.encoder[2].num_batches_tracked //= 2
    assert close(fit("erm", data, net=lambda: normed(data.shape), recipe=recipe, **CPU).classifier, theirs, atol=1e-5)


def test_the_second_pass_starts_from_the_same_state_and_leaves_none():
    seen = []

    @dataclass(frozen=True)
    class Counts(Method):
        def stages(self, run):
            net, memory = run.net(), run.keep(nn.BatchNorm1d(2))
            memory.register_buffer("count", torch.zeros(()))
            memory.register_buffer("last", torch.zeros(64))

            def loss(b):
                memory.count += 1
                rows = ce_rows(net(b.x), b.y)
                memory.last[b.idx] = rows.detach()
                seen.append((memory.count.item(), rows.mean().item()))
                return rows.mean()

            yield Stage("counts", loss, run.optimizer(net), model=net, select=True)
            Counts.memory = memory
            return net

    recipe = replace(FAST, batch_size=64, epochs=3, sharpness="sam", rho=1.0)
    result = fit(Counts(), tiny(n=64), net="mlp", recipe=recipe, **CPU)
    assert [count for count, _ in seen] == [1, 1, 2, 2, 3, 3]
    assert Counts.memory.count == 3
    first, second = ([loss for _, loss in seen[k::2]] for k in (0, 1))
    assert all(b > a for a, b in zip(first, second, strict=True)), "the second pass is where the loss is higher"
    assert [row["loss"] for row in result.history] == pytest.approx(first), "the history has the loss of the first"
    assert Counts.memory.last.mean().item() == pytest.approx(first[-1])


def test_without_a_radius_or_a_rate_nothing_moves():
    data = tiny(n=64)
    plain, none = (
        fit("lff", data, net="mlp", recipe=replace(FAST, sharpness=kind, rho=0.0), **CPU).classifier
        for kind in ("none", "asam")
    )
    assert same_weights(plain, none)
    still = fit("erm", data, net="mlp", recipe=replace(FAST, lr=0.0, sharpness="asam", rho=5.0), **CPU).classifier
    torch.manual_seed(derive(0, "net", 0))
    assert same_weights(still, build("mlp", data.shape, 2)), "put back to the bit"


def test_a_gradient_of_nothing_is_no_way_up():
    layer = nn.Linear(2, 2)

    def backward():
        layer.zero_grad()
        loss = 0 * layer(torch.ones(1, 2)).sum()
        loss.backward(inputs=[layer.weight])
        return loss.detach()

    Sharpness(Recipe(sharpness="asam"), [layer]).gradients(backward, list(layer.parameters()))
    assert torch.equal(layer.weight.grad, torch.zeros(2, 2)) and layer.bias.grad is None


def test_what_was_pruned_stays_zero():
    recipe = replace(FAST, epochs=2, sharpness="asam", rho=2.0, l1=1e-3)
    result = fit({"name": "magnitude_prune", "keep": 0.3}, tiny(n=64), net="mlp", recipe=recipe, **CPU)
    assert result.sparsity == pytest.approx(70, abs=0.5)


# PSGD-Kron


needs_kron = pytest.mark.skipif(
    not (find_spec("pytorch_optimizer") and find_spec("opt_einsum")),
    reason="needs pytorch-optimizer and opt-einsum (extra optim)",
)


@pytest.mark.parametrize("missing", ["pytorch_optimizer", "opt_einsum"])
def test_psgd_names_the_extra_that_it_needs(monkeypatch, missing):
    if missing == "pytorch_optimizer":
        monkeypatch.setitem(sys.modules, "pytorch_optimizer", None)
    else:
        monkeypatch.setattr(torch.backends.opt_einsum, "is_available", lambda: False)
    optim.psgd_kron.cache_clear()
    try:
        with pytest.raises(UserError, match=r"spurless\[optim\]"):
            fit("erm", tiny(n=64), recipe=replace(FAST, optimizer="psgd"), **CPU)
    finally:
        optim.psgd_kron.cache_clear()


@needs_kron
def test_psgd_is_the_package_s_kron():
    from pytorch_optimizer import Kron

    data, recipe = tiny(n=64), replace(FAST, optimizer="psgd", lr=0.05, weight_decay=0.1, momentum=0.8)
    nets = [normed(data.shape).requires_grad_() for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    ours = make_optimizer(nets[0].parameters(), recipe, torch.device("cpu"))
    theirs = Kron(nets[1].parameters(), lr=0.05, weight_decay=0.1, momentum=0.8, balance_prob=0.0)
    ours.BALANCE = 0.0
    for optimizer, net in ((ours, nets[0]), (theirs, nets[1])):
        torch.manual_seed(1)
        for _ in range(12):
            optimizer.zero_grad()
            cross_entropy(net(data.train.x), data.train.y).backward()
            if optimizer is theirs:
                torch.rand(())  # for the balance
            optimizer.step()
    assert same_weights(*nets)
    for state in ours.state.values():
        kinds = {type(value) for value in state.values()}
        assert kinds <= {torch.Tensor, int}, "a checkpoint holds tensors and numbers"


@needs_kron
def test_psgd_does_not_ask_numpy_s_global_generator(monkeypatch):
    monkeypatch.setattr(optim.psgd_kron(), "BALANCE", 0.5)
    recipe, weights = replace(FAST, optimizer="psgd", epochs=4), []
    for seed in (0, 1):
        np.random.seed(seed)
        weights.append(fit("erm", tiny(n=64), net="mlp", recipe=recipe, **CPU).classifier)
    assert same_weights(*weights)
    monkeypatch.setattr(optim.psgd_kron(), "BALANCE", 0.0)
    assert not same_weights(weights[0], fit("erm", tiny(n=64), net="mlp", recipe=recipe, **CPU).classifier)


@needs_kron
@pytest.mark.parametrize("stop", [1, 4, 5])
def test_the_state_of_psgd_survives_when_factors_are_not_updated_at_every_step(stop):
    """As after 500 steps: then the count since the last update decides when the next one is."""
    data, recipe = tiny(n=64), Recipe("psgd", 0.05, weight_decay=0.1, decay_exceptions=True)

    def train(net, optimizer, steps):
        optimizer.param_groups[0]["pre_conditioner_update_probability"] = 0.3
        for _ in range(steps):
            optimizer.zero_grad()
            cross_entropy(net(data.train.x), data.train.y).backward()
            optimizer.step()

    nets = [normed(data.shape) for _ in range(2)]
    whole, torn = (make_optimizer(net.parameters(), recipe, torch.device("cpu")) for net in nets)
    nets[1].load_state_dict(nets[0].state_dict())
    torch.manual_seed(3)
    train(nets[0], whole, stop)
    saved, random = {k: t.clone() for k, t in snapshot([nets[0]], [whole]).items()}, torch.get_rng_state()
    train(nets[0], whole, 9 - stop)
    restore(saved, [nets[1]], [torn])
    torch.set_rng_state(random)
    train(nets[1], torn, 9 - stop)
    assert same_weights(*nets)


@needs_kron
def test_psgd_says_why_it_is_no_graph():
    weight = [nn.Parameter(torch.zeros(2, 2))]
    kron, adam = (make_optimizer(weight, Recipe(name), torch.device("cpu")) for name in ("psgd", "adam"))
    assert "PSGD" in why_eager([adam, kron]) and why_eager([adam]) is None
    assert isinstance(kron.param_groups[0]["lr"], float)


# Schedules


def test_wsd_by_hand():
    assert schedule(Recipe(schedule="wsd"), 5, 20).tolist() == [1.0] * 17 + [0.75, 0.5, 0.25]
    assert schedule(Recipe(schedule="wsd", decay_share=0), 5, 4).tolist() == [1.0] * 4
    assert schedule(Recipe(schedule="wsd", decay_share=1), 5, 4).tolist() == [1.0, 0.75, 0.5, 0.25]
    assert schedule(Recipe(schedule="wsd", decay_share=1, warmup=1), 2, 4).tolist() == [0.5, 1.0, 0.5, 0.25]
    parts = [schedule(Recipe(schedule="wsd", decay_share=0.5), 5, 5, span) for span in ((0, 0.5), (0.5, 1))]
    assert np.concatenate(parts).tolist() == schedule(Recipe(schedule="wsd", decay_share=0.5), 5, 10).tolist()


# Until


def test_training_goes_on_until_both_criteria_hold(capsys):
    recipe = Recipe("adam", 0.01, epochs=300, batch_size=32, until_accuracy=100)
    accurate = fit("erm", tiny(), net="mlp", recipe=recipe, **CPU).history
    small = fit("erm", tiny(), net="mlp", recipe=replace(recipe, until_loss=1e-4), **CPU)
    assert len(accurate) < len(small.history) < 300
    for history in (accurate, small.history):
        assert [row["reached"] for row in history] == [False] * (len(history) - 1) + [True]
    last = small.history[-1]
    assert last["train_accuracy"] == 100 and last["train_loss"] < 1e-4 <= small.history[-2]["train_loss"]
    logits = small.classifier(tiny().train.x)
    assert last["train_loss"] == pytest.approx(cross_entropy(logits, tiny().train.y).item(), rel=1e-4)
    alone = fit("erm", tiny(), net="mlp", recipe=replace(recipe, until_accuracy=0, until_loss=0.3), **CPU).history
    assert alone[-1]["train_loss"] < 0.3 and alone[-1]["train_accuracy"] < 100
    assert capsys.readouterr().err == ""


def test_what_is_not_reached_is_said(capsys, tmp_path):
    recipe = Recipe("adam", 1e-4, epochs=2, batch_size=32, until_accuracy=100, until_loss=1e-5)
    fit("jtt", tiny(), net="mlp", recipe=recipe, out=tmp_path / "run", **CPU)
    history = load_run(tmp_path / "run").history
    assert [(row["stage"], row.get("reached")) for row in history] == [
        ("mine", None), ("upsampled", False), ("upsampled", False)
    ]  # fmt: skip
    lines = [line for line in capsys.readouterr().err.splitlines() if "criterion" in line]
    assert len(lines) == 1 and "'upsampled'" in lines[0] and "2 epochs" in lines[0], "of the stage that counts, once"


def test_the_criterion_ends_no_stage_that_starts_where_it_holds_or_has_a_length_of_its_own():
    recipe = Recipe("adam", 0.01, epochs=200, batch_size=32, until_accuracy=100)
    pgd = fit({"name": "pgd", "q": 0.1}, tiny(), net="mlp", recipe=recipe, **CPU).history
    epochs = {stage: sum(row["stage"] == stage for row in pgd) for stage in ("biased", "debiased")}
    assert epochs["biased"] < 200 == epochs["debiased"] and pgd[epochs["biased"] - 1]["train_accuracy"] == 100
    lengths = {"mining_iterations": 40, "mask_iterations": 70, "finetune_iterations": 50}
    dcwp = fit({"name": "dcwp"} | lengths, tiny(), net="mlp", recipe=recipe, **CPU).history
    assert {row["stage"]: row["step"] for row in dcwp} | {"pretrain": 0} == {
        "mine": 40, "pretrain": 0, "mask": 70, "finetune": 50
    }  # fmt: skip


def test_the_criterion_is_looked_at_as_often_as_validation():
    recipe = Recipe("adam", 0.01, epochs=300, batch_size=32, until_accuracy=100)
    every, seldom = (fit("erm", tiny(), net="mlp", recipe=replace(recipe, eval_every=k), **CPU).history for k in (0, 7))
    assert all("reached" in row for row in every)
    assert [row["epoch"] for row in seldom if "reached" in row] == list(range(7, len(seldom) + 1, 7))
    assert len(seldom) == math.ceil(len(every) / 7) * 7
    short = fit("erm", tiny(), net="mlp", recipe=replace(recipe, eval_every=7, epochs=3), **CPU).history
    assert ["reached" in row for row in short] == [False, False, True]


# Every shape of method, with every option


OPTIONS = {
    "focal": {"loss": "focal", "l1": 1e-3, "schedule": "wsd", "decay_share": 0.5},
    "sam": {"sharpness": "sam", "rho": 0.5, "until_accuracy": 100, "until_loss": 1e-5, "eval_every": 2},
    "asam": {"sharpness": "asam", "loss": "focal", "l1": 1e-3, "optimizer": "sgd", "clip_norm": 1.0},
    "psgd": {"optimizer": "psgd", "weight_decay": 1e-3, "decay_exceptions": True},  # two groups of parameters
}


@pytest.mark.parametrize("option", [pytest.param(k, marks=needs_kron) if k == "psgd" else k for k in OPTIONS])
@pytest.mark.parametrize("name", SHAPES)
def test_a_method_trains_repeats_and_resumes_bit_for_bit(name, option, tmp_path):
    data, plain = tiny(n=48), replace(FAST, batch_size=16, epochs=2)
    recipe = replace(plain, **OPTIONS[option])
    whole = fit(quick(name), data, net="mlp", recipe=recipe, **CPU)
    assert whole.status == "done"
    assert not same_weights(whole.classifier, fit(quick(name), data, net="mlp", recipe=plain, **CPU).classifier), (
        "it does nothing"
    )
    for _ in range(8 * len(whole.history) + 8):  # stopped again and again, every few steps, until it is through
        try:
            torn = fit(quick(name), data, net="mlp", recipe=recipe, out=tmp_path, device="cpu", progress=StopAt(4))
            break
        except Interrupted:
            continue
    assert same_weights(whole.classifier, torn.classifier)
    assert timeless(torn.history) == timeless(whole.history) and torn.scores == whole.scores


@pytest.mark.parametrize("option", [pytest.param(k, marks=needs_kron) if k == "psgd" else k for k in OPTIONS])
def test_convolutions_with_dropout_and_batchnorm_resume_too(option, tmp_path):
    data = pictures(n=48)
    recipe = replace(data.recipe, epochs=1) if option == "psgd" else data.recipe
    recipe = replace(recipe, **OPTIONS[option])
    whole = fit("lff", data, net="simconv1", recipe=recipe, **CPU)
    for k in (2, 1, 100):
        try:
            torn = fit("lff", data, net="simconv1", recipe=recipe, out=tmp_path, device="cpu", progress=StopAt(k))
        except Interrupted:
            continue
    assert same_weights(whole.classifier, torn.classifier)


def test_the_page_names_every_field():
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
    assert [f.name for f in fields(Recipe) if f"`{f.name}`" not in page] == []


# On a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("option", ["focal", "sam", "asam"])
@pytest.mark.parametrize("name", ["erm", "lff", "rebias", "group_dro"])
def test_a_graph_does_what_the_eager_step_does(name, option, capsys):
    changes = OPTIONS[option] | {"until_accuracy": 0, "until_loss": 0}
    recipe = replace(Recipe("sgd", 1e-3, batch_size=16, epochs=6, deterministic=True), **changes)
    smooth = {"name": "mlp", "activation": "tanh"}
    nets = [
        fit(
            name, pictures(n=70), net=smooth, recipe=replace(recipe, cuda_graph=graph), device="cuda", progress=False
        ).classifier
        for graph in (True, False)
    ]
    assert "without a CUDA graph" not in capsys.readouterr().err
    assert close(*nets, atol=1e-4)


@pytest.mark.gpu
@needs_kron
def test_psgd_on_a_gpu_trains_eagerly_and_resumes(tmp_path, capsys):
    recipe = Recipe("psgd", 1e-3, batch_size=16, epochs=3, deterministic=True)
    whole = fit("jtt", pictures(n=70), net="simconv1", recipe=recipe, device="cuda", progress=False)
    assert capsys.readouterr().err.count("without a CUDA graph") <= 1
    for k in (7, 100):
        try:
            torn = fit(
                "jtt", pictures(n=70), net="simconv1", recipe=recipe, out=tmp_path, device="cuda", progress=StopAt(k)
            )
        except Interrupted:
            continue
    assert close(whole.classifier, torn.classifier, atol=1e-5)
