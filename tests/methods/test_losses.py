"""The losses that methods share, against autograd and against tables kept by hand."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spurless.core.data import Batch
from spurless.methods.bias_adv import BiasAdv
from spurless.methods.lff import LfF
from spurless.methods.parts.losses import LossMemory, ce, ce_rows, gce
from spurless.methods.pgd import PGD
from tests.support.mining import inference, open_run
from tests.support.reference import LossTables, gce_paper
from tests.support.worlds import tiny

FORMS = ["paper", "code"]


def drawn(seed, n, classes, scale):
    g = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(n, classes, generator=g, dtype=torch.float64)
    return logits.requires_grad_(), torch.randint(classes, (n,), generator=g)


shapes = {
    "seed": st.integers(0, 10**6),
    "n": st.integers(1, 9),
    "classes": st.integers(2, 12),
    "q": st.floats(0.01, 1),
    "scale": st.sampled_from([0.1, 1.0, 10.0]),
}


@settings(max_examples=40, deadline=None)
@given(**shapes)
def test_the_gradient_of_gce_is_p_to_the_q_times_that_of_cross_entropy(seed, n, classes, q, scale):
    logits, y = drawn(seed, n, classes, scale)
    p = logits.detach().softmax(1).gather(1, y[:, None])  # (n, 1)
    (plain,) = torch.autograd.grad(ce(logits, y), logits)
    (paper,) = torch.autograd.grad(gce(logits, y, q), logits)
    (code,) = torch.autograd.grad(gce(logits, y, q, "code"), logits)
    torch.testing.assert_close(paper, p**q * plain, rtol=1e-9, atol=1e-15)
    torch.testing.assert_close(code, q * p**q * plain, rtol=1e-9, atol=1e-15)


@settings(max_examples=40, deadline=None)
@given(**shapes)
def test_the_value_of_gce(seed, n, classes, q, scale):
    logits, y = drawn(seed, n, classes, scale)
    torch.testing.assert_close(gce(logits, y, q), gce_paper(logits, y, q), rtol=1e-9, atol=1e-12)
    p = logits.softmax(1).gather(1, y[:, None])[:, 0]
    torch.testing.assert_close(gce(logits, y, q, "code"), (q * p**q * -p.log()).mean(), rtol=1e-9, atol=1e-12)


def test_gce_between_its_two_ends():
    logits, y = drawn(0, 6, 3, 1.0)
    p = logits.softmax(1).gather(1, y[:, None])[:, 0]
    torch.testing.assert_close(gce(logits, y, 1.0), (1 - p).mean())  # the mean absolute error, halved
    torch.testing.assert_close(gce(logits, y, 1e-6), ce(logits, y), rtol=1e-5, atol=0)  # cross entropy


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("q", [0.1, 0.7, 1.0])
@pytest.mark.parametrize("size", [1e2, 1e4, 1e30])
def test_extreme_logits_give_no_nan(form, q, size):
    """p underflows to 0 in the first two rows; p^q through p has an infinite slope there."""
    logits = torch.tensor([[size, 0.0], [0.0, -size], [size, 0.0], [-size, -size]], requires_grad=True)
    y = torch.tensor([1, 1, 0, 0])
    value = gce(logits, y, q, form)
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(logits.grad).all()
    if size > 1e3:  # a sample that is hopelessly wrong teaches nothing: p^q = 0
        assert torch.equal(logits.grad[:2], torch.zeros(2, 2))
    assert float(logits.grad[3].abs().max()) > 0  # an undecided one does


USERS = {
    "lff": lambda run, **s: LfF(**s).stages(run),
    "pgd": lambda run, **s: PGD(**s).stages(run),
    "bias_adv on erm": lambda run, **s: BiasAdv("erm", **s).stages(run),
    "bias_adv on lff": lambda run, **s: BiasAdv("lff", **s).stages(run),
    "gce": lambda run, **s: inference("gce", **s).infer(run),
    "gradient": lambda run, **s: inference("gradient", **s).infer(run),
    "loss": lambda run, **s: inference("loss", **s).infer(run),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("user", USERS)
def test_q_and_form_reach_the_biased_network_of_all_who_have_one(user, form):
    """Its gradient is that of GCE and of nothing else; in the code's form q times as large. (DisEnt: test_disent)"""
    data = tiny(n=20)
    run = open_run(data, "mlp")
    stage = next(USERS[user](run, q=0.4, form=form))
    x, y, idx = data.train.x, data.train.y, torch.arange(20)
    biased = list(run.modules[0].parameters())
    found = torch.autograd.grad(stage.loss(Batch(x, y, None, idx, torch.tensor(0.0))), biased)
    wanted = torch.autograd.grad(gce_paper(run.modules[0](x), y, 0.4), biased)
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs * (0.4 if form == "code" else 1), rtol=1e-4, atol=1e-7)
    assert max(float(g.abs().max()) for g in wanted) > 1e-3


def test_rows_are_kept_apart():
    logits, y = drawn(1, 5, 4, 1.0)
    each = ce_rows(logits, y)
    assert each.shape == (5,) and len(set(each.tolist())) == 5
    torch.testing.assert_close(each.mean(), ce(logits, y))


# The memory of losses


def test_memory_equals_tables_kept_by_hand_over_steps_with_repeated_rows():
    y = torch.tensor([0, 1, 0, 1, 2, 0])
    memory, tables = LossMemory(y, 3, alpha=0.7), LossTables(y.tolist(), 0.7)
    for idx, losses in [([0, 3, 4], [2.0, 1.0, 0.5]), ([3, 2, 0], [4.0, 0.1, 0.2]), ([0, 1, 3], [0.0, 3.0, 0.7])]:
        memory.update(torch.tensor(idx), torch.tensor(losses))
        tables.update(idx, losses)
        assert memory.relative(torch.tensor(idx)).tolist() == pytest.approx(tables.relative(idx))
    hand = {0: 0.7 * (0.7 * 2.0 + 0.3 * 0.2) + 0.3 * 0.0, 3: 0.7 * (0.7 * 1.0 + 0.3 * 4.0) + 0.3 * 0.7, 1: 3.0}
    for row, value in hand.items():
        assert float(memory.value[row]) == pytest.approx(value)


def test_a_loss_is_compared_with_its_class_over_the_whole_training_set():
    y = torch.tensor([0, 0, 1])
    memory = LossMemory(y, 2)
    memory.update(torch.tensor([0]), torch.tensor([8.0]))
    memory.update(torch.tensor([1, 2]), torch.tensor([2.0, 3.0]))
    # Row 1 is compared with row 0, which is not in the batch; row 2 with itself, not with the larger other class.
    assert memory.relative(torch.tensor([1, 2])).tolist() == [0.25, 1.0]


def test_the_maximum_falls_when_its_row_is_learnt():
    memory = LossMemory(torch.tensor([0, 0]), 1, alpha=0.5)
    memory.update(torch.tensor([0, 1]), torch.tensor([8.0, 2.0]))
    memory.update(torch.tensor([0]), torch.tensor([0.0]))
    assert memory.relative(torch.tensor([1])).tolist() == [0.5]


def test_the_memory_is_updated_in_place_and_is_part_of_checkpoints():
    memory = LossMemory(torch.tensor([0, 1]), 2)
    places = {k: t.data_ptr() for k, t in memory.state_dict().items()}
    loss = torch.tensor([1.0, 2.0], requires_grad=True)
    memory.update(torch.tensor([1, 0]), loss)
    assert not memory.relative(torch.tensor([0])).requires_grad
    assert {k: t.data_ptr() for k, t in memory.state_dict().items()} == places  # a CUDA graph holds these addresses
    again = LossMemory(torch.tensor([0, 1]), 2)
    again.load_state_dict(memory.state_dict())
    again.update(torch.tensor([0]), torch.tensor([0.0]))
    assert float(again.value[0]) == pytest.approx(0.7 * 2.0)  # it knows that the row has been seen


def test_a_class_without_any_loss_gives_no_nan():
    memory = LossMemory(torch.tensor([0, 0]), 1)
    memory.update(torch.tensor([0, 1]), torch.zeros(2))
    assert memory.relative(torch.tensor([0, 1])).tolist() == [0.0, 0.0]
    assert not math.isnan(float(memory.class_max[0]))


@pytest.mark.parametrize("classes", [1, 3, 7])
def test_the_class_maximum_is_the_same_by_table_and_by_scatter(classes):
    y = torch.randint(classes, (50,), generator=torch.Generator().manual_seed(classes))
    y[:classes] = torch.arange(classes)
    table, scatter = (LossMemory(y, classes) for _ in range(2))
    assert table.members is not None
    scatter.members = None
    for step in range(4):
        idx = torch.randint(50, (9,), generator=torch.Generator().manual_seed(step)).unique()
        loss = torch.rand(len(idx), generator=torch.Generator().manual_seed(step))
        for memory in (table, scatter):
            memory.update(idx, loss)
        assert torch.equal(table.relative(idx), scatter.relative(idx))
        assert torch.equal(table.class_max, torch.stack([table.value[y == c].max() for c in range(classes)]))


def test_a_class_without_rows_or_a_lopsided_one_has_no_table():
    assert LossMemory(torch.tensor([0, 0, 2]), 3).members is None
    assert LossMemory(torch.tensor([0] * 100 + list(range(1, 30))), 30).members is None
