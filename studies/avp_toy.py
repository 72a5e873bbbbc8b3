"""AVP's toy (figure 1 of its manuscript): rows, picture and tables.

    python -m studies.avp_toy             # measure what is missing, then draw; five seeds, on a CPU
    python -m studies.avp_toy --draw      # the picture and the tables of docs/methods/avp.md from the rows

A row is one run: the accuracy on the test points, whose labels are right, and on the training points as labelled, over
the epochs of pruning. Epoch 0 is the dense network. The seed decides the points, the wrong labels and the training.
"""

import spurless  # noqa: F401  # isort: skip  (first: it sets how OpenMP waits before torch is imported)

import argparse
import base64
import io
import math
import statistics
import zlib

from studies.pages import spread
from studies.readme import fill
from studies.rows import RESULTS, ROOT, holds, put, rows

OUT = RESULTS / "avp_toy"
PAGE = ROOT / "docs" / "methods" / "avp.md"
PICTURE = ROOT / "docs" / "avp_toy.png"
SEEDS = range(5)
KINDS = {"structured": "structured", "random": "random"}  # wrong labels
PHASE = {"from_epoch": 2000, "prune_epochs": 1200}
WAYS = {
    "avp": {"name": "avp"},
    "avp-variance": {"name": "avp", "kappa": "variance"},
    "avp-signed": {"name": "avp", "kappa": "signed"},
    "random": {"name": "random_prune"},
    "none": {"name": "random_prune", "chance": 0.0},  # trains on as long, and removes nothing
}
NAMES = {
    "avp": "AVP, `kappa=absolute`",
    "avp-variance": "AVP, `kappa=variance`",
    "avp-signed": "AVP, `kappa=signed`",
    "random": "random",
    "none": "nothing removed",
}
NET = {"name": "mlp", "widths": [32, 32], "activation": "tanh"}
EVERY = 20  # epochs between two looks
SHOWN = (0, 300, 600, 900, 1080, 1200)  # epochs of the boundaries
SIDE, REACH = 121, 1.8  # points of the grid along each side, and how far it goes from the origin
T95 = 2.776  # Student's t for five seeds
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9")


# Measuring


def measure(kind, way, seed):
    """One run, as a row."""
    import torch

    from spurless.bench.one import stamp
    from spurless.core.data import Split
    from spurless.methods.parts.pruning import sparsity
    from spurless.train.session import RunArguments, Session

    path = OUT / f"{kind}-{way}-seed{seed}"
    if holds(path):
        return f"{path.name}: there already"
    torch.set_num_threads(1)
    session = Session(
        RunArguments(
            WAYS[way] | PHASE,
            {"name": "gaussians", "labels": kind, "seed": seed},
            net=NET,
            recipe={
                "optimizer": "adam",
                "lr": 0.01,
                "batch_size": 100,
                "epochs": 2000,
                "until_accuracy": 100,
                "eval_every": 0,
            },
            seed=seed,
            device="cpu",
        )
    )
    data, axis = session.data, torch.linspace(-REACH, REACH, SIDE)
    where = torch.cartesian_prod(axis, axis).flip(1)  # (SIDE², 2): row by row from below, x running fastest
    grid = Split(where, torch.zeros(len(where), dtype=torch.long))
    curve, boundaries, dense = [], {}, {}

    def look(epoch):
        run = session.loop.run
        net = run.modules[0]
        right = {
            n: int((run.outputs(net, s).argmax(1) == s.y).sum())
            for n, s in (("test", data.test), ("train", data.train))
        }
        curve.append(
            {"epoch": epoch, "weights": 100 - sparsity(net), "n": len(data.test)}
            | {k: 100 * v / len(data.splits[k]) for k, v in right.items()}
        )
        if seed == 0 and epoch in SHOWN:
            digits = run.outputs(net, grid).argmax(1).to(torch.uint8).numpy().tobytes()
            boundaries[epoch] = base64.b64encode(zlib.compress(digits, 9)).decode()

    epoch = 0
    for progress in session:
        row = progress.row
        if row and progress.stage == "dense":
            dense = {"epochs": row["epoch"], "train": row["train_accuracy"]}
            if row["reached"] or row["epoch"] == PHASE["from_epoch"]:
                look(0)
        elif row:
            epoch += 1
            if epoch % EVERY == 0:
                look(epoch)
    result = session.result.row() | {"history": [], "cell": f"{kind}-{way}"} | stamp()
    result["scores"] = {"average": result["scores"]["average"]}
    result |= {"kind": kind, "way": way, "dense": dense, "curve": curve, "boundaries": boundaries}
    put(path, result)
    tests = [f"{p['test']:.1f}" for p in curve if p["epoch"] % 200 == 0]
    return f"{path.name}: dense after {dense['epochs']} epochs; test {' '.join(tests)}; {result['seconds']} s"


# Reading


def over_seeds(found, kind, way, field="test"):
    """Epochs, means, and half the width of the 95 % interval of the mean over seeds."""
    curves = [row["curve"] for row in found if (row["kind"], row["way"]) == (kind, way)]
    epochs = [p["epoch"] for p in curves[0]]
    values = [[curve[i][field] for curve in curves] for i in range(len(epochs))]
    half = [T95 * statistics.stdev(v) / math.sqrt(len(v)) for v in values]
    return epochs, [statistics.mean(v) for v in values], half


def table(found):
    """Test accuracy at some epochs, and the best of the means."""
    shown = (0, 300, 600, 900, 1080, 1200)
    lines = ["| wrong labels | removed | " + " | ".join(f"epoch {e}" if e else "dense" for e in shown) + " |"]
    lines += ["| :-- | :-- |" + " --: |" * len(shown)]
    left = {}
    for kind in KINDS:
        for way in WAYS:
            own = [row for row in found if (row["kind"], row["way"]) == (kind, way)]
            at = {e: [next(p for p in row["curve"] if p["epoch"] == e) for row in own] for e in shown}
            lines.append(
                f"| {kind} | {NAMES[way]} | " + " | ".join(spread([p["test"] for p in at[e]]) for e in shown) + " |"
            )
            if way == "avp":
                left[kind] = [statistics.mean(p["weights"] for p in at[e]) for e in shown]
    counts = ", ".join(f"{w:.0f}" for w in left["structured"])
    dense = [row["dense"] for row in found if row["way"] == "avp"]
    done = [d["epochs"] for d in dense if d["train"] == 100]
    words = (
        f"Test accuracy in percent (2,000 points with right labels), mean ± standard deviation over {len(SEEDS)} "
        "seeds, which decide the points, the wrong labels and the training. Weights left at these epochs, of 1,248: "
        f"{counts} %. {len(done)} of {len(dense)} dense networks reached no training error, after {min(done)} to "
        f"{max(done)} epochs. The nearest true mean is right for {spread([nearest(seed) for seed in SEEDS])} %. "
        f"Measured {max(row['date'] for row in found)} on cpu."
    )
    return "\n".join([*lines, "", words])


def nearest(seed):
    """Percent of the test points that are nearest to the mean of their own class: no rule does better."""
    import torch

    from spurless.data.sets.gaussians import MEANS
    from spurless.registry import load_data

    test = load_data({"name": "gaussians", "seed": seed}).test
    guess = torch.cdist(test.x.double(), torch.from_numpy(MEANS)).argmin(1)
    return 100 * float((guess == test.y).double().mean())


def cells_table():
    """Waterbirds and Colored MNIST: the rows of studies/cells/avp.json."""
    found = rows("avp")
    lines = ["| data | method | weights left | unbiased | conflicting | aligned | worst group |"]
    lines += ["| :-- | :-- | --: | --: | --: | --: | --: |"]
    for start, data in (("waterbirds-", "Waterbirds"), ("cmnist-1-", "Colored MNIST, 1 %")):
        for cell in dict.fromkeys(row["cell"] for row in sorted(found, key=order)):
            own = [row for row in found if row["cell"] == cell and cell.startswith(start)]
            if own:
                columns = [
                    spread([r["scores"][k] for r in own]) for k in ("unbiased", "conflicting", "aligned", "worst_group")
                ]
                kappa = own[0]["settings"]["method"].get("kappa", "absolute")
                named = f"`{own[0]['method']}`" + ("" if kappa == "absolute" else f", `kappa={kappa}`")
                named += (
                    ", head left alone" if tuple(own[0]["settings"]["method"].get("layers", ["*"])) != ("*",) else ""
                )
                left = spread([100 - r["sparsity"] for r in own])
                lines.append(f"| {data} | {named} | {left} | " + " | ".join(columns) + " |")
    sizes = {row["data"].split("@")[0]: row["n"] for row in found}
    words = (
        "Percent, mean ± standard deviation over seeds 0, 1, 2, last weights; "
        + ", ".join(f"{name} n = {n:,}" for name, n in sizes.items())
        + " test samples. Waterbirds: an mlp with 256 hidden units on the features of EfficientNet-Lite0 (ImageNet, "
        + "frozen, 160 px), Adam 0.001, decay 0.0001, batches of 128. Colored MNIST: family lff, the mlp 100-100-100, "
        + "Adam 0.001, batches of 256. 20 epochs each, the first 4 without pruning; then 6 % (upper rows) or 12 % "
        + "(lower ones) of all weights at a time. Before each epoch it is drawn with chance 1/2 whether something is "
        + "removed, so how much is left differs from seed to seed (not from method to method). "
        + f"Measured {max(row['date'] for row in found)} on cpu."
    )
    return "\n".join([*lines, "", words])


def order(row):
    method = row["settings"]["method"]
    return method.get("share", 0), method["name"] != "avp", method.get("kappa", "")


# The picture


def draw(found, path):
    import matplotlib

    matplotlib.use("Agg")
    import numpy as np
    from matplotlib import pyplot as plt
    from matplotlib.colors import ListedColormap, to_rgb
    from PIL import Image

    from spurless.registry import load_data

    plt.rcParams.update({"font.size": 8})
    lines = {
        "avp": ("AVP (absolute)", "#0072B2"),
        "avp-signed": ("AVP (signed)", "#009E73"),
        "random": ("random pruning", "#D55E00"),
        "none": ("nothing removed", "#555555"),
    }
    drawn = [(way, kind) for way in ("avp", "avp-signed", "random") for kind in KINDS]
    figure = plt.figure(figsize=(7.4, 10.6), dpi=100, layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(8.3, 2.5))
    panels = above.subplots(len(drawn), len(SHOWN))
    pale = ListedColormap([tuple(1 - 0.42 * (1 - c) for c in to_rgb(colour)) for colour in COLOURS])
    for i, (way, kind) in enumerate(drawn):
        row = next(r for r in found if (r["kind"], r["way"], r["seed"]) == (kind, way, 0))
        data = load_data({"name": "gaussians", "labels": kind, "seed": 0})
        wrong = (data.train.y != data.train.a[:, 0]).numpy()
        for j, epoch in enumerate(SHOWN):
            axes = panels[i, j]
            digits = np.frombuffer(zlib.decompress(base64.b64decode(row["boundaries"][str(epoch)])), np.uint8)
            reach = (-REACH, REACH)
            axes.imshow(
                digits.reshape(SIDE, SIDE), cmap=pale, vmin=-0.5, vmax=4.5, origin="lower", extent=reach * 2,
                interpolation="nearest",
            )  # fmt: skip
            shown = data.test.x[:150].numpy(), data.test.y[:150].numpy()
            axes.scatter(*shown[0].T, s=6, c=[COLOURS[k] for k in shown[1]], linewidths=0)
            x, y = data.train.x.numpy()[wrong], data.train.y.numpy()[wrong]
            axes.scatter(*x.T, s=13, marker="x", c="black", linewidths=1.8)  # a rim, so that they show on any ground
            axes.scatter(*x.T, s=11, marker="x", c=[COLOURS[k] for k in y], linewidths=0.9)
            axes.set(xticks=[], yticks=[], xlim=reach, ylim=reach)
            for side in axes.spines.values():
                side.set_visible(False)
            point = next(p for p in row["curve"] if p["epoch"] == epoch)
            if i == 0:
                axes.set_title("dense" if epoch == 0 else f"epoch {epoch}", fontsize=8)
            axes.set_xlabel(f"{point['test']:.0f} % right", fontsize=7.5, labelpad=1)
        panels[i, 0].set_ylabel(f"{lines[way][0]}\n{kind} mislabelling", fontsize=8)
    for axes, kind in zip(below.subplots(1, 2, sharey=True), KINDS, strict=True):
        for way, (name, colour) in lines.items():
            epochs, mean, half = over_seeds(found, kind, way)
            axes.plot(epochs, mean, color=colour, label=name, linewidth=1.4)
            low, high = (
                [m - h for m, h in zip(mean, half, strict=True)],
                [m + h for m, h in zip(mean, half, strict=True)],
            )
            axes.fill_between(epochs, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.set(xlim=(0, 1200), ylim=(0, 100), xlabel="epochs of pruning", title=f"{kind} mislabelling")
        axes.title.set_fontsize(8)
        axes.grid(alpha=0.25)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    below.axes[0].set_ylabel("test accuracy, %\n(five seeds, 95 % interval)")
    below.axes[0].legend(frameon=False, loc="lower left")
    drawn_at = io.BytesIO()
    figure.savefig(drawn_at)
    Image.open(drawn_at).convert("RGB").quantize(128).save(path, optimize=True)  # a third of the size


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    if not parser.parse_args().draw:
        for seed in SEEDS:
            for kind in KINDS:
                for way in WAYS:
                    print(measure(kind, way, seed), flush=True)
    measured = rows("avp_toy")
    draw(measured, PICTURE)
    PAGE.write_text(fill(PAGE.read_text(), {"avp_toy": table(measured), "avp": cells_table() if rows("avp") else ""}))
