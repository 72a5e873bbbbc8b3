"""Any folder of images, as `folder:PATH`. The first of these that fits is taken, and what was understood is logged:

    metadata.csv           a table of files, in PATH or (Hugging Face) in PATH/train, PATH/val, PATH/test. It overrides
                           folders. Known by themselves: WILDS and Waterbirds (img_filename, y, split, place),
                           SubpopBench (filename, split, y, a), Hugging Face (file_name, label); others by settings.
    *.tar, *.parquet       shards with the images in them (ingest/shard_listing.py), in PATH or in PATH/train, ...
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

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from spurless.core.augment import Augment
from spurless.core.data import Bundle, Images, Rows
from spurless.core.errors import DataError, SettingError
from spurless.core.files import data_root
from spurless.core.messages import log
from spurless.core.recipe import Recipe
from spurless.core.settings import Range
from spurless.data.ingest import images
from spurless.data.ingest.bundle import to_bundle
from spurless.data.ingest.collection import left_out
from spurless.data.ingest.file_tables import Columns
from spurless.data.ingest.image_cache import decode_cached
from spurless.data.ingest.images import Frame, LazyRows
from spurless.data.ingest.labels import Coded, ordered, places
from spurless.data.ingest.layouts import list_files
from spurless.data.ingest.listing import SPELT, Listing
from spurless.data.ingest.problems import Kind, Problems, listed, printable
from spurless.data.ingest.splits import SPLITS, share_out

NOT_IN_TRAIN = Kind("A class that is not in train", "Add training images of it, or take it out of the split:")
COPIES = Kind("The same image in more than one split", "Keep one, or allow it with data.allow_duplicates=true:")

Share = Annotated[float, "share of the training images that is drawn for it where the folder has none", Range(0, 0.9)]


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """How image files become inputs."""

    size: images.Size = 224
    resize: images.HowResized = "crop"
    zoom: images.Zoom = 1.0
    cache: images.UseCache = True
    skip_broken: images.SkipBroken = False
    max_pixels: images.MaxPixels = images.MAX_PIXELS

    @property
    def frame(self) -> Frame:
        return Frame(self.size, self.resize, self.zoom, self.max_pixels)


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """How the splits that a folder lacks are drawn."""

    val: Share = 0.1
    test: Share = 0.2
    seed: Annotated[int, "of splits that are drawn", Range(0)] = 0


@dataclass(frozen=True, kw_only=True)
class Folder(Drawn, Columns, Pictures):
    """The settings of `folder:PATH`, and how it is read."""

    variant: Annotated[str, "which folder with align and conflict, where there are several, such as 1pct"] = ""
    spellings: Annotated[
        Literal["error", "keep"], "labels or attribute values that differ only by letter case, or as 1 and 1.0 do"
    ] = "error"
    allow_duplicates: Annotated[bool, "accept the same image in more than one split"] = False

    def read(self, path: str | Path, root: Path | None = None, only_scored: bool = False) -> Bundle:
        """The images below `path`; what was understood is logged.

        `only_scored`: a trained model is only scored on them. They are one split, `train`, unless the folder itself has
        images to train on, and may be of one class.
        """
        if self.val + self.test >= 1:
            raise SettingError(
                f"data.val = {self.val} and data.test = {self.test} leave nothing to train on; keep their sum below 1."
            )
        folder, problems = find(path, root), Problems()
        try:
            listing = list_files(folder, self, self.variant, problems, only_scored)
        except OSError as error:
            raise DataError(f"{error.filename} cannot be read: {error.strerror}.") from None
        where = f"folder:{path} ({listing.layout})"
        if self.spellings == "keep":
            problems.by_kind.pop(SPELT, None)
        if not {"", "train"} & set(listing.splits):  # the samples to train on may be among those that were reported
            problems.stop(where)
        if not listing.names:
            raise DataError(
                f"There are no images in {path} ({listing.layout}); give it a folder of images for each class."
            )
        given = list(listing.splits)
        drawn = draw_splits(listing, self, only_scored)
        decoded = Decoded(folder, listing, self)
        notes = []
        if decoded.broken and self.skip_broken:
            notes.append(left_out(decoded.broken))
            sound = [row for row, name in enumerate(listing.names) if name not in decoded.broken]
            listing, given = listing.keep(sound), [given[row] for row in sound]
            decoded = Decoded(folder, listing, self)
        problems.add_broken(decoded.broken)
        moved = settle_copies(listing, given, decoded.digests, problems, self.allow_duplicates)
        if moved:
            decoded = Decoded(folder, listing, self)
        notes = [in_counts(listing, drawn, self.seed), *notes, moved, copies_at_odds(listing, decoded.digests)]
        classes = ordered({c for c, split in zip(listing.labels, listing.splits, strict=True) if split == "train"})
        check_classes(listing, classes, problems)
        problems.stop(where)
        if len(classes) < 2 and not only_scored:
            raise DataError(f"{where} has no more than one class ({listed(classes)}); a classifier needs at least two.")
        name = f"folder:{folder.resolve().name}"
        bundle = as_bundle(name, listing, decoded.x, classes, tuple(note for note in notes if note))
        log.info(understood(path, listing, bundle))
        return bundle


def load(path: str | Path, root: Path | None = None, **settings: Any) -> Bundle:
    """The images below `path`, read with these settings (those of `Folder`)."""
    return Folder(**settings).read(path, root)


def find(path: str | Path, root: Path | None) -> Path:
    """The folder as given, else below the data root."""
    for folder in (Path(path).expanduser(), data_root(root) / path):
        if folder.is_dir():
            return folder
    raise DataError(f"There is no folder {path}; folder:PATH takes a folder with a folder of images for each class.")


def draw_splits(listing: Listing, how: Drawn, only_scored: bool) -> list[str]:
    """Fill in the splits that the folder lacks; returns which."""
    given = set(listing.splits)
    if not given & {"", "train"}:
        if not only_scored:
            raise DataError(f"{listing.layout} gives no image to train; it has only {' and '.join(sorted(given))}.")
        listing.splits[:] = ["train"] * len(listing.splits)
        return []
    wanted = {"val": 0 if only_scored else how.val, "test": 0 if only_scored else how.test}
    shares = {split: 0 if split in given else share for split, share in wanted.items()}
    source = [row for row, split in enumerate(listing.splits) if split in ("", "train")]
    strata = [(listing.labels[row], *listing.values[row]) for row in source]
    drawn = share_out([listing.names[row] for row in source], strata, shares["val"], shares["test"], how.seed)
    for row, split in zip(source, drawn, strict=True):
        listing.splits[row] = split
    return [split for split, share in shares.items() if share]


def in_counts(listing: Listing, drawn: Sequence[str], seed: int) -> str:
    """How many images were drawn for which split."""
    counts = {split: listing.splits.count(split) for split in drawn}
    made = [f"{split} ({n:,} image{'s' * (n != 1)})" for split, n in counts.items()]
    return f"{' and '.join(made)} drawn from the training images with data.seed={seed}" if made else ""


class Decoded:
    """The images of a listing, in the order train, val, test; only their headers are read where there is no cache."""

    def __init__(self, folder: Path, listing: Listing, how: Pictures):
        rows = {split: [r for r, of in enumerate(listing.splits) if of == split] for split in SPLITS}
        lazy = {split: LazyRows(folder, [listing.names[r] for r in of], how.frame) for split, of in rows.items()}
        files = [file for of in lazy.values() for file in of.files]
        self.x: dict[str, torch.Tensor | Rows] = {**lazy}
        if how.cache:
            done = decode_cached(files, how.frame)
            self.x = dict(zip(SPLITS, done.parts([len(of) for of in lazy.values()], how.frame), strict=True))
            digests, broken = done.digests, done.broken
        else:
            digests, broken = images.inspect(files, how.frame, whole=how.skip_broken)
        order = [row for of in rows.values() for row in of]
        self.broken = {listing.names[order[at]]: why for at, why in broken.items()}
        self.digests = np.zeros(len(order), "S16")  # by row of the listing; empty: not known
        self.digests[order] = digests


def settle_copies(
    listing: Listing, given: Sequence[str], digests: NDArray[np.bytes_], problems: Problems, allowed: bool
) -> str:
    """Put copies that were drawn apart back together, and report those that the user's own splits hold."""
    trained = Counter(label for label, split in zip(listing.labels, listing.splits, strict=True) if split == "train")
    moved = 0
    for rows in copies(digests):
        if len({listing.splits[row] for row in rows}) == 1:
            continue
        if len({given[row] or "train" for row in rows}) == 1:  # it was we who drew them apart
            moved += len(rows) - 1
            _put_together(listing, rows, trained)
        elif not allowed:
            problems.add(COPIES, " = ".join(listing.names[row] for row in rows))
    return f"{moved:,} image{'s' * (moved > 1)} kept in the split of an exact copy" if moved else ""


def _put_together(listing: Listing, rows: Sequence[int], trained: Counter[str]) -> None:
    """All copies where the first of them is, unless a class would have nothing left to train on."""
    trained.subtract(listing.labels[row] for row in rows if listing.splits[row] == "train")
    split = listing.splits[rows[0]] if all(trained[listing.labels[row]] for row in rows) else "train"
    for row in rows:
        trained[listing.labels[row]] += split == "train"
        listing.splits[row] = split


def copies(digests: NDArray[np.bytes_]) -> list[list[int]]:
    """The samples of each image that is there more than once, in the order of the first.

    >>> copies(np.array([b"a", b"b", b"", b"b", b"", b"a", b"c"]))
    [[0, 5], [1, 3]]
    """
    order = np.argsort(digests, kind="stable")  # a million digests without as many lists
    starts = np.flatnonzero(np.r_[True, digests[order][1:] != digests[order][:-1]])
    runs = zip(starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True)
    found = [order[start:end].tolist() for start, end in runs if end - start > 1 and digests[order[start]]]
    return sorted(found)


def copies_at_odds(listing: Listing, digests: NDArray[np.bytes_]) -> str:
    """A note on images that have several labels, with one file for each label."""
    labelled = ({listing.labels[row]: listing.names[row] for row in reversed(rows)} for rows in copies(digests))
    at_odds = [" = ".join(sorted(names.values())) for names in labelled if len(names) > 1]
    return f"exact copies under different labels: {listed(at_odds)}" if at_odds else ""


def check_classes(listing: Listing, classes: Sequence[str], problems: Problems) -> None:
    """Report classes that are not trained on."""
    trained, elsewhere = set(classes), defaultdict(list)
    for name, label, split in zip(listing.names, listing.labels, listing.splits, strict=True):
        if label not in trained:
            elsewhere[split, label].append(name)
    for (split, label), names in elsewhere.items():
        problems.add(NOT_IN_TRAIN, f"{split}: '{label}' ({len(names):,} images, such as {names[0]})")


def as_bundle(
    name: str,
    listing: Listing,
    x: dict[str, torch.Tensor | Rows],
    classes: tuple[str, ...],
    notes: tuple[str, ...],
) -> Bundle:
    columns = [[row[k] for row in listing.values] for k in range(len(listing.attributes))]
    values = [ordered(set(column)) for column in columns]
    aligned = [[(label, value) in listing.aligned for value in names] for names in values[:1] for label in classes]
    return to_bundle(
        name,
        x,
        listing.splits,
        Coded("label", places(listing.labels, classes), classes),
        [
            Coded(attribute, places(column, names), names)
            for attribute, column, names in zip(listing.attributes, columns, values, strict=True)
        ],
        names=listing.names,
        aligned=(torch.tensor(aligned),) if listing.aligned else (),
        inputs=Images(
            images.IMAGENET_MEAN,
            images.IMAGENET_STD,
            Augment(scale=(0.7, 1.0), ratio=(3 / 4, 4 / 3), flip=True),
        ),
        net="resnet18",
        recipe=Recipe("adam", 1e-4, weight_decay=1e-4, schedule="cosine", batch_size=64, epochs=30),
        notes=notes,
    )


def understood(path: str | Path, listing: Listing, bundle: Bundle) -> str:
    """What the loader made of the folder, in a few lines."""
    counts = ", ".join(f"{name} {len(split):,}" for name, split in bundle.splits.items())
    lines = [f"folder:{path}: {listing.layout}", f"  images: {counts}", f"  classes: {listed(bundle.classes)}"]
    for name, values in zip(bundle.attributes, bundle.values, strict=True):
        lines.append(f"  bias attribute {name}: {listed(values)}")
    lines += [f"  {note}" for note in bundle.notes]
    lines += [f"  not used: {text}" for text in listing.unused]
    return "\n".join(map(printable, lines))
