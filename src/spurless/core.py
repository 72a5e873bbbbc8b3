"""The vocabulary. A method yields Stages and returns a classifier; everything else is in service of that."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from spurless.augment import Augment
from spurless.errors import UserError
from spurless.settings import Range

if TYPE_CHECKING:
    from spurless.mixing import Mixer
    from spurless.nets import Net
    from spurless.text import Tokens

M = TypeVar("M", bound=nn.Module)
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
    """Rows of a data set: inputs, targets and, where they are known, bias attributes."""

    # uint8 images (n, c, h, w), float vectors (n, d), int32 tokens (n, 2, length), or Rows that are decoded on demand
    x: Tensor | Rows
    y: Tensor  # (n,) int64
    a: Tensor | None = None  # (n, k) int64: one column for each bias attribute
    names: Sequence[str] | None = None  # where each row came from: a path or an id
    member: Tensor | None = None  # (n, m) bool: which groups of Bundle.overlap a row is in: none, one or several

    def __post_init__(self) -> None:  # the rest is checked by the Bundle, which knows a split's name
        for name, held in (("y", self.y), ("a", self.a)):
            if isinstance(held, Tensor) and held.dtype in NARROW:
                object.__setattr__(self, name, held.long())

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, idx: Tensor) -> Tensor:
        # Not x[idx]: on a CPU that gathers images several times more slowly.
        return self.x.index_select(0, idx) if isinstance(self.x, Tensor) else self.x[idx]

    def blinded(self) -> Split:
        """Without bias attributes and groups, and without names, because names often spell the attribute out."""
        return replace(self, a=None, names=None, member=None)


class Overlap(NamedTuple):
    """Groups that share rows, such as the identities that a comment mentions: for scores, not for training.

    Each group of each class is a cell; where a data set has them, `worst_group` is the worst of these cells.
    """

    name: str  # of what the groups are: identity
    groups: tuple[str, ...]  # one name for each column of Split.member


@dataclass(frozen=True)
class Bundle:
    """A named data set: its splits, what its labels mean, and how its inputs become a batch."""

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
    mean: tuple[float, ...] = ()  # of each channel, of inputs scaled to 0..1; empty: inputs are not standardised
    std: tuple[float, ...] = ()
    augment: Augment = Augment()
    columns: tuple[str, ...] = ()  # of a table: what each input is
    coding: tuple[Mapping[str, Any], ...] = ()  # of a table: how its columns became inputs (datasets.coding)
    tokens: Tokens | None = None  # of text: what the token ids mean
    overlap: Overlap | None = None
    groups_ignore_class: bool = False  # a method's groups are the attributes' values, not those within a class
    net: str = "mlp"  # the network used when none is named
    recipe: Recipe = field(default_factory=lambda: Recipe())
    settings: dict[str, Any] = field(default_factory=dict)  # what it was loaded with
    notes: tuple[str, ...] = ()  # what every result on this data must say, such as a stand-in for missing files

    def __post_init__(self) -> None:
        for name, split in self.splits.items():
            _check_shapes(name, split)
        y = self.train.y
        if not len(y):
            raise UserError("The train split has no rows; give it some.")
        if not self.classes:
            object.__setattr__(self, "classes", tuple(str(c) for c in range(int(y.max()) + 1)))
        for name, split in self.splits.items():
            _check_range(split.y, f"y of the {name} split", len(self.classes), "classes")
        known = {name: split.a for name, split in self.splits.items() if split.a is not None}
        if "train" in known or (known and self.aligned):  # else nothing tells which pairs are aligned
            self._set_attributes(known)

    def _set_attributes(self, known: Mapping[str, Tensor]) -> None:
        """What is not said of the attributes, from those that are known, by split."""
        y, a = self.train.y, self.train.a
        if not self.attributes:
            columns = next(iter(known.values())).shape[1]
            object.__setattr__(self, "attributes", tuple(f"a{k}" for k in range(columns)))
        for name, held in known.items():
            if held.shape[1] != len(self.attributes):
                raise UserError(
                    f"a of the {name} split has {held.shape[1]} columns, but there are {len(self.attributes)} "
                    f"attributes ({', '.join(self.attributes)}); give every split one column for each."
                )
        if not self.values:
            top = torch.cat(list(known.values())).amax(0)
            object.__setattr__(self, "values", tuple(tuple(str(v) for v in range(m + 1)) for m in top.tolist()))
        if len(self.values) != len(self.attributes):
            raise UserError(
                f"`values` names those of {len(self.values)} attributes, but there are {len(self.attributes)} "
                f"({', '.join(self.attributes)}); give each a tuple of names."
            )
        for name, held in known.items():
            for k, values in enumerate(self.values):
                where = f"Attribute '{self.attributes[k]}' of the {name} split"
                _check_range(held[:, k], where, len(values), "values")
        if not self.aligned and a is not None:
            tables = [overrepresented(y, a[:, k], len(self.classes), len(v)) for k, v in enumerate(self.values)]
            object.__setattr__(self, "aligned", tuple(tables))

    @staticmethod
    def from_arrays(*args: Any, **settings: Any) -> Bundle:
        """From arrays or tensors: see spurless.datasets.adapters.from_arrays."""
        from spurless.datasets.adapters import from_arrays

        return from_arrays(*args, **settings)

    @staticmethod
    def from_texts(*args: Any, **settings: Any) -> Bundle:
        """From texts or pairs of texts: see spurless.datasets.adapters.from_texts."""
        from spurless.datasets.adapters import from_texts

        return from_texts(*args, **settings)

    @staticmethod
    def from_dataset(*args: Any, **settings: Any) -> Bundle:
        """From map-style torch datasets: see spurless.datasets.adapters.from_dataset."""
        from spurless.datasets.adapters import from_dataset

        return from_dataset(*args, **settings)

    @staticmethod
    def from_hf(*args: Any, **settings: Any) -> Bundle:
        """From Hugging Face datasets: see spurless.datasets.adapters.from_hf."""
        from spurless.datasets.adapters import from_hf

        return from_hf(*args, **settings)

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
        """(n, k): whether each attribute of each row agrees with its label; None where that is not known."""
        if split.a is None or not self.aligned:
            return None
        return torch.stack([table[split.y, split.a[:, k]] for k, table in enumerate(self.aligned)], dim=1)

    def blinded(self, labels: Labels) -> Bundle:
        """What a method may see: never the test split, and no bias attribute beyond what it declares."""
        see_val, see_train = labels in ("validation", "training"), labels == "training"
        val = self.val if self.val is None or see_val else self.val.blinded()
        train = self.train if see_train else self.train.blinded()
        return replace(self, train=train, val=val, test=None)


def _check_shapes(name: str, split: Split) -> None:
    """Refuse what no batch could be made of. Inputs are not looked at: they may lie on a disk."""
    for what, held, dim in (("y", split.y, "(n,)"), ("a", split.a, "(n, k), one column for each attribute")):
        if held is None and what == "a":
            continue
        if not isinstance(held, Tensor):
            raise UserError(
                f"{what} of the {name} split is of type {type(held).__name__}; give a tensor, or make the Bundle with "
                "Bundle.from_arrays."
            )
        if held.dim() != (1 if what == "y" else 2) or held.dtype != torch.int64:
            kind = str(held.dtype).removeprefix("torch.")
            raise UserError(
                f"{what} of the {name} split is {kind} of shape {tuple(held.shape)}; it takes whole numbers of shape "
                f"{dim}."
            )
    rows = {"y": split.y, "a": split.a, "names": split.names, "member": split.member}
    for what, many in ((what, len(held)) for what, held in rows.items() if held is not None):
        if many != len(split.x):
            raise UserError(
                f"The {name} split has {len(split.x):,} inputs x, but {many:,} rows of {what}; give each row one."
            )


def _check_range(numbers: Tensor, where: str, count: int, names: str) -> None:
    low, high = (int(v) for v in numbers.aminmax()) if len(numbers) else (0, 0)
    if low < 0:
        raise UserError(
            f"{where} holds {low}; numbers begin at 0. Give what is unknown a number of its own, or leave its rows out."
        )
    if high >= count:
        raise UserError(
            f"{where} holds {high}, but there are {count} {names}, numbered from 0. Name all of them in `{names}`, or "
            "leave those rows out."
        )


def overrepresented(y: Tensor, a: Tensor, classes: int, values: int) -> Tensor:
    """(classes, values): which attribute values are at least as common in a class as overall.

    Where the attribute tells nothing, nothing conflicts. A value that no row has is aligned with no class: nothing was
    learnt from it, and whoever leans on the attribute is lost there.

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
    idx: Tensor  # which training rows these are
    t: Tensor  # progress through the stage, 0 to 1


Loss = Callable[[Batch], Tensor]
PLAIN = {"loss": "ce"}  # what Stage.shared says of plain training


@dataclass
class Stage:
    """A stretch of training. What the optimiser holds is trained, all else is frozen.

    Several losses with as many optimisers are applied in turn to each batch, each seeing the update before it.
    """

    name: str
    loss: Loss | Sequence[Loss]
    optimizer: Optimizer | Sequence[Optimizer]
    model: nn.Module  # validated after each epoch
    epochs: float | None = None  # how long; neither given: the recipe's length
    iterations: int | None = None
    weights: Tensor | None = None  # (n,) or (len(rows),): draw with these odds, with replacement. None: shuffle
    rows: Tensor | None = None  # train on these rows of the training split, repeats allowed. None: on all
    select: bool = False  # whether the recipe's selection rule picks this stage's weights; False: the last ones
    until: bool | None = None  # whether the recipe's criterion may end it. None: if it has the recipe's length
    span: tuple[float, float] = (0.0, 1.0)  # the part of the schedule that this stage is, when a method splits one up
    # A network is in training mode (dropout on, BatchNorm by the batch) when the optimiser holds any of its
    # parameters; these are in training mode all the same.
    in_training_mode: Sequence[nn.Module] = ()
    # What the outcome depends on beside data, network, recipe and seed, such as {"loss": "gce", "q": 0.7}: runs that
    # agree in all of it train the stage once. None: it is this run's alone.
    shared: Mapping[str, Any] | None = None
    mix: Mixer | None = None  # how its batches are mixed; None: not, or as the recipe says where select is set

    @property
    def may_end_early(self) -> bool:
        """Whether the recipe's criterion may end it."""
        # A length that the method gives is meant; what starts from weights that reach the criterion would not begin.
        return self.epochs is None and self.iterations is None if self.until is None else self.until

    @property
    def updates(self) -> list[tuple[Loss, Optimizer]]:
        losses = [self.loss] if callable(self.loss) else list(self.loss)
        optimizers = [self.optimizer] if isinstance(self.optimizer, Optimizer) else list(self.optimizer)
        return list(zip(losses, optimizers, strict=True))


@dataclass(frozen=True)
class Recipe:
    """How to train: the same for every stage unless the method says otherwise."""

    optimizer: Annotated[Literal["sgd", "adam", "adamw", "psgd"], "the optimiser; psgd: PSGD-Kron"] = "adam"
    lr: Annotated[float, "learning rate at the start (after warm-up)", Range(0)] = 1e-3
    momentum: Annotated[float, "momentum (SGD, PSGD)", Range(0, 1)] = 0.9
    nesterov: Annotated[bool, "Nesterov momentum (SGD)"] = False
    weight_decay: Annotated[float, "weight decay (L2)", Range(0)] = 0.0
    decay_exceptions: Annotated[bool, "no weight decay on biases and the scales of normalisation layers"] = False
    l1: Annotated[float, "weight of the sum of the absolute weights of convolutions and linear layers", Range(0)] = 0.0
    betas: Annotated[tuple[float, ...], "the two running-mean factors (Adam, AdamW)", Range(0, 1)] = (0.9, 0.999)
    eps: Annotated[float, "added to the denominator (Adam, AdamW)", Range(0)] = 1e-8
    loss: Annotated[Literal["ce", "focal"], "what methods use as cross entropy: itself, or focal loss"] = "ce"
    focal_gamma: Annotated[float, "how far focal loss turns away from what is learnt; 0: not at all", Range(0)] = 2.0
    sharpness: Annotated[
        Literal["none", "sam", "asam"], "take each gradient where the loss is highest nearby (SAM, ASAM)"
    ] = "none"
    rho: Annotated[float | None, "how near (sam, asam); none: 0.05 for sam, 0.5 for asam", Range(0)] = None
    schedule: Annotated[
        Literal["constant", "step", "cosine", "linear", "wsd"], "how the learning rate falls; wsd: at the end only"
    ] = "constant"
    step_every: Annotated[float, "epochs between two falls (schedule step)", Range(0)] = 40
    step_from: Annotated[float, "epochs that pass before step_every is counted (schedule step)", Range(0)] = 0.0
    gamma: Annotated[float, "factor of each fall (schedule step)", Range(0, 1)] = 0.1
    fall_after: Annotated[
        int | None, "steps after which it falls once and no more (schedule step); none: see step_every", Range(1)
    ] = None
    decay_share: Annotated[float, "over which last share of the length it falls (schedule wsd)", Range(0, 1)] = 0.2
    warmup: Annotated[float, "epochs over which the learning rate rises to its start value", Range(0)] = 0
    batch_size: Annotated[int, "samples a step", Range(1)] = 128
    epochs: Annotated[float, "length of a stage, in passes over the training rows", Range(0)] = 10
    iterations: Annotated[int, "length of a stage in steps; 0: as many epochs as given", Range(0)] = 0
    until_accuracy: Annotated[
        float, "end a stage when this training accuracy (percent) is reached; 0: never", Range(0, 100)
    ] = 0
    until_loss: Annotated[
        float, "end a stage when the mean training cross entropy is below this, too; 0: never", Range(0)
    ] = 0
    drop_last: Annotated[bool, "leave out the last, smaller batch of an epoch"] = False
    augment: Annotated[str, "data: the data set's own augmentation; none; or a preset (see spurless.augment)"] = "data"
    mix: Annotated[
        Literal["mixup", "within_class", "selecmix"] | None,
        "mix the inputs of the last stage: any two; within a class, aligned with conflicting (LC); or SelecMix's pairs",
    ] = None
    clip_norm: Annotated[float, "largest gradient norm; 0: no limit", Range(0)] = 0.0
    selection: Annotated[
        Literal["last", "val_accuracy", "val_loss", "val_worst_group"], "which weights of the last stage are kept"
    ] = "last"
    eval_every: Annotated[float, "epochs between two looks at the validation split; 0: only where needed", Range(0)] = 1
    test_every: Annotated[
        int, "steps between two looks at the test split, to report its best as test_selected; 0: none", Range(0)
    ] = 0
    eval_batch_size: Annotated[int, "rows a forward pass when evaluating", Range(1)] = 1024
    precision: Annotated[
        Literal["fp32", "tf32", "bf16"],
        "arithmetic of the forward pass; fp32 is torch's: convolutions on recent NVIDIA GPUs still round to tf32",
    ] = "fp32"
    channels_last: Annotated[bool, "memory layout of images; faster for convolutions"] = True
    compile: Annotated[bool, "compile the loss with torch.compile (pays on a GPU in long runs)"] = False
    cuda_graph: Annotated[bool, "on a GPU, replay the whole step as one CUDA graph"] = True
    deterministic: Annotated[bool, "on a GPU, only deterministic kernels (slower)"] = False


@dataclass(frozen=True)
class Method(ABC):
    """A way to train a classifier. Its fields are its hyperparameters; the paper's values are the defaults."""

    # What it may know of the bias attributes: nothing; nothing, but its published protocol picks the weights by
    # validation groups; those of the validation split; those of the training split too.
    bias_labels: ClassVar[Labels] = "none"

    @property
    def labels(self) -> Labels:
        """What it may know with these settings, where they decide: groups that are guessed need no labels."""
        return self.bias_labels

    @abstractmethod
    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        """Yield each stretch of training, and return the classifier."""

    def classifier(self, make: Callable[..., Net]) -> Net:
        """The shape of what `stages` returns, from `make` = Run.net, so that saved weights find their place again."""
        return make()


class Run(ABC):
    """All that a method may ask for. The engine makes it; nothing in it leads to a hidden label."""

    data: Bundle  # blinded: see Bundle.blinded
    seed: int
    recipe: Recipe
    device: torch.device

    @abstractmethod
    def net(self) -> Net:
        """A fresh network of the run's kind, on the device; each call is initialised anew from the run's seed. Where a
        user gave a module, each is a copy of it; a factory makes them differ."""

    @abstractmethod
    def optimizer(self, *held: nn.Module | Iterable[nn.Parameter], **changes: Any) -> Optimizer:
        """The recipe's optimiser over these modules or parameters; `changes` override fields of the recipe."""

    @abstractmethod
    def outputs(
        self, net: nn.Module, split: Split | None = None, features: bool = False, augment: bool = False
    ) -> Tensor:
        """Logits (or features) of every row, in evaluation mode; default: the training rows, as they are.

        With `augment`, of one random view of each row: the same views whenever the run asks.
        """

    @abstractmethod
    def keep(self, module: M) -> M:
        """Make a module with state of the method's own part of every checkpoint, on the device."""

    @abstractmethod
    def generator(self, name: str) -> torch.Generator:
        """Random numbers of the method's own, on the CPU: the same for the same seed and name."""

    @abstractmethod
    def mined(self, conflicting: Tensor, name: str = "mined") -> None:
        """Tell which training rows (n,) were taken for bias-conflicting; the result scores it against the truth."""

    @abstractmethod
    def grouped(self, groups: Tensor, name: str = "groups") -> None:
        """Tell which group each training row (n,) was guessed to be in; the result scores it against the truth."""
