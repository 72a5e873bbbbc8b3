"""Weights and heads for one's own loop are those that the methods themselves use."""

import types

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

import spurless
from spurless import UserError, refit_head, sample_weights
from spurless.methods import afr, dfr
from spurless.methods.group_dro import group_odds
from spurless.methods.jtt import JTT
from spurless.methods.pgd import PGD

X = torch.randn(90, 5, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
A = (X[:, 1] > 0.5).long()


def model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))


def loader(*tensors, **options):
    return DataLoader(TensorDataset(*(tensors or (X, Y, A))), **({"batch_size": 16, "shuffle": True} | options))


def logits(net):
    with torch.no_grad():
        return net.eval()(X)


@pytest.mark.parametrize("how", [PGD(), PGD(norm="l1", exponent=2.0, head_bias=True), PGD(score="loss")])
def test_pgds_weights_are_the_odds_of_its_own_run(how, monkeypatch):
    seen = {}
    odds = PGD.odds

    def watched(self, run, net):
        seen["net"], seen["h"] = net.unwrapped(), odds(self, run, net)
        return seen["h"]

    monkeypatch.setattr(PGD, "odds", watched)
    data = spurless.Bundle.from_arrays(X, Y, val=0.0, test=0.0)
    spurless.fit(how, data, net=model(), recipe={"epochs": 2, "batch_size": 16}, device="cpu", progress=False)
    monkeypatch.undo()
    own = sample_weights(seen["net"], loader(X, Y), how)
    torch.testing.assert_close(own, seen["h"], rtol=1e-5, atol=1e-9)
    assert float(own.max() / own.min()) > 1.5 and float(own.sum()) == pytest.approx(1)


def test_the_gradient_norms_are_autograds():
    net = model().eval()
    norms = []
    for x, y in zip(X, Y, strict=True):
        net.zero_grad()
        nn.functional.cross_entropy(net(x[None]), y[None]).backward()
        norms.append(net[-1].weight.grad.norm())
    expected = torch.stack(norms) / torch.stack(norms).sum()
    torch.testing.assert_close(sample_weights(net, loader(), "pgd").float(), expected, rtol=1e-4, atol=1e-7)


def test_jtt_and_dcwp_count_errors_more_often():
    wrong = logits(model()).argmax(1) != Y
    assert 0 < wrong.sum() < len(Y)
    assert sample_weights(model(), loader(), JTT(lambda_up=7)).tolist() == torch.where(wrong, 7.0, 1.0).tolist()
    assert sample_weights(model(), loader(), "dcwp").tolist() == torch.where(wrong, 80.0, 1.0).tolist()


def test_lff_compares_two_networks():
    first, second = (nn.functional.cross_entropy(logits(model(s)), Y, reduction="none") for s in (0, 1))
    expected = first / (first + second + 1e-8)
    torch.testing.assert_close(sample_weights(model(0), loader(), "lff", against=model(1)), expected)
    with pytest.raises(UserError, match="against"):
        sample_weights(model(), loader(), "lff")


def test_balanced_draws_every_group_equally_often():
    weights = sample_weights(None, loader(), "balanced")
    group = Y * 2 + A
    assert (
        weights.tolist()
        == group_odds(group).tolist()
        == sample_weights(None, loader(X, Y), "balanced", groups=group).tolist()
    )
    shares = [weights[group == g].sum() / weights.sum() for g in group.unique()]
    assert shares == pytest.approx([1 / len(shares)] * len(shares))
    drawn = torch.tensor(list(WeightedRandomSampler(weights, 20_000, generator=torch.Generator().manual_seed(0))))
    counts = torch.bincount(group[drawn])
    assert counts.min() > 0.9 * counts.max()
    with pytest.raises(UserError, match="groups"):
        sample_weights(None, loader(X, Y), "balanced")


def test_weights_are_in_the_order_of_the_dataset_whatever_the_loader_shuffles_or_drops():
    plain = sample_weights(model(), loader(shuffle=False), "pgd")
    shuffled = sample_weights(model(), loader(drop_last=True, batch_size=40), "pgd")
    sampled = sample_weights(model(), loader(shuffle=None, sampler=WeightedRandomSampler([1.0] * 90, 5)), "pgd")
    assert len(plain) == 90
    torch.testing.assert_close(plain, shuffled)
    torch.testing.assert_close(plain, sampled)


def test_the_model_is_left_as_it_was():
    net = model().train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    sample_weights(net, loader(), "pgd")
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert net.training and not net[-1]._forward_pre_hooks and all(p.grad is None for p in net.parameters())


def test_dictionaries_and_outputs_with_logits_are_read():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.classifier = nn.Linear(5, 6), nn.Linear(6, 2)

        def forward(self, values, scale):
            return types.SimpleNamespace(logits=self.classifier(self.body(values) * scale.mean()))

    torch.manual_seed(0)
    net, scale = Named(), torch.ones(45)
    batches = [{"values": x, "scale": scale, "labels": y} for x, y in zip(X.split(45), Y.split(45), strict=True)]
    direct = nn.Sequential(net.body, net.classifier)
    torch.testing.assert_close(sample_weights(net, batches, "pgd"), sample_weights(direct, loader(X, Y), "pgd"))
    with pytest.raises(UserError, match="labels"):
        sample_weights(net, [{"values": X}], "pgd")


def test_what_has_no_weights_is_refused_by_name():
    with pytest.raises(UserError, match="sample_weights knows pgd"):
        sample_weights(model(), loader(), "erm")
    with pytest.raises(UserError, match="head only"):
        sample_weights(model(), loader(), {"name": "pgd", "scope": "full"})
    with pytest.raises(UserError, match="no samples"):
        sample_weights(model(), [], "pgd")
    with pytest.raises(UserError, match="did you mean 'pgd'"):
        sample_weights(model(), loader(), "pdg")


def test_dfr_is_its_own_refit_on_the_same_features():
    net = refit_head(model(), loader(), {"name": "dfr", "strength": 1.0}, seed=3)
    features = model().eval()[:-1](X).detach()
    head = nn.Linear(8, 2)
    rows = dfr.Samples.of(features, Y, Y * 2 + A, types.SimpleNamespace(head=head, classes=2))
    from spurless.core.seeds import derive

    generator = torch.Generator().manual_seed(derive(3, "method", "dfr"))
    heads = [dfr.fit_head(dfr.balanced(rows, generator), "l1", 1.0) for _ in range(10)]
    expected = torch.tensor(sum(h.weight for h in heads) / 10, dtype=torch.float32)
    torch.testing.assert_close(net[-1].weight.detach(), expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(net[0].weight, model()[0].weight), "only the head is fitted"


def test_afr_is_its_own_descent():
    method = afr.AFR(steps=3, lr=0.5)
    net, start = refit_head(model(), loader(), method), model().eval()
    weights = afr.sample_weights(start(X), Y, 2, method.gamma)
    for _ in range(3):
        loss = (
            weights * nn.functional.cross_entropy(start[-1](start[:-1](X).detach()).double(), Y, reduction="none")
        ).sum()
        gradients = torch.autograd.grad(loss, list(start[-1].parameters()))
        with torch.no_grad():
            for p, g in zip(start[-1].parameters(), gradients, strict=True):
                p -= 0.5 * g
    torch.testing.assert_close(net[-1].weight, start[-1].weight, rtol=1e-4, atol=1e-5)
    with pytest.raises(UserError, match="dfr and afr"):
        refit_head(model(), loader(), "pgd")
