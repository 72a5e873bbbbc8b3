"""MetaShift, cat against dog: indoors or outdoors as the bias.

Input     photographs of Visual Genome; size 224 by default.
Label     cat or dog.
Bias      the place: indoor or outdoor. Aligned are cats indoors and dogs outdoors.
Splits    as the authors' script builds it: 850 training images of each class, by default 750 aligned and 100
          conflicting (it can make 10, 50, 100 or 150), and 144 of each of the four groups, in all 576, in
          `val_out_of_domain`, which is the test split here. A tenth of the training images, drawn by group, is for
          validation.
          data.layout=pool (SubpopBench): all images of the unmixed folders, split at random: a quarter for test, a
          tenth for validation.
Citation  W. Liang, J. Zou. MetaShift: a dataset of datasets for evaluating contextual distribution shifts and training
          conflicts. ICLR 2022. Benchmark: Y. Yang et al., Change is hard, ICML 2023 (SubpopBench).
Licence   MetaShift: MIT (lists and code); images: Visual Genome, CC BY 4.0.
Open      The script makes no validation split; BiasAdv says only that it took the default. SubpopBench splits in
          the order in which the file system lists files, so that its split differs from machine to machine; here by
          name and data.seed. BiasAdv gives no augmentation; here MetaShift's crop and flip, without its colour changes.
Files     MetaShift-subpopulation-shift/{train,val_out_of_domain}/{cat,dog}/*.jpg and imageID_to_group.pkl; or
          MetaShift-Cat-Dog-indoor-outdoor/{train,test}/{cat,dog}/<cat(indoor) and so on>/*.jpg; under the data root or
          `metashift` in it.
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

import torch

from spurless.core.augment import Augment
from spurless.core.data import Bundle, Images
from spurless.core.errors import UserError
from spurless.core.files import data_root
from spurless.core.recipe import Recipe
from spurless.core.settings import Range
from spurless.data.ingest import collection, images
from spurless.data.ingest.bundle import of_splits
from spurless.data.ingest.files import files_below, is_image
from spurless.data.ingest.splits import SPLITS, share_out

CLASSES, PLACES = ("cat", "dog"), ("indoor", "outdoor")
MIXED, UNMIXED = "MetaShift-subpopulation-shift", "MetaShift-Cat-Dog-indoor-outdoor"
SOURCE = "github.com/Weixin-Liang/MetaShift"
Row = tuple[str, int, int]  # file name, label, place


def load(
    root: Path | None = None,
    *,
    size: images.Size = 224,
    layout: Annotated[Literal["auto", "official", "pool"], "whose splits; auto: those whose files are there"] = "auto",
    val: Annotated[
        float, "share of the training images (official) or of all (pool) for validation", Range(0, 0.5)
    ] = 0.1,
    seed: Annotated[int, "of what is drawn", Range(0)] = 0,
    cache: images.UseCache = True,
    skip_broken: images.SkipBroken = False,
) -> Bundle:
    """MetaShift's cats and dogs, in the authors' layout or in SubpopBench's."""
    source = "pool" if has(root, UNMIXED) and not has(root, MIXED) else "official"
    official = (source if layout == "auto" else layout) == "official"
    needed = ["train", "val_out_of_domain"] if official else ["train", "test"]
    folder = collection.find_collection(root, below(MIXED if official else UNMIXED), needed, SOURCE)
    rows = official_rows(folder, val, seed) if official else pooled_rows(folder, val, seed)
    splits = {split: collection.to_split(folder, of, images.Frame(size)) for split, of in rows.items() if of}
    if {"train", "test"} - set(splits):
        raise UserError(f"{folder} holds no images for {' and '.join({'train', 'test'} - set(splits))}.")
    splits, notes = collection.read_splits(splits, "metashift", cache, skip_broken)
    return of_splits(
        "metashift" if official else "metashift pool",
        splits,
        classes=CLASSES,
        attributes=("place",),
        values=(PLACES,),
        aligned=(torch.eye(2, dtype=torch.bool),),
        inputs=Images(
            images.IMAGENET_MEAN,
            images.IMAGENET_STD,
            augment=Augment(scale=(0.7, 1.0), ratio=(3 / 4, 4 / 3), flip=True),
        ),
        net="resnet18",
        recipe=Recipe("adam", 2e-5, weight_decay=1e-4, batch_size=32, epochs=10),  # BiasAdv, supplement, table 4
        notes=notes,
    )


def below(name: str) -> list[str]:
    """Where a folder of that name may lie under the data root."""
    return [name, f"metashift/{name}", f"MetaShift/{name}"]


def has(root: Path | None, name: str) -> bool:
    return any((data_root(root) / folder_name).is_dir() for folder_name in below(name))


def official_rows(folder: Path, val: float, seed: int) -> dict[str, list[Row]]:
    """train and val from train/, test from val_out_of_domain/."""
    groups = read_groups(folder / "imageID_to_group.pkl")
    train, test = list_rows(folder, "train", groups), list_rows(folder, "val_out_of_domain", groups)
    drawn = share_out([name for name, _, _ in train], [(y, a) for _, y, a in train], val, 0, seed)
    parts = {split: [row for row, of in zip(train, drawn, strict=True) if of == split] for split in ("train", "val")}
    return {**parts, "test": test}


def pooled_rows(folder: Path, val: float, seed: int) -> dict[str, list[Row]]:
    """All images of both folders, split at random: a quarter for test."""
    rows = [row for split in ("train", "test") for row in list_rows(folder, split, {})]
    # One stratum: as in SubpopBench, groups are not balanced over the splits.
    drawn = share_out([name for name, _, _ in rows], [("all",)] * len(rows), val, 0.25, seed)
    return {split: [row for row, of in zip(rows, drawn, strict=True) if of == split] for split in SPLITS}


def list_rows(folder: Path, split: str, groups: dict[str, str]) -> list[Row]:
    """The images of one folder; the place comes from the folder's name, such as cat(indoor), or from the groups."""
    rows, lost = [], []
    for y, label in enumerate(CLASSES):
        base = folder / split / label
        for file in filter(is_image, files_below(base) if base.is_dir() else ()):
            path = PurePath(file)
            group = path.parent.name or groups.get(path.stem, "")
            match = re.fullmatch(rf"{label}\((indoor|outdoor)\)", group)
            name = f"{split}/{label}/{file}"
            if match:
                rows.append((name, y, PLACES.index(match[1])))
            else:
                lost.append(f"{name} ({group or 'no group'})")
    if lost:
        raise UserError(
            f"{len(lost):,} images in {folder} are in no group of their class, such as {lost[0]}; "
            "imageID_to_group.pkl, or folders such as cat(indoor), must tell indoor from outdoor."
        )
    return rows


def read_groups(file: Path) -> dict[str, str]:
    """{image: group}, from {image: [group]} or, as the script's own text has it, {group: [images]}."""
    if not file.is_file():
        return {}
    try:
        with open(file, "rb") as opened:
            table = _Plain(opened).load()
        if set(table) <= {f"{label}({context})" for label in CLASSES for context in PLACES}:
            return {str(image): group for group, members in table.items() for image in members}
        return {str(image): str(group[0]) for image, group in table.items()}
    except (pickle.UnpicklingError, EOFError, AttributeError, TypeError, IndexError, ValueError) as error:
        raise UserError(f"{file} is not the list of groups that MetaShift's script writes: {error}.") from None


class _Plain(pickle.Unpickler):
    """Reads dictionaries, lists and texts only: a pickle can otherwise run any code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it holds {module}.{name}")
