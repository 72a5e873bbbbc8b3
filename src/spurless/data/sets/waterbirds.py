"""Waterbirds: water and land birds (CUB) pasted onto water and land backgrounds (Places).

Input     photographs; size 224 by default, resized to 256 without keeping the aspect ratio, centre cut out (GroupDRO).
Label     landbird or waterbird.
Bias      the background (place): land or water, which agrees with the bird in 95 % of the training images.
Splits    (landbird on land, on water, waterbird on land, on water):
          train 3,498 184 56 1,057 = 4,795; val 467 466 133 133 = 1,199; test 2,255 2,255 642 642 = 5,794.
          Validation and test are balanced in place within each class, so that an average over them is no average over
          the training distribution; GroupDRO's line of papers reweights it to the training groups.
Citation  S. Sagawa, P. W. Koh, T. B. Hashimoto, P. Liang. Distributionally robust neural networks for group shifts.
          ICLR 2020. Birds: C. Wah et al., CUB-200-2011; backgrounds: B. Zhou et al., Places, 2017.
Licence   research and education, not commercial (as stated with the WILDS release).
Open      Some labels of the source are known to be wrong; they are left as they are. GroupDRO trained ResNet-50 from
          ImageNet weights without augmentation, and picked the weights by validation worst-group accuracy; the
          recipe here keeps the last ones unless recipe.selection says otherwise.
Files     waterbird_complete95_forest2water2/metadata.csv and its folders of birds, under the data root.
"""

from __future__ import annotations

from pathlib import Path

import torch

from spurless.core.data import Bundle, Images
from spurless.core.errors import UserError
from spurless.core.recipe import Recipe
from spurless.data.ingest import collection, images
from spurless.data.ingest.bundle import of_splits
from spurless.data.ingest.file_tables import Columns, from_tables
from spurless.data.ingest.problems import Problems
from spurless.data.ingest.splits import SPLITS

PUBLISHED = {  # (label, place) counts, row by row
    "train": [[3498, 184], [56, 1057]],
    "val": [[467, 466], [133, 133]],
    "test": [[2255, 2255], [642, 642]],
}
PLACES = ("waterbird_complete95_forest2water2", "waterbirds/waterbird_complete95_forest2water2", "waterbirds_v1.0")


def load(
    root: Path | None = None,
    *,
    size: images.Size = 224,
    resize: images.HowResized = "squash",
    zoom: images.Zoom = 256 / 224,
    cache: images.UseCache = True,
    skip_broken: images.SkipBroken = False,
) -> Bundle:
    """Waterbirds, from its metadata.csv."""
    folder = collection.find_collection(root, PLACES, ["metadata.csv"], "github.com/kohpangwei/group_DRO")
    problems = Problems()
    columns = Columns(file="img_filename", label="y", attribute=("place",), split="split")
    listing = from_tables(folder, {"": ""}, columns, problems)
    problems.stop("waterbirds")
    codes = {*listing.labels, *(background for (background,) in listing.values)}
    if codes != {"0", "1"} or set(listing.splits) != set(SPLITS):
        raise UserError(f"{folder / 'metadata.csv'} is not Waterbirds': y and place are 0 or 1, split is 0, 1 or 2.")
    splits, notes = {}, []
    for split in SPLITS:
        rows = listing.coded(split)
        splits[split] = collection.to_split(folder, rows, images.Frame(size, resize, zoom))
        groups = torch.bincount(torch.tensor([2 * y + a for _, y, a in rows]), minlength=4).view(2, 2).tolist()
        if groups != PUBLISHED[split]:
            notes.append(f"{split} holds groups of {groups}; published are {PUBLISHED[split]}")
    splits, more = collection.read_splits(splits, "waterbirds", cache, skip_broken)
    return of_splits(
        "waterbirds",
        splits,
        classes=("landbird", "waterbird"),
        attributes=("place",),
        values=(("land", "water"),),
        aligned=(torch.eye(2, dtype=torch.bool),),
        inputs=Images(images.IMAGENET_MEAN, images.IMAGENET_STD),
        net="resnet50",
        recipe=Recipe("sgd", 1e-3, momentum=0.9, weight_decay=1e-4, batch_size=128, epochs=300),  # GroupDRO
        notes=(*notes, *more),
    )
