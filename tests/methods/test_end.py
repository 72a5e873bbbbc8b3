"""EnD: its two terms pair by pair, and that they do what they say."""

import itertools
from dataclasses import replace

import pytest
import torch

from spurless.core.data import Batch
from spurless.core.errors import UserError
from spurless.core.recipe import Recipe
from spurless.methods.end import EnD
from spurless.methods.parts.dependence import cosines, disentangling, entangling
from spurless.methods.parts.losses import ce
from spurless.registry import load_data
from spurless.train.engine_run import EngineRun
from spurless.train.fit import fit
from spurless.train.networks import network_maker
from spurless.train.observe import Interrupted
from spurless.train.saved import load_run
from tests.support.runs import CPU, StopAt, same_weights
from tests.support.worlds import pictures, tiny


def drawn(seed, n=12, d=3, classes=3, values=4):
    g = torch.Generator().manual_seed(seed)
    y, b = torch.randint(classes, (n,), generator=g), torch.randint(values, (n,), generator=g)
    return torch.randn(n, d, generator=g), y, b


def cosine(u, v):
    return float(u @ v / (u.norm() * v.norm()))


def slow_disentangling(x, b):
    sums, pairs = {}, 0
    for i, j in itertools.combinations(range(len(x)), 2):
        if b[i] == b[j]:
            sums[int(b[i])] = sums.get(int(b[i]), 0.0) + cosine(x[i], x[j])
            pairs += 1
    return sum(abs(s) for s in sums.values()) / pairs if pairs else 0.0


def slow_entangling(x, y, b, released):
    found = []
    for i in range(len(x)):
        for j in range(i):
            if y[i] == y[j] and b[i] != b[j] and (not released or b[i] < b[j]):
                found.append((1 + cosine(x[i], x[j])) / 2)
    return 1 - sum(found) / len(found) if found else 0.0


@pytest.mark.parametrize("seed", range(5))
def test_the_terms_equal_loops_over_pairs(seed):
    x, y, b = drawn(seed)
    assert float(disentangling(cosines(x), b, 4)) == pytest.approx(slow_disentangling(x, b), abs=1e-5)
    for form in ("paper", "code"):
        expected = slow_entangling(x, y, b, form == "code")
        assert float(entangling(cosines(x), y, b, form)) == pytest.approx(expected, abs=1e-5)


def test_the_released_pairs_are_about_half_of_all():
    x, y, b = drawn(0, n=200)
    mask = (y[:, None] == y) & (b[:, None] != b)
    later_smaller = mask.tril(-1) & (b[:, None] < b)
    assert 0.4 < float(later_smaller.sum() / mask.tril(-1).sum()) < 0.6
    assert float(entangling(cosines(x), y, b)) == pytest.approx(float(entangling(cosines(x), y, b, "code")), abs=0.02)


def test_opposite_features_that_share_a_bias_cancel_before_the_absolute_value():
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]])
    b = torch.zeros(4, dtype=torch.long)
    assert float(disentangling(cosines(x), b, 1)) == pytest.approx(2 / 6)  # pairs: +1 twice, −1 four times
    two = torch.tensor([0, 0, 1, 1])
    assert float(disentangling(cosines(x), two, 2)) == pytest.approx(1.0)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_the_length_of_features_does_not_matter(scale):
    x, _, _ = drawn(1)
    lengths = torch.linspace(0.5, 2, len(x))[:, None] * scale
    torch.testing.assert_close(cosines(x * lengths), cosines(x))


def test_without_a_pair_the_terms_are_zero_and_rows_of_zeros_do_no_harm():
    x = torch.zeros(3, 2, requires_grad=True)
    apart = torch.tensor([0, 1, 2])
    total = disentangling(cosines(x), apart, 3) + entangling(cosines(x), apart, apart)
    assert float(total.detach()) == 0.0
    (total + disentangling(cosines(x), torch.zeros(3).long(), 1)).backward()
    assert torch.isfinite(x.grad).all()
    one = torch.ones(1, 2)
    assert float(disentangling(cosines(one), torch.tensor([0]), 2)) == 0.0


def started(method, data, net="mlp"):
    make = network_maker(net, data.shape, len(data.classes), seed=0)
    run = EngineRun(data.blinded("training"), data.recipe, 0, torch.device("cpu"), make)
    stage = next(method.stages(run))
    rows = torch.arange(24)
    a = data.train.a[rows]
    return stage, Batch(data.train.x[rows], data.train.y[rows], a, rows, torch.tensor(0.0))


def test_the_loss_adds_the_terms_of_every_attribute():
    data = tiny(n=60)
    second = torch.arange(60) % 3
    train = replace(data.train, a=torch.stack([data.train.a[:, 0], second], dim=1))
    data = replace(
        data, train=train, val=None, test=None, attributes=("p", "q"), values=(("0", "1"), ("0", "1", "2")), aligned=()
    )
    for form in ("paper", "code"):
        stage, b = started(EnD(alpha=0.3, beta=0.7, form=form), data)
        features = stage.model.features(b.x).detach()
        expected = float(ce(stage.model(b.x), b.y).detach())
        for k in range(2):
            expected += 0.3 * slow_disentangling(features, b.a[:, k])
            expected += 0.7 * slow_entangling(features, b.y, b.a[:, k], form == "code")
        assert float(stage.loss(b).detach()) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("settings", "unit"),
    [({}, False), ({"form": "code"}, True), ({"unit_norm": True}, True), ({"form": "code", "unit_norm": False}, False)],
)
def test_the_released_form_scales_features_to_unit_length(settings, unit):
    stage, b = started(EnD(**settings), tiny(n=60))
    plain, _ = started(EnD(), tiny(n=60))
    features, expected = stage.model.features(b.x), plain.model.features(b.x)
    if unit:
        expected = expected / expected.norm(dim=1, keepdim=True)
    torch.testing.assert_close(features, expected)
    torch.testing.assert_close(stage.model(b.x), plain.model.head(expected))  # the same weights
    stage.loss(b).backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in stage.model.parameters())


def test_with_the_layer_a_run_resumes_bit_for_bit_and_its_classifier_loads_again(tmp_path):
    data, method = pictures(), EnD(form="code")
    whole = fit(method, data, net="simconv1", out=tmp_path / "whole", **CPU)
    for _ in range(50):
        try:
            torn = fit(method, data, net="simconv1", out=tmp_path / "torn", device="cpu", progress=StopAt(3))
            break
        except Interrupted:
            continue
    assert same_weights(whole.classifier, torn.classifier)
    loaded = load_run(tmp_path / "torn", device="cpu")
    x = torch.rand(4, *data.shape)
    torch.testing.assert_close(loaded.classifier(x), whole.classifier.eval()(x))
    torch.testing.assert_close(loaded.classifier.features(x).norm(dim=1), torch.ones(4))


def test_a_network_without_an_encoder_is_regularised_by_its_logits():
    """Its features are the inputs, which no training moves: the terms would change nothing, without a word."""
    stage, b = started(EnD(), tiny(), "linear")
    plain, _ = started(EnD(alpha=0, beta=0), tiny(), "linear")
    weight = stage.model.head.weight
    with_terms, without = (torch.autograd.grad(s.loss(b), s.model.head.weight)[0] for s in (stage, plain))
    assert weight.shape == with_terms.shape and not torch.allclose(with_terms, without)


def test_each_term_is_lowered_by_training_with_it():
    data, recipe = tiny(n=300, rho=0.1), Recipe("adam", 1e-2, batch_size=50, epochs=4)
    y, b = data.train.y, data.train.a[:, 0]
    found = {}
    for weights in ((0, 0), (1, 0), (0, 1)):
        net = fit(EnD(*weights), data, net="mlp", recipe=recipe, **CPU).classifier
        c = cosines(net.features(data.train.x).detach())
        found[weights] = float(disentangling(c, b, 2)), float(entangling(c, y, b))
    assert found[1, 0][0] < 0.7 * found[0, 0][0]
    assert found[0, 1][1] < 0.7 * found[0, 0][1]


def test_it_leaves_the_baseline_behind_on_the_toy():
    toy = load_data("toy")
    erm, end = (fit(m, toy, **CPU) for m in ("erm", "end"))
    assert end.scores["conflicting"] > erm.scores["conflicting"] + 40
    assert end.scores["unbiased"] > erm.scores["unbiased"] + 15
    assert end.labels_used == "training"


def test_without_bias_labels_it_refuses():
    data = tiny(n=64)
    bare = {key: split.blinded() for key, split in data.splits.items()}
    with pytest.raises(UserError, match="needs bias labels"):
        fit("end", replace(data, **bare, attributes=(), values=(), aligned=()), **CPU)
