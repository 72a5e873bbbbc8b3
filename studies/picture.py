"""The pictures of the README and of docs/concepts.md, drawn from kept pages and rows and from two trainings.

    python -m studies.picture          # trains (half a minute), writes results/picture.jsonl and the pictures
    python -m studies.picture --draw   # those alone which need no training: the birds and the groups

The birds are those of the gallery's audit of Waterbirds. For the digits plain training and PGD see the same 3,500, 98 %
of which have their own digit's colour. Then every test digit is painted in another digit's colour, with nothing else
changed: an answer that becomes that digit's was the colour's.
"""

import argparse
import base64
import io
import re
import statistics
import time

import torch
from PIL import Image

from spurless import fit, load_data
from spurless.core.stats import wilson
from spurless.data.sets.colored_digits import COLORS
from studies.rows import RESULTS, ROOT, named, put_all

DATA = {"name": "colored_digits", "rho": 0.02}
SHOWN = {"erm": "plain training", "pgd": "PGD, no colour labels"}
INK = {"erm": "#D55E00", "pgd": "#0072B2"}
DOCS = ROOT / "docs"


def in_color_of(x, digit):
    """Digits in the colour of a digit; what they are is in their brightest channel, divided by its own colour."""
    grey = x.float().amax(1, keepdim=True)  # (n, 1, 28, 28)
    grey = grey / grey.amax((1, 2, 3), keepdim=True).clamp_min(1)
    return (grey * torch.tensor(COLORS[digit]).view(1, 3, 1, 1)).round().to(torch.uint8)


def measured(result, data):
    """Accuracy by kind, and how often exchanging the colour alone makes the answer that colour's digit."""
    test = data.test
    own = torch.stack([in_color_of(x[None], int(y))[0] for x, y in zip(test.x, test.y, strict=True)])
    other = (test.y + 3) % 10
    swapped = torch.stack([in_color_of(x[None], int(o))[0] for x, o in zip(test.x, other, strict=True)])
    names = result.classes
    said = {kind: [names.index(p) for p in result.predict(x)] for kind, x in (("own", own), ("swapped", swapped))}
    right = [i for i, y in enumerate(test.y.tolist()) if said["own"][i] == y]
    followed = sum(said["swapped"][i] == int(other[i]) for i in right)
    scores = result.scores
    figures = {k: [scores[k], *scores["intervals"][k]] for k in ("unbiased", "aligned", "conflicting")}
    low, high = wilson(followed, len(right))
    return {
        "method": result.method,
        "seed": result.seed,
        "n": result.n,
        "conflicting_n": scores["n"]["conflicting"],
        "labels_used": result.labels_used,
        "selection": result.selection,
        "scores": figures,
        "colour_followed": [100 * followed / len(right), 100 * low, 100 * high],
        "colour_n": len(right),
        "seconds": round(result.seconds),
        "date": time.strftime("%Y-%m-%d"),
    }


def point(path, results, rows, data):
    """One digit in two colours with the answers of both models, and their accuracies as bars."""
    plt = pyplot()
    pick, digit, other = shown(results, data)
    figure = plt.figure(figsize=(9.6, 3.5), dpi=120)
    for k, color in enumerate((digit, other)):
        axes = figure.add_axes((0.02 + 0.2 * k, 0.37, 0.175, 0.48))
        x = in_color_of(data.test.x[pick : pick + 1], color)
        axes.imshow(x[0].permute(1, 2, 0).numpy())
        axes.set_axis_off()
        title = f"a {digit} in its usual colour" if color == digit else f"the same, in the colour of {other}"
        axes.set_title(title, fontsize=9.5)
        for line, (name, result) in enumerate(results.items()):
            answer = result.predict(x)[0]
            mark = "✓" if answer == str(digit) else "✗"
            where = (0.11 + 0.2 * k, 0.25 - 0.12 * line)
            words = f"{SHOWN[name].partition(',')[0]}: “{answer}” {mark}"
            figure.text(*where, words, ha="center", fontsize=11, color=INK[name])
    axes = figure.add_axes((0.56, 0.2, 0.42, 0.6))
    kinds = (("aligned", "usual colour"), ("conflicting", "other colour"))
    for k, row in enumerate(rows.values()):
        for j, (kind, _) in enumerate(kinds):
            value, low, high = row["scores"][kind]
            at = j + 0.38 * k - 0.19
            axes.barh(at, value, 0.34, color=INK[row["method"]], label=SHOWN[row["method"]] if j == 0 else None)
            axes.plot([low, high], [at, at], color="black", lw=1.2)
            axes.text(high + 1.5, at, f"{value:.0f} %", va="center", fontsize=10)
    axes.set_yticks(range(len(kinds)), [words for _, words in kinds])
    axes.invert_yaxis()
    axes.set_xlim(0, 112)
    axes.set_xticks(range(0, 101, 25))
    axes.set_xlabel(f"test accuracy in percent, 95 % CI, n = {rows['erm']['n']:,}", fontsize=9)
    axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=2, frameon=False, fontsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, facecolor="white")


def shown(results, data):
    """The first test digit, and a digit whose colour it is given, where plain training follows the colour and PGD does
    not: an example that is typical of the measured shares, not evidence."""
    for i, digit in enumerate(data.test.y.tolist()):
        painted = torch.cat([in_color_of(data.test.x[i : i + 1], color) for color in range(10)])
        plain, pgd = (results[name].predict(painted) for name in ("erm", "pgd"))
        for other in range(10):
            follows = other != digit and (plain[digit], plain[other]) == (str(digit), str(other))
            if follows and pgd[digit] == pgd[other] == str(digit):
                return i, digit, other
    raise SystemExit("no test digit shows the difference")


def groups(path, data, digits=(0, 1, 3, 6)):
    """Four classes by four colours, with the number of training samples of each group."""
    plt = pyplot()
    figure, grid = plt.subplots(len(digits), len(digits), figsize=(6, 6.3), dpi=110)
    names = data.values[0]
    for i, digit in enumerate(digits):
        example = next(x for x, y in zip(data.test.x, data.test.y, strict=True) if int(y) == digit)
        for j, color in enumerate(digits):
            axes = grid[i][j]
            axes.imshow(in_color_of(example[None], color)[0].permute(1, 2, 0).numpy())
            n = int(((data.train.y == digit) & (data.train.a[:, 0] == color)).sum())
            axes.set_title(f"n = {n}", fontsize=9, color="#0072B2" if i == j else "#D55E00", pad=3)
            axes.set_xticks([])
            axes.set_yticks([])
            for spine in axes.spines.values():
                spine.set(color="#0072B2" if i == j else "#D55E00", linewidth=3)
            if i == len(digits) - 1:
                axes.set_xlabel(names[color])
            if j == 0:
                axes.set_ylabel(f"class {digit}", fontsize=10)
    figure.suptitle("blue: aligned groups   orange: conflicting groups", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, facecolor="white")


BIRDS = {"aligned": "Northern_Fulmar_0058", "conflicting": "Red_Faced_Cormorant_0026"}
WATERBIRDS = {"erm": "plain training", "crossfit": "crossfit, no label of the place"}


def birds(path):
    """Two waterbirds with what the audit's model looked at, and the accuracy of plain training and of crossfit."""
    plt = pyplot()
    page = (DOCS / "examples" / "waterbirds.html").read_text(encoding="utf-8")
    land, water = re.search(r"right on (\d+)\s% of .{1,5}waterbird.* and on (\d+)\s% with", page).groups()
    figure = plt.figure(figsize=(7.2, 3.9), dpi=110)
    captions = (("aligned", f"waterbird at sea:\n{water} % right"), ("conflicting", f"in the woods:\n{land} % right"))
    for k, (kind, words) in enumerate(captions):
        found = re.search(rf'alt="waterbird, {kind}: [^"]*{BIRDS[kind]}', page).start()
        for j, at in enumerate((page.rindex("base64,", 0, found), page.index("base64,", found))):
            raw = base64.b64decode(page[at + len("base64,") : page.index('"', at)])
            axes = figure.add_axes((0.02 + 0.22 * k, 0.47 - 0.39 * j, 0.21, 0.375))
            axes.imshow(Image.open(io.BytesIO(raw)).convert("RGB"))
            axes.set_axis_off()
        color = INK["pgd"] if kind == "aligned" else INK["erm"]
        figure.text(0.125 + 0.22 * k, 0.87, words, ha="center", fontsize=11, color=color)
    figure.text(0.235, 0.015, "below: what the model looked at", ha="center", fontsize=10)
    axes = figure.add_axes((0.6, 0.17, 0.38, 0.62))
    kinds = (("average", "all"), ("worst_group", "worst\ngroup"))
    for k, (name, words) in enumerate(WATERBIRDS.items()):
        own = [row for row in named(RESULTS / "crossfit").values() if row.get("cell") == f"waterbirds-{name}"]
        for j, (kind, _) in enumerate(kinds):
            value, at = statistics.mean(row["scores"][kind] for row in own), j + 0.38 * k - 0.19
            color = INK["erm" if name == "erm" else "pgd"]
            axes.barh(at, value, 0.34, color=color, label=words if j == 0 else None)
            axes.text(value + 1.5, at, f"{value:.0f} %", va="center", fontsize=11)
    axes.set_yticks(range(len(kinds)), [words for _, words in kinds], fontsize=11)
    axes.invert_yaxis()
    axes.set_xlim(0, 105)
    axes.set_xlabel(f"accuracy, {len(own)} seeds, n = {own[0]['n']:,}", fontsize=10)
    axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), frameon=False, fontsize=10)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, facecolor="white")


def pyplot():
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    return plt


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true", help="the pictures that need no training")
    asked = parser.parse_args()
    data = load_data(DATA)
    birds(DOCS / "birds.png")
    groups(DOCS / "groups.png", data)
    if asked.draw:
        return
    results = {name: fit(name, data, seed=0, device="cpu", out=ROOT / "runs" / "picture" / name) for name in SHOWN}
    rows = {name: measured(result, data) for name, result in results.items()}
    put_all(RESULTS / "picture", rows)
    point(DOCS / "point.png", results, rows, data)


if __name__ == "__main__":
    main()
