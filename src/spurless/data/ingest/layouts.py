"""How folders of images are laid out: a table of files, shards, names that spell label and bias, or class folders.

Each way of reading gives a Listing: file names, labels, values of bias attributes and splits, before any image is
opened. Whatever is wrong is added to the Problems, which the caller raises together.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePath

from spurless.core.errors import DataError, SettingError, unknown
from spurless.data.contact_sheet import is_sheet
from spurless.data.ingest.file_tables import Columns, from_tables
from spurless.data.ingest.files import and_above, files_below, files_in, folders_in, inside, is_image, without_outputs
from spurless.data.ingest.listing import STRAY, Listing, Spellings
from spurless.data.ingest.problems import Kind, Problems
from spurless.data.ingest.shard_listing import from_shards, shards_in
from spurless.data.ingest.splits import SPLIT_NAMES

NO_CLASS = Kind("An image in no class folder", "Move it into the folder of its class, or remove it:")
NO_IMAGES = Kind("An empty class folder", "Put images there, or remove it:")
UNNAMED = Kind("A file name without label and bias", "Name it <id>_<label>_<bias>, or remove it:")
MISPLACED = Kind("A file name at odds with its folder", "Move or rename it:")


def list_files(folder: Path, columns: Columns, variant: str, problems: Problems, only_scored: bool = False) -> Listing:
    """The samples of the folder, by the first layout that fits."""
    metadata = columns.metadata
    if inside(folder, metadata) is None:
        raise SettingError(
            f"data.metadata = '{metadata}' is not below {folder}; give the name of a file in the folder."
        )
    parts = _split_folders(folder)
    tables = {"": ""} if (folder / metadata).is_file() else {}
    tables = tables or {name: split for name, split in parts.items() if (folder / name / metadata).is_file()}
    if tables:
        return from_tables(folder, tables, columns, problems)
    folders = [os.path.join(base, name) for base in ("", *parts) for name in folders_in(folder / base)]
    if not set(folders) - set(parts) and (shards := shards_in(folder, parts)):
        return from_shards(folder, shards, columns, problems)
    named = [name for name in ("file", "label", "attribute", "split") if getattr(columns, name)]
    if named:
        raise SettingError(f"data.{named[0]} is a column, but {folder} has no {metadata}; name it by data.metadata.")
    bases = [name for name in ("", *folders_in(folder)) if (folder / name / "align").is_dir()]
    if variant or bases:
        return from_names(folder, bases, variant, problems)
    if parts and "train" not in parts.values() and not only_scored:
        raise DataError(f"{folder} has {' and '.join(parts)} but no train folder; add one.")
    return from_folders(folder, parts, problems)


def _split_folders(folder: Path) -> dict[str, str]:
    """The folders that are called like a split, and the split."""
    return {name: SPLIT_NAMES[name.lower()] for name in folders_in(folder) if name.lower() in SPLIT_NAMES}


# Names that spell label and bias


def from_names(folder: Path, bases: list[str], variant: str, problems: Problems) -> Listing:
    """LfF and DisEnt: align|conflict/<class>/<id>_<label>_<bias>.png; valid and test beside them or one level up."""
    if variant and variant not in bases:
        raise unknown("variant", variant, bases)
    if not variant and len(bases) > 1:
        raise SettingError(f"{folder} holds several training sets ({', '.join(bases)}); choose one with data.variant.")
    base = variant or bases[0]
    listing = Listing(f"LfF/DisEnt names <id>_<label>_<bias> in {base or 'align and conflict'}", ("bias",))
    conflicting, others = dict[tuple[str, str], str](), []
    for below, split in _named_splits(folder, base).items():
        for name in (os.path.join(below, file) for file in files_below(folder / below, and_above(folder, base))):
            if not is_image(name):
                others.append(name)
                continue
            _, *pair = PurePath(name).stem.rsplit("_", 2)
            if fault := _misnamed(name, pair):
                problems.add(*fault)
                continue
            label, bias = pair
            listing.add(name, label, (bias,), split)
            if PurePath(below).name == "align":
                listing.aligned.add((label, bias))
            elif split == "train":
                conflicting.setdefault((label, bias), name)
    for mixed in sorted(listing.aligned & set(conflicting)):
        problems.add(MISPLACED, f"{conflicting[mixed]} (label {mixed[0]} with bias {mixed[1]} is in align too)")
    Spellings.of(listing).report(problems)
    listing.not_used(others, "files that are no images")
    return listing


def _named_splits(folder: Path, base: str) -> dict[str, str]:
    """The folders with images of a training set and of what lies beside it, and the split that each is."""
    splits = {os.path.join(base, kind): "train" for kind in ("align", "conflict") if (folder / base / kind).is_dir()}
    for near in (base, ""):
        for name in folders_in(folder / near):
            split = SPLIT_NAMES.get(name.lower(), "train")
            if split not in splits.values():  # the first val and the first test, nearest first
                splits[os.path.join(near, name)] = split
    return splits


def _misnamed(name: str, pair: list[str]) -> tuple[Kind, str] | None:
    """What is wrong with a file's name, which ends in label and bias."""
    within = PurePath(name).parent.name
    if len(pair) < 2 or not all(text.strip() for text in pair):
        return UNNAMED, name
    if any(text != text.strip() for text in pair):
        return STRAY, repr(name)
    return (MISPLACED, name) if within.isdigit() and within != pair[0] else None


# Class folders


def from_folders(folder: Path, parts: dict[str, str], problems: Problems) -> Listing:
    """A folder for every class, in the folder itself or in each of its split folders."""
    listing = Listing(f"class folders in {', '.join(parts)}" if parts else "class folders")
    sheets = [name for name in files_in(folder) if _is_sheet_of(folder, name)]
    listing.unused += [f"{sheet}, the contact sheet of this folder" for sheet in sheets]
    loose = [name for name in files_in(folder) if name not in sheets]
    for below, split in (parts or {"": ""}).items():
        loose += [os.path.join(below, name) for name in files_in(folder / below) if below]
        for label in folders_in(folder / below):
            loose += _add_class(listing, folder, below, label, split, problems)
    Spellings.of(listing).report(problems)
    for name in filter(is_image, loose):
        problems.add(NO_CLASS, name)
    if parts:
        listing.unused += [f"folder {name}" for name in folders_in(folder) if name not in parts]
    listing.not_used([name for name in loose if not is_image(name)], "files that are no images")
    return listing


def _add_class(listing: Listing, folder: Path, below: str, label: str, split: str, problems: Problems) -> list[str]:
    """List the images of a class folder; returns its other files."""
    class_dir = os.path.join(below, label)
    everything = [os.path.join(class_dir, name) for name in files_below(folder / class_dir, and_above(folder, below))]
    files = without_outputs(everything)
    if len(files) < len(everything):
        listing.unused.append(f"what Spurless has written in {class_dir}")
    pictures = [name for name in files if is_image(name)]
    if not pictures and len(files) == len(everything):
        problems.add(NO_IMAGES, class_dir)
    elif pictures and label != label.strip():
        problems.add(STRAY, repr(class_dir))
    else:
        for name in pictures:
            listing.add(name, label, (), split)
    return [name for name in files if not is_image(name)]


def _is_sheet_of(folder: Path, name: str) -> bool:
    return name == sheet_name(folder) or (is_image(name) and is_sheet(folder / name))


def sheet_name(folder: Path) -> str:
    """What `data describe` called the contact sheet of a folder when it named it by itself."""
    return re.sub(r"[^\w-]", "-", f"folder:{folder.resolve().name}") + ".png"
