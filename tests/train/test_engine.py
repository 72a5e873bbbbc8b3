"""The engine: one loop, exact to the bit, that can be killed at any moment."""

import errno
import json
import math
import multiprocessing
import os
import random
import signal
import time
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn

import spurless
from spurless.core.data import Split
from spurless.core.errors import UserError
from spurless.core.method import Method, Stage
from spurless.core.recipe import Recipe
from spurless.core.seeds import derive
from spurless.core.tensor_files import header
from spurless.methods.parts.losses import ce
from spurless.nets import build
from spurless.nets.outputs import fetch_ahead
from spurless.train.feed import Streamed, epoch_order, resident
from spurless.train.fit import fit
from spurless.train.observe import Interrupted
from spurless.train.optim import make_optimizer
from spurless.train.saved import load_run
from spurless.train.schedule import batch_sizes, schedule, stage_length
from spurless.train.step import Steps
from tests.support.reference import train_by_hand, weighted_draws
from tests.support.runs import CPU, StopAt, same_weights, timeless
from tests.support.worlds import FAST, OwnModule, Peek, PeekWithLabels, pictures, tiny

# Rows on a device


def test_rows_lie_on_a_device_once_for_all_who_have_them():
    from spurless.train.feed import _residents

    x, device, before = torch.rand(4, 3, 2, 2), torch.device("cpu"), len(_residents)
    first = resident(x, True, device)
    assert resident(x, True, device) is first and resident(x, False, device) is not first
    assert torch.equal(torch.cat(list(first.parts(3))), x)
    assert resident(x.clone(), True, device) is not first
    x.add_(1)  # those who have them go on with what they have
    assert resident(x, True, device) is not first
    del first
    assert len(_residents) == before


def test_a_split_is_placed_once_in_a_run(monkeypatch):
    placed = []

    def place(x, *how):
        placed.append(x)
        return resident(x, *how)

    monkeypatch.setattr("spurless.train.engine_run.resident", place)
    data = pictures(n=40)
    result = fit("erm", data, net="conv3", recipe=Recipe(batch_size=16, epochs=3, eval_every=1), **CPU)
    assert sum("val_loss" in row for row in result.history) == 3
    assert [sum(x is split.x for x in placed) for split in (data.val, data.test)] == [1, 1]


# The loop is the plain loop


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_fit_equals_a_loop_written_by_hand(optimizer):
    data = tiny(n=70)
    recipe = Recipe(optimizer, 0.01, batch_size=32, epochs=3, schedule="cosine", weight_decay=0.01)
    result = fit("erm", data, net="mlp", recipe=recipe, seed=3, **CPU)
    torch.manual_seed(derive(3, "net", 0))
    net = build("mlp", data.shape, 2)
    orders = [
        epoch_order(70, None, None, torch.Generator().manual_seed(derive(3, "order", 0, epoch))) for epoch in range(3)
    ]
    lrs = [0.01 * (1 + math.cos(math.pi * i / 9)) / 2 for i in range(9)]
    maker = lambda params: make_optimizer(params, recipe, torch.device("cpu"))  # noqa: E731
    train_by_hand(net, data.train.x, data.train.y, orders, 32, maker, lrs)
    for mine, theirs in zip(net.parameters(), result.classifier.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-6)


def test_an_epoch_visits_every_row_once_and_the_last_batch_is_smaller():
    seen = []

    @dataclass(frozen=True)
    class Note(Method):
        def stages(self, run):
            net = run.net()

            def loss(b):
                seen.append(b.idx.tolist())
                return ce(net(b.x), b.y)

            yield Stage("note", loss, run.optimizer(net), model=net, epochs=1)
            return net

    fit(Note(), tiny(n=70), recipe=FAST, **CPU)
    assert [len(rows) for rows in seen] == [32, 32, 6]
    assert sorted(sum(seen, [])) == list(range(70))


def test_weights_are_drawn_with_replacement_and_match_the_walk():
    weights = torch.tensor([0.0, 1.0, 3.0, 0.0, 6.0, 0.0])
    uniforms = torch.rand(6, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    drawn = epoch_order(6, weights, None, torch.Generator().manual_seed(5))
    assert drawn.tolist() == weighted_draws(weights.tolist(), uniforms.tolist())


def test_weighted_draws_have_the_right_frequencies():
    n, weights = 50_000, torch.tensor([1.0, 2.0, 7.0, 0.0]).repeat(12_500)
    drawn = epoch_order(n, weights, None, torch.Generator().manual_seed(0)) % 4
    for kind, p in enumerate((0.1, 0.2, 0.7, 0.0)):
        error = 4 * math.sqrt(p * (1 - p) / n)
        assert abs(float((drawn == kind).float().mean()) - p) <= error


def test_rows_may_repeat_and_are_visited_as_often_as_they_are_listed():
    rows = torch.tensor([4, 4, 4, 9])
    assert sorted(epoch_order(100, None, rows, torch.Generator()).tolist()) == [4, 4, 4, 9]


def test_lengths():
    stage = Stage("s", ce, torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1), nn.Identity())
    assert stage_length(stage, Recipe(epochs=2), 10) == 20
    assert stage_length(stage, Recipe(epochs=2, iterations=7), 10) == 7
    assert stage_length(replace(stage, epochs=0.5), Recipe(iterations=7), 10) == 5
    assert stage_length(replace(stage, iterations=3), Recipe(epochs=2), 10) == 3
    assert batch_sizes(33, Recipe(batch_size=32)) == [32]  # a batch of one row cannot train BatchNorm
    assert batch_sizes(1, Recipe(batch_size=32)) == [1]


def test_schedules_by_hand():
    step = schedule(Recipe(schedule="step", step_every=2, gamma=0.5), 3, 15)
    assert step.tolist() == [1.0] * 6 + [0.5] * 6 + [0.25] * 3
    once = Recipe(schedule="step", step_every=1, fall_after=5, gamma=0.5)
    assert schedule(once, 2, 12).tolist() == [1.0] * 5 + [0.5] * 7  # the sixth step is the first that is smaller
    halves = [*schedule(once, 2, 6, (0, 0.5)), *schedule(once, 2, 6, (0.5, 1))]
    assert halves == schedule(once, 2, 12).tolist()  # of a training that is cut into stages, the first alone
    assert schedule(replace(once, schedule="constant"), 2, 12).tolist() == [1.0] * 12
    cosine = schedule(Recipe(schedule="cosine"), 1, 4)
    assert cosine == pytest.approx([1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2])
    warm = schedule(Recipe(warmup=2), 2, 6)
    assert warm.tolist() == [0.25, 0.5, 0.75, 1, 1, 1]
    whole = schedule(Recipe(schedule="linear"), 5, 10)
    parts = [*schedule(Recipe(schedule="linear"), 5, 5, (0, 0.5)), *schedule(Recipe(schedule="linear"), 5, 5, (0.5, 1))]
    assert parts == pytest.approx(whole.tolist())


def test_several_updates_of_a_batch_see_one_another():
    """The second loss must be computed after the first update, not beside it."""

    @dataclass(frozen=True)
    class Two(Method):
        def stages(self, run):
            net = run.net()
            first, second = run.keep(nn.Linear(1, 1, bias=False)), run.keep(nn.Linear(1, 1, bias=False))
            nn.init.zeros_(first.weight), nn.init.zeros_(second.weight)
            opts = [torch.optim.SGD(m.parameters(), 1.0) for m in (first, second)]
            losses = [lambda b: -first.weight.sum(), lambda b: -(first.weight.detach() * second.weight).sum()]
            yield Stage("two", losses, opts, model=net, iterations=1)
            Two.values = first.weight.item(), second.weight.item()
            return net

    fit(Two(), tiny(), recipe=replace(FAST, schedule="constant"), **CPU)
    assert Two.values == (1.0, 1.0)  # the second gradient is the updated first weight, 1, not 0


def test_what_the_optimizer_does_not_hold_is_frozen_and_in_evaluation_mode():
    @dataclass(frozen=True)
    class Half(Method):
        def stages(self, run):
            frozen, trained = run.net(), run.net()
            before = {k: v.clone() for k, v in frozen.state_dict().items()}
            modes = []

            def loss(b):
                modes.append((frozen.training, trained.training))
                return ce(trained(b.x) + frozen(b.x), b.y)

            yield Stage("half", loss, run.optimizer(trained), model=trained)
            Half.untouched = all(torch.equal(before[k], v) for k, v in frozen.state_dict().items())
            Half.grads = [p.grad for p in frozen.parameters()]
            Half.modes = set(modes)
            return trained

    fit(Half(), pictures(), net="simconv1", **CPU)
    assert Half.untouched
    assert Half.grads == [None] * len(Half.grads)
    assert Half.modes == {(False, True)}


def test_a_stage_can_ask_for_training_mode_without_training():
    @dataclass(frozen=True)
    class Drifts(Method):
        def stages(self, run):
            frozen, trained = run.net(), run.net()
            before = [b.clone() for b in frozen.buffers()]
            loss = lambda b: ce(trained(b.x) + frozen(b.x), b.y)  # noqa: E731
            yield Stage("drifts", loss, run.optimizer(trained), model=trained, in_training_mode=[frozen])
            Drifts.moved = [not torch.equal(a, b) for a, b in zip(before, frozen.buffers(), strict=True)]
            return trained

    fit(Drifts(), pictures(), net="simconv1", **CPU)
    assert Drifts.moved and all(Drifts.moved)  # BatchNorm's statistics follow the batches


def test_the_gradient_is_clipped_to_its_largest_norm():
    recipe = Recipe("sgd", 1.0, momentum=0.0, batch_size=200, iterations=1)
    start, plain, clipped = (
        torch.nn.utils.parameters_to_vector(fit("erm", tiny(), net="mlp", recipe=r, **CPU).classifier.parameters())
        for r in (replace(recipe, lr=0.0), recipe, replace(recipe, clip_norm=0.01))
    )
    assert (plain - start).norm() > 0.02, "the gradient is small anyway: the test shows nothing"
    assert (clipped - start).norm().item() == pytest.approx(0.01, rel=1e-3)
    assert torch.cosine_similarity(plain - start, clipped - start, dim=0) > 0.999


def test_an_unkept_parameter_is_an_error_because_no_checkpoint_would_hold_it():
    @dataclass(frozen=True)
    class Forgets(Method):
        def stages(self, run):
            net, extra = run.net(), nn.Linear(1, 1)
            yield Stage("forgets", lambda b: extra.weight.sum(), torch.optim.SGD(extra.parameters(), 0.1), model=net)
            return net

    with pytest.raises(UserError, match="run.keep"):
        fit(Forgets(), tiny(), **CPU)


def test_until_training_accuracy():
    result = fit(
        "erm", tiny(), net="mlp", recipe=Recipe("adam", 0.01, epochs=200, until_accuracy=100, batch_size=32), **CPU
    )
    accuracies = [row["train_accuracy"] for row in result.history]
    assert accuracies[-1] == 100 and len(accuracies) < 200
    assert all(a < 100 for a in accuracies[:-1])


# Bias labels


def test_a_method_that_does_not_ask_cannot_reach_bias_labels():
    data = replace(tiny(), train=replace(tiny().train, names=[f"water-{i}" for i in range(200)]))
    fit(Peek(), data, **CPU)
    assert Peek.seen and all(a is None for a in Peek.seen)
    run = Peek.run
    assert run.data.train.a is None and run.data.train.names is None and run.data.val.a is None
    assert run.data.test is None
    secret = [data.train.a, data.val.a, data.test.a]
    reached = list(reachable(run))
    assert not any(thing is s for thing in reached for s in secret)
    fit(PeekWithLabels(), data, **CPU)
    assert all(a is not None and a.shape[1] == 1 for a in Peek.seen)
    assert Peek.run.data.test is None


def reachable(root):
    """Every object that attribute access and containers lead to from the run."""
    stack, seen = [root], set()
    while stack:
        thing = stack.pop()
        if id(thing) in seen or isinstance(thing, type):
            continue
        seen.add(id(thing))
        yield thing
        if isinstance(thing, dict):
            stack += thing.values()
        elif isinstance(thing, (list, tuple)):
            stack += thing
        elif hasattr(thing, "__dict__"):
            stack += vars(thing).values()
        if callable(thing) and getattr(thing, "__closure__", None):
            stack += [cell.cell_contents for cell in thing.__closure__]


def test_selection_by_groups_is_refused_to_a_blind_method():
    with pytest.raises(UserError, match="may not see"):
        fit("erm", tiny(), recipe=replace(FAST, selection="val_worst_group"), **CPU)


def test_a_method_that_needs_labels_says_which_do_not():
    data = tiny()
    blind = replace(data, train=data.train.blinded(), val=data.val.blinded(), test=data.test.blinded(), attributes=())
    with pytest.raises(UserError, match="these do not: erm"):
        fit(PeekWithLabels(), blind, **CPU)


def test_a_validation_split_that_is_missing_is_not_called_missing_labels():
    with pytest.raises(
        UserError, match="dfr needs the bias labels of validation samples and toy has no validation split"
    ):
        fit("dfr", replace(tiny(), val=None), **CPU)


def test_data_without_attributes_trains_and_has_an_average():
    data = tiny()
    blind = replace(data, train=data.train.blinded(), val=data.val.blinded(), test=data.test.blinded())
    scores = fit("erm", blind, **CPU).scores
    assert 0 < scores["average"] <= 100
    assert scores["worst_group"] is None


# Selection


@pytest.mark.parametrize("rule", ["val_accuracy", "val_loss"])
def test_selection_keeps_the_best_epoch_and_never_looks_at_the_test_split(rule):
    data = tiny(n=60)
    # Labels of the validation split are random, so that the best epoch is not the last.
    val = replace(data.val, y=torch.randint(2, data.val.y.shape))
    recipe = replace(FAST, selection=rule, epochs=12, lr=0.03)
    result = fit("erm", replace(data, val=val), net="mlp", recipe=recipe, **CPU)
    worse_test = replace(data, val=val, test=replace(data.test, y=1 - data.test.y))
    again = fit("erm", worse_test, net="mlp", recipe=recipe, **CPU)
    assert same_weights(result.classifier, again.classifier)
    sign = 1 if rule == "val_accuracy" else -1
    best = max(result.history, key=lambda row: sign * row[rule])
    assert best["epoch"] < 12, "the best epoch is the last: the test shows nothing"
    stopped = fit(
        "erm", replace(data, val=val), net="mlp", recipe=replace(recipe, selection="last", epochs=best["epoch"]), **CPU
    )
    assert same_weights(result.classifier, stopped.classifier)
    assert result.selection == rule


def test_a_validation_loss_that_is_no_number_picks_nothing(capsys):
    """One row whose output overflows: the first epoch must not stay the best for ever."""
    data = tiny()
    broken = replace(data, val=replace(data.val, x=torch.cat([torch.full_like(data.val.x[:1], 3e38), data.val.x[1:]])))
    chosen, last = (
        fit("erm", broken, net="mlp", recipe=replace(FAST, selection=rule), **CPU) for rule in ("val_loss", "last")
    )
    assert not any(math.isfinite(row["val_loss"]) for row in chosen.history)
    assert same_weights(chosen.classifier, last.classifier)
    assert "recipe.selection = val_loss picked nothing" in capsys.readouterr().err


def test_selection_by_the_worst_validation_group_keeps_its_best_epoch_and_says_which_labels_it_used():
    recipe = replace(FAST, selection="val_worst_group", epochs=10, lr=0.1)
    data = tiny(n=800, rho=0.3)  # enough rows in every validation group
    result = fit("jtt", data, net="mlp", recipe=recipe, **CPU)
    seen = [row["val_worst_group"] for row in result.history if row["stage"] == "upsampled"]
    assert len(seen) == 10 and len(set(seen)) > 1, "all epochs alike: the test shows nothing"
    assert spurless.evaluate(result.classifier, data, "val", "cpu")["worst_group"] == max(seen)
    assert result.labels_used == "validation"
    assert max(seen) > seen[-1], "the best epoch is the last: the test shows nothing"
    assert fit("jtt", data, net="mlp", recipe=replace(recipe, selection="last"), **CPU).labels_used == "none"


# The same bits


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not():
    runs = [fit("erm", pictures(), net="simconv1", seed=seed, **CPU).classifier for seed in (1, 1, 2)]
    assert same_weights(runs[0], runs[1])
    assert not same_weights(runs[0], runs[2])


def test_a_seed_of_numpy_is_that_number_and_what_is_none_is_refused(tmp_path):
    first = fit("erm", tiny(), net="mlp", seed=3, **CPU)
    again = fit("erm", tiny(), net="mlp", seed=np.int64(3), out=tmp_path / "run", **CPU)
    assert same_weights(first.classifier, again.classifier) and type(again.seed) is int
    for wrong in (3.0, "3", None):
        with pytest.raises(UserError, match="it takes a whole number"):
            fit("erm", tiny(), net="mlp", seed=wrong, **CPU)


class Untraceable(nn.Module):
    """Looks at a value, so that only running it shows which layer is its head."""

    def __init__(self, inputs, classes):
        super().__init__()
        self.first, self.last = nn.Linear(inputs, 8), nn.Linear(8, classes)

    def forward(self, x):
        return self.last(torch.relu(self.first(x if float(x.sum()) < 1e9 else -x)))


@pytest.mark.parametrize("kind", [torch.uint8, torch.float32])
def test_a_model_says_whether_it_was_shown_bytes(tmp_path, kind):
    data = pictures(n=16)
    splits = {name: replace(split, x=split.x.to(kind)) for name, split in data.splits.items()}
    fit("erm", replace(data, **splits), net="linear", out=tmp_path, **CPU)
    assert header(tmp_path / "model.safetensors")["bytes"] == (kind == torch.uint8)


def test_a_module_that_cannot_be_traced_is_found_again(tmp_path):
    data = tiny()
    (inputs,) = data.shape
    made = fit("erm", data, net=Untraceable(inputs, 2), out=tmp_path, **CPU)
    again = load_run(tmp_path, net=Untraceable(inputs, 2), device="cpu")
    assert same_weights(made.classifier, again.classifier)


def test_what_is_no_network_is_said_to_be_none():
    with pytest.raises(UserError, match="3 is no network: give a name"):
        fit("erm", tiny(), net=3, **CPU)


def test_fit_leaves_the_callers_random_numbers_alone():
    torch.manual_seed(9)
    want = torch.rand(3)
    torch.manual_seed(9)
    fit("erm", tiny(), **CPU)
    assert torch.equal(torch.rand(3), want)


def test_rows_decoded_on_demand_train_to_the_same_bits():
    data = pictures()

    class OnDemand:
        def __init__(self, x):
            self.x, self.shape, self.dtype = x, tuple(x.shape), x.dtype

        def __len__(self):
            return len(self.x)

        def __getitem__(self, idx):
            return self.x[idx]

    lazy = replace(data, **{k: replace(s, x=OnDemand(s.x)) for k, s in data.splits.items()})
    a, b = fit("erm", data, net="simconv1", **CPU), fit("erm", lazy, net="simconv1", **CPU)
    assert same_weights(a.classifier, b.classifier)
    assert a.scores == b.scores


@pytest.mark.parametrize("network", ["simconv1", "mlp"])
def test_inputs_prepared_many_batches_ahead_are_the_same(network, monkeypatch):
    data, recipe = pictures(n=70), replace(pictures().recipe, augment="pgd_digits", epochs=3)
    now = fit("erm", data, net=network, recipe=recipe, **CPU)
    monkeypatch.setattr(Steps, "_ahead", lambda self, size: 3)  # 5 steps an epoch: the last stretch is not full
    ahead = fit("erm", data, net=network, recipe=recipe, **CPU)
    assert same_weights(now.classifier, ahead.classifier)


def test_an_error_while_fetching_reaches_the_training_thread():
    class Broken:
        shape, dtype = (4, 1), torch.uint8

        def __getitem__(self, idx):
            raise UserError("row 3 is broken")

    split = Split(Broken(), torch.zeros(4, dtype=torch.long))
    with pytest.raises(UserError, match="row 3"):
        list(fetch_ahead(split, torch.arange(4), 2, ahead=2))


def test_a_streamed_batch_is_the_batch_of_the_order():
    split = Split(torch.arange(10)[:, None], torch.zeros(10, dtype=torch.long))
    streamed = Streamed(split, torch.device("cpu"))
    order = torch.tensor([3, 1, 4, 0, 5])
    streamed.start(order, 2)
    for part in order.split(2):
        streamed.advance(len(part))
        assert streamed.take(part)[:, 0].tolist() == part.tolist()


# Folders


def test_a_finished_folder_returns_its_result_and_other_settings_are_refused(tmp_path):
    first = fit("erm", tiny(), net="mlp", out=tmp_path / "run", **CPU)
    again = fit("erm", tiny(), net="mlp", out=tmp_path / "run", **CPU)
    assert again.scores == first.scores and again.seconds == first.seconds
    assert same_weights(first.classifier, again.classifier)
    with pytest.raises(UserError, match=r"recipe\.epochs: 3.* there, 4.* now"):
        fit("erm", tiny(), net="mlp", recipe=replace(FAST, epochs=4), out=tmp_path / "run", **CPU)
    with pytest.raises(UserError, match="fingerprint"):
        fit("erm", tiny(seed=1), net="mlp", out=tmp_path / "run", **CPU)
    with pytest.raises(UserError, match="seed: 0 there, 1 now"):
        fit("erm", tiny(), net="mlp", seed=1, out=tmp_path / "run", **CPU)


def test_a_run_that_was_saved_before_a_setting_was_there_is_still_the_same_run(tmp_path):
    """A setting that came later is None by default, which is not written."""
    fit("erm", tiny(), net="mlp", out=tmp_path / "run", **CPU)
    assert "fall_after" not in (tmp_path / "run" / "settings.toml").read_text()
    with pytest.raises(UserError, match="recipe.fall_after: None there, 9 now"):
        fit("erm", tiny(), net="mlp", recipe=replace(FAST, fall_after=9), out=tmp_path / "run", **CPU)


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="not empty"):
        fit("erm", tiny(), out=tmp_path, **CPU)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_settings_of_another_program_are_refused_like_those_of_another_run(tmp_path):
    (tmp_path / "settings.toml").write_text('method = "fast"\ndata = 3\n')
    with pytest.raises(UserError, match="holds a run with other settings"):
        fit("erm", tiny(), out=tmp_path, **CPU)


@pytest.mark.parametrize("method", ["avp", {"name": "ga", "mining_epochs": 2}], ids=["avp", "ga"])
def test_a_result_that_was_removed_is_made_again_with_its_whole_history(tmp_path, method):
    """Of a stage that was cut into many only the last checkpoint is left by then."""

    def told():
        found = fit(method, tiny(), net="mlp", out=tmp_path / "run", **CPU)
        return found.scores, [{k: v for k, v in row.items() if k != "seconds"} for row in found.history]

    first = told()
    (tmp_path / "run" / "result.json").unlink()
    assert told() == first


def test_a_full_disk_is_an_error_of_the_disk_and_the_run_goes_on_when_there_is_room(tmp_path, monkeypatch):
    whole = fit("erm", tiny(), net="mlp", out=tmp_path / "whole", **CPU)

    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.write_bytes", full)
        with pytest.raises(OSError, match="No space left on device.*stage-000") as caught:
            fit("erm", tiny(), net="mlp", out=tmp_path / "run", **CPU)
    assert caught.value.errno == errno.ENOSPC
    assert same_weights(fit("erm", tiny(), net="mlp", out=tmp_path / "run", **CPU).classifier, whole.classifier)


def test_what_a_run_folder_holds(tmp_path):
    result = fit("erm", tiny(), net="mlp", out=tmp_path / "run", **CPU)
    names = {p.name for p in (tmp_path / "run").iterdir()}
    assert names == {"settings.toml", "history.jsonl", "stage-000.safetensors", "model.safetensors", "result.json"}
    row = json.loads((tmp_path / "run" / "result.json").read_text())
    wanted = "method data net seed status scores n selection labels_used seconds settings versions folder".split()
    assert all(key in row for key in wanted)
    assert [json.loads(line)["epoch"] for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()] == [
        1,
        2,
        3,
    ]
    loaded = load_run(tmp_path / "run", device="cpu")
    assert same_weights(loaded.classifier, result.classifier)


def test_a_users_own_module_is_found_again(tmp_path):
    module = OwnModule()
    result = fit("erm", tiny(), net=module, out=tmp_path / "run", **CPU)
    assert same_weights(load_run(tmp_path / "run", net=OwnModule(), device="cpu").classifier, result.classifier)
    with pytest.raises(UserError, match="of your own"):
        load_run(tmp_path / "run", device="cpu")
    changed = OwnModule()
    with pytest.raises(UserError, match=r"net\.weights"):
        fit("erm", tiny(), net=changed, out=tmp_path / "run", **CPU)


# Killed at any moment


def long_run(path):
    """A run with two networks, BatchNorm, dropout, momentum, selection and two stages, and many checkpoints."""
    torch.set_num_threads(1)
    recipe = replace(pictures().recipe, epochs=20, selection="val_loss", schedule="cosine")
    return fit("pgd", pictures(), net="simconv1", recipe=recipe, out=path, checkpoint_seconds=0.2, **CPU)


def test_a_run_killed_at_random_moments_ends_with_the_same_bits(tmp_path):
    # A server that has imported everything forks the runs: a kill then costs no new start of Python.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.train.test_engine", "torch._dynamo"])  # the latter: by the first optimiser

    def start(name):
        """The run, and the moment from which it really trains: how long its start takes depends on the machine."""
        history = tmp_path / name / "history.jsonl"
        before = history.stat().st_size if history.exists() else 0
        run = context.Process(target=long_run, args=(tmp_path / name,))
        run.start()
        while run.exitcode is None and not (history.exists() and history.stat().st_size > before):
            time.sleep(0.002)
        return run, time.monotonic()

    run, began = start("whole")
    run.join(120)
    length = time.monotonic() - began
    dice, kills = random.Random(0), 0
    for _ in range(40):
        run, _ = start("killed")
        run.join(length * dice.uniform(0, 0.15) if kills < 8 else 120)
        if run.exitcode is None:
            os.kill(run.pid, signal.SIGKILL)
            kills += 1
        run.join()
        if (tmp_path / "killed" / "result.json").exists():
            break
    assert kills >= 3, f"only {kills} kills hit: the run is too short to show anything"
    whole_run, killed_run = (load_run(tmp_path / name, device="cpu") for name in ("whole", "killed"))
    assert same_weights(whole_run.classifier, killed_run.classifier)
    assert whole_run.scores == killed_run.scores
    timeless = [
        [{k: v for k, v in row.items() if k != "seconds"} for row in r.history] for r in (whole_run, killed_run)
    ]
    assert timeless[0] == timeless[1]


def test_a_torn_history_line_is_mended(tmp_path):
    recipe = replace(FAST, epochs=4)
    whole = fit("erm", tiny(), net="mlp", recipe=recipe, out=tmp_path / "whole", **CPU)
    with pytest.raises(Interrupted):
        fit("erm", tiny(), net="mlp", recipe=recipe, out=tmp_path / "torn", device="cpu", progress=StopAt(12))
    with (tmp_path / "torn" / "history.jsonl").open("a") as file:
        file.write('{"stage": "erm", "stage_in')
    with pytest.raises(Interrupted):  # once more: what was written after the torn line must not be lost with it
        fit("erm", tiny(), net="mlp", recipe=recipe, out=tmp_path / "torn", device="cpu", progress=StopAt(12))
    torn = fit("erm", tiny(), net="mlp", recipe=recipe, out=tmp_path / "torn", **CPU)
    assert same_weights(whole.classifier, torn.classifier)
    written = [json.loads(line) for line in (tmp_path / "torn" / "history.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in torn.history] == [row["epoch"] for row in written] == [1, 2, 3, 4]


def test_two_processes_do_not_train_one_run(tmp_path):
    class Second:
        """Tries to train the same run while the first one does."""

        said = ""

        def __enter__(self):
            return self

        def __exit__(self, *error): ...

        def __call__(self, where):
            if not self.said:
                with pytest.raises(UserError) as refused:
                    fit("erm", tiny(), net="mlp", recipe=FAST, out=tmp_path / "run", **CPU)
                Second.said = str(refused.value)

    fit("erm", tiny(), net="mlp", recipe=FAST, out=tmp_path / "run", device="cpu", progress=Second())
    assert "is being trained by another process" in Second.said
    fit("erm", tiny(), net="mlp", recipe=FAST, out=tmp_path / "run", **CPU)  # it has ended: its result


@pytest.mark.parametrize("step", [1, 5, 6, 7, 19, 20])  # 7 steps an epoch, 21 in all: the flag is seen one step later
@pytest.mark.parametrize("selection", ["last", "val_loss"])
def test_ctrl_c_saves_the_place_and_the_run_goes_on_to_the_same_bits(tmp_path, step, selection):
    before, recipe = signal.getsignal(signal.SIGINT), replace(FAST, selection=selection, lr=0.05)
    whole = fit("lff", tiny(), net="mlp", recipe=recipe, out=tmp_path / "whole", **CPU)
    with pytest.raises(KeyboardInterrupt, match="re-run the command to resume"):
        fit("lff", tiny(), net="mlp", recipe=recipe, out=tmp_path / "run", device="cpu", progress=StopAt(step))
    assert (tmp_path / "run" / "stage-000-part.safetensors").exists()
    resumed = fit("lff", tiny(), net="mlp", recipe=recipe, out=tmp_path / "run", **CPU)
    assert same_weights(whole.classifier, resumed.classifier)
    assert timeless(whole.history) == timeless(resumed.history)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_run_stopped_at_the_end_of_the_epoch_that_ended_it_does_not_train_on(tmp_path):
    recipe = Recipe("adam", 0.01, epochs=200, until_accuracy=100, batch_size=32)
    whole = fit("erm", tiny(), net="mlp", recipe=recipe, **CPU)
    last = whole.history[-1]["step"]
    with pytest.raises(Interrupted):
        fit("erm", tiny(), net="mlp", recipe=recipe, out=tmp_path / "run", device="cpu", progress=StopAt(last - 1))
    resumed = fit("erm", tiny(), net="mlp", recipe=recipe, out=tmp_path / "run", **CPU)
    assert resumed.history[-1]["step"] == last
    assert same_weights(whole.classifier, resumed.classifier)


# Divergence


@pytest.mark.parametrize(("lr", "what"), [(1e30, "loss"), (1e38, "weight|loss")])
def test_divergence_is_a_status_with_its_place(tmp_path, lr, what):
    recipe = Recipe("sgd", lr, batch_size=32, epochs=3)
    result = fit("erm", tiny(), net="mlp", recipe=recipe, out=tmp_path / "run", **CPU)
    assert result.status == "diverged" and result.scores is None and result.classifier is None
    assert "stage 'erm'" in result.error and "step" in result.error and "learning rate" in result.error
    assert any(word in result.error.lower() for word in what.split("|"))
    assert fit("erm", tiny(), net="mlp", recipe=recipe, out=tmp_path / "run", **CPU).status == "diverged"


@pytest.mark.parametrize("selection", ["last", "val_loss"])
def test_a_run_that_diverges_between_two_looks_at_the_test_split_is_said_to_have(selection):
    recipe = Recipe("sgd", 1e20, batch_size=16, epochs=3, test_every=3, selection=selection)
    result = fit("erm", pictures(), net="conv3", recipe=recipe, **CPU)
    assert result.status == "diverged" and "not finite" in result.error


def test_the_step_where_it_diverged_is_the_first_bad_one():
    @dataclass(frozen=True)
    class Breaks(Method):
        def stages(self, run):
            net = run.net()
            count = run.keep(nn.BatchNorm1d(1))  # any buffer that counts

            def loss(b):
                count.running_mean += 1
                return ce(net(b.x), b.y) / (count.running_mean != 5).float()[0]

            yield Stage("breaks", loss, run.optimizer(net), model=net)
            return net

    result = fit(Breaks(), tiny(), **CPU)
    assert "step 4," in result.error  # the fifth step, counted from 0


def test_a_loss_that_is_not_one_number_is_explained():
    @dataclass(frozen=True)
    class Rows(Method):
        def stages(self, run):
            net = run.net()
            yield Stage("rows", lambda b: net(b.x).sum(1), run.optimizer(net), model=net)
            return net

    with pytest.raises(UserError, match="take the mean"):
        fit(Rows(), tiny(), **CPU)


@pytest.mark.parametrize("attributes", [True, False])
def test_a_class_that_the_network_which_mines_has_not_learnt_is_named(tmp_path, attributes):
    @dataclass(frozen=True)
    class Mines(Method):
        whole: bool = True

        def stages(self, run):
            net, y = run.net(), run.data.train.y
            yield Stage("mines", lambda b: ce(net(b.x), b.y), run.optimizer(net), model=net)
            run.report_conflicting((y == 1) if self.whole else (torch.arange(len(y)) % 3 == 0))
            return net

    data = tiny()
    if not attributes:  # it is noticed without bias labels
        bare = {name: replace(split, a=None) for name, split in data.splits.items()}
        data = replace(data, **bare, attributes=(), values=())
    lost = fit(Mines(), data, out=tmp_path / "run", **CPU)
    assert bool(lost.mining) == attributes
    (note,) = lost.notes
    assert note.startswith(
        f"{lost.method} took nearly all training samples of the class '{data.classes[1]}' for conflicting"
    )
    assert load_run(tmp_path / "run").notes == lost.notes
    assert fit(Mines(whole=False), data, **CPU).notes == []


# Public names


def test_the_public_names_are_there():
    assert sorted(spurless.__all__) == dir(spurless)
    for name in spurless.__all__:
        assert getattr(spurless, name) is not None
    with pytest.raises(AttributeError):
        spurless.nothing  # noqa: B018


def test_looks_at_the_test_split_are_reported_and_pick_nothing(tmp_path):
    data, recipe = pictures(n=70), Recipe("sgd", 0.05, batch_size=16, epochs=3)
    plain = fit("pgd", data, net="simconv1", recipe=recipe, **CPU)
    looked = fit("pgd", data, net="simconv1", recipe=replace(recipe, test_every=2), **CPU)
    assert same_weights(plain.classifier, looked.classifier)
    assert plain.scores == looked.scores and plain.test_selected is None
    # 5 steps an epoch, 15 steps of the stage that is selected: looks at 2, 4, ..., 14 and at the end.
    assert looked.test_selected["looks"] == 8
    assert looked.test_selected["unbiased"] >= looked.scores["unbiased"]
    with pytest.raises(KeyboardInterrupt):
        fit(
            "pgd",
            data,
            net="simconv1",
            recipe=replace(recipe, test_every=2),
            out=tmp_path,
            device="cpu",
            progress=StopAt(24),
        )
    again = fit("pgd", data, net="simconv1", recipe=replace(recipe, test_every=2), out=tmp_path, **CPU)
    assert again.test_selected == looked.test_selected


CHANGED = (  # the network after its last stage
    {"name": "dfr"},
    {"name": "magnitude_prune", "finetune": 0, "keep": 0.1},
    {"name": "avp", "frozen": True, "share": 0.2, "chance": 1.0},
)


@pytest.mark.parametrize("method", CHANGED, ids=lambda m: m["name"])
def test_looks_at_a_network_that_is_changed_afterwards_do_not_count(method, tmp_path):
    data, recipe = tiny(n=300), Recipe("adam", 0.01, batch_size=32, epochs=3, test_every=4)
    result = fit(method, data, net="mlp", recipe=recipe, **CPU)
    steps = result.history[-1]["step"]
    assert result.test_selected == {"unbiased": result.scores["unbiased"], "step": steps, "looks": 1}
    with pytest.raises(Interrupted):
        fit(method, data, net="mlp", recipe=recipe, out=tmp_path, device="cpu", progress=StopAt(6))
    assert fit(method, data, net="mlp", recipe=recipe, out=tmp_path, **CPU).test_selected == result.test_selected
    (tmp_path / "result.json").unlink()  # its stage is loaded now
    assert fit(method, data, net="mlp", recipe=recipe, out=tmp_path, **CPU).test_selected == result.test_selected


@dataclass(frozen=True)
class Unlearns(Method):
    """In its second half it learns the opposite of every label."""

    def stages(self, run):
        net = run.net()
        loss = lambda b: ce(net(b.x), torch.where(b.t < 0.5, b.y, 1 - b.y))  # noqa: E731
        yield Stage("unlearns", loss, run.optimizer(net), model=net, select=True)
        return net


def test_the_network_that_is_kept_is_looked_at_though_no_step_was_due():
    recipe = Recipe("adam", 0.01, batch_size=32, epochs=8, test_every=1000)
    last, kept = (
        fit(Unlearns(), tiny(), net="mlp", recipe=replace(recipe, selection=rule), **CPU)
        for rule in ("last", "val_loss")
    )
    assert last.test_selected["unbiased"] == last.scores["unbiased"] < kept.scores["unbiased"] - 10
    assert kept.test_selected == {"unbiased": kept.scores["unbiased"], "step": 56, "looks": 2}
    untrained = fit("erm", tiny(), net="mlp", recipe=replace(recipe, epochs=0), **CPU)
    assert untrained.test_selected == {"unbiased": untrained.scores["unbiased"], "step": 0, "looks": 1}


def test_every_stage_gives_back_what_its_graphs_hold(monkeypatch):
    """Thirty stages of mining once filled a GPU: each had memory of its own for its graphs."""
    left, close = [], Steps.close

    def after(self):
        self.graphs["a shape", 1], self.preparing = object(), object()
        close(self)
        left.append((self.graphs, self.preparing))

    monkeypatch.setattr(Steps, "close", after)
    fit("jtt", tiny(), net="mlp", recipe=Recipe(epochs=2), device="cpu", progress=False)
    assert left == [({}, None)] * 2


@pytest.mark.parametrize(("data", "net", "lr"), [(tiny(), "mlp", 1e25), (pictures(), "simconv1", 1e8)])
def test_a_network_that_is_broken_at_the_end_has_diverged(data, net, lr):
    """Its losses and weights are finite: the blow-up is in the last step."""
    recipe = Recipe("sgd", lr, momentum=0, batch_size=1000, epochs=1)
    result = fit("erm", data, net=net, recipe=recipe, device="cpu", progress=False)
    assert (result.status, result.scores, result.classifier) == ("diverged", None, None)
    assert "The output of the trained network is not finite in stage 'erm', step 1" in result.error


def test_a_network_whose_batchnorm_has_seen_the_infinite_has_diverged(monkeypatch):
    """It gives every row the same finite answer."""
    kept = spurless.train.session.add_scores

    def after(result, loop, data):
        next(m for m in loop.net.modules() if isinstance(m, nn.BatchNorm2d)).running_var[0] = math.inf
        kept(result, loop, data)

    monkeypatch.setattr(spurless.train.session, "add_scores", after)
    result = fit("erm", pictures(), net="simconv1", recipe=Recipe(epochs=1), device="cpu", progress=False)
    assert result.status == "diverged" and "The variance that 'encoder.1' has seen is not finite" in result.error


# Groups without samples


def without(split, dropped):
    """The split without the samples of a mask."""
    return replace(split, x=split.x[~dropped], y=split.y[~dropped], a=split.a[~dropped])


def test_groups_without_test_samples_are_in_the_scores_and_the_notes(tmp_path):
    data = tiny(n=400, rho=0.3)
    one, (values,) = data.classes[1], data.values
    lost = (data.test.y == 1) & (data.test.a[:, 0] == 0)
    result = fit("erm", replace(data, test=without(data.test, lost)), net="mlp", out=tmp_path / "run", **CPU)
    gone = {"label": one, "attribute": data.attributes[0], "value": values[0], "n": 0}
    assert result.scores["small_groups"] == [gone] and result.scores["groups_total"] == 4
    (note,) = [note for note in result.notes if "3 of 4 groups" in note]
    assert f"Without test samples: {one}, {data.attributes[0]}={values[0]}." in note
    assert load_run(tmp_path / "run").notes == result.notes
    # A group that no split has does not exist.
    never = {name: without(split, (split.y == 1) & (split.a[:, 0] == 0)) for name, split in data.splits.items()}
    whole = fit("erm", replace(data, aligned=(), **never), net="mlp", **CPU)
    assert whole.scores["small_groups"] == [] and whole.scores["groups_total"] == 3 and whole.notes == list(data.notes)


def test_a_class_without_test_samples_leaves_no_worst_group_and_no_unbiased_accuracy():
    data = tiny(n=200)
    data = replace(data, test=without(data.test, data.test.y == 1))
    result = fit("erm", data, net="mlp", recipe=replace(FAST, test_every=5), **CPU)
    assert (result.scores["unbiased"], result.scores["worst_group"], result.test_selected) == (None, None, None)
    assert result.scores["missing_classes"] == [data.classes[1]] and result.scores["average"] is not None
    assert any(f"No test samples of the class {data.classes[1]}:" in note for note in result.notes)


def test_selection_by_validation_groups_goes_on_without_a_class_and_says_by_what():
    data = tiny(n=800, rho=0.3)
    data = replace(data, val=without(data.val, data.val.y == 1))
    result = fit("jtt", data, net="mlp", recipe=replace(FAST, selection="val_worst_group", epochs=4, lr=0.1), **CPU)
    seen = [row["val_worst_group"] for row in result.history if row["stage"] == "upsampled"]
    groups = spurless.evaluate(result.classifier, data, "val", "cpu")["groups"]
    assert min(g["accuracy"] for g in groups) == pytest.approx(max(seen))
    assert any("picked by validation groups. No validation samples of the class" in note for note in result.notes)
