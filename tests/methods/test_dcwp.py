"""DCWP is the algorithm: its pairs by hand, its stages, its switches."""

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from spurless.bench.spec import read_spec
from spurless.core.data import Batch
from spurless.core.errors import UserError
from spurless.core.recipe import Recipe
from spurless.core.seeds import derive
from spurless.methods.dcwp import Mining, alignment, oversampling, pair_sets
from spurless.methods.group_inference.errors import GceErrors
from spurless.methods.parts import losses
from spurless.methods.parts.pruning import sparsity
from spurless.nets import build
from spurless.registry import make_method, make_recipe
from spurless.train.fit import fit
from spurless.train.observe import Interrupted
from spurless.train.session import RunArguments, Session
from tests.support.runs import CPU, stages_of
from tests.support.worlds import pictures, tiny

PAPERS = Path(__file__).parents[2] / "papers"

# A batch of six: rows 0 and 3 conflict.
Y = torch.tensor([0, 0, 0, 1, 1, 1])
BC = torch.tensor([True, False, False, True, False, False])
QUICK = {"mining_iterations": 8, "mask_iterations": 8, "finetune_iterations": 8}


def dcwp(**settings):
    """By the names that the settings had before they were groups."""
    return make_method({"name": "dcwp"} | settings)


def sets(matrix):
    return [row.nonzero().flatten().tolist() for row in matrix]


def test_the_papers_pairs_by_hand():
    positive, against = pair_sets(Y, BC)
    # l_con(S_bc, S): anchors 0 and 3, with all of their class. l_con(S_ba, S_bc): the others, with 0 or 3.
    assert sets(positive) == [[1, 2], [0], [0], [4, 5], [3], [3]]
    # Denominators over the anchor's own set: S_bc = {0, 3}, S_ba = {1, 2, 4, 5}.
    assert sets(against) == [[3], [2, 4, 5], [1, 4, 5], [0], [1, 2, 5], [1, 2, 4]]


def test_the_codes_pairs_by_hand():
    positive, against = pair_sets(Y, BC, "code")
    # Column j in S_bc for every anchor: the conflicting anchors 0 and 3 have no positive at all.
    assert sets(positive) == [[], [0], [0], [], [3], [3]]
    assert sets(against) == [[a for a in range(6) if a != i] for i in range(6)]


def l_con(z, y, anchors, positives, among, tau):
    """Equation 15, with loops; `among`: what the denominator runs over, without the anchor."""
    total, counted = 0.0, 0
    for i in anchors:
        plus = [j for j in positives if y[j] == y[i] and j != i]
        rest = [a for a in among if a != i]
        if not plus or not rest:
            continue
        below = math.log(sum(math.exp(float(z[i] @ z[a]) / tau) for a in rest))
        total -= sum(float(z[i] @ z[j]) / tau - below for j in plus) / len(plus)
        counted += 1
    return total, counted


@pytest.mark.parametrize("seed", range(4))
def test_alignment_equals_equation_16_written_with_loops(seed):
    torch.manual_seed(seed)
    features, y = torch.randn(11, 5), torch.randint(0, 3, (11,))
    bc = torch.rand(11) < 0.3
    z = nn.functional.normalize(features, dim=1)
    s, s_bc, s_ba = list(range(11)), bc.nonzero().flatten().tolist(), (~bc).nonzero().flatten().tolist()
    first, n_first = l_con(z, y, s_bc, s, s_bc, 0.5)
    second, n_second = l_con(z, y, s_ba, s_bc, s_ba, 0.5)
    assert float(alignment(features, y, bc, 0.5)) == pytest.approx(first + second, rel=1e-4, abs=1e-5)
    mean = (first + second) / max(1, n_first + n_second)
    assert float(alignment(features, y, bc, 0.5, mean=True)) == pytest.approx(mean, rel=1e-4, abs=1e-5)
    code, n = l_con(z, y, s, s_bc, s, 0.5)
    assert float(alignment(features, y, bc, 0.5, "code", mean=True)) == pytest.approx(code / max(1, n), rel=1e-4)


@pytest.mark.parametrize("form", ["paper", "code"])
@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("conflicting", [[], [2], [0, 1, 2, 3, 4, 5]])
def test_a_batch_without_conflicting_rows_or_with_nothing_else_gives_no_nan(form, mean, conflicting):
    features = torch.randn(6, 4)
    features[1] = 0  # nor a row whose units are all dead
    features.requires_grad_()
    bc = torch.zeros(6, dtype=torch.bool)
    bc[conflicting] = True
    loss = alignment(features, Y, bc, 0.07, form, mean)
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(features.grad).all()
    if not conflicting:
        assert float(loss.detach()) == 0 and not features.grad.any()


def test_the_only_conflicting_row_of_a_batch_has_an_empty_denominator_and_adds_nothing():
    features, bc = torch.randn(6, 4), torch.tensor([False, False, True, False, False, False])
    z = nn.functional.normalize(features, dim=1)
    second, counted = l_con(z, Y, [0, 1, 3, 4, 5], [2], [0, 1, 3, 4, 5], 0.5)
    assert counted == 2 and float(alignment(features, Y, bc, 0.5)) == pytest.approx(second, rel=1e-4)
    assert float(alignment(features, Y, bc, 0.5, mean=True)) == pytest.approx(second / 2, rel=1e-4)


def test_alignment_pulls_a_conflicting_row_towards_its_class():
    features = torch.tensor(
        [[1.0, 0.2], [0.0, 1.0], [0.1, 1.0], [1.0, -0.2], [1.0, 0.0], [0.9, 0.1]], requires_grad=True
    )
    alignment(features, Y, BC, 0.5).backward()
    before = torch.cosine_similarity(features[0], features[1], dim=0)
    with torch.no_grad():
        moved = features - 0.05 * features.grad
    assert torch.cosine_similarity(moved[0], moved[1], dim=0) > before


def test_odds_are_lambda_up_to_one_and_1_means_no_oversampling():
    assert oversampling(BC, 80).tolist() == [80, 1, 1, 80, 1, 1]
    assert oversampling(BC, 1) is None
    assert oversampling(torch.zeros(3, dtype=torch.bool), 80) is None


def test_the_stages_their_lengths_odds_and_learning_rates(monkeypatch):
    recipe = Recipe("adam", 0.02, batch_size=32, epochs=3)
    method = dcwp(**QUICK, lambda_up=70, finetune_up=30)
    stages, result = stages_of(monkeypatch, method, tiny(), recipe=recipe)
    assert [s.name for s in stages] == ["mine", "pretrain", "mask", "finetune"]
    assert [s.select for s in stages] == [False, False, False, True]
    assert [s.iterations for s in stages] == [8, None, 8, 8]
    mined = result.mining["mined"]["n_mined"]
    assert [None if s.sample_weights is None else float(s.sample_weights.max()) for s in stages] == [None, None, 70, 30]
    assert float(stages[2].sample_weights.sum()) == 200 + 69 * mined
    lrs = [s.optimizer.param_groups[0]["initial_lr"] for s in stages]
    assert lrs == pytest.approx([0.02, 0.02, 0.01, 0.002])


RELEASED = {"mining_optimizer": "sgd", "mining_lr": 0.1, "mining_decay": 1e-4, "mining_falls": 3}


def test_as_released_mining_has_an_optimiser_of_its_own_and_the_mask_its_own_betas(monkeypatch):
    recipe = Recipe("adam", 0.02, betas=(0.9, 0.99), batch_size=32, epochs=2)
    stages, result = stages_of(monkeypatch, dcwp(**QUICK, **RELEASED, form="code"), tiny(), recipe=recipe)
    assert [(s.name, s.iterations) for s in stages] == [
        ("mine", 3),
        ("mine", 3),
        ("mine", 2),
        ("pretrain", None),
        ("mask", 8),
        ("finetune", 8),
    ]
    mine = stages[0].optimizer
    assert all(s.optimizer is mine and s.model is stages[0].model for s in stages[:3])
    known = {k: mine.param_groups[0][k] for k in ("momentum", "weight_decay")}
    assert isinstance(mine, torch.optim.SGD) and known == {"momentum": 0.9, "weight_decay": 1e-4}
    assert float(mine.param_groups[0]["lr"]) == pytest.approx(0.1 * 0.1**2)  # where the last stretch left it
    groups = [s.optimizer.param_groups[0] for s in stages[3:]]
    assert [g["betas"] for g in groups] == [(0.9, 0.99), (0.9, 0.999), (0.9, 0.99)]
    assert [g["initial_lr"] for g in groups] == pytest.approx([0.02, 0.01, 0.002])
    assert "mined" in result.mining and result.status == "done"


def test_a_run_that_is_stopped_after_a_fall_of_the_miners_rate_goes_on_as_if_it_had_not_been(tmp_path):
    settings = {"data": tiny(), "net": "mlp", "recipe": Recipe("adam", 0.02, batch_size=32, epochs=1)}
    method = dcwp(**QUICK, **RELEASED)
    whole = fit(method, **settings, **CPU).classifier
    session = Session(RunArguments(method, **settings, out=tmp_path / "run", device="cpu"))
    steps = (progress for progress in session if progress.done)
    assert [next(steps).stage for _ in range(4)] == ["mine"] * 4  # one step after the first fall
    session.stop()
    with pytest.raises(Interrupted):
        next(steps)
    again = fit(method, **settings, out=tmp_path / "run", **CPU).classifier
    assert torch.equal(whole.head.weight, again.head.weight)


def test_the_rows_as_released_are_what_the_script_says():
    """Two commands: SGD for the network that mines, then Adam with the second beta 0.99, for the weights alone."""
    lines = (
        read_spec(PAPERS / "dcwp-table1.toml").only(["CMNIST", "DCWP, as released", "as released, not pruned"]).lines
    )
    assert len(lines) == 8
    for line in lines:
        cell = line.trials[0]
        method, recipe = make_method(cell.method), make_recipe(cell.recipe, tiny())
        assert method.mining == Mining(
            optimizer="sgd", lr=0.1, weight_decay=1e-4, decay_every=600
        )  # 2,000 steps of GCE
        assert (recipe.optimizer, recipe.lr, recipe.betas) == ("adam", 0.01, (0.9, 0.99))
        assert (recipe.iterations, recipe.batch_size, recipe.weight_decay) == (10_000, 256, 0)
        assert (method.form, method.mask.up, method.mask.l1) == ("code", 80, 1e-8)
        assert (method.mask.iterations, method.finetune.iterations, method.finetune.lr) == (2000, 1000, 0)
        assert cell.net == {"name": "conv3", "order": "bn_relu"}
        assert len(line.trials) == 4


def test_the_ablation_switches_take_stages_and_losses_away(monkeypatch):
    stages, result = stages_of(monkeypatch, dcwp(**QUICK, prune=False), tiny())
    assert [s.name for s in stages] == ["mine", "pretrain", "finetune"] and sparsity(result.classifier) == 0
    plain, _ = stages_of(monkeypatch, dcwp(**QUICK, prune=False, lambda_up=1, finetune_align=0), tiny())
    assert plain[-1].sample_weights is None


def test_the_alignment_loss_can_be_left_out_of_either_stage(monkeypatch):
    """Parts c and d of table 2."""
    seen = []

    def note(features, y, conflicting, *settings):
        seen.append(settings)
        return alignment(features, y, conflicting, *settings)

    monkeypatch.setattr("spurless.methods.dcwp.alignment", note)
    steps = QUICK | {"mask_iterations": 7, "finetune_iterations": 5, "contrast": 0.5}
    for off, calls in ({}, 12), ({"lambda_align": 0}, 5), ({"finetune_align": 0}, 7):
        seen.clear()
        fit(dcwp(**steps, **off), tiny(n=64), **CPU)
        assert seen == [(0.5, "paper", False)] * calls
    seen.clear()
    fit(dcwp(**steps, form="code"), tiny(n=64), **CPU)
    assert seen == [(0.5, "code", True)] * 12


def test_equation_17_is_the_sum():
    features, logits = torch.randn(6, 4), torch.randn(6, 2)
    batch = Batch(features, Y, None, torch.arange(6), torch.zeros(()))
    wanted = nn.functional.cross_entropy(logits, Y) + 0.3 * alignment(features, Y, BC, 0.5)
    net = SimpleNamespace(features=lambda x: features, head=lambda x: logits)
    method = dcwp(contrast=0.5, finetune_align=0.3)
    torch.testing.assert_close(method.finetuning_loss(losses, net, BC)(batch), wanted)


def test_the_miner_is_given_what_was_asked_for(monkeypatch):
    seen, real = [], GceErrors.infer

    def note(self, run):
        seen.append(self)
        return real(self, run)

    monkeypatch.setattr(GceErrors, "infer", note)
    fit(dcwp(**QUICK, q=0.4, form="code"), tiny(n=64), **CPU)
    assert seen == [GceErrors(iterations=8, q=0.4, form="code")]


def test_every_miner_can_be_plugged_in(monkeypatch):
    for mining in ("erm", "ecs", "ecs_simple"):
        settings = QUICK | ({"mining_iterations": None, "mining_epochs": 1} if "ecs" in mining else {})
        stages, result = stages_of(monkeypatch, dcwp(**settings, mining=mining), tiny(n=64))
        assert result.status == "done" and "mined" in result.mining and stages[0].name == "mine"
    with pytest.raises(UserError, match="mining.epochs"):
        fit(dcwp(**QUICK, mining="ecs"), tiny(n=64), **CPU)
    with pytest.raises(UserError, match="method.mining.lr and method.mining.decay_every: for gce and erm"):
        fit(dcwp(mining="ecs", mining_lr=0.1, mining_falls=3), tiny(n=64), **CPU)


# Logits just above zero and a strong signed penalty: enough is removed in a few steps.
SHARP = QUICK | {"start": 0.03, "lambda_l1": 1e-4, "penalty_form": "code"}


@pytest.mark.parametrize("over", ["weight", "channel"])
def test_what_the_mask_removes_is_zero_in_the_classifier(over):
    data = pictures()
    recipe = Recipe("sgd", 0.05, momentum=0.9, weight_decay=0.01, batch_size=16, epochs=2)
    net = fit(dcwp(**SHARP, over=over), data, net="simconv1", recipe=recipe, **CPU).classifier
    assert 5 < sparsity(net) < 100
    assert net.state_dict().keys() == build("simconv1", data.shape, 4).state_dict().keys()
    if over == "channel":
        dead = net.encoder[0].weight.flatten(1).eq(0).all(1)
        assert torch.equal(dead, net.encoder[0].bias == 0) and not (net.head.weight == 0).any()


def test_more_steps_of_the_mask_remove_more():
    """Iterations of Θ are the knob of sparsity (figure 1b)."""
    data, shares = tiny(), []
    for steps in (40, 330):
        method = dcwp(**QUICK | {"mask_iterations": steps}, form="code", lambda_align=0)
        shares.append(sparsity(fit(method, data, net={"name": "mlp", "widths": [32]}, **CPU).classifier))
    assert shares[0] == 0 < 5 < shares[1]


def test_reset_goes_back_to_the_start_and_fine_tuning_does_not():
    data = tiny(n=64)
    still = QUICK | {"finetune_iterations": 1, "finetune_lr": 1e-12, "prune": False}
    torch.manual_seed(derive(0, "net", 1))  # the second network of the run, after the miner's
    start = build("mlp", data.shape, 2)
    again = fit(dcwp(**still, reset=True), data, net="mlp", **CPU).classifier
    on = fit(dcwp(**still), data, net="mlp", **CPU).classifier
    torch.testing.assert_close(again.head.weight, start.head.weight, rtol=0, atol=1e-9)
    assert not torch.allclose(on.head.weight, start.head.weight, atol=1e-3)


def test_the_forms_differ_where_they_should():
    data = tiny()
    nets = {}
    for name, settings in {
        "paper": {},
        "gate": {"gate_form": "code"},
        "penalty": {"penalty_form": "code"},
        "pairs": {"pair_form": "code"},
        "anchors": {"anchors": "mean"},
    }.items():
        # A network with features that learn, and long enough that the mask tells.
        method = dcwp(**QUICK | {"mask_iterations": 30, "start": 0.1, "lambda_l1": 1e-4}, **settings)
        nets[name] = fit(method, data, net={"name": "mlp", "widths": [16]}, **CPU).classifier.head.weight
    for name in ("gate", "penalty", "pairs", "anchors"):
        assert not torch.equal(nets["paper"], nets[name]), name
