"""PGD is the algorithm, its gradients are autograd's, and its theorem holds."""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from spurless.core.augment import Augment
from spurless.core.data import Images
from spurless.core.errors import UserError
from spurless.core.method import Method
from spurless.core.recipe import Recipe
from spurless.core.seeds import derive
from spurless.methods.erm import ERM
from spurless.methods.parts.grads import (
    GradNorms,
    grad_norms,
    head_grad_norms,
)
from spurless.methods.parts.losses import ce_rows
from spurless.methods.pgd import PGD
from spurless.nets import Net, build
from spurless.train.feed import epoch_order
from spurless.train.fit import fit
from spurless.train.observe import Interrupted
from spurless.train.optim import make_optimizer
from studies.theory.fisher import fisher_trace_inverse, fisher_trace_inverse_head, trace_inverse
from tests.support.reference import gce_paper, per_sample_head_gradients, weighted_draws
from tests.support.runs import CPU, StopAt, same_weights
from tests.support.worlds import pictures, tiny

NORMS = ["l1", "l2", "l2_squared", "linf", "l0.7"]
RECIPE = Recipe("sgd", 0.05, momentum=0.9, weight_decay=1e-3, batch_size=32, epochs=3)


def slow_norm(g, norm):
    values = [abs(v) for v in g.flatten().tolist()]
    if norm == "linf":
        return max(values)
    if norm == "l2_squared":
        return sum(v**2 for v in values)
    order = float(norm[1:])
    return sum(v**order for v in values) ** (1 / order)


# Gradients


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 6),
    d=st.integers(1, 7),
    classes=st.integers(2, 6),
    norm=st.sampled_from(NORMS),
    bias=st.booleans(),
)
def test_closed_form_norms_equal_autograd(seed, n, d, classes, norm, bias):
    torch.manual_seed(seed)
    net = Net(nn.Sequential(nn.Linear(3, d), nn.Tanh()), nn.Linear(d, classes)).double()
    x, y = 2 * torch.randn(n, 3, dtype=torch.double), torch.randint(classes, (n,))
    weights, biases = per_sample_head_gradients(net, x, y)
    slow = [slow_norm(torch.cat([w.flatten(), b]) if bias else w, norm) for w, b in zip(weights, biases, strict=True)]
    with torch.no_grad():
        features = net.features(x)
        fast = head_grad_norms(net.head(features), features, y, norm, bias)
    assert fast.tolist() == pytest.approx(slow, rel=1e-9)


def test_a_confident_row_keeps_its_small_gradient():
    """In single precision 1 − p of the first row is 0; it is e⁻³⁰ · √2."""
    norms = head_grad_norms(torch.tensor([[30.0, 0.0], [0.0, 30.0]]), torch.ones(2, 1), torch.zeros(2).long())
    assert norms.tolist() == pytest.approx([math.sqrt(2) * math.exp(-30), math.sqrt(2)], rel=1e-3)


def messy(classes=4):
    """BatchNorm with a history and dropout, in training mode: nothing of which may show in a score."""
    net = build("simconv1", (3, 28, 28), classes)
    net.train()
    with torch.no_grad():
        for _ in range(3):
            net(torch.rand(8, 3, 28, 28))
    return net


def slow_gradients(net, x, y, loss=ce_rows):
    """(n, parameters): one backward pass for each row, in evaluation mode."""
    net.eval()
    params = [p for p in net.parameters() if p.requires_grad]
    rows = [torch.autograd.grad(loss(net(x[i : i + 1]), y[i : i + 1])[0], params) for i in range(len(y))]
    return torch.stack([torch.cat([g.flatten() for g in row]) for row in rows])


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("chunk", [None, 2])
def test_whole_network_norms_equal_a_loop(norm, chunk):
    net, x, y = messy(), torch.rand(5, 3, 28, 28), torch.tensor([0, 1, 2, 3, 1])
    before = {k: v.clone() for k, v in net.state_dict().items()}
    fast = grad_norms(net, x, y, norm, chunk=chunk)
    assert net.training and all(torch.equal(before[k], v) for k, v in net.state_dict().items())
    slow = [slow_norm(g, norm) for g in slow_gradients(net, x, y)]
    assert fast.tolist() == pytest.approx(slow, rel=1e-3)


def test_frozen_parameters_do_not_count_and_all_frozen_is_refused():
    net, x, y = messy().eval(), torch.rand(4, 3, 28, 28), torch.tensor([0, 1, 2, 3])
    net.encoder.requires_grad_(False)
    with torch.no_grad():
        features = net.features(x)
        head = head_grad_norms(net.head(features), features, y, bias=True)
    assert grad_norms(net, x, y).tolist() == pytest.approx(head.tolist(), rel=1e-4)
    with pytest.raises(UserError, match="no trainable parameter"):
        grad_norms(net.requires_grad_(False), x, y)


def test_norms_of_a_split_belong_to_its_rows():
    """Run.outputs passes 64 rows in parts of 10: each must meet its own label."""
    found = {}

    @dataclass(frozen=True)
    class Watch(Method):
        def stages(self, run):
            net, y = run.net(), run.data.train.y
            yield next(ERM().stages(run))
            scored = GradNorms(net, y)
            found["outputs"] = [run.outputs(scored), run.outputs(scored)]
            found["direct"] = grad_norms(net, run.data.train.x / 255, y)
            return net

    fit(Watch(), pictures(), net="simconv1", recipe=replace(RECIPE, epochs=1, eval_batch_size=10), **CPU)
    for scores in found["outputs"]:
        torch.testing.assert_close(scores, found["direct"], rtol=1e-3, atol=1e-6)


# The three steps


class Stages:
    """Runs a method and keeps what its stages looked like: the stage, its rows, weights and optimiser state."""

    def __init__(self, method, data, net, recipe, seed=0, **settings):
        self.seen = []
        keep = self

        @dataclass(frozen=True)
        class Watch(Method):
            def stages(self, run):
                inner, keep.run = method.stages(run), run
                try:
                    stage = next(inner)
                    while True:
                        yield keep.watch(stage)
                        keep.seen[-1]["end"] = weights_of(stage.model)
                        stage = next(inner)
                except StopIteration as end:
                    return end.value

        self.result = fit(Watch(), data, net=net, recipe=recipe, seed=seed, **CPU | settings)

    def watch(self, stage):
        facts = {"stage": stage, "start": weights_of(stage.model), "rows": [], "losses": []}
        facts["fresh"] = not stage.optimizer.state
        self.seen.append(facts)
        loss = stage.loss

        def look(b):
            value = loss(b)
            facts["rows"] += b.idx.tolist()
            facts["losses"].append(value.item())
            return value

        return replace(stage, loss=look)


def weights_of(net):
    return {k: v.detach().clone() for k, v in net.state_dict().items()}


def pgd_by_hand(data, recipe, seed, q=0.7):
    """Algorithm 1 with one backward pass for each row and the distribution walked along."""
    torch.manual_seed(derive(seed, "net", 0))
    net, x, y, n = build("mlp", data.shape, 2), data.train.x, data.train.y, len(data.train.y)

    def train(stage, draw, loss):
        net.train()
        opt = make_optimizer(net.parameters(), recipe, torch.device("cpu"))
        for epoch in range(int(recipe.epochs)):
            for rows in draw(derive(seed, "order", stage, epoch)).split(recipe.batch_size):
                opt.zero_grad()
                loss(net(x[rows]), y[rows]).backward()
                opt.step()

    def by_odds(seed):
        uniforms = torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.double)
        return torch.tensor(weighted_draws(h, uniforms.tolist()))

    train(0, lambda s: epoch_order(n, None, None, torch.Generator().manual_seed(s)), lambda z, t: gce_paper(z, t, q))
    net.eval()
    norms = [float(g.norm()) for g in per_sample_head_gradients(net, x, y)[0]]
    h = [v / sum(norms) for v in norms]
    train(1, by_odds, nn.functional.cross_entropy)
    return net


def test_a_run_is_the_algorithm_written_by_hand():
    data = tiny(n=70, rho=0.1)
    result = fit(PGD(), data, net="mlp", recipe=RECIPE, seed=3, **CPU)
    for mine, theirs in zip(result.classifier.parameters(), pgd_by_hand(data, RECIPE, 3).parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_the_debiased_network_goes_on_from_the_biased_weights_with_a_fresh_optimiser():
    biased, debiased = Stages(PGD(), pictures(), "simconv1", RECIPE).seen
    assert [s["stage"].name for s in (biased, debiased)] == ["biased", "debiased"]
    assert all(torch.equal(biased["end"][k], debiased["start"][k]) for k in biased["end"])
    assert any(not torch.equal(biased["start"][k], biased["end"][k]) for k in biased["end"])
    assert debiased["fresh"] and debiased["stage"].select and not biased["stage"].select
    assert biased["stage"].sample_weights is None


@pytest.mark.parametrize("settings", [{}, {"norm": "l1", "exponent": 0.5}, {"score": "loss"}])
def test_rows_are_drawn_as_often_as_their_odds_say(settings):
    n, epochs = 100, 60
    _, debiased = Stages(PGD(**settings), tiny(n=n), "linear", replace(RECIPE, epochs=epochs)).seen
    h, count = debiased["stage"].sample_weights, torch.bincount(torch.tensor(debiased["rows"]), minlength=n)
    draws = n * epochs
    assert count.sum() == draws and float(h.sum()) == pytest.approx(1)
    error = (draws * h * (1 - h)).sqrt()
    assert bool(((count - draws * h).abs() <= 4.5 * error + 1).all())
    chi2 = ((count - draws * h) ** 2 / (draws * h).clamp_min(1e-9))[draws * h > 5].sum()
    assert float(chi2) < n + 5 * math.sqrt(2 * n)
    # Not what plain shuffling would give, where each row is seen once an epoch.
    assert int(count.max()) > 2 * epochs


def test_odds_by_hand():
    """Each setting's odds from the biased network that they were made with."""
    data, odds = tiny(n=40, rho=0.2), {}
    wanted = {
        "l2": PGD(),
        "squared": PGD(exponent=2),
        "l2_squared": PGD(norm="l2_squared"),
        "bias": PGD(head_bias=True),
        "full": PGD(scope="full"),
        "full, l1": PGD(scope="full", norm="l1"),
        "loss": PGD(score="loss"),
        "code": PGD(form="code"),
        "l0.7": PGD(norm="l0.7"),
    }

    @dataclass(frozen=True)
    class Watch(Method):
        def stages(self, run):
            net = run.net()
            yield PGD().biased(run, net)
            odds.update({name: method.odds(run, net) for name, method in wanted.items()})
            odds["loss by hand"] = ce_rows(net(data.train.x), data.train.y).detach()
            odds["weights"], odds["biases"] = per_sample_head_gradients(net, data.train.x, data.train.y)
            return net

    fit(Watch(), data, net="linear", recipe=RECIPE, **CPU)

    def share(scores):
        return torch.tensor(scores, dtype=torch.double) / sum(scores)

    both = torch.cat([odds["weights"].flatten(1), odds["biases"]], dim=1)
    hand = {
        "l2": share([float(g.norm()) for g in odds["weights"]]),
        "squared": share([float(g.norm()) ** 2 for g in odds["weights"]]),
        "bias": share([float(g.norm()) for g in both]),
        "full, l1": share([slow_norm(g, "l1") for g in both]),
        "loss": share(odds["loss by hand"].tolist()),
        "l0.7": share([slow_norm(g, "l0.7") for g in odds["weights"]]),
    }
    hand["l2_squared"], hand["full"] = hand["squared"], hand["bias"]  # a linear network is its head, bias included
    hand["code"] = hand["l0.7"]  # the toy is not augmented
    for name, h in hand.items():
        torch.testing.assert_close(odds[name].double(), h, rtol=1e-4, atol=1e-9)


def test_the_codes_form_scores_one_augmented_view():
    moved = replace(pictures(), inputs=Images(augment=Augment(rotate=30.0)))
    odds = {}

    @dataclass(frozen=True)
    class Watch(Method):
        def stages(self, run):
            net = run.net()
            yield PGD().biased(run, net)
            paper, code = PGD(norm="l2"), PGD(norm="l2", form="code")
            odds.update(paper=paper.odds(run, net), code=code.odds(run, net), again=code.odds(run, net))
            return net

    fit(Watch(), moved, net="simconv1", recipe=RECIPE, **CPU)
    assert torch.equal(odds["code"], odds["again"])
    assert not torch.allclose(odds["code"], odds["paper"], rtol=1e-2)


def test_no_row_is_lost_in_the_codes_form():
    @dataclass(frozen=True)
    class Watch(Method):
        def stages(self, run):
            net = run.net()
            yield PGD().biased(run, net)
            with torch.no_grad():
                net.head.weight.mul_(1e6)  # all rows are certain: gradients of exactly 0
            Watch.found = PGD().odds(run, net), PGD(form="code").odds(run, net)
            return net

    fit(Watch(), tiny(n=40), net="linear", recipe=RECIPE, **CPU)
    paper, code = Watch.found
    assert float(paper.min()) == 0 < float(code.min())


def test_reweighting_uses_the_odds_as_weights_with_mean_1():
    data = tiny(n=64, rho=0.1)
    stages = Stages(PGD(use="reweight"), data, "linear", replace(RECIPE, epochs=1, lr=1e-12))
    debiased = stages.seen[1]
    assert debiased["stage"].sample_weights is None and sorted(debiased["rows"]) == list(
        range(64)
    )  # shuffled, not drawn
    net = stages.result.classifier  # the learning rate is so small that it is still the network that was scored
    norms = [float(g.norm()) for g in per_sample_head_gradients(net, data.train.x, data.train.y)[0]]
    w = 64 * torch.tensor(norms) / sum(norms)
    assert float(w.mean()) == pytest.approx(1)
    losses = ce_rows(net(data.train.x), data.train.y).detach()
    for rows, value in zip(torch.tensor(debiased["rows"]).split(32), debiased["losses"], strict=True):
        assert value == pytest.approx(float((w * losses)[rows].mean()), rel=1e-4)


# Single stage


def test_single_stage_takes_turns_and_scores_anew():
    recipe = replace(RECIPE, epochs=2.5, schedule="cosine")
    stages = Stages(PGD(single_stage=True), tiny(n=70), "mlp", recipe)
    seen = stages.seen
    assert [s["stage"].name for s in seen] == ["biased", "debiased"] * 3
    assert [s["stage"].select for s in seen] == [False] * 5 + [True]
    biased, debiased = seen[::2], seen[1::2]
    assert biased[0]["stage"].model is not debiased[0]["stage"].model
    odds = [s["stage"].sample_weights for s in debiased]
    net, train = build("mlp", (7,), 2).eval(), tiny(n=70).train
    for before, h in zip(biased, odds, strict=True):  # by the biased network as it is then
        net.load_state_dict(before["end"])
        norms = torch.stack([g.norm() for g in per_sample_head_gradients(net, train.x, train.y)[0]])
        torch.testing.assert_close(h.float(), norms / norms.sum(), rtol=1e-3, atol=1e-7)
    assert not torch.allclose(odds[0], odds[1]) and not torch.allclose(odds[1], odds[2])
    for network in (biased, debiased):
        assert [s["fresh"] for s in network] == [True, False, False]  # the optimiser goes on, and so do the weights
        assert all(
            torch.equal(network[k]["end"][w], network[k + 1]["start"][w]) for k in (0, 1) for w in seen[0]["end"]
        )
        steps = sum(len(s["losses"]) for s in network)
        assert steps == 3 + 3 + 2  # 70 rows are 3 batches of an epoch; half an epoch is 1.5, rounded
    whole = fit(PGD(), tiny(n=70), net="mlp", recipe=replace(recipe, epochs=3), **CPU)
    parts = fit(PGD(single_stage=True), tiny(n=70), net="mlp", recipe=replace(recipe, epochs=3), **CPU)
    last = [row["lr"] for row in whole.history if row["stage"] == "biased"]
    assert [row["lr"] for row in parts.history if row["stage"] == "debiased"] == pytest.approx(last)


def test_single_stage_keeps_to_a_length_given_in_steps():
    recipe = replace(RECIPE, iterations=7, drop_last=True)  # 70 rows: 2 full batches an epoch
    seen = Stages(PGD(single_stage=True), tiny(n=70), "linear", recipe).seen
    assert sum(len(s["losses"]) for s in seen[1::2]) == 7


def test_single_stage_goes_on_after_a_stop_and_refuses_to_select(tmp_path):
    method = PGD(single_stage=True)
    whole = fit(method, tiny(n=70), net="mlp", recipe=RECIPE, **CPU)
    for _ in range(20):
        try:
            torn = fit(method, tiny(n=70), net="mlp", recipe=RECIPE, out=tmp_path, device="cpu", progress=StopAt(4))
            break
        except Interrupted:
            continue
    assert same_weights(whole.classifier, torn.classifier)
    with pytest.raises(UserError, match="selection = last"):
        fit(method, tiny(n=70), net="mlp", recipe=replace(RECIPE, selection="val_loss"), **CPU)


# Theorem 2


class OneNumber(nn.Module):
    """A model that is a single parameter, whatever the input."""

    def __init__(self, theta):
        super().__init__()
        self.theta = nn.Parameter(torch.tensor(theta, dtype=torch.double))

    def forward(self, x):
        return self.theta.expand(len(x), 1)


def square(theta, y):
    """½(θ + a)² in the large set (y = 0), ½(θ − a)² in the small one, with a = 2."""
    return (theta[:, 0] + 2.0 * (1 - 2 * y)) ** 2 / 2


@pytest.mark.parametrize(("many", "few"), [(9, 1), (995, 5), (50, 50)])
def test_theorem_2_each_set_gets_half_the_mass(many, few):
    y = torch.tensor([0] * many + [1] * few)
    theta = 2.0 * (few - many) / (many + few)  # where the mean gradient is 0
    net = OneNumber(theta)
    norms = grad_norms(net, torch.zeros(many + few, 1), y, loss=square)
    assert norms[0] == pytest.approx(4 * few / (many + few)) and norms[-1] == pytest.approx(4 * many / (many + few))
    h = norms / norms.sum()
    assert float(h[y == 0].sum()) == pytest.approx(0.5) and float(h[y == 1].sum()) == pytest.approx(0.5)


def test_theorem_2_the_trace_of_the_inverse_information_is_least_there():
    y, x = torch.tensor([0] * 9 + [1]), torch.zeros(10, 1)

    def trace(mass):
        """With this mass on the large set, at the parameter that training on it would find."""
        h = torch.where(y == 0, mass / 9, 1 - mass)
        net = OneNumber(2.0 * (1 - 2 * mass))
        return fisher_trace_inverse(net, [(x[:4], y[:4]), (x[4:], y[4:])], h, damping=1e-9, probes=1, loss=square).value

    assert trace(0.5) == pytest.approx(1 / 4, rel=1e-6)  # 1 / (4a² · ½ · ½)
    assert trace(0.9) == pytest.approx(1 / (16 * 0.9 * 0.1), rel=1e-6)
    assert min((trace(m / 20), m) for m in range(1, 20))[1] == 10


# The trace of the inverse Fisher information


def dense_trace(gradients, h, damping):
    """The matrix written out, and inverted."""
    total = torch.zeros(gradients.shape[1], gradients.shape[1], dtype=torch.double)
    for g, w in zip(gradients.double(), h, strict=True):
        total += w * torch.outer(g, g)
    return float(torch.linalg.inv(total + damping * torch.eye(len(total))).trace())


def head_world(n, d, classes):
    g = torch.Generator().manual_seed(n)
    features, y = torch.randn(n, d, generator=g).relu().double(), torch.randint(classes, (n,), generator=g)
    net = Net(nn.Identity(), nn.Linear(d, classes)).double()
    h = torch.rand(n, generator=g).double()
    return net, features, y, h / h.sum()


@pytest.mark.parametrize(("n", "d", "classes"), [(60, 4, 3), (12, 5, 4), (30, 3, 2)])
@pytest.mark.parametrize("bias", [False, True])
def test_the_heads_trace_equals_the_dense_inverse(n, d, classes, bias):
    net, x, y, h = head_world(n, d, classes)
    weights, biases = per_sample_head_gradients(net, x, y)
    gradients = torch.cat([weights, biases[:, :, None]], dim=2).flatten(1) if bias else weights.flatten(1)
    for odds in (h, None):
        slow = dense_trace(gradients, torch.full((n,), 1 / n) if odds is None else odds, 1e-2)
        left_out = (d + bias) / 1e-2  # the directions that shift all logits alike
        with torch.no_grad():
            fast = fisher_trace_inverse_head(net.head(x), x, y, odds, damping=1e-2, bias=bias)
        assert fast.value == pytest.approx(slow - left_out, rel=1e-6) and fast.error == 0


def test_the_estimate_agrees_with_the_exact_trace_within_its_error():
    net, x, y, h = head_world(200, 8, 5)
    with torch.no_grad():
        exact = fisher_trace_inverse_head(net.head(x), x, y, h, damping=1e-2)
        rough = fisher_trace_inverse_head(net.head(x), x, y, h, damping=1e-2, probes=60, exact=10)
    assert 0 < rough.error < 0.1 * exact.value
    assert abs(rough.value - exact.value) < 4 * rough.error


def test_a_whole_networks_trace_equals_the_dense_inverse():
    torch.manual_seed(0)
    net = build({"name": "mlp", "widths": [4]}, (3,), 3).double()
    x, y = torch.randn(40, 3, dtype=torch.double), torch.randint(3, (40,))
    h = torch.rand(40, dtype=torch.double)
    slow = dense_trace(slow_gradients(net, x, y), h / h.sum(), 0.05)
    batches = list(zip(x.split(16), y.split(16), strict=True))
    rough = fisher_trace_inverse(net, batches, h, damping=0.05, probes=40)
    assert 0 < rough.error < 0.05 * slow
    assert abs(rough.value - slow) < 4 * rough.error


def test_an_inverse_that_cannot_be_found_says_so():
    steep = torch.logspace(-12, 12, 3000, dtype=torch.double)
    with pytest.raises(UserError, match="larger damping"):
        trace_inverse(lambda v: steep * v, torch.zeros_like(steep), 1e-30, probes=1)


def test_pgd_lowers_the_trace_as_in_figure_3():
    """A method of one's own that watches the objective before and after; as in docs/methods/pgd.md."""
    traces = {}

    @dataclass(frozen=True)
    class Figure3(Method):
        def stages(self, run):
            vanilla = yield from ERM().stages(run)
            pgd, net = PGD(), run.net()
            yield pgd.biased(run, net)
            h = pgd.odds(run, net)
            yield pgd.debiased(run, net, h)
            for name, model, odds in (("vanilla", vanilla, None), ("pgd", net, h)):
                features = run.outputs(model, features=True)
                logits = run.outputs(model)
                traces[name] = fisher_trace_inverse_head(logits, features, run.data.train.y, odds).value
            return net

    fit(Figure3(), tiny(n=400), net="linear", recipe=Recipe("adam", 1e-2, batch_size=32, epochs=8), **CPU)
    assert traces["pgd"] < 0.5 * traces["vanilla"]
