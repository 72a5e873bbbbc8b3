"""CIFAR-10 as it is: what a method costs where there is no known bias (PGD, table 12)."""

from pathlib import Path
from typing import Annotated

from spurless.core.augment import Augment
from spurless.core.data import Bundle, Images, Split
from spurless.core.recipe import RECIPES
from spurless.core.settings import Range
from spurless.data import sources
from spurless.data.sets.corrupted_cifar10 import MEAN, STD


def load(
    val: Annotated[int, "training pictures held out for validation", Range(0, 49_000)] = 0,
    root: Path | None = None,
) -> Bundle:
    """CIFAR-10 (Krizhevsky 2009; no licence stated).

    - Input: 3 x 32 x 32. Label: one of ten classes. Bias: none is known, so that there are no groups to be scored by.
    - Splits: 50,000 / - / 10,000, the official ones. There is no validation split unless `val` asks for one: the last
      pictures of the training files.
    - Open in PGD's paper, and chosen here: batches of 128, 200 epochs, a crop and a flip.
    """
    x, y = sources.cifar10(root, train=True)
    cut = sources.left_for_training(len(y), val)
    return Bundle(
        "cifar10",
        Split(x[:cut], y[:cut]),
        Split(x[cut:], y[cut:]) if val else None,
        Split(*sources.cifar10(root, train=False)),
        classes=sources.CIFAR10_CLASSES,
        inputs=Images(MEAN, STD, augment=Augment(pad=4, flip=True)),
        net="resnet18",
        recipe=RECIPES["pgd-cifar10"],
        settings={"val": val},
    )
