"""Conflicting samples as those that a network which relies on the bias gets wrong."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn

from spurless.core.data import Batch
from spurless.core.errors import SettingError
from spurless.core.method import PLAIN, Run, Stage
from spurless.core.recipe import Recipe
from spurless.core.settings import Range
from spurless.methods.group_inference import Inference, Inferring, conflicting_groups
from spurless.methods.group_inference.scores import confidence
from spurless.methods.group_inference.training import EarlyEpochs, GceForm, Length, Q, early
from spurless.methods.parts.losses import gce

DECAY = 0.1  # factor of each decay of the learning rate

Epochs = Annotated[float | None, "length in epochs; neither given: the published length", Range(0)]
Iterations = Annotated[int | None, "length in steps, where given, instead of epochs", Range(1)]
ErrorsBy = Annotated[
    Literal["evaluation", "training"], "errors in a pass after training, or at each sample's last training step"
]
OwnOptimizer = Annotated[Literal["sgd", "adam", "adamw"] | None, "optimiser of the biased network; none: the recipe's"]
OwnLr = Annotated[float, "learning rate of the biased network; 0: the recipe's", Range(0)]
OwnWeightDecay = Annotated[float | None, "weight decay of the biased network; none: the recipe's", Range(0)]
DecayEvery = Annotated[int, "steps between two tenfold decays of its learning rate; 0: none", Range(0)]


@dataclass(frozen=True)
class Errors(Inference):
    """The errors of a network, trained with the recipe's optimiser or its own."""

    epochs: Epochs = None
    iterations: Iterations = None
    errors_by: ErrorsBy = "evaluation"
    optimizer: OwnOptimizer = None
    lr: OwnLr = 0.0
    weight_decay: OwnWeightDecay = None
    decay_every: DecayEvery = 0

    def changes(self, recipe: Recipe) -> dict[str, Any]:
        """Fields of the recipe that are other for this network.

        >>> ErmErrors(optimizer="sgd", lr=0.1, weight_decay=1e-4).changes(Recipe("adam", 0.01))
        {'optimizer': 'sgd', 'lr': 0.1, 'weight_decay': 0.0001}
        """
        if self.optimizer not in (None, recipe.optimizer) and not self.lr:
            raise SettingError(
                f"Group inference by {self.optimizer} needs a learning rate of its own (method.groups.lr, or "
                f"method.mining.lr): the recipe's {recipe.lr:g} is {recipe.optimizer}'s."
            )
        given = {"optimizer": self.optimizer, "lr": self.lr or None, "weight_decay": self.weight_decay}
        return {name: value for name, value in given.items() if value is not None}

    def length(self, otherwise: Length) -> Length:
        return otherwise if self.epochs is None and self.iterations is None else Length(self.epochs, self.iterations)

    def errors(
        self, run: Run, objective: Callable[[Tensor, Tensor], Tensor], kind: dict[str, Any], length: Length
    ) -> Inferring:
        """Train a network with this loss of logits and labels; its errors conflict."""
        net, y = run.net(), run.data.train.y.to(run.device)
        log = run.keep(ErrorLog(len(y)))

        def loss(b: Batch) -> Tensor:
            logits = net(b.x)
            if self.errors_by == "training":
                log.update(b.idx, logits, b.y)
            return objective(logits, b.y)

        optimizer = run.optimizer(net, **self.changes(run.recipe))
        rates = [group["initial_lr"] for group in optimizer.param_groups]
        shared = kind | {"errors_by": self.errors_by}
        for number, ((epochs, iterations), span) in enumerate(stretches(length, self.decay_every)):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["initial_lr"] = rate * DECAY**number  # what the engine's schedule starts from
            yield Stage(
                "mine", loss, optimizer, model=net, epochs=epochs, iterations=iterations, span=span, shared=shared
            )
        logits, val = run.outputs(net), run.data.val
        conflicting = log.wrong.clone() if self.errors_by == "training" else wrong(logits, y)
        held_out = None if val is None else wrong(run.outputs(net, val).cpu(), val.y)
        return conflicting_groups(run, conflicting, 1 - confidence(logits, y), net, held_out)


@dataclass(frozen=True)
class GceErrors(Errors):
    """The errors of a network trained with GCE (DCWP: 2,000 steps on Colored MNIST, the default; 10,000 on BFFHQ).

    On Colored MNIST the released script trains it by SGD, whatever trains the main network: lr 0.1, weight decay 1e-4,
    a tenfold decay every 600 steps.
    """

    q: Q = 0.7
    form: GceForm = "paper"

    def infer(self, run: Run) -> Inferring:
        def objective(logits: Tensor, y: Tensor) -> Tensor:
            return gce(logits, y, self.q, self.form)

        kind = {"loss": "gce", "q": self.q, "form": self.form}
        return (yield from self.errors(run, objective, kind, self.length(Length(iterations=2000))))


@dataclass(frozen=True)
class ErmErrors(Errors):
    """The errors of a network trained with cross entropy and stopped early (JTT, DCWP_ERM).

    How early depends on the data: JTT takes 1 epoch on CelebA (the default) and 60 on Waterbirds, DCWP does not say.
    JTT's released code logs the errors while the last epoch trains, DCWP's takes them in a pass afterwards.
    """

    def infer(self, run: Run) -> Inferring:
        return (yield from self.errors(run, run.ce, dict(PLAIN), self.length(Length(epochs=1))))


@dataclass(frozen=True)
class EarlyErrors(Inference):
    """The errors of a plainly trained network that is stopped early (JTT)."""

    identify_epochs: EarlyEpochs = 0
    errors_by: ErrorsBy = "evaluation"

    def infer(self, run: Run) -> Inferring:
        return (yield from ErmErrors(*early(run, self.identify_epochs), self.errors_by).infer(run))


def stretches(length: Length, every: int) -> list[tuple[Length, tuple[float, float]]]:
    """The stretches between two decays of the learning rate, each with its part of the whole. Each is a stage of its
    own, because one schedule, the recipe's, serves all stages of a run.

    >>> [(part.iterations, span) for part, span in stretches(Length(iterations=2000), 600)]
    [(600, (0.0, 0.3)), (600, (0.3, 0.6)), (600, (0.6, 0.9)), (200, (0.9, 1.0))]
    """
    if not every:
        return [(length, (0.0, 1.0))]
    total = length.iterations
    if total is None:
        raise SettingError("decay_every counts steps: give the length of the biased network's training in steps, too.")
    ends = [*range(every, total, every), total]
    starts = [0, *ends[:-1]]
    return [(Length(None, b - a), (a / total, b / total)) for a, b in zip(starts, ends, strict=True)]


def wrong(logits: Tensor, y: Tensor) -> Tensor:
    """(n,) Which samples are classified wrongly.

    >>> wrong(torch.tensor([[2.0, 1.0], [2.0, 1.0]]), torch.tensor([0, 1])).tolist()
    [False, True]
    """
    return logits.argmax(1) != y


class ErrorLog(nn.Module):
    """Whether each training sample was classified wrongly when it was last trained on; one never seen was not."""

    def __init__(self, n: int):
        super().__init__()
        self.register_buffer("wrong", torch.zeros(n, dtype=torch.bool))

    wrong: Tensor

    @torch.no_grad()
    def update(self, idx: Tensor, logits: Tensor, y: Tensor) -> None:
        """Note the errors of a batch. Of a sample that it holds several times, the last one counts."""
        same = idx[:, None] == idx  # (batch, batch)
        order = torch.arange(len(idx), device=idx.device)
        last = (same * order).amax(1)  # so that every copy writes the same: the order of writing is not defined
        self.wrong[idx] = wrong(logits, y)[last]
