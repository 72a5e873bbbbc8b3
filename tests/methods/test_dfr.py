"""DFR: the head is scikit-learn's logistic regression on the network's features, nothing else."""

import sys
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from spurless.core.data import Bundle, Split
from spurless.core.errors import UserError
from spurless.core.recipe import Recipe
from spurless.core.seeds import derive
from spurless.methods import dfr
from spurless.methods.dfr import DFR, STRENGTHS, Samples, fit_head, halves, pick_strength
from spurless.methods.group_inference import CLASSES, Groups, Inference
from spurless.methods.rs import subsample
from spurless.nets import build
from spurless.train.fit import fit
from spurless.train.observe import Interrupted
from tests.support.runs import CPU, StopAt, same_weights
from tests.support.worlds import OwnModule, pictures, tiny


def sklearn_head(penalty, c, classes):
    model = LogisticRegression(solver="liblinear", C=c, random_state=0, max_iter=1000, **_as_word(penalty))
    return model if classes == 2 else OneVsRestClassifier(model)


def _as_word(penalty):
    newer = LogisticRegression().get_params().get("penalty") in (None, "deprecated")
    return {"l1_ratio": float(penalty == "l1")} if newer else {"penalty": penalty}


def random_rows(n, classes, d=6, seed=0):
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % classes
    features = torch.randn(n, d, generator=g) * torch.logspace(-2, 2, d) + 5  # of very different scales
    features[:, 0] += 0.02 * y
    features[:, -1] += 80 * (y == 1)
    group = y * 2 + (torch.rand(n, generator=g) < 0.3)
    return features, y, group


@pytest.mark.parametrize("penalty", ["l1", "l2"])
@pytest.mark.parametrize("classes", [2, 4])
def test_the_head_is_scikit_learns_logistic_regression(penalty, classes):
    features, y, group = random_rows(120, classes)
    rows = Samples.of(features, y, group, build("linear", (6,), classes))
    head = fit_head(rows, penalty, 0.3)
    x = features.double().numpy()
    theirs = make_pipeline(StandardScaler(), sklearn_head(penalty, 0.3, classes)).fit(x, y.numpy())
    logits = x @ head.weight.T + head.bias  # on features as they are: standardising is folded in
    if classes == 2:
        np.testing.assert_allclose(logits[:, 1] - logits[:, 0], theirs.decision_function(x), atol=1e-9)
        softmax = torch.from_numpy(logits).softmax(1).numpy()
        np.testing.assert_allclose(softmax, theirs.predict_proba(x), atol=1e-9)
    else:
        np.testing.assert_allclose(logits, theirs.decision_function(x), atol=1e-9)
    assert head.converged and (logits.argmax(1) == theirs.predict(x)).all()
    assert (logits.argmax(1) == y.numpy()).mean() > 1.3 / classes
    assert (penalty == "l1") == bool((head.weight == 0).any())


@pytest.mark.parametrize(("data", "net"), [(tiny(n=300, rho=0.2), "mlp"), (pictures(n=160, classes=3), "simconv1")])
@pytest.mark.parametrize("resamples", [1, 3])
def test_a_run_is_plain_training_and_then_scikit_learn(data, net, resamples):
    erm = fit("erm", data, net=net, seed=2, **CPU)
    result = fit(DFR(strength=0.3, resamples=resamples), data, net=net, seed=2, **CPU)
    assert same_weights(erm.classifier.encoder, result.classifier.encoder)
    assert result.labels_used == "validation"
    classes, x = len(data.classes), data.val.x.float()
    x = x / 255 if data.val.x.dtype == torch.uint8 else x
    with torch.no_grad():
        features = erm.classifier.eval().features(x).double()
    values = len(data.values[0])
    group = data.val.y * values + data.val.a[:, 0]
    generator = torch.Generator().manual_seed(derive(2, "method", "dfr"))
    scaler = StandardScaler().fit(features.numpy())
    weight = bias = 0
    for _ in range(resamples):
        rows = subsample(group, generator)
        size = torch.bincount(group[rows])
        assert len(size[size > 0].unique()) == 1  # balanced by group
        model = sklearn_head("l1", 0.3, classes).fit(scaler.transform(features[rows].numpy()), data.val.y[rows].numpy())
        parts = [model] if classes == 2 else model.estimators_
        weight = weight + np.stack([m.coef_[0] for m in parts]) / resamples
        bias = bias + np.array([m.intercept_[0] for m in parts]) / resamples
    expected = scaler.transform(features.numpy()) @ weight.T + bias
    with torch.no_grad():
        logits = result.classifier.eval()(x).double().numpy()
    found = logits[:, 1:] - logits[:, :1] if classes == 2 else logits
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_the_strength_is_picked_by_the_worst_group_of_the_other_half():
    features, y, group = random_rows(200, 2, seed=3)
    rows = Samples.of(features, y, group, build("linear", (6,), 2))
    picked = pick_strength(rows, "l1", torch.Generator().manual_seed(4))
    generator = torch.Generator().manual_seed(4)
    fit_on, judge_on = halves(group, generator)
    part = fit_on[subsample(group[fit_on], generator)]
    scaler, best = StandardScaler().fit(features.double().numpy()), (-1, 0)
    for c in STRENGTHS:
        x = scaler.transform(features.double().numpy())
        right = sklearn_head("l1", c, 2).fit(x[part], y[part].numpy()).predict(x[judge_on]) == y[judge_on].numpy()
        worst = min(right[group[judge_on].numpy() == g].mean() for g in range(4))
        best = max(best, (worst, c), key=lambda pair: pair[0])
    assert picked == best[1]
    assert pick_strength(rows, "l1", torch.Generator().manual_seed(4)) == picked


def test_the_strength_that_is_given_is_used():
    data = tiny(n=200)
    strong, weak = (fit(DFR(strength=c), data, net="mlp", **CPU).classifier.head.weight for c in (0.001, 10.0))
    assert float(strong.detach().abs().sum()) < 0.1 * float(weak.detach().abs().sum())


def test_halves_share_out_every_group():
    group = torch.tensor([0] * 9 + [3] * 4 + [7])
    first, second = halves(group, torch.Generator().manual_seed(0))
    assert sorted([*first.tolist(), *second.tolist()]) == list(range(14))
    assert torch.bincount(group[first], minlength=8).tolist() == [5, 0, 0, 2, 0, 0, 0, 1]


def world(val_y, val_a, n=80):
    """Samples of two classes and two values, of which the validation split has these."""
    g = torch.Generator().manual_seed(0)

    def split(y, a):
        x = torch.randn(len(y), 7, generator=g)
        x[:, 0] += 2 * y
        return Split(x, y, a[:, None])

    y, a = torch.arange(n) % 2, torch.arange(n) // 2 % 2
    held_out = split(torch.tensor(val_y), torch.tensor(val_a))
    return Bundle("world", split(y, a), held_out, split(y, a), values=(("0", "1"),), recipe=Recipe(lr=1e-2, epochs=2))


@pytest.mark.parametrize(
    ("y", "a", "kept"),
    [
        ([0] * 20 + [1] * 20, [0] * 19 + [1] + [1] * 19 + [0], 4),  # two groups of one row
        ([0] * 20 + [1] * 20, [0] * 20 + [1] * 20, 40),  # two groups without a row
        ([0, 1], [0, 1], 2),  # nothing to judge a strength by
    ],
)
def test_groups_with_few_or_no_rows(y, a, kept, capsys):
    result = fit(DFR(), world(y, a), net="mlp", **CPU)
    assert result.status == "done" and torch.isfinite(result.classifier.head.weight).all()
    said = capsys.readouterr().err
    assert (f"only {kept} of {len(y)} samples" in said) == (kept < 40)


def test_a_class_without_rows_is_refused():
    with pytest.raises(UserError, match="validation samples, and none of them is of class '1'"):
        fit(DFR(), world([0] * 9, [0, 1, 0] * 3), net="mlp", **CPU)


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_network_with_other_outputs_than_classes_is_refused_before_it_is_trained(outputs):
    with pytest.raises(UserError, match=f"has {outputs} outputs"):
        fit(DFR(), world([0, 1] * 20, [0, 0, 1, 1] * 10), net=OwnModule(classes=outputs), **CPU)


@pytest.mark.parametrize("strength", [1e-6, 1.0])
def test_a_head_without_a_weight_is_told(strength, capsys):
    result = fit(DFR(strength=strength), world([0, 1] * 20, [0, 0, 1, 1] * 10), net="mlp", **CPU)
    lost = not result.classifier.head.weight.any()
    assert lost == (strength < 1) == ("gives every sample the same class" in capsys.readouterr().err)


def test_groups_that_ignore_the_class_are_balanced_as_they_are(monkeypatch):
    data = replace(world([0, 0, 0, 1] * 15, [0] * 40 + [1] * 20), groups_ignore_class=True)
    fitted = []
    monkeypatch.setattr(dfr, "fit_head", lambda rows, *more: fitted.append(rows) or fit_head(rows, *more))
    assert fit(DFR(strength=0.3), data, net="mlp", **CPU).status == "done"
    assert [np.bincount(rows.group).tolist() for rows in fitted] == [[20, 20]] * 10


@pytest.mark.parametrize("strength", [0, 0.3])
def test_a_balanced_part_without_a_class_is_refused(strength):
    data = replace(world([0] * 20 + [1] * 20, [1, 1] + [0] * 38), groups_ignore_class=True)
    with pytest.raises(UserError, match="DFR drew .* samples, balanced by group"):
        fit(DFR(strength=strength), data, net="mlp", **CPU)


def test_a_feature_that_never_varies_is_harmless():
    features, y, group = random_rows(60, 2)
    features[:, 2] = 0.1
    features[:, 3] = 0
    head = fit_head(Samples.of(features, y, group, build("linear", (6,), 2)), "l2", 1.0)
    assert np.abs(head.weight[:, 2:4]).max() < 1e-6


def test_a_head_without_bias_stays_without():
    data = tiny(n=300, rho=0.2)
    net = {"name": "fcn", "width": 16, "depth": 1}
    result = fit(DFR(strength=1.0, resamples=1), data, net=net, **CPU)
    assert result.classifier.head.bias is None
    erm = fit("erm", data, net=net, **CPU).classifier.eval()
    with torch.no_grad():
        features = erm.features(data.val.x)
    rows = Samples.of(features, data.val.y, data.val.y, erm)
    assert not rows.mean.any() and not fit_head(rows, "l2", 1.0).bias.any()
    assert result.scores["unbiased"] > 55


# Where groups come from


def test_which_labels_it_needs():
    assert DFR().labels == "validation" and DFR(on="train").labels == "training"
    assert DFR(groups="eiil").labels == DFR(on="train", groups="eiil").labels == "selection"
    blind = world([0, 1] * 20, [0, 0, 1, 1] * 10)
    only_val = replace(blind, train=blind.train.blinded())
    assert fit(DFR(), only_val, net="mlp", **CPU).labels_used == "validation"  # training labels are not even looked for
    with pytest.raises(UserError, match="dfr needs bias labels"):
        fit(DFR(on="train"), only_val, net="mlp", **CPU)
    with pytest.raises(UserError, match="dfr needs bias labels"):
        fit(DFR(), replace(only_val, val=blind.val.blinded()), net="mlp", **CPU)


@pytest.fixture
def guess(monkeypatch):
    fake = ModuleType("spurless.methods.group_inference.fake")
    fake.knows_val = True

    class Fake(Inference):
        def infer(self, run):
            def part(split):
                return split.y * 2 + (split.x[:, 1] > 1.5).long()

            return Groups(part(run.data.train), part(run.data.val) if fake.knows_val else None, 4)
            yield

    Fake.__module__, fake.Fake = fake.__name__, Fake
    monkeypatch.setitem(sys.modules, "spurless.methods.group_inference.fake", fake)
    monkeypatch.setitem(CLASSES, "eiil", f"{fake.__name__}:Fake")
    return fake


@pytest.mark.parametrize(("on", "knows_val", "fitted"), [("val", True, "val"), ("val", False, "train")])
def test_guessed_groups(on, knows_val, fitted, guess, monkeypatch, capsys):
    guess.knows_val = knows_val
    data = world([0, 1] * 20, [0, 0, 1, 1] * 10)
    seen = []
    refit = DFR._refit
    monkeypatch.setattr(DFR, "_refit", lambda *args: seen.append(args[3:]) or refit(*args))
    result = fit(DFR(on=on, groups="eiil"), data, net="mlp", **CPU)
    assert result.labels_used == "none"
    split, group = seen[0]
    assert torch.equal(split.x, data.splits[fitted].x) and split.a is None
    assert torch.equal(group, split.y * 2 + (split.x[:, 1] > 1.5))
    assert ("fitted on training samples" in capsys.readouterr().err) == (not knows_val)


def test_known_groups_of_training_rows():
    result = fit(DFR(on="train", strength=0.3), tiny(n=300, rho=0.2), net="mlp", **CPU)
    assert result.labels_used == "training" and result.status == "done"


# As a run


def test_weights_that_are_there_already_get_a_new_head():
    module = OwnModule()
    data = replace(tiny(n=200), recipe=Recipe(epochs=0))
    result = fit(DFR(), data, net=module, **CPU)
    assert torch.equal(result.classifier.encoder.body[1].weight, module.body[1].weight)
    assert not torch.equal(result.classifier.head.weight, module.classify.weight)


def test_it_resumes_to_the_same_bits(tmp_path):
    data = tiny(n=200)
    whole = fit(DFR(), data, net="mlp", seed=5, **CPU)
    with pytest.raises(Interrupted):
        fit(DFR(), data, net="mlp", seed=5, out=tmp_path / "torn", device="cpu", progress=StopAt(9))
    torn = fit(DFR(), data, net="mlp", seed=5, out=tmp_path / "torn", **CPU)
    assert same_weights(whole.classifier, torn.classifier)
    other = fit(DFR(), data, net="mlp", seed=6, **CPU)
    assert not same_weights(whole.classifier, other.classifier)


def test_it_helps_on_the_known_answer_world():
    data, recipe = tiny(n=1000, rho=0.05), Recipe("adam", 1e-2, batch_size=64, epochs=10)
    erm, dfr = (fit(m, data, net="linear", recipe=recipe, **CPU) for m in ("erm", DFR()))
    assert dfr.scores["worst_group"] > erm.scores["worst_group"] + 20
