"""What a method is made of. A method yields Stages and returns a classifier; everything else is in service of that."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from spurless.core.data import Batch, Bundle, Labels, Split
from spurless.core.recipe import Recipe

if TYPE_CHECKING:
    from spurless.methods.parts.exchange import Exchange
    from spurless.methods.parts.mixing import Mixer
    from spurless.nets import Net

M = TypeVar("M", bound=nn.Module)
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
    sample_weights: Tensor | None = None  # (n,) or (len(rows),): draw with these odds, with replacement. None: shuffle
    rows: Tensor | None = None  # numbers of the training samples to train on, repeats allowed. None: all
    select: bool = False  # whether the recipe's selection rule picks this stage's weights; False: the last ones
    until: bool | None = None  # whether the recipe's criterion may end it. None: if it has the recipe's length
    span: tuple[float, float] = (0.0, 1.0)  # the part of the schedule that this stage is, when a method splits one up
    # A network is in training mode (dropout on, BatchNorm by the batch) when the optimiser holds any of its
    # parameters; these are in training mode all the same.
    in_training_mode: Sequence[nn.Module] = ()
    # What the outcome depends on beside data, network, recipe and seed, such as {"loss": "gce", "q": 0.7}: runs that
    # agree in all of it train the stage once. None: it is this run's alone.
    shared: Mapping[str, Any] | None = None
    recipe: Recipe | None = None  # batches, length, schedule and augmentation of its own. None: the run's recipe
    mix: Mixer | Exchange | None = (
        None  # how its batches are mixed; None: not, or as the recipe says where select is set
    )

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
class Method(ABC):
    """A way to train a classifier. Its fields are its hyperparameters; the paper's values are the defaults."""

    # What it may know of the bias attributes: nothing; nothing, but its published protocol picks the weights by
    # validation groups; those of the validation split; those of the training split too.
    bias_labels: ClassVar[Labels] = "none"

    @property
    def labels(self) -> Labels:
        """What it may know with these settings, where they decide: inferred groups need no labels."""
        return self.bias_labels

    @abstractmethod
    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        """Yield each stretch of training, and return the classifier."""

    def classifier(self, make: Callable[..., Net]) -> Net:
        """The shape of what `stages` returns, from `make` = Run.net, so that saved weights can be loaded."""
        return make()


class Run(ABC):
    """All that a method may ask for. The engine makes it; nothing in it leads to a hidden label."""

    data: Bundle  # blinded: see Bundle.blinded
    seed: int
    recipe: Recipe
    device: torch.device
    focal_gamma: float  # γ, where the recipe's loss is focal; 0: cross entropy

    @abstractmethod
    def net(self) -> Net:
        """A fresh network of the run's kind, on the device; each call is initialised anew from the run's seed. Where a
        user gave a module, each is a copy of it; a factory makes them differ."""

    @abstractmethod
    def easy_net(self) -> Net | None:
        """A fresh small network, which learns what is easy; None for data that is neither images nor texts."""

    @abstractmethod
    def optimizer(self, *trained: nn.Module | Iterable[nn.Parameter], **changes: Any) -> Optimizer:
        """The recipe's optimiser over these modules or parameters; `changes` override fields of the recipe."""

    @abstractmethod
    def ce(self, logits: Tensor, y: Tensor) -> Tensor:
        """The recipe's classification loss, mean over the batch: cross entropy, or with the gradient of focal loss."""

    @abstractmethod
    def ce_rows(self, logits: Tensor, y: Tensor) -> Tensor:
        """The same for each sample (n,)."""

    @abstractmethod
    def outputs(
        self, net: nn.Module, split: Split | None = None, features: bool = False, augment: bool = False
    ) -> Tensor:
        """Logits (or features) of every sample, in evaluation mode; default: the training samples, as they are.

        With `augment`, of one random view of each sample: the same views whenever the run asks.
        """

    @abstractmethod
    def keep(self, module: M) -> M:
        """Make a module with state of the method's own part of every checkpoint, on the device."""

    @abstractmethod
    def generator(self, name: str) -> torch.Generator:
        """Random numbers of the method's own, on the CPU: the same for the same seed and name."""

    @abstractmethod
    def report_conflicting(self, conflicting: Tensor, name: str = "mined") -> None:
        """Report the training samples (n,) identified as bias-conflicting; the result scores them against the truth."""

    @abstractmethod
    def report_groups(self, groups: Tensor, name: str = "groups") -> None:
        """Report the inferred group of each training sample (n,); the result scores it against the truth."""
