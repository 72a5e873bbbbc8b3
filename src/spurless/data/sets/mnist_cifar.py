"""MNIST-CIFAR, also called dominoes: a CIFAR-10 picture (the target) with an MNIST digit (the bias).

Input: uint8 (3, 64, 32): the digit, padded by 2 px to 32 and grey, above the picture. Label: the CIFAR-10 class. Bias:
digit i goes with class i, except in a share rho of the training images, where it is one of the other nine. Splits:
50,000 / - / 10,000 from the canonical ones; in the test split 90 % conflict, which is no bias.

The ten-class form is that of the paper on large learning rates: rho 0.1 (0.25 for its fully connected network), SGD
with batches of 100 and a constant rate up to 100 % training accuracy. Shah et al. 2020 put the digit above (core =
bottom, the default here), Qiu et al. 2023 the picture (core = top); that paper does not say. Also left open, and chosen
here: exactly round(rho n) conflicting images, drawn at random; the digit's image drawn with replacement from the same
split (for validation from the last sixth of MNIST's training file, for training then from the rest); no
standardisation; learning rate 0.1 and at most 100 epochs. There is no validation split unless val asks for one: the
last pictures of the training files, biased alike.

Citations: Shah et al. 2020; Krizhevsky 2009 (CIFAR-10, no licence stated), LeCun et al. 2010 (MNIST).
"""

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from spurless.core.data import Bundle, Split
from spurless.core.recipe import Recipe
from spurless.core.settings import Range
from spurless.data import regions, sources
from spurless.data.ingest.bundle import of_splits
from spurless.data.sets.colored_mnist import DIGITS, by_count, pick

Side = Literal["top", "bottom"]


def load(
    rho: Annotated[float, "share of bias-conflicting training images; 0.9 has no bias", Range(0, 1)] = 0.1,
    core: Annotated[Side, "where the CIFAR-10 picture, which is to be predicted, stands"] = "bottom",
    val: Annotated[int, "training pictures held out for validation", Range(0, 49_000)] = 0,
    seed: Annotated[int, "of the pairs that are drawn", Range(0)] = 0,
    root: Path | None = None,
) -> Bundle:
    """CIFAR-10 pictures (the target) joined with MNIST digits, which give them away."""
    pictures, labels = sources.cifar10(root, train=True)
    images, digits = sources.mnist(root, train=True)
    cut = sources.left_for_training(len(labels), val)
    border = len(digits) - len(digits) // 6 if val else len(digits)
    parts = {
        "train": (pictures[:cut], labels[:cut], images[:border], digits[:border], rho),
        "val": (pictures[cut:], labels[cut:], images[border:], digits[border:], rho),
        "test": (*sources.cifar10(root, train=False), *sources.mnist(root, train=False), 0.9),
    }
    splits = {}
    for number, (name, (picture, y, image, digit, share)) in enumerate(parts.items()):
        if len(y):
            rng = np.random.default_rng([seed, number])
            a = by_count(y, round(share * len(y)), rng)
            grey = pad(image, (2, 2, 2, 2))[pick(digit, a, rng), None].expand(-1, 3, -1, -1)  # (n, 3, 32, 32)
            x = torch.cat((grey, picture) if core == "bottom" else (picture, grey), dim=2)  # (n, 3, 64, 32)
            splits[name] = Split(x, y, a[:, None])
    return of_splits(
        "mnist_cifar",
        splits,
        classes=sources.CIFAR10_CLASSES,
        attributes=("digit",),
        values=(DIGITS,),
        aligned=(torch.eye(10, dtype=torch.bool),),
        net="resnet18",
        recipe=Recipe("sgd", lr=0.1, momentum=0.0, batch_size=100, epochs=100, until_accuracy=100),
        settings={"rho": rho, "core": core, "val": val, "seed": seed},
        regions=_regions,
    )


def _regions(data: Bundle, split: str, idx: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    return regions.halves(data, idx, data.settings["core"])
