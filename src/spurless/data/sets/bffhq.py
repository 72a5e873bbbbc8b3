"""BFFHQ, biased FFHQ: young and old faces, gender as the bias.

Input     faces; size 224 by default (DisEnt, PGD; DCWP takes 128).
Label     young (10 to 29 years) or old (40 to 59).
Bias      gender. Aligned are young women and old men.
Splits    train 19,104 aligned + 96 conflicting (0.5 %), val 1,000, test 1,000, of which 500 conflict.
Citation  E. Kim, J. Lee, J. Choo. BiaSwap: removing dataset bias with bias-tailored swapping augmentation. ICCV 2021;
          distributed with J. Lee et al., Learning debiased representation via disentangled feature augmentation,
          NeurIPS 2021 (github.com/kakaoenterprise/Learning-Debiased-Disentangled). Faces: T. Karras et al., FFHQ, 2019.
Licence   as FFHQ: CC BY-NC-SA 4.0.
Open      File names end in _<age>_<gender> as digits; that 0 is young and female follows from the papers' pairs and is
          not written down. PGD's text has gender as the target and age as the bias (data.target=gender); the aligned
          images are the same either way. DisEnt and DCWP's table 1 report the conflicting half of the test images, PGD
          and BiasAdv all of them; both are in every result here. PGD names its augmentation without values.
Files     bffhq/0.5pct/{align,conflict}/<class>/*.png, bffhq/valid/*, bffhq/test/* under the data root.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import torch

from spurless.core.augment import preset
from spurless.core.data import Bundle, Images
from spurless.core.errors import UserError
from spurless.core.recipe import Recipe
from spurless.data.ingest import collection, images
from spurless.data.ingest.bundle import of_splits
from spurless.data.ingest.layouts import from_names
from spurless.data.ingest.problems import Problems
from spurless.data.ingest.splits import SPLITS

NAMES = {"age": ("young", "old"), "gender": ("female", "male")}
PUBLISHED = {"train": (19_104, 96), "val": None, "test": (500, 500)}  # (aligned, conflicting)
SOURCE = "github.com/kakaoenterprise/Learning-Debiased-Disentangled"


def load(
    root: Path | None = None,
    *,
    size: images.Size = 224,
    target: Annotated[Literal["age", "gender"], "what is predicted; the other one is the bias"] = "age",
    ratio: Annotated[str, "the folder with align and conflict"] = "0.5pct",
    cache: images.UseCache = True,
    skip_broken: images.SkipBroken = False,
) -> Bundle:
    """BFFHQ, from the folders as DisEnt distributes them."""
    folder = collection.find_collection(root, ["bffhq", "BFFHQ"], ["valid", "test"], SOURCE)
    bases = sorted(path.parent.name for path in folder.glob("*/align"))
    problems = Problems()
    listing = from_names(folder, bases, ratio, problems)
    problems.stop("bffhq")
    if {*listing.labels, *(gender for (gender,) in listing.values)} != {"0", "1"} or set(listing.splits) != set(SPLITS):
        raise UserError(f"{folder} is not BFFHQ as distributed: train, valid and test files end in _<0 or 1>_<0 or 1>.")
    splits, notes = {}, []
    for split in SPLITS:
        rows = listing.coded(split)
        if target == "gender":
            rows = [(name, gender, age) for name, age, gender in rows]
        splits[split] = collection.to_split(folder, rows, images.Frame(size))
        aligned = sum(y == a for _, y, a in rows)
        if PUBLISHED[split] not in (None, (aligned, len(rows) - aligned)):
            notes.append(f"{split} holds {aligned:,} aligned + {len(rows) - aligned:,} conflicting, not as published")
    splits, more = collection.read_splits(splits, "bffhq", cache, skip_broken)
    bias = "gender" if target == "age" else "age"
    return of_splits(
        "bffhq",
        splits,
        classes=NAMES[target],
        attributes=(bias,),
        values=(NAMES[bias],),
        aligned=(torch.eye(2, dtype=torch.bool),),
        inputs=Images(images.CIFAR_MEAN, images.CIFAR_STD, augment=preset("pgd_photos")),  # DisEnt, DCWP and PGD alike
        net="resnet18",
        recipe=Recipe("adam", 1e-4, schedule="step", step_every=32, batch_size=64, epochs=160),  # PGD, table 6
        notes=(*notes, *more),
    )
