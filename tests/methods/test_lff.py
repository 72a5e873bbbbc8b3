"""LfF is the algorithm: against a version with dictionaries, loops and two optimisers."""

from dataclasses import dataclass, replace

import pytest
import torch

from spurless.core.method import Method
from spurless.core.recipe import Recipe
from spurless.core.seeds import derive
from spurless.methods.lff import LfF, failure_weights, relative_difficulty
from spurless.methods.parts.losses import LossMemory, ce_rows
from spurless.nets import build
from spurless.train.feed import epoch_order
from spurless.train.fit import fit
from spurless.train.optim import make_optimizer
from tests.support.reference import LossTables, gce_paper, per_sample_head_gradients
from tests.support.runs import CPU
from tests.support.worlds import tiny

RECIPE = Recipe("sgd", 0.05, momentum=0.9, weight_decay=1e-3, batch_size=32, epochs=3)


def test_weights_differ_by_row_and_equal_tables_kept_by_hand():
    y = torch.tensor([0, 1, 0, 1, 1])
    memories = [LossMemory(y, 2, 0.7) for _ in range(2)]
    tables = [LossTables(y.tolist(), 0.7) for _ in range(2)]
    g = torch.Generator().manual_seed(0)
    for idx in ([0, 1, 3], [3, 2, 0], [4, 0, 3]):
        losses = torch.rand(2, 3, generator=g)
        w = failure_weights(*memories, torch.tensor(idx), *losses)
        for table, values in zip(tables, losses.tolist(), strict=True):
            table.update(idx, values)
        pairs = zip(*(table.relative(idx) for table in tables), strict=True)
        assert w.tolist() == pytest.approx([b / (b + d) for b, d in pairs], rel=1e-5)
    assert len(set(w.tolist())) == 3


def test_relative_difficulty_lies_between_0_and_1_and_grows_with_the_failure_of_the_biased_network():
    b, d = torch.tensor([0.0, 1.0, 5.0, 0.0]), torch.tensor([1.0, 1.0, 0.0, 0.0])
    assert relative_difficulty(b, d).tolist() == pytest.approx([0, 0.5, 1, 0])


def lff_by_hand(data, recipe, seed, q=0.7, alpha=0.7, memory=True, gradient=False):
    """Algorithm 1, row by row: two networks, two optimisers, two dictionaries. Returns both and the mean loss of
    each epoch."""
    nets, opts = [], []
    for k in range(2):
        torch.manual_seed(derive(seed, "net", k))
        nets.append(build("mlp", data.shape, 2).train())
        opts.append(make_optimizer(nets[k].parameters(), recipe, torch.device("cpu")))
    x, y = data.train.x, data.train.y
    tables = [LossTables(y.tolist(), alpha) for _ in nets]
    means = []
    for epoch in range(int(recipe.epochs)):
        order = epoch_order(len(y), None, None, torch.Generator().manual_seed(derive(seed, "order", 0, epoch)))
        totals = []
        for rows in order.split(recipe.batch_size):
            shares = []
            for net, table in zip(nets, tables, strict=True):
                if gradient:
                    weight_grads, _ = per_sample_head_gradients(net, x[rows], y[rows])
                    now = [float(g.norm()) for g in weight_grads]
                else:
                    now = ce_rows(net(x[rows]), y[rows]).tolist()
                table.update(rows.tolist(), now)
                shares.append(table.relative(rows.tolist()) if memory else now)
            w = torch.tensor([b / (b + d) for b, d in zip(*shares, strict=True)])
            easy = gce_paper(nets[0](x[rows]), y[rows], q)
            hard = (w * ce_rows(nets[1](x[rows]), y[rows])).sum() / len(rows)
            for opt, loss in zip(opts, (easy, hard), strict=True):
                opt.zero_grad()
                loss.backward()
                opt.step()
            totals.append(easy.item() + hard.item())
        means.append(sum(totals) / len(totals))
    return nets, means


@pytest.mark.parametrize("memory", [True, False])
@pytest.mark.parametrize("score", ["loss", "gradient"])
def test_a_run_is_the_algorithm_written_by_hand(memory, score):
    data = tiny(n=70, rho=0.1)
    (_, debiased), means = lff_by_hand(data, RECIPE, 3, memory=memory, gradient=score == "gradient")
    result = fit(LfF(memory=memory, score=score), data, net="mlp", recipe=RECIPE, seed=3, **CPU)
    for mine, theirs in zip(result.classifier.parameters(), debiased.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    assert [row["loss"] for row in result.history] == pytest.approx(means, rel=1e-4)


def test_the_variants_differ():
    data, ends = tiny(n=70, rho=0.1), []
    for method in (
        LfF(),
        LfF(memory=False),
        LfF(score="gradient"),
        LfF(memory=False, score="gradient"),
        LfF(alpha=0.2),
    ):
        ends.append(fit(method, data, net="mlp", recipe=RECIPE, **CPU).history[-1]["loss"])
    assert len(set(ends)) == len(ends)


def test_the_biased_network_is_trained_by_gce_alone_and_starts_from_weights_of_its_own():
    kept = {}

    @dataclass(frozen=True)
    class Watch(Method):
        def stages(self, run):
            for stage in LfF().stages(run):
                kept["start"] = [[p.detach().clone() for p in net.parameters()] for net in run.modules[:2]]
                yield stage
            kept["end"] = list(run.modules[0].parameters())
            return run.modules[1]

    data = tiny(n=70, rho=0.1)
    fit(Watch(), data, net="mlp", recipe=RECIPE, seed=3, **CPU)
    (biased, _), _ = lff_by_hand(data, RECIPE, 3)
    for mine, theirs in zip(kept["end"], biased.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    assert not any(torch.equal(a, b) for a, b in zip(*kept["start"], strict=True))


def test_conflicting_rows_get_the_larger_weights():
    """What the method is for: on the toy the biased network fails on the conflicting rows."""
    data = tiny(n=400)
    memories = {}

    @dataclass(frozen=True)
    class Watch(Method):
        def stages(self, run):
            net = yield from LfF().stages(run)
            memories["b"], memories["d"] = run.modules[2:]
            return net

    fit(Watch(), data, net="linear", recipe=replace(RECIPE, epochs=15), **CPU)
    idx = torch.arange(400)
    w = relative_difficulty(memories["b"].relative(idx), memories["d"].relative(idx))
    aligned = data.is_aligned(data.train)[:, 0]
    assert bool(memories["b"].visited.all())
    assert float(w[~aligned].mean()) > 0.5 > float(w[aligned].mean())
