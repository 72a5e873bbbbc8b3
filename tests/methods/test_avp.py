"""AVP prunes what varies least, at AVP's pace, and random pruning keeps that pace."""

import pytest
import torch
from torch import nn

from spurless.core.errors import UserError
from spurless.core.recipe import Recipe
from spurless.methods.avp import AVP
from spurless.methods.parts.pruning import Alive, left, remove_lowest, sparsity, variability, watching
from spurless.methods.random_prune import RandomPrune
from spurless.nets import Net
from spurless.registry import load_data
from spurless.train.fit import evaluate, fit
from tests.support.runs import CPU
from tests.support.worlds import pictures, tiny

RECIPE = Recipe("adam", 0.01, batch_size=32, epochs=6)


def planted():
    """A network whose hidden unit 3 is the same for every input, but not zero."""
    net = Net(nn.Sequential(nn.Linear(5, 8), nn.Tanh()), nn.Linear(8, 2))
    with torch.no_grad():
        net.encoder[0].weight[3] = 0
        net.encoder[0].bias[3] = 1.0
    return net


@pytest.mark.parametrize("kappa", ["absolute", "variance", "signed"])
def test_a_planted_constant_unit_is_ranked_first(kappa):
    net = planted()
    with watching(net, ["head"]) as moments:
        net(torch.randn(200, 5))
    units = variability(net, moments, kappa, units=True)
    weights = variability(net, moments, kappa)
    if kappa == "signed":  # where a negative mean comes before zero: as printed, the order is by sign first
        assert int(units["head.weight"][0].abs().argmin()) == 3
        return
    assert int(units["head.weight"][0].argmin()) == 3
    alive = Alive(net, ["head"])
    remove_lowest(alive.masks, weights, 2)
    assert (~alive.masks["head.weight"]).nonzero().tolist() == [[0, 3], [1, 3]]


@pytest.mark.parametrize("kind", [AVP, RandomPrune])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_so_many_are_removed_an_epoch_and_stay_removed_while_training_goes_on(kind, optimizer):
    recipe = Recipe(optimizer, 0.02, momentum=0.9, weight_decay=0.05, batch_size=32, epochs=6)
    result = fit(kind(count=7, chance=1.0, from_epoch=2), tiny(), net="mlp", recipe=recipe, **CPU)
    assert [row["stage"] for row in result.history] == ["dense"] * 2 + ["prune"] * 4
    of = left(Alive(result.classifier).masks)[1]
    assert sparsity(result.classifier) == pytest.approx(100 * 28 / of)


def test_pruning_begins_after_a_fifth_of_the_training():
    history = fit(AVP(), tiny(n=64), net="linear", recipe=Recipe("adam", 0.01, batch_size=32, epochs=10), **CPU).history
    assert [row["stage"] for row in history] == ["dense"] * 2 + ["prune"] * 8


@pytest.mark.parametrize("kind", [AVP, RandomPrune])
def test_the_criterion_ends_the_dense_stage_and_no_other(kind):
    recipe = Recipe("adam", 0.01, batch_size=32, epochs=5, until_accuracy=100, eval_every=0)
    history = fit(kind(from_epoch=300, prune_epochs=3), tiny(), net="mlp", recipe=recipe, **CPU).history
    dense = [row for row in history if row["stage"] == "dense"]
    assert len(dense) < 300 and [row["reached"] for row in dense] == [False] * (len(dense) - 1) + [True]
    assert dense[-1]["train_accuracy"] == 100
    after = history[len(dense) :]
    assert [row["stage"] for row in after] == ["prune"] * 3 and not any("reached" in row for row in after)


def test_with_one_seed_both_remove_as_many_whatever_the_chance():
    shares = {
        kind: [
            sparsity(fit(kind(share=0.1), tiny(), net="mlp", recipe=RECIPE, seed=s, **CPU).classifier) for s in range(3)
        ]
        for kind in (AVP, RandomPrune)
    }
    assert shares[AVP] == shares[RandomPrune] and len(set(shares[AVP])) > 1


def test_a_share_stays_whatever_happens():
    settings = {"share": 0.5, "chance": 1.0, "prune_epochs": 4}
    result = fit(AVP(**settings, keep=0.25), tiny(), net="mlp", recipe=RECIPE, **CPU)
    assert sparsity(result.classifier) == pytest.approx(75, abs=0.01)
    result = fit(AVP(**settings, keep=0.0), tiny(), net="mlp", recipe=RECIPE, **CPU)
    assert sparsity(result.classifier) == 100


def test_units_go_as_whole_columns_of_the_layers_that_are_named():
    method = AVP(candidates="unit", count=3, chance=1.0, from_epoch=4, layers=("encoder.3", "head"))
    net = fit(method, tiny(), net="mlp", recipe=RECIPE, **CPU).classifier
    columns = [layer.weight.eq(0).all(0) for layer in (net.encoder[3], net.head)]
    assert sum(int(c.sum()) for c in columns) == 6
    assert sum(int((layer.weight == 0).sum()) for layer in (net.encoder[3], net.head)) == sum(
        int(c.sum()) * size for c, size in zip(columns, (100, 2), strict=True)
    )
    assert (net.encoder[1].weight != 0).all() and (net.encoder[5].weight != 0).all()


def test_frozen_pruning_changes_nothing_but_what_it_removes():
    dense = fit("erm", tiny(), net="mlp", recipe=Recipe("adam", 0.01, batch_size=32, epochs=2), **CPU).classifier
    pruned = fit(
        AVP(frozen=True, from_epoch=2, chance=1.0, count=10), tiny(), net="mlp", recipe=RECIPE, **CPU
    ).classifier
    for before, after in zip(dense.parameters(), pruned.parameters(), strict=True):
        there = after != 0
        assert torch.equal(before[there], after[there])
    assert sparsity(pruned) > 0


@pytest.mark.parametrize("kappa", ["absolute", "signed", "variance"])
@pytest.mark.parametrize("candidates", ["weight", "unit"])
def test_what_goes_is_lowest_in_the_score_that_was_asked_for(kappa, candidates):
    data = tiny()
    net = fit("erm", data, net="mlp", recipe=Recipe("adam", 0.01, batch_size=32, epochs=2), **CPU).classifier
    with watching(net) as moments:
        net(data.train.x)
    masks = Alive(net).masks
    scores = variability(net, moments, kappa, units=candidates == "unit")
    remove_lowest(masks, scores, 9, "column" if candidates == "unit" else "weight")
    method = AVP(candidates, 9, chance=1.0, from_epoch=2, prune_epochs=1, frozen=True, kappa=kappa)
    pruned = fit(method, data, net="mlp", recipe=RECIPE, **CPU)
    for name, mask in masks.items():
        assert torch.equal(pruned.classifier.get_parameter(name) != 0, mask), name
    assert pruned.scores == evaluate(pruned.classifier, data, device="cpu")  # of the pruned network, not the dense one


def test_convolutions_are_pruned_too():
    result = fit(AVP(share=0.3, chance=1.0), pictures(), net="simconv1", **CPU)
    assert sparsity(result.classifier) == pytest.approx(30, abs=0.1)


def test_no_rule_can_pick_among_its_stages():
    with pytest.raises(UserError, match="selection = last"):
        fit(AVP(), tiny(), recipe={"selection": "val_accuracy"}, **CPU)


def test_on_the_toy_the_shortcut_is_the_input_that_varies_most():
    """So that low variability cannot find it, whatever the manuscript's theorem 3.13 says (docs/theory.md)."""
    data = load_data("toy")
    net = fit("erm", data, **CPU).classifier
    with watching(net) as moments:
        net(data.train.x)
    assert int(variability(net, moments, "variance", units=True)["head.weight"][0].argmax()) == 2
    assert int(variability(net, moments, "variance")["head.weight"].flatten().argmax()) % 7 == 2


def test_the_toy_is_measured(tmp_path, monkeypatch):
    from studies import avp_toy
    from studies.rows import named

    monkeypatch.setattr(avp_toy, "OUT", tmp_path / "avp_toy")
    monkeypatch.setattr(avp_toy, "PHASE", {"from_epoch": 3, "prune_epochs": 2})
    threads = torch.get_num_threads()
    assert "dense after 3 epochs" in avp_toy.measure("structured", "avp", 0)
    torch.set_num_threads(threads)
    row = named(tmp_path / "avp_toy")["structured-avp-seed0"]
    assert row["dense"]["epochs"] == 3 and row["dense"]["train"] == pytest.approx(row["curve"][0]["train"])


def test_the_tables_of_the_page_are_those_of_the_measured_rows():
    from studies import avp_toy

    page, found = avp_toy.PAGE.read_text(encoding="utf-8"), avp_toy.rows("avp_toy")
    assert len(found) == len(avp_toy.SEEDS) * len(avp_toy.KINDS) * len(avp_toy.WAYS)
    assert avp_toy.table(found) in page and avp_toy.cells_table() in page
