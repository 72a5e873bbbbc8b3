"""Five Gaussian classes, some of whose training labels are wrong: by a fixed rule or at random."""

import math
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch

from spurless.core.data import Bundle, Split
from spurless.core.recipe import Recipe
from spurless.core.settings import Range
from spurless.data.ingest import draw as _draw

CLASSES = ("east", "north", "west", "south", "centre")
MEANS = np.array([[math.cos(k * math.pi / 2), math.sin(k * math.pi / 2)] for k in range(4)] + [[0.0, 0.0]])  # (5, 2)


def load(
    root: Path | None = None,
    labels: Annotated[
        Literal["structured", "random"], "a wrong label is the same for all samples of a class, or any other class"
    ] = "structured",
    noise: Annotated[float, "share of wrong training labels", Range(0, 1)] = 0.2,
    spread: Annotated[float, "standard deviation of each class; the means are 1 apart", Range(0)] = 0.2,
    n: Annotated[int, "training samples", Range(1)] = 100,
    n_val: Annotated[int, "validation samples, with wrong labels like the training samples", Range(0)] = 500,
    n_test: Annotated[int, "test samples, with right labels", Range(0)] = 2_000,
    seed: Annotated[int, "which random dataset"] = 0,
) -> Bundle:
    """Points in the plane around five means, with wrong labels in training.

    Input    (2,) float32: four means a quarter turn apart on the unit circle, one at the origin; equal variance.
    Label    the class as labelled. An exact share `noise` of each class's samples is mislabelled: structured, class i
             as i + 1 (mod 5), so each class replaces one other; random, as any of the four others.
    Bias     there is no second feature, so the attribute is the class a point was drawn from. A sample is conflicting
             when its label is wrong; finding the conflicting samples is finding the wrong labels.
    Splits   train 100, val 500 with the same share of wrong labels, test 2,000 without any. So no test sample
             conflicts, and the test accuracy is that against the true class.
    Citation Malik and Fern, "Frequency based pruning improves latent identification and generalization" (AVP),
             manuscript, section 4: its biased (structured) and unbiased (random) data.
    Licence  generated here: that of this package.
    Choices  the manuscript leaves open the variance, the share of wrong labels, the counts, the rule of the structured
             labels, the learning rate and the batch. Its network (net=mlp, net.widths=[32,32], net.activation=tanh)
             is trained to no training error before it is pruned: 100 samples, because with these it gets there in fewer
             than 1,000 epochs, and with 200 not in 3,000.

    >>> load(n=5, noise=0, spread=0).train.x.abs().sum()
    tensor(4.)
    """
    settings = _draw.checked(load, locals())

    def split(name: str, count: int, noise: float) -> Split:
        rng = _draw.stream(seed, "gaussians", name)
        true = _draw.balanced(rng, count, 5)
        x = MEANS[true] + spread * rng.standard_normal((count, 2))
        step = np.ones(count, dtype=np.int64) if labels == "structured" else rng.integers(1, 5, size=count)
        y = (true + step * _draw.exact_share(rng, true, noise)) % 5
        return Split(torch.from_numpy(x).float(), torch.from_numpy(y), torch.from_numpy(true)[:, None])

    return Bundle(
        "gaussians",
        *_draw.splits(split, (n, n_val, n_test), noise, 0.0),
        classes=CLASSES,
        attributes=("true class",),
        values=(CLASSES,),
        aligned=(torch.eye(5, dtype=torch.bool),),
        net="mlp",
        recipe=Recipe(optimizer="adam", lr=1e-2, batch_size=100, epochs=2_000, until_accuracy=100),
        settings=settings,
    )
