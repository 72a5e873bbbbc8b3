"""The engine beside what one would use instead, in one interleaved run: the same data, network, optimiser and length.

    python -m studies.peers --out results/peers/digits
    python -m studies.peers --data colored_mnist --rows 10000 --out results/peers/cmnist

Peers: SpuCo, from its package where that is installed, and a plain script with a DataLoader. Every peer starts from the
same network object. After a short warm-up, which pays for imports, each round runs each method with each peer in turn,
so that a busy machine hurts all alike; the median over the rounds is reported. Read the ratios, not the seconds. CPU
time, worker processes included, is given beside the time on the clock: on a busy machine it is the steadier of the two.

What is counted: ours is the whole of `fit`, with its set-up and the scoring of the test split; the others are their
training calls alone, on rows that lie in memory as floats and need no decoding. SpuCo fixes four worker processes for
each of its loaders; the script has two. Accuracies are found by one function, outside the time, and say whether the
work was the same.
"""

import spurless  # noqa: F401  # isort: skip  (first: it sets how OpenMP waits before torch is imported)

import argparse
import copy
import os
import statistics
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from spurless.bench.one import stamp
from spurless.core.data import Bundle, Split
from spurless.core.recipe import Recipe
from spurless.nets import build
from spurless.registry import load_data
from spurless.train.fit import evaluate, fit
from studies.rows import put

OURS, SCRIPT, SPUCO = "spurless", "DataLoader script", "SpuCo"
COPIES = 5  # of each error, in JTT; its first network is trained as long as the second
WARM_UP = 512  # rows
TICK = 0.01  # seconds of the processor's clock: what is shorter reads as 0


class Work(NamedTuple):
    """What every peer is given."""

    data: Bundle
    net: nn.Module  # copied before it is trained
    epochs: int
    batch: int
    lr: float


class Done(NamedTuple):
    """What came out: the trained network, and how many rows went through training."""

    net: nn.Module
    rows: int


class Rows(Dataset):
    """Training samples as a peer wants them: floats as the engine feeds them, found without decoding."""

    def __init__(self, data: Bundle):
        assert isinstance(data.train.x, Tensor)
        x = data.train.x.float() / 255 if data.train.x.dtype == torch.uint8 else data.train.x
        if data.inputs.mean:
            shape = (1, -1, *[1] * (x.ndim - 2))
            x = (x - torch.tensor(data.inputs.mean).view(shape)) / torch.tensor(data.inputs.std).view(shape)
        self.x, self.y = x, data.train.y
        self.labels = self.y.tolist()  # SpuCo asks for these two
        self.num_classes = len(data.classes)

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.x[i], self.labels[i]


# --- ours ------------------------------------------------------------------------------------------------------------


def ours(work: Work, method: str | dict[str, Any]) -> Done:
    recipe = Recipe("adam", work.lr, batch_size=work.batch, epochs=work.epochs, augment="none", eval_every=0)
    result = fit(method, work.data, net=work.net, recipe=recipe, device="cpu", progress=False)
    n, name = len(work.data.train), result.method
    rows = n * work.epochs
    if name == "jtt":
        rows += work.epochs * (n + (COPIES - 1) * result.mining["mined"]["n_mined"])
    assert result.classifier is not None
    return Done(result.classifier, rows)


# --- the usual script ------------------------------------------------------------------------------------------------


def script(work: Work) -> Done:
    """Plain training as it is usually written."""
    net = copy.deepcopy(work.net)
    optimizer = torch.optim.Adam(net.parameters(), work.lr)
    loader = DataLoader(Rows(work.data), work.batch, shuffle=True, num_workers=2)
    net.train()
    for _ in range(work.epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return Done(net, len(work.data.train) * work.epochs)


# --- SpuCo -----------------------------------------------------------------------------------------------------------


def spuco_erm(work: Work) -> Done:
    train = import_module("spuco.robust_train")
    net, settings = _start(work)
    train.ERM(model=net, trainset=Rows(work.data), num_epochs=work.epochs, **settings).train()
    return Done(net, len(work.data.train) * work.epochs)


def spuco_group_dro(work: Work) -> Done:
    train, datasets = import_module("spuco.robust_train"), import_module("spuco.datasets")
    net, settings = _start(work)
    rows = datasets.GroupLabeledDatasetWrapper(Rows(work.data), partition(work.data.train))
    train.GroupDRO(model=net, trainset=rows, num_epochs=work.epochs, **settings).train()
    return Done(net, len(work.data.train) * work.epochs)


def spuco_jtt(work: Work) -> Done:
    train, inference = import_module("spuco.robust_train"), import_module("spuco.group_inference")
    rows = Rows(work.data)
    first, settings = _start(work)
    erm = train.ERM(model=first, trainset=rows, num_epochs=work.epochs, **settings)
    erm.train()
    predicted = erm.trainer.get_trainset_outputs().argmax(1).tolist()
    groups = inference.JTTInference(predictions=predicted, class_labels=rows.labels).infer_groups()
    indices = groups[(0, 0)] + groups[(0, 1)] * COPIES
    net, settings = _start(work)
    train.CustomSampleERM(model=net, trainset=rows, num_epochs=work.epochs, indices=indices, **settings).train()
    return Done(net, (len(rows) + len(indices)) * work.epochs)


def spuco_lff(work: Work) -> Done:
    end2end = import_module("spuco.end2end")  # imports wandb, which its package does not ask for
    biased, debiased = (copy.deepcopy(work.net) for _ in range(2))
    for module in biased.modules():  # LfF needs two networks that start apart
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            module.reset_parameters()
    settings = {
        "bias_optimizer": torch.optim.Adam(biased.parameters(), work.lr),
        "debias_optimizer": torch.optim.Adam(debiased.parameters(), work.lr),
    }
    rows = Rows(work.data)
    lff = end2end.LFF(rows, biased, debiased, batch_size=work.batch, num_epochs=work.epochs, **settings)
    lff.train()
    return Done(debiased, len(rows) * work.epochs)


def _start(work: Work) -> tuple[nn.Module, dict[str, Any]]:
    net = copy.deepcopy(work.net)
    return net, {"batch_size": work.batch, "optimizer": torch.optim.Adam(net.parameters(), work.lr)}


def jtt(work: Work) -> dict[str, Any]:
    return {"name": "jtt", "identify_epochs": work.epochs, "lambda_up": COPIES}


def partition(split: Split) -> dict[tuple[int, ...], list[int]]:
    """The rows of each (label, value) pair that has any.

    >>> partition(Split(torch.zeros(3, 1), torch.tensor([0, 1, 0]), torch.tensor([[0], [1], [0]])))
    {(0, 0): [0, 2], (1, 1): [1]}
    """
    assert split.a is not None
    found = defaultdict(list)
    for i, pair in enumerate(torch.cat([split.y[:, None], split.a], dim=1).tolist()):
        found[tuple(pair)].append(i)
    return dict(sorted(found.items()))


CONTESTS: dict[str, dict[str, Callable[[Work], Done]]] = {  # method: peer: a training
    "erm": {OURS: lambda work: ours(work, "erm"), SCRIPT: script, SPUCO: spuco_erm},
    "group_dro": {OURS: lambda work: ours(work, "group_dro"), SPUCO: spuco_group_dro},
    "jtt": {OURS: lambda work: ours(work, jtt(work)), SPUCO: spuco_jtt},
    "lff": {OURS: lambda work: ours(work, "lff"), SPUCO: spuco_lff},
}


# --- the run ---------------------------------------------------------------------------------------------------------


class Timed(NamedTuple):
    """One training, measured."""

    seconds: float  # on the clock
    cpu: float  # seconds of this process and of its workers
    rows: int
    score: float  # unbiased accuracy on the test split


def timed(train: Callable[[Work], Done], work: Work) -> Timed:
    started, before = time.perf_counter(), cpu_seconds()
    done = train(work)
    seconds = time.perf_counter() - started
    cpu = max(cpu_seconds() - before, TICK)
    return Timed(seconds, cpu, done.rows, evaluate(done.net, work.data, device="cpu")["unbiased"])


def cpu_seconds() -> float:
    """Of this process, and of those of its children that have ended."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def run(work: Work, methods: Sequence[str], rounds: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows, and what could not be run and why."""
    lacking = {}
    short = work._replace(data=part(work.data, WARM_UP), epochs=1)
    for method in methods:
        for peer, train in CONTESTS[method].items():
            try:
                train(short)
            except ImportError as error:
                lacking[peer, method] = (
                    f"{method} with {peer} was not run: the package '{error.name}' is not installed."
                )
    times: dict[tuple[str, str], list[Timed]] = defaultdict(list)
    for number in range(rounds):
        for method in methods:
            peers = [(peer, train) for peer, train in CONTESTS[method].items() if (peer, method) not in lacking]
            turn = number % len(peers)  # nobody is always first
            for peer, train in peers[turn:] + peers[:turn]:
                torch.manual_seed(number)
                found = timed(train, work)
                times[method, peer].append(found)
                print(f"round {number + 1}, {method}, {peer}: {found.seconds:.1f} s, {found.cpu:.1f} CPU s", flush=True)
    return table(times, work.epochs), list(lacking.values())


def table(times: Mapping[tuple[str, str], Sequence[Timed]], epochs: int) -> list[dict[str, Any]]:
    """Medians over the rounds. A ratio is taken within each round, and then its median; it is by rows a second.

    >>> found = table({("erm", OURS): [Timed(2, 2, 100, 80)], ("erm", SCRIPT): [Timed(3, 6, 100, 81)]}, epochs=2)
    >>> [(row["peer"], row["seconds_an_epoch"], row["samples_a_second"]) for row in found]
    [('spurless', 1.0, 50.0), ('DataLoader script', 1.5, 33.3)]
    >>> [(row["times_ours"], row["cpu_times_ours"]) for row in found]
    [(1.0, 1.0), (1.5, 3.0)]
    """
    found = []
    for (method, peer), rounds in times.items():
        pairs = list(zip(rounds, times[method, OURS], strict=True))
        found.append(
            {
                "method": method,
                "peer": peer,
                "seconds_an_epoch": round(statistics.median(t.seconds / epochs for t in rounds), 3),
                "samples_a_second": round(statistics.median(t.rows / t.seconds for t in rounds), 1),
                "times_ours": round(statistics.median(t.seconds / t.rows * o.rows / o.seconds for t, o in pairs), 2),
                "cpu_times_ours": round(statistics.median(t.cpu / t.rows * o.rows / o.cpu for t, o in pairs), 2),
                "unbiased": [round(t.score, 1) for t in rounds],
                "rows": [t.rows for t in rounds],
                "rounds": len(rounds),
            }
        )
    order = (OURS, SCRIPT, SPUCO)
    return sorted(found, key=lambda row: (list(CONTESTS).index(row["method"]), order.index(row["peer"])))


def part(data: Bundle, rows: int) -> Bundle:
    """The dataset with so many training samples, drawn at random (0: all), and without validation samples."""
    assert isinstance(data.train.x, Tensor)
    if rows:
        # Not the first ones: some datasets hold all aligned samples before the conflicting ones.
        kept = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(0))[:rows].sort().values
        a = None if data.train.a is None else data.train.a[kept]
        data = replace(data, train=Split(data.train.x[kept], data.train.y[kept], a))
    return replace(data, val=None)


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        "| method | with | samples/s | seconds an epoch | time, of ours | CPU time, of ours | unbiased accuracy |",
        "| :-- | :-- | --: | --: | --: | --: | --: |",
    ]
    for row in rows:
        scores = row["unbiased"]
        cells = [f"`{row['method']}`", row["peer"], f"{row['samples_a_second']:,.0f}", f"{row['seconds_an_epoch']:.2f}"]
        cells += [f"{row['times_ours']:.2f}", f"{row['cpu_times_ours']:.2f}"]
        cells += [f"{statistics.mean(scores):.1f} ({min(scores):.1f} to {max(scores):.1f})"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def about(work: Work, rounds: int, threads: int) -> dict[str, Any]:
    """What it was measured with; nothing that names the machine."""
    packages = {"torch": str(torch.__version__)}
    try:
        packages["spuco"] = metadata.version("spuco")
    except metadata.PackageNotFoundError:
        packages["spuco"] = "not installed"
    return {
        **stamp(),
        "device": "cpu",
        "cores": os.cpu_count(),
        "threads": threads,
        "packages": packages,
        "data": work.data.name,
        "train_rows": len(work.data.train),
        "test_rows": len(work.data.test) if work.data.test else 0,
        "epochs": work.epochs,
        "batch_size": work.batch,
        "optimizer": f"adam {work.lr:g}",
        "rounds": rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="colored_digits", help="a dataset whose rows fit into memory")
    parser.add_argument("--rows", type=int, default=0, help="so many training samples; 0: all")
    parser.add_argument("--net", default="simconv1")
    parser.add_argument("--methods", nargs="+", default=list(CONTESTS), choices=list(CONTESTS))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--data-root")
    parser.add_argument("--out", type=Path, help="the table and the row: results/TABLE/NAME")
    given = parser.parse_args()

    torch.set_num_threads(given.threads)
    for message in (".*pin_memory.*", ".*worker processes.*"):  # SpuCo's loaders are as they are
        warnings.filterwarnings("ignore", message=message)
    data = part(load_data(given.data, root=given.data_root), given.rows)
    torch.manual_seed(0)
    net = build(given.net, data.shape, len(data.classes))
    work = Work(data, net, given.epochs, given.batch, given.lr)
    rows, lacking = run(work, given.methods, given.rounds)
    print("\n" + markdown(rows))
    for why in lacking:
        print(why)
    if given.out:
        found = {"about": about(work, given.rounds, given.threads), "rows": rows, "not_run": lacking}
        put(given.out, found)


if __name__ == "__main__":
    main()
