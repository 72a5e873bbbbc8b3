"""A run that is watched is the same run; what is seen is what a plain loop would have noted down."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from spurless import fit
from spurless.core.data import Split
from spurless.core.errors import UserError
from spurless.core.method import Stage
from spurless.core.recipe import Recipe
from spurless.core.seeds import derive
from spurless.methods.parts.losses import ce
from spurless.metrics import records
from spurless.metrics.feature_use import feature_use
from spurless.metrics.regions import core_mask, spurious_mask
from spurless.nets import Net, build
from spurless.registry import load_data
from spurless.sweep import over_runs
from spurless.train import dynamics as dy
from spurless.train.feed import epoch_order
from spurless.train.observe import Interrupted
from spurless.train.saved import load_run
from tests.support.quick import quick
from tests.support.reference import correlation_by_hand, feature_use_by_hand, watched_by_hand
from tests.support.runs import CPU, StopAt, same_weights
from tests.support.worlds import OwnModule, Peek, pictures, tiny

SGD = Recipe("sgd", 0.1, momentum=0.0, batch_size=32, epochs=3, eval_every=0)
# One of each kind of loss: one network, features and head apart, two networks, two optimisers, gates, attacks.
KINDS = ("erm", "cnc", "lff", "disent", "rebias", "bias_adv", "mrm", "dcwp", "jtt", "irm")


def orders(n, epochs, seed=0, stage=0):
    for epoch in range(epochs):
        yield epoch_order(n, None, None, torch.Generator().manual_seed(derive(seed, "order", stage, epoch)))


def same(a, b):
    """Two records, bit by bit."""
    a, b = a.row(), b.row()
    return json.dumps(a) == json.dumps(b)


def conflicting_of(data):
    return ~data.is_aligned(data.train).all(1)


# What is seen is what a plain loop notes down.


@pytest.mark.parametrize(("table", "often"), [(dy.TABLE, dy.OFTEN), (dy.TABLE, 8), (dy.TABLE, 0), (150, dy.OFTEN)])
def test_series_and_norms_are_those_by_hand(table, often, monkeypatch):
    monkeypatch.setattr(dy, "TABLE", table)  # 150: two batches of 32 rows and 2 classes at a time
    monkeypatch.setattr(dy, "OFTEN", often)  # 8: two epochs of 7 batches at a time; 0: each
    data, net = tiny(n=200), build("mlp", (7,), 2)  # 200 = 6 x 32 + 8: a smaller last batch
    watch = dy.Dynamics(every=3, moments=())
    fit("erm", data, net=net, recipe=SGD, dynamics=watch, **CPU)
    seen = watched_by_hand(net, data.train.x, data.train.y, conflicting_of(data), orders(200, 3), 32, 0.1)
    (record,) = watch.records
    assert (record.stage, record.index, len(record)) == ("erm", 0, 21)
    for name, values in record.series.items():
        assert values == pytest.approx([row[name] for row in seen], rel=1e-4, nan_ok=True), name
    assert record.norm_steps.tolist() == [1, 4, 7, 8, 11, 14, 15, 18, 21]  # every third step of an epoch of seven
    for found, kind in ((record.gradient_norms, "gradients"), (record.weight_norms, "weights")):
        assert list(found) == ["encoder.1", "encoder.3", "encoder.5", "head"]
        for block, values in found.items():
            parts = [[v for k, v in seen[s - 1][kind].items() if k.startswith(block)] for s in record.norm_steps]
            assert values == pytest.approx([np.linalg.norm(p) for p in parts], rel=1e-4), (kind, block)


def test_gradients_are_those_before_clipping():
    data, net = tiny(n=96), build("mlp", (7,), 2)
    free, clipped = dy.Dynamics(moments=()), dy.Dynamics(moments=())
    fit("erm", data, net=net, recipe=replace(SGD, epochs=1), dynamics=free, **CPU)
    fit("erm", data, net=net, recipe=replace(SGD, epochs=1, clip_norm=1e-3), dynamics=clipped, **CPU)
    a, b = (w.records[0].gradient_norms["head"][0] for w in (free, clipped))
    assert a == b > 0.01


def test_rows_beyond_the_end_of_a_batch_do_not_count():
    logits = torch.randn(3, 5, 4)
    y, flags = torch.randint(4, (3, 5)), torch.rand(3, 5) < 0.5
    whole = records.batch_shares(logits, y, flags, [5, 2, 1])
    cut = records.batch_shares(logits[1:2, :2], y[1:2, :2], flags[1:2, :2], [2])
    for name in records.Shares._fields:
        assert getattr(whole, name)[1] == pytest.approx(getattr(cut, name)[0], nan_ok=True), name
    alone = records.batch_shares(logits, y, torch.zeros_like(flags), [5, 5, 5])
    assert alone.loss_share.tolist() == [0, 0, 0] and np.isnan(alone.loss_conflicting).all()


def test_a_batch_that_loses_nothing_has_no_share():
    sure = torch.tensor([[[900.0, 0.0], [900.0, 0.0]]])
    found = records.batch_shares(sure, torch.zeros(1, 2).long(), torch.tensor([[True, False]]), [2])
    assert np.isnan(found.loss_share[0]) and found.logit_norm[0] == 900


def test_of_a_sharpness_aware_step_the_first_look_counts():
    data, net = tiny(n=96), build("mlp", (7,), 2)
    plain, sharp = dy.Dynamics(moments=()), dy.Dynamics(moments=())
    fit("erm", data, net=net, recipe=replace(SGD, epochs=1), dynamics=plain, **CPU)
    fit("erm", data, net=net, recipe=replace(SGD, epochs=1, sharpness="sam", rho=2.0), dynamics=sharp, **CPU)
    a, b = (w.records[0].series["loss_share"] for w in (plain, sharp))
    assert a[0] == b[0] and a[1] != b[1]


# A run that is watched is the same run.


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_method_is_caught_and_left_as_it_is(name):
    data = pictures()
    watch = dy.Dynamics(every=2, rows=16, attributed=0, moments=(2,))
    watched = fit(quick(name), data, net="simconv1", seed=4, dynamics=watch, **CPU)
    alone = fit(quick(name), data, net="simconv1", seed=4, **CPU)
    assert same_weights(watched.classifier, alone.classifier) and watched.scores == alone.scores
    assert [h["loss"] for h in watched.history] == [h["loss"] for h in alone.history]
    assert {r.index for r in watch.records} == {h["stage_index"] for h in alone.history}
    for record in watch.records:
        steps = [h["step"] for h in alone.history if h["stage_index"] == record.index]
        assert len(record) == max(steps)
        assert np.isfinite(record.series["logit_norm"]).all() and (record.series["logit_norm"] > 0).all()
        assert np.nanmin(record.series["loss_share"]) >= 0 and np.nanmax(record.series["loss_share"]) <= 1
        assert all(np.isfinite(v).all() for v in record.gradient_norms.values())
        assert any((v > 0).any() for v in record.gradient_norms.values()), record.stage
    hooks = [m for m in watched.classifier.modules() if m._forward_hooks or m._forward_pre_hooks]
    assert not hooks


def test_the_method_stays_blind():
    watch = dy.Dynamics(rows=16, attributed=0)
    fit(Peek(), tiny(), dynamics=watch, **CPU)
    assert all(a is None for a in Peek.seen) and Peek.run.data.train.a is None and Peek.run.data.test is None
    assert watch.records[0].series["conflicting"].sum() > 0  # and yet who conflicts is known


@pytest.mark.parametrize("step", [1, 5, 9])
def test_a_torn_run_is_seen_as_the_whole_one(step, tmp_path):
    data, recipe = pictures(n=70), replace(pictures().recipe, epochs=3)
    settings = {"every": 2, "rows": 16, "moments": (3, 8)}
    whole = dy.Dynamics(**settings)
    fit(quick("jtt"), data, net="simconv1", recipe=recipe, out=tmp_path / "whole", dynamics=whole, **CPU)
    for _ in range(200):
        torn = dy.Dynamics(**settings)
        try:
            fit(
                quick("jtt"),
                data,
                net="simconv1",
                recipe=recipe,
                out=tmp_path / "torn",
                device="cpu",
                progress=StopAt(step),
                dynamics=torn,
            )
            break
        except Interrupted:
            continue
    assert [r.stage for r in torn.records] == [r.stage for r in whole.records] and len(whole.records) == 2
    assert all(same(a, b) for a, b in zip(torn.records, whole.records, strict=True))
    from_folder = dy.read(tmp_path / "torn")
    assert all(same(a, b) for a, b in zip(from_folder, whole.records, strict=True))
    assert [row["step"] for row in whole.records[1].moments] == [3, 8, len(whole.records[1])]


def test_what_was_seen_beyond_the_saved_place_is_dropped(tmp_path):
    """A kill between the two files: the record is ahead of the checkpoint."""
    data, settings = tiny(n=96), {"every": 2, "moments": (3, 7), "rows": 20, "attributed": 2}
    whole, torn = dy.Dynamics(**settings), dy.Dynamics(**settings)
    fit("erm", data, recipe=SGD, out=tmp_path / "whole", dynamics=whole, **CPU)
    with pytest.raises(Interrupted):
        fit("erm", data, recipe=SGD, out=tmp_path / "torn", device="cpu", progress=StopAt(4), dynamics=torn)
    (tmp_path / "torn" / dy.FILE).write_text((tmp_path / "whole" / dy.FILE).read_text())
    again = dy.Dynamics(**settings)
    fit("erm", data, recipe=SGD, out=tmp_path / "torn", dynamics=again, **CPU)
    assert same(again.records[0], whole.records[0]) and [m["step"] for m in again.records[0].moments] == [3, 7, 9]


def test_a_run_that_is_watched_from_the_middle_on(tmp_path):
    data = tiny(n=96)
    whole, late = dy.Dynamics(every=2), dy.Dynamics(every=2)
    fit("erm", data, recipe=SGD, dynamics=whole, **CPU)
    with pytest.raises(Interrupted):
        fit("erm", data, recipe=SGD, out=tmp_path, device="cpu", progress=StopAt(4))
    fit("erm", data, recipe=SGD, out=tmp_path, dynamics=late, **CPU)
    a, b = (w.records[0].series["loss_share"] for w in (late, whole))
    done = 5  # Ctrl-C at the fourth step is heard after the next
    assert np.isnan(a[:done]).all() and (a[done:] == b[done:]).all() and len(a) == len(b) == 9
    assert late.records[0].norm_steps.tolist() == [s for s in whole.records[0].norm_steps if s > done]
    finished = dy.Dynamics()
    fit("erm", data, recipe=SGD, out=tmp_path, dynamics=finished, **CPU)  # a finished run: what was seen is read
    assert same(finished.records[0], late.records[0])


def test_a_stage_that_is_watched_is_trained_here(tmp_path):
    data = tiny(n=96)
    watch = dy.Dynamics(moments=())
    for dynamics in (None, watch):
        fit("erm", data, recipe=SGD, stages=tmp_path, dynamics=dynamics, **CPU)
    assert len(watch.records[0]) == 9


def test_hooks_go_when_a_run_is_stopped(tmp_path):
    kept = []

    class Keeps(dy.Dynamics):
        def stage(self, index, stage, *rest):
            kept.append(stage.model)
            return super().stage(index, stage, *rest)

    with pytest.raises(Interrupted):
        fit("erm", tiny(), recipe=SGD, device="cpu", progress=StopAt(2), dynamics=Keeps())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in kept[0].modules())


def test_a_mistake_gives_the_folder_back(tmp_path):
    class Wrong(Peek):
        def stages(self, run):
            net = run.net()
            yield Stage("wrong", lambda b: net(b.x), run.optimizer(net), model=net, select=True)
            return net

    with pytest.raises(UserError, match="it must be one number"):
        fit(Wrong(), tiny(), out=tmp_path / "run", dynamics=dy.Dynamics(), **CPU)
    assert not (tmp_path / "run").exists()


def test_a_diverged_run_is_seen_up_to_its_end(tmp_path):
    watch = dy.Dynamics(moments=())
    result = fit("erm", tiny(), net="mlp", recipe=replace(SGD, lr=1e30), out=tmp_path, dynamics=watch, **CPU)
    assert result.status == "diverged" and 0 < len(dy.read(tmp_path)[0]) <= 21
    assert dy.summary(watch.records)["steps"] == len(watch.records[0])


# Moments


def test_moments_are_what_the_network_used_then():
    data = load_data({"name": "parity", "n": 300, "n_val": 0, "n_test": 200})
    recipe = replace(SGD, epochs=2)
    watch = dy.Dynamics(moments=(5, 10), rows=100, attributed=8, ig_steps=4, units=(0, 3))
    result = fit("erm", data, net={"name": "fcn", "width": 16}, recipe=recipe, dynamics=watch, **CPU)
    first, middle, last = watch.records[0].moments
    assert [m["step"] for m in (first, middle, last)] == [5, 10, 20]
    expected = feature_use(result.classifier, data, rows=100, attributed=8, steps=4, units=(0, 3))
    assert {k: v for k, v in last.items() if k != "step"} == expected
    assert first["core_share"] != middle["core_share"] and len(first["unit_shares"]) == 2
    half = fit("erm", data, net={"name": "fcn", "width": 16}, recipe=replace(recipe, iterations=10), **CPU).classifier
    expected = feature_use(half, data, rows=100, attributed=8, steps=4, units=(0, 3))
    assert {k: v for k, v in middle.items() if k != "step"} == expected


def test_where_there_is_nothing_to_attribute():
    blind = replace(pictures(), name="unknown")
    watch = dy.Dynamics(moments=(2,), rows=16)
    fit("erm", blind, net="simconv1", dynamics=watch, **CPU)
    last = watch.records[0].moments[-1]
    assert last["core_share"] is None and last["attributed"] == 0 and 0 <= last["csi"] <= 1 and "a0" in last["bsi"]
    watch = dy.Dynamics(moments=(2,))
    fit("erm", replace(tiny(), test=None), dynamics=watch, **CPU)
    assert watch.records[0].moments == []


def test_usual_moments_stay_within_their_budget():
    assert dy.usual_moments(60_000, 3.4)[-1] == 60_000 and len(dy.usual_moments(60_000, 3.4)) == dy.MOMENTS
    for total in (30, 200, 400, 1000, 5000):
        found = dy.usual_moments(total, 3.4)
        assert 3.4 * len(found) <= dy.BUDGET * total and all(0 < m <= total for m in found)
    assert dy.usual_moments(400, 3.4) != [] and dy.usual_moments(300, 3.4) == []
    rows = dy.moment_cost(dy.Dynamics(rows=300, attributed=10, ig_steps=8), tiny())
    assert rows == 100 + 80 and dy.moment_cost(dy.Dynamics(rows=300), replace(tiny(), regions=None)) == 100


def test_core_use_of_known_networks():
    """A network of the core columns has all its attribution there, one of the shortcut none, one of noise neither."""
    data = tiny()
    for columns, core, spurious in (((0, 1), 1, 0), ((5,), 0, 0), ((2,), 0, 1)):
        net = OwnModule()
        net.body[1].weight.data[:, [c for c in range(7) if c not in columns]] = 0
        found = feature_use(net, data, rows=200, attributed=50)
        assert found["core_share"] == pytest.approx(core, abs=1e-6), columns
        assert found["spurious_share"] == pytest.approx(spurious, abs=1e-6), columns
    right = (net(data.test.x).argmax(1) == data.test.y).double()
    agree = data.is_aligned(data.test)[:, 0]
    every = feature_use(net, data, rows=None, attributed=0)
    assert every["n"] == 4000 and every["conflicting"] == pytest.approx(100 * float(right[~agree].mean()))
    assert every["average"] == pytest.approx(100 * float(right.mean())) and every["core_share"] is None


def test_feature_use_is_what_the_metrics_say_one_by_one():
    from spurless.metrics.attribution import attribute_rows, core_mask, entropy, prepare, share, unit_shares
    from spurless.metrics.attribution import spurious_mask as shortcut
    from spurless.metrics.representation import bsi, csi, features_of

    one = tiny()
    more = torch.arange(4000)[:, None] // 2 % 3  # another attribute, of which nothing depends
    data = replace(
        one,
        train=replace(one.train, a=torch.cat([one.train.a, more[:200]], 1)),
        val=None,
        test=replace(one.test, a=torch.cat([one.test.a, more], 1)),
        attributes=("spurious", "other"),
        values=(("0", "1"), ("0", "1", "2")),
        aligned=(*one.aligned, torch.ones(2, 3, dtype=torch.bool)),
    )
    net = Net.wrap(OwnModule())
    found = feature_use(net, data, rows=60, attributed=9, steps=6, units=(2, 5), seed=4)
    rows = torch.randperm(4000, generator=torch.Generator().manual_seed(4))[:60]
    z, y, a = features_of(net, data, "test", rows), data.test.y[rows], data.test.a[rows]
    assert found["csi"] == pytest.approx(csi(z, y).average)
    assert found["bsi"] == pytest.approx({"spurious": bsi(z, a[:, 0]).average, "other": bsi(z, a[:, 1]).average})
    right, agree = net(data.test.x[rows]).argmax(1) == y, data.is_aligned(data.test)[rows, 0]
    for name, which in (("aligned", agree), ("conflicting", ~agree)):
        assert found[name] == pytest.approx(100 * float(right[which].double().mean())), name
    few = rows[:9]
    maps = attribute_rows(net, data, "test", few, "ig", steps=6)
    for name, mask in (("core_share", core_mask), ("spurious_share", shortcut)):
        assert found[name] == pytest.approx(float(share(maps, mask(data, "test", few)).nanmean())), name
    assert found["entropy"] == pytest.approx(float(entropy(maps, relative=True).nanmean())) and found["entropy"] <= 1
    units = unit_shares(net, prepare(data, "test", few), shortcut(data, "test", few), [2, 5], "ig", steps=6)
    assert found["unit_shares"] == pytest.approx(units.tolist(), nan_ok=True)


def test_feature_use_by_hand():
    data, net = tiny(), Net.wrap(OwnModule())
    found = feature_use(net, data, rows=20, attributed=20, steps=200, seed=1)
    rows = torch.randperm(4000, generator=torch.Generator().manual_seed(1))[:20]
    core, shortcut = (mask(data, "test", rows)[0] for mask in (core_mask, spurious_mask))  # the same in every row
    expected = feature_use_by_hand(net, data.test.x[rows], data.test.y[rows], core, shortcut)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=2e-3), name
    assert found["core_share"] + found["spurious_share"] > 0.3


# Parts of a network


def test_parts_are_masked_by_hand_alike():
    data, net = tiny(n=64), build("mlp", (7,), 2)
    chosen = torch.arange(100) < 40
    parts = {
        "some": {"encoder.5.weight": chosen[:, None].expand(100, 100), "head.weight": chosen[None].expand(2, 100)},
        "bias": {"head.bias": None},
    }
    watch = dy.Dynamics(every=1, moments=(), parts=parts)
    fit("erm", data, net=net, recipe=replace(SGD, batch_size=64, epochs=1), dynamics=watch, **CPU)
    (order,) = orders(64, 1)
    net.train()
    nn.functional.cross_entropy(net(data.train.x[order]), data.train.y[order]).backward()
    layer, head = net.encoder[5].weight, net.head
    slope = torch.cat([layer.grad[chosen].flatten(), head.weight.grad[:, chosen].flatten()]).norm()
    size = torch.cat([layer[chosen].flatten(), head.weight[:, chosen].flatten()]).detach().norm()
    record = watch.records[0]
    assert record.gradient_norms["some"] == pytest.approx([float(slope)], rel=1e-5)
    assert record.weight_norms["some"] == pytest.approx([float(size)], rel=1e-5)
    assert record.gradient_norms["bias"] == pytest.approx([float(head.bias.grad.norm())], rel=1e-5)
    with pytest.raises(UserError, match="no parameter 'head.weigth'"):
        fit("erm", data, net=net, recipe=SGD, dynamics=dy.Dynamics(parts={"x": {"head.weigth": None}}), **CPU)


def test_units_are_told_apart_by_what_they_look_at():
    data = tiny()
    net = Net.wrap(OwnModule())
    weight = net.encoder.body[1].weight.data
    weight.zero_()
    weight[0, 0], weight[1, 2], weight[2, 1], weight[3, 2], weight[4, 5] = 1, 1, -1, -1, 1  # core, short, core, short
    weight[5, 0], weight[5, 2] = 0.1, 1.0  # more of the shortcut
    parts = dy.unit_parts(net, data)
    core = parts["core"]["head.weight"][0].tolist()
    spurious = parts["spurious"]["head.weight"][0].tolist()
    assert core == [True, False, True, False, False, False, False, False]
    assert spurious == [False, True, False, True, False, True, False, False]  # noise and dead units are neither
    assert parts["spurious"]["encoder.body.1.weight"].shape == (8, 7)
    assert parts["spurious"]["encoder.body.1.bias"].tolist() == spurious
    watch = dy.Dynamics(every=1, moments=(), parts=parts)
    fit("erm", data, net=net, recipe=replace(SGD, epochs=1), dynamics=watch, **CPU)
    assert list(watch.records[0].gradient_norms) == ["core", "spurious"]
    with pytest.raises(UserError, match="Net.wrap"):
        dy.unit_parts(OwnModule(), data)
    deep = Net(nn.Sequential(nn.Linear(7, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 2))
    assert set(dy.unit_parts(deep, data)["core"]) == {"head.weight", "encoder.2.weight", "encoder.2.bias"}  # the last


# Mistakes, and what is left in the folder


def test_what_cannot_be_watched_is_said(monkeypatch):
    with pytest.raises(UserError, match=r"recipe\.compile"):
        fit("erm", tiny(), recipe=replace(SGD, compile=True), dynamics=True, **CPU)
    monkeypatch.setattr(dy, "world", lambda: 2)
    with pytest.raises(UserError, match="one process"):
        fit("erm", tiny(), recipe=SGD, dynamics=True, **CPU)
    assert dy.as_dynamics(True) == dy.Dynamics() and dy.as_dynamics(None) is None
    mine = dy.Dynamics(every=4)
    assert dy.as_dynamics(mine) is mine
    with pytest.raises(UserError, match="did you mean 'every'"):
        dy.as_dynamics({"evry": 2})


def test_data_without_attributes_has_no_share():
    data = tiny()
    plain = replace(data, train=Split(data.train.x, data.train.y), val=None, test=Split(data.test.x, data.test.y))
    watch = dy.Dynamics(rows=20)
    fit("erm", plain, recipe=SGD, dynamics=watch, **CPU)
    assert np.isnan(watch.records[0].series["loss_share"]).all()
    assert (watch.records[0].series["logit_norm"] > 0).all()
    assert watch.records[0].largest_share() is None and dy.summary(watch.records)["largest_share"] is None


def test_of_several_attributes_a_row_conflicts_if_one_does():
    data = tiny(n=64)
    y, more = data.train.y, torch.arange(64)[:, None] % 4 // 3
    a = torch.cat([data.train.a, more ^ y[:, None]], 1)  # the second disagrees in every fourth row
    table = torch.eye(2, dtype=torch.bool)
    two = replace(
        data, train=replace(data.train, a=a), val=None, test=None, attributes=(), values=(), aligned=(table, table)
    )
    watch = dy.Dynamics(moments=(), every=0)
    fit("erm", two, recipe=replace(SGD, batch_size=64, epochs=1), dynamics=watch, **CPU)
    either = (a != y[:, None]).any(1)
    assert (
        watch.records[0].series["conflicting"].tolist() == [either.sum()]
        and (a != y[:, None]).all(1).sum() < either.sum()
    )


class Odd(Peek):
    """A method whose model sees something else than the batch, or whose logits are changed after they were seen."""

    how = "noise"

    def stages(self, run):
        net = run.net()

        def loss(b):
            return ce(net(b.x + 0.1) if self.how == "noise" else net(b.x).mul_(0.5), b.y)

        yield Stage("odd", loss, run.optimizer(net), model=net, select=True)
        return net


@pytest.mark.parametrize("how", ["noise", "in place"])
def test_logits_that_are_not_those_of_the_batch_are_not_guessed(how, monkeypatch):
    monkeypatch.setattr(Odd, "how", how)
    watch = dy.Dynamics(moments=(), every=2)
    fit(Odd(), tiny(), recipe=SGD, dynamics=watch, **CPU)
    record = watch.records[0]
    assert np.isnan(record.series["logit_norm"]).all() and len(record) == 21
    assert (record.gradient_norms["head"] > 0).all()


class Changes(Peek):
    """A method that calls the whole network at first, and its parts from its tenth step on."""

    whole = 9

    def stages(self, run):
        net, seen = run.net(), []

        def loss(b):
            seen.append(1)
            return ce(net(b.x) if len(seen) <= self.whole else net.head(net.features(b.x)), b.y)

        yield Stage("changes", loss, run.optimizer(net), model=net, select=True)
        return net


def test_a_loss_that_begins_to_call_the_parts_of_its_network_loses_one_step(monkeypatch):
    watched = []
    for whole in (9, 0, 99):
        monkeypatch.setattr(Changes, "whole", whole)
        watched.append(dy.Dynamics(moments=(), every=4))
        fit(Changes(), tiny(), recipe=SGD, dynamics=watched[-1], **CPU)
    changed, parts, whole = (w.records[0].series["loss_share"] for w in watched)
    np.testing.assert_array_equal(parts, whole)
    assert np.isnan(changed).nonzero()[0].tolist() == [9] and len(changed) == 21
    np.testing.assert_array_equal(np.delete(changed, 9), np.delete(whole, 9))


@pytest.mark.parametrize(("whole", "hooks"), [(99, 1), (0, 3)])
def test_one_hook_is_left_where_the_whole_network_is_called(whole, hooks, monkeypatch):
    monkeypatch.setattr(Changes, "whole", whole)
    found = []

    class Counts(dy.Dynamics):
        def stage(self, index, stage, *rest):
            watch = super().stage(index, stage, *rest)
            after = watch.after
            watch.after = lambda steps, step: (after(steps, step), found.append(len(watch.hooks)))
            return watch

    fit(Changes(), tiny(), recipe=SGD, dynamics=Counts(moments=()), **CPU)
    assert found == [hooks] * 21


def test_the_file_says_what_was_seen(tmp_path):
    watch = dy.Dynamics(rows=20, attributed=4)
    fit("erm", tiny(), recipe=SGD, out=tmp_path, dynamics=watch, **CPU)
    assert all(same(a, b) for a, b in zip(dy.read(tmp_path), watch.records, strict=True))
    found = dy.summary(dy.read(tmp_path), window=5)
    share = watch.records[0].series["loss_share"].astype(float)
    assert found["largest_share"] == pytest.approx(np.nanmax(share))
    means = [share[i : i + 5].mean() for i in range(len(share) - 4)]
    assert found["largest_share_smooth"] == pytest.approx(max(means)) and found["largest_share_smooth"] < 1
    assert found["steps"] == 21 and found["last_weight_norm"]["head"] > 0
    with pytest.raises(UserError, match="was not watched"):
        dy.read(tmp_path / "nothing")
    (tmp_path / dy.FILE).write_text("{")
    with pytest.raises(UserError, match="is damaged"):
        dy.read(tmp_path)
    assert dy.summary([]) == {"steps": 0}


def test_the_summary_is_that_of_the_last_stage_that_was_watched():
    def record(name, share, length, norms):
        series = {"loss_share": np.array(share), "logit_norm": np.array(length)}
        return records.Record(name, 0, series, gradient_norms={"head": np.array(norms)})

    first, second = record("mine", [0.9], [9.0], [1.0]), record("train", [0.1, 0.3, 0.2], [2.5, 3.0, 2.0], [5.0, 4.0])
    found = dy.summary([first, second, record("never", [], [], [])])
    assert (found["stage"], found["largest_share"], found["largest_logit_norm"]) == ("train", 0.3, 3.0)
    assert found["last_logit_norm"] == 2.0 and found["last_gradient_norm"] == {"head": 4.0}
    missed = dy.summary([record("odd", [np.nan] * 2, [np.nan] * 2, [1.0])])  # without a warning
    assert missed["largest_share"] is None and missed["largest_logit_norm"] is None and missed["steps"] == 2


# Over runs


def test_correlation_by_hand_with_ties():
    x, y = [0.2, 0.4, 0.4, 0.9, 0.9, 0.95], [50.0, 41.0, 62.0, 62.0, 80.0, 71.0]
    found = over_runs.correlation([{"largest_share": a, "unbiased": b} for a, b in zip(x, y, strict=True)])
    assert (found.pearson, found.spearman) == pytest.approx(correlation_by_hand(x, y))
    assert found.pearson != pytest.approx(found.spearman, abs=1e-3)


def test_correlation_is_scipys():
    from scipy.stats import pearsonr, spearmanr

    g = np.random.default_rng(0)
    x = g.random(12)
    points = [{"largest_share": a, "unbiased": b} for a, b in zip(x, x + 0.3 * g.random(12), strict=True)]
    y = [p["unbiased"] for p in points]
    found = over_runs.correlation([*points, {"largest_share": None, "unbiased": 3.0}, {"unbiased": 1.0}])
    known = pearsonr(x, y)
    low, high = known.confidence_interval()
    assert found.pearson == pytest.approx(known.statistic) and found.n == 12
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-6)
    assert found.spearman == pytest.approx(spearmanr(x, y).statistic)
    assert over_runs.correlation([*points, {"largest_share": math.nan, "unbiased": 3.0}]) == over_runs.correlation(
        points
    )
    flat = over_runs.correlation([{"largest_share": 0.1, "unbiased": 55.3}] * 3)  # whose deviations are not quite 0
    assert np.isnan(flat.pearson) and np.isnan(flat.spearman) and np.isnan([flat.low, flat.high]).all()
    for sign in (1, -1):  # of a perfect one no doubt is left
        line = over_runs.correlation([{"largest_share": s, "unbiased": 50 + sign * s} for s in range(5)])
        assert (line.pearson, line.low, line.high) == (sign, sign, sign)
    assert np.isnan(over_runs.correlation(points[:1]).pearson) and np.isnan(over_runs.correlation([]).spearman)


def test_points_of_runs(tmp_path):
    data = tiny()
    kept = data.is_aligned(data.test)[:, 0] | (torch.arange(4000) < 1000)  # so that unbiased is not the average
    data = replace(data, test=Split(data.test.x[kept], data.test.y[kept], data.test.a[kept]))
    folders = [tmp_path / str(i) for i in range(3)]
    rates = (0.01, 0.1, 1e30)
    for folder, lr in zip(folders, rates, strict=True):
        fit("erm", data, net="mlp", recipe=replace(SGD, lr=lr), out=folder, dynamics={"moments": ()}, **CPU)
    shares = over_runs.loss_share_points(folders)
    assert [p["lr"] for p in shares] == list(rates) and [p["status"] for p in shares] == ["done", "done", "diverged"]
    assert shares[2]["unbiased"] is None and over_runs.correlation(shares).n == 2
    assert shares[0]["largest_share"] == dy.read(folders[0])[0].largest_share()
    scores = load_run(folders[0]).scores
    assert shares[0]["unbiased"] == scores["unbiased"] != scores["average"]
    use = over_runs.core_use_points(folders, data, rows=50, attributed=4, steps=4)
    assert [p["lr"] for p in use] == [0.01, 0.1]  # nothing to say of the one that diverged
    again = fit("erm", data, net="mlp", recipe=replace(SGD, lr=0.1), out=folders[1]).classifier
    assert use[1]["csi"] == feature_use(again, data, rows=50, attributed=4, steps=4)["csi"]
    order = over_runs.same_order(use)
    assert order.values == [0.01, 0.1] and order.first == [p["csi"] for p in use]
    assert not over_runs.same_order([{"lr": k, "csi": k, "core_share": -k} for k in (1, 2)]).same
    mixed = [{"lr": k, "csi": k, "core_share": s} for k, s in ((1, 2), (2, 1), (3, 3))]
    assert not over_runs.same_order(mixed).same and over_runs.same_order(mixed).spearman == 0.5
    for core in ((0.6, 0.7), (0.7, 0.6)):  # a tie is no order, whichever value comes first
        tied = [{"lr": k, "csi": 0.3, "core_share": s} for k, s in enumerate(core)]
        assert not over_runs.same_order(tied).same
    assert over_runs.same_order([{"lr": k, "csi": 0.3, "core_share": 0.5} for k in (1, 2)]).same
    with pytest.raises(UserError, match="both csi and nothing"):
        over_runs.same_order(use, second="nothing")


def test_without_attributes_the_accuracy_of_a_point_is_the_average():
    data = tiny()
    blind = replace(data, **{name: split.blinded() for name, split in data.splits.items()}, attributes=(), values=())
    run = fit("erm", blind, net="mlp", recipe=replace(SGD, epochs=1), **CPU)
    (point,) = over_runs.core_use_points([run], blind, rows=20, attributed=0)
    assert point["unbiased"] == run.scores["average"] is not None


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["erm", "lff", "rebias"])
def test_a_graph_is_seen_as_an_eager_run_is(name):
    """The same tables, written by replays; and watching changes nothing."""
    data, recipe = pictures(n=70), Recipe("sgd", 1e-3, batch_size=16, epochs=12, deterministic=True)
    smooth = {"name": "mlp", "activation": "tanh"}
    graph, eager = dy.Dynamics(every=2, moments=(20,), rows=16), dy.Dynamics(every=2, moments=(20,), rows=16)
    gpu = {"device": "cuda", "progress": False}
    a = fit(quick(name), data, net=smooth, recipe=recipe, dynamics=graph, **gpu)
    fit(quick(name), data, net=smooth, recipe=replace(recipe, cuda_graph=False), dynamics=eager, **gpu)
    alone = fit(quick(name), data, net=smooth, recipe=recipe, **gpu)
    assert same_weights(a.classifier, alone.classifier)
    for one, other in zip(graph.records, eager.records, strict=True):
        for key, values in one.series.items():
            np.testing.assert_allclose(values, other.series[key], rtol=1e-3, atol=1e-5, err_msg=key)
        for key, values in one.gradient_norms.items():
            np.testing.assert_allclose(values, other.gradient_norms[key], rtol=2e-3, atol=1e-5, err_msg=key)
        assert one.norm_steps.tolist() == other.norm_steps.tolist()


@pytest.mark.parametrize("broken", ["NaN", "one output"])
def test_feature_use_refuses_outputs_that_say_nothing(broken):
    net = OwnModule(classes=1 if broken == "one output" else 2)
    if broken == "NaN":
        with torch.no_grad():
            net.classify.bias.fill_(math.nan)
    with pytest.raises(UserError, match="NaN" if broken == "NaN" else "a number for each class"):
        feature_use(net, tiny(), rows=20, attributed=0)


def test_feature_use_of_odd_numbers_of_rows():
    data, net = tiny(), OwnModule()
    one = replace(data, test=Split(data.test.x[:1], data.test.y[:1], data.test.a[:1]))
    assert feature_use(net, one, attributed=0)["n"] == 1
    for wrong in ({"rows": 0}, {"rows": -3}, {"attributed": -1}, {"how": "gradcam"}):
        with pytest.raises(UserError, match=f"{next(iter(wrong.values()))}"):
            feature_use(net, data, **wrong)
