"""The bias-adversarial attack on text: one change of the tokens' vectors, padding aside, that both networks read."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from spurless.core.data import Batch
from spurless.core.errors import UserError
from spurless.methods.bias_adv import BiasAdv
from spurless.methods.parts.attacks import Attack, bias_adversarial, embedding_of, on_text, random_point
from spurless.nets import Net, build
from spurless.nets.text import TextEncoder, pooled
from spurless.train.fit import fit
from tests.support.attacks import engine_run, last_stage
from tests.support.reference import gce_paper
from tests.support.runs import CPU, same_weights
from tests.support.text_worlds import BAG, BERT, VOCAB, sentences

DATA = sentences(n=48)
SHAPE = DATA.shape


class WithModes(TextEncoder):
    """A bag with all that has a mode or statistics of its own."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, 8)
        self.layers = nn.Sequential(nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.5))

    def from_embeddings(self, e, x):
        return self.layers(pooled(e, x[:, 1] > 0, "mean"))


def nets(kind="bag"):
    torch.manual_seed(3)
    if kind == "modes":
        made = [Net(WithModes(), nn.Linear(8, 2)) for _ in range(2)]
        for net in made:
            net(DATA.train.x)  # statistics other than those of the start
        return made
    made = [build(BERT if kind == "bert" else BAG, SHAPE, 2) for _ in range(2)]
    for net in made:
        with torch.no_grad():  # far enough from the start for gradients that differ
            net.head.weight.mul_(20)
    return made


def attack(biased, debiased, x=None, y=None, **how):
    x, y = DATA.train.x if x is None else x, DATA.train.y if y is None else y
    start, free, read = on_text(x, debiased)
    return bias_adversarial(
        start, y, biased, debiased, Attack(**({"lam": 0.5, "eps": 0.5, "steps": 4} | how)), free, read
    )


@torch.no_grad()
def objective(change, biased, debiased, lam, x=DATA.train.x, y=DATA.train.y):
    ce = nn.CrossEntropyLoss(reduction="none")
    found = []
    for net in (biased, debiased):
        net = copy.deepcopy(net).eval()
        e = net.encoder.embedding.weight[x[:, 0].long()] + change
        found.append(ce(net.head(net.encoder.from_embeddings(e, x)), y))
    return found[0] - lam * found[1]  # (n,)


def slow_attack(x, y, biased, debiased, lam, eps, steps, norm):
    """One row at a time, cut to its own tokens, so that there is no padding at all."""
    found = torch.zeros(len(x), x.shape[-1], biased.encoder.embedding.weight.shape[1])
    biased, debiased = (copy.deepcopy(net).eval() for net in (biased, debiased))
    for i, (row, label) in enumerate(zip(x, y, strict=True)):
        own = row[None, :, row[1] > 0]  # (1, 2, tokens)
        change = torch.zeros(1, own.shape[-1], found.shape[-1])
        for _ in range(steps):
            change = change.clone().requires_grad_()
            gain = 0
            for net, sign in ((biased, 1), (debiased, -lam)):
                e = net.encoder.embedding.weight[own[:, 0].long()].detach() + change
                gain = gain + sign * nn.functional.cross_entropy(
                    net.head(net.encoder.from_embeddings(e, own)), label[None]
                )
            (g,) = torch.autograd.grad(gain, change)
            change = change.detach() + 2.5 * eps / steps * (g / g.norm() if norm == "l2" else g.sign())
            far = change.norm()
            change = change * min(1.0, float(eps / far)) if norm == "l2" else change.clamp(-eps, eps)
        found[i, : own.shape[-1]] = change[0]
    return found


@pytest.mark.parametrize("kind", ["bag", "bert"])
@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("lam", [0.0, 0.5])
def test_it_raises_its_objective_within_the_ball_and_leaves_padding_alone(kind, norm, lam):
    biased, debiased = nets(kind)
    eps = {"l2": 0.5, "linf": 0.02}[norm]
    change = attack(biased, debiased, lam=lam, eps=eps, norm=norm)
    zero = torch.zeros_like(change)
    assert bool((objective(change, biased, debiased, lam) > objective(zero, biased, debiased, lam)).all())
    far = change.flatten(1).norm(dim=1) if norm == "l2" else change.flatten(1).abs().amax(1)
    assert bool((far <= eps * (1 + 1e-5)).all()) and bool((far > 0.5 * eps).all())
    padding = DATA.train.x[:, 1] == 0
    assert bool(padding.any()) and bool((change[padding] == 0).all())


@pytest.mark.parametrize("kind", ["bag", "bert"])
@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_it_equals_the_slow_attack_without_padding(kind, norm):
    biased, debiased = nets(kind)
    x, y = DATA.train.x[:6], DATA.train.y[:6]
    how = {"lam": 0.7, "eps": 0.05 if norm == "linf" else 0.4, "steps": 3, "norm": norm}
    slow = slow_attack(x, y, biased, debiased, **how)
    torch.testing.assert_close(attack(biased, debiased, x, y, **how), slow, rtol=0, atol=3e-5)


def test_without_lambda_it_is_a_plain_attack_on_the_biased_network():
    biased, debiased = nets("bert")
    other = nets("bert")[0]
    other.load_state_dict(debiased.state_dict())
    with torch.no_grad():
        other.head.weight.neg_()
    assert torch.equal(attack(biased, debiased, lam=0), attack(biased, other, lam=0))
    assert not torch.equal(attack(biased, debiased, lam=0.5), attack(biased, other, lam=0.5))


def test_one_step_on_bags_in_closed_form():
    """The mean of two vectors and a linear head: each token gets half of the head's gradient."""
    g, f = (build({"name": "embedding_bag", "dim": 2, "vocab": 5}, (2, 3), 2) for _ in range(2))
    with torch.no_grad():
        for net, head in ((g, [[1.0, 0.0], [0.0, 1.0]]), (f, [[0.0, 0.0], [2.0, 0.0]])):
            net.encoder.embedding.weight.zero_()
            net.head.weight.copy_(torch.tensor(head))
            net.head.bias.zero_()
    x, y = torch.tensor([[[1, 2, 0], [1, 1, 0]]]), torch.tensor([0])
    change = attack(g, f, x, y, lam=0.25, eps=0.3, steps=1)
    # ∇CE on the mean, p = 1/2: (−1/2, 1/2) and (1, 0), so with λ = 1/4 it is (−3/4, 1/2); over two tokens alike.
    way = torch.tensor([-0.75, 0.5]) / torch.tensor([-0.75, 0.5]).norm() * 0.3 / 2**0.5
    torch.testing.assert_close(change, torch.stack([way, way, torch.zeros(2)])[None])


def test_no_parameter_gradient_statistic_mode_or_random_number_changes():
    biased, debiased = nets("modes")
    debiased.encoder.layers[2].eval()
    before = [copy.deepcopy(net.state_dict()) for net in (biased, debiased)]
    modes = [[m.training for m in net.modules()] for net in (biased, debiased)]
    random = torch.get_rng_state()
    change = attack(biased, debiased)
    assert float(change.abs().max()) > 0 and change.grad_fn is None
    for net, state, mode in zip((biased, debiased), before, modes, strict=True):
        assert all(torch.equal(v, state[k]) for k, v in net.state_dict().items())
        assert all(p.grad is None and p.requires_grad for p in net.parameters())
        assert [m.training for m in net.modules()] == mode
    assert torch.equal(torch.get_rng_state(), random)


def test_a_random_start_fills_the_ball_of_each_row_without_padding():
    free = torch.zeros(20_000, 4, 1)
    free[:10_000, :1], free[10_000:, :3] = 1, 1
    for norm in ("l2", "linf"):
        change = random_point(torch.zeros(20_000, 4, 2), 2.0, norm, free)
        assert bool((change[:10_000, 1:] == 0).all()) and bool((change[10_000:, 3:] == 0).all())
        far = change.flatten(1).norm(dim=1) if norm == "l2" else change.flatten(1).abs().amax(1)
        for rows, dims in ((slice(0, 10_000), 2), (slice(10_000, None), 6)):
            inside = (far[rows] / 2) ** dims  # the share of the ball that lies further in: uniform from 0 to 1
            assert float(inside.max()) <= 1 + 1e-5 and abs(float(inside.mean()) - 0.5) < 4 / (12 * 10_000) ** 0.5


def test_a_row_of_padding_alone_gives_finite_numbers():
    biased, debiased = nets("bert")
    x = DATA.train.x[:3].clone()
    x[1] = 0
    change = attack(biased, debiased, x, DATA.train.y[:3], random_start=True)
    assert bool(change.isfinite().all()) and bool((change[1] == 0).all())


# The method


@pytest.mark.parametrize("base", ["erm", "lff", "jtt"])
def test_both_networks_start_with_the_same_vectors_and_other_weights(base):
    method = BiasAdv(base=base, identify_epochs=1)
    stage, biased, _ = last_stage(method, DATA, BAG, DATA.recipe)
    debiased = stage.model
    assert torch.equal(embedding_of(debiased).weight, embedding_of(biased).weight)
    assert embedding_of(debiased).weight is not embedding_of(biased).weight
    assert not torch.equal(debiased.head.weight, biased.head.weight)


def test_jtt_starts_from_the_untrained_vectors():
    run = engine_run(DATA, BAG, DATA.recipe)
    generator = BiasAdv(base="jtt", identify_epochs=1).stages(run)
    biased = next(generator).model
    start = embedding_of(biased).weight.detach().clone()
    with torch.no_grad():
        embedding_of(biased).weight.add_(1)  # as if it had been trained
    debiased = next(generator).model
    assert torch.equal(embedding_of(debiased).weight, start)


def test_the_loss_by_hand():
    method = BiasAdv(base="erm", lam=0.25, eps=0.4, steps=2, beta=1.5)
    stage, biased, _ = last_stage(method, DATA, BAG, DATA.recipe)
    debiased, x, y = stage.model, DATA.train.x[:8], DATA.train.y[:8]
    found = stage.loss(Batch(x, y, None, torch.arange(8), torch.zeros(())))
    change = slow_attack(x, y, biased, debiased, 0.25, 0.4, 2, "l2")
    e = debiased.encoder.embedding.weight[x[:, 0].long()] + change
    adv = nn.functional.cross_entropy(debiased.head(debiased.encoder.from_embeddings(e, x)), y)
    own = nn.functional.cross_entropy(debiased(x), y)
    expected = gce_paper(biased(x), y, 0.7) + own + 1.5 * adv
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    found.backward()
    assert float(embedding_of(debiased).weight.grad.abs().sum()) > 0  # x̃ is read through the table, which learns


@pytest.mark.parametrize("base", ["erm", "lff", "jtt"])
@pytest.mark.parametrize("net", [BAG, BERT], ids=["bag", "bert"])
def test_a_run_trains_and_repeats(base, net):
    recipe = replace(DATA.recipe, epochs=1)
    method = {"name": "bias_adv", "base": base, "eps": 1.0, "steps": 2}
    a, b = (fit(method, DATA, net=net, recipe=recipe, seed=1, **CPU) for _ in range(2))
    assert a.status == "done" and same_weights(a.classifier, b.classifier)
    plain = fit(method | {"beta": 0.0}, DATA, net=net, recipe=recipe, seed=1, **CPU)
    assert not same_weights(a.classifier, plain.classifier)


def test_a_network_without_two_halves_is_refused_in_one_line():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.last = nn.Embedding(VOCAB, 4), nn.Linear(4, 2)

        def forward(self, x):
            return self.last(self.table(x[:, 0].long()).mean(1))

    with pytest.raises(UserError, match="embed and from_embeddings") as error:
        fit("bias_adv", DATA, net=Own(), recipe=DATA.recipe, **CPU)
    assert "\n" not in str(error.value)
