"""Runs side by side end with the numbers that they have alone; a stage in common is trained once."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest
import torch

from spurless import fit
from spurless.methods.pgd import PGD
from spurless.train import lanes, networks
from spurless.train.lanes import Job, run_lanes
from spurless.train.observe import Interrupted, Progress
from spurless.train.stage_loop import StageLoop
from tests.support.runs import same_weights
from tests.support.worlds import pictures

RECIPE = {"epochs": 2, "batch_size": 16}
METHODS = ("erm", "lff", "pgd", "jtt", "disent")


@pytest.fixture(scope="module")
def data():
    return pictures(n=70)


def job(method, data, seed=0, **more):
    arguments = {"method": method, "data": data, "net": "simconv1", "recipe": RECIPE, "seed": seed} | more
    return Job(f"{method}-{seed}", arguments)


def outcomes(jobs, lanes):
    return {job.key: found for job, found in run_lanes(iter(jobs), lanes, "cpu")}


def test_each_run_ends_as_it_would_alone(data):
    # simconv1 has dropout: a lane that drew from another's random numbers would end elsewhere.
    jobs = [job(method, data, seed) for method in METHODS for seed in (0, 1)]
    together = outcomes(jobs, lanes=4)
    assert sorted(together) == sorted(j.key for j in jobs)
    for one in jobs:
        alone = fit(**one.arguments, device="cpu", progress=False)
        assert same_weights(together[one.key].classifier, alone.classifier), one.key
        assert together[one.key].scores == alone.scores
        assert together[one.key].mining == alone.mining


def test_the_process_keeps_its_own_random_numbers(data):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    outcomes([job("erm", data), job("lff", data)], lanes=2)
    assert torch.equal(before, torch.get_rng_state())


def test_jobs_are_pulled_when_a_lane_is_free(data):
    pulled = []

    def jobs() -> Iterator[Job]:
        for seed in range(4):
            pulled.append(seed)
            yield job("erm", data, seed)

    first = next(run_lanes(jobs(), 2, "cpu"))
    assert first[0].key == "erm-0"
    assert pulled == [0, 1], "a job that no lane is free for must stay free for others"


def test_one_job_that_fails_does_not_stop_the_others(data):
    found = outcomes([job("erm", data), job("no_such_method", data), job("lff", data)], lanes=2)
    assert found["erm-0"].status == found["lff-0"].status == "done"
    assert "no_such_method" in str(found["no_such_method-0"])


def test_a_run_that_diverges_is_a_result(data):
    found = outcomes([job("erm", data, recipe=RECIPE | {"lr": 1e30, "optimizer": "sgd"}), job("erm", data, 1)], lanes=2)
    assert found["erm-0"].status == "diverged" and found["erm-1"].status == "done"


def test_an_interruption_saves_every_lane_and_each_goes_on(data, tmp_path):
    jobs = [job(m, data, out=tmp_path / m) for m in ("erm", "pgd", "lff")]

    def stop_soon(self, *_, done=[0], original=StageLoop._start_epoch):  # noqa: B006
        done[0] += 1
        if done[0] == 5:  # three lanes have begun, one is in its second epoch
            os.kill(os.getpid(), signal.SIGINT)
        return original(self)

    assert threading.current_thread() is threading.main_thread()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StageLoop, "_start_epoch", stop_soon)
        patch.setattr("spurless.train.lanes.TURN", 8)
        with pytest.raises(Interrupted):
            outcomes(jobs, lanes=3)
    kept = {p.parent.name for p in tmp_path.glob("*/stage-*")}
    assert kept == {"erm", "pgd", "lff"}, "each lane leaves a checkpoint"
    again = outcomes(jobs, lanes=3)
    for one in jobs:
        alone = fit(**one.arguments | {"out": None}, device="cpu", progress=False)
        assert same_weights(again[one.key].classifier, alone.classifier), one.key


def interrupt_the_third(monkeypatch):
    """A Ctrl-C while the third lane (seed 2) is in its second epoch."""
    told, original = [], StageLoop._start_epoch

    def start(self):
        if self.run.seed == 2 and self.epoch == 1 and not told:
            told.append(self)
            os.kill(os.getpid(), signal.SIGINT)
        return original(self)

    monkeypatch.setattr(StageLoop, "_start_epoch", start)


def test_an_interruption_while_lanes_are_tried_saves_every_lane(data, tmp_path, monkeypatch):
    long = RECIPE | {"epochs": 10_000}
    jobs = [job("erm", data, seed, recipe=long, out=tmp_path / str(seed)) for seed in range(4)]
    interrupt_the_third(monkeypatch)
    monkeypatch.setattr(lanes.Lanes, "may_gain", True)
    for name, value in {"TURN": 2, "GAIN": 0.0, "TRIAL": 0.02}.items():  # so that it comes to four lanes, and soon
        monkeypatch.setattr(lanes, name, value)
    with pytest.raises(Interrupted):
        outcomes(jobs, lanes=None)
    kept = {p.parent.name for p in tmp_path.glob("*/stage-*")}
    assert kept == {"0", "1", "2"}, "each lane that has begun leaves a checkpoint"


class Reached:
    """A stand-in for an event of the device."""

    def query(self):
        return True


def test_lanes_that_wait_for_the_device_are_saved_too(data, tmp_path, monkeypatch):
    """As on a GPU, where a lane lets others work before it looks at the epoch that ends."""

    def waits_before_each_step(self, original=StageLoop.__iter__):
        for place in original(self):
            yield place
            yield Progress(place.stage, place.step, place.total, pending=Reached())

    jobs = [job("erm", data, seed, out=tmp_path / str(seed)) for seed in range(3)]
    monkeypatch.setattr(StageLoop, "__iter__", waits_before_each_step)
    interrupt_the_third(monkeypatch)
    monkeypatch.setattr(lanes, "TURN", 1)
    with pytest.raises(Interrupted):
        outcomes(jobs, lanes=3)
    assert {p.parent.name for p in tmp_path.glob("*/stage-*")} == {"0", "1", "2"}


def test_a_lane_whose_first_steps_end_an_epoch_is_saved_too(data, tmp_path, monkeypatch):
    def waits_after_each_step(self, original=StageLoop.__iter__):
        for place in original(self):
            yield Progress(place.stage, place.step, place.total, pending=Reached())
            yield place

    monkeypatch.setattr(StageLoop, "__iter__", waits_after_each_step)
    held = lanes.Lanes(torch.device("cpu"), iter(()))
    lane = held.open(job("erm", data, out=tmp_path))
    held.advance(lane)
    assert lane.done == 0 and lane.pending
    lanes._save_the_others(held)
    assert (tmp_path / "stage-000-part.safetensors").exists()


def test_a_lane_that_was_opened_after_the_interruption_stops_too(data, tmp_path):
    recipe = RECIPE | {"epochs": 10_000}
    held = lanes.Lanes(torch.device("cpu"), iter(()))
    late = held.open(job("erm", data, recipe=recipe, out=tmp_path))
    held.advance(late)
    lanes._save_the_others(held)
    assert late.done < 100 and (tmp_path / "stage-000-part.safetensors").exists()


def test_a_lane_that_fails_when_it_should_be_saved_does_not_cost_the_others_their_place(data, tmp_path, monkeypatch):
    held = lanes.Lanes(torch.device("cpu"), iter(()))
    for seed in (0, 1):
        held.advance(held.open(job("erm", data, seed, out=tmp_path / str(seed))), 1)

    def save(self, original=StageLoop._save_part):
        if self.run.seed == 0:
            raise RuntimeError("no room on the disk")
        original(self)

    monkeypatch.setattr(StageLoop, "_save_part", save)
    lanes._save_the_others(held)
    assert {p.parent.name for p in tmp_path.glob("*/stage-*")} == {"1"}


# Stages in common


def trained(monkeypatch):
    """The names of the stages that are really trained, as they begin."""
    names, original = [], StageLoop.__iter__

    def noted(self):
        names.append(self.stage.name)
        yield from original(self)

    monkeypatch.setattr(StageLoop, "__iter__", noted)
    return names


def test_a_stage_in_common_is_trained_once_and_changes_nothing(data, tmp_path, monkeypatch):
    methods = [PGD(), PGD(norm="l1"), PGD(use="reweight")]
    alone = [fit(m, data, net="simconv1", recipe=RECIPE, device="cpu", progress=False) for m in methods]
    names = trained(monkeypatch)
    shared = [
        fit(m, data, net="simconv1", recipe=RECIPE, device="cpu", progress=False, stages=tmp_path) for m in methods
    ]
    assert names == ["biased", "debiased", "debiased", "debiased"]
    for one, other in zip(alone, shared, strict=True):
        assert same_weights(one.classifier, other.classifier)
        assert one.scores == other.scores
        assert [(r["stage"], r["epoch"], r["loss"]) for r in one.history] == [
            (r["stage"], r["epoch"], r["loss"]) for r in other.history
        ]
    assert not shared[0].history[0].get("shared") and shared[1].history[0]["shared"]


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"method": {"name": "pgd", "q": 0.5}},
        {"recipe": RECIPE | {"lr": 0.003}},
        {"recipe": RECIPE | {"epochs": 1}},
        {"net": "mlp"},
        {"data": "other rows"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_differs_is_trained_again(data, tmp_path, monkeypatch, change):
    first = {"method": "pgd", "data": data, "net": "simconv1", "recipe": RECIPE, "seed": 0}
    fit(**first, device="cpu", progress=False, stages=tmp_path)
    names = trained(monkeypatch)
    if "data" in change:
        change = {"data": pictures(n=71)}
    fit(**first | change, device="cpu", progress=False, stages=tmp_path)
    assert names == ["biased", "debiased"]


def test_other_weights_at_the_start_are_another_stage(data, tmp_path, monkeypatch):
    """By the same name a network may start elsewhere: a file of weights, or a default, has changed."""
    first = {"method": "pgd", "data": data, "net": "simconv1", "recipe": RECIPE}
    fit(**first, device="cpu", progress=False, stages=tmp_path)
    names, usual = trained(monkeypatch), networks.derive
    monkeypatch.setattr(networks, "derive", lambda seed, *what: usual(seed + (what[0] == "net"), *what))
    fit(**first, device="cpu", progress=False, stages=tmp_path)
    assert names == ["biased", "debiased"]


def test_stages_with_other_names_and_the_same_content_are_one(data, tmp_path, monkeypatch):
    names = trained(monkeypatch)
    for method in ("erm", {"name": "magnitude_prune", "finetune": 1}, "mrm"):
        fit(method, data, net="simconv1", recipe=RECIPE, device="cpu", progress=False, stages=tmp_path)
    assert names.count("erm") == 1 and "dense" not in names


@pytest.mark.parametrize("order", [("erm", "mrm"), ("mrm", "erm")], ids="-".join)
def test_looks_at_the_test_split_are_not_handed_on_with_a_stage(data, tmp_path, order):
    looking = RECIPE | {"test_every": 2}
    for method in order:
        alone = fit(method, data, net="simconv1", recipe=looking, device="cpu", progress=False)
        shared = fit(method, data, net="simconv1", recipe=looking, device="cpu", progress=False, stages=tmp_path)
        assert shared.test_selected == alone.test_selected is not None


def test_lanes_wait_for_the_one_that_trains_a_stage(data, tmp_path, monkeypatch):
    names = trained(monkeypatch)
    variants = {"a": PGD(), "b": PGD(norm="l1"), "c": PGD(use="reweight")}
    arguments = {"data": data, "net": "simconv1", "recipe": RECIPE, "stages": tmp_path}
    jobs = [Job(key, arguments | {"method": m}) for key, m in variants.items()]
    found = outcomes(jobs, lanes=3)
    assert names.count("biased") == 1 and names.count("debiased") == 3
    for key, method in variants.items():
        alone = fit(method, data, net="simconv1", recipe=RECIPE, device="cpu", progress=False)
        assert same_weights(found[key].classifier, alone.classifier), key


def test_a_stage_that_was_interrupted_is_free_for_others(data, tmp_path, monkeypatch):
    arguments = {"data": data, "net": "simconv1", "recipe": RECIPE, "device": "cpu", "stages": tmp_path}

    def fail(self, asked):
        raise RuntimeError("the machine stops here")

    with monkeypatch.context() as patch:
        patch.setattr(StageLoop, "_end_epoch", fail)
        with pytest.raises(RuntimeError):
            fit("pgd", progress=False, **arguments)
    assert fit("pgd", progress=False, **arguments).status == "done"


def test_a_run_that_took_a_stage_goes_on_from_its_folder(data, tmp_path):
    from tests.support.runs import StopAt

    arguments = {"data": data, "net": "simconv1", "recipe": RECIPE, "device": "cpu", "stages": tmp_path / "stages"}
    whole = fit("pgd", progress=False, **arguments)
    with pytest.raises(KeyboardInterrupt):
        fit("pgd", progress=StopAt(3), out=tmp_path / "run", **arguments)
    again = fit("pgd", progress=False, out=tmp_path / "run", **arguments)
    assert same_weights(whole.classifier, again.classifier)
    assert [r["loss"] for r in whole.history] == [r["loss"] for r in again.history]


@pytest.mark.parametrize("method", ["erm", "pgd"])  # shuffled, and drawn by odds
def test_an_order_that_is_drawn_early_is_that_of_its_epoch(data, monkeypatch, method):
    """As on a GPU, where the next epoch's is drawn before the one that ends is looked at."""
    recipe = RECIPE | {"epochs": 3}
    plain = fit(method, data, net="simconv1", recipe=recipe, device="cpu", progress=False)
    end, early = StageLoop._end_epoch, []

    def draws_first(self, asked):
        if self.step < self.total:
            early.append(self._order(self.step // len(self.sizes)))
        return end(self, asked)

    monkeypatch.setattr(StageLoop, "_end_epoch", draws_first)
    again = fit(method, data, net="simconv1", recipe=recipe, device="cpu", progress=False)
    assert len(early) >= 2 and not torch.equal(early[0], early[1])
    assert same_weights(plain.classifier, again.classifier)


@pytest.mark.parametrize(
    ("rates", "room", "jobs", "best", "opened"),
    [
        ({1: 1.0, 2: 1.9, 4: 3.0, 8: 3.05}, 16, 99, 4, 8),  # the last doubling brought too little
        ({1: 1.0, 2: 1.0}, 16, 99, 1, 2),  # no help: no third lane was opened
        ({1: 1.0, 2: 1.9, 4: 3.0}, 4, 99, 4, 4),  # eight would not fit
        ({1: 1.0, 2: 1.9}, 16, 3, 2, 3),  # there are no four
    ],
)
def test_lanes_are_opened_as_they_are_tried(monkeypatch, rates, room, jobs, best, opened):
    class Warm:
        waiting, pace, done = False, 1.0, 10**6

    held = lanes.Lanes(torch.device("cpu"), iter(()))
    monkeypatch.setattr(held, "has_room_for_as_many_again", lambda: 2 * len(held.lanes) <= room)
    monkeypatch.setattr(lanes, "_rate", lambda held, count: rates[count])

    def fill(count):
        held.lanes += [Warm() for _ in range(min(count, jobs) - len(held.lanes))]

    monkeypatch.setattr(held, "fill", fill)
    assert lanes.best_lanes(held) == best and len(held.lanes) == opened


def test_one_slow_reading_does_not_decide_how_many_lanes_there_are(monkeypatch):
    """The first evaluation of a process takes seconds; held for the lane's pace, it made two lanes look like a loss."""

    class Held:
        def __init__(self):
            self.lanes = []

        def has_room_for_as_many_again(self):
            return True

    class StandIn:
        pace, waiting, done = 0.0, False, 10**9

    alone = iter([1.0, 0.01])  # seconds a step of the first lane: an epoch ended in the first reading
    together = {1: 0.01, 2: 0.012, 4: 0.03}

    def seconds(held, chosen, at_least):
        if at_least < lanes.TRIAL:
            return [next(alone, 0.01)]
        return [together[len(chosen)]] * len(chosen)

    monkeypatch.setattr(lanes, "_seconds", seconds)
    held = Held()

    def fill(count):
        held.lanes += [StandIn() for _ in range(count - len(held.lanes))]

    held.fill = fill
    assert lanes.best_lanes(held) == 2
    assert [lane.pace for lane in held.lanes] == [0.01] * 4
