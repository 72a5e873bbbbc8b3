"""Each method equals its authors' released code, over a few steps.

released/ holds numbers that the released functions gave once on drawn inputs. `source` names the repository and its
commit, `how` what was called on what. No line of that code is kept.
"""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from spurless.core.data import Batch, Bundle, Split
from spurless.core.recipe import Recipe
from spurless.methods.bpa import ExponentialWeights
from spurless.methods.cnc import contrast
from spurless.methods.dcwp import DCWP, DebiasedMask, Finetune
from spurless.methods.disent import DisEnt
from spurless.methods.end import EnD
from spurless.methods.ga import aligned_weights
from spurless.methods.gc_dro import sample_weights
from spurless.methods.group_dro import GroupDRO, WorstGroup
from spurless.methods.group_inference.clusters import merged, overclustered, worth_it
from spurless.methods.group_inference.eiil import ascend
from spurless.methods.irm import slopes
from spurless.methods.lff import LfF
from spurless.methods.parts.clusters import best_clusters
from spurless.methods.parts.losses import ce_rows
from spurless.methods.pgd import PGD
from spurless.methods.rebias import ReBias
from spurless.nets import Net
from spurless.train.loop import EngineRun
from spurless.train.networks import network_maker

FOLDER = Path(__file__).parent / "released"
METHODS = "bpa cnc dcwp disent eiil end ga gc_dro george group_dro lff pgd rebias"


def released(name):
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


WORLD = released("world")
X, Y, B = (torch.tensor(WORLD[k]) for k in "xyb")
BATCHES = [torch.tensor(idx) for idx in WORLD["batches"]]
DATA = Bundle("drawn", Split(X, Y, B[:, None]), recipe=Recipe("sgd", 0.1, momentum=0.0, batch_size=8))


def close(ours, theirs, tolerance=2e-6):
    theirs = torch.as_tensor(theirs)
    torch.testing.assert_close(ours.detach().to(theirs.dtype), theirs, rtol=tolerance, atol=tolerance)


def open_run(method):
    make = network_maker({"name": "mlp", "widths": [5]}, DATA.shape, 3, seed=0)
    return EngineRun(DATA.blinded(method.labels), DATA.recipe, 0, torch.device("cpu"), make)


@torch.no_grad()
def put(first, head, numbers):
    """Give a first layer and a head these weights."""
    for module, weight, bias in ((first, "w1", "b1"), (head, "w2", "b2")):
        module.weight.copy_(torch.tensor(numbers[weight]))
        module.bias.copy_(torch.tensor(numbers[bias]))


def same(first, head, numbers, tolerance=2e-6):
    for module, weight, bias in ((first, "w1", "b1"), (head, "w2", "b2")):
        close(module.weight, numbers[weight], tolerance)
        close(module.bias, numbers[bias], tolerance)


def drawn_net(number=0):
    """6 inputs, 5 features, 3 classes."""
    net = Net(nn.Sequential(nn.Linear(6, 5), nn.ReLU()), nn.Linear(5, 3))
    put(net.encoder[0], net.head, WORLD["nets"][number])
    return net


def first_layer(net):
    return next(m for m in net.encoder.modules() if isinstance(m, nn.Linear))


def batch(idx, t=0.0):
    return Batch(X[idx], Y[idx], B[idx][:, None], idx, torch.tensor(t))


def train(stage, batches=BATCHES, t=lambda step: 0.0):
    """The losses of a stage's updates on these batches."""
    found = []
    for step, idx in enumerate(batches):
        for loss, optimizer in stage.updates:
            value = loss(batch(idx, t(step)))
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            found.append(value.detach())
    return torch.stack(found)


def by_hand(net, loss, batches):
    """The losses of SGD on loss(batch), as the release trained."""
    optimizer, found = torch.optim.SGD(net.parameters(), lr=0.1), []
    for idx in batches:
        value = loss(idx)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        found.append(value.detach())
    return torch.stack(found)


def test_every_file_says_where_its_numbers_are_from():
    assert sorted(p.stem for p in FOLDER.glob("*.json")) == sorted([*METHODS.split(), "world"])
    for name in METHODS.split():
        facts = released(name)
        repository, commit = facts["source"].split(", ")
        assert repository.count("/") == 1 and len(commit) == 12 and len(facts["how"]) > 50, name


def test_lff():
    theirs, method = released("lff"), LfF(form="code")
    run = open_run(method)
    stage = next(method.stages(run))
    biased, debiased = (m for m in run.modules if isinstance(m, Net))
    for net, numbers in zip((biased, debiased), WORLD["nets"], strict=True):
        put(first_layer(net), net.head, numbers)
    close(train(stage), theirs["loss"])
    same(first_layer(biased), biased.head, theirs["biased"])
    same(first_layer(debiased), debiased.head, theirs["debiased"])
    assert stage.model is debiased


def test_disent(monkeypatch):
    theirs, method = released("disent"), DisEnt(form="code", swap_from=0.5)
    run = open_run(method)
    stage = next(method.stages(run))
    one, two, label_head, bias_head = run.modules[:4]
    for net, head, place in ((one, label_head, 0), (two, bias_head, 1)):
        put(first_layer(net), head, WORLD["nets"][place] | WORLD["heads"][place])
    orders = iter(WORLD["orders"])
    # A permutation is drawn as the order of random numbers.
    monkeypatch.setattr(torch, "rand", lambda n, device=None: torch.tensor(next(orders)).argsort().float())
    close(train(stage, t=lambda step: 0.9 if step > 2 else 0.1), theirs["loss"])
    same(first_layer(one), label_head, theirs["label"])
    same(first_layer(two), bias_head, theirs["bias"])


def test_pgd():
    theirs, method = released("pgd"), PGD(form="code")
    run = open_run(method)
    net = run.net()
    put(first_layer(net), net.head, WORLD["nets"][0])
    close(train(method.biased(run, net), BATCHES[:4]), theirs["loss"])
    same(first_layer(net), net.head, theirs["biased"])
    close(method.odds(run, net), theirs["odds"], 1e-6)


def test_dcwp(monkeypatch):
    theirs = released("dcwp")
    method = DCWP(form="code", mask=DebiasedMask(iterations=4), finetune=Finetune(lr=0.1))
    run, conflicting = open_run(method), torch.tensor(theirs["conflicting"]) > 0
    net = run.net()
    put(first_layer(net), net.head, WORLD["nets"][0])
    gates = run.keep(method.mask.gates(net, method.form)).train()
    stage = method.mask_stage(run, net, gates, conflicting)
    for logit, start in zip(gates.logits, theirs["start"], strict=True):
        logit.data.copy_(torch.tensor(start))
    noise = iter(torch.tensor(layer) for step in theirs["noise"] for layer in step)
    monkeypatch.setattr(torch, "rand_like", lambda theta: next(noise).sigmoid())
    close(train(stage, BATCHES[:4]), theirs["loss"], 1e-5)
    for logit, final in zip(gates.logits, theirs["logits"], strict=True):
        close(logit, final, 1e-5)
    masks = gates.masks()
    for mask, final in zip(masks.values(), theirs["masks"], strict=True):
        assert torch.equal(mask.float(), torch.tensor(final)) and 0 < mask.float().mean() < 1
    close(train(method.finetune_stage(run, net, masks, conflicting), BATCHES[4:]), theirs["finetuned_loss"], 1e-5)
    same(first_layer(net), net.head, theirs["weights"], 1e-5)


def test_end_with_its_unit_norm_layer():
    theirs, method = released("end"), EnD(alpha=0.7, beta=1.3, form="code")
    stage = next(method.stages(open_run(method)))
    put(first_layer(stage.model), stage.model.head, WORLD["nets"][0])
    close(train(stage), theirs["loss"])
    same(first_layer(stage.model), stage.model.head, theirs["weights"])


def test_end_without_the_layer_is_another_method():
    theirs, method = released("end"), EnD(alpha=0.7, beta=1.3, form="code", unit_norm=False)
    stage = next(method.stages(open_run(method)))
    put(first_layer(stage.model), stage.model.head, WORLD["nets"][0])
    assert float((train(stage) - torch.tensor(theirs["loss"])).abs().max()) > 0.05


def test_rebias():
    theirs, method = released("rebias"), ReBias()
    run = open_run(method)
    stage = next(method.stages(run))
    f, g = (m for m in run.modules if isinstance(m, Net))
    put(first_layer(f), f.head, WORLD["nets"][0])
    part = WORLD["nets"][1]
    cut = {"w1": part["w1"][:3], "b1": part["b1"][:3], "w2": [w[:3] for w in part["w2"]], "b2": part["b2"]}
    put(first_layer(g), g.head, cut)
    # In single precision, which HSIC is computed in; theirs was run in double.
    close(train(stage), torch.tensor(theirs["loss"]).flatten(), 1e-5)
    same(first_layer(f), f.head, theirs["f"], 1e-5)
    same(first_layer(g), g.head, theirs["g"], 1e-5)


def test_group_dro():
    theirs, net = released("group_dro"), drawn_net()
    group, there = Y * 3 + B, torch.tensor(theirs["groups_with_samples"]) > 0
    worst = WorstGroup(torch.bincount(group, minlength=9), GroupDRO(eta=0.5))
    # The release gives groups without a sample the same weight at the start, ours none.
    worst.log_q.fill_(-torch.tensor(9.0).log())
    q = []

    def loss(idx):
        value = worst(ce_rows(net(X[idx]), Y[idx]), group[idx])
        q.append(worst.q)
        return value

    close(by_hand(net, loss, BATCHES), theirs["loss"])
    close(torch.stack(q), theirs["q"])
    same(net.encoder[0], net.head, theirs["weights"])
    assert not there.all()


def test_gc_dro():
    theirs = released("gc_dro")
    dro = GroupDRO("greedy", alpha=0.2, least=0.1)
    for case in theirs["outer"]:
        worst = WorstGroup(torch.ones(6), dro)
        worst.share.copy_(torch.tensor(case["share"]))
        worst.running.copy_(torch.tensor(case["running"]))
        close(worst.sample_weights, case["h"], 1e-5)
    group = torch.tensor(theirs["group"])
    size, (first, second) = torch.bincount(group), torch.tensor(theirs["losses"])
    for losses, weights in zip((first, 0.9 * first + 0.1 * second), torch.tensor(theirs["inner"]), strict=True):
        ours = sample_weights(losses, group, size, beta=0.1, least=0.1)
        # The release leaves out what is left over for one sample of each group.
        other = (ours - weights).abs() > 1e-5
        assert torch.bincount(group[other], minlength=3).max() <= 1
        assert bool((weights[other] == weights.min()).all()) and bool((weights == 10).any())


@pytest.mark.parametrize("case", released("george")["cases"], ids=lambda case: case["name"])
def test_george(case):
    features, validation = (torch.tensor(case[k]).T.contiguous() for k in ("features", "validation"))
    losses, base, parts = (torch.tensor(case[k]) for k in ("losses", "base", "parts"))
    found = best_clusters(features, "kmeans", 0, 2, case["most"])
    assert alike(found.labels, base)
    number = 3 * found.number
    kept = worth_it(features, losses, base, parts, torch.tensor(case["validation_parts"]), number, seed=0)
    assert kept.nonzero().flatten().tolist() == case["kept"]
    assert merged(kept, 3)[0].tolist() == case["place"]
    whole = overclustered(found, features, losses, validation, 3, "kmeans", seed=0)
    assert alike(whole.labels, torch.tensor(case["final"]))


def alike(a, b):
    """Whether two partitions are one but for the clusters' numbers."""
    pairs = set(zip(a.tolist(), b.tolist(), strict=True))
    return len(pairs) == len(set(a.tolist())) == len(set(b.tolist()))


def test_eiil():
    theirs = released("eiil")
    z, y, start = (torch.tensor(theirs[k]) for k in ("logits", "y", "start"))
    d = slopes(torch.stack([torch.zeros_like(z), z], dim=1), y)
    close(d.mean().square(), theirs["penalty"])
    for found in theirs["environments"]:
        ours, _ = ascend(d, start, found["steps"], lr=0.05)
        first = torch.zeros(len(y), dtype=torch.bool)
        first[found["first"]] = True
        assert torch.equal(ours, first) or torch.equal(~ours, first)  # ours is numbered by what it contradicts
    assert len({tuple(found["first"]) for found in theirs["environments"]}) > 1  # the steps matter


def test_bpa():
    theirs, net = released("bpa"), drawn_net()
    weigh, weights = ExponentialWeights(torch.tensor(theirs["cluster"]), 6, step=0.05), []

    def loss(idx):
        rows = ce_rows(net(X[idx]), Y[idx])
        weights.append(weigh(idx, rows.detach()))
        return (weights[-1] * rows).mean()

    close(by_hand(net, loss, map(torch.tensor, theirs["batches"])), theirs["loss"])
    close(torch.stack(weights), theirs["sample_weights"], 1e-5)
    same(net.encoder[0], net.head, theirs["weights"])


def test_cnc():
    theirs, net = released("cnc"), drawn_net()
    positive, negative = torch.zeros(2, 8, 8, dtype=torch.bool)
    positive[0, 1:4], negative[0, 4:] = True, True  # of the first sample alone
    found = by_hand(net.encoder, lambda idx: contrast(net.features(X[idx]), positive, negative, tau=0.1), BATCHES)
    close(found, theirs["loss"], 1e-5)
    close(net.encoder[0].weight, theirs["weights"]["w1"], 1e-5)
    close(net.encoder[0].bias, theirs["weights"]["b1"], 1e-5)


def test_ga():
    theirs, net, hard = released("ga"), drawn_net(), Y != B
    weights = []

    def loss(idx):
        rows = ce_rows(net(X[idx]), Y[idx])
        weights.append(aligned_weights(rows, hard[idx], gamma=1.6))
        return (weights[-1] * rows).mean()

    close(by_hand(net, loss, BATCHES), theirs["loss"])
    close(torch.stack(weights), theirs["sample_weights"])
    same(net.encoder[0], net.head, theirs["weights"])
