"""A debiased conv3, pruned by channels, fine-tuned and cut: how much smaller and faster, and at what cost.

    python -m studies.shrunk --work runs/shrunk          # measure what is missing: one row a seed, on a CPU
    python -m studies.shrunk --draw                      # the table of docs/shrink.md from the rows

Colored MNIST of the pgd family with 5 % conflicting images: its first 40,000 training images, and the whole test split,
whose colours are uniform. RS trains, with every pair of digit and colour equally often; ERM beside it says what the
debiasing is worth. Fine-tuning is two thirds as long as the training, once as the run was trained and once by plain
cross entropy.
"""

import spurless  # noqa: F401  # isort: skip  (first: it sets how OpenMP waits before torch is imported)

import argparse
import statistics
import time
from pathlib import Path

from studies.pages import spread
from studies.readme import fill
from studies.rows import RESULTS, ROOT, holds, put, rows

OUT = RESULTS / "shrunk"
PAGE = ROOT / "docs" / "shrink.md"
SEEDS = range(3)
DATA = {"name": "colored_mnist", "family": "pgd", "rho": 0.05, "val": 20_000}  # which leaves 40,000 to train on
NET = "conv3"
RECIPE = {
    "optimizer": "adam", "lr": 2e-3, "schedule": "cosine", "batch_size": 128, "epochs": 3, "augment": "none",
    "selection": "last", "eval_every": 0,
}  # fmt: skip
METHOD = "rs"
KEEP = (0.5, 0.35)
FINETUNE = 0.67
REPEATS = 101  # forward passes of each network
KEPT = ("unbiased", "conflicting", "aligned", "worst_group", "intervals", "n")


def short(scores):
    return {k: scores[k] for k in KEPT}


def apart(masked, cut, images):
    """The largest difference of a logit over real images, as the networks see them."""
    import torch

    with torch.inference_mode():
        return max(float((masked(x / 255) - cut(x / 255)).abs().max()) for x in images.float().split(1000))


def measure(seed, work):
    """One seed: train, prune, fine-tune, cut, and time. What is in the work folder already is not trained again."""
    import torch

    from spurless.bench.one import stamp
    from spurless.compress.export import export
    from spurless.compress.prune import prune
    from spurless.compress.prune_trained import Pruning
    from spurless.compress.shrink import shrink
    from spurless.registry import load_data
    from spurless.train.fit import evaluate, fit
    from spurless.train.saved import load_classifier

    path = OUT / f"{METHOD}-conv3-seed{seed}"
    if holds(path):
        return f"{path.name}: there already"
    torch.set_num_threads(1)
    data = load_data(DATA)
    started = time.time()
    runs = {
        name: fit(
            name, DATA, net=NET, recipe=RECIPE, seed=seed, out=work / f"{name}-seed{seed}", device="cpu", progress=False
        )
        for name in ("erm", METHOD)
    }
    print({name: round(run.scores["unbiased"], 2) for name, run in runs.items()}, flush=True)
    found = []
    for objective in ("own", "plain"):
        folder = work / f"{METHOD}-seed{seed}-{objective}"
        curve = prune(
            work / f"{METHOD}-seed{seed}", KEEP, Pruning(structured=True, finetune=FINETUNE, objective=objective),
            out=folder, seed=seed, device="cpu",
        )  # fmt: skip
        for row in curve["rows"][1:]:
            weights = folder / f"keep-{row['keep']:.2f}" / "model.safetensors"
            report = export(weights, folder / f"export-{row['keep']:.2f}", ["plain"], repeats=REPEATS)
            masked = load_classifier(weights, device="cpu")
            small = shrink(masked, data.test.x[:2].float() / 255).net
            found.append(
                {"objective": objective, "keep": row["keep"], "masked": short(row["scores"])}
                | {"cut": short(evaluate(small, data, device="cpu"))}
                | {"difference_on_test": apart(masked.eval(), small.eval(), data.test.x)}
                | {k: report[k] for k in ("parameters", "macs", "bytes", "latency_ms", "difference", "checks")}
            )
            print(objective, row["keep"], round(row["scores"]["unbiased"], 2), report["latency_ms"], flush=True)
    run = runs[METHOD]
    row = {
        "method": METHOD, "data": run.data, "net": run.net, "seed": seed, "n": run.n, "labels_used": run.labels_used,
        "erm": short(runs["erm"].scores), "before": short(run.scores), "after": found, "settings": run.settings,
        "finetune": FINETUNE, "versions": run.versions,
        "wall_seconds": round(time.time() - started, 1), **stamp(),
    }  # fmt: skip
    put(path, row)
    return f"{path.name}: {row['wall_seconds']} s"


def times(own, batch, side):
    """The mean time of a batch, and of a cut network how many times less that is."""
    taken = [r["latency_ms"][batch] for r in own]
    mean = f"{statistics.mean(t[side] for t in taken):.2f} ms"
    return mean if side == "before" else f"{mean} ({statistics.mean(t['before'] / t['after'] for t in taken):.1f}x)"


def table(found):
    """What is left, and what it costs, by share and way of fine-tuning."""
    lines = [
        "| channels kept | fine-tuned | parameters | MACs | file | batch of 1 | batch of 64 | unbiased | conflicting |"
    ]
    lines += ["| --: | :-- | --: | --: | --: | --: | --: | --: | --: |"]

    cells = [r for row in found for r in row["after"]]
    first = [r for r in cells if r["objective"] == "own" and r["keep"] == KEEP[0]]
    one = first[0]
    scores = [spread([row["before"][k] for row in found]) for k in ("unbiased", "conflicting")]
    lines.append(
        f"| all | | {one['parameters']['before']:,} | {one['macs']['before'] / 1e6:.2f} M | "
        f"{one['bytes']['before'] / 1e3:,.0f} kB | {times(first, '1', 'before')} | {times(first, '64', 'before')} | "
        f"{' | '.join(scores)} |"
    )
    for objective in ("own", "plain"):
        for keep in KEEP:
            own = [r for r in cells if (r["objective"], r["keep"]) == (objective, keep)]
            scores = [spread([r["cut"][k] for r in own]) for k in ("unbiased", "conflicting")]
            one, named = own[0], "as trained" if objective == "own" else "plain"
            lines.append(
                f"| {100 * keep:.0f} % | {named} | "
                f"{one['parameters']['after']:,} | {one['macs']['after'] / 1e6:.2f} M | "
                f"{one['bytes']['after'] / 1e3:,.0f} kB ({one['bytes']['before'] / one['bytes']['after']:.1f}x) | "
                f"{times(own, '1', 'after')} | {times(own, '64', 'after')} | {' | '.join(scores)} |"
            )
    erm = spread([row["erm"]["unbiased"] for row in found]), spread([row["erm"]["conflicting"] for row in found])
    seeds = ", ".join(str(row["seed"]) for row in found)
    differ, probed = (max(r[k] for r in cells) for k in ("difference_on_test", "difference"))
    words = (
        f"`conv3` trained by `{METHOD}` on 40,000 images of Colored MNIST (pgd family, 5 % conflicting) for 3 epochs; "
        f"channels removed by magnitude, then fine-tuning of {FINETUNE:g} times that length. ERM with the same "
        f"settings has unbiased {erm[0]}, conflicting {erm[1]}. Scores are of the cut network, in percent, n = "
        f"{found[0]['n']:,} test images, mean ± standard deviation over seeds {seeds}. Its logits "
        f"differ from those of the masked network by at most {differ:.1g} on them, and by {probed:.1g} on noise "
        f"far outside the range of pixels, where logits are above 1,000. Times: medians of {REPEATS} forward passes "
        "on one CPU thread, large and small network taking turns (in brackets: times less, mean over seeds), "
        f"on a machine that was also used otherwise. Measured {max(row['date'] for row in found)}."
    )
    return "\n".join([*lines, "", words])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "shrunk", help="where the runs are kept")
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    given = parser.parse_args()
    if not given.draw:
        for seed in SEEDS:
            print(measure(seed, given.work), flush=True)
    PAGE.write_text(fill(PAGE.read_text(), {"shrunk": table(rows("shrunk"))}))
