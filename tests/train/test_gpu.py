"""What only a CUDA device can show: the graph does what the eager step does."""

import itertools
import os
from dataclasses import dataclass, replace

import pytest
import torch

from spurless.core.method import Method, Stage
from spurless.core.recipe import Recipe
from spurless.methods import METHODS
from spurless.methods.parts.losses import ce
from spurless.train.fit import fit
from spurless.train.observe import Interrupted
from tests.support.runs import StopAt, same_weights
from tests.support.worlds import pictures, tiny

pytestmark = pytest.mark.gpu
GPU = {"device": "cuda", "progress": False}
PLAIN = Recipe("sgd", 0.05, batch_size=16, epochs=6, schedule="cosine", deterministic=True)


def close(a, b, atol):
    a, b = a.state_dict(), b.state_dict()
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=1e-3, atol=atol)
    return True


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_graph_and_eager_give_the_same_weights(optimizer):
    # A small step and a smooth network: otherwise rounding alone drives two runs apart.
    recipe = replace(PLAIN, optimizer=optimizer, lr=1e-3)
    data = pictures(n=70)  # 70 = 4 x 16 + 6: two batch sizes, so two graphs
    smooth = {"name": "mlp", "activation": "tanh"}
    graph = fit("erm", data, net=smooth, recipe=recipe, **GPU)
    eager = fit("erm", data, net=smooth, recipe=replace(recipe, cuda_graph=False), **GPU)
    assert close(graph.classifier, eager.classifier, 1e-5)
    assert graph.history[-1]["lr"] == pytest.approx(eager.history[-1]["lr"])


def test_gpu_and_cpu_agree():
    recipe = replace(PLAIN, lr=1e-3)
    smooth = {"name": "mlp", "activation": "tanh"}
    a = fit("erm", pictures(), net=smooth, recipe=recipe, device="cuda", progress=False).classifier.cpu()
    b = fit("erm", pictures(), net=smooth, recipe=recipe, device="cpu", progress=False).classifier
    assert close(a, b, 1e-4)


def test_the_same_seed_gives_the_same_bits_with_deterministic_kernels():
    recipe = replace(PLAIN, augment="pgd_digits")
    a, b = (fit("erm", pictures(), net="simconv1", recipe=recipe, **GPU).classifier for _ in range(2))
    assert same_weights(a, b)


@pytest.mark.parametrize("step", [2, 9, 21])
def test_a_run_on_a_gpu_goes_on_where_it_was_stopped(tmp_path, step):
    recipe = replace(PLAIN, augment="pgd_digits")
    whole = fit("erm", pictures(n=70), net="simconv1", recipe=recipe, **GPU)
    with pytest.raises(Interrupted):
        fit("erm", pictures(n=70), net="simconv1", recipe=recipe, out=tmp_path, device="cuda", progress=StopAt(step))
    resumed = fit("erm", pictures(n=70), net="simconv1", recipe=recipe, out=tmp_path, **GPU)
    assert close(whole.classifier, resumed.classifier, 1e-5)


def test_dropout_and_augmentation_differ_from_replay_to_replay():
    seen = []

    @dataclass(frozen=True)
    class Looks(Method):
        def stages(self, run):
            net = run.net()
            view = run.keep(torch.nn.BatchNorm1d(1))
            view.register_buffer("views", torch.zeros(40, device=run.device))
            view.register_buffer("at", torch.zeros(1, dtype=torch.long, device=run.device))

            def loss(b):
                view.views.index_copy_(0, view.at, b.x[:1].mean().reshape(1))
                view.at += 1
                return ce(net(b.x), b.y)

            rows = torch.zeros(16, dtype=torch.long)  # always the same row: only the augmentation can differ
            yield Stage("looks", loss, run.optimizer(net), model=net, iterations=40, rows=rows)
            seen.extend(view.views.tolist())
            return net

    fit(Looks(), pictures(), net="simconv1", recipe=replace(PLAIN, augment="pgd_digits"), **GPU)
    assert len({round(v, 7) for v in seen}) > 35


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_captured(name, capsys):
    result = fit(name, pictures(n=80), net="simconv1", recipe=Recipe("adam", 1e-3, batch_size=16, epochs=4), **GPU)
    assert result.status == "done"
    assert "without a CUDA graph" not in capsys.readouterr().err


def test_a_loss_that_cannot_be_captured_trains_eagerly_and_says_so_once(capsys):
    @dataclass(frozen=True)
    class Asks(Method):
        def stages(self, run):
            net = run.net()

            def loss(b):
                value = ce(net(b.x), b.y)
                return value * (2 if value.item() > 100 else 1)  # .item() waits for the device

            yield Stage("asks", loss, run.optimizer(net), model=net)
            return net

    result = fit(Asks(), tiny(), net="mlp", recipe=replace(PLAIN, deterministic=False), **GPU)
    assert result.status == "done"
    assert capsys.readouterr().err.count("without a CUDA graph") == 1


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch.compile gives advice as warnings
@pytest.mark.parametrize("switch", [{"precision": "bf16"}, {"precision": "tf32"}, {"compile": True}])
def test_switches_train(switch):
    result = fit(
        "erm", pictures(n=128), net="conv3", recipe=replace(PLAIN, deterministic=False, epochs=20, **switch), **GPU
    )
    assert result.scores["average"] > 60  # four classes, an easy corner: chance is 25


@pytest.fixture
def chunks(monkeypatch):
    """Graphs of four steps in short stages, too; a list of how many steps each call made."""
    from spurless.train import step

    made, run = [], step.Steps.run
    monkeypatch.setattr(step, "CHUNK", 4)
    monkeypatch.setattr(step, "WORTH", 0)
    monkeypatch.setattr(step.Steps, "run", lambda self, most=1: made.append(run(self, most)) or made[-1])
    return made


@pytest.mark.parametrize("method", METHODS)  # simconv1 has dropout: the random numbers are those of single steps, too
def test_graphs_of_several_steps_end_with_the_bits_of_single_ones(chunks, monkeypatch, method):
    recipe = replace(PLAIN, lr=0.01, batch_size=8, augment="pgd_digits", test_every=9)  # at 0.05 IRM diverges
    data = pictures(n=150)
    several = fit(method, data, net="simconv1", recipe=recipe, **GPU)
    assert 4 in chunks
    monkeypatch.setattr("spurless.train.step.CHUNK", 10**9)
    chunks.clear()
    single = fit(method, data, net="simconv1", recipe=recipe, **GPU)
    assert set(chunks) == {1}
    assert same_weights(several.classifier, single.classifier) and several.test_selected == single.test_selected


def test_what_is_prepared_ahead_by_a_graph_is_what_is_prepared_without_one(monkeypatch):
    from spurless.train.step import WARMUP, Steps

    monkeypatch.setattr("spurless.train.step.AHEAD", 3)
    recipe = replace(PLAIN, augment="pgd_digits", epochs=3, batch_size=8)
    data, seen, kept = pictures(n=150), [], Steps._prepare

    def prepare(self, stretch):
        kept(self, stretch)
        seen.append((self.preparing is not None, self.x.clone()))

    monkeypatch.setattr(Steps, "_prepare", prepare)
    fit("erm", data, net="simconv1", recipe=recipe, **GPU)
    by_graph, seen[:] = seen[:], []
    fit("erm", data, net="simconv1", recipe=replace(recipe, cuda_graph=False), **GPU)
    assert [replayed for replayed, _ in by_graph] == [i >= WARMUP for i in range(21)]  # 19 steps: 7 stretches an epoch
    assert not any(replayed for replayed, _ in seen)
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(by_graph, seen, strict=True))


def test_a_stage_leaves_the_memory_of_its_graphs_to_the_next():
    held = []

    @dataclass(frozen=True)
    class Many(Method):
        def stages(self, run):
            net = run.net()
            for index in range(6):
                yield Stage(str(index), lambda b: ce(net(b.x), b.y), run.optimizer(net), model=net)
                held.append(torch.cuda.memory_reserved())
            return net

    fit(Many(), pictures(n=512), net="resnet18", recipe=replace(PLAIN, batch_size=256, epochs=8), **GPU)
    assert max(held) < 1.3 * held[0], held


def test_runs_in_lanes_share_their_rows(monkeypatch):
    from spurless.train import feed
    from spurless.train.lanes import Job, run_lanes

    turned, turn = [], feed.with_channels_last
    monkeypatch.setattr(feed, "with_channels_last", lambda x, device: turned.append(x) or turn(x, device))
    data = pictures(n=70)
    given = {"data": data, "net": "simconv1", "recipe": replace(PLAIN, epochs=4)}
    jobs = [Job(str(seed), given | {"method": "erm", "seed": seed}) for seed in range(4)]
    assert all(found.status == "done" for _, found in run_lanes(iter(jobs), 4, "cuda"))
    assert [sum(x is split.x for x in turned) for split in (data.train, data.val)] == [1, 1]


def test_divergence_is_seen_inside_the_graph():
    result = fit("erm", pictures(), net="conv3", recipe=replace(PLAIN, lr=1e20, deterministic=False), **GPU)
    assert result.status == "diverged" and "not finite" in result.error


def test_runs_in_lanes_on_a_gpu_end_as_each_does_alone():
    from spurless.train.lanes import Job, run_lanes

    data, recipe = pictures(n=70), replace(PLAIN, augment="pgd_digits")
    jobs = [
        Job(f"{method}-{seed}", {"method": method, "data": data, "net": "simconv1", "recipe": recipe, "seed": seed})
        for method in ("erm", "lff", "pgd", "disent")
        for seed in (0, 1)
    ]
    together = {job.key: found for job, found in run_lanes(iter(jobs), 4, "cuda")}
    for job in jobs:
        found = together[job.key]
        assert not isinstance(found, Exception), found
        alone = fit(**job.arguments, **GPU)
        assert same_weights(found.classifier, alone.classifier), job.key


def test_a_lane_that_begins_lets_the_others_work_in_between(monkeypatch):
    from spurless.train.lanes import Job, Lanes, run_lanes

    turns, advance = [], Lanes.advance

    def noted(self, lane, steps=None):
        before = lane.done
        goes_on = advance(self, lane, steps)
        turns.append((lane.job.key, lane.done - before, before))
        return goes_on

    monkeypatch.setattr(Lanes, "advance", noted)
    given = {"method": "erm", "data": pictures(n=320), "net": "simconv1"}
    jobs = [
        Job("long", given | {"recipe": replace(PLAIN, epochs=40), "seed": 0}),
        Job("short", given | {"recipe": replace(PLAIN, epochs=2), "seed": 1}),
        Job("late", given | {"recipe": PLAIN, "seed": 2}),
    ]
    assert all(found.status == "done" for _, found in run_lanes(iter(jobs), 2, "cuda"))
    late = [i for i, (key, _, before) in enumerate(turns) if key == "late" and before < 4]
    assert len(late) >= 5 and all(turns[i][1] <= 1 for i in late)  # eager steps, and the capture
    between = [turns[a + 1 : b] for a, b in itertools.pairwise(late)]
    assert sum(any(key == "long" for key, _, _ in some) for some in between) >= len(between) // 2


def test_the_number_of_lanes_is_found_by_measurement():
    from spurless.train.lanes import Job, run_lanes

    recipe = replace(PLAIN, epochs=40)
    jobs = (
        Job(str(s), {"method": "erm", "data": pictures(n=320), "net": "simconv1", "recipe": recipe, "seed": s})
        for s in range(6)
    )
    found = [outcome for _, outcome in run_lanes(jobs, None, "cuda")]
    assert [f.status for f in found] == ["done"] * 6


def where(result, data, folder):
    return {"pipe": os.environ.get("CUDA_MPS_PIPE_DIRECTORY")}


def test_many_cells_share_a_gpu_in_processes(tmp_path):
    from spurless.bench import Cell, run_cells
    from spurless.bench.executors import mps

    quick = {"name": "toy", "n": 200}, {"name": "erm"}, {"name": "mlp"}, {"epochs": 2}
    cells = [Cell(*quick, seed) for seed in range(16)]
    count = mps.processes_on(torch.device("cuda", 0), len(cells))
    if count == 1:
        pytest.skip("needs a large GPU with NVIDIA's MPS")
    with mps.shared_gpu() as shared:
        assert shared is not None
    rows = run_cells(cells, tmp_path, device="cuda", after="tests.train.test_gpu:where")
    assert [(row["status"], row["processes"]) for row in rows] == [("done", count)] * len(cells)
    assert len({row["extra"]["pipe"] for row in rows}) == 1
    assert shared == {} or "spurless-mps" in rows[0]["extra"]["pipe"]
