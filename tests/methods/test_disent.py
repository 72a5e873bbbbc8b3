"""DisEnt: where gradients stop, what is swapped, and whose weights count."""

import math

import pytest
import torch

from spurless.core.data import Batch
from spurless.methods.disent import DisEnt, branches
from spurless.train.fit import fit
from spurless.train.saved import load_run
from tests.support.mining import open_run
from tests.support.reference import LossTables, gce_paper
from tests.support.runs import same_weights
from tests.support.worlds import OwnModule, pictures, tiny

CPU = {"device": "cpu", "progress": False}


def start(method, data, net="mlp"):
    """The stage before its first step, and the modules it works with."""
    run = open_run(data, net)
    stage = next(method.stages(run))
    one, two, label_head, bias_head = run.modules[:4]
    return stage, stage.model, one.encoder, two.encoder, label_head, bias_head


def batch(data, idx, t):
    idx = torch.as_tensor(idx)
    return Batch(data.train.x[idx], data.train.y[idx], None, idx, torch.tensor(t))


def gradients(loss, *modules):
    """For each module, all of its gradients as one vector; zeros where it is not reached."""
    found = []
    for module in modules:
        params = list(module.parameters())
        grads = torch.autograd.grad(loss, params, retain_graph=True, allow_unused=True)
        found.append(torch.cat([(p * 0 if g is None else g).flatten() for p, g in zip(params, grads, strict=True)]))
    return found


# Where gradients stop


def test_no_head_sends_a_gradient_into_the_other_branch():
    label_encoder, bias_encoder = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    label_head, bias_head = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
    x = torch.randn(5, 3)
    to_label, to_bias = branches(label_head, bias_head, label_encoder(x), bias_encoder(x))
    own, other = gradients(to_label.square().sum(), label_encoder, bias_encoder)
    assert own.abs().max() > 0 and other.abs().max() == 0
    own, other = gradients(to_bias.square().sum(), bias_encoder, label_encoder)
    assert own.abs().max() > 0 and other.abs().max() == 0
    both = torch.cat([label_encoder(x), bias_encoder(x)], dim=1)  # stopped, but seen
    torch.testing.assert_close(to_label, label_head(both))
    torch.testing.assert_close(to_bias, bias_head(both))


@pytest.mark.parametrize("t", [0.0, 0.9])
def test_the_bias_losses_reach_the_bias_branch_only_and_the_label_losses_the_label_branch_only(t):
    """The whole loss is taken with and without the bias terms: no label gradient may change, and no bias one stay."""
    data = tiny()
    found = []
    for of_bias in (0.0, 7.0):
        stage, _, *modules = start(DisEnt(lambda_dis=of_bias, lambda_swap_b=of_bias), data)
        torch.manual_seed(3)
        found.append(gradients(stage.loss(batch(data, range(16), t)), *modules))
    without, with_bias = found
    for place, is_bias in enumerate([False, True, False, True]):  # encoders, then heads
        if is_bias:
            assert without[place].abs().max() == 0 and with_bias[place].abs().max() > 0
        else:
            assert torch.equal(without[place], with_bias[place]) and without[place].abs().max() > 0


# The loss


def test_the_loss_equals_a_slow_loop_over_three_steps_with_repeated_rows():
    """W from the unswapped logits and hand-kept tables; swapped labels for the bias head only."""
    data = tiny()
    method = DisEnt(q=0.4, alpha=0.6, lambda_dis=3.0, lambda_swap=0.5, lambda_swap_b=2.0)
    stage, _, label_encoder, bias_encoder, label_head, bias_head = start(method, data)
    y = data.train.y
    table_b, table_l = (LossTables(y.tolist(), 0.6) for _ in range(2))
    swapped_labels = 0
    for step, idx in enumerate([[0, 1, 2, 3, 4, 5], [2, 3, 6, 7, 0, 9], [9, 2, 11, 0, 1, 8]]):
        torch.manual_seed(step)
        other = torch.rand(6).argsort().tolist()
        swapped_labels += sum(y[idx[k]] != y[idx[o]] for k, o in enumerate(other)).item()
        torch.manual_seed(step)
        got = stage.loss(batch(data, idx, 0.8))
        with torch.no_grad():
            z_l, z_b = label_encoder(data.train.x[idx]), bias_encoder(data.train.x[idx])
            rows = [
                {
                    "label": label_head(torch.cat([z_l[k], z_b[k]])),
                    "bias": bias_head(torch.cat([z_l[k], z_b[k]])),
                    "label swapped": label_head(torch.cat([z_l[k], z_b[other[k]]])),
                    "bias swapped": bias_head(torch.cat([z_l[k], z_b[other[k]]])),
                    "y": y[idx[k]],
                    "other y": y[idx[other[k]]],
                }
                for k in range(6)
            ]
            table_l.update(idx, [entropy(r["label"], r["y"]) for r in rows])
            table_b.update(idx, [entropy(r["bias"], r["y"]) for r in rows])
            w = [
                b / (b + d + 1e-8) for b, d in zip(table_b.relative(idx), table_l.relative(idx), strict=True)
            ]  # from the unswapped logits alone
            l_dis = mean(w[k] * entropy(r["label"], r["y"]) for k, r in enumerate(rows))
            l_dis += 3.0 * gce_of(rows, "bias", "y")
            l_swap = mean(w[k] * entropy(r["label swapped"], r["y"]) for k, r in enumerate(rows))
            l_swap += 2.0 * gce_of(rows, "bias swapped", "other y")
        assert got.item() == pytest.approx(l_dis + 0.5 * l_swap, rel=1e-5)
        with torch.no_grad():  # a step, so that old and new losses differ
            for p in (*label_head.parameters(), *bias_head.parameters()):
                p.mul_(1.5)
    assert swapped_labels > 3, "the orders left the labels as they were: the test shows nothing"
    assert max(w) - min(w) > 0.05, "all weights alike: the test shows nothing"


def entropy(logits, y):
    return -math.log(float(torch.exp(logits[y]) / torch.exp(logits).sum()))


def gce_of(rows, which, label):
    return float(gce_paper(torch.stack([r[which] for r in rows]), torch.stack([r[label] for r in rows]), 0.4))


def mean(values):
    values = list(values)
    return sum(values) / len(values)


@pytest.mark.parametrize(("t", "swaps"), [(0.0, False), (0.2, False), (0.201, True), (0.9, True)])
def test_nothing_is_swapped_before_its_time(t, swaps):
    data = tiny()
    losses, grads = [], []
    for method in (DisEnt(), DisEnt(lambda_swap=0.0)):
        stage, _, *modules = start(method, data)
        torch.manual_seed(0)
        loss = stage.loss(batch(data, range(16), t))
        losses.append(loss.item())
        grads.append(torch.cat(gradients(loss, *modules)))
    assert (losses[0] != losses[1]) is swaps
    assert torch.equal(grads[0], grads[1]) is not swaps


def test_released_gce_is_q_times_the_papers_gradient_on_the_bias_branch_and_leaves_the_label_branch():
    data, grads = tiny(), {}
    for form in ("paper", "code"):
        stage, _, *modules = start(DisEnt(form=form), data)
        torch.manual_seed(0)
        grads[form] = gradients(stage.loss(batch(data, range(16), 0.9)), *modules)
    for place, factor in enumerate([1, 0.7, 1, 0.7]):
        torch.testing.assert_close(grads["code"][place], factor * grads["paper"][place])


# The classifier


def test_the_prediction_is_the_label_head_on_both_features():
    data = tiny()
    _, net, label_encoder, bias_encoder, label_head, _ = start(DisEnt(), data)
    x = data.train.x[:7]
    want = label_head(torch.cat([label_encoder(x), bias_encoder(x)], dim=1))
    torch.testing.assert_close(net(x), want)


@pytest.mark.parametrize(
    ("data", "net"), [(pictures(n=32), "simconv1"), (tiny(), {"name": "fcn", "width": 8}), (tiny(), "own")]
)
def test_a_saved_classifier_is_found_again(tmp_path, data, net):
    net = OwnModule() if net == "own" else net
    result = fit("disent", data, net=net, recipe={"epochs": 1}, out=tmp_path / "run", **CPU)
    again = load_run(tmp_path / "run", net=net, device="cpu").classifier
    assert same_weights(again, result.classifier)
    x = data.train.x[:8].float() / 255
    torch.testing.assert_close(again(x), result.classifier.eval()(x))
    assert again.feature_dim == 2 * fit("erm", data, net=net, recipe={"epochs": 0.1}, **CPU).classifier.feature_dim


def test_both_heads_start_from_the_seed_and_differ():
    data = tiny()
    torch.manual_seed(1)
    first = start(DisEnt(), data)[4:]
    torch.manual_seed(2)
    second = start(DisEnt(), data)[4:]
    assert all(
        torch.equal(a.weight, b.weight) and torch.equal(a.bias, b.bias) for a, b in zip(first, second, strict=True)
    )
    assert not torch.equal(first[0].weight, first[1].weight)


def test_it_helps_the_conflicting_rows_of_the_toy():
    plain, disent = (fit(name, "toy", net="linear", **CPU).scores for name in ("erm", "disent"))
    assert disent["conflicting"] > plain["conflicting"] + 20
    assert disent["unbiased"] > plain["unbiased"] + 10
