"""Any folder of images, as `folder:PATH`. The first of these that fits is taken, and what was understood is said:

    metadata.csv           a table of files, in PATH or (Hugging Face) in PATH/train, PATH/val, PATH/test. It overrides
                           folders. Known by themselves: WILDS and Waterbirds (img_filename, y, split, place),
                           SubpopBench (filename, split, y, a), Hugging Face (file_name, label); others by settings.
    align/, conflict/      LfF and DisEnt: <class>/<id>_<label>_<bias>.png, with valid/ and test/ beside
    train/, val/, test/    each with a folder for every class
    CLASS/                 a folder for every class

Splits that are missing are drawn from the training images, by class and bias attribute, by a hash of seed and name: the
same on every machine, and hardly changed by an image more. Images with the same bytes stay in the same split, and every
class keeps an image in train. What Spurless itself has written into the folder is not read.
Whatever is wrong is reported at once, and nothing is left out that is not named. Files are looked for below PATH only;
links that the user has put there are followed, unless they lead back to a folder that they lie in.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Annotated, Literal

import numpy as np
import torch

from spurless.core.augment import Augment
from spurless.core.data import Bundle, Split
from spurless.core.errors import UserError, unknown
from spurless.core.files import data_root, read_bytes
from spurless.core.messages import log
from spurless.core.recipe import Recipe
from spurless.core.settings import Range
from spurless.data.csv import MISSING_MARKS, UTF_16, spelling
from spurless.data.describe import is_sheet
from spurless.data.ingest import images
from spurless.data.ingest.images import Frame, HowResized, Kind, LazyRows, Problems, SkipBroken, UseCache, Zoom
from spurless.data.ingest.scored import is_only_scored

SPLITS = ("train", "val", "test")
SPLIT_NAMES = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val"}
SPLIT_NAMES |= {"test": "test", "testing": "test"}
SPLIT_CODES = SPLIT_NAMES | {"0": "train", "1": "val", "2": "test"}  # in a table; folders 0, 1, 2 are classes
# The columns of a table that are known by their names, most telling first.
FILE = ("img_filename", "file_name", "filename", "file", "path", "image_path", "image", "img")
LABEL = ("y", "label", "target", "class", "category")
SPLIT = ("split", "partition", "set")
ATTRIBUTE = ("place", "a", "bias", "attribute", "spurious", "confounder", "background")
# The files by which a folder is known that Spurless has written: runs, exports, audits, prunings, sweeps, benchmarks.
WRITTEN = ("settings.toml", "model.safetensors", "audit.json", "prune.json", "sweep.json", "row.json")

UNDECODED = re.compile("[\udc80-\udcff]")  # what is left of bytes that are not UTF-8
NOT_UTF_8 = Kind("A table that is not UTF-8", "Save it as UTF-8 (spreadsheets offer 'CSV UTF-8'):")
UNREADABLE = Kind("A row that cannot be read", "Mend it or delete it:")
OUTSIDE = Kind("A file outside the folder", "List only files below the folder, without '..':")
MISSING = Kind("A file in the table that is not there", "Put it there, or delete its row:")
TWICE = Kind("A file that is listed twice", "Delete one of the rows:")
NO_SPLIT = Kind(
    "A split that is not known",
    "Write train, val or test (or 0, 1, 2), or say how yours are written with data.splits=[train's, val's, test's]:",
)
EMPTY = Kind(
    "A row without a label, attribute or file",
    "Fill it in, delete the row, write it in another way if NA or the like is a name, or name other columns with "
    "data.label, data.attribute and data.file:",
)
STRAY = Kind("A label with stray spaces", "Take the spaces away:")
SPELT = Kind(
    "A label or attribute in two spellings", "Write it alike everywhere, or say data.spellings=keep if they differ:"
)
NO_CLASS = Kind("An image in no class folder", "Move it into the folder of its class, or remove it:")
NO_IMAGES = Kind("An empty class folder", "Put images there, or remove it:")
UNNAMED = Kind("A file name without label and bias", "Name it <id>_<label>_<bias>, or remove it:")
MISPLACED = Kind("A file name at odds with its folder", "Move or rename it:")
NOT_IN_TRAIN = Kind("A class that is not in train", "Add training images of it, or take it out of the split:")
COPIES = Kind("The same image in more than one split", "Keep one, or allow it with data.allow_duplicates=true:")

Share = Annotated[float, "share of the training images that is drawn for it where the folder has none", Range(0, 0.9)]


@dataclass(frozen=True)
class Columns:
    """Which columns of a table mean what; None: known by their names."""

    file: str | None = None
    label: str | None = None
    attribute: tuple[str, ...] | None = None
    split: str | None = None
    splits: tuple[str, ...] = ()  # how train, val and test are written


@dataclass
class Listing:
    """The rows of a folder before any image is opened, in columns: 100,000 rows must stay small."""

    how: str  # the layout, in words
    attributes: tuple[str, ...] = ()
    names: list[str] = field(default_factory=list)  # below the folder
    labels: list[str] = field(default_factory=list)
    values: list[tuple[str, ...]] = field(default_factory=list)  # of the bias attributes
    splits: list[str] = field(default_factory=list)  # "": none given
    aligned: set[tuple[str, str]] = field(default_factory=set)  # (label, value) pairs, where the layout tells
    unused: list[str] = field(default_factory=list)  # what else was seen

    def add(self, name: str, label: str, values: tuple[str, ...], split: str) -> None:
        self.names.append(name)
        self.labels.append(label)
        self.values.append(values)
        self.splits.append(split)

    def coded(self, part: str) -> list[tuple[str, int, int]]:
        """(name, label, attribute) of a split, where labels and the one attribute are written as numbers."""
        columns = zip(self.names, self.labels, self.values, self.splits, strict=True)
        return [(name, int(label), int(values[0])) for name, label, values, split in columns if split == part]

    def keep(self, rows: Sequence[int]) -> Listing:
        kept = Listing(self.how, self.attributes, aligned=self.aligned, unused=self.unused)
        for row in rows:
            kept.add(self.names[row], self.labels[row], self.values[row], self.splits[row])
        return kept


def load(
    path: str | Path,
    root: Path | None = None,
    *,
    size: images.Size = 224,
    resize: HowResized = "crop",
    zoom: Zoom = 1.0,
    metadata: Annotated[str, "name of the table of files in the folder"] = "metadata.csv",
    file: Annotated[str | None, "the table's column of file names; none: found by itself"] = None,
    label: Annotated[str | None, "the table's column of labels; none: found by itself, else the class folder"] = None,
    attribute: Annotated[
        tuple[str, ...] | None, "the table's columns of bias attributes; none: found by itself; []: no attribute"
    ] = None,
    split: Annotated[str | None, "the table's column of splits; none: found by itself"] = None,
    splits: Annotated[tuple[str, ...], "how the table writes train, val and test, where not in a usual way"] = (),
    variant: Annotated[str, "which folder with align and conflict, where there are several, such as 1pct"] = "",
    val: Share = 0.1,
    test: Share = 0.2,
    seed: Annotated[int, "of splits that are drawn", Range(0)] = 0,
    spellings: Annotated[
        Literal["error", "keep"], "labels or attribute values that differ only by letter case, or as 1 and 1.0 do"
    ] = "error",
    skip_broken: SkipBroken = False,
    allow_duplicates: Annotated[bool, "accept the same image in more than one split"] = False,
    cache: UseCache = True,
) -> Bundle:
    """The images below `path`; what was understood is printed to standard error."""
    if val + test >= 1:
        raise UserError(f"data.val = {val} and data.test = {test} leave nothing to train on; keep their sum below 1.")
    folder, problems, notes = find(path, root), Problems(), []
    try:
        listing = list_files(folder, metadata, Columns(file, label, attribute, split, splits), variant, problems)
    except OSError as error:
        raise UserError(f"{error.filename} cannot be read: {error.strerror}.") from None
    where = f"folder:{path} ({listing.how})"
    if spellings == "keep":
        problems.found.pop(SPELT, None)
    if not {"", "train"} & set(listing.splits):  # the rows to train on may be among those that were reported
        problems.stop(where)
    if not listing.names:
        raise UserError(f"There are no images in {path} ({listing.how}); give it a folder of images for each class.")
    given = list(listing.splits)
    drawn = draw_splits(listing, val, test, seed)
    frame = Frame(size, resize, zoom)
    read = Read(folder, listing, frame, cache, skip_broken)
    if read.broken and skip_broken:
        notes.append(images.left_out(read.broken))
        sound = [row for row, name in enumerate(listing.names) if name not in read.broken]
        listing, given = listing.keep(sound), [given[row] for row in sound]
        read = Read(folder, listing, frame, cache)
    problems.add_broken(read.broken)
    moved = settle_copies(listing, given, read.digests, problems, allow_duplicates)
    if moved:
        read = Read(folder, listing, frame, cache)
    notes = [in_counts(listing, drawn, seed), *notes, moved, copies_at_odds(listing, read.digests)]
    classes = ordered({c for c, part in zip(listing.labels, listing.splits, strict=True) if part == "train"})
    check_classes(listing, classes, problems)
    problems.stop(where)
    if len(classes) < 2 and not is_only_scored():
        raise UserError(f"{where} has no more than one class ({listed(classes)}); a classifier needs at least two.")
    bundle = to_bundle(folder, listing, read, classes, tuple(note for note in notes if note))
    log.info(understood(path, listing, bundle))
    return bundle


def find(path: str | Path, root: Path | None) -> Path:
    """The folder as given, else below the data root."""
    for folder in (Path(path).expanduser(), data_root(root) / path):
        if folder.is_dir():
            return folder
    raise UserError(f"There is no folder {path}; folder:PATH takes a folder with a folder of images for each class.")


def list_files(folder: Path, metadata: str, columns: Columns, variant: str, problems: Problems) -> Listing:
    """The rows of the folder, by the first layout that fits."""
    if inside(folder, metadata) is None:
        raise UserError(f"data.metadata = '{metadata}' is not below {folder}; give the name of a file in the folder.")
    parts = {name: SPLIT_NAMES[name.lower()] for name in folders_in(folder) if name.lower() in SPLIT_NAMES}
    tables = {"": ""} if (folder / metadata).is_file() else {}
    tables = tables or {name: part for name, part in parts.items() if (folder / name / metadata).is_file()}
    if tables:
        return from_tables(folder, tables, metadata, columns, problems)
    for name in ("file", "label", "attribute", "split"):
        if getattr(columns, name):
            raise UserError(f"data.{name} is a column, but {folder} has no {metadata}; name it by data.metadata.")
    bases = [name for name in ("", *folders_in(folder)) if (folder / name / "align").is_dir()]
    if variant or bases:
        return from_names(folder, bases, variant, problems)
    return from_folders(folder, parts, problems)


def from_tables(folder: Path, tables: dict[str, str], metadata: str, ask: Columns, problems: Problems) -> Listing:
    """Rows listed in a table in the folder, or in one in each of its split folders."""
    listing, lines = Listing(""), dict[str, int]()
    spelt: dict[tuple[int, str], list] = {}  # by column and text: how often, and where first
    absent = total = 0
    for below, part in tables.items():
        place = os.path.join(below, metadata)
        header, rows = read_table(folder / place, place, problems)
        table = Table(place, header, ask, part)
        if listing.names and table.attributes != listing.attributes:
            raise UserError(
                f"{place} has other attribute columns than the tables beside it; give all of them the same."
            )
        listing.attributes, listing.how = table.attributes, table.in_words
        listing.unused = [f"columns {', '.join(table.spare)}"] if table.spare else []
        for line, cells in rows:
            name = inside(folder / below, cells[table.file])
            file = os.path.join(below, name or cells[table.file])
            label, values, split = table.read(file, cells)
            stray = [text for text in (label, *values) if text != text.strip()]
            gap = table.gap(cells, label)
            is_there = name is None or (folder / file).is_file()
            faults = {
                OUTSIDE: name is None and cells[table.file].strip() and file,
                MISSING: not is_there and file,
                TWICE: name and file in lines and f"{file}, first in line {lines[file]}",
                NO_SPLIT: split is None and repr(cells[table.split or 0]),
                EMPTY: gap and (f"{file}, {gap}" if cells[table.file].strip() else gap),
                STRAY: stray and f"{stray[0]!r} of {file}",
            }
            for kind, what in faults.items():
                if what:
                    problems.add(kind, f"{place}, line {line}: {what}")
            if not any(faults.values()):
                listing.add(file, label, values, split or "")
                for of, text in enumerate((label, *values)):
                    spelt.setdefault((of, text), [0, f"{place}, line {line}"])[0] += 1
            lines.setdefault(file, line)
            absent, total = absent + (not is_there), total + 1
    if absent and absent == total:
        raise UserError(
            f"Not one of the {total:,} files in {listing.how} is below {folder}, beginning with {next(iter(lines))}. "
            "Is it the right folder, and data.file the right column?"
        )
    report_spellings(spelt, problems)
    others = [name for name in files_below(folder) if is_image(name) and name not in lines]
    listing.unused += shown(others, "images that the table does not list")
    return listing


def check_spellings(listing: Listing, problems: Problems) -> None:
    """Report labels and values of files in two spellings, each with its first file."""
    spelt: dict[tuple[int, str], list] = {}
    for name, label, values in zip(listing.names, listing.labels, listing.values, strict=True):
        for of, text in enumerate((label, *values)):
            spelt.setdefault((of, text), [0, name])[0] += 1
    report_spellings(spelt, problems)


def report_spellings(spelt: dict[tuple[int, str], list], problems: Problems) -> None:
    """Report labels and values that differ only by letter case or as numbers are written, each with its first row."""
    alike: dict[tuple, list[tuple[str, str]]] = defaultdict(list)
    for (of, text), (_, where) in sorted(spelt.items(), key=lambda item: -item[1][0]):
        alike[of, spelling(text)].append((text, where))
    for (main, _), *others in alike.values():
        for text, where in others:
            problems.add(SPELT, f"{where}: {text!r} is {main!r} in another spelling")


class Table:
    """Which columns of a table hold what."""

    def __init__(self, place: str, header: list[str], ask: Columns, part: str):
        # What is asked for by name is not found a second time, for something else.
        others = ["" if name in (ask.file, ask.label, ask.split) else name for name in header]

        def at(asked: str | None, usual: tuple[str, ...] = ()) -> int | None:
            return column(place, others if asked is None else header, asked, usual)

        if len(ask.splits) > len(SPLITS):
            raise UserError(
                f"data.splits = {list(ask.splits)} is too long; it takes the words for train, val and test."
            )
        self.header, self.part = header, part
        self.codes = SPLIT_CODES | {text.strip(): of for text, of in zip(ask.splits, SPLITS, strict=False)}
        file = at(ask.file, FILE)
        if file is None:
            names = ", ".join(header)
            raise UserError(f"Which column of {place} holds file names? Name it with data.file, one of: {names}.")
        self.file, self.label, self.split = file, at(ask.label, LABEL), at(ask.split, SPLIT)
        chosen = [at(None, ATTRIBUTE)] if ask.attribute is None else [at(name) for name in ask.attribute]
        self.values = [v for v in chosen if v is not None]
        self.attributes = tuple(header[v] for v in self.values)
        used = [k for k in (self.file, self.label, self.split, *self.values) if k is not None]
        if len(set(used)) < len(used):
            twice = header[Counter(used).most_common(1)[0][0]]
            raise UserError(
                f"{place}: column '{twice}' has two roles; name different ones with data.file, data.label, data.split "
                "and data.attribute."
            )
        self.spare = [name for k, name in enumerate(header) if k not in used]
        label = "the class folder" if self.label is None else header[self.label]
        split = part or "the folders, or drawn" if self.split is None else header[self.split]
        bias = " and ".join(self.attributes) or "none"
        self.in_words = f"{place}: file = {header[file]}, label = {label}, attribute = {bias}, split = {split}"

    def read(self, file: str, cells: list[str]) -> tuple[str, tuple[str, ...], str | None]:
        """Label, attribute values and split ("": not given, None: not known) of a row."""
        parents = PurePath(file).parts[:-1]
        folder = SPLIT_NAMES.get(parents[0].lower(), "") if parents else ""
        by_folder = parents[-1] if len(parents) > bool(folder) else ""
        label = by_folder if self.label is None else cells[self.label]
        split: str | None = self.part or folder
        if self.split is not None:
            text = cells[self.split].strip()
            split = self.codes.get(text, SPLIT_CODES.get(text.lower()))
        return label, tuple(cells[v] for v in self.values), split

    def gap(self, cells: list[str], label: str) -> str:
        """The first cell that is to be filled in, and its column; "": there is none. A class folder may be named NA."""
        needed = [at for at in (self.file, self.label, *self.values) if at is not None]
        gaps = [f"{cells[at]!r} as {self.header[at]}" for at in needed if cells[at].strip() in MISSING_MARKS]
        return next(iter(gaps), "" if label.strip() else "in no class folder")


def from_names(folder: Path, bases: list[str], variant: str, problems: Problems) -> Listing:
    """LfF and DisEnt: align|conflict/<class>/<id>_<label>_<bias>.png; valid and test beside them or one level up."""
    if variant and variant not in bases:
        raise unknown("variant", variant, bases)
    if not variant and len(bases) > 1:
        raise UserError(f"{folder} holds several training sets ({', '.join(bases)}); choose one with data.variant.")
    base = variant or bases[0]
    listing = Listing(f"LfF/DisEnt names <id>_<label>_<bias> in {base or 'align and conflict'}", ("bias",))
    places = {os.path.join(base, kind): "train" for kind in ("align", "conflict") if (folder / base / kind).is_dir()}
    for near in (base, ""):
        for name in folders_in(folder / near):
            part = SPLIT_NAMES.get(name.lower(), "train")
            if part not in places.values():  # the first val and the first test, nearest first
                places[os.path.join(near, name)] = part
    conflicting, others = dict[tuple[str, str], str](), []
    for place, part in places.items():
        for name in (os.path.join(place, file) for file in files_below(folder / place, and_above(folder, base))):
            _, *pair = PurePath(name).stem.rsplit("_", 2)
            within = PurePath(name).parent.name
            if not is_image(name):
                others.append(name)
            elif len(pair) < 2 or not all(text.strip() for text in pair):
                problems.add(UNNAMED, name)
            elif any(text != text.strip() for text in pair):
                problems.add(STRAY, repr(name))
            elif within.isdigit() and within != pair[0]:
                problems.add(MISPLACED, name)
            else:
                label, bias = pair
                listing.add(name, label, (bias,), part)
                if PurePath(place).name == "align":
                    listing.aligned.add((label, bias))
                elif part == "train":
                    conflicting.setdefault((label, bias), name)
    for mixed in sorted(listing.aligned & set(conflicting)):
        problems.add(MISPLACED, f"{conflicting[mixed]} (label {mixed[0]} with bias {mixed[1]} is in align too)")
    check_spellings(listing, problems)
    listing.unused += shown(others, "files that are no images")
    return listing


def from_folders(folder: Path, parts: dict[str, str], problems: Problems) -> Listing:
    """A folder for every class, in the folder itself or in each of its split folders."""
    if parts and "train" not in parts.values() and not is_only_scored():
        raise UserError(f"{folder} has {' and '.join(parts)} but no train folder; add one.")
    listing = Listing(f"class folders in {', '.join(parts)}" if parts else "class folders")
    loose = files_in(folder)
    for sheet in [name for name in loose if name == sheet_name(folder) or (is_image(name) and is_sheet(folder / name))]:
        loose.remove(sheet)
        listing.unused.append(f"{sheet}, the contact sheet of this folder")
    for below, part in (parts or {"": ""}).items():
        loose += [os.path.join(below, name) for name in files_in(folder / below) if below]
        above = and_above(folder, below)
        for label in folders_in(folder / below):
            place = os.path.join(below, label)
            everything = [os.path.join(place, name) for name in files_below(folder / place, above)]
            files = without_outputs(everything)
            if len(files) < len(everything):
                listing.unused.append(f"what Spurless has written in {place}")
            pictures = [name for name in files if is_image(name)]
            loose += [name for name in files if not is_image(name)]
            if not pictures:
                if len(files) == len(everything):
                    problems.add(NO_IMAGES, place)
            elif label != label.strip():
                problems.add(STRAY, repr(place))
            else:
                for name in pictures:
                    listing.add(name, label, (), part)
    check_spellings(listing, problems)
    for name in filter(is_image, loose):
        problems.add(NO_CLASS, name)
    if parts:
        listing.unused += [f"folder {name}" for name in folders_in(folder) if name not in parts]
    listing.unused += shown([name for name in loose if not is_image(name)], "files that are no images")
    return listing


def sheet_name(folder: Path) -> str:
    """What `data describe` called the contact sheet of a folder when it named it by itself."""
    return re.sub(r"[^\w-]", "-", f"folder:{folder.resolve().name}") + ".png"


def without_outputs(files: list[str]) -> list[str]:
    """The files less those in folders where Spurless has written.

    >>> without_outputs(["runs/1/audit.json", "runs/1/pictures/7.png", "cat/1.png"])
    ['cat/1.png']
    """
    written = {os.path.dirname(name) for name in files if os.path.basename(name) in WRITTEN}
    # An audit that was stopped has a model and pictures, but no audit.json yet.
    written |= {os.path.join(os.path.dirname(place), "pictures") for place in written}
    return [name for name in files if written.isdisjoint(map(str, PurePath(name).parents))] if written else files


def draw_splits(listing: Listing, val: float, test: float, seed: int) -> list[str]:
    """Fill in the splits that the folder lacks; returns which."""
    have = set(listing.splits)
    if is_only_scored():
        val = test = 0
    if not have & {"", "train"} and is_only_scored():
        listing.splits[:] = ["train"] * len(listing.splits)
        return []
    if not have & {"", "train"}:
        raise UserError(f"{listing.how} gives no image to train; it has only {' and '.join(sorted(have))}.")
    shares = {"val": 0 if "val" in have else val, "test": 0 if "test" in have else test}
    source = [row for row, part in enumerate(listing.splits) if part in ("", "train")]
    strata = [(listing.labels[row], *listing.values[row]) for row in source]
    drawn = share_out([listing.names[row] for row in source], strata, shares["val"], shares["test"], seed)
    for row, part in zip(source, drawn, strict=True):
        listing.splits[row] = part
    return [part for part, share in shares.items() if share]


def in_counts(listing: Listing, drawn: Sequence[str], seed: int) -> str:
    """How many images were drawn for which split."""
    counts = {part: listing.splits.count(part) for part in drawn}
    made = [f"{part} ({n:,} image{'s' * (n != 1)})" for part, n in counts.items()]
    return f"{' and '.join(made)} drawn from the training images with data.seed={seed}" if made else ""


def share_out(names: Sequence[str], strata: Sequence[tuple], val: float, test: float, seed: int) -> list[str]:
    """train, val or test for each name: its share of every stratum to within a row.

    A stratum begins with a class, and each class keeps something in train. Rows that are alone in theirs are drawn from
    together, class by class.

    >>> names = [f"{i}.png" for i in range(20)]
    >>> drawn = share_out(names, [("cat",)] * 15 + [("dog",)] * 5, val=0.2, test=0.2, seed=0)
    >>> [drawn[:15].count(part) for part in SPLITS], [drawn[15:].count(part) for part in SPLITS]
    ([9, 3, 3], [3, 1, 1])
    """
    rows_of = defaultdict(list)
    sizes, left = Counter(strata), Counter(stratum[0] for stratum in strata)  # left in train, of each class
    for row, stratum in enumerate(strata):
        rows_of[stratum if sizes[stratum] > 1 else stratum[:1]].append(row)
    out = ["train"] * len(names)
    seen = tested = validated = 0
    for (of_class, *_), rows in sorted(rows_of.items(), key=lambda item: repr(item[0])):
        # Rounded over all strata so far, so that many small ones, each too small for a share, still give theirs.
        seen += len(rows)
        n_test = min(max(int(test * seen + 0.5) - tested, 0), len(rows), left[of_class] - 1)
        n_val = min(max(int(val * seen + 0.5) - validated, 0), len(rows) - n_test, left[of_class] - 1 - n_test)
        tested, validated = tested + n_test, validated + n_val
        left[of_class] -= n_test + n_val
        order = [rows[at] for at in images.shuffled([names[row] for row in rows], seed)]
        for row in order[:n_test]:
            out[row] = "test"
        for row in order[n_test : n_test + n_val]:
            out[row] = "val"
    return out


class Read:
    """The rows of a listing, decoded in the order train, val, test (or only looked at, where there is no cache)."""

    def __init__(self, folder: Path, listing: Listing, frame: Frame, use_cache: bool, whole: bool = False):
        self.rows = {part: [r for r, of in enumerate(listing.splits) if of == part] for part in SPLITS}
        lazy = {part: LazyRows(folder, [listing.names[r] for r in rows], frame) for part, rows in self.rows.items()}
        files = [file for rows in lazy.values() for file in rows.files]
        self.x: dict[str, torch.Tensor | LazyRows] = {**lazy}
        if use_cache:
            done = images.decode_cached(files, frame)
            self.x = dict(zip(SPLITS, done.parts([len(rows) for rows in lazy.values()], frame), strict=True))
            digests, broken = done.digests, done.broken
        else:
            digests, broken = images.inspect(files, whole)
        order = [row for rows in self.rows.values() for row in rows]
        self.broken = {listing.names[order[at]]: why for at, why in broken.items()}
        self.digests = np.zeros(len(order), "S16")  # by row of the listing; empty: not known
        self.digests[order] = digests


def settle_copies(
    listing: Listing, given: Sequence[str], digests: np.ndarray, problems: Problems, allowed: bool
) -> str:
    """Put copies that were drawn apart back together, and say so; report those that the user's own splits hold."""
    trained = Counter(label for label, part in zip(listing.labels, listing.splits, strict=True) if part == "train")
    moved = 0
    for rows in copies(digests):
        if len({listing.splits[row] for row in rows}) == 1:
            continue
        if len({given[row] or "train" for row in rows}) == 1:  # it was we who drew them apart
            moved += len(rows) - 1
            trained.subtract(listing.labels[row] for row in rows if listing.splits[row] == "train")
            # Where the first of them is, unless a class would have nothing left to train on.
            part = listing.splits[rows[0]] if all(trained[listing.labels[row]] for row in rows) else "train"
            trained.update(listing.labels[row] for row in rows if part == "train")
            for row in rows:
                listing.splits[row] = part
        elif not allowed:
            problems.add(COPIES, " = ".join(listing.names[row] for row in rows))
    return f"{moved:,} image{'s' * (moved > 1)} kept in the split of an exact copy" if moved else ""


def copies(digests: np.ndarray) -> list[list[int]]:
    """The rows of each image that is there more than once."""
    rows_of = defaultdict(list)
    for row, digest in enumerate(digests.tolist()):
        if digest:
            rows_of[digest].append(row)
    return [rows for rows in rows_of.values() if len(rows) > 1]


def copies_at_odds(listing: Listing, digests: np.ndarray) -> str:
    """A note on images that have several labels, with one file for each label."""
    labelled = ({listing.labels[row]: listing.names[row] for row in reversed(rows)} for rows in copies(digests))
    at_odds = [" = ".join(sorted(names.values())) for names in labelled if len(names) > 1]
    return f"exact copies under different labels: {listed(at_odds)}" if at_odds else ""


def check_classes(listing: Listing, classes: Sequence[str], problems: Problems) -> None:
    known, elsewhere = set(classes), defaultdict(list)
    for name, label, part in zip(listing.names, listing.labels, listing.splits, strict=True):
        if label not in known:
            elsewhere[part, label].append(name)
    for (part, label), names in elsewhere.items():
        problems.add(NOT_IN_TRAIN, f"{part}: '{label}' ({len(names):,} images, such as {names[0]})")


def to_bundle(folder: Path, listing: Listing, read: Read, classes: tuple[str, ...], notes: tuple[str, ...]) -> Bundle:
    values = tuple(ordered({row[k] for row in listing.values}) for k in range(len(listing.attributes)))
    code = {label: at for at, label in enumerate(classes)}
    codes = [{value: at for at, value in enumerate(names)} for names in values]
    parts = {}
    for part, rows in read.rows.items():
        if rows:
            y = torch.tensor([code[listing.labels[row]] for row in rows])
            a = [[of[value] for of, value in zip(codes, listing.values[row], strict=True)] for row in rows]
            names = [listing.names[row] for row in rows]
            parts[part] = Split(read.x[part], y, torch.tensor(a) if values else None, names)
    aligned = [[(label, value) in listing.aligned for value in names] for names in values[:1] for label in classes]
    return Bundle(
        f"folder:{folder.resolve().name}",
        parts["train"],
        parts.get("val"),
        parts.get("test"),
        classes=classes,
        attributes=listing.attributes,
        values=values,
        aligned=(torch.tensor(aligned),) if listing.aligned else (),
        mean=images.IMAGENET_MEAN,
        std=images.IMAGENET_STD,
        augment=Augment(scale=(0.7, 1.0), ratio=(3 / 4, 4 / 3), flip=True),
        net="resnet18",
        recipe=Recipe("adam", 1e-4, weight_decay=1e-4, schedule="cosine", batch_size=64, epochs=30),
        notes=notes,
    )


def understood(path: str | Path, listing: Listing, bundle: Bundle) -> str:
    """What the loader made of the folder, in a few lines."""
    counts = ", ".join(f"{name} {len(split):,}" for name, split in bundle.splits.items())
    lines = [f"folder:{path}: {listing.how}", f"  images: {counts}", f"  classes: {listed(bundle.classes)}"]
    for name, values in zip(bundle.attributes, bundle.values, strict=True):
        lines.append(f"  bias attribute {name}: {listed(values)}")
    lines += [f"  {note}" for note in bundle.notes]
    lines += [f"  not used: {text}" for text in listing.unused]
    return "\n".join(map(images.printable, lines))


def read_table(file: Path, place: str, problems: Problems) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """The column names, and the rows with their line numbers; rows that cannot be read become problems."""
    data = read_bytes(file)
    if data.startswith(UTF_16) or b"\0" in data[:4096]:
        raise UserError(f"{place} is not text in UTF-8; save it as CSV in UTF-8.")
    text = data.decode("utf-8-sig", "surrogateescape")
    odd = [line for line, content in enumerate(text.split("\n"), 1) if UNDECODED.search(content)]
    if odd:
        problems.add(NOT_UTF_8, f"{place}, line {odd[0]}" + f" and {len(odd) - 1:,} more" * (len(odd) > 1))
    if odd[:1] == [1]:
        problems.stop(place)  # nothing can be found under names that cannot be read
    head = text.split("\n", 1)[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=head.count), strict=True)
    header = [name.strip() for name in next(reader, [])]
    if len(set(header)) < len(header) or not any(header):
        raise UserError(f"{place} needs one row of column names, each once, at its top; it has: {', '.join(header)}.")

    def rows() -> Iterator[tuple[int, list[str]]]:
        while True:
            line, why = reader.line_num + 1, ""
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                cells, why = [""], str(error)
            if cells and not why and len(cells) != len(header):
                why = f"it has {len(cells)} fields, and the table {len(header)} columns"
            if UNDECODED.search("".join(cells)):  # said once, of the whole table
                continue
            if why:
                problems.add(UNREADABLE, f"{place}, line {line}: {why}")
            elif any(cells):  # not an empty line
                yield line, cells

    return header, rows()


def column(place: str, header: Sequence[str], asked: str | None, usual: Iterable[str] = ()) -> int | None:
    """Where a column is: the one asked for, else the first usual one.

    >>> column("metadata.csv", ["ID", "Label"], None, LABEL)
    1
    """
    if asked is not None:
        if asked not in header:
            raise UserError(f"{place}: {unknown('column', asked, header)}")
        return header.index(asked)
    lower = [name.lower() for name in header]
    return next((lower.index(name) for name in usual if name in lower), None)


def inside(folder: Path, name: str) -> str | None:
    """A file name relative to the folder, or None where it leads out of it.

    >>> inside(Path("data"), "./a/b.png"), inside(Path("data"), "../b.png"), inside(Path("data"), "/etc/passwd")
    ('a/b.png', None, None)
    """
    path = PurePath(name)
    if path.is_absolute() and path.is_relative_to(folder.absolute()):
        path = path.relative_to(folder.absolute())
    if path.is_absolute() or path.drive or ".." in path.parts or not path.parts or "\0" in name:
        return None
    return str(path)


def is_image(name: str) -> bool:
    """By its suffix; what systems leave behind (.DS_Store, ._cat.jpg, __MACOSX) is none.

    >>> is_image("cat/1.JPG"), is_image("cat/._1.jpg"), is_image("notes.txt")
    (True, False, False)
    """
    path = PurePath(name)
    return path.suffix.lower() in images.SUFFIXES and not any(p.startswith((".", "__MACOSX")) for p in path.parts)


def folders_in(folder: Path) -> list[str]:
    """The folders in a folder, in order, less hidden ones."""
    with os.scandir(folder) as entries:
        return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith((".", "__MACOSX")))


def files_in(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if not entry.is_dir())


def and_above(folder: Path, below: str = "") -> frozenset[str]:
    """The real paths of a folder and of one below it, and of all that they lie in."""
    real = [Path(os.path.realpath(place)) for place in (folder, folder / below)]
    return frozenset(str(place) for path in real for place in (path, *path.parents))


def files_below(folder: str | Path, above: frozenset[str] = frozenset()) -> Iterator[str]:
    """The names of all files below a folder, in order. Links to folders are followed, unless they lead to one `above`,
    where this one lies: that would be a circle."""
    if os.path.realpath(folder) in above:
        return
    above |= and_above(Path(folder))
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if entry.is_dir():
            yield from (os.path.join(entry.name, name) for name in files_below(entry.path, above))
        else:
            yield entry.name


def ordered(names: Iterable[str]) -> tuple[str, ...]:
    """By number where all are numbers, else by name.

    >>> ordered({"10", "9"}), ordered({"b", "a"})
    (('9', '10'), ('a', 'b'))
    """
    names = list(names)
    numbers = all(re.fullmatch(r"-?\d{1,18}", name) for name in names)
    return tuple(sorted(names, key=lambda name: (int(name) if numbers else 0, name)))


def listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 12 else f"{', '.join(names[:10])} and {len(names) - 10:,} more"


def shown(names: Sequence[str], what: str) -> list[str]:
    """How many, and a few of them.

    >>> shown(["a.txt", "b.txt"], "files that are no images")
    ['2 files that are no images (a.txt, b.txt)']
    """
    return [f"{len(names):,} {what} ({listed(names)})"] if names else []
