"""What metrics cost: seconds and memory on 10,000 and on 100,000 rows; and what it costs to watch a training.

    python -m studies.metrics --out results/metrics            # each metric, in a process of its own (UMAP if there)
    python -m studies.metrics --out results/metrics --watch    # training with and without dynamics, in turn
    python -m studies.metrics --watch --device cuda

Rows are random numbers: what they mean does not matter for speed. On a CPU times are those of the process itself, so
that what else the machine does counts less; memory is the largest resident set, and how much of it came after the
inputs were there.
"""

import spurless  # noqa: F401  # isort: skip  (first: it sets how OpenMP waits before torch is imported)

import argparse
import importlib.util
import json
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from spurless.bench.one import stamp
from spurless.core.data import Bundle, Split
from spurless.core.recipe import Recipe
from spurless.nets import build
from spurless.train.device import arithmetic
from spurless.train.session import RunArguments, Session
from studies.rows import put

ROWS = (10_000, 100_000)
LONG = 10  # seconds: what takes longer is called once only
CLASSES, WIDE = 10, 64


def features(n):
    g = torch.Generator().manual_seed(0)
    y, a = torch.arange(n) % CLASSES, torch.randint(CLASSES, (n,), generator=g)
    return torch.randn(n, WIDE, generator=g).relu() + 0.3 * (y[:, None] == torch.arange(WIDE) % CLASSES), y, a


def vectors(n, wide=25):
    """A dataset of vectors that says that it is the toy: its first columns are core, the third is spurious."""
    g = torch.Generator().manual_seed(0)
    y = torch.arange(n) % 2
    split = Split(torch.randn(n, wide, generator=g), y, torch.randint(2, (n, 1), generator=g))
    return Bundle("toy", split, None, split)


def images(n, shape=(3, 28, 28)):
    g = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (n, *shape), generator=g, dtype=torch.uint8)
    y, a = torch.arange(n) % CLASSES, torch.randint(CLASSES, (n, 1), generator=g)
    return Bundle("images", Split(x, y, a), None, Split(x, y, a))


def vectors_and_net(n):
    data = vectors(n)
    return data, build({"name": "mlp", "widths": [64, 64]}, data.shape, 2)


def images_and_net(n):
    data = images(n)
    return data, build("simconv1", data.shape, CLASSES)


def weights(n):
    """A network of about n weights."""
    return (nn.Sequential(nn.Linear(100, n // 110), nn.ReLU(), nn.Linear(n // 110, CLASSES)),)


def maps(n):
    return torch.randn(n, 28, 28), torch.rand(28, 28) < 0.3


def metrics():
    """name -> (what is prepared, what is measured, what of; for how many rows, where not for all of ROWS)."""
    from spurless.metrics import attribution, compress, prunability, records, representation
    from spurless.metrics.feature_use import feature_use
    from spurless.train import robustness
    from studies import landscape, theory
    from studies.theory.fisher import fisher_trace_inverse_head

    head = nn.Linear(WIDE, CLASSES)
    small = f"{WIDE} features, {CLASSES} classes"

    def logits(n):
        return torch.randn(n, 2), torch.arange(n) % 2, torch.arange(n) % 10 > 0

    def steps(n):
        g = torch.Generator().manual_seed(0)
        rows = n // 100, 100
        return torch.randn(*rows, CLASSES, generator=g), torch.zeros(rows).long(), torch.rand(rows, generator=g) < 0.1

    def unit_shares(d, n):
        mask = attribution.spurious_mask(d, "test", None)
        return attribution.unit_shares(n, attribution.prepare(d), mask, range(2), steps=8)

    found = {
        "sparsity": (features, lambda z, y, a: compress.sparsity(z), small),
        "compressibility": (features, lambda z, y, a: compress.compressibility(z), small),
        "pq_index": (features, lambda z, y, a: compress.pq_index(z), small),
        "weights_compressed": (weights, compress.weights_compressed, "n weights, linear 100-n/110-10; no rows"),
        "prunability": (vectors_and_net, lambda d, n: prunability.data_prunability(n, d), "mlp 25-64-64-2, 10 shares"),
        "activation_prunability": (
            vectors_and_net,
            lambda d, n: prunability.data_prunability(n, d, "activations"),
            "mlp 25-64-64-2, 10 shares",
        ),
        "class_separation": (features, lambda z, y, a: representation.class_separation(z, y), small),
        "csi": (features, lambda z, y, a: representation.csi(z, y), small),
        "bsi": (features, lambda z, y, a: representation.bsi(z, a), small),
        "alignment_gap": (features, lambda z, y, a: representation.alignment_gap(z, y, y == a), small),
        "fisher_trace": (features, lambda z, y, a: fisher_trace_inverse_head(head(z).detach(), z, y), small),
        "integrated_gradients": (
            vectors_and_net,
            lambda d, n: attribution.attribute_rows(n, d, how="ig", steps=16),
            "mlp 25-64-64-2, 16 points",
        ),
        "deeplift": (
            vectors_and_net,
            lambda d, n: attribution.attribute_rows(n, d, how="deeplift"),
            "mlp 25-64-64-2",
        ),
        "gradcam": (
            images_and_net,
            lambda d, n: attribution.attribute_rows(n, d, how="gradcam"),
            "simconv1, images of 3 x 28 x 28",
        ),
        "unit_shares": (vectors_and_net, unit_shares, "mlp 25-64-64-2, 2 units, 8 points"),
        "feature_use": (
            vectors_and_net,
            lambda d, n: feature_use(n, d, rows=None),
            "mlp 25-64-64-2, all rows; attribution of 256 of them, 50 points",
        ),
        "attribution_share": (maps, lambda m, mask: attribution.share(m, mask), "maps of 28 x 28"),
        "attribution_entropy": (maps, lambda m, mask: attribution.entropy(m), "maps of 28 x 28"),
        "batch_shares": (
            steps,
            lambda z, y, flags: records.batch_shares(z, y, flags, [100] * len(z)),
            "batches of 100, 10 classes",
        ),
        "landscape": (
            vectors_and_net,
            lambda d, n: landscape.data_landscape(n, d, points=3, rows=None, attributed=64),
            "mlp 25-64-64-2, 9 places, all rows",
        ),
        "robustness": (
            lambda n: (images(n), build("mlp", (3, 28, 28), CLASSES)),
            lambda d, n: robustness.robustness(n, d, ["cutout"]),
            "images of 28 x 28, cutout",
        ),
        "loss_ratio": (logits, lambda z, y, ok: theory.loss_ratio(z, y, ok, [1, 2, 4]), "2 classes, 3 scales"),
    }
    drawn, whole = f"{WIDE} features, 2,000 rows drawn", f"{WIDE} features, all rows"
    found["project_tsne"] = (features, lambda z, y, a: representation.project(z), drawn)
    found["project_tsne_all_rows"] = (
        features,
        lambda z, y, a: representation.project(z, most=len(z)),
        whole,
        ROWS[:1],  # of 100,000 it takes too long
    )
    if importlib.util.find_spec("umap"):
        found["project_umap"] = (features, lambda z, y, a: representation.project(z, "umap"), drawn)
    return found


def measure(name, n):
    """Memory of the first call; time of the quickest of as many as fit into two seconds, at least three more."""
    prepare, run, size, *_ = metrics()[name]
    run(*prepare(200))  # what is imported and set up on first use
    given = prepare(n)
    Path("/proc/self/clear_refs").write_text("5")  # the largest resident set is counted anew from here on
    before = resident("VmRSS")
    started = time.process_time()
    run(*given)
    first = time.process_time() - started
    peak = resident("VmHWM")
    times = [first] if first > LONG else []
    while not times or (first <= LONG and (len(times) < 3 or (sum(times) < 2 and len(times) < 200))):
        started = time.process_time()
        run(*given)
        times.append(time.process_time() - started)
    found = {"metric": name, "n": n, "of": size, "seconds": round(min(times), 5), "calls": len(times)}
    return found | {"peak_mb": round(peak, 1), "peak_mb_above_inputs": round(peak - before, 1)}


def resident(which):
    """In MiB, as Linux tells it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(which)) / 1024


def each_metric(out, only):
    for name, (*_, rows_of) in {k: v if len(v) == 4 else (*v, ROWS) for k, v in metrics().items()}.items():
        if only and name not in only:
            continue
        rows = []
        for n in rows_of:
            command = [sys.executable, "-m", "studies.metrics", "--one", name, str(n)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stderr)
            rows.append(json.loads(done.stdout.splitlines()[-1]) | machine())
            print(json.dumps(rows[-1]), flush=True)
        ratio = rows[-1]["seconds"] / rows[0]["seconds"]
        print(f"{name}: {' and '.join(format(r['seconds'], '.4f') for r in rows)} s, {ratio:.1f} times", flush=True)
        if out:
            put(out / name, {str(row["n"]): row for row in rows})


# Watching


def trainings(device):
    """(name, data, network, steps): small steps are the hardest to watch cheaply."""
    on_gpu, few = device == "cuda", images(10_000)
    few = replace(few, test=Split(few.test.x[:500], few.test.y[:500], few.test.a[:500]))
    yield "fcn-200", {"name": "parity", "n_test": 500}, {"name": "fcn", "width": 200}, 6000
    yield "simconv1", few, "simconv1", 6000 if on_gpu else 300
    if on_gpu:
        yield "resnet18", few, {"name": "resnet18", "stem": "small"}, 3000


def watching(out, device, rounds):
    """Two runs take turns of some steps each, so that both meet the machine in the same state."""
    clock = time.perf_counter if device == "cuda" else time.process_time
    place = torch.device(device)

    def race(data, net, steps, turn, watched=True):
        recipe = Recipe("sgd", 0.01, momentum=0.0, batch_size=100, iterations=steps, eval_every=0)
        ways = {"plain": None, "watched": watched}
        runs = {
            k: iter(Session(RunArguments("erm", data, net=net, recipe=recipe, device=device, dynamics=d)))
            for k, d in ways.items()
        }
        spent = dict.fromkeys(runs, 0.0)
        with arithmetic(recipe, place):
            while runs:
                for way, run in list(runs.items()):
                    started = clock()
                    for _ in range(turn):
                        if next(run, None) is None:
                            del runs[way]
                            break
                    if device == "cuda":
                        torch.cuda.synchronize()
                    spent[way] += clock() - started
        return spent

    for name, data, net, steps in trainings(device):
        turn = max(1, steps // 60)
        race(data, net, 40, turn, {"moments": (2,)})  # what is imported and set up on first use
        found = [race(data, net, steps, turn) for _ in range(rounds)]
        ratios = [spent["watched"] / spent["plain"] for spent in found]
        row = {"training": name, "steps": steps, "batch_size": 100, "rounds": rounds, "device": device}
        row |= {"ratio": round(statistics.median(ratios), 4), "ratios": [round(r, 4) for r in ratios]}
        row |= {"ms_a_step": round(1000 * statistics.median(s["plain"] for s in found) / steps, 4)} | machine()
        print(json.dumps(row), flush=True)
        if out:
            put(out / f"watching-{name}-{device}", row)


def machine():
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    versions = {"torch": torch.__version__, "python": platform.python_version(), "threads": torch.get_num_threads()}
    return versions | stamp(f"cuda ({gpu})" if gpu else "cpu")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="*", help="names of metrics")
    parser.add_argument("--watch", action="store_true", help="what it costs to watch a training")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.one[0], int(given.one[1]))))
    elif given.watch:
        watching(given.out, given.device, given.rounds)
    else:
        each_metric(given.out, given.only)


if __name__ == "__main__":
    main()
