"""CelebA: is the hair blond? Gender as the bias.

Input     faces, 178 by 218 pixels: the central 178 by 178, resized to 224 by default.
Label     Blond_Hair; any other of the 40 attributes by data.target.
Bias      Male; any other by data.attribute, several at once too. Aligned are blond women and men who are not blond.
Splits    the official ones, (not blond women, men, blond women, men):
          train 71,629 66,874 22,880 1,387 = 162,770; val 8,535 8,276 2,874 182 = 19,867;
          test 9,767 7,535 2,480 180 = 19,962.
          data.partition=imperfect: GC-DRO's two training domains instead of the four groups. Domain 0 holds 65,487 men
          and 22,880 women who are not blond and 22,880 blond women, domain 1 all the others. A method takes the domains
          for its groups without the label, so that the 1,387 blond men are no group of their own. As there, validation
          and test keep the clean groups, so the attribute has four values: female and male there, domain 0 and domain 1
          in training.
Citation  Z. Liu, P. Luo, X. Wang, X. Tang. Deep learning face attributes in the wild. ICCV 2015. Hair and gender as
          groups: S. Sagawa et al., ICLR 2020. Imperfect partition: C. Zhou et al., Examining and combating spurious
          features under distribution shift, ICML 2021.
Licence   research only, not commercial; images belong to their owners.
Open      The recipe and the augmentation are BPA's, which PGD's table 6 holds too (its text says CnC's ResNet-50). The
          domains are drawn as in GC-DRO's code (numpy's generator with seed 1, group by group), so they are the same.
Files     celeba/list_attr_celeba.{csv,txt}, celeba/list_eval_partition.{csv,txt}, celeba/img_align_celeba/*.jpg.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import torch

from spurless.core.augment import preset
from spurless.core.data import Bundle, Images, Split, overrepresented
from spurless.core.errors import UserError, unknown
from spurless.core.recipe import Recipe
from spurless.data.ingest import collection, images
from spurless.data.ingest.bundle import of_splits
from spurless.data.ingest.splits import SPLITS

if TYPE_CHECKING:
    from pandas import DataFrame

SOURCE = "mmlab.ie.cuhk.edu.hk/projects/CelebA.html"
WORDS = {"Blond_Hair": ("not blond", "blond"), "Male": ("female", "male")}
PUBLISHED = {"train": 162_770, "val": 19_867, "test": 19_962}
# GC-DRO: how many of (dark men, dark women, blond men, blond women) are in domain 0.
DOMAIN_0 = {"train": (65_487, 22_880, 0, 22_880), "val": (8_094, 2_874, 0, 2_874), "test": (7_355, 2_480, 0, 2_480)}


def load(
    root: Path | None = None,
    *,
    size: images.Size = 224,
    target: Annotated[str, "the attribute that is predicted"] = "Blond_Hair",
    attribute: Annotated[tuple[str, ...], "the bias attribute, or several"] = ("Male",),
    partition: Annotated[
        Literal["clean", "imperfect"], "clean: groups by label and attribute; imperfect: GC-DRO's training domains"
    ] = "clean",
    cache: images.UseCache = True,
    skip_broken: images.SkipBroken = False,
) -> Bundle:
    """CelebA, from its attribute and partition lists."""
    usual = (target, attribute) == ("Blond_Hair", ("Male",))
    if partition == "imperfect" and not usual:
        raise UserError("data.partition=imperfect is defined for data.target=Blond_Hair and data.attribute=Male only.")
    if target in attribute or not attribute:
        raise UserError(f"data.attribute = {list(attribute)} must name attributes other than data.target = '{target}'.")
    folder = collection.find_collection(root, ["celeba", "CelebA", "celebA"], ["img_align_celeba"], SOURCE)
    table = read_lists(folder, (target, *attribute))
    nested = folder / "img_align_celeba" / "img_align_celeba"  # as one of the mirrors unpacks it
    images_dir = nested.relative_to(folder) if nested.is_dir() else Path("img_align_celeba")
    frame, splits, notes = images.Frame(size), {}, []
    for number, split in enumerate(SPLITS):
        here = table[table["partition"] == number]
        names = [str(images_dir / name) for name in here.index]
        y, a = here[target].to_numpy(np.int64, copy=True), here[list(attribute)].to_numpy(np.int64, copy=True)
        if partition == "imperfect" and split == "train":
            a = 2 + domains(y, a[:, 0], split)[:, None]
        splits[split] = Split(images.LazyRows(folder, names, frame), torch.from_numpy(y), torch.from_numpy(a), names)
        if len(here) != PUBLISHED[split]:
            notes.append(f"{split} holds {len(here):,} images; {PUBLISHED[split]:,} are published")
    values: tuple[tuple[str, ...], ...] = tuple(WORDS.get(name, (f"not {name}", name)) for name in attribute)
    aligned: tuple[torch.Tensor, ...] = (torch.tensor([[False, True], [True, False]]),) if usual else ()
    if partition == "imperfect":
        values = ((*WORDS["Male"], "domain 0", "domain 1"),)
        train = splits["train"]
        by_domain = overrepresented(train.y, train.a[:, 0], 2, 4)  # type: ignore[index]
        aligned = (torch.cat([aligned[0], by_domain[:, 2:]], dim=1),)
    splits, more = collection.read_splits(splits, "celeba", cache, skip_broken)
    return of_splits(
        "celeba" if partition == "clean" else "celeba imperfect",
        splits,
        classes=WORDS.get(target, (f"not {target}", target)),
        attributes=attribute,
        values=values,
        aligned=aligned,
        inputs=Images(images.IMAGENET_MEAN, images.IMAGENET_STD, augment=preset("resized_crop_flip")),
        groups_ignore_class=partition == "imperfect",  # the blond samples of domain 1 are exactly the blond men
        net="resnet18",
        recipe=Recipe("adam", 1e-4, weight_decay=0.01, schedule="cosine", batch_size=256, epochs=100),  # PGD, table 6
        notes=(*notes, *more),
    )


def read_lists(folder: Path, needed: Sequence[str]) -> DataFrame:
    """One row for each image, by its file name: attributes (40) as 0 or 1, and its partition 0, 1 or 2."""
    import pandas as pd

    frames = []
    for name in ("list_attr_celeba", "list_eval_partition"):
        table, text = folder / f"{name}.csv", folder / f"{name}.txt"
        if table.is_file():
            frames.append(pd.read_csv(table, index_col=0))
        elif not text.is_file():
            raise UserError(f"{folder} has neither {table.name} nor {text.name}. Get it from {SOURCE}.")
        elif name == "list_attr_celeba":
            frames.append(pd.read_csv(text, sep=r"\s+", skiprows=1))  # the first line is a count
        else:
            frames.append(pd.read_csv(text, sep=r"\s+", header=None, index_col=0, names=["partition"]))
    attributes, partition = frames
    if len(attributes) != len(partition) or not attributes.index.equals(partition.index):
        raise UserError(f"The lists in {folder} do not name the same images in the same order; they are from {SOURCE}.")
    if astray := [name for name in map(str, attributes.index) if PurePath(name).name != name]:
        raise UserError(f"{folder}: '{astray[0]}' in the list of attributes is not the plain name of a file.")
    for name in needed:
        if name not in attributes:
            raise unknown("attribute", name, list(attributes))
    return (attributes > 0).astype(np.int64).assign(partition=partition["partition"])


def domains(y: np.ndarray, male: np.ndarray, split: str) -> np.ndarray:
    """(n,) GC-DRO's domain of each image: drawn group by group in the order of DOMAIN_0, as its code draws them."""
    rng, out = np.random.RandomState(1), np.ones(len(y), np.int64)
    groups = [(y == label) & (male == gender) for label in (0, 1) for gender in (1, 0)]
    for group, wanted in zip(groups, DOMAIN_0[split], strict=True):
        rows = np.flatnonzero(group)
        if len(rows) < wanted:
            raise UserError("data.partition=imperfect needs all of CelebA; some of its images are not listed here.")
        out[rng.choice(rows, wanted, replace=False)] = 0
    return out
