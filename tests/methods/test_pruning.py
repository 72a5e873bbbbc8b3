"""Pruning: masks from scores, masks that stay, and variability in one pass."""

import importlib.util

import pytest
import torch
from torch import nn

from spurless.core.errors import UserError
from spurless.core.method import Stage
from spurless.core.recipe import Recipe
from spurless.methods.parts.losses import ce
from spurless.methods.parts.pruning import (
    Alive,
    Moments,
    by_input,
    chances,
    grouped,
    hold,
    keep_highest,
    left,
    prunable,
    remove_lowest,
    sparsity,
    spread,
    squares,
    variability,
    watching,
    zero,
)
from spurless.nets import build
from spurless.train.fit import fit
from spurless.train.optim import make_optimizer
from tests.support.runs import CPU
from tests.support.text_worlds import VOCAB, sentences
from tests.support.worlds import pictures, tiny

W = torch.tensor([[1.0, -5.0, 2.0], [0.5, 6.0, -3.0]])


# Masks


def test_global_and_layerwise_masks_by_hand():
    scores = {"a": torch.tensor([[1.0, 2.0]]), "b": torch.tensor([[30.0, 40.0], [50.0, 60.0]])}
    whole = keep_highest(scores, 0.5)
    assert whole["a"].tolist() == [[False, False]] and whole["b"].tolist() == [[False, True], [True, True]]
    each = keep_highest(scores, 0.5, "layer")
    assert each["a"].tolist() == [[False, True]] and each["b"].tolist() == [[False, False], [True, True]]


def test_magnitude_looks_at_the_size_not_the_sign():
    net = nn.Linear(3, 2)
    with torch.no_grad():
        net.weight.copy_(W)
    assert keep_highest(squares(net), 0.5)["weight"].tolist() == [[False, True, False], [False, True, True]]


@pytest.mark.parametrize("keep", [0.0, 0.3, 1.0])
def test_exactly_the_share_is_kept(keep):
    net = build("conv3", (3, 28, 28), 10)
    masks = keep_highest(squares(net), keep)
    there, of = left(masks)
    assert of == sum(p.numel() for n, p in net.named_parameters() if n.endswith("weight") and p.dim() > 1)
    assert there == of - round((1 - keep) * of)
    zero(net, masks)
    assert sparsity(net) == pytest.approx(100 * (1 - there / of))


def test_structures_by_hand():
    k = torch.arange(24.0).view(2, 3, 2, 2)  # 2 outputs, 3 inputs, kernels of 4
    assert grouped(k, "kernel").flatten().tolist() == [1.5, 5.5, 9.5, 13.5, 17.5, 21.5]
    assert grouped(k, "column").flatten().tolist() == [7.5, 11.5, 15.5]
    assert grouped(k, "row").flatten().tolist() == [5.5, 17.5]
    assert grouped(W, "kernel").shape == (1, 3)  # in a linear layer: the column
    masks = keep_highest({"k": k, "w": 100 + W.abs()}, 1 - 9 / 30, structure="column")
    assert masks["w"].all() and not masks["k"][:, 0].any() and masks["k"][:, 1:].all()  # 8 of the 9 fit


CONVOLUTIONS = [
    nn.Conv2d(4, 6, 3, bias=False),
    nn.Conv2d(4, 6, 3, groups=2, bias=False),
    nn.Conv1d(6, 12, 3, groups=6, bias=False),  # depthwise, two outputs for each input
    nn.ConvTranspose2d(4, 6, 3, bias=False),
    nn.ConvTranspose1d(4, 6, 3, groups=2, bias=False),
]


def reached(layer, side, channel):
    """(weight) Which weights lie between one input (or output) channel and the others, by what the output feels."""
    x = torch.zeros(1, layer.in_channels, *[5] * len(layer.kernel_size))
    x[:, channel if side == "column" else slice(None)] = 1
    out = layer(x)
    picked = out if side == "column" else out[:, channel]
    return torch.autograd.grad(picked.sum(), layer.weight)[0] != 0


@pytest.mark.parametrize("structure", ["column", "row"])
@pytest.mark.parametrize("layer", CONVOLUTIONS, ids=str)
def test_columns_and_rows_of_convolutions_are_what_their_channels_reach(layer, structure):
    scores = layer.weight.detach().square()
    each = grouped(scores, structure, layer)
    on_weights = spread(each, scores.shape)
    channels = layer.in_channels if structure == "column" else layer.out_channels
    assert each.numel() == channels and left({"weight": scores > -1}, structure, layer) == (channels, channels)
    for channel in range(channels):
        of_channel = reached(layer, structure, channel)
        torch.testing.assert_close(on_weights[of_channel].unique(), scores[of_channel].mean().reshape(1))
    lowest = on_weights == on_weights.min()
    masks = {"weight": torch.ones_like(scores, dtype=torch.bool)}
    remove_lowest(masks, {"weight": scores}, 1, structure, layer)
    assert torch.equal(~masks["weight"], lowest)
    kept = keep_highest({"weight": scores}, 1 - 1 / channels, "layer", structure, layer)
    assert torch.equal(~kept["weight"], lowest)
    drawn = chances(layer, torch.Generator().manual_seed(0), structure=structure)["weight"]
    assert drawn.unique().numel() == channels and drawn[reached(layer, structure, 0)].unique().numel() == 1


class Depthwise(nn.Module):
    """Eight channels, each with a 3 by 3 kernel of its own."""

    def __init__(self):
        super().__init__()
        self.mix, self.each = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.classify = nn.Linear(8, 4)

    def forward(self, x):
        return self.classify(torch.relu(self.each(torch.relu(self.mix(x)))).mean((2, 3)))


ONE = {"candidates": "unit", "count": 1, "chance": 1.0, "prune_epochs": 1, "keep": 0.0}
QUARTER = {"structure": "column", "keep": 0.75, "scope": "layer", "finetune": 0}


@pytest.mark.parametrize(
    ("method", "gone"),
    [({"name": "avp"} | ONE, 1), ({"name": "random_prune"} | ONE, 1), ({"name": "magnitude_prune"} | QUARTER, 2)],
    ids=lambda of: of["name"] if isinstance(of, dict) else str(of),
)
def test_units_of_a_depthwise_convolution_go_one_by_one(method, gone):
    net = fit(method | {"layers": ["*each"]}, pictures(), net=Depthwise(), **CPU).classifier
    whole = [bool((kernel == 0).all()) for kernel in net.encoder.each.weight]
    assert sum(whole) == gone and int((net.encoder.each.weight == 0).sum()) == 9 * gone


def test_whole_groups_go_or_stay_and_the_budget_is_not_exceeded():
    net = build("simconv1", (3, 28, 28), 4)
    for structure in ("column", "kernel", "row"):
        masks = keep_highest(squares(net), 0.4, "global", structure)
        for mask in masks.values():
            shares = grouped(mask.float(), structure)
            assert set(shares.flatten().tolist()) <= {0.0, 1.0}
        there, of = left(masks)
        assert 0.4 * of <= there < 0.5 * of


def test_removing_the_lowest_takes_only_what_is_there():
    masks = {"a": torch.ones(2, 3).bool(), "b": torch.ones(1, 2).bool()}
    scores = {"a": W.abs(), "b": torch.tensor([[0.1, torch.inf]])}
    assert remove_lowest(masks, scores, 2) == 2
    assert masks["a"].tolist() == [[True, True, True], [False, True, True]] and masks["b"].tolist() == [[False, True]]
    assert remove_lowest(masks, scores, 1) == 1 and not masks["a"][0, 0]
    assert remove_lowest(masks, scores, 99) == 5 and left(masks) == (0, 8)
    assert remove_lowest(masks, scores, 1) == 0


def test_removing_columns_skips_those_that_are_gone():
    masks = {"a": torch.ones(2, 3).bool()}
    scores = {"a": torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])}
    for gone in (1, 2):
        remove_lowest(masks, scores, 1, "column")
        assert masks["a"].any(0).tolist() == [k >= gone for k in range(3)]


def test_layers_are_chosen_by_name():
    net = build("mlp", (4,), 2)
    assert list(prunable(net, ["head"])) == ["head.weight"]
    assert list(prunable(net, ["encoder.*"])) == ["encoder.1.weight", "encoder.3.weight", "encoder.5.weight"]
    with pytest.raises(UserError, match="No layer is called nose; those with weights are: encoder.1"):
        prunable(net, ["nose"])


@pytest.mark.parametrize("method", ["dcwp", "mrm", "magnitude_prune", "avp", "random_prune"])
def test_a_wrong_layer_is_told_before_the_network_is_trained(method, monkeypatch):
    named = []
    init = Stage.__init__

    def note(self, name, *args, **kwargs):
        named.append(name)
        init(self, name, *args, **kwargs)

    monkeypatch.setattr(Stage, "__init__", note)
    mining = {"mining_iterations": 1} if method == "dcwp" else {}
    with pytest.raises(UserError, match="No layer is called nose"):
        fit({"name": method, "layers": ["nose"]} | mining, tiny(n=64), net="mlp", **CPU)
    assert set(named) <= {"mine"}


# Training

missing = importlib.util.find_spec("pytorch_optimizer") is None
PSGD = pytest.param("psgd", marks=pytest.mark.skipif(missing, reason="needs the package pytorch_optimizer"))
OPTIMIZERS = ["sgd", "adam", "adamw", PSGD]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("nesterov", [False, True])
def test_removed_weights_stay_exactly_zero_even_if_momentum_was_built_up_before(optimizer, nesterov):
    recipe = Recipe(optimizer, 0.05, momentum=0.9, nesterov=nesterov, weight_decay=0.1)
    net = build("mlp", (6,), 3)
    alive = Alive(net)
    opt = hold(make_optimizer(net.parameters(), recipe, torch.device("cpu")), net, alive.masks)
    x, y = torch.randn(32, 6), torch.arange(32) % 3

    def steps(n):
        for _ in range(n):
            opt.zero_grad()
            ce(net(x), y).backward()
            opt.step()

    steps(5)
    assert sparsity(net) == 0
    remove_lowest(alive.masks, squares(net), 5000)
    free = {n: p.detach().clone() for n, p in net.named_parameters()}
    steps(5)
    for name, mask in alive.masks.items():
        weight = net.get_parameter(name)
        assert not weight[~mask].any() and (weight[mask] != free[name][mask]).all()
    assert sparsity(net) == pytest.approx(100 * 5000 / left(alive.masks)[1])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("net", ["mlp", "simconv1"])
def test_a_pruned_classifier_is_a_plain_network_with_zeros(optimizer, net):
    data = tiny(n=64) if net == "mlp" else pictures()
    recipe = Recipe(optimizer, 0.01, momentum=0.9, weight_decay=0.05, batch_size=16, epochs=5, schedule="cosine")
    result = fit({"name": "magnitude_prune", "keep": 0.25}, data, net=net, recipe=recipe, **CPU)
    assert [row["stage"] for row in result.history] == ["dense"] * 5 + ["finetune"]
    assert sparsity(result.classifier) == pytest.approx(75, abs=0.1)
    assert result.classifier.state_dict().keys() == build(net, data.shape, len(data.classes)).state_dict().keys()


def test_pruning_is_by_what_training_left_and_fine_tuning_changes_the_rest():
    data, recipe = tiny(n=64), Recipe("adam", 0.01, batch_size=16, epochs=5)
    dense = fit("erm", data, net="mlp", recipe=recipe, **CPU).classifier
    cut = fit({"name": "magnitude_prune", "finetune": 0}, data, net="mlp", recipe=recipe, **CPU).classifier
    tuned = fit({"name": "magnitude_prune"}, data, net="mlp", recipe=recipe, **CPU).classifier
    zero(dense, keep_highest(squares(dense), 0.3))
    assert all(torch.equal(a, b) for a, b in zip(dense.parameters(), cut.parameters(), strict=True))
    assert torch.equal(cut.head.weight == 0, tuned.head.weight == 0)
    assert not torch.equal(cut.head.weight, tuned.head.weight)


def test_the_settings_of_magnitude_pruning_reach_the_masks():
    data, recipe = tiny(n=64), Recipe("adam", 0.01, batch_size=16, epochs=1)
    asked = {"name": "magnitude_prune", "finetune": 0, "keep": 0.5}
    each = fit(asked | {"scope": "layer"}, data, net="mlp", recipe=recipe, **CPU).classifier
    assert all(abs(int((each.get_parameter(n) != 0).sum()) - size / 2) <= 1 for n, size in sizes(each).items())
    whole = fit(asked, data, net="mlp", recipe=recipe, **CPU).classifier
    assert not all(abs(int((whole.get_parameter(n) != 0).sum()) - size / 2) <= 1 for n, size in sizes(whole).items())
    some = fit(asked | {"layers": ("head",)}, data, net="mlp", recipe=recipe, **CPU).classifier
    assert sparsity(some, ["head"]) == 50 and sparsity(some, ["encoder.*"]) == 0
    columns = fit(asked | {"structure": "column"}, data, net="mlp", recipe=recipe, **CPU).classifier
    assert all(set(w.eq(0).float().mean(0).tolist()) <= {0.0, 1.0} for w in map(columns.get_parameter, sizes(columns)))


def sizes(net):
    return {name: net.get_parameter(name).numel() for name in prunable(net)}


def test_rows_of_the_head_are_never_cut():
    result = fit({"name": "magnitude_prune", "structure": "row", "keep": 0.2}, pictures(), net="simconv1", **CPU)
    assert (result.classifier.head.weight != 0).all()
    assert sparsity(result.classifier, ["encoder.*"]) > 70


# Activation variability


def test_streaming_variance_equals_two_passes_where_a_difference_of_sums_fails():
    x = 3e3 + torch.randn(1001, 7) * torch.logspace(-1, 1, 7)
    m = Moments()
    for part in x.split(64):
        m.update(part)
    m.update(x[:0])
    exact = x.double()
    mean = exact.sum(0) / 1001
    two_pass = (exact - mean).square().sum(0) / 1001
    torch.testing.assert_close(m.mean, mean, rtol=1e-6, atol=0)
    torch.testing.assert_close(m.variance, two_pass, rtol=1e-3, atol=0)
    naive = x.square().mean(0) - x.mean(0).square()
    assert ((naive.double() - two_pass).abs() / two_pass).max() > 1  # what one pass of plain sums makes of it


def test_moments_do_not_depend_on_how_rows_come():
    x = torch.randn(300, 3).double().float()
    seen = []
    for size in (1, 7, 300):
        m = Moments()
        for part in x.split(size):
            m.update(part)
        seen.append(torch.stack([m.mean, m.variance]))
    torch.testing.assert_close(seen[0], seen[1], rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(seen[0], seen[2], rtol=1e-5, atol=1e-7)


def test_what_goes_into_each_layer_is_watched_by_unit():
    net = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2))
    x = torch.randn(6, 2, 4, 4)
    with watching(net) as moments:
        net(x[:2])
        net(x[2:])
    net(x)  # no longer watched
    hidden = net[1](net[0](x)).flatten(1).detach()
    torch.testing.assert_close(moments["0.weight"].mean.float(), x.mean([0, 2, 3]))
    torch.testing.assert_close(moments["0.weight"].variance.float(), x.var([0, 2, 3], correction=0))
    torch.testing.assert_close(moments["3.weight"].variance.float(), hidden.var(0, correction=0))
    assert moments["3.weight"].rows == 6 and moments["0.weight"].rows == 6 * 16


class Reads(nn.Module):
    """Two layers that see every token, one of them as channels."""

    def __init__(self):
        super().__init__()
        self.words, self.each = nn.Embedding(VOCAB, 6), nn.Linear(6, 6)
        self.near, self.classify = nn.Conv1d(6, 6, 1), nn.Linear(6, 2)

    def forward(self, x):
        real = (x[:, 1] > 0).float()[..., None]
        seen = self.near(torch.relu(self.each(self.words(x[:, 0]))).movedim(2, 1)).movedim(1, 2)
        return self.classify((seen * real).sum(1) / real.sum(1))


def test_the_padding_of_texts_does_not_count():
    rows, net = sentences(n=30).train.x, Reads()
    longer = torch.cat([rows, torch.zeros(30, 2, 12, dtype=rows.dtype)], dim=2)
    seen = []
    for batches in ([rows], longer.split(7)):
        with watching(net) as moments:
            for batch in batches:
                net(batch)
        seen.append(moments)
    tokens = int((rows[:, 1] > 0).sum())
    assert {name: m.rows for name, m in seen[0].items()} == dict(zip(seen[0], [tokens, tokens, 30], strict=True))
    for name in seen[0]:
        torch.testing.assert_close(seen[0][name].mean, seen[1][name].mean)
        torch.testing.assert_close(seen[0][name].variance, seen[1][name].variance)
    real = net.words(rows[:, 0])[rows[:, 1] > 0].detach()
    torch.testing.assert_close(seen[0]["each.weight"].variance.float(), real.var(0, correction=0))


@pytest.mark.parametrize("kappa", ["absolute", "signed", "variance"])
def test_variability_is_the_definition_computed_weight_by_weight(kappa):
    net = nn.Linear(4, 3)
    x = torch.randn(500, 4) + torch.tensor([2.0, -1.0, 0.5, 3.0])
    with watching(net) as moments:
        net(x)
    found = variability(net, moments, kappa)["weight"]
    for j in range(3):
        for i in range(4):
            product = (net.weight[j, i] * x[:, i]).detach().double()
            var, mean = product.var(correction=0), product.mean()
            wanted = {"absolute": var / mean.abs(), "signed": var / mean, "variance": var}[kappa]
            assert float(found[j, i]) == pytest.approx(float(wanted), rel=1e-4)
    assert (found < 0).any() == (kappa == "signed")


def test_input_units_meet_the_weights_of_their_group():
    values = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert by_input(values, nn.Conv2d(4, 2, 3)).flatten().tolist() == [1, 2, 3, 4]
    assert by_input(values, nn.ConvTranspose2d(4, 2, 3)).shape == (4, 1, 1, 1)
    grouped_conv = nn.Conv2d(4, 4, 1, groups=2, bias=False)
    each = by_input(values, grouped_conv)[..., 0, 0]
    for c in range(4):  # against what a lone input channel lights up
        x = torch.zeros(1, 4, 1, 1)
        x[0, c] = 1
        reached = grouped_conv(x).flatten() != 0
        assert [values[c].item() in row for row in each.tolist()] == reached.tolist()


def test_random_scores_are_the_same_for_the_same_seed():
    net = build("mlp", (4,), 2)
    a, b = (chances(net, torch.Generator().manual_seed(5))["head.weight"] for _ in range(2))
    assert torch.equal(a, b) and a.shape == net.head.weight.shape and a.unique().numel() == a.numel()
    columns = chances(net, torch.Generator().manual_seed(5), structure="column")["head.weight"]
    assert torch.equal(columns[0], columns[1]) and columns[0].unique().numel() == 100
