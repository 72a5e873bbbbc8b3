"""Two processes end with the numbers of one, in double precision, where a wrong term cannot hide behind rounding.

Everything is run once, by a program that imports torch and then forks: one process alone, and two that train together
(gloo, on the CPU). The tests below look at what the three left.
"""

import json
import multiprocessing
import os
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from spurless.core.data import Split
from spurless.core.errors import UserError
from spurless.core.method import Method, Stage
from spurless.core.parallel import agree, any_of, as_first, dividing, first, from_first, rank, shares, world
from spurless.core.recipe import Recipe
from spurless.methods import METHODS
from spurless.train.observe import Interrupted
from spurless.train.run_folder import TRAINING, RunFolder
from spurless.train.team_folder import run_folder
from tests.support.runs import StopAt
from tests.support.worlds import pictures, tiny

ROWS, BATCH = 43, 15  # batches of 15, 15 and 13 rows: shares of 7 and 8, and of 6 and 7
SGD = Recipe("sgd", 0.01, batch_size=BATCH, epochs=1, eval_every=0)
LATE = 200  # seconds after which a process that waits for another gives up


# What is run: by a process alone, and by two together


def outcome(result):
    weights = {} if result.classifier is None else result.classifier.state_dict()
    losses = {f"loss {r['stage_index']}.{r['epoch']}": torch.tensor(r["loss"]) for r in result.history}
    return {k: v.clone() for k, v in weights.items()} | losses | {"status": result.status, "error": result.error}


def train(method, data=None, net="simconv1", recipe=SGD, **how):
    from spurless.train.fit import fit

    return outcome(
        fit(method, data or pictures(ROWS), net=net, recipe=recipe, seed=3, device="cpu", progress=False, **how)
    )


class Decoded:
    """Rows that are not in memory, and that remember what was asked of them."""

    def __init__(self, x):
        self.x, self.shape, self.dtype, self.asked = x, tuple(x.shape), x.dtype, []

    def __len__(self):
        return len(self.x)

    def __getitem__(self, idx):
        self.asked.append(len(idx))
        return self.x[idx]


class Noisy(nn.Module):
    """Every kind of layer whose outputs depend on other rows, or on random numbers."""

    def __init__(self):
        from torchvision.ops import StochasticDepth

        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 6, 5, stride=3), nn.BatchNorm2d(6, affine=False)
        self.drops = nn.ModuleList([nn.Dropout2d(0.3), nn.Dropout(0.2, inplace=True), StochasticDepth(0.4, "row")])
        self.between, self.flat, self.out = nn.Linear(6 * 64, 5), nn.BatchNorm1d(5, momentum=None), nn.Linear(5, 4)
        self.together = StochasticDepth(0.4, "batch")
        self.seen = []

    def forward(self, x):
        if self.training:
            self.seen.append(len(x))
        x = self.norm(self.conv(x)).tanh()
        for drop in self.drops:
            x = drop(x)
        x = self.between(x.flatten(1))
        return self.out(self.flat(x + self.together(x)))


class Random(nn.Sequential):
    """Draws numbers that nobody knows how to divide."""

    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(3 * 28 * 28, 4), nn.Linear(4, 4))

    def forward(self, x):
        x = self[1](self[0](x))
        return self[2](x + torch.rand_like(x) if self.training else x)


def layers(folder):
    from spurless.nets import Net

    made = []

    def make():
        module = Noisy()
        head, module.out = module.out, nn.Identity()
        made.append(module)
        return Net(module, head)

    found = train("erm", net=make, recipe=replace(SGD, epochs=2))
    return found | {"seen": made[-1].seen}  # the first one was made to describe the run


def streamed(folder):
    data = pictures(ROWS)
    rows = Decoded(data.train.x)
    data = replace(data, train=Split(rows, data.train.y, data.train.a))
    recipe = replace(SGD, augment="crop_flip", optimizer="adam", lr=1e-4, weight_decay=0.01, clip_norm=0.5)
    found = train("pgd", data, net="conv3", recipe=recipe)
    return found | {"asked": rows.asked}


def tiny_batches(folder):
    """Batches of 5 rows, the last of 3: too few for two processes, so that each does all of it."""
    return train("lff", pictures(13), "conv3", replace(SGD, batch_size=5, epochs=2))


def options(folder):
    recipe = replace(SGD, loss="focal", sharpness="asam", l1=1e-4, selection="val_loss", schedule="cosine")
    return train("group_dro", recipe=replace(recipe, epochs=3))


def diverging(folder):
    return train("erm", tiny(n=64), "mlp", replace(SGD, lr=1e30, epochs=3))


def refused(folder):
    try:
        return train("erm", net=Random())
    except UserError as error:
        return {"error": str(error)}


@dataclass(frozen=True)
class Own(Method):
    """A user's method whose loss asks for gradients: of the weights, of the inputs, or of some to derive again."""

    asks: str

    def stages(self, run):
        net = run.net()

        def loss(b):
            x = b.x.detach().requires_grad_()
            plain = F.cross_entropy(net(x), b.y)
            if self.asks == "backward":
                plain.backward()
                return F.cross_entropy(net(b.x + 0.1 * x.grad.sign()), b.y)
            if self.asks == "weights":
                grads = torch.autograd.grad(plain, net.parameters())
                return F.cross_entropy(net(b.x), b.y) * sum(g.square().sum() for g in grads).sqrt()
            if self.asks == "inputs":
                (grad,) = torch.autograd.grad(plain, x)
                return F.cross_entropy(net(b.x + 0.1 * grad.sign()), b.y)
            if self.asks == "scale":  # IRM's, as its paper writes it
                scale = torch.ones((), requires_grad=True)
                (grad,) = torch.autograd.grad(F.cross_entropy(net(x) * scale, b.y), scale, create_graph=True)
                return plain + grad.square()
            (grad,) = torch.autograd.grad(plain, x, create_graph=True)
            return plain + 10 * grad.square().sum()

        yield Stage("own", loss, run.optimizer(net), net)
        return net


def own(asks):
    def scene(folder):
        try:
            return train(Own(asks), net="conv3")
        except UserError as error:
            return {"error": str(error)}

    return scene


def torn(folder):
    """Stopped again and again, and gone on; begun by a process alone and gone on by two, and the other way round."""
    from spurless.train.fit import fit

    data, recipe = pictures(ROWS), replace(SGD, epochs=8, selection="val_accuracy", eval_every=1)

    def go(name, watch):
        return fit(
            "pgd",
            data,
            net="simconv1",
            recipe=recipe,
            seed=3,
            out=folder / name,
            device="cpu",
            progress=watch,
            checkpoint_seconds=0.2,
        )

    def stopped(name, step):
        with pytest.raises(Interrupted):
            go(name, StopAt(step))
        if first():
            (folder / f"{name} stopped").touch()

    def begun_elsewhere(name):
        until = time.monotonic() + LATE
        while not (folder / f"{name} stopped").exists():
            assert time.monotonic() < until
            time.sleep(0.05)

    mine, theirs = ("alone", "together") if world() == 1 else ("together", "alone")
    stopped(mine, 8 if world() == 1 else 31)
    begun_elsewhere(theirs)
    found = go(theirs, False)
    again = go(theirs, False)  # it is finished: loaded
    where = {"lines": len(RunFolder(folder / theirs).history()), "epochs": len(found.history)}
    same = all(torch.equal(v, again.classifier.state_dict()[k]) for k, v in found.classifier.state_dict().items())
    return outcome(found) | where | {"loaded": same, "whole": outcome(go(f"whole {world()}", False))}


def other_settings(folder):
    folder = run_folder(folder / f"other {world()}")
    folder.claim({"seed": 1})
    try:
        folder.claim({"seed": 2})
    except UserError as error:
        return {"error": str(error)}


def taken(folder):
    """While a run is trained, by one process or by several, nobody else trains it."""
    from spurless.train.session import RunArguments, Session

    def session():
        return Session(
            RunArguments(
                "erm", pictures(ROWS), net="simconv1", recipe=SGD, seed=3, out=folder / f"taken {world()}", device="cpu"
            )
        )

    error = ""
    for _ in session():
        try:
            error = error or str(list(session()))
        except UserError as refused:
            error = str(refused)
    return {"error": error, "left": from_first(lambda: (folder / f"taken {world()}" / TRAINING).exists())}


def parts(folder):
    """The small pieces, where each process has something of its own."""
    me = torch.tensor([float(rank())])
    module = nn.BatchNorm1d(2)
    module.register_buffer("mask", torch.tensor([rank() == 0, rank() == 1]))
    module.weight.data.fill_(rank() + 5)
    agree([module])
    module.running_mean += 0  # still a tensor of its own
    found = {"first": as_first(me).item(), "any": any_of(rank() == 1, False), "made": from_first(lambda: rank())}
    return found | {"module": {k: v.tolist() for k, v in module.state_dict().items()}}


def of_inputs(folder):
    """The gradient of the inputs, which an attack takes: its direction alone would not show a wrong scale."""
    from spurless.nets import build

    x = pictures(7).train.x.double().requires_grad_()
    with dividing():
        loss = build("conv3", (3, 28, 28), 4)(x).square().mean()
    return {"x": torch.autograd.grad(loss, x)[0], "loss": loss.detach(), "n": torch.tensor(7.0), "status": "done"}


QUICK = {
    "ga": {"mining_epochs": 1},
    "jtt": {"lambda_up": 2},
    "dcwp": {"mining_iterations": 3, "mask_iterations": 3, "finetune_iterations": 3},
    "mrm": {"mask_iterations": 3},
}
OTHERS = [layers, streamed, tiny_batches, options, diverging, refused, torn, other_settings, taken, parts, of_inputs]
ASKS = ["weights", "inputs", "scale", "penalty", "backward"]
SCENES = {f.__name__: f for f in OTHERS} | {f"own {asks}": own(asks) for asks in ASKS}
SCENES |= {f"method {name}": lambda folder, name=name: train({"name": name} | QUICK.get(name, {})) for name in METHODS}


def play(folder, role):
    """All scenes, as a process alone or as one of two."""
    if role != "alone":
        meet = f"file://{folder / 'meeting'}"
        dist.init_process_group("gloo", init_method=meet, rank=int(role), world_size=2)
    found = {}
    for name, scene in SCENES.items():
        found[name] = scene(folder)
    torch.save(found, folder / f"{role}.pt")


def main(folder):
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float, torch.float32 = torch.Tensor.double, torch.float64
    for module in (
        "spurless.train.fit",
        "torchvision.ops",
        "sklearn.linear_model",
        "sklearn.cluster",
        "sklearn.metrics",
    ):
        import_module(module)  # once, for all three
    weight = nn.Parameter(torch.zeros(1))
    torch.optim.SGD([weight]).step()  # imports torch's compiler
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=play, args=(folder, role)) for role in ("alone", "0", "1")]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(any(process.exitcode for process in processes))


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    folder = tmp_path_factory.mktemp("team")
    env = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.train.test_distributed", str(folder)]
    done = subprocess.run(command, env=env, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return {role: torch.load(folder / f"{role}.pt", weights_only=False) for role in ("alone", "0", "1")}


def assert_same_numbers(played, scene, tolerance=1e-6):
    alone, one, two = (played[role][scene] for role in ("alone", "0", "1"))
    assert alone.keys() == one.keys() == two.keys()
    compared = 0
    for key, value in alone.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(one[key], two[key]), f"{key}: the processes differ from one another"
            torch.testing.assert_close(
                one[key], value, rtol=tolerance, atol=tolerance, msg=lambda m, k=key: f"{k}: {m}"
            )
            compared += value.is_floating_point()
    assert compared > 2 and alone["status"] == one["status"] == "done"


@pytest.mark.parametrize("name", METHODS)
def test_a_method_over_two_processes_ends_with_the_weights_of_one(played, name):
    assert_same_numbers(played, f"method {name}")


@pytest.mark.parametrize("scene", ["layers", "streamed", "tiny_batches", "options", "torn", "of_inputs"])
def test_so_do_random_layers_streamed_rows_small_batches_options_and_torn_runs(played, scene):
    assert_same_numbers(played, scene)


def test_the_work_is_divided(played):
    """Without this, two processes that each do everything would pass all of the above."""
    alone, one, two = (played[role]["layers"]["seen"] for role in ("alone", "0", "1"))
    assert alone == [15, 15, 13] * 2 and one == [7, 7, 6] * 2 and two == [8, 8, 7] * 2


def test_each_process_decodes_its_share(played):
    alone, one, two = (played[role]["streamed"]["asked"] for role in ("alone", "0", "1"))
    assert alone.count(15) == 4 and one.count(7) == 4 and two.count(8) == 4  # two stages of two full batches
    assert 15 not in one and 15 not in two


def test_a_torn_run_goes_on_whoever_began_it(played):
    for role in ("alone", "0", "1"):
        torn = played[role]["torn"]
        assert torn["loaded"] and torn["lines"] == torn["epochs"] == 16  # 8 of each stage, each written once
        for key, value in torn["whole"].items():
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(torn[key], value, rtol=1e-6, atol=1e-6)


def test_all_processes_diverge_together(played):
    for role in ("alone", "0", "1"):
        assert played[role]["diverging"]["status"] == "diverged"
        assert played[role]["diverging"]["error"] == played["alone"]["diverging"]["error"]


def test_random_numbers_that_cannot_be_divided_are_refused(played):
    assert played["alone"]["refused"]["status"] == "done"
    for role in ("0", "1"):
        assert "draws random numbers in a way that cannot be divided" in played[role]["refused"]["error"]


@pytest.mark.parametrize("asks", ["weights", "inputs", "scale"])
def test_a_loss_that_takes_gradients_gets_those_of_the_whole_batch(played, asks):
    assert_same_numbers(played, f"own {asks}")


def test_gradients_that_are_derived_again_are_refused(played):
    """Without a word, the step would train without that term."""
    assert played["alone"]["own penalty"]["status"] == "done"
    for role in ("0", "1"):
        assert "create_graph=True" in played[role]["own penalty"]["error"]


def test_a_backward_pass_inside_a_loss_is_refused(played):
    for role in ("0", "1"):
        assert "torch.autograd.grad(loss, inputs)" in played[role]["own backward"]["error"]


def test_a_mistake_that_the_first_process_finds_stops_all(played):
    for role in ("0", "1"):
        assert "holds a run with other settings (seed: 1 there, 2 now)" in played[role]["other_settings"]["error"]


def test_a_run_that_several_processes_train_is_trained_by_them_alone(played):
    for role in ("alone", "0", "1"):
        assert "is being trained by another process" in played[role]["taken"]["error"]
        assert not played[role]["taken"]["left"]


def test_all_agree_with_the_first(played):
    for role in ("0", "1"):
        found = played[role]["parts"]
        assert (found["first"], found["any"], found["made"]) == (0.0, (True, False), 0)
        assert found["module"]["mask"] == [True, False] and found["module"]["weight"] == [5.0, 5.0]


@pytest.mark.parametrize("n", [4, 7, 128])
@pytest.mark.parametrize("parts", [1, 2, 3])
def test_shares_hold_every_row_once(n, parts):
    rows = [i for share in shares(n, parts) for i in range(n)[share]]
    sizes = [len(range(n)[share]) for share in shares(n, parts)]
    assert rows == list(range(n)) and max(sizes) - min(sizes) <= 1


def test_torchrun_trains_together_and_prints_once(tmp_path):
    """The command of the documentation, as a whole."""
    from spurless.train.fit import fit

    settings = ["--set", "data.n=203", "--set", "recipe.epochs=2", "--set", "recipe.batch_size=50"]
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "spurless"]
    command += ["train", "lff", "toy", *settings, "--out", str(tmp_path / "run"), "--device", "cpu", "--json"]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-4000:]
    row = json.loads(done.stdout)  # one object: the second process is silent
    alone = fit("lff", {"name": "toy", "n": 203}, recipe={"epochs": 2, "batch_size": 50}, device="cpu", progress=False)
    kept = RunFolder(tmp_path / "run").result()
    assert row["status"] == "done" and row["scores"]["unbiased"] == kept["scores"]["unbiased"]
    assert row["scores"]["unbiased"] == pytest.approx(alone.scores["unbiased"], abs=0.5)
    assert [h["loss"] for h in kept["history"]] == pytest.approx([h["loss"] for h in alone.history], rel=1e-4)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
