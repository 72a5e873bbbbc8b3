"""How fast the packaged backbones turn photographs and texts into features on a CPU, beside plain eager PyTorch.

    python -m studies.features [--images 256] [--texts 512] [--rounds 3] [--out results/speed/features]

EfficientNet-Lite0 on BAR's photographs at 224 px, MiniLM on film reviews of up to 256 tokens. "Plain" asks the network
for batches of 32 in the order of the samples, in evaluation mode and without gradients; the others are what `embed`
does. The ways take turns in one process; seconds of the processor, which a busy machine does not stretch as it does the
wall clock. "Heads" is how many answers of a logistic regression, fitted to half of the features, are the same for the
other half as those of one fitted to the plain ones. Preparing a way is not in the rate and stands beside it.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import spurless  # noqa: F401  before torch: it lets waiting threads sleep instead of spin

import numpy as np  # isort: skip
import torch
from torch import Tensor

from spurless import load_data
from spurless.compress.frozen import WAYS, Frozen
from spurless.core.data import Bundle, Split
from spurless.core.recipe import Recipe
from spurless.nets import build
from spurless.nets.outputs import Inputs, outputs
from studies.metrics import machine
from studies.rows import put

BATCH, CPU = 32, torch.device("cpu")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="the table and the row: results/TABLE/NAME")
    args = parser.parse_args()
    rows = of_images(args.images, args.rounds) + of_texts(args.texts, args.rounds)
    print("| backbone | way | a second | of plain | to prepare, s | largest difference | heads |")
    print("| :-- | :-- | --: | --: | --: | --: | --: |")
    for row in rows:
        print(
            f"| {row['net']} | {row['way']} | {row['rate']:.1f} | {row['ratio']:.2f} | {row['prepare']:.1f} | "
            f"{row['difference']:.0e} | {row['heads']} |"
        )
    if args.out:
        put(args.out, machine() | {"how": __doc__.split("\n\n")[2], "rows": rows})


def of_images(n: int, rounds: int) -> list[dict[str, Any]]:
    data = load_data({"name": "bar"})
    split = first(data, n)
    net = build({"name": "efficientnet_lite0", "pretrained": True}, data.shape, len(data.classes)).eval()
    recipe = Recipe(channels_last=False, eval_batch_size=BATCH)
    inputs = Inputs(data, recipe, CPU)
    ways: dict[str, tuple[Callable[[], Tensor], float]] = {"plain": (lambda: plain(net, split, inputs), 0.0)}
    for how, make in WAYS.items():
        start = time.process_time()
        with torch.no_grad():
            quick = Frozen(make(net.encoder, inputs(split.x[:2])), how)
        took = time.process_time() - start
        ways[how] = (lambda quick=quick: outputs(quick, split, inputs, recipe, CPU, features=True)), took
    return in_turns("efficientnet_lite0", ways, split.y, rounds)


def of_texts(n: int, rounds: int) -> list[dict[str, Any]]:
    data = load_data({"name": "movie_reviews", "tokenizer": "minilm", "length": 256})
    split = first(data, n)
    net = build({"name": "minilm", "pretrained": True}, data.shape, len(data.classes)).eval()
    recipe = Recipe(channels_last=False, eval_batch_size=BATCH)
    inputs = Inputs(data, recipe, CPU)
    ways = {
        "plain": ((lambda: plain(net, split, inputs)), 0.0),
        "by length": ((lambda: outputs(net, split, inputs, recipe, CPU, features=True)), 0.0),
    }
    return in_turns("minilm", ways, split.y, rounds)


def first(data: Bundle, n: int) -> Split:
    """n samples of the training split, drawn by a seed."""
    rows = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(0))[:n]
    return Split(data.train[rows], data.train.y[rows])


@torch.no_grad()
def plain(net: Any, split: Split, inputs: Inputs) -> Tensor:
    return torch.cat([net.features(inputs(rows)) for rows in split.x.split(BATCH)])


def in_turns(
    name: str, ways: dict[str, tuple[Callable[[], Tensor], float]], y: Tensor, rounds: int
) -> list[dict[str, Any]]:
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    found: dict[str, Tensor] = {}
    for _ in range(rounds):
        for way, (ask, _) in ways.items():
            start = time.process_time()
            found[way] = ask()
            seconds[way].append(time.process_time() - start)
    reference = heads(found["plain"], y)
    rows = []
    for way, (_, prepare) in ways.items():
        ratio = median(a / b for a, b in zip(seconds["plain"], seconds[way], strict=True))
        same = int((heads(found[way], y) == reference).sum())
        rows.append(
            {
                "net": name, "way": way, "n": len(y), "rate": len(y) / median(seconds[way]), "ratio": ratio,
                "prepare": prepare, "difference": float((found[way] - found["plain"]).abs().max()),
                "largest": float(found["plain"].abs().max()), "heads": f"{same} of {len(reference)}",
            }
        )  # fmt: skip
    return rows


def heads(features: Tensor, y: Tensor) -> np.ndarray:
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    half = len(y) // 2
    scaled = StandardScaler().fit(features[:half]).transform(features)
    return LogisticRegression(max_iter=1000).fit(scaled[:half], y[:half]).predict(scaled[half:])


if __name__ == "__main__":
    main()
