"""BAR, Biased Action Recognition: six actions, the place where they typically happen as the bias.

Input     photographs; size 224 by default (PGD).
Label     climbing, diving, fishing, racing, throwing, vaulting ("pole vaulting" in the file names).
Bias      the place. Its label is not per image but by construction: a training image shows the place that is typical
          of its action (rock wall, underwater, water surface, paved track, playing field, sky), a test image any other
          ("elsewhere"). So every training image is aligned, and every test image conflicting.
Splits    train 326 520 163 336 317 279 = 1,941, test 105 159 42 132 85 131 = 654, in the order of the labels.
          As in PGD, 195 training images, drawn at random, are for validation: 1,746 / 195 / 654.
          data.conflicting=1pct or 5pct: 17 or 94 test images, drawn at random, are moved into training (IRMCon,
          BiasAdv). data.val=test: the validation split is a fifth of the remaining test images, as in IRMCon.
Citation  J. Nam, H. Cha, S. Ahn, J. Lee, J. Shin. Learning from failure: training debiased classifier from biased
          classifier. NeurIPS 2020. Files: github.com/alinlab/BAR.
Licence   none stated; photographs from imSitu, Stanford 40 Actions and Creative Commons sources (metadata.json).
Open      Which images PGD validated on, and which IRMCon moved, is not published: drawn here by data.seed. IRMCon takes
          the first fifth of its own list of test images; here a fifth of a shuffled one, as an alphabetical list would
          hold two actions only. PGD names its augmentation without values (see the preset pgd_photos), and does not
          say whether its ResNet-18 was pretrained, nor how images became 224 px; here shorter side, then centre.
Files     BAR/train/<class>_<n>.<jpg or png> and BAR/test/... under the data root.
"""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Annotated, Literal

import torch

from spurless.core.augment import preset
from spurless.core.data import Bundle, Images
from spurless.core.errors import UserError
from spurless.core.recipe import Recipe
from spurless.core.settings import Range
from spurless.data.ingest import collection, images
from spurless.data.ingest.bundle import of_splits
from spurless.data.ingest.files import files_in, is_image
from spurless.data.ingest.splits import shuffled

CLASSES = ("climbing", "diving", "fishing", "racing", "throwing", "vaulting")
PLACES = ("rock wall", "underwater", "water surface", "paved track", "playing field", "sky", "elsewhere")
ELSEWHERE = len(CLASSES)
PUBLISHED = {"train": 1_941, "test": 654}
MOVED = {"none": 0, "1pct": 17, "5pct": 94}
Row = tuple[str, int, int]  # file name, label, place


def load(
    root: Path | None = None,
    *,
    size: images.Size = 224,
    resize: images.HowResized = "crop",
    conflicting: Annotated[Literal["none", "1pct", "5pct"], "move 17 or 94 test images into training"] = "none",
    val: Annotated[Literal["train", "test"], "validate on a tenth of train (PGD) or fifth of test (IRMCon)"] = "train",
    seed: Annotated[int, "of the images that are moved, and of the validation split", Range(0)] = 0,
    cache: images.UseCache = True,
    skip_broken: images.SkipBroken = False,
) -> Bundle:
    """BAR, from its folders of images."""
    folder = collection.find_collection(root, ["BAR", "bar"], ["train", "test"], "github.com/alinlab/BAR")
    train, test = list_rows(folder, "train"), list_rows(folder, "test")
    notes = [
        f"BAR/{split} holds {len(rows):,} images; {PUBLISHED[split]:,} are published"
        for split, rows in (("train", train), ("test", test))
        if len(rows) != PUBLISHED[split]
    ]
    moved, test = draw(test, MOVED[conflicting], seed)
    if val == "train":
        held_out, train = draw(train, len(train) - int(0.9 * len(train)), seed)
    else:
        held_out, test = draw(test, int(0.2 * len(test)), seed)
    rows = {"train": train + moved, "val": held_out, "test": test}
    splits = {split: collection.to_split(folder, of, images.Frame(size, resize)) for split, of in rows.items()}
    splits, more = collection.read_splits(splits, "bar", cache, skip_broken)
    return of_splits(
        "bar" if conflicting == "none" else f"bar {conflicting}",
        splits,
        classes=CLASSES,
        attributes=("place",),
        values=(PLACES,),
        aligned=(torch.eye(len(CLASSES), len(PLACES), dtype=torch.bool),),
        inputs=Images(images.CIFAR_MEAN, images.CIFAR_STD, augment=preset("pgd_photos")),  # PGD, appendix B
        net="resnet18",
        recipe=Recipe(  # PGD, table 6
            "sgd", 5e-4, momentum=0.9, weight_decay=1e-5, schedule="step", step_every=20, batch_size=16, epochs=100
        ),
        notes=(*notes, *more),
    )


def list_rows(folder: Path, split: str) -> list[Row]:
    """The images of train or test, by class and number."""
    rows, unknown = [], []
    for file in filter(is_image, files_in(folder / split)):
        action, _, number = PurePath(file).stem.rpartition("_")
        action = action.removeprefix("pole ")
        if action in CLASSES and number.isdigit():
            y = CLASSES.index(action)
            rows.append((y, int(number), f"{split}/{file}"))
        else:
            unknown.append(f"{split}/{file}")
    if unknown or not rows:
        raise UserError(
            f"{folder / split} should hold images named <class>_<n>, with the classes {', '.join(CLASSES)}; "
            f"it holds {', '.join(unknown[:5]) or 'no image'}."
        )
    return [(name, y, y if split == "train" else ELSEWHERE) for y, _, name in sorted(rows)]


def draw(rows: list[Row], k: int, seed: int) -> tuple[list[Row], list[Row]]:
    """`k` of the samples, drawn by the seed, and the others; both in their old order.

    >>> drawn, others = draw([("a", 0, 0), ("b", 0, 0), ("c", 1, 1)], 1, seed=0)
    >>> len(drawn), len(others)
    (1, 2)
    """
    chosen = set(shuffled([name for name, _, _ in rows], seed)[:k])
    return [r for i, r in enumerate(rows) if i in chosen], [r for i, r in enumerate(rows) if i not in chosen]
