"""BiasAdv: its objective for each base, the order of its updates, and what is trained."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from spurless.core.data import Batch, Bundle, Images, Split
from spurless.core.recipe import Recipe
from spurless.core.seeds import derive
from spurless.methods import bias_adv
from spurless.methods.bias_adv import BiasAdv
from spurless.methods.jtt import JTT
from spurless.methods.lff import LfF
from spurless.nets import build
from spurless.train.feed import epoch_order
from spurless.train.fit import fit
from spurless.train.networks import network_maker
from spurless.train.observe import Interrupted
from tests.support.attacks import engine_run, last_stage, slow_attack
from tests.support.reference import LossTables, gce_paper
from tests.support.runs import CPU, StopAt, same_weights
from tests.support.worlds import pictures, tiny

ONCE = BiasAdv(lam=0.25, eps=0.3, steps=1, beta=1.5, norm="l2")
WEIGHTS = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.0, 0.0], [2.0, 0.0]])  # of g, of f


def by_hand(method):
    """Loss on two rows, of networks without bias whose weights are WEIGHTS, with plain arithmetic.

    Row 0: x = (0, 0), y = 0.  Row 1: x = (1, 0), y = 1.
    """
    (g, f), value = WEIGHTS, {}

    def logits(w, x):
        return [w[0][0] * x[0] + w[0][1] * x[1], w[1][0] * x[0] + w[1][1] * x[1]]

    def p(w, x, y):
        z = logits(w, x)
        return math.exp(z[y]) / (math.exp(z[0]) + math.exp(z[1]))

    def gradient(w, x, y):  # of cross entropy: Wᵀ(p − onehot)
        error = [p(w, x, 0) - (y == 0), p(w, x, 1) - (y == 1)]
        return [w[0][k] * error[0] + w[1][k] * error[1] for k in (0, 1)]

    g, f = g.tolist(), f.tolist()
    for row, (x, y) in enumerate([((0.0, 0.0), 0), ((1.0, 0.0), 1)]):
        up = [a - method.lam * b for a, b in zip(gradient(g, x, y), gradient(f, x, y), strict=True)]
        length = math.hypot(*up)
        adv = [x[k] + method.eps * up[k] / length for k in (0, 1)]
        value[row] = {
            "easy": -math.log(p(g, x, y)),
            "hard": -math.log(p(f, x, y)),
            "adv": -math.log(p(f, adv, y)),
            "gce": (1 - p(g, x, y) ** method.q) / method.q,
        }
    return value


@pytest.mark.parametrize("base", ["erm", "jtt", "lff", "lff with memory"])
def test_the_objective_on_two_rows_by_hand(base):
    method = replace(ONCE, base=base[:3], memory="memory" in base)
    x, y = torch.tensor([[0.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1])
    stage, biased, _ = last_stage(method, Bundle("two", Split(x, y)), {"name": "linear", "bias": False})
    biased.head.weight.data, stage.model.head.weight.data = (w.clone() for w in WEIGHTS)
    loss = stage.loss(Batch(x, y, None, torch.arange(2), torch.tensor(0.0)))
    rows = by_hand(method)
    if base == "erm":
        wanted = [r["gce"] + r["hard"] + 1.5 * r["adv"] for r in rows.values()]
    elif base == "jtt":
        wanted = [r["hard"] + 1.5 * r["adv"] for r in rows.values()]
    else:
        # With memory, each row is alone in its class: its first loss is the class's greatest, so both shares are 1.
        ws = [0.5 if method.memory else r["easy"] / (r["easy"] + r["hard"]) for r in rows.values()]
        wanted = [r["gce"] + w * r["hard"] + 1.5 * (1 - w) * r["adv"] for r, w in zip(rows.values(), ws, strict=True)]
    assert float(loss.detach()) == pytest.approx(sum(wanted) / 2, rel=1e-5)


# One summed loss is the sequence of the supplement's algorithms


def sequential(method, data, recipe, seed):
    """Algorithms 1 to 3 line by line: attack, then a step of g, then a step of f, with plain SGD."""

    def fresh(count):
        torch.manual_seed(derive(seed, "net", count))
        return build("mlp", data.shape, len(data.classes))

    def orders(stage, epochs, rows=None):
        seeds = [derive(seed, "order", stage, epoch) for epoch in range(epochs)]
        for s in seeds:
            order = epoch_order(len(data.train), None, rows, torch.Generator().manual_seed(s))
            yield from order.split(recipe.batch_size)

    def update(net, loss):
        optimizer = torch.optim.SGD(net.parameters(), recipe.lr)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    g, f, stage, rows = fresh(0), fresh(1), 0, None
    x, y = data.train.x, data.train.y
    ce = nn.CrossEntropyLoss(reduction="none")
    if method.base == "jtt":
        for batch in orders(0, int(method.identify_epochs)):
            update(g, ce(g(x[batch]), y[batch]).mean())
        wrong = (g(x).argmax(1) != y).nonzero()[:, 0]
        assert 0 < len(wrong) < len(y)
        rows = torch.cat([torch.arange(len(y)), wrong.repeat(method.lambda_up - 1)]).sort().values
        stage = 1
    tables = LossTables(y.tolist(), method.alpha), LossTables(y.tolist(), method.alpha)
    for batch in orders(stage, int(recipe.epochs), rows):
        xb, yb = x[batch], y[batch]
        easy, hard = (ce(net(xb), yb).detach() for net in (g, f))
        w, w_adv = torch.ones(len(yb)), method.beta * torch.ones(len(yb))
        if method.base == "lff":
            w = easy / (easy + hard)
            if method.memory:
                for table, losses in zip(tables, (easy, hard), strict=True):
                    table.update(batch.tolist(), losses.tolist())
                e_b, e_d = (torch.tensor(table.relative(batch.tolist())) for table in tables)
                w = e_b / (e_b + e_d + 1e-8)
            w_adv = method.beta * (1 - w)
        adv = slow_attack(xb, yb, g, f, method.lam, method.eps, method.steps, method.norm)
        if method.base != "jtt":
            update(g, gce_paper(g(xb), yb, method.q))
        update(f, (w * ce(f(xb), yb)).mean() + (w_adv * ce(f(adv), yb)).mean())
    return f


@pytest.mark.parametrize(
    "method",
    [
        BiasAdv("erm", lam=1.0, eps=0.5, steps=2, beta=2.0, norm="l2", q=0.4),
        BiasAdv("jtt", lam=1.0, eps=0.5, steps=2, beta=1.0, norm="l2", identify_epochs=2, lambda_up=3),
        BiasAdv("lff", lam=0.5, eps=0.5, steps=2, beta=1.0, norm="l2", alpha=0.4),
        BiasAdv("lff", lam=0.5, eps=0.1, steps=2, beta=0.5, norm="linf", memory=False),
    ],
    ids=["erm", "jtt", "lff", "lff without memory"],
)
def test_a_run_equals_attack_then_g_then_f(method):
    # Long enough for each setting to show: with two epochs at 0.1 a wrong alpha moved no weight by more than 2e-5.
    data, recipe = tiny(n=48), Recipe("sgd", 0.3, momentum=0, batch_size=16, epochs=4)
    result = fit(method, data, net="mlp", recipe=recipe, seed=5, **CPU)
    slow = sequential(method, data, recipe, seed=5)
    for mine, theirs in zip(slow.parameters(), result.classifier.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=2e-5)
    start = network_maker("mlp", data.shape, 2, 5)(1)
    moved = [(a - b).detach().abs().max() for a, b in zip(start.parameters(), slow.parameters(), strict=True)]
    assert max(moved) > 0.01  # far enough for the comparison to mean something


@pytest.mark.parametrize(("base", "method"), [("lff", LfF()), ("lff", LfF(memory=False)), ("jtt", JTT())])
def test_without_weight_it_is_its_base_to_the_bit(base, method):
    with_it = BiasAdv(base, memory=getattr(method, "memory", True))
    without, plain, attacked = (
        fit(m, tiny(), net="mlp", seed=1, **CPU) for m in (replace(with_it, beta=0.0), method, with_it)
    )
    assert same_weights(without.classifier, plain.classifier)
    assert not same_weights(attacked.classifier, plain.classifier)


def test_every_setting_of_the_attack_reaches_it(monkeypatch):
    calls = []

    def attack(x, y, **given):
        calls.append(given)
        return x

    monkeypatch.setattr(bias_adv, "bias_adversarial", attack)
    given = {"lam": 0.3, "eps": 0.7, "steps": 4, "norm": "linf", "step_size": 0.05, "random_start": True}
    data = tiny(n=20)
    stage, biased, _ = last_stage(BiasAdv("erm", **given), data, "mlp")
    stage.loss(Batch(data.train.x, data.train.y, None, torch.arange(20), torch.tensor(0.0)))
    (call,) = calls
    assert {name: getattr(call["attack"], name) for name in given} == given
    assert call["biased"] is biased and call["debiased"] is stage.model


@pytest.mark.parametrize(("settings", "copies"), [({"lambda_up": 3}, 3), ({"lambda_up": 3, "rho": 0.25}, 4)])
def test_the_error_set_of_jtt_is_repeated(settings, copies):
    data = tiny(n=48)
    stage, biased, _ = last_stage(BiasAdv("jtt", identify_epochs=7, **settings), data, "linear")
    wrong = biased(data.train.x).argmax(1) != data.train.y
    assert 0 < int(wrong.sum()) < 48
    assert torch.equal(torch.bincount(stage.rows), torch.where(wrong, copies, 1))
    first = next(BiasAdv("jtt", identify_epochs=7).stages(engine_run(data, "linear")))
    assert (first.name, first.epochs) == ("mine", 7)


# The contract's tests know the default base alone


@pytest.mark.parametrize("base", ["erm", "jtt"])
def test_a_run_on_another_base_goes_on_after_stops(base, tmp_path):
    method, data = BiasAdv(base, steps=1, lambda_up=2), pictures(n=32)
    recipe = replace(data.recipe, schedule="cosine")
    whole = fit(method, data, net="simconv1", recipe=recipe, **CPU)
    stops = 0
    while stops < 20:
        try:
            torn = fit(method, data, net="simconv1", recipe=recipe, out=tmp_path, device="cpu", progress=StopAt(2))
            break
        except Interrupted:
            stops += 1
    assert 0 < stops < 20 and torn.scores == whole.scores
    assert same_weights(torn.classifier, whole.classifier)


@pytest.mark.parametrize("base", ["erm", "jtt"])
def test_another_base_needs_no_bias_label(base):
    data = tiny(n=64)
    bare = {key: split.blinded() for key, split in data.splits.items()}
    result = fit(BiasAdv(base), replace(data, **bare, attributes=(), values=(), aligned=()), **CPU)
    assert result.status == "done" and result.labels_used == "none"


# What is trained, and what each network sees


def pictures_batch(data, run):
    idx = torch.arange(8)
    return Batch(run.inputs(data.train.x[idx]), data.train.y[idx], None, idx, torch.tensor(0.0))


def test_the_biased_network_of_jtt_is_frozen():
    stage, biased, run = last_stage(replace(ONCE, base="jtt"), pictures(), "simconv1")
    held = {id(p) for group in stage.optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for p in stage.model.parameters()}
    assert not held & {id(p) for p in biased.parameters()}
    biased.eval()  # as the loop sets what no optimiser holds
    before = {k: v.clone() for k, v in biased.state_dict().items()}
    loss = stage.loss(pictures_batch(run.data, run))
    loss.backward(inputs=[p for group in stage.optimizer.param_groups for p in group["params"]])
    assert all(torch.equal(v, before[k]) for k, v in biased.state_dict().items())
    assert not any(m.training for m in biased.modules())


@pytest.mark.parametrize("base", ["erm", "lff"])
def test_batch_statistics_are_those_of_the_training_passes_alone(base):
    method = replace(ONCE, base=base, steps=3)
    stage, biased, run = last_stage(method, pictures(), "simconv1")
    biased.train(), stage.model.train()
    stage.loss(pictures_batch(run.data, run))
    passes = [
        {int(m.num_batches_tracked) for m in net.modules() if isinstance(m, nn.BatchNorm2d)}
        for net in (biased, stage.model)
    ]
    assert passes == [{1}, {2}]  # g: the batch; f: the batch and its adversarial copy; the attack leaves no trace
    assert all(m.training for net in (biased, stage.model) for m in net.modules())


def test_no_gradient_reaches_the_biased_network_through_the_weights_or_the_attack():
    method = replace(ONCE, base="lff")
    stage, biased, run = last_stage(method, pictures(), "simconv1")
    batch = pictures_batch(run.data, run)
    torch.manual_seed(0)
    biased.eval(), stage.model.eval()
    stage.loss(batch).backward()
    grads = [p.grad.clone() for p in biased.parameters()]
    biased.zero_grad()
    gce_paper(biased(batch.x), batch.y, method.q).backward()
    for mine, alone in zip(grads, biased.parameters(), strict=True):
        torch.testing.assert_close(mine, alone.grad, rtol=1e-4, atol=1e-6)


def test_the_adversarial_images_are_valid_pictures_near_the_batch():
    data = replace(pictures(), inputs=Images((0.1, 0.2, 0.3), (0.2, 0.3, 0.25)))
    method = replace(ONCE, base="erm", eps=4.0, steps=3)
    stage, _, run = last_stage(method, data, "simconv1")
    batch = pictures_batch(data, run)
    assert float(batch.x.amin()) < -0.4  # black pixels, which a step down would leave
    seen = []
    stage.model.register_forward_pre_hook(lambda module, args: seen.append((module.training, args[0])))
    stage.model.train()
    stage.loss(batch)
    clean, adv = (x for training, x in seen if training)
    assert torch.equal(clean, batch.x)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (data.inputs.mean, data.inputs.std))
    pixels = adv * std + mean
    assert float(pixels.amin()) >= -1e-6 and float(pixels.amax()) <= 1 + 1e-6
    far = (adv - clean).flatten(1).norm(dim=1)
    assert float(far.max()) <= 4 + 1e-4 and float(far.min()) > 0.5
    seen.clear()
    stage, *_ = last_stage(replace(method, clamp=False), data, "simconv1")
    stage.model.register_forward_pre_hook(lambda module, args: seen.append((module.training, args[0])))
    stage.model.train()
    stage.loss(batch)
    _, free = (x for training, x in seen if training)
    assert float((free * std + mean).amin()) < -1e-3


@pytest.mark.slow
@pytest.mark.parametrize("base", ["erm", "jtt", "lff"])
def test_a_compiled_loss_gives_the_same_run(base):
    recipe = Recipe("sgd", 0.1, batch_size=32, epochs=1)
    plain, compiled = (
        fit(BiasAdv(base), tiny(n=96), net="mlp", recipe=replace(recipe, compile=c), **CPU) for c in (False, True)
    )
    for a, b in zip(plain.classifier.parameters(), compiled.classifier.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


def test_a_random_start_and_mixed_precision_train_too():
    method = BiasAdv("lff", random_start=True, norm="linf", eps=0.1)
    recipe = replace(pictures().recipe, precision="bf16")
    first, again = (fit(method, pictures(n=32), net="simconv1", recipe=recipe, **CPU) for _ in range(2))
    assert first.status == "done" and same_weights(first.classifier, again.classifier)
