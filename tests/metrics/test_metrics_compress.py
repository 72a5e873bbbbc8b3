"""Measures of compressibility against brute force, and pruning that leaves no trace."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from spurless import evaluate, fit
from spurless.core.data import Split
from spurless.core.errors import UserError
from spurless.metrics import compress as cp
from spurless.metrics import prunability as pr
from spurless.metrics.attribution import prepare
from spurless.nets import build
from spurless.registry import load_data
from tests.support.reference import (
    compressibility_by_hand,
    pq_by_hand,
    prunability_by_hand,
    pruned_activations_by_hand,
    pruned_by_hand,
    sparsity_by_hand,
)
from tests.support.worlds import OwnModule, pictures, tiny


def small():
    return nn.Sequential(
        nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 2, 2, bias=False), nn.Flatten(), nn.Linear(8, 3)
    )


# Measures of vectors.


@pytest.mark.parametrize("q", [0.5, 1, 2, 3])
def test_compressibility_is_the_infimum(q):
    z = torch.randn(6)
    for kappa, kept in ((0, 0), (0.1, 1), (1 / 6, 1), (0.34, 3), (0.5, 3), (1, 6)):
        expected = compressibility_by_hand(z.tolist(), q, kept)
        assert float(cp.compressibility(z, q, kappa)) == pytest.approx(expected, abs=1e-6), kappa


def test_compressibility_keeps_as_many_as_meant():
    z = torch.zeros(100)
    z[:7] = 1  # 0.07 · 100 is 7.000000000000001: rounded up without care it is 8
    assert cp.compressibility(z, kappa=0.07) == 1 and cp.compressibility(z, kappa=0.06) < 1
    z[7] = 1
    assert cp.compressibility(z, kappa=0.07) == pytest.approx(1 - math.sqrt(1 / 8))


def test_values_of_known_vectors():
    one, even, zeros = torch.eye(16)[3], torch.ones(16), torch.zeros(16)
    assert cp.sparsity(one) == 15 / 16 and cp.sparsity(even) == 0 and cp.sparsity(zeros) == 1
    assert cp.compressibility(one) == 1 and cp.compressibility(zeros) == 1
    assert float(cp.compressibility(even)) == pytest.approx(1 - math.sqrt(14 / 16))  # ⌈1.6⌉ = 2 of 16 are kept
    assert cp.pq_index(one) == 1 - 1 / 4 and cp.pq_index(even) == 0 and cp.pq_index(zeros).isnan()
    assert cp.sparsity(torch.tensor([0.1, -0.2]), tolerance=0.15) == 0.5
    z = torch.randn(9, 40).relu()
    assert torch.allclose(cp.sparsity(z), torch.tensor([sparsity_by_hand(row) for row in z.tolist()]))


def test_pq_index_is_that_by_hand_and_an_index():
    z = torch.randn(50, 7) * torch.rand(50, 7) ** 4
    for p, q in ((1, 2), (0.5, 1), (0.5, 4)):
        expected = [pq_by_hand(row, p, q) for row in z.tolist()]
        found = cp.pq_index(z, p, q)
        assert torch.allclose(found, torch.tensor(expected), atol=1e-6)
        assert (found >= 0).all() and (found <= 1).all()
    for p, q in ((2, 1), (1, 1), (0, 2)):  # 2 and 1, as the paper prints it, would be below 0
        with pytest.raises(UserError, match="0 < p < q"):
            cp.pq_index(z, p, q)


@pytest.mark.parametrize("scale", [1e-30, -1e-3, 1e30])
def test_scale_and_order_say_nothing(scale):
    z = torch.randn(20, 30).relu()
    other = z[:, torch.randperm(30)] * scale
    for f in (cp.sparsity, cp.compressibility, cp.pq_index):
        assert torch.allclose(f(other), f(z), atol=1e-6), f


def test_averages_and_rows_of_zeros():
    z = torch.randn(10, 20).relu()
    z[4] = 0
    found = cp.compressed(z)
    rest = torch.cat([z[:4], z[5:]])
    assert found.zeros == 1 and found.n == 10
    assert found.pq_index == pytest.approx(float(cp.pq_index(rest).mean()), abs=1e-6)
    assert found.sparsity == pytest.approx(float((z == 0).float().mean()), abs=1e-6)
    assert found.compressibility == pytest.approx((float(cp.compressibility(rest).sum()) + 1) / 10, abs=1e-6)
    with pytest.raises(UserError, match="κ from 0 to 1"):
        cp.compressibility(z, kappa=1.1)


def test_activations_of_a_network():
    data, net = tiny(), OwnModule()
    found = cp.activations_compressed(net, data, most=100_000, kappa=0.3)
    assert found == cp.compressed(net.body(data.test.x).detach(), kappa=0.3)
    some = cp.activations_compressed(net, data, most=50)
    assert some.n == 50 and some == cp.activations_compressed(net, data, most=50)
    assert some != cp.activations_compressed(net, data, most=50, seed=1)


def test_weights_of_a_network():
    net = small()
    net[3].weight.data[0] = 0
    found = cp.weights_compressed(net)
    assert list(found) == ["0", "3", "5", "all"]
    assert found["3"].sparsity == 0.5 and found["0"].sparsity == 0
    every = torch.cat([net[i].weight.flatten() for i in (0, 3, 5)])
    assert found["all"] == cp.compressed(every[None]) and found["all"].sparsity == pytest.approx(12 / 72)
    other = cp.weights_compressed(net, q=1, kappa=0.5)
    assert other["all"] == cp.compressed(every[None], q=1, kappa=0.5) and other["5"] != found["5"]


# Pruning.


@pytest.mark.parametrize("how", ["structured", "magnitude"])
@pytest.mark.parametrize("scope", ["layer", "global"])
@pytest.mark.parametrize("conv", ["kernel", "filter"])
def test_pruning_takes_the_least_first(how, scope, conv):
    net = small()
    for kappa in (0, 0.1, 0.29, 0.5, 0.9, 1):
        expected = pruned_by_hand(net, kappa, how, scope, conv)
        with pr.pruned(net, kappa, how, scope, conv) as share:
            for (name, ours), theirs in zip(net.state_dict().items(), expected.state_dict().values(), strict=True):
                assert torch.equal(ours, theirs), (kappa, name)
            gone = sum(int((net[i].weight == 0).sum()) for i in (0, 3, 5))
            assert share == pytest.approx(gone / 72) and share <= kappa
    assert how == "magnitude" or share == 1


def test_a_column_is_all_that_leaves_one_input():
    net = nn.Linear(4, 3)
    net.weight.data = torch.tensor([[1.0, 0.1, 9, 2], [1, 0.1, 9, 0], [1, 0.1, 9, 0]])
    with pr.pruned(net, 0.5):
        assert (net.weight != 0).any(0).tolist() == [False, False, True, True]
    with pr.pruned(net, 0.5, "magnitude"):
        assert int((net.weight == 0).sum()) == 6


def test_pruning_takes_as_many_as_meant():
    net = nn.Linear(100, 1)
    for kappa in (0.07, 0.29, 0.57, 0.58, 0.9):
        for scope in ("layer", "global"):
            with pr.pruned(net, kappa, scope=scope) as share:
                assert share == pytest.approx(kappa) and int((net.weight == 0).sum()) == round(100 * kappa)
        z = torch.rand(2, 100)
        found = pr.activation_prunability(z, nn.Identity(), lambda v: float((v == 0).sum()) + 1, kappas=(kappa,))
        assert found.accuracy[0] == 2 * round(100 * kappa) + 1 and found.pruned[0] == pytest.approx(kappa)


def test_global_pruning_looks_at_all_layers_together():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    net[0].weight.data.fill_(0.1)
    net[1].weight.data.fill_(1.0)
    with pr.pruned(net, 0.5, scope="global") as share:
        assert (net[0].weight == 0).sum() == 12 and (net[1].weight != 0).all() and share == 0.5
    with pr.pruned(net, 0.5, scope="layer"):
        assert (net[0].weight == 0).sum() == 8 and (net[1].weight == 0).sum() == 4


def test_centred_pruning_resets_to_the_median():
    net = nn.Linear(3, 1)
    net.weight.data = torch.tensor([[5.0, 4.0, 0.0]])
    with pr.pruned(net, 0.4, centred=True):
        assert net.weight.tolist() == [[5.0, 4.0, 0.0]]  # the median itself goes first, and stays what it is
    with pr.pruned(net, 0.67, centred=True):
        assert net.weight.tolist() == [[4.0, 4.0, 0.0]]


def test_layers_left_out():
    net = small()
    with pr.pruned(net, 0.9, skip=("0", "5")):
        assert (net[0].weight != 0).all() and (net[5].weight != 0).all() and (net[3].weight == 0).any()
    with pytest.raises(UserError, match="no layer '4'"), pr.pruned(net, 0.5, skip=("4",)):
        pass
    with pytest.raises(UserError, match="no linear or convolutional layer"), pr.pruned(nn.ReLU(), 0.5):
        pass
    with pytest.raises(UserError, match="κ is a share"), pr.pruned(net, 1.5):
        pass
    with pytest.raises(UserError, match="did you mean 'structured'"), pr.pruned(net, 0.5, "structure"):
        pass


def test_weights_come_back_bit_by_bit():
    net = small().to(memory_format=torch.channels_last).train()
    net[5].weight.data[0, 0] = -0.0
    net[5].weight.data[0, 1] = torch.nan
    before = {k: v.clone() for k, v in net.state_dict().items()}
    places = [p.data_ptr() for p in net.parameters()]

    def check():
        for key, value in net.state_dict().items():
            kind = torch.int64 if value.dtype == torch.int64 else torch.int32
            assert torch.equal(value.contiguous().view(kind), before[key].contiguous().view(kind)), key
        assert [p.data_ptr() for p in net.parameters()] == places and all(p.grad is None for p in net.parameters())
        assert all(m.training for m in net.modules())

    for how, scope in itertools.product(("structured", "magnitude"), ("layer", "global")):
        pr.prunability(net, lambda n: 50.0, how, scope)
        check()

    def fails(net):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pr.prunability(net, fails)
    check()
    with pytest.raises(ZeroDivisionError), pr.pruned(net, 0.9):
        print(1 / 0)
    check()


def test_a_shared_weight_is_pruned_once_and_comes_back():
    net = nn.Sequential(nn.Linear(4, 4, bias=False), nn.ReLU(), nn.Linear(4, 4, bias=False))
    net[2].weight = net[0].weight
    before = net[0].weight.detach().clone()
    assert list(cp.layers(net)) == ["0"]
    with pr.pruned(net, 0.5) as share:
        assert share == 0.5 and int((net[2].weight == 0).sum()) == 8
    assert torch.equal(net[2].weight, before)


def test_weights_that_are_computed_are_refused():
    """Writing to them would change nothing, and the curve would be flat."""
    for wrap in (lambda m: parametrizations.weight_norm(m), lambda m: prune.l1_unstructured(m, "weight", 0.5)):
        net = nn.Sequential(wrap(nn.Linear(4, 4)), nn.Linear(4, 2))
        with pytest.raises(UserError, match="weight of layer '0' is computed"):
            pr.prunability(net, lambda n: 1.0)


def test_the_curve_and_its_mean():
    seen = []

    def accuracy(net):
        seen.append(int((net.weight == 0).sum()))
        return 80.0 - seen[-1]

    found = pr.prunability(nn.Linear(10, 4), accuracy)
    assert seen == [4 * k for k in range(10)] and found.kappas == tuple(k / 10 for k in range(10))
    assert found.kept == tuple((80 - 4 * k) / 80 for k in range(10))
    assert found.prunability == pytest.approx(sum(found.kept) / 10) and found.pruned[3] == pytest.approx(0.3)
    seen.clear()
    late = pr.prunability(nn.Linear(10, 4), accuracy, kappas=(0.5,))  # the whole network is asked all the same
    assert seen == [20, 0] and late.kept == (60 / 80,)
    with pytest.raises(UserError, match="accuracy of 0"):
        pr.prunability(nn.Linear(10, 4), lambda n: 0.0)


# Networks and data.


def test_prunability_of_a_run_is_that_of_networks_pruned_by_hand():
    data = tiny()
    net = fit("erm", data).classifier
    found = pr.data_prunability(net, data, kappas=(0, 0.3, 0.6, 0.9), how="magnitude")
    expected = [
        evaluate(pruned_by_hand(net, k, "magnitude", "layer"), data, device="cpu")["unbiased"]
        for k in (0, 0.3, 0.6, 0.9)
    ]
    assert found.accuracy == pytest.approx(expected) and len(set(expected)) > 2
    unbiased = pr.data_accuracy(data)
    for how, scope in (("structured", "layer"), ("magnitude", "global")):
        by_hand = prunability_by_hand(net, unbiased, how, scope, (0, 0.5, 0.9))
        assert pr.prunability(net, unbiased, how, scope, (0, 0.5, 0.9)).prunability == pytest.approx(by_hand), how
    by_name = pr.data_prunability(net, data, kappas=(0, 0.9), score="conflicting")
    assert by_name.accuracy[0] == evaluate(net, data, device="cpu")["conflicting"]
    with pytest.raises(UserError, match="did you mean 'unbiased'"):
        pr.data_prunability(net, data, score="unbiassed")


def test_statistics_taken_anew_after_pruning_by_hand():
    """BatchNorm's statistics of every pruned network, from its own activations on the training rows."""
    torch.manual_seed(0)
    data = pictures(shape=(2, 6, 6))
    net = nn.Sequential(nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(75, 4))
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    kappas, x = (0, 0.4, 0.8), prepare(data, "train")
    accuracy = pr.data_accuracy(data)
    expected = []
    for kappa in kappas:
        by_hand = pruned_by_hand(net, kappa, "magnitude", "layer")
        z = by_hand[0](x)  # (n, 3, 5, 5)
        by_hand[1].running_mean.copy_(z.mean((0, 2, 3)))
        by_hand[1].running_var.copy_(z.var((0, 2, 3)))
        expected.append(accuracy(by_hand))
    found = pr.data_prunability(net, data, kappas=kappas, how="magnitude", batchnorm="recomputed")
    kept = pr.data_prunability(net, data, kappas=kappas, how="magnitude")
    assert found.accuracy == pytest.approx(expected) and found.accuracy != kept.accuracy
    assert found.kept == pytest.approx([a / accuracy(net) for a in expected])  # of the network as it was
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    with pytest.raises(UserError, match="ways to treat BatchNorm are: kept, recomputed"):
        pr.data_prunability(net, data, batchnorm="anew")
    with pytest.raises(UserError, match="batchnorm is for weights"):
        pr.data_prunability(net, data, of="activations", batchnorm="recomputed")


def test_prunability_of_ones_own_module_and_of_data_without_attributes():
    data = tiny()
    own = OwnModule()
    plain = replace(data, test=Split(data.test.x, data.test.y))
    found = pr.data_prunability(own, plain, kappas=(0, 0.5))
    assert found.accuracy[0] == pytest.approx(evaluate(own, plain, device="cpu")["average"])
    some = pr.data_prunability(own, data, rows=[0, 1, 2, 3, 4, 5, 6, 7], score="average", kappas=(0,))
    right = (own(data.test.x[:8]).argmax(1) == data.test.y[:8]).float().mean()
    assert some.accuracy[0] == pytest.approx(100 * float(right))
    with pytest.raises(UserError, match="no samples that its worst_group"):
        pr.data_prunability(own, plain, score="worst_group")


@pytest.mark.parametrize("how", ["structured", "magnitude"])
def test_activations_are_pruned_by_hand_alike(how):
    z, head = torch.randn(12, 10), nn.Linear(10, 3)
    y = torch.arange(12) % 3

    def accuracy(logits):
        seen.append(logits)
        return 1 + float((logits.argmax(1) == y).float().mean())

    seen = []
    pr.activation_prunability(z, head, accuracy, how)
    assert len(seen) == 10
    for k, logits in enumerate(seen):
        assert torch.allclose(logits, head(pruned_activations_by_hand(z, k / 10, how)), atol=1e-6), k
        assert not logits.requires_grad
    seen.clear()
    late = pr.activation_prunability(z, head, accuracy, how, kappas=(0.9,))  # the whole network is asked all the same
    assert torch.equal(seen[1], head(z)) and late.kept == (accuracy(seen[0]) / accuracy(seen[1]),)


def test_ways_to_prune_that_there_are_not_are_said():
    net, data = OwnModule(), tiny()
    for settings in ({"how": "magnitud"}, {"scope": "globl"}, {"conv": "kernl"}, {"of": "weight"}):
        with pytest.raises(UserError, match="no way to prune"):
            pr.data_prunability(net, data, kappas=(0,), **settings)
    with pytest.raises(UserError, match="did you mean 'structured'"):
        pr.data_prunability(net, data, "activations", how="structure")


def test_activations_of_a_network_on_data():
    data = pictures(n=16)
    for net in (build("conv3", (3, 28, 28), 4), OwnModule(3 * 28 * 28, 4)):
        before = {k: v.clone() for k, v in net.state_dict().items()}
        found = pr.data_prunability(net.train(), data, "activations", score="average")
        assert found.accuracy[0] == pytest.approx(evaluate(net, data, device="cpu")["average"])
        assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items()) and net.training


def test_what_is_not_finite_is_not_measured_away():
    rows = torch.tensor([[math.nan, 2.0, 3.0, 4.0], [math.inf, 2.0, 3.0, 4.0], [0.0] * 4, [1.0, 2.0, 3.0, 4.0]])
    assert cp.compressibility(rows, kappa=0.25).isnan().tolist() == [True, True, False, False]
    assert cp.pq_index(rows).isnan().tolist() == [True, True, True, False]  # of zeros it is not defined
    found = cp.compressed(rows[[0, 2, 3]], kappa=0.25)
    assert math.isnan(found.compressibility) and math.isnan(found.pq_index) and (found.n, found.zeros) == (3, 1)
    good = cp.compressed(rows[2:], kappa=0.25)
    assert good.pq_index == pytest.approx(float(cp.pq_index(rows[3])))


@pytest.mark.parametrize(
    ("net", "said"),
    [(nn.Sequential(nn.Linear(7, 4), nn.ReLU(), nn.Linear(4, 1)), "2 classes"), (nn.Linear(7, 2), "NaN for 40 of 40")],
)
def test_a_network_that_says_nothing_is_refused_and_not_taken_for_one_that_says_the_first_class(net, said):
    with torch.no_grad():
        if isinstance(net, nn.Linear):
            net.weight.fill_(math.nan)
    toy = load_data({"name": "toy", "n": 20})
    with pytest.raises(UserError, match=said):
        pr.data_prunability(net, toy, rows=range(40))
    with pytest.raises(UserError, match="kappas is empty"):
        pr.data_prunability(nn.Linear(7, 2), toy, kappas=())


@pytest.mark.parametrize("measure", [cp.compressibility, cp.pq_index])
def test_vectors_without_entries_are_refused(measure):
    with pytest.raises(UserError, match="without entries"):
        measure(torch.zeros(3, 0))


def test_what_is_left_of_a_network_may_give_no_numbers_the_whole_one_may_not():
    class Fragile(OwnModule):
        def forward(self, x):
            return super().forward(x) + (math.nan if bool((self.classify.weight == 0).any()) else 0.0)

    data, net = tiny(), Fragile()
    found = pr.data_prunability(net, data, kappas=(0, 0.5))
    assert found.accuracy[0] > 0 and found.accuracy[1] == 0
    with torch.no_grad():
        net.classify.weight[0, 0] = 0
    with pytest.raises(UserError, match="NaN"):
        pr.data_prunability(net, data, kappas=(0, 0.5))


def test_sparsity_of_nan_is_nan_and_vectors_are_counted():
    assert cp.sparsity(torch.tensor([[0.0, math.nan], [0.0, 1.0]])).isnan().tolist() == [True, False]
    assert cp.compressed(torch.rand(5)).n == 1 and cp.compressed(torch.rand(2, 3, 4)).n == 6


def test_a_network_that_gives_more_than_logits_is_refused():
    class Pair(OwnModule):
        def forward(self, x):
            return super().forward(x), x

    with pytest.raises(UserError, match="gives a tuple"):
        pr.data_prunability(Pair(), tiny())
