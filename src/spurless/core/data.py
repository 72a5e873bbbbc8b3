"""The data that a run sees: Split, Bundle and Batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from spurless.core.augment import Augment
from spurless.core.errors import DataError
from spurless.core.recipe import Recipe

if TYPE_CHECKING:
    from spurless.data.anything import from_pandas
    from spurless.data.arrays import from_arrays, from_dataset, from_hf, from_texts
    from spurless.data.of import of
    from spurless.data.tokens import Tokens

Labels = Literal["none", "selection", "validation", "training"]
NARROW = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32}  # which not all losses take as labels


class Rows(Protocol):
    """Inputs too large for memory: decoded when asked for, in the calling thread or ahead of it (feed.py)."""

    shape: tuple[int, ...]  # (n, ...)
    dtype: torch.dtype

    def __len__(self) -> int: ...
    def __getitem__(self, idx: Tensor) -> Tensor: ...


@runtime_checkable
class HasContent(Protocol):
    """Rows that can tell a hash of their content without being decoded; others are all decoded once for it."""

    def content_digest(self) -> bytes: ...


@dataclass(frozen=True)
class Split:
    """Rows of a dataset: inputs, targets and, where they are known, bias attributes."""

    # uint8 images (n, c, h, w), float vectors (n, d), int32 tokens (n, 2, length), or Rows that are decoded on demand
    x: Tensor | Rows
    y: Tensor  # (n,) int64
    a: Tensor | None = None  # (n, k) int64: one column for each bias attribute
    names: Sequence[str] | None = None  # where each sample came from: a path or an id
    member: Tensor | None = None  # (n, m) bool: which groups of Bundle.overlap a sample is in: none, one or several

    def __post_init__(self) -> None:  # the rest is checked by the Bundle, which knows a split's name
        for name, tensor in (("y", self.y), ("a", self.a)):
            if isinstance(tensor, Tensor) and tensor.dtype in NARROW:
                object.__setattr__(self, name, tensor.long())

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, idx: Tensor) -> Tensor:
        # Not x[idx]: on a CPU that gathers images several times more slowly.
        return self.x.index_select(0, idx) if isinstance(self.x, Tensor) else self.x[idx]

    def blinded(self) -> Split:
        """Without bias attributes and groups, and without names, because names often spell the attribute out."""
        return replace(self, a=None, names=None, member=None)


class Regions(Protocol):
    """Says for samples of a split where the core feature is, and each attribute that has a region of its own.

    The masks are boolean: (m, h, w) of images, (m, d) of vectors.
    """

    def __call__(self, data: Bundle, split: str, idx: Tensor, /) -> tuple[Tensor, dict[str, Tensor]]: ...


class Overlap(NamedTuple):
    """Groups that share samples, such as the identities that a comment mentions: for scores, not for training.

    Each group of each class is a cell; where a dataset has them, `worst_group` is the worst of these cells.
    """

    name: str  # of what the groups are: identity
    groups: tuple[str, ...]  # one name for each column of Split.member


@dataclass(frozen=True)
class Images:
    """Inputs (n, c, h, w): uint8, which are scaled to 0..1, or floats."""

    mean: tuple[float, ...] = ()  # of each channel, of pixels scaled to 0..1; empty: they are not standardised
    std: tuple[float, ...] = ()
    augment: Augment = Augment()


@dataclass(frozen=True)
class Table:
    """Inputs that are numbers: the columns of a table, or vectors (n, d)."""

    columns: tuple[str, ...] = ()  # what each input is
    coding: tuple[Mapping[str, Any], ...] = ()  # how the columns of a file became inputs (data.coding)
    mean: tuple[float, ...] = ()  # of each input; empty: they are not standardised
    std: tuple[float, ...] = ()


@dataclass(frozen=True)
class Texts:
    """Inputs (n, 2, length): token ids, and which text each belongs to (data.tokens)."""

    tokens: Tokens  # what the ids mean
    mean: ClassVar[tuple[float, ...]] = ()  # ids are names, not quantities
    std: ClassVar[tuple[float, ...]] = ()


class _Constructor:
    """A function of the layer above, by the name of its module, so that `Bundle.from_arrays` is that very function:
    with its signature and its help, imported when it is first asked for."""

    def __init__(self, module: str):
        self.module = module

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type) -> Any:
        return getattr(import_module(self.module), self.name)


@dataclass(frozen=True)
class Bundle:
    """A named dataset: its splits, what its labels mean, and how its inputs become a batch."""

    name: str
    train: Split
    val: Split | None = None
    test: Split | None = None
    classes: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()  # one name for each column of a
    values: tuple[tuple[str, ...], ...] = ()  # for each attribute, the names of its values
    # For each attribute a (classes, values) table of the pairs that the shortcut predicts. Empty: taken from the
    # training counts, a pair being aligned when the value is at least as common in the class as overall.
    aligned: tuple[Tensor, ...] = ()
    inputs: Images | Table | Texts = None  # type: ignore[assignment]  # None: images where x is (n, c, h, w), else a table
    overlap: Overlap | None = None
    groups_ignore_class: bool = False  # a method's groups are the attributes' values, not those within a class
    net: str = "mlp"  # the network used when none is named
    recipe: Recipe = field(default_factory=lambda: Recipe())
    settings: dict[str, Any] = field(default_factory=dict)  # what it was loaded with
    notes: tuple[str, ...] = ()  # what every result on this data must say, such as a stand-in for missing files
    regions: Regions | None = None  # where the features are in the inputs, of datasets that know it

    def __post_init__(self) -> None:
        for name, split in self.splits.items():
            _check_shapes(name, split)
        self._set_inputs()
        y = self.train.y
        if not len(y):
            raise DataError("The train split has no samples; give it some.")
        if not self.classes:
            object.__setattr__(self, "classes", tuple(str(c) for c in range(int(y.max()) + 1)))
        for name, split in self.splits.items():
            _check_range(split.y, f"y of the {name} split", len(self.classes), "classes")
        attributes_of = {name: split.a for name, split in self.splits.items() if split.a is not None}
        if "train" in attributes_of or (attributes_of and self.aligned):  # else nothing tells which pairs are aligned
            self._set_attributes(attributes_of)

    def _set_inputs(self) -> None:
        is_image = len(self.shape) == 3
        if self.inputs is None:
            object.__setattr__(self, "inputs", Images() if is_image else Table())
        if isinstance(self.inputs, Images) != is_image:
            raise DataError(
                f"An input of {self.name} is of shape {self.shape}, and `inputs` says {type(self.inputs).__name__}: "
                "images, and nothing else, are (channels, height, width)."
            )

    def _set_attributes(self, attributes_of: Mapping[str, Tensor]) -> None:
        """What is not said of the attributes, from those that are known, by split."""
        y, a = self.train.y, self.train.a
        if not self.attributes:
            columns = next(iter(attributes_of.values())).shape[1]
            object.__setattr__(self, "attributes", tuple(f"a{k}" for k in range(columns)))
        for name, column in attributes_of.items():
            if column.shape[1] != len(self.attributes):
                raise DataError(
                    f"a of the {name} split has {column.shape[1]} columns, but there are {len(self.attributes)} "
                    f"attributes ({', '.join(self.attributes)}); give every split one column for each."
                )
        if not self.values:
            top = torch.cat(list(attributes_of.values())).amax(0)
            object.__setattr__(self, "values", tuple(tuple(str(v) for v in range(m + 1)) for m in top.tolist()))
        if len(self.values) != len(self.attributes):
            raise DataError(
                f"`values` names those of {len(self.values)} attributes, but there are {len(self.attributes)} "
                f"({', '.join(self.attributes)}); give each a tuple of names."
            )
        for name, column in attributes_of.items():
            for k, values in enumerate(self.values):
                where = f"Attribute '{self.attributes[k]}' of the {name} split"
                _check_range(column[:, k], where, len(values), "values")
        if not self.aligned and a is not None:
            tables = [overrepresented(y, a[:, k], len(self.classes), len(v)) for k, v in enumerate(self.values)]
            object.__setattr__(self, "aligned", tuple(tables))

    if TYPE_CHECKING:
        of = staticmethod(of)
        from_arrays = staticmethod(from_arrays)
        from_texts = staticmethod(from_texts)
        from_dataset = staticmethod(from_dataset)
        from_hf = staticmethod(from_hf)
        from_pandas = staticmethod(from_pandas)
    else:
        of = _Constructor("spurless.data.of")
        from_arrays = _Constructor("spurless.data.arrays")
        from_texts = _Constructor("spurless.data.arrays")
        from_dataset = _Constructor("spurless.data.arrays")
        from_hf = _Constructor("spurless.data.arrays")
        from_pandas = _Constructor("spurless.data.anything")

    def __repr__(self) -> str:
        from spurless.core import look

        return look.text(self)

    def _repr_html_(self) -> str:
        from spurless.core import look

        return look.as_html(self)

    def plot(self, columns: int = 6) -> Any:
        """Draw training images of each class, conflicting ones in a line of their own. Returns an array of axes."""
        from spurless.core import look

        return look.gallery(self, columns)

    @property
    def splits(self) -> dict[str, Split]:
        named = {"train": self.train, "val": self.val, "test": self.test}
        return {name: split for name, split in named.items() if split is not None}

    @property
    def source(self) -> str:
        """How a command line names it, such as folder:photos; its name where it was not loaded."""
        return str(self.settings.get("source", self.name))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.train.x.shape[1:])

    def is_aligned(self, split: Split) -> Tensor | None:
        """(n, k): whether each attribute of each sample agrees with its label; None where that is not known."""
        if split.a is None or not self.aligned:
            return None
        return torch.stack([table[split.y, split.a[:, k]] for k, table in enumerate(self.aligned)], dim=1)

    def blinded(self, labels: Labels) -> Bundle:
        """What a method may see: never the test split or the regions, and no bias attribute beyond what it declares."""
        see_val, see_train = labels in ("validation", "training"), labels == "training"
        val = self.val if self.val is None or see_val else self.val.blinded()
        train = self.train if see_train else self.train.blinded()
        return replace(self, train=train, val=val, test=None, regions=None)


def _check_shapes(name: str, split: Split) -> None:
    """Refuse what no batch could be made of. Inputs are not looked at: they may lie on a disk."""
    for what, tensor, dim in (("y", split.y, "(n,)"), ("a", split.a, "(n, k), one column for each attribute")):
        if tensor is None and what == "a":
            continue
        if not isinstance(tensor, Tensor):
            raise DataError(
                f"{what} of the {name} split is of type {type(tensor).__name__}; give a tensor, or make the Bundle "
                "with Bundle.from_arrays."
            )
        if tensor.dim() != (1 if what == "y" else 2) or tensor.dtype != torch.int64:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise DataError(
                f"{what} of the {name} split is {kind} of shape {tuple(tensor.shape)}; it takes whole numbers of shape "
                f"{dim}."
            )
    rows = {"y": split.y, "a": split.a, "names": split.names, "member": split.member}
    for what, many in ((what, len(tensor)) for what, tensor in rows.items() if tensor is not None):
        if many != len(split.x):
            raise DataError(
                f"The {name} split has {len(split.x):,} inputs x, but {many:,} values of {what}; give each sample one."
            )


def _check_range(numbers: Tensor, where: str, count: int, names: str) -> None:
    low, high = (int(v) for v in numbers.aminmax()) if len(numbers) else (0, 0)
    if low < 0:
        raise DataError(
            f"{where} holds {low}; numbers begin at 0. Give what is unknown a number of its own, or leave it out."
        )
    if high >= count:
        raise DataError(
            f"{where} holds {high}, but there are {count} {names}, numbered from 0. Name all of them in `{names}`, or "
            "leave those samples out."
        )


def overrepresented(y: Tensor, a: Tensor, classes: int, values: int) -> Tensor:
    """(classes, values): which attribute values are at least as common in a class as overall.

    Where the attribute tells nothing, nothing conflicts. A value that no sample has is aligned with no class: nothing
    was learnt from it, and whoever leans on the attribute is lost there.

    >>> overrepresented(torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 0, 1, 1, 1, 0]), 2, 3).tolist()
    [[True, False, False], [False, True, False]]
    """
    count = torch.bincount(y * values + a, minlength=classes * values).view(classes, values).double()
    of_value = count.sum(0, keepdim=True)
    expected = count.sum(1, keepdim=True) * of_value / count.sum()
    return (count >= expected - 1e-9) & (of_value > 0)


class Batch(NamedTuple):
    """What a loss sees."""

    x: Tensor  # augmented and standardised, on the device
    y: Tensor
    a: Tensor | None  # None unless the method declares that it uses training bias labels
    idx: Tensor  # which training samples these are
    t: Tensor  # progress through the stage, 0 to 1
